//! [`Tree`]: the values of a pickle (or of JSON) in one arena; a shared object is one node.

use std::borrow::Cow;

/// Index of a node in its [`Tree`].
pub(crate) type NodeId = u32;

/// One value. Containers hold ids, so an object that is fetched a million times costs a million ids, not a million copies.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node<'a> {
    None,
    Bool(bool),
    Int(i64),
    /// An integer above `i64::MAX`.
    Uint(u64),
    /// An integer that does not fit into 64 bits.
    Huge,
    Float(f64),
    /// Text as in the file: mostly UTF-8.
    Str(Cow<'a, [u8]>),
    Bytes(&'a [u8]),
    List(Vec<NodeId>),
    Tuple(Vec<NodeId>),
    Dict(Vec<(NodeId, NodeId)>),
    /// An object stored elsewhere in the file and not loaded yet.
    Memo(u64),
}

impl Node<'_> {
    /// Python's name of the type, for warnings.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Node::None => "None",
            Node::Bool(_) => "bool",
            Node::Int(_) | Node::Uint(_) | Node::Huge => "int",
            Node::Float(_) => "float",
            Node::Str(_) => "str",
            Node::Bytes(_) => "bytes",
            Node::List(_) => "list",
            Node::Tuple(_) => "tuple",
            Node::Dict(_) => "dict",
            Node::Memo(_) => "object that could not be loaded",
        }
    }
}

/// An arena of values. Nodes may form cycles: code that walks deeper than a fixed shape must limit the depth.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree<'a> {
    pub(crate) nodes: Vec<Node<'a>>,
    /// Byte offset of each node in the source, or [`NO_OFFSET`].
    pub(crate) offsets: Vec<u64>,
    pub(crate) root: NodeId,
}

/// The offset of a node whose position is not known.
pub(crate) const NO_OFFSET: u64 = u64::MAX;

const NOTHING: Node<'static> = Node::None;

impl<'a> Tree<'a> {
    /// Adds a node that began at `offset`.
    pub(crate) fn push(&mut self, node: Node<'a>, offset: u64) -> NodeId {
        let id = self.nodes.len() as NodeId;
        self.nodes.push(node);
        self.offsets.push(offset);
        id
    }

    /// A node; [`Node::None`] for an id of another tree.
    pub(crate) fn node(&self, id: NodeId) -> &Node<'a> {
        self.nodes.get(id as usize).unwrap_or(&NOTHING)
    }

    /// The byte offset of a node in the source.
    pub(crate) fn offset(&self, id: NodeId) -> u64 {
        self.offsets.get(id as usize).copied().unwrap_or(0)
    }

    /// The byte offset of a node for a report; `None` when it is not known.
    pub(crate) fn place(&self, id: NodeId) -> Option<u64> {
        self.offsets.get(id as usize).copied().filter(|&offset| offset != NO_OFFSET)
    }

    /// The items of a list or tuple; empty for other values.
    pub(crate) fn items(&self, id: NodeId) -> &[NodeId] {
        match self.node(id) {
            Node::List(items) | Node::Tuple(items) => items,
            _ => &[],
        }
    }

    /// The pairs of a dict; empty for other values.
    pub(crate) fn pairs(&self, id: NodeId) -> &[(NodeId, NodeId)] {
        match self.node(id) {
            Node::Dict(pairs) => pairs,
            _ => &[],
        }
    }

    /// The bytes of a text or of `bytes`.
    pub(crate) fn bytes(&self, id: NodeId) -> Option<&[u8]> {
        match self.node(id) {
            Node::Str(text) => Some(text),
            Node::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The value of a key in a dict; if the key occurs twice, the last one, as in Python.
    pub(crate) fn get(&self, dict: NodeId, key: &str) -> Option<NodeId> {
        self.pairs(dict).iter().rev().find(|(k, _)| self.bytes(*k) == Some(key.as_bytes())).map(|&(_, v)| v)
    }

    /// An integer as an address or size. Negative ones, as the C++ writer stores large numbers, are converted back to unsigned.
    pub(crate) fn as_u64(&self, id: NodeId) -> Option<u64> {
        match *self.node(id) {
            Node::Int(v) => Some(v as u64),
            Node::Uint(v) => Some(v),
            Node::Bool(v) => Some(u64::from(v)),
            Node::Float(v) if v >= 0.0 && v.fract() == 0.0 && v < 9.0e15 => Some(v as u64),
            _ => None,
        }
    }

    pub(crate) fn as_i64(&self, id: NodeId) -> Option<i64> {
        match *self.node(id) {
            Node::Int(v) => Some(v),
            Node::Bool(v) => Some(i64::from(v)),
            Node::Float(v) if v.fract() == 0.0 && v.abs() < 9.0e15 => Some(v as i64),
            _ => None,
        }
    }

    pub(crate) fn as_f64(&self, id: NodeId) -> Option<f64> {
        match *self.node(id) {
            Node::Int(v) => Some(v as f64),
            Node::Uint(v) => Some(v as f64),
            Node::Float(v) => Some(v),
            _ => None,
        }
    }

    /// A boolean; integers count as in Python.
    pub(crate) fn as_bool(&self, id: NodeId) -> Option<bool> {
        match *self.node(id) {
            Node::Bool(v) => Some(v),
            Node::Int(v) => Some(v != 0),
            _ => None,
        }
    }

    /// A value as text for people, JSON-like: containers down to `depth` levels, at most about `limit` bytes.
    pub(crate) fn describe(&self, id: NodeId, depth: u32, limit: usize, out: &mut String) {
        if out.len() > limit {
            return;
        }
        match self.node(id) {
            Node::None => out.push_str("None"),
            Node::Bool(v) => out.push_str(if *v { "True" } else { "False" }),
            Node::Int(v) => out.push_str(&v.to_string()),
            Node::Uint(v) => out.push_str(&v.to_string()),
            Node::Huge => out.push_str("(an integer beyond 64 bits)"),
            Node::Memo(_) => out.push('…'),
            Node::Float(v) => out.push_str(&format!("{v:?}")),
            Node::Str(text) => out.push_str(&String::from_utf8_lossy(text)),
            Node::Bytes(bytes) => out.push_str(&format!("({} bytes)", bytes.len())),
            Node::List(items) => self.describe_all(items.iter().map(|&item| (None, item)), "[]", depth, limit, out),
            Node::Tuple(items) => self.describe_all(items.iter().map(|&item| (None, item)), "()", depth, limit, out),
            Node::Dict(pairs) => {
                self.describe_all(pairs.iter().map(|&(key, value)| (Some(key), value)), "{}", depth, limit, out);
            }
        }
    }

    /// The items of a container, with their keys if it is a dict, between brackets.
    fn describe_all(
        &self,
        items: impl Iterator<Item = (Option<NodeId>, NodeId)>,
        brackets: &str,
        depth: u32,
        limit: usize,
        out: &mut String,
    ) {
        out.push_str(&brackets[..1]);
        for (i, (key, value)) in items.enumerate() {
            if depth == 0 || out.len() > limit {
                out.push('…');
                break;
            }
            if i > 0 {
                out.push_str(", ");
            }
            if let Some(key) = key {
                self.describe(key, depth - 1, limit, out);
                out.push_str(": ");
            }
            self.describe(value, depth - 1, limit, out);
        }
        out.push_str(&brackets[1..]);
    }

    pub(crate) fn text_of(&self, id: NodeId) -> String {
        let mut out = String::new();
        self.describe(id, 4, 4096, &mut out);
        out
    }
}
