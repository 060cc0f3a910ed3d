//! Blocks, and the table that holds them.

use std::ops::{Index, IndexMut};

/// Index of a block in `Blocks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockIx(pub(crate) u32);

impl BlockIx {
    /// Marks the absence of a block, as at either end of a segment.
    pub(crate) const NONE: BlockIx = BlockIx(u32::MAX);

    #[inline]
    pub(crate) fn is_some(self) -> bool {
        self != Self::NONE
    }

    #[inline]
    pub(crate) fn get(self) -> Option<BlockIx> {
        if self.is_some() { Some(self) } else { None }
    }
}

/// Index of a pool in the allocator's list.
pub(crate) type PoolIx = u16;

/// One address range of a pool and stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reservation {
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// Pages of this size are mapped and unmapped as a whole.
    pub(crate) page: u64,
}

/// Marks a block of a `cudaMalloc` segment: it belongs to no reservation.
pub(crate) const NO_RESERVATION: u32 = u32::MAX;

/// A contiguous range of one segment: allocated or pending free, free, or unmapped.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// Bytes that the program requested; stale while the block is free, as in PyTorch.
    pub(crate) requested: u64,
    pub(crate) stream: u64,
    /// Creation number of the block object; PyTorch 2.12 breaks ties between equal sizes by it.
    pub(crate) born: u32,
    /// The pool's clock when the block became free. Garbage collection measures its age from here.
    pub(crate) gc_base: u64,
    /// Creation number of its segment or reservation; PyTorch 2.13 breaks ties between equal sizes by it.
    pub(crate) segment: u32,
    /// Its expandable segment, or [`NO_RESERVATION`].
    pub(crate) reservation: u32,
    /// Neighbours by address inside the same segment.
    pub(crate) prev: BlockIx,
    pub(crate) next: BlockIx,
    /// Number of stream events that must complete before the freed block can be reused.
    pub(crate) events: u32,
    pub(crate) pool: PoolIx,
    pub(crate) allocated: bool,
    pub(crate) mapped: bool,
    /// True if other streams used it; `CachingAllocator::recorded` lists them.
    pub(crate) recorded: bool,
}

impl Block {
    #[inline]
    pub(crate) fn is_split(&self) -> bool {
        self.prev.is_some() || self.next.is_some()
    }

    #[inline]
    pub(crate) fn is_expandable(&self) -> bool {
        self.reservation != NO_RESERVATION
    }

    /// Allocated, or freed but still in use by another stream.
    #[inline]
    pub(crate) fn is_in_use(&self) -> bool {
        self.allocated || self.events > 0 || self.recorded
    }
}

/// All blocks of a device. Slots of merged blocks are reused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    table: Vec<Block>,
    vacant: Vec<BlockIx>,
    born: u32,
}

impl Blocks {
    /// Adds a free, mapped block without neighbours.
    pub(crate) fn add(&mut self, address: u64, size: u64, stream: u64, pool: PoolIx, segment: u32, reservation: u32) -> BlockIx {
        self.born = self.born.wrapping_add(1);
        let block = Block {
            address,
            size,
            requested: 0,
            stream,
            born: self.born,
            gc_base: 0,
            segment,
            reservation,
            prev: BlockIx::NONE,
            next: BlockIx::NONE,
            events: 0,
            pool,
            allocated: false,
            mapped: true,
            recorded: false,
        };
        match self.vacant.pop() {
            Some(ix) => {
                self.table[ix.0 as usize] = block;
                ix
            }
            None => {
                self.table.push(block);
                BlockIx(self.table.len() as u32 - 1)
            }
        }
    }

    /// Frees the slot of a block. No neighbour may refer to it any more.
    pub(crate) fn remove(&mut self, ix: BlockIx) {
        // Size 0 marks the slot as vacant for `all`.
        self.table[ix.0 as usize].size = 0;
        self.vacant.push(ix);
    }

    /// Makes two blocks neighbours. Either may be [`BlockIx::NONE`].
    pub(crate) fn link(&mut self, low: BlockIx, high: BlockIx) {
        if let Some(low) = low.get() {
            self[low].next = high;
        }
        if let Some(high) = high.get() {
            self[high].prev = low;
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (BlockIx, &Block)> {
        self.table.iter().enumerate().filter(|(_, b)| b.size > 0).map(|(i, b)| (BlockIx(i as u32), b))
    }
}

impl Index<BlockIx> for Blocks {
    type Output = Block;
    #[inline]
    fn index(&self, ix: BlockIx) -> &Block {
        &self.table[ix.0 as usize]
    }
}

impl IndexMut<BlockIx> for Blocks {
    #[inline]
    fn index_mut(&mut self, ix: BlockIx) -> &mut Block {
        &mut self.table[ix.0 as usize]
    }
}
