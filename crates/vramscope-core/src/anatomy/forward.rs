//! Assigns roles to blocks of the forward pass: activations, autocast's weight copies, temporaries.

use rustc_hash::{FxHashMap, FxHashSet};

use super::case::{Case, Decided, Sizes};
use super::frame::{CASTS, OPERATOR};
use super::phases::{Phase, Run};
use super::role::{Because, Role};
use super::sense::Part;
use crate::model::StackId;
use crate::tables::{LifetimeId, NO_EVENT};

/// A graph that no backward pass uses is recognised by kept blocks from at least this many stacks,
const STACKS_OF_A_GRAPH: usize = 5;
/// or by at least this many blocks from fewer stacks.
const BLOCKS_OF_A_GRAPH: usize = 4;
/// In a failed pass, blocks from at least this many stacks,
const STACKS_OF_A_FAILURE: usize = 3;
/// and at least this many blocks, count as a graph.
const BLOCKS_OF_A_FAILURE: usize = 32;
/// In addition, the graph must have at least 1/n of the pass's blocks.
const SHARE_OF_A_GRAPH: usize = 5;
/// Most blocks that one operator makes: copies of its arguments, a workspace, its result.
const OF_ONE_LINE: u32 = 8;
/// Smaller sizes are not considered as copies of weights, because too many blocks have them.
const LEAST_COPY: u64 = 1024;

/// One forward pass, or an uninterrupted part of one: its rows, and the event after which the blocks it keeps are still alive.
struct Pass {
    rows: (u32, u32),
    kept_after: u32,
    leads_to_backward: bool,
    /// True if a request failed in it and the program trains, so that a backward pass would have followed.
    is_cut: bool,
    /// True if a request failed at its end.
    fails: bool,
}

/// Assigns roles to forward blocks that are still undecided. O(lifetimes).
pub(super) fn decide(case: &Case<'_>, weights: &Sizes, gradients: &Sizes, of: &mut [Decided]) {
    let passes = passes(case);
    let stack = |id: LifetimeId| case.tables.lifetimes.stack(case.device, id);
    // Stacks of blocks that passes keep for a backward pass. A pass cut short by running out of memory keeps the same ones.
    let trained: FxHashSet<StackId> = passes
        .iter()
        .filter(|pass| pass.leads_to_backward && !pass.is_cut)
        .flat_map(|pass| (pass.rows.0..pass.rows.1).map(LifetimeId).filter(|&id| case.gone(id) > pass.kept_after))
        .map(stack)
        .collect();
    let trained_calls = trained_calls(case, &passes);
    // Stacks with C++ frames show each autocast.
    let bits = of_forward(case).fold(0, |bits, id| bits | case.sense(id).bits);
    let may_cast = bits & OPERATOR == 0 || bits & CASTS != 0;
    for (at, pass) in passes.iter().enumerate() {
        // A variable that holds a block until the next pass overwrites it frees the block right after that pass.
        let replaced = passes.get(at + 2).map_or(u32::MAX, |p| case.born(LifetimeId(p.rows.0)));
        let open: Vec<LifetimeId> =
            (pass.rows.0..pass.rows.1).map(LifetimeId).filter(|id| of[id.0 as usize].0 == Role::Unknown).collect();
        let is_kept = |id: LifetimeId| case.gone(id) > pass.kept_after;
        let kept: Vec<LifetimeId> = open.iter().copied().filter(|&id| is_kept(id)).collect();
        let copies = if may_cast { copies_of_weights(case, &kept, weights, gradients, of) } else { FxHashSet::default() };
        let is_graph = pass.leads_to_backward || {
            let rest = || kept.iter().filter(|id| !copies.contains(id));
            let stacks: FxHashSet<StackId> = rest().map(|&id| stack(id)).collect();
            let is_known = || !stacks.is_empty() && stacks.is_subset(&trained);
            // The layers of a loop in `forward` have few distinct stacks. Before a failure, nothing else keeps so many blocks.
            let is_failed = || pass.fails && stacks.len() >= STACKS_OF_A_FAILURE && rest().count() >= BLOCKS_OF_A_FAILURE;
            (stacks.len() >= STACKS_OF_A_GRAPH || is_known() || is_failed()) && rest().count() * SHARE_OF_A_GRAPH >= open.len()
        };
        // In a pass cut by a failure, what earlier calls of the same line freed at once is a temporary of the call that was cut.
        let freed = if pass.is_cut { freed_by_line(case, pass) } else { FxHashSet::default() };
        // A pass that failed would have had a backward pass.
        let unused = if pass.is_cut { FxHashSet::default() } else { unused_graphs(case, pass, &trained_calls) };
        for id in open {
            of[id.0 as usize] = if copies.contains(&id) {
                (Role::AutocastCopies, Because::HalfOfWeight)
            } else if unused.contains(&id) {
                (Role::Activations, Because::KeptByGraph)
            } else if is_kept(id) && is_graph && !freed.contains(&stack(id)) {
                let because = match (pass.is_cut, pass.leads_to_backward) {
                    (true, _) => Because::LivesToFailure,
                    (false, true) => Because::LivesToBackward,
                    (false, false) => Because::KeptByGraph,
                };
                (Role::Activations, because)
            } else if case.gone(id) > replaced && !freed.contains(&stack(id)) {
                (Role::Activations, Because::KeptBeyond)
            } else {
                (Role::Temporaries, Because::DiesInForward)
            };
        }
    }
}

/// The stacks whose blocks this pass frees, nearly all of several.
fn freed_by_line(case: &Case<'_>, pass: &Pass) -> FxHashSet<StackId> {
    /// Fewer calls do not show what a line frees.
    const FEWEST: u32 = 3;
    let mut of: FxHashMap<StackId, (u32, u32)> = FxHashMap::default();
    for id in (pass.rows.0..pass.rows.1).map(LifetimeId) {
        let (freed, all) = of.entry(case.tables.lifetimes.stack(case.device, id)).or_default();
        *freed += u32::from(case.gone(id) <= pass.kept_after);
        *all += 1;
    }
    let is_freed = |(freed, all): (u32, u32)| freed >= FEWEST && freed + 1 >= all;
    of.into_iter().filter(|&(stack, counts)| stack.is_some() && is_freed(counts)).map(|(stack, _)| stack).collect()
}

/// The rows of each line that calls a model in a pass. With `each`, the rows of each call: a call ends where its first allocation
/// repeats. Layers of a container look like calls too.
fn calls(case: &Case<'_>, pass: &Pass, each: bool) -> Vec<(u32, u32)> {
    let mut calls: Vec<(u32, u32)> = Vec::new();
    let mut current = None;
    for row in pass.rows.0..pass.rows.1 {
        let stack = case.tables.lifetimes.stack(case.device, LifetimeId(row));
        let Some(site) = case.sense(LifetimeId(row)).site else { continue };
        if current.is_none_or(|(of, first)| of != site || (each && first == stack)) {
            current = Some((site, stack));
            if let Some(last) = calls.last_mut() {
                last.1 = row;
            }
            calls.push((row, pass.rows.1));
        }
    }
    calls
}

/// Blocks that model calls in one pass keep as a graph although no backward pass uses them: a teacher's pass without `no_grad`,
/// or an evaluation. A backward pass after them frees what another call keeps; with `retain_graph` everything is kept.
fn unused_graphs(case: &Case<'_>, pass: &Pass, trained: &FxHashMap<usize, Vec<u64>>) -> FxHashSet<LifetimeId> {
    let part = |event: u32| case.phases.run_at(event).map(|at| case.phases.runs[at].part);
    let is_unused = |id: &LifetimeId| case.gone(*id) != NO_EVENT && part(case.gone(*id)) != Some(Part::Backward);
    let own = own_backward(case, pass);
    let is_used = |id: &LifetimeId| own.contains(&case.gone(*id));
    let (mut unused, mut is_clear) = (FxHashSet::default(), !pass.leads_to_backward);
    let calls = [false, true].map(|each| calls(case, pass, each));
    let last = pass.rows.1;
    for &(first, end) in calls.iter().flatten() {
        // Local variables of a function are freed when it returns, before the next call.
        let returned = case.born(LifetimeId(if end < last { end } else { end - 1 }));
        let kept: Vec<LifetimeId> = (first..end).map(LifetimeId).filter(|&id| case.gone(id) > returned).collect();
        let stacks: FxHashSet<StackId> = kept.iter().map(|&id| case.tables.lifetimes.stack(case.device, id)).collect();
        // Layers in one of torch's containers share the same few stacks; of their blocks most are kept.
        let is_graph = stacks.len() >= STACKS_OF_A_GRAPH && kept.len() * SHARE_OF_A_GRAPH >= (end - first) as usize;
        let is_of_few = stacks.len() > 1 && kept.len() >= BLOCKS_OF_A_GRAPH && kept.len() * 2 >= (end - first) as usize;
        if !is_graph && !is_of_few {
            continue;
        }
        let bytes = |ids: &mut dyn Iterator<Item = &LifetimeId>| ids.fold(0u64, |sum, &id| sum.saturating_add(case.size(id)));
        let (all, left) = (bytes(&mut kept.iter()), bytes(&mut kept.iter().filter(|id| is_unused(id))));
        let number = kept.iter().filter(|id| is_unused(id)).count();
        is_clear |= bytes(&mut kept.iter().filter(|id| is_used(id))).saturating_mul(2) > all;
        if left.saturating_mul(10) >= all.saturating_mul(9) && number * 10 >= kept.len() * 9 {
            unused.extend(kept);
        }
    }
    if pass.leads_to_backward {
        let second: Vec<_> =
            calls.iter().flat_map(|calls| second_graphs(case, calls, trained, is_unused, is_used)).flatten().collect();
        is_clear |= !second.is_empty();
        unused.extend(second);
    }
    if is_clear { unused } else { FxHashSet::default() }
}

/// For each call of a model, the blocks it keeps: those alive when it has made its last block, which is its result.
fn kept_by_calls(case: &Case<'_>, calls: &[(u32, u32)]) -> Vec<Vec<LifetimeId>> {
    let kept = |&(first, end): &(u32, u32)| -> Vec<LifetimeId> {
        let site = case.sense(LifetimeId(first)).site;
        let last = (first..end).rev().map(LifetimeId).find(|&id| case.sense(id).site == site);
        let made = last.map_or(u32::MAX, |last| case.born(last));
        (first..end).map(LifetimeId).take_while(|&id| Some(id) != last).filter(|&id| case.gone(id) > made).collect()
    };
    calls.iter().map(kept).collect()
}

/// The sizes of what calls keep whose graph a backward pass uses; one example per number of blocks.
fn trained_calls(case: &Case<'_>, passes: &[Pass]) -> FxHashMap<usize, Vec<u64>> {
    let mut found = FxHashMap::default();
    for pass in passes.iter().filter(|pass| pass.leads_to_backward && !pass.is_cut) {
        let own = own_backward(case, pass);
        for kept in kept_by_calls(case, &calls(case, pass, false)).into_iter().filter(|kept| kept.len() >= STACKS_OF_A_GRAPH) {
            let used = kept.iter().filter(|id| own.contains(&case.gone(**id))).count();
            if used * 2 > kept.len() {
                found.entry(kept.len()).or_insert_with(|| kept.iter().map(|&id| case.size(id)).collect());
            }
        }
    }
    found
}

/// True if a call keeps the same blocks as a trained call, all scaled by the same factor: another batch size.
fn is_like(case: &Case<'_>, kept: &[LifetimeId], trained: &[u64]) -> bool {
    let sum = |sizes: &mut dyn Iterator<Item = u64>| sizes.fold(0u64, u64::saturating_add) as f64;
    let all = sum(&mut kept.iter().map(|&id| case.size(id)));
    let times = all / sum(&mut trained.iter().copied()).max(1.0);
    let is_near = |&(id, size): &(&LifetimeId, &u64)| (case.size(*id) as f64 / (*size as f64 * times) - 1.0).abs() < 0.05;
    sum(&mut kept.iter().zip(trained).filter(is_near).map(|(&id, _)| case.size(id))) >= all * 0.9
}

/// The pass's own backward pass. A backward pass after a later forward pass may go through this graph too.
fn own_backward(case: &Case<'_>, pass: &Pass) -> std::ops::Range<u32> {
    case.phases.run_at(pass.kept_after).map_or(0..0, |at| pass.kept_after..case.phases.runs[at].events.1)
}

/// Blocks of calls whose graph is dropped before the backward pass, such as a second call of the model for a metric or for sample
/// outputs. Such a call keeps about as much as the call whose graph is used, or the same blocks as a call in another pass.
/// Without a graph it would keep only its variables, which is less.
fn second_graphs(
    case: &Case<'_>,
    calls: &[(u32, u32)],
    trained: &FxHashMap<usize, Vec<u64>>,
    is_unused: impl Fn(&LifetimeId) -> bool,
    is_used: impl Fn(&LifetimeId) -> bool,
) -> Vec<Vec<LifetimeId>> {
    let bytes = |ids: &mut dyn Iterator<Item = &LifetimeId>| ids.fold(0u64, |sum, &id| sum.saturating_add(case.size(id)));
    let kept = kept_by_calls(case, calls);
    let most_used = kept.iter().map(|kept| bytes(&mut kept.iter().filter(|id| is_used(id)))).max().unwrap_or(0);
    let is_second = |kept: &Vec<LifetimeId>| {
        let (all, left) = (bytes(&mut kept.iter()), bytes(&mut kept.iter().filter(|id| is_unused(id))));
        let number = kept.iter().filter(|id| is_unused(id)).count();
        let is_as_large = match most_used {
            0 => trained.get(&kept.len()).is_some_and(|trained| is_like(case, kept, trained)),
            most => all.saturating_mul(5) >= most.saturating_mul(4),
        };
        is_as_large
            && kept.len() >= STACKS_OF_A_GRAPH
            && left.saturating_mul(10) >= all.saturating_mul(9)
            && number * 10 >= kept.len() * 9
    };
    kept.into_iter().filter(is_second).collect()
}

fn of_forward(case: &Case<'_>) -> impl Iterator<Item = LifetimeId> {
    case.phases.runs.iter().filter(|r| r.part == Part::Forward).flat_map(Run::ids)
}

/// Every forward pass. A pass also ends where a step begins, because an evaluation loop has nothing else between its passes. It
/// ends at a failed request, too: the program may catch the error and run the next pass.
fn passes(case: &Case<'_>) -> Vec<Pass> {
    let phases = case.phases;
    let failures = case.device.events.ooms();
    let mut bounds: Vec<u32> = case.steps.bounds.iter().chain(&failures).copied().collect();
    bounds.sort_unstable();
    bounds.dedup();
    let backward: Vec<u32> = phases.runs.iter().filter(|r| r.part == Part::Backward).map(|r| r.events.0).collect();
    let mut passes = Vec::new();
    for run in phases.runs.iter().filter(|r| r.part == Part::Forward) {
        let cuts = bounds.iter().copied().filter(|b| (run.events.0 + 1..run.events.1).contains(b));
        let mut from = run.rows.0;
        for cut in cuts.chain([u32::MAX]) {
            let to = from + (from..run.rows.1).take_while(|&row| case.born(LifetimeId(row)) < cut).count() as u32;
            if to > from {
                let failure = failures.binary_search(&cut).ok().map(|_| cut);
                passes.push(pass(case, (from, to), run, &backward, failure));
            }
            from = to;
        }
    }
    passes
}

/// `failure`: the request that failed at the end of the pass.
fn pass(case: &Case<'_>, rows: (u32, u32), run: &Run, backward: &[u32], failure: Option<u32>) -> Pass {
    let last = case.born(LifetimeId(rows.1 - 1));
    if let Some(failure) = failure.filter(|_| run.phase != Phase::Evaluation && case.phases.has(Part::Backward)) {
        return Pass { rows, kept_after: failure, leads_to_backward: true, is_cut: true, fails: true };
    }
    // The backward pass of the same step, even if other forward parts come before it.
    let next = backward.get(backward.partition_point(|&b| b <= last)).copied();
    let bounds = &case.steps.bounds;
    let step_ends = bounds.get(bounds.partition_point(|&b| b <= last)).copied().unwrap_or(u32::MAX);
    let is_next_run = rows.1 == run.rows.1 && next.is_some_and(|b| b == run.events.1);
    let backward = next.filter(|&b| run.phase != Phase::Evaluation && (is_next_run || b < step_ends));
    Pass {
        rows,
        kept_after: backward.unwrap_or(last),
        leads_to_backward: backward.is_some(),
        is_cut: false,
        fails: failure.is_some(),
    }
}

/// Finds autocast's copies of weights among the blocks that a pass keeps. A copy is half as large as a weight, and there are no
/// more copies of a size than weights of twice that size. The operator that needed the copy has a result from the same line: a
/// block of another size that outlives the line.
fn copies_of_weights(
    case: &Case<'_>,
    kept: &[LifetimeId],
    weights: &Sizes,
    gradients: &Sizes,
    of: &[Decided],
) -> FxHashSet<LifetimeId> {
    let lifetimes = &case.tables.lifetimes;
    let line = |id| (lifetimes.stack(case.device, id), case.sense(id).python);
    let is_of_line = |a: LifetimeId, b: LifetimeId| {
        let (a, b) = (line(a), line(b));
        a.0 == b.0 || (a.1 == b.1 && a.1 != 0)
    };
    // The result of a function of one argument has the argument's size. A block freed before another line allocates is a workspace.
    let is_followed = |id: LifetimeId| {
        let later = || (id.0 + 1..case.rows().min(id.0 + 1 + OF_ONE_LINE)).map(LifetimeId);
        let Some(end) = later().find(|&other| !is_of_line(id, other)).or(later().next_back()) else { return false };
        later().take_while(|&other| is_of_line(id, other)).any(|other| {
            let is_workspace = of[other.0 as usize].0 == Role::Workspaces;
            case.size(other) != case.size(id) && !is_workspace && case.gone(other) > case.born(end)
        })
    };
    let mut of_size: FxHashMap<u64, Vec<LifetimeId>> = FxHashMap::default();
    for &id in kept {
        let size = case.size(id);
        if size >= LEAST_COPY && weights.contains_key(&(size * 2)) && !case.sense(id).is_weightless && is_followed(id) {
            of_size.entry(size).or_default().push(id);
        }
    }
    let (mut found, mut bytes) = (FxHashSet::default(), 0);
    for (size, ids) in of_size {
        let most = weights.get(&(size * 2)).map_or(0, |&n| n as usize);
        let chosen = if ids.len() <= most { ids } else { of_few_stacks(case, &ids, most) };
        bytes += size * chosen.len() as u64;
        found.extend(chosen);
    }
    // A few such blocks are chance, as autocast copies most weights. An average of the weights has neither gradients nor copies.
    let trained = |size: &u64, n: u32| gradients.get(size).map_or(n, |&gradients| n.min(gradients));
    let all: u64 = weights.iter().map(|(size, n)| size * u64::from(trained(size, *n))).sum();
    if bytes.saturating_mul(4) < all {
        found.clear();
    }
    found
}

/// Selects stacks, earliest first, that together made at most `most` blocks.
fn of_few_stacks(case: &Case<'_>, ids: &[LifetimeId], most: usize) -> Vec<LifetimeId> {
    let mut by_stack: FxHashMap<StackId, Vec<LifetimeId>> = FxHashMap::default();
    for &id in ids {
        by_stack.entry(case.tables.lifetimes.stack(case.device, id)).or_default().push(id);
    }
    let mut groups: Vec<Vec<LifetimeId>> = by_stack.into_values().collect();
    groups.sort_by_key(|g| g[0]);
    let mut chosen: Vec<LifetimeId> = Vec::new();
    for group in groups {
        if chosen.len() + group.len() <= most {
            chosen.extend(group);
        }
    }
    chosen
}
