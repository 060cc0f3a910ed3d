//! Tables that stand in a recording as they are: events, blocks of the end state, stacks.

use std::ops::Range;

use super::{Column, ExportTable, Field};
use crate::model::{Action, CATEGORIES, DeviceRecording, PoolId, Recording, Sample, StackId, StackTable, StreamId};

/// What the tables of one device call the device, its pools, streams, stacks and times.
pub struct Names<'a> {
    device: &'a DeviceRecording,
    /// `cuda:0`, `cpu:-1`.
    name: String,
    /// Each pool key as Python writes it: `(0, 1)`. Readers that guess types take `0:1` for a time of day.
    pools: Vec<String>,
    /// Where each stack is, in short, by stack id.
    places: &'a [String],
}

impl<'a> Names<'a> {
    /// `places` names each stack of the recording by its id, in short; shorter or empty lists leave gaps.
    #[must_use]
    pub fn new(device: &'a DeviceRecording, places: &'a [String]) -> Self {
        let pools = device.pools.iter().map(|(a, b)| format!("({a}, {b})")).collect();
        Names { device, name: format!("{}:{}", device.id.kind.name(), device.id.index), pools, places }
    }

    /// The device's column of so many rows.
    #[must_use]
    pub fn device(&self, rows: usize) -> Column<'_> {
        Column::Text(vec![Some(self.name.as_str()); rows])
    }

    /// When an event was, where events have times.
    #[must_use]
    pub fn time(&self, event: usize) -> Option<i64> {
        let events = &self.device.events;
        if events.has_time { events.time_us.get(event).copied() } else { None }
    }

    /// The stream's handle.
    #[must_use]
    pub fn stream(&self, stream: StreamId) -> Option<u64> {
        self.device.streams.get(usize::from(stream.0)).copied()
    }

    /// The pool's key.
    #[must_use]
    pub fn pool(&self, pool: PoolId) -> Option<&str> {
        self.pools.get(usize::from(pool.0)).map(String::as_str)
    }

    /// The number by which the table of stacks knows a stack.
    #[must_use]
    pub fn stack(&self, stack: StackId) -> Option<u64> {
        stack.is_some().then_some(u64::from(stack.0))
    }

    /// Where a stack is, in short.
    #[must_use]
    pub fn place(&self, stack: StackId) -> Option<&str> {
        self.places.get(stack.0 as usize).map(String::as_str)
    }
}

/// The allocator's events of one device.
pub struct EventsTable<'a> {
    device: &'a DeviceRecording,
    names: Names<'a>,
    tells_addresses: bool,
}

impl<'a> EventsTable<'a> {
    /// `device` is one of `recording`; `places` as [`Names::new`] takes them.
    #[must_use]
    pub fn new(recording: &Recording, device: &'a DeviceRecording, places: &'a [String]) -> Self {
        EventsTable { device, names: Names::new(device, places), tells_addresses: recording.addresses().is_known() }
    }
}

impl ExportTable for EventsTable<'_> {
    fn name(&self) -> &'static str {
        "events"
    }

    fn fields(&self) -> &[Field] {
        const FIELDS: [Field; 11] = [
            Field::text("device"),
            Field::unsigned("event"),
            Field::signed("time_us"),
            Field::text("action"),
            Field::unsigned("address"),
            Field::unsigned("bytes"),
            Field::unsigned("device_free_bytes"),
            Field::unsigned("stream"),
            Field::text("pool"),
            Field::unsigned("stack"),
            Field::text("place"),
        ];
        &FIELDS
    }

    fn len(&self) -> usize {
        self.device.events.len()
    }

    fn batch(&self, rows: Range<usize>) -> Vec<Column<'_>> {
        let e = &self.device.events;
        let has_address = |i: usize| self.tells_addresses && !matches!(e.action[i], Action::Oom | Action::Snapshot);
        let each = || rows.clone();
        let names = &self.names;
        vec![
            names.device(rows.len()),
            Column::Unsigned(each().map(|i| Some(i as u64)).collect()),
            Column::Signed(each().map(|i| names.time(i)).collect()),
            Column::Text(each().map(|i| Some(e.action[i].name())).collect()),
            Column::Unsigned(each().map(|i| has_address(i).then_some(e.address[i])).collect()),
            Column::Unsigned(each().map(|i| Some(e.size[i])).collect()),
            Column::Unsigned(each().map(|i| e.device_free_told(i as u32)).collect()),
            Column::Unsigned(each().map(|i| names.stream(e.stream[i])).collect()),
            Column::Text(each().map(|i| names.pool(e.pool[i])).collect()),
            Column::Unsigned(each().map(|i| names.stack(e.stack[i])).collect()),
            Column::Text(each().map(|i| names.place(e.stack[i])).collect()),
        ]
    }
}

/// Samples of the whole card, as a live session, a trace or a timeline has them.
pub struct SamplesTable<'a> {
    device: &'a DeviceRecording,
    names: Names<'a>,
}

impl<'a> SamplesTable<'a> {
    /// The samples of one device.
    #[must_use]
    pub fn new(device: &'a DeviceRecording) -> Self {
        SamplesTable { device, names: Names::new(device, &[]) }
    }
}

impl ExportTable for SamplesTable<'_> {
    fn name(&self) -> &'static str {
        "samples"
    }

    fn fields(&self) -> &[Field] {
        const FIELDS: [Field; 10] = [
            Field::text("device"),
            Field::signed("time_us"),
            Field::unsigned("used_bytes"),
            Field::unsigned("driver_bytes"),
            Field::unsigned("process_bytes"),
            Field::unsigned("other_processes_bytes"),
            Field::unsigned("reserved_bytes"),
            Field::unsigned("active_bytes"),
            Field::unsigned("allocated_bytes"),
            Field::unsigned("requested_bytes"),
        ];
        &FIELDS
    }

    fn len(&self) -> usize {
        self.device.samples.len()
    }

    fn batch(&self, rows: Range<usize>) -> Vec<Column<'_>> {
        let samples = self.device.samples.get(rows).unwrap_or(&[]);
        let bytes = |of: fn(&Sample) -> Option<u64>| Column::Unsigned(samples.iter().map(of).collect());
        vec![
            self.names.device(samples.len()),
            Column::Signed(samples.iter().map(|s| Some(s.time_us)).collect()),
            bytes(|s| s.used),
            bytes(|s| s.driver),
            bytes(|s| s.process),
            bytes(|s| s.others),
            bytes(|s| s.reserved),
            bytes(|s| s.active),
            bytes(|s| s.allocated),
            bytes(|s| s.requested),
        ]
    }
}

/// Live bytes by category, as a memory timeline tells them.
pub struct CategoriesTable<'a> {
    device: &'a DeviceRecording,
    names: Names<'a>,
}

impl<'a> CategoriesTable<'a> {
    /// The bands of one device.
    #[must_use]
    pub fn new(device: &'a DeviceRecording) -> Self {
        CategoriesTable { device, names: Names::new(device, &[]) }
    }
}

impl ExportTable for CategoriesTable<'_> {
    fn name(&self) -> &'static str {
        "categories"
    }

    fn fields(&self) -> &[Field] {
        const FIELDS: [Field; 10] = [
            Field::text("device"),
            Field::signed("time_us"),
            // In the order of `CATEGORIES`.
            Field::unsigned("parameter_bytes"),
            Field::unsigned("optimizer_state_bytes"),
            Field::unsigned("input_bytes"),
            Field::unsigned("temporary_bytes"),
            Field::unsigned("activation_bytes"),
            Field::unsigned("gradient_bytes"),
            Field::unsigned("autograd_detail_bytes"),
            Field::unsigned("unknown_bytes"),
        ];
        &FIELDS
    }

    fn len(&self) -> usize {
        self.device.bands.len()
    }

    fn batch(&self, rows: Range<usize>) -> Vec<Column<'_>> {
        let bands = &self.device.bands;
        let times = bands.time_us.get(rows.clone()).unwrap_or(&[]);
        let bytes = bands.bytes.get(rows).unwrap_or(&[]);
        let mut columns = vec![self.names.device(times.len()), Column::Signed(times.iter().copied().map(Some).collect())];
        columns.extend((0..CATEGORIES.len()).map(|c| Column::Unsigned(bytes.iter().map(|row| Some(row[c])).collect())));
        columns
    }
}

/// The blocks of the end state of one device, with the segment each stands in.
pub struct BlocksTable<'a> {
    device: &'a DeviceRecording,
    names: Names<'a>,
    /// Segment and block index of each row; a source without segments can still tell its blocks.
    rows: Vec<(Option<u32>, u32)>,
}

impl<'a> BlocksTable<'a> {
    /// See [`EventsTable::new`].
    #[must_use]
    pub fn new(device: &'a DeviceRecording, places: &'a [String]) -> Self {
        let of_segments = device.segments.iter().enumerate();
        let mut rows: Vec<_> =
            of_segments.flat_map(|(s, segment)| segment.blocks.clone().map(move |b| (Some(s as u32), b))).collect();
        if device.segments.is_empty() {
            rows.extend((0..device.blocks.len() as u32).map(|b| (None, b)));
        }
        BlocksTable { device, names: Names::new(device, places), rows }
    }
}

impl ExportTable for BlocksTable<'_> {
    fn name(&self) -> &'static str {
        "blocks"
    }

    fn fields(&self) -> &[Field] {
        const FIELDS: [Field; 13] = [
            Field::text("device"),
            Field::unsigned("segment_address"),
            Field::unsigned("segment_bytes"),
            Field::text("segment_type"),
            Field::text("expandable"),
            Field::unsigned("address"),
            Field::unsigned("bytes"),
            Field::unsigned("requested_bytes"),
            Field::text("state"),
            Field::unsigned("stream"),
            Field::text("pool"),
            Field::unsigned("stack"),
            Field::text("place"),
        ];
        &FIELDS
    }

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn batch(&self, rows: Range<usize>) -> Vec<Column<'_>> {
        let (d, names) = (self.device, &self.names);
        let segment = |s: Option<u32>| s.and_then(|s| d.segments.get(s as usize));
        let rows: Vec<_> = self.rows[rows].iter().filter_map(|&(s, b)| Some((segment(s), d.blocks.get(b as usize)?))).collect();
        vec![
            names.device(rows.len()),
            Column::Unsigned(rows.iter().map(|(s, _)| s.map(|s| s.address)).collect()),
            Column::Unsigned(rows.iter().map(|(s, _)| s.map(|s| s.size)).collect()),
            Column::Text(rows.iter().map(|(s, _)| s.map(|s| s.class.name())).collect()),
            Column::Text(rows.iter().map(|(s, _)| s.map(|s| if s.is_expandable { "true" } else { "false" })).collect()),
            Column::Unsigned(rows.iter().map(|(_, b)| d.can_show.addresses.is_known().then_some(b.address)).collect()),
            Column::Unsigned(rows.iter().map(|(_, b)| Some(b.size)).collect()),
            Column::Unsigned(
                rows.iter().map(|(_, b)| (b.state != crate::model::BlockState::Inactive).then_some(b.requested)).collect(),
            ),
            Column::Text(rows.iter().map(|(_, b)| Some(b.state.name())).collect()),
            Column::Unsigned(rows.iter().map(|(s, _)| s.and_then(|s| names.stream(s.stream))).collect()),
            Column::Text(rows.iter().map(|(s, _)| s.and_then(|s| names.pool(s.pool))).collect()),
            Column::Unsigned(rows.iter().map(|(_, b)| names.stack(b.stack)).collect()),
            Column::Text(rows.iter().map(|(_, b)| names.place(b.stack)).collect()),
        ]
    }
}

/// Every frame of every stack of a recording: what the `stack` column of the other tables points to.
pub struct StacksTable<'a> {
    stacks: &'a StackTable,
    /// Stack and depth of each row.
    rows: Vec<(u32, u32)>,
}

impl<'a> StacksTable<'a> {
    /// All stacks.
    #[must_use]
    pub fn new(recording: &'a Recording) -> Self {
        let stacks = &recording.stacks;
        let depths = |s: u32| (0..stacks.frames(StackId(s)).len() as u32).map(move |d| (s, d));
        StacksTable { stacks, rows: (0..stacks.len() as u32).flat_map(depths).collect() }
    }
}

impl ExportTable for StacksTable<'_> {
    fn name(&self) -> &'static str {
        "stacks"
    }

    fn fields(&self) -> &[Field] {
        const FIELDS: [Field; 5] = [
            Field::unsigned("stack"),
            Field::unsigned("depth"),
            Field::text("function"),
            Field::text("file"),
            Field::unsigned("line"),
        ];
        &FIELDS
    }

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn batch(&self, rows: Range<usize>) -> Vec<Column<'_>> {
        let rows = &self.rows[rows];
        let frame = |&(s, d): &(u32, u32)| self.stacks.frames(StackId(s)).get(d as usize).and_then(|&f| self.stacks.frame(f));
        vec![
            Column::Unsigned(rows.iter().map(|r| Some(u64::from(r.0))).collect()),
            Column::Unsigned(rows.iter().map(|r| Some(u64::from(r.1))).collect()),
            Column::Text(rows.iter().map(|r| frame(r).map(|f| self.stacks.text(f.name))).collect()),
            Column::Text(rows.iter().map(|r| frame(r).map(|f| self.stacks.text(f.file))).collect()),
            Column::Unsigned(rows.iter().map(|r| frame(r).map(|f| u64::from(f.line))).collect()),
        ]
    }
}
