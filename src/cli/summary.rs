//! `vramscope summary FILE…`: what a recording holds, and its peaks.

pub(super) mod doing;
pub(super) mod text;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;

use self::doing::Doing;
use super::args::SummaryArgs;
use super::watched::{Watched, watched};
use super::{Failure, not_written, open_stats, open_with, print, print_json};
use vramscope_core::compare::join::Join;
use vramscope_core::diagnose::counted::counted_sentence;
use vramscope_core::diagnose::oom::examine;
use vramscope_core::diagnose::stats_check::{StatsVerdict, judge_stats};
use vramscope_core::diagnose::vendor::Words;
use vramscope_core::inference::Caps;
use vramscope_core::model::{
    Action, BlockState, CATEGORIES, Clock, DeviceRecording, LoadWarning, MemoryStats, PoolId, Progress, Recording, StatsKind,
    WarningKind,
};
use vramscope_core::tables::{DeviceTables, NO_EVENT, Quantity};

/// The JSON object of one file. Sizes are bytes. Times are microseconds since the zero point that `clock` names, usually the
/// epoch.
#[derive(Debug, Serialize)]
pub struct Summary {
    pub(super) file: String,
    pub(super) format: &'static str,
    /// The recording is a prediction.
    never_ran: bool,
    pub(super) load: Load,
    pub(super) devices: Vec<DeviceSummary>,
    /// Indices of the devices in the order of the text: first the one that ran out of memory or has the highest peak.
    #[serde(skip)]
    order: Vec<usize>,
    /// What the program was doing on the device that held most (its entry in `devices` has this too); null when no block is
    /// known.
    #[serde(flatten)]
    pub(super) doing: Option<Doing>,
    /// Files of the same run that were added.
    added: Vec<Addition>,
    /// PyTorch's counters compared with the snapshot.
    pub(super) stats: Vec<StatsVerdict>,
    /// PyTorch's counters when the file holds nothing else, in the order of `devices`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) counters: Vec<Counted>,
}

impl Summary {
    /// The devices in the order of the text.
    pub(super) fn in_order(&self) -> impl Iterator<Item = &DeviceSummary> {
        self.order.iter().filter_map(|&i| self.devices.get(i))
    }
}

/// Counters as they were written.
#[derive(Debug, Serialize)]
pub(super) struct Counted {
    /// The call that wrote them: `memory_stats`.
    pub(super) kind: &'static str,
    /// Bytes and counts by PyTorch's own keys.
    pub(super) values: BTreeMap<String, u64>,
    /// How much a counter may exceed its value, when the source rounds down. Exact counters are left out.
    pub(super) rounding: BTreeMap<String, u64>,
    pub(super) sentence: String,
    #[serde(skip)]
    pub(super) stats: MemoryStats,
}

impl From<&MemoryStats> for Counted {
    fn from(stats: &MemoryStats) -> Self {
        Counted {
            kind: stats.kind.name(),
            values: stats.values.iter().map(|(k, c)| (k.clone(), c.value)).collect(),
            rounding: stats.values.iter().filter(|(_, c)| c.slack > 0).map(|(k, c)| (k.clone(), c.slack)).collect(),
            sentence: counted_sentence(stats),
            stats: stats.clone(),
        }
    }
}

#[derive(Debug, Serialize)]
struct Addition {
    #[serde(flatten)]
    join: Join,
    sentence: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Load {
    /// Time to read the file.
    pub(super) seconds: f64,
    pub(super) analysis_seconds: f64,
    pub(super) events: u64,
    pub(super) bytes: u64,
    /// A caveat when the file is cut short or has nonsensical values.
    pub(super) caveat: Option<String>,
    pub(super) warnings: Vec<LoadWarning>,
}

#[derive(Debug, Serialize)]
pub(super) struct DeviceSummary {
    #[serde(skip)]
    pub(super) label: String,
    /// How the trace contradicts the final state.
    #[serde(skip)]
    pub(super) contradiction: Option<String>,
    pub(super) index: i32,
    pub(super) kind: &'static str,
    pub(super) name: Option<String>,
    pub(super) capacity_bytes: Option<u64>,
    pub(super) limit_bytes: Option<u64>,
    pub(super) alloc_conf: Option<String>,
    pub(super) events: u64,
    /// Samples of the whole card (NVML), not of the trace.
    pub(super) samples: u64,
    /// Number of `alloc` events. Blocks that were live before the trace are not counted.
    pub(super) allocations: u64,
    /// `amd` or `intel`, if the recording shows it. PyTorch uses the name `cuda` for both NVIDIA and AMD.
    pub(super) vendor: Option<&'static str>,
    /// Blocks that were live before the trace began.
    pub(super) live_before: u64,
    /// True when the file has neither addresses nor totals (PyTorch 1.8 and 1.9). Bytes then count only what the recording shows,
    /// on top of an unknown amount.
    pub(super) relative: bool,
    /// The file's totals are higher than its events, so its segments and blocks are only a part.
    #[serde(skip)]
    pub(super) is_partial: bool,
    /// At the end of the recording, like `blocks`.
    pub(super) segments: u64,
    pub(super) blocks: u64,
    /// Blocks that the program holds.
    #[serde(skip)]
    pub(super) live_blocks: u64,
    /// Streams that a segment or an allocation belongs to; the same for pools.
    pub(super) streams: u64,
    pub(super) pools: u64,
    /// Ranges. Start and end count as one.
    pub(super) annotations: u64,
    pub(super) time_us: Option<[i64; 2]>,
    /// The zero point of times: `epoch`, `day` (midnight of an unnamed day) or `start` (of the file).
    pub(super) clock: &'static str,
    #[serde(skip)]
    pub(super) counts_from: Clock,
    /// Null when the file does not record it.
    #[serde(serialize_with = "or_null")]
    pub(super) reserved_bytes: Level,
    #[serde(serialize_with = "or_null")]
    pub(super) active_bytes: Level,
    #[serde(serialize_with = "or_null")]
    pub(super) allocated_bytes: Level,
    /// Null when the file has only rounded sizes (PyTorch's profiler).
    pub(super) requested_bytes: Option<Level>,
    /// Allocations continued after the last failure.
    #[serde(skip)]
    pub(super) is_over_failures: bool,
    pub(super) ooms: Vec<Oom>,
    /// Its steps, phases and peak; null when no block is known.
    #[serde(flatten)]
    pub(super) doing: Option<Doing>,
    /// Live bytes by category, from a memory timeline.
    pub(super) bands: Option<Bands>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) watched: Option<Watched>,
}

impl DeviceSummary {
    /// Fills in the levels from PyTorch's counters, when there is nothing else.
    fn fill_in(&mut self, stats: &MemoryStats) {
        let pool = if stats.kind == StatsKind::Host { "" } else { ".all" };
        let level = |group: &str| {
            let get = |figure: &str| stats.get(&format!("{group}{pool}.{figure}"));
            let (end, peak) = (get("current")?, get("peak").or(get("current"))?);
            Some(Level { is_known: true, end: end.value, peak: peak.value, peak_event: None, exact: end.slack + peak.slack == 0 })
        };
        let or_nothing = |level: Option<Level>| level.unwrap_or_default();
        let is_host = stats.kind == StatsKind::Host;
        self.reserved_bytes = or_nothing(level(if is_host { "allocated_bytes" } else { "reserved_bytes" }));
        self.active_bytes = or_nothing(level("active_bytes"));
        self.allocated_bytes = or_nothing(level(if is_host { "active_bytes" } else { "allocated_bytes" }));
        self.requested_bytes = level("requested_bytes");
        self.segments = stats.get("segment.all.current").or(stats.get("allocations.current")).map_or(0, |c| c.value);
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Bands {
    pub(super) rows: u64,
    /// The highest sum of all categories, and when it was first reached.
    pub(super) peak_bytes: u64,
    pub(super) peak_time_us: i64,
    pub(super) categories: Vec<Band>,
}

#[derive(Debug, Serialize)]
pub(super) struct Band {
    pub(super) category: &'static str,
    /// Its own peak, its value at the peak of the sum, and its value at the end.
    pub(super) most_bytes: u64,
    pub(super) at_peak_bytes: u64,
    pub(super) end_bytes: u64,
}

/// A level that is 0 because the file does not record it becomes null.
fn or_null<S: serde::Serializer>(level: &Level, serializer: S) -> Result<S::Ok, S::Error> {
    Some(level).filter(|level| level.is_known).serialize(serializer)
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Level {
    #[serde(skip)]
    pub(super) is_known: bool,
    pub(super) end: u64,
    pub(super) peak: u64,
    /// The first event after which the peak was reached; null when that was before the first event.
    pub(super) peak_event: Option<u32>,
    /// False when the file lacks the sizes of some blocks.
    pub(super) exact: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Oom {
    pub(super) event: u32,
    pub(super) requested_bytes: u64,
    /// Null when the source does not record it (profiler traces, RMM logs).
    pub(super) device_free_bytes: Option<u64>,
    /// For the last failure of a device: why it failed, as in the answer of `oom`.
    #[serde(skip)]
    pub(super) why: Option<String>,
}

#[derive(Debug, Serialize)]
struct Many {
    files: Vec<Summary>,
    errors: Vec<NotRead>,
}

#[derive(Debug, Serialize)]
struct NotRead {
    file: String,
    error: String,
}

/// Writes a summary of each file. A file that fails does not affect the others. The error has one sentence and one line per
/// failed file.
pub fn run(args: &SummaryArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let (files, json) = (&args.files, args.json);
    if files.len() > 1 && !(args.with.is_empty() && args.stats.is_empty()) {
        let why = "--with and --stats go with one recording: name the snapshot they belong to alone";
        return Err(Failure::Usage(why.to_owned()));
    }
    let mut many = Many { files: Vec::new(), errors: Vec::new() };
    for path in files {
        match open_with(path, &args.with).and_then(|(recording, joins)| summarise(path, &recording, joins, &args.stats)) {
            Ok(summary) if json => many.files.push(summary),
            Ok(summary) => {
                // Each answer is shown before the next file is read.
                let gap = if many.files.is_empty() { "" } else { "\n" };
                print(out, &format!("{gap}{}", text::of(&summary)))?;
                out.flush().map_err(|e| not_written(&e))?;
                many.files.push(summary);
            }
            Err(error) => many.errors.push(NotRead { file: path.display().to_string(), error }),
        }
    }
    if json {
        match (files.len(), many.files.first()) {
            (1, Some(one)) => print_json(out, one)?,
            (1, None) => {}
            _ => print_json(out, &many)?,
        }
    }
    if many.errors.is_empty() {
        return Ok(());
    }
    Err(many.errors.into_iter().map(|f| f.error).collect::<Vec<_>>().join("\n").into())
}

/// What a device held at its peak, as a sentence without a full stop; `None` when no block is known.
pub(super) fn at_peak(recording: &Recording, device: &DeviceRecording, tables: &DeviceTables) -> Result<Option<String>, String> {
    Ok(Doing::of(recording, device, tables)?.map(|doing| doing.peak().to_owned()))
}

/// The summary of an open recording.
pub fn summarise(path: &Path, recording: &Recording, joins: Vec<Join>, stats: &[PathBuf]) -> Result<Summary, String> {
    let build = |device: &DeviceRecording| DeviceTables::build(device, &Progress::new()).map_err(|e| e.to_string());
    summarise_by(path, recording, joins, stats, &mut |device| {
        let tables = build(&recording.devices[device])?;
        summarise_device(recording, &recording.devices[device], &tables)
    })
}

/// Like [`summarise`], with tables that already exist, one per device.
pub(super) fn summarise_with(path: &Path, recording: &Recording, tables: &[DeviceTables]) -> Result<Summary, String> {
    summarise_by(path, recording, Vec::new(), &[], &mut |device| {
        summarise_device(recording, &recording.devices[device], &tables[device])
    })
}

fn summarise_by(
    path: &Path,
    recording: &Recording,
    joins: Vec<Join>,
    stats: &[PathBuf],
    of_device: &mut dyn FnMut(usize) -> Result<DeviceSummary, String>,
) -> Result<Summary, String> {
    let started = Instant::now();
    if recording.has_only_counters() && !stats.is_empty() {
        return Err(format!("{}: --stats compares counters with a snapshot, and this file has only counters", path.display()));
    }
    let kind = WarningKind::StateMismatch;
    let contradiction = |text| LoadWarning { kind, count: 1, first_offset: None, text };
    let mut devices: Vec<DeviceSummary> = (0..recording.devices.len()).map(of_device).collect::<Result<_, _>>()?;
    if recording.has_only_counters() {
        for (device, (_, stats)) in devices.iter_mut().zip(&recording.stats) {
            device.fill_in(stats);
        }
    }
    let contradictions: Vec<String> = devices.iter_mut().filter_map(|d| d.contradiction.take()).collect();
    let caveat = recording.report.caveat().into_iter().chain((!contradictions.is_empty()).then(|| super::DOUBTFUL.to_owned()));
    let caveat = Some(caveat.collect::<Vec<_>>().join("; ")).filter(|c| !c.is_empty());
    Ok(Summary {
        file: path.display().to_string(),
        format: recording.source.format.name(),
        never_ran: recording.source.format.never_ran(),
        load: Load {
            seconds: recording.report.seconds,
            analysis_seconds: started.elapsed().as_secs_f64(),
            events: recording.devices.iter().map(|d| d.events.len() as u64).sum(),
            bytes: recording.source.bytes,
            caveat,
            warnings: recording.report.warnings.iter().cloned().chain(contradictions.into_iter().map(contradiction)).collect(),
        },
        order: recording.busiest_first(),
        doing: devices.iter().filter_map(|d| d.doing.as_ref()).max_by_key(|d| d.peak.bytes).cloned(),
        devices,
        added: joins.into_iter().map(|join| Addition { sentence: join.sentence(), join }).collect(),
        stats: stats
            .iter()
            .map(|p| Ok(judge_stats(recording, &p.display().to_string(), &open_stats(p)?)))
            .collect::<Result<_, String>>()?,
        counters: recording.stats.iter().filter(|_| recording.has_only_counters()).map(|(_, s)| Counted::from(s)).collect(),
    })
}

fn bands(device: &DeviceRecording) -> Option<Bands> {
    let bands = &device.bands;
    let (at, peak_bytes) = bands.peak()?;
    let (peak, end) = (bands.bytes.get(at)?, bands.bytes.last()?);
    let most = |i: usize| bands.bytes.iter().map(|row| row[i]).max().unwrap_or(0);
    let categories = CATEGORIES.iter().enumerate();
    Some(Bands {
        rows: bands.len() as u64,
        peak_bytes,
        peak_time_us: *bands.time_us.get(at)?,
        categories: categories
            .map(|(i, &category)| Band { category, most_bytes: most(i), at_peak_bytes: peak[i], end_bytes: end[i] })
            .collect(),
    })
}

fn summarise_device(recording: &Recording, device: &DeviceRecording, tables: &DeviceTables) -> Result<DeviceSummary, String> {
    let events = &device.events;
    let is_exact = tables.disagreement.is_none() && !recording.is_relative(device);
    let level = |q| {
        let (peak, event) = tables.curves.peak(q);
        let exact = is_exact && tables.curves.is_exact(q);
        Level { is_known: true, end: tables.curves.end(q), peak, peak_event: some_event(event), exact }
    };
    // Without a recorded final state, the final state follows from the events.
    let (segments, blocks, live_blocks) = if device.has_final_state {
        let live = device.blocks.iter().filter(|b| b.state == BlockState::Active).count();
        (device.segments.len(), device.blocks.len(), live as u64)
    } else {
        let last = (events.len() as u32).checked_sub(1).unwrap_or(NO_EVENT);
        let state = tables.states.at(device, &tables.lifetimes, last);
        (state.segments.len(), state.blocks.len(), state.live_and_pending().0)
    };
    let mut summary = DeviceSummary {
        label: device.id.to_string(),
        index: device.id.index,
        kind: device.id.kind.name(),
        name: device.name.clone(),
        capacity_bytes: device.capacity,
        limit_bytes: device.limit,
        alloc_conf: alloc_conf(device),
        events: events.len() as u64,
        samples: device.samples.len() as u64,
        allocations: events.action.iter().filter(|&&a| a == Action::Alloc).count() as u64,
        vendor: Words::of(device).vendor(),
        live_before: tables.lifetimes.initial_count() as u64,
        relative: recording.is_relative(device),
        is_partial: !tables.curves.has_all_segments(),
        segments: segments as u64,
        blocks: blocks as u64,
        live_blocks,
        streams: streams_used(device),
        pools: pools_used(device),
        annotations: device.annotations.len() as u64,
        time_us: events.time_range().map(|(first, last)| [first, last]),
        clock: recording.clock().name(),
        counts_from: recording.clock(),
        // The file's own total. On the CPU it does not come from an allocator, and nothing else has it.
        reserved_bytes: match device.source_totals.mapped {
            0 => level(Quantity::Reserved),
            peak => Level { is_known: true, end: 0, peak, peak_event: None, exact: true },
        },
        active_bytes: level(Quantity::Active),
        allocated_bytes: level(Quantity::Allocated),
        requested_bytes: device.can_show.requested.is_known().then(|| level(Quantity::Requested)),
        is_over_failures: events.last_oom().is_some_and(|event| events.allocates_after(event)),
        ooms: ooms(device, tables)?,
        doing: Doing::of(recording, device, tables)?,
        bands: bands(device),
        watched: watched(device),
        contradiction: tables.disagreement.clone(),
    };
    summary.reserved_bytes.is_known = device.source_totals.mapped > 0 || text::knows_reserved(&summary);
    Ok(summary)
}

/// The device's failures. The last one has its reason.
fn ooms(device: &DeviceRecording, tables: &DeviceTables) -> Result<Vec<Oom>, String> {
    let events = &device.events;
    let of = |event: u32| Oom {
        event,
        requested_bytes: events.size[event as usize],
        device_free_bytes: events.device_free_known(event),
        why: None,
    };
    let mut all: Vec<Oom> = events.ooms().into_iter().map(of).collect();
    if let Some(last) = all.last_mut() {
        let caps = Caps::of(device, None, &Progress::default()).map_err(|e| e.to_string())?;
        let state = tables.states.at(device, &tables.lifetimes, last.event);
        last.why = examine(device, tables, last.event, &state, &caps).map(|a| a.sentence);
    }
    Ok(all)
}

fn some_event(event: u32) -> Option<u32> {
    (event != NO_EVENT).then_some(event)
}

/// The recorded `PYTORCH_CUDA_ALLOC_CONF`; `None` when no settings were recorded or the variable was empty.
fn alloc_conf(device: &DeviceRecording) -> Option<String> {
    device.settings.raw.iter().find(|(k, v)| k.ends_with("ALLOC_CONF") && !v.is_empty()).map(|(_, v)| v.clone())
}

/// Events without a stream of their own (out of memory, snapshot) do not count.
fn streams_used(device: &DeviceRecording) -> u64 {
    let of_events = device.events.action.iter().zip(&device.events.stream);
    let of_events = of_events.filter(|(a, _)| !matches!(a, Action::Oom | Action::Snapshot | Action::Unknown)).map(|(_, s)| s.0);
    distinct(of_events.chain(device.segments.iter().map(|s| s.stream.0)), device.streams.len())
}

fn pools_used(device: &DeviceRecording) -> u64 {
    let known = device.segments.iter().map(|s| s.pool).chain(device.events.pool.iter().copied());
    distinct(known.filter(|&p| p != PoolId::UNKNOWN).map(|p| p.0), device.pools.len())
}

/// The number of distinct ids below `known`.
fn distinct(ids: impl Iterator<Item = u16>, known: usize) -> u64 {
    let mut used = vec![false; known];
    for id in ids {
        if let Some(used) = used.get_mut(usize::from(id)) {
            *used = true;
        }
    }
    used.into_iter().filter(|&u| u).count() as u64
}
