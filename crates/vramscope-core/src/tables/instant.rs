//! Types for one instant: event and allocation ids, and the segments and blocks of a [`State`].

use std::ops::Range;

use crate::model::{BlockState, DeviceRecording, PoolId, SizeClass, StackId, StreamId};

/// No event. As an allocation event it means "before the first event"; as a free event, "not in the trace".
pub const NO_EVENT: u32 = u32::MAX;

/// Row in [`Lifetimes`](super::Lifetimes), blocks older than the trace first, then allocations in event order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LifetimeId(pub u32);

impl LifetimeId {
    /// Stands for the missing allocation of an inactive block.
    pub const NONE: LifetimeId = LifetimeId(u32::MAX);

    /// True unless this is [`LifetimeId::NONE`].
    pub fn is_some(self) -> bool {
        self != Self::NONE
    }
}

/// Segments and blocks at one instant: the state after [`event`](Self::event) was applied.
///
/// The blocks of a segment cover it without gaps. Live blocks outside any known segment (profiler traces have no segments) follow
/// after the blocks of the last segment, by address.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The last event applied; [`NO_EVENT`]: before the first.
    pub event: u32,
    /// Segments by address; empty in a profiler trace.
    pub segments: Vec<SegmentAt>,
    /// Blocks by segment and address, then blocks outside any segment.
    pub blocks: Vec<BlockAt>,
    /// The four totals after [`event`](Self::event).
    pub totals: Totals,
}

/// A segment at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentAt {
    /// Address of the first byte.
    pub address: u64,
    /// Size in bytes; the exclusive end is `address + size`.
    pub size: u64,
    /// The stream whose requests it serves.
    pub stream: StreamId,
    /// Its pool; [`PoolId::UNKNOWN`] when it was freed before the end and its events do not name the pool.
    pub pool: PoolId,
    /// Small or large requests.
    pub class: SizeClass,
    /// True for a mapped run of an expandable segment.
    pub is_expandable: bool,
    /// The event that allocated it (for an expandable run, its oldest part); [`NO_EVENT`]: before the trace.
    pub born: u32,
    /// Where it was allocated.
    pub stack: StackId,
    /// Its blocks in [`State::blocks`].
    pub blocks: Range<u32>,
}

/// A block at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockAt {
    /// Address of the first byte.
    pub address: u64,
    /// Bytes of the whole block.
    pub size: u64,
    /// Bytes that the program requested; 0 when inactive.
    pub requested: u64,
    /// Live, pending or a hole.
    pub state: BlockState,
    /// Its allocation; [`LifetimeId::NONE`] when inactive.
    pub lifetime: LifetimeId,
}

/// The four totals of one instant, in bytes: summed over blocks, or as the source reports them
/// ([`SourceTotals`](crate::model::SourceTotals)).
#[derive(Default, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Bytes of all segments.
    pub reserved: u64,
    /// Whole blocks that cannot be reused yet: live and pending free.
    pub active: u64,
    /// Whole blocks that the program has not freed.
    pub allocated: u64,
    /// Requested bytes of live and pending blocks.
    pub requested: u64,
}

impl State {
    /// The blocks of a segment.
    pub fn blocks_of(&self, segment: &SegmentAt) -> &[BlockAt] {
        self.blocks.get(segment.blocks.start as usize..segment.blocks.end as usize).unwrap_or(&[])
    }

    /// The live blocks outside any known segment.
    pub fn uncovered(&self) -> &[BlockAt] {
        &self.blocks[self.covered()..]
    }

    fn covered(&self) -> usize {
        self.segments.last().map_or(0, |s| s.blocks.end as usize).min(self.blocks.len())
    }

    /// Index of the segment that holds an address. O(log segments).
    pub fn segment_at(&self, address: u64) -> Option<usize> {
        let at = self.segments.partition_point(|s| s.address <= address).checked_sub(1)?;
        (address - self.segments[at].address < self.segments[at].size).then_some(at)
    }

    /// First address and size of the unmapped range around an address: the gap between two mapped runs of one expandable segment.
    /// `None` where memory is mapped, or where the neighbours are not of one segment. O(log segments).
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

    /// Index of the segment that contains a block, given the block's index. O(log segments).
    pub fn segment_of(&self, block: usize) -> Option<usize> {
        let at = self.segments.partition_point(|s| s.blocks.end as usize <= block);
        self.segments.get(at).is_some_and(|s| s.blocks.start as usize <= block).then_some(at)
    }

    /// Index of the block that holds an address. O(log blocks).
    pub fn block_at(&self, address: u64) -> Option<usize> {
        let within = |blocks: &[BlockAt]| {
            let at = blocks.partition_point(|b| b.address <= address).checked_sub(1)?;
            (address - blocks[at].address < blocks[at].size).then_some(at)
        };
        let covered = self.covered();
        within(&self.blocks[..covered]).or_else(|| within(&self.blocks[covered..]).map(|at| at + covered))
    }

    /// Number of live blocks, and of blocks pending free. O(blocks).
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

    /// Number of holes, their bytes, and the largest one.
    pub fn hole_figures(&self) -> (u64, u64, u64) {
        self.holes().fold((0, 0, 0), |(n, sum, max), hole| (n + 1, sum + hole.size, max.max(hole.size)))
    }
}

/// How far apart the runs of one expandable segment can be, in bytes: PyTorch reserves 1 1/8 of the device's memory as address
/// space (`ExpandableSegment` in `CUDACachingAllocator.cpp`).
pub fn expandable_reach(device: &DeviceRecording) -> u64 {
    device.capacity.map_or(1 << 40, |c| c.saturating_mul(9) / 8)
}
