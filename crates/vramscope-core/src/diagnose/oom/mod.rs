//! The autopsy of an out-of-memory event: what was asked, what was free and where, why that was not enough; and of a
//! recording that did not fail, how close it came.

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

/// Live blocks as large as the request, from which on it is one of many: a loop or a row of layers makes the next one too.
const MANY_ALIKE: usize = 8;

/// Free on the device at a failure, as [`examine`] takes it: [`EventTable::FREE_UNBOUNDED`] where that is not told but does not
/// matter, for more was asked than the whole device has. `None` where the failure cannot be examined.
pub fn free_at(device: &DeviceRecording, event: u32) -> Option<u64> {
    let asked = device.events.size.get(event as usize).copied()?;
    let is_more_than_all = device.events.action[event as usize] == Action::Oom && device.capacity.is_some_and(|all| asked > all);
    device.events.device_free(event).or(is_more_than_all.then_some(EventTable::FREE_UNBOUNDED))
}

/// A figure of the sample that has it and was taken nearest to an event, at most two seconds from it; of the last sample where
/// events have no times. `None` where no sample tells: what other processes held at another time says nothing of that instant.
/// O(samples).
fn sample_near(device: &DeviceRecording, event: u32, figure: impl Fn(&Sample) -> Option<u64>) -> Option<u64> {
    const NEAR_US: u64 = 2_000_000;
    let mut told = device.samples.iter().filter_map(|s| figure(s).map(|bytes| (s.time_us, bytes)));
    let Some(now) = device.events.time_us.get(event as usize).copied().filter(|_| device.events.has_time) else {
        return told.next_back().map(|(_, bytes)| bytes);
    };
    let nearest = told.min_by_key(|(time, _)| time.abs_diff(now))?;
    (nearest.0.abs_diff(now) < NEAR_US).then_some(nearest.1)
}

/// The autopsy of one `oom` event. `state` is the state at that event; `caps` is what is known of the cap: [`Caps::of`] the
/// device, or [`Caps::exact`] if the caller knows it. O(blocks log blocks).
pub fn examine(device: &DeviceRecording, tables: &DeviceTables, event: u32, state: &State, caps: &Caps) -> Option<Autopsy> {
    let device_free = free_at(device, event)?;
    let (servers, requested) = Servers::of_oom(device, event)?;
    let segment = device.settings.conf.segment_size(requested);
    let own = holes(state, Some(&servers));
    let all_holes = holes(state, None);
    let reserved = state.totals.reserved;
    let has_segments = has_segments(tables);
    // Where the device itself has no room, requests that failed at other times say nothing of a cap.
    let limit = caps.at(event).filter(|cap| cap.from != CapFrom::Refusals || EventTable::has_room(device_free, segment));
    let others = sample_near(device, event, |s| s.others);
    let outside = sample_near(device, event, |s| s.process).map(|p| p.saturating_sub(reserved));
    let room = limit.map(|cap| cap.least.saturating_sub(reserved));
    let most = reserved.saturating_add(device_free);
    let is_nearly_full = autopsy::is_nearly_full(state.totals.allocated, limit.map_or(most, |cap| cap.most.min(most)));
    let alike = state.blocks.iter().filter(|b| b.state == BlockState::Active && b.requested == requested).count();
    // All that is free, were it in one piece, would serve this request and not the next one.
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
    // Nothing that goes makes room for what the device has not got.
    let is_of_device = limit.is_none_or(|cap| cap.from == CapFrom::Device);
    let new = taken_anew(device, &servers, requested, is_of_device);
    let need = if verdict == Verdict::TooLarge { segment } else { new.saturating_sub(room.unwrap_or(device_free)) };
    // Where what goes back to the device is of use, so are the segments of other streams and pools.
    let found = if need > 0 && verdict != Verdict::TooLarge {
        blockers_with_segments(device, state, &servers)
    } else {
        blockers(state, Some(&servers))
    };
    let alone = enough_alone(device, state, &servers, requested, need);
    // A plan that frees nothing and gives nothing back is not shown.
    let is_some_plan = |plan: &RoomPlan| !plan.blocks.is_empty() || (plan.kind == RoomKind::Release && plan.room > 0);
    let mut room_plan = cheapest_plan(device, state, &servers, requested, need).filter(is_some_plan);
    if let Some(plan) = room_plan.as_mut().filter(|plan| plan.has_pages && is_of_device) {
        // Memory that stays mapped beside what goes may serve a part of the request: the device then needs to give less.
        plan.is_optimal &= plan.bytes == 0;
    }
    if let (Some(plan), Some(cap)) = (&mut room_plan, limit.filter(|cap| !cap.is_known() && verdict != Verdict::TooLarge)) {
        plan.least_cap = (plan.kind == RoomKind::Release).then_some(cap.least);
        // Given for the lowest cap under which it is enough.
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

/// The most that was allocated before an event, but for trials of cuDNN, which the program does not need. `wanted` is what it is compared with:
/// trials are looked for only where the curve reaches that. O(events) then.
fn allocated_before(device: &DeviceRecording, tables: &DeviceTables, event: u32, wanted: u64) -> u64 {
    /// With more of them the curve as it is must do.
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
    // The block of a trial is gone two events later.
    let from = std::iter::once(0).chain(before.iter().map(|trial| trial.saturating_add(2)));
    let to = before.iter().copied().chain([event]);
    from.zip(to).map(|(from, to)| peak(from, to)).fold(start, u64::max)
}

/// What a request has to have from the device beyond what is reserved: under a cap a segment's size, also where expandable
/// segments would map less; of the device itself whole pages, with expandable segments. Bytes.
fn taken_anew(device: &DeviceRecording, servers: &Servers, requested: u64, is_of_device: bool) -> u64 {
    let conf = &device.settings.conf;
    if conf.expandable_segments && is_of_device {
        return requested.checked_next_multiple_of(conf.page_size(servers.class)).unwrap_or(requested);
    }
    conf.segment_size(requested)
}
