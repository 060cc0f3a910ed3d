//! Verdicts compared with what the figures of a failure imply, on all available recordings, and the order of findings beside
//! them.

use std::path::{Path, PathBuf};

use crate::shared::tables;
use vramscope_core::anatomy::roles::Rules;
use vramscope_core::diagnose::findings::{Class, diagnose};
use vramscope_core::diagnose::oom::{Autopsy, Verdict, examine};
use vramscope_core::formats;
use vramscope_core::inference::Caps;
use vramscope_core::model::{BlockState, DeviceRecording, Progress, Recording};
use vramscope_core::tables::{DeviceTables, StackNames};

/// Files below a folder that may be recordings, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
            let name = path.to_string_lossy();
            if path.is_dir() {
                folders.push(path);
            } else if [".pickle", ".gz", ".json"].iter().any(|end| name.ends_with(end)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn samples() -> Vec<PathBuf> {
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots"))
}

fn corpus() -> Option<Vec<PathBuf>> {
    let found = std::env::var_os("VRAMSCOPE_CORPUS").map(|folder| files(Path::new(&folder)));
    if found.is_none() {
        crate::shared::not_run("VRAMSCOPE_CORPUS names no folder of recordings");
    }
    found
}

/// The recording of a file; `None` for counters and other files.
fn open(path: &Path) -> Option<Recording> {
    formats::open(path, &Progress::new()).ok()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// The verdict that the figures of a failure imply, from the event and the holes alone, without our classifier.
fn forced(device: &DeviceRecording, a: &Autopsy, sum: u64, largest: u64) -> Verdict {
    let asked = device.events.size[a.event as usize];
    let free = device.events.device_free(a.event);
    let most = device.capacity.or(free.map(|free| free + a.reserved)).unwrap();
    if asked > most {
        Verdict::TooLarge
    } else if sum >= asked && largest < asked {
        Verdict::Fragmentation
    } else if free.unwrap() >= a.segment {
        Verdict::Cap
    } else if sum > 0 && sum + free.unwrap() >= a.segment && largest < asked {
        Verdict::Fragmentation
    } else {
        Verdict::Capacity
    }
}

/// Checks every verdict of a recording against its figures. When the file was dumped at its last failure, holes are counted from
/// its blocks. Returns the number of failures.
fn hold(path: &Path, recording: &Recording) -> usize {
    let mut checked = 0;
    for device in &recording.devices {
        let ooms = device.events.ooms();
        if ooms.is_empty() {
            continue;
        }
        let tables = tables(device);
        let caps = Caps::of(device, None, &Progress::new()).unwrap();
        for &event in &ooms {
            let state = tables.states.at(device, &tables.lifetimes, event);
            let Some(a) = examine(device, &tables, event, &state, &caps) else { continue };
            let name = format!("{} event {event}", name(path));
            // Only the failure's own snapshot came after it.
            let is_dump = event as usize + 1 == device.events.len() && device.has_final_state;
            let (mut sum, mut largest) = (a.holes.bytes, a.holes.largest);
            if is_dump {
                let stream = device.events.stream[event as usize];
                let serve = device.segments.iter().filter(|s| s.class == a.class && s.stream == stream);
                let holes = serve.flat_map(|s| device.blocks_of(s)).filter(|b| b.state == BlockState::Inactive).map(|b| b.size);
                (sum, largest) = holes.fold((0, 0), |(sum, largest), size| (sum + size, largest.max(size)));
                assert_eq!((a.holes.bytes, a.holes.largest), (sum, largest), "{name}");
            }
            assert_eq!(a.verdict, forced(device, &a, sum, largest), "{name}: {}", a.sentence);
            checked += 1;
        }
    }
    checked
}

#[test]
fn verdicts_on_the_samples_are_what_the_figures_force() {
    let checked: usize = samples().iter().map(|path| hold(path, &open(path).unwrap())).sum();
    assert_eq!(checked, 4, "each of the four that failed, once");
}

#[test]
fn verdicts_on_the_corpus_are_what_the_figures_force() {
    let Some(paths) = corpus() else { return };
    let (mut failures, mut dumps) = (0, 0);
    for path in paths {
        let Some(recording) = open(&path) else { continue };
        let found = hold(&path, &recording);
        if name(&path).ends_with(".at_oom.pickle") {
            assert!(found > 0, "{}: nothing failed", name(&path));
            dumps += 1;
        }
        failures += found;
    }
    assert!(failures > 100 && dumps > 60, "{failures} failures, {dumps} dumps");
    println!("{failures} failures, {dumps} recordings dumped at one");
}

/// When a request failed, the first finding is the verdict that the figures imply, in the autopsy's words.
fn first_is_the_verdict(path: &Path) -> bool {
    let progress = Progress::new();
    let Some(recording) = open(path) else { return false };
    let names = StackNames::of(&recording.stacks);
    let mut failed = false;
    for device in &recording.devices {
        let tables = DeviceTables::build(device, &progress).unwrap();
        let found = diagnose(&recording, device, &tables, &names, &Rules::default(), &progress).unwrap();
        if found.ooms.is_empty() {
            assert!(found.findings.iter().all(|f| f.class != Class::OutOfMemory), "{}", name(path));
            continue;
        }
        failed = true;
        let first = &found.findings[0];
        assert_eq!((first.rule, first.class), ("out_of_memory", Class::OutOfMemory), "{}: {}", name(path), first.title);
        let a = found.ooms.iter().find(|a| Some(a.event) == first.place.event).unwrap();
        assert_eq!(a.verdict, forced(device, a, a.holes.bytes, a.holes.largest), "{}", name(path));
        assert!(first.sentence.starts_with(&a.sentence), "{}: {}", name(path), first.sentence);
        let says = match a.verdict {
            Verdict::Fragmentation if a.is_full_in_pieces() => {
                if a.is_under_cap() {
                    "cap is used up"
                } else {
                    "nearly full"
                }
            }
            Verdict::Fragmentation => "no hole fits",
            Verdict::Cap => "own cap",
            Verdict::Capacity => "is full",
            Verdict::TooLarge => {
                if device.capacity.is_some() {
                    "too large"
                } else {
                    "more than this process could get"
                }
            }
            other => panic!("{}: {other:?} is none of what the figures force", name(path)),
        };
        assert!(first.title.contains(says), "{}: {}", name(path), first.title);
    }
    failed
}

#[test]
fn the_first_finding_on_a_sample_that_failed_is_the_verdict() {
    assert_eq!(samples().iter().filter(|path| first_is_the_verdict(path)).count(), 4);
}

#[test]
fn the_first_finding_on_a_recording_of_the_corpus_that_failed_is_the_verdict() {
    let Some(paths) = corpus() else { return };
    let mut failed = 0;
    for path in paths.iter().filter(|path| !path.to_string_lossy().contains("scale")) {
        let found = first_is_the_verdict(path);
        assert!(found || !name(path).ends_with(".at_oom.pickle"), "{}", name(path));
        failed += usize::from(found);
    }
    assert!(failed > 100, "{failed}");
}
