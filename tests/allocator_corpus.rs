//! The allocator on real recordings: under its own settings each one must come out of the model event by event.
//!
//! Runs on the samples of the repository, and on every snapshot below `VRAMSCOPE_CORPUS` when that is set.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use vramscope::allocator::{Agreement, Replay, Requests, agreement};
use vramscope::formats;
use vramscope::model::Progress;

fn snapshots(dir: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            snapshots(&path, out);
        } else if path.extension().is_some_and(|e| e == "pickle") && path.metadata().unwrap().len() < 300 << 20 {
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
    let Some(corpus) = std::env::var_os("VRAMSCOPE_CORPUS").map(PathBuf::from) else {
        println!("skipped: set VRAMSCOPE_CORPUS to the unpacked corpus");
        return;
    };
    let limits = limits(&corpus);
    let mut files = Vec::new();
    snapshots(&corpus, &mut files);
    let filter = std::env::var("VRAMSCOPE_ONLY").unwrap_or_default();
    let mut agreed = 0;
    let mut differing = Vec::new();
    for file in files.iter().filter(|f| f.to_string_lossy().contains(&filter)) {
        let progress = Progress::new();
        let recording = formats::open(file, &progress).unwrap();
        let stem = file.file_stem().unwrap().to_string_lossy().replace(".at_oom", "");
        for device in recording.devices.iter().filter(|d| !d.events.is_empty()) {
            let requests = Requests::read(device, &progress).unwrap();
            let mut replay = Replay::of(&requests);
            replay.limit = limits.get(&stem).copied();
            match agreement(&replay, &requests, &progress).unwrap() {
                Agreement::Agrees => agreed += 1,
                Agreement::Differs(d) => differing.push(format!("{} {}: {d}", file.display(), device.id)),
            }
        }
    }
    println!("{agreed} agree, {} differ\n{}", differing.len(), differing.join("\n"));
    assert!(differing.is_empty());
}
