//! The cost of the tables: building them, seeking, panning a curve, stacking a picture.
//!
//! `VRAMSCOPE_BENCH` names the recording; without it a generated one of 300,000 events is used.

// A benchmark that cannot start may panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::hint::black_box;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use vramscope_core::anatomy::roles::{Roles, Rules};
use vramscope_core::anatomy::steps::Steps;
use vramscope_core::diagnose::heatmap::{HeatmapSpec, Shade, heatmap};
use vramscope_core::formats;
use vramscope_core::model::{Action, DeviceRecording, PoolId, Progress, Recording, StackId, StreamId};
use vramscope_core::query::matching::Matching;
use vramscope_core::query::ordering::Order;
use vramscope_core::query::{Query, Scope};
use vramscope_core::tables::{DeviceTables, Quantity, StackNames, strata};

fn main() {
    let (dev, tables) = loaded();
    println!(
        "{} events, {} allocations, {} live at the end",
        dev.events.len(),
        tables.lifetimes.len(),
        tables.states.live_at(&tables.lifetimes, dev.events.len() as u32 - 1).len()
    );
    scripted();
    asked();
    divan::main();
}

fn loaded() -> &'static (DeviceRecording, DeviceTables) {
    &whole().0
}

/// The device with its tables, and the rest of the recording with its stacks.
fn whole() -> &'static ((DeviceRecording, DeviceTables), Recording) {
    static LOADED: OnceLock<((DeviceRecording, DeviceTables), Recording)> = OnceLock::new();
    LOADED.get_or_init(|| {
        let (dev, rest) = match std::env::var_os("VRAMSCOPE_BENCH") {
            Some(path) => {
                let from = Instant::now();
                let mut recording = formats::open(Path::new(&path), &Progress::new()).expect("a recording");
                println!("read in {:?}", from.elapsed());
                let busiest = recording.busiest_device().expect("a device");
                (recording.devices.swap_remove(busiest), recording)
            }
            None => (generated(100_000), Recording::default()),
        };
        let from = Instant::now();
        let tables = DeviceTables::build(&dev, &Progress::new()).expect("not cancelled");
        println!("tables built in {:?}", from.elapsed());
        ((dev, tables), rest)
    })
}

/// Allocations of many sizes in one large expandable range, each freed some time later.
fn generated(count: u64) -> DeviceRecording {
    let mut dev = DeviceRecording { pools: vec![(0, 0)], streams: vec![0], ..DeviceRecording::default() };
    let mut random = Random(7);
    let mut live: Vec<(u64, u64)> = Vec::new();
    let mut push = |action, address, size| dev.events.push(0, action, address, size, StreamId(0), PoolId(0), StackId::NONE);
    for n in 0..count {
        let size = 512 << random.below(12);
        push(Action::Alloc, 0x7f00_0000_0000 + n * (2 << 20), size);
        live.push((0x7f00_0000_0000 + n * (2 << 20), size));
        if live.len() > 4000 {
            let (address, size) = live.swap_remove(random.below(live.len() as u64) as usize);
            push(Action::FreeRequested, address, size);
            push(Action::FreeCompleted, address, size);
        }
    }
    dev
}

/// A small random generator, so that every run does the same.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    println!("{what:<44} median {:>10.2?}  p99 {:>10.2?}  most {:>10.2?}", at(0.5), at(0.99), at(1.0));
}

fn evenly(from: u32, to: u32, columns: u32) -> Vec<u32> {
    (0..=u64::from(columns)).map(|c| from + (u64::from(to - from) * c / u64::from(columns)) as u32).collect()
}

/// Seeks and pans like a user, and prints the percentiles that matter for a frame.
fn scripted() {
    let (dev, t) = loaded();
    let len = dev.events.len() as u32;
    let mut random = Random(42);
    let timed = |work: &mut dyn FnMut()| {
        let from = Instant::now();
        work();
        from.elapsed()
    };
    let seeks = (0..500)
        .map(|_| {
            let event = random.below(u64::from(len)) as u32;
            timed(&mut || _ = black_box(t.states.at(dev, &t.lifetimes, event)))
        })
        .collect();
    report("seek to a random event", seeks);
    let middle = len / 2;
    let steps = (0..200).map(|i| timed(&mut || _ = black_box(t.states.at(dev, &t.lifetimes, middle + i)))).collect();
    report("step one event", steps);
    for q in Quantity::ALL {
        let mut times = Vec::new();
        for zoom in [1u32, 4, 16, 64, 256, 1024, 4096, 16384] {
            let width = (len / zoom).max(1);
            for _ in 0..25 {
                let from = random.below(u64::from(len - width) + 1) as u32;
                let bounds = evenly(from, from + width, 1600);
                times.push(timed(&mut || _ = black_box(t.curves.columns(dev, &t.lifetimes, q, &bounds))));
            }
        }
        report(&format!("1600 columns of {q:?} at any zoom"), times);
    }
    for zoom in [1u32, 16, 256] {
        let width = (len / zoom).max(1);
        let times = (0..5)
            .map(|_| {
                let from = random.below(u64::from(len - width) + 1) as u32;
                let bounds = evenly(from, from + width, 1600);
                let px = t.curves.peak(Quantity::Requested).0 / 800;
                timed(&mut || _ = black_box(strata(dev, t, &bounds, px, Quantity::Requested, &Progress::new())))
            })
            .collect();
        report(&format!("strata of 1600 columns, zoom {zoom}"), times);
    }
    for shade in [Shade::Occupancy, Shade::OldestBlock, Shade::LargestHole] {
        let bounds = evenly(0, len, 1600);
        let spec = HeatmapSpec { rows: 400, shade, servers: None, addresses: None };
        let times =
            (0..5).map(|_| timed(&mut || _ = black_box(heatmap(dev, t, &bounds, spec, None, &Progress::new())))).collect();
        report(&format!("heatmap of 1600 x 400, {shade:?}"), times);
    }
}

/// Roles, queries over all allocations, and sorting them.
fn asked() {
    let ((dev, t), recording) = whole();
    let progress = Progress::new();
    let from = Instant::now();
    let roles = Roles::build(recording, dev, t, &Rules::default(), &progress).expect("not cancelled");
    println!("roles of all allocations in {:?}", from.elapsed());
    let from = Instant::now();
    let steps = Steps::find(recording, dev, t);
    println!("{} steps found in {:?}", steps.len(), from.elapsed());
    let scope = Scope { roles: Some(&roles), steps: Some(&steps), ..Scope::new(recording, dev, t) };
    for text in [
        "stream=0 pool=small step=3..900",
        "size>1MiB",
        "size>1MiB stack~attention live@peak",
        "pool=large -kept age>100 or role=gradients",
        "kept or gone",
    ] {
        let query = Query::parse(text).expect("a query");
        let from = Instant::now();
        let rows = query.allocations(&scope, &progress).expect("not cancelled");
        let found = from.elapsed();
        let matching = Matching::of(dev, t, rows, &progress).expect("not cancelled");
        println!("query {text:<48} {:>9} rows in {found:>9.2?}, with their curve {:>9.2?}", matching.len(), from.elapsed());
    }
    let names = StackNames::of(&recording.stacks);
    for order in [Order::Size, Order::Stack] {
        let from = Instant::now();
        let all = (0..t.lifetimes.len() as u32).collect();
        black_box(order.sort(true, all, &scope, &names, &progress).expect("not cancelled"));
        println!("all allocations sorted by {} in {:?}", order.name(), from.elapsed());
    }
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn build() -> DeviceTables {
    DeviceTables::build(&loaded().0, &Progress::new()).expect("not cancelled")
}
