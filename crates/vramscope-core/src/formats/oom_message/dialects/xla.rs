//! XLA (as JAX and torch_xla use it) and TensorFlow.

use crate::formats::oom_message::row::Trust::{Figures, Phrase, Sure};
use crate::formats::oom_message::row::{Row, bare, row};
use crate::formats::oom_message::{Platform as P, Writer as W};

const TENSOR: &str = "shape {tensor} | device:GPU:{gpu} | <Limit: {limit#} InUse: {allocated#} MaxInUse: {peak#} \
    | >>Limit: {limit#} InUse: {allocated#} MaxInUse: {peak#}";
const BFC: &str = "trying to allocate {requested} | <GPU_{gpu}_bfc | >>Limit: {limit#} InUse: {allocated#} MaxInUse: {peak#} \
    | Limit: {limit#} | InUse: {allocated#}";
const DRIVER: &str = "<({requested}) | <failed to allocate {requested} | <total memory: {capacity} | <free memory: {free}";
const TRACE: &str = "ResourceExhaustedError (see above for traceback): OOM when allocating tensor with shape[64,1024,3] and type float on /job:localhost/replica:0/task:0/device:GPU:1 by allocator GPU_1_bfc";
const VMEM: &str = "A kernel needs more of the TPU's on-chip memory (vmem, smem) than one core has; the TPU's HBM is not what ran out. Its blocks have to be smaller.";
const VMEM_TIPS: &[&str] = &[
    "[not tensorflow] Use smaller blocks in the kernel (block_shape of its BlockSpec), or fewer of them at once.",
    "[tensorflow] XLA chose the blocks itself: make the operation smaller, such as a loss over fewer classes, or update TensorFlow.",
    "The compiler's own limit is `--xla_tpu_scoped_vmem_limit_kib` in LIBTPU_INIT_ARGS.",
];
const GOES_ON: &[&str] = &[
    "Nothing has to be done while the program goes on: look further down in the log for an error that stopped it.",
    "If steps are slow, leave room for the workspace it could not get: a smaller batch, or half precision: `tf.keras.mixed_precision.set_global_policy(\"mixed_float16\")`.",
    "See what is in use and what was at most: `tf.config.experimental.get_memory_info(\"GPU:0\")`.",
];
const NO_CONTEXT: &str = "The driver had no room on the card even for TensorFlow's context, some hundred MiB, before it took anything else{? ({requested} was \
    requested then)}: another process holds the card, most likely.";
const NO_CONTEXT_TIPS: &[&str] = &[
    "See who holds the card, and stop what should not run beside this: {tool}.",
    "Give each process its own card: `{visible}`.",
    "Let TensorFlow programs beside each other take memory as they need it: `TF_FORCE_GPU_ALLOW_GROWTH=true` for every one of them.",
];
const FREE: &str = "<attempting to allocate {requested} | <attempting to reserve {requested} | there are {free} free | HBM capacity {capacity} \
    | currently allocated: {allocated}";

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row(W::Xla, P::Unknown, Figures, "Out of memory while trying to allocate", "trying to allocate {requested} | device ordinal {gpu}",
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4770354232 bytes.", "requested 4.44 GiB"),
    row(W::Xla, P::Unknown, Figures, "Out of memory allocating", "out of memory allocating {requested} | device ordinal {gpu}",
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 2097152 bytes.", "requested 2.00 MiB").near("exhausted"),
    row(W::Xla, P::Unknown, Figures, "Failed to allocate request for",
        "request for {_} ({requested}) | request for {requested} | device ordinal {gpu}",
        "RESOURCE_EXHAUSTED: Failed to allocate request for 6.27GiB (6727663616B) on device ordinal 0", "requested 6.27 GiB, gpu 0"),
    bare(W::TorchXla, P::Tpu, Sure, "Resource exhausted: From /job:tpu_worker",
        "RuntimeError: Resource exhausted: From /job:tpu_worker/replica:0/task:0:"),
    row(W::Xla, P::Tpu, Figures, "Ran out of memory in memory space hbm", "used {requested} of {capacity}",
        "RESOURCE_EXHAUSTED: Compilation failure: Ran out of memory in memory space hbm. Used 18.25G of 15.50G hbm. Exceeded hbm \
        capacity by 2.75G.", "requested 18.25 GiB, capacity 15.50 GiB"),
    row(W::Xla, P::Tpu, Phrase, "Ran out of memory in memory space", "used {requested} of {capacity}",
        "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space vmem. Used 20.25M of 16.00M vmem.",
        "requested 20.25 MiB, capacity 16.00 MiB").says(VMEM).tips(VMEM_TIPS),
    row(W::Xla, P::Tpu, Figures, "Aborting compilation early because it's unlikely to have enough", "requires {requested}, has {capacity} available",
        "RESOURCE_EXHAUSTED: Compilation failure: Aborting compilation early because it's unlikely to have enough device memory. Requires \
        23.00G, has 14.50G available.", "requested 23.00 GiB, capacity 14.50 GiB"),
    row(W::Xla, P::Tpu, Figures, "would exceed memory (size=", "<allocation (size={requested#}) | exceed memory (size={capacity#})",
        "RESOURCE_EXHAUSTED: Allocation (size=268435456) would exceed memory (size=134217728) :: #allocation7 [shape = 'u8[268435456]{0}', \
        space=vmem]", "requested 256.00 MiB, capacity 128.00 MiB").near("space=vmem|space=smem").says(VMEM).tips(VMEM_TIPS),
    row(W::Xla, P::Tpu, Figures, "TPU TensorCore Hbm usage:",
        "TensorCore Hbm usage: {requested}, SparseCore Hbm usage {more} | exceeding available bytes: {capacity}",
        "RESOURCE_EXHAUSTED: TPU TensorCore Hbm usage: 34.80G, SparseCore Hbm usage 174.00G, exceeding available bytes: 95.75G",
        "requested 208.80 GiB, capacity 95.75 GiB"),
    row(W::Xla, P::Tpu, Figures, "That was not possible.", FREE,
        "RESOURCE_EXHAUSTED: Attempting to reserve 10.50G at the bottom of memory. That was not possible. There are 8.75G free, 0B \
        reserved, and 8.75G reservable.;\nHBM capacity 16.00G:\n          Currently allocated:    7.25G (   7,784,628,224 bytes)",
        "requested 10.50 GiB, capacity 16.00 GiB, free 8.75 GiB, allocated 7.25 GiB").near("bottom of memory|_HBM|tpu").whole(),
    row(W::Xla, P::Unknown, Figures, "That was not possible.", FREE,
        "RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 129.50M. That was not possible. There are 78.25M \
        free.", "requested 129.50 MiB, free 78.25 MiB").near("attempting to"),
    row(W::Xla, P::Cuda, Figures, "cuMemAllocAsync failed to allocate",
        "failed to allocate {requested} | Free memory/Total memory: {free#}/{capacity#}",
        "gpu_async_1 cuMemAllocAsync failed to allocate 1225195446464 bytes: RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of \
        memory\n Reported by CUDA: Free memory/Total memory: 22635544576/85095874560",
        "requested 1141.05 GiB, capacity 79.25 GiB, free 21.08 GiB").whole(),
    row(W::Xla, P::Unknown, Figures, "bytes for new constant", "<failed to allocate {requested#}",
        "INTERNAL: Failed to allocate 65011712 bytes for new constant", "requested 62.00 MiB"),
    row(W::TensorFlow, P::DirectMl, Figures, "OOM when allocating tensor", TENSOR,
        "OP_REQUIRES failed: Resource exhausted: OOM when allocating tensor of shape [1024,1024] and type float on \
        /job:localhost/replica:0/task:0/device:DML:0", "requested 4.00 MiB").near("device:DML|dml_"),
    row(W::TensorFlow, P::Cuda, Figures, "OOM when allocating tensor", TENSOR, TRACE, "requested 768.00 KiB, gpu 1")
        .near("device:GPU|GPU:"),
    row(W::TensorFlow, P::Cpu, Figures, "OOM when allocating tensor", TENSOR,
        "OOM when allocating tensor with shape[1048576,1024] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by \
        allocator cpu", "requested 4.00 GiB").near("by allocator cpu"),
    row(W::TensorFlow, P::Unknown, Sure, "OOM when allocating tensor", TENSOR,
        "ResourceExhaustedError (see above for traceback): OOM when allocating tensor with shape[2304,384]", ""),
    bare(W::TensorFlow, P::Unknown, Sure, "failed to allocate memory [Op:",
        "ResourceExhaustedError: failed to allocate memory [Op:AddV2]"),
    row(W::TensorFlow, P::Cuda, Phrase, "Dst tensor is not initialized", "<free memory: {free} | <total memory: {capacity}",
        "tensorflow.python.framework.errors_impl.InternalError: Dst tensor is not initialized.", "")
        .says("TensorFlow could not copy a tensor to the card, which had no room for it (\"Dst tensor is not initialized\" means that){?: {free} of \
        its {capacity} was free when TensorFlow started}."),
    row(W::TensorFlow, P::Cuda, Figures, "unified memory; result: CUDA_ERROR_OUT_OF_MEMORY", "<failed to alloc {requested}",
        "failed to alloc 2147483648 bytes unified memory; result: CUDA_ERROR_OUT_OF_MEMORY: out of memory", "requested 2.00 GiB"),
    row(W::TensorFlow, P::Cuda, Figures, "ran out of memory trying to allocate", "trying to allocate {requested} | <GPU_{gpu}_bfc",
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 3.37GiB with freed_by_count=0. The caller indicates that this is \
        not a failure, but may mean that there could be performance gains if more memory were available.", "requested 3.37 GiB, gpu 0")
        .near("is not a failure").warning().tips(GOES_ON),
    row(W::Xla, P::Cuda, Figures, "ran out of memory trying to allocate",
        "trying to allocate {_} (rounded to {requested#} | trying to allocate {requested} | <GPU_{gpu}_bfc \
        | >>Limit: {limit#} InUse: {allocated#} MaxInUse: {peak#}",
        "external/tsl/tsl/framework/bfc_allocator.cc:479] Allocator (GPU_1_bfc) ran out of memory trying to allocate 27.93GiB (rounded \
        to 29995136256)requested by op", "requested 27.94 GiB, gpu 1").near("tsl/framework|external/xla"),
    row(W::TensorFlow, P::Cuda, Figures, "ran out of memory trying to allocate", BFC,
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 3.37GiB.  Current allocation summary follows.\nStats:\nLimit: \
        4294967296\nInUse: 2147483648\nMaxInUse: 3221225472",
        "requested 3.37 GiB, limit 4.00 GiB, allocated 2.00 GiB, peak 3.00 GiB, gpu 0"),
    bare(W::TensorFlow, P::Cuda, Sure, "== cuDevicePrimaryCtxGetState(device",
        "cuda_driver.cc:351] Check failed: CUDA_SUCCESS == cuDevicePrimaryCtxGetState(device, &flags, &active) (0 vs. 2) \
        CUDA_ERROR_OUT_OF_MEMORY: out of memory").near("(0 vs. 2)").says(NO_CONTEXT).tips(NO_CONTEXT_TIPS),
    row(W::TensorFlow, P::Cuda, Figures, "from device: CUDA_ERROR_OUT_OF_MEMORY", DRIVER,
        "&former_primary_context_is_active) (0 vs. 2) CUDA_ERROR_OUT_OF_MEMORY: out of memory\ncuda_driver.cc:806] failed to allocate 3.91G (4194304000 bytes) \
        from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory", "requested 3.91 GiB").near("former_primary_context_is_active")
        .says(NO_CONTEXT).tips(NO_CONTEXT_TIPS),
    row(W::TensorFlow, P::Cuda, Figures, "from device: CUDA_ERROR_OUT_OF_MEMORY", "<({requested}) ",
        "2025-03-17 17:48:09.854267: I tensorflow/stream_executor/cuda/cuda_driver.cc:739] failed to allocate 2.12G (2282521344 bytes) from \
        device: CUDA_ERROR_OUT_OF_MEMORY: out of memory", "requested 2.13 GiB")
        .near("I tensorflow/stream_executor|I tensorflow/compiler|I external/local_|I tensorflow/tsl").warning().tips(GOES_ON),
    row(W::TensorFlow, P::Cuda, Figures, "from device: CUDA_ERROR_OUT_OF_MEMORY", DRIVER,
        "cuda_driver.cc:828] failed to allocate 3.91G (4194304000 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "requested 3.91 GiB"),
    row(W::TensorFlow, P::Hip, Figures, "from device: HIP_ERROR", DRIVER,
        "rocm_driver.cc:600] failed to allocate 890.06M (933298432 bytes) from device: HIP_ERROR_OutOfMemory", "requested 890.06 MiB"),
    row(W::TensorFlow, P::Hip, Figures, "from device: hipError", DRIVER,
        "rocm_driver.cc:828] failed to allocate 3.91G (4194304000 bytes) from device: hipErrorOutOfMemory", "requested 3.91 GiB"),
    row(W::TensorFlow, P::Cpu, Figures, "on host: CUDA_ERROR_OUT_OF_MEMORY", "<failed to alloc {requested}",
        "cuda_driver.cc:802] failed to alloc 782237696 bytes on host: CUDA_ERROR_OUT_OF_MEMORY: out of memory", "requested 746.00 MiB")
        .says("TensorFlow could not get {?{requested}|a part} of the machine's memory (not the GPU's) in pages that stay in place, as transfers to \
        the card need them.").tips(&[
    "Pin less: fewer or smaller buffers in the input pipeline, or a machine with more memory.",
    "See what limits locked memory: `ulimit -l`.", ]),
];
