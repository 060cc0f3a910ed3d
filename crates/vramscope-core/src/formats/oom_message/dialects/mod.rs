//! The table of dialects: how each program words that memory ran out. A new one is a row with its example; `engine` reads them all.

use super::engine::Row;
use super::{Platform, Release, Writer};

mod devices;
mod host;
mod programs;
mod pytorch;
mod xla;

pub(super) use host::KILLED;
pub(super) use pytorch::NATIVE;

/// Of two rows that start with the same words the longer is tried first, then the earlier.
pub(super) const ROWS: [&[Row]; 5] = [pytorch::ROWS, xla::ROWS, programs::ROWS, devices::ROWS, host::ROWS];

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

const fn row(
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
    const fn near(mut self, words: &'static str) -> Self {
        self.near = words;
        self
    }

    const fn since(mut self, release: Release) -> Self {
        self.since = Some(release);
        self
    }

    const fn until(mut self, release: Release) -> Self {
        self.until = Some(release);
        self
    }

    const fn warning(mut self) -> Self {
        self.is_warning = true;
        self
    }

    /// Is not ended by words that other messages start with.
    const fn whole(mut self) -> Self {
        self.is_whole = true;
        self
    }

    /// What to do, where its program's usual advice does not fit: lines as in `diagnose::explain::advice`.
    const fn tips(mut self, lines: &'static [&'static str]) -> Self {
        self.tips = lines;
        self
    }

    /// What it means, in a sentence. Figures as in `diagnose::explain::words`.
    const fn says(mut self, sentence: &'static str) -> Self {
        self.says = sentence;
        self
    }
}
