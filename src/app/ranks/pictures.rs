//! The pictures of the ranks page: peaks as bars, curves as small multiples.

use egui::{Painter, Rect, Stroke, StrokeKind, pos2, vec2};

use super::Ranks;
use super::layout::bar;
use crate::analysis::ranks::RankRow;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::label;
use crate::app::widgets::mesh::{Batch, DASH_LIMIT, PixelColumn};
use crate::units::Bytes;

/// The value at the top of every picture: the highest peak, or the card where that is known and not much higher.
pub fn greatest(rows: &[RankRow]) -> u64 {
    let peak = rows.iter().map(|r| r.peak_reserved).max().unwrap_or(0).max(1);
    let card = rows.iter().filter_map(|r| r.capacity).max().unwrap_or(0);
    if card > peak && card < peak.saturating_mul(2) { card } else { peak + peak / 12 }
}

/// One bar a rank: active at the peak in colour, the rest of reserved hatched, red feet where it ran out of memory, and a line at the
/// median.
pub fn bars(painter: &Painter, t: &Tokens, area: Rect, page: &Ranks, hovered: Option<usize>) {
    let rows = page.rows();
    let top = greatest(rows) as f64;
    let mut batch = Batch::new(painter).hatch_origin(area.min);
    let n = rows.len();
    for (i, row) in rows.iter().enumerate() {
        let reserved = bar(area, i, n, row.peak_reserved as f64 / top);
        let active = bar(area, i, n, row.peak_active.min(row.peak_reserved) as f64 / top);
        let is_chosen = page.chosen_as(row).is_some();
        if hovered == Some(i) || is_chosen {
            let column = Rect::from_min_max(pos2(reserved.left(), area.top()), pos2(reserved.right(), area.bottom()));
            batch.rect_at_least_a_pixel(column, t.s3);
        }
        batch.rect_at_least_a_pixel(reserved, t.s4);
        if reserved.width() >= 5.0 {
            batch.hatch(Rect::from_min_max(reserved.min, pos2(reserved.right(), active.top())), t.hatch);
        }
        let ink = if page.overview().outliers.contains(&i) { t.slot(1) } else { t.slot(0) };
        batch.rect_at_least_a_pixel(active, ink);
        if row.ooms > 0 {
            let foot =
                Rect::from_min_max(pos2(reserved.left(), area.bottom() + 1.0), pos2(reserved.right(), area.bottom() + 4.0));
            batch.rect_at_least_a_pixel(foot, t.red);
        }
    }
    let median = area.bottom() - area.height() * (page.overview().median_peak as f64 / top) as f32;
    // Recordings on their own have no median.
    if page.overview().median_peak > 0 {
        batch.dashed_hline(area.x_range(), median, 1.0, DASH_LIMIT, t.text2);
    }
    batch.hline(area.x_range(), area.bottom(), 1.0, t.line2);
    batch.paint(painter);
    for (slot, letter) in ["A", "B"].into_iter().enumerate() {
        let Some(at) = page.rows().iter().position(|r| page.chosen_as(r) == Some(slot)) else { continue };
        let place = bar(area, at, n, 1.0);
        label::text(
            painter,
            pos2(place.center().x, area.top() - 2.0),
            egui::Align2::CENTER_BOTTOM,
            letter,
            Type::Strong,
            t.accent,
        );
    }
}

/// A rank's curves in a cell: its name, its peak, reserved as a line over active, all cells to one scale.
pub fn small_multiple(painter: &Painter, t: &Tokens, cell: Rect, page: &Ranks, at: usize, is_hovered: bool) {
    let row = &page.rows()[at];
    let head = Rect::from_min_size(cell.min, vec2(cell.width(), 18.0));
    let plot = Rect::from_min_max(pos2(cell.left(), head.bottom()), cell.max);
    let ink = if row.ooms > 0 { t.red } else { t.text1 };
    let peak = label::text_in_right(painter, head, &Bytes(row.peak_reserved).to_string(), Type::Mono, t.text2);
    let mut room = head;
    room.max.x = peak.left() - 6.0;
    let letter = page.chosen_as(row).map_or("", |slot| if slot == 0 { "A  " } else { "B  " });
    label::text_in(painter, room, &format!("{letter}{}", page.name_at(at)), Type::Strong, ink);
    let mut batch = Batch::new(painter);
    batch.rect(plot, if is_hovered { t.s3 } else { t.s2 });
    let top = greatest(page.rows()) as f64;
    let columns = (plot.width() / batch.pixel()).round().max(1.0) as usize;
    let curve = |values: &[u64]| -> Vec<Option<PixelColumn>> {
        (0..columns)
            .map(|x| {
                let from = x * values.len() / columns;
                let to = ((x + 1) * values.len()).div_ceil(columns).clamp(from, values.len());
                let most = values.get(from..to)?.iter().max()?;
                let y = plot.bottom() - (*most as f64 / top) as f32 * plot.height();
                Some(PixelColumn { top: y, bottom: y, last: y })
            })
            .collect()
    };
    batch.fill_under(&curve(&row.active), plot.left(), plot.bottom(), Tokens::over(t.slot(0), t.s2, 0.75));
    batch.curve(&curve(&row.reserved), plot.left(), 1.0, t.text1);
    if row.ooms > 0 {
        batch.rect(Rect::from_min_max(pos2(plot.right() - 2.0, plot.top()), plot.max), t.red);
    }
    batch.paint(painter);
    if page.chosen_as(row).is_some() {
        painter.rect_stroke(plot, 0.0, Stroke::new(1.0, t.accent), StrokeKind::Inside);
    }
}
