//! The scan: one pass over a file that builds everything except the traces.
//!
//! It only skims lists of trace entries. Other threads get their bytes in parts and decode them while the scan goes on.

use super::machine::{Machine, Slot, bad};
use super::memo::{MemoIndex, MemoWriter};
use super::opcodes as op;
use super::ops::Op;
use super::skim::{Skimmer, Step, skim_dict};
use super::tree::{Node, NodeId, Tree};
use super::{Ended, Parsed, PickleError};
use crate::model::Progress;

/// A part is handed out when it reaches about this many bytes.
const PART_BYTES: usize = 512 << 10;

/// More lists of entries than any host has devices.
const MAX_LISTS: usize = 4096;

/// The lists whose entries are decoded elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Streamed {
    /// Keys of the outermost dict whose value is a list of lists of entries.
    pub(crate) nested: &'static [&'static [u8]],
    /// Keys of the outermost dict whose value is a list of entries.
    pub(crate) flat: &'static [&'static [u8]],
}

/// A range of entries with nothing in between except, in some dialects, an `APPEND` after each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The memo id that the first `MEMOIZE` in it takes.
    pub(crate) memo_id: u64,
}

/// Entries of one list, ready to decode: every object that they fetch is in the [`MemoIndex`].
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) list: NodeId,
    /// Index of the list in its outer list; `None` for a flat one.
    pub(crate) index: Option<usize>,
    pub(crate) items: usize,
    pub(crate) ranges: Vec<Range>,
}

pub(crate) struct Scanner<'a, 'm, F> {
    machine: Machine<'a>,
    memo: MemoWriter<'m>,
    streamed: Streamed,
    pos: usize,
    /// Position up to which [`Progress`] was updated.
    reported: usize,
    /// Number of bytes in `part` so far.
    part_bytes: usize,
    part: Option<Part>,
    hand_out: F,
}

impl<'a, 'm, F: FnMut(Part)> Scanner<'a, 'm, F> {
    pub(crate) fn new(bytes: &'a [u8], memo: &'m MemoIndex, streamed: Streamed, hand_out: F) -> Self {
        Scanner {
            machine: Machine::new(bytes, Tree::default(), 0),
            memo: MemoWriter::new(memo),
            streamed,
            pos: 0,
            reported: 0,
            part_bytes: 0,
            part: None,
            hand_out,
        }
    }

    /// Runs until `STOP`. A file that ends before gives what was read, with [`Parsed::ended`] set.
    pub(crate) fn run(mut self, progress: &Progress) -> Result<Parsed<'a>, PickleError> {
        let mut turns = 0u32;
        loop {
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(1 << 14) {
                self.report(progress, self.pos)?;
            }
            match self.turn(progress) {
                Ok(true) => {}
                Ok(false) => {
                    self.flush_at(self.pos);
                    self.memo.publish(self.pos);
                    self.machine.tree.root = self.machine.pop(self.pos)?;
                    return Ok(self.finish(None));
                }
                Err(PickleError::Truncated { offset }) => return self.end_early(Ended { offset, what: None }),
                // Keep what was read before, if there is anything.
                Err(PickleError::Malformed { offset, what }) => return self.end_early(Ended { offset, what: Some(what) }),
                Err(error) => return Err(error),
            }
        }
    }

    fn finish(self, ended: Option<Ended>) -> Parsed<'a> {
        Parsed { tree: self.machine.tree, outside: self.machine.outside.into_iter().collect(), ended }
    }

    fn report(&mut self, progress: &Progress, pos: usize) -> Result<(), PickleError> {
        progress.advance(pos.saturating_sub(self.reported) as u64);
        self.reported = pos.max(self.reported);
        progress.check().map_err(|_| PickleError::Cancelled)
    }

    /// Runs one opcode; false at `STOP`.
    fn turn(&mut self, progress: &Progress) -> Result<bool, PickleError> {
        let pos = self.pos;
        let read = Op::read(self.machine.bytes, pos)?;
        if read.code == op::STOP {
            return Ok(false);
        }
        self.step(read)?;
        if matches!(read.code, op::BINGET | op::LONG_BINGET) {
            self.fetches()?;
        }
        if matches!(read.code, op::EMPTY_LIST | op::LIST)
            && let Some((list, index)) = self.streamed_list()
        {
            self.trace(list, index, progress)?;
        }
        Ok(true)
    }

    fn step(&mut self, read: Op<'a>) -> Result<(), PickleError> {
        if matches!(read.code, op::BINGET | op::LONG_BINGET | op::GET) {
            let id = match read.code {
                op::GET => super::decimal_id(read.operand).ok_or_else(|| bad(self.pos, "a GET that is no number"))?,
                _ => super::ops::little_endian(read.operand),
            };
            if !self.memo.contains(id) {
                return Err(bad(self.pos, &format!("memo entry {id} is fetched but was never stored")));
            }
        }
        if let Some((id, start)) = self.machine.step(read, self.pos)?
            && !self.memo.put(id, start)
        {
            return Err(bad(self.pos, "a memo entry is stored twice"));
        }
        self.pos = read.next;
        Ok(())
    }

    /// Fetches that follow a fetch: a deep stack is a list of a hundred. Stops before one that [`step`](Self::step) must refuse.
    fn fetches(&mut self) -> Result<(), PickleError> {
        loop {
            let (id, length) = match self.machine.bytes.get(self.pos..).unwrap_or_default() {
                [op::BINGET, id, ..] => (u64::from(*id), 2),
                [op::LONG_BINGET, a, b, c, d, ..] => (u64::from(u32::from_le_bytes([*a, *b, *c, *d])), 5),
                _ => return Ok(()),
            };
            if !self.memo.contains(id) || !self.machine.has_room() {
                return Ok(());
            }
            self.machine.fetch(id, self.pos)?;
            self.pos += length;
        }
    }

    /// The list on top of the stack, if its entries are decoded elsewhere.
    fn streamed_list(&self) -> Option<(NodeId, Option<usize>)> {
        let machine = &self.machine;
        let text = |slot: Slot| match machine.tree.node(slot.node) {
            Node::Str(text) => Some(text.as_ref()),
            _ => None,
        };
        let is_list = |slot: &Slot| matches!(machine.tree.node(slot.node), Node::List(_));
        if !matches!(machine.tree.node(machine.stack.first()?.node), Node::Dict(_)) {
            return None;
        }
        // Outer marks: that of the outermost dict's batch, and perhaps that of the outer list's batch.
        let (outer_marks, batch) = match machine.marks[..] {
            [] | [(1, _)] => (true, None),
            [(floor, _)] | [(1, _), (floor, _)] => (true, Some(floor)),
            _ => (false, None),
        };
        if !outer_marks {
            return None;
        }
        let at = machine.stack.len() - 1;
        let list = machine.stack[at].node;
        let outer = match batch {
            None => {
                if text(machine.stack[at.checked_sub(1)?]).is_some_and(|key| self.streamed.flat.contains(&key)) {
                    return Some((list, None));
                }
                at.checked_sub(1)?
            }
            Some(floor) => floor.checked_sub(1)?,
        };
        let key = text(machine.stack[outer.checked_sub(1)?])?;
        let siblings = &machine.stack[outer + 1..at];
        if !self.streamed.nested.contains(&key) || siblings.len() > MAX_LISTS || !siblings.iter().all(is_list) {
            return None;
        }
        let Node::List(already) = machine.tree.node(machine.stack[outer].node) else { return None };
        Some((list, Some(already.len() + siblings.len())))
    }

    /// Skims the entries of the list on top of the stack, until another value follows.
    fn trace(&mut self, list: NodeId, index: Option<usize>, progress: &Progress) -> Result<(), PickleError> {
        loop {
            self.report(progress, self.pos)?;
            let read = Op::read(self.machine.bytes, self.pos)?;
            let after = self.machine.bytes.get(read.next).copied();
            match read.code {
                op::MEMOIZE | op::BINPUT | op::LONG_BINPUT | op::PUT | op::FRAME => self.step(read)?,
                op::MARK if after == Some(op::DICT) => {
                    if !self.skim(list, index, false, self.pos, progress)? {
                        return Ok(());
                    }
                }
                op::MARK if matches!(after, Some(op::LIST | op::TUPLE)) => return Ok(()),
                op::MARK => {
                    if !self.skim(list, index, true, read.next, progress)? {
                        return Ok(());
                    }
                }
                op::EMPTY_DICT => {
                    if !self.skim(list, index, false, self.pos, progress)? {
                        return Ok(());
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    /// Skims a batch up to its `APPENDS`, or entries up to the last `APPEND`. False if these values are not for the list.
    fn skim(
        &mut self,
        list: NodeId,
        index: Option<usize>,
        in_batch: bool,
        start: usize,
        progress: &Progress,
    ) -> Result<bool, PickleError> {
        let bytes = self.machine.bytes;
        let mut skimmer = Skimmer::default();
        let undo = self.memo.mark();
        let mut range = Range { start, end: start, memo_id: self.memo.next_id() };
        let mut items = 0;
        let mut pos = start;
        let mut handed_out = false;
        // What is complete if the file ends here: the position, and the number of entries.
        let mut whole = (start, 0);
        loop {
            let code = bytes.get(pos).copied();
            if skimmer.is_between() {
                if in_batch && code == Some(op::EMPTY_DICT) {
                    items += skimmer.items();
                    skimmer.forget();
                    range.end = pos;
                    whole = (pos, items);
                    if pos - range.start >= PART_BYTES {
                        self.add(list, index, range, items);
                        self.flush_at(pos);
                        self.report(progress, pos)?;
                        handed_out = true;
                        range = Range { start: pos, end: pos, memo_id: self.memo.next_id() };
                        items = 0;
                        whole = (pos, 0);
                    }
                }
                if code == Some(op::EMPTY_DICT)
                    && (in_batch || skimmer.items() == 0)
                    && let Some(next) = skim_dict(bytes, pos, &mut self.memo)
                {
                    skimmer.push(pos);
                    pos = next;
                    if in_batch {
                        whole = (next, items + skimmer.items());
                    }
                    continue;
                }
            }
            match skimmer.step(bytes, pos, in_batch, &mut self.memo) {
                Ok(Step::On(next)) => pos = next,
                Ok(Step::Closed(next)) => {
                    items += skimmer.items();
                    range.end = if in_batch { pos } else { next };
                    self.add(list, index, range, items);
                    self.machine.memo.count = self.memo.next_id();
                    self.pos = next;
                    if self.part_bytes >= PART_BYTES {
                        self.flush_at(next);
                    }
                    return Ok(true);
                }
                Ok(Step::Outside) if !handed_out => {
                    self.memo.go_back(undo);
                    return Ok(false);
                }
                Ok(Step::Outside) => return Err(bad(pos, "a trace is put together in a way no writer uses")),
                Err(error) => {
                    (range.end, items) = whole;
                    self.add(list, index, range, items);
                    return Err(error);
                }
            }
        }
    }

    /// Adds a range of entries to the current part.
    fn add(&mut self, list: NodeId, index: Option<usize>, range: Range, items: usize) {
        if items == 0 {
            return;
        }
        if self.part.as_ref().is_some_and(|part| part.list != list) {
            self.flush_at(self.pos);
        }
        let part = self.part.get_or_insert_with(|| Part { list, index, items: 0, ranges: Vec::new() });
        part.items += items;
        self.part_bytes += range.end - range.start;
        match part.ranges.last_mut() {
            // Entries that are appended one by one are adjacent.
            Some(last) if last.end == range.start => last.end = range.end,
            _ => part.ranges.push(range),
        }
    }

    /// Hands out the current part, after publishing the memo up to `pos`.
    fn flush_at(&mut self, pos: usize) {
        if let Some(part) = self.part.take() {
            self.memo.publish(pos);
            self.part_bytes = 0;
            (self.hand_out)(part);
        }
    }

    fn end_early(mut self, ended: Ended) -> Result<Parsed<'a>, PickleError> {
        self.flush_at(self.pos);
        self.memo.publish(self.pos);
        self.salvage(&ended)?;
        Ok(self.finish(Some(ended)))
    }

    /// Closes every open container of a file that ended early, innermost first, with the items it has.
    fn salvage(&mut self, ended: &Ended) -> Result<(), PickleError> {
        let machine = &mut self.machine;
        while let Some((floor, _)) = machine.marks.pop() {
            let items: Vec<NodeId> = machine.stack.drain(floor.min(machine.stack.len())..).map(|slot| slot.node).collect();
            absorb(machine, &items);
        }
        let rest: Vec<NodeId> = machine.stack.drain(1.min(machine.stack.len())..).map(|slot| slot.node).collect();
        absorb(machine, &rest);
        machine.tree.root = machine.stack.first().map(|slot| slot.node).ok_or_else(|| match &ended.what {
            None => PickleError::Truncated { offset: ended.offset },
            Some(what) => PickleError::Malformed { offset: ended.offset, what: what.clone() },
        })?;
        Ok(())
    }
}

/// Adds loose items to the container on top of the stack, as the missing opcode would have done.
fn absorb(machine: &mut Machine<'_>, items: &[NodeId]) {
    let Some(target) = machine.stack.last().map(|slot| slot.node) else { return };
    let mut items = items.to_vec();
    // The file ends with `outer inner` before a single APPEND: `inner` belongs into `outer`, as in `device_traces` of one device.
    if let [.., outer, inner] = items[..]
        && matches!(machine.tree.node(target), Node::Dict(_))
        && items.len() % 2 == 1
        && let Some(Node::List(list)) = machine.tree.nodes.get_mut(outer as usize)
    {
        list.push(inner);
        items.pop();
    }
    match machine.tree.nodes.get_mut(target as usize) {
        Some(Node::List(list)) => list.extend(items),
        Some(Node::Dict(pairs)) => pairs.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1]))),
        _ => {}
    }
}
