//! Advice must be true for the recording's own settings, for where it ends, and for what the file contains.

use super::{findings, said, silent};
use crate::instants::autopsy;
use crate::shared::{open, open_sample};
use crate::tape::{GIB, MIB, Tape};
use vramscope_core::diagnose::oom::{Advice, Helped, Support, advice, best_advice, what_would_have_helped};
use vramscope_core::inference::{CapFrom, Caps, WhatIf};
use vramscope_core::model::{AllocConf, Progress, Recording, StackId};

fn helped(recording: &Recording) -> Helped {
    let progress = Progress::new();
    let whatif = WhatIf::new(&recording.devices[0], None, &progress).unwrap();
    what_would_have_helped(&whatif, &progress).unwrap()
}

fn advised(recording: &Recording) -> Vec<Advice> {
    advice(&autopsy(recording, None), Some(&helped(recording)))
}

#[test]
fn what_serves_a_recording_that_ends_at_its_failure_may_only_postpone_it() {
    // With expandable segments the real run continues for a fifth of its requests and then fails too.
    let all = advised(&open_sample("kv_decode_oom.pickle.gz"));
    let served: Vec<&Advice> = all.iter().filter(|a| a.sentence.contains("n a replay")).collect();
    assert!(!served.is_empty(), "{all:?}");
    assert!(served.iter().all(|a| a.sentence.contains("recorded requests")), "{served:?}");
    assert!(served[0].sentence.contains("it may only postpone the failure"), "said once, of the first: {served:?}");
    // In this recording live memory was higher long before the end.
    let all = advised(&open_sample("fragment_oom.pickle"));
    let first = all.iter().find(|a| a.sentence.contains("n a replay")).unwrap();
    assert!(first.sentence.contains("Whether later requests would fit is not known"), "{}", first.sentence);
}

#[test]
fn all_requests_are_those_of_the_whole_recording() {
    // The recorded run ends at its first failure. A setting that passes has also served what would have followed.
    let mut t = Tape::new();
    let work = t.stack(&[("/home/me/train.py", "main")]);
    let held: Vec<_> = (0..3).map(|_| t.alloc(40 * MIB, work)).collect();
    t.oom(200 * MIB, 60 * MIB, work);
    t.free(held[0]);
    let _kept = t.alloc(30 * MIB, work);
    t.oom(200 * MIB, 60 * MIB, work);
    let helped = helped(&t.finish());
    assert_eq!(helped.requests, 6);
    assert!(helped.own.requests <= helped.requests, "{}", helped.own.requests);
}

#[test]
fn a_request_larger_than_all_there_could_be_gets_no_setting() {
    let mut t = Tape::new();
    let work = t.stack(&[("/home/me/train.py", "main")]);
    let held: Vec<_> = (0..3).map(|_| t.alloc(40 * MIB, work)).collect();
    t.free(held[0]);
    // The retry released a segment before the failure was reported. That is no sign of a cap.
    t.empty_cache();
    t.oom(12 * GIB, 8 * GIB, work);
    let recording = t.finish();
    let a = autopsy(&recording, None);
    assert_eq!(a.verdict.name(), "too_large");
    assert!(a.limit.is_none(), "{:?}", a.limit);
    let caps = Caps::of(&recording.devices[0], None, &Progress::new()).unwrap();
    assert_eq!(caps.first().map(|c| c.from), Some(CapFrom::Device), "{caps:?}");
    // The size of the device is unknown, so other processes may hold the rest.
    assert!(a.sentence.contains("nor what other processes hold"), "{}", a.sentence);
    assert_eq!(a.tests[0].what, "fits if everything is freed");
    let all = advised(&recording);
    assert!(all.iter().all(|x| x.support == Support::Formula && x.setting.is_none()), "{all:?}");
    let found = said(&recording, "out_of_memory");
    assert!(!found.title.contains("this device"), "{}", found.title);
    // When the size is known, it is mentioned.
    let mut recording = recording;
    recording.devices[0].capacity = Some(10 * GIB);
    assert!(autopsy(&recording, None).sentence.contains("which has 10"), "{}", autopsy(&recording, None).sentence);
    assert!(said(&recording, "out_of_memory").title.contains("this device"));
}

#[test]
fn a_model_that_is_loaded_is_no_leak() {
    let run = |works: bool, stack: bool, small: bool| {
        let mut t = Tape::new();
        let keep = if stack { t.stack(&[("/home/me/serve.py", "keep")]) } else { StackId::NONE };
        let work = t.stack(&[("/home/me/serve.py", "work")]);
        let loss = t.stack(&[("/home/me/serve.py", "loss")]);
        let losses = small.then(|| t.segment(20 * MIB));
        for i in 0..60 {
            t.alloc(64 * MIB, keep);
            if let Some(segment) = losses {
                t.place(segment, i * 1024, 1024, loss);
            }
            // A program that only allocates is loading a model. A working program also frees.
            for _ in 0..if works { 2 } else { 0 } {
                t.brief(512 * MIB, work);
            }
        }
        t.finish()
    };
    silent(&run(false, true, false), "leak");
    // A working program that keeps something does grow. The advice depends on what is known.
    let found = said(&run(true, true, false), "leak");
    assert!(found.remedy.is_none(), "{found:?}");
    let found = said(&run(true, false, false), "leak");
    assert!(found.sentence.contains("call stacks were not recorded") && found.remedy.is_none(), "{found:?}");
    let found = said(&run(true, true, true), "leak");
    assert_eq!(found.remedy.as_deref(), Some("total_loss += loss.item()"));
}

#[test]
fn rounding_has_the_cause_that_it_has() {
    let mut t = Tape::new();
    t.device.settings.conf = AllocConf { roundup_power2_divisions: [4; 16], ..AllocConf::default() };
    let work = t.stack(&[("/home/me/train.py", "main")]);
    // 17 MiB are rounded up to 20 MiB.
    for _ in 0..20 {
        let segment = t.segment(20 * MIB);
        t.place(segment, 0, 17 * MIB, work);
    }
    t.oom(100 * MIB, 0, work);
    let mut recording = t.finish();
    for block in &mut recording.devices[0].blocks {
        if block.requested == 17 * MIB {
            block.size = 20 * MIB;
        }
    }
    recording.devices[0].blocks.retain(|b| b.size == 20 * MIB);
    for (i, segment) in recording.devices[0].segments.iter_mut().enumerate() {
        segment.blocks = i as u32..i as u32 + 1;
    }
    let found = said(&recording, "rounding");
    assert!(found.sentence.contains("60 MiB") || found.sentence.contains("60\u{a0}MiB"), "{}", found.sentence);
    assert!(found.sentence.contains("roundup_power2_divisions") && !found.sentence.contains("split off"), "{}", found.sentence);
    // When the setting is not set, nobody is told to remove it.
    for f in findings(&open_sample("serve_oom.pickle.gz")).iter().filter(|f| f.rule == "rounding") {
        assert!(!f.sentence.contains("roundup") && !f.advice.contains("roundup"), "{f:?}");
    }
}

#[test]
fn the_plain_settings_get_the_credit_that_is_theirs() {
    // It passes without expandable segments. Adding garbage collection changes nothing.
    let all = advised(&open_sample("expandable_oom.pickle"));
    let first = all.iter().find(|a| a.support == Support::Simulation).unwrap();
    assert_eq!(first.setting.as_deref(), Some("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"), "{all:?}");
    assert!(first.sentence.contains("without expandable_segments:True"), "{}", first.sentence);
    let peaks = all.iter().filter(|a| a.support == Support::Simulation).count();
    assert_eq!(peaks, 1, "the others come out the same: {all:?}");
}

#[test]
fn holes_are_those_of_the_segments_that_could_serve() {
    let a = autopsy(&open_sample("serve_oom.pickle.gz"), None);
    assert!(a.all_holes.bytes > a.holes.bytes);
    assert!(a.sentence.contains("inside the segments that could serve it (38.01"), "{}", a.sentence);
}

/// A setting is offered when a simulation shows that it reserves less, and never when it is already set.
#[test]
fn settings_are_offered_that_a_replay_shows_to_help() {
    let Some(corpus) = std::env::var_os("VRAMSCOPE_CORPUS").map(std::path::PathBuf::from) else {
        crate::shared::not_run("VRAMSCOPE_CORPUS names no folder of recordings");
        return;
    };
    for name in [
        "demo/split_fragment.default.pickle",
        "whatif/split_fragment.split128.none.pickle",
        "whatif/split_fragment.exp.none.pickle",
        "whatif/gpt_varlen.pow2_4.none.pickle",
    ] {
        let recording = open(&corpus.join(name));
        let helped = helped(&recording);
        for f in findings(&recording).iter().filter(|f| f.depends_on_settings()) {
            assert!(f.remedy.is_none(), "{name}: nothing is claimed before it was tried: {f:?}");
            let (advice, line) = f.by_settings(&helped).unwrap();
            let Some(line) = line else {
                assert!(advice.contains("None of"), "{name}: {advice}");
                continue;
            };
            let set = recording.devices[0].settings.conf.to_string();
            assert_ne!(line, format!("PYTORCH_CUDA_ALLOC_CONF={set}"), "{name}");
            let tried = helped.remedies.tried.iter().find(|r| helped.line(r) == line).unwrap();
            assert!(tried.peak_reserved_bytes < helped.own.peak_reserved_bytes, "{name}: {line}");
        }
    }
}

/// When no setting helps, the advice that helps comes first, with a note that no setting does.
#[test]
fn a_full_device_is_told_what_would_make_room() {
    let mut t = Tape::new();
    t.device.capacity = Some(GIB);
    let work = t.stack(&[("/home/me/train.py", "main")]);
    for _ in 0..8 {
        t.alloc(100 * MIB, work);
    }
    t.oom(300 * MIB, 100 * MIB, work);
    let recording = t.finish();
    assert_eq!(autopsy(&recording, None).verdict.name(), "capacity");
    let all = advised(&recording);
    let best = best_advice(&autopsy(&recording, None), &all).unwrap();
    assert_eq!(best.support, Support::Formula, "{all:?}");
    assert!(best.sentence.starts_with("Hold less at that instant: freeing 2"), "{}", best.sentence);
    assert!(all.iter().any(|x| x.support == Support::Simulation && x.sentence.starts_with("No allocator setting")), "{all:?}");
}
