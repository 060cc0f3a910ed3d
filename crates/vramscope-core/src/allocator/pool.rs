//! Pools: free blocks in the order of best fit, and private pools of CUDA graphs and `MemPool`s.

use std::collections::BTreeMap;

use super::block::{Block, BlockIx, PoolIx};
use super::free::FreeBlocks;
use crate::model::{PoolKey, SizeClass, TorchVersion};

/// Sort key of a free block within its stream: size, then the release's tie rule. It is one number, because best fit mostly
/// compares keys: 48 bits of size, 32 of rank, 48 of address, enough for any GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FreeKey(u128);

const BITS: u32 = 48;
const MASK: u64 = (1 << BITS) - 1;

impl FreeKey {
    #[inline]
    fn new(size: u64, rank: u32, address: u64) -> Self {
        let size = u128::from(size.min(MASK)) << (32 + BITS);
        FreeKey(size | u128::from(rank) << BITS | u128::from(address & MASK))
    }

    /// Sorts before every block of at least `size` bytes; after all blocks if no block can be that large.
    #[inline]
    pub(crate) fn at_least(size: u64) -> Self {
        if size > MASK { FreeKey(u128::MAX) } else { FreeKey::new(size, 0, 0) }
    }

    #[inline]
    pub(crate) fn size(self) -> u64 {
        (self.0 >> (32 + BITS)) as u64
    }
}

/// Which rule breaks ties between free blocks of equal size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TieRule {
    /// Lowest address (up to 2.11).
    Address,
    /// Oldest block object (2.12).
    BlockAge,
    /// Oldest segment, then lowest address (2.13 and later).
    SegmentAge,
}

impl TieRule {
    pub(crate) fn of(version: TorchVersion) -> Self {
        if version.is_at_least(13) {
            TieRule::SegmentAge
        } else if version.is_at_least(12) {
            TieRule::BlockAge
        } else {
            TieRule::Address
        }
    }

    #[inline]
    pub(crate) fn key(self, block: &Block) -> FreeKey {
        let rank = match self {
            TieRule::Address => 0,
            TieRule::BlockAge => block.born,
            TieRule::SegmentAge => block.segment,
        };
        FreeKey::new(block.size, rank, block.address)
    }
}

/// The free and unmapped blocks of one stream in one pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamBlocks {
    pub(crate) free: FreeBlocks,
    /// Unmapped ranges of expandable segments, by address.
    pub(crate) unmapped: BTreeMap<u64, BlockIx>,
}

/// A pool for small or for large requests, either the default one or a private one.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) class: SizeClass,
    /// The private pool it belongs to; `None` for the default pool.
    pub(crate) owner: Option<PoolKey>,
    /// By stream handle, as PyTorch compares streams.
    streams: Vec<(u64, StreamBlocks)>,
    /// Number of searches while garbage collection is on; used as a clock for block ages.
    pub(crate) calls: u64,
}

impl Pool {
    pub(crate) fn new(class: SizeClass, owner: Option<PoolKey>) -> Self {
        Pool { class, owner, streams: Vec::new(), calls: 0 }
    }

    /// The blocks of a stream; `None` if it never had any in this pool.
    #[inline]
    pub(crate) fn stream(&self, stream: u64) -> Option<&StreamBlocks> {
        self.streams.iter().find(|(s, _)| *s == stream).map(|(_, blocks)| blocks)
    }

    #[inline]
    pub(crate) fn stream_mut(&mut self, stream: u64) -> &mut StreamBlocks {
        let at = self.streams.partition_point(|(s, _)| *s < stream);
        if self.streams.get(at).is_none_or(|(s, _)| *s != stream) {
            self.streams.insert(at, (stream, StreamBlocks::default()));
        }
        &mut self.streams[at].1
    }

    pub(crate) fn free_blocks(&self) -> Vec<BlockIx> {
        self.streams.iter().flat_map(|(_, s)| s.free.blocks()).collect()
    }
}

/// A private pool of a CUDA graph or a `MemPool`.
#[derive(Clone, Debug)]
pub(crate) struct PrivatePool {
    pub(crate) id: PoolKey,
    /// Number of graphs, `MemPool`s and contexts that use it. At 0 its cache may be released.
    pub(crate) use_count: i64,
    /// Successful growths minus releases. PyTorch destroys the pool when a release finds 0 here.
    pub(crate) segments: i64,
    pub(crate) large: PoolIx,
    pub(crate) small: PoolIx,
}

/// Sends requests to a private pool while it is active.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) id: PoolKey,
    /// The only stream it applies to; `None` for all streams.
    pub(crate) stream: Option<u64>,
}
