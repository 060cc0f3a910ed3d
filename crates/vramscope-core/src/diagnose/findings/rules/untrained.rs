//! Gradients of weights that no optimizer updates: a teacher or a frozen network that is run like the trained model.

use rustc_hash::{FxHashMap, FxHashSet};

use super::at_peak::{LEAST, peak, saving};
use super::kept::made_by_next_layer;
use super::library::optimizer;
use crate::anatomy::Phase;
use crate::anatomy::roles::Role;
use crate::diagnose::counterfactual::{Saving, peak_if_freed};
use crate::diagnose::findings::{Class, Finding, Place, RuleInput};
use crate::model::StackId;
use crate::tables::{LifetimeId, NO_EVENT};
use crate::units::{Bytes, MEBIBYTE, counted};

/// Fewer gradients than this may be chance.
const FEWEST: usize = 4;
/// State of at most this many bytes is a single number and is not matched by size.
const NUMBER: u64 = 8;
/// Smaller gradients are not worth a finding.
const LEAST_GRADIENTS: u64 = 16 * MEBIBYTE;
/// The same for gradients without activations of their own.
const LEAST_ALONE: u64 = 32 * MEBIBYTE;

/// The gradients live after a backward pass, by the optimizer state for blocks of their size.
struct Gradients {
    /// Gradients of sizes without state.
    untrained: Vec<LifetimeId>,
    /// Number of all gradients without state, including those whose size trained weights have too.
    blocks: usize,
    bytes: u64,
    /// Sizes with as much state as every weight needs.
    trained: FxHashSet<u64>,
    /// The event at which the last gradient of such a size was made.
    last_trained: u32,
    /// If a second model has the same sizes and only one half of the gradients is used: their number.
    of_twin: Option<usize>,
}

/// Gradients without optimizer state after a backward pass (from one event to another), although the optimizer keeps state for
/// others; matched by block size.
fn gradients(p: &RuleInput<'_>, (from, after): (u32, u32)) -> Option<Gradients> {
    const MOST_STATES: usize = 3;
    let lifetimes = &p.tables.lifetimes;
    let size = |id: LifetimeId| p.requested(id);
    let live = |role: Role| {
        let ids = lifetimes.ids();
        ids.filter(move |&id| p.roles.of(id) == role && lifetimes.gone(id) >= after)
    };
    // Gradients that were zeroed in place are older than the pass.
    let is_made = |id: &LifetimeId| lifetimes.born(*id) == NO_EVENT || lifetimes.born(*id) < after;
    let mut made: Vec<LifetimeId> = live(Role::Gradients).filter(is_made).collect();
    // Gradients that the pass only adds to were not freed by the optimizer's zero_grad().
    made.sort_by_key(|&id| !(from..after).contains(&lifetimes.born(id)));
    let mut of_size: FxHashMap<u64, (usize, usize)> = FxHashMap::default();
    made.iter().for_each(|&id| of_size.entry(size(id)).or_default().0 += 1);
    let mut unmatched = 0;
    for id in live(Role::OptimizerState) {
        match of_size.get_mut(&size(id)) {
            Some(of) => of.1 += 1,
            // A step counter is a single number.
            None => unmatched += usize::from(size(id) > NUMBER),
        }
    }
    // Adam keeps two blocks per weight, SGD with momentum one. Two models may have weights of one size.
    let exact =
        |&(gradients, states): &(usize, usize)| states > 0 && states % gradients == 0 && states / gradients <= MOST_STATES;
    let each = of_size.values().copied().filter(exact).map(|(gradients, states)| states / gradients).max()?;
    // An optimizer that keeps two blocks per weight but has one per gradient updates every other one: a model and its twin.
    let keeps_two = || optimizer(p, live(Role::OptimizerState)).is_some_and(|name| ["AdamW", "NAdam", "RAdam"].contains(&name));
    let is_twin = each == 1 && keeps_two();
    let each = if is_twin { 2 } else { each };
    let of = |id: LifetimeId| of_size.get(&size(id)).copied().unwrap_or_default();
    let (mut trained, mut untrained) = (Vec::new(), Vec::new());
    let mut seen: FxHashMap<u64, usize> = FxHashMap::default();
    for &id in &made {
        let (gradients, states) = of(id);
        let nth = seen.entry(size(id)).or_default();
        *nth += 1;
        // The backward pass visits the model that was called last first; a reference model is called before the trained one.
        if states == 0 || (is_twin && states == gradients && *nth * each > states) {
            untrained.push(id);
        } else if states == gradients * each || (is_twin && states == gradients) {
            trained.push(id);
        }
    }
    let without = |(gradients, states): (usize, usize)| gradients.saturating_sub(states.div_ceil(each));
    let blocks = of_size.values().map(|&of| without(of)).sum();
    let bytes = of_size.iter().map(|(size, &of)| size * without(of) as u64).sum();
    // If only an output layer is trained, or an input image, few gradients match but all of the state does.
    let fewest = if unmatched == 0 { 1 } else { FEWEST };
    // Adafactor keeps a row and a column per matrix, and a whole block only for vectors; it updates all of them.
    if untrained.iter().map(|&id| size(id)).min() > trained.iter().map(|&id| size(id)).max() {
        return None;
    }
    let is_enough = trained.len() >= fewest && untrained.len() >= FEWEST && bytes >= LEAST_GRADIENTS;
    let last_trained = trained.iter().map(|&id| lifetimes.born(id)).filter(|&born| born != NO_EVENT).max()?;
    let of_twin = is_twin.then_some(trained.len());
    let trained = trained.into_iter().map(size).collect();
    is_enough.then_some(Gradients { untrained, blocks, bytes, trained, last_trained, of_twin })
}

/// Reports gradients that nothing uses, plus the activations that only they need, if their own backward pass comes last.
pub(super) fn untrained_gradients(p: &RuleInput<'_>) -> Option<Finding> {
    let lifetimes = &p.tables.lifetimes;
    let runs = p.runs();
    // State must exist already: use a backward pass after an optimizer step, at the peak or the first after it.
    let first_step = runs.iter().find(|run| run.phase == Phase::Optimizer).map(|run| run.events.1)?;
    let is_one =
        |run: &&crate::anatomy::Run| run.phase == Phase::Backward && run.events.0 >= first_step && run.events.1 > p.peak_event;
    let (from, to) = runs.iter().find(is_one).map(|run| run.events)?;
    // The optimizer keeps state for the fp32 copies, which have other sizes.
    if p.at_peak.blocks.iter().any(|b| p.roles.is_master_copy(b.lifetime)) {
        return None;
    }
    let found = gradients(p, (from, to))?;
    let size = |id: LifetimeId| p.requested(id);
    let bytes = found.bytes;
    let sizes: FxHashSet<u64> = found.untrained.iter().map(|&id| size(id)).collect();
    let is_untrained = |id: LifetimeId| p.roles.of(id) == Role::Gradients && sizes.contains(&size(id));
    let of_graph = |id: LifetimeId| {
        let gone = lifetimes.gone(id);
        p.roles.of(id) == Role::Activations && gone != NO_EVENT && gone > found.last_trained.max(from) && gone < to
    };
    let graph: Vec<LifetimeId> = lifetimes.ids().filter(|&id| of_graph(id)).collect();
    let held = |is_counted: &dyn Fn(LifetimeId) -> bool| -> u64 {
        graph.iter().filter(|&&id| is_counted(id)).map(|&id| lifetimes.block_size(id)).sum()
    };
    let kept = held(&|_| true);
    // If a used gradient comes last, the backward pass also runs through the layers that are not trained.
    let is_apart = kept >= LEAST;
    // The bytes shown at the peak in the Overview, if the peak is in this pass.
    let kept = match held(&|id| lifetimes.gone(id) > p.peak_event) {
        _ if !is_apart => 0,
        0 => kept,
        at_peak => at_peak.min(kept),
    };
    // Without the graph, nothing is computed after the last used gradient, in any step.
    let mut unused: Vec<(u32, u32)> = Vec::new();
    for run in runs.iter().filter(|run| is_apart && run.phase == Phase::Backward) {
        let is_used = |id: &LifetimeId| p.roles.of(*id) == Role::Gradients && found.trained.contains(&size(*id));
        let made: Vec<u32> = (run.rows.0..run.rows.1).map(LifetimeId).filter(is_used).map(|id| lifetimes.born(id)).collect();
        let used = &made[..found.of_twin.unwrap_or(made.len()).min(made.len())];
        unused.extend(used.last().map(|last| (last + 1, run.events.1)));
    }
    let is_unused = |id: LifetimeId| {
        let born = lifetimes.born(id);
        p.roles.of(id) == Role::Temporaries && unused.iter().any(|(from, to)| (*from..*to).contains(&born))
    };
    let gradients = |id, size| match is_untrained(id) {
        true if found.of_twin.is_some() => size / 2,
        is_untrained if is_untrained || is_unused(id) => 0,
        _ => size,
    };
    let saving = if is_apart {
        // Every step makes the same blocks.
        let all = lifetimes.ids();
        let stacks: FxHashSet<StackId> = all.filter(|&id| of_graph(id)).filter_map(|id| p.stack_of(id)).collect();
        let is_of_graph = |id| p.roles.of(id) == Role::Activations && p.stack_of(id).is_some_and(|s| stacks.contains(&s));
        let of_next = made_by_next_layer(p, is_of_graph);
        // Blocks of the last layers are freed at the end of their pass.
        let mut pass_ends: FxHashMap<Option<usize>, u32> = FxHashMap::default();
        for id in lifetimes.ids().filter(|&id| is_of_graph(id)) {
            pass_ends.insert(p.steps.of(lifetimes.born(id)), lifetimes.born(id) + 1);
        }
        let gone = |id: LifetimeId| {
            let end = pass_ends.get(&p.steps.of(lifetimes.born(id))).filter(|_| is_of_graph(id));
            [of_next.get(&id), end].into_iter().flatten().fold(lifetimes.gone(id), |gone, &end| gone.min(end))
        };
        Saving { before: peak(p), after: peak_if_freed(p.device, p.tables, gradients, gone) }
    } else {
        saving(p, gradients)
    };
    let total = bytes + kept;
    if !is_apart && bytes < LEAST_ALONE {
        return None;
    }
    let sentence = format!(
        "{} of gradients, in {}, are probably for weights that nothing updates: the optimizer keeps no state for them.{}",
        Bytes(bytes),
        counted(found.blocks as u64, "block", "blocks"),
        match kept {
            0 => " Their layers also keep their inputs to compute them.".to_owned(),
            kept => format!(" For these alone the forward pass keeps {} of activations.", Bytes(kept)),
        }
    );
    let (with, advice) = match is_apart {
        true => (
            "Without them",
            "Weights that need no gradient keep nothing for the backward pass. A teacher or a reference model can also be called under torch.no_grad().",
        ),
        false => (
            "Without the gradients alone",
            "A frozen layer still passes gradients on to the layers before it, and keeps no input for its own weights.",
        ),
    };
    let place = Place { event: Some(p.peak_event), lifetimes: found.untrained, ..Place::default() };
    let finding = Finding::new(super::UNTRAINED, Class::Peak, "Gradients are computed for weights that nothing updates", total);
    finding
        .says(sentence)
        .saves(with, saving)
        .bytes_of("gradients without state", bytes)
        .bytes_of("peak", peak(p))
        .at(place)
        .remedy("frozen.requires_grad_(False)  # the model, or the layers, that no optimizer updates")
        .advice(advice)
        .check("The backward pass makes gradients of the trained weights only.")
}
