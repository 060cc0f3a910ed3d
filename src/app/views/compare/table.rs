//! The table of places by change.

use std::sync::Arc;

use egui::{Rect, Ui, pos2};

use super::CompareView;
use super::layout;
use super::layout::Order;
use crate::app::data::colours::role_paint;
use crate::app::data::compare::Compared;
use crate::app::jobs::identity::Identity;
use crate::app::state::action::Action;
use crate::app::state::selection::Item;
use crate::app::theme::{Tokens, Type};
use crate::app::views::ViewContext;
use crate::app::views::stack_cells::StackCells;
use crate::app::widgets::bar::Bar;
use crate::app::widgets::chip::Swatch;
use crate::app::widgets::table::{Column, Table, Width};
use crate::app::widgets::tooltip::Tip;
use crate::app::widgets::{label, pane};
use vramscope_core::compare::diff::{Group, Held, purpose_words, purposes_text};
use vramscope_core::model::StackTable;
use vramscope_core::units::{Bytes, MEBIBYTE, SizeColumn, count, counted};

/// The group of each row, and what that order was computed for.
#[derive(Default)]
pub(super) struct Rows {
    known_for: Option<(Identity, usize, Order, bool)>,
    shown: Vec<usize>,
    greatest: u64,
}

/// Height of a row, and of the header over them.
const ROW: f32 = 24.0;

/// What each column sorts by.
const ORDERS: [Option<Order>; 8] =
    [None, None, Some(Order::A), Some(Order::B), Some(Order::Change), None, Some(Order::Ratio), Some(Order::Blocks)];

impl CompareView {
    pub(super) fn table(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, compared: &Arc<Compared>) {
        let t = cx.tokens;
        let key = (Identity::of(compared), self.least, self.order, self.descending);
        if self.rows.known_for.as_ref() != Some(&key) {
            let least = if self.least == 0 { MEBIBYTE } else { 0 };
            self.rows.shown = layout::rows(&compared.groups, least, self.order, self.descending);
            self.rows.greatest = compared.groups.iter().map(|g| g.change().unsigned_abs()).max().unwrap_or(0);
            self.rows.known_for = Some(key);
        }
        if compared.groups.is_empty() {
            pane::empty_state(ui, "Nothing is live at A or at B.", None);
            return;
        }
        let asked = cx.comparing.asked(&cx.here(), compared);
        let is_lit = |g: &Group| asked.as_ref().is_none_or(|a| g.rows.iter().any(|&r| a.is_of(&compared.diff.rows[r as usize])));
        let rows = &self.rows.shown;
        let hidden = compared.groups.len() - rows.len();
        let stacks = compared.stacks();
        // This many rows decide how the columns are written.
        let size =
            SizeColumn::of(rows.iter().take(2_000).flat_map(|&g| [compared.groups[g].a.bytes, compared.groups[g].b.bytes]));
        let heads = ["A", "B", "change"].map(|name| size.head(name));
        let columns = [
            Column::text("allocated in", Width::Share(1.0, 130.0)),
            Column::text("called from", Width::Share(0.9, 110.0)).from(640.0),
            Column::figure(&heads[0], 68.0).sorts().from(420.0),
            Column::figure(&heads[1], 68.0).sorts().from(340.0),
            Column::figure(&heads[2], 84.0).sorts(),
            Column::text("change", Width::Share(0.9, 60.0)).from(560.0),
            Column::figure("B / A", 48.0).sorts().from(620.0),
            Column::figure("blocks", 48.0).sorts().from(480.0),
        ];
        let selected = match cx.shared.selected() {
            Some(Item::Stack(s)) => rows.iter().position(|&g| {
                compared.groups[g].rows.iter().any(|&r| compared.own_stack(&compared.diff.rows[r as usize]) == Some(s))
            }),
            _ => None,
        };
        let sorted = ORDERS.iter().position(|order| *order == Some(self.order));
        let footer = if hidden > 0 { 26.0 } else { 0.0 };
        // Whole rows under the header: what is cut in half cannot be read.
        let high = ui.max_rect().height() - footer;
        let high = if (rows.len() + 1) as f32 * ROW > high && high > 3.0 * ROW { (high / ROW).floor() * ROW } else { high };
        let body = ui.max_rect().with_max_y(ui.max_rect().top() + high);
        let greatest = self.rows.greatest as f64;
        let mut table = Table::new("changes", &columns).selected(selected);
        if let Some(column) = sorted {
            table = table.sorted(column, self.descending);
        }
        let mut out = Default::default();
        crate::app::widgets::pane::inside(ui, body, "rows", |ui| {
            out = table.show(
                ui,
                rows.len(),
                |row| {
                    let g = &compared.groups[rows[row]];
                    let of = purposes_text(&g.purposes);
                    format!("{}: {}, {of}", StackCells::of(stacks, g.stack).line(), layout::signed(g.change()))
                },
                |p, row, cells| {
                    let g = &compared.groups[rows[row]];
                    let names = StackCells::of(stacks, g.stack);
                    let (a, b, change) = (g.a.bytes, g.b.bytes, g.change());
                    let colour = role_paint(g.role).colour(t);
                    let is_lit = is_lit(g);
                    let quiet = if !is_lit {
                        t.text3
                    } else if change == 0 {
                        t.text2
                    } else {
                        t.text1
                    };
                    let colour = if is_lit { colour } else { Tokens::over(colour, t.s1, 0.3) };
                    for &(column, cell) in cells {
                        let figure = |text: &str, ink| label::figure(p, cell, text, ink);
                        let mib = |n| size.figure(n);
                        match column {
                            0 => {
                                let swatch = swatch(g, t, is_lit).paint(p, t, cell.left_center());
                                let room = cell.with_min_x(swatch.right() + 6.0);
                                names.paint_first(p, t, room);
                            }
                            1 => names.paint_caller(p, t, cell),
                            2 => {
                                figure(&mib(a), if is_lit { t.text2 } else { t.text3 });
                            }
                            3 => figure(&mib(b), quiet),
                            4 => {
                                // Equal sums of blocks without a stack are no sign that they are the same.
                                let is_known = change != 0 || g.is_comparable(&compared.diff) || compared.diff.alike_in(g) == b;
                                let text = if is_known { layout::signed_figure(change, size) } else { "±0".to_owned() };
                                figure(&text, if change == 0 { t.text3 } else { quiet });
                            }
                            5 => {
                                let bar = Bar::new(greatest).thickness(10.0);
                                let amount = change.unsigned_abs() as f64;
                                if let Some(parts) = layout::grown_parts(&g.purposes) {
                                    // Every kind of memory of the place grew: the bar is made of them.
                                    let ink = |c| role_paint(c).colour(t);
                                    let dimmed = |c| if is_lit { ink(c) } else { Tokens::over(ink(c), t.s1, 0.3) };
                                    let bar = parts.iter().fold(bar, |bar, &(c, grown)| bar.part(grown as f64, dimmed(c)));
                                    bar.paint(p, t, cell);
                                } else if change >= 0 {
                                    bar.part(amount, colour).paint(p, t, cell);
                                } else {
                                    // Memory that is gone is drawn as an outline.
                                    let right = bar.end(cell, amount).x;
                                    let mut batch = crate::app::widgets::mesh::Batch::new(p);
                                    let y = cell.center().y;
                                    let part =
                                        Rect::from_x_y_ranges(cell.left()..=right.max(cell.left() + 2.0), y - 5.0..=y + 5.0);
                                    batch.outline(part, 1.0, colour);
                                    batch.paint(p);
                                }
                            }
                            6 => {
                                let text = layout::ratio(a, b).unwrap_or_else(|| "new".to_owned());
                                figure(if b == 0 { "gone" } else { &text }, quiet);
                            }
                            _ => {
                                figure(&count(g.b.count), if is_lit { t.text2 } else { t.text3 });
                            }
                        }
                    }
                },
            );
        });
        if hidden > 0 {
            let place = Rect::from_min_max(pos2(body.left() + 16.0, body.bottom()), ui.max_rect().max);
            let text = format!(
                "{} of {} shown, {} under 1 MiB and did not change",
                count(rows.len() as u64),
                counted(compared.groups.len() as u64, "place", "places"),
                if hidden == 1 { "1 holds".to_owned() } else { format!("{} hold", count(hidden as u64)) }
            );
            label::text_in(ui.painter(), place, &text, Type::Caption, t.text3);
        }
        if let Some(row) = out.hovered {
            // Only once the pointer rests: a card on every row it crosses would hide the rows.
            const REST: f32 = 0.35;
            let still = ui.input(|i| i.pointer.time_since_last_movement());
            if still < REST {
                ui.request_repaint_after(std::time::Duration::from_secs_f32(REST - still + 0.02));
            } else if let Some(at) = ui.input(|i| i.pointer.hover_pos()) {
                let area = ui.max_rect();
                tip(&compared.groups[rows[row]], stacks, t).show_within(&ui.response(), ui.scope_id().with("tip"), at, area);
            }
        }
        if let Some(row) = out.clicked {
            let group = &compared.groups[rows[row]];
            let heaviest = group.rows.iter().map(|&r| &compared.diff.rows[r as usize]).max_by_key(|r| r.b.bytes.max(r.a.bytes));
            match heaviest.and_then(|r| compared.own_stack(r)) {
                Some(stack) => cx.actions.send(Action::Select(Some(Item::Stack(stack)))),
                None => cx.actions.send(Action::Notify("This stack is only in the other recording.".to_owned())),
            }
        }
        if let Some(order) = out.sort.and_then(|c| ORDERS[c]) {
            self.descending = if self.order == order { !self.descending } else { true };
            self.order = order;
        }
    }
}

/// The colour of a place is that of its role; with several roles, the two colours of the largest.
fn swatch(g: &Group, t: &Tokens, is_lit: bool) -> Swatch {
    let ink = |role| {
        let colour = role_paint(role).colour(t);
        if is_lit { colour } else { Tokens::over(colour, t.s1, 0.3) }
    };
    match layout::two_largest(&g.purposes) {
        Some((first, second)) => Swatch::Split(ink(first), ink(second)),
        None => Swatch::Fill(ink(g.role)),
    }
}

/// What a row is made of: each kind of memory it holds, at A and at B.
fn tip(g: &Group, stacks: &StackTable, t: &Tokens) -> Tip {
    let names = StackCells::of(stacks, g.stack);
    let mut tip = Tip::new(names.allocated_in.line()).swatch(role_paint(g.role).colour(t)).width(340.0);
    let sides = |a: &Held, b: &Held| format!("{} → {}", Bytes(a.bytes), Bytes(b.bytes));
    tip = tip.row("in use, A → B", sides(&g.a, &g.b));
    tip = tip.row("blocks, A → B", format!("{} → {}", count(g.a.count), count(g.b.count)));
    let purposes = layout::by_weight(&g.purposes);
    match purposes.as_slice() {
        [one] => tip = tip.row("for", purpose_words(one)),
        several => {
            for of in several {
                tip = tip.row(format!("of it {}", purpose_words(of)), sides(&of.1, &of.2));
            }
        }
    }
    if purposes.len() > 1 {
        tip = tip.note("One line allocates several kinds of memory: its two colours are those of the two largest.");
    }
    tip
}
