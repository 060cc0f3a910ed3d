//! [`CachingAllocator`]: serves requests and frees as PyTorch's caching allocator does.
//!
//! A request takes PyTorch's steps in order: the best fit in its pool; garbage collection; a new segment; a private pool that may
//! serve it; a new segment once large free blocks, then all free segments, are released; failure.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::block::{BlockIx, Blocks, PoolIx, Reservation};
use super::counters::MemoryStats;
use super::error::{AllocError, OutOfMemory};
use super::memory::DeviceMemory;
use super::pool::{Pool, PrivatePool, Route, TieRule};
use super::reach::Reach;
use super::waiting::Waiting;
use crate::model::{Action, AllocConf, PoolKey, SizeClass, TorchVersion};

/// The default pool for large requests.
pub(crate) const LARGE: PoolIx = 0;
/// The default pool for small requests.
pub(crate) const SMALL: PoolIx = 1;

/// Receives every action of the allocator, in the order of PyTorch's trace.
pub trait EventSink {
    /// One action. `address` is the device's free bytes for [`Action::Oom`]; `pool` is `(0, 0)` for the default pool.
    fn event(&mut self, action: Action, address: u64, size: u64, stream: u64, pool: PoolKey);

    /// Called when a replay reaches this event of its recording. The actions that follow belong to it.
    #[inline]
    fn at(&mut self, _event: usize) {}
}

/// A sink that ignores every action.
impl EventSink for () {
    #[inline]
    fn event(&mut self, _: Action, _: u64, _: u64, _: u64, _: PoolKey) {}
}

/// PyTorch's caching allocator of one device.
///
/// Generic over the memory it manages and the sink for its actions. A request takes about 0.3 µs on simulated memory.
#[derive(Debug)]
pub struct CachingAllocator<M, S> {
    pub(crate) version: TorchVersion,
    pub(crate) conf: AllocConf,
    /// The memory that segments are taken from.
    pub memory: M,
    /// Receives every action.
    pub sink: S,
    pub(crate) limit: Option<u64>,
    pub(crate) total_reserved: u64,
    pub(crate) blocks: Blocks,
    pub(crate) pools: Vec<Pool>,
    pub(crate) private: Vec<PrivatePool>,
    /// Index in `private` of each pool.
    pub(crate) private_at: FxHashMap<PoolKey, usize>,
    pub(crate) freeable: Vec<PoolKey>,
    pub(crate) routes: Vec<Route>,
    /// Number of nested stream captures. PyTorch 2.13 and later stop polling events only while this is above 0.
    pub(crate) captures: u32,
    /// Set during one request that a replay knows to belong to a private pool.
    pub(crate) routed_request: bool,
    pub(crate) use_on_oom: Vec<PoolKey>,
    pub(crate) no_split: Vec<PoolKey>,
    /// For each block, the streams that used it other than its own.
    pub(crate) recorded: FxHashMap<BlockIx, Vec<u64>>,
    pub(crate) recorded_in_capture: FxHashMap<BlockIx, Vec<u64>>,
    pub(crate) deferred: Vec<BlockIx>,
    pub(crate) pending: Vec<(u64, VecDeque<(u64, BlockIx)>)>,
    /// Freed blocks whose completion the caller reports with [`complete_free`](Self::complete_free).
    pub(crate) pending_outside: Waiting,
    pub(crate) reservations: Vec<Reservation>,
    pub(crate) segments_made: u32,
    pub(crate) tie_rule: TieRule,
    pub(crate) has_tie: bool,
    pub(crate) stats: MemoryStats,
    pub(crate) reach: Reach,
    pub(crate) throws_early: bool,
    /// True while no actions are sent to the sink.
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
            private_at: FxHashMap::default(),
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
            pending_outside: Waiting::default(),
            reservations: Vec::new(),
            segments_made: 0,
            tie_rule: TieRule::of(version),
            has_tie: false,
            stats: MemoryStats::default(),
            reach: Reach::default(),
            throws_early,
            is_mute: false,
        };
        if version.is_at_least(10) && fraction < 1.0 {
            allocator.set_memory_fraction(fraction);
        }
        allocator
    }

    /// Like `set_per_process_memory_fraction`. From 2.10 on a fraction of 1 removes the limit.
    pub fn set_memory_fraction(&mut self, fraction: f64) {
        let has_limit = fraction < 1.0 || !self.version.is_at_least(10);
        self.limit = has_limit.then(|| (fraction * self.memory.total() as f64) as u64);
    }

    /// Sets the most bytes that may be reserved; `None` leaves only the device's own limit.
    pub fn set_limit(&mut self, limit: Option<u64>) {
        self.limit = limit;
    }

    /// The current settings.
    pub fn conf(&self) -> &AllocConf {
        &self.conf
    }

    /// Applies settings as `torch.cuda.memory._set_allocator_settings` does.
    ///
    /// # Errors
    /// As [`AllocConf::reparse`]; the settings are then unchanged.
    pub fn set_settings(&mut self, text: &str) -> Result<(), crate::model::ConfError> {
        self.conf.reparse(text, self.version)
    }

    /// The figures of `memory_stats`.
    pub fn stats(&self) -> &MemoryStats {
        &self.stats
    }

    /// Reserved and allocated bytes at present.
    #[inline]
    pub fn levels(&self) -> (u64, u64) {
        (self.total_reserved, self.stats.allocated_bytes.all.current)
    }

    /// Sets every peak to the current value, as `reset_peak_memory_stats` does.
    pub fn reset_peaks(&mut self) {
        self.stats.reset_peaks();
    }

    /// True once a search chose between equal free blocks in different segments. Up to 2.12 that choice depends on the addresses
    /// that the driver gave. While false, figures do not depend on where the driver places segments.
    pub fn has_tie(&self) -> bool {
        self.has_tie
    }

    /// The highest values reached so far.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// The address of a live block.
    pub fn address(&self, block: BlockIx) -> u64 {
        self.blocks[block].address
    }

    /// The size of a live block in bytes, including its rounding.
    pub fn block_size(&self, block: BlockIx) -> u64 {
        self.blocks[block].size
    }

    /// Serves a request of `size` bytes (not 0) on a stream. The active routes decide the pool.
    ///
    /// # Errors
    /// See [`AllocError`]. Memory that the attempt released to the device stays released.
    pub fn malloc(&mut self, size: u64, stream: u64) -> Result<BlockIx, AllocError> {
        if !self.is_capturing() {
            self.process_events()?;
        }
        let rounded = self.round(size);
        let class = AllocConf::size_class(rounded);
        let pool = self.pool_for(class, stream);
        self.serve(size, rounded, pool, stream)
    }

    /// Serves a request that is known to belong to a private pool, regardless of routes; used by replays.
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

    /// Frees a block: at once, or after the pending work of other streams that used it.
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

    /// Frees a block, which becomes reusable at [`complete_free`](Self::complete_free) or when the allocator synchronises.
    pub fn free_later(&mut self, block: BlockIx) {
        self.let_go(block);
        self.blocks[block].events += 1;
        self.pending_outside.push(block);
    }

    /// Frees a block without sending an action, as PyTorch 2.0 does for a block whose allocation it did not record.
    pub(crate) fn free_untraced(&mut self, block: BlockIx) {
        self.is_mute = true;
        self.let_go(block);
        self.free_block(block);
        self.is_mute = false;
    }

    /// Completes the free of a pending block. Returns `false` and does nothing if a synchronisation completed it before.
    pub fn complete_free(&mut self, block: BlockIx) -> bool {
        if !self.pending_outside.remove(block) {
            return false;
        }
        self.blocks[block].events -= 1;
        self.free_block(block);
        true
    }

    /// Like `round_size`, but in releases up to 2.3 a setting of one division means no rounding at all.
    #[inline]
    pub(crate) fn round(&self, size: u64) -> u64 {
        let is_plain = |index: usize| self.conf.roundup_power2_divisions[index] == 1;
        if !self.version.is_at_least(4) && size > 512 && is_plain(AllocConf::division_index(size)) {
            return size;
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
        self.reach.request = self.reach.request.max(size);
        let mut expandable = self.conf.expandable_segments;
        let mut found = self.take_best_fit(pool, rounded, stream, expandable);
        if found.is_none() {
            let segment = self.conf.segment_size(rounded);
            self.reach.reserved = self.reach.reserved.max(self.total_reserved);
            self.reach.asked = self.reach.asked.max(self.total_reserved.saturating_add(segment));
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

    /// Sends the out-of-memory action and returns the error. Nothing that the attempt did is undone.
    fn fail(&mut self, pool: PoolIx, rounded: u64, stream: u64) -> AllocError {
        let available = self.memory.available();
        self.emit(Action::Oom, available, rounded, stream, pool);
        self.stats.num_ooms += 1;
        let halves = self.private.iter().flat_map(|p| [p.large, p.small]);
        let private_free = halves.flat_map(|p| self.pools[usize::from(p)].free_blocks()).map(|b| self.blocks[b].size).sum();
        AllocError::OutOfMemory(Box::new(OutOfMemory {
            segment: self.conf.segment_size(rounded),
            total: self.memory.total(),
            available,
            limit: self.limit,
            allocated: self.stats.allocated_bytes.all.current,
            private_free,
            reserved: self.stats.reserved_bytes.all.current,
        }))
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
}
