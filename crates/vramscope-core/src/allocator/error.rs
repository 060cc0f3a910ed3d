//! Errors of a request, and the text of PyTorch's out-of-memory message.

use crate::model::TorchVersion;
use crate::units::pytorch_size;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// Out of memory, after every step of the allocator was tried.
    #[error("{}", .0.message(TorchVersion::REFERENCE))]
    OutOfMemory(Box<OutOfMemory>),
    /// Rejected before trying (`throw_on_cudamalloc_oom`, PyTorch 2.12 and later).
    #[error(
        "CUDA out of memory. Allocation was preemptively rejected because it would exceed per_process_memory_fraction limit. Requested size: {size}"
    )]
    Rejected {
        /// Size of the segment that it needed, in bytes.
        size: u64,
    },
    /// The device failed for another reason than lack of memory.
    #[error("the device failed: {0}")]
    Device(String),
    /// A pool was used against PyTorch's rules.
    #[error("{0}")]
    Pool(&'static str),
}

/// The figures of an out-of-memory error, all in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The segment that it needed: "tried to allocate" in the message.
    pub segment: u64,
    /// Total memory of the device.
    pub total: u64,
    /// Free memory of the device.
    pub available: u64,
    /// Most bytes that this process may reserve; `None` without a limit.
    pub limit: Option<u64>,
    /// Bytes in blocks that the program holds.
    pub allocated: u64,
    /// Free bytes in private pools, which the message counts as allocated.
    pub private_free: u64,
    /// Bytes of all segments.
    pub reserved: u64,
}

impl OutOfMemory {
    /// PyTorch's message, without the lines about processes, which need NVML.
    pub fn message(&self, version: TorchVersion) -> String {
        let allocated = self.allocated + self.private_free;
        let capacity = if version.is_at_least(2) { "capacity" } else { "capacty" };
        let mut text = format!(
            "CUDA out of memory. Tried to allocate {}. GPU 0 has a total {capacity} of {} of which {} is free. ",
            pytorch_size(self.segment),
            pytorch_size(self.total),
            pytorch_size(self.available)
        );
        if let Some(limit) = self.limit.filter(|_| version.is_at_least(5)) {
            text += &format!("{} allowed; ", pytorch_size(limit));
        }
        text += &format!("Of the allocated memory {} is allocated by PyTorch, ", pytorch_size(allocated));
        if self.private_free > 0 {
            text += &format!("with {} allocated in private pools (e.g., CUDA Graphs), ", pytorch_size(self.private_free));
        }
        text += &format!("and {} is reserved by PyTorch but unallocated.", pytorch_size(self.reserved.saturating_sub(allocated)));
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
