//! A Chrome trace for Perfetto (<https://ui.perfetto.dev>): memory curves, samples of the card and bytes by category as counters, user
//! ranges and operators as slices, out-of-memory events and large allocations as instants.
//!
//! Times count from the second in which the recording begins, which stands in the header as in the profiler's own traces: viewers read
//! microseconds as floating-point numbers, which since 1970 would round operators of nanoseconds out of their parents. A device without
//! times is drawn over event numbers, a microsecond an event.
//!
//! What Perfetto's trace processor (v52) makes of the format, beyond its description: thread 0 of a process, and one with the process's
//! own number, are its main thread, so no thread here has such a number. A slice that overlaps another of its thread without nesting is
//! dropped, so it gets a thread of its own. A process is shown with its number behind its name, so no name ends in a digit. Chrome's own
//! viewer stacks the series of one counter, so curves that are no parts of a whole are a counter each.

use std::io::{self, Write};

use serde::{Serialize, Serializer};

use crate::model::{Action, CATEGORIES, DeviceRecording, OpTable, Recording};

/// Values of the memory curves right after an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterRow {
    /// The event.
    pub event: u32,
    /// Bytes in segments; `None` where the source has no segments.
    pub reserved: Option<u64>,
    /// Whole blocks that the program holds.
    pub allocated: u64,
    /// Bytes the program asked for, pending frees included; `None` where the source has whole blocks only.
    pub requested: Option<u64>,
}

/// One event of the format, written as it stands: a recording has millions, so none becomes a tree of values first.
#[derive(Serialize)]
struct Event<'a> {
    ph: &'static str,
    name: &'a str,
    pid: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<Time>,
    /// How far an instant reaches: its process or its thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Args::is_empty")]
    args: Args<'a>,
}

impl<'a> Event<'a> {
    fn new(ph: &'static str, name: &'a str, pid: usize) -> Self {
        Event { ph, name, pid, tid: None, ts: None, dur: None, s: None, args: Args(&[]) }
    }

    fn tid(self, tid: usize) -> Self {
        Event { tid: Some(tid), ..self }
    }

    fn at(self, us: i64) -> Self {
        Event { ts: Some(Time::Whole(us)), ..self }
    }

    fn args(self, args: &'a [(&'a str, Arg<'a>)]) -> Self {
        Event { args: Args(args), ..self }
    }
}

/// Microseconds.
#[derive(Serialize)]
#[serde(untagged)]
enum Time {
    Whole(i64),
    /// Operators last nanoseconds.
    Fraction(f64),
}

#[derive(Clone, Copy, Serialize)]
#[serde(untagged)]
enum Arg<'a> {
    Number(Option<u64>),
    Text(&'a str),
}

struct Args<'a>(&'a [(&'a str, Arg<'a>)]);

impl Args<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Args<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// Threads of one process: a name each, and further threads of that name for what overlaps.
struct Threads {
    pid: usize,
    /// By the thread asked for: the numbers it is written under, each with the ends of its open slices.
    open: Vec<Vec<(usize, Vec<i64>)>>,
    /// Threads so far.
    many: usize,
}

/// Threads are numbered from here on within a process, far from any process's number.
const THREADS: usize = 100_000;

impl Threads {
    fn of(pid: usize) -> Self {
        Threads { pid, open: Vec::new(), many: 0 }
    }

    /// The number under which a slice of the thread `which`, called `name`, nests with those before it. Slices of a thread come in the
    /// order of their starts, in any unit of time. A thread is named where it is used first.
    fn place(&mut self, which: usize, name: &str, from: i64, to: i64, events: &mut Events<'_>) -> io::Result<usize> {
        if self.open.len() <= which {
            self.open.resize_with(which + 1, Vec::new);
        }
        let numbers = &mut self.open[which];
        for (tid, ends) in numbers.iter_mut() {
            while ends.last().is_some_and(|&end| end <= from) {
                ends.pop();
            }
            if ends.last().is_none_or(|&end| to <= end) {
                ends.push(to);
                return Ok(*tid);
            }
        }
        self.many += 1;
        let tid = self.pid * THREADS + self.many;
        let overlapping = format!("{name}, overlapping");
        let name = if numbers.is_empty() { name } else { &overlapping };
        numbers.push((tid, vec![to]));
        events.push(&Event::new("M", "thread_name", self.pid).tid(tid).args(&[("name", Arg::Text(name))]))?;
        Ok(tid)
    }
}

/// Writes JSON events one after the other.
struct Events<'w> {
    out: &'w mut dyn Write,
    first: bool,
    /// What times count from, microseconds since the epoch.
    base_us: i64,
    /// Values of counters written.
    counters: u64,
}

impl Events<'_> {
    fn push(&mut self, event: &Event<'_>) -> io::Result<()> {
        let comma = if std::mem::take(&mut self.first) { "\n" } else { ",\n" };
        self.out.write_all(comma.as_bytes())?;
        serde_json::to_writer(&mut *self.out, event)?;
        Ok(())
    }

    /// The parts of a whole that are known, one counter of several series; without any nothing is written.
    fn counter(&mut self, name: &str, pid: usize, us: i64, values: &[(&str, Option<u64>)]) -> io::Result<()> {
        let mut known = [("", Arg::Number(None)); 8];
        let mut many = 0;
        for (slot, &(key, value)) in known.iter_mut().zip(values.iter().filter(|(_, value)| value.is_some())) {
            *slot = (key, Arg::Number(value));
            many += 1;
        }
        if many == 0 {
            return Ok(());
        }
        self.counters += 1;
        self.push(&Event::new("C", name, pid).at(us).args(&known[..many]))
    }

    /// A counter each for values that are no parts of one whole. One that did not change since `before` is not repeated.
    fn values<const N: usize>(
        &mut self,
        pid: usize,
        us: i64,
        values: &[(&str, Option<u64>); N],
        before: &mut [Option<u64>; N],
    ) -> io::Result<()> {
        for ((name, value), before) in values.iter().zip(before) {
            if value.is_some() && value != before {
                *before = *value;
                self.counter(name, pid, us, &[("bytes", *value)])?;
            }
        }
        Ok(())
    }
}

/// Writes a recording, and says how many values its counters have. `counters` gives the rows of each device of the recording, in order.
///
/// # Errors
/// What the writer says.
pub fn write(recording: &Recording, counters: &mut dyn FnMut(usize) -> Vec<CounterRow>, out: &mut dyn Write) -> io::Result<u64> {
    let base = base_ns(recording);
    write!(out, "{{\"displayTimeUnit\":\"ms\",\"exportedBy\":\"vramscope\",\"baseTimeNanoseconds\":{base},\"traceEvents\":[")?;
    let mut events = Events { out, first: true, base_us: base / 1_000, counters: 0 };
    for (index, device) in recording.devices.iter().enumerate() {
        let pid = index + 1;
        let card = device.name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
        let name = format!("{} memory{card}", device.id);
        events.push(&Event::new("M", "process_name", pid).args(&[("name", Arg::Text(&name))]))?;
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
    let mut before = [None; 3];
    for row in counters {
        let values = [("reserved", row.reserved), ("allocated", Some(row.allocated)), ("requested", row.requested)];
        events.values(pid, time_of(row.event), &values, &mut before)?;
    }
    let mut before = [None; 5];
    for sample in &device.samples {
        // PyTorch's own figures stand in the counters above where there are events.
        let torch = |bytes: Option<u64>| bytes.filter(|_| counters.is_empty());
        let values = [
            ("used on the card", sample.used),
            ("this process", sample.process),
            ("other processes", sample.others),
            ("reserved", torch(sample.reserved)),
            ("allocated", torch(sample.allocated)),
        ];
        events.values(pid, sample.time_us.saturating_sub(base), &values, &mut before)?;
    }
    for (&time_us, row) in device.bands.time_us.iter().zip(&device.bands.bytes) {
        let values: [_; CATEGORIES.len()] = std::array::from_fn(|i| (CATEGORIES[i], Some(row[i])));
        events.counter("bytes by category", pid, time_us.saturating_sub(base), &values)?;
    }
    for event in device.events.ooms() {
        let args = [
            ("requested_bytes", Arg::Number(Some(device.events.size[event as usize]))),
            ("device_free_bytes", Arg::Number(device.events.device_free_told(event))),
        ];
        events.push(&Event { s: Some("p"), ..Event::new("i", "out of memory", pid).at(time_of(event)).args(&args) })?;
    }
    let mut threads = Threads::of(pid);
    for a in &device.annotations {
        let name = recording.stacks.text(a.name);
        let start = a.start_us.saturating_sub(base);
        match a.end_us {
            Some(end) => {
                let tid = threads.place(RANGES, "ranges", a.start_us, end, events)?;
                let dur = Some(Time::Whole(end.saturating_sub(a.start_us)));
                events.push(&Event { dur, ..Event::new("X", name, pid).tid(tid).at(start) })?;
            }
            None => {
                let tid = threads.place(MARKS, "marks", a.start_us, a.start_us, events)?;
                events.push(&Event { s: Some("t"), ..Event::new("i", name, pid).tid(tid).at(start) })?;
            }
        }
    }
    // Allocations of at least a hundredth of the largest, as instants: enough to find the big ones beside the curves.
    let largest =
        (0..device.events.len()).filter(|&i| device.events.action[i] == Action::Alloc).map(|i| device.events.size[i]).max();
    for i in 0..device.events.len() {
        let size = device.events.size[i];
        if device.events.action[i] == Action::Alloc && largest.is_some_and(|l| size >= l / 100) {
            let at = time_of(i as u32);
            let tid = threads.place(LARGE, "large allocations", at, at, events)?;
            let args = [("bytes", Arg::Number(Some(size))), ("event", Arg::Number(Some(i as u64)))];
            events.push(&Event { s: Some("t"), ..Event::new("i", "alloc", pid).tid(tid).at(at).args(&args) })?;
        }
    }
    Ok(())
}

/// Threads of a device.
const RANGES: usize = 0;
const MARKS: usize = 1;
const LARGE: usize = 2;

fn operators(recording: &Recording, ops: &OpTable, pid: usize, events: &mut Events<'_>) -> io::Result<()> {
    events.push(&Event::new("M", "process_name", pid).args(&[("name", Arg::Text("Operators and kernels"))]))?;
    let mut threads = Threads::of(pid);
    let base_ns = events.base_us.saturating_mul(1_000);
    for i in 0..ops.len() {
        let lane = usize::from(ops.lane[i]);
        let name = ops.lanes.get(lane).map_or("", |lane| lane.name.as_str());
        let end = ops.start_ns[i].saturating_add_unsigned(ops.duration_ns[i]);
        let tid = threads.place(lane, name, ops.start_ns[i], end, events)?;
        events.push(&Event {
            ts: Some(Time::Fraction(ops.start_ns[i].saturating_sub(base_ns) as f64 / 1_000.0)),
            dur: Some(Time::Fraction(ops.duration_ns[i] as f64 / 1_000.0)),
            ..Event::new("X", recording.stacks.text(ops.name[i]), pid).tid(tid)
        })?;
    }
    Ok(())
}
