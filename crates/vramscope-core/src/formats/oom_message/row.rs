//! A row of the table of dialects: one program's wording for "out of memory".

use super::{Platform, Release, Writer};

/// How much the words alone prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Only the program itself prints them.
    Sure,
    /// A failure if figures follow; otherwise like [`Trust::Name`].
    Figures,
    /// An error, except in code or advice.
    Phrase,
    /// The name of an error: words beside it must say that it happened.
    Name,
    /// Must be alone on its line.
    Line,
}

pub(super) struct Row {
    pub(super) writer: Writer,
    pub(super) platform: Platform,
    pub(super) since: Option<Release>,
    pub(super) until: Option<Release>,
    /// The words that identify the row.
    pub(super) anchor: &'static str,
    /// One of these must occur near the anchor; empty if the anchor is enough.
    pub(super) near: &'static str,
    /// The meaning of each number; see `engine` for the syntax.
    pub(super) fields: &'static str,
    pub(super) trust: Trust,
    /// The program continues after the message.
    pub(super) is_warning: bool,
    /// The message may contain words that other messages start with.
    pub(super) is_whole: bool,
    /// The meaning, if the figures do not decide it.
    pub(super) says: &'static str,
    /// Advice, if the program's usual advice does not fit.
    pub(super) tips: &'static [&'static str],
    /// A line as the program prints it, and the figures read from it: both are tested.
    #[cfg_attr(not(test), allow(dead_code))]
    pub(super) example: &'static str,
    #[cfg_attr(not(test), allow(dead_code))]
    pub(super) reads: &'static str,
}

pub(super) const fn row(
    writer: Writer,
    platform: Platform,
    trust: Trust,
    anchor: &'static str,
    fields: &'static str,
    example: &'static str,
    reads: &'static str,
) -> Row {
    let (since, until, near, says) = (None, None, "", "");
    let (is_warning, is_whole, tips): (_, _, &[_]) = (false, false, &[]);
    Row { writer, platform, since, until, anchor, near, fields, trust, is_warning, is_whole, says, tips, example, reads }
}

/// A message without figures.
pub(super) const fn bare(writer: Writer, platform: Platform, trust: Trust, anchor: &'static str, example: &'static str) -> Row {
    row(writer, platform, trust, anchor, "", example, "")
}

impl Row {
    /// True for messages of several lines and many figures, which other lines may interrupt.
    pub(super) fn may_stand_apart(&self) -> bool {
        matches!(self.writer, Writer::PyTorch | Writer::CudaMallocAsync) && self.trust == Trust::Figures && !self.is_warning
    }
}

macro_rules! with {
    ($($(#[$doc:meta])* $name:ident ($($value:ident: $type:ty)?) $field:ident = $to:expr;)*) => {
        impl Row {
            $($(#[$doc])* pub(super) const fn $name(mut self $(, $value: $type)?) -> Self {
                self.$field = $to;
                self
            })*
        }
    };
}

with! {
    near(words: &'static str) near = words;
    since(release: Release) since = Some(release);
    until(release: Release) until = Some(release);
    warning() is_warning = true;
    /// Words that other messages start with do not end this one.
    whole() is_whole = true;
    /// Advice, if the program's usual advice does not fit: lines as in `diagnose::explain::advice`.
    tips(lines: &'static [&'static str]) tips = lines;
    /// The meaning as a sentence, with placeholders as in `diagnose::explain::words`.
    says(sentence: &'static str) says = sentence;
}
