//! Exports read by the tools they are for: always CPython's `pickle`, `json` and `csv`; also pyarrow, DuckDB, Polars and Spark if
//! `python3` can import them. The truth is the pickle itself, read by Python.

use crate::shared::sample;
use std::path::Path;
use std::process::Command;

fn export(file: &Path, to: &str, out: &Path, more: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramscope"));
    let output = command.arg("export").arg(file).args(["--to", to, "--force"]).arg(out).args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// True when `python3` can import a module. Reports it when it cannot.
fn has(module: &str) -> bool {
    let output = Command::new("python3").args(["-c", &format!("import {module}")]).output();
    let found = output.is_ok_and(|o| o.status.success());
    if !found {
        crate::shared::not_run(&format!("python3 cannot import {module}"));
    }
    found
}

/// Runs Python in a folder. Its output is shown with the test's.
fn python(folder: &Path, script: &str, args: &[&str]) {
    let output = Command::new("python3").arg("-c").arg(script).args(args).current_dir(folder).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    println!("{}", said.trim_end());
}

const SAMPLES: [&str; 4] = ["gpt_train.pickle", "leak.pickle", "fragment_oom.pickle", "multi_stream.pickle"];

/// What each table must contain, computed from the pickle.
const TRUTH: &str = r#"
import pickle, sys
def truth(path):
    s = pickle.load(open(path, "rb"))
    traces = [t for t in s["device_traces"] if t]
    events = [e for t in traces for e in t]
    blocks = [(b["address"], b["size"], b["state"], b["requested_size"]) for g in s["segments"] for b in g["blocks"]]
    reserved = {}
    return events, blocks, s
def check(read, path, name):
    events, blocks, s = truth(path)
    rows = read("events")
    assert len(rows) == len(events), (len(rows), len(events))
    for row, e in zip(rows, events):
        assert row["action"] == e["action"], (row, e)
        assert int(row["bytes"]) == e["size"] and int(row["time_us"]) == e["time_us"], (row, e)
        if e["action"] not in ("oom", "snapshot"):
            assert int(row["address"]) == e["addr"], (row, e)
        if e["action"] == "oom":
            assert int(row["device_free_bytes"]) == e["device_free"], (row, e)
    got = [(int(r["address"]), int(r["bytes"]), r["state"]) for r in read("blocks")]
    assert sorted(got) == sorted(b[:3] for b in blocks)
    lifetimes = read("lifetimes")
    born = [r for r in lifetimes if r["born_event"] not in (None, "")]
    allocs = [e for e in events if e["action"] == "alloc"]
    assert sorted((int(r["address"]), int(r["requested_bytes"])) for r in born) == sorted((e["addr"], e["size"]) for e in allocs)
    assert all(int(r["block_bytes"]) >= int(r["requested_bytes"]) for r in lifetimes)
    curves = read("curves")
    assert len(curves) == len(events)
    # What the trace says was taken from the device, added up: the curve differs from it by what was there before, always the same.
    total, before = 0, None
    for row, e in zip(curves, events):
        total += {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}.get(e["action"], 0) * e["size"]
        start = int(row["reserved_bytes"]) - total
        before = start if before is None else before
        assert start == before, (row, total, before)
    assert int(curves[-1]["reserved_bytes"]) == sum(g["total_size"] for g in s["segments"])
    frames = read("stacks")
    deepest = max((len(e.get("frames", [])) for e in events), default=0)
    if deepest:
        depths = {}
        for f in frames:
            depths[f["stack"]] = max(depths.get(f["stack"], 0), int(f["depth"]) + 1)
        assert max(depths.values()) >= deepest, (max(depths.values()), deepest)
    print(name, len(rows), "events,", len(got), "blocks,", len(lifetimes), "lifetimes agree with the pickle")
"#;

/// Exports each sample and compares what a Python module reads with the pickle. `read` is the body of a function that returns the
/// rows of table `t`.
fn python_reads(module: &str, format: &str, read: &str) {
    if !has(module) {
        return;
    }
    let script = format!("{TRUTH}\nimport glob\nimport {module}\ndef read(t):\n{read}\ncheck(read, sys.argv[1], sys.argv[2])");
    for name in SAMPLES {
        let folder = tempfile::tempdir().unwrap();
        export(&sample(name), format, &folder.path().join("out"), &[]);
        python(folder.path(), &script, &[&sample(name).display().to_string(), name]);
    }
}

#[test]
fn csv_tables_hold_what_the_pickle_holds() {
    let read = r"
    (f,) = glob.glob(f'out/{t}/job=*/rank=*/*.csv')
    return list(csv.DictReader(open(f, newline='')))";
    python_reads("csv", "csv", read);
}

#[test]
fn parquet_tables_are_read_by_pyarrow() {
    let read = r"
    (f,) = glob.glob(f'out/{t}/job=*/rank=*/*.parquet')
    return pyarrow.parquet.ParquetFile(f).read().to_pylist()";
    python_reads("pyarrow.parquet", "parquet", read);
}

#[test]
fn parquet_tables_are_read_by_duckdb() {
    let read = r#"
    r = duckdb.sql(f"SELECT * FROM read_parquet('out/{t}/*/*/*.parquet', hive_partitioning = true)")
    names = [c[0] for c in r.description]
    return [dict(zip(names, row)) for row in r.fetchall()]"#;
    python_reads("duckdb", "parquet", read);
}

/// The code blocks of a language in docs/EXPORT.md.
fn code_blocks(language: &str) -> Vec<String> {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/EXPORT.md")).unwrap();
    let fence = format!("```{language}\n");
    page.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// Two ranks in one folder as in docs/EXPORT.md, and one as CSV.
fn fleet(folder: &Path) {
    export(&sample("leak.pickle"), "parquet", &folder.join("exports"), &["--rank", "0"]);
    export(&sample("fragment_oom.pickle"), "parquet", &folder.join("exports"), &["--rank", "1"]);
    export(&sample("leak.pickle"), "csv", &folder.join("exports_csv"), &["--rank", "0"]);
}

#[test]
fn every_statement_of_the_page_runs_in_duckdb() {
    let statements = code_blocks("sql");
    assert!(statements.len() >= 6, "{} statements", statements.len());
    if !has("duckdb") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fleet(folder.path());
    let script = "import duckdb, sys\nfor statement in sys.argv[1:]:\n    rows = duckdb.sql(statement).fetchall()\n    assert rows, 'no rows: ' + statement\n    print(len(rows), 'rows:', rows[0])";
    python(folder.path(), script, &statements.iter().map(String::as_str).collect::<Vec<_>>());
    // One complete answer, computed by the library itself.
    let script = r#"
import duckdb
((peak,),) = duckdb.sql("SELECT max(reserved_bytes) FROM read_parquet('exports/curves/*/*/*.parquet', hive_partitioning = true) WHERE rank = 1").fetchall()
((csv,),) = duckdb.sql("SELECT sum(block_bytes) FROM read_csv('exports_csv/lifetimes/*/*/*.csv')").fetchall()
((parquet,),) = duckdb.sql("SELECT sum(block_bytes) FROM read_parquet('exports/lifetimes/job=leak/rank=0/*.parquet')").fetchall()
assert peak == 1677721600 and csv == parquet, (peak, csv, parquet)
"#;
    python(folder.path(), script, &[]);
}

#[test]
fn the_pages_of_python_run_where_their_libraries_are() {
    let blocks = code_blocks("python");
    assert_eq!(blocks.len(), 2);
    let folder = tempfile::tempdir().unwrap();
    fleet(folder.path());
    for (block, module) in blocks.iter().zip(["polars", "pyspark"]) {
        if has(module) {
            let rows = if module == "polars" { "len(result)" } else { "result.count()" };
            python(folder.path(), &format!("{block}\nassert {rows} > 0\nprint({rows}, 'rows')"), &[]);
        }
    }
}

#[test]
fn snapshots_are_read_by_python_s_pickle() {
    if !has("pickle") {
        return;
    }
    let whole = r#"
import pickle, sys
a, b = (pickle.load(open(p, "rb")) for p in sys.argv[1:3])
events = lambda s: [[(e["action"], e.get("addr"), e["size"], e["stream"], e["time_us"], e.get("device_free"), [(f["name"], f["filename"], f["line"]) for f in e.get("frames", [])]) for e in t] for t in s["device_traces"] if t]
segments = lambda s: [(g["device"], g["address"], g["total_size"], g["stream"], g["segment_type"], g["is_expandable"], [(k["address"], k["size"], k["state"], k["requested_size"] if k["state"] != "inactive" else 0) for k in g["blocks"]]) for g in s["segments"]]
assert events(a) == events(b), "events differ"
assert segments(a) == segments(b), "segments differ"
print(sum(map(len, events(b))), "events and", len(segments(b)), "segments as they were")
"#;
    let part = r#"
import pickle, sys
s = pickle.load(open(sys.argv[1], "rb"))
first, last = int(sys.argv[2]), int(sys.argv[3])
t = pickle.load(open(sys.argv[4], "rb"))
old = next(x for x in s["device_traces"] if x)[first:last]
new = next(x for x in t["device_traces"] if x)
key = lambda e: (e["action"], e.get("addr"), e["size"], e["time_us"])
assert [key(e) for e in new] == [key(e) for e in old]
for g in t["segments"]:
    at = g["address"]
    for b in g["blocks"]:
        assert b["address"] == at
        at += b["size"]
    assert at == g["address"] + g["total_size"]
# Replayed from the start, the original trace leaves the same allocations live as the trimmed file's end state has.
live = {}
for e in next(x for x in s["device_traces"] if x)[:last]:
    if e["action"] == "alloc": live[e["addr"]] = e["size"]
    elif e["action"] == "free_completed": live.pop(e["addr"], None)
held = {b["address"]: b["requested_size"] for g in t["segments"] for b in g["blocks"] if b["state"] != "inactive"}
assert live.items() <= held.items(), "what was allocated in the trace is live in the trimmed file"
# Paths are cut to what tells nothing of the machine.
files = {f["filename"] for e in new for f in e.get("frames", [])}
assert all(not f.startswith(("/home/", "/root/", "/Users/")) for f in files), files
print(len(new), "events,", len(held), "live blocks,", len(files), "files")
"#;
    let folder = tempfile::tempdir().unwrap();
    for name in SAMPLES {
        let (from, to) = (sample(name).display().to_string(), folder.path().join("whole.pickle"));
        export(&sample(name), "snapshot", &to, &[]);
        python(folder.path(), whole, &[&from, "whole.pickle"]);
    }
    let from = sample("gpt_train.pickle").display().to_string();
    for (a, b) in [(0, 900), (1500, 2600)] {
        let (range, out) = (format!("{a}..{b}"), folder.path().join("part.pickle"));
        export(&sample("gpt_train.pickle"), "snapshot", &out, &["--events", &range, "--redact"]);
        python(folder.path(), part, &[&from, &a.to_string(), &b.to_string(), "part.pickle"]);
    }
}

#[test]
fn flame_graphs_and_counters_follow_their_formats() {
    if !has("json") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let speedscope = r#"
import json
d = json.load(open("out.json"))
assert d["$schema"] == "https://www.speedscope.app/file-format-schema.json"
frames = d["shared"]["frames"]
assert frames and all(isinstance(f["name"], str) for f in frames)
assert d["profiles"]
for p in d["profiles"]:
    assert p["type"] == "sampled" and p["unit"] == "bytes" and p["name"]
    assert len(p["samples"]) == len(p["weights"])
    assert all(0 <= i < len(frames) for s in p["samples"] for i in s)
    assert all(w >= 0 for w in p["weights"])
    assert p["startValue"] == 0 and p["endValue"] == sum(p["weights"]), p["name"]
print(len(frames), "frames,", [(p["name"], p["endValue"]) for p in d["profiles"]])
"#;
    let perfetto = r#"
import json
d = json.load(open("out.json"))
events = d["traceEvents"]
last = {}
counters = 0
for e in events:
    assert e["ph"] in "MCXBEi" and isinstance(e["pid"], int), e
    if e["ph"] == "M": continue
    assert isinstance(e["ts"], (int, float)), e
    if e["ph"] == "C":
        counters += 1
        key = (e["pid"], e["name"])
        # A thread of a process's own number is its main thread to Perfetto, and so is thread 0.
        assert "tid" not in e or e["tid"] > 1000, e
        assert e["ts"] >= last.get(key, e["ts"]), e
        last[key] = e["ts"]
        assert e["args"] and all(isinstance(v, int) and v >= 0 for v in e["args"].values()), e
    if e["ph"] == "X": assert e["dur"] >= 0, e
assert counters > 0
print(len(events), "events,", counters, "counter values")
"#;
    for name in SAMPLES {
        export(&sample(name), "speedscope", &folder.path().join("out.json"), &[]);
        python(folder.path(), speedscope, &[]);
        export(&sample(name), "perfetto", &folder.path().join("out.json"), &[]);
        python(folder.path(), perfetto, &[]);
    }
}

/// Runs `export`. Returns the exit code and standard error.
fn refused(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_vramscope")).arg("export").args(args).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn an_export_never_overwrites_its_source_and_an_older_file_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::copy(sample("leak.pickle"), at("self.pickle")).unwrap();
    std::os::unix::fs::symlink(at("self.pickle"), at("link.pickle")).unwrap();
    let before = std::fs::read(at("self.pickle")).unwrap();
    for out in ["self.pickle", "link.pickle"] {
        let (code, said) = refused(&["--to", "snapshot", "--events", "0..10", "--force", &at("self.pickle"), &at(out)]);
        assert!(code == Some(1) && said.contains("is the recording itself"), "{said}");
    }
    assert_eq!(std::fs::read(at("self.pickle")).unwrap(), before);
    let export = |force: &[&str]| {
        let (source, out) = (at("self.pickle"), at("cut.pickle"));
        refused(&[&["--to", "snapshot", "--events", "0..10", &source, &out], force].concat())
    };
    assert_eq!(export(&[]).0, Some(0));
    assert!(export(&[]).1.contains("--force"));
    assert_eq!(export(&["--force"]).0, Some(0));
    // Names that do not fit the format create no file.
    let (code, said) = refused(&["--to", "csv", &at("self.pickle"), &at("x.parquet")]);
    assert!(code == Some(2) && said.contains("ending in .csv") && !Path::new(&at("x.parquet")).exists(), "{said}");
    let (code, said) = refused(&["--to", "csv", &at("self.pickle"), &at("nodir/x.csv")]);
    assert!(code == Some(1) && said.contains("there is no folder") && !Path::new(&at("nodir")).exists(), "{said}");
}

#[test]
fn a_folder_of_recordings_is_one_data_set() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("in")).unwrap();
    for (from, to) in [("leak", "a.rank.4"), ("leak", "a.rank.5"), ("two_gpus", "oom_1700000000")] {
        std::fs::copy(sample(&format!("{from}.pickle")), folder.path().join(format!("in/{to}.pickle"))).unwrap();
    }
    export(&folder.path().join("in"), "parquet", &folder.path().join("out"), &["--table", "events"]);
    let files = |of: &str| std::fs::read_dir(folder.path().join("out/events").join(of)).map_or(0, Iterator::count);
    let alone = "job=oom_1700000000/rank=-1";
    assert_eq!((files("job=a/rank=4"), files("job=a/rank=5"), files(alone)), (1, 1, 2));
    if has("duckdb") {
        let script = r#"
import duckdb
rows = duckdb.sql("SELECT rank, count(*) FROM read_parquet('out/events/*/*/*.parquet', hive_partitioning = true) GROUP BY rank ORDER BY rank").fetchall()
assert [r for r, _ in rows] == [-1, 4, 5] and rows[1][1] == rows[2][1] > 0 and rows[0][1] == 1935, rows
"#;
        python(folder.path(), script, &[]);
    }
}

/// Spark takes a colon for the end of a scheme, and ignores names that begin with `_` or `.`, as pyarrow does.
#[test]
fn the_files_of_a_data_set_have_names_that_every_reader_sees() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("in")).unwrap();
    let names = ["run_2026-11-21T17:29:02", "_hidden_rank0", "_hidden_rank1", "_", "_run_2026-11-21T17_29_02"];
    for name in names {
        std::fs::copy(sample("leak.pickle"), folder.path().join(format!("in/{name}.pickle"))).unwrap();
    }
    export(&folder.path().join("in"), "csv", &folder.path().join("out"), &["--table", "events"]);
    let mut files = Vec::new();
    for job in std::fs::read_dir(folder.path().join("out/events")).unwrap() {
        for rank in std::fs::read_dir(job.unwrap().path()).unwrap() {
            for file in std::fs::read_dir(rank.unwrap().path()).unwrap() {
                files.push(file.unwrap().path());
            }
        }
    }
    assert_eq!(files.len(), names.len(), "{files:?}");
    for file in &files {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(!name.contains(':') && !name.starts_with(['_', '.']), "{name}");
        let text = std::fs::read_to_string(file).unwrap();
        // The table contains the real name.
        assert!(names.iter().any(|n| text.lines().nth(1).unwrap().contains(&format!("{n}.pickle"))), "{name}");
    }
}

/// Two jobs with the same ranks, two steps of a third, and a file of unknown rank. Their figures must not mix.
#[test]
fn jobs_and_steps_of_a_folder_are_kept_apart() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        ("leak", "ddp_rank0"),
        ("gpt_train", "ddp_rank1"),
        ("fragment_oom", "fsdp_rank0"),
        ("leak", "fsdp_rank1"),
        ("leak", "iteration_10/rank0"),
        ("gpt_train", "iteration_20/rank0"),
        ("gpt_train", "iteration_10/rank1"),
        ("leak", "iteration_20/rank1"),
        ("multi_stream", "alone"),
    ];
    for (from, to) in files {
        let to = folder.path().join(format!("in/{to}.pickle"));
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(sample(&format!("{from}.pickle")), to).unwrap();
    }
    export(&folder.path().join("in"), "parquet", &folder.path().join("exports"), &[]);
    let one = |of: &str| std::fs::read_dir(folder.path().join("exports/curves").join(of)).map_or(0, Iterator::count);
    for of in ["job=ddp/rank=0", "job=ddp/rank=1", "job=fsdp/rank=0", "job=fsdp/rank=1", "job=iteration_10/rank=0"] {
        assert_eq!(one(of), 1, "{of}");
    }
    assert_eq!((one("job=iteration_20/rank=1"), one("job=alone/rank=-1")), (1, 1));
    if !has("duckdb") {
        return;
    }
    // The queries of docs/EXPORT.md. Each rank is compared with its own peak and its own stacks.
    let script = r#"
import duckdb, sys
at_peak, leaks = sys.argv[2], sys.argv[3]
q = lambda text: duckdb.sql(text).fetchall()
peaks = q("SELECT recording, max(requested_bytes) FROM read_parquet('exports/curves/*/*/*.parquet', hive_partitioning = true) GROUP BY 1 ORDER BY 1")
sums = q(f"SELECT recording, sum(bytes) FROM ({at_peak.strip().rstrip(';')}) GROUP BY 1 ORDER BY 1")
assert len(peaks) == 9 and peaks == sums, (peaks, sums)
rows = q(f"SELECT recording, frames FROM ({leaks.strip().rstrip(';')})")
assert rows and any(r == "alone.pickle" and f for r, f in rows), rows
assert all(f is None or f.count(" < ") <= 2 for _, f in rows), rows
steps = q("SELECT DISTINCT job, step FROM read_parquet('exports/events/*/*/*.parquet', hive_partitioning = true) WHERE step IS NOT NULL ORDER BY 1")
assert steps == [("iteration_10", 10), ("iteration_20", 20)], steps
"#;
    let statements = code_blocks("sql");
    python(folder.path(), script, &statements.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn an_option_that_a_format_does_not_have_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (sample("leak.pickle").display().to_string(), folder.path().join("out").display().to_string());
    for (to, end, option) in [
        ("snapshot", ".pickle", &["--rank", "3"][..]),
        ("snapshot", ".pickle", &["--job", "x"]),
        ("snapshot", ".pickle", &["--table", "events"]),
        ("speedscope", ".json", &["--rank", "3"]),
        ("perfetto", ".json", &["--events", "1..2"]),
        ("csv", ".csv", &["--rank", "3"]),
        ("parquet", "", &["--view", "timeline"]),
        ("csv", "", &["--size", "100x100"]),
        ("svg", ".svg", &["--rank", "3"]),
        ("svg", ".svg", &["--table", "events"]),
        ("snapshot", ".pickle", &["--theme", "dark"]),
        ("snapshot", ".pickle", &["--event", "3"]),
    ] {
        let (code, said) = refused(&[&["--to", to, &file, &format!("{out}{end}")], option].concat());
        let is_one = said.lines().count() == 1;
        assert!(
            code == Some(2) && is_one && said.contains(&format!("{} has no effect here", option[0])),
            "{to} {option:?}: {said}"
        );
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A recording in which every text contains a path, written by Python like PyTorch.
const SECRET: &str = r#"
import pickle
frames = [{"name": "run </home/alice/secret/run.py>", "filename": "/home/alice/secret/train.py", "line": 7}]
event = lambda action, t, addr, **more: {"action": action, "addr": addr, "size": 1024, "stream": 0, "time_us": 1_795_225_000_000_000 + t, "frames": frames, **more}
trace = [event("segment_alloc", 0, 1 << 40, size=2 << 20),
    event("alloc", 1, 1 << 40, user_metadata="weights of /home/alice/secret/model.bin", compile_context="/home/alice/secret/graph.py:3"),
    event("alloc", 2, (1 << 40) + 1024), event("free_requested", 3, (1 << 40) + 1024), event("free_completed", 4, (1 << 40) + 1024)]
trace[0]["size"] = 2 << 20
blocks = [{"address": 1 << 40, "size": 1024, "requested_size": 1024, "state": "active_allocated", "frames": frames},
    {"address": (1 << 40) + 1024, "size": (2 << 20) - 1024, "requested_size": 0, "state": "inactive", "frames": []}]
segment = {"device": 0, "address": 1 << 40, "total_size": 2 << 20, "allocated_size": 1024, "active_size": 1024, "requested_size": 1024,
    "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0), "is_expandable": False, "frames": frames, "blocks": blocks}
mark = lambda stage, t: {"stage": stage, "name": "load /home/alice/secret/data set/x.bin", "device": 0, "time_us": 1_795_225_000_000_000 + t}
pickle.dump({"segments": [segment], "device_traces": [trace, [], []], "host_segments": [], "host_traces": [],
    "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "last": "/home/alice/secret/conf"},
    "external_annotations": [mark("START", 0), mark("END", 4)]}, open("x.pickle", "wb"))
"#;

#[test]
fn redacted_exports_hold_no_path_of_the_machine() {
    if !has("pickle") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    python(folder.path(), SECRET, &[]);
    let file = folder.path().join("x.pickle");
    let outs = [
        ("snapshot", "a.pickle", &[][..]),
        ("csv", "csv", &[]),
        ("parquet", "parquet", &[]),
        ("csv", "stacks.csv", &["--table", "stacks"]),
        ("speedscope", "s.json", &[]),
        ("perfetto", "p.json", &[]),
        ("svg", "overview.svg", &[]),
        ("svg", "flame.svg", &["--view", "flame-graph"]),
        ("svg", "events.svg", &["--view", "events"]),
    ];
    for (to, out, more) in outs {
        let kept = folder.path().join(format!("kept-{out}"));
        export(&file, to, &folder.path().join(out), &[more, &["--redact"]].concat());
        let found = texts(&folder.path().join(out)).into_iter().find(|t| t.contains("alice") || t.contains("secret"));
        assert!(found.is_none(), "{to} {out}: {found:?}");
        // Without redaction the secret must appear, or the search above would prove nothing. Pictures mostly show file names
        // only.
        if to != "svg" && to != "parquet" {
            export(&file, to, &kept, more);
            assert!(texts(&kept).iter().any(|t| t.contains("/home/alice/secret")), "{to}");
        }
    }
    // Lists in the source are kept.
    let script = "import pickle\nt = pickle.load(open('a.pickle', 'rb'))\nassert [len(x) for x in t['device_traces']] == [5, 0, 0] and t['host_segments'] == t['host_traces'] == []\nassert t['device_traces'][0][1]['user_metadata'] == 'weights of model.bin'";
    python(folder.path(), script, &[]);
}

/// A raw memory timeline has times, actions, bytes and categories, and nothing else.
#[test]
fn what_a_memory_timeline_does_not_tell_is_nowhere_a_figure() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let t = 1_795_226_169_000_000_000i64;
    let rows = format!("[[-1,1,4096,0],[{t},2,512,7],[{},4,-512,7]]", t + 1000);
    std::fs::write(at("a.raw.json"), rows).unwrap();
    let said = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_vramscope")).args(args).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for (table, line) in [
        ("lifetimes", "other:0,1,,,512,1,2,3,"),
        ("events", "other:0,1,1795226169000000,alloc,,512,"),
        ("curves", "other:0,1,1795226169000000,,4608,4608,,"),
        ("categories", "other:0,1795226169000000,4096,0,0,0,0,0,0,512,"),
    ] {
        export(Path::new(&at("a.raw.json")), "csv", &folder.path().join("t.csv"), &["--table", table]);
        let text = std::fs::read_to_string(at("t.csv")).unwrap();
        assert!(text.lines().any(|l| l.starts_with(line)), "{table}: {text}");
    }
    export(Path::new(&at("a.raw.json")), "perfetto", &folder.path().join("p.json"), &[]);
    let text = std::fs::read_to_string(at("p.json")).unwrap();
    assert!(!text.contains("\"requested\"") && !text.contains("\"reserved\"") && text.contains("\"parameter\":4096"), "{text}");
    let (code, why) = refused(&["--to", "snapshot", &at("a.raw.json"), &at("s.pickle")]);
    assert!(code == Some(1) && why.contains("this file has no addresses") && why.lines().count() == 1, "{why}");
    let state = said(&["state", &at("a.raw.json"), "--peak"]);
    assert!(
        state.contains("what was reserved is not in this file") && !state.contains(" 0 B") && !state.contains(" 0 MiB"),
        "{state}"
    );
    let allocations = said(&["allocations", &at("a.raw.json")]);
    assert!(allocations.contains("This file tells no addresses") && !allocations.contains("0x"), "{allocations}");
    let allocations = said(&["allocations", &at("a.raw.json"), "--json"]);
    assert!(allocations.contains("\"address\": null") && allocations.contains("\"requested_bytes\": null"), "{allocations}");
    let ranks = said(&["ranks", &folder.path().display().to_string()]);
    assert!(ranks.contains("not recorded") && ranks.contains("What was reserved is not in these files"), "{ranks}");
}

/// RMM's terms for an RMM log, and its failed allocation among the findings.
#[test]
fn a_failure_in_an_rmm_log_is_a_finding_in_its_own_words() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rmm.csv");
    let log = "\u{feff}Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.5,allocate,0x7f0000000000,1048576,0x0\n\
               1,10:00:01.5,allocate failure,0x0,17179869184,0x0\n";
    std::fs::write(&path, log).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_vramscope")).arg("findings").arg(&path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).replace('\u{a0}', " ");
    assert!(said.contains("RMM could not give 16 GiB while 1 MiB were live") && !said.contains("PyTorch"), "{said}");
}

/// All files of an export as text, including compressed contents.
fn texts(path: &Path) -> Vec<String> {
    if path.is_dir() {
        return std::fs::read_dir(path).unwrap().flat_map(|entry| texts(&entry.unwrap().path())).collect();
    }
    vec![String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()]
}
