//! Holes, what keeps them from growing, and the cheapest way to make room for a request.

use crate::model::{Action, AllocConf, BlockState, DeviceRecording, PoolId, SizeClass, StreamId};
use crate::units::MEBIBYTE;

use super::{BlockAt, SegmentAt, State};

/// Which segments can serve a request: the allocator never mixes pools, size classes or streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Servers {
    /// Small or large requests.
    pub class: SizeClass,
    /// The stream; `None` takes all.
    pub stream: Option<StreamId>,
    /// The pool; `None` takes all.
    pub pool: Option<PoolId>,
}

impl Servers {
    /// Which segments could have served the request that failed at an out-of-memory event, and its bytes; `None` for other
    /// events.
    #[must_use]
    pub fn of_oom(device: &DeviceRecording, event: u32) -> Option<(Self, u64)> {
        let i = event as usize;
        (device.events.action.get(i) == Some(&Action::Oom)).then_some(())?;
        let requested = device.events.size[i];
        // Before PyTorch 2.12 the event does not tell its pool; a request outside a capture goes to the default one.
        let pool = match device.events.pool[i] {
            PoolId::UNKNOWN => device.pools.iter().position(|&p| p == (0, 0)).and_then(|p| u16::try_from(p).ok()).map(PoolId),
            known => Some(known),
        };
        Some((Servers { class: AllocConf::size_class(requested), stream: Some(device.events.stream[i]), pool }, requested))
    }

    /// True when the segment can serve the request.
    #[must_use]
    pub fn take(&self, segment: &SegmentAt) -> bool {
        segment.class == self.class
            && self.stream.is_none_or(|s| s == segment.stream)
            // A segment that was gone by the end may not tell its pool.
            && self.pool.is_none_or(|p| p == segment.pool || segment.pool == PoolId::UNKNOWN)
    }
}

/// Free memory inside reserved memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holes {
    /// Blocks in state inactive.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The largest of them, in bytes.
    pub largest: u64,
    /// Where the largest begins; 0 without holes.
    pub largest_address: u64,
}

impl Holes {
    /// Share of the free bytes that the largest hole can not give to one request: `1 - largest / bytes`, 0 without holes.
    #[must_use]
    pub fn fragmentation(&self) -> f64 {
        if self.bytes == 0 { 0.0 } else { 1.0 - self.largest as f64 / self.bytes as f64 }
    }
}

/// The holes of the segments that can serve a request, or of all. O(blocks).
#[must_use]
pub fn holes(state: &State, servers: Option<&Servers>) -> Holes {
    let mut found = Holes::default();
    for segment in state.segments.iter().filter(|s| servers.is_none_or(|v| v.take(s))) {
        for block in state.blocks_of(segment).iter().filter(|b| b.state == BlockState::Inactive) {
            found.count += 1;
            found.bytes += block.size;
            if block.size > found.largest {
                found.largest = block.size;
                found.largest_address = block.address;
            }
        }
    }
    found
}

/// The state of the segments that serve one kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolHoles {
    /// Their pool.
    pub pool: PoolId,
    /// Their stream.
    pub stream: StreamId,
    /// Small or large requests.
    pub class: SizeClass,
    /// Number of segments.
    pub segments: u32,
    /// Bytes of the segments.
    pub reserved: u64,
    /// Number of blocks held, pending frees among them.
    pub held: u32,
    /// Bytes of those blocks.
    pub held_bytes: u64,
    /// The free memory between them.
    pub holes: Holes,
}

/// Holes by pool, stream and size class, the most free bytes first: memory free in one can not serve another. O(blocks).
#[must_use]
pub fn holes_by_pool(state: &State) -> Vec<PoolHoles> {
    let mut pools: Vec<PoolHoles> = Vec::new();
    for segment in &state.segments {
        let SegmentAt { pool, stream, class, size, .. } = *segment;
        let at = pools.iter().position(|p| (p.pool, p.stream, p.class) == (pool, stream, class)).unwrap_or_else(|| {
            let (segments, reserved, held, held_bytes, holes) = (0, 0, 0, 0, Holes::default());
            pools.push(PoolHoles { pool, stream, class, segments, reserved, held, held_bytes, holes });
            pools.len() - 1
        });
        let sums = &mut pools[at];
        sums.segments += 1;
        sums.reserved += size;
        for block in state.blocks_of(segment) {
            if block.state == BlockState::Inactive {
                sums.holes.count += 1;
                sums.holes.bytes += block.size;
                if block.size > sums.holes.largest {
                    (sums.holes.largest, sums.holes.largest_address) = (block.size, block.address);
                }
            } else {
                sums.held += 1;
                sums.held_bytes += block.size;
            }
        }
    }
    pools.sort_by_key(|p| std::cmp::Reverse(p.holes.bytes));
    pools
}

/// A live block that keeps a hole from growing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// Index into [`State::blocks`].
    pub block: usize,
    /// Index into [`State::segments`].
    pub segment: usize,
    /// Bytes of the hole before it; 0 when a live block or the segment's start is there.
    pub before: u64,
    /// Bytes of the hole after it.
    pub after: u64,
    /// Its own bytes.
    pub size: u64,
    /// True when it is all that is live in its segment: without it the whole segment could go back to the device.
    pub is_last_in_segment: bool,
}

impl Blocker {
    /// Bytes of free memory beside it.
    #[must_use]
    pub fn strands(&self) -> u64 {
        self.before + self.after
    }

    /// The one hole there would be without it.
    #[must_use]
    pub fn hole_if_freed(&self) -> u64 {
        self.before + self.size + self.after
    }
}

/// Live blocks that touch a hole, those that strand most bytes first. O(blocks log blocks).
#[must_use]
pub fn blockers(state: &State, servers: Option<&Servers>) -> Vec<Blocker> {
    let mut found = Vec::new();
    for (at, segment) in state.segments.iter().enumerate().filter(|(_, s)| servers.is_none_or(|v| v.take(s))) {
        let blocks = state.blocks_of(segment);
        let live = blocks.iter().filter(|b| b.state != BlockState::Inactive).count();
        let hole =
            |i: Option<usize>| i.and_then(|i| blocks.get(i)).filter(|b| b.state == BlockState::Inactive).map_or(0, |b| b.size);
        for (i, block) in blocks.iter().enumerate().filter(|(_, b)| b.state != BlockState::Inactive) {
            let blocker = Blocker {
                block: segment.blocks.start as usize + i,
                segment: at,
                before: hole(i.checked_sub(1)),
                after: hole(Some(i + 1)),
                size: block.size,
                is_last_in_segment: live == 1,
            };
            if blocker.strands() > 0 {
                found.push(blocker);
            }
        }
    }
    found.sort_by_key(|b| (std::cmp::Reverse(b.strands()), b.block));
    found
}

/// Single live blocks whose going lets a request succeed, each by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alone {
    /// How many there are.
    pub count: usize,
    /// The one with the fewest bytes.
    pub smallest: Option<Single>,
}

impl std::fmt::Display for Alone {
    /// `any one of 12`, `one block`, `no block`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.count {
            0 => f.pad("no block"),
            1 => f.pad("one block"),
            n => f.pad(&format!("any one of {}", crate::units::count(n as u64))),
        }
    }
}

/// One live block that is enough alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Single {
    /// Index into [`State::blocks`].
    pub block: usize,
    /// Its bytes.
    pub size: u64,
    /// How room comes about without it.
    pub way: Way,
}

/// Every live block tried by itself: does its going make a hole for `request`, or empty a segment so that `need` bytes return to
/// the device? `need` is 0 when none has to. O(blocks).
#[must_use]
pub fn enough_alone(device: &DeviceRecording, state: &State, servers: &Servers, request: u64, need: u64) -> Alone {
    let mut found = Alone::default();
    let is_live = |b: &BlockAt| b.state != BlockState::Inactive;
    let live = |s: &SegmentAt| state.blocks_of(s).iter().filter(|b| is_live(b)).count();
    let releases = |s: &SegmentAt| !s.is_expandable && can_go(device, s);
    // At a failure the empty segments have gone back already; elsewhere they count.
    let spare: u64 = state.segments.iter().filter(|s| releases(s) && live(s) == 0).map(|s| s.size).sum();
    for segment in &state.segments {
        let blocks = state.blocks_of(segment);
        let serves = servers.take(segment);
        let goes = need > 0 && releases(segment) && segment.size + spare >= need && live(segment) == 1;
        if !serves && !goes {
            continue;
        }
        let hole = |i: Option<usize>| i.and_then(|i| blocks.get(i)).filter(|b| !is_live(b)).map_or(0, |b| b.size);
        for (i, block) in blocks.iter().enumerate().filter(|(_, b)| is_live(b)) {
            let room = hole(i.checked_sub(1)) + block.size + hole(Some(i + 1));
            let way = if serves && room >= request {
                Way::Hole
            } else if goes {
                Way::Release
            } else {
                continue;
            };
            found.count += 1;
            if found.smallest.is_none_or(|s| block.size < s.size) {
                found.smallest = Some(Single { block: segment.blocks.start as usize + i, size: block.size, way });
            }
        }
    }
    found
}

/// Segments of private pools stay with their graphs; the rest is released before a request fails.
fn can_go(device: &DeviceRecording, segment: &SegmentAt) -> bool {
    segment.pool == PoolId::UNKNOWN || device.pool_key(segment.pool).is_none_or(|key| key == (0, 0))
}

/// How room for a request would come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// One hole large enough, in one segment.
    Hole,
    /// Whole segments go back to the device, and a new one is taken.
    Release,
}

/// The fewest live bytes whose going would let a request succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WayOut {
    /// By which way.
    pub way: Way,
    /// Indices into [`State::segments`] of the segments concerned.
    pub segments: Vec<usize>,
    /// Indices into [`State::blocks`] of the live blocks that would have to go.
    pub blocks: Vec<usize>,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of the hole, or of the segments released.
    pub room: u64,
    /// True when no set of fewer live bytes does it: the hole's window is searched in full, the choice of segments is solved
    /// exactly. False when the instance was too large and segments were chosen by live share, and where expandable segments
    /// could give single pages back.
    pub is_optimal: bool,
    /// The cap it was computed for, when that is only the least it can be: with a higher one less might do.
    pub least_cap: Option<u64>,
}

/// The cheapest hole: for every run of neighbouring blocks that is large enough, the live bytes in it. Two pointers over each
/// segment, so O(blocks), and optimal.
#[must_use]
pub fn cheapest_hole(state: &State, servers: &Servers, request: u64) -> Option<WayOut> {
    let mut best: Option<(u64, usize, usize, std::ops::Range<usize>)> = None;
    for (at, segment) in state.segments.iter().enumerate().filter(|(_, s)| servers.take(s) && s.size >= request) {
        let blocks = state.blocks_of(segment);
        let live = |b: &BlockAt| if b.state == BlockState::Inactive { 0 } else { b.size };
        let (mut from, mut size, mut cost, mut pieces) = (0, 0u64, 0u64, 0usize);
        for to in 0..blocks.len() {
            size += blocks[to].size;
            cost += live(&blocks[to]);
            pieces += usize::from(live(&blocks[to]) > 0);
            while size - blocks[from].size >= request {
                size -= blocks[from].size;
                cost -= live(&blocks[from]);
                pieces -= usize::from(live(&blocks[from]) > 0);
                from += 1;
            }
            if size >= request && best.as_ref().is_none_or(|b| (cost, pieces) < (b.0, b.1)) {
                best = Some((cost, pieces, at, from..to + 1));
            }
        }
    }
    let (bytes, _, at, window) = best?;
    let segment = &state.segments[at];
    let blocks = state.blocks_of(segment);
    // Free blocks beside the window join the hole.
    let mut room: u64 = blocks[window.clone()].iter().map(|b| b.size).sum();
    room += blocks[..window.start].iter().rev().take_while(|b| b.state == BlockState::Inactive).map(|b| b.size).sum::<u64>();
    room += blocks[window.end..].iter().take_while(|b| b.state == BlockState::Inactive).map(|b| b.size).sum::<u64>();
    let start = segment.blocks.start as usize;
    let live = window.filter(|&i| blocks[i].state != BlockState::Inactive).map(|i| start + i).collect();
    Some(WayOut { way: Way::Hole, segments: vec![at], blocks: live, bytes, room, is_optimal: true, least_cap: None })
}

/// Cells of the table that chooses segments; beyond that the choice is greedy.
const TABLE: usize = 20_000_000;

/// The fewest live bytes whose going would let the request succeed: in one hole, or by whole segments going back so that a new
/// one fits. `need` is how much must return to the device for that, 0 when nothing has to.
#[must_use]
pub fn cheapest_way(device: &DeviceRecording, state: &State, servers: &Servers, request: u64, need: u64) -> Option<WayOut> {
    let can_go = |s: &SegmentAt| can_go(device, s);
    let by_hole = cheapest_hole(state, servers, request);
    let by_release = cheapest_release(state, need, can_go);
    let way = match (by_hole, by_release) {
        (Some(hole), Some(release)) => Some(if (hole.bytes, hole.blocks.len()) <= (release.bytes, release.blocks.len()) {
            // A greedy choice of segments that costs more says nothing about the best one, unless nothing can be cheaper.
            WayOut { is_optimal: release.is_optimal || hole.bytes == 0, ..hole }
        } else {
            release
        }),
        (hole, release) => hole.or(release),
    };
    // Expandable segments also give single pages back, which is not searched: something cheaper may be among them.
    let has_pages = state.segments.iter().any(|s| s.is_expandable && can_go(s));
    way.map(|way| WayOut { is_optimal: way.is_optimal && (!has_pages || way.bytes == 0), ..way })
}

/// The cheapest segments to give back so that `need` bytes return to the device: a knapsack over segment sizes, exact in steps of
/// 2 MiB (every `cudaMalloc` segment is a multiple). Expandable segments are left out: they give pages back, not themselves.
#[must_use]
pub fn cheapest_release(state: &State, need: u64, can_go: impl Fn(&SegmentAt) -> bool) -> Option<WayOut> {
    const STEP: u64 = 2 * MEBIBYTE;
    let offers: Vec<(usize, u64, u64)> = state
        .segments
        .iter()
        .enumerate()
        .filter(|(_, s)| !s.is_expandable && can_go(s))
        .map(|(i, s)| (i, s.size, state.blocks_of(s).iter().filter(|b| b.state != BlockState::Inactive).map(|b| b.size).sum()))
        .collect();
    if need == 0 || offers.iter().map(|o| o.1).sum::<u64>() < need {
        return None;
    }
    let steps = usize::try_from(need.div_ceil(STEP)).ok()?;
    let is_whole = offers.iter().all(|o| o.1.is_multiple_of(STEP));
    let chosen = if steps.saturating_add(1).saturating_mul(offers.len()) <= TABLE {
        let (segments, _) = choose_exactly(&offers, steps, STEP);
        // A segment of an odd size frees more than its whole steps: then the choice is safe and may not be the cheapest.
        (segments, is_whole)
    } else {
        choose_greedily(&offers, need)
    };
    let (segments, is_optimal) = chosen;
    let mut blocks = Vec::new();
    let (mut bytes, mut room) = (0, 0);
    for &i in &segments {
        let segment = &state.segments[i];
        room += segment.size;
        for at in segment.blocks.start as usize..segment.blocks.end as usize {
            if state.blocks[at].state != BlockState::Inactive {
                blocks.push(at);
                bytes += state.blocks[at].size;
            }
        }
    }
    Some(WayOut { way: Way::Release, segments, blocks, bytes, room, is_optimal, least_cap: None })
}

fn choose_exactly(offers: &[(usize, u64, u64)], steps: usize, step: u64) -> (Vec<usize>, bool) {
    // cost[j]: fewest live bytes that free at least j steps; taken[k][j]: whether offer k is part of it.
    let mut cost = vec![u64::MAX; steps + 1];
    cost[0] = 0;
    let mut taken = vec![false; offers.len() * (steps + 1)];
    for (k, &(_, size, live)) in offers.iter().enumerate() {
        let gain = usize::try_from(size / step).unwrap_or(steps);
        for j in (1..=steps).rev() {
            let before = cost[j.saturating_sub(gain)];
            if before != u64::MAX && before.saturating_add(live) < cost[j] {
                cost[j] = before + live;
                taken[k * (steps + 1) + j] = true;
            }
        }
    }
    let mut chosen = Vec::new();
    let mut j = steps;
    for k in (0..offers.len()).rev() {
        if j > 0 && taken[k * (steps + 1) + j] {
            chosen.push(offers[k].0);
            j = j.saturating_sub(usize::try_from(offers[k].1 / step).unwrap_or(steps));
        }
    }
    chosen.sort_unstable();
    (chosen, true)
}

fn choose_greedily(offers: &[(usize, u64, u64)], need: u64) -> (Vec<usize>, bool) {
    let mut order: Vec<&(usize, u64, u64)> = offers.iter().collect();
    order.sort_by(|a, b| (a.2 as f64 / a.1 as f64).total_cmp(&(b.2 as f64 / b.1 as f64)));
    let mut got = 0;
    let mut chosen = Vec::new();
    for offer in order {
        if got >= need {
            break;
        }
        got += offer.1;
        chosen.push(offer.0);
    }
    chosen.sort_unstable();
    (chosen, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{LifetimeId, NO_EVENT};
    use crate::model::StackId;

    /// Segments as text: digits are live MiB, `.` a free MiB; one string a segment.
    fn state(segments: &[&str]) -> State {
        let mut s = State { event: NO_EVENT, ..State::default() };
        let mut address = 1 << 40;
        for text in segments {
            let start = s.blocks.len() as u32;
            let first = address;
            let mut chars = text.chars().peekable();
            while let Some(c) = chars.next() {
                let mut size = MEBIBYTE;
                let free = c == '.';
                if free {
                    while chars.next_if_eq(&'.').is_some() {
                        size += MEBIBYTE;
                    }
                } else {
                    size = u64::from(c.to_digit(10).unwrap()) * MEBIBYTE;
                }
                let block_state = if free { BlockState::Inactive } else { BlockState::Active };
                s.blocks.push(BlockAt { address, size, requested: 0, state: block_state, lifetime: LifetimeId(0) });
                address += size;
            }
            s.segments.push(SegmentAt {
                address: first,
                size: address - first,
                stream: StreamId(0),
                pool: PoolId(0),
                class: SizeClass::Large,
                is_expandable: false,
                born: NO_EVENT,
                stack: StackId::NONE,
                blocks: start..s.blocks.len() as u32,
            });
            address += 64 * MEBIBYTE;
        }
        s
    }

    const LARGE: Servers = Servers { class: SizeClass::Large, stream: None, pool: None };

    #[test]
    fn holes_are_counted_per_pool() {
        let s = state(&["1..2...", "3.", "...."]);
        let all = holes(&s, Some(&LARGE));
        assert_eq!((all.count, all.bytes / MEBIBYTE, all.largest / MEBIBYTE), (4, 10, 4));
        assert_eq!(holes(&s, Some(&Servers { class: SizeClass::Small, ..LARGE })), Holes::default());
        assert!((all.fragmentation() - 0.6).abs() < 1e-9);
    }

    #[test]
    fn blockers_rank_by_what_they_strand() {
        let s = state(&["..1...", "2.3"]);
        let b = blockers(&s, None);
        assert_eq!((b[0].strands() / MEBIBYTE, b[0].hole_if_freed() / MEBIBYTE, b[0].is_last_in_segment), (5, 6, true));
        assert_eq!(b.len(), 3);
    }

    #[test]
    fn the_cheapest_hole_is_the_cheapest_of_all_windows() {
        let texts = ["1..2.3...1..", "4....4....1.1.", ".9."];
        let s = state(&texts);
        for request in 1..=12u64 {
            let found = cheapest_hole(&s, &LARGE, request * MEBIBYTE);
            // Brute force over every window of every segment.
            let mut best = u64::MAX;
            for segment in &s.segments {
                let blocks = s.blocks_of(segment);
                for a in 0..blocks.len() {
                    for b in a..blocks.len() {
                        if blocks[a..=b].iter().map(|x| x.size).sum::<u64>() >= request * MEBIBYTE {
                            best =
                                best.min(blocks[a..=b].iter().filter(|x| x.state != BlockState::Inactive).map(|x| x.size).sum());
                        }
                    }
                }
            }
            assert_eq!(found.map(|w| w.bytes), Some(best), "{request} MiB");
        }
        assert_eq!(cheapest_hole(&s, &LARGE, 100 * MEBIBYTE), None);
    }

    #[test]
    fn the_cheapest_release_is_the_cheapest_of_all_subsets() {
        let s = state(&["1.1.", "4..4", "2......1.", "9.", "1.2.3.2.......", "......"]);
        for need in 1..=40u64 {
            let found = cheapest_release(&s, need * MEBIBYTE, |_| true);
            let mut best: Option<u64> = None;
            for set in 0u32..1 << s.segments.len() {
                let chosen = || (0..s.segments.len()).filter(|i| set >> i & 1 == 1).map(|i| &s.segments[i]);
                // Steps of 2 MiB: a segment of odd MiB frees only whole steps.
                let freed: u64 = chosen().map(|x| x.size / (2 * MEBIBYTE)).sum();
                if freed >= (need * MEBIBYTE).div_ceil(2 * MEBIBYTE) {
                    let cost =
                        chosen().flat_map(|x| s.blocks_of(x)).filter(|b| b.state != BlockState::Inactive).map(|b| b.size).sum();
                    best = Some(best.map_or(cost, |b: u64| b.min(cost)));
                }
            }
            if let Some(best) = best {
                assert_eq!(found.map(|w| (w.bytes, w.is_optimal)), Some((best, true)), "{need} MiB");
            }
        }
    }

    /// Whether a request succeeds once some live blocks are gone.
    fn succeeds(s: &State, gone: &[usize], request: u64, need: u64) -> bool {
        let is_free = |i: usize| s.blocks[i].state == BlockState::Inactive || gone.contains(&i);
        let (mut fits, mut released) = (false, 0);
        for segment in &s.segments {
            let range = segment.blocks.start as usize..segment.blocks.end as usize;
            let mut run = 0;
            for i in range.clone() {
                run = if is_free(i) { run + s.blocks[i].size } else { 0 };
                fits |= run >= request;
            }
            if range.clone().all(is_free) {
                released += segment.size;
            }
        }
        fits || released >= need
    }

    /// Small states at random, and every subset of their live blocks: does the request succeed without them?
    #[test]
    fn the_cheapest_way_out_is_the_cheapest_of_all_sets_of_blocks() {
        use proptest::prelude::*;
        let device = DeviceRecording::default();
        // Pieces of 2 MiB, so that every segment is a multiple as the driver's are.
        let pieces = prop::collection::vec(prop_oneof![3 => Just(0u64), 4 => 1u64..5], 1..6);
        let segments = prop::collection::vec(pieces, 1..4);
        proptest!(ProptestConfig::with_cases(300), |(segments in segments, request in 1u64..14, room in 0u64..8)| {
            let texts: Vec<String> = segments
                .iter()
                .map(|pieces| pieces.iter().map(|&p| if p == 0 { "..".to_owned() } else { (2 * p).to_string() }).collect())
                .collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let s = state(&texts);
            let (request, room) = (request * 2 * MEBIBYTE, room * 2 * MEBIBYTE);
            let need = request.saturating_sub(room);
            let live: Vec<usize> = (0..s.blocks.len()).filter(|&i| s.blocks[i].state != BlockState::Inactive).collect();
            prop_assume!(live.len() <= 12 && need > 0);
            let mut best: Option<u64> = None;
            for set in 0u32..1 << live.len() {
                let gone: Vec<usize> = live.iter().enumerate().filter(|(k, _)| set >> k & 1 == 1).map(|(_, &i)| i).collect();
                let cost: u64 = gone.iter().map(|&i| s.blocks[i].size).sum();
                if succeeds(&s, &gone, request, need) {
                    best = Some(best.map_or(cost, |b: u64| b.min(cost)));
                }
            }
            if !succeeds(&s, &[], request, need) {
                let alone = enough_alone(&device, &s, &LARGE, request, need);
                let singles = live.iter().filter(|&&i| succeeds(&s, &[i], request, need)).map(|&i| s.blocks[i].size);
                let singles: Vec<u64> = singles.collect();
                prop_assert_eq!((alone.count, alone.smallest.map(|x| x.size)), (singles.len(), singles.iter().copied().min()));
            }
            let found = cheapest_way(&device, &s, &LARGE, request, need);
            prop_assert_eq!(found.as_ref().map(|w| w.bytes), best, "{:?} request {}", texts, request);
            if let Some(way) = found {
                prop_assert!(way.is_optimal);
                prop_assert_eq!(way.blocks.iter().map(|&i| s.blocks[i].size).sum::<u64>(), way.bytes);
            }
        });
    }

    #[test]
    fn segments_of_private_pools_do_not_go_back() {
        let mut s = state(&["2......", "4......"]);
        s.segments[0].pool = PoolId(1);
        let device = DeviceRecording { pools: vec![(0, 0), (0, 7)], ..DeviceRecording::default() };
        let servers = Servers { pool: Some(PoolId(0)), ..LARGE };
        let way = cheapest_way(&device, &s, &servers, 20 * MEBIBYTE, 8 * MEBIBYTE).unwrap();
        assert_eq!((way.way, way.segments, way.bytes), (Way::Release, vec![1], 4 * MEBIBYTE));
    }
}
