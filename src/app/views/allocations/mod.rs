//! Allocations: one row per allocation that matches the query, sorted. All other views highlight the matches too.

use std::ops::Range;
use std::sync::Arc;

use egui::{Rect, Role, Sense, Ui, WidgetInfo, pos2, vec2};

use super::query_field::QueryField;
use super::query_help::QueryWords;
use super::{View, ViewContext, ViewInfo};
use crate::app::jobs::Derived;
use crate::app::jobs::identity::Identity;
use crate::app::state::{Action, ColourBy, Command, Item, ViewKind};
use crate::app::theme::Type;
use crate::app::widgets::rows::BAR;
use crate::app::widgets::{Sort, Table, empty_state, label, menu_entry, progress_line};
use vramscope_core::anatomy::steps::Steps;
use vramscope_core::query::ordering::Order;
use vramscope_core::query::{Asked, Scope, of_text};
use vramscope_core::tables::{LifetimeId, NO_EVENT, Quantity};
use vramscope_core::units::{Bytes, count};

mod columns;

use columns::{Line, columns};

/// Name, hint and clear button of the query field.
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
    create: || Box::new(Allocations { sort: Sort::new(Order::Size, true), ..Allocations::default() }),
};

/// Height of a row, and of the line of figures.
const ROW: f32 = 20.0;
const SUMMARY: f32 = 24.0;

#[derive(Clone, Debug, PartialEq)]
struct SortKey {
    matching: Option<Identity>,
    roles: Option<Identity>,
    order: Order,
    descending: bool,
}

#[derive(Default)]
struct Allocations {
    field: QueryField,
    /// The query that was applied when this view was last drawn.
    seen_query: Option<String>,
    /// The last query that this view applied: the typed text without a term that does not parse.
    sent: Option<String>,
    sort: Sort<Order>,
    sorted: Derived<SortKey, Vec<u32>>,
    steps: Derived<(), Steps>,
    words: QueryWords,
    /// How often the addresses of the visible rows were used before.
    generations: Derived<(Identity, Range<usize>), Vec<u32>>,
    /// The rows that were visible in the last frame.
    seen: Range<usize>,
    /// The selection that the table last scrolled to.
    followed: Option<LifetimeId>,
    is_hovering: bool,
}

impl View for Allocations {
    fn subtitle(&self, cx: &ViewContext<'_>) -> String {
        let all = cx.data.tables.lifetimes.len();
        let shown = match cx.matching {
            Some(matching) => of_text(matching.len(), all),
            None => vramscope_core::units::counted(all as u64, "allocation", "allocations"),
        };
        match cx.shared.colour_by {
            ColourBy::Role => shown,
            by => format!("{shown} \u{b7} coloured by {}", by.text()),
        }
    }

    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        if cx.data.tables.lifetimes.is_empty() {
            return empty_state(
                ui,
                "This recording has no allocations. This line, before the work begins, records them:",
                Some(&cx.words().say(vramscope_core::diagnose::limits::RECORD)),
            );
        }
        self.query_ui(ui, cx);
        let whole = ui.available_rect_before_wrap();
        let Some(rows) = self.rows(ui, cx, whole) else { return };
        self.summary_ui(ui, cx);
        self.table(ui, cx, &rows);
    }
}

impl Allocations {
    fn query_ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        // Shows a query that another view applied. A query that is still being typed stays.
        let in_force = cx.shared.query.as_ref().map(|q| q.text.clone());
        if self.seen_query != in_force {
            self.seen_query.clone_from(&in_force);
            let text = in_force.unwrap_or_default();
            // The applied part of a query must not replace what is being typed.
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

    /// The sorted rows; the previous ones while new ones are computed.
    fn rows(&mut self, ui: &Ui, cx: &ViewContext<'_>, whole: Rect) -> Option<Arc<Vec<u32>>> {
        if cx.shared.query.is_some() && cx.matching.is_none() {
            progress_line(ui, whole, None);
            return None;
        }
        let (by, descending) = (self.sort.by, self.sort.descending);
        let by_role = by == Order::Role;
        let key = SortKey {
            matching: cx.matching.map(Identity::of),
            roles: cx.roles.filter(|_| by_role).map(Identity::of),
            order: by,
            descending,
        };
        let (data, matching, roles) = (Arc::clone(cx.data), cx.matching.cloned(), cx.roles.cloned());
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

    /// Figures about the shown rows, in one line.
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
            // When they peaked follows closely.
            x += if *what == "at their peak" { 6.0 } else { 14.0 };
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
        let t = cx.tokens;
        let (device, lifetimes) = (cx.data.device(), &cx.data.tables.lifetimes);
        let data = Arc::clone(cx.data);
        let steps = self.steps.get(cx.jobs, "steps", &(), move |_| Some(data.steps().clone()));
        let steps = steps.value.filter(|s| !s.is_empty());
        if rows.is_empty() {
            let why = cx.shared.query.as_ref().map(|asked| self.words.why_none(cx, &asked.query, Asked::Allocations));
            return empty_state(ui, &format!("No allocation passes this query. {}", why.unwrap_or_default()), None);
        }
        let reveal = self.follow(cx, rows);
        let first = self.seen.start;
        let generations = self.generations(cx, rows);
        let line = |i: usize| {
            let life = lifetimes.get(device, LifetimeId(*rows.get(i)?))?;
            let is_live = lifetimes.is_live_at(life.id, cx.shared.cursor);
            let generation = i.checked_sub(first).and_then(|at| generations.as_ref()?.get(at)).copied();
            Some(Line { generation, is_live, ink: if is_live { t.text1 } else { t.text2 }, life })
        };
        let out = Table::sorted("allocations", columns(cx, steps.as_deref()), &mut self.sort)
            .row_height(ROW)
            .spaced(12.0, 12.0, 12.0 + BAR)
            .reveal(reveal)
            .ground(|i, is_hovered| {
                let item = Some(Item::Lifetime(LifetimeId(rows[i])));
                let is_selected = cx.shared.selected() == item;
                let is_hovered = is_hovered || cx.shared.hovered == item;
                let fill = if is_selected { Some(t.accentbg) } else { is_hovered.then_some(t.s3) };
                (fill, is_selected.then_some(t.accent))
            })
            .show(ui, rows.len(), line, |i, l| format!("Allocation {}: {}", rows[i], Bytes(l.life.requested)));
        let seen = out.seen.first().zip(out.seen.last()).map_or(0..0, |(first, last)| first.0..last.0 + 1);
        if self.seen != seen {
            self.seen = seen;
            ui.request_repaint();
        }
        let mut query = None;
        let asked = out.menu(|ui, i| query = context_menu(ui, cx, LifetimeId(rows[i])));
        if let Some(text) = query {
            cx.actions.send(Action::SetQuery(text));
        }
        if let Some(i) = out.chosen().or(asked) {
            self.followed = Some(LifetimeId(rows[i]));
            cx.actions.send(Action::Select(self.followed.map(Item::Lifetime)));
        }
        if let Some(i) = out.opened() {
            go_to_birth(cx, LifetimeId(rows[i]));
        }
        cx.hover(&mut self.is_hovering, out.hovered.map(|i| Item::Lifetime(LifetimeId(rows[i]))));
    }

    /// The row to bring into view because another view selected it.
    fn follow(&mut self, cx: &ViewContext<'_>, rows: &[u32]) -> Option<usize> {
        let Some(Item::Lifetime(id)) = cx.shared.selected() else { return None };
        if self.followed.replace(id) == Some(id) {
            return None;
        }
        // In allocation order the row follows from the id. In any other order only a short list is searched.
        const SEARCHED: usize = 200_000;
        match self.sort.by {
            Order::Born if !self.sort.descending => rows.binary_search(&id.0).ok(),
            _ => rows.iter().take(SEARCHED).position(|&row| row == id.0),
        }
    }

    /// How often the addresses of the visible rows were used before. An address may have been used thousands of times, so a
    /// thread counts.
    fn generations(&mut self, cx: &ViewContext<'_>, rows: &Arc<Vec<u32>>) -> Option<Arc<Vec<u32>>> {
        let key = (Identity::of(rows), self.seen.clone());
        let (data, rows, seen) = (Arc::clone(cx.data), Arc::clone(rows), self.seen.clone());
        let shown = self.generations.get(cx.jobs, "generations", &key, move |_| {
            let seen = rows.get(seen)?;
            Some(seen.iter().map(|&row| data.tables.lifetimes.generation(data.device(), LifetimeId(row))).collect())
        });
        shown.fresh()
    }
}

/// Draws a row's menu. Returns the query that was chosen in it.
fn context_menu(ui: &mut Ui, cx: &ViewContext<'_>, id: LifetimeId) -> Option<String> {
    let life = cx.data.tables.lifetimes.get(cx.data.device(), id)?;
    let mut query = None;
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
    query
}

/// Moves the cursor to where an allocation was made, or to the first event when that was before the trace.
fn go_to_birth(cx: &ViewContext<'_>, id: LifetimeId) {
    let born = cx.data.tables.lifetimes.born(id);
    cx.actions.send(Action::GoTo(if born == NO_EVENT { 0 } else { born }));
}
