//! A row of the table of dialects: how one program words that memory ran out.

use super::{Platform, Release, Writer};

/// How much the words alone prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Only the program prints them.
    Sure,
    /// A failure where figures follow; else as [`Trust::Name`].
    Figures,
    /// An error, unless it stands in code or in advice.
    Phrase,
    /// The name of an error: words beside it must say that it happened.
    Name,
    /// A line of its own.
    Line,
}

/// One wording of one program.
pub(super) struct Row {
    pub(super) writer: Writer,
    pub(super) platform: Platform,
    pub(super) since: Option<Release>,
    pub(super) until: Option<Release>,
    /// The words it is found by.
    pub(super) anchor: &'static str,
    /// One of these stands near it; empty where the anchor is enough.
    pub(super) near: &'static str,
    /// What each number is.
    pub(super) fields: &'static str,
    pub(super) trust: Trust,
    /// The program goes on.
    pub(super) is_warning: bool,
    /// May hold words that other messages start with.
    pub(super) is_whole: bool,
    /// What it means where its figures do not decide that.
    pub(super) says: &'static str,
    /// What to do where its program's usual advice does not fit.
    pub(super) tips: &'static [&'static str],
    /// A line as the program prints it, and what is read from it: both are tested.
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
    let (near, says) = ("", "");
    Row {
        writer,
        platform,
        since: None,
        until: None,
        anchor,
        near,
        fields,
        trust,
        is_warning: false,
        is_whole: false,
        says,
        tips: &[],
        example,
        reads,
    }
}

impl Row {
    /// True for messages of several lines and many figures, which other lines may stand between.
    pub(super) fn may_stand_apart(&self) -> bool {
        matches!(self.writer, Writer::PyTorch | Writer::CudaMallocAsync) && self.trust == Trust::Figures && !self.is_warning
    }

    pub(super) const fn near(mut self, words: &'static str) -> Self {
        self.near = words;
        self
    }

    pub(super) const fn since(mut self, release: Release) -> Self {
        self.since = Some(release);
        self
    }

    pub(super) const fn until(mut self, release: Release) -> Self {
        self.until = Some(release);
        self
    }

    pub(super) const fn warning(mut self) -> Self {
        self.is_warning = true;
        self
    }

    /// Is not ended by words that other messages start with.
    pub(super) const fn whole(mut self) -> Self {
        self.is_whole = true;
        self
    }

    /// What to do, where its program's usual advice does not fit: lines as in `diagnose::explain::advice`.
    pub(super) const fn tips(mut self, lines: &'static [&'static str]) -> Self {
        self.tips = lines;
        self
    }

    /// What it means, in a sentence. Figures as in `diagnose::explain::words`.
    pub(super) const fn says(mut self, sentence: &'static str) -> Self {
        self.says = sentence;
        self
    }
}
