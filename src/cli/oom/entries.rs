//! What `oom` answers, as its JSON has it. Bytes are integers.

use serde::Serialize;

use vramscope_core::anatomy::Composition;
use vramscope_core::diagnose::fragmentation::WithMore;
use vramscope_core::diagnose::oom::{Advice, Verdict};
use vramscope_core::inference::{Horizon, Needed, Remedy};
use vramscope_core::units::Bytes;

/// The JSON object of the command-line contract.
#[derive(Debug, Default, Serialize)]
pub struct OomReport {
    /// True when the file ends in the middle: what came after is not known.
    pub truncated: bool,
    /// What the trace of a device says against the file's own end, a sentence each, without a full stop.
    pub contradictions: Vec<String>,
    /// One entry an out-of-memory event.
    pub ooms: Vec<OomEntry>,
    /// Number of failures whose cause cannot be found (profiler traces do not record what was free).
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
    pub(in crate::cli) rules_sentences: Vec<String>,
}

impl OomEntry {
    /// The verdict for a line of text.
    pub(in crate::cli) fn why(&self) -> String {
        if self.verdict == Verdict::Fragmentation.name() { self.headline.to_lowercase() } else { self.verdict.replace('_', " ") }
    }

    /// The size that the finding of it has, and what that is: where no hole fits what is free, else what was requested.
    pub(in crate::cli) fn size(&self) -> String {
        if self.headline == Verdict::Fragmentation.title() {
            format!("{} free", Bytes(self.hole_bytes))
        } else {
            format!("{} requested", Bytes(self.requested_bytes))
        }
    }
}

impl OomReport {
    /// The cap of a device, if its failures show it.
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
    /// Under the recording's own settings: index of the first request that fails.
    pub(in crate::cli) own_oom_request: Option<u64>,
    pub(in crate::cli) own_requests: u64,
    pub(in crate::cli) tried: Vec<Remedy>,
    pub(in crate::cli) needed: Option<Needed>,
    pub(in crate::cli) needed_with_best: Option<Needed>,
    /// What a recording that ends at its failure leaves open; `null` for others.
    pub(in crate::cli) ends_at_failure: Option<Horizon>,
    #[serde(skip)]
    pub(in crate::cli) warning: String,
    /// False where the replay serves what failed in the recording.
    pub(in crate::cli) fails_as_recorded: bool,
    /// No cap is known: the limit is what the device had for this process.
    #[serde(skip)]
    pub(in crate::cli) is_of_device: bool,
}

/// The instant at which a device without a failure held most. Bytes are integers.
#[derive(Debug, Serialize)]
pub struct PeakEntry {
    pub(in crate::cli) device: i32,
    #[serde(skip)]
    pub(in crate::cli) label: String,
    /// The most that was reserved at any event, which is not always this one.
    #[serde(skip)]
    pub(in crate::cli) most_reserved: (u64, u32),
    /// False where segments are not in the file: what is reserved and free inside is then 0 and not known.
    pub(in crate::cli) has_segments: bool,
    pub(in crate::cli) event: Option<u32>,
    pub(in crate::cli) reserved_bytes: u64,
    pub(in crate::cli) active_bytes: u64,
    pub(in crate::cli) allocated_bytes: u64,
    /// Null where the file has rounded sizes and not what was asked for (PyTorch's profiler).
    pub(in crate::cli) requested_bytes: Option<u64>,
    pub(in crate::cli) hole_bytes: u64,
    pub(in crate::cli) holes: u64,
    pub(in crate::cli) largest_hole_bytes: u64,
    /// Holes of other pools, sizes and streams.
    pub(in crate::cli) other_hole_bytes: u64,
    /// The handle of the stream that the holes are of; null where it is the only one.
    pub(in crate::cli) stream: Option<u64>,
    /// Of those other holes what other streams have.
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
    /// All that was held, for people.
    #[serde(skip)]
    pub(in crate::cli) held: Composition,
}

/// One failed request. Bytes are integers.
#[derive(Debug, Serialize)]
pub struct OomEntry {
    pub(in crate::cli) device: i32,
    /// False where segments are not in the file: what is reserved and free inside is then 0 and not known.
    pub(in crate::cli) has_segments: bool,
    pub(in crate::cli) event: u32,
    /// The last failure of its device, the one a program that ended so printed.
    pub(in crate::cli) is_last: bool,
    /// Something was allocated after it.
    pub(in crate::cli) survived: bool,
    pub(in crate::cli) requested_bytes: u64,
    pub(in crate::cli) segment_bytes: u64,
    pub(in crate::cli) device_free_bytes: Option<u64>,
    pub(in crate::cli) reserved_bytes: u64,
    pub(in crate::cli) allocated_bytes: u64,
    pub(in crate::cli) hole_bytes: u64,
    pub(in crate::cli) holes: u64,
    pub(in crate::cli) largest_hole_bytes: u64,
    /// Holes of other pools, sizes and streams.
    pub(in crate::cli) other_hole_bytes: u64,
    pub(in crate::cli) pool: &'static str,
    /// The handle of the stream that asked.
    pub(in crate::cli) stream: u64,
    pub(in crate::cli) limit_span_bytes: Option<[u64; 2]>,
    /// Who holds a full device; empty where the device was not full.
    pub(in crate::cli) holders: Vec<HolderEntry>,
    /// The size in PyTorch's own message, which is that of the segment it asked the device for: "Tried to allocate 20.00 MiB".
    pub(in crate::cli) tried_bytes: u64,
    pub(in crate::cli) verdict: &'static str,
    /// The verdict in a few words; says where memory is used up and only pieces are left.
    pub(in crate::cli) headline: &'static str,
    /// The answer in one or two sentences.
    pub sentence: String,
    pub(in crate::cli) stack: Vec<String>,
    /// The user's own line of it, `models.py:181 update_nodes`; null where no frame is the user's.
    pub(in crate::cli) requested_at: Option<String>,
    /// The user's lines of it, with framework frames counted.
    #[serde(skip)]
    pub(in crate::cli) shown_stack: Vec<String>,
    pub(in crate::cli) blockers: Vec<BlockerEntry>,
    pub(in crate::cli) blockers_total: usize,
    /// Number of blocks of which freeing any one is enough, and the bytes of the smallest.
    pub(in crate::cli) enough_alone: usize,
    pub(in crate::cli) smallest_alone_bytes: Option<u64>,
    /// The way out with the fewest blocks, where it is not the one with the fewest bytes.
    pub(in crate::cli) alone_sentence: Option<String>,
    pub(in crate::cli) way_out: Option<RoomPlanEntry>,
    /// The blocks to free, in words, or why none are named.
    pub(in crate::cli) way_out_sentence: String,
    /// The device was full, and so many blocks stand in the way that no list of them helps: the text says what to make smaller instead.
    #[serde(skip)]
    pub(in crate::cli) is_simply_full: bool,
    /// How many of the blocks to free the program needs (weights, optimizer state), as a sentence; `null` if none.
    pub(in crate::cli) way_out_needs: Option<String>,
    pub(in crate::cli) top_live: Vec<LiveEntry>,
    pub(in crate::cli) stacks_total: usize,
    pub(in crate::cli) live_by_category: Vec<RoleEntry>,
    /// All that was held, for people.
    #[serde(skip)]
    pub(in crate::cli) held: Composition,
    /// What to do: only what a simulation or these figures support.
    pub(in crate::cli) remedies: Vec<Advice>,
    /// The cap that this failure rules out, with every larger one.
    #[serde(skip)]
    pub(in crate::cli) cap_below: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(in crate::cli) struct HolderEntry {
    pub(in crate::cli) name: &'static str,
    /// `null` where it is not recorded.
    pub(in crate::cli) bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(in crate::cli) struct BlockerEntry {
    #[serde(flatten)]
    pub(in crate::cli) block: BlockEntry,
    pub(in crate::cli) strands_bytes: u64,
    pub(in crate::cli) hole_if_freed_bytes: u64,
    /// What would go back to the device without it: the segment or the pages that it alone holds.
    pub(in crate::cli) returns_bytes: u64,
    /// Whether its segment can serve the request; if not, what goes back is of use and the hole is not.
    pub(in crate::cli) serves_request: bool,
}

/// A block that would have to be freed.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct BlockEntry {
    pub(in crate::cli) address: u64,
    pub(in crate::cli) bytes: u64,
    pub(in crate::cli) stream: u64,
    /// The program has freed it, and another stream still uses it.
    pub(in crate::cli) pending_free: bool,
    /// Whose its segment is, where that cannot serve the request.
    #[serde(skip)]
    pub(in crate::cli) whose: Option<String>,
    pub(in crate::cli) age_events: Option<u32>,
    pub(in crate::cli) age_us: Option<i64>,
    #[serde(skip)]
    pub(in crate::cli) age: String,
    pub(in crate::cli) stack: Vec<String>,
    /// What it is for: `activations`.
    pub(in crate::cli) role: &'static str,
    /// The role is inferred from sizes, numbers and lives alone.
    pub(in crate::cli) role_is_probable: bool,
    /// The user's line that made it; empty where no stack was recorded.
    #[serde(skip)]
    pub(in crate::cli) place: String,
}

#[derive(Debug, Serialize)]
pub(in crate::cli) struct RoleEntry {
    pub(in crate::cli) category: &'static str,
    /// Of whole blocks: they add up to what is allocated or still in use.
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
    /// Those blocks, all of them, largest first.
    pub(in crate::cli) blocks_to_free: Vec<BlockEntry>,
    pub(in crate::cli) segments: usize,
    /// Pages of expandable segments that go back.
    pub(in crate::cli) pages: usize,
    pub(in crate::cli) room_bytes: u64,
    /// No set of fewer live bytes does it; where the cap is only known as a range, under the cap named next.
    pub(in crate::cli) is_optimal: bool,
    /// The cap it was computed for, where that is only the least it can be.
    pub(in crate::cli) cap_bytes: Option<u64>,
    /// What is enough under a higher cap that is possible too, where that is less.
    pub(in crate::cli) with_higher_cap: Option<WithMore>,
    pub(in crate::cli) search: &'static str,
    /// One block is named in the place of so many: people read no list of them.
    #[serde(skip)]
    pub(in crate::cli) is_too_long: bool,
    /// How it makes room, and whether less would.
    #[serde(skip)]
    pub(in crate::cli) why: String,
}
