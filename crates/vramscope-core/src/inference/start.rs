//! The state a trace began in: found by undoing its segment events from the end, and from frees without allocations.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::pages::unmapped_classes;
use crate::allocator::{StartBlock, StartSegment};
use crate::model::conf::{SMALL_MAX, SMALL_SEGMENT};
use crate::model::{Action, BlockState, DeviceRecording, PoolKey, SizeClass};

/// A run of reserved memory while walking back.
#[derive(Clone, Copy)]
struct Run {
    size: u64,
    stream: u64,
    pool: PoolKey,
    class: SizeClass,
    is_expandable: bool,
}

/// What is known of a block that was live before the first event.
struct Known {
    requested: u64,
    is_pending: bool,
    /// The whole size, where it is certain.
    size: Option<u64>,
    is_gone: bool,
}

/// The segments and blocks before the first event; empty for a trace that saw everything.
pub(crate) fn segments_before(device: &DeviceRecording) -> Vec<StartSegment> {
    let runs = runs_before(device);
    if runs.is_empty() {
        return Vec::new();
    }
    let known = blocks_before(device, &runs);
    let mut known: Vec<(u64, Known)> = known.into_iter().collect();
    known.sort_unstable_by_key(|&(address, _)| address);
    let conf = &device.settings.conf;
    let mut out = Vec::with_capacity(runs.len());
    let mut next = 0;
    for (address, run) in runs {
        let end = address + run.size;
        let mut segment = StartSegment {
            address,
            size: run.size,
            stream: run.stream,
            pool: run.pool,
            class: run.class,
            is_expandable: run.is_expandable,
            blocks: Vec::new(),
        };
        let hole = |address: u64, size: u64| StartBlock {
            address,
            size,
            requested: 0,
            is_allocated: false,
            is_pending: false,
            size_is_a_guess: false,
            slot: u32::MAX,
        };
        let mut at = address;
        while known.get(next).is_some_and(|k| k.0 < at) {
            next += 1;
        }
        while let Some((start, k)) = known.get(next).filter(|k| k.0 < end) {
            next += 1;
            if *start > at {
                segment.blocks.push(hole(at, start - at));
            }
            let room = known.get(next).map_or(end, |n| n.0.min(end)) - start;
            let rounded = conf.round_size(k.requested).min(room);
            // A large block keeps a rest of up to 1 MiB; no hole of the large pool is that small.
            let keeps_rest = run.class == SizeClass::Large && !run.is_expandable && !conf.expandable_segments;
            let is_oversize = keeps_rest && conf.max_split_size.is_some_and(|max| rounded >= max);
            let (size, is_guess) = match k.size {
                Some(size) => (size.min(room), false),
                None if !keeps_rest => (rounded, false),
                None if is_oversize || room - rounded <= SMALL_MAX => (room, false),
                None => (rounded, true),
            };
            segment.blocks.push(StartBlock {
                address: *start,
                size,
                requested: k.requested,
                is_allocated: !k.is_pending,
                is_pending: k.is_pending,
                size_is_a_guess: is_guess,
                slot: u32::MAX,
            });
            at = start + size;
        }
        if at < end {
            segment.blocks.push(hole(at, end - at));
        }
        out.push(segment);
    }
    out
}

/// Undoes every segment event, newest first, from the segments of the end.
fn runs_before(device: &DeviceRecording) -> BTreeMap<u64, Run> {
    let mut runs: BTreeMap<u64, Run> = BTreeMap::new();
    let handle = |stream: crate::model::StreamId| device.streams.get(usize::from(stream.0)).copied().unwrap_or(0);
    for s in &device.segments {
        let pool = device.pool_key(s.pool).unwrap_or((0, 0));
        let run = Run { size: s.size, stream: handle(s.stream), pool, class: s.class, is_expandable: s.is_expandable };
        runs.insert(s.address, run);
    }
    let events = &device.events;
    let unmapped = unmapped_classes(device);
    for i in (0..events.len()).rev() {
        let action = events.action[i];
        if !action.grows_reserved() && !action.shrinks_reserved() {
            continue;
        }
        let (address, size) = (events.address[i], events.size[i]);
        match action {
            Action::SegmentAlloc => {
                runs.remove(&address);
            }
            Action::SegmentMap => cut(&mut runs, address, size),
            Action::SegmentFree | Action::SegmentUnmap => {
                let of_segment = if size == SMALL_SEGMENT { SizeClass::Small } else { SizeClass::Large };
                let run = Run {
                    size,
                    stream: handle(events.stream[i]),
                    pool: device.pool_key(events.pool[i]).unwrap_or((0, 0)),
                    class: unmapped.get(&(i as u32)).copied().unwrap_or(of_segment),
                    is_expandable: action == Action::SegmentUnmap,
                };
                runs.insert(address, run);
            }
            _ => {}
        }
    }
    join(runs)
}

/// Neighbouring runs of one expandable segment are one run.
fn join(runs: BTreeMap<u64, Run>) -> BTreeMap<u64, Run> {
    let mut joined: BTreeMap<u64, Run> = BTreeMap::new();
    for (address, run) in runs {
        if let Some(mut last) = joined.last_entry() {
            let (base, l) = (*last.key(), last.get_mut());
            let is_same =
                l.is_expandable && run.is_expandable && l.stream == run.stream && l.pool == run.pool && l.class == run.class;
            if is_same && base + l.size == address {
                l.size += run.size;
                continue;
            }
        }
        joined.insert(address, run);
    }
    joined
}

/// Lets the guessed block that ends at `hole` keep as much of the hole as the rules allow, because the recording did not use it
/// where the model would have. `false` when there is no such block.
pub(crate) fn widen_guess_before(start: &mut [StartSegment], hole: u64) -> bool {
    let Some(segment) = start.iter_mut().find(|s| s.address <= hole && hole < s.address + s.size) else { return false };
    let Some(at) = segment.blocks.iter().position(|b| b.address == hole && !b.is_in_use()) else { return false };
    let Some(before) = at.checked_sub(1).filter(|&b| segment.blocks[b].size_is_a_guess) else { return false };
    let gap = segment.blocks[at].size;
    // A hole of the large pool is larger than 1 MiB, and so is no rest.
    let rest = gap.saturating_sub(SMALL_MAX + 512).min(SMALL_MAX);
    if rest == 0 {
        return false;
    }
    segment.blocks[before].size += rest;
    segment.blocks[before].size_is_a_guess = false;
    segment.blocks[at].address += rest;
    segment.blocks[at].size -= rest;
    true
}

/// Takes a mapped range out of the run that holds it.
fn cut(runs: &mut BTreeMap<u64, Run>, address: u64, size: u64) {
    let mut at = address;
    let end = address + size;
    while at < end {
        let Some((&base, &run)) = runs.range(..=at).next_back() else { return };
        let run_end = base + run.size;
        if !run.is_expandable || run_end <= at {
            return;
        }
        runs.remove(&base);
        if base < at {
            runs.insert(base, Run { size: at - base, ..run });
        }
        if run_end > end {
            runs.insert(end, Run { size: run_end - end, ..run });
        }
        at = run_end;
    }
}

/// Blocks that are freed, or still there at the end, without having been allocated in the trace.
fn blocks_before(device: &DeviceRecording, runs: &BTreeMap<u64, Run>) -> FxHashMap<u64, Known> {
    let events = &device.events;
    let conf = &device.settings.conf;
    let mut born: FxHashSet<u64> = FxHashSet::default();
    let mut pending: FxHashSet<u64> = FxHashSet::default();
    let mut known: BTreeMap<u64, Known> = BTreeMap::new();
    let is_inside = |address: u64| runs.range(..=address).next_back().is_some_and(|(base, run)| address < base + run.size);
    for i in 0..events.len() {
        let address = events.address[i];
        match events.action[i] {
            Action::Alloc => {
                born.insert(address);
            }
            Action::FreeRequested => {
                if !born.remove(&address) && is_inside(address) {
                    known.entry(address).or_insert(Known {
                        requested: events.size[i],
                        is_pending: false,
                        size: None,
                        is_gone: false,
                    });
                }
                pending.insert(address);
            }
            Action::FreeCompleted => {
                if !pending.remove(&address) && is_inside(address) {
                    known.entry(address).or_insert(Known {
                        requested: events.size[i],
                        is_pending: true,
                        size: None,
                        is_gone: false,
                    });
                }
            }
            _ => {}
        }
    }
    for block in device.blocks.iter().filter(|b| b.state != BlockState::Inactive) {
        if !born.contains(&block.address) && !pending.contains(&block.address) && is_inside(block.address) {
            let is_pending = block.state == BlockState::PendingFree;
            known.entry(block.address).or_insert(Known {
                requested: block.requested,
                is_pending,
                size: Some(block.size),
                is_gone: false,
            });
        }
    }
    // An allocation starts at the start of a hole, so the first ones behind a block show where it ends.
    for i in 0..events.len() {
        let address = events.address[i];
        match events.action[i] {
            Action::Alloc => {
                if let Some((start, k)) = known.range_mut(..address).next_back()
                    && !k.is_gone
                    && k.size.is_none()
                {
                    let rounded = conf.round_size(k.requested);
                    if address >= start + rounded && address - (start + rounded) <= SMALL_MAX {
                        k.size = Some(address - start);
                    }
                }
            }
            Action::FreeCompleted => {
                if let Some(k) = known.get_mut(&address) {
                    k.is_gone = true;
                }
            }
            _ => {}
        }
    }
    known.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{PoolId, Segment, StackId, StreamId};
    use crate::units::MEBIBYTE;

    #[test]
    fn ten_small_pages_that_went_were_no_large_one() {
        let mut device =
            DeviceRecording { has_final_state: true, streams: vec![0], pools: vec![(0, 0)], ..DeviceRecording::default() };
        let base = 1 << 40;
        let mut push = |action, at: u64, size: u64| {
            device.events.push(0, action, base + at * MEBIBYTE, size * MEBIBYTE, StreamId(0), PoolId(0), StackId::NONE);
        };
        for page in 0..10 {
            push(Action::SegmentMap, 2 * page, 2);
        }
        push(Action::SegmentUnmap, 0, 20);
        // Mapped before the trace, beside a page that stays.
        push(Action::SegmentUnmap, 100, 20);
        device.segments.push(Segment {
            address: base + 120 * MEBIBYTE,
            size: 2 * MEBIBYTE,
            stream: StreamId(0),
            pool: PoolId(0),
            class: SizeClass::Small,
            is_expandable: true,
            stack: StackId::NONE,
            blocks: 0..0,
        });
        let start = segments_before(&device);
        let told: Vec<_> = start.iter().map(|s| ((s.address - base) / MEBIBYTE, s.size / MEBIBYTE, s.class)).collect();
        assert_eq!(told, [(100, 22, SizeClass::Small)]);
    }
}
