//! `vramscope check` as a gate in continuous integration: limits on allocated memory, and comparison with an earlier recording.

use std::path::Path;

use serde_json::{Value, json};

use super::cli::{complaint, json as answer, refused, run, sample, stderr, stdout};
use super::report::outside_code;

const MIB: u64 = 1 << 20;

/// A snapshot of a program that allocates one block at each of these lines, and frees all of them at the end.
fn program(folder: &Path, name: &str, held: &[(&str, u64, u64)]) -> String {
    let frame = |file: &str, line: u64| match file {
        "" => json!([]),
        file => json!([{"filename": file, "name": "forward", "line": line}]),
    };
    let base = 0x7f00_0000_0000_u64;
    let size: u64 = held.iter().map(|(_, _, bytes)| bytes).sum();
    let mut events = vec![json!({"action": "segment_alloc", "addr": base, "size": size, "stream": 0, "frames": []})];
    let mut at = base;
    let mut frees = Vec::new();
    for &(file, line, bytes) in held {
        events.push(json!({"action": "alloc", "addr": at, "size": bytes, "stream": 0, "frames": frame(file, line)}));
        for action in ["free_requested", "free_completed"] {
            frees.push(json!({"action": action, "addr": at, "size": bytes, "stream": 0, "frames": []}));
        }
        at += bytes;
    }
    events.extend(frees);
    let segment = json!({
        "device": 0, "address": base, "total_size": size, "stream": 0, "segment_type": "large", "allocated_size": 0, "active_size": 0,
        "blocks": [{"address": base, "size": size, "requested_size": 0, "state": "inactive"}]
    });
    let path = folder.join(name);
    std::fs::write(&path, json!({"segments": [segment], "device_traces": [events]}).to_string()).unwrap();
    path.display().to_string()
}

/// What a program held before and after an edit: lines below it moved by three, and one of them holds 1 MiB more.
fn before_and_after(folder: &Path) -> [String; 2] {
    let before = [("train.py", 10, 40 * MIB), ("train.py", 20, 24 * MIB), ("model.py", 7, 16 * MIB)];
    let after = [("train.py", 10, 40 * MIB), ("train.py", 23, 25 * MIB), ("model.py", 7, 16 * MIB)];
    [program(folder, "old.json", &before), program(folder, "new.json", &after)]
}

#[test]
fn a_growth_of_one_mebibyte_is_found_and_nothing_else_is() {
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = before_and_after(folder.path());
    let passes = |args: &[&str]| assert_eq!(stdout(&run(args)), format!("{}: 1 check passed.\n", name_of(args[1])), "{args:?}");
    passes(&["check", &old, "--baseline", &old, "--tolerance", "0"]);
    // A recording of another program proves nothing, however little memory it uses.
    let other = program(folder.path(), "other.json", &[("serve.py", 10, 30 * MIB), ("engine.py", 7, 8 * MIB)]);
    let said = stderr(&run(&["check", &other, "--baseline", &old]));
    assert!(said.contains("the two share hardly any source file"), "{said}");
    // Nor does one without stacks: its sizes tell. Renamed files are no other program.
    let bare = program(folder.path(), "bare.json", &[("", 0, 30 * MIB), ("", 0, 8 * MIB)]);
    let said = stderr(&run(&["check", &bare, "--baseline", &old]));
    assert!(said.contains("no call stacks to compare, and the two share hardly any size"), "{said}");
    let same = program(folder.path(), "same.json", &[("", 0, 40 * MIB), ("", 0, 24 * MIB), ("", 0, 16 * MIB)]);
    passes(&["check", &same, "--baseline", &old, "--tolerance", "0"]);
    let renamed =
        program(folder.path(), "renamed.json", &[("fit.py", 1, 40 * MIB), ("fit.py", 2, 24 * MIB), ("net.py", 3, 16 * MIB)]);
    passes(&["check", &renamed, "--baseline", &old, "--tolerance", "0"]);
    passes(&["check", &old, "--baseline", &new, "--tolerance", "0"]);
    passes(&["check", &new, "--baseline", &old]);
    passes(&["check", &new, "--baseline", &old, "--tolerance", "1MiB"]);
    // 1 % of 80 MiB is 0.8 MiB.
    for tolerance in ["0", "1%", "1%+204KiB", "1023KiB"] {
        let output = run(&["check", &new, "--baseline", &old, "--tolerance", tolerance]);
        assert_eq!(output.status.code(), Some(1), "{tolerance}");
        let said = stderr(&output);
        assert!(said.contains("was allocated at event 3, 1 MiB more than in the baseline ("), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        let told = stdout(&output);
        assert!(told.contains("+1 MiB    24 MiB  25 MiB  ") && told.contains("train.py:23, before train.py:20"), "{told}");
        assert!(!told.contains("train.py:10") && !told.contains("model.py"), "{told}");
    }
    passes(&["check", &new, "--baseline", &old, "--tolerance", "1%+206KiB"]);

    let output = run(&["check", &new, "--baseline", &old, "--tolerance", "0", "--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &found["passed"]), (Some(1), &json!(false)));
    assert_eq!(found["baseline"], json!({"file": "old.json", "tolerance": "0"}));
    let check = &found["checks"][0];
    assert_eq!((&check["check"], &check["value"], &check["limit"]), (&json!("baseline"), &json!(81 * MIB), &json!(80 * MIB)));
    assert_eq!((&check["baseline"], &check["growth_bytes"]), (&json!(80 * MIB), &json!(MIB)));
    assert_eq!(check["by_line"].as_array().unwrap().len(), 1);
    assert_eq!((&check["by_line"][0]["place"], &check["by_line"][0]["growth_bytes"]), (&json!("train.py:23"), &json!(MIB)));
    assert_eq!(check["by_role"].as_array().unwrap().iter().map(|r| r["growth_bytes"].as_u64().unwrap()).sum::<u64>(), MIB);
    // A smaller peak passes and is reported as smaller.
    let smaller = answer(&["check", &old, "--baseline", &new, "--tolerance", "0", "--json"]);
    assert_eq!(smaller["checks"][0]["growth_bytes"], json!(-(MIB as i64)));
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

/// Two runs of one program, recorded in different ways, allocate exactly the same bytes.
#[test]
fn runs_of_the_same_work_raise_no_alarm() {
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let file = |name: &str| recordings.join(format!("{name}.pickle.zst")).display().to_string();
    for (old, new) in [
        ("leak_ema.healthy.none", "leak_ema.healthy.python"),
        ("leak_hook.healthy.python", "leak_hook.healthy.none"),
        ("gan.start.python", "gan.mid.python"),
    ] {
        let found = answer(&["check", &file(new), "--baseline", &file(old), "--tolerance", "0", "--json"]);
        assert_eq!(found["checks"][0]["growth_bytes"], json!(0), "{new}");
    }
    let grown = run(&[
        "check",
        &file("leak_hook.leak.python"),
        "--baseline",
        &file("leak_hook.healthy.python"),
        "--tolerance",
        "1%+2MiB",
    ]);
    assert_eq!(grown.status.code(), Some(1));
    assert!(stdout(&grown).contains("vision_transformer.py:216"), "{}", stdout(&grown));
}

/// Growth is reported as far as both recordings show it, together with what shrank, so that the figures add up.
#[test]
fn growth_adds_up_and_says_what_it_cannot_tell() {
    let file = |name: &str| format!("{}/tests/recordings/{name}.pickle.zst", env!("CARGO_MANIFEST_DIR"));
    let check = |new: &str, old: &str| {
        let (new, old) = (file(new), file(old));
        let words = ["check", &new, "--baseline", &old, "--tolerance", "0"];
        let output = run(&[&words[..], &["--json"]].concat());
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        (found["checks"][0].clone(), stdout(&run(&words)).replace('\u{a0}', " "))
    };
    let sum = |rows: &Value| rows.as_array().unwrap().iter().map(|r| r["growth_bytes"].as_i64().unwrap()).sum::<i64>();
    for (new, old, has_lines) in [
        ("leak_hook.leak.python", "leak_hook.healthy.python", true),
        ("leak_hook.leak.python", "leak_hook.healthy.none", false),
        ("leak_hook.leak.none", "leak_hook.healthy.python", false),
    ] {
        let (found, text) = check(new, old);
        assert_eq!(Some(sum(&found["by_role"]) + sum(&found["shrunk_by_role"])), found["growth_bytes"].as_i64(), "{new}");
        assert_eq!(!found["by_line"].as_array().unwrap().is_empty(), has_lines, "{new}");
        assert_eq!(text.contains(" has no call stacks."), !has_lines, "{text}");
        assert_eq!(text.contains("Shrank: "), sum(&found["shrunk_by_role"]) < 0, "{text}");
    }
    let (_, text) = check("leak_hook.leak.none", "leak_hook.healthy.none");
    assert!(text.contains("probably weights") && text.contains("Shrank: probably activations 444 KiB less."), "{text}");
    // Roles come first, then lines.
    let (_, text) = check("leak_hook.leak.python", "leak_hook.healthy.python");
    assert!(text.find("all lines") < text.find("vision_transformer.py:216"), "{text}");
}

/// One file may contain several programs, which functions distinguish.
#[test]
fn another_program_of_the_same_file_does_not_pass() {
    let said = stderr(&run(&["check", &sample("leak.pickle"), "--baseline", &sample("gpt_train.pickle")]));
    assert!(said.contains("hardly any source file or function"), "{said}");
}

#[test]
fn limits_on_allocated_memory_and_roles() {
    let train = sample("gpt_train.pickle");
    let peak = answer(&["summary", &train, "--json"])["devices"][0]["allocated_bytes"]["peak"].as_u64().unwrap();
    let just = [peak.to_string(), (peak - 1).to_string()];
    let passed = answer(&["check", &train, "--max-allocated", &just[0], "--json"]);
    assert_eq!(passed["checks"][0]["value"], json!(peak));
    let sentence = complaint(&["check", &train, "--max-allocated", &just[1]], "gpt_train.pickle");
    assert!(sentence.contains("was allocated at event 1,933, more than"), "{sentence}");

    // The roles add up to the peak. Each role passes a limit of what it holds, but no lower one.
    let mut sum = 0;
    for role in [
        "weights",
        "gradients",
        "optimizer_state",
        "activations",
        "autocast_copies",
        "inputs",
        "temporaries",
        "workspaces",
        "buckets",
        "kv_cache",
        "unknown",
    ] {
        let limited = |most: u64| run(&["check", &train, "--json", "--max-role", &format!("{role}={most}B")]);
        let held: Value = serde_json::from_slice(&limited(1 << 40).stdout).unwrap();
        let held = held["checks"][0]["value"].as_u64().unwrap();
        sum += held;
        if held > 1 {
            assert_eq!(limited(held - 1).status.code(), Some(1), "{role}");
        }
    }
    assert_eq!(sum, peak);
    assert_eq!(run(&["check", &train, "--max-role", "kv_cache=0"]).status.code(), Some(0));
    assert_eq!(run(&["check", &train, "--max-role", "weights=0"]).status.code(), Some(1));
    let both = run(&["check", &train, "--max-role", "weights=1MiB", "--max-role", "activations=1MiB"]);
    let said = stderr(&both);
    assert!(said.contains(" of weights at the peak") && said.contains(" of activations at the peak"), "{said}");
    // For the line that holds most of a role, only that role's bytes count.
    let said = stderr(&run(&["check", &sample("leak.pickle"), "--max-role", "activations=100MiB"])).replace('\u{a0}', " ");
    assert!(said.contains("175 MiB of activations") && said.contains("most at workloads.py:99 (175 MiB)"), "{said}");
    // The role of 16 MiB of this recording is unknown. They could exceed a limit on any role, so such a limit does not pass.
    let graph = sample("cuda_graph.pickle");
    let unknown = run(&["check", &graph, "--max-role", "kv_cache=15MiB", "--json"]);
    let found: Value = serde_json::from_slice(&unknown.stdout).unwrap();
    assert_eq!((unknown.status.code(), &found["checks"][0]["passed"]), (Some(1), &Value::Null), "{found}");
    assert_eq!(run(&["check", &graph, "--max-role", "kv_cache=16MiB"]).status.code(), Some(0));
}

#[test]
fn what_cannot_be_told_does_not_pass() {
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let [early, late] = ["jax_train.prof", "jax_leak.prof"].map(|name| recordings.join(name).display().to_string());
    let sentence = complaint(&["check", &late, "--max-allocated", "1GiB"], "jax_leak.prof");
    assert!(sentence.contains("is unknown: the file is of one instant"), "{sentence}");
    let said = stderr(&run(&["check", &late, "--baseline", &early, "--tolerance", "0"]));
    assert!(said.contains("464.14 MiB was allocated when the file was written, 20 MiB more than in the baseline"), "{said}");
    let sentence = complaint(&["check", &sample("leak.pickle"), "--baseline", &late], "leak.pickle");
    assert!(sentence.contains("the peak of the baseline is unknown"), "{sentence}");
    let said = stderr(&run(&["check", &sample("leak.pickle"), "--baseline", &sample("two_gpus.pickle")]));
    assert!(said.contains("GPU 1: the baseline has 1.00") && said.contains("not in the recording"), "{said}");
    // Each check that did not pass has a line.
    assert!(said.starts_with("vramscope: leak.pickle: 2 of 2 checks did not pass:\n") && said.lines().count() == 3, "{said}");
    // A full history: more was reserved before its first event than was in use since, so a plan has no peak to start from.
    let wrapped = recordings.join("kinds/lora.wrapped.pickle.zst").display().to_string();
    let sentence = complaint(&["check", &wrapped, "--max-allocated", "700MiB"], "lora.wrapped");
    assert!(sentence.contains("is unknown: 1.44 GiB was reserved before the first event"), "{sentence}");
    assert_eq!(run(&["check", &wrapped, "--max-allocated", "2GiB"]).status.code(), Some(0));
    let whole = recordings.join("kinds/dit_ema.python.pickle.zst").display().to_string();
    let sentence = complaint(&["check", &wrapped, "--baseline", &whole, "--tolerance", "0"], "lora.wrapped");
    assert!(
        sentence.contains("the peak of the recording is unknown: 1.44 GiB was reserved before its first event"),
        "{sentence}"
    );
    let sentence = complaint(&["check", &whole, "--baseline", &wrapped, "--tolerance", "4GiB"], "dit_ema.python");
    assert!(sentence.contains("the peak of the baseline is unknown: 1.44 GiB was reserved before its first event"), "{sentence}");
    // The peak of a run that ran out of memory is where it was stopped.
    let oom = sample("fragment_oom.pickle");
    for limit in ["--max-peak=1TiB", "--max-allocated=1TiB", "--max-role=weights=1TiB"] {
        let sentence = complaint(&["check", &oom, limit], "fragment_oom.pickle");
        assert!(sentence.contains("unknown: a request failed for lack of memory"), "{limit}: {sentence}");
    }
    let sentence = complaint(&["check", &sample("leak.pickle"), "--baseline", &oom, "--tolerance", "1TiB"], "leak.pickle");
    assert!(sentence.contains("the peak of the baseline is unknown: a request failed"), "{sentence}");
    let said = String::from_utf8_lossy(&run(&["summary", &wrapped]).stdout).replace('\u{a0}', " ");
    assert!(
        said.contains("keeps only the last 3,000 events.") && said.contains("the peak of the run was probably earlier"),
        "{said}"
    );
    let said = stderr(&run(&["plan", &wrapped, "--at", "batch=4", "--want", "batch=8"]));
    assert!(said.contains("begins too late: 1.44 GiB was reserved before its first event"), "{said}");
    // A baseline that is cut short.
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut.pickle");
    let whole = std::fs::read(sample("leak.pickle")).unwrap();
    std::fs::write(&cut, &whole[..whole.len() * 9 / 10]).unwrap();
    let sentence = complaint(&["check", &sample("leak.pickle"), "--baseline", cut.to_str().unwrap()], "leak.pickle");
    assert!(sentence.contains("the baseline cannot be relied on"), "{sentence}");
    let junit = stdout(&run(&["check", cut.to_str().unwrap(), "--max-allocated", "1TiB", "--format", "junit"]));
    assert!(junit.contains("<error message=") && junit.contains("failures=\"0\" errors=\"1\""), "{junit}");
    complaint(&["check", &sample("leak.pickle"), "--baseline", "nowhere.pickle"], "nowhere.pickle");
}

/// A file name that tries to be markup, a mention and a link in every format.
const MARKUP: &str = "<failure>]]>\"'&`` **@everyone** [x](www.evil.example) <script>alert(1)<b>|#1.py";

#[test]
fn frames_become_no_markup() {
    let folder = tempfile::tempdir().unwrap();
    let old = program(folder.path(), "<b>_old_`.json", &[(MARKUP, 3, 8 * MIB)]);
    let new = program(folder.path(), "<b>_new_`&.json", &[(MARKUP, 3, 9 * MIB)]);
    let in_format = |format: &str| {
        let output = run(&["check", &new, "--baseline", &old, "--tolerance", "0", "--no-oom", "--format", format]);
        assert_eq!(output.status.code(), Some(1), "{format}");
        stdout(&output)
    };
    let xml = in_format("junit");
    let cases = tags(&xml);
    let names: Vec<&str> = cases.iter().map(|tag| tag.split([' ', '>']).next().unwrap()).collect();
    let wanted = [
        "?xml",
        "testsuites",
        "testsuite",
        "testcase",
        "testcase",
        "failure",
        "/failure",
        "/testcase",
        "/testsuite",
        "/testsuites",
    ];
    assert_eq!(names, wanted, "{xml}");
    assert!(xml.contains("tests=\"2\" failures=\"1\" errors=\"0\"") && xml.contains("name=\"GPU 0: baseline\""), "{xml}");
    assert!(
        xml.contains("&lt;script&gt;alert(1)&lt;b&gt;|#1.py:3") && xml.contains("classname=\"&lt;b&gt;_new_`&amp;.json\""),
        "{xml}"
    );

    let md = in_format("md");
    let outside = outside_code(&md);
    assert!(md.contains("<script>") && md.contains("+1 MiB, from 8 MiB to 9 MiB"), "{md}");
    assert!(!outside.contains(['<', '>', '@', '[', '#', '|', '_', '`', '&']) && !outside.contains("www"), "{outside}");
    assert_eq!(outside.matches("**").count(), 2, "{outside}");
    assert!(md.lines().count() < 12, "{md}");
}

/// The text between `<` and `>`. Any other `<` is an error of the writer.
fn tags(xml: &str) -> Vec<&str> {
    xml.split('<').skip(1).map(|rest| rest.split_once('>').expect("a tag ends").0).collect()
}

#[test]
fn a_wrong_gate_is_one_clear_sentence() {
    let file = sample("leak.pickle");
    for (args, part) in [
        (vec!["--max-role", "activation=4GiB"], "there is no role \"activation\"; roles are weights, gradients, optimizer_state"),
        (vec!["--max-role", "activations"], "as in activations=4GiB"),
        (vec!["--max-role", "activations=4"], "4 without a unit is 4 bytes"),
        (vec!["--max-allocated", "10"], "10 without a unit is 10 bytes"),
        (vec!["--baseline", &file, "--tolerance", "lots"], "a tolerance is written as in 1%, 128MiB or 1%+128MiB"),
        (vec!["--baseline", &file, "--tolerance", "5"], "5 without a unit is 5 bytes"),
        (vec!["--baseline", &file, "--tolerance", "-1%"], "\"-1%\" is no share from 0% to 1000%"),
        (vec!["--no-oom", "--tolerance", "1%"], "check needs --baseline OLD as well"),
        (vec!["--baseline", env!("CARGO_MANIFEST_DIR")], "is a folder"),
        (vec!["--no-oom", "--json", "--format", "md"], "cannot be used with"),
        (vec!["--no-oom", "--format", "xml"], "possible values: text, md, junit"),
    ] {
        let said = refused(&[&["check", file.as_str()], &args[..]].concat(), 2);
        assert!(said.contains(part), "{args:?}: {said}");
    }
}

#[test]
fn what_could_not_be_checked_is_an_error_for_ci() {
    let missing = "no/such/run.pickle";
    let leak = super::cli::sample("leak.pickle");
    for args in [vec![missing, "--no-oom"], vec![leak.as_str(), "--baseline", missing]] {
        for (format, told) in [("junit", "<error message="), ("md", ""), ("text", "")] {
            let output = run(&[&["check"], &args[..], &["--format", format]].concat());
            let (out, said) = (stdout(&output), stderr(&output));
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.contains("there is no such file") && out.contains(told) && !out.contains("<failure"), "{format}: {out}");
            assert_eq!(out.is_empty(), told.is_empty(), "{format}: {out}");
        }
    }
}
