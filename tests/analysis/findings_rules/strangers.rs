//! Programs written by others that ran completely, and again under a cap of 70 % of what they reserved, on an H200.

use super::{findings, of_tests, said, silent};
use crate::shared::{open, tables};
use vramscope_core::anatomy::roles::Rules;
use vramscope_core::anatomy::{Role, Roles};
use vramscope_core::diagnose::oom::{Autopsy, Support, Verdict, advice, best_advice, examine, what_would_have_helped};
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

/// Tensors take at least 96 % of what the cap allows, and each program needs at least 22 % more than the cap. No setting helps.
#[test]
fn a_cap_that_tensors_fill_is_the_reason_and_not_the_pieces() {
    for name in ["ddpm", "lucid", "detr", "dit"] {
        let recording = of_tests(&format!("kinds/{name}.python.cap70"));
        let (a, _) = failure(&recording);
        // The name in JSON stays the same.
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
    // When a third of reserved memory is free in pieces, fragmentation is the reason.
    let sample = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots/fragment_oom.pickle");
    let (a, _) = failure(&open(&sample));
    assert_eq!((a.is_full_in_pieces(), a.headline()), (false, "Fragmentation"));
}

/// cuDNN tried 32 algorithms for one convolution. None got its workspace, and the program continued with its next line.
#[test]
fn trials_that_all_fail_are_no_failures() {
    let recording = of_tests("kinds/ddpm.python.cap70");
    let device = &recording.devices[0];
    assert_eq!((device.events.refused_trials().len(), device.events.ooms().len()), (32, 1));
    // The simulation lets them be refused too.
    let progress = Progress::new();
    let own = WhatIf::new(device, None, &progress).and_then(|w| what_would_have_helped(&w, &progress)).unwrap();
    assert!(own.remedies.needed.is_some_and(|n| n.smallest_limit_bytes < 7 << 30), "{:?}", own.remedies.needed);
}

/// The trial of one algorithm makes the peak. Under the cap, where it was refused, the run needed 11 GiB less.
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
    let tables = tables(device);
    let roles = Roles::build(&recording, device, &tables, &Rules::default(), &Progress::new()).unwrap();
    let at_peak = roles.live_by_role(device, &tables, tables.curves.peak_event());
    let of = |role: Role| at_peak[role.index()].bytes;
    assert!(of(Role::Workspaces) > 15 << 30 && of(Role::Temporaries) < 1 << 30);
    silent(&of_tests("promised/resnet"), "spike");
}

/// A program that failed in its first forward pass shows nothing about unneeded graphs, and DDP's buckets are not weights.
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

/// Layers in a loop of `forward`, and chunks of one batch, in a first forward pass that failed. Nothing leaks, and nothing is an
/// evaluation.
#[test]
fn parts_of_a_first_pass_are_no_steps() {
    for name in ["yolov3", "nerf"] {
        let recording = of_tests(&format!("kinds/{name}.python.cap70"));
        let device = &recording.devices[0];
        let tables = tables(device);
        let roles = Roles::build(&recording, device, &tables, &Rules::default(), &Progress::new()).unwrap();
        assert_eq!(roles.anatomy.steps.len(), 1, "{name}");
        silent(&recording, "leak");
        silent(&recording, "unused_graph");
        let held = said(&recording, "activations");
        assert!(held.saving.is_some(), "{name}: {}", held.sentence);
    }
}

/// Another process, and a driver that keeps the last MiB: 37.13 MiB were free, a segment of 36 MiB was refused, and there was no
/// cap.
#[test]
fn a_few_mib_more_than_the_request_are_no_room_on_a_full_card() {
    let recording = of_tests("kinds/whisper.python.full");
    let (a, _) = failure(&recording);
    assert_eq!((a.verdict, a.limit), (Verdict::Capacity, None), "{}", a.sentence);
    assert!(a.device_free > a.segment);
}

/// The backward pass failed before the layers that checkpointing would help. For the whole program it was measured: 3.03 GiB.
#[test]
fn a_failure_in_the_backward_pass_keeps_the_advice_to_checkpoint() {
    let found = said(&of_tests("kinds/convnext.python.cap98"), "activations");
    let after = found.saving.unwrap().after;
    let measured = 3_103u64 << 20;
    assert!(after.abs_diff(measured) * 20 < measured, "{after}");
}

/// Queries larger than the scores, and graph attention, which adds what it compares: fused attention computes neither.
#[test]
fn what_no_fused_attention_computes_is_no_score() {
    for name in ["patchtst.python", "pygat.python.cap70"] {
        silent(&of_tests(&format!("kinds/{name}")), "attention_scores");
    }
}

/// Adafactor keeps rows and columns of the matrices, all of which it updates.
#[test]
fn a_factored_state_is_no_sign_of_frozen_weights() {
    silent(&of_tests("kinds/bart_adafactor.python"), "untrained_gradients");
}

/// `h = F.relu(h)` in a loop over eight layers is one operation at a time.
#[test]
fn a_line_in_a_loop_is_no_formula() {
    silent(&of_tests("kinds/nerf.python"), "written_out");
}
