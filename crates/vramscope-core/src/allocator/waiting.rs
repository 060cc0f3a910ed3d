//! [`Waiting`]: freed blocks that wait for something outside.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::block::BlockIx;

/// Blocks in the order they came, each of them found at once: thousands may wait for as many streams.
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

    /// True when it was there.
    pub(crate) fn remove(&mut self, block: BlockIx) -> bool {
        self.places.remove(&block).is_some_and(|place| self.order.remove(&place).is_some())
    }

    /// All of them, in their order.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = BlockIx> + use<> {
        self.places.clear();
        std::mem::take(&mut self.order).into_values()
    }
}
