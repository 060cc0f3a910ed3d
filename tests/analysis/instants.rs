//! Peaks are examined at the right event, blocks to free are given for each possible cap, and a failure is judged by samples of
//! its own time.

use crate::findings::diagnoses;
use crate::shared::{open_sample, tables};
use crate::tape::{GIB, MIB, Tape};
use vramscope_core::diagnose::findings::EXAMINED;
use vramscope_core::diagnose::oom::{Autopsy, RoomFrom, Verdict, advice, closest, closest_under, examine};
use vramscope_core::diagnose::vendor::CUDA;
use vramscope_core::inference::{CapFrom, Caps};
use vramscope_core::model::{Action, DeviceKind, DeviceRecording, EventTable, Progress, Recording, Sample, StackId};
use vramscope_core::tables::{NO_EVENT, Quantity};
use vramscope_core::units::NBSP;

/// The autopsy of the first failure, with or without a cap from the user.
pub(crate) fn autopsy(recording: &Recording, cap: Option<u64>) -> Autopsy {
    let device = &recording.devices[0];
    let tables = tables(device);
    let event = device.events.ooms()[0];
    let state = tables.states.at(device, &tables.lifetimes, event);
    let caps = Caps::of(device, cap, &Progress::new()).unwrap();
    examine(device, &tables, event, &state, &caps).unwrap()
}

#[test]
fn a_peak_of_reserved_memory_is_looked_at_with_its_block_in_place() {
    let mut t = Tape::new();
    t.alloc(500 * MIB, StackId::NONE);
    let device = &t.finish().devices[0];
    let full = tables(device);
    assert_eq!(full.curves.peak(Quantity::Reserved), (500 * MIB, 0), "the segment");
    assert_eq!(full.curves.settled_peak(device, Quantity::Reserved), (500 * MIB, 1), "the block it was taken for");
    let free_at = |event: u32| 500 * MIB - full.curves.at(device, &full.lifetimes, Quantity::Active, event);
    assert_eq!((free_at(0), free_at(1)), (500 * MIB, 0));
    assert_eq!(full.curves.settled_peak(device, Quantity::Active), full.curves.peak(Quantity::Active));
    // A trace that ends before the block, a request that fails instead, and an empty trace.
    let mut t = Tape::new();
    t.segment(500 * MIB);
    let cut = t.finish();
    assert_eq!(tables(&cut.devices[0]).curves.settled_peak(&cut.devices[0], Quantity::Reserved), (500 * MIB, 0));
    let mut t = Tape::new();
    t.segment(500 * MIB);
    t.oom(GIB, 0, StackId::NONE);
    t.alloc(500 * MIB, StackId::NONE);
    let failed = t.finish();
    assert_eq!(tables(&failed.devices[0]).curves.settled_peak(&failed.devices[0], Quantity::Reserved), (500 * MIB, 0));
    let nothing = DeviceRecording::default();
    assert_eq!(tables(&nothing).curves.settled_peak(&nothing, Quantity::Reserved), (0, NO_EVENT));
}

#[test]
fn every_sample_is_as_full_at_its_settled_peak() {
    for name in ["gpt_train.pickle", "leak.pickle", "multi_stream.pickle", "expandable_oom.pickle", "fragment_oom.pickle"] {
        for device in &open_sample(name).devices {
            let tables = tables(device);
            let (bytes, event) = tables.curves.settled_peak(device, Quantity::Reserved);
            let state = tables.states.at(device, &tables.lifetimes, event);
            assert_eq!(state.totals.reserved, bytes, "{name}");
            let is_segment = matches!(device.events.action[event as usize], Action::SegmentAlloc | Action::SegmentMap);
            let next = device.events.action.get(event as usize + 1);
            assert!(!is_segment || next != Some(&Action::Alloc), "{name}: the block is still missing at {event}");
        }
    }
}

/// The file implies a cap between 1,600 and 2,100 MiB. Under a higher cap fewer bytes must be freed.
#[test]
fn a_way_out_is_told_for_both_ends_of_the_cap() {
    let recording = open_sample("fragment_oom.pickle");
    let plan = autopsy(&recording, None).room_plan.unwrap();
    assert_eq!((plan.blocks.len(), plan.least_cap), (18, Some(1600 * MIB)));
    let more = plan.with_more.unwrap();
    assert_eq!((more.blocks, more.bytes, more.is_optimal), (8, 216 * MIB, true));
    let said = plan.sentence(&CUDA).replace(NBSP, " ");
    for part in
        ["these 18 blocks (444.02 MiB)", "even if the cap is only 1.56 GiB", "1.67 GiB or more, 8 blocks (216 MiB) are enough"]
    {
        assert!(said.contains(part), "no \"{part}\" in: {said}");
    }
    // With an exact cap there is a single answer, the same as given for that cap before.
    for (cap, bytes) in [(1600 * MIB, plan.bytes), (more.cap, more.bytes), (1760 * MIB, more.bytes)] {
        let named = autopsy(&recording, Some(cap)).room_plan.unwrap();
        assert_eq!((named.bytes, named.with_more, named.least_cap), (bytes, None, None), "{cap}");
        assert!(named.sentence(&CUDA).ends_with("would make room."), "{}", named.sentence(&CUDA));
        assert!(named.why().ends_with("No smaller set is enough."), "{}", named.why());
    }
    let below = autopsy(&recording, Some(more.cap - 2 * MIB)).room_plan.unwrap();
    assert!(below.bytes > more.bytes, "2 MiB less is not enough for them");
}

/// A card of 10 GiB with 1 GiB reserved (all in use) and 200 MiB free; the request is 500 MiB.
fn full_card(samples: &[(i64, u64, u64)]) -> Recording {
    let mut t = Tape::new();
    t.alloc(GIB, StackId::NONE);
    t.oom(500 * MIB, 200 * MIB, StackId::NONE);
    let at = t.device.events.time_us[t.last() as usize];
    t.device.capacity = Some(10 * GIB);
    let sample = |&(after, others, outside): &(i64, u64, u64)| Sample {
        time_us: at + after,
        others: Some(others * MIB),
        process: Some(GIB + outside * MIB),
        ..Sample::default()
    };
    t.device.samples = samples.iter().map(sample).collect();
    t.finish()
}

#[test]
fn who_held_the_card_is_asked_of_the_sample_nearest_the_failure() {
    const SECOND: i64 = 1_000_000;
    let verdict = |samples: &[(i64, u64, u64)]| autopsy(&full_card(samples), None).verdict;
    // Other processes held 6 GiB at that time and none ten seconds later; and the reverse.
    assert_eq!(verdict(&[(-SECOND / 2, 6000, 300), (10 * SECOND, 0, 300)]), Verdict::Contention);
    assert_eq!(verdict(&[(-SECOND / 2, 0, 300), (10 * SECOND, 6000, 300)]), Verdict::Capacity);
    // The same for this process's memory outside PyTorch.
    assert_eq!(verdict(&[(SECOND / 2, 0, 6000), (10 * SECOND, 0, 300)]), Verdict::NonPytorch);
    assert_eq!(verdict(&[(SECOND / 2, 0, 300), (10 * SECOND, 0, 6000)]), Verdict::Capacity);
    // The size of a CUDA context is no reason, and a sample of another time says nothing.
    assert_eq!(verdict(&[(0, 0, 1900)]), Verdict::Capacity);
    assert_eq!(verdict(&[(10 * SECOND, 6000, 6000)]), Verdict::Capacity);
    assert_eq!(verdict(&[]), Verdict::Capacity);
    // Without times, the last sample is used.
    let mut timeless = full_card(&[(0, 0, 300), (SECOND, 6000, 300)]);
    timeless.devices[0].events.has_time = false;
    assert_eq!(autopsy(&timeless, None).verdict, Verdict::Contention);
}

#[test]
fn other_processes_and_memory_outside_pytorch_are_named_with_their_remedy() {
    let said = |samples: &[(i64, u64, u64)]| {
        let a = autopsy(&full_card(samples), None);
        (a.sentence.replace(NBSP, " "), advice(&a, None)[0].sentence.replace(NBSP, " "))
    };
    let (why, what) = said(&[(0, 6000, 300)]);
    assert!(why.contains("other processes hold the device: 200 MiB is free on it, and PyTorch reserved only 1 GiB"), "{why}");
    assert!(what.contains("Free 300 MiB on the device: other processes"), "{what}");
    let (why, what) = said(&[(0, 0, 6000)]);
    assert!(why.contains("this process holds much memory outside PyTorch: 200 MiB is free"), "{why}");
    assert!(what.contains("Free 300 MiB of what this process holds outside PyTorch"), "{what}");
}

#[test]
fn a_full_device_is_not_called_a_cap() {
    let recording = full_card(&[]);
    let caps = Caps::of(&recording.devices[0], None, &Progress::new()).unwrap();
    assert_eq!(caps.first().map(|cap| cap.from), Some(CapFrom::Device));
    let helped = vramscope_core::inference::WhatIf::new(&recording.devices[0], None, &Progress::new()).unwrap();
    let helped = vramscope_core::diagnose::oom::what_would_have_helped(&helped, &Progress::new()).unwrap();
    assert!(helped.is_of_device());
    for remedy in &helped.remedies.tried {
        assert!(helped.margin(remedy).is_none_or(|m| !m.contains("the cap")), "{:?}", helped.margin(remedy));
    }
    for advice in advice(&autopsy(&recording, None), Some(&helped)) {
        assert!(!advice.sentence.contains("the same cap"), "{}", advice.sentence);
    }
}

#[test]
fn a_peak_is_held_against_a_cap_that_somebody_names() {
    let recording = open_sample("leak.pickle");
    let device = &recording.devices[0];
    let tables = tables(device);
    assert_eq!(closest(device, &tables).unwrap().room, None, "the file tells nothing");
    let found = closest_under(device, &tables, Some(300 * MIB)).unwrap();
    let room = found.room.unwrap();
    assert_eq!((room.bytes, room.from, found.is_exact), (50 * MIB, RoomFrom::Cap, true));
}

#[test]
fn pinned_memory_is_told_in_the_hosts_words() {
    let mut t = Tape::new();
    t.device.id.kind = DeviceKind::Host;
    let a = t.alloc(256 * MIB, StackId::NONE);
    t.alloc(256 * MIB, StackId::NONE);
    let said = |device: &DeviceRecording| closest(device, &tables(device)).unwrap().sentence;
    let full = said(&Tape::finish(t).devices[0]);
    let mut t = Tape::new();
    t.device.id.kind = DeviceKind::Host;
    t.alloc(256 * MIB, StackId::NONE);
    let segment = t.segment(512 * MIB);
    t.place(segment, 0, 256 * MIB, StackId::NONE);
    let with_room = said(&t.finish().devices[0]);
    assert_eq!(a.1, 0);
    for sentence in [full, with_room] {
        assert!(sentence.contains("host") && sentence.contains("pinned"), "{sentence}");
        assert!(!sentence.contains("device") && !sentence.contains("large pool"), "{sentence}");
    }
}

#[test]
fn failures_that_were_not_examined_are_told_by_cause() {
    let told = |known: usize, unknown: usize| {
        let mut t = Tape::new();
        t.alloc(GIB, StackId::NONE);
        for _ in 0..known {
            t.oom(2 * GIB, GIB, StackId::NONE);
        }
        for _ in 0..unknown {
            t.oom(2 * GIB, EventTable::FREE_UNKNOWN, StackId::NONE);
        }
        let recording = t.finish();
        let found = diagnoses(&recording).remove(0);
        (found.ooms.len(), found.left_out().into_iter().map(|s| s.replace(NBSP, " ")).collect::<Vec<_>>())
    };
    assert_eq!(told(3, 0), (3, Vec::new()));
    let (examined, why) = told(0, 2);
    assert_eq!((examined, why.len()), (0, 1));
    assert!(why[0].contains("2 failures were") && why[0].contains("does not tell what was free"), "{why:?}");
    let (examined, why) = told(EXAMINED + 5, 0);
    assert_eq!((examined, why.len()), (EXAMINED, 1));
    assert!(why[0].contains("5 failures were") && why[0].contains("after are enough"), "{why:?}");
    assert_eq!(told(EXAMINED, 2).1.len(), 2, "one sentence a cause");
}

#[test]
fn of_several_failures_the_last_is_shown_first_and_those_before_it_were_survived() {
    let mut t = Tape::new();
    t.alloc(GIB, StackId::NONE);
    t.oom(2 * GIB, GIB, StackId::NONE);
    t.oom(3 * GIB, GIB, StackId::NONE);
    t.alloc(GIB, StackId::NONE);
    t.oom(2 * GIB, GIB, StackId::NONE);
    let recording = t.finish();
    let found = diagnoses(&recording).remove(0);
    let device = &recording.devices[0];
    let last = device.events.last_oom();
    assert_eq!(last, device.events.ooms().last().copied());
    assert!(found.ooms[0].survived && found.ooms[1].survived && !found.ooms[2].survived);
    let first = &found.findings[0];
    assert_eq!((first.rule, first.place.event), ("out_of_memory", last));
    let said = first.sentence.replace(NBSP, " ");
    assert!(said.contains("the last of 3 requests that failed; nothing was allocated after it"), "{said}");
    assert!(said.contains("The 2 before it were survived: allocations went on."), "{said}");
    // Without stacks, requests of another size count as another place.
    let failures: Vec<_> = found.findings.iter().filter(|f| f.rule == "out_of_memory").collect();
    assert_eq!(failures.len(), 2);
    assert!(failures[1].title.starts_with("Out of memory, not at the end"), "{}", failures[1].title);
    assert!(failures[0].evidence.iter().any(|e| e.label == "failures of this kind" && e.value == "2"));
}
