//! Recordings made by the model itself. The model must explain them again, whatever the settings, limit and streams, and a
//! simulation must be a recording like any other.

use std::cell::RefCell;
use std::rc::Rc;

use crate::differential::Dice;
use vramscope_core::allocator::{AllocError, BlockIx, CachingAllocator, EventSink, Placement, SimulatedMemory, enter_held};
use vramscope_core::inference::whatif::SUGGESTED;
use vramscope_core::inference::{Assumption, Question, WhatIf};
use vramscope_core::model::{Action, AllocConf, DeviceRecording, PoolKey, Progress, Recording, Settings, StackId, TorchVersion};

/// Records what the allocator does as a device recording.
#[derive(Clone, Default)]
struct Recorder(Rc<RefCell<DeviceRecording>>);

impl EventSink for Recorder {
    fn event(&mut self, action: Action, address: u64, size: u64, stream: u64, pool: PoolKey) {
        let mut device = self.0.borrow_mut();
        let stream = device.intern_stream(stream);
        let pool = device.intern_pool(pool);
        let time = device.events.len() as i64;
        device.events.push(time, action, address, size, stream, pool, StackId::NONE);
    }
}

/// Runs a random program: repeated sizes on two streams, with delayed frees and some cache flushes.
fn record(conf: &str, limit: Option<u64>, seed: u64, requests: u64) -> DeviceRecording {
    let mut dice = Dice(seed);
    let sizes: Vec<u64> = (0..12)
        .map(|i| match i % 4 {
            0 => 1 + dice.below(4000),
            1 => 1 + dice.below(1 << 20),
            2 => (1 << 20) + dice.below(9 << 20),
            _ => (10 << 20) + dice.below(30 << 20),
        })
        .collect();
    let conf = AllocConf::parse(conf).unwrap();
    let recorder = Recorder::default();
    let memory = SimulatedMemory::new(64 << 30, Placement::Driver);
    let mut allocator = CachingAllocator::new(memory, recorder.clone(), conf.clone(), TorchVersion::REFERENCE);
    allocator.set_limit(limit);
    let mut live: Vec<BlockIx> = Vec::new();
    for _ in 0..requests {
        match dice.below(20) {
            0..=10 => match allocator.malloc(sizes[dice.below(12) as usize], dice.below(2) * 0x1000) {
                Ok(block) => live.push(block),
                Err(AllocError::OutOfMemory(_)) => {
                    for block in live.drain(..live.len() / 2) {
                        allocator.free(block);
                    }
                }
                Err(other) => panic!("{other}"),
            },
            11..=17 if !live.is_empty() => {
                let block = live.swap_remove(dice.below(live.len() as u64) as usize);
                if dice.below(8) == 0 {
                    allocator.record_stream(block, 0x2000);
                }
                allocator.free(block);
            }
            18 => allocator.memory.finish(0x2000),
            19 if dice.below(30) == 0 => allocator.empty_cache().unwrap(),
            _ => {}
        }
    }
    let mut device = recorder.0.borrow().clone();
    device.settings = Settings { recorded: true, conf, raw: Vec::new() };
    device.has_final_state = true;
    enter_held(&mut device, &allocator.segments());
    device
}

const CONFS: [&str; 7] = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:30",
    "garbage_collection_threshold:0.6",
    "roundup_power2_divisions:4",
    "max_split_size_mb:25,garbage_collection_threshold:0.7",
    "expandable_segments:True,roundup_power2_divisions:8",
];

#[test]
fn recordings_are_explained_with_and_without_a_limit() {
    let progress = Progress::new();
    for (i, conf) in CONFS.iter().enumerate() {
        for limit in [None, Some(400 << 20)] {
            for seed in 0..12 {
                let device = record(conf, limit, seed * 31 + i as u64, 600);
                let whatif = WhatIf::new(&device, limit, &progress).unwrap();
                let own = whatif.own();
                assert!(own.agreement.agrees(), "{conf:?} {limit:?} seed {seed}: {:?}", own.agreement);
                let again = whatif.ask(&Question { limit, ..whatif.own_question() }, 50, &progress).unwrap();
                assert!(again.row.agrees_with_recording);
                assert!(again.curve.event.len() <= 50);
                if !again.row.oom {
                    assert_eq!(again.curve.reserved.iter().max().copied(), Some(again.row.peak_reserved_bytes));
                }
                assert_eq!(again.row.oom_request.is_some(), device.events.action.contains(&Action::Oom));
            }
        }
    }
}

#[test]
fn a_simulation_is_a_recording_like_any_other() {
    let progress = Progress::new();
    let device = record("", None, 5, 800);
    let recording = Recording { devices: vec![device], ..Recording::default() };
    let whatif = WhatIf::new(&recording.devices[0], None, &progress).unwrap();
    let same = whatif.simulate(&recording, &whatif.own_question(), &progress).unwrap();
    assert_eq!(same.devices[0].events.action, recording.devices[0].events.action);
    assert_eq!(same.devices[0].events.address, recording.devices[0].events.address);
    assert_eq!(same.devices[0].events.size, recording.devices[0].events.size);
    assert_eq!(same.devices[0].blocks, recording.devices[0].blocks);
    for (text, _) in SUGGESTED {
        let question = Question::parse(text, Some(600 << 20)).unwrap();
        let simulated = whatif.simulate(&recording, &question, &progress).unwrap();
        let row = whatif.ask(&question, 0, &progress).unwrap().row;
        assert_eq!(simulated.devices[0].final_reserved(), row.final_reserved_bytes, "{text}");
        let again = WhatIf::new(&simulated.devices[0], question.limit, &progress).unwrap();
        assert!(again.own().agreement.agrees(), "{text}: {:?}", again.own().agreement);
    }
}

#[test]
fn the_smallest_limit_passes_and_less_does_not() {
    let progress = Progress::new();
    let device = record("", None, 9, 500);
    let whatif = WhatIf::new(&device, None, &progress).unwrap();
    for text in ["", "expandable_segments:True", "max_split_size_mb:30"] {
        let question = |limit| Question::parse(text, Some(limit)).unwrap();
        let least = whatif.needed(&question(0).conf, &progress).unwrap().unwrap().smallest_limit_bytes;
        assert!(!whatif.ask(&question(least), 0, &progress).unwrap().row.oom);
        assert!(whatif.ask(&question(least - (2 << 20)), 0, &progress).unwrap().row.oom);
    }
}

#[test]
fn many_questions_are_answered_in_order_and_can_be_cancelled() {
    let progress = Progress::new();
    let device = record("", None, 3, 300);
    let whatif = WhatIf::new(&device, None, &progress).unwrap();
    let questions: Vec<Question> = SUGGESTED.iter().map(|(text, _)| Question::parse(text, None).unwrap()).collect();
    let answers = whatif.ask_all(&questions, 0, &progress).unwrap();
    assert!(answers.iter().zip(&questions).all(|(a, q)| a.question == *q));
    assert_eq!(progress.fraction(), Some(1.0));
    progress.cancel();
    assert!(whatif.ask_all(&questions, 0, &progress).is_err());
}

#[test]
fn headroom_grows_with_room() {
    let progress = Progress::new();
    let device = record("", None, 3, 300);
    let whatif = WhatIf::new(&device, None, &progress).unwrap();
    let needed = whatif.needed(&whatif.own().replay.conf, &progress).unwrap().unwrap();
    let least = needed.smallest_limit_bytes;
    let headroom = |fixed, limit| needed.batch_headroom(fixed, limit);
    assert!((headroom(0, least).unwrap() - 1.0).abs() < 1e-9);
    assert!((headroom(0, 2 * least).unwrap() - 2.0).abs() < 1e-9);
    assert!(headroom(needed.peak_active_bytes / 2, 2 * least).unwrap() > 2.0);
    assert!(headroom(0, least / 2).unwrap() < 0.51, "what does not fit has to shrink");
    assert_eq!(headroom(needed.peak_active_bytes, least), None, "nothing grows");
}

#[test]
fn remedies_that_pass_come_first_and_are_those_that_a_question_confirms() {
    let progress = Progress::new();
    let device = record("", Some(400 << 20), 9, 500);
    let whatif = WhatIf::new(&device, None, &progress).unwrap();
    let remedies = whatif.remedies_that_pass(None, &progress).unwrap();
    assert_eq!(remedies.limit_bytes, whatif.own_limit());
    assert!(remedies.limit_bytes.is_some());
    let first_failure = remedies.tried.iter().position(|r| r.oom).unwrap_or(remedies.tried.len());
    assert!(remedies.tried[first_failure..].iter().all(|r| r.oom), "what passes comes first");
    assert_eq!(remedies.passing().count(), first_failure);
    for remedy in &remedies.tried {
        let question = Question::parse(&remedy.conf, remedies.limit_bytes).unwrap();
        let row = whatif.ask(&question, 0, &progress).unwrap().row;
        assert_eq!((remedy.oom, remedy.oom_request), (row.oom, row.oom_request), "{}", remedy.conf);
        assert_eq!(remedy.peak_reserved_bytes, row.peak_reserved_bytes);
    }
    let again = WhatIf::again(&device, &whatif.prepared());
    assert_eq!(again.remedies_that_pass(None, &progress).unwrap(), remedies);
}

/// The recording from event `cut` on, without the frees of the first `blocks` older blocks (PyTorch 2.0 leaves out all such
/// frees). Also returns how many frees were left out.
fn started_late(device: &DeviceRecording, cut: usize, blocks: usize) -> (DeviceRecording, usize) {
    let mut late = DeviceRecording { events: Default::default(), ..device.clone() };
    let e = &device.events;
    let mut born = std::collections::HashSet::new();
    let mut silent = std::collections::HashSet::new();
    for i in cut..e.len() {
        let address = e.address[i];
        match e.action[i] {
            Action::Alloc => _ = born.insert(address),
            Action::FreeRequested if !born.contains(&address) && silent.len() < blocks => _ = silent.insert(address),
            _ => {}
        }
        let is_free = matches!(e.action[i], Action::FreeRequested | Action::FreeCompleted);
        if !is_free || !silent.contains(&address) || born.contains(&address) {
            late.events.push(e.time_us[i], e.action[i], address, e.size[i], e.stream[i], e.pool[i], e.stack[i]);
        }
    }
    (late, silent.len())
}

#[test]
fn blocks_that_went_without_an_event_are_found_and_counted() {
    let progress = Progress::new();
    let (mut all, mut agreed, mut assumed) = (0, 0, 0);
    for seed in 0..40 {
        let device = record("", None, seed, 300);
        let (late, silent) = started_late(&device, device.events.len() * 6 / 10, 2);
        assert_eq!(silent, 2);
        let whatif = WhatIf::new(&late, None, &progress).unwrap();
        let is_told = whatif.own().assumptions.iter().any(|a| matches!(a, Assumption::Untraced { .. }));
        all += 1;
        assumed += usize::from(is_told);
        if whatif.own().agreement.agrees() {
            agreed += 1;
        } else {
            assert!(!is_told, "seed {seed}: what does not explain the recording is not assumed");
        }
    }
    println!("{agreed} of {all} explained, {assumed} with an assumption");
    assert!(agreed * 10 >= all * 7 && assumed > 5);
}

#[test]
fn a_trace_that_breaks_off_before_its_segments_stands_for_itself() {
    let progress = Progress::new();
    for seed in 0..12 {
        let whole = record("", None, seed, 400);
        let mut cut = whole.clone();
        cut.events = Default::default();
        let e = &whole.events;
        for i in 0..e.len() / 3 {
            cut.events.push(e.time_us[i], e.action[i], e.address[i], e.size[i], e.stream[i], e.pool[i], e.stack[i]);
        }
        let whatif = WhatIf::new(&cut, None, &progress).unwrap();
        assert!(whatif.own().agreement.agrees(), "seed {seed}: {:?}", whatif.own().agreement);
        assert!(whatif.own().assumptions.contains(&Assumption::EndIsLater));
    }
}

#[test]
fn another_backend_is_not_vouched_for() {
    let progress = Progress::new();
    let device = record("", None, 3, 200);
    let whatif = WhatIf::new(&device, None, &progress).unwrap();
    let answer = whatif.ask(&Question::parse("backend:cudaMallocAsync", None).unwrap(), 0, &progress).unwrap();
    assert!(!answer.row.certain);
    assert!(answer.assumptions.contains(&Assumption::OtherBackend));
}

#[test]
fn a_full_device_bounds_no_cap_though_the_cache_was_emptied_first() {
    let progress = Progress::new();
    let recorder = Recorder::default();
    let memory = SimulatedMemory::new(1 << 30, Placement::Driver);
    let mut allocator = CachingAllocator::new(memory, recorder.clone(), AllocConf::default(), TorchVersion::REFERENCE);
    let kept = allocator.malloc(300 << 20, 0).unwrap();
    let gone = allocator.malloc(400 << 20, 0).unwrap();
    allocator.free(gone);
    assert!(matches!(allocator.malloc(900 << 20, 0), Err(AllocError::OutOfMemory(_))));
    let mut device = recorder.0.borrow().clone();
    device.settings.recorded = true;
    device.has_final_state = true;
    enter_held(&mut device, &allocator.segments());
    assert!(device.events.action.contains(&Action::SegmentFree), "the cache was emptied");
    let whatif = WhatIf::new(&device, None, &progress).unwrap();
    assert!(whatif.own().agreement.agrees(), "{:?}", whatif.own().agreement);
    let range = whatif.own().limit_range().unwrap();
    assert_eq!((range.from, range.most), (vramscope_core::inference::CapFrom::Device, 1 << 30));
    allocator.free(kept);
}
