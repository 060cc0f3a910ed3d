//! [`Program`]: what a scenario does, step by step.

use vramscope_core::model::PoolKey;

/// Where memory is asked for, as a call stack names it: the innermost part first.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Site {
    /// What is allocated: `activations`.
    pub what: String,
    /// The part of the scenario that asks: `forward`.
    pub phase: String,
}

/// One step. Slots are handles that the program chooses; sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask the allocator for memory.
    Alloc {
        /// Handle.
        slot: u32,
        /// Bytes.
        size: u64,
        /// Stream, 0 the default one.
        stream: u64,
        /// The pool, `(0, 0)` unless routes or a replay say otherwise.
        pool: PoolKey,
        /// Index in [`Program::sites`].
        site: u32,
    },
    /// Ask as a request did that failed in the recording, and free at once where it succeeds now.
    TryAlloc {
        /// Bytes.
        size: u64,
        /// Stream.
        stream: u64,
        /// Pool.
        pool: PoolKey,
        /// Index in [`Program::sites`].
        site: u32,
    },
    /// Free a slot.
    Free {
        /// Handle.
        slot: u32,
        /// Index in [`Program::sites`].
        site: u32,
    },
    /// Free a slot whose memory becomes reusable at [`Complete`](Step::Complete).
    FreeLater {
        /// Handle.
        slot: u32,
        /// Index in [`Program::sites`].
        site: u32,
    },
    /// End of a [`FreeLater`](Step::FreeLater).
    Complete {
        /// Handle.
        slot: u32,
    },
    /// `record_stream`.
    RecordStream {
        /// Handle.
        slot: u32,
        /// The other stream.
        stream: u64,
    },
    /// Queue work on a stream that does not end before [`Release`](Step::Release).
    Hold {
        /// Stream.
        stream: u64,
    },
    /// Let the held work of a stream end, and wait for it.
    Release {
        /// Stream.
        stream: u64,
    },
    /// `torch.cuda.empty_cache()`.
    EmptyCache,
    /// Route requests into a private pool.
    BeginPool(PoolKey),
    /// End of the route.
    EndPool(PoolKey),
    /// Memory outside the allocator, as a library takes it with `cudaMalloc`.
    Outside {
        /// Bytes.
        size: u64,
    },
    /// All memory outside the allocator goes back.
    OutsideGone,
    /// Pinned host memory.
    Pin {
        /// Handle.
        slot: u32,
        /// Bytes.
        size: u64,
        /// Index in [`Program::sites`].
        site: u32,
    },
    /// Give pinned memory back to its cache.
    Unpin {
        /// Handle.
        slot: u32,
        /// Index in [`Program::sites`].
        site: u32,
    },
    /// From here on the driver's pool keeps what is freed, or gives it back at the next synchronisation.
    PoolKeeps(bool),
    /// `cudaMallocAsync`: memory of the driver's own pool.
    PoolAlloc {
        /// Handle.
        slot: u32,
        /// Bytes.
        size: u64,
        /// Index in [`Program::sites`].
        site: u32,
    },
    /// `cudaFreeAsync`.
    PoolFree {
        /// Handle.
        slot: u32,
        /// Index in [`Program::sites`].
        site: u32,
    },
    /// Wait for everything; the driver's pool gives back what it does not keep.
    Synchronise,
    /// Another process takes this many bytes of the card.
    Neighbour {
        /// Bytes.
        size: u64,
    },
    /// A range of this name begins, an instant when nothing ends it.
    Begin(String),
    /// The newest range ends.
    End,
    /// Read what the driver says of the card, and let who watches catch up.
    Sample,
}

/// A scenario ready to run.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Its steps.
    pub steps: Vec<Step>,
    /// Where memory is asked for.
    pub sites: Vec<Site>,
    /// The most bytes the allocator may reserve.
    pub limit: Option<u64>,
    /// Whether a failed request ends the run. A replay of a recording goes on as its program did when this is false.
    pub goes_on_after_oom: bool,
    /// Handles needed.
    pub slots: u32,
}

impl Program {
    /// An empty program.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Index of a place that asks for memory.
    pub fn site(&mut self, what: &str, phase: &str) -> u32 {
        let site = Site { what: what.to_owned(), phase: phase.to_owned() };
        let at = self.sites.iter().position(|s| *s == site).unwrap_or_else(|| {
            self.sites.push(site);
            self.sites.len() - 1
        });
        at as u32
    }

    /// Adds a step.
    pub fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// A handle nobody uses.
    pub fn new_slot(&mut self) -> u32 {
        self.slots += 1;
        self.slots - 1
    }

    /// Asks for memory on the default stream; gives the handle.
    pub fn alloc(&mut self, size: u64, site: u32) -> u32 {
        let slot = self.new_slot();
        self.push(Step::Alloc { slot, size, stream: 0, pool: (0, 0), site });
        slot
    }

    /// Frees a handle.
    pub fn free(&mut self, slot: u32, site: u32) {
        self.push(Step::Free { slot, site });
    }

    /// Opens a range.
    pub fn begin(&mut self, name: impl Into<String>) {
        self.push(Step::Begin(name.into()));
    }

    /// Closes the newest range and samples the card.
    pub fn end(&mut self) {
        self.push(Step::Sample);
        self.push(Step::End);
    }
}
