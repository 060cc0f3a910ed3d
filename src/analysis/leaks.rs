//! Leaks: what survives its step, by call stack, and how steadily it grows; memory that climbs and drops like a saw; and what
//! was born after one instant and is alive at another.

use rustc_hash::FxHashMap;

use super::steps::Steps;
use super::{DeviceTables, LifetimeId, NO_EVENT, Quantity};
use crate::model::{DeviceRecording, StackId};

/// Growth of one call stack over the steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Growth {
    /// The stack.
    pub stack: StackId,
    /// Requested bytes alive at the end that were born in a step before the last two.
    pub bytes: u64,
    /// Their number.
    pub count: u64,
    /// Bytes a step adds: slope of the least-squares line through the survivors' cumulative sum.
    pub bytes_per_step: f64,
    /// Coefficient of determination of that line, 0 to 1.
    pub confidence: f64,
    /// Steps that left something behind.
    pub steps_adding: usize,
    /// Steps looked at.
    pub steps: usize,
    /// The first step looked at, as an index of the bounds: those before it warm up.
    pub first_step: usize,
    /// Survivors' bytes by the step they were born in, from the first one looked at.
    pub by_step: Vec<u64>,
    /// Some of the surviving allocations, oldest first.
    pub examples: Vec<LifetimeId>,
}

impl Growth {
    /// Steady growth: at least five steps, four in five of them add, and the line explains nine tenths of it.
    #[must_use]
    pub fn is_leak(&self) -> bool {
        self.steps >= 5 && self.steps_adding * 5 >= self.steps * 4 && self.confidence > 0.9 && self.bytes_per_step >= 512.0
    }
}

/// Steps at the start that may build caches, optimizer states and workspaces.
const WARM_UP: usize = 2;
/// Steps at the end whose survivors may simply not be done yet.
const UNFINISHED: usize = 2;

/// Events below which equal stretches of a recording without steps say nothing: eight in each of the twelve.
const FEWEST_EVENTS: usize = 96;

/// Whether the recording is long enough to tell what grows: it has steps enough, or some events in each equal stretch.
#[must_use]
pub fn can_tell(device: &DeviceRecording, steps: &Steps) -> bool {
    steps.len() > WARM_UP + UNFINISHED || device.events.len() >= FEWEST_EVENTS
}

/// Growth by stack, most bytes first. Without steps the recording is cut into twelve equal stretches. O(lifetimes).
#[must_use]
pub fn growth(device: &DeviceRecording, tables: &DeviceTables, steps: &Steps) -> Vec<Growth> {
    let bounds = stretches(device, steps);
    let bounds: &[u32] = &bounds;
    let count = bounds.len().saturating_sub(1);
    if count <= WARM_UP + UNFINISHED {
        return Vec::new();
    }
    let steady = WARM_UP..count - UNFINISHED;
    let mut per_stack: FxHashMap<StackId, (Vec<u64>, u64, Vec<LifetimeId>)> = FxHashMap::default();
    let lifetimes = &tables.lifetimes;
    for i in 0..lifetimes.len() as u32 {
        let id = LifetimeId(i);
        let born = lifetimes.born(id);
        if born == NO_EVENT || lifetimes.gone(id) != NO_EVENT || lifetimes.free_requested(id) != NO_EVENT {
            continue;
        }
        let step = bounds.partition_point(|&b| b <= born).saturating_sub(1);
        if born < bounds[0] || !steady.contains(&step) {
            continue;
        }
        let entry = per_stack.entry(lifetimes.stack(device, id)).or_insert_with(|| (vec![0; steady.len()], 0, Vec::new()));
        entry.0[step - steady.start] += lifetimes.requested(device, id);
        entry.1 += 1;
        if entry.2.len() < 100 {
            entry.2.push(id);
        }
    }
    let mut found: Vec<Growth> = per_stack
        .into_iter()
        .map(|(stack, (by_step, number, examples))| {
            let (slope, confidence) = line(&by_step);
            Growth {
                stack,
                bytes: by_step.iter().sum(),
                count: number,
                bytes_per_step: slope,
                confidence,
                steps_adding: by_step.iter().filter(|&&b| b > 0).count(),
                steps: by_step.len(),
                first_step: steady.start,
                by_step,
                examples,
            }
        })
        .collect();
    found.sort_by_key(|g| (std::cmp::Reverse(g.bytes), g.stack));
    found
}

/// The bounds growth is looked at in: the steps, or twelve equal stretches of events where there are too few steps.
#[must_use]
pub fn stretches<'a>(device: &DeviceRecording, steps: &'a Steps) -> std::borrow::Cow<'a, [u32]> {
    let n = device.events.len() as u64;
    if steps.len() > WARM_UP + UNFINISHED {
        std::borrow::Cow::Borrowed(&steps.bounds)
    } else {
        std::borrow::Cow::Owned((0..=12).map(|i| (n * i / 12) as u32).collect())
    }
}

/// The fewest requested bytes live within each stretch: what every step comes back to. O(stretches).
#[must_use]
pub fn floors(device: &DeviceRecording, tables: &DeviceTables, bounds: &[u32]) -> Vec<u64> {
    tables.curves.columns(device, &tables.lifetimes, Quantity::Requested, bounds).iter().map(|c| c.min).collect()
}

/// Memory that climbs over several steps and drops at once, again and again: objects in reference cycles, which live until
/// Python's garbage collector runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SawTooth {
    /// For each tooth: the step it begins in, the step it drops in, and the bytes it drops by.
    pub teeth: Vec<(usize, usize, u64)>,
}

/// Finds a saw-tooth in the floors of successive steps: at least three teeth, each rising for three steps or more and then
/// falling within a step by more than a fifth of the range. Garbage collection is not in time with the steps; what every step
/// frees itself never shows in the floors. Source: rule 6 of the diagnoses. O(steps).
#[must_use]
pub fn saw_tooth(floors: &[u64], peak: u64) -> Option<SawTooth> {
    const LEAST_TEETH: usize = 3;
    const LEAST_RISE: usize = 3;
    let steady = floors.get(WARM_UP..floors.len().saturating_sub(1))?;
    let (low, high) = (*steady.iter().min()?, *steady.iter().max()?);
    let range = high - low;
    // A ripple on a high plateau is nobody's trouble.
    if range.saturating_mul(20) < peak {
        return None;
    }
    let mut teeth = Vec::new();
    let mut begin = 0;
    for i in 1..steady.len() {
        if steady[i] >= steady[i - 1] {
            continue;
        }
        let (rise, drop) = (steady[i - 1] - steady[begin], steady[i - 1] - steady[i]);
        if i - 1 - begin >= LEAST_RISE && rise.saturating_mul(5) > range && drop.saturating_mul(5) > range {
            teeth.push((begin + WARM_UP, i + WARM_UP, drop));
        }
        begin = i;
    }
    (teeth.len() >= LEAST_TEETH).then_some(SawTooth { teeth })
}

/// What one call stack left between two instants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivors {
    /// The stack.
    pub stack: StackId,
    /// Requested bytes born after A and alive at B.
    pub bytes: u64,
    /// Their number.
    pub count: u64,
    /// The event that allocated the oldest of them.
    pub oldest: u32,
    /// Some of them, oldest first.
    pub examples: Vec<LifetimeId>,
}

/// What was born after event `a` and is alive after event `b`, by stack, most bytes first. O(live at `b`).
#[must_use]
pub fn between(device: &DeviceRecording, tables: &DeviceTables, a: u32, b: u32) -> Vec<Survivors> {
    let lifetimes = &tables.lifetimes;
    let mut by_stack: FxHashMap<StackId, Survivors> = FxHashMap::default();
    for id in tables.states.live_at(device, lifetimes, b) {
        let born = lifetimes.born(id);
        if born == NO_EVENT || born <= a {
            continue;
        }
        let stack = lifetimes.stack(device, id);
        let entry = by_stack.entry(stack).or_insert(Survivors { stack, bytes: 0, count: 0, oldest: born, examples: Vec::new() });
        entry.bytes += lifetimes.requested(device, id);
        entry.count += 1;
        entry.oldest = entry.oldest.min(born);
        if entry.examples.len() < 100 {
            entry.examples.push(id);
        }
    }
    let mut found: Vec<Survivors> = by_stack.into_values().collect();
    found.sort_by_key(|s| (std::cmp::Reverse(s.bytes), s.stack));
    found
}

/// Slope and coefficient of determination of the least-squares line through the cumulative sum.
fn line(by_step: &[u64]) -> (f64, f64) {
    let n = by_step.len() as f64;
    let mut sum = 0.0;
    let ys: Vec<f64> = by_step
        .iter()
        .map(|&b| {
            sum += b as f64;
            sum
        })
        .collect();
    let mean_x = (n - 1.0) / 2.0;
    let mean_y = ys.iter().sum::<f64>() / n;
    let (mut sxy, mut sxx, mut syy) = (0.0, 0.0, 0.0);
    for (i, y) in ys.iter().enumerate() {
        let (dx, dy) = (i as f64 - mean_x, y - mean_y);
        sxy += dx * dy;
        sxx += dx * dx;
        syy += dy * dy;
    }
    if sxx == 0.0 || syy == 0.0 { (0.0, 0.0) } else { (sxy / sxx, sxy * sxy / (sxx * syy)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_climb_is_certain_and_a_single_jump_is_not() {
        let (slope, sure) = line(&[10, 10, 10, 10, 10, 10, 10, 10]);
        assert!((slope - 10.0).abs() < 1e-9 && sure > 0.999);
        let (_, unsure) = line(&[0, 0, 0, 0, 0, 0, 0, 80]);
        assert!(unsure < 0.5, "{unsure}");
        assert_eq!(line(&[0, 0, 0]), (0.0, 0.0));
    }

    #[test]
    fn a_saw_is_seen_and_a_ramp_or_a_ripple_is_not() {
        let saw: Vec<u64> = (0..42).map(|i| 1000 + 100 * (i % 8)).collect();
        let found = saw_tooth(&saw, 4000).expect("a saw");
        assert_eq!(found.teeth.len(), 5);
        assert_eq!(found.teeth[0], (2, 8, 700));
        let ramp: Vec<u64> = (0..42).map(|i| 1000 + 100 * i).collect();
        assert_eq!(saw_tooth(&ramp, 4000), None);
        assert_eq!(saw_tooth(&saw, 100_000), None, "a ripple");
        let every_step: Vec<u64> = (0..42).map(|i| 1000 + 700 * (i % 2)).collect();
        assert_eq!(saw_tooth(&every_step, 4000), None);
        assert_eq!(saw_tooth(&[], 0), None);
        assert_eq!(saw_tooth(&[1], 0), None);
    }

    #[test]
    fn a_handful_of_events_tells_nothing() {
        use crate::model::{Action, PoolId, StreamId};
        let mut d = DeviceRecording::default();
        for i in 0..95 {
            d.events.push(i, Action::Alloc, 0x1000 * (i as u64 + 1), 512, StreamId(0), PoolId(0), StackId(0));
        }
        let none = Steps::default();
        assert!(!can_tell(&d, &none));
        assert!(can_tell(&d, &Steps { bounds: (0..=5).map(|i| i * 19).collect(), ..Steps::default() }));
        d.events.push(95, Action::Alloc, 0x100_0000, 512, StreamId(0), PoolId(0), StackId(0));
        assert!(can_tell(&d, &none));
    }

    #[test]
    fn between_two_instants_only_what_was_born_after_the_first_and_lives_at_the_second() {
        use crate::model::{Action, PoolId, Progress, StreamId};
        let mut d = DeviceRecording::default();
        let mut push = |action, address, size, stack| {
            d.events.push(0, action, address, size, StreamId(0), PoolId(0), StackId(stack));
        };
        push(Action::Alloc, 0x1000, 100, 0);
        push(Action::Alloc, 0x2000, 200, 1);
        push(Action::Alloc, 0x3000, 300, 1);
        push(Action::FreeRequested, 0x2000, 200, 2);
        push(Action::FreeCompleted, 0x2000, 200, 2);
        push(Action::Alloc, 0x4000, 400, 0);
        let tables = DeviceTables::build(&d, &Progress::new()).expect("not cancelled");
        let of = |a, b| between(&d, &tables, a, b).iter().map(|s| (s.stack.0, s.bytes, s.count, s.oldest)).collect::<Vec<_>>();
        assert_eq!(of(0, 5), [(0, 400, 1, 5), (1, 300, 1, 2)]);
        assert_eq!(of(0, 2), [(1, 500, 2, 1)]);
        assert_eq!(of(5, 5), []);
    }
}
