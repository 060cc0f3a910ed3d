//! Laws from a single recording: the anatomy decides what grows.
//!
//! Weights, gradients and optimizer blocks do not depend on the batch. Inputs and activations do. Temporaries of a pass do,
//! unless something that does not grow has their size. Unknown blocks may be anything in between, so the answer is a range.

use rustc_hash::{FxHashMap, FxHashSet};

use super::elsewhere;
use super::fit::Laws;
use super::law::{Fit, Law, Quantities, Sure};
use super::open::Open;
use super::program::{Program, Row};
use crate::anatomy::{Phase, Role};

/// Smaller requests do not matter; most are numbers or tables.
const SMALL: u64 = 4096;

/// The distinct laws, the law of each row, and notes about rows that grow differently. If a cache's rows are known, only they grow.
pub(super) fn fit(program: &Program, quantities: &Quantities, at: &[u64], cache: &FxHashSet<u32>) -> (Laws, Vec<u32>, Open) {
    // Sizes of blocks that do not grow.
    let fixed: FxHashSet<u64> = program
        .rows
        .iter()
        .filter(|r| matches!(r.role, Role::Weights | Role::Gradients | Role::OptimizerState | Role::AutocastCopies))
        .map(|r| r.size)
        .collect();
    // A layer may compute a tensor from each weight, as weight normalisation does: as many blocks in a step as there are weights.
    // With more of that size, most belong to the batch.
    let weights = program.rows.iter().filter(|r| matches!(r.role, Role::Weights | Role::AutocastCopies));
    let activations = program.rows.iter().filter(|r| r.role == Role::Activations && r.phase != Phase::Load);
    let (weights, activations) = (count_by_size(weights), count_by_size(activations));
    let steps = program.steps.max(1) as u64;
    let are_of_batch = |size: u64| {
        let count = |of: &FxHashMap<u64, u64>| of.get(&size).copied().unwrap_or(0);
        count(&activations) > steps * count(&weights)
    };
    let largest_fixed = fixed.iter().copied().max().unwrap_or(u64::MAX / 2);
    // True if batch or length divides the size. An image's activations shrink from layer to layer: no multiples of its side.
    let is_multiple = |size: u64| at.iter().any(|&v| v > 0 && size.is_multiple_of(v));
    let product: u64 = at.iter().fold(1u64, |all, &v| all.saturating_mul(v));
    // Scores, their mask and autocast's copies are as large as the result of a softmax. At some lengths other layers make blocks
    // of that size too, and blocks of the backward pass, which have no stack, may be either.
    let scores: FxHashSet<u64> = program.rows.iter().filter(|r| makes_scores(program, r)).map(|r| r.size).collect();
    let is_of_other = |r: &&Row| scores.contains(&r.size) && r.phase == Phase::Forward && is_outside_attention(program, r);
    let others: FxHashSet<u64> = program.rows.iter().filter(is_of_other).map(|r| r.size).collect();
    let of_scores = |row: &Row, grows: &Law| {
        let squared = quantities.scores(at, row.size).filter(|_| scores.contains(&row.size))?;
        let is_either = others.contains(&row.size);
        let (law, other) = match row.stack.is_some() {
            true if is_outside_attention(program, row) => return None,
            false if is_either => (grows.clone(), squared),
            _ => (squared, grows.clone()),
        };
        Some(Fit { law, sure: Sure::Guessed, others: vec![other] })
    };
    // Blocks made in or before the first step and still live in the last may be one batch, or data that batches are taken from.
    let last =
        program.stretches.get(program.steps).filter(|_| program.steps > 1).and_then(|s| program.rows.get(s.start as usize));
    let may_be_data = |row: &Row, number: u32| {
        let is_early = program.stretches.get(1).is_some_and(|first| number < first.end);
        row.role == Role::Inputs && is_early && last.is_some_and(|last| row.freed > last.born)
    };
    // If a layer's width equals the batch size, its results are as large as a matrix that compares all samples. Such a layer also
    // has a bias of that width.
    let is_width = |v: u64| [2, 4, 8].iter().any(|value| fixed.contains(&(v * value)));
    let squares_of = |row: &Row| {
        let is_of_pass = matches!(row.role, Role::Activations | Role::Temporaries | Role::Inputs | Role::Unknown)
            && !matches!(row.phase, Phase::Load | Phase::Optimizer);
        let may_be = is_of_pass && cache.is_empty() && row.size > SMALL && !scores.contains(&row.size);
        if may_be { quantities.squares(at, row.size) } else { Vec::new() }
    };
    let mut squares = Vec::new();
    let elsewhere = elsewhere::find(program);
    let mut laws = Laws::default();
    let of = program
        .rows
        .iter()
        .zip(0u32..)
        .map(|(row, number)| {
            let both = quantities.alone(at, row.size);
            let grows = both.others.first().cloned().unwrap_or_else(|| Law::constant(row.size));
            let certain = |law: Law| Fit { law, sure: Sure::Determined, others: Vec::new() };
            let is_of_pass = matches!(row.role, Role::Activations | Role::Temporaries) && cache.is_empty();
            let mut fit = match row.role {
                _ if is_of_pass && let Some(fit) = of_scores(row, &grows) => fit,
                _ if cache.contains(&number) => certain(grows),
                _ if !cache.is_empty() => certain(Law::constant(row.size)),
                Role::Weights
                | Role::Gradients
                | Role::OptimizerState
                | Role::AutocastCopies
                | Role::Workspaces
                | Role::Buckets => certain(Law::constant(row.size)),
                // The graph of the pass before the recording grows in the same way.
                Role::Activations if row.phase == Phase::Load && is_multiple(row.size) && !fixed.contains(&row.size) => {
                    Fit { law: grows, sure: Sure::Guessed, others: vec![] }
                }
                _ if matches!(row.phase, Phase::Load | Phase::Optimizer) => certain(Law::constant(row.size)),
                _ if row.size <= SMALL => certain(Law::constant(row.size)),
                // An evaluation has its own batch size.
                _ if elsewhere.rows.contains(&number) => {
                    Fit { law: Law::constant(row.size), sure: Sure::Guessed, others: vec![grows] }
                }
                Role::Activations | Role::Inputs if is_multiple(row.size) && !fixed.contains(&row.size) => {
                    let others = if may_be_data(row, number) { vec![Law::constant(row.size)] } else { vec![] };
                    Fit { law: grows, sure: Sure::Guessed, others }
                }
                _ if is_of_pass && fixed.contains(&row.size) && is_multiple(row.size) && are_of_batch(row.size) => {
                    Fit { law: grows, sure: Sure::Guessed, others: vec![Law::constant(row.size)] }
                }
                _ if fixed.contains(&row.size) || !row.size.is_multiple_of(product) => {
                    Fit { law: Law::constant(row.size), sure: Sure::Guessed, others: vec![grows] }
                }
                // Larger than two copies of any weight: no block of constant size is that large.
                _ if row.size > 2 * largest_fixed => Fit { law: grows, sure: Sure::Guessed, others: vec![] },
                _ => Fit { law: grows, sure: Sure::Guessed, others: vec![Law::constant(row.size)] },
            };
            for square in squares_of(row) {
                squares.push(number);
                let is_likely = !at.iter().any(|&v| is_width(v));
                let other = if is_likely { std::mem::replace(&mut fit.law, square) } else { square };
                fit.others.push(other);
                fit.sure = Sure::Guessed;
            }
            laws.id(fit)
        })
        .collect();
    (laws, of, Open { squares, lines: elsewhere.lines })
}

fn count_by_size<'a>(rows: impl Iterator<Item = &'a Row>) -> FxHashMap<u64, u64> {
    let mut count = FxHashMap::default();
    rows.for_each(|row| *count.entry(row.size).or_default() += 1);
    count
}

/// True for a block made by a softmax, except that of a loss over a vocabulary.
fn makes_scores(program: &Program, row: &Row) -> bool {
    let stacks = &program.recording.stacks;
    let names = || stacks.frames(row.stack).iter().filter_map(|&f| stacks.frame(f)).map(|f| stacks.text(f.name));
    let is_of_loss = |name: &str| name.contains("log_softmax") || name.contains("cross_entropy") || name.contains("loss");
    names().any(|name| name == "softmax" || name.ends_with("::softmax")) && !names().any(is_of_loss)
}

/// True for a block made in no function named after attention or a softmax.
fn is_outside_attention(program: &Program, row: &Row) -> bool {
    let stacks = &program.recording.stacks;
    let mut names = stacks.frames(row.stack).iter().filter_map(|&f| stacks.frame(f)).map(|f| stacks.text(f.name));
    row.stack.is_some() && !names.any(|name| ["attention", "attn", "softmax"].iter().any(|word| name.contains(word)))
}
