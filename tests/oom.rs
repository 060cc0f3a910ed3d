//! Why memory ran out, and how close it came where it did not: against the allocator model and the corpus' own truth.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use vramscope::allocator::{Replay, Requests};
use vramscope::analysis::oom::closest;
use vramscope::analysis::{DeviceTables, NO_EVENT};
use vramscope::formats;
use vramscope::model::{Action, DeviceRecording, PoolId, Progress, Recording, StackId, StreamId};
use vramscope::units::MEBIBYTE;

fn open(path: &Path) -> Recording {
    formats::open(path, &Progress::new()).unwrap()
}

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots").join(name)
}

fn corpus() -> Option<PathBuf> {
    let found = std::env::var_os("VRAMSCOPE_CORPUS").map(PathBuf::from);
    if found.is_none() {
        println!("skipped: set VRAMSCOPE_CORPUS");
    }
    found
}

/// Whether the allocator model serves one more request of `size` bytes right after `event`, under `limit`.
fn is_served(device: &DeviceRecording, event: u32, stream: StreamId, size: u64, limit: u64) -> bool {
    let mut cut = DeviceRecording {
        settings: device.settings.clone(),
        streams: device.streams.clone(),
        pools: device.pools.clone(),
        ..DeviceRecording::default()
    };
    cut.limit = Some(limit);
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
    let replay = Replay { limit: Some(limit), stops_at_oom: true, ..Replay::of(&requests) };
    let end = replay.run(&requests, (), &Progress::new()).unwrap();
    assert!(end.broken.is_none());
    // Nothing fails before: the limit is above what the recording reserved.
    assert!(end.oom_event.is_none_or(|failed| failed as usize == before), "event {:?} failed", end.oom_event);
    end.oom_event.is_none()
}

/// The largest request said to be served is served by the allocator model, and the next larger one is not.
fn hold_to_the_model(path: &Path) {
    let recording = open(path);
    for device in recording.devices.iter().filter(|d| !d.events.is_empty()) {
        for room in [0, 24 * MEBIBYTE, 260 * MEBIBYTE] {
            let mut device = device.clone();
            let tables = DeviceTables::build(&device, &Progress::new()).unwrap();
            // Up to the peak no more was ever reserved than this.
            let free = closest(&device, &tables).unwrap();
            if free.event == NO_EVENT {
                continue;
            }
            let highest =
                tables.curves.columns(&device, &tables.lifetimes, vramscope::analysis::Quantity::Reserved, &[0, free.event + 1])
                    [0]
                .max;
            device.limit = Some(highest + room);
            let found = closest(&device, &tables).unwrap();
            assert!(found.is_exact);
            let q = found.largest_served;
            let stream = found.servers.stream.unwrap();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if q > 0 {
                assert!(
                    is_served(&device, found.event, stream, q, highest + room),
                    "{name} {}: {q} is not served with room {room}",
                    device.id
                );
            }
            // The next size the large pool tells apart: above 1 MiB.
            let next = (q + 512).max(MEBIBYTE + 512);
            assert!(
                !is_served(&device, found.event, stream, next, highest + room),
                "{name} {}: {next} is served with room {room}",
                device.id
            );
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
