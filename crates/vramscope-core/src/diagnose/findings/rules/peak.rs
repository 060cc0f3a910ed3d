//! What makes the peak.

use rustc_hash::{FxHashMap, FxHashSet};

use super::at_peak::{LEAST, Layers, held, lines, made_at, of_role, peak, place, probably, saving, step_of};
use super::copies::is_grown;
use super::kept::keeps_unused_graph;
use super::library::checkpointing_of;
use super::shared::{JOINS, LOSS, VAE};
use crate::anatomy::roles::Role;
use crate::anatomy::{Phase, line_of};
use crate::changes::Change;
use crate::diagnose::counterfactual::{Saving, peak_if_freed};
use crate::diagnose::findings::{Class, Finding, RuleInput};
use crate::model::{Format, FrameId, StackId};
use crate::tables::{BlockAt, LifetimeId, NO_EVENT};
use crate::units::{Bytes, GIBIBYTE, MEBIBYTE, capital, count, counted};

/// Reports short-lived blocks of one size at the peak: a single one, or several at once that are each made from the previous one.
pub(super) fn spike(p: &RuleInput<'_>) -> Option<Finding> {
    const CHUNKS: u64 = 4;
    let n = p.device.events.len() as u32;
    let typical = if p.steps.is_empty() { n } else { n / p.steps.len() as u32 };
    let life = |id: LifetimeId| p.tables.lifetimes.get(p.device, id).filter(|l| l.born != NO_EVENT && l.gone != NO_EVENT);
    let is_short = |id: LifetimeId| life(id).is_some_and(|l| (l.gone - l.born) * 10 <= typical);
    let (live, _) = held(p, |_| true);
    let largest = live.first().filter(|b| is_short(b.lifetime))?;
    let peak = peak(p);
    if let Some(finding) = search(p, largest) {
        return Some(finding);
    }
    let blocks: Vec<&BlockAt> = live.iter().copied().filter(|b| b.size == largest.size && is_short(b.lifetime)).collect();
    let bytes = largest.size * blocks.len() as u64;
    if largest.size < 256 * MEBIBYTE || (largest.size * 3 < peak && bytes * 2 < peak) {
        return None;
    }
    let line = |id: LifetimeId| p.stack_of(id).and_then(|stack| line_of(&p.recording.stacks, stack));
    let made_by: FxHashSet<FrameId> = blocks.iter().filter_map(|b| line(b.lifetime)).collect();
    let is_its = |id: LifetimeId| line(id).is_some_and(|line| made_by.contains(&line));
    // A block that outlives the operation is its result, which has to be in one piece.
    let in_chunks = saving(p, |id, size| if is_its(id) && is_short(id) { size / CHUNKS } else { size });
    // Report several blocks, each a small share of the peak, only if smaller ones would lower it.
    if largest.size * 3 < peak && in_chunks.bytes() * 10 < peak {
        return None;
    }
    // A block that is freed right after it is made, without a line of the program, most likely belongs to a library.
    let is_like_one = |id: LifetimeId| line(id).is_none() && life(id).is_some_and(|l| l.gone - l.born <= 2);
    let is_workspace = p.roles.of(largest.lifetime) == Role::Workspaces || (blocks.len() == 1 && is_like_one(largest.lifetime));
    let title = match (is_workspace, blocks.len()) {
        (true, _) => "Scratch memory of one operation holds much of the peak",
        (false, 1) => "One short-lived block holds much of the peak",
        (false, _) => "Short-lived blocks of one size hold much of the peak",
    };
    let lived = blocks.iter().filter_map(|b| life(b.lifetime)).map(|l| u64::from(l.gone - l.born)).max().unwrap_or(0);
    let lived = counted(lived, "event", "events");
    let of_peak = match Bytes(bytes).to_string() == Bytes(peak).to_string() {
        true => format!("All of the {} at the peak", Bytes(peak)),
        false => format!("{} of the {} at the peak", Bytes(bytes), Bytes(peak)),
    };
    let says = match blocks.len() {
        1 => {
            let what = match is_workspace {
                true if p.roles.of(largest.lifetime) == Role::Workspaces => "one workspace",
                true => "probably one workspace",
                false => "one block",
            };
            let at = match line(largest.lifetime) {
                Some(_) => format!("made at {}", made_at(p, largest.lifetime)),
                None => "made without a Python stack".to_owned(),
            };
            format!("{of_peak} is {what}, {at} and live for {lived} only.")
        }
        many => format!(
            "{of_peak} is in {many} blocks of {}, made at {}. None lives longer than {lived}, but the next is made before the last is freed.",
            Bytes(largest.size),
            lines(p, &blocks),
        ),
    };
    let finding = Finding::new(super::SPIKE, Class::Peak, title, bytes)
        .says(says)
        .bytes_of("each block", largest.size)
        .bytes_of("peak active", peak)
        .at(place(p, &blocks));
    // Only the program's own tensors can be split.
    if is_workspace {
        return finding
            .advice("cuDNN or cuBLAS takes it for one operation and gives it back. A smaller batch or tile needs less; with torch.backends.cudnn.benchmark = True other algorithms may be chosen.")
            .check("The workspace is smaller, or gone.");
    }
    if p.flags_of(largest.lifetime) & JOINS != 0 || is_grown(p)(largest.lifetime) {
        return finding
            .advice("It joins tensors into one, and they and the result are there at once. Make the result first and write each part into it, or move each part to the CPU when it is made.")
            .check("The parts are not held beside the result.");
    }
    let check = match in_chunks.is_nothing() {
        true => "The block is smaller.".to_owned(),
        false => format!("{}.", in_chunks.falls()),
    };
    let advice = match blocks.len() {
        1 => "Compute it in chunks; an elementwise operation can also work in place.",
        _ => {
            "Compute in chunks. Where the operation is elementwise, let it work in place (relu_, mul_, out=): the next then needs no block of its own."
        }
    };
    finding.saves(&format!("In {CHUNKS} chunks"), in_chunks).advice(advice).check(&check)
}

/// Reports scratch memory with which cuDNN tries algorithms, if the peak is lower without these trials.
fn search(p: &RuleInput<'_>, largest: &BlockAt) -> Option<Finding> {
    let lifetimes = &p.tables.lifetimes;
    let trials: FxHashSet<u32> = p.device.events.granted_trials().into_iter().collect();
    let is_trial = |id: LifetimeId| trials.contains(&lifetimes.born(id));
    if !is_trial(largest.lifetime) || largest.size < 256 * MEBIBYTE {
        return None;
    }
    let without = saving(p, |id, size| if is_trial(id) { 0 } else { size });
    if without.bytes().saturating_mul(10) < peak(p) {
        return None;
    }
    let says = format!(
        "{} of the {} at the peak is scratch memory with which cuDNN probably tried one algorithm for a convolution. It was freed at once.",
        Bytes(largest.size),
        Bytes(peak(p)),
    );
    let advice = "That is what torch.backends.cudnn.benchmark = True does for each new shape. Without it cuDNN chooses by rules, and some \
                  convolutions may be slower.";
    let finding = Finding::new(super::SPIKE, Class::Peak, "cuDNN's search for algorithms makes the peak", largest.size)
        .says(says)
        .bytes_of("scratch memory", largest.size)
        .bytes_of("peak active", peak(p))
        .at(place(p, &[largest]))
        .remedy("torch.backends.cudnn.benchmark = False");
    let check = format!("{}.", without.falls());
    finding.saves("Without the trials", without).advice(advice).check(check)
}

/// Reports the decoder of an image model that processes the whole image at once.
pub(super) fn image_decoder(p: &RuleInput<'_>) -> Option<Finding> {
    let (blocks, bytes) = held(p, |b| p.flags_of(b.lifetime) & VAE != 0);
    if blocks.first().is_none_or(|b| b.size < GIBIBYTE) {
        return None;
    }
    Finding::new("image_decoder", Class::Peak, "Decoding the image makes the peak", bytes)
        .says(format!(
            "{} of the {} at the peak are held by the decoder that turns latents into the image, the largest block {}.",
            Bytes(bytes),
            Bytes(peak(p)),
            Bytes(blocks[0].size)
        ))
        .bytes_of("held by the decoder", bytes)
        .bytes_of("largest block", blocks[0].size)
        .bytes_of("peak", peak(p))
        .at(place(p, &blocks))
        .remedy("pipe.enable_vae_tiling()")
        .advice("Decode in tiles, and one image at a time: enable_vae_slicing(). In ComfyUI use VAE Decode (Tiled).")
        .check("The peak falls to that of the denoising steps.")
}

/// A loss makes its other blocks within this many events of its first.
const OF_A_LOSS: u32 = 12;

/// A line that computed a loss more than twice while all these activations stayed, each time after others were made; and the
/// number of times. A model with several outputs makes most of them before the first loss.
fn summed_losses(p: &RuleInput<'_>, blocks: &[&BlockAt]) -> Option<(StackId, u64)> {
    let mut sorted: Vec<&BlockAt> =
        blocks.iter().copied().filter(|b| step_of(p, b.lifetime) == p.steps.of(p.peak_event)).collect();
    sorted.sort_unstable_by_key(|b| b.lifetime);
    let (mut times, mut was_loss): (FxHashMap<StackId, u64>, bool) = (FxHashMap::default(), false);
    let (mut after_first, mut all) = (0u64, 0u64);
    for b in sorted {
        let is_loss = p.flags_of(b.lifetime) & LOSS != 0;
        if let Some(stack) = p.stack_of(b.lifetime).filter(|_| is_loss && !was_loss) {
            *times.entry(stack).or_default() += 1;
        }
        all += if is_loss { 0 } else { b.size };
        after_first += if is_loss || times.is_empty() { 0 } else { b.size };
        was_loss = is_loss;
    }
    let most = times.into_iter().max_by_key(|&(stack, times)| (times, stack));
    most.filter(|&(_, times)| times > 2 && after_first.saturating_mul(2) >= all)
}

/// The peak if a backward pass followed each loss that this line computes, so that each graph is freed before the next is made.
fn backward_each(p: &RuleInput<'_>, loss: StackId) -> Saving {
    let lifetimes = &p.tables.lifetimes;
    let ids = || lifetimes.recorded_ids();
    let losses: Vec<u32> = ids().filter(|&id| p.stack_of(id) == Some(loss)).map(|id| lifetimes.born(id)).collect();
    let is_kept = |id: LifetimeId| p.roles.of(id) == Role::Activations;
    let kept: Vec<u32> = ids().filter(|&id| is_kept(id)).map(|id| lifetimes.born(id)).collect();
    let next = |events: &[u32], after: u32| events.get(events.partition_point(|&event| event < after)).copied();
    let gone = |id: LifetimeId| {
        let loss = next(&losses, lifetimes.born(id)).filter(|_| is_kept(id));
        // A loss is a few blocks.
        let others = loss.and_then(|loss| next(&kept, loss.saturating_add(OF_A_LOSS)));
        others.map_or(lifetimes.gone(id), |next| lifetimes.gone(id).min(next))
    };
    let after = peak_if_freed(p.device, p.tables, |_, size| size, gone);
    // The gradients then exist from the first pass on.
    let step = p.steps.of(p.peak_event);
    let is_made = |&id: &LifetimeId| p.roles.of(id) == Role::Gradients && p.steps.of(lifetimes.born(id)) == step;
    let gradients = ids().filter(is_made).fold(0u64, |sum, id| sum.saturating_add(lifetimes.block_size(id)));
    Saving { before: peak(p), after: after.saturating_add(gradients) }
}

/// Reports activations kept for the backward pass: at least a third of the peak, if checkpointing would lower the peak by a fifth;
/// at least half, if memory is short; or at least 60 % (75 % without stacks), if the saving is unknown.
pub(super) fn activations(p: &RuleInput<'_>) -> Option<Finding> {
    let lifetimes = &p.tables.lifetimes;
    let (blocks, bytes) = of_role(p, Role::Activations);
    let peak = peak(p);
    // An unused graph has its own rule: it should not be made at all, instead of being checkpointed.
    if bytes.saturating_mul(3) < peak || bytes < LEAST || keeps_unused_graph(p) {
        return None;
    }
    let is_half = bytes.saturating_mul(2) >= peak;
    // Operators that a trace names without Python lines are not layers.
    let has_lines = blocks.iter().any(|b| line_of(&p.recording.stacks, lifetimes.stack(p.device, b.lifetime)).is_some());
    // The backward pass recomputes one layer at a time. The input of each layer stays: one block of the most frequent size.
    let of_layers = |layers: &Layers| {
        let input = layers.input(p, &blocks);
        let saving = saving(p, |id, size| match p.roles.of(id) {
            Role::Activations if p.stack_of(id) != input => size / layers.runs(lifetimes.stack(p.device, id)),
            _ => size,
        });
        (saving, layers.checkpointed())
    };
    let of_module = p.with_change(Change::Checkpoint(None)).and_then(|(saving, answer)| {
        let (line, times) = answer.place?;
        Some((saving, format!("With the {} called at {line} checkpointed", counted(times as u64, "layer", "layers"))))
    });
    // Layers that are already checkpointed keep only their inputs.
    let again = lifetimes.ids().filter(|&id| p.roles.is_recomputed(id));
    let is_checkpointed = again.map(|id| p.requested(id)).sum::<u64>() >= bytes;
    // A trace's stacks number every module, so its layers do not look alike.
    let is_trace = p.recording.source.format == Format::KinetoTrace;
    let by_layers = || Layers::of(p, &blocks).filter(|_| !is_trace && !is_checkpointed).as_ref().map(of_layers);
    let change = of_module.or_else(by_layers).filter(|_| has_lines);
    // Taking a third more time for less is not good advice.
    let is_little = change.as_ref().is_some_and(|c| c.0.bytes().saturating_mul(20) < peak);
    let change = change.filter(|_| !is_little);
    let losses = summed_losses(p, &blocks);
    let change = match losses {
        Some((loss, _)) => Some((backward_each(p, loss), "If a backward pass follows each,".to_owned())),
        None => change,
    };
    let saving = change.as_ref().map(|c| c.0);
    let from = lines(p, &blocks);
    let of_lines: u64 = blocks.iter().filter(|b| p.stack_of(b.lifetime).is_some()).map(|b| b.size).sum();
    // A guess without a figure helps only after a failure.
    if saving.is_none() && p.ooms.is_empty() && !probably(p, &blocks).is_empty() {
        return None;
    }
    // If layers differ or no stacks were recorded, it is unknown what would stay; a large share is still worth mentioning.
    let is_most = match has_lines {
        true => (is_trace || p.trains()) && bytes.saturating_mul(5) >= peak.saturating_mul(3),
        false => bytes.saturating_mul(4) >= peak.saturating_mul(3),
    };
    let (change, saving) =
        if is_most { (change.filter(|c| !c.0.is_nothing()), saving.filter(|s| !s.is_nothing())) } else { (change, saving) };
    let is_much = is_most || saving.is_some_and(|saving| saving.bytes().saturating_mul(5) >= peak);
    if !is_much && !(is_half && p.is_short()) {
        return None;
    }
    let origin = match () {
        () if from.is_empty() => "; their call stacks were not recorded".to_owned(),
        () if of_lines.saturating_mul(2) < bytes => {
            format!("; {} have no call stack, the others are from {from}", Bytes(bytes - of_lines))
        }
        () => format!(", most of them from {from}"),
    };
    let title = match (losses, is_half) {
        (Some((_, losses)), _) => &format!("{} losses are summed before one backward pass", count(losses)),
        (None, true) => "Activations make the peak",
        (None, false) => "Activations hold much of the peak",
    };
    let finding = Finding::new("activations", Class::Peak, title, bytes).says(format!(
        "{} of the {} at the peak are {}activations kept for the backward pass{origin}.{}",
        Bytes(bytes),
        Bytes(peak),
        probably(p, &blocks),
        losses.map_or(String::new(), |(_, losses)| format!(" {} losses had been computed by then.", count(losses))),
    ));
    // A single block would be made again where it is needed.
    let single = blocks.first().filter(|b| b.size.saturating_mul(2) > bytes && saving.is_none());
    let helps = single.is_none() && !is_little && saving.map_or(!is_checkpointed, |s| !s.is_nothing());
    let check = match saving {
        Some(saving) if losses.is_some() => format!("{}.", saving.falls()),
        Some(saving) if helps => format!("{}; a step takes about a third longer.", saving.falls()),
        _ if !helps => "The peak falls with the batch.".to_owned(),
        _ => "The peak falls; a step takes about a third longer.".to_owned(),
    };
    let finding = match change {
        Some((saving, with)) => finding.saves(&with, saving),
        None => finding,
    };
    let finding = match helps {
        _ if losses.is_some() => finding.remedy("loss.backward()  # for each loss, in place of their sum").advice(
            "Gradients add up, and each graph goes with its backward pass. Detach what goes on to the next pass, such as an RNN's state: h = h.detach().",
        ),
        true => {
            let (remedy, advice) = checkpointing_of(p, &blocks);
            finding.remedy(remedy).advice(advice)
        }
        false => finding.advice(match is_checkpointed {
            _ if single.is_some() => "One block is most of it, so checkpointing does not help. If it is the logits, use a fused linear cross entropy (Liger, Cut Cross Entropy), or compute them and their loss in chunks. Else use a smaller micro-batch with accumulation.",
            true => "The layers are checkpointed already. Use a smaller micro-batch with accumulation, or smaller inputs.",
            false => "Use a smaller micro-batch with accumulation, or smaller inputs.",
        }),
    };
    finding
        .bytes_of("activations", bytes)
        .shows("of the peak", format!("{:.0} %", bytes as f64 / peak.max(1) as f64 * 100.0))
        .bytes_of("peak", peak)
        .at(place(p, &blocks))
        .check(&check)
}

/// Reports that activations and temporaries are most of the peak of a training program. `diagnose` drops the finding if another
/// rule explains the peak, which is more informative.
pub(super) fn batch(p: &RuleInput<'_>) -> Option<Finding> {
    let mut parts = [Role::Activations, Role::Temporaries].map(|role| (role, of_role(p, role))).to_vec();
    let bytes = parts.iter().map(|(_, (_, bytes))| bytes).sum::<u64>();
    let peak = peak(p);
    let is_in_pass = match p.roles.anatomy.phases.at(p.peak_event) {
        Some(phase) => matches!(phase, Phase::Forward | Phase::Backward) && p.trains(),
        // Without stacks, only optimizer steps show training. If the optimizer makes the peak, activations have little room.
        None => p.steps.source.is_optimizer() && parts[0].1.1.saturating_mul(2) >= bytes,
    };
    if bytes < LEAST || bytes.saturating_mul(5) < peak.saturating_mul(3) || !is_in_pass {
        return None;
    }
    parts.retain(|(_, (_, part))| part.saturating_mul(20) >= bytes);
    parts.sort_by_key(|(_, (_, part))| std::cmp::Reverse(*part));
    let names: Vec<&str> = parts.iter().map(|(role, _)| role.text()).collect();
    let told = |(role, (blocks, bytes)): &(Role, (Vec<&BlockAt>, u64))| {
        format!("{} are {}{}", Bytes(*bytes), probably(p, blocks), role.text())
    };
    let told: Vec<String> = parts.iter().map(told).collect();
    let mut held: Vec<&BlockAt> = parts.iter().flat_map(|(_, (blocks, _))| blocks.iter().copied()).collect();
    held.sort_by_key(|b| (std::cmp::Reverse(b.size), b.lifetime));
    let from = match lines(p, &held) {
        from if from.is_empty() => "their call stacks were not recorded".to_owned(),
        from => format!("those with a call stack are mostly from {from}"),
    };
    Finding::new(super::BATCH, Class::Peak, &format!("{} make the peak", capital(&names.join(" and "))), bytes)
        .says(format!("Of the {} at the peak {}; {from}.", Bytes(peak), told.join(" and ")))
        .bytes_of("activations and temporaries", bytes)
        .bytes_of("peak", peak)
        .at(place(p, &held))
        .advice("They grow with the batch: use a smaller micro-batch with accumulation, or smaller inputs.")
        .check("The peak falls with the batch.")
}
