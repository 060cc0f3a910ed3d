//! Checks whether a snapshot agrees with PyTorch's own counters.
//!
//! If `memory_stats()` and a snapshot are taken at the same time, all current figures agree to the byte, and a counted peak is
//! not below the peak within the trace.

use serde::Serialize;

use crate::model::{
    Action, BlockState, Counter, DeviceId, DeviceKind, DeviceRecording, MemoryStats, Recording, SizeClass, StatsKind,
};
use crate::units::{count, counted};

/// A counter compared with the snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StatCheck {
    /// The counter's flat key.
    pub key: String,
    /// PyTorch's value (rounded down in a summary).
    pub counted: u64,
    /// The snapshot's value.
    pub found: u64,
    /// True if both can be right.
    pub agrees: bool,
}

/// The counters of one file, compared with the device they belong to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StatsVerdict {
    /// The file of counters.
    pub file: String,
    /// The call that wrote them: `memory_stats`.
    pub kind: &'static str,
    /// Index in [`Recording::devices`] of the device they were compared with; `None` if there is none.
    pub device: Option<usize>,
    /// One check per counter that the snapshot can verify; empty without a device.
    pub checks: Vec<StatCheck>,
    /// Number of checks that agree.
    pub passed: usize,
    /// Number of checks that do not agree.
    pub failed: usize,
    /// The result in one sentence.
    pub sentence: String,
}

/// Compares counters with the device of a recording that they belong to: the device they name, pinned host memory for
/// `host_memory_stats`, or, if the process has several GPUs and none is named, the one that agrees most.
pub fn judge_stats(recording: &Recording, file: &str, stats: &MemoryStats) -> StatsVerdict {
    let can_be = |id: DeviceId| match stats.kind {
        StatsKind::Host => id.kind == DeviceKind::Host,
        _ => !matches!(id.kind, DeviceKind::Host | DeviceKind::Cpu) && stats.device.is_none_or(|d| d == id.index),
    };
    let compared = recording.devices.iter().enumerate().filter(|(_, d)| can_be(d.id)).map(|(i, d)| (i, check_stats(d, stats)));
    let agreeing = |checks: &[StatCheck]| checks.iter().filter(|c| c.agrees).count();
    let best = compared.max_by_key(|(i, checks)| (agreeing(checks), std::cmp::Reverse(*i)));
    let (device, checks) = match best {
        Some((i, checks)) if !checks.is_empty() => (Some(i), checks),
        _ => (None, Vec::new()),
    };
    let passed = agreeing(&checks);
    let failed = checks.len() - passed;
    let kind = stats.kind.name();
    let of = device.and_then(|i| recording.devices.get(i)).map(|d| d.id.to_string()).unwrap_or_default();
    let sentence = match (device, failed) {
        (None, _) if stats.kind == StatsKind::Host => {
            format!("{kind} of {file} cannot be checked: the snapshot holds no pinned host memory (PyTorch 2.14 records it)")
        }
        (None, _) => format!("{kind} of {file} cannot be checked: the recording has no state at its end, a snapshot has"),
        (Some(_), 0) => {
            format!("all {} that the snapshot can tell of {of} agree with {kind}", counted(passed as u64, "counter", "counters"))
        }
        (Some(_), _) => format!(
            "{} of {} do not agree with the snapshot of {of}, first {}: the two were not taken at the same moment, or not of the \
             same process",
            count(failed as u64),
            counted(checks.len() as u64, "counter", "counters"),
            checks.iter().find(|c| !c.agrees).map_or("", |c| c.key.as_str()),
        ),
    };
    StatsVerdict { file: file.to_owned(), kind, device, checks, passed, failed, sentence }
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

/// Compares every counter that a snapshot can verify: the current figures of each group and pool, and the peaks of reserved and
/// requested bytes, for which the trace gives a lower bound. Other counters are left out. Cost: one pass over blocks and events.
pub fn check_stats(device: &DeviceRecording, stats: &MemoryStats) -> Vec<StatCheck> {
    let mut out = Vec::new();
    if !device.has_final_state {
        return out;
    }
    if stats.kind == StatsKind::Host {
        return host_checks(device, stats);
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
        // The process may have peaked before the trace began, so the counter may be higher, but not lower.
        compare(format!("{group}.all.peak"), found, &|c| c.value.saturating_add(c.slack) >= found);
    }
    out
}

/// Pinned host memory: a segment is one block, either in use or cached.
fn host_checks(device: &DeviceRecording, stats: &MemoryStats) -> Vec<StatCheck> {
    let s = sums(device, None);
    let figures = [
        ("allocated_bytes.current", s.reserved),
        ("allocations.current", s.segments),
        ("active_bytes.current", s.active),
        ("active_requests.current", s.active_blocks),
    ];
    let known = figures.into_iter().filter_map(|(key, found)| Some((key, stats.get(key)?, found)));
    known.map(|(key, c, found)| StatCheck { key: key.to_owned(), counted: c.value, found, agrees: c.admits(found) }).collect()
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
        let recording = Recording { devices: vec![device()], ..Recording::default() };
        let verdict = judge_stats(&recording, "s.json", &stats::parse(text).unwrap());
        assert_eq!((verdict.device, verdict.passed, verdict.failed), (Some(0), 5, 2));
        let plain = verdict.sentence.replace(crate::units::NBSP, " ");
        assert!(
            plain.starts_with("2 of 7 counters do not agree with the snapshot of GPU 0, first segment.all.current"),
            "{plain}"
        );
    }

    #[test]
    fn host_counters_need_host_memory() {
        let text =
            "{'allocations.current': 1, 'allocated_bytes.current': 2097152, 'active_bytes.current': 1536, 'num_host_alloc': 1}";
        let stats = stats::parse(text).unwrap();
        let gpu = Recording { devices: vec![device()], ..Recording::default() };
        let verdict = judge_stats(&gpu, "h.json", &stats);
        assert!(verdict.device.is_none() && verdict.sentence.contains("no pinned host memory"), "{}", verdict.sentence);
        let mut host = device();
        host.id = DeviceId { kind: DeviceKind::Host, index: -1 };
        let verdict = judge_stats(&Recording { devices: vec![host], ..Recording::default() }, "h.json", &stats);
        assert_eq!((verdict.passed, verdict.failed), (3, 0));
    }
}
