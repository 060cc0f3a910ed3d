//! Draws a block between its neighbours to scale (hole, block, hole) and the hole that freeing it would make.

use egui::{Align2, Painter, Rect, Role, Ui, pos2, vec2};

use super::card::Around;
use crate::app::data::colours::Colours;
use crate::app::data::device::DeviceData;
use crate::app::theme::visuals::PAD_PANE;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Batch, Cut, label, row};
use vramscope_core::units::Bytes;

/// Horizontal positions of the parts, from the left edge of the picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parts {
    /// Left and right edge of the hole before; empty when there is none.
    pub before: (f32, f32),
    pub block: (f32, f32),
    pub after: (f32, f32),
    /// Width of the failed request from the start of the first hole, or 0.
    pub request: f32,
    /// The request is too large for this scale, so the picture is scaled to the possible hole and the request runs past its end.
    pub is_beyond: bool,
}

/// A request this many times the possible hole would make the hole too narrow to show its parts.
const BEYOND: u64 = 6;

/// Width drawn of a live neighbour.
pub const STUB: f32 = 14.0;
const LEAST: f32 = 4.0;

/// Divides `width` points to scale. Parts that exist are at least 4 points wide.
pub fn parts(around: &Around, width: f32) -> Parts {
    let room = (width - 2.0 * STUB).max(3.0 * LEAST);
    let is_beyond = around.request.is_some_and(|r| r > around.if_freed().saturating_mul(BEYOND));
    let request = around.request.filter(|_| !is_beyond);
    let whole = around.if_freed().max(request.unwrap_or(0)).max(1) as f64;
    let scale = |bytes: u64| (bytes as f64 / whole * f64::from(room)) as f32;
    let least = |bytes: u64| if bytes == 0 { 0.0 } else { scale(bytes).max(LEAST) };
    let (a, b, c) = (least(around.before), least(around.block), least(around.after));
    // Takes the width that the minimums added from the widest part.
    let excess = (a + b + c - scale(around.if_freed())).max(0.0);
    let shrink = |v: f32| if v >= a && v >= b && v >= c { (v - excess).max(LEAST) } else { v };
    let (a, b, c) = (shrink(a), shrink(b), shrink(c));
    Parts {
        before: (STUB, STUB + a),
        block: (STUB + a, STUB + a + b),
        after: (STUB + a + b, STUB + a + b + c),
        request: STUB + if is_beyond { room + STUB } else { request.map_or(0.0, scale) },
        is_beyond,
    }
}

pub fn show(ui: &mut Ui, data: &DeviceData, colours: &Colours, tokens: &Tokens, around: &Around, event: u32) {
    let height = 70.0 + if around.request.is_some() { 24.0 } else { 0.0 };
    let (outer, _) = row::told(ui, height, Role::Canvas, || {
        let [before, block, after] = [around.before, around.block, around.after].map(Bytes);
        format!("Neighbours: a hole of {before}, this block of {block}, a hole of {after}")
    });
    let rect = outer.shrink2(vec2(PAD_PANE, 0.0));
    let painter = ui.painter();
    let parts = parts(around, rect.width());
    let mut batch = Batch::new(painter).hatch_origin(rect.min);
    let strip = |(from, to): (f32, f32), top: f32, height: f32| rect.cell(from, to).lines(top, top + height);
    let colour = |id| colours.of(data, id, event, tokens);
    let blocks = |part| strip(part, 18.0, 22.0);
    for (id, (from, to)) in around.neighbours.iter().zip([(0.0, STUB), (parts.after.1, parts.after.1 + STUB)]) {
        if let Some(id) = id {
            batch.rect(blocks((from, to)), Tokens::over(colour(*id), tokens.s1, 0.55));
        }
    }
    for (part, bytes) in [(parts.before, around.before), (parts.after, around.after)] {
        if bytes > 0 {
            batch.hole(blocks(part), tokens.s1, tokens.hatch, tokens.line2);
        }
    }
    let block = blocks(parts.block);
    batch.rect(block, colour(around.lifetime));
    batch.outline(block, 1.5, tokens.text1);
    let freed = strip((parts.before.0, parts.after.1), 46.0, 18.0);
    batch.hole(freed, tokens.s1, tokens.hatch, tokens.line2);
    if around.request.is_some() {
        // Dashes at the end say that the request is longer than the picture.
        let ends = if parts.is_beyond { &[(22.0, f32::INFINITY), (12.0, 18.0), (4.0, 8.0)][..] } else { &[(0.0, f32::INFINITY)] };
        for (right, left) in ends {
            let from = (parts.request - left).max(STUB);
            batch.rect(strip((from, (parts.request - right).max(from)), 68.0, 5.0), tokens.red);
        }
    }
    batch.paint(painter);
    figures(painter, tokens, around, &parts, rect);
    let text = format!("if freed: one hole of {}", Bytes(around.if_freed()));
    on_hatch(painter, tokens, freed, rect, &text);
    if let Some(request) = around.request {
        let at = pos2(rect.left() + STUB, rect.top() + 76.0);
        let beyond = if parts.is_beyond { ", longer than this picture" } else { "" };
        let text = format!("request {}{beyond}", Bytes(request));
        label::text(painter, at, Align2::LEFT_TOP, &text, Type::Caption, tokens.red);
    }
}

/// Draws the figures over the parts and leaves out those that would touch.
fn figures(painter: &Painter, tokens: &Tokens, around: &Around, parts: &Parts, rect: Rect) {
    let mut taken: Vec<(f32, f32)> = Vec::new();
    let wanted = [
        (parts.block, around.block, tokens.text1),
        (parts.before, around.before, tokens.text2),
        (parts.after, around.after, tokens.text2),
    ];
    for ((from, to), bytes, ink) in wanted {
        if bytes == 0 {
            continue;
        }
        let galley = painter.layout_no_wrap(Bytes(bytes).to_string(), Type::Mono.font(), ink);
        let width = galley.size().x;
        let x = (rect.left() + f32::midpoint(from, to) - width / 2.0).clamp(rect.left(), (rect.right() - width).max(rect.left()));
        if taken.iter().any(|&(a, b)| x < b + 8.0 && x + width > a - 8.0) {
            continue;
        }
        taken.push((x, x + width));
        painter.galley(pos2(x, rect.top() + 1.0), galley, ink);
    }
}

/// Draws a caption on a hatched strip with a background for readability, or beside the strip when it does not fit.
fn on_hatch(painter: &Painter, tokens: &Tokens, strip: Rect, room: Rect, text: &str) {
    let galley = painter.layout_no_wrap(text.to_owned(), Type::Caption.font(), tokens.text1);
    let size = galley.size();
    let x = if size.x + 16.0 <= strip.width() {
        strip.center().x - size.x / 2.0
    } else if strip.right() + 8.0 + size.x <= room.right() {
        strip.right() + 8.0
    } else {
        (room.right() - size.x).max(room.left())
    };
    let at = pos2(x, strip.center().y - size.y / 2.0);
    painter.rect_filled(Rect::from_min_size(at, size).expand2(vec2(4.0, 0.0)), 0, tokens.s1);
    painter.galley(at, galley, tokens.text1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramscope_core::tables::LifetimeId;

    fn around(before: u64, block: u64, after: u64, request: Option<u64>) -> Around {
        Around { lifetime: LifetimeId(0), before, block, after, neighbours: [None, None], request }
    }

    #[test]
    fn parts_are_to_scale_and_what_is_there_is_seen() {
        let p = parts(&around(100, 200, 100, None), 428.0);
        assert_eq!((p.before, p.block, p.after), ((14.0, 114.0), (114.0, 314.0), (314.0, 414.0)));
        let tiny = parts(&around(1 << 30, 512, 0, None), 328.0);
        assert!(tiny.block.1 - tiny.block.0 >= LEAST && tiny.after.0 == tiny.after.1);
        assert!((tiny.after.1 - 314.0).abs() < 0.01, "{tiny:?}");
        let larger = parts(&around(10, 10, 10, Some(60)), 328.0);
        assert!((larger.request - 314.0).abs() < 0.01);
        assert!((larger.after.1 - STUB - 150.0).abs() < 0.01);
        assert!(!larger.is_beyond);
    }

    #[test]
    fn a_request_far_larger_than_the_hole_does_not_squeeze_the_block() {
        let p = parts(&around(0, 30, 10, Some(900)), 328.0);
        assert!(p.is_beyond && (p.request - 328.0).abs() < 0.01, "{p:?}");
        assert!((p.block.1 - p.block.0 - 225.0).abs() < 0.01 && (p.after.1 - 314.0).abs() < 0.01, "to the hole's scale: {p:?}");
    }
}
