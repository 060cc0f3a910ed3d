//! Tables taken directly from a recording: events, blocks of the end state, stacks.

use super::{ExportTable, Rows};
use crate::model::{Action, Block, BlockState, CATEGORIES, DeviceRecording, PoolId, Recording, Segment, StackId, StreamId};

/// Names of one device and of its pools, streams, stacks and times, as its tables write them.
pub struct Names<'a> {
    device: &'a DeviceRecording,
    /// `cuda:0`, `cpu:-1`: the device in every row.
    name: String,
    /// Each pool key as Python writes it: `(0, 1)`. Readers that guess types would read `0:1` as a time of day.
    pools: Vec<String>,
    /// Short name of each stack, by stack id.
    places: &'a [String],
}

impl<'a> Names<'a> {
    /// `places` has a short name per stack id; where the list is too short the column has no value.
    pub fn new(device: &'a DeviceRecording, places: &'a [String]) -> Self {
        let pools = device.pools.iter().map(|(a, b)| format!("({a}, {b})")).collect();
        Names { device, name: format!("{}:{}", device.id.kind.name(), device.id.index), pools, places }
    }

    /// The device that these tables describe.
    pub fn device(&self) -> &'a DeviceRecording {
        self.device
    }

    /// A table of this device; its first column is the device's name.
    pub fn rows<'n, R>(
        &'n self,
        name: &'static str,
        len: usize,
        fetch: impl Fn(std::ops::Range<usize>) -> Vec<R> + 'n,
    ) -> Rows<'n, R> {
        Rows::new(name, len, fetch).text("device", |_| Some(self.name.as_str()))
    }

    /// Time of an event; `None` if events have no times.
    pub fn time(&self, event: usize) -> Option<i64> {
        let events = &self.device.events;
        if events.has_time { events.time_us.get(event).copied() } else { None }
    }

    /// The raw handle of a stream.
    pub fn stream(&self, stream: StreamId) -> Option<u64> {
        self.device.streams.get(usize::from(stream.0)).copied()
    }

    /// The key of a pool as text.
    pub fn pool(&self, pool: PoolId) -> Option<&str> {
        self.pools.get(usize::from(pool.0)).map(String::as_str)
    }

    /// The stack's id in the table of stacks; `None` without a stack.
    pub fn stack(&self, stack: StackId) -> Option<u64> {
        stack.is_some().then_some(u64::from(stack.0))
    }

    /// Short name of a stack.
    pub fn place(&self, stack: StackId) -> Option<&str> {
        self.places.get(stack.0 as usize).map(String::as_str)
    }
}

/// The allocator's events of one device. `names` must belong to a device of `recording`.
pub fn events<'a>(recording: &Recording, names: &'a Names<'_>) -> impl ExportTable + 'a {
    let e = &names.device.events;
    let tells_addresses = recording.addresses().is_known();
    names
        .rows("events", e.len(), |rows| rows.collect())
        .unsigned("event", |&i| Some(i as u64))
        .signed("time_us", |&i| names.time(i))
        .text("action", |&i| Some(e.action[i].name()))
        .unsigned("address", move |&i| {
            let has_address = tells_addresses && !matches!(e.action[i], Action::Oom | Action::Snapshot);
            has_address.then_some(e.address[i])
        })
        .unsigned("bytes", |&i| Some(e.size[i]))
        .unsigned("device_free_bytes", |&i| e.device_free_known(i as u32))
        .unsigned("stream", |&i| names.stream(e.stream[i]))
        .text("pool", |&i| names.pool(e.pool[i]))
        .unsigned("stack", |&i| names.stack(e.stack[i]))
        .text("place", |&i| names.place(e.stack[i]))
}

/// Samples of the whole device, from a live session, a trace or a timeline.
pub fn samples<'a>(names: &'a Names<'_>) -> impl ExportTable + 'a {
    let samples = &names.device.samples;
    names
        .rows("samples", samples.len(), |rows| samples.get(rows).unwrap_or(&[]).iter().collect())
        .signed("time_us", |s| Some(s.time_us))
        .unsigned("used_bytes", |s| s.used)
        .unsigned("driver_bytes", |s| s.driver)
        .unsigned("process_bytes", |s| s.process)
        .unsigned("other_processes_bytes", |s| s.others)
        .unsigned("reserved_bytes", |s| s.reserved)
        .unsigned("active_bytes", |s| s.active)
        .unsigned("allocated_bytes", |s| s.allocated)
        .unsigned("requested_bytes", |s| s.requested)
}

/// Live bytes by category, from a memory timeline.
pub fn categories<'a>(names: &'a Names<'_>) -> impl ExportTable + 'a {
    // In the order of `CATEGORIES`.
    const NAMES: [&str; CATEGORIES.len()] = [
        "parameter_bytes",
        "optimizer_state_bytes",
        "input_bytes",
        "temporary_bytes",
        "activation_bytes",
        "gradient_bytes",
        "autograd_detail_bytes",
        "unknown_bytes",
    ];
    let bands = &names.device.bands;
    let table = names.rows("categories", bands.len(), |rows| rows.collect());
    let table = table.signed("time_us", |&i: &usize| bands.time_us.get(i).copied());
    NAMES.into_iter().enumerate().fold(table, |table, (c, name)| table.unsigned(name, move |&i| Some(bands.bytes.get(i)?[c])))
}

/// The blocks of the end state of one device, each with its segment; a source may also have blocks without segments.
pub fn blocks<'a>(names: &'a Names<'_>) -> impl ExportTable + 'a {
    let d = names.device;
    let mut rows: Vec<(Option<&Segment>, &Block)> = Vec::with_capacity(d.blocks.len());
    for segment in &d.segments {
        rows.extend(segment.blocks.clone().filter_map(|b| Some((Some(segment), d.blocks.get(b as usize)?))));
    }
    if d.segments.is_empty() {
        rows.extend(d.blocks.iter().map(|b| (None, b)));
    }
    let is_live = |b: &Block| b.state != BlockState::Inactive;
    names
        .rows("blocks", rows.len(), move |range| rows[range].to_vec())
        .unsigned("segment_address", |(s, _)| s.map(|s| s.address))
        .unsigned("segment_bytes", |(s, _)| s.map(|s| s.size))
        .text("segment_type", |(s, _)| s.map(|s| s.class.name()))
        .text("expandable", |(s, _)| s.map(|s| if s.is_expandable { "true" } else { "false" }))
        .unsigned("address", |(_, b)| d.can_show.addresses.is_known().then_some(b.address))
        .unsigned("bytes", |(_, b)| Some(b.size))
        .unsigned("requested_bytes", move |(_, b)| is_live(b).then_some(b.requested))
        .text("state", |(_, b)| Some(b.state.name()))
        .unsigned("stream", |(s, _)| names.stream((*s)?.stream))
        .text("pool", |(s, _)| names.pool((*s)?.pool))
        .unsigned("stack", |(_, b)| names.stack(b.stack))
        .text("place", |(_, b)| names.place(b.stack))
}

/// Every frame of every stack of a recording; the `stack` column of the other tables refers to it.
pub fn stacks(recording: &Recording) -> impl ExportTable + '_ {
    let stacks = &recording.stacks;
    let depths = |s: u32| (0..stacks.frames(StackId(s)).len() as u32).map(move |d| (s, d));
    let rows: Vec<(u32, u32)> = (0..stacks.len() as u32).flat_map(depths).collect();
    let frame = |&(s, d): &(u32, u32)| stacks.frames(StackId(s)).get(d as usize).and_then(|&f| stacks.frame(f));
    Rows::new("stacks", rows.len(), move |range| rows[range].to_vec())
        .unsigned("stack", |r| Some(u64::from(r.0)))
        .unsigned("depth", |r| Some(u64::from(r.1)))
        .text("function", move |r| Some(stacks.text(frame(r)?.name)))
        .text("file", move |r| Some(stacks.text(frame(r)?.file)))
        .unsigned("line", move |r| Some(u64::from(frame(r)?.line)))
}
