//! [`FormatError`]: why a file gave no recording, in one sentence that names the file, the place and what to do.

use super::html::CHOICE;
use crate::model::Cancelled;
use crate::units::Bytes;

/// One of several snapshots in a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageSnapshot {
    /// What is written behind `page.html::` to open it: its name, or its number from 1 where the page has no name for it alone.
    pub choice: String,
    /// Its size.
    pub bytes: Bytes,
}

/// So many snapshots of a page are named in a sentence.
const LISTED: usize = 20;

/// The snapshots of a page, in a sentence.
pub(super) fn listed(snapshots: &[PageSnapshot]) -> String {
    let mut all: Vec<String> = snapshots.iter().take(LISTED).map(|s| format!("{} ({})", s.choice, s.bytes)).collect();
    if snapshots.len() > LISTED {
        all.push(format!("{} more", snapshots.len() - LISTED));
    }
    all.join(", ")
}

/// Nothing usable could be read. Oddities that could be read past are in the recording's
/// [`LoadReport`](crate::model::LoadReport) instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The first bytes belong to nothing we read.
    #[error(
        "{name}: not a file vramscope reads ({found}); open a snapshot from torch.cuda.memory._dump_snapshot, a profiler trace, \
         a memory timeline, a JAX memory profile, an RMM log or a session of vramscope"
    )]
    NotRecognised {
        /// The file.
        name: String,
        /// What its first bytes look like.
        found: String,
    },
    /// Read by another part of the program: PyTorch's counters, the text of an error.
    #[error("{name}: {what}")]
    Elsewhere {
        /// The file.
        name: String,
        /// What it is, and how it is opened.
        what: String,
    },
    /// A page that holds several snapshots, of which none is asked for.
    #[error("{name}: this page holds {} snapshots: {}; open one of them as {name}{CHOICE}{}", snapshots.len(), listed(snapshots), snapshots.first().map_or("", |s| &s.choice))]
    Several {
        /// The page.
        name: String,
        /// Its snapshots, in its order.
        snapshots: Vec<PageSnapshot>,
    },
    /// A pickle opcode that would import, call or build an object. It is never executed.
    #[error(
        "{name}: refused at byte {offset}: the pickle opcode {opcode} would run code or build objects, which no memory snapshot \
         needs; do not unpickle this file, and ask its author for a plain _dump_snapshot"
    )]
    Unsupported {
        /// The file.
        name: String,
        /// Where the opcode stands.
        offset: u64,
        /// Its name in Python's `pickletools`.
        opcode: &'static str,
    },
    /// The bytes contradict the format.
    #[error("{name}: broken at byte {offset}: {what}; copy the file again or record a new one")]
    Malformed {
        /// The file.
        name: String,
        /// Where.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// Well formed, but not a recording.
    #[error("{name}: {what}; record with torch.cuda.memory._record_memory_history() and write _dump_snapshot()")]
    Empty {
        /// The file.
        name: String,
        /// What is missing.
        what: String,
    },
    /// The operating system said no.
    #[error("{name}: {what}")]
    Io {
        /// The file.
        name: String,
        /// The system's message.
        what: String,
    },
    /// More memory, depth or entries than a genuine file of this size can need.
    #[error("{name}: stopped at byte {offset}: {what}; the file is damaged or made to exhaust memory")]
    TooLarge {
        /// The file.
        name: String,
        /// Where.
        offset: u64,
        /// Which limit.
        what: String,
    },
    /// The caller asked to stop.
    #[error("loading was cancelled")]
    Cancelled,
}

impl From<Cancelled> for FormatError {
    fn from(_: Cancelled) -> Self {
        FormatError::Cancelled
    }
}
