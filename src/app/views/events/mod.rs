//! Events: the trace as a table, filtered off the UI thread, linked with the cursor.

use std::sync::Arc;

use egui::{Painter, Rect, Ui};

use super::query_field::QueryField;
use super::query_help::QueryWords;
use super::stack_cells::telling_frames;
use super::{View, ViewContext, ViewInfo};
use crate::app::jobs::Derived;
use crate::app::jobs::identity::Identity;
use crate::app::state::{Action, Item, ViewKind};
use crate::app::theme::Type;
use crate::app::widgets::rows::BAR;
use crate::app::widgets::{Cell, Column, Table, Width, empty_state, label, menu_entry, paint_square, progress_line};
use vramscope_core::model::{Action as EventAction, StackId};
use vramscope_core::query::{Asked, Query, Scope, of_text};

use vramscope_core::units::{Address, Bytes, count};

pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::Events,
    legend: &[
        ("alloc, free, segment, oom", "only these actions; free is both halves of a free"),
        ("size>1MiB", "only these sizes; also <, >=, <=, =, and size=1MiB..2MiB"),
        ("train.py, stack~attention", "only events with this in their call stack"),
        ("0x7f1dca2b7000, 0x7f1d..", "only blocks that hold this address, or addresses that begin so"),
        ("stream=1, pool=private", "only this stream, only private pools"),
        ("time>100ms, event=1..500", "only this part of the trace"),
        ("live@peak, live@oom", "only blocks that are live at that instant"),
        ("step=3, during~forward", "only inside these annotations"),
        ("-term", "everything but"),
        ("stack", "the user's own frames, the one that allocates first, then what called it"),
    ],
    create: || Box::new(Events::default()),
};

const ROW: f32 = 20.0;
/// Name, hint and clear button of the filter field.
const ASKED: (&str, &str, &str) = ("Filter events", "alloc size>1MiB train.py", "Clear the filter");

#[derive(Default)]
struct Events {
    field: QueryField,
    words: QueryWords,
    /// The applied filter: the last one that parsed.
    in_force: String,
    query: Query,
    left: Derived<(Query, Option<Identity>, Option<u32>, [Option<u32>; 2]), Vec<u32>>,
    /// The cursor to which the table last scrolled; `None` before the first frame.
    followed: Option<u32>,
    /// The list in which the table last scrolled.
    seen_list: Option<Identity>,
    is_hovering: bool,
}

/// The rows of the table: all events, or those that match a filter.
enum Rows {
    All(usize),
    Some(Arc<Vec<u32>>),
}

impl Rows {
    fn len(&self) -> usize {
        match self {
            Rows::All(n) => *n,
            Rows::Some(list) => list.len(),
        }
    }

    fn event(&self, row: usize) -> Option<u32> {
        match self {
            Rows::All(n) => (row < *n).then_some(row as u32),
            Rows::Some(list) => list.get(row).copied(),
        }
    }

    /// The row of an event, or of the last row before it.
    fn row_of(&self, event: u32) -> usize {
        match self {
            Rows::All(_) => event as usize,
            Rows::Some(list) => list.partition_point(|&e| e <= event).saturating_sub(1),
        }
    }
}

impl View for Events {
    fn subtitle(&self, cx: &ViewContext<'_>) -> String {
        let n = cx.data.device().events.len();
        match (self.query.is_empty(), self.left.latest()) {
            (false, Some(left)) => of_text(left.len(), n),
            _ => vramscope_core::units::counted(n as u64, "event", "events"),
        }
    }

    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let device = cx.data.device();
        if cx.data.has_only_sums() {
            let sentence = "This file holds sums by category over time and no events. The raw timeline (.raw.json.gz) and snapshots \
                            have them.";
            return empty_state(ui, sentence, None);
        }
        if device.events.is_empty() {
            return cx.without_history(
                ui,
                "This recording has no trace: only the state at its end. This line, before the work begins, records one:",
            );
        }
        self.filter_strip(ui, cx);
        let Some(rows) = self.rows(ui, cx) else { return };
        self.table(ui, cx, &rows);
    }
}

/// Most frames that a row shows.
const FRAMES: usize = 4;

/// As many of the user's own frames as fit, the allocating one first.
fn stack_cell(painter: &Painter, cx: &ViewContext<'_>, stack: StackId, cell: Rect) {
    let t = cx.tokens;
    let mut rest = cell;
    for (i, frame) in telling_frames(&cx.data.recording.stacks, stack, FRAMES).iter().enumerate() {
        // A caller that is cut to a few letters is useless.
        if i > 0 && rest.width() < 110.0 {
            break;
        }
        if i > 0 {
            rest.min.x = label::text_in(painter, rest, "from", Type::Caption, t.text3).right() + 6.0;
        }
        let (place, name) = if i == 0 { (t.text1, t.text2) } else { (t.text2, t.text3) };
        rest.min.x = label::text_in(painter, rest, &frame.place, Type::Mono, place).right() + 6.0;
        if rest.width() > 24.0 && !frame.name.is_empty() {
            rest.min.x = label::text_in(painter, rest, &frame.name, Type::Body, name).right() + 10.0;
        }
    }
}

/// `5,176.123`, because events of one step differ by microseconds.
fn milliseconds(us: i64) -> String {
    let sign = if us < 0 { "-" } else { "" };
    let us = us.unsigned_abs();
    format!("{sign}{}.{:03}", count(us / 1_000), us % 1_000)
}

impl Events {
    fn filter_strip(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let in_force = (!self.in_force.is_empty()).then_some(self.in_force.as_str());
        if let Some(text) = self.words.show(&mut self.field, ui, cx, ASKED, in_force) {
            self.read(text);
        }
    }

    /// Applies a filter if it parses.
    fn read(&mut self, text: String) {
        if let Ok(query) = Query::parse(&text) {
            self.query = query;
            self.in_force = text.trim().to_owned();
            self.followed = None;
        }
    }

    fn rows(&mut self, ui: &Ui, cx: &ViewContext<'_>) -> Option<Rows> {
        if self.query.is_empty() {
            return Some(Rows::All(cx.data.device().events.len()));
        }
        let (data, query) = (Arc::clone(cx.data), self.query.clone());
        let roles = cx.roles.cloned();
        let (cursor, markers) = (Some(cx.shared.cursor), cx.shared.flags());
        let key = (
            query.clone(),
            roles.as_ref().filter(|_| query.needs_roles()).map(Identity::of),
            if query.follows_cursor() { cursor } else { None },
            if query.follows_markers() { markers } else { [None; 2] },
        );
        let shown = self.left.get(cx.jobs, "filter events", &key, move |progress| {
            let scope = Scope { cursor, markers, ..data.scope(&query, roles.as_deref()) };
            query.events(&scope, progress).ok()
        });
        if !shown.is_fresh {
            progress_line(ui, ui.available_rect_before_wrap(), shown.fraction);
        }
        shown.value.map(Rows::Some)
    }

    fn table(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, rows: &Rows) {
        if rows.len() == 0 {
            let why = self.words.why_none(cx, &self.query, Asked::Events);
            return empty_state(ui, &format!("No event passes this filter. {why}"), None);
        }
        let t = cx.tokens;
        let events = &cx.data.device().events;
        let of = |row: usize| rows.event(row).unwrap_or(0);
        let lifetime = |event| cx.data.tables.lifetimes.of_event(event);
        let reveal = self.follow(cx, rows);
        let out = Table::plain("events", columns(cx))
            .row_height(ROW)
            .spaced(12.0, 12.0, 12.0 + BAR)
            .reveal(reveal)
            .ground(|row, is_hovered| {
                let event = of(row);
                let stack = events.stack[event as usize];
                let is_cursor = event == cx.shared.cursor;
                let is_selected = match cx.shared.selected() {
                    Some(Item::Lifetime(id)) => id == lifetime(event),
                    Some(Item::Event(e)) => e == event,
                    Some(Item::Stack(s)) => s == stack && s.is_some(),
                    _ => false,
                };
                let is_hovered = is_hovered || cx.shared.hover_event == Some(event);
                let fill = match (is_cursor, is_hovered, is_selected) {
                    (true, ..) => Some(t.accentbg),
                    (_, true, _) => Some(t.s3),
                    (.., is_selected) => is_selected.then_some(t.s2),
                };
                let is_oom = events.action[event as usize] == EventAction::Oom;
                (fill, if is_oom { Some(t.red) } else { (is_cursor || is_selected).then_some(t.accent) })
            })
            .show(
                ui,
                rows.len(),
                |row| rows.event(row),
                |_, &event| {
                    let (action, size) = (events.action[event as usize], events.size[event as usize]);
                    format!("Event {event}: {} {}", action.name(), Bytes(size).with_decimals())
                },
            );
        let mut filter = None;
        let asked = out.menu(|ui, row| filter = context_menu(ui, cx, of(row)));
        if let Some(text) = filter {
            self.field.set(&text);
            self.read(text);
        }
        if let Some(event) = out.chosen().or(out.opened()).or(asked).map(of) {
            self.followed = Some(event);
            let (lifetime, has_notes) = (lifetime(event), !events.notes_of(event).is_empty());
            let is_block = lifetime.is_some() && !has_notes && out.opened().is_none();
            if asked.is_none() {
                cx.actions.send(Action::SetCursor(event));
            }
            let item = if is_block { Item::Lifetime(lifetime) } else { Item::Event(event) };
            cx.actions.send(Action::Select(Some(item)));
        }
        match out.hovered.map(of) {
            Some(event) => {
                self.is_hovering = true;
                if cx.shared.hover_event != Some(event) {
                    cx.actions.send(Action::HoverEvent(Some(event)));
                }
            }
            None if self.is_hovering => {
                self.is_hovering = false;
                cx.actions.send(Action::HoverEvent(None));
            }
            None => {}
        }
    }

    /// The row to scroll to when the cursor or the list has changed.
    fn follow(&mut self, cx: &ViewContext<'_>, rows: &Rows) -> Option<usize> {
        let list = match rows {
            Rows::All(_) => None,
            Rows::Some(list) => Some(Identity::of(list)),
        };
        if self.followed == Some(cx.shared.cursor) && self.seen_list == list {
            return None;
        }
        self.followed = Some(cx.shared.cursor);
        self.seen_list = list;
        Some(rows.row_of(cx.shared.cursor))
    }
}

/// The columns. In a narrow pane the least useful ones are hidden first; the stack takes the remaining width.
fn columns<'a>(cx: &'a ViewContext<'_>) -> Vec<Column<'a, u32>> {
    let t = cx.tokens;
    let events = &cx.data.device().events;
    let is_oom = |event: u32| events.action[event as usize] == EventAction::Oom;
    let number = (count(events.len() as u64).len() as f32 * 6.7).max(36.0).ceil() + 2.0;
    let mut columns = vec![Column::figure("event", number, |c, &event: &u32| c.figure(count(u64::from(event)), t.text2))];
    if events.has_time {
        let start = events.time_us.first().copied().unwrap_or(0);
        let time = move |c: &Cell<'_>, &e: &u32| c.figure(milliseconds(events.time_us[e as usize] - start), t.text2);
        columns.push(Column::figure("time, ms", 82.0, time).goes(3));
    }
    columns.extend([
        // Fits "segment unmap", the longest text, after its swatch.
        Column::text("action", Width::Exact(116.0), move |c, &event: &u32| {
            let (action, lifetime) = (events.action[event as usize], cx.data.tables.lifetimes.of_event(event));
            if lifetime.is_some() {
                paint_square(c.p, c.rect, cx.colours.of(cx.data, lifetime, event, t), action == EventAction::Alloc);
            }
            let ink = match action {
                EventAction::Oom => t.red,
                EventAction::FreeCompleted => t.text3,
                _ => t.text1,
            };
            c.from(c.rect.left() + 14.0).text(action.name().replace('_', " "), Type::Body, ink);
        }),
        Column::figure("size", 76.0, move |c, &event: &u32| {
            c.figure(Bytes(events.size[event as usize]).with_decimals(), if is_oom(event) { t.red } else { t.text1 });
        }),
        // The address; for a failed request, the device's free memory.
        Column::text("address", Width::Exact(104.0), move |c, &event: &u32| {
            let text = match events.device_free_known(event) {
                Some(free) => format!("{} free", Bytes(free)),
                None if is_oom(event) => "free unknown".to_owned(),
                None if !cx.data.recording.addresses().is_known() => "not recorded".to_owned(),
                None => Address(events.address[event as usize]).to_string(),
            };
            c.text(text, Type::Mono, t.text2);
        })
        .goes(2),
        Column::figure("stream", 40.0, move |c, &e: &u32| c.figure(events.stream[e as usize].0.to_string(), t.text3)).goes(1),
        Column::text("stack", Width::Share(1.0, 84.0), move |c, &event: &u32| {
            let stack = events.stack[event as usize];
            if stack.is_some() {
                stack_cell(c.p, cx, stack, c.rect);
            } else {
                c.text(vramscope_core::tables::NO_STACK, Type::Caption, t.text3);
            }
        })
        .goes(4),
    ]);
    columns
}

/// Draws a row's menu. Returns the filter that was chosen in it.
fn context_menu(ui: &mut Ui, cx: &ViewContext<'_>, event: u32) -> Option<String> {
    let events = &cx.data.device().events;
    let i = event as usize;
    let mut filter = None;
    ui.set_width(200.0);
    let mut entry = |text: &str| menu_entry(ui, text, true);
    if entry("Go to this event") {
        cx.actions.send(Action::GoTo(event));
    }
    if entry("Select this event") {
        cx.actions.send(Action::Select(Some(Item::Event(event))));
    }
    if events.action[i] != EventAction::Oom && cx.data.recording.addresses().is_known() {
        if entry("Copy address") {
            cx.actions.send(Action::Copy(Address(events.address[i]).to_string()));
        }
        if entry("Only this address") {
            filter = Some(Address(events.address[i]).to_string());
        }
    }
    if entry("Only this action") {
        filter = Some(events.action[i].name().to_owned());
    }
    let stack = events.stack[i];
    if stack.is_some() && entry("Only stacks that meet here") {
        filter = Some(format!("stack~\"{}\"", cx.data.names.of_stack(stack)));
    }
    if entry("Set marker A here") {
        cx.actions.send(Action::SetMarker(0, Some(event)));
    }
    if entry("Set marker B here") {
        cx.actions.send(Action::SetMarker(1, Some(event)));
    }
    filter
}
