//! How far a recording with a failure reaches. If it ends at the failure, later requests are unknown, and a setting that serves
//! every recorded request may only postpone the failure. If the program caught the failure, it is unknown what the failed step
//! would have requested next.

use serde::Serialize;

use crate::model::{Action, DeviceRecording, StackId};

/// What a recording with a failed request leaves open: it ends at the failure or right after, or the program gave up the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Horizon {
    /// Number of allocations after the last failure.
    pub requests_after: u64,
    /// True if live memory reached its maximum in the last eighth of the events before the failure.
    pub is_growing: bool,
    /// True if the program caught its last failure and went on with something else, so that its step was cut short.
    pub is_caught: bool,
}

/// A recording with at most this many requests after the failure ends "right after" it: cleanup and error reports make some.
const RIGHT_AFTER: u64 = 16;

impl Horizon {
    /// `None` without failures, or if the requesting code survived the last failure, as cuDNN does with less workspace. O(events).
    pub fn of(device: &DeviceRecording) -> Option<Horizon> {
        let events = &device.events;
        let last = events.last_oom()? as usize;
        let of_action = |range: &[Action]| range.iter().filter(|&&a| a == Action::Alloc).count() as u64;
        let (before, requests_after) = (of_action(&events.action[..last]), of_action(&events.action[last..]));
        if requests_after > RIGHT_AFTER.max(before / 100) {
            let next = last + events.action[last..].iter().position(|&a| a == Action::Alloc)?;
            let [failed, next] = [last, next].map(|event| events.stack.get(event).copied().unwrap_or(StackId::NONE));
            let is_caught = failed != next || !failed.is_some();
            return is_caught.then_some(Horizon { requests_after, is_growing: false, is_caught });
        }
        // Only rises and falls matter here, so memory from before the first event can be ignored.
        let (mut live, mut lowest) = (0i64, 0i64);
        let (mut earlier, mut late) = (0i64, 0i64);
        let tail = last - last.div_ceil(8);
        for i in 0..last {
            match events.action[i] {
                Action::Alloc => live = live.saturating_add_unsigned(events.size[i]),
                Action::FreeCompleted => live = live.saturating_sub_unsigned(events.size[i]),
                _ => {}
            }
            lowest = lowest.min(live);
            let highest = if i < tail { &mut earlier } else { &mut late };
            *highest = live.max(*highest);
        }
        let height = |level: i64| i128::from(level) - i128::from(lowest);
        // The level must be over one percent higher than before; less counts as the same plateau.
        Some(Horizon { requests_after, is_growing: height(late) * 100 > height(earlier) * 101, is_caught: false })
    }

    /// What "serves everything" means here; the text follows "serves everything" or "all served".
    pub fn reach(&self) -> &'static str {
        if self.is_caught { "as far as its requests were recorded" } else { "up to where the recording ends" }
    }

    /// A clause that says what happened.
    pub fn happened(&self) -> &'static str {
        if self.is_caught { "The program caught a failure" } else { "The recording ends at its failure" }
    }

    /// What is unknown, as a clause without a capital letter or full stop.
    pub fn warning(&self) -> &'static str {
        if self.is_caught {
            "what the failed step would have requested next was not recorded"
        } else if self.is_growing {
            "memory was still growing at the end, so it may only postpone the failure"
        } else {
            "whether later requests would fit is not known"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{PoolId, StreamId};

    fn tape(moves: &[(Action, u64)]) -> DeviceRecording {
        let mut d = DeviceRecording::default();
        for &(action, size) in moves {
            d.events.push(0, action, 0x1000, size, StreamId(0), PoolId(0), StackId(0));
        }
        d
    }

    #[test]
    fn a_recording_that_ends_at_its_failure_says_whether_memory_was_growing() {
        let climb: Vec<_> = (0..32).map(|_| (Action::Alloc, 100)).chain([(Action::Oom, 1000)]).collect();
        assert_eq!(Horizon::of(&tape(&climb)), Some(Horizon { requests_after: 0, is_growing: true, is_caught: false }));
        let mut flat: Vec<_> = vec![(Action::Alloc, 1000), (Action::FreeCompleted, 1000)];
        flat.extend((0..16).flat_map(|_| [(Action::Alloc, 900), (Action::FreeCompleted, 900)]));
        flat.push((Action::Oom, 1000));
        assert_eq!(Horizon::of(&tape(&flat)), Some(Horizon { requests_after: 0, is_growing: false, is_caught: false }));
        // Blocks from before the trace are freed in it: a level below zero is no growth.
        let fall: Vec<_> = (0..16).map(|_| (Action::FreeCompleted, 100)).chain([(Action::Oom, 1000)]).collect();
        assert_eq!(Horizon::of(&tape(&fall)).map(|h| h.is_growing), Some(false));
    }

    #[test]
    fn one_that_goes_on_lacks_the_rest_of_the_failed_step() {
        assert_eq!(Horizon::of(&tape(&[(Action::Alloc, 100)])), None);
        let mut on = vec![(Action::Alloc, 100), (Action::Oom, 1000)];
        on.extend((0..17).map(|_| (Action::Alloc, 100)));
        let is_caught = |d: &DeviceRecording| Horizon::of(d).map(|h| h.is_caught);
        assert_eq!(is_caught(&tape(&on)), None, "the code that asked asks for less");
        assert_eq!(is_caught(&tape(&on[..18])), Some(false), "16 requests of clean-up");
        let mut other = tape(&on);
        other.events.stack[1] = StackId(1);
        assert_eq!(is_caught(&other), Some(true), "other code goes on");
        other.events.stack.fill(StackId::NONE);
        assert_eq!(is_caught(&other), Some(true), "no stack shows that the same code went on");
    }
}
