//! How far a recording reaches. If it ends at its failure, later requests are unknown, and a setting that serves it to its end
//! may only postpone the failure.

use serde::Serialize;

use crate::model::{Action, DeviceRecording};

/// What a recording that ends at its failure, or right after, leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Horizon {
    /// Allocations that follow the last failure.
    pub requests_after: u64,
    /// True if live memory reached its maximum in the last eighth of the events before that failure.
    pub is_growing: bool,
}

/// Requests after the last failure up to which a recording ends "right after" it: clean-up and the report of the error make some.
const RIGHT_AFTER: u64 = 16;

impl Horizon {
    /// `None` if nothing failed, or if the program continued for a while after its last failure. O(events).
    pub fn of(device: &DeviceRecording) -> Option<Horizon> {
        let events = &device.events;
        let last = events.action.iter().rposition(|&a| a == Action::Oom)?;
        let of_action = |range: &[Action]| range.iter().filter(|&&a| a == Action::Alloc).count() as u64;
        let (before, requests_after) = (of_action(&events.action[..last]), of_action(&events.action[last..]));
        if requests_after > RIGHT_AFTER.max(before / 100) {
            return None;
        }
        // What was there before the first event is not told by events; only rises and falls matter here.
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
        // A hundredth more than ever before: less is the same plateau.
        Some(Horizon { requests_after, is_growing: height(late) * 100 > height(earlier) * 101 })
    }

    /// What serving everything means here, to follow "serves everything" or "all served".
    pub const REACH: &'static str = "up to where the recording ends";

    /// What it leaves open, as a clause without a capital or full stop.
    pub fn warning(&self) -> &'static str {
        if self.is_growing {
            "memory was still growing at the end, so it may only postpone the failure"
        } else {
            "whether later requests would fit is not known"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{PoolId, StackId, StreamId};

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
        assert_eq!(Horizon::of(&tape(&climb)), Some(Horizon { requests_after: 0, is_growing: true }));
        let mut flat: Vec<_> = vec![(Action::Alloc, 1000), (Action::FreeCompleted, 1000)];
        flat.extend((0..16).flat_map(|_| [(Action::Alloc, 900), (Action::FreeCompleted, 900)]));
        flat.push((Action::Oom, 1000));
        assert_eq!(Horizon::of(&tape(&flat)), Some(Horizon { requests_after: 0, is_growing: false }));
        // What was live before the trace is freed in it: a level below zero is no growth.
        let fall: Vec<_> = (0..16).map(|_| (Action::FreeCompleted, 100)).chain([(Action::Oom, 1000)]).collect();
        assert_eq!(Horizon::of(&tape(&fall)).map(|h| h.is_growing), Some(false));
    }

    #[test]
    fn one_that_goes_on_or_did_not_fail_has_no_such_end() {
        assert_eq!(Horizon::of(&tape(&[(Action::Alloc, 100)])), None);
        let mut on = vec![(Action::Alloc, 100), (Action::Oom, 1000)];
        on.extend((0..17).map(|_| (Action::Alloc, 100)));
        assert_eq!(Horizon::of(&tape(&on)), None);
        assert!(Horizon::of(&tape(&on[..18])).is_some(), "16 requests of clean-up");
    }
}
