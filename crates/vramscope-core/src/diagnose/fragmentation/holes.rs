//! Holes, in all and by pool.

use super::servers::Servers;
use crate::model::{BlockState, PoolId, SizeClass, StreamId};
use crate::tables::{SegmentAt, State};

/// Free memory inside reserved memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holes {
    /// Number of inactive blocks; those that are a whole segment count too.
    pub count: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
    /// The largest of them, in bytes.
    pub largest: u64,
    /// Where the largest begins; 0 without holes.
    pub largest_address: u64,
}

impl Holes {
    /// Share of the free bytes that the largest hole cannot give to one request: `1 - largest / bytes`, 0 without holes.
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
    /// Pool of the segments.
    pub pool: PoolId,
    /// Stream of the segments.
    pub stream: StreamId,
    /// Small or large requests.
    pub class: SizeClass,
    /// Number of segments, whole free ones among them.
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

/// Holes by pool, stream and size class, the most free bytes first: memory free in one cannot serve another. O(blocks).
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
