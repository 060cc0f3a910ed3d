//! [`Tree`]: the values of a pickle (or of JSON), in one arena where a shared object is one node.

use std::borrow::Cow;

/// Index of a node in its [`Tree`].
pub(crate) type NodeId = u32;

/// One value. Containers hold ids, so an object fetched a million times costs a million ids, not a million copies.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node<'a> {
    None,
    Bool(bool),
    Int(i64),
    /// An integer above `i64::MAX`.
    Uint(u64),
    /// An integer that 64 bits cannot hold.
    Huge,
    Float(f64),
    /// Text as the file has it: UTF-8, or nearly.
    Str(Cow<'a, [u8]>),
    Bytes(&'a [u8]),
    List(Vec<NodeId>),
    Tuple(Vec<NodeId>),
    Dict(Vec<(NodeId, NodeId)>),
    /// An object stored elsewhere in the file, not loaded yet.
    Memo(u64),
}

impl Node<'_> {
    /// What Python calls the type, for warnings.
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

/// An arena of values. Nodes may refer to each other in cycles: whoever walks it deeper than a fixed shape must count depth.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree<'a> {
    pub(crate) nodes: Vec<Node<'a>>,
    /// Byte offset of each node in the source, where it is known.
    pub(crate) offsets: Vec<u64>,
    pub(crate) root: NodeId,
}

/// The offset of a node whose place is not known.
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

    /// Where a node began in the source.
    pub(crate) fn offset(&self, id: NodeId) -> u64 {
        self.offsets.get(id as usize).copied().unwrap_or(0)
    }

    /// Where a node began, for a report; `None` when it is not known.
    pub(crate) fn place(&self, id: NodeId) -> Option<u64> {
        self.offsets.get(id as usize).copied().filter(|&offset| offset != NO_OFFSET)
    }

    /// The items of a list or tuple; none for anything else.
    pub(crate) fn items(&self, id: NodeId) -> &[NodeId] {
        match self.node(id) {
            Node::List(items) | Node::Tuple(items) => items,
            _ => &[],
        }
    }

    /// The pairs of a dict; none for anything else.
    pub(crate) fn pairs(&self, id: NodeId) -> &[(NodeId, NodeId)] {
        match self.node(id) {
            Node::Dict(pairs) => pairs,
            _ => &[],
        }
    }

    /// The bytes of a text.
    pub(crate) fn bytes(&self, id: NodeId) -> Option<&[u8]> {
        match self.node(id) {
            Node::Str(text) => Some(text),
            Node::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The value of a key of a dict, the last one if it is there twice, as in Python.
    pub(crate) fn get(&self, dict: NodeId, key: &str) -> Option<NodeId> {
        self.pairs(dict).iter().rev().find(|(k, _)| self.bytes(*k) == Some(key.as_bytes())).map(|&(_, v)| v)
    }

    /// An integer as an address or size: negative ones (the C++ writer's signed view) are read as unsigned again.
    pub(crate) fn as_u64(&self, id: NodeId) -> Option<u64> {
        match *self.node(id) {
            Node::Int(v) => Some(v as u64),
            Node::Uint(v) => Some(v),
            Node::Bool(v) => Some(u64::from(v)),
            Node::Float(v) if v >= 0.0 && v.fract() == 0.0 && v < 9.0e15 => Some(v as u64),
            _ => None,
        }
    }

    /// A signed integer.
    pub(crate) fn as_i64(&self, id: NodeId) -> Option<i64> {
        match *self.node(id) {
            Node::Int(v) => Some(v),
            Node::Bool(v) => Some(i64::from(v)),
            Node::Float(v) if v.fract() == 0.0 && v.abs() < 9.0e15 => Some(v as i64),
            _ => None,
        }
    }

    /// A number.
    pub(crate) fn as_f64(&self, id: NodeId) -> Option<f64> {
        match *self.node(id) {
            Node::Int(v) => Some(v as f64),
            Node::Uint(v) => Some(v as f64),
            Node::Float(v) => Some(v),
            _ => None,
        }
    }

    /// A truth value; integers count as in Python.
    pub(crate) fn as_bool(&self, id: NodeId) -> Option<bool> {
        match *self.node(id) {
            Node::Bool(v) => Some(v),
            Node::Int(v) => Some(v != 0),
            _ => None,
        }
    }

    /// A value as text for people: JSON-like, shared and nested containers to `depth` levels, at most about `limit` bytes.
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
            Node::List(items) | Node::Tuple(items) => {
                let (open, close) = if matches!(self.node(id), Node::List(_)) { ('[', ']') } else { ('(', ')') };
                out.push(open);
                for (i, &item) in items.iter().enumerate() {
                    if depth == 0 || out.len() > limit {
                        out.push('…');
                        break;
                    }
                    if i > 0 {
                        out.push_str(", ");
                    }
                    self.describe(item, depth - 1, limit, out);
                }
                out.push(close);
            }
            Node::Dict(pairs) => {
                out.push('{');
                for (i, &(key, value)) in pairs.iter().enumerate() {
                    if depth == 0 || out.len() > limit {
                        out.push('…');
                        break;
                    }
                    if i > 0 {
                        out.push_str(", ");
                    }
                    self.describe(key, depth - 1, limit, out);
                    out.push_str(": ");
                    self.describe(value, depth - 1, limit, out);
                }
                out.push('}');
            }
        }
    }

    /// [`describe`](Self::describe) into a new text.
    pub(crate) fn text_of(&self, id: NodeId) -> String {
        let mut out = String::new();
        self.describe(id, 4, 4096, &mut out);
        out
    }
}
