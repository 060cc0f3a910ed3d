//! Paints the live curve and the allocator's map.

use egui::{Color32, Painter, Rect, pos2};

use super::Moment;
use super::layout::Tape;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Batch, Scale, UnitAt, byte_ticks, label, paint_flag};
use vramscope_core::model::BlockState;

pub const ROW: f32 = 18.0;
/// Distance between the tops of two rows.
pub const PITCH: f32 = 22.0;

/// The colour for the call site of a request.
pub fn colour(t: &Tokens, site: u32, sites: usize) -> Color32 {
    if sites == 0 {
        // A replay's sites are stacks, of which there are more than colours, so colours repeat.
        return if site == u32::MAX { t.other } else { t.slot(site as usize % 7) };
    }
    if (site as usize) < sites { t.slot(site as usize % 8) } else { t.other }
}

/// Reserved and live memory over the events so far, and the limit when there is one.
pub fn curve(painter: &Painter, t: &Tokens, plot: Rect, moment: &Moment) {
    let picture = &moment.picture;
    let limit = picture.hello.limit.or((picture.ooms > 0).then_some(picture.reserved));
    let highest = picture.points.iter().map(|p| p.reserved.max(p.live)).max().unwrap_or(0).max(limit.unwrap_or(0));
    let top = (highest as f64 * 1.08).max(1.0);
    let down = Scale::vertical(0.0, top, plot.y_range());
    let ticks = byte_ticks(0.0, top, 4);
    let mut batch = Batch::new(painter);
    ticks.grid_down(&mut batch, t, &down, plot);
    batch.paint(painter);
    ticks.paint_down(painter, t, &down, plot.left() - 8.0, plot.y_range().expand(8.0), UnitAt::Last);
    let Some(last) = picture.points.last() else { return };
    let across = Scale::horizontal(0.0, last.event.max(1) as f64, plot.x_range());
    let mut batch = Batch::new(painter).hatch_origin(plot.min);
    let pixel = batch.pixel();
    let columns = (plot.width() / pixel).floor() as usize;
    let mut between = Vec::with_capacity(columns);
    let mut at = 0;
    for column in 0..columns {
        let x = plot.left() + column as f32 * pixel;
        let event = across.value(x + pixel);
        let from = at;
        while at + 1 < picture.points.len() && (picture.points[at].event as f64) < event {
            at += 1;
        }
        let seen = &picture.points[from.min(at)..=at];
        let reserved = seen.iter().map(|p| p.reserved).max().unwrap_or(0);
        let live = seen.iter().map(|p| p.live).max().unwrap_or(0);
        let (y_live, y_reserved) = (down.at(live as f64), down.at(reserved as f64));
        batch.rect(Rect::from_min_max(pos2(x, y_live), pos2(x + pixel, plot.bottom())), Tokens::over(t.slot(0), t.s1, 0.55));
        batch.rect(Rect::from_min_max(pos2(x, y_reserved - 0.75), pos2(x + pixel, y_reserved + 0.75)), t.text1);
        between.push((y_reserved, y_live));
    }
    batch.hatch_between(&between, plot.left(), t.hatch_large);
    if let Some(limit) = picture.hello.limit {
        batch.dashed_hline(plot.x_range(), down.at(limit as f64), 1.0, (5.0, 4.0), t.red);
    }
    batch.paint(painter);
    if let Some(limit) = picture.hello.limit {
        let words = pos2(plot.left() + 4.0, down.at(limit as f64) - 9.0);
        label::text(painter, words, egui::Align2::LEFT_CENTER, "limit", Type::Mono, t.red);
    }
    if picture.ooms > 0 {
        let right = plot.right();
        let mut line = Batch::new(painter);
        line.vline(right - 1.0, plot.y_range(), 1.0, t.red);
        line.paint(painter);
        paint_flag(painter, t, pos2(right - 16.0, plot.top() + 14.0), "OOM");
    }
}

/// The allocator's map: segments as a tape, blocks coloured by call site, free memory hatched.
pub fn map(painter: &Painter, t: &Tokens, origin: egui::Pos2, tape: &Tape, moment: &Moment, pointed: Option<(usize, u64)>) {
    let mut batch = Batch::new(painter).hatch_origin(origin);
    let sites = moment.picture.hello.sites.len();
    let rect = |p: super::layout::Piece| {
        let y = origin.y + p.row as f32 * PITCH;
        Rect::from_min_max(pos2(origin.x + p.left, y), pos2(origin.x + p.right, y + ROW))
    };
    for (i, segment) in moment.segments.iter().enumerate() {
        for piece in tape.pieces(i, 0, segment.size) {
            let r = rect(piece);
            if r.width() < 4.0 {
                batch.rect_at_least_a_pixel(r, Tokens::over(t.hatch, t.s1, 0.5));
            } else {
                batch.hatch(r, t.hatch);
            }
        }
        for block in &segment.blocks {
            let fill = colour(t, block.site, sites);
            let is_pending = block.state == BlockState::PendingFree;
            for piece in tape.pieces(i, block.address - segment.address, block.size) {
                let mut r = rect(piece);
                // A line separates neighbouring blocks when there is room.
                if r.width() > 4.0 {
                    r.max.x -= 1.0;
                }
                batch.rect_at_least_a_pixel(r, if is_pending { Tokens::over(fill, t.s1, 0.35) } else { fill });
                if is_pending && r.width() > 3.0 {
                    batch.outline(r, 1.0, fill);
                }
            }
        }
        for piece in tape.pieces(i, 0, segment.size) {
            let r = rect(piece);
            if r.width() >= 4.0 {
                let strong = pointed.is_some_and(|p| p.0 == i) || segment.pool != (0, 0);
                batch.outline(r, 1.0, if strong { t.text2 } else { t.line2 });
            }
        }
    }
    batch.paint(painter);
}
