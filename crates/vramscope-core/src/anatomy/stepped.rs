//! Recognises weights only by their optimizer state, in programs without modules or call stacks.

use rustc_hash::FxHashMap;

use super::case::{Case, Decided, Sizes, is_workspace_size};
use super::older_model::LEAST;
use super::role::{Because, Role};
use super::sense::Part;
use crate::tables::{LifetimeId, NO_EVENT};

/// Blocks as large as state that an optimizer step made; they existed before that step and outlived the next, so they are the
/// weights that the state belongs to. Skips sizes for which enough weights are already known. O(lifetimes + steps).
pub(super) fn decide(case: &Case<'_>, of: &mut [Decided]) -> Vec<LifetimeId> {
    let steps: Vec<(u32, u32)> = match case.steps.optimizer.is_empty() {
        true => case.phases.runs.iter().filter(|run| run.part == Part::Optimizer).map(|run| run.events).collect(),
        false => case.steps.optimizer.clone(),
    };
    // Number of state blocks by step and size.
    let mut made: Vec<Sizes> = vec![Sizes::default(); steps.len()];
    let mut by_size: FxHashMap<u64, Vec<LifetimeId>> = FxHashMap::default();
    for id in (0..case.rows()).map(LifetimeId) {
        let (role, born, size) = (of[id.0 as usize].0, case.born(id), case.size(id));
        let step = steps.partition_point(|step| step.0 <= born).checked_sub(1).filter(|_| born != NO_EVENT);
        if role == Role::OptimizerState
            && size >= LEAST
            && let Some(step) = step.filter(|&step| born < steps[step].1)
        {
            *made[step].entry(size).or_default() += 1;
            by_size.entry(size).or_default();
        }
    }
    for id in (0..case.rows()).map(LifetimeId) {
        if let Some(ids) = by_size.get_mut(&case.size(id)) {
            ids.push(id);
        }
    }
    let mut found = Vec::new();
    for (pair, made) in steps.windows(2).zip(&made) {
        let (begin, next) = (pair[0].0, pair[1].1);
        for (size, &states) in made {
            let is_there = |id: LifetimeId| {
                let gone = case.gone(id).min(case.tables.lifetimes.free_requested(id));
                (case.born(id) == NO_EVENT || case.born(id) < begin) && gone > next
            };
            let there: Vec<LifetimeId> = by_size[size].iter().copied().filter(|&id| is_there(id)).collect();
            let role = |id: LifetimeId| of[id.0 as usize].0;
            let known = there.iter().filter(|&&id| role(id) == Role::Weights).count();
            let may_be =
                |id: &LifetimeId| matches!(role(*id), Role::Unknown | Role::Activations | Role::Inputs | Role::Temporaries);
            let open: Vec<LifetimeId> = there.into_iter().filter(may_be).collect();
            // Optimizers keep one or two blocks per weight. A library's workspace may be one more block of the same size.
            let (all, states) = (known + open.len(), states as usize);
            let is_whole = all * 2 == states || all == states;
            if known * 2 < states && all <= states && (is_whole || !is_workspace_size(*size)) {
                open.iter().for_each(|id| of[id.0 as usize] = (Role::Weights, Because::HasState));
                found.extend(open);
            }
        }
    }
    found
}
