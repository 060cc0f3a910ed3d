//! Operators, runtime calls and kernels as rows to draw: one row per thread and nesting depth, or per stream, and the spans of a
//! row within each pixel column. A column costs two binary searches, however many operators there are.

use std::ops::RangeInclusive;

use crate::model::{OpKind, OpTable};

/// What a row holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowKind {
    /// Operators of one thread at one depth.
    Thread,
    /// Runtime and driver calls of all threads: kernel launches, copies, `cudaMalloc`.
    Launches,
    /// Kernels and copies of one stream of a device.
    Stream,
}

/// One row: operators at one depth of one thread, work on one stream, or all launches.
#[derive(Clone, Debug)]
pub struct OpRow {
    /// Index into [`OpTable::lanes`]; for launches the thread with most operators.
    pub lane: u16,
    /// Nesting depth, 0 outermost.
    pub depth: u16,
    /// What the row holds.
    pub kind: RowKind,
    /// Rows of the [`OpTable`], by start.
    pub ops: Vec<u32>,
    /// The latest end among all operators up to each one: ascending even if operators of a trace overlap.
    latest_end: Vec<i64>,
}

/// The rows of a recording, most informative first.
#[derive(Clone, Debug, Default)]
pub struct OpRows {
    /// Most important first: a view short of space drops rows from the end.
    pub rows: Vec<OpRow>,
    /// Number of operators, calls and kernels without a row: too deep, or on another thread or stream.
    pub left_out: u64,
}

/// A run of pixel columns in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpSpan {
    /// Row of the [`OpTable`], the first one when there are several.
    pub first: u32,
    /// How many operators share these columns: 1, or the number folded together.
    pub count: u32,
    /// The first pixel column.
    pub left: u32,
    /// The column after the last.
    pub right: u32,
}

/// Levels shown of the busiest thread and of the second busiest.
const LEVELS: [u16; 2] = [4, 3];
/// Number of streams that get a row.
const STREAMS: usize = 2;
/// An operator narrower than this many columns is folded with its neighbours.
const NARROW: usize = 3;

impl OpRows {
    /// Sorts operators into rows. O(operators).
    pub fn build(ops: &OpTable) -> Self {
        let lanes = ops.lanes.len();
        let mut weight = vec![0u64; lanes];
        for (lane, kind) in ops.lane.iter().zip(&ops.kind) {
            // Runtime calls do not count: a thread with operators says more about the program.
            let says = if *kind == OpKind::Runtime { 0 } else { 1 };
            if let Some(w) = weight.get_mut(usize::from(*lane)) {
                *w += says;
            }
        }
        let heaviest = |is_device: bool| {
            let mut of: Vec<u16> = (0..lanes as u16).filter(|&l| ops.lanes[usize::from(l)].is_device == is_device).collect();
            of.retain(|&l| weight[usize::from(l)] > 0);
            of.sort_by_key(|&l| (std::cmp::Reverse(weight[usize::from(l)]), l));
            of
        };
        let (threads, streams) = (heaviest(false), heaviest(true));
        let mut wanted: Vec<(u16, u16, RowKind)> = Vec::new();
        for depth in 0..LEVELS[0] {
            for (thread, &levels) in threads.iter().zip(&LEVELS) {
                if depth < levels {
                    wanted.push((*thread, depth, RowKind::Thread));
                }
            }
            if let (0, Some(&thread)) = (depth, threads.first()) {
                wanted.push((thread, 0, RowKind::Launches));
            }
            if let Some(&stream) = streams.get(usize::from(depth)).filter(|_| usize::from(depth) < STREAMS) {
                wanted.push((stream, 0, RowKind::Stream));
            }
        }
        let launches = wanted.iter().position(|w| w.2 == RowKind::Launches);
        let mut of_lane: Vec<Vec<Option<usize>>> = vec![Vec::new(); lanes];
        for (at, &(lane, depth, kind)) in wanted.iter().enumerate() {
            if kind == RowKind::Launches {
                continue;
            }
            let slots = &mut of_lane[usize::from(lane)];
            slots.resize(slots.len().max(usize::from(depth) + 1), None);
            slots[usize::from(depth)] = Some(at);
        }
        let mut rows: Vec<OpRow> = wanted
            .iter()
            .map(|&(lane, depth, kind)| OpRow { lane, depth, kind, ops: Vec::new(), latest_end: Vec::new() })
            .collect();
        let mut left_out = 0;
        for i in 0..ops.len() {
            let slot = match ops.kind[i] {
                OpKind::Runtime => launches,
                _ => of_lane.get(usize::from(ops.lane[i])).and_then(|l| l.get(usize::from(ops.depth[i])).copied().flatten()),
            };
            let Some(row) = slot.and_then(|at| rows.get_mut(at)) else {
                left_out += 1;
                continue;
            };
            let end = ops.end_ns(i).unwrap_or(i64::MIN);
            row.latest_end.push(row.latest_end.last().map_or(end, |&before| before.max(end)));
            row.ops.push(i as u32);
        }
        rows.retain(|r| !r.ops.is_empty());
        OpRows { rows, left_out }
    }

    /// Number of operators of a row that run within a time range. Two binary searches.
    pub fn count_within(&self, ops: &OpTable, row: usize, ns: &RangeInclusive<i64>) -> u64 {
        let Some(row) = self.rows.get(row) else { return 0 };
        let from = row.latest_end.partition_point(|&e| e < *ns.start());
        let to = row.ops.partition_point(|&op| ops.start_ns[op as usize] <= *ns.end());
        to.saturating_sub(from) as u64
    }

    /// The longest operator of a folded span, as a row of the [`OpTable`]. O(log operators + operators in the span); `None` if
    /// the span holds too many to search while drawing.
    pub fn longest(&self, ops: &OpTable, row: usize, span: &OpSpan) -> Option<u32> {
        const MOST: u32 = 1 << 16;
        let row = self.rows.get(row).filter(|_| span.count <= MOST)?;
        let from = row.ops.partition_point(|&op| op < span.first);
        let of = row.ops.get(from..from + span.count as usize)?;
        of.iter().copied().max_by_key(|&op| (ops.duration_ns.get(op as usize), std::cmp::Reverse(op)))
    }

    /// The spans of a row between ascending times, one pixel column each. O(columns × log operators).
    pub fn spans(&self, ops: &OpTable, row: usize, bounds_ns: &[i64]) -> Vec<OpSpan> {
        let Some(row) = self.rows.get(row) else { return Vec::new() };
        let columns = bounds_ns.len().saturating_sub(1);
        let start = |k: usize| ops.start_ns[row.ops[k] as usize];
        let end = |k: usize| ops.end_ns(row.ops[k] as usize).unwrap_or(i64::MIN);
        // Operators that run within a column; operators of no duration count where they start.
        let inside = |i: usize| {
            let last = i + 1 == columns;
            let from = row.latest_end.partition_point(|&e| e < bounds_ns[i]);
            let to = row.ops.partition_point(|&op| {
                let s = ops.start_ns[op as usize];
                s < bounds_ns[i + 1] || (last && s == bounds_ns[i + 1])
            });
            (from, to.max(from))
        };
        let is_wide = |k: usize, i: usize| end(k) >= bounds_ns[(i + NARROW).min(columns)] && end(k) > start(k);
        let mut out: Vec<OpSpan> = Vec::new();
        // Operators before `done` are already drawn.
        let (mut i, mut done) = (0, 0);
        while i < columns {
            let (from, to) = inside(i);
            let from = from.max(done);
            if from >= to {
                // Continue at the column where the next operator starts.
                let next =
                    row.ops.get(from).map_or(columns, |_| bounds_ns.partition_point(|&b| b <= start(from)).saturating_sub(1));
                i = next.max(i + 1);
                continue;
            }
            if to == from + 1 && is_wide(from, i) {
                let right = bounds_ns.partition_point(|&b| b < end(from)).clamp(i + 1, columns);
                out.push(OpSpan { first: row.ops[from], count: 1, left: i as u32, right: right as u32 });
                (i, done) = (right, from + 1);
                // An operator that starts in the column where this one ends must not be lost: revisit that column.
                if i < columns && row.ops.get(done).is_some_and(|_| start(done) < bounds_ns[i]) {
                    i -= 1;
                }
                continue;
            }
            let (mut right, mut until) = (i + 1, to);
            while right < columns {
                let (next, next_to) = inside(right);
                let next = next.max(until);
                if next >= next_to || (next_to == next + 1 && is_wide(next, right)) {
                    break;
                }
                (right, until) = (right + 1, next_to);
            }
            out.push(OpSpan { first: row.ops[from], count: (until - from) as u32, left: i as u32, right: right as u32 });
            (i, done) = (right, until);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{OpLane, StrId};

    fn table(rows: &[(i64, u64, u16, u16, OpKind)], lanes: &[bool]) -> OpTable {
        let mut ops = OpTable::default();
        let mut rows = rows.to_vec();
        rows.sort_by_key(|r| r.0);
        for (start, duration, depth, lane, kind) in rows {
            ops.start_ns.push(start);
            ops.duration_ns.push(duration);
            ops.depth.push(depth);
            ops.name.push(StrId(0));
            ops.lane.push(lane);
            ops.kind.push(kind);
            ops.shapes.push(OpTable::NO_TEXT);
            ops.forward.push(OpTable::NO_OP);
        }
        ops.lanes = lanes.iter().map(|&is_device| OpLane { name: String::new(), is_device }).collect();
        ops
    }

    #[test]
    fn rows_are_threads_by_depth_and_streams() {
        use OpKind::{Kernel, Operator, Runtime};
        let ops = table(
            &[
                (0, 100, 0, 0, Operator),
                (10, 50, 1, 0, Operator),
                (12, 5, 2, 0, Runtime),
                (200, 10, 0, 1, Operator),
                (30, 40, 0, 2, Kernel),
                (80, 40, 0, 2, Kernel),
                (5, 1, 0, 3, Runtime),
                (15, 1, 9, 0, Operator),
            ],
            &[false, false, true, false],
        );
        let rows = OpRows::build(&ops);
        use RowKind::{Launches, Stream, Thread};
        let told: Vec<_> = rows.rows.iter().map(|r| (r.lane, r.depth, r.kind, r.ops.len())).collect();
        // All calls are launches, on any thread and at any depth.
        assert_eq!(told, [(0, 0, Thread, 1), (1, 0, Thread, 1), (0, 0, Launches, 2), (2, 0, Stream, 2), (0, 1, Thread, 1)]);
        // A level too deep.
        assert_eq!(rows.left_out, 1);
    }

    #[test]
    fn wide_ones_stand_alone_and_narrow_ones_are_counted() {
        let mut list = vec![(0i64, 1_000u64, 0u16, 0u16, OpKind::Operator)];
        list.extend((0..500).map(|k| (2_000 + k, 1, 0, 0, OpKind::Operator)));
        list.push((5_000, 2_500, 0, 0, OpKind::Operator));
        list.push((7_500, 10, 0, 0, OpKind::Operator));
        let ops = table(&list, &[false]);
        let rows = OpRows::build(&ops);
        let bounds: Vec<i64> = (0..=100).map(|i| i * 100).collect();
        let spans = rows.spans(&ops, 0, &bounds);
        let told: Vec<_> = spans.iter().map(|s| (s.left, s.right, s.count)).collect();
        assert_eq!(told, [(0, 10, 1), (20, 25, 500), (50, 75, 1), (75, 76, 1)]);
        assert_eq!(rows.longest(&ops, 0, &spans[1]), Some(1), "the first of those that take as long");
        let all = OpSpan { first: 0, count: 503, left: 0, right: 100 };
        assert_eq!(rows.longest(&ops, 0, &all), Some(501));
        // Zoomed in, each operator has a span of its own.
        let close: Vec<i64> = (0..=400).map(|i| 2_000_000 + i * 10).map(|n| n / 1_000).collect();
        assert_eq!(rows.spans(&ops, 0, &close).iter().map(|s| s.count).sum::<u32>(), 5);
        let inner: Vec<i64> = (0..=50).map(|i| 5_500 + i).collect();
        assert_eq!(rows.spans(&ops, 0, &inner).iter().map(|s| (s.left, s.right, s.count)).collect::<Vec<_>>(), [(0, 50, 1)]);
        assert!(rows.spans(&ops, 0, &[20_000, 20_001]).is_empty());
        assert!(rows.spans(&ops, 9, &bounds).is_empty());
    }

    #[test]
    fn nothing_is_lost_whatever_the_window() {
        // Touching, overlapping and empty operators of random lengths.
        let mut seed = 11u64;
        let mut random = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        let list: Vec<_> = (0..800).map(|_| (random(50_000) as i64, random(9) * random(40), 0, 0, OpKind::Operator)).collect();
        let ops = table(&list, &[false]);
        let rows = OpRows::build(&ops);
        for columns in [1, 7, 100, 3_000, 70_000] {
            let bounds: Vec<i64> = (0..=columns).map(|i| i * 60_000 / columns).collect();
            let spans = rows.spans(&ops, 0, &bounds);
            assert_eq!(spans.iter().map(|s| u64::from(s.count)).sum::<u64>(), 800, "{columns} columns");
            assert!(spans.windows(2).all(|w| w[0].left <= w[1].left), "{columns} columns");
            assert!(spans.iter().all(|s| s.left < s.right && i64::from(s.right) <= columns));
        }
    }
}
