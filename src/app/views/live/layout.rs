//! Layout of the live view: its parts, the sample of each pixel column, rows of labels that do not touch.

use egui::Rect;

use crate::app::widgets::{Cut, byte_ticks};
use vramscope_core::model::{Bands, Gap, LiveMark, MarkKind, Sample};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Areas {
    /// The bar of the card, with its legend.
    pub bar: Rect,
    pub chart: Rect,
    pub table: Rect,
    /// Ways to attach, terms, costs; `None` when the view is narrow.
    pub side: Option<Rect>,
}

const SIDE: f32 = 340.0;
const BAR: f32 = 92.0;

/// Divides a pane; `rows` is the number of rows in the table.
pub(super) fn areas(pane: Rect, rows: usize) -> Areas {
    let has_side = pane.width() >= 1000.0;
    let left = if has_side { pane.with_max_x(pane.right() - SIDE) } else { pane };
    let bar = left.with_max_y(left.top() + BAR);
    // Header, column names, rows: at most 42 % of the remaining height. More rows scroll.
    let wanted = 28.0 + 24.0 + rows as f32 * 32.0 + 8.0;
    let table = wanted.clamp(120.0, ((left.height() - BAR) * 0.42).max(120.0));
    let split = left.bottom() - table;
    Areas {
        bar,
        chart: left.down(bar.bottom(), split),
        table: left.with_min_y(split),
        side: has_side.then(|| pane.with_min_x(left.right())),
    }
}

/// Samples per block of [`Peaks`].
const BLOCK: usize = 64;

/// Finds the highest sample of any range in a series of any length. Stores one index per block of samples.
#[derive(Clone, Debug, Default)]
pub(super) struct Peaks {
    /// The index of the highest sample in each full block.
    highest: Vec<usize>,
    /// Time of the first sample and length of the series it was built from.
    key: (i64, usize),
}

impl Peaks {
    /// Updates it in O(added samples), or O(all) after the series was thinned.
    pub fn update(&mut self, samples: &[Sample]) {
        let key = (samples.first().map_or(0, |s| s.time_us), samples.len());
        if key == self.key {
            return;
        }
        // Thinning shortens the series, even if the first sample stays.
        if key.0 != self.key.0 || key.1 < self.key.1 {
            self.highest.clear();
        }
        self.key = key;
        while (self.highest.len() + 1) * BLOCK <= samples.len() {
            let from = self.highest.len() * BLOCK;
            self.highest.push(highest(samples, from, from + BLOCK));
        }
    }

    /// The index of the highest sample in `from..to`, which must not be empty.
    pub fn of(&self, samples: &[Sample], from: usize, to: usize) -> usize {
        let (first, last) = (from.div_ceil(BLOCK), (to / BLOCK).min(self.highest.len()));
        if first >= last {
            return highest(samples, from, to);
        }
        let mut best = highest(samples, from, (first * BLOCK).max(from + 1));
        for &i in &self.highest[first..last] {
            if samples[i].used > samples[best].used {
                best = i;
            }
        }
        let end = if last * BLOCK < to { highest(samples, last * BLOCK, to) } else { best };
        if samples[end].used > samples[best].used { end } else { best }
    }
}

fn highest(samples: &[Sample], from: usize, to: usize) -> usize {
    let mut best = from;
    for i in from..to {
        if samples[i].used > samples[best].used {
            best = i;
        }
    }
    best
}

/// The sample that each of `columns` pixel columns over `from_us..to_us` shows: the highest one inside it, or else the last one
/// before it. `None` before the first sample, after the last one, and inside gaps.
pub(super) fn columns(
    samples: &[Sample],
    peaks: &Peaks,
    gaps: &[Gap],
    (from_us, to_us): (f64, f64),
    columns: usize,
) -> Vec<Option<usize>> {
    let Some(last) = samples.last() else { return vec![None; columns] };
    let step = (to_us - from_us) / columns.max(1) as f64;
    let time = |i: usize| (from_us + step * i as f64) as i64;
    let mut at = samples.partition_point(|s| s.time_us < time(0));
    (0..columns)
        .map(|i| {
            let (start, end) = (time(i), time(i + 1));
            let next = at + samples[at..].partition_point(|s| s.time_us < end);
            let range = (at, next);
            at = next;
            if range.0 < range.1 {
                return Some(peaks.of(samples, range.0, range.1));
            }
            let is_gap = gaps.iter().any(|g| g.from_us < start && end <= g.to_us);
            (range.0 > 0 && start <= last.time_us && !is_gap).then(|| range.0 - 1)
        })
        .collect()
}

/// The last sample at or before an instant.
pub(super) fn sample_at(samples: &[Sample], time_us: i64) -> Option<usize> {
    samples.partition_point(|s| s.time_us <= time_us).checked_sub(1)
}

/// The top of the vertical axis for the highest visible use: a round value slightly above it, at most the card's size.
pub(super) fn top_of_axis(highest: u64, capacity: u64) -> u64 {
    let wanted = (highest as f64 * 1.08).max(64.0 * MIB);
    let step = byte_ticks(0.0, wanted, 10).step;
    let top = (wanted / step).ceil() * step;
    if capacity > 0 && top > capacity as f64 * 0.92 { capacity } else { top as u64 }
}

const MIB: f64 = 1024.0 * 1024.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MarkPlace {
    pub mark: usize,
    /// x of the mark's line.
    pub x: f32,
    /// The row of its label (0 is the upper one); `None` when only the line is drawn because there is no room.
    pub row: Option<usize>,
    pub is_left: bool,
}

/// Places labels in two rows. A label that would touch another goes to the other row; when both are full, it is dropped. Marks in
/// one pixel share a line. When a process ends and another starts there, both get a label while there is room.
/// `range` is the left and right end of the lines, and the right end of the labels.
pub(super) fn mark_places(
    marks: &[LiveMark],
    x_of: impl Fn(i64) -> f32,
    range: (f32, f32, f32),
    width_of: impl Fn(&str) -> f32,
) -> Vec<MarkPlace> {
    let mut free_from = [f32::NEG_INFINITY; 2];
    let mut out: Vec<MarkPlace> = Vec::new();
    for (i, mark) in marks.iter().enumerate() {
        let x = x_of(mark.time_us);
        if x < range.0 - 0.5 || x > range.1 + 0.5 {
            continue;
        }
        let width = width_of(&mark.text) + 10.0;
        let is_left = x + width > range.2;
        let (from, to) = if is_left { (x - width, x) } else { (x, x + width) };
        let row = (0..2).find(|&r| from >= free_from[r] && from >= range.0);
        // When one process ends and another starts between two readings, both get a label if there is room. Next to a mark set by
        // the program, a second label would take space from later ones.
        if let Some(p) = out.last().filter(|p| x - p.x < 1.0) {
            let are_processes = mark.kind == MarkKind::Process && marks[p.mark].kind == MarkKind::Process;
            if row.is_none() || !are_processes {
                continue;
            }
        }
        if let Some(r) = row {
            free_from[r] = to + 4.0;
        }
        out.push(MarkPlace { mark: i, x, row, is_left });
    }
    out
}

/// The mark at `x` or within a few points of it.
pub(super) fn nearest(places: &[MarkPlace], x: f32) -> Option<usize> {
    let near = places.iter().map(|place| ((place.x - x).abs(), place.mark)).filter(|near| near.0 <= 4.0);
    near.min_by(|a, b| a.0.total_cmp(&b.0)).map(|near| near.1)
}

/// A band of the stack, in the order of [`Bands::PARTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::app::views) enum Band {
    Driver,
    Others,
    Unattributed,
    Unsplit,
    Outside,
    Allocated,
    Cached,
}

impl Band {
    pub const ALL: [Band; 7] =
        [Band::Driver, Band::Others, Band::Unattributed, Band::Unsplit, Band::Outside, Band::Allocated, Band::Cached];

    pub fn bytes(self, bands: &Bands) -> u64 {
        Bands::PARTS[self as usize].2(bands)
    }

    pub fn name(self) -> &'static str {
        Bands::PARTS[self as usize].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(used: &[u64]) -> Vec<Sample> {
        used.iter().enumerate().map(|(i, u)| Sample { time_us: i as i64 * 10, used: Some(*u), ..Sample::default() }).collect()
    }

    #[test]
    fn a_column_shows_its_peak_and_holds_between_samples() {
        let s = series(&[1, 9, 2, 3]);
        let mut peaks = Peaks::default();
        peaks.update(&s);
        // Two samples per column: the higher one is shown.
        assert_eq!(columns(&s, &peaks, &[], (0.0, 40.0), 2), [Some(1), Some(3)]);
        // Many columns per sample: steps, and nothing before the first or after the last.
        let fine = columns(&s, &peaks, &[], (-20.0, 60.0), 16);
        assert_eq!(fine[..4], [None; 4]);
        assert_eq!(fine[4..10], [Some(0), Some(0), Some(1), Some(1), Some(2), Some(2)]);
        assert_eq!(fine[12..], [None; 4]);
        let gap = Gap { from_us: 10, to_us: 20 };
        assert_eq!(columns(&s, &peaks, &[gap], (-20.0, 60.0), 16)[7], None);
    }

    #[test]
    fn peaks_of_any_range_equal_a_scan() {
        let s = series(&(0..1000u64).map(|i| i * 7919 % 1009).collect::<Vec<_>>());
        let mut peaks = Peaks::default();
        peaks.update(&s[..500]);
        peaks.update(&s);
        for (from, to) in [(0, 1000), (3, 4), (63, 65), (64, 128), (10, 700), (900, 1000), (1, 999)] {
            assert_eq!(s[peaks.of(&s, from, to)].used, s[highest(&s, from, to)].used, "{from}..{to}");
        }
        // Thinned, so shorter than before.
        peaks.update(&s[..300]);
        assert_eq!(s[peaks.of(&s, 0, 300)].used, s[highest(&s, 0, 300)].used);
    }

    #[test]
    fn labels_move_to_the_other_row_then_fold() {
        let mark = |t: i64, text: &str| LiveMark { time_us: t, kind: MarkKind::User, text: text.into() };
        let marks = [mark(0, "aaaa"), mark(10, "bbbb"), mark(20, "cccc"), mark(20, "same"), mark(95, "dddd"), mark(200, "out")];
        let places = mark_places(&marks, |t| t as f32, (0.0, 100.0, 100.0), |s| s.len() as f32 * 8.0);
        let rows: Vec<_> = places.iter().map(|p| (p.mark, p.row, p.is_left)).collect();
        assert_eq!(rows, [(0, Some(0), false), (1, Some(1), false), (2, None, false), (4, Some(0), true)]);
    }

    #[test]
    fn the_axis_ends_above_the_highest_use_and_never_above_the_card() {
        assert!(top_of_axis(9163 << 20, 143_771 << 20) >= 9163 << 20);
        assert_eq!(top_of_axis(9163 << 20, 143_771 << 20), 10 << 30);
        assert_eq!(top_of_axis(140_000 << 20, 143_771 << 20), 143_771 << 20);
        assert!(top_of_axis(0, 0) > 0);
    }

    #[test]
    fn a_narrow_view_lets_go_of_the_side_and_keeps_the_rest() {
        let wide = areas(Rect::from_min_size(egui::Pos2::ZERO, egui::vec2(1600.0, 900.0)), 5);
        let narrow = areas(Rect::from_min_size(egui::Pos2::ZERO, egui::vec2(800.0, 500.0)), 50);
        assert!(wide.side.is_some() && narrow.side.is_none());
        assert!(narrow.chart.height() > 150.0 && narrow.table.height() >= 120.0);
    }
}
