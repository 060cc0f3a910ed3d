//! What A and B of a comparison are, as the user chooses them.

use std::path::PathBuf;

use super::document_id::DocumentId;

/// Where a side of the comparison comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// This device, at its marker.
    #[default]
    Marker,
    /// This device, after an event that no flag in the timeline stands for.
    At(u32),
    /// Something else.
    Other(Other, Moment),
}

/// What this device can be held against, other than itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Other {
    /// Another device of the recording, by its index.
    Device(usize),
    /// Another recording that is open.
    Document(DocumentId),
    /// A file.
    File(PathBuf),
    /// The same requests under these settings, served by the allocator model.
    Simulation(String),
}

/// The instant of another recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moment {
    /// Where most is in use.
    #[default]
    Peak,
    /// The first request that failed; the peak when none did.
    OutOfMemory,
    /// After the last event.
    End,
}

impl Moment {
    /// Every choice, in menu order.
    pub const ALL: [Moment; 3] = [Moment::Peak, Moment::OutOfMemory, Moment::End];

    /// Its name in a menu.
    pub fn text(self) -> &'static str {
        match self {
            Moment::Peak => "at its peak",
            Moment::OutOfMemory => "at its OOM",
            Moment::End => "at its end",
        }
    }
}
