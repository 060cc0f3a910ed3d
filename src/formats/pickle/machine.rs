//! The machine: pickle opcodes to a [`Tree`]. It has a stack, marks and a memo, and nothing else: no names, no calls.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use super::opcodes as op;
use super::ops::{Op, little_endian};
use super::tree::{Node, NodeId, Tree};
use super::{Parsed, PickleError};
use crate::model::Progress;

/// No genuine snapshot nests deeper than ten; Python itself gives up at a thousand.
const MAX_DEPTH: usize = 1000;

const UNSET: NodeId = NodeId::MAX;

/// Memo entries by id. Writers number them densely; anything else goes into a map, so a hostile id costs no memory.
#[derive(Default)]
struct Memo {
    dense: Vec<NodeId>,
    sparse: FxHashMap<u64, NodeId>,
    /// How many `MEMOIZE` and `PUT` there were: the next `MEMOIZE` takes this id.
    count: u64,
}

impl Memo {
    fn set(&mut self, id: u64, node: NodeId) {
        self.count += 1;
        let dense = self.dense.len() as u64;
        if id < dense {
            self.dense[id as usize] = node;
        } else if id <= dense + 64 {
            self.dense.resize(id as usize, UNSET);
            self.dense.push(node);
        } else {
            self.sparse.insert(id, node);
        }
    }

    fn get(&self, id: u64) -> Option<NodeId> {
        match self.dense.get(id as usize) {
            Some(&UNSET) | None => self.sparse.get(&id).copied(),
            Some(&node) => Some(node),
        }
    }
}

pub(super) struct Machine<'a> {
    bytes: &'a [u8],
    tree: Tree<'a>,
    stack: Vec<NodeId>,
    marks: Vec<usize>,
    memo: Memo,
}

impl<'a> Machine<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Machine { bytes, tree: Tree::default(), stack: Vec::new(), marks: Vec::new(), memo: Memo::default() }
    }

    /// Runs to `STOP`. A file that ends before gives what its stack holds, with `truncated_at` set.
    pub(super) fn run(mut self, progress: &Progress) -> Result<Parsed<'a>, PickleError> {
        let mut pos = 0;
        let mut turns = 0u32;
        loop {
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(1 << 16) {
                progress.check().map_err(|_| PickleError::Cancelled)?;
                progress.set_done(pos as u64);
            }
            let read = match Op::read(self.bytes, pos) {
                Ok(read) => read,
                Err(PickleError::Truncated { offset }) => return self.salvage(offset),
                Err(error) => return Err(error),
            };
            if read.code == op::STOP {
                let root = self.pop(pos)?;
                self.tree.root = root;
                return Ok(Parsed { tree: self.tree, truncated_at: None });
            }
            self.step(read, pos)?;
            pos = read.next;
        }
    }

    fn step(&mut self, read: Op<'a>, pos: usize) -> Result<(), PickleError> {
        let offset = pos as u64;
        let operand = read.operand;
        match read.code {
            op::PROTO => {
                if operand[0] > 5 {
                    return Err(PickleError::Malformed { offset, what: format!("pickle protocol {} is not known", operand[0]) });
                }
            }
            op::FRAME => {}
            op::MARK => {
                if self.marks.len() >= MAX_DEPTH {
                    return Err(PickleError::Limit { offset, what: format!("values nested more than {MAX_DEPTH} deep") });
                }
                self.marks.push(self.stack.len());
            }
            op::POP => {
                if self.marks.last() == Some(&self.stack.len()) {
                    self.marks.pop();
                } else {
                    self.pop(pos)?;
                }
            }
            op::POP_MARK => {
                let from = self.mark(pos)?;
                self.stack.truncate(from);
            }
            op::DUP => {
                let top = self.top(pos)?;
                self.stack.push(top);
            }
            op::NONE => self.push(Node::None, pos),
            op::NEWTRUE => self.push(Node::Bool(true), pos),
            op::NEWFALSE => self.push(Node::Bool(false), pos),
            op::BININT1 | op::BININT2 => self.push(Node::Int(little_endian(operand) as i64), pos),
            op::BININT => self.push(Node::Int(i64::from(little_endian(operand) as u32 as i32)), pos),
            op::LONG1 | op::LONG4 => self.push(integer_of_bytes(operand), pos),
            op::INT => self.push(
                match operand {
                    b"00" => Node::Bool(false),
                    b"01" => Node::Bool(true),
                    text => integer_of_text(text).ok_or_else(|| bad(pos, "an INT that is no number"))?,
                },
                pos,
            ),
            op::LONG => {
                let digits = operand.strip_suffix(b"L").unwrap_or(operand);
                self.push(integer_of_text(digits).ok_or_else(|| bad(pos, "a LONG that is no number"))?, pos);
            }
            op::FLOAT => {
                let text = std::str::from_utf8(operand).ok().and_then(|t| t.trim().parse::<f64>().ok());
                self.push(Node::Float(text.ok_or_else(|| bad(pos, "a FLOAT that is no number"))?), pos);
            }
            op::BINFLOAT => {
                let bits = operand.iter().fold(0u64, |v, &b| v << 8 | u64::from(b));
                self.push(Node::Float(f64::from_bits(bits)), pos);
            }
            op::SHORT_BINUNICODE | op::BINUNICODE | op::BINUNICODE8 | op::SHORT_BINSTRING | op::BINSTRING => {
                self.push(Node::Str(Cow::Borrowed(operand)), pos);
            }
            op::UNICODE => self.push(Node::Str(raw_unicode(operand)), pos),
            op::STRING => self.push(Node::Str(quoted(operand)), pos),
            op::SHORT_BINBYTES | op::BINBYTES | op::BINBYTES8 | op::BYTEARRAY8 => self.push(Node::Bytes(operand), pos),
            op::EMPTY_LIST | op::EMPTY_SET => self.push(Node::List(Vec::new()), pos),
            op::EMPTY_DICT => self.push(Node::Dict(Vec::new()), pos),
            op::EMPTY_TUPLE => self.push(Node::Tuple(Vec::new()), pos),
            op::TUPLE1 => self.tuple(1, pos)?,
            op::TUPLE2 => self.tuple(2, pos)?,
            op::TUPLE3 => self.tuple(3, pos)?,
            op::TUPLE => {
                let items = self.pop_to_mark(pos)?;
                self.push(Node::Tuple(items), pos);
            }
            op::LIST | op::FROZENSET => {
                let items = self.pop_to_mark(pos)?;
                self.push(Node::List(items), pos);
            }
            op::DICT => {
                let items = self.pop_to_mark(pos)?;
                let pairs = pairs_of(&items).ok_or_else(|| bad(pos, "a dict with a key but no value"))?;
                self.push(Node::Dict(pairs), pos);
            }
            op::APPEND => {
                let item = self.pop(pos)?;
                self.list(pos)?.push(item);
            }
            op::APPENDS | op::ADDITEMS => {
                let items = self.pop_to_mark(pos)?;
                self.list(pos)?.extend(items);
            }
            op::SETITEM => {
                let value = self.pop(pos)?;
                let key = self.pop(pos)?;
                self.dict(pos)?.push((key, value));
            }
            op::SETITEMS => {
                let items = self.pop_to_mark(pos)?;
                let pairs = pairs_of(&items).ok_or_else(|| bad(pos, "a dict with a key but no value"))?;
                self.dict(pos)?.extend(pairs);
            }
            op::MEMOIZE => {
                let top = self.top(pos)?;
                self.memo.set(self.memo.count, top);
            }
            op::BINPUT | op::LONG_BINPUT => {
                let top = self.top(pos)?;
                self.memo.set(little_endian(operand), top);
            }
            op::PUT => {
                let top = self.top(pos)?;
                let id = memo_id_of_text(operand).ok_or_else(|| bad(pos, "a PUT that is no number"))?;
                self.memo.set(id, top);
            }
            op::BINGET | op::LONG_BINGET => self.fetch(little_endian(operand), pos)?,
            op::GET => {
                let id = memo_id_of_text(operand).ok_or_else(|| bad(pos, "a GET that is no number"))?;
                self.fetch(id, pos)?;
            }
            code => {
                let opcode = op::name(code).unwrap_or("unknown");
                debug_assert!(op::is_forbidden(code));
                return Err(PickleError::Forbidden { offset, opcode });
            }
        }
        Ok(())
    }

    fn push(&mut self, node: Node<'a>, pos: usize) {
        let id = self.tree.push(node, pos as u64);
        self.stack.push(id);
    }

    fn top(&self, pos: usize) -> Result<NodeId, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err(bad(pos, "a value is needed where there is none"));
        }
        self.stack.last().copied().ok_or_else(|| bad(pos, "a value is needed where there is none"))
    }

    fn pop(&mut self, pos: usize) -> Result<NodeId, PickleError> {
        let top = self.top(pos)?;
        self.stack.pop();
        Ok(top)
    }

    fn mark(&mut self, pos: usize) -> Result<usize, PickleError> {
        self.marks.pop().ok_or_else(|| bad(pos, "a batch ends that never began"))
    }

    fn pop_to_mark(&mut self, pos: usize) -> Result<Vec<NodeId>, PickleError> {
        let from = self.mark(pos)?;
        Ok(self.stack.split_off(from.min(self.stack.len())))
    }

    fn tuple(&mut self, n: usize, pos: usize) -> Result<(), PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let from = self.stack.len().checked_sub(n).filter(|&from| from >= floor);
        let items = self.stack.split_off(from.ok_or_else(|| bad(pos, "a tuple of values that are not there"))?);
        self.push(Node::Tuple(items), pos);
        Ok(())
    }

    fn list(&mut self, pos: usize) -> Result<&mut Vec<NodeId>, PickleError> {
        let top = self.top(pos)?;
        match self.tree.nodes.get_mut(top as usize) {
            Some(Node::List(items)) => Ok(items),
            _ => Err(bad(pos, "items are appended to something that is no list")),
        }
    }

    fn dict(&mut self, pos: usize) -> Result<&mut Vec<(NodeId, NodeId)>, PickleError> {
        let top = self.top(pos)?;
        match self.tree.nodes.get_mut(top as usize) {
            Some(Node::Dict(pairs)) => Ok(pairs),
            _ => Err(bad(pos, "keys are set in something that is no dict")),
        }
    }

    fn fetch(&mut self, id: u64, pos: usize) -> Result<(), PickleError> {
        let node = self.memo.get(id).ok_or_else(|| bad(pos, &format!("memo entry {id} is fetched but was never stored")))?;
        self.stack.push(node);
        Ok(())
    }

    /// The file ended early: closes every open container with the items it has, innermost first.
    fn salvage(mut self, offset: u64) -> Result<Parsed<'a>, PickleError> {
        while let Some(from) = self.marks.pop() {
            let items = self.stack.split_off(from.min(self.stack.len()));
            self.absorb(&items);
        }
        let rest = self.stack.split_off(1.min(self.stack.len()));
        self.absorb(&rest);
        let root = self.stack.first().copied().ok_or(PickleError::Truncated { offset })?;
        self.tree.root = root;
        Ok(Parsed { tree: self.tree, truncated_at: Some(offset) })
    }

    /// Gives loose items to the container on top of the stack, as the missing opcode would have done.
    fn absorb(&mut self, items: &[NodeId]) {
        let Some(&target) = self.stack.last() else { return };
        // `outer inner` at the end, where a single APPEND was due: the list inside its list, as `device_traces` of one device.
        let mut items = items.to_vec();
        if let [.., outer, inner] = items[..]
            && matches!(self.tree.node(target), Node::Dict(_))
            && items.len() % 2 == 1
            && let Some(Node::List(list)) = self.tree.nodes.get_mut(outer as usize)
        {
            list.push(inner);
            items.pop();
        }
        match self.tree.nodes.get_mut(target as usize) {
            Some(Node::List(list)) => list.extend(items),
            Some(Node::Dict(pairs)) => pairs.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1]))),
            _ => {}
        }
    }
}

fn bad(pos: usize, what: &str) -> PickleError {
    PickleError::Malformed { offset: pos as u64, what: what.to_owned() }
}

fn pairs_of(items: &[NodeId]) -> Option<Vec<(NodeId, NodeId)>> {
    items.len().is_multiple_of(2).then(|| items.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
}

fn memo_id_of_text(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// Little-endian two's complement of any length: addresses beyond 2^63 come with a ninth sign byte.
pub(super) fn integer_of_bytes<'a>(bytes: &[u8]) -> Node<'a> {
    let Some(&last) = bytes.last() else { return Node::Int(0) };
    let negative = last >= 0x80;
    let fill = if negative { 0xff } else { 0 };
    if bytes.len() > 8 && bytes[8..].iter().any(|&b| b != fill) {
        return Node::Huge;
    }
    let mut wide = [fill; 8];
    let n = bytes.len().min(8);
    wide[..n].copy_from_slice(&bytes[..n]);
    let value = u64::from_le_bytes(wide);
    match (negative, (value as i64) < 0) {
        (false, true) => Node::Uint(value),
        (true, false) => Node::Huge,
        _ => Node::Int(value as i64),
    }
}

fn integer_of_text<'a>(text: &[u8]) -> Option<Node<'a>> {
    let text = std::str::from_utf8(text).ok()?.trim();
    if let Ok(value) = text.parse::<i64>() {
        return Some(Node::Int(value));
    }
    if let Ok(value) = text.parse::<u64>() {
        return Some(Node::Uint(value));
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then_some(Node::Huge)
}

/// Protocol 0 text: Latin-1 with `\uXXXX` and `\UXXXXXXXX` for the rest (Python's raw-unicode-escape).
pub(super) fn raw_unicode(bytes: &[u8]) -> Cow<'_, [u8]> {
    if bytes.is_ascii() && !bytes.contains(&b'\\') {
        return Cow::Borrowed(bytes);
    }
    let mut out = String::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let digits = match (bytes[i], bytes.get(i + 1)) {
            (b'\\', Some(b'u')) => 4,
            (b'\\', Some(b'U')) => 8,
            _ => 0,
        };
        let escape = (digits > 0).then(|| bytes.get(i + 2..i + 2 + digits)).flatten();
        let code = escape.and_then(|hex| std::str::from_utf8(hex).ok()).and_then(|hex| u32::from_str_radix(hex, 16).ok());
        match code {
            Some(code) => {
                out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                i += 2 + digits;
            }
            None => {
                out.push(char::from(bytes[i]));
                i += 1;
            }
        }
    }
    Cow::Owned(out.into_bytes())
}

/// Python 2 text: a quoted literal, of which only the quotes are taken off unless it has escapes.
fn quoted(bytes: &[u8]) -> Cow<'_, [u8]> {
    let inner = match bytes {
        [b'\'', inner @ .., b'\''] | [b'"', inner @ .., b'"'] => inner,
        other => other,
    };
    if !inner.contains(&b'\\') {
        return Cow::Borrowed(inner);
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut i = 0;
    while i < inner.len() {
        let (byte, used) = match (inner[i], inner.get(i + 1)) {
            (b'\\', Some(b'n')) => (b'\n', 2),
            (b'\\', Some(b't')) => (b'\t', 2),
            (b'\\', Some(b'r')) => (b'\r', 2),
            (b'\\', Some(b'x')) => {
                let hex = inner.get(i + 2..i + 4).and_then(|h| std::str::from_utf8(h).ok());
                hex.and_then(|h| u8::from_str_radix(h, 16).ok()).map_or((b'\\', 1), |byte| (byte, 4))
            }
            (b'\\', Some(&other)) => (other, 2),
            (byte, _) => (byte, 1),
        };
        out.push(byte);
        i += used;
    }
    Cow::Owned(out)
}
