//! Skims trace entries: reads their opcodes only to find where each entry and each memoised object begins.
//!
//! As the only serial pass over a large file, it has a fast path for the shapes that writers produce, and a general one.

use super::memo::MemoWriter;
use super::opcodes as op;
use super::ops::{Op, little_endian};
use super::{PickleError, decimal_id};

/// An entry contains a list of frames, which are dicts; writers nest at most four levels.
const MAX_FAST_DEPTH: usize = 8;
/// The fast path reads this far ahead without checking for the end of the file.
const MARGIN: usize = 300;
const NOWHERE: usize = usize::MAX;

/// Skims one dict that begins at `pos` with `EMPTY_DICT`. `None`, with the memo unchanged, when its shape is unusual.
#[inline]
pub(super) fn skim_dict(bytes: &[u8], pos: usize, memo: &mut MemoWriter) -> Option<usize> {
    let mark = memo.mark();
    let next = walk_dict(bytes, pos, memo);
    if next.is_none() {
        memo.go_back(mark);
    }
    next
}

#[inline]
fn walk_dict(bytes: &[u8], pos: usize, memo: &mut MemoWriter) -> Option<usize> {
    let limit = bytes.len().saturating_sub(MARGIN);
    let mut opened = [NOWHERE; MAX_FAST_DEPTH];
    let mut depth = 0;
    // Position of the value on top of the stack, and of the one below it.
    let (mut last, mut below) = (pos, NOWHERE);
    let mut p = pos + 1;
    loop {
        if p >= limit {
            return None;
        }
        // How far to go on, and what is then on top and below it.
        let (length, top, under) = match bytes[p] {
            op::EMPTY_DICT | op::EMPTY_LIST | op::NONE | op::NEWTRUE | op::NEWFALSE | op::EMPTY_TUPLE => (1, p, last),
            op::BINGET | op::BININT1 => (2, p, last),
            op::BININT2 => (3, p, last),
            op::LONG_BINGET | op::BININT => (5, p, last),
            op::BINFLOAT => (9, p, last),
            op::LONG1 | op::SHORT_BINUNICODE => (2 + usize::from(bytes[p + 1]), p, last),
            op::BINUNICODE => (5 + little_endian(&bytes[p + 1..p + 5]) as usize, p, last),
            op::MEMOIZE if last != NOWHERE => {
                memo.memoize(last);
                (1, last, below)
            }
            op::BINPUT if last != NOWHERE && memo.put_in_sequence(u64::from(bytes[p + 1]), last) => (2, last, below),
            op::LONG_BINPUT if last != NOWHERE && memo.put_in_sequence(little_endian(&bytes[p + 1..p + 5]), last) => {
                (5, last, below)
            }
            op::MARK => {
                *opened.get_mut(depth)? = last;
                depth += 1;
                (1, last, below)
            }
            op::APPENDS => {
                depth = depth.checked_sub(1).filter(|&d| d > 0)?;
                (1, opened[depth], NOWHERE)
            }
            op::SETITEMS => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return finish(bytes, p + 1, opened[0], memo);
                }
                (1, opened[depth], NOWHERE)
            }
            op::TUPLE2 if below != NOWHERE => (1, below, NOWHERE),
            op::APPEND | op::SETITEM if depth > 0 => (1, NOWHERE, NOWHERE),
            op::FRAME => (9, last, below),
            _ => return None,
        };
        (last, below) = (top, under);
        p = p.checked_add(length)?;
    }
}

/// The C++ writer stores a dict after filling it. A dict that is filled twice is left to the general path.
#[inline]
fn finish(bytes: &[u8], p: usize, start: usize, memo: &mut MemoWriter) -> Option<usize> {
    let next = match bytes[p] {
        op::BINPUT => memo.put_in_sequence(u64::from(bytes[p + 1]), start).then_some(p + 2)?,
        op::LONG_BINPUT => memo.put_in_sequence(little_endian(&bytes[p + 1..p + 5]), start).then_some(p + 5)?,
        _ => p,
    };
    (!matches!(bytes[next], op::MARK | op::MEMOIZE)).then_some(next)
}

/// The general path: runs every opcode on a stack of positions.
#[derive(Debug, Default)]
pub(super) struct Skimmer {
    starts: Vec<usize>,
    marks: Vec<(usize, usize)>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Continue at this byte.
    On(usize),
    /// The opcode added the batch or the single item to the list; continue at this byte.
    Closed(usize),
    /// The opcode belongs to a value around the list.
    Outside,
}

impl Skimmer {
    /// True between items: no batch is open.
    pub(super) fn is_between(&self) -> bool {
        self.marks.is_empty()
    }

    /// Number of complete items since the last [`forget`](Self::forget); valid only when no batch is open.
    pub(super) fn items(&self) -> usize {
        self.starts.len()
    }

    /// Records a value that begins at `start` and was skimmed by the fast path.
    pub(super) fn push(&mut self, start: usize) {
        self.starts.push(start);
    }

    /// Drops the complete items.
    pub(super) fn forget(&mut self) {
        self.starts.clear();
    }

    /// Runs one opcode. `in_batch`: a mark of the list itself is open below our stack.
    pub(super) fn step(&mut self, bytes: &[u8], pos: usize, in_batch: bool, memo: &mut MemoWriter) -> Result<Step, PickleError> {
        let read = Op::read(bytes, pos)?;
        let offset = pos as u64;
        let bad = |what: &str| PickleError::Malformed { offset, what: what.to_owned() };
        let next = Ok(Step::On(read.next));
        match read.code {
            op::MARK => self.marks.push((self.starts.len(), pos)),
            op::MEMOIZE => memo.memoize(self.top().ok_or_else(|| bad("a value is stored where there is none"))?),
            op::BINPUT | op::LONG_BINPUT | op::PUT => {
                let id = match read.code {
                    op::PUT => decimal_id(read.operand).ok_or_else(|| bad("a PUT that is no number"))?,
                    _ => little_endian(read.operand),
                };
                let start = self.top().ok_or_else(|| bad("a value is stored where there is none"))?;
                if !memo.put(id, start) {
                    return Err(bad("a memo entry is stored twice"));
                }
            }
            op::APPENDS | op::SETITEMS | op::ADDITEMS => match self.marks.pop() {
                Some((floor, _)) => {
                    self.starts.truncate(floor);
                    self.top().ok_or_else(|| bad("a batch ends that fills nothing"))?;
                }
                None if in_batch && read.code == op::APPENDS => return Ok(Step::Closed(read.next)),
                None => return Ok(Step::Outside),
            },
            op::TUPLE | op::LIST | op::DICT | op::FROZENSET => match self.marks.pop() {
                Some((floor, start)) => {
                    self.starts.truncate(floor);
                    self.starts.push(start);
                }
                None => return Ok(Step::Outside),
            },
            op::TUPLE1 => return if self.pop(1, true) { next } else { Ok(Step::Outside) },
            op::TUPLE2 => return if self.pop(2, true) { next } else { Ok(Step::Outside) },
            op::TUPLE3 => return if self.pop(3, true) { next } else { Ok(Step::Outside) },
            op::APPEND if !in_batch && self.marks.is_empty() && self.starts.len() == 1 => return Ok(Step::Closed(read.next)),
            op::APPEND => return if self.pop(2, true) { next } else { Ok(Step::Outside) },
            op::SETITEM => return if self.pop(3, true) { next } else { Ok(Step::Outside) },
            op::POP => {
                if self.marks.last().is_some_and(|&(floor, _)| floor == self.starts.len()) {
                    self.marks.pop();
                } else if !self.pop(1, false) {
                    return Ok(Step::Outside);
                }
            }
            op::POP_MARK => match self.marks.pop() {
                Some((floor, _)) => self.starts.truncate(floor),
                None => return Ok(Step::Outside),
            },
            op::PROTO | op::FRAME => {}
            op::STOP => return Ok(Step::Outside),
            code if op::is_forbidden(code) => {
                return Err(PickleError::Forbidden { offset, opcode: op::name(code).unwrap_or("unknown") });
            }
            // Every other opcode pushes one value.
            _ => self.starts.push(pos),
        }
        if self.marks.len() > super::MAX_DEPTH {
            return Err(PickleError::Limit { offset, what: format!("values nested more than {} deep", super::MAX_DEPTH) });
        }
        next
    }

    fn top(&self) -> Option<usize> {
        let floor = self.marks.last().map_or(0, |&(floor, _)| floor);
        self.starts[floor..].last().copied()
    }

    /// Pops `n` values; with `replace` pushes one that begins where the first did.
    fn pop(&mut self, n: usize, replace: bool) -> bool {
        let floor = self.marks.last().map_or(0, |&(floor, _)| floor);
        let Some(from) = self.starts.len().checked_sub(n).filter(|&from| from >= floor) else { return false };
        let start = self.starts[from];
        self.starts.truncate(from);
        if replace {
            self.starts.push(start);
        }
        true
    }
}
