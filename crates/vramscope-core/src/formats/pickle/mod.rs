//! A restricted pickle machine: protocols 0 to 5, plain values only.
//!
//! A pickle is a program for a stack machine, and Python's machine imports and calls whatever the file names. This one knows only
//! containers, numbers and text. It has no opcode that names anything; a hostile file can only be refused.

mod load;
mod machine;
mod memo;
pub(crate) mod opcodes;
mod ops;
mod scan;
mod skim;
mod tree;

pub(crate) use load::{Budget, items, list_of_fetched, resolve_outside};
pub(crate) use memo::{Block as MemoBlock, MemoIndex};
pub(crate) use ops::{Op, little_endian};
pub(crate) use scan::{Part, Scanner, Streamed};
pub(crate) use tree::{NO_OFFSET, Node, NodeId, Tree};

use super::FormatError;

/// No genuine snapshot nests deeper than ten levels; Python itself stops at a thousand.
const MAX_DEPTH: usize = 1000;

/// Why a pickle could not be read. [`named`](Self::named) converts it to a [`FormatError`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PickleError {
    /// An opcode that would import, call or build something.
    Forbidden { offset: u64, opcode: &'static str },
    /// The bytes are not a pickle.
    Malformed { offset: u64, what: String },
    /// The file ends inside an opcode or before `STOP`.
    Truncated { offset: u64 },
    /// More depth or memory than any genuine file needs.
    Limit { offset: u64, what: String },
    /// From the caller, through its `Progress`.
    Cancelled,
}

impl PickleError {
    /// Converts to an error that names the file.
    pub(crate) fn named(self, name: &str) -> FormatError {
        let name = name.to_owned();
        match self {
            PickleError::Forbidden { offset, opcode } => FormatError::Unsupported { name, offset, opcode },
            PickleError::Malformed { offset, what } => FormatError::Malformed { name, offset, what },
            PickleError::Truncated { offset } => {
                FormatError::Malformed { name, offset, what: "the file ends before its first value".to_owned() }
            }
            PickleError::Limit { offset, what } => FormatError::TooLarge { name, offset, what },
            PickleError::Cancelled => FormatError::Cancelled,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Parsed<'a> {
    pub(crate) tree: Tree<'a>,
    /// Objects that are stored in skimmed lists: their ids, and the [`Node::Memo`] that [`resolve_outside`] must replace.
    pub(crate) outside: Vec<(u64, NodeId)>,
    /// Where reading ended, if before the end; the tree holds everything before it.
    pub(crate) ended: Option<Ended>,
}

/// Where and why a file could not be read completely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) offset: u64,
    /// What is malformed there; `None` when the file just ends.
    pub(crate) what: Option<String>,
}

/// The id in the operand of a protocol 0 `PUT` or `GET`.
fn decimal_id(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}
