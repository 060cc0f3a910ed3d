//! Batches of pixel-snapped rectangles, hatch and hairlines, with which plots and maps are painted.
//!
//! One [`Batch`] is one egui mesh: four vertices per rectangle, no tessellation, no feathering. All edges are snapped to physical
//! pixels, so fills are crisp and 1 px lines are 1 px at every scale. Put the layers of a pane (fills, hatch, hairlines,
//! outlines) into one batch in this order, or into one batch each.

use super::viewport::Scale;
use crate::app::theme::Tokens;
use egui::{Color32, Mesh, Painter, Pos2, Rangef, Rect, Shape, pos2};
use vramscope_core::tables::Cell;

/// Distance between hatch lines, in points.
pub const HATCH_PERIOD: f32 = 5.0;
/// Dash and gap of a limit line (cap, request), in points.
pub const DASH_LIMIT: (f32, f32) = (5.0, 4.0);
/// Dash and gap of the A marker, in points.
pub const DASH_MARKER: (f32, f32) = (3.0, 3.0);

/// One physical pixel column of a curve, in screen points (y grows downwards).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PixelColumn {
    /// y of the greatest value in this column.
    pub top: f32,
    /// y of the least value in this column.
    pub bottom: f32,
    /// y of the value at the column's end.
    pub last: f32,
}

impl PixelColumn {
    /// A column of a recording's curve, on a vertical scale of bytes.
    pub fn of(cell: &Cell, y: &Scale) -> Self {
        Self { top: y.at(cell.max as f64), bottom: y.at(cell.min as f64), last: y.at(cell.last as f64) }
    }

    /// A column in which the value does not change.
    pub fn level(y: f32) -> Self {
        Self { top: y, bottom: y, last: y }
    }
}

pub struct Batch {
    mesh: Mesh,
    /// Physical pixels per point.
    scale: f32,
    hatch_origin: Pos2,
}

impl Batch {
    pub fn new(painter: &Painter) -> Self {
        Self::with_scale(painter.pixels_per_point())
    }

    pub fn with_scale(pixels_per_point: f32) -> Self {
        Self { mesh: Mesh::default(), scale: pixels_per_point.max(0.1), hatch_origin: Pos2::ZERO }
    }

    /// Anchors the hatch to a corner of the pane, so that it does not shift when the pane moves.
    pub fn hatch_origin(mut self, origin: Pos2) -> Self {
        self.hatch_origin = origin;
        self
    }

    pub fn is_empty(&self) -> bool {
        self.mesh.vertices.is_empty()
    }

    pub fn pixel(&self) -> f32 {
        1.0 / self.scale
    }

    /// How many physical pixel columns fit into `width` points.
    pub fn columns(&self, width: f32) -> usize {
        (width / self.pixel()).round().max(1.0) as usize
    }

    /// Rounds `v` to the nearest physical pixel edge.
    pub fn snap(&self, v: f32) -> f32 {
        (v * self.scale).round() / self.scale
    }

    fn snap_rect(&self, rect: Rect) -> Rect {
        Rect::from_min_max(
            pos2(self.snap(rect.left()), self.snap(rect.top())),
            pos2(self.snap(rect.right()), self.snap(rect.bottom())),
        )
    }

    /// Rounds a width to whole physical pixels, at least one.
    fn width(&self, points: f32) -> f32 {
        (points * self.scale).round().max(1.0) / self.scale
    }

    /// A filled rectangle, snapped. Skipped when it snaps to zero size.
    pub fn rect(&mut self, rect: Rect, colour: Color32) {
        let rect = self.snap_rect(rect);
        if rect.is_positive() {
            self.mesh.add_colored_rect(rect, colour);
        }
    }

    /// A filled rectangle, snapped to at least one physical pixel each way.
    pub fn rect_at_least_a_pixel(&mut self, rect: Rect, colour: Color32) {
        let mut rect = self.snap_rect(rect);
        rect.max.x = rect.max.x.max(rect.min.x + self.pixel());
        rect.max.y = rect.max.y.max(rect.min.y + self.pixel());
        self.mesh.add_colored_rect(rect, colour);
    }

    /// A horizontal line `width` points thick, rounded to whole pixels and centred on `y`.
    pub fn hline(&mut self, x: Rangef, y: f32, width: f32, colour: Color32) {
        let y = self.snap(y - width / 2.0);
        self.rect(Rect::from_x_y_ranges(x, y..=y + self.width(width)), colour);
    }

    /// A vertical line `width` points thick, rounded to whole pixels and centred on `x`.
    pub fn vline(&mut self, x: f32, y: Rangef, width: f32, colour: Color32) {
        let x = self.snap(x - width / 2.0);
        self.rect(Rect::from_min_max(pos2(x, y.min), pos2(x + self.width(width), y.max)), colour);
    }

    /// A dashed horizontal line. The dashes are anchored to the left edge of the screen, so that they do not crawl.
    pub fn dashed_hline(&mut self, x: Rangef, y: f32, width: f32, (dash, gap): (f32, f32), colour: Color32) {
        for (a, b) in dashes(x, dash, gap) {
            self.hline(Rangef::new(a, b), y, width, colour);
        }
    }

    pub fn dashed_vline(&mut self, x: f32, y: Rangef, width: f32, (dash, gap): (f32, f32), colour: Color32) {
        for (a, b) in dashes(y, dash, gap) {
            self.vline(x, Rangef::new(a, b), width, colour);
        }
    }

    /// The four edges of a rectangle, `width` points thick, drawn inside it.
    pub fn outline(&mut self, rect: Rect, width: f32, colour: Color32) {
        let r = self.snap_rect(rect);
        let w = self.width(width).min(r.width() / 2.0).min(r.height() / 2.0);
        if w <= 0.0 {
            return;
        }
        let edge = |a: Pos2, b: Pos2| Rect::from_min_max(a, b);
        for e in [
            edge(r.left_top(), pos2(r.right(), r.top() + w)),
            edge(pos2(r.left(), r.bottom() - w), r.right_bottom()),
            edge(pos2(r.left(), r.top() + w), pos2(r.left() + w, r.bottom() - w)),
            edge(pos2(r.right() - w, r.top() + w), pos2(r.right(), r.bottom() - w)),
        ] {
            if e.is_positive() {
                self.mesh.add_colored_rect(e, colour);
            }
        }
    }

    /// Marks the selected block: 1.5 px of `ink` around `rect` and 2 px of `margin` outside that; the fill stays. Blocks under 5
    /// points high are marked as if they were 5 high.
    pub fn selection(&mut self, rect: Rect, ink: Color32, margin: Color32) {
        let grow = (5.0 - rect.height()).max(0.0) / 2.0;
        let rect = self.snap_rect(rect.expand2(egui::vec2(0.0, grow)));
        self.outline(rect.expand(3.5), 2.0, margin);
        self.outline(rect.expand(1.5), 1.5, ink);
    }

    /// Hatch inside a rectangle: 45° lines, one point wide, every five points.
    pub fn hatch(&mut self, rect: Rect, colour: Color32) {
        let rect = self.snap_rect(rect);
        if rect.is_positive() {
            self.hatch_profile(&[(rect.top(), rect.bottom())], rect.left(), rect.width(), colour);
        }
    }

    /// A hole in a map: `fill` (or transparent), hatch, and a 1 px outline when there is room.
    pub fn hole(&mut self, rect: Rect, fill: Color32, hatch: Color32, outline: Color32) {
        if fill != Color32::TRANSPARENT {
            self.rect(rect, fill);
        }
        let inner = if rect.width() >= 4.0 && rect.height() >= 4.0 { rect.shrink(1.0) } else { rect };
        self.hatch(inner, hatch);
        if inner != rect {
            self.outline(rect, 1.0, outline);
        }
    }

    /// Hatches between two profiles, one `(top, bottom)` per physical pixel column from `x0` on: the free memory between the
    /// reserved and the allocated curve. Costs one step per hatch line and column, and four vertices per piece of line.
    pub fn hatch_between(&mut self, columns: &[(f32, f32)], x0: f32, colour: Color32) {
        let step = self.pixel();
        self.hatch_profile(columns, self.snap(x0), step, colour);
    }

    /// Draws the lines x + y = k * period through columns `step` wide.
    fn hatch_profile(&mut self, columns: &[(f32, f32)], x0: f32, step: f32, colour: Color32) {
        let (mut top, mut bottom) = (f32::INFINITY, f32::NEG_INFINITY);
        for &(a, b) in columns.iter().filter(|(a, b)| b > a) {
            (top, bottom) = (top.min(a), bottom.max(b));
        }
        if bottom <= top {
            return;
        }
        let x1 = x0 + step * columns.len() as f32;
        let period = (HATCH_PERIOD * self.scale).round() / self.scale;
        let (width, half) = (self.width(1.0), self.pixel() / 2.0);
        // Offset by half a pixel, so that a line covers one whole pixel per row and not two halves.
        let origin = self.snap(self.hatch_origin.x) + self.snap(self.hatch_origin.y) + half;
        let first = ((x0 + top - origin - width) / period).floor() as i64;
        let last = ((x1 + bottom - origin) / period).ceil() as i64;
        for k in first..=last {
            let sum = origin + k as f32 * period;
            // The line runs from lower left to upper right: x from sum - bottom to sum - top.
            let from = (((sum - bottom - x0) / step).floor() - 1.0).max(0.0) as usize;
            let to = ((((sum - top + width - x0) / step).ceil() + 1.0).max(0.0) as usize).min(columns.len());
            // One piece: its lower and upper y, and the right edge of its last column.
            let mut piece: Option<(f32, f32, f32)> = None;
            for (i, &(t, b)) in columns.iter().enumerate().take(to).skip(from.min(to)) {
                let (left, right) = (x0 + i as f32 * step, x0 + (i + 1) as f32 * step);
                // The rows of pixels in which the line begins inside this column.
                let (y0, y1) = ((sum - left + half).min(b), (sum - right + half).max(t));
                if y0 > y1 {
                    piece = match piece {
                        Some((low, high, _)) if (high - y0).abs() < half => Some((low, y1, right)),
                        Some(done) => {
                            self.hatch_line(sum, done, width, colour);
                            Some((y0, y1, right))
                        }
                        None => Some((y0, y1, right)),
                    };
                }
            }
            if let Some(done) = piece {
                self.hatch_line(sum, done, width, colour);
            }
        }
    }

    /// Draws a piece of hatch line from `low` (greater y) up to `high`, not past `right`. Its slanted ends reach half a pixel
    /// outside, where no pixel has its centre.
    fn hatch_line(&mut self, sum: f32, (low, high, right): (f32, f32, f32), width: f32, colour: Color32) {
        let high = high.max(sum - right + width - self.pixel() / 2.0);
        if low <= high {
            return;
        }
        let at = |y: f32, dx: f32| pos2(sum - y + dx, y);
        let first = self.mesh.vertices.len() as u32;
        for p in [at(low, 0.0), at(low, width), at(high, width), at(high, 0.0)] {
            self.mesh.colored_vertex(p, colour);
        }
        self.mesh.add_triangle(first, first + 1, first + 2);
        self.mesh.add_triangle(first, first + 2, first + 3);
    }

    /// A step curve `width` points thick, one column per physical pixel from `x0` on; `None` is a gap. Merges equal columns and
    /// keeps peaks within a column.
    pub fn curve(&mut self, columns: &[Option<PixelColumn>], x0: f32, width: f32, colour: Color32) {
        let x0 = self.snap(x0);
        let (step, width) = (self.pixel(), self.width(width));
        let mut previous: Option<f32> = None;
        let mut run: Option<(usize, f32, f32)> = None;
        for (i, column) in columns.iter().enumerate() {
            let span = column.map(|c| {
                let (mut top, mut bottom) = (c.top.min(c.last), c.bottom.max(c.last));
                if let Some(p) = previous {
                    (top, bottom) = (top.min(p), bottom.max(p));
                }
                previous = Some(c.last);
                (self.snap(top - width / 2.0), self.snap(bottom - width / 2.0) + width)
            });
            if column.is_none() {
                previous = None;
            }
            match (run, span) {
                (Some((_, top, bottom)), Some((t, b))) if t == top && b == bottom => {}
                (open, span) => {
                    if let Some((from, top, bottom)) = open {
                        self.curve_piece(x0, step, from, i, top, bottom, width, colour);
                    }
                    run = span.map(|(t, b)| (i, t, b));
                }
            }
        }
        if let Some((from, top, bottom)) = run {
            self.curve_piece(x0, step, from, columns.len(), top, bottom, width, colour);
        }
    }

    /// Vertical pieces get the curve's width too, so that they do not look thinner than the horizontal ones.
    fn curve_piece(&mut self, x0: f32, step: f32, from: usize, to: usize, top: f32, bottom: f32, width: f32, colour: Color32) {
        let (left, mut right) = (x0 + from as f32 * step, x0 + to as f32 * step);
        if bottom - top > width {
            right = right.max(left + width);
        }
        self.mesh.add_colored_rect(Rect::from_min_max(pos2(left, top), pos2(right, bottom)), colour);
    }

    /// Fills from each column's greatest value down to `base`. Merges equal columns.
    pub fn fill_under(&mut self, columns: &[Option<PixelColumn>], x0: f32, base: f32, colour: Color32) {
        let tops = columns.iter().map(|c| c.map(|c| (c.top, base)));
        self.bands(tops, x0, colour);
    }

    /// Fills between each column's `(top, bottom)`; `None` is a gap. Merges equal columns.
    pub fn bands(&mut self, columns: impl Iterator<Item = Option<(f32, f32)>>, x0: f32, colour: Color32) {
        let (x0, step) = (self.snap(x0), self.pixel());
        let mut run: Option<(usize, (f32, f32))> = None;
        let mut count = 0;
        for (i, span) in columns.map(|c| c.map(|(t, b)| (self.snap(t), self.snap(b)))).enumerate().collect::<Vec<_>>() {
            count = i + 1;
            if run.map(|(_, span)| span) == span {
                continue;
            }
            if let Some((from, (t, b))) = run {
                self.rect(Rect::from_min_max(pos2(x0 + from as f32 * step, t), pos2(x0 + i as f32 * step, b)), colour);
            }
            run = span.map(|span| (i, span));
        }
        if let Some((from, (t, b))) = run {
            self.rect(Rect::from_min_max(pos2(x0 + from as f32 * step, t), pos2(x0 + count as f32 * step, b)), colour);
        }
    }

    /// Adds the batch to a painter (within its clip rectangle). An empty batch costs nothing.
    pub fn paint(self, painter: &Painter) {
        if !self.is_empty() {
            painter.add(self.into_shape());
        }
    }

    /// The batch as a shape that can be kept and painted again.
    pub fn into_shape(self) -> Shape {
        Shape::mesh(self.mesh)
    }
}

/// The box that a right drag draws, to zoom to it.
pub fn paint_zoom_box(painter: &Painter, tokens: &Tokens, area: Rect) {
    let mut batch = Batch::new(painter);
    batch.rect(area, Tokens::at(tokens.accent, 0.13));
    batch.outline(area, 1.0, tokens.accent);
    batch.paint(painter);
}

/// Dashes within a range, on a grid that starts at 0.
fn dashes(range: Rangef, dash: f32, gap: f32) -> impl Iterator<Item = (f32, f32)> {
    let period = (dash + gap).max(1.0);
    let first = (range.min / period).floor() as i64;
    let last = (range.max / period).ceil() as i64;
    (first..=last).filter_map(move |k| {
        let start = k as f32 * period;
        let (a, b) = (start.max(range.min), (start + dash).min(range.max));
        (b > a).then_some((a, b))
    })
}

#[cfg(test)]
impl Batch {
    /// Number of rectangles, hatch lines included.
    fn len(&self) -> usize {
        self.mesh.vertices.len() / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INK: Color32 = Color32::WHITE;

    fn bounds(batch: &Batch) -> Rect {
        batch.mesh.calc_bounds()
    }

    #[test]
    fn rects_land_on_whole_physical_pixels() {
        let mut b = Batch::with_scale(1.5);
        b.rect(Rect::from_min_max(pos2(0.4, 0.4), pos2(10.3, 5.2)), INK);
        for v in &b.mesh.vertices {
            let (x, y) = (v.pos.x * 1.5, v.pos.y * 1.5);
            assert!((x - x.round()).abs() < 1e-4 && (y - y.round()).abs() < 1e-4, "{:?}", v.pos);
        }
        b.rect(Rect::from_min_max(pos2(1.0, 1.0), pos2(1.1, 9.0)), INK);
        assert_eq!(b.len(), 1, "what snaps to nothing is left out");
        b.rect_at_least_a_pixel(Rect::from_min_max(pos2(1.0, 1.0), pos2(1.1, 9.0)), INK);
        assert_eq!(b.len(), 2);
    }

    #[test]
    fn hatch_stays_inside_and_meets_across_neighbours() {
        let mut whole = Batch::with_scale(1.0);
        whole.hatch(Rect::from_min_max(pos2(10.0, 20.0), pos2(60.0, 50.0)), INK);
        assert!(Rect::from_min_max(pos2(9.5, 20.0), pos2(60.5, 50.0)).contains_rect(bounds(&whole)));
        // A 50 by 30 rectangle spans 80 points of x + y, with a line every 5.
        assert!((16..=18).contains(&whole.len()), "{}", whole.len());
        let mut area = Batch::with_scale(1.0);
        area.hatch_between(&[(20.0, 50.0); 50], 10.0, INK);
        let sum = |b: &Batch| {
            let v = &b.mesh.vertices;
            (0..b.len()).map(|i| (v[4 * i].pos.y - v[4 * i + 2].pos.y).abs()).sum::<f32>()
        };
        assert!((sum(&whole) - sum(&area)).abs() < 2.0, "{} {}", sum(&whole), sum(&area));
        assert_eq!(whole.len(), area.len(), "a level profile costs what a rectangle costs");
    }

    #[test]
    fn hatch_leaves_a_gap_where_there_is_nothing_free() {
        let mut b = Batch::with_scale(1.0);
        let columns: Vec<_> = (0..60).map(|i| if (20..40).contains(&i) { (10.0, 10.0) } else { (10.0, 30.0) }).collect();
        b.hatch_between(&columns, 0.0, INK);
        for quad in b.mesh.vertices.chunks(4) {
            let middle = (quad[0].pos.x + quad[2].pos.x) / 2.0;
            assert!(!(21.0..=39.0).contains(&middle), "{middle}");
        }
        b.hatch_between(&[(5.0, 5.0); 8], 0.0, INK);
        b.hatch_between(&[], 0.0, INK);
    }

    #[test]
    fn curves_merge_level_columns_and_keep_peaks() {
        let level = Some(PixelColumn { top: 10.0, bottom: 10.0, last: 10.0 });
        let peak = Some(PixelColumn { top: 2.0, bottom: 10.0, last: 10.0 });
        let mut columns = vec![level; 100];
        let mut b = Batch::with_scale(1.0);
        b.curve(&columns, 0.0, 2.0, INK);
        assert_eq!(b.len(), 1);
        columns[50] = peak;
        columns[70] = None;
        let mut b = Batch::with_scale(1.0);
        b.curve(&columns, 0.0, 2.0, INK);
        assert_eq!(b.len(), 4, "left, peak, right, past the gap");
        assert_eq!(bounds(&b).top(), 1.0);
        let mut f = Batch::with_scale(1.0);
        f.fill_under(&columns, 0.0, 20.0, INK);
        assert_eq!(f.len(), 4);
        assert_eq!(bounds(&f), Rect::from_min_max(pos2(0.0, 2.0), pos2(100.0, 20.0)));
    }

    #[test]
    fn dashes_keep_to_the_range_and_to_the_grid() {
        let all: Vec<_> = dashes(Rangef::new(2.0, 20.0), 5.0, 4.0).collect();
        assert_eq!(all, [(2.0, 5.0), (9.0, 14.0), (18.0, 20.0)]);
        assert_eq!(dashes(Rangef::new(5.0, 5.0), 5.0, 4.0).count(), 0);
    }

    #[test]
    fn outlines_have_four_edges_inside() {
        let mut b = Batch::with_scale(1.0);
        let r = Rect::from_min_max(pos2(0.0, 0.0), pos2(10.0, 10.0));
        b.outline(r, 1.0, INK);
        assert_eq!((b.len(), bounds(&b)), (4, r));
        b.outline(Rect::from_min_max(pos2(0.0, 0.0), pos2(0.0, 10.0)), 1.0, INK);
        assert_eq!(b.len(), 4);
    }
}
