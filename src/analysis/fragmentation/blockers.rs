//! Live blocks that keep holes from growing.

use super::{Servers, State};
use crate::model::BlockState;

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
