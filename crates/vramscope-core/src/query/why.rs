//! Explains why a query matches nothing: what the recording lacks, or the term after which nothing is left.

use super::prepare::{Test, ranges_of_steps};
use super::{Between, Instant, Moment, Query, Scope, Term, chosen};
use crate::anatomy::roles::Role;
use crate::anatomy::steps::Steps;
use crate::model::{Cancelled, Progress};
use crate::tables::LifetimeId;
use crate::units::{Bytes, count, counted};

/// What a query runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Allocations, as in the table of allocations.
    Allocations,
    /// Events, as in the table of events.
    Events,
}

impl Asked {
    fn one(self) -> &'static str {
        if self == Asked::Allocations { "allocation" } else { "event" }
    }

    fn many(self) -> &'static str {
        if self == Asked::Allocations { "allocations" } else { "events" }
    }
}

impl Query {
    /// Instants, events, steps, times, streams, pools and annotations that the query names but the recording or the window lacks.
    /// One sentence each. O(terms × annotations).
    pub fn not_there(&self, scope: &Scope<'_>) -> Vec<String> {
        let mut out: Vec<String> = Vec::new();
        let terms = self.any.iter().flatten().zip(self.typed.iter().flatten());
        for sentence in terms.filter_map(|((term, _), typed)| missing(scope, term, typed)) {
            if !out.contains(&sentence) {
                out.push(sentence);
            }
        }
        out
    }

    /// Why the query matches nothing, by alternative; empty if it matches or is empty. O(terms × allocations or events).
    pub fn why_none(&self, scope: &Scope<'_>, asked: Asked, progress: &Progress) -> Result<Vec<String>, Cancelled> {
        let mut out: Vec<String> = Vec::new();
        for (terms, typed) in self.any.iter().zip(&self.typed) {
            let sentence = match terms.iter().zip(typed).find_map(
                |((term, not), typed)| {
                    if *not { None } else { missing(scope, term, typed) }
                },
            ) {
                Some(sentence) => Some(sentence),
                None => emptied_by(scope, terms, typed, asked, progress)?,
            };
            match sentence {
                Some(sentence) if !out.contains(&sentence) => out.push(sentence),
                Some(_) => {}
                None => return Ok(Vec::new()),
            }
        }
        Ok(out)
    }
}

/// The term of an alternative after which nothing is left; `None` if something is left.
fn emptied_by(
    scope: &Scope<'_>,
    terms: &[(Term, bool)],
    typed: &[String],
    asked: Asked,
    progress: &Progress,
) -> Result<Option<String>, Cancelled> {
    let all = match asked {
        Asked::Allocations => scope.tables.lifetimes.len(),
        Asked::Events => scope.device.events.len(),
    } as u32;
    if all == 0 {
        return Ok(Some(format!("The recording has no {}.", asked.many())));
    }
    let mut left: Option<Vec<u32>> = None;
    for (i, ((term, not), own)) in terms.iter().zip(typed).enumerate() {
        let test = Test::new(term, scope);
        let passes = |row: u32| {
            *not != match asked {
                Asked::Allocations => test.holds_for_lifetime(scope, LifetimeId(row)),
                Asked::Events => test.holds_for_event(scope, row),
            }
        };
        let before = left.as_ref().map_or(all as usize, Vec::len);
        let next = match left.take() {
            None => chosen(all, progress, passes)?,
            Some(rows) => rows.into_iter().filter(|&row| passes(row)).collect(),
        };
        if next.is_empty() {
            // The first term was just tested alone.
            let is_alone = i == 0 || chosen(all, progress, passes)?.is_empty();
            return Ok(Some(if is_alone {
                none_at_all(scope, term, *not, own, asked)
            } else {
                let rest = typed[..i].join(" ");
                let passing = counted(before as u64, asked.one(), asked.many());
                format!("Of the {passing} that {rest} leaves, none passes {own}.")
            }));
        }
        left = Some(next);
    }
    Ok(None)
}

/// Explains a term that matches nothing by itself.
fn none_at_all(scope: &Scope<'_>, term: &Term, not: bool, typed: &str, asked: Asked) -> String {
    let no = |where_: &str, text: &str| match super::needle::pattern_of(text) {
        Some(_) => format!("No {where_} is found by {text}."),
        None => format!("No {where_} contains \"{text}\"."),
    };
    if not {
        return format!("Every {} is left out by {typed}.", asked.one());
    }
    match term {
        Term::Text(text) => {
            let role = Role::from_name(text).filter(|_| asked == Asked::Allocations);
            let meant = role.map_or(String::new(), |role| format!(" For the role write role={}.", role.name()));
            no("call stack and no note", text) + &meant
        }
        Term::Stack(text) => no("call stack", text),
        Term::File(text) => no("file of a call stack", text),
        Term::Function(text) => no("function of a call stack", text),
        Term::Module(text) => no("module of a call stack, and no annotation,", text),
        Term::Size(_) | Term::Block(_) if asked == Asked::Allocations => {
            let lifetimes = &scope.tables.lifetimes;
            let is_block = matches!(term, Term::Block(_));
            let size = |i: u32| {
                let id = LifetimeId(i);
                if is_block { lifetimes.block_size(id) } else { lifetimes.requested(scope.device, id) }
            };
            let (least, most) =
                (0..lifetimes.len() as u32).map(size).fold((u64::MAX, 0), |(least, most), n| (least.min(n), most.max(n)));
            let what = if is_block { "blocks have" } else { "allocations requested" };
            format!("{typed} holds for none: {what} {} to {}.", Bytes(least.min(most)), Bytes(most))
        }
        _ => format!("{typed} holds for no {}, whatever the rest of the query says.", asked.one()),
    }
}

/// What a term needs but the recording lacks.
fn missing(scope: &Scope<'_>, term: &Term, typed: &str) -> Option<String> {
    let events = &scope.device.events;
    let needs_time = |moment: &Moment| matches!(moment, Moment::Micros(_)) && !events.has_time;
    match term {
        Term::LiveAt(at) => no_instant(scope, *at, typed),
        Term::Born(Moment::At(_, at)) | Term::Gone(Moment::At(_, at)) => no_instant(scope, *at, typed),
        Term::Born(m) | Term::Gone(m) | Term::Age(m) if needs_time(m) => {
            Some(format!("{typed}: the recording has no times. Write the number of events."))
        }
        Term::Time(_) if !events.has_time => Some(format!("{typed}: the recording has no times.")),
        Term::Event(b) if b.least == b.greatest => no_event(scope, b.least),
        Term::Step(numbers) => no_step(scope, *numbers),
        Term::Stream(wanted) => {
            let streams = &scope.device.streams;
            let is_there = streams.iter().enumerate().any(|(i, handle)| i as u64 == *wanted || handle == wanted);
            let last = (streams.len() as u64).saturating_sub(1);
            (!is_there).then(|| match last {
                0 => format!("{typed}: the only stream is 0."),
                _ => format!("{typed}: streams are 0 to {}.", count(last)),
            })
        }
        Term::PrivatePool(true) if scope.device.pools.iter().all(|&key| key == (0, 0)) => {
            Some("The recording has no private pool.".to_owned())
        }
        Term::Pool(key) if !scope.device.pools.contains(key) => {
            let known: Vec<String> = scope.device.pools.iter().take(8).map(|(a, b)| format!("{a}.{b}")).collect();
            Some(format!("The recording has no pool {}.{}: its pools are {}.", key.0, key.1, known.join(", ")))
        }
        Term::During(_) if scope.device.annotations.is_empty() => Some(format!("{typed}: the recording has no annotations.")),
        Term::During(name) => {
            let stacks = &scope.recording.stacks;
            let is_there = scope.device.annotations.iter().any(|a| stacks.text(a.name).to_lowercase().contains(name.as_str()));
            (!is_there).then(|| format!("No annotation is called \"{name}\"."))
        }
        _ => None,
    }
}

fn no_instant(scope: &Scope<'_>, at: Instant, typed: &str) -> Option<String> {
    if scope.event_of(at).is_some() {
        return None;
    }
    Some(match at {
        Instant::Oom => format!("{typed}: the recording has no out-of-memory event."),
        Instant::Marker(i) => {
            let name = if i == 0 { "A" } else { "B" };
            format!("Marker {name} is not set: Shift {name} puts it at the cursor.")
        }
        Instant::Event(event) => return no_event(scope, u64::from(event)),
        _ => format!("{typed}: the recording has no events."),
    })
}

fn no_event(scope: &Scope<'_>, event: u64) -> Option<String> {
    let n = scope.device.events.len() as u64;
    (event >= n).then(|| match n {
        0 => format!("There is no event {}: the recording has none.", count(event)),
        _ => format!("There is no event {}: the last is {}.", count(event), count(n - 1)),
    })
}

fn no_step(scope: &Scope<'_>, numbers: Between) -> Option<String> {
    if !ranges_of_steps(scope, numbers).is_empty() {
        return None;
    }
    Some(match scope.steps.map_or(0, Steps::len) {
        0 => "No step has that number: no steps were found in this recording.".to_owned(),
        1 => "No step has that number: the only step is 1.".to_owned(),
        n => format!("No step has that number: steps are 1 to {}.", count(n as u64)),
    })
}
