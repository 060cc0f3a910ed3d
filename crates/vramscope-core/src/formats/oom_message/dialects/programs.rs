//! Servers, libraries and programs with allocators of their own.

use crate::formats::oom_message::row::Trust::{Figures, Name, Phrase, Sure};
use crate::formats::oom_message::row::{Row, bare, row};
use crate::formats::oom_message::{Platform as P, Writer as W};

const CACHE: &str = "<{requested} KV cache is needed | <{requested} | <seq len ({wanted}) | KV cache memory ({limit}) | maximum model length is {fits}";
/// What vLLM logs before it: of versions 0.6.4 and later, of the V1 engine, of older ones.
const PROFILED: &str = "<<reserved for KV Cache is -{short} | <<available KV cache memory: -{short} | <<model weights take {weights}; \
    | <<model loading took {weights} | <<loading model weights took {weights} | <<activation peak memory takes {activations}; \
    | <<non_torch_memory takes {other}; | <<total_gpu_memory ({capacity}) x | <<gpu_memory_utilization ({_}) = {limit}";
const LOADED: &str = "<<mem usage={weights} | <<avail mem={free}";
const ARENA: &str = "requested buffer of size {requested#}";
const ARENA_LEFT: &str = "<available memory of {room#} | requested bytes of {requested#}";
const ARENA_FULL: &str = "{?{requested} was requested, and ONNX Runtime's arena may take only {room_under_limit} more|ONNX Runtime's arena may not take \
    what was requested}: the limit that the session was given is reached{?[cpu] (of the machine's memory, not the GPU's)}. The device itself may have room.";
const ARENA_TIPS: &[&str] = &[
    "Raise the arena's limit, or leave it out: `gpu_mem_limit` of the CUDA provider, max_mem of OrtArenaCfg.",
    "Use a smaller batch or shorter inputs: the largest input shape decides how far the arena grows.",
    "Build the session anew after unusually large inputs: an arena keeps what it took.",
];
const POOL: &str = "failed to allocate {requested} | max/try size = {_}, {limit}";
const GGML: &str = "<allocating {requested} on device {gpu} | to allocate CUDA{gpu} buffer of size {exact#} | to allocate ROCm{gpu} buffer of size {exact#} | buffer of size {exact#}";
const CUDA_BUFFER: &str = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9866.00 MiB on device 1: cudaMalloc failed: out of memory\nggml_gallocr_reserve_n: failed to allocate CUDA1 buffer of size 10345250816\nllama_model_load: error loading model";
const UNPINNED: &str = "llama.cpp could not pin {?{requested}|a part} of the machine's memory (not the GPU's) and uses ordinary memory \
    instead: slower, but no failure.";
const NO_ROOM: &str = "SGLang's share of the card has no room for a KV cache beside the weights of the model{?: they take {weights}{? and leave \
    {free} of the card free}}.";
const EXLLAMA: &str =
    "ExLlama could not split the model and its cache over the cards: the last one was full before the last layer.";
const EXLLAMA_TIPS: &[&str] = &[
    "Shorten the cache: a lower `max_seq_len`, or a cache of fewer bits (Q4, Q8).",
    "Use weights of fewer bits per weight.",
    "See who else holds the card: {tool}.",
];
const TRANSFORMERS_TIPS: &[&str] = &[
    "Load the model in fewer bits: `quantization_config=BitsAndBytesConfig(load_in_4bit=True)`, or a smaller model.",
    "Make room on the card: end other programs on it, and hand back what an earlier model of this process held.",
    "Let the rest be computed on the processor (slow): `llm_int8_enable_fp32_cpu_offload=True` in BitsAndBytesConfig, with a device_map.",
    "Where device_map is \"auto\" and the model should fit, bound nothing: leave out max_memory, or set `device_map={\"\": 0}`.",
];
const TRITON_TIPS: &[&str] = &[
    "Use smaller blocks: lower `BLOCK_M`, BLOCK_N or BLOCK_K of the kernel.",
    "Use fewer stages of the pipeline: a lower `num_stages` in triton.Config; each stage keeps a copy of its tiles.",
    "Leave configurations that do not fit out of the list of @triton.autotune: GPUs differ in how much they have.",
    "Where torch.compile wrote the kernel: do without `mode=\"max-autotune\"`, or update PyTorch and Triton.",
];
const RUNNER_KILLED: &str = "Ollama's runner was killed from outside, most often by the system's out-of-memory killer: then the machine's memory (not the GPU's) ran out.";
const TRT: &str = "amount of GPU memory ({requested} | amount of memory ({requested} | requested size was {requested#} | {requested#}-byte buffer";

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row(W::Vllm, P::Cuda, Figures, "Free memory on device",
        "({free#G}/{capacity}) on startup | desired GPU memory utilization ({_}, {requested}) | cuda:{gpu} ",
        "ValueError: Free memory on device cuda:0 (31.50/47.50 GiB) on startup is less than desired GPU memory utilization (0.95, 45.00 \
        GiB).", "requested 45.00 GiB, capacity 47.50 GiB, free 31.50 GiB, gpu 0").near("desired GPU memory utilization"),
    row(W::Vllm, P::Cuda, Figures, "KV cache is needed, which is larger than", CACHE,
        "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, which is \
        larger than the available KV cache memory (12.00 GiB). Based on the available memory, the estimated maximum model length is \
        98304.", "requested 16.00 GiB, limit 12.00 GiB, wanted 131072, fits 98304"),
    row(W::Vllm, P::Cuda, Figures, "tokens that can be stored in KV cache", "<seq len ({wanted}) | stored in KV cache ({fits})",
        "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache (7344). \
        Try increasing", "wanted 32768, fits 7344"),
    row(W::Vllm, P::Cuda, Phrase, "No available memory for the cache blocks", PROFILED,
        "worker.py:267] the current vLLM instance can use total_gpu_memory (8.00GiB) x gpu_memory_utilization (0.70) = 5.60GiB\nworker.py:267] \
        model weights take 5.20GiB; non_torch_memory takes 0.03GiB; PyTorch activation peak memory takes 1.42GiB; the rest of the memory \
        reserved for KV Cache is -1.05GiB.\nValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
        "capacity 8.00 GiB, limit 5.60 GiB, other 0.03 GiB, weights 5.20 GiB, activations 1.42 GiB, short 1.05 GiB")
        .near("reserved for KV Cache is"),
    row(W::Vllm, P::Cuda, Phrase, "No available memory for the cache blocks", PROFILED,
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.", ""),
    row(W::Vllm, P::Cuda, Sure, "ValueError: No available memory for the cache blocks.", PROFILED,
        "raise ValueError(\"No available memory for the cache blocks. \" ValueError: No available memory for the cache blocks. Try increasing", ""),
    row(W::Vllm, P::Cuda, Figures, "reserved for KV Cache is -", "cache is -{short} | <model weights take {weights}; | <activation peak memory takes \
        {activations}; | <non_torch_memory takes {other};",
        "worker.py:267] model weights take 5.20GiB; non_torch_memory takes 0.03GiB; PyTorch activation peak memory takes 1.42GiB; the rest of the \
        memory reserved for KV Cache is -1.05GiB.\nexecutor_base.py:111] # cuda blocks: 0, # CPU blocks: 4681",
        "other 0.03 GiB, weights 5.20 GiB, activations 1.42 GiB, short 1.05 GiB").near("cuda blocks: 0,"),
    row(W::Vllm, P::Cuda, Figures, "Available KV cache memory: -", "<<loading model weights took {weights} | <<model loading took {weights} | >>memory: -{short}",
        "Loading model weights took 27.5000 GB\nINFO 05-20 10:11:30 [gpu_worker.py:298] Available KV cache memory: -0.75 GiB",
        "weights 27.50 GiB, short 0.75 GiB"),
    row(W::Vllm, P::Cuda, Figures, "Error in memory profiling. Initial free memory", "free memory {_}, current free memory {free#}",
        "AssertionError: Error in memory profiling. Initial free memory 38.50 GiB, current free memory 44.00 GiB. This happens when other processes",
        "free 44.00 GiB")
        .says("While vLLM measured what it needs, another process on the card gave memory back: more was free after it than before ({free}). Its \
        measurement is void, so it stopped; the card was not full.")
        .tips(&["Start it again when nothing else starts or ends on the card; start several servers one after the other.",
            "Give each server its own card: `{visible}`.", "See who else holds the card: {tool}."]),
    bare(W::Vllm, P::Cuda, Sure, "CUDA out of memory occurred when warming up sampler",
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering \
        `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.")
        .says("vLLM tried to draw tokens for as many requests as may run at once (max_num_seqs). The memory outside its share of the card was too small for that.")
        .tips(&["Run fewer requests at once: a lower `--max-num-seqs` (the default of 1024 needs most with a large vocabulary).",
            "Leave more of the card outside vLLM's share: a lower `--gpu-memory-utilization`.", "See who else holds the card: {tool}."]),
    row(W::Sglang, P::Cuda, Sure, "Not enough memory. Please try to increase --mem-fraction-static", LOADED,
        "[2025-03-29 18:18:34 TP0] Load weight end. type=Gemma3ForConditionalGeneration, dtype=torch.bfloat16, avail mem=3.64 GB, mem \
        usage=18.82 GB.\nRuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "free 3.64 GiB, weights 18.82 GiB")
        .says(NO_ROOM),
    row(W::Sglang, P::Cuda, Sure, "leave no GPU memory for the KV cache under --mem-fraction-static", LOADED,
        "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.3. Raise --mem-fraction-static above 0.320", "")
        .says(NO_ROOM),
    row(W::Sglang, P::Cuda, Sure, "is larger than the profiled value -", LOADED,
        "[2025-07-02 07:41:59 DP0 TP0] max_total_tokens=131072 is larger than the profiled value -561981. Use the profiled value instead.", "")
        .says(NO_ROOM),
    bare(W::Sglang, P::Cuda, Sure, "alloc_req_slots runs out of memory",
        "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for `--max-running-requests`.")
        .says("SGLang has more requests at once than slots for them; the card's memory is not what ran out."),
    row(W::Sglang, P::Cuda, Sure, "out of memory. Try to lower your batch size", "allocate {wanted} tokens | able tokens: {fits}",
        "RuntimeError: Prefill out of memory. Try to lower your batch size.\nTry to allocate 8192 tokens.\nAvailable tokens: 4096",
        "wanted 8192, fits 4096")
        .says("SGLang's KV cache has no room for the tokens of this batch{?: {wanted} are needed{? and {fits} are free}}."),
    row(W::Tgi, P::Cuda, Sure, "Not enough memory to handle", "to handle {wanted} total tokens",
        "RuntimeError: Not enough memory to handle 16000 total tokens with 4096 prefill tokens. You need to decrease `--max-batch-total-tokens`",
        "wanted 16000").near("total tokens").whole()
        .says("text-generation-inference tries the largest batch that may come when it starts. The card has no room for the KV cache of \
        {?{wanted} tokens|its tokens} at once (--max-batch-total-tokens) beside the weights of the model.")
        .tips(&["Hold fewer tokens at once: a lower `--max-batch-total-tokens`, or leave it out: then it is as large as the card allows.",
            "Make the largest batch smaller: a lower `--max-batch-prefill-tokens`, which --max-input-tokens may not exceed.",
            "Spread the weights over more cards: a higher `--num-shard`; or load quantised ones (--quantize)."]),
    bare(W::Tgi, P::Cuda, Sure, "Not enough memory to handle",
        "RuntimeError: Not enough memory to handle 4096 prefill tokens. You need to decrease `--max-batch-prefill-tokens`")
        .near("prefill tokens").whole()
        .says("text-generation-inference tries the longest batch that may come (--max-batch-prefill-tokens) when it starts. The weights of \
        the model leave no room on the card for its activations."),
    row(W::CuPy, P::Cuda, Figures, "Out of memory allocating",
        "allocating {requested} | (allocated so far: {allocated} | limit set to: {limit} | limit set to {limit}",
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 25,165,824 bytes (allocated so far: 3,221,225,472 bytes, limit set \
        to: 9,663,676,416 bytes).", "requested 24.00 MiB, limit 9.00 GiB, allocated 3.00 GiB").near("allocated so far"),
    row(W::CuPy, P::Cuda, Figures, "out of memory to allocate", "to allocate {requested} | (total {total} | limit set to {limit}",
        "cupy.cuda.memory.OutOfMemoryError: out of memory to allocate 1073741824 bytes (total 12373194752 bytes)",
        "requested 1024.00 MiB, allocated 10.52 GiB").near("(total"),
    row(W::OnnxRuntime, P::Unknown, Figures, "Failed to allocate memory for requested buffer of size", ARENA,
        "Failed to allocate memory for requested buffer of size 1073741824", "requested 1024.00 MiB"),
    row(W::OnnxRuntime, P::Cpu, Sure, "BFCArena::AllocateRawInternal", ARENA,
        "Non-zero status code returned while running Conv node. Name:'347_nchwc' Status Message: bfc_arena.cc:330 \
        onnxruntime::BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 285081600", "requested 271.88 MiB")
        .near("_nchwc").whole(),
    row(W::OnnxRuntime, P::Unknown, Sure, "BFCArena::AllocateRawInternal", ARENA,
        "bfc_arena.cc:376 void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool, onnxruntime::Stream*, bool, \
        onnxruntime::WaitNotificationFn) Failed to alloc", "").near("failed to alloc"),
    row(W::OnnxRuntime, P::Cpu, Figures, "is smaller than requested bytes of", ARENA_LEFT,
        "running TfIdfVectorizer node. Name:'TfIdfVectorizer' Status Message: bfc_arena.cc:376 Available memory of 0 is smaller than requested bytes \
        of 2048", "requested 2.00 KiB, room 0 bytes").near("TfIdfVectorizer|CPUExecutionProvider").says(ARENA_FULL)
        .tips(ARENA_TIPS),
    row(W::OnnxRuntime, P::Unknown, Figures, "is smaller than requested bytes of", ARENA_LEFT,
        "Available memory of 2097152 is smaller than requested bytes of 4194304", "requested 4.00 MiB, room 2.00 MiB")
        .says(ARENA_FULL).tips(ARENA_TIPS),
    row(W::OnnxRuntime, P::Cuda, Sure, "CUDA failure 2: out of memory", "; GPU={gpu} ",
        "[ONNXRuntimeError] : 1 : FAIL : onnxruntime::CudaCall CUDA failure 2: out of memory ; GPU=0 ; hostname=a", "gpu 0"),
    bare(W::OnnxRuntime, P::Cpu, Sure, "bad allocation",
        "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Exception during initialization: bad allocation").near("onnxruntimeerror"),
    bare(W::OnnxRuntime, P::DirectMl, Phrase, "Not enough memory resources are available",
        "DmlExecutionProvider\\src\\BucketizedBufferAllocator.cpp(122)\\onnxruntime.dll: Exception(1) 8007000E Not enough \
        memory resources are available to complete this operation.").near("dml|directml|8007000e"),
    row(W::DirectMl, P::DirectMl, Sure, "not enough GPU video memory available", "<tensor with {requested}",
        "RuntimeError: Could not allocate tensor with 536870912 bytes. There is not enough GPU video memory available!",
        "requested 512.00 MiB"),
    row(W::Paddle, P::Cuda, Figures, "Out of memory error on GPU",
        "error on GPU {gpu} | cannot allocate {requested} | available memory is only {free} | available memory is {free} | {used} memory \
        has been allocated",
        "ResourceExhaustedError: \n\nOut of memory error on GPU 0. Cannot allocate 20.000000MB memory on GPU 0, 9.500000GB memory has \
        been allocated and available memory is only 10.000000MB.", "requested 20.00 MiB, capacity 9.51 GiB, free 10.00 MiB, gpu 0"),
    row(W::Paddle, P::Cuda, Figures, "上出现内存不足错误", "<GPU {gpu} | 上分配 {requested} | 仅为 {free} | 已分配 {used}",
        "GPU 0上出现内存不足错误。无法在GPU 0上分配20.000000MB内存，已分配9.500000 GB内存，可用内存仅为0.000000B。",
        "requested 20.00 MiB, capacity 9.50 GiB, free 0 bytes, gpu 0"),
    row(W::Paddle, P::Cuda, Figures, "enforce allocating <= available failed", "failed, {requested#} > {free#}",
        "paddle.fluid.core.EnforceNotMet: enforce allocating <= available failed, 10737418240 > 1073741824",
        "requested 10.00 GiB, free 1024.00 MiB"),
    row(W::TensorRt, P::Cuda, Sure, "Cuda Runtime (out of memory)", TRT,
        "[TRT] [E] 1: [defaultAllocator.cpp::allocate::20] Error Code 1: Cuda Runtime (out of memory)\n[TRT] [W] Requested amount of \
        GPU memory (1073741824 bytes) could not be allocated.", "requested 1024.00 MiB"),
    row(W::TensorRt, P::Cuda, Sure, "allocate: 2 (out of memory)", TRT,
        "[E] [TRT] ../rtSafe/safeRuntime.cpp (25) - Cuda Error in allocate: 2 (out of memory)", ""),
    row(W::TensorRt, P::Cuda, Figures, "OutOfMemory (Requested size was", TRT,
        "[E] Error Code 2: OutOfMemory (Requested size was 17179869184 bytes.)", "requested 16.00 GiB"),
    row(W::TensorRt, P::Cuda, Figures, "insufficient memory on requested size of", "requested size of {requested#}",
        "Skipping tactic 0x1 due to insufficient memory on requested size of 15032385536 detected for tactic", "requested 14.00 GiB")
        .warning(),
    row(W::TensorRt, P::Cuda, Figures, "Tactic Device request:", "request: {requested} | available: {free}",
        "Tactic Device request: 4505MB Available: 3894MB. Device memory is insufficient to use tactic.",
        "requested 4505 MiB, free 3894 MiB").warning(),
    row(W::Rmm, P::Cuda, Sure, "Maximum pool size exceeded", POOL,
        "std::bad_alloc: out_of_memory: RMM failure at:pool_memory_resource.hpp:261: Maximum pool size exceeded (failed to allocate 64.0 \
        MiB): Not enough room to grow, current/max/try size = 256.0 MiB, 256.0 MiB, 64.0 MiB", "requested 64.0 MiB, limit 256.0 MiB")
        .near("rmm|memory_resource").says("RMM's pool reached the largest size that it was given; the card itself may have room."),
    row(W::Rmm, P::Cuda, Phrase, "Exceeded memory limit", "failed to allocate {requested}",
        "std::bad_alloc: out_of_memory: RMM failure at:/include/rmm/mr/device/limiting_resource_adaptor.hpp:143: Exceeded memory limit", "")
        .near("rmm/|limiting_resource").says("The limit that RMM was given (limiting_resource_adaptor) was reached; the card itself may have room."),
    row(W::Rmm, P::Cuda, Sure, "out_of_memory: CUDA error", POOL,
        "MemoryError: std::bad_alloc: out_of_memory: CUDA error (failed to allocate 9.31 GiB) at: \
        /include/rmm/mr/device/cuda_memory_resource.hpp", "requested 9.31 GiB").near("rmm|memory_resource"),
    row(W::Rmm, P::Cuda, Sure, "std::bad_alloc: CUDA error at", POOL,
        "MemoryError: std::bad_alloc: CUDA error at: ../include/rmm/mr/device/cuda_memory_resource.hpp68: cudaErrorMemoryAllocation out \
        of memory", "").near("rmm|memory_resource").whole(),
    bare(W::Rmm, P::Cuda, Name, "RMM_ERROR_OUT_OF_MEMORY", "RuntimeError: RMM error encountered: RMM_ERROR_OUT_OF_MEMORY"),
    bare(W::Numba, P::Cuda, Sure, "results in CUDA_ERROR_OUT_OF_MEMORY",
        "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY"),
    bare(W::Numba, P::Cpu, Sure, "cuMemHostAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
        "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemHostAlloc results in CUDA_ERROR_OUT_OF_MEMORY"),
    bare(W::PyCuda, P::Cuda, Sure, "cuMemAlloc failed: out of memory",
        "pycuda._driver.MemoryError: cuMemAlloc failed: out of memory"),
    bare(W::BitsAndBytes, P::Cuda, Sure, "Error out of memory at line",
        "Error out of memory at line 380 in file /git/bitsandbytes/csrc/pythonInterface.c"),
    row(W::Transformers, P::Cuda, Sure, "Make sure you have enough GPU RAM to fit the quantized model", "",
        "ValueError: Some modules are dispatched on the CPU or the disk. Make sure you have enough GPU RAM to fit the quantized model.", "")
        // In the source the name has a bracket behind it.
        .near("ValueError:")
        .says("The quantised model does not fit on the card, so a part of it would go to the machine's memory or the disk, which bitsandbytes \
        does not do by itself. No allocation failed.").tips(TRANSFORMERS_TIPS),
    bare(W::CTranslate2, P::Cuda, Sure, "CUDA failed with error out of memory",
        "RuntimeError: CUDA failed with error out of memory"),
    bare(W::CTranslate2, P::Cuda, Sure, "cuBLAS failed with status CUBLAS_STATUS_ALLOC_FAILED",
        "RuntimeError: cuBLAS failed with status CUBLAS_STATUS_ALLOC_FAILED"),
    bare(W::LmDeploy, P::Cuda, Sure, "[TM][ERROR] CUDA runtime error: out of memory",
        "[TM][ERROR] CUDA runtime error: out of memory /lmdeploy/src/turbomind/core/allocator.cc:49"),
    bare(W::TensorFlow, P::Cuda, Sure, "failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED",
        "cuda_blas.cc:226] failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED"),
    bare(W::TensorFlow, P::Cuda, Sure, "Could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED",
        "Could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED"),
    row(W::OnnxRuntime, P::Cuda, Sure, "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED", "; GPU={gpu} ",
        "onnxruntime::CudaCall CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0 ; hostname=a", "gpu 0").near("hostname=|onnxruntime"),
    row(W::Cntk, P::Cuda, Sure, "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED", "; GPU={gpu} ",
        "RuntimeError: CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0 ; ", "gpu 0").near("; GPU="),
    row(W::Triton, P::Cuda, Figures, "out of resource: shared memory, Required:", "Required: {requested#} | Hardware limit: {limit#}",
        "triton.runtime.autotuner.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 98304. Reducing block sizes \
        or `num_stages` may help.", "requested 128.00 KiB, limit 96.00 KiB")
        // An autotuner that only leaves a configuration out warns without the exception.
        .near("OutOfResources:")
        .says("A kernel needs {?{requested} of shared memory for each block, and the GPU has {limit} for that|more shared memory for each block than the GPU \
        has}. This is the kernel's memory inside the processor; the card's memory is not what ran out.").tips(TRITON_TIPS),
    bare(W::Blender, P::Unknown, Phrase, "System is out of GPU and shared host memory",
        "System is out of GPU and shared host memory")
        .says("The scene fits neither on the card nor, with what Blender moved there, into the machine's memory."),
    bare(W::Blender, P::Cuda, Sure, "Out of memory in cuMemAlloc(", "Out of memory in cuMemAlloc(&device_pointer, size)"),
    bare(W::Blender, P::Unknown, Phrase, "System is out of GPU memory", "Error: System is out of GPU memory"),
    row(W::LlamaCpp, P::Metal, Sure, "ggml_metal_get_buffer: error: buffer is nil", "< ({allocated#M} / {limit#M})",
        "ggml_metal_add_buffer: allocated 'alloc           ' buffer, size =   576.01 MiB, ( 5034.34 /  4096.00)\n\
        ggml_metal_get_buffer: error: buffer is nil", "limit 4096.00 MiB, allocated 5034.34 MiB")
        .says("{?The model and its buffers take {allocated}, and this Mac's GPU may use {limit}|Metal gave no buffer: the model and its buffers take \
        more than this Mac's GPU may use}."),
    bare(W::LlamaCpp, P::Unknown, Sure, "data != NULL && \"failed to allocate buffer\"",
        "GGML_ASSERT: whisper.cpp/ggml-backend.c:460: data != NULL && \"failed to allocate buffer\"").near("GGML_ASSERT:")
        .says("ggml, which llama.cpp and whisper.cpp compute with, could not get memory for a buffer. The message does not say how much was \
        requested, nor whether the card's memory or the machine's ran out.").tips(&["Use a smaller model, or one of fewer bits (q5_0, q8_0).",
            "Run on the CPU to see which memory it is: `--no-gpu` of whisper.cpp, --n-gpu-layers 0 of llama.cpp.", "See who else holds the card: {tool}."]),
    bare(W::CudaProgram, P::Cuda, Sure, "cudaAllocMapped() failed to allocate memory",
        "Exception: jetson.utils -- cudaAllocMapped() failed to allocate memory")
        .says("The program could not get memory that the processor and the GPU share. On a Jetson both use the same memory, and it is full.")
        .tips(&["Use smaller images or a smaller model, and let go of images that are no longer needed.",
            "Free memory of the board: close the desktop (`sudo systemctl isolate multi-user.target`) and other programs.",
            "See who holds it: `tegrastats`, and top.", "Add swap: it does not serve the GPU, but makes room for it."]),
    row(W::OpenAcc, P::Cuda, Sure, "call to cuMemAlloc returned error 2", "total/free CUDA memory: {capacity#}/{free#}",
        "Accelerator Fatal Error: call to cuMemAlloc returned error 2 (CUDA_ERROR_OUT_OF_MEMORY): Out of memory\n File: src/main.f90", "")
        .whole(),
    row(W::OpenAcc, P::Cuda, Figures, "Out of memory allocating",
        "allocating {requested} bytes of device | allocating {requested} | total/free CUDA memory: {capacity#}/{free#}",
        "Out of memory allocating 1073741824 bytes of device memory\ntotal/free CUDA memory: 17179869184/536870912",
        "requested 1024.00 MiB, capacity 16.00 GiB, free 512.00 MiB").near("bytes of device memory"),
    bare(W::Spconv, P::Cuda, Sure, "cuda failed with error 2 out of memory",
        "cuda failed with error 2 out of memory. use CUDA_LAUNCH_BLOCKING=1 to get correct traceback."),
    row(W::Mlc, P::Unknown, Figures, "Insufficient GPU memory error",
        "single GPU memory is {free} | model weight size ({requested}) and temporary buffer size ({more})",
        "TVMError: Insufficient GPU memory error: The available single GPU memory is 4762.535 MB, which is less than the sum of model weight \
        size (4958.250 MB) and temporary buffer size (609.250 MB).", "requested 5.44 GiB, free 4.65 GiB")
        .says("The weights and temporary buffers of the model {?need {requested}, and MLC LLM's share of the card leaves {free}|need more than MLC LLM's share of the card leaves}."),
    row(W::CudaJl, P::Cuda, Figures, "Out of GPU memory trying to allocate",
        "trying to allocate {requested} | GPU memory usage: {_}% ({_}/{capacity}) | GPU memory usage: {_}% ({used}/ | memory pool usage: {allocated} (",
        "ERROR: Out of GPU memory trying to allocate 1.907 GiB\nEffective GPU memory usage: 99.92% (7.919 GiB/7.926 GiB)\nMemory pool usage: \
        3.725 GiB (3.750 GiB reserved)", "requested 1.91 GiB, capacity 7.93 GiB, free 7.17 MiB, allocated 3.72 GiB"),
    row(W::Theano, P::Cuda, Figures, "bytes of device memory (",
        "<error allocating {requested#} | driver report {free} free and {capacity} total",
        "Error allocating 134217728 bytes of device memory (out of memory). Driver report 12582912 bytes free and 4294967296 bytes total",
        "requested 128.00 MiB, capacity 4.00 GiB, free 12.00 MiB").near("Error allocating").whole(),
    row(W::CudaProgram, P::Cuda, Figures, "TOutOfMemoryError: Error: Out of memory. Requested", "requested {requested}; free {free}",
        "NCudaLib::TOutOfMemoryError: Error: Out of memory. Requested 2560.5 MB; Free 1024.5 MB", "requested 2560.5 MiB, free 1024.5 MiB"),
    bare(W::ExLlama, P::Cuda, Phrase, "Insufficient VRAM for model and cache",
        "RuntimeError: Insufficient VRAM for model and cache").says(EXLLAMA).tips(EXLLAMA_TIPS),
    bare(W::ExLlama, P::Cuda, Phrase, "Insufficient VRAM in split for model and cache",
        "RuntimeError: Insufficient VRAM in split for model and cache").says(EXLLAMA).tips(EXLLAMA_TIPS),
    row(W::XgBoost, P::Cuda, Sure, "Memory allocation error on worker", "free memory: {free#} | requested memory: {requested#}",
        "Memory allocation error on worker 0: std::bad_alloc: cudaErrorMemoryAllocation: out of memory\n- Free memory: 12582912\n- \
        Requested memory: 1073741824", "requested 1024.00 MiB, free 12.00 MiB").whole(),
    row(W::Faiss, P::Cuda, Sure, "Fail to cudaMalloc", "cudaMalloc {requested} on device {gpu} (",
        "StandardGpuResources: alloc fail type FlatData dev 0 space Device (Fail to cudaMalloc 1610612736 bytes on device 0 (error 2 \
        out of memory))", "requested 1.50 GiB, gpu 0").near("out of memory"),
    row(W::Faiss, P::Cuda, Sure, "Failed to cudaMalloc", "cudaMalloc {requested} on device {gpu} (",
        "Error: 'err == cudaSuccess' failed: Failed to cudaMalloc 536870912 bytes on device 1 (error 2 out of memory", "requested 512.00 MiB, gpu 1")
        .near("out of memory"),
    row(W::Faiss, P::Cuda, Sure, "StandardGpuResources: alloc fail type", "dev {gpu} space | size {requested} (cudaMalloc",
        "Error: 'err == cudaSuccess' failed: StandardGpuResources: alloc fail type FlatData dev 2 space Device stream 0 size 2764800000 bytes \
        (cudaMalloc error out of memory [2])", "requested 2.57 GiB, gpu 2").near("cudaMalloc error out of memory"),
    bare(W::XgBoost, P::Cuda, Sure, "device_helpers.cuh(",
        "  what():  /workspace/src/predictor/../common/device_helpers.cuh(523): out of memory").near("): out of memory"),
    bare(W::Mxnet, P::Cuda, Sure, "cudaMalloc failed: out of memory",
        "mxnet.base.MXNetError: src/storage/./pooled_storage_manager.h:161: cudaMalloc failed: out of memory")
        .near("mxnet|storage_manager"),
    bare(W::Mxnet, P::Cuda, Sure, "cudaMalloc retry failed: out of memory",
        "mxnet.base.MXNetError: src/storage/pooled_storage_manager.h:157: cudaMalloc retry failed: out of memory"),
    row(W::LlamaCpp, P::Cuda, Sure, "cudaMalloc failed: out of memory", GGML,
        "allocating 51748.75 MiB on device 1: cudaMalloc failed: out of memory\nggml_gallocr_reserve_n_impl: failed to allocate CUDA1 \
        buffer of size 54262497280\ngraph_reserve: compute buffer allocation failed, retrying without pipeline parallelism",
        "requested 50.54 GiB, gpu 1").near("retrying without").warning()
        .says("llama.cpp could not get {?{requested}|memory} for its compute buffers and tried again without pipeline parallelism. Where the \
        model loaded after that, nothing failed.").tips(&[
    "Nothing has to be done while the program goes on: look further down in the log for an error that stopped it.",
    "If it did stop: a lower `--ubatch-size` makes the compute buffers smaller, a lower --ctx-size also the KV cache.", ]),
    row(W::LlamaCpp, P::Cuda, Sure, "cudaMalloc failed: out of memory", GGML,
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory\nllama_init_from_model: \
        failed to allocate buffer for kv cache", "requested 4096.00 MiB, gpu 0").near("for kv cache")
        .says("The KV cache{? of {requested}} did not fit on the card. A shorter context makes it smaller (--ctx-size; num_ctx in Ollama)."),
    row(W::LlamaCpp, P::Cuda, Sure, "cudaMalloc failed: out of memory", GGML,
        "allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory\nllama_init_from_model: failed to initialize the context: failed to \
        allocate compute pp buffers", "requested 4096.00 MiB, gpu 0").near("compute pp buffers|to allocate compute buffers")
        .says("The compute buffers for a batch of the prompt{?, {requested},} did not fit on the card beside the model and its KV cache.")
        .tips(&["Compute the prompt in smaller batches: a lower `--ubatch-size` (num_batch in Ollama); the default is 512.",
            "Put fewer layers on the card: a lower `--n-gpu-layers` (num_gpu in Ollama).",
            "Shorten the context: a lower `--ctx-size` (num_ctx in Ollama).",
            "Compute attention without its whole matrix: `--flash-attn on`.", "See who else holds the card: {tool}."]),
    row(W::LlamaCpp, P::Hip, Sure, "cudaMalloc failed: out of memory", GGML,
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9866.00 MiB on device 1: cudaMalloc failed: out of \
        memory\nggml_gallocr_reserve_n: failed to allocate ROCm1 buffer of size 10345250816", "requested 9.63 GiB, gpu 1")
        .near("allocate ROCm"),
    row(W::LlamaCpp, P::Cuda, Sure, "cudaMalloc failed: out of memory", GGML, CUDA_BUFFER, "requested 9.63 GiB, gpu 1"),
    bare(W::LlamaCpp, P::Cuda, Sure, "CUDA error 2 at", "CUDA error 2 at ggml-cuda.cu:359: out of memory").near("out of memory"),
    row(W::LlamaCpp, P::Cpu, Sure, "of pinned memory: invalid argument", "<failed to allocate {requested}",
        "ggml_cuda_host_malloc: failed to allocate 1900.00 MiB of pinned memory: invalid argument", "requested 1900.00 MiB").warning()
        .says(UNPINNED),
    row(W::LlamaCpp, P::Cpu, Sure, "of pinned memory: out of memory", "<failed to allocate {requested}",
        "ggml_cuda_host_malloc: failed to allocate 1024.00 MiB of pinned memory: out of memory", "requested 1024.00 MiB").warning()
        .says(UNPINNED),
    row(W::LlamaCpp, P::Vulkan, Figures, "Device memory allocation of size",
        "of size {requested#} failed | to allocate Vulkan{gpu} buffer",
        "ggml_vulkan: Device memory allocation of size 4757127168 failed.\nggml_vulkan: Requested buffer size exceeds device memory \
        allocation limit: ErrorOutOfDeviceMemory\nggml_gallocr_reserve_n: failed to allocate Vulkan0 buffer of size 4757127168",
        "requested 4.43 GiB, gpu 0").near("exceeds device").whole()
        .says("{?{requested} was requested in one buffer, more|A buffer was requested that is larger} than the Vulkan driver allows for one. Memory is not what ran out."),
    row(W::LlamaCpp, P::Vulkan, Figures, "Device memory allocation of size", "of size {requested#} failed",
        "ggml_vulkan: Device memory allocation of size 369098752 failed.\nggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory",
        "requested 352.00 MiB").whole(),
    row(W::LlamaCpp, P::Vulkan, Figures, "failed to allocate Vulkan", "allocate Vulkan{gpu} buffer of size {requested#}",
        "ggml_gallocr_reserve_n: failed to allocate Vulkan0 buffer of size 369098752", "requested 352.00 MiB, gpu 0"),
    row(W::LlamaCpp, P::Vulkan, Sure, "allocateMemory: ErrorOutOfDeviceMemory", "buffer of size {requested#}",
        "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory", ""),
    bare(W::Mlx, P::Metal, Sure, "[METAL] Command buffer execution failed: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
        "libc++abi: terminating due to uncaught exception of type std::runtime_error: [METAL] Command buffer execution failed: \
        Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)").whole(),
    bare(W::Mlx, P::Metal, Sure, "[METAL] Command buffer execution failed: Insufficient Memory",
        "terminating due to uncaught exception of type std::runtime_error: [METAL] Command buffer execution failed: \
        Insufficient Memory"),
    bare(W::Metal, P::Metal, Sure, "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
        "Execution of the command buffer was aborted due to an error during execution. Insufficient Memory \
        (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"),
    bare(W::LlamaCpp, P::Metal, Sure, "error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
        "error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"),
    row(W::Mlx, P::Metal, Figures, "greater than the maximum allowed buffer size",
        "<attempting to allocate {requested} | buffer size of {largest}",
        "RuntimeError: [metal::malloc] Attempting to allocate 48318382080 bytes which is greater than the maximum allowed buffer size \
        of 30064771072 bytes.", "requested 45.00 GiB, largest 28.00 GiB"),
    bare(W::Mlx, P::Metal, Sure, "[metal::malloc] Resource limit (",
        "RuntimeError: [metal::malloc] Resource limit (499000) exceeded.")
        .says("MLX holds more buffers at once than Metal allows (the number in brackets): their count ran out, not their bytes.")
        .tips(&["Compute what is pending more often: `mx.eval` in the loop; a graph that grows keeps every array in it alive.",
            "Give back what MLX keeps for later: `mlx.core.clear_cache()`.",
            "Update MLX and mlx-lm: several models held a buffer for each token."]),
    row(W::Mlx, P::Metal, Figures, "[malloc_or_wait] Unable to allocate", "unable to allocate {requested}",
        "RuntimeError: [malloc_or_wait] Unable to allocate 1073741824 bytes.", "requested 1024.00 MiB"),
    row(W::Ollama, P::Cpu, Figures, "model requires more system memory", "system memory ({requested}) than is available ({free})",
        "{\"error\":\"model requires more system memory (63.6 GiB) than is available (18.9 GiB)\"}", "requested 63.6 GiB, free 18.9 GiB")
        .says("The model needs {?{requested}|more} of the machine's memory (not the GPU's){?, and {free} is available| than is available}."),
    bare(W::Ollama, P::Unknown, Phrase, "you may not have enough available memory to run this model",
        "Error: llama runner exited, you may not have enough available memory to run this model")
        .says("Ollama's runner stopped, and Ollama guesses that memory ran out; its log (journalctl -u ollama) has the error itself."),
    bare(W::Ollama, P::Cpu, Sure, "llama runner process has terminated: signal: killed",
        "Error: llama runner process has terminated: signal: killed").says(RUNNER_KILLED),
    bare(W::Ollama, P::Cpu, Sure, "msg=\"llama runner terminated\" error=\"signal: killed\"",
        "level=ERROR source=server.go:415 msg=\"llama runner terminated\" error=\"signal: killed\"").says(RUNNER_KILLED),
    bare(W::LlamaCpp, P::Unknown, Sure, "not enough space in the context's memory pool",
        "ggml_new_object: not enough space in the context's memory pool (needed 3539648, available 3539280)")
        .says("ggml computed the size of one of its own buffers too small: a fault of the program or of its settings. Memory is not what \
        ran out.")
        .tips(&["Update llama.cpp, or the program that has it inside.", "Until then a smaller batch or context may avoid it: `--batch-size`, `--ctx-size`."]),
    bare(W::LlamaCpp, P::Cpu, Phrase, "mmap failed: Cannot allocate memory",
        "llama_model_load: error loading model: mmap failed: Cannot allocate memory"),
    row(W::LlamaCpp, P::Cpu, Figures, "failed to mlock", "mlock {requested#}-byte buffer",
        "warning: failed to mlock 1073741824-byte buffer (after previously locking 0 bytes): Cannot allocate memory", "requested 1024.00 MiB")
        .warning().says("llama.cpp could not lock {?{requested}|a part} of the model in the machine's memory (not the GPU's): the system may page it \
        out, but nothing failed."),
    bare(W::LlamaCpp, P::Hip, Sure, "ROCm error: out of memory", "ggml-cuda.cu:67: ROCm error\nROCm error: out of memory"),
    bare(W::LlamaCpp, P::Unknown, Phrase, "failed to allocate buffer for kv cache",
        "llama_init_from_model: error: failed to allocate buffer for kv cache"),
    bare(W::LlamaCpp, P::Unknown, Phrase, "unable to allocate backend buffer",
        "llama_model_load: error loading model: unable to allocate backend buffer"),
    row(W::LlamaCpp, P::Vulkan, Phrase, "unable to allocate Vulkan", "unable to allocate Vulkan{gpu} buffer",
        "llama_model_load: error loading model: unable to allocate Vulkan0 buffer", "gpu 0"),
    row(W::LlamaCpp, P::Cuda, Phrase, "unable to allocate CUDA", "unable to allocate CUDA{gpu} buffer",
        "llama_model_load: error loading model: unable to allocate CUDA1 buffer", "gpu 1"),
    row(W::LlamaCpp, P::Hip, Phrase, "unable to allocate ROCm", "unable to allocate ROCm{gpu} buffer",
        "llama_model_load: error loading model: unable to allocate ROCm0 buffer", "gpu 0"),
    row(W::LlamaCpp, P::Cpu, Figures, "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate", "buffer of size {requested#}",
        "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 437944320\nalloc_tensor_range: failed to allocate \
        CPU buffer of size 437944320", "requested 417.66 MiB").whole(),
    row(W::LlamaCpp, P::Cpu, Figures, "failed to allocate CPU buffer of size", "buffer of size {requested#}",
        "alloc_tensor_range: failed to allocate CPU buffer of size 437944320", "requested 417.66 MiB"),
    row(W::LlamaCpp, P::Metal, Figures, "failed to allocate Metal buffer of size", "buffer of size {requested#}",
        "ggml_gallocr_reserve_n: failed to allocate Metal buffer of size 34681522080", "requested 32.30 GiB"),
    row(W::LlamaCpp, P::Xpu, Figures, "ggml_backend_sycl_buffer_type_alloc_buffer: can't",
        "can't allocate {requested} of memory on device | can't malloc {requested} memory on device | SYCL{gpu} buffer",
        "ggml_backend_sycl_buffer_type_alloc_buffer: can't allocate 12745011200 Bytes of memory on device\nalloc_tensor_range: failed to \
        allocate SYCL0 buffer of size 12745011200", "requested 11.87 GiB, gpu 0").whole(),
    row(W::LlamaCpp, P::Xpu, Figures, "failed to allocate SYCL", "SYCL{gpu} buffer of size {requested#}",
        "alloc_tensor_range: failed to allocate SYCL0 buffer of size 12745011200", "requested 11.87 GiB, gpu 0"),
    row(W::LlamaCpp, P::Cpu, Figures, "insufficient memory (attempted to allocate", "attempted to allocate {requested}",
        "ggml_aligned_malloc: insufficient memory (attempted to allocate 12288.00 MB)", "requested 12288.00 MiB"),
    row(W::Paddle, P::Cuda, Figures, "Cannot malloc", "malloc {requested} GPU memory",
        "system_allocator.cc:121] Cannot malloc 195.801 MB GPU memory. Please shrink FLAGS_fraction_of_gpu_memory_to_use or \
        FLAGS_initial_gpu_memory_in_mb", "requested 195.80 MiB").near("FLAGS_fraction_of_gpu_memory_to_use"),
    row(W::Paddle, P::Cpu, Figures, "Fail to alloc memory of", "alloc memory of {requested#} size",
        "ResourceExhaustedError: Fail to alloc memory of 1048576000 size, error code is 12.", "requested 1000.00 MiB"),
    row(W::TensorRt, P::Cuda, Figures, "Requested amount of GPU memory (", TRT,
        "[TRT] [W] Requested amount of GPU memory (1073741824 bytes) could not be allocated.", "requested 1024.00 MiB"),
    row(W::TensorRt, P::Cuda, Figures, "Requested amount of memory (", TRT,
        "[TensorRT] ERROR: Requested amount of memory (268435456 bytes) could not be allocated.", "requested 256.00 MiB")
        .near("could not be allocated"),
    bare(W::TensorRt, P::Cuda, Sure, "OutOfMemory (no further information",
        "[E] 2: [virtualMemoryBuffer.cpp::resizePhysical::127] Error Code 2: OutOfMemory (no further information)"),
    row(W::TrtLlm, P::Cuda, Sure, "Executor creation failed due to insufficient",
        "Total GPU memory (GiB): {capacity#G} | component creation attempt (GiB): {free#G}",
        "RuntimeError: Executor creation failed due to insufficient GPU memory.\n\nThe following component could not be created: KV \
        cache\nTotal GPU memory (GiB): 95.00\nFree GPU memory before component creation attempt (GiB): 16.95", "capacity 95.00 GiB, free 16.95 GiB")
        .whole().says("The card has no room for a part of TensorRT-LLM's executor{?[capacity told], which the text names}{?: before it tried, {free} of {capacity} was free}."),
    row(W::TrtLlm, P::Cuda, Sure, "[TensorRT-LLM][ERROR] CUDA runtime error in", "",
        "[TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n, mCudaStream->get()): out of memory", "")
        // Lines of a log are often cut.
        .near("out of mem"),
];
