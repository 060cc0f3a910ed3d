//! Positions of the parts of Plan, and the sizes on its axis. Only arithmetic.

use egui::Rect;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Areas {
    /// The answer, the recordings, the memory to fit in.
    pub left: Rect,
    /// The curve, the outcome, the slider.
    pub charts: Rect,
    /// Roles at the chosen size and code of the chosen change, when there is room beside the charts.
    pub right: Option<Rect>,
    /// The table of changes. When there is no right column, also its contents.
    pub below: Rect,
}

/// Height of the headers inside the pane.
pub(super) const HEAD: f32 = 28.0;
pub(super) const ROW: f32 = 32.0;
/// Height of the field that asks for the recorded size.
const ASKING: f32 = HEAD + 88.0;
pub(super) const COLUMNS: f32 = 24.0;

/// Divides a pane for a table of `rows`. Without a known size there is no curve, and the table gets its room.
pub(super) fn areas(pane: Rect, rows: usize, has_curve: bool) -> Areas {
    let left_width = if pane.width() >= 1400.0 { 320.0 } else { 264.0f32.min(pane.width() * 0.4) };
    let left = pane.with_max_x((pane.left() + left_width).round());
    let rest = pane.with_min_x(left.right() + 1.0);
    // With a curve the roles have an additional column for their growth.
    let right_width = if has_curve && rest.width() >= 900.0 { 340.0 } else { 300.0 };
    let has_right = rest.width() >= 560.0 + right_width;
    if !has_curve {
        let right = has_right.then(|| rest.with_min_x((pane.right() - right_width).round()));
        let middle = rest.with_max_x(right.map_or(rest.right(), |r| r.left() - 1.0));
        let line = (pane.top() + ASKING).round();
        return Areas { left, charts: middle.with_max_y(line), right, below: middle.with_min_y(line + 1.0) };
    }
    let wanted = HEAD + COLUMNS + ROW * rows.max(4) as f32;
    // The table gets this height with or without a right column, because curve and roles are needed to understand it.
    let most = pane.height() * 0.38;
    // Shows whole rows only, because a cut row looks like a bug.
    let whole = HEAD + COLUMNS + ((most - HEAD - COLUMNS) / ROW).floor().max(3.0) * ROW;
    let line = (pane.bottom() - wanted.min(whole)).round();
    let above = rest.with_max_y(line);
    let right = has_right.then(|| above.with_min_x((pane.right() - right_width).round()));
    let charts = above.with_max_x(right.map_or(above.right(), |r| r.left() - 1.0));
    Areas { left, charts, right, below: rest.with_min_y(line + 1.0) }
}

/// The axis extends to at most this many times the largest recorded or wanted size, to show where the program fails.
const FARTHEST: u64 = 40;

/// The first and last size on the axis. Covers the recorded sizes, the wanted one, and a little more than the largest that fits.
pub(super) fn extent(recorded: &[u64], wanted: u64, fits: Option<u64>, step: u64) -> (u64, u64) {
    let least = recorded.iter().copied().min().unwrap_or(1);
    let most = recorded.iter().copied().max().unwrap_or(1).max(wanted);
    // When much larger sizes fit, the sentence says so and the axis does not show them. It would squeeze the recorded sizes at
    // the left.
    let beyond = |fits: u64| {
        let whole = fits.saturating_add(fits / 8).saturating_add(step);
        if whole <= most.saturating_mul(FARTHEST) { whole } else { most.saturating_mul(2).min(whole) }
    };
    let most = fits.map_or(most, |fits| most.max(beyond(fits)));
    let low = (least / 4).max(1).div_ceil(step) * step;
    (low.min(least), most.div_ceil(step) * step)
}

/// The step between sizes, a power of two, so that there are at most about sixty.
pub(super) fn step_for(most: u64) -> u64 {
    (most / 64).max(1).next_power_of_two()
}

/// Sizes from `low` to `high`, most useful first: both ends, those in `first`, then by repeated halving.
pub(super) fn order(low: u64, high: u64, step: u64, first: &[u64]) -> Vec<u64> {
    let mut out: Vec<u64> = Vec::new();
    let add = |out: &mut Vec<u64>, v: u64| {
        if (low..=high).contains(&v) && !out.contains(&v) {
            out.push(v);
        }
    };
    for &v in first.iter().chain(&[low, high]) {
        add(&mut out, v);
    }
    let grid: Vec<u64> = grid(low, high, step);
    let mut stride = grid.len().next_power_of_two();
    while stride > 0 {
        for i in (0..grid.len()).step_by(stride) {
            add(&mut out, grid[i]);
        }
        stride /= 2;
    }
    out
}

/// Multiples of the step from `low` to `high`.
pub(super) fn grid(low: u64, high: u64, step: u64) -> Vec<u64> {
    let step = step.max(1);
    (low.div_ceil(step)..=high / step).map(|k| k * step).collect()
}

/// Interpolates a curve between its points, which ascend; `None` outside them.
pub(super) fn between(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let at = points.partition_point(|p| p.0 < x);
    match (at.checked_sub(1).and_then(|i| points.get(i)), points.get(at)) {
        (_, Some(&(px, y))) if px == x => Some(y),
        (Some(&(x0, y0)), Some(&(x1, y1))) => Some(y0 + (y1 - y0) * (x - x0) / (x1 - x0)),
        _ => None,
    }
}

/// Growth per unit of the size, from the known sizes around `at`. `None` when it is negative: the peak then moved to an instant
/// with less of this memory, which says nothing about growth.
pub(super) fn slope(points: &[(u64, u64)], at: u64) -> Option<f64> {
    let i = points.partition_point(|(v, _)| *v < at);
    let from = points.get(i.saturating_sub(2).min(points.len().checked_sub(2)?))?;
    let to = points.get((i + 2).min(points.len() - 1))?;
    let run = to.0.checked_sub(from.0).filter(|run| *run > 0)?;
    Some((to.1 as f64 - from.1 as f64) / run as f64).filter(|slope| *slope >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use egui::{pos2, vec2};

    #[test]
    fn what_falls_has_no_slope() {
        let points: Vec<(u64, u64)> = (1..=8).map(|v| (v, 100 + 10 * v)).collect();
        assert_eq!([slope(&points, 1), slope(&points, 5), slope(&points, 99)], [Some(10.0); 3]);
        // Gradients are live at the peak of small sizes, but not at the peak of larger ones.
        assert_eq!(slope(&[(1, 400), (2, 400), (3, 0), (4, 0)], 2), None);
        assert_eq!(slope(&[(1, 400), (2, 400), (3, 400)], 2), Some(0.0));
        assert_eq!([slope(&[], 2), slope(&[(1, 400)], 1)], [None; 2]);
    }

    #[test]
    fn parts_fill_the_pane_and_none_lies_over_another() {
        for (w, h) in [(1600.0, 890.0), (1280.0, 800.0), (1024.0, 590.0), (900.0, 500.0)] {
            let pane = Rect::from_min_size(pos2(0.0, 64.0), vec2(w, h));
            let a = areas(pane, 24, true);
            assert!(a.left.right() < a.charts.left() && a.charts.bottom() < a.below.top() + 1.0, "{a:?}");
            assert!(a.charts.width() >= 440.0 && a.charts.height() >= 180.0, "{w}: {a:?}");
            assert_eq!(a.below.bottom(), pane.bottom());
            let asking = areas(pane, 24, false);
            assert!(asking.charts.bottom() < asking.below.top() && asking.below.height() > a.below.height(), "{asking:?}");
            if let Some(right) = a.right {
                assert!(right.left() > a.charts.right() && right.right() == pane.right(), "{a:?}");
            }
        }
        assert!(areas(Rect::from_min_size(pos2(0.0, 0.0), vec2(1600.0, 890.0)), 24, true).right.is_some());
        assert!(areas(Rect::from_min_size(pos2(0.0, 0.0), vec2(1024.0, 590.0)), 24, true).right.is_none());
    }

    #[test]
    fn the_axis_holds_what_is_recorded_wanted_and_fits() {
        assert_eq!(extent(&[16, 32], 64, Some(44), 2), (4, 64));
        assert_eq!(extent(&[16, 32], 64, Some(60), 1), (4, 68));
        assert_eq!(extent(&[8], 16, Some(4000), 1), (2, 32), "not so far that the recorded ones are lost");
        assert_eq!(extent(&[4, 8], 16, Some(41), 1), (1, 47), "the cliff is on it");
        assert_eq!(extent(&[1], 1, None, 1), (1, 1));
        assert_eq!(extent(&[512, 1024], 2048, None, 32), (128, 2048));
    }

    #[test]
    fn sizes_come_coarse_first_and_all_of_them() {
        let all = order(4, 64, 2, &[44, 16, 32]);
        assert_eq!(&all[..5], &[44, 16, 32, 4, 64]);
        let mut sorted = all.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, grid(4, 64, 2));
        assert_eq!((step_for(64), step_for(65), step_for(128), step_for(2048), step_for(3)), (1, 1, 2, 32, 1));
    }

    #[test]
    fn curves_are_straight_between_their_points() {
        let points = [(2.0, 10.0), (4.0, 20.0), (8.0, 20.0)];
        assert_eq!(
            [1.0, 2.0, 3.0, 6.0, 8.0, 9.0].map(|x| between(&points, x)),
            [None, Some(10.0), Some(15.0), Some(20.0), Some(20.0), None]
        );
    }
}
