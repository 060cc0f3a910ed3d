//! A recording in which nothing failed: how close it came at its peak, and how large a request would have failed there.

use super::{LiveByStack, top_live};
use crate::analysis::fragmentation::{Blocker, Holes, Servers, blockers, holes};
use crate::analysis::{BlockAt, DeviceTables, NO_EVENT, Quantity, SegmentAt, State};
use crate::model::{BlockState, DeviceKind, DeviceRecording, PoolId, SizeClass, StreamId};
use crate::units::{Bytes, MEBIBYTE, count, counted};

/// Pages of an expandable segment's large pool.
const PAGE: u64 = 20 * MEBIBYTE;
/// Pages of the small pool's.
const SMALL_PAGE: u64 = 2 * MEBIBYTE;
/// Granularity of segments of their own size, and the least of them.
const SEGMENT_STEP: u64 = 2 * MEBIBYTE;
const OWN_SEGMENT: u64 = 10 * MEBIBYTE;

/// What tells how much more could have been taken from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoomFrom {
    /// The cap of this process.
    Cap,
    /// The driver's count of what was used on the device, sampled nearest to that instant.
    Sample,
    /// The device's total less what PyTorch had reserved: context, libraries and other processes are not in the recording, so
    /// the true room is smaller.
    DeviceTotal,
}

/// Memory that PyTorch could still have taken from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes.
    pub bytes: u64,
    /// Where the figure comes from.
    pub from: RoomFrom,
}

/// The peak of a recording, looked at like a failure. Bytes throughout.
#[derive(Clone, Debug)]
pub struct Closest {
    /// Whether the recording tells of segments; without, what concerns them is 0 and means nothing.
    pub has_segments: bool,
    /// Host memory that the program pinned, not a device's.
    pub is_host: bool,
    /// The event at which most blocks were held; [`NO_EVENT`]: before the first.
    pub event: u32,
    /// In segments.
    pub reserved: u64,
    /// In blocks that are not reusable.
    pub active: u64,
    /// In blocks the program holds.
    pub allocated: u64,
    /// Asked for by the program, live.
    pub live_requested: u64,
    /// The segments looked at: the large pool of the stream that holds most.
    pub servers: Servers,
    /// Their holes.
    pub holes: Holes,
    /// Segments without a live block: given back before a request fails.
    pub releasable: u64,
    /// What could still be taken from the device, when the recording tells.
    pub room: Option<Room>,
    /// The largest request that would surely have been served, without asking the device for more than [`room`](Self::room).
    pub largest_served: u64,
    /// True when one byte more would have failed: the room is known, not only bounded.
    pub is_exact: bool,
    /// The answer in one or two sentences.
    pub sentence: String,
    /// Live blocks that keep holes small, worst first.
    pub blockers: Vec<Blocker>,
    /// Live memory by stack, largest first.
    pub top_live: Vec<LiveByStack>,
}

/// The instant at which a device held most, examined. `None` when it never held anything. O(blocks log blocks).
#[must_use]
pub fn closest(device: &DeviceRecording, tables: &DeviceTables) -> Option<Closest> {
    closest_under(device, tables, None)
}

/// The same under a cap that somebody names, which goes before what the recording tells.
#[must_use]
pub fn closest_under(device: &DeviceRecording, tables: &DeviceTables, cap: Option<u64>) -> Option<Closest> {
    let (peak, event) = tables.curves.peak(Quantity::Active);
    if peak == 0 {
        return None;
    }
    let state = tables.states.at(device, &tables.lifetimes, event);
    let servers = fullest(device, &state);
    let own = holes(&state, Some(&servers));
    let is_empty = |s: &SegmentAt| state.blocks_of(s).iter().all(|b| b.state == BlockState::Inactive);
    let releasable: u64 =
        state.segments.iter().filter(|s| is_default(device, s) && !s.is_expandable && is_empty(s)).map(|s| s.size).sum();
    let room = room(device, cap, event, state.totals.reserved);
    let largest_served = largest_served(device, &state, &servers, own.largest, releasable, room);
    let mut found = Closest {
        has_segments: has_segments(tables),
        is_host: matches!(device.id.kind, DeviceKind::Host | DeviceKind::Cpu),
        event,
        reserved: state.totals.reserved,
        active: state.totals.active,
        allocated: state.totals.allocated,
        live_requested: state.totals.requested,
        servers,
        holes: own,
        releasable,
        room,
        largest_served,
        is_exact: room.is_some_and(|r| r.from != RoomFrom::DeviceTotal),
        sentence: String::new(),
        blockers: blockers(&state, Some(&servers)),
        top_live: top_live(device, tables, &state),
    };
    found.sentence = sentence(&found);
    Some(found)
}

/// True when a recording tells of segments; memory timelines tell of allocations alone. O(1).
#[must_use]
pub fn has_segments(tables: &DeviceTables) -> bool {
    let most = |q| tables.curves.peak(q).0;
    most(Quantity::Reserved) > 0 || most(Quantity::Active) == 0
}

fn is_default(device: &DeviceRecording, segment: &SegmentAt) -> bool {
    segment.pool == PoolId::UNKNOWN || device.pool_key(segment.pool).is_none_or(|key| key == (0, 0))
}

/// The large pool of the stream that holds most bytes: what a large request of the main program would be served from.
fn fullest(device: &DeviceRecording, state: &State) -> Servers {
    let mut by_stream: std::collections::BTreeMap<StreamId, u64> = std::collections::BTreeMap::new();
    for segment in state.segments.iter().filter(|s| is_default(device, s)) {
        let held: u64 = state.blocks_of(segment).iter().filter(|b| b.state != BlockState::Inactive).map(|b| b.size).sum();
        *by_stream.entry(segment.stream).or_default() += held;
    }
    let stream = by_stream.into_iter().max_by_key(|&(stream, held)| (held, std::cmp::Reverse(stream))).map(|(stream, _)| stream);
    let pool = device.pools.iter().position(|&key| key == (0, 0)).and_then(|p| u16::try_from(p).ok()).map(PoolId);
    Servers { class: SizeClass::Large, stream, pool }
}

/// What the recording tells about room on the device at an instant, the most binding first.
fn room(device: &DeviceRecording, cap: Option<u64>, event: u32, reserved: u64) -> Option<Room> {
    let conf = &device.settings.conf;
    let fraction = device.capacity.filter(|_| conf.per_process_memory_fraction < 1.0);
    let limit = cap.or(device.limit).or_else(|| fraction.map(|total| (conf.per_process_memory_fraction * total as f64) as u64));
    if let Some(limit) = limit {
        return Some(Room { bytes: limit.saturating_sub(reserved), from: RoomFrom::Cap });
    }
    let total = device.capacity?;
    let now = device.events.time_us.get(event as usize).copied().filter(|_| device.events.has_time);
    let used = now.and_then(|now| {
        let sampled = device.samples.iter().filter(|s| s.used.is_some());
        sampled.min_by_key(|s| s.time_us.abs_diff(now)).filter(|s| s.time_us.abs_diff(now) < 2_000_000)
    });
    Some(match used {
        Some(s) => Room {
            bytes: total.saturating_sub(s.used.unwrap_or(0)).saturating_sub(s.driver.unwrap_or(0)),
            from: RoomFrom::Sample,
        },
        None => Room { bytes: total.saturating_sub(reserved), from: RoomFrom::DeviceTotal },
    })
}

/// The largest request that is served: by the largest hole, or by a new segment once the wholly free ones have gone back
/// (PyTorch does that before it gives up), or by growing an expandable segment from its last hole on.
fn largest_served(
    device: &DeviceRecording,
    state: &State,
    servers: &Servers,
    hole: u64,
    releasable: u64,
    room: Option<Room>,
) -> u64 {
    let mut released = releasable;
    if device.settings.conf.expandable_segments {
        // Every whole page inside a hole is unmapped as well.
        let pages = |s: &SegmentAt, b: &BlockAt| {
            let page = if s.class == SizeClass::Large { PAGE } else { SMALL_PAGE };
            let from = (b.address - s.address).next_multiple_of(page);
            ((b.address + b.size - s.address) / page * page).saturating_sub(from)
        };
        let free = |s: &SegmentAt| {
            state.blocks_of(s).iter().filter(|b| b.state == BlockState::Inactive).map(|b| pages(s, b)).sum::<u64>()
        };
        released += state.segments.iter().filter(|s| s.is_expandable && is_default(device, s)).map(free).sum::<u64>();
    }
    let left = released.saturating_add(room.map_or(0, |r| r.bytes));
    if device.settings.conf.expandable_segments && room.is_none_or(|r| r.from != RoomFrom::Cap) {
        // Pages are mapped wherever a stretch between live blocks is long enough, and each must be there.
        return hole.max(largest_stretch(state, servers, left / PAGE));
    }
    // A cap is held against the size of a segment of the request's own, also where pages are mapped instead.
    let fresh = left / SEGMENT_STEP * SEGMENT_STEP;
    hole.max(if fresh >= OWN_SEGMENT { fresh } else { 0 })
}

/// The largest request that a stretch without live blocks can take in the expandable segments of a pool, when `pages` more
/// pages may be mapped. Behind the last run there is address space for the whole device.
fn largest_stretch(state: &State, servers: &Servers, pages: u64) -> u64 {
    let fits = |start: u64, end: u64, origin: u64| {
        let length = end - start;
        let lead = ((start - origin).next_multiple_of(PAGE) - (start - origin)).min(length);
        let inside = (length - lead) / PAGE;
        if inside <= pages { length } else { lead + pages * PAGE }
    };
    let mut largest = 0;
    let mut open: Option<(u64, u64)> = None;
    for segment in state.segments.iter().filter(|s| s.is_expandable && servers.take(s)) {
        for block in state.blocks_of(segment) {
            if block.state == BlockState::Inactive {
                open = open.or(Some((block.address, segment.address)));
            } else {
                if let Some((start, origin)) = open.take() {
                    largest = largest.max(fits(start, block.address, origin));
                }
                if block.address + block.size == segment.address + segment.size {
                    open = Some((block.address + block.size, segment.address));
                }
            }
        }
    }
    match open {
        Some((start, origin)) => largest.max(fits(start, u64::MAX >> 1, origin)),
        None => largest.max(pages * PAGE),
    }
}

fn sentence(c: &Closest) -> String {
    let when =
        if c.event == NO_EVENT { "before the first event".to_owned() } else { format!("at event {}", count(u64::from(c.event))) };
    if !c.has_segments {
        return format!(
            "Most was held {when}: {}. Segments are not in this file, so it does not tell what was reserved, what was free inside it, or how large a request would have failed.",
            Bytes(c.active)
        );
    }
    let start = format!("Most was held {when}: {} of {} reserved.", Bytes(c.active), Bytes(c.reserved));
    // Pinned memory has no pools of small and large requests.
    let pool = if c.is_host { "pinned memory".to_owned() } else { format!("the {} pool", c.servers.class.name()) };
    let (place, whole) = if c.is_host { ("host", "The host") } else { ("device", "The device") };
    let served = Bytes(c.largest_served);
    match c.room {
        Some(Room { bytes, from: RoomFrom::Cap }) => {
            format!("{start} {} were left under the cap, so a request of more than {served} would have failed.", Bytes(bytes))
        }
        Some(Room { bytes, from: RoomFrom::Sample }) => {
            format!("{start} {} were free on the {place}, so a request of more than {served} would have failed.", Bytes(bytes))
        }
        Some(Room { bytes, from: RoomFrom::DeviceTotal }) => format!(
            "{start} {whole} has {} more; a request of more than {served} would have failed, and a smaller one too if other processes or libraries held memory, which the recording does not tell.",
            Bytes(bytes)
        ),
        None if c.largest_served > 0 => {
            let how = match (c.largest_served > c.holes.largest, c.holes.count) {
                (true, _) => format!("fitted once wholly free segments, {} in all, were given back", Bytes(c.releasable)),
                (false, 1) => format!("fitted into the one hole of {pool}"),
                (false, n) => format!("fitted into the largest of {} of {pool}", counted(n, "hole", "holes")),
            };
            let bound = if c.is_host {
                "how much memory the host has, which is not recorded"
            } else {
                "the cap or the size of the device, and neither is recorded"
            };
            format!("{start} A request of up to {served} {how}; whether a larger one would have failed depends on {bound}.")
        }
        None if c.is_host => format!(
            "{start} There was no hole in {pool}: every further request pinned more of the host's memory, whose size is not recorded."
        ),
        None => format!(
            "{start} There was no hole in {pool}: every further request needed more from the device, whose size and cap are not recorded."
        ),
    }
}
