//! Trials of cuDNN: before it takes an algorithm for a convolution it may ask for the scratch memory of several. One that is refused is no
//! failure, and one that is granted is no memory that the program needs.

use std::ops::Range;

use super::event::{Action, EventId, EventTable};

/// With fewer a program may try sizes itself.
const FEWEST: usize = 4;
/// From so many on, in no order of sizes, it is a search also where the call makes nothing after it.
const MANY: usize = 16;
/// Events on each side; a program that fails thousands of times in a row is not searched to its end for each.
const MOST: usize = 64;
/// A recording with stacks has one in so many events.
const NEAR: usize = 4096;
/// A trial is of the same kind of work: what is far smaller is another request.
const MOST_TIMES: u64 = 16;

impl EventTable {
    /// The allocation that a call made in place of a request that was refused: smaller, of the same stack and stream, with nothing
    /// between, and freed at once. cuDNN tries its algorithms so, and the program does not fail. `None` for every other event.
    pub fn got_instead(&self, refused: EventId) -> Option<EventId> {
        let next = self.trials_around(refused)?.end;
        let sizes = self.size[refused as usize] / MOST_TIMES..self.size[refused as usize];
        let is_smaller = self.is_like(next, refused, Action::Alloc) && sizes.contains(&self.size[next]);
        (is_smaller && self.is_freed_at_once(next)).then_some(next as EventId)
    }

    /// True for a request that was refused without a failure: its call went on with less, or was one of several that cuDNN tried before it
    /// took an algorithm that needs no or little memory. Nothing is between them, and the program goes on; a program that fails frees something first.
    pub fn is_refused_trial(&self, event: EventId) -> bool {
        let goes_on = |trials: Range<usize>| {
            let sizes: Vec<u64> = trials.clone().filter(|&at| self.action[at] == Action::Oom).map(|at| self.size[at]).collect();
            let is_varied = || sizes.iter().any(|&size| size != self.size[event as usize]);
            let is_in_order = || sizes.is_sorted() || sizes.iter().rev().is_sorted();
            // A program that tries ever smaller sizes keeps what it gets.
            let makes_more =
                || self.is_like(trials.end, event, Action::Alloc) && (!is_in_order() || self.is_freed_at_once(trials.end));
            // The next request, of another line, may be the one that fails. One of this line shows only that the run is longer.
            let goes_on = || {
                matches!(self.action.get(trials.end), Some(Action::Alloc | Action::Oom))
                    && !self.is_like(trials.end, event, Action::Oom)
            };
            (sizes.len() >= FEWEST && is_varied() && (makes_more() || (sizes.len() >= MANY && !is_in_order() && goes_on())))
                || (sizes.len() > 1 && self.keeps_its_output(&trials, event))
        };
        self.got_instead(event).is_some() || self.trials_around(event).is_some_and(goes_on)
    }

    /// True where the call has made its output just before the requests, and the next event is another allocation. A call that fails lets its
    /// output go first; a loop that makes as many blocks as there is room for makes them all alike.
    fn keeps_its_output(&self, trials: &Range<usize>, event: EventId) -> bool {
        // Without a stack it is of the backward pass, if others near it have one.
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

    /// Allocations with which cuDNN tried algorithms (`torch.backends.cudnn.benchmark`): each is freed at once, and behind the last the same
    /// call empties the cache. Without a stack only in a recording that has stacks: there it is of the backward pass. O(events).
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
                // The allocation, its free and the end of that.
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

    /// True where segments go back to the device because the request that follows found no room: it fails all the same, or takes a segment
    /// that is larger than each of them. Of expandable segments only missing pages are taken, so there every growth counts.
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

    /// True where an event has this action, and the stack and the stream of another.
    fn is_like(&self, at: usize, other: EventId, action: Action) -> bool {
        let other = other as usize;
        self.action.get(at) == Some(&action) && self.stack[at] == self.stack[other] && self.stream[at] == self.stream[other]
    }

    /// A refused request with those before and after it of the same stack and stream, between which the cache may have been given back but
    /// nothing was allocated or freed. `None` for another event.
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
