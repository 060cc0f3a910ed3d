//! Derived data for exports: tables of lifetimes and curves, and the part of a recording that goes into a trimmed snapshot.

use std::ops::Range;
use std::path::Path;

use super::oom::knows_reserved;
use crate::formats::export::new_file::NewFile;
use crate::formats::export::perfetto::CounterRow;
use crate::formats::export::snapshot::{DevicePart, write};
use crate::formats::export::{ExportTable, Names, WriteError};
use crate::model::{Block, BlockState, Cancelled, DeviceKind, DeviceRecording, Progress, Recording, Segment, StackId};
use crate::tables::{DeviceTables, LifetimeId, NO_EVENT, Quantity, StackNames};

/// The short name of every stack of a recording, by id; the tables call it `place`.
pub fn places(recording: &Recording) -> Vec<String> {
    let names = StackNames::of(&recording.stacks);
    (0..recording.stacks.len() as u32).map(|i| names.of_stack(StackId(i)).to_owned()).collect()
}

fn event_number(event: u32) -> Option<u64> {
    (event != NO_EVENT).then_some(u64::from(event))
}

/// One row per allocation. `names` must belong to a device of `recording`, and `tables` to that device.
pub fn lifetimes<'a>(recording: &Recording, names: &'a Names<'_>, tables: &'a DeviceTables) -> impl ExportTable + 'a {
    let d = names.device();
    let (tells_requested, tells_addresses) = (d.can_show.requested.is_known(), recording.addresses().is_known());
    let fetch = |rows: Range<usize>| rows.filter_map(|i| tables.lifetimes.get(d, LifetimeId(i as u32))).collect();
    names
        .rows("lifetimes", tables.lifetimes.len(), fetch)
        .unsigned("lifetime", |l| Some(u64::from(l.id.0)))
        .unsigned("address", move |l| tells_addresses.then_some(l.address))
        .unsigned("requested_bytes", move |l| tells_requested.then_some(l.requested))
        .unsigned("block_bytes", |l| Some(l.block))
        .unsigned("born_event", |l| event_number(l.born))
        .unsigned("free_requested_event", |l| event_number(l.free_requested))
        .unsigned("gone_event", |l| event_number(l.gone))
        .signed("born_us", |l| names.time(l.born as usize))
        .signed("gone_us", |l| names.time(l.gone as usize))
        .text("size_class", |l| Some(l.class.name()))
        .unsigned("stream", |l| names.stream(l.stream))
        .text("pool", |l| names.pool(l.pool))
        .unsigned("stack", |l| names.stack(l.stack))
        .text("place", |l| names.place(l.stack))
}

/// Memory curves after each event of a range: reserved, active, allocated, requested. `None` for a curve that the source lacks.
fn curve_values(device: &DeviceRecording, tables: &DeviceTables, rows: &Range<usize>) -> [Option<Vec<u64>>; 4] {
    let bounds: Vec<u32> = (rows.start as u32..=rows.end as u32).collect();
    let told = [knows_reserved(tables), true, true, device.can_show.requested.is_known()];
    let curves = [Quantity::Reserved, Quantity::Active, Quantity::Allocated, Quantity::Requested];
    let values = |q| tables.curves.columns(device, &tables.lifetimes, q, &bounds).iter().map(|c| c.last).collect();
    std::array::from_fn(|i| told[i].then(|| values(curves[i])))
}

/// The four memory curves after every event. `tables` must belong to the device of `names`.
pub fn curves<'a>(names: &'a Names<'_>, tables: &'a DeviceTables) -> impl ExportTable + 'a {
    let d = names.device();
    let fetch = |rows: Range<usize>| {
        let values = curve_values(d, tables, &rows);
        let row = |(at, i)| (i, std::array::from_fn::<Option<u64>, 4, _>(|q| Some(*values[q].as_ref()?.get(at)?)));
        rows.enumerate().map(row).collect::<Vec<_>>()
    };
    names
        .rows("curves", d.events.len(), fetch)
        .unsigned("event", |&(i, _)| Some(i as u64))
        .signed("time_us", |&(i, _)| names.time(i))
        .unsigned("reserved_bytes", |(_, v)| v[0])
        .unsigned("active_bytes", |(_, v)| v[1])
        .unsigned("allocated_bytes", |(_, v)| v[2])
        .unsigned("requested_bytes", |(_, v)| v[3])
}

/// The curves as counters; rows equal to the one before are left out.
pub fn counters(device: &DeviceRecording, tables: &DeviceTables) -> Vec<CounterRow> {
    let rows = 0..device.events.len();
    let [reserved, _, allocated, requested] = curve_values(device, tables, &rows);
    let at = |curve: &Option<Vec<u64>>, i: usize| curve.as_ref()?.get(i).copied();
    let mut out: Vec<CounterRow> = Vec::new();
    for i in rows {
        let (event, allocated) = (i as u32, at(&allocated, i).unwrap_or(0));
        let row = CounterRow { event, reserved: at(&reserved, i), allocated, requested: at(&requested, i) };
        if out.last().is_none_or(|last| CounterRow { event: row.event, ..*last } != row) {
            out.push(row);
        }
    }
    out
}

/// All events of a device, with its segments at the end, which are derived from the events if the source lacks them.
pub fn whole(recording: &Recording, device: usize, progress: &Progress) -> Result<Option<DevicePart>, Cancelled> {
    let Some(d) = recording.devices.get(device).filter(|d| !d.has_final_state) else {
        return Ok(DevicePart::whole(recording, device));
    };
    Ok(trimmed(recording, device, &DeviceTables::build(d, progress)?, 0..d.events.len() as u32))
}

/// Writes a whole recording as a snapshot into a [`NewFile`] made from `sources`, which may replace an existing file if `replaces`.
///
/// # Errors
/// As [`NewFile::create`], or [`WriteError::Io`] if writing fails.
pub fn save(recording: &Recording, path: &Path, sources: &[&Path], replaces: bool) -> Result<(), WriteError> {
    let mut file = NewFile::create(path, sources, replaces)?;
    // Snapshots cannot contain CPU memory.
    let devices = (0..recording.devices.len()).filter(|&i| recording.devices[i].id.kind != DeviceKind::Cpu);
    let parts: Vec<DevicePart> = devices.filter_map(|i| whole(recording, i, &Progress::new()).ok().flatten()).collect();
    write(recording, &parts, false, &mut file).map_err(|e| WriteError::io(path, e))?;
    file.finish()
}

/// Events `events` of a device, with the segments and blocks after the last of them.
pub fn trimmed(recording: &Recording, device: usize, tables: &DeviceTables, events: Range<u32>) -> Option<DevicePart> {
    let d = recording.devices.get(device)?;
    let end = events.end.min(d.events.len() as u32);
    let events = events.start.min(end)..end;
    if end as usize == d.events.len() && d.has_final_state {
        return Some(DevicePart { device, events, segments: d.segments.clone(), blocks: d.blocks.clone() });
    }
    let last = end.checked_sub(1).unwrap_or(NO_EVENT);
    let state = tables.states.at(d, &tables.lifetimes, last);
    let mut blocks: Vec<Block> = Vec::with_capacity(state.blocks.len());
    let mut segments: Vec<Segment> = Vec::with_capacity(state.segments.len());
    for s in &state.segments {
        let from = blocks.len() as u32;
        blocks.extend(state.blocks_of(s).iter().map(|b| {
            let is_live = b.state != BlockState::Inactive;
            let stack = if is_live { tables.lifetimes.stack(d, b.lifetime) } else { StackId::NONE };
            Block { address: b.address, size: b.size, requested: b.requested, state: b.state, stack }
        }));
        segments.push(Segment {
            address: s.address,
            size: s.size,
            stream: s.stream,
            pool: s.pool,
            class: s.class,
            is_expandable: s.is_expandable,
            stack: s.stack,
            blocks: from..blocks.len() as u32,
        });
    }
    Some(DevicePart { device, events, segments, blocks })
}
