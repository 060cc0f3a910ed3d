//! The table of places in the code, by change.

use std::sync::Arc;

use egui::{Color32, Rect, Ui, pos2};

use super::CompareView;
use super::layout;
use super::layout::Order;
use crate::app::data::colours::role_paint;
use crate::app::data::compare::Compared;
use crate::app::state::{Action, Item};
use crate::app::theme::{Tokens, Type};
use crate::app::views::ViewContext;
use crate::app::views::stack_cells::StackCells;
use crate::app::widgets::{Bar, Batch, Cell, Column, Cut, Swatch, Table, TableOutput, Tip, Width, label, pane};
use vramscope_core::anatomy::roles::Role;
use vramscope_core::compare::diff::{Group, Held, purpose_words, purposes_text};
use vramscope_core::model::StackTable;
use vramscope_core::units::{Bytes, MEBIBYTE, SizeColumn, count, counted};

const ROW: f32 = 24.0;
const BARS: usize = 5;

impl CompareView {
    pub(super) fn table(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, compared: &Arc<Compared>) {
        let t = cx.tokens;
        if compared.groups.is_empty() {
            return pane::empty_state(ui, "Nothing is live at A or at B.", None);
        }
        let asked = cx.comparing.asked(&cx.here(), compared);
        let is_lit = |g: &Group| asked.as_ref().is_none_or(|a| g.rows.iter().any(|&r| a.is_of(&compared.diff.rows[r as usize])));
        // All places that changed, and the others that hold enough.
        let least = if self.least == 0 { MEBIBYTE } else { 0 };
        let rows: Vec<&Group> = compared.groups.iter().filter(|g| g.change() != 0 || g.b.bytes >= least).collect();
        let greatest = rows.iter().map(|g| g.change().unsigned_abs()).max().unwrap_or(0) as f64;
        let hidden = compared.groups.len() - rows.len();
        let stacks = compared.stacks();
        // When A is after B, nothing was allocated between them.
        let (born, gone) = if super::side::is_backward(compared) { ("only B", "only A") } else { ("new", "gone") };
        // The first 2,000 rows decide the unit of the columns.
        let size = SizeColumn::of(rows.iter().take(2_000).flat_map(|g| [g.a.bytes, g.b.bytes]));
        let columns: Vec<Column<'_, Line<'_>, Order>> = vec![
            Column::text("allocated in", Width::Share(1.4, 130.0), |c, l: &Line<'_>| {
                l.names.paint_first(&c.swatch(swatch(l.group, t, l.is_lit)));
            }),
            Column::text("called from", Width::Share(1.2, 110.0), |c, l: &Line<'_>| l.names.paint_caller(c)).goes(3),
            Column::figure(size.head("A"), 68.0, |c, l: &Line<'_>| c.figure(size.figure(l.group.a.bytes), l.quiet(t.text2, t)))
                .by(Order::A, |i| rows[i].a.bytes as f64)
                .goes(5),
            Column::figure(size.head("B"), 68.0, |c, l: &Line<'_>| c.figure(size.figure(l.group.b.bytes), l.ink(t)))
                .by(Order::B, |i| rows[i].b.bytes as f64)
                .goes(6),
            Column::figure(size.head("change"), 84.0, |c, Line { group: g, .. }: &Line<'_>| {
                let change = g.change();
                // For blocks without a stack, equal sums do not mean that they are the same blocks.
                let is_known = change != 0 || g.is_comparable(&compared.diff) || compared.diff.alike_in(g) == g.b.bytes;
                let text = if is_known { layout::signed_figure(change, size) } else { "±0".to_owned() };
                c.figure(text, if change == 0 || !is_lit(g) { t.text3 } else { t.text1 });
            })
            // Sorts by the size of the change in either direction.
            .by(Order::Change, |i| rows[i].change().unsigned_abs() as f64),
            Column::text("", Width::Share(0.5, 60.0), |c, l: &Line<'_>| change_bar(c, l, greatest)).goes(2),
            Column::figure("B / A", 48.0, |c, l: &Line<'_>| {
                let text = layout::ratio(l.group.a.bytes, l.group.b.bytes).unwrap_or_else(|| born.to_owned());
                c.figure(if l.group.b.bytes == 0 { gone } else { &text }, l.ink(t));
            })
            .by(Order::Ratio, |i| rows[i].b.bytes as f64 / rows[i].a.bytes.max(1) as f64)
            .goes(4),
            Column::figure("blocks", 48.0, |c, l: &Line<'_>| c.figure(count(l.group.b.count), l.quiet(t.text2, t)))
                .by(Order::Blocks, |i| rows[i].b.count as f64)
                .goes(1),
        ];
        // When nothing changed, the column of bars is hidden.
        let columns = columns.into_iter().enumerate().filter(|(i, _)| *i != BARS || greatest > 0.0).map(|(_, column)| column);
        let has = |g: &Group, s| g.rows.iter().any(|&r| compared.own_stack(&compared.diff.rows[r as usize]) == Some(s));
        let selected = cx.selected_stack().and_then(|s| rows.iter().position(|g| has(g, s)));
        let footer = if hidden > 0 { 26.0 } else { 0.0 };
        // Shows whole rows only, because a cut row is unreadable.
        let high = ui.max_rect().height() - footer;
        let high = if (rows.len() + 1) as f32 * ROW > high && high > 3.0 * ROW { (high / ROW).floor() * ROW } else { high };
        let body = ui.max_rect().with_max_y(ui.max_rect().top() + high);
        // A click in the flame graph above selects a row here, and the table must not scroll then.
        let table = Table::sorted("changes", columns.collect(), &mut self.sort).of(compared).selected(selected).still();
        let mut out = TableOutput::default();
        pane::inside(ui, body, "rows", |ui| {
            let row =
                |i: usize| Some(Line { group: rows[i], names: StackCells::of(stacks, rows[i].stack), is_lit: is_lit(rows[i]) });
            out = table.show(ui, rows.len(), row, |_, l| {
                format!("{}: {}, {}", l.names.line(), layout::signed(l.group.change()), purposes_text(&l.group.purposes))
            });
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
            // Cards appear only when the pointer rests. Otherwise a card for every crossed row would hide the table.
            const REST: f32 = 0.35;
            let still = ui.input(|i| i.pointer.time_since_last_movement());
            if still < REST {
                ui.request_repaint_after(std::time::Duration::from_secs_f32(REST - still + 0.02));
            } else if let Some(at) = ui.input(|i| i.pointer.hover_pos()) {
                let area = ui.max_rect();
                tip(rows[row], stacks, t).show_within(&ui.response(), at, area);
            }
        }
        if let Some(row) = out.chosen() {
            let of = rows[row].rows.iter().map(|&r| &compared.diff.rows[r as usize]);
            match of.max_by_key(|r| r.b.bytes.max(r.a.bytes)).and_then(|r| compared.own_stack(r)) {
                Some(stack) => cx.actions.send(Action::Select(Some(Item::Stack(stack)))),
                None => cx.actions.send(Action::Notify("This stack is only in the other recording.".to_owned())),
            }
        }
    }
}

struct Line<'a> {
    group: &'a Group,
    names: StackCells,
    /// The row matches the query.
    is_lit: bool,
}

impl Line<'_> {
    fn quiet(&self, ink: Color32, t: &Tokens) -> Color32 {
        if self.is_lit { ink } else { t.text3 }
    }

    fn ink(&self, t: &Tokens) -> Color32 {
        self.quiet(if self.group.change() == 0 { t.text2 } else { t.text1 }, t)
    }
}

fn change_bar(c: &Cell<'_>, Line { group, is_lit, .. }: &Line<'_>, greatest: f64) {
    let bar = Bar::new(greatest).thickness(10.0);
    let change = group.change();
    let amount = change.unsigned_abs() as f64;
    let ink = |role| role_ink(role, c.t, *is_lit);
    if let Some(parts) = layout::grown_parts(&group.purposes) {
        // All roles of the place grew, so the bar is made of them.
        c.bar(&parts.iter().fold(bar, |bar, &(role, grown)| bar.part(grown as f64, ink(role))));
    } else if change >= 0 {
        c.bar(&bar.part(amount, ink(group.role)));
    } else {
        // Memory that was freed is drawn as an outline.
        let right = bar.end(c.rect, amount).x.max(c.rect.left() + 2.0);
        let y = c.rect.center().y;
        let mut batch = Batch::new(c.p);
        batch.outline(c.rect.with_max_x(right).down(y - 5.0, y + 5.0), 1.0, ink(group.role));
        batch.paint(c.p);
    }
}

/// The colour of a role; pale when the row does not match the query.
fn role_ink(role: Role, t: &Tokens, is_lit: bool) -> Color32 {
    let colour = role_paint(role).colour(t);
    if is_lit { colour } else { Tokens::over(colour, t.s1, 0.3) }
}

/// A place has the colour of its role, or the colours of its two largest roles.
fn swatch(g: &Group, t: &Tokens, is_lit: bool) -> Swatch {
    let ink = |role| role_ink(role, t, is_lit);
    match layout::two_largest(&g.purposes) {
        Some((first, second)) => Swatch::Split(ink(first), ink(second)),
        None => Swatch::Fill(ink(g.role)),
    }
}

/// The tooltip: the roles of a row, at A and at B.
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
