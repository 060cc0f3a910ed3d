//! A row of the table of dialects: one program's wording for "out of memory". The rows are in `dialects`, as plain text:
//!
//! ```text
//! rmm cuda sure: Maximum pool size exceeded
//!     near rmm|memory_resource
//!     fields failed to allocate {requested} | max/try size = {_}, {limit}
//!     says RMM's pool reached the largest size that it was given.
//!     tip Let the pool grow.
//!     > Maximum pool size exceeded (failed to allocate 64.0 MiB): current/max/try size = 256.0 MiB, 256.0 MiB, 64.0 MiB
//!     = requested 64.0 MiB, limit 256.0 MiB
//! ```
//!
//! The head is the program (a key of `programs.txt`), the platform, what the words alone prove ([`Trust`]), and the words. Before the colon may also be `since 2.12`
//! or `until 0.4` (releases), `warning`, `attempt`, `whole`, `decimal` and `last`. Lines with `or` have words that stand for those of the head.
//! The lines with `>` and `=` are an example as the program prints it and the figures read from it: both are tested. The other lines are
//! fields of [`Row`].

use super::entries::Entry;
use super::{Dialect, Writer, release};

/// Of two rows whose anchors match at the same place, the longer anchor is tried first, then the earlier row.
pub(crate) const DIALECTS: [&str; 8] = [
    include_str!("dialects/pytorch.txt"),
    include_str!("dialects/xla.txt"),
    include_str!("dialects/servers.txt"),
    include_str!("dialects/programs.txt"),
    include_str!("dialects/ggml.txt"),
    include_str!("dialects/devices.txt"),
    include_str!("dialects/host.txt"),
    include_str!("dialects/general.txt"),
];

/// How much the words alone prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
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

#[derive(Clone)]
pub(super) struct Row {
    /// The program, and the releases with this wording.
    pub(super) dialect: Dialect,
    pub(super) trust: Trust,
    /// The words that identify the row.
    pub(super) anchor: &'static str,
    /// One of these must occur near the anchor; empty if the anchor is enough.
    pub(super) near: Vec<&'static str>,
    /// Of each of these lists one must occur in the anchor's line; of a list that begins with `!`, none.
    pub(super) line: Vec<&'static str>,
    /// The meaning of each number; see `engine` for the syntax.
    pub(super) fields: Vec<&'static str>,
    /// `warning`: the program continues after the message. `attempt`: it tries again with less. `whole`: words that other messages
    /// start with do not end this one. `decimal`: its units are powers of 1000. `last`: words that any program may print, read only where no
    /// other row found a failure.
    marks: Vec<&'static str>,
    /// The meaning as a sentence, if the figures do not decide it, with placeholders as in `diagnose::explain::words`.
    pub(super) says: &'static str,
    /// Advice, if the program's usual advice does not fit: lines as in `diagnose::explain::advice`.
    pub(super) tips: Vec<&'static str>,
}

impl Row {
    /// The row of an entry, once for each of its words that identify it; none for an entry that is no row.
    pub(super) fn of(entry: &Entry) -> Vec<Self> {
        let Some(row) = Row::first(entry) else { return Vec::new() };
        let others = entry.all("or").flat_map(|line| line.split('|')).map(|anchor| Row { anchor: anchor.trim(), ..row.clone() });
        others.chain([row.clone()]).collect()
    }

    fn first(entry: &Entry) -> Option<Self> {
        let (head, anchor) = entry.head.split_once(": ")?;
        let mut words = head.split(' ');
        let (writer, platform) = (Writer::of_key(words.next()?)?, words.next()?.parse().ok()?);
        let trust = words.next()?.parse().ok()?;
        let parts = |mark| entry.all(mark).flat_map(|line| line.split('|')).map(str::trim).filter(|part| !part.is_empty());
        let mut row = Row {
            dialect: Dialect { writer, platform, since: None, until: None },
            trust,
            anchor,
            near: parts("near").collect(),
            line: entry.all("line").collect(),
            fields: parts("fields").collect(),
            marks: Vec::new(),
            says: entry.all("says").next().unwrap_or(""),
            tips: entry.all("tip").collect(),
        };
        while let Some(word) = words.next() {
            match word {
                "since" => row.dialect.since = Some(release(words.next()?)?),
                "until" => row.dialect.until = Some(release(words.next()?)?),
                "warning" | "attempt" | "whole" | "decimal" | "last" => row.marks.push(word),
                _ => return None,
            }
        }
        Some(row)
    }

    /// True for messages of several lines and many figures, which other lines may interrupt.
    pub(super) fn may_stand_apart(&self) -> bool {
        matches!(self.dialect.writer, Writer::PYTORCH | Writer::CUDA_MALLOC_ASYNC)
            && self.trust == Trust::Figures
            && !self.is("warning")
    }

    pub(super) fn is(&self, mark: &str) -> bool {
        self.marks.contains(&mark)
    }
}
