//! Steps: the iterations of the program's own loop, from annotations if the recording has them, otherwise from stacks
//! ([`Anatomy`]); and what each step did to memory.

use std::ops::Range;

use rustc_hash::FxHashMap;

mod beyond;
mod ends;
#[cfg(test)]
mod tests;

use crate::anatomy::Anatomy;
use crate::model::{Action, Cancelled, DeviceRecording, Progress, Recording, StackId};
use crate::tables::{DeviceTables, LifetimeId, NO_EVENT, Quantity};
use crate::units::{count, counted};
pub(super) use ends::find as ends;

/// How steps were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StepSource {
    /// No steps were found: the recording is one stretch.
    #[default]
    None,
    /// Each step ends with a range of this name: `ProfilerStep`, `Optimizer.step`.
    Annotation(String),
    /// Each step begins with a range of this name (`record_function("train_step")`); they are evenly spaced and fill the recording.
    Range(String),
    /// Each step ends with the optimizer; the place that calls it: `train.py:71`.
    Optimizer(String),
    /// Each step is a forward and a backward pass.
    Backward,
    /// Each step is a backward pass; the history begins after the forward pass.
    BackwardAlone,
    /// Each step is this many calls of the model (0 means one), from this line: `eval.py:30`.
    Call(String, u32),
    /// Each step is one call of `generate`, or one round of a generation loop, from this line.
    Generation(String),
    /// The same requests repeat in the same order. Inferred, and must be shown as inferred.
    Period,
}

impl StepSource {
    /// True for PyTorch's own annotations of optimizers.
    pub(crate) fn is_optimizer(&self) -> bool {
        matches!(self, StepSource::Annotation(name) if name == "Optimizer.step")
    }
}

/// The steps of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Step i holds events `bounds[i]..bounds[i + 1]`; empty when no steps were found.
    pub bounds: Vec<u32>,
    /// How they were found.
    pub source: StepSource,
    /// Confidence in these steps, in percent: 100 for PyTorch's own annotations, less the more the distances between repetitions
    /// vary. Events outside all steps count as 0, and extended steps count by the evenness of their repetition.
    pub confidence: u8,
    /// Indices of the annotated steps; empty if there are none.
    pub marked: Range<usize>,
    /// The stack that extends the steps: it allocates once in every annotated step and beyond.
    pub continued_by: Option<StackId>,
    /// The events of each annotated `Optimizer.step` call, end exclusive; possibly of several optimizers.
    pub optimizer: Vec<(u32, u32)>,
    /// Where the memory left by each step is measured (exclusive event index), see [`Steps::over`].
    pub ends: Vec<u32>,
}

/// The number of a step for display, from 1; JSON uses the index.
pub fn number(step: usize) -> String {
    count(step as u64 + 1)
}

/// Fewest repetitions that count as a pattern.
const FEWEST: usize = 4;

impl Steps {
    /// Finds the steps of a device. O(events + annotations).
    pub fn find(recording: &Recording, device: &DeviceRecording, tables: &DeviceTables) -> Self {
        Anatomy::read(recording, device, tables).steps
    }

    /// Steps with these bounds; none with fewer than two.
    pub(super) fn of_bounds(mut bounds: Vec<u32>, source: StepSource) -> Self {
        bounds.dedup();
        if bounds.len() < 2 {
            return Steps::default();
        }
        // Measured on recordings with known steps. Detection without stacks was never measured and gets less confidence.
        let confidence = if source == StepSource::Period { 80 } else { 95 };
        Steps { bounds, source, confidence, ..Steps::default() }
    }

    /// How they were found, as a subtitle: `each ends with the optimizer's step (train.py:71)`.
    pub fn how(&self) -> String {
        let at = |place: &str| if place.is_empty() { String::new() } else { format!(" ({place})") };
        match &self.source {
            StepSource::None => "no steps were found".to_owned(),
            StepSource::Annotation(name) => format!("from the annotation {name}"),
            StepSource::Range(name) => format!("from the range \u{201c}{name}\u{201d}"),
            StepSource::Optimizer(place) => format!("each ends with the optimizer's step{}", at(place)),
            StepSource::Backward => "each is a forward and a backward pass".to_owned(),
            StepSource::BackwardAlone => "each is a backward pass, and no forward pass was recorded".to_owned(),
            StepSource::Call(place, 0 | 1) => format!("each is one call of the model{}", at(place)),
            StepSource::Call(place, calls) => format!("each is {calls} calls of the model{}", at(place)),
            StepSource::Generation(place) => format!("each is one round of generation{}", at(place)),
            StepSource::Period => "guessed from allocations that repeat".to_owned(),
        }
    }

    /// What the annotations leave open and how it was handled; `None` if they mark every step and cover the recording.
    pub fn caveat(&self, names: &crate::tables::StackNames, events: usize) -> Option<String> {
        if self.marked.is_empty() || events == 0 {
            return None;
        }
        let within = |bounds: &[u32]| match bounds {
            [first, .., last] => f64::from(last - first) / events as f64 * 100.0,
            _ => 0.0,
        };
        let marked = within(self.bounds.get(self.marked.start..=self.marked.end)?);
        let all = within(&self.bounds);
        let covers =
            format!("Annotations cover {marked:.0} % of the events, {}", counted(self.marked.len() as u64, "step", "steps"));
        let others = (self.len() - self.marked.len()) as u64;
        match self.continued_by {
            Some(stack) => Some(format!(
                "{covers}. {} {} continued from {}, which allocates once in every annotated step.",
                counted(others, "more step", "more steps"),
                if others == 1 { "is" } else { "are" },
                names.of_stack(stack)
            )),
            None if all < 90.0 && self.bounds.last().is_some_and(|&b| (b as usize) < events) => {
                Some(format!("{covers}; beyond them no call stack goes on evenly, so the rest is in no step."))
            }
            None => None,
        }
    }

    /// The event (exclusive) at which a step is over: after `zero_grad` has freed its gradients, if it does so before the next
    /// forward pass. `None` for a last step that has no instant comparable to those of the others.
    pub fn over(&self, step: usize) -> Option<u32> {
        let ends = if self.ends.is_empty() { self.bounds.get(1..)? } else { &self.ends };
        ends.get(step).copied()
    }

    /// Number of steps; 0 when none were found.
    pub fn len(&self) -> usize {
        self.bounds.len().saturating_sub(1)
    }

    /// All steps joined into one.
    pub(super) fn joined(mut self) -> Self {
        self.bounds = self.bounds.first().into_iter().chain(self.bounds.last()).copied().collect();
        self.marked = 0..self.len();
        self
    }

    /// Joins the steps of optimizers that take turns, as those of a GAN do. `made` has for each step the sizes of what its optimizer
    /// allocates and frees, in order: with several optimizers they repeat every second time or later.
    pub(super) fn in_turns(mut self, made: &[Vec<u64>]) -> Self {
        const MOST: usize = 4;
        let repeats = |n: usize| {
            let (first, rest) = made.split_at(n);
            let are_different = (0..n).all(|i| !first[i].is_empty() && !first[..i].contains(&first[i]));
            are_different && rest.iter().zip(made).all(|(later, sizes)| later == sizes)
        };
        if let Some(turns) = (2..=MOST).find(|&n| made.len() == self.len() && made.len() >= 2 * n && repeats(n)) {
            let last = self.bounds.last().copied();
            self.bounds = self.bounds.into_iter().step_by(turns).collect();
            if self.bounds.last().copied() != last {
                self.bounds.extend(last);
            }
            self.marked = 0..self.len();
        }
        self
    }

    /// True when none were found.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if the steps come only from repeating requests, not from annotations or stacks.
    pub fn is_inferred(&self) -> bool {
        self.source == StepSource::Period
    }

    /// True for a step that is not annotated: an inferred one, or one that extends the annotated ones.
    pub fn is_inferred_at(&self, step: usize) -> bool {
        self.is_inferred() || (self.continued_by.is_some() && !self.marked.contains(&step))
    }

    /// The step of an event in words: `2`, `2, inferred`, `before the first`; `None` if there are no steps.
    pub fn words_at(&self, event: u32) -> Option<String> {
        let (&first, true) = (self.bounds.first()?, !self.is_empty()) else { return None };
        Some(match self.of(event) {
            Some(step) if self.is_inferred_at(step) => format!("{}, inferred", number(step)),
            Some(step) => number(step),
            None if event < first => "before the first".to_owned(),
            None => "after the last".to_owned(),
        })
    }

    /// The step that holds an event.
    pub fn of(&self, event: u32) -> Option<usize> {
        let at = self.bounds.partition_point(|&b| b <= event).checked_sub(1)?;
        (at < self.len()).then_some(at)
    }
}

/// The annotated steps: PyTorch's annotations, otherwise the user's ranges; `None` without either.
pub(super) fn annotated(
    recording: &Recording,
    device: &DeviceRecording,
    tables: &DeviceTables,
    has_stacks: bool,
) -> Option<Steps> {
    by_annotation(recording, device, tables, has_stacks).or_else(|| by_range(recording, device, tables))
}

/// The step that ends with the only optimizer annotation; `None` if there is none or several.
pub(super) fn single(recording: &Recording, device: &DeviceRecording, tables: &DeviceTables) -> Option<Steps> {
    by_annotation(recording, device, tables, false).filter(|steps| steps.source.is_optimizer() && steps.len() == 1)
}

/// A step ends where its annotated optimizer step ends, or where the profiler's step ends. The profiler also marks beginnings, so
/// what comes before its first step is setup. An optimizer step does not show where its own step began.
fn by_annotation(recording: &Recording, device: &DeviceRecording, tables: &DeviceTables, has_stacks: bool) -> Option<Steps> {
    if !device.events.has_time {
        return None;
    }
    let times = &device.events.time_us;
    let event_at = |time: i64| times.partition_point(|&t| t < time);
    let mut ranges: FxHashMap<&str, Vec<(usize, usize)>> = FxHashMap::default();
    let mut optimizers = Vec::new();
    for a in &device.annotations {
        let name = recording.stacks.text(a.name);
        let key = name.split('#').next().unwrap_or(name).trim();
        if (key == "ProfilerStep" || key == "Optimizer.step" || key == "Optimizer.zero_grad")
            && let Some(end) = a.end_us
        {
            let range = (event_at(a.start_us), event_at(end.saturating_add(1)));
            ranges.entry(key).or_default().push(range);
            if key == "Optimizer.step" {
                optimizers.push((range, a.name));
            }
        }
    }
    optimizers.sort_unstable();
    // Stacks show a single step better than the one annotation at its end.
    let fewest = if has_stacks { 2 } else { 1 };
    let key = ["ProfilerStep", "Optimizer.step"].into_iter().find(|k| ranges.get(k).is_some_and(|r| r.len() >= fewest))?;
    let zeroed = ranges.remove("Optimizer.zero_grad").unwrap_or_default();
    let mut ranges = ranges.remove(key)?;
    ranges.sort_unstable();
    let begins = ranges.first().filter(|_| key == "ProfilerStep").map(|r| r.0 as u32);
    if key == "Optimizer.step" {
        // Optimizers in direct succession, such as Muon and AdamW, end the same step: no allocations or zeroed gradients between.
        let allocates = |from: usize, to: usize| device.events.action.get(from..to).is_some_and(|e| e.contains(&Action::Alloc));
        let mut apart = ranges.clone();
        apart.dedup_by(|next, last| {
            let is_same = !allocates(last.1, next.0) && !zeroed.iter().any(|z| (last.1..=next.0).contains(&z.0));
            if is_same {
                last.1 = last.1.max(next.1);
            }
            is_same
        });
        // If the device does nothing between them, they cannot be distinguished this way.
        if apart.len() > 1 || ranges.len() == 2 {
            ranges = apart;
        }
        // If optimizers of several kinds take turns, each after its own pass, the last one ends the step.
        let turns = taking_turns(&optimizers.iter().map(|o| o.1).collect::<Vec<_>>());
        let is_apart = optimizers.windows(2).all(|w| allocates(w[0].0.1, w[1].0.0));
        if turns > 1 && is_apart && ranges.len() == optimizers.len() {
            ranges = ranges.into_iter().skip(turns - 1).step_by(turns).collect();
        } else if let Some(last) = last_of_each_backward(&ranges, tables).filter(|_| !has_stacks) {
            ranges = last;
        } else if !has_stacks {
            let turns = by_requests(&ranges, tables);
            ranges = ranges.into_iter().skip(turns - 1).step_by(turns).collect();
        }
    }
    let mut bounds: Vec<u32> = ranges.iter().map(|r| r.1 as u32).collect();
    bounds.push(begins.unwrap_or(0));
    bounds.sort_unstable();
    bounds.dedup();
    if bounds.len() <= fewest {
        return None;
    }
    let optimizer = optimizers.iter().map(|&((from, to), _)| (from as u32, to as u32)).collect();
    let found = Steps { bounds, source: StepSource::Annotation(key.to_owned()), confidence: 100, optimizer, ..Steps::default() };
    Some(beyond::continued(found, usize::from(begins.is_none()), device, tables))
}

/// The last optimizer step of each backward pass, if each parameter has its own optimizer in a hook: between most of these steps
/// hardly anything is allocated, and between some of them a whole forward pass.
fn last_of_each_backward(ranges: &[(usize, usize)], tables: &DeviceTables) -> Option<Vec<(usize, usize)>> {
    const FEW: std::ops::RangeInclusive<u32> = 1..=3;
    const PASS: u32 = 16;
    const PARAMETERS: usize = 8;
    let made = |event: usize| tables.lifetimes.born_by(event as u32);
    let gaps: Vec<u32> = ranges.windows(2).map(|w| made(w[1].0) - made(w[0].1)).collect();
    let passes = gaps.iter().filter(|&&gap| gap >= PASS).count();
    let is_so = passes > 0 && gaps.iter().filter(|gap| FEW.contains(gap)).count() >= passes * PARAMETERS;
    let ends_pass = |at: usize| gaps.get(at).is_none_or(|&gap| gap >= PASS);
    is_so.then(|| ranges.iter().enumerate().filter(|&(at, _)| ends_pass(at)).map(|(_, &range)| range).collect())
}

/// If two or three optimizers of one kind take turns: the number of optimizer steps after which the count of requests repeats;
/// otherwise 1. Batches of other lengths make the same number of requests.
fn by_requests(ranges: &[(usize, usize)], tables: &DeviceTables) -> usize {
    const MOST: usize = 3;
    /// Blocks made in the microsecond in which a step ends may count for either step.
    const ODD: u32 = 2;
    let made: Vec<u32> = ranges.iter().map(|r| tables.lifetimes.born_by(r.1 as u32)).collect();
    let counts: Vec<u32> = made.windows(2).map(|w| w[1] - w[0]).collect();
    let comes_again = |turns: usize| {
        // The first ones also make workspaces and optimizer state.
        let steady = counts.get(turns..).unwrap_or_default();
        // A step without allocations is the replay of a CUDA graph, or contains one.
        let makes = steady.iter().all(|&made| made > ODD);
        makes && steady.len() >= 2 * turns && steady.windows(turns + 1).all(|w| w[0].abs_diff(w[turns]) <= ODD)
    };
    (1..=MOST).find(|&turns| comes_again(turns)).unwrap_or(1)
}

/// The number of different names that repeat in the same order; 1 if they do not.
fn taking_turns<T: PartialEq>(names: &[T]) -> usize {
    let turns = names.iter().skip(1).position(|name| *name == names[0]).map_or(names.len(), |at| at + 1);
    let is_round = names.len() >= 2 * turns && names.iter().zip(names.iter().skip(turns)).all(|(a, b)| a == b);
    let is_new = |(i, name): (usize, &T)| !names[..i].contains(name);
    if is_round && names.iter().enumerate().take(turns).all(is_new) { turns } else { 1 }
}

/// The common name of ranges of one kind: `step` for `step 12`, `step#13` and `step_14`.
pub fn kind(name: &str) -> &str {
    let cut = name.trim_end_matches(|c: char| c.is_ascii_digit() || c.is_whitespace() || "#_-:/[]()=".contains(c));
    if cut.is_empty() { name } else { cut }
}

/// Prefixes of PyTorch's own ranges around compiled code.
const COMPILED: [&str; 3] = ["## Call CompiledFxGraph", "Torch-Compiled Region", "TorchDynamo Cache Lookup"];

/// Steps from the user's ranges that are evenly spaced over most of the recording; of several kinds, the one that covers most.
fn by_range(recording: &Recording, device: &DeviceRecording, tables: &DeviceTables) -> Option<Steps> {
    if !device.events.has_time {
        return None;
    }
    let times = &device.events.time_us;
    let n = times.len() as u32;
    let mut kinds: FxHashMap<&str, Vec<(u32, u32)>> = FxHashMap::default();
    for a in &device.annotations {
        let Some(end) = a.end_us else { continue };
        let name = recording.stacks.text(a.name);
        // Parts of a model loaded one after the other are not steps, nor are PyTorch's compiled graphs, which may be layers.
        if name.to_ascii_lowercase().contains("load") || COMPILED.iter().any(|mark| name.starts_with(mark)) {
            continue;
        }
        let place = (times.partition_point(|&t| t < a.start_us) as u32, times.partition_point(|&t| t <= end) as u32);
        kinds.entry(kind(name)).or_default().push(place);
    }
    let mut best: Option<(u32, f64, &str)> = None;
    for (&name, list) in &mut kinds {
        list.sort_unstable();
        if list.len() < FEWEST || list.windows(2).any(|w| w[1].0 < w[0].1) {
            continue;
        }
        let starts: Vec<u32> = list.iter().map(|r| r.0).collect();
        let covered: u32 = list.iter().map(|r| r.1 - r.0).sum();
        // Annotations may stop long before the events do; check evenness only within their own part.
        let span = list[list.len() - 1].1 - list[0].0;
        let Some(uneven) = unevenness(&starts, span) else { continue };
        let better = best.is_none_or(|(c, _, other)| (covered, std::cmp::Reverse(name)) > (c, std::cmp::Reverse(other)));
        if uneven < 0.5 && covered > span / 2 && better {
            best = Some((covered, uneven, name));
        }
    }
    let (_, uneven, name) = best?;
    let list = kinds.remove(name)?;
    let mut bounds: Vec<u32> = list.iter().map(|r| r.0).collect();
    bounds.extend(list.last().map(|r| r.1));
    bounds.dedup();
    let found = Steps { bounds, source: StepSource::Range(name.to_owned()), confidence: percent(uneven), ..Steps::default() };
    let steps = beyond::continued(found, 0, device, tables);
    // Ranges in a small part of the recording that nothing extends are not its steps.
    let covered = steps.bounds.last()? - steps.bounds.first()?;
    (covered > n / 2).then_some(steps)
}

/// Standard deviation of the distances divided by their mean. `None` if the places cannot be steps: too close together, or in too
/// small a part of the recording's `n` events.
fn unevenness(places: &[u32], n: u32) -> Option<f64> {
    let (first, last) = (*places.first()?, *places.last()?);
    let span = last - first;
    let mean = f64::from(span) / (places.len().max(2) - 1) as f64;
    // A step has more than a handful of events, and steps fill most of a recording.
    if mean < 6.0 || f64::from(span) < 0.5 * f64::from(n) {
        return None;
    }
    Some(unevenness_of(places).1)
}

/// Mean of the distances between at least two ascending places, and their standard deviation divided by it.
fn unevenness_of(places: &[u32]) -> (f64, f64) {
    let number = (places.len().max(2) - 1) as f64;
    let mean = f64::from(places[places.len() - 1] - places[0]) / number;
    let variance = places.windows(2).map(|w| (f64::from(w[1] - w[0]) - mean).powi(2)).sum::<f64>() / number;
    (mean, variance.sqrt() / mean.max(1.0))
}

/// The confidence for repetitions of this unevenness.
fn percent(unevenness: f64) -> u8 {
    ((1.0 - unevenness) * 99.0).clamp(0.0, 99.0) as u8
}

/// What a step did to memory. Bytes are those of whole blocks, like `active_bytes` of `torch.cuda.memory_stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepFigures {
    /// Its first event, inclusive.
    pub first: u32,
    /// The event after its last.
    pub end: u32,
    /// Bytes in use before its first event.
    pub before: u64,
    /// The most bytes in use within it.
    pub peak: u64,
    /// The first event that reached the peak.
    pub peak_event: u32,
    /// The fewest bytes in use within it.
    pub floor: u64,
    /// Bytes in use when the step is over: without its gradients, if `zero_grad` frees them before the next forward pass.
    pub after: u64,
    /// The most bytes reserved within it.
    pub reserved: u64,
    /// Bytes allocated within it, whether or not they were freed since.
    pub allocated: u64,
    /// Number of allocations within it, whether or not they were freed since.
    pub allocations: u64,
    /// Bytes allocated within it that outlive the next step, unlike a loss, which the next step replaces. `None` for the last step.
    pub kept: Option<u64>,
    /// True if the recording does not show where the step is over, unlike earlier steps; its growth cannot be compared.
    pub is_open: bool,
    /// Microseconds from its first event to its last; 0 without times.
    pub micros: i64,
}

impl StepFigures {
    /// Bytes in use after the step minus those before it.
    pub fn growth(&self) -> i64 {
        self.after as i64 - self.before as i64
    }
}

/// The figures of every step. O(lifetimes + steps).
///
/// # Errors
/// When cancelled.
pub fn figures(
    device: &DeviceRecording,
    tables: &DeviceTables,
    steps: &Steps,
    progress: &Progress,
) -> Result<Vec<StepFigures>, Cancelled> {
    let (curves, lifetimes) = (&tables.curves, &tables.lifetimes);
    let active = curves.columns(device, lifetimes, Quantity::Active, &steps.bounds);
    let over = |i: usize| steps.over(i).unwrap_or(steps.bounds[i + 1]).checked_sub(1).unwrap_or(NO_EVENT);
    let reserved = curves.columns(device, lifetimes, Quantity::Reserved, &steps.bounds);
    let time = |event: u32| device.events.time_us.get(event as usize).copied().unwrap_or(0);
    let mut out: Vec<StepFigures> = Vec::with_capacity(steps.len());
    for (i, w) in steps.bounds.windows(2).enumerate() {
        progress.check()?;
        let (first, end) = (w[0], w[1]);
        let before = match out.last() {
            Some(last) => last.after,
            None => curves.at(device, lifetimes, Quantity::Active, first.checked_sub(1).unwrap_or(NO_EVENT)),
        };
        let (peak, peak_event) = curves.peak_in(device, lifetimes, Quantity::Active, first, end).unwrap_or((before, first));
        out.push(StepFigures {
            first,
            end,
            before,
            peak,
            peak_event,
            floor: active[i].min,
            after: curves.at(device, lifetimes, Quantity::Active, over(i)),
            is_open: steps.over(i).is_none(),
            reserved: reserved[i].max,
            micros: if device.events.has_time { time(end.saturating_sub(1)) - time(first) } else { 0 },
            ..StepFigures::default()
        });
    }
    for i in lifetimes.initial_count() as u32..lifetimes.len() as u32 {
        if i % (1 << 16) == 0 {
            progress.check()?;
        }
        let id = LifetimeId(i);
        let Some(at) = steps.of(lifetimes.born(id)) else { continue };
        let step = &mut out[at];
        let bytes = lifetimes.block_size(id);
        step.allocations += 1;
        step.allocated += bytes;
        if at + 1 < steps.len() {
            let outlives = lifetimes.is_live_at(id, over(at + 1));
            *step.kept.get_or_insert(0) += if outlives { bytes } else { 0 };
        }
    }
    Ok(out)
}
