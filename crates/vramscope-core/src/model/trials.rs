//! cuDNN's trials. Before it chooses an algorithm for a convolution, it may request the scratch memory of several. A refused
//! trial is not a failure, and a granted one is not memory that the program needs.

use std::ops::Range;

use super::event::{Action, EventId, EventTable};

/// With fewer requests than this, the program itself may be trying sizes.
const FEWEST: usize = 4;
/// From this many requests on, in no order of size, it is a search even if the call allocates nothing afterwards.
const MANY: usize = 16;
/// Most events to look at on each side of a request. It keeps programs that fail thousands of times in a row cheap to analyse.
const MOST: usize = 64;
/// In a recording with stacks, at least one of this many events has a stack.
const NEAR: usize = 4096;
/// A request smaller by more than this factor is unrelated and not a trial.
const MOST_TIMES: u64 = 16;

impl EventTable {
    /// The allocation that a call made instead of a refused request: smaller, with the same stack and stream, directly after it,
    /// and freed at once. cuDNN tries algorithms this way, and the program does not fail. `None` for every other event.
    pub fn got_instead(&self, refused: EventId) -> Option<EventId> {
        let next = self.trials_around(refused)?.end;
        let sizes = self.size[refused as usize] / MOST_TIMES..self.size[refused as usize];
        let is_smaller = self.is_like(next, refused, Action::Alloc) && sizes.contains(&self.size[next]);
        (is_smaller && self.is_freed_at_once(next)).then_some(next as EventId)
    }

    /// True for a refused request that was not a failure. Either its call continued with less memory, or cuDNN tried several
    /// workspace sizes and chose an algorithm with little or none. Nothing happens between such requests, and the program
    /// continues. A program that fails frees something first.
    pub fn is_refused_trial(&self, event: EventId) -> bool {
        let goes_on = |trials: Range<usize>| {
            let sizes: Vec<u64> = trials.clone().filter(|&at| self.action[at] == Action::Oom).map(|at| self.size[at]).collect();
            let is_varied = || sizes.iter().any(|&size| size != self.size[event as usize]);
            let is_in_order = || sizes.is_sorted() || sizes.iter().rev().is_sorted();
            // A program that tries ever smaller sizes keeps the block it gets.
            let makes_more =
                || self.is_like(trials.end, event, Action::Alloc) && (!is_in_order() || self.is_freed_at_once(trials.end));
            // The next request, from another line, may be the one that fails. Another refusal from this line belongs to the trials.
            let goes_on = || {
                matches!(self.action.get(trials.end), Some(Action::Alloc | Action::Oom))
                    && !self.is_like(trials.end, event, Action::Oom)
            };
            (sizes.len() >= FEWEST && is_varied() && (makes_more() || (sizes.len() >= MANY && !is_in_order() && goes_on())))
                || (sizes.len() > 1 && self.keeps_its_output(&trials, event))
        };
        self.got_instead(event).is_some() || self.trials_around(event).is_some_and(goes_on)
    }

    /// True if the call allocated its output just before the requests, and the next event is another allocation. A call that
    /// fails frees its output first, and a loop that allocates until memory is full makes blocks of one size.
    fn keeps_its_output(&self, trials: &Range<usize>, event: EventId) -> bool {
        // A request without a stack belongs to the backward pass if events near it have stacks.
        let i = event as usize;
        if !self.stack[i.saturating_sub(NEAR)..=i].iter().any(|stack| stack.is_some()) {
            return false;
        }
        let is_mapping = |at: &usize| self.action[*at].grows_reserved() || self.action[*at].shrinks_reserved();
        let before = (0..trials.start).rev().take(MOST).find(|at| !is_mapping(at));
        let is_output = |at: usize| self.is_like(at, event, Action::Alloc) && self.size[at] != self.size[event as usize];
        before.is_some_and(is_output) && self.action.get(trials.end) == Some(&Action::Alloc)
    }

    /// Requests that were [refused without a failure](Self::is_refused_trial). O(events).
    pub fn refused_trials(&self) -> Vec<EventId> {
        self.refused().filter(|&event| self.is_refused_trial(event)).collect()
    }

    /// Allocations with which cuDNN tried algorithms (`torch.backends.cudnn.benchmark`): each is freed at once, and after the
    /// last one the same call empties the cache. Empty for a recording without stacks: an allocation without a stack counts only
    /// if others have one, because then it is from the backward pass. O(events).
    pub fn granted_trials(&self) -> Vec<EventId> {
        let has_stacks = self.stack.iter().any(|stack| stack.is_some());
        let mut found = Vec::new();
        let mut run: Vec<usize> = Vec::new();
        let mut at = 0;
        while has_stacks && at < self.len() {
            let action = self.action[at];
            if action == Action::Alloc && self.is_freed_at_once(at) {
                if run.first().is_some_and(|&first| !self.is_like(at, first as EventId, Action::Alloc)) {
                    run.clear();
                }
                run.push(at);
                // Skip the allocation and its two free events.
                at += 3;
                continue;
            }
            if action.shrinks_reserved() {
                if run.first().is_some_and(|&first| self.stack[first] == self.stack[at]) && !self.is_retry(at) {
                    found.extend(run.iter().map(|&alloc| alloc as EventId));
                }
                run.clear();
            } else if !action.grows_reserved() {
                run.clear();
            }
            at += 1;
        }
        found
    }

    /// True if segments were released because the next request found no room: that request fails anyway, or takes a segment
    /// larger than each released one. Expandable segments map only missing pages, so for them any growth counts.
    fn is_retry(&self, release: usize) -> bool {
        let Some(next) = (release..self.len()).find(|&at| !self.action[at].shrinks_reserved()) else { return false };
        match self.action[next] {
            Action::Oom => !self.is_refused_trial(next as EventId),
            Action::SegmentMap => true,
            action => action.grows_reserved() && (release..next).all(|at| self.size[at] < self.size[next]),
        }
    }

    /// True for an allocation whose block the next two events free.
    fn is_freed_at_once(&self, alloc: usize) -> bool {
        let frees =
            |at: usize, action: Action| self.action.get(at) == Some(&action) && self.address.get(at) == self.address.get(alloc);
        frees(alloc + 1, Action::FreeRequested) && frees(alloc + 2, Action::FreeCompleted)
    }

    /// True if event `at` has this action and the same stack and stream as `other`.
    fn is_like(&self, at: usize, other: EventId, action: Action) -> bool {
        let other = other as usize;
        self.action.get(at) == Some(&action) && self.stack[at] == self.stack[other] && self.stream[at] == self.stream[other]
    }

    /// The run of refused requests around `refused` with the same stack and stream. Segments may come and go within the run, but
    /// no block is allocated or freed. `None` if `refused` is not an out-of-memory event.
    fn trials_around(&self, refused: EventId) -> Option<Range<usize>> {
        let i = refused as usize;
        if self.action.get(i) != Some(&Action::Oom) {
            return None;
        }
        let is_like = |at: &usize| match self.action[*at] {
            Action::Oom => self.stack[*at] == self.stack[i] && self.stream[*at] == self.stream[i],
            action => action.grows_reserved() || action.shrinks_reserved(),
        };
        let before = (0..i).rev().take(MOST).take_while(is_like).count();
        let after = (i + 1..self.len()).take(MOST).take_while(is_like).count();
        Some(i - before..i + 1 + after)
    }
}
