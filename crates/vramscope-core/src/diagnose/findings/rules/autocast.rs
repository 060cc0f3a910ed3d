//! Half-precision copies of weights that autocast makes, and their lifetime.

use super::at_peak::{peak, place};
use super::kept::{much, trained_before};
use crate::anatomy::roles::Role;
use crate::anatomy::{Phase, Run};
use crate::changes::Change;
use crate::diagnose::findings::{Class, Finding, Place, RuleInput};
use crate::tables::{LifetimeId, NO_EVENT};
use crate::units::{Bytes, counted};

/// Copies of weights that autocast keeps until its context ends.
pub(super) fn autocast_copies(p: &RuleInput<'_>) -> Option<Finding> {
    let (blocks, bytes) = much(p, |b| p.roles.of(b.lifetime) == Role::AutocastCopies)?;
    let finding = Finding::new("autocast_copies", Class::Peak, "Autocast keeps a second copy of the weights", bytes)
        .bytes_of("copies", bytes)
        .bytes_of("peak", peak(p))
        .at(place(p, &blocks));
    let says = format!(
        "{} at the peak are probably half-precision copies of {}",
        Bytes(bytes),
        counted(blocks.len() as u64, "weight", "weights"),
    );
    let Some((saving, _)) = p.with_change(Change::CacheOff) else {
        if !p.trains() && !trained_before(p) {
            return finding
                .says(format!("{says}. The graph, which no recorded backward pass uses, keeps them, with or without autocast's cache."))
                .remedy("with torch.inference_mode(), torch.autocast(\"cuda\", dtype=torch.bfloat16, cache_enabled=False):")
                .advice("Without a graph, cache_enabled=False frees each copy after its use; the cache would keep them. For inference convert the model once: model.to(torch.bfloat16), without autocast.")
                .check("No block of half a weight's size lives to the end of the forward pass.");
        }
        return finding
            .says(format!("{says}. The backward pass needs them, with or without autocast's cache."))
            .advice("Only weights in half precision need no copies: model.to(torch.bfloat16), with an optimizer that works with bf16 weights.")
            .check("No block of half a weight's size lives to the end of the forward pass.");
    };
    finding
        .says(format!("{says}, which autocast caches until its context ends."))
        .saves("With cache_enabled=False", saving)
        .remedy("torch.autocast(\"cuda\", dtype=torch.bfloat16, cache_enabled=False)")
        .advice("It casts each weight at each use instead of keeping the copy. For inference convert the model once: model.to(torch.bfloat16), without autocast.")
        .check("No block of half a weight's size lives to the end of the forward pass.")
}

/// Copies of weights that outlive the optimizer's step and that later passes reuse: those passes compute with outdated weights.
pub(super) fn stale_copies(p: &RuleInput<'_>) -> Option<Finding> {
    /// With fewer copies, the sizes may match by chance.
    const FEWEST: usize = 8;
    let lifetimes = &p.tables.lifetimes;
    let runs = p.runs();
    let step = runs.iter().find(|run| run.phase == Phase::Optimizer).map(|run| run.events)?;
    // The copies must still exist at the end of a forward pass after that step.
    let is_later = |run: &&Run| run.phase == Phase::Forward && run.events.0 >= step.1;
    let used_until = runs.iter().find(is_later).map(|run| run.events.1)?;
    let copies: Vec<LifetimeId> = lifetimes.ids().filter(|&id| p.roles.of(id) == Role::AutocastCopies).collect();
    let born = |id: LifetimeId| lifetimes.born(id);
    let stale: Vec<LifetimeId> = copies
        .iter()
        .copied()
        .filter(|&id| born(id) != NO_EVENT && born(id) < step.0 && lifetimes.gone(id) >= used_until)
        .collect();
    let fresh = copies.iter().filter(|&&id| born(id) != NO_EVENT && born(id) > step.1).count();
    if stale.len() < FEWEST || fresh * 4 > stale.len() {
        return None;
    }
    let bytes = stale.iter().map(|&id| lifetimes.block_size(id)).sum();
    Finding::new(super::STALE_COPIES, Class::Hygiene, "Training uses old weights: autocast's copies outlive the step", bytes)
        .says(format!(
            "{}, {}, probably autocast's, are made once and stay when optimizer.step() has changed the weights. No later step makes them anew, so its forward pass computes with the weights from before.",
            counted(stale.len() as u64, "half-precision copy of a weight", "half-precision copies of weights"),
            Bytes(bytes),
        ))
        .bytes_of("copies", bytes)
        .at(Place {
            event: Some(step.1),
            stack: stale.first().and_then(|&id| p.stack_of(id)),
            lifetimes: stale,
            ..Place::default()
        })
        .remedy("with torch.autocast(\"cuda\", dtype=torch.bfloat16):  # inside the loop, around the forward pass and the loss")
        .advice("Autocast keeps its copies until its context ends. Open it anew in each step, around the forward pass and the loss alone, not around the loop.")
        .check("Each step makes the copies again, and they are gone before optimizer.step().")
}
