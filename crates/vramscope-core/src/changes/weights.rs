//! Changes to the weights: a smaller type, or freezing most of them.

use rustc_hash::FxHashSet;

use super::draft::{Draft, Edits, is_of_loss};
use crate::anatomy::Phase;
use crate::anatomy::Role;

/// Weights in bf16: half the bytes for weights, gradients and optimizer state, and no autocast copies. Without autocast,
/// activations halve too, except the loss's, which is mostly computed in fp32. With autocast, some activations are already in bf16.
pub(super) fn bf16(draft: &mut Draft<'_>) {
    let had_autocast = draft.rows.iter().any(|r| r.role == Role::AutocastCopies);
    let of_loss = draft.which(|r| r.phase == Phase::Forward && is_of_loss(draft.program, r.of));
    let largest = of_loss.iter().map(|&r| draft.size(r)).max().unwrap_or(u64::MAX);
    // The gradient coming back from the loss has the same size, and is cast on its way to the logits.
    let back = draft.which(|r| r.phase == Phase::Backward && r.is_short() && draft.program.rows[r.of as usize].size == largest);
    let stays: FxHashSet<u32> = of_loss.into_iter().chain(back.iter().copied()).collect();
    for row in 0..draft.rows.len() as u32 {
        let r = &mut draft.rows[row as usize];
        match r.role {
            Role::AutocastCopies => r.drop_it(),
            Role::Weights | Role::Gradients | Role::OptimizerState => r.part.1 *= 2,
            _ if r.phase == Phase::Optimizer => r.part.1 *= 2,
            Role::Activations | Role::Temporaries if r.phase != Phase::Load && !stays.contains(&row) => {
                if had_autocast {
                    draft.low.insert(row, (1, 2));
                } else {
                    r.part.1 *= 2;
                }
            }
            _ => {}
        }
    }
    if !had_autocast {
        let mut edits = Edits::default();
        for row in back {
            let freed = draft.rows[row as usize].freed;
            let cast = edits.make_half(draft, row, freed);
            edits.free_again(cast, freed + 1);
        }
        draft.apply(edits);
    }
}

/// LoRA: the weights are frozen; gradients and state are those of two thin matrices beside each weight.
pub(super) fn lora(draft: &mut Draft<'_>, rank: u64) {
    let each = draft.bytes_of_element();
    for row in 0..draft.rows.len() as u32 {
        let role = draft.rows[row as usize].role;
        let is_of_optimizer = draft.rows[row as usize].phase == Phase::Optimizer && role != Role::Weights;
        if !matches!(role, Role::Gradients | Role::OptimizerState) && !is_of_optimizer {
            continue;
        }
        // For a square matrix of n elements, each of the two has rank × √n elements.
        let elements = (draft.size(row) / each).max(1);
        let side = elements.isqrt().max(1);
        let thin = 2 * rank * side;
        let r = &mut draft.rows[row as usize];
        // Vectors have no low rank and are frozen.
        if elements < 16_384 || thin >= elements {
            r.drop_it();
        } else {
            let over = u32::try_from(elements / thin).unwrap_or(u32::MAX).max(1);
            r.part.1 = r.part.1.saturating_mul(over);
        }
    }
}
