use super::*;
use crate::model::Action;

#[test]
fn a_steady_climb_is_certain_and_a_single_jump_is_not() {
    let (slope, sure) = line(&[10, 10, 10, 10, 10, 10, 10, 10]);
    assert!((slope - 10.0).abs() < 1e-9 && sure > 0.999);
    let (_, unsure) = line(&[0, 0, 0, 0, 0, 0, 0, 80]);
    assert!(unsure < 0.5, "{unsure}");
    assert_eq!(line(&[0, 0, 0]), (0.0, 0.0));
}

#[test]
fn a_saw_is_seen_and_a_ramp_or_a_ripple_is_not() {
    let saw: Vec<u64> = (0..42).map(|i| 1000 + 100 * (i % 8)).collect();
    let teeth = saw_tooth::teeth;
    let found = teeth(&saw, 4000);
    assert_eq!(found.len(), 5);
    assert_eq!(found[0], (2, 8, 700));
    assert_eq!(teeth(&saw[..41], 4000).len(), 5, "it drops in the last step");
    let mut torn = saw[..41].to_vec();
    torn[40] = 0;
    assert_eq!(teeth(&torn, 4000).len(), 4, "the program ends");
    let ramp: Vec<u64> = (0..42).map(|i| 1000 + 100 * i).collect();
    assert_eq!(teeth(&ramp, 4000), []);
    assert_eq!(teeth(&saw, 100_000), [], "a ripple");
    let stairs: Vec<u64> = (0..42).map(|i| if i % 8 == 0 { 1000 } else { 1700 }).collect();
    assert_eq!(teeth(&stairs, 4000), [], "what is made and replaced as a whole");
    let every_step: Vec<u64> = (0..42).map(|i| 1000 + 700 * (i % 2)).collect();
    assert_eq!(teeth(&every_step, 4000), []);
    assert_eq!(teeth(&[], 0), []);
    assert_eq!(teeth(&[1], 0), []);
}

#[test]
fn fewer_than_seven_steps_tell_nothing() {
    let device = DeviceRecording::default();
    let of = |n: u32| Steps { bounds: (0..=n).map(|i| i * 13).collect(), ..Steps::default() };
    assert_eq!(cannot_tell(&device, &of(7)), None);
    let why = |steps: &Steps| cannot_tell(&device, steps).expect("too few").replace(crate::units::NBSP, " ");
    assert_eq!(why(&of(4)), "4 steps are too few to tell a leak from normal growth. Record at least 7 steps of the same run.");
    assert!(why(&Steps::default()).contains("no history"));
    let trained = |n| Steps { source: StepSource::Optimizer("train.py:9".to_owned()), ..of(n) };
    assert_eq!(cannot_tell(&device, &trained(6)), None);
    assert_eq!(
        why(&trained(5)),
        "5 steps are too few to tell a leak from normal growth. Record at least 7 steps of the same run."
    );
    assert_eq!(looked_at(&of(9)).replace(crate::units::NBSP, " "), "9 steps");
}

/// `steps` steps, each with a temporary. `also` writes a step's other events, given its number, and `then` those after the last.
fn growth_of(
    steps: u64,
    also: impl Fn(u64, &mut dyn FnMut(Action, u64, u32)),
    then: impl Fn(&mut dyn FnMut(Action, u64, u32)),
) -> Vec<Growth> {
    growth_by(StepSource::None, steps, also, then)
}

/// Like [`growth_of`], with another source of the steps.
fn growth_by(
    source: StepSource,
    steps: u64,
    also: impl Fn(u64, &mut dyn FnMut(Action, u64, u32)),
    then: impl Fn(&mut dyn FnMut(Action, u64, u32)),
) -> Vec<Growth> {
    use crate::model::{PoolId, Progress, StreamId};
    let mut d = DeviceRecording::default();
    let mut bounds = vec![0];
    for i in 0..steps {
        let mut push =
            |action, address, stack| d.events.push(0, action, address, 1 << 20, StreamId(0), PoolId(0), StackId(stack));
        for _ in 0..4 {
            push(Action::Alloc, 0x1000_0000, 0);
            push(Action::FreeRequested, 0x1000_0000, 2);
            push(Action::FreeCompleted, 0x1000_0000, 2);
        }
        also(i, &mut push);
        bounds.push(d.events.len() as u32);
    }
    then(&mut |action, address, stack| d.events.push(0, action, address, 1 << 20, StreamId(0), PoolId(0), StackId(stack)));
    let tables = DeviceTables::build(&d, &Progress::new()).expect("not cancelled");
    growth(&d, &tables, &Steps { bounds, source, ..Steps::default() })
}

/// The address of a step's block in the list of these tests.
fn place(i: u64) -> u64 {
    0x1_0000_0000 + (i << 24)
}

fn free(push: &mut dyn FnMut(Action, u64, u32), address: u64) {
    push(Action::FreeRequested, address, 3);
    push(Action::FreeCompleted, address, 3);
}

/// One step in `every` keeps 1 MiB; at the end either all of it is freed, or none.
fn keeps(steps: u64, every: u64, frees: bool) -> Vec<Growth> {
    keeps_by(StepSource::None, steps, every, frees)
}

fn keeps_by(source: StepSource, steps: u64, every: u64, frees: bool) -> Vec<Growth> {
    let kept = |i: u64| i.is_multiple_of(every);
    growth_by(
        source,
        steps,
        |i, push| {
            if kept(i) {
                push(Action::Alloc, place(i), 1);
            }
        },
        |push| (0..steps).filter(|&i| frees && kept(i)).for_each(|i| free(push, place(i))),
    )
}

#[test]
fn everything_of_a_leaking_stack_that_lives_at_the_end_is_counted() {
    let grown = keeps(40, 1, false);
    let [g] = grown.as_slice() else { panic!("{grown:?}") };
    assert_eq!((g.stack, g.bytes, g.count(), g.freed), (StackId(1), 40 << 20, 40, None), "the first and the last steps too");
    assert_eq!((g.steps_adding, g.steps, g.rhythm), (40, 40, Rhythm::Step));
    assert!((g.bytes_per_step - f64::from(1 << 20)).abs() < 1.0);
}

#[test]
fn growth_is_found_though_it_is_freed_before_the_end() {
    let grown = keeps(40, 1, true);
    let [g] = grown.as_slice() else { panic!("{grown:?}") };
    assert_eq!((g.bytes, g.count(), g.freed), (40 << 20, 40, Some(520)));
    assert!(g.is_leak());
    assert_eq!(keeps(12, 1, true), [], "a network of twelve layers does the same");
    let calls = |each| StepSource::Call("serve.py:30".to_owned(), each);
    assert_eq!(keeps_by(calls(1), 12, 1, true), [], "one call may be of a layer");
    assert_eq!(keeps_by(calls(8), 12, 1, true).len(), 1, "a request of eight calls is no layer");
}

#[test]
fn what_fills_up_again_after_it_was_freed_is_no_leak() {
    // A list that grows by one block per step and is emptied after thirty.
    let list = |i: u64, push: &mut dyn FnMut(Action, u64, u32)| {
        push(Action::Alloc, place(i % 30), 1);
        if i % 30 == 29 {
            (0..30).for_each(|k| free(push, place(k)));
        }
    };
    let grown = growth_of(60, list, |_| {});
    assert!(!grown.iter().any(Growth::is_leak), "{grown:?}");
}

#[test]
fn growth_every_fifth_step_is_found() {
    let grown = keeps(40, 5, false);
    let [g] = grown.as_slice() else { panic!("{grown:?}") };
    assert_eq!((g.bytes, g.steps_adding, g.steps, g.rhythm), (8 << 20, 8, 40, Rhythm::Every(5)));
    assert_eq!(how_often(&[g], "step"), "every 5th step");
    assert_eq!(pace(&[g], "step"), "1\u{a0}MiB every 5 steps");
    assert!(keeps(40, 5, true).iter().any(Growth::is_leak), "freed at the end too");
    assert!(!keeps(40, 13, false).iter().any(Growth::is_leak), "four times are no rhythm");
    assert!(keeps(8, 1, false).iter().any(Growth::is_leak), "eight steps are enough");
    assert_eq!(rhythm(&[1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 1]), Rhythm::None, "at uneven distances");
}

#[test]
fn between_two_instants_only_what_was_born_after_the_first_and_lives_at_the_second() {
    use crate::model::{PoolId, Progress, StreamId};
    let mut d = DeviceRecording::default();
    let mut push = |action, address, size, stack| {
        d.events.push(0, action, address, size, StreamId(0), PoolId(0), StackId(stack));
    };
    push(Action::Alloc, 0x1000, 100, 0);
    push(Action::Alloc, 0x2000, 200, 1);
    push(Action::Alloc, 0x3000, 300, 1);
    push(Action::FreeRequested, 0x2000, 200, 2);
    push(Action::FreeCompleted, 0x2000, 200, 2);
    push(Action::Alloc, 0x4000, 400, 0);
    let tables = DeviceTables::build(&d, &Progress::new()).expect("not cancelled");
    let of = |a, b| between(&d, &tables, a, b).iter().map(|s| (s.stack.0, s.bytes, s.count, s.oldest)).collect::<Vec<_>>();
    assert_eq!(of(0, 5), [(0, 400, 1, 5), (1, 300, 1, 2)]);
    assert_eq!(of(0, 2), [(1, 500, 2, 1)]);
    assert_eq!(of(5, 5), []);
}

/// A program of `steps` steps with temporary work; `each` adds its own events to a step.
struct Program {
    device: DeviceRecording,
    bounds: Vec<u32>,
    next: u64,
}

impl Program {
    fn of(steps: usize, mut each: impl FnMut(&mut Program, usize)) -> (DeviceRecording, Steps) {
        let mut p = Program { device: DeviceRecording::default(), bounds: Vec::new(), next: 0x10_0000_0000 };
        for _ in 0..4 {
            p.keep(16, 0);
        }
        for step in 0..steps {
            p.bounds.push(p.device.events.len() as u32);
            let work: Vec<(u64, u64)> = (0..4).map(|_| p.keep(12, 1)).collect();
            each(&mut p, step);
            work.into_iter().for_each(|block| p.free(block));
        }
        p.bounds.push(p.device.events.len() as u32);
        (p.device, Steps { bounds: p.bounds, ..Steps::default() })
    }

    fn push(&mut self, action: Action, address: u64, size: u64, stack: u32) {
        use crate::model::{PoolId, StreamId};
        self.device.events.push(0, action, address, size, StreamId(0), PoolId(0), StackId(stack));
    }

    /// Allocates this many MiB; returns address and size.
    fn keep(&mut self, mebibytes: u64, stack: u32) -> (u64, u64) {
        let block = (self.next, mebibytes << 20);
        self.next += 1 << 32;
        self.push(Action::Alloc, block.0, block.1, stack);
        block
    }

    fn free(&mut self, (address, size): (u64, u64)) {
        self.push(Action::FreeRequested, address, size, 9);
        self.push(Action::FreeCompleted, address, size, 9);
    }
}

fn tables(device: &DeviceRecording) -> DeviceTables {
    DeviceTables::build(device, &crate::model::Progress::new()).expect("not cancelled")
}

fn leaks_of(steps: usize, each: impl FnMut(&mut Program, usize)) -> Vec<Growth> {
    let (device, steps) = Program::of(steps, each);
    growth(&device, &tables(&device), &steps).into_iter().filter(Growth::is_leak).collect()
}

/// Irregularly spaced steps.
const UNEVEN: [usize; 22] = [1, 2, 5, 6, 9, 14, 15, 18, 20, 25, 26, 31, 33, 34, 38, 42, 44, 49, 50, 53, 56, 59];

#[test]
fn a_leak_at_uneven_distances_is_one() {
    let leaks = leaks_of(60, |p, step| {
        if UNEVEN.contains(&step) {
            p.keep(8, 2);
        }
    });
    let [g] = leaks.as_slice() else { panic!("{leaks:?}") };
    assert_eq!((g.stack, g.bytes >> 20, g.count(), g.steps_adding, g.rhythm), (StackId(2), 176, 22, 22, Rhythm::Uneven));
    assert_eq!(how_often(&[g], "step"), "many a step");
}

#[test]
fn what_several_stacks_leave_by_turns_is_one_leak() {
    let leaks = leaks_of(40, |p, step| {
        p.keep(4, 100 + step as u32 % 10);
    });
    let all: Vec<&Growth> = leaks.iter().collect();
    assert_eq!((leaks.len(), leaks.iter().map(|g| g.bytes >> 20).sum::<u64>()), (10, 160));
    assert_eq!((adding(&all), how_often(&all, "step").as_str()), ((40, 40), "every step"));
    assert_eq!(pace(&all, "step"), "4\u{a0}MiB a step");
}

#[test]
fn a_leak_that_begins_half_way_is_one_and_one_that_ended_then_is_none() {
    let late = leaks_of(60, |p, step| {
        if step >= 30 {
            p.keep(4, 2);
        }
    });
    let [g] = late.as_slice() else { panic!("{late:?}") };
    assert_eq!((g.bytes >> 20, g.count(), g.since, g.rhythm), (120, 30, 30, Rhythm::Step));
    assert_eq!((how_often(&[g], "step").as_str(), g.bytes_per_step), ("every step from step 31 on", f64::from(4 << 20)));
    for end in [30, 45, 50] {
        let ended = leaks_of(60, |p, step| {
            if step < end {
                p.keep(4, 2);
            }
        });
        assert_eq!(ended, [], "nothing since step {end}");
    }
}

#[test]
fn a_cache_with_a_bound_is_no_leak_once_it_is_full() {
    for (bound, steps) in [(10, 12), (10, 60), (50, 60)] {
        let mut cache = std::collections::VecDeque::new();
        let leaks = leaks_of(steps, |p, _| {
            cache.push_back(p.keep(4, 2));
            if cache.len() > bound
                && let Some(oldest) = cache.pop_front()
            {
                p.free(oldest);
            }
        });
        assert_eq!(leaks, [], "{bound} of {steps}");
        // Also if no two entries have the same size.
        let mut cache = std::collections::VecDeque::new();
        let leaks = leaks_of(steps, |p, step| {
            cache.push_back(p.keep(1 + step as u64 * 7 % 11, 2));
            if cache.len() > bound
                && let Some(oldest) = cache.pop_front()
            {
                p.free(oldest);
            }
        });
        assert_eq!(leaks, [], "{bound} of {steps}, of many sizes");
    }
}

#[test]
fn a_leak_of_which_some_goes_again_is_still_one() {
    let mut kept = Vec::new();
    let leaks = leaks_of(60, |p, step| {
        kept.push(p.keep(4, 2));
        if step % 12 == 11 {
            let gone = kept.remove(0);
            p.free(gone);
        }
    });
    let [g] = leaks.as_slice() else { panic!("{leaks:?}") };
    assert_eq!((g.bytes >> 20, g.count()), (220, 55));
}

#[test]
fn one_that_goes_for_another_that_comes_is_no_leak() {
    // A model is moved piece by piece to blocks of another line; memory as a whole stays the same.
    let mut old = Vec::new();
    let leaks = leaks_of(60, |p, step| {
        if step == 0 {
            old = (0..60).map(|_| p.keep(4, 3)).collect();
        }
        if UNEVEN.contains(&step) {
            let gone = old.pop().expect("sixty");
            p.free(gone);
            p.keep(4, 2);
        }
    });
    assert_eq!(leaks, []);
}

#[test]
fn a_leak_of_many_sizes_is_counted_whole() {
    // Twelve steps, four of them decisive: sizes before and after those differ.
    let leaks = leaks_of(12, |p, step| {
        p.keep(2 * (step as u64 + 1), 2);
    });
    let [g] = leaks.as_slice() else { panic!("{leaks:?}") };
    assert_eq!((g.bytes >> 20, g.count(), g.steps_adding), (156, 12, 12));
    assert!(g.by_step.iter().enumerate().all(|(i, &b)| b >> 20 == 2 * (i as u64 + 1)), "{:?}", g.by_step);
}

#[test]
fn what_the_first_call_makes_beside_is_no_part_of_the_leak() {
    let leaks = leaks_of(40, |p, step| {
        p.keep(2, 2);
        p.keep(2, 2);
        if step == 0 {
            p.keep(32, 2);
        }
    });
    let [g] = leaks.as_slice() else { panic!("{leaks:?}") };
    assert_eq!((g.bytes >> 20, g.count()), (160, 80));
}

#[test]
fn a_saw_drops_by_all_that_is_freed_at_once_and_in_the_last_step_too() {
    let mut kept = Vec::new();
    let (device, steps) = Program::of(42, |p, step| {
        kept.push(p.keep(15, 2));
        if step % 7 == 6 {
            kept.drain(..).for_each(|block| p.free(block));
        }
    });
    let saw = saw_tooth(&device, &tables(&device), &steps).expect("a saw");
    let drops: Vec<(usize, u64)> = saw.teeth.iter().map(|t| (t.1, t.2 >> 20)).collect();
    assert_eq!(drops, [(6, 105), (13, 105), (20, 105), (27, 105), (34, 105), (41, 105)]);
    assert_eq!((saw.mean() >> 20, saw.highest() >> 20), (105, 105));
}

#[test]
fn growth_too_small_to_matter_is_none() {
    let leaks = leaks_of(40, |p, step| {
        if step == 0 {
            p.keep(4096, 3);
        }
        p.keep(1, 2);
    });
    assert_eq!(leaks, [], "40 MiB beside 4 GiB");
}
