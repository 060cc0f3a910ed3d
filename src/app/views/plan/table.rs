//! The table of changes and settings.

use egui::{Rect, Ui, vec2};
use std::sync::Arc;

use super::ViewContext;
use super::layout::ROW;
use super::model::{PlanView, combined};
use super::scene::{Figures, Kind, Outcome, Row, Scene};
use crate::app::theme::Type;
use crate::app::views::whatif::table::conf_name;
use crate::app::widgets::{Bar, Cell, Column, Sort, Swatch, Table, Tip, Width, best_room, label, paint_best, selector};
use vramscope_core::plan::ENDS;
use vramscope_core::units::{Bytes, MEBIBYTE, SizeColumn, capital, count, counted};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Order {
    /// The cheapest that fits first. It has no column.
    Best,
    Price,
    Peak,
    Largest,
}

/// The least width of a table with bars.
const BARS_FROM: f32 = 1100.0;

/// The sort orders in the menu. A click on a column title reverses one.
const ORDERS: [(&str, Order, bool); 4] = [
    ("cheapest that fits", Order::Best, false),
    ("price", Order::Price, false),
    ("peak", Order::Peak, false),
    ("largest", Order::Largest, true),
];

/// The initial order: the cheapest that fits; when everything fits already, what saves most.
fn first_order(scene: &Scene) -> Order {
    if scene.fits_already() { Order::Peak } else { Order::Best }
}

impl PlanView {
    pub(super) fn order_menu(&mut self, ui: &mut Ui, scene: &Scene) {
        let by = self.sort.as_ref().map_or(first_order(scene), |sort| sort.by);
        let mut at = ORDERS.iter().position(|o| o.1 == by).unwrap_or(0);
        if selector(ui, "order", &mut at, &ORDERS.map(|o| o.0)) {
            let (_, by, descends) = ORDERS[at];
            self.sort = Some(Sort::new(by, descends));
        }
    }

    /// Draws the rows. A click plots a row and shows its code; a click on its check box combines it.
    pub(super) fn table(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, scene: &Scene) {
        let figures = || scene.rows.iter().filter_map(|r| r.figures.as_ref());
        let peaks = figures().map(|f| f.peak);
        // One unit in the whole table, that of the figures above it; what is made again or moved is told in whole MiB.
        let whole = |bytes: u64| bytes.next_multiple_of(MEBIBYTE);
        let unit = SizeColumn::narrow(peaks.clone().chain(figures().map(|f| whole(f.extra.0))));
        let most = peaks.max().unwrap_or(1);
        let scale = if scene.limit < most * 2 { most.max(scene.limit) } else { most } as f64 * 1.03;
        let (t, selected) = (cx.tokens, scene.selected);
        let ink = |&(i, row): &Line<'_>| match row.kind {
            Kind::Own => t.text1,
            _ if i == selected => t.slot(2),
            _ => t.other,
        };
        // A change that does nothing here has a dash; one that is not tried yet has nothing.
        let dash = |c: &Cell<'_>, row: &Row| c.figure(row.useless().map_or("", |_| "\u{2013}"), t.text3);
        let figure = |i: usize, of: fn(&Figures) -> f64| scene.rows.get(i).and_then(Row::known).map_or(f64::MAX, of);
        // In a narrow pane the bars are hidden first. The cost of a change is shown nowhere else, so it stays.
        let least = if scene.knows { 800.0 } else { 700.0 };
        // Without a curve the table is narrower but higher, so costs may take three lines.
        let (height, most_lines) = if scene.knows { (ROW, 2) } else { (ROW + 14.0, 3) };
        let has_bars = ui.available_width() >= BARS_FROM;
        let (figure_head, figure_width) = if has_bars { (unit.unit().to_owned(), 64.0) } else { (unit.head("reserved"), 92.0) };
        let columns: Vec<Column<'_, Line<'_>, Order>> = vec![
            Column::text("", Width::Exact(10.0), |c, l: &Line<'_>| {
                let is_filled = l.1.is_part || l.0 == selected || l.1.kind == Kind::Own;
                let ink = if l.1.is_part { t.slot(2) } else { ink(l) };
                c.swatch(if is_filled { Swatch::Fill(ink) } else { Swatch::Outline(t.line2) });
            }),
            Column::text("change", Width::Share(1.4, 200.0), |c, &(_, row): &Line<'_>| {
                let kind = if row.is_best || row.kind == Kind::Own { Type::Strong } else { Type::Body };
                let ink = if row.useless().is_some() { t.text3 } else { t.text1 };
                let beside = if row.is_best { best_room(c.p) } else { 0.0 };
                let first = if row.title.contains(' ') {
                    let words = label::in_lines(c.p, &row.title, kind, ink, c.rect.width() - beside, most_lines);
                    let end = c.rect.left() + words.size().x;
                    label::lay(c.p, c.rect.left_center(), words, ink);
                    c.rect.with_max_x(end)
                } else {
                    let place = Rect::from_center_size(c.rect.center(), vec2(c.rect.width(), ROW));
                    conf_name(c.p, place, &row.title, kind, ink, beside)
                };
                if row.is_best {
                    paint_best(c.p, t, first.right_center());
                }
            }),
            Column::text("reserved, no limit", Width::Share(0.35, 90.0), |c, l: &Line<'_>| {
                if let Some(f) = l.1.known() {
                    let bar = Bar::new(scale).part(f.peak as f64, ink(l));
                    c.bar(&if scene.limit as f64 <= scale { bar.tick(scene.limit as f64, t.red) } else { bar });
                }
            })
            .from(BARS_FROM),
            // Where there is room for the bars, their column names what the figures are of.
            Column::figure(figure_head, figure_width, |c, l: &Line<'_>| match l.1.known() {
                Some(f) => c.figure(unit.figure(f.peak), t.text1),
                None => dash(c, l.1),
            })
            // The unchanged program stays first, because all others are compared with it.
            .by(Order::Peak, |i| if i == 0 { -1.0 } else { figure(i, |f| f.peak as f64) })
            .descends(false),
            Column::text(scene.place.as_str(), Width::Exact(126.0), |c, &(_, row): &Line<'_>| {
                let (text, kind, ink) = match row.figures.as_ref().map(|f| (f, &f.outcome)) {
                    None => ("trying\u{2026}".to_owned(), Type::Caption, t.text3),
                    Some((f, Outcome::Useless(_))) => (ends(f), Type::Body, t.text3),
                    Some((f, Outcome::Fits)) => (ends(f), Type::Strong, t.text1),
                    Some((f, Outcome::Fails)) => (ends(f), Type::Body, t.red),
                    Some((f, _)) => (ends(f), Type::Body, t.text2),
                };
                c.text(text, kind, ink);
            }),
            Column::figure("largest", 80.0, |c, &(_, row): &Line<'_>| match row.known().map(|f| (&row.kind, f.largest)) {
                None => dash(c, row),
                // When one pass fits, any size fits with more passes.
                Some((Kind::Passes(..), _)) => c.figure("any", t.text1),
                Some((_, Some([0, 0]))) => c.figure("none", t.text1),
                Some((_, Some([n, most]))) if n == most => {
                    let about = if row.known().is_some_and(|f| f.is_about) { "about " } else { "" };
                    c.figure(format!("{about}{}", count(n)), t.text1);
                }
                Some((_, Some([n, most]))) => c.figure(format!("{}\u{2013}{}", count(n), count(most)), t.text1),
                Some((_, None)) => c.figure(if scene.knows { "\u{2026}" } else { "\u{2013}" }, t.text1),
            })
            .by(Order::Largest, |i| -figure(i, |f| -(f.largest.map_or(0, |l| l[0]) as f64)))
            .from(if scene.knows { 520.0 } else { f32::INFINITY }),
            Column::text("what it costs", Width::Share(1.4, 160.0), |c, &(_, row): &Line<'_>| {
                match (row.useless(), row.known()) {
                    (Some(why), _) => in_cell(c, &format!("does not apply: {why}"), t.text3, most_lines),
                    (_, Some(f)) => in_cell(c, &f.costs(|n| unit.sized(whole(n))), t.text2, most_lines),
                    _ => {}
                }
            })
            .by(Order::Price, |i| {
                let row = scene.rows.get(i).filter(|row| row.useless().is_none());
                row.map_or(f64::MAX, |row| f64::from(row.price.0 as u32 * 1000 + row.price.1))
            })
            .descends(false)
            .from(least),
            Column::text("how sure", Width::Exact(56.0), |c, &(_, row): &Line<'_>| {
                if let Some(f) = row.known() {
                    c.text(f.trust.word(), Type::Body, t.text2);
                }
            })
            .from(700.0),
        ];
        let mut sort = self.sort.clone().unwrap_or_else(|| Sort::new(first_order(scene), false));
        // Figures arrive one by one, so the rows are sorted in every frame.
        let rows = Arc::new(());
        let table = Table::sorted("changes", columns, &mut sort).of(&rows).row_height(height).lines().selected(Some(selected));
        let out = table.show(ui, scene.rows.len(), |i| Some((i, scene.rows.get(i)?)), |_, l| spoken(l.1));
        let pointer = ui.input(|i| i.pointer.interact_pos());
        let is_box = |(_, row): &&(usize, egui::Response)| {
            out.cell(row.rect, 0).zip(pointer).is_some_and(|(cell, at)| row.clicked() && cell.expand(10.0).contains(at))
        };
        let combines = ui.input(|i| i.modifiers.command) || out.seen.iter().any(|row| is_box(&row));
        if let Some(row) = out.clicked.filter(|_| combines).and_then(|row| scene.rows.get(row)) {
            if !matches!(row.kind, Kind::Own | Kind::Passes(..)) {
                // When nothing was chosen yet, the best row is shown but not chosen.
                let chosen = self.row.clone().unwrap_or(Kind::Own);
                self.row = Some(combined(&chosen, &row.kind, &scene.own));
            }
        } else if let Some(row) = out.chosen() {
            self.row = scene.rows.get(row).map(|r| r.kind.clone());
        }
        if self.sort.is_some() || sort.by != first_order(scene) || sort.descending {
            self.sort = Some(sort);
        }
        for (i, response) in &out.seen {
            if let Some(row) = scene.rows.get(*i).filter(|_| response.hovered()) {
                let mut lines: Vec<String> = row.useless().map(|why| format!("Does not apply: {why}.")).into_iter().collect();
                if let Some(f) = row.known() {
                    if !f.cost.is_empty() {
                        lines.push(format!("Costs: {}.", f.costs(|n| Bytes(n).to_string())));
                    }
                    let about = ENDS.iter().find(|(word, _)| *word == f.ends).map_or("", |(_, about)| about);
                    lines.push(format!("{}: {about}.", capital(f.ends)));
                    lines.push(format!("{}: {}.", capital(f.trust.word()), f.trust.about()));
                    if matches!(row.kind, Kind::Passes(..)) {
                        lines.push("Largest: any size fits in more passes, as long as one part does.".to_owned());
                    }
                }
                Tip::new(&row.title).width(320.0).note(lines.join("\n")).show(response);
            }
        }
        if out.opened().is_some() && !combines {
            self.open_run(cx, scene);
        }
    }
}

/// A sentence in a cell, on several lines if necessary.
fn in_cell(c: &Cell<'_>, text: &str, ink: egui::Color32, lines: usize) {
    label::lay(c.p, c.rect.left_center(), label::in_lines(c.p, text, Type::Body, ink, c.rect.width(), lines), ink);
}

/// A row's text for screen readers.
fn spoken(row: &Row) -> String {
    let Some(f) = row.known() else {
        return match row.useless() {
            Some(why) => format!("{}: does not apply: {why}", row.title),
            None => format!("{}: being tried", row.title),
        };
    };
    let part = if row.is_part { ", part of the combination" } else { "" };
    let largest = match f.largest {
        Some([n, most]) if n < most => format!(", largest {} to {}", count(n), count(most)),
        _ => String::new(),
    };
    format!("{}: peak {}, {}{largest}{part}", row.title, Bytes(f.peak), ends(f))
}

fn ends(f: &Figures) -> String {
    match &f.outcome {
        Outcome::Useless(_) => "\u{2013}".to_owned(),
        Outcome::Fits if f.retries > 0 => format!("{}, {}", f.ends, counted(f.retries, "retry", "retries")),
        _ => f.ends.to_owned(),
    }
}

/// A row by its index.
type Line<'a> = (usize, &'a Row);
