//! The fast decoder: reads an entry with plain keys and values directly from the bytes.

use std::sync::PoisonError;

use super::{ATOMS, Atom, Decoder, MARGIN, WORDS};
use crate::formats::pickle::{Op, little_endian, opcodes as op};
use crate::formats::snapshot::plain::{fetched, integer, skip_store};
use crate::formats::snapshot::stacks::unknown_key_text;
use crate::formats::snapshot::trace::{Entry, Key, MAX_NOTES};
use crate::formats::{MAX_BYTES, has_room};
use crate::model::{Action, NoteKind, StackId, StrId, WarningKind};

/// Texts from this length on are cached by position instead of by content.
const LONG_TEXT: usize = 256;

/// A value of one word under a key that this version does not know.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Plain<'a> {
    Bool(bool),
    Int(i64),
    Text(&'a [u8]),
}

impl<'a> Decoder<'_, '_, 'a> {
    /// Decodes a dict of known keys with plain values, each key fetched or written in full. `None` for anything else.
    #[inline]
    pub(super) fn entry(&mut self, start: usize, end: usize, memo_id: u64) -> Option<(usize, u64, Entry)> {
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
        let (mut unknown, mut first_unknown) = (0, None);
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
            let at = p;
            let Atom { text: name, key, .. } = self.atom(&mut p, &mut id)?;
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
                Key::Other => {
                    if self.worker.notes.len() >= MAX_NOTES {
                        return None;
                    }
                    if let Some(value) = self.plain(&mut p, &mut id)? {
                        let text = self.said(name, value, at as u64)?;
                        self.worker.notes.push((NoteKind::Internal, text));
                    }
                    unknown += 1;
                    first_unknown = first_unknown.or(Some((at as u64, name)));
                }
                Key::Cpp => return None,
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
        if !has_action {
            return None;
        }
        if let Some((at, name)) = first_unknown {
            self.out.report.warn_many(WarningKind::UnknownKey, unknown, Some(at), || {
                unknown_key_text("a trace entry", &String::from_utf8_lossy(name))
            });
        }
        Some((p, id, entry))
    }

    /// The value of a key that this version does not know: `Some(None)` for one that says nothing, as None or an empty list; `None`
    /// for one that only the general decoder reads.
    fn plain(&mut self, p: &mut usize, id: &mut u64) -> Option<Option<Plain<'a>>> {
        let b = self.bytes;
        let value = match b[*p] {
            op::NONE | op::EMPTY_TUPLE => None,
            op::EMPTY_DICT | op::EMPTY_LIST => {
                *p += 1;
                skip_store(b, p, id);
                return (b[*p] != op::MARK).then_some(None);
            }
            op::NEWTRUE => Some(Plain::Bool(true)),
            op::NEWFALSE => Some(Plain::Bool(false)),
            // From 2^63 on a number needs nine bytes: the general decoder reads it.
            op::LONG1 if b[*p + 1] > 8 => return None,
            op::LONG1 | op::BININT | op::BININT1 | op::BININT2 => {
                return Some(Some(Plain::Int(integer(b, p)? as i64)));
            }
            _ => {
                let text = self.words(p, id)?;
                return Some((!text.is_empty()).then_some(Plain::Text(text)));
            }
        };
        *p += 1;
        Some(value)
    }

    /// The note of an unknown key and its value. `None` if the file's notes outgrow it, which the general decoder reports.
    fn said(&mut self, name: &'a [u8], value: Plain<'a>, at: u64) -> Option<StrId> {
        if let Some(&known) = self.worker.unknown.get(&(name, value)) {
            return Some(known);
        }
        let name_text = std::str::from_utf8(name).ok()?;
        let text = match value {
            Plain::Bool(value) => format!("{name_text}: {}", if value { "True" } else { "False" }),
            Plain::Int(value) => format!("{name_text}: {value}"),
            Plain::Text(text) if text.len() <= LONG_TEXT => format!("{name_text}: {}", std::str::from_utf8(text).ok()?),
            Plain::Text(_) => return None,
        };
        self.shared.budget.spend(text.len(), at).ok()?;
        let note = self.shared.stacks.lock().unwrap_or_else(PoisonError::into_inner).string(&text);
        self.worker.unknown.insert((name, value), note);
        Some(note)
    }

    /// The text of a note. Has a cache of its own, because note texts may all differ and would evict the keys and actions.
    #[inline]
    fn words(&mut self, p: &mut usize, id: &mut u64) -> Option<&'a [u8]> {
        let b = self.bytes;
        let Some(fetched) = fetched(b, p) else { return self.atom(p, id).map(|atom| atom.text) };
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

    /// A text: fetched, or written in full here.
    #[inline]
    fn atom(&mut self, p: &mut usize, id: &mut u64) -> Option<Atom<'a>> {
        let (b, at) = (self.bytes, *p);
        let Some(fetched) = fetched(b, p) else {
            let (from, to) = match b[at] {
                op::SHORT_BINUNICODE => (at + 2, at + 2 + usize::from(b[at + 1])),
                op::BINUNICODE => {
                    let to = (at + 5).checked_add(little_endian(&b[at + 1..at + 5]) as usize);
                    (at + 5, to.filter(|&to| to + MARGIN < b.len())?)
                }
                _ => return None,
            };
            *p = to;
            skip_store(b, p, id);
            return Some(classify(&b[from..to]));
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
        // A long text that every entry fetches must not be hashed each time.
        let place = (text.as_ptr() as usize, text.len());
        let is_long = text.len() > LONG_TEXT;
        let known = if is_long { self.worker.long_texts.get(&place) } else { self.worker.texts.get(text) };
        if let Some(&known) = known {
            return Some(known);
        }
        // Invalid UTF-8 is left to the general decoder, which counts it.
        let valid = std::str::from_utf8(text).ok()?;
        let id = self.shared.stacks.lock().unwrap_or_else(PoisonError::into_inner).string(valid);
        if is_long {
            self.worker.long_texts.insert(place, id);
        } else {
            self.worker.texts.insert(text, id);
        }
        Some(id)
    }
}

fn classify(text: &[u8]) -> Atom<'_> {
    Atom { text, key: Key::of(text), action: Action::from_name(text) }
}
