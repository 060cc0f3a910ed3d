use super::*;
use crate::units::{GIBIBYTE, MEBIBYTE};

fn gib(value: f64) -> u64 {
    (value * GIBIBYTE as f64).round() as u64
}

fn nearest(f: Option<Figure>) -> Option<u64> {
    f.map(|f| f.bytes)
}

const MODERN: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 500.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which \
    133.79 GiB is free. Process 1195 has 2.01 GiB memory in use. Process 1193 has 1.91 GiB memory in use. Including non-PyTorch memory, this \
    process has 2.07 GiB memory in use. 1.61 GiB allowed; Of the allocated memory 990.02 MiB is allocated by PyTorch, and 609.98 MiB is reserved \
    by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid \
    fragmentation.  See documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)";

/// A message as one line: `requested 20.00 MiB, free 1.20 MiB, gpu 0`.
pub(super) fn told(m: &OomMessage) -> String {
    let mut figures = m.figures;
    let read = figures.all_mut().into_iter().filter_map(|(name, figure)| Some(format!("{name} {}", figure.as_ref()?.printed())));
    let mut out: Vec<String> = read.collect();
    let counts = [("wanted", m.wanted), ("fits", m.fits), ("gpu", m.gpu.map(u64::from))];
    out.extend(counts.into_iter().filter_map(|(name, count)| Some(format!("{name} {}", count?))));
    let name = |pid: Option<u32>| pid.map_or("this".to_owned(), |pid| format!("pid {pid}"));
    out.extend(m.processes.iter().map(|p| format!("{} {}", name(p.pid), p.bytes.printed())));
    out.extend(m.is_absurd_request.then(|| "absurd".to_owned()));
    out.join(", ")
}

#[test]
fn each_release_and_allocator_of_pytorch_is_read() {
    const HEAD: &str = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 23.65 GiB of which 1.05 GiB is free. Of the allocated memory 20.00 GiB is allocated by PyTorch, ";
    const READ: &str = "requested 2.00 GiB, capacity 23.65 GiB, free 1.05 GiB, allocated 20.00 GiB";
    let body = "and 1.00 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting ";
    let old_url =
        "See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)";
    let whole = &format!("{READ}, unallocated 1.00 GiB, gpu 3");
    let pools = &format!("{READ}, pools 13.00 MiB, unallocated 1.00 GiB, gpu 3");
    for (text, name, read) in [
        (
            MODERN.to_owned(),
            "pytorch-2.11+",
            "requested 500.00 MiB, capacity 139.80 GiB, free 133.79 GiB, limit 1.61 GiB, allocated 990.02 MiB, unallocated 609.98 MiB, gpu 0, pid 1195 2.01 GiB, pid 1193 1.91 GiB, this 2.07 GiB",
        ),
        (
            "RuntimeError: CUDA out of memory. Tried to allocate 1.40 GiB (GPU 0; 8.00 GiB total capacity; 4.21 GiB already allocated; 0 bytes free; 5.50 GiB reserved in total by PyTorch)".to_owned(),
            "pytorch-1.4-1.9",
            "requested 1.40 GiB, capacity 8.00 GiB, free 0 bytes, allocated 4.21 GiB, reserved 5.50 GiB, gpu 0",
        ),
        (
            "CUDA out of memory. Tried to allocate 886.00 MiB (GPU 0; 4.00 GiB total capacity; 1.94 GiB already allocated; 267.70 MiB free; 2.10 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.".to_owned(),
            "pytorch-1.10-2.0",
            "requested 886.00 MiB, capacity 4.00 GiB, free 267.70 MiB, allocated 1.94 GiB, reserved 2.10 GiB, gpu 0",
        ),
        (
            "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 1; 2.00 GiB total capacity; 1.14 GiB already allocated; 7.73 MiB free; 33.86 MiB cached)".to_owned(),
            "pytorch-1.0-1.3",
            "requested 20.00 MiB, capacity 2.00 GiB, free 7.73 MiB, allocated 1.14 GiB, unallocated 33.86 MiB, gpu 1",
        ),
        (
            "CUDA out of memory. Tried to allocate 2.00 MiB (GPU 0; 7.79 GiB total capacity; 1.00 GiB already allocated; 5.00 MiB free; 1.10 GiB allowed; 1.02 GiB reserved in total by PyTorch)".to_owned(),
            "pytorch-1.4-1.9",
            "requested 2.00 MiB, capacity 7.79 GiB, free 5.00 MiB, limit 1.10 GiB, allocated 1.00 GiB, reserved 1.02 GiB, gpu 0",
        ),
        (HEAD.replace("capacity", "capacty") + body + "max_split_size_mb to avoid fragmentation.", "pytorch-2.1", whole),
        (format!("{HEAD}{body}PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid. {old_url}"), "pytorch-2.2-2.9", whole),
        (format!("torch.cuda.OutOfMemoryError: {HEAD}{body}PYTORCH_CUDA_ALLOC_CONF=x {old_url}"), "pytorch-2.2-2.3", whole),
        (format!("torch.OutOfMemoryError: {HEAD}{body}PYTORCH_CUDA_ALLOC_CONF=x {old_url}"), "pytorch-2.4-2.9", whole),
        (
            format!("{HEAD}with 13.00 MiB allocated in private pools (e.g., CUDA Graphs), {body}PYTORCH_CUDA_ALLOC_CONF=x {old_url}"),
            "pytorch-2.4-2.9",
            pools,
        ),
        (format!("{HEAD}{body}PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."), "pytorch-2.10", whole),
        (
            format!("{HEAD}and 1.00 GiB is reserved by PyTorch but unallocated. expandable_segments is enabled. If instead"),
            "pytorch-2.15+",
            whole,
        ),
        (HEAD.to_owned(), "pytorch-2.2+", &format!("{READ}, gpu 3")),
        (format!("{HEAD}{body}PYTORCH_HIP_ALLOC_CONF=x {old_url}").replace("CUDA", "HIP"), "pytorch-hip-2.2-2.9", whole),
        (
            "XPU out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 15.91 GiB. Of the allocated memory 1.00 GiB is allocated by PyTorch, and 1.00 MiB is reserved by PyTorch but unallocated. Please use `empty_cache` to release all unoccupied cached memory.".to_owned(),
            "pytorch-xpu",
            "requested 20.00 GiB, capacity 15.91 GiB, allocated 1.00 GiB, unallocated 1.00 MiB, gpu 0",
        ),
    ] {
        let m = parse(&text).unwrap();
        assert_eq!((m.dialect.name().as_str(), told(&m).as_str()), (name, read), "{text}");
    }
    let m = parse(MODERN).unwrap();
    assert_eq!(
        [m.reserved(), m.this_process(), m.other_processes()].map(nearest),
        [Some(1600 * MEBIBYTE), Some(gib(2.07)), Some(gib(2.01) + gib(1.91))]
    );
    let m = parse("CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 2.00 GiB of which 1.47 GiB is free. Process 4242 has 200.00 MiB memory in use. Including non-PyTorch memory, this process has 342.00 MiB memory in use. Of the allocated memory 225.00 MiB is allocated by PyTorch, with 13.00 MiB allocated in private pools (e.g., CUDA Graphs), and 17.00 MiB is reserved by PyTorch but unallocated. expandable_segments is enabled. If instead").unwrap();
    assert_eq!([m.live(), m.outside_pytorch()].map(nearest), [Some(212 * MEBIBYTE), Some(100 * MEBIBYTE)]);
    assert!(m.seen.contains("expands"));
}

#[test]
fn buffers_of_xla_are_read() {
    let text = "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4770354232 bytes.\nBufferAssignment OOM Debugging.\nBufferAssignment stats:\n             parameter allocation:  372.76MiB\n              constant allocation:         0B\n        maybe_live_out allocation:  372.76MiB\n     preallocated temp allocation:    4.44GiB\n                 total allocation:    4.80GiB\n              total fragmentation:  680.30MiB (4.60%)\nPeak buffers:\n\tBuffer 1:\n\t\tSize: 512.00MiB\n\t\tOperator: op_name=\"jit(f)/dot_general\" source_file=\"train.py\" source_line=41\n\t\tXLA Label: fusion\n\t\tShape: f32[64,1024,2048]\n\t\t==========================\n";
    let m = parse(text).unwrap();
    assert_eq!((m.extra.len(), m.extra[5].0.as_str(), m.peak_buffers.len()), (6, "total fragmentation", 1));
    assert_eq!((m.peak_buffers[0].bytes, m.peak_buffers[0].source.as_deref()), (512 * MEBIBYTE, Some("train.py:41")));
    let m = parse("RESOURCE_EXHAUSTED: Failed to allocate request for 6.27GiB (6727663616B) on device ordinal 0\n2024 next line")
        .unwrap();
    assert_eq!((m.figures.requested, m.gpu), (Some(Figure::exact(6_727_663_616)), Some(0)));
}

#[test]
fn wrapping_prefixes_and_colours_change_nothing() {
    let plain = parse(MODERN).unwrap();
    for width in [13, 40, 80, 119] {
        let chars: Vec<char> = MODERN.chars().collect();
        let wrapped: String =
            chars.chunks(width).map(|c| format!("[rank7]: \u{1b}[31m{}\u{1b}[0m\n", c.iter().collect::<String>())).collect();
        let mut m = parse(&format!("epoch 3\n{wrapped}[rank7]:   done\n")).unwrap();
        assert_eq!(m.rank, Some(7));
        assert!(m.line >= 2);
        // What is left of a broken word is no setting, but nothing comes of it.
        (m.rank, m.line, m.given) = (plain.rank, plain.line, plain.given.clone());
        // The line before shows that something is trained.
        m.seen.clone_from(&plain.seen);
        assert_eq!(m, plain, "wrapped at {width}");
    }
    let quoted = format!("{{\"error\": \"{}\"}}", MODERN.replace(". ", ".\\n"));
    assert_eq!(parse(&quoted).unwrap().figures, plain.figures);
}

/// Colour codes with a written-out or lost escape character, and HTML: the figures must stay.
#[test]
fn colours_and_markup_are_no_text() {
    let plain = parse(MODERN).unwrap();
    for escape in ["", "^[", "\\x1b", "\\u001b", "\u{1b}"] {
        let coloured = MODERN
            .replace("500.00", &format!("{escape}[1;36m500.00{escape}[0m"))
            .replace("133.79 ", &format!("{escape}[36m133.79{escape}[0m "))
            .replace("out of memory.", &format!("out of {escape}[31mmemory{escape}[0m."));
        let m = parse(&coloured).unwrap();
        assert_eq!((m.figures, m.dialect, m.processes), (plain.figures, plain.dialect, plain.processes.clone()), "{coloured}");
    }
    for br in ["<br>", "<br/>", "<br />"] {
        assert_eq!(parse(&MODERN.replace(". ", &format!(".{br}"))).unwrap().figures, plain.figures);
    }
}

#[test]
fn sizes_that_cannot_be_are_none() {
    assert!(parse("CUDA out of memory. Tried to allocate more than 1EB memory.").unwrap().is_absurd_request);
    let m = parse(&MODERN.replacen(|c: char| c.is_ascii_digit(), "99999999999999999999999", 1)).unwrap();
    assert!(m.is_absurd_request && m.figures.requested.is_none() && m.figures.capacity.is_some());
    // An unreadable size must not be read as a smaller one, and must not affect the other figures.
    let m = parse(
        "CUDA out of memory. Tried to allocate 1e999 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is free.",
    );
    let m = m.unwrap();
    assert_eq!((m.figures.requested, m.figures.capacity.map(|f| f.bytes)), (None, Some(gib(79.10))));
    assert_eq!(parse("no memory problem here"), None);
    assert_eq!(parse(""), None);
    assert_eq!(parse("grpc: RESOURCE_EXHAUSTED: quota"), None);
}

#[test]
fn every_message_of_a_log_is_found_with_its_line() {
    let log = format!("start\n{MODERN}\nretry\n[rank1]: {MODERN}\nCUDA error: out of memory\n");
    let all = find_all(&log);
    assert_eq!(all.iter().map(|m| (m.line, m.rank)).collect::<Vec<_>>(), [(2, None), (4, Some(1)), (5, None)]);
    assert_eq!(all[0].figures, all[1].figures);
}

/// The hint below an error names it again.
#[test]
fn an_error_and_its_hint_are_one() {
    for (error, hint) in
        [("CUDA error: out of memory", "cudaErrorMemoryAllocation"), ("HIP error: out of memory", "hipErrorOutOfMemory")]
    {
        let text = format!("{error}\nSearch for `{hint}' in https://docs.nvidia.com for more information.\nCUDA kernel errors");
        assert_eq!(find_all(&text).len(), 1, "{text}");
        assert_eq!(find_all(&format!("{text}\n{text}")).len(), 2);
    }
}

#[test]
fn cut_messages_give_what_is_left() {
    for end in 0..MODERN.len() {
        if let Some(m) = parse(&MODERN[..end]) {
            assert!(m.figures.requested.is_none_or(|q| q.bytes <= 500 * MEBIBYTE));
        }
    }
    assert!(parse(&MODERN[..200]).unwrap().figures.capacity.is_some());
}

#[test]
fn quoted_parts_of_a_message_decode_and_ordinary_text_does_not() {
    let part = |text: &str| find_all(text).into_iter().next();
    let reserved = part("nvidia-smi says 12 GB but 5.50 GiB reserved in total by PyTorch, why?").unwrap();
    assert_eq!(reserved.figures.reserved.map(|f| f.bytes), Some(11 << 29));
    let three = part("1.94 GiB already allocated; 267.70 MiB free; 2.10 GiB reserved").unwrap();
    assert!(three.figures.allocated.is_some() && three.figures.free.is_some() && three.figures.reserved.is_some());
    assert_eq!(three.figures.requested, None);
    for text in ["12 MiB free", "2.10 GiB reserved for the kernel", "the batch was allocated by PyTorch", ""] {
        assert!(find_all(text).is_empty(), "{text}");
    }
}

/// ComfyUI prints the first words twice: before the traceback and below it.
#[test]
fn comfy_ui_s_first_words_are_one_message() {
    for (text, line) in [
        ("torch.OutOfMemoryError: Allocation on device \n\nGot an OOM, unloading all loaded models.", 1),
        (
            "2024-12-04 15:20:36,382 - root - ERROR - !!! Exception during processing !!! Allocation on device \n2024-12-04 15:20:36,383 - root - \
             ERROR - Traceback (most recent call last):\n  File \"execution.py\", line 152\ntorch.OutOfMemoryError: Allocation on device \n\nGot an OOM",
            4,
        ),
        ("!!! Exception during processing!!! Allocation on device 1\nTraceback", 1),
    ] {
        let all = find_all(text);
        assert_eq!(all.len(), 1, "{text}: {all:?}");
        assert_eq!((all[0].dialect.name().as_str(), all[0].line, all[0].has_figures()), ("comfyui", line, false));
    }
    assert!(find_all("Allocation on device not large enough for array").is_empty());
    let whole = "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated : 1.00 GiB\nRequested : 3.00 GiB\nDevice limit : 2.00 GiB\nFree (according to CUDA): 1.61 GiB\nGot an OOM, unloading all loaded models.";
    assert_eq!(parse(whole).unwrap().dialect.name(), "cuda-malloc-async");
}

/// A warning is no failure; it gives the exact bytes to the failure that follows.
#[test]
fn pytorch_s_warnings_belong_to_the_failure_that_follows() {
    let warning = |rank: u32, bytes: u64, free: u64| {
        format!(
            "[rank{rank}]:[W903 13:41:51.709566905 CUDACachingAllocator.cpp:3934] memory allocation failed with OOM on device {rank} while trying to \
             allocate {bytes} bytes (free: {free}, total: 33668857856).\n"
        )
    };
    let failure = |rank: u32| {
        format!(
            "[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 10.00 GiB. GPU {rank} has a total capacity of 31.36 GiB of \
             which 9.86 GiB is free. Of the allocated memory 20.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.\n"
        )
    };
    let (asked, free) = (10_737_418_240, 10_583_277_568);
    let alone = find_all(&[warning(0, asked, 5_000), warning(0, asked, free)].concat());
    assert_eq!((alone.len(), alone[0].is_warning, alone[0].warnings), (1, true, 2));
    assert_eq!(alone[0].figures.free, Some(Figure::exact(free)), "of the last time");
    let log = [
        warning(0, 20_971_520, 13_107_200),
        warning(0, asked, 5_000),
        warning(1, asked, 7_000),
        warning(0, asked, free),
        failure(0),
        failure(1),
    ]
    .concat();
    let all = find_all(&log);
    assert_eq!(
        all.iter().map(|m| (m.rank, m.is_warning, m.warnings)).collect::<Vec<_>>(),
        [(Some(0), true, 1), (Some(0), false, 2), (Some(1), false, 1)]
    );
    let f = &all[1].figures;
    assert_eq!(
        (f.requested, f.capacity, f.free),
        (Some(Figure::exact(asked)), Some(Figure::exact(33_668_857_856)), Some(Figure::exact(free)))
    );
    // Free memory at the warning differs from free memory at the failure.
    assert!(all[2].figures.free.is_some_and(|f| f.slack > 0));
    assert_eq!(parse(&log).unwrap().rank, Some(0));
    assert!(!parse(&log).unwrap().is_warning, "failures before warnings");
    assert_eq!(parse(&log).unwrap().dialect.name(), "pytorch-2.13+");
    let mapping = parse(
        "[W905 00:28:47 CUDACachingAllocator.cpp:508] expandable_segments: memory mapping failed with OOM on device 0 while trying to map 20971520 \
         bytes (free: 4521984, total: 101971460096)",
    );
    let mapping = mapping.unwrap();
    assert_eq!((mapping.seen.contains("expands"), mapping.figures.requested), (true, Some(Figure::exact(20_971_520))));
}

#[test]
fn vllm_s_cache_is_told_in_bytes_and_tokens() {
    let context = |text: &str| parse(text).map(|m| (m.wanted, m.fits)).unwrap();
    let new = "To serve at least one request with the model's max seq len (100000), (4.26 GiB KV cache is needed, which is larger than the available KV \
               cache memory (4.25 GiB). Based on the available memory, the estimated maximum model length is 99760.";
    assert_eq!(context(new), (Some(100_000), Some(99_760)));
    assert_eq!(parse(new).unwrap().figures.limit.unwrap().bytes, gib(4.25));
    let first = "ValueError: To serve at least one request with the models's max seq len (32768), (2.0 GB KV cache isneeded, which is larger than the \
                 available KV Cache memory (0.78 GB). Try increasing";
    assert_eq!((context(first).0, parse(first).unwrap().figures.limit.unwrap().bytes), (Some(32_768), gib(0.78)));
    let old =
        "The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache (7344). Try";
    assert_eq!(context(old), (Some(32_768), Some(7_344)));
}

#[test]
fn large_and_small_letters_are_one() {
    let plain = parse(MODERN).unwrap();
    for text in [MODERN.to_uppercase(), MODERN.to_lowercase()] {
        let m = parse(&text).unwrap();
        assert_eq!(
            (m.figures, &m.processes, m.gpu, m.dialect.platform),
            (plain.figures, &plain.processes, plain.gpu, Platform::Cuda),
            "{text}"
        );
    }
    let old = "CUDA out of memory. Tried to allocate 3.00 GiB (GPU 1; 79.35 GiB total capacity; 33.66 GiB already allocated; 735.69 MiB free; 34.89 GiB reserved in total by PyTorch)";
    assert_eq!(parse(&old.to_uppercase()).unwrap().figures, parse(old).unwrap().figures);
    assert!(find_all("if you see cuda out of memory, use a smaller batch").is_empty());
}

/// A traceback prints its error again, and each rank has its own failure.
#[test]
fn one_failure_is_told_once_and_each_rank_s_is_kept() {
    let again = format!("{MODERN}\n\nDuring handling of the above exception, another exception occurred:\n\n{MODERN}\n");
    assert_eq!(find_all(&again).len(), 1);
    let ranks = format!("[rank5]: {MODERN}\n[rank7]: {}\n", MODERN.replace("GPU 0", "GPU 7"));
    assert_eq!(find_all(&ranks).iter().map(|m| (m.rank, m.gpu)).collect::<Vec<_>>(), [(Some(5), Some(0)), (Some(7), Some(7))]);
    let two = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4770354232 bytes.\nRESOURCE_EXHAUSTED: Failed to allocate request for 6.27GiB (6727663616B) on device ordinal 3";
    assert_eq!(find_all(two).iter().map(|m| m.gpu).collect::<Vec<_>>(), [None, Some(3)]);
    let head = "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 1.00 GiB\n";
    let two = find_all(&format!("{head}Requested               : 3.00 GiB\n{head}Requested               : 5.00 GiB\n")).len();
    assert_eq!((two, parse(&[head, head, "Requested : 5.00 GiB\n"].concat()).unwrap().figures.requested), (2, None));
    let layers = "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\nRuntimeError: DataLoader worker (pid 325) is killed by signal: Bus error.";
    assert_eq!(find_all(layers).len(), 1);
    let old = "CUDA out of memory. Tried to allocate 3.00 GiB (GPU 1; 79.35 GiB total capacity; 33.66 GiB already allocated; 735.69 MiB free; 34.89 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory";
    assert_eq!(parse(&old.replace(">>", "&gt;&gt;")), parse(old));
}

#[test]
fn layers_of_one_failure_are_one() {
    let stats = "Limit: 10200547328\nInUse: 9674317824\nMaxInUse: 9985736704\n";
    let bfc = "W bfc_allocator.cc:479] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.25GiB (rounded to 2415919104)requested by op a\n";
    let tensor =
        "OOM when allocating tensor with shape[32,64,512,512] and type float on /job:localhost/replica:0/task:0/device:GPU:0";
    let tensorflow = format!("{bfc}{stats}tensorflow.ResourceExhaustedError: {tensor} by allocator GPU_0_bfc");
    for (text, line) in [
        (tensorflow.as_str(), 1),
        (
            "THCudaCheck FAIL file=/pytorch/aten/src/THC/generic/THCStorage.cu line=58 error=2 : out of memory\nTraceback\nRuntimeError: cuda \
             runtime error (2) : out of memory at /pytorch/aten/src/THC/generic/THCStorage.cu:58",
            3,
        ),
        (
            "init.cc:1723 NCCL WARN Cuda failure 2 'out of memory'\ntorch.distributed.DistBackendError: a\nLast error:\nCuda failure 2 'out of memory'",
            4,
        ),
        (
            "Available KV cache memory: -0.75 GiB\nValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
            2,
        ),
    ] {
        let found = find_all(text);
        assert_eq!(found.iter().map(|m| m.line).collect::<Vec<_>>(), [line], "{text}");
    }
    // A server's processes log it in turn, each below a long traceback.
    let frames = "(EngineCore pid=77)   File \"vllm/v1/engine/core.py\", line 1140, in run_engine_core\n".repeat(90);
    for error in ["RuntimeError: CUDA driver error: out of memory", MODERN] {
        let twice = format!("(EngineCore pid=77) ERROR core.py: {error}\n{frames}(EngineCore pid=77) {error}\n");
        assert_eq!(find_all(&twice).len(), 1, "{twice}");
        assert_eq!(find_all(&twice.replace("vllm/v1/engine/core", "train/loop").replace("EngineCore", "Job")).len(), 2);
    }
    let f = find_all(&tensorflow)[0].figures;
    assert_eq!((nearest(f.allocated), nearest(f.peak)), (Some(9_674_317_824), Some(9_985_736_704)));
}

/// A failure without figures is told before whatever has figures and is none.
#[test]
fn what_is_no_failure_never_stands_for_one() {
    let pinned = "ggml_cuda_host_malloc: failed to allocate 1900.00 MiB of pinned memory: out of memory";
    let no_failure = "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.16GiB with freed_by_count=0. The caller indicates that this is not a failure";
    let attempt =
        "cuda_driver.cc:733] failed to allocate 8.41G (9029127168 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory";
    let cudnn = "E tensorflow/stream_executor/cuda/cuda_dnn.cc:334] Could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED";
    let bfc = "tensorflow/core/bfc_allocator.cc:479] Allocator (GPU_0_bfc) ran out of memory trying to allocate 560.44MiB (rounded to 587661312)";
    for (lines, told, line) in [
        ([pinned, "CUDA error 2 at ggml-cuda.cu:6016: out of memory", ""], true, 2),
        ([pinned, "Killed", ""], true, 2),
        ([no_failure, attempt, cudnn], true, 3),
        ([attempt, bfc, ""], true, 2),
        ([no_failure, attempt, ""], false, 2),
        ([pinned, "", ""], false, 1),
    ] {
        let found = find_all(&lines.join("\n"));
        let main = &found[super::main_message(&found)];
        assert_eq!((main.is_failure(), main.line), (told, line), "{lines:?}");
    }
}

/// JAX prints the same warning as TensorFlow, and a log of either has its name in other lines.
#[test]
fn a_warning_of_the_shared_allocator_is_of_the_program_around_it() {
    let warning = "external/xla/xla/tsl/framework/bfc_allocator.cc:296] Allocator (GPU_0_bfc) ran out of memory trying to allocate 3.37GiB with \
                   freed_by_count=0. The caller indicates that this is not a failure, but this may mean that there could be performance gains if \
                   more memory were available.";
    let writer = |text: &str| parse(text).unwrap().dialect.writer;
    assert_eq!(writer(warning), Writer::XLA);
    assert_eq!(
        writer(&warning.replace("external/xla/xla", "external/local_tsl")),
        Writer::TENSORFLOW,
        "XLA in TensorFlow's own build"
    );
    assert_eq!(writer(&warning.replace("external/xla/xla/tsl/framework/", "W0101 ")), Writer::TENSORFLOW);
    let both = format!(
        "{}\njaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 3618503066 bytes.",
        &warning[..140]
    );
    assert_eq!(find_all(&both).iter().map(|m| m.dialect.writer).collect::<Vec<_>>(), [Writer::XLA], "one failure");
    assert_eq!(writer(&format!("I tensorflow/core/platform/cpu_feature_guard.cc:182]\n{warning}")), Writer::TENSORFLOW);
}

/// XLA's errors have no name of the framework that compiled the program.
#[test]
fn an_error_of_xla_is_of_the_program_that_compiled_it() {
    let error = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 29.75G of 7.75G hbm.";
    for (text, name) in [
        (error.to_owned(), "xla"),
        (format!("import torch_xla.core.xla_model as xm\n{error}"), "torch-xla"),
        (format!("tensorflow.python.framework.errors_impl.ResourceExhaustedError: {error}"), "tensorflow-bfc"),
        (format!("jaxlib.xla_extension.XlaRuntimeError: {error}"), "xla"),
        (format!("external/org_tensorflow/tensorflow/core/x.cc:1] {error}"), "xla"),
    ] {
        assert_eq!(parse(&text).unwrap().dialect.name(), name, "{text}");
    }
}

#[test]
fn ranks_of_one_job_on_a_card_are_known_by_their_ids() {
    let message = |rank: u32, others: &[u32]| {
        let others: String = others.iter().map(|pid| format!("Process {pid} has 9.00 GiB memory in use. ")).collect();
        format!(
            "[rank{rank}]: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 39.50 GiB of which 1.00 GiB is free. \
             {others}Including non-PyTorch memory, this process has 9.50 GiB memory in use.\n"
        )
    };
    let peers = |text: &str| find_all(text).iter().map(|m| m.seen.contains("peers")).collect::<Vec<_>>();
    assert_eq!(peers(&message(0, &[4101, 4102, 4104])), [true]);
    assert_eq!(peers(&message(0, &[311, 4102, 90_201])), [false]);
    assert_eq!(peers(&[message(0, &[311, 4102]), message(1, &[311, 90_201])].concat()), [true, true]);
}

/// PyTorch holds nothing, but every process has a context: the listed one, beside which nothing is free, is this one.
#[test]
fn a_process_beside_which_no_context_fits_is_this_one() {
    let m = parse("CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 22.19 GiB of which 1.50 MiB is free. Process 885415 has 22.18 GiB memory in use. Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.").unwrap();
    assert!(m.processes[0].is_this);
}

#[test]
fn a_sentence_beside_the_message_is_no_further_failure() {
    let text = format!("I am on a laptop.\n{MODERN}\nWith a batch of 4 I get CUDA out of memory, my card is small.");
    assert_eq!(find_all(&text).len(), 1);
    assert_eq!(find_all("With a batch of 4 I get CUDA out of memory, my card is small.").len(), 1);
}

/// Its errors do not tell who compiled the program, so the lines around each of them are searched.
#[test]
fn many_messages_of_xla_take_no_longer_than_others() {
    let of = |line: fn(usize) -> String| (0..500).map(line).collect::<String>();
    let xla = of(|i| {
        format!("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used {i}.25G of 15.50G hbm. Exceeded by 2G.\n")
    });
    let cupy = of(|i| {
        format!("cupy.cuda.OutOfMemoryError: Out of memory allocating {} bytes (allocated so far: 3,221 bytes).\n", 4096 * i)
    });
    let took = |log: &str| {
        let since = std::time::Instant::now();
        assert_eq!(find_all(log).len(), 500);
        since.elapsed()
    };
    let (xla, cupy): (Vec<_>, Vec<_>) = (0..20).map(|_| (took(&xla), took(&cupy))).unzip();
    let (xla, cupy) = (xla.iter().min().unwrap(), cupy.iter().min().unwrap());
    assert!(*xla < *cupy * 2, "{xla:?}, and others {cupy:?}");
}

#[test]
fn code_and_advice_are_no_failures() {
    for case in entries::entries(&[include_str!("tests/mentions.txt")]) {
        let text = case.all(">").collect::<Vec<_>>().join("\n");
        let found = find_all(&text);
        assert_eq!(found.len(), usize::from(case.head == "failure"), "{text}: {found:?}");
    }
}
