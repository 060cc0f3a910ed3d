//! Errors of drivers, runtimes and libraries, most of them without figures.

use crate::formats::oom_message::row::Trust::{Figures, Name, Phrase, Sure};
use crate::formats::oom_message::row::{Row, bare, row};
use crate::formats::oom_message::{Platform as P, Writer as W};

const ASCEND: &str = "bytesize={requested#} | size={requested#} | size:{requested#} | device_id={gpu} | device {gpu},";

const CUBLAS: &str = "cuBLAS could not get memory for its handle or workspace, which it takes from the card itself: the card has none left. The message has no figures, so who holds it is unknown.";
const CUDNN: &str = "cuDNN could not get memory, which it takes from the card itself: the card has none left. The message has no figures, so who holds it is unknown.";
const NCCL: &str = "NCCL could not get {?{requested}|memory} for its buffers, which it takes from the card itself: the card has none left. Who holds the card is not in the message.";
const CALLOC: &str = "failed to CUDA calloc {requested#}";

const DRIVER: &str = "A call of the driver for mapping memory failed, which PyTorch makes for expandable segments: the card (or the addresses or \
    handles of the process) had no room. The message has no figures, so who holds the card is unknown.";
const NVML: &str = "PyTorch could not get memory from the driver, and then failed to ask NVML how much was free, which it needs for its message: the card was full most likely. On Jetson and in some containers NVML does not answer.";
const SAVER: &str = "torch_memory_saver could not get memory from the driver: the card is full. SGLang and trainers use it to give memory back and take it again.";

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    bare(W::Runtime, P::Cuda, Phrase, "CUDA error: out of memory",
        "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    bare(W::CudaProgram, P::Cuda, Sure, "CUDA error !!!!! <out of memory> !!!!!", "CUDA error !!!!! <out of memory> !!!!!"),
    bare(W::Runtime, P::Cuda, Phrase, "CUDA driver error: out of memory", "RuntimeError: CUDA driver error: out of memory")
        .says(DRIVER),
    bare(W::Runtime, P::Cuda, Phrase, "failed with error out of memory",
        "cudaMalloc(&ptr, bytes) failed with error out of memory"),
    bare(W::CudaProgram, P::Cuda, Phrase, "GPUassert: out of memory", "GPUassert: out of memory kernel.cu 42"),
    bare(W::CudaProgram, P::Cuda, Name, "SimpleCudaMalloc_impl.hpp",
        "  what():  /thirdParty/mallocMC/src/include/mallocMC/reservePoolPolicies/SimpleCudaMalloc_impl.hpp(42):"),
    bare(W::CudaProgram, P::Cuda, Phrase, "parallel_for failed: out of memory",
        "terminate called after throwing an instance of 'thrust::system::system_error'\n  what():  parallel_for failed: out of \
        memory"),
    bare(W::CudaProgram, P::Cuda, Phrase, "std::bad_alloc: out of memory",
        "terminate called after throwing an instance of 'thrust::system::detail::bad_alloc'\nwhat(): std::bad_alloc: out of \
        memory").near("thrust"),
    row(W::CudaProgram, P::Cuda, Figures, "Error when executing GPU operator", "can't allocate {requested} on device {gpu}",
        "Error when executing GPU operator Resize encountered:\nCan't allocate 4294967296 bytes on device 1.", "requested 4.00 GiB, gpu 1")
        .near("bytes on device").whole(),
    bare(W::Runtime, P::Cuda, Name, "cudaErrorMemoryAllocation", "what():  cudaErrorMemoryAllocation: out of memory"),
    bare(W::Runtime, P::Cuda, Name, "CUDA_ERROR_OUT_OF_MEMORY", "Error: cuMemAlloc returned CUDA_ERROR_OUT_OF_MEMORY"),
    bare(W::Runtime, P::Cuda, Phrase, "Triton Error [CUDA]: out of memory", "RuntimeError: Triton Error [CUDA]: out of memory"),
    bare(W::Runtime, P::Hip, Phrase, "Triton Error [HIP]: out of memory", "RuntimeError: Triton Error [HIP]: out of memory"),
    bare(W::Runtime, P::Hip, Phrase, "HIP error: out of memory", "RuntimeError: HIP error: out of memory"),
    bare(W::Runtime, P::Hip, Name, "hipErrorOutOfMemory", "error: 'hipErrorOutOfMemory'(2) at main.cpp:7"),
    bare(W::Runtime, P::Xpu, Name, "UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
        "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"),
    bare(W::Runtime, P::Xpu, Name, "UR_RESULT_ERROR_OUT_OF_RESOURCES",
        "level_zero backend failed with error: 40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)"),
    bare(W::Runtime, P::Xpu, Name, "PI_ERROR_OUT_OF_RESOURCES",
        "RuntimeError: Native API failed. Native API returns: -5 (PI_ERROR_OUT_OF_RESOURCES)"),
    row(W::LevelZero, P::Xpu, Name, "ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", "memory for {requested} allocation",
        "zeMemAllocDevice returns ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY for 20 GiB allocation", "requested 20 GiB"),
    bare(W::Vulkan, P::Vulkan, Name, "VK_ERROR_OUT_OF_DEVICE_MEMORY",
        "Fatal: vkAllocateMemory failed with VK_ERROR_OUT_OF_DEVICE_MEMORY"),
    bare(W::Vulkan, P::Vulkan, Sure, "VK Error Code: ERROR_OUT_OF_DEVICE_MEMORY", "VK Error Code: ERROR_OUT_OF_DEVICE_MEMORY"),
    bare(W::Vulkan, P::Vulkan, Sure, "vkAllocateMemory failed -2", "vkAllocateMemory failed -2"),
    bare(W::CudaProgram, P::Cuda, Sure, "Out of memory on device. To view more detail about available memory on the GPU",
        "Out of memory on device. To view more detail about available memory on the GPU, use 'gpuDevice()'."),
    bare(W::Runtime, P::Cuda, Name, "CUSOLVER_STATUS_ALLOC_FAILED", "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED"),
    bare(W::Cublas, P::Cuda, Name, "CUBLAS_STATUS_ALLOC_FAILED",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`").says(CUBLAS),
    bare(W::Cublas, P::Hip, Name, "HIPBLAS_STATUS_ALLOC_FAILED",
        "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`").says(CUBLAS),
    bare(W::LuaTorch, P::Cuda, Sure, "Error in CuDNN: CUDNN_STATUS_ALLOC_FAILED",
        "install/share/lua/5.1/cudnn/init.lua:118: Error in CuDNN: CUDNN_STATUS_ALLOC_FAILED \
        (cudnnFindConvolutionForwardAlgorithm)").near(".lua:"),
    bare(W::Cudnn, P::Cuda, Name, "CUDNN_STATUS_ALLOC_FAILED", "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED")
        .says(CUDNN),
    row(W::Nccl, P::Cuda, Sure, "Cuda failure 2 'out of memory'", CALLOC, "Last error:\nCuda failure 2 'out of memory'", "").says(NCCL),
    row(W::Nccl, P::Cuda, Sure, "Cuda failure 'out of memory'", CALLOC,
        "NCCL WARN Cuda failure 'out of memory'\nhost:1:1 [3] include/alloc.h:185 NCCL WARN Failed to CUDA calloc 6291456 bytes", "requested 6.00 MiB")
        .says(NCCL),
    row(W::Nccl, P::Cuda, Sure, "Failed to CUDA calloc async", "calloc async {requested#}",
        "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nFailed to CUDA calloc async 4 bytes", "requested 4 bytes")
        .says("NCCL could not get {?{requested}|memory} for its buffers, which it takes from the card itself. Most often the card has none left; NCCL \
        prints this also where an earlier call on the card had failed."),
    row(W::Hami, P::Cuda, Figures, ")]: Device", "Device {gpu} OOM {peak#} / {limit#} | tried to allocate {requested}",
        "[HAMI-core Msg(4711:140:allocator.c:52)]: Device 0 OOM 25769803776 / 24696061952\nRuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB",
        "requested 1.00 GiB, limit 23.00 GiB, peak 24.00 GiB, gpu 0").near("HAMI-core").whole()
        .says("{?HAMi gives this container {limit} of the card, and with {requested} more it would have held {peak}|HAMi gives this container {limit} of \
        the card, and with what was requested it would have held {peak}}: the limit of the virtual GPU refused, not the card.")
        .tips(&["Ask for a larger part of the card: `nvidia.com/gpumem` (MiB) in the pod's resources.limits, CUDA_DEVICE_MEMORY_LIMIT outside Kubernetes.",
            "Hold less in the container: all its processes count together."]),
    row(W::Habana, P::Unknown, Figures, "PT_DEVMEM Allocation failed for size::", "size::{requested#}",
        "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::4194304000 (4000)MB", "requested 3.91 GiB")
        .tips(&["Use a smaller batch or shorter sequences, bfloat16, and checkpoints of activations.", "See who holds the card: `hl-smi`.",
            "Let the bridge find room in one piece: `PT_HPU_POOL_STRATEGY` and PT_HPU_MAX_COMPOUND_OP_SIZE bound what it collects before it runs."]),
    bare(W::SparkRapids, P::Cuda, Sure, "RetryOOM: GPU OutOfMemory",
        "com.nvidia.spark.rapids.jni.GpuSplitAndRetryOOM: GPU OutOfMemory: could not split inputs and retry")
        .says("RAPIDS for Spark had no room on the card for a batch, and could not cut it into smaller ones any more.")
        .tips(&["Run fewer tasks on the card at once: a lower `spark.rapids.sql.concurrentGpuTasks`.",
            "Make batches smaller: a lower `spark.rapids.sql.batchSizeBytes`, and more partitions: spark.sql.shuffle.partitions.",
            "Give it more of the card: `spark.rapids.memory.gpu.allocFraction`.", "See who else holds the card: {tool}."]),
    row(W::Ascend, P::Npu, Figures, "heap_alloc_managed out of memory", ASCEND,
        "[devmm_alloc_managed 126]<errno:12, 6> heap_alloc_managed out of memory, pp=0x1, bytesize=15032385536.", "requested 14.00 GiB"),
    row(W::Ascend, P::Npu, Figures, "halMemAlloc failed", ASCEND,
        "DevMemAllocHugePageManaged: halMemAlloc failed:size=15032385536(bytes), type=16, device_id=7", "requested 14.00 GiB, gpu 7"),
    row(W::Ascend, P::Npu, Sure, "EL0004:", ASCEND,
        "EL0004: [PID: 31] Failed to allocate memory.\n        Possible Cause: Available memory is insufficient.\n        Failed to \
        allocate resource[DeviceMemory] with info [size:2147483648].", "requested 2.00 GiB").near("failed to allocate memory").whole(),
    row(W::Ascend, P::Npu, Sure, "(EL0004)", ASCEND, "RecentErrMsg: Memory_Allocation_Failure(EL0004): Failed to allocate memory.", "")
        .near("failed to allocate memory").whole(),
    bare(W::Runtime, P::Cuda, Sure, "CUresult error: 2 (out of memory)",
        "[torch_memory_saver.cpp] CUresult error: 2 (out of memory) file=csrc/utils.h func=cu_mem_create line=187")
        .near("torch_memory_saver").says(SAVER),
    bare(W::Runtime, P::Cuda, Sure, "CUresult error  result=2 ",
        "[torch_memory_saver.cpp] CUresult error  result=2 file=csrc/torch_memory_saver.cpp func=cu_mem_create line=103")
        .near("torch_memory_saver").says(SAVER),
    bare(W::Runtime, P::Cuda, Sure, "cudaError error: 2 (out of memory)",
        "[torch_memory_saver.cpp] cudaError error: 2 (out of memory)  file=csrc/core.cpp func=resume line=172")
        .near("torch_memory_saver").says(SAVER),
    bare(W::Runtime, P::Cuda, Name, "CUFFT_ALLOC_FAILED", "RuntimeError: cuFFT error: CUFFT_ALLOC_FAILED"),
    bare(W::Runtime, P::Cuda, Name, "CUSPARSE_STATUS_ALLOC_FAILED",
        "CUDA error: CUSPARSE_STATUS_ALLOC_FAILED when calling `cusparseCreate(handle)`"),
    bare(W::PyTorch, P::Cuda, Sure, "NVML_SUCCESS == r INTERNAL ASSERT FAILED",
        "RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at \"../c10/cuda/CUDACachingAllocator.cpp\":830, please report \
        a bug to PyTorch.").near("CUDACachingAllocator").says(NVML),
    bare(W::PyTorch, P::Cuda, Sure, "nvmlInit_v2_() INTERNAL ASSERT FAILED",
        "NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL ASSERT FAILED at \
        \"../c10/cuda/CUDACachingAllocator.cpp\":813").near("CUDACachingAllocator").says(NVML),
    bare(W::PyTorch, P::Unknown, Phrase, "No executable batch size found, reached zero",
        "RuntimeError: No executable batch size found, reached zero.")
        .says("Accelerate halved the batch size each time that memory ran out, down to none: not even one sample at a time fits."),
    bare(W::Runtime, P::Cpu, Phrase, "cudaHostAlloc failed", "arena.cc:250] Init] cudaHostAlloc failed, ret[2], out of memory")
        .near("out of memory"),
    bare(W::Runtime, P::Hip, Name, "HSA_STATUS_ERROR_OUT_OF_RESOURCES",
        "RuntimeError: HSA Error 4104: HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary \
        resources."),
    row(W::CudaProgram, P::Cuda, Figures, "CudaCustomAllocator out of memory", "requestedSpace: {requested}",
        "ERROR: CudaCustomAllocator out of memory\n [requestedSpace:             148560384 B]", "requested 141.68 MiB"),
    row(W::OpenCl, P::Unknown, Sure, "Not enough allocatable device memory for this attack", "<device #{gpu}:",
        "* Device #5: Not enough allocatable device memory for this attack.", "gpu 5")
        .says("hashcat needs more of the card's memory for this attack than the driver lets a program allocate.")
        .tips(&["Use a slower setting, which needs less: a lower workload profile (`-w 1`), or leave out -O or add it, which changes the kernels.",
            "Bound what it takes: a lower `--kernel-accel` (-n).", "See who else holds the card: {tool}."]),
    bare(W::CudaProgram, P::Cuda, Sure, "unable to allocate enough memory to perform the requested operation",
        "CUDA error: unable to allocate enough memory to perform the requested operation (out-of-mem)").near("out-of-mem"),
    bare(W::CudaProgram, P::Cuda, Phrase, "CUDA error 2: out of memory",
        "Warp CUDA error 2: out of memory (in function alloc_device_async)"),
    row(W::CudaProgram, P::Cuda, Figures, "bytes on device 'cuda:", "<failed to allocate {requested#} | on device 'cuda:{gpu}'",
        "RuntimeError: Failed to allocate 4294967296 bytes on device 'cuda:0'", "requested 4.00 GiB, gpu 0"),
    row(W::CudaProgram, P::Cuda, Figures, "PxgCudaDeviceMemoryAllocator fail to allocate memory", "allocate memory {requested}",
        "PxgCudaDeviceMemoryAllocator fail to allocate memory 67108864 bytes!! Result = 2", "requested 64.00 MiB"),
    bare(W::CudaProgram, P::Cuda, Sure, "failed -> CUDA_ERROR_OUT_OF_MEMORY",
        "[AVHWDeviceContext @ 0x1] cu->cuMemAlloc(&data, size) failed -> CUDA_ERROR_OUT_OF_MEMORY: out of memory").whole(),
    bare(W::CudaProgram, P::Cuda, Sure, "CUDA: out of memory",
        "Check failed: e == cudaSuccess || e == cudaErrorCudartUnloading: CUDA: out of memory")
        .near("Check failed: e ==|InternalError"),
    bare(W::CudaProgram, P::Cuda, Sure, "[LightGBM] [Fatal] [CUDA] out of memory",
        "[LightGBM] [Fatal] [CUDA] out of memory /tmp/lightgbm/src/io/cuda/cuda_tree.cpp 72"),
    row(W::CudaProgram, P::Unknown, Figures, "Out of gpu memory. Free:", "free: {free#} asked: {requested#}",
        "amrex::Abort::0::Out of gpu memory. Free: 1048576 Asked: 134217728 !!!", "requested 128.00 MiB, free 1024.00 KiB"),
    row(W::Kokkos, P::Cuda, Sure, "failed, likely due to insufficient memory", "<allocation of size {requested}",
        "Kokkos failed to allocate memory for label \"x\". Allocation using MemorySpace named \"Cuda\" failed with the following error: \
        Allocation of size 1.279 G failed, likely due to insufficient memory. (The allocation mechanism was cudaMalloc().)",
        "requested 1.28 GiB").near("named \"Cuda").whole(),
    row(W::Kokkos, P::Cpu, Sure, "failed, likely due to insufficient memory", "<allocation of size {requested}",
        "Kokkos failed to allocate memory for label \"x\". Allocation using MemorySpace named \"Host\" failed with the following error: \
        Allocation of size 64.50 G failed, likely due to insufficient memory.", "requested 64.50 GiB").near("MemorySpace named").whole(),
    bare(W::OpenCl, P::Unknown, Name, "MEM_OBJECT_ALLOCATION_FAILURE",
        "pyopencl._cl.MemoryError: clEnqueueNDRangeKernel failed: MEM_OBJECT_ALLOCATION_FAILURE"),
    bare(W::Runtime, P::Cuda, Phrase, "CUDA runtime error: out of memory", "CUDA runtime error: out of memory in kernel.cu"),
    bare(W::CudaProgram, P::Cuda, Sure, "cudaSuccess (2 vs. 0) out of memory",
        "Check failed: error == cudaSuccess (2 vs. 0)  out of memory"),
    bare(W::LevelZero, P::Cpu, Name, "RESULT_ERROR_OUT_OF_HOST_MEMORY",
        "level_zero backend failed with error: 38 (UR_RESULT_ERROR_OUT_OF_HOST_MEMORY)"),
    row(W::MindSpore, P::Npu, Sure, "memory isn't enough and alloc failed", "alloc size: {requested}",
        "Device(id:0) memory isn't enough and alloc failed, kernel name: kernel_graph_0, alloc size: 1048576B.", "requested 1024.00 KiB"),
    row(W::MindSpore, P::Npu, Figures, "is smaller than required size", "<free memory size[{free#}] | required size[{requested#}]",
        "Memory not enough: current free memory size[1073741824] is smaller than required size[34359738368], dynamic offset [0]",
        "requested 32.00 GiB, free 1024.00 MiB"),
    row(W::MindSpore, P::Npu, Figures, "is more than total mem size", "<TotalUsedMemStatistics : {allocated#} | <alloc size : {requested#} | \
        size : {limit#}",
        "TotalUsedMemStatistics : 29356337664 plus TotalUsedByEventMemStatistics : 0 and plus alloc size : 301990400 is more than total mem \
        size : 29464985600.", "requested 288.00 MiB, limit 27.44 GiB, allocated 27.34 GiB"),
    row(W::MindSpore, P::Npu, Figures, "Out of memory!!! total[", "total[{limit#}] | malloc [{requested#}] failed",
        "For 'MallocDynamicMem', Out of memory!!! total[31138512896] (dynamic[0] memory pool[32000]) malloc [32768] failed!",
        "requested 32.00 KiB, limit 29.00 GiB"),
    bare(W::Ascend, P::Npu, Phrase, "error code is 207001", "RuntimeError: call aclnnMatmul failed, error code is 207001"),
    bare(W::Ascend, P::Npu, Name, "ACL_ERROR_RT_MEMORY_ALLOCATION",
        "aclrtMalloc failed, error code: 207001 ACL_ERROR_RT_MEMORY_ALLOCATION"),
    bare(W::LlamaCpp, P::Metal, Name, "kIOGPUCommandBufferCallbackErrorOutOfMemory",
        "command buffer failed: kIOGPUCommandBufferCallbackErrorOutOfMemory"),
    bare(W::Ascend, P::Npu, Sure, "[Error]: Failed to apply for memory",
        "ERR00100 PTA call acl api failed\n[Error]: Failed to apply for memory."),
    row(W::WebGpu, P::Unknown, Figures, "exceeds the max buffer size limit", "<Buffer size ({requested#}) | limit ({largest#})",
        "Buffer size (3185049600) exceeds the max buffer size limit (1073741824).", "requested 2.97 GiB, largest 1024.00 MiB"),
    row(W::WebGpu, P::Unknown, Figures, "is greater than the maximum buffer size", "<Buffer size {requested#} | buffer size ({largest#})",
        "wgpu error: Validation Error\n    Buffer size 2147483648 is greater than the maximum buffer size (268435456)",
        "requested 2.00 GiB, largest 256.00 MiB"),
    row(W::WebGpu, P::Unknown, Figures, "is larger than the maximum binding size", "<Binding size ({requested#}) | binding size ({largest#})",
        "Binding size (151781376) of [Buffer (unlabeled)] is larger than the maximum binding size (134217728).",
        "requested 144.75 MiB, largest 128.00 MiB"),
    bare(W::WebGpu, P::Unknown, Sure, "WebGPU device error(2): Out of memory",
        "[E:onnxruntime:Default, webgpu_context.cc:120 operator()] WebGPU device error(2): Out of memory"),
    bare(W::WebGpu, P::Unknown, Sure, "wgpu error: Out of Memory",
        "wgpu error: Out of Memory\n\nCaused by:\n  Not enough memory left."),
];
