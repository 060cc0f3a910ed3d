//! The JSON of `oom`. Bytes are integers.

use serde::Serialize;

use vramscope_core::anatomy::Composition;
use vramscope_core::diagnose::fragmentation::WithMore;
use vramscope_core::diagnose::oom::{Advice, Verdict};
use vramscope_core::inference::{Horizon, Needed, Remedy};
use vramscope_core::units::Bytes;

/// The JSON object of the command.
#[derive(Debug, Default, Serialize)]
pub struct OomReport {
    /// True when the file is cut short.
    pub truncated: bool,
    /// For each device whose trace contradicts its final state, one sentence without a full stop.
    pub contradictions: Vec<String>,
    /// One entry per out-of-memory event.
    pub ooms: Vec<OomEntry>,
    /// Number of failures whose cause cannot be found, because profiler traces do not record free memory.
    pub ooms_without_figures: usize,
    /// Failures before the last 256 of a device, which are not examined.
    pub ooms_left_out: usize,
    /// One entry per device without a failure: its peak.
    pub peaks: Vec<PeakEntry>,
    /// One entry per device whose requests were simulated under other settings.
    pub whatif: Vec<WhatIfEntry>,
    /// Why other devices were not simulated; `null` when there is nothing to say.
    pub whatif_left_out: Option<String>,
    /// Number of allocations whose role the user's rules changed.
    pub changed_by_rules: u64,
    #[serde(skip)]
    pub(in crate::cli) rules_sentences: Vec<String>,
}

impl OomEntry {
    /// The verdict in a line of text.
    pub(in crate::cli) fn why(&self) -> String {
        if self.verdict == Verdict::Fragmentation.name() { self.headline.to_lowercase() } else { self.verdict.replace('_', " ") }
    }

    /// The figure shown with the failure: the free memory when it was fragmented, otherwise the request.
    pub(in crate::cli) fn size(&self) -> String {
        if self.headline == Verdict::Fragmentation.title() {
            format!("{} free", Bytes(self.hole_bytes))
        } else {
            format!("{} requested", Bytes(self.requested_bytes))
        }
    }
}

impl OomReport {
    /// The cap of a device, if its failures reveal it.
    pub(in crate::cli) fn limit_of(&self, device: i32) -> Option<u64> {
        self.whatif.iter().find(|w| w.device == device && !w.is_of_device)?.limit_bytes
    }
}

/// The settings tried on one device.
#[derive(Debug, Serialize)]
pub struct WhatIfEntry {
    pub(in crate::cli) device: i32,
    pub(in crate::cli) limit_bytes: Option<u64>,
    pub(in crate::cli) limit_span_bytes: Option<[u64; 2]>,
    pub(in crate::cli) agrees_with_recording: bool,
    /// Index of the first request that fails under the recording's own settings.
    pub(in crate::cli) own_oom_request: Option<u64>,
    pub(in crate::cli) own_requests: u64,
    pub(in crate::cli) tried: Vec<Remedy>,
    pub(in crate::cli) needed: Option<Needed>,
    pub(in crate::cli) needed_with_best: Option<Needed>,
    /// What is unknown because the recording ends at its failure; `null` for others.
    pub(in crate::cli) ends_at_failure: Option<Horizon>,
    #[serde(skip)]
    pub(in crate::cli) warning: String,
    /// False when the simulation serves the request that failed in the recording.
    pub(in crate::cli) fails_as_recorded: bool,
    /// No cap is known, so the limit is what the device had for this process.
    #[serde(skip)]
    pub(in crate::cli) is_of_device: bool,
}

/// The peak of a device without a failure. Bytes are integers.
#[derive(Debug, Serialize)]
pub struct PeakEntry {
    pub(in crate::cli) device: i32,
    #[serde(skip)]
    pub(in crate::cli) label: String,
    /// The highest reserved bytes and their event, which may be another one.
    #[serde(skip)]
    pub(in crate::cli) most_reserved: (u64, u32),
    /// False when the file has no segments. Reserved bytes and holes are then unknown and written as 0.
    pub(in crate::cli) has_segments: bool,
    pub(in crate::cli) event: Option<u32>,
    pub(in crate::cli) reserved_bytes: u64,
    pub(in crate::cli) active_bytes: u64,
    pub(in crate::cli) allocated_bytes: u64,
    /// Null when the file has only rounded sizes (PyTorch's profiler).
    pub(in crate::cli) requested_bytes: Option<u64>,
    pub(in crate::cli) hole_bytes: u64,
    pub(in crate::cli) holes: u64,
    pub(in crate::cli) largest_hole_bytes: u64,
    /// Bytes of holes of other pools, size classes and streams.
    pub(in crate::cli) other_hole_bytes: u64,
    /// The handle of the stream that the holes belong to; null when there is only one stream.
    pub(in crate::cli) stream: Option<u64>,
    /// The part of those holes that belongs to other streams.
    pub(in crate::cli) other_streams_hole_bytes: u64,
    pub(in crate::cli) releasable_bytes: u64,
    pub(in crate::cli) room_bytes: Option<u64>,
    pub(in crate::cli) room_from: Option<&'static str>,
    pub(in crate::cli) largest_served_bytes: u64,
    pub(in crate::cli) is_exact: bool,
    /// The answer in one or two sentences.
    pub sentence: String,
    pub(in crate::cli) blockers: Vec<BlockerEntry>,
    pub(in crate::cli) blockers_total: usize,
    pub(in crate::cli) top_live: Vec<LiveEntry>,
    pub(in crate::cli) stacks_total: usize,
    pub(in crate::cli) live_by_category: Vec<RoleEntry>,
    /// Everything that was held, for the text output.
    #[serde(skip)]
    pub(in crate::cli) held: Composition,
}

/// One failed request. Bytes are integers.
#[derive(Debug, Serialize)]
pub struct OomEntry {
    pub(in crate::cli) device: i32,
    /// False when the file has no segments. Reserved bytes and holes are then unknown and written as 0.
    pub(in crate::cli) has_segments: bool,
    pub(in crate::cli) event: u32,
    /// The last failure of its device. A program that ended there printed this one.
    pub(in crate::cli) is_last: bool,
    /// Allocations continued after it.
    pub(in crate::cli) survived: bool,
    pub(in crate::cli) requested_bytes: u64,
    pub(in crate::cli) segment_bytes: u64,
    pub(in crate::cli) device_free_bytes: Option<u64>,
    pub(in crate::cli) reserved_bytes: u64,
    pub(in crate::cli) allocated_bytes: u64,
    pub(in crate::cli) hole_bytes: u64,
    pub(in crate::cli) holes: u64,
    pub(in crate::cli) largest_hole_bytes: u64,
    /// Bytes of holes of other pools, size classes and streams.
    pub(in crate::cli) other_hole_bytes: u64,
    pub(in crate::cli) pool: &'static str,
    /// The handle of the stream of the request.
    pub(in crate::cli) stream: u64,
    pub(in crate::cli) limit_span_bytes: Option<[u64; 2]>,
    /// Who holds a full device; empty when the device was not full.
    pub(in crate::cli) holders: Vec<HolderEntry>,
    /// The size in PyTorch's own message ("Tried to allocate 20.00 MiB"), which is the size of the segment.
    pub(in crate::cli) tried_bytes: u64,
    pub(in crate::cli) verdict: &'static str,
    /// The verdict in a few words. Also distinguishes memory that is used up except for small pieces.
    pub(in crate::cli) headline: &'static str,
    /// The answer in one or two sentences.
    pub sentence: String,
    pub(in crate::cli) stack: Vec<String>,
    /// The user's line of the request, `models.py:181 update_nodes`; null when no frame is the user's.
    pub(in crate::cli) requested_at: Option<String>,
    /// The user's lines of the request. Framework frames are only counted.
    #[serde(skip)]
    pub(in crate::cli) shown_stack: Vec<String>,
    pub(in crate::cli) blockers: Vec<BlockerEntry>,
    pub(in crate::cli) blockers_total: usize,
    /// Number of blocks that are each large enough: freeing one of them suffices. And the bytes of the smallest.
    pub(in crate::cli) enough_alone: usize,
    pub(in crate::cli) smallest_alone_bytes: Option<u64>,
    /// The alternative that frees the fewest blocks, when that is not the one that frees the fewest bytes.
    pub(in crate::cli) alone_sentence: Option<String>,
    pub(in crate::cli) way_out: Option<RoomPlanEntry>,
    /// The blocks to free as a sentence, or why there are none.
    pub(in crate::cli) way_out_sentence: String,
    /// The device was full and too many blocks are in the way to list them. The text says what to make smaller instead.
    #[serde(skip)]
    pub(in crate::cli) is_simply_full: bool,
    /// A sentence on how many of the blocks to free the program needs (weights, optimizer state); `null` for none.
    pub(in crate::cli) way_out_needs: Option<String>,
    pub(in crate::cli) top_live: Vec<LiveEntry>,
    pub(in crate::cli) stacks_total: usize,
    pub(in crate::cli) live_by_category: Vec<RoleEntry>,
    /// Everything that was held, for the text output.
    #[serde(skip)]
    pub(in crate::cli) held: Composition,
    /// Only advice that a simulation or these figures support.
    pub(in crate::cli) remedies: Vec<Advice>,
    /// This failure rules out this cap and every larger one.
    #[serde(skip)]
    pub(in crate::cli) cap_below: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(in crate::cli) struct HolderEntry {
    pub(in crate::cli) name: &'static str,
    /// `null` when it is not recorded.
    pub(in crate::cli) bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(in crate::cli) struct BlockerEntry {
    #[serde(flatten)]
    pub(in crate::cli) block: BlockEntry,
    pub(in crate::cli) strands_bytes: u64,
    pub(in crate::cli) hole_if_freed_bytes: u64,
    /// What would return to the device without this block: the segment or the pages that only this block holds.
    pub(in crate::cli) returns_bytes: u64,
    /// Whether its segment can serve the request. If not, only what returns to the device helps.
    pub(in crate::cli) serves_request: bool,
}

#[derive(Debug, Serialize)]
pub(in crate::cli) struct BlockEntry {
    pub(in crate::cli) address: u64,
    pub(in crate::cli) bytes: u64,
    pub(in crate::cli) stream: u64,
    /// The program has freed the block, but another stream still uses it.
    pub(in crate::cli) pending_free: bool,
    /// Who owns its segment, when that segment cannot serve the request.
    #[serde(skip)]
    pub(in crate::cli) whose: Option<String>,
    pub(in crate::cli) age_events: Option<u32>,
    pub(in crate::cli) age_us: Option<i64>,
    #[serde(skip)]
    pub(in crate::cli) age: String,
    pub(in crate::cli) stack: Vec<String>,
    /// The role: `activations`.
    pub(in crate::cli) role: &'static str,
    /// The role is only inferred from sizes, counts and lifetimes.
    pub(in crate::cli) role_is_probable: bool,
    /// The user's line that allocated it; empty when no stack was recorded.
    #[serde(skip)]
    pub(in crate::cli) place: String,
}

#[derive(Debug, Serialize)]
pub(in crate::cli) struct RoleEntry {
    pub(in crate::cli) category: &'static str,
    /// Whole blocks. The sum is what is allocated or still in use.
    pub(in crate::cli) bytes: u64,
    pub(in crate::cli) requested_bytes: Option<u64>,
    pub(in crate::cli) count: u64,
}

#[derive(Debug, Serialize)]
pub(in crate::cli) struct LiveEntry {
    pub(in crate::cli) bytes: u64,
    pub(in crate::cli) count: u64,
    pub(in crate::cli) stack: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(in crate::cli) struct RoomPlanEntry {
    /// What makes the room: one hole, whole segments, or pages.
    pub(in crate::cli) by: &'static str,
    pub(in crate::cli) sentence: String,
    pub(in crate::cli) blocks: usize,
    pub(in crate::cli) bytes: u64,
    /// All of these blocks, largest first.
    pub(in crate::cli) blocks_to_free: Vec<BlockEntry>,
    pub(in crate::cli) segments: usize,
    /// Pages of expandable segments that return to the device.
    pub(in crate::cli) pages: usize,
    pub(in crate::cli) room_bytes: u64,
    /// No smaller set is enough. When the cap is known only as a range, this holds for `cap_bytes`.
    pub(in crate::cli) is_optimal: bool,
    /// The cap that was assumed, when only a range is known: its low end.
    pub(in crate::cli) cap_bytes: Option<u64>,
    /// What is enough under a higher possible cap, when that is less.
    pub(in crate::cli) with_higher_cap: Option<WithMore>,
    pub(in crate::cli) search: &'static str,
    /// The list is too long to be read, so the text names a single block instead.
    #[serde(skip)]
    pub(in crate::cli) is_too_long: bool,
    /// How it makes room, and whether less would be enough.
    #[serde(skip)]
    pub(in crate::cli) why: String,
}
