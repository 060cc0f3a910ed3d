//! What-if answers against runs that were really made: 6 workloads, 8 settings, up to 4 limits each, on an H200.

// A panic is how a test says no, also in its helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;

use vramscope::allocator::{Question, WhatIf};
use vramscope::formats;
use vramscope::model::Progress;

#[test]
fn answers_match_runs_that_were_really_made() {
    let Some(corpus) = std::env::var_os("VRAMSCOPE_CORPUS").map(PathBuf::from) else {
        println!("skipped: set VRAMSCOPE_CORPUS to the unpacked corpus");
        return;
    };
    let Ok(text) = std::fs::read_to_string(corpus.join("whatif_truth.json")) else {
        println!("skipped: no whatif_truth.json in VRAMSCOPE_CORPUS");
        return;
    };
    let rows: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let mut workloads: Vec<&str> = rows.iter().map(|r| r["workload"].as_str().unwrap()).collect();
    workloads.dedup();
    let progress = Progress::new();
    let (mut verdicts, mut passed, mut exact, mut near, mut held, mut all, mut certain, mut certain_wrong) =
        (0, 0, 0, 0, 0, 0, 0, 0);
    let (mut failed, mut same_request) = (0, 0);
    let (mut limits, mut limits_right) = (0, 0);
    let mut lines = Vec::new();
    for workload in workloads {
        let recording = formats::open(&corpus.join(format!("whatif/{workload}.default.pickle")), &progress).unwrap();
        let device = &recording.devices[recording.busiest_device().unwrap()];
        let whatif = WhatIf::new(device, None, &progress).unwrap();
        assert!(whatif.own().agreement.agrees());
        for r in rows.iter().filter(|r| r["workload"] == workload) {
            let question = Question::parse(r["PYTORCH_CUDA_ALLOC_CONF"].as_str().unwrap(), r["allowed_bytes"].as_u64()).unwrap();
            let got = whatif.ask(&question, 0, &progress).unwrap().row;
            let label = format!("{workload} {} {}", r["conf_label"], r["limit_label"]);
            all += 1;
            let oom = r["oom"].as_bool().unwrap();
            if let Some(limit) = question.limit {
                let least = whatif.smallest_limit(&question.conf, &progress).unwrap().unwrap();
                limits += 1;
                limits_right += usize::from((limit >= least) != oom);
                if (limit >= least) == oom {
                    lines.push(format!("{label}: smallest limit {least}, with {limit} it is {oom}"));
                }
            }
            let peak = r["peak_reserved"].as_u64().unwrap();
            verdicts += usize::from(oom == got.oom);
            if oom != got.oom {
                lines.push(format!("{label}: verdict {} instead of {oom}, certain {}", got.oom, got.certain));
            }
            // A program that catches failures and goes on has figures of its own; compare those that end at the first.
            let single = r["num_ooms"].as_u64().unwrap() <= 1;
            if oom {
                failed += 1;
                let request = r["allocations"].as_u64().unwrap();
                if single {
                    same_request += usize::from(got.oom_request == Some(request));
                    if got.oom_request != Some(request) {
                        lines.push(format!(
                            "{label}: request {:?} instead of {request}, certain {}",
                            got.oom_request, got.certain
                        ));
                    }
                } else {
                    same_request += 1;
                }
            } else {
                passed += 1;
                exact += usize::from(got.peak_reserved_bytes == peak);
                let off = (got.peak_reserved_bytes as f64 / peak as f64 - 1.0).abs();
                near += usize::from(off <= 0.03);
                let mut wrong = Vec::new();
                for (key, value) in [
                    ("peak_reserved", got.peak_reserved_bytes),
                    ("peak_allocated", got.peak_allocated_bytes),
                    ("peak_active", got.peak_active_bytes),
                    ("peak_requested", got.peak_requested_bytes),
                    ("peak_inactive_split", got.peak_inactive_split_bytes),
                    ("final_reserved", got.final_reserved_bytes),
                    ("final_allocated", got.final_allocated_bytes),
                    ("num_alloc_retries", got.num_alloc_retries),
                    ("num_device_alloc", got.num_device_alloc),
                    ("num_device_free", got.num_device_free),
                    ("segments_peak", got.peak_segments),
                    ("allocations", got.requests),
                ] {
                    if r[key].as_u64() != Some(value) {
                        wrong.push(format!("{key} {value} for {}", r[key]));
                    }
                }
                if !wrong.is_empty() {
                    lines.push(format!(
                        "{label}: {} (certain {}, span {:?})",
                        wrong.join(", "),
                        got.certain,
                        got.peak_reserved_span
                    ));
                }
            }
            if !oom || single {
                let inside = (got.peak_reserved_span[0]..=got.peak_reserved_span[1]).contains(&peak);
                held += usize::from(inside);
                if !inside {
                    lines.push(format!("{label}: {peak} outside {:?} (oom {oom})", got.peak_reserved_span));
                }
                if got.certain {
                    certain += 1;
                    certain_wrong += usize::from(got.peak_reserved_bytes != peak || got.oom != oom);
                }
            } else {
                held += 1;
            }
        }
    }
    println!("{}", lines.join("\n"));
    println!(
        "{all} rows: verdict right in {verdicts}; {passed} without OOM: exact {exact}, within 3 % {near}; {failed} with OOM: same request {same_request}; span holds {held}; certain {certain}, of those wrong {certain_wrong}"
    );
    println!("smallest limit on the right side of {limits_right} of {limits} limits");
    assert!(limits_right * 100 >= limits * 97);
    assert_eq!(verdicts, all);
    assert_eq!(same_request, failed);
    assert!(exact * 10 >= passed * 9);
    assert_eq!(near, passed);
    assert!(held * 100 >= all * 98);
}
