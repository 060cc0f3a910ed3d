//! What the user chose as sides A and B of a comparison.

use std::path::PathBuf;

use super::document_id::DocumentId;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// This device at the marker of that side.
    #[default]
    Marker,
    /// This device after this event, where the timeline has no marker.
    At(u32),
    Other(Other, Moment),
}

/// What a device can be compared with, other than itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Other {
    /// Another device of the same recording, by index.
    Device(usize),
    Document(DocumentId),
    File(PathBuf),
    /// The same requests, simulated by the allocator model under these settings.
    Simulation(String),
}

/// The instant at which another recording is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moment {
    /// The instant with the most bytes in use.
    #[default]
    Peak,
    /// The first failed request, or the peak when none failed.
    OutOfMemory,
    /// After the last event.
    End,
}

impl Moment {
    pub const ALL: [Moment; 3] = [Moment::Peak, Moment::OutOfMemory, Moment::End];

    pub fn text(self) -> &'static str {
        match self {
            Moment::Peak => "at its peak",
            Moment::OutOfMemory => "at its OOM",
            Moment::End => "at its end",
        }
    }
}
