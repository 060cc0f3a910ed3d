//! Takes a new segment from the device when no free block fits.

use super::block::{BlockIx, NO_RESERVATION, PoolIx};
use super::caching::{CachingAllocator, EventSink};
use super::error::AllocError;
use super::memory::{DeviceError, DeviceMemory};
use crate::model::Action;

impl<M: DeviceMemory, S: EventSink> CachingAllocator<M, S> {
    /// Takes a new segment, or maps more pages of an expandable one. `None` if the limit or the device does not allow it.
    pub(crate) fn new_segment(
        &mut self,
        pool: PoolIx,
        rounded: u64,
        segment: u64,
        stream: u64,
        expandable: bool,
        is_retry: bool,
    ) -> Result<Option<BlockIx>, AllocError> {
        if is_retry {
            self.stats.num_alloc_retries += 1;
        }
        if self.limit.is_some_and(|limit| self.total_reserved.saturating_add(segment) > limit) {
            return Ok(None);
        }
        if self.throws_early {
            let allowed = self.conf.per_process_memory_fraction * self.memory.total() as f64;
            if self.total_reserved.saturating_add(segment) > allowed as u64 {
                self.stats.num_oom_rejections += 1;
                return Err(AllocError::Rejected { size: segment });
            }
        }
        if expandable {
            let block = self.expand(pool, rounded, stream)?;
            if block.is_some() {
                self.count_private_segment(pool, 1);
            }
            return Ok(block);
        }
        let address = match self.memory.malloc(segment, stream) {
            Ok(address) => address,
            Err(DeviceError::OutOfMemory) => return Ok(None),
            Err(DeviceError::Failed(text)) => return Err(AllocError::Device(text)),
        };
        self.count_private_segment(pool, 1);
        self.total_reserved += segment;
        let class = self.class_of(pool);
        self.stats.segment.add(class, 1);
        self.stats.reserved_bytes.add(class, segment);
        if segment >= self.max_split() {
            self.stats.oversize_segments.add(1);
        }
        self.stats.num_device_alloc += 1;
        self.segments_made += 1;
        self.reach.block = self.reach.block.max(segment);
        let block = self.blocks.add(address, segment, stream, pool, self.segments_made, NO_RESERVATION);
        self.emit(Action::SegmentAlloc, address, segment, stream, pool);
        Ok(Some(block))
    }
}
