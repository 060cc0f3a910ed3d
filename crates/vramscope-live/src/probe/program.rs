//! [`Program`]: the steps of a scenario.

use vramscope_core::model::PoolKey;

/// A call site that requests memory. Becomes a call stack, innermost part first.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Site {
    /// What is allocated, for example `activations`.
    pub what: String,
    /// The part of the scenario, for example `forward`.
    pub phase: String,
}

/// A step. `slot` is a handle that the program chose, `size` is in bytes before rounding, `stream` a raw handle (0 is the default
/// stream), `pool` a key (`(0, 0)` is the default pool), and `site` an index in [`Program::sites`].
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Step {
    /// Request memory from the allocator.
    Alloc { slot: u32, size: u64, stream: u64, pool: PoolKey, site: u32 },
    /// Repeat a request that failed in the recording, and free it at once if it succeeds now.
    TryAlloc { size: u64, stream: u64, pool: PoolKey, site: u32 },
    /// Free a slot's block; it is reusable at once unless another stream uses it.
    Free { slot: u32, site: u32 },
    /// Free a slot whose memory becomes reusable at [`Complete`](Step::Complete).
    FreeLater { slot: u32, site: u32 },
    /// The end of a [`FreeLater`](Step::FreeLater).
    Complete { slot: u32 },
    /// Tell the allocator that another stream uses the block, as `record_stream` does.
    RecordStream { slot: u32, stream: u64 },
    /// Queue work on a stream that runs until [`Release`](Step::Release).
    Hold { stream: u64 },
    /// End the held work of a stream and wait for the stream.
    Release { stream: u64 },
    /// Give free segments back to the device, as `torch.cuda.empty_cache()` does.
    EmptyCache,
    /// Route requests into a private pool from here on.
    BeginPool(PoolKey),
    /// End the route into a private pool.
    EndPool(PoolKey),
    /// Take memory outside the allocator, as a library does with `cudaMalloc`.
    Outside { size: u64 },
    /// Free all memory outside the allocator.
    OutsideGone,
    /// Pin host memory, from PyTorch's cache of pinned memory.
    Pin { slot: u32, size: u64, site: u32 },
    /// Return pinned memory to its cache.
    Unpin { slot: u32, site: u32 },
    /// Set whether the driver's pool keeps freed memory or releases it at the next synchronisation.
    PoolKeeps(bool),
    /// `cudaMallocAsync`: request memory from the driver's own pool.
    PoolAlloc { slot: u32, size: u64, site: u32 },
    /// `cudaFreeAsync`: free into the driver's own pool.
    PoolFree { slot: u32, site: u32 },
    /// Wait for all work. The driver's pool then releases what it does not keep.
    Synchronise,
    /// Let another process take this many bytes of the card.
    Neighbour { size: u64 },
    /// Begin a named range. Without an end it is an instant.
    Begin(String),
    /// End the newest range.
    End,
    /// Sample the driver's figures, and let watchers catch up.
    Sample,
}

/// A program that is ready to run.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub steps: Vec<Step>,
    pub sites: Vec<Site>,
    /// Most bytes that the allocator may reserve.
    pub limit: Option<u64>,
    /// True when the program continues after a failed request, as the recorded program of a replay did.
    pub goes_on_after_oom: bool,
    /// Number of slots; slots are below it.
    pub slots: u32,
}

impl Program {
    pub fn new() -> Self {
        Self::default()
    }

    /// The index of a call site, added when it is new.
    pub fn site(&mut self, what: &str, phase: &str) -> u32 {
        let site = Site { what: what.to_owned(), phase: phase.to_owned() };
        let at = self.sites.iter().position(|s| *s == site).unwrap_or_else(|| {
            self.sites.push(site);
            self.sites.len() - 1
        });
        at as u32
    }

    pub fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// A slot that is not used yet.
    pub fn new_slot(&mut self) -> u32 {
        self.slots += 1;
        self.slots - 1
    }

    /// Requests memory on the default stream. Returns the slot.
    pub fn alloc(&mut self, size: u64, site: u32) -> u32 {
        let slot = self.new_slot();
        self.push(Step::Alloc { slot, size, stream: 0, pool: (0, 0), site });
        slot
    }

    /// Frees a slot at a call site.
    pub fn free(&mut self, slot: u32, site: u32) {
        self.push(Step::Free { slot, site });
    }

    /// Frees several slots at one call site, in this order.
    pub(super) fn free_all(&mut self, slots: impl IntoIterator<Item = u32>, site: u32) {
        slots.into_iter().for_each(|slot| self.free(slot, site));
    }

    /// Requests memory and frees it at once.
    pub(super) fn use_once(&mut self, size: u64, site: u32) {
        let slot = self.alloc(size, site);
        self.free(slot, site);
    }

    /// Opens a named range; [`end`](Self::end) closes it.
    pub fn begin(&mut self, name: impl Into<String>) {
        self.push(Step::Begin(name.into()));
    }

    /// Puts what `work` adds into a named range.
    pub(super) fn within<T>(&mut self, name: impl Into<String>, work: impl FnOnce(&mut Self) -> T) -> T {
        self.begin(name);
        let done = work(self);
        self.end();
        done
    }

    /// Samples the card and ends the newest range.
    pub fn end(&mut self) {
        self.push(Step::Sample);
        self.push(Step::End);
    }
}
