//! The cheapest way to make room: in one hole, or by whole segments that go back.

use super::servers::can_go;
use super::{BlockAt, SegmentAt, Servers, State};
use crate::model::{BlockState, DeviceRecording};
use crate::units::MEBIBYTE;

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
    /// What is enough with the highest the cap can be, where that is less.
    pub with_more: Option<WithMore>,
}

/// What has to go when the cap is higher than the least it can be. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WithMore {
    /// From this cap on.
    pub cap: u64,
    /// Live blocks.
    pub blocks: usize,
    /// Their bytes.
    pub bytes: u64,
    /// True when no set of fewer live bytes does it under any cap that is possible.
    pub is_optimal: bool,
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
    Some(WayOut {
        way: Way::Hole,
        segments: vec![at],
        blocks: live,
        bytes,
        room,
        is_optimal: true,
        least_cap: None,
        with_more: None,
    })
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
    Some(WayOut { way: Way::Release, segments, blocks, bytes, room, is_optimal, least_cap: None, with_more: None })
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
