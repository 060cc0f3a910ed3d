//! Live memory at the examined event, by call stack and by role.

use std::collections::HashMap;
use std::sync::Arc;

use egui::{Color32, ScrollArea, Ui};

use super::blockers::named;
use super::case::Case;
use crate::app::data::colours::role_paint;
use crate::app::data::device::DeviceData;
use crate::app::jobs::Derived;
use crate::app::jobs::identity::Identity;
use crate::app::state::{Action, Item};
use crate::app::theme::visuals::{PAD_PANE, ROW};
use crate::app::theme::{Tokens, Type};
use crate::app::views::ViewContext;
use crate::app::widgets::{Bar, Column, PaneHeader, Table, Width, label, pane};
use vramscope_core::anatomy::roles::{ByRole, Role};
use vramscope_core::diagnose::oom::age;
use vramscope_core::model::{BlockState, StackId};
use vramscope_core::tables::{BlockAt, LifetimeId, State};
use vramscope_core::units::{Address, Bytes, SizeColumn, count};

/// A row: name, colour, bytes, blocks.
type Line = (String, Color32, u64, u64);

/// Columns of live memory, grouped by what `title` says.
fn columns<'a>(ui: &Ui, title: &'a str, total: u64, sizes: &[u64]) -> Vec<Column<'a, Line>> {
    let t = Tokens::of(ui);
    let (unit, greatest) = (SizeColumn::of(sizes.iter().copied()), sizes.iter().copied().max().unwrap_or(0));
    // In a narrow pane names matter more than bars.
    let width = ui.available_width();
    let names = if width < 640.0 { (width - 252.0).max(90.0) } else { (width * 0.42).min(340.0) - PAD_PANE };
    vec![
        // Keeps the end, because the line number matters most.
        Column::text(title, Width::Exact(names), |c, line: &Line| {
            c.text(label::without_start(c.p, &line.0, Type::Mono, c.rect.width()), Type::Mono, t.text1);
        }),
        Column::text("", Width::Share(1.0, 0.0), move |c, line: &Line| {
            c.bar(&Bar::new(greatest.max(1) as f64).part(line.2 as f64, line.1));
        }),
        Column::figure("blocks", 52.0, |c, line: &Line| c.figure(count(line.3), t.text3)).goes(1),
        Column::figure(unit.head("live"), 76.0, move |c, line: &Line| c.figure(unit.figure(line.2), t.text1)),
        Column::figure("share", 52.0, move |c, line: &Line| c.figure(label::share(line.2, total), t.text2)),
    ]
}

/// Live memory by the code that allocated it.
pub(super) fn by_stack(ui: &mut Ui, cx: &ViewContext<'_>, case: &Case) {
    let found = case.top_live();
    if found.is_empty() {
        return pane::empty_state(ui, "Nothing was live at that instant.", None);
    }
    let line = |i: usize| {
        let l = found.get(i)?;
        let role = cx.roles.zip(case.live_largest.get(i).copied().flatten()).map(|(roles, id)| roles.of(id));
        let colour = role.map_or(cx.tokens.other, |role| role_paint(role).colour(cx.tokens));
        Some((case.live_names.get(i).cloned().unwrap_or_default(), colour, l.bytes, l.count))
    };
    let sizes: Vec<u64> = found.iter().map(|l| l.bytes).collect();
    let columns = columns(ui, "allocated at", sizes.iter().sum(), &sizes);
    let table = Table::plain("live by stack", columns).captions().spaced(PAD_PANE, 8.0, PAD_PANE);
    let out = table.show(ui, found.len(), line, |_, line| line.0.clone());
    if let Some(stack) = out.chosen().map(|i| found[i].stack).filter(|stack| stack.is_some()) {
        cx.actions.send(Action::Select(Some(Item::Stack(stack))));
    }
    for (i, response) in out.seen.into_iter().filter(|(i, _)| found[*i].stack.is_some()) {
        let text = vramscope_core::tables::stack_text(&cx.data.recording.stacks, found[i].stack);
        let lines: Vec<&str> = text.lines().take(12).collect();
        response.on_hover_text(lines.join("\n"));
    }
}

/// By call stack, and block by block in the remaining room.
pub(super) fn by_stack_and_block(ui: &mut Ui, cx: &ViewContext<'_>, case: &Case) {
    let rect = ui.available_rect_before_wrap();
    let wanted = ROW * (case.top_live().len() + 1) as f32 + 8.0;
    let y = rect.top() + wanted.min(rect.height() * 0.5);
    pane::inside(ui, rect.with_max_y(y), "stacks", |ui| by_stack(ui, cx, case));
    if case.largest.is_empty() {
        return;
    }
    pane::inside(ui, rect.with_min_y(y), "blocks", |ui| {
        let live = case.top_live().iter().map(|l| l.count).sum::<u64>();
        let caption = match case.largest.len() as u64 {
            n if n < live => format!("{} of {}", count(n), count(live)),
            _ => "drawn to one scale".to_owned(),
        };
        PaneHeader::new("Largest live blocks").caption(&caption).show(ui, |_| {});
        blocks(ui, cx, case);
    });
}

const BLOCKS: usize = 200;

/// Indices of the largest live blocks. O(blocks log blocks).
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

/// A block, its name, and what distinguishes it from others.
type Named<'a> = (&'a BlockAt, String, Vec<String>);

/// One row per block: name, bar, bytes, age, and what distinguishes it from others.
fn blocks(ui: &mut Ui, cx: &ViewContext<'_>, case: &Case) {
    let t = cx.tokens;
    let (device, lifetimes, state) = (cx.data.device(), &cx.data.tables.lifetimes, &case.state);
    let block = |i: usize| &state.blocks[case.largest[i]];
    let greatest = case.largest.first().map_or(1, |_| block(0).size).max(1) as f64;
    let wide = Width::Exact((ui.available_width() * 0.22).clamp(90.0, 200.0));
    let place = if cx.data.names.is_empty() { "block" } else { "allocated at" };
    let columns: Vec<Column<'_, Named<'_>>> = vec![
        Column::text(place, wide, |c, (b, name, _): &Named<'_>| {
            let is_own = cx.data.names.index(lifetimes.stack(device, b.lifetime)).is_some();
            c.text(name, Type::Mono, if is_own { t.accent } else { t.text1 });
        }),
        Column::text("", Width::Share(1.0, 0.0), |c, (b, ..): &Named<'_>| {
            c.bar(&Bar::new(greatest).part(b.size as f64, cx.colours.of(cx.data, b.lifetime, state.event, t)));
        }),
        Column::figure("size", 76.0, |c, (b, ..): &Named<'_>| c.figure(Bytes(b.size).to_string(), t.text1)),
        Column::figure("age", 80.0, |c, (b, ..): &Named<'_>| {
            c.figure(age(device, lifetimes, b.lifetime, state.event).to_string(), t.text2);
        }),
        Column::text("", wide, |c, (.., more): &Named<'_>| _ = c.text(more.join(" \u{b7} "), Type::Caption, t.text3)),
    ];
    let row = |i: usize| {
        let (name, more) = named(cx, block(i).lifetime, state.segment_at(block(i).address));
        Some((block(i), name, more))
    };
    let selected = cx.shared.selected();
    let selected = (0..case.largest.len()).find(|&i| selected == Some(Item::Lifetime(block(i).lifetime)));
    let table = Table::plain("largest blocks", columns).captions().selected(selected);
    let out = table.show(ui, case.largest.len(), row, |_, (b, name, _)| format!("{name}, {}", Bytes(b.size)));
    if let Some(i) = out.chosen() {
        cx.actions.send(Action::Select(Some(Item::Lifetime(block(i).lifetime))));
    }
    for (i, response) in out.seen.into_iter().filter(|_| cx.data.recording.addresses().is_known()) {
        response.on_hover_text(Address(block(i).address).to_string());
    }
}

/// Live memory by role, once computed. Uses the roles of the whole window, so the user's own rules apply.
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

pub(super) fn by_role(ui: &mut Ui, cx: &ViewContext<'_>, case: &Case, held: &mut Derived<(u32, Identity), ByRole>) {
    let Some(held) = held_by_role(cx, case, held) else {
        return pane::progress_line(ui, ui.max_rect(), None);
    };
    let total: u64 = held.iter().map(|c| c.bytes).sum();
    let mut rows: Vec<Role> = Role::ALL.into_iter().filter(|c| held[c.index()].count > 0).collect();
    rows.sort_by_key(|c| std::cmp::Reverse(held[c.index()].bytes));
    if rows.is_empty() {
        return pane::empty_state(ui, "Nothing was live at that instant.", None);
    }
    let sizes: Vec<u64> = rows.iter().map(|c| held[c.index()].bytes).collect();
    let columns = columns(ui, "role", total, &sizes);
    ScrollArea::vertical().id_salt("live by role").auto_shrink([false, true]).show(ui, |ui| {
        let line = |i: usize| {
            let tally = held[rows[i].index()];
            Some((tally.words(rows[i]), role_paint(rows[i]).colour(cx.tokens), tally.bytes, tally.count))
        };
        let table = Table::plain("live by role", columns).captions().spaced(PAD_PANE, 8.0, PAD_PANE).whole();
        for (i, response) in table.show(ui, rows.len(), line, |_, line| line.0.clone()).seen {
            response.on_hover_text(rows[i].about());
        }
        if let Some(sentence) = cx.roles.and_then(|c| c.changed.rules_sentence()) {
            ui.add_space(8.0);
            pane::note(ui, &sentence, Type::Caption, cx.tokens.text3);
        }
        if rows == [Role::Unknown] {
            ui.add_space(8.0);
            let sentence = "No stack, annotation or lifetime tells what these blocks are for. Record stacks, and the names of the \
                            framework's functions do.";
            pane::note(ui, sentence, Type::Body, cx.tokens.text2);
        }
    });
}
