//! What lanes below the strata show of a window: operators by depth, and bytes by category. Computed off the UI thread.

use super::picture::Window;
use crate::app::state::cursor::Axis;
use vramscope_core::model::{CATEGORIES, CategoryBands, DeviceRecording, OpTable};
use vramscope_core::tables::op_lanes::{OpRows, OpSpan};

impl Window {
    /// The times of the column borders, nanoseconds since the epoch. Between two events the event axis goes on evenly.
    pub fn times_ns(&self, device: &DeviceRecording) -> Vec<i64> {
        let step = (self.to - self.from) / self.columns.max(1) as f64;
        (0..=self.columns).map(|i| time_ns(device, self.axis, self.from + step * i as f64)).collect()
    }
}

/// The time of a place on the axis, nanoseconds since the epoch.
pub(super) fn time_ns(device: &DeviceRecording, axis: Axis, x: f64) -> i64 {
    let times = &device.events.time_us;
    let first = times.first().copied().unwrap_or(0);
    match axis {
        Axis::Time => first.saturating_mul(1_000).saturating_add((x * 1_000.0).round() as i64),
        Axis::Event => {
            let at = x.max(0.0).floor();
            let i = (at as usize).min(times.len().saturating_sub(1));
            let here = times.get(i).copied().unwrap_or(0);
            let next = times.get(i + 1).copied().unwrap_or(here);
            let part = (x - at).clamp(0.0, 1.0) * (next - here) as f64;
            here.saturating_mul(1_000).saturating_add((part * 1_000.0).round() as i64)
        }
    }
}

/// Where a time stands on the axis.
pub(super) fn place_of_ns(device: &DeviceRecording, axis: Axis, ns: i64) -> f64 {
    let times = &device.events.time_us;
    let first = times.first().copied().unwrap_or(0);
    match axis {
        Axis::Time => (ns - first.saturating_mul(1_000)) as f64 / 1_000.0,
        Axis::Event => {
            let after = times.partition_point(|&t| t.saturating_mul(1_000) <= ns);
            let Some(i) = after.checked_sub(1) else { return 0.0 };
            let (here, next) = (times[i], times.get(after).copied().unwrap_or(times[i]));
            let part = if next > here { (ns - here * 1_000) as f64 / ((next - here) as f64 * 1_000.0) } else { 0.0 };
            i as f64 + part.clamp(0.0, 1.0)
        }
    }
}

/// A box of the operator lane: where it stands in columns, and what it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct OpBox {
    pub left: f32,
    pub right: f32,
    /// Which line of the lane.
    pub line: u16,
    pub span: OpSpan,
    /// Of several the one that takes longest, where there is room to name it.
    pub longest: Option<u32>,
}

/// Columns from which on several operators are named by the longest of them.
const NAMED_FROM: f32 = 60.0;

/// The operator lane of a window.
pub(super) struct OpsPicture {
    pub window: Window,
    /// Rows of the [`OpRows`] that are shown, top down.
    pub lines: Vec<usize>,
    /// Line by line, left to right.
    pub boxes: Vec<OpBox>,
    /// Where each line's boxes begin in `boxes`, and where the last ones end.
    pub starts: Vec<usize>,
    /// Operators, calls and kernels of the window that share a box with others.
    pub folded: u64,
    /// Those of the window in rows that have no line here.
    pub hidden: u64,
}

impl OpsPicture {
    /// At most `most` lines. O(lines × columns × log operators).
    pub fn compute(device: &DeviceRecording, ops: &OpTable, rows: &OpRows, window: Window, most: usize) -> Self {
        // The most telling rows, then in the order of reading: a thread's levels together, streams last.
        let mut lines: Vec<usize> = (0..rows.rows.len().min(most)).collect();
        let first_of = |lane: u16| rows.rows.iter().position(|r| r.lane == lane);
        lines.sort_by_key(|&i| (rows.rows[i].kind, first_of(rows.rows[i].lane), rows.rows[i].depth));
        let bounds = window.times_ns(device);
        let (mut boxes, mut starts) = (Vec::new(), Vec::new());
        let place = |ns: i64| window.place(place_of_ns(device, window.axis, ns));
        for (line, &row) in lines.iter().enumerate() {
            starts.push(boxes.len());
            for span in rows.spans(ops, row, &bounds) {
                let (mut left, mut right) = (span.left as f32, span.right as f32);
                let at = span.first as usize;
                if let (1, Some(&start), Some(end)) = (span.count, ops.start_ns.get(at), ops.end_ns(at)) {
                    (left, right) = (place(start).max(-1.0), place(end).min(window.columns as f32 + 1.0));
                    right = right.max(left + 1.0);
                }
                let longest = (span.count > 1 && right - left >= NAMED_FROM).then(|| rows.longest(ops, row, &span)).flatten();
                boxes.push(OpBox { left, right, line: line as u16, span, longest });
            }
        }
        starts.push(boxes.len());
        let folded = boxes.iter().filter(|b| b.span.count > 1).map(|b| u64::from(b.span.count)).sum();
        let within = bounds.first().copied().unwrap_or(0)..=bounds.last().copied().unwrap_or(0);
        let hidden =
            (0..rows.rows.len()).filter(|row| !lines.contains(row)).map(|row| rows.count_within(ops, row, &within)).sum();
        OpsPicture { window, lines, boxes, starts, folded, hidden }
    }

    /// The box of a line at a column. Binary search.
    pub fn hit(&self, line: usize, column: f32) -> Option<OpBox> {
        let boxes = self.boxes.get(*self.starts.get(line)?..*self.starts.get(line + 1)?)?;
        let at = boxes.partition_point(|b| b.left <= column).checked_sub(1)?;
        boxes.get(at).filter(|b| column <= b.right).copied()
    }
}

/// Bytes by category in each column of a window: those of the instant in the column with the highest sum.
pub(super) struct BandsPicture {
    pub window: Window,
    /// `None` before the first row.
    pub columns: Vec<Option<[u64; CATEGORIES.len()]>>,
    /// The highest sum of the window.
    pub top: u64,
    /// Categories that ever hold anything in the recording, in stacking order.
    pub used: Vec<usize>,
    /// The same, largest first: the order of the legend.
    pub by_size: Vec<usize>,
}

impl BandsPicture {
    /// `bounds_us` are the times of the column borders. O(rows of the window + columns × log rows).
    pub fn compute(bands: &CategoryBands, window: Window, bounds_us: &[i64]) -> Self {
        let sum = |row: &[u64; CATEGORIES.len()]| row.iter().fold(0u64, |s, &b| s.saturating_add(b));
        let column = |w: &[i64]| {
            // What is in force when the column begins, and every change within it.
            let from = bands.time_us.partition_point(|&t| t <= w[0]);
            let to = bands.time_us.partition_point(|&t| t < w[1]).max(from);
            let rows = from.checked_sub(1).into_iter().chain(from..to);
            rows.filter_map(|i| bands.bytes.get(i)).copied().max_by_key(sum)
        };
        let columns: Vec<_> = bounds_us.windows(2).map(column).collect();
        let top = columns.iter().flatten().map(sum).max().unwrap_or(0);
        let mut used: Vec<usize> = (0..CATEGORIES.len()).filter(|&c| bands.bytes.iter().any(|row| row[c] > 0)).collect();
        used.sort_by_key(|&c| STACKING.iter().position(|&s| s == c));
        let most = |c: usize| bands.bytes.iter().map(|row| row[c]).max().unwrap_or(0);
        let mut by_size = used.clone();
        by_size.sort_by_key(|&c| std::cmp::Reverse(most(c)));
        BandsPicture { window, columns, top, used, by_size }
    }
}

/// Categories from the bottom up: what lives long first, so that the rest moves on firm ground.
const STACKING: [usize; CATEGORIES.len()] = [0, 1, 2, 5, 4, 6, 3, 7];

#[cfg(test)]
mod tests {
    use super::*;
    use vramscope_core::model::{Action, OpKind, OpLane, PoolId, StackId, StrId, StreamId};

    fn device(times: &[i64]) -> DeviceRecording {
        let mut d = DeviceRecording::default();
        d.events.has_time = true;
        for &t in times {
            d.events.push(t, Action::Alloc, 0, 512, StreamId(0), PoolId(0), StackId::NONE);
        }
        d
    }

    #[test]
    fn places_and_times_are_each_other_s_inverse() {
        let d = device(&[100, 100, 110, 300]);
        for axis in [Axis::Event, Axis::Time] {
            for ns in [100_000, 104_000, 110_000, 205_000, 300_000] {
                assert_eq!(time_ns(&d, axis, place_of_ns(&d, axis, ns)), ns, "{axis:?}");
            }
        }
        assert_eq!(place_of_ns(&d, Axis::Event, 105_000), 1.5);
        assert_eq!(place_of_ns(&d, Axis::Event, 0), 0.0);
        assert_eq!(place_of_ns(&d, Axis::Time, 90_000), -10.0);
        let w = Window { axis: Axis::Event, from: 0.0, to: 4.0, columns: 8 };
        assert!(w.times_ns(&d).windows(2).all(|w| w[0] <= w[1]));
    }

    #[test]
    fn an_operator_is_found_where_it_is_drawn() {
        let d = device(&[0, 1_000]);
        let mut ops = OpTable { lanes: vec![OpLane { name: "main".to_owned(), is_device: false }], ..OpTable::default() };
        for (start, length) in [(100_000, 400_000u64), (700_000, 100)] {
            ops.start_ns.push(start);
            ops.duration_ns.push(length);
            ops.depth.push(0);
            ops.name.push(StrId(0));
            ops.lane.push(0);
            ops.kind.push(OpKind::Operator);
            ops.shapes.push(OpTable::NO_TEXT);
            ops.forward.push(OpTable::NO_OP);
        }
        let rows = OpRows::build(&ops);
        let window = Window { axis: Axis::Time, from: 0.0, to: 1_000.0, columns: 100 };
        let p = OpsPicture::compute(&d, &ops, &rows, window, 5);
        assert_eq!(p.hit(0, 30.0).map(|b| b.span.first), Some(0));
        assert_eq!(p.hit(0, 60.0), None);
        assert_eq!(p.hit(0, 70.5).map(|b| b.span.first), Some(1));
        assert_eq!(p.hit(1, 30.0), None);
        assert_eq!((p.boxes[0].left, p.boxes[0].right), (10.0, 50.0));
    }

    #[test]
    fn a_column_shows_its_peak() {
        let mut bands = CategoryBands::default();
        for (t, parameter, gradient) in [(10, 5, 0), (20, 5, 90), (21, 5, 0), (90, 6, 1)] {
            bands.time_us.push(t);
            bands.bytes.push([parameter, 0, 0, 0, 0, gradient, 0, 0]);
        }
        let window = Window { axis: Axis::Time, from: 0.0, to: 100.0, columns: 4 };
        let p = BandsPicture::compute(&bands, window, &[0, 25, 50, 75, 100]);
        let sums: Vec<_> = p.columns.iter().map(|c| c.map(|r| r.iter().sum::<u64>())).collect();
        assert_eq!(sums, [Some(95), Some(5), Some(5), Some(7)]);
        assert_eq!((p.top, p.used, p.by_size), (95, vec![0, 5], vec![5, 0]));
        let before = BandsPicture::compute(&bands, window, &[0, 5]);
        assert_eq!(before.columns, [None]);
    }
}
