//! Findings from the samples of a live watch.

use std::collections::BTreeSet;

use super::{of, rules, said, silent};
use crate::tape::{GIB, MIB, live};
use vramscope_core::model::{DeviceRecording, LiveTrack, ProcessPoint, ProcessTrack, Recording, Sample, TorchFigures};

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
    // Kernels loaded only in the first half: a plateau.
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
    let jump = said(&of(jumps(900, 0)), "outside_jump");
    assert_eq!(jump.bytes, 900 * MIB);
    assert!(
        jump.sentence.contains("cuBLAS") && !format!("{jump:?}").contains("NCCL"),
        "nothing shows that NCCL is there: {jump:?}"
    );
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
    // No CUDA context is this large.
    silent(&of(live(0, 80 * GIB, 60, |_| sample(22_000, 1_000, 0))), "context");
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

/// What happened while these samples were taken is known: 2 GiB by raw cudaMalloc after a second.
#[test]
fn live_data_of_the_corpus_tell_what_was_done() {
    let Some(corpus) = crate::shared::corpus() else { return };
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
    // cuBLAS and cuDNN were loaded within the same two seconds.
    assert!((2 * GIB..2 * GIB + 128 * MIB).contains(&jump.bytes), "{}", jump.sentence);
    // The other process held 3.6 GiB of 140, and nothing grew.
    assert_eq!(rules(&recording), BTreeSet::from(["outside_jump"]));
}
