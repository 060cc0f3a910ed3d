//! Layout of the fragmentation view and range of its strip. Only arithmetic.

use crate::app::widgets::Cut;
use egui::{Rangef, Rect, pos2};

/// Height of the strip above the map.
const STRIP: f32 = 72.0;
/// Height of the strip in a low pane.
const STRIP_LOW: f32 = 44.0;
/// Height of the axis labels under the map.
const AXIS: f32 = 18.0;
/// Height of the legend's first row.
pub(super) const LEGEND: f32 = 20.0;
pub(super) const LEGEND_ROW: f32 = 16.0;
const MAP_LEAST: f32 = 64.0;

/// The parts of the view. A part without room has no rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Areas {
    /// The horizontal extent of strip and map.
    pub x: Rangef,
    /// The largest hole over time.
    pub strip: Option<Rect>,
    pub map: Rect,
    pub axis: Option<Rect>,
    pub legend: Option<Rect>,
}

impl Areas {
    /// Strip and map together: where a horizontal position means a time.
    pub fn canvas(&self) -> Rect {
        self.strip.map_or(self.map, |s| s.union(self.map))
    }
}

/// Divides a pane. `labels` is the width of the labels at the left, `legend_rows` the number of legend rows. In a low pane the
/// strip shrinks; then legend, strip and axis are dropped in this order.
pub(super) fn areas(pane: Rect, labels: f32, legend_rows: usize) -> Areas {
    let legend_height = LEGEND + LEGEND_ROW * legend_rows.saturating_sub(1) as f32;
    let left = pane.left() + labels.max(48.0).min(pane.width() * 0.4);
    let x = Rangef::new(left, (pane.right() - 16.0).max(left + 1.0));
    let room = pane.height() - 16.0 - MAP_LEAST;
    let high = if legend_height + 4.0 + STRIP + 12.0 + AXIS <= room { STRIP } else { STRIP_LOW };
    let mut parts = [(true, legend_height + 4.0), (true, high + 12.0), (true, AXIS)];
    for i in 0..parts.len() {
        if parts.iter().filter(|p| p.0).map(|p| p.1).sum::<f32>() <= room {
            break;
        }
        parts[i].0 = false;
    }
    let [(legend, _), (strip, _), (axis, _)] = parts;
    let mut top = pane.top() + 8.0;
    let mut bottom = pane.bottom() - 4.0;
    let strip = strip.then(|| {
        let rect = Rect::from_x_y_ranges(x, top..=top + high);
        top = rect.bottom() + 12.0;
        rect
    });
    let legend = legend.then(|| {
        let rect = Rect::from_min_max(pos2(pane.left() + 12.0, bottom - legend_height), pos2(x.max, bottom));
        bottom -= legend_height + 4.0;
        rect
    });
    let axis = axis.then(|| {
        let rect = pane.down(bottom - AXIS, bottom);
        bottom -= AXIS;
        rect
    });
    let map = Rect::from_x_y_ranges(x, top..=bottom.max(top + 8.0));
    Areas { x, strip, map, axis, legend }
}

/// Bytes at the top of the strip. Holes far larger than a failed request are cut off, so that the request can be told apart from
/// holes that nearly fit.
pub(super) fn strip_top(largest: u64, request: Option<u64>) -> u64 {
    // Leaves space above the largest hole, so that the curve does not look cut off.
    let room = largest + largest / 6;
    match request.filter(|&r| r > 0) {
        Some(request) => {
            let most = request.saturating_mul(18) / 5;
            if largest > most { most } else { room.max(request + request / 2) }
        }
        None => room.max(512),
    }
}

/// Finds a place for words of `width` points in a plot, at one of `heights`, with the least cost. Of equal ones it takes the one
/// nearest to two fifths of the width, after the busy beginning. `None` when the words are too wide.
pub(super) fn quietest(plot: Rect, width: f32, heights: impl Iterator<Item = f32>, cost: impl Fn(Rect) -> usize) -> Option<Rect> {
    const PLACES: usize = 16;
    let room = plot.width() - width - 16.0;
    if room < 0.0 {
        return None;
    }
    let wanted = plot.left() + plot.width() * 0.4;
    let places = heights.flat_map(|y| {
        (0..PLACES).map(move |i| {
            let x = plot.left() + 8.0 + room * i as f32 / (PLACES - 1) as f32;
            Rect::from_min_max(pos2(x, y - 8.0), pos2(x + width, y + 8.0))
        })
    });
    let far = |r: &Rect| (r.left() - wanted).abs() as usize;
    places.map(|r| (cost(r.expand(1.0)), far(&r), r)).min_by_key(|(cost, far, _)| (*cost, *far)).map(|(.., r)| r)
}

/// Places legend entries in rows, `gap` apart: for each entry its row and offset from the left. The first row has `first` points
/// of room, later ones `width`. Entries that do not fit into `rows` rows get `None`.
pub(super) fn pack(widths: &[f32], first: f32, width: f32, gap: f32, rows: usize) -> Vec<Option<(usize, f32)>> {
    let (mut row, mut x) = (0, 0.0);
    let place = |&entry: &f32| {
        let room = if row == 0 { first } else { width };
        if x + entry > room && row + 1 < rows {
            (row, x) = (row + 1, 0.0);
        }
        let at = (x + entry <= if row == 0 { first } else { width }).then_some((row, x));
        if at.is_some() {
            x += entry + gap;
        }
        at
    };
    widths.iter().map(place).collect()
}

/// The pixel rows from `from` to `to` (shares of the axis, 0 to 1) in `height` pixels, at least `least` of them.
pub(super) fn rows_of(from: f64, to: f64, height: usize, least: usize) -> std::ops::Range<usize> {
    let (mut first, mut last) = ((from * height as f64) as usize, (to * height as f64).ceil() as usize);
    last = last.min(height);
    first = first.min(last);
    if last - first < least {
        last = (first + least).min(height);
        first = last.saturating_sub(least);
    }
    first..last
}

#[cfg(test)]
mod tests {
    use super::*;
    use egui::vec2;

    #[test]
    fn parts_stand_in_order_and_go_one_by_one() {
        let mut before = usize::MAX;
        for height in [440.0, 240.0, 180.0, 150.0, 100.0, 40.0] {
            let pane = Rect::from_min_size(pos2(100.0, 50.0), vec2(430.0, height));
            let a = areas(pane, 40.0, 1);
            let parts = [a.strip, Some(a.map), a.axis, a.legend];
            let mut last = pane.top();
            for rect in parts.into_iter().flatten() {
                assert!(rect.top() >= last - 0.1, "{rect:?} overlaps");
                last = rect.bottom();
            }
            assert!(last <= pane.bottom() || height < 60.0);
            let shown = parts.iter().flatten().count();
            assert!(shown <= before);
            before = shown;
        }
        assert_eq!(before, 1);
        assert_eq!(areas(Rect::from_min_size(pos2(0.0, 0.0), vec2(430.0, 440.0)), 40.0, 2).strip.map(|s| s.height()), Some(72.0));
    }

    #[test]
    fn the_strip_shows_the_request_and_cuts_off_what_is_far_above() {
        let mib = 1 << 20;
        assert_eq!(strip_top(254 * mib, Some(5 * mib)), 18 * mib);
        assert_eq!(strip_top(mib, Some(10 * mib)), 15 * mib);
        assert_eq!(strip_top(18 * mib, Some(5 * mib)), 21 * mib, "what is not cut off does not look so");
        assert_eq!(strip_top(96 * mib, None), 112 * mib);
        assert_eq!(strip_top(0, Some(0)), 512);
    }

    #[test]
    fn names_stand_where_nothing_runs() {
        let plot = Rect::from_min_size(pos2(50.0, 10.0), vec2(400.0, 72.0));
        let heights = || [20.0, 46.0, 72.0].into_iter();
        // A curve through the upper two thirds leaves only the lowest row free.
        let place = quietest(plot, 90.0, heights(), |r| usize::from(r.top() < 55.0)).expect("room");
        assert!(place.center().y == 72.0 && plot.contains_rect(place));
        // A curve that is high on the left leaves only the right free.
        let place = quietest(plot, 90.0, heights(), |r| usize::from(r.left() < 300.0)).expect("room");
        assert!(place.left() >= 300.0 && place.right() <= plot.right());
        assert_eq!(quietest(plot, 390.0, heights(), |_| 0), None);
    }

    #[test]
    fn entries_of_a_legend_go_on_in_further_rows() {
        assert_eq!(pack(&[30.0, 30.0], 80.0, 200.0, 10.0, 1), [Some((0, 0.0)), Some((0, 40.0))]);
        assert_eq!(pack(&[30.0, 60.0, 90.0], 50.0, 120.0, 10.0, 3), [Some((0, 0.0)), Some((1, 0.0)), Some((2, 0.0))]);
        // Without room beside the ramp all entries go below it; entries without a place are left out.
        assert_eq!(pack(&[30.0, 60.0], 0.0, 120.0, 10.0, 2), [Some((1, 0.0)), Some((1, 40.0))]);
        assert_eq!(pack(&[30.0, 60.0], 40.0, 120.0, 10.0, 1), [Some((0, 0.0)), None]);
    }

    #[test]
    fn a_hole_keeps_two_pixels_also_at_the_ends() {
        assert_eq!(rows_of(0.25, 0.5, 100, 2), 25..50);
        assert_eq!(rows_of(0.999, 1.0, 100, 2), 98..100);
        assert_eq!(rows_of(0.0, 0.0001, 100, 2), 0..2);
        assert_eq!(rows_of(0.5, 0.6, 1, 2), 0..1);
    }
}
