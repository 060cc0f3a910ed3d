//! [`Requests`]: what a recorded program asked of the allocator, reconstructed from the trace.
//!
//! A trace records allocations, frees and completions directly. The rest is inferred: which releases were calls of `empty_cache`
//! and which belonged to a request that ran out of memory, and which segments belong to private pools.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::assume::Assumption;
use super::cap_range::Bounds;
use crate::allocator::{Growth, StartSegment};
use crate::model::{Action, DeviceRecording, EventId, PoolKey};

/// Nothing to do at this event; it follows from another one.
pub(super) const SKIP: u32 = u32::MAX;
/// The program calls `empty_cache` here.
pub(super) const EMPTY_CACHE: u32 = u32::MAX - 1;
/// A free that completes later.
pub(super) const LATER: u32 = 1 << 31;

/// One step of a program, which [`Requests::step`] reads from an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Request memory, and store the block under a number.
    Alloc {
        /// Number of the block; used again after a free.
        slot: u32,
    },
    /// Request memory. This request failed in the recording; if it succeeds now, its block is freed at once.
    Failing,
    /// Free a block that is reusable at once.
    Free {
        /// Number of the block, as its `Alloc` has it.
        slot: u32,
    },
    /// Free a block that is reusable only after its [`Complete`](Self::Complete).
    FreeLater {
        /// Number of the block, as its `Alloc` has it.
        slot: u32,
    },
    /// Another stream finished: the block of a [`FreeLater`](Self::FreeLater) becomes reusable.
    Complete {
        /// Number of the block, as its `Alloc` has it.
        slot: u32,
    },
    /// Release free segments to the device, as `empty_cache` does.
    EmptyCache,
    /// Do nothing: the event follows from another one.
    Skip,
}

/// The requests of one device's trace, and the state before its first event.
///
/// The data read from the trace (`Known`) is shared, so that it can be stored with the recording and used again.
#[derive(Debug)]
pub struct Requests<'a> {
    pub(crate) device: &'a DeviceRecording,
    known: Arc<Known>,
}

impl std::ops::Deref for Requests<'_> {
    type Target = Known;

    #[inline]
    fn deref(&self) -> &Known {
        &self.known
    }
}

impl std::ops::DerefMut for Requests<'_> {
    fn deref_mut(&mut self) -> &mut Known {
        Arc::make_mut(&mut self.known)
    }
}

/// A block from before the recording that no event names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Untraced {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(super) slot: u32,
    /// The event before which it must have been freed; the number of events if it must only be gone from the state at the end.
    pub(super) gone: Option<EventId>,
}

/// What [`Requests::read`] found in a trace. About four bytes per event.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The meaning of each event, see [`Requests::step`].
    pub(super) plan: Vec<u32>,
    /// Completions that happened while a request was retried; the trace lists them after that request.
    pub(crate) after: FxHashMap<EventId, Vec<u32>>,
    /// Runs of releases that were not attributed to `empty_cache`.
    pub(super) retries: Vec<Retry>,
    /// Requests before which a graph capture began; beginning a capture empties the cache.
    pub(crate) captures: FxHashSet<EventId>,
    /// Trials of cuDNN, refused or granted; the program does not depend on them.
    pub(crate) trials: FxHashSet<EventId>,
    /// The pool of each request that went to a private pool.
    pub(crate) private: FxHashMap<EventId, PoolKey>,
    /// Number of slots: the most blocks live at once.
    pub(crate) slots: u32,
    /// Segments and blocks that existed before the first event.
    pub(crate) start: Vec<StartSegment>,
    /// True if the recording's segments are later than its last event.
    pub(crate) ignores_end: bool,
    /// Blocks of the start state that no event names.
    pub(crate) untraced_blocks: Vec<Untraced>,
    /// Slots of those blocks, by the event before which they are freed without an action.
    pub(crate) untraced: FxHashMap<EventId, Vec<u32>>,
    pub growths: Vec<Growth>,
    /// The most that was reserved at once, including what had to fit in addition; no limit can have been lower.
    pub(crate) least_limit: u64,
    /// The least that was refused; `None` if nothing was refused.
    pub(crate) refused: Option<u64>,
    /// Bounds of the cap over time.
    pub(crate) bounds: Bounds,
    /// The most that was reserved or requested when memory was released before a growth; the limit need not be higher.
    pub(crate) most_needed: u64,
    /// Free device memory plus reserved memory when the device itself was full: the most that this process could have had.
    pub(crate) device_room: Option<u64>,
    /// Number of requests, including failed ones.
    pub(crate) count: u64,
    /// Assumptions about what the trace does not record.
    pub(crate) assumptions: Vec<Assumption>,
}

impl<'a> Requests<'a> {
    /// Reuses requests that were read before from this device.
    pub(crate) fn again(device: &'a DeviceRecording, known: Arc<Known>) -> Self {
        Requests { device, known }
    }

    /// The data read from the trace, for reuse.
    pub(crate) fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known)
    }

    /// The device whose requests these are.
    pub fn device(&self) -> &'a DeviceRecording {
        self.device
    }

    /// The number of requests, including failed ones.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// True if other settings' answers also depend on blocks from before the trace, pools of captured graphs, or missing events.
    pub(crate) fn needs_assumptions(&self) -> bool {
        self.assumptions.iter().any(|a| !matches!(a, Assumption::GuardedFrees { .. }))
    }

    /// True if some frees waited for another stream.
    pub(crate) fn has_guarded_frees(&self) -> bool {
        self.assumptions.iter().any(|a| matches!(a, Assumption::GuardedFrees { .. }))
    }

    /// Changes the interpretation of the releases near this event, because the model differs from the recording there. The first
    /// time, their completions become part of the wait; the second time, the releases become a call of `empty_cache`. `false` if
    /// no other interpretation is left.
    pub(crate) fn read_differently(&mut self, event: EventId) -> bool {
        let event = event as usize;
        let known = Arc::make_mut(&mut self.known);
        let Some(at) = known.retries.iter().position(|r| (r.from..=r.request).contains(&event)) else { return false };
        let request = known.retries[at].request as u32;
        if !known.retries[at].completions_waited {
            known.retries[at].completions_waited = true;
            let completions = std::mem::take(&mut known.retries[at].completions);
            for &(event, _) in &completions {
                known.plan[event] = SKIP;
            }
            known.after.insert(request, completions.iter().map(|&(_, slot)| slot).collect());
            known.retries[at].completions = completions;
            return true;
        }
        let retry = known.retries.swap_remove(at);
        let Some(release) = retry.release else { return false };
        known.after.remove(&request);
        known.plan[release] = EMPTY_CACHE;
        known.record_completions(&retry.completions);
        true
    }

    /// Number of slots that [`step`](Self::step) uses: the most blocks live at once.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Bytes reserved before the first event; no run can have a lower limit.
    pub fn reserved_before(&self) -> u64 {
        self.start.iter().map(|s| s.size).sum()
    }

    /// Blocks live before the first event: slot, bytes, stream.
    pub fn blocks_before(&self) -> impl Iterator<Item = (u32, u64, u64)> + '_ {
        let of = |s: &'_ StartSegment| {
            let stream = s.stream;
            s.blocks.iter().filter(|b| b.is_in_use()).map(move |b| (b.slot, b.requested.max(1), stream)).collect::<Vec<_>>()
        };
        self.start.iter().flat_map(of)
    }

    /// Like [`blocks_before`](Self::blocks_before), with addresses: slot, address, bytes, stream.
    pub(crate) fn blocks_before_at(&self) -> impl Iterator<Item = (u32, u64, u64, u64)> + '_ {
        let live = |s: &'_ StartSegment| {
            s.blocks
                .iter()
                .filter(|b| b.is_in_use())
                .map(|b| (b.slot, b.address, b.requested.max(1), s.stream))
                .collect::<Vec<_>>()
        };
        self.start.iter().flat_map(live)
    }

    /// True if a graph capture begins at this event; beginning a capture empties the cache.
    pub fn begins_capture(&self, event: usize) -> bool {
        self.captures.contains(&(event as u32))
    }

    /// Slots whose free completes after this event, in addition to [`step`](Self::step).
    pub fn completed_after(&self, event: usize) -> impl Iterator<Item = u32> + '_ {
        self.after.get(&(event as u32)).into_iter().flatten().copied()
    }

    /// The raw handle of an event's stream.
    #[inline]
    pub fn stream(&self, event: usize) -> u64 {
        self.device.stream_handle(self.device.events.stream[event])
    }

    /// The pool of a request.
    #[inline]
    pub fn pool(&self, event: usize) -> PoolKey {
        if self.private.is_empty() { (0, 0) } else { self.private.get(&(event as u32)).copied().unwrap_or((0, 0)) }
    }

    /// What the program did at an event.
    #[inline]
    pub fn step(&self, event: usize) -> Step {
        step_of(self.device.events.action[event], self.plan[event])
    }
}

#[inline]
pub(super) fn step_of(action: Action, plan: u32) -> Step {
    match (action, plan) {
        (_, EMPTY_CACHE) => Step::EmptyCache,
        (Action::Oom, _) => Step::Failing,
        (_, SKIP) => Step::Skip,
        (Action::Alloc, slot) => Step::Alloc { slot },
        (Action::FreeRequested, slot) if slot & LATER != 0 => Step::FreeLater { slot: slot & !LATER },
        (Action::FreeRequested, slot) => Step::Free { slot },
        (Action::FreeCompleted, slot) => Step::Complete { slot },
        _ => Step::Skip,
    }
}

impl Known {
    pub(super) fn record_completions(&mut self, completions: &[(usize, u32)]) {
        for &(event, slot) in completions {
            self.plan[event] = slot;
        }
    }
}

/// A run of releases that belongs to a retried request, or to garbage collection.
#[derive(Clone, Debug)]
pub(super) struct Retry {
    /// First event of the run.
    pub(super) from: usize,
    pub(super) release: Option<usize>,
    pub(super) request: usize,
    pub(super) completions: Vec<(usize, u32)>,
    /// If true, every completion counts as part of the wait before the cache was emptied. If false, completions before the first
    /// release count as found by polling.
    pub(super) completions_waited: bool,
}
