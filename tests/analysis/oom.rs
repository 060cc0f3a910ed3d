//! Why memory ran out, and how close a run without a failure came, compared with the allocator model and the corpus.

use std::path::Path;

use crate::shared::{corpus, open, sample, tables};
use vramscope_core::diagnose::oom::{Helped, Support, Verdict, advice, age, closest, examine, what_would_have_helped};
use vramscope_core::inference::{Caps, Replay, Requests, WhatIf};
use vramscope_core::model::{Action, DeviceRecording, PoolId, Progress, Recording, StackId, StreamId};
use vramscope_core::tables::{DeviceTables, NO_EVENT, Quantity};
use vramscope_core::units::{MEBIBYTE, NBSP};

/// Whether the allocator model serves one more request of `size` bytes right after `event`, on a device of `most` bytes or under
/// such a cap.
fn is_served(device: &DeviceRecording, event: u32, stream: StreamId, size: u64, is_cap: bool, most: u64) -> bool {
    let mut cut = DeviceRecording {
        settings: device.settings.clone(),
        streams: device.streams.clone(),
        pools: device.pools.clone(),
        ..DeviceRecording::default()
    };
    (cut.limit, cut.capacity) = if is_cap { (Some(most), None) } else { (None, Some(most)) };
    let e = &device.events;
    for i in 0..=event as usize {
        cut.events.push(e.time_us[i], e.action[i], e.address[i], e.size[i], e.stream[i], e.pool[i], e.stack[i]);
    }
    cut.events.has_time = e.has_time;
    let before = cut.events.len();
    let pool = if e.pool[0] == PoolId::UNKNOWN {
        PoolId::UNKNOWN
    } else {
        PoolId(device.pools.iter().position(|&p| p == (0, 0)).unwrap() as u16)
    };
    cut.events.push(e.time_us[before - 1], Action::Alloc, 0x7fff_0000_0000, size, stream, pool, StackId::NONE);
    let requests = Requests::read(&cut, &Progress::new()).unwrap();
    let replay = Replay { limit: cut.limit, stops_at_oom: true, ..Replay::of(&requests) };
    let end = replay.run(&requests, (), &Progress::new()).unwrap();
    assert!(end.broken.is_none());
    // Nothing fails before, because the limit is above what the recording reserved.
    assert!(end.oom_event.is_none_or(|failed| failed as usize == before), "event {:?} failed", end.oom_event);
    end.oom_event.is_none()
}

/// The model must serve the largest request that the analysis calls possible, and must refuse the next larger one.
fn hold_to_the_model(path: &Path) {
    let recording = open(path);
    for device in recording.devices.iter().filter(|d| !d.events.is_empty()) {
        let tables = tables(device);
        let event = closest(device, &tables).unwrap().event;
        if event == NO_EVENT {
            continue;
        }
        // Up to the peak, reserved memory never exceeded this.
        let highest = tables.curves.columns(device, &tables.lifetimes, Quantity::Reserved, &[0, event + 1])[0].max;
        for (room, is_cap) in [(0, true), (24, true), (260, true), (0, false), (54, false), (260, false)] {
            let mut device = device.clone();
            let most = highest + room * MEBIBYTE;
            (device.limit, device.capacity) = if is_cap { (Some(most), None) } else { (None, Some(most)) };
            let found = closest(&device, &tables).unwrap();
            assert_eq!(found.is_exact, is_cap);
            let q = found.largest_served;
            let stream = found.servers.stream.unwrap();
            let case = format!("{} {}, room {room} MiB, cap {is_cap}", path.file_name().unwrap().to_string_lossy(), device.id);
            assert!(q == 0 || is_served(&device, event, stream, q, is_cap, most), "{case}: {q} is not served");
            // The next size that the large pool distinguishes.
            let next = (q + 512).max(MEBIBYTE + 512);
            assert!(!is_served(&device, event, stream, next, is_cap, most), "{case}: {next} is served");
        }
    }
}

#[test]
fn the_largest_request_that_fits_at_the_peak_is_the_models() {
    for name in ["gpt_train.pickle", "leak.pickle", "two_gpus.pickle"] {
        hold_to_the_model(&sample(name));
    }
}

#[test]
fn the_largest_request_that_fits_at_the_peak_is_the_models_over_the_corpus() {
    let Some(corpus) = corpus() else { return };
    for name in [
        "demo/resnet.default.pickle",
        "demo/split_fragment.default.pickle",
        "demo/gpt_varlen.default.pickle",
        "whatif/gpt_train.exp.none.pickle",
        "whatif/split_fragment.exp.none.pickle",
        "whatif/resnet.split128.none.pickle",
        "multi/ddp_rank0.pickle",
    ] {
        let path = corpus.join(name);
        if path.exists() {
            hold_to_the_model(&path);
        }
    }
}

#[test]
fn what_would_have_helped_is_what_really_helped() {
    // Recorded under a cap of 1,760 MiB and really run under every setting with it (`whatif_truth.json`). Runs that do not split
    // blocks of 128 MiB and more pass, also with garbage collection. Expandable segments do not pass, and neither does rounding.
    let mut recording = open(&sample("fragment_oom.pickle"));
    recording.devices[0].limit = Some(1760 * MEBIBYTE);
    let device = &recording.devices[0];
    let tables = tables(device);
    let state = tables.states.at(device, &tables.lifetimes, 176);
    let caps = Caps::of(device, None, &Progress::new()).unwrap();
    let a = examine(device, &tables, 176, &state, &caps).unwrap();
    let plan = a.room_plan.as_ref().unwrap();
    assert_eq!((plan.blocks.len(), plan.bytes / MEBIBYTE, plan.segments.len(), plan.is_optimal), (8, 216, 1, true));
    let whatif = WhatIf::new(device, None, &Progress::new()).unwrap();
    let helped = what_would_have_helped(&whatif, &Progress::new()).unwrap();
    assert_eq!((helped.own.oom_request, helped.own.requests), (Some(92), 93));
    let passing: Vec<(&str, u64)> =
        helped.remedies.passing().map(|r| (r.conf.as_str(), r.peak_reserved_bytes / MEBIBYTE)).collect();
    assert!(passing.contains(&("max_split_size_mb:128", 1758)), "{passing:?}");
    assert!(passing.contains(&("max_split_size_mb:128,garbage_collection_threshold:0.8", 1632)), "{passing:?}");
    for fails in ["expandable_segments:True", "garbage_collection_threshold:0.6", "roundup_power2_divisions:4"] {
        assert!(helped.remedies.tried.iter().any(|r| r.conf == fails && r.oom), "{fails}");
    }
    let said = advice(&a, Some(&helped));
    assert_eq!(said[0].support, Support::Simulation);
    assert!(said[0].setting.as_deref().unwrap().starts_with("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128"));
    // Without a simulation, no setting is recommended.
    assert!(advice(&a, None).iter().all(|x| x.support == Support::Formula));
}

/// The two caps have different premises: memory as it was at the failure, and the whole run under another cap. When the second is
/// lower, the sentence says so.
#[test]
fn the_cap_for_this_request_and_for_all_do_not_contradict_each_other() {
    let recording = open(&sample("expandable_oom.pickle"));
    let device = &recording.devices[0];
    let tables = tables(device);
    let event = device.events.last_oom().unwrap();
    let state = tables.states.at(device, &tables.lifetimes, event);
    let caps = Caps::of(device, None, &Progress::new()).unwrap();
    let a = examine(device, &tables, event, &state, &caps).unwrap();
    let whatif = WhatIf::new(device, None, &Progress::new()).unwrap();
    let mut helped = what_would_have_helped(&whatif, &Progress::new()).unwrap();
    let raise = |helped: &Helped| {
        let all = advice(&a, Some(helped)).into_iter().map(|x| x.sentence.replace(NBSP, " "));
        all.into_iter().find(|s| s.starts_with("Raise the limit (cap)")).unwrap()
    };
    let said = raise(&helped);
    assert!(
        said.contains("at least 2.31 GiB for this request: ") && said.contains(" All recorded requests then succeed."),
        "{said}"
    );
    let needed = helped.remedies.needed.as_mut().unwrap();
    needed.smallest_limit_bytes = 2000 * MEBIBYTE;
    let said = raise(&helped);
    for part in [
        "at least 2.31 GiB for this request (with memory as it was at the failure)",
        "Set before the first allocation, 1.96 GiB is enough for all recorded requests",
    ] {
        assert!(said.contains(part), "no \"{part}\" in {said}");
    }
    assert!(!said.contains("need a cap of"), "{said}");
}

/// The cap's range derived from the failures contains the real cap, and no two failures contradict each other.
#[test]
fn the_range_of_the_cap_holds_the_cap_that_was_set() {
    let Some(corpus) = corpus() else { return };
    let rows: Vec<serde_json::Value> =
        serde_json::from_reader(std::fs::File::open(corpus.join("whatif_truth.json")).unwrap()).unwrap();
    let mut checked = 0;
    for row in rows {
        let Some(allowed) = row["allowed_bytes"].as_u64() else { continue };
        let text = |key: &str| row[key].as_str().unwrap().to_owned();
        for end in ["pickle", "at_oom.pickle"] {
            let (workload, conf, limit) = (text("workload"), text("conf_label"), text("limit_label"));
            let path = corpus.join("whatif").join(format!("{workload}.{conf}.{limit}.{end}"));
            if !path.exists() {
                continue;
            }
            let recording = open(&path);
            let device = &recording.devices[recording.busiest_device().unwrap()];
            let caps = Caps::of(device, None, &Progress::new()).unwrap();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let own = WhatIf::new(device, None, &Progress::new()).unwrap();
            let ooms = device.events.ooms();
            if ooms.is_empty() {
                continue;
            }
            let range = caps.first().unwrap();
            assert!((range.least..=range.most).contains(&allowed), "{name}: {range} and not {allowed}");
            assert_eq!(own.own().limit_range(), Some(range), "{name}");
            assert_eq!(range.ends, None, "{name}");
            assert!(ooms.iter().all(|&event| caps.at(event) == Some(range)), "{name}");
            checked += 1;
        }
    }
    assert!(checked > 100, "{checked}");
}

#[test]
fn the_age_of_a_block_counts_from_its_birth() {
    let recording = open(&sample("leak.pickle"));
    let device = &recording.devices[0];
    let tables = tables(device);
    let last = device.events.len() as u32 - 1;
    for id in tables.states.live_at(&tables.lifetimes, last) {
        let born = tables.lifetimes.born(id);
        let age = age(device, &tables.lifetimes, id, last);
        assert_eq!(age.events, Some(last - born));
        assert_eq!(age.micros, Some(device.events.time_us[last as usize] - device.events.time_us[born as usize]));
    }
}

/// A cap with room for the segment is not the cause, even if the file contains it.
#[test]
fn a_cap_with_room_is_not_the_verdict() {
    let mut recording = open(&sample("expandable_oom.pickle"));
    let verdict = |limit: Option<u64>, recording: &mut Recording| {
        recording.devices[0].limit = limit;
        let device = &recording.devices[0];
        let tables = tables(device);
        let state = tables.states.at(device, &tables.lifetimes, 182);
        let caps = Caps::of(device, None, &Progress::new()).unwrap();
        let a = examine(device, &tables, 182, &state, &caps).unwrap();
        assert_eq!(a.cap_below(), Some(2360 * MEBIBYTE));
        (a.verdict, a.sentence)
    };
    assert_eq!(verdict(None, &mut recording).0, Verdict::Cap);
    assert_eq!(verdict(Some(2359 * MEBIBYTE), &mut recording).0, Verdict::Cap);
    let (disproved, sentence) = verdict(Some(2360 * MEBIBYTE), &mut recording);
    assert_eq!(disproved, Verdict::Unknown);
    assert!(sentence.contains("left room for it. The reason is unknown"), "{sentence}");
}

/// When tensors fill the card, advice says what to make smaller, besides settings, also when fragments of free memory decide.
#[test]
fn a_card_that_tensors_fill_gets_advice_on_them() {
    use vramscope_core::anatomy::Composition;
    use vramscope_core::anatomy::roles::{Roles, Rules};
    use vramscope_core::diagnose::oom::what_to_make_smaller;
    use vramscope_core::tables::StackNames;
    for (name, verdict, word) in
        [("gpt2", Verdict::Capacity, "use_cache=False"), ("residual", Verdict::Capacity, "Checkpoint these layers")]
    {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/full");
        let recording = open(&root.join(format!("{name}.pickle.zst")));
        let (device, progress) = (&recording.devices[0], Progress::new());
        let tables = DeviceTables::build(device, &progress).unwrap();
        let event = device.events.last_oom().unwrap();
        let state = tables.states.at(device, &tables.lifetimes, event);
        let a = examine(device, &tables, event, &state, &Caps::of(device, None, &progress).unwrap()).unwrap();
        assert_eq!(a.verdict, verdict, "{}", a.sentence);
        assert_eq!(a.is_nearly_full(), name == "residual", "the request that failed on the other was a sixth of the card");
        let roles = Roles::build(&recording, device, &tables, &Rules::default(), &progress).unwrap();
        let names = StackNames::of(&recording.stacks);
        let held = Composition::at(&recording, device, &tables, &names, &roles, event, |_| true);
        let smaller = what_to_make_smaller(&a, &held, &recording.stacks);
        assert!(smaller.iter().any(|advice| advice.sentence.contains(word)), "{name}: {smaller:#?}");
    }
}
