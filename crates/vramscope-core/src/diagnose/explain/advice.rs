//! What to do, as text by program and case. A setting to copy is between backticks. {tool}, {holders}, {watch}, `{module}`,
//! `{conf}`, `{visible}` and `{blocking}` are the words of the card's vendor, other names are figures (`words`). `[2.1]` before a
//! line: only for releases that have it; `[-1.15]`: only if the message is of that release or an older one; `[windows]`, `[not
//! windows]`: what `remedies` knows of the message.

use crate::formats::oom_message::{Platform, Writer};

/// Lines of advice, most promising first.
pub(super) type Advice = &'static [&'static str];

pub(super) const WHO: &str = "See who else holds the card: {tool}.";
const SMALLER: &str = "Use a smaller batch, or work in chunks.";

/// Advice for programs with settings of their own, and for host memory; `None` for PyTorch's allocators and for bare errors in
/// its text, where figures decide.
pub(super) fn of_program(writer: Writer, platform: Platform) -> Option<Advice> {
    Some(match (writer, platform) {
        (Writer::LlamaCpp, Platform::Cpu) => &[
            "Use a smaller quantisation of the model, or a smaller model: what is not on the card takes the machine's memory.",
            "Put more layers on the card, if it has room: a higher `--n-gpu-layers` (num_gpu in Ollama).",
            "Let the system page the file in as it is read: leave out `--no-mmap` (use_mmap in Ollama).",
            "Shorten the context, which sizes the KV cache: a lower --ctx-size (num_ctx in Ollama).",
        ],
        (Writer::LlamaCpp, Platform::Metal) => &[
            "Put fewer layers on the GPU: a lower `--n-gpu-layers`.",
            "Shorten the context: a lower `--ctx-size`.",
            "Let the GPU use more of the Mac's memory: `sudo sysctl iogpu.wired_limit_mb` with a number of MiB (macOS 15 and later).",
        ],
        (Writer::Xla, Platform::Tpu) => &[
            "Use a smaller batch, or bfloat16 for what is float32.",
            "Keep fewer activations: `jax.checkpoint` around the layers, so that they are computed again in the backward pass.",
            "Spread the arrays over more chips: a Mesh and NamedSharding, or jit with in_shardings.",
            "See what the program needs before it runs: `jax.jit(f).lower(*args).compile().memory_analysis()`; arguments that are not used again can be given back with donate_argnums.",
            "See what holds the device: `jax.profiler.save_device_memory_profile(\"memory.prof\")` before the step that fails; vramscope and pprof read it.",
        ],
        (Writer::TorchXla, _) => &[
            "Use a smaller batch, or bfloat16: `torch.autocast(\"xla\", dtype=torch.bfloat16)`.",
            "Keep fewer activations: `torch_xla.utils.checkpoint.checkpoint` around the layers, so that they are computed again in the backward pass.",
            "Spread the model over more chips: FSDP of torch_xla.distributed.fsdp, or SPMD: `torch_xla.distributed.spmd`.",
            "End each step with `xm.mark_step()` (torch_xla.sync() in new releases): what is not cut there becomes one program, and grows.",
            "See what the chip holds: `xm.get_memory_info(xm.xla_device())`.",
        ],
        (Writer::TensorFlow, Platform::Tpu) => &[
            "Use a smaller batch: the global batch is divided over the cores, and each holds its part.",
            "Compute in half precision: `tf.keras.mixed_precision.set_global_policy(\"mixed_bfloat16\")`.",
            "Keep fewer activations: `tf.recompute_grad` around the layers, so that they are computed again in the backward pass.",
            "Batches that are a multiple of 8 for each core, and features that are a multiple of 128, are not padded.",
            "Or use a TPU with more memory for each core.",
        ],
        (Writer::WebGpu, _) => &[
            "Use a smaller input, a smaller batch or a smaller model: a browser allows less than the card has, and bounds each buffer.",
            "Ask for larger buffers where the adapter has them: `requiredLimits: { maxBufferSize, maxStorageBufferBindingSize }` in requestDevice; webgpureport.org shows what it has.",
        ],
        (Writer::Ollama, _) => &[
            "Use a smaller model or a smaller quantisation of it.",
            "Shorten the context: a lower `num_ctx`.",
            "Close other programs, or stop other models: `ollama ps` lists them, ollama stop ends one.",
        ],
        (_, Platform::Cpu) if writer.neighbour().is_some() => &[
            "Load less into the machine's memory at once: a smaller batch, fewer workers, less read ahead, memory-mapped files.",
            "Or give the machine, container or job more memory.",
        ],
        (Writer::OnnxRuntime | Writer::TensorFlow | Writer::DirectMl, Platform::DirectMl) => &[
            "Use smaller images, a smaller batch or a smaller model; DirectML has no cache to give back.",
            "Close programs that use the card: Windows' Task Manager shows what each holds (GPU memory).",
        ],
        (Writer::Mps, _) => &[
            "Use a smaller batch, or a model of half precision.",
            "Raise the limit if the machine has memory to spare (the system may become unstable): `PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0`, in the shell or before torch is imported.",
        ],
        (Writer::ComfyUi, _) => COMFY_UI,
        (Writer::Sglang, _) => &[
            "Where the KV cache has no room: a higher `--mem-fraction-static`; where the failure comes later, in a batch or a CUDA graph, a lower one.",
            "Bound the longest input: a lower `--context-length`, and fewer requests at once: a lower --max-running-requests.",
            "Spread the weights over more cards: a higher `--tp`.",
            "Or load quantised weights (AWQ, GPTQ, FP8).",
            WHO,
        ],
        (Writer::Tgi, _) => IN_TGI,
        (Writer::Cpu, _) => &[
            "[requested >= 16 GiB] See which tensor takes {requested} at once: the last line of your own code in the traceback. Often its shape is wrong.",
            "Load less into the machine's memory at once: smaller `prefetch_factor` and fewer workers in the DataLoader, memory-mapped files, or a machine with more memory.",
            "Load checkpoints without a second copy: `torch.load(path, mmap=True, map_location=\"cpu\")`.",
        ],
        (Writer::Killer, _) => &[
            "[not kernel] See whether the system's out-of-memory killer did it: `dmesg -T | grep -i -E \"killed process|oom\"` (as root).",
            "Give the container or job more memory (docker run --memory, resources.limits.memory, --mem of Slurm), or let it use less.",
            "Load less at once: fewer DataLoader workers, a smaller `prefetch_factor`, memory-mapped files; load checkpoints once and not in every process.",
        ],
        (Writer::Slurm, _) => &[
            "Ask for more memory on the machine: `#SBATCH --mem` or --mem-per-cpu.",
            "See what the job used at most: `sacct -o JobID,MaxRSS,ReqMem,State`.",
            "Load less at once: fewer DataLoader workers, memory-mapped files; load checkpoints once and not in every process.",
        ],
        (Writer::Ray, _) => &[
            "Run fewer tasks at once on the node: a higher `num_cpus` for each, or its `memory` resource.",
            "See what holds the memory: `ray memory`, and the processes on the node.",
            "The share of memory at which Ray starts to kill is `RAY_memory_usage_threshold`; a node with more memory is the safer way.",
        ],
        (Writer::Shm, _) => &[
            "Give the container more shared memory: `docker run --shm-size=8g` or --ipc=host; in Kubernetes an emptyDir of medium Memory at /dev/shm.",
            "Use fewer workers, or none: `DataLoader(num_workers=0)`; smaller batches and a smaller prefetch_factor also help.",
            "See how full it is while the program runs: `df -h /dev/shm`.",
        ],
        (Writer::Xla, _) => &[
            "Let JAX take more of the card: `XLA_PYTHON_CLIENT_MEM_FRACTION=0.95` (the default is 0.75).",
            "See whether preallocation is what fails, for instance beside another process: `XLA_PYTHON_CLIENT_PREALLOCATE=false`.",
            "Use a smaller batch, or jax.checkpoint on the layers that keep most.",
            "See what holds the device: `jax.profiler.save_device_memory_profile(\"memory.prof\")` before the step that fails; vramscope and pprof read it.",
        ],
        (Writer::TensorFlow, _) => &[
            "Use a smaller batch: TensorFlow takes the whole card when it starts, so what it ran out of is mostly its own.",
            "[2.0] Compute in half precision: `tf.keras.mixed_precision.set_global_policy(\"mixed_float16\")`.",
            "[2.0] Where free pieces are too small: `TF_GPU_ALLOCATOR=cuda_malloc_async` takes memory from the driver's pool instead of one large arena.",
            "[-1.15] Beside other programs on the card, take memory as it is needed: `config.gpu_options.allow_growth = True` in the tf.ConfigProto that tf.Session gets.",
            "[-1.15] Or give each program its share: config.gpu_options.per_process_gpu_memory_fraction.",
            "[2.0] Beside other programs on the card, take memory as it is needed: `tf.config.experimental.set_memory_growth(tf.config.list_physical_devices(\"GPU\")[0], True)` (or TF_FORCE_GPU_ALLOW_GROWTH=true), before anything else uses the card.",
            "[2.0] Or give each program its share: tf.config.set_logical_device_configuration with a memory_limit in MiB.",
            "[2.0] See what is in use and what was at most: `tf.config.experimental.get_memory_info(\"GPU:0\")`.",
            WHO,
        ],
        (Writer::CuPy, _) => &[
            "Give back what the pool keeps and nobody uses: `cupy.get_default_memory_pool().free_all_blocks()`.",
            "Raise or remove the pool's limit, if there is one: `CUPY_GPU_MEMORY_LIMIT=0`.",
            "Work in chunks, or in a smaller type.",
            WHO,
        ],
        (Writer::Rmm, _) => &[
            "Where a pool is set, let it grow to what the card has: `rmm.reinitialize(pool_allocator=True, maximum_pool_size=None)`; a pool that is to be larger than the card fails.",
            "Spill to the machine's memory: `rmm.reinitialize(managed_memory=True)`, or with cuDF `cudf.set_option(\"spill\", True)`.",
            "Work on smaller partitions of the data.",
            "See which calls take the memory: an RMM logging_resource_adaptor writes a log that vramscope opens.",
            WHO,
        ],
        (Writer::Numba, _) => &[
            "Let go of device arrays that are no longer needed: `del d_array`; Numba frees them when nothing refers to them.",
            "Give back what Numba keeps for later: `numba.cuda.current_context().deallocations.clear()`.",
            "Copy and work in chunks.",
            WHO,
        ],
        (Writer::OnnxRuntime, _) => &[
            "Use a smaller batch or shorter inputs: the largest input shape decides how far the arena grows.",
            "Let the arena grow by what is requested instead of doubling: `(\"CUDAExecutionProvider\", {\"arena_extend_strategy\": \"kSameAsRequested\"})` as the session's provider; gpu_mem_limit there bounds it.",
            WHO,
        ],
        (Writer::Paddle, _) => &[
            "Use a smaller batch.",
            "Let the allocator take memory as it is needed: `FLAGS_allocator_strategy=auto_growth`.",
            WHO,
        ],
        (Writer::LlamaCpp, _) => &[
            "Put fewer layers on the card: a lower `--n-gpu-layers`; the others run on the CPU.",
            "Shorten the context, which sizes the KV cache: a lower `--ctx-size`.",
            "Store the KV cache in fewer bits: `--cache-type-k q8_0 --cache-type-v q8_0` (with flash attention).",
            "Where the compute buffers are what does not fit: a lower `--ubatch-size`.",
            "Over several cards, give the one that failed a smaller part with --tensor-split; or use a smaller quantisation.",
            WHO,
        ],
        (Writer::TensorRt, _) => &[
            "When it builds an engine, bound what tactics may take: `trtexec --memPoolSize=workspace:2048` (MiB).",
            "Build for smaller inputs: the largest shape of the profile decides; or in FP16 or INT8.",
            "When it runs one, share the activations' memory between contexts (createExecutionContextWithoutDeviceMemory).",
            WHO,
        ],
        (Writer::TrtLlm, _) => &[
            "Give the KV cache a smaller share of what is free: a lower `free_gpu_memory_fraction` in kv_cache_config (the default is 0.9).",
            "Take smaller batches: a lower `--max_num_tokens` and --max_batch_size; bound the longest input: --max_seq_len.",
            "Spread the weights over more cards: a higher `--tp_size`; or load quantised ones.",
            WHO,
        ],
        (Writer::Mlc, _) => &[
            "Give it a larger share of the card: a higher `gpu_memory_utilization` (the default is 0.85).",
            "Make the temporary buffers smaller: a lower `--prefill-chunk-size` of mlc_llm gen_config.",
            "Use a model of fewer bits, or spread it over more cards: `--tensor-parallel-shards`.",
        ],
        (Writer::CudaJl, _) => &[
            "Let go of arrays that are no longer needed, and give back what the pool keeps: `GC.gc(); CUDA.reclaim()`; CUDA.unsafe_free! frees one at once.",
            "Let Julia collect sooner: `JULIA_CUDA_SOFT_MEMORY_LIMIT` in the environment.",
            SMALLER,
            WHO,
        ],
        (Writer::BitsAndBytes, _) => &[
            "bitsandbytes takes this memory itself, most often for paged optimizers (managed memory, which the machine's memory must have room for): try an optimizer that is not paged, `adamw_bnb_8bit`.",
            "On WSL give the virtual machine more memory: `memory=` in .wslconfig.",
            "Use a smaller batch or a smaller rank of the adapters.",
            WHO,
        ],
        (Writer::Mlx | Writer::Metal, _) => &[
            "Use a smaller batch, a shorter context or a smaller quantisation of the model.",
            "Give back what MLX keeps for later: `mlx.core.clear_cache()`; mlx.core.set_cache_limit bounds it.",
            "Let the GPU use more of the Mac's memory: `sudo sysctl iogpu.wired_limit_mb` with a number of MiB (macOS 15 and later).",
        ],
        (Writer::OpenCl, _) => &[
            "Take it in smaller buffers: drivers bound the size of a single one, often to a quarter of the card (CL_DEVICE_MAX_MEM_ALLOC_SIZE).",
            "Release buffers that are no longer needed; an image or a batch of half the size also tells whether memory is the reason.",
            "See who else holds the card.",
        ],
        (Writer::LevelZero | Writer::Vulkan, _) => &[
            "Take it in smaller buffers: drivers also bound the size of a single one.",
            "[xpu] Where the driver allows it, ask for larger ones: `UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1` (SYCL on Level Zero).",
            "See who else holds the card.",
        ],
        (Writer::Ascend | Writer::MindSpore, _) => &[
            SMALLER,
            "See who holds the NPU: `npu-smi info`.",
            "On MindSpore bound what one process takes: `max_device_memory` in set_context.",
        ],
        (Writer::OpenAcc, _) => &[
            "Keep fewer arrays on the device at once: shorter data regions, `exit data delete` where an array is no longer needed.",
            "Run fewer MPI ranks on one card.",
            WHO,
        ],
        (Writer::XgBoost, _) => &[
            "Use `QuantileDMatrix` in place of DMatrix, and a lower max_bin.",
            "Sample rows on the card: `sampling_method=gradient_based` with a lower subsample.",
            WHO,
        ],
        (Writer::Faiss, _) => &[
            "Let Faiss set less aside: `StandardGpuResources.setTempMemory`.",
            "Shard the index over cards, or store it compressed (IVF-PQ, float16).",
            WHO,
        ],
        (Writer::CTranslate2, _) => &[
            "Use a smaller model, or fewer bits: `compute_type=\"int8\"` (int8_float16 keeps the rest in half precision).",
            "Search less at once: a lower `beam_size`, and a lower batch_size where audio or sentences are batched.",
            "See who else holds the card, also PyTorch in the same process: {tool}.",
        ],
        (Writer::LmDeploy, _) => &[
            "Give the KV cache a smaller share of what is free: a lower `--cache-max-entry-count` (the default is 0.8).",
            "Bound the longest input: a lower `--session-len`, and smaller batches: a lower --max-batch-size or --max-prefill-token-num.",
            "Spread the weights over more cards: a higher `--tp`; or load quantised ones (AWQ), or the cache in 8 bits: --quant-policy 8.",
            WHO,
        ],
        (Writer::Blender, _) => &[
            "Use smaller textures: Render, Simplify, Texture Limit; and fewer or simpler meshes, or instances in place of copies.",
            "Render smaller tiles: Performance, Memory, Use Tiling, Tile Size (Blender 3.0 and later); or the picture in parts (Render Region).",
            "Render on the processor (slower), or on one card less where the scene is copied to each.",
            "Close other programs that use the card.",
        ],
        _ if writer.neighbour().is_some() => &[SMALLER, WHO],
        _ => return None,
    })
}

pub(super) const PIN_MEMORY: Advice = &[
    "Pin less, or nothing: `pin_memory=False` in the DataLoader or the call that failed.",
    "See what limits locked memory: `ulimit -l`; under WSL only a part of the machine's memory can be pinned.",
];
pub(super) const GOES_ON: Advice =
    &["Nothing has to be done while the program goes on: look further down in the log for an error that stopped it."];
pub(super) const COMFY_UI: Advice = &[
    "Keep less of the models on the card: start ComfyUI with `--novram`; in releases before March 2026, which do not load weights as they are needed, `--lowvram` first.",
    "Use smaller images or fewer at once, and the tiled variants of VAE decode and encode.",
    "Use weights of fewer bits: fp8 or GGUF files of the same model.",
    "Leave memory to other programs: `--reserve-vram 1` (GiB); where dynamic VRAM is on, --vram-headroom 1 as well.",
    "See the whole of PyTorch's message: start with `--disable-cuda-malloc`; it then has all figures.",
    WHO,
];
/// llama.cpp inside Ollama, which has no command line for it.
pub(super) const OLLAMA_RUNNER: Advice = &[
    "Put fewer layers on the card: a lower `num_gpu` (an option of the request, or PARAMETER num_gpu in the Modelfile).",
    "Shorten the context, which sizes the KV cache: a lower `num_ctx`, or OLLAMA_CONTEXT_LENGTH for the server.",
    "Answer fewer requests at once: `OLLAMA_NUM_PARALLEL=1`; each has a KV cache of its own.",
    "Store the KV cache in fewer bits: `OLLAMA_KV_CACHE_TYPE=q8_0` with OLLAMA_FLASH_ATTENTION=1.",
    "Stop other models: `ollama ps` lists them, ollama stop ends one; or use a smaller quantisation.",
    WHO,
];
/// Shown before PyTorch's own advice if the text is a server's.
pub(super) const IN_SGLANG: Advice = &[
    "Leave more of the card outside SGLang's share: a lower `--mem-fraction-static`; a lower --chunked-prefill-size makes each batch smaller.",
    "Run fewer requests at once: a lower `--max-running-requests`, and capture fewer CUDA graphs: a lower --cuda-graph-max-bs (--cuda-graph-max-bs-decode since June 2026).",
];
pub(super) const IN_VLLM: Advice = &[
    "Leave more of the card outside vLLM's share: a lower `--gpu-memory-utilization`.",
    "Run fewer requests at once, a lower `--max-num-seqs`, or smaller batches of tokens, a lower --max-num-batched-tokens.",
    "Bound the longest input: a lower `--max-model-len`.",
    "Capture no CUDA graphs: `--enforce-eager` (slower).",
];
/// Shown first where a CUDA graph was captured.
pub(super) const CAPTURING: Advice = &[
    "[capturing, vllm] Capture no CUDA graphs: `--enforce-eager` (slower).",
    "[capturing, vllm] Or capture fewer: fewer and smaller sizes in `--cudagraph-capture-sizes` (--cuda-graph-sizes before vLLM 0.12), or a lower --max-num-seqs.",
    "[capturing, not vllm] Capture fewer CUDA graphs, for fewer and smaller batch sizes; each takes memory of the card outside PyTorch as well.",
];
pub(super) const IN_SD_WEBUI: Advice = &[
    "Let the program move parts of the model between the card and the machine's memory: `--medvram`, or --lowvram (slower) in COMMANDLINE_ARGS.",
    "Make smaller images, or fewer at once: the memory grows with their area; enlarge them afterwards in tiles.",
    "Use an attention that needs less: `--opt-sdp-attention` or --xformers.",
];
pub(super) const IN_TGI: Advice = &[
    "Make the largest batch smaller: a lower `--max-batch-prefill-tokens`, which --max-input-tokens may not exceed.",
    "Spread the weights over more cards: a higher `--num-shard`; or load quantised ones (--quantize).",
    "Capture fewer CUDA graphs: `--cuda-graphs 0` captures none.",
];
pub(super) const VLLM_LARGER: Advice = &[
    "Bound the longest input: {?`--max-model-len {fits}`|a lower `--max-model-len`}.",
    "Store the cache in half the bytes: `--kv-cache-dtype fp8`.",
    LARGER_SHARE,
    MORE_CARDS,
    "Or load quantised weights (AWQ, GPTQ, FP8).",
];
pub(super) const VLLM_NOTHING_LEFT: Advice = &[
    "[weights > activations] Make the weights smaller, which take most: load quantised ones (AWQ, GPTQ, FP8), or spread them over more cards: a higher `--tensor-parallel-size`.",
    "[activations > weights] Make the activations smaller, which take most: a lower `--max-num-batched-tokens`, or a lower --max-num-seqs.",
    "Bound the longest input: a lower `--max-model-len` (the activations of one such input are set aside first).",
    LARGER_SHARE,
    "[not activations told] Or spread the weights over more cards: a higher `--tensor-parallel-size`, or load quantised ones (AWQ, GPTQ, FP8).",
    WHO,
];
const LARGER_SHARE: &str = "Give it a larger share, if nothing else needs the card: a higher `--gpu-memory-utilization` (the default is 0.9, in releases of 2026 0.92).";
const MORE_CARDS: &str = "Spread the weights over more cards: a higher `--tensor-parallel-size`.";
pub(super) const VLLM_START: Advice = &[
    "[used < capacity / 4] Take no more than is free: `--gpu-memory-utilization {share to take}` (the weights must fit, and what is left of it is the KV cache).",
    "See what holds the card and stop what should not: {tool}.",
    "Find holders that it does not name, of other containers or dead programs: {holders}.",
    "[used >= capacity / 4] Or take no more than is free: `--gpu-memory-utilization {share to take}` (the weights must fit, and what is left of it is the KV cache).",
];
pub(super) const POOL_ALLOCATOR: Advice = &[
    "Look into the allocator that the program gave to `torch.cuda.MemPool`: it returned a null pointer; log its size, device and stream there.",
    "Its own memory may be used up: free tensors of that pool, or let it hold less at once.",
    "Keep out of the pool what need not be in it: end the block of `torch.cuda.use_mem_pool` earlier.",
];
pub(super) const SEGMENT_RESERVE: Advice = &[
    "Let an expandable segment reserve more addresses than the request: expandable_segments_reserve in {conf}, or expandable_segments_reserve_by_class where the message names a class. Addresses cost no memory.",
    "Or turn expandable segments off for this run: `{conf}=expandable_segments:False`.",
    "Or split the tensor: a smaller batch, or the operation in chunks along one dimension.",
];
pub(super) const RETRIED: Advice = &[
    GOES_ON[0],
    "Many of these cost time: every one synchronises the device and gives the cache back. Leave it a little more room.",
    "[grows] Where memory lies in holes, let segments grow in place{?[hip] (PyTorch 2.11 or later)}: `{conf}=expandable_segments:True`.",
];
pub(super) const BROKEN_SIZE: Advice =
    &["Print the shape right before the failing line: a dimension is negative, uninitialised or multiplied twice."];
pub(super) const BLOCK: Advice = &[
    "Split the tensor: a smaller batch, or the operation in chunks along one dimension.",
    "Or let Level Zero hand out larger blocks (slower kernels, and not on every card): `UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1`.",
    "PyTorch 2.5 and later run on Intel cards without the extension and ask the driver itself.",
];
pub(super) const SPLIT: Advice =
    &["Split the request: a smaller batch, a shorter sequence, or the operation in chunks along one dimension."];
/// The request alone is too large, and nothing else is on the card.
pub(super) const ONE_TENSOR: Advice = &[
    "See which tensor it is: the last line of your own code in the traceback. Often its shape is wrong, or it is attention's matrix of all pairs: \
    `torch.nn.functional.scaled_dot_product_attention` keeps none.",
    "[1.10] Store it in fewer bits: `dtype=torch.bfloat16`.",
];
pub(super) const PRIVATE_POOLS: Advice = &[
    "Capture fewer CUDA graphs, and for fewer and smaller batch sizes: each keeps a pool of its own that nothing else can use.",
    "Let graphs share one pool: `torch.cuda.graph(g, pool=torch.cuda.graph_pool_handle())` with the same handle for all.",
    "Do without graphs where they are not needed: `torch.compile(mode=\"default\")` in place of \"reduce-overhead\" (--enforce-eager in vLLM).",
];
pub(super) const FULL: Advice = &[
    "Use a smaller micro-batch and accumulate gradients over several.",
    "[not checkpointing] Keep fewer activations: `model.gradient_checkpointing_enable()` or torch.utils.checkpoint around the blocks of the model.",
    "[1.10, not half] Compute in half precision: `torch.autocast(\"{module}\", dtype=torch.bfloat16)`.",
    "[2.0] Take less for the optimizer's step: `torch.optim.AdamW(model.parameters(), fused=True)` needs no temporary copies; 8-bit or sharded optimizer states need less for good.",
    "[1.9] In evaluation keep no graph: `torch.inference_mode()`.",
];
/// If the request would have fitted without others, who hold a small part of the card.
pub(super) const OTHERS: Advice = &[
    "[0 < other_processes, requested <= free + other_processes] End what else is on the card ({others}), or give each process its own: `{visible}`, and torch.{module}.set_device(local_rank) before any other use of the card.",
    "[not deciding told, 0 < unattributed, unattributed > capacity / 8, requested <= free + unattributed] See what else holds the card: {tool}.",
];
/// If the request would have fitted without memory outside PyTorch, this comes first.
pub(super) const OUTSIDE: Advice = &[
    "[process told] Find what takes the {deciding} outside PyTorch in this process: some hundred MiB are its context, which stays; the rest is {collectives}, graphs, workspaces or another library on the same card.",
    "[not process told] Find what takes the {deciding} outside PyTorch (another program, the desktop, a second context of this one): {tool} lists the processes; stop them, or run on a card without a display.",
];
/// vLLM while it loads: no batch ran yet.
pub(super) const LOADING_VLLM: Advice = &[
    MORE_CARDS,
    "Load quantised weights: a checkpoint in AWQ, GPTQ or FP8, or `--quantization fp8`.",
    "Keep a part of them in the machine's memory: `--cpu-offload-gb 10` (slower).",
    WHO,
];
/// Shown after advice to hold less on a full card. The model did not fit while it was loaded: no training step ran yet.
pub(super) const LOADING: Advice = &[
    "Load the weights in half precision: `torch_dtype=torch.bfloat16` in from_pretrained.",
    "Or quantised: `quantization_config=BitsAndBytesConfig(load_in_4bit=True)` in from_pretrained, or load_in_8bit.",
    "Keep a part in the machine's memory: `device_map=\"auto\"` in from_pretrained; for a pipeline of diffusers `pipe.enable_model_cpu_offload()` in place of .to(\"cuda\").",
    WHO,
];
pub(super) const FEW_HOLES: Advice = &[
    "[free < requested, own >= requested, grows] Then let segments grow in place{?[hip] (PyTorch 2.11 or later)}, which wins back a part of the {unallocated} in holes: `{conf}=expandable_segments:True`.",
];
pub(super) const HOLES: Advice = &[
    "[expands] Expandable segments are on already; what is left between live blocks are pages that a small tensor keeps mapped. Allocate long-lived tensors before short-lived ones.",
    "[grows] {?[hip]With PyTorch 2.11 or later set|Set} `{conf}=expandable_segments:True` before the process starts: segments then grow in place and holes can be joined.",
    "[not grows, not windows, not expands] Use PyTorch {?[hip]2.11 or later, which has expandable segments on AMD|2.1 or later, which has expandable segments}: they remove most of this.",
    // With expandable segments on, PyTorch does not look at it (`should_split`).
    "[1.10, windows, not expands] Set `{conf}=max_split_size_mb:128`: larger blocks are no longer cut up by small tensors (try 128 to 512).",
    "[1.10, not windows, not expands] Or set `{conf}=max_split_size_mb:128`: larger blocks are no longer cut up by small tensors (try 128 to 512).",
    "[limit told, requested <= free] This process may hold {limit} of the card's {capacity}, and {free} is free: a higher limit is enough. Look for who set it: set_per_process_memory_fraction in the code, or per_process_memory_fraction in the allocator's settings.",
    "If sizes vary from step to step, pad or bucket them to a few lengths and warm up with the longest.",
    "torch.{module}.empty_cache() does not help here: PyTorch had already given back every segment that was wholly free.",
];
pub(super) const CAP: Advice = &[
    "Raise {?the limit: `torch.{module}.set_per_process_memory_fraction({fraction})` would have let this request through ({needed} of {capacity})|or remove the limit: `torch.{module}.set_per_process_memory_fraction(1.0)`}.",
    "Look for who set it: set_per_process_memory_fraction in the code, or per_process_memory_fraction in the allocator's settings.",
];
pub(super) const SHARE: Advice = &[
    "[peers] Give each rank its own card: `torch.{module}.set_device(local_rank)` before any other use of the card (torchrun sets LOCAL_RANK), or start \
    no more ranks than there are cards.",
    "[peers] Load checkpoints with `map_location=\"cpu\"`: without it each rank loads onto the card that saved them.",
    "[not peers, not windows] Stop what should not run beside this ({others}); see what the largest is with {?`ps -o pid,user,etime,cmd -p {largest pid}`|{tool}}.",
    "[not peers, windows] Stop what should not run beside this ({others}).",
    "Find every holder, also those that such a list leaves out: {holders}.",
    "[not peers] Give each process its own card: `{visible}` (and torch.{module}.set_device(local_rank) before any other use of the card).",
];
pub(super) const NON_PYTORCH: Advice = &[
    "[nvidia] Load kernels only when used: `CUDA_MODULE_LOADING=LAZY` (the default since PyTorch 1.13; libraries may turn it off).",
    "[xpu] Use fewer process groups and communicators: each {collectives} communicator holds its own buffers.",
    "[npu] Use fewer process groups and communicators: each {collectives} communicator holds its own buffers. HCCL_BUFFSIZE makes them smaller.",
    "[not xpu, not npu] Use fewer process groups and communicators: each {collectives} communicator holds its own buffers. NCCL_BUFFSIZE makes them smaller.",
    "Capture fewer graphs, and check extensions that call {malloc} themselves.",
];
pub(super) const LARGER_SLICE: Advice =
    &["Take a larger slice of the card: `nvidia-smi mig -lgip` lists the profiles it can be cut into."];
pub(super) const CUT: Advice = &[
    "[cut] Paste the whole message as it was printed, up to \"reserved by PyTorch but unallocated\": what it lacks here decides.",
];
/// The card had room for the request that was refused.
pub(super) const REFUSED: Advice = &[
    CUT[0],
    "[expands] Each expandable segment reserves address space for the whole card: look for a limit with `ulimit -v`.",
    "Watch the card while it happens, for a process that comes and goes: {watch}.",
    "[hip, not windows] Check for a limit outside PyTorch: a partition of the card (CPX, NPS) or a container's quota.",
    "[npu] Check for a limit outside PyTorch: a virtual part of the card, or a container's quota.",
    "[xpu] Check for a limit outside PyTorch: one tile or a virtual function of the card, the driver's largest single allocation, a container's quota.",
    "[windows] Give Windows a larger paging file: it promises as much memory of its own as a program takes on the card, and refuses where it cannot.",
    "[nvidia, not windows] Check for a limit outside PyTorch: a vGPU or MIG profile, MPS (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT), or a container's quota.",
];
pub(super) const UNKNOWN: Advice = &[
    "[driver] Try without expandable segments: leave expandable_segments out of {conf}, or set `{conf}=expandable_segments:False`.",
    "[cublas] Leave memory for cuBLAS, or make its workspace smaller: `CUBLAS_WORKSPACE_CONFIG=:4096:2`.",
    "[cublas] The same error appears when an index is out of range in an earlier kernel: run once with {blocking}.",
    "[nccl] Make NCCL's buffers smaller: `NCCL_BUFFSIZE=1048576`, and create fewer process groups.",
    "[not pytorch, not foreign] Hand PyTorch's cache back before the failing call: `torch.{module}.empty_cache()`.",
    "[not pytorch, foreign] The text does not say which program this is of. Where PyTorch is in the same process, its cache counts as used: torch.{module}.empty_cache() hands it back.",
    "See who holds the card: {tool}.",
    "[not foreign] Record a snapshot with the lines below and open it: it shows every block and who owns it.",
];

#[cfg(test)]
pub(super) const ALL: &[Advice] = &[
    CAPTURING,
    ONE_TENSOR,
    VLLM_LARGER,
    VLLM_NOTHING_LEFT,
    VLLM_START,
    RETRIED,
    OTHERS,
    SEGMENT_RESERVE,
    FULL,
    OUTSIDE,
    FEW_HOLES,
    HOLES,
    CAP,
    SHARE,
    NON_PYTORCH,
    REFUSED,
    UNKNOWN,
];
