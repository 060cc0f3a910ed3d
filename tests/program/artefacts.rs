//! Commands on unusual input: several jobs in one folder, missing ranges, impossible figures.

use crate::shared::{open, sample};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::cli::{fed, json, refused, run, stderr, stdout};

/// All of its output.
fn said(args: &[&str]) -> String {
    let output = run(args);
    stdout(&output) + &stderr(&output)
}

#[test]
fn two_jobs_in_one_folder_are_two_sections() {
    let folder = tempfile::tempdir().unwrap();
    for (from, to) in [("gpt_train", "a_rank0"), ("gpt_train", "a_rank1"), ("leak", "b_rank0"), ("fragment_oom", "b_rank1")] {
        std::fs::copy(sample(&format!("{from}.pickle")), folder.path().join(format!("{to}.pickle"))).unwrap();
    }
    let path = folder.path().to_string_lossy().into_owned();
    let said = stdout(&run(&["ranks", &path]));
    assert!(said.starts_with("2 jobs; out of memory: 1 of 2 b_rank*.pickle."), "{said}");
    let found = json(&["ranks", &path, "--json"]);
    let outliers = |job: usize| found["jobs"][job]["outliers"].as_array().unwrap().len();
    // The first job is the same recording twice. Only the second has something to compare: two ranks that differ are both no
    // outliers.
    let groups = |job: usize| found["jobs"][job]["groups"].as_array().unwrap().len();
    assert_eq!((outliers(0), outliers(1), groups(0), groups(1)), (0, 0, 0, 2), "{found}");
    assert!(found["median_peak_reserved_bytes"].is_null() && found["ranks"].as_array().unwrap().len() == 4);

    // A single job has the same answer as before.
    let found = json(&["ranks", &format!("{path}/b_*"), "--json"]);
    assert_eq!(found["first_oom"], "b_rank1.pickle");
    assert!(found["median_peak_reserved_bytes"].as_u64().is_some_and(|b| b > 0));
}

#[test]
fn a_folder_a_node_is_one_job_however_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = |node: u32| folder.path().join(format!("jobs/n{node}/rank{node}.pickle"));
    for node in 0..2 {
        std::fs::create_dir_all(file(node).parent().unwrap()).unwrap();
        std::fs::copy(sample("leak.pickle"), file(node)).unwrap();
    }
    let ranks = |paths: &[PathBuf]| {
        let paths: Vec<String> = paths.iter().map(|p| p.to_string_lossy().into_owned()).collect();
        let args: Vec<&str> = std::iter::once("ranks").chain(paths.iter().map(String::as_str)).collect();
        stdout(&run(&args))
    };
    let jobs = folder.path().join("jobs");
    let by_folder = ranks(std::slice::from_ref(&jobs));
    assert!(by_folder.starts_with("None of 2 ranks ran out of memory."), "{by_folder}");
    assert_eq!(ranks(&[file(1), file(0)]), by_folder);
    assert_eq!(ranks(&[jobs.join("*").join("rank*.pickle")]), by_folder);
    assert_eq!(ranks(&[jobs.join("n?")]), by_folder);
    std::fs::copy(file(0), file(1).with_file_name("rank0.pickle")).unwrap();
    let two = ranks(&[jobs]);
    assert!(two.starts_with("1 job and 1 recording on its own;"), "rank 0 stands twice: {two}");
}

#[test]
fn a_damaged_job_is_measured_by_what_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let put = |from: &str, to: &str, share: usize| {
        let bytes = std::fs::read(sample(from)).unwrap();
        std::fs::write(folder.path().join(to), &bytes[..bytes.len() / share]).unwrap();
    };
    put("gpt_train.pickle", "oom_rank0.pickle", 1);
    put("gpt_train.pickle", "oom_rank1.pickle", 2);
    put("gpt_train.pickle", "oom_rank2.pickle", 1);
    put("kv_decode_oom.pickle.gz", "oom_rank3.pickle.gz", 1);
    put("gpt_train.pickle", "oom_rank5.pickle", 1);
    let path = folder.path().to_string_lossy().into_owned();
    let said = stdout(&run(&["ranks", &path]));
    assert!(said.contains("1 of 5 ranks ran out of memory: rank 3, asking for"), "packed or not, one job: {said}");
    assert!(said.contains("The file of rank 1 breaks off and is not in the median: its peak may have come later."), "{said}");
    let found = json(&["ranks", &path, "--json"]);
    assert_eq!((found["jobs"].as_array().unwrap().len(), &found["jobs"][0]["cut_short"]), (1, &Value::from(1)), "{found}");
    let peak = |rank: usize| found["ranks"][rank]["peak_reserved_bytes"].as_u64().unwrap();
    assert_eq!((found["median_peak_reserved_bytes"].as_u64(), peak(0)), (Some(peak(0)), peak(2)), "of the whole files");
    assert_eq!(found["ranks"][1]["is_outlier"], false);
}

#[test]
fn a_table_in_one_file_is_of_every_gpu_and_answers_say_which_one_they_are_about() {
    let folder = tempfile::tempdir().unwrap();
    let file = sample("two_gpus.pickle").to_string_lossy().into_owned();
    let devices = |to: &str, table: &str, more: &[&str]| {
        let out = folder.path().join(format!("{table}{}.{to}", more.len())).to_string_lossy().into_owned();
        let said = run(&[&["export", &file, "--to", to, &out, "--table", table], more].concat());
        assert!(said.status.success(), "{}", stderr(&said));
        let text = std::fs::read_to_string(&out).unwrap();
        (stdout(&said), ["cuda:0", "cuda:1"].map(|device| text.lines().filter(|line| line.contains(device)).count()))
    };
    for table in ["events", "lifetimes", "blocks", "curves"] {
        let (said, [first, second]) = devices("csv", table, &[]);
        assert!(first > 0 && second > 0 && said.contains(" of GPU 0, GPU 1"), "{table}: {said}");
        assert_eq!(devices("jsonl", table, &[]).1, [first, second], "{table}");
        assert_eq!(devices("csv", table, &["--device", "0"]).1, [first, 0], "{table}");
    }
    let lines = std::fs::read_to_string(folder.path().join("events0.jsonl")).unwrap();
    let row: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!((row["device"].as_str(), row["event"].as_u64(), &row["step"]), (Some("cuda:0"), Some(0), &Value::Null), "{row}");
    for args in [vec!["allocations", &file], vec!["diff", &file, "--a-event", "5"], vec!["whatif", &file]] {
        let said = stdout(&run(&args));
        assert!(said.starts_with("GPU 1: "), "{args:?}: {said}");
    }
    assert!(
        stderr(&run(&["flame", &file]))
            .contains("GPU 1: this graph is of one device. Other devices of this recording: --device 0")
    );
}

#[test]
fn a_job_keeps_the_letters_of_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let named = folder.path().join("訓練.pickle");
    std::fs::copy(sample("leak.pickle"), &named).unwrap();
    let out = folder.path().join("tables").to_string_lossy().into_owned();
    assert!(run(&["export", &named.to_string_lossy(), "--to", "csv", &out, "--table", "blocks"]).status.success());
    assert!(folder.path().join("tables/blocks/job=訓練").is_dir());
}

#[test]
fn a_range_of_events_that_is_not_there_is_wrong_usage() {
    let folder = tempfile::tempdir().unwrap();
    let file = sample("leak.pickle").to_string_lossy().into_owned();
    let out = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    for (to, name, range, words) in
        [("snapshot", "out.pickle", "5..999999999", "GPU 0 has 1,144"), ("csv", "out.csv", "5..9", "only --to snapshot is cut")]
    {
        let out = out(name);
        let said = refused(&["export", &file, "--to", to, &out, "--events", range], 2);
        assert!(said.contains(words), "{said}");
        assert!(!Path::new(&out).exists(), "nothing is written");
    }
    assert!(run(&["export", &file, "--to", "snapshot", &out("out.pickle"), "--events", "5..1144"]).status.success());
}

#[test]
fn impossible_figures_get_no_verdict() {
    let message = "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 9.21 GiB already allocated; 0 bytes free; \
                   5.50 GiB reserved in total by PyTorch)";
    let json: Value = serde_json::from_slice(&fed(&["explain", "--json"], message).stdout).unwrap();
    assert_eq!((json["verdict"].as_str(), json["certain"].as_bool()), (Some("unknown"), Some(false)));
    let found = json["contradictions"].as_array().unwrap();
    assert!(found.iter().any(|c| c.as_str().is_some_and(|c| c.contains("9.21 GiB allocated"))), "{found:?}");
    assert_eq!(json["figures"]["reserved_bytes"], 5_905_580_032u64, "the figures stay as they were printed");
}

/// A snapshot without a recorded history has a single instant, so nothing is said about a run.
#[test]
fn a_state_without_a_history_is_told_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut recording = open(&sample("leak.pickle"));
    recording.devices.iter_mut().for_each(|d| d.events = vramscope_core::model::EventTable::default());
    let path = folder.path().join("state.pickle");
    vramscope_core::diagnose::export::save(&recording, &path, &[], false).unwrap();
    let path = path.to_string_lossy().into_owned();
    let first = |args: &[&str]| said(args).lines().next().unwrap_or_default().to_owned();
    for (args, wanted) in [
        (vec!["summary", &path], " MiB live when the file was written"),
        (vec!["oom", &path], "no history was recorded, so whether a request failed is unknown"),
        (vec!["state", &path, "--end"], "GPU 0 when it was dumped (the file has no events) held 250 MiB"),
        (
            vec!["leaks", &path],
            "The file has no history, only what was live when it was dumped. Two files of one run tell what grew: vramscope diff A B.",
        ),
        (vec!["whatif", &path], "nothing of GPU 0 can be run again: there is no trace of it, only its state"),
        (vec!["allocations", &path], "live when it was dumped; the file has no history"),
        (vec!["diff", &path, &path], "live in A (state.pickle, as it was dumped)"),
    ] {
        let said = first(&args);
        assert!(said.contains(wanted), "{args:?}: {said}");
    }
}

/// JAX's profile is of one instant and of JAX's allocator. Each answer says what the file lacks, and none gives PyTorch's advice.
#[test]
fn a_jax_profile_is_told_in_words_of_jax() {
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let [train, leak] = ["jax_train.prof", "jax_leak.prof"].map(|name| recordings.join(name).to_string_lossy().into_owned());
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").to_string_lossy().into_owned();
    for (args, wanted) in [
        (
            vec!["summary", &leak],
            "GPU 0: 464.14 MiB live when the file was written; the recording does not show what it is for. What was reserved is not recorded.",
        ),
        (vec!["summary", &leak], "memory_stats()[\"peak_bytes_in_use\"]"),
        (vec!["findings", &leak], "nothing stands out. It is of one instant, which shows neither growth nor failures."),
        (vec!["oom", &leak], "whether a request failed is unknown"),
        (vec!["leaks", &leak], "Two files of one run tell what grew: vramscope diff A B."),
        (vec!["state", &leak, "--end"], "had 464.14 MiB active; what was reserved is not in this file"),
        (vec!["allocations", &leak], "This file tells no addresses.\n"),
        (vec!["flame", &leak], "<module> (jaxrun.py:43);train (jaxrun.py:31) 465718272"),
        (vec!["whatif", &leak], "PyTorch's settings do not apply to JAX"),
        (vec!["check", &leak, "--max-peak", "400MiB"], "what was reserved is not in this file, so --max-peak cannot be checked"),
        (vec!["check", &leak, "--no-oom"], "whether a request failed is unknown"),
        (vec!["diff", &train, &leak], "+20 MiB: 444.14 MiB live in A"),
        (vec!["diff", &train, &leak], "What was reserved is in neither file."),
        (vec!["diff", &train, &leak], "jaxrun.py:16 forward, in "),
        (vec!["ranks", &train, &leak], "not recorded   464.14 MiB"),
        (vec!["export", &leak, &out, "--to", "snapshot"], "this file has no addresses; export it as csv, parquet or speedscope"),
        (vec!["export", &leak, &out, "--to", "perfetto"], "this file is of one instant"),
        (vec!["export", &leak, &out, "--to", "speedscope"], "1 flame graph"),
    ] {
        let said = said(&args);
        assert!(said.contains(wanted), "{args:?}: {said}");
        for torch in ["torch.", "PYTORCH_", "empty_cache", "_record_memory_history", "weights", "activations"] {
            assert!(!said.contains(torch), "{args:?}: {torch}: {said}");
        }
    }
    let table = folder.path().join("blocks.csv").to_string_lossy().into_owned();
    said(&["export", &leak, &table, "--to", "csv", "--table", "blocks"]);
    let rows = std::fs::read_to_string(&table).unwrap();
    let bytes: u64 = rows.lines().skip(1).map(|row| row.split(',').nth(6).unwrap().parse::<u64>().unwrap()).sum();
    // As reported by jax.live_arrays() at that instant.
    assert_eq!((rows.lines().count() - 1, bytes), (64, 486_689_792));
}
