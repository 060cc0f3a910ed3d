//! Releases memory to the device: garbage collection, oversize blocks, the whole cache.

use super::block::{BlockIx, PoolIx};
use super::caching::{CachingAllocator, EventSink, LARGE, SMALL};
use super::error::AllocError;
use super::memory::DeviceMemory;
use super::pool::FreeKey;
use crate::model::{Action, PoolKey};

impl<M: DeviceMemory, S: EventSink> CachingAllocator<M, S> {
    /// Like `torch.cuda.empty_cache()`, for this device.
    ///
    /// # Errors
    /// Only if a private pool is used against PyTorch's rules.
    pub fn empty_cache(&mut self) -> Result<(), AllocError> {
        self.release_cached((0, 0))
    }

    /// `empty_cache` of one private pool, or of everything for `(0, 0)`.
    ///
    /// # Errors
    /// As [`empty_cache`](Self::empty_cache).
    pub fn release_cached(&mut self, id: PoolKey) -> Result<(), AllocError> {
        if id == (0, 0) && !self.is_capturing() {
            self.synchronise_all(None)?;
            self.release_pool(LARGE)?;
            self.release_pool(SMALL)?;
        }
        for key in self.freeable.clone() {
            if id != (0, 0) {
                if key != id {
                    continue;
                }
                self.synchronise_all(Some(key))?;
            }
            let Some(pool) = self.private_of(key) else { continue };
            let (large, small) = (pool.large, pool.small);
            self.release_pool(small)?;
            self.release_pool(large)?;
            self.destroy_if_empty(key);
        }
        Ok(())
    }

    /// Releases all free segments, then the free pages of expandable segments.
    fn release_pool(&mut self, pool: PoolIx) -> Result<(), AllocError> {
        let mut expandable = Vec::new();
        for block in self.pools[usize::from(pool)].free_blocks() {
            let b = &self.blocks[block];
            if b.is_expandable() {
                expandable.push(block);
            } else if !b.is_split() {
                self.release_segment(block);
            }
        }
        for block in expandable {
            self.unmap(block)?;
            if !self.blocks[block].is_split() {
                let reservation = self.reservations[self.blocks[block].reservation as usize];
                self.take_unmapped(block);
                self.forget(block);
                self.memory.release(reservation.address, reservation.size);
            }
        }
        Ok(())
    }

    fn release_segment(&mut self, block: BlockIx) {
        let b = &self.blocks[block];
        let (address, size, stream, pool) = (b.address, b.size, b.stream, b.pool);
        self.stats.num_device_free += 1;
        self.emit(Action::SegmentFree, address, size, stream, pool);
        self.memory.free(address, size);
        self.total_reserved = self.total_reserved.saturating_sub(size);
        self.count_private_segment(pool, -1);
        let class = self.class_of(pool);
        self.stats.segment.take(class, 1);
        self.stats.reserved_bytes.take(class, size);
        if size >= self.max_split() {
            self.stats.oversize_segments.take(1);
        }
        self.take_free(block);
        self.forget(block);
    }

    /// `garbage_collection_threshold`: above the threshold, releases free segments of the large pool whose age is at least the
    /// average of those left, until enough bytes are released.
    pub(crate) fn collect_garbage(&mut self) {
        let Some(limit) = self.limit else { return };
        let threshold = (self.conf.garbage_collection_threshold * limit as f64) as u64;
        if self.total_reserved <= threshold {
            return;
        }
        let target = self.total_reserved - threshold;
        let clock = self.pools[usize::from(LARGE)].calls;
        let mut ages = 0u64;
        let mut count = 0u64;
        for block in self.pools[usize::from(LARGE)].free_blocks() {
            let b = &self.blocks[block];
            if !b.is_split() {
                ages += clock.saturating_sub(b.gc_base);
                count += 1;
            }
        }
        let mut gained = 0u64;
        let mut freed_some = true;
        while gained < target && freed_some && count > 0 {
            // As in PyTorch, the average is computed once per pass, and a pass does not stop at the target.
            let average = ages as f64 / count as f64;
            freed_some = false;
            for block in self.pools[usize::from(LARGE)].free_blocks() {
                let b = &self.blocks[block];
                let age = clock.saturating_sub(b.gc_base);
                if !b.is_split() && !b.is_expandable() && age as f64 >= average {
                    freed_some = true;
                    gained += b.size;
                    ages -= age;
                    count -= 1;
                    self.release_segment(block);
                }
            }
        }
    }

    /// With `max_split_size_mb`: releases one oversize block that is large enough, otherwise oversize blocks from the largest
    /// down. `true` if that made enough room. Released blocks stay released either way.
    pub(crate) fn release_available(&mut self, pool: PoolIx, rounded: u64, stream: u64) -> bool {
        let Some(max_split) = self.conf.max_split_size else { return false };
        let want = rounded.max(max_split);
        // Up to 2.4 PyTorch also chose expandable blocks and then crashed.
        let Some(home) = self.pools[usize::from(pool)].stream(stream) else { return false };
        let enough = home.free.from(FreeKey::at_least(want)).next();
        if let Some((_, _, block)) = enough
            && !self.blocks[block].is_expandable()
        {
            self.release_segment(block);
            return true;
        }
        let below: Vec<BlockIx> = home.free.before(FreeKey::at_least(want)).collect();
        let mut gained = 0u64;
        for block in below {
            let b = &self.blocks[block];
            if gained >= want || b.size < max_split {
                break;
            }
            if !b.is_expandable() {
                gained += b.size;
                self.release_segment(block);
            }
        }
        gained >= want
    }
}
