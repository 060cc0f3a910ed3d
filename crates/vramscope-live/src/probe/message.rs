//! [`Message`]: what a run tells while it runs.

use super::card::CardInfo;
use super::program::Site;
use vramscope_core::allocator::HeldSegment;
use vramscope_core::model::{Action, PoolKey, Sample};

/// The start of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Hello {
    /// Version of the framed format; readers refuse others.
    pub version: u32,
    /// The scenario's name, or `replay`.
    pub scenario: String,
    /// Where it runs.
    pub card: CardInfo,
    /// The allocator's settings.
    pub conf: String,
    /// The most bytes the allocator may reserve.
    pub limit: Option<u64>,
    /// Parameters in words: `seed 1, steps 24`.
    pub parameters: String,
    /// Where memory is asked for; empty for a replay, whose sites are stacks of the recording.
    pub sites: Vec<Site>,
    /// Process that runs it.
    pub process: u32,
}

/// One action of the allocator, 48 bytes on the pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawEvent {
    /// Microseconds since the epoch.
    pub time_us: i64,
    /// What happened.
    pub action: Action,
    /// True for pinned host memory, false for the card.
    pub is_host: bool,
    /// Index of the place that asked; `u32::MAX` for none.
    pub site: u32,
    /// As in [`EventTable`](vramscope_core::model::EventTable).
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Raw stream.
    pub stream: u64,
    /// Pool.
    pub pool: PoolKey,
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Every step was done.
    #[default]
    Finished,
    /// A request failed; PyTorch's text.
    OutOfMemory(String),
    /// Somebody stopped it.
    Stopped,
    /// The card or the driver failed; one sentence.
    Failed(String),
}

/// The figures of a run. Bytes; names are PyTorch's.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct End {
    /// How it ended.
    pub ending: Ending,
    /// Highest reserved bytes.
    pub peak_reserved_bytes: u64,
    /// Highest allocated bytes.
    pub peak_allocated_bytes: u64,
    /// Highest active bytes.
    pub peak_active_bytes: u64,
    /// Highest requested bytes.
    pub peak_requested_bytes: u64,
    /// Highest bytes of free pieces in segments in use.
    pub peak_inactive_split_bytes: u64,
    /// Times the cache was emptied to try again.
    pub num_alloc_retries: u64,
    /// Failed requests.
    pub num_ooms: u64,
    /// Calls of `cuMemAlloc`, or mappings.
    pub num_device_alloc: u64,
    /// Calls of `cuMemFree`, or unmappings.
    pub num_device_free: u64,
    /// Requests made.
    pub requests: u64,
    /// The first request that failed, counted from 0.
    pub oom_request: Option<u64>,
    /// Reserved bytes at the end.
    pub final_reserved_bytes: u64,
    /// Allocated bytes at the end.
    pub final_allocated_bytes: u64,
    /// The largest difference, over all samples, between what the allocator reserved and what the driver counts as taken by it.
    /// `None` where the driver was not asked.
    pub driver_difference_bytes: Option<u64>,
    /// The largest difference, over all samples, between what NVML and the driver count as used on the card. `None` without NVML.
    pub nvml_difference_bytes: Option<u64>,
    /// True once equal free blocks of different segments were chosen between, which the driver's addresses decide. While false,
    /// no figure depends on where the driver puts segments.
    pub depends_on_placement: bool,
    /// Samples the difference was taken over.
    pub driver_samples: u64,
    /// Wall time of the run in microseconds.
    pub duration_us: u64,
}

/// What a run tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// First of all.
    Hello(Box<Hello>),
    /// What the allocator did.
    Events(Vec<RawEvent>),
    /// What the driver says, with the allocator's figures beside it.
    Sample(Sample),
    /// A range of this name, in microseconds since the epoch.
    Range {
        /// Name.
        name: String,
        /// Start.
        start_us: i64,
        /// End; `None` while it was cut short.
        end_us: Option<i64>,
        /// Nesting, 0 outermost.
        depth: u16,
    },
    /// Segments and blocks at the end, of the card or of pinned host memory.
    State {
        /// Pinned host memory.
        is_host: bool,
        /// By address.
        segments: Vec<HeldSegment>,
    },
    /// Last of all.
    End(Box<End>),
}
