//! Growth that no stack shows by itself: several leave something behind by turns, or one does now and then, or only since half
//! way. What all memory comes back to in every step tells it.

use rustc_hash::FxHashMap;

use super::{Growth, LEAST_A_STEP, LEAST_NOW_AND_THEN, Looked, Rhythm, Survival, fit, grown, line};
use crate::model::StackId;

/// Steps from the beginning of such growth on that it takes to see it. Source: rule 5 of the diagnoses.
const FEWEST_STEPS: usize = 20;

/// Steps that add something, of all the stacks together.
const FEWEST_ADDING: usize = 8;

/// Marks the stacks that together make up a steady climb of `floors`, those aside that are known to leak. `alive`: what survives.
/// The climb may begin after a quarter, a third or half of the steps. O(survivors + stacks x steps).
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
    let mut survivals: FxHashMap<StackId, Vec<u64>> = FxHashMap::default();
    for (&stack, survival) in alive {
        if found.iter().any(|g| g.is_leak() && g.stack == stack) {
            continue;
        }
        let mut by_step = vec![0; n];
        for &(_, size, step) in survival {
            if let Some(b) = step.and_then(|s| by_step.get_mut(s)) {
                *b += size;
            }
        }
        survivals.insert(stack, by_step);
    }
    let starts = [looked.within.start, n / 4, n / 3, n / 2];
    let windows = starts.into_iter().filter(|&start| start >= looked.within.start && n - start >= FEWEST_STEPS);
    let mut best: Option<(f64, usize, Vec<StackId>)> = None;
    for start in windows {
        if let Some((confidence, stacks)) = climbs(&survivals, &base, start, end)
            && best.as_ref().is_none_or(|b| confidence > b.0 + 0.02)
        {
            best = Some((confidence, start, stacks));
        }
    }
    let Some((_, start, stacks)) = best else { return };
    let adds = |step: &usize| stacks.iter().any(|s| survivals[s][*step] > 0);
    let since = if start > looked.within.start { (start..end).find(adds).unwrap_or(start) } else { 0 };
    let within = since.max(looked.within.start)..end;
    let looked = Looked { count: n, within, by_steps: true };
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

/// The stacks that make up a climb from step `start` to `end`, and how well a line fits what they leave behind; `None` where memory
/// as a whole does not climb with them, as where one thing goes for the other that comes.
fn climbs(survivals: &FxHashMap<StackId, Vec<u64>>, base: &[f64], start: usize, end: usize) -> Option<(f64, Vec<StackId>)> {
    // What comes once is no growth.
    let again = |by_step: &[u64]| by_step[start..end].iter().filter(|&&b| b > 0).count() >= 2;
    let sum = |by_step: &[u64]| by_step[start..end].iter().sum::<u64>();
    let mut stacks: Vec<(u64, StackId)> = survivals.iter().filter(|s| again(s.1)).map(|(&stack, s)| (sum(s), stack)).collect();
    stacks.sort_unstable_by_key(|&(bytes, stack)| (std::cmp::Reverse(bytes), stack));
    let all: u64 = stacks.iter().map(|s| s.0).sum();
    // Those that make up nearly all of it.
    let mut left = all;
    stacks.retain(|&(bytes, _)| {
        let is_part = left * 20 > all;
        left -= bytes;
        is_part
    });
    let joint: Vec<u64> = (start..end).map(|i| stacks.iter().map(|(_, s)| survivals[s][i]).sum()).collect();
    let (slope, confidence) = line(&joint);
    let adding = joint.iter().filter(|&&b| b > 0).count();
    let largest = joint.iter().copied().max().unwrap_or(0);
    if confidence <= 0.9 || slope < LEAST_A_STEP || adding < FEWEST_ADDING || largest < LEAST_NOW_AND_THEN {
        return None;
    }
    let rises = fit(&base[start..end]);
    (rises.0 * 2.0 >= slope && rises.1 > 0.5).then(|| (confidence, stacks.into_iter().map(|s| s.1).collect()))
}
