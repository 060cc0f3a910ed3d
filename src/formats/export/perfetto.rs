//! A Chrome trace for Perfetto (<https://ui.perfetto.dev>): memory curves and samples of the card as counters, user ranges and operators as slices,
//! out-of-memory events as instants.
//!
//! Times count from the second in which the recording begins, which stands in the header as in the profiler's own traces: viewers read microseconds as floating-point
//! numbers, which since 1970 would round operators of nanoseconds out of their parents. A device without times is drawn over event
//! numbers, a microsecond an event.

use std::io::{self, Write};

use crate::model::{Action, DeviceRecording, OpTable, Recording};

/// Values of the memory curves right after an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterRow {
    /// The event.
    pub event: u32,
    /// Bytes in segments; `None` where the source has no segments.
    pub reserved: Option<u64>,
    /// Whole blocks that the program holds.
    pub allocated: u64,
    /// Bytes the program asked for, pending frees included.
    pub requested: u64,
}

/// Writes JSON events one after the other.
struct Events<'w> {
    out: &'w mut dyn Write,
    first: bool,
    /// What times count from, microseconds since the epoch.
    base_us: i64,
    /// Instants at which counters were written.
    counters: u64,
}

impl Events<'_> {
    fn push(&mut self, value: &serde_json::Value) -> io::Result<()> {
        let comma = if std::mem::take(&mut self.first) { "\n" } else { ",\n" };
        self.out.write_all(comma.as_bytes())?;
        self.counters += u64::from(value["ph"] == "C");
        serde_json::to_writer(&mut *self.out, value)?;
        Ok(())
    }
}

/// Writes a recording, and says at how many instants it has counters. `counters` gives the rows of each device of the recording, in order.
///
/// # Errors
/// What the writer says.
pub fn write(recording: &Recording, counters: &mut dyn FnMut(usize) -> Vec<CounterRow>, out: &mut dyn Write) -> io::Result<u64> {
    let base = base_ns(recording);
    write!(out, "{{\"displayTimeUnit\":\"ms\",\"baseTimeNanoseconds\":{base},\"traceEvents\":[")?;
    let mut events = Events { out, first: true, base_us: base / 1_000, counters: 0 };
    for (index, device) in recording.devices.iter().enumerate() {
        let pid = index + 1;
        let name = device.name.as_ref().map_or_else(|| device.id.to_string(), |n| format!("{}: {n}", device.id));
        events.push(&serde_json::json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}))?;
        write_device(recording, device, pid, &counters(index), &mut events)?;
    }
    if !recording.ops.is_empty() {
        operators(recording, &recording.ops, recording.devices.len() + 1, &mut events)?;
    }
    let written = events.counters;
    out.write_all(b"\n]}\n")?;
    out.flush()?;
    Ok(written)
}

/// The second in which the recording begins, nanoseconds since the epoch; 0 without times.
fn base_ns(recording: &Recording) -> i64 {
    let timed = recording.devices.iter().filter(|d| d.events.has_time || d.events.is_empty());
    let firsts = timed.flat_map(|d| {
        let events = d.events.time_us.first().copied().filter(|_| d.events.has_time);
        let annotations = d.annotations.iter().map(|a| a.start_us).min();
        [events, annotations, d.samples.first().map(|s| s.time_us)]
    });
    let first = firsts.flatten().chain(recording.ops.start_ns.first().map(|ns| ns / 1_000)).min().unwrap_or(0);
    first.div_euclid(1_000_000).saturating_mul(1_000_000_000)
}

fn write_device(
    recording: &Recording,
    device: &DeviceRecording,
    pid: usize,
    counters: &[CounterRow],
    events: &mut Events<'_>,
) -> io::Result<()> {
    let base = events.base_us;
    let time_of = |event: u32| {
        let i = event as usize;
        if device.events.has_time { device.events.time_us.get(i).map_or(0, |t| t.saturating_sub(base)) } else { i64::from(event) }
    };
    for row in counters {
        let mut args = serde_json::Map::new();
        if let Some(reserved) = row.reserved {
            args.insert("reserved".to_owned(), reserved.into());
        }
        args.insert("allocated".to_owned(), row.allocated.into());
        args.insert("requested".to_owned(), row.requested.into());
        events.push(&serde_json::json!({"ph": "C", "name": "memory", "pid": pid, "ts": time_of(row.event), "args": args}))?;
    }
    for sample in &device.samples {
        // PyTorch's own figures stand in the counters above where there are events.
        let torch = |bytes: Option<u64>| bytes.filter(|_| counters.is_empty());
        let parts = [
            ("used", sample.used),
            ("this process", sample.process),
            ("other processes", sample.others),
            ("reserved", torch(sample.reserved)),
            ("allocated", torch(sample.allocated)),
        ];
        let args: serde_json::Map<_, _> = parts.into_iter().filter_map(|(k, v)| Some((k.to_owned(), v?.into()))).collect();
        if !args.is_empty() {
            events.push(&serde_json::json!({"ph": "C", "name": "card", "pid": pid, "ts": sample.time_us.saturating_sub(base), "args": args}))?;
        }
    }
    for event in device.events.ooms() {
        let size = device.events.size[event as usize];
        events.push(&serde_json::json!({
            "ph": "i", "s": "p", "name": "out of memory", "pid": pid, "tid": 0, "ts": time_of(event),
            "args": {"requested_bytes": size, "device_free_bytes": device.events.device_free_told(event)}
        }))?;
    }
    for a in &device.annotations {
        let name = recording.stacks.text(a.name);
        let event = match a.end_us {
            Some(end) => {
                serde_json::json!({"ph": "X", "name": name, "pid": pid, "tid": 1, "ts": a.start_us.saturating_sub(base), "dur": end.saturating_sub(a.start_us)})
            }
            None => {
                serde_json::json!({"ph": "i", "s": "t", "name": name, "pid": pid, "tid": 1, "ts": a.start_us.saturating_sub(base)})
            }
        };
        events.push(&event)?;
    }
    // Allocations of at least a hundredth of the largest, as instants: enough to find the big ones beside the curves.
    let largest =
        (0..device.events.len()).filter(|&i| device.events.action[i] == Action::Alloc).map(|i| device.events.size[i]).max();
    for i in 0..device.events.len() {
        let size = device.events.size[i];
        if device.events.action[i] == Action::Alloc && largest.is_some_and(|l| size >= l / 100) {
            events.push(&serde_json::json!({
                "ph": "i", "s": "t", "name": "alloc", "pid": pid, "tid": 2, "ts": time_of(i as u32), "args": {"bytes": size, "event": i}
            }))?;
        }
    }
    Ok(())
}

fn operators(recording: &Recording, ops: &OpTable, pid: usize, events: &mut Events<'_>) -> io::Result<()> {
    events
        .push(&serde_json::json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": "Operators and kernels"}}))?;
    for (i, lane) in ops.lanes.iter().enumerate() {
        events.push(&serde_json::json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": i, "args": {"name": lane.name}}))?;
    }
    for i in 0..ops.len() {
        events.push(&serde_json::json!({
            "ph": "X", "name": recording.stacks.text(ops.name[i]), "pid": pid, "tid": ops.lane[i],
            "ts": ops.start_ns[i].saturating_sub(events.base_us.saturating_mul(1_000)) as f64 / 1_000.0, "dur": ops.duration_ns[i] as f64 / 1_000.0
        }))?;
    }
    Ok(())
}
