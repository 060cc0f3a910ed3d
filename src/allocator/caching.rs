//! [`CachingAllocator`]: requests, frees, and what happens between them.
//!
//! The order of steps is PyTorch's: best fit in the pool, garbage collection, a new segment, a private pool that helps out,
//! oversize blocks given back, the whole cache given back and a last try, out of memory.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::block::{BlockIx, Blocks, NO_RESERVATION, PoolIx};
use super::counters::MemoryStats;
use super::expandable::Reservation;
use super::memory::{DeviceError, DeviceMemory};
use super::oom::OutOfMemory;
use super::pool::{FreeKey, Pool, PrivatePool, Route, TieRule};
use crate::model::{Action, AllocConf, PoolKey, SizeClass, TorchVersion};

/// The default pool's large half.
pub(crate) const LARGE: PoolIx = 0;
/// The default pool's small half.
pub(crate) const SMALL: PoolIx = 1;

/// Hears every action of the allocator, in the order PyTorch's trace has them.
pub trait EventSink {
    /// One action. `address` is the device's free bytes for [`Action::Oom`]; `pool` is `(0, 0)` for the default pool.
    fn event(&mut self, action: Action, address: u64, size: u64, stream: u64, pool: PoolKey);

    /// A replay goes on to this event of its recording; what follows belongs to it.
    #[inline]
    fn at(&mut self, _event: usize) {}
}

/// Nobody listens.
impl EventSink for () {
    #[inline]
    fn event(&mut self, _: Action, _: u64, _: u64, _: u64, _: PoolKey) {}
}

/// Why a request was not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// Every resort was tried.
    #[error("{}", .0.message(TorchVersion::REFERENCE))]
    OutOfMemory(Box<OutOfMemory>),
    /// Refused before trying (`throw_on_cudamalloc_oom`, PyTorch 2.12 and later).
    #[error(
        "CUDA out of memory. Allocation was preemptively rejected because it would exceed per_process_memory_fraction limit. Requested size: {size}"
    )]
    Rejected {
        /// Bytes of the segment that would have been taken.
        size: u64,
    },
    /// The device failed in another way than by being full.
    #[error("the device failed: {0}")]
    Device(String),
    /// A pool was used against PyTorch's rules.
    #[error("{0}")]
    Pool(&'static str),
}

/// PyTorch's caching allocator of one device.
///
/// Generic over the memory it manages and over who listens. A request costs a few ordered-map operations, about 0.3 µs on
/// simulated memory.
#[derive(Debug)]
pub struct CachingAllocator<M, S> {
    pub(crate) version: TorchVersion,
    pub(crate) conf: AllocConf,
    /// The device.
    pub memory: M,
    /// The listener.
    pub sink: S,
    pub(crate) limit: Option<u64>,
    pub(crate) total_reserved: u64,
    pub(crate) blocks: Blocks,
    pub(crate) pools: Vec<Pool>,
    pub(crate) private: Vec<PrivatePool>,
    pub(crate) freeable: Vec<PoolKey>,
    pub(crate) routes: Vec<Route>,
    /// Nested real stream captures; PyTorch 2.13 and later suspend polling only then.
    pub(crate) captures: u32,
    /// Set for one request that a replay knows to belong to a private pool.
    pub(crate) routed_request: bool,
    pub(crate) use_on_oom: Vec<PoolKey>,
    pub(crate) no_split: Vec<PoolKey>,
    /// Streams a block was used on, beside its own.
    pub(crate) recorded: FxHashMap<BlockIx, Vec<u64>>,
    pub(crate) recorded_in_capture: FxHashMap<BlockIx, Vec<u64>>,
    pub(crate) deferred: Vec<BlockIx>,
    pub(crate) pending: Vec<(u64, VecDeque<(u64, BlockIx)>)>,
    /// Freed blocks whose completion somebody outside tells, in order of their free.
    pub(crate) pending_outside: Vec<BlockIx>,
    pub(crate) reservations: Vec<Reservation>,
    pub(crate) segments_made: u32,
    pub(crate) tie_rule: TieRule,
    pub(crate) has_tie: bool,
    pub(crate) stats: MemoryStats,
    throws_early: bool,
    /// Nobody hears of what happens.
    is_mute: bool,
}

impl<M: DeviceMemory, S: EventSink> CachingAllocator<M, S> {
    /// An allocator without segments. `per_process_memory_fraction` of `conf` sets the limit, as in PyTorch.
    pub fn new(memory: M, sink: S, conf: AllocConf, version: TorchVersion) -> Self {
        let fraction = conf.per_process_memory_fraction;
        let throws_early = version.is_at_least(12) && conf.other("throw_on_cudamalloc_oom") == Some("True");
        let mut allocator = CachingAllocator {
            version,
            conf,
            memory,
            sink,
            limit: None,
            total_reserved: 0,
            blocks: Blocks::default(),
            pools: vec![Pool::new(SizeClass::Large, None), Pool::new(SizeClass::Small, None)],
            private: Vec::new(),
            freeable: Vec::new(),
            routes: Vec::new(),
            captures: 0,
            routed_request: false,
            use_on_oom: Vec::new(),
            no_split: Vec::new(),
            recorded: FxHashMap::default(),
            recorded_in_capture: FxHashMap::default(),
            deferred: Vec::new(),
            pending: Vec::new(),
            pending_outside: Vec::new(),
            reservations: Vec::new(),
            segments_made: 0,
            tie_rule: TieRule::of(version),
            has_tie: false,
            stats: MemoryStats::default(),
            throws_early,
            is_mute: false,
        };
        if version.is_at_least(10) && fraction < 1.0 {
            allocator.set_memory_fraction(fraction);
        }
        allocator
    }

    /// `set_per_process_memory_fraction`. From 2.10 on a fraction of 1 takes the limit away.
    pub fn set_memory_fraction(&mut self, fraction: f64) {
        let has_limit = fraction < 1.0 || !self.version.is_at_least(10);
        self.limit = has_limit.then(|| (fraction * self.memory.total() as f64) as u64);
    }

    /// The most bytes that may be reserved; `None` is no limit but the device's.
    pub fn set_limit(&mut self, limit: Option<u64>) {
        self.limit = limit;
    }

    /// The settings in force.
    #[must_use]
    pub fn conf(&self) -> &AllocConf {
        &self.conf
    }

    /// `torch.cuda.memory._set_allocator_settings`.
    ///
    /// # Errors
    /// As [`AllocConf::reparse`]; the settings stay as they were.
    pub fn set_settings(&mut self, text: &str) -> Result<(), crate::model::ConfError> {
        self.conf.reparse(text, self.version)
    }

    /// The figures of `memory_stats`.
    #[must_use]
    pub fn stats(&self) -> &MemoryStats {
        &self.stats
    }

    /// Reserved and allocated bytes now.
    #[inline]
    #[must_use]
    pub fn levels(&self) -> (u64, u64) {
        (self.total_reserved, self.stats.allocated_bytes.all.current)
    }

    /// `reset_peak_memory_stats`.
    pub fn reset_peaks(&mut self) {
        self.stats.reset_peaks();
    }

    /// True once a search had to choose between equal free blocks of different segments, which the driver's addresses decide
    /// up to 2.12. While false, figures do not depend on where the driver puts segments.
    #[must_use]
    pub fn has_tie(&self) -> bool {
        self.has_tie
    }

    /// The address of a block that was handed out.
    #[must_use]
    pub fn address(&self, block: BlockIx) -> u64 {
        self.blocks[block].address
    }

    /// The whole size of a block that was handed out.
    #[must_use]
    pub fn block_size(&self, block: BlockIx) -> u64 {
        self.blocks[block].size
    }

    /// A request of `size` bytes, not 0, on a stream. Routes decide the pool.
    ///
    /// # Errors
    /// See [`AllocError`]. What the attempt gave back to the device stays given back.
    pub fn malloc(&mut self, size: u64, stream: u64) -> Result<BlockIx, AllocError> {
        if !self.is_capturing() {
            self.process_events()?;
        }
        let rounded = self.round(size);
        let class = AllocConf::size_class(rounded);
        let pool = self.pool_for(class, stream);
        self.serve(size, rounded, pool, stream)
    }

    /// A request that is known to belong to a private pool, whatever the routes say; for replays.
    ///
    /// # Errors
    /// As [`malloc`](Self::malloc).
    pub fn malloc_in(&mut self, size: u64, stream: u64, pool: PoolKey) -> Result<BlockIx, AllocError> {
        if pool == (0, 0) {
            return self.malloc(size, stream);
        }
        let rounded = self.round(size);
        let at = self.private_pool(pool);
        let half = match AllocConf::size_class(rounded) {
            SizeClass::Small => self.private[at].small,
            SizeClass::Large => self.private[at].large,
        };
        self.routed_request = true;
        let served = self.serve(size, rounded, half, stream);
        self.routed_request = false;
        served
    }

    /// Frees a block at once or, when other streams used it, once their work is done.
    pub fn free(&mut self, block: BlockIx) {
        self.let_go(block);
        if !self.blocks[block].recorded {
            self.free_block(block);
        } else if self.is_capturing() {
            self.deferred.push(block);
        } else {
            self.insert_events(block);
        }
    }

    /// Frees a block whose completion [`complete_free`](Self::complete_free) will tell, or a synchronising flush; for replays.
    pub fn free_later(&mut self, block: BlockIx) {
        self.let_go(block);
        self.blocks[block].events += 1;
        self.pending_outside.push(block);
    }

    /// Frees a block at once without a word, as PyTorch 2.0 does with one whose allocation it has not recorded.
    pub(crate) fn free_untraced(&mut self, block: BlockIx) {
        self.is_mute = true;
        self.let_go(block);
        self.free_block(block);
        self.is_mute = false;
    }

    /// The guarded free of a block is over; nothing happens when a flush completed it already (then `false`).
    pub fn complete_free(&mut self, block: BlockIx) -> bool {
        let Some(at) = self.pending_outside.iter().position(|&b| b == block) else { return false };
        self.pending_outside.remove(at);
        self.blocks[block].events -= 1;
        self.free_block(block);
        true
    }

    /// `round_size` with the exception of releases up to 2.3: one division means no rounding at all.
    #[inline]
    pub(crate) fn round(&self, size: u64) -> u64 {
        if !self.version.is_at_least(4) && size > 512 {
            let index = (63 - size.leading_zeros()).saturating_sub(20).min(15) as usize;
            if self.conf.roundup_power2_divisions[index] == 1 {
                return size;
            }
        }
        self.conf.round_size(size)
    }

    #[inline]
    pub(crate) fn emit(&mut self, action: Action, address: u64, size: u64, stream: u64, pool: PoolIx) {
        if self.is_mute {
            return;
        }
        let owner = self.pools[usize::from(pool)].owner.unwrap_or((0, 0));
        self.sink.event(action, address, size, stream, owner);
    }

    #[inline]
    pub(crate) fn class_of(&self, pool: PoolIx) -> SizeClass {
        self.pools[usize::from(pool)].class
    }

    #[inline]
    pub(crate) fn counts_ages(&self) -> bool {
        self.limit.is_some() && self.conf.garbage_collection_threshold > 0.0
    }

    #[inline]
    pub(crate) fn max_split(&self) -> u64 {
        self.conf.max_split_size.unwrap_or(u64::MAX)
    }

    fn serve(&mut self, size: u64, rounded: u64, pool: PoolIx, stream: u64) -> Result<BlockIx, AllocError> {
        let mut expandable = self.conf.expandable_segments;
        let mut found = self.take_best_fit(pool, rounded, stream, expandable);
        if found.is_none() {
            let segment = self.conf.segment_size(rounded);
            if self.counts_ages() {
                self.collect_garbage();
            }
            found = self.new_segment(pool, rounded, segment, stream, expandable, false)?;
            let helps_first = self.version.is_at_least(11);
            if found.is_none() && helps_first {
                found = self.take_from_helping_pool(pool, rounded, stream)?;
                expandable &= found.is_none();
            }
            if found.is_none() && self.release_available(pool, rounded, stream) {
                found = self.new_segment(pool, rounded, segment, stream, expandable, false)?;
            }
            if found.is_none() && !self.is_capturing() {
                self.release_cached((0, 0))?;
                found = self.new_segment(pool, rounded, segment, stream, expandable, true)?;
            }
            if found.is_none() && !helps_first && self.version.is_at_least(8) {
                found = self.take_from_helping_pool(pool, rounded, stream)?;
                expandable &= found.is_none();
            }
        }
        let Some(block) = found else {
            return Err(self.fail(pool, rounded, stream));
        };
        Ok(self.hand_out(block, size, rounded, expandable))
    }

    /// Best fit: the smallest free block of the stream that is large enough, ties by the release's rule. Takes it out of the pool.
    pub(crate) fn take_best_fit(&mut self, pool: PoolIx, rounded: u64, stream: u64, expandable: bool) -> Option<BlockIx> {
        let counts_ages = self.counts_ages();
        let max_split = self.max_split();
        let slack = self.conf.max_non_split_rounding.unwrap_or(self.conf.large_segment_size);
        let home = &mut self.pools[usize::from(pool)];
        if counts_ages {
            home.calls += 1;
        }
        let blocks = &self.blocks;
        let free = &home.stream(stream)?.free;
        let mut candidates = free.range(FreeKey::at_least(rounded)..).peekable();
        let (mut key, mut chosen) = candidates.next().map(|(k, &b)| (*k, b))?;
        if blocks[chosen].is_expandable() {
            if expandable {
                // The tail of an expandable segment counts with the unmapped space behind it, so that a hole is preferred.
                let reach = |b: BlockIx| {
                    let block = &blocks[b];
                    let behind = block.next.get().map_or(0, |n| if blocks[n].mapped { 0 } else { blocks[n].size });
                    block.size + behind
                };
                while blocks[chosen].is_expandable() {
                    match candidates.next() {
                        Some((k, &next)) if reach(next) < reach(chosen) => (key, chosen) = (*k, next),
                        _ => break,
                    }
                }
            } else {
                loop {
                    (key, chosen) = candidates.next().map(|(k, &b)| (*k, b))?;
                    if !blocks[chosen].is_expandable() {
                        break;
                    }
                }
            }
        }
        if !self.has_tie && self.tie_rule != TieRule::SegmentAge {
            let one = &blocks[chosen];
            for (steps, (k, &other)) in candidates.enumerate() {
                if k.size() != key.size() {
                    break;
                }
                let other = &blocks[other];
                let whole = !one.is_split() && !other.is_split() && (!counts_ages || one.gc_base == other.gc_base);
                // Whole segments of equal size are interchangeable; a long run of them is not worth proving.
                if steps >= 16 || (other.segment != one.segment && !whole) {
                    self.has_tie = true;
                    break;
                }
            }
        }
        let size = key.size();
        if (rounded < max_split && size >= max_split) || (rounded >= max_split && size >= rounded.saturating_add(slack)) {
            return None;
        }
        self.pools[usize::from(pool)].stream_mut(stream).free.remove(&key);
        Some(chosen)
    }

    /// A new segment from the device, or more pages of an expandable one. `None` when the limit or the device forbids it.
    pub(crate) fn new_segment(
        &mut self,
        pool: PoolIx,
        rounded: u64,
        segment: u64,
        stream: u64,
        expandable: bool,
        is_retry: bool,
    ) -> Result<Option<BlockIx>, AllocError> {
        if is_retry {
            self.stats.num_alloc_retries += 1;
        }
        if self.limit.is_some_and(|limit| self.total_reserved.saturating_add(segment) > limit) {
            return Ok(None);
        }
        if self.throws_early {
            let allowed = self.conf.per_process_memory_fraction * self.memory.total() as f64;
            if self.total_reserved.saturating_add(segment) > allowed as u64 {
                self.stats.num_oom_rejections += 1;
                return Err(AllocError::Rejected { size: segment });
            }
        }
        if expandable {
            let block = self.expand(pool, rounded, stream)?;
            if block.is_some() {
                self.count_private_segment(pool, 1);
            }
            return Ok(block);
        }
        let address = match self.memory.malloc(segment, stream) {
            Ok(address) => address,
            Err(DeviceError::OutOfMemory) => return Ok(None),
            Err(DeviceError::Failed(text)) => return Err(AllocError::Device(text)),
        };
        self.count_private_segment(pool, 1);
        self.total_reserved += segment;
        let class = self.class_of(pool);
        self.stats.segment.add(class, 1);
        self.stats.reserved_bytes.add(class, segment);
        if segment >= self.max_split() {
            self.stats.oversize_segments.add(1);
        }
        self.stats.num_device_alloc += 1;
        self.segments_made += 1;
        let block = self.blocks.add(address, segment, stream, pool, self.segments_made, NO_RESERVATION);
        self.emit(Action::SegmentAlloc, address, segment, stream, pool);
        Ok(Some(block))
    }

    /// Splits if the rules say so, and hands the low part out. The high part stays the old block.
    fn hand_out(&mut self, found: BlockIx, size: u64, rounded: u64, expandable: bool) -> BlockIx {
        let pool = self.blocks[found].pool;
        let class = self.class_of(pool);
        let was_split = self.blocks[found].is_split();
        let has_reservation = self.blocks[found].is_expandable();
        let mut block = found;
        if self.should_split(found, rounded, expandable) {
            let (address, stream, segment, reservation, prev) = {
                let b = &self.blocks[found];
                (b.address, b.stream, b.segment, b.reservation, b.prev)
            };
            block = self.blocks.add(address, rounded, stream, pool, segment, reservation);
            self.blocks[block].prev = prev;
            self.blocks[block].next = found;
            if let Some(prev) = prev.get() {
                self.blocks[prev].next = block;
            }
            let rest = &mut self.blocks[found];
            rest.prev = block;
            rest.address += rounded;
            rest.size -= rounded;
            let rest_size = rest.size;
            self.insert_free(found);
            if !has_reservation {
                if was_split {
                    self.stats.inactive_split_bytes.take(class, rounded);
                } else {
                    self.stats.inactive_split_bytes.add(class, rest_size);
                    self.stats.inactive_split.add(class, 1);
                }
            }
        } else if was_split && !has_reservation {
            let whole = self.blocks[found].size;
            self.stats.inactive_split_bytes.take(class, whole);
            self.stats.inactive_split.take(class, 1);
        }
        let b = &mut self.blocks[block];
        b.allocated = true;
        b.requested = size;
        let (address, stream, whole) = (b.address, b.stream, b.size);
        self.emit(Action::Alloc, address, size, stream, pool);
        self.stats.allocation.add(class, 1);
        self.stats.allocated_bytes.add(class, whole);
        self.stats.active.add(class, 1);
        self.stats.active_bytes.add(class, whole);
        self.stats.requested_bytes.add(class, size);
        if whole >= self.max_split() {
            self.stats.oversize_allocations.add(1);
        }
        block
    }

    fn should_split(&self, block: BlockIx, rounded: u64, expandable: bool) -> bool {
        let b = &self.blocks[block];
        let pool = &self.pools[usize::from(b.pool)];
        if self.version.is_at_least(10) && pool.owner.is_some_and(|id| self.no_split.contains(&id)) {
            return false;
        }
        self.conf.splits_when(expandable, pool.class, b.size, rounded)
    }

    fn let_go(&mut self, block: BlockIx) {
        let b = &mut self.blocks[block];
        b.allocated = false;
        let (address, size, requested, stream, pool) = (b.address, b.size, b.requested, b.stream, b.pool);
        let class = self.class_of(pool);
        self.stats.allocation.take(class, 1);
        self.stats.allocated_bytes.take(class, size);
        self.emit(Action::FreeRequested, address, requested, stream, pool);
        if size >= self.max_split() {
            self.stats.oversize_allocations.take(1);
        }
    }

    /// The block becomes free and grows together with free neighbours.
    pub(crate) fn free_block(&mut self, block: BlockIx) {
        let b = &self.blocks[block];
        let (address, size, requested, stream, pool) = (b.address, b.size, b.requested, b.stream, b.pool);
        let (prev, next) = (b.prev, b.next);
        let has_reservation = b.is_expandable();
        self.emit(Action::FreeCompleted, address, requested, stream, pool);
        let mut split_count = 0i64;
        let mut split_bytes = 0i64;
        for neighbour in [prev, next] {
            let absorbed = self.merge(block, neighbour);
            if absorbed > 0 {
                split_count -= 1;
                split_bytes -= absorbed as i64;
            }
        }
        self.insert_free(block);
        let b = &self.blocks[block];
        if b.is_split() {
            split_count += 1;
            split_bytes += b.size as i64;
        }
        let class = self.class_of(pool);
        if !has_reservation {
            // One signed change each, so that merging never shows as a peak.
            let stats = &mut self.stats;
            for (counter, change) in [(&mut stats.inactive_split, split_count), (&mut stats.inactive_split_bytes, split_bytes)] {
                match change {
                    0 => {}
                    up if up > 0 => counter.add(class, up.unsigned_abs()),
                    down => counter.take(class, down.unsigned_abs()),
                }
            }
        }
        self.stats.active.take(class, 1);
        self.stats.active_bytes.take(class, size);
        self.stats.requested_bytes.take(class, requested);
    }

    /// Lets `block` absorb its neighbour when that one is as free and as mapped as it is. Returns the bytes gained.
    pub(crate) fn merge(&mut self, block: BlockIx, neighbour: BlockIx) -> u64 {
        let Some(other) = neighbour.get() else { return 0 };
        let o = &self.blocks[other];
        if o.is_in_use() || o.mapped != self.blocks[block].mapped {
            return 0;
        }
        if o.mapped {
            self.take_free(other);
        } else {
            self.take_unmapped(other);
        }
        let o = &self.blocks[other];
        let (address, size, before, behind) = (o.address, o.size, o.prev, o.next);
        let is_before = self.blocks[block].prev == other;
        let b = &mut self.blocks[block];
        b.size += size;
        if is_before {
            b.address = address;
            b.prev = before;
            if let Some(before) = before.get() {
                self.blocks[before].next = block;
            }
        } else {
            b.next = behind;
            if let Some(behind) = behind.get() {
                self.blocks[behind].prev = block;
            }
        }
        self.forget(other);
        size
    }

    /// Drops a block and what side tables know of it.
    pub(crate) fn forget(&mut self, block: BlockIx) {
        if !self.recorded_in_capture.is_empty() {
            self.recorded_in_capture.remove(&block);
        }
        self.blocks.remove(block);
    }

    /// Puts a block among the free ones and stamps its age.
    pub(crate) fn insert_free(&mut self, block: BlockIx) {
        let b = &mut self.blocks[block];
        let pool = &mut self.pools[usize::from(b.pool)];
        b.gc_base = pool.calls;
        let key = self.tie_rule.key(b);
        pool.stream_mut(b.stream).free.insert(key, block);
    }

    pub(crate) fn take_free(&mut self, block: BlockIx) {
        let b = &self.blocks[block];
        let key = self.tie_rule.key(b);
        self.pools[usize::from(b.pool)].stream_mut(b.stream).free.remove(&key);
    }

    pub(crate) fn insert_unmapped(&mut self, block: BlockIx) {
        let b = &self.blocks[block];
        self.pools[usize::from(b.pool)].stream_mut(b.stream).unmapped.insert(b.address, block);
    }

    pub(crate) fn take_unmapped(&mut self, block: BlockIx) {
        let b = &self.blocks[block];
        self.pools[usize::from(b.pool)].stream_mut(b.stream).unmapped.remove(&b.address);
    }
}
