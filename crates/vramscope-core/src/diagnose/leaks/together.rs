//! Growth that no single stack shows: several stacks leave memory behind in turn, or one does so now and then, or only in the
//! second half. It shows in the level that all memory returns to in every step.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Growth, LEAST_A_STEP, LEAST_NOW_AND_THEN, Looked, Rhythm, Survival, fit, goes_on, grown, line};
use crate::model::StackId;

/// Steps needed from the beginning of such growth to recognise it.
const FEWEST_STEPS: usize = 20;

/// Number of steps that must add memory, over all stacks together.
const FEWEST_ADDING: usize = 8;

/// Marks the stacks that together make `floors` rise steadily, leaving out stacks already known to leak. `alive`: the surviving
/// allocations. The rise may begin after a quarter, a third or half of the steps. O(survivors + known leaks × steps).
pub(super) fn mark(found: &mut [Growth], alive: &FxHashMap<StackId, Survival>, floors: &[u64], looked: &Looked) {
    let (n, end) = (looked.count, looked.within.end);
    if n < FEWEST_STEPS {
        return;
    }
    let mut base: Vec<f64> = floors.iter().map(|&f| f as f64).collect();
    let mut known = 0;
    for (i, floor) in base.iter_mut().enumerate() {
        *floor -= known as f64;
        known += found.iter().filter(|g| g.is_leak()).filter_map(|g| g.by_step.get(i)).sum::<u64>();
    }
    let leaking: FxHashSet<StackId> = found.iter().filter(|g| g.is_leak()).map(|g| g.stack).collect();
    let mut left: FxHashMap<StackId, Vec<(usize, u64)>> = FxHashMap::default();
    for (&stack, survival) in alive.iter().filter(|(stack, _)| !leaking.contains(*stack)) {
        let mut by_step: Vec<(usize, u64)> = Vec::new();
        for (step, size) in survival.iter().filter_map(|&(_, size, step)| Some((step?, size))) {
            match by_step.last_mut() {
                Some(last) if last.0 == step => last.1 += size,
                _ => by_step.push((step, size)),
            }
        }
        left.insert(stack, by_step);
    }
    let starts = [looked.within.start, n / 4, n / 3, n / 2];
    let windows = starts.into_iter().filter(|&start| start >= looked.within.start && n - start >= FEWEST_STEPS);
    let mut best: Option<(f64, usize, Vec<StackId>)> = None;
    for start in windows {
        if let Some((confidence, stacks)) = climbs(&left, &base, start, end)
            && best.as_ref().is_none_or(|b| confidence > b.0 + 0.02)
        {
            best = Some((confidence, start, stacks));
        }
    }
    let Some((_, start, stacks)) = best else { return };
    let first = stacks.iter().filter_map(|s| left.get(s)).flatten().map(|l| l.0).filter(|&step| step >= start).min();
    let since = if start > looked.within.start { first.unwrap_or(start) } else { 0 };
    let within = since.max(looked.within.start)..end;
    let looked = Looked { count: n, within };
    for stack in stacks {
        let Some(mut g) = alive.get(&stack).and_then(|s| grown(stack, s, &looked, None)) else { continue };
        g.since = since;
        if !g.is_leak() {
            g.rhythm = Rhythm::Uneven;
        }
        if let Some(old) = found.iter_mut().find(|old| old.stack == stack) {
            *old = g;
        }
    }
}

/// The stacks that make up a rise from step `start` to `end`, and how well a line fits the memory they leave behind. `None` if
/// memory as a whole does not rise with them, as when one object replaces another. `left`: bytes by step for each stack.
fn climbs(left: &FxHashMap<StackId, Vec<(usize, u64)>>, base: &[f64], start: usize, end: usize) -> Option<(f64, Vec<StackId>)> {
    let within = |by_step: &[(usize, u64)]| {
        let (from, to) = (by_step.partition_point(|l| l.0 < start), by_step.partition_point(|l| l.0 < end));
        from..to
    };
    let mut stacks: Vec<(u64, StackId)> = Vec::new();
    for (&stack, by_step) in left {
        let within = &by_step[within(by_step)];
        // A single occurrence is not growth.
        if within.len() >= 2 {
            stacks.push((within.iter().map(|l| l.1).sum(), stack));
        }
    }
    stacks.sort_unstable_by_key(|&(bytes, stack)| (std::cmp::Reverse(bytes), stack));
    let all: u64 = stacks.iter().map(|s| s.0).sum();
    // Keep the stacks that make up nearly all of it.
    let mut rest = all;
    stacks.retain(|&(bytes, _)| {
        let is_part = rest * 20 > all;
        rest -= bytes;
        is_part
    });
    let mut joint = vec![0; end - start];
    for by_step in stacks.iter().filter_map(|s| left.get(&s.1)) {
        for &(step, bytes) in &by_step[within(by_step)] {
            joint[step - start] += bytes;
        }
    }
    let (slope, confidence) = line(&joint);
    let adding: Vec<usize> = joint.iter().enumerate().filter(|&(_, &b)| b > 0).map(|(i, _)| i).collect();
    let largest = joint.iter().copied().max().unwrap_or(0);
    let is_steady = confidence > 0.9 && slope >= LEAST_A_STEP && adding.len() >= FEWEST_ADDING && goes_on(&adding, joint.len());
    if !is_steady || largest < LEAST_NOW_AND_THEN {
        return None;
    }
    let rises = fit(&base[start..end]);
    (rises.0 * 2.0 >= slope && rises.1 > 0.5).then(|| (confidence, stacks.into_iter().map(|s| s.1).collect()))
}
