//! For a recording without a failure: how close it came at its peak, and how large a request would have failed there.

use super::live::{LiveByStack, top_live};
use crate::diagnose::fragmentation::{Blocker, Holes, Servers, blockers_with_segments, holes};
use crate::model::{BlockState, DeviceKind, DeviceRecording, PoolId, SizeClass, StreamId};
use crate::tables::{BlockAt, DeviceTables, NO_EVENT, Quantity, SegmentAt, State};
use crate::units::{Bytes, count, counted, told_apart};

/// The source of the figure for how much more could have been taken from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoomFrom {
    /// The cap of this process.
    Cap,
    /// The driver's count of used memory on the device, from the nearest sample.
    Sample,
    /// The device's total minus what PyTorch had reserved. Context, libraries and other processes are not in the recording, so
    /// the true room is smaller.
    DeviceTotal,
}

/// Memory that PyTorch could still have taken from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes; 0 if the cap or the device is exhausted.
    pub bytes: u64,
    /// The source of the figure.
    pub from: RoomFrom,
}

/// The peak of a recording, examined like a failure. All sizes are in bytes.
#[derive(Clone, Debug)]
pub struct Closest {
    /// True if the recording has segments; otherwise all figures about segments are 0 and meaningless.
    pub has_segments: bool,
    /// True for pinned host memory, false for a device's.
    pub is_host: bool,
    /// The event at which most blocks were held; [`NO_EVENT`]: before the first.
    pub event: u32,
    /// Bytes in PyTorch's segments at that event.
    pub reserved: u64,
    /// Bytes in blocks that cannot be reused: held, or freed while another stream uses them.
    pub active: u64,
    /// Bytes in blocks that the program holds.
    pub allocated: u64,
    /// Live bytes as requested, before rounding.
    pub live_requested: u64,
    /// The segments examined: the large pool of the stream that holds most.
    pub servers: Servers,
    /// Free blocks of the segments in [`servers`](Self::servers).
    pub holes: Holes,
    /// Holes of every pool and stream.
    pub all_holes: Holes,
    /// The stream examined, if other streams have segments too.
    pub stream: Option<OneOfStreams>,
    /// Bytes in segments without live blocks, which are released before a request fails.
    pub releasable: u64,
    /// Memory that could still be taken from the device; `None` if unknown.
    pub room: Option<Room>,
    /// The largest request that would certainly have been served without taking more than [`room`](Self::room) from the device.
    pub largest_served: u64,
    /// True if one byte more would have failed, that is, if the room is known exactly.
    pub is_exact: bool,
    /// The answer in one or two sentences.
    pub sentence: String,
    /// Live blocks that keep holes small, worst first.
    pub blockers: Vec<Blocker>,
    /// Live memory by stack, largest first.
    pub top_live: Vec<LiveByStack>,
}

/// The stream that holds most, and the free memory of the others: one stream's requests cannot use another stream's segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneOfStreams {
    /// Its name in sentences: `the default stream`.
    pub name: String,
    /// The raw stream handle; 0 is the default stream.
    pub handle: u64,
    /// Bytes of its blocks that are not reusable.
    pub held: u64,
    /// Holes of the other streams, of every pool.
    pub others: Holes,
    /// The name of the stream that has the largest of these holes.
    pub largest_of: String,
}

/// Examines the instant at which a device held most. `None` if it never held anything. O(blocks log blocks).
pub fn closest(device: &DeviceRecording, tables: &DeviceTables) -> Option<Closest> {
    closest_under(device, tables, None)
}

/// Like [`closest`], under a given cap, which overrides the recording's.
pub fn closest_under(device: &DeviceRecording, tables: &DeviceTables, cap: Option<u64>) -> Option<Closest> {
    let (peak, event) = tables.curves.peak(Quantity::Active);
    if peak == 0 {
        return None;
    }
    let state = tables.states.at(device, &tables.lifetimes, event);
    let (servers, held) = fullest(device, &state);
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
        all_holes: holes(&state, None),
        stream: one_of_streams(device, &state, &servers, held),
        releasable,
        room,
        largest_served,
        is_exact: room.is_some_and(|r| r.from != RoomFrom::DeviceTotal),
        sentence: String::new(),
        blockers: blockers_with_segments(device, &state, &servers),
        top_live: top_live(device, tables, &state),
    };
    found.sentence = sentence(&found, device.events.len() <= 1);
    Some(found)
}

/// True if a recording shows reserved memory; memory timelines show only allocations. O(1).
pub fn knows_reserved(tables: &DeviceTables) -> bool {
    let most = |q| tables.curves.peak(q).0;
    most(Quantity::Reserved) > 0 || most(Quantity::Active) == 0
}

/// True if a recording has the segments that make up its reserved bytes; a profiler trace may have only their sum. O(1).
pub fn has_segments(tables: &DeviceTables) -> bool {
    knows_reserved(tables) && tables.curves.has_all_segments()
}

fn is_default(device: &DeviceRecording, segment: &SegmentAt) -> bool {
    segment.pool == PoolId::UNKNOWN || device.pool_key(segment.pool).is_none_or(|key| key == (0, 0))
}

/// The large pool of the stream that holds most bytes, which serves large requests of the main program; and the stream's bytes.
fn fullest(device: &DeviceRecording, state: &State) -> (Servers, u64) {
    let mut by_stream: std::collections::BTreeMap<StreamId, u64> = std::collections::BTreeMap::new();
    for segment in state.segments.iter().filter(|s| is_default(device, s)) {
        let held: u64 = state.blocks_of(segment).iter().filter(|b| b.state != BlockState::Inactive).map(|b| b.size).sum();
        *by_stream.entry(segment.stream).or_default() += held;
    }
    let most = by_stream.into_iter().max_by_key(|&(stream, held)| (held, std::cmp::Reverse(stream)));
    let pool = device.pools.iter().position(|&key| key == (0, 0)).and_then(|p| u16::try_from(p).ok()).map(PoolId);
    (Servers { class: SizeClass::Large, stream: most.map(|(stream, _)| stream), pool }, most.map_or(0, |(_, held)| held))
}

/// The stream of `servers`, if other streams have segments too. O(blocks).
fn one_of_streams(device: &DeviceRecording, state: &State, servers: &Servers, held: u64) -> Option<OneOfStreams> {
    let stream = servers.stream?;
    let mut others = Holes::default();
    let (mut is_one, mut largest_of) = (false, stream);
    for segment in state.segments.iter().filter(|s| s.stream != stream) {
        is_one = true;
        for hole in state.blocks_of(segment).iter().filter(|b| b.state == BlockState::Inactive) {
            others.count += 1;
            others.bytes += hole.size;
            if hole.size > others.largest {
                (others.largest, others.largest_address) = (hole.size, hole.address);
                largest_of = segment.stream;
            }
        }
    }
    is_one.then(|| OneOfStreams {
        name: device.stream_name(stream),
        handle: device.streams.get(usize::from(stream.0)).copied().unwrap_or(0),
        held,
        others,
        largest_of: device.stream_name(largest_of),
    })
}

/// The room on the device at an instant, from the most restrictive figure that the recording has.
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

/// The largest request that would be served: by the largest hole; by a new segment after wholly free ones were released (which
/// PyTorch does before it fails); or by extending an expandable segment from its last hole.
fn largest_served(
    device: &DeviceRecording,
    state: &State,
    servers: &Servers,
    hole: u64,
    releasable: u64,
    room: Option<Room>,
) -> u64 {
    let conf = &device.settings.conf;
    let mut released = releasable;
    if conf.expandable_segments {
        // Every whole page inside a hole is unmapped as well.
        let pages = |s: &SegmentAt, b: &BlockAt| {
            let page = conf.page_size(s.class);
            let from = (b.address - s.address).next_multiple_of(page);
            ((b.address + b.size - s.address) / page * page).saturating_sub(from)
        };
        let free = |s: &SegmentAt| {
            state.blocks_of(s).iter().filter(|b| b.state == BlockState::Inactive).map(|b| pages(s, b)).sum::<u64>()
        };
        released += state.segments.iter().filter(|s| s.is_expandable && is_default(device, s)).map(free).sum::<u64>();
    }
    let left = released.saturating_add(room.map_or(0, |r| r.bytes));
    if conf.expandable_segments && room.is_none_or(|r| r.from != RoomFrom::Cap) {
        // Pages are mapped wherever a stretch without live blocks is long enough; all of its pages must fit.
        return hole.max(largest_stretch(state, servers, left, conf.page_size(SizeClass::Large)));
    }
    // PyTorch compares a cap with the segment size of the request, even if it maps pages instead.
    hole.max(conf.largest_with_segment(left))
}

/// The largest request that fits into the expandable segments of a pool, in a stretch without live blocks. At most `left` more
/// bytes may be mapped, in whole pages of `page` bytes. After the last mapped run there is address space for the whole device.
fn largest_stretch(state: &State, servers: &Servers, left: u64, page: u64) -> u64 {
    let pages = left / page;
    let fits = |start: u64, end: u64, origin: u64| {
        let length = end - start;
        let lead = ((start - origin).next_multiple_of(page) - (start - origin)).min(length);
        let inside = (length - lead) / page;
        if inside <= pages { length } else { lead + pages * page }
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
        None => largest.max(pages * page),
    }
}

fn sentence(c: &Closest, is_state_alone: bool) -> String {
    let most = match c.event {
        _ if is_state_alone => "Held when it was dumped".to_owned(),
        NO_EVENT => "Most was held before the first event".to_owned(),
        event => format!("Most was held at event {}", count(u64::from(event))),
    };
    if !c.has_segments && c.reserved > 0 {
        let [active, reserved] = told_apart([c.active, c.reserved]);
        return format!(
            "{most}: {active} of {reserved} reserved. Not all segments are in this file, so it does not tell how large a request would have failed."
        );
    }
    if !c.has_segments {
        return format!(
            "{most}: {}. Segments are not in this file, so it does not tell what was reserved, what was free inside it, or how large a request would have failed.",
            Bytes(c.active)
        );
    }
    let [active, reserved] = told_apart([c.active, c.reserved]);
    let start = match &c.stream {
        Some(s) => format!(
            "{most}: {active} ({} of it on {}) of {reserved} reserved.",
            match Bytes(s.held).to_string() {
                _ if s.held == c.active => "all".to_owned(),
                held if held == Bytes(c.active).to_string() => "nearly all".to_owned(),
                held => held,
            },
            s.name,
        ),
        None => format!("{most}: {active} of {reserved} reserved."),
    };
    // Pinned memory has no separate pools for small and large requests.
    let of = c.stream.as_ref().map_or(String::new(), |s| format!(" of {}", s.name));
    let there = if c.stream.is_some() { " there" } else { "" };
    let on = c.stream.as_ref().map_or(String::new(), |s| format!(" on {}", s.name));
    let pool = if c.is_host { "pinned memory".to_owned() } else { format!("the {} pool{of}", c.servers.class.name()) };
    let (place, whole) = if c.is_host { ("host", "The host") } else { ("device", "The device") };
    let served = Bytes(c.largest_served);
    let answer = match c.room {
        Some(Room { bytes, from: RoomFrom::Cap }) => {
            format!("{start} {} were left under the cap, so a request of more than {served}{on} would have failed.", Bytes(bytes))
        }
        Some(Room { bytes, from: RoomFrom::Sample }) => {
            format!(
                "{start} {} were free on the {place}, so a request of more than {served}{on} would have failed.",
                Bytes(bytes)
            )
        }
        Some(Room { bytes, from: RoomFrom::DeviceTotal }) => format!(
            "{start} {whole} has {} more; a request of more than {served}{on} would have failed, and a smaller one too if other processes or libraries held memory, which the recording does not tell.",
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
            "{start} There was no hole in {pool}: every further request{there} needed more from the device, whose size and cap are not recorded."
        ),
    };
    let Some(s) = c.stream.as_ref().filter(|s| s.others.count > 0) else { return answer };
    let holes = match s.others.count {
        1 => format!("one hole of {}", s.largest_of),
        n => format!("{} holes of other streams, the largest {} on {}", count(n), Bytes(s.others.largest), s.largest_of),
    };
    format!("{answer} {} more were free in {holes}, where requests of {} are not served.", Bytes(s.others.bytes), s.name)
}
