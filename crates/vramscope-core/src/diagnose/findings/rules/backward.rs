//! What backward makes beside one gradient per weight: its own graph, per-sample gradients, a dense gradient of a large table.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::at_peak::{LEAST, held, made_at, peak, place, saving};
use super::kept::much;
use crate::anatomy::roles::Role;
use crate::anatomy::{Phase, Run};
use crate::diagnose::counterfactual::{Saving, peak_if_freed};
use crate::diagnose::findings::{Class, Finding, RuleInput};
use crate::model::FrameId;
use crate::tables::{LifetimeId, NO_EVENT};
use crate::units::{Bytes, count};

/// The graph of `create_graph=True`: blocks that a backward pass made and did not free, each with the run of that pass. A
/// gradient penalty needs such a graph and uses it in a later backward pass of the same step; that does not count. torch.func
/// transforms and hooks keep results, not a graph.
fn backward_graphs(p: &RuleInput<'_>) -> FxHashMap<LifetimeId, usize> {
    let (lifetimes, phases) = (&p.tables.lifetimes, &p.roles.anatomy.phases);
    let is_known = p.trains() && phases.has_stacks() && !p.steps.is_inferred() && !has_file(p, "torch/_functorch/");
    let mut kept = FxHashMap::default();
    for (at, run) in phases.runs.iter().enumerate().filter(|(_, run)| is_known && run.phase == Phase::Backward) {
        let is_of_step = |later: &&Run| p.steps.of(later.events.0) == p.steps.of(run.events.0);
        let later = phases.runs[at + 1..].iter().take_while(is_of_step).find(|later| later.phase == Phase::Backward);
        let until = later.map_or(NO_EVENT, |later| later.events.0);
        let outlives = |id: &LifetimeId| {
            let gone = lifetimes.gone(*id);
            let is_result = p.roles.of(*id) == Role::Gradients || is_in_hook(p, *id);
            gone > run.events.1 && gone <= until && gone != NO_EVENT && !is_result
        };
        kept.extend((run.rows.0..run.rows.1).map(LifetimeId).filter(outlives).map(|id| (id, at)));
    }
    kept
}

/// True if some frame of the recording is in a file whose path contains `part`.
fn has_file(p: &RuleInput<'_>, part: &str) -> bool {
    let stacks = &p.recording.stacks;
    (0..stacks.frame_count() as u32).any(|f| stacks.frame(FrameId(f)).is_some_and(|f| stacks.text(f.file).contains(part)))
}

/// True for a block made in a hook of the backward pass.
fn is_in_hook(p: &RuleInput<'_>, id: LifetimeId) -> bool {
    let stacks = &p.recording.stacks;
    let frames = p.stack_of(id).map_or(&[][..], |stack| stacks.frames(stack));
    let file = |f: &FrameId| stacks.frame(*f).map_or("", |f| stacks.text(f.file));
    frames.iter().any(|f| ["torch/utils/hooks.py", "opacus/grad_sample"].iter().any(|part| file(f).contains(part)))
}

/// True if [`backward_graph`] reports a finding.
pub(super) fn keeps_backward_graph(p: &RuleInput<'_>) -> bool {
    backward_graph(p).is_some()
}

/// Reports the graph of a backward pass that no later pass uses.
pub(super) fn backward_graph(p: &RuleInput<'_>) -> Option<Finding> {
    let kept = backward_graphs(p);
    let (blocks, bytes) = much(p, |b| kept.contains_key(&b.lifetime))?;
    let (lifetimes, runs) = (&p.tables.lifetimes, p.runs());
    let passes: BTreeSet<(u32, u32)> = kept.values().map(|&at| runs[at].events).collect();
    // Without such a graph, a backward pass frees what the forward pass kept for it.
    let gone = |id: LifetimeId| {
        let (born, gone) = (lifetimes.born(id), lifetimes.gone(id));
        let is_kept = p.roles.of(id) == Role::Activations && born != NO_EVENT && !kept.contains_key(&id);
        let pass = passes.range((born, 0)..).next().filter(|_| is_kept);
        pass.map_or(gone, |&(_, end)| gone.min(end))
    };
    let size = |id: LifetimeId, size: u64| if kept.contains_key(&id) { 0 } else { size };
    let saving = Saving { before: peak(p), after: peak_if_freed(p.device, p.tables, size, gone) };
    if saving.is_nothing() {
        return None;
    }
    Finding::new("backward_graph", Class::Peak, "The backward pass keeps a graph of its own", bytes)
        .says(format!(
            "{} of the {} at the peak were made by a backward pass and outlive it, as with create_graph=True. No backward pass goes through them.",
            Bytes(bytes),
            Bytes(saving.before),
        ))
        .saves("Without that graph", saving)
        .bytes_of("kept by the backward pass", bytes)
        .bytes_of("peak", saving.before)
        .at(place(p, &blocks))
        .remedy("loss.backward()  # without create_graph=True")
        .advice("create_graph=True, of backward() or torch.autograd.grad(), is for second derivatives, such as a gradient penalty. Where one is needed, let go of the loss and of the gradients at the end of the step.")
        .check(format!("{}.", saving.falls()))
}

/// Reports per-sample gradients, as for differential privacy: as large as the weights, times the number of samples.
pub(super) fn sample_gradients(p: &RuleInput<'_>) -> Option<Finding> {
    /// Processing this many samples at once is enough.
    const CHUNK: u64 = 16;
    /// Smaller weights may have the size of rows of activations.
    const LEAST_WEIGHT: u64 = 4096;
    // Activations of a batch may have such sizes too: [batch, out] is [in, out] times batch / in. vmap makes its gradients in the
    // backward pass, without a stack; hooks, such as those of Opacus, appear in their stacks.
    let has_vmap = has_file(p, "torch/_functorch/vmap.py");
    let may_be = |id: LifetimeId| match p.stack_of(id) {
        Some(stack) if !p.recording.stacks.frames(stack).is_empty() => is_in_hook(p, id),
        _ => has_vmap,
    };
    // A Jacobian has the same size, but its program needs it.
    let steps = p.runs().iter().any(|run| run.phase == Phase::Optimizer) || !p.steps.optimizer.is_empty();
    let mut weights: FxHashMap<u64, u64> = FxHashMap::default();
    for b in held(p, |b| steps && p.roles.of(b.lifetime) == Role::Weights && b.requested >= LEAST_WEIGHT).0 {
        *weights.entry(b.requested).or_default() += 1;
    }
    let all = weights.iter().fold(0u64, |sum, (size, n)| sum.saturating_add(size.saturating_mul(*n)));
    let times = |size: u64, samples: u64| {
        (size.is_multiple_of(samples) && weights.contains_key(&(size / samples))).then_some(size / samples)
    };
    let mut tried: FxHashMap<u64, Vec<u64>> = FxHashMap::default();
    for b in held(p, |b| p.roles.of(b.lifetime) != Role::Weights && b.size >= LEAST / 8 && may_be(b.lifetime)).0 {
        for &weight in weights.keys().filter(|&&weight| b.requested.is_multiple_of(weight) && b.requested / weight >= CHUNK) {
            let of = tried.entry(b.requested / weight).or_default();
            if !of.contains(&weight) {
                of.push(weight);
            }
        }
    }
    let covered = |of: &[u64]| of.iter().fold(0u64, |sum, size| sum.saturating_add(size.saturating_mul(weights[size])));
    let (samples, of) = tried.into_iter().max_by_key(|(samples, of)| (covered(of), *samples))?;
    let is_its = |id: LifetimeId| times(p.requested(id), samples).is_some() && may_be(id);
    let (blocks, bytes) = much(p, |b| is_its(b.lifetime))?;
    let saving = saving(p, |id, size| if is_its(id) { size / samples * CHUNK } else { size });
    if covered(&of).saturating_mul(5) < all.saturating_mul(4) || samples <= CHUNK || saving.is_nothing() {
        return None;
    }
    Finding::new("sample_gradients", Class::Peak, "Gradients of every sample are held at once", bytes)
        .says(format!(
            "{} of the {} at the peak are in blocks {} times as large as weights: a gradient for each sample of the batch.",
            Bytes(bytes),
            Bytes(peak(p)),
            count(samples),
        ))
        .saves(&format!("In chunks of {CHUNK} samples"), saving)
        .bytes_of("gradients of samples", bytes)
        .shows("samples", count(samples))
        .bytes_of("peak", peak(p))
        .at(place(p, &blocks))
        .remedy("for chunk in batch.split(16): ...  # clip and add up the gradients of a chunk, then make the next")
        .advice("Clipping needs the gradients of one sample at a time, and training their sum. vmap(..., chunk_size=16) bounds the temporaries too, but not the result.")
        .check(format!("{}.", saving.falls()))
}

/// Reports the dense gradient of a large embedding table of which a batch reads only a few rows.
pub(super) fn dense_embedding(p: &RuleInput<'_>) -> Option<Finding> {
    /// The table must have at least this many rows for each row that is read.
    const LARGER: u64 = 8;
    /// Bytes of a row; smaller rows are labels.
    const LEAST_ROW: u64 = 32;
    /// Most inputs and lookups to compare.
    const MOST_SIZES: usize = 32;
    /// Bytes of an index: int64 and int32.
    const INDICES: [u64; 2] = [8, 4];
    let (lifetimes, stacks) = (&p.tables.lifetimes, &p.recording.stacks);
    let size = |id: LifetimeId| p.requested(id);
    let step = p.steps.of(p.peak_event).filter(|_| p.trains() && !p.steps.is_inferred())?;
    let is_lookup = |id: &LifetimeId| {
        let frames = p.stack_of(*id).map_or(&[][..], |stack| stacks.frames(stack));
        frames.iter().any(|&f| stacks.frame(f).is_some_and(|f| stacks.text(f.file).ends_with("nn/modules/sparse.py")))
    };
    let of_step = || {
        (lifetimes.initial_count() as u32..lifetimes.len() as u32)
            .map(LifetimeId)
            .filter(|&id| p.steps.of(lifetimes.born(id)) == Some(step))
    };
    let is_forward = |id: &LifetimeId| p.roles.anatomy.phases.of(*id) == Some(Phase::Forward);
    let mut looked_up: Vec<LifetimeId> = of_step().filter(|id| is_forward(id) && is_lookup(id)).collect();
    looked_up.sort_by_key(|&id| (size(id), id));
    looked_up.dedup_by_key(|id| size(*id));
    let number = |role: Role, bytes: u64| held(p, |b| p.roles.of(b.lifetime) == role && b.requested == bytes).0.len();
    let sizes = |all: &mut dyn Iterator<Item = u64>| -> BTreeSet<u64> { all.filter(|&size| size > 0).collect() };
    let inputs = sizes(&mut of_step().filter(|&id| p.roles.of(id) == Role::Inputs).map(size));
    let gradients = held(p, |b| p.roles.of(b.lifetime) == Role::Gradients && b.size >= LEAST).0;
    let tables = sizes(&mut gradients.iter().map(|b| b.requested));
    // The number of rows that a batch reads, and the number of rows of the table. A smaller input may divide the sizes too.
    let rows = |out: u64, table: u64| {
        let is_number = |&n: &u64| out.is_multiple_of(n) && n > 0 && out / n >= LEAST_ROW && table.is_multiple_of(out / n);
        let read = inputs.iter().rev().flat_map(|ids| INDICES.map(|width| ids / width)).find(is_number)?;
        let all = table / (out / read);
        (all >= read.saturating_mul(LARGER)).then_some((read, all))
    };
    let found = looked_up.iter().find_map(|&id| tables.iter().find_map(|&table| Some((id, table, rows(size(id), table)?))));
    let (line, table, (read, all)) = found?;
    // An output layer with this weight, or one of equal size, gives every row a gradient. Its scores have a row per id of an input.
    let numbers: BTreeSet<u64> = inputs.iter().flat_map(|ids| INDICES.map(|width| ids / width)).filter(|&n| n > 0).collect();
    let numbers: BTreeSet<u64> = numbers.into_iter().rev().take(MOST_SIZES).collect();
    let outs = looked_up.iter().rev().take(MOST_SIZES).map(|&id| size(id));
    let widths: BTreeSet<u64> =
        outs.flat_map(|out| numbers.iter().filter(move |&n| out.is_multiple_of(*n)).map(move |n| out / n)).collect();
    let heads = widths.into_iter().filter(|&width| width >= LEAST_ROW && table.is_multiple_of(width)).map(|width| table / width);
    let scores: BTreeSet<u64> = heads
        .flat_map(|all| numbers.iter().flat_map(move |n| [2, 4].map(|width| n.saturating_mul(all).saturating_mul(width))))
        .collect();
    if number(Role::Weights, table) != 1 || of_step().any(|id| scores.contains(&size(id))) {
        return None;
    }
    let is_its = |id: LifetimeId| p.roles.of(id) == Role::Gradients && size(id) == table;
    let saving =
        saving(p, |id, block| if is_its(id) { (u128::from(block) * u128::from(read) / u128::from(all)) as u64 } else { block });
    let (blocks, bytes) = much(p, |b| is_its(b.lifetime)).filter(|_| !saving.is_nothing())?;
    Finding::new("dense_embedding", Class::Peak, "A whole table gets a gradient, and few rows are read", bytes)
        .says(format!(
            "{} of the {} at the peak is the gradient of an embedding of {} rows. The batch reads at most {} of them, at {}.",
            Bytes(bytes),
            Bytes(peak(p)),
            count(all),
            count(read),
            made_at(p, line),
        ))
        .saves("With a sparse gradient", saving)
        .bytes_of("gradient of the table", bytes)
        .shows("rows of the table", count(all))
        .shows("rows that are read", count(read))
        .bytes_of("peak", peak(p))
        .at(place(p, &blocks))
        .remedy("torch.nn.Embedding(rows, width, sparse=True)")
        .advice("A sparse gradient has the rows that were read. SparseAdam, Adagrad and SGD take it; SGD without momentum, and none with weight decay.")
        .check(format!("{}.", saving.falls()))
}
