//! A part of a log that is explained.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    pub text: String,
    /// Line of the log at which the text begins, counted from 1.
    pub first_line: u32,
}

impl From<String> for Excerpt {
    fn from(text: String) -> Self {
        Excerpt { text, first_line: 1 }
    }
}
