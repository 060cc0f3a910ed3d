//! [`Parting`]: where two recordings cease to match as one program.

use rustc_hash::FxHashSet;

use super::align::align;
use super::program::{NEVER, Program, Row, is_installed};
use crate::anatomy::{Phase, Role, Roles};
use crate::model::{DeviceRecording, Frame};
use crate::tables::{DeviceTables, Quantity};
use crate::units::{Bytes, MEBIBYTE};

/// Why two recordings are not of one program, and where they first differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parting {
    /// The full reason, one sentence without a full stop.
    pub sentence: String,
    /// The sentence without the place.
    pub why: String,
    /// What each recording requests there.
    pub sides: [Side; 2],
}

/// What one recording requests where they differ.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Side {
    /// Name of the recording.
    pub name: String,
    /// Bytes; `null` if it requests nothing more.
    pub bytes: Option<u64>,
    /// The program's own lines of the stack, innermost first.
    pub lines: Vec<String>,
}

impl Side {
    fn of(p: &Program, row: Option<&Row>) -> Self {
        let stacks = &p.recording.stacks;
        let own = |f: &Frame| {
            let file = stacks.text(f.file);
            file.ends_with(".py") && !is_installed(file)
        };
        let lines = |row: &Row| {
            let frames = stacks.frames(row.stack).iter().filter_map(|&f| stacks.frame(f)).filter(own);
            let mut lines: Vec<String> = frames.map(|f| stacks.location(f)).collect();
            if lines.is_empty() {
                lines.push(p.place(row));
            }
            lines
        };
        let name = p.recording.source.name.clone();
        Side { name, bytes: row.map(|r| r.size), lines: row.map_or_else(Vec::new, lines) }
    }

    /// `2.25 MiB at train.py:40, called from train.py:88`.
    pub fn told(&self) -> String {
        match (self.bytes, self.lines.split_first()) {
            (Some(bytes), Some((at, []))) => format!("{} at {at}", Bytes(bytes)),
            (Some(bytes), Some((at, from))) => format!("{} at {at}, called from {}", Bytes(bytes), from.join(", ")),
            _ => "nothing more".to_owned(),
        }
    }
}

/// Why the given sizes are wrong: a run larger in every quantity needs less memory. Excludes failed runs, which lack the peak.
pub(super) fn falls(programs: &[std::sync::Arc<Program>], names: &[String]) -> Option<String> {
    let peak = |p: &Program| p.most_live(&p.rows.iter().map(|row| row.size).collect::<Vec<_>>(), |_| true);
    let known: Vec<(&Program, Vec<u64>, u64)> =
        programs.iter().filter_map(|p| Some((p.as_ref(), p.at.values(names)?, peak(p)))).collect();
    let failed = |p: &Program| p.recording.devices.iter().any(|d| d.events.last_oom().is_some());
    known.iter().find_map(|(small, low, more)| {
        let is_larger = |high: &[u64]| high != low.as_slice() && high.iter().zip(low).all(|(h, l)| h >= l);
        let less = known.iter().find(|(p, high, peak)| is_larger(high) && *peak < more - more / 50 && !failed(p))?;
        Some(format!(
            "{} at {} needs {}, and {} at {} needs {}: a larger run that needs less means that the sizes are swapped or wrong",
            small.recording.source.name,
            small.at,
            Bytes(*more),
            less.0.recording.source.name,
            less.0.at,
            Bytes(less.2)
        ))
    })
}

/// Why the given sizes are wrong: two recordings at different sizes make the same requests, or common requests have equal sizes.
/// Twice the batch at half the length has the same sizes rightly; there, a third recording must show what each quantity does.
pub(super) fn are_the_same(programs: &[std::sync::Arc<Program>], names: &[String]) -> Option<String> {
    let is_same = |a: &Program, b: &Program| {
        a.rows.len() == b.rows.len() && a.asks.len() == b.asks.len() && a.rows.iter().zip(&b.rows).all(|(a, b)| a.size == b.size)
    };
    let pairs = programs.iter().enumerate().flat_map(|(i, a)| programs[i + 1..].iter().map(move |b| (a, b)));
    let product = |p: &Program| p.at.iter().fold(1u128, |all, (_, value)| all.saturating_mul(u128::from(value)));
    let may_be_equal = |a: &Program, b: &Program| product(a) == product(b) && programs.iter().any(|p| product(p) != product(a));
    let (a, b) =
        pairs.into_iter().find(|(a, b)| a.at != b.at && !may_be_equal(a, b) && (is_same(a, b) || has_equal_sizes(a, b)))?;
    let given: Vec<&str> = names.iter().filter(|n| a.at.get(n) != b.at.get(n)).map(String::as_str).collect();
    let [first, second] = [a, b].map(|p| p.recording.source.name.as_str());
    let (are, ask) = match is_same(a, b) {
        true => ("are the same", "is it the same file?"),
        false => ("have the same sizes", "are these two programs at one size?"),
    };
    Some(format!(
        "the requests of {first} at {} and of {second} at {} {are}, so what was given as {} does not change what it allocates; {ask}",
        a.at,
        b.at,
        given.join(" and ")
    ))
}

/// True if nearly all common requests of two programs have the same size in both.
fn has_equal_sizes(a: &Program, b: &Program) -> bool {
    /// Smaller requests are tables and counters.
    const SMALL: u64 = 4096;
    /// At most 1/n of the bytes may have another size.
    const SHARE: u64 = 100;
    let rows = |p: &Program| p.rows[p.older..].iter().map(|row| row.size).filter(|&size| size >= SMALL).collect::<Vec<u64>>();
    let sum = |sizes: &mut dyn Iterator<Item = u64>| sizes.fold(0u64, u64::saturating_add);
    let is_known = |of: &[u64], known: &[u64]| {
        let known: FxHashSet<u64> = known.iter().copied().collect();
        sum(&mut of.iter().copied().filter(|size| !known.contains(size))).saturating_mul(SHARE) <= sum(&mut of.iter().copied())
    };
    let (of_a, of_b) = (rows(a), rows(b));
    // Aligning the requests takes longer than this comparison, so compare first.
    if of_a.is_empty() || of_b.is_empty() || !is_known(&of_a, &of_b) || !is_known(&of_b, &of_a) {
        return false;
    }
    let map = align(a, b);
    let pairs =
        a.rows.iter().zip(&map).skip(a.older).filter_map(|(row, other)| Some((row.size, b.rows.get(*other as usize)?.size)));
    let (mut all, mut other) = (0u64, 0u64);
    for (size, theirs) in pairs {
        all = all.saturating_add(size);
        other = other.saturating_add(if size == theirs { 0 } else { size });
    }
    all > 0 && other.saturating_mul(SHARE) <= all
}

/// The same check before the requests are read: false if `has_no_steps` would refuse it, unless the quantity is a cache.
pub fn may_be_planned(device: &DeviceRecording, roles: &Roles) -> bool {
    let runs = &roles.anatomy.phases.runs;
    let is_in = |phases: &[Phase]| runs.iter().any(|run| phases.contains(&run.phase));
    let repeats = !roles.anatomy.steps.is_empty() && !is_in(&[Phase::Generation]);
    device.events.last_oom().is_none() || is_in(&TRAINING) || repeats
}

/// Phases that occur only in the main loop of a program with a model.
const TRAINING: [Phase; 4] = [Phase::Forward, Phase::Backward, Phase::Optimizer, Phase::Evaluation];

/// Why a failed program cannot be planned: no step repeats, or it generates and each round is larger than the one before. The
/// autopsy shows what it needed; the requests at another size are unknown. A server with a named cache can be planned.
pub(super) fn has_no_steps(programs: &[Program], names: &[String]) -> Option<String> {
    let [program] = programs else { return None };
    let failed = program.recording.devices.get(program.device).is_some_and(|d| d.events.last_oom().is_some());
    let is_in = |phases: &[Phase]| program.rows.iter().any(|r| phases.contains(&r.phase));
    let trains = is_in(&TRAINING);
    let repeats = program.recorded_steps > 0 && !is_in(&[Phase::Generation]);
    if !failed || trains || repeats || !super::server::cache(program, names).is_empty() {
        return None;
    }
    let name = &program.recording.source.name;
    Some(format!(
        "the program in {name} fails without a training step that repeats, so nothing shows what another size would ask for"
    ))
}

/// Why a recording that begins too late cannot be planned: the program's peak is not in it. At most one step was recorded, and
/// much more was reserved before its first event than it uses.
pub(super) fn lacks_its_peak(program: &Program, tables: &DeviceTables) -> Option<String> {
    let before = tables.before_earlier_peak().filter(|_| program.recorded_steps <= 1)?;
    Some(format!(
        "the history in {} begins too late: {} was reserved before its first event, and it uses {} at most, so the peak of the run is not in it; record \
             from the start, or with more entries",
        program.recording.source.name,
        Bytes(before),
        Bytes(tables.curves.peak(Quantity::Active).0)
    ))
}

/// Smallest share of requests that two recordings of one program must have in common.
const LEAST_COMMON: f64 = 0.6;
/// Largest share of allocated bytes that may come from places unknown to the other recording.
const MOST_FOREIGN: f64 = 0.1;

/// Two recordings are of different programs if one has at least this many times as much gradient or optimizer state per weight.
const OTHER_PART: u64 = 4;

/// Why two recordings are of two programs although most requests match: one trains layers that the other freezes, or uses another
/// optimizer. `None` if one of them failed or has fewer than two steps, and for inferred roles.
fn trains_otherwise(a: &Program, b: &Program) -> Option<String> {
    let sizes = |p: &Program| p.rows.iter().map(|row| row.size).collect::<Vec<_>>();
    let is_whole = |p: &Program| p.recorded_steps > 1 && p.failed.is_empty();
    if !is_whole(a) || !is_whole(b) {
        return None;
    }
    let (of_a, of_b) = (sizes(a), sizes(b));
    let held = |role: Role| {
        [(a, &of_a), (b, &of_b)].map(|(p, sizes)| p.most_live(sizes, |row| p.rows.get(row).is_some_and(|r| r.role == role)))
    };
    let weights = held(Role::Weights);
    let is_sure = |role: Role| [a, b].iter().all(|p| !p.probable.contains(&role));
    let roles = [(Role::Gradients, "gradients"), (Role::OptimizerState, "optimizer state")];
    roles.into_iter().filter(|&(role, _)| is_sure(role) && is_sure(Role::Weights)).find_map(|(role, what)| {
        let held = held(role);
        let share = |i: usize| u128::from(held[i]).saturating_mul(u128::from(weights[1 - i].max(1)));
        let (less, more) = if share(0) < share(1) { (0, 1) } else { (1, 0) };
        let is_much = held[more] >= weights[more] / 2 && held[more] >= MEBIBYTE;
        let is_other = is_much && share(less).saturating_mul(OTHER_PART.into()) < share(more);
        is_other.then(|| {
            let [one, other] = [(a, 0), (b, 1)].map(|(p, i)| (p.recording.source.name.as_str(), Bytes(held[i])));
            format!("{} has {} of {what}, and {} {}", one.0, one.1, other.0, other.1)
        })
    })
}

/// Whether two aligned recordings are of two programs; `map` contains the row of `b` for each row of `a`.
pub(super) fn part(a: &Program, b: &Program, map: &[u32]) -> Option<Parting> {
    let matched = map.iter().filter(|m| **m != NEVER).count();
    let fewer = a.rows.len().min(b.rows.len()).max(1);
    // A longer recording of the same program has more steps; each of them is compared with one.
    let common = matched as f64 / fewer as f64;
    let foreign = |p: &Program, q: &Program| {
        let known: FxHashSet<u64> = q.rows.iter().map(|r| r.loose).collect();
        let (mut all, mut strange, mut first) = (0u64, 0u64, None);
        for (at, row) in p.rows.iter().enumerate().filter(|(_, r)| r.loose != 0) {
            all += row.size;
            if !known.contains(&row.loose) {
                strange += row.size;
                first.get_or_insert(at);
            }
        }
        (strange as f64 / all.max(1) as f64, first)
    };
    let (from_a, first_a) = foreign(a, b);
    let (from_b, first_b) = foreign(b, a);
    let is_one = common >= LEAST_COMMON && from_a <= MOST_FOREIGN && from_b <= MOST_FOREIGN;
    let otherwise = if is_one { Some(trains_otherwise(a, b)?) } else { None };
    // The request that the other recording lacks, and what the other requests after the last common request before it.
    let (at, theirs) = match (first_a.filter(|_| from_a >= from_b || first_b.is_none()), first_b) {
        (None, Some(theirs)) => {
            let before = map.iter().enumerate().filter(|(_, m)| **m < theirs as u32).map(|(at, _)| at + 1).max();
            (before.unwrap_or(a.older), theirs)
        }
        (first, _) => {
            let at = first.or_else(|| map.iter().position(|m| *m == NEVER)).unwrap_or(0);
            let before = map[..at.min(map.len())].iter().rev().find(|m| **m != NEVER);
            (at, before.map_or(b.older, |m| *m as usize + 1))
        }
    };
    let mut sides = [Side::of(a, a.rows.get(at)), Side::of(b, b.rows.get(theirs))];
    if sides[0].lines == sides[1].lines {
        // The same line of the program calls something else.
        for (side, (p, row)) in sides.iter_mut().zip([(a, a.rows.get(at)), (b, b.rows.get(theirs))]) {
            let stacks = &p.recording.stacks;
            let inner = row.and_then(|row| stacks.frame(*stacks.frames(row.stack).first()?));
            side.lines.splice(0..0, inner.map(|f| format!("{} ({})", stacks.location(f), stacks.text(f.name))));
        }
    }
    let share = common.min(1.0) * 100.0;
    let reason = otherwise.unwrap_or_else(|| format!("{share:.0} % of the requests are the same"));
    let why = format!("these are not two runs of one program: {reason}, and they part where");
    let [one, other] = sides.each_ref().map(Side::told);
    let sentence = format!("{why} {} asks for {one}, and {} for {other}", sides[0].name, sides[1].name);
    Some(Parting { sentence, why, sides })
}
