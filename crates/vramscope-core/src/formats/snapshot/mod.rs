//! Allocator snapshots, written by `torch.cuda.memory._dump_snapshot` and similar calls, from PyTorch 1.11 to today.
//!
//! A snapshot is a dict (before 2.0 a list of segments). Unknown keys are counted, never fatal. Traces and segments are by device.

mod annotations;
mod columns;
mod decode;
mod json;
mod order;
mod plain;
mod segments;
mod settings;
mod stacks;
mod stream;
mod time_order;
mod trace;

use super::pickle::{Ended, Node, NodeId, Tree};
use super::{FormatError, aside};
use crate::model::{
    Annotations, DeviceId, DeviceKind, DeviceRecording, Format, LoadReport, Progress, Recording, Segment, SnapshotLists, Source,
    StackId, Stage, StrId, WarningKind,
};
use segments::RawSegment;
use stacks::{StackReader, items_of, unknown_key};
use stream::{Read, Trace};

/// The name of a device whose stacks pass through torch_npu. Its snapshots look like those of CUDA.
const ASCEND: &str = "Ascend NPU";
/// PyTorch stores device indices in eight bits.
pub(super) const MAX_DEVICES: i64 = 128;
/// Minimum bytes of a file per segment, block, annotation or event. A reference to an earlier object takes only two bytes in the
/// file but a whole object in memory, so this limit is what bounds memory.
const MIN_ITEM_BYTES: usize = 16;

/// Reads a pickled snapshot. Fails when the bytes are no plain pickle or hold no snapshot.
pub(crate) fn read_pickle(bytes: &[u8], name: &str, progress: &Progress) -> Result<Recording, FormatError> {
    // Each byte counts twice: scanned and decoded.
    progress.set_total(2 * bytes.len() as u64);
    let read = stream::read(bytes, progress).map_err(|error| error.named(name))?;
    let recording = assemble(read, name, Format::SnapshotPickle, progress)?;
    progress.set_done(2 * bytes.len() as u64);
    Ok(recording)
}

/// Reads a snapshot written as JSON. Fails when the bytes are no JSON or hold no snapshot.
pub(crate) fn read_json(bytes: &[u8], name: &str, progress: &Progress) -> Result<Recording, FormatError> {
    progress.set_total(bytes.len() as u64);
    let recording = assemble(json::read(bytes, name, progress)?, name, Format::SnapshotJson, progress)?;
    progress.set_done(bytes.len() as u64);
    Ok(recording)
}

#[derive(Default)]
struct Parts {
    segments: Option<NodeId>,
    traces: Option<NodeId>,
    settings: Option<NodeId>,
    annotations: Option<NodeId>,
    host_segments: Option<NodeId>,
    host_traces: Option<NodeId>,
    aside: Option<NodeId>,
    /// The last value: in a truncated file, the one that is incomplete.
    last: Option<NodeId>,
}

impl Parts {
    /// True if the file is truncated before these traces are complete.
    fn is_cut_in(&self, traces: Option<NodeId>) -> bool {
        traces.is_some() && traces == self.last
    }

    /// Number of segments, blocks, annotations and events in these values; shared ones count each time they are used.
    fn items(&self, tree: &Tree) -> usize {
        let of = |list: Option<NodeId>| list.map_or(&[][..], |list| tree.items(list));
        let blocks = |&segment: &NodeId| 1 + of(tree.get(segment, "blocks")).len();
        let segments = of(self.segments).iter().chain(of(self.host_segments)).map(blocks).sum::<usize>();
        let events = of(self.traces).iter().map(|&trace| tree.items(trace).len()).sum::<usize>() + of(self.host_traces).len();
        segments + events + of(self.annotations).len()
    }
}

/// Builds a recording from the values of a snapshot.
fn assemble(read: Read<'_>, name: &str, format: Format, progress: &Progress) -> Result<Recording, FormatError> {
    let Read { bytes, tree, ended, mut traces, stacks: mut builder, mut report } = read;
    progress.begin(Stage::Ordering, traces.iter().map(|trace| trace.device.events.len() as u64).sum());
    let tree = &tree;
    let cut = ended.is_some();
    if let Some(Ended { offset, what }) = &ended {
        report.warn(WarningKind::Truncated, Some(*offset), || match what {
            None => {
                format!("the file ends early, at byte {offset}; what came before it was read, copy the file again for the rest")
            }
            Some(what) => format!("the file is broken at byte {offset}: {what}; what came before it was read"),
        });
    }
    let broken = ended.and_then(|ended| {
        let what = ended.what?;
        Some(FormatError::Malformed { name: name.to_owned(), offset: ended.offset, what })
    });
    let parts = find_parts(tree, name, &mut report).map_err(|error| broken.clone().unwrap_or(error))?;
    if parts.items(tree) > bytes / MIN_ITEM_BYTES + 4096 {
        let what =
            "its segments refer to the same blocks again and again, more of them than a file of this size can hold".to_owned();
        let offset = parts.segments.and_then(|list| tree.place(list)).unwrap_or(0);
        return Err(FormatError::TooLarge { name: name.to_owned(), offset, what });
    }
    let mut stacks = StackReader::new(&mut builder);
    let settings = parts.settings.map(|id| settings::read(tree, id, &mut report)).unwrap_or_default();
    let kind = if settings::is_xpu(&settings) { DeviceKind::Xpu } else { DeviceKind::Cuda };

    let mut devices: Vec<DeviceRecording> = Vec::new();
    let mut broken_off = None;
    if let Some(list) = parts.traces {
        if cut && parts.is_cut_in(parts.traces) {
            // Only the last list in the file is incomplete.
            let last = tree.items(list).len().min(MAX_DEVICES as usize).checked_sub(1);
            broken_off = last.map(|index| DeviceId { kind, index: index as i32 });
        }
        read_traces(tree, list, kind, &mut traces, &mut devices, &mut stacks, &mut report, cut);
    }
    if let Some(list) = parts.segments {
        for (index, raw) in read_segments(tree, list, &mut stacks, &mut report, cut) {
            let at = device_at(&mut devices, DeviceId { kind, index });
            segments::place(&mut devices[at], raw, &mut report);
        }
    }
    devices.sort_by_key(|device| device.id);
    if let Some(host) = read_host(tree, &parts, &mut traces, &mut stacks, &mut report, cut) {
        devices.push(host);
    }
    for device in &mut devices {
        let is_host = device.id.kind == DeviceKind::Host;
        device.has_final_state = if is_host { parts.host_segments } else { parts.segments }.is_some();
        if broken_off == Some(device.id) || (is_host && cut && parts.is_cut_in(parts.host_traces)) {
            set_end_aside(device, &mut report);
        }
        time_order::settle(device, &mut report);
        device.settings = settings.clone();
    }
    if let Some(list) = parts.annotations {
        let by_device = annotations::read(tree, list, &mut stacks, &mut report);
        attach_annotations(&mut devices, by_device, &mut report);
    }
    let mut never_ran = None;
    if let Some(text) = parts.aside.and_then(|id| tree.bytes(id)) {
        match aside::put_back(text, &mut devices, &mut report) {
            Ok(format) => never_ran = format,
            Err(sentence) => report.warn(WarningKind::Skipped, None, || sentence),
        }
    }
    if let (true, Some(error)) = (devices.is_empty(), broken) {
        return Err(error);
    }
    let stacks = order::by_first_use(&mut devices, &builder.finish(), progress);
    if (0..stacks.text_count() as u32).any(|id| stacks.text(StrId(id)).contains("torch_npu")) {
        devices.iter_mut().filter(|d| d.id.kind == DeviceKind::Cuda).for_each(|d| d.name = Some(ASCEND.to_owned()));
    }
    let lists = SnapshotLists {
        device_traces: parts.traces.map_or(0, |list| tree.items(list).len().min(MAX_DEVICES as usize) as u32),
        host_segments: parts.host_segments.is_some(),
        host_traces: parts.host_traces.is_some(),
    };
    Ok(Recording {
        // A file of a run that was never made must keep that mark.
        source: Source { name: name.to_owned(), format: never_ran.unwrap_or(format), ..Source::default() },
        lists,
        devices,
        stacks,
        report,
        ..Recording::default()
    })
}

/// The segments of a file are those after the last event. If the trace is truncated before that event, they belong to a later
/// instant than the end of what was read, so they are no end state. They still show where segments lie.
fn set_end_aside(device: &mut DeviceRecording, report: &mut LoadReport) {
    if device.events.is_empty() {
        return;
    }
    let segments = std::mem::take(&mut device.segments);
    device.blocks.clear();
    device.has_final_state = false;
    report.warn_many(WarningKind::Skipped, u64::from(!segments.is_empty()), None, || {
        format!("the last events are missing, so what {} holds at the end is worked out from those that were read", device.id)
    });
    let without_stack = |s: Segment| Segment { stack: StackId::NONE, blocks: 0..0, ..s };
    device.later_segments = segments.into_iter().map(without_stack).collect();
}

fn find_parts(tree: &Tree, name: &str, report: &mut LoadReport) -> Result<Parts, FormatError> {
    let empty = |what: &str| FormatError::Empty { name: name.to_owned(), what: what.to_owned() };
    let mut parts = Parts::default();
    match tree.node(tree.root) {
        // Before PyTorch 2.0, and in `memory_snapshot()` today: only the segments.
        Node::List(items) if items.iter().all(|&item| matches!(tree.node(item), Node::Dict(_))) => {
            if let Some(&first) = items.first()
                && tree.get(first, "blocks").is_none()
                && tree.get(first, "total_size").is_none()
            {
                return Err(empty("a list of dicts, but not of memory segments"));
            }
            parts.segments = Some(tree.root);
        }
        Node::Dict(pairs) => {
            parts.last = pairs.last().map(|&(_, value)| value);
            for &(key, value) in pairs {
                match tree.bytes(key).unwrap_or(b"") {
                    b"segments" => parts.segments = Some(value),
                    b"device_traces" | b"traces" => parts.traces = Some(value),
                    b"allocator_settings" => parts.settings = Some(value),
                    b"external_annotations" => parts.annotations = Some(value),
                    b"host_segments" => parts.host_segments = Some(value),
                    b"host_traces" => parts.host_traces = Some(value),
                    k if k == aside::KEY.as_bytes() => parts.aside = Some(value),
                    _ => unknown_key(tree, key, "the snapshot", report),
                }
            }
            if parts.segments.is_none() && parts.traces.is_none() {
                return Err(empty(
                    "a dict with neither 'segments' nor 'device_traces', as a model or a checkpoint: not a memory snapshot",
                ));
            }
        }
        other => return Err(empty(&format!("this holds a Python {}, not a memory snapshot", other.type_name()))),
    }
    Ok(parts)
}

/// `device_traces`: one list of entries per device ordinal.
fn read_traces(
    tree: &Tree,
    list: NodeId,
    kind: DeviceKind,
    streamed: &mut Vec<Trace>,
    devices: &mut Vec<DeviceRecording>,
    stacks: &mut StackReader,
    report: &mut LoadReport,
    cut: bool,
) {
    let traces = items_of(tree, list, "device_traces", "a list of lists", report);
    for (index, &entries) in traces.iter().enumerate().take(MAX_DEVICES as usize) {
        let last = cut && index + 1 == traces.len();
        let mut device = take(streamed, entries);
        device.id = DeviceId { kind, index: index as i32 };
        trace::read_list(tree, entries, &mut device, stacks, report, last);
        // A visible device that the process never used has an empty trace and no segments.
        if !device.events.is_empty() {
            devices.push(device);
        }
    }
    report.warn_many(WarningKind::Skipped, (traces.len() as u64).saturating_sub(MAX_DEVICES as u64), None, || {
        format!("traces of more than {MAX_DEVICES} devices; the rest was left out")
    });
}

fn read_segments(
    tree: &Tree,
    list: NodeId,
    stacks: &mut StackReader,
    report: &mut LoadReport,
    cut: bool,
) -> Vec<(i32, Vec<RawSegment>)> {
    let mut by_device: Vec<(i32, Vec<RawSegment>)> = Vec::new();
    for &item in items_of(tree, list, "segments", "a list", report) {
        let Some(segment) = segments::read(tree, item, stacks, report, cut) else { continue };
        if !(0..MAX_DEVICES).contains(&segment.device) {
            report.warn(WarningKind::Skipped, tree.place(item), || {
                format!("segments of device {}, which cannot exist, were left out", segment.device)
            });
            continue;
        }
        let index = segment.device as i32;
        match by_device.iter_mut().find(|(device, _)| *device == index) {
            Some((_, segments)) => segments.push(segment),
            None => by_device.push((index, vec![segment])),
        }
    }
    by_device
}

/// Pinned host memory as a device of its own; `None` when the snapshot has none.
fn read_host(
    tree: &Tree,
    parts: &Parts,
    streamed: &mut Vec<Trace>,
    stacks: &mut StackReader,
    report: &mut LoadReport,
    cut: bool,
) -> Option<DeviceRecording> {
    let mut host = parts.host_traces.map(|list| take(streamed, list)).unwrap_or_default();
    host.id = DeviceId { kind: DeviceKind::Host, index: -1 };
    if let Some(list) = parts.host_traces {
        trace::read_list(tree, list, &mut host, stacks, report, cut);
    }
    if let Some(list) = parts.host_segments {
        let raw = tree.items(list).iter().filter_map(|&item| segments::read(tree, item, stacks, report, cut)).collect();
        segments::place(&mut host, raw, report);
    }
    (!host.events.is_empty() || !host.segments.is_empty()).then_some(host)
}

/// Removes and returns the events that were streamed out of a list.
fn take(streamed: &mut Vec<Trace>, list: NodeId) -> DeviceRecording {
    streamed.iter().position(|trace| trace.list == list).map(|at| streamed.swap_remove(at).device).unwrap_or_default()
}

fn device_at(devices: &mut Vec<DeviceRecording>, id: DeviceId) -> usize {
    devices.iter().position(|device| device.id == id).unwrap_or_else(|| {
        devices.push(DeviceRecording { id, ..DeviceRecording::default() });
        devices.len() - 1
    })
}

/// An annotation names the device that was current on its thread. If that device allocated nothing, the first device gets it.
fn attach_annotations(devices: &mut [DeviceRecording], by_device: Vec<(i64, Annotations)>, report: &mut LoadReport) {
    for (index, annotations) in by_device {
        let own = devices.iter().position(|device| i64::from(device.id.index) == index);
        match own.or(if devices.is_empty() { None } else { Some(0) }) {
            Some(at) => {
                let all = &mut devices[at].annotations;
                all.extend(annotations);
                all.sort_by_key(|annotation| annotation.start_us);
            }
            None => report.warn_many(WarningKind::Skipped, annotations.len() as u64, None, || {
                "annotations in a snapshot without any device were left out".to_owned()
            }),
        }
    }
}

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;
