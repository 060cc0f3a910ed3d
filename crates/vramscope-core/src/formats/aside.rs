//! Data that a PyTorch snapshot has no place for: samples of the device and its processes; the device's name, capacity and limit;
//! that sizes are block sizes; that a run was only planned; and what the recording's own source lacks.
//!
//! When such a recording is written as a snapshot, these go as JSON text under a key of our own, [`KEY`]. PyTorch's viewer
//! ignores unknown keys; our reader restores the data, so that a diagnosis based on samples stays the same.

use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::export::snapshot::DevicePart;
use super::snapshot::MAX_DEVICES;
use crate::model::{DeviceKind, DeviceRecording, Format, Known, LiveTrack, LoadReport, Recording, Sample, WarningKind};

/// The key in the snapshot's dictionary.
pub(super) const KEY: &str = "vramscope";

/// Version of the JSON. A field that is added later must have a default.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Aside {
    version: u32,
    devices: Vec<Beside>,
    /// Set for a run that never took place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    never_ran: Option<NeverRan>,
    /// Reasons to doubt the figures of the source, such as a cut file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    doubts: Vec<Doubt>,
}

/// A warning of the source, with how often it occurred.
#[derive(Serialize, Deserialize)]
struct Doubt {
    kind: WarningKind,
    count: u64,
    text: String,
}

/// Prefix of a doubt's text in a copy.
const OF_SOURCE: &str = "this is a copy of a file with this note: ";

fn doubts_of(report: &LoadReport) -> Vec<Doubt> {
    let doubtful = report.warnings.iter().filter(|w| w.kind.is_doubt());
    let own = |text: &str| text.strip_prefix(OF_SOURCE).unwrap_or(text).to_owned();
    doubtful.map(|w| Doubt { kind: w.kind, count: w.count, text: own(&w.text) }).collect()
}

/// Origin of a run that was never made.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum NeverRan {
    Plan,
    WhatIf,
}

impl NeverRan {
    fn of(format: Format) -> Option<Self> {
        match format {
            Format::Plan => Some(NeverRan::Plan),
            Format::WhatIf => Some(NeverRan::WhatIf),
            _ => None,
        }
    }

    fn format(self) -> Format {
        match self {
            NeverRan::Plan => Format::Plan,
            NeverRan::WhatIf => Format::WhatIf,
        }
    }
}

/// Data of one device.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Beside {
    /// Pinned host memory, which has no ordinal.
    is_host: bool,
    index: i32,
    name: Option<String>,
    capacity: Option<u64>,
    limit: Option<u64>,
    samples: Vec<Row>,
    live: Option<Box<LiveTrack>>,
    are_sizes_blocks: bool,
    /// Requested sizes are missing; block sizes are written instead.
    is_requested_unknown: bool,
}

/// A sample with its fields in the order of [`Sample`]; field names would be most of the text.
type Row = (i64, [Option<u64>; 8]);

fn row_of(s: &Sample) -> Row {
    (s.time_us, [s.used, s.driver, s.process, s.others, s.reserved, s.active, s.allocated, s.requested])
}

fn sample_of((time_us, [used, driver, process, others, reserved, active, allocated, requested]): Row) -> Sample {
    Sample { time_us, used, driver, process, others, reserved, active, allocated, requested }
}

/// The text for a recording's parts; `None` if they have no such data. `redact` omits names of people, programs and machines.
pub(super) fn text(recording: &Recording, parts: &[DevicePart], redact: bool) -> Option<String> {
    let devices: Vec<Beside> = parts
        .iter()
        .filter_map(|part| Some((part, recording.devices.get(part.device)?)))
        .filter(|(_, d)| {
            let has_facts = d.capacity.is_some() || d.limit.is_some() || d.name.is_some() || d.events.sizes_are_blocks;
            !d.samples.is_empty() || d.live.is_some() || has_facts || !d.can_show.requested.is_known()
        })
        .map(|(part, device)| {
            let times = times_of(part, device);
            let mut live = device.live.clone();
            if let Some(live) = &mut live {
                keep_within(live, &times);
                if redact {
                    anonymise(live);
                }
            }
            let within = |time: i64| times.as_ref().is_none_or(|t| t.contains(&time));
            Beside {
                is_host: device.id.kind == DeviceKind::Host,
                index: device.id.index,
                name: device.name.clone(),
                capacity: device.capacity,
                limit: device.limit,
                samples: device.samples.iter().filter(|s| within(s.time_us)).map(row_of).collect(),
                live,
                are_sizes_blocks: device.events.sizes_are_blocks,
                is_requested_unknown: !device.can_show.requested.is_known(),
            }
        })
        .collect();
    let never_ran = NeverRan::of(recording.source.format);
    let doubts = doubts_of(&recording.report);
    if devices.is_empty() && never_ran.is_none() && doubts.is_empty() {
        return None;
    }
    // Serialising numbers, strings and lists cannot fail.
    serde_json::to_string(&Aside { version: VERSION, devices, never_ran, doubts }).ok()
}

/// Restores the data on its devices; values in the snapshot itself have priority. Returns the format of a run that was never
/// made. The error is one sentence for a text that is not ours.
pub(super) fn put_back(
    text: &[u8],
    devices: &mut Vec<DeviceRecording>,
    report: &mut LoadReport,
) -> Result<Option<Format>, String> {
    let aside: Aside = serde_json::from_slice(text).map_err(|e| format!("the samples under '{KEY}' cannot be read: {e}"))?;
    if aside.version > VERSION {
        return Err(format!(
            "the samples under '{KEY}' are of a later version of vramscope ({}); they were left out",
            aside.version
        ));
    }
    for doubt in aside.doubts.into_iter().filter(|doubt| doubt.kind.is_doubt()) {
        report.warn_many(doubt.kind, doubt.count, None, || format!("{OF_SOURCE}{}", doubt.text));
    }
    let gpu_kind = devices.iter().map(|d| d.id.kind).find(|k| *k != DeviceKind::Host).unwrap_or_default();
    for beside in aside.devices {
        let kind = if beside.is_host { DeviceKind::Host } else { gpu_kind };
        let id = crate::model::DeviceId { kind, index: beside.index };
        let at = devices.iter().position(|d| d.id == id);
        if at.is_none() && devices.len() >= MAX_DEVICES as usize {
            return Err(format!("the samples under '{KEY}' are of more than {MAX_DEVICES} devices; the rest was left out"));
        }
        let at = at.unwrap_or_else(|| {
            devices.push(DeviceRecording { id, ..DeviceRecording::default() });
            devices.len() - 1
        });
        let device = &mut devices[at];
        device.name = device.name.take().or(beside.name);
        device.capacity = device.capacity.or(beside.capacity);
        device.limit = device.limit.or(beside.limit);
        device.samples = beside.samples.into_iter().map(sample_of).collect();
        device.samples.sort_by_key(|s| s.time_us);
        device.live = beside.live;
        device.events.sizes_are_blocks |= beside.are_sizes_blocks;
        if beside.is_requested_unknown {
            device.can_show.requested = Known::No(
                "It was exported from a trace, which has whole blocks only. A memory snapshot of the run has both sizes.",
            );
        }
    }
    Ok(aside.never_ran.map(NeverRan::format))
}

/// The time range of a part of a device; `None` for the whole device.
fn times_of(part: &DevicePart, device: &DeviceRecording) -> Option<RangeInclusive<i64>> {
    let events = &device.events;
    if !events.has_time || (part.events.start == 0 && part.events.end as usize >= events.len()) {
        return None;
    }
    let time = |event: u32| events.time_us.get(event as usize).copied();
    Some(time(part.events.start)?..=time(part.events.end.checked_sub(1)?)?)
}

fn keep_within(live: &mut LiveTrack, times: &Option<RangeInclusive<i64>>) {
    let Some(times) = times else { return };
    live.gauges.retain(|g| times.contains(&g.time_us));
    live.marks.retain(|m| times.contains(&m.time_us));
    live.gaps.retain(|g| g.from_us <= *times.end() && g.to_us >= *times.start());
    for process in &mut live.processes {
        // A point is valid until the next one, so the last point before the part is kept.
        let first = process.points.partition_point(|p| p.time_us <= *times.start()).saturating_sub(1);
        process.points.drain(..first);
        process.points.retain(|p| p.time_us <= *times.end());
    }
    live.processes.retain(|p| !p.points.is_empty());
}

fn anonymise(live: &mut LiveTrack) {
    live.uuid.clear();
    live.facts.clear();
    live.marks.iter_mut().for_each(|m| m.text = Arc::default());
    for process in &mut live.processes {
        for text in [&mut process.name, &mut process.command, &mut process.user] {
            text.clear();
        }
        process.container = None;
        process.note = None;
        process.facts = Arc::default();
    }
}
