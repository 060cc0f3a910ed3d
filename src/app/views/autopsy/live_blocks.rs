//! What was live at that instant, by call stack and by role.

use std::collections::HashMap;
use std::sync::Arc;

use egui::{ScrollArea, Sense, Ui, vec2};

use super::blockers::named;
use super::case::Case;
use crate::app::data::colours::role_paint;
use crate::app::data::device::DeviceData;
use crate::app::jobs::Derived;
use crate::app::jobs::identity::Identity;
use crate::app::state::action::Action;
use crate::app::state::selection::Item;
use crate::app::theme::Type;
use crate::app::views::ViewContext;
use crate::app::widgets::bar::Bar;
use crate::app::widgets::cut::Cut;
use crate::app::widgets::pane::PaneHeader;
use crate::app::widgets::row::{self, ListRow};
use crate::app::widgets::table::captions;
use crate::app::widgets::{label, pane};
use vramscope_core::anatomy::roles::{ByRole, Role};
use vramscope_core::diagnose::oom::age;
use vramscope_core::model::{BlockState, StackId};
use vramscope_core::tables::{LifetimeId, State};
use vramscope_core::units::{Address, Bytes, count};

const ROW: f32 = 24.0;

/// A row: name, bar, count, bytes, share.
fn row(
    ui: &mut Ui,
    cx: &ViewContext<'_>,
    name: &str,
    colour: egui::Color32,
    bytes: u64,
    blocks: u64,
    total: u64,
    greatest: u64,
) -> egui::Response {
    let t = cx.tokens;
    let response = ListRow::new(name).height(ROW).show_painted(ui);
    let rect = response.rect;
    let p = ui.painter();
    let figures = 250.0f32.min(rect.width() * 0.5);
    let names = (rect.width() * 0.42).clamp(90.0, 340.0);
    let cell = |from: f32, to: f32| rect.across(from, to);
    // The line number at its end tells most.
    let room = cell(rect.left() + 16.0, rect.left() + names);
    label::text_in(p, room, &label::without_middle(p, name, Type::Mono, room.width()), Type::Mono, t.text1);
    let bar = cell(rect.left() + names + 12.0, rect.right() - figures - 12.0);
    if bar.width() > 24.0 {
        Bar::new(greatest.max(1) as f64).part(bytes as f64, colour).paint(p, t, bar);
    }
    let right = rect.right() - 16.0;
    let share = bytes as f64 / total.max(1) as f64 * 100.0;
    label::figure(p, cell(right - 52.0, right), &format!("{share:.1} %"), t.text2);
    label::figure(p, cell(right - 150.0, right - 60.0), &Bytes(bytes).to_string(), t.text1);
    label::figure(p, cell(right - figures + 16.0, right - 158.0), &count(blocks), t.text3);
    response
}

/// The captions of the columns of [`row`].
fn head(ui: &mut Ui, name: &str) {
    let rect = row::line(ui, ROW);
    let until = |end: f32| rect.inset(16.0, 0.0, end, 0.0);
    let figures = [("share", 16.0), ("live", 76.0), ("blocks", 174.0)].map(|(caption, end)| (caption, until(end), true));
    captions(ui, rect, [(name, until(16.0), false)].into_iter().chain(figures));
}

/// Live memory by the place in the code that asked for it.
pub(super) fn by_stack(ui: &mut Ui, cx: &ViewContext<'_>, case: &Case) {
    let found = case.top_live();
    if found.is_empty() {
        pane::empty_state(ui, "Nothing was live at that instant.", None);
        return;
    }
    let total: u64 = found.iter().map(|l| l.bytes).sum();
    head(ui, "allocated at");
    ScrollArea::vertical().id_salt("live by stack").auto_shrink(false).show_rows(ui, ROW, found.len(), |ui, rows| {
        for i in rows {
            let l = found[i];
            let name = case.live_names.get(i).map_or("", String::as_str);
            let role = cx.roles.zip(case.live_largest.get(i).copied().flatten()).map(|(roles, id)| roles.of(id));
            let colour = role.map_or(cx.tokens.other, |role| role_paint(role).colour(cx.tokens));
            let response = row(ui, cx, name, colour, l.bytes, l.count, total, found[0].bytes);
            if response.clicked() && l.stack.is_some() {
                cx.actions.send(Action::Select(Some(Item::Stack(l.stack))));
            }
            if l.stack.is_some() {
                let text = vramscope_core::tables::stack_text(&cx.data.recording.stacks, l.stack);
                let lines: Vec<&str> = text.lines().take(12).collect();
                response.on_hover_text(lines.join("\n"));
            }
        }
    });
}

/// By call stack and, in the room that leaves, block by block.
pub(super) fn by_stack_and_block(ui: &mut Ui, cx: &ViewContext<'_>, case: &Case) {
    let rect = ui.available_rect_before_wrap();
    let wanted = ROW * (case.top_live().len() + 1) as f32 + 8.0;
    let y = rect.top() + wanted.min(rect.height() * 0.5);
    super::pane::inside(ui, rect.with_max_y(y), "stacks", |ui| by_stack(ui, cx, case));
    if case.largest.is_empty() {
        return;
    }
    super::pane::inside(ui, rect.with_min_y(y), "blocks", |ui| {
        let live = case.top_live().iter().map(|l| l.count).sum::<u64>();
        let caption = match case.largest.len() as u64 {
            n if n < live => format!("{} of {}", count(n), count(live)),
            _ => "drawn to one scale".to_owned(),
        };
        PaneHeader::new("Largest live blocks").caption(&caption).show(ui, |_| {});
        blocks(ui, cx, case);
    });
}

/// Live blocks that are listed one by one.
const BLOCKS: usize = 200;

/// The largest live blocks, by their places in the state. O(blocks log blocks).
pub(super) fn largest(state: &State) -> Vec<usize> {
    let mut live: Vec<usize> = (0..state.blocks.len()).filter(|&i| state.blocks[i].state != BlockState::Inactive).collect();
    live.sort_by_key(|&i| (std::cmp::Reverse(state.blocks[i].size), i));
    live.truncate(BLOCKS);
    live
}

/// The largest block of each stack of [`Case::top_live`]. O(blocks).
pub(super) fn largest_by_stack(data: &DeviceData, case: &Case) -> Vec<Option<LifetimeId>> {
    let mut found: HashMap<StackId, (u64, LifetimeId)> = HashMap::new();
    for block in case.state.blocks.iter().filter(|b| b.state != BlockState::Inactive) {
        let stack = data.tables.lifetimes.stack(data.device(), block.lifetime);
        let largest = found.entry(stack).or_insert((block.size, block.lifetime));
        if block.size > largest.0 {
            *largest = (block.size, block.lifetime);
        }
    }
    case.top_live().iter().map(|live| found.get(&live.stack).map(|largest| largest.1)).collect()
}

/// A row a block: what it is called, bar, bytes, age, and what else tells it from others.
fn blocks(ui: &mut Ui, cx: &ViewContext<'_>, case: &Case) {
    let t = cx.tokens;
    let (device, tables, state) = (cx.data.device(), &cx.data.tables, &case.state);
    let greatest = case.largest.first().map_or(1, |&i| state.blocks[i].size).max(1);
    let columns = |rect: egui::Rect| {
        let cell = |from: f32, to: f32| rect.across(from, to);
        let wide = (rect.width() * 0.22).clamp(90.0, 200.0);
        let (left, right) = (rect.left() + 16.0, rect.right() - 16.0);
        let more = cell(right - wide, right);
        let age = cell(more.left() - 12.0 - 80.0, more.left() - 12.0);
        let size = cell(age.left() - 12.0 - 76.0, age.left() - 12.0);
        let bar = cell(left + wide + 8.0, size.left() - 12.0);
        [cell(left, left + wide), bar, size, age, more]
    };
    let rect = row::line(ui, ROW);
    let at = columns(rect);
    let place = if cx.data.names.is_empty() { "block" } else { "allocated at" };
    captions(ui, rect, [(place, at[0], false), ("size", at[2], true), ("age", at[3], true)]);
    ScrollArea::vertical().id_salt("largest blocks").auto_shrink(false).show_rows(ui, ROW, case.largest.len(), |ui, rows| {
        for i in rows {
            let block = &state.blocks[case.largest[i]];
            let selected = cx.shared.selected() == Some(Item::Lifetime(block.lifetime));
            let (name, more) = named(cx, block.lifetime, state.segment_at(block.address));
            let said = format!("{name}, {}", Bytes(block.size));
            let response = ListRow::new(&said).height(ROW).selected(selected).show_painted(ui);
            let (p, at) = (ui.painter(), columns(response.rect));
            let stack = tables.lifetimes.stack(device, block.lifetime);
            let ink = if cx.data.names.index(stack).is_some() { t.accent } else { t.text1 };
            label::text_in(p, at[0], &name, Type::Mono, ink);
            if at[1].width() > 24.0 {
                let colour = cx.colours.of(cx.data, block.lifetime, state.event, t);
                Bar::new(greatest as f64).part(block.size as f64, colour).paint(p, t, at[1]);
            }
            label::figure(p, at[2], &Bytes(block.size).to_string(), t.text1);
            let age = age(device, &tables.lifetimes, block.lifetime, state.event);
            label::figure(p, at[3], &age.to_string(), t.text2);
            label::text_in(p, at[4], &more.join(" \u{b7} "), Type::Caption, t.text3);
            let response = match cx.data.recording.addresses().is_known() {
                true => response.on_hover_text(Address(block.address).to_string()),
                false => response,
            };
            if response.clicked() {
                cx.actions.send(Action::Select(Some(Item::Lifetime(block.lifetime))));
            }
        }
    });
}

/// Live memory by role, once it is counted. The roles are those of the whole window, so the user's own rules count here too.
pub(super) fn held_by_role(
    cx: &ViewContext<'_>,
    case: &Case,
    held: &mut Derived<(u32, Identity), ByRole>,
) -> Option<Arc<ByRole>> {
    let roles = cx.roles?;
    let (data, roles, event) = (Arc::clone(cx.data), Arc::clone(roles), case.state.event);
    let key = (event, Identity::of(&roles));
    held.get(cx.jobs, "live by role", &key, move |_| Some(roles.live_by_role(data.device(), &data.tables, event))).value
}

/// Live memory by what it is for.
pub(super) fn by_role(ui: &mut Ui, cx: &ViewContext<'_>, case: &Case, held: &mut Derived<(u32, Identity), ByRole>) {
    let Some(held) = held_by_role(cx, case, held) else {
        pane::progress_line(ui, ui.max_rect(), None);
        return;
    };
    let total: u64 = held.iter().map(|c| c.bytes).sum();
    let mut rows: Vec<Role> = Role::ALL.into_iter().filter(|c| held[c.index()].count > 0).collect();
    rows.sort_by_key(|c| std::cmp::Reverse(held[c.index()].bytes));
    if rows.is_empty() {
        pane::empty_state(ui, "Nothing was live at that instant.", None);
        return;
    }
    let greatest = held[rows[0].index()].bytes;
    head(ui, "role");
    ScrollArea::vertical().id_salt("live by role").auto_shrink([false, true]).show(ui, |ui| {
        for role in &rows {
            let c = held[role.index()];
            let colour = role_paint(*role).colour(cx.tokens);
            row(ui, cx, &c.words(*role), colour, c.bytes, c.count, total, greatest).on_hover_text(role.about());
        }
        if let Some(sentence) = cx.roles.and_then(|c| c.changed.rules_sentence()) {
            ui.add_space(8.0);
            pane::padded(ui, |ui| label::paragraph(ui, &sentence, Type::Caption, cx.tokens.text3));
        }
        if rows == [Role::Unknown] {
            let (_, _) = ui.allocate_exact_size(vec2(1.0, 8.0), Sense::hover());
            pane::padded(ui, |ui| {
                label::paragraph(
                    ui,
                    "No stack, annotation or lifetime tells what these blocks are for. Record stacks, and the names of the framework's functions do.",
                    Type::Body,
                    cx.tokens.text2,
                );
            });
        }
    });
}
