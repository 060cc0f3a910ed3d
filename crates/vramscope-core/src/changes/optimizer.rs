//! Changes to the optimizer and to how long gradients live.

use super::draft::{Draft, Draw, Edits};
use super::requests::NEVER;
use crate::anatomy::Phase;
use crate::anatomy::Role;
use crate::tables::naming::is_made_by_own_code;

/// Without foreach: each weight is updated alone, so temporaries are freed before the next weight. Adam's denominator is a root
/// and then a quotient, two for a moment.
pub(super) fn without_foreach(draft: &mut Draft<'_>) {
    let rows = scratch(draft);
    let mut edits = Edits::default();
    for &row in &rows {
        let r = draft.rows[row as usize];
        if r.freed > r.born + 3 {
            let second = edits.make_again(draft, row, r.born + 1);
            edits.free_at(draft, row, r.born + 1);
            edits.free_again(second, r.born + 1);
        }
    }
    draft.apply(edits);
}

/// Fused: one kernel steps all weights in place.
pub(super) fn fused(draft: &mut Draft<'_>) {
    for row in scratch(draft) {
        draft.rows[row as usize].drop_it();
    }
}

/// True where most of what the optimizer's steps make comes from a line of the program, not from a library's optimizer.
pub(super) fn is_of_own_code(draft: &Draft<'_>) -> bool {
    let stack = |row: u32| draft.program.rows[draft.rows[row as usize].of as usize].stack;
    let is_own = |row: u32| is_made_by_own_code(draft.program.stacks, stack(row));
    let made = draft.which(|r| r.phase == Phase::Optimizer && r.born != NEVER);
    let bytes = |rows: &mut dyn Iterator<Item = u32>| rows.map(|row| draft.size(row)).sum::<u64>();
    let own = bytes(&mut made.iter().copied().filter(|&row| is_own(row)));
    own > 0 && own.saturating_mul(2) > bytes(&mut made.iter().copied())
}

/// What the optimizer keeps, without the fp32 copies of half-precision weights, which every optimizer needs.
fn state(draft: &Draft<'_>) -> Vec<u32> {
    draft.which(|r| r.role == Role::OptimizerState && !draft.program.rows[r.of as usize].is_master)
}

/// State in eight bits: a byte an element and four for each 256. Returns the bytes of an element before.
pub(super) fn eight_bit(draft: &mut Draft<'_>) -> u64 {
    fused(draft);
    let each = draft.bytes_of_element();
    for row in state(draft) {
        // Tensors of fewer than 4,096 elements stay as they are.
        if draft.size(row) >= each * 4096 {
            draft.rows[row as usize].part = (65, 64 * each as u32);
        }
    }
    each
}

/// SGD without momentum: no state, and nothing on the way.
pub(super) fn sgd(draft: &mut Draft<'_>) {
    fused(draft);
    for row in state(draft) {
        draft.rows[row as usize].drop_it();
    }
}

/// `set_to_none`: gradients are freed behind the optimizer, and the backward pass keeps what it makes as the next ones.
pub(super) fn set_to_none(draft: &mut Draft<'_>) -> bool {
    let mut edits = Edits::default();
    let mut is_any = false;
    let over = |step| Some(draft.reach(step, Phase::Optimizer).or_else(|| draft.reach(step, Phase::Backward))?.1 + 1);
    for step in 0..=draft.steps() {
        // Gradients older than the recording are gone when it begins.
        let Some(end) = over(step).or((step == 0).then_some(0)) else { continue };
        let is_kept = |r: &Draw| r.role == Role::Gradients && (r.freed == NEVER || outlives(draft, r.freed, step));
        let kept = if step == 0 { draft.which(|r| r.step == 0 && is_kept(r)) } else { draft.of_step(step, is_kept) };
        for &row in &kept {
            is_any = true;
            edits.free_at(draft, row, end);
        }
        for later in step + 1..=draft.steps() {
            let Some(end) = over(later) else { continue };
            let mut made = draft.of_step(later, |r| r.phase == Phase::Backward && r.is_short());
            // Gradients that `zero_grad` freed before this step's backward pass got nothing added by it.
            for &row in kept.iter().filter(|&&row| draft.rows[row as usize].freed > end) {
                if let Some(at) = made.iter().position(|&m| draft.size(m) == draft.size(row)) {
                    edits.free_at(draft, made.remove(at), end);
                }
            }
        }
    }
    draft.apply(edits);
    is_any
}

/// True where a place lies in the forward pass of the next step or behind it.
fn outlives(draft: &Draft<'_>, freed: u32, step: u32) -> bool {
    draft.reach(step + 1, Phase::Forward).is_some_and(|(_, end)| freed > end)
}

/// The optimizer steps each weight in the backward pass, as soon as its gradient is there, with two tensors of its size on the way.
pub(super) fn in_backward(draft: &mut Draft<'_>) {
    fused(draft);
    let mut edits = Edits::default();
    for step in 1..=draft.steps() {
        let gradients = draft.of_step(step, |r| r.role == Role::Gradients && r.born != NEVER);
        for (i, &row) in gradients.iter().enumerate() {
            let next = gradients.get(i + 1).map_or(draft.rows[row as usize].born + 2, |&n| draft.rows[n as usize].born);
            if draft.rows[row as usize].freed > next {
                let on_the_way = [edits.make_again(draft, row, next), edits.make_again(draft, row, next)];
                on_the_way.into_iter().for_each(|r| edits.free_again(r, next));
                edits.free_at(draft, row, next);
            }
        }
    }
    draft.apply(edits);
}

/// What the optimizer makes on the way.
fn scratch(draft: &Draft<'_>) -> Vec<u32> {
    draft.which(|r| r.phase == Phase::Optimizer && !matches!(r.role, Role::OptimizerState | Role::Weights | Role::Gradients))
}
