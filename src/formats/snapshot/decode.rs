//! Trace entries from bytes to columns. Every writer's usual entry is decoded where it stands, without building a value; anything
//! else goes the general way, by a small tree.

use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;

use super::super::pickle::{
    self, Budget, MemoBlock, MemoIndex, NO_OFFSET, Node, NodeId, Op, Part, PickleError, Tree, little_endian, opcodes as op,
};
use super::super::{MAX_BYTES, has_room};
use super::columns::Slots;
use super::plain::{integer, list_body, skip_store};
use super::stacks::StackReader;
use super::trace::{self, Entry, Event, Key, UNTIMED};
use crate::model::{
    Action, FrameId, LoadReport, Note, NoteKind, PoolId, PoolKey, PreviewPoint, StackId, StackTableBuilder, StrId, StreamId,
    WarningKind,
};

/// The direct way looks this far ahead without asking for the file's end.
const MARGIN: usize = 600;
const ATOMS: usize = 256;
const WORDS: usize = 64;
const RECENT: usize = 1 << 13;
/// Longer stacks are remembered for good, so that fetching one a million times does not read it a million times.
const LONG_STACK: usize = 64;
/// Events a point of the preview.
const PREVIEW_EVENTS: u32 = 4096;

/// What all threads share: the file, and the tables that give ids by value. Threads ask the tables only for what they have not
/// met before.
pub(super) struct Shared<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) memo: MemoIndex,
    pub(super) budget: Budget,
    pub(super) stacks: Mutex<StackTableBuilder>,
    pub(super) streams: Mutex<Vec<u64>>,
    pub(super) pools: Mutex<Vec<PoolKey>>,
}

/// A short text of the file that was classified once.
#[derive(Clone, Copy)]
struct Atom<'a> {
    text: &'a [u8],
    key: Key,
    action: Action,
}

/// What one part gave.
pub(super) struct Decoded {
    /// Events written, from the first slot.
    pub(super) written: usize,
    /// Notes, by slot within the part.
    pub(super) notes: Vec<Note>,
    pub(super) report: LoadReport,
    pub(super) has_time: bool,
    /// Some entries had no time while others did.
    pub(super) has_untimed: bool,
    /// The curve within the part, from zero at its start; the last point has where it ends.
    pub(super) preview: Vec<PreviewPoint>,
    pub(super) net: (i64, i64),
}

/// One thread's memory of what it has met.
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
    texts: FxHashMap<&'a [u8], StrId>,
    streams: Vec<(u64, StreamId)>,
    pools: Vec<(PoolKey, PoolId)>,
    notes: Vec<(NoteKind, StrId)>,
}

impl Worker<'_> {
    pub(super) fn new() -> Self {
        Worker {
            near_atoms: vec![(u64::MAX, None); ATOMS],
            atoms: FxHashMap::default(),
            near_words: vec![(u64::MAX, &[]); WORDS],
            near_block: None,
            recent: vec![(u64::MAX, StackId::NONE); RECENT],
            long: FxHashMap::default(),
            by_bytes: FxHashMap::default(),
            frames: FxHashMap::default(),
            texts: FxHashMap::default(),
            streams: Vec::new(),
            pools: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// Decodes one part into its slots.
pub(super) fn part<'a>(shared: &Shared<'a>, worker: &mut Worker<'a>, part: &Part, slots: Slots<'_>) -> Decoded {
    let out = Decoded {
        written: 0,
        notes: Vec::new(),
        report: LoadReport::default(),
        has_time: false,
        has_untimed: false,
        preview: Vec::new(),
        net: (0, 0),
    };
    let mut decoder = Decoder { shared, bytes: shared.bytes, worker, slots, out, left_out: 0, peak: (0, 0) };
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

    /// Writes an event and its notes.
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

    /// The general way: the values up to the next entry by a tree.
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
                self.keep(entry);
            }
        }
        if items.next <= pos {
            return Err(PickleError::Malformed { offset: pos as u64, what: "a value that never ends".to_owned() });
        }
        Ok((items.next, items.memo_id))
    }

    /// The direct way: a dict of known keys with plain values, each key fetched or written out. `None` for anything else.
    #[inline]
    fn entry(&mut self, start: usize, end: usize, memo_id: u64) -> Option<(usize, u64, Entry)> {
        let b = self.bytes;
        let limit = b.len().checked_sub(MARGIN)?.min(end);
        let (mut p, mut id) = (start + 1, memo_id);
        if p >= limit {
            return None;
        }
        skip_store(b, &mut p, &mut id);
        if b[p] != op::MARK {
            return None;
        }
        p += 1;
        let mut entry =
            Entry { action: Action::Unknown, address: 0, size: 0, stream: 0, time_us: None, pool: None, stack: StackId::NONE };
        let (mut has_action, mut address, mut size, mut device_free) = (false, None, None, None);
        loop {
            if p >= limit {
                return None;
            }
            if b[p] == op::FRAME {
                p += 9;
                continue;
            }
            if b[p] == op::SETITEMS {
                p += 1;
                break;
            }
            let key = self.atom(&mut p, &mut id)?.key;
            while b[p] == op::FRAME && p < limit {
                p += 9;
            }
            if p >= limit {
                return None;
            }
            match key {
                Key::Action => {
                    entry.action = self.atom(&mut p, &mut id)?.action;
                    has_action = true;
                    if entry.action == Action::Unknown {
                        return None;
                    }
                }
                Key::Address => address = Some(integer(b, &mut p)?),
                Key::DeviceFree => device_free = Some(integer(b, &mut p)?),
                Key::Size => size = Some(integer(b, &mut p)?),
                Key::Stream => entry.stream = integer(b, &mut p)?,
                Key::Time => entry.time_us = Some(integer(b, &mut p)? as i64),
                Key::Pool => {
                    let first = integer(b, &mut p)?;
                    let second = integer(b, &mut p)?;
                    if b[p] != op::TUPLE2 {
                        return None;
                    }
                    p += 1;
                    skip_store(b, &mut p, &mut id);
                    entry.pool = Some((first, second));
                }
                Key::Frames => entry.stack = self.frames(&mut p, &mut id, limit)?,
                Key::Note(kind) => {
                    let text = self.words(&mut p, &mut id)?;
                    let says_none = kind == NoteKind::CompileContext && text == b"N/A";
                    if !text.is_empty() && !says_none {
                        let text = self.text(text)?;
                        self.worker.notes.push((kind, text));
                    }
                }
                Key::Cpp | Key::Other => return None,
            }
        }
        // The C++ writer stores a dict after filling it.
        if matches!(b[p], op::BINPUT | op::LONG_BINPUT) {
            skip_store(b, &mut p, &mut id);
        }
        if b[p] == op::MARK && p < end {
            return None;
        }
        entry.size = size.filter(|&size| size <= MAX_BYTES)?;
        entry.address = match entry.action {
            Action::Oom => device_free.or(address)?,
            _ => address.filter(|&address| has_room(address, entry.size))?,
        };
        has_action.then_some((p, id, entry))
    }

    /// The text of a note. Unlike keys and actions these may all be different objects, which would only flush the atoms.
    #[inline]
    fn words(&mut self, p: &mut usize, id: &mut u64) -> Option<&'a [u8]> {
        let b = self.bytes;
        let at = *p;
        let fetched = match b[at] {
            op::BINGET => {
                *p = at + 2;
                u64::from(b[at + 1])
            }
            op::LONG_BINGET => {
                *p = at + 5;
                little_endian(&b[at + 1..at + 5])
            }
            _ => return self.atom(p, id).map(|atom| atom.text),
        };
        let near = self.worker.near_words[fetched as usize % WORDS];
        if near.0 == fetched {
            return Some(near.1);
        }
        if fetched >= *id {
            return None;
        }
        let start = self.shared.memo.start_near(fetched, &mut self.worker.near_block)? as usize;
        let read = Op::read(b, start).ok()?;
        if !matches!(read.code, op::SHORT_BINUNICODE | op::BINUNICODE | op::BINUNICODE8) {
            return None;
        }
        self.worker.near_words[fetched as usize % WORDS] = (fetched, read.operand);
        Some(read.operand)
    }

    /// A text: fetched, or written out here.
    #[inline]
    fn atom(&mut self, p: &mut usize, id: &mut u64) -> Option<Atom<'a>> {
        let b = self.bytes;
        let at = *p;
        let fetched = match b[at] {
            op::BINGET => {
                *p = at + 2;
                u64::from(b[at + 1])
            }
            op::LONG_BINGET => {
                *p = at + 5;
                little_endian(&b[at + 1..at + 5])
            }
            op::SHORT_BINUNICODE => {
                let to = at + 2 + usize::from(b[at + 1]);
                *p = to;
                skip_store(b, p, id);
                return Some(classify(&b[at + 2..to]));
            }
            op::BINUNICODE => {
                let to = (at + 5).checked_add(little_endian(&b[at + 1..at + 5]) as usize).filter(|&to| to + MARGIN < b.len())?;
                *p = to;
                skip_store(b, p, id);
                return Some(classify(&b[at + 5..to]));
            }
            _ => return None,
        };
        let near = &self.worker.near_atoms[fetched as usize % ATOMS];
        if near.0 == fetched {
            return near.1;
        }
        self.load_atom(fetched, *id)
    }

    #[cold]
    fn load_atom(&mut self, fetched: u64, id: u64) -> Option<Atom<'a>> {
        let atom = match self.worker.atoms.get(&fetched) {
            Some(&atom) => atom,
            None => {
                if fetched >= id {
                    return None;
                }
                let read = Op::read(self.bytes, self.shared.memo.start(fetched)? as usize).ok()?;
                if !matches!(read.code, op::SHORT_BINUNICODE | op::BINUNICODE | op::BINUNICODE8) {
                    return None;
                }
                let atom = classify(read.operand);
                self.worker.atoms.insert(fetched, atom);
                atom
            }
        };
        self.worker.near_atoms[fetched as usize % ATOMS] = (fetched, Some(atom));
        Some(atom)
    }

    fn text(&mut self, text: &'a [u8]) -> Option<StrId> {
        if let Some(&known) = self.worker.texts.get(text) {
            return Some(known);
        }
        // Odd text is left to the general way, which counts it.
        let valid = std::str::from_utf8(text).ok()?;
        let id = self.shared.stacks.lock().unwrap_or_else(PoisonError::into_inner).string(valid);
        self.worker.texts.insert(text, id);
        Some(id)
    }

    /// The value of `frames`: a list fetched, or one of fetched frames written out here.
    #[inline]
    fn frames(&mut self, p: &mut usize, id: &mut u64, limit: usize) -> Option<StackId> {
        let b = self.bytes;
        let at = *p;
        match b[at] {
            op::BINGET => {
                *p = at + 2;
                self.fetched_stack(u64::from(b[at + 1]), *id)
            }
            op::LONG_BINGET => {
                *p = at + 5;
                self.fetched_stack(little_endian(&b[at + 1..at + 5]), *id)
            }
            op::EMPTY_LIST => {
                *p = at + 1;
                let stored = skip_store(b, p, id);
                let (body, next) = list_body(b, *p, limit)?;
                *p = next;
                let stored = skip_store(b, p, id).or(stored);
                let stack = self.stack_of_bytes(body)?;
                if let Some(list) = stored {
                    self.remember(list, body.len(), stack);
                }
                Some(stack)
            }
            _ => None,
        }
    }

    #[inline]
    fn remember(&mut self, list: u64, bytes: usize, stack: StackId) {
        self.worker.recent[list as usize % RECENT] = (list, stack);
        if bytes > LONG_STACK * 5 {
            self.worker.long.insert(list, stack);
        }
    }

    #[inline]
    fn fetched_stack(&mut self, list: u64, id: u64) -> Option<StackId> {
        let recent = self.worker.recent[list as usize % RECENT];
        if recent.0 == list {
            return Some(recent.1);
        }
        if let Some(&stack) = self.worker.long.get(&list) {
            return Some(stack);
        }
        if list >= id {
            return None;
        }
        let (stack, bytes) = self.load_stack(list)?;
        self.remember(list, bytes, stack);
        Some(stack)
    }

    /// A list that stands elsewhere: directly when it is one of fetched frames at the end of its entry.
    fn load_stack(&mut self, list: u64) -> Option<(StackId, usize)> {
        let b = self.bytes;
        let limit = b.len().checked_sub(MARGIN)?;
        let mut p = self.shared.memo.start_near(list, &mut self.worker.near_block)? as usize;
        if p < limit && b[p] == op::EMPTY_LIST {
            p += 1;
            skip_store(b, &mut p, &mut 0);
            if let Some((body, mut next)) = list_body(b, p, limit) {
                skip_store(b, &mut next, &mut 0);
                if b[next] == op::SETITEMS {
                    return Some((self.stack_of_bytes(body)?, body.len()));
                }
            }
        }
        let (tree, node) = self.load(list)?;
        let mut builder = self.shared.stacks.lock().unwrap_or_else(PoisonError::into_inner);
        let stack = StackReader::new(&mut builder).stack(&tree, node, &mut self.out.report);
        // However short its bytes, it was dear to load.
        Some((stack, usize::MAX))
    }

    /// A stored object as a tree of its own.
    fn load(&self, id: u64) -> Option<(Tree<'a>, NodeId)> {
        let mut tree = Tree::default();
        let node = tree.push(Node::Memo(id), NO_OFFSET);
        pickle::resolve_outside(self.bytes, &self.shared.memo, &mut tree, vec![(id, node)], &self.shared.budget).ok()?;
        Some((tree, node))
    }

    /// The stack of frames fetched by these bytes.
    #[inline]
    fn stack_of_bytes(&mut self, body: &'a [u8]) -> Option<StackId> {
        if body.is_empty() {
            return Some(StackId::NONE);
        }
        if let Some(&stack) = self.worker.by_bytes.get(body) {
            return Some(stack);
        }
        self.new_stack(body)
    }

    #[cold]
    fn new_stack(&mut self, body: &'a [u8]) -> Option<StackId> {
        let mut frames = Vec::with_capacity(body.len() / 2);
        let mut p = 0;
        let mut whole = true;
        while p < body.len() {
            let read = Op::read(body, p).ok()?;
            p = read.next;
            match read.code {
                op::BINGET | op::LONG_BINGET => frames.extend(self.frame(little_endian(read.operand))?),
                // The same stack without it has other bytes; this one will not come again.
                op::FRAME => whole = false,
                _ => return None,
            }
        }
        if frames.len() > super::stacks::MAX_FRAMES {
            return None;
        }
        let stack = self.shared.stacks.lock().unwrap_or_else(PoisonError::into_inner).stack(&frames);
        if whole {
            self.worker.by_bytes.insert(body, stack);
        }
        Some(stack)
    }

    /// A frame dict that stands elsewhere. The outer `None` leaves the entry to the general way.
    fn frame(&mut self, id: u64) -> Option<Option<FrameId>> {
        if let Some(&known) = self.worker.frames.get(&id) {
            return Some(known);
        }
        let (tree, node) = self.load(id)?;
        let mut builder = self.shared.stacks.lock().unwrap_or_else(PoisonError::into_inner);
        let frame = StackReader::new(&mut builder).frame(&tree, node, &mut self.out.report);
        drop(builder);
        self.worker.frames.insert(id, frame);
        Some(frame)
    }

    #[inline]
    fn stream(&mut self, handle: u64) -> StreamId {
        match self.worker.streams.iter().find(|(known, _)| *known == handle) {
            Some(&(_, id)) => id,
            None => {
                let id = StreamId(intern(&self.shared.streams, handle));
                self.worker.streams.push((handle, id));
                id
            }
        }
    }

    #[inline]
    fn pool(&mut self, key: PoolKey) -> PoolId {
        match self.worker.pools.iter().find(|(known, _)| *known == key) {
            Some(&(_, id)) => id,
            None => {
                let id = PoolId(intern(&self.shared.pools, key));
                self.worker.pools.push((key, id));
                id
            }
        }
    }
}

/// The position of a value in a shared table, added when new. More than 65,534 share the last one.
fn intern<T: PartialEq>(table: &Mutex<Vec<T>>, value: T) -> u16 {
    let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
    let at = table.iter().position(|known| *known == value).unwrap_or_else(|| {
        if table.len() < usize::from(u16::MAX) {
            table.push(value);
        }
        table.len() - 1
    });
    u16::try_from(at).unwrap_or(u16::MAX - 1)
}

fn classify(text: &[u8]) -> Atom<'_> {
    Atom { text, key: Key::of(text), action: Action::from_name(text) }
}
