//! The allocator model on real recordings. Under its own settings each recording must be reproduced event by event.
//!
//! Runs on the samples of the repository, and on every snapshot below `VRAMSCOPE_CORPUS` when that is set.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::shared::wrapped;
use vramscope_core::formats;
use vramscope_core::inference::{Agreement, Question, Requests, WhatIf, explain};
use vramscope_core::model::{DeviceKind, Progress};

fn snapshots(dir: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            snapshots(&path, out);
        } else if path.extension().is_some_and(|e| e == "pickle" || e == "gz")
            && path.to_string_lossy().contains(".pickle")
            && path.metadata().unwrap().len() < 300 << 20
        {
            out.push(path);
        }
    }
    out.sort();
}

/// `allowed_bytes` of each what-if run, by the stem of its file.
fn limits(corpus: &Path) -> HashMap<String, u64> {
    let Ok(text) = std::fs::read_to_string(corpus.join("whatif_truth.json")) else { return HashMap::new() };
    let rows: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    rows.iter()
        .filter_map(|r| {
            let name = format!("{}.{}.{}", r["workload"].as_str()?, r["conf_label"].as_str()?, r["limit_label"].as_str()?);
            Some((name, r["allowed_bytes"].as_u64()?))
        })
        .collect()
}

#[test]
fn every_recording_comes_out_of_the_model_event_by_event() {
    let mut files = Vec::new();
    snapshots(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/sample_snapshots")), &mut files);
    let mut known_limits = HashMap::new();
    if let Some(corpus) = std::env::var_os("VRAMSCOPE_CORPUS").map(PathBuf::from) {
        known_limits = limits(&corpus);
        snapshots(&corpus, &mut files);
    } else {
        println!("only the samples: set VRAMSCOPE_CORPUS to the unpacked corpus for the rest");
    }
    let filter = std::env::var("VRAMSCOPE_ONLY").unwrap_or_default();
    let mut agreed = 0;
    let mut differing = Vec::new();
    for file in files.iter().filter(|f| f.to_string_lossy().contains(&filter)) {
        let progress = Progress::new();
        let recording = formats::open(file, &progress).unwrap();
        let stem = file.file_stem().unwrap().to_string_lossy().replace(".at_oom", "");
        for device in recording.devices.iter().filter(|d| !d.events.is_empty()) {
            if device.id.kind == DeviceKind::Host {
                // Pinned memory has a separate allocator.
                continue;
            }
            let mut requests = Requests::read(device, &progress).unwrap();
            let known = known_limits.get(&stem).copied();
            // Once with the true limit, and once with the file alone, as a user opens it.
            for limit in if known.is_some() { vec![known, None] } else { vec![None] } {
                let own = explain(&mut requests, limit, &progress).unwrap();
                match own.agreement {
                    Agreement::Agrees => agreed += 1,
                    Agreement::Differs(d) => differing.push(format!("{} {} ({limit:?}): {d}", file.display(), device.id)),
                }
            }
        }
    }
    println!("{agreed} agree, {} differ\n{}", differing.len(), differing.join("\n"));
    assert!(differing.is_empty());
}

/// Compares all of a real run's `memory_stats` with the model's counters after the same requests.
#[test]
fn counters_match_memory_stats_to_the_byte() {
    let Some(corpus) = crate::shared::corpus() else { return };
    let Ok(text) = std::fs::read_to_string(corpus.join("whatif_truth.json")) else {
        crate::shared::not_run("no whatif_truth.json in VRAMSCOPE_CORPUS");
        return;
    };
    let rows: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let mut compared = 0;
    let mut figures = 0;
    let mut wrong = Vec::new();
    for r in &rows {
        let (workload, conf, limit) =
            (r["workload"].as_str().unwrap(), r["conf_label"].as_str().unwrap(), r["limit_label"].as_str().unwrap());
        let stem = if conf == "default" && limit == "none" {
            format!("{workload}.default")
        } else {
            format!("{workload}.{conf}.{limit}")
        };
        let file = corpus.join(format!("whatif/{stem}.pickle"));
        if !file.exists() {
            continue;
        }
        let progress = Progress::new();
        let recording = formats::open(&file, &progress).unwrap();
        let device = &recording.devices[recording.busiest_device().unwrap()];
        let mut requests = Requests::read(device, &progress).unwrap();
        let own = explain(&mut requests, r["allowed_bytes"].as_u64(), &progress).unwrap();
        let end = own.replay.run(&requests, (), &progress).unwrap();
        compared += 1;
        let truth = r["memory_stats"].as_object().unwrap();
        for (key, value) in end.allocator.stats().entries() {
            let Some(real) = truth.get(&key).and_then(serde_json::Value::as_u64) else { continue };
            figures += 1;
            if real != value {
                wrong.push(format!("{stem} {key}: {value} instead of {real}"));
            }
        }
    }
    println!("{compared} runs, {figures} figures, {} wrong\n{}", wrong.len(), wrong.join("\n"));
    assert!(wrong.is_empty());
}

/// A full ring buffer drops its beginning. Blocks that were live before must be found again.
#[test]
fn recordings_without_their_beginning_are_replayed() {
    let Some(corpus) = crate::shared::corpus() else { return };
    let mut files = Vec::new();
    snapshots(&corpus.join("demo"), &mut files);
    snapshots(&corpus.join("multi"), &mut files);
    let (mut agreed, mut all) = (0, 0);
    for file in &files {
        let progress = Progress::new();
        let recording = formats::open(file, &progress).unwrap();
        for device in recording.devices.iter().filter(|d| d.events.len() > 100) {
            for tenths in [2, 5, 8] {
                let mut wrapped = wrapped(device, device.events.len() * tenths / 10);
                wrapped.events.notes.clear();
                let mut requests = Requests::read(&wrapped, &progress).unwrap();
                all += 1;
                match explain(&mut requests, None, &progress).unwrap().agreement {
                    Agreement::Agrees => agreed += 1,
                    Agreement::Differs(d) => println!("{} without {tenths} tenths: {d}", file.display()),
                }
            }
        }
    }
    println!("{agreed} of {all} agree");
    assert!(agreed * 10 >= all * 9);
}

/// The model handles large recordings, and several settings take only seconds.
#[test]
fn large_recordings_are_answered_quickly() {
    let Some(corpus) = crate::shared::corpus() else { return };
    let file = std::env::var_os("VRAMSCOPE_LARGE").map_or(corpus.join("scale/scale_2.9M_events.pickle"), PathBuf::from);
    if !file.exists() {
        crate::shared::not_run("no scale/scale_2.9M_events.pickle in VRAMSCOPE_CORPUS");
        return;
    }
    let progress = Progress::new();
    let recording = formats::open(&file, &progress).unwrap();
    let device = &recording.devices[recording.busiest_device().unwrap()];
    let started = std::time::Instant::now();
    let requests = Requests::read(device, &progress).unwrap();
    let read = started.elapsed().as_secs_f64();
    let started = std::time::Instant::now();
    let run = vramscope_core::inference::Replay::of(&requests).run(&requests, (), &progress).unwrap();
    let replayed = started.elapsed().as_secs_f64();
    let started = std::time::Instant::now();
    let whatif = WhatIf::new(device, None, &progress).unwrap();
    assert!(whatif.own().agreement.agrees());
    let explained = started.elapsed().as_secs_f64();
    let started = std::time::Instant::now();
    let question = Question::parse("expandable_segments:True", None).unwrap();
    let answer = whatif.ask(&question, 1000, &progress).unwrap();
    println!(
        "{} events, {} requests: read in {read:.3} s, replayed in {replayed:.3} s, explained in {explained:.3} s, expandable answered in {:.3} s; ties {}",
        device.events.len(),
        run.requests,
        started.elapsed().as_secs_f64(),
        run.allocator.has_tie(),
    );
    assert!(!answer.row.oom);
    assert!(answer.curve.event.len() <= 1000);
}
