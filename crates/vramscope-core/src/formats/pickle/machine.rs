//! The machine that turns pickle opcodes into a [`Tree`]. It has only a stack, marks and a memo: no names, no calls.
//!
//! It can run a whole file or a piece of one. Objects stored outside the piece become [`Node::Memo`], to be loaded on demand.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use super::opcodes as op;
use super::ops::{Op, little_endian};
use super::tree::{Node, NodeId, Tree};
use super::{MAX_DEPTH, PickleError, decimal_id};

/// The nodes of memo ids. Ids come in runs, with gaps where trace entries were skimmed.
#[derive(Debug, Default)]
pub(super) struct Memo {
    runs: Vec<(u64, Vec<NodeId>)>,
    sparse: FxHashMap<u64, NodeId>,
    /// Number of stored objects, including those before this piece: the id of the next `MEMOIZE`.
    pub(super) count: u64,
}

impl Memo {
    fn set(&mut self, id: u64, node: NodeId) {
        self.count += 1;
        // Ids come from the file and can be any `u64`.
        match self.runs.last_mut() {
            Some((first, nodes)) if id.checked_sub(*first) == Some(nodes.len() as u64) => nodes.push(node),
            Some((first, nodes)) if id.checked_sub(*first).is_none_or(|at| at < nodes.len() as u64) => {
                self.sparse.insert(id, node);
            }
            _ => self.runs.push((id, vec![node])),
        }
    }

    fn restart(&mut self, count: u64) {
        self.runs.clear();
        self.sparse.clear();
        self.count = count;
    }

    fn get(&self, id: u64) -> Option<NodeId> {
        if !self.sparse.is_empty()
            && let Some(&node) = self.sparse.get(&id)
        {
            return Some(node);
        }
        let (first, nodes) = self.runs.get(self.runs.partition_point(|(first, _)| *first <= id).checked_sub(1)?)?;
        nodes.get(usize::try_from(id - first).ok()?).copied()
    }
}

/// A value on the stack and its position in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) node: NodeId,
    pub(super) start: usize,
}

pub(super) struct Machine<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) tree: Tree<'a>,
    pub(super) stack: Vec<Slot>,
    /// For each mark, the height of the stack and the position in the file.
    pub(super) marks: Vec<(usize, usize)>,
    pub(super) memo: Memo,
    /// Ids that were fetched but are not in `memo`, each with its [`Node::Memo`].
    pub(super) outside: FxHashMap<u64, NodeId>,
    /// Limits for the number of nodes in the tree and of values on the stack.
    most: (usize, usize),
}

/// Average bytes per value in a file; less than any writer needs (a fetched key and an integer take four).
const BYTES_PER_NODE: usize = 4;
/// The same for values that wait on the stack for their container: segments, blocks and entries, all of them dicts.
const BYTES_PER_SLOT: usize = 16;
/// Both limits for an empty file.
const FREE: usize = 1 << 20;

/// What an opcode stored in the memo: the id and the position of the object.
pub(super) type Stored = Option<(u64, usize)>;

impl<'a> Machine<'a> {
    /// A machine that adds to `tree`; `count` objects were stored before its first opcode.
    pub(super) fn new(bytes: &'a [u8], tree: Tree<'a>, count: u64) -> Self {
        let memo = Memo { count, ..Memo::default() };
        let most = (bytes.len() / BYTES_PER_NODE + FREE, bytes.len() / BYTES_PER_SLOT + FREE);
        Machine { bytes, tree, stack: Vec::new(), marks: Vec::new(), memo, outside: FxHashMap::default(), most }
    }

    /// Resets everything but the tree; `count` objects were stored before the next opcode.
    pub(super) fn restart(&mut self, count: u64) {
        self.stack.clear();
        self.marks.clear();
        self.outside.clear();
        self.memo.restart(count);
    }

    /// The text that begins at `pos`. Most stored objects that a frame fetches are texts: they need no stack.
    pub(super) fn text_at(&mut self, pos: usize) -> Option<NodeId> {
        let read = Op::read(self.bytes, pos).ok()?;
        matches!(read.code, op::SHORT_BINUNICODE | op::BINUNICODE)
            .then(|| self.tree.push(Node::Str(Cow::Borrowed(read.operand)), pos as u64))
    }

    /// True while another value may be added.
    pub(super) fn has_room(&self) -> bool {
        self.tree.nodes.len() < self.most.0 && self.stack.len() < self.most.1
    }

    /// Runs one opcode other than `STOP`.
    pub(super) fn step(&mut self, read: Op<'a>, pos: usize) -> Result<Stored, PickleError> {
        let offset = pos as u64;
        let operand = read.operand;
        if !self.has_room() {
            return Err(PickleError::Limit { offset, what: "it has more values than a snapshot of its size".to_owned() });
        }
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
                self.marks.push((self.stack.len(), pos));
            }
            op::POP => {
                if self.marks.last().is_some_and(|&(floor, _)| floor == self.stack.len()) {
                    self.marks.pop();
                } else {
                    self.pop(pos)?;
                }
            }
            op::POP_MARK => {
                let (from, _) = self.mark(pos)?;
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
                let (items, start) = self.pop_to_mark(pos)?;
                self.push(Node::Tuple(items), start);
            }
            op::LIST | op::FROZENSET => {
                let (items, start) = self.pop_to_mark(pos)?;
                self.push(Node::List(items), start);
            }
            op::DICT => {
                let (items, start) = self.pop_to_mark(pos)?;
                let pairs = pairs_of(&items).ok_or_else(|| bad(pos, "a dict with a key but no value"))?;
                self.push(Node::Dict(pairs), start);
            }
            op::APPEND => {
                let item = self.pop(pos)?;
                self.list(pos)?.push(item);
            }
            op::APPENDS | op::ADDITEMS => {
                let (items, _) = self.pop_to_mark(pos)?;
                self.list(pos)?.extend(items);
            }
            op::SETITEM => {
                let value = self.pop(pos)?;
                let key = self.pop(pos)?;
                self.dict(pos)?.push((key, value));
            }
            op::SETITEMS => {
                let (items, _) = self.pop_to_mark(pos)?;
                let pairs = pairs_of(&items).ok_or_else(|| bad(pos, "a dict with a key but no value"))?;
                self.dict(pos)?.extend(pairs);
            }
            op::MEMOIZE => return self.store(self.memo.count, pos).map(Some),
            op::BINPUT | op::LONG_BINPUT => return self.store(little_endian(operand), pos).map(Some),
            op::PUT => {
                let id = decimal_id(operand).ok_or_else(|| bad(pos, "a PUT that is no number"))?;
                return self.store(id, pos).map(Some);
            }
            op::BINGET | op::LONG_BINGET => self.fetch(little_endian(operand), pos)?,
            op::GET => {
                let id = decimal_id(operand).ok_or_else(|| bad(pos, "a GET that is no number"))?;
                self.fetch(id, pos)?;
            }
            code => {
                let opcode = op::name(code).unwrap_or("unknown");
                debug_assert!(op::is_forbidden(code));
                return Err(PickleError::Forbidden { offset, opcode });
            }
        }
        Ok(None)
    }

    fn push(&mut self, node: Node<'a>, start: usize) {
        let id = self.tree.push(node, start as u64);
        self.stack.push(Slot { node: id, start });
    }

    /// Number of values above the last mark.
    pub(super) fn loose(&self) -> usize {
        self.stack.len() - self.marks.last().map_or(0, |&(floor, _)| floor.min(self.stack.len()))
    }

    fn top(&self, pos: usize) -> Result<Slot, PickleError> {
        let slot = if self.loose() > 0 { self.stack.last().copied() } else { None };
        slot.ok_or_else(|| bad(pos, "a value is needed where there is none"))
    }

    pub(super) fn pop(&mut self, pos: usize) -> Result<NodeId, PickleError> {
        let top = self.top(pos)?;
        self.stack.pop();
        Ok(top.node)
    }

    fn mark(&mut self, pos: usize) -> Result<(usize, usize), PickleError> {
        self.marks.pop().ok_or_else(|| bad(pos, "a batch ends that never began"))
    }

    fn pop_to_mark(&mut self, pos: usize) -> Result<(Vec<NodeId>, usize), PickleError> {
        let (from, start) = self.mark(pos)?;
        let items = self.stack.drain(from.min(self.stack.len())..).map(|slot| slot.node).collect();
        Ok((items, start))
    }

    fn tuple(&mut self, n: usize, pos: usize) -> Result<(), PickleError> {
        let from = self.stack.len().checked_sub(n).filter(|_| self.loose() >= n);
        let from = from.ok_or_else(|| bad(pos, "a tuple of values that are not there"))?;
        let start = self.stack[from].start;
        let items = self.stack.drain(from..).map(|slot| slot.node).collect();
        self.push(Node::Tuple(items), start);
        Ok(())
    }

    pub(super) fn list(&mut self, pos: usize) -> Result<&mut Vec<NodeId>, PickleError> {
        let top = self.top(pos)?;
        match self.tree.nodes.get_mut(top.node as usize) {
            Some(Node::List(items)) => Ok(items),
            _ => Err(bad(pos, "items are appended to something that is no list of this place")),
        }
    }

    fn dict(&mut self, pos: usize) -> Result<&mut Vec<(NodeId, NodeId)>, PickleError> {
        let top = self.top(pos)?;
        match self.tree.nodes.get_mut(top.node as usize) {
            Some(Node::Dict(pairs)) => Ok(pairs),
            _ => Err(bad(pos, "keys are set in something that is no dict of this place")),
        }
    }

    fn store(&mut self, id: u64, pos: usize) -> Result<(u64, usize), PickleError> {
        let top = self.top(pos)?;
        if self.memo.get(id).is_some() {
            return Err(bad(pos, "a memo entry is stored twice"));
        }
        self.memo.set(id, top.node);
        Ok((id, top.start))
    }

    pub(super) fn fetch(&mut self, id: u64, pos: usize) -> Result<(), PickleError> {
        let known = self.memo.get(id).or_else(|| self.outside.get(&id).copied());
        let node = known.unwrap_or_else(|| {
            let node = self.tree.push(Node::Memo(id), pos as u64);
            self.outside.insert(id, node);
            node
        });
        self.stack.push(Slot { node, start: pos });
        Ok(())
    }
}

pub(super) fn bad(pos: usize, what: &str) -> PickleError {
    PickleError::Malformed { offset: pos as u64, what: what.to_owned() }
}

fn pairs_of(items: &[NodeId]) -> Option<Vec<(NodeId, NodeId)>> {
    items.len().is_multiple_of(2).then(|| items.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
}

/// Little-endian two's complement of any length: numbers from 2^63 on have a ninth byte for the sign.
fn integer_of_bytes<'a>(bytes: &[u8]) -> Node<'a> {
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

/// Protocol 0 text: Latin-1 with `\uXXXX` and `\UXXXXXXXX` escapes (Python's raw-unicode-escape).
fn raw_unicode(bytes: &[u8]) -> Cow<'_, [u8]> {
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

/// Python 2 text: a quoted literal; borrowed from the file unless it contains escapes.
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
