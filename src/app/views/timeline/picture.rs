//! The contents of a timeline window, computed off the UI thread: curves by pixel column, strata, their pixels.

use super::marks::{Cluster, DeviceCall, Marks, Named, Range, clusters};
use crate::app::data::device::DeviceData;
use crate::app::state::{Axis, shared};
use vramscope_core::model::{DeviceRecording, Progress};
use vramscope_core::query::matching::Matching;

use vramscope_core::tables::{Cell, LifetimeId, Quantity, Strata, StrataRun, strata};

/// A part of the axis at a resolution in physical pixel columns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    pub axis: Axis,
    pub from: f64,
    pub to: f64,
    pub columns: usize,
}

impl Window {
    pub fn bounds(&self, device: &DeviceRecording) -> Vec<u32> {
        shared::bounds(device, self.axis, self.from, self.to, self.columns)
    }

    /// Width of a column on the axis.
    fn step(&self) -> f64 {
        (self.to - self.from) / self.columns.max(1) as f64
    }

    /// The place on the axis of a position in columns.
    pub fn at(&self, column: f64) -> f64 {
        self.from + self.step() * column
    }

    /// The column at a place on the axis, if it is inside.
    pub fn column(&self, x: f64) -> Option<usize> {
        let share = (x - self.from) / (self.to - self.from);
        (0.0..1.0).contains(&share).then(|| (share * self.columns as f64) as usize)
    }

    /// The position of a place on the axis, in columns from the left edge; may be outside.
    pub fn place(&self, x: f64) -> f32 {
        ((x - self.from) / (self.to - self.from) * self.columns as f64) as f32
    }
}

/// An annotation, or several merged ones that are too narrow, on one level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StepBox {
    /// Columns from the window's left edge.
    pub left: f32,
    pub right: f32,
    pub depth: u16,
    pub first: Range,
    pub last: Range,
    pub count: u32,
    /// For steps and phases: the highest bytes in use within it, and the first event with them.
    pub peak: Option<(u64, u32)>,
}

impl StepBox {
    /// For steps and phases: the first and last event, which a click chooses as the range.
    pub fn events(&self) -> Option<(u32, u32)> {
        let is_part = matches!(self.first.named, Named::Step(_) | Named::Phase(_));
        is_part.then_some((self.first.first, self.last.end.saturating_sub(1).max(self.first.first)))
    }
}

pub(super) struct WindowPicture {
    pub window: Window,
    pub reserved: Vec<Cell>,
    /// Reserved memory is known, from segments or from the source's totals.
    pub has_reserved: bool,
    pub active: Vec<Cell>,
    /// Empty when the source has only whole blocks, since the line would equal that of active.
    pub requested: Vec<Cell>,
    /// Bytes held by the allocations that match the query.
    pub matching: Option<Vec<Cell>>,
    pub calls: Vec<Cluster<DeviceCall>>,
    /// The last device call before the window and the first one after it.
    pub calls_around: [Option<u32>; 2],
    pub steps: Vec<StepBox>,
    pub phases: Vec<StepBox>,
}

impl WindowPicture {
    /// Computes the picture. Recomputes at most 64 events per column and curve.
    pub fn compute(data: &DeviceData, marks: Option<&Marks>, matching: Option<&Matching>, window: Window) -> Self {
        let device = data.device();
        let bounds = window.bounds(device);
        let columns = |q| data.tables.curves.columns(device, &data.tables.lifetimes, q, &bounds);
        let (reserved, (active, requested)) = rayon::join(
            || columns(Quantity::Reserved),
            || rayon::join(|| columns(Quantity::Active), || columns(Quantity::Requested)),
        );
        let requested = if device.can_show.requested.is_known() { requested } else { Vec::new() };
        let has_reserved = data.tables.curves.peak(Quantity::Reserved).0 > 0;
        let (mut calls, mut calls_around) = (Vec::new(), [None; 2]);
        let (mut steps, mut phases) = (Vec::new(), Vec::new());
        if let Some(marks) = marks {
            let (from, to) = (bounds.first().copied().unwrap_or(0), bounds.last().copied().unwrap_or(0));
            let first = marks.calls.partition_point(|c| c.event < from);
            let end = marks.calls.partition_point(|c| c.event < to).max(first);
            let visible = &marks.calls[first..end];
            calls_around =
                [first.checked_sub(1).and_then(|i| marks.calls.get(i)), marks.calls.get(end)].map(|c| c.map(|c| c.event));
            let place = |c: &DeviceCall| window.place(shared::position(device, window.axis, c.event));
            calls = clusters(visible.iter().map(|c| (place(c), *c)), 3.0);
            (steps, phases) = (step_boxes(&marks.ranges, &window), step_boxes(&marks.phases, &window));
            for b in steps.iter_mut().chain(&mut phases) {
                let within = |(first, last): (u32, u32)| {
                    data.tables.curves.peak_in(device, &data.tables.lifetimes, Quantity::Active, first, last.saturating_add(1))
                };
                b.peak = b.events().and_then(within);
            }
        }
        let matching = matching.map(|m| m.columns(device, &data.tables, &bounds));
        WindowPicture { window, reserved, has_reserved, active, requested, matching, calls, calls_around, steps, phases }
    }

    /// The events that bound a gap between device calls: left of cluster `at`, or right of the last one when `at` is their
    /// number. The gap reaches from the previous call (or the first event) to the next call (or the last event), also beyond the
    /// window.
    pub fn gap(&self, device: &DeviceRecording, at: usize) -> (u32, u32) {
        let last = device.events.len().saturating_sub(1) as u32;
        let before = at.checked_sub(1).and_then(|i| self.calls.get(i)).map(|c| c.last.event);
        let after = self.calls.get(at).map(|c| c.first.event);
        (before.or(self.calls_around[0]).unwrap_or(0), after.or(self.calls_around[1]).unwrap_or(last))
    }
}

/// Start and end of an annotation on an axis.
pub(super) fn extent(range: &Range, axis: Axis) -> (f64, f64) {
    match axis {
        Axis::Event => (f64::from(range.first), f64::from(range.end)),
        Axis::Time => (range.from_us as f64, range.to_us as f64),
    }
}

/// Width in columns of a box of merged annotations, enough for a name.
const FOLDED_BOX: f64 = 80.0;

/// The annotations of a window as boxes. Annotations under three columns wide are merged with neighbours of the same level. The
/// grouping depends on the zoom only, so that panning moves boxes and never regroups them.
fn step_boxes(ranges: &[Range], window: &Window) -> Vec<StepBox> {
    let mut boxes: Vec<StepBox> = Vec::new();
    // The last box of each level, into which a narrow one may be merged.
    let mut last: Vec<Option<usize>> = Vec::new();
    let column = window.step();
    let is_narrow = |(from, to): (f64, f64)| to - from < 3.0 * column;
    let slot = |range: &Range| (extent(range, window.axis).0 / (FOLDED_BOX * column)).floor();
    for range in ranges {
        let (from, to) = extent(range, window.axis);
        if to < window.from || from > window.to {
            continue;
        }
        let (left, right) = (window.place(from).max(-1.0), window.place(to).min(window.columns as f32 + 1.0));
        let level = usize::from(range.depth);
        if last.len() <= level {
            last.resize(level + 1, None);
        }
        if let Some(open) = last[level].map(|i| &mut boxes[i])
            && is_narrow((from, to))
            && is_narrow(extent(&open.first, window.axis))
            && slot(&open.first) == slot(range)
            && left - open.right < 2.0
        {
            open.right = open.right.max(right);
            open.last = *range;
            open.count += 1;
            continue;
        }
        last[level] = Some(boxes.len());
        boxes.push(StepBox { left, right, depth: range.depth, first: *range, last: *range, count: 1, peak: None });
    }
    boxes
}

/// The strata of a window between two byte heights.
pub(super) struct StrataPicture {
    pub window: Window,
    /// Bytes at the lower edge.
    pub low: f64,
    /// Bytes at the upper edge.
    pub high: f64,
    pub strata: Strata,
    /// For each pixel column, its column in `strata`.
    pub column: Vec<u32>,
}

/// Blocks are folded only below one over this fraction of a pixel: a pixel takes the colour that covers most of it, so its
/// contents must be known.
const FOLD_BELOW: f64 = 8.0;

impl StrataPicture {
    /// Computes the strata; `None` when cancelled.
    pub fn compute(data: &DeviceData, window: Window, low: f64, high: f64, rows: usize, progress: &Progress) -> Option<Self> {
        let device = data.device();
        let bounds = window.bounds(device);
        let (distinct, column) = distinct_columns(&bounds);
        let thin = ((high - low) / rows.max(1) as f64 / FOLD_BELOW) as u64;
        let strata = strata(device, &data.tables, &distinct, thin, Quantity::Active, progress).ok()?;
        Some(StrataPicture { window, low, high, strata, column })
    }

    /// The column of `strata` at a place on the axis.
    pub fn column_at(&self, x: f64) -> Option<usize> {
        self.column.get(self.window.column(x)?).map(|&c| c as usize)
    }

    /// The run that covers most of the bytes `low..high` in a column, and how many allocations reach into them.
    pub fn hit(&self, column: usize, low: f64, high: f64) -> Option<(StrataRun, u32)> {
        let runs = self.strata.runs_of(column);
        let first = runs.partition_point(|r| (r.top as f64) <= low);
        let inside = runs[first..].iter().take_while(|r| (r.bottom as f64) < high);
        let covered = |r: &StrataRun| (r.top as f64).min(high) - (r.bottom as f64).max(low);
        let mut best: Option<(StrataRun, f64)> = None;
        let mut count = 0;
        for run in inside {
            count += run.folded.max(1);
            if best.is_none_or(|(_, most)| covered(run) > most) {
                best = Some((*run, covered(run)));
            }
        }
        best.map(|(run, _)| (run, count))
    }

    /// Bytes from the bottom of the stack that an allocation occupies in each pixel column; `None` where it is not live. For a
    /// folded run it is the extent of the run. O(columns · log runs).
    pub fn profile(&self, data: &DeviceData, id: LifetimeId) -> Vec<Option<(u64, u64)>> {
        let lifetimes = &data.tables.lifetimes;
        let distinct: Vec<Option<(u64, u64)>> = (0..self.strata.columns.len())
            .map(|i| {
                let is_live = lifetimes.is_live_at(id, self.strata.columns[i].event);
                if is_live { locate(self.strata.runs_of(i), id) } else { None }
            })
            .collect();
        self.column.iter().map(|&c| distinct.get(c as usize).copied().flatten()).collect()
    }
}

/// The extent of a live allocation in a column, or of its folded run. Runs are in order of allocation.
fn locate(runs: &[StrataRun], id: LifetimeId) -> Option<(u64, u64)> {
    let run = runs.get(runs.partition_point(|r| r.first <= id).checked_sub(1)?)?;
    (run.folded > 0 || run.lifetime == id).then_some((run.bottom, run.top))
}

/// Columns without events show the same state as the column before. Returns the bounds of the distinct columns, and for each
/// pixel column the index of the one to show.
fn distinct_columns(bounds: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let Some(&first) = bounds.first() else { return (Vec::new(), Vec::new()) };
    let mut distinct = vec![first];
    let mut column = Vec::with_capacity(bounds.len() - 1);
    // True while the last distinct column shows the state that an empty column inherits.
    let mut carries = false;
    for w in bounds.windows(2) {
        let events = w[1] - w[0];
        if events > 0 || !carries {
            distinct.push(w[1]);
        }
        carries = events <= 1;
        column.push(distinct.len() as u32 - 2);
    }
    (distinct, column)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use egui::Color32;

    use super::*;
    use crate::app::data::colours::{Colours, Focus};
    use crate::app::data::samples;
    use crate::app::state::colour_by::ColourBy;
    use crate::app::theme::Tokens;
    use crate::app::views::timeline::image::StrataImage;
    use crate::app::views::timeline::marks::Named;
    use vramscope_core::model::StackId;

    #[test]
    fn columns_without_events_share_one_state() {
        // Columns: events 0 and 1; none; none; 2; none; 3, 4 and 5; none; none.
        let (distinct, column) = distinct_columns(&[0, 2, 2, 2, 3, 3, 6, 6, 6]);
        assert_eq!(distinct, vec![0, 2, 2, 3, 6, 6]);
        assert_eq!(column, vec![0, 1, 1, 2, 2, 3, 4, 4]);
        assert_eq!(distinct_columns(&[]), (Vec::new(), Vec::new()));
        assert_eq!(distinct_columns(&[7]).1.len(), 0);
    }

    #[test]
    fn a_window_knows_its_columns() {
        let w = Window { axis: Axis::Event, from: 100.0, to: 200.0, columns: 50 };
        assert_eq!(w.column(100.0), Some(0));
        assert_eq!(w.column(199.9), Some(49));
        assert_eq!((w.column(200.0), w.column(99.0)), (None, None));
        assert_eq!(w.place(150.0), 25.0);
    }

    fn range(first: u32, end: u32, depth: u16) -> Range {
        Range { named: Named::Step(first), depth, first, end, from_us: 0, to_us: 0 }
    }

    #[test]
    fn narrow_annotations_are_merged_by_level_and_counted() {
        let w = Window { axis: Axis::Event, from: 0.0, to: 1000.0, columns: 100 };
        let ranges =
            [range(0, 400, 0), range(10, 12, 1), range(14, 16, 1), range(20, 22, 1), range(400, 900, 0), range(2000, 3000, 0)];
        let boxes = step_boxes(&ranges, &w);
        let seen: Vec<(u16, u32)> = boxes.iter().map(|b| (b.depth, b.count)).collect();
        assert_eq!(seen, vec![(0, 1), (1, 3), (0, 1)]);
        assert_eq!((boxes[0].left, boxes[0].right), (0.0, 40.0));
    }

    /// Panning moves boxes but never regroups them, because flickering boxes cannot be read.
    #[test]
    fn boxes_of_many_keep_their_members_while_the_window_moves() {
        let ranges: Vec<Range> = (0..4_000).map(|i| range(i * 5, i * 5 + if i % 50 == 0 { 40 } else { 5 }, 0)).collect();
        let window = |from: f64| Window { axis: Axis::Event, from, to: from + 10_000.0, columns: 1_000 };
        let whole = |from: f64| -> Vec<(u32, u32)> {
            let boxes = step_boxes(&ranges, &window(from));
            let inside =
                boxes.iter().filter(|b| f64::from(b.first.first) > from + 900.0 && f64::from(b.last.end) < from + 9_000.0);
            inside.map(|b| (b.first.first, b.count)).collect()
        };
        let still = whole(2_000.0);
        assert!(still.len() > 20);
        for by in 1..200 {
            let moved = whole(2_000.0 + f64::from(by) * 0.37);
            let seen = moved.iter().filter(|b| still.contains(b)).count();
            assert!(seen + 2 >= moved.len(), "moved by {by}: {seen} of {}", moved.len());
        }
    }

    #[test]
    fn phases_follow_each_other_and_know_their_peaks() {
        let data = samples::device("gpt_train.pickle");
        let marks = Marks::of(&data);
        let phase = |r: &Range| if let Named::Phase(phase) = r.named { phase.name() } else { "" };
        let names: Vec<&str> = marks.phases.iter().map(phase).collect();
        let once = ["forward", "backward", "optimizer"];
        assert!(names.windows(3).filter(|w| *w == once).count() >= 4, "{names:?}");
        assert!(marks.phases.windows(2).all(|w| w[0].end <= w[1].first), "one at a time");
        let bounds = &data.steps().bounds;
        assert!(
            marks.phases.iter().all(|r| !bounds.iter().any(|b| (r.first + 1..r.end).contains(b))),
            "none goes on into the next step"
        );
        let device = data.device();
        let last = device.events.len() as u32;
        let window = Window { axis: Axis::Event, from: 0.0, to: f64::from(last), columns: 900 };
        let p = WindowPicture::compute(&data, Some(&marks), None, window);
        let highest = p.phases.iter().filter_map(|b| b.peak).max_by_key(|p| p.0);
        assert_eq!(highest.map(|p| p.0), Some(data.tables.curves.peak(Quantity::Active).0));
        for b in &p.phases {
            let ((first, last), (_, at)) = (b.events().unwrap(), b.peak.unwrap());
            assert!((first..=last).contains(&at), "{first} {at} {last}");
        }
    }

    /// A box of many annotations names them, so it must be wide enough for text, and no annotation between two boxes is lost.
    #[test]
    fn many_narrow_steps_share_boxes_wide_enough_to_be_named() {
        let w = Window { axis: Axis::Event, from: 0.0, to: 10_000.0, columns: 1_000 };
        let ranges: Vec<Range> = (0..2_000).map(|i| range(i * 5, i * 5 + 5, 0)).collect();
        let boxes = step_boxes(&ranges, &w);
        assert_eq!(boxes.iter().map(|b| b.count).sum::<u32>(), 2_000);
        assert!(boxes.windows(2).all(|b| b[0].right == b[1].left && b[0].last.end == b[1].first.first));
        assert!(boxes[..boxes.len() - 1].iter().all(|b| f64::from(b.right - b.left) >= FOLDED_BOX), "{}", boxes.len());
    }

    #[test]
    fn an_allocation_is_found_among_folded_ones() {
        let run = |bottom, id: u32, folded| StrataRun {
            bottom,
            top: bottom + 10,
            lifetime: if folded > 0 { LifetimeId::NONE } else { LifetimeId(id) },
            first: LifetimeId(id),
            largest: LifetimeId(id),
            folded,
        };
        let runs = [run(0, 0, 3), run(10, 5, 0), run(20, 7, 0), run(30, 8, 2), run(40, 12, 0), run(50, 13, 4)];
        let at = |id| locate(&runs, LifetimeId(id)).map(|r| r.0);
        assert_eq!((at(2), at(5), at(7), at(9), at(12), at(99)), (Some(0), Some(10), Some(20), Some(30), Some(40), Some(50)));
        assert_eq!(at(6), None, "between two that stand alone there is nothing");
        assert_eq!(locate(&[], LifetimeId(1)), None);
    }

    #[test]
    fn every_column_is_as_high_as_the_peak_inside_it_at_every_zoom() {
        let data = samples::device("gpt_train.pickle");
        let n = data.device().events.len() as f64;
        let rows = 150;
        let colours = Arc::new(Colours::build(&data, ColourBy::SizeClass));
        for (from, to) in [(0.0, n), (n * 0.2, n * 0.3), (1950.0, 1990.0)] {
            let window = Window { axis: Axis::Event, from, to, columns: 240 };
            let curves = WindowPicture::compute(&data, None, None, window);
            let high = curves.active.iter().map(|c| c.max).max().unwrap() as f64 * 1.1;
            let picture = Arc::new(StrataPicture::compute(&data, window, 0.0, high, rows, &Progress::new()).unwrap());
            let tokens = Tokens::of_theme(egui::Theme::Dark);
            let image = StrataImage::compute(&data, Arc::clone(&picture), Arc::clone(&colours), tokens, &Focus::default(), rows);
            assert_eq!(image.pixels.len(), 240 * rows);
            for (x, cell) in curves.active.iter().enumerate() {
                let column = &picture.strata.columns[picture.column[x] as usize];
                assert_eq!(column.total, cell.max, "column {x} of {from}..{to}");
                let painted = (0..rows).find(|y| image.pixels[y * 240 + x] != Color32::TRANSPARENT).map_or(0, |y| rows - y);
                let expected = cell.max as f64 / high * rows as f64;
                assert!((painted as f64 - expected).abs() <= 0.51, "column {x}: {painted} rows for {expected}");
            }
        }
    }

    #[test]
    fn a_gap_between_device_calls_does_not_depend_on_the_width() {
        let data = samples::device("gpt_train.pickle");
        let device = data.device();
        let marks = Marks::of(&data);
        let last_call = marks.calls.last().unwrap().event;
        let last = device.events.len() as u32 - 1;
        for columns in [300, 900, 1200, 2400] {
            let window = Window { axis: Axis::Event, from: 0.0, to: f64::from(last + 1), columns };
            let p = WindowPicture::compute(&data, Some(&marks), None, window);
            assert_eq!(p.gap(device, p.calls.len()), (last_call, last), "{columns} columns");
        }
        let text = crate::app::views::timeline::lanes::span_text(device, last_call, last);
        assert_eq!(text.replace(vramscope_core::units::NBSP, " "), "42.010 ms");
        // The text about a window never names a time longer than the window.
        let said = |axis, from, to| {
            let window = Window { axis, from, to, columns: 900 };
            crate::app::views::timeline::lanes::gap_text(device, &window, (last_call, last))
                .replace(vramscope_core::units::NBSP, " ")
        };
        let events = f64::from(last + 1);
        assert_eq!(said(Axis::Event, 0.0, events), "42.010 ms");
        let (_, whole) = shared::domain(device, Axis::Time);
        assert_eq!(said(Axis::Time, 0.0, whole), "42.010 ms");
        assert_eq!(said(Axis::Time, whole - 1_500.0, whole - 500.0), "1.000 ms");
        let middle = last_call + (last - last_call) / 2;
        let inside =
            crate::app::views::timeline::lanes::span_text(device, middle, last).replace(vramscope_core::units::NBSP, " ");
        assert_eq!(said(Axis::Event, f64::from(middle) + 0.5, events), inside);
        // A window inside the gap on the time axis shows no call but still reports the whole gap.
        let (_, end) = shared::domain(device, Axis::Time);
        let window = Window { axis: Axis::Time, from: end - 30.0, to: end - 20.0, columns: 900 };
        let p = WindowPicture::compute(&data, Some(&marks), None, window);
        assert_eq!((p.calls.len(), p.gap(device, 0)), (0, (last_call, last)));
    }

    #[test]
    fn a_stack_in_focus_dims_the_others() {
        let data = samples::device("gpt_train.pickle");
        let window = Window { axis: Axis::Event, from: 0.0, to: data.device().events.len() as f64, columns: 60 };
        let colours = Arc::new(Colours::build(&data, ColourBy::Stack));
        let high = data.tables.curves.peak(Quantity::Active).0 as f64;
        let picture = Arc::new(StrataPicture::compute(&data, window, 0.0, high, 80, &Progress::new()).unwrap());
        let tokens = Tokens::of_theme(egui::Theme::Light);
        let paint =
            |focus: Focus| StrataImage::compute(&data, Arc::clone(&picture), Arc::clone(&colours), tokens, &focus, 80).pixels;
        let all = paint(Focus::default());
        let dimmed = paint(Focus::stack(StackId(0)));
        let changed = all.iter().zip(&dimmed).filter(|(a, b)| a != b).count();
        assert!(changed > 0);
        let every: Vec<u8> = (0..colours.classes.len() as u8).collect();
        let of_classes = paint(Focus::classes(&every));
        assert!(all == of_classes, "with every class in focus nothing is dimmed");
        // A query that matches one stack dims the same blocks as a focus on that stack. A query that matches everything dims
        // nothing.
        let of_rows = |keeps: &dyn Fn(LifetimeId) -> bool| {
            let rows = (0..data.tables.lifetimes.len() as u32).filter(|&i| keeps(LifetimeId(i))).collect();
            let matching = Matching::of(data.device(), &data.tables, rows, &Progress::new()).unwrap();
            paint(Focus::matching(Arc::new(matching)))
        };
        assert!(of_rows(&|id| data.tables.lifetimes.stack(data.device(), id) == StackId(0)) == dimmed);
        assert!(all == of_rows(&|_| true));
    }
}
