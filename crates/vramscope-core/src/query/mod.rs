//! The query language: `size>1MiB stack~attention -stream=0`. Terms separated by spaces must all match; `or` begins an
//! alternative; `-` or `not` negates a term. Case is ignored.
//!
//! | term | matches events | matches allocations |
//! |---|---|---|
//! | `size>1MiB`, `size=512`, `size=1MiB..2MiB`, `>1MiB` | of this size | that requested this size |
//! | `block>=2MiB` | of an allocation with such a block | whose whole block has this size |
//! | `0x7f1dca2b7000`, `addr=…` | whose block or segment holds this address | whose block holds it |
//! | `0x7f1d..` | whose address begins with these digits | the same |
//! | `stack~attention` | with a frame whose file or function contains the text | the same |
//! | `stack=17`, `stack=none` | by exactly this stack, or without one | the same |
//! | `stack~/attn|mlp/` | with a frame that matches the regular expression; also with `file~` and `function~` | the same |
//! | `file~train.py`, `function~forward` | with a frame whose file, or function, contains the text | the same |
//! | `module~attention` | below a module with this name: its `forward`, an `nn.Module:` frame, or an annotation | the same |
//! | `train.py`, `"two words"` | with the text in its stack or its notes | the same |
//! | `role=gradients` | of an allocation of this role | of this role |
//! | `stream=1`, `stream=0x55…` | of this stream, by index or handle | the same |
//! | `pool=private`, `pool=default`, `pool=small`, `pool=large`, `pool=0.7` | of such a pool | the same |
//! | `step=3`, `step=3..5`, `during~forward` | inside a step, or an annotation with this name | allocated there |
//! | `born>1200`, `gone<=2s`, `born>oom` | of an allocation allocated or freed then (an event, a time or an instant) | the same |
//! | `gone=never`, `born=before` | of one never freed in the trace, or made before it | the same |
//! | `age>5000`, `age<2ms` | of an allocation with this age | in events or time |
//! | `gone`, `kept` | of an allocation freed in the trace, or not | the same |
//! | `live@peak`, `live@oom`, `live@end`, `live@cursor`, `live@a`, `live@1200` | of a block live then | live then |
//! | `event=100..200`, `27584`, `time>100ms` | with this number or time | born then; one number: this event's |
//! | `alloc`, `free`, `segment`, `oom`, …, `action=alloc` | of this action | born in the trace; freed in it; none |
//! | `id=12` | of this allocation | this row |
//!
//! `!=` and `!~` negate a comparison, as `-` does. Spaces are allowed around an operator and before a unit. `2MiB<size` means
//! `size>2MiB`. Users see the table in `reference.rs`.

use std::ops::Range;

use crate::anatomy::roles::{Role, Roles};
use crate::anatomy::steps::Steps;
use crate::model::{Action, Cancelled, DeviceRecording, PoolKey, Progress, Recording, SizeClass};
use crate::tables::DeviceTables;
use crate::units::count;

mod complete;
mod examples;
pub mod matching;
mod needle;
pub mod ordering;
mod prepare;
mod reference;
mod terms;
#[cfg(test)]
mod tests;
mod why;
mod words;

pub use complete::{Completion, Vocabulary, complete};
pub use examples::{Example, examples};
pub(super) use prepare::Tests;
pub use reference::{GRAMMAR, reference};
pub use why::Asked;
use words::words;

/// A range of whole numbers, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Between {
    /// Smallest matching value, inclusive.
    pub least: u64,
    /// Largest matching value, inclusive.
    pub greatest: u64,
}

impl Between {
    fn holds(self, value: u64) -> bool {
        (self.least..=self.greatest).contains(&value)
    }
}

/// A comparison with an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `=`
    Is,
    /// `>=`
    AtLeast,
    /// `>`
    More,
}

/// An instant named in a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instant {
    /// Where requested memory peaks.
    Peak,
    /// The last out-of-memory event.
    Oom,
    /// After the last event of the device.
    End,
    /// The event of the window's cursor.
    Cursor,
    /// Marker A, or B.
    Marker(usize),
    /// The state after this event.
    Event(u32),
}

/// A point or range in time, or an age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Event numbers, or a lifetime counted in events.
    Events(Between),
    /// Microseconds, since the first event or of a lifetime.
    Micros(Between),
    /// A comparison with an instant.
    At(Operator, Instant),
}

/// A condition on events or allocations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Term {
    /// One of these actions.
    Action(Vec<Action>),
    /// Size in bytes: an event's own, or the requested size of an allocation.
    Size(Between),
    /// Size of the whole block in bytes.
    Block(Between),
    /// The block or segment contains this address.
    Address(u64),
    /// Addresses in this range.
    Addresses(Between),
    /// Number of the event, from 0.
    Event(Between),
    /// Microseconds after the first event.
    Time(Between),
    /// A stream by index or handle.
    Stream(u64),
    /// True: a private pool; false: the default pool.
    PrivatePool(bool),
    /// The pool with this key.
    Pool(PoolKey),
    /// Small or large requests.
    Class(SizeClass),
    /// A frame contains the text (lower case).
    Stack(String),
    /// Exactly this stack, by its number in the recording; `u32::MAX` for no stack.
    StackIs(u32),
    /// The role of the allocation.
    Role(Role),
    /// Inside an annotation whose name contains the text (lower case).
    During(String),
    /// Inside steps with these numbers: annotations that end with such a number, else steps as the Steps lane counts them.
    Step(Between),
    /// The file of a frame contains the text (lower case).
    File(String),
    /// The function of a frame contains the text (lower case).
    Function(String),
    /// Below a module whose name or file contains the text (lower case).
    Module(String),
    /// Allocated before the trace began.
    BornBefore,
    /// When it was allocated.
    Born(Moment),
    /// When its memory became reusable.
    Gone(Moment),
    /// True: freed in the trace; false: not freed in it.
    IsGone(bool),
    /// How long it lived; until the end of the trace if it was not freed.
    Age(Moment),
    /// Live at an instant.
    LiveAt(Instant),
    /// Row id of an allocation.
    Id(Between),
    /// The stack or the notes contain the text (lower case).
    Text(String),
}

/// Why a query cannot be parsed, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct QueryError {
    /// One sentence: the term, and what is expected instead.
    pub sentence: String,
    /// The term's byte range in the query.
    pub at: Range<usize>,
}

/// A query in disjunctive form: it matches where all terms of one alternative match. A term with `true` is negated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// The alternatives; none at all matches everything.
    pub any: Vec<Vec<(Term, bool)>>,
    /// The terms as typed, in the same order as [`any`](Self::any).
    pub typed: Vec<Vec<String>>,
}

/// The data that a query runs on, with the meaning of its instants.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// The recording: stacks and texts.
    pub recording: &'a Recording,
    /// One of its devices.
    pub device: &'a DeviceRecording,
    /// Lifetimes, curves and states of the device.
    pub tables: &'a DeviceTables,
    /// Roles of allocations; without them every allocation has [`Role::Unknown`].
    pub roles: Option<&'a Roles>,
    /// The device's steps, if known.
    pub steps: Option<&'a Steps>,
    /// The event of the window's cursor; `None` on the command line.
    pub cursor: Option<u32>,
    /// Events of markers A and B.
    pub markers: [Option<u32>; 2],
}

impl<'a> Scope<'a> {
    /// A scope without roles, steps, cursor and markers.
    pub fn new(recording: &'a Recording, device: &'a DeviceRecording, tables: &'a DeviceTables) -> Self {
        Scope { recording, device, tables, roles: None, steps: None, cursor: None, markers: [None; 2] }
    }

    /// The event of an instant; `None` if the recording or the window has none, or for an event number past the last.
    pub fn event_of(&self, instant: Instant) -> Option<u32> {
        match instant {
            Instant::Peak => Some(self.tables.curves.peak_event()),
            Instant::Oom => self.device.events.last_oom(),
            Instant::End => (self.device.events.len() as u32).checked_sub(1),
            Instant::Cursor => self.cursor,
            Instant::Marker(i) => self.markers.get(i).copied().flatten(),
            Instant::Event(e) => Some(e).filter(|&e| (e as usize) < self.device.events.len()),
        }
    }
}

impl Query {
    /// Parses a query; an empty one matches all. The error is a sentence with the term, its position, and what is expected instead.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        let mut any: Vec<Vec<(Term, bool)>> = Vec::new();
        let mut open: Vec<(Term, bool)> = Vec::new();
        let (mut typed, mut open_typed): (Vec<Vec<String>>, Vec<String>) = Default::default();
        // The position of a `not` or `or` that still needs a term.
        let (mut not, mut or) = (None, None);
        for word in words(text) {
            let wrong = |sentence: String| QueryError { sentence, at: word.at.clone() };
            match word.text.as_str() {
                _ if word.is_quoted => {}
                "or" | "OR" | "|" | "||" => {
                    if open.is_empty() || not.is_some() {
                        return Err(wrong("\"or\" stands between terms: write for example pool=private or size>1GiB".to_owned()));
                    }
                    any.push(std::mem::take(&mut open));
                    typed.push(std::mem::take(&mut open_typed));
                    or = Some(word.at);
                    continue;
                }
                "and" | "AND" | "&&" => continue,
                "not" | "NOT" => {
                    not = Some(word.at);
                    continue;
                }
                _ => {}
            }
            let (is_not, rest) = match word.text.strip_prefix(['-', '!']) {
                Some(rest) if !rest.is_empty() => (true, rest),
                _ => (false, word.text.as_str()),
            };
            let term = if word.is_quoted && !word.text.contains(['=', '~']) {
                (Term::Text(word.text.to_lowercase()), false)
            } else {
                terms::term(rest).map_err(wrong)?
            };
            let (term, turns) = term;
            let turned = not.take();
            let own = text.get(turned.as_ref().unwrap_or(&word.at).start..word.at.end).unwrap_or(&word.text);
            open_typed.push(own.split_whitespace().collect::<Vec<_>>().join(" "));
            open.push((term, (is_not != turns) != turned.is_some()));
            or = None;
        }
        if let Some(at) = not.or(or) {
            let word = text.get(at.clone()).unwrap_or("").to_owned();
            return Err(QueryError { sentence: format!("A term is missing after \"{word}\""), at });
        }
        if !open.is_empty() {
            any.push(open);
            typed.push(open_typed);
        }
        Ok(Query { any, typed })
    }

    /// True when it matches everything.
    pub fn is_empty(&self) -> bool {
        self.any.is_empty()
    }

    /// True when the result depends on the cursor.
    pub fn follows_cursor(&self) -> bool {
        self.names(Instant::Cursor)
    }

    /// True when the result depends on marker A or B.
    pub fn follows_markers(&self) -> bool {
        self.names(Instant::Marker(0)) || self.names(Instant::Marker(1))
    }

    fn names(&self, instant: Instant) -> bool {
        self.any.iter().flatten().any(|(term, _)| match term {
            Term::LiveAt(at) => *at == instant,
            Term::Born(Moment::At(_, at)) | Term::Gone(Moment::At(_, at)) => *at == instant,
            _ => false,
        })
    }

    /// True when the result depends on [`Scope::roles`].
    pub fn needs_roles(&self) -> bool {
        self.any.iter().flatten().any(|(term, _)| matches!(term, Term::Role(_)))
    }

    /// True when the result depends on [`Scope::steps`].
    pub fn needs_steps(&self) -> bool {
        self.any.iter().flatten().any(|(term, _)| matches!(term, Term::Step(_)))
    }

    /// The matching events, ascending. O(events), on all cores.
    pub fn events(&self, scope: &Scope<'_>, progress: &Progress) -> Result<Vec<u32>, Cancelled> {
        let tests = Tests::new(self, scope);
        chosen(scope.device.events.len() as u32, progress, |e| tests.hold_for_event(scope, e))
    }

    /// The matching ones of `ids`, in the same order. O(ids).
    pub fn among(&self, scope: &Scope<'_>, ids: &[crate::tables::LifetimeId]) -> Vec<crate::tables::LifetimeId> {
        let tests = Tests::new(self, scope);
        ids.iter().copied().filter(|&id| tests.hold_for_lifetime(scope, id)).collect()
    }

    /// The row ids of the matching allocations, ascending. O(allocations), on all cores.
    pub fn allocations(&self, scope: &Scope<'_>, progress: &Progress) -> Result<Vec<u32>, Cancelled> {
        let tests = Tests::new(self, scope);
        chosen(scope.tables.lifetimes.len() as u32, progress, |i| tests.hold_for_lifetime(scope, crate::tables::LifetimeId(i)))
    }
}

/// The numbers below `n` that pass, ascending; on all cores.
fn chosen(n: u32, progress: &Progress, passes: impl Fn(u32) -> bool + Sync) -> Result<Vec<u32>, Cancelled> {
    use rayon::prelude::*;
    const CHUNK: u32 = 1 << 16;
    let chunks: Result<Vec<Vec<u32>>, Cancelled> = (0..n.div_ceil(CHUNK))
        .into_par_iter()
        .map(|chunk| {
            progress.check()?;
            Ok((chunk * CHUNK..((chunk + 1) * CHUNK).min(n)).filter(|&i| passes(i)).collect())
        })
        .collect();
    Ok(chunks?.concat())
}

/// How many are left by a filter: `9,422 of 27,909`.
pub fn of_text(left: usize, all: usize) -> String {
    format!("{} of {}", count(left as u64), count(all as u64))
}
