//! Live blocks that keep holes small and prevent segments from being released.

use super::release::held_alone;
use super::servers::Servers;
use crate::model::{BlockState, DeviceRecording};
use crate::tables::State;

/// A live block that keeps a hole small, or prevents the release of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// Index into [`State::blocks`] of the whole state, not of its segment.
    pub block: usize,
    /// Index into [`State::segments`] of its segment.
    pub segment: usize,
    /// Bytes of the hole before it; 0 when a live block or the segment's start is there.
    pub before: u64,
    /// Bytes of the hole after it; 0 when a live block or the segment's end is there.
    pub after: u64,
    /// Size of the block in bytes, rounded by the allocator.
    pub size: u64,
    /// True if it is the only live block in its segment, so that freeing it would release the whole segment.
    pub is_last_in_segment: bool,
    /// True if its segment can serve the request; otherwise freeing it helps only by what returns to the device.
    pub serves: bool,
    /// Bytes of the segment or pages that freeing it returns to the device; 0 unless requested with [`blockers_with_segments`].
    pub returns: u64,
}

impl Blocker {
    /// Bytes of the holes next to it.
    pub fn strands(&self) -> u64 {
        self.before + self.after
    }

    /// Size of the single hole that freeing it would make.
    pub fn hole_if_freed(&self) -> u64 {
        self.before + self.size + self.after
    }

    /// Bytes of the hole or segment that freeing it would provide, whichever helps the request.
    pub fn appears(&self) -> u64 {
        if self.serves { self.hole_if_freed() } else { self.returns }
    }
}

/// Live blocks next to a hole, those with the largest adjacent holes first. O(blocks log blocks).
pub fn blockers(state: &State, servers: Option<&Servers>) -> Vec<Blocker> {
    let mut found = facts(state, servers);
    found.retain(|b| b.serves && b.strands() > 0);
    rank(&mut found);
    found
}

/// Like [`blockers`], plus blocks of other streams and pools that alone hold a segment or pages: what returns to the device
/// without them can serve the request. O(blocks log blocks + pages).
pub fn blockers_with_segments(device: &DeviceRecording, state: &State, servers: &Servers) -> Vec<Blocker> {
    let held = held_alone(device, state);
    let mut found = facts(state, Some(servers));
    for blocker in &mut found {
        blocker.returns = held.by_block[blocker.block];
    }
    found.retain(|b| b.strands() > 0 && (b.serves || b.returns > 0));
    rank(&mut found);
    found
}

fn rank(found: &mut [Blocker]) {
    found.sort_by_key(|b| (std::cmp::Reverse(b.strands()), b.block));
}

/// The same facts for given blocks, including blocks without adjacent holes. `blocks` are ascending indices into
/// [`State::blocks`]. O(blocks + pages).
pub fn facts_of(device: &DeviceRecording, state: &State, servers: &Servers, blocks: &[usize]) -> Vec<Blocker> {
    let held = held_alone(device, state);
    let mut found = facts(state, Some(servers));
    found.retain(|b| blocks.binary_search(&b.block).is_ok());
    for blocker in &mut found {
        blocker.returns = held.by_block[blocker.block];
    }
    found
}

/// For every live block, by address: the holes next to it and what else it prevents.
fn facts(state: &State, servers: Option<&Servers>) -> Vec<Blocker> {
    let mut found = Vec::new();
    for (at, segment) in state.segments.iter().enumerate() {
        let serves = servers.is_none_or(|v| v.take(segment));
        let blocks = state.blocks_of(segment);
        let live = blocks.iter().filter(|b| b.state != BlockState::Inactive).count();
        let hole =
            |i: Option<usize>| i.and_then(|i| blocks.get(i)).filter(|b| b.state == BlockState::Inactive).map_or(0, |b| b.size);
        for (i, block) in blocks.iter().enumerate().filter(|(_, b)| b.state != BlockState::Inactive) {
            found.push(Blocker {
                block: segment.blocks.start as usize + i,
                segment: at,
                before: hole(i.checked_sub(1)),
                after: hole(Some(i + 1)),
                size: block.size,
                is_last_in_segment: live == 1,
                serves,
                returns: 0,
            });
        }
    }
    found
}
