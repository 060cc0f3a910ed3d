//! The last step: out of memory, and the text that goes with it.

use super::block::PoolIx;
use super::caching::{AllocError, CachingAllocator, EventSink};
use super::memory::DeviceMemory;
use crate::model::{Action, TorchVersion};

/// The figures of an out-of-memory error, all in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The request, rounded: what the trace shows.
    pub rounded: u64,
    /// The segment it would have needed: what the message calls "tried to allocate".
    pub segment: u64,
    /// Total memory of the device.
    pub total: u64,
    /// Free memory of the device.
    pub available: u64,
    /// The limit of this process.
    pub limit: Option<u64>,
    /// Bytes in blocks the program holds.
    pub allocated: u64,
    /// Free bytes in private pools, which the message counts as allocated.
    pub private_free: u64,
    /// Bytes taken from the device.
    pub reserved: u64,
}

impl OutOfMemory {
    /// PyTorch's message, without the lines about processes that only NVML can tell.
    #[must_use]
    pub fn message(&self, version: TorchVersion) -> String {
        let allocated = self.allocated + self.private_free;
        let capacity = if version.is_at_least(2) { "capacity" } else { "capacty" };
        let mut text = format!(
            "CUDA out of memory. Tried to allocate {}. GPU 0 has a total {capacity} of {} of which {} is free. ",
            size_text(self.segment),
            size_text(self.total),
            size_text(self.available)
        );
        if let Some(limit) = self.limit.filter(|_| version.is_at_least(5)) {
            text += &format!("{} allowed; ", size_text(limit));
        }
        text += &format!("Of the allocated memory {} is allocated by PyTorch, ", size_text(allocated));
        if self.private_free > 0 {
            text += &format!("with {} allocated in private pools (e.g., CUDA Graphs), ", size_text(self.private_free));
        }
        text += &format!("and {} is reserved by PyTorch but unallocated.", size_text(self.reserved.saturating_sub(allocated)));
        text += if !version.is_at_least(2) {
            " If reserved but unallocated memory is large try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
        } else if version == TorchVersion::new(2, 10) {
            " If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
        } else if version.is_at_least(9) {
            " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
        } else {
            " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
        };
        text
    }
}

/// A size as PyTorch's messages write it.
fn size_text(bytes: u64) -> String {
    const KIB: f64 = 1024.0;
    let value = bytes as f64;
    if bytes <= 1 << 10 {
        format!("{bytes} bytes")
    } else if bytes <= 1 << 20 {
        format!("{:.2} KiB", value / KIB)
    } else if bytes <= 1 << 30 {
        format!("{:.2} MiB", value / (KIB * KIB))
    } else {
        format!("{:.2} GiB", value / (KIB * KIB * KIB))
    }
}

impl<M: DeviceMemory, S: EventSink> CachingAllocator<M, S> {
    /// Reports the failure and gives the error. Everything the attempt did stays done.
    pub(crate) fn fail(&mut self, pool: PoolIx, rounded: u64, stream: u64) -> AllocError {
        let available = self.memory.available();
        self.emit(Action::Oom, available, rounded, stream, pool);
        self.stats.num_ooms += 1;
        let halves = self.private.iter().flat_map(|p| [p.large, p.small]);
        let private_free = halves.flat_map(|p| self.pools[usize::from(p)].free_blocks()).map(|b| self.blocks[b].size).sum();
        AllocError::OutOfMemory(Box::new(OutOfMemory {
            rounded,
            segment: self.conf.segment_size(rounded),
            total: self.memory.total(),
            available,
            limit: self.limit,
            allocated: self.stats.allocated_bytes.all.current,
            private_free,
            reserved: self.stats.reserved_bytes.all.current,
        }))
    }
}
