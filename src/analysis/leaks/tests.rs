use super::*;

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
    let found = saw_tooth(&saw, 4000).expect("a saw");
    assert_eq!(found.teeth.len(), 5);
    assert_eq!(found.teeth[0], (2, 8, 700));
    let ramp: Vec<u64> = (0..42).map(|i| 1000 + 100 * i).collect();
    assert_eq!(saw_tooth(&ramp, 4000), None);
    assert_eq!(saw_tooth(&saw, 100_000), None, "a ripple");
    let every_step: Vec<u64> = (0..42).map(|i| 1000 + 700 * (i % 2)).collect();
    assert_eq!(saw_tooth(&every_step, 4000), None);
    assert_eq!(saw_tooth(&[], 0), None);
    assert_eq!(saw_tooth(&[1], 0), None);
}

#[test]
fn a_handful_of_events_tells_nothing() {
    use crate::model::{PoolId, StreamId};
    let mut d = DeviceRecording::default();
    for i in 0..95 {
        d.events.push(i, Action::Alloc, 0x1000 * (i as u64 + 1), 512, StreamId(0), PoolId(0), StackId(0));
    }
    let none = Steps::default();
    assert_eq!(can_tell(&d, &none), Err(Blind::TooShort));
    assert_eq!(can_tell(&d, &Steps { bounds: (0..=7).map(|i| i * 13).collect(), ..Steps::default() }), Ok(()));
    d.events.push(95, Action::Alloc, 0x100_0000, 512, StreamId(0), PoolId(0), StackId(0));
    assert_eq!(can_tell(&d, &none), Err(Blind::OnlyAllocates), "a model is loaded");
    for i in 0..96 {
        d.events.push(96, Action::FreeCompleted, 0x1000 * (i as u64 + 1), 512, StreamId(0), PoolId(0), StackId(0));
        d.events.push(96, Action::Alloc, 0x1000 * (i as u64 + 1), 512, StreamId(0), PoolId(0), StackId(0));
    }
    let late = can_tell(&d, &none);
    assert_eq!(late, Err(Blind::OnlyAllocates), "in the later half only");
    assert_eq!(
        looked_at(&Steps { bounds: vec![0, 9, 18, 27, 36], ..Steps::default() }),
        "12 equal stretches: 4\u{a0}steps are too few"
    );
}

/// `steps` steps of a block that comes and goes, of which one in `every` keeps 1 MiB; at the end all of it is freed, or nothing.
fn keeps(steps: u64, every: u64, frees: bool) -> Vec<Growth> {
    use crate::model::{PoolId, Progress, StreamId};
    let mut d = DeviceRecording::default();
    let mut bounds = Vec::new();
    let mut push = |action, address, stack| {
        d.events.push(0, action, address, 1 << 20, StreamId(0), PoolId(0), StackId(stack));
        d.events.len() as u32
    };
    let mut at = 0;
    for i in 0..steps {
        bounds.push(at);
        for _ in 0..4 {
            push(Action::Alloc, 0x1000_0000, 0);
            push(Action::FreeRequested, 0x1000_0000, 2);
            at = push(Action::FreeCompleted, 0x1000_0000, 2);
        }
        if i % every == 0 {
            at = push(Action::Alloc, 0x1_0000_0000 + (i << 24), 1);
        }
    }
    bounds.push(at);
    if frees {
        for i in (0..steps).step_by(every as usize) {
            push(Action::FreeRequested, 0x1_0000_0000 + (i << 24), 3);
            push(Action::FreeCompleted, 0x1_0000_0000 + (i << 24), 3);
        }
    }
    let tables = DeviceTables::build(&d, &Progress::new()).expect("not cancelled");
    growth(&d, &tables, &Steps { bounds, ..Steps::default() })
}

#[test]
fn everything_of_a_leaking_stack_that_lives_at_the_end_is_counted() {
    let grown = keeps(40, 1, false);
    let [g] = grown.as_slice() else { panic!("{grown:?}") };
    assert_eq!((g.stack, g.bytes, g.count, g.freed), (StackId(1), 40 << 20, 40, None), "the first and the last steps too");
    assert_eq!((g.steps_adding, g.steps, g.rhythm), (40, 40, Rhythm::Step));
    assert!((g.bytes_per_step - f64::from(1 << 20)).abs() < 1.0);
}

#[test]
fn growth_is_found_though_it_is_freed_before_the_end() {
    let grown = keeps(40, 1, true);
    let [g] = grown.as_slice() else { panic!("{grown:?}") };
    assert_eq!((g.bytes, g.count, g.freed), (40 << 20, 40, Some(520)));
    assert!(g.is_leak());
    assert_eq!(keeps(12, 1, true), [], "a network of twelve layers does the same");
}

#[test]
fn growth_every_fifth_step_is_found() {
    let grown = keeps(40, 5, false);
    let [g] = grown.as_slice() else { panic!("{grown:?}") };
    assert_eq!((g.bytes, g.steps_adding, g.steps, g.rhythm), (8 << 20, 8, 40, Rhythm::Every(5)));
    assert_eq!(g.how_often("step"), "every 5th step");
    assert!(keeps(40, 5, true).iter().any(Growth::is_leak), "freed at the end too");
    assert!(!keeps(40, 13, false).iter().any(Growth::is_leak), "four times are no rhythm");
    assert!(keeps(8, 1, false).iter().any(Growth::is_leak), "eight steps are enough");
    assert_eq!(rhythm(&[1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 1], true), Rhythm::None, "at uneven distances");
    assert_eq!(rhythm(&[1, 0, 1, 0, 1, 0, 1, 0, 1, 0], false), Rhythm::None, "stretches are no steps");
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
