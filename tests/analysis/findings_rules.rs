//! Every rule of the findings: a recording that makes it speak, and one just like it that must not.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::tape::{GIB, MIB, Tape, live};
use vramscope::analysis::categories::Rules;
use vramscope::analysis::findings::{Finding, RULES, as_table, diagnose};
use vramscope::analysis::{DeviceTables, StackNames};
use vramscope::formats;
use vramscope::model::{
    AllocConf, DeviceKind, DeviceRecording, LiveTrack, ProcessPoint, ProcessTrack, Progress, Recording, Sample, StackId,
    TorchFigures,
};

fn findings(recording: &Recording) -> Vec<Finding> {
    let progress = Progress::new();
    let names = StackNames::of(&recording.stacks);
    let mut all = Vec::new();
    for device in &recording.devices {
        let tables = DeviceTables::build(device, &progress).unwrap();
        all.extend(diagnose(recording, device, &tables, &names, &Rules::default(), &progress).unwrap().findings);
    }
    all
}

fn rules(recording: &Recording) -> BTreeSet<&'static str> {
    findings(recording).iter().map(|f| f.rule).collect()
}

/// What one rule says; it must say something whole.
#[track_caller]
fn said(recording: &Recording, rule: &str) -> Finding {
    let all = findings(recording);
    let found = all.iter().find(|f| f.rule == rule).unwrap_or_else(|| panic!("{rule} is silent: {all:?}")).clone();
    assert!(found.bytes > 0 && !found.evidence.is_empty() && !found.verify.is_empty() && !found.advice.is_empty(), "{found:?}");
    assert!(found.sentence.chars().any(|c| c.is_ascii_digit()) && found.sentence.ends_with('.'), "{}", found.sentence);
    found
}

#[track_caller]
fn silent(recording: &Recording, rule: &str) {
    let all = findings(recording);
    assert!(all.iter().all(|f| f.rule != rule), "{rule} speaks: {all:?}");
}

fn of(device: DeviceRecording) -> Recording {
    Recording { devices: vec![device], ..Recording::default() }
}

/// Some steps of training that nothing is wrong with: forward, backward, all freed.
fn healthy_steps(t: &mut Tape, steps: usize) {
    let forward = t.stack(&[("/home/me/model.py", "forward"), ("/home/me/train.py", "main")]);
    let held = t.alloc(40 * MIB, forward);
    for _ in 0..steps {
        let activations: Vec<_> = (0..6).map(|i| t.alloc((12 + 2 * i) * MIB, forward)).collect();
        for h in activations.into_iter().rev() {
            t.free(h);
        }
        t.step();
    }
    t.free(held);
}

#[test]
fn a_healthy_run_says_nothing() {
    let mut t = Tape::new();
    healthy_steps(&mut t, 12);
    assert!(rules(&t.finish()).is_empty());
}

#[test]
fn evaluation_that_keeps_its_predictions() {
    let run = |function: &str| {
        let mut t = Tape::new();
        let keep = t.stack(&[("/home/me/train.py", function), ("/home/me/train.py", "main")]);
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        for _ in 0..14 {
            for _ in 0..4 {
                let h = t.alloc(16 * MIB, work);
                t.free(h);
            }
            t.alloc(20 * MIB, keep);
            t.step();
        }
        t.finish()
    };
    let evaluates = run("evaluate");
    let found = said(&evaluates, "evaluation_growth");
    assert!(found.remedy.unwrap().contains("inference_mode"));
    silent(&evaluates, "leak");
    // The same in training is a leak, and not of evaluation.
    said(&run("train_step"), "leak");
    silent(&run("train_step"), "evaluation_growth");
}

/// Blocks that pile up for `period` steps and go together; with 1 each step frees its own.
fn cycles(period: usize) -> Recording {
    let mut t = Tape::new();
    let node = t.stack(&[("/home/me/graph.py", "make_node")]);
    let work = t.stack(&[("/home/me/model.py", "forward")]);
    let mut waiting = Vec::new();
    for step in 0..30 {
        for _ in 0..4 {
            let h = t.alloc(12 * MIB, work);
            t.free(h);
        }
        waiting.push(t.alloc(32 * MIB, node));
        if step % period == period - 1 {
            waiting.drain(..).for_each(|h| t.free(h));
        }
        t.step();
    }
    t.finish()
}

#[test]
fn garbage_that_waits_for_the_collector() {
    let found = said(&cycles(5), "saw_tooth");
    // Five blocks of 32 MiB pile up; the floors of the steps show three of them come and go.
    assert!((64 * MIB..=160 * MIB).contains(&found.bytes), "{}", found.bytes);
    silent(&cycles(1), "saw_tooth");
}

#[test]
fn a_failure_whose_exception_is_kept() {
    let run = |lets_go: bool| {
        let mut t = Tape::new();
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        let held: Vec<_> = (0..8).map(|_| t.alloc(40 * MIB, work)).collect();
        t.oom(4 * GIB, GIB, work);
        if lets_go {
            held.into_iter().for_each(|h| t.free(h));
        }
        for _ in 0..7 {
            t.wait(1_000_000);
            let h = t.alloc(10 * MIB, work);
            t.free(h);
        }
        t.finish()
    };
    assert_eq!(said(&run(false), "held_after_failure").bytes, 320 * MIB);
    silent(&run(true), "held_after_failure");
}

#[test]
fn requests_of_ever_new_sizes() {
    let run = |grows: bool| {
        let mut t = Tape::new();
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        for step in 0..90u64 {
            let size = if grows { 10 + 2 * step } else { 10 + 2 * (step % 4) };
            let h = t.alloc(size * MIB, work);
            t.free(h);
            t.step();
        }
        t.finish()
    };
    said(&run(true), "variable_sizes");
    silent(&run(false), "variable_sizes");
}

#[test]
fn a_sliver_in_every_segment() {
    let run = |sliver: u64| {
        let mut t = Tape::new();
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        for _ in 0..20 {
            let segment = t.segment(40 * MIB);
            t.place(segment, 0, sliver, work);
        }
        t.finish()
    };
    assert_eq!(said(&run(2 * MIB), "pinned_segments").bytes, 20 * 38 * MIB);
    silent(&run(30 * MIB), "pinned_segments");
}

#[test]
fn a_pool_that_only_a_graph_can_use() {
    let run = |key| {
        let mut t = Tape::new();
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        t.alloc(200 * MIB, work);
        t.in_pool(key);
        for h in (0..4).map(|_| t.alloc(128 * MIB, work)).collect::<Vec<_>>() {
            t.free(h);
        }
        t.finish()
    };
    assert_eq!(said(&run((0, 1)), "private_pools").bytes, 512 * MIB);
    silent(&run((0, 0)), "private_pools");
}

#[test]
fn frees_that_wait_for_another_stream() {
    let run = |waits: bool| {
        let mut t = Tape::new();
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        let guarded: Vec<_> = (0..4).map(|_| t.alloc(40 * MIB, work)).collect();
        for &h in &guarded {
            t.ask_to_free(h);
            if !waits {
                t.complete(h);
            }
        }
        for _ in 0..10 {
            let h = t.alloc(12 * MIB, work);
            t.free(h);
        }
        if waits {
            guarded.into_iter().for_each(|h| t.complete(h));
        }
        t.finish()
    };
    assert_eq!(said(&run(true), "pending_free").bytes, 160 * MIB);
    silent(&run(false), "pending_free");
}

#[test]
fn a_cache_emptied_in_every_step() {
    let run = |empties: bool| {
        let mut t = Tape::new();
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        for _ in 0..10 {
            for size in [20, 24, 28, 32, 36] {
                let h = t.alloc(size * MIB, work);
                t.free(h);
            }
            if empties {
                t.empty_cache();
            }
            t.step();
        }
        t.finish()
    };
    said(&run(true), "cache_flushes");
    silent(&run(false), "cache_flushes");
}

#[test]
fn memory_held_and_not_used_any_more() {
    let run = |goes_on: bool| {
        let mut t = Tape::new();
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        let large: Vec<_> = (0..4).map(|_| t.alloc(512 * MIB, work)).collect();
        large.into_iter().for_each(|h| t.free(h));
        for _ in 0..60 {
            let h = t.alloc(if goes_on { 512 } else { 12 } * MIB, work);
            let i = t.alloc(if goes_on { 512 } else { 12 } * MIB, work);
            let j = t.alloc(if goes_on { 512 } else { 12 } * MIB, work);
            [h, i, j].into_iter().for_each(|h| t.free(h));
        }
        t.finish()
    };
    said(&run(false), "idle_cache");
    silent(&run(true), "idle_cache");
}

#[test]
fn a_cache_of_keys_and_values_taken_at_the_start() {
    let run = |blocks: u64| {
        let mut t = Tape::new();
        let cache = t.stack(&[("/srv/engine.py", "allocate_kv_cache")]);
        let work = t.stack(&[("/srv/model.py", "forward")]);
        for _ in 0..blocks {
            t.alloc(128 * MIB, cache);
        }
        for _ in 0..300 {
            let h = t.alloc(64 * MIB, work);
            t.free(h);
        }
        t.finish()
    };
    assert_eq!(said(&run(32), "preallocated_cache").bytes, 4 * GIB);
    silent(&run(4), "preallocated_cache");
}

#[test]
fn pinned_memory_rounded_up() {
    let run = |asked: u64| {
        let mut t = Tape::new();
        t.device.id.kind = DeviceKind::Host;
        t.device.id.index = -1;
        for _ in 0..3 {
            let segment = t.segment(512 * MIB);
            t.place(segment, 0, asked, StackId::NONE);
        }
        t.finish()
    };
    let found = said(&run(300 * MIB), "pinned_rounding");
    assert_eq!(found.bytes, 3 * 212 * MIB);
    silent(&run(500 * MIB), "pinned_rounding");
}

#[test]
fn more_is_pinned_on_the_host_than_the_card_holds() {
    let run = |pinned: u64| {
        let mut host = Tape::new();
        host.device.id.kind = DeviceKind::Host;
        host.device.id.index = -1;
        let segment = host.segment(pinned);
        host.place(segment, 0, pinned, StackId::NONE);
        let mut card = Tape::new();
        card.alloc(512 * MIB, StackId::NONE);
        let mut recording = card.finish();
        recording.devices.extend(host.finish().devices);
        recording
    };
    assert_eq!(said(&run(2 * GIB), "pinned_host").bytes, 2 * GIB);
    silent(&run(256 * MIB), "pinned_host");
}

#[test]
fn a_pool_of_the_driver_that_keeps_what_was_freed() {
    let run = |backend: &str| {
        let mut t = Tape::new();
        t.device.settings.conf = AllocConf::parse(backend).unwrap();
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        let (h, _) = (t.alloc(400 * MIB, work), t.alloc(100 * MIB, work));
        t.free(h);
        t.finish()
    };
    assert_eq!(said(&run("backend:cudaMallocAsync"), "pool_retention").bytes, 400 * MIB);
    silent(&run("backend:native"), "pool_retention");
}

#[test]
fn a_buffer_that_is_copied_to_grow() {
    let run = |grows: bool| {
        let mut t = Tape::new();
        let cat = t.stack(&[("/home/me/decode.py", "append")]);
        let mut held = None;
        for step in 0..600u64 {
            let size = if grows { 10 + 2 * (step / 6) } else { 64 };
            let h = t.alloc(size * MIB, cat);
            if let Some(old) = held.replace(h) {
                t.free(old);
            }
        }
        t.finish()
    };
    said(&run(true), "grows_by_copy");
    silent(&run(false), "grows_by_copy");
}

#[test]
fn one_block_that_makes_the_peak() {
    let run = |size: u64| {
        let mut t = Tape::new();
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        t.alloc(512 * MIB, work);
        for step in 0..40 {
            let h = t.alloc(16 * MIB, work);
            if step == 20 {
                let large = t.alloc(size, work);
                t.free(large);
            }
            t.free(h);
        }
        t.finish()
    };
    assert_eq!(said(&run(600 * MIB), "spike").bytes, 600 * MIB);
    silent(&run(100 * MIB), "spike");
}

/// A block with these frames beside 2 GiB of something else, live for most of the run or for a moment.
fn peak_with(frames: &[(&str, &str)], size: u64, is_brief: bool) -> Recording {
    let mut t = Tape::new();
    let other = t.stack(&[("/home/me/model.py", "build")]);
    let stack = t.stack(frames);
    t.alloc(2 * GIB, other);
    for step in 0..8 {
        for _ in 0..4 {
            let h = t.alloc(16 * MIB, other);
            t.free(h);
        }
        if step == 4 {
            let h = t.alloc(size, stack);
            let i = t.alloc(16 * MIB, other);
            t.free(i);
            if is_brief {
                t.free(h);
            }
        }
        t.step();
    }
    t.finish()
}

#[test]
fn a_loss_over_a_large_vocabulary() {
    let frames = [("/venv/lib/python3.12/site-packages/torch/nn/functional.py", "cross_entropy"), ("/home/me/train.py", "loss")];
    assert_eq!(said(&peak_with(&frames, GIB, true), "logits").bytes, GIB);
    silent(&peak_with(&frames, 64 * MIB, true), "logits");
    silent(&peak_with(&[("/home/me/train.py", "loss")], GIB, true), "logits");
}

#[test]
fn an_image_decoded_in_one_piece() {
    let frames = [("/venv/diffusers/models/autoencoders/autoencoder_kl.py", "decode"), ("/home/me/draw.py", "main")];
    assert_eq!(said(&peak_with(&frames, 2 * GIB, true), "image_decoder").bytes, 2 * GIB);
    silent(&peak_with(&frames, 512 * MIB, true), "image_decoder");
    silent(&peak_with(&[("/home/me/codec.py", "decode")], 2 * GIB, true), "image_decoder");
}

#[test]
fn an_optimizer_that_works_on_all_parameters_at_once() {
    let frames = [("/venv/lib/python3.12/site-packages/torch/optim/adam.py", "_multi_tensor_adam")];
    assert_eq!(said(&peak_with(&frames, GIB, true), "foreach_optimizer").bytes, GIB);
    // What stays is state, not a spike.
    silent(&peak_with(&frames, GIB, false), "foreach_optimizer");
    silent(&peak_with(&frames, 128 * MIB, true), "foreach_optimizer");
}

#[test]
fn gradients_beside_the_buckets_they_are_copied_to() {
    let run = |has_gradients: bool| {
        let mut t = Tape::new();
        let ddp = t.stack(&[("/venv/lib/python3.12/site-packages/torch/nn/parallel/distributed.py", "_pre_forward")]);
        for _ in 0..12 {
            t.alloc(26 * MIB, ddp);
        }
        if has_gradients {
            for _ in 0..12 {
                t.alloc(26 * MIB, StackId::NONE);
                t.category("GRADIENT");
            }
        }
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        t.alloc(100 * MIB, work);
        t.finish()
    };
    assert_eq!(said(&run(true), "gradient_buckets").bytes, 312 * MIB);
    silent(&run(false), "gradient_buckets");
}

/// Memory of one category, and a request that fails or does not.
fn filled_with(category: &str, fails: bool) -> Recording {
    let mut t = Tape::new();
    let work = t.stack(&[("/home/me/train.py", "main")]);
    for _ in 0..10 {
        t.alloc(100 * MIB, work);
        t.category(category);
    }
    t.alloc(200 * MIB, work);
    if fails {
        t.oom(400 * MIB, 100 * MIB, work);
    }
    t.finish()
}

#[test]
fn what_fills_the_device_when_it_is_full() {
    for (category, rule, other) in
        [("optimizer_state", "optimizer_state", "activations"), ("activation", "activations", "optimizer_state")]
    {
        let full = filled_with(category, true);
        assert_eq!(said(&full, rule).bytes, 1000 * MIB);
        silent(&full, other);
        // Nobody is short of memory: then it is nobody's trouble.
        silent(&filled_with(category, false), rule);
        let mut tight = filled_with(category, false);
        tight.devices[0].limit = Some(1250 * MIB);
        said(&tight, rule);
        tight.devices[0].limit = Some(4 * GIB);
        silent(&tight, rule);
    }
}

#[test]
fn blocks_larger_than_what_was_asked_for() {
    let run = |asked: u64| {
        let mut t = Tape::new();
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        // Up to 1 MiB is not split off: 11 MiB live in 12.
        for _ in 0..1200 {
            let segment = t.segment(12 * MIB);
            t.place(segment, 0, asked, work);
        }
        let mut r = t.finish();
        // The block is the whole segment, as PyTorch leaves it.
        let device = &mut r.devices[0];
        let holes: Vec<u64> = device.blocks.iter().map(|b| b.size).collect();
        if holes.contains(&(12 * MIB - asked)) {
            device.blocks.retain(|b| b.size == asked);
            for (i, (block, segment)) in device.blocks.iter_mut().zip(&mut device.segments).enumerate() {
                block.size = 12 * MIB;
                segment.blocks = i as u32..i as u32 + 1;
            }
        }
        r
    };
    let found = said(&run(11 * MIB - 512 * 1024), "rounding");
    assert_eq!(found.bytes, 1200 * (MIB + 512 * 1024));
    silent(&run(12 * MIB), "rounding");
}

#[test]
fn a_workspace_for_every_stream() {
    let run = |streams: u64| {
        let mut t = Tape::new();
        for stream in 0..streams {
            t.on_stream(stream);
            t.alloc(32 * MIB, StackId::NONE);
        }
        t.on_stream(0);
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        let h = t.alloc(100 * MIB, work);
        t.free(h);
        t.finish()
    };
    assert_eq!(said(&run(4), "workspaces").bytes, 128 * MIB);
    silent(&run(2), "workspaces");
}

#[test]
fn a_threshold_that_nothing_acts_on() {
    let run = |conf: &str, limit| {
        let mut t = Tape::new();
        t.device.settings.conf = AllocConf::parse(conf).unwrap();
        t.device.limit = limit;
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        for size in [40, 60, 80] {
            let h = t.alloc(size * MIB, work);
            t.free(h);
        }
        t.finish()
    };
    assert_eq!(said(&run("garbage_collection_threshold:0.8", None), "idle_threshold").bytes, 100 * MIB);
    silent(&run("", None), "idle_threshold");
    silent(&run("garbage_collection_threshold:0.8", Some(10 * GIB)), "idle_threshold");
}

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

/// An instant of one process on a card.
fn sample(process: u64, reserved: u64, allocated: u64) -> Sample {
    Sample {
        used: Some(process * MIB + 600 * MIB),
        driver: Some(600 * MIB),
        process: Some(process * MIB),
        others: Some(0),
        reserved: Some(reserved * MIB),
        active: Some(allocated * MIB),
        allocated: Some(allocated * MIB),
        ..Sample::default()
    }
}

#[test]
fn live_data_of_a_healthy_process_say_nothing() {
    let steps = live(0, 80 * GIB, 300, |i| sample(10_600, 10_000, 4_000 + u64::from(i % 5) * 1_200));
    assert!(rules(&of(steps)).is_empty());
}

#[test]
fn live_data_tell_of_growth() {
    let grows = |outside: u64, inside: u64| {
        live(0, 80 * GIB, 240, move |i| {
            let i = u64::from(i);
            let allocated = 2_000 + inside * i + (i % 4) * 300;
            sample(6_600 + outside * i + inside * i, 6_000 + inside * i, allocated)
        })
    };
    let found = said(&of(grows(0, 10)), "live_growth");
    assert!((2_000 * MIB..2_400 * MIB).contains(&found.bytes), "{}", found.bytes);
    silent(&of(grows(0, 10)), "outside_growth");
    let found = said(&of(grows(10, 0)), "outside_growth");
    assert!((2_000 * MIB..2_400 * MIB).contains(&found.bytes), "{}", found.bytes);
    silent(&of(grows(10, 0)), "live_growth");
    // Kernels that are loaded in the first half and then no more: a plateau.
    let plateau = live(0, 80 * GIB, 240, |i| sample(6_600 + 10 * u64::from(i.min(80)), 6_000, 2_000));
    silent(&of(plateau), "outside_growth");
}

#[test]
fn live_data_tell_of_a_jump_outside() {
    let jumps = |by: u64, inside: u64| {
        live(0, 80 * GIB, 60, move |i| {
            if i < 30 { sample(6_600, 6_000, 2_000) } else { sample(6_600 + by + inside, 6_000 + inside, 2_000) }
        })
    };
    assert_eq!(said(&of(jumps(900, 0)), "outside_jump").bytes, 900 * MIB);
    silent(&of(jumps(0, 900)), "outside_jump");
    silent(&of(jumps(100, 0)), "outside_jump");
}

#[test]
fn live_data_tell_of_idle_memory() {
    let idle = |allocated: u64| live(0, 80 * GIB, 90, move |_| sample(12_600, 12_000, allocated));
    assert_eq!(said(&of(idle(500)), "idle_cache_live").bytes, 11_500 * MIB);
    silent(&of(idle(9_000)), "idle_cache_live");
    let context = |reserved: u64| live(0, 80 * GIB, 60, move |_| sample(540 + reserved, reserved, 0));
    assert_eq!(said(&of(context(2)), "context").bytes, 540 * MIB);
    silent(&of(context(4_000)), "context");
}

#[test]
fn live_data_tell_of_others() {
    let others = |bytes: u64| {
        live(0, 80 * GIB, 30, move |_| Sample {
            others: Some(bytes),
            used: Some(sample(6_600, 6_000, 5_000).used.unwrap() + bytes),
            ..sample(6_600, 6_000, 5_000)
        })
    };
    assert_eq!(said(&of(others(20 * GIB)), "other_processes").bytes, 20 * GIB);
    silent(&of(others(2 * GIB)), "other_processes");
    silent(&of(others(20 * GIB)), "unattributed");
    let nobody = |bytes: u64| {
        live(0, 80 * GIB, 30, move |_| Sample {
            used: Some(sample(6_600, 6_000, 5_000).used.unwrap() + bytes),
            ..sample(6_600, 6_000, 5_000)
        })
    };
    assert_eq!(said(&of(nobody(3 * GIB)), "unattributed").bytes, 3 * GIB);
    silent(&of(nobody(100 * MIB)), "unattributed");
    silent(&of(nobody(3 * GIB)), "other_processes");
    let full = |used: u64| {
        live(0, 80 * GIB, 30, move |_| Sample {
            used: Some(used),
            driver: Some(600 * MIB),
            process: Some(used - 600 * MIB),
            reserved: Some(used - GIB),
            allocated: Some(used - 2 * GIB),
            ..Sample::default()
        })
    };
    said(&of(full(79 * GIB)), "nearly_full");
    silent(&of(full(70 * GIB)), "nearly_full");
}

#[test]
fn live_data_tell_of_a_cap_and_of_a_stray_context() {
    let capped = |limit: u64| DeviceRecording { limit: Some(limit), ..live(0, 80 * GIB, 20, |_| sample(8_600, 8_000, 7_000)) };
    assert_eq!(said(&of(capped(8_192 * MIB)), "cap_without_context").bytes, 408 * MIB);
    silent(&of(capped(10 * GIB)), "cap_without_context");
    let two = |here: u64| Recording {
        devices: vec![
            live(0, 80 * GIB, 20, |_| sample(520, 0, 0)),
            live(1, 80 * GIB, 20, move |_| sample(600 + here, here, here)),
        ],
        ..Recording::default()
    };
    assert_eq!(said(&two(20_000), "stray_context").bytes, 520 * MIB);
    silent(&two(100), "stray_context");
}

/// A process that the driver lists.
fn process(pid: u32, used: u64, reserved: Option<u64>) -> ProcessTrack {
    let torch = reserved.map(|reserved| TorchFigures { reserved: reserved * MIB, ..TorchFigures::default() });
    let point = ProcessPoint { time_us: 1_700_000_000_000_000, used: Some(used * MIB), torch };
    ProcessTrack { pid, started: 7, points: vec![point], ..ProcessTrack::default() }
}

fn with_processes(mut device: DeviceRecording, processes: Vec<ProcessTrack>) -> DeviceRecording {
    device.live = Some(Box::new(LiveTrack { processes, ..LiveTrack::default() }));
    device
}

#[test]
fn the_list_of_processes_tells_of_contexts() {
    let workers = |each: u64| {
        let list = (0..12).map(|i| process(100 + i, each, (i % 2 == 0).then_some(0))).collect();
        of(with_processes(live(0, 24 * GIB, 10, |_| Sample::default()), list))
    };
    assert_eq!(said(&workers(500), "many_contexts").bytes, 12 * 500 * MIB);
    silent(&workers(100), "many_contexts");
    // Ranks that work on their own GPU and left a context on the first one.
    let ranks = |there: u64| {
        let first = with_processes(
            live(0, 80 * GIB, 10, |_| Sample::default()),
            vec![process(1, 60_000, None), process(2, 540, None), process(3, 530, None)],
        );
        let second =
            with_processes(live(1, 80 * GIB, 10, |_| Sample::default()), vec![process(2, there, None), process(3, there, None)]);
        Recording { devices: vec![first, second], ..Recording::default() }
    };
    assert_eq!(said(&ranks(50_000), "stray_context").bytes, 1_070 * MIB);
    silent(&ranks(540), "stray_context");
}

/// What was really done while these samples were taken is known: 2 GiB by raw cudaMalloc after a second.
#[test]
fn live_data_of_the_corpus_tell_what_was_done() {
    let Some(corpus) = std::env::var_os("VRAMSCOPE_CORPUS").map(PathBuf::from) else {
        println!("skipped: set VRAMSCOPE_CORPUS");
        return;
    };
    let text = std::fs::read_to_string(corpus.join("live.json")).unwrap();
    let read: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let own = read[0]["pid"].as_u64().unwrap();
    let samples: Vec<Sample> = read
        .iter()
        .map(|x| {
            let sum = |is_own: bool| -> u64 {
                let list = x["procs"].as_array().unwrap();
                list.iter().filter(|p| (p[0].as_u64() == Some(own)) == is_own).map(|p| p[1].as_u64().unwrap()).sum()
            };
            Sample {
                time_us: (x["t"].as_f64().unwrap() * 1e6) as i64,
                used: x["used"].as_u64(),
                driver: x["reserved_v2"].as_u64(),
                process: Some(sum(true)),
                others: Some(sum(false)),
                reserved: x["torch_reserved"].as_u64(),
                allocated: x["torch_allocated"].as_u64(),
                ..Sample::default()
            }
        })
        .collect();
    let device = DeviceRecording { capacity: read[0]["total"].as_u64(), samples, ..DeviceRecording::default() };
    let recording = of(device);
    let jump = said(&recording, "outside_jump");
    // Within the same two seconds cuBLAS and cuDNN were loaded.
    assert!((2 * GIB..2 * GIB + 128 * MIB).contains(&jump.bytes), "{}", jump.sentence);
    // The other process held 3.6 GiB of 140, and nothing grew.
    assert_eq!(rules(&recording), BTreeSet::from(["outside_jump"]));
}

#[test]
fn the_documentation_lists_every_rule_as_it_is() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join("FINDINGS.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let table = as_table();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        let start = text.find("| rule |").unwrap_or(text.len());
        let end = text[start..].find("\n\n").map_or(text.len(), |i| start + i + 1);
        std::fs::write(&path, format!("{}{table}{}", &text[..start], &text[end..])).unwrap();
        return;
    }
    assert!(text.contains(&table), "docs/FINDINGS.md is not the table of rules; UPDATE_SNAPSHOTS=1 writes it");
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

/// Each rule that names a generated recording is shown by one here, and each that names a file by that file.
#[test]
fn every_rule_is_shown() {
    let here = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/analysis/findings_rules.rs")).unwrap();
    for rule in RULES {
        if rule.shown_by.contains("generated") {
            assert!(here.contains(&format!("\"{}\"", rule.name)), "{} has no test", rule.name);
        }
        for name in rule.shown_by.split('`').filter(|s| s.contains(".pickle") && !s.contains('/')) {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots").join(name);
            let recording = formats::open(&path, &Progress::new()).unwrap();
            said(&recording, rule.name);
        }
    }
}
