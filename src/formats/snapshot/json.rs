//! Snapshots as JSON, which the official viewer tries first: the same dictionary, so the same [`Tree`].

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};

use super::super::FormatError;
use super::super::pickle::{NO_OFFSET, Node, NodeId, Tree};
use crate::model::Progress;

/// Reads JSON into a tree. A file that ends early gives the containers and items before the end.
///
/// # Errors
/// [`FormatError::Malformed`] when not even a first container is there.
pub(super) fn parse<'a>(bytes: &'a [u8], name: &str, progress: &Progress) -> Result<(Tree<'a>, Option<u64>), FormatError> {
    let mut tree = Tree::default();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let outcome = Seed { tree: &mut tree, progress }.deserialize(&mut deserializer);
    progress.check()?;
    match outcome {
        Ok(root) => {
            tree.root = root;
            Ok((tree, None))
        }
        Err(error) => {
            let offset = offset_of(bytes, error.line(), error.column());
            let early = error.is_eof();
            // The outermost container is the first node; what was finished inside it is attached as it comes.
            if early && matches!(tree.nodes.first(), Some(Node::Dict(_) | Node::List(_))) {
                tree.root = 0;
                return Ok((tree, Some(offset)));
            }
            Err(FormatError::Malformed { name: name.to_owned(), offset, what: format!("invalid JSON ({error})") })
        }
    }
}

/// The byte offset of a line and column, both from 1.
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

struct Seed<'t, 'a, 'p> {
    tree: &'t mut Tree<'a>,
    progress: &'p Progress,
}

impl<'a> DeserializeSeed<'a> for Seed<'_, 'a, '_> {
    type Value = NodeId;

    fn deserialize<D: serde::Deserializer<'a>>(self, deserializer: D) -> Result<NodeId, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Seed<'_, 'a, '_> {
    fn add(self, node: Node<'a>) -> NodeId {
        self.tree.push(node, NO_OFFSET)
    }
}

impl<'a> Visitor<'a> for Seed<'_, 'a, '_> {
    type Value = NodeId;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<NodeId, E> {
        Ok(self.add(Node::Bool(v)))
    }

    fn visit_i64<E>(self, v: i64) -> Result<NodeId, E> {
        Ok(self.add(Node::Int(v)))
    }

    fn visit_u64<E>(self, v: u64) -> Result<NodeId, E> {
        Ok(self.add(i64::try_from(v).map_or(Node::Uint(v), Node::Int)))
    }

    fn visit_f64<E>(self, v: f64) -> Result<NodeId, E> {
        Ok(self.add(Node::Float(v)))
    }

    fn visit_unit<E>(self) -> Result<NodeId, E> {
        Ok(self.add(Node::None))
    }

    fn visit_borrowed_str<E>(self, v: &'a str) -> Result<NodeId, E> {
        Ok(self.add(Node::Str(Cow::Borrowed(v.as_bytes()))))
    }

    fn visit_str<E>(self, v: &str) -> Result<NodeId, E> {
        Ok(self.add(Node::Str(Cow::Owned(v.as_bytes().to_vec()))))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<NodeId, A::Error> {
        let id = self.tree.push(Node::List(Vec::new()), NO_OFFSET);
        loop {
            if self.progress.check().is_err() {
                return Err(serde::de::Error::custom("cancelled"));
            }
            let next = self.tree.nodes.len() as NodeId;
            let item = seq.next_element_seed(Seed { tree: self.tree, progress: self.progress });
            // A container that was cut off is still there as the node after ours.
            let (item, error) = match item {
                Ok(Some(item)) => (Some(item), None),
                Ok(None) => (None, None),
                Err(error) => (((next as usize) < self.tree.nodes.len()).then_some(next), Some(error)),
            };
            let done = item.is_none();
            if let (Some(item), Some(Node::List(items))) = (item, self.tree.nodes.get_mut(id as usize)) {
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
        let id = self.tree.push(Node::Dict(Vec::new()), NO_OFFSET);
        while let Some(key) = map.next_key_seed(Seed { tree: self.tree, progress: self.progress })? {
            let next = self.tree.nodes.len() as NodeId;
            let value = map.next_value_seed(Seed { tree: self.tree, progress: self.progress });
            let there = (next as usize) < self.tree.nodes.len();
            if let (true, Some(Node::Dict(pairs))) = (there, self.tree.nodes.get_mut(id as usize)) {
                pairs.push((key, next));
            }
            value?;
        }
        Ok(id)
    }
}
