//! [`Requests`]: what a recorded program asked of the allocator, read back from the trace.
//!
//! A trace records allocations, frees and completions directly. The rest is inferred: which releases were calls of `empty_cache`
//! and which happened inside a request that was out of memory, and which segments belong to private pools.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::assume::Assumption;
use super::cap_range::Bounds;
use crate::allocator::{Growth, StartSegment};
use crate::model::{Action, DeviceRecording, EventId, PoolKey};

/// Nothing to do at this event: it follows from another one.
pub(super) const SKIP: u32 = u32::MAX;
/// `empty_cache` is called here.
pub(super) const EMPTY_CACHE: u32 = u32::MAX - 1;
/// A free that completes later.
pub(super) const LATER: u32 = 1 << 31;

/// One step of a program, as [`Requests::step`] reads it from an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask for memory and remember the block under a number.
    Alloc {
        /// Number of the block; used again after a free.
        slot: u32,
    },
    /// Ask for memory; this request failed in the recording. If it succeeds, its block is freed at once.
    Failing,
    /// Free; the block is reusable at once.
    Free {
        /// Number of the block, as its `Alloc` has it.
        slot: u32,
    },
    /// Free; the block is reusable after its [`Complete`](Self::Complete).
    FreeLater {
        /// Number of the block, as its `Alloc` has it.
        slot: u32,
    },
    /// Another stream is done: a block of [`FreeLater`](Self::FreeLater) becomes reusable.
    Complete {
        /// Number of the block, as its `Alloc` has it.
        slot: u32,
    },
    /// Give free segments back to the device, as `empty_cache` does.
    EmptyCache,
    /// Do nothing: the event follows from another one.
    Skip,
}

/// The requests of one device's trace, with the state they began in.
///
/// What was read from the trace (`Known`) is shared, so that it can be kept with the recording and used again.
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
    /// The event before which it must be gone; the number of events for the state at the end.
    pub(super) gone: Option<EventId>,
}

/// What [`Requests::read`] found out about a trace. Four bytes per event.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// What each event means, see [`Requests::step`].
    pub(super) plan: Vec<u32>,
    /// Completions that came while a request was being retried; the trace has them after that request.
    pub(crate) after: FxHashMap<EventId, Vec<u32>>,
    /// Stretches of releases that were not taken for `empty_cache`.
    pub(super) retries: Vec<Retry>,
    /// Requests before which a graph capture began, which empties the cache first.
    pub(crate) captures: FxHashSet<EventId>,
    /// Trials of cuDNN, refused or granted: the program goes on without them.
    pub(crate) trials: FxHashSet<EventId>,
    /// Requests that went to a private pool.
    pub(crate) private: FxHashMap<EventId, PoolKey>,
    /// Handles needed: the most blocks alive at once.
    pub(crate) slots: u32,
    /// Segments and blocks that were there before the first event.
    pub(crate) start: Vec<StartSegment>,
    /// True if the recording's segments are not those after its last event.
    pub(crate) ignores_end: bool,
    /// Blocks of the start that no event names.
    pub(crate) untraced_blocks: Vec<Untraced>,
    /// Their slots, by the event before which they are freed without an action.
    pub(crate) untraced: FxHashMap<EventId, Vec<u32>>,
    pub growths: Vec<Growth>,
    /// The most that was reserved at once, with what had to fit beside it: no limit can have been below.
    pub(crate) least_limit: u64,
    /// The least that was refused; `None` when nothing was.
    pub(crate) refused: Option<u64>,
    /// What bounds the cap, over time.
    pub(crate) bounds: Bounds,
    /// The most that was reserved or requested when something was released before a growth: no limit has to be higher.
    pub(crate) most_needed: u64,
    /// Free device memory plus reserved memory at an OOM of the device itself: what this process could have had.
    pub(crate) device_room: Option<u64>,
    /// Requests, failed ones included.
    pub(crate) count: u64,
    /// What had to be assumed because the trace does not record it.
    pub(crate) assumptions: Vec<Assumption>,
}

impl<'a> Requests<'a> {
    /// Requests that were read before, with the device they were read from.
    pub(crate) fn again(device: &'a DeviceRecording, known: Arc<Known>) -> Self {
        Requests { device, known }
    }

    /// What was read, to be kept.
    pub(crate) fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known)
    }

    /// The device they were read from.
    pub fn device(&self) -> &'a DeviceRecording {
        self.device
    }

    /// The number of requests, failed ones included.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// True when answers under other settings rest on more than the requests: blocks from before the trace, pools of captured
    /// graphs, or missing events.
    pub(crate) fn needs_assumptions(&self) -> bool {
        self.assumptions.iter().any(|a| !matches!(a, Assumption::GuardedFrees { .. }))
    }

    /// True when some frees waited for another stream.
    pub(crate) fn has_guarded_frees(&self) -> bool {
        self.assumptions.iter().any(|a| matches!(a, Assumption::GuardedFrees { .. }))
    }

    /// The model differs from the recording near this event: reads the run of releases there in another way. First its
    /// completions as part of the wait, then its releases as a call of `empty_cache`. `false` if there is no other way left.
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

    /// Handles needed by [`step`](Self::step): the most blocks alive at once.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Bytes that were reserved before the first event: no run can be under a lower limit.
    pub fn reserved_before(&self) -> u64 {
        self.start.iter().map(|s| s.size).sum()
    }

    /// Blocks that were live before the first event: slot, bytes, stream.
    pub fn blocks_before(&self) -> impl Iterator<Item = (u32, u64, u64)> + '_ {
        let of = |s: &'_ StartSegment| {
            let stream = s.stream;
            s.blocks.iter().filter(|b| b.is_in_use()).map(move |b| (b.slot, b.requested.max(1), stream)).collect::<Vec<_>>()
        };
        self.start.iter().flat_map(of)
    }

    /// The same with the first byte of each: slot, address, bytes, stream.
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

    /// True where a graph capture begins, which empties the cache first.
    pub fn begins_capture(&self, event: usize) -> bool {
        self.captures.contains(&(event as u32))
    }

    /// Slots whose guarded free completes behind an event, beside what [`step`](Self::step) tells.
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

    /// What to do at an event.
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

/// Releases taken to be part of a request that was tried again, or of garbage collection.
#[derive(Clone, Debug)]
pub(super) struct Retry {
    /// First event of the stretch.
    pub(super) from: usize,
    pub(super) release: Option<usize>,
    pub(super) request: usize,
    pub(super) completions: Vec<(usize, u32)>,
    /// Every completion is taken to come from the wait before the cache was emptied; otherwise those before the first release
    /// are taken to come from polling.
    pub(super) completions_waited: bool,
}
