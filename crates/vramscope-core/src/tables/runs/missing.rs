//! Finds segments that a trace uses but never allocates or frees: they existed before it began, and no end state lists them.

use std::ops::Range;

use super::{NO_EVENT, RunTimeline, Runs, SegmentAt, known_pool};
use crate::model::{Action, AllocConf, DeviceRecording, StackId};
use crate::units::MEBIBYTE;

/// Device memory is allocated in whole pages of this size, aligned to it.
const PAGE: u64 = 2 * MEBIBYTE;

/// Adds to `initial` a segment for each block that is used outside all known segments: the segment of a later instant if one
/// covers it, else the pages of the block, which is the minimum. Afterwards every block of the trace lies in a segment, so
/// reserved is never less than active. One pass over the events.
pub(super) fn add_missing(dev: &DeviceRecording, timeline: &RunTimeline, initial: &mut Vec<SegmentAt>) {
    let events = &dev.events;
    let touched = touched(dev, timeline);
    let mut later: Vec<&crate::model::Segment> = dev.later_segments.iter().filter(|s| s.size > 0).collect();
    later.sort_by_key(|s| s.address);
    let is_expandable = events.action.contains(&Action::SegmentMap);
    let mut runs = Runs::from(initial.clone());
    let mut pages: Vec<SegmentAt> = Vec::new();
    let mut change = 0;
    for (i, &action) in events.action.iter().enumerate() {
        if action.grows_reserved() || action.shrinks_reserved() {
            timeline.apply(dev, change, &mut runs);
            change += 1;
            continue;
        }
        if !matches!(action, Action::Alloc | Action::FreeRequested | Action::FreeCompleted) {
            continue;
        }
        let (mut at, requested) = (events.address[i], events.size[i]);
        let size = if events.sizes_are_blocks { requested } else { dev.settings.conf.round_size(requested) };
        let Some(end) = at.checked_add(size).filter(|end| end.checked_add(PAGE).is_some()) else { continue };
        while at < end {
            if let Some(run) = runs.up_to(at).filter(|r| r.address + r.size > at) {
                at = run.address + run.size;
                continue;
            }
            let free = room(&runs, &touched, at, end);
            let found = later.partition_point(|s| s.address <= at).checked_sub(1).map(|n| later[n]);
            let run = match found.filter(|s| at < s.address + s.size) {
                Some(s) => {
                    let range = s.address.max(free.start)..(s.address + s.size).min(free.end);
                    let (stream, pool, class) = (s.stream, known_pool(dev, s.pool), s.class);
                    let run = run(range, s.is_expandable);
                    initial.push(SegmentAt { stream, pool, class, ..run.clone() });
                    SegmentAt { stream, pool, class, ..run }
                }
                None => {
                    let range = (at / PAGE * PAGE).max(free.start)..end.next_multiple_of(PAGE).min(free.end);
                    let (stream, pool) = (events.stream[i], known_pool(dev, events.pool[i]));
                    let run = SegmentAt { stream, pool, class: AllocConf::size_class(size), ..run(range, is_expandable) };
                    pages.push(run.clone());
                    run
                }
            };
            at = run.address + run.size;
            runs.insert(run);
        }
    }
    initial.append(&mut merged(pages));
    initial.sort_by_key(|r| r.address);
}

fn run(range: Range<u64>, is_expandable: bool) -> SegmentAt {
    SegmentAt {
        address: range.start,
        size: range.end - range.start,
        stream: Default::default(),
        pool: crate::model::PoolId::UNKNOWN,
        class: Default::default(),
        is_expandable,
        born: NO_EVENT,
        stack: StackId::NONE,
        blocks: 0..0,
    }
}

/// Every range that the trace allocates or frees, by address and merged: no segment may be invented there.
fn touched(dev: &DeviceRecording, timeline: &RunTimeline) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = timeline
        .changes
        .iter()
        .map(|c| super::range_of(dev, c.event))
        .filter_map(|(address, size)| Some(address..address.checked_add(size)?))
        .collect();
    all.sort_by_key(|r| r.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in all {
        match joined.last_mut().filter(|last| range.start <= last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => joined.push(range),
        }
    }
    joined
}

/// The addresses around `at` that neither a segment nor an event of the trace claims; at least up to `end` or the next segment,
/// in case a block is used in a range before the trace allocates it.
fn room(runs: &Runs, touched: &[Range<u64>], at: u64, end: u64) -> Range<u64> {
    let mut low = runs.up_to(at).map_or(0, |run| run.address + run.size);
    let mut high = runs.after(at).map_or(u64::MAX, |run| run.address);
    let next = touched.partition_point(|r| r.start <= at);
    match next.checked_sub(1).map(|n| &touched[n]) {
        Some(inside) if inside.end > at => return at..end.min(high),
        Some(before) => low = low.max(before.end),
        None => {}
    }
    if let Some(after) = touched.get(next) {
        high = high.min(after.start);
    }
    low..high
}

/// Merges adjacent pages that serve the same requests into one run.
fn merged(mut pages: Vec<SegmentAt>) -> Vec<SegmentAt> {
    pages.sort_by_key(|r| r.address);
    let mut out: Vec<SegmentAt> = Vec::with_capacity(pages.len());
    for page in pages {
        match out.last_mut() {
            Some(last) if last.address + last.size == page.address && (last.stream, last.class) == (page.stream, page.class) => {
                last.size += page.size;
            }
            _ => out.push(page),
        }
    }
    out
}
