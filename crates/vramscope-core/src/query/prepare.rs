//! Prepares a query for one device: looks texts up in the stacks once, and turns instants into events.

use rustc_hash::{FxHashMap, FxHashSet};

use super::needle::Needle;
use super::{Between, Moment, Query, Scope, Term, terms};
use crate::anatomy::roles::Role;
use crate::model::{Action, Frame, FrameId, PoolId, PoolKey, SizeClass, StackId, StackTable, StrId};
use crate::tables::{LifetimeId, NO_EVENT};

/// A term with its names resolved to ids of the recording.
pub(super) enum Test {
    Action(Vec<Action>),
    Size(Between),
    Block(Between),
    Address(u64),
    Addresses(Between),
    Event(Between),
    /// Per stack id: whether a frame matches. Also events and allocations whose notes match.
    Stacks(Vec<bool>, FxHashSet<u32>, FxHashSet<u32>),
    StackIs(StackId),
    /// Per stack id: whether it is below such a module. Also ranges of events.
    Module(Vec<bool>, Vec<(u32, u32)>),
    BornBefore,
    Role(Role),
    /// Ranges of events, ascending and disjoint.
    Ranges(Vec<(u32, u32)>),
    LiveAt(u32),
    Streams(Vec<bool>),
    /// For each pool id, whether it matches.
    Pools(Vec<bool>),
    Class(SizeClass),
    Born(Between),
    Gone(Between),
    IsGone(bool),
    AgeEvents(Between),
    AgeMicros(Between),
    Id(Between),
    /// Matches nothing, because the recording lacks the instant or has no times.
    Never,
}

/// A query prepared for one device.
pub(crate) struct Tests {
    any: Vec<Vec<(Test, bool)>>,
}

impl Tests {
    pub(crate) fn new(query: &Query, scope: &Scope<'_>) -> Self {
        let all = |terms: &Vec<(Term, bool)>| terms.iter().map(|(t, not)| (Test::new(t, scope), *not)).collect();
        Tests { any: query.any.iter().map(all).collect() }
    }

    #[inline]
    pub(crate) fn hold_for_lifetime(&self, scope: &Scope<'_>, id: LifetimeId) -> bool {
        self.any.is_empty() || self.any.iter().any(|all| all.iter().all(|(t, not)| t.holds_for_lifetime(scope, id) != *not))
    }

    pub(crate) fn hold_for_event(&self, scope: &Scope<'_>, event: u32) -> bool {
        self.any.is_empty() || self.any.iter().any(|all| all.iter().all(|(t, not)| t.holds_for_event(scope, event) != *not))
    }
}

impl Test {
    pub(super) fn new(term: &Term, scope: &Scope<'_>) -> Self {
        let (device, stacks) = (scope.device, &scope.recording.stacks);
        match term {
            Term::Action(actions) => Test::Action(actions.clone()),
            Term::Size(b) => Test::Size(*b),
            Term::Block(b) => Test::Block(*b),
            Term::Address(a) => Test::Address(*a),
            Term::Addresses(b) => Test::Addresses(*b),
            Term::Event(b) => Test::Event(*b),
            Term::Time(b) => events_of_time(scope, *b).map_or(Test::Never, Test::Event),
            Term::Stack(text) => Test::stacks(stacks_with(stacks, text)),
            Term::StackIs(number) => Test::StackIs(StackId(*number)),
            Term::Text(text) => {
                let notes = device.events.notes.iter().filter(|n| stacks.text(n.text).to_lowercase().contains(text));
                let events: FxHashSet<u32> = notes.map(|n| n.event).collect();
                let rows = events.iter().map(|&e| scope.tables.lifetimes.of_event(e).0).filter(|&r| r != NO_EVENT).collect();
                Test::Stacks(stacks_with(stacks, text), events, rows)
            }
            Term::Role(role) => Test::Role(*role),
            Term::During(text) => Test::Ranges(ranges(scope, |name| name.contains(text.as_str()))),
            Term::Step(numbers) => Test::Ranges(ranges_of_steps(scope, *numbers)),
            Term::File(text) => {
                let needle = Needle::of(text);
                Test::stacks(stacks_where(stacks, |f| needle.is_in(stacks.text(f.file))))
            }
            Term::Function(text) => {
                let needle = Needle::of(text);
                Test::stacks(stacks_where(stacks, |f| needle.is_in(stacks.text(f.name))))
            }
            Term::Module(text) => {
                // A dotted path has underscores where it names a file or a class.
                let plain = |name: &str| name.to_lowercase().replace(['.', '/', '\\'], "_");
                let wanted = plain(text);
                let is_module = |f: &Frame| {
                    let name = stacks.text(f.name);
                    let file = (name == "forward").then(|| stacks.text(f.file));
                    file.is_some_and(|f| plain(f).contains(&wanted))
                        || name.strip_prefix("nn.Module: ").is_some_and(|n| plain(n).contains(&wanted))
                };
                Test::Module(stacks_where(stacks, is_module), ranges(scope, |name| plain(name).contains(&wanted)))
            }
            Term::BornBefore => Test::BornBefore,
            Term::Born(moment) => events_of(scope, *moment).map_or(Test::Never, Test::Born),
            Term::Gone(moment) => events_of(scope, *moment).map_or(Test::Never, Test::Gone),
            Term::IsGone(is) => Test::IsGone(*is),
            Term::Age(Moment::Events(b)) => Test::AgeEvents(*b),
            Term::Age(Moment::Micros(b)) if device.events.has_time => Test::AgeMicros(*b),
            Term::Age(_) => Test::Never,
            Term::LiveAt(at) => scope.event_of(*at).map_or(Test::Never, Test::LiveAt),
            Term::Stream(wanted) => {
                let is_it = |(i, handle): (usize, &u64)| i as u64 == *wanted || handle == wanted;
                Test::Streams(device.streams.iter().enumerate().map(is_it).collect())
            }
            Term::PrivatePool(wanted) => pools(scope, |key| (key != (0, 0)) == *wanted),
            Term::Pool(wanted) => pools(scope, |key| key == *wanted),
            Term::Class(class) => Test::Class(*class),
            Term::Id(b) => Test::Id(*b),
        }
    }

    fn stacks(matching: Vec<bool>) -> Self {
        Test::Stacks(matching, FxHashSet::default(), FxHashSet::default())
    }

    pub(super) fn holds_for_lifetime(&self, scope: &Scope<'_>, id: LifetimeId) -> bool {
        let (device, lifetimes) = (scope.device, &scope.tables.lifetimes);
        let last = device.events.len() as u32;
        let of_life = || lifetimes.get(device, id);
        match self {
            Test::Size(b) => b.holds(lifetimes.requested(device, id)),
            Test::Block(b) => b.holds(lifetimes.block_size(id)),
            Test::Stacks(stacks, _, rows) => is_marked(stacks, lifetimes.stack(device, id).0) || rows.contains(&id.0),
            Test::StackIs(stack) => lifetimes.stack(device, id) == *stack,
            Test::Module(stacks, ranges) => {
                is_marked(stacks, lifetimes.stack(device, id).0) || born(scope, id).is_some_and(|e| is_inside(ranges, e))
            }
            Test::BornBefore => lifetimes.born(id) == NO_EVENT,
            Test::Role(role) => scope.roles.map_or(Role::Unknown, |c| c.of(id)) == *role,
            Test::LiveAt(event) => lifetimes.is_live_at(id, *event),
            Test::Ranges(ranges) => born(scope, id).is_some_and(|e| is_inside(ranges, e)),
            Test::Born(b) => born(scope, id).is_some_and(|e| b.holds(u64::from(e))),
            Test::Gone(b) => lifetimes.gone(id) != NO_EVENT && b.holds(u64::from(lifetimes.gone(id))),
            Test::IsGone(is) => (lifetimes.gone(id) != NO_EVENT) == *is,
            Test::AgeEvents(b) => {
                let (from, to) = life(scope, id, last);
                b.holds(u64::from(to - from))
            }
            Test::AgeMicros(b) => {
                let (from, to) = life(scope, id, last);
                let times = &device.events.time_us;
                let at = |e: u32| times.get(e as usize).or(times.last()).copied().unwrap_or(0);
                b.holds(at(to).saturating_sub(at(from)).max(0) as u64)
            }
            // A single number matches any event of the allocation's life; a range matches its `alloc` event.
            Test::Event(b) if b.least == b.greatest => {
                u32::try_from(b.least).is_ok_and(|event| event != NO_EVENT && lifetimes.of_event(event) == id)
            }
            Test::Event(b) => born(scope, id).is_some_and(|e| b.holds(u64::from(e))),
            Test::Address(address) => {
                let from = lifetimes.address(device, id);
                *address >= from && *address - from < lifetimes.block_size(id).max(1)
            }
            Test::Addresses(b) => b.holds(lifetimes.address(device, id)),
            Test::Streams(wanted) => of_life().is_some_and(|l| is_marked(wanted, l.stream.0.into())),
            Test::Pools(wanted) => of_life().is_some_and(|l| is_marked(wanted, l.pool.0.into())),
            Test::Class(class) => of_life().is_some_and(|l| l.class == *class),
            Test::Id(b) => b.holds(u64::from(id.0)),
            Test::Action(actions) => actions.iter().any(|a| match a {
                Action::Alloc => lifetimes.born(id) != NO_EVENT,
                Action::FreeRequested => lifetimes.free_requested(id) != NO_EVENT,
                Action::FreeCompleted => lifetimes.gone(id) != NO_EVENT,
                _ => false,
            }),
            Test::Never => false,
        }
    }

    pub(super) fn holds_for_event(&self, scope: &Scope<'_>, event: u32) -> bool {
        let (device, lifetimes) = (scope.device, &scope.tables.lifetimes);
        let events = &device.events;
        let i = event as usize;
        let is_oom = events.action[i] == Action::Oom;
        match self {
            Test::Action(actions) => actions.contains(&events.action[i]),
            Test::Size(size) => size.holds(events.size[i]),
            // The address column of an out-of-memory event holds the device's free bytes.
            Test::Address(_) | Test::Addresses(_) if is_oom => false,
            Test::Address(address) => {
                let from = events.address[i];
                *address == from || (*address > from && *address - from < held_bytes(scope, event))
            }
            Test::Addresses(range) => range.holds(events.address[i]),
            Test::Event(range) => range.holds(u64::from(event)),
            Test::Stacks(stacks, noted, _) => is_marked(stacks, events.stack[i].0) || noted.contains(&event),
            Test::StackIs(stack) => events.stack[i] == *stack,
            Test::Module(stacks, ranges) => is_marked(stacks, events.stack[i].0) || is_inside(ranges, event),
            Test::Ranges(ranges) => is_inside(ranges, event),
            Test::Streams(wanted) => is_marked(wanted, events.stream[i].0.into()),
            Test::Pools(wanted) if events.pool[i] != PoolId::UNKNOWN => is_marked(wanted, events.pool[i].0.into()),
            // All other terms are about the allocation.
            _ => {
                let id = lifetimes.of_event(event);
                id.is_some() && self.holds_for_lifetime(scope, id)
            }
        }
    }
}

/// The `alloc` event of an allocation; `None` when that was before the trace.
fn born(scope: &Scope<'_>, id: LifetimeId) -> Option<u32> {
    Some(scope.tables.lifetimes.born(id)).filter(|&e| e != NO_EVENT)
}

/// First event of a lifetime and the event after its last, limited to the trace.
fn life(scope: &Scope<'_>, id: LifetimeId, last: u32) -> (u32, u32) {
    let from = born(scope, id).unwrap_or(0);
    (from, scope.tables.lifetimes.gone(id).min(last).max(from))
}

fn is_marked(marks: &[bool], id: u32) -> bool {
    marks.get(id as usize).copied().unwrap_or(false)
}

fn is_inside(ranges: &[(u32, u32)], event: u32) -> bool {
    let at = ranges.partition_point(|r| r.0 <= event);
    at.checked_sub(1).is_some_and(|at| event < ranges[at].1)
}

/// The events whose time since the first event lies in a range; `None` without times.
fn events_of_time(scope: &Scope<'_>, range: Between) -> Option<Between> {
    let events = &scope.device.events;
    let first = *events.time_us.first().filter(|_| events.has_time)?;
    let since = |t: i64| u64::try_from(t - first).unwrap_or(0);
    let from = events.time_us.partition_point(|&t| since(t) < range.least) as u64;
    let to = events.time_us.partition_point(|&t| since(t) <= range.greatest) as u64;
    Some(if from < to { Between { least: from, greatest: to - 1 } } else { Between { least: 1, greatest: 0 } })
}

fn events_of(scope: &Scope<'_>, moment: Moment) -> Option<Between> {
    match moment {
        Moment::Events(b) => Some(b),
        Moment::Micros(b) => events_of_time(scope, b),
        Moment::At(operator, at) => scope.event_of(at).map(|e| terms::from_operator(operator, u64::from(e))),
    }
}

fn pools(scope: &Scope<'_>, is_wanted: impl Fn(PoolKey) -> bool) -> Test {
    Test::Pools(scope.device.pools.iter().map(|&key| is_wanted(key)).collect())
}

/// Bytes that an event concerns: the whole block of an allocation, otherwise the size column.
fn held_bytes(scope: &Scope<'_>, event: u32) -> u64 {
    let id = scope.tables.lifetimes.of_event(event);
    let block = if id.is_some() { scope.tables.lifetimes.block_size(id) } else { 0 };
    block.max(scope.device.events.size[event as usize])
}

/// For each stack, whether a frame's file or function matches the text. O(frames of all stacks).
fn stacks_with(stacks: &StackTable, text: &str) -> Vec<bool> {
    let mut strings: FxHashMap<StrId, bool> = FxHashMap::default();
    let needle = Needle::of(text);
    let mut has = |id: StrId| *strings.entry(id).or_insert_with(|| needle.is_in(stacks.text(id)));
    // `train.py:71` means a file and a line.
    let place = text.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse::<u32>().ok()?)));
    stacks_where(stacks, |f| {
        has(f.file)
            || has(f.name)
            || place.is_some_and(|(file, line)| f.line == line && stacks.text(f.file).to_lowercase().ends_with(file))
    })
}

/// For each stack, whether a frame passes. Tests each distinct frame once.
fn stacks_where(stacks: &StackTable, mut passes: impl FnMut(&Frame) -> bool) -> Vec<bool> {
    let matching: Vec<bool> =
        (0..stacks.frame_count()).map(|i| stacks.frame(FrameId(i as u32)).is_some_and(|f| passes(&f))).collect();
    (0..stacks.len()).map(|i| stacks.frames(StackId(i as u32)).iter().any(|f| is_marked(&matching, f.0))).collect()
}

/// Ranges of events inside the steps with these numbers.
pub(super) fn ranges_of_steps(scope: &Scope<'_>, numbers: Between) -> Vec<(u32, u32)> {
    use crate::anatomy::steps::{StepSource, kind};
    let source = scope.steps.and_then(|s| match &s.source {
        StepSource::Annotation(name) | StepSource::Range(name) => Some(name.to_lowercase()),
        _ => None,
    });
    // `layer_3` ends with a number too, but is no step.
    let is_of_step = |name: &str| {
        let kind = kind(name).to_lowercase();
        Some(&kind) == source.as_ref() || ["step", "iter", "batch"].iter().any(|word| kind.contains(word))
    };
    let named = ranges(scope, |name| trailing_number(name).is_some_and(|n| numbers.holds(n)) && is_of_step(name));
    if !named.is_empty() {
        return named;
    }
    let Some(steps) = scope.steps.filter(|s| !s.is_empty()) else { return Vec::new() };
    // Users count steps from 1. The last step ends where the next one begins.
    let (Ok(first), last) = (usize::try_from(numbers.least), usize::try_from(numbers.greatest).unwrap_or(usize::MAX)) else {
        return Vec::new();
    };
    match (steps.bounds.get(first.saturating_sub(1)), steps.bounds.get(last.min(steps.len()))) {
        (Some(&from), Some(&to)) if from < to => vec![(from, to)],
        _ => Vec::new(),
    }
}

/// Events inside the annotations whose lower-case name passes, as ascending disjoint ranges.
fn ranges(scope: &Scope<'_>, passes: impl Fn(&str) -> bool) -> Vec<(u32, u32)> {
    let (device, stacks) = (scope.device, &scope.recording.stacks);
    let times = &device.events.time_us;
    let mut found: Vec<(u32, u32)> = Vec::new();
    if device.events.has_time {
        for a in device.annotations.iter().filter(|a| passes(&stacks.text(a.name).to_lowercase())) {
            let from = times.partition_point(|&t| t < a.start_us) as u32;
            let to = a.end_us.map_or(times.len(), |end| times.partition_point(|&t| t <= end)) as u32;
            match found.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => found.push((from, to)),
            }
        }
    }
    found
}

/// The number at the end of a name: 3 for `ProfilerStep#3`.
pub(super) fn trailing_number(name: &str) -> Option<u64> {
    let digits = name.len() - name.bytes().rev().take_while(u8::is_ascii_digit).count();
    name[digits..].parse().ok()
}
