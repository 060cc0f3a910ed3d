//! The cheapest way to make room: in one hole, or by releasing segments and pages.

use super::release::release_most;
use super::servers::Servers;
use crate::model::{BlockState, DeviceRecording};
use crate::tables::{BlockAt, State};

/// Where the room for a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoomKind {
    /// One hole large enough, in one segment.
    Hole,
    /// Segments, or pages of expandable segments, return to the device, and new ones serve the request.
    Release,
}

/// What to free so that a request succeeds, with the fewest live bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomPlan {
    /// Where the room comes from.
    pub kind: RoomKind,
    /// Indices into [`State::segments`]: the segment with the hole, or the segments that return to the device whole or in part.
    pub segments: Vec<usize>,
    /// Number of segments that return whole.
    pub whole: usize,
    /// Number of pages of expandable segments that return.
    pub pages: usize,
    /// Indices into [`State::blocks`] of the live blocks to free.
    pub blocks: Vec<usize>,
    /// Bytes of these blocks, as the allocator rounds them.
    pub bytes: u64,
    /// The part of [`bytes`](Self::bytes) that the program has already freed but another stream still uses.
    pub pending: u64,
    /// Bytes of the hole, or of the segments and pages released.
    pub room: u64,
    /// True if no set with fewer live bytes is sufficient: all ranges of adjacent blocks were tried, and the choice of segments
    /// and pages is exact. False if there were too many to try. Also false if the device's memory is the limit and pages that
    /// stay may serve a part of the request.
    pub is_optimal: bool,
    /// True if pages of expandable segments were among the choices.
    pub has_pages: bool,
    /// The cap that it was computed for, if that is only a lower bound; with a higher cap, less may be enough.
    pub least_cap: Option<u64>,
    /// What is enough under a higher cap of the possible range, if that is less.
    pub with_more: Option<WithMore>,
}

impl RoomPlan {
    /// The blocks to free, largest first.
    pub fn by_size(&self, state: &State) -> Vec<usize> {
        let mut blocks = self.blocks.clone();
        blocks.sort_by_key(|&i| (std::cmp::Reverse(state.blocks[i].size), i));
        blocks
    }
}

/// What must be freed if the cap is higher than its lower bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct WithMore {
    /// The lowest cap, in bytes, for which this is enough.
    #[serde(rename = "from_cap_bytes")]
    pub cap: u64,
    /// Number of live blocks to free.
    pub blocks: usize,
    /// Bytes of these blocks, fewer than [`RoomPlan::bytes`].
    pub bytes: u64,
    /// True if no set with fewer live bytes is sufficient under any possible cap.
    pub is_optimal: bool,
}

/// The cheapest hole: the range of adjacent blocks that is large enough and holds the fewest live bytes. O(blocks); optimal.
pub fn cheapest_hole(state: &State, servers: &Servers, request: u64) -> Option<RoomPlan> {
    // A request of 0 bytes, as in damaged files, takes a block like any other.
    let request = request.max(1);
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
    // Free blocks next to the range join the hole.
    let mut room: u64 = blocks[window.clone()].iter().map(|b| b.size).sum();
    room += blocks[..window.start].iter().rev().take_while(|b| b.state == BlockState::Inactive).map(|b| b.size).sum::<u64>();
    room += blocks[window.end..].iter().take_while(|b| b.state == BlockState::Inactive).map(|b| b.size).sum::<u64>();
    let start = segment.blocks.start as usize;
    let live: Vec<usize> = window.filter(|&i| blocks[i].state != BlockState::Inactive).map(|i| start + i).collect();
    Some(RoomPlan {
        kind: RoomKind::Hole,
        segments: vec![at],
        whole: 0,
        pages: 0,
        pending: pending_of(state, &live),
        blocks: live,
        bytes,
        room,
        is_optimal: true,
        has_pages: false,
        least_cap: None,
        with_more: None,
    })
}

/// Bytes of those blocks that are freed but wait for a stream.
pub(super) fn pending_of(state: &State, blocks: &[usize]) -> u64 {
    blocks.iter().map(|&i| &state.blocks[i]).filter(|b| b.state == BlockState::PendingFree).map(|b| b.size).sum()
}

/// The fewest live bytes to free so that the request succeeds: in one hole, or by releasing segments and pages so that new ones
/// fit. `need` is the number of bytes that must return to the device for that; 0 if none.
pub fn cheapest_plan(device: &DeviceRecording, state: &State, servers: &Servers, request: u64, need: u64) -> Option<RoomPlan> {
    cheapest_plan_most(device, state, servers, request, [need, need])
}

/// Like [`cheapest_plan`] for the first need; of equally cheap choices, takes the one that returns most, up to the second need.
pub fn cheapest_plan_most(
    device: &DeviceRecording,
    state: &State,
    servers: &Servers,
    request: u64,
    [need, most]: [u64; 2],
) -> Option<RoomPlan> {
    let by_hole = cheapest_hole(state, servers, request);
    let by_release = release_most(device, state, need, most);
    match (by_hole, by_release) {
        (Some(hole), Some(release)) => Some(if (hole.bytes, hole.blocks.len()) <= (release.bytes, release.blocks.len()) {
            // If the release is not an exact choice and costs more, a cheaper one may exist, unless the hole costs nothing.
            RoomPlan { is_optimal: release.is_optimal || hole.bytes == 0, has_pages: release.has_pages, ..hole }
        } else {
            release
        }),
        (hole, release) => hole.or(release),
    }
}
