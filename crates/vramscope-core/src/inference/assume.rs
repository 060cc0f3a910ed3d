//! [`Assumption`]: what a replay assumed because the trace does not record it.

use std::fmt;

use super::cap_range::CapRange;
use crate::units::{Bytes, count, counted};

/// Something that a trace does not record, and the assumption made instead. Shown with every result that is not exact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assumption {
    /// Recording began when memory was already in use.
    StartedEarlier {
        /// Number of blocks that were live then.
        blocks: u64,
        /// Number of these whose block size is a guess.
        uncertain: u64,
    },
    /// Blocks from before the recording that no event names. The positions of later blocks show that they existed, and reuse of
    /// their memory shows that they were freed.
    Untraced {
        /// Number of these blocks.
        blocks: u64,
        /// Sum of their sizes in bytes.
        bytes: u64,
    },
    /// Bytes in the trace's totals that were allocated before profiling began. Its events do not include them, nor does the run.
    BeforeProfiling {
        /// The highest such figure in the trace.
        bytes: u64,
    },
    /// The file's segments are later than its last event, as in a file that was cut short. Only the trace is used.
    EndIsLater,
    /// The settings choose an allocator that is not PyTorch's own.
    OtherBackend,
    /// The settings limit the process to a share of a device whose size is unknown, so no limit was applied.
    ShareOfUnknown,
    /// The settings contain a key that only a later release reads.
    LaterSetting {
        /// The setting's key: `throw_on_cudamalloc_oom`.
        name: &'static str,
        /// The first release that reads it.
        since: crate::model::TorchVersion,
    },
    /// A setting whose effect depends on something the trace does not record; the run ignores it.
    NotModelled {
        /// The setting's key: `graph_capture_record_stream_reuse`.
        name: &'static str,
        /// What it depends on, in a few words.
        because: &'static str,
    },
    /// The trace has requests but no segments, as a profiler's trace: only sizes are known, so the model cannot be checked.
    NoSegmentEvents,
    /// Events are missing: there are frees without allocations, or allocations at addresses in use.
    UnmatchedEvents {
        /// Number of frees without an allocation and of allocations at an address in use.
        count: u64,
    },
    /// Frees that waited for another stream's work. The trace shows only when they completed.
    GuardedFrees {
        /// Number of frees that completed later.
        count: u64,
    },
    /// Requests failed in the recording and the limit is unknown, so the run uses a limit that explains the failures.
    InferredLimit {
        /// The limit of the run, in bytes.
        bytes: u64,
        /// The range of limits that explain the failed requests.
        range: CapRange,
    },
    /// Requests that failed in the recording succeed under other settings; what the program would then have done is unknown.
    WentOnDifferently {
        /// The first such event.
        event: u32,
    },
    /// The recording contains CUDA graph captures. Memory that a graph reuses in place is requested again from its pool.
    PrivatePools {
        /// Number of requests that went to a private pool.
        count: u64,
    },
    /// The recording does not name its release; the rules of this one explain it.
    InferredVersion {
        /// The release whose rules were used.
        version: crate::model::TorchVersion,
    },
}

impl fmt::Display for Assumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Assumption::StartedEarlier { blocks: 0, .. } => {
                write!(f, "some memory was reserved but unused before the recording began")
            }
            Assumption::StartedEarlier { blocks, uncertain } => {
                let [was, keep] = if *blocks == 1 { ["was", "keeps its place"] } else { ["were", "keep their places"] };
                write!(f, "{} {was} there before the recording began and {keep}", counted(*blocks, "block", "blocks"))?;
                if *uncertain > 0 {
                    write!(f, "; the full size of {} of them is estimated", count(*uncertain))?;
                }
                Ok(())
            }
            Assumption::Untraced { blocks, bytes } => {
                let was = if *blocks == 1 { "was" } else { "were" };
                write!(
                    f,
                    "{} ({}) {was} in use before the recording began and freed without an event, as in PyTorch 2.0; the replay frees a block when its address is needed again",
                    counted(*blocks, "block", "blocks"),
                    Bytes(*bytes)
                )
            }
            Assumption::EndIsLater => {
                write!(f, "the file lists its segments at a later time than its last event, so the replay starts empty")
            }
            Assumption::OtherBackend => {
                write!(
                    f,
                    "backend:cudaMallocAsync is CUDA's own allocator, which is not modelled; the replay uses PyTorch's native one"
                )
            }
            Assumption::ShareOfUnknown => {
                write!(
                    f,
                    "the recording does not contain the size of the device, so the limit from per_process_memory_fraction is unknown and was not applied"
                )
            }
            Assumption::LaterSetting { name, since } => {
                write!(
                    f,
                    "{name} exists from PyTorch {since} on; it was applied all the same, with the rules of the recording's release"
                )
            }
            Assumption::NotModelled { name, because } => {
                write!(f, "the setting {name} is not modelled: {because}")
            }
            Assumption::BeforeProfiling { bytes } => {
                write!(
                    f,
                    "{} were allocated before profiling began and are not replayed, so the real peaks are about that much higher",
                    Bytes(*bytes)
                )
            }
            Assumption::NoSegmentEvents => {
                write!(
                    f,
                    "the trace has no segment events, so the replay cannot be checked against it; sizes of blocks are used as sizes of requests"
                )
            }
            Assumption::UnmatchedEvents { count: n } => {
                let verb = if *n == 1 { "does" } else { "do" };
                write!(f, "{} of the trace {verb} not fit the others: some events are missing", counted(*n, "event", "events"))
            }
            Assumption::GuardedFrees { count: n } => {
                let them = if *n == 1 { "it" } else { "them" };
                write!(
                    f,
                    "{} waited for another stream; the replay completes {them} where the recording did",
                    counted(*n, "free", "frees")
                )
            }
            Assumption::InferredLimit { bytes, range } if range.is_known() => {
                write!(f, "the recording does not contain a memory limit; {} fits its failed requests", Bytes(*bytes))
            }
            Assumption::InferredLimit { bytes, range } => {
                write!(
                    f,
                    "the recording does not contain a memory limit; its failed requests put it at {range}, and {} was used",
                    Bytes(*bytes)
                )
            }
            Assumption::WentOnDifferently { event } => {
                write!(
                    f,
                    "the request of event {} failed in the recording and succeeds here; the program might have continued differently",
                    count(u64::from(*event))
                )
            }
            Assumption::PrivatePools { count: n } => {
                let is = if *n == 1 { "is" } else { "are" };
                write!(
                    f,
                    "{} in private pools {is} replayed like any other; a captured CUDA graph would reuse its own blocks",
                    counted(*n, "request", "requests")
                )
            }
            Assumption::InferredVersion { version } => {
                write!(f, "the recording does not name its PyTorch release; the rules of {version} fit it")
            }
        }
    }
}
