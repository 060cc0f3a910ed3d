//! Expandable segments: each reserves a large address range and maps pages into it as requests need them.

use super::block::{BlockIx, PoolIx, Reservation};
use super::caching::{CachingAllocator, EventSink};
use super::error::AllocError;
use super::memory::{DeviceError, DeviceMemory};
use crate::model::conf::SMALL_SEGMENT;
use crate::model::{Action, SizeClass};

impl<M: DeviceMemory, S: EventSink> CachingAllocator<M, S> {
    /// Maps the pages a request lacks, in the lowest suitable gap. `None` if a page does not fit; pages mapped before that stay.
    pub(crate) fn expand(&mut self, pool: PoolIx, rounded: u64, stream: u64) -> Result<Option<BlockIx>, AllocError> {
        let Some(mut candidate) = self.find_expandable(pool, rounded, stream)? else { return Ok(None) };
        if !self.blocks[candidate].mapped {
            let want = self.blocks[candidate].size.min(rounded);
            if !self.map(candidate, want)? {
                return Ok(None);
            }
        }
        while self.blocks[candidate].size < rounded {
            let missing = rounded - self.blocks[candidate].size;
            let Some(next) = self.blocks[candidate].next.get() else { return Ok(None) };
            let want = missing.min(self.blocks[next].size);
            if !self.map(next, want)? {
                return Ok(None);
            }
            candidate = next;
        }
        self.take_free(candidate);
        Ok(Some(candidate))
    }

    /// Finds where the request can grow: the lowest unmapped range that is large enough together with the free block before it.
    /// Makes a new reservation if there is none.
    fn find_expandable(&mut self, pool: PoolIx, rounded: u64, stream: u64) -> Result<Option<BlockIx>, AllocError> {
        if let Some(home) = self.pools[usize::from(pool)].stream(stream) {
            for &unmapped in home.unmapped.values() {
                let before = self.blocks[unmapped].prev.get().filter(|&b| !self.blocks[b].is_in_use());
                let start = before.unwrap_or(unmapped);
                let mut reach = 0u64;
                let mut at = start.get();
                while let Some(block) = at.filter(|&b| reach < rounded && !self.blocks[b].is_in_use()) {
                    reach += self.blocks[block].size;
                    at = self.blocks[block].next.get();
                }
                if reach >= rounded {
                    return Ok(Some(start));
                }
            }
        }
        let page = self.page_of(pool);
        let total = self.memory.total();
        let size = total.saturating_add(total / 8).checked_next_multiple_of(page).unwrap_or(u64::MAX / page * page);
        match self.memory.reserve(size, stream) {
            Ok(address) => {
                let block = self.add_reservation(pool, stream, address, size);
                Ok(Some(block))
            }
            Err(DeviceError::OutOfMemory) => Ok(None),
            Err(DeviceError::Failed(text)) => Err(AllocError::Device(text)),
        }
    }

    pub(crate) fn page_of(&self, pool: PoolIx) -> u64 {
        match self.class_of(pool) {
            SizeClass::Small => SMALL_SEGMENT,
            SizeClass::Large => self.conf.large_segment_size,
        }
    }

    /// Adds a reservation as one unmapped block.
    pub(crate) fn add_reservation(&mut self, pool: PoolIx, stream: u64, address: u64, size: u64) -> BlockIx {
        let page = self.page_of(pool);
        self.reservations.push(Reservation { address, size, page });
        let reservation = self.reservations.len() as u32 - 1;
        self.segments_made += 1;
        let block = self.blocks.add(address, size, stream, pool, self.segments_made, reservation);
        self.blocks[block].mapped = false;
        self.insert_unmapped(block);
        block
    }

    /// Maps whole pages for `want` bytes from the start of an unmapped block. False if it maps none, because some do not fit.
    fn map(&mut self, block: BlockIx, want: u64) -> Result<bool, AllocError> {
        let b = &self.blocks[block];
        let (address, size, stream, pool, segment, reservation, behind) =
            (b.address, b.size, b.stream, b.pool, b.segment, b.reservation, b.next);
        let page = self.reservations[reservation as usize].page;
        let bytes = want.checked_next_multiple_of(page).unwrap_or(u64::MAX);
        match self.memory.map(address, bytes, page) {
            Ok(()) => {}
            Err(DeviceError::OutOfMemory) => return Ok(false),
            Err(DeviceError::Failed(text)) => return Err(AllocError::Device(text)),
        }
        self.take_unmapped(block);
        self.blocks[block].mapped = true;
        if bytes < size {
            let rest = self.blocks.add(address + bytes, size - bytes, stream, pool, segment, reservation);
            self.blocks[rest].mapped = false;
            self.blocks.link(block, rest);
            self.blocks.link(rest, behind);
            self.blocks[block].size = bytes;
            self.insert_unmapped(rest);
        }
        let prev = self.blocks[block].prev;
        self.merge(block, prev);
        let next = self.blocks[block].next;
        self.merge(block, next);
        self.insert_free(block);
        self.total_reserved += bytes;
        let class = self.class_of(pool);
        self.stats.reserved_bytes.add(class, bytes);
        self.stats.num_device_alloc += 1;
        self.emit(Action::SegmentMap, address, bytes, stream, pool);
        Ok(true)
    }

    /// Unmaps the whole pages inside a free block; the rest stays mapped and free. Afterwards `block` is the unmapped part.
    pub(crate) fn unmap(&mut self, block: BlockIx) -> Result<(), AllocError> {
        let b = &self.blocks[block];
        let (address, size, stream, pool, segment, reservation) = (b.address, b.size, b.stream, b.pool, b.segment, b.reservation);
        let Reservation { address: base, page, .. } = self.reservations[reservation as usize];
        let from = base + (address - base).div_ceil(page) * page;
        let to = base + (address + size - base) / page * page;
        if from >= to {
            return Ok(());
        }
        self.memory.synchronize_stream(stream);
        self.memory.unmap(from, to - from, page);
        self.take_free(block);
        if from > address {
            let head = self.blocks.add(address, from - address, stream, pool, segment, reservation);
            let before = self.blocks[block].prev;
            self.blocks.link(before, head);
            self.blocks.link(head, block);
            self.insert_free(head);
        }
        if address + size > to {
            let tail = self.blocks.add(to, address + size - to, stream, pool, segment, reservation);
            let behind = self.blocks[block].next;
            self.blocks.link(block, tail);
            self.blocks.link(tail, behind);
            self.insert_free(tail);
        }
        let b = &mut self.blocks[block];
        b.address = from;
        b.size = to - from;
        b.mapped = false;
        let (prev, next) = (b.prev, b.next);
        self.merge(block, prev);
        self.merge(block, next);
        self.insert_unmapped(block);
        self.total_reserved = self.total_reserved.saturating_sub(to - from);
        let class = self.class_of(pool);
        self.stats.reserved_bytes.take(class, to - from);
        self.uncount_unmapped(pool)?;
        self.stats.num_device_free += 1;
        self.emit(Action::SegmentUnmap, from, to - from, stream, pool);
        Ok(())
    }
}
