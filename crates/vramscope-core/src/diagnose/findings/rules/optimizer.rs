//! Memory of the optimizer, and the gradients that it reads.

use super::at_peak::{LEAST, held, of_role, peak, place, probably, saving};
use super::library::{in_eight_bits, of_own_code, of_pytorch, optimizer, replaces_its_state};
use super::rebuilt::is_left_over;
use super::shared::{FOREACH, REDUCER};
use crate::anatomy::Phase;
use crate::anatomy::roles::Role;
use crate::changes::Change;
use crate::diagnose::counterfactual::{Saving, peak_if_freed, peak_with};
use crate::diagnose::findings::{Class, Finding, Place, RuleInput};
use crate::model::Format;
use crate::tables::{BlockAt, LifetimeId, NO_EVENT};
use crate::units::{Bytes, MEBIBYTE, counted};

/// Reports that the recording ends with the first optimizer step, so no recorded pass has optimizer state and activations.
pub(super) fn first_step(p: &RuleInput<'_>) -> Option<Finding> {
    let lifetimes = &p.tables.lifetimes;
    let is_state = |id: LifetimeId| p.roles.of(id) == Role::OptimizerState;
    let states = || lifetimes.ids().filter(|&id| is_state(id));
    let bytes = states().fold(0u64, |sum, id| sum.saturating_add(lifetimes.block_size(id)));
    // Older state exists in every pass.
    let made = states().map(|id| lifetimes.born(id)).fold(None, |first: Option<u32>, born| match born {
        NO_EVENT => Some(0),
        _ => Some(first.map_or(born, |first| first.min(born))),
    });
    let made = made.filter(|&made| made > 0 && p.ooms.is_empty())?;
    let runs = p.runs();
    if !p.trains() || runs.iter().any(|run| run.phase == Phase::Forward && run.events.1 > made) {
        return None;
    }
    // The same pass again, with the state present from its start.
    let before =
        peak_if_freed(p.device, p.tables, |id, size| if is_state(id) { 0 } else { size }, |id| lifetimes.gone(id).min(made));
    let next = before.saturating_add(bytes);
    let more = next.saturating_sub(peak(p));
    if more < LEAST || more.saturating_mul(10) < peak(p) {
        return None;
    }
    let ids: Vec<LifetimeId> = states().take(1000).collect();
    let stack = ids.first().and_then(|&id| p.stack_of(id));
    let place = Place { event: Some(made), stack, lifetimes: ids, range: None };
    Finding::new(super::FIRST_STEP, Class::Hygiene, "Every later step needs more than this first one", more)
        .says(format!(
            "The recording ends with the first optimizer step, which makes {} of state. From then on the state is there through forward and backward: a later step needs about {}, {} more than the peak recorded here.",
            Bytes(bytes),
            Bytes(next),
            Bytes(more)
        ))
        .bytes_of("optimizer state", bytes)
        .bytes_of("peak of a later step", next)
        .bytes_of("peak", peak(p))
        .at(place)
        .advice("Record at least two steps: the second shows what the run needs.")
        .check("The recording has a forward pass after the first optimizer step.")
}

/// Reports that all gradients are freed between the backward pass and the optimizer step, which then changes nothing.
pub(super) fn zero_before_step(p: &RuleInput<'_>) -> Option<Finding> {
    let lifetimes = &p.tables.lifetimes;
    let ids = || lifetimes.ids();
    let marks = &p.steps.optimizer;
    // Optimizer state can only come from gradients. A profiler trace says too little about which blocks are gradients.
    let is_told = p.roles.anatomy.phases.has_stacks() && p.recording.source.format != Format::KinetoTrace;
    if marks.is_empty() || !is_told || ids().any(|id| p.roles.of(id) == Role::OptimizerState) {
        return None;
    }
    let mut gradients: Vec<(u32, u32, u64)> = ids()
        .filter(|&id| p.roles.of(id) == Role::Gradients)
        .map(|id| (lifetimes.born(id), lifetimes.gone(id), lifetimes.block_size(id)))
        .collect();
    gradients.sort_unstable();
    // DDP and Megatron copy gradients to their own buffers during the backward pass, and the step reads those.
    let is_bucket = |id: LifetimeId| p.roles.of(id) == Role::Buckets && lifetimes.block_size(id) >= MEBIBYTE;
    if ids().any(is_bucket) {
        return None;
    }
    let (mut before, mut bytes, mut first) = (0, 0u64, None);
    for &(from, to) in marks {
        // Gradients of older steps would be live too.
        let is_live = gradients.iter().take_while(|g| g.0 < to || g.0 == NO_EVENT).any(|g| g.1 > from);
        let of_step = gradients.partition_point(|g| g.0 < before)..gradients.partition_point(|g| g.0 < from);
        let of_step = &gradients[of_step];
        let last = of_step.last().map_or(0, |g| g.0);
        let made = of_step.iter().fold(0u64, |sum, g| sum.saturating_add(g.2));
        // zero_grad() frees all gradients after the last is made. One freed earlier was used by a hook, or a step within backward.
        let together = of_step.iter().filter(|g| g.1 > last).fold(0u64, |sum, g| sum.saturating_add(g.2));
        if is_live || made < MEBIBYTE || together < made / 10 * 9 {
            return None;
        }
        (before, bytes, first) = (to, bytes.max(made), first.or(Some(from)));
    }
    let steps = marks.len() as u64;
    Finding::new(super::ZERO_BEFORE_STEP, Class::Hygiene, "The optimizer steps without gradients", bytes)
        .says(format!(
            "The backward pass makes {} of gradients, and all of them are freed before optimizer.step() begins, in {}: the step changes no weight.",
            Bytes(bytes),
            match steps {
                1 => "the only step".to_owned(),
                _ => format!("each of the {}", counted(steps, "step", "steps")),
            }
        ))
        .bytes_of("gradients", bytes)
        .at(Place { event: first, ..Place::default() })
        .remedy("optimizer.zero_grad(); loss.backward(); optimizer.step()  # in this order")
        .advice("Call zero_grad() before backward() or after step(), not between them.")
        .check("Gradients are live when optimizer.step() begins.")
}

/// Reports temporaries as large as the weights inside the optimizer's step, even if they are not at the recording's peak.
pub(super) fn foreach_optimizer(p: &RuleInput<'_>) -> Option<Finding> {
    let lifetimes = &p.tables.lifetimes;
    // State that stays is not part of the spike.
    let steps = p.steps.len() as u32;
    let n = p.device.events.len() as u32;
    let step = n.checked_div(steps).unwrap_or(n / 4);
    let is_temporary = |id: LifetimeId| {
        let (born, gone) = (lifetimes.born(id), lifetimes.gone(id));
        p.flags_of(id) & FOREACH != 0 && born != NO_EVENT && gone != NO_EVENT && gone - born < step
    };
    let bytes = peak_with(p.device, p.tables, |id, size| if is_temporary(id) { size } else { 0 });
    let peak = peak(p);
    if bytes < LEAST || bytes.saturating_mul(20) < peak {
        return None;
    }
    let saving = match p.with_change(Change::Fused) {
        Some((saving, _)) => saving,
        None => saving(p, |id, size| if is_temporary(id) { 0 } else { size }),
    };
    // If the peak is at another moment, report only large temporaries.
    if saving.is_nothing() && bytes < 256 * MEBIBYTE {
        return None;
    }
    let (blocks, _) = held(p, |b| is_temporary(b.lifetime));
    let any = || lifetimes.ids().filter(|&id| is_temporary(id)).max_by_key(|&id| lifetimes.block_size(id));
    let place = match (blocks.is_empty(), any()) {
        (true, Some(id)) => Place { event: Some(lifetimes.born(id)), stack: p.stack_of(id), lifetimes: vec![id], range: None },
        _ => place(p, &blocks),
    };
    let (class, title) = match saving.is_nothing() {
        true => (Class::Hygiene, "The optimizer's step needs room for temporaries"),
        false => (Class::Peak, "The optimizer's step makes the peak"),
    };
    // Only these optimizers have a fused step on a GPU; every PyTorch optimizer can step one parameter after the other.
    let optimizer = of_pytorch(p, lifetimes.ids().filter(|&id| is_temporary(id)));
    let is_fused = ["Adam", "AdamW", "SGD"].contains(&optimizer);
    let way = if is_fused { "fused=True" } else { "foreach=False" };
    let finding = Finding::new("foreach_optimizer", class, title, bytes);
    let says = format!("optimizer.step() makes up to {} of temporaries at once, for all weights together.", Bytes(bytes));
    let finding = match blocks.is_empty() && saving.is_nothing() {
        true => Finding {
            saving: Some(saving),
            ..finding.says(format!("{says} {way} saves them there; the peak of {} is at another moment and stays.", Bytes(peak)))
        },
        false => finding.says(says).saves(&format!("With {way}"), saving),
    };
    finding
        .bytes_of("temporaries", bytes)
        .bytes_of("peak", peak)
        .at(place)
        .remedy(format!("torch.optim.{optimizer}(..., {way})"))
        .advice(match is_fused {
            true => {
                "Add it to the call that you have. fused=True updates in one kernel, foreach=False one parameter after the other: neither needs the temporaries."
            }
            false => "Add it to the call that you have. foreach=False updates one parameter after the other, without temporaries of all of them at once.",
        })
        .check("The spike inside each optimizer step is gone.")
}

/// Reports DDP's buckets that exist besides the gradients copied into them.
pub(super) fn gradient_buckets(p: &RuleInput<'_>) -> Option<Finding> {
    let is_bucket = |id: LifetimeId| p.flags_of(id) & REDUCER != 0;
    let (blocks, bytes) = held(p, |b| is_bucket(b.lifetime));
    let (_, gradients) = of_role(p, Role::Gradients);
    let peak = peak(p);
    if bytes < 256 * MEBIBYTE || bytes.saturating_mul(20) < peak || gradients.saturating_mul(2) < bytes {
        return None;
    }
    // The buckets stay and hold the gradients. In the second forward pass DDP makes new buckets; views keep the first ones alive
    // until the backward pass after the next begins.
    let lifetimes = &p.tables.lifetimes;
    let backward = || p.runs().iter().filter(|run| run.phase == Phase::Backward).map(|run| run.events.0);
    let is_replaced = |id: LifetimeId| {
        let (born, gone) = (lifetimes.born(id), lifetimes.gone(id));
        is_bucket(id) && gone != NO_EVENT && backward().any(|begin| begin < gone && (begin > born || born == NO_EVENT))
    };
    let gone = |id: LifetimeId| match lifetimes.gone(id) {
        gone if is_replaced(id) => backward().filter(|&begin| begin > gone).nth(1).unwrap_or(NO_EVENT),
        gone => gone,
    };
    let is_gradient = |id: LifetimeId| p.roles.of(id) == Role::Gradients;
    let after = peak_if_freed(p.device, p.tables, |id, size| if is_gradient(id) { 0 } else { size }, gone);
    let saving = Saving { before: peak, after: after.min(peak) };
    let says = format!(
        "{} of DDP hold {}, beside {} of gradients that are copied into them.",
        counted(blocks.len() as u64, "bucket", "buckets"),
        Bytes(bytes),
        Bytes(gradients)
    );
    let finding = Finding::new("gradient_buckets", Class::Peak, "Gradients are held twice", bytes);
    let finding = match saving.is_nothing() && lifetimes.ids().any(is_replaced) {
        true => Finding {
            saving: Some(saving),
            ..finding.says(format!(
                "{says} With gradient_as_bucket_view=True later steps need less. The peak stays at {}: DDP makes new buckets in the second step \
                 and holds the first ones until the third.",
                Bytes(peak)
            ))
        },
        false => finding.says(says).saves("With gradient_as_bucket_view=True", saving),
    };
    finding
        .bytes_of("in buckets", bytes)
        .bytes_of("in gradients", gradients)
        .bytes_of("peak", peak)
        .at(place(p, &blocks))
        .remedy("DistributedDataParallel(model, gradient_as_bucket_view=True)")
        .advice("Gradients are then views of the buckets. Call zero_grad(set_to_none=True), the default.")
        .check("From the fourth step on the peak is lower by the size of the gradients.")
}

/// Reports optimizer state of an eighth of the peak if 8-bit state lowers the peak by a tenth, or of a quarter if memory is short.
pub(super) fn optimizer_state(p: &RuleInput<'_>) -> Option<Finding> {
    let is_left_over = is_left_over(p);
    let (blocks, bytes) = held(p, |b| p.roles.of(b.lifetime) == Role::OptimizerState && !is_left_over(b.lifetime));
    let peak = peak(p);
    if bytes.saturating_mul(8) < peak || bytes < LEAST {
        return None;
    }
    let optimizer = optimizer(p, blocks.iter().map(|b| b.lifetime));
    match optimizer {
        // No optimizer with 8-bit state accepts sparse gradients.
        Some("SparseAdam") => return None,
        Some("LBFGS") => return history_of_lbfgs(p, &blocks, bytes),
        _ => {}
    }
    let (mut saving, answer) = p.with_change(Change::EightBit)?;
    // State that another finding advises to free keeps its size here.
    let left_over = of_role(p, Role::OptimizerState).1 - bytes;
    let in_8_bits = |state: u64| state / (64 * answer.bytes_of_state.max(1)) * 65;
    saving.after = saving.after.saturating_add(left_over.saturating_sub(in_8_bits(left_over))).min(saving.before);
    let is_large = bytes.saturating_mul(4) >= peak;
    if saving.bytes().saturating_mul(10) < peak && !(is_large && p.is_short()) {
        return None;
    }
    let (of_weights, weights) = of_role(p, Role::Weights);
    // Copies of half-precision weights stay fp32.
    let masters = held(p, |b| p.roles.is_master_copy(b.lifetime)).1;
    let title = if is_large { "Optimizer state takes a large share" } else { "Optimizer state could be smaller" };
    // More than the state itself is saved: also the temporaries of a step on all weights.
    let with = match saving.bytes() > bytes.saturating_sub(in_8_bits(bytes)).saturating_add(peak / 50) {
        true => "With 8-bit state, without the step's temporaries,",
        false if answer.bytes_of_state == 2 => "With 8-bit state instead of half precision",
        false => "With 8-bit state instead of fp32",
    };
    let in_8_bits_saves = bytes.saturating_sub(in_8_bits(bytes));
    let part = if answer.bytes_of_state == 2 { "half" } else { "a quarter" };
    Finding::new("optimizer_state", Class::Peak, title, bytes)
        .says(format!(
            "{} of the {} at the peak is {}optimizer state{}.",
            Bytes(bytes),
            Bytes(peak),
            probably(p, &blocks),
            match weights {
                0 => String::new(),
                _ => format!(", beside {}{} of weights", probably(p, &of_weights), Bytes(weights)),
            }
        ))
        .saves(with, saving)
        .bytes_of("optimizer state", bytes)
        .bytes_of("weights", weights)
        .bytes_of("peak", peak)
        .at(place(p, &blocks))
        .advice(match of_own_code(p, &blocks) {
            Some(line) => format!(
                "The program's own code keeps it ({line}): keep it in bf16 or 8 bits there, or make the optimizer one of bitsandbytes'{}.{}",
                if saving.bytes() > in_8_bits_saves { ", whose step makes no temporaries; this saving counts them" } else { "" },
                if replaces_its_state(p) { " Each step makes it anew beside the old one; in place (mul_, add_) it needs no second copy." } else { "" }
            ),
            None => format!(
                "{}; ZeRO-1 or FSDP divide it by the number of GPUs. fused=True makes no temporaries, but the state stays as it is.",
                in_eight_bits(optimizer, part)
            ),
        })
        .check(format!("Optimizer state falls to about {}.", Bytes(masters + in_8_bits(bytes.saturating_sub(masters)))))
}

/// LBFGS keeps gradients and directions of its last iterations, for all weights.
fn history_of_lbfgs(p: &RuleInput<'_>, blocks: &[&BlockAt], bytes: u64) -> Option<Finding> {
    let (_, weights) = of_role(p, Role::Weights);
    Finding::new("optimizer_state", Class::Peak, "LBFGS keeps its history", bytes)
        .says(format!(
            "{} of the {} at the peak is the state of LBFGS: two tensors as large as all weights ({}) for each of the last history_size iterations.",
            Bytes(bytes),
            Bytes(peak(p)),
            Bytes(weights)
        ))
        .bytes_of("optimizer state", bytes)
        .bytes_of("weights", weights)
        .bytes_of("peak", peak(p))
        .at(place(p, blocks))
        .remedy("torch.optim.LBFGS(model.parameters(), history_size=5)")
        .advice("history_size is 100 unless told. Ten or fewer are often enough.")
        .check("Optimizer state falls in proportion to history_size.")
}

/// Reports gradients that stay until the next backward pass although nothing reads them any more.
pub(super) fn gradients_kept(p: &RuleInput<'_>) -> Option<Finding> {
    let peak = peak(p);
    // Gradients of this step are made after its forward pass, and the optimizer reads them.
    let runs = p.runs();
    let forward = runs.iter().rfind(|run| run.phase == Phase::Forward && run.events.0 <= p.peak_event).map(|run| run.events.0);
    // A micro-batch adds to the gradients of the previous one; they are needed until the optimizer steps.
    let of_runs = runs.iter().filter(|run| run.phase == Phase::Optimizer).map(|run| run.events.1);
    let of_marks = p.steps.optimizer.iter().map(|&(_, end)| end);
    let stepped = forward.and_then(|forward| of_runs.chain(of_marks).filter(|&end| end <= forward).max());
    let is_older = |id: LifetimeId| {
        let is_initial = id.0 < p.tables.lifetimes.initial_count() as u32;
        (is_initial && forward.is_some()) || stepped.is_some_and(|stepped| p.tables.lifetimes.born(id) < stepped)
    };
    let (blocks, bytes) = held(p, |b| p.roles.of(b.lifetime) == Role::Gradients && is_older(b.lifetime));
    if bytes < LEAST || p.steps.is_inferred() || p.roles.anatomy.phases.at(p.peak_event) == Some(Phase::Optimizer) {
        return None;
    }
    let (saving, _) = p.with_change(Change::SetToNone)?;
    let is_left_over = is_left_over(p);
    let of_models = if blocks.iter().any(|b| is_left_over(b.lifetime)) { " and of earlier models" } else { "" };
    // The remedy costs nothing, so a smaller saving than elsewhere is worth reporting.
    if saving.bytes().saturating_mul(20) < peak {
        return None;
    }
    Finding::new("gradients_kept", Class::Peak, "Gradients stay through the forward pass", bytes)
        .says(format!(
            "{} of the {} at the peak is {}gradients of the step before{of_models}.",
            Bytes(bytes),
            Bytes(peak),
            probably(p, &blocks)
        ))
        .saves("If they are freed right after optimizer.step(),", saving)
        .bytes_of("gradients", bytes)
        .bytes_of("peak", peak)
        .at(place(p, &blocks))
        .remedy("optimizer.step(); optimizer.zero_grad(set_to_none=True)")
        .advice("The backward pass makes them again. Nothing reads them in between, unless the program clips or logs them there.")
        .check("Gradients are gone at the end of each step.")
}
