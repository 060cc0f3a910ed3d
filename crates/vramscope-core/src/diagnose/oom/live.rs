//! Live memory at an instant: by call stack, and its age.

use rustc_hash::FxHashMap;

use crate::model::{BlockState, DeviceRecording, StackId};
use crate::tables::{DeviceTables, LifetimeId, Lifetimes, NO_EVENT, State};
use crate::units::counted;

/// Live memory of one call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveByStack {
    /// The stack. [`StackId::NONE`] stands for blocks without one; parts of a trace's own total have no blocks
    /// ([`Beyond`](crate::model::Beyond)).
    pub stack: StackId,
    /// Requested bytes.
    pub bytes: u64,
    /// Number of blocks, including those that wait for another stream. Bytes that the source reports beyond its blocks add none.
    pub count: u64,
}

/// Requested bytes in use by stack, largest first, including blocks that wait for another stream.
pub fn top_live(device: &DeviceRecording, tables: &DeviceTables, state: &State) -> Vec<LiveByStack> {
    let mut by_stack: FxHashMap<StackId, (u64, u64)> = FxHashMap::default();
    for block in state.blocks.iter().filter(|b| b.state != BlockState::Inactive) {
        let entry = by_stack.entry(tables.lifetimes.stack(device, block.lifetime)).or_default();
        entry.0 += block.requested;
        entry.1 += 1;
    }
    let known = state.blocks.iter().filter(|b| b.state != BlockState::Inactive).fold(0u64, |sum, b| sum.saturating_add(b.size));
    for (stack, bytes) in device.source_totals.beyond_parts(state.event, known).stacks() {
        by_stack.entry(stack).or_default().0 += bytes;
    }
    let mut top: Vec<LiveByStack> =
        by_stack.into_iter().map(|(stack, (bytes, count))| LiveByStack { stack, bytes, count }).collect();
    top.sort_by_key(|l| (std::cmp::Reverse(l.bytes), l.stack));
    top
}

/// The age of a block at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    /// Events since it was allocated; `None` if it existed before the recording began (then at least as many as the recording has).
    pub events: Option<u32>,
    /// Microseconds since it was allocated, or since the first event for a block from before the recording; `None` without times.
    pub micros: Option<i64>,
}

/// The age of an allocation after an event. O(1).
pub fn age(device: &DeviceRecording, lifetimes: &Lifetimes, id: LifetimeId, event: u32) -> Age {
    let born = lifetimes.born(id);
    let before = born == NO_EVENT;
    let times = &device.events.time_us;
    let time = |e: u32| times.get(e as usize).copied().filter(|_| device.events.has_time);
    let micros = time(event).zip(time(if before { 0 } else { born })).map(|(now, then)| now.saturating_sub(then));
    Age { events: (!before).then(|| event.saturating_sub(born)), micros }
}

impl std::fmt::Display for Age {
    /// `2.95 ms`, `1,204 events`; `over 3 s` for a block from before the recording.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let over = if self.events.is_none() { "over " } else { "" };
        let text = match (self.micros, self.events) {
            (Some(micros), _) => format!("{over}{}", crate::units::Micros(micros)),
            (None, Some(events)) => counted(u64::from(events), "event", "events"),
            (None, None) => "from before".to_owned(),
        };
        f.pad(&text)
    }
}
