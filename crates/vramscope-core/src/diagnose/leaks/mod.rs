//! Leaks: memory that survives its step, by call stack, and how steadily it grows; memory that rises and drops like a saw tooth;
//! and memory allocated after one instant that is live at another.

mod between;
mod saw_tooth;
#[cfg(test)]
mod tests;
mod together;
mod words;

use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

pub use self::between::{Survivors, between};
pub use self::saw_tooth::{SawTooth, saw_tooth};
pub use self::words::{adding, adds, how_often, leaking, no_leak, pace};
use crate::anatomy::steps::{StepSource, Steps};
use crate::model::{DeviceRecording, StackId};
use crate::tables::{DeviceTables, LifetimeId, NO_EVENT, Quantity};
use crate::units::{MEBIBYTE, counted};

/// Growth of one call stack over the steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Growth {
    /// The stack of its allocations; [`StackId::NONE`] collects those without one.
    pub stack: StackId,
    /// Requested bytes of this stack that are live at the end (regardless of when they were allocated and of their size), or that
    /// were freed together. Setup blocks of the stack's first calls, which differ from what every step leaves behind, do not count.
    pub bytes: u64,
    /// Bytes added per step: the mean over the examined steps, without warm-up and unfinished ones, or over whole periods.
    pub bytes_per_step: f64,
    /// Coefficient of determination of the least-squares line through the survivors' cumulative sum, 0 to 1.
    pub confidence: f64,
    /// The step at which growth begins; 0 unless it began later.
    pub since: usize,
    /// Number of steps that left memory behind.
    pub steps_adding: usize,
    /// Number of steps that could leave memory behind: all, or those before it was freed.
    pub steps: usize,
    /// Surviving bytes by the step in which they were allocated. Allocations outside the steps count only in `bytes`.
    pub by_step: Vec<u64>,
    /// The allocations in [`bytes`](Self::bytes), oldest first.
    pub survivors: Vec<LifetimeId>,
    /// The event at which the program began to free all of it at once; `None` if it is live at the end.
    pub freed: Option<u32>,
    /// How regular the growth is.
    pub rhythm: Rhythm,
}

/// How regularly memory grows over the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rhythm {
    /// Too irregular to be expected to continue.
    None,
    /// In at least four of five steps, or in all of four.
    Step,
    /// Once in this many steps, for example if an evaluation follows every tenth step.
    Every(usize),
    /// At irregular distances, or only together with other stacks; their total follows a line.
    Uneven,
}

impl Growth {
    /// Number of the surviving allocations.
    pub fn count(&self) -> u64 {
        self.survivors.len() as u64
    }

    /// True for steady growth: a straight line explains over nine tenths of it, and it occurs in four of five steps or at even
    /// distances. Also true for a stack that explains, alone or with others, the growth of the level that all memory returns to.
    pub fn is_leak(&self) -> bool {
        self.rhythm != Rhythm::None
    }

    /// True for small tensors that nearly every step leaves behind, such as numbers. They are too few bytes to fill a device.
    pub fn is_trickle(&self) -> bool {
        let steady = self.by_step.get(steady(self.by_step.len())).unwrap_or_default();
        let is_even = self.confidence > 0.9 && self.bytes_per_step > 0.0 && self.bytes_per_step < LEAST_A_STEP;
        is_even && self.freed.is_none() && rhythm(steady) == Rhythm::Step
    }
}

/// Number of steps ignored at either end if there are many: the first ones may build caches, optimizer state and workspaces, and
/// the last ones may not have freed everything yet.
const MARGIN: usize = 2;
/// From this many steps on, two are ignored at either end; with fewer steps, one.
const MANY: usize = 12;
/// Steps needed between the margins.
const FEWEST_STEADY: usize = 5;
/// Number of steps that suffices for any program, including those at either end; users are told to record this many.
const ENOUGH: usize = FEWEST_STEADY + 2;
/// Steps needed between the margins if optimizer calls define them: they cannot be layers, and training leaves nothing behind.
const FEWEST_TRAINING: usize = 4;
/// Steps needed to call memory that was freed later a leak; fewer may be the layers of a network.
const FEWEST_FREED: usize = 20;
/// The same if optimizer calls define the steps.
const FEWEST_FREED_TRAINING: usize = 6;
/// The same if a step is several calls of the model, such as a server request, which no layer is.
const FEWEST_FREED_REQUESTS: usize = 10;

/// Growth of fewer bytes per step does not fill a device.
const LEAST_A_STEP: f64 = 512.0;

/// Smallest allocation that counts as a leak if only some steps leave it behind.
const LEAST_NOW_AND_THEN: u64 = 1 << 16;

/// The steps without warm-up and without those that may be unfinished.
fn steady(count: usize) -> std::ops::Range<usize> {
    let margin = if count >= MANY { MARGIN } else { 1 };
    margin..count.saturating_sub(margin).max(margin)
}

/// True if there are enough steps to look for growth. Growth within one pass, one loading or one step is not a leak.
pub fn has_steps(steps: &Steps) -> bool {
    steps.len() >= fewest(steps)
}

/// The fewest steps in which to look for growth, including one at either end.
pub fn fewest(steps: &Steps) -> usize {
    if ends_with_optimizer(steps) { FEWEST_TRAINING + 2 } else { ENOUGH }
}

/// True if the steps cannot be layers.
fn ends_with_optimizer(steps: &Steps) -> bool {
    steps.source.is_optimizer() || matches!(steps.source, StepSource::Optimizer(_))
}

/// Why a recording cannot show growth, as a sentence; `None` if it can.
pub fn cannot_tell(device: &DeviceRecording, steps: &Steps) -> Option<String> {
    match steps.len() {
        _ if has_steps(steps) => None,
        0 if device.events.is_empty() => Some("The file has no history, only what was live when it was dumped. Two files of one run tell what grew: vramscope diff A B.".to_owned()),
        0 => Some("There are no steps to compare, so growth from step to step cannot be judged.".to_owned()),
        n => Some(format!(
            "{} too few to tell a leak from normal growth. Record at least {ENOUGH} steps of the same run.",
            counted(n as u64, "step is", "steps are")
        )),
    }
}

/// The data examined, as a subtitle: `60 steps`.
pub fn looked_at(steps: &Steps) -> String {
    counted(steps.len() as u64, "step", "steps")
}

/// The surviving allocations of one stack, oldest first: allocation, bytes, and the step in which it was made. The step is `None`
/// before the first step, and the number of steps after the last.
type Survival = Vec<(LifetimeId, u64, Option<usize>)>;

/// The steps in which to look for growth.
struct Looked {
    /// Number of all steps.
    count: usize,
    /// The decisive steps: those not ignored at either end.
    within: Range<usize>,
}

/// The growth of one stack; `None` if none of it comes from the decisive steps.
fn grown(stack: StackId, survival: &Survival, looked: &Looked, freed: Option<u32>) -> Option<Growth> {
    let Looked { count, ref within } = *looked;
    let set_up = set_up(survival, within)?;
    let mut by_step = vec![0; count];
    let (mut bytes, mut most, mut survivors) = (0, 0, Vec::new());
    // Allocations without a stack come from many places. Of these, only sizes that recur in most steps count as growth.
    let sizes = if stack.is_some() { FxHashSet::default() } else { recurring(survival, within) };
    let beside = if stack.is_some() { FxHashSet::default() } else { beside(survival, looked, &sizes) };
    let belongs = |id: LifetimeId, size: u64| (sizes.is_empty() || sizes.contains(&size)) && !beside.contains(&id);
    for &(id, size, step) in survival.iter().filter(|s| !set_up.contains(&s.0) && belongs(s.0, s.1)) {
        bytes += size;
        most = most.max(size);
        if let Some(b) = step.and_then(|s| by_step.get_mut(s)) {
            *b += size;
        }
        survivors.push(id);
    }
    let steady = &by_step[within.clone()];
    let (slope, confidence) = line(steady);
    let rhythm = match rhythm(steady) {
        _ if confidence <= 0.9 || slope < LEAST_A_STEP => Rhythm::None,
        // A scalar every few steps is what a program logs.
        Rhythm::Every(_) if most < LEAST_NOW_AND_THEN => Rhythm::None,
        found => found,
    };
    Some(Growth {
        stack,
        bytes,
        bytes_per_step: mean(steady, rhythm),
        confidence,
        since: 0,
        steps_adding: by_step.iter().filter(|&&b| b > 0).count(),
        steps: count,
        by_step,
        survivors,
        freed,
        rhythm,
    })
}

/// Factor by which a block must exceed the largest one that the decisive steps leave, to count as much larger.
const MUCH_LARGER: u64 = 4;

/// Sizes that at least half of the decisive steps leave behind.
fn recurring(survival: &Survival, within: &Range<usize>) -> FxHashSet<u64> {
    let mut steps: FxHashMap<u64, FxHashSet<usize>> = FxHashMap::default();
    for &(_, size, step) in survival {
        if let Some(step) = step.filter(|step| within.contains(step)) {
            steps.entry(size).or_default().insert(step);
        }
    }
    steps.into_iter().filter(|(_, in_steps)| in_steps.len() * 2 >= within.len()).map(|(size, _)| size).collect()
}

/// Allocations with a growing size that come from other lines, such as weights and optimizer state. These are: allocations before
/// the first step; in a step at either end, all of a size except the last ones, as many as a decisive step leaves; and of all
/// together, the first ones beyond that number per step.
fn beside(survival: &Survival, looked: &Looked, sizes: &FxHashSet<u64>) -> FxHashSet<LifetimeId> {
    let Looked { count, ref within } = *looked;
    let mut of_step: FxHashMap<(u64, usize), Vec<LifetimeId>> = FxHashMap::default();
    let mut others = FxHashSet::default();
    for &(id, size, step) in survival.iter().filter(|s| sizes.contains(&s.1)) {
        match step {
            Some(step) => of_step.entry((size, step)).or_default().push(id),
            None => _ = others.insert(id),
        }
    }
    let mut usual: FxHashMap<u64, usize> = FxHashMap::default();
    for ((size, _), ids) in of_step.iter().filter(|((_, step), _)| within.contains(step)) {
        let most = usual.entry(*size).or_default();
        *most = ids.len().max(*most);
    }
    for ((size, _), ids) in of_step.iter().filter(|((_, step), _)| !within.contains(step)) {
        let kept = usual.get(size).copied().unwrap_or(0);
        others.extend(&ids[..ids.len().saturating_sub(kept)]);
    }
    let mut left: FxHashMap<u64, usize> = usual.iter().map(|(&size, n)| (size, n * count)).collect();
    for &(id, size, _) in survival.iter().rev().filter(|s| sizes.contains(&s.1) && !others.contains(&s.0)).collect::<Vec<_>>() {
        match left.get_mut(&size).filter(|left| **left > 0) {
            Some(left) => *left -= 1,
            None => _ = others.insert(id),
        }
    }
    others
}

/// Blocks that the first calls of a line made in addition to what every step leaves behind, such as a library's workspace: their
/// size differs, and they are more numerous than in any decisive step, or larger by [`MUCH_LARGER`]. What a leak leaves varies in
/// size, but not so much in number. `None` if nothing comes from the decisive steps.
fn set_up(survival: &Survival, within: &Range<usize>) -> Option<FxHashSet<LifetimeId>> {
    let mut numbers: FxHashMap<usize, usize> = FxHashMap::default();
    let (mut least, mut most) = (u64::MAX, 0);
    for &(_, size, step) in survival {
        if let Some(step) = step.filter(|s| within.contains(s)) {
            *numbers.entry(step).or_default() += 1;
            (least, most) = (least.min(size), most.max(size));
        }
    }
    let usual = numbers.values().copied().max()?;
    let mut early: FxHashMap<Option<usize>, (usize, Vec<LifetimeId>)> = FxHashMap::default();
    let mut large = Vec::new();
    for &(id, size, step) in survival.iter().filter(|s| s.2.is_none_or(|step| step < within.start)) {
        if size >= most.saturating_mul(MUCH_LARGER) {
            large.push(id);
            continue;
        }
        let (number, others) = early.entry(step).or_default();
        *number += 1;
        if !(least..=most).contains(&size) {
            others.push(id);
        }
    }
    let beside = |(number, others): (usize, Vec<LifetimeId>)| others.into_iter().take(number.saturating_sub(usual));
    Some(early.into_values().flat_map(beside).chain(large).collect())
}

/// Mean bytes added per step; over whole periods if the adding steps have even distances.
fn mean(by_step: &[u64], rhythm: Rhythm) -> f64 {
    let first = by_step.iter().position(|&b| b > 0).unwrap_or(0);
    let last = by_step.iter().rposition(|&b| b > 0).unwrap_or(0);
    let over = if matches!(rhythm, Rhythm::Every(_)) && last > first { &by_step[first..last] } else { by_step };
    over.iter().sum::<u64>() as f64 / over.len().max(1) as f64
}

/// True if growth goes on to the last of `n` steps. It has ended after a gap more than twice as long as the longest before.
fn goes_on(adding: &[usize], n: usize) -> bool {
    let longest = adding.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(1);
    adding.last().is_some_and(|last| n - last <= 2 * longest + 2)
}

/// How regular the growth is: in four of five steps, or in at least five steps at even distances.
fn rhythm(by_step: &[u64]) -> Rhythm {
    let adding: Vec<usize> = by_step.iter().enumerate().filter(|&(_, &b)| b > 0).map(|(i, _)| i).collect();
    let (n, k) = (by_step.len(), adding.len());
    if !goes_on(&adding, n) {
        return Rhythm::None;
    }
    if k >= FEWEST_TRAINING && k * 5 >= n * 4 {
        return Rhythm::Step;
    }
    let (Some(&first), Some(&last)) = (adding.first(), adding.last()) else { return Rhythm::None };
    if k < FEWEST_STEADY {
        return Rhythm::None;
    }
    let every = (last - first) as f64 / (k - 1) as f64;
    let even = adding.windows(2).all(|w| ((w[1] - w[0]) as f64) <= every * 1.5);
    let reaches = (first as f64) < every * 1.5 && ((n - last) as f64) < every * 1.5 + 1.0;
    if even && reaches && every >= 1.5 { Rhythm::Every(every.round() as usize) } else { Rhythm::None }
}

/// Growth below this many bytes in total, or below a fiftieth of the peak, would need thousands of steps to matter.
const LEAST: u64 = MEBIBYTE;

/// Growth by stack, most bytes first: of memory live at the end, and of memory that grew for at least twenty steps and was then
/// freed at once, such as a list that goes out of scope. Growth by several stacks in turn, or by one now and then, is recognised
/// by the level that all memory returns to. Empty if there are too few steps. O(lifetimes).
pub fn growth(device: &DeviceRecording, tables: &DeviceTables, steps: &Steps) -> Vec<Growth> {
    if !has_steps(steps) {
        return Vec::new();
    }
    let bounds: &[u32] = &steps.bounds;
    let count = steps.len();
    let looked = Looked { count, within: steady(count) };
    let lifetimes = &tables.lifetimes;
    let has_pools = device.pools.iter().any(|&key| key != (0, 0));
    let mut alive: FxHashMap<StackId, Survival> = FxHashMap::default();
    // For each stack, when it freed blocks that had outlived their step and the next two.
    let mut old: FxHashMap<StackId, Vec<(u32, LifetimeId)>> = FxHashMap::default();
    for i in 0..lifetimes.len() as u32 {
        let id = LifetimeId(i);
        let step = step_of(bounds, lifetimes.born(id));
        let freed = freed_at(tables, id);
        if freed == NO_EVENT {
            if has_pools && is_captured(device, tables, id) {
                continue;
            }
            alive.entry(lifetimes.stack(device, id)).or_default().push((id, lifetimes.requested(device, id), step));
        } else if step.is_none_or(|s| bounds.get(s + 3).is_some_and(|&b| freed >= b)) {
            old.entry(lifetimes.stack(device, id)).or_default().push((freed, id));
        }
    }
    let mut found: Vec<Growth> = alive.iter().filter_map(|(&stack, s)| grown(stack, s, &looked, None)).collect();
    let is_full = |stack: &StackId, s: &Survival| {
        let turned = old.get(stack)?.iter().map(|&(freed, id)| Turned {
            born: step_of(bounds, lifetimes.born(id)),
            freed: step_of(bounds, freed),
            bytes: lifetimes.requested(device, id),
        });
        Some(is_bounded(s, &looked, &turned.collect::<Vec<_>>()))
    };
    alive.retain(|stack, s| is_full(stack, s) != Some(true));
    for g in found.iter_mut().filter(|g| !alive.contains_key(&g.stack)) {
        g.rhythm = Rhythm::None;
    }
    together::mark(&mut found, &alive, &floors(device, tables, bounds), &looked);
    let fewest_freed = match steps.source {
        _ if ends_with_optimizer(steps) => FEWEST_FREED_TRAINING,
        StepSource::Backward | StepSource::BackwardAlone => FEWEST_FREED_TRAINING,
        StepSource::Call(_, 2..) | StepSource::Generation(_) => FEWEST_FREED_REQUESTS,
        _ => FEWEST_FREED,
    };
    if count >= fewest_freed {
        found.extend(freed_together(device, tables, bounds, old, fewest_freed));
    }
    unmark_replaced(&mut found, device, tables, bounds);
    let all: u64 = found.iter().filter(|g| g.is_leak()).map(|g| g.bytes).sum();
    if all < LEAST || all.saturating_mul(50) < tables.curves.peak(Quantity::Requested).0 {
        found.iter_mut().for_each(|g| g.rhythm = Rhythm::None);
    }
    found.sort_by_key(|g| (std::cmp::Reverse(g.bytes), g.stack));
    found
}

/// Removes growth that replaces older blocks: a buffer whose oldest entry is freed for each new one, whichever line filled it.
fn unmark_replaced(found: &mut [Growth], device: &DeviceRecording, tables: &DeviceTables, bounds: &[u32]) {
    if !found.iter().any(Growth::is_leak) {
        return;
    }
    let lifetimes = &tables.lifetimes;
    let size = |id: LifetimeId| lifetimes.requested(device, id);
    // By step and size: bytes freed in the step that are older than the two steps before it.
    let mut went: FxHashMap<(usize, u64), u64> = FxHashMap::default();
    for id in lifetimes.ids() {
        let (born, freed) = (step_of(bounds, lifetimes.born(id)), freed_at(tables, id));
        if let Some(step) = step_of(bounds, freed)
            && born.is_none_or(|born| born + 2 < step)
        {
            *went.entry((step, size(id))).or_default() += 1;
        }
    }
    for g in found.iter_mut().filter(|g| g.is_leak()) {
        let mut taken: FxHashMap<(usize, u64), u64> = FxHashMap::default();
        let replaces = |&&id: &&LifetimeId| {
            let Some(step) = step_of(bounds, lifetimes.born(id)) else { return false };
            let key = (step, size(id));
            let taken = taken.entry(key).or_default();
            *taken += 1;
            went.get(&key).is_some_and(|&went| *taken <= went)
        };
        if g.survivors.iter().filter(replaces).count() * 5 >= g.survivors.len() * 4 {
            g.rhythm = Rhythm::None;
        }
    }
}

/// A block that outlived several steps and was then freed.
struct Turned {
    /// The steps in which it was allocated and freed.
    born: Option<usize>,
    freed: Option<usize>,
    bytes: u64,
}

/// True if a stack frees as much old memory as it adds, in bytes or in number, from its first such free to the last steps. A
/// bounded cache does this once it is full.
fn is_bounded(survival: &Survival, looked: &Looked, turned: &[Turned]) -> bool {
    let is_in = |step: &usize| *step < looked.count;
    let freed = || turned.iter().filter_map(|t| t.freed).filter(is_in);
    let (Some(first), Some(last)) = (freed().min(), freed().max()) else { return false };
    if last < looked.within.end {
        return false;
    }
    let added = survival.iter().filter(|s| s.2.is_some_and(|step| step >= first && is_in(&step)));
    let gone = turned.iter().filter(|t| t.freed.as_ref().is_some_and(is_in) && t.born.is_none_or(|born| born < first));
    let (adds, number) = added.fold((0u64, 0u64), |sum, s| (sum.0 + s.1, sum.1 + 1));
    let (goes, others) = gone.fold((0u64, 0u64), |sum, t| (sum.0 + t.bytes, sum.1 + 1));
    let balance = |a: u64, b: u64| a > 0 && b > 0 && a.abs_diff(b) * 5 <= a.max(b);
    balance(adds, goes) || balance(number, others)
}

/// True if an allocation is in a private pool: a captured CUDA graph keeps its memory by design, and programs capture several.
fn is_captured(device: &DeviceRecording, tables: &DeviceTables, id: LifetimeId) -> bool {
    let pool = tables.lifetimes.get(device, id).map(|l| l.pool);
    pool.and_then(|pool| device.pool_key(pool)).is_some_and(|key| key != (0, 0))
}

/// The event at which the program freed an allocation; `NO_EVENT` if it is live at the end.
fn freed_at(tables: &DeviceTables, id: LifetimeId) -> u32 {
    // `NO_EVENT` is the greatest value, so the minimum is the one that happened.
    tables.lifetimes.gone(id).min(tables.lifetimes.free_requested(id))
}

/// The step of an event: `None` before the first step; the number of steps after the last.
fn step_of(bounds: &[u32], event: u32) -> Option<usize> {
    if event == NO_EVENT { None } else { bounds.partition_point(|&b| b <= event).checked_sub(1) }
}

/// Blocks that one stack freed at once.
struct Burst {
    /// The event around which most bytes were freed within two steps.
    around: u32,
    /// The first free that belongs to it.
    begins: u32,
    /// Number of steps before it.
    until: usize,
    /// The allocations that were freed.
    freed: Survival,
}

/// Finds memory that grew for most of the steps, at least `fewest`, and was then freed within two steps. `old`: for each stack,
/// blocks that outlived several steps, and when they were freed. Activations of a network are freed as gradually as they were
/// made, so layers mistaken for steps do not qualify.
fn freed_together(
    device: &DeviceRecording,
    tables: &DeviceTables,
    bounds: &[u32],
    old: FxHashMap<StackId, Vec<(u32, LifetimeId)>>,
    fewest: usize,
) -> Vec<Growth> {
    let lifetimes = &tables.lifetimes;
    let count = bounds.len() - 1;
    // Distance is counted in allocations made meanwhile: freeing a long list takes many events, but nothing else happens.
    let made = |event: u32| {
        let (mut low, mut high) = (lifetimes.initial_count() as u32, lifetimes.len() as u32);
        while low < high {
            let middle = low + (high - low) / 2;
            if lifetimes.born(LifetimeId(middle)) <= event { low = middle + 1 } else { high = middle }
        }
        low
    };
    let reach = (made(bounds[count]) - made(bounds[0])) / count as u32 * 2;
    let mut bursts: FxHashMap<StackId, Burst> = FxHashMap::default();
    for (stack, mut freed) in old {
        freed.retain(|&(_, id)| step_of(bounds, lifetimes.born(id)).is_some());
        if freed.len() < FEWEST_STEADY {
            continue;
        }
        freed.sort_unstable();
        // The interval in which most bytes are freed.
        let (mut from, mut sum, mut best) = (0, 0u64, (0u64, 0u32));
        for &(event, id) in &freed {
            sum += lifetimes.requested(device, id);
            let now = made(event);
            while now - made(freed[from].0) > reach {
                sum -= lifetimes.requested(device, freed[from].1);
                from += 1;
            }
            if sum > best.0 {
                best = (sum, freed[from].0);
            }
        }
        let until = bounds.partition_point(|&b| b <= best.1).min(count);
        if until >= fewest && until * 2 >= count {
            bursts.insert(stack, Burst { around: best.1, begins: best.1, until, freed: Survival::new() });
        }
    }
    // Memory that fills up again afterwards is a saw tooth, which has its own finding.
    let mut again: FxHashMap<StackId, usize> = FxHashMap::default();
    for i in 0..lifetimes.len() as u32 {
        let id = LifetimeId(i);
        let (born, freed) = (lifetimes.born(id), freed_at(tables, id));
        let stack = lifetimes.stack(device, id);
        if let Some(burst) = bursts.get(&stack)
            && let Some(step) = step_of(bounds, born)
            && step > burst.until
            && (freed == NO_EVENT || bounds.get(step + 3).is_some_and(|&b| freed >= b))
        {
            *again.entry(stack).or_default() += 1;
        }
    }
    bursts.retain(|stack, _| again.get(stack).is_none_or(|&many| many < FEWEST_STEADY));
    if bursts.is_empty() {
        return Vec::new();
    }
    // The youngest blocks are freed with the old ones, and so are blocks from before the first step.
    for i in 0..lifetimes.len() as u32 {
        let id = LifetimeId(i);
        let freed = freed_at(tables, id);
        if freed != NO_EVENT
            && let Some(burst) = bursts.get_mut(&lifetimes.stack(device, id))
            && (lifetimes.born(id) < burst.around || lifetimes.born(id) == NO_EVENT)
        {
            let (now, start) = (made(freed), made(burst.around));
            let is_old = now - i > reach;
            if now.abs_diff(start) > reach || (freed < burst.around && now < start && !is_old) {
                continue;
            }
            burst.begins = burst.begins.min(freed);
            burst.freed.push((id, lifetimes.requested(device, id), step_of(bounds, lifetimes.born(id))));
        }
    }
    bursts
        .iter()
        .filter_map(|(&stack, burst)| {
            let looked = Looked { count: burst.until, within: steady(burst.until) };
            grown(stack, &burst.freed, &looked, Some(burst.begins))
        })
        .filter(Growth::is_leak)
        .collect()
}

/// The fewest requested bytes live in each step, or just before its first event: the level that every step returns to. O(steps).
pub fn floors(device: &DeviceRecording, tables: &DeviceTables, bounds: &[u32]) -> Vec<u64> {
    let (curves, lifetimes) = (&tables.curves, &tables.lifetimes);
    let first = bounds.first().map_or(NO_EVENT, |b| b.checked_sub(1).unwrap_or(NO_EVENT));
    let mut before = curves.at(device, lifetimes, Quantity::Requested, first);
    let cells = curves.columns(device, lifetimes, Quantity::Requested, bounds);
    cells.iter().map(|c| c.min.min(std::mem::replace(&mut before, c.last))).collect()
}

/// Slope and coefficient of determination of the least-squares line through the cumulative sum.
fn line(by_step: &[u64]) -> (f64, f64) {
    let mut sum = 0.0;
    let climb = by_step.iter().map(|&b| {
        sum += b as f64;
        sum
    });
    fit(&climb.collect::<Vec<f64>>())
}

/// Slope and coefficient of determination of the least-squares line through values at even distances.
fn fit(ys: &[f64]) -> (f64, f64) {
    let n = ys.len() as f64;
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
