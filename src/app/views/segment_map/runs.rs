//! Converts rows to runs of whole pixels, so that the cost of painting depends on the pixels and not on the number of blocks.
//!
//! Blocks thinner than a pixel share it: the pixel shows the kind with most bytes. The largest hole of a row is always visible.

use std::ops::Range;

use super::layout::{Plan, Row, Span, Unit};
use vramscope_core::model::BlockState;
use vramscope_core::tables::{BlockAt, LifetimeId, State};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunKind {
    /// A live block, with its class.
    Live(u8),
    /// A freed block that waits for another stream, with its class.
    Pending(u8),
    /// The rounding at the end of a live block, with its class.
    Rounding(u8),
    Hole,
    /// Address space of an expandable segment that is not mapped.
    Unmapped,
}

/// A run of pixels of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First pixel, from the row's left edge.
    pub from: u16,
    /// One past the last pixel.
    pub to: u16,
    pub kind: RunKind,
    /// The run ends where its block ends, so a gap is drawn there.
    pub ends: bool,
}

/// The visible part of all rows, as shares of the row's scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Left edge, 0 to 1.
    pub from: f64,
    /// Right edge, 0 to 1.
    pub to: f64,
    pub pixels: u16,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Runs {
    /// For each row, the range of its runs.
    pub rows: Vec<Range<u32>>,
    /// All runs, row by row and left to right. Runs of one pixel may overlap the start of the next.
    pub runs: Vec<Run>,
}

impl Runs {
    pub fn of(&self, row: usize) -> &[Run] {
        self.rows.get(row).and_then(|r| self.runs.get(r.start as usize..r.end as usize)).unwrap_or(&[])
    }

    /// Converts every row of a plan. `class` is the colour class of an allocation. O(blocks + pixels).
    pub fn new(plan: &Plan, state: &State, span: Span, window: Window, class: impl Fn(LifetimeId) -> u8) -> Self {
        let mut out = Runs::default();
        for row in &plan.rows {
            let first = out.runs.len() as u32;
            let scale = RowScale::new(plan, row, span, window);
            if row.units.len() == 1 {
                if let Some(unit) = plan.unit(row) {
                    draw_unit(&mut out.runs, state, unit, row, &scale, &class);
                }
            } else {
                draw_folded(&mut out.runs, plan, state, row, &scale, &class);
            }
            out.rows.push(first..out.runs.len() as u32);
        }
        out
    }
}

/// Maps the bytes of a row to pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowScale {
    /// Offset in the unit of the start of the row.
    start: f64,
    /// Offset in the unit of the leftmost visible byte.
    left: f64,
    per_pixel: f64,
    pixels: f64,
}

impl RowScale {
    pub fn new(plan: &Plan, row: &Row, span: Span, window: Window) -> Self {
        let whole = match span {
            Span::Normalised => row.to - row.from,
            Span::TrueSize | Span::Wrapped => plan.groups.get(row.group as usize).map_or(plan.longest, |g| g.across),
        }
        .max(1) as f64;
        RowScale {
            start: row.from as f64,
            left: row.from as f64 - row.lead as f64 + whole * window.from,
            per_pixel: (whole * (window.to - window.from) / f64::from(window.pixels.max(1))).max(f64::MIN_POSITIVE),
            pixels: f64::from(window.pixels),
        }
    }

    /// The pixel of an offset in the unit, clamped to the visible part.
    pub fn pixel(&self, offset: u64) -> f64 {
        ((offset as f64 - self.left) / self.per_pixel).clamp(0.0, self.pixels)
    }

    /// The offset in the unit at a pixel; `None` left of the start of the row.
    pub fn offset(&self, pixel: f64) -> Option<u64> {
        let offset = self.left + pixel * self.per_pixel;
        (offset >= self.start).then_some(offset as u64)
    }

    pub fn per_pixel(&self) -> f64 {
        self.per_pixel
    }
}

/// Bytes by kind inside one pixel.
#[derive(Default)]
struct Pixel {
    at: u16,
    is_used: bool,
    kinds: Vec<(RunKind, u64)>,
}

impl Pixel {
    fn add(&mut self, out: &mut Vec<Run>, at: u16, kind: RunKind, bytes: u64) {
        if self.is_used && self.at != at {
            self.flush(out);
        }
        (self.at, self.is_used) = (at, true);
        match self.kinds.iter_mut().find(|(k, _)| *k == kind) {
            Some((_, sum)) => *sum = sum.saturating_add(bytes),
            None => self.kinds.push((kind, bytes)),
        }
    }

    fn flush(&mut self, out: &mut Vec<Run>) {
        // Of equal kinds the first wins, so that pictures are deterministic.
        let most = self.kinds.iter().rev().max_by_key(|(_, bytes)| *bytes).map(|(k, _)| *k);
        if let Some(kind) = most {
            push(out, Run { from: self.at, to: self.at + 1, kind, ends: false });
        }
        self.kinds.clear();
        self.is_used = false;
    }
}

/// Appends a run, or extends the last one when it is of the same kind.
fn push(out: &mut Vec<Run>, run: Run) {
    match out.last_mut() {
        Some(last) if last.to == run.from && last.kind == run.kind && !last.ends && last.to > last.from => {
            last.to = run.to;
            last.ends = run.ends;
        }
        _ => out.push(run),
    }
}

fn kind_of(block: &BlockAt, class: &impl Fn(LifetimeId) -> u8) -> RunKind {
    match block.state {
        BlockState::Inactive => RunKind::Hole,
        BlockState::PendingFree => RunKind::Pending(class(block.lifetime)),
        BlockState::Active => RunKind::Live(class(block.lifetime)),
    }
}

fn blocks_of<'a>(state: &'a State, unit: &Unit) -> &'a [BlockAt] {
    state.blocks.get(unit.blocks.start as usize..unit.blocks.end as usize).unwrap_or(&[])
}

fn draw_unit(out: &mut Vec<Run>, state: &State, unit: &Unit, row: &Row, scale: &RowScale, class: &impl Fn(LifetimeId) -> u8) {
    let blocks = blocks_of(state, unit);
    let base = out.len();
    let (visible_from, visible_to) = (scale.left.max(row.from as f64), scale.left + scale.per_pixel * scale.pixels);
    let first = blocks.partition_point(|b| ((b.address + b.size - unit.address) as f64) <= visible_from);
    // Thin blocks are drawn over the ends of thick ones, so that a blocker thinner than a pixel is visible.
    let mut over = Vec::new();
    let mut thin = Pixel::default();
    let last_pixel = scale.pixels.max(1.0) as u16 - 1;
    let row_start = unit.address + row.from;
    let mut cursor = first.checked_sub(1).map_or(unit.address, |i| blocks[i].address + blocks[i].size).max(row_start);
    for block in &blocks[first..] {
        let from = block.address.max(row_start);
        let to = (block.address + block.size).min(unit.address + row.to);
        if (from - unit.address) as f64 >= visible_to || from >= to {
            break;
        }
        if from > cursor {
            span(out, scale, cursor - unit.address, from - unit.address, RunKind::Unmapped, true);
        }
        cursor = to;
        let (a, b) = (scale.pixel(from - unit.address), scale.pixel(to - unit.address));
        if b - a < 1.0 && ((to - from) as f64) < scale.per_pixel {
            thin.add(&mut over, (f64::midpoint(a, b) as u16).min(last_pixel), kind_of(block, class), block.size);
            continue;
        }
        let (a, b) = (a.round() as u16, b.round() as u16);
        match block.state {
            BlockState::Active if block.requested > 0 && block.requested < block.size => {
                let class = class(block.lifetime);
                let used = scale.pixel((block.address + block.requested).clamp(from, to) - unit.address).round() as u16;
                let used = used.clamp(a, b);
                if used > a {
                    push(out, Run { from: a, to: used, kind: RunKind::Live(class), ends: used == b });
                }
                if b > used {
                    push(out, Run { from: used, to: b, kind: RunKind::Rounding(class), ends: true });
                }
            }
            _ if b > a => push(out, Run { from: a, to: b, kind: kind_of(block, class), ends: true }),
            _ => {}
        }
    }
    thin.flush(&mut over);
    // An unmapped part may continue to the end of the row.
    let row_end = unit.address + row.to;
    if row_end > cursor && ((cursor - unit.address) as f64) < visible_to {
        span(out, scale, cursor - unit.address, row.to, RunKind::Unmapped, true);
    }
    out.append(&mut over);
    if row.largest_hole > 0 && row.largest_hole == unit.largest_hole {
        keep_hole(out, base, scale, unit.largest_at - unit.address, unit.largest_hole);
    }
}

fn span(out: &mut Vec<Run>, scale: &RowScale, from: u64, to: u64, kind: RunKind, ends: bool) {
    let (a, b) = (scale.pixel(from).round() as u16, scale.pixel(to).round() as u16);
    if b > a {
        push(out, Run { from: a, to: b, kind, ends });
    }
}

/// Draws the largest hole on top if folding hid it.
fn keep_hole(out: &mut Vec<Run>, base: usize, scale: &RowScale, offset: u64, size: u64) {
    let (a, b) = (scale.pixel(offset), scale.pixel(offset + size));
    if a >= scale.pixels || b <= 0.0 {
        return;
    }
    let (a, b) = (a.round().min(scale.pixels - 1.0) as u16, b.round() as u16);
    if b > a {
        // The hole is at least a pixel wide, so it was drawn.
        return;
    }
    if !out[base..].iter().any(|r| r.kind == RunKind::Hole && (r.from..r.to).contains(&a)) {
        out.push(Run { from: a, to: a + 1, kind: RunKind::Hole, ends: false });
    }
}

/// Overlays several units of equal size: each pixel shows the kind that most of them have there.
fn draw_folded(out: &mut Vec<Run>, plan: &Plan, state: &State, row: &Row, scale: &RowScale, class: &impl Fn(LifetimeId) -> u8) {
    let base = out.len();
    let pixels = scale.pixels as usize;
    let mut votes: Vec<Vec<(RunKind, u64)>> = vec![Vec::new(); pixels];
    let mut largest: Option<(u64, u64)> = None;
    for unit in plan.units_of(row) {
        if unit.largest_hole > largest.map_or(0, |l| l.1) {
            largest = Some((unit.largest_at - unit.address, unit.largest_hole));
        }
        for block in blocks_of(state, unit) {
            let (from, to) = (block.address - unit.address, block.address + block.size - unit.address);
            let (a, b) = (scale.pixel(from), scale.pixel(to));
            let kind = kind_of(block, class);
            let mut column = a.floor();
            while column < b && (column as usize) < pixels {
                let share = (b.min(column + 1.0) - a.max(column)).max(0.0);
                let weight = (share * 1024.0) as u64;
                let at = &mut votes[column as usize];
                match at.iter_mut().find(|(k, _)| *k == kind) {
                    Some((_, sum)) => *sum += weight,
                    None => at.push((kind, weight)),
                }
                column += 1.0;
            }
        }
    }
    for (column, kinds) in votes.iter().enumerate() {
        if let Some((kind, _)) = kinds.iter().rev().max_by_key(|(_, weight)| *weight) {
            push(out, Run { from: column as u16, to: column as u16 + 1, kind: *kind, ends: false });
        }
    }
    if let Some((offset, size)) = largest {
        let (a, b) = (scale.pixel(offset).round() as u16, scale.pixel(offset + size).round() as u16);
        let b = b.max(a + 1).min(scale.pixels as u16);
        let shown = out[base..].iter().any(|r| r.kind == RunKind::Hole && r.from <= a && r.to >= b);
        if a < b && !shown {
            out.push(Run { from: a, to: b, kind: RunKind::Hole, ends: false });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::views::segment_map::layout::{Choice, Order};
    use vramscope_core::model::{DeviceRecording, PoolId, SizeClass, StackId, StreamId};
    use vramscope_core::tables::SegmentAt;

    fn state(blocks: &[(u64, u64, BlockState)]) -> State {
        let mut state = State::default();
        let mut at = 4096;
        for (i, &(size, requested, block_state)) in blocks.iter().enumerate() {
            let lifetime = if block_state == BlockState::Inactive { LifetimeId::NONE } else { LifetimeId(i as u32) };
            state.blocks.push(BlockAt { address: at, size, requested, state: block_state, lifetime });
            at += size;
        }
        state.segments.push(SegmentAt {
            address: 4096,
            size: at - 4096,
            stream: StreamId(0),
            pool: PoolId(0),
            class: SizeClass::Large,
            is_expandable: false,
            born: 0,
            stack: StackId::NONE,
            blocks: 0..blocks.len() as u32,
        });
        state
    }

    fn draw(state: &State, window: Window) -> Vec<Run> {
        let choice = Choice { order: Order::Address, span: Span::TrueSize, fold: true };
        let plan = Plan::new(&DeviceRecording::default(), state, choice);
        Runs::new(&plan, state, Span::TrueSize, window, |_| 0).runs
    }

    const ALL: Window = Window { from: 0.0, to: 1.0, pixels: 100 };
    use BlockState::{Active, Inactive, PendingFree};

    #[test]
    fn blocks_holes_pending_and_rounding_are_told_apart() {
        let runs = draw(&state(&[(50, 40, Active), (20, 20, PendingFree), (30, 0, Inactive)]), ALL);
        let kinds: Vec<(u16, u16, RunKind)> = runs.iter().map(|r| (r.from, r.to, r.kind)).collect();
        assert_eq!(
            kinds,
            [(0, 40, RunKind::Live(0)), (40, 50, RunKind::Rounding(0)), (50, 70, RunKind::Pending(0)), (70, 100, RunKind::Hole)]
        );
    }

    #[test]
    fn thin_blocks_fold_by_majority_and_a_lone_one_still_shows() {
        let mut blocks = vec![(500_000, 0, Inactive), (10, 10, Active), (400_000, 0, Inactive)];
        let runs = draw(&state(&blocks), ALL);
        assert!(runs.iter().any(|r| r.kind == RunKind::Live(0) && r.to - r.from == 1), "a blocker of no width is seen: {runs:?}");
        blocks = (0..100_000).map(|i| if i % 4 == 0 { (10, 0, Inactive) } else { (10, 10, Active) }).collect();
        let runs = draw(&state(&blocks), ALL);
        assert!(runs.len() < 20, "{}", runs.len());
        let live: u32 = runs.iter().filter(|r| r.kind == RunKind::Live(0)).map(|r| u32::from(r.to - r.from)).sum();
        assert!(live >= 99, "{live}");
        assert!(runs.iter().any(|r| r.kind == RunKind::Hole), "the largest hole is kept");
    }

    #[test]
    fn a_zoomed_row_draws_only_what_is_seen() {
        let s = state(&[(100, 100, Active), (100, 0, Inactive), (100, 100, Active), (100, 0, Inactive)]);
        let runs = draw(&s, Window { from: 0.25, to: 0.75, pixels: 100 });
        let kinds: Vec<(u16, u16, RunKind)> = runs.iter().map(|r| (r.from, r.to, r.kind)).collect();
        assert_eq!(kinds, [(0, 50, RunKind::Hole), (50, 100, RunKind::Live(0))]);
    }

    #[test]
    fn what_is_not_mapped_is_drawn_to_the_end_of_its_row() {
        const MIB: u64 = 1 << 20;
        let run = |address, size, block| SegmentAt {
            address,
            size,
            stream: StreamId(0),
            pool: PoolId(0),
            class: SizeClass::Large,
            is_expandable: true,
            born: 0,
            stack: StackId::NONE,
            blocks: block..block + 1,
        };
        let block = |address, size| BlockAt { address, size, requested: size, state: Active, lifetime: LifetimeId(0) };
        let mut state = State::default();
        // 3 MiB mapped, 4 MiB unmapped, 1 MiB mapped.
        state.segments = vec![run(2 * MIB, 3 * MIB, 0), run(9 * MIB, MIB, 1)];
        state.blocks = vec![block(2 * MIB, 3 * MIB), block(9 * MIB, MIB)];
        let choice = Choice { order: Order::Address, span: Span::Wrapped, fold: true };
        let plan = Plan::new(&DeviceRecording::default(), &state, choice);
        let runs = Runs::new(&plan, &state, Span::Wrapped, ALL, |_| 0);
        let kinds = |row: usize| runs.of(row).iter().map(|r| (r.from, r.to, r.kind)).collect::<Vec<_>>();
        assert_eq!(kinds(0), [(0, 100, RunKind::Live(0))]);
        assert_eq!(kinds(1), [(0, 50, RunKind::Live(0)), (50, 100, RunKind::Unmapped)]);
        assert_eq!(kinds(2), [(0, 100, RunKind::Unmapped)]);
        assert_eq!(kinds(3), [(0, 50, RunKind::Unmapped), (50, 100, RunKind::Live(0))]);
        assert!(plan.names_groups(), "the header says that it is expandable");
    }

    #[test]
    fn every_pixel_of_a_segment_is_covered() {
        let blocks: Vec<(u64, u64, BlockState)> = (0..57u64)
            .map(|i| {
                let size = 512 + (i * 7919) % 50_000;
                if i % 3 == 0 { (size, 0, Inactive) } else { (size, size, Active) }
            })
            .collect();
        for pixels in [40, 333, 1000] {
            let runs = draw(&state(&blocks), Window { pixels, ..ALL });
            let mut covered = vec![false; usize::from(pixels)];
            for r in runs {
                covered[usize::from(r.from)..usize::from(r.to)].fill(true);
            }
            assert!(covered.iter().all(|&c| c), "{pixels} pixels");
        }
    }
}
