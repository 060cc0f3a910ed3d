//! Chrome traces of `torch.profiler` (Kineto), with the memory events that `profile_memory=True` adds.
//!
//! A trace has no segments and no pools, but it has what a snapshot lacks: operators, shapes, modules, times in nanoseconds, CPU
//! memory besides GPU memory, and PyTorch's own totals after every event. Those totals become the curves
//! ([`DeviceRecording::source_totals`]), so the curves are exact even if most memory was allocated before profiling began.
//!
//! * `scan`: the lenient scanner over the bytes.
//! * `collect`: events to rows.
//! * `segments`: finds segments from steps of the reserved total.
//! * `nest`: finds the operators, Python functions and modules around an allocation.

mod collect;
mod nest;
mod scan;
mod segments;

use rustc_hash::{FxHashMap, FxHashSet};

use super::FormatError;
use super::timeline::Live;
use crate::model::{
    Action, Annotation, Annotations, DeviceId, DeviceKind, DeviceRecording, EventTable, Format, Known, LoadReport, Note,
    NoteKind, OpKind, OpLane, OpTable, PoolId, Progress, Recording, Source, SourceTotals, StackTableBuilder, StreamId,
    WarningKind,
};
use collect::{MemoryEvent, NONE, Rows, SliceKind};
pub use nest::{FORWARD_MARK, MODULE_FILE, OPERATOR_FILE};
use nest::{Nesting, Stacks};
use scan::unescape;
use segments::SegmentFinder;

/// True for the beginning (some ten kilobytes) of a Chrome trace: an object with `traceEvents`, or a bare list of events.
pub(super) fn is_trace(head: &[u8]) -> bool {
    let has = |key: &[u8]| head.windows(key.len()).any(|w| w == key);
    match head.first() {
        Some(b'{') => has(b"\"traceEvents\"") || (has(b"\"schemaVersion\"") && has(b"\"deviceProperties\"")),
        Some(b'[') => has(b"\"ph\"") && has(b"\"ts\""),
        _ => false,
    }
}

const EXPORTED: &str = "this trace was exported by vramscope for Perfetto: its curves are counters, which are not read back; open the recording it \
                        was made from";

/// Reads a trace. Memory: about a third of the file's size in addition to the file. Fails with [`FormatError::Empty`] for a trace
/// with neither memory events nor operators.
pub fn read(bytes: &[u8], name: &str, progress: &Progress) -> Result<Recording, FormatError> {
    let mut rows = collect::collect(bytes, progress)?;
    rows.end_ranges();
    let is_export = rows.header.iter().any(|(key, value)| key == "exportedBy" && value == "vramscope");
    if rows.memory.is_empty() && rows.slices.is_empty() {
        let what = match is_export {
            true => EXPORTED.to_owned(),
            false => format!(
                "this trace has {} events and none about memory; profile with torch.profiler.profile(profile_memory=True)",
                rows.events
            ),
        };
        return Err(FormatError::Elsewhere { name: name.to_owned(), what });
    }
    if is_export {
        rows.report.warn(WarningKind::Skipped, None, || EXPORTED.to_owned());
    } else if rows.memory.is_empty() && rows.report.truncated().is_none() {
        let has_operators = rows.slices.iter().any(|slice| slice.kind == SliceKind::Operator);
        rows.report.warn(WarningKind::Skipped, None, || {
            let (has, profile) = match has_operators {
                true => ("operators but no memory events", "torch.profiler.profile(profile_memory=True)"),
                false => (
                    "neither memory events nor operators",
                    "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True)",
                ),
            };
            format!("the trace has {has}: profile with {profile}")
        });
    }
    rows.settle_base();
    let nesting = Nesting::new(&rows);
    progress.check()?;
    let mut table = StackTableBuilder::new();
    let mut recording = Recording {
        source: Source { name: name.to_owned(), path: None, format: Format::KinetoTrace, bytes: bytes.len() as u64 },
        ..Recording::default()
    };
    let annotations = annotations(&rows, &nesting, &mut table);
    recording.devices = devices(&mut rows, &nesting, &mut table, &annotations, progress)?;
    recording.ops = operators(&rows, &nesting, &mut table);
    recording.report = std::mem::take(&mut rows.report);
    recording.stacks = table.finish();
    Ok(recording)
}

fn device_kind(device_type: i32) -> DeviceKind {
    match device_type {
        0 => DeviceKind::Cpu,
        1 | 6 => DeviceKind::Cuda,
        12 => DeviceKind::Xpu,
        _ => DeviceKind::Other,
    }
}

/// c10's `HIP`. PyTorch for AMD mostly reports `CUDA` instead.
const HIP: i32 = 6;

fn microseconds(nanoseconds: i64) -> i64 {
    nanoseconds.div_euclid(1_000)
}

/// User ranges, by start; nested ones follow the range that holds them.
fn annotations(rows: &Rows<'_>, nesting: &Nesting, table: &mut StackTableBuilder) -> Annotations {
    let mut found: Vec<usize> = (0..rows.slices.len()).filter(|&i| rows.slices[i].kind == SliceKind::Annotation).collect();
    found.sort_by_key(|&i| (rows.slices[i].start, nesting.annotation_depth[i], i));
    found
        .into_iter()
        .map(|i| {
            let s = &rows.slices[i];
            Annotation {
                name: table.string(&unescape(rows.names[s.name as usize])),
                start_us: microseconds(rows.base.saturating_add(s.start)),
                end_us: Some(microseconds(rows.base.saturating_add(s.end))),
                depth: nesting.annotation_depth[i],
            }
        })
        .collect()
}

/// The memory events of each device, by time, and how many are of devices that cannot exist.
fn by_device(rows: &Rows<'_>) -> (FxHashMap<DeviceId, Vec<u32>>, u64) {
    let mut order: Vec<u32> = (0..rows.memory.len() as u32).collect();
    // The file lists memory events by thread. Events with equal times (whole microseconds in old traces) keep the file's order.
    order.sort_by_key(|&i| rows.memory[i as usize].time);
    let mut by_device: FxHashMap<DeviceId, Vec<u32>> = FxHashMap::default();
    let mut of_no_device = 0;
    for i in order {
        let event = &rows.memory[i as usize];
        if !(-1..super::snapshot::MAX_DEVICES).contains(&i64::from(event.device_index)) {
            of_no_device += 1;
            continue;
        }
        let id = DeviceId { kind: device_kind(event.device_type), index: event.device_index };
        by_device.entry(id).or_default().push(i);
    }
    (by_device, of_no_device)
}

/// One recording per device, GPUs first.
fn devices(
    rows: &mut Rows<'_>,
    nesting: &Nesting,
    table: &mut StackTableBuilder,
    annotations: &Annotations,
    progress: &Progress,
) -> Result<Vec<DeviceRecording>, FormatError> {
    let (mut by_device, of_no_device) = by_device(rows);
    let mut ids: Vec<DeviceId> = by_device.keys().copied().collect();
    ids.sort_by_key(|id| (id.kind == DeviceKind::Cpu, *id));
    let mut report = std::mem::take(&mut rows.report);
    report.warn_many(WarningKind::Skipped, of_no_device, None, || {
        format!(
            "memory events of devices that cannot exist were left out: PyTorch numbers at most {}",
            super::snapshot::MAX_DEVICES
        )
    });
    let mut stacks = Stacks::new(rows, nesting);
    let mut out = Vec::with_capacity(ids.len());
    for id in ids {
        progress.check()?;
        let order = by_device.remove(&id).unwrap_or_default();
        let mut device = DeviceRecording { id, annotations: annotations.clone(), ..DeviceRecording::default() };
        if matches!(id.kind, DeviceKind::Cuda | DeviceKind::Xpu)
            && let Some(facts) = rows.devices.iter().find(|d| d.index == id.index)
        {
            device.name = Some(facts.name.clone());
            device.capacity = facts.capacity;
        }
        device.settings.raw = rows.header.clone();
        if order.first().is_some_and(|&i| rows.memory[i as usize].device_type == HIP) {
            // The profiler's device name may be missing or only an architecture; the device type shows that it is an AMD GPU.
            device.settings.raw.push(("HIP".to_owned(), "the device type of the trace".to_owned()));
            device.name = Some(match device.name.unwrap_or_default() {
                name if name.is_empty() => "AMD GPU".to_owned(),
                name if ["AMD", "Radeon", "Instinct"].iter().any(|word| name.contains(word)) => name,
                name => format!("AMD GPU ({name})"),
            });
        }
        device.pools.push((0, 0));
        let stream = device.intern_stream(0);
        let mut builder = DeviceBuilder::default();
        device.events = builder.events(rows, nesting, &order, stream, &mut stacks, table);
        device.source_totals = std::mem::take(&mut builder.source_totals);
        device.can_show.segments = Known::No("A profiler trace has no segments. A memory snapshot has them.");
        if id.kind != DeviceKind::Cpu {
            device.can_show.requested = super::WHOLE_BLOCKS;
        }
        if builder.has_no_addresses {
            device.can_show.addresses = super::FREES_ARE_GUESSED;
        }
        builder.warn(id, &mut report);
        out.push(device);
    }
    rows.report = report;
    Ok(out)
}

#[derive(Default)]
struct DeviceBuilder {
    live: FxHashSet<u64>,
    segments: SegmentFinder,
    source_totals: SourceTotals,
    /// Addresses of mapped memory on the CPU.
    mapped: FxHashSet<u64>,
    /// Invented addresses for traces without addresses.
    made_up: Live,
    has_no_addresses: bool,
    unmatched: u64,
    /// Bytes that the totals gained beyond the events so far, and that at the highest total.
    gained: i64,
    gained_at_peak: (u64, i64),
    lost: u64,
    nothing: u64,
}

impl DeviceBuilder {
    /// Tells what the events of a device leave open.
    fn warn(&self, id: DeviceId, report: &mut LoadReport) {
        if self.has_no_addresses {
            report.warn(WarningKind::NoAddresses, None, || {
                format!(
                    "{id}: the trace has sizes alone, as PyTorch 1.8 and 1.9 wrote them, and neither addresses nor totals. Its curve is \
                     relative: it counts what the trace allocates, and what it frees, on top of an unknown amount from before. Which of \
                     several equal allocations a free ends is a guess (the youngest)"
                )
            });
        } else if id.kind != DeviceKind::Cpu {
            report.warn_many(WarningKind::StartMissing, self.unmatched, None, || {
                format!("{id}: memory that was allocated before profiling began is freed in the trace")
            });
        }
        report.warn_many(WarningKind::LostFree, self.lost, None, || {
            format!("{id}: an allocation at an address that was still live; its free is missing in the trace")
        });
        if let Some(unknown) = self.segments.unknown_at_start.checked_sub(1) {
            report.warn(WarningKind::StartMissing, None, || {
                format!(
                    "{id}: {} were reserved before profiling began; they count, but the trace does not say which segments they are",
                    crate::units::Bytes(unknown + 1)
                )
            });
        }
        let (most, gained) = self.gained_at_peak;
        let is_much = id.kind != DeviceKind::Cpu && gained > 0 && gained.unsigned_abs() > most / 1_000;
        let gained = (gained.unsigned_abs(), "allocated bytes grew during profiling by", "event");
        let changed = (self.segments.unexplained, "reserved bytes changed by", "segment");
        let found = [Some(gained).filter(|_| is_much), Some(changed).filter(|c| c.0 > 0)].into_iter().flatten();
        let told = found.map(|(bytes, what, by)| format!("{what} {} that no {by} explains", crate::units::Bytes(bytes)));
        let told: Vec<String> = told.collect();
        report.warn_many(WarningKind::StateMismatch, u64::from(!told.is_empty()), None, || {
            format!("{id}: the total of {}", told.join(", and that of "))
        });
        report.warn_many(WarningKind::Skipped, self.nothing, None, || format!("{id}: memory events of 0 bytes were left out"));
    }

    fn events(
        &mut self,
        rows: &Rows<'_>,
        nesting: &Nesting,
        order: &[u32],
        stream: StreamId,
        stacks: &mut Stacks<'_, '_>,
        table: &mut StackTableBuilder,
    ) -> EventTable {
        let mut events = EventTable { has_time: true, sizes_are_blocks: true, ..EventTable::default() };
        events.reserve(order.len() * 3 / 2);
        for &i in order {
            let m: &MemoryEvent = &rows.memory[i as usize];
            let around = nesting.around[i as usize];
            let stack = stacks.stack(around, table);
            let time = microseconds(rows.base.saturating_add(m.time));
            let size = m.bytes.unsigned_abs();
            let first = events.len() as u32;
            let address = m.address.unwrap_or_else(|| self.make_up(m.bytes));
            let is_mapped = self.is_mapped(m, address);
            // The CPU's allocator reserves nothing.
            if let Some(reserved) = m.reserved.filter(|_| m.device_type != 0) {
                if m.address.is_some() {
                    for found in self.segments.before(address, if m.is_oom { 0 } else { m.bytes }, reserved, m.allocated) {
                        events.push(time, found.action, found.address, found.size, stream, PoolId::UNKNOWN, stack);
                    }
                }
                self.source_totals.reserved.set(first, self.segments.at_start, reserved);
            }
            if let Some(total) = m.allocated.or_else(|| self.followed(m)).filter(|_| !is_mapped) {
                let start = if m.is_oom { total } else { total.saturating_sub(m.bytes.max(0).unsigned_abs()) };
                if let Some(expected) = self.followed(m) {
                    self.gained = self.gained.saturating_add(total.cast_signed().saturating_sub(expected.cast_signed()));
                }
                self.gained_at_peak = self.gained_at_peak.max((total, self.gained));
                // An event of 0 bytes is dropped; its total goes to the event before it.
                let at = events.len() as u32 - u32::from(m.bytes == 0 && !m.is_oom && !events.is_empty());
                self.source_totals.allocated.set(at, start, total);
            }
            let mut push = |action, address| events.push(time, action, address, size, stream, PoolId::UNKNOWN, stack);
            if m.is_oom {
                push(Action::Oom, EventTable::FREE_UNKNOWN);
            } else if m.bytes > 0 {
                self.lost += u64::from(!self.live.insert(address));
                push(Action::Alloc, address);
            } else if m.bytes < 0 {
                // The profiler records when the program frees a block, but not when streams finish with it.
                self.unmatched += u64::from(!self.live.remove(&address));
                push(Action::FreeRequested, address);
                push(Action::FreeCompleted, address);
                continue;
            } else {
                self.nothing += 1;
                continue;
            }
            if let Some((operator, shapes)) = operator_around(rows, nesting, around) {
                let event = events.len() as u32 - 1;
                events.notes.push(Note { event, kind: NoteKind::Operator, text: table.string(&unescape(operator)) });
                if !shapes.is_empty() {
                    events.notes.push(Note { event, kind: NoteKind::Shapes, text: table.string(&shapes) });
                }
            }
        }
        events
    }

    /// True for a mapped file or shared memory, such as a `DataLoader`'s batches. For these PyTorch writes 0 as `Total Allocated`
    /// and the size of this one mapping as `Total Reserved`; neither is a total of the CPU's allocator.
    fn is_mapped(&mut self, event: &MemoryEvent, address: u64) -> bool {
        let reserved = event.reserved.filter(|_| event.device_type == 0).unwrap_or(0);
        self.source_totals.mapped = self.source_totals.mapped.max(reserved);
        match event.bytes {
            1.. => reserved > 0 && self.mapped.insert(address),
            _ => self.mapped.remove(&address),
        }
    }

    /// Invents an address for an event without one: a free ends the youngest allocation of the same size.
    fn make_up(&mut self, bytes: i64) -> u64 {
        self.has_no_addresses = true;
        let size = bytes.unsigned_abs();
        if bytes > 0 {
            return self.made_up.add(size, 0);
        }
        self.made_up.take(size, 0).unwrap_or_else(|| self.made_up.unused(size))
    }

    /// The total after an event that does not contain it, computed from the total before.
    fn followed(&self, event: &MemoryEvent) -> Option<u64> {
        let before = *self.source_totals.allocated.values.last()?;
        Some(if event.is_oom { before } else { before.saturating_add_signed(event.bytes) })
    }
}

/// The innermost operator from a slice outwards, and the shapes of its inputs as the file writes them. Operators that only
/// allocate (`aten::empty_strided`) take sizes but no tensor; they get the shapes of the nearest enclosing operator that has
/// some, prefixed with its name.
fn operator_around<'a>(rows: &Rows<'a>, nesting: &Nesting, mut at: u32) -> Option<(&'a [u8], String)> {
    let mut innermost: Option<(&'a [u8], &'a [u8])> = None;
    while at != NONE {
        let slice = &rows.slices[at as usize];
        if slice.kind == SliceKind::Operator {
            let shapes = rows.operators.get(slice.operator as usize).map_or(&b""[..], |f| f.shapes);
            let name = rows.names[slice.name as usize];
            let is_told = shapes.iter().any(u8::is_ascii_digit);
            match innermost {
                None if is_told => return Some((name, unescape(shapes))),
                None => innermost = Some((name, shapes)),
                Some((operator, _)) if is_told => return Some((operator, format!("{} {}", unescape(name), unescape(shapes)))),
                Some(_) => {}
            }
        }
        at = nesting.parent[at as usize];
    }
    innermost.map(|(name, shapes)| (name, unescape(shapes)))
}

/// Operators, runtime calls, kernels and copies, ordered by start.
fn operators(rows: &Rows<'_>, nesting: &Nesting, table: &mut StackTableBuilder) -> OpTable {
    let kind_of = |kind| match kind {
        SliceKind::Operator => Some(OpKind::Operator),
        SliceKind::Runtime => Some(OpKind::Runtime),
        SliceKind::Kernel => Some(OpKind::Kernel),
        SliceKind::Copy => Some(OpKind::Copy),
        SliceKind::Python | SliceKind::Annotation => None,
    };
    let mut order: Vec<u32> =
        (0..rows.slices.len() as u32).filter(|&i| kind_of(rows.slices[i as usize].kind).is_some()).collect();
    order.sort_by_key(|&i| {
        let s = &rows.slices[i as usize];
        (s.start, std::cmp::Reverse(s.end), i)
    });
    let mut row_of: FxHashMap<u32, u32> = FxHashMap::default();
    let mut lanes: Vec<Option<u16>> = vec![None; rows.threads.len()];
    let mut ops = OpTable::default();
    let mut texts: FxHashMap<&[u8], crate::model::StrId> = FxHashMap::default();
    for (row, &i) in order.iter().enumerate() {
        let s = &rows.slices[i as usize];
        let Some(kind) = kind_of(s.kind) else { continue };
        if kind == OpKind::Operator {
            row_of.insert(i, row as u32);
        }
        let mut intern = |raw: &'_ [u8]| table.string(&unescape(raw));
        let name = rows.names[s.name as usize];
        ops.name.push(*texts.entry(name).or_insert_with(|| intern(name)));
        let shapes = rows.operators.get(s.operator as usize).map_or(&b""[..], |f| f.shapes);
        ops.shapes.push(if shapes.is_empty() {
            OpTable::NO_TEXT
        } else {
            *texts.entry(shapes).or_insert_with(|| intern(shapes))
        });
        ops.start_ns.push(rows.base.saturating_add(s.start));
        ops.duration_ns.push(s.end.saturating_sub(s.start).unsigned_abs());
        ops.depth.push(nesting.depth[i as usize]);
        ops.kind.push(kind);
        let lane = lanes.get(usize::from(s.thread)).copied().flatten().unwrap_or_else(|| {
            let lane = ops.lanes.len() as u16;
            ops.lanes.push(lane_of(rows, s.thread));
            if let Some(slot) = lanes.get_mut(usize::from(s.thread)) {
                *slot = Some(lane);
            }
            lane
        });
        ops.lane.push(lane);
    }
    ops.forward = order.iter().map(|&i| row_of.get(&nesting.forward[i as usize]).copied().unwrap_or(OpTable::NO_OP)).collect();
    ops
}

fn lane_of(rows: &Rows<'_>, thread: u16) -> OpLane {
    let Some(&(pid, tid, is_device)) = rows.threads.get(usize::from(thread)) else {
        return OpLane { name: "other threads".to_owned(), is_device: false };
    };
    let (pid, tid) = (&unescape(pid), &unescape(tid));
    let name = if is_device {
        format!("GPU {pid} stream {tid}")
    } else {
        rows.threads
            .get(usize::from(thread))
            .and_then(|key| rows.thread_names.get(key))
            .map_or_else(|| format!("thread {tid}"), |raw| unescape(raw))
    };
    OpLane { name, is_device }
}

#[cfg(test)]
mod tests;
