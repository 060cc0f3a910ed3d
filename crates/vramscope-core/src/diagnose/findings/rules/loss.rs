//! The loss over a large vocabulary: the scores, and tensors made from them.

use rustc_hash::FxHashSet;

use super::at_peak::{LEAST, held, lines, made_at, peak, place, saving, step_of};
use super::shared::{LINEAR, LOSS};
use crate::anatomy::Phase;
use crate::anatomy::roles::Role;
use crate::changes::Change;
use crate::diagnose::findings::{Class, Finding, RuleInput};
use crate::model::StackId;
use crate::tables::{BlockAt, LifetimeId};
use crate::units::{Bytes, count};

/// Reports the loss over a large vocabulary: logits, their fp32 copy, and its softmax.
pub(super) fn logits(p: &RuleInput<'_>) -> Option<Finding> {
    const CHUNKS: u64 = 8;
    // A log-softmax that the program calls itself and then gathers from is also a loss.
    let own = OwnLoss::find(p).filter(|loss| !loss.is_long(p)).map_or(Vec::new(), |loss| loss.made);
    let is_loss = |id: LifetimeId| p.flags_of(id) & LOSS != 0 || own.binary_search(&id).is_ok();
    let (mut named, _) = held(p, |b| is_loss(b.lifetime));
    // Blocks of earlier steps are a leak, which has its own rule.
    let newest = named.iter().map(|b| step_of(p, b.lifetime)).max().flatten();
    named.retain(|b| step_of(p, b.lifetime) == newest);
    let of_named: u64 = named.iter().map(|b| b.size).sum();
    let largest = named.first().map(|b| b.size)?;
    // Its backward pass makes blocks of the same sizes, without a Python stack.
    let sizes: FxHashSet<u64> = named.iter().map(|b| b.size).filter(|&size| size * 2 >= largest).collect();
    let is_its = |id: LifetimeId, size: u64| {
        is_loss(id) || (sizes.contains(&size) && p.roles.anatomy.phases.of(id) == Some(Phase::Backward))
    };
    let is_of_leak = |id: LifetimeId| is_loss(id) && step_of(p, id) != newest;
    let peak = peak(p);
    if of_named.saturating_mul(2) < LEAST {
        return None;
    }
    // Remaining results of earlier steps are a leak.
    let is_kept =
        |b: &&BlockAt, chunks: &[LifetimeId]| step_of(p, b.lifetime) < newest && chunks.binary_search(&b.lifetime).is_ok();
    let keeps = |chunks: &[LifetimeId]| p.at_peak.blocks.iter().any(|b| is_kept(&b, chunks));
    // A recording that begins or ends within a step lacks data that a plan needs.
    let (planned, in_chunks) = match p.with_change(Change::Chunks(CHUNKS as u32)) {
        Some((saving, answer)) if !saving.is_nothing() => (Some(saving).filter(|_| !keeps(&answer.smaller)), answer.smaller),
        _ => (None, Vec::new()),
    };
    // Blocks that the change splits into chunks belong to the loss too: the logits, which the model makes.
    let is_in_chunks = |id: LifetimeId| in_chunks.binary_search(&id).is_ok() && step_of(p, id) >= newest;
    let (blocks, bytes) = held(p, |b| (is_its(b.lifetime, b.size) && !is_of_leak(b.lifetime)) || is_in_chunks(b.lifetime));
    if bytes < LEAST || bytes.saturating_mul(5) < peak {
        return None;
    }
    // If the logits are not a layer's result but a tensor of the program, they get a gradient, which is not split.
    let is_gradient = |id: LifetimeId| p.roles.of(id) == Role::Gradients;
    let is_cut = |id: LifetimeId, size: u64| (is_its(id, size) || is_in_chunks(id)) && !is_gradient(id);
    let planned = planned.filter(|_| !blocks.iter().any(|b| is_its(b.lifetime, b.size) && is_gradient(b.lifetime)));
    let saving = planned.unwrap_or_else(|| saving(p, |id, size| if is_cut(id, size) { size / CHUNKS } else { size }));
    let check = match saving.is_nothing() {
        true => "What the loss holds shrinks.".to_owned(),
        false => format!("{}.", saving.falls()),
    };
    Finding::new("logits", Class::Peak, &format!("The loss holds {}", Bytes(bytes)), bytes)
        .says(format!(
            "{} of the {} at the peak {} the loss at {} and its backward pass.",
            Bytes(bytes),
            Bytes(peak),
            if in_chunks.is_empty() { "were made by" } else { "are the logits, or were made by" },
            made_at(p, named[0].lifetime)
        ))
        .saves(&format!("In {CHUNKS} chunks"), saving)
        .bytes_of("made by the loss", bytes)
        .bytes_of("largest of them", largest)
        .bytes_of("peak", peak)
        .at(place(p, &blocks))
        .advice(match rows_of_pairs(named[0].requested) {
            _ if !own.is_empty() => "They are as large as the scores of all rows. Compute the loss in chunks of rows, each checkpointed. -F.cross_entropy(logits, tokens, reduction=\"none\") gives the log-probabilities of chosen tokens.",
            Some(_) => "A block of this size is a square matrix, as of the similarities of all pairs in a contrastive loss. Compute it in chunks of rows, each checkpointed, or use a smaller batch.",
            None => "They are batch times positions times vocabulary. Use a fused linear cross entropy (Liger, Cut Cross Entropy), compute the loss in chunks, keep logits only where they are needed (logits_to_keep), and do not call .float() on all of them.",
        })
        .check(&check)
}

/// The rows of a square matrix of fp32 or bf16 numbers. Without powers of two, because batch, positions and vocabulary often are.
fn rows_of_pairs(bytes: u64) -> Option<u64> {
    [4, 2].into_iter().filter(|&width| bytes.is_multiple_of(width)).find_map(|width| {
        let rows = (bytes / width).isqrt();
        (rows * rows * width == bytes && !rows.is_power_of_two()).then_some(rows)
    })
}

/// Tensors that the program's own lines make from the scores in the step of the peak, ending with one number per row.
struct OwnLoss {
    scores: LifetimeId,
    /// Blocks as large as the scores, or nearly, in order of allocation. The backward pass may read the last one.
    made: Vec<LifetimeId>,
}

impl OwnLoss {
    fn find(p: &RuleInput<'_>) -> Option<Self> {
        /// Fewer classes are not a vocabulary.
        const CLASSES: u64 = 256;
        /// Fewer numbers are the loss itself.
        const ROWS: u64 = 256;
        /// Without its last position, a sequence is shorter by at most 1/n.
        const SHORTER: u64 = 16;
        let lifetimes = &p.tables.lifetimes;
        let size = |id: LifetimeId| p.requested(id);
        let step = p.steps.of(p.peak_event).filter(|_| p.trains() && !p.steps.is_inferred())?;
        let ids = lifetimes.recorded_ids();
        let is_forward = |id: &LifetimeId| p.roles.anatomy.phases.of(*id) == Some(Phase::Forward);
        let forward: Vec<LifetimeId> =
            ids.filter(|&id| p.steps.of(lifetimes.born(id)) == Some(step)).filter(is_forward).collect();
        let head = forward.iter().rposition(|&id| p.flags_of(id) & LINEAR != 0)?;
        let (scores, behind) = (forward[head], &forward[head + 1..]);
        let least = size(scores).saturating_sub(size(scores) / SHORTER);
        // Mixed precision computes the loss in numbers twice as wide.
        let is_as_large = |id: LifetimeId| {
            [1, 2].iter().any(|n| (least.saturating_mul(*n)..=size(scores).saturating_mul(*n)).contains(&size(id)))
        };
        let made: Vec<LifetimeId> = behind.iter().copied().filter(|&id| is_as_large(id)).collect();
        let &last = made.last()?;
        let is_row = |id: LifetimeId| size(id) > ROWS && size(last) % size(id) == 0 && size(last) / size(id) >= CLASSES;
        let is_loss = behind.iter().any(|&id| id > last && is_row(id)) && behind.iter().all(|&id| p.flags_of(id) & LOSS == 0);
        is_loss.then_some(OwnLoss { scores, made })
    }

    /// The blocks at the peak that are the scores or made from them.
    fn held<'a>(&self, p: &'a RuleInput<'_>) -> (Vec<&'a BlockAt>, u64) {
        held(p, |b| b.lifetime == self.scores || self.made.binary_search(&b.lifetime).is_ok())
    }

    /// True if it holds so many tensors that `F.cross_entropy`, which holds two in the forward pass, would need less.
    fn is_long(&self, p: &RuleInput<'_>) -> bool {
        const FEWEST: usize = 4;
        self.held(p).0.len() >= FEWEST
    }
}

/// Reports a cross entropy written out in the program: softmax, logarithm and gather each make a tensor of the scores' size.
pub(super) fn loss_by_hand(p: &RuleInput<'_>) -> Option<Finding> {
    let size = |id: LifetimeId| p.requested(id);
    let loss = OwnLoss::find(p).filter(|loss| loss.is_long(p))?;
    let (blocks, bytes) = loss.held(p);
    if bytes < LEAST || bytes.saturating_mul(5) < peak(p) {
        return None;
    }
    // All of them except the last, which the backward pass reads, in every step.
    let but_last = loss.made.split_last().map_or(&[][..], |(_, others)| others);
    let spared: FxHashSet<(StackId, u64)> = but_last.iter().filter_map(|&id| Some((p.stack_of(id)?, size(id)))).collect();
    let is_spared = |id: LifetimeId| p.stack_of(id).is_some_and(|stack| spared.contains(&(stack, size(id))));
    let saving = saving(p, |id, block| if is_spared(id) { 0 } else { block });
    let own: Vec<&BlockAt> = blocks.iter().filter(|b| b.lifetime != loss.scores).copied().collect();
    Finding::new("loss_by_hand", Class::Peak, "The loss is computed by hand", bytes)
        .says(format!(
            "{} of the {} at the peak are the scores and {} more tensors as large, made at {}. They end in one number for each row, as a cross entropy does.",
            Bytes(bytes),
            Bytes(peak(p)),
            count(own.len() as u64),
            lines(p, &own),
        ))
        .saves("With F.cross_entropy", saving)
        .bytes_of("scores and what is made of them", bytes)
        .bytes_of("peak", peak(p))
        .at(place(p, &blocks))
        .remedy("loss = torch.nn.functional.cross_entropy(logits, targets)")
        .advice("It keeps one such tensor for the backward pass. -F.cross_entropy(logits, tokens, reduction=\"none\") gives the log-probabilities of chosen tokens.")
        .check(format!("{}.", saving.falls()))
}
