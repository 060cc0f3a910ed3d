//! A snapshot held against PyTorch's own counters: do both tell the same story?
//!
//! `memory_stats()` and a snapshot taken together must agree to the byte on everything that counts what is there now, and no
//! peak can be below what the trace itself reached.

use serde::Serialize;

use crate::formats::stats::{Counter, MemoryStats};
use crate::model::{Action, BlockState, DeviceRecording, SizeClass};

/// One counter beside the snapshot's figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StatCheck {
    /// The counter's flat key.
    pub key: String,
    /// What PyTorch counted (rounded down in a summary).
    pub counted: u64,
    /// What the snapshot gives.
    pub found: u64,
    /// True when both can be right.
    pub agrees: bool,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    allocated: u64,
    active: u64,
    requested: u64,
    reserved: u64,
    split: u64,
    allocations: u64,
    active_blocks: u64,
    segments: u64,
    split_blocks: u64,
}

/// Compares every counter that a snapshot can tell: the current figures of each group and pool, and the peaks of reserved and
/// requested bytes, which the trace bounds from below. Counters the snapshot can not tell are left out. Cost: one pass over
/// blocks and events.
#[must_use]
pub fn check_stats(device: &DeviceRecording, stats: &MemoryStats) -> Vec<StatCheck> {
    let mut out = Vec::new();
    if !device.has_final_state {
        return out;
    }
    let large = sums(device, Some(SizeClass::Large));
    let small = sums(device, Some(SizeClass::Small));
    let all = sums(device, None);
    let mut compare = |key: String, found: u64, fits: &dyn Fn(Counter) -> bool| {
        if let Some(counter) = stats.get(&key) {
            out.push(StatCheck { key, counted: counter.value, found, agrees: fits(counter) });
        }
    };
    for (pool, s) in [("all", all), ("large_pool", large), ("small_pool", small)] {
        for (group, found) in [
            ("allocated_bytes", s.allocated),
            ("active_bytes", s.active),
            ("requested_bytes", s.requested),
            ("reserved_bytes", s.reserved),
            ("inactive_split_bytes", s.split),
            ("allocation", s.allocations),
            ("active", s.active_blocks),
            ("segment", s.segments),
            ("inactive_split", s.split_blocks),
        ] {
            // PyTorch does not keep the split counters for expandable segments.
            if group.starts_with("inactive_split") && device.segments.iter().any(|s| s.is_expandable) {
                continue;
            }
            compare(format!("{group}.{pool}.current"), found, &|c| c.admits(found));
        }
    }
    let (reserved, requested) = trace_peaks(device, all.reserved, all.requested);
    for (group, found) in [("reserved_bytes", reserved), ("requested_bytes", requested)] {
        // The process may have peaked before the trace began, never lower than within it.
        compare(format!("{group}.all.peak"), found, &|c| c.value.saturating_add(c.slack) >= found);
    }
    out
}

fn sums(device: &DeviceRecording, class: Option<SizeClass>) -> Sums {
    let mut s = Sums::default();
    for segment in device.segments.iter().filter(|s| class.is_none_or(|c| c == s.class)) {
        s.reserved = s.reserved.saturating_add(segment.size);
        s.segments += 1;
        let blocks = device.blocks_of(segment);
        for block in blocks {
            match block.state {
                BlockState::Active | BlockState::PendingFree => {
                    s.active = s.active.saturating_add(block.size);
                    s.active_blocks += 1;
                    s.requested = s.requested.saturating_add(block.requested);
                    if block.state == BlockState::Active {
                        s.allocated = s.allocated.saturating_add(block.size);
                        s.allocations += 1;
                    }
                }
                // A segment that is wholly free is cached, not split.
                BlockState::Inactive if blocks.len() > 1 => {
                    s.split = s.split.saturating_add(block.size);
                    s.split_blocks += 1;
                }
                BlockState::Inactive => {}
            }
        }
    }
    s
}

/// Highest reserved and requested bytes within the trace, walking back from the end state.
fn trace_peaks(device: &DeviceRecording, mut reserved: u64, mut requested: u64) -> (u64, u64) {
    let (mut top_reserved, mut top_requested) = (reserved, requested);
    let events = &device.events;
    for i in (0..events.len()).rev() {
        let size = events.size[i];
        match events.action[i] {
            a if a.grows_reserved() => reserved = reserved.saturating_sub(size),
            a if a.shrinks_reserved() => reserved = reserved.saturating_add(size),
            Action::Alloc => requested = requested.saturating_sub(size),
            Action::FreeCompleted => requested = requested.saturating_add(size),
            _ => {}
        }
        top_reserved = top_reserved.max(reserved);
        top_requested = top_requested.max(requested);
    }
    (top_reserved, top_requested)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::stats;
    use crate::model::{Block, PoolId, Segment, StackId, StreamId};

    fn device() -> DeviceRecording {
        let block = |address, size, requested, state| Block { address, size, requested, state, stack: StackId::NONE };
        let mut d = DeviceRecording { has_final_state: true, ..DeviceRecording::default() };
        d.blocks = vec![
            block(0, 512, 300, BlockState::Active),
            block(512, 1024, 1000, BlockState::PendingFree),
            block(1536, 2_095_616, 0, BlockState::Inactive),
        ];
        d.segments = vec![Segment {
            address: 0,
            size: 2_097_152,
            stream: StreamId(0),
            pool: PoolId(0),
            class: SizeClass::Small,
            is_expandable: false,
            stack: StackId::NONE,
            blocks: 0..3,
        }];
        let mut push = |action, size| d.events.push(0, action, 0, size, StreamId(0), PoolId(0), StackId::NONE);
        push(Action::Alloc, 5000);
        push(Action::FreeCompleted, 5000);
        d
    }

    #[test]
    fn figures_that_agree_and_one_that_does_not() {
        let text = "{'reserved_bytes.all.current': 2097152, 'allocated_bytes.small_pool.current': 512, 'active.all.current': 2, \
            'inactive_split_bytes.all.current': 2095616, 'requested_bytes.all.current': 1300, 'requested_bytes.all.peak': 6000, \
            'segment.all.current': 2, 'num_ooms': 0}";
        let checks = check_stats(&device(), &stats::parse(text).unwrap());
        assert_eq!(checks.len(), 7);
        let wrong: Vec<_> = checks.iter().filter(|c| !c.agrees).map(|c| c.key.as_str()).collect();
        assert_eq!(wrong, ["segment.all.current", "requested_bytes.all.peak"]);
        assert_eq!(checks.iter().find(|c| c.key == "requested_bytes.all.peak").unwrap().found, 6300);
    }
}
