//! [`Phases`]: divides the allocations into runs, each in one part of the program.

use super::copies;
use super::frame::{ATTENDS, Bits, CACHE, CALL, CAPTURES, DECODES, EVALUATES, FORWARD, GENERATES, PREFILLS};
use super::sense::{self, Part, Sense};
use crate::formats::kineto::OPERATOR_FILE;
use crate::model::{DeviceRecording, FrameId, StackId, StackTable};
use crate::tables::{DeviceTables, LifetimeId, NO_EVENT};

/// Consecutive allocations in the same part of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The part that the frames of its stacks show.
    pub part: Part,
    /// The phase of the program.
    pub phase: Phase,
    /// Its rows in the lifetime table; the end is exclusive.
    pub rows: (u32, u32),
    /// Its events; the end is exclusive. Frees after its last allocation are included, except at the program's exit.
    pub events: (u32, u32),
    /// True if a CUDA graph was captured in it.
    pub(super) captures: bool,
    /// The bits of all its stacks.
    pub(super) bits: Bits,
}

impl Run {
    pub(super) fn ids(&self) -> impl Iterator<Item = LifetimeId> + use<> {
        (self.rows.0..self.rows.1).map(LifetimeId)
    }
}

/// What the program was doing, for sentences and lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Phase {
    /// A model is built or loaded.
    Load,
    /// A forward pass, with its loss.
    Forward,
    /// A backward pass, including recomputation by checkpointing.
    Backward,
    /// An optimizer step, including gradient clipping before it.
    Optimizer,
    /// A forward pass of an evaluation.
    Evaluation,
    /// A loop that generates tokens or images.
    Generation,
    /// A CUDA graph is captured.
    Capture,
    /// None of these: code between the passes.
    Between,
}

impl Phase {
    /// Its name in sentences, lanes and JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// As a clause: "in the backward pass".
    pub fn in_words(self) -> &'static str {
        match self {
            Phase::Load => "while the model is built or loaded",
            Phase::Forward => "in the forward pass",
            Phase::Backward => "in the backward pass",
            Phase::Optimizer => "in optimizer.step()",
            Phase::Evaluation => "in an evaluation",
            Phase::Generation => "while it generates",
            Phase::Capture => "while a CUDA graph is captured",
            Phase::Between => "between the passes",
        }
    }
}

/// The phases of a device, and what each of its stacks shows.
#[derive(Debug, Default)]
pub struct Phases {
    /// Runs in order of time; together they cover every allocation of the trace.
    pub runs: Vec<Run>,
    senses: Vec<Sense>,
    without_stack: Sense,
    /// The bits of every frame.
    pub(super) bits: Vec<Bits>,
    /// The line of every frame.
    lines: Vec<u32>,
    /// Details of generation: from this event on it is `prefill` or `decode`; `None` if the stacks name neither.
    details: Vec<(u32, Option<&'static str>)>,
    /// The first row that the trace allocates.
    pub(super) first_row: u32,
    /// True if the trace has call stacks.
    pub(super) has_stacks: bool,
}

impl Phases {
    /// Reads the phases of a device. O(frames of all stacks + lifetimes).
    pub(super) fn read(stacks: &StackTable, device: &DeviceRecording, tables: &DeviceTables) -> Self {
        let lifetimes = &tables.lifetimes;
        let (first, end) = (lifetimes.initial_count() as u32, lifetimes.len() as u32);
        let has_stacks = (first..end).any(|row| lifetimes.stack(device, LifetimeId(row)).is_some());
        let (senses, bits) = sense::read(stacks);
        // If no stack belongs to a pass, a missing one does not mean backward. A profiler trace names backward operators, too.
        let has_passes = senses.iter().any(|s| matches!(s.part, Part::Forward | Part::Backward | Part::Optimizer));
        let is_operator = |i: usize| stacks.frame(FrameId(i as u32)).is_some_and(|f| stacks.text(f.file) == OPERATOR_FILE);
        let mut frames = 0..stacks.frame_count();
        let without_stack = sense::without_stack(has_stacks && has_passes && !frames.clone().any(is_operator));
        let has_operators_only = !frames.is_empty() && frames.all(is_operator);
        let line = |i: usize| stacks.frame(FrameId(i as u32)).map_or(0, |f| f.line);
        let lines = (0..stacks.frame_count()).map(line).collect();
        let mut phases = Phases { senses, bits, lines, without_stack, first_row: first, has_stacks, ..Phases::default() };
        let mut parts: Vec<Part> = (first..end).map(|row| phases.of_row(device, tables, row).part).collect();
        if let Some(pass) = parts.iter().position(|&part| part == Part::Forward) {
            // Once the program is working, its own constructors make things to work on, such as a server's requests, not models.
            for (row, part) in (first..end).zip(&mut parts).skip(pass) {
                if *part == Part::Load && !phases.of_row(device, tables, row).makes_weights {
                    *part = Part::Unknown;
                }
            }
        }
        // If stacks have only operators, only those of layers mark the pass that all of them belong to.
        let few = if has_operators_only { MOST_BETWEEN_LAYERS } else { A_FEW };
        settle(&mut parts, tables, first, few);
        // A captured graph has its own pool; the warm-up passes before the capture do not use it.
        let is_private = |row: u32| {
            let pool = lifetimes.get(device, LifetimeId(row)).map(|life| life.pool);
            pool.and_then(|pool| device.pool_key(pool)).is_some_and(|key| key != (0, 0))
        };
        let has_captures = phases.senses.iter().any(|s| s.bits & CAPTURES != 0);
        let has_pools = has_captures && (first..end).any(is_private);
        let captures = |row: u32, bits: Bits| if has_pools { is_private(row) } else { bits & CAPTURES != 0 };
        let events = device.events.len() as u32;
        for (row, part) in (first..end).zip(parts) {
            let (bits, born) = (phases.of_row(device, tables, row).bits, lifetimes.born(LifetimeId(row)));
            let captures = captures(row, bits);
            phases.add_detail(born, bits);
            let goes_on = |run: &Run| {
                let is_other = |bit: Bits| run.bits & bit != 0 && bits & (PREFILLS | DECODES) & !bit != 0;
                // A validation loop between two steps is not the forward pass of the next one.
                let evaluates = |bits: Bits| matches!(part, Part::Forward | Part::Unknown) && bits & EVALUATES != 0;
                run.part == part
                    && evaluates(run.bits) == evaluates(bits)
                    && !(has_pools && run.captures != captures)
                    && !(bits & GENERATES != 0 && (is_other(PREFILLS) || is_other(DECODES)))
            };
            match phases.runs.last_mut() {
                Some(run) if goes_on(run) => {
                    run.rows.1 = row + 1;
                    run.bits |= bits;
                    run.captures |= captures;
                }
                last => {
                    if let Some(run) = last {
                        run.events.1 = born;
                    }
                    let from = if phases.runs.is_empty() { 0 } else { born };
                    let (rows, events) = ((row, row + 1), (from, events));
                    phases.runs.push(Run { part, phase: Phase::Between, rows, events, captures, bits });
                }
            }
        }
        phases.leave_out_the_exit(tables);
        let of_cache = (first..end).filter(|&row| phases.of_row(device, tables, row).bits & CACHE != 0).map(LifetimeId);
        if !phases.has(Part::Backward) && copies::grows(device, tables, of_cache) {
            for run in phases.runs.iter_mut().filter(|run| run.part == Part::Forward && run.bits & CACHE != 0) {
                run.bits |= GENERATES;
            }
        }
        for run in 0..phases.runs.len() {
            phases.runs[run].phase = phases.decide(run);
        }
        phases.join_evaluations();
        phases
    }

    /// Counts work between and after an evaluation's passes as part of it. Work before the first may be a training step's input.
    fn join_evaluations(&mut self) {
        for at in 1..self.runs.len() {
            let run = self.runs[at];
            let evaluates = run.part == Part::Unknown && run.bits & EVALUATES != 0;
            if evaluates && self.runs[at - 1].phase == Phase::Evaluation {
                self.runs[at].phase = Phase::Evaluation;
            }
        }
    }

    /// Ends the last run where, after its allocations, a block older than the last forward pass is freed: the program exits.
    fn leave_out_the_exit(&mut self, tables: &DeviceTables) {
        let pass = self.runs.iter().rfind(|run| run.part == Part::Forward).map(|run| run.rows.0);
        let Some(run) = self.runs.last_mut() else { return };
        let lifetimes = &tables.lifetimes;
        let last = lifetimes.born(LifetimeId(run.rows.1 - 1));
        let older = (0..pass.unwrap_or(run.rows.0)).map(|row| lifetimes.gone(LifetimeId(row)));
        if let Some(exit) = older.filter(|&gone| gone != NO_EVENT && gone > last).min() {
            run.events.1 = exit;
        }
    }

    /// Each stretch of one phase with its events (end exclusive), without those whose phase no stack shows. O(runs).
    pub fn stretches(&self) -> impl Iterator<Item = (Phase, (u32, u32))> {
        let known = self.runs.iter().filter(|r| self.has_stacks && r.phase != Phase::Between && r.events.0 < r.events.1);
        let mut known = known.map(|r| (r.phase, r.events)).peekable();
        std::iter::from_fn(move || {
            let (phase, (from, mut to)) = known.next()?;
            while let Some((_, next)) = known.next_if(|(other, next)| *other == phase && next.0 == to) {
                to = next.1;
            }
            Some((phase, (from, to)))
        })
    }

    pub(super) fn line(&self, frame: FrameId) -> u32 {
        self.lines.get(frame.0 as usize).copied().unwrap_or(0)
    }

    pub(super) fn sense(&self, stack: StackId) -> &Sense {
        self.senses.get(stack.0 as usize).unwrap_or(&self.without_stack)
    }

    pub(super) fn of_row(&self, device: &DeviceRecording, tables: &DeviceTables, row: u32) -> &Sense {
        self.sense(tables.lifetimes.stack(device, LifetimeId(row)))
    }

    /// The blocks made in events `from..to`. O(log lifetimes).
    pub(super) fn made_within(&self, tables: &DeviceTables, from: u32, to: u32) -> impl Iterator<Item = LifetimeId> + use<> {
        let before = |event: u32| event.checked_sub(1).map_or(self.first_row, |e| tables.lifetimes.born_by(e));
        (before(from)..before(to)).map(LifetimeId)
    }

    /// The run that holds an event. O(log runs).
    pub fn run_at(&self, event: u32) -> Option<usize> {
        let at = self.runs.partition_point(|r| r.events.0 <= event).checked_sub(1)?;
        (event < self.runs[at].events.1).then_some(at)
    }

    /// True if the stack is inside the capture of a CUDA graph.
    pub fn captures(&self, stack: StackId) -> bool {
        self.sense(stack).bits & CAPTURES != 0
    }

    /// True if the stack is inside attention that is written out in Python.
    pub fn is_attention(&self, stack: StackId) -> bool {
        self.sense(stack).bits & ATTENDS != 0
    }

    /// The line that calls the model in whose pass the stack allocates; `None` outside modules.
    pub fn called_at(&self, stack: StackId) -> Option<FrameId> {
        self.sense(stack).site
    }

    /// True if the stack contains a module's call or a function called `forward`.
    pub fn is_in_module(&self, stack: StackId) -> bool {
        self.sense(stack).bits & (CALL | FORWARD) != 0
    }

    /// True if some run belongs to this part.
    pub(super) fn has(&self, part: Part) -> bool {
        self.runs.iter().any(|r| r.part == part)
    }

    /// The phase of a run, from its own stacks and the part that follows.
    fn decide(&self, run: usize) -> Phase {
        let r = &self.runs[run];
        let trains = self.runs.get(run + 1..).and_then(|rest| rest.iter().find(|r| r.part != Part::Unknown));
        let generates = |at: Option<usize>| {
            let of = at.and_then(|at| self.runs.get(at));
            of.is_some_and(|run| run.part == Part::Forward && run.bits & GENERATES != 0)
        };
        let before = run.checked_sub(1);
        let leads_to_backward = trains.is_some_and(|r| r.part == Part::Backward);
        match r.part {
            _ if r.captures => Phase::Capture,
            Part::Load => Phase::Load,
            Part::Forward if r.bits & GENERATES != 0 => Phase::Generation,
            Part::Forward if r.bits & EVALUATES != 0 && !leads_to_backward => Phase::Evaluation,
            Part::Forward => Phase::Forward,
            Part::Backward => Phase::Backward,
            Part::Optimizer => Phase::Optimizer,
            // Work of a server between two requests belongs to generation.
            Part::Unknown if generates(before) && generates(run.checked_add(1)) => Phase::Generation,
            Part::Unknown => Phase::Between,
        }
    }

    /// The detail of generation at an event: `prefill` or `decode`; `None` if the stacks name neither or both. O(log runs).
    pub fn detail_at(&self, event: u32) -> Option<&'static str> {
        let generates = self.runs[self.run_at(event)?].phase == Phase::Generation;
        let at = self.details.partition_point(|(from, _)| *from <= event).checked_sub(1)?;
        self.details[at].1.filter(|_| generates)
    }

    /// Notes what an allocation with these bits says of generation.
    fn add_detail(&mut self, born: u32, bits: Bits) {
        let detail = match bits & (PREFILLS | DECODES) {
            PREFILLS => Some("prefill"),
            DECODES => Some("decode"),
            _ => None,
        };
        if bits != 0 && self.details.last().and_then(|(_, last)| *last) != detail {
            self.details.push((born, detail));
        }
    }

    /// True if the trace has call stacks.
    pub fn has_stacks(&self) -> bool {
        self.has_stacks
    }

    /// The phase in which an allocation was made; `None` if it is older than the trace or no stack shows the phase. O(log runs).
    pub fn of(&self, id: LifetimeId) -> Option<Phase> {
        let at = self.runs.partition_point(|r| r.rows.0 <= id.0).checked_sub(1)?;
        let run = self.runs[at];
        (id.0 < run.rows.1 && self.has_stacks && run.phase != Phase::Between).then_some(run.phase)
    }

    /// The phase at an event; `None` if no stack shows it.
    pub fn at(&self, event: u32) -> Option<Phase> {
        let phase = self.runs[self.run_at(event)?].phase;
        (self.has_stacks && phase != Phase::Between).then_some(phase)
    }
}

impl Phases {
    /// For an event outside all passes: the forward pass or evaluation whose result the program is working on, for example
    /// computing a loss without a graph. `None` inside a pass, or if that work is larger than the pass was. O(log runs).
    pub fn right_behind(&self, event: u32) -> Option<Phase> {
        let at = self.run_at(event).filter(|&at| self.has_stacks && self.runs[at].phase == Phase::Between)?;
        let before = self.runs.get(at.checked_sub(1)?)?;
        let rows = |run: &Run| run.rows.1.saturating_sub(run.rows.0);
        let is_pass = matches!(before.phase, Phase::Forward | Phase::Evaluation);
        (is_pass && rows(&self.runs[at]) < rows(before)).then_some(before.phase)
    }
}

/// The number of consecutive allocations before `at` that belong to the same part.
fn stretch_before(parts: &[Part], at: usize) -> usize {
    let before = parts.get(..at).unwrap_or_default();
    before.iter().rev().take_while(|part| Some(*part) == before.last()).count()
}

/// Up to this many allocations are assigned to the part around them.
const A_FEW: usize = 2;
/// The same limit between two layers, if the stacks name only operators.
const MOST_BETWEEN_LAYERS: usize = 24;

/// Assigns allocations whose frames show no part to the part around them: a few between two stretches of forward, the loss before
/// backward, and blocks that a function without modules makes and the backward pass then frees.
fn settle(parts: &mut [Part], tables: &DeviceTables, first: u32, few: usize) {
    const MOST_OF_A_FUNCTION: usize = 4;
    let id = |at: usize| LifetimeId(first + at as u32);
    let mut at = 0;
    while at < parts.len() {
        if parts[at] != Part::Unknown {
            at += 1;
            continue;
        }
        let end = at + parts[at..].iter().take_while(|&&p| p == Part::Unknown).count();
        let before = at.checked_sub(1).map_or(Part::Unknown, |i| parts[i]);
        let after = parts.get(end).copied().unwrap_or_default();
        // Blocks that the backward pass frees, and everything after the first of them.
        let feeds = |i: usize| {
            let gone = tables.lifetimes.gone(id(i));
            gone != NO_EVENT && gone > tables.lifetimes.born(id(end))
        };
        let fed = if after == Part::Backward { (at..end).find(|&i| feeds(i)).unwrap_or(end) } else { end };
        let feeds_backward = || {
            let kept = (fed..end).filter(|&i| feeds(i)).count();
            end - fed >= MOST_OF_A_FUNCTION && kept * 4 >= end - fed
        };
        let part = match (before, after) {
            (Part::Forward, Part::Forward) if end - at <= few => Part::Forward,
            (Part::Forward, Part::Forward) => Part::Unknown,
            (Part::Forward, Part::Backward) => Part::Forward,
            (_, Part::Backward) if feeds_backward() => {
                parts[fed..end].fill(Part::Forward);
                Part::Unknown
            }
            // A gap longer than the stretch before it is something else, such as a server between two loads.
            (a, b) if a == b && (end - at <= A_FEW || end - at <= stretch_before(parts, at)) => a,
            _ => Part::Unknown,
        };
        if part != Part::Unknown {
            parts[at..end].fill(part);
        }
        at = end;
    }
}
