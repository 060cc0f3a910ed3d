//! Programs of strangers that ran whole and under a cap of 70 % of what they reserved, on an H200.

use super::{findings, of_tests, said, silent};
use vramscope_core::anatomy::roles::Rules;
use vramscope_core::anatomy::{Role, Roles};
use vramscope_core::diagnose::oom::{Autopsy, Support, Verdict, advice, best_advice, examine, what_would_have_helped};
use vramscope_core::formats;
use vramscope_core::inference::Caps;
use vramscope_core::inference::whatif::WhatIf;
use vramscope_core::model::{Progress, Recording};
use vramscope_core::tables::DeviceTables;

fn failure(recording: &Recording) -> (Autopsy, DeviceTables) {
    let (device, progress) = (&recording.devices[0], Progress::new());
    let tables = DeviceTables::build(device, &progress).unwrap();
    let caps = Caps::of(device, None, &progress).unwrap();
    let event = device.events.last_oom().unwrap();
    let a = examine(device, &tables, event, &tables.states.at(device, &tables.lifetimes, event), &caps).unwrap();
    (a, tables)
}

/// Tensors hold 96 % and more of what the cap lets them, and each needs 22 % and more beyond it: no setting carries them.
#[test]
fn a_cap_that_tensors_fill_is_the_reason_and_not_the_pieces() {
    for name in ["ddpm", "lucid", "detr", "dit"] {
        let recording = of_tests(&format!("kinds/{name}.python.cap70"));
        let (a, _) = failure(&recording);
        // The name of the command-line contract stays.
        assert_eq!(
            (a.verdict, a.is_full_in_pieces(), a.headline()),
            (Verdict::Fragmentation, true, "The cap is used up"),
            "{name}"
        );
        assert!(
            a.sentence.contains("has used up its cap") && a.sentence.contains("more than at any time before"),
            "{}",
            a.sentence
        );
        let progress = Progress::new();
        let helped =
            WhatIf::new(&recording.devices[0], None, &progress).and_then(|w| what_would_have_helped(&w, &progress)).unwrap();
        let all = advice(&a, Some(&helped));
        let best = best_advice(&a, &all).unwrap();
        assert_eq!(best.support, Support::Formula, "{name}: {all:?}");
        assert!(best.sentence.starts_with("Raise the limit (cap)"), "{name}: {}", best.sentence);
        let found = said(&recording, "out_of_memory");
        assert!(found.title.ends_with("own cap is used up"), "{}", found.title);
    }
    // Where a third of what is reserved is free in pieces, the pieces are the reason.
    let sample = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots/fragment_oom.pickle");
    let (a, _) = failure(&formats::open(&sample, &Progress::new()).unwrap());
    assert_eq!((a.is_full_in_pieces(), a.headline()), (false, "Fragmentation"));
}

/// cuDNN tried 32 algorithms for one convolution, none of which got its workspace, and the program went on to its next line.
#[test]
fn trials_that_all_fail_are_no_failures() {
    let recording = of_tests("kinds/ddpm.python.cap70");
    let device = &recording.devices[0];
    assert_eq!((device.events.refused_trials().len(), device.events.ooms().len()), (32, 1));
    // A replay lets them be refused too.
    let progress = Progress::new();
    let own = WhatIf::new(device, None, &progress).and_then(|w| what_would_have_helped(&w, &progress)).unwrap();
    assert!(own.remedies.needed.is_some_and(|n| n.smallest_limit_bytes < 7 << 30), "{:?}", own.remedies.needed);
}

/// The trial of one algorithm makes the peak; under the cap, where it was refused, the run needed 11 GiB less.
#[test]
fn a_search_for_algorithms_that_makes_the_peak_comes_first() {
    let recording = of_tests("kinds/supcon.python");
    let found = findings(&recording);
    let first = &found[0];
    assert_eq!((first.rule, first.remedy.as_deref()), ("spike", Some("torch.backends.cudnn.benchmark = False")));
    assert!(
        first.sentence.ends_with("Without the trials the peak falls from 38.84\u{a0}GiB to about 24.87\u{a0}GiB."),
        "{}",
        first.sentence
    );
    let device = &recording.devices[0];
    let tables = DeviceTables::build(device, &Progress::new()).unwrap();
    let roles = Roles::build(&recording, device, &tables, &Rules::default(), &Progress::new()).unwrap();
    let at_peak = roles.live_by_role(device, &tables, tables.curves.peak_event());
    let of = |role: Role| at_peak[role.index()].bytes;
    assert!(of(Role::Workspaces) > 15 << 30 && of(Role::Temporaries) < 1 << 30);
    silent(&of_tests("promised/resnet"), "spike");
}

/// What failed in its first forward pass tells nothing of a graph that nobody needs, and DDP's buckets are no weights.
#[test]
fn a_first_pass_that_fails_is_one_call() {
    let recording = of_tests("kinds/lucid.python.cap70");
    silent(&recording, "unused_graph");
    let recording = of_tests("kinds/dit.python.cap70");
    let (device, progress) = (&recording.devices[0], Progress::new());
    let tables = DeviceTables::build(device, &progress).unwrap();
    let roles = Roles::build(&recording, device, &tables, &Rules::default(), &progress).unwrap();
    let at_peak = roles.live_by_role(device, &tables, tables.curves.peak_event());
    assert_eq!(at_peak[Role::Buckets.index()].bytes >> 20, 497);
}
