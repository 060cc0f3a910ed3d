//! The program from outside: what it prints, and how it exits.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn sample(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots").join(name).display().to_string()
}

/// The program, with no display to open a window on.
fn program<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramscope"));
    command.args(args).stdin(Stdio::null());
    for variable in ["DISPLAY", "WAYLAND_DISPLAY", "WAYLAND_SOCKET", "RUST_LOG"] {
        command.env_remove(variable);
    }
    command
}

fn run<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Output {
    program(args).output().expect("the program starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8").replace('\u{a0}', " ")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

fn json(args: &[&str]) -> Value {
    let output = run(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    assert!(output.stderr.is_empty(), "{args:?}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}"))
}

/// The sentence of a run that must fail with 1, print nothing on standard output, and name the file.
fn complaint(args: &[&str], file: &str) -> String {
    let output = run(args);
    let sentence = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {sentence}");
    assert!(output.stdout.is_empty(), "{args:?} printed {}", stdout(&output));
    assert_eq!(sentence.lines().count(), 1, "{args:?}: {sentence}");
    assert!(sentence.contains(file), "{args:?}: {sentence}");
    sentence
}

#[test]
fn what_a_file_took_is_told_on_standard_error_when_asked() {
    let output = program(&["summary", &sample("leak.pickle")]).env("RUST_LOG", "vramscope=info").output().expect("it starts");
    let told = stderr(&output);
    assert!(told.contains("leak.pickle") && told.contains("tables built") && told.contains("1144"), "{told}");
    assert!(!stdout(&output).contains("tables built"), "{}", stdout(&output));
}

#[test]
fn limits_are_held_against_what_was_there() {
    let leak = sample("leak.pickle");
    let says = |args: &[&str], code: i32, part: &str| {
        let output = run(args);
        let told = stderr(&output).replace('\u{a0}', " ") + &stdout(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {told}");
        assert!(told.contains(part), "{args:?}: no \"{part}\" in: {told}");
    };
    says(&["oom", &leak, "--limit", "200MiB"], 1, "below the 250 MiB that were reserved on device 0 at event");
    says(&["oom", &leak, "--limit", "250MiB"], 0, "0 B were left under the cap");
    // With more than was refused the request would not have failed.
    let failed = sample("fragment_oom.pickle");
    says(&["oom", &failed, "--limit", "2100MiB"], 1, "so the cap is below 2,100 MiB");
    says(&["oom", &failed, "--limit", "2099MiB"], 0, "fragmentation");
    says(&["oom", &sample("expandable_oom.pickle"), "--limit", "3000MiB"], 1, "the request of event 182 failed");
    says(&["whatif", &failed, "--conf", "default", "--limit", "3000MiB"], 0, "so this asks about a higher one");
    says(&["check", &leak, "--max-peak", "60"], 2, "60 without a unit is 60 bytes");
    says(&["check", &leak, "--max-peak", "60GiB"], 0, "passed");
    let fragment = json(&["check", &sample("gpt_train.pickle"), "--max-fragmentation", "1", "--json"]);
    let share = fragment["checks"][0]["value"].as_f64().expect("a share");
    let state = json(&["state", &sample("gpt_train.pickle"), "--peak", "--json"]);
    let bytes = |name: &str| state["totals"][name].as_f64().expect("bytes");
    assert!(share < 0.06, "{share}: with the block in place that the segment was taken for");
    assert!((share - (1.0 - bytes("active_bytes") / bytes("reserved_bytes"))).abs() < 0.01, "{share}");
    says(&["allocations", &leak, "--where", "step=99"], 0, "steps are 0 to 58");
    says(&["allocations", &leak, "--where", "size>1TiB"], 0, "no allocation passes");
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
fn summary_text_gives_the_answer_first() {
    let output = run(&["summary", &sample("fragment_oom.pickle")]);
    let text = stdout(&output);
    let first = text.lines().next().unwrap_or_default();
    assert!(first.contains("GPU 0 ran out of memory at event 176: a request for 500 MiB failed"), "{text}");
    assert!(text.contains("  requested  984.09 MiB  1,600 MiB         7"), "{text}");
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
    assert!(stdout(&output).contains("leak.pickle: GPU 0 reserved at most 250 MiB"), "{}", stdout(&output));
}

#[test]
fn state_holds_together_at_every_kind_of_instant() {
    let file = sample("fragment_oom.pickle");
    for instant in ["--event=0", "--event=90", "--peak", "--peak=reserved", "--oom", "--end"] {
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
        assert_eq!(sum(&s["live"], "bytes"), active, "{instant}");
        assert_eq!(sum(&s["live"], "requested_bytes"), s["totals"]["requested_bytes"].as_u64().unwrap_or(0), "{instant}");
    }
    let oom = json(&["state", &file, "--oom", "--json"]);
    assert_eq!(oom["event"], 176);
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

#[test]
fn state_groups_what_is_live_by_category() {
    let file = sample("gpt_train.pickle");
    let s = json(&["state", &file, "--peak", "--json"]);
    let rows = s["by_category"].as_array().unwrap();
    assert_eq!(rows.len(), 9, "every category stands there, also without bytes");
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
    // The settings that pass, each with its line to copy; the limit was not recorded, so none of it is certain.
    let remedies = o["ooms"][0]["remedies"].as_array().unwrap();
    assert!(remedies[0]["setting"].as_str().unwrap().starts_with("PYTORCH_CUDA_ALLOC_CONF="), "{remedies:?}");
    assert_eq!(remedies[0]["support"], "simulation");
    assert_eq!(o["whatif"][0]["limit_span_bytes"], serde_json::json!([1_677_721_600u64, 2_202_009_599u64]));
    assert_eq!(o["ooms"][0]["blockers"][0]["age_us"], 925);
    let known = json(&["oom", &sample("fragment_oom.pickle"), "--limit", "1760MiB", "--json"]);
    assert_eq!(known["ooms"][0]["way_out"]["bytes"], 226_492_416);
    assert_eq!(known["whatif"][0]["tried"][0]["peak_reserved_bytes"], 1632 << 20);
    assert_eq!(known["whatif"][0]["tried"][0]["certain"], true);
    // Nothing failed: the peak instead.
    let peak = json(&["oom", &sample("gpt_train.pickle"), "--json"]);
    assert_eq!(peak["ooms"], serde_json::json!([]));
    let p = &peak["peaks"][0];
    assert_eq!(
        (p["event"].as_u64(), p["largest_served_bytes"].as_u64(), p["is_exact"].as_bool()),
        (Some(1933), Some(27 << 20), Some(false))
    );
    let categories: u64 = p["live_by_category"].as_array().unwrap().iter().map(|c| c["bytes"].as_u64().unwrap()).sum();
    assert_eq!(Some(categories), p["requested_bytes"].as_u64());
}

#[test]
fn wrong_usage_exits_with_two() {
    let file = sample("leak.pickle");
    for args in [
        vec!["summary"],
        vec!["summary", "--frobnicate", &file],
        vec!["state", &file],
        vec!["state", &file, "--event", "-1"],
        vec!["state", &file, "--event", "many"],
        vec!["state", &file, "--peak", "--end"],
        vec!["allocations", &file, "--where", "size>lots"],
        vec!["allocations", &file, "--where", "live@cursor"],
        vec!["state", &file, "--peak=height"],
        vec!["screenshot"],
        vec!["screenshot", &file, "--size", "huge", "out.png"],
    ] {
        let output = run(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn help_and_version_are_answers() {
    for args in [["--help"], ["--version"]] {
        let output = run(&args);
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout(&output).contains("vramscope") && output.stderr.is_empty());
    }
    let help = stdout(&run(&["--help"]));
    for word in ["summary", "state", "oom", "explain", "screenshot", "_record_memory_history", "Exit codes"] {
        assert!(help.contains(word), "{word} is not in the help");
    }
}

#[test]
fn files_that_can_not_be_read_get_one_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let make = |name: &str, bytes: &[u8]| -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    };
    // protocol 2, GLOBAL posix system, a tuple of one text, REDUCE: what a hostile pickle does.
    let hostile = b"\x80\x02cposix\nsystem\n(X\x02\x00\x00\x00idtR.";
    let cases = [
        (folder.path().join("missing.pickle"), "no such file"),
        (make("empty.pickle", b""), "empty"),
        (make("notes.txt", b"all went well today"), "not a file vramscope reads"),
        (make("log.txt", b"step 7\nRuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB"), "vramscope explain"),
        (make("hostile.pickle", hostile), "GLOBAL"),
        (make("list.pickle", b"\x80\x02]q\x00(K\x01K\x02e."), ""),
        (make("stub.pickle", b"\x80\x04"), ""),
    ];
    for (path, word) in &cases {
        let file = path.display().to_string();
        for args in [vec!["summary", &file], vec!["summary", &file, "--json"], vec!["state", &file, "--end", "--json"]] {
            let sentence = complaint(&args, &file);
            assert!(sentence.contains(word), "{args:?}: {sentence}");
            assert!(!sentence.contains("panicked"), "{sentence}");
        }
    }
}

#[test]
fn a_folder_where_a_file_is_wanted_names_the_command_for_folders() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().display().to_string();
    for args in [vec!["summary", &path], vec!["state", &path, "--end"], vec!["findings", &path, "--json"]] {
        let output = run(&args);
        let sentence = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {sentence}");
        assert!(output.stdout.is_empty() && sentence.lines().count() == 1, "{args:?}: {sentence}");
        assert!(sentence.contains(&format!("vramscope ranks {path}")), "{sentence}");
    }
}

#[test]
fn a_file_cut_short_gives_what_could_be_read_and_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = std::fs::read(sample("gpt_train.pickle")).expect("a sample");
    let path = folder.path().join("cut.pickle");
    std::fs::write(&path, &whole[..whole.len() * 2 / 3]).expect("written");
    let file = path.display().to_string();
    let output = run(&["summary", &file, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let s: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(s["load"]["events"].as_u64().is_some_and(|n| n > 1000 && n < 6408), "{}", s["load"]["events"]);
    let warnings = s["load"]["warnings"].as_array().expect("warnings");
    assert!(warnings.iter().any(|w| w["kind"] == "truncated" && w["count"] == 1), "{warnings:?}");
    let text = stdout(&run(&["summary", &file]));
    assert!(text.contains("note: "), "{text}");
    assert!(text.lines().next().is_some_and(|first| first.contains("the file is cut short")), "{text}");
}

#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    // Nobody writes into the pipe: opening it would wait for ever.
    for file in [pipe.display().to_string(), "/dev/zero".to_owned()] {
        let output = run(&["summary", &file]);
        assert_eq!(output.status.code(), Some(1), "{file}");
        assert!(stderr(&output).contains("a pipe or a device and not a file"), "{}", stderr(&output));
    }
    let missing = folder.path().join("missing.pickle").display().to_string();
    assert!(stderr(&run(&["summary", &missing])).contains("there is no such file"));
}

#[test]
fn a_dash_reads_a_recording_from_standard_input() {
    let input = std::fs::File::open(sample("leak.pickle")).expect("a sample");
    let output = Command::new(env!("CARGO_BIN_EXE_vramscope")).args(["summary", "-"]).stdin(input).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains(" reserved at most "), "{}", stdout(&output));
}

#[test]
fn a_picture_of_another_format_than_its_name_is_refused() {
    for (out, also, wants) in
        [("o.jpg", None, "PNG"), ("o", None, "PNG"), ("o.svg", None, "--svg"), ("o.png", Some("--svg"), ".svg")]
    {
        let mut words = vec!["screenshot", "leak.pickle", out];
        words.extend(also);
        let output = run(&words);
        assert_eq!(output.status.code(), Some(2), "{out}");
        assert!(stderr(&output).contains(wants), "{out}: {}", stderr(&output));
    }
    let output = run(&["screenshot", &sample("leak.pickle"), "no/such/folder/o.svg", "--svg"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("there is no folder no/such/folder"), "{}", stderr(&output));
    let output = run(&["diff", ".", "."]);
    assert_eq!(output.status.code(), Some(2), "a folder");
}

#[test]
fn values_that_make_no_sense_are_told_of_in_the_first_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("damaged.json");
    let text = r#"{"segments": [{"device": 0, "address": 1048576, "total_size": "abc", "stream": 0, "segment_type": "large",
        "blocks": [{"address": 1048576, "size": -4, "requested_size": 7, "state": "active_allocated"}]}],
        "device_traces": [[{"action": "alloc", "addr": -5, "size": 1024, "stream": 0}]]}"#;
    std::fs::write(&path, text).expect("written");
    let file = path.display().to_string();
    let output = run(&["summary", &file]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let first = stdout(&output).lines().next().unwrap_or_default().to_owned();
    assert!(first.contains("make no sense, so figures may be wrong") || first.contains("makes no sense"), "{first}");
}

#[test]
fn explain_reads_standard_input() {
    use std::io::Write as _;
    let mut child =
        program(&["explain", "--json"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
    let message = "CUDA out of memory. Tried to allocate 500.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 133.79 GiB is free. 1.61 GiB allowed; Of the allocated memory 990.02 MiB is allocated by PyTorch, and 609.98 MiB is reserved by PyTorch but unallocated.";
    child.stdin.take().expect("a pipe").write_all(message.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    let e: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(e["figures"]["requested_bytes"], 524_288_000);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = program(&["state", &sample("kv_decode_oom.pickle.gz"), "--end", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut first = [0; 1];
    let mut pipe = child.stdout.take().expect("a pipe");
    pipe.read_exact(&mut first).expect("a byte");
    drop(pipe);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

#[test]
#[cfg(all(unix, not(target_os = "macos")))]
fn without_a_display_the_window_names_what_works() {
    for args in [vec![], vec![sample("leak.pickle")], vec!["screenshot".to_owned(), sample("leak.pickle"), "out.png".to_owned()]]
    {
        let output = run(&args);
        let sentence = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{sentence}");
        assert!(output.stdout.is_empty());
        let expected = if cfg!(feature = "gui") { "there is no display" } else { "has no window" };
        assert!(sentence.contains(expected) && sentence.contains("vramscope --help"), "{sentence}");
    }
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
    let output = run(&["leaks", &file, "--from", "99999999"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("there is no event 99999999"), "{}", stderr(&output));
}

#[test]
fn a_word_that_is_no_file_and_no_command_is_told_the_nearest_command() {
    for (word, expected) in [
        ("sumary", "did you mean \"vramscope summary\"?"),
        ("whatfi", "did you mean \"vramscope whatif\"?"),
        ("frobnicate", "is neither a file nor a command"),
        ("missing.pickle", "is neither a file nor a command"),
    ] {
        let output = run(&[word, "anything"]);
        let sentence = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{word}: {sentence}");
        assert!(sentence.lines().count() == 1 && sentence.contains(expected) && sentence.contains(word), "{word}: {sentence}");
    }
    // A path is a path, also where nothing is: it is opened, which needs a display.
    assert_eq!(run(&["./frobnicate"]).status.code(), Some(1));
}

#[test]
fn an_unknown_view_lists_each_view_once() {
    if !cfg!(feature = "gui") {
        return;
    }
    let output = run(&["screenshot", &sample("leak.pickle"), "out.png", "--view", "nonsense"]);
    let sentence = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{sentence}");
    let (_, list) = sentence.trim_end().split_once("the views are ").expect("a list");
    let views: Vec<&str> = list.split(", ").collect();
    let distinct: std::collections::HashSet<&&str> = views.iter().collect();
    assert!(views.contains(&"timeline") && views.contains(&"overview") && distinct.len() == views.len(), "{sentence}");
}

#[test]
fn every_report_says_when_its_file_breaks_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = std::fs::read(sample("gpt_train.pickle")).expect("a bundled sample");
    let path = folder.path().join("cut.pickle");
    std::fs::write(&path, &whole[..whole.len() * 6 / 10]).expect("written");
    let (cut, whole) = (path.display().to_string(), sample("gpt_train.pickle"));
    for (file, is_cut) in [(&cut, true), (&whole, false)] {
        for args in [
            vec!["leaks", file],
            vec!["leaks", file, "--from", "10"],
            vec!["state", file, "--end"],
            vec!["whatif", file, "--conf", "default"],
            vec!["flame", file],
            vec!["oom", file],
            vec!["allocations", file, "--where", "size>1MiB"],
        ] {
            let with_json: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
            assert_eq!(json(&with_json)["truncated"], is_cut, "{with_json:?}");
            let output = run(&args);
            assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
            let told = format!("{}{}", stdout(&output), stderr(&output));
            assert_eq!(told.contains("is not whole"), is_cut, "{args:?}: {told}");
            // What is printed for another program to read has its note beside it.
            if args[0] != "flame" {
                let first = told.lines().next().unwrap_or_default();
                assert_eq!(first.starts_with("The file is cut short"), is_cut, "{args:?}: {told}");
            }
        }
        let d = json(&["diff", file, &whole, "--json"]);
        assert_eq!((&d["a"]["truncated"], &d["b"]["truncated"]), (&Value::Bool(is_cut), &Value::Bool(false)));
        assert_eq!(stdout(&run(&["diff", file, &whole])).contains("is not whole"), is_cut);
    }
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
    // Whole blocks, as the state at that instant has them.
    let state = json(&["state", &file, "--event", "900", "--json"]);
    assert_eq!(state["totals"]["active_bytes"], d["b"]["bytes"]);
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

/// What the profiler would write of a sample's first device, 700 microseconds late, and with an operator around each allocation.
fn trace_of(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots").join(name);
    let recording = vramscope::formats::open(&path, &vramscope::model::Progress::new()).unwrap();
    let device = &recording.devices[0];
    let tables = vramscope::analysis::DeviceTables::build(device, &vramscope::model::Progress::new()).unwrap();
    let events = &device.events;
    let rows = (0..events.len()).filter_map(|i| {
        let block = tables.lifetimes.block_size(tables.lifetimes.of_event(i as u32)) as i64;
        let bytes = match events.action[i] {
            vramscope::model::Action::Alloc => block,
            vramscope::model::Action::FreeRequested => -block,
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
    // Another run, and a file that is none.
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
        let output = run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let said = stderr(&output);
        assert!(said.contains("these are PyTorch's counters") && said.trim_end().lines().count() == 1, "{args:?}: {said}");
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
    assert!(error.contains("rules.json: Rule 1 can not be used"), "{error}");
    let error = complaint(&["findings", sample, "--rules", "no_such_file.json"], "no_such_file.json");
    assert!(error.contains("no_such_file.json: the rules can not be read"), "{error}");
}

/// Sums by category have neither events nor blocks: zeros are no answer.
#[test]
fn a_file_without_events_or_blocks_is_refused_with_what_it_has() {
    let folder = std::env::temp_dir().join(format!("vramscope-sums-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("sums.json");
    std::fs::write(&path, "[[1000, 2000], [[0, 1048576, 0], [0, 2097152, 1048576]]]").expect("a file");
    let trace = folder.join("trace.json");
    let event = r#"{"ph":"X","cat":"cpu_op","name":"aten::add","pid":1,"tid":1,"ts":1,"dur":5}"#;
    std::fs::write(&trace, format!("{{\"traceEvents\":[{event}]}}")).expect("a file");
    let (sums, trace) = (path.display().to_string(), trace.display().to_string());
    for command in [
        &["flame"][..],
        &["leaks"],
        &["oom"],
        &["findings"],
        &["allocations"],
        &["whatif"],
        &["state", "--peak"],
        &["check", "--no-oom"],
    ] {
        let args = |file: &str| [&[command[0], file], &command[1..]].concat().iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let (of_sums, of_trace) = (args(&sums), args(&trace));
        let sentence = complaint(&of_sums.iter().map(String::as_str).collect::<Vec<_>>(), "sums.json");
        assert!(sentence.contains("without events or blocks"), "{sentence}");
        let sentence = complaint(&of_trace.iter().map(String::as_str).collect::<Vec<_>>(), "trace.json");
        assert!(sentence.contains("no memory events"), "{sentence}");
    }
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

#[test]
fn check_names_the_failed_request() {
    let sentence = complaint(&["check", &sample("fragment_oom.pickle"), "--no-oom"], "fragment_oom.pickle");
    assert!(sentence.replace('\u{a0}', " ").contains("1 request failed at event 176 "), "{sentence}");
}
