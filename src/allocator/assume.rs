//! [`Assumption`]: what a replay had to take for granted because the trace does not tell it.

use std::fmt;

use super::cap::CapRange;
use crate::units::{Bytes, count, counted};

/// One thing a trace does not tell, and what was assumed instead. Shown with every result that is not exact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assumption {
    /// Recording began when memory was in use already.
    StartedEarlier {
        /// Blocks that were live then.
        blocks: u64,
        /// Of those, the ones whose whole size is a guess.
        uncertain: u64,
    },
    /// Blocks from before the recording that no event tells of: what stands behind them shows that they were there, and what
    /// takes their place that they went.
    Untraced {
        /// How many.
        blocks: u64,
        /// Their bytes together.
        bytes: u64,
    },
    /// Bytes that the trace's totals tell beyond its events: allocated before profiling began, and not in the run.
    BeforeProfiling {
        /// The most of them.
        bytes: u64,
    },
    /// The segments of the file are not those behind its last event, as in a file cut short: the trace stands for itself.
    EndIsLater,
    /// The settings name an allocator that is not PyTorch's own.
    OtherBackend,
    /// The settings give the process a share of a device whose size the recording does not tell: no limit was applied.
    ShareOfUnknown,
    /// A setting of a later release than the one whose rules were run.
    LaterSetting {
        /// `throw_on_cudamalloc_oom`.
        name: &'static str,
        /// The first release that reads it.
        since: crate::model::TorchVersion,
    },
    /// A setting whose effect depends on what the trace does not tell; the run was made without it.
    NotModelled {
        /// `graph_capture_record_stream_reuse`.
        name: &'static str,
        /// What it depends on, in a few words.
        because: &'static str,
    },
    /// The trace has requests but no segments, as a profiler's: only sizes are known, nothing can be compared.
    NoSegmentEvents,
    /// Frees without allocations, or addresses handed out twice: events are missing.
    UnmatchedEvents {
        /// How many.
        count: u64,
    },
    /// Frees that waited for another stream's work, which a trace shows only by when they completed.
    GuardedFrees {
        /// How many.
        count: u64,
    },
    /// The recording failed at some requests and no limit is known: one that explains them was taken.
    InferredLimit {
        /// Bytes.
        bytes: u64,
        /// What its failed requests leave for it.
        range: CapRange,
    },
    /// Requests that failed in the recording succeed under other settings; what the program would have done then is unknown.
    WentOnDifferently {
        /// The first such event.
        event: u32,
    },
    /// Requests of captured graphs: what a graph restores in place is asked for again, like any other request of its pool.
    PrivatePools {
        /// How many.
        count: u64,
    },
    /// The rules of this release explain the recording, which does not name its release.
    InferredVersion {
        /// `2.13`.
        version: crate::model::TorchVersion,
    },
}

impl fmt::Display for Assumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Assumption::StartedEarlier { blocks: 0, .. } => {
                write!(f, "memory was reserved, and all of it free, before the recording began")
            }
            Assumption::StartedEarlier { blocks, uncertain } => {
                let [was, keep] = if *blocks == 1 { ["was", "keeps its place"] } else { ["were", "keep their places"] };
                write!(f, "{} {was} there before the recording began and {keep}", counted(*blocks, "block", "blocks"))?;
                if *uncertain > 0 {
                    write!(f, "; the whole size of {} of them is a guess", count(*uncertain))?;
                }
                Ok(())
            }
            Assumption::Untraced { blocks, bytes } => {
                let [was, it] = if *blocks == 1 { ["was", "it was"] } else { ["were", "they were"] };
                write!(
                    f,
                    "{} ({}) {was} in use before the recording began and freed without an event, as PyTorch 2.0 does; {it} taken to go when the place was needed",
                    counted(*blocks, "block", "blocks"),
                    Bytes(*bytes)
                )
            }
            Assumption::EndIsLater => {
                write!(
                    f,
                    "the segments of the file are of a later instant than its last event, so the trace is taken to begin with nothing"
                )
            }
            Assumption::OtherBackend => {
                write!(
                    f,
                    "with backend:cudaMallocAsync CUDA's own allocator serves the requests, which this model is not; PyTorch's native one was run"
                )
            }
            Assumption::ShareOfUnknown => {
                write!(
                    f,
                    "the recording does not have the size of the device, so the limit that per_process_memory_fraction sets is unknown and was not applied"
                )
            }
            Assumption::LaterSetting { name, since } => {
                write!(
                    f,
                    "the setting {name} is of PyTorch {since} and later; it was applied to the rules of the recording's release"
                )
            }
            Assumption::NotModelled { name, because } => {
                write!(f, "the setting {name} was not applied: {because}")
            }
            Assumption::BeforeProfiling { bytes } => {
                write!(
                    f,
                    "{} that were allocated before profiling began are not in the run: its figures are what the trace itself allocates, \
                     and the peaks of the process are higher by about as much",
                    Bytes(*bytes)
                )
            }
            Assumption::NoSegmentEvents => {
                write!(
                    f,
                    "the trace does not show segments, so the model cannot be compared with it; sizes are taken as requests"
                )
            }
            Assumption::UnmatchedEvents { count: n } => {
                let verb = if *n == 1 { "does" } else { "do" };
                write!(f, "{} of the trace {verb} not match: events are missing", counted(*n, "event", "events"))
            }
            Assumption::GuardedFrees { count: n } => {
                let they =
                    if *n == 1 { "it is taken to complete where it did" } else { "they are taken to complete where they did" };
                write!(f, "{} waited for another stream; {they} in the recording", counted(*n, "free", "frees"))
            }
            Assumption::InferredLimit { bytes, range } if range.is_known() => {
                write!(f, "the recording does not name its memory limit; {} explains its failed requests", Bytes(*bytes))
            }
            Assumption::InferredLimit { bytes, range } => {
                write!(
                    f,
                    "the recording does not name its memory limit; its failed requests say {range}, and {} was taken",
                    Bytes(*bytes)
                )
            }
            Assumption::WentOnDifferently { event } => {
                write!(
                    f,
                    "the request of event {} failed in the recording and succeeds here; from there on the program could have done something else",
                    count(u64::from(*event))
                )
            }
            Assumption::PrivatePools { count: n } => {
                let run = if *n == 1 { "runs" } else { "run" };
                write!(
                    f,
                    "{} of private pools {run} again like any other; a captured graph would restore its blocks in place",
                    counted(*n, "request", "requests")
                )
            }
            Assumption::InferredVersion { version } => {
                write!(f, "the recording does not name its PyTorch release; the rules of {version} explain it")
            }
        }
    }
}
