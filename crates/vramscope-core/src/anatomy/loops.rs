//! Finds the steps of the program's own loop from stacks: optimizer steps, backward passes, calls of the outermost module. Layers
//! of a network repeat within a step; they are lines inside one call.

use rustc_hash::{FxHashMap, FxHashSet};

use super::frame::{Bits, CACHE, CALL, CAPTURES, CONTAINER, FORWARD, GENERATES, PYTHON};
use super::phases::{Phases, Run};
use super::requests::{by_period, is_part_of_a_pass};
use super::sense::Part;
use crate::anatomy::steps::{StepSource, Steps};
use crate::model::{DeviceRecording, FrameId, StackId, StackTable};
use crate::tables::{DeviceTables, LifetimeId, NO_EVENT};

/// A loop counts only if it makes at least 1/n of the allocations.
const LEAST_SHARE: usize = 20;

/// The steps of a device; empty if none can be recognised. O(lifetimes).
pub(super) fn find(stacks: &StackTable, device: &DeviceRecording, tables: &DeviceTables, phases: &Phases) -> Steps {
    if !phases.has_stacks {
        return by_period(device, tables, phases);
    }
    let events = device.events.len() as u32;
    let cycles = cycles(device, tables, phases);
    let full: Vec<&Cycle> = cycles.iter().filter(|c| c.backward.is_some()).collect();
    let fresh = with_fresh_gradients(&full);
    if let Some((site, ends)) = by_optimizer(device, tables, phases) {
        // Some optimizers allocate only in their first step. New gradients then mark the other steps; gradients in buckets are
        // never new. Several passes before that first step are its micro-batches.
        if ends.len() == 1 && fresh.len() > 1 {
            return of_cycles(&fresh, events);
        }
        let is_first = full.get(1).is_some_and(|second| ends.iter().any(|&end| end <= second.start));
        if ends.len() == 1 && fresh.is_empty() && is_first {
            return of_cycles(&full, events);
        }
        return of_ends(&ends, phases, StepSource::Optimizer(site.map_or_else(String::new, |f| place(stacks, f))));
    }
    // With higher derivatives, each pass is part of a larger one, which keeps its blocks.
    if full.len() > 2 && is_part_of_a_pass(device, tables, phases.made_within(tables, full[1].start, full[full.len() - 1].start))
    {
        return Steps::default();
    }
    if !full.is_empty() {
        let full = with_own_graphs(&full, device, tables, phases);
        let fresh = with_fresh_gradients(&full);
        // If gradients are set to zero in place, they are made only once, and nothing distinguishes steps from micro-batches.
        return of_cycles(if fresh.len() * 2 >= full.len() { &fresh } else { &full }, events);
    }
    match by_call(stacks, device, tables, phases) {
        Some((steps, Calls::OfModel)) => steps,
        // A loop may call a layer several times per iteration; the repetition of all requests then shows the loop itself.
        Some((steps, Calls::OfLayer)) => Some(by_period(device, tables, phases)).filter(|s| !s.is_empty()).unwrap_or(steps),
        None => by_period(device, tables, phases),
    }
}

enum Calls {
    OfModel,
    /// A single layer of PyTorch, as in a function that uses layers but is not a module.
    OfLayer,
}

/// Corrects optimizer steps by their backward passes. A `GradScaler` skips the optimizer when gradients overflow: if nearly all
/// steps have one backward pass, a step with several is divided. Events after the last optimizer call are a step only if they
/// include a backward pass.
pub(super) fn by_passes(
    stacks: &StackTable,
    mut steps: Steps,
    device: &DeviceRecording,
    tables: &DeviceTables,
    phases: &Phases,
) -> Steps {
    /// At least this many steps with exactly one backward pass show that a step has one.
    const FEWEST_REGULAR: usize = 3;
    /// At most 1/n of the steps, or one, may differ.
    const RARE: usize = 4;
    let cycles: Vec<Cycle> = cycles(device, tables, phases).into_iter().filter(|c| c.backward.is_some()).collect();
    if steps_in_backward(&steps, tables, phases) {
        let ends = cycles.iter().skip(1).map(|c| c.start).chain([device.events.len() as u32]);
        let last = |end: u32| steps.bounds[..steps.bounds.partition_point(|&bound| bound <= end)].last().copied();
        steps.bounds = steps.bounds.first().copied().into_iter().chain(ends.filter_map(last)).collect();
        steps.bounds.dedup();
        steps.marked = 0..steps.len();
        return steps;
    }
    let unscaled = by_scaler(stacks, device, tables, phases);
    if unscaled.len() > steps.len() && steps.continued_by.is_none() {
        let found = of_ends(&unscaled, phases, steps.source.clone());
        return Steps { marked: 0..found.len(), confidence: steps.confidence, optimizer: steps.optimizer, ..found };
    }
    let passes = |w: &[u32]| {
        let begins = |event: u32| cycles.partition_point(|c| c.backward.is_some_and(|backward| backward < event));
        begins(w[0])..begins(w[1])
    };
    let of_steps: Vec<_> = steps.bounds.windows(2).map(passes).collect();
    let irregular = of_steps.iter().filter(|passes| passes.len() != 1).count();
    let is_regular = || {
        let own = with_own_graphs(&cycles.iter().collect::<Vec<_>>(), device, tables, phases);
        let is_in = |c: &&&Cycle, w: &[u32]| c.backward.is_some_and(|backward| (w[0]..w[1]).contains(&backward));
        steps.bounds.windows(2).all(|w| own.iter().filter(|c| is_in(c, w)).count() == 1)
    };
    if irregular == 0
        || is_regular()
        || irregular > (steps.len() / RARE).max(1)
        || steps.len() < FEWEST_REGULAR + irregular
        || steps.continued_by.is_some()
    {
        return steps;
    }
    if of_steps.last().is_some_and(|passes| passes.is_empty()) {
        steps.bounds.pop();
    }
    for passes in of_steps {
        steps.bounds.extend(cycles[passes].iter().skip(1).map(|c| c.start));
    }
    steps.bounds.sort_unstable();
    steps.bounds.dedup();
    steps.marked = 0..steps.len();
    steps
}

/// Where each optimizer step ends or would end: a `GradScaler` unscales all gradients, but skips the optimizer if they overflow.
fn by_scaler(stacks: &StackTable, device: &DeviceRecording, tables: &DeviceTables, phases: &Phases) -> Vec<u32> {
    let is_scaler = |f: &FrameId| stacks.frame(*f).is_some_and(|f| stacks.text(f.file).ends_with("grad_scaler.py"));
    let unscales = |row: u32| {
        phases.of_row(device, tables, row).clips
            && stacks.frames(tables.lifetimes.stack(device, LifetimeId(row))).iter().any(is_scaler)
    };
    let runs = phases.runs.iter().filter(|run| run.part == Part::Optimizer);
    runs.filter(|run| (run.rows.0..run.rows.1).any(unscales)).map(|run| run.events.1).collect()
}

/// True if most optimizer steps end within a backward pass: each parameter has its own optimizer in a hook.
fn steps_in_backward(steps: &Steps, tables: &DeviceTables, phases: &Phases) -> bool {
    let is_within = |end: &&u32| {
        let run = phases.run_at(**end).map(|at| &phases.runs[at]);
        run.is_some_and(|r| r.part == Part::Backward && **end < tables.lifetimes.born(LifetimeId(r.rows.1 - 1)))
    };
    steps.bounds.iter().skip(1).filter(is_within).count() * 2 > steps.len()
}

/// A forward pass and the backward pass that follows.
struct Cycle {
    start: u32,
    /// The event at which the backward pass begins.
    backward: Option<u32>,
    /// Bytes that are still held after the backward pass.
    kept: u64,
    /// True if it captures a CUDA graph, or warms up for a capture.
    is_of_capture: bool,
}

impl Cycle {
    fn of(run: &Run) -> Self {
        Cycle { start: run.events.0, backward: None, kept: 0, is_of_capture: run.bits & CAPTURES != 0 }
    }
}

/// With fewer forward and backward passes than this outside of captures, it is unclear which of them form the loop.
const LEAST_OUTSIDE: usize = 3;

fn cycles(device: &DeviceRecording, tables: &DeviceTables, phases: &Phases) -> Vec<Cycle> {
    let mut cycles: Vec<Cycle> = Vec::new();
    for run in &phases.runs {
        let is_open = cycles.last().is_some_and(|c| c.backward.is_none());
        match run.part {
            Part::Forward if !is_open => cycles.push(Cycle::of(run)),
            Part::Backward => {
                if cycles.is_empty() {
                    cycles.push(Cycle::of(run));
                }
                if let Some(cycle) = cycles.last_mut() {
                    cycle.backward.get_or_insert(run.events.0);
                    cycle.kept += kept_by(device, tables, run);
                }
            }
            _ => {}
        }
    }
    // Passes that capture a graph or warm up for it are no steps, unless all passes are of that kind.
    let is_step = |c: &&Cycle| c.backward.is_some() && !c.is_of_capture;
    if cycles.iter().filter(is_step).count() >= LEAST_OUTSIDE {
        cycles.retain(|c| !c.is_of_capture);
    }
    cycles
}

/// Bytes made in a run that live past the run's last allocation.
fn kept_by(device: &DeviceRecording, tables: &DeviceTables, run: &Run) -> u64 {
    let lifetimes = &tables.lifetimes;
    let last = lifetimes.born(LifetimeId(run.rows.1 - 1));
    run.ids().filter(|&id| lifetimes.gone(id) > last).map(|id| lifetimes.requested(device, id)).sum()
}

/// The cycles whose backward pass makes new gradients, as it does after `zero_grad`.
fn with_fresh_gradients<'a>(full: &[&'a Cycle]) -> Vec<&'a Cycle> {
    let most = full.iter().map(|c| c.kept).max().unwrap_or(0);
    full.iter().copied().filter(|c| c.kept > 0 && c.kept.saturating_mul(2) >= most).collect()
}

/// The cycles that make their own graph. Hessian-vector products go several times through one graph that `retain_graph` keeps:
/// most of it is still held, and it is larger than what the cycle itself computes.
fn with_own_graphs<'a>(full: &[&'a Cycle], device: &DeviceRecording, tables: &DeviceTables, phases: &Phases) -> Vec<&'a Cycle> {
    let lifetimes = &tables.lifetimes;
    let forward = |c: &Cycle| phases.made_within(tables, c.start, c.backward.unwrap_or(c.start));
    // A graph that is never freed is a leak and says nothing about the next cycle.
    let live_at = |c: &Cycle, event: u32| -> u64 {
        let is_live = |id: &LifetimeId| lifetimes.gone(*id) > event && lifetimes.gone(*id) != NO_EVENT;
        forward(c).filter(is_live).map(|id| lifetimes.requested(device, id)).sum()
    };
    let mut own: Vec<&Cycle> = Vec::new();
    for &cycle in full {
        let backward = cycle.backward.unwrap_or(cycle.start);
        let is_kept = own.last().is_some_and(|graph| {
            let made = live_at(graph, graph.backward.unwrap_or(graph.start));
            let kept = live_at(graph, backward);
            kept.saturating_mul(2) >= made && kept > live_at(cycle, backward).saturating_mul(2)
        });
        if !is_kept {
            own.push(cycle);
        }
    }
    own
}

fn of_cycles(cycles: &[&Cycle], events: u32) -> Steps {
    let bounds = cycles.iter().map(|c| c.start).chain([events]).collect();
    let has_forward = cycles.iter().any(|c| c.backward.is_some_and(|backward| backward > c.start));
    Steps::of_bounds(bounds, if has_forward { StepSource::Backward } else { StepSource::BackwardAlone })
}

fn place(stacks: &StackTable, frame: FrameId) -> String {
    stacks.frame(frame).map_or_else(String::new, |f| stacks.location(f))
}

/// Steps that end where an optimizer run ends; the first begins with the first pass.
fn of_ends(ends: &[u32], phases: &Phases, source: StepSource) -> Steps {
    let works = |r: &&Run| matches!(r.part, Part::Forward | Part::Backward | Part::Optimizer);
    let first = phases.runs.iter().find(works).map_or(0, |r| r.events.0);
    Steps::of_bounds([first].into_iter().chain(ends.iter().copied()).collect(), source)
}

/// Number of places that call an optimizer's step.
pub(super) fn optimizers(device: &DeviceRecording, tables: &DeviceTables, phases: &Phases) -> usize {
    let runs = phases.runs.iter().filter(|run| run.part == Part::Optimizer);
    let senses = runs.flat_map(|run| run.rows.0..run.rows.1).map(|row| phases.of_row(device, tables, row));
    senses.filter(|s| s.part == Part::Optimizer && !s.clips).filter_map(|s| s.stepper).collect::<FxHashSet<_>>().len()
}

/// The ends of the steps of the optimizer that is called most often; a program may have several optimizers.
fn by_optimizer(device: &DeviceRecording, tables: &DeviceTables, phases: &Phases) -> Option<(Option<FrameId>, Vec<u32>)> {
    #[derive(Default)]
    struct Site {
        ends: Vec<u32>,
        allocations: usize,
        forwards: Option<u32>,
    }
    let mut sites: FxHashMap<Option<FrameId>, Site> = FxHashMap::default();
    let (mut forwards, mut all) = (0, 0);
    for run in &phases.runs {
        forwards += u32::from(run.part == Part::Forward);
        if run.part != Part::Optimizer {
            continue;
        }
        for row in run.rows.0..run.rows.1 {
            let sense = phases.of_row(device, tables, row);
            if sense.part != Part::Optimizer {
                continue;
            }
            all += 1;
            let site = sites.entry(sense.stepper).or_default();
            site.allocations += 1;
            // An optimizer in a backward hook runs many times between two forward passes, but that is one step.
            if site.forwards == Some(forwards) {
                site.ends.pop();
            }
            site.forwards = Some(forwards);
            site.ends.push(run.events.1);
        }
    }
    let best = sites.into_iter().filter(|(_, s)| s.allocations * LEAST_SHARE >= all);
    let best = best.max_by_key(|(frame, s)| (s.ends.len(), s.allocations, *frame))?;
    Some((best.0, best.1.ends))
}

/// A place that calls the outermost module.
struct Site {
    frame: FrameId,
    rows: Vec<u32>,
    /// The first row of each iteration.
    starts: Vec<u32>,
}

impl Site {
    fn is_apart(&self, other: &Site) -> bool {
        let span = |s: &Site| (s.rows[0], s.rows[s.rows.len() - 1]);
        let (a, b) = (span(self), span(other));
        a.1 < b.0 || b.1 < a.0
    }
}

/// Iterations by calls of the outermost module: from the place that allocates most often, and from other loops before and after it.
fn by_call(stacks: &StackTable, device: &DeviceRecording, tables: &DeviceTables, phases: &Phases) -> Option<(Steps, Calls)> {
    let lifetimes = &tables.lifetimes;
    let mut rows_of: FxHashMap<FrameId, Vec<u32>> = FxHashMap::default();
    let mut all = 0;
    for run in phases.runs.iter().filter(|r| r.part == Part::Forward) {
        for row in run.rows.0..run.rows.1 {
            all += 1;
            if let Some(site) = phases.of_row(device, tables, row).site {
                rows_of.entry(site).or_default().push(row);
            }
        }
    }
    let mut sites: Vec<Site> = rows_of
        .into_iter()
        .filter(|(_, rows)| rows.len() * LEAST_SHARE >= all)
        .map(|(frame, rows)| {
            let starts = iterations(stacks, device, tables, phases, &rows);
            let starts = begins(&rows, starts, |row| around_call(stacks, device, tables, phases, row).0);
            Site { frame, starts: without_parts(device, tables, phases, &rows, starts), rows }
        })
        .collect();
    leave_out_frozen_models(&mut sites, tables);
    sites.sort_by_key(|s| (std::cmp::Reverse((s.rows.len(), s.starts.len())), s.frame));
    let (first, others) = sites.split_first()?;
    let mut chosen = vec![first];
    for site in others {
        let is_loop = site.starts.len() > 1 && site.rows.len() * 4 >= first.rows.len();
        if is_loop && chosen.iter().all(|c| c.is_apart(site)) {
            chosen.push(site);
        }
    }
    // If a loop calls the model from several lines in turn, each iteration begins with the first of them.
    let calls = match chosen.as_slice() {
        [one] => {
            match calls_of_a_step(
                &one.starts.iter().map(|&row| around_call(stacks, device, tables, phases, row).1).collect::<Vec<_>>(),
            ) {
                1 => calls_of_a_round(device, tables, phases, &one.starts),
                calls => calls,
            }
        }
        _ => 1,
    };
    let mut starts: Vec<u32> = chosen.iter().flat_map(|s| &s.starts).copied().collect();
    starts.sort_unstable();
    let starts: Vec<u32> = starts.into_iter().step_by(calls).collect();
    // A server that recreates its cache computes nothing.
    let is_cache = |row: &u32| phases.of_row(device, tables, *row).bits & (CACHE | CALL | FORWARD) == CACHE;
    if starts.len() == 1 && chosen.iter().flat_map(|site| &site.rows).all(is_cache) {
        return None;
    }
    let generates = phases.of_row(device, tables, starts[0]).bits & GENERATES != 0;
    let place = place(stacks, first.frame);
    let source = if generates && calls == 1 { StepSource::Generation(place) } else { StepSource::Call(place, calls as u32) };
    let bounds = starts.iter().map(|&row| lifetimes.born(LifetimeId(row))).chain([device.events.len() as u32]);
    let is_layer = chosen.iter().all(|site| is_one_layer(stacks, device, tables, phases, &site.rows));
    Some((Steps::of_bounds(bounds.collect(), source), if is_layer { Calls::OfLayer } else { Calls::OfModel }))
}

/// At least this many lines must come before the first iteration to show the beginning of a call; fewer may be one-time setup.
const LEAST_BEFORE: usize = 3;

/// Where calls begin, given rows that occur once per call. If other lines come before a row in the first call, that row does not
/// begin a call; then the first stack of the first call marks the beginning, together with how often it occurs before that row.
fn begins<T: Eq + std::hash::Hash>(rows: &[u32], mut starts: Vec<u32>, stack_of: impl Fn(u32) -> T) -> Vec<u32> {
    let (Some(&first), Some(&start)) = (rows.first(), starts.first()) else { return starts };
    // A row with another allocation right before it begins a call.
    if rows.binary_search(&start.wrapping_sub(1)).is_err() {
        return starts;
    }
    // If `starts` is a loop over layers inside one call, the rows before it were made once. A failed first call looks the same.
    let (before, after) = rows.split_at(rows.partition_point(|&row| row < start));
    let once: FxHashSet<T> = before.iter().map(|&row| stack_of(row)).collect();
    if starts.len() > 1 && once.len() >= LEAST_BEFORE && !after.iter().any(|&row| once.contains(&stack_of(row))) {
        return vec![first];
    }
    let of_first = stack_of(first);
    let like_first: Vec<u32> = rows.iter().copied().filter(|&row| stack_of(row) == of_first).collect();
    let until = |row: u32| like_first.partition_point(|&other| other <= row);
    let times = until(start);
    let mut after = None;
    for start in &mut starts {
        let row = *start;
        let begin = until(row).checked_sub(times).map(|at| like_first[at]);
        *start = begin.filter(|&begin| after.is_none_or(|after| begin > after)).unwrap_or(row);
        after = Some(row);
    }
    starts
}

/// The beginnings of calls, without the parts of one forward pass: layers in a loop of `forward`, or chunks of one batch. Such
/// parts keep their graphs and nothing is allocated between them; a loop over batches moves the next batch to the device there.
fn without_parts(device: &DeviceRecording, tables: &DeviceTables, phases: &Phases, rows: &[u32], starts: Vec<u32>) -> Vec<u32> {
    let lifetimes = &tables.lifetimes;
    // Rounds of generation keep their cache.
    let generates = |row: &u32| phases.of_row(device, tables, *row).bits & (GENERATES | CACHE) != 0;
    if starts.iter().any(generates) {
        return starts;
    }
    let Some(last) = rows.last().map(|&row| lifetimes.born(LifetimeId(row))) else { return starts };
    let at = |start: u32| rows.partition_point(|&row| row < start);
    let keeps_most = |rows: &[u32]| {
        let bytes = |row: &u32| lifetimes.requested(device, LifetimeId(*row));
        // A block freed before the next allocation is a workspace or a trial.
        let stays = |row: &u32| lifetimes.gone(LifetimeId(*row)) > lifetimes.born(LifetimeId(*row)).saturating_add(2);
        let kept = rows.iter().filter(|&&row| lifetimes.gone(LifetimeId(row)) > last).map(bytes).sum::<u64>();
        kept.saturating_mul(2) > rows.iter().filter(|row| stays(row)).map(bytes).sum()
    };
    let is_part =
        |before: u32, start: u32| rows.binary_search(&start.wrapping_sub(1)).is_ok() && keeps_most(&rows[at(before)..at(start)]);
    let is_call = |&i: &usize| i == 0 || !is_part(starts[i - 1], starts[i]);
    (0..starts.len()).filter(is_call).map(|i| starts[i]).collect()
}

/// Removes the calls of frozen models. Nothing was trained yet, but calls that keep blocks for a backward pass are of the trained
/// model. Those that keep nothing are of frozen models, such as a reference model or an embedder, and begin no step.
fn leave_out_frozen_models(sites: &mut Vec<Site>, tables: &DeviceTables) {
    /// A block that is not kept is freed within this many further allocations.
    const SOON: usize = 4;
    let lifetimes = &tables.lifetimes;
    let is_kept = |w: &&[u32]| lifetimes.gone(LifetimeId(w[0])) > lifetimes.born(LifetimeId(w[SOON]));
    let keeps_most = |rows: &[u32]| rows.windows(SOON + 1).filter(is_kept).count() * 2 > rows.len().saturating_sub(SOON);
    let trained = |site: &Site| -> Vec<u32> {
        let at = |start: &u32| site.rows.partition_point(|row| row < start);
        let ends = site.starts.iter().skip(1).map(at).chain([site.rows.len()]);
        let calls = site.starts.iter().zip(ends);
        calls.filter(|&(start, end)| keeps_most(&site.rows[at(start)..end])).map(|(&start, _)| start).collect()
    };
    let of_sites: Vec<Vec<u32>> = sites.iter().map(trained).collect();
    if of_sites.iter().any(|starts| !starts.is_empty()) {
        for (site, starts) in sites.iter_mut().zip(of_sites) {
            site.starts = starts;
        }
        sites.retain(|site| !site.starts.is_empty());
    }
}

/// True if all allocations of a place are made in a single layer of PyTorch.
fn is_one_layer(stacks: &StackTable, device: &DeviceRecording, tables: &DeviceTables, phases: &Phases, rows: &[u32]) -> bool {
    let called: FxHashSet<StackId> = rows.iter().map(|&row| tables.lifetimes.stack(device, LifetimeId(row))).collect();
    called.into_iter().all(|stack| match chain(stacks, phases, stack)[..] {
        [line] => {
            let is_container = phases.bits.get(line.0 as usize).is_some_and(|bits| bits & CONTAINER != 0);
            !is_container && stacks.frame(line).is_some_and(|f| stacks.text(f.file).contains("torch/nn/modules/"))
        }
        _ => false,
    })
}

/// The frames inside the model's call, the same for each call, and the frames outside it, which depend on the calling lines.
fn around_call<'a>(
    stacks: &'a StackTable,
    device: &DeviceRecording,
    tables: &DeviceTables,
    phases: &Phases,
    row: u32,
) -> (&'a [FrameId], &'a [FrameId]) {
    let stack = tables.lifetimes.stack(device, LifetimeId(row));
    let frames = stacks.frames(stack);
    frames.split_at(frames.len().min(phases.sense(stack).inside as usize))
}

/// Number of calls per step: the length of the shortest sequence of callers that repeats throughout. If every call has a
/// different caller, all of them; if nothing repeats, 1.
fn calls_of_a_step(callers: &[&[FrameId]]) -> usize {
    if callers.iter().collect::<FxHashSet<_>>().len() == callers.len() {
        return callers.len().max(1);
    }
    let comes_again = |n: &usize| callers.iter().skip(*n).zip(callers).all(|(later, earlier)| later == earlier);
    match (1..=callers.len() / 2).find(comes_again) {
        Some(n) if callers.len().is_multiple_of(n) => n,
        _ => 1,
    }
}

/// Number of model calls per round of an outer loop, as for each image of a sampler or each request of a server: the stack that
/// begins a round allocates once every so many calls, throughout. 1 if there is no such loop.
fn calls_of_a_round(device: &DeviceRecording, tables: &DeviceTables, phases: &Phases, starts: &[u32]) -> usize {
    const FEWEST_ROUNDS: usize = 3;
    let mut rows_of: FxHashMap<StackId, Vec<u32>> = FxHashMap::default();
    for row in phases.first_row..tables.lifetimes.len() as u32 {
        let stack = tables.lifetimes.stack(device, LifetimeId(row));
        if phases.sense(stack).part == Part::Unknown {
            rows_of.entry(stack).or_default().push(row);
        }
    }
    let calls_before = |row: u32| starts.partition_point(|&start| start < row);
    let even = |rows: &Vec<u32>| {
        let before: Vec<usize> = rows.iter().map(|&row| calls_before(row)).collect();
        let calls = before.get(1).copied().filter(|&calls| calls > 1 && before.len() >= FEWEST_ROUNDS)?;
        let is_even = before.iter().enumerate().all(|(round, &n)| n == round * calls) && starts.len() <= before.len() * calls;
        is_even.then_some(calls)
    };
    rows_of.iter().filter(|(stack, _)| stack.is_some()).filter_map(|(_, rows)| even(rows)).min().unwrap_or(1)
}

/// The modules that a stack passes through, outermost first: for each, the line of its `forward` that calls the next. A decorator
/// around `forward` is a module's first frame and has one line for everything inside.
fn chain(stacks: &StackTable, phases: &Phases, stack: StackId) -> Vec<FrameId> {
    let frames = stacks.frames(stack);
    let inside = (phases.sense(stack).inside as usize).min(frames.len());
    let bits = |f: &FrameId| phases.bits.get(f.0 as usize).copied().unwrap_or(0);
    let outermost_first: Vec<FrameId> = frames[..inside].iter().rev().copied().collect();
    let modules = outermost_first.split(|f| bits(f) & CALL != 0);
    let line = |own: &[FrameId]| {
        let is = |wanted: Bits| own.iter().copied().find(|f| bits(f) & wanted == wanted);
        is(FORWARD | PYTHON).or_else(|| is(PYTHON))
    };
    modules.filter_map(line).collect()
}

/// The first row of each iteration of one place. If the outermost module has several lines, each runs once per iteration; a loop
/// over layers is one line. The median leaves out lines that do not. A module with a single line begins a new iteration where
/// something else was allocated in between.
fn iterations(stacks: &StackTable, device: &DeviceRecording, tables: &DeviceTables, phases: &Phases, rows: &[u32]) -> Vec<u32> {
    let stack_of = |row: u32| tables.lifetimes.stack(device, LifetimeId(row));
    let mut chains: FxHashMap<StackId, Vec<FrameId>> = FxHashMap::default();
    for &row in rows {
        chains.entry(stack_of(row)).or_insert_with_key(|&stack| chain(stacks, phases, stack));
    }
    let line = |row: u32, depth: usize| chains.get(&stack_of(row)).and_then(|c| c.get(depth)).copied();
    let mostly = |n: usize| n * 10 >= rows.len() * 9;
    // Go down through modules that only call one other: wrappers.
    let mut depth = 0;
    loop {
        let mut here = rows.iter().map(|&row| line(row, depth));
        let Some(Some(first)) = here.next() else { break };
        let is_container = phases.bits.get(first.0 as usize).is_some_and(|b| b & CONTAINER != 0);
        let goes_on = mostly(rows.iter().filter(|&&row| line(row, depth + 1).is_some()).count());
        if is_container || !goes_on || here.any(|f| f != Some(first)) {
            break;
        }
        depth += 1;
    }
    let mut lines: FxHashMap<FrameId, Vec<u32>> = FxHashMap::default();
    let mut functions: FxHashMap<_, usize> = FxHashMap::default();
    let mut last = None;
    for &row in rows {
        let Some(f) = line(row, depth) else { continue };
        *functions.entry(stacks.frame(f).map(|f| (f.file, f.name))).or_default() += 1;
        let starts = lines.entry(f).or_default();
        if last != Some(f) {
            starts.push(row);
        }
        last = Some(f);
    }
    if lines.len() > 1 && functions.values().any(|&n| mostly(n)) {
        let mut counts: Vec<usize> = lines.values().map(Vec::len).collect();
        counts.sort_unstable();
        let median = counts[(counts.len() - 1) / 2];
        let runs: FxHashMap<FrameId, usize> = lines.iter().map(|(&f, starts)| (f, starts.len())).collect();
        if let Some(starts) = lines.into_values().filter(|s| s.len() == median).min_by_key(|s| s[0]) {
            // Blocks that a module below keeps are its state: a cache, or the memory of a recurrent cell.
            let is_variable =
                |row: u32| line(row, depth).is_some_and(|f| runs.get(&f) == Some(&median)) && line(row, depth + 1).is_none();
            let kind = |row: u32| (stack_of(row), tables.lifetimes.requested(device, LifetimeId(row)));
            return calls(tables, rows, starts, |row| is_variable(row).then(|| kind(row)));
        }
    }
    let is_entry = |i: &usize| *i == 0 || rows[*i - 1] + 1 != rows[*i];
    (0..rows.len()).filter(is_entry).map(|i| rows[i]).collect()
}

/// Among the first rows of iterations, those that begin calls. A loop inside `forward` shows the same lines as a loop that calls
/// it. An inner loop keeps a value in a local variable of `forward`: the block is freed in the middle of the next iteration,
/// which makes a new one. A call leaves no local variables: its result is freed between two calls, or after the next one.
fn calls(tables: &DeviceTables, rows: &[u32], starts: Vec<u32>, variable: impl Fn(u32) -> Option<(StackId, u64)>) -> Vec<u32> {
    let lifetimes = &tables.lifetimes;
    let (born, gone) = (|row: u32| lifetimes.born(LifetimeId(row)), |row: u32| lifetimes.gone(LifetimeId(row)));
    let at = |start: &u32| rows.partition_point(|row| row < start);
    let ends = starts.iter().skip(1).map(at).chain([rows.len()]);
    let iterations: Vec<&[u32]> = starts.iter().map(at).zip(ends).map(|(from, to)| &rows[from..to]).collect();
    let feeds = |one: &[u32], next: &[u32]| {
        let (Some(&first), Some(&last)) = (next.first(), next.last()) else { return false };
        let is_left = |row: u32| (born(first)..born(last)).contains(&gone(row));
        let comes_again = |kind| next.iter().any(|&row| variable(row) == Some(kind));
        one.iter().any(|&row| is_left(row) && variable(row).is_some_and(comes_again))
    };
    let fed: Vec<bool> = iterations.windows(2).map(|w| feeds(w[0], w[1])).collect();
    if fed.iter().filter(|&&is| is).count() * 2 <= fed.len() {
        return starts;
    }
    let is_call = |i: usize| i == 0 || !fed[i - 1];
    starts.iter().enumerate().filter(|&(i, _)| is_call(i)).map(|(_, &row)| row).collect()
}
