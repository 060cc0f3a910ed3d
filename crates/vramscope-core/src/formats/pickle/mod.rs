//! A restricted pickle machine: protocols 0 to 5, plain values only.
//!
//! A pickle is a program for a stack machine, and Python's own machine imports and calls whatever the file names. This one
//! knows containers, numbers and text. It has no opcode that names anything, so a file can at worst be refused.

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

/// No genuine snapshot nests deeper than ten; Python itself gives up at a thousand.
const MAX_DEPTH: usize = 1000;

/// Why a pickle gave no value. [`named`](Self::named) makes it a [`FormatError`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PickleError {
    /// An opcode that would import, call or build.
    Forbidden { offset: u64, opcode: &'static str },
    /// The bytes are no pickle.
    Malformed { offset: u64, what: String },
    /// The file ends here, inside an opcode or before `STOP`.
    Truncated { offset: u64 },
    /// More depth or memory than a genuine file needs.
    Limit { offset: u64, what: String },
    /// The caller asked to stop.
    Cancelled,
}

impl PickleError {
    /// The same as an error of the file `name`.
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

/// A pickle's value.
#[derive(Debug)]
pub(crate) struct Parsed<'a> {
    pub(crate) tree: Tree<'a>,
    /// Objects that stand in skimmed lists: their ids, and the [`Node::Memo`] in the tree that [`resolve_outside`] is to fill.
    pub(crate) outside: Vec<(u64, NodeId)>,
    /// Where reading ended, when that was too early; the tree holds what came before.
    pub(crate) ended: Option<Ended>,
}

/// Where and why a file could not be read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) offset: u64,
    /// What is broken there; `None` when the file just ends.
    pub(crate) what: Option<String>,
}

/// The id in the operand of a protocol 0 `PUT` or `GET`.
fn decimal_id(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}
