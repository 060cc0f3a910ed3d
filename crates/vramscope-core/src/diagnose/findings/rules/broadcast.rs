//! A loss that accidentally compares every prediction with every target: [n, 1] minus [n] is [n, n].

use super::at_peak::{LEAST, held, lines, peak, place, saving};
use super::shared::LINEAR;
use crate::anatomy::line_of;
use crate::anatomy::roles::Role;
use crate::diagnose::findings::{Class, Finding, RuleInput};
use crate::model::FrameId;
use crate::tables::LifetimeId;
use crate::units::{Bytes, count};

/// Possible element sizes of a tensor, in bytes.
const WIDTHS: [u64; 3] = [2, 4, 8];

/// For a square matrix of this many bytes: the possible side lengths, each with its element size in bytes.
fn side(bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    WIDTHS.into_iter().filter(move |width| bytes.is_multiple_of(*width)).filter_map(move |width| {
        let n = (bytes / width).isqrt();
        (n > 1 && n.checked_mul(n) == Some(bytes / width)).then_some((n, width))
    })
}

/// Reports square matrices at the peak if the first was made right after a vector of its side length, while another is live.
pub(super) fn broadcast(p: &RuleInput<'_>) -> Option<Finding> {
    /// Less than 1/n of the peak is not reported.
    const SHARE: u64 = 2;
    /// The matrix must be at least this many times larger than anything else: a batch has more samples than a layer has outputs.
    const LARGER: u64 = 4;
    /// The predictions are among this many last tensors before the matrix.
    const JUST_BEFORE: u32 = 3;
    let lifetimes = &p.tables.lifetimes;
    let size = |id: LifetimeId| p.requested(id);
    let trains = p.trains() || p.steps.source.is_optimizer();
    let step = p.steps.of(p.peak_event).filter(|_| trains && !p.steps.is_inferred())?;
    let all = || lifetimes.recorded_ids();
    let largest = held(p, |_| true).0.first().map_or(0, |b| size(b.lifetime));
    let made_first = all().find(|&id| size(id) == largest && p.steps.of(lifetimes.born(id)) == Some(step));
    let first = made_first.filter(|_| largest >= LEAST / 4)?;
    let born = lifetimes.born(first);
    let is_live = |id: LifetimeId| lifetimes.gone(id) >= born;
    let just_before = || (1..=JUST_BEFORE).filter_map(|back| first.0.checked_sub(back)).map(LifetimeId);
    let is_pair = |&(n, width): &(u64, u64)| {
        let is_vector = |id: &LifetimeId| size(*id) == n * width && is_live(*id);
        // The targets may have another element size.
        let others =
            (0..first.0).map(LifetimeId).filter(|&id| is_live(id) && WIDTHS.contains(&(size(id) / n)) && size(id) % n == 0);
        just_before().any(|id| is_vector(&id)) && others.count() > 1
    };
    let (n, _) = side(largest).find(is_pair)?;
    let is_square = |id: LifetimeId| side(size(id)).any(|(side, _)| side == n);
    let (blocks, bytes) = held(p, |b| is_square(b.lifetime));
    // If a batch has as many samples as a layer has outputs or an image has pixels, these are not a pair of vectors.
    let is_given = |id: LifetimeId| p.roles.of(id) == Role::Inputs || p.flags_of(id) & LINEAR != 0;
    if blocks.iter().any(|b| is_given(b.lifetime)) {
        return None;
    }
    let saving = saving(p, |id, size| if is_square(id) { size / n } else { size });
    let others = held(p, |b| !is_square(b.lifetime)).0.first().map_or(0, |b| b.size);
    if others.saturating_mul(LARGER) > largest {
        return None;
    }
    if bytes < LEAST || bytes.saturating_mul(SHARE) < peak(p) || saving.is_nothing() {
        return None;
    }
    let n = count(n);
    let made_at = match lines(p, &blocks) {
        at if at.is_empty() => ", the first made".to_owned(),
        at => format!(", the first made at {at}"),
    };
    Finding::new("broadcast", Class::Peak, "A loss may compare every prediction with every target", bytes)
        .says(format!(
            "{} of the {} at the peak {} [{n}, {n}]{made_at} right after a tensor of {n} values. A prediction of shape [{n}, 1] minus a target of shape [{n}] gives that.",
            Bytes(bytes),
            Bytes(peak(p)),
            if blocks.len() == 1 { "is a matrix of shape" } else { "are matrices of shape" },
        ))
        .saves("Compared one by one,", saving)
        .bytes_of("matrices", bytes)
        .bytes_of("peak", peak(p))
        .at(place(p, &blocks))
        .remedy("loss_fn(prediction.squeeze(-1), target)")
        .advice("Print both shapes before the loss. If all pairs are meant, as for distances or contrastive losses, compute them in chunks.")
        .check(format!("{}.", saving.falls()))
}

/// Reports tensors [n, n, d] at the peak that come from a tensor [n, d] and are reduced to [n, n]: differences of all pairs.
pub(super) fn all_pairs(p: &RuleInput<'_>) -> Option<Finding> {
    /// Less than 1/n of the peak is not reported.
    const SHARE: u64 = 2;
    /// Most allocations between the tensor and its source, and between the tensor and its result.
    const NEAR: u32 = 6;
    /// With fewer rows, a matrix of all pairs is as small as many other tensors.
    const FEWEST: u64 = 64;
    let lifetimes = &p.tables.lifetimes;
    let size = |id: LifetimeId| p.requested(id);
    let is_of_pass = |id: LifetimeId| matches!(p.roles.of(id), Role::Activations | Role::Temporaries);
    let largest = held(p, |b| is_of_pass(b.lifetime)).0.first().map(|b| size(b.lifetime)).filter(|&size| size >= LEAST / 4)?;
    let rows = lifetimes.initial_count() as u32..lifetimes.len() as u32;
    // torch.func and hooks make a gradient, or a row of a Jacobian, for each of many rows. Such shapes are not pairs.
    let stacks = &p.recording.stacks;
    let is_transform = |f: &FrameId| {
        let parts = ["torch/_functorch/", "torch/autograd/", "torch/utils/hooks.py"];
        stacks.frame(*f).is_some_and(|f| parts.iter().any(|part| stacks.text(f.file).contains(part)))
    };
    let is_written = |&row: &u32| {
        let stack = p.stack_of(LifetimeId(row));
        p.trains()
            && stack.is_some_and(|stack| line_of(stacks, stack).is_some() && !stacks.frames(stack).iter().any(is_transform))
    };
    let first = rows.clone().find(|&row| size(LifetimeId(row)) == largest).filter(is_written)?;
    let follows = |matrix: u64| (first + 1..(first + NEAR).min(rows.end)).any(|row| size(LifetimeId(row)) == matrix);
    let sides = |points: u64| {
        let n = Some(points).filter(|&points| points > 0 && largest.is_multiple_of(points)).map(|points| largest / points)?;
        let is_pair = |width: &u64| points / n / width > 1 && points.is_multiple_of(n * width) && follows(n * n * width);
        (n >= FEWEST && WIDTHS.iter().any(is_pair)).then_some(n)
    };
    let before = (first.saturating_sub(NEAR)..first).rev().map(LifetimeId);
    let n = before.filter(|&id| lifetimes.gone(id) >= lifetimes.born(LifetimeId(first))).find_map(|id| sides(size(id)))?;
    let is_one = |id: LifetimeId| size(id) == largest && is_of_pass(id);
    let (blocks, bytes) = held(p, |b| is_one(b.lifetime));
    let saving = saving(p, |id, block| if is_one(id) { 0 } else { block });
    if bytes < LEAST || bytes.saturating_mul(SHARE) < peak(p) || saving.is_nothing() || broadcast(p).is_some() {
        return None;
    }
    let n = count(n);
    Finding::new("all_pairs", Class::Peak, "Differences of all pairs are made at once", bytes)
        .says(format!(
            "{} of the {} at the peak {} of shape [{n}, {n}, …], most made at {}: each of {n} rows beside each other one, then reduced to [{n}, {n}].",
            Bytes(bytes),
            Bytes(peak(p)),
            if blocks.len() == 1 { "is a tensor" } else { "are tensors" },
            lines(p, &blocks),
        ))
        .saves("Without them", saving)
        .bytes_of("differences", bytes)
        .bytes_of("peak", peak(p))
        .at(place(p, &blocks))
        .remedy("torch.cdist(x, y)  # not (x[:, None] - y[None]).norm(dim=-1)")
        .advice("torch.cdist makes the [n, n] matrix alone; for squared distances and dot products a matrix product does: (x * x).sum(1)[:, None] + (y * y).sum(1) - 2 * x @ y.T. Else compute it in chunks of rows.")
        .check(format!("{}.", saving.falls()))
}
