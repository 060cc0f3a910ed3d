//! Examines an out-of-memory event: what was requested, what was free and where, and why that was not enough. Of a recording without
//! one: how close it came.

mod autopsy;
mod closest;
mod evaluating;
mod full;
mod held;
mod helped;
mod live;
mod of_program;
mod parts;
mod to_free;
mod verdict;
mod why;

pub use self::autopsy::Autopsy;
pub use self::closest::{Closest, OneOfStreams, Room, RoomFrom, closest, closest_under, has_segments, knows_reserved};
pub use self::full::{FREE, INSIDE, TENSORS, what_to_make_smaller, with_what_to_make_smaller};
pub(crate) use self::held::{LEAVE, LET_GO, held_attempts};
pub use self::helped::{
    AUTOMATIC_TRIALS_MOST_EVENTS, Advice, Helped, NOT_REPRODUCED, Support, advice, best_advice, can_be_served_again,
    what_would_have_helped,
};
pub use self::live::{Age, LiveByStack, age, top_live};
pub use self::of_program::Failure;
pub use self::parts::{Fits, Part};
use self::verdict::{Facts, classify};
pub use self::verdict::{Test, Verdict};
use super::fragmentation::{
    RoomKind, RoomPlan, Servers, WithMore, blockers, blockers_with_segments, cheapest_plan, cheapest_plan_most, enough_alone,
    holes,
};
use super::vendor::Words;
use crate::inference::{CapFrom, Caps};
use crate::model::{Action, BlockState, DeviceKind, DeviceRecording, EventTable, Sample};
use crate::tables::{DeviceTables, Quantity, State};

/// From this many live blocks of the request's size on, the request is one of many: a loop or a row of layers will make another.
const MANY_ALIKE: usize = 8;

/// Free bytes on the device at a failure, as used by [`examine`]. [`EventTable::FREE_UNBOUNDED`] if the figure is unknown but
/// irrelevant, because the request exceeds the whole device. `None` if the failure cannot be examined.
pub fn free_at(device: &DeviceRecording, event: u32) -> Option<u64> {
    let asked = device.events.size.get(event as usize).copied()?;
    let is_more_than_all = device.events.action[event as usize] == Action::Oom && device.capacity.is_some_and(|all| asked > all);
    device.events.device_free(event).or(is_more_than_all.then_some(EventTable::FREE_UNBOUNDED))
}

/// A figure from the nearest sample that has it, at most two seconds from an event; from the last sample if events have no times.
/// `None` if there is none: what other processes held at another time says nothing about this instant. O(samples).
fn sample_near(device: &DeviceRecording, event: u32, figure: impl Fn(&Sample) -> Option<u64>) -> Option<u64> {
    const NEAR_US: u64 = 2_000_000;
    let mut told = device.samples.iter().filter_map(|s| figure(s).map(|bytes| (s.time_us, bytes)));
    let Some(now) = device.events.time_us.get(event as usize).copied().filter(|_| device.events.has_time) else {
        return told.next_back().map(|(_, bytes)| bytes);
    };
    let nearest = told.min_by_key(|(time, _)| time.abs_diff(now))?;
    (nearest.0.abs_diff(now) < NEAR_US).then_some(nearest.1)
}

/// Examines one `oom` event. `state` must be the state at that event. `caps` is what is known about the cap: [`Caps::of`] the
/// device, or [`Caps::exact`] if the caller knows it. O(blocks log blocks).
pub fn examine(device: &DeviceRecording, tables: &DeviceTables, event: u32, state: &State, caps: &Caps) -> Option<Autopsy> {
    let device_free = free_at(device, event)?;
    let (servers, requested) = Servers::of_oom(device, event)?;
    let segment = device.settings.conf.segment_size(requested);
    let own = holes(state, Some(&servers));
    let all_holes = holes(state, None);
    let reserved = state.totals.reserved;
    let has_segments = has_segments(tables);
    // If the device itself has no room, requests that failed at other times do not bound the cap.
    let limit = caps.at(event).filter(|cap| cap.from != CapFrom::Refusals || EventTable::has_room(device_free, segment));
    let others = sample_near(device, event, |s| s.others);
    let outside = sample_near(device, event, |s| s.process).map(|p| p.saturating_sub(reserved));
    let room = limit.map(|cap| cap.least.saturating_sub(reserved));
    let most = reserved.saturating_add(device_free);
    let is_nearly_full = autopsy::is_nearly_full(state.totals.allocated, limit.map_or(most, |cap| cap.most.min(most)));
    let alike = state.blocks.iter().filter(|b| b.state == BlockState::Active && b.requested == requested).count();
    // True if all free memory in one piece would serve this request but not the next one.
    let is_for_one = own.bytes.saturating_add(device_free) < requested.saturating_mul(2);
    let (verdict, tests) = classify(&Facts {
        has_segments,
        requested,
        segment,
        device_free,
        reserved,
        own,
        capacity: device.capacity,
        is_limited: limit.is_some(),
        room: room.unwrap_or(device_free),
        others,
        outside,
        is_used_up: is_nearly_full && is_for_one && alike >= MANY_ALIKE,
    });
    // Freeing memory does not help against a request larger than the device.
    let is_of_device = limit.is_none_or(|cap| cap.from == CapFrom::Device);
    let new = taken_anew(device, &servers, requested, is_of_device);
    let need = if verdict == Verdict::TooLarge { segment } else { new.saturating_sub(room.unwrap_or(device_free)) };
    // If memory returned to the device is useful, then segments of other streams and pools are candidates too.
    let found = if need > 0 && verdict != Verdict::TooLarge {
        blockers_with_segments(device, state, &servers)
    } else {
        blockers(state, Some(&servers))
    };
    let alone = enough_alone(device, state, &servers, requested, need);
    // Skip a plan that frees nothing and releases nothing.
    let is_some_plan = |plan: &RoomPlan| !plan.blocks.is_empty() || (plan.kind == RoomKind::Release && plan.room > 0);
    let mut room_plan = cheapest_plan(device, state, &servers, requested, need).filter(is_some_plan);
    if let Some(plan) = room_plan.as_mut().filter(|plan| plan.has_pages && is_of_device) {
        // Memory that stays mapped next to the freed memory may serve a part of the request; the device then needs to give less.
        plan.is_optimal &= plan.bytes == 0;
    }
    if let (Some(plan), Some(cap)) = (&mut room_plan, limit.filter(|cap| !cap.is_known() && verdict != Verdict::TooLarge)) {
        plan.least_cap = (plan.kind == RoomKind::Release).then_some(cap.least);
        // Computed for the lowest cap under which it is sufficient.
        let least = new.saturating_sub(cap.most.saturating_sub(reserved));
        let found = cheapest_plan_most(device, state, &servers, requested, [least, need]).filter(|more| more.bytes < plan.bytes);
        plan.with_more = found.map(|more| WithMore {
            cap: reserved.saturating_add(new).saturating_sub(more.room).max(cap.least),
            blocks: more.blocks.len(),
            bytes: more.bytes,
            is_optimal: more.is_optimal,
        });
    }
    let mut autopsy = Autopsy {
        event,
        has_segments,
        is_host: matches!(device.id.kind, DeviceKind::Host | DeviceKind::Cpu),
        words: Words::of(device),
        is_private: servers.pool.and_then(|pool| device.pool_key(pool)).is_some_and(|key| key != (0, 0)),
        capacity: device.capacity,
        needs: device.needs,
        requested,
        segment,
        device_free,
        reserved,
        allocated: state.totals.allocated,
        allocated_before: match verdict {
            Verdict::Fragmentation => allocated_before(device, tables, event, state.totals.allocated.saturating_add(requested)),
            _ => 0,
        },
        pending: state.totals.active.saturating_sub(state.totals.allocated),
        others,
        outside,
        live_requested: state.totals.requested,
        class: servers.class,
        servers,
        holes: own,
        all_holes,
        limit,
        verdict,
        alike,
        sentence: String::new(),
        tests,
        blockers: found,
        alone,
        need,
        room_plan,
        parts: Vec::new(),
        top_live: top_live(device, tables, state),
        stack: device.events.stack[event as usize],
        survived: device.events.allocates_after(event),
    };
    autopsy.sentence = why::sentence(&autopsy);
    autopsy.parts = parts::parts(&autopsy, &device.settings.conf);
    Some(autopsy)
}

/// The most bytes allocated before an event, without trials of cuDNN, which the program does not need. Trials are searched only
/// if the curve reaches `wanted`; then O(events).
fn allocated_before(device: &DeviceRecording, tables: &DeviceTables, event: u32, wanted: u64) -> u64 {
    /// With more trials than this, they are not subtracted.
    const MOST: usize = 4096;
    let peak =
        |from, to| tables.curves.peak_in(device, &tables.lifetimes, Quantity::Allocated, from, to).map_or(0, |(bytes, _)| bytes);
    let (start, any) = (tables.curves.start(Quantity::Allocated), peak(0, event));
    if any < wanted {
        return start.max(any);
    }
    let trials = device.events.granted_trials();
    let before = trials.get(..trials.partition_point(|&trial| trial < event)).unwrap_or_default();
    if before.len() > MOST {
        return start.max(any);
    }
    // The block of a trial is freed two events later.
    let from = std::iter::once(0).chain(before.iter().map(|trial| trial.saturating_add(2)));
    let to = before.iter().copied().chain([event]);
    from.zip(to).map(|(from, to)| peak(from, to)).fold(start, u64::max)
}

/// Bytes that a request must get from the device in addition to reserved memory. Under a cap: the size of a segment, even if
/// expandable segments would map less. From the device itself: whole pages, with expandable segments.
fn taken_anew(device: &DeviceRecording, servers: &Servers, requested: u64, is_of_device: bool) -> u64 {
    let conf = &device.settings.conf;
    if conf.expandable_segments && is_of_device {
        return requested.checked_next_multiple_of(conf.page_size(servers.class)).unwrap_or(requested);
    }
    conf.segment_size(requested)
}
