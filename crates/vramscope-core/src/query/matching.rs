//! [`Matching`]: the allocations that a query matches, as a set for other views, with their bytes over time.

use rayon::prelude::*;

use crate::model::{Action, Cancelled, DeviceRecording, Progress};
use crate::tables::curves::Cell;
use crate::tables::{DeviceTables, LifetimeId, Lifetimes, NO_EVENT};

/// Events per cell of the curve; finer values are recomputed from the events.
const CELL: usize = 64;

/// A set of a device's allocations. Memory: one bit per allocation, four bytes per member, a third of a byte per event.
#[derive(Debug)]
pub struct Matching {
    /// Row ids, ascending.
    rows: Vec<u32>,
    bits: Vec<u64>,
    /// Per cell: bytes of whole blocks after its last event, and their minimum and maximum within it.
    cells: Vec<(u64, u64, u64)>,
    at_start: u64,
    peak: (u64, u32),
    requested: u64,
}

impl Matching {
    /// The set of these rows, which must be ascending and distinct. O(events), on all cores.
    pub fn of(device: &DeviceRecording, tables: &DeviceTables, rows: Vec<u32>, progress: &Progress) -> Result<Self, Cancelled> {
        let lifetimes = &tables.lifetimes;
        let mut bits = vec![0u64; lifetimes.len().div_ceil(64)];
        for &row in &rows {
            if let Some(word) = bits.get_mut(row as usize / 64) {
                *word |= 1 << (row % 64);
            }
        }
        let requested = rows.par_iter().map(|&row| lifetimes.requested(device, LifetimeId(row))).sum();
        let initial = rows.iter().take_while(|&&row| (row as usize) < lifetimes.initial_count());
        let at_start = initial.map(|&row| lifetimes.block_size(LifetimeId(row))).sum();
        let mut matching = Matching { rows, bits, cells: Vec::new(), at_start, peak: (0, NO_EVENT), requested };
        matching.cells = matching.curve(device, lifetimes, progress)?;
        matching.peak = matching.find_peak(device, lifetimes);
        Ok(matching)
    }

    /// Computes the cells: first each part starting from zero, then all from the start value.
    fn curve(
        &self,
        device: &DeviceRecording,
        lifetimes: &Lifetimes,
        progress: &Progress,
    ) -> Result<Vec<(u64, u64, u64)>, Cancelled> {
        const PART: usize = CELL * 1024;
        let n = device.events.len();
        let parts: Vec<Vec<(i64, i64, i64)>> = (0..n.div_ceil(PART))
            .into_par_iter()
            .map(|part| {
                progress.check()?;
                let end = ((part + 1) * PART).min(n);
                let mut value = 0i64;
                let mut cells = Vec::with_capacity(PART / CELL);
                for from in (part * PART..end).step_by(CELL) {
                    let (mut least, mut most) = (i64::MAX, i64::MIN);
                    for event in from..(from + CELL).min(end) {
                        value += self.delta(device, lifetimes, event);
                        least = least.min(value);
                        most = most.max(value);
                    }
                    cells.push((value, least, most));
                }
                Ok(cells)
            })
            .collect::<Result<_, Cancelled>>()?;
        let mut base = self.at_start as i64;
        let mut cells = Vec::with_capacity(n.div_ceil(CELL));
        for part in parts {
            let absolute = |v: i64| (base + v).max(0) as u64;
            cells.extend(part.iter().map(|&(last, least, most)| (absolute(last), absolute(least), absolute(most))));
            base += part.last().map_or(0, |c| c.0);
        }
        Ok(cells)
    }

    /// Change of the curve at an event.
    #[inline]
    fn delta(&self, device: &DeviceRecording, lifetimes: &Lifetimes, event: usize) -> i64 {
        let size = |id: LifetimeId| if self.contains(id) { lifetimes.block_size(id) as i64 } else { 0 };
        let at = event as u32;
        match device.events.action[event] {
            Action::Alloc => {
                let lost = lifetimes.lost();
                let gone = if lost.is_empty() {
                    0
                } else {
                    let from = lost.partition_point(|l| l.0 < at);
                    lost[from..].iter().take_while(|l| l.0 == at).map(|l| size(LifetimeId(l.1))).sum()
                };
                size(lifetimes.of_event(at)) - gone
            }
            Action::FreeCompleted => {
                let id = lifetimes.of_event(at);
                if id.is_some() && lifetimes.gone(id) == at { -size(id) } else { 0 }
            }
            _ => 0,
        }
    }

    fn find_peak(&self, device: &DeviceRecording, lifetimes: &Lifetimes) -> (u64, u32) {
        let best = self.cells.iter().enumerate().max_by_key(|(i, c)| (c.2, std::cmp::Reverse(*i)));
        match best {
            Some((i, &(_, _, most))) if most >= self.at_start => {
                let mut value = self.before_cell(i) as i64;
                let end = ((i + 1) * CELL).min(device.events.len());
                let at = (i * CELL..end).find(|&event| {
                    value += self.delta(device, lifetimes, event);
                    value == most as i64
                });
                (most, at.map_or(NO_EVENT, |event| event as u32))
            }
            _ => (self.at_start, NO_EVENT),
        }
    }

    fn before_cell(&self, cell: usize) -> u64 {
        cell.checked_sub(1).and_then(|i| self.cells.get(i)).map_or(self.at_start, |c| c.0)
    }

    /// Whether an allocation is in the set. O(1).
    #[inline]
    pub fn contains(&self, id: LifetimeId) -> bool {
        self.bits.get(id.0 as usize / 64).is_some_and(|word| word >> (id.0 % 64) & 1 == 1)
    }

    /// Rows of the lifetimes' table, ascending.
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Number of allocations in the set.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True when the query matches nothing.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Sum of the requested bytes of all members, live at any time.
    pub fn handed_out(&self) -> u64 {
        self.requested
    }

    /// The most bytes that they held at once, in whole blocks, and the first such event ([`NO_EVENT`]: before the first).
    pub fn peak(&self) -> (u64, u32) {
        self.peak
    }

    /// Bytes of whole blocks that they hold after an event ([`NO_EVENT`]: before the first). Reads at most 64 events.
    pub fn bytes_at(&self, device: &DeviceRecording, tables: &DeviceTables, event: u32) -> u64 {
        if event == NO_EVENT || device.events.is_empty() {
            return self.at_start;
        }
        let event = (event as usize).min(device.events.len() - 1);
        let first = event / CELL * CELL;
        let walked: i64 = (first..=event).map(|e| self.delta(device, &tables.lifetimes, e)).sum();
        (self.before_cell(event / CELL) as i64 + walked).max(0) as u64
    }

    /// The curve by pixel column; `bounds` as in [`Curves::columns`](crate::tables::Curves::columns). Keeps peaks. O(columns).
    pub fn columns(&self, device: &DeviceRecording, tables: &DeviceTables, bounds: &[u32]) -> Vec<Cell> {
        let n = device.events.len();
        let column = |w: &[u32]| {
            let (from, to) = ((w[0] as usize).min(n), (w[1] as usize).min(n));
            if from >= to {
                let carried = self.bytes_at(device, tables, w[0].checked_sub(1).unwrap_or(NO_EVENT));
                return Cell { min: carried, max: carried, last: carried, count: 0 };
            }
            let mut cell = Cell { min: u64::MAX, max: 0, last: 0, count: (to - from) as u32 };
            let mut event = from;
            let mut value = self.bytes_at(device, tables, (from as u32).checked_sub(1).unwrap_or(NO_EVENT)) as i64;
            while event < to {
                if event.is_multiple_of(CELL) && event + CELL <= to {
                    let (last, least, most) = self.cells[event / CELL];
                    cell.min = cell.min.min(least);
                    cell.max = cell.max.max(most);
                    value = last as i64;
                    event += CELL;
                } else {
                    value += self.delta(device, &tables.lifetimes, event);
                    let now = value.max(0) as u64;
                    cell.min = cell.min.min(now);
                    cell.max = cell.max.max(now);
                    event += 1;
                }
            }
            cell.last = value.max(0) as u64;
            cell
        };
        bounds.par_windows(2).map(column).collect()
    }
}
