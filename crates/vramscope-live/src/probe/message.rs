//! [`Message`]: what a run reports while it runs.

use super::card::CardInfo;
use super::program::Site;
use vramscope_core::allocator::HeldSegment;
use vramscope_core::model::{Action, PoolKey, Sample};

/// The start of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Hello {
    /// Version of the framed format. Readers refuse other versions.
    pub version: u32,
    /// The scenario's name, or `replay`.
    pub scenario: String,
    /// The card it runs on.
    pub card: CardInfo,
    /// The allocator's settings string; empty for PyTorch's defaults.
    pub conf: String,
    /// Most bytes that the allocator may reserve.
    pub limit: Option<u64>,
    /// Parameters as text: `seed 1, steps 24`.
    pub parameters: String,
    /// Call sites that request memory. Empty for a replay, whose sites are stacks of the recording.
    pub sites: Vec<Site>,
    /// Process ID of the run.
    pub process: u32,
}

/// An action of the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RawEvent {
    /// Microseconds since the epoch.
    pub time_us: i64,
    /// What the allocator did; decides what address and size mean.
    pub action: Action,
    /// True for pinned host memory, false for the card.
    pub is_host: bool,
    /// Index of the call site; `u32::MAX` for none.
    pub site: u32,
    /// Address of the block or segment, as in [`EventTable`](vramscope_core::model::EventTable).
    pub address: u64,
    /// Size in bytes, as in [`EventTable`](vramscope_core::model::EventTable).
    pub size: u64,
    /// Raw stream handle; 0 is the default stream.
    pub stream: u64,
    /// Key of the pool; `(0, 0)` is the default pool.
    pub pool: PoolKey,
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Every step was done.
    #[default]
    Finished,
    /// A request failed, with PyTorch's message.
    OutOfMemory(String),
    /// The user stopped it.
    Stopped,
    /// The card or the driver failed; one sentence.
    Failed(String),
}

/// The totals of a run, in bytes. Names are PyTorch's.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct End {
    /// Whether it finished, failed or was stopped.
    pub ending: Ending,
    /// Highest reserved bytes, of segments.
    pub peak_reserved_bytes: u64,
    /// Highest allocated bytes, of whole blocks.
    pub peak_allocated_bytes: u64,
    /// Highest active bytes, of whole blocks: allocated or pending free.
    pub peak_active_bytes: u64,
    /// Highest requested bytes of active blocks, before rounding.
    pub peak_requested_bytes: u64,
    /// Highest bytes of free blocks in segments that are in use.
    pub peak_inactive_split_bytes: u64,
    /// How often the cache was emptied to retry a request.
    pub num_alloc_retries: u64,
    /// Number of requests that failed.
    pub num_ooms: u64,
    /// Number of `cuMemAlloc` calls, or mappings.
    pub num_device_alloc: u64,
    /// Number of `cuMemFree` calls, or unmappings.
    pub num_device_free: u64,
    /// Number of requests, the failed ones included.
    pub requests: u64,
    /// Index of the first failed request, counted from 0.
    pub oom_request: Option<u64>,
    /// Reserved bytes at the end.
    pub final_reserved_bytes: u64,
    /// Allocated bytes at the end.
    pub final_allocated_bytes: u64,
    /// Largest difference between the allocator's reserved bytes and the driver's count. `None` when the driver was not asked.
    pub driver_difference_bytes: Option<u64>,
    /// Largest difference, over all samples, between NVML's and the driver's count of used bytes on the card. `None` without NVML.
    pub nvml_difference_bytes: Option<u64>,
    /// True when the allocator had to choose between equal free blocks of different segments, which depends on the driver's
    /// addresses. While false, no figure depends on where the driver puts segments.
    pub depends_on_placement: bool,
    /// Number of samples behind the differences.
    pub driver_samples: u64,
    /// Wall time of the run in microseconds.
    pub duration_us: u64,
}

/// A message of a run.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Message {
    /// The first message: what runs on which card.
    Hello(Box<Hello>),
    /// Actions of the allocator.
    Events(Vec<RawEvent>),
    /// The driver's figures together with the allocator's.
    Sample(Sample),
    /// A named range, in microseconds since the epoch.
    Range {
        /// Name of the range, as `step 3`.
        name: String,
        /// Start, inclusive.
        start_us: i64,
        /// End; `None` when it was cut short.
        end_us: Option<i64>,
        /// Nesting depth, 0 for the outermost.
        depth: u16,
    },
    /// Segments and blocks at the end, on the card or in pinned host memory.
    State {
        /// True for pinned host memory.
        is_host: bool,
        /// Every segment with its blocks, by address.
        segments: Vec<HeldSegment>,
    },
    /// The last message: how the run ended, with its totals.
    End(Box<End>),
}
