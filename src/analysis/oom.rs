//! The autopsy of an out-of-memory event: what was asked, what was free and where, why that was not enough.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::fragmentation::{Blocker, Holes, Servers, Way, WayOut, blockers, cheapest_hole, cheapest_release, holes};
use super::{DeviceTables, Quantity, State};
use crate::model::{AllocConf, BlockState, DeviceRecording, PoolId, SizeClass, StackId};
use crate::units::{Bytes, MEBIBYTE, counted};

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Enough is free inside reserved memory, but in pieces that are each too small.
    Fragmentation,
    /// The device had room; a limit on this process kept PyTorch from taking it.
    Cap,
    /// The device is full of what this process needs.
    Capacity,
    /// Without the other processes it would have fitted.
    Contention,
    /// Without this process's memory outside PyTorch it would have fitted.
    NonPytorch,
    /// It can never fit on this device.
    TooLarge,
}

impl Verdict {
    /// The stable name of the command-line contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Fragmentation => "fragmentation",
            Verdict::Cap => "cap",
            Verdict::Capacity => "capacity",
            Verdict::Contention => "contention",
            Verdict::NonPytorch => "non_pytorch",
            Verdict::TooLarge => "too_large",
        }
    }

    /// One or two words for a title.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Verdict::Fragmentation => "Fragmentation",
            Verdict::Cap => "The cap",
            Verdict::Capacity => "Device full",
            Verdict::Contention => "Other processes",
            Verdict::NonPytorch => "Outside PyTorch",
            Verdict::TooLarge => "Too large",
        }
    }
}

/// One test of the classifier, in the order they are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// What is tested: "free on the device".
    pub what: &'static str,
    /// Whether it holds; `None` when the recording can not tell.
    pub holds: Option<bool>,
    /// The figure it was decided by, in bytes.
    pub bytes: u64,
    /// True for the test that decides the verdict.
    pub decides: bool,
}

/// Live memory of one call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveByStack {
    /// The stack.
    pub stack: StackId,
    /// Bytes requested.
    pub bytes: u64,
    /// Allocations.
    pub count: u64,
}

/// Everything about one failed request. Bytes throughout.
#[derive(Clone, Debug)]
pub struct Autopsy {
    /// The event.
    pub event: u32,
    /// What was asked for, rounded to the block size as PyTorch records it.
    pub requested: u64,
    /// The segment that would have had to be taken for it.
    pub segment: u64,
    /// Free on the device, by the driver's count.
    pub device_free: u64,
    /// In segments.
    pub reserved: u64,
    /// In blocks the program holds.
    pub allocated: u64,
    /// Asked for by the program, live.
    pub live_requested: u64,
    /// The pool that serves the request: small or large.
    pub class: SizeClass,
    /// Which segments could have served it.
    pub servers: Servers,
    /// Their holes.
    pub holes: Holes,
    /// Holes of every pool.
    pub all_holes: Holes,
    /// What this process may reserve at most: known, or between these two because more was reserved before and the request failed.
    pub limit: Option<(u64, u64)>,
    /// Why.
    pub verdict: Verdict,
    /// Why, in one sentence with its numbers.
    pub sentence: String,
    /// How we know.
    pub tests: Vec<Test>,
    /// Live blocks that keep holes small, worst first.
    pub blockers: Vec<Blocker>,
    /// How many of them would each alone make a hole large enough.
    pub enough_alone: usize,
    /// The fewest live bytes whose going lets the request succeed.
    pub way_out: Option<WayOut>,
    /// Live memory by stack, largest first.
    pub top_live: Vec<LiveByStack>,
    /// Where the failed request came from.
    pub stack: StackId,
}

/// The autopsy of one `oom` event. `state` is the state at that event.
#[must_use]
pub fn examine(device: &DeviceRecording, tables: &DeviceTables, event: u32, state: &State) -> Option<Autopsy> {
    let device_free = device.events.device_free(event)?;
    let i = event as usize;
    let requested = device.events.size[i];
    let conf = &device.settings.conf;
    let segment = conf.segment_size(requested);
    let class = AllocConf::size_class(requested);
    let stream = device.events.stream[i];
    // Before PyTorch 2.12 the event does not tell its pool; a request outside a capture goes to the default one.
    let pool = match device.events.pool[i] {
        PoolId::UNKNOWN => device.pools.iter().position(|&p| p == (0, 0)).and_then(|p| u16::try_from(p).ok()).map(PoolId),
        known => Some(known),
    };
    let servers = Servers { class, stream: Some(stream), pool };
    let own = holes(state, Some(&servers));
    let all_holes = holes(state, None);
    let reserved = state.totals.reserved;
    let limit = limit(device, tables, event, reserved, segment, device_free);

    let room = limit.map(|(low, _)| low.saturating_sub(reserved));
    let (verdict, tests) = classify(&Facts {
        requested,
        segment,
        device_free,
        reserved,
        own,
        capacity: device.capacity,
        is_limited: limit.is_some(),
        room: room.unwrap_or(device_free),
        others: device.samples.last().and_then(|s| s.others),
        outside: device.samples.last().and_then(|s| s.process).map(|p| p.saturating_sub(reserved)),
    });
    let found = blockers(state, Some(&servers));
    let enough_alone = found.iter().filter(|b| b.hole_if_freed() >= requested).count();
    let need = match room {
        Some(room) => segment.saturating_sub(room),
        None => segment.saturating_sub(device_free),
    };
    let by_hole = cheapest_hole(state, &servers, requested);
    let by_release = cheapest_release(state, need);
    let way_out = match (by_hole, by_release) {
        (Some(a), Some(b)) => Some(if (a.bytes, a.blocks.len()) <= (b.bytes, b.blocks.len()) { a } else { b }),
        (a, b) => a.or(b),
    };
    let mut autopsy = Autopsy {
        event,
        requested,
        segment,
        device_free,
        reserved,
        allocated: state.totals.allocated,
        live_requested: state.totals.requested,
        class,
        servers,
        holes: own,
        all_holes,
        limit,
        verdict,
        sentence: String::new(),
        tests,
        blockers: found,
        enough_alone,
        way_out,
        top_live: top_live(device, tables, state),
        stack: device.events.stack[i],
    };
    autopsy.sentence = sentence(&autopsy);
    Some(autopsy)
}

/// What this process may reserve: known from the source, or bounded by what it did reserve and by the request that failed
/// although the device had room for it. `None` when nothing speaks for a limit.
fn limit(
    device: &DeviceRecording,
    tables: &DeviceTables,
    event: u32,
    reserved: u64,
    segment: u64,
    device_free: u64,
) -> Option<(u64, u64)> {
    if let Some(known) = device.limit {
        return Some((known, known));
    }
    if device_free < segment {
        return None;
    }
    let highest =
        tables.curves.columns(device, &tables.lifetimes, Quantity::Reserved, &[0, event + 1]).first().map_or(reserved, |c| c.max);
    let low = highest.max(reserved);
    Some((low, (reserved + segment).saturating_sub(1).max(low)))
}

struct Facts {
    requested: u64,
    segment: u64,
    device_free: u64,
    reserved: u64,
    own: Holes,
    capacity: Option<u64>,
    is_limited: bool,
    room: u64,
    others: Option<u64>,
    outside: Option<u64>,
}

/// The classifier: tests in order, the first that fails in a telling way decides.
fn classify(f: &Facts) -> (Verdict, Vec<Test>) {
    // Everything of this process given back, the device would have this much.
    let most = f.capacity.unwrap_or(f.device_free.saturating_add(f.reserved));
    let fits_device = f.requested <= most;
    let on_device = f.device_free >= f.segment;
    let in_holes = f.own.bytes >= f.requested;
    let in_all = f.own.bytes.saturating_add(if f.is_limited { f.room } else { f.device_free }) >= f.requested;
    let one_hole = f.own.largest >= f.requested;
    let verdict = if !fits_device {
        if f.others.is_some_and(|o| f.requested <= most.saturating_add(o)) && f.capacity.is_none() {
            Verdict::Contention
        } else {
            Verdict::TooLarge
        }
    } else if !one_hole && (in_holes || (!on_device && in_all)) {
        Verdict::Fragmentation
    } else if on_device {
        Verdict::Cap
    } else if f.others.is_some_and(|o| f.segment <= f.device_free.saturating_add(f.own.bytes).saturating_add(o) && o > 0) {
        Verdict::Contention
    } else if f
        .outside
        .is_some_and(|o| o > 2048 * MEBIBYTE && f.segment <= f.device_free.saturating_add(f.own.bytes).saturating_add(o))
    {
        Verdict::NonPytorch
    } else {
        Verdict::Capacity
    };
    let decides = match verdict {
        Verdict::TooLarge => 0,
        Verdict::Capacity | Verdict::Contention | Verdict::NonPytorch => 1,
        Verdict::Cap => 2,
        Verdict::Fragmentation => 4,
    };
    let tests = [
        ("smaller than the device", Some(fits_device), most),
        ("free on the device", Some(on_device), f.device_free),
        (
            "room under the cap",
            if f.is_limited { Some(f.room >= f.segment) } else { None },
            if f.is_limited { f.room } else { 0 },
        ),
        ("free inside reserved", Some(in_holes), f.own.bytes),
        ("one hole of that size", Some(one_hole), f.own.largest),
    ];
    let tests = tests
        .into_iter()
        .enumerate()
        .map(|(i, (what, holds, bytes))| Test { what, holds, bytes, decides: i == decides })
        .collect();
    (verdict, tests)
}

fn sentence(a: &Autopsy) -> String {
    let request = Bytes(a.requested);
    match a.verdict {
        Verdict::Fragmentation => format!(
            "A request for {request} failed with {} free inside reserved memory: it is in {}, and the largest is {}.",
            Bytes(a.holes.bytes),
            counted(a.holes.count, "piece", "pieces"),
            Bytes(a.holes.largest),
        ),
        Verdict::Cap => {
            let cap = match a.limit {
                Some((low, high)) if low == high => format!("at most {}", Bytes(low)),
                Some((low, high)) => format!("at most {} to {}", Bytes(low), Bytes(high)),
                None => "no more".to_owned(),
            };
            format!(
                "A request for {request} failed although {} was free on the device: this process may reserve {cap}; it held {}, with {} free inside.",
                Bytes(a.device_free),
                Bytes(a.reserved),
                Bytes(a.holes.bytes),
            )
        }
        Verdict::Capacity => format!(
            "A request for {request} failed because the device is full: {} is free on it and {} inside the {} that PyTorch reserved; tensors hold {}.",
            Bytes(a.device_free),
            Bytes(a.holes.bytes),
            Bytes(a.reserved),
            Bytes(a.allocated),
        ),
        Verdict::Contention => format!(
            "A request for {request} failed because others hold the device: {} is free on it while PyTorch reserves {}.",
            Bytes(a.device_free),
            Bytes(a.reserved),
        ),
        Verdict::NonPytorch => format!(
            "A request for {request} failed because this process holds memory outside PyTorch: {} is free on the device while PyTorch reserves {}.",
            Bytes(a.device_free),
            Bytes(a.reserved),
        ),
        Verdict::TooLarge => format!(
            "A request for {request} can not fit: with every byte of this process given back, {} would be free on the device.",
            Bytes(a.device_free.saturating_add(a.reserved)),
        ),
    }
}

/// Live requested bytes by stack, largest first.
#[must_use]
pub fn top_live(device: &DeviceRecording, tables: &DeviceTables, state: &State) -> Vec<LiveByStack> {
    let mut by_stack: FxHashMap<StackId, (u64, u64)> = FxHashMap::default();
    for block in state.blocks.iter().filter(|b| b.state != BlockState::Inactive) {
        let entry = by_stack.entry(tables.lifetimes.stack(device, block.lifetime)).or_default();
        entry.0 += block.requested;
        entry.1 += 1;
    }
    let mut top: Vec<LiveByStack> =
        by_stack.into_iter().map(|(stack, (bytes, count))| LiveByStack { stack, bytes, count }).collect();
    top.sort_by_key(|l| (std::cmp::Reverse(l.bytes), l.stack));
    top
}

impl WayOut {
    /// What would have to go, in one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let blocks = counted(self.blocks.len() as u64, "live block", "live blocks");
        let proof = if self.is_optimal { "No smaller set does." } else { "Chosen by live share; a smaller set may exist." };
        match self.way {
            Way::Hole => {
                format!("Without {blocks} ({}) there would be one hole of {}. {proof}", Bytes(self.bytes), Bytes(self.room))
            }
            Way::Release => format!(
                "Without {blocks} ({}) {} of {} could go back to the device, and a new segment would fit. {proof}",
                Bytes(self.bytes),
                counted(self.segments.len() as u64, "segment", "segments"),
                Bytes(self.room),
            ),
        }
    }
}
