//! The files of `sample_snapshots/`, compared with figures from CPython's `pickle` and a few lines of Python, and for three files
//! recorded at an out-of-memory error, with PyTorch's `memory_stats` of the same run.

use std::path::{Path, PathBuf};

use crate::shared::{open_sample, tables};
use vramscope_core::model::{Action, BlockState};
use vramscope_core::tables::Quantity;

/// The expected figures of a device. Sizes are in bytes.
struct Expected {
    file: &'static str,
    device: i32,
    events: usize,
    allocations: usize,
    segments: usize,
    blocks: usize,
    streams: usize,
    pools: usize,
    annotations: usize,
    /// Number of distinct call stacks of the events.
    stacks: usize,
    time_us: (i64, i64),
    /// Peak, first event after which it was reached, value at the end.
    reserved: (u64, u32, u64),
    requested: (u64, u32, u64),
    active_end: u64,
    allocated_end: u64,
    /// Number of holes, their bytes, the largest.
    holes: (usize, u64, u64),
    /// Event, requested bytes, free bytes of the device.
    oom: Option<(u32, u64, u64)>,
}

#[rustfmt::skip]
const FILES: [Expected; 10] = [
    Expected {
        file: "cuda_graph.pickle", device: 0, events: 119, allocations: 59, segments: 10, blocks: 41, streams: 3, pools: 2, annotations: 0, stacks: 8,
        time_us: (1795225289763212, 1795225289887899), reserved: (140509184, 116, 140509184), requested: (121929744, 118, 121929744),
        active_end: 121930752, allocated_end: 121930752, holes: (6, 18578432, 12582912), oom: None,
    },
    Expected {
        file: "expandable_oom.pickle", device: 0, events: 183, allocations: 70, segments: 8, blocks: 73, streams: 1, pools: 1, annotations: 0, stacks: 4,
        time_us: (1795225280619538, 1795225280762642), reserved: (1761607680, 102, 1530920960), requested: (1744830464, 103, 1220542464),
        active_end: 1220542464, allocated_end: 1220542464, holes: (29, 310378496, 16777216), oom: Some((182, 943718400, 144218193920)),
    },
    Expected {
        file: "fragment_oom.pickle", device: 0, events: 177, allocations: 92, segments: 4, blocks: 78, streams: 1, pools: 1, annotations: 0, stacks: 0,
        time_us: (1795225641939107, 1795225641940664), reserved: (1677721600, 6, 1677721600), requested: (1677721600, 7, 1031896064),
        active_end: 1038109184, allocated_end: 1038109184, holes: (26, 639612416, 28311552), oom: Some((176, 524288000, 147879755776)),
    },
    Expected {
        file: "gpt_train.pickle", device: 0, events: 6408, allocations: 2118, segments: 60, blocks: 62, streams: 1, pools: 1, annotations: 8, stacks: 26,
        time_us: (1795225281514240, 1795225286731348), reserved: (2160066560, 1932, 2160066560), requested: (2029949000, 1933, 68157440),
        active_end: 68157440, allocated_end: 68157440, holes: (59, 2091909120, 134217728), oom: None,
    },
    Expected {
        file: "kv_decode_oom.pickle.gz", device: 0, events: 27909, allocations: 9422, segments: 54, blocks: 258, streams: 1, pools: 1, annotations: 0, stacks: 0,
        time_us: (1795225622356918, 1795225622576159), reserved: (1132462080, 12556, 1132462080), requested: (955080704, 27907, 955080704),
        active_end: 992317440, allocated_end: 992317440, holes: (52, 140144640, 5685248), oom: Some((27908, 5853184, 146550620160)),
    },
    Expected {
        file: "leak.pickle", device: 0, events: 1144, allocations: 674, segments: 110, blocks: 496, streams: 1, pools: 1, annotations: 0, stacks: 4,
        time_us: (1795225290025049, 1795225290195746), reserved: (262144000, 1130, 262144000), requested: (261632308, 1137, 261107952),
        active_end: 261138432, allocated_end: 261138432, holes: (2, 1005568, 524288), oom: None,
    },
    Expected {
        file: "multi_stream.pickle", device: 0, events: 254, allocations: 91, segments: 4, blocks: 18, streams: 2, pools: 1, annotations: 0, stacks: 4,
        time_us: (1795225289613836, 1795225289735777), reserved: (58720256, 11, 58720256), requested: (38601728, 246, 35646912),
        active_end: 35649024, allocated_end: 33575424, holes: (6, 23071232, 15948800), oom: None,
    },
    // This one was recorded in the middle of a run. 32 MiB of cuBLAS were live before and are missing from the trace's figures.
    Expected {
        file: "serve_oom.pickle.gz", device: 0, events: 32144, allocations: 10769, segments: 19, blocks: 116, streams: 1, pools: 1, annotations: 0, stacks: 18,
        time_us: (1795242261364937, 1795242261510877), reserved: (392167424, 25692, 392167424), requested: (340764672, 32140, 337158144),
        active_end: 352309248, allocated_end: 352309248, holes: (19, 39858176, 3606528), oom: Some((32143, 3631104, 148997537792)),
    },
    Expected {
        file: "two_gpus.pickle", device: 0, events: 627, allocations: 224, segments: 33, blocks: 54, streams: 1, pools: 1, annotations: 10, stacks: 8,
        time_us: (1795226352432069, 1795226357308574), reserved: (580911104, 132, 580911104), requested: (571719680, 134, 370294784),
        active_end: 370294784, allocated_end: 370294784, holes: (15, 210616320, 20971520), oom: None,
    },
    Expected {
        file: "two_gpus.pickle", device: 1, events: 1308, allocations: 465, segments: 63, blocks: 101, streams: 1, pools: 1, annotations: 0, stacks: 9,
        time_us: (1795226352908187, 1795226357308610), reserved: (1088421888, 273, 1088421888), requested: (1075281920, 275, 672432128),
        active_end: 672432128, allocated_end: 672432128, holes: (26, 415989760, 20971520), oom: None,
    },
];

/// Peaks of whole blocks as PyTorch counted them during the run: file, `active_bytes.all.peak`, `allocated_bytes.all.peak`.
const COUNTED_BY_PYTORCH: [(&str, u64, u64); 3] = [
    ("fragment_oom.pickle", 1_677_721_600, 1_677_721_600),
    ("kv_decode_oom.pickle.gz", 992_317_440, 992_317_440),
    ("serve_oom.pickle.gz", 356_833_280, 356_833_280),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots")
}

fn distinct<T: Ord>(values: impl Iterator<Item = T>) -> usize {
    values.collect::<std::collections::BTreeSet<_>>().len()
}

#[test]
fn every_sample_comes_to_the_figures_python_gives() {
    for want in &FILES {
        let name = format!("{} device {}", want.file, want.device);
        let recording = open_sample(want.file);
        assert!(recording.report.warnings.is_empty(), "{name}: {:?}", recording.report.warnings);
        let device = recording.devices.iter().find(|d| d.id.index == want.device).unwrap_or_else(|| panic!("{name} is missing"));
        let events = &device.events;
        let segments = &device.segments;
        assert_eq!(events.len(), want.events, "{name} events");
        assert_eq!(events.action.iter().filter(|&&a| a == Action::Alloc).count(), want.allocations, "{name} allocations");
        assert_eq!(segments.len(), want.segments, "{name} segments");
        assert_eq!(device.blocks.len(), want.blocks, "{name} blocks");
        assert_eq!(distinct(segments.iter().map(|s| s.pool)), want.pools, "{name} pools");
        assert_eq!(device.annotations.len(), want.annotations, "{name} annotations");
        assert_eq!(distinct(events.stack.iter().filter(|s| s.is_some())), want.stacks, "{name} stacks");
        assert_eq!(events.time_range(), Some(want.time_us), "{name} times");
        let markers = |a: &Action| matches!(a, Action::Oom | Action::Snapshot);
        let of_events = events.action.iter().zip(&events.stream).filter(|(a, _)| !markers(a)).map(|(_, &s)| s);
        assert_eq!(distinct(of_events.chain(segments.iter().map(|s| s.stream))), want.streams, "{name} streams");
        let ooms: Vec<_> =
            events.ooms().into_iter().map(|e| (e, events.size[e as usize], events.device_free(e).unwrap_or(0))).collect();
        assert_eq!(ooms, want.oom.into_iter().collect::<Vec<_>>(), "{name} out-of-memory events");

        let curves = tables(device).curves;
        let level = |q| {
            let (peak, event) = curves.peak(q);
            (peak, event, curves.end(q))
        };
        assert_eq!(level(Quantity::Reserved), want.reserved, "{name} reserved");
        assert_eq!(level(Quantity::Requested), want.requested, "{name} requested");
        assert_eq!(curves.end(Quantity::Active), want.active_end, "{name} active");
        assert_eq!(curves.end(Quantity::Allocated), want.allocated_end, "{name} allocated");
        for (_, active, allocated) in COUNTED_BY_PYTORCH.iter().filter(|c| c.0 == want.file) {
            assert_eq!(curves.peak(Quantity::Active).0, *active, "{name} active peak");
            assert_eq!(curves.peak(Quantity::Allocated).0, *allocated, "{name} allocated peak");
        }
    }
}

#[test]
fn the_state_after_the_last_event_is_the_one_in_the_file() {
    for want in &FILES {
        let recording = open_sample(want.file);
        let device = recording.devices.iter().find(|d| d.id.index == want.device).expect("checked above");
        let tables = tables(device);
        let state = tables.states.at(device, &tables.lifetimes, want.events as u32 - 1);
        let ours: Vec<_> = state.segments.iter().map(|s| (s.address, s.size, s.stream, s.pool, s.class)).collect();
        let file: Vec<_> = device.segments.iter().map(|s| (s.address, s.size, s.stream, s.pool, s.class)).collect();
        assert_eq!(ours, file, "{} device {} segments", want.file, want.device);
        let used = |size, requested, state| (size, if state == BlockState::Inactive { 0 } else { requested }, state);
        let ours: Vec<_> = state.blocks.iter().map(|b| (b.address, used(b.size, b.requested, b.state))).collect();
        let file: Vec<_> = device.blocks.iter().map(|b| (b.address, used(b.size, b.requested, b.state))).collect();
        assert_eq!(ours, file, "{} device {} blocks", want.file, want.device);
        let holes: Vec<u64> = state.holes().map(|b| b.size).collect();
        let summed = (holes.len(), holes.iter().sum(), holes.iter().copied().max().unwrap_or(0));
        assert_eq!(summed, want.holes, "{} device {} holes", want.file, want.device);
    }
}

#[test]
fn a_trace_that_does_not_lead_to_the_end_of_its_file_is_told_with_both_figures() {
    for want in &FILES {
        let recording = open_sample(want.file);
        for device in &recording.devices {
            assert_eq!(tables(device).disagreement, None, "{} {}", want.file, device.id);
        }
    }
    let mut device = open_sample("fragment_oom.pickle").devices.remove(0);
    // The allocation of a block that is live at the end, with an action name that a future PyTorch might use.
    let last = device.events.action.iter().rposition(|a| *a == Action::Alloc).unwrap();
    device.events.action[last] = Action::Unknown;
    let told = tables(&device).disagreement.unwrap_or_default();
    let (trace, file) = ("984.01\u{a0}MiB by the trace", "990.02\u{a0}MiB by the file's own list");
    assert!(told.starts_with("the trace of GPU 0 contradicts its file: active at the end"), "{told}");
    assert!(told.contains(trace) && told.contains(file), "{told}");
}

const WATCH: &str = "live.vramscope";

/// Compared with figures from a few lines of Python over the file's records.
#[test]
fn the_watch_has_the_figures_of_its_records() {
    let recording = open_sample(WATCH);
    let [device] = recording.devices.as_slice() else { panic!("{} devices", recording.devices.len()) };
    assert_eq!((device.samples.len(), device.capacity), (149, Some(85_520_809_984)));
    let used: Vec<u64> = device.samples.iter().filter_map(|s| s.used).collect();
    assert_eq!(
        (used.iter().max(), used.first(), used.last()),
        (Some(&14_638_514_176), Some(&503_316_480), Some(&12_478_906_368))
    );
    let most = |f: fn(&vramscope_core::model::Sample) -> Option<u64>| device.samples.iter().filter_map(f).max();
    assert_eq!((most(|s| s.allocated), most(|s| s.reserved)), (Some(5_975_212_032), Some(11_188_305_920)));
    let live = device.live.as_deref().unwrap();
    assert_eq!((live.processes.len(), live.gauges.len() > 100, live.marks.len() >= 4), (2, true, true));
}

#[test]
fn the_samples_stay_small_and_each_is_described_and_checked() {
    let readme = std::fs::read_to_string(folder().join("README.md")).expect("the table of the samples");
    let mut bytes = 0;
    let mut files = 0;
    for entry in std::fs::read_dir(folder()).expect("sample_snapshots") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == "README.md" || name.ends_with(".py") {
            continue;
        }
        assert!(readme.contains(&format!("| `{name}` |")), "{name} is not in the README");
        assert!(name == WATCH || FILES.iter().any(|e| e.file == name), "{name} is not checked");
        bytes += entry.metadata().expect("its size").len();
        files += 1;
    }
    assert_eq!(files, 10, "samples");
    assert!(bytes < 2_000_000, "{bytes} bytes of samples");
}
