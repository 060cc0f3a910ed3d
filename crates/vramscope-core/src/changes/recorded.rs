//! [`Recorded`]: the requests of a recording in their order, to compute what changes do to its peak.

use std::ops::Range;

use super::draft::scaled;
use super::requests::{NEVER, Requests, Row, unneeded};
use super::{Change, edit};
use crate::anatomy::{Phase, Roles};
use crate::inference::scripted::Ask;
use crate::model::{DeviceRecording, StackTable};
use crate::tables::{DeviceTables, LifetimeId, NO_EVENT};

/// The requests of a device in recorded order, with the sizes of whole blocks.
#[derive(Debug)]
pub struct Recorded {
    rows: Vec<Row>,
    older: usize,
    asks: Vec<Ask>,
    stretches: Vec<Range<u32>>,
    steps: usize,
}

/// The effect of changes on a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Peak of live block bytes, as recorded.
    pub before: u64,
    /// Peak with the changes.
    pub after: u64,
    /// The line that calls the checkpointed module, and the number of calls.
    pub place: Option<(String, usize)>,
    /// The allocations that become smaller or disappear, in order.
    pub smaller: Vec<LifetimeId>,
    /// Bytes per element of optimizer state before it became 8-bit (4 or 2); 0 if no change makes it smaller.
    pub bytes_of_state: u64,
}

impl Recorded {
    /// Reads the requests of a device. O(lifetimes log lifetimes).
    pub fn of(device: &DeviceRecording, tables: &DeviceTables, roles: &Roles) -> Self {
        let lifetimes = &tables.lifetimes;
        let older = lifetimes.initial_count();
        let ids = || lifetimes.ids();
        let unneeded = unneeded(device, lifetimes, roles);
        let mut rows: Vec<Row> = ids()
            .map(|id| {
                let stack = lifetimes.stack(device, id);
                let key = if stack.is_some() { u64::from(stack.0) + 1 } else { 0 };
                let is_older = (id.0 as usize) < older;
                let between = if is_older { Phase::Load } else { Phase::Between };
                Row {
                    size: lifetimes.block_size(id),
                    born: NEVER,
                    freed: NEVER,
                    stream: 0,
                    pool: (0, 0),
                    stack,
                    key,
                    loose: key,
                    role: roles.of(id),
                    is_master: roles.is_master_copy(id),
                    is_unneeded: unneeded.contains(&id),
                    phase: roles.anatomy.phases.of(id).unwrap_or(between),
                    event: lifetimes.born(id),
                    lap: 0,
                }
            })
            .collect();
        let mut frees: Vec<(u32, u32)> = ids().map(|id| (lifetimes.gone(id), id.0)).filter(|free| free.0 != NO_EVENT).collect();
        frees.sort_unstable();
        let mut frees = frees.into_iter().peekable();
        let mut asks = Vec::with_capacity(rows.len() * 2);
        for row in older..rows.len() {
            while let Some((_, freed)) = frees.next_if(|free| free.0 <= rows[row].event) {
                rows[freed as usize].freed = asks.len() as u32;
                asks.push(Ask::Free(freed));
            }
            rows[row].born = asks.len() as u32;
            asks.push(Ask::Alloc(row as u32));
        }
        for (_, freed) in frees {
            rows[freed as usize].freed = asks.len() as u32;
            asks.push(Ask::Free(freed));
        }
        let bounds = &roles.anatomy.steps.bounds;
        let row_at = |event: u32| (older + rows[older..].partition_point(|r| r.event < event)) as u32;
        let edges: Vec<u32> =
            [older as u32].into_iter().chain(bounds.iter().map(|&b| row_at(b))).chain([rows.len() as u32]).collect();
        let stretches = edges.windows(2).map(|w| w[0]..w[1]).collect();
        Recorded { rows, older, asks, stretches, steps: bounds.len().saturating_sub(1) }
    }

    /// The effect of these changes together on the recording's peak. `stacks` must be the recording's. O(requests) per change;
    /// for checkpointing also times the depth of the stacks.
    ///
    /// # Errors
    /// Why a change has no effect here.
    pub fn with(&self, stacks: &StackTable, changes: &[Change]) -> Result<Answer, String> {
        let Recorded { rows, asks, stretches, steps, .. } = self;
        let edited = edit(Requests { rows, asks, stretches, steps: *steps, stacks }, changes);
        if let Some(reason) = edited.reason {
            return Err(reason);
        }
        let part = |row: u32| edited.rows.get(row as usize).map_or(0, |d| scaled(self.size(d.of), d.part));
        let recorded = edited.rows.iter().zip(0..rows.len() as u32);
        let smaller = recorded.filter(|(row, _)| row.part.0 < row.part.1).map(|(_, id)| LifetimeId(id)).collect();
        let (before, after) = (self.most(asks, |row| self.size(row)), self.most(&edited.asks, part));
        Ok(Answer { before, after, place: edited.place, smaller, bytes_of_state: edited.bytes_of_state })
    }

    fn size(&self, row: u32) -> u64 {
        self.rows.get(row as usize).map_or(0, |r| r.size)
    }

    /// The peak of live bytes.
    fn most(&self, asks: &[Ask], size: impl Fn(u32) -> u64) -> u64 {
        let mut live: u64 = (0..self.older as u32).map(&size).sum();
        let mut most = live;
        for ask in asks {
            match *ask {
                Ask::Alloc(row) => live += size(row),
                Ask::Free(row) | Ask::FreeLater(row) => live = live.saturating_sub(size(row)),
                _ => {}
            }
            most = most.max(live);
        }
        most
    }
}
