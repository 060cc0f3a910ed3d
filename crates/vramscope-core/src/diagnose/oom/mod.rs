//! The autopsy of an out-of-memory event: what was asked, what was free and where, why that was not enough; and of a
//! recording that did not fail, how close it came.

mod closest;
mod full;
mod helped;
mod parts;
mod verdict;

use rustc_hash::FxHashMap;

pub use self::closest::{Closest, OneOfStreams, Room, RoomFrom, closest, closest_under, has_segments, knows_reserved};
pub use self::full::{what_to_make_smaller, with_what_to_make_smaller};
pub use self::helped::{
    AUTOMATIC_TRIALS_MOST_EVENTS, Advice, Helped, Support, advice, best_advice, can_be_served_again, what_would_have_helped,
};
pub use self::parts::{Fits, Part};
use self::verdict::{Facts, classify, sentence};
pub use self::verdict::{Test, Verdict};
use super::fragmentation::{
    Alone, Blocker, Holes, RoomKind, RoomPlan, Servers, WithMore, blockers, blockers_with_segments, cheapest_plan,
    cheapest_plan_most, enough_alone, holes,
};
use super::vendor::Words;
use crate::anatomy::Role;
use crate::inference::{CapFrom, CapRange, Caps};
use crate::model::{Action, BlockState, DeviceKind, DeviceRecording, EventTable, Sample, SizeClass, StackId};
use crate::tables::{DeviceTables, LifetimeId, Lifetimes, NO_EVENT, State};
use crate::units::{Bytes, count, counted};

/// Live memory of one call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveByStack {
    /// The stack.
    pub stack: StackId,
    /// Bytes requested.
    pub bytes: u64,
    /// Allocations.
    pub count: u64,
}

/// Everything about one failed request. Bytes throughout.
#[derive(Clone, Debug)]
pub struct Autopsy {
    /// The event.
    pub event: u32,
    /// Whether the recording tells of segments; without, what concerns them is 0 and means nothing.
    pub has_segments: bool,
    /// Host memory that the program pinned, not a device's.
    pub is_host: bool,
    /// The words of the device's vendor.
    pub words: &'static Words,
    /// The request was made for a private pool, as of a CUDA graph.
    pub is_private: bool,
    /// Of the whole device, where the file says it.
    pub capacity: Option<u64>,
    /// What was asked for, rounded to the block size as PyTorch records it.
    pub requested: u64,
    /// The segment that would have had to be taken for it.
    pub segment: u64,
    /// Free on the device, by the driver's count.
    pub device_free: u64,
    /// In segments.
    pub reserved: u64,
    /// In blocks the program holds.
    pub allocated: u64,
    /// Freed by the program, in blocks that another stream still uses.
    pub pending: u64,
    /// Of other processes on the device, where a sample near the failure has it.
    pub others: Option<u64>,
    /// Of this process outside PyTorch, likewise.
    pub outside: Option<u64>,
    /// Asked for by the program, live.
    pub live_requested: u64,
    /// The pool that serves the request: small or large.
    pub class: SizeClass,
    /// Which segments could have served it.
    pub servers: Servers,
    /// Their holes.
    pub holes: Holes,
    /// Holes of every pool.
    pub all_holes: Holes,
    /// What this process may reserve at most, as far as it is known: what-if, findings and the timeline say the same.
    pub limit: Option<CapRange>,
    /// Why.
    pub verdict: Verdict,
    /// Why, in one sentence with its numbers.
    pub sentence: String,
    /// How we know.
    pub tests: Vec<Test>,
    /// Live blocks that keep holes small, worst first.
    pub blockers: Vec<Blocker>,
    /// The blocks of which any one is enough, if it went.
    pub alone: Alone,
    /// What would have to return to the device for a new segment to fit; 0 where nothing has to.
    pub need: u64,
    /// What to free so that the request succeeds, with the fewest live bytes.
    pub room_plan: Option<RoomPlan>,
    /// A request that is too large in parts; empty for others.
    pub parts: Vec<Part>,
    /// Live memory by stack, largest first.
    pub top_live: Vec<LiveByStack>,
    /// Where the failed request came from.
    pub stack: StackId,
    /// Something was allocated after it: the program lived on, or its handler ran.
    pub survived: bool,
}

/// Free on the device at a failure, as [`examine`] takes it: [`EventTable::FREE_UNBOUNDED`] where that is not told but does not
/// matter, for more was asked than the whole device has. `None` where the failure cannot be examined.
#[must_use]
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

/// The autopsy of one `oom` event. `state` is the state at that event, `caps` what is known of the cap: [`Caps::of`] the device,
/// or [`Caps::exact`] by somebody who was there. O(blocks log blocks).
#[must_use]
pub fn examine(device: &DeviceRecording, tables: &DeviceTables, event: u32, state: &State, caps: &Caps) -> Option<Autopsy> {
    let device_free = free_at(device, event)?;
    let (servers, requested) = Servers::of_oom(device, event)?;
    let segment = device.settings.conf.segment_size(requested);
    let own = holes(state, Some(&servers));
    let all_holes = holes(state, None);
    let reserved = state.totals.reserved;
    let has_segments = has_segments(tables);
    // Where the device itself has no room, requests that failed at other times say nothing of a cap.
    let limit = caps.at(event).filter(|cap| cap.from != CapFrom::Refusals || device_free >= segment);
    let others = sample_near(device, event, |s| s.others);
    let outside = sample_near(device, event, |s| s.process).map(|p| p.saturating_sub(reserved));
    let room = limit.map(|cap| cap.least.saturating_sub(reserved));
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
    // A plan that frees nothing and gives nothing back is no plan.
    let is_some_plan = |plan: &RoomPlan| !plan.blocks.is_empty() || (plan.kind == RoomKind::Release && plan.room > 0);
    let mut room_plan = cheapest_plan(device, state, &servers, requested, need).filter(is_some_plan);
    if let Some(plan) = room_plan.as_mut().filter(|plan| plan.has_pages && is_of_device) {
        // Memory that stays mapped beside what goes may serve a part of the request: the device then needs to give less.
        plan.is_optimal &= plan.bytes == 0;
    }
    if let (Some(plan), Some(cap)) = (&mut room_plan, limit.filter(|cap| !cap.is_known() && verdict != Verdict::TooLarge)) {
        plan.least_cap = (plan.kind == RoomKind::Release).then_some(cap.least);
        // Told from the lowest cap on under which it is enough.
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
        requested,
        segment,
        device_free,
        reserved,
        allocated: state.totals.allocated,
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
    autopsy.sentence = sentence(&autopsy);
    autopsy.parts = parts::parts(&autopsy, &device.settings.conf);
    Some(autopsy)
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

/// Live requested bytes by stack, largest first.
#[must_use]
pub fn top_live(device: &DeviceRecording, tables: &DeviceTables, state: &State) -> Vec<LiveByStack> {
    let mut by_stack: FxHashMap<StackId, (u64, u64)> = FxHashMap::default();
    for block in state.blocks.iter().filter(|b| b.state != BlockState::Inactive) {
        let entry = by_stack.entry(tables.lifetimes.stack(device, block.lifetime)).or_default();
        entry.0 += block.requested;
        entry.1 += 1;
    }
    // What the source tells beyond its blocks is older than it.
    let known = state.blocks.iter().filter(|b| b.state != BlockState::Inactive).fold(0u64, |sum, b| sum.saturating_add(b.size));
    let before = device.source_totals.beyond(state.event, known);
    if before > 0 {
        let entry = by_stack.entry(StackId::NONE).or_default();
        *entry = (entry.0 + before, entry.1 + 1);
    }
    let mut top: Vec<LiveByStack> =
        by_stack.into_iter().map(|(stack, (bytes, count))| LiveByStack { stack, bytes, count }).collect();
    top.sort_by_key(|l| (std::cmp::Reverse(l.bytes), l.stack));
    top
}

/// How long a block had been there at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    /// Events since it was allocated; `None` when it was there before the recording began (at least as many as the recording has).
    pub events: Option<u32>,
    /// Microseconds since then; `None` without times. For a block from before the recording, since the first event.
    pub micros: Option<i64>,
}

/// The age of an allocation after an event. O(1).
#[must_use]
pub fn age(device: &DeviceRecording, lifetimes: &Lifetimes, id: LifetimeId, event: u32) -> Age {
    let born = lifetimes.born(id);
    let before = born == NO_EVENT;
    let times = &device.events.time_us;
    let time = |e: u32| times.get(e as usize).copied().filter(|_| device.events.has_time);
    let micros = time(event).zip(time(if before { 0 } else { born })).map(|(now, then)| now.saturating_sub(then));
    Age { events: (!before).then(|| event.saturating_sub(born)), micros }
}

impl std::fmt::Display for Age {
    /// `2.95 ms`, `1,204 events`; `over 3 s` for what was there before the recording.
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

impl Autopsy {
    /// Free on the device, as a figure to show: `None` where it stands for a device of unknown size.
    #[must_use]
    pub fn device_free_told(&self) -> Option<u64> {
        Some(self.device_free).filter(|&free| free < EventTable::FREE_UNBOUNDED)
    }

    /// With every byte of this process given back, free on the device; all the device has where what was free is unknown.
    #[must_use]
    pub fn most_free(&self) -> u64 {
        self.device_free_told().map(|free| free.saturating_add(self.reserved)).or(self.capacity).unwrap_or(self.reserved)
    }

    /// The cap that this failure rules out, and every larger one, for with it the request would have got a segment: the device had
    /// room for one. `None` where the figures rule none out. Bytes.
    #[must_use]
    pub fn cap_below(&self) -> Option<u64> {
        let had_room = self.device_free_told().is_some_and(|free| free >= self.segment);
        let rules_out = self.has_segments && !self.is_host && had_room && self.holes.largest < self.requested;
        rules_out.then_some(self.reserved.saturating_add(self.segment))
    }

    /// What room under the cap was less than, where the cap is only known as a range: the upper end was refused. Bytes.
    #[must_use]
    pub fn room_below(&self) -> u64 {
        let room = self.limit.map(|cap| cap.most.saturating_add(1).saturating_sub(self.reserved));
        room.map_or(self.segment, |room| room.min(self.segment))
    }

    /// What to free, in one sentence, or why freeing does not help.
    #[must_use]
    pub fn room_plan_sentence(&self, state: &State) -> String {
        if let Some(plan) = &self.room_plan {
            return plan.sentence(self.words);
        }
        if !self.has_segments {
            return "What to free is unknown: segments are not in this file.".to_owned();
        }
        if self.reserved == 0 {
            return "Nothing was reserved yet, so there is nothing to free.".to_owned();
        }
        if self.verdict == Verdict::TooLarge && self.capacity.is_some() {
            return "Freeing blocks does not help: the request is larger than the device.".to_owned();
        }
        let what = if state.segments.iter().any(|s| s.is_expandable) { "all segments and pages" } else { "all segments" };
        format!(
            "Freeing blocks does not help: no segment for this request is as large as {}, and returning {what} to the device is not enough.",
            Bytes(self.requested)
        )
    }
}

impl Autopsy {
    /// How many of the blocks to free hold what the program needs, with their roles from `role_of`; `None` where none does.
    #[must_use]
    pub fn room_plan_needs(&self, state: &State, role_of: impl Fn(LifetimeId) -> Role) -> Option<String> {
        let plan = self.room_plan.as_ref()?;
        let roles: Vec<Role> = plan.blocks.iter().map(|&i| role_of(state.blocks[i].lifetime)).collect();
        let count = |role: Role| roles.iter().filter(|&&r| r == role).count() as u64;
        let needed = [Role::Weights, Role::OptimizerState].map(|role| (role, count(role)));
        let named: Vec<&str> = needed.iter().filter(|(_, count)| *count > 0).map(|(role, _)| role.text()).collect();
        let (all, sum) = (roles.len() as u64, needed.iter().map(|(_, count)| count).sum::<u64>());
        match sum {
            0 => None,
            _ if sum < all => {
                Some(format!("{} of them hold {}, which the program needs.", crate::units::count(sum), named.join(" and ")))
            }
            1 => Some(format!("It holds {}, which the program needs.", named.join(" and "))),
            _ => Some(format!("They hold {}, which the program needs: make something else smaller.", named.join(" and "))),
        }
    }

    /// The plan that frees only one block, where another one frees fewer bytes; `None` where they are the same
    /// or no single block is enough.
    #[must_use]
    pub fn alone_sentence(&self) -> Option<String> {
        let more = self.room_plan.as_ref().is_none_or(|plan| plan.blocks.len() > 1);
        let least = self.alone.smallest.filter(|_| more)?;
        Some(match self.alone.count {
            1 => format!("Freeing one block of {} instead is also enough.", Bytes(least.size)),
            n => {
                let n = count(n as u64);
                format!("Freeing any one of {n} blocks instead is also enough; the smallest has {}.", Bytes(least.size))
            }
        })
    }
}

impl WithMore {
    /// The other end of the range, as a sentence that goes on after [`RoomPlan::sentence`]; with the space before it.
    fn sentence(&self) -> String {
        let what = match self.blocks {
            0 => "nothing has to be freed".to_owned(),
            1 => format!("one block ({}) is enough", Bytes(self.bytes)),
            n => format!("{} blocks ({}) are enough", count(n as u64), Bytes(self.bytes)),
        };
        format!(" If the cap is {} or more, {what}.", Bytes(self.cap).limit())
    }
}

impl RoomPlan {
    /// What comes about: `one hole`, `whole segments`, `pages`, `pages and whole segments`.
    #[must_use]
    pub fn by(&self) -> &'static str {
        match (self.kind, self.pages, self.whole) {
            (RoomKind::Hole, ..) => "one hole",
            (RoomKind::Release, 0, _) => "whole segments",
            (RoomKind::Release, _, 0) => "pages",
            (RoomKind::Release, ..) => "pages and whole segments",
        }
    }

    /// What to free, in one sentence.
    #[must_use]
    pub fn sentence(&self, words: &Words) -> String {
        if self.blocks.is_empty() && self.kind == RoomKind::Release {
            return format!(
                "Nothing has to be freed: {} of reserved memory is unused. torch.{}.empty_cache() before the request gives it back, and the request fits.",
                Bytes(self.room),
                words.module
            );
        }
        let with_more = self.with_more.map_or(String::new(), |more| more.sentence());
        // What the program has freed already it cannot free again.
        let pending = match self.pending {
            0 => String::new(),
            all if all == self.bytes => " All of it is freed already, but another stream still uses it.".to_owned(),
            bytes => format!(" {} of it is freed already, but another stream still uses it.", Bytes(bytes)),
        };
        let blocks = match self.blocks.len() {
            1 => "this block".to_owned(),
            n => format!("these {} blocks", count(n as u64)),
        };
        // The least it can be: under a higher one less may do.
        let cap = if self.least_cap.is_some() { ", whatever the cap is" } else { "" };
        format!("Freeing {blocks} ({}) would make room{cap}.{with_more}{pending}", Bytes(self.bytes))
    }

    /// The same where the blocks are not listed beside it.
    fn advice(&self, words: &Words) -> String {
        let sentence = self.sentence(words);
        match self.blocks.len() {
            0 => sentence,
            1 => sentence.replacen("Freeing this block", "Hold less at that instant: freeing one block", 1),
            _ => sentence.replacen("Freeing these ", "Hold less at that instant: freeing ", 1),
        }
    }

    /// How that makes room, and whether less would: what stands behind "Why?".
    #[must_use]
    pub fn why(&self) -> String {
        let room = Bytes(self.room);
        let what = match (self.kind, self.pages, self.whole) {
            (RoomKind::Hole, ..) => format!("It leaves one hole of {room}."),
            (RoomKind::Release, 0, 1) => format!("A segment of {room} can then go back to the device."),
            (RoomKind::Release, 0, n) => format!("{} segments ({room}) can then go back to the device.", count(n as u64)),
            (RoomKind::Release, _, 0) => {
                let pages = counted(self.pages as u64, "page", "pages");
                format!("{pages} of expandable segments ({room}) can then go back to the device.")
            }
            (RoomKind::Release, ..) => {
                let (pages, whole) = (counted(self.pages as u64, "page", "pages"), self.whole as u64);
                let whole = counted(whole, "whole segment", "whole segments");
                format!("{pages} and {whole} ({room}) can then go back to the device.")
            }
        };
        let proof = match self.is_optimal {
            true if self.with_more.is_some() => "No smaller set is enough under the lowest possible cap.",
            true => "No smaller set is enough.",
            false => "A smaller set may exist.",
        };
        format!("{what} {proof} {}", self.search())
    }

    /// How it was searched, in one sentence: what "no smaller set" rests on.
    #[must_use]
    pub fn search(&self) -> &'static str {
        match (self.is_optimal, self.has_pages) {
            (true, false) => "Compared: every run of neighbouring blocks, and every choice of whole segments to return.",
            (true, true) => {
                "Compared: every run of neighbouring blocks, and every choice of whole segments and of pages that no live block \
                 touches then."
            }
            (false, false) => {
                "Compared: every run of neighbouring blocks. There are too many segments to compare every choice: they were chosen \
                 by live bytes for each byte that returns."
            }
            (false, true) => {
                "Compared: every run of neighbouring blocks, and choices of whole segments and pages. A smaller set may exist: there \
                 are too many choices, or what stays mapped may serve a part of the request."
            }
        }
    }
}
