//! Traces whose times go backwards: keeps the file's order or sorts by time, whichever contradicts the end state less.

use std::collections::BTreeMap;

use crate::model::{Action, BlockState, DeviceRecording, EventTable, LoadReport, WarningKind};

/// Fixes times that go backwards. By default the events keep the file's order, which is the allocator's, and only the times are
/// sorted. The events are sorted by time if the file's order contradicts itself or the final blocks more often than the order by
/// time does. O(n log n) for such traces, one pass for all others.
pub(super) fn settle(device: &mut DeviceRecording, report: &mut LoadReport) {
    let late = late_events(&device.events);
    if late == 0 {
        return;
    }
    let listed: Vec<u32> = (0..device.events.len() as u32).collect();
    let mut by_time = listed.clone();
    by_time.sort_by_key(|&i| device.events.time_us[i as usize]);
    let (in_list, in_time) = (contradictions(device, &listed), contradictions(device, &by_time));
    let id = device.id;
    if in_time < in_list {
        permute_all(&mut device.events, &by_time);
    } else {
        device.events.time_us.sort_unstable();
    }
    report.warn_many(WarningKind::OutOfOrder, late, None, || {
        let count = crate::units::count;
        if in_time < in_list {
            format!(
                "the trace of {id} is not in time order; its events were sorted by time, {} stood after a later one: the order of the file \
                 contradicts itself or its end {} times, that of the times {} times",
                count(late),
                count(in_list),
                count(in_time)
            )
        } else {
            format!(
                "the trace of {id} is not in time order, {} of its events stand after a later one; the order of the file was kept, which \
                 contradicts itself or its end {} times (that of the times: {} times), and the times were put in order",
                count(late),
                count(in_list),
                count(in_time)
            )
        }
    });
}

/// Number of events that come after an event with a later time.
fn late_events(events: &EventTable) -> u64 {
    if !events.has_time {
        return 0;
    }
    let mut latest = i64::MIN;
    let mut late = 0;
    for &time in &events.time_us {
        late += u64::from(time < latest);
        latest = latest.max(time);
    }
    late
}

/// Number of impossibilities in an order of the events: an address allocated or freed twice, device memory allocated or freed
/// under live blocks, and final blocks that differ from the file's. Blocks from before the first event do not count.
fn contradictions(device: &DeviceRecording, order: &[u32]) -> u64 {
    let events = &device.events;
    // Whether the block at an address is live, for addresses in the trace.
    let mut blocks: BTreeMap<u64, bool> = BTreeMap::new();
    let mut found = 0;
    for &event in order {
        let i = event as usize;
        let (address, size) = (events.address[i], events.size[i]);
        match events.action[i] {
            Action::Alloc => found += u64::from(blocks.insert(address, true) == Some(true)),
            Action::FreeCompleted => found += u64::from(blocks.insert(address, false) == Some(false)),
            Action::SegmentAlloc | Action::SegmentMap | Action::SegmentFree | Action::SegmentUnmap => {
                let mut within = blocks.range(address..address.saturating_add(size));
                found += u64::from(within.any(|(_, &live)| live));
            }
            _ => {}
        }
    }
    if device.has_final_state {
        let mut held: Vec<u64> = device.blocks.iter().filter(|b| b.state != BlockState::Inactive).map(|b| b.address).collect();
        held.sort_unstable();
        found += blocks.iter().filter(|(address, live)| held.binary_search(address).is_ok() != **live).count() as u64;
    }
    found
}

fn permute_all(events: &mut EventTable, order: &[u32]) {
    fn permute<T: Copy>(column: &mut Vec<T>, order: &[u32]) {
        *column = order.iter().map(|&i| column[i as usize]).collect();
    }
    permute(&mut events.time_us, order);
    permute(&mut events.action, order);
    permute(&mut events.address, order);
    permute(&mut events.size, order);
    permute(&mut events.stream, order);
    permute(&mut events.pool, order);
    permute(&mut events.stack, order);
    let mut place = vec![0u32; order.len()];
    for (new, &old) in order.iter().enumerate() {
        place[old as usize] = new as u32;
    }
    for note in &mut events.notes {
        note.event = place.get(note.event as usize).copied().unwrap_or(note.event);
    }
    events.notes.sort_by_key(|note| note.event);
}
