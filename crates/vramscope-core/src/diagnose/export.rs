//! Derived rows for the way out: lifetimes and curves as tables, and the part of a recording that a trimmed snapshot holds.

use std::ops::Range;

use super::oom::knows_reserved;
use crate::formats::export::perfetto::CounterRow;
use crate::formats::export::snapshot::DevicePart;
use crate::formats::export::{Column, ExportTable, Field, Names};
use crate::model::{Block, BlockState, DeviceRecording, Recording, Segment, StackId};
use crate::tables::{DeviceTables, LifetimeId, NO_EVENT, Quantity, StackNames};

/// The short name of every stack of a recording, by id: what the tables call `place`.
#[must_use]
pub fn places(recording: &Recording) -> Vec<String> {
    let names = StackNames::of(&recording.stacks);
    (0..recording.stacks.len() as u32).map(|i| names.of_stack(StackId(i)).to_owned()).collect()
}

fn event_number(event: u32) -> Option<u64> {
    (event != NO_EVENT).then_some(u64::from(event))
}

/// One row an allocation.
pub struct LifetimesTable<'a> {
    device: &'a DeviceRecording,
    tables: &'a DeviceTables,
    names: Names<'a>,
    tells_requested: bool,
    tells_addresses: bool,
}

impl<'a> LifetimesTable<'a> {
    /// `device` is one of `recording`; `places` as [`places`] gives them.
    #[must_use]
    pub fn new(recording: &Recording, device: &'a DeviceRecording, tables: &'a DeviceTables, places: &'a [String]) -> Self {
        let (tells_requested, tells_addresses) = (device.can_show.requested.is_known(), recording.addresses().is_known());
        LifetimesTable { device, tables, names: Names::new(device, places), tells_requested, tells_addresses }
    }
}

impl ExportTable for LifetimesTable<'_> {
    fn name(&self) -> &'static str {
        "lifetimes"
    }

    fn fields(&self) -> &[Field] {
        const FIELDS: [Field; 15] = [
            Field::text("device"),
            Field::unsigned("lifetime"),
            Field::unsigned("address"),
            Field::unsigned("requested_bytes"),
            Field::unsigned("block_bytes"),
            Field::unsigned("born_event"),
            Field::unsigned("free_requested_event"),
            Field::unsigned("gone_event"),
            Field::signed("born_us"),
            Field::signed("gone_us"),
            Field::text("size_class"),
            Field::unsigned("stream"),
            Field::text("pool"),
            Field::unsigned("stack"),
            Field::text("place"),
        ];
        &FIELDS
    }

    fn len(&self) -> usize {
        self.tables.lifetimes.len()
    }

    fn batch(&self, rows: Range<usize>) -> Vec<Column<'_>> {
        let (d, names) = (self.device, &self.names);
        let rows: Vec<_> = rows.filter_map(|i| self.tables.lifetimes.get(d, LifetimeId(i as u32))).collect();
        vec![
            names.device(rows.len()),
            Column::Unsigned(rows.iter().map(|l| Some(u64::from(l.id.0))).collect()),
            Column::Unsigned(rows.iter().map(|l| self.tells_addresses.then_some(l.address)).collect()),
            Column::Unsigned(rows.iter().map(|l| self.tells_requested.then_some(l.requested)).collect()),
            Column::Unsigned(rows.iter().map(|l| Some(l.block)).collect()),
            Column::Unsigned(rows.iter().map(|l| event_number(l.born)).collect()),
            Column::Unsigned(rows.iter().map(|l| event_number(l.free_requested)).collect()),
            Column::Unsigned(rows.iter().map(|l| event_number(l.gone)).collect()),
            Column::Signed(rows.iter().map(|l| names.time(l.born as usize)).collect()),
            Column::Signed(rows.iter().map(|l| names.time(l.gone as usize)).collect()),
            Column::Text(rows.iter().map(|l| Some(l.class.name())).collect()),
            Column::Unsigned(rows.iter().map(|l| names.stream(l.stream)).collect()),
            Column::Text(rows.iter().map(|l| names.pool(l.pool)).collect()),
            Column::Unsigned(rows.iter().map(|l| names.stack(l.stack)).collect()),
            Column::Text(rows.iter().map(|l| names.place(l.stack)).collect()),
        ]
    }
}

/// The four memory curves after every event.
pub struct CurvesTable<'a> {
    device: &'a DeviceRecording,
    tables: &'a DeviceTables,
    names: Names<'a>,
    tells_requested: bool,
    tells_reserved: bool,
}

impl<'a> CurvesTable<'a> {
    /// The curves of one device.
    #[must_use]
    pub fn new(device: &'a DeviceRecording, tables: &'a DeviceTables) -> Self {
        CurvesTable {
            device,
            tables,
            names: Names::new(device, &[]),
            tells_requested: device.can_show.requested.is_known(),
            tells_reserved: knows_reserved(tables),
        }
    }

    fn values(&self, q: Quantity, rows: &Range<usize>) -> Vec<u64> {
        let bounds: Vec<u32> = (rows.start as u32..=rows.end as u32).collect();
        self.tables.curves.columns(self.device, &self.tables.lifetimes, q, &bounds).iter().map(|c| c.last).collect()
    }
}

impl ExportTable for CurvesTable<'_> {
    fn name(&self) -> &'static str {
        "curves"
    }

    fn fields(&self) -> &[Field] {
        const FIELDS: [Field; 7] = [
            Field::text("device"),
            Field::unsigned("event"),
            Field::signed("time_us"),
            Field::unsigned("reserved_bytes"),
            Field::unsigned("active_bytes"),
            Field::unsigned("allocated_bytes"),
            Field::unsigned("requested_bytes"),
        ];
        &FIELDS
    }

    fn len(&self) -> usize {
        self.device.events.len()
    }

    fn batch(&self, rows: Range<usize>) -> Vec<Column<'_>> {
        let curve = |q| Column::Unsigned(self.values(q, &rows).into_iter().map(Some).collect());
        let unknown = || Column::Unsigned(vec![None; rows.len()]);
        vec![
            self.names.device(rows.len()),
            Column::Unsigned(rows.clone().map(|i| Some(i as u64)).collect()),
            Column::Signed(rows.clone().map(|i| self.names.time(i)).collect()),
            if self.tells_reserved { curve(Quantity::Reserved) } else { unknown() },
            curve(Quantity::Active),
            curve(Quantity::Allocated),
            if self.tells_requested { curve(Quantity::Requested) } else { unknown() },
        ]
    }
}

/// The curves as counters, without rows that repeat the one before.
#[must_use]
pub fn counters(device: &DeviceRecording, tables: &DeviceTables) -> Vec<CounterRow> {
    let table = CurvesTable::new(device, tables);
    let rows = 0..device.events.len();
    let [reserved, allocated, requested] =
        [Quantity::Reserved, Quantity::Allocated, Quantity::Requested].map(|q| table.values(q, &rows));
    let mut out: Vec<CounterRow> = Vec::new();
    for i in rows {
        let row = CounterRow {
            event: i as u32,
            reserved: table.tells_reserved.then_some(reserved[i]),
            allocated: allocated[i],
            requested: table.tells_requested.then_some(requested[i]),
        };
        if out.last().is_none_or(|last| CounterRow { event: row.event, ..*last } != row) {
            out.push(row);
        }
    }
    out
}

/// Events `events` of a device, with the segments and blocks as they stood after the last of them.
#[must_use]
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
