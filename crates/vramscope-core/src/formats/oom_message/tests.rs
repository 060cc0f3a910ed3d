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
    let own = |p: &ProcessUse| if p.is_this && p.pid.is_some() { " (this)" } else { "" };
    out.extend(m.processes.iter().map(|p| format!("{}{} {}", name(p.pid), own(p), p.bytes.printed())));
    out.extend(m.is_absurd_request.then(|| "absurd".to_owned()));
    out.join(", ")
}

#[test]
fn derived_figures_of_pytorch_are_sums_of_printed_ones() {
    let m = parse(MODERN).unwrap();
    assert_eq!(
        [m.reserved(), m.this_process(), m.other_processes()].map(nearest),
        [Some(1600 * MEBIBYTE), Some(gib(2.07)), Some(gib(2.01) + gib(1.91))]
    );
    let m = parse("CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 2.00 GiB of which 1.47 GiB is free. Process 4242 has 200.00 MiB memory in use. Including non-PyTorch memory, this process has 342.00 MiB memory in use. Of the allocated memory 225.00 MiB is allocated by PyTorch, with 13.00 MiB allocated in private pools (e.g., CUDA Graphs), and 17.00 MiB is reserved by PyTorch but unallocated. expandable_segments is enabled. If instead").unwrap();
    assert_eq!([m.live(), m.outside_pytorch()].map(nearest), [Some(212 * MEBIBYTE), Some(100 * MEBIBYTE)]);
    assert!(m.seen.contains("expands"));
    // PyTorch's own warning has the exact bytes of the failure that follows.
    let warning = "CUDACachingAllocator.cpp:3934] memory allocation failed with OOM on device 0 while trying to allocate 524287000 bytes (free: 5000, total: 150109211033).";
    let f = parse(&format!("{warning}\n{MODERN}")).unwrap().figures;
    assert_eq!(f.requested.zip(f.capacity), Some((Figure::exact(524_287_000), Figure::exact(150_109_211_033))));
    assert!(f.free.is_some_and(|free| free.slack > 0), "of another moment");
}

#[test]
fn buffers_of_xla_are_read() {
    let text = "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4770354232 bytes.\nBufferAssignment OOM Debugging.\nBufferAssignment stats:\n             parameter allocation:  372.76MiB\n              constant allocation:         0B\n        maybe_live_out allocation:  372.76MiB\n     preallocated temp allocation:    4.44GiB\n                 total allocation:    4.80GiB\n              total fragmentation:  680.30MiB (4.60%)\nPeak buffers:\n\tBuffer 1:\n\t\tSize: 512.00MiB\n\t\tOperator: op_name=\"jit(f)/dot_general\" source_file=\"train.py\" source_line=41\n\t\tXLA Label: fusion\n\t\tShape: f32[64,1024,2048]\n\t\t==========================\n";
    let m = parse(text).unwrap();
    assert_eq!((m.extra.len(), m.extra[5].0.as_str(), m.peak_buffers.len()), (6, "total fragmentation", 1));
    assert_eq!((m.peak_buffers[0].bytes, m.peak_buffers[0].source.as_deref()), (512 * MEBIBYTE, Some("train.py:41")));
}

/// Wrapped lines with prefixes and colours, colour codes with a written-out or lost escape character, HTML, JSON, large and small letters.
#[test]
fn the_form_of_a_message_changes_nothing() {
    let plain = parse(MODERN).unwrap();
    let quoted = format!("{{\"error\": \"{}\"}}", MODERN.replace(". ", ".\\n"));
    let mut texts = vec![quoted, MODERN.to_uppercase(), MODERN.to_lowercase()];
    for width in [13, 40, 80, 119] {
        let chars: Vec<char> = MODERN.chars().collect();
        let line = |c: &[char]| format!("[rank7]: \u{1b}[31m{}\u{1b}[0m\n", c.iter().collect::<String>());
        texts.push(format!("epoch 3\n{}[rank7]:   done\n", chars.chunks(width).map(line).collect::<String>()));
    }
    texts.extend(["", "^[", "\\x1b", "\\u001b", "\u{1b}"].map(|escape| {
        let in_colour = |part: &str| format!("{escape}[1;36m{part}{escape}[0m");
        let coloured = MODERN.replace("500.00", &in_colour("500.00")).replace("133.79 ", &in_colour("133.79"));
        coloured.replace("out of memory.", &format!("out of {}.", in_colour("memory")))
    }));
    texts.extend(["<br>", "<br/>", "<br />"].map(|br| MODERN.replace(". ", &format!(".{br}"))));
    for text in texts {
        let m = parse(&text).unwrap();
        let of = |m: &OomMessage| (m.figures, m.processes.clone(), m.gpu, m.dialect, m.settings_variable);
        assert_eq!(of(&m), of(&plain), "{text}");
        let is_ranked = text.starts_with("epoch");
        assert_eq!((m.rank, m.line > 1), (is_ranked.then_some(7), is_ranked), "{text}");
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

/// A server's processes log an error in turn, each below a long traceback.
#[test]
fn layers_of_a_server_s_failure_are_one() {
    let frames = "(EngineCore pid=77)   File \"vllm/v1/engine/core.py\", line 1140, in run_engine_core\n".repeat(90);
    for error in ["RuntimeError: CUDA driver error: out of memory", MODERN] {
        let twice = format!("(EngineCore pid=77) ERROR core.py: {error}\n{frames}(EngineCore pid=77) {error}\n");
        assert_eq!(find_all(&twice).len(), 1, "{twice}");
        assert_eq!(find_all(&twice.replace("vllm/v1/engine/core", "train/loop").replace("EngineCore", "Job")).len(), 2);
    }
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

/// A title has its error in full below it, however far and of whichever rank, and a quote repeats one that the text has.
#[test]
fn titles_and_quotes_are_no_failures_of_their_own() {
    let far = "  File \"net.py\", line 1, in part\n".repeat(99);
    let error = "RuntimeError: CUDA error: out of memory";
    for (text, line, rank) in [
        (format!("# {error} on two cards\n{far}[rank1]: {error}\n"), 101, Some(1)),
        (format!("{error}\n\n{far}{error}\n"), 102, None),
        (format!("{error}\n{far}> {error}\n"), 101, None),
        (format!("> {error}\n{far}{error}\n"), 101, None),
    ] {
        let found = find_all(&text);
        assert_eq!(found.iter().map(|m| (m.line, m.rank)).collect::<Vec<_>>(), [(line, rank)], "{text}");
    }
    assert_eq!(find_all(&format!("{error}\n{far}{error}\n")).len(), 2);
}

/// The texts of a table, whose first lines have `-` and others `>`, with what they are cases of, and the lines with `=`.
fn texts(table: &'static str) -> Vec<(&'static str, String, Vec<&'static str>)> {
    let mut out = Vec::new();
    for entry in entries::entries(&[table]) {
        for lines in entry.lines.chunk_by(|_, next| next.0 != "-") {
            let all = |is_read: bool| lines.iter().filter(move |(mark, _)| (*mark == "=") == is_read).map(|&(_, text)| text);
            out.push((entry.head, all(false).collect::<Vec<_>>().join("\n"), all(true).collect()));
        }
    }
    out
}

#[test]
fn texts_are_read_as_expected() {
    let rank = |m: &OomMessage| m.rank.map_or(String::new(), |rank| format!(", rank {rank}"));
    let kind = |m: &OomMessage| {
        let seen = ["expands", "peers"].into_iter().filter(|what| m.seen.contains(what)).map(str::to_owned);
        let warned = (m.warnings > 0).then(|| format!("warned {}", m.warnings));
        let kinds = (!m.is_failure()).then(|| "no failure".to_owned()).into_iter().chain(seen).chain(warned);
        kinds.map(|kind| format!(", {kind}")).collect::<String>()
    };
    let line = |m: &OomMessage| format!("{}, line {}{}{}: {}", m.dialect.name(), m.line, rank(m), kind(m), told(m));
    let mut wrong = String::new();
    for (head, text, reads) in texts(include_str!("tests/readings.txt")) {
        let found = find_all(&text);
        let shown = if head == "main" { &found[main_message(&found)..][..1] } else { &found[..] };
        let read: Vec<String> = shown.iter().map(|m| line(m).trim_end().to_owned()).collect();
        if read != reads {
            wrong += &format!("{text}\n    = {}\n", read.join("\n    = "));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn code_and_advice_are_no_failures() {
    for (head, text, _) in texts(include_str!("tests/mentions.txt")) {
        let found = find_all(&text);
        assert_eq!(found.len(), usize::from(head == "failure"), "{text}: {found:?}");
    }
}
