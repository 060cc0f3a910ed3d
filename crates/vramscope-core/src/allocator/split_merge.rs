//! Splits blocks for requests, and merges them when they are free.

use super::block::BlockIx;
use super::caching::{CachingAllocator, EventSink};
use super::memory::DeviceMemory;
use crate::model::Action;

impl<M: DeviceMemory, S: EventSink> CachingAllocator<M, S> {
    /// Splits the block if the rules say so, and hands out the low part. The high part keeps the old block object.
    pub(crate) fn hand_out(&mut self, found: BlockIx, size: u64, rounded: u64, expandable: bool) -> BlockIx {
        let pool = self.blocks[found].pool;
        let class = self.class_of(pool);
        let was_split = self.blocks[found].is_split();
        let has_reservation = self.blocks[found].is_expandable();
        let mut block = found;
        if self.should_split(found, rounded, expandable) {
            let (address, stream, segment, reservation, prev) = {
                let b = &self.blocks[found];
                (b.address, b.stream, b.segment, b.reservation, b.prev)
            };
            block = self.blocks.add(address, rounded, stream, pool, segment, reservation);
            self.blocks.link(prev, block);
            self.blocks.link(block, found);
            let rest = &mut self.blocks[found];
            rest.address += rounded;
            rest.size -= rounded;
            let rest_size = rest.size;
            self.insert_free(found);
            if !has_reservation {
                if was_split {
                    self.stats.inactive_split_bytes.take(class, rounded);
                } else {
                    self.stats.inactive_split_bytes.add(class, rest_size);
                    self.stats.inactive_split.add(class, 1);
                }
            }
        } else if was_split && !has_reservation {
            let whole = self.blocks[found].size;
            self.stats.inactive_split_bytes.take(class, whole);
            self.stats.inactive_split.take(class, 1);
        }
        let b = &mut self.blocks[block];
        b.allocated = true;
        b.requested = size;
        let (address, stream, whole) = (b.address, b.stream, b.size);
        self.emit(Action::Alloc, address, size, stream, pool);
        self.stats.allocation.add(class, 1);
        self.stats.allocated_bytes.add(class, whole);
        self.stats.active.add(class, 1);
        self.stats.active_bytes.add(class, whole);
        self.stats.requested_bytes.add(class, size);
        if whole >= self.max_split() {
            self.stats.oversize_allocations.add(1);
        }
        block
    }

    fn should_split(&self, block: BlockIx, rounded: u64, expandable: bool) -> bool {
        let b = &self.blocks[block];
        let pool = &self.pools[usize::from(b.pool)];
        if self.version.is_at_least(10) && pool.owner.is_some_and(|id| self.no_split.contains(&id)) {
            return false;
        }
        self.conf.splits_when(expandable, pool.class, b.size, rounded)
    }

    /// Marks the block as free and merges it with free neighbours.
    pub(crate) fn free_block(&mut self, block: BlockIx) {
        let b = &self.blocks[block];
        let (address, size, requested, stream, pool) = (b.address, b.size, b.requested, b.stream, b.pool);
        let (prev, next) = (b.prev, b.next);
        let has_reservation = b.is_expandable();
        self.emit(Action::FreeCompleted, address, requested, stream, pool);
        let mut split_count = 0i64;
        let mut split_bytes = 0i64;
        for neighbour in [prev, next] {
            let absorbed = self.merge(block, neighbour);
            if absorbed > 0 {
                split_count -= 1;
                split_bytes -= absorbed as i64;
            }
        }
        self.insert_free(block);
        let b = &self.blocks[block];
        if b.is_split() {
            split_count += 1;
            split_bytes += b.size as i64;
        }
        let class = self.class_of(pool);
        if !has_reservation {
            // Apply one signed change per counter, so that merging never shows as a peak.
            let stats = &mut self.stats;
            for (counter, change) in [(&mut stats.inactive_split, split_count), (&mut stats.inactive_split_bytes, split_bytes)] {
                match change {
                    0 => {}
                    up if up > 0 => counter.add(class, up.unsigned_abs()),
                    down => counter.take(class, down.unsigned_abs()),
                }
            }
        }
        self.stats.active.take(class, 1);
        self.stats.active_bytes.take(class, size);
        self.stats.requested_bytes.take(class, requested);
    }

    /// Merges the neighbour into `block` if both are free and both mapped or both unmapped. Returns the bytes gained.
    pub(crate) fn merge(&mut self, block: BlockIx, neighbour: BlockIx) -> u64 {
        let Some(other) = neighbour.get() else { return 0 };
        let o = &self.blocks[other];
        if o.is_in_use() || o.mapped != self.blocks[block].mapped {
            return 0;
        }
        if o.mapped {
            self.take_free(other);
        } else {
            self.take_unmapped(other);
        }
        let o = &self.blocks[other];
        let (address, size, before, behind) = (o.address, o.size, o.prev, o.next);
        let is_before = self.blocks[block].prev == other;
        let b = &mut self.blocks[block];
        b.size += size;
        if is_before {
            b.address = address;
            self.blocks.link(before, block);
        } else {
            self.blocks.link(block, behind);
        }
        self.forget(other);
        size
    }

    /// Removes a block from the table and from all side tables.
    pub(crate) fn forget(&mut self, block: BlockIx) {
        if !self.recorded_in_capture.is_empty() {
            self.recorded_in_capture.remove(&block);
        }
        self.blocks.remove(block);
    }

    /// Adds a block to the free blocks and stores its age.
    pub(crate) fn insert_free(&mut self, block: BlockIx) {
        let b = &mut self.blocks[block];
        let pool = &mut self.pools[usize::from(b.pool)];
        b.gc_base = pool.calls;
        self.reach.block = self.reach.block.max(b.size);
        let key = self.tie_rule.key(b);
        pool.stream_mut(b.stream).free.insert(key, block);
    }

    pub(crate) fn take_free(&mut self, block: BlockIx) {
        let b = &self.blocks[block];
        let key = self.tie_rule.key(b);
        self.pools[usize::from(b.pool)].stream_mut(b.stream).free.remove(key);
    }

    pub(crate) fn insert_unmapped(&mut self, block: BlockIx) {
        let b = &self.blocks[block];
        self.pools[usize::from(b.pool)].stream_mut(b.stream).unmapped.insert(b.address, block);
    }

    pub(crate) fn take_unmapped(&mut self, block: BlockIx) {
        let b = &self.blocks[block];
        self.pools[usize::from(b.pool)].stream_mut(b.stream).unmapped.remove(&b.address);
    }
}
