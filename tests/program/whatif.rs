//! `vramscope whatif` from outside.

use std::process::Output;

use serde_json::Value;

use crate::cli::{run, sample, stderr, stdout};

fn whatif(args: &[&str]) -> Output {
    run(&[&["whatif"], args].concat())
}

fn json(args: &[&str]) -> Value {
    crate::cli::json(&[&["whatif"], args, &["--json"]].concat())
}

#[test]
fn a_saved_run_is_a_snapshot_that_the_model_reproduces() {
    for conf in
        ["expandable_segments:True,roundup_power2_divisions:4", "max_split_size_mb:64,garbage_collection_threshold:0.6", ""]
    {
        let folder = tempfile::tempdir().unwrap();
        let saved = folder.path().join("saved.pickle").display().to_string();
        let out = whatif(&[&sample("fragment_oom.pickle"), "--conf", conf, "--limit", "80GiB", "--save", &saved]);
        assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
        assert!(stdout(&out).contains("as a snapshot"), "{}", stdout(&out));
        let again = json(&[&saved, "--conf", conf, "--limit", "80GiB"]);
        assert_eq!(again["agreement"]["agrees"], true, "{conf}: {}", again["agreement"]);
        let first = json(&[&sample("fragment_oom.pickle"), "--conf", conf, "--limit", "80GiB"]);
        for key in ["oom", "peak_reserved_bytes", "peak_allocated_bytes", "num_device_alloc", "final_reserved_bytes"] {
            assert_eq!(again["runs"][0][key], first["runs"][0][key], "{conf} {key}");
        }
    }
}

#[test]
fn every_run_says_what_is_certain_and_which_is_best() {
    let report = json(&[&sample("fragment_oom.pickle")]);
    let runs = report["runs"].as_array().unwrap();
    for run in runs {
        let spans = run["spans"].as_object().unwrap();
        assert_eq!(run["certain"].as_bool().unwrap(), run["uncertain_because"].is_null());
        assert!(spans.is_empty() || !run["certain"].as_bool().unwrap());
        for (name, span) in spans {
            let value = run[name].as_u64().unwrap();
            assert!((span[0].as_u64().unwrap()..=span[1].as_u64().unwrap()).contains(&value), "{name} {run}");
        }
    }
    let best = &report["best"];
    assert_eq!(runs[best["run"].as_u64().unwrap() as usize]["oom"], false);
    assert!(!best["why"].as_str().unwrap().is_empty());
    let shown = stdout(&whatif(&[&sample("fragment_oom.pickle")]));
    assert!(shown.contains("Best: ") && shown.contains("Beyond allocated: "), "{shown}");
}

#[test]
fn what_can_not_be_asked_gets_one_sentence() {
    let file = sample("fragment_oom.pickle");
    let cases: [(&[&str], i32, &str); 8] = [
        (&[&file, "--limit", "60"], 2, "60GiB"),
        (&[&file, "--limit", "-5GiB"], 2, "is negative"),
        (&[&file, "--limit", "-1"], 2, "is negative"),
        (&[&file, "--save", "out.pickle"], 2, "--conf"),
        (&[&file, "--conf", "max_split_size:64"], 2, "max_split_size"),
        (&[&file, "--limit", "much"], 2, "much"),
        (&[&file, "--device", "7"], 1, "device 7"),
        (&[&file, "--conf", "", "--save", "/no/such/folder/out.pickle"], 1, "there is no folder"),
    ];
    for (args, code, part) in cases {
        let out = whatif(args);
        let sentence = stderr(&out);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {sentence}");
        assert_eq!(sentence.lines().count(), 1, "{args:?}: {sentence}");
        assert!(sentence.contains(part), "{args:?}: {sentence}");
    }
}

#[test]
fn a_limit_in_decimal_units_is_taken_as_written_and_shown_in_binary() {
    let file = sample("fragment_oom.pickle");
    let report = json(&[&file, "--conf", "default", "--limit", "60GB"]);
    assert_eq!(report["runs"][0]["limit_bytes"], 60_000_000_000u64);
    let shown = stdout(&whatif(&[&file, "--conf", "default", "--limit", "60GB"]));
    assert!(shown.contains("Limit: 55.88 GiB (60 GB)"), "{shown}");
    let bytes = json(&[&file, "--conf", "default", "--limit", "2202009600"]);
    assert_eq!(bytes["runs"][0]["limit_bytes"], 2_202_009_600u64);
}

#[test]
fn a_file_that_breaks_off_is_never_said_to_agree() {
    let whole = std::fs::read(sample("serve_oom.pickle.gz")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut.pickle.gz").display().to_string();
    for bytes in [100_000, 60_000] {
        std::fs::write(&cut, &whole[..bytes]).unwrap();
        let report = json(&[&cut, "--conf", "default", "expandable_segments:True"]);
        assert_eq!(report["truncated"], true);
        assert_eq!(report["agreement"]["agrees"], false);
        assert!(report["runs"].as_array().unwrap().iter().all(|r| r["agrees_with_recording"] == false), "{report}");
        let shown = stdout(&whatif(&[&cut, "--conf", "default", "expandable_segments:True"]));
        assert!(!shown.contains("agrees with this recording"), "{shown}");
        // Without a limit nothing can fail, whatever else is unknown.
        assert!(shown.contains("passes") && !shown.contains("may pass") && !shown.contains("surely"), "{shown}");
    }
}

#[test]
fn what_is_assumed_is_said_of_the_run_it_is_true_of() {
    let file = sample("fragment_oom.pickle");
    let of = |limit: &str| {
        let report = json(&[&file, "--conf", "max_split_size_mb:64", "--limit", limit]);
        let told: Vec<String> =
            report["runs"][0]["assumptions"].as_array().unwrap().iter().map(|a| a.as_str().unwrap().to_owned()).collect();
        (report["runs"][0]["oom_request"].as_u64(), told)
    };
    let (failed, told) = of("1412MiB");
    assert_eq!(failed, Some(3));
    assert!(told.is_empty(), "nothing of a request that succeeds, nor of the recording's own limit: {told:?}");
    let (failed, told) = of("80GiB");
    assert_eq!(failed, None);
    assert!(told.len() == 1 && told[0].contains("event 176"), "{told:?}");
}
