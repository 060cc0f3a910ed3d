//! [`Autopsy`]: everything that is known about one failed request.

use super::live::LiveByStack;
use super::parts::Part;
use super::verdict::{Test, Verdict};
use crate::diagnose::fragmentation::{Alone, Blocker, Holes, RoomPlan, Servers};
use crate::diagnose::vendor::Words;
use crate::inference::CapRange;
use crate::model::{EventTable, SizeClass, StackId};

/// Everything about one failed request. Bytes throughout.
#[derive(Clone, Debug)]
pub struct Autopsy {
    /// The failed request's event, an [`Action::Oom`](crate::model::Action::Oom).
    pub event: u32,
    /// True if the recording has segments; otherwise every figure about them is 0 and meaningless.
    pub has_segments: bool,
    /// True for pinned host memory, false for a device's.
    pub is_host: bool,
    /// The words of the device's vendor.
    pub words: &'static Words,
    /// True if the request was made for a private pool, for example of a CUDA graph.
    pub is_private: bool,
    /// Total memory of the device; `None` if the file does not say it.
    pub capacity: Option<u64>,
    /// What all of a predicted run reserves, where this request of it fails; `None` for what was recorded.
    pub needs: Option<u64>,
    /// The request's size in bytes, rounded to the block size as PyTorch records it.
    pub requested: u64,
    /// Size of the segment that it would have needed.
    pub segment: u64,
    /// Free bytes on the device by the driver's count; see [`device_free_known`](Self::device_free_known).
    pub device_free: u64,
    /// Bytes in PyTorch's segments at the failure.
    pub reserved: u64,
    /// Bytes in blocks that the program holds.
    pub allocated: u64,
    /// The most that the program held at any earlier event, without trials of cuDNN; worked out for [`Verdict::Fragmentation`] only.
    pub allocated_before: u64,
    /// Bytes in blocks that the program freed and another stream still uses.
    pub pending: u64,
    /// Bytes of other processes on the device; `None` unless a sample near the failure has the figure.
    pub others: Option<u64>,
    /// Bytes of this process outside PyTorch; `None` unless a sample near the failure has the figure.
    pub outside: Option<u64>,
    /// Live bytes as the program requested them, before rounding.
    pub live_requested: u64,
    /// The pool that serves the request: small or large.
    pub class: SizeClass,
    /// Which segments could have served it.
    pub servers: Servers,
    /// Free blocks of the segments in [`servers`](Self::servers).
    pub holes: Holes,
    /// Holes of every pool.
    pub all_holes: Holes,
    /// The most that this process may reserve, if known; what-if, findings and the timeline use the same range.
    pub limit: Option<CapRange>,
    /// Why memory ran out.
    pub verdict: Verdict,
    /// Why, in one sentence with its numbers.
    pub sentence: String,
    /// The classifier's tests with their figures, in the order they ran.
    pub tests: Vec<Test>,
    /// Live blocks that keep holes small, worst first.
    pub blockers: Vec<Blocker>,
    /// The blocks of which freeing any one is enough.
    pub alone: Alone,
    /// Bytes that would have to return to the device for a new segment to fit; 0 if none.
    pub need: u64,
    /// What to free so that the request succeeds, with the fewest live bytes.
    pub room_plan: Option<RoomPlan>,
    /// If the request is too large: whether parts of it would fit; otherwise empty.
    pub parts: Vec<Part>,
    /// Live memory by stack, largest first.
    pub top_live: Vec<LiveByStack>,
    /// Number of live blocks of the request's size.
    pub alike: usize,
    /// Where the failed request came from.
    pub stack: StackId,
    /// True if something was allocated after it: the program continued, or its handler ran.
    pub survived: bool,
}

/// Percent of what a process can have, from which on its tensors nearly fill it.
const NEARLY_FULL: u128 = 90;
/// Percent from which on pieces of free memory are no reason of their own: another packing would serve a few requests more.
const FULL: u128 = 95;

/// Whether tensors hold nearly all of what there is.
pub(super) fn is_nearly_full(held: u64, all: u64) -> bool {
    is_share(held, all, NEARLY_FULL)
}

fn is_share(held: u64, all: u64, percent: u128) -> bool {
    u128::from(held) * 100 >= u128::from(all) * percent
}

impl Autopsy {
    /// True if tensors hold nearly all that this process can have, so that pieces of free memory are a small part of it.
    pub fn is_nearly_full(&self) -> bool {
        is_nearly_full(self.allocated, self.most())
    }

    /// True where the free memory is in pieces, but the program needs more than it ever held and what it can have is nearly used up:
    /// the pieces decided which request failed, not that one did.
    pub fn is_full_in_pieces(&self) -> bool {
        let is_more = self.allocated.saturating_add(self.requested) > self.allocated_before;
        // Of a cap that is only known as a range its lower end, or what was reserved.
        let all = self.limit.map_or(self.most(), |cap| cap.least.max(self.reserved).min(self.most()));
        self.verdict == Verdict::Fragmentation && !self.is_host && is_more && is_share(self.allocated, all, FULL)
    }

    /// What this process can have: its cap where one is known, at most what the device has for it.
    pub fn most(&self) -> u64 {
        self.limit.map_or_else(|| self.most_free(), |cap| cap.most.min(self.most_free()))
    }

    /// True where a cap is in the way, and the device itself has room.
    pub fn is_under_cap(&self) -> bool {
        self.limit.is_some() && self.device_free >= self.segment
    }

    /// The size in PyTorch's own message, "Tried to allocate 20.00 MiB", which is that of the segment; the request's where there is no such
    /// message. Bytes.
    pub fn message_bytes(&self) -> u64 {
        let has_message = !self.is_host && self.needs.is_none() && self.has_segments;
        if has_message { self.segment } else { self.requested }
    }

    /// Why memory ran out, in a few words.
    pub fn headline(&self) -> &'static str {
        match (self.is_full_in_pieces(), self.is_under_cap()) {
            (true, true) => "The cap is used up",
            (true, false) => "Device nearly full",
            _ => self.verdict.title(),
        }
    }

    /// Free bytes on the device, to show; `None` if the device's size is unknown.
    pub fn device_free_known(&self) -> Option<u64> {
        Some(self.device_free).filter(|&free| free < EventTable::FREE_UNBOUNDED)
    }

    /// Free bytes on the device if this process gave everything back; the whole device if its free bytes are unknown.
    pub fn most_free(&self) -> u64 {
        self.device_free_known().map(|free| free.saturating_add(self.reserved)).or(self.capacity).unwrap_or(self.reserved)
    }

    /// The smallest cap, in bytes, that this failure rules out, as it does every larger one: with it the request would have got a
    /// segment, because the device had room. `None` if the figures rule none out.
    pub fn cap_below(&self) -> Option<u64> {
        let had_room = self.device_free_known().is_some_and(|free| EventTable::has_room(free, self.segment));
        let rules_out = self.has_segments && !self.is_host && had_room && self.holes.largest < self.requested;
        rules_out.then_some(self.reserved.saturating_add(self.segment))
    }

    /// An upper bound, exclusive, of the room under the cap, if the cap is only known as a range: its upper end was refused.
    /// Bytes.
    pub fn room_below(&self) -> u64 {
        let room = self.limit.map(|cap| cap.most.saturating_add(1).saturating_sub(self.reserved));
        room.map_or(self.segment, |room| room.min(self.segment))
    }
}
