//! [`Lifetimes`]: one row per allocation, from its `alloc` until its memory became reusable.

use std::sync::OnceLock;

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::initial::{Initial, find_initial};
use super::instant::{LifetimeId, NO_EVENT};
use super::placement::{Before, Placement};
use super::runs::{RunTimeline, known_pool};
use crate::model::{
    Action, AllocConf, BlockState, Cancelled, DeviceRecording, PoolId, Progress, SizeClass, StackId, Stage, StreamId,
};

/// One allocation, assembled from the compact columns and the event table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Its row in [`Lifetimes`].
    pub id: LifetimeId,
    /// Address of the first byte.
    pub address: u64,
    /// Bytes that the program requested.
    pub requested: u64,
    /// Bytes of the whole block; exact if [`Lifetimes::blocks_exact`] is true.
    pub block: u64,
    /// The `alloc` event; [`NO_EVENT`] when it was live before the trace.
    pub born: u32,
    /// The `free_requested` event, or the `free_completed` event if only that was recorded; [`NO_EVENT`] when the trace has
    /// neither (see [`Lifetimes::pending_at_start`]).
    pub free_requested: u32,
    /// The `free_completed` event, or the `alloc` that reused the address without one; [`NO_EVENT`] when still held at the end.
    pub gone: u32,
    /// Where it was allocated; [`StackId::NONE`] when that was before the trace and the end state has no stack.
    pub stack: StackId,
    /// Where it was freed. With `context="alloc"` PyTorch may have recorded the allocation's stack here.
    pub free_stack: StackId,
    /// The stream it was allocated on.
    pub stream: StreamId,
    /// Its pool as named by the event, otherwise that of its segment.
    pub pool: PoolId,
    /// Small or large requests.
    pub class: SizeClass,
}

/// Block sizes in units of 512 bytes; in bytes if the source has a size that is not a multiple.
#[derive(Clone, Debug)]
enum BlockSizes {
    Units(Vec<u32>),
    Bytes(Vec<u64>),
}

impl Default for BlockSizes {
    fn default() -> Self {
        BlockSizes::Units(Vec::new())
    }
}

const UNIT: u64 = 512;

impl BlockSizes {
    fn push(&mut self, size: u64) {
        if let BlockSizes::Units(units) = self {
            match u32::try_from(size / UNIT) {
                Ok(n) if size.is_multiple_of(UNIT) => return units.push(n),
                _ => *self = BlockSizes::Bytes(units.iter().map(|&n| u64::from(n) * UNIT).collect()),
            }
        }
        if let BlockSizes::Bytes(bytes) = self {
            bytes.push(size);
        }
    }

    fn set(&mut self, at: usize, size: u64) {
        if let BlockSizes::Units(units) = self {
            match u32::try_from(size / UNIT) {
                Ok(n) if size.is_multiple_of(UNIT) => {
                    units[at] = n;
                    return;
                }
                _ => *self = BlockSizes::Bytes(units.iter().map(|&n| u64::from(n) * UNIT).collect()),
            }
        }
        if let BlockSizes::Bytes(bytes) = self {
            bytes[at] = size;
        }
    }

    #[inline]
    fn get(&self, at: usize) -> u64 {
        match self {
            BlockSizes::Units(units) => units.get(at).map_or(0, |&n| u64::from(n) * UNIT),
            BlockSizes::Bytes(bytes) => bytes.get(at).copied().unwrap_or(0),
        }
    }
}

/// Every allocation of one device: about 16 bytes per row and 4 per event.
#[derive(Debug, Default)]
pub struct Lifetimes {
    initial: Vec<Initial>,
    /// `alloc` events of the rows after the initial ones.
    born: Vec<u32>,
    free_requested: Vec<u32>,
    gone: Vec<u32>,
    blocks: BlockSizes,
    /// Lifetime id of each event.
    by_event: Vec<u32>,
    /// Event and lifetime, for lifetimes that ended because their address was allocated again.
    lost: Vec<(u32, u32)>,
    /// Pools of the rows after the initial ones; empty if events name the pools or there is only one.
    pools: Vec<PoolId>,
    /// Row ids grouped by a hash of their address; built on first use.
    by_address: OnceLock<(Vec<u32>, Vec<u32>)>,
    /// True when each allocation has at most one free request, then one completion. An event's columns then show how it changes a
    /// curve.
    is_plain: bool,
    /// True when every block size is certain: the settings are known, the trace agrees with the end state everywhere, and no
    /// block from before the trace was freed while its slack was unknown.
    pub blocks_exact: bool,
    /// Frees of addresses where nothing was live.
    pub unmatched_frees: u64,
    /// Events and end-state blocks that do not follow from the replayed block list.
    pub mismatches: u64,
    /// Blocks from before the trace that were freed while their size was a guess (off by at most 1 MiB each).
    pub guessed_blocks: u64,
}

impl Lifetimes {
    pub(crate) fn build(dev: &DeviceRecording, timeline: &RunTimeline, progress: &Progress) -> Result<Self, Cancelled> {
        let starts_empty = dev.has_final_state && timeline.initial.is_empty();
        if starts_empty {
            let whole = Self::scan(dev, timeline, Vec::new(), progress)?;
            if whole.unmatched_frees == 0 {
                return Ok(whole);
            }
        }
        let initial = find_initial(dev, timeline, progress)?;
        Self::scan(dev, timeline, initial, progress)
    }

    fn scan(
        dev: &DeviceRecording,
        timeline: &RunTimeline,
        initial: Vec<Initial>,
        progress: &Progress,
    ) -> Result<Self, Cancelled> {
        let events = &dev.events;
        let conf = &dev.settings.conf;
        let mut placement = Placement::new(conf, events.sizes_are_blocks);
        for run in &timeline.initial {
            placement.add_run(run);
        }
        let count = initial.len();
        let wants_pools = dev.pools.len() > 1 && events.pool.contains(&PoolId::UNKNOWN);
        let mut rows = Lifetimes {
            born: Vec::with_capacity(events.len() / 3),
            free_requested: Vec::with_capacity(count + events.len() / 3),
            gone: Vec::with_capacity(count + events.len() / 3),
            blocks: BlockSizes::Units(Vec::with_capacity(count + events.len() / 3)),
            by_event: Vec::with_capacity(events.len()),
            initial,
            ..Lifetimes::default()
        };
        let mut before = Vec::with_capacity(count);
        for (id, block) in rows.initial.iter().enumerate() {
            let is_known = block.block > 0 || events.sizes_are_blocks;
            let least = if events.sizes_are_blocks { block.requested } else { conf.round_size(block.requested) };
            let size = if block.block > 0 { block.block } else { least };
            rows.free_requested.push(NO_EVENT);
            rows.gone.push(NO_EVENT);
            rows.blocks.push(size);
            before.push(Before {
                address: block.address,
                size,
                is_known,
                requested: block.requested,
                lifetime: id as u32,
                is_pending: block.pending,
            });
        }
        before.sort_by_key(|b| b.address);
        placement.add_before(&before);

        let mut is_plain = !rows.initial.iter().any(|b| b.pending);
        let mut change = 0;
        progress.begin(Stage::Lifetimes, events.len() as u64);
        for (i, &action) in events.action.iter().enumerate() {
            if i & 0xffff == 0 {
                progress.check()?;
                progress.advance_stage(0x1_0000.min(i as u64));
            }
            let event = i as u32;
            let mut of_event = NO_EVENT;
            match action {
                Action::Alloc => {
                    let id = rows.gone.len() as u32;
                    let placed = placement.alloc(events.address[i], events.size[i], id);
                    if placed.lost != NO_EVENT {
                        rows.end(placed.lost, event);
                        rows.lost.push((event, placed.lost));
                    }
                    rows.born.push(event);
                    rows.free_requested.push(NO_EVENT);
                    rows.gone.push(NO_EVENT);
                    rows.blocks.push(placed.block);
                    if wants_pools {
                        rows.pools.push(placed.pool);
                    }
                    of_event = id;
                }
                Action::FreeRequested => {
                    of_event = placement.free_requested(events.address[i]);
                    match rows.free_requested.get_mut(of_event as usize) {
                        Some(requested) if *requested == NO_EVENT => *requested = event,
                        Some(_) => is_plain = false,
                        None => rows.unmatched_frees += 1,
                    }
                }
                Action::FreeCompleted => {
                    of_event = placement.free_completed(events.address[i], events.size[i]);
                    if of_event == NO_EVENT {
                        rows.unmatched_frees += 1;
                    } else {
                        rows.end(of_event, event);
                        is_plain &= rows.free_requested[of_event as usize] != event;
                    }
                }
                Action::Annotate => of_event = placement.lifetime_at(events.address[i]),
                Action::SegmentAlloc | Action::SegmentMap => {
                    placement.add_run(&timeline.run(dev, change, action == Action::SegmentMap));
                    change += 1;
                }
                Action::SegmentFree => {
                    placement.remove_run(events.address[i], events.size[i]);
                    change += 1;
                }
                Action::SegmentUnmap => {
                    placement.unmap(events.address[i], events.size[i]);
                    change += 1;
                }
                Action::Snapshot | Action::Oom | Action::Unknown => {}
            }
            rows.by_event.push(of_event);
        }
        for &(id, size) in &placement.corrected {
            rows.blocks.set(id as usize, size);
        }
        rows.mismatches = placement.mismatches + timeline.mismatches;
        rows.guessed_blocks = placement.unresolved;
        rows.is_plain = is_plain && placement.uneven == 0 && rows.unmatched_frees == 0 && rows.lost.is_empty();
        if dev.has_final_state {
            rows.compare_with_end(dev, &placement);
        }
        let settings_matter = !rows.born.is_empty() || rows.initial.iter().any(|b| b.block == 0);
        let replay_agrees = dev.has_final_state
            && rows.mismatches == 0
            && rows.guessed_blocks == 0
            && rows.unmatched_frees == 0
            && rows.lost.is_empty()
            && (dev.settings.recorded || !settings_matter);
        rows.blocks_exact = replay_agrees || events.sizes_are_blocks;
        Ok(rows)
    }

    /// Ends a lifetime: its memory became reusable at `event`.
    fn end(&mut self, id: u32, event: u32) {
        let i = id as usize;
        if let (Some(gone), Some(requested)) = (self.gone.get_mut(i), self.free_requested.get_mut(i)) {
            *gone = event;
            if *requested == NO_EVENT && !self.initial.get(i).is_some_and(|b| b.pending) {
                *requested = event;
            }
        }
    }

    /// Corrects the replay by the file's end state: the file's block sizes override those found.
    fn compare_with_end(&mut self, dev: &DeviceRecording, placement: &Placement<'_>) {
        let active = dev.blocks.iter().filter(|b| b.state != BlockState::Inactive);
        let mut at_end: FxHashMap<u64, (u64, bool)> =
            active.map(|b| (b.address, (b.size, b.state == BlockState::PendingFree))).collect();
        for (address, size, id, pending, soft) in placement.held() {
            match at_end.remove(&address) {
                Some((true_size, true_pending)) => {
                    self.mismatches += u64::from((size != true_size && !soft) || pending != true_pending);
                    if size != true_size {
                        self.blocks.set(id as usize, true_size);
                    }
                }
                None => self.mismatches += 1,
            }
        }
        self.mismatches += at_end.len() as u64;
    }

    /// Number of allocations, those from before the trace included.
    pub fn len(&self) -> usize {
        self.gone.len()
    }

    /// True without any allocation.
    pub fn is_empty(&self) -> bool {
        self.gone.is_empty()
    }

    /// Rows `0..initial_count` were live before the trace.
    pub fn initial_count(&self) -> usize {
        self.initial.len()
    }

    /// Every allocation, in the order of their births; those from before the trace come first.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = LifetimeId> + Clone + use<> {
        (0..self.len() as u32).map(LifetimeId)
    }

    /// The allocations that the trace made.
    pub fn recorded_ids(&self) -> impl DoubleEndedIterator<Item = LifetimeId> + Clone + use<> {
        (self.initial_count() as u32..self.len() as u32).map(LifetimeId)
    }

    /// True if the trace contains allocations. If not, the recording shows one instant, at most with a few frees before it.
    pub fn has_allocations(&self) -> bool {
        self.len() > self.initial_count()
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Allocations whose address was allocated again while they were live: their free is missing from the trace. The `alloc`,
    /// and the lifetime that it ended.
    pub fn lost(&self) -> &[(u32, u32)] {
        &self.lost
    }

    /// A row; `None` for an id of another table.
    pub fn get(&self, dev: &DeviceRecording, id: LifetimeId) -> Option<Lifetime> {
        let i = id.0 as usize;
        let gone = *self.gone.get(i)?;
        let free_requested = self.free_requested[i];
        let block = self.blocks.get(i);
        let freed = if free_requested == NO_EVENT { gone } else { free_requested };
        let free_stack = dev.events.stack.get(freed as usize).copied().unwrap_or(StackId::NONE);
        if let Some(before) = self.initial.get(i) {
            return Some(Lifetime {
                id,
                address: before.address,
                requested: before.requested,
                block,
                born: NO_EVENT,
                free_requested,
                gone,
                stack: before.stack,
                free_stack,
                stream: before.stream,
                pool: before.pool,
                class: before.class,
            });
        }
        let row = i - self.initial.len();
        let born = self.born[row];
        let at = born as usize;
        let events = &dev.events;
        let requested = events.size[at];
        let rounded = if events.sizes_are_blocks { requested } else { dev.settings.conf.round_size(requested) };
        let pool = match known_pool(dev, events.pool[at]) {
            PoolId::UNKNOWN => self.pools.get(row).copied().unwrap_or(PoolId::UNKNOWN),
            known => known,
        };
        Some(Lifetime {
            id,
            address: events.address[at],
            requested,
            block,
            born,
            free_requested,
            gone,
            stack: events.stack[at],
            free_stack,
            stream: events.stream[at],
            pool,
            class: AllocConf::size_class(rounded),
        })
    }

    /// Its `alloc` event; [`NO_EVENT`] when it was live before the trace.
    #[inline]
    pub fn born(&self, id: LifetimeId) -> u32 {
        (id.0 as usize).checked_sub(self.initial.len()).and_then(|row| self.born.get(row).copied()).unwrap_or(NO_EVENT)
    }

    /// The event at which its memory became reusable; [`NO_EVENT`] when still held at the end.
    #[inline]
    pub fn gone(&self, id: LifetimeId) -> u32 {
        self.gone.get(id.0 as usize).copied().unwrap_or(NO_EVENT)
    }

    /// The event at which the program freed it; [`NO_EVENT`] when the trace has none.
    #[inline]
    pub fn free_requested(&self, id: LifetimeId) -> u32 {
        self.free_requested.get(id.0 as usize).copied().unwrap_or(NO_EVENT)
    }

    /// True when its free was requested before the first event: it only waits for another stream.
    #[inline]
    pub fn pending_at_start(&self, id: LifetimeId) -> bool {
        self.initial.get(id.0 as usize).is_some_and(|b| b.pending)
    }

    /// True when its memory is held after `event` ([`NO_EVENT`]: before the first), whether or not its free was requested.
    #[inline]
    pub fn is_live_at(&self, id: LifetimeId, event: u32) -> bool {
        let born = self.born(id);
        if event == NO_EVENT {
            return (id.0 as usize) < self.initial.len();
        }
        (born == NO_EVENT || born <= event) && self.gone(id) > event
    }

    /// True when the program has freed it by `event` ([`NO_EVENT`]: before the first).
    #[inline]
    pub fn is_requested_free_at(&self, id: LifetimeId, event: u32) -> bool {
        let requested = self.free_requested(id);
        self.pending_at_start(id) || (event != NO_EVENT && requested != NO_EVENT && requested <= event)
    }

    /// Bytes of the whole block.
    #[inline]
    pub fn block_size(&self, id: LifetimeId) -> u64 {
        self.blocks.get(id.0 as usize)
    }

    /// The value of an initial block, or that of the allocating event in `column`.
    #[inline]
    fn told<T: Copy>(&self, id: LifetimeId, initial: impl Fn(&Initial) -> T, column: &[T], none: T) -> T {
        let i = id.0 as usize;
        match self.initial.get(i) {
            Some(before) => initial(before),
            None => self.born.get(i - self.initial.len()).map_or(none, |&e| column[e as usize]),
        }
    }

    /// Bytes that the program requested.
    #[inline]
    pub fn requested(&self, dev: &DeviceRecording, id: LifetimeId) -> u64 {
        self.told(id, |before| before.requested, &dev.events.size, 0)
    }

    /// Address of the first byte. O(1).
    #[inline]
    pub fn address(&self, dev: &DeviceRecording, id: LifetimeId) -> u64 {
        self.told(id, |before| before.address, &dev.events.address, 0)
    }

    /// Where it was allocated.
    #[inline]
    pub fn stack(&self, dev: &DeviceRecording, id: LifetimeId) -> StackId {
        self.told(id, |before| before.stack, &dev.events.stack, StackId::NONE)
    }

    /// The allocation of an `alloc`, `free_requested`, `free_completed` or `annotate` event; [`LifetimeId::NONE`] for others. O(1).
    #[inline]
    pub fn of_event(&self, event: u32) -> LifetimeId {
        LifetimeId(self.by_event.get(event as usize).copied().unwrap_or(u32::MAX))
    }

    /// Number of rows allocated up to and including `event`: their ids lie below it. [`NO_EVENT`] counts the initial ones.
    pub(crate) fn born_by(&self, event: u32) -> u32 {
        let rows = if event == NO_EVENT { 0 } else { self.born.partition_point(|&b| b <= event) };
        (self.initial.len() + rows) as u32
    }

    /// Allocations at an address, oldest first. The first call groups all rows (about 20 ns per row); later calls are cheap.
    fn tenants(&self, dev: &DeviceRecording, address: u64) -> Vec<LifetimeId> {
        let (starts, rows) = self.by_address.get_or_init(|| self.group_by_address(dev));
        let bucket = bucket_of(address, starts.len() - 1);
        let found = &rows[starts[bucket] as usize..starts[bucket + 1] as usize];
        found.iter().map(|&i| LifetimeId(i)).filter(|&id| self.address(dev, id) == address).collect()
    }

    /// How many earlier allocations its address had, shown as `b0x…_3`. Cost as `tenants`.
    pub fn generation(&self, dev: &DeviceRecording, id: LifetimeId) -> u32 {
        self.tenants(dev, self.address(dev, id)).iter().filter(|&&other| other < id).count() as u32
    }

    fn group_by_address(&self, dev: &DeviceRecording) -> (Vec<u32>, Vec<u32>) {
        let buckets = (self.len() / 4).next_power_of_two().max(2);
        let hashes: Vec<u32> =
            (0..self.len() as u32).into_par_iter().map(|i| bucket_of(self.address(dev, LifetimeId(i)), buckets) as u32).collect();
        let mut starts = vec![0u32; buckets + 1];
        for &h in &hashes {
            starts[h as usize + 1] += 1;
        }
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut next = starts.clone();
        let mut rows = vec![0u32; self.len()];
        for (i, &h) in hashes.iter().enumerate() {
            let at = &mut next[h as usize];
            rows[*at as usize] = i as u32;
            *at += 1;
        }
        (starts, rows)
    }
}

/// `buckets` is a power of two.
fn bucket_of(address: u64, buckets: usize) -> usize {
    ((address >> 9).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (buckets - 1)
}
