//! Growing memory: with every step, with every evaluation, as a saw tooth, or remaining after a failure.

use rustc_hash::FxHashSet;

use super::shared::{self, EVALUATION};
use crate::anatomy::{Phase, Role};
use crate::diagnose::counterfactual::{Saving, peak_if_freed};
use crate::diagnose::findings::{Class, Finding, Place, RuleInput};
use crate::diagnose::leaks::{Growth, adding, adds, how_often, pace};
use crate::model::{StackId, StackTable};
use crate::tables::{LifetimeId, NO_STACK, Quantity, innermost_operation, place_or_function};
use crate::units::{Bytes, MEBIBYTE, count, counted};

/// Reports memory that survives its step, step after step.
pub(super) fn leak(p: &RuleInput<'_>) -> Option<Finding> {
    let (grown, bytes) = leaking(p, false);
    if grown.is_empty() {
        return None;
    }
    let first = &grown[0];
    let all: Vec<&Growth> = grown.iter().collect();
    let (blocks, lines): (u64, _) = (grown.iter().map(|g| g.count()).sum(), by_line(p, &grown));
    let what = "step";
    let has_stacks = grown.iter().any(|g| g.stack.is_some() && !p.recording.stacks.frames(g.stack).is_empty());
    // A loss is one number or a few. If such small tensors stay step after step, so do their graphs.
    let is_small = |g: &Growth| g.survivors.iter().any(|&id| p.requested(id) <= LOSS_BYTES);
    let kept = if has_stacks { most_kept(p, &grown) } else { of_the_model(p, &grown) };
    let may_keep_losses = has_stacks && (grown.iter().any(is_small) || !kept_numbers(p).is_empty());
    let kept = kept.or_else(|| of_backward(p, &grown));
    let kept = kept.or_else(|| of_forward(p, &grown).filter(|_| !may_keep_losses).or_else(|| outputs(p, &grown, has_stacks)));
    let keeps_losses = may_keep_losses && kept.is_none();
    let freed: Vec<u32> = grown.iter().filter_map(|g| g.freed).collect();
    let every = how_often(&all, what);
    let (what_adds, slope) = adds(&all, what);
    // One line of the program is informative enough, whatever it called.
    let own = |g: &Growth| p.names.of_stack(g.stack);
    let at = match grown.split_first() {
        Some((first, rest)) if rest.iter().all(|g| own(g) == own(first)) => own(first).to_owned(),
        _ => places(&lines),
    };
    let title = match freed.is_empty() {
        true => format!("Memory grows with {every}"),
        false => format!("Memory grows with {every}, and is freed at the end"),
    };
    // Distinguish what is live at the end from what was freed before.
    let fate = match freed.iter().min() {
        Some(&event) if freed.len() == grown.len() => {
            format!(
                "{} kept until they are freed together, from event {} on",
                if blocks == 1 { "is" } else { "are" },
                count(u64::from(event))
            )
        }
        Some(&event) => {
            format!("pile up: some are freed together from event {} on, the others live at the end", count(u64::from(event)))
        }
        None => format!("{} still live at the end", if blocks == 1 { "is" } else { "are" }),
    };
    let sentence = format!(
        "{} {} {fate}: {}. {}",
        counted(blocks, "block", "blocks"),
        match has_stacks {
            true => format!("allocated {}", at_places(&at, of_backward(p, &grown).is_some())),
            false => "whose call stacks were not recorded".to_owned(),
        },
        pace(&all, what),
        match kept {
            Some((what, _)) => what,
            None if keeps_losses => "Something keeps them, most often a list of losses or outputs with their graphs.",
            None => "They stay alive; this may be intended, as with a cache.",
        },
    );
    let mut finding = Finding::new("leak", Class::Leak, &title, bytes).says(sentence).red(&what_adds, slope);
    for (name, slope) in lines.iter().take(NAMED).filter(|_| lines.len() > 1) {
        finding = finding.bytes_of(name, *slope as u64);
    }
    let (steady, steps) = adding(&all);
    let (change, saving) = freed_with_its_step(p, &grown);
    if !saving.is_nothing() {
        finding = finding.saves(change, saving);
        if kept.is_some() && of_forward(p, &grown) == kept {
            finding.sentence.push_str(" It may fall further: each backward pass then goes through one step only.");
        }
    }
    finding.remedy = keeps_losses.then(|| "total_loss += loss.item()".to_owned());
    let fit = grown.iter().map(|g| g.confidence).fold(1.0, f64::min);
    finding
        .shows("steps that add", format!("{steady} of {steps}"))
        .shows("fit of a line", format!("{fit:.3}"))
        .shows("call stacks", count(grown.len() as u64))
        .at(Place {
            event: Some(freed.iter().min().map_or(p.last_event(), |&event| event.saturating_sub(1))),
            range: None,
            stack: Some(first.stack),
            lifetimes: grown.iter().flat_map(|g| g.survivors.iter().copied()).take(1000).collect(),
        })
        .advice(match (kept, keeps_losses, has_stacks) {
            (Some((_, advice)), ..) => advice,
            (None, true, _) => "Keep numbers, not tensors: loss.item() or loss.detach(); drop lists of outputs before the next step. If gc.collect() frees them, only a reference cycle keeps them.",
            (None, false, true) => "If nothing should outlive its step, drop what refers to them: lists, dictionaries, closures, hooks. If gc.collect() frees them, only a reference cycle keeps them. A cache needs a bound.",
            (None, false, false) => "Record again with call stacks: they name the lines whose blocks stay.",
        })
        .check("The slope is zero: memory after each step is the same.")
}

/// The peak if nothing outlived the step that made it, and words for that change. Of copies of weights or optimizer state, one
/// stays until the next step has made its own.
fn freed_with_its_step(p: &RuleInput<'_>, grown: &[Growth]) -> (&'static str, Saving) {
    let keeps_one = matches!(role_of_most(p, grown), Some(Role::Weights | Role::OptimizerState));
    let lifetimes = &p.tables.lifetimes;
    let bounds = &p.steps.bounds;
    let survivors: FxHashSet<LifetimeId> = grown.iter().flat_map(|g| &g.survivors).copied().collect();
    let mut births: Vec<u32> = survivors.iter().map(|&id| lifetimes.born(id)).collect();
    births.sort_unstable();
    let gone = |id: LifetimeId| {
        let recorded = lifetimes.gone(id);
        let step = bounds.partition_point(|&bound| bound <= lifetimes.born(id));
        let Some(&end) = bounds.get(step).filter(|_| survivors.contains(&id)) else { return recorded };
        // One copy is overwritten when the next step makes its own.
        let next = if keeps_one { births.get(births.partition_point(|&born| born < end)).copied() } else { Some(end) };
        next.map_or(recorded, |next| recorded.min(next))
    };
    let before = p.tables.curves.peak(Quantity::Active).0;
    let after = peak_if_freed(p.device, p.tables, |_, size| size, gone);
    (if keeps_one { "With one copy" } else { "If every step freed its own," }, Saving { before, after })
}

/// What is kept and what to do, if most of the growing memory has one role.
fn most_kept(p: &RuleInput<'_>, grown: &[Growth]) -> Option<(&'static str, &'static str)> {
    Some(match role_of_most(p, grown)? {
        Role::Weights => (
            "They are copies of weights, and something keeps them.",
            "Keep one copy (of the best weights, of an average) and write the next one into it: p_copy.copy_(p). Move others to the CPU.",
        ),
        Role::KvCache => (
            "They are keys and values of a KV cache.",
            "Drop a sequence's cache when its request ends, and bound what is kept for later ones.",
        ),
        Role::OptimizerState => (
            "They are states of optimizers, and something keeps them.",
            "Make the optimizer once, before the loop, and drop the old one before another is made.",
        ),
        _ => (
            "They are inputs, and something keeps them: a list of batches, or a replay buffer.",
            "Keep no batch after its step, or keep copies on the CPU. Give a buffer a fixed length, as deque(maxlen=...).",
        ),
    })
}

/// The role of most of the growing memory, if it is weights, optimizer state, KV cache or inputs.
fn role_of_most(p: &RuleInput<'_>, grown: &[Growth]) -> Option<Role> {
    let all: Vec<LifetimeId> = grown.iter().flat_map(|g| g.survivors.iter().copied()).collect();
    let size = |id: LifetimeId| p.requested(id);
    let bytes = |role: Role| all.iter().filter(|&&id| p.roles.of(id) == role).map(|&id| size(id)).sum::<u64>();
    let of_all: u64 = all.iter().map(|&id| size(id)).sum();
    let is_most = |role: &Role| bytes(*role) * 2 > of_all;
    [Role::Weights, Role::OptimizerState, Role::KvCache, Role::Inputs].into_iter().find(is_most)
}

/// Bytes of the growing blocks that pass a test, and of all growing blocks.
fn bytes_of(p: &RuleInput<'_>, grown: &[Growth], is_one: impl Fn(LifetimeId) -> bool) -> (u64, u64) {
    let size = |id: &LifetimeId| p.requested(*id);
    let all = || grown.iter().flat_map(|g| &g.survivors);
    (all().filter(|&&id| is_one(id)).map(size).sum(), all().map(size).sum())
}

/// Recognises growth that backward passes made: a backward pass normally frees everything that it makes except the gradients.
fn of_backward(p: &RuleInput<'_>, grown: &[Growth]) -> Option<(&'static str, &'static str)> {
    /// This share (1/n) of the growth is sufficient, because the forward pass's graph is kept with the backward pass's.
    const SHARE: u64 = 4;
    let is_its = |id: LifetimeId| p.stack_of(id).is_none_or(|s| p.names.of_stack(s) == NO_STACK) && is_backward(p, id);
    let has_stacks = grown.iter().any(|g| p.names.of_stack(g.stack) != NO_STACK);
    let (its, all) = bytes_of(p, grown, is_its);
    (has_stacks && its.saturating_mul(SHARE) >= all && its > 0).then_some((
        "The backward pass made many of them, and its own graph may keep them: create_graph=True or retain_graph=True.",
        "Call backward() without create_graph and retain_graph, or use torch.autograd.grad(…, create_graph=True) and set gradients to None after the step.",
    ))
}

/// Recognises growth that is most of what forward passes kept, and backward passes did not free. Outputs and features are smaller.
fn of_forward(p: &RuleInput<'_>, grown: &[Growth]) -> Option<(&'static str, &'static str)> {
    let lifetimes = &p.tables.lifetimes;
    let is_activation = |id: LifetimeId| p.roles.of(id) == Role::Activations;
    let (its, all) = bytes_of(p, grown, is_activation);
    let made = lifetimes.ids().filter(|&id| is_activation(id));
    let made = made.fold(0u64, |sum, id| sum.saturating_add(p.requested(id)));
    (p.trains() && its.saturating_mul(2) > all.max(made)).then_some((
        "They are activations that the backward pass did not free: retain_graph=True, or a state that goes from step to step with its graph.",
        "Detach what one step hands to the next (state = state.detach()), and call backward() without retain_graph.",
    ))
}

fn is_backward(p: &RuleInput<'_>, id: LifetimeId) -> bool {
    p.roles.anatomy.phases.of(id) == Some(Phase::Backward)
}

/// Recognises a few tensors of each step's forward pass although a backward pass used its graph: outputs are kept, not the graph.
fn outputs(p: &RuleInput<'_>, grown: &[Growth], has_stacks: bool) -> Option<(&'static str, &'static str)> {
    const FEW: u64 = 3;
    let adds = grown.iter().map(|g| g.steps_adding).max().unwrap_or(0) as u64;
    let is_few = grown.iter().map(|g| g.count()).sum::<u64>() <= adds.saturating_mul(FEW);
    let trains = p.trains();
    let is_activation = |id: LifetimeId| p.roles.of(id) == Role::Activations;
    let (kept, all) = bytes_of(p, grown, is_activation);
    // A kept graph keeps most of what its passes made.
    let lifetimes = &p.tables.lifetimes;
    let activations = lifetimes.ids().filter(|&id| is_activation(id));
    let made: u64 = activations.map(|id| lifetimes.block_size(id)).sum();
    (has_stacks && is_few && trains && kept * 2 > all && kept * 2 < made).then_some((
        "Something keeps outputs of each step: a list, an attribute, or a reference cycle.",
        "Drop what refers to them before the next step: lists, attributes, closures, hooks. If gc.collect() frees them, a reference cycle keeps them: break it.",
    ))
}

/// Without stacks: recognises growth whose sizes are mostly those of weights.
fn of_the_model(p: &RuleInput<'_>, grown: &[Growth]) -> Option<(&'static str, &'static str)> {
    const FEWEST_SIZES: usize = 3;
    let lifetimes = &p.tables.lifetimes;
    let size = |id: LifetimeId| p.requested(id);
    let ids = || lifetimes.ids();
    let weights: FxHashSet<u64> = ids().filter(|&id| p.roles.of(id) == Role::Weights).map(size).collect();
    // Annotated optimizer steps identify optimizer state.
    if role_of_most(p, grown) == Some(Role::OptimizerState) {
        return most_kept(p, grown);
    }
    let all: Vec<u64> = grown.iter().flat_map(|g| g.survivors.iter().map(|&id| size(id))).collect();
    let alike: Vec<u64> = all.iter().copied().filter(|size| weights.contains(size)).collect();
    let is_most = alike.iter().sum::<u64>() * 2 > all.iter().sum::<u64>();
    (is_most && alike.iter().collect::<FxHashSet<_>>().len() >= FEWEST_SIZES).then_some((
        "They are as large as weights, so they are probably copies of weights, of gradients or of the optimizer's state, and something keeps them.",
        "Record again with call stacks: they name the lines whose blocks stay. Keep one copy and write the next one into it: p_copy.copy_(p). Move others to the CPU.",
    ))
}

/// Largest size of a loss in bytes: reduced, or one number per sample.
const LOSS_BYTES: u64 = 4096;

/// With fewer steps than this, numbers that stay may come from the layers of a network instead of a list.
const FEWEST_FOR_NUMBERS: usize = 20;

/// Small tensors that nearly every step leaves behind, too few bytes to count as growth.
fn kept_numbers(p: &RuleInput<'_>) -> Vec<Growth> {
    if p.steps.len() < FEWEST_FOR_NUMBERS {
        return Vec::new();
    }
    let has_stack = |g: &&Growth| g.stack.is_some() && !p.recording.stacks.frames(g.stack).is_empty();
    p.growth.iter().filter(|g| g.is_trickle()).filter(has_stack).cloned().collect()
}

/// Reports numbers kept as tensors, if nothing larger grows: `losses.append(loss)`.
pub(super) fn numbers(p: &RuleInput<'_>) -> Option<Finding> {
    let kept = kept_numbers(p);
    let first = kept.first().filter(|_| leaking(p, false).0.is_empty())?;
    let lifetimes = &p.tables.lifetimes;
    let each = first.survivors.first().map_or(0, |&id| lifetimes.block_size(id));
    let number: u64 = kept.iter().map(|g| g.count()).sum();
    let asked: u64 = kept.iter().map(|g| g.bytes).sum();
    // Each of them takes a whole block.
    let held = number.saturating_mul(each);
    let lines = by_line(p, &kept);
    Finding::new("kept_numbers", Class::Hygiene, "Numbers of every step stay on the device", held)
        .says(format!(
            "{} of {} in all, allocated at {}, still live at the end, about {} a step. They hold {} in blocks, and the graph that computed each of them where it was not detached.",
            counted(number, "small tensor", "small tensors"),
            Bytes(asked),
            places(&lines),
            counted((number / p.steps.len().max(1) as u64).max(1), "tensor", "tensors"),
            Bytes(held),
        ))
        .shows("tensors", count(number))
        .shows("steps that add", steps_that_add(&kept))
        .bytes_of("requested", asked)
        .bytes_of("in blocks", held)
        .at(Place {
            event: Some(p.last_event()),
            stack: Some(first.stack),
            lifetimes: first.survivors.iter().copied().take(100).collect(),
            ..Place::default()
        })
        .remedy("losses.append(loss.item())")
        .advice("Keep numbers, not tensors: loss.item(), or loss.detach() where it has to stay on the device.")
        .check("As many blocks live after the last step as after the first.")
}

/// Number of steps in which any of these stacks adds memory, as in the Leaks view.
fn steps_that_add(grown: &[Growth]) -> String {
    let (add, all) = adding(&grown.iter().collect::<Vec<_>>());
    format!("{} of {}", count(add as u64), count(all as u64))
}

pub(super) fn evaluation(p: &RuleInput<'_>) -> Option<Finding> {
    let (grown, bytes) = leaking(p, true);
    let first = grown.first()?;
    let what = "step";
    Finding::new("evaluation_growth", Class::Leak, "Evaluation keeps what it makes", bytes)
        .says(format!(
            "{} allocated in evaluation at {} are still live {}, {}: predictions are kept on the device, or their graphs are.",
            counted(grown.iter().map(|g| g.count()).sum(), "block", "blocks"),
            places(&by_line(p, &grown)),
            match first.freed {
                Some(event) => format!("at event {}", count(u64::from(event.saturating_sub(1)))),
                None => "at the end".to_owned(),
            },
            pace(&grown.iter().collect::<Vec<_>>(), what)
        ))
        .red("kept from evaluation", bytes)
        .shows("steps that add", steps_that_add(&grown))
        .shows("fit of a line", format!("{:.3}", first.confidence))
        .at(Place {
            event: Some(p.last_event()),
            stack: Some(first.stack),
            lifetimes: first.survivors.iter().copied().take(100).collect(),
            ..Place::default()
        })
        .remedy("with torch.inference_mode():")
        .advice("Evaluate without gradients, and move predictions to the host as they come: pred.cpu(). With the Transformers Trainer also eval_accumulation_steps=8.")
        .check("Memory after each evaluation is the same.")
}

/// Most lines of code named in a sentence and its evidence; further ones are counted.
const NAMED: usize = 3;

/// The program's own line, and the operation it called if that is on another line.
fn line_of(stacks: &StackTable, own: &str, stack: StackId) -> String {
    // A stack without Python lines has only the recorder and the allocator inside.
    let inner = innermost_operation(stacks, stack)
        .filter(|_| own != NO_STACK)
        .and_then(|f| stacks.frame(f))
        .map(|f| place_or_function(stacks, f));
    match inner.filter(|inner| !inner.is_empty() && inner != own) {
        Some(inner) => format!("{own} in {inner}"),
        None => own.to_owned(),
    }
}

/// Bytes per step by allocating line, most first: the program's own line, plus the library line below it if that is the
/// innermost. Stacks with the same pair share a row; if all do, only the program's own line is shown.
fn by_line(p: &RuleInput<'_>, grown: &[Growth]) -> Vec<(String, f64)> {
    let stacks = &p.recording.stacks;
    let mut lines: Vec<(String, f64)> = Vec::new();
    for g in grown {
        let name = line_of(stacks, p.names.of_stack(g.stack), g.stack);
        match lines.iter_mut().find(|l| l.0 == name) {
            Some(line) => line.1 += g.bytes_per_step,
            None => lines.push((name, g.bytes_per_step)),
        }
    }
    lines.sort_by(|a, b| b.1.total_cmp(&a.1));
    if let ([line], Some(first)) = (lines.as_mut_slice(), grown.first()) {
        p.names.of_stack(first.stack).clone_into(&mut line.0);
    }
    lines
}

/// `a.py:1`, `a.py:1 and b.py:2`, `a.py:1, b.py:2, c.py:3 and 4 lines more`.
fn places(lines: &[(String, f64)]) -> String {
    let mut names: Vec<String> = lines.iter().take(NAMED).map(|l| l.0.clone()).collect();
    if lines.len() > NAMED {
        names.push(counted((lines.len() - NAMED) as u64, "line more", "lines more"));
    }
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

/// `at a.py:1`, or a description if there is no Python stack.
fn at_places(places: &str, in_backward: bool) -> String {
    let without = if in_backward { "in the backward pass, without a Python stack" } else { "without a Python stack" };
    match places.strip_prefix(NO_STACK) {
        Some("") => without.to_owned(),
        Some(rest) => format!("{without}, and at {}", rest.trim_start_matches(", ").trim_start_matches(" and ")),
        None => format!("at {}", places.replace(NO_STACK, "places without a Python stack")),
    }
}

/// The growing stacks of evaluation, or all others, if they are worth reporting; and their bytes.
fn leaking(p: &RuleInput<'_>, in_evaluation: bool) -> (Vec<Growth>, u64) {
    // If a file is cut short, memory live at its end is not a leak. Without steps, nothing else could show one.
    if p.steps.is_empty() && p.recording.report.truncated().is_some() {
        return (Vec::new(), 0);
    }
    let is_evaluation = |stack: StackId| p.flags(stack) & EVALUATION != 0;
    let concerns = |g: &&Growth| g.is_leak() && is_evaluation(g.stack) == in_evaluation;
    let grown: Vec<Growth> = p.growth.iter().filter(concerns).cloned().collect();
    let bytes = grown.iter().map(|g| g.bytes).sum();
    (grown, bytes)
}

/// For live data: the level at the quietest moments keeps growing.
pub(super) fn live_growth(p: &RuleInput<'_>) -> Option<Finding> {
    if !p.device.events.is_empty() {
        return None;
    }
    let trend = shared::trend(p, |s| s.allocated)?;
    if trend.grown < 256 * MEBIBYTE || trend.seconds < 60.0 || trend.rising < 10 || trend.confidence < 0.9 {
        return None;
    }
    Finding::new("live_growth", Class::Leak, "Tensor memory keeps growing", trend.grown)
        .says(format!(
            "At its quietest moments the program holds {} more than {:.0} s before: {} a minute.",
            Bytes(trend.grown),
            trend.seconds,
            Bytes((trend.grown as f64 / trend.seconds * 60.0) as u64)
        ))
        .red("grown", trend.grown)
        .shows("stretches that rise", format!("{} of {}", trend.rising, shared::STRETCHES - 1))
        .shows("fit of a line", format!("{:.3}", trend.confidence))
        .advice("Record a snapshot over some steps: it names the lines whose blocks stay. Most often numbers are kept as tensors: loss.item() instead of loss.")
        .check("The line of allocated memory comes back to the same height.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Frame, StackTableBuilder};

    #[test]
    fn what_has_no_stack_is_put_into_words() {
        let of = |places: &str| at_places(places, true);
        assert_eq!(of("a.py:1 and b.py:2"), "at a.py:1 and b.py:2");
        assert_eq!(of("no Python stack"), "in the backward pass, without a Python stack");
        assert_eq!(
            of("no Python stack, a.py:1 and b.py:2"),
            "in the backward pass, without a Python stack, and at a.py:1 and b.py:2"
        );
        assert_eq!(of("no Python stack and a.py:1"), "in the backward pass, without a Python stack, and at a.py:1");
    }

    #[test]
    fn a_line_never_ends_in_nothing() {
        let mut b = StackTableBuilder::new();
        let mut frame = |name: &str, file: &str, line| {
            let (name, file) = (b.string(name), b.string(file));
            b.frame(Frame { name, file, line })
        };
        let unwind = frame("torch::unwind::unwind()", "??", 0);
        let mm = frame("at::_ops::mm::call(at::Tensor const&)", "??", 0);
        let [linear, own] =
            [("/v/site-packages/torch/linear.py", 134), ("/home/me/model.py", 40)].map(|(f, l)| frame("forward", f, l));
        let stacks = [vec![unwind, own], vec![unwind, mm, own], vec![linear, own], vec![own]];
        let ids: Vec<StackId> = stacks.iter().map(|frames| b.stack(frames)).collect();
        let table = b.finish();
        let told: Vec<String> = ids.into_iter().map(|id| line_of(&table, "model.py:40", id)).collect();
        assert_eq!(told, ["model.py:40", "model.py:40 in mm", "model.py:40 in linear.py:134", "model.py:40"]);
    }
}
