//! PyTorch's own allocators, from 0.4 to 2.15.

use crate::formats::oom_message::row::Trust::{Figures, Phrase, Sure};
use crate::formats::oom_message::row::{Row, bare, row};
use crate::formats::oom_message::{Platform as P, Writer as W};

/// Both wordings: figures in brackets up to 2.0 (and in torch_npu today), sentences since 2.1.
pub(in super::super) const NATIVE: &str = "tried to allocate {requested} | (GPU {gpu} | (NPU {gpu} | GPU {gpu} has a total \
    | {capacity} total capacity | has a total capacity of {capacity} | has a total capacty of {capacity} \
    | of which {free} is free | {free} free | {processes} | {limit} allowed \
    | {allocated} already allocated | of the allocated memory {allocated} is \
    | {pools} allocated in private pools | {unallocated} is reserved by PyTorch but unallocated | {reserved} reserved | {unallocated} cached";

/// The five lines of a message of the cudaMallocAsync backend.
const ASYNC: &str = "allocation on device {gpu} would | currently allocated: {allocated} | requested: {requested} | device limit: {capacity} \
    | free (according to CUDA): {free} | user-supplied memory fraction): {limit}";
const COMFY_UI: &str = "ComfyUI could not get memory for the step it was at. It prints only the first words of PyTorch's message, so the reason is unknown.{? \
    When the report was written, {free} of the card's {capacity} was free.}";
/// A warning, with exact bytes.
const RETRY: &str = "OOM on device {gpu} | while trying to allocate {requested} | while trying to map {requested} | (free: {free#} | , total: {capacity#}";
const WHOLE: &str = "CUDA out of memory. Tried to allocate 2.00 MiB. GPU 3 has a total capacity of 23.65 GiB of which 1.05 GiB is free. Process 77 has \
    12.00 GiB memory in use. Including non-PyTorch memory, this process has 10.50 GiB memory in use. 20.00 GiB allowed; Of the allocated memory 9.00 GiB \
    is allocated by PyTorch, with 13.00 MiB allocated in private pools (e.g., CUDA Graphs), and 1.00 GiB is reserved by PyTorch but unallocated.";

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row(W::PyTorch, P::Cuda, Figures, "CUDA out of memory", NATIVE, WHOLE,
        "requested 2.00 MiB, capacity 23.65 GiB, free 1.05 GiB, limit 20.00 GiB, allocated 9.00 GiB, pools 13.00 MiB, unallocated 1.00 \
        GiB, gpu 3, pid 77 12.00 GiB, this 10.50 GiB"),
    row(W::PyTorch, P::Hip, Figures, "HIP out of memory", NATIVE,
        "HIP out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 15.98 GiB of which 0 bytes is free.",
        "requested 1.50 GiB, capacity 15.98 GiB, free 0 bytes, gpu 0"),
    row(W::PyTorch, P::Xpu, Figures, "XPU out of memory", NATIVE,
        "XPU out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 15.91 GiB.",
        "requested 20.00 GiB, capacity 15.91 GiB, gpu 0"),
    row(W::PyTorch, P::Npu, Figures, "NPU out of memory", NATIVE,
        "NPU out of memory. Tried to allocate 52.00 MiB (NPU 3; 60.96 GiB total capacity; 59.36 GiB already allocated; 59.36 GiB \
        current active; 14.25 MiB free; 60.60 GiB reserved in total by PyTorch)",
        "requested 52.00 MiB, capacity 60.96 GiB, free 14.25 MiB, allocated 59.36 GiB, reserved 60.60 GiB, gpu 3"),
    row(W::PyTorch, P::Cuda, Sure, "CUDA out of memory. Allocation was preemptively rejected",
        "Requested size: {requested} | (allowed: {limit} | , allocated: {allocated} | has a total capacity of {capacity} | of which \
        {free} is free",
        "CUDA out of memory. Allocation was preemptively rejected because it would exceed per_process_memory_fraction limit. Requested \
        size: 2.00 GiB (allowed: 4.00 GiB, allocated: 3.00 GiB)", "requested 2.00 GiB, limit 4.00 GiB, allocated 3.00 GiB")
        .since((2, 12)),
    row(W::PyTorch, P::Cuda, Figures, "memory allocation failed with OOM on device", RETRY,
        "memory allocation failed with OOM on device 0 while trying to allocate 42949672960 bytes (free: 33136967680, total: \
        33668857856).", "requested 40.00 GiB, capacity 31.36 GiB, free 30.86 GiB, gpu 0").since((2, 13)).warning(),
    row(W::PyTorch, P::Cuda, Figures, "memory mapping failed with OOM on device", RETRY,
        "expandable_segments: memory mapping failed with OOM on device 1 while trying to map 20971520 bytes (free: 4521984, total: \
        101971460096)", "requested 20.00 MiB, capacity 94.97 GiB, free 4.31 MiB, gpu 1").since((2, 13)).warning(),
    row(W::PyTorch, P::Xpu, Figures, "memory block with size larger than",
        "size larger than {largest} | tried to allocate {requested} | (GPU {gpu} | {capacity} total capacity | {allocated} already \
        allocated | {reserved} reserved",
        "Current platform can NOT allocate memory block with size larger than 4GB! Tried to allocate 6.85 GiB (GPU  0; 15.56 GiB total \
        capacity; 0 bytes already allocated; 0 bytes reserved in total by PyTorch)",
        "requested 6.85 GiB, capacity 15.56 GiB, allocated 0 bytes, reserved 0 bytes, largest 4 GiB, gpu 0"),
    bare(W::PyTorch, P::Cuda, Phrase, "cuda runtime error (2) : out of memory",
        "cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/generic/THCStorage.cu:58").near("/THC").until((0, 4)),
    bare(W::LuaTorch, P::Cuda, Phrase, "error=2 : out of memory",
        "THCudaCheck FAIL file=/tmp/luarocks_cutorch-scm-1/lib/THC/THCStorage.cu line=20 error=2 : out of memory")
        .near("luarocks|cutorch"),
    bare(W::PyTorch, P::Cuda, Phrase, "error=2 : out of memory",
        "THCudaCheck FAIL file=/tmp/torch/lib/THC/THCGeneral.c line=9 error=2 : out of memory").near("/THC").until((0, 4)),
    bare(W::Runtime, P::Cuda, Phrase, "error=2 : out of memory", "CUDA FAIL error=2 : out of memory"),
    bare(W::Runtime, P::Cuda, Phrase, "cuda runtime error (2) : out of memory",
        "RuntimeError: cuda runtime error (2) : out of memory at csrc/ops.cu:7"),
    row(W::CudaMallocAsync, P::Cuda, Sure, "Allocation on device", ASYNC,
        "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 100.00 \
        MiB\nRequested               : 3.00 GiB\nDevice limit            : 2.00 GiB\nFree (according to CUDA): 1.61 GiB\nPyTorch limit \
        (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB",
        "requested 3.00 GiB, capacity 2.00 GiB, free 1.61 GiB, allocated 100.00 MiB, gpu 0").near("would exceed allowed memory").whole(),
    row(W::CudaMallocAsync, P::Cuda, Sure, "OutOfMemoryError: Allocation on device", ASYNC,
        "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 12.94 \
        GiB\nRequested               : 557.81 MiB\nDevice limit            : 16.00 GiB",
        "requested 557.81 MiB, capacity 16.00 GiB, allocated 12.94 GiB, gpu 0").near("would exceed allowed memory").whole(),
    row(W::CudaMallocAsync, P::Cuda, Sure, "Exception during processing !!! Allocation on device", ASYNC,
        "!!! Exception during processing !!! Allocation on device 0 would exceed allowed memory. (out of memory)", "gpu 0")
        .near("would exceed allowed memory").whole(),
    row(W::CudaMallocAsync, P::Cuda, Sure, "Exception Message:** Allocation on device", ASYNC,
        "- **Exception Message:** Allocation on device 0 would exceed allowed memory. (out of memory)", "gpu 0")
        .near("would exceed allowed memory").whole(),
    row(W::ComfyUi, P::Unknown, Sure, "Exception Message:** Allocation on device",
        "allocation on device {gpu} | >>VRAM Total:** {capacity#} | >>VRAM Free:** {free#}",
        "- **Exception Message:** Allocation on device 1\n## Stack Trace\n## Devices\n  - **VRAM Total:** 6442450944\n  - **VRAM Free:** 5368709120\n  \
        - **Torch VRAM Total:** 0", "capacity 6.00 GiB, free 5.00 GiB, gpu 1").says(COMFY_UI),
    row(W::CudaMallocAsync, P::Cuda, Figures, "Currently allocated :", ASYNC,
        "Currently allocated     : 100.00 MiB\nRequested               : 3.00 GiB\nDevice limit            : 2.00 GiB\nFree (according \
        to CUDA): 1.61 GiB", "requested 3.00 GiB, capacity 2.00 GiB, free 1.61 GiB, allocated 100.00 MiB").near("according to CUDA"),
    row(W::ComfyUi, P::Unknown, Sure, "OutOfMemoryError: Allocation on device", "allocation on device {gpu}",
        "torch.OutOfMemoryError: Allocation on device 1\nGot an OOM, unloading all loaded models.", "gpu 1").says(COMFY_UI),
    row(W::ComfyUi, P::Unknown, Sure, "Exception during processing !!! Allocation on device", "allocation on device {gpu}",
        "!!! Exception during processing !!! Allocation on device 1", "gpu 1").says(COMFY_UI),
    row(W::Mps, P::Mps, Figures, "MPS backend out of memory",
        "MPS allocated: {allocated} | other allocations: {other} | max allowed: {limit} | tried to allocate {requested}",
        "MPS backend out of memory (MPS allocated: 16.50 GB, other allocations: 1.38 GB, max allowed: 18.13 GB). Tried to allocate \
        512.00 MB on private pool.", "requested 512.00 MiB, limit 18.13 GiB, allocated 16.50 GiB, other 1.38 GiB"),
    row(W::Mps, P::Mps, Figures, "RuntimeError: Invalid buffer size:", "Invalid buffer size: {requested}",
        "RuntimeError: Invalid buffer size: 36.00 GB", "requested 36.00 GiB")
        .says("{?{requested} was requested in one buffer, more|A buffer was requested that is larger} than Metal hands out at once on this Mac. Memory is not what ran out.").tips(&[
    "Split the tensor: a smaller batch, a shorter sequence, or the operation in chunks along one dimension.",
    "Use attention that keeps no matrix of all pairs: `torch.nn.functional.scaled_dot_product_attention`, or attention slicing.",
]),
    row(W::Cpu, P::Cpu, Figures, "DefaultCPUAllocator: not enough memory", "you tried to allocate {requested}",
        "data. DefaultCPUAllocator: not enough memory: you tried to allocate 6553600 bytes.", "requested 6.25 MiB")
        .says(super::host::PAGING).tips(super::host::PAGING_TIPS),
    row(W::Cpu, P::Cpu, Figures, "DefaultCPUAllocator:", "you tried to allocate {requested} | you tried to reallocate {requested}",
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 94489280512 bytes. Error code 12 (Cannot allocate memory)",
        "requested 88.00 GiB"),
    row(W::Cpu, P::Cpu, Figures, "Torch: not enough memory: you tried to",
        "you tried to allocate {whole} | you tried to reallocate {whole}",
        "$ Torch: not enough memory: you tried to allocate 12GB. Buy new RAM! at ..\\aten\\src\\TH\\THGeneral.cpp:201",
        "requested 12.00 GiB"),
];
