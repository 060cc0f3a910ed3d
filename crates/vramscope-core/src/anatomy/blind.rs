//! Roles for recordings without stacks, from sizes, lifetimes and repeating steps. All are marked "probably".

use rustc_hash::{FxHashMap, FxHashSet};

use super::case::{Case, Decided, Sizes, is_cublas_size, is_workspace_size};
use super::role::{Because, Role};
use super::{older_model, stepped};
use crate::tables::{LifetimeId, NO_EVENT};

/// A program counts as training if its gradients are at least this fraction (1/n) of the bytes it keeps.
const LEAST_GRADIENTS: u64 = 8;
/// A block freed within the last 1/n of its step counts as freed by `zero_grad`.
const END_OF_STEP: u32 = 20;
/// A block that lives for at least 1/n of its step counts as kept for long.
const LONG: u32 = 16;

/// Assigns roles to blocks that are still undecided. O(lifetimes log lifetimes).
pub(super) fn decide(case: &Case<'_>, of: &mut [Decided]) {
    let bounds = &case.steps.bounds;
    let (Some(&second), Some(&over)) = (bounds.get(1), bounds.last()) else { return loaded(case, of) };
    // A program that failed frees everything after the failure.
    let failure = case.device.events.failure_at_end().filter(|&failure| failure < over);
    let last = failure.unwrap_or(over);
    let in_optimizer = made_in_optimizer(case, of);
    let stepped = stepped::decide(case, of);
    // Blocks that exist before the second step and stay to the end: the model, and the optimizer's state.
    let model: Vec<LifetimeId> = (0..case.rows())
        .map(LifetimeId)
        .filter(|&id| (case.born(id) == NO_EVENT || case.born(id) < second) && case.gone(id) > last)
        .collect();
    let kept: FxHashSet<LifetimeId> = model.iter().chain(&stepped).copied().collect();
    let sizes: FxHashSet<u64> = kept.iter().map(|&id| case.size(id)).collect();
    // Gradients are made in every step, are as large as weights, and are freed at the end of the step or the start of the next. A
    // step cut short by a failure has no gradients yet.
    let is_cut_short = failure.is_some();
    let mut late: Vec<Vec<LifetimeId>> = vec![Vec::new(); case.steps.len()];
    for id in (case.phases.first_row..case.rows()).map(LifetimeId) {
        let Some(step) = case.steps.of(case.born(id)) else { continue };
        let (begin, end) = (bounds[step], bounds[step + 1]);
        let gone = case.gone(id).min(case.tables.lifetimes.free_requested(id));
        // A block that outlives the next step too is kept by the program.
        let is_late = gone >= end - (end - begin) / END_OF_STEP && bounds.get(step + 2).is_none_or(|&next| gone < next);
        let is_whole = !is_cut_short || step + 1 < case.steps.len();
        if is_whole && is_late && sizes.contains(&case.size(id)) && !kept.contains(&id) {
            late[step].push(id);
        }
    }
    late.iter_mut().for_each(|ids| ids.retain(|id| of[id.0 as usize].0 == Role::Unknown));
    let bytes = |ids: &[LifetimeId]| ids.iter().map(|&id| case.size(id)).sum::<u64>();
    // If steps begin with the optimizer, gradients cross the step boundary, and blocks freed just before it are activations.
    let across = |step: usize, id: LifetimeId| case.gone(id) >= bounds[step + 1];
    let middle = (late.len() - usize::from(is_cut_short && late.len() > 1)) / 2;
    // Each size counts once: a loop in the forward pass makes many activations of one size.
    let distinct = |ids: &mut dyn Iterator<Item = LifetimeId>| ids.map(|id| case.size(id)).collect::<FxHashSet<u64>>();
    let crossing = distinct(&mut late[middle].iter().copied().filter(|&id| across(middle, id)));
    if crossing.iter().sum::<u64>() * 2 >= distinct(&mut late[middle].iter().copied()).iter().sum::<u64>() {
        late.iter_mut().enumerate().for_each(|(step, ids)| ids.retain(|&id| across(step, id)));
    }
    let mut gradients = Sizes::default();
    for &id in &late[middle] {
        *gradients.entry(case.size(id)).or_default() += 1;
    }
    let adds = older_model::has_older_gradients(case, &gradients);
    if adds {
        gradients.clear();
        late.iter_mut().for_each(Vec::clear);
    }
    let makes_gradients = gradients.len() >= sizes.len().min(2)
        && !gradients.is_empty()
        && (in_optimizer
            || bytes(&late[middle]).saturating_mul(LEAST_GRADIENTS) >= bytes(&model)
            || has_sizes_of_model(case, &model, &gradients));
    if adds || makes_gradients {
        older(case, &model, &gradients, of);
    }
    let trains = adds || makes_gradients || !case.steps.optimizer.is_empty() || frees_in_reverse(case, bounds, middle);
    let data = if makes_gradients { older_model::data(case, &model, &gradients) } else { FxHashSet::default() };
    let mut put = |id: LifetimeId, role: Role| {
        let decided = &mut of[id.0 as usize];
        if decided.0 == Role::Unknown {
            *decided = (role, Because::ByRhythm);
        }
    };
    let mut by_size: FxHashMap<u64, Vec<LifetimeId>> = FxHashMap::default();
    for &id in model.iter().filter(|id| !data.contains(id)) {
        by_size.entry(case.size(id)).or_default().push(id);
    }
    for (size, ids) in by_size {
        let g = gradients.get(&size).map_or(0, |&n| n as usize);
        let is_workspace = is_cublas_size(size) || (is_workspace_size(size) && g == 0 && size > 1 << 22);
        // Weights and state come in multiples of the gradients. One extra block of a workspace's size is the workspace.
        let odd_one = (is_workspace_size(size) && g > 0 && ids.len() > g && (ids.len() - 1).is_multiple_of(g)).then_some(g);
        let each = ids.len().checked_div(g).unwrap_or(1);
        let weights = g * older_model::Shares::of(each, false, false).weights;
        for (i, id) in ids.into_iter().enumerate() {
            let is_weight = in_optimizer || !trains || g == 0 || i < weights;
            put(
                id,
                if is_workspace || (trains && odd_one == Some(i)) {
                    Role::Workspaces
                } else if is_weight {
                    Role::Weights
                } else {
                    Role::OptimizerState
                },
            );
        }
    }
    if trains {
        late.iter().flatten().for_each(|&id| put(id, Role::Gradients));
    }
    // Blocks that the first step frees, as a backward pass frees activations, were made before the history.
    let is_of_first = |id: &LifetimeId| case.gone(*id).min(case.tables.lifetimes.free_requested(*id)) < second;
    for id in (0..case.phases.first_row).map(LifetimeId).filter(is_of_first) {
        put(
            id,
            if !trains {
                Role::Temporaries
            } else if gradients.contains_key(&case.size(id)) {
                Role::Gradients
            } else {
                Role::Activations
            },
        );
    }
    for step in 0..case.steps.len() {
        let rows: Vec<LifetimeId> = case.phases.made_within(case.tables, bounds[step], bounds[step + 1]).collect();
        let least = (bounds[step + 1] - bounds[step]) / LONG;
        let end = trains.then(|| end_of_forward(case, &rows, least));
        // A block that outlives the next step too is neither; its role stays unknown.
        let next_over = bounds.get(step + 2).copied().unwrap_or(NO_EVENT);
        for id in rows.into_iter().filter(|&id| case.gone(id) <= next_over) {
            let is_kept = end.is_some_and(|at| (case.born(id) <= at && case.gone(id) > at) || is_long(case, id, least));
            put(id, if is_kept { Role::Activations } else { Role::Temporaries });
        }
    }
    if trains {
        graph(case, over, &gradients, of, Because::ByRhythm);
    }
}

/// True if these are gradients by their sizes alone: the program keeps a whole number of blocks for each, its weights and their state.
/// Beside large data their bytes are few.
fn has_sizes_of_model(case: &Case<'_>, model: &[LifetimeId], gradients: &Sizes) -> bool {
    /// So many sizes do not agree by chance. Numbers and tables are smaller than `LEAST`.
    const FEWEST: usize = 5;
    let mut kept = Sizes::default();
    model.iter().for_each(|&id| *kept.entry(case.size(id)).or_default() += 1);
    let large: Vec<(&u64, &u32)> = gradients.iter().filter(|(size, _)| **size >= older_model::LEAST).collect();
    large.len() >= FEWEST && large.iter().all(|(size, n)| kept.get(size).is_some_and(|all| all.is_multiple_of(**n)))
}

/// The model from before the history, by the gradients of a step; none where backward passes add to older ones.
fn older(case: &Case<'_>, model: &[LifetimeId], gradients: &Sizes, of: &mut [Decided]) {
    let is_open = |id: &LifetimeId| {
        let (role, because) = of[id.0 as usize];
        case.born(*id) == NO_EVENT
            && (role == Role::Unknown || because == Because::OlderByCount)
            && !is_cublas_size(case.size(*id))
    };
    let mut stays = older_model::Stays::default();
    for &id in model.iter().filter(|id| is_open(id)) {
        stays.entry(case.size(id)).or_default().push(id);
    }
    let mut replaced = Sizes::default();
    let is_replaced = |id: &LifetimeId| of[id.0 as usize] == (Role::OptimizerState, Because::OlderReplaced);
    for id in (0..case.phases.first_row).map(LifetimeId).filter(is_replaced) {
        *replaced.entry(case.size(id)).or_default() += 1;
    }
    for (id, decided) in older_model::decide(case, stays, gradients, &replaced, gradients.is_empty()) {
        of[id.0 as usize] = decided;
    }
}

/// What a training program holds in a step that the recording cuts, as one that fails does: of `from` and later. Many blocks at once
/// are a graph, which a forward pass keeps.
fn graph(case: &Case<'_>, from: u32, gradients: &Sizes, of: &mut [Decided], because: Because) {
    /// A program may hold fewer blocks than this without a graph.
    const FEWEST: usize = 24;
    /// A forward pass keeps at least 1/n of the blocks that it makes; a loop that only generates keeps fewer.
    const LEAST_HELD: usize = 6;
    let events = case.device.events.len() as u32;
    let rows = || case.phases.made_within(case.tables, from, events).filter(|id| of[id.0 as usize].0 == Role::Unknown);
    let rows: Vec<LifetimeId> = rows().collect();
    let at = end_of_forward(case, &rows, events.saturating_sub(from) / LONG);
    let made = rows.iter().filter(|&&id| case.born(id) <= at).count();
    let held = rows.iter().filter(|&&id| case.born(id) <= at && case.gone(id) > at).count();
    if held < FEWEST || held * LEAST_HELD < made {
        return;
    }
    for id in rows {
        let is_held = case.born(id) <= at && case.gone(id) > at;
        let is_gradient = case.born(id) > at && case.gone(id) == NO_EVENT && gradients.contains_key(&case.size(id));
        let role = match () {
            () if is_held => Role::Activations,
            () if is_gradient => Role::Gradients,
            () => Role::Temporaries,
        };
        of[id.0 as usize] = (role, because);
    }
}

/// For recordings without known steps: recognises the loaded model. Its blocks are made before the first free, before the first
/// workspace (made by the first matmul), and before any block larger than all of them together (a batch or activation).
fn loaded(case: &Case<'_>, of: &mut [Decided]) {
    /// Fewer blocks than this are not a model.
    const FEWEST: usize = 8;
    let rows = case.phases.first_row..case.rows();
    let is_library = |row: u32| is_workspace_size(case.size(LifetimeId(row)));
    if case.phases.has_stacks || !(0..case.phases.first_row).all(is_library) {
        return;
    }
    let first_free = rows.clone().map(|row| case.gone(LifetimeId(row))).min().unwrap_or(NO_EVENT);
    let (mut loaded, mut bytes) = (Vec::new(), 0);
    for id in rows.map(LifetimeId) {
        let size = case.size(id);
        let is_beyond = loaded.len() >= FEWEST && size > bytes;
        if case.born(id) >= first_free || is_cublas_size(size) || is_beyond {
            break;
        }
        bytes += size;
        loaded.push(id);
    }
    if loaded.len() < FEWEST {
        return;
    }
    for id in &loaded {
        let decided = &mut of[id.0 as usize];
        if decided.0 == Role::Unknown {
            *decided = (Role::Weights, Because::MadeFirst);
        }
    }
    let last = loaded.last().map_or(0, |&id| case.born(id));
    graph(case, last + 1, &Sizes::default(), of, Because::HeldWithMany);
}

/// Assigns roles to blocks made inside annotated calls of `Optimizer.step`: state and temporaries. False if it keeps nothing.
fn made_in_optimizer(case: &Case<'_>, of: &mut [Decided]) -> bool {
    let mut keeps = false;
    let made = |from: u32, to: u32| case.phases.made_within(case.tables, from, to).count();
    let in_optimizer: usize = case.steps.optimizer.iter().map(|&(from, to)| made(from, to)).sum();
    let (first, last) = (case.steps.bounds.first().copied().unwrap_or(0), case.steps.bounds.last().copied().unwrap_or(0));
    // Lightning runs forward and backward in a closure that the optimizer calls.
    if in_optimizer * 5 > made(first, last) * 4 {
        return false;
    }
    let end = case.device.events.len() as u32;
    for &(from, to) in &case.steps.optimizer {
        // If the recording ends inside the call, all blocks held then would look as if they were kept.
        let is_cut = to >= end && case.steps.optimizer.len() > 1;
        for id in case.phases.made_within(case.tables, from, to) {
            let is_kept = case.gone(id) >= to && !is_cublas_size(case.size(id));
            keeps |= is_kept && !is_cut;
            let decided = &mut of[id.0 as usize];
            if decided.0 == Role::Unknown && !is_cublas_size(case.size(id)) {
                *decided = match is_kept {
                    true => (Role::OptimizerState, Because::OutlivesOptimizer),
                    false => (Role::Temporaries, Because::DiesInOptimizer),
                };
            }
        }
    }
    // A block freed inside the optimizer was replaced by a new one, so it is optimizer state from before the history.
    let is_within = |event: u32| case.steps.optimizer.iter().any(|&(from, to)| (from..to).contains(&event));
    for id in (0..case.phases.first_row).map(LifetimeId).filter(|&id| is_within(case.tables.lifetimes.free_requested(id))) {
        of[id.0 as usize] = (Role::OptimizerState, Because::OlderReplaced);
    }
    keeps
}

/// True if a step frees what it holds at the end of forward in reverse order of allocation, as a backward pass does.
fn frees_in_reverse(case: &Case<'_>, bounds: &[u32], step: usize) -> bool {
    /// With fewer blocks, the order may be chance.
    const FEWEST: usize = 24;
    let (begin, end) = (bounds[step], bounds[step + 1]);
    let rows: Vec<LifetimeId> = case.phases.made_within(case.tables, begin, end).filter(|&id| case.gone(id) < end).collect();
    let at = end_of_forward(case, &rows, (end - begin) / LONG);
    let gone: Vec<u32> = rows.iter().filter(|&&id| case.born(id) <= at && case.gone(id) > at).map(|&id| case.gone(id)).collect();
    let reversed = gone.windows(2).filter(|pair| pair[1] < pair[0]).count();
    gone.len() >= FEWEST && reversed * 10 >= gone.len() * 7
}

/// True if the block lives for at least this many events.
fn is_long(case: &Case<'_>, id: LifetimeId, least: u32) -> bool {
    case.gone(id) == NO_EVENT || case.gone(id) - case.born(id) >= least
}

/// The end of a step's forward pass: the event with the most long-lived blocks. Short-lived blocks are not counted: one operation
/// may briefly need more bytes, such as the loss over a large vocabulary.
fn end_of_forward(case: &Case<'_>, rows: &[LifetimeId], least: u32) -> u32 {
    let mut changes: Vec<(u32, i128, i64)> = Vec::with_capacity(rows.len() * 2);
    for &id in rows {
        let (born, gone) = (case.born(id), case.gone(id));
        let size = if is_long(case, id, least) { i128::from(case.size(id)) } else { 0 };
        changes.push((born, size, 1));
        if gone != NO_EVENT {
            changes.push((gone, -size, -1));
        }
    }
    changes.sort_unstable();
    let held: Vec<(u32, i128, i64)> = changes
        .iter()
        .scan((0, 0), |now, &(event, bytes, blocks)| {
            *now = (now.0 + bytes, now.1 + blocks);
            Some((event, now.0, now.1))
        })
        .collect();
    let most = held.iter().map(|h| h.1).max().unwrap_or(0);
    let full = held.iter().filter(|h| h.1 * 10 >= most * 9);
    full.max_by_key(|h| (h.2, std::cmp::Reverse(h.0))).map_or(0, |h| h.0)
}
