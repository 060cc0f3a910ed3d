//! `docs/FORMATS.md`: what is read from each release and tool, generated from what the readers return for the files listed there.
//!
//! `UPDATE_SNAPSHOTS=1 cargo test --test formats table` writes the page again. Rows of files in this repository are checked in
//! every run. Rows of corpus files are checked when `VRAMSCOPE_CORPUS` names the corpus, and otherwise stay as committed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::shared::{open, tables};
use vramscope_core::diagnose::explain::explain;
use vramscope_core::formats::{oom_message, stats};
use vramscope_core::model::{NoteKind, Recording};
use vramscope_core::units::{count, counted};

struct Row {
    /// The tool that wrote it.
    writer: &'static str,
    /// Its path; `corpus:` is the folder of recordings.
    file: &'static str,
}

const fn row(writer: &'static str, file: &'static str) -> Row {
    Row { writer, file }
}

const SNAPSHOTS: &[Row] = &[
    row("PyTorch 1.11 and 1.12: a list of segments", "fuzz/corpus/snapshot/list.pickle"),
    row("PyTorch 2.0.1, history in blocks", "corpus:versions/torch2.0.1_snapshot.pickle"),
    row("PyTorch 2.5.1", "corpus:versions/torch2.5.1_snapshot.pickle"),
    row("PyTorch 2.5.1, long trace", "corpus:versions/torch2.5.1_4665events.pickle"),
    row("PyTorch 2.11 on an H200, Python 3.12 (protocol 4)", "sample_snapshots/gpt_train.pickle"),
    row("the same, two devices in one process", "sample_snapshots/two_gpus.pickle"),
    row("the same, a private pool of a CUDA graph", "sample_snapshots/cuda_graph.pickle"),
    row("the same, expandable segments, out of memory", "sample_snapshots/expandable_oom.pickle"),
    row("the same, record_stream", "sample_snapshots/multi_stream.pickle"),
    row("the same, compressed with gzip", "sample_snapshots/kv_decode_oom.pickle.gz"),
    row("the same, with C++ stacks", "corpus:demo/resnet.cppstacks.pickle"),
    row("the same, torch.compile", "corpus:demo/compiled.default.pickle"),
    row("the same, a rank of DDP", "corpus:multi/ddp_rank0.pickle"),
    row("the same, a rank of FSDP2", "corpus:multi/fsdp_rank1.pickle"),
    row("PyTorch 2.15.0: pools, metadata, pinned host memory", "corpus:versions/torch2.15.0_snapshot.pickle"),
    row("PyTorch 2.15.0, long trace", "corpus:versions/torch2.15.0_4665events.pickle"),
    row("PyTorch 2.15.0, expandable segments", "corpus:versions/torch2.15.0_expandable.pickle"),
    row("PyTorch 2.15.0, a free that waits for a stream", "corpus:versions/torch2.15.0_pending_free.pickle"),
    row("PyTorch 2.15.0, written by C++ (protocol 2)", "corpus:versions/torch2.15.0_cpp_pickler.pickle"),
    row("the C++ pickler", "fuzz/corpus/snapshot/cpp.pickle"),
    row("pickle protocol 0", "fuzz/corpus/snapshot/protocol0.pickle"),
    row("pickle protocol 1", "fuzz/corpus/snapshot/protocol1.pickle"),
    row("pickle protocol 2", "fuzz/corpus/snapshot/protocol2.pickle"),
    row("pickle protocol 3", "fuzz/corpus/snapshot/protocol3.pickle"),
    row("pickle protocol 5 (Python 3.14)", "fuzz/corpus/snapshot/protocol5.pickle"),
    row("the dictionary as JSON", "fuzz/corpus/json_snapshot/small.json"),
    row("a page of `_memory_viz trace_plot`", "fuzz/corpus/html/trace_plot.html"),
    row("the same of PyTorch 2.15.0", "corpus:versions/torch2.15.0_trace_plot.html"),
    row("a page of PyTorch 2.0's `trace_plot`, which has the plot's own data", "fuzz/corpus/html/plot.html"),
];

const TRACES: &[Row] = &[
    row("PyTorch 2.0.1: whole microseconds since the epoch", "corpus:versions/torch2.0.1_trace_mem.json.gz"),
    row("PyTorch 2.5.1: fractions, relative to a base", "corpus:versions/torch2.5.1_trace_mem.json.gz"),
    row("PyTorch 2.15.0, with an out-of-memory event", "corpus:versions/torch2.15.0_trace_mem.json.gz"),
    row("PyTorch 2.11 on an H200, a transformer, with stacks and shapes", "corpus:profiler/gpt_train.trace.json"),
    row("the same, a ResNet, 67 MB", "corpus:profiler/resnet.trace.json"),
    row("a trace of every kind of event", "fuzz/corpus/kineto/relative.json"),
    row("the legacy form: a bare array", "fuzz/corpus/kineto/absolute_array.json"),
    row("quotes in names that are not escaped (Kineto before mid-2026)", "fuzz/corpus/kineto/unescaped.json"),
    row("cut off, as when the run was killed", "fuzz/corpus/kineto/truncated.json"),
];

const TIMELINES: &[Row] = &[
    row("PyTorch 2.2 and later, `.json`: microseconds", "fuzz/corpus/timeline/plot.json"),
    row("PyTorch 2.1, `.json`: nanoseconds", "fuzz/corpus/timeline/plot_ns.json"),
    row("`.raw.json.gz`: every allocation", "fuzz/corpus/timeline/raw.json"),
    row("PyTorch 2.11, `.json`", "corpus:profiler/resnet.memory_timeline.json"),
    row("PyTorch 2.11, `.raw.json.gz`", "corpus:profiler/resnet.memory_timeline.raw.json.gz"),
    row("PyTorch 2.15.0, `.json.gz`", "corpus:versions/torch2.15.0_memory_timeline.json.gz"),
    row("PyTorch 2.15.0, `.raw.json.gz`", "corpus:versions/torch2.15.0_memory_timeline.raw.json.gz"),
    row("RMM's logging_resource_adaptor, both spellings of the time", "fuzz/corpus/rmm/log.dev0.csv"),
];

const JAX: &[Row] = &[
    row("JAX 0.11.2 on an H200, a training step", "tests/recordings/jax_train.prof"),
    row("the same, which keeps its outputs", "tests/recordings/jax_leak.prof"),
    row("two GPUs, a TPU, the host and compiled programs, put together", "fuzz/corpus/jax/four_devices.pb"),
];

const COUNTERS: &[Row] = &[
    row("`memory_stats()` as JSON", "fuzz/corpus/stats/flat.json"),
    row("a nested dictionary, printed", "fuzz/corpus/stats/nested.txt"),
    row("`memory_stats()` of PyTorch 2.11", "corpus:profiler/gpt_train.memory_stats.json"),
    row("`memory_stats()` of PyTorch 2.15.0", "corpus:versions/torch2.15.0_memory_stats.json"),
    row("`memory_summary()` of PyTorch 2.15.0", "fuzz/corpus/stats/summary.txt"),
    row("`host_memory_stats()`", "fuzz/corpus/stats/host.json"),
    row("`host_memory_stats()` of PyTorch 2.15.0", "corpus:versions/torch2.15.0_host_memory_stats.json"),
];

const MESSAGES: &[Row] = &[
    row("PyTorch 0.4 and older", "fuzz/corpus/oom_message/torch_0_4.txt"),
    row("PyTorch 1.0 to 1.3", "fuzz/corpus/oom_message/torch_1_0.txt"),
    row("PyTorch 1.4 to 2.0", "fuzz/corpus/oom_message/torch_1_10.txt"),
    row("PyTorch 2.1 to 2.15", "fuzz/corpus/oom_message/torch_2_15.txt"),
    row("cudaMallocAsync", "fuzz/corpus/oom_message/malloc_async.txt"),
    row("XPU and MPS", "fuzz/corpus/oom_message/xpu_mps.txt"),
    row("JAX", "fuzz/corpus/oom_message/jax.txt"),
    row("every message of 2.0.1, 2.5.1 and 2.15.0 we have", "corpus:versions/oom_messages.txt"),
];

/// Describes what a reader returned for a file.
type Facts = fn(&Path) -> String;

const TABLES: [(&str, &str, &[Row], Facts); 6] = [
    (
        "Snapshots",
        "`torch.cuda.memory._dump_snapshot`, `memory_snapshot()`, and what others make of them; plain, or inside gzip, zstd or zip.",
        SNAPSHOTS,
        of_recording,
    ),
    (
        "Profiler traces",
        "`torch.profiler` with `profile_memory=True`: `export_chrome_trace`, the TensorBoard handler.",
        TRACES,
        of_recording,
    ),
    ("Timelines and logs", "`export_memory_timeline` of a profile, and RMM's log.", TIMELINES, of_recording),
    (
        "JAX's memory profiles",
        "`jax.profiler.save_device_memory_profile`: the arrays that are alive at one instant. `vramscope diff EARLY LATE` tells what grew.",
        JAX,
        of_recording,
    ),
    ("Counters", "Opened alone, or added to a snapshot and compared with it.", COUNTERS, of_counters),
    ("Messages", "The text of an error, alone or in a log: `vramscope explain`.", MESSAGES, of_messages),
];

fn of_recording(path: &Path) -> String {
    let r = open(path);
    let mut facts: Vec<String> = r.devices.iter().map(|d| of_device(&r, d)).collect();
    if !r.ops.is_empty() {
        facts.push(format!(
            "{} in {}",
            counted(r.ops.len() as u64, "operator, call or kernel", "operators, calls and kernels"),
            counted(r.ops.lanes.len() as u64, "lane", "lanes")
        ));
    }
    let mut odd: Vec<&str> = r.report.warnings.iter().map(|w| w.kind.name()).collect();
    odd.dedup();
    if !odd.is_empty() {
        facts.push(format!("reported: {}", odd.join(", ").replace('_', " ")));
    }
    facts.join("; ")
}

fn of_device(r: &Recording, d: &vramscope_core::model::DeviceRecording) -> String {
    let tables = tables(d);
    let e = &d.events;
    let mut facts = vec![counted(e.len() as u64, "event", "events")];
    let mut add = |is: bool, what: String| {
        if is {
            facts.push(what);
        }
    };
    add(
        !d.segments.is_empty(),
        format!(
            "{} with {}",
            counted(d.segments.len() as u64, "segment", "segments"),
            counted(d.blocks.len() as u64, "block", "blocks")
        ),
    );
    add(d.segments.is_empty() && !d.blocks.is_empty(), counted(d.blocks.len() as u64, "block", "blocks"));
    add(e.has_time, "times".to_owned());
    add(e.stack.iter().any(|s| s.is_some()) || d.blocks.iter().any(|b| b.stack.is_some()), "stacks".to_owned());
    add(!e.is_empty() && tables.lifetimes.blocks_exact, "exact block sizes".to_owned());
    add(d.pools.len() > 1, counted(d.pools.len() as u64, "pool", "pools"));
    add(d.streams.len() > 1, counted(d.streams.len() as u64, "stream", "streams"));
    let ooms = e.ooms().len() as u64;
    add(ooms > 0, counted(ooms, "failed request", "failed requests"));
    add(d.settings.recorded, "allocator settings".to_owned());
    add(!d.annotations.is_empty(), counted(d.annotations.len() as u64, "range", "ranges"));
    let noted = |kind: NoteKind| e.notes.iter().filter(|n| n.kind == kind).count() as u64;
    add(
        noted(NoteKind::Operator) > 0,
        format!("operators of {}", counted(noted(NoteKind::Operator), "allocation", "allocations")),
    );
    add(noted(NoteKind::Shapes) > 0, "shapes".to_owned());
    add(noted(NoteKind::Category) > 0, "categories".to_owned());
    add(noted(NoteKind::UserMetadata) > 0, "user metadata".to_owned());
    add(!d.bands.is_empty(), format!("{} by category", counted(d.bands.len() as u64, "row", "rows")));
    let name = if r.devices.len() > 1 { format!("{}: ", d.id) } else { String::new() };
    format!("{name}{}", facts.join(", "))
}

fn of_counters(path: &Path) -> String {
    let s = stats::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    format!("{}, {}", s.kind.name(), counted(s.values.len() as u64, "counter", "counters"))
}

fn of_messages(path: &Path) -> String {
    let text = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
    let found = oom_message::find_all(&text);
    assert!(!found.is_empty(), "{}", path.display());
    let mut by_dialect: BTreeMap<String, (u64, usize)> = BTreeMap::new();
    for message in &found {
        let told = explain(message);
        let entry = by_dialect.entry(message.dialect.name()).or_default();
        entry.0 += 1;
        entry.1 = entry.1.max(told.figures.len());
    }
    let told: Vec<String> = by_dialect
        .iter()
        .map(|(dialect, (n, figures))| {
            let times = if *n > 1 { format!(" × {}", count(*n)) } else { String::new() };
            format!("{dialect}{times}: {}", counted(*figures as u64, "figure", "figures"))
        })
        .collect();
    told.join("; ")
}

const HEAD: &str = "# What is read

A file is told by its first bytes, not by its name. Readers give what they can of a damaged file and say what they could not read; a
pickle can import, call and build nothing. Written by `tests/formats/table.rs` from what the readers give for these files; change the
readers or the list there, not this page. Files of `corpus/` are recordings of real runs that are too large for this repository.
";

const BOUNDS: &str = "
## What reading takes

A file is read into memory and not mapped: PyTorch writes a snapshot over the one before, and a mapped file that gets shorter ends the
program. Its bytes are given back when the recording is made. What holds for every file, damaged or made to do harm:

| what | bound |
|---|---|
| the file itself | its size, which must be less than the memory that is free; else one sentence says so |
| a file that is written meanwhile | what was read is shown, with a sentence that it changed; known by size, time and inode |
| containers, all layers together | 400 times the file, 16 MiB for small ones; at most 4 layers |
| values of a snapshot outside its traces | one in 4 bytes, and a million: 40 bytes each |
| events | one in 24 bytes: 33 bytes each |
| segments, blocks and ranges | one in 16 bytes, counted as often as they are referred to |
| frames and stacks | stored once however many events share them; a use costs 4 bytes; at most 4,096 frames a stack |
| what an event says in words | 32 notes, 1 MiB each |
| devices | 128 of a kind, as PyTorch numbers them; 4,096 of a JAX profile |
| a session | 128 devices; 4,096 processes of one list |
| failed requests that are examined | the last 256; fewer, at least 4, where together they would look at more than a million blocks and segments |
| a log | the first 16 and the last 64 MiB; a packed one unpacks to at most 4 GiB |
| arrays of a JAX profile | 2,097,152, which it tells by their number; its stacks together four lines a byte |

A recording takes memory in proportion to its file. What breaks a bound is refused in a sentence with its place, or left out and
counted in the load report.
";

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/FORMATS.md")
}

#[test]
fn the_page_of_formats_says_what_the_readers_give() {
    let corpus = std::env::var_os("VRAMSCOPE_CORPUS").map(PathBuf::from);
    if corpus.is_none() {
        crate::shared::not_run("VRAMSCOPE_CORPUS names no folder of recordings");
    }
    let committed = std::fs::read_to_string(page()).unwrap_or_default();
    // What the committed page says about each file.
    let known: BTreeMap<&str, &str> = committed
        .lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let [_, file, facts] = cells[..] else { return None };
            Some((file.trim_matches('`'), facts))
        })
        .collect();
    let mut out = HEAD.to_owned() + BOUNDS;
    for (title, about, rows, facts) in TABLES {
        out += &format!("\n## {title}\n\n{about}\n\n| written by | file | what is read |\n|---|---|---|\n");
        for Row { writer, file } in rows {
            let shown = file.replace("corpus:", "corpus/");
            let told = match (file.strip_prefix("corpus:"), &corpus) {
                (None, _) => facts(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file)),
                (Some(name), Some(dir)) => facts(&dir.join(name)),
                (Some(_), None) => known
                    .get(shown.as_str())
                    .unwrap_or_else(|| panic!("{file} is not in the page: run with VRAMSCOPE_CORPUS"))
                    .to_string(),
            };
            out += &format!("| {writer} | `{shown}` | {} |\n", told.replace('\u{a0}', " "));
        }
    }
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(page(), &out).unwrap();
        return;
    }
    for (line, (is, should)) in committed.lines().zip(out.lines()).enumerate() {
        assert_eq!(is, should, "docs/FORMATS.md, line {}: run UPDATE_SNAPSHOTS=1 cargo test --test formats table", line + 1);
    }
    assert_eq!(
        committed.len(),
        out.len(),
        "docs/FORMATS.md is of another length: run UPDATE_SNAPSHOTS=1 cargo test --test formats table"
    );
}
