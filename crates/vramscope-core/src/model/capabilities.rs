//! [`Capabilities`]: which kinds of data a source has for a device, and the sentence to show where it has none.

/// Whether a source has a kind of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Known {
    /// The source has it.
    #[default]
    Yes,
    /// The source lacks it. The sentence says why and how to get it; a view shows it instead of the figure.
    No(&'static str),
}

impl Known {
    /// True where the source has it.
    pub fn is_known(self) -> bool {
        self == Known::Yes
    }

    /// The sentence to show instead; empty for [`Known::Yes`].
    pub fn why_not(self) -> &'static str {
        match self {
            Known::Yes => "",
            Known::No(why) => why,
        }
    }
}

/// Facts about a source that only its reader knows. The default is a memory snapshot, which has everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The size that the program requested, as opposed to the rounded block size.
    pub requested: Known,
    /// Addresses of blocks. Where they are not known the reader makes them up to keep allocations apart: never show or export them.
    pub addresses: Known,
    /// Segments. `Curves::has_all_segments` says whether all of them are known.
    pub segments: Known,
}
