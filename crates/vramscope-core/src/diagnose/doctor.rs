//! [`lacks`]: what a recording lacks, and the line of code that would record it. The window shows them where data is missing.

use super::limits::{Limit, RECORD};
use super::source_limits::{NO_STEPS, NO_TIMES, NOT_WATCHED, records_history, records_stacks, why_no_memory, why_no_segments};
use crate::anatomy::Anatomy;
use crate::model::{
    Cancelled, DeviceId, DeviceKind, DeviceRecording, Format, Known, LiveTrack, Progress, Recording, WarningKind,
};
use crate::tables::DeviceTables;
use crate::units::told_apart;

/// Something that a recording lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// A short name: `history`, `stacks`, `steps`.
    pub what: &'static str,
    /// A description in one or two sentences, ending with a colon if there is a line to copy.
    pub sentence: String,
    /// The line of code or the command that records it.
    pub line: Option<&'static str>,
    /// The devices that lack it; empty for the whole recording.
    pub devices: Vec<DeviceId>,
}

/// This command starts the program and records everything that a snapshot can contain.
const RUN: &str = "vramscope run --at-oom snapshots train.py";

/// What a recording lacks, most important first; empty if nothing is missing. Builds the tables and the anatomy of each device.
pub fn lacks(recording: &Recording, progress: &Progress) -> Result<Vec<Lack>, Cancelled> {
    let mut found: Vec<Lack> = Vec::new();
    for warning in &recording.report.warnings {
        if matches!(warning.kind, WarningKind::Truncated | WarningKind::Changed) {
            found.push(Lack { what: "the end", sentence: ended(&warning.text), line: None, devices: Vec::new() });
        }
    }
    let mut add = |device: Option<DeviceId>, what: &'static str, sentence: String, line: Option<&'static str>| match found
        .iter_mut()
        .find(|l| l.sentence == sentence)
    {
        Some(same) => same.devices.extend(device),
        None => found.push(Lack { what, sentence, line, devices: device.into_iter().collect() }),
    };
    if recording.has_only_counters() {
        let sentence = "These are PyTorch's counters: totals without events or blocks. A memory snapshot has them:".to_owned();
        add(None, "history", sentence, Some(RECORD));
        return Ok(found);
    }
    if recording.devices.iter().all(|d| !d.has_blocks() && d.events.is_empty() && d.samples.is_empty() && d.bands.is_empty()) {
        add(None, "memory", format!("The recording {}.", why_no_memory(recording)), Some(records_history(recording)));
        return Ok(found);
    }
    for device in &recording.devices {
        let id = Some(device.id);
        if let Some(track) = &device.live {
            of_a_watch(device, track, &mut |what, sentence, line| add(id, what, sentence, line));
            continue;
        }
        if !device.bands.is_empty() && device.events.is_empty() {
            let sentence = "These are sums by category over time, without events or blocks. The raw form of a memory timeline (a name that ends \
                            in .raw.json.gz) has events, and a memory snapshot more:";
            add(id, "history", sentence.to_owned(), Some(RECORD));
            continue;
        }
        of_a_history(recording, device, progress, &mut |what, sentence, line| add(id, what, sentence, line))?;
    }
    // If every device lacks it, report it for the whole recording.
    for lack in &mut found {
        if lack.devices.len() == recording.devices.len() {
            lack.devices.clear();
        }
    }
    Ok(found)
}

type Add<'a> = &'a mut dyn FnMut(&'static str, String, Option<&'static str>);

/// Checks a recording of an allocator: events, blocks, or both.
fn of_a_history(recording: &Recording, device: &DeviceRecording, progress: &Progress, add: Add<'_>) -> Result<(), Cancelled> {
    if !device.has_blocks() && device.events.is_empty() {
        return Ok(());
    }
    let tables = DeviceTables::build(device, progress)?;
    let peak = tables.curves.peak_event();
    let older = held_before(device, &tables, peak);
    if let Some(sentence) = &older {
        add("the start", sentence.clone(), Some(RECORD));
    }
    // A limit without a line would only repeat the note about older memory.
    let limit = Limit::of(recording, device, &tables, peak).filter(|limit| older.is_none() || limit.line.is_some());
    if let Some(limit) = &limit {
        let is_stacks = limit.line == Some(records_stacks(recording)) && limit.line != Some(RECORD);
        add(if is_stacks { "stacks" } else { "history" }, limit.sentence.clone(), limit.line);
    }
    if let Known::No(_) = device.can_show.segments {
        let why = why_no_segments(device);
        // PyTorch's CPU allocator has no segments, so nothing can record them.
        match is_of_pytorch(recording) && device.id.kind != DeviceKind::Cpu {
            true => add("segments", format!("{}:", why.trim_end_matches('.')), Some(RECORD)),
            false => add("segments", ended(why), None),
        }
    }
    for (what, known) in [("requested sizes", device.can_show.requested), ("addresses", device.can_show.addresses)] {
        if let Known::No(why) = known {
            add(what, ended(why), None);
        }
    }
    if !device.events.is_empty() && !device.events.has_time {
        add("times", NO_TIMES.to_owned(), None);
    }
    if is_of_pytorch(recording)
        && tables.lifetimes.has_allocations()
        && Anatomy::read(recording, device, &tables).steps.is_empty()
    {
        add("steps", NO_STEPS.0.to_owned(), Some(NO_STEPS.1));
    }
    if device.samples.is_empty() && is_of_pytorch(recording) {
        add("the rest of the card", NOT_WATCHED.0.to_owned(), Some(NOT_WATCHED.1));
    }
    Ok(())
}

/// A note if most of what a trace holds at its peak was allocated before profiling began.
fn held_before(device: &DeviceRecording, tables: &DeviceTables, peak: u32) -> Option<String> {
    let live = tables.states.live_at(&tables.lifetimes, peak);
    let known = live.into_iter().fold(0u64, |sum, id| sum.saturating_add(tables.lifetimes.block_size(id)));
    let before = device.source_totals.beyond_parts(peak, known).before;
    let all = device.source_totals.allocated.at(peak)?;
    (before.saturating_mul(2) > all).then(|| {
        let is_all = before.saturating_mul(100) >= all.saturating_mul(99);
        let [before, all] = told_apart([before, all]);
        let part = if is_all { "Nearly all" } else { &before };
        format!(
            "{part} of the {all} at the peak was held before profiling began: the trace has no block and no stack for them. \
             Called before the model is made, this records every block:"
        )
    })
}

fn of_a_watch(device: &DeviceRecording, track: &LiveTrack, add: Add<'_>) {
    for sentence in track.trouble.iter().chain(&track.limits) {
        add("what the driver tells", ended(sentence), None);
    }
    let has_torch = track.processes.iter().any(|p| p.points.iter().any(|point| point.torch.is_some()));
    if !track.processes.is_empty() && !has_torch {
        let sentence = "Only the driver's totals were recorded: how much of a program's memory PyTorch uses, and how much it only keeps, is not known. \
                        A program that is started like this tells it:";
        add("PyTorch's figures", sentence.to_owned(), Some("vramscope run train.py"));
    }
    if !device.has_blocks() {
        let sentence = "This recording is of a live watch: it has how much memory was used over time, and not which tensors and lines of \
                        code used it. A memory snapshot has that, and a program that is started like this writes one when it fails:";
        add("allocations", sentence.to_owned(), Some(RUN));
    }
}

/// True for files that PyTorch writes; the missing data can be recorded another way.
fn is_of_pytorch(recording: &Recording) -> bool {
    !matches!(recording.source.format, Format::JaxMemoryProfile | Format::RmmLog)
}

/// Adds a full stop if the sentence has no final mark.
fn ended(sentence: &str) -> String {
    if sentence.ends_with(['.', ':', '!', '?']) { sentence.to_owned() } else { format!("{sentence}.") }
}
