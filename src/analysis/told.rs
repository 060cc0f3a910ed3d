//! What a source does not tell, said in the words of the program that wrote it: who reads RMM's log does not use PyTorch's snapshots.

use crate::model::{Format, Recording};

/// Why a recording has no segments and no reserved bytes. One or two sentences.
#[must_use]
pub fn why_no_segments(recording: &Recording) -> &'static str {
    match recording.source.format {
        Format::RmmLog => "RMM's log has allocations and frees only: what RMM's pools reserved is not in it.",
        Format::MemoryTimeline => "A memory timeline has no segments. A memory snapshot has them.",
        _ => "A profiler trace has no segments. A memory snapshot has them.",
    }
}

/// The program whose allocator a recording is of.
#[must_use]
pub fn allocator_name(recording: &Recording) -> &'static str {
    if recording.source.format == Format::RmmLog { "RMM" } else { "PyTorch" }
}

/// What to say where addresses are made up, see [`Recording::tells_addresses`].
pub const NO_ADDRESSES: &str =
    "This file tells no addresses; which of several equal allocations a free ends is a guess (the youngest).";

/// The zone of times of day: ` UTC`, or nothing where the source does not tell one.
#[must_use]
pub fn zone(recording: &Recording) -> &'static str {
    if recording.tells_date() { " UTC" } else { "" }
}

/// Why a recording does not say what was asked for.
#[must_use]
pub fn why_no_requested(recording: &Recording) -> &'static str {
    match recording.source.format {
        Format::KinetoTrace | Format::MemoryTimeline => {
            "PyTorch's profiler writes whole blocks. A memory snapshot has both sizes."
        }
        _ => "This list of segments has whole blocks only, as PyTorch 1.11 wrote them. A newer one has both sizes.",
    }
}
