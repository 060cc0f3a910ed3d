//! The recording itself: too expensive, without its history, cut short.

use std::path::Path;

use super::{findings, healthy_steps, said, silent};
use crate::shared::open;
use crate::tape::{MIB, Tape};
use vramscope_core::formats;
use vramscope_core::model::{Progress, StackId};

#[test]
fn a_recording_heavy_with_frames() {
    let run = |file: &str| {
        let mut t = Tape::new();
        let stack = t.stack(&[(file, "c10::cuda::malloc")]);
        let work = t.stack(&[(file, "torch::forward"), ("/home/me/model.py", "forward")]);
        t.brief(12 * MIB, work);
        for _ in 0..66_667 {
            t.brief(10 * MIB, stack);
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

/// Memory that is live at the end of a file that is cut short is not a leak. The cut is reported first.
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

/// PyTorch's example of a GAN under a cap with `torch.backends.cudnn.benchmark`: it finished its four steps without an error.
#[test]
fn a_workspace_that_was_tried_and_refused_is_no_failure() {
    let kinds = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/kinds");
    let open = |name: &str| open(&kinds.join(name));
    let gan = open("dcgan_benchmark.python.cap70.pickle.zst");
    let events = &gan.devices[0].events;
    assert_eq!((events.refused_trials().len(), events.ooms().len(), events.has_oom()), (4, 0, false));
    let found = said(&gan, "refused_trial");
    assert!(found.sentence.contains("4 requests of up to 2.22\u{a0}GiB were refused"), "{}", found.sentence);
    silent(&gan, "out_of_memory");
    // A GAN of PyTorch-GAN that finished its twelve steps. cuDNN tried up to 29 algorithms for one call, which then needed almost
    // no workspace.
    let infogan = open("infogan.python.cap70.pickle.zst");
    let events = &infogan.devices[0].events;
    assert_eq!((events.refused_trials().len(), events.has_oom()), (69, false));
    silent(&infogan, "out_of_memory");
    // A program that tries sizes itself does not count: its next allocation is from another line.
    let mut t = Tape::new();
    let [tries, goes_on] = ["find_batch", "main"].map(|name| t.stack(&[("/home/me/train.py", name)]));
    (0..8).for_each(|i| t.oom((4096 - i) * MIB, MIB, tries));
    t.alloc(16 * MIB, goes_on);
    assert_eq!(t.finish().devices[0].events.ooms().len(), 8);
    // Neither does one that halves its batch and keeps what it finally gets.
    let mut t = Tape::new();
    (1..5).for_each(|i| t.oom((4096 >> i) * MIB, MIB, tries));
    t.alloc(16 * MIB, tries);
    assert_eq!(t.finish().devices[0].events.ooms().len(), 4);
    // A line that fails again and again, to the end.
    let mut t = Tape::new();
    (0..1000).for_each(|i| t.oom((4096 + i * 7 % 13) * MIB, MIB, tries));
    assert_eq!(t.finish().devices[0].events.ooms().len(), 1000);
    // A block that is freed at once before a request that finds no room is not a trial.
    let mut t = Tape::new();
    t.brief(512 * MIB, tries);
    t.oom(4096 * MIB, MIB, tries);
    assert!(t.finish().devices[0].events.granted_trials().is_empty());
    // Thousands of failures are not each searched to their end.
    let mut t = Tape::new();
    let stack = t.stack(&[("/home/me/train.py", "main")]);
    (0..100_000).for_each(|_| t.oom(4096 * MIB, MIB, stack));
    assert_eq!(t.finish().devices[0].events.ooms().len(), 100_000);
    // Here a request failed as well, after six trials of one convolution whose call continued.
    let maml = open("maml.python.cap85.pickle.zst");
    let events = &maml.devices[0].events;
    assert_eq!((events.refused_trials().len(), events.ooms().len()), (6, 1));
    said(&maml, "out_of_memory");
    silent(&open("dpo.python.cap50.pickle.zst"), "refused_trial");
}
