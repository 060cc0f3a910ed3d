//! What a pass keeps that it need not: a graph that nothing uses, autocast's copies, attention scores.

use rustc_hash::FxHashMap;

use crate::analysis::anatomy::Phase;
use crate::analysis::findings::{Class, Finding, Patient, Place};
use crate::analysis::roles::Role;
use crate::analysis::{BlockAt, NO_EVENT, Quantity};
use crate::model::{BlockState, StackId};
use crate::units::{Bytes, MEBIBYTE, counted};

/// Below this many bytes nothing here is worth a word.
const LEAST: u64 = 64 * MEBIBYTE;
/// And below one part in so many of the peak.
const SHARE: u64 = 10;

/// The blocks at the peak for which a test holds, largest first, and their bytes; `None` where they are too little to matter.
fn held<'a>(p: &'a Patient<'_>, is_one: impl Fn(&BlockAt) -> bool) -> Option<(Vec<&'a BlockAt>, u64)> {
    let mut blocks: Vec<&BlockAt> = p.at_peak.blocks.iter().filter(|b| b.state != BlockState::Inactive && is_one(b)).collect();
    blocks.sort_by_key(|b| (std::cmp::Reverse(b.size), b.lifetime));
    let bytes: u64 = blocks.iter().map(|b| b.size).sum();
    let peak = p.tables.curves.peak(Quantity::Active).0;
    (bytes >= LEAST && bytes.saturating_mul(SHARE) >= peak).then_some((blocks, bytes))
}

fn place(p: &Patient<'_>, blocks: &[&BlockAt]) -> Place {
    Place {
        event: (p.peak_event != NO_EVENT).then_some(p.peak_event),
        stack: blocks.first().and_then(|b| p.stack_of(b.lifetime)),
        lifetimes: blocks.iter().take(1000).map(|b| b.lifetime).collect(),
        range: None,
    }
}

/// The lines that hold most of some blocks, at most three: `model.py:41, model.py:527 and model.py:105`.
fn lines(p: &Patient<'_>, blocks: &[&BlockAt]) -> String {
    let mut by_name: FxHashMap<&str, u64> = FxHashMap::default();
    for b in blocks {
        *by_name.entry(p.names.of_stack(p.tables.lifetimes.stack(p.device, b.lifetime))).or_default() += b.size;
    }
    let mut names: Vec<(&str, u64)> = by_name.into_iter().collect();
    names.sort_by_key(|&(name, bytes)| (std::cmp::Reverse(bytes), name));
    let names: Vec<&str> = names.into_iter().take(3).map(|n| n.0).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Autograd recorded a graph, and no backward pass used it.
pub(super) fn unused_graph(p: &Patient<'_>) -> Vec<Finding> {
    // Where a request failed the backward pass may have been next.
    if !p.ooms.is_empty() {
        return Vec::new();
    }
    let Some((blocks, bytes)) = held(p, |b| p.roles.is_kept_by_graph(b.lifetime)) else { return Vec::new() };
    // A recording that ends right after the forward pass does not tell what came next.
    let is_freed = blocks.iter().any(|b| p.tables.lifetimes.gone(b.lifetime) != NO_EVENT);
    let sentence = format!(
        "The forward pass keeps {} in {} for a backward pass, most at {}, and {}.",
        Bytes(bytes),
        counted(blocks.len() as u64, "block", "blocks"),
        lines(p, &blocks),
        if is_freed { "they are freed without one" } else { "the recording has none" }
    );
    let if_none = if is_freed { "" } else { "If no backward pass follows: " };
    vec![
        Finding::new("unused_graph", Class::Peak, "Autograd keeps a graph that nothing uses", bytes)
            .says(sentence)
            .bytes_of("kept for backward", bytes)
            .bytes_of("peak", p.tables.curves.peak(Quantity::Active).0)
            .at(place(p, &blocks))
            .remedy("with torch.inference_mode():")
            .advice(&format!("{if_none}run evaluation and generation under torch.no_grad() or torch.inference_mode(); no graph is then recorded."))
            .check("The forward pass frees each layer's tensors before the next layer ends."),
    ]
}

/// Copies of weights that autocast keeps until its context ends.
pub(super) fn autocast_copies(p: &Patient<'_>) -> Vec<Finding> {
    let Some((blocks, bytes)) = held(p, |b| p.roles.of(b.lifetime) == Role::AutocastCopies) else { return Vec::new() };
    vec![
        Finding::new("autocast_copies", Class::Peak, "Autocast keeps a second copy of the weights", bytes)
            .says(format!(
                "{} at the peak are probably half-precision copies of {}, which autocast caches until its context ends.",
                Bytes(bytes),
                counted(blocks.len() as u64, "weight", "weights"),
            ))
            .bytes_of("copies", bytes)
            .bytes_of("peak", p.tables.curves.peak(Quantity::Active).0)
            .at(place(p, &blocks))
            .remedy("torch.autocast(\"cuda\", dtype=torch.bfloat16, cache_enabled=False)")
            .advice("For inference convert the model once: model.to(torch.bfloat16), without autocast. In training cache_enabled=False casts each weight at each use instead of keeping the copy.")
            .check("No block of half a weight's size lives to the end of the forward pass."),
    ]
}

/// Scores of attention, batch times heads times length squared, which fused attention never makes.
pub(super) fn attention_scores(p: &Patient<'_>) -> Vec<Finding> {
    let lifetimes = &p.tables.lifetimes;
    let stack_of = |b: &BlockAt| lifetimes.stack(p.device, b.lifetime);
    let is_attention = |b: &BlockAt| {
        matches!(p.roles.of(b.lifetime), Role::Activations | Role::Temporaries)
            && p.roles.anatomy.phases.is_attention(stack_of(b))
    };
    // Scores, mask, softmax and dropout are of one size: other tensors of an attention layer come in many.
    let mut stacks_of: FxHashMap<u64, Vec<StackId>> = FxHashMap::default();
    for b in p.at_peak.blocks.iter().filter(|b| b.state != BlockState::Inactive && b.requested >= MEBIBYTE && is_attention(b)) {
        let stacks = stacks_of.entry(b.requested).or_default();
        if !stacks.contains(&stack_of(b)) {
            stacks.push(stack_of(b));
        }
    }
    let Some(size) = stacks_of.into_iter().filter(|(_, stacks)| stacks.len() >= 2).map(|s| s.0).max() else { return Vec::new() };
    let Some((blocks, bytes)) = held(p, |b| b.requested == size && is_attention(b)) else { return Vec::new() };
    vec![
        Finding::new("attention_scores", Class::Peak, "Attention scores are kept whole", bytes)
            .says(format!(
                "{} of {} each at the peak come from attention that is computed step by step, at {}: batch times heads times length squared.",
                counted(blocks.len() as u64, "block", "blocks"),
                Bytes(size),
                lines(p, &blocks),
            ))
            .bytes_of("scores and copies of them", bytes)
            .bytes_of("peak", p.tables.curves.peak(Quantity::Active).0)
            .at(place(p, &blocks))
            .remedy("torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)")
            .advice("Fused attention (scaled_dot_product_attention, FlashAttention, attn_implementation=\"sdpa\" in Transformers) computes the same without them.")
            .check("No block grows with the square of the length."),
    ]
}

/// True where segments went back while a CUDA graph was captured: `torch.cuda.graph` empties the cache as it begins.
pub(super) fn is_capture(p: &Patient<'_>, event: u32) -> bool {
    let phases = &p.roles.anatomy.phases;
    let stack = p.device.events.stack.get(event as usize).copied().unwrap_or(StackId::NONE);
    phases.captures(stack) || phases.at(event) == Some(Phase::Capture)
}
