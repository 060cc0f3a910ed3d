//! What to change, by verdict, with the exact setting for the release that wrote the message.

use super::{Remedy, Verdict};
use crate::analysis::vendor::Words;
use crate::formats::oom_message::{Cause, Figure, OomMessage, Platform, Writer};
use crate::units::pytorch_size;

fn plain(sentence: &str) -> Remedy {
    Remedy { sentence: sentence.to_owned(), setting: None }
}

fn set(before: &str, setting: &str, after: &str) -> Remedy {
    Remedy { sentence: format!("{before}{setting}{after}"), setting: Some(setting.to_owned()) }
}

fn words(m: &OomMessage) -> &'static Words {
    Words::of_platform(m.dialect.platform)
}

/// The variable that hides cards from a process, without a value.
pub(super) fn visible(m: &OomMessage) -> &'static str {
    words(m).visible_name()
}

/// The variable that holds the allocator's settings: the one that the message names, else that of its release and platform (one name
/// for all from 2.10 on).
fn variable(m: &OomMessage) -> &'static str {
    match m.settings_variable {
        Some(named) => named,
        None if m.dialect.since >= Some((2, 10)) => "PYTORCH_ALLOC_CONF",
        None => words(m).conf,
    }
}

pub(super) fn remedies(m: &OomMessage, verdict: Verdict) -> Vec<Remedy> {
    match m.dialect.writer {
        Writer::Cpu => {
            return vec![
                set(
                    "Load less into host memory at once: smaller ",
                    "prefetch_factor",
                    " and fewer workers in the DataLoader, memory-mapped files, or a machine with more memory.",
                ),
                set("Load checkpoints without a second copy: ", "torch.load(path, mmap=True, map_location=\"cpu\")", "."),
            ];
        }
        Writer::Mps => {
            return vec![
                plain("Use a smaller batch, or a model of half precision."),
                set(
                    "Raise the limit if the machine has memory to spare (the system may become unstable): ",
                    "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0",
                    ".",
                ),
            ];
        }
        Writer::Xla if m.dialect.platform == Platform::Tpu => {
            return vec![
                plain("Use a smaller batch, or bfloat16 for what is float32."),
                set(
                    "Keep fewer activations: ",
                    "jax.checkpoint",
                    " around the layers, so that they are computed again in the backward pass.",
                ),
                plain("Spread the arrays over more chips: a Mesh and NamedSharding, or jit with in_shardings."),
                set(
                    "See what the program needs before it runs: ",
                    "jax.jit(f).lower(*args).compile().memory_analysis()",
                    "; arguments that are not used again can be given back with donate_argnums.",
                ),
                set(
                    "See what holds the device: ",
                    "jax.profiler.save_device_memory_profile(\"memory.prof\")",
                    " before the step that fails; pprof reads it.",
                ),
            ];
        }
        Writer::Xla => {
            return vec![
                set("Let JAX take more of the card: ", "XLA_PYTHON_CLIENT_MEM_FRACTION=0.95", " (the default is 0.75)."),
                set(
                    "See whether preallocation is what fails, for instance beside another process: ",
                    "XLA_PYTHON_CLIENT_PREALLOCATE=false",
                    ".",
                ),
                plain("Use a smaller batch, or jax.checkpoint on the layers whose buffers are listed."),
                set(
                    "See what holds the device: ",
                    "jax.profiler.save_device_memory_profile(\"memory.prof\")",
                    " before the step that fails; pprof reads it.",
                ),
            ];
        }
        Writer::TensorFlow if m.dialect.platform == Platform::Cpu => {
            return vec![
                plain("Pin less: fewer or smaller buffers in the input pipeline, or a machine with more memory."),
                set("See what limits locked memory: ", "ulimit -l", "."),
            ];
        }
        Writer::TensorFlow if m.is_warning => {
            return vec![
                plain(
                    "Nothing has to be done while the program goes on: look further down in the log for an error that stopped it.",
                ),
                set(
                    "If steps are slow, leave room for the workspace it could not get: a smaller batch, or half precision: ",
                    "tf.keras.mixed_precision.set_global_policy(\"mixed_float16\")",
                    ".",
                ),
                set("See what is in use and what was at most: ", "tf.config.experimental.get_memory_info(\"GPU:0\")", "."),
            ];
        }
        Writer::TensorFlow => return tensorflow(),
        Writer::CuPy => return cupy(),
        Writer::OnnxRuntime => return onnx_runtime(m),
        Writer::Paddle => return paddle(m),
        Writer::Vllm => return vllm(m),
        Writer::ComfyUi => return comfy_ui(m),
        Writer::LlamaCpp => return llama_cpp(m),
        Writer::TensorRt => return tensor_rt(m),
        _ if m.is_warning && verdict == Verdict::Unknown => return retried(m),
        _ => {}
    }
    match m.cause {
        Some(Cause::PoolAllocator) => return pool_allocator(),
        Some(Cause::SegmentReserve) => return segment_reserve(m),
        None => {}
    }
    match verdict {
        Verdict::Fragmentation => fragmentation(m),
        Verdict::Cap => cap(m),
        Verdict::Capacity => outside(m).into_iter().chain(capacity(m)).collect(),
        Verdict::Contention => contention(m),
        Verdict::NonPytorch => non_pytorch(m),
        Verdict::TooLarge if m.is_absurd_request => {
            vec![plain(
                "Print the shape right before the failing line: a dimension is negative, uninitialised or multiplied twice.",
            )]
        }
        Verdict::TooLarge if m.figures.largest_block.is_some() => vec![
            plain("Split the tensor: a smaller batch, or the operation in chunks along one dimension."),
            set(
                "Or let Level Zero hand out larger blocks (slower kernels, and not on every card): ",
                "UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1",
                ".",
            ),
            plain("PyTorch 2.5 and later run on Intel cards without the extension and ask the driver itself."),
        ],
        Verdict::TooLarge => {
            let mut all = vec![plain(
                "Split the request: a smaller batch, a shorter sequence, or the operation in chunks along one dimension.",
            )];
            all.extend(capacity(m).into_iter().skip(1));
            all
        }
        Verdict::Unknown => unknown(m),
    }
}

fn pool_allocator() -> Vec<Remedy> {
    vec![
        set(
            "Look into the allocator that the program gave to ",
            "torch.cuda.MemPool",
            ": it returned a null pointer; log its size, device and stream there.",
        ),
        plain("Its own memory may be used up: free tensors of that pool, or let it hold less at once."),
        set("Keep out of the pool what need not be in it: end the block of ", "torch.cuda.use_mem_pool", " earlier."),
    ]
}

fn segment_reserve(m: &OomMessage) -> Vec<Remedy> {
    let name = variable(m);
    vec![
        plain(&format!(
            "Let an expandable segment reserve more addresses than the request: expandable_segments_reserve in {name}, or expandable_segments_reserve_by_class where the message names a class. Addresses cost no memory."
        )),
        set("Or turn expandable segments off for this run: ", &format!("{name}=expandable_segments:False"), "."),
        plain("Or split the tensor: a smaller batch, or the operation in chunks along one dimension."),
    ]
}

/// TensorFlow's own ways: it takes the whole card when it starts unless told otherwise, so what it lacks is its own.
fn tensorflow() -> Vec<Remedy> {
    vec![
        plain("Use a smaller batch: TensorFlow takes the whole card when it starts, so what it ran out of is mostly its own."),
        set("Compute in half precision: ", "tf.keras.mixed_precision.set_global_policy(\"mixed_float16\")", "."),
        set(
            "Where free pieces are too small: ",
            "TF_GPU_ALLOCATOR=cuda_malloc_async",
            " takes memory from the driver's pool instead of one large arena.",
        ),
        set(
            "Beside other programs on the card, take memory as it is needed: ",
            "tf.config.experimental.set_memory_growth(tf.config.list_physical_devices(\"GPU\")[0], True)",
            " (or TF_FORCE_GPU_ALLOW_GROWTH=true), before anything else uses the card.",
        ),
        set(
            "Or give each program its share: ",
            "tf.config.set_logical_device_configuration(tf.config.list_physical_devices(\"GPU\")[0], [tf.config.LogicalDeviceConfiguration(memory_limit=8192)])",
            " (MiB).",
        ),
        set("See what is in use and what was at most: ", "tf.config.experimental.get_memory_info(\"GPU:0\")", "."),
    ]
}

fn cupy() -> Vec<Remedy> {
    vec![
        set("Give back what the pool keeps and nobody uses: ", "cupy.get_default_memory_pool().free_all_blocks()", "."),
        set("Raise or remove the pool's limit, if there is one: ", "CUPY_GPU_MEMORY_LIMIT=0", "."),
        set(
            "Where PyTorch is in the same process, its cache counts as used: ",
            "torch.cuda.empty_cache()",
            " before the failing call hands back what is free.",
        ),
        plain("Work in chunks, or in a smaller type."),
    ]
}

fn onnx_runtime(m: &OomMessage) -> Vec<Remedy> {
    let host = "Use a smaller batch or shorter inputs: the largest input shape decides how far the arena grows.";
    vec![
        plain(host),
        set(
            "Let the arena grow by what is requested instead of doubling: ",
            "(\"CUDAExecutionProvider\", {\"arena_extend_strategy\": \"kSameAsRequested\"})",
            " as the session's provider; gpu_mem_limit there bounds it.",
        ),
        set("See who else holds the card: ", words(m).tool_that_lists(), "."),
    ]
}

fn paddle(m: &OomMessage) -> Vec<Remedy> {
    vec![
        plain("Use a smaller batch."),
        set("Let the allocator take memory as it is needed: ", "FLAGS_allocator_strategy=auto_growth", "."),
        set("See who else holds the card: ", words(m).tool_that_lists(), "."),
    ]
}

fn comfy_ui(m: &OomMessage) -> Vec<Remedy> {
    vec![
        set("Keep less of the models on the card: start ComfyUI with ", "--lowvram", " (--novram where that is not enough)."),
        plain("Use smaller images or fewer at once, and the tiled variants of VAE decode and encode."),
        plain("Use weights of fewer bits: fp8 or GGUF files of the same model."),
        set("Leave memory to other programs: ", "--reserve-vram 1", " (GiB)."),
        set("See the whole of PyTorch's message: start with ", "--disable-cuda-malloc", "; it then has all figures."),
        set("See who else holds the card: ", words(m).tool_that_lists(), "."),
    ]
}

fn llama_cpp(m: &OomMessage) -> Vec<Remedy> {
    vec![
        set("Put fewer layers on the card: ", "--n-gpu-layers 20", " (num_gpu in Ollama); the others run on the CPU."),
        set("Shorten the context, which sizes the KV cache: ", "--ctx-size 8192", " (num_ctx in Ollama)."),
        set("Store the KV cache in fewer bits: ", "--cache-type-k q8_0 --cache-type-v q8_0", " (with flash attention)."),
        set("Where the compute buffers are what does not fit: ", "--ubatch-size 256", "."),
        plain("Over several cards, give the one that failed a smaller part with --tensor-split; or use a smaller quantisation."),
        set("See who else holds the card: ", words(m).tool_that_lists(), "."),
    ]
}

fn tensor_rt(m: &OomMessage) -> Vec<Remedy> {
    vec![
        set("When it builds an engine, bound what tactics may take: ", "trtexec --memPoolSize=workspace:2048", " (MiB)."),
        plain("Build for smaller inputs: the largest shape of the profile decides; or in FP16 or INT8."),
        plain("When it runs one, share the activations' memory between contexts (createExecutionContextWithoutDeviceMemory)."),
        set("Where PyTorch is in the same process, hand its cache back before: ", "torch.cuda.empty_cache()", "."),
        set("See who else holds the card: ", words(m).tool_that_lists(), "."),
    ]
}

fn retried(m: &OomMessage) -> Vec<Remedy> {
    let mut out = vec![plain(
        "Nothing has to be done while the program goes on: look further down in the log for an error that stopped it.",
    )];
    out.push(plain(
        "Many of these cost time: every one synchronises the device and gives the cache back. Leave it a little more room.",
    ));
    if m.expandable_segments.is_none() {
        let setting = format!("{}=expandable_segments:True", variable(m));
        out.push(set("Where memory lies in holes, let segments grow in place: ", &setting, "."));
    }
    out
}

/// Stop the others, or ask for what is free less a little; where the share itself is too small, a larger one or a smaller model.
fn vllm(m: &OomMessage) -> Vec<Remedy> {
    if let Some(context) = m.context {
        let f = &m.figures;
        // What a token takes is the same for each.
        let by_bytes = || {
            let (wanted, q, left) = (context.wanted?, f.requested?, f.limit?);
            Some((wanted as f64 * left.low() as f64 / q.high().max(1) as f64) as u64)
        };
        let fits = context.fits.or_else(by_bytes).filter(|&n| n > 0).unwrap_or(4096);
        return vec![
            set("Bound the longest input: ", &format!("--max-model-len {fits}"), "."),
            set("Store the cache in half the bytes: ", "--kv-cache-dtype fp8", "."),
            set(
                "Give it a larger share, if nothing else needs the card: ",
                "--gpu-memory-utilization 0.95",
                " (the default is 0.9).",
            ),
            set("Spread the weights over more cards: ", "--tensor-parallel-size 2", "."),
            plain("Or load quantised weights (AWQ, GPTQ, FP8)."),
        ];
    }
    if !m.has_figures() {
        return vec![
            set(
                "Give it a larger share, if nothing else needs the card: ",
                "--gpu-memory-utilization 0.95",
                " (the default is 0.9).",
            ),
            set("Bound the longest input: ", "--max-model-len 4096", " (the activations of one such input are set aside first)."),
            set("Spread the weights over more cards: ", "--tensor-parallel-size 2", "."),
            plain("Or load quantised weights (AWQ, GPTQ, FP8)."),
            set("See what else holds the card: ", words(m).tool_that_lists(), "."),
        ];
    }
    let mut out = vec![
        set("See what holds the card and stop what should not: ", words(m).tool_that_lists(), "."),
        set("Find holders that it does not name, of other containers or dead programs: ", words(m).holders, "."),
    ];
    let f = &m.figures;
    if let (Some(free), Some(capacity)) = (f.free, f.capacity) {
        let share = (free.low() as f64 / capacity.high().max(1) as f64 * 100.0).floor() / 100.0 - 0.03;
        if share >= 0.1 {
            out.push(set(
                "Or take no more than is free: ",
                &format!("--gpu-memory-utilization {share:.2}"),
                " (the weights must fit, and what is left of it is the KV cache).",
            ));
        }
    }
    out
}

fn fragmentation(m: &OomMessage) -> Vec<Remedy> {
    let name = variable(m);
    let is_old = m.dialect.until.is_some_and(|u| u < (2, 1)) && m.dialect.writer == Writer::PyTorch;
    let mut out = Vec::new();
    // Holes that any program has are little to win: what fills the card comes first.
    if holes_are_few(m) {
        match m.other_processes() {
            Some(others) if would_do(m, others) => out.extend(contention(m).into_iter().take(1)),
            _ => out.extend(capacity(m).into_iter().take(2)),
        }
    }
    if m.expandable_segments == Some(true) {
        out.push(plain("Expandable segments are on already; what is left between live blocks are pages that a small tensor keeps mapped. Allocate long-lived tensors before short-lived ones."));
    } else if is_old {
        out.push(plain("Use PyTorch 2.1 or later, which has expandable segments: they remove most of this."));
    } else {
        out.push(set(
            "Set ",
            &format!("{name}=expandable_segments:True"),
            " before the process starts: segments then grow in place and holes can be joined.",
        ));
    }
    // With expandable segments on, PyTorch does not look at it (`should_split`).
    if m.expandable_segments != Some(true) && m.dialect.until.is_none_or(|u| u >= (1, 10)) {
        out.push(set(
            "Or set ",
            &format!("{name}=max_split_size_mb:128"),
            ": larger blocks are no longer cut up by small tensors (try 128 to 512).",
        ));
    }
    out.push(plain("If sizes vary from step to step, pad or bucket them to a few lengths and warm up with the longest."));
    out.push(plain(&format!(
        "torch.{}.empty_cache() does not help here: PyTorch had already given back every segment that was wholly free.",
        words(m).module
    )));
    out
}

/// True where so much more would be free on the card that the request fits.
fn would_do(m: &OomMessage, more: Figure) -> bool {
    m.figures.requested.zip(m.figures.free).is_some_and(|(q, free)| q.bytes <= free.plus(more).bytes)
}

/// True where even all holes are a small share of what PyTorch holds.
fn holes_are_few(m: &OomMessage) -> bool {
    let (Some(holes), Some(reserved)) = (m.unallocated(), m.reserved()) else { return false };
    (holes.bytes as f64) < reserved.bytes as f64 * super::device::FEW_HOLES
}

fn cap(m: &OomMessage) -> Vec<Remedy> {
    let mut out = Vec::new();
    let f = &m.figures;
    if let (Some(reserved), Some(q), Some(capacity)) = (m.reserved().or(f.allocated), f.requested, f.capacity)
        && capacity.bytes > 0
    {
        let needed = reserved.high().saturating_add(q.high()) as f64 / capacity.low().max(1) as f64;
        let fraction = (needed * 100.0).ceil() / 100.0;
        if fraction <= 1.0 {
            out.push(set(
                "Raise the limit: ",
                &format!("torch.{}.set_per_process_memory_fraction({fraction:.2})", words(m).module),
                &format!(
                    " would have let this request through ({} of {}).",
                    pytorch_size(reserved.bytes.saturating_add(q.bytes)),
                    capacity.printed()
                ),
            ));
        }
    }
    if out.is_empty() {
        let setting = format!("torch.{}.set_per_process_memory_fraction(1.0)", words(m).module);
        out.push(set("Raise or remove the limit: ", &setting, "."));
    }
    out.push(plain("Look for who set it: set_per_process_memory_fraction in the code, or per_process_memory_fraction in the allocator's settings."));
    out.extend(capacity(m).into_iter().take(2));
    out
}

/// Where the request would have fitted without what is outside PyTorch, that is the first thing to look at.
fn outside(m: &OomMessage) -> Option<Remedy> {
    let bytes = super::device::outside_that_decides(m)?;
    Some(set(
        &format!(
            "Find what takes the {} outside PyTorch (another program, the desktop, a second context of this one): ",
            bytes.printed()
        ),
        words(m).tool_that_lists(),
        " lists the processes; stop them, or run on a card without a display.",
    ))
}

fn capacity(m: &OomMessage) -> Vec<Remedy> {
    vec![
        plain("Use a smaller micro-batch and accumulate gradients over several."),
        set(
            "Keep fewer activations: ",
            "model.gradient_checkpointing_enable()",
            " or torch.utils.checkpoint around the blocks of the model.",
        ),
        set("Compute in half precision: ", &format!("torch.autocast(\"{}\", dtype=torch.bfloat16)", words(m).module), "."),
        set(
            "Take less for the optimizer's step: ",
            "torch.optim.AdamW(model.parameters(), fused=True)",
            " needs no temporary copies; 8-bit or sharded optimizer states need less for good.",
        ),
        set("In evaluation keep no graph: ", "torch.inference_mode()", "."),
    ]
}

fn contention(m: &OomMessage) -> Vec<Remedy> {
    let mut out = Vec::new();
    let mut others: Vec<_> = m.processes.iter().filter(|p| !p.is_this).collect();
    others.sort_by_key(|p| std::cmp::Reverse(p.bytes.bytes));
    if let Some(largest) = others.first() {
        let list: Vec<String> = others
            .iter()
            .take(5)
            .map(|p| format!("{} with {}", p.pid.map_or("one".to_owned(), |pid| format!("pid {pid}")), p.bytes.printed()))
            .collect();
        let command =
            largest.pid.map_or(words(m).tool_that_lists().to_owned(), |pid| format!("ps -o pid,user,etime,cmd -p {pid}"));
        out.push(set(
            &format!("Stop what should not run beside this ({}); see what the largest is with ", list.join(", ")),
            &command,
            ".",
        ));
    }
    out.push(set(
        &format!("Find every holder, also those that {} does not name: ", words(m).tool_that_lists()),
        words(m).holders,
        ".",
    ));
    out.push(set(
        "Give each process its own card: ",
        words(m).visible,
        &format!(" (and torch.{}.set_device(local_rank) before any other use of the card).", words(m).module),
    ));
    out
}

fn non_pytorch(m: &OomMessage) -> Vec<Remedy> {
    let is_nvidia = !matches!(m.dialect.platform, Platform::Hip | Platform::Xpu | Platform::Npu);
    let mut out = Vec::new();
    if is_nvidia {
        out.push(set(
            "Load kernels only when used: ",
            "CUDA_MODULE_LOADING=LAZY",
            " (the default since PyTorch 1.13; libraries may turn it off).",
        ));
    }
    if m.dialect.platform == Platform::Xpu {
        out.push(plain("Use fewer process groups and communicators: each oneCCL communicator holds its own buffers."));
        out.push(plain("Check extensions that take memory from Level Zero or SYCL themselves."));
    } else {
        let [library, call] = match m.dialect.platform {
            Platform::Hip => ["RCCL", "hipMalloc"],
            Platform::Npu => ["HCCL", "aclrtMalloc"],
            _ => ["NCCL", "cudaMalloc"],
        };
        let buffers = if m.dialect.platform == Platform::Npu { "HCCL_BUFFSIZE" } else { "NCCL_BUFFSIZE" };
        out.push(plain(&format!(
            "Use fewer process groups and communicators: each {library} communicator holds its own buffers. {buffers} makes them smaller."
        )));
        out.push(plain(&format!("Capture fewer graphs, and check extensions that call {call} themselves.")));
    }
    out
}

fn unknown(m: &OomMessage) -> Vec<Remedy> {
    let mut out = Vec::new();
    if !m.unread().is_empty() {
        out.push(plain("Paste the whole message as it was printed, up to \"reserved by PyTorch but unallocated\": what it lacks here decides."));
    }
    let q = m.figures.requested;
    if let (Some(q), Some(free)) = (q, m.figures.free)
        && q.bytes <= free.bytes
    {
        if m.expandable_segments == Some(true) {
            out.push(set(
                "Each expandable segment reserves address space for the whole card: look for a limit with ",
                "ulimit -v",
                ".",
            ));
        }
        out.push(plain(match m.dialect.platform {
            Platform::Hip => "Check for a limit outside PyTorch: a partition of the card (CPX, NPS), a container's quota, or Windows' own budget.",
            Platform::Npu => "Check for a limit outside PyTorch: a virtual part of the card, or a container's quota.",
            Platform::Xpu => "Check for a limit outside PyTorch: one tile or a virtual function of the card, the driver's largest single allocation, a container's quota.",
            _ => "Check for a limit outside PyTorch: a vGPU or MIG profile, MPS (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT), a container's quota, or Windows' own budget.",
        }));
        out.push(set("Watch the card while it happens, for a process that comes and goes: ", words(m).watch, "."));
        return out;
    }
    if m.dialect.writer == Writer::Cublas {
        out.push(set("Leave memory for cuBLAS, or make its workspace smaller: ", "CUBLAS_WORKSPACE_CONFIG=:4096:2", "."));
        out.push(plain(&format!(
            "The same error appears when an index is out of range in an earlier kernel: run once with {}.",
            words(m).blocking
        )));
    }
    if m.dialect.writer == Writer::Nccl {
        out.push(set("Make NCCL's buffers smaller: ", "NCCL_BUFFSIZE=1048576", ", and create fewer process groups."));
    }
    // PyTorch's own allocator has handed its cache back before it gives up; others fail beside a full cache.
    if m.dialect.writer != Writer::PyTorch {
        out.push(set(
            "Hand PyTorch's cache back before the failing call: ",
            &format!("torch.{}.empty_cache()", words(m).module),
            ".",
        ));
    }
    out.push(set("See who holds the card: ", words(m).tool_that_lists(), "."));
    out.push(plain("Record a snapshot with the lines below and open it: it shows every block and who owns it."));
    out
}
