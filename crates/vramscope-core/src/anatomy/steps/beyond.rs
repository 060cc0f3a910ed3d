//! Extends the steps beyond the annotated ones, by a call stack that allocates once in every annotated step and continues to do so.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{FEWEST, StepSource, Steps, percent, unevenness_of};
use crate::model::{Action, DeviceRecording, StackId};
use crate::tables::{DeviceTables, LifetimeId, NO_EVENT};

/// A stack with more allocations than this does not allocate once per step.
const MOST: usize = 20_000;

/// The allocations of each stack that may allocate once per step. O(lifetimes).
fn births(device: &DeviceRecording, tables: &DeviceTables) -> FxHashMap<StackId, Vec<u32>> {
    let mut births: FxHashMap<StackId, Vec<u32>> = FxHashMap::default();
    for i in 0..tables.lifetimes.len() as u32 {
        let id = LifetimeId(i);
        let stack = tables.lifetimes.stack(device, id);
        let born = tables.lifetimes.born(id);
        if stack.is_some() && born != NO_EVENT {
            let list = births.entry(stack).or_default();
            if list.len() < MOST {
                list.push(born);
            }
        }
    }
    births.retain(|_, list| (FEWEST..MOST).contains(&list.len()));
    births
}

/// A stretch outside the annotated steps counts as a step, or part of one, if it is at most this many times as long as the longest.
const LONGEST: u32 = 2;

/// Extends annotated steps before and after the part of the recording that annotations cover. `sure` is the index of the first
/// bound that an annotation gives; the end of an optimizer step does not show where its step began. Events that no stack extends
/// to stay outside the steps and reduce the confidence. O(lifetimes) if there is anything to extend, else O(steps).
pub(super) fn continued(mut steps: Steps, sure: usize, device: &DeviceRecording, tables: &DeviceTables) -> Steps {
    let n = device.events.len() as u32;
    steps.marked = 0..steps.len();
    let marked = &steps.bounds[sure.min(steps.bounds.len())..];
    let (Some(&first), Some(&last)) = (marked.first(), marked.last()) else { return steps };
    let longest = marked.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
    // A first step that includes all setup is longer than the others. Divide it only if it is long enough for many steps.
    let wants_before = first > 2 * LONGEST * longest.max(1) && first > n / 4;
    // Events after the last step form a step only if they allocate like one; a program that ends mostly frees.
    let allocations = |from: u32, to: u32| allocations(device, from, to).count();
    let typical = allocations(0, last) / steps.len().max(1);
    let allocates = allocations(last, n) > typical / 2 && !ends_a_step(device, &steps, last);
    let wants_after = n - last > LONGEST * longest.max(1) && allocates;
    if longest == 0 || !(wants_before || wants_after) {
        // Without stacks, count it as a step only if it fails: work after the optimizer may be an evaluation.
        let has_stacks = device.events.stack.iter().any(|stack| stack.is_some());
        let is_one = match device.events.failure_at_end() {
            Some(_) if !has_stacks => allocations(last, n) > 0,
            Some(_) if begins_a_step(device, &steps, last) => true,
            failure => (has_stacks || failure.is_some()) && allocates,
        };
        if is_one && !matches!(steps.source, StepSource::Range(_)) {
            steps.bounds.push(n);
            steps.marked.end = steps.len();
        }
        return steps;
    }
    let best = if marked.len() > FEWEST { candidates(marked, wants_before, wants_after, device, tables) } else { None };
    let (before, after) = best.as_ref().map_or((&[][..], &[][..]), |b| (&b.before, &b.after));
    let sure_events = u64::from(last - if wants_before { first } else { steps.bounds[0] });
    let mut bounds = before.to_vec();
    // Events before the first annotation may all be setup; undivided, they stay part of the step that the annotation ends.
    let kept = if before.is_empty() { &steps.bounds[..] } else { &steps.bounds[sure..] };
    let shift = bounds.len() + if wants_before && before.is_empty() { sure } else { 0 };
    bounds.extend(kept);
    steps.marked = shift..bounds.len() - 1;
    bounds.extend(after);
    let divided =
        |bounds: &[u32], edge: u32| bounds.first().zip(bounds.last()).map_or(0, |(a, b)| u64::from(b.max(&edge) - a.min(&edge)));
    let others = divided(before, first) + divided(after, last);
    let trust = best.as_ref().map_or(0, |b| u64::from(b.confidence));
    let sum = sure_events * u64::from(steps.confidence) + others * trust;
    steps.bounds = bounds;
    steps.confidence = (sum / u64::from(n).max(1)).min(if sure_events < u64::from(n) { 99 } else { 100 }) as u8;
    steps.continued_by = best.map(|b| b.stack);
    steps
}

/// The stacks of the allocations in a range of events.
fn allocations(device: &DeviceRecording, from: u32, to: u32) -> impl Iterator<Item = StackId> {
    let within = from as usize..to as usize;
    let actions = device.events.action.get(within.clone()).unwrap_or_default();
    let stacks = device.events.stack.get(within).unwrap_or_default();
    actions.iter().zip(stacks).filter(|(action, _)| **action == Action::Alloc).map(|(_, &stack)| stack)
}

/// True if the events after the last annotated step are the end of that step: their lines ran in earlier steps, but not in the
/// first, which ended with the optimizer's call as all annotated steps do. O(events).
fn ends_a_step(device: &DeviceRecording, steps: &Steps, last: u32) -> bool {
    let of = |from, to| allocations(device, from, to).filter(|stack| stack.is_some());
    let [start, first, ..] = steps.bounds[..] else { return false };
    let after: FxHashSet<StackId> = of(last, device.events.len() as u32).collect();
    let between: FxHashSet<StackId> = of(first, last).collect();
    // Setup alone is not a step.
    let is_step = of(start, first).any(|stack| between.contains(&stack));
    let known = after.intersection(&between).count();
    is_step && known * 2 > after.len() && !of(start, first).any(|stack| after.contains(&stack))
}

/// True if the lines that run after the last annotated step ran in earlier steps. O(events).
fn begins_a_step(device: &DeviceRecording, steps: &Steps, last: u32) -> bool {
    let of = |from, to| allocations(device, from, to).filter(|stack| stack.is_some());
    let Some(&start) = steps.bounds.first() else { return false };
    let after: FxHashSet<StackId> = of(last, device.events.len() as u32).collect();
    let before: FxHashSet<StackId> = of(start, last).collect();
    after.intersection(&before).count() * 2 > after.len()
}

/// Steps outside the annotated ones, as one stack shows them.
struct Beyond {
    stack: StackId,
    /// Bounds before the first annotated step, ascending.
    before: Vec<u32>,
    /// Bounds after the last annotated step, ascending.
    after: Vec<u32>,
    confidence: u8,
}

/// Of the stacks that allocate once in every annotated step, the one that divides the rest most evenly.
fn candidates(
    marked: &[u32],
    wants_before: bool,
    wants_after: bool,
    device: &DeviceRecording,
    tables: &DeviceTables,
) -> Option<Beyond> {
    let n = device.events.len() as u32;
    let (first, last) = (marked[0], marked[marked.len() - 1]);
    let count = marked.len() - 1;
    let mean = f64::from(last - first) / count as f64;
    let mut best: Option<(u32, u32, Beyond)> = None;
    for (stack, births) in births(device, tables) {
        let from = births.partition_point(|&b| b < first);
        let to = births.partition_point(|&b| b < last);
        // Once per step; one step in ten may differ, and the first often does.
        if (to - from).abs_diff(count) * 10 > count {
            continue;
        }
        let mut offsets: Vec<u32> = Vec::with_capacity(count);
        let mut agree = 0;
        for step in marked.windows(2) {
            let at = births.partition_point(|&b| b < step[0]);
            let end = births.partition_point(|&b| b < step[1]);
            if end - at == 1 {
                offsets.push(births[at] - step[0]);
                agree += 1;
            }
        }
        if agree * 10 < count * 9 {
            continue;
        }
        offsets.sort_unstable();
        let offset = offsets[offsets.len() / 2];
        let spread: u64 = offsets.iter().map(|&o| u64::from(o.abs_diff(offset))).sum();
        let begins = |births: &[u32]| -> Vec<u32> { births.iter().map(|&b| b.saturating_sub(offset)).collect() };
        let (mut before, mut after) = (Vec::new(), Vec::new());
        if wants_after {
            let starts = begins(&births[to..]);
            // The first extended step begins where the last annotated one ends.
            let Some(&next) = starts.first() else { continue };
            if f64::from(next.abs_diff(last)) > mean / 2.0 {
                continue;
            }
            after.extend(starts.iter().skip(1).copied().filter(|&s| s > last));
            let open = after.last().copied().unwrap_or(last);
            let end = (f64::from(open) + mean).min(f64::from(n)) as u32;
            // A remainder after the last whole step, up to half a step, is added to it.
            after.push(if f64::from(n - end) < mean / 2.0 { n } else { end });
        }
        if wants_before {
            before = begins(&births[..from]);
            before.retain(|&s| s < first);
            let reaches = before.last().is_some_and(|&s| f64::from(first - s) < mean * 1.5);
            if !reaches {
                if !wants_after {
                    continue;
                }
                before.clear();
            }
        }
        let uneven = |places: &[u32]| if places.len() > 2 { unevenness_of(places) } else { (mean, 0.0) };
        let joined: Vec<u32> = std::iter::once(last).chain(after.iter().copied()).collect();
        let led: Vec<u32> = before.iter().copied().chain(std::iter::once(first)).collect();
        let (long_after, uneven_after) = uneven(&joined);
        let (long_before, uneven_before) = uneven(&led);
        // If the steps outside are much shorter or longer than the annotated ones, they are something else.
        let alike = [long_after, long_before].into_iter().map(|l| l.min(mean) / l.max(mean).max(1.0)).fold(1.0, f64::min);
        let unevenness = uneven_after.max(uneven_before);
        if alike < 0.5 || unevenness > 0.6 {
            continue;
        }
        let trust = f64::from(percent(unevenness)) * alike * agree as f64 / (agree + 1) as f64;
        let key = ((unevenness * 10.0) as u32, (spread / u64::from(agree.max(1) as u32)) as u32);
        let is_better = best.as_ref().is_none_or(|(u, s, b)| (key.0, key.1, stack) < (*u, *s, b.stack));
        if is_better {
            best = Some((key.0, key.1, Beyond { stack, before, after, confidence: trust as u8 }));
        }
    }
    best.map(|b| b.2)
}
