//! Totals of holes, over all segments or over those that can serve a request.

use super::servers::Servers;
use crate::model::BlockState;
use crate::tables::State;

/// Free memory inside reserved memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holes {
    /// Number of inactive blocks, including whole free segments.
    pub count: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
    /// The size of the largest, in bytes.
    pub largest: u64,
    /// The address of the largest; 0 without holes.
    pub largest_address: u64,
}

impl Holes {}

/// The holes in segments that can serve a request, or in all segments. O(blocks).
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
