//! The table of changes and settings.

use egui::{Rect, Ui};

use super::ViewContext;
use super::layout::ROW;
use super::model::{PlanView, combined};
use super::scene::{Figures, Kind, Outcome, Row, Scene};
use crate::app::theme::Type;
use crate::app::widgets::bar::Bar;
use crate::app::widgets::chip::{Swatch, paint_chip_in};
use crate::app::widgets::cut::Cut;
use crate::app::widgets::label;
use crate::app::widgets::table::{Column, Table, Width};
use vramscope_core::units::{Bytes, SizeColumn, count, counted};

impl PlanView {
    /// The rows; a click plots one and shows its code.
    pub(super) fn table(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, scene: &Scene) {
        let peaks = scene.rows.iter().filter_map(|r| r.figures.as_ref()).map(|f| f.peak);
        let unit = SizeColumn::of(peaks.clone());
        let most = peaks.max().unwrap_or(1);
        let scale = if scene.limit < most * 2 { most.max(scene.limit) } else { most } as f64 * 1.03;
        let outcome_head = scene.place.clone();
        let columns = [
            Column::text("", Width::Exact(10.0)),
            Column::text("change", Width::Share(1.3, 200.0)),
            Column::text("peak, no limit", Width::Share(0.6, 90.0)).from(620.0),
            Column::figure(unit.unit(), 64.0),
            Column::text(&outcome_head, Width::Exact(118.0)),
            Column::figure("largest", 52.0).from(520.0),
            Column::text("what it costs", Width::Share(1.2, 160.0)).from(900.0),
            Column::text("how sure", Width::Exact(56.0)).from(760.0),
        ];
        let selected = scene.selected;
        let scroll = std::mem::take(&mut self.reveal).then_some(selected);
        let table = Table::new("changes", &columns).row_height(ROW).lines().selected(Some(selected)).scroll_to(scroll).keys(None);
        let out = table.show(
            ui,
            scene.rows.len(),
            |row| scene.rows.get(row).map_or(String::new(), spoken),
            |p, row, cells| {
                let Some(row_of) = scene.rows.get(row) else { return };
                let is_plotted = row == selected;
                for &(column, rect) in cells {
                    paint_cell(p, cx, scene, row_of, (column, rect), is_plotted, (scale, unit));
                }
            },
        );
        let combines = ui.input(|i| i.modifiers.command);
        if let Some(row) = out.clicked.filter(|_| combines).and_then(|row| scene.rows.get(row)) {
            if !matches!(row.kind, Kind::Own | Kind::Passes(..)) {
                // Nothing was chosen yet: the best one is shown but not chosen.
                let chosen = self.row.clone().unwrap_or(Kind::Own);
                self.row = Some(combined(&chosen, &row.kind, &scene.own));
            }
        } else if let Some(row) = out.moved.or(out.clicked) {
            self.row = scene.rows.get(row).map(|r| r.kind.clone());
            self.reveal = out.moved.is_some();
        }
        if out.double_clicked.is_some() && !combines {
            self.open_run(cx, scene);
        }
    }
}

/// A row where it cannot be seen.
fn spoken(row: &Row) -> String {
    let Some(f) = &row.figures else { return format!("{}: being tried", row.title) };
    match &f.outcome {
        Outcome::Useless(why) => format!("{}: does not apply: {why}", row.title),
        _ => {
            let part = if row.is_part { ", part of the combination" } else { "" };
            format!("{}: peak {}, {}{part}", row.title, Bytes(f.peak), ends(f))
        }
    }
}

fn ends(f: &Figures) -> String {
    match &f.outcome {
        Outcome::Fits if f.retries > 0 => format!("fits, {}", counted(f.retries, "retry", "retries")),
        Outcome::Fits => "fits".to_owned(),
        Outcome::May => "may fit".to_owned(),
        Outcome::Fails => "fails".to_owned(),
        Outcome::Useless(_) => "\u{2013}".to_owned(),
    }
}

fn paint_cell(
    p: &egui::Painter,
    cx: &ViewContext<'_>,
    scene: &Scene,
    row: &Row,
    (column, rect): (usize, Rect),
    is_plotted: bool,
    (scale, unit): (f64, SizeColumn),
) {
    let t = cx.tokens;
    let is_useless = row.figures.as_ref().is_some_and(|f| matches!(f.outcome, Outcome::Useless(_)));
    let quiet = if is_useless { t.text3 } else { t.text1 };
    let ink = match (is_plotted, &row.kind) {
        (_, Kind::Own) => t.text1,
        (true, _) => t.slot(2),
        (false, _) => t.other,
    };
    match (column, &row.figures) {
        (0, _) => {
            let swatch = if row.is_part {
                Swatch::Fill(t.slot(2))
            } else if is_plotted || row.kind == Kind::Own {
                Swatch::Fill(ink)
            } else {
                Swatch::Outline(t.line2)
            };
            swatch.paint(p, t, rect.left_center());
        }
        (1, _) => {
            let mut room = rect;
            if row.is_best {
                let words = label::width(p, &row.title, Type::Strong).min(rect.width() - 40.0);
                let at = rect.middle(rect.left() + words + 8.0);
                paint_chip_in(p, at, egui::Align2::LEFT_CENTER, "best", Type::Flag, t.onaccent, t.accent);
                room.max.x = rect.left() + words + 2.0;
            }
            let kind = if row.is_best || row.kind == Kind::Own { Type::Strong } else { Type::Body };
            label::text_in(p, room, &row.title, kind, quiet);
        }
        (_, None) if column == 4 => {
            label::text_in(p, rect, "trying\u{2026}", Type::Caption, t.text3);
        }
        (_, None) => {}
        (6, Some(f)) if is_useless => {
            let Outcome::Useless(why) = &f.outcome else { return };
            label::text_in(p, rect, &format!("does not apply: {why}"), Type::Body, t.text3);
        }
        (2..=5, Some(_)) if is_useless => {
            let words = "\u{2013}";
            if column == 3 || column == 5 {
                label::figure(p, rect, words, t.text3);
            } else if column == 4 {
                label::text_in(p, rect, words, Type::Body, t.text3);
            }
        }
        (2, Some(f)) => {
            let bar = Bar::new(scale).part(f.peak as f64, ink);
            let is_on_scale = scene.limit as f64 <= scale;
            (if is_on_scale { bar.tick(scene.limit as f64, t.red) } else { bar }).paint(p, t, rect);
        }
        (3, Some(f)) => label::figure(p, rect, &unit.figure(f.peak), t.text1),
        (4, Some(f)) => {
            let (kind, ink) = match f.outcome {
                Outcome::Fits => (Type::Strong, t.text1),
                Outcome::Fails => (Type::Body, t.red),
                _ => (Type::Body, t.text2),
            };
            label::text_in(p, rect, &ends(f), kind, ink);
        }
        (5, Some(f)) => {
            let words = match (&row.kind, f.largest) {
                (Kind::Passes(..), _) => "\u{2013}".to_owned(),
                (_, Some(0)) => "none".to_owned(),
                (_, Some(n)) => count(n),
                (_, None) if scene.knows => "\u{2026}".to_owned(),
                _ => "\u{2013}".to_owned(),
            };
            label::figure(p, rect, &words, t.text1);
        }
        (6, Some(f)) => _ = label::text_in(p, rect, &f.cost, Type::Body, t.text2),
        (7, Some(f)) => _ = label::text_in(p, rect, f.sure, Type::Body, t.text2),
        _ => {}
    }
}
