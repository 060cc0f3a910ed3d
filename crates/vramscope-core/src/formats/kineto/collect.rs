//! Converts trace events into typed rows: slices, memory events, flows, names. One pass over the bytes; texts are borrowed.

use rustc_hash::FxHashMap;

use super::scan::{Broken, Scanner, Value, integer, nanoseconds, unescape};
use crate::model::{Cancelled, Clock, LoadReport, Progress, WarningKind};

/// Kind of a slice on a thread or stream. The order of variants is the nesting order of slices that start and end together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SliceKind {
    Python,
    Annotation,
    Operator,
    Runtime,
    Kernel,
    Copy,
}

/// A span on a thread or stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    /// Nanoseconds, relative to the trace's base.
    pub(super) start: i64,
    pub(super) end: i64,
    /// Index into [`Rows::names`].
    pub(super) name: u32,
    /// Index into [`Rows::threads`].
    pub(super) thread: u16,
    pub(super) kind: SliceKind,
    /// Index into [`Rows::operators`]; [`NONE`] when it has none.
    pub(super) operator: u32,
}

/// Fields that only operators have.
#[derive(Clone, Copy, Debug)]
pub(super) struct OperatorFacts<'a> {
    pub(super) sequence: Option<u64>,
    /// For a node of the backward pass: the thread of the forward operator. Otherwise 0.
    pub(super) forward_thread: u64,
    pub(super) shapes: &'a [u8],
}

/// A `[memory]` or `[OutOfMemory]` event.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryEvent {
    pub(super) time: i64,
    /// Positive for an allocation, negative for a free; for an out-of-memory event the request.
    pub(super) bytes: i64,
    /// `None` in traces of PyTorch 1.8 and 1.9, which write only sizes; 0 for an out-of-memory event.
    pub(super) address: Option<u64>,
    pub(super) allocated: Option<u64>,
    pub(super) reserved: Option<u64>,
    pub(super) device_type: i32,
    pub(super) device_index: i32,
    pub(super) thread: u16,
    pub(super) is_oom: bool,
}

/// One end of a forward-backward arrow.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowEnd {
    pub(super) id: u64,
    pub(super) time: i64,
    pub(super) thread: u16,
    pub(super) is_start: bool,
}

#[derive(Clone, Debug)]
pub(super) struct DeviceFacts {
    pub(super) index: i32,
    pub(super) name: String,
    pub(super) capacity: Option<u64>,
}

pub(super) const NONE: u32 = u32::MAX;

/// A thread or stream by the text of its pid and tid; the flag keeps streams apart from threads.
pub(super) type ThreadKey<'a> = (&'a [u8], &'a [u8], bool);

/// All parts of a trace that are used.
#[derive(Default)]
pub(super) struct Rows<'a> {
    pub(super) slices: Vec<Slice>,
    pub(super) operators: Vec<OperatorFacts<'a>>,
    pub(super) memory: Vec<MemoryEvent>,
    pub(super) flows: Vec<FlowEnd>,
    pub(super) names: Vec<&'a [u8]>,
    pub(super) threads: Vec<ThreadKey<'a>>,
    pub(super) thread_names: FxHashMap<ThreadKey<'a>, &'a [u8]>,
    pub(super) devices: Vec<DeviceFacts>,
    /// Scalars of the outermost object, as key and value.
    pub(super) header: Vec<(String, String)>,
    /// The zero point of `ts` in nanoseconds since the epoch. If the trace lacks it, a value that moves the earliest time to 0.
    pub(super) base: i64,
    pub(super) report: LoadReport,
    /// Number of trace events, used or not.
    pub(super) events: u64,
    name_ids: FxHashMap<&'a [u8], u32>,
    thread_ids: FxHashMap<ThreadKey<'a>, u16>,
    /// Per thread: ranges that began (`B`) but have not ended (`E`).
    begun: FxHashMap<(&'a [u8], &'a [u8]), Vec<Fields<'a>>>,
    lone_ends: u64,
}

#[derive(Clone, Copy, Default)]
struct Fields<'a> {
    phase: &'a [u8],
    category: &'a [u8],
    name: &'a [u8],
    pid: &'a [u8],
    tid: &'a [u8],
    time: &'a [u8],
    duration: &'a [u8],
    id: &'a [u8],
    arguments: &'a [u8],
}

pub(super) fn collect<'a>(bytes: &'a [u8], progress: &Progress) -> Result<Rows<'a>, Cancelled> {
    let mut rows = Rows::default();
    let mut scanner = Scanner::new(bytes);
    progress.set_total(bytes.len() as u64);
    if scanner.peek() == Some(b'[') {
        rows.events(&mut scanner, bytes.len(), progress)?;
    } else {
        rows.outermost(&mut scanner, bytes.len(), progress)?;
    }
    if scanner.unescaped_quotes > 0 {
        let at = scanner.first_unescaped.map(|a| a as u64);
        rows.report.warn_many(WarningKind::InvalidJson, scanner.unescaped_quotes, at, || {
            "quotes inside names that are not escaped, or events that are no JSON: read as far as they can be told".to_owned()
        });
    }
    progress.set_done(bytes.len() as u64);
    Ok(rows)
}

impl<'a> Rows<'a> {
    /// If the zero point of the times is unknown, counts them from the first event, in whole microseconds: a bare list of events
    /// has no `baseTimeNanoseconds`, and since PyTorch 2.2 `ts` alone is no epoch time. O(events).
    pub(super) fn settle_base(&mut self) {
        let times = || self.slices.iter().map(|s| s.start).chain(self.memory.iter().map(|m| m.time));
        let Some((first, last)) = times().min().zip(times().max()) else { return };
        if !Clock::OUR_DAYS.contains(&(self.base.saturating_add(last) / 1_000)) {
            self.base = first.div_euclid(1_000).saturating_mul(1_000).saturating_neg();
        }
    }

    /// Reads the outermost object: facts about the run, and the events.
    fn outermost(&mut self, scanner: &mut Scanner<'a>, length: usize, progress: &Progress) -> Result<(), Cancelled> {
        scanner.eat(b'{');
        loop {
            // Some releases omit or double commas.
            while scanner.eat(b',') {}
            match scanner.peek() {
                Some(b'}') => return Ok(()),
                Some(b'"') => {}
                _ => break,
            }
            let Ok(key) = scanner.key() else { break };
            if key == b"traceEvents" && scanner.peek() == Some(b'[') {
                if !self.events(scanner, length, progress)? {
                    return Ok(());
                }
                continue;
            }
            let Ok(value) = scanner.value() else { break };
            self.header_field(key, value);
        }
        self.truncated(scanner.offset());
        Ok(())
    }

    fn truncated(&mut self, at: usize) {
        self.report.warn(WarningKind::Truncated, Some(at as u64), || {
            "the trace ends in the middle, as when the run was killed while it was written; everything before was read, but events of other threads may stand after the cut, so sums by block can be off".to_owned()
        });
    }

    fn header_field(&mut self, key: &'a [u8], value: Value<'a>) {
        match (key, value) {
            (b"baseTimeNanoseconds", _) => self.base = integer(value).and_then(|v| i64::try_from(v).ok()).unwrap_or(0),
            (b"deviceProperties", Value::Nested(list)) => self.device_properties(list),
            (_, Value::Nested(list)) if key == b"distributedInfo" => {
                let mut scanner = Scanner::new(list);
                let header = &mut self.header;
                // A malformed object still gives the keys before the error.
                let _ = scanner.object(|k, v| {
                    if !matches!(v, Value::Nested(_)) {
                        header.push((format!("distributedInfo.{}", unescape(k)), unescape(v.bytes())));
                    }
                });
            }
            (_, Value::Text(text) | Value::Scalar(text)) => self.header.push((unescape(key), unescape(text))),
            _ => {}
        }
    }

    fn device_properties(&mut self, list: &'a [u8]) {
        let mut scanner = Scanner::new(list);
        scanner.eat(b'[');
        while scanner.peek() == Some(b'{') {
            let (mut index, mut name, mut capacity) = (None, String::new(), None);
            let read = scanner.object(|key, value| match key {
                b"id" => index = integer(value).and_then(|v| i32::try_from(v).ok()),
                b"name" => name = unescape(value.bytes()),
                b"totalGlobalMem" => capacity = integer(value).and_then(|v| u64::try_from(v).ok()),
                _ => {}
            });
            if read.is_err() {
                break;
            }
            if let Some(index) = index {
                self.devices.push(DeviceFacts { index, name, capacity });
            }
            scanner.eat(b',');
        }
    }

    /// Reads the array of events. False when it does not end.
    fn events(&mut self, scanner: &mut Scanner<'a>, length: usize, progress: &Progress) -> Result<bool, Cancelled> {
        scanner.eat(b'[');
        // Bytes scanned more than once after errors. A file full of errors is abandoned, because it would take quadratic time.
        let mut wasted = 0usize;
        loop {
            while scanner.eat(b',') {}
            if scanner.peek() == Some(b']') {
                scanner.eat(b']');
                return Ok(true);
            }
            let from = scanner.offset();
            if self.events & 0xfff == 0 {
                progress.check()?;
                progress.set_done(from as u64);
            }
            let mut fields = Fields::default();
            let read = scanner.object(|key, value| fields.set(key, value));
            match read {
                Ok(()) => {
                    self.events += 1;
                    self.event(&fields);
                }
                Err(broken) => {
                    if broken == Broken::End && from >= length {
                        self.truncated(from);
                        return Ok(false);
                    }
                    wasted = wasted.saturating_add(scanner.offset() - from);
                    let again = wasted <= length.saturating_mul(4) && scanner.resync(from + 1);
                    if !again {
                        self.truncated(from);
                        return Ok(false);
                    }
                    self.skipped(from);
                }
            }
        }
    }

    fn skipped(&mut self, at: usize) {
        self.report.warn(WarningKind::InvalidJson, Some(at as u64), || {
            "quotes inside names that are not escaped, or events that are no JSON: read as far as they can be told".to_owned()
        });
    }

    fn name(&mut self, name: &'a [u8]) -> u32 {
        let names = &mut self.names;
        *self.name_ids.entry(name).or_insert_with(|| {
            names.push(name);
            names.len() as u32 - 1
        })
    }

    fn thread(&mut self, fields: &Fields<'a>, is_device: bool) -> u16 {
        let key = (fields.pid, fields.tid, is_device);
        if let Some(&id) = self.thread_ids.get(&key) {
            return id;
        }
        let id = u16::try_from(self.threads.len()).unwrap_or(u16::MAX);
        if id < u16::MAX {
            self.threads.push(key);
            self.thread_ids.insert(key, id);
        }
        id
    }

    fn event(&mut self, f: &Fields<'a>) {
        match f.phase {
            b"X" => {
                let duration = if f.duration.is_empty() { Some(0) } else { nanoseconds(f.duration) };
                self.slice(f, duration);
            }
            // A range as two events. The ranges of a thread end in the opposite order.
            b"B" => self.begun.entry((f.pid, f.tid)).or_default().push(*f),
            b"E" => match self.begun.get_mut(&(f.pid, f.tid)).and_then(|open| ended(open, f.name)) {
                Some(begin) => {
                    let duration = nanoseconds(f.time).zip(nanoseconds(begin.time)).map(|(end, start)| end.saturating_sub(start));
                    self.slice(&begin, duration);
                }
                None => self.lone_ends += 1,
            },
            b"i" | b"I" if f.name == b"[memory]" || f.name == b"[OutOfMemory]" => self.memory_event(f),
            b"s" | b"f" if f.category == b"fwdbwd" => {
                let id = integer(Value::Scalar(f.id)).and_then(|v| u64::try_from(v).ok());
                if let (Some(id), Some(time)) = (id, nanoseconds(f.time)) {
                    let thread = self.thread(f, false);
                    self.flows.push(FlowEnd { id, time, thread, is_start: f.phase == b"s" });
                }
            }
            b"M" if f.name == b"thread_name" => {
                let mut name = None;
                let _ = Scanner::new(f.arguments).object(|k, v| name = name.or((k == b"name").then_some(v.bytes())));
                if let Some(name) = name {
                    self.thread_names.insert((f.pid, f.tid, false), name);
                }
            }
            _ => {}
        }
    }

    /// Counts the ranges of which only one end is in the file.
    pub(super) fn end_ranges(&mut self) {
        let open = std::mem::take(&mut self.begun).into_values().map(|ranges| ranges.len() as u64).sum::<u64>();
        self.report.warn_many(WarningKind::Skipped, open + self.lone_ends, None, || {
            "ranges of which only the begin or only the end is in the trace were left out".to_owned()
        });
    }

    /// Adds a slice of `duration` nanoseconds if its times can be read.
    fn slice(&mut self, f: &Fields<'a>, duration: Option<i64>) {
        let kind = match f.category {
            b"cpu_op" if is_range(f.name) => SliceKind::Annotation,
            b"cpu_op" => SliceKind::Operator,
            b"python_function" => SliceKind::Python,
            b"user_annotation" => SliceKind::Annotation,
            b"cuda_runtime"
            | b"cuda_driver"
            | b"xpu_runtime"
            | b"xpu_driver"
            | b"privateuse1_runtime"
            | b"privateuse1_driver" => SliceKind::Runtime,
            b"kernel" => SliceKind::Kernel,
            b"gpu_memcpy" | b"gpu_memset" => SliceKind::Copy,
            // Names used by traces of 1.x.
            b"Operator" | b"operator" if is_range(f.name) => SliceKind::Annotation,
            b"Operator" | b"operator" => SliceKind::Operator,
            b"Kernel" => SliceKind::Kernel,
            b"Runtime" => SliceKind::Runtime,
            _ => return,
        };
        let (Some(start), Some(duration)) = (nanoseconds(f.time), duration) else {
            self.report.warn(WarningKind::WrongType, None, || "events without a readable time were left out".to_owned());
            return;
        };
        let mut operator = NONE;
        if kind == SliceKind::Operator && !f.arguments.is_empty() {
            let mut facts = OperatorFacts { sequence: None, forward_thread: 0, shapes: b"" };
            let mut any = false;
            let _ = Scanner::new(f.arguments).object(|key, value| match key {
                b"Sequence number" => {
                    facts.sequence = integer(value).and_then(|v| u64::try_from(v).ok());
                    any = true;
                }
                b"Fwd thread id" => facts.forward_thread = integer(value).and_then(|v| u64::try_from(v).ok()).unwrap_or(0),
                b"Input Dims" | b"Input dims" => {
                    facts.shapes = value.bytes();
                    any = true;
                }
                _ => {}
            });
            if any {
                operator = self.operators.len() as u32;
                self.operators.push(facts);
            }
        }
        let thread = self.thread(f, matches!(kind, SliceKind::Kernel | SliceKind::Copy));
        let name = self.name(f.name);
        self.slices.push(Slice { start, end: start.saturating_add(duration.max(0)), name, thread, kind, operator });
    }

    fn memory_event(&mut self, f: &Fields<'a>) {
        let is_oom = f.name == b"[OutOfMemory]";
        let (mut bytes, mut address, mut allocated, mut reserved, mut device_type, mut device_index) =
            (None, None, None, None, None, -1);
        let _ = Scanner::new(f.arguments).object(|key, value| {
            let number = || integer(value);
            match key {
                b"Bytes" => bytes = number().and_then(|v| i64::try_from(v).ok()),
                // Some runtimes print addresses as signed numbers.
                b"Addr" => {
                    address = number().and_then(|v| u64::try_from(v).ok().or_else(|| i64::try_from(v).ok().map(|v| v as u64)))
                }
                b"Total Allocated" => allocated = number().and_then(|v| u64::try_from(v).ok()),
                b"Total Reserved" => reserved = number().and_then(|v| u64::try_from(v).ok()),
                b"Device Type" => device_type = number().and_then(|v| i32::try_from(v).ok()),
                b"Device Id" => device_index = number().and_then(|v| i32::try_from(v).ok()).unwrap_or(-1),
                _ => {}
            }
        });
        let address = if is_oom { address.or(Some(0)) } else { address };
        let (Some(time), Some(bytes), Some(device_type)) = (nanoseconds(f.time), bytes, device_type) else {
            self.report
                .warn(WarningKind::WrongType, None, || "memory events without size, device or time were left out".to_owned());
            return;
        };
        if !super::super::has_room(address.unwrap_or(0), bytes.unsigned_abs()) {
            let address = address.unwrap_or(0);
            let sign = if bytes < 0 { "-" } else { "" };
            self.report.warn(WarningKind::WrongType, None, || {
                format!(
                    "memory events of sizes and addresses no device has ({sign}{} at {address:#x}) were left out",
                    crate::units::counted(bytes.unsigned_abs(), "byte", "bytes")
                )
            });
            return;
        }
        let plausible = |total: Option<u64>| total.filter(|&t| t <= super::super::MAX_BYTES);
        let (allocated, reserved) = (plausible(allocated), plausible(reserved));
        let thread = self.thread(f, false);
        self.memory.push(MemoryEvent { time, bytes, address, allocated, reserved, device_type, device_index, thread, is_oom });
    }
}

/// Maximum open ranges per thread that an end is matched with.
const MAX_OPEN: usize = 512;

/// Removes the range that ends: the last one that began, with the same name if the end has one.
fn ended<'a>(open: &mut Vec<Fields<'a>>, name: &[u8]) -> Option<Fields<'a>> {
    // Ranges nest a few levels deep. The limit keeps ranges without an end from making each later end search all open ones.
    let near = open.len().saturating_sub(MAX_OPEN);
    let at = near + open.get(near..)?.iter().rposition(|begin| name.is_empty() || begin.name == name)?;
    Some(open.remove(at))
}

impl<'a> Fields<'a> {
    #[inline]
    fn set(&mut self, key: &'a [u8], value: Value<'a>) {
        match key {
            b"ph" => self.phase = value.bytes(),
            b"cat" => self.category = value.bytes(),
            b"name" => self.name = value.bytes(),
            b"pid" => self.pid = value.bytes(),
            b"tid" => self.tid = value.bytes(),
            b"ts" => self.time = value.bytes(),
            b"dur" => self.duration = value.bytes(),
            b"id" => self.id = value.bytes(),
            b"args" => self.arguments = value.bytes(),
            _ => {}
        }
    }
}

/// Ranges that PyTorch itself opens. Its first profilers write them as operators, and later ones as annotations.
fn is_range(name: &[u8]) -> bool {
    const RANGES: [&[u8]; 4] = [b"ProfilerStep#", b"Optimizer.step#", b"Optimizer.zero_grad#", b"enumerate(DataLoader)#"];
    RANGES.iter().any(|range| name.starts_with(range))
}
