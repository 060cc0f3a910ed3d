//! A Chrome trace for Perfetto (<https://ui.perfetto.dev>): memory curves, device samples and bytes per category as counters,
//! user ranges and operators as slices, out-of-memory events and large allocations as instants.
//!
//! Times count from the second in which the recording begins; the header contains that second, as in the profiler's own traces.
//! Viewers read microseconds as floating-point numbers; counted from 1970 these would be rounded so much that short operators
//! leave their parents. A device without times is drawn over event numbers, one microsecond per event.
//!
//! Behaviour of Perfetto's trace processor (v52) that the format does not describe: thread 0 of a process, and the thread with the
//! process's number, are its main thread, so no thread here gets such a number. It drops a slice that overlaps another one of its
//! thread without nesting, so such a slice gets its own thread. It shows a process with its number after its name, so no name ends
//! in a digit. Chrome's own viewer stacks the series of one counter, so curves that are not parts of a whole get a counter each.

use std::io::{self, Write};

use serde::{Serialize, Serializer};

use crate::model::{Action, CATEGORIES, DeviceRecording, OpTable, Recording};

/// Values of the memory curves right after an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterRow {
    /// Index of the event.
    pub event: u32,
    /// Bytes in segments; `None` where the source has no segments.
    pub reserved: Option<u64>,
    /// Bytes of whole blocks that the program has not freed.
    pub allocated: u64,
    /// Requested bytes, including pending frees; `None` where the source has only block sizes.
    pub requested: Option<u64>,
}

/// One event of the format, serialised directly: a recording has millions, so none is built as a JSON value first.
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
    /// Scope of an instant: its process or its thread.
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

/// Microseconds, as the format wants them.
#[derive(Serialize)]
#[serde(untagged)]
enum Time {
    Whole(i64),
    /// For operators, which last nanoseconds.
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

/// Threads of one process: one per name, and more with that name for overlapping slices.
struct Threads {
    pid: usize,
    /// Per requested thread: the numbers it is written under, each with the ends of its open slices.
    open: Vec<Vec<(usize, Vec<i64>)>>,
    many: usize,
}

/// Threads of a process are numbered from here, far from any process's number.
const THREADS: usize = 100_000;

impl Threads {
    fn of(pid: usize) -> Self {
        Threads { pid, open: Vec::new(), many: 0 }
    }

    /// The number of a thread on which a slice of thread `which`, called `name`, nests with the slices before it. Call in order
    /// of start; any unit of time. Writes the thread's name at its first use.
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

/// Writes JSON events one after another.
struct Events<'w> {
    out: &'w mut dyn Write,
    first: bool,
    /// Zero point of times, microseconds since the epoch.
    base_us: i64,
    /// Number of counter values written.
    counters: u64,
}

impl Events<'_> {
    fn push(&mut self, event: &Event<'_>) -> io::Result<()> {
        let comma = if std::mem::take(&mut self.first) { "\n" } else { ",\n" };
        self.out.write_all(comma.as_bytes())?;
        serde_json::to_writer(&mut *self.out, event)?;
        Ok(())
    }

    /// Writes the known parts of a whole as one counter with several series; nothing if none is known.
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

    /// Writes one counter per value, for values that are not parts of a whole. Skips values unchanged since `before`.
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

/// Writes a recording and returns the number of counter values. `counters` returns a device's rows by index; called in order.
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

/// The second in which the recording begins, in nanoseconds since the epoch; 0 without times.
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
        // Where there are events, the counters above already contain PyTorch's own figures.
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
            ("device_free_bytes", Arg::Number(device.events.device_free_known(event))),
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
    // Allocations of at least a hundredth of the largest, as instants: enough to find the big ones next to the curves.
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

/// Threads of a device's process.
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
