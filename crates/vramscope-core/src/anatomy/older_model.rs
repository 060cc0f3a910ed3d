//! The model from before the history: distinguishes weights, gradients and optimizer state by the number of blocks of each size.

use std::cmp::Reverse;

use rustc_hash::{FxHashMap, FxHashSet};

use super::case::{Case, Decided, Sizes, has_adam, is_cublas_size, is_workspace_size, keeps_one};
use super::phases::Run;
use super::role::{Because, Role};
use super::sense::Part;
use crate::model::DeviceRecording;
use crate::tables::LifetimeId;
use crate::units::MEBIBYTE;

/// Smaller sizes are ignored: scalars, biases and norms occur in any number.
pub(super) const LEAST: u64 = 4096;

/// The blocks of each size that are never freed.
pub(super) type Stays = FxHashMap<u64, Vec<LifetimeId>>;

/// True if backward passes add to gradients from before the history, as without `zero_grad` or with `set_to_none=False`: few
/// gradients are made for the older blocks that the optimizer works on. Takes the gradients of all passes of a step, because in a
/// GAN each pass makes those of one network.
pub(super) fn has_older_gradients(case: &Case<'_>, gradients: &Sizes) -> bool {
    // An optimizer keeps up to this many copies of the weights that it updates.
    const COPIES: u64 = 4;
    // Up to this many blocks of the last operations may look like gradients.
    const LAST: u64 = 6;
    // A pass that began before the history made most of its gradients before it too.
    let whole = case.phases.runs.iter().skip_while(|r| r.part != Part::Forward);
    let passes = match case.phases.has_stacks {
        true => whole.filter(|r| r.part == Part::Backward).count(),
        false => case.steps.optimizer.len(),
    };
    let steps_in_backward = |pair: &[Run]| pair[0].part == Part::Optimizer && pair[1].part == Part::Backward;
    if passes == 0 || case.steps.optimizer.len() > 2 * passes || case.phases.runs.windows(2).any(steps_in_backward) {
        return false;
    }
    let mut stepped = made_by_optimizer(case);
    let is_in_place = stepped.is_empty() && !case.phases.has_stacks;
    if is_in_place {
        // An optimizer that works in place allocates nothing. Backward passes make a gradient for each weight, also if they add it.
        stepped = made_in_step(case).map(|id| case.size(id)).collect();
    }
    let is_older = |id: &LifetimeId| case.stays(*id) && case.size(*id) >= LEAST && !is_workspace_size(case.size(*id));
    // Number of older blocks of each size.
    let mut older: FxHashMap<u64, u64> = FxHashMap::default();
    for id in (0..case.phases.first_row).map(LifetimeId).filter(is_older) {
        *older.entry(case.size(id)).or_default() += 1;
    }
    let of_optimizer: FxHashMap<u64, u64> =
        older.iter().map(|(&s, &n)| (s, n)).filter(|(size, _)| stepped.contains(size)).collect();
    let made = || gradients.iter().map(|(&size, &n)| (size, u64::from(n)));
    let of_a_weight: u64 = made().filter(|(size, _)| older.contains_key(size)).map(|(_, n)| n).sum();
    let sum = |sizes: &FxHashMap<u64, u64>| sizes.iter().map(|(size, n)| size * n).sum::<u64>();
    let (all, stepped) = (sum(&older), sum(&of_optimizer));
    if of_a_weight == 0 {
        // FSDP gathers gradients, with some blocks for many weights.
        let is_gradient = |&(size, n): &(u64, u64)| size >= LEAST && (n > 2 || !is_workspace_size(size));
        let bytes: u64 = made().filter(is_gradient).map(|(size, n)| size * n).sum();
        return bytes * COPIES < if of_optimizer.is_empty() { all } else { stepped };
    }
    let is_last = of_optimizer.is_empty() && of_a_weight <= LAST;
    let (held, bytes) = if is_last { (&older, all) } else { (&of_optimizer, stepped) };
    let covered: u64 = made().map(|(size, n)| size.saturating_mul(held.get(&size).copied().unwrap_or(0).min(n * COPIES))).sum();
    // Gradients cover all that an optimizer in place works on; a few of its blocks are as large as others of the step.
    if is_in_place { covered * 4 < bytes * 3 } else { covered * 2 < bytes }
}

/// The sizes that optimizers allocate: those of the parameters they update, and of what they gather.
fn made_by_optimizer(case: &Case<'_>) -> FxHashSet<u64> {
    let runs = case.phases.runs.iter().filter(|r| case.phases.has_stacks && r.part == Part::Optimizer).flat_map(Run::ids);
    let within = |&(from, to): &(u32, u32)| case.phases.made_within(case.tables, from, to);
    let annotated = case.steps.optimizer.iter().filter(|_| !case.phases.has_stacks).flat_map(within);
    runs.chain(annotated).map(|id| case.size(id)).collect()
}

/// Divides the blocks that stay into weights, optimizer state (minus the `replaced` ones), and gradients if the history makes none.
pub(super) fn decide(
    case: &Case<'_>,
    stays: Stays,
    gradients: &Sizes,
    replaced: &Sizes,
    has_gradients: bool,
) -> Vec<(LifetimeId, Decided)> {
    // Gradients that match no size of the blocks that stay, such as FSDP's gathered ones, say nothing about the model.
    let (tells, none) = (gradients.keys().any(|size| *size >= LEAST && stays.contains_key(size)), Sizes::default());
    let gradients = if tells { gradients } else { &none };
    // Frozen weights have no copies. Optimizers that work in place show no sizes.
    let mut stepped = if has_gradients { made_by_optimizer(case) } else { FxHashSet::default() };
    stepped.retain(|size| *size >= LEAST && stays.contains_key(size));
    let is_stepped = |size: u64| stepped.is_empty() || stepped.contains(&size);
    let count = |size: u64, list: &[LifetimeId]| list.len() + replaced.get(&size).map_or(0, |&n| n as usize);
    let of_gradient = blocks_a_gradient(&stays, gradients);
    let sizes: Vec<(u64, usize)> = stays.iter().filter(|s| is_stepped(*s.0)).map(|(&s, list)| (s, count(s, list))).collect();
    let added = if has_gradients { added_gradients(case, &stays) } else { Sizes::default() };
    let copies = match gradients.is_empty() {
        true => copies_of(&sizes, &added).unwrap_or_else(|| copies(&sizes, has_gradients)),
        false => 1,
    };
    let keeps_one = keeps_one(case);
    let is_adam = gradients.is_empty() && copies < 3 && has_adam(case);
    let of_adam = 3 + usize::from(has_gradients);
    let results = if gradients.is_empty() { FxHashSet::default() } else { large_sizes_of_forward(case) };
    // Weights have gradients. If a size has none, one or two blocks of it are results of a forward pass that a variable holds.
    let is_result = |size: u64, n: usize| n <= 2 && results.contains(&size) && !gradients.contains_key(&size);
    let ranges = ranges(case.device);
    let mut of = Vec::new();
    let model: Vec<LifetimeId> = stays.values().flatten().copied().collect();
    let data = if gradients.is_empty() { FxHashSet::default() } else { data(case, &model, gradients) };
    for (size, mut list) in stays {
        if list.iter().all(|id| data.contains(id)) {
            of.extend(list.into_iter().map(|id| (id, (Role::Inputs, Because::HasNoGradient))));
            continue;
        }
        // The driver takes ranges of addresses from above to below, and fills each upwards; weights were made first.
        list.sort_by_key(|&id| {
            let address = case.tables.lifetimes.address(case.device, id);
            (Reverse(range_of(case.device, &ranges, address)), address)
        });
        let all = count(size, &list);
        let (weights, each) = match gradients.get(&size) {
            // Another optimizer may keep more or fewer for some of the weights.
            Some(&g) if of_gradient > 1 && (2..=4).any(|each| all == g as usize * each) => (g as usize, all / g as usize),
            Some(_) if of_gradient > 1 && all.is_multiple_of(of_gradient) => (all / of_gradient, of_gradient),
            // A pass that the recording cuts makes too few gradients, and a library may hold one or two blocks of a weight's size.
            Some(&g) if of_gradient > 1 && list.len() >= g as usize => {
                let is_cut = list.len() > g as usize * of_gradient + 2;
                (if is_cut { list.len() / of_gradient } else { g as usize }, of_gradient)
            }
            None if is_adam && is_stepped(size) && all.is_multiple_of(of_adam) => (all / of_adam, of_adam),
            None if copies > 1 && is_stepped(size) && divides(copies, size, all) => (all / copies, copies),
            _ => (list.len(), 1),
        };
        let shares = Shares::of(each, gradients.is_empty() && (has_gradients || each == 4), keeps_one);
        let end = if each > 1 && is_workspace_size(size) { list.len().min(weights * each) } else { list.len() };
        for (i, id) in list.into_iter().enumerate() {
            let decided = if each == 1 && is_result(size, all) {
                (Role::Activations, Because::OlderResult)
            } else if each == 1 {
                (Role::Weights, Because::OlderAndStays)
            } else if i >= end {
                (Role::Workspaces, Because::LibrarySize)
            } else if i < weights * shares.weights {
                (Role::Weights, Because::OlderByCount)
            } else if i + weights * shares.gradients >= end {
                (Role::Gradients, Because::OlderByCount)
            } else {
                (Role::OptimizerState, Because::OlderByCount)
            };
            of.push((id, decided));
        }
    }
    of
}

/// Data that a training program keeps beside its model: a few blocks larger than every gradient, while nearly all others have one.
pub(super) fn data(case: &Case<'_>, model: &[LifetimeId], gradients: &Sizes) -> FxHashSet<LifetimeId> {
    const A_FEW: u32 = 4;
    /// Blocks this many times smaller than the largest gradient do not count, as rewards beside observations.
    const SMALL: u64 = 64;
    let largest = gradients.keys().max().copied().unwrap_or(u64::MAX);
    let is_library = |size: u64| is_cublas_size(size) || is_workspace_size(size);
    let of_none = model.iter().copied().filter(|&id| !gradients.contains_key(&case.size(id)) && !is_library(case.size(id)));
    let (large, small): (Vec<LifetimeId>, Vec<LifetimeId>) = of_none.partition(|&id| case.size(id) > largest);
    let least = LEAST.max(largest / SMALL);
    let others = large.len() + small.iter().filter(|&&id| case.size(id) >= least).count();
    let is_model = others as u32 * A_FEW > gradients.values().sum();
    if is_model { FxHashSet::default() } else { large.into_iter().collect() }
}

/// The sizes of at least a mebibyte that the largest forward pass makes.
fn large_sizes_of_forward(case: &Case<'_>) -> FxHashSet<u64> {
    let passes = case.phases.runs.iter().filter(|r| r.part == Part::Forward);
    let largest = passes.max_by_key(|r| r.rows.1 - r.rows.0);
    largest.into_iter().flat_map(Run::ids).map(|id| case.size(id)).filter(|&size| size >= MEBIBYTE).collect()
}

/// How many blocks per weight are weights and gradients; the rest is optimizer state.
pub(super) struct Shares {
    pub(super) weights: usize,
    gradients: usize,
}

impl Shares {
    /// Of `each` blocks. An optimizer keeps one or two for a weight, of which its stacks may tell; with one more there is a second model, an
    /// average of its weights.
    pub(super) fn of(each: usize, has_gradients: bool, keeps_one: bool) -> Self {
        let gradients = usize::from(has_gradients);
        let most = 1 + if keeps_one { 1 } else { 2 };
        Self { weights: if each - gradients == most + 1 { 2 } else { 1 }, gradients }
    }
}

/// The number of blocks per gradient, as most bytes indicate: the weight, and the optimizer's state for it. Sizes that a whole number
/// explains count before others: a backward pass may make a second block of a large gradient's size and free it late.
fn blocks_a_gradient(stays: &Stays, gradients: &Sizes) -> usize {
    /// With fewer sizes than this, a whole number may be chance.
    const FEWEST: usize = 3;
    let of_both = || stays.iter().filter_map(|(size, list)| Some((*size, list.len(), *gradients.get(size)? as usize)));
    let of_model = || of_both().filter(|&(size, _, g)| g > 0 && size >= 1024);
    let is_whole = |(_, all, g): &(u64, usize, usize)| all.is_multiple_of(*g);
    let only_whole = of_model().filter(is_whole).count() >= FEWEST;
    let mut votes: FxHashMap<usize, u64> = FxHashMap::default();
    for (size, all, g) in of_model().filter(|of| !only_whole || is_whole(of)) {
        *votes.entry((all + g / 2) / g).or_default() += size * g as u64;
    }
    votes.into_iter().max_by_key(|&(n, bytes)| (bytes, n)).map_or(1, |v| v.0)
}

/// The gradients of all backward passes of a step, where they explain more of the older model than those of the largest pass: two
/// models take turns, as in a GAN. Explained are the blocks whose number is the same multiple of the gradients.
pub(super) fn of_all_passes(case: &Case<'_>, of_one: Sizes, mut of_step: Sizes) -> Sizes {
    let mut older = Sizes::default();
    for id in (0..case.phases.first_row).map(LifetimeId).filter(|&id| case.stays(id) && case.size(id) >= LEAST) {
        *older.entry(case.size(id)).or_default() += 1;
    }
    let explained = |gradients: &Sizes| {
        let mut of: FxHashMap<u32, u64> = FxHashMap::default();
        for (size, all) in older.iter().filter(|(size, _)| !is_workspace_size(**size)) {
            if let Some(&g) = gradients.get(size).filter(|&&g| g > 0 && all.is_multiple_of(g)) {
                *of.entry(all / g).or_default() += size * u64::from(*all);
            }
        }
        of.into_values().max().unwrap_or(0)
    };
    if explained(&of_step) <= explained(&of_one) {
        return of_one;
    }
    of_step.retain(|size, _| older.contains_key(size) || of_one.contains_key(size));
    of_step
}

/// Gradients that a backward pass makes, adds to older ones and frees at once, matched by the sizes of blocks that stay.
/// Gradients of activations may have the same sizes.
fn added_gradients(case: &Case<'_>, stays: &Stays) -> Sizes {
    let whole = case.phases.runs.iter().skip_while(|r| r.part != Part::Forward);
    let pass = whole.filter(|r| r.part == Part::Backward).max_by_key(|r| r.rows.1 - r.rows.0);
    let made: Vec<LifetimeId> = match pass {
        Some(run) => run.ids().filter(|&id| case.gone(id) < run.events.1).collect(),
        None => made_in_step(case).collect(),
    };
    let mut sizes = Sizes::default();
    for size in made.into_iter().map(|id| case.size(id)).filter(|size| *size >= LEAST && stays.contains_key(size)) {
        *sizes.entry(size).or_default() += 1;
    }
    sizes
}

/// What the middle one of all steps makes outside of the optimizer and frees.
fn made_in_step(case: &Case<'_>) -> impl Iterator<Item = LifetimeId> {
    let bounds = &case.steps.bounds;
    let middle = bounds.len().saturating_sub(2) / 2;
    let (from, to) = (bounds.get(middle).copied().unwrap_or(0), bounds.get(middle + 1).copied().unwrap_or(0));
    let in_optimizer = |born: u32| case.steps.optimizer.iter().any(|&(begin, end)| (begin..end).contains(&born));
    case.phases.made_within(case.tables, from, to).filter(move |&id| case.gone(id) < to && !in_optimizer(case.born(id)))
}

/// Number of copies of the whole model, if a backward pass adds to as many gradients: how many blocks stay for each. `None`
/// unless nine tenths of the bytes agree.
fn copies_of(sizes: &[(u64, usize)], added: &Sizes) -> Option<usize> {
    let bytes = |s: &(u64, usize)| s.0 * s.1 as u64;
    let all: u64 = sizes.iter().filter(|s| s.0 >= LEAST).map(bytes).sum();
    let agrees = |n: usize, s: &(u64, usize)| added.get(&s.0).is_some_and(|&g| g as usize * n == s.1);
    let agreed = |n: usize| sizes.iter().filter(|s| agrees(n, s)).map(bytes).sum::<u64>();
    (2..=5).find(|&n| all > 0 && agreed(n).saturating_mul(10) >= all.saturating_mul(9))
}

/// Number of copies of the whole model, without gradients to compare with. Four are weights, gradients and Adam's two moments;
/// three are the same without gradients. With gradients, three have momentum, two have not, and five have an average of the
/// weights. Sizes that occur only once or twice, such as an embedding's, distinguish copies of the model from its layers.
fn copies(sizes: &[(u64, usize)], has_gradients: bool) -> usize {
    let is_of_model = |s: &(u64, usize)| s.0 >= LEAST && !(s.1 == 1 && is_workspace_size(s.0));
    let sizes: Vec<(u64, usize)> = sizes.iter().copied().filter(is_of_model).collect();
    let bytes = |s: &(u64, usize)| s.0 * s.1 as u64;
    let all: u64 = sizes.iter().map(bytes).sum();
    let rarest = sizes.iter().filter(|s| bytes(s).saturating_mul(200) >= all).map(|s| s.1).min().unwrap_or(1);
    let fits = |n: usize| {
        let fit: u64 = sizes.iter().filter(|s| divides(n, s.0, s.1)).map(bytes).sum();
        sizes.len() > 1 && rarest.is_multiple_of(n) && rarest <= 2 * n && fit.saturating_mul(100) >= all.saturating_mul(97)
    };
    let possible = if has_gradients { &[5, 4, 3, 2][..] } else { &[4, 3] };
    possible.iter().copied().find(|&n| fits(n)).unwrap_or(1)
}

/// True if `count` blocks are `n` per weight, possibly plus one workspace of the same size.
fn divides(n: usize, size: u64, count: usize) -> bool {
    count.is_multiple_of(n) || (count % n == 1 && count > n && is_workspace_size(size))
}

/// For each segment of the end state the start of its range: of all segments that adjoin each other.
fn ranges(device: &DeviceRecording) -> Vec<u64> {
    let mut ranges: Vec<u64> = Vec::with_capacity(device.segments.len());
    let mut end = None;
    for segment in &device.segments {
        let begin = ranges.last().copied().filter(|_| end == Some(segment.address)).unwrap_or(segment.address);
        ranges.push(begin);
        end = segment.address.checked_add(segment.size);
    }
    ranges
}

/// The start of the range that holds an address; the address itself if none does.
fn range_of(device: &DeviceRecording, ranges: &[u64], address: u64) -> u64 {
    let at = device.segments.partition_point(|s| s.address <= address).checked_sub(1);
    let at = at.filter(|&i| address - device.segments[i].address < device.segments[i].size);
    at.and_then(|i| ranges.get(i)).copied().unwrap_or(address)
}
