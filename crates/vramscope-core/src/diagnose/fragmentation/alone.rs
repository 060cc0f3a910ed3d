//! Single blocks whose free alone would make enough room.

use super::release::{HeldAlone, held_alone};
use super::room_plan::RoomKind;
use super::servers::Servers;
use crate::model::{BlockState, DeviceRecording};
use crate::tables::{BlockAt, State};

/// Live blocks such that freeing any one of them lets the request succeed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alone {
    /// Number of such blocks.
    pub count: usize,
    /// The smallest of them.
    pub smallest: Option<Single>,
}

impl std::fmt::Display for Alone {
    /// Whether freeing one block makes room: `enough: any of 12`, `enough: only one`, `not enough`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.count {
            0 => f.pad("not enough"),
            1 => f.pad("enough: only one"),
            n => f.pad(&format!("enough: any of {}", crate::units::count(n as u64))),
        }
    }
}

/// A live block whose free alone is sufficient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Single {
    /// Index into [`State::blocks`] of the whole state, not of its segment.
    pub block: usize,
    /// Size in bytes, rounded by the allocator.
    pub size: u64,
    /// How freeing it makes room.
    pub kind: RoomKind,
}

/// Tries each live block: would freeing it make a hole for `request`, or empty a segment or pages so that `need` bytes return to
/// the device? `need` is 0 if nothing has to return. O(blocks + pages).
pub fn enough_alone(device: &DeviceRecording, state: &State, servers: &Servers, request: u64, need: u64) -> Alone {
    let mut found = Alone::default();
    let is_live = |b: &BlockAt| b.state != BlockState::Inactive;
    let HeldAlone { by_block, spare } = held_alone(device, state);
    for segment in &state.segments {
        let blocks = state.blocks_of(segment);
        let serves = servers.take(segment);
        let hole = |i: Option<usize>| i.and_then(|i| blocks.get(i)).filter(|b| !is_live(b)).map_or(0, |b| b.size);
        for (i, block) in blocks.iter().enumerate().filter(|(_, b)| is_live(b)) {
            let at = segment.blocks.start as usize + i;
            let room = hole(i.checked_sub(1)) + block.size + hole(Some(i + 1));
            let kind = if serves && room >= request {
                RoomKind::Hole
            } else if need > 0 && by_block[at] > 0 && by_block[at] + spare >= need {
                RoomKind::Release
            } else {
                continue;
            };
            found.count += 1;
            if found.smallest.is_none_or(|s| block.size < s.size) {
                found.smallest = Some(Single { block: at, size: block.size, kind });
            }
        }
    }
    found
}
