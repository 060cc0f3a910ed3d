//! Snapshots as JSON, the first format that the official viewer tries: the same dictionary, so the same [`Tree`]. Trace entries,
//! nearly all of a file, become columns one by one during parsing, so that the tree never holds them all.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};

use super::super::FormatError;
use super::super::pickle::{Ended, NO_OFFSET, Node, NodeId, Tree};
use super::stacks::StackReader;
use super::stream::{Read, Trace};
use super::trace;
use crate::model::{DeviceRecording, LoadReport, NoteKind, Progress, StackTableBuilder, StrId};

const PROGRESS_EVERY: usize = 4096;

/// Reads JSON. A file that ends early gives the containers and items before its end. Fails without a readable first container.
pub(super) fn read<'a>(bytes: &'a [u8], name: &str, progress: &Progress) -> Result<Read<'a>, FormatError> {
    let mut stacks = StackTableBuilder::new();
    let mut state = State {
        tree: Tree::default(),
        most: bytes.len() / BYTES_PER_NODE + (1 << 20),
        stacks: StackReader::new(&mut stacks),
        traces: Vec::new(),
        report: LoadReport::default(),
        notes: Vec::new(),
        start: bytes.as_ptr() as usize,
        reached: 0,
        progress,
    };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let outcome = Seed { state: &mut state, place: Place::Root }.deserialize(&mut deserializer);
    progress.check()?;
    let State { mut tree, traces, report, .. } = state;
    let ended = match outcome {
        Ok(root) => {
            tree.root = root;
            None
        }
        Err(error) => {
            let offset = offset_of(bytes, error.line(), error.column());
            // The outermost container is the first node; finished items are attached to it during parsing.
            if !(error.is_eof() && matches!(tree.nodes.first(), Some(Node::Dict(_) | Node::List(_)))) {
                return Err(FormatError::Malformed { name: name.to_owned(), offset, what: format!("invalid JSON ({error})") });
            }
            tree.root = 0;
            Some(Ended { offset, what: None })
        }
    };
    Ok(Read { bytes: bytes.len(), tree, ended, traces, stacks, report })
}

/// The byte offset of a line and column, both counted from 1.
fn offset_of(bytes: &[u8], line: usize, column: usize) -> u64 {
    let mut at = 0;
    for _ in 1..line {
        match bytes[at..].iter().position(|&b| b == b'\n') {
            Some(end) => at += end + 1,
            None => break,
        }
    }
    (at + column).min(bytes.len()) as u64
}

struct State<'a, 's> {
    tree: Tree<'a>,
    /// Maximum number of nodes.
    most: usize,
    /// Reads entries, which are then removed from the tree.
    stacks: StackReader<'s>,
    traces: Vec<Trace>,
    report: LoadReport,
    notes: Vec<(NoteKind, StrId)>,
    /// The address of the file's first byte; the address of borrowed text minus this is the parser's position.
    start: usize,
    reached: usize,
    progress: &'s Progress,
}

/// Average bytes per value in a file; less than any writer needs (`"size":512,` has two values).
const BYTES_PER_NODE: usize = 4;

impl<'a> State<'a, '_> {
    /// Adds a value; an error when there are more values than a file of this size can have.
    fn push<E: serde::de::Error>(&mut self, node: Node<'a>) -> Result<NodeId, E> {
        if self.tree.nodes.len() >= self.most {
            return Err(E::custom("it has more values than a snapshot of its size"));
        }
        Ok(self.tree.push(node, NO_OFFSET))
    }
}

/// The position of a value in a snapshot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    /// `device_traces`: a list of traces.
    Traces,
    /// A trace: a list of entries.
    Trace,
    Other,
}

impl Place {
    /// The place of the value of a key in the outermost dict.
    fn under(self, key: &Node<'_>) -> Place {
        match (self, key) {
            (Place::Root, Node::Str(key)) => match key.as_ref() {
                b"device_traces" | b"traces" => Place::Traces,
                b"host_traces" => Place::Trace,
                _ => Place::Other,
            },
            _ => Place::Other,
        }
    }
}

struct Seed<'t, 'a, 's> {
    state: &'t mut State<'a, 's>,
    place: Place,
}

impl<'a> DeserializeSeed<'a> for Seed<'_, 'a, '_> {
    type Value = NodeId;

    fn deserialize<D: serde::Deserializer<'a>>(self, deserializer: D) -> Result<NodeId, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Seed<'_, 'a, '_> {
    fn add<E: serde::de::Error>(self, node: Node<'a>) -> Result<NodeId, E> {
        self.state.push(node)
    }

    /// Reads a list of entries: each becomes an event and is removed from the tree.
    fn trace<A: SeqAccess<'a>>(self, mut seq: A) -> Result<NodeId, A::Error> {
        let state = self.state;
        let list = state.push(Node::List(Vec::new()))?;
        let mut device = DeviceRecording::default();
        let mark = state.tree.nodes.len();
        let outcome = loop {
            if device.events.len().is_multiple_of(PROGRESS_EVERY) {
                state.progress.set_done(state.reached as u64);
                if state.progress.check().is_err() {
                    break Err(serde::de::Error::custom("cancelled"));
                }
            }
            let item = seq.next_element_seed(Seed { state, place: Place::Other });
            let done = matches!(item, Ok(None));
            // A truncated entry is kept as far as it was read.
            if !done && state.tree.nodes.len() > mark {
                let State { tree, stacks, report, notes, .. } = &mut *state;
                trace::append(tree, mark as NodeId, &mut device, stacks, report, item.is_err(), notes);
                stacks.forget();
                tree.nodes.truncate(mark);
                tree.offsets.truncate(mark);
            }
            match item {
                Ok(Some(_)) => {}
                Ok(None) => break Ok(list),
                Err(error) => break Err(error),
            }
        };
        trace::finish_times(&mut device.events);
        state.traces.push(Trace { list, device });
        outcome
    }
}

impl<'a> Visitor<'a> for Seed<'_, 'a, '_> {
    type Value = NodeId;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: serde::de::Error>(self, v: bool) -> Result<NodeId, E> {
        self.add(Node::Bool(v))
    }

    fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<NodeId, E> {
        self.add(Node::Int(v))
    }

    fn visit_u64<E: serde::de::Error>(self, v: u64) -> Result<NodeId, E> {
        self.add(i64::try_from(v).map_or(Node::Uint(v), Node::Int))
    }

    fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<NodeId, E> {
        self.add(Node::Float(v))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<NodeId, E> {
        self.add(Node::None)
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, v: &'a str) -> Result<NodeId, E> {
        self.state.reached = (v.as_ptr() as usize).saturating_sub(self.state.start);
        self.add(Node::Str(Cow::Borrowed(v.as_bytes())))
    }

    fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<NodeId, E> {
        self.add(Node::Str(Cow::Owned(v.as_bytes().to_vec())))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<NodeId, A::Error> {
        if self.place == Place::Trace {
            return self.trace(seq);
        }
        let place = if self.place == Place::Traces { Place::Trace } else { Place::Other };
        let state = self.state;
        let id = state.push(Node::List(Vec::new()))?;
        loop {
            if state.progress.check().is_err() {
                return Err(serde::de::Error::custom("cancelled"));
            }
            let next = state.tree.nodes.len() as NodeId;
            let item = seq.next_element_seed(Seed { state, place });
            // A truncated container was still pushed, as the node after this one.
            let (item, error) = match item {
                Ok(Some(item)) => (Some(item), None),
                Ok(None) => (None, None),
                Err(error) => (((next as usize) < state.tree.nodes.len()).then_some(next), Some(error)),
            };
            let done = item.is_none();
            if let (Some(item), Some(Node::List(items))) = (item, state.tree.nodes.get_mut(id as usize)) {
                items.push(item);
            }
            match error {
                Some(error) => return Err(error),
                None if done => return Ok(id),
                None => {}
            }
        }
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<NodeId, A::Error> {
        let Seed { state, place } = self;
        let id = state.push(Node::Dict(Vec::new()))?;
        while let Some(key) = map.next_key_seed(Seed { state, place: Place::Other })? {
            let next = state.tree.nodes.len() as NodeId;
            let place = place.under(state.tree.node(key));
            let value = map.next_value_seed(Seed { state, place });
            let there = (next as usize) < state.tree.nodes.len();
            if let (true, Some(Node::Dict(pairs))) = (there, state.tree.nodes.get_mut(id as usize)) {
                pairs.push((key, next));
            }
            value?;
        }
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_become_events_and_leave_the_tree() {
        let entry = |i: u64| {
            format!(
                r#"{{"action":"alloc","addr":{},"size":512,"stream":0,"time_us":{i},"frames":[{{"name":"f{}","filename":"a.py","line":{}}}]}}"#,
                4096 + i * 512,
                i % 7,
                i % 7
            )
        };
        let entries: Vec<String> = (0..5000).map(entry).collect();
        let list = entries.join(",");
        let text = format!(r#"{{"segments":[],"device_traces":[[],[{list}]],"host_traces":[{}]}}"#, entries[0]);
        let read = read(text.as_bytes(), "test", &Progress::new()).unwrap();
        let events: Vec<usize> = read.traces.iter().map(|t| t.device.events.len()).collect();
        assert_eq!(events, [0, 5000, 1]);
        assert!(read.tree.nodes.len() < 20, "{} nodes stay", read.tree.nodes.len());
        assert_eq!(read.stacks.table().len(), 7, "stacks are shared by value");
        // Truncated inside an entry: the complete entries before it stay, and the error has a position.
        let cut = &text.as_bytes()[..text.len() / 2];
        let read = super::read(cut, "test", &Progress::new()).unwrap();
        let n = read.traces.iter().map(|t| t.device.events.len()).max();
        assert!(n.is_some_and(|n| (2300..2700).contains(&n)), "{n:?}");
        assert_eq!(read.ended.map(|e| e.offset), Some(cut.len() as u64));
    }
}
