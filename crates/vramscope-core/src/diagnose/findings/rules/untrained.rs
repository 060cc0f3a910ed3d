//! Gradients of weights that no optimizer updates: a teacher or a frozen network that is run like the model that trains.

use rustc_hash::FxHashMap;

use super::at_peak::{LEAST, peak, saving};
use super::kept::made_by_next_layer;
use crate::anatomy::Phase;
use crate::anatomy::roles::Role;
use crate::diagnose::counterfactual::{Saving, peak_if_freed};
use crate::diagnose::findings::{Class, Finding, Place, RuleInput};
use crate::tables::{LifetimeId, NO_EVENT};
use crate::units::{Bytes, MEBIBYTE, counted};

/// Fewer gradients than this are chance.
const FEWEST: usize = 4;
/// Gradients of fewer bytes are not worth a finding.
const LEAST_GRADIENTS: u64 = 16 * MEBIBYTE;

/// The gradients of a step, by what the optimizer keeps for blocks of their size.
struct Gradients {
    /// Of sizes for which it keeps nothing.
    untrained: Vec<LifetimeId>,
    /// The last of a size for which it keeps as much as for every weight.
    last_trained: u32,
}

/// Gradients for which the optimizer keeps no state, though it keeps some for the others, in blocks of their size.
fn gradients(p: &RuleInput<'_>, from: u32, to: u32) -> Option<Gradients> {
    const MOST_STATES: usize = 3;
    let lifetimes = &p.tables.lifetimes;
    let size = |id: LifetimeId| lifetimes.requested(p.device, id);
    let of_role = |role: Role| (0..lifetimes.len() as u32).map(LifetimeId).filter(move |&id| p.roles.of(id) == role);
    let made: Vec<LifetimeId> = of_role(Role::Gradients).filter(|&id| (from..to).contains(&lifetimes.born(id))).collect();
    let mut of_size: FxHashMap<u64, (usize, usize)> = FxHashMap::default();
    made.iter().for_each(|&id| of_size.entry(size(id)).or_default().0 += 1);
    for id in of_role(Role::OptimizerState).filter(|&id| lifetimes.gone(id) >= to) {
        of_size.entry(size(id)).and_modify(|of| of.1 += 1);
    }
    // Adam keeps two blocks for each weight, SGD with momentum one. Two models may have weights of one size.
    let exact = |&(gradients, states): &(usize, usize)| states > 0 && states % gradients == 0 && states / gradients <= MOST_STATES;
    let each = of_size.values().filter(|of| exact(of)).map(|of| of.1 / of.0).max()?;
    let is_trained = |id: LifetimeId| of_size.get(&size(id)).is_some_and(|of| of.1 == of.0 * each);
    let trained: Vec<u32> = made.iter().filter(|&&id| is_trained(id)).map(|&id| lifetimes.born(id)).collect();
    let untrained: Vec<LifetimeId> =
        made.into_iter().filter(|&id| of_size.get(&size(id)).is_some_and(|of| of.1 == 0)).collect();
    let bytes: u64 = untrained.iter().map(|&id| size(id)).sum();
    let is_enough = trained.len() >= FEWEST && untrained.len() >= FEWEST && bytes >= LEAST_GRADIENTS;
    is_enough.then_some(Gradients { untrained, last_trained: trained.into_iter().max()? })
}

/// Gradients that nothing uses, and where their own backward pass comes last the activations that only they need.
pub(super) fn untrained_gradients(p: &RuleInput<'_>) -> Vec<Finding> {
    let lifetimes = &p.tables.lifetimes;
    let runs = &p.roles.anatomy.phases.runs;
    // The state must be there: a backward pass after an optimizer's step, at the peak or the first after it.
    let Some(first_step) = runs.iter().find(|run| run.phase == Phase::Optimizer).map(|run| run.events.1) else { return Vec::new() };
    let is_one = |run: &&crate::anatomy::Run| run.phase == Phase::Backward && run.events.0 >= first_step && run.events.1 > p.peak_event;
    let Some((from, to)) = runs.iter().find(is_one).map(|run| run.events) else { return Vec::new() };
    let Some(found) = gradients(p, from, to) else { return Vec::new() };
    let size = |id: LifetimeId| lifetimes.requested(p.device, id);
    let bytes: u64 = found.untrained.iter().map(|&id| size(id)).sum();
    let sizes: rustc_hash::FxHashSet<u64> = found.untrained.iter().map(|&id| size(id)).collect();
    let is_untrained = |id: LifetimeId| p.roles.of(id) == Role::Gradients && sizes.contains(&size(id));
    let first = found.untrained.iter().map(|&id| lifetimes.born(id)).min().unwrap_or(to);
    // Where a gradient that is used is made later, the backward pass goes through the frozen layers.
    let is_apart = first > found.last_trained;
    let of_graph = |id: LifetimeId| {
        let gone = lifetimes.gone(id);
        p.roles.of(id) == Role::Activations && gone != NO_EVENT && gone > found.last_trained && (from..to).contains(&gone)
    };
    let kept: u64 = (0..lifetimes.len() as u32).map(LifetimeId).filter(|&id| is_apart && of_graph(id)).map(size).sum();
    let gradients = |id, size| if is_untrained(id) { 0 } else { size };
    let saving = if is_apart {
        let of_next = made_by_next_layer(p, of_graph);
        let gone = |id: LifetimeId| of_next.get(&id).map_or(lifetimes.gone(id), |&next| lifetimes.gone(id).min(next));
        Saving { before: peak(p), after: peak_if_freed(p.device, p.tables, gradients, gone) }
    } else {
        saving(p, gradients)
    };
    let total = bytes + kept;
    if total < LEAST {
        return Vec::new();
    }
    let sentence = format!(
        "{} of gradients, in {}, are probably for weights that nothing updates: the optimizer keeps no state for them.{}",
        Bytes(bytes),
        counted(found.untrained.len() as u64, "block", "blocks"),
        match kept {
            0 => String::new(),
            kept => format!(" For these alone the forward pass keeps {} of activations.", Bytes(kept)),
        }
    );
    let (with, remedy, advice) = match is_apart {
        true => (
            "Without them",
            "with torch.no_grad():  # around the call of the frozen model",
            "A teacher or a reference model needs no graph: under no_grad() it keeps nothing for a backward pass.",
        ),
        false => (
            "Without the gradients alone",
            "frozen.requires_grad_(False)",
            "Layers that do not train pass gradients on without keeping their own inputs, where the weights need no gradient.",
        ),
    };
    let place = Place { event: Some(p.peak_event), lifetimes: found.untrained, ..Place::default() };
    let finding = Finding::new("untrained_gradients", Class::Peak, "Gradients are computed for weights that nothing updates", total);
    vec![
        finding
            .says(sentence)
            .saves(with, saving)
            .bytes_of("gradients without state", bytes)
            .bytes_of("peak", peak(p))
            .at(place)
            .remedy(remedy)
            .advice(advice)
            .check("The backward pass makes gradients of the trained weights only."),
    ]
}
