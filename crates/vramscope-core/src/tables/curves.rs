//! [`Curves`]: reserved, active, allocated and requested bytes over the events, exact at every zoom.
//!
//! No value is stored per event. Each cell of 32 events stores its extremes and last value, with a pyramid above; finer values
//! are recomputed from the events. Reserved bytes change rarely and are stored per change.

use rayon::prelude::*;

use super::pyramid::{Pyramid, Span};
use super::runs::RunTimeline;
use super::steps_curve::Steps;
use super::{LifetimeId, Lifetimes, NO_EVENT};
use crate::model::{Action, Cancelled, DeviceRecording, Progress, Stage};

/// Events per base cell.
const CELL: usize = 32;

/// What one pixel column shows of a curve: the values after each event that it covers.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Lowest value; no zoom level loses it.
    pub min: u64,
    /// Highest value; no zoom level loses it.
    pub max: u64,
    /// The value after the last event.
    pub last: u64,
    /// Number of events; 0 when the column only continues the value before it.
    pub count: u32,
}

/// One of the four curves of a device, in bytes over events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Quantity {
    /// Bytes of segments: PyTorch's `reserved_bytes`.
    Reserved,
    /// Whole blocks from `alloc` to `free_completed`: `active_bytes`.
    Active,
    /// Whole blocks from `alloc` to `free_requested`: `allocated_bytes`.
    Allocated,
    /// Requested bytes from `alloc` to `free_completed`: `requested_bytes`, and what memory_viz draws.
    #[default]
    Requested,
}

impl Quantity {
    /// All four, in the order of [`Totals`](super::Totals).
    pub const ALL: [Quantity; 4] = [Quantity::Reserved, Quantity::Active, Quantity::Allocated, Quantity::Requested];
}

/// A curve that changes at most events: active, allocated, requested.
#[derive(Clone, Debug, Default)]
struct Curve {
    start: u64,
    end: u64,
    peak: u64,
    peak_event: u32,
    /// The value after each cell's last event.
    last: Vec<u64>,
    spans: Pyramid,
}

/// The four curves of one device. About three bytes per event.
#[derive(Clone, Debug, Default)]
pub struct Curves {
    reserved: Steps,
    /// Allocated bytes as reported by the source; if present, used instead of the sum of the events.
    source_allocated: Option<Steps>,
    /// False where the source reports more reserved bytes than its segments add up to.
    has_all_segments: bool,
    /// In the order active, allocated, requested.
    curves: [Curve; 3],
    blocks_exact: bool,
    reserved_exact: bool,
}

/// Change of active, allocated and requested bytes at `event`.
#[inline]
fn deltas(dev: &DeviceRecording, lifetimes: &Lifetimes, event: u32) -> [i64; 3] {
    if !lifetimes.is_plain() {
        return careful_deltas(dev, lifetimes, event);
    }
    let i = event as usize;
    let block = || lifetimes.block_size(lifetimes.of_event(event)) as i64;
    match dev.events.action[i] {
        Action::Alloc => [block(), block(), dev.events.size[i] as i64],
        Action::FreeRequested => [0, block().wrapping_neg(), 0],
        Action::FreeCompleted => [block().wrapping_neg(), 0, (dev.events.size[i] as i64).wrapping_neg()],
        _ => [0; 3],
    }
}

/// Like [`deltas`], for traces in which frees may be missing, doubled or differ in size from their allocation.
fn careful_deltas(dev: &DeviceRecording, lifetimes: &Lifetimes, event: u32) -> [i64; 3] {
    let i = event as usize;
    let mut d = [0i64; 3];
    match dev.events.action[i] {
        Action::Alloc => {
            let block = lifetimes.block_size(lifetimes.of_event(event)) as i64;
            d = [block, block, dev.events.size[i] as i64];
            if !lifetimes.lost().is_empty() {
                subtract_lost(dev, lifetimes, event, &mut d);
            }
        }
        Action::FreeRequested => {
            let id = lifetimes.of_event(event);
            if id.is_some() && lifetimes.free_requested(id) == event && !lifetimes.pending_at_start(id) {
                d[1] = (lifetimes.block_size(id) as i64).wrapping_neg();
            }
        }
        Action::FreeCompleted => {
            let id = lifetimes.of_event(event);
            if id.is_some() && lifetimes.gone(id) == event {
                let block = lifetimes.block_size(id) as i64;
                d[0] = block.wrapping_neg();
                if lifetimes.free_requested(id) == event && !lifetimes.pending_at_start(id) {
                    d[1] = block.wrapping_neg();
                }
                d[2] = (lifetimes.requested(dev, id) as i64).wrapping_neg();
            }
        }
        _ => {}
    }
    d
}

#[cold]
fn subtract_lost(dev: &DeviceRecording, lifetimes: &Lifetimes, event: u32, d: &mut [i64; 3]) {
    let lost = lifetimes.lost();
    let from = lost.partition_point(|l| l.0 < event);
    for &(_, id) in lost[from..].iter().take_while(|l| l.0 == event) {
        let id = LifetimeId(id);
        let block = lifetimes.block_size(id) as i64;
        d[0] = d[0].wrapping_sub(block);
        if lifetimes.free_requested(id) == event && !lifetimes.pending_at_start(id) {
            d[1] = d[1].wrapping_sub(block);
        }
        d[2] = d[2].wrapping_sub(lifetimes.requested(dev, id) as i64);
    }
}

/// Extremes and last values of a range of events, relative to the value before it.
struct Chunk {
    /// Per cell: lowest, highest, last.
    cells: Vec<[(i64, i64, i64); 3]>,
    /// Highest value and its event, for each curve.
    peaks: [(i64, u32); 3],
}

impl Curves {
    pub(crate) fn build(
        dev: &DeviceRecording,
        lifetimes: &Lifetimes,
        runs: &RunTimeline,
        progress: &Progress,
    ) -> Result<Self, Cancelled> {
        const CHUNK: usize = CELL * 8192;
        let len = dev.events.len();
        let starts = start_values(dev, lifetimes);
        progress.begin(Stage::Curves, len as u64);
        let chunks: Vec<Chunk> = (0..len.div_ceil(CHUNK))
            .into_par_iter()
            .map(|n| {
                progress.check()?;
                let done = chunk(dev, lifetimes, n * CHUNK, ((n + 1) * CHUNK).min(len));
                progress.advance_stage(CHUNK as u64);
                Ok(done)
            })
            .collect::<Result<_, Cancelled>>()?;
        let mut curves: [Curve; 3] = Default::default();
        for (q, curve) in curves.iter_mut().enumerate() {
            let mut value = starts[q];
            let cells = len.div_ceil(CELL);
            let (mut spans, mut last) = (Vec::with_capacity(cells), Vec::with_capacity(cells));
            let (mut peak, mut peak_event) = (value, NO_EVENT);
            for chunk in &chunks {
                let (high, event) = chunk.peaks[q];
                if value.wrapping_add(high) > peak {
                    (peak, peak_event) = (value.wrapping_add(high), event);
                }
                for cell in &chunk.cells {
                    let (low, high, end) = cell[q];
                    spans.push(Span { min: bytes(value.wrapping_add(low)), max: bytes(value.wrapping_add(high)) });
                    last.push(bytes(value.wrapping_add(end)));
                }
                value = value.wrapping_add(chunk.cells.last().map_or(0, |c| c[q].2));
            }
            *curve = Curve {
                start: bytes(starts[q]),
                end: bytes(value),
                peak: bytes(peak),
                peak_event,
                last,
                spans: Pyramid::build(spans),
            };
        }
        let known = Steps::build(dev, runs);
        let reserved = dev.source_totals.reserved.is_known().then(|| Steps::of_source(&dev.source_totals.reserved));
        Ok(Curves {
            source_allocated: dev.source_totals.allocated.is_known().then(|| Steps::of_source(&dev.source_totals.allocated)),
            has_all_segments: reserved.as_ref().is_none_or(|told| told.is_same(&known)),
            reserved_exact: reserved.is_some() || dev.has_final_state && runs.mismatches == 0,
            reserved: reserved.unwrap_or(known),
            curves,
            blocks_exact: lifetimes.blocks_exact,
        })
    }

    /// The curve of a quantity, or its steps if it is stored per change. If PyTorch's profiler reports allocated bytes, they also
    /// serve as active bytes: it does not record when streams finish with freed blocks.
    fn curve(&self, q: Quantity) -> Result<&Curve, &Steps> {
        match ((q as usize).checked_sub(1), &self.source_allocated) {
            (None, _) => Err(&self.reserved),
            (Some(_), Some(told)) => Err(told),
            (Some(i), None) => Ok(&self.curves[i]),
        }
    }

    /// False where more was reserved than the known segments add up to; free space can then not be derived from segments.
    pub fn has_all_segments(&self) -> bool {
        self.has_all_segments
    }

    /// The value after `event`; [`NO_EVENT`] means before the first event. Recomputes at most 31 events.
    pub fn at(&self, dev: &DeviceRecording, lifetimes: &Lifetimes, q: Quantity, event: u32) -> u64 {
        let curve = match self.curve(q) {
            Ok(curve) => curve,
            Err(steps) => return steps.at(event),
        };
        if event == NO_EVENT || dev.events.is_empty() {
            return curve.start;
        }
        let event = (event as usize).min(dev.events.len() - 1);
        let mut walk = Walk::new(curve, dev, lifetimes, q, event - event % CELL);
        walk.to(event + 1);
        bytes(walk.value)
    }

    /// The highest value and the first event that reached it; [`NO_EVENT`] when that was before the first event.
    pub fn peak(&self, q: Quantity) -> (u64, u32) {
        match self.curve(q) {
            Err(steps) => steps.peak(),
            Ok(curve) => (curve.peak, if curve.last.is_empty() { NO_EVENT } else { curve.peak_event }),
        }
    }

    /// The event of the peak, which is that of active bytes: every command and view that says "at the peak" means this event.
    /// [`NO_EVENT`]: before the first event. O(1).
    pub fn peak_event(&self) -> u32 {
        self.peak(Quantity::Active).1
    }

    /// The peak and the event at which to inspect it. The allocator reserves memory one event before the allocation that needs it
    /// (`segment_alloc`, `segment_map`); in between, that block would count as free. So for reserved bytes this returns that
    /// allocation's event. If no allocation follows (the trace ends, or the request fails) it returns the event of
    /// [`peak`](Self::peak), as it does for the other curves. O(1) plus the notes between the two events.
    pub fn settled_peak(&self, dev: &DeviceRecording, q: Quantity) -> (u64, u32) {
        let (bytes, event) = self.peak(q);
        if q != Quantity::Reserved || event == NO_EVENT {
            return (bytes, event);
        }
        let after = dev.events.action.iter().enumerate().skip(event as usize + 1);
        let settled = after
            .map_while(|(at, action)| match action {
                Action::Alloc => Some(Some(at as u32)),
                // These events do not affect memory and may lie between the two.
                Action::Annotate | Action::Snapshot | Action::Unknown => Some(None),
                _ => None,
            })
            .find_map(|at| at);
        (bytes, settled.unwrap_or(event))
    }

    /// The value after the last event.
    pub fn end(&self, q: Quantity) -> u64 {
        self.curve(q).map_or_else(Steps::end, |c| c.end)
    }

    /// The value before the first event.
    pub fn start(&self, q: Quantity) -> u64 {
        self.curve(q).map_or_else(|steps| steps.start, |c| c.start)
    }

    /// True when the curve equals PyTorch's own counter. `Requested` depends only on recorded values, `Reserved` on the end
    /// state, the others on the size of every block.
    pub fn is_exact(&self, q: Quantity) -> bool {
        match q {
            Quantity::Reserved => self.reserved_exact,
            Quantity::Active | Quantity::Allocated => self.source_allocated.is_some() || self.blocks_exact,
            Quantity::Requested => true,
        }
    }

    /// One cell per pixel column. `bounds` holds ascending event indices, one more than there are columns: column `i` covers
    /// events `bounds[i]..bounds[i + 1]`. An empty column continues the value before it. Peaks are never lost. Cost: at most 32
    /// recomputed events per column, none for reserved bytes.
    pub fn columns(&self, dev: &DeviceRecording, lifetimes: &Lifetimes, q: Quantity, bounds: &[u32]) -> Vec<Cell> {
        let len = dev.events.len();
        let clamp = |b: u32| (b as usize).min(len);
        let Some(first) = bounds.first().map(|&b| clamp(b)) else { return Vec::new() };
        let curve = match self.curve(q) {
            Ok(curve) => curve,
            Err(steps) => return steps.columns(bounds.iter().map(|&b| clamp(b) as u32)),
        };
        let mut walk = Walk::new(curve, dev, lifetimes, q, first - first % CELL);
        walk.to(first);
        bounds
            .windows(2)
            .map(|w| {
                let (from, to) = (clamp(w[0]), clamp(w[1]));
                if to <= from {
                    let value = bytes(walk.value);
                    return Cell { min: value, max: value, last: value, count: 0 };
                }
                let span = walk.to(to);
                Cell { min: span.min, max: span.max, last: bytes(walk.value), count: (to - from) as u32 }
            })
            .collect()
    }

    /// The highest value within events `from..to`, and the first event that reached it; `None` when the range is empty.
    pub fn peak_in(&self, dev: &DeviceRecording, lifetimes: &Lifetimes, q: Quantity, from: u32, to: u32) -> Option<(u64, u32)> {
        let (from, to) = (from as usize, (to as usize).min(dev.events.len()));
        if from >= to {
            return None;
        }
        let curve = match self.curve(q) {
            Ok(curve) => curve,
            Err(steps) => return Some(steps.peak_in(from as u32, to as u32)),
        };
        let mut best: Option<(u64, u32)> = None;
        let mut walk = Walk::new(curve, dev, lifetimes, q, from - from % CELL);
        walk.to(from);
        let mut scan = |walk: &mut Walk<'_>, to: usize| {
            while walk.event < to {
                let event = walk.event as u32;
                walk.to(walk.event + 1);
                let value = bytes(walk.value);
                if best.is_none_or(|(high, _)| value > high) {
                    best = Some((value, event));
                }
            }
        };
        let (first_cell, last_cell) = (from.div_ceil(CELL), to / CELL);
        if first_cell >= last_cell {
            scan(&mut walk, to);
            return best;
        }
        scan(&mut walk, first_cell * CELL);
        if let Some(cell) = curve.spans.highest(first_cell, last_cell) {
            let mut inside = Walk::new(curve, dev, lifetimes, q, cell * CELL);
            scan(&mut inside, (cell + 1) * CELL);
        }
        let mut tail = Walk::new(curve, dev, lifetimes, q, last_cell * CELL);
        scan(&mut tail, to);
        best
    }
}

/// A position in the events and the curve's value there.
struct Walk<'a> {
    curve: &'a Curve,
    dev: &'a DeviceRecording,
    lifetimes: &'a Lifetimes,
    q: usize,
    /// `value` includes all events before this one.
    event: usize,
    value: i64,
}

impl<'a> Walk<'a> {
    /// Starts at the beginning of a cell.
    fn new(curve: &'a Curve, dev: &'a DeviceRecording, lifetimes: &'a Lifetimes, q: Quantity, event: usize) -> Self {
        let value = match event / CELL {
            0 => curve.start,
            cell => curve.last.get(cell - 1).copied().unwrap_or(curve.end),
        };
        Walk { curve, dev, lifetimes, q: (q as usize).saturating_sub(1), event, value: value as i64 }
    }

    fn step(&mut self, to: usize, span: &mut Span) {
        // Requested bytes are queried most by far and need only two columns.
        if self.q == 2 && self.lifetimes.is_plain() {
            let events = &self.dev.events;
            for (action, &size) in events.action[self.event.min(to)..to].iter().zip(&events.size[self.event.min(to)..to]) {
                match action {
                    Action::Alloc => self.value = self.value.wrapping_add(size as i64),
                    Action::FreeCompleted => self.value = self.value.wrapping_sub(size as i64),
                    _ => {}
                }
                *span = span.union(Span::of(bytes(self.value)));
            }
            self.event = self.event.max(to);
            return;
        }
        while self.event < to {
            self.value = self.value.wrapping_add(deltas(self.dev, self.lifetimes, self.event as u32)[self.q]);
            *span = span.union(Span::of(bytes(self.value)));
            self.event += 1;
        }
    }

    /// Advances to event `to`, over whole cells where possible; returns the extremes on the way.
    fn to(&mut self, to: usize) -> Span {
        let mut span = Span::EMPTY;
        let (first_cell, last_cell) = (self.event.div_ceil(CELL), to / CELL);
        if first_cell < last_cell {
            self.step(first_cell * CELL, &mut span);
            span = span.union(self.curve.spans.range(first_cell, last_cell));
            self.event = last_cell * CELL;
            self.value = self.curve.last.get(last_cell - 1).map_or(self.value, |&v| v as i64);
        }
        self.step(to, &mut span);
        span
    }
}

fn chunk(dev: &DeviceRecording, lifetimes: &Lifetimes, from: usize, to: usize) -> Chunk {
    let mut cells = Vec::with_capacity((to - from).div_ceil(CELL));
    let mut value = [0i64; 3];
    let mut peaks = [(i64::MIN, NO_EVENT); 3];
    let mut event = from;
    while event < to {
        let mut cell = [(i64::MAX, i64::MIN, 0); 3];
        for at in event..(event + CELL).min(to) {
            let d = deltas(dev, lifetimes, at as u32);
            for q in 0..3 {
                value[q] = value[q].wrapping_add(d[q]);
                cell[q].0 = cell[q].0.min(value[q]);
                cell[q].1 = cell[q].1.max(value[q]);
                if value[q] > peaks[q].0 {
                    peaks[q] = (value[q], at as u32);
                }
            }
        }
        for q in 0..3 {
            cell[q].2 = value[q];
        }
        cells.push(cell);
        event += CELL;
    }
    Chunk { cells, peaks }
}

/// Active, allocated and requested bytes before the first event.
fn start_values(dev: &DeviceRecording, lifetimes: &Lifetimes) -> [i64; 3] {
    let mut start = [0i64; 3];
    for id in (0..lifetimes.initial_count() as u32).map(LifetimeId) {
        let block = lifetimes.block_size(id) as i64;
        start[0] = start[0].wrapping_add(block);
        start[1] = start[1].wrapping_add(if lifetimes.pending_at_start(id) { 0 } else { block });
        start[2] = start[2].wrapping_add(lifetimes.requested(dev, id) as i64);
    }
    start
}

/// Inconsistent input can make a running sum negative; that shows as zero. Sums wrap instead of saturating at sizes no device has.
pub(super) fn bytes(value: i64) -> u64 {
    value.max(0) as u64
}
