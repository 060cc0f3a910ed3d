//! The query language: `alloc size>1MiB stack~attention -stream=0`. Terms are divided by spaces and must all hold.
//!
//! | term | holds for events |
//! |---|---|
//! | `alloc`, `free`, `segment`, `oom`, …, `action=alloc` | of this action; `free` is both halves of a free, `segment` all four |
//! | `size>1MiB`, `size=512`, `size=1MiB..2MiB`, `>1MiB` | of this size |
//! | `0x7f1dca2b7000`, `address=…` | whose block or segment holds this address |
//! | `0x7f1d..` | whose address begins with these digits |
//! | `event=100..200`, `27584` | with this number |
//! | `time>100ms` | this long after the first event |
//! | `stream=1`, `stream=0x55…` | of this stream, by index or handle |
//! | `pool=private`, `pool=default` | of a private pool (a CUDA graph's), or of the default one |
//! | `stack~attention` | with a frame whose file or function contains the text |
//! | `step=3`, `during~forward` | inside an annotation so numbered or named |
//! | `live@peak`, `live@oom`, `live@end`, `live@1200` | of a block that is live at that instant |
//! | `train.py`, `"two words"` | with the text in its stack or its notes |
//!
//! `-` before a term turns it around. Letters match without regard to case.

use rayon::prelude::*;
use rustc_hash::FxHashSet;

use super::{DeviceTables, Quantity};
use crate::model::{Action, Cancelled, DeviceRecording, Frame, PoolId, Progress, Recording, StackTable, StrId};
use crate::units::{Address, Bytes, count};

/// A range of whole numbers, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Between {
    /// Least value that holds.
    pub least: u64,
    /// Greatest value that holds.
    pub greatest: u64,
}

impl Between {
    fn holds(self, value: u64) -> bool {
        (self.least..=self.greatest).contains(&value)
    }
}

/// An instant that a query names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instant {
    /// Where requested memory peaks.
    Peak,
    /// The first out-of-memory event.
    Oom,
    /// The last event.
    End,
    /// After this event.
    Event(u32),
}

/// What must hold of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Term {
    /// One of these actions.
    Action(Vec<Action>),
    /// A size in bytes.
    Size(Between),
    /// Holds this address.
    Address(u64),
    /// Addresses in this range.
    Addresses(Between),
    /// A number of an event.
    Event(Between),
    /// Microseconds after the first event.
    Time(Between),
    /// A stream, by its index or its handle.
    Stream(u64),
    /// A private pool, or the default one.
    PrivatePool(bool),
    /// A frame that contains the text, lower case.
    Stack(String),
    /// An annotation whose name contains the text, lower case.
    During(String),
    /// An annotation whose name ends with this number.
    Step(u64),
    /// Live at an instant.
    LiveAt(Instant),
    /// The text, lower case, in the stack or the notes.
    Text(String),
}

/// Terms that must all hold; those with `true` must not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Terms, each with whether it is turned around.
    pub terms: Vec<(Term, bool)>,
}

impl Query {
    /// Reads a query. Nothing, or only spaces, holds for everything.
    ///
    /// # Errors
    /// One sentence that names the term and says what is read instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut terms = Vec::new();
        for word in words(text) {
            let (is_not, rest) = match word.strip_prefix(['-', '!']) {
                Some(rest) if !rest.is_empty() => (true, rest),
                _ => (false, word.as_str()),
            };
            terms.push((term(rest)?, is_not));
        }
        Ok(Query { terms })
    }

    /// True when it holds for everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The events it holds for, ascending. O(events), on all cores.
    ///
    /// # Errors
    /// [`Cancelled`] when the progress was cancelled.
    pub fn events(
        &self,
        recording: &Recording,
        device: &DeviceRecording,
        tables: &DeviceTables,
        progress: &Progress,
    ) -> Result<Vec<u32>, Cancelled> {
        let tests: Vec<(Test, bool)> =
            self.terms.iter().map(|(t, not)| (Test::new(t, recording, device, tables), *not)).collect();
        let n = device.events.len() as u32;
        const CHUNK: u32 = 1 << 16;
        let chunks: Result<Vec<Vec<u32>>, Cancelled> = (0..n.div_ceil(CHUNK))
            .into_par_iter()
            .map(|chunk| {
                progress.check()?;
                let range = chunk * CHUNK..((chunk + 1) * CHUNK).min(n);
                Ok(range.filter(|&e| tests.iter().all(|(t, not)| t.holds(device, tables, e) != *not)).collect())
            })
            .collect();
        Ok(chunks?.concat())
    }
}

/// Words divided by spaces; double quotes keep spaces, also after an operator: `stack~"my file.py"`.
fn words(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut is_quoted = false;
    for c in text.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            c if c.is_whitespace() && !is_quoted => {
                if !word.is_empty() {
                    out.push(std::mem::take(&mut word));
                }
            }
            c => word.push(c),
        }
    }
    if !word.is_empty() {
        out.push(word);
    }
    out
}

fn term(word: &str) -> Result<Term, String> {
    let lower = word.to_lowercase();
    if let Some(at) = lower.strip_prefix("live@") {
        return instant(at).map(Term::LiveAt);
    }
    if let Some(place) = lower.find(['<', '>', '=', '~']) {
        let (name, rest) = lower.split_at(place);
        if is_name(name) {
            let length = if rest.starts_with("<=") || rest.starts_with(">=") { 2 } else { 1 };
            let (operator, value) = rest.split_at(length);
            return compared(word, name, operator, value);
        }
    }
    if let Some(actions) = actions(&lower) {
        return Ok(Term::Action(actions));
    }
    if let Some(digits) = lower.strip_prefix("0x") {
        return address(word, digits);
    }
    if !lower.is_empty()
        && lower.bytes().all(|b| b.is_ascii_digit())
        && let Ok(n) = lower.parse::<u64>()
    {
        // A long number is an address, as PyTorch's snapshots write them.
        return Ok(if lower.len() > 10 { Term::Address(n) } else { Term::Event(Between { least: n, greatest: n }) });
    }
    Ok(Term::Text(lower))
}

/// Words a comparison can begin with.
const NAMES: [&str; 13] =
    ["", "size", "bytes", "action", "address", "addr", "event", "time", "stream", "pool", "stack", "step", "during"];

fn is_name(name: &str) -> bool {
    NAMES.contains(&name)
}

fn compared(word: &str, name: &str, operator: &str, value: &str) -> Result<Term, String> {
    let number = |read: &dyn Fn(&str) -> Result<u64, String>| between(word, operator, value, read);
    match name {
        "" | "size" | "bytes" => number(&|v| Bytes::parse(v).map(|b| b.0)).map(Term::Size),
        "event" => {
            let read = |v: &str| {
                v.replace(',', "").parse::<u64>().map_err(|_| format!("\"{v}\" is not the number of an event: write event=27584"))
            };
            number(&read).map(Term::Event)
        }
        "time" => number(&micros).map(Term::Time),
        "action" => {
            actions(value).map(Term::Action).ok_or_else(|| format!("\"{value}\" is not an action: use {}", action_names()))
        }
        "address" | "addr" => address(word, value.strip_prefix("0x").unwrap_or(value)),
        "stream" => {
            let read = match value.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok(),
                None => value.parse().ok(),
            };
            read.map(Term::Stream).ok_or_else(|| format!("\"{value}\" is not a stream: write its index (stream=1) or its handle"))
        }
        "pool" => match value {
            "private" | "graph" | "graphs" => Ok(Term::PrivatePool(true)),
            "default" => Ok(Term::PrivatePool(false)),
            _ => Err(format!("\"{value}\" is not a pool: write pool=private or pool=default")),
        },
        "step" => value.parse().map(Term::Step).map_err(|_| format!("\"{value}\" is not the number of a step: write step=3")),
        "during" => Ok(Term::During(value.to_owned())),
        _ => Ok(Term::Stack(value.to_owned())),
    }
}

fn between(word: &str, operator: &str, value: &str, read: &dyn Fn(&str) -> Result<u64, String>) -> Result<Between, String> {
    if value.is_empty() {
        return Err(format!("\"{word}\" has no value: write for example size>1MiB"));
    }
    if let Some((from, to)) = value.split_once("..")
        && operator == "="
    {
        let least = if from.is_empty() { 0 } else { read(from)? };
        let greatest = if to.is_empty() { u64::MAX } else { read(to)? };
        return Ok(Between { least, greatest });
    }
    let n = read(value)?;
    Ok(match operator {
        ">" => Between { least: n.saturating_add(1), greatest: u64::MAX },
        ">=" => Between { least: n, greatest: u64::MAX },
        "<=" => Between { least: 0, greatest: n },
        // Nothing is under 0: a range that holds nothing.
        "<" if n == 0 => Between { least: 1, greatest: 0 },
        "<" => Between { least: 0, greatest: n - 1 },
        _ => Between { least: n, greatest: n },
    })
}

/// `13us`, `2.5ms`, `1s`, `2min`; a bare number is milliseconds.
fn micros(text: &str) -> Result<u64, String> {
    let wrong = || format!("\"{text}\" is not a time: write 13us, 2.5ms, 1s or 2min");
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "us" | "µs" => 1.0,
        "" | "ms" => 1e3,
        "s" => 1e6,
        "min" => 6e7,
        _ => return Err(wrong()),
    };
    let value: f64 = number.parse().map_err(|_| wrong())?;
    Ok((value * factor).round() as u64)
}

/// `7f1d..` is a prefix, whole digits an address inside a block.
fn address(word: &str, digits: &str) -> Result<Term, String> {
    let wrong = || format!("\"{word}\" is not an address: write 0x7f1dca2b7000, or 0x7f1d.. for all that begin so");
    let prefix = digits.strip_suffix("..").or_else(|| digits.strip_suffix('…')).or_else(|| digits.strip_suffix('*'));
    let Some(prefix) = prefix else {
        return Address::parse(&format!("0x{digits}")).map(|a| Term::Address(a.0)).ok_or_else(wrong);
    };
    // Device addresses have twelve digits.
    let missing = 12usize.checked_sub(prefix.len()).ok_or_else(wrong)? as u32;
    let n = if prefix.is_empty() { 0 } else { u64::from_str_radix(prefix, 16).map_err(|_| wrong())? };
    let least = n << (4 * missing);
    Ok(Term::Addresses(Between { least, greatest: least | ((1u64 << (4 * missing)) - 1) }))
}

fn instant(text: &str) -> Result<Instant, String> {
    match text {
        "peak" => Ok(Instant::Peak),
        "oom" => Ok(Instant::Oom),
        "end" => Ok(Instant::End),
        _ => text
            .replace(',', "")
            .parse()
            .map(Instant::Event)
            .map_err(|_| format!("\"live@{text}\" names no instant: write live@peak, live@oom, live@end or live@1200")),
    }
}

const ACTIONS: [Action; 10] = [
    Action::Alloc,
    Action::FreeRequested,
    Action::FreeCompleted,
    Action::SegmentAlloc,
    Action::SegmentFree,
    Action::SegmentMap,
    Action::SegmentUnmap,
    Action::Snapshot,
    Action::Oom,
    Action::Annotate,
];

fn actions(name: &str) -> Option<Vec<Action>> {
    match name {
        "free" => Some(vec![Action::FreeRequested, Action::FreeCompleted]),
        "segment" => Some(vec![Action::SegmentAlloc, Action::SegmentFree, Action::SegmentMap, Action::SegmentUnmap]),
        "unknown" => Some(vec![Action::Unknown]),
        _ => ACTIONS.into_iter().find(|a| a.name() == name).map(|a| vec![a]),
    }
}

fn action_names() -> String {
    let names: Vec<&str> = ACTIONS.iter().map(|a| a.name()).collect();
    format!("{}, free or segment", names.join(", "))
}

/// A term made ready for one recording.
enum Test {
    Plain(Term),
    /// By stack: true where a frame matches; and events whose notes match.
    Stacks(Vec<bool>, FxHashSet<u32>),
    /// Ranges of events.
    Ranges(Vec<(u32, u32)>),
    LiveAt(u32),
    Streams(Vec<bool>),
}

impl Test {
    fn new(term: &Term, recording: &Recording, device: &DeviceRecording, tables: &DeviceTables) -> Self {
        match term {
            Term::Stack(text) => Test::Stacks(stacks_with(&recording.stacks, text), FxHashSet::default()),
            Term::Text(text) => {
                let notes = &device.events.notes;
                let events =
                    notes.iter().filter(|n| recording.stacks.text(n.text).to_lowercase().contains(text)).map(|n| n.event);
                Test::Stacks(stacks_with(&recording.stacks, text), events.collect())
            }
            Term::During(text) => ranges(device, &recording.stacks, |name| name.contains(text.as_str())),
            Term::Step(step) => ranges(device, &recording.stacks, |name| trailing_number(name) == Some(*step)),
            Term::LiveAt(at) => Test::LiveAt(match at {
                Instant::Peak => tables.curves.peak(Quantity::Requested).1,
                Instant::Oom => device.events.ooms().first().copied().unwrap_or(0),
                Instant::End => device.events.len().saturating_sub(1) as u32,
                Instant::Event(e) => *e,
            }),
            Term::Stream(wanted) => {
                let is_it = |(i, handle): (usize, &u64)| i as u64 == *wanted || handle == wanted;
                Test::Streams(device.streams.iter().enumerate().map(is_it).collect())
            }
            other => Test::Plain(other.clone()),
        }
    }

    fn holds(&self, device: &DeviceRecording, tables: &DeviceTables, event: u32) -> bool {
        let events = &device.events;
        let i = event as usize;
        match self {
            Test::Stacks(stacks, noted) => {
                stacks.get(events.stack[i].0 as usize).copied().unwrap_or(false) || noted.contains(&event)
            }
            Test::Ranges(ranges) => {
                let at = ranges.partition_point(|r| r.0 <= event);
                at.checked_sub(1).is_some_and(|at| event < ranges[at].1)
            }
            Test::LiveAt(at) => {
                let id = tables.lifetimes.of_event(event);
                id.is_some() && tables.lifetimes.is_live_at(id, *at)
            }
            Test::Streams(wanted) => wanted.get(usize::from(events.stream[i].0)).copied().unwrap_or(false),
            Test::Plain(term) => match term {
                Term::Action(actions) => actions.contains(&events.action[i]),
                Term::Size(size) => size.holds(events.size[i]),
                // The address column of an out-of-memory event holds the device's free bytes.
                Term::Address(_) | Term::Addresses(_) if events.action[i] == Action::Oom => false,
                Term::Address(address) => {
                    let from = events.address[i];
                    *address == from || (*address > from && *address - from < held_bytes(device, tables, event))
                }
                Term::Addresses(range) => range.holds(events.address[i]),
                Term::Event(range) => range.holds(u64::from(event)),
                Term::Time(range) => {
                    events.has_time && {
                        let since = events.time_us[i] - events.time_us.first().copied().unwrap_or(0);
                        u64::try_from(since).is_ok_and(|t| range.holds(t))
                    }
                }
                Term::PrivatePool(wanted) => pool_of(device, tables, event).is_some_and(|is_private| is_private == *wanted),
                _ => false,
            },
        }
    }
}

/// Bytes an event is about: the whole block of an allocation, the size column otherwise.
fn held_bytes(device: &DeviceRecording, tables: &DeviceTables, event: u32) -> u64 {
    let id = tables.lifetimes.of_event(event);
    let block = if id.is_some() { tables.lifetimes.block_size(id) } else { 0 };
    block.max(device.events.size[event as usize])
}

/// Whether an event's pool is private; `None` when it is not known.
fn pool_of(device: &DeviceRecording, tables: &DeviceTables, event: u32) -> Option<bool> {
    let mut pool = device.events.pool[event as usize];
    if pool == PoolId::UNKNOWN {
        pool = tables.lifetimes.get(device, tables.lifetimes.of_event(event))?.pool;
    }
    device.pool_key(pool).map(|key| key != (0, 0))
}

/// For each stack, whether a frame's file or function contains the text. O(frames of all stacks).
fn stacks_with(stacks: &StackTable, text: &str) -> Vec<bool> {
    let mut strings: rustc_hash::FxHashMap<StrId, bool> = rustc_hash::FxHashMap::default();
    let mut has = |id: StrId| *strings.entry(id).or_insert_with(|| stacks.text(id).to_lowercase().contains(text));
    // `train.py:71` is a place, not a name.
    let place = text.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse::<u32>().ok()?)));
    let frames: Vec<Option<Frame>> = (0..stacks.frame_count()).map(|i| stacks.frame(crate::model::FrameId(i as u32))).collect();
    let matching: Vec<bool> = frames
        .iter()
        .map(|frame| {
            frame.is_some_and(|f| {
                has(f.file)
                    || has(f.name)
                    || place.is_some_and(|(file, line)| f.line == line && stacks.text(f.file).to_lowercase().ends_with(file))
            })
        })
        .collect();
    (0..stacks.len())
        .map(|i| {
            stacks.frames(crate::model::StackId(i as u32)).iter().any(|f| matching.get(f.0 as usize).copied().unwrap_or(false))
        })
        .collect()
}

/// Events inside the annotations whose lower-case name passes, as ascending ranges that do not touch.
fn ranges(device: &DeviceRecording, stacks: &StackTable, passes: impl Fn(&str) -> bool) -> Test {
    let times = &device.events.time_us;
    let mut found: Vec<(u32, u32)> = Vec::new();
    if device.events.has_time {
        for a in device.annotations.iter().filter(|a| passes(&stacks.text(a.name).to_lowercase())) {
            let from = times.partition_point(|&t| t < a.start_us) as u32;
            let to = a.end_us.map_or(times.len(), |end| times.partition_point(|&t| t <= end)) as u32;
            match found.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => found.push((from, to)),
            }
        }
    }
    Test::Ranges(found)
}

/// The number a name ends with: `ProfilerStep#3` is 3.
fn trailing_number(name: &str) -> Option<u64> {
    let digits = name.len() - name.bytes().rev().take_while(u8::is_ascii_digit).count();
    name[digits..].parse().ok()
}

/// What a filter leaves: `9,422 of 27,909`.
#[must_use]
pub fn of_text(left: usize, all: usize) -> String {
    format!("{} of {}", count(left as u64), count(all as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{StackId, StackTableBuilder, StreamId};

    fn recording() -> Recording {
        let mut b = StackTableBuilder::new();
        let (name, file) = (b.string("attention"), b.string("/home/me/train.py"));
        let frame = b.frame(Frame { name, file, line: 71 });
        let stack = b.stack(&[frame]);
        let mut d = DeviceRecording { streams: vec![0, 0x55], pools: vec![(0, 0), (0, 7)], ..DeviceRecording::default() };
        d.events.has_time = true;
        let mut push = |t: i64, action, address: u64, size: u64, stream: u16, pool: u16, stack| {
            d.events.push(1_000 + t, action, address, size, StreamId(stream), PoolId(pool), stack);
        };
        push(0, Action::SegmentAlloc, 0x7f1d_0000_0000, 20 << 20, 0, 0, StackId::NONE);
        push(10, Action::Alloc, 0x7f1d_0000_0000, 2 << 20, 0, 0, stack);
        push(20, Action::Alloc, 0x7f1d_0020_0000, 1 << 20, 1, 1, StackId::NONE);
        push(30, Action::FreeRequested, 0x7f1d_0000_0000, 2 << 20, 0, 0, stack);
        push(31, Action::FreeCompleted, 0x7f1d_0000_0000, 2 << 20, 0, 0, stack);
        push(40, Action::Oom, 900, 5 << 20, 0, 0, stack);
        Recording { devices: vec![d], stacks: b.finish(), ..Recording::default() }
    }

    fn find(text: &str) -> Vec<u32> {
        let recording = recording();
        let device = &recording.devices[0];
        let tables = DeviceTables::build(device, &Progress::new()).unwrap();
        Query::parse(text).unwrap().events(&recording, device, &tables, &Progress::new()).unwrap()
    }

    #[test]
    fn terms_hold_for_the_events_they_name() {
        assert_eq!(find(""), [0, 1, 2, 3, 4, 5]);
        assert_eq!(find("alloc"), [1, 2]);
        assert_eq!(find("free"), [3, 4]);
        assert_eq!(find("action=free_completed"), [4]);
        assert_eq!(find("segment"), [0]);
        assert_eq!(find("alloc size>1MiB"), [1]);
        assert_eq!(find("alloc size>=1MiB"), [1, 2]);
        assert_eq!(find("size=1MiB..2MiB"), [1, 2, 3, 4]);
        assert_eq!(find("<2MiB"), [2]);
        assert_eq!(find("train.py"), [1, 3, 4, 5]);
        assert_eq!(find("train.py:71 oom"), [5]);
        assert_eq!(find("train.py:72"), Vec::<u32>::new());
        assert_eq!(find("stack~Attention alloc"), [1]);
        assert_eq!(find("-stack~attention"), [0, 2]);
        assert_eq!(find("stream=1"), [2]);
        assert_eq!(find("stream=0x55"), [2]);
        assert_eq!(find("pool=private"), [2]);
        assert_eq!(find("pool=graph -alloc"), Vec::<u32>::new());
        assert_eq!(find("time<=20us"), [0, 1, 2]);
        assert_eq!(find("event=1..3"), [1, 2, 3]);
        assert_eq!(find("4"), [4]);
    }

    #[test]
    fn addresses_are_found_inside_blocks_and_by_their_first_digits() {
        assert_eq!(find("0x7f1d00200010"), [0, 2]);
        assert_eq!(find("alloc 0x7f1d002.."), [2]);
        assert_eq!(find("0x7f1d.."), [0, 1, 2, 3, 4], "the free bytes of an out-of-memory event are no address");
        assert_eq!(find("0x9.."), Vec::<u32>::new());
    }

    #[test]
    fn blocks_live_at_an_instant() {
        assert_eq!(find("live@2 alloc"), [1, 2]);
        assert_eq!(find("live@end"), [2]);
        assert_eq!(find("live@oom"), [2]);
        assert_eq!(find("live@peak alloc"), [1, 2]);
    }

    #[test]
    fn what_can_not_be_read_is_said_in_a_sentence() {
        for text in ["size>lots", "size>", "live@noon", "stream=x", "pool=large", "action=cry", "0xzz..", "time>soon", "step=x"] {
            let sentence = Query::parse(text).unwrap_err();
            assert!(sentence.contains('"') && sentence.len() > 20, "{text}: {sentence}");
        }
        assert_eq!(Query::parse("\"two words\"").unwrap().terms, [(Term::Text("two words".to_owned()), false)]);
        assert_eq!(trailing_number("ProfilerStep#12"), Some(12));
        assert_eq!(trailing_number("step"), None);
    }
}
