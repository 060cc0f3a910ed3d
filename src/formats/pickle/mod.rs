//! A restricted pickle machine: protocols 0 to 5, plain values only.
//!
//! A pickle is a program for a stack machine, and Python's own machine imports and calls whatever the file names. This one
//! knows containers, numbers and text. It has no opcode that names anything, so a file can at worst be refused.

mod machine;
mod opcodes;
mod ops;
mod tree;

pub(crate) use tree::{Node, NodeId, Tree};

use super::FormatError;
use crate::model::Progress;

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
    /// Where the file ended, when that was too early; the tree holds what came before.
    pub(crate) truncated_at: Option<u64>,
}

/// Reads a pickle. What follows its `STOP` is ignored.
///
/// # Errors
/// [`PickleError`]; a truncated file is one only when not even its first value is there.
pub(crate) fn parse<'a>(bytes: &'a [u8], progress: &Progress) -> Result<Parsed<'a>, PickleError> {
    machine::Machine::new(bytes).run(progress)
}
