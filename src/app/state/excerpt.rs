//! A part of a log that is explained.

/// A part of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The part itself.
    pub text: String,
    /// The line of the log that it begins with, counted from 1.
    pub first_line: u32,
}

impl From<String> for Excerpt {
    fn from(text: String) -> Self {
        Excerpt { text, first_line: 1 }
    }
}
