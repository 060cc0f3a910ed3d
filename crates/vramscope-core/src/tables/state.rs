//! [`StateIndex`]: the segments and blocks at any event, by keyframes of the live set and a short walk from the nearest.

use std::ops::Range;

use super::runs::RunTimeline;
use super::{LifetimeId, Lifetimes, NO_EVENT};
use crate::model::{BlockState, Cancelled, DeviceRecording, PoolId, Progress, SizeClass, StackId, StreamId};

/// Segments and blocks at one instant: the state after [`event`](Self::event) was applied.
///
/// The blocks of a segment cover it without a gap. Live blocks that no known segment holds (profiler traces have no segments)
/// stand after those of the last segment, by address.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The last event applied; [`NO_EVENT`]: before the first.
    pub event: u32,
    /// Segments by address.
    pub segments: Vec<SegmentAt>,
    /// Blocks by segment and address, then blocks outside any segment.
    pub blocks: Vec<BlockAt>,
    /// The four sums.
    pub totals: Totals,
}

/// A segment at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentAt {
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// The stream whose requests it serves.
    pub stream: StreamId,
    /// Its pool; [`PoolId::UNKNOWN`] when it was gone by the end and its events do not tell.
    pub pool: PoolId,
    /// Small or large requests.
    pub class: SizeClass,
    /// A mapped run of an expandable segment.
    pub is_expandable: bool,
    /// The event that took it, for an expandable run its oldest part; [`NO_EVENT`]: before the trace.
    pub born: u32,
    /// Where it was taken.
    pub stack: StackId,
    /// Its blocks in [`State::blocks`].
    pub blocks: Range<u32>,
}

/// A block at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockAt {
    /// First byte.
    pub address: u64,
    /// Bytes of the whole block.
    pub size: u64,
    /// Bytes the program asked for; 0 when inactive.
    pub requested: u64,
    /// Live, pending or a hole.
    pub state: BlockState,
    /// Its allocation; [`LifetimeId::NONE`] when inactive.
    pub lifetime: LifetimeId,
}

/// The four sums of one instant, in bytes: of the blocks, or as the source itself tells them ([`SourceTotals`](crate::model::SourceTotals)).
#[derive(Default, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// All segments.
    pub reserved: u64,
    /// Whole blocks that are not reusable yet: live and pending free.
    pub active: u64,
    /// Whole blocks the program holds.
    pub allocated: u64,
    /// What was asked for, live and pending free.
    pub requested: u64,
}

impl State {
    /// The blocks of a segment.
    #[must_use]
    pub fn blocks_of(&self, segment: &SegmentAt) -> &[BlockAt] {
        self.blocks.get(segment.blocks.start as usize..segment.blocks.end as usize).unwrap_or(&[])
    }

    /// The live blocks that no known segment holds.
    #[must_use]
    pub fn uncovered(&self) -> &[BlockAt] {
        &self.blocks[self.covered()..]
    }

    fn covered(&self) -> usize {
        self.segments.last().map_or(0, |s| s.blocks.end as usize).min(self.blocks.len())
    }

    /// The segment that holds an address. O(log segments).
    #[must_use]
    pub fn segment_at(&self, address: u64) -> Option<usize> {
        let at = self.segments.partition_point(|s| s.address <= address).checked_sub(1)?;
        (address - self.segments[at].address < self.segments[at].size).then_some(at)
    }

    /// The first address and the bytes of the part of an expandable segment around an address that has no memory behind it:
    /// what lies between two mapped runs of one segment. `None` where memory is mapped, or none is reserved on both sides.
    /// O(log segments).
    #[must_use]
    pub fn unmapped_at(&self, device: &DeviceRecording, address: u64) -> Option<(u64, u64)> {
        let next = self.segments.partition_point(|s| s.address <= address);
        let (before, after) = (self.segments.get(next.checked_sub(1)?)?, self.segments.get(next)?);
        let from = before.address + before.size;
        let is_one = before.is_expandable
            && after.is_expandable
            && (before.pool, before.class, before.stream) == (after.pool, after.class, after.stream)
            && after.address + after.size - before.address <= expandable_reach(device);
        (is_one && (from..after.address).contains(&address)).then(|| (from, after.address - from))
    }

    /// The segment that a block lies in, by their places. O(log segments).
    #[must_use]
    pub fn segment_of(&self, block: usize) -> Option<usize> {
        let at = self.segments.partition_point(|s| s.blocks.end as usize <= block);
        self.segments.get(at).is_some_and(|s| s.blocks.start as usize <= block).then_some(at)
    }

    /// The block that holds an address. O(log blocks).
    #[must_use]
    pub fn block_at(&self, address: u64) -> Option<usize> {
        let within = |blocks: &[BlockAt]| {
            let at = blocks.partition_point(|b| b.address <= address).checked_sub(1)?;
            (address - blocks[at].address < blocks[at].size).then_some(at)
        };
        let covered = self.covered();
        within(&self.blocks[..covered]).or_else(|| within(&self.blocks[covered..]).map(|at| at + covered))
    }

    /// Blocks that hold something, and blocks that were freed and wait for a stream. O(blocks).
    #[must_use]
    pub fn live_and_pending(&self) -> (u64, u64) {
        self.blocks.iter().fold((0, 0), |(live, pending), b| match b.state {
            BlockState::Active => (live + 1, pending),
            BlockState::PendingFree => (live, pending + 1),
            BlockState::Inactive => (live, pending),
        })
    }

    /// The inactive blocks: holes, and whole cached segments.
    pub fn holes(&self) -> impl Iterator<Item = &BlockAt> {
        self.blocks.iter().filter(|b| b.state == BlockState::Inactive)
    }
}

/// How far the runs of one expandable segment can lie apart, in bytes: PyTorch reserves address space for a little more than
/// the device's memory (`ExpandableSegment` in `CUDACachingAllocator.cpp`: 1 1/8 of it).
#[must_use]
pub fn expandable_reach(device: &DeviceRecording) -> u64 {
    device.capacity.map_or(1 << 40, |c| c.saturating_mul(9) / 8)
}

/// The live set at one instant, and how many rows were born by then.
#[derive(Clone, Debug)]
struct Frame {
    event: u32,
    born: u32,
    live: Vec<u32>,
}

/// Keyframes of the live set and of the segments. About a byte an event.
#[derive(Clone, Debug)]
pub struct StateIndex {
    pub(crate) runs: RunTimeline,
    frames: Vec<Frame>,
}

/// Fewest births between two keyframes: about 4096 events.
const FRAME_BIRTHS: usize = 1365;

/// How long a segment was reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentLife {
    /// First byte.
    pub address: u64,
    /// Bytes, at the instant that was asked about.
    pub size: u64,
    /// The event that took it; [`NO_EVENT`]: before the trace.
    pub born: u32,
    /// The event that gave it, or a part of it, back; [`NO_EVENT`]: not in the trace.
    pub gone: u32,
}

impl StateIndex {
    /// The life of the segment that holds an address after `event`. O(segments + changes after it).
    #[must_use]
    pub fn segment_life(&self, dev: &DeviceRecording, address: u64, event: u32) -> Option<SegmentLife> {
        let segments = self.runs.at(dev, event);
        let at = segments.partition_point(|s| s.address <= address).checked_sub(1)?;
        let segment = segments.get(at).filter(|s| address - s.address < s.size)?;
        let end = segment.address + segment.size;
        let later = self.runs.changes.get(self.runs.changes_until(event)..).unwrap_or(&[]);
        let gone = later.iter().map(|c| c.event).find(|&e| {
            let i = e as usize;
            let range = dev.events.address[i]..dev.events.address[i].saturating_add(dev.events.size[i]);
            dev.events.action[i].shrinks_reserved() && range.start < end && range.end > segment.address
        });
        let (address, size) = (segment.address, segment.size);
        Some(SegmentLife { address, size, born: segment.born, gone: gone.unwrap_or(NO_EVENT) })
    }

    pub(crate) fn build(lifetimes: &Lifetimes, runs: RunTimeline, progress: &Progress) -> Result<Self, Cancelled> {
        let initial = lifetimes.initial_count() as u32;
        let mut frames = vec![Frame { event: NO_EVENT, born: initial, live: (0..initial).collect() }];
        loop {
            let last = &frames[frames.len() - 1];
            let next = last.born as usize + FRAME_BIRTHS.max(last.live.len() * 4 / 3);
            if next > lifetimes.len() {
                break;
            }
            let event = lifetimes.born(LifetimeId(next as u32 - 1));
            let live = live_after(lifetimes, last, next as u32, event);
            progress.check()?;
            progress.advance_stage((next - last.born as usize) as u64);
            frames.push(Frame { event, born: next as u32, live });
        }
        Ok(StateIndex { runs, frames })
    }

    /// The allocations held after `event`, by id, which is order of allocation; pending frees are among them.
    #[must_use]
    pub fn live_at(&self, lifetimes: &Lifetimes, event: u32) -> Vec<LifetimeId> {
        self.live_ids(lifetimes, event).into_iter().map(LifetimeId).collect()
    }

    pub(crate) fn live_ids(&self, lifetimes: &Lifetimes, event: u32) -> Vec<u32> {
        if event == NO_EVENT {
            return self.frames[0].live.clone();
        }
        let at = self.frames.partition_point(|f| f.event == NO_EVENT || f.event <= event) - 1;
        live_after(lifetimes, &self.frames[at], lifetimes.born_by(event), event)
    }

    /// Every segment and block after `event` ([`NO_EVENT`]: before the first). Cost: the live set, sorted by address, at each call, also
    /// for the next event: a step costs what a seek does. See the map of the code for why it is not kept from one event to the next.
    #[must_use]
    pub fn at(&self, dev: &DeviceRecording, lifetimes: &Lifetimes, event: u32) -> State {
        let mut live: Vec<(u64, u32)> =
            self.live_ids(lifetimes, event).into_iter().map(|id| (lifetimes.address(dev, LifetimeId(id)), id)).collect();
        live.sort_unstable();
        let mut segments = self.runs.at(dev, event);
        let mut blocks = Vec::with_capacity(live.len() * 2 + segments.len());
        let mut totals = Totals::default();
        let mut outside = Vec::new();
        let mut next = 0;
        let mut block_of = |address: u64, id: u32| {
            let id = LifetimeId(id);
            let pending = lifetimes.is_requested_free_at(id, event);
            let (size, requested) = (lifetimes.block_size(id), lifetimes.requested(dev, id));
            totals.active = totals.active.saturating_add(size);
            totals.requested = totals.requested.saturating_add(requested);
            totals.allocated = totals.allocated.saturating_add(if pending { 0 } else { size });
            let state = if pending { BlockState::PendingFree } else { BlockState::Active };
            BlockAt { address, size, requested, state, lifetime: id }
        };
        let hole = |address: u64, size: u64| BlockAt {
            address,
            size,
            requested: 0,
            state: BlockState::Inactive,
            lifetime: LifetimeId::NONE,
        };
        for segment in &mut segments {
            let first = blocks.len() as u32;
            let end = segment.address + segment.size;
            let mut cursor = segment.address;
            while let Some(&(address, id)) = live.get(next).filter(|(address, _)| *address < end) {
                next += 1;
                let block = block_of(address, id);
                if address < cursor || block.size > end - address {
                    outside.push(block);
                    continue;
                }
                if address > cursor {
                    blocks.push(hole(cursor, address - cursor));
                }
                cursor = address + block.size;
                blocks.push(block);
            }
            if cursor < end {
                blocks.push(hole(cursor, end - cursor));
            }
            segment.blocks = first..blocks.len() as u32;
        }
        outside.extend(live[next..].iter().map(|&(address, id)| block_of(address, id)));
        blocks.extend(outside);
        let known = segments.iter().fold(0, |sum: u64, s| sum.saturating_add(s.size));
        totals.reserved = dev.source_totals.reserved.at(event).unwrap_or(known);
        if let Some(told) = dev.source_totals.allocated.at(event) {
            (totals.active, totals.allocated, totals.requested) = (told, told, told);
        }
        State { event, segments, blocks, totals }
    }
}

/// The live set after `event`, from a keyframe not after it.
fn live_after(lifetimes: &Lifetimes, from: &Frame, born: u32, event: u32) -> Vec<u32> {
    let is_held = |&id: &u32| lifetimes.gone(LifetimeId(id)) > event;
    let mut live = Vec::with_capacity(from.live.len() + 64);
    live.extend(from.live.iter().copied().filter(is_held));
    live.extend((from.born..born.max(from.born)).filter(is_held));
    live
}
