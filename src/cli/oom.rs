//! `vramscope oom FILE`: why each request failed, with the blocks in the way.

use std::path::Path;

use serde::Serialize;

use crate::analysis::oom::{Autopsy, examine};
use crate::analysis::{DeviceTables, State};
use crate::model::{DeviceRecording, Progress, Recording, StackId};
use crate::units::{Address, Bytes, counted};

/// Blockers and stacks listed; the rest is counted.
const LISTED: usize = 20;

/// The JSON object of the command-line contract.
#[derive(Debug, Serialize)]
pub struct OomReport {
    /// True when the file ends in the middle: what came after is not known.
    pub truncated: bool,
    /// One entry an out-of-memory event.
    pub ooms: Vec<OomEntry>,
}

/// One failed request. Bytes are integers.
#[derive(Debug, Serialize)]
pub struct OomEntry {
    device: i32,
    event: u32,
    requested_bytes: u64,
    segment_bytes: u64,
    device_free_bytes: u64,
    reserved_bytes: u64,
    allocated_bytes: u64,
    hole_bytes: u64,
    holes: u64,
    largest_hole_bytes: u64,
    pool: &'static str,
    limit_span_bytes: Option<[u64; 2]>,
    verdict: &'static str,
    /// The answer.
    pub sentence: String,
    stack: Vec<String>,
    blockers: Vec<BlockerEntry>,
    blockers_total: usize,
    enough_alone: usize,
    way_out: Option<WayOutEntry>,
    top_live: Vec<LiveEntry>,
    stacks_total: usize,
}

#[derive(Debug, Serialize)]
struct BlockerEntry {
    address: u64,
    bytes: u64,
    strands_bytes: u64,
    hole_if_freed_bytes: u64,
    stack: Vec<String>,
}

#[derive(Debug, Serialize)]
struct LiveEntry {
    bytes: u64,
    count: u64,
    stack: Vec<String>,
}

#[derive(Debug, Serialize)]
struct WayOutEntry {
    sentence: String,
    blocks: usize,
    bytes: u64,
    segments: usize,
    room_bytes: u64,
    is_optimal: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// One sentence when the file can not be opened.
pub fn run(path: &Path, json: bool) -> Result<String, String> {
    let progress = Progress::new();
    let recording = super::open(path)?;
    let report = report(&recording, &progress)?;
    if json {
        return serde_json::to_string_pretty(&report).map_err(|e| e.to_string());
    }
    Ok(text(&report, &recording))
}

/// The autopsy of every out-of-memory event of every device.
///
/// # Errors
/// When cancelled.
pub fn report(recording: &Recording, progress: &Progress) -> Result<OomReport, String> {
    let mut ooms = Vec::new();
    for device in &recording.devices {
        let events = device.events.ooms();
        if events.is_empty() {
            continue;
        }
        let tables = DeviceTables::build(device, progress).map_err(|e| e.to_string())?;
        for event in events {
            let state = tables.states.at(device, &tables.lifetimes, event);
            if let Some(autopsy) = examine(device, &tables, event, &state) {
                ooms.push(entry(recording, device, &tables, &state, &autopsy));
            }
        }
    }
    let truncated = recording.report.warnings.iter().any(|w| w.kind == crate::model::WarningKind::Truncated);
    Ok(OomReport { truncated, ooms })
}

fn entry(recording: &Recording, device: &DeviceRecording, tables: &DeviceTables, state: &State, a: &Autopsy) -> OomEntry {
    let stack = |id: StackId| frames(recording, id);
    OomEntry {
        device: device.id.index,
        event: a.event,
        requested_bytes: a.requested,
        segment_bytes: a.segment,
        device_free_bytes: a.device_free,
        reserved_bytes: a.reserved,
        allocated_bytes: a.allocated,
        hole_bytes: a.holes.bytes,
        holes: a.holes.count,
        largest_hole_bytes: a.holes.largest,
        pool: a.class.name(),
        limit_span_bytes: a.limit.map(|(low, high)| [low, high]),
        verdict: a.verdict.name(),
        sentence: a.sentence.clone(),
        stack: stack(a.stack),
        blockers: a
            .blockers
            .iter()
            .take(LISTED)
            .map(|b| {
                let block = &state.blocks[b.block];
                BlockerEntry {
                    address: block.address,
                    bytes: block.size,
                    strands_bytes: b.strands(),
                    hole_if_freed_bytes: b.hole_if_freed(),
                    stack: stack(tables.lifetimes.stack(device, block.lifetime)),
                }
            })
            .collect(),
        blockers_total: a.blockers.len(),
        enough_alone: a.enough_alone,
        way_out: a.way_out.as_ref().map(|w| WayOutEntry {
            sentence: w.sentence(),
            blocks: w.blocks.len(),
            bytes: w.bytes,
            segments: w.segments.len(),
            room_bytes: w.room,
            is_optimal: w.is_optimal,
        }),
        top_live: a
            .top_live
            .iter()
            .take(LISTED)
            .map(|l| LiveEntry { bytes: l.bytes, count: l.count, stack: stack(l.stack) })
            .collect(),
        stacks_total: a.top_live.len(),
    }
}

/// A stack as lines, innermost first: `file:line name`.
#[must_use]
pub fn frames(recording: &Recording, stack: StackId) -> Vec<String> {
    crate::analysis::stack_text(&recording.stacks, stack).lines().map(str::to_owned).collect()
}

fn text(report: &OomReport, recording: &Recording) -> String {
    use std::fmt::Write as _;
    if report.ooms.is_empty() {
        let cut =
            if report.truncated { " before the place where the file breaks off; copy it again, it is not whole" } else { "" };
        return format!("{}: no out-of-memory event was recorded{cut}.\n", recording.source.name);
    }
    let mut out = String::new();
    for (i, o) in report.ooms.iter().enumerate() {
        // Writing to a String can not fail.
        let _ = writeln!(
            out,
            "Out of memory {} of {}: device {}, event {}: {}",
            i + 1,
            report.ooms.len(),
            o.device,
            o.event,
            o.verdict
        );
        let _ = writeln!(out, "  {}", o.sentence);
        if let Some(w) = &o.way_out {
            let _ = writeln!(out, "  {}", w.sentence);
        }
        for (label, value) in [
            ("request", o.requested_bytes),
            ("largest hole", o.largest_hole_bytes),
            ("free in holes", o.hole_bytes),
            ("free on the device", o.device_free_bytes),
            ("reserved", o.reserved_bytes),
            ("allocated", o.allocated_bytes),
        ] {
            let _ = writeln!(out, "    {label:<20}{:>14}", Bytes(value).to_string());
        }
        if !o.stack.is_empty() {
            let _ = writeln!(out, "  the request came from");
            for frame in o.stack.iter().take(6) {
                let _ = writeln!(out, "    {frame}");
            }
        }
        if !o.blockers.is_empty() {
            let shown = o.blockers.len().min(8);
            let _ = writeln!(out, "  blockers, {shown} of {}", counted(o.blockers_total as u64, "block", "blocks"));
            for b in o.blockers.iter().take(8) {
                let at = b.stack.first().map_or("no stack recorded", String::as_str);
                let (size, strands) = (Bytes(b.bytes).to_string(), Bytes(b.strands_bytes).to_string());
                let _ = writeln!(out, "    {}  {size:>12}  strands {strands:>12}  {at}", Address(b.address));
            }
        }
        let _ = writeln!(
            out,
            "  live at that instant, {} of {}",
            o.top_live.len().min(8),
            counted(o.stacks_total as u64, "stack", "stacks")
        );
        for l in o.top_live.iter().take(8) {
            let at = l.stack.first().map_or("no stack recorded", String::as_str);
            let _ = writeln!(out, "    {:>12}  {:>7} ×  {at}", Bytes(l.bytes).to_string(), l.count);
        }
    }
    out
}
