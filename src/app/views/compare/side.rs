//! The summary at the left: the change, its roles, its blocks, reserved memory, and what the figures mean.

use std::sync::Arc;

use egui::{Color32, Rect, Role, ScrollArea, Ui, vec2};

use super::layout;
use crate::app::data::colours::role_paint;
use crate::app::data::compare::Compared;
use crate::app::theme::{Tokens, Type};
use crate::app::views::ViewContext;
use crate::app::views::stack_cells::StackCells;
use crate::app::widgets::{Bar, Batch, Cut, Swatch, label, pane, row};
use vramscope_core::compare::diff::{Held, purpose_words};
use vramscope_core::units::{Bytes, NBSP, SizeColumn, capital, count, counted};

const PAD: f32 = 16.0;

/// `why` says how A and B were chosen, when the user did not choose them.
pub(super) fn show(ui: &mut Ui, cx: &ViewContext<'_>, compared: &Arc<Compared>, why: Option<&str>) {
    ScrollArea::vertical().id_salt("summary").auto_shrink(false).show(ui, |ui| {
        ui.spacing_mut().item_spacing = vec2(0.0, 0.0);
        headline(ui, cx.tokens, compared);
        asked(ui, cx, compared);
        by_role(ui, cx.tokens, compared);
        if let Some(blocks) = compared.diff.blocks {
            pane::section(ui, "Which blocks", "", false);
            which_blocks(ui, cx.tokens, [blocks.only_a, blocks.both, blocks.only_b], is_backward(compared));
        } else {
            pane::section(ui, "By place", "", false);
            by_place(ui, cx.tokens, compared);
        }
        if let Some(why) = why {
            let text = format!("A and B, chosen for you: {why}.");
            let said = ui.scope(|ui| pane::note(ui, &text, Type::Caption, cx.tokens.text3));
            said.response
                .on_hover_text("Drag their flags in the timeline, choose above, or press Shift A and Shift B at the cursor.");
            ui.add_space(6.0);
        }
        // Zeros of a file without segments are meaningless.
        if compared.sides.iter().all(|side| side.data.knows_reserved()) {
            reserve(ui, cx.tokens, compared);
        }
        pane::section(ui, "Reading", "", false);
        let name = |g: &vramscope_core::compare::diff::Group| StackCells::of(compared.stacks(), g.stack).line();
        let text = layout::reading(&compared.diff, &compared.groups, name);
        pane::padded(ui, |ui| label::rich_paragraph(ui, &text, Type::Body, cx.tokens.text2, cx.tokens.text1));
        ui.add_space(12.0);
    });
}

/// True when A is after B in the same run: blocks only at B were freed, not allocated.
pub(super) fn is_backward(compared: &Compared) -> bool {
    compared.diff.blocks.is_some() && compared.sides[0].event > compared.sides[1].event
}

/// What matches the query on each side.
fn asked(ui: &mut Ui, cx: &ViewContext<'_>, compared: &Arc<Compared>) {
    let (Some(query), Some(asked)) = (&cx.shared.query, cx.comparing.asked(&cx.here(), compared)) else { return };
    let part = |which: usize, all: u64| {
        let share = asked.bytes[which] as f64 / all.max(1) as f64 * 100.0;
        format!("*{}*, {share:.1}{NBSP}% of {}", Bytes(asked.bytes[which]), ["A", "B"][which])
    };
    let (a, b) = (part(0, compared.diff.a.bytes), part(1, compared.diff.b.bytes));
    let text = format!("The query {} holds for {a}, and {b}. The rest is dimmed.", query.text.trim());
    pane::padded(ui, |ui| label::rich_paragraph(ui, &text, Type::Body, cx.tokens.text2, cx.tokens.text1));
    ui.add_space(6.0);
}

/// The change in large type, and a line that says what it consists of.
fn headline(ui: &mut Ui, t: &Tokens, compared: &Compared) {
    ui.add_space(10.0);
    let change = layout::signed(compared.diff.change());
    let beside = layout::beside(&compared.diff, &compared.groups, is_backward(compared));
    let (text, beside) = match layout::is_slight(&compared.diff, compared.diff.change().unsigned_abs()) {
        true => ("Almost no change".to_owned(), format!("{change}, {beside}")),
        false => (capital(&change), beside),
    };
    let (rect, _) = row::told(ui, 32.0, Role::Label, || format!("Change from A to B: {text}, {beside}"));
    let inner = rect.shrink2(vec2(PAD, 0.0));
    let big = label::text_in(ui.painter(), inner, &text, Type::Display, t.text1);
    let room = inner.with_min_x(big.right() + 16.0);
    if label::width(ui.painter(), &beside, Type::Body) <= room.width() {
        label::text_in(ui.painter(), room.translate(vec2(0.0, 2.0)), &beside, Type::Body, t.text2);
    } else {
        pane::note(ui, &beside, Type::Body, t.text2);
    }
    ui.add_space(6.0);
}

/// Bars of A and B by role, followed by each role's figures.
fn by_role(ui: &mut Ui, t: &Tokens, compared: &Compared) {
    let c = &compared.diff;
    let greatest = c.a.bytes.max(c.b.bytes) as f64;
    let mut order: Vec<_> = c.roles.iter().collect();
    order.sort_by_key(|x| std::cmp::Reverse(x.1.bytes.max(x.2.bytes)));
    for (which, name) in ["A", "B"].into_iter().enumerate() {
        let (title, all) = (&compared.sides[which].title, [c.a.bytes, c.b.bytes][which]);
        let (rect, response) = row::told(ui, 24.0, Role::Label, || format!("{name}: {title}"));
        let inner = rect.shrink2(vec2(PAD, 0.0));
        label::text_in(ui.painter(), inner, name, Type::Strong, t.text1);
        let mut bar = Bar::new(greatest).thickness(19.0);
        for x in &order {
            bar = bar.part([x.1.bytes, x.2.bytes][which] as f64, role_paint(x.0).colour(t));
        }
        bar.paint(ui.painter(), t, inner.with_min_x(inner.left() + 24.0));
        response.on_hover_text(format!("{name} is {title}: {}", Bytes(all)));
    }
    ui.add_space(6.0);
    let size = SizeColumn::narrow(order.iter().flat_map(|x| [x.1.bytes, x.2.bytes]));
    figures(ui, t, None, "", [&size.head("A"), &size.head("B"), "change"], [t.text3; 3], Type::Column);
    for x in order {
        let (a, b) = (x.1.bytes, x.2.bytes);
        let change = b as i64 - a as i64;
        let ink = if change == 0 { t.text3 } else { t.text1 };
        // There is no room for a figure with a unit of its own.
        let is_slight = size.figure(change.unsigned_abs()).starts_with('<');
        let changed = if is_slight { "slight".to_owned() } else { layout::signed_figure(change, size) };
        let texts = [&*size.figure(a), &size.figure(b), &changed];
        let swatch = Swatch::Fill(role_paint(x.0).colour(t));
        figures(ui, t, Some(swatch), &purpose_words(x), texts, [t.text2, t.text1, ink], Type::Mono);
    }
}

/// A row with swatch, name and three figures.
fn figures(ui: &mut Ui, t: &Tokens, swatch: Option<Swatch>, name: &str, texts: [&str; 3], inks: [Color32; 3], kind: Type) {
    let (rect, _) = row::told(ui, 20.0, Role::Label, || format!("{name}: A {}, B {}, {}", texts[0], texts[1], texts[2]));
    let inner = rect.shrink2(vec2(PAD, 0.0));
    let p = ui.painter();
    // Role names are long; for reserved memory the figures are.
    let names = if swatch.is_some() || kind == Type::Column { 150.0 } else { 110.0 };
    let column = ((inner.width() - names) / 3.0).clamp(54.0, 92.0);
    for (i, (text, ink)) in texts.iter().zip(inks).enumerate() {
        let right = inner.right() - column * (2 - i) as f32;
        let cell = inner.across(right - column + 6.0, right);
        label::text_in_right(p, cell, text, kind, ink);
    }
    let mut left = inner.left();
    if let Some(swatch) = swatch {
        left = swatch.paint(p, t, inner.left_center()).right() + 6.0;
    }
    let room = inner.across(left, inner.right() - 3.0 * column);
    label::text_in(p, room, name, Type::Body, t.text1);
}

/// A bar in three parts, with their figures.
fn parts(ui: &mut Ui, t: &Tokens, names: [&str; 3], bytes: [u64; 3], notes: [String; 3]) {
    let rect = row::line(ui, 22.0);
    let area = Rect::from_center_size(rect.center(), vec2(rect.width() - 2.0 * PAD, 16.0));
    let whole = bytes.iter().sum::<u64>().max(1) as f64;
    let swatches = [Swatch::Outline(t.text2), Swatch::Fill(t.other), Swatch::Fill(t.text2)];
    let mut batch = Batch::new(ui.painter());
    let mut x = area.left();
    for (swatch, b) in swatches.iter().zip(bytes) {
        let width = (b as f64 / whole * f64::from(area.width())) as f32;
        let part = area.across(x, (x + width - 1.0).max(x));
        match swatch {
            Swatch::Fill(colour) => batch.rect(part, *colour),
            Swatch::Outline(colour) if part.width() >= 1.0 => batch.outline(part, 1.0, *colour),
            _ => {}
        }
        x += width;
    }
    batch.paint(ui.painter());
    let sizes = SizeColumn::of(bytes);
    for i in 0..3 {
        let size = sizes.sized(bytes[i]);
        let (rect, response) = row::told(ui, 20.0, Role::Label, || format!("{}: {size} {}", names[i], notes[i]));
        let inner = rect.shrink2(vec2(PAD, 0.0));
        let p = ui.painter();
        let swatch = swatches[i].paint(p, t, inner.left_center());
        label::text_in(p, inner.with_min_x(swatch.right() + 6.0), names[i], Type::Body, t.text1);
        label::figure(p, inner, &size, t.text1);
        if inner.width() >= 300.0 {
            let before = inner.with_max_x(inner.right() - 92.0);
            label::figure(p, before, &notes[i], t.text3);
        } else {
            response.on_hover_text(&notes[i]);
        }
    }
}

fn which_blocks(ui: &mut Ui, t: &Tokens, held: [Held; 3], is_backward: bool) {
    let notes = held.map(|h| counted(h.count, "block", "blocks"));
    let [a, b] = if is_backward { [", new since B", ", freed before A"] } else { [", freed since", ", new"] };
    parts(ui, t, [&format!("only in A{a}"), "in both", &format!("only in B{b}")], held.map(|h| h.bytes), notes);
}

fn by_place(ui: &mut Ui, t: &Tokens, compared: &Compared) {
    let p = compared.parts;
    parts(ui, t, ["only in A", "in both", "only in B"], [p.only_a, p.both, p.only_b], Default::default());
    if let Some(text) = layout::without_stack(&p) {
        pane::padded(ui, |ui| label::rich_paragraph(ui, &text, Type::Caption, t.text3, t.text1));
        ui.add_space(6.0);
    }
}

fn reserve(ui: &mut Ui, t: &Tokens, compared: &Compared) {
    let (a, b) = (compared.diff.reserve_a, compared.diff.reserve_b);
    let rows: [(&str, u64, u64, bool); 5] = [
        ("reserved", a.totals[0], b.totals[0], true),
        ("free inside", a.free, b.free, true),
        ("largest hole", a.largest_hole, b.largest_hole, true),
        ("requested", compared.diff.a.requested, compared.diff.b.requested, true),
        ("segments", a.segments, b.segments, false),
    ];
    let size = SizeColumn::narrow(rows.iter().filter(|r| r.3).flat_map(|r| [r.1, r.2]));
    pane::section(ui, "Reserved", &format!("{} unless said", size.unit()), false);
    for (name, a, b, is_bytes) in rows {
        let show = |n: u64| if is_bytes { size.figure(n) } else { count(n) };
        let change = b as i64 - a as i64;
        let changed = label::change(change, show);
        let ink = if change == 0 { t.text3 } else { t.text1 };
        figures(ui, t, None, name, [&show(a), &show(b), &changed], [t.text2, t.text1, ink], Type::Mono);
    }
}
