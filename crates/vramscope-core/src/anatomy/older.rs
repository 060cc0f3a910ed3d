//! Blocks older than the history: roles by their number, sizes and end. All of them are "probably".

use rustc_hash::{FxHashMap, FxHashSet};

use super::case::{Case, Decided, Sizes, by_stack_alone, has_adam, is_cublas_size, is_workspace_size, moved_gradients};
use super::phases::Run;
use super::role::{Because, Role};
use super::sense::Part;
use crate::model::DeviceRecording;
use crate::tables::{LifetimeId, NO_EVENT};

/// Smaller sizes do not count: scalars, biases, norms come in any number.
const LEAST: u64 = 4096;

/// True if backward passes add to gradients from before the history, as without `zero_grad` or with `set_to_none=False`: the optimizer
/// works on many older blocks, and hardly any gradient is made for one.
pub(super) fn adds_to_older_gradients(case: &Case<'_>, gradients: &Sizes) -> bool {
    const FEW: u32 = 8;
    let steps_in_backward = |pair: &[Run]| pair[0].part == Part::Optimizer && pair[1].part == Part::Backward;
    if case.phases.runs.windows(2).any(steps_in_backward) {
        return false;
    }
    let stepped = made_by_optimizer(case);
    let is_older = |id: &LifetimeId| case.stays(*id) && case.size(*id) >= LEAST && stepped.contains(&case.size(*id));
    let older = (0..case.phases.first_row).map(LifetimeId).filter(is_older).count() as u32;
    let made: u32 = gradients.iter().filter(|g| *g.0 >= LEAST).map(|g| g.1).sum();
    made.saturating_mul(FEW) < older
}

/// The sizes that optimizers allocate: those of the parameters that they change, and of what they gather.
fn made_by_optimizer(case: &Case<'_>) -> FxHashSet<u64> {
    let runs = case.phases.runs.iter().filter(|r| r.part == Part::Optimizer);
    runs.flat_map(Run::ids).map(|id| case.size(id)).collect()
}

/// The roles of blocks from before the first event. O(blocks log blocks).
pub(super) fn decide(case: &Case<'_>, gradients: &Sizes, weights: &Sizes) -> Vec<(LifetimeId, Decided)> {
    let never_none = adds_to_older_gradients(case, gradients);
    let phases = case.phases;
    let works = phases.has(Part::Forward) || phases.has(Part::Backward) || phases.has(Part::Optimizer);
    let mut of: Vec<(LifetimeId, Decided)> = Vec::new();
    let mut stays: FxHashMap<u64, Vec<LifetimeId>> = FxHashMap::default();
    let mut left: Vec<LifetimeId> = Vec::new();
    let ids = || (0..phases.first_row).map(LifetimeId);
    let mut of_size = Sizes::default();
    for id in ids().filter(|&id| case.stays(id)) {
        *of_size.entry(case.size(id)).or_default() += 1;
    }
    let mut kept: FxHashMap<u32, FxHashMap<u64, u32>> = FxHashMap::default();
    let moved = moved_gradients(case);
    let first_backward = phases.runs.iter().find(|r| r.part == Part::Backward).map_or(u32::MAX, |r| r.events.1);
    for id in ids() {
        let (size, gone) = (case.size(id), case.gone(id));
        let is_rare = of_size.get(&size).is_some_and(|&n| n <= 2) && size > 1 << 20;
        if is_cublas_size(size) || (is_workspace_size(size) && is_rare && case.stays(id) && !gradients.contains_key(&size)) {
            of.push((id, (Role::Workspaces, Because::LibrarySize)));
            continue;
        }
        let has_stack = case.tables.lifetimes.stack(case.device, id).is_some();
        if has_stack && let Some(decided) = by_stack_alone(case, id, weights) {
            let is_moved = decided.0 == Role::Weights && case.sense(id).applies.is_some_and(|line| moved.contains(&line));
            of.push((id, if is_moved { (Role::Gradients, Because::MovedWithWeight) } else { decided }));
            continue;
        }
        if case.tables.lifetimes.pending_at_start(id) {
            of.push((id, (Role::Temporaries, Because::OlderLeftover)));
            continue;
        }
        if !works {
            continue;
        }
        let freed = case.tables.lifetimes.free_requested(id).min(gone);
        let run = match phases.run_at(freed) {
            // What the last parameter had is freed when the optimizer returns.
            None if never_none => phases.runs.last().filter(|r| freed >= r.events.1),
            at => at.map(|r| &phases.runs[r]),
        };
        let part = run.map_or(Part::Unknown, |r| r.part);
        let is_gradient = gradients.contains_key(&size);
        // A model that is freed at the end is not a gradient that `zero_grad` frees.
        if gone == NO_EVENT || (is_gradient && freed > first_backward && part != Part::Optimizer) {
            stays.entry(size).or_default().push(id);
            continue;
        }
        // Freed between two allocations of the optimizer: what it keeps, and makes anew in every step.
        let is_replaced = part == Part::Optimizer && run.is_some_and(|r| never_none || freed < case.last_birth(r));
        let is_anew = is_replaced
            && run.is_some_and(|r| {
                let made = kept.entry(r.rows.0).or_insert_with(|| kept_sizes(case, r));
                made.get(&size).is_some_and(|&born| born < freed)
            });
        of.push((
            id,
            match part {
                _ if is_anew || (is_gradient && is_replaced) => (Role::OptimizerState, Because::OlderReplaced),
                _ if is_gradient && part != Part::Backward => (Role::Gradients, Because::OlderFreedByZeroGrad),
                Part::Backward => (Role::Activations, Because::OlderFreedInBackward),
                _ => {
                    left.push(id);
                    continue;
                }
            },
        ));
    }
    of.extend(leftovers(case, &left));
    let mut replaced = Sizes::default();
    for &(id, _) in of.iter().filter(|o| o.1 == (Role::OptimizerState, Because::OlderReplaced)) {
        *replaced.entry(case.size(id)).or_default() += 1;
    }
    of.extend(model(case, stays, gradients, &replaced, never_none));
    of
}

/// Of each size that a run makes and keeps the event of the first.
fn kept_sizes(case: &Case<'_>, run: &Run) -> FxHashMap<u64, u32> {
    let mut first = FxHashMap::default();
    for id in run.ids().filter(|&id| case.outlives(id, run)) {
        first.entry(case.size(id)).or_insert(case.born(id));
    }
    first
}

/// What is left from the iteration before: its graph where it is much, of many sizes.
fn leftovers(case: &Case<'_>, left: &[LifetimeId]) -> Vec<(LifetimeId, Decided)> {
    let sizes: FxHashSet<u64> = left.iter().map(|&id| case.size(id)).collect();
    let role = if left.len() >= 12 && sizes.len() >= 3 { Role::Activations } else { Role::Temporaries };
    left.iter().map(|&id| (id, (role, Because::OlderLeftover))).collect()
}

/// What stays is the model: weights, what the optimizer keeps for each (less the `replaced`), gradients that are set to zero in place.
fn model(
    case: &Case<'_>,
    stays: FxHashMap<u64, Vec<LifetimeId>>,
    gradients: &Sizes,
    replaced: &Sizes,
    never_none: bool,
) -> Vec<(LifetimeId, Decided)> {
    // Gradients that are as large as nothing that stays, as the gathered ones of FSDP, tell nothing of it.
    let (tells, none) = (gradients.keys().any(|size| *size >= LEAST && stays.contains_key(size)), Sizes::default());
    let gradients = if tells { gradients } else { &none };
    let a_weight = blocks_a_weight(&stays, gradients);
    let copies = if gradients.is_empty() { copies(&stays, replaced, never_none) } else { 1 };
    let is_adam = gradients.is_empty() && copies != 4 && has_adam(case);
    let mut of = Vec::new();
    for (size, mut list) in stays {
        // The driver hands out segments downwards, and a segment its blocks upwards: weights were made first.
        list.sort_by_key(|&id| {
            let address = case.tables.lifetimes.address(case.device, id);
            (std::cmp::Reverse(segment_of(case.device, address)), address)
        });
        let all = list.len() + replaced.get(&size).map_or(0, |&n| n as usize);
        let (weights, each) = match gradients.get(&size) {
            Some(&g) if a_weight > 1 && list.len() >= g as usize => (g as usize, a_weight),
            None if is_adam && all % 3 == 0 => (all / 3, 3),
            None if copies > 1 && all % copies == 0 => (all / copies, copies),
            _ => (list.len(), 1),
        };
        // Of what stays, gradients were made last where they are older than the history too.
        let gradients_from = if never_none || each == 4 { list.len().saturating_sub(weights) } else { list.len() };
        for (i, id) in list.into_iter().enumerate() {
            let decided = if each == 1 {
                (Role::Weights, Because::OlderAndStays)
            } else if i < weights {
                (Role::Weights, Because::OlderByCount)
            } else if i >= gradients_from {
                (Role::Gradients, Because::OlderByCount)
            } else {
                (Role::OptimizerState, Because::OlderByCount)
            };
            of.push((id, decided));
        }
    }
    of
}

/// How many blocks stay for each gradient, as most bytes have it: the weight, and what the optimizer keeps for it.
fn blocks_a_weight(stays: &FxHashMap<u64, Vec<LifetimeId>>, gradients: &Sizes) -> usize {
    let mut votes: FxHashMap<usize, u64> = FxHashMap::default();
    for (size, list) in stays {
        if let Some(&g) = gradients.get(size).filter(|&&g| g > 0 && *size >= 1024) {
            *votes.entry((list.len() + g as usize / 2) / g as usize).or_default() += size * u64::from(g);
        }
    }
    votes.into_iter().max_by_key(|&(n, bytes)| (bytes, n)).map_or(1, |v| v.0)
}

/// Number of copies of the whole model, without a gradient to compare with: four are weights, gradients and Adam's two; three the same
/// without gradients, or weights, gradients and momentum; two are weights and gradients. Sizes that come once or twice, like an
/// embedding's, distinguish copies of a model from its layers.
fn copies(stays: &FxHashMap<u64, Vec<LifetimeId>>, replaced: &Sizes, never_none: bool) -> usize {
    let of_size = |(size, list): (&u64, &Vec<LifetimeId>)| {
        let count = list.len() + replaced.get(size).map_or(0, |&n| n as usize);
        (*size * count as u64, count)
    };
    let sizes: Vec<(u64, usize)> = stays.iter().filter(|(size, _)| **size >= LEAST).map(of_size).collect();
    let all: u64 = sizes.iter().map(|s| s.0).sum();
    let rarest = sizes.iter().filter(|s| s.0.saturating_mul(200) >= all).map(|s| s.1).min().unwrap_or(1);
    let fits = |n: usize| {
        let bytes: u64 = sizes.iter().filter(|s| s.1 % n == 0).map(|s| s.0).sum();
        sizes.len() > 1 && rarest % n == 0 && rarest <= 2 * n && bytes.saturating_mul(100) >= all.saturating_mul(97)
    };
    let possible = if never_none { &[4, 3, 2][..] } else { &[4, 3] };
    possible.iter().copied().find(|&n| fits(n)).unwrap_or(1)
}

/// The first byte of the segment that holds an address at the end; the address itself where none does.
fn segment_of(device: &DeviceRecording, address: u64) -> u64 {
    let at = device.segments.partition_point(|s| s.address <= address).checked_sub(1);
    let segment = at.and_then(|i| device.segments.get(i));
    segment.filter(|s| address - s.address < s.size).map_or(address, |s| s.address)
}
