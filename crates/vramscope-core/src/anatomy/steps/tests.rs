use super::*;
use crate::model::{Action, Annotation, PoolId, StackTableBuilder, StreamId};

/// `steps` steps of ten allocations and ten frees, one microsecond apart; each step leaves `kept` bytes.
fn training(steps: i64, kept: u64) -> DeviceRecording {
    let mut d = DeviceRecording::default();
    d.events.has_time = true;
    let mut at = 0;
    let mut push = |action, address, size| {
        d.events.push(at, action, address, size, StreamId(0), PoolId(0), StackId::NONE);
        at += 1;
    };
    for step in 0..steps as u64 {
        for i in 0..10 {
            push(Action::Alloc, 0x1000 + i * 0x1000, 1024);
        }
        if kept > 0 {
            push(Action::Alloc, 0x10_0000 + step * 0x10_0000, kept);
        }
        for i in 0..10 {
            push(Action::FreeRequested, 0x1000 + i * 0x1000, 1024);
            push(Action::FreeCompleted, 0x1000 + i * 0x1000, 1024);
        }
    }
    d
}

fn recording(mut device: DeviceRecording, ranges: &[(&str, i64, i64)]) -> Recording {
    let mut b = StackTableBuilder::new();
    for &(name, start_us, end_us) in ranges {
        device.annotations.push(Annotation { name: b.string(name), start_us, end_us: Some(end_us), depth: 0 });
    }
    Recording { devices: vec![device], stacks: b.finish(), ..Recording::default() }
}

#[test]
fn ranges_of_the_users_that_repeat_are_steps() {
    let ranges: Vec<(String, i64, i64)> = (0..8).map(|i| (format!("step {i}"), i * 31, i * 31 + 30)).collect();
    let mut named: Vec<(&str, i64, i64)> = ranges.iter().map(|r| (r.0.as_str(), r.1, r.2)).collect();
    named.extend([("eval", 10, 12), ("eval", 100, 105)]);
    let r = recording(training(8, 512), &named);
    let tables = DeviceTables::build(&r.devices[0], &Progress::new()).expect("not cancelled");
    let steps = Steps::find(&r, &r.devices[0], &tables);
    assert_eq!(steps.source, StepSource::Range("step".to_owned()));
    assert_eq!((steps.len(), steps.bounds[1], steps.confidence), (8, 31, 99));
    let f = figures(&r.devices[0], &tables, &steps, &Progress::new()).expect("not cancelled");
    assert_eq!(f.iter().map(|s| s.allocations).collect::<Vec<_>>(), [11; 8]);
    assert!(f.iter().all(|s| s.growth() == 512 && s.allocated == 10 * 1024 + 512));
    assert_eq!((f[6].kept, f[7].kept), (Some(512), None), "nothing comes after the last");
    for s in &f {
        let curve = |e| tables.curves.at(&r.devices[0], &tables.lifetimes, Quantity::Active, e);
        assert_eq!(curve(s.peak_event), s.peak);
        assert_eq!((s.first..s.end).map(curve).max(), Some(s.peak));
        assert_eq!((s.first..s.end).map(curve).min(), Some(s.floor));
        assert_eq!(s.micros, 30);
    }
}

#[test]
fn what_comes_before_the_first_profiled_step_is_none_of_it() {
    // The first two of eight stretches set up; the profiler begins after them.
    let ranges: Vec<(String, i64, i64)> =
        (0..6).map(|i| (format!("ProfilerStep#{i}"), (i + 2) * 31, (i + 2) * 31 + 30)).collect();
    let named: Vec<(&str, i64, i64)> = ranges.iter().map(|r| (r.0.as_str(), r.1, r.2)).collect();
    let r = recording(training(8, 512), &named);
    let tables = DeviceTables::build(&r.devices[0], &Progress::new()).expect("not cancelled");
    let steps = Steps::find(&r, &r.devices[0], &tables);
    assert_eq!((steps.len(), steps.bounds[0], steps.of(61), steps.of(62)), (6, 62, None, Some(0)));
    let f = figures(&r.devices[0], &tables, &steps, &Progress::new()).expect("not cancelled");
    assert!(f.iter().all(|s| s.allocations == 11 && s.growth() == 512), "{f:?}");
    // The end of an optimizer step does not show where its step began.
    let named: Vec<(&str, i64, i64)> = ranges.iter().map(|r| ("Optimizer.step#SGD", r.1 + 25, r.2)).collect();
    let r = recording(training(8, 512), &named);
    let tables = DeviceTables::build(&r.devices[0], &Progress::new()).expect("not cancelled");
    assert_eq!(Steps::find(&r, &r.devices[0], &tables).bounds[0], 0);
}

/// `steps` steps without annotations, after a model of four blocks: five allocations of one stack, then one of another, which
/// lives until every seventh step frees all of those.
fn collected(steps: u64) -> Recording {
    let mut b = StackTableBuilder::new();
    let mut d = DeviceRecording::default();
    let mut stack_of = |name: &str| {
        let name = b.string(name);
        let frame = b.frame(crate::model::Frame { name, file: name, line: 1 });
        b.stack(&[frame])
    };
    let (model, work, node) = (stack_of("model"), stack_of("train_step"), stack_of("node"));
    let mut push = |action, address, stack| d.events.push(0, action, address, 1 << 20, StreamId(0), PoolId(0), stack);
    for i in 0..4 {
        push(Action::Alloc, 0x9000_0000 + (i << 24), model);
    }
    for step in 0..steps {
        for i in 0..5 {
            push(Action::Alloc, 0x1_0000_0000 + (i << 24), work);
        }
        push(Action::Alloc, 0x2_0000_0000 + ((step % 7) << 24), node);
        for i in 0..5 {
            push(Action::FreeCompleted, 0x1_0000_0000 + (i << 24), work);
        }
        if step % 7 == 6 {
            for i in 0..7 {
                push(Action::FreeCompleted, 0x2_0000_0000 + (i << 24), work);
            }
        }
    }
    Recording { devices: vec![d], stacks: b.finish(), ..Recording::default() }
}

#[test]
fn steps_that_a_collector_makes_uneven_are_found_and_none_is_lost() {
    for steps in [40, 42] {
        let (found, _) = found(&collected(steps));
        assert_eq!((found.len() as u64, found.bounds[0], found.confidence), (steps, 4, 80), "{found:?}");
        // Each begins with its first allocation, and the last ends with the recording.
        let frees = (0..steps).filter(|step| step % 7 == 6).count() as u64;
        assert_eq!(u64::from(found.bounds[found.len()]), 4 + steps * 11 + frees * 7);
        assert_eq!(found.bounds[1], 15);
    }
}

#[test]
fn ranges_that_overlap_or_cover_little_are_not_steps() {
    let few: Vec<(&str, i64, i64)> = (0..8).map(|i| ("eval", i * 31, i * 31 + 3)).collect();
    let over: Vec<(&str, i64, i64)> = (0..8).map(|i| ("nest", i * 31, i * 31 + 60)).collect();
    for ranges in [few, over] {
        let r = recording(training(8, 0), &ranges);
        let tables = DeviceTables::build(&r.devices[0], &Progress::new()).expect("not cancelled");
        assert_eq!(Steps::find(&r, &r.devices[0], &tables).source, StepSource::None);
    }
}

/// `steps` training steps with stacks: one stack allocates first in every step, another ten times in it. After step `broken`
/// nothing repeats: every allocation has its own stack.
fn with_stacks(steps: u64, broken: u64, annotated: std::ops::Range<i64>, name: &str) -> Recording {
    let mut b = StackTableBuilder::new();
    let mut d = DeviceRecording::default();
    d.events.has_time = true;
    let mut stack_of = |name: &str| {
        let name = b.string(name);
        let frame = b.frame(crate::model::Frame { name, file: name, line: 1 });
        b.stack(&[frame])
    };
    let (once, often) = (stack_of("zero_grad"), stack_of("linear"));
    let mut at = 0;
    let mut push = |action, address: u64, stack| {
        d.events.push(at, action, address, 1024, StreamId(0), PoolId(0), stack);
        at += 1;
    };
    let mut ends = Vec::new();
    for step in 0..steps {
        let extra = if step < broken { 0 } else { (step * 7) % 23 };
        for i in 0..11 + extra {
            let own = if step < broken { if i == 2 { once } else { often } } else { stack_of(&format!("{step} {i}")) };
            push(Action::Alloc, 0x1000 + i * 0x1000, own);
        }
        for i in 0..11 + extra {
            push(Action::FreeRequested, 0x1000 + i * 0x1000, often);
            push(Action::FreeCompleted, 0x1000 + i * 0x1000, often);
        }
        ends.push(i64::from(step as u32 + 1) * 33);
    }
    for step in annotated {
        let end = ends[step as usize] - 1;
        d.annotations.push(Annotation { name: b.string(name), start_us: end - 3, end_us: Some(end), depth: 0 });
    }
    Recording { devices: vec![d], stacks: b.finish(), ..Recording::default() }
}

fn found(r: &Recording) -> (Steps, Option<String>) {
    let tables = DeviceTables::build(&r.devices[0], &Progress::new()).expect("not cancelled");
    let steps = Steps::find(r, &r.devices[0], &tables);
    let caveat = steps.caveat(&crate::tables::StackNames::of(&r.stacks), r.devices[0].events.len());
    (steps, caveat)
}

#[test]
fn steps_go_on_where_annotations_stop_and_say_so() {
    // Eight of forty steps are annotated, at the start, in the middle, at the end.
    for annotated in [0..8, 16..24, 32..40] {
        let (steps, caveat) = found(&with_stacks(40, 40, annotated.clone(), "Optimizer.step"));
        assert_eq!(steps.len(), 40, "{annotated:?} {steps:?}");
        assert!(steps.bounds.iter().enumerate().all(|(i, &b)| b == i as u32 * 33), "{:?}", steps.bounds);
        assert!(steps.continued_by.is_some() && steps.source == StepSource::Annotation("Optimizer.step".to_owned()));
        assert!((80..100).contains(&steps.confidence), "{}", steps.confidence);
        let marked = steps.marked.clone();
        assert!(marked.len() == 8 || marked.len() == 7, "{marked:?}");
        let inferred: Vec<usize> = (0..40).filter(|&i| steps.is_inferred_at(i)).collect();
        assert_eq!(inferred, (0..40).filter(|i| !marked.contains(i)).collect::<Vec<_>>());
        let (sure, open) = (steps.bounds[marked.start], steps.bounds[inferred[0]]);
        assert_eq!(steps.words_at(sure), Some((marked.start + 1).to_string()), "people count from 1");
        assert_eq!(steps.words_at(open), Some(format!("{}, inferred", inferred[0] + 1)));
        let caveat = caveat.expect("a part is annotated");
        assert!(caveat.contains("continued from zero_grad:1") && caveat.contains(" % of the events"), "{caveat}");
    }
    // If annotations cover everything, nothing is extended.
    let (steps, caveat) = found(&with_stacks(40, 40, 0..40, "ProfilerStep"));
    assert_eq!((steps.len(), steps.confidence, steps.marked.clone(), caveat), (40, 100, 0..40, None));
    assert_eq!(steps.continued_by, None);
}

#[test]
fn what_nothing_continues_is_in_no_step() {
    let r = with_stacks(40, 8, 0..8, "Optimizer.step");
    let (steps, caveat) = found(&r);
    assert_eq!((steps.len(), steps.continued_by, steps.of(steps.bounds[8] + 5)), (8, None, None));
    assert_eq!(steps.words_at(steps.bounds[8] + 5).as_deref(), Some("after the last"));
    assert!((0..8).all(|i| !steps.is_inferred_at(i)));
    assert_eq!(Steps::default().words_at(5), None);
    let share = (8 * 33 * 100 / r.devices[0].events.len()) as u8;
    assert!(steps.confidence <= share && steps.confidence > 5, "{} {share}", steps.confidence);
    assert!(caveat.expect("a part is annotated").contains("in no step"));
}

#[test]
fn a_users_ranges_are_continued_too() {
    let r = with_ranges(10);
    let (steps, caveat) = found(&r);
    assert_eq!((steps.len(), steps.source), (40, StepSource::Range("train".to_owned())));
    assert!(caveat.is_some_and(|c| c.contains("25 %")));
}

/// Forty steps, the first `annotated` of them inside `train N`.
fn with_ranges(annotated: i64) -> Recording {
    let mut r = with_stacks(40, 40, 0..annotated, "train 0");
    for (i, a) in r.devices[0].annotations.iter_mut().enumerate() {
        a.start_us = i as i64 * 33;
    }
    r
}

#[test]
fn numbers_are_no_part_of_a_kind() {
    assert_eq!(kind("ProfilerStep#7"), "ProfilerStep");
    assert_eq!(kind("iteration_12"), "iteration");
    assert_eq!(kind("12"), "12");
}

#[test]
fn optimizers_that_step_one_after_the_other_end_one_step() {
    let of = |ranges: &[(&str, i64, i64)]| {
        let r = recording(training(8, 0), ranges);
        let tables = DeviceTables::build(&r.devices[0], &Progress::new()).expect("not cancelled");
        Steps::find(&r, &r.devices[0], &tables).len()
    };
    let two = |i: i64| {
        [("Optimizer.step#Muon.step", i * 30 + 24, i * 30 + 25), ("Optimizer.step#AdamW.step", i * 30 + 26, i * 30 + 27)]
    };
    let ranges: Vec<(&str, i64, i64)> = (0..8).flat_map(two).collect();
    assert_eq!(of(&ranges), 8);
    // Replays of a CUDA graph allocate nothing either; gradients are set to zero between them.
    let zeroed = |i: i64| [("Optimizer.zero_grad#SGD.zero_grad", i * 30 + 26, i * 30 + 26)];
    let ranges: Vec<(&str, i64, i64)> = (0..8).flat_map(|i| two(i).into_iter().chain(zeroed(i))).collect();
    assert_eq!(of(&ranges), 16);
}

#[test]
fn optimizers_that_take_turns_end_one_step() {
    let turns = |names: [&'static str; 2]| {
        let both = |i: i64| [(names[0], i * 30 + 2, i * 30 + 3), (names[1], i * 30 + 8, i * 30 + 9)];
        let ranges: Vec<(&str, i64, i64)> = (0..8).flat_map(both).collect();
        let r = recording(training(8, 0), &ranges);
        let tables = DeviceTables::build(&r.devices[0], &Progress::new()).expect("not cancelled");
        let steps = Steps::find(&r, &r.devices[0], &tables);
        (steps.len(), steps.bounds[1])
    };
    assert_eq!(turns(["Optimizer.step#Adam.step", "Optimizer.step#RMSprop.step"]), (8, 10));
    assert_eq!(turns(["Optimizer.step#Adam.step"; 2]), (16, 4), "nothing tells them apart");
}

#[test]
fn what_a_program_frees_at_its_end_is_no_step() {
    let mut device = training(8, 512);
    let end = device.events.len() as i64;
    for step in 0..8u64 {
        for action in [Action::FreeRequested, Action::FreeCompleted] {
            let at = 0x10_0000 + step * 0x10_0000;
            device.events.push(end + step as i64, action, at, 512, StreamId(0), PoolId(0), StackId::NONE);
        }
    }
    let ranges: Vec<(&str, i64, i64)> = (0..8).map(|i| ("Optimizer.step#SGD.step", i * 31 + 28, i * 31 + 30)).collect();
    let r = recording(device, &ranges);
    let tables = DeviceTables::build(&r.devices[0], &Progress::new()).expect("not cancelled");
    let steps = Steps::find(&r, &r.devices[0], &tables);
    assert_eq!((steps.len(), steps.bounds[8]), (8, 8 * 31));
}

/// Steps of input, activations and gradients, without stacks. Gradients are freed after the optimizer, or after the next input.
fn with_gradients(steps: u64, zeroes_late: bool) -> Recording {
    const FREE: [Action; 2] = [Action::FreeRequested, Action::FreeCompleted];
    let mut d = DeviceRecording::default();
    d.events.has_time = true;
    let mut time = -1;
    let mut push = |actions: &[Action], address, size| {
        for &action in actions {
            time += 1;
            d.events.push(time, action, address, size, StreamId(0), PoolId(0), StackId::NONE);
        }
        time
    };
    let mut ranges = Vec::new();
    for step in 0..steps {
        let gradients = (0..4).map(|i| 0x20_0000 + i * 0x1000);
        push(&[Action::Alloc], 0x1000, 512);
        if zeroes_late && step > 0 {
            gradients.clone().for_each(|address| _ = push(&FREE, address, 4096));
        }
        (0..10).for_each(|i| _ = push(&[Action::Alloc], 0x10_0000 + i * 0x1000, 1024));
        gradients.clone().for_each(|address| _ = push(&[Action::Alloc], address, 4096));
        (0..10).for_each(|i| _ = push(&FREE, 0x10_0000 + i * 0x1000, 1024));
        let begin = push(&[Action::Alloc], 0x30_0000, 4096);
        ranges.push(("Optimizer.step#SGD.step", begin, push(&FREE, 0x30_0000, 4096)));
        if !zeroes_late {
            gradients.for_each(|address| _ = push(&FREE, address, 4096));
        }
        push(&FREE, 0x1000, 512);
    }
    recording(d, &ranges)
}

#[test]
fn a_step_is_over_once_its_gradients_are_freed() {
    let read = |zeroes_late| {
        let r = with_gradients(5, zeroes_late);
        let tables = DeviceTables::build(&r.devices[0], &Progress::new()).expect("not cancelled");
        let steps = Steps::find(&r, &r.devices[0], &tables);
        let f = figures(&r.devices[0], &tables, &steps, &Progress::new()).expect("not cancelled");
        (steps.over(4), f.iter().map(|s| s.after).collect::<Vec<_>>(), f.iter().map(|s| s.is_open).collect::<Vec<_>>())
    };
    let (last, after, _) = read(false);
    assert!(last.is_some() && after == [0; 5], "{after:?}");
    // The gradients of the last step are not freed by a next step.
    let (last, after, is_open) = read(true);
    assert_eq!((last, &after[..4], &is_open[3..]), (None, &[512; 4][..], &[false, true][..]), "{after:?}");
}

/// Iterations of a forward pass, a backward pass and gradients that a `GradScaler` unscales. In those listed in `skipped` the
/// gradients overflow, and the optimizer does nothing.
fn scaled(iterations: u64, skipped: &[u64]) -> Recording {
    let mut stacks = StackTableBuilder::new();
    let mut stack = |frames: &[(&str, &str)]| {
        let frames: Vec<_> = frames
            .iter()
            .map(|(file, name)| {
                let (file, name) = (stacks.string(file), stacks.string(name));
                stacks.frame(crate::model::Frame { name, file, line: 1 })
            })
            .collect();
        stacks.stack(&frames)
    };
    let forward = stack(&[("/x/torch/nn/modules/linear.py", "forward"), ("train.py", "main")]);
    let unscale = stack(&[("/x/torch/amp/grad_scaler.py", "unscale_"), ("train.py", "main")]);
    let adam = stack(&[("/x/torch/optim/adam.py", "step"), ("/x/torch/amp/grad_scaler.py", "step"), ("train.py", "main")]);
    let mut d = DeviceRecording::default();
    d.events.has_time = true;
    let mut event = |action, address, size, stack| {
        let at = d.events.len() as i64;
        d.events.push(at, action, address, size, StreamId(0), PoolId(0), stack);
        at
    };
    let mut ranges = Vec::new();
    for iteration in 0..iterations {
        (0..6).for_each(|i| _ = event(Action::Alloc, 0x1_0000 + i * 0x1_0000, 8192, forward));
        (0..4).for_each(|i| _ = event(Action::Alloc, 0x20_0000 + i * 0x1_0000, 4096, StackId::NONE));
        let mut free = |address, size| {
            event(Action::FreeRequested, address, size, StackId::NONE);
            event(Action::FreeCompleted, address, size, StackId::NONE);
        };
        (0..6).for_each(|i| free(0x1_0000 + i * 0x1_0000, 8192));
        event(Action::Alloc, 0x30_0000, 512, unscale);
        event(Action::FreeCompleted, 0x30_0000, 512, StackId::NONE);
        if !skipped.contains(&iteration) {
            let from = event(Action::Alloc, 0x40_0000, 4096, adam);
            ranges.push(("Optimizer.step#Adam.step", from, event(Action::FreeCompleted, 0x40_0000, 4096, StackId::NONE)));
        }
        let mut free = |address| _ = event(Action::FreeCompleted, address, 4096, StackId::NONE);
        (0..4).for_each(|i| free(0x20_0000 + i * 0x1_0000));
    }
    for &(name, start_us, end_us) in &ranges {
        d.annotations.push(Annotation { name: stacks.string(name), start_us, end_us: Some(end_us), depth: 0 });
    }
    Recording { devices: vec![d], stacks: stacks.finish(), ..Recording::default() }
}

#[test]
fn an_iteration_whose_optimizer_a_scaler_skips_is_a_step() {
    let steps = |skipped: &[u64]| found(&scaled(5, skipped)).0;
    assert_eq!(steps(&[]).len(), 5);
    for skipped in [&[0, 1][..], &[2], &[0, 1, 2]] {
        let steps = steps(skipped);
        assert_eq!((steps.len(), &steps.source), (5, &StepSource::Annotation("Optimizer.step".to_owned())), "{skipped:?}");
    }
}
