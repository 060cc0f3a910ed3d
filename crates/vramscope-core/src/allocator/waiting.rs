//! [`Waiting`]: freed blocks whose completion is reported from outside.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::block::BlockIx;

/// Blocks in order of arrival, with fast lookup: thousands of blocks may wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting {
    next: u64,
    order: BTreeMap<u64, BlockIx>,
    places: FxHashMap<BlockIx, u64>,
}

impl Waiting {
    pub(crate) fn push(&mut self, block: BlockIx) {
        self.order.insert(self.next, block);
        self.places.insert(block, self.next);
        self.next += 1;
    }

    /// Removes a block; true if it was waiting.
    pub(crate) fn remove(&mut self, block: BlockIx) -> bool {
        self.places.remove(&block).is_some_and(|place| self.order.remove(&place).is_some())
    }

    /// Removes and returns all blocks, in order.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = BlockIx> + use<> {
        self.places.clear();
        std::mem::take(&mut self.order).into_values()
    }
}
