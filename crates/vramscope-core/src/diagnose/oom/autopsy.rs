//! [`Autopsy`]: everything known about one failed request.

use super::live::LiveByStack;
use super::parts::Part;
use super::verdict::{Test, Verdict};
use crate::diagnose::fragmentation::{Alone, Blocker, Holes, RoomPlan, Servers};
use crate::diagnose::vendor::Words;
use crate::inference::CapRange;
use crate::model::{EventTable, SizeClass, StackId};

/// A failed request examined. All sizes are in bytes.
#[derive(Clone, Debug)]
pub struct Autopsy {
    /// The failed request's event, an [`Action::Oom`](crate::model::Action::Oom).
    pub event: u32,
    /// True if the recording has segments; otherwise all figures about segments are 0 and meaningless.
    pub has_segments: bool,
    /// True for pinned host memory, false for a device's.
    pub is_host: bool,
    /// Vendor-specific names (variables, tools) for the device.
    pub words: &'static Words,
    /// True if the request was made for a private pool, for example of a CUDA graph.
    pub is_private: bool,
    /// Total memory of the device; `None` if the file does not say it.
    pub capacity: Option<u64>,
    /// For a predicted run that fails: the bytes that the whole run would reserve. `None` for a recorded run.
    pub needs: Option<u64>,
    /// The request's size in bytes, rounded to the block size as PyTorch records it.
    pub requested: u64,
    /// Size of the segment that it needed.
    pub segment: u64,
    /// Free bytes on the device as the driver counts them; see [`device_free_known`](Self::device_free_known).
    pub device_free: u64,
    /// Bytes in PyTorch's segments at the failure.
    pub reserved: u64,
    /// Bytes in blocks that the program holds.
    pub allocated: u64,
    /// The most bytes that the program held at any earlier event, without trials of cuDNN; computed only for
    /// [`Verdict::Fragmentation`].
    pub allocated_before: u64,
    /// Bytes in blocks that the program has freed but another stream still uses.
    pub pending: u64,
    /// Bytes of other processes on the device; `None` unless a sample near the failure has the figure.
    pub others: Option<u64>,
    /// Bytes of this process outside PyTorch; `None` unless a sample near the failure has the figure.
    pub outside: Option<u64>,
    /// Live bytes as requested, before rounding.
    pub live_requested: u64,
    /// The pool that serves the request: small or large.
    pub class: SizeClass,
    /// The segments that could have served it.
    pub servers: Servers,
    /// Free blocks of the segments in [`servers`](Self::servers).
    pub holes: Holes,
    /// Holes of every pool.
    pub all_holes: Holes,
    /// The most that this process may reserve, if known. What-if, findings and the timeline use the same range.
    pub limit: Option<CapRange>,
    /// Why memory ran out.
    pub verdict: Verdict,
    /// The reason in one sentence with its figures.
    pub sentence: String,
    /// The classifier's tests with their figures, in the order they ran.
    pub tests: Vec<Test>,
    /// Live blocks that keep holes small, worst first.
    pub blockers: Vec<Blocker>,
    /// Blocks such that freeing any single one is sufficient.
    pub alone: Alone,
    /// Bytes that must return to the device for a new segment to fit; 0 if none.
    pub need: u64,
    /// What to free so that the request succeeds, with the fewest live bytes.
    pub room_plan: Option<RoomPlan>,
    /// If the request is too large: whether parts of it would fit. Empty otherwise.
    pub parts: Vec<Part>,
    /// Live memory by stack, largest first.
    pub top_live: Vec<LiveByStack>,
    /// Number of live blocks of the request's size.
    pub alike: usize,
    /// Where the failed request came from.
    pub stack: StackId,
    /// True if something was allocated afterwards: the program went on, or its error handler ran.
    pub survived: bool,
}

/// From this percentage of its possible memory on, a process counts as nearly full of tensors.
const NEARLY_FULL: u128 = 90;
/// From this percentage on, fragmentation is not the cause: better packing would serve only a few more requests.
const FULL: u128 = 95;

/// True if tensors hold nearly all of the memory.
pub(super) fn is_nearly_full(held: u64, all: u64) -> bool {
    is_share(held, all, NEARLY_FULL)
}

fn is_share(held: u64, all: u64, percent: u128) -> bool {
    u128::from(held) * 100 >= u128::from(all) * percent
}

impl Autopsy {
    /// True if tensors hold nearly all memory that this process can have, so that fragments of free memory are a small part of it.
    pub fn is_nearly_full(&self) -> bool {
        is_nearly_full(self.allocated, self.most())
    }

    /// True if free memory is fragmented, but the program also needs more than it ever held before and its possible memory is
    /// nearly used up. Fragmentation then decided which request failed, not that one failed.
    pub fn is_full_in_pieces(&self) -> bool {
        let is_more = self.allocated.saturating_add(self.requested) > self.allocated_before;
        // If the cap is known only as a range: its lower end, or what was reserved if that is more.
        let all = self.limit.map_or(self.most(), |cap| cap.least.max(self.reserved).min(self.most()));
        self.verdict == Verdict::Fragmentation && !self.is_host && is_more && is_share(self.allocated, all, FULL)
    }

    /// The most that this process can have: its cap if known, but no more than the device has for it.
    pub fn most(&self) -> u64 {
        self.limit.map_or_else(|| self.most_free(), |cap| cap.most.min(self.most_free()))
    }

    /// True if a cap is the obstacle while the device itself has room.
    pub fn is_under_cap(&self) -> bool {
        self.limit.is_some() && self.device_free >= self.segment
    }

    /// The size that PyTorch's own message names ("Tried to allocate 20.00 MiB"): that of the segment. If there is no such
    /// message: that of the request. Bytes.
    pub fn message_bytes(&self) -> u64 {
        let has_message = !self.is_host && self.needs.is_none() && self.has_segments;
        if has_message { self.segment } else { self.requested }
    }

    /// The reason in a few words.
    pub fn headline(&self) -> &'static str {
        match (self.is_full_in_pieces(), self.is_under_cap()) {
            (true, true) => "The cap is used up",
            (true, false) => "Device nearly full",
            _ => self.verdict.title(),
        }
    }

    /// Free bytes on the device, for display; `None` if the device's size is unknown.
    pub fn device_free_known(&self) -> Option<u64> {
        Some(self.device_free).filter(|&free| free < EventTable::FREE_UNBOUNDED)
    }

    /// Free bytes on the device if this process released everything; the whole device if its free bytes are unknown.
    pub fn most_free(&self) -> u64 {
        self.device_free_known().map(|free| free.saturating_add(self.reserved)).or(self.capacity).unwrap_or(self.reserved)
    }

    /// The smallest cap, in bytes, that this failure excludes. It excludes every larger cap too: under one, the request would
    /// have got a segment, because the device had room. `None` if the figures exclude none.
    pub fn cap_below(&self) -> Option<u64> {
        let had_room = self.device_free_known().is_some_and(|free| EventTable::has_room(free, self.segment));
        let rules_out = self.has_segments && !self.is_host && had_room && self.holes.largest < self.requested;
        rules_out.then_some(self.reserved.saturating_add(self.segment))
    }

    /// An upper bound (exclusive) in bytes for the room under the cap, if the cap is a range: its upper end was refused.
    pub fn room_below(&self) -> u64 {
        let room = self.limit.map(|cap| cap.most.saturating_add(1).saturating_sub(self.reserved));
        room.map_or(self.segment, |room| room.min(self.segment))
    }
}
