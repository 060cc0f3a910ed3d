//! Allocations: one row an allocation, those that a query holds for, sorted; what the query holds for lights up everywhere.

use std::sync::Arc;

use egui::{Key, Modifiers, Rect, Role, Sense, Ui, WidgetInfo, pos2, vec2};

use super::query_field::QueryField;
use super::query_help::QueryWords;
use super::{View, ViewContext, ViewInfo};
use crate::app::jobs::Derived;
use crate::app::jobs::identity::Identity;
use crate::app::state::action::Action;
use crate::app::state::command::Command;
use crate::app::state::selection::Item;
use crate::app::state::view_kind::ViewKind;
use crate::app::theme::Type;
use crate::app::widgets::button::focus_ring;
use crate::app::widgets::cut::Cut;
use crate::app::widgets::label;
use crate::app::widgets::pane::{empty_state, progress_line};
use crate::app::widgets::rows::{BAR, RowList};
use crate::app::widgets::table::{Head, cell, head_line};
use vramscope_core::anatomy::steps::Steps;
use vramscope_core::query::ordering::Order;
use vramscope_core::query::{Asked, Scope, of_text};
use vramscope_core::tables::{LifetimeId, NO_EVENT, Quantity};
use vramscope_core::units::{Bytes, count};

mod layout;
mod row;

use layout::{Column, Known};

/// The query's field: its name, its hint, and how it is cleared.
const ASKED: (&str, &str, &str) = ("Query allocations", "size>1MiB stack~attention live@peak", "Clear the query");

pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::Allocations,
    legend: &[
        ("query", "what all views light up; the ? in its field lists what can be asked, with examples from this recording"),
        ("size>1 MiB live@peak", "both must hold; A or B: either; -A: everything but"),
        ("0x…_3", "the fourth tenant of that address"),
        ("arrows, Enter", "choose a row, go to its birth"),
        ("double click", "go to its birth"),
    ],
    create: || Box::new(Allocations::default()),
};

/// Height of a row, of the header of the columns, of the line of figures.
const ROW: f32 = 20.0;
const HEADER: f32 = 24.0;
const SUMMARY: f32 = 24.0;

/// What the order of the rows depends on.
#[derive(Clone, Debug, PartialEq)]
struct SortKey {
    matching: Option<Identity>,
    roles: Option<Identity>,
    order: Order,
    descending: bool,
}

struct Allocations {
    field: QueryField,
    /// The applied query when this view last looked.
    seen_query: Option<String>,
    /// The query this view asked for last: what is typed without the term that cannot be read.
    sent: Option<String>,
    order: Order,
    descending: bool,
    sorted: Derived<SortKey, Vec<u32>>,
    steps: Derived<(), Steps>,
    words: QueryWords,
    /// How many tenants the addresses of the visible rows had before.
    generations: Derived<(Identity, usize, usize), Vec<u32>>,
    list: RowList,
    /// The row with the keyboard focus, by its place in the list.
    at: Option<usize>,
    /// The selection the rows were last scrolled to.
    followed: Option<LifetimeId>,
    is_hovering: bool,
    menu: Option<LifetimeId>,
}

impl Default for Allocations {
    fn default() -> Self {
        Allocations {
            field: QueryField::default(),
            seen_query: None,
            sent: None,
            order: Order::Size,
            descending: true,
            sorted: Derived::default(),
            steps: Derived::default(),
            words: QueryWords::default(),
            generations: Derived::default(),
            list: RowList::default(),
            at: None,
            followed: None,
            is_hovering: false,
            menu: None,
        }
    }
}

impl View for Allocations {
    fn subtitle(&self, cx: &ViewContext<'_>) -> String {
        let all = cx.data.tables.lifetimes.len();
        match cx.matching {
            Some(matching) => of_text(matching.len(), all),
            None => vramscope_core::units::counted(all as u64, "allocation", "allocations"),
        }
    }

    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        if cx.data.tables.lifetimes.is_empty() {
            empty_state(
                ui,
                "This recording has no allocations. This line, before the work begins, records them:",
                Some(&cx.words().say(vramscope_core::diagnose::limits::RECORD)),
            );
            return;
        }
        ui.spacing_mut().item_spacing.y = 0.0;
        self.query_ui(ui, cx);
        let whole = ui.available_rect_before_wrap();
        let Some(rows) = self.rows(ui, cx, whole) else { return };
        self.summary_ui(ui, cx);
        self.table(ui, cx, &rows);
    }
}

impl Allocations {
    fn query_ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        // A query asked elsewhere shows here; one that is still being typed is left alone.
        let in_force = cx.shared.query.as_ref().map(|q| q.text.clone());
        if self.seen_query != in_force {
            self.seen_query.clone_from(&in_force);
            let text = in_force.unwrap_or_default();
            // The applied part of a query does not replace what is typed.
            let is_own = self.sent.as_deref().is_some_and(|sent| sent.trim() == text.trim());
            if !is_own && self.field.text.trim() != text.trim() {
                self.field.set(&text);
            }
        }
        if let Some(text) = self.words.show(&mut self.field, ui, cx, ASKED, self.seen_query.as_deref()) {
            self.sent = Some(text.clone());
            cx.actions.send(Action::SetQuery(text));
        }
    }

    /// The rows in their order; the older order while a newer one is made.
    fn rows(&mut self, ui: &Ui, cx: &ViewContext<'_>, whole: Rect) -> Option<Arc<Vec<u32>>> {
        if cx.shared.query.is_some() && cx.matching.is_none() {
            progress_line(ui, whole, None);
            return None;
        }
        let by_role = self.order == Order::Role;
        let key = SortKey {
            matching: cx.matching.map(Identity::of),
            roles: cx.roles.filter(|_| by_role).map(Identity::of),
            order: self.order,
            descending: self.descending,
        };
        let (data, matching, roles) = (Arc::clone(cx.data), cx.matching.cloned(), cx.roles.cloned());
        let (by, descending) = (self.order, self.descending);
        let shown = self.sorted.get(cx.jobs, "sort allocations", &key, move |progress| {
            let all = || (0..data.tables.lifetimes.len() as u32).collect();
            let rows = matching.as_ref().map_or_else(all, |m| m.rows().to_vec());
            let scope = Scope { roles: roles.as_deref(), ..Scope::new(&data.recording, data.device(), &data.tables) };
            by.sort(descending, rows, &scope, &data.names, progress).ok()
        });
        if !shown.is_fresh {
            progress_line(ui, whole, shown.fraction);
        }
        shown.value
    }

    /// What is shown, in one line of figures.
    fn summary_ui(&self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let t = cx.tokens;
        let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), SUMMARY), Sense::hover());
        let device = cx.data.device();
        let tables = &cx.data.tables;
        let all = tables.lifetimes.len();
        let figures: Vec<(String, &str)> = match cx.matching {
            Some(m) if m.is_empty() => vec![(of_text(0, all), "allocations")],
            Some(m) => {
                let (peak, at) = m.peak();
                let when = if at == NO_EVENT { "before the trace".to_owned() } else { format!("at {}", count(u64::from(at))) };
                vec![
                    (of_text(m.len(), all), "allocations"),
                    (Bytes(m.bytes_at(device, tables, cx.shared.cursor)).to_string(), "now"),
                    (Bytes(peak).to_string(), "at their peak"),
                    (when, ""),
                    (Bytes(m.handed_out()).to_string(), "over the run"),
                ]
            }
            None => {
                let now = tables.curves.at(device, &tables.lifetimes, Quantity::Active, cx.shared.cursor);
                let (peak, _) = tables.curves.peak(Quantity::Active);
                let at_peak = if cx.data.recording.is_relative(device) { "at most, as the trace shows" } else { "at the peak" };
                let churn = cx.roles.map(|c| c.handed_out.iter().map(|t| t.bytes).sum());
                let mut figures =
                    vec![(count(all as u64), "allocations"), (Bytes(now).to_string(), "now"), (Bytes(peak).to_string(), at_peak)];
                figures.extend(churn.map(|bytes: u64| (Bytes(bytes).to_string(), "over the run")));
                figures
            }
        };
        let mut x = rect.left() + 12.0;
        let right = rect.right() - 12.0;
        let mut said = String::new();
        for (figure, what) in &figures {
            said.push_str(&format!("{figure} {what}, "));
            let needed = label::width(ui.painter(), figure, Type::Mono) + label::width(ui.painter(), what, Type::Caption) + 6.0;
            if x + needed > right {
                break;
            }
            let y = rect.center().y;
            let covered = label::text(ui.painter(), pos2(x, y), egui::Align2::LEFT_CENTER, figure, Type::Mono, t.text1);
            x = covered.right();
            if !what.is_empty() {
                let at = pos2(x + 5.0, y);
                x = label::text(ui.painter(), at, egui::Align2::LEFT_CENTER, what, Type::Caption, t.text3).right();
            }
            x += if what.is_empty() {
                14.0
            } else if *what == "at their peak" {
                6.0
            } else {
                14.0
            };
        }
        response.widget_info(|| WidgetInfo::labeled(Role::Label, true, said.trim_end_matches(", ")));
        if cx.matching.is_some() {
            let peak_event = cx.matching.filter(|m| !m.is_empty()).map_or(NO_EVENT, |m| m.peak().1);
            let can_go = peak_event != NO_EVENT;
            let go = ui.interact(rect, ui.scope_id().with("go to their peak"), Sense::click());
            go.widget_info(|| WidgetInfo::labeled(Role::Button, can_go, "Go to their peak"));
            if can_go
                && go.on_hover_text("Whole blocks. Click to go to the instant at which these allocations held most.").clicked()
            {
                cx.actions.send(Action::GoTo(peak_event));
            }
        } else {
            response.on_hover_text("Whole blocks now and at the peak; what was requested over the run.");
        }
    }

    fn table(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, rows: &Arc<Vec<u32>>) {
        let device = cx.data.device();
        let area = ui.available_rect_before_wrap();
        let data = Arc::clone(cx.data);
        let steps = self.steps.get(cx.jobs, "steps", &(), move |_| Some(data.steps().clone()));
        let steps = steps.value.filter(|s| !s.is_empty());
        let known = Known {
            times: device.events.has_time,
            steps: steps.is_some(),
            streams: device.streams.len() > 1,
            addresses: device.can_show.addresses.is_known(),
            events: device.events.len(),
        };
        let columns = layout::columns(area.width() - BAR, known);
        let header = area.lines(0.0, HEADER);
        self.header(ui, header, &columns);
        let body = area.with_min_y(header.bottom());
        if !body.is_positive() {
            return;
        }
        let table = ui.interact(body, ui.scope_id().with("allocations table"), Sense::click());
        table.widget_info(|| WidgetInfo::labeled(Role::Table, true, format!("Allocations, {}", count(rows.len() as u64))));
        if rows.is_empty() {
            let why = cx.shared.query.as_ref().map(|asked| self.words.why_none(cx, &asked.query, Asked::Allocations));
            let mut child = ui.new_child(egui::UiBuilder::new().id_salt("none").max_rect(body));
            empty_state(&mut child, &format!("No allocation passes this query. {}", why.unwrap_or_default()), None);
            return;
        }
        let seen = f64::from(body.height() / ROW);
        self.keys(ui, cx, rows, seen, &table);
        self.follow(cx, rows, seen);
        self.list.interact(ui, cx.tokens, body, rows.len(), ROW, "Scroll allocations");
        let visible: Vec<(usize, Rect)> = self.list.visible(body, rows.len(), ROW).collect();
        let generations = self.generations(cx, rows, &visible);
        let mut hovered = None;
        for (i, &(place, rect)) in visible.iter().enumerate() {
            let Some(&row) = rows.get(place) else { break };
            let id = LifetimeId(row);
            let Some(life) = cx.data.tables.lifetimes.get(device, id) else { continue };
            let response = ui.interact(rect.intersect(body), ui.scope_id().with(("allocation", row)), Sense::click());
            let name = format!("Allocation {row}: {}", Bytes(life.requested));
            response.widget_info(|| WidgetInfo::labeled(Role::Row, true, &name));
            let cells = row::Cells {
                life: &life,
                generation: generations.as_ref().and_then(|g| g.get(i)).copied(),
                step: steps.as_ref().and_then(|s| s.of(life.born)),
                is_selected: cx.shared.selected() == Some(Item::Lifetime(id)),
                is_hovered: response.hovered() || cx.shared.hovered == Some(Item::Lifetime(id)),
            };
            cells.paint(&ui.painter().with_clip_rect(body), cx, rect, &columns);
            if response.hovered() {
                hovered = Some(id);
            }
            if response.clicked() || response.double_clicked() || response.secondary_clicked() {
                self.at = Some(place);
                self.followed = Some(id);
                ui.memory_mut(|m| m.request_focus(table.id));
                cx.actions.send(Action::Select(Some(Item::Lifetime(id))));
                if response.double_clicked() {
                    go_to_birth(cx, id);
                }
                if response.secondary_clicked() {
                    self.menu = Some(id);
                }
            }
            if self.menu == Some(id) {
                self.context_menu(cx, &response, id);
            }
        }
        focus_ring(ui, &table, 0);
        cx.hover(&mut self.is_hovering, hovered.map(Item::Lifetime));
    }

    /// Arrows, page keys and Enter while the table has the focus.
    fn keys(&mut self, ui: &Ui, cx: &ViewContext<'_>, rows: &[u32], seen: f64, table: &egui::Response) {
        if !table.has_focus() {
            return;
        }
        let filter = egui::EventFilter { vertical_arrows: true, ..egui::EventFilter::default() };
        ui.memory_mut(|m| m.set_focus_lock_filter(table.id, filter));
        let pressed = |key| ui.input_mut(|i| i.consume_key(Modifiers::NONE, key));
        let page = (seen as isize - 1).max(1);
        let by = if pressed(Key::ArrowDown) {
            1
        } else if pressed(Key::ArrowUp) {
            -1
        } else if pressed(Key::PageDown) {
            page
        } else if pressed(Key::PageUp) {
            -page
        } else {
            0
        };
        if by != 0 {
            let last = rows.len() as isize - 1;
            let to = self.at.map_or(0, |at| (at as isize + by).clamp(0, last)) as usize;
            self.at = Some(to);
            self.list.scroll.reveal(to, seen);
            if let Some(&row) = rows.get(to) {
                self.followed = Some(LifetimeId(row));
                cx.actions.send(Action::Select(Some(Item::Lifetime(LifetimeId(row)))));
            }
        }
        if pressed(Key::Enter)
            && let Some(Item::Lifetime(id)) = cx.shared.selected()
        {
            go_to_birth(cx, id);
        }
    }

    /// Brings what another view selected into view.
    fn follow(&mut self, cx: &ViewContext<'_>, rows: &[u32], seen: f64) {
        let Some(Item::Lifetime(id)) = cx.shared.selected() else { return };
        if self.followed == Some(id) {
            return;
        }
        self.followed = Some(id);
        // In order of allocation the place is known; in another order only a short list is searched.
        const SEARCHED: usize = 200_000;
        let place = match self.order {
            Order::Born if !self.descending => rows.binary_search(&id.0).ok(),
            _ => rows.iter().take(SEARCHED).position(|&row| row == id.0),
        };
        if let Some(place) = place {
            self.at = Some(place);
            self.list.scroll.reveal(place, seen);
        }
    }

    /// How many tenants the addresses of the visible rows had before; an address may have had thousands, so a thread counts.
    fn generations(&mut self, cx: &ViewContext<'_>, rows: &Arc<Vec<u32>>, visible: &[(usize, Rect)]) -> Option<Arc<Vec<u32>>> {
        let first = visible.first()?.0;
        let key = (Identity::of(rows), first, visible.len());
        let (data, rows, end) = (Arc::clone(cx.data), Arc::clone(rows), first + visible.len());
        let shown = self.generations.get(cx.jobs, "generations", &key, move |_| {
            let seen = rows.get(first..end.min(rows.len()))?;
            Some(seen.iter().map(|&row| data.tables.lifetimes.generation(data.device(), LifetimeId(row))).collect())
        });
        shown.value.filter(|_| shown.is_fresh)
    }

    fn header(&mut self, ui: &Ui, rect: Rect, columns: &[(Column, f32, f32)]) {
        for &(column, left, right) in columns {
            let order = column.order();
            let is_sorted = self.order == order && !matches!(column, Column::Step | Column::Lived);
            let head =
                Head { title: column.title(), is_figure: column.is_figure(), sorted: is_sorted.then_some(self.descending) };
            if head.show(ui, cell(rect, left, right), Some(ui.scope_id().with(("sort", column)))) {
                self.descending = if self.order == order { !self.descending } else { order.begins_descending() };
                self.order = order;
                self.at = None;
                self.list.scroll.top = 0.0;
            }
        }
        head_line(ui, rect);
    }

    fn context_menu(&mut self, cx: &ViewContext<'_>, response: &egui::Response, id: LifetimeId) {
        use crate::app::widgets::button::menu_entry;
        let lifetimes = &cx.data.tables.lifetimes;
        let Some(life) = lifetimes.get(cx.data.device(), id) else { return };
        let mut query = None;
        response.context_menu(|ui| {
            ui.set_width(200.0);
            let mut entry = |text: &str, enabled: bool| menu_entry(ui, text, enabled);
            if entry("Go to its allocation", life.born != NO_EVENT) {
                go_to_birth(cx, id);
            }
            if entry("Go to its end", life.gone != NO_EVENT) {
                cx.actions.send(Action::GoTo(life.gone));
            }
            if entry("Zoom the timeline to its life", true) {
                cx.actions.run(Command::FitSelection);
            }
            if entry("Copy address", true) {
                cx.actions.run(Command::CopyAddress);
            }
            if entry("Copy stack", life.stack.is_some()) {
                cx.actions.run(Command::CopyStack);
            }
            if entry("Only this stack", true) {
                query = Some(if life.stack.is_some() { format!("stack={}", life.stack.0) } else { "stack=none".to_owned() });
            }
            if let Some(roles) = cx.roles
                && entry("Only this role", true)
            {
                query = Some(format!("role={}", roles.of(id).name()));
            }
            if entry("Only this size", true) {
                query = Some(format!("size={}", life.requested));
            }
            if entry("Only this address", cx.data.recording.addresses().is_known()) {
                query = Some(format!("addr={}", vramscope_core::units::Address(life.address)));
            }
        });
        if let Some(text) = query {
            cx.actions.send(Action::SetQuery(text));
        }
    }
}

/// Moves the cursor to where an allocation was made; to the first event when that was before the trace.
fn go_to_birth(cx: &ViewContext<'_>, id: LifetimeId) {
    let born = cx.data.tables.lifetimes.born(id);
    cx.actions.send(Action::GoTo(if born == NO_EVENT { 0 } else { born }));
}
