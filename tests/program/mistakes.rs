//! Error messages and exit codes for mistyped commands and unusual files.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::cli::{answer, complaint, json, program, refused, run, sample, stderr, stdout};

#[test]
fn limits_are_held_against_what_was_there() {
    let leak = sample("leak.pickle");
    let says = |args: &[&str], code: i32, part: &str| {
        let output = run(args);
        let told = stderr(&output) + &stdout(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {told}");
        assert!(told.contains(part), "{args:?}: no \"{part}\" in: {told}");
    };
    says(&["oom", &leak, "--limit", "200MiB"], 1, "below the 250 MiB that were reserved on GPU 0 at event");
    says(&["oom", &leak, "--limit", "250MiB"], 0, "0 B were left under the cap");
    // With a higher cap, the request would not have failed.
    let failed = sample("fragment_oom.pickle");
    says(&["oom", &failed, "--limit", "2100MiB"], 1, "so the cap is below 2,100 MiB");
    says(&["oom", &failed, "--limit", "2099MiB"], 0, "fragmentation");
    says(&["oom", &sample("expandable_oom.pickle"), "--limit", "3000MiB"], 1, "the request of event 182 failed");
    says(&["whatif", &failed, "--conf", "default", "--limit", "3000MiB"], 0, "so this asks about a higher one");
    says(&["check", &leak, "--max-peak", "60"], 2, "60 without a unit is 60 bytes");
    says(&["check", &leak, "--max-peak", "60GiB"], 0, "passed");
    // A recording that is too short to tell does not pass, and says why.
    let short = sample("fragment_oom.pickle");
    says(&["check", &sample("gpt_train.pickle"), "--no-leaks"], 1, "4 steps are too few to tell a leak from normal growth");
    says(&["check", &short, "--no-leaks"], 1, "whether anything leaks is unknown");
    let undecided: Value = serde_json::from_slice(&run(&["check", &short, "--no-leaks", "--json"]).stdout).expect("JSON");
    assert_eq!((undecided["passed"].as_bool(), undecided["checks"][0]["passed"].is_null()), (Some(false), true), "{undecided}");
    assert!(undecided["checks"][0]["reason"].as_str().is_some_and(|why| why.contains("is unknown")), "{undecided}");
    let fragment = json(&["check", &sample("gpt_train.pickle"), "--max-fragmentation", "1", "--json"]);
    let share = fragment["checks"][0]["value"].as_f64().expect("a share");
    let state = json(&["state", &sample("gpt_train.pickle"), "--peak", "--json"]);
    let bytes = |name: &str| state["totals"][name].as_f64().expect("bytes");
    assert!(share < 0.06, "{share}: with the block in place that the segment was taken for");
    assert!((share - (1.0 - bytes("active_bytes") / bytes("reserved_bytes"))).abs() < 0.01, "{share}");
    says(&["allocations", &leak, "--where", "step=99"], 0, "steps are 1 to 60");
    says(&["allocations", &leak, "--where", "size>1TiB"], 0, "allocations requested");
}

#[test]
fn wrong_usage_exits_with_two() {
    let file = sample("leak.pickle");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let gpt = root.join("tests/recordings/plan/gpt.b4.pickle.zst").display().to_string();
    let folder = root.join("sample_snapshots").display().to_string();
    for args in [
        vec!["summary"],
        vec!["summary", "--frobnicate", &file],
        vec!["state", &file, "--event", "-1"],
        vec!["state", &file, "--event", "many"],
        vec!["state", &file, "--peak", "--end"],
        vec!["allocations", &file, "--where", "size>lots"],
        vec!["allocations", &file, "--where", "live@cursor"],
        vec!["state", &file, "--peak=height"],
        vec!["screenshot"],
        vec!["screenshot", &file, "--size", "huge", "out.png"],
        vec!["probe", "bogus"],
        vec!["probe", "leak", "--param", "nope=1"],
        vec!["probe", "leak", "out.txt"],
        vec!["probe", "replay"],
        vec!["record", "out.txt"],
        vec!["run", "--nope"],
        vec!["plan", &gpt],
        vec!["plan", &gpt, "--at", "batch"],
        vec!["plan", &gpt, "--at", "batch=0"],
        vec!["plan", &gpt, "--at", "batch=4", "--at", "batch=8"],
        vec!["plan", &gpt, &gpt, "--at", "batch=4", "--at", "seq=8"],
        vec!["plan", &gpt, &gpt, "--at", "batch=4", "--at", "batch=4"],
        vec!["plan", &gpt, "--at", "a=1,b=2,c=3,d=4,e=5"],
        vec!["plan", &gpt, "--at", "batch=4", "--card", "nope"],
        vec!["plan", &gpt, "--at", "batch=4", "--want", "batch=4000000000"],
        vec!["plan", &gpt, "--at", "batch=4", "--change", "chunks:99999"],
        vec!["plan", &gpt, "--at", "batch=4", "--change", "del:"],
        vec!["plan", &gpt, "--at", "batch=4", "--change", "accumulate:1"],
        vec!["plan", &gpt, "--at", "batch=4", "--change", "accumulate:64"],
        vec!["plan", &gpt, "--at", "batch=4", "--card", "H100", "--held", "100GiB"],
        vec!["plan", &gpt, "--at", "batch=4", "--card", "H100", "--cap", "4GiB"],
        vec!["plan", &gpt, "--at", "batch=4", "--conf", "nope:1"],
        vec!["plan", &gpt, "--at", "batch=4", "--change", "nope"],
        vec!["plan", &gpt, "--at", "batch=4", "--change", "all", "--change", "nope"],
        vec!["plan", &gpt, "--at", "batch=4", "--largest", "batch"],
        vec!["plan", &gpt, "--at", "batch=4", "--largest", "seq", "--cap", "4GiB"],
        vec!["plan", &gpt, "--at", "batch=4", "--want", "seq=3"],
        vec!["plan", &gpt, "--at", "batch=4", "--steps", "x"],
        vec!["plan", &folder, "--at", "batch=4"],
        vec!["doctor", &folder],
        vec!["explain", &folder],
        vec!["whatif", &file, "--conf", "nope"],
        vec!["whatif", &file, "--conf", "max_split_size_mb:1"],
        vec!["whatif", &file, "--limit", "nope"],
        vec!["check", &file],
        vec!["check", &file, "--tolerance", "1%"],
        vec!["check", &file, "--max-role", "nope=4GiB"],
        vec!["check", &file, "--max-fragmentation", "3"],
        vec!["report", &file],
        vec!["report", &file, "--at", "nope", "-o", "out.html"],
        vec!["report", &file, "--format", "md", "--cap", "24GiB"],
        vec!["leaks", &file, "--from", "5", "--to", "3"],
        vec!["summary", &file, &file, "--with", &file],
        vec!["export", &file, "--to", "csv", &folder, "--job", "../../escaped"],
        vec!["export", &file, "--to", "csv", &folder, "--job", "a/b=c"],
        vec!["screenshot", &file, "--size", "16384x16384", "out.png"],
        vec!["plan", &gpt, "--at", "batch=4", "--card", "RTX 3060 8GB"],
        vec!["export", &file],
        vec!["export", &file, "--to", "nope", "out"],
        vec!["diff", &file],
        vec!["oom", &file, "--limit", "xx"],
        vec!["record", "--prometheus", "nope", "x.vramscope"],
        vec!["snap", "nope"],
        vec!["run", "--at-oom"],
        vec!["mcp"],
        vec!["completions", "nope"],
    ] {
        let output = run(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{args:?}");
    }
}

/// What libraries say of a value is said in our words.
#[test]
fn errors_speak_no_rust() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str, text: &[u8]| {
        std::fs::write(folder.path().join(name), text).expect("written");
        folder.path().join(name).display().to_string()
    };
    let (file, map, bytes) = (sample("leak.pickle"), at("map.json", b"{}"), at("bytes.json", b"\xff\xfe["));
    for (args, words) in [
        (vec!["plan", &file, "--at", "batch=4", "--steps", "0"], "0 is no number from 1 to 1000"),
        (vec!["run", "--at-oom", "d", "--max-snapshots", "0", "x.py"], "0 is no number of 1 or more"),
        (vec!["state", &file, "--event", "99999999999"], "the number is too large"),
        (vec!["findings", &file, "--rules", &map], "these are not role rules (not in the form of rules at line 1, column "),
        (vec!["findings", &file, "--rules", &bytes], "the rules cannot be read: this is no text"),
    ] {
        let said = stderr(&run(&args));
        assert!(said.contains(words), "{args:?}: {said}");
        assert!(
            !["target type", "UTF-8", "utf-8", "..=", "invalid type"].iter().any(|rust| said.contains(rust)),
            "{args:?}: {said}"
        );
    }
    let jax = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/jax_train.prof").display().to_string();
    let said = stderr(&run(&["plan", &jax, "--at", "batch=4"]));
    assert!(said.contains("JAX's profile has no requests to plan from") && !said.contains("torch."), "{said}");
}

/// System errors become one sentence with the file's name and what to do; exit code 1.
#[test]
fn errors_of_the_system_are_one_plain_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (file, taken) = (sample("leak.pickle"), at("taken"));
    std::fs::write(&taken, "a file").expect("written");
    let below = format!("{taken}/below");
    for args in [
        vec!["findings", &file, "--rules", &at("none.json")],
        vec!["check", &file, "--max-peak", "1TiB", "--rules", &at("none.json")],
        vec!["state", &file, "--rules", &at("none.json")],
        vec!["flame", &file, "--rules", &at("none.json")],
        vec!["man", &below],
        vec!["man", &taken],
        vec!["run", "--at-oom", &below, "train.py"],
        vec!["export", &file, "--to", "csv", &below],
        vec!["report", &file, "-o", &at("none/report.html")],
        vec!["explain", &at("none.txt")],
        vec!["summary", &file, "--stats", &at("none.json")],
        vec!["plan", &at("none.pickle"), "--at", "batch=4"],
        vec!["doctor", &at("none.pickle")],
    ] {
        let told = refused(&args, 1);
        assert!(told.contains(&folder.path().display().to_string()), "{args:?}: {told}");
        assert!(!told.contains("os error") && !told.contains("No such file"), "{args:?}: {told}");
    }
}

#[test]
fn a_check_without_a_limit_says_what_to_add() {
    let told = stderr(&run(&["check", &sample("leak.pickle")]));
    assert!(told.contains("name a limit, as in --max-peak 60GiB") && !told.contains('|') && !told.contains('<'), "{told}");
}

#[test]
fn a_command_without_its_files_says_what_to_write() {
    let file = sample("leak.pickle");
    for (args, needs, write) in [
        (vec!["diff", &file], "diff needs a second recording", "vramscope diff A.pickle B.pickle, or"),
        (vec!["diff"], "diff needs two recordings", "--a-event N --b-event M"),
        (vec!["plan", &file], "plan needs --at NAME=N", "vramscope plan FILE --at batch=8"),
        (vec!["export", &file], "export needs --to FORMAT and OUT", "vramscope export --to FORMAT FILE OUT"),
        (vec!["export", &file, "--to", "csv"], "export needs OUT", "vramscope export --to FORMAT FILE OUT"),
        (vec!["screenshot"], "screenshot needs", "vramscope screenshot"),
        (vec!["summary"], "summary needs FILE", "vramscope summary FILE..."),
        (vec!["ranks"], "ranks needs DIR", "vramscope ranks DIR..."),
    ] {
        let told = refused(&args, 2);
        assert!(told.contains(needs) && told.contains(write) && !told.contains(['<', '>']), "{args:?}: {told}");
        assert!(!told.contains("required arguments"), "{args:?}: {told}");
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
    // Protocol 2, GLOBAL posix system, a tuple of one text, REDUCE: what a malicious pickle does.
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
        let sentence = refused(&args, 2);
        assert!(sentence.contains(&format!("vramscope ranks {path}")), "{sentence}");
    }
}

#[test]
fn a_page_of_ranks_is_of_a_folder_and_nothing_else_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, file) = (folder.path().display().to_string(), sample("leak.pickle"));
    let out = folder.path().join("x.svg").display().to_string();
    for (args, says) in [
        (vec!["export", "--to", "svg", "--view", "ranks", &file, &out], "is no folder: --view ranks"),
        (vec!["screenshot", "--svg", "--view", "ranks", &file, &out], "is no folder: --view ranks"),
        (vec!["export", "--to", "svg", "--view", "timeline", &path, &out], "is a folder; --view ranks"),
    ] {
        let sentence = refused(&args, 2);
        assert!(sentence.contains(says), "{args:?}: {sentence}");
        assert!(!folder.path().join("x.svg").exists());
    }
    std::fs::copy(&file, folder.path().join("run_rank0.pickle")).expect("copied");
    let output = run(&["export", "--to", "svg", &path, &out]);
    assert!(output.status.success() && folder.path().join("x.svg").exists(), "{}", stderr(&output));
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
    // Nobody writes to the pipe, so opening it would block for ever.
    for file in [pipe.display().to_string(), "/dev/zero".to_owned()] {
        complaint(&["summary", &file], "a pipe or a device and not a file");
    }
    assert!(stderr(&run(&["summary", "https://example.com/a.pickle"])).contains("download the file"));
    let missing = folder.path().join("missing.pickle").display().to_string();
    assert!(stderr(&run(&["summary", &missing])).contains("there is no such file"));
}

#[test]
fn a_picture_of_another_format_than_its_name_is_refused() {
    for (out, also, wants) in
        [("o.jpg", None, "PNG"), ("o", None, "PNG"), ("o.svg", None, "--svg"), ("o.png", Some("--svg"), ".svg")]
    {
        let mut words = vec!["screenshot", "leak.pickle", out];
        words.extend(also);
        let sentence = refused(&words, 2);
        assert!(sentence.contains(wants), "{out}: {sentence}");
    }
    let sentence = refused(&["screenshot", "leak.pickle"], 2);
    assert!(sentence.contains("leak.pickle picture.png"), "{sentence}");
    complaint(&["screenshot", &sample("leak.pickle"), "no/such/folder/o.svg", "--svg"], "there is no folder no/such/folder");
    refused(&["diff", ".", "."], 2);
}

#[test]
#[cfg(feature = "gui")]
fn a_picture_that_is_there_stays_without_force() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("o.svg").display().to_string();
    std::fs::write(&out, "mine").unwrap();
    let leak = sample("leak.pickle");
    for words in [vec!["screenshot", &leak, &out, "--svg"], vec!["export", "--to", "svg", &leak, &out]] {
        let refused = run(&words);
        assert_eq!((refused.status.code(), std::fs::read_to_string(&out).unwrap().as_str()), (Some(1), "mine"), "{words:?}");
        assert!(stderr(&refused).contains("--force"), "{}", stderr(&refused));
    }
    let forced = run(&["screenshot", &leak, &out, "--svg", "--force", "--size", "400x300"]);
    assert_eq!(forced.status.code(), Some(0), "{}", stderr(&forced));
    assert!(std::fs::read_to_string(&out).unwrap().starts_with("<svg "));
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
    let first = answer(&["summary", &file]).lines().next().unwrap_or_default().to_owned();
    assert!(first.contains("make no sense, so figures may be wrong") || first.contains("makes no sense"), "{first}");
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
    for args in [vec![], vec![sample("leak.pickle")]] {
        let output = run(&args);
        let sentence = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{sentence}");
        assert!(output.stdout.is_empty());
        let expected = if cfg!(feature = "gui") { "there is no display" } else { "has no window" };
        assert!(sentence.contains(expected) && sentence.contains("vramscope --help"), "{sentence}");
    }
}

/// A program that catches its failures may have thousands, and each takes long to examine.
#[test]
fn of_thousands_of_failures_the_last_are_examined() {
    let folder = tempfile::tempdir().unwrap();
    let mut recording =
        vramscope_core::formats::open(Path::new(&sample("fragment_oom.pickle")), &vramscope_core::model::Progress::new())
            .unwrap();
    let events = &mut recording.devices[0].events;
    let last = events.ooms()[0] as usize;
    for i in 0..700 {
        let (time, size, stream) = (events.time_us[last] + i, events.size[last], events.stream[last]);
        let (address, pool, stack) = (events.address[last], events.pool[last], events.stack[last]);
        events.push(time, vramscope_core::model::Action::Oom, address, size, stream, pool, stack);
    }
    let file = folder.path().join("many.pickle");
    vramscope_core::diagnose::export::save(&recording, &file, &[], true).unwrap();
    let report = json(&["oom", &file.display().to_string(), "--json"]);
    assert_eq!((report["ooms"].as_array().unwrap().len(), report["ooms_left_out"].as_u64()), (256, Some(445)));
}

#[test]
#[cfg(all(unix, not(target_os = "macos"), feature = "gui"))]
fn a_display_where_no_compositor_answers_is_named_without_lines_of_anyone_s_source() {
    let folder = tempfile::tempdir().expect("a folder");
    for (display, runtime) in [("wayland-9", Some(folder.path())), ("wayland-9", None), ("/nowhere/wayland-0", None)] {
        let mut command = program(&[sample("leak.pickle")]);
        command.env("WAYLAND_DISPLAY", display).env_remove("XDG_RUNTIME_DIR");
        if let Some(runtime) = runtime {
            command.env("XDG_RUNTIME_DIR", runtime);
        }
        let output = command.output().expect("it starts");
        let sentence = stderr(&output);
        // Without libwayland-egl, that is reported first.
        assert!(sentence.contains(display) || sentence.contains("libwayland-egl"), "{sentence}");
        assert!(output.status.code() == Some(1) && sentence.lines().count() == 1 && !sentence.contains(".rs"), "{sentence}");
    }
}

#[test]
fn a_word_that_is_no_file_and_no_command_is_told_the_nearest_command() {
    for (word, expected) in [
        ("sumary", "did you mean \"vramscope summary\"?"),
        ("whatfi", "did you mean \"vramscope whatif\"?"),
        ("frobnicate", "is neither a file nor a command"),
        ("missing.pickle", "is neither a file nor a command"),
    ] {
        let sentence = refused(&[word, "anything"], 2);
        assert!(sentence.contains(expected) && sentence.contains(word), "{word}: {sentence}");
    }
    // A path is opened even if nothing is there, which needs a display.
    assert_eq!(run(&["./frobnicate"]).status.code(), Some(1));
}

#[test]
fn a_mistyped_option_or_value_is_told_the_nearest_one() {
    let file = sample("leak.pickle");
    let recording = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/gpt2_fp32.mid.python.pickle.zst");
    let recording = recording.display().to_string();
    for (args, expected) in [
        (vec!["summary", &file, "--josn"], "did you mean --json?"),
        (vec!["check", &file, "--no-leak"], "did you mean --no-leaks?"),
        (vec!["export", &file, "--to", "parqet", "out"], "did you mean parquet?"),
        (vec!["whatif", &file, "--conf", "expandible_segments:True"], "did you mean expandable_segments?"),
        (
            vec!["plan", &recording, "--at", "batch=4", "--cap", "8GiB", "--change", "fused_atention"],
            "did you mean fused_attention?",
        ),
        (vec!["plan", &recording, "--at", "batch=4", "--card", "RTX 4900"], "did you mean RTX 4090?"),
    ] {
        let sentence = refused(&args, 2);
        assert!(sentence.contains(expected), "{args:?}: {sentence}");
    }
}

#[test]
fn an_unknown_view_lists_each_view_once() {
    if !cfg!(feature = "gui") {
        return;
    }
    let sentence = refused(&["screenshot", &sample("leak.pickle"), "out.png", "--view", "nonsense"], 2);
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
            // Output for another program has its note on standard error.
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

/// Sums by category have neither events nor blocks. Zeros would be wrong.
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
fn every_report_tells_first_that_a_trace_contradicts_its_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("odd.json");
    // One block is allocated in the trace and never freed, but the file's block list says that its place is free.
    let block = |address: u64, size: u64, state: &str| {
        format!(r#"{{"size":{size},"requested_size":{size},"address":{address},"state":"{state}","frames":[]}}"#)
    };
    let blocks = [block(512, 1 << 20, "active_allocated"), block(512 + (1 << 20), 1 << 20, "inactive")].join(",");
    let segment =
        format!(r#"{{"device":0,"address":512,"total_size":2097152,"stream":0,"segment_type":"small","blocks":[{blocks}]}}"#);
    let event = |action: &str, address: u64, size: u64| {
        format!(r#"{{"action":"{action}","addr":{address},"size":{size},"stream":0,"frames":[],"time_us":1}}"#)
    };
    let trace = [event("segment_alloc", 512, 2 << 20), event("alloc", 512, 1 << 20), event("alloc", 512 + (1 << 20), 1 << 19)];
    std::fs::write(&path, format!(r#"{{"segments":[{segment}],"device_traces":[[{}]]}}"#, trace.join(","))).expect("written");
    let file = path.display().to_string();
    for args in [
        vec!["state", &file, "--end"],
        vec!["oom", &file],
        vec!["leaks", &file],
        vec!["leaks", &file, "--from", "0"],
        vec!["allocations", &file],
        vec!["findings", &file],
        vec!["diff", &file, &file],
    ] {
        let told = stdout(&run(&args));
        let first = told.lines().next().unwrap_or_default();
        assert!(first.contains("contradicts"), "{args:?}: {told}");
        assert!(told.contains("active at the end 1.50 MiB by the trace and 1 MiB by the file's own list"), "{args:?}: {told}");
    }
    assert!(stderr(&run(&["flame", &file])).contains("contradicts its file"));
    for args in [vec!["state", &file, "--end", "--json"], vec!["oom", &file, "--json"]] {
        assert!(json(&args).to_string().contains("contradicts its file"), "{args:?}");
    }
}

#[test]
fn an_export_of_nothing_or_to_standard_output_writes_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("t.csv").display().to_string();
    complaint(&["export", "--to", "csv", "--table", "samples", &sample("leak.pickle"), &out], "leak.pickle: it has no samples");
    assert!(!Path::new(&out).exists());
    let sentence = refused(&["export", "--to", "csv", "--table", "curves", &sample("leak.pickle"), "-"], 2);
    assert!(sentence.contains("export writes files"), "{sentence}");
    assert!(!Path::new("-").exists());
}

#[test]
fn the_page_beside_a_snapshot_says_what_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("oom_rank0.about.json");
    let error =
        "CUDA out of memory. Tried to allocate 500.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 10.79 MiB is free.";
    let mut about = serde_json::json!({
        "vramscope": 1, "why": "oom", "snapshot": "oom_rank0.pickle", "output": { "stderr": ["step 3"] },
        "error": { "type": "OutOfMemoryError", "message": error, "traceback": format!("torch.OutOfMemoryError: {error}") },
    });
    std::fs::write(&page, about.to_string()).expect("written");
    let path = page.display().to_string();
    for command in ["summary", "findings"] {
        let said = complaint(&[command, &path], &path);
        assert!(said.contains("about the snapshot oom_rank0.pickle beside it"), "{said}");
    }
    let told = stdout(&run(&["explain", &path]));
    assert!(told.contains("500.00 MiB") && told.contains("line 2") && told.contains("vramscope oom "), "{told}");
    assert!(told.contains("oom_rank0.pickle"), "{told}");
    about["error"] = serde_json::Value::Null;
    std::fs::write(&page, about.to_string()).expect("written");
    let said = complaint(&["explain", &path], &path);
    assert!(said.contains("no out-of-memory message") && said.contains("oom_rank0.pickle"), "{said}");
}

#[test]
fn a_limit_below_what_a_recording_begins_with_is_no_question() {
    let file = super::cli::sample("serve_oom.pickle.gz");
    let said = complaint(&["whatif", &file, "--limit", "1KiB"], "serve_oom.pickle.gz");
    assert!(said.contains("begins with 32 MiB reserved, above a limit of 1 KiB"), "{said}");
    // One unit per table.
    let told = stdout(&run(&["whatif", &super::cli::sample("gpt_train.pickle"), "--limit", "6GiB"]));
    let table: Vec<&str> = told.lines().skip_while(|l| !l.starts_with("settings")).take_while(|l| !l.is_empty()).collect();
    assert!(table.len() > 3 && table.iter().all(|line| !line.contains("GiB")), "{told}");
}
