//! Exports read back by the tools they are for: CPython's `pickle`, `json` and `csv` always; pyarrow, DuckDB, Polars and Spark where
//! `python3` can import them. The truth is the pickle itself, read by Python.

use std::path::{Path, PathBuf};
use std::process::Command;

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots").join(name)
}

/// A folder of its own that goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("vramscope-exports-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn export(file: &Path, to: &str, out: &Path, more: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramscope"));
    let output = command.arg("export").arg(file).args(["--to", to, "--force"]).arg(out).args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// True when `python3` can import a module; says so when it can not.
fn has(module: &str) -> bool {
    let output = Command::new("python3").args(["-c", &format!("import {module}")]).output();
    let found = output.is_ok_and(|o| o.status.success());
    if !found {
        println!("skipped: python3 can not import {module}");
    }
    found
}

/// Runs Python in a folder; what it prints is shown with the test's output.
fn python(folder: &Path, script: &str, args: &[&str]) {
    let output = Command::new("python3").arg("-c").arg(script).args(args).current_dir(folder).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    println!("{}", said.trim_end());
}

const SAMPLES: [&str; 4] = ["gpt_train.pickle", "leak.pickle", "fragment_oom.pickle", "multi_stream.pickle"];

/// What each table must hold, from the pickle itself.
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

#[test]
fn csv_tables_hold_what_the_pickle_holds() {
    if !has("csv") {
        return;
    }
    for name in SAMPLES {
        let folder = Folder::new("csv");
        export(&sample(name), "csv", &folder.0.join("out"), &[]);
        let script = format!(
            "{TRUTH}\nimport csv, glob\ndef read(t):\n    (f,) = glob.glob(f'out/{{t}}/rank=*/*.csv')\n    return list(csv.DictReader(open(f, newline='')))\ncheck(read, sys.argv[1], sys.argv[2])"
        );
        python(&folder.0, &script, &[&sample(name).display().to_string(), name]);
    }
}

#[test]
fn parquet_tables_are_read_by_pyarrow() {
    if !has("pyarrow.parquet") {
        return;
    }
    for name in SAMPLES {
        let folder = Folder::new("pyarrow");
        export(&sample(name), "parquet", &folder.0.join("out"), &[]);
        let script = format!(
            "{TRUTH}\nimport glob\nimport pyarrow.parquet as pq\ndef read(t):\n    (f,) = glob.glob(f'out/{{t}}/rank=*/*.parquet')\n    return pq.ParquetFile(f).read().to_pylist()\ncheck(read, sys.argv[1], sys.argv[2])"
        );
        python(&folder.0, &script, &[&sample(name).display().to_string(), name]);
    }
}

#[test]
fn parquet_tables_are_read_by_duckdb() {
    if !has("duckdb") {
        return;
    }
    for name in SAMPLES {
        let folder = Folder::new("duckdb");
        export(&sample(name), "parquet", &folder.0.join("out"), &[]);
        let script = format!(
            "{TRUTH}\nimport duckdb\ndef read(t):\n    r = duckdb.sql(f\"SELECT * FROM read_parquet('out/{{t}}/*/*.parquet', hive_partitioning = true)\")\n    names = [c[0] for c in r.description]\n    return [dict(zip(names, row)) for row in r.fetchall()]\ncheck(read, sys.argv[1], sys.argv[2])"
        );
        python(&folder.0, &script, &[&sample(name).display().to_string(), name]);
    }
}

/// The code blocks of a language in the page about exports.
fn code_blocks(language: &str) -> Vec<String> {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/EXPORT.md")).unwrap();
    let fence = format!("```{language}\n");
    page.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// Two ranks in one folder, as the page says, and one as CSV.
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
    let folder = Folder::new("sql");
    fleet(&folder.0);
    let script = "import duckdb, sys\nfor statement in sys.argv[1:]:\n    rows = duckdb.sql(statement).fetchall()\n    assert rows, 'no rows: ' + statement\n    print(len(rows), 'rows:', rows[0])";
    python(&folder.0, script, &statements.iter().map(String::as_str).collect::<Vec<_>>());
    // One answer in full, against the library itself.
    let script = r#"
import duckdb
((peak,),) = duckdb.sql("SELECT max(reserved_bytes) FROM read_parquet('exports/curves/*/*.parquet', hive_partitioning = true) WHERE rank = 1").fetchall()
((csv,),) = duckdb.sql("SELECT sum(block_bytes) FROM read_csv('exports_csv/lifetimes/*/*.csv')").fetchall()
((parquet,),) = duckdb.sql("SELECT sum(block_bytes) FROM read_parquet('exports/lifetimes/rank=0/*.parquet')").fetchall()
assert peak == 1677721600 and csv == parquet, (peak, csv, parquet)
"#;
    python(&folder.0, script, &[]);
}

#[test]
fn the_pages_of_python_run_where_their_libraries_are() {
    let blocks = code_blocks("python");
    assert_eq!(blocks.len(), 2);
    let folder = Folder::new("polars");
    fleet(&folder.0);
    for (block, module) in blocks.iter().zip(["polars", "pyspark"]) {
        if has(module) {
            let rows = if module == "polars" { "len(result)" } else { "result.count()" };
            python(&folder.0, &format!("{block}\nassert {rows} > 0\nprint({rows}, 'rows')"), &[]);
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
    let folder = Folder::new("pickle");
    for name in SAMPLES {
        let (from, to) = (sample(name).display().to_string(), folder.0.join("whole.pickle"));
        export(&sample(name), "snapshot", &to, &[]);
        python(&folder.0, whole, &[&from, "whole.pickle"]);
    }
    let from = sample("gpt_train.pickle").display().to_string();
    for (a, b) in [(0, 900), (1500, 2600)] {
        let (range, out) = (format!("{a}..{b}"), folder.0.join("part.pickle"));
        export(&sample("gpt_train.pickle"), "snapshot", &out, &["--events", &range, "--redact"]);
        python(&folder.0, part, &[&from, &a.to_string(), &b.to_string(), "part.pickle"]);
    }
}

#[test]
fn flame_graphs_and_counters_follow_their_formats() {
    if !has("json") {
        return;
    }
    let folder = Folder::new("json");
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
        assert e["ts"] >= last.get(key, e["ts"]), e
        last[key] = e["ts"]
        assert e["args"] and all(isinstance(v, int) and v >= 0 for v in e["args"].values()), e
    if e["ph"] == "X": assert e["dur"] >= 0, e
assert counters > 0
print(len(events), "events,", counters, "counter values")
"#;
    for name in SAMPLES {
        export(&sample(name), "speedscope", &folder.0.join("out.json"), &[]);
        python(&folder.0, speedscope, &[]);
        export(&sample(name), "perfetto", &folder.0.join("out.json"), &[]);
        python(&folder.0, perfetto, &[]);
    }
}

/// Runs `export` and gives what it says on standard error, with the exit code.
fn refused(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_vramscope")).arg("export").args(args).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn an_export_never_overwrites_its_source_and_an_older_file_only_on_request() {
    let folder = Folder::new("source");
    let at = |name: &str| folder.0.join(name).display().to_string();
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
    // Names that do not fit what is written make nothing.
    let (code, said) = refused(&["--to", "csv", &at("self.pickle"), &at("x.parquet")]);
    assert!(code == Some(2) && said.contains("ending in .csv") && !Path::new(&at("x.parquet")).exists(), "{said}");
    let (code, said) = refused(&["--to", "csv", &at("self.pickle"), &at("nodir/x.csv")]);
    assert!(code == Some(1) && said.contains("there is no folder") && !Path::new(&at("nodir")).exists(), "{said}");
}

#[test]
fn a_folder_of_recordings_is_one_data_set() {
    let folder = Folder::new("folder");
    std::fs::create_dir(folder.0.join("in")).unwrap();
    for (from, to) in [("leak", "a.rank.4"), ("leak", "a.rank.5"), ("two_gpus", "oom_1700000000")] {
        std::fs::copy(sample(&format!("{from}.pickle")), folder.0.join(format!("in/{to}.pickle"))).unwrap();
    }
    export(&folder.0.join("in"), "parquet", &folder.0.join("out"), &["--table", "events"]);
    let files = |rank: &str| std::fs::read_dir(folder.0.join(format!("out/events/rank={rank}"))).map_or(0, Iterator::count);
    assert_eq!((files("4"), files("5"), files("__HIVE_DEFAULT_PARTITION__")), (1, 1, 2));
    if has("duckdb") {
        let script = r#"
import duckdb
rows = duckdb.sql("SELECT rank, count(*) FROM read_parquet('out/events/*/*.parquet', hive_partitioning = true) GROUP BY rank ORDER BY rank").fetchall()
assert [r for r, _ in rows] == [4, 5, None] and rows[0][1] == rows[1][1] > 0 and rows[2][1] == 1935, rows
"#;
        python(&folder.0, script, &[]);
    }
}
