//! Positions of the parts of What-if, and of labels. Only arithmetic.

use egui::{Rangef, Rect, pos2};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Areas {
    /// The field for another setting, and the limit.
    pub tools: Rect,
    pub table: Rect,
    /// `None` when there is no room.
    pub charts: Option<Rect>,
    /// The selected setting: beside the rest, or below the table in a narrow pane; `None` when there is no room.
    pub side: Option<Rect>,
}

/// Divides a pane for a table of `rows` settings.
pub(super) fn areas(pane: Rect, rows: usize) -> Areas {
    let side = (pane.width() >= 900.0).then(|| pane.with_min_x(pane.right() - 340.0));
    let right = side.map_or(pane.right(), |s| s.left() - 1.0);
    let tools = Rect::from_min_max(pane.min, pos2(right, pane.top() + 40.0));
    let wanted = HEAD + ROW * rows as f32;
    let mut room = pane.bottom() - tools.bottom();
    // The line to copy matters most, so in a narrow pane the selected setting is shown below the table.
    let beneath = if side.is_none() && room >= 280.0 { (room * 0.45).min(240.0) } else { 0.0 };
    room -= beneath;
    let charts_fit = room >= 420.0;
    // Shows whole rows only, because a cut row looks like a bug.
    let share = HEAD + ((room * 0.46 - HEAD) / ROW).floor().max(4.0) * ROW;
    let whole = HEAD + ((room - HEAD) / ROW).floor() * ROW;
    let table_height = match (charts_fit, beneath > 0.0) {
        (true, _) => wanted.min(share),
        (false, true) => wanted.min(whole),
        (false, false) => room,
    };
    let table = Rect::from_min_max(tools.left_bottom(), pos2(right, tools.bottom() + table_height));
    let charts = charts_fit.then(|| Rect::from_min_max(table.left_bottom(), pos2(right, pane.bottom() - beneath)));
    let above = charts.unwrap_or(table);
    let side = side.or((beneath > 0.0).then(|| Rect::from_min_max(above.left_bottom(), pane.max)));
    Areas { tools, table, charts, side }
}

pub(super) const ROW: f32 = 36.0;
/// Height of the two header rows.
pub(super) const HEAD: f32 = 48.0;

/// Breaks a long setting after a comma into two lines, with as much on the first line as fits. `None` when it fits on one line or
/// has no suitable comma.
pub(in crate::app::views) fn two_lines(text: &str, fits: impl Fn(&str) -> bool) -> Option<(&str, &str)> {
    if fits(text) {
        return None;
    }
    let cuts = text.match_indices(',').map(|(at, _)| text.split_at(at + 1));
    cuts.rev().find(|(first, _)| fits(first))
}

/// A box in the lane of steps: one step, or several that are too narrow to draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StepBox {
    /// Left and right edge, in points.
    pub range: Rangef,
    pub first: usize,
    pub count: usize,
    /// The box has room for its number.
    pub is_told: bool,
}

/// Places steps on an axis. Steps under three points wide are merged with their successors into boxes of six points. `bounds` are
/// events; `at` gives their positions. Costs boxes, not steps.
pub(super) fn step_lane(bounds: &[u32], at: impl Fn(f64) -> f32) -> Vec<StepBox> {
    let place = |i: usize| at(f64::from(bounds[i]));
    let steps = bounds.len().saturating_sub(1);
    let mut boxes = Vec::new();
    let mut free = f32::MIN;
    let mut first = 0;
    while first < steps {
        let left = place(first);
        let count = if place(first + 1) - left < 3.0 {
            bounds[first + 1..].partition_point(|&b| at(f64::from(b)) - left < 6.0).max(1)
        } else {
            1
        };
        let range = Rangef::new(left, place(first + count));
        let half = 4.0 + 4.0 * ((first + 1).ilog10() + 1) as f32;
        let middle = range.center();
        let is_told = count == 1 && range.span() >= 6.0 && middle - half >= free;
        if is_told {
            free = middle + half;
        }
        boxes.push(StepBox { range, first, count, is_told });
        first += count;
    }
    boxes
}

/// The highest value of a curve per pixel column over `from..to` (events). Each of `points` is (event, value) with the highest
/// value of the stretch that ends there, so a column without a point takes the next point's value. `None` after the last point.
pub(super) fn resample(points: &[(u32, u64)], from: f64, to: f64, columns: usize) -> Vec<Option<u64>> {
    let step = (to - from) / columns.max(1) as f64;
    let mut at = points.partition_point(|p| f64::from(p.0) < from);
    (0..columns)
        .map(|i| {
            let end = from + step * (i + 1) as f64;
            let mut most = None;
            while at < points.len() && f64::from(points[at].0) < end {
                most = most.max(Some(points[at].1));
                at += 1;
            }
            // A point is the end of its stretch, so columns before it have its value.
            most.or_else(|| points.get(at).map(|p| p.1)).or_else(|| {
                // The last event fills one unit of the axis.
                let begin = from + step * i as f64;
                points.last().filter(|p| at == points.len() && begin < f64::from(p.0) + 1.0).map(|p| p.1)
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use egui::vec2;

    #[test]
    fn charts_and_side_go_when_the_pane_is_small() {
        let pane = |w: f32, h: f32| Rect::from_min_size(pos2(0.0, 64.0), vec2(w, h));
        let a = areas(pane(1600.0, 880.0), 13);
        assert!(a.side.is_some_and(|s| s.width() == 340.0));
        assert!(a.charts.is_some_and(|c| c.height() > 380.0), "{a:?}");
        assert_eq!(a.table.top(), a.tools.bottom());
        for height in 700..1300 {
            let a = areas(pane(1600.0, height as f32), 13);
            let rows = (a.table.height() - HEAD) / ROW;
            assert!(a.charts.is_none() || rows.fract() == 0.0, "{height}: {rows} rows");
        }
        // In a narrow pane the selected setting is below the table, and rows stay whole.
        let a = areas(pane(800.0, 384.0), 13);
        assert_eq!(a.side.map(|s| (s.left(), s.top())), Some((0.0, a.table.bottom())));
        assert!(a.charts.is_none() && a.side.is_some_and(|s| s.height() >= 150.0), "{a:?}");
        assert_eq!((a.table.height() - HEAD) % ROW, 0.0);
        let a = areas(pane(800.0, 800.0), 13);
        assert!(a.charts.is_some_and(|c| Some(c.bottom()) == a.side.map(|s| s.top())), "{a:?}");
        let a = areas(pane(600.0, 300.0), 13);
        assert_eq!((a.side, a.charts), (None, None));
        assert_eq!(a.table.bottom(), 364.0);
    }

    #[test]
    fn long_settings_take_two_lines() {
        let fits = |text: &str| text.len() <= 12;
        assert_eq!(two_lines("short:1", fits), None);
        assert_eq!(two_lines("aaaa:1,bbb:2,cc:3", fits), Some(("aaaa:1,", "bbb:2,cc:3")));
        assert_eq!(two_lines("aa:1,bb:22,cc:3,dd:4", fits), Some(("aa:1,bb:22,", "cc:3,dd:4")));
        assert_eq!(two_lines("one_word_that_is_long:1", fits), None);
    }

    #[test]
    fn steps_are_told_where_there_is_room() {
        let at = |e: f64| e as f32;
        let lane = step_lane(&[0, 30, 40, 44, 80], at);
        let told: Vec<usize> = lane.iter().filter(|s| s.is_told).map(|s| s.first).collect();
        assert_eq!(lane.len(), 4);
        assert_eq!(told, [0, 1, 3], "the third is too narrow for its number");
        assert_eq!(step_lane(&[], at), []);
    }

    #[test]
    fn narrow_steps_fold_with_their_count_and_wide_ones_stay_alone() {
        // 1,500 steps of 0.6 points, then one of 60.
        let bounds: Vec<u32> = (0..=1500).chain([1600]).collect();
        let lane = step_lane(&bounds, |e| e as f32 * 0.6);
        assert_eq!(lane.iter().map(|b| b.count).sum::<usize>(), 1501, "every step is in a box");
        assert!(lane.len() < 200 && lane[..lane.len() - 1].iter().all(|b| b.count > 1 && !b.is_told), "{lane:?}");
        assert!(lane.last().is_some_and(|b| b.count == 1 && b.is_told && b.first == 1500), "{:?}", lane.last());
        assert!(lane.windows(2).all(|w| w[0].range.max == w[1].range.min));
    }

    #[test]
    fn a_curve_keeps_its_peaks_and_ends_where_its_run_ended() {
        let points = [(9, 5), (19, 9), (29, 2)];
        let c = resample(&points, 0.0, 60.0, 6);
        assert_eq!(c, [Some(5), Some(9), Some(2), None, None, None]);
        let c = resample(&points, 0.0, 30.0, 60);
        assert_eq!((c[0], c[21], c[59]), (Some(5), Some(9), Some(2)));
        let c = resample(&points, 0.0, 60.0, 2);
        assert_eq!(c, [Some(9), None]);
    }
}
