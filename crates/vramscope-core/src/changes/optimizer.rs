//! Changes to the optimizer and to the lifetime of gradients.

use super::draft::{Draft, Draw, Edits};
use super::requests::NEVER;
use crate::anatomy::Phase;
use crate::anatomy::Role;
use crate::tables::naming::is_made_by_own_code;

/// Without foreach, each weight is updated alone, so temporaries are freed before the next weight. Adam's denominator is first a
/// root and then a quotient, so two temporaries exist for a moment.
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

/// Fused: one kernel updates all weights in place.
pub(super) fn fused(draft: &mut Draft<'_>) {
    for row in scratch(draft) {
        draft.rows[row as usize].drop_it();
    }
}

/// True if most blocks of the optimizer's steps come from lines of the program, not from a library's optimizer.
pub(super) fn is_of_own_code(draft: &Draft<'_>) -> bool {
    let stack = |row: u32| draft.program.rows[draft.rows[row as usize].of as usize].stack;
    let is_own = |row: u32| is_made_by_own_code(draft.program.stacks, stack(row));
    let made = draft.which(|r| r.phase == Phase::Optimizer && r.born != NEVER);
    let bytes = |rows: &mut dyn Iterator<Item = u32>| rows.map(|row| draft.size(row)).sum::<u64>();
    let own = bytes(&mut made.iter().copied().filter(|&row| is_own(row)));
    own > 0 && own.saturating_mul(2) > bytes(&mut made.iter().copied())
}

/// The optimizer's state, without the fp32 copies of half-precision weights, which every optimizer needs.
fn state(draft: &Draft<'_>) -> Vec<u32> {
    draft.which(|r| r.role == Role::OptimizerState && !draft.program.rows[r.of as usize].is_master)
}

/// 8-bit state: one byte per element plus four bytes per 256 elements. Returns the previous bytes per element.
pub(super) fn eight_bit(draft: &mut Draft<'_>) -> u64 {
    fused(draft);
    let each = draft.bytes_of_element();
    for row in state(draft) {
        // Tensors of fewer than 4,096 elements stay unchanged.
        if draft.size(row) >= each * 4096 {
            draft.rows[row as usize].part = (65, 64 * each as u32);
        }
    }
    each
}

/// SGD without momentum: no state and no temporaries.
pub(super) fn sgd(draft: &mut Draft<'_>) {
    fused(draft);
    for row in state(draft) {
        draft.rows[row as usize].drop_it();
    }
}

/// `set_to_none`: gradients are freed after the optimizer step, and the backward pass keeps newly made ones instead.
pub(super) fn set_to_none(draft: &mut Draft<'_>) -> bool {
    let mut edits = Edits::default();
    let mut is_any = false;
    let over = |step| Some(draft.reach(step, Phase::Optimizer).or_else(|| draft.reach(step, Phase::Backward))?.1 + 1);
    for step in 0..=draft.steps() {
        // Gradients older than the recording are freed when it begins.
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
            // The backward pass added nothing to gradients that `zero_grad` freed before it.
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

/// True if this position is after the forward pass of the next step.
fn outlives(draft: &Draft<'_>, freed: u32, step: u32) -> bool {
    draft.reach(step + 1, Phase::Forward).is_some_and(|(_, end)| freed > end)
}

/// The optimizer updates each weight during the backward pass, as soon as its gradient exists, with two temporaries of its size.
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

fn scratch(draft: &Draft<'_>) -> Vec<u32> {
    draft.which(|r| r.phase == Phase::Optimizer && !matches!(r.role, Role::OptimizerState | Role::Weights | Role::Gradients))
}
