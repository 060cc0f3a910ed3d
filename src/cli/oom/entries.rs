//! What `oom` answers, as its JSON has it. Bytes are integers.

use serde::Serialize;

use vramscope_core::anatomy::Composition;
use vramscope_core::diagnose::oom::Advice;
use vramscope_core::inference::{Horizon, Needed, Remedy};

/// The JSON object of the command-line contract.
#[derive(Debug, Serialize)]
pub struct OomReport {
    /// True when the file ends in the middle: what came after is not known.
    pub truncated: bool,
    /// What the trace of a device says against the file's own end, a sentence each, without a full stop.
    pub contradictions: Vec<String>,
    /// One entry an out-of-memory event.
    pub ooms: Vec<OomEntry>,
    /// Failures of which the source tells too little to say why (profiler traces do not tell what was free).
    pub ooms_without_figures: usize,
    /// Failures before the last 256 of a device, which were not examined.
    pub ooms_left_out: usize,
    /// One entry a device in which nothing failed: its peak.
    pub peaks: Vec<PeakEntry>,
    /// One entry a device on which other settings were tried.
    pub whatif: Vec<WhatIfEntry>,
    /// Why none were tried on the others; `null` when there is nothing to say.
    pub whatif_left_out: Option<String>,
    /// Allocations that the user's own rules put into another role.
    pub changed_by_rules: u64,
    #[serde(skip)]
    pub(super) rules_sentences: Vec<String>,
}

/// The settings tried on one device.
#[derive(Debug, Serialize)]
pub struct WhatIfEntry {
    pub(super) device: i32,
    pub(super) limit_bytes: Option<u64>,
    pub(super) limit_span_bytes: Option<[u64; 2]>,
    pub(super) agrees_with_recording: bool,
    /// Under its own settings a request fails after so many, of so many.
    pub(super) own_oom_request: Option<u64>,
    pub(super) own_requests: u64,
    pub(super) tried: Vec<Remedy>,
    pub(super) needed: Option<Needed>,
    pub(super) needed_with_best: Option<Needed>,
    /// What a recording that ends at its failure leaves open; `null` for others.
    pub(super) ends_at_failure: Option<Horizon>,
    #[serde(skip)]
    pub(super) warning: String,
    /// No cap is known: the limit is what the device had for this process.
    #[serde(skip)]
    pub(super) is_of_device: bool,
}

/// The instant at which a device without a failure held most. Bytes are integers.
#[derive(Debug, Serialize)]
pub struct PeakEntry {
    pub(super) device: i32,
    #[serde(skip)]
    pub(super) label: String,
    /// The most that was reserved at any event, which is not always this one.
    #[serde(skip)]
    pub(super) most_reserved: (u64, u32),
    /// False where segments are not in the file: what is reserved and free inside is then 0 and not known.
    pub(super) has_segments: bool,
    pub(super) event: Option<u32>,
    pub(super) reserved_bytes: u64,
    pub(super) active_bytes: u64,
    pub(super) allocated_bytes: u64,
    /// Null where the file has rounded sizes and not what was asked for (PyTorch's profiler).
    pub(super) requested_bytes: Option<u64>,
    pub(super) hole_bytes: u64,
    pub(super) holes: u64,
    pub(super) largest_hole_bytes: u64,
    /// Holes of other pools, sizes and streams.
    pub(super) other_hole_bytes: u64,
    /// The handle of the stream that the holes are of; null where it is the only one.
    pub(super) stream: Option<u64>,
    /// Of those other holes what other streams have.
    pub(super) other_streams_hole_bytes: u64,
    pub(super) releasable_bytes: u64,
    pub(super) room_bytes: Option<u64>,
    pub(super) room_from: Option<&'static str>,
    pub(super) largest_served_bytes: u64,
    pub(super) is_exact: bool,
    /// The answer.
    pub sentence: String,
    pub(super) blockers: Vec<BlockerEntry>,
    pub(super) blockers_total: usize,
    pub(super) top_live: Vec<LiveEntry>,
    pub(super) stacks_total: usize,
    pub(super) live_by_category: Vec<RoleEntry>,
    /// All that was held, for people.
    #[serde(skip)]
    pub(super) held: Composition,
}

/// One failed request. Bytes are integers.
#[derive(Debug, Serialize)]
pub struct OomEntry {
    pub(super) device: i32,
    /// False where segments are not in the file: what is reserved and free inside is then 0 and not known.
    pub(super) has_segments: bool,
    pub(super) event: u32,
    /// The last failure of its device, the one a program that ended so printed.
    pub(super) is_last: bool,
    /// Something was allocated after it.
    pub(super) survived: bool,
    pub(super) requested_bytes: u64,
    pub(super) segment_bytes: u64,
    pub(super) device_free_bytes: Option<u64>,
    pub(super) reserved_bytes: u64,
    pub(super) allocated_bytes: u64,
    pub(super) hole_bytes: u64,
    pub(super) holes: u64,
    pub(super) largest_hole_bytes: u64,
    /// Holes of other pools, sizes and streams.
    pub(super) other_hole_bytes: u64,
    pub(super) pool: &'static str,
    /// The handle of the stream that asked.
    pub(super) stream: u64,
    pub(super) limit_span_bytes: Option<[u64; 2]>,
    /// Who holds a full device; empty where the device was not full.
    pub(super) holders: Vec<HolderEntry>,
    pub(super) verdict: &'static str,
    /// The answer.
    pub sentence: String,
    pub(super) stack: Vec<String>,
    /// The user's own line of it, `models.py:181 update_nodes`; null where no frame is the user's.
    pub(super) requested_at: Option<String>,
    /// The user's lines of it, with framework frames counted.
    #[serde(skip)]
    pub(super) told: Vec<String>,
    pub(super) blockers: Vec<BlockerEntry>,
    pub(super) blockers_total: usize,
    /// Blocks of which any one is enough, and the bytes of the smallest.
    pub(super) enough_alone: usize,
    pub(super) smallest_alone_bytes: Option<u64>,
    /// The way out with the fewest blocks, where it is not the one with the fewest bytes.
    pub(super) alone_sentence: Option<String>,
    pub(super) way_out: Option<RoomPlanEntry>,
    /// The way out in words, or why none is told.
    pub(super) way_out_sentence: String,
    /// What speaks against it; `null` where nothing does.
    pub(super) way_out_needs: Option<String>,
    pub(super) top_live: Vec<LiveEntry>,
    pub(super) stacks_total: usize,
    pub(super) live_by_category: Vec<RoleEntry>,
    /// All that was held, for people.
    #[serde(skip)]
    pub(super) held: Composition,
    /// What to do: only what a simulation or these figures support.
    pub(super) remedies: Vec<Advice>,
    /// The cap that this failure rules out, with every larger one.
    #[serde(skip)]
    pub(super) cap_below: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct HolderEntry {
    pub(super) name: &'static str,
    /// `null` where it is not recorded.
    pub(super) bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct BlockerEntry {
    #[serde(flatten)]
    pub(super) block: BlockEntry,
    pub(super) strands_bytes: u64,
    pub(super) hole_if_freed_bytes: u64,
    /// What would go back to the device without it: the segment or the pages that it alone holds.
    pub(super) returns_bytes: u64,
    /// Whether its segment can serve the request; if not, what goes back is of use and the hole is not.
    pub(super) serves_request: bool,
}

/// A live block.
#[derive(Debug, Serialize)]
pub(super) struct BlockEntry {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) stream: u64,
    /// The program has freed it, and another stream still uses it.
    pub(super) pending_free: bool,
    /// Whose its segment is, where that cannot serve the request.
    #[serde(skip)]
    pub(super) whose: Option<String>,
    pub(super) age_events: Option<u32>,
    pub(super) age_us: Option<i64>,
    #[serde(skip)]
    pub(super) age: String,
    pub(super) stack: Vec<String>,
    /// What it is for: `activations`.
    pub(super) role: &'static str,
    /// The role is inferred from sizes, numbers and lives alone.
    pub(super) role_is_probable: bool,
    /// The user's line that made it; empty where no stack was recorded.
    #[serde(skip)]
    pub(super) place: String,
}

#[derive(Debug, Serialize)]
pub(super) struct RoleEntry {
    pub(super) category: &'static str,
    pub(super) bytes: u64,
    pub(super) count: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct LiveEntry {
    pub(super) bytes: u64,
    pub(super) count: u64,
    pub(super) stack: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct RoomPlanEntry {
    /// By what: one hole, whole segments, pages.
    pub(super) by: &'static str,
    pub(super) sentence: String,
    pub(super) blocks: usize,
    pub(super) bytes: u64,
    /// Those blocks, all of them, largest first.
    pub(super) blocks_to_free: Vec<BlockEntry>,
    pub(super) segments: usize,
    /// Pages of expandable segments that go back.
    pub(super) pages: usize,
    pub(super) room_bytes: u64,
    /// No set of fewer live bytes does it; where the cap is only known as a range, under the cap named next.
    pub(super) is_optimal: bool,
    /// The cap it was computed for, where that is only the least it can be.
    pub(super) cap_bytes: Option<u64>,
    /// What is enough under a higher cap that is possible too, where that is less.
    pub(super) with_higher_cap: Option<HigherCapEntry>,
    pub(super) search: &'static str,
    /// How it makes room, and whether less would.
    #[serde(skip)]
    pub(super) why: String,
}

#[derive(Debug, Serialize)]
pub(super) struct HigherCapEntry {
    pub(super) from_cap_bytes: u64,
    pub(super) blocks: usize,
    pub(super) bytes: u64,
    pub(super) is_optimal: bool,
}
