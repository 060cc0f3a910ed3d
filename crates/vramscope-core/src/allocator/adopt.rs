//! Starts the allocator from an existing state: segments and blocks are added as they are.

use super::block::{BlockIx, NO_RESERVATION, PoolIx};
use super::caching::{CachingAllocator, EventSink, LARGE, SMALL};
use super::end_state::HeldSegment;
use super::memory::DeviceMemory;
use super::simulated::SimulatedMemory;
use crate::model::{PoolKey, SizeClass};

/// A segment, or a mapped run of an expandable segment, that existed before the first event.
pub(crate) type StartSegment = HeldSegment<StartBlock>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StartBlock {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) requested: u64,
    pub(crate) is_allocated: bool,
    pub(crate) is_pending: bool,
    /// True if the trace does not determine the size.
    pub(crate) size_is_a_guess: bool,
    pub(crate) slot: u32,
}

impl StartBlock {
    pub(crate) fn is_in_use(&self) -> bool {
        self.is_allocated || self.is_pending
    }
}

/// Adds `start` to a fresh allocator; `slots` receives the live blocks. The counters include them from the start.
pub(crate) fn adopt<S: EventSink>(a: &mut CachingAllocator<SimulatedMemory, S>, start: &[StartSegment], slots: &mut [BlockIx]) {
    let mut ranges: Vec<(PoolIx, u64, Vec<&StartSegment>)> = Vec::new();
    for segment in start {
        let pool = pool_of(a, segment.pool, segment.class);
        if segment.is_expandable {
            match ranges.iter_mut().find(|(p, s, _)| *p == pool && *s == segment.stream) {
                Some((_, _, runs)) => runs.push(segment),
                None => ranges.push((pool, segment.stream, vec![segment])),
            }
            continue;
        }
        a.memory.adopt(segment.address, segment.size);
        a.segments_made += 1;
        let ordinal = a.segments_made;
        a.stats.segment.add(segment.class, 1);
        a.count_private_segment(pool, 1);
        chain(a, segment, pool, ordinal, NO_RESERVATION, BlockIx::NONE, slots);
    }
    for (pool, stream, runs) in ranges {
        adopt_range(a, pool, stream, &runs, slots);
    }
}

fn pool_of<S: EventSink>(a: &mut CachingAllocator<SimulatedMemory, S>, key: PoolKey, class: SizeClass) -> PoolIx {
    if key == (0, 0) {
        return if class == SizeClass::Small { SMALL } else { LARGE };
    }
    let at = a.private_pool(key);
    if class == SizeClass::Small { a.private[at].small } else { a.private[at].large }
}

/// Adds the runs of one expandable segment, with unmapped blocks between them and after the last one.
fn adopt_range<S: EventSink>(
    a: &mut CachingAllocator<SimulatedMemory, S>,
    pool: PoolIx,
    stream: u64,
    runs: &[&StartSegment],
    slots: &mut [BlockIx],
) {
    let Some(first) = runs.first() else { return };
    let page = a.page_of(pool);
    let total = a.memory.total();
    let base = first.address;
    let reach = runs.iter().map(|r| r.address + r.size - base).max().unwrap_or(0);
    let size = (total + total / 8).max(reach + page).next_multiple_of(page);
    let whole = a.add_reservation(pool, stream, base, size);
    let (ordinal, reservation) = (a.blocks[whole].segment, a.blocks[whole].reservation);
    a.take_unmapped(whole);
    a.forget(whole);
    let mut last = BlockIx::NONE;
    let mut at = base;
    for run in runs {
        if run.address > at {
            last = add_unmapped(a, at, run.address - at, stream, pool, ordinal, reservation, last);
        }
        a.memory.adopt_pages(run.size);
        a.count_private_segment(pool, 1);
        last = chain(a, run, pool, ordinal, reservation, last, slots);
        at = run.address + run.size;
    }
    add_unmapped(a, at, base + size - at, stream, pool, ordinal, reservation, last);
}

fn add_unmapped<S: EventSink>(
    a: &mut CachingAllocator<SimulatedMemory, S>,
    address: u64,
    size: u64,
    stream: u64,
    pool: PoolIx,
    ordinal: u32,
    reservation: u32,
    prev: BlockIx,
) -> BlockIx {
    let block = a.blocks.add(address, size, stream, pool, ordinal, reservation);
    a.blocks[block].mapped = false;
    a.blocks.link(prev, block);
    a.insert_unmapped(block);
    block
}

/// Adds a segment's blocks after `last`; returns the last block added.
fn chain<S: EventSink>(
    a: &mut CachingAllocator<SimulatedMemory, S>,
    segment: &StartSegment,
    pool: PoolIx,
    ordinal: u32,
    reservation: u32,
    mut last: BlockIx,
    slots: &mut [BlockIx],
) -> BlockIx {
    let class = segment.class;
    a.total_reserved += segment.size;
    a.stats.reserved_bytes.add(class, segment.size);
    let is_split = segment.blocks.len() > 1;
    for b in &segment.blocks {
        let block = a.blocks.add(b.address, b.size, segment.stream, pool, ordinal, reservation);
        a.blocks.link(last, block);
        last = block;
        a.blocks[block].requested = b.requested;
        if b.is_in_use() {
            slots[b.slot as usize] = block;
            a.stats.active.add(class, 1);
            a.stats.active_bytes.add(class, b.size);
            a.stats.requested_bytes.add(class, b.requested);
            if b.is_allocated {
                a.blocks[block].allocated = true;
                a.stats.allocation.add(class, 1);
                a.stats.allocated_bytes.add(class, b.size);
            } else {
                a.blocks[block].events = 1;
                a.pending_outside.push(block);
            }
        } else {
            a.insert_free(block);
            if is_split && reservation == NO_RESERVATION {
                a.stats.inactive_split.add(class, 1);
                a.stats.inactive_split_bytes.add(class, b.size);
            }
        }
    }
    last
}
