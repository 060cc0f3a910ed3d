//! Memory that a library holds without being asked: gathered predictions and scores, gradients that are moved along with a model.

use rustc_hash::FxHashMap;

use super::GATHERED;
use super::at_peak::{LEAST, held, lines, peak, place, saving};
use crate::anatomy::Phase;
use crate::diagnose::findings::{Class, Finding, RuleInput};
use crate::tables::LifetimeId;
use crate::tables::naming::is_of_operators;
use crate::units::{Bytes, counted};

/// A library file that gathers results.
struct Gatherer {
    /// End of the file's path.
    file: &'static str,
    /// At least this many blocks of one size form a collection.
    fewest: usize,
    title: &'static str,
    /// What is kept, in words that follow "4.41 GiB of the 9.45 GiB at the peak".
    says: &'static str,
    /// The change in words: `With the predictions on the CPU`.
    with: &'static str,
    remedy: &'static str,
    advice: &'static str,
    check: &'static str,
}

const GATHERERS: [Gatherer; 2] = [
    Gatherer {
        file: "transformers/trainer_pt_utils.py",
        fewest: 1,
        title: "The Trainer's evaluation gathers all predictions on the GPU",
        says: "hold the predictions of an evaluation: each batch's are joined with those before, in a new block.",
        with: "With the predictions on the CPU",
        remedy: "TrainingArguments(..., eval_accumulation_steps=1)",
        advice: "They then go to the CPU after each batch. With preprocess_logits_for_metrics the Trainer keeps less from the start, such as logits.argmax(-1); prediction_loss_only=True keeps none.",
        check: "Memory stays level through the evaluation.",
    },
    Gatherer {
        file: "transformers/generation/utils.py",
        fewest: 16,
        title: "generate() keeps the scores of every token",
        says: "hold the scores of tokens, of batch times vocabulary each.",
        with: "Without them",
        remedy: "model.generate(..., output_scores=False, output_logits=False)",
        advice: "Where you need the scores, compute what you need of them in a LogitsProcessor, or generate in smaller batches and move them to the CPU.",
        check: "Memory grows by the key-value cache only while tokens are generated.",
    },
];

/// Reports results that a library gathers: at least a tenth of the peak.
pub(super) fn gathered(p: &RuleInput<'_>) -> Vec<Finding> {
    GATHERERS.iter().filter_map(|gatherer| of_gatherer(p, gatherer)).collect()
}

/// Reports gradients that came to the device with a model that is not trained there: at least a tenth of the peak.
pub(super) fn moved_gradients(p: &RuleInput<'_>) -> Option<Finding> {
    let (blocks, bytes) = held(p, |b| p.roles.is_moved_gradient(b.lifetime));
    let peak = peak(p);
    let trains = p.runs().iter().any(|run| matches!(run.phase, Phase::Backward | Phase::Optimizer));
    if trains || bytes < LEAST || bytes.saturating_mul(10) < peak {
        return None;
    }
    Finding::new("moved_gradients", Class::Peak, "Gradients were moved with the model", bytes)
        .says(format!(
            "{} of the {} at the peak is probably gradients, which came with the model when {} moved it.",
            Bytes(bytes),
            Bytes(peak),
            lines(p, &blocks)
        ))
        .saves("Without them", saving(p, |id, size| if p.roles.is_moved_gradient(id) { 0 } else { size }))
        .bytes_of("gradients", bytes)
        .bytes_of("peak", peak)
        .at(place(p, &blocks))
        .remedy("model.zero_grad(set_to_none=True)  # before model.to(device)")
        .advice("A model that was trained keeps its gradients, and .to() moves them with the weights.")
        .check("The model takes as much as its weights.")
}

fn of_gatherer(p: &RuleInput<'_>, gatherer: &Gatherer) -> Option<Finding> {
    let stacks = &p.recording.stacks;
    let is_its = |id: LifetimeId| {
        let frames = p.stack_of(id).map(|stack| stacks.frames(stack)).unwrap_or_default();
        let python =
            frames.iter().filter_map(|&f| stacks.frame(f)).map(|f| stacks.text(f.file)).filter(|file| file.ends_with(".py"));
        let innermost = python.into_iter().find(|file| !is_of_operators(file));
        innermost.is_some_and(|file| file.replace('\\', "/").ends_with(gatherer.file))
    };
    let mut of_size: FxHashMap<u64, usize> = FxHashMap::default();
    for b in held(p, |b| is_its(b.lifetime)).0 {
        *of_size.entry(b.requested).or_default() += 1;
    }
    let is_gathered = |id: LifetimeId| {
        let requested = p.requested(id);
        is_its(id) && (gatherer.fewest == 1 || of_size.get(&requested).is_some_and(|&n| n >= gatherer.fewest))
    };
    let (blocks, bytes) = held(p, |b| is_gathered(b.lifetime));
    let peak = peak(p);
    if bytes < LEAST || bytes.saturating_mul(10) < peak {
        return None;
    }
    let says = format!(
        "{} of the {} at the peak, in {}, {}",
        Bytes(bytes),
        Bytes(peak),
        counted(blocks.len() as u64, "block", "blocks"),
        gatherer.says
    );
    Finding::new(GATHERED, Class::Peak, gatherer.title, bytes)
        .says(says)
        .saves(gatherer.with, saving(p, |id, size| if is_gathered(id) { 0 } else { size }))
        .bytes_of("gathered", bytes)
        .bytes_of("peak", peak)
        .at(place(p, &blocks))
        .remedy(gatherer.remedy)
        .advice(gatherer.advice)
        .check(gatherer.check)
}
