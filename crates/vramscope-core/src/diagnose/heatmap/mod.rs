//! [`heatmap()`]: device memory by address over time, and [`hole_sizes`]: free memory by the size of its holes over time.
//!
//! A column shows the instant within it at which requested bytes peak, as in [`strata`](crate::tables::strata()), so the pictures
//! agree. The live set is carried from column to column; blocks that live only between two instants are never placed.

mod sweep;
#[cfg(test)]
mod tests;

use rayon::prelude::*;
use sweep::Sweep;

use super::fragmentation::Servers;
use crate::model::{Cancelled, DeviceRecording, Progress};
use crate::tables::{DeviceTables, LifetimeId, NO_EVENT, Quantity, SegmentAt};

/// The meaning of a cell's shade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Shade {
    /// Share of the cell's reserved bytes that blocks hold, 0 to 1.
    #[default]
    Occupancy,
    /// Age of the oldest block in the cell, in microseconds (in events where the source has no times); 0 when empty. A block
    /// from before the trace is as old as the trace.
    OldestBlock,
    /// Size in bytes of the largest block in the cell; 0 when empty.
    LargestBlock,
    /// Size in bytes of the largest hole in the cell; 0 when full.
    LargestHole,
}

/// Size, shade and filters of a heatmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeatmapSpec {
    /// Most rows to return; fewer are returned if there are fewer units of 512 bytes.
    pub rows: u32,
    /// The meaning of the shade.
    pub shade: Shade,
    /// Only segments that serve these requests; `None` is all.
    pub servers: Option<Servers>,
    /// Only this range of addresses (end exclusive); `None` for all.
    pub addresses: Option<(u64, u64)>,
}

/// Selects the blocks that a shade shows, by allocation and event.
pub type Chosen<'a> = &'a (dyn Fn(LifetimeId, u32) -> bool + Sync);

/// A range of addresses that was reserved at some time in the window. On the vertical axis, extents follow each other without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Address of the first byte.
    pub address: u64,
    /// Size in bytes: the extent ends before `address + size`.
    pub size: u64,
    /// Where it begins on the axis, in bytes.
    pub offset: u64,
}

/// One column of a heatmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeatmapColumn {
    /// The instant shown: the state after this event; [`NO_EVENT`] before the first.
    pub event: u32,
    /// Bytes of the segments selected by [`HeatmapSpec::servers`], including those outside the addresses shown.
    pub reserved: u64,
    /// Bytes held by blocks, including pending frees.
    pub occupied: u64,
    /// Free bytes inside reserved memory.
    pub free: u64,
    /// Number of inactive blocks in these segments.
    pub holes: u32,
    /// The largest hole in bytes, 0 without holes.
    pub largest_hole: u64,
    /// The address of the largest hole, 0 without holes.
    pub largest_hole_address: u64,
}

/// Addresses over time. Empty if no segment was reserved in the window, as in profiler traces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heatmap {
    /// The vertical axis, by address.
    pub extents: Vec<Extent>,
    /// Length of the axis in bytes.
    pub total: u64,
    /// The range of axis positions that the rows show, in bytes.
    pub shown: (u64, u64),
    /// Bytes per row; the last row may have fewer.
    pub row_bytes: u64,
    /// Number of rows; at most [`HeatmapSpec::rows`].
    pub rows: usize,
    /// One entry per column.
    pub columns: Vec<HeatmapColumn>,
    /// `cells[row * columns.len() + column]`, row 0 at the lowest address. NaN where nothing was reserved at that instant.
    pub cells: Vec<f32>,
}

impl Heatmap {
    /// The shade of a cell; `None` outside the map or where nothing was reserved.
    pub fn cell(&self, row: usize, column: usize) -> Option<f32> {
        let inside = row < self.rows && column < self.columns.len();
        inside.then(|| self.cells[row * self.columns.len() + column]).filter(|v| !v.is_nan())
    }

    /// The address range of a row (end exclusive). A row can span from one segment to the next.
    pub fn addresses_of(&self, row: usize) -> Option<(u64, u64)> {
        let from = (row as u64).checked_mul(self.row_bytes)?.checked_add(self.shown.0).filter(|&o| o < self.shown.1)?;
        let last = (from + self.row_bytes).min(self.shown.1) - 1;
        Some((address_at(&self.extents, from)?, address_at(&self.extents, last)? + 1))
    }

    /// The row at a position of the axis, in bytes; the nearest row if the position is not shown.
    pub fn row_at(&self, offset: u64) -> usize {
        let row = (offset.saturating_sub(self.shown.0) / self.row_bytes.max(1)) as usize;
        row.min(self.rows.saturating_sub(1))
    }

    /// The range of axis positions between two addresses, in bytes; the whole axis if nothing between them was reserved.
    pub fn range_of(&self, from: u64, to: u64) -> (u64, u64) {
        range_of(&self.extents, from, to)
    }

    /// Position of an address on the axis, in bytes; `None` if it was never reserved.
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        offset_of(&self.extents, address)
    }

    /// The address at a position of the axis, in bytes; the end of the last extent for positions beyond it. `None` without extents.
    pub fn address_at(&self, offset: u64) -> Option<u64> {
        address_at(&self.extents, offset.min(self.total))
    }
}

/// Free memory by hole size over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoleSizes {
    /// Lower bounds of the classes in bytes, each twice the one before. A hole belongs to the last class whose bound it reaches.
    pub classes: Vec<u64>,
    /// One entry per column.
    pub columns: Vec<HeatmapColumn>,
    /// `bytes[class * columns.len() + column]`: free bytes in holes of that class.
    pub bytes: Vec<u64>,
    /// Number of those holes, in the same layout.
    pub counts: Vec<u32>,
}

impl HoleSizes {
    /// Removes the classes below the smallest and above the largest hole. Keeps the class of `keep` bytes, and those in between.
    #[must_use]
    pub fn trimmed(mut self, keep: Option<u64>) -> Self {
        let width = self.columns.len();
        let lowest = self.classes.first().copied().unwrap_or(0);
        let is_used = |class: &usize| self.counts[class * width..(class + 1) * width].iter().any(|&n| n > 0);
        let (first, last) = ((0..self.classes.len()).find(is_used), (0..self.classes.len()).rfind(is_used));
        let (Some(mut first), Some(mut last)) = (first, last) else { return self };
        if let Some(keep) = keep.filter(|_| lowest > 0) {
            let class = (keep / lowest).max(1).ilog2() as usize;
            (first, last) = (first.min(class), last.max(class));
        }
        for class in self.classes.len()..=last {
            self.classes.push(lowest << class);
            self.bytes.resize((class + 1) * width, 0);
            self.counts.resize((class + 1) * width, 0);
        }
        let cells = first * width..(last + 1) * width;
        HoleSizes {
            classes: self.classes[first..=last].to_vec(),
            bytes: self.bytes[cells.clone()].to_vec(),
            counts: self.counts[cells].to_vec(),
            columns: self.columns,
        }
    }
}

/// Draws addresses over time. `bounds` is as in [`Curves::columns`](crate::tables::Curves::columns). With `chosen`, the shades
/// show only those blocks (their share, age or size), while a column's figures about reserved memory and holes still cover all
/// blocks. Cost: one pass over the live set and the rows per column; tens of milliseconds for 1600 columns of a large recording.
pub fn heatmap(
    dev: &DeviceRecording,
    tables: &DeviceTables,
    bounds: &[u32],
    spec: HeatmapSpec,
    chosen: Option<Chosen<'_>>,
    progress: &Progress,
) -> Result<Heatmap, Cancelled> {
    let instants = instants(dev, tables, bounds);
    let extents = extents(dev, tables, &instants, spec.servers.as_ref());
    let total = extents.last().map_or(0, |e| e.offset + e.size);
    let shown = spec.addresses.map_or((0, total), |(from, to)| range_of(&extents, from, to));
    let height = shown.1 - shown.0;
    let rows = u64::from(spec.rows).min(height.div_ceil(512)).max(1);
    let row_bytes = height.div_ceil(rows).max(1);
    let rows = height.div_ceil(row_bytes) as usize;
    let parts: Vec<(Vec<HeatmapColumn>, Vec<f32>)> = instants
        .par_chunks(STRIPE)
        .map(|events| {
            progress.check()?;
            let mut sweep = Sweep::new(dev, tables);
            let mut cells = Vec::with_capacity(rows * events.len());
            let mut column = Column { shade: spec.shade, chosen, shown, row_bytes, cells: vec![RowSum::default(); rows] };
            let columns = events
                .iter()
                .map(|&event| {
                    sweep.seek(event);
                    column.cells.fill(RowSum::default());
                    let summary = column.draw(dev, &sweep, &extents, spec.servers.as_ref());
                    cells.extend(column.cells.iter().map(|row| row.shade(spec.shade)));
                    summary
                })
                .collect();
            Ok((columns, cells))
        })
        .collect::<Result<_, Cancelled>>()?;
    let width = instants.len();
    let mut cells = vec![f32::NAN; rows * width];
    let mut columns = Vec::with_capacity(width);
    for (part, values) in parts {
        for (c, value) in values.chunks(rows.max(1)).enumerate() {
            for (row, &v) in value.iter().enumerate() {
                cells[row * width + columns.len() + c] = v;
            }
        }
        columns.extend(part);
    }
    Ok(Heatmap { extents, total, shown, row_bytes, rows, columns, cells })
}

/// Sorts free memory by the size of its holes, over time. `bounds` and cost as for [`heatmap()`].
pub fn hole_sizes(
    dev: &DeviceRecording,
    tables: &DeviceTables,
    bounds: &[u32],
    servers: Option<&Servers>,
    progress: &Progress,
) -> Result<HoleSizes, Cancelled> {
    const LOWEST: u64 = 512;
    let instants = instants(dev, tables, bounds);
    type Classes = Vec<(u64, u32)>;
    let parts: Vec<Vec<(HeatmapColumn, Classes)>> = instants
        .par_chunks(STRIPE)
        .map(|events| {
            progress.check()?;
            let mut sweep = Sweep::new(dev, tables);
            let columns = events.iter().map(|&event| {
                sweep.seek(event);
                let mut classes: Classes = Vec::new();
                let mut summary = HeatmapColumn::at(event);
                for run in sweep.runs.iter().filter(|r| servers.is_none_or(|s| s.take(r))) {
                    summary.reserved += run.size;
                    sweep.pieces(run, |address, size, block| {
                        summary.count(address, size, block.is_some());
                        if block.is_none() {
                            let class = (size / LOWEST).max(1).ilog2() as usize;
                            if classes.len() <= class {
                                classes.resize(class + 1, (0, 0));
                            }
                            classes[class].0 += size;
                            classes[class].1 += 1;
                        }
                    });
                }
                (summary, classes)
            });
            Ok(columns.collect())
        })
        .collect::<Result<_, Cancelled>>()?;
    let all: Vec<(HeatmapColumn, Classes)> = parts.into_iter().flatten().collect();
    let height = all.iter().map(|(_, c)| c.len()).max().unwrap_or(0);
    let width = all.len();
    let mut sizes = HoleSizes {
        classes: (0..height).map(|k| LOWEST << k).collect(),
        columns: all.iter().map(|(column, _)| *column).collect(),
        bytes: vec![0; height * width],
        counts: vec![0; height * width],
    };
    for (c, (_, classes)) in all.iter().enumerate() {
        for (k, &(bytes, count)) in classes.iter().enumerate() {
            sizes.bytes[k * width + c] = bytes;
            sizes.counts[k * width + c] = count;
        }
    }
    Ok(sizes)
}

/// Columns per sweep: enough to make up for the first seek, few enough to keep every core busy.
const STRIPE: usize = 64;

/// The instant of each column: the peak of requested bytes in it. An empty column repeats the one before.
fn instants(dev: &DeviceRecording, tables: &DeviceTables, bounds: &[u32]) -> Vec<u32> {
    let last = (dev.events.len() as u32).checked_sub(1);
    let pairs: Vec<(u32, u32)> = bounds.windows(2).map(|w| (w[0], w[1])).collect();
    pairs
        .par_iter()
        .with_min_len(STRIPE)
        .map(|&(from, to)| {
            let carried = match (from.checked_sub(1), last) {
                (Some(event), Some(last)) => event.min(last),
                _ => NO_EVENT,
            };
            let peak = tables.curves.peak_in(dev, &tables.lifetimes, Quantity::Requested, from, to);
            peak.map_or(carried, |(_, event)| event)
        })
        .collect()
}

/// All ranges reserved between the first and the last instant. Ranges that overlap, or touch in an expandable segment, are merged.
fn extents(dev: &DeviceRecording, tables: &DeviceTables, instants: &[u32], servers: Option<&Servers>) -> Vec<Extent> {
    let runs = &tables.states.runs;
    let (Some(&first), Some(&last)) = (instants.first(), instants.last()) else { return Vec::new() };
    let mut ranges: Vec<(u64, u64, bool)> = Vec::new();
    let mut add = |run: &SegmentAt| {
        if servers.is_none_or(|s| s.take(run)) {
            ranges.push((run.address, run.address.saturating_add(run.size), run.is_expandable));
        }
    };
    let start = runs.at(dev, first);
    start.iter().for_each(&mut add);
    let from = runs.changes_until(first);
    for at in from..runs.changes_until(last).max(from) {
        let action = dev.events.action[runs.changes[at].event as usize];
        if action.grows_reserved() {
            add(&runs.run(dev, at, action == crate::model::Action::SegmentMap));
        }
    }
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64, bool)> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(open) if range.0 < open.1 || (range.0 == open.1 && range.2 && open.2) => {
                open.1 = open.1.max(range.1);
                open.2 |= range.2;
            }
            _ => merged.push(range),
        }
    }
    let mut offset = 0;
    merged
        .into_iter()
        .map(|(address, end, _)| {
            let extent = Extent { address, size: end - address, offset };
            offset += extent.size;
            extent
        })
        .collect()
}

fn offset_of(extents: &[Extent], address: u64) -> Option<u64> {
    let at = extents.partition_point(|e| e.address <= address).checked_sub(1)?;
    let extent = &extents[at];
    (address - extent.address < extent.size).then(|| extent.offset + (address - extent.address))
}

/// The range of axis positions between two addresses; the whole axis if nothing in between is in this window.
fn range_of(extents: &[Extent], from: u64, to: u64) -> (u64, u64) {
    let (low, high) = (offset_from(extents, from), offset_from(extents, to));
    if low < high { (low, high) } else { (0, extents.last().map_or(0, |e| e.offset + e.size)) }
}

/// Position of an address, or of the next address that was ever reserved.
fn offset_from(extents: &[Extent], address: u64) -> u64 {
    let at = extents.partition_point(|e| e.address + e.size <= address);
    match (extents.get(at), extents.last()) {
        (Some(extent), _) => extent.offset + address.saturating_sub(extent.address),
        (None, last) => last.map_or(0, |e| e.offset + e.size),
    }
}

fn address_at(extents: &[Extent], offset: u64) -> Option<u64> {
    let at = extents.partition_point(|e| e.offset <= offset).checked_sub(1)?;
    Some(extents[at].address + (offset - extents[at].offset))
}

impl HeatmapColumn {
    fn at(event: u32) -> Self {
        HeatmapColumn { event, reserved: 0, occupied: 0, free: 0, holes: 0, largest_hole: 0, largest_hole_address: 0 }
    }

    fn count(&mut self, address: u64, size: u64, is_block: bool) {
        if is_block {
            self.occupied += size;
            return;
        }
        self.free += size;
        self.holes += 1;
        if size > self.largest_hole {
            (self.largest_hole, self.largest_hole_address) = (size, address);
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct RowSum {
    reserved: u64,
    occupied: u64,
    /// The extreme value that the shade shows.
    extreme: f32,
}

impl RowSum {
    fn shade(&self, shade: Shade) -> f32 {
        match (self.reserved, shade) {
            (0, _) => f32::NAN,
            (reserved, Shade::Occupancy) => (self.occupied as f64 / reserved as f64) as f32,
            _ => self.extreme,
        }
    }
}

struct Column<'a> {
    shade: Shade,
    /// The blocks that the shade shows; `None` for all.
    chosen: Option<Chosen<'a>>,
    /// The range of axis positions that the rows show.
    shown: (u64, u64),
    row_bytes: u64,
    cells: Vec<RowSum>,
}

impl Column<'_> {
    /// Adds every segment of one instant, block by block.
    fn draw(&mut self, dev: &DeviceRecording, sweep: &Sweep<'_>, extents: &[Extent], servers: Option<&Servers>) -> HeatmapColumn {
        let event = sweep.event.unwrap_or(NO_EVENT);
        let mut summary = HeatmapColumn::at(event);
        let shade = self.shade;
        for run in sweep.runs.iter().filter(|r| servers.is_none_or(|s| s.take(r))) {
            // Every segment of the window should lie in an extent; any other is counted but cannot be drawn.
            let offset = offset_of(extents, run.address);
            summary.reserved += run.size;
            if let Some(offset) = offset {
                self.spread(offset, run.size, |row, bytes| row.reserved += bytes);
            }
            sweep.pieces(run, |address, size, block| {
                summary.count(address, size, block.is_some());
                let Some(offset) = offset.map(|o| o + (address - run.address)) else { return };
                if block.is_some_and(|id| self.chosen.is_some_and(|is_chosen| !is_chosen(id, event))) {
                    return;
                }
                let value = match (shade, block) {
                    (Shade::Occupancy, Some(_)) => return self.spread(offset, size, |row, bytes| row.occupied += bytes),
                    (Shade::OldestBlock, Some(id)) => age(dev, sweep.tables.lifetimes.born(id), event),
                    (Shade::LargestBlock, Some(_)) | (Shade::LargestHole, None) => size as f32,
                    _ => return,
                };
                self.spread(offset, size, |row, _| row.extreme = row.extreme.max(value));
            });
        }
        summary
    }

    fn spread(&mut self, offset: u64, size: u64, mut add: impl FnMut(&mut RowSum, u64)) {
        let (low, high) = self.shown;
        // Relative to the visible range, and clipped to it.
        let end = (offset + size).min(high).saturating_sub(low);
        let mut from = offset.saturating_sub(low);
        let mut row = (from / self.row_bytes) as usize;
        while from < end {
            let to = ((row as u64 + 1) * self.row_bytes).min(end);
            match self.cells.get_mut(row) {
                Some(cell) => add(cell, to - from),
                None => return,
            }
            from = to;
            row += 1;
        }
    }
}

/// Microseconds (or events, without times) from the allocation to `event`.
fn age(dev: &DeviceRecording, born: u32, event: u32) -> f32 {
    let born = if born == NO_EVENT { 0 } else { born };
    if event == NO_EVENT {
        return 0.0;
    }
    if !dev.events.has_time {
        return event.saturating_sub(born) as f32;
    }
    let time = |e: u32| dev.events.time_us.get(e as usize).copied().unwrap_or(0);
    time(event).saturating_sub(time(born)).max(0) as f32
}
