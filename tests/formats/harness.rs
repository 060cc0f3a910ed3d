//! Used by the fuzz targets and by the tests with seeded mutations. It reads bytes as a format and checks the result. A reader
//! may refuse or warn. It may not panic, hang, or return a recording that contradicts itself.

use vramscope_core::diagnose::explain::explain;
use vramscope_core::formats::session::MAGIC;
use vramscope_core::formats::{self, jax, kineto, oom_message, rmm, stats, timeline};
use vramscope_core::model::{Progress, Recording};
use vramscope_core::tables::{DeviceTables, NO_EVENT};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Anything; the reader is chosen by content.
    Snapshot,
    JsonSnapshot,
    /// A page of `_memory_viz`.
    Html,
    /// A profiler trace.
    Kineto,
    /// A memory timeline of either form.
    Timeline,
    Rmm,
    /// JAX's memory profile.
    Jax,
    /// `memory_stats` and similar counters.
    Stats,
    /// The text of an error.
    OomMessage,
    /// A live session as text, one record per line, because the checksums of real frames would reject every mutation.
    Session,
}

impl Target {
    pub const ALL: [Target; 10] = [
        Target::Snapshot,
        Target::JsonSnapshot,
        Target::Html,
        Target::Kineto,
        Target::Timeline,
        Target::Rmm,
        Target::Jax,
        Target::Stats,
        Target::OomMessage,
        Target::Session,
    ];

    /// The name of the fuzz target and of its folder of seeds.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Target::Snapshot => "snapshot",
            Target::JsonSnapshot => "json_snapshot",
            Target::Html => "html",
            Target::Kineto => "kineto",
            Target::Timeline => "timeline",
            Target::Rmm => "rmm",
            Target::Jax => "jax",
            Target::Stats => "stats",
            Target::OomMessage => "oom_message",
            Target::Session => "session",
        }
    }
}

/// More events than this are read but not analysed, to save a fuzzer's time.
const MOST_EVENTS: usize = 50_000;

/// Reads bytes as a format and checks the result. True when something was read.
pub fn feed(target: Target, bytes: &[u8]) -> bool {
    let progress = Progress::new();
    let read = match target {
        Target::Snapshot | Target::JsonSnapshot | Target::Html => formats::read(bytes, "bytes", &progress),
        Target::Kineto => kineto::read(bytes, "bytes", &progress),
        Target::Timeline => timeline::read(bytes, "bytes", &progress),
        Target::Rmm => rmm::read(bytes, "bytes", &progress),
        Target::Jax => jax::read(bytes, "bytes", &progress),
        Target::Stats => return feed_stats(bytes),
        Target::OomMessage => return feed_message(bytes),
        Target::Session => formats::read(&framed(bytes), "bytes", &progress),
    };
    match read {
        Ok(recording) => {
            check(&recording);
            true
        }
        Err(error) => {
            let sentence = error.to_string();
            assert!(!sentence.is_empty() && !sentence.contains('\n'), "{sentence:?}");
            false
        }
    }
}

/// Packs lines as frames of a session, each with a valid checksum.
fn framed(lines: &[u8]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    for line in lines.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
        out.extend_from_slice(&(line.len() as u32).to_le_bytes());
        out.extend_from_slice(&crc32(line).to_le_bytes());
        out.extend_from_slice(line);
    }
    out
}

/// gzip's checksum, computed bit by bit because seeds are small.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0u32, |crc, &b| (0..8).fold(crc ^ u32::from(b), |crc, _| step(crc)))
}

fn feed_stats(bytes: &[u8]) -> bool {
    let Some(read) = stats::parse(&String::from_utf8_lossy(bytes)) else { return false };
    for group in ["reserved_bytes", "allocation"] {
        if let Some(gauge) = read.gauge(group, "all") {
            assert!(gauge.current.admits(gauge.current.value));
        }
    }
    assert!(read.private_pools().len() <= read.values.len());
    true
}

fn feed_message(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let found = oom_message::find_all(&text);
    for message in &found {
        let told = explain(message);
        assert!(!told.sentence.is_empty() && !told.remedies.is_empty(), "{message:?}");
    }
    !found.is_empty()
}

/// Checks that all references in a recording's tables are valid and that the basic analyses succeed.
fn check(recording: &Recording) {
    let ops = &recording.ops;
    assert!([ops.duration_ns.len(), ops.depth.len(), ops.name.len(), ops.forward.len()].iter().all(|&n| n == ops.len()));
    assert!(ops.lane.iter().all(|&l| usize::from(l) < ops.lanes.len()));
    assert!(ops.start_ns.windows(2).all(|w| w[0] <= w[1]));
    for device in &recording.devices {
        let events = &device.events;
        let n = events.len();
        let columns = [events.time_us.len(), events.address.len(), events.size.len(), events.stream.len(), events.pool.len()];
        assert!(columns.iter().all(|&len| len == n) && events.stack.len() == n, "{columns:?} of {n}");
        assert!(events.notes.iter().all(|note| (note.event as usize) < n));
        assert!(events.notes.windows(2).all(|w| w[0].event <= w[1].event));
        assert!(events.stack.iter().all(|s| !s.is_some() || (s.0 as usize) < recording.stacks.len()));
        assert!(events.stream.iter().all(|s| usize::from(s.0) < device.streams.len()));
        assert!(device.segments.iter().all(|s| device.blocks_of(s).len() == (s.blocks.end - s.blocks.start) as usize));
        assert!(device.bands.time_us.len() == device.bands.bytes.len());
        assert!(device.bands.time_us.windows(2).all(|w| w[0] <= w[1]));
        if n.max(device.blocks.len()) > MOST_EVENTS {
            continue;
        }
        let Ok(tables) = DeviceTables::build(device, &Progress::new()) else { continue };
        for event in [NO_EVENT, 0, (n / 2) as u32, (n as u32).wrapping_sub(1)] {
            if event != NO_EVENT && event as usize >= n {
                continue;
            }
            let state = tables.states.at(device, &tables.lifetimes, event);
            let blocks: u64 = state.segments.iter().map(|s| state.blocks_of(s).len() as u64).sum();
            assert!(blocks <= state.blocks.len() as u64);
            assert!(state.totals.active >= state.totals.allocated, "{:?} at {event}", state.totals);
        }
    }
}
