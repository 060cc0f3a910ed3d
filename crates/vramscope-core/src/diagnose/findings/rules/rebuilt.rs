//! What the program keeps besides the model that it runs: an earlier model or optimizer, as in a hyperparameter search or a
//! notebook cell that is run twice; a loaded checkpoint; batches for later steps.

use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

use super::at_peak::{LEAST, held, lines, peak, place, probably, together};
use super::kept::much;
use super::library::optimizer;
use crate::anatomy::roles::Role;
use crate::anatomy::{Phase, line_of};
use crate::diagnose::counterfactual::{Saving, peak_after, peak_if_freed};
use crate::diagnose::findings::{Class, Finding, RuleInput};
use crate::model::{FrameId, StackId};
use crate::tables::{BlockAt, LifetimeId, NO_EVENT};
use crate::units::{Bytes, counted};

/// The events at which the program begins to make the blocks that `key` selects. Blocks are made again if the same keys come a
/// second time, for at least four fifths of the bytes of the time before. The second part of a key is a size. Empty unless this
/// happens at least twice, and in at most half of the steps. O(lifetimes).
fn made_again(p: &RuleInput<'_>, key: impl Fn(LifetimeId) -> Option<(StackId, u64)>) -> Vec<u32> {
    let lifetimes = &p.tables.lifetimes;
    type Made = FxHashMap<(StackId, u64), u64>;
    let mut by_step: BTreeMap<usize, (u32, Made)> = BTreeMap::new();
    for id in lifetimes.recorded_ids() {
        let (Some(key), Some(step)) = (key(id), p.steps.of(lifetimes.born(id))) else { continue };
        let (begins, made) = by_step.entry(step).or_insert_with(|| (lifetimes.born(id), Made::default()));
        *begins = lifetimes.born(id).min(*begins);
        *made.entry(key).or_default() += 1;
    }
    let (mut begins, mut before): (Vec<u32>, Option<Made>) = (Vec::new(), None);
    for (begin, made) in by_step.into_values() {
        let bytes = |made: &Made, most: &dyn Fn(&(StackId, u64)) -> u64| -> u64 {
            made.iter().fold(0, |sum: u64, (key, &number)| sum.saturating_add(key.1.saturating_mul(number.min(most(key)))))
        };
        let is_again = |before: &Made| {
            let again = bytes(before, &|key| made.get(key).copied().unwrap_or(0));
            again.saturating_mul(5) >= bytes(before, &|_| u64::MAX).saturating_mul(4)
        };
        if before.as_ref().is_none_or(is_again) {
            begins.push(begin);
            before = Some(made);
        }
    }
    // Blocks that nearly every step makes anew are updated this way.
    if begins.len() < 2 || begins.len() * 2 > p.steps.len() { Vec::new() } else { begins }
}

/// The events at which the program makes a new model: the same lines make weights again, with the same sizes or, as in a search
/// over widths, other ones. Empty if a backward pass also goes through the earlier ones, because they are parts of a growing model.
fn models(p: &RuleInput<'_>) -> Vec<u32> {
    let lifetimes = &p.tables.lifetimes;
    let size = |id: LifetimeId| p.requested(id);
    let line = |id: LifetimeId| p.stack_of(id).filter(|_| p.roles.of(id) == Role::Weights);
    let mut begins = made_again(p, |id| Some((line(id)?, size(id))));
    if begins.is_empty() {
        begins = made_again(p, |id| Some((line(id)?, 1)));
    }
    // For each model, numbered from 1: the bytes of its weights, and by step the bytes of gradients made while it is the newest.
    let (mut weights, mut gradients) = (vec![0u64; begins.len() + 1], BTreeMap::<(usize, usize), u64>::new());
    for id in lifetimes.recorded_ids().filter(|_| !begins.is_empty()) {
        let born = lifetimes.born(id);
        let model = begins.partition_point(|&begin| begin <= born);
        let bytes = match p.roles.of(id) {
            Role::Weights => &mut weights[model],
            Role::Gradients => match p.steps.of(born) {
                Some(step) => gradients.entry((model, step)).or_default(),
                None => continue,
            },
            _ => continue,
        };
        *bytes = bytes.saturating_add(size(id));
    }
    let is_part =
        |(&(model, _), &made): (&(usize, usize), &u64)| model > 1 && made > weights[model].saturating_add(weights[model] / 2);
    if gradients.iter().any(is_part) { Vec::new() } else { begins }
}

/// The events at which the program makes a new optimizer's state for the same weights. LBFGS makes two tensors per iteration.
fn optimizers(p: &RuleInput<'_>) -> Vec<u32> {
    let states = p.tables.lifetimes.ids().filter(|&id| p.roles.of(id) == Role::OptimizerState);
    if optimizer(p, states) == Some("LBFGS") {
        return Vec::new();
    }
    made_again(p, |id| {
        let is_state = p.roles.of(id) == Role::OptimizerState;
        is_state.then(|| (StackId::NONE, p.requested(id)))
    })
}

/// True for optimizer state of a size of which the peak has more than two blocks per weight, so that some are unused. Layers that
/// are unfrozen one after the other get their state late, with two blocks per weight.
fn is_spare_state(p: &RuleInput<'_>) -> impl Fn(LifetimeId) -> bool {
    let size = |id: LifetimeId| p.requested(id);
    let number = |role: Role| {
        let mut number: FxHashMap<u64, u64> = FxHashMap::default();
        held(p, |b| p.roles.of(b.lifetime) == role).0.iter().for_each(|b| *number.entry(size(b.lifetime)).or_default() += 1);
        number
    };
    let (weights, states) = (number(Role::Weights), number(Role::OptimizerState));
    let number_of = |of: &FxHashMap<u64, u64>, size: u64| of.get(&size).copied().unwrap_or(0);
    move |id| {
        p.roles.of(id) == Role::OptimizerState && number_of(&states, size(id)) > number_of(&weights, size(id)).saturating_mul(2)
    }
}

/// True for weights, gradients and optimizer state at the peak that an earlier model or optimizer left behind. Freeing them costs
/// nothing, so the program need not be changed to make them smaller.
pub(super) fn is_left_over(p: &RuleInput<'_>) -> impl Fn(LifetimeId) -> bool {
    let is_sure = p.steps.len() > 1 && !p.steps.is_inferred();
    let begins = if is_sure { [models(p), optimizers(p)] } else { Default::default() };
    let [model, optimizer] = begins.map(|begins| begins.into_iter().rfind(|&begin| begin <= p.peak_event).unwrap_or(0));
    let is_spare = is_spare_state(p);
    move |id| {
        let born = p.tables.lifetimes.born(id);
        born != NO_EVENT && (born < model || (born < optimizer && is_spare(id)))
    }
}

/// The finding about memory held needlessly at the peak; `after` is the peak without it. `None` if the peak stays. `says` is its
/// first sentence, `change` what to do, `remedy` a line that does it.
fn needless(
    p: &RuleInput<'_>,
    (rule, title): (&'static str, &str),
    (blocks, bytes): (&[&BlockAt], u64),
    after: u64,
    (says, change): (String, &str),
    (remedy, advice): (&str, &str),
) -> Option<Finding> {
    let saving = Saving { before: peak(p), after };
    if saving.is_nothing() {
        return None;
    }
    Finding::new(rule, Class::Peak, title, bytes)
        .says(says)
        .saves(change, saving)
        .bytes_of("held without need", bytes)
        .bytes_of("peak", saving.before)
        .at(place(p, blocks))
        .remedy(remedy)
        .advice(advice)
        .check(format!("{}.", saving.falls()))
}

/// Reports weights, gradients and optimizer state of models made before the one that is trained at the peak.
pub(super) fn earlier_model(p: &RuleInput<'_>) -> Option<Finding> {
    if p.steps.len() < 2 || p.steps.is_inferred() {
        return None;
    }
    let begins = models(p);
    let lifetimes = &p.tables.lifetimes;
    // The number of the model that a block belongs to, from 1; `None` if the block is older than all.
    let model_of = |id: LifetimeId| {
        let born = lifetimes.born(id);
        let is_of_model = matches!(p.roles.of(id), Role::Weights | Role::Gradients | Role::OptimizerState) && born != NO_EVENT;
        Some(begins.partition_point(|&begin| is_of_model && begin <= born)).filter(|&model| model > 0)
    };
    let next = |id: LifetimeId| begins.get(model_of(id)?).copied();
    let is_earlier = |id: LifetimeId| next(id).is_some_and(|next| next <= p.peak_event);
    let (blocks, bytes) = much(p, |b| is_earlier(b.lifetime))?;
    let weights: Vec<_> = blocks.iter().copied().filter(|b| p.roles.of(b.lifetime) == Role::Weights).collect();
    let of_model = [Role::Weights, Role::Gradients, Role::OptimizerState].into_iter();
    let kinds: Vec<&str> =
        of_model.filter(|&role| blocks.iter().any(|b| p.roles.of(b.lifetime) == role)).map(Role::text).collect();
    let held = weights.iter().filter_map(|b| model_of(b.lifetime)).collect::<FxHashSet<_>>().len();
    let gone = |id: LifetimeId| next(id).map_or(lifetimes.gone(id), |next| lifetimes.gone(id).min(next));
    if held == 0 {
        return None;
    }
    let says = format!(
        "The lines at {} made a model {}, with training in between. {held} of the earlier ones {} still held at the peak: {} of {}.",
        lines(p, &weights),
        counted(begins.len() as u64, "time", "times"),
        if held == 1 { "is" } else { "are" },
        Bytes(bytes),
        together(&kinds),
    );
    let after = peak_if_freed(p.device, p.tables, |_, size| size, gone);
    let name = ("earlier_model", "The model of an earlier run is still held");
    let cure = (
        "del model, optimizer  # and what else names them, as a list of results",
        "Whatever still names the old model keeps it: a list of results, the optimizer, a scheduler, a closure, a notebook's variables (Out, _). Keep figures or model.state_dict() on the CPU instead. An ensemble needs them all.",
    );
    needless(p, name, (&weights, bytes), after, (says, "If they are freed before the next is made,"), cure)
}

/// Reports the state of a replaced optimizer that a scheduler or a list still holds.
pub(super) fn earlier_optimizer(p: &RuleInput<'_>) -> Option<Finding> {
    if p.steps.len() < 2 || p.steps.is_inferred() || !models(p).is_empty() {
        return None;
    }
    let lifetimes = &p.tables.lifetimes;
    let is_state = |id: LifetimeId| p.roles.of(id) == Role::OptimizerState;
    let begins = optimizers(p);
    let (Some(&first), Some(&last)) = (begins.first(), begins.iter().rfind(|&&begin| begin <= p.peak_event)) else {
        return None;
    };
    let is_earlier = |id: LifetimeId| is_state(id) && (first..last).contains(&lifetimes.born(id));
    let is_spare = is_spare_state(p);
    let (blocks, bytes) = much(p, |b| is_earlier(b.lifetime) && is_spare(b.lifetime))?;
    let gone = |id: LifetimeId| if is_earlier(id) { lifetimes.gone(id).min(last) } else { lifetimes.gone(id) };
    let says = format!(
        "Optimizer state for the same weights was made {}, with training in between. {} of what is held at the peak is from before the last time.",
        counted(begins.len() as u64, "time", "times"),
        Bytes(bytes),
    );
    let after = peak_if_freed(p.device, p.tables, |_, size| size, gone);
    let name = ("earlier_optimizer", "The state of an earlier optimizer is still held");
    let cure = (
        "del optimizer, scheduler  # before the next optimizer is made",
        "A scheduler keeps its optimizer, and so does a list or a closure. To change only the learning rate set it in optimizer.param_groups.",
    );
    needless(p, name, (&blocks, bytes), after, (says, "If it is freed before the next optimizer is made,"), cure)
}

/// Reports a checkpoint loaded to the GPU, besides the weights and states that it was copied into.
pub(super) fn loaded_copy(p: &RuleInput<'_>) -> Option<Finding> {
    let (lifetimes, stacks) = (&p.tables.lifetimes, &p.recording.stacks);
    let made_in = |id: LifetimeId, files: &[&str]| {
        let is_in = |f: &FrameId| stacks.frame(*f).is_some_and(|f| files.iter().any(|file| stacks.text(f.file).ends_with(file)));
        p.stack_of(id).is_some_and(|stack| stacks.frames(stack).iter().any(is_in))
    };
    let is_loaded = |id: LifetimeId| made_in(id, &["torch/serialization.py", "safetensors/torch.py"]);
    let (mut blocks, all) = much(p, |b| is_loaded(b.lifetime))?;
    blocks.sort_by_key(|b| b.lifetime);
    // A model loaded as a whole is not a copy; what the program copies from it is a second model.
    let is_own = |id: LifetimeId| {
        let is_of_model = matches!(p.roles.of(id), Role::Weights | Role::OptimizerState);
        is_of_model && !is_loaded(id) && !made_in(id, &["/copy.py"])
    };
    let mut own: FxHashMap<u64, u64> = FxHashMap::default();
    for b in held(p, |b| is_own(b.lifetime)).0 {
        *own.entry(p.requested(b.lifetime)).or_default() += 1;
    }
    let mut is_copied = |b: &&BlockAt| {
        let left = own.get_mut(&p.requested(b.lifetime)).filter(|left| **left > 0);
        left.map(|left| *left -= 1).is_some()
    };
    let copied: FxHashSet<LifetimeId> = blocks.iter().copied().filter(&mut is_copied).map(|b| b.lifetime).collect();
    let bytes = blocks.iter().filter(|b| copied.contains(&b.lifetime)).fold(0u64, |sum, b| sum.saturating_add(b.size));
    // An optimizer takes over the states loaded for it: one or two per weight.
    let rest = all.saturating_sub(bytes);
    let is_about = |times: u64| rest.abs_diff(bytes.saturating_mul(times)) <= bytes / 10;
    let is_rest_states = bytes >= LEAST && bytes.saturating_mul(20) >= peak(p) && (is_about(1) || is_about(2));
    if !is_rest_states && bytes.saturating_mul(5) < all.saturating_mul(4) {
        return None;
    }
    let is_needless = |id: LifetimeId| is_loaded(id) && (!is_rest_states || copied.contains(&id));
    blocks.retain(|b| is_needless(b.lifetime));
    let bytes = if is_rest_states { bytes } else { all };
    let loaded = blocks.iter().map(|b| lifetimes.born(b.lifetime)).filter(|&born| born != NO_EVENT).max();
    let passes = p.runs().iter().filter(|run| matches!(run.phase, Phase::Forward | Phase::Evaluation));
    let pass = passes.map(|run| run.events.0).find(|&begin| loaded.is_some_and(|loaded| begin > loaded));
    let says = format!(
        "{} of the {} at the peak was loaded from a file, as large as weights and states that the program has beside it",
        Bytes(bytes),
        Bytes(peak(p)),
    );
    let (freed, says, change) = match pass.filter(|&begin| begin <= p.peak_event) {
        Some(pass) => (Some(pass), format!("{says}, and is held while it runs."), "If it is freed before the first pass,"),
        None => (None, format!("{says}: loading makes the peak."), "Loaded to the CPU,"),
    };
    let size = |id: LifetimeId, size: u64| if freed.is_none() && is_needless(id) { 0 } else { size };
    let gone = |id: LifetimeId| lifetimes.gone(id).min(freed.filter(|_| is_needless(id)).unwrap_or(NO_EVENT));
    let after = peak_if_freed(p.device, p.tables, size, gone);
    let name = ("loaded_copy", "A loaded checkpoint is on the GPU beside the model");
    let cure = (
        "checkpoint = torch.load(path, map_location=\"cpu\")",
        "load_state_dict copies what it gets. Load to the CPU, and del the checkpoint when the model has it.",
    );
    needless(p, name, (&blocks, bytes), after, (says, change), cure)
}

/// Reports copies of a model, or of its state, that one line made in several steps, such as the best weights. The last is in use.
pub(super) fn kept_copies(p: &RuleInput<'_>) -> Option<Finding> {
    if p.steps.len() < 2 || p.steps.is_inferred() {
        return None;
    }
    let lifetimes = &p.tables.lifetimes;
    let is_weight = |id: LifetimeId| p.roles.of(id) == Role::Weights;
    let line = |id: LifetimeId| p.stack_of(id).filter(|_| is_weight(id)).and_then(|stack| line_of(&p.recording.stacks, stack));
    // By line and step: the event of the first block, and the bytes.
    let mut sets: BTreeMap<(FrameId, usize), (u32, u64)> = BTreeMap::new();
    let mut of_line: FxHashMap<FrameId, u64> = FxHashMap::default();
    let (weights, all) = held(p, |b| is_weight(b.lifetime));
    for b in weights {
        let born = lifetimes.born(b.lifetime);
        let Some(line) = line(b.lifetime) else { continue };
        let of_line = of_line.entry(line).or_default();
        *of_line = of_line.saturating_add(b.size);
        if let Some(step) = p.steps.of(born) {
            let (first, bytes) = sets.entry((line, step)).or_insert((born, 0));
            (*first, *bytes) = (born.min(*first), bytes.saturating_add(b.size));
        }
    }
    // For each line: when it made each of several copies that are as large as all weights from elsewhere.
    let mut copies: FxHashMap<FrameId, Vec<u32>> = FxHashMap::default();
    for (&(line, _), &(first, bytes)) in &sets {
        let others = all.saturating_sub(of_line.get(&line).copied().unwrap_or(0));
        if others > 0 && bytes.saturating_mul(5) >= others.saturating_mul(4) {
            copies.entry(line).or_default().push(first);
        }
    }
    copies.retain(|_, made| made.len() > 1);
    let next = |id: LifetimeId| {
        let made = copies.get(&line(id)?)?;
        made.get(made.partition_point(|&first| first <= lifetimes.born(id))).copied()
    };
    let is_earlier = |id: LifetimeId| next(id).is_some_and(|next| next <= p.peak_event);
    let (blocks, bytes) = much(p, |b| is_earlier(b.lifetime))?;
    let gone = |id: LifetimeId| next(id).map_or(lifetimes.gone(id), |next| lifetimes.gone(id).min(next));
    let number = copies.values().map(Vec::len).max().unwrap_or(0) as u64;
    let says = format!(
        "{} copied a whole model {}, with training in between, and every copy is held: {} in the earlier ones.",
        lines(p, &blocks),
        counted(number, "time", "times"),
        Bytes(bytes),
    );
    let after = peak_if_freed(p.device, p.tables, |_, size| size, gone);
    let name = ("kept_copies", "Earlier copies of the model are still held");
    let cure = (
        "best = {k: v.cpu() for k, v in model.state_dict().items()}",
        "Keep one copy, on the CPU or in a file, and replace it. deepcopy of an optimizer's state_dict() copies its state too.",
    );
    needless(p, name, (&blocks, bytes), after, (says, "With the last copy alone"), cure)
}

/// Reports batches that were moved to the GPU long before their step.
pub(super) fn waiting_batches(p: &RuleInput<'_>) -> Option<Finding> {
    /// Fewer batches may be a loader's prefetching.
    const FEWEST: usize = 8;
    if p.steps.len() < 2 || p.steps.is_inferred() || !p.trains() {
        return None;
    }
    let mut of_line: FxHashMap<(StackId, u64), Vec<LifetimeId>> = FxHashMap::default();
    for b in held(p, |b| p.roles.of(b.lifetime) == Role::Inputs).0 {
        if let Some(stack) = p.stack_of(b.lifetime) {
            of_line.entry((stack, b.requested)).or_default().push(b.lifetime);
        }
    }
    of_line.retain(|_, batches| batches.len() >= FEWEST);
    // One batch of each line is that of the current step.
    let own = of_line.keys().fold(0u64, |sum, &(_, size)| sum.saturating_add(size));
    let waiting: FxHashSet<LifetimeId> = of_line.values().flat_map(|batches| batches.iter().skip(1)).copied().collect();
    let (blocks, bytes) = much(p, |b| waiting.contains(&b.lifetime))?;
    // If new batches replace the used ones, as many wait in every step.
    let is_one = |id: LifetimeId, size: u64| p.stack_of(id).is_some_and(|stack| of_line.contains_key(&(stack, size)));
    let after = peak_after(p.device, p.tables, |id, size| if is_one(id, p.requested(id)) { 0 } else { size });
    let after = after.saturating_add(own);
    let says = format!(
        "{} of the {} at the peak {} {}batches that wait for their step, made at {}.",
        Bytes(bytes),
        Bytes(peak(p)),
        if blocks.len() == 1 { "is" } else { "are" },
        probably(p, &blocks),
        lines(p, &blocks),
    );
    let cure = (
        "batch = batch.to(device, non_blocking=True)  # in the loop; the loader with pin_memory=True",
        "Keep the data in host memory and move each batch when its step begins. Two batches on the GPU are enough to hide the copy.",
    );
    needless(p, ("waiting_batches", "Batches wait on the GPU"), (&blocks, bytes), after, (says, "Without them"), cure)
}
