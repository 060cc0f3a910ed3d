//! Roles of blocks older than the history, from their number, sizes and frees. All are marked "probably".

use rustc_hash::{FxHashMap, FxHashSet};

use super::case::{Case, Decided, Sizes, by_stack_alone, is_cublas_size, is_workspace_size, moved_gradients};
use super::older_model;
use super::phases::Run;
use super::role::{Because, Role};
use super::sense::Part;
use super::steps::StepSource;
use crate::model::StackId;
use crate::tables::{LifetimeId, NO_EVENT};

/// The roles of blocks allocated before the first event. O(blocks log blocks).
pub(super) fn decide(case: &Case<'_>, gradients: &Sizes, weights: &Sizes, has_gradients: bool) -> Vec<(LifetimeId, Decided)> {
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
    // If the ring buffer wrapped, the end state still has the stacks of older blocks. Weights then have a stack. Gradients have
    // none, because the backward pass is not called from Python.
    let (mut told, mut bare) = (Sizes::default(), Sizes::default());
    if gradients.is_empty() && case.phases.has_stacks {
        for id in ids().filter(|&id| case.stays(id)) {
            let is_weight = || by_stack_alone(case, id, weights).is_some_and(|decided| decided.0 == Role::Weights);
            match case.tables.lifetimes.stack(case.device, id).is_some() {
                true if is_weight() => *told.entry(case.size(id)).or_default() += 1,
                true => {}
                false => *bare.entry(case.size(id)).or_default() += 1,
            }
        }
    }
    let is_bare_gradient = |size: u64| {
        let of = told.get(&size).copied().unwrap_or(0);
        of >= if is_workspace_size(size) { 2 } else { 1 } && bare.get(&size).is_some_and(|&n| n <= of)
    };
    let mut kept: FxHashMap<u32, FxHashMap<u64, u32>> = FxHashMap::default();
    let moved = moved_gradients(case);
    // If nothing else stays, the model is made within the recording, and a block of a workspace's size is a workspace.
    let is_model = |id: LifetimeId| case.stays(id) && case.size(id) >= older_model::LEAST && !is_workspace_size(case.size(id));
    let has_model = ids().any(is_model);
    // Each gradient has its weight, made in the recording or before it.
    let of_weights = |g: &(&u64, &u32)| weights.get(g.0).is_some_and(|made| made >= g.1);
    let bytes = |g: (&u64, &u32)| g.0 * u64::from(*g.1);
    let is_of_model = |g: &(&u64, &u32)| !is_workspace_size(*g.0);
    let all: u64 = gradients.iter().filter(is_of_model).map(bytes).sum();
    let own: u64 = gradients.iter().filter(is_of_model).filter(of_weights).map(bytes).sum();
    let is_made_within = all > 0 && own.saturating_mul(10) >= all.saturating_mul(9);
    let first_backward = phases.runs.iter().find(|r| r.part == Part::Backward).map_or(u32::MAX, |r| r.events.1);
    // A block freed after the second step outlived a whole step, so it is no leftover. A round of generation does not count as
    // such a step: it frees what earlier rounds made.
    let generates = matches!(case.steps.source, StepSource::Generation(_));
    let behind_second = case.steps.bounds.get(2).filter(|_| !generates).copied().unwrap_or(NO_EVENT);
    // A block freed only after the last pass is no leftover either, also with rounds: it is the model, freed as the program ends.
    let ends = phases.runs.last().filter(|_| case.steps.len() > 1).map_or(NO_EVENT, |run| run.events.1);
    let behind_second = behind_second.min(ends);
    for id in ids() {
        let (size, gone) = (case.size(id), case.gone(id));
        let is_rare = of_size.get(&size).is_some_and(|&n| n <= 2) && (size > 1 << 20 || !has_model);
        let may_be_weight = has_model && !is_made_within && gradients.contains_key(&size);
        if is_cublas_size(size) || (is_workspace_size(size) && is_rare && case.stays(id) && !may_be_weight) {
            of.push((id, (Role::Workspaces, Because::LibrarySize)));
            continue;
        }
        let has_stack = case.tables.lifetimes.stack(case.device, id).is_some();
        if has_stack && let Some(decided) = by_stack_alone(case, id, weights) {
            let is_moved = decided.0 == Role::Weights && case.sense(id).applies.is_some_and(|line| moved.contains(&line));
            of.push((id, if is_moved { (Role::Gradients, Because::MovedWithWeight) } else { decided }));
            continue;
        }
        if !has_stack && case.stays(id) && is_bare_gradient(size) {
            of.push((id, (Role::Gradients, Because::OlderWithoutStack)));
            continue;
        }
        if case.tables.lifetimes.pending_at_start(id) {
            of.push((id, (Role::Temporaries, Because::OlderLeftover)));
            continue;
        }
        let freed_at = case.tables.lifetimes.free_requested(id);
        let freed_by = case.device.events.stack.get(freed_at as usize).copied().unwrap_or(StackId::NONE);
        if phases.sense(freed_by).makes_weights {
            of.push((id, (Role::Weights, Because::OlderFreedByLoading)));
            continue;
        }
        if !works {
            if !has_stack && gone == NO_EVENT {
                stays.entry(size).or_default().push(id);
            }
            continue;
        }
        let freed = freed_at.min(gone);
        let run = match phases.run_at(freed).map(|r| &phases.runs[r]) {
            // The memory of the last parameter is freed when the optimizer returns.
            None if has_gradients => phases.runs.last().filter(|r| freed >= r.events.1),
            at => at,
        };
        let part = run.map_or(Part::Unknown, |r| r.part);
        let is_gradient = gradients.contains_key(&size);
        // A model freed at the end is neither a gradient that `zero_grad` frees nor a leftover of the previous iteration.
        let outlives_use = if is_gradient { freed > first_backward } else { freed >= behind_second };
        if gone == NO_EVENT || (outlives_use && part != Part::Optimizer) {
            stays.entry(size).or_default().push(id);
            continue;
        }
        // Blocks freed between two allocations of the optimizer are state that it replaces in every step.
        let is_replaced = part == Part::Optimizer && run.is_some_and(|r| has_gradients || freed < case.last_birth(r));
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
    let model = older_model::decide(case, stays, gradients, &replaced, has_gradients);
    // Without any pass, only the number of blocks shows a model, and only if training keeps several blocks per weight.
    of.extend(model.into_iter().filter(|(_, (_, because))| works || *because == Because::OlderByCount));
    of
}

/// For each size that a run makes and keeps: the event of the first such block.
fn kept_sizes(case: &Case<'_>, run: &Run) -> FxHashMap<u64, u32> {
    let mut first = FxHashMap::default();
    for id in run.ids().filter(|&id| case.outlives(id, run)) {
        first.entry(case.size(id)).or_insert(case.born(id));
    }
    first
}

/// Blocks left over from the previous iteration: its graph if there are many, of many sizes.
fn leftovers(case: &Case<'_>, left: &[LifetimeId]) -> Vec<(LifetimeId, Decided)> {
    let sizes: FxHashSet<u64> = left.iter().map(|&id| case.size(id)).collect();
    let role = if left.len() >= 12 && sizes.len() >= 3 { Role::Activations } else { Role::Temporaries };
    left.iter().map(|&id| (id, (role, Because::OlderLeftover))).collect()
}
