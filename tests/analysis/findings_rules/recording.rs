//! The recording itself: too heavy, without its history, cut short.

use std::path::Path;

use super::{findings, healthy_steps, said, silent};
use crate::tape::{MIB, Tape};
use vramscope_core::formats;
use vramscope_core::model::{Progress, StackId};

#[test]
fn a_recording_heavy_with_frames() {
    let run = |file: &str| {
        let mut t = Tape::new();
        let stack = t.stack(&[(file, "c10::cuda::malloc")]);
        let work = t.stack(&[(file, "torch::forward"), ("/home/me/model.py", "forward")]);
        let h = t.alloc(12 * MIB, work);
        t.free(h);
        for _ in 0..66_667 {
            let h = t.alloc(10 * MIB, stack);
            t.free(h);
        }
        t.source_bytes = 80 * MIB;
        t.finish()
    };
    said(&run("/build/c10/CUDACachingAllocator.cpp"), "heavy_recording");
    let mut t = Tape::new();
    healthy_steps(&mut t, 4);
    silent(&t.finish(), "heavy_recording");
}

#[test]
fn a_snapshot_without_its_history() {
    let mut t = Tape::new();
    t.alloc(100 * MIB, StackId::NONE);
    let mut recording = t.finish();
    silent(&recording, "no_history");
    recording.devices[0].events = Default::default();
    assert_eq!(said(&recording, "no_history").bytes, 100 * MIB);
}

/// What lives where a file breaks off is no leak, and that it breaks off is told first.
#[test]
fn a_file_that_breaks_off_says_so_first_and_has_no_leak() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots").join("fragment_oom.pickle");
    let whole = std::fs::read(&path).unwrap();
    let read = |bytes: &[u8]| formats::read(bytes, "fragment_oom.pickle", &Progress::new()).unwrap();
    silent(&read(&whole), "truncated");
    let mut spoke = 0;
    for eighths in 4..8 {
        let cut = read(&whole[..whole.len() * eighths / 8]);
        if cut.devices.iter().all(|d| d.events.is_empty()) {
            continue;
        }
        said(&cut, "truncated");
        assert_eq!(findings(&cut)[0].rule, "truncated");
        silent(&cut, "leak");
        spoke += 1;
    }
    assert!(spoke > 0, "no cut left events");
}
