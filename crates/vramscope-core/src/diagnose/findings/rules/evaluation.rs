//! An evaluation with a larger batch than training.

use rustc_hash::FxHashMap;

use super::at_peak::{LEAST, held, lines, peak, place, saving};
use crate::anatomy::{Phase, line_of};
use crate::diagnose::findings::{Class, Finding, RuleInput};
use crate::model::{FrameId, StackId};
use crate::tables::{LifetimeId, NO_EVENT};
use crate::units::Bytes;

/// The peak is in an evaluation, and the model's lines make larger tensors there than in training.
pub(super) fn larger_batch(p: &RuleInput<'_>) -> Option<Finding> {
    /// A smaller factor may come from another image size or sequence length.
    const LEAST_TIMES: f64 = 1.5;
    if p.roles.anatomy.phases.at(p.peak_event) != Some(Phase::Evaluation) || !p.trains() {
        return None;
    }
    let times = times_larger(p).filter(|&times| times >= LEAST_TIMES)?;
    let evaluations = evaluations(p);
    let lifetimes = &p.tables.lifetimes;
    let is_its = |id: LifetimeId| {
        let (born, gone) = (lifetimes.born(id), lifetimes.gone(id));
        let at = evaluations.partition_point(|&(from, _)| from <= born).checked_sub(1);
        born != NO_EVENT && gone != NO_EVENT && at.is_some_and(|at| gone <= evaluations[at].1)
    };
    let (blocks, bytes) = held(p, |b| is_its(b.lifetime));
    let saving = saving(p, |id, size| if is_its(id) { (size as f64 / times) as u64 } else { size });
    if bytes < LEAST || saving.bytes().saturating_mul(10) < peak(p) {
        return None;
    }
    let times = match (times * 10.0).round() / 10.0 {
        whole if whole.fract() == 0.0 => format!("{whole:.0}"),
        part => format!("{part:.1}"),
    };
    Finding::new("larger_evaluation", Class::Peak, "The evaluation makes the peak", bytes)
        .says(format!(
            "{} of the {} at the peak were made for the evaluation, most at {}. The same lines make tensors {times} times as large as in training: its batch is probably {times} times as large.",
            Bytes(bytes),
            Bytes(peak(p)),
            lines(p, &blocks),
        ))
        .saves("With training's batch", saving)
        .bytes_of("of the evaluation", bytes)
        .shows("times as large as in training", times)
        .bytes_of("peak", peak(p))
        .at(place(p, &blocks))
        .remedy("DataLoader(validation_set, batch_size=train_batch_size)")
        .advice("Under no_grad an evaluation keeps no graph, so a batch of training's size fits where training fits. In Transformers' Trainer it is per_device_eval_batch_size.")
        .check("The peak is in a training step.")
}

/// The evaluations between two training passes, as ranges of events (end exclusive), oldest first.
fn evaluations(p: &RuleInput<'_>) -> Vec<(u32, u32)> {
    let (mut found, mut from, mut is_any) = (Vec::new(), 0, false);
    for run in p.runs() {
        match run.phase {
            Phase::Evaluation => is_any = true,
            Phase::Forward | Phase::Backward | Phase::Optimizer => {
                if is_any {
                    found.push((from, run.events.0));
                }
                (from, is_any) = (run.events.1, false);
            }
            _ => {}
        }
    }
    if is_any {
        found.push((from, NO_EVENT));
    }
    found
}

/// How many times larger a line's largest tensors are in evaluation than in training; `None` if lines disagree. O(lifetimes).
fn times_larger(p: &RuleInput<'_>) -> Option<f64> {
    let mut line_of_stack: FxHashMap<StackId, Option<FrameId>> = FxHashMap::default();
    let mut largest: FxHashMap<FrameId, [u64; 2]> = FxHashMap::default();
    for run in p.runs() {
        let Some(which) = [Phase::Forward, Phase::Evaluation].into_iter().position(|phase| phase == run.phase) else { continue };
        for id in (run.rows.0..run.rows.1).map(LifetimeId) {
            let Some(stack) = p.stack_of(id) else { continue };
            let line = *line_of_stack.entry(stack).or_insert_with(|| line_of(&p.recording.stacks, stack));
            let Some(line) = line else { continue };
            let largest = &mut largest.entry(line).or_default()[which];
            *largest = p.requested(id).max(*largest);
        }
    }
    let mut times: Vec<(f64, u64)> =
        largest.into_values().filter(|sizes| sizes[0] > 0 && sizes[1] > 0).map(|[t, e]| (e as f64 / t as f64, e)).collect();
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all = times.iter().fold(0u64, |sum, &(_, weight)| sum.saturating_add(weight));
    let mut sum = 0u64;
    let (middle, _) = *times.iter().find(|&&(_, weight)| {
        sum = sum.saturating_add(weight);
        sum >= all / 2
    })?;
    let agree = times.iter().filter(|(times, _)| (times / middle - 1.0).abs() < 0.02);
    let agree = agree.fold(0u64, |sum, &(_, weight)| sum.saturating_add(weight));
    (agree.saturating_mul(3) >= all.saturating_mul(2)).then_some(middle)
}
