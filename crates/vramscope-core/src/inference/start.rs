//! The state in which a trace began, as the allocator needs it: the segments and live blocks that the tables find, plus the free
//! space between the blocks and the unused rest inside a block.

use std::collections::BTreeMap;

use crate::allocator::{StartBlock, StartSegment};
use crate::model::conf::SMALL_MAX;
use crate::model::{Action, DeviceRecording, Progress, SizeClass};
use crate::tables::SegmentAt;
use crate::tables::initial::find_initial;
use crate::tables::runs::RunTimeline;

/// What is known about a block that was live before the first event.
struct Known {
    requested: u64,
    is_pending: bool,
    /// The size of the whole block, if it is certain.
    size: Option<u64>,
    is_gone: bool,
}

/// The segments and blocks before the first event; empty if the trace starts with the first allocation.
pub(crate) fn segments_before(device: &DeviceRecording) -> Vec<StartSegment> {
    let timeline = RunTimeline::recorded(device);
    if timeline.initial.is_empty() {
        return Vec::new();
    }
    let known = blocks_before(device, &timeline);
    let known: Vec<(u64, Known)> = known.into_iter().collect();
    let conf = &device.settings.conf;
    let mut out = Vec::with_capacity(timeline.initial.len());
    let mut next = 0;
    for run in &timeline.initial {
        let (address, end) = (run.address, end_of(run));
        let mut segment = StartSegment {
            address,
            size: run.size,
            stream: device.stream_handle(run.stream),
            pool: device.pool_key(run.pool).unwrap_or((0, 0)),
            class: run.class,
            is_expandable: run.is_expandable,
            blocks: Vec::new(),
        };
        let hole = |address: u64, size: u64| StartBlock { address, size, slot: u32::MAX, ..StartBlock::default() };
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
            // A large block may include an unused rest of up to 1 MiB; free blocks of the large pool are always larger than that.
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

/// Extends the guessed block that ends at `hole` as far as the rules allow: the model would have used that free space, but the
/// recording did not. `false` if there is no such block.
pub(crate) fn widen_guess_before(start: &mut [StartSegment], hole: u64) -> bool {
    let Some(segment) = start.iter_mut().find(|s| s.address <= hole && hole < s.address + s.size) else { return false };
    let Some(at) = segment.blocks.iter().position(|b| b.address == hole && !b.is_in_use()) else { return false };
    let Some(before) = at.checked_sub(1).filter(|&b| segment.blocks[b].size_is_a_guess) else { return false };
    let gap = segment.blocks[at].size;
    // Free space in the large pool is larger than 1 MiB, otherwise it is the rest of a block.
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

fn end_of(run: &SegmentAt) -> u64 {
    run.address.saturating_add(run.size)
}

/// The blocks that were live before the trace, by address.
fn blocks_before(device: &DeviceRecording, timeline: &RunTimeline) -> BTreeMap<u64, Known> {
    let events = &device.events;
    let conf = &device.settings.conf;
    let runs = &timeline.initial;
    let is_inside = |address: u64| {
        let before = runs.partition_point(|run| run.address <= address);
        before > 0 && address < end_of(&runs[before - 1])
    };
    let initial = find_initial(device, timeline, &Progress::new()).unwrap_or_default();
    let mut known: BTreeMap<u64, Known> = initial
        .into_iter()
        .filter(|block| is_inside(block.address))
        .map(|b| {
            let size = (b.block > 0).then_some(b.block);
            (b.address, Known { requested: b.requested, is_pending: b.pending, size, is_gone: false })
        })
        .collect();
    // An allocation begins where a free range begins, so the first ones after a block show where it ends.
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
    known
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
        // Pages that were mapped before the trace, next to one that stays.
        push(Action::SegmentUnmap, 100, 20);
        let (address, size) = (base + 120 * MEBIBYTE, 2 * MEBIBYTE);
        let class = SizeClass::Small;
        device.segments.push(Segment { address, size, pool: PoolId(0), class, is_expandable: true, ..Segment::default() });
        let start = segments_before(&device);
        let told: Vec<_> = start.iter().map(|s| ((s.address - base) / MEBIBYTE, s.size / MEBIBYTE, s.class)).collect();
        assert_eq!(told, [(100, 22, SizeClass::Small)]);
    }
}
