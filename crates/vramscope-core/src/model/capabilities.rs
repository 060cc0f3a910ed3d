//! [`Capabilities`]: what a source tells of a device, and the sentence to show where it does not tell.

/// Whether a source tells something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Known {
    /// It does.
    #[default]
    Yes,
    /// It does not. The sentence says why, and where it can be had; a view shows it in the place of the figure.
    No(&'static str),
}

impl Known {
    /// True where the source tells it.
    #[must_use]
    pub fn is_known(self) -> bool {
        self == Known::Yes
    }

    /// The sentence to show instead; empty where the source tells it.
    #[must_use]
    pub fn why_not(self) -> &'static str {
        match self {
            Known::Yes => "",
            Known::No(why) => why,
        }
    }
}

/// What a reader knows of its source and no table can find out. The default is a memory snapshot, which tells everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// What the program requested, beside the size of the whole block.
    pub requested: Known,
    /// Where blocks lie. Addresses that are not known are made up to keep allocations apart: they are no figure to show or to write.
    pub addresses: Known,
    /// Segments. Whether all of them are known is for the curves to find out (`Curves::has_all_segments`).
    pub segments: Known,
}
