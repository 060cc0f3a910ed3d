//! Every snapshot of a folder, and random ones, compared with figures from CPython's pickle.
//!
//! `VRAMSCOPE_CORPUS` names the folder. The repository's `sample_snapshots/` is always read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use vramscope_core::formats;
use vramscope_core::model::{BlockState, DeviceKind, DeviceRecording, Format, NoteKind, Progress, Recording};

/// CPython needs about fifteen times the size of a file.
const LARGEST: u64 = 100 << 20;

fn snapshots_in(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|e| e.path())).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            snapshots_in(&path, found);
        } else if path.to_string_lossy().ends_with(".pickle") || path.to_string_lossy().ends_with("trace_plot.html") {
            found.push(path);
        }
    }
}

fn device_figures(recording: &Recording, device: &DeviceRecording) -> Value {
    let events = &device.events;
    let mut actions: BTreeMap<&str, u64> = BTreeMap::new();
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for i in 0..events.len() {
        *actions.entry(events.action[i].name()).or_default() += 1;
        *sums.entry(events.action[i].name()).or_default() += events.size[i];
    }
    let mut states: BTreeMap<&str, u64> = BTreeMap::new();
    for block in &device.blocks {
        *states.entry(block.state.name()).or_default() += block.size;
    }
    let requested: u64 = device.blocks.iter().filter(|b| b.state != BlockState::Inactive).map(|b| b.requested).sum();
    json!({
        "actions": actions,
        "sums": sums,
        "address_xor": events.address.iter().fold(0, |x, a| x ^ a).to_string(),
        "streams": device.streams.len(),
        "frames": events.stack.iter().map(|&s| recording.stacks.frames(s).len()).sum::<usize>(),
        "segments": device.segments.len(),
        "reserved": device.final_reserved(),
        "blocks": device.blocks.len(),
        "states": states,
        "requested": requested,
        "time": events.time_range().map(|(first, last)| [first, last]),
        "metadata": events.notes.iter().filter(|n| n.kind == NoteKind::UserMetadata).count(),
    })
}

fn figures(recording: &Recording) -> Value {
    let devices: BTreeMap<String, Value> =
        recording.devices.iter().map(|d| (d.id.index.to_string(), device_figures(recording, d))).collect();
    let starts: usize = recording.devices.iter().map(|d| d.annotations.len()).sum();
    json!({ "devices": devices, "stacks": recording.stacks.len(), "starts": starts })
}

/// CPython's figures for each file; `None` without python3.
fn cpythons_figures(files: &[PathBuf]) -> Option<Vec<Value>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/formats/snapshot_figures.py");
    let Ok(output) = Command::new("python3").arg(script).args(files).output() else {
        crate::shared::not_run("python3 is not installed");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), files.len());
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[test]
fn every_snapshot_has_cpythons_figures() {
    let mut files = Vec::new();
    snapshots_in(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/sample_snapshots")), &mut files);
    match std::env::var_os("VRAMSCOPE_CORPUS") {
        Some(folder) => snapshots_in(Path::new(&folder), &mut files),
        None => crate::shared::not_run("VRAMSCOPE_CORPUS names no folder of recordings"),
    }
    files.retain(|file| file.metadata().is_ok_and(|meta| meta.len() <= LARGEST));
    if files.is_empty() {
        crate::shared::not_run("no snapshots to read");
        return;
    }
    let Some(theirs) = cpythons_figures(&files) else { return };
    let mut wrong = Vec::new();
    for (file, mut theirs) in files.iter().zip(theirs) {
        let recording = formats::open(file, &Progress::new()).unwrap_or_else(|error| panic!("{error}"));
        let mut ours = figures(&recording);
        for device in recording.devices.iter() {
            assert!(device.id.kind != DeviceKind::Host || device.id.index == -1);
            // PyTorch 2.0 writes C++ stacks as a single text, which the reference does not parse.
            if !device.events.has_time {
                let key = device.id.index.to_string();
                for side in [&mut ours, &mut theirs] {
                    side["devices"][&key]["frames"] = Value::Null;
                    side["stacks"] = Value::Null;
                }
            }
        }
        assert!(matches!(recording.source.format, Format::SnapshotPickle | Format::SnapshotHtml));
        if ours != theirs {
            wrong.push(format!("{}:\n  ours   {ours}\n  theirs {theirs}", file.display()));
        }
    }
    eprintln!("{} snapshots compared", files.len());
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), files.len(), wrong.join("\n"));
}

/// A file as left by a killed process or a full disk: a real recording cut at every byte, and then damaged at random.
#[test]
fn a_real_recording_cut_or_damaged_anywhere_never_panics() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/sample_snapshots/cuda_graph.pickle");
    let whole = std::fs::read(path).unwrap();
    let mut most = 0;
    for cut in 0..whole.len() {
        if let Ok(recording) = formats::read(&whole[..cut], "cut", &Progress::new()) {
            let events: usize = recording.devices.iter().map(|d| d.events.len()).sum();
            assert!(events >= most && !recording.report.warnings.is_empty(), "cut at {cut}: {events} events, {most} before");
            most = events;
        }
    }
    assert_eq!(most, 119);
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut random = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % n as u64) as usize
    };
    for _ in 0..3000 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random(3) {
            let at = random(bytes.len());
            match random(3) {
                0 => bytes[at] = random(256) as u8,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, random(256) as u8),
            }
        }
        if let Ok(recording) = formats::read(&bytes, "damaged", &Progress::new()) {
            figures(&recording);
        }
    }
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 12, failure_persistence: None, ..Default::default() })]

    /// Anything that CPython writes, in any protocol and with or without shared objects, is read as CPython reads it.
    #[test]
    fn random_snapshots_have_cpythons_figures(seed in 0u32..1_000_000, protocol in 0u8..6, events in 0usize..2500, sharing in 0u8..2) {
        let folder = tempfile::tempdir().unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/formats/make_snapshots.py");
        let arguments = [seed.to_string(), protocol.to_string(), events.to_string(), sharing.to_string()];
        match Command::new("python3").arg(script).arg(folder.path()).args(&arguments).output() {
            Ok(output) => proptest::prop_assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
            Err(_) => {
                crate::shared::not_run("python3 is not installed");
                return Ok(());
            }
        }
        let file = folder.path().join("snapshot.pickle");
        let theirs = cpythons_figures(std::slice::from_ref(&file)).unwrap_or_default();
        let recording = formats::open(&file, &Progress::new()).map_err(|e| proptest::test_runner::TestCaseError::fail(e.to_string()))?;
        proptest::prop_assert_eq!(&figures(&recording), &theirs[0]);
        proptest::prop_assert!(recording.report.warnings.is_empty(), "{:?}", recording.report);
    }
}
