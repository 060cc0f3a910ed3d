//! Results that are kept needlessly, or made and never read.

use rustc_hash::{FxHashMap, FxHashSet};

use super::at_peak::{LEAST, held, made_at, peak, place, saving};
use super::kept::much;
use super::shared::LOSS;
use crate::anatomy::Phase;
use crate::anatomy::roles::Role;
use crate::diagnose::counterfactual::{Saving, peak_if_freed};
use crate::diagnose::findings::{Class, Finding, RuleInput};
use crate::model::{FrameId, StackId};
use crate::tables::{BlockAt, LifetimeId, NO_EVENT};
use crate::units::{Bytes, count, counted};

/// True for a frame of this PyTorch function.
fn is_frame(p: &RuleInput<'_>, frame: FrameId, file: &str, name: &str) -> bool {
    let stacks = &p.recording.stacks;
    stacks.frame(frame).is_some_and(|f| stacks.text(f.name) == name && stacks.text(f.file).ends_with(file))
}

/// Reports results of finished passes, such as a list of predictions: blocks of one line and size, each from another pass.
pub(super) fn kept_results(p: &RuleInput<'_>) -> Option<Finding> {
    /// Fewer results may be kept for a comparison.
    const FEWEST: usize = 4;
    /// Fewer allocations than this between two results are not a pass of a model.
    const FEWEST_OF_PASS: usize = 4;
    // `torch.autograd.grad` is used for higher derivatives: the outer pass still needs what an inner pass leaves.
    let derives = |frame: u32| is_frame(p, FrameId(frame), "torch/autograd/__init__.py", "grad");
    if p.steps.is_inferred() || (0..p.recording.stacks.frame_count() as u32).any(derives) {
        return None;
    }
    let trains = p.trains();
    // Without training, the layers of one pass look like passes, so only lines outside modules count, such as the program's own
    // loop. The result of a checkpointed layer is kept for the backward pass.
    let is_checkpointed = |stack: StackId| {
        let frames = p.recording.stacks.frames(stack);
        frames.iter().any(|&f| is_frame(p, f, "torch/utils/checkpoint.py", "checkpoint"))
    };
    let may_be = |stack: StackId| (trains || !p.roles.anatomy.phases.is_in_module(stack)) && !is_checkpointed(stack);
    let lifetimes = &p.tables.lifetimes;
    let runs = p.runs();
    let backward: Vec<u32> = runs.iter().filter(|run| run.phase == Phase::Backward).map(|run| run.events.0).collect();
    let mut of_line: FxHashMap<(StackId, u64), Vec<LifetimeId>> = FxHashMap::default();
    for b in held(p, |b| matches!(p.roles.of(b.lifetime), Role::Temporaries | Role::Activations)).0 {
        let is_of_step = p.steps.of(lifetimes.born(b.lifetime)) == p.steps.of(p.peak_event);
        if let Some(stack) =
            p.stack_of(b.lifetime).filter(|&stack| is_of_step && lifetimes.born(b.lifetime) != NO_EVENT && may_be(stack))
        {
            of_line.entry((stack, b.requested)).or_default().push(b.lifetime);
        }
    }
    // Without a graph, nearly everything that a pass makes is freed when the next pass ends.
    let keeps_nothing = |pair: &[LifetimeId]| {
        let made = || (pair[0].0 + 1..pair[1].0).map(LifetimeId);
        let bytes = |is_live: bool| {
            let its = made().filter(|&id| !is_live || lifetimes.gone(id) > lifetimes.born(pair[1]));
            its.fold(0u64, |sum, id| sum.saturating_add(p.requested(id)))
        };
        made().count() >= FEWEST_OF_PASS && bytes(true).saturating_mul(10) <= bytes(false)
    };
    of_line.retain(|(_, size), results| {
        results.sort_unstable();
        let births: Vec<u32> = results.iter().map(|&id| lifetimes.born(id)).collect();
        let is_over =
            |pair: &[u32]| backward.partition_point(|&at| at <= pair[0]) < backward.partition_point(|&at| at <= pair[1]);
        let most = (births.len().saturating_sub(1) * 3).div_ceil(4);
        let is_much = size.saturating_mul(results.len() as u64) >= LEAST;
        is_much
            && (results.len() >= FEWEST && births.windows(2).filter(|pair| is_over(pair)).count() >= most
                || results.len() >= FEWEST * 2 && results.windows(2).filter(|pair| keeps_nothing(pair)).count() >= most)
    });
    // If not collected, each would be freed when the next of its line is made. The newest belongs to the current pass.
    let mut last: FxHashMap<(StackId, u64), LifetimeId> = FxHashMap::default();
    let mut next: FxHashMap<LifetimeId, u32> = FxHashMap::default();
    for id in lifetimes.recorded_ids().filter(|_| !of_line.is_empty()) {
        let Some(key) = p.stack_of(id).map(|stack| (stack, p.requested(id))) else { continue };
        if of_line.contains_key(&key)
            && let Some(before) = last.insert(key, id)
        {
            next.insert(before, lifetimes.born(id));
        }
    }
    let is_earlier = |id: LifetimeId| next.get(&id).is_some_and(|&next| next <= p.peak_event);
    let (blocks, bytes) = much(p, |b| is_earlier(b.lifetime))?;
    // A tensor that joins them is as large as all of them together.
    let sums: FxHashSet<u64> = of_line.iter().map(|((_, size), results)| size.saturating_mul(results.len() as u64)).collect();
    let joins = |id: LifetimeId| sums.contains(&p.requested(id)) && p.roles.of(id) == Role::Temporaries;
    let size = |id: LifetimeId, size: u64| if joins(id) { 0 } else { size };
    let gone = |id: LifetimeId| next.get(&id).map_or(lifetimes.gone(id), |&next| lifetimes.gone(id).min(next));
    let saving = Saving { before: peak(p), after: peak_if_freed(p.device, p.tables, size, gone) };
    if saving.is_nothing() {
        return None;
    }
    let (joined, _) = held(p, |b| joins(b.lifetime));
    let first = blocks.first()?;
    let all: Vec<&BlockAt> = blocks.iter().chain(&joined).copied().collect();
    let results = counted(blocks.len() as u64, "result", "results");
    let title = match trains {
        true => "Results of earlier batches are held",
        false => "Results of earlier passes are held",
    };
    Finding::new("kept_results", Class::Peak, title, bytes)
        .says(format!(
            "{} of the {} at the peak {} {results} of {}, each of a {} that is over.{}",
            Bytes(bytes),
            Bytes(peak(p)),
            if blocks.len() == 1 { "is" } else { "are" },
            made_at(p, first.lifetime),
            if trains { "batch" } else { "pass" },
            if !joined.is_empty() { " A tensor as large as all of them joins them." } else { "" },
        ))
        .saves("With the last one alone", saving)
        .bytes_of("earlier results", bytes)
        .bytes_of("peak", peak(p))
        .at(place(p, &all))
        .remedy(match trains {
            true => "results.append(output.argmax(-1).cpu())  # what the metric needs, not all scores",
            false => "results.append(output.cpu())  # or keep the last one alone",
        })
        .advice(match trains {
            true => "Update the metric with each batch, or keep what it needs on the CPU. A list of outputs holds all of them until it is emptied.",
            false => "A list of outputs holds all of them until it is emptied.",
        })
        .check(format!("{}.", saving.falls()))
}

/// Reports scores of a whole prompt of which only the next token's are used: later passes make scores for one position, or what
/// the program makes from them is that much smaller.
fn prompt_scores(p: &RuleInput<'_>) -> Option<Finding> {
    /// Fewer passes of one token are not generation.
    const FEWEST_TOKENS: usize = 3;
    /// The output layer is the last of the pass, or at most this many allocations before its end.
    const LAST_OF_PASS: usize = 2;
    /// The input of the output layer is made within this many allocations before its scores.
    const LINEAR_INPUT: u32 = 4;
    let (lifetimes, phases) = (&p.tables.lifetimes, &p.roles.anatomy.phases);
    let size = |id: LifetimeId| p.requested(id);
    let is_of_pass = |id: LifetimeId| matches!(p.roles.of(id), Role::Temporaries | Role::Activations);
    let may_generate = !p.trains() && !p.steps.is_inferred();
    let (blocks, _) = much(p, |b| of_linear(p, b.lifetime) && is_of_pass(b.lifetime)).filter(|_| may_generate)?;
    let scores = blocks[0].lifetime;
    let (all, line) = (size(scores), p.stack_of(scores));
    let is_in_module = |id: LifetimeId| p.stack_of(id).is_some_and(|stack| phases.is_in_module(stack));
    let later = || (scores.0 + 1..lifetimes.len() as u32).map(LifetimeId);
    // A loss reads every position.
    if later().any(|id| p.flags_of(id) & LOSS != 0) {
        return None;
    }
    let tokens: Vec<u64> =
        later().filter(|&id| p.stack_of(id) == line).map(size).take_while(|&size| size < all).take(FEWEST_TOKENS).collect();
    let generated = tokens.first().copied().filter(|one| tokens.len() == FEWEST_TOKENS && tokens.iter().all(|size| size == one));
    // Without such passes: the largest block made from the scores before the next pass, if it covers whole positions. The scores
    // [n, classes] come from [n, d] and weights [classes, d], which determines the bytes per position.
    let rest = later().take_while(|&id| is_in_module(id)).count();
    let behind = later().skip(rest).take_while(|&id| !is_in_module(id) && rest <= LAST_OF_PASS);
    let weights: FxHashSet<u64> = held(p, |b| p.roles.of(b.lifetime) == Role::Weights).0.iter().map(|b| b.requested).collect();
    let before: Vec<u64> =
        (scores.0.saturating_sub(LINEAR_INPUT)..scores.0).map(LifetimeId).map(size).filter(|&size| size > 0).collect();
    let is_of_positions = |read: u64| {
        let position = |&weight: &u64, input: u64, width: u64| {
            let square = u128::from(all) * u128::from(weight) / u128::from(input) * u128::from(width);
            let bytes = u64::try_from(square.isqrt()).unwrap_or(u64::MAX);
            bytes > 0
                && u128::from(bytes) * u128::from(bytes) == square
                && all.is_multiple_of(bytes)
                && read.is_multiple_of(bytes)
        };
        weights.iter().any(|weight| before.iter().any(|&input| [2, 4].iter().any(|&width| position(weight, input, width))))
    };
    let read = behind.map(size).max().filter(|&read| read > 0 && is_of_positions(read));
    let one = generated.or(read).filter(|&one| one > 0 && all % one == 0 && all / one >= FEWEST_POSITIONS)?;
    // The block of the previous pass may also be live at the peak.
    let is_its = |id: LifetimeId| p.stack_of(id) == line && size(id) > one;
    let saving = saving(p, |id, block| if is_its(id) { block.min(one) } else { block });
    let (blocks, bytes) = much(p, |b| is_its(b.lifetime)).filter(|_| !saving.is_nothing())?;
    Finding::new("unread_scores", Class::Peak, "Scores of all positions, and one is read", bytes)
        .says(format!(
            "{} of the {} at the peak are scores made at {}. {}",
            Bytes(bytes),
            Bytes(peak(p)),
            made_at(p, scores),
            match generated {
                Some(_) => format!(
                    "They are of {} positions of a prompt, and the passes behind it make those of one.",
                    count(all / one)
                ),
                None => format!("They are the scores of {} positions, and the program uses those of one.", count(all / one)),
            },
        ))
        .saves("With the scores of one position alone", saving)
        .bytes_of("scores", bytes)
        .shows("scores for each that is read", count(all / one))
        .bytes_of("peak", peak(p))
        .at(place(p, &blocks))
        .remedy("logits = model(prompt, logits_to_keep=1).logits  # or: head(hidden[:, -1:])")
        .advice("Pick the position first, then apply the head. generate() of Transformers does it by itself.")
        .check(format!("{}.", saving.falls()))
}

/// With fewer positions per read one, these may be views, shifted labels or parts of a batch.
const FEWEST_POSITIONS: u64 = 8;

/// Reports scores of all positions if the loss reads only a few of them, or if only the next token is used.
pub(super) fn unread_scores(p: &RuleInput<'_>) -> Option<Finding> {
    if let Some(found) = prompt_scores(p) {
        return Some(found);
    }
    let lifetimes = &p.tables.lifetimes;
    let size = |id: LifetimeId| p.requested(id);
    let step = p.steps.of(p.peak_event).filter(|_| p.trains() && !p.steps.is_inferred())?;
    let ids = || lifetimes.recorded_ids();
    let losses: Vec<LifetimeId> =
        ids().filter(|&id| p.flags_of(id) & LOSS != 0 && p.steps.of(lifetimes.born(id)) == Some(step)).collect();
    let read = losses.iter().map(|&id| size(id)).max().filter(|&read| read > 0)?;
    let times = losses.iter().filter(|&&id| size(id) == read).count() as u64;
    // The scores are the last tensor before the loss that is at least as large as what the loss reads.
    let is_made = |id: LifetimeId| !losses.contains(&id) && size(id) >= read;
    let scores =
        losses.first().and_then(|first| (first.0.saturating_sub(4)..first.0).rev().map(LifetimeId).find(|&id| is_made(id)));
    let scores = scores.filter(|&id| of_linear(p, id) && size(id) % read == 0)?;
    let (all, line) = (size(scores), p.stack_of(scores));
    let each = all / read;
    if each < FEWEST_POSITIONS.max(times.saturating_mul(4)) {
        return None;
    }
    // The backward pass makes gradients of the same size.
    let is_its =
        |id: LifetimeId| size(id) == all && (p.stack_of(id) == line || p.roles.anatomy.phases.of(id) == Some(Phase::Backward));
    let (blocks, bytes): (Vec<&BlockAt>, u64) = held(p, |b| is_its(b.lifetime));
    let saving = saving(p, |id, block| if is_its(id) { block / each } else { block });
    if bytes < LEAST || saving.bytes().saturating_mul(10) < peak(p) {
        return None;
    }
    Finding::new("unread_scores", Class::Peak, "Scores of all positions, and the loss reads few", bytes)
        .says(format!(
            "{} of the {} at the peak {} scores made at {}, or their gradients. The loss reads one in {} of them.",
            Bytes(bytes),
            Bytes(peak(p)),
            if blocks.len() == 1 { "is" } else { "are" },
            made_at(p, scores),
            count(each),
        ))
        .saves("With the scores that it reads alone", saving)
        .bytes_of("scores", bytes)
        .shows("scores for each that is read", count(each))
        .bytes_of("peak", peak(p))
        .at(place(p, &blocks))
        .remedy("logits = head(hidden[:, -1])  # not head(hidden)[:, -1]")
        .advice("Pick the positions first, then apply the head. Transformers' models take logits_to_keep.")
        .check(format!("{}.", saving.falls()))
}

/// True for a block that a linear layer made, PyTorch's or one that multiplies by einsum.
fn of_linear(p: &RuleInput<'_>, id: LifetimeId) -> bool {
    let stacks = &p.recording.stacks;
    let frames = p.stack_of(id).map_or(&[][..], |stack| stacks.frames(stack));
    frames.iter().filter_map(|&f| stacks.frame(f)).any(|f| {
        stacks.text(f.file).ends_with("nn/modules/linear.py") || matches!(stacks.text(f.name), "einsum" | "linear" | "matmul")
    })
}
