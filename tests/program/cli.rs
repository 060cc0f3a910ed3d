//! The program from outside: what it prints, and its exit codes.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::shared::{open, tables};
use serde_json::Value;

pub(crate) fn sample(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots").join(name).display().to_string()
}

/// The program without a display.
pub(crate) fn program<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramscope"));
    command.args(args).stdin(Stdio::null());
    for variable in ["DISPLAY", "WAYLAND_DISPLAY", "WAYLAND_SOCKET", "RUST_LOG"] {
        command.env_remove(variable);
    }
    command
}

pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Output {
    program(args).output().expect("the program starts")
}

pub(crate) fn fed(args: &[&str], input: &str) -> Output {
    let mut child = program(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("written");
    child.wait_with_output().expect("it ends")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8").replace('\u{a0}', " ")
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8").replace('\u{a0}', " ")
}

pub(crate) fn json(args: &[&str]) -> Value {
    let output = run(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    assert!(output.stderr.is_empty(), "{args:?}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}"))
}

/// The sentence of a run that must exit with this code and print nothing on standard output.
pub(crate) fn refused<S: AsRef<std::ffi::OsStr> + std::fmt::Debug>(args: &[S], code: i32) -> String {
    let output = run(args);
    let sentence = stderr(&output);
    assert_eq!((output.status.code(), sentence.lines().count()), (Some(code), 1), "{args:?}: {sentence}");
    assert!(output.stdout.is_empty(), "{args:?} printed {}", stdout(&output));
    sentence
}

/// The sentence of a run that must exit with 1 and name the file.
pub(crate) fn complaint(args: &[&str], file: &str) -> String {
    let sentence = refused(args, 1);
    assert!(sentence.contains(file), "{args:?}: {sentence}");
    sentence
}

/// What a run that must succeed prints.
pub(crate) fn answer<S: AsRef<std::ffi::OsStr> + std::fmt::Debug>(args: &[S]) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

#[test]
fn what_a_file_took_is_told_on_standard_error_when_asked() {
    let output = program(&["summary", &sample("leak.pickle")]).env("RUST_LOG", "vramscope=info").output().expect("it starts");
    let told = stderr(&output);
    assert!(told.contains("leak.pickle") && told.contains("tables built") && told.contains("1144"), "{told}");
    assert!(!stdout(&output).contains("tables built"), "{}", stdout(&output));
}

#[test]
fn summary_prints_the_contract() {
    let file = sample("fragment_oom.pickle");
    let s = json(&["summary", &file, "--json"]);
    assert_eq!(s["file"], file);
    assert_eq!(s["format"], "snapshot-pickle");
    assert_eq!(s["load"]["events"], 177);
    assert_eq!(s["load"]["bytes"], 13108);
    assert!(s["load"]["seconds"].as_f64().is_some_and(|t| t > 0.0));
    assert_eq!(s["load"]["warnings"], serde_json::json!([]));
    let d = &s["devices"][0];
    for (key, want) in [
        ("index", 0),
        ("events", 177),
        ("samples", 0),
        ("allocations", 92),
        ("segments", 4),
        ("blocks", 78),
        ("streams", 1),
        ("pools", 1),
        ("annotations", 0),
    ] {
        assert_eq!(d[key], want, "{key}");
    }
    assert_eq!(d["kind"], "cuda");
    assert_eq!(d["time_us"], serde_json::json!([1_795_225_641_939_107_i64, 1_795_225_641_940_664_i64]));
    for (key, end, peak, event) in [
        ("reserved_bytes", 1_677_721_600_u64, 1_677_721_600_u64, 6),
        ("active_bytes", 1_038_109_184, 1_677_721_600, 7),
        ("allocated_bytes", 1_038_109_184, 1_677_721_600, 7),
        ("requested_bytes", 1_031_896_064, 1_677_721_600, 7),
    ] {
        assert_eq!(d[key]["end"], end, "{key}");
        assert_eq!(d[key]["peak"], peak, "{key}");
        assert_eq!(d[key]["peak_event"], event, "{key}");
        assert_eq!(d[key]["exact"], true, "{key}");
    }
    let ooms = serde_json::json!([{"event": 176, "requested_bytes": 524_288_000, "device_free_bytes": 147_879_755_776_u64}]);
    assert_eq!(d["ooms"], ooms);
}

#[test]
fn summary_of_a_history_without_times_says_null() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("old.json");
    std::fs::write(&file, r#"{"segments": [], "device_traces": [[{"action": "alloc", "addr": 4096, "size": 10, "stream": 0}]]}"#)
        .expect("written");
    let s = json(&["summary", &file.display().to_string(), "--json"]);
    assert_eq!(s["devices"][0]["time_us"], Value::Null);
    assert_eq!(s["devices"][0]["allocations"], 1);
}

#[test]
fn what_a_file_does_not_tell_is_null_and_no_zero() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("old.pt.trace.json");
    let event = |ts: u32, bytes: i64| {
        format!(
            r#"{{"ph":"i","s":"t","name":"[memory]","pid":1,"tid":1,"ts":{ts},"args":{{"Device Type":1,"Device Id":0,"Bytes":{bytes}}}}}"#
        )
    };
    let trace = format!(r#"{{"schemaVersion":1,"traceEvents":[{},{}]}}"#, event(1, 4096), event(2, -4096));
    std::fs::write(&file, trace).expect("a trace");
    let file = file.display().to_string();
    let device = &json(&["summary", &file, "--json"])["devices"][0];
    assert_eq!((&device["reserved_bytes"], &device["requested_bytes"]), (&Value::Null, &Value::Null));
    // What was held before is unknown, and so are all totals.
    assert_eq!((&device["allocated_bytes"]["peak"], &device["allocated_bytes"]["exact"]), (&4096.into(), &false.into()));
    assert!(stdout(&run(&["summary", &file])).contains("(of what the trace shows)"));
}

#[test]
fn summary_text_gives_the_answer_first() {
    let output = run(&["summary", &sample("fragment_oom.pickle")]);
    let text = stdout(&output);
    let first = text.lines().next().unwrap_or_default();
    assert!(first.contains("GPU 0 ran out of memory at event 176: a request for 500 MiB failed"), "{text}");
    assert!(text.contains("  requested    984.09 MiB  1,600.00 MiB         7"), "{text}");
    assert!(text.lines().all(|l| !l.ends_with(' ')), "{text}");
}

#[test]
fn many_files_are_one_object_and_a_bad_one_leaves_the_others_untouched() {
    let (good, other) = (sample("leak.pickle"), sample("two_gpus.pickle"));
    let both = json(&["summary", &good, &other, "--json"]);
    assert_eq!(both["files"].as_array().map(Vec::len), Some(2));
    assert_eq!(both["files"][1]["devices"].as_array().map(Vec::len), Some(2), "devices are never merged");
    assert_eq!(both["errors"], serde_json::json!([]));

    let output = run(&["summary", &good, "/nowhere/lost.pickle", &other, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let partial: Value = serde_json::from_slice(&output.stdout).expect("still one JSON object");
    for (ours, alone) in partial["files"].as_array().expect("files").iter().zip(both["files"].as_array().expect("files")) {
        assert_eq!(ours["devices"], alone["devices"]);
    }
    assert_eq!(partial["errors"][0]["file"], "/nowhere/lost.pickle");
    assert!(stderr(&output).contains("/nowhere/lost.pickle"));

    let output = run(&["summary", "/nowhere/lost.pickle", &good]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stdout(&output)
            .contains("leak.pickle: GPU 0: 249.54 MiB at the peak, right after the forward pass of step 60: activations"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn state_holds_together_at_every_kind_of_instant() {
    let file = sample("fragment_oom.pickle");
    for instant in ["--event=0", "--event=8", "--event=90", "--peak", "--peak=reserved", "--oom", "--end"] {
        let s = json(&["state", &file, instant, "--json"]);
        let segments = s["segments"].as_array().expect("segments");
        let sum = |list: &Value, key: &str| list.as_array().map_or(0, |l| l.iter().filter_map(|x| x[key].as_u64()).sum::<u64>());
        assert_eq!(sum(&s["segments"], "bytes"), s["totals"]["reserved_bytes"].as_u64().unwrap_or(0), "{instant}");
        let mut active = 0;
        for segment in segments {
            assert_eq!(sum(&segment["blocks"], "bytes"), segment["bytes"].as_u64().unwrap_or(0), "{instant}: blocks cover it");
            active += segment["used_bytes"].as_u64().unwrap_or(0);
        }
        assert_eq!(active, s["totals"]["active_bytes"].as_u64().unwrap_or(0), "{instant}");
        // `live` is what the program holds. Memory that waits for a stream is active in addition.
        assert_eq!(sum(&s["live"], "bytes"), s["totals"]["allocated_bytes"].as_u64().unwrap_or(0), "{instant}");
        // Memory that waits for another stream has a role too.
        let pending = sum(&s["pending_free"], "bytes");
        assert_eq!(sum(&s["by_category"], "bytes"), sum(&s["live"], "bytes") + pending, "{instant}");
        let pending = sum(&s["pending_free"], "bytes");
        assert_eq!(pending, if instant == "--event=8" { 400 << 20 } else { 0 }, "{instant}");
        assert_eq!(sum(&s["live"], "bytes") + pending, active, "{instant}");
        let requested = sum(&s["live"], "requested_bytes") + sum(&s["pending_free"], "requested_bytes");
        assert_eq!(requested, s["totals"]["requested_bytes"].as_u64().unwrap_or(0), "{instant}");
    }
    let oom = json(&["state", &file, "--oom", "--json"]);
    assert_eq!(oom["event"], 176);
    let text = stdout(&run(&["state", &file, "--event", "8"]));
    assert!(text.contains("pending") && text.contains("freed, but another stream may still use it"), "{text}");
    assert_eq!(oom["action"], "oom");
    assert_eq!(oom["holes"], serde_json::json!({"count": 26, "bytes": 639_612_416, "largest_bytes": 28_311_552}));
    assert_eq!(json(&["state", &file, "--peak", "--json"])["totals"]["requested_bytes"], 1_677_721_600);
}

#[test]
fn state_groups_what_is_live_by_stack() {
    let file = sample("leak.pickle");
    let s = json(&["state", &file, "--end", "--json"]);
    let live = s["live"].as_array().expect("live");
    assert!(live.windows(2).all(|w| w[0]["bytes"].as_u64() >= w[1]["bytes"].as_u64()), "most bytes first");
    assert!(live[0]["stack"][0].as_str().is_some_and(|f| f.contains(".py:")), "{}", live[0]["stack"]);
    let text = stdout(&run(&["state", &file, "--end"]));
    assert!(text.contains("workloads.py:"), "{text}");
}

/// In every command the peak is the same event, with the same number of blocks and the same figure for each role, and its lines
/// add up to it.
#[test]
fn every_command_means_the_same_peak() {
    for name in ["serve_oom.pickle.gz", "kv_decode_oom.pickle.gz", "gpt_train.pickle", "leak.pickle", "two_gpus.pickle"] {
        let file = sample(name);
        let summary = json(&["summary", &file, "--json"]);
        let text = stdout(&run(&["summary", &file]));
        for of in summary["devices"].as_array().expect("devices") {
            let (peak, device) = (&of["peak"], of["index"].to_string());
            let sum = |rows: &Value, key: &str| rows.as_array().unwrap().iter().map(|r| r[key].as_u64().unwrap()).sum::<u64>();
            let beyond = |key: &str| peak["other_lines"][key].as_u64().unwrap_or(0);
            assert_eq!(sum(&peak["by_line"], "bytes") + beyond("bytes"), peak["bytes"].as_u64().unwrap(), "{name}");
            let state = json(&["state", &file, "--device", &device, "--json"]);
            assert_eq!((&state["event"], &state["totals"]["active_bytes"]), (&peak["event"], &peak["bytes"]), "{name}");
            assert_eq!(state["event"], of["active_bytes"]["peak_event"], "{name}");
            let blocks = sum(&state["live"], "count") + sum(&state["pending_free"], "count");
            assert_eq!(sum(&peak["by_line"], "count") + beyond("count"), blocks, "{name}");
            for role in state["by_category"].as_array().unwrap().iter().filter(|r| r["bytes"] != 0) {
                assert_eq!(role["bytes"], peak["by_role"][role["category"].as_str().unwrap()], "{name}: {role}");
            }
            let live = json(&["allocations", &file, "--device", &device, "--where", "live@peak", "--json"]);
            assert_eq!(live["matches"], blocks, "{name}");
            let flame = json(&["flame", &file, "--device", &device, "--json"]);
            assert_eq!(flame["total_bytes"], peak["bytes"], "{name}");
            let lines = peak["by_line"].as_array().unwrap();
            if lines.len() > 1 {
                let shown = lines.iter().take(3).all(|line| text.contains(line["name"].as_str().unwrap()));
                assert!(shown && text.contains("largest lines at the peak"), "{text}");
            }
        }
    }
}

/// The most important device comes first, whatever its number.
#[test]
fn the_device_with_the_highest_peak_is_told_first() {
    let text = stdout(&run(&["summary", &sample("two_gpus.pickle")]));
    let first = text.lines().next().unwrap_or_default();
    assert!(first.contains("two_gpus.pickle: GPU 1: "), "{first}");
    let leaks = stdout(&run(&["leaks", &sample("two_gpus.pickle")]));
    assert!(leaks.starts_with("GPU 1: "), "{leaks}");
    assert!(!stdout(&run(&["leaks", &sample("leak.pickle")])).contains("GPU 0"), "one device needs no name");
}

#[test]
fn explain_sends_a_recording_to_its_commands() {
    let sentence = refused(&["explain", &sample("fragment_oom.pickle")], 1);
    assert!(sentence.contains("vramscope summary ") && sentence.contains("vramscope oom "), "{sentence}");
    assert!(!sentence.contains("no out-of-memory message"), "{sentence}");
}

#[test]
fn roles_add_up_to_what_is_active_and_say_what_is_inferred() {
    let s = json(&["state", &sample("multi_stream.pickle"), "--end", "--json"]);
    let rows = s["by_category"].as_array().unwrap();
    let sum = |key: &str| rows.iter().map(|r| r[key].as_u64().unwrap()).sum::<u64>();
    assert!(s["totals"]["active_bytes"] != s["totals"]["allocated_bytes"], "a block waits for another stream");
    assert_eq!(s["totals"]["active_bytes"], sum("bytes"));
    assert!(rows.iter().all(|r| r["probably"].as_u64() <= r["bytes"].as_u64()), "{rows:?}");
}

#[test]
fn a_flame_graph_of_cpp_alone_is_folded_and_has_no_modules() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("cpp.json");
    let frames = r#"[{"name": "at::_ops::mm::call(at::Tensor const&)", "filename": "??", "line": 0},
        {"name": "torch::autograd::Engine::thread_main()", "filename": "??", "line": 0}]"#;
    let alloc = format!(r#"{{"action": "alloc", "addr": 4096, "size": 1024, "stream": 0, "frames": {frames}}}"#);
    std::fs::write(&file, format!(r#"{{"segments": [], "device_traces": [[{alloc}]]}}"#)).expect("written");
    let file = file.display().to_string();
    let by_role = stdout(&run(&["flame", &file, "--by", "role"]));
    assert!(by_role.contains("mm::call") && !by_role.contains("thread_main"), "{by_role}");
    let by_module = run(&["flame", &file, "--by", "module"]);
    assert!(stdout(&by_module).starts_with("outside modules "), "{}", stdout(&by_module));
    assert!(stderr(&by_module).contains("frames of C++ alone"), "{}", stderr(&by_module));
}

#[test]
fn state_groups_what_is_live_by_category() {
    let file = sample("gpt_train.pickle");
    let s = json(&["state", &file, "--peak", "--json"]);
    let rows = s["by_category"].as_array().unwrap();
    assert_eq!(rows.len(), 11, "every category stands there, also without bytes");
    let sum: u64 = rows.iter().map(|r| r["requested_bytes"].as_u64().unwrap()).sum();
    assert_eq!(s["totals"]["requested_bytes"], sum, "categories add up to the byte");
    let text = stdout(&run(&["state", &file, "--peak", "--by", "category"]));
    assert!(text.contains("optimizer state") && text.contains("212.31 MiB"), "{text}");
}

#[test]
fn allocations_pass_a_query_and_say_why_they_are_what_they_are() {
    let file = sample("gpt_train.pickle");
    let all = json(&["allocations", &file, "--json"]);
    assert_eq!((&all["matches"], all["rows"].as_array().unwrap().len()), (&all["allocations"], 20));
    let query = "category=optimizer_state live@end or size>100MiB stack~cross_entropy";
    let some = json(&["allocations", &file, "--where", query, "--limit", "5000", "--sort", "born", "--json"]);
    let rows = some["rows"].as_array().unwrap();
    assert_eq!(some["matches"], rows.len());
    assert!(!rows.is_empty() && rows.len() < 200);
    for row in rows {
        let is_loss = row["stack"].to_string().contains("cross_entropy") && row["requested_bytes"].as_u64().unwrap() > 100 << 20;
        assert!(is_loss || row["category"] == "optimizer_state", "{row}");
        assert!(row["why"].as_str().unwrap().ends_with('.'));
    }
    let handed_out: u64 = rows.iter().map(|r| r["requested_bytes"].as_u64().unwrap()).sum();
    assert_eq!(some["allocated_bytes"], handed_out);
    let text = stdout(&run(&["allocations", &file, "--where", "kept", "--limit", "2"]));
    assert!(text.lines().next().unwrap().contains(" of 2,118 allocations: "), "{text}");
}

#[test]
fn a_device_below_zero_is_no_option() {
    // Host memory has no ordinal. Lists of devices give it as -1.
    for command in ["allocations", "leaks", "flame", "oom"] {
        let said = complaint(&[command, &sample("leak.pickle"), "--device", "-1"], "leak.pickle");
        assert!(said.contains("device -1"), "{command}: {said}");
    }
}

#[test]
fn state_keeps_devices_apart() {
    let file = sample("two_gpus.pickle");
    let reserved =
        |device: &str| json(&["state", &file, "--end", "--device", device, "--json"])["totals"]["reserved_bytes"].clone();
    assert_eq!(reserved("0"), 580_911_104);
    assert_eq!(reserved("1"), 1_088_421_888);
    assert!(complaint(&["state", &file, "--end", "--device", "7"], "two_gpus.pickle").contains("0 (GPU 0), 1 (GPU 1)"));
}

#[test]
fn state_says_what_is_not_there() {
    let file = sample("leak.pickle");
    assert!(complaint(&["state", &file, "--event", "1144"], "leak.pickle").contains("events 0 to 1143"));
    assert!(complaint(&["state", &file, "--oom"], "leak.pickle").contains("no out-of-memory event"));
    assert!(complaint(&["state", &sample("fragment_oom.pickle"), "--oom=2"], "fragment_oom.pickle").contains("has 1"));
}

#[test]
fn oom_answers_with_a_verdict() {
    let o = json(&["oom", &sample("fragment_oom.pickle"), "--json"]);
    assert_eq!(o["ooms"][0]["verdict"], "fragmentation");
    assert_eq!(o["ooms"][0]["event"], 176);
    assert_eq!(o["ooms"][0]["requested_bytes"], 524_288_000);
    // The settings that pass, each with a line to copy. The limit was not recorded, so none of them is certain.
    let remedies = o["ooms"][0]["remedies"].as_array().unwrap();
    assert!(remedies[0]["setting"].as_str().unwrap().starts_with("PYTORCH_CUDA_ALLOC_CONF="), "{remedies:?}");
    assert_eq!(remedies[0]["support"], "simulation");
    assert_eq!(o["whatif"][0]["limit_span_bytes"], serde_json::json!([1_677_721_600u64, 2_202_009_599u64]));
    assert_eq!(o["ooms"][0]["blockers"][0]["age_us"], 925);
    let known = json(&["oom", &sample("fragment_oom.pickle"), "--limit", "1760MiB", "--json"]);
    assert_eq!(known["ooms"][0]["way_out"]["bytes"], 226_492_416);
    assert_eq!(known["whatif"][0]["tried"][0]["peak_reserved_bytes"], 1632 << 20);
    assert_eq!(known["whatif"][0]["tried"][0]["certain"], true);
    // Nothing failed, so the peak is examined.
    let peak = json(&["oom", &sample("gpt_train.pickle"), "--json"]);
    assert_eq!(peak["ooms"], serde_json::json!([]));
    let p = &peak["peaks"][0];
    assert_eq!(
        (p["event"].as_u64(), p["largest_served_bytes"].as_u64(), p["is_exact"].as_bool()),
        (Some(1933), Some(27 << 20), Some(false))
    );
    let sum = |key: &str| p["live_by_category"].as_array().unwrap().iter().map(|c| c[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!(Some(sum("bytes")), p["allocated_bytes"].as_u64());
    assert_eq!(Some(sum("requested_bytes")), p["requested_bytes"].as_u64());
}

#[test]
fn a_dash_reads_a_recording_from_standard_input() {
    let input = std::fs::File::open(sample("leak.pickle")).expect("a sample");
    let output = Command::new(env!("CARGO_BIN_EXE_vramscope")).args(["summary", "-"]).stdin(input).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains(". 250 MiB reserved at its highest."), "{}", stdout(&output));
}

#[test]
fn explain_reads_standard_input() {
    let message = "CUDA out of memory. Tried to allocate 500.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 133.79 GiB is free. 1.61 GiB allowed; Of the allocated memory 990.02 MiB is allocated by PyTorch, and 609.98 MiB is reserved by PyTorch but unallocated.";
    let output = fed(&["explain", "--json"], message);
    assert_eq!(output.status.code(), Some(0));
    let e: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(e["figures"]["requested_bytes"], 524_288_000);
}

#[test]
fn leaks_between_two_events_lists_what_was_born_after_the_first() {
    let file = sample("leak.pickle");
    let report = json(&["leaks", &file, "--from", "200", "--json"]);
    let survivors = report["survivors"].as_array().unwrap();
    assert!(!survivors.is_empty());
    let sum: u64 = survivors.iter().map(|s| s["bytes"].as_u64().unwrap()).sum();
    assert_eq!(report["bytes"], sum);
    assert!(survivors.iter().all(|s| s["oldest_event"].as_u64().unwrap() > 200));
    let all = json(&["leaks", &file, "--from", "200", "--to", "200", "--json"]);
    assert_eq!((&all["bytes"], &all["count"]), (&0.into(), &0.into()));
    complaint(&["leaks", &file, "--from", "99999999"], "there is no event 99999999");
}

#[test]
fn oom_looks_at_the_device_that_was_asked_for() {
    let file = sample("two_gpus.pickle");
    let o = json(&["oom", &file, "--device", "0", "--json"]);
    let devices: Vec<&Value> = o["peaks"].as_array().expect("peaks").iter().map(|p| &p["device"]).collect();
    assert_eq!(devices, [&Value::from(0)]);
    assert!(complaint(&["oom", &file, "--device", "7"], "two_gpus.pickle").contains("there is no device 7"));
}

#[test]
fn diff_adds_up_by_stack_category_and_block() {
    let file = sample("leak.pickle");
    let d = json(&["diff", &file, &file, "--a-event", "400", "--b-event", "900", "--json"]);
    let (a, b) = (d["a"]["bytes"].as_u64().unwrap(), d["b"]["bytes"].as_u64().unwrap());
    assert_eq!(d["change_bytes"].as_i64().unwrap(), b as i64 - a as i64);
    for list in ["rows", "categories"] {
        let sum = |key: &str| d[list].as_array().unwrap().iter().map(|r| r[key].as_u64().unwrap()).sum::<u64>();
        assert_eq!((sum("a_bytes"), sum("b_bytes")), (a, b), "{list}");
    }
    let part = |name: &str| d["blocks"][name]["bytes"].as_u64().unwrap();
    assert_eq!((part("only_a") + part("both"), part("both") + part("only_b")), (a, b));
    // Whole blocks, as in the state at that instant.
    let state = json(&["state", &file, "--event", "900", "--json"]);
    assert_eq!(state["totals"]["active_bytes"], d["b"]["bytes"]);
    // For two instants of one file, its name is given once.
    assert_eq!(json(&["diff", &file, "--a-event", "400", "--b-event", "900", "--json"]), d);
    let other = json(&["diff", &file, &sample("gpt_train.pickle"), "--json"]);
    assert!(other["blocks"].is_null(), "two recordings share no blocks");
}

#[test]
fn flame_holds_the_same_bytes_whatever_its_frames_are() {
    let file = sample("leak.pickle");
    let total = |args: &[&str]| {
        let d = json(&[&["flame", file.as_str(), "--json"], args].concat());
        assert_eq!(d["tree"]["bytes"], d["total_bytes"]);
        d["total_bytes"].as_u64().unwrap()
    };
    let all = total(&[]);
    for by in ["stack", "file", "module", "category"] {
        assert_eq!(total(&["--by", by]), all, "{by}");
        assert_eq!(total(&["--by", by, "--inverted", "--fold-framework"]), all, "{by}");
    }
    assert!(total(&["--requested"]) <= all);
    assert!(total(&["--churn", "--events", "0..500"]) < total(&["--churn"]));
}

/// What the profiler would write for a sample's first device, 700 microseconds late, with an operator around each allocation.
fn trace_of(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots").join(name);
    let recording = open(&path);
    let device = &recording.devices[0];
    let tables = tables(device);
    let events = &device.events;
    let rows = (0..events.len()).filter_map(|i| {
        let block = tables.lifetimes.block_size(tables.lifetimes.of_event(i as u32)) as i64;
        let bytes = match events.action[i] {
            vramscope_core::model::Action::Alloc => block,
            vramscope_core::model::Action::FreeRequested => -block,
            _ => return None,
        };
        let (time, address) = (events.time_us[i] + 700, events.address[i]);
        Some(serde_json::json!({"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": time,
            "args": {"Bytes": bytes, "Device Id": 0, "Device Type": 1, "Addr": address}}))
    });
    let mut rows: Vec<Value> = rows.collect();
    let span = |t: usize| events.time_us[t] + 700;
    rows.push(serde_json::json!({"ph": "X", "cat": "cpu_op", "name": "aten::all", "pid": 1, "tid": 1, "ts": span(0) - 1,
        "dur": span(events.len() - 1) - span(0) + 2, "args": {"Input Dims": [[2, 3]]}}));
    serde_json::json!({"schemaVersion": 1, "traceEvents": rows}).to_string()
}

#[test]
fn a_trace_and_counters_of_the_same_run_are_added() {
    let dir = std::env::temp_dir().join(format!("vramscope-cli-added-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = |name: &str, text: String| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (snapshot, trace) = (sample("leak.pickle"), file("leak.trace.json", trace_of("leak.pickle")));
    let reserved = json(&["summary", &snapshot, "--json"])["devices"][0]["reserved_bytes"]["end"].as_u64().unwrap();
    let right = file("right.json", format!("{{\"reserved_bytes.all.current\": {reserved}}}"));
    let wrong = file("wrong.json", "{\"reserved_bytes.all.current\": 7}".to_owned());
    let s = json(&["summary", &snapshot, "--json", "--with", &trace, "--stats", &right, "--stats", &wrong]);
    let added = &s["added"][0];
    assert_eq!((added["offset_us"].as_i64(), added["matched_events"] == added["expected_events"]), (Some(-700), true), "{added}");
    assert_eq!(added["operators"], s["devices"][0]["allocations"]);
    assert_eq!(s["stats"][0]["failed"], 0);
    assert_eq!((&s["stats"][1]["failed"], &s["stats"][1]["checks"][0]["found"]), (&Value::from(1), &Value::from(reserved)));
    let text = stdout(&run(&["summary", &snapshot, "--with", &trace, "--stats", &wrong]));
    assert!(
        text.contains("added leak.trace.json") && text.contains("700 µs ahead") && text.contains("the snapshot holds"),
        "{text}"
    );
    // For continuous integration.
    assert_eq!(run(&["check", &snapshot, "--stats", &right]).status.code(), Some(0));
    complaint(&["check", &snapshot, "--stats", &wrong], "leak.pickle");
    // Another run, and a file that is no counters.
    let sentence = complaint(&["summary", &sample("gpt_train.pickle"), "--with", &trace], "gpt_train.pickle");
    assert!(sentence.contains("not of the same run"), "{sentence}");
    complaint(&["summary", &snapshot, "--stats", &trace], "leak.trace.json");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn counters_alone_are_summed_up_and_other_commands_say_what_they_need() {
    let dir = tempfile::tempdir().unwrap();
    let stats = dir.path().join("memory_stats.json");
    let text = "{\"reserved_bytes.all.current\": 4194304, \"reserved_bytes.all.peak\": 8388608, \"allocated_bytes.all.current\": 1048576, \
        \"allocated_bytes.all.peak\": 2097152, \"active_bytes.all.current\": 1048576, \"num_ooms\": 1, \"num_alloc_retries\": 2}";
    std::fs::write(&stats, text).unwrap();
    let stats = stats.to_str().unwrap();
    let value = json(&["summary", "--json", stats]);
    assert_eq!((&value["format"], &value["devices"][0]["reserved_bytes"]["peak"]), (&"counters".into(), &8_388_608.into()));
    assert_eq!((&value["counters"][0]["kind"], &value["counters"][0]["values"]["num_ooms"]), (&"memory_stats".into(), &1.into()));
    let told = stdout(&run(&["summary", stats]));
    assert!(told.contains("PyTorch reserves") && told.contains("out-of-memory errors"), "{told}");

    let summary = dir.path().join("job.log");
    let table = "step 300\n|===========================================================================|\n\
        |                  PyTorch CUDA memory summary, device ID 3                 |\n\
        |---------------------------------------------------------------------------|\n\
        |            CUDA OOMs: 0            |        cudaMalloc retries: 4         |\n\
        |===========================================================================|\n\
        |        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |\n\
        |---------------------------------------------------------------------------|\n\
        | Allocated memory      |   9012 MB  |  14501 MB  |  88032 GB  |  88023 GB  |\n\
        |       from large pool |   9000 MB  |  14480 MB  |  87870 GB  |  87861 GB  |\n\
        |       from small pool |     12 MB  |     21 MB  |    162 GB  |    162 GB  |\n\
        |---------------------------------------------------------------------------|\n\
        | GPU reserved memory   |  15020 MB  |  15020 MB  |  15020 MB  |      0 B   |\n";
    std::fs::write(&summary, table).unwrap();
    let value = json(&["summary", "--json", summary.to_str().unwrap()]);
    assert_eq!(
        (&value["devices"][0]["index"], &value["devices"][0]["allocated_bytes"]["peak"]),
        (&3.into(), &(14501u64 << 20).into())
    );
    assert_eq!(value["devices"][0]["allocated_bytes"]["exact"], false);

    for args in [&["oom", stats][..], &["state", stats, "--end"], &["export", "--to", "csv", stats, "out"], &["findings", stats]]
    {
        complaint(args, "these are PyTorch's counters");
    }
}

#[test]
fn the_users_own_rules_count_on_the_command_line_too() {
    let folder = tempfile::tempdir().unwrap();
    let sample = sample("leak.pickle");
    let sample = sample.as_str();
    let rules = folder.path().join("rules.json");
    std::fs::write(&rules, r#"[{"pattern": "linear\\.py", "category": "kv_cache"}]"#).unwrap();
    let category = |args: &[&str]| {
        let report = json(&[&["oom", sample, "--json"], args].concat());
        let held = report["peaks"][0]["live_by_category"].as_array().unwrap().clone();
        let bytes = held.iter().find(|c| c["category"] == "kv_cache").map_or(0, |c| c["bytes"].as_u64().unwrap());
        (bytes, report["changed_by_rules"].as_u64().unwrap())
    };
    assert_eq!(category(&["--rules", "none"]), (0, 0));
    let (bytes, changed) = category(&["--rules", rules.to_str().unwrap()]);
    assert!(bytes > 0 && changed > 0, "{bytes} {changed}");
    let findings = json(&["findings", sample, "--json", "--rules", rules.to_str().unwrap()]);
    assert_eq!(findings["changed_by_rules"], changed);
    let flame = json(&["flame", sample, "--by", "category", "--json", "--rules", rules.to_str().unwrap()]);
    assert_eq!(flame["changed_by_rules"], changed);
    std::fs::write(&rules, r#"[{"pattern": "(", "category": "kv_cache"}]"#).unwrap();
    let error = complaint(&["oom", sample, "--rules", rules.to_str().unwrap()], "rules.json");
    assert!(error.contains("rules.json: Rule 1 cannot be used"), "{error}");
    let error = complaint(&["findings", sample, "--rules", "no_such_file.json"], "no_such_file.json");
    assert!(error.contains("no_such_file.json: the rules cannot be read"), "{error}");
}

#[test]
fn check_names_the_failed_request() {
    let sentence = complaint(&["check", &sample("fragment_oom.pickle"), "--no-oom"], "fragment_oom.pickle");
    assert!(sentence.contains("1 request failed at event 176 "), "{sentence}");
}

#[test]
fn oom_says_that_an_earlier_attempt_is_held() {
    let text = stdout(&run(&["oom", &kind("retry_in_except.python")])).replace('\u{a0}', " ");
    let held = "5.06 GiB of what is live was made by an attempt that failed at event 3,980 and is still held.";
    assert!(text.contains(held) && text.contains("except torch.cuda.OutOfMemoryError: failed = True"), "{text}");
    let text = stdout(&run(&["oom", &kind("fallback_train.python")]));
    assert!(!text.contains("still held"), "{text}");
}

/// A recording of `tests/recordings/kinds`.
fn kind(name: &str) -> String {
    format!("{}/tests/recordings/kinds/{name}.pickle.zst", env!("CARGO_MANIFEST_DIR"))
}

/// Steps of 8 samples, and one of 80 that failed and was caught.
#[test]
fn plan_leaves_out_an_attempt_of_another_size() {
    let text =
        stdout(&run(&["plan", &kind("retry_in_except.python"), "--at", "batch=8", "--cap", "6GiB"])).replace('\u{a0}', " ");
    assert!(text.contains("Step 4 failed: it needed ") && text.contains("leaves out that step"), "{text}");
    // The program ran 40 within this cap, and 80 failed.
    assert!(text.starts_with("batch 50 fits 6 GiB"), "{text}");
}

/// pix2pix failed in `sample_images`, whose pass is not followed by a backward pass.
#[test]
fn oom_says_that_the_pass_that_failed_may_need_no_graph() {
    let text = stdout(&run(&["oom", &kind("pix2pix.python.cap70")])).replace('\u{a0}', " ");
    assert!(text.contains("was called at pix2pix.py:112, in sample_images") && text.contains("with torch.no_grad():"), "{text}");
    // Memory was growing, so the smallest cap for this request would not be enough.
    assert!(text.contains("set_per_process_memory_fraction(1.0)"), "{text}");
}
