//! [`FormatError`]: why a file could not be read, in one sentence with the file, the position and what to do.

use super::html::CHOICE;
use crate::model::Cancelled;
use crate::units::Bytes;

/// One of several snapshots in an HTML page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageSnapshot {
    /// The text after `page.html::` that opens it: its name, or its number from 1 if the page has no unique name for it.
    pub choice: String,
    /// Its size in bytes without the page's base64.
    pub bytes: Bytes,
}

/// Number of snapshots that a sentence lists.
const LISTED: usize = 20;

pub(super) fn listed(snapshots: &[PageSnapshot]) -> String {
    let mut all: Vec<String> = snapshots.iter().take(LISTED).map(|s| format!("{} ({})", s.choice, s.bytes)).collect();
    if snapshots.len() > LISTED {
        all.push(format!("{} more", snapshots.len() - LISTED));
    }
    all.join(", ")
}

/// Nothing usable could be read. Problems that do not prevent reading are in the recording's
/// [`LoadReport`](crate::model::LoadReport).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The first bytes match no known format.
    #[error(
        "{name}: not a file vramscope reads ({found}); open a snapshot from torch.cuda.memory._dump_snapshot, a profiler trace, \
         a memory timeline, a JAX memory profile, an RMM log or a session of vramscope"
    )]
    NotRecognised {
        /// The file's name without its folder, or what the caller of [`read`](super::read) named it.
        name: String,
        /// What its first bytes look like.
        found: String,
    },
    /// A file for another part of the program: PyTorch's counters, the text of an error.
    #[error("{name}: {what}")]
    Elsewhere {
        /// As for [`NotRecognised`](Self::NotRecognised).
        name: String,
        /// What it is, and how to open it.
        what: String,
    },
    /// A page with several snapshots, of which none was chosen.
    #[error("{name}: this page holds {} snapshots: {}; open one of them as {name}{CHOICE}{}", snapshots.len(), listed(snapshots), snapshots.first().map_or("", |s| &s.choice))]
    Several {
        /// As for [`NotRecognised`](Self::NotRecognised).
        name: String,
        /// The snapshots, in the page's order.
        snapshots: Vec<PageSnapshot>,
    },
    /// A pickle opcode that would import, call or build an object. It is never executed.
    #[error(
        "{name}: refused at byte {offset}: the pickle opcode {opcode} would run code or build objects, which no memory snapshot \
         needs; do not unpickle this file, and ask its author for a plain _dump_snapshot"
    )]
    Unsupported {
        /// As for [`NotRecognised`](Self::NotRecognised).
        name: String,
        /// Offset of the opcode.
        offset: u64,
        /// Its name in Python's `pickletools`.
        opcode: &'static str,
    },
    /// The bytes violate the format.
    #[error("{name}: broken at byte {offset}: {what}; copy the file again or record a new one")]
    Malformed {
        /// As for [`NotRecognised`](Self::NotRecognised).
        name: String,
        /// In the unpacked bytes; 0 when unpacking itself failed.
        offset: u64,
        /// What the reader met, without a full stop.
        what: String,
    },
    /// Well-formed, but not a recording.
    #[error("{name}: {what}; record with torch.cuda.memory._record_memory_history(context=\"alloc\") and write _dump_snapshot()")]
    Empty {
        /// As for [`NotRecognised`](Self::NotRecognised).
        name: String,
        /// What is there instead of a recording, or is missing.
        what: String,
    },
    /// The operating system refused.
    #[error("{name}: {what}")]
    Io {
        /// As for [`NotRecognised`](Self::NotRecognised).
        name: String,
        /// The reason in lower case, without a full stop.
        what: String,
    },
    /// More memory, depth or entries than any genuine file of this size needs.
    #[error("{name}: stopped at byte {offset}: {what}; the file is damaged or made to exhaust memory")]
    TooLarge {
        /// As for [`NotRecognised`](Self::NotRecognised).
        name: String,
        /// In the unpacked bytes.
        offset: u64,
        /// The limit that was exceeded.
        what: String,
    },
    /// The caller cancelled through its [`Progress`](crate::model::Progress).
    #[error("loading was cancelled")]
    Cancelled,
}

impl From<Cancelled> for FormatError {
    fn from(_: Cancelled) -> Self {
        FormatError::Cancelled
    }
}
