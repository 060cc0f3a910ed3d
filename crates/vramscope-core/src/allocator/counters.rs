//! The figures of `torch.cuda.memory_stats`.

use crate::model::SizeClass;

/// A counter: current value, peak, and the sums of all increases and decreases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Value now: a count or bytes, as the field of [`MemoryStats`] says.
    pub current: u64,
    /// Highest value since the start or the last reset of the peaks.
    pub peak: u64,
    /// Sum of all increases.
    pub allocated: u64,
    /// Sum of all decreases.
    pub freed: u64,
}

impl Counter {
    #[inline]
    pub(crate) fn add(&mut self, n: u64) {
        self.current += n;
        self.allocated += n;
        if self.current > self.peak {
            self.peak = self.current;
        }
    }

    #[inline]
    pub(crate) fn take(&mut self, n: u64) {
        self.current = self.current.saturating_sub(n);
        self.freed += n;
    }

    fn reset_peak(&mut self) {
        self.peak = self.current;
    }
}

/// A counter for all pools together, for small requests and for large requests. Private pools are included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounter {
    /// Both pools together.
    pub all: Counter,
    /// Requests of at most 1 MiB.
    pub small: Counter,
    /// Requests of more than 1 MiB.
    pub large: Counter,
}

impl PoolCounter {
    #[inline]
    pub(crate) fn add(&mut self, class: SizeClass, n: u64) {
        self.all.add(n);
        self.of(class).add(n);
    }

    #[inline]
    pub(crate) fn take(&mut self, class: SizeClass, n: u64) {
        self.all.take(n);
        self.of(class).take(n);
    }

    #[inline]
    fn of(&mut self, class: SizeClass) -> &mut Counter {
        match class {
            SizeClass::Small => &mut self.small,
            SizeClass::Large => &mut self.large,
        }
    }
}

/// Everything that `torch.cuda.memory_stats` reports. Sizes are those of whole blocks unless stated otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Blocks that the program holds.
    pub allocation: PoolCounter,
    /// Segments allocated with `cudaMalloc`; expandable segments are not counted.
    pub segment: PoolCounter,
    /// Blocks that the program holds or whose free is pending.
    pub active: PoolCounter,
    /// Free blocks in segments that also hold blocks in use.
    pub inactive_split: PoolCounter,
    /// Bytes of the blocks in [`allocation`](Self::allocation).
    pub allocated_bytes: PoolCounter,
    /// Bytes of segments.
    pub reserved_bytes: PoolCounter,
    /// Bytes of the blocks in [`active`](Self::active).
    pub active_bytes: PoolCounter,
    /// Bytes of the blocks in [`inactive_split`](Self::inactive_split).
    pub inactive_split_bytes: PoolCounter,
    /// Bytes that the program requested, for active blocks.
    pub requested_bytes: PoolCounter,
    /// Allocations of at least `max_split_size`.
    pub oversize_allocations: Counter,
    /// Segments of at least `max_split_size`.
    pub oversize_segments: Counter,
    /// Times the cache was emptied and the device asked again.
    pub num_alloc_retries: u64,
    /// Requests that failed with [`OutOfMemory`](super::OutOfMemory).
    pub num_ooms: u64,
    /// Times the allocator waited for all streams with pending frees.
    pub num_sync_all_streams: u64,
    /// Number of `cudaMalloc` and mapping calls.
    pub num_device_alloc: u64,
    /// Number of `cudaFree` and unmapping calls.
    pub num_device_free: u64,
    /// Requests rejected before trying (`throw_on_cudamalloc_oom`, PyTorch 2.12 and later).
    pub num_oom_rejections: u64,
}

impl MemoryStats {
    /// The per-pool counters with PyTorch's names, in the order in which `memory_stats` documents them.
    pub fn pool_counters(&self) -> [(&'static str, &PoolCounter); 9] {
        [
            ("allocation", &self.allocation),
            ("segment", &self.segment),
            ("active", &self.active),
            ("inactive_split", &self.inactive_split),
            ("allocated_bytes", &self.allocated_bytes),
            ("reserved_bytes", &self.reserved_bytes),
            ("active_bytes", &self.active_bytes),
            ("inactive_split_bytes", &self.inactive_split_bytes),
            ("requested_bytes", &self.requested_bytes),
        ]
    }

    /// Every figure under its `memory_stats` key, such as `allocated_bytes.all.peak`.
    pub fn entries(&self) -> Vec<(String, u64)> {
        let mut out = Vec::with_capacity(130);
        let mut counter = |name: String, c: &Counter| {
            for (what, value) in [("current", c.current), ("peak", c.peak), ("allocated", c.allocated), ("freed", c.freed)] {
                out.push((format!("{name}.{what}"), value));
            }
        };
        for (name, c) in self.pool_counters() {
            counter(format!("{name}.all"), &c.all);
            counter(format!("{name}.small_pool"), &c.small);
            counter(format!("{name}.large_pool"), &c.large);
        }
        counter("oversize_allocations".to_owned(), &self.oversize_allocations);
        counter("oversize_segments".to_owned(), &self.oversize_segments);
        for (name, value) in [
            ("num_alloc_retries", self.num_alloc_retries),
            ("num_ooms", self.num_ooms),
            ("num_sync_all_streams", self.num_sync_all_streams),
            ("num_device_alloc", self.num_device_alloc),
            ("num_device_free", self.num_device_free),
        ] {
            out.push((name.to_owned(), value));
        }
        out
    }

    /// Sets every peak to the current value, as `reset_peak_memory_stats` does.
    pub fn reset_peaks(&mut self) {
        for c in [
            &mut self.allocation,
            &mut self.segment,
            &mut self.active,
            &mut self.inactive_split,
            &mut self.allocated_bytes,
            &mut self.reserved_bytes,
            &mut self.active_bytes,
            &mut self.inactive_split_bytes,
            &mut self.requested_bytes,
        ] {
            c.all.reset_peak();
            c.small.reset_peak();
            c.large.reset_peak();
        }
        self.oversize_allocations.reset_peak();
        self.oversize_segments.reset_peak();
    }
}
