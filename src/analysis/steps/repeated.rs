//! Steps of a recording without annotations: a call stack that allocates once in each.

use rustc_hash::FxHashMap;

use super::{FEWEST, StepSource, Steps, percent, unevenness, unevenness_of};
use crate::analysis::{DeviceTables, LifetimeId, NO_EVENT};
use crate::model::{DeviceRecording, StackId};

/// Fewest repetitions of a stretch of a handful of events that make it a step.
const FEWEST_TINY: usize = 20;

/// More allocations than this by one stack are not one a step.
const MOST: usize = 20_000;

/// When each stack allocated, for the stacks that may do so once a step. O(lifetimes).
pub(super) fn births(device: &DeviceRecording, tables: &DeviceTables) -> FxHashMap<StackId, Vec<u32>> {
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

/// The stack whose allocations come at the most even distances, and few enough to be steps; from the event `loaded` on, before
/// which the recording only loads a model.
pub(super) fn by_stack(device: &DeviceRecording, tables: &DeviceTables, loaded: u32) -> Option<Steps> {
    let n = device.events.len() as u32;
    let rest = n - loaded.min(n);
    let mut births = births(device, tables);
    if loaded > 0 {
        births.values_mut().for_each(|list| list.retain(|&b| b >= loaded));
        births.retain(|_, list| list.len() >= FEWEST);
    }
    let mut best: Option<(f64, usize, StackId)> = None;
    for (&stack, list) in &births {
        let Some(in_events) = unevenness(list, rest) else { continue };
        // Where a collector frees at once what it finds now and then, steps differ in events and not in what they allocate.
        let unevenness = in_events.min(unevenness_of(&ordinals(list, tables)).1);
        // Of equally even stacks the one with most steps: a stack that allocates every second step is as even as the step itself.
        let better = match best {
            None => true,
            Some((u, count, s)) => {
                let (a, b) = ((unevenness * 10.0) as u32, (u * 10.0) as u32);
                (a, std::cmp::Reverse(list.len()), stack) < (b, std::cmp::Reverse(count), s)
            }
        };
        if unevenness < 0.35 && better {
            best = Some((unevenness, list.len(), stack));
        }
    }
    let (unevenness, _, stack) = best.or_else(|| {
        // Steps of a handful of events, where they come like clockwork and nothing else is there.
        let tiny = |list: &[u32]| {
            let (mean, uneven) = unevenness_of(list);
            mean >= 3.0 && uneven < 0.05 && f64::from(list[list.len() - 1] - list[0]) > 0.9 * f64::from(rest)
        };
        let even = births.iter().filter(|(_, list)| list.len() >= FEWEST_TINY && tiny(list));
        even.min_by_key(|(stack, list)| (std::cmp::Reverse(list.len()), **stack)).map(|(s, l)| (unevenness_of(l).1, l.len(), *s))
    })?;
    let mut bounds = births.remove(&stack)?;
    end_last(&mut bounds, loaded, device, tables);
    bounds.dedup();
    Some(Steps { bounds, source: StepSource::Stack(stack), confidence: percent(unevenness), ..Steps::default() })
}

/// How many allocations were made before each of these, which are events that allocate. O(number x log lifetimes).
fn ordinals(births: &[u32], tables: &DeviceTables) -> Vec<u32> {
    births.iter().map(|&born| ordinal(born, tables)).collect()
}

/// The first lifetime born at an event or later.
fn ordinal(event: u32, tables: &DeviceTables) -> u32 {
    let lifetimes = &tables.lifetimes;
    let (mut low, mut high) = (lifetimes.initial_count() as u32, lifetimes.len() as u32);
    while low < high {
        let middle = low + (high - low) / 2;
        if lifetimes.born(LifetimeId(middle)) < event { low = middle + 1 } else { high = middle }
    }
    low
}

/// Adds the end of the last step to the places where one stack allocates, once in each. Measured in allocations: what a step frees
/// may differ.
fn end_last(bounds: &mut Vec<u32>, loaded: u32, device: &DeviceRecording, tables: &DeviceTables) {
    let (n, end) = (device.events.len() as u32, tables.lifetimes.len() as u32);
    let at = ordinals(bounds, tables);
    let (first, last) = (at[0], at[at.len() - 1]);
    let mean = ((last - first) / (at.len() as u32 - 1)).max(1);
    let left = end - last;
    if left > mean {
        bounds.push(tables.lifetimes.born(LifetimeId(last + mean)));
    } else if u64::from(left) * 4 >= u64::from(mean) * 3 {
        // What is left after the last beginning could be most of a step.
        bounds.push(n);
    } else if ends_low(mean, device, tables) {
        to_beginnings(bounds, at, mean, loaded, device, tables);
        bounds.push(n);
    }
}

/// Whether a recording ends as a step does: of what the last `mean` allocations made about the least is in use, of all events that
/// as many allocations cover. What is older says nothing: it may grow from step to step. O(mean + events of a step).
fn ends_low(mean: u32, device: &DeviceRecording, tables: &DeviceTables) -> bool {
    let lifetimes = &tables.lifetimes;
    let (n, end) = (device.events.len() as u32, lifetimes.len() as u32);
    let Some(from) = end.checked_sub(mean).map(|o| lifetimes.born(LifetimeId(o))).filter(|&from| from < n) else { return false };
    let mut change = vec![0i64; (n - from) as usize + 1];
    for ordinal in end.saturating_sub(2 * mean).max(lifetimes.initial_count() as u32)..end {
        let id = LifetimeId(ordinal);
        let older = if ordinal + mean < end { lifetimes.born(LifetimeId(ordinal + mean)) } else { n };
        let until = lifetimes.gone(id).min(older).min(n);
        let bytes = lifetimes.block_size(id) as i64;
        change[lifetimes.born(id).saturating_sub(from) as usize] += bytes;
        change[until.saturating_sub(from) as usize] -= bytes;
    }
    let mut young = 0;
    let (mut least, mut most, mut last) = (i64::MAX, 0, 0);
    for bytes in &change[..change.len() - 1] {
        young += bytes;
        (least, most, last) = (least.min(young), most.max(young), young);
    }
    (last - least) * 10 <= most - least
}

/// Moves the places where one stack allocates, late in its step, to where the steps begin: back by so many allocations that the
/// last step ends with the recording. The first step may set something up beside what every step does: it begins where the stack
/// allocates that begins the others. Not before event `loaded`. `at`: their ordinals, `mean`: allocations a step.
fn to_beginnings(bounds: &mut [u32], at: Vec<u32>, mean: u32, loaded: u32, device: &DeviceRecording, tables: &DeviceTables) {
    let lifetimes = &tables.lifetimes;
    let back = mean.saturating_sub(lifetimes.len() as u32 - at[at.len() - 1]);
    let least = ordinal(loaded, tables);
    let stack = |ordinal: u32| lifetimes.stack(device, LifetimeId(ordinal));
    let mut begins: FxHashMap<StackId, u32> = FxHashMap::default();
    for &at in at.iter().skip(1) {
        *begins.entry(stack(at.saturating_sub(back).max(least))).or_default() += 1;
    }
    let usual = begins.into_iter().max_by_key(|&(stack, number)| (number, stack)).map(|b| b.0);
    for (i, (bound, at)) in bounds.iter_mut().zip(at).enumerate() {
        let mut begin = at.saturating_sub(back).max(least);
        if i == 0 && usual != Some(stack(begin)) {
            let earliest = at.saturating_sub(2 * mean).max(least);
            begin = (earliest..begin).rev().find(|&o| usual == Some(stack(o))).unwrap_or(begin);
        }
        let mut event = lifetimes.born(LifetimeId(begin));
        // The segment that was taken for the first allocation of a step is a part of it.
        while event > loaded && device.events.action[event as usize - 1].grows_reserved() {
            event -= 1;
        }
        *bound = event.min(*bound);
    }
}
