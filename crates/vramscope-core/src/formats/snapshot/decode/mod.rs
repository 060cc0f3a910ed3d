//! Decodes trace entries from bytes into columns. Usual entries are decoded directly; all others through a small tree.

use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;

use super::super::pickle::{self, Budget, MemoBlock, MemoIndex, Part, PickleError, Tree, opcodes as op};
use super::columns::Slots;
use super::stacks::StackReader;
use super::trace::{self, Entry, Event, Key, UNTIMED};
use crate::model::{
    Action, FrameId, LoadReport, Note, NoteKind, PoolId, PoolKey, PreviewPoint, StackId, StackTableBuilder, StrId, StreamId,
    WarningKind,
};

mod entry;
mod frames;

/// The fast decoder reads this far ahead without checking for the end of the file.
pub(super) const MARGIN: usize = 600;
const ATOMS: usize = 256;
const WORDS: usize = 64;
const RECENT: usize = 1 << 13;
/// Size of the direct-mapped cache of frames; the low bits of an id select the slot. A frame takes about five ids.
const FRAMES: usize = 1 << 13;
/// Events per preview point.
const PREVIEW_EVENTS: u32 = 4096;

/// Shared by all threads: the file, and the tables that assign ids to values. A thread asks a table only for values new to it.
pub(super) struct Shared<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) memo: MemoIndex,
    pub(super) budget: Budget,
    pub(super) stacks: Mutex<StackTableBuilder>,
    pub(super) streams: Mutex<Numbered<u64>>,
    pub(super) pools: Mutex<Numbered<PoolKey>>,
}

/// A short text of the file with its classification.
#[derive(Clone, Copy)]
struct Atom<'a> {
    text: &'a [u8],
    key: Key,
    action: Action,
}

#[derive(Default)]
pub(super) struct Decoded {
    /// Number of events written, from the first slot on.
    pub(super) written: usize,
    /// Notes; `event` is the slot within the part.
    pub(super) notes: Vec<Note>,
    pub(super) report: LoadReport,
    pub(super) has_time: bool,
    /// True if some entries have no time.
    pub(super) has_untimed: bool,
    /// The curve within the part, starting from zero.
    pub(super) preview: Vec<PreviewPoint>,
    pub(super) net: (i64, i64),
}

#[derive(Default)]
pub(super) struct Worker<'a> {
    near_atoms: Vec<(u64, Option<Atom<'a>>)>,
    atoms: FxHashMap<u64, Atom<'a>>,
    near_words: Vec<(u64, &'a [u8])>,
    near_block: Option<std::sync::Arc<MemoBlock>>,
    recent: Vec<(u64, StackId)>,
    long: FxHashMap<u64, StackId>,
    /// Stacks by the bytes that fetch their frames.
    by_bytes: FxHashMap<&'a [u8], StackId>,
    frames: FxHashMap<u64, Option<FrameId>>,
    near_frames: Vec<(u64, Option<FrameId>)>,
    texts: FxHashMap<&'a [u8], StrId>,
    /// The notes of unknown keys, by key and value.
    unknown: FxHashMap<(&'a [u8], entry::Plain<'a>), StrId>,
    /// Long texts, by position and length.
    long_texts: FxHashMap<(usize, usize), StrId>,
    streams: Known<u64>,
    pools: Known<PoolKey>,
    notes: Vec<(NoteKind, StrId)>,
}

impl Worker<'_> {
    pub(super) fn new() -> Self {
        Worker {
            near_atoms: vec![(u64::MAX, None); ATOMS],
            near_words: vec![(u64::MAX, &[]); WORDS],
            recent: vec![(u64::MAX, StackId::NONE); RECENT],
            near_frames: vec![(u64::MAX, None); FRAMES],
            ..Worker::default()
        }
    }
}

pub(super) fn part<'a>(shared: &Shared<'a>, worker: &mut Worker<'a>, part: &Part, slots: Slots<'_>) -> Decoded {
    let mut decoder = Decoder { shared, bytes: shared.bytes, worker, slots, out: Decoded::default(), left_out: 0, peak: (0, 0) };
    for range in &part.ranges {
        if let Err(error) = decoder.range(range.start, range.end, range.memo_id) {
            let (offset, what) = match error {
                PickleError::Malformed { offset, what } | PickleError::Limit { offset, what } => (offset, what),
                PickleError::Truncated { offset } => (offset, "it ends early".to_owned()),
                PickleError::Forbidden { offset, opcode } => (offset, format!("it uses {opcode}")),
                PickleError::Cancelled => break,
            };
            let lost = part.items.saturating_sub(decoder.out.written).max(1) as u64;
            decoder.out.report.warn_many(WarningKind::Skipped, lost, Some(offset), || {
                format!("trace entries could not be decoded ({what}); the rest of their batch was left out")
            });
            break;
        }
    }
    decoder.finish()
}

struct Decoder<'d, 's, 'a> {
    shared: &'d Shared<'a>,
    bytes: &'a [u8],
    worker: &'d mut Worker<'a>,
    slots: Slots<'s>,
    out: Decoded,
    left_out: u64,
    /// Highest reserved and requested bytes since the last preview point.
    peak: (i64, i64),
}

impl<'a> Decoder<'_, '_, 'a> {
    fn finish(mut self) -> Decoded {
        if !self.out.written.is_multiple_of(PREVIEW_EVENTS as usize) {
            self.point();
        }
        self.out.report.warn_many(WarningKind::Skipped, self.left_out, None, || {
            "more trace entries than a file of this size can hold; the rest was left out".to_owned()
        });
        self.out
    }

    fn range(&mut self, start: usize, end: usize, memo_id: u64) -> Result<(), PickleError> {
        let (mut pos, mut id) = (start, memo_id);
        while pos < end {
            match self.bytes[pos] {
                op::EMPTY_DICT => {
                    self.worker.notes.clear();
                    match self.entry(pos, end, id) {
                        Some((next, next_id, entry)) => {
                            (pos, id) = (next, next_id);
                            self.keep(entry);
                        }
                        None => (pos, id) = self.general(pos, end, id)?,
                    }
                }
                op::APPEND => pos += 1,
                op::FRAME => pos += 9,
                _ => (pos, id) = self.general(pos, end, id)?,
            }
        }
        Ok(())
    }

    #[inline]
    fn keep(&mut self, entry: Entry) {
        if self.out.written >= self.slots.len() {
            self.left_out += 1;
            return;
        }
        let stream = self.stream(entry.stream);
        let pool = entry.pool.map_or(PoolId::UNKNOWN, |key| self.pool(key));
        match entry.time_us {
            Some(_) => self.out.has_time = true,
            None => self.out.has_untimed = true,
        }
        let event = Event {
            time_us: entry.time_us.unwrap_or(UNTIMED),
            action: entry.action,
            address: entry.address,
            size: entry.size,
            stream,
            pool,
            stack: entry.stack,
        };
        self.slots.set(self.out.written, event);
        let slot = self.out.written as u32;
        for &(kind, text) in &self.worker.notes {
            self.out.notes.push(Note { event: slot, kind, text });
        }
        self.out.written += 1;
        let size = entry.size as i64;
        let net = &mut self.out.net;
        match entry.action {
            Action::Alloc => net.1 = net.1.wrapping_add(size),
            Action::FreeCompleted => net.1 = net.1.wrapping_sub(size),
            Action::SegmentAlloc | Action::SegmentMap => net.0 = net.0.wrapping_add(size),
            Action::SegmentFree | Action::SegmentUnmap => net.0 = net.0.wrapping_sub(size),
            _ => {}
        }
        self.peak = (self.peak.0.max(net.0), self.peak.1.max(net.1));
        if self.out.written.is_multiple_of(PREVIEW_EVENTS as usize) {
            self.point();
        }
    }

    fn point(&mut self) {
        let event = (self.out.preview.len() as u32) * PREVIEW_EVENTS;
        self.out.preview.push(PreviewPoint { device: 0, event, reserved: self.peak.0, requested: self.peak.1 });
        self.peak = self.out.net;
    }

    /// The general decoder: reads the values up to the next entry into a tree.
    fn general(&mut self, pos: usize, end: usize, id: u64) -> Result<(usize, u64), PickleError> {
        let mut tree = Tree::default();
        let items = pickle::items(self.bytes, &self.shared.memo, (pos, end), id, &mut tree, &self.shared.budget)?;
        for &node in &items.nodes {
            self.worker.notes.clear();
            let read = {
                let mut builder = self.shared.stacks.lock().unwrap_or_else(PoisonError::into_inner);
                let mut stacks = StackReader::new(&mut builder);
                trace::read_entry(&tree, node, &mut stacks, &mut self.out.report, false, &mut self.worker.notes)
            };
            if let Some(entry) = read {
                let builder = self.shared.stacks.lock().unwrap_or_else(PoisonError::into_inner);
                let said: usize = self.worker.notes.iter().map(|&(_, text)| builder.table().text(text).len()).sum();
                drop(builder);
                self.shared.budget.spend(said, pos as u64)?;
                self.keep(entry);
            }
        }
        if items.next <= pos {
            return Err(PickleError::Malformed { offset: pos as u64, what: "a value that never ends".to_owned() });
        }
        Ok((items.next, items.memo_id))
    }

    #[inline]
    fn stream(&mut self, handle: u64) -> StreamId {
        StreamId(self.worker.streams.id(handle, &self.shared.streams))
    }

    #[inline]
    fn pool(&mut self, key: PoolKey) -> PoolId {
        PoolId(self.worker.pools.id(key, &self.shared.pools))
    }
}

/// Values in order of first occurrence, shared by all threads. Values beyond 65,534 share the last number.
#[derive(Debug, Default)]
pub(super) struct Numbered<T> {
    pub(super) values: Vec<T>,
    numbers: FxHashMap<T, u16>,
}

/// One thread's cache of a [`Numbered`]: the last value, and all values seen.
#[derive(Default)]
struct Known<T> {
    last: Option<(T, u16)>,
    numbers: FxHashMap<T, u16>,
}

impl<T: Copy + Eq + std::hash::Hash> Known<T> {
    #[inline]
    fn id(&mut self, value: T, shared: &Mutex<Numbered<T>>) -> u16 {
        match self.last {
            Some((last, number)) if last == value => number,
            _ => self.look_up(value, shared),
        }
    }

    fn look_up(&mut self, value: T, shared: &Mutex<Numbered<T>>) -> u16 {
        let number = *self.numbers.entry(value).or_insert_with(|| {
            let Numbered { values, numbers } = &mut *shared.lock().unwrap_or_else(PoisonError::into_inner);
            *numbers.entry(value).or_insert_with(|| {
                if values.len() < usize::from(u16::MAX) {
                    values.push(value);
                }
                (values.len() - 1) as u16
            })
        });
        self.last = Some((value, number));
        number
    }
}
