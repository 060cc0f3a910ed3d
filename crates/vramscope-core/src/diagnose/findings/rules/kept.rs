//! Memory that a pass keeps needlessly: a graph that nothing uses, attention scores.

use rustc_hash::{FxHashMap, FxHashSet};

use super::TEMPORARIES;
use super::at_peak::{LEAST, Layers, held, lines, made_at, of_role, peak, place, probably, saving, step_of};
use super::backward::keeps_backward_graph;
use super::copies::is_grown;
use super::shared::{CONVOLVES, FUSED, JOINS, LINEAR, LOSS, MATH, MULTIPLIES, OPERAND, SDPA, SOFTMAX};
use crate::anatomy::roles::Role;
use crate::anatomy::steps::StepSource;
use crate::anatomy::{Phase, function_of, line_of};
use crate::diagnose::counterfactual::{Saving, peak_if_freed};
use crate::diagnose::findings::{Class, Finding, RuleInput};
use crate::model::{Format, FrameId, PoolId, StackId, StreamId};
use crate::tables::naming::is_of_operators;
use crate::tables::{BlockAt, LifetimeId, NO_EVENT, place_or_function};
use crate::units::{Bytes, MEBIBYTE, count, counted};

/// Less than 1/n of the peak is not reported here.
const SHARE: u64 = 10;

/// The blocks at the peak that pass a test, if they are large enough to report.
pub(super) fn much<'a>(p: &'a RuleInput<'_>, is_one: impl Fn(&BlockAt) -> bool) -> Option<(Vec<&'a BlockAt>, u64)> {
    Some(held(p, is_one)).filter(|(_, bytes)| *bytes >= LEAST && bytes.saturating_mul(SHARE) >= peak(p))
}

/// Blocks kept by a graph that no backward pass used. After a failed request on any device, a backward pass may have been next,
/// unless several model calls ran without one.
fn of_unused_graph<'a>(p: &'a RuleInput<'_>) -> Option<(Vec<&'a BlockAt>, u64)> {
    let has_failed = p.recording.devices.iter().any(|d| d.events.last_oom().is_some());
    let found = (!has_failed || only_calls(p)).then(|| held(p, |b| p.roles.is_kept_by_graph(b.lifetime)));
    // The pass before the recording may have left a graph too.
    let is_much = |bytes: u64| (bytes + of_older_graph(p)).saturating_mul(SHARE) >= peak(p);
    found.filter(|(_, bytes)| *bytes >= LEAST && is_much(*bytes))
}

/// Bytes at the peak left from the graph of a pass before the recording.
fn of_older_graph(p: &RuleInput<'_>) -> u64 {
    held(p, |b| p.roles.is_of_older_graph(b.lifetime)).1
}

/// True if the model was called several times, each call kept a graph, and no backward pass ran. A call of a reference model
/// without a graph before the trained one does not count.
fn only_calls(p: &RuleInput<'_>) -> bool {
    const SEVERAL: usize = 3;
    let (runs, lifetimes) = (p.runs(), &p.tables.lifetimes);
    let with_graph = || {
        let kept = lifetimes.ids().filter(|&id| p.roles.is_kept_by_graph(id));
        kept.filter_map(|id| p.steps.of(lifetimes.born(id))).collect::<FxHashSet<_>>().len()
    };
    matches!(p.steps.source, StepSource::Call(..))
        && runs.iter().all(|run| run.phase != Phase::Backward)
        && with_graph() >= SEVERAL
}

/// ` called at train.py:41`, if one line calls the model whose passes made nine tenths of these blocks.
fn called_at(p: &RuleInput<'_>, blocks: &[&BlockAt]) -> String {
    let mut by_call: FxHashMap<Option<FrameId>, u64> = FxHashMap::default();
    for b in blocks {
        let call = p.stack_of(b.lifetime).and_then(|stack| p.roles.anatomy.phases.called_at(stack));
        *by_call.entry(call).or_default() += b.size;
    }
    let all: u64 = by_call.values().sum();
    let most = by_call.into_iter().find(|(_, bytes)| bytes.saturating_mul(10) >= all.saturating_mul(9));
    let line = most.and_then(|(call, _)| p.recording.stacks.frame(call?));
    line.map_or(String::new(), |line| format!(" called at {}", place_or_function(&p.recording.stacks, line)))
}

/// True if [`unused_graph`] reports a finding.
pub(super) fn keeps_unused_graph(p: &RuleInput<'_>) -> bool {
    of_unused_graph(p).is_some()
}

/// Reports a graph that autograd recorded but no backward pass used.
pub(super) fn unused_graph(p: &RuleInput<'_>) -> Option<Finding> {
    let (blocks, bytes) = of_unused_graph(p)?;
    // If the recording ends right after the forward pass, it is unknown what came next.
    let freed: u64 = blocks.iter().filter(|b| p.tables.lifetimes.gone(b.lifetime) != NO_EVENT).map(|b| b.size).sum();
    // If a variable holds the pass's result, its graph lives until the next pass overwrites the variable.
    let older = of_older_graph(p);
    let mut of_pass: FxHashMap<usize, u64> = FxHashMap::default();
    for (b, step) in blocks.iter().filter_map(|b| Some((b, step_of(p, b.lifetime)?))) {
        *of_pass.entry(step).or_default() += b.size;
    }
    // Any pass may leave a few small tensors.
    let passes = of_pass.values().filter(|&&of_pass| of_pass.saturating_mul(SHARE) >= bytes).count();
    // Local variables are freed when a function returns, but the graph may live on.
    let is_freed = freed * 2 > bytes && (passes > 1 || freed * 10 >= bytes * 9);
    let sentence = format!(
        "{} {} in {} for a backward pass, most at {}, and {}.{}{}",
        match passes {
            0 | 1 => format!("The forward pass{} keeps", called_at(p, &blocks)),
            more => format!("{more} forward passes{} keep", called_at(p, &blocks)),
        },
        Bytes(bytes),
        counted(blocks.len() as u64, "block", "blocks"),
        lines(p, &blocks),
        if is_freed { "they are freed without one" } else { "no backward pass was recorded" },
        if passes == 2 { " A variable holds the last pass's result until the next one is made." } else { "" },
        match older {
            0 => String::new(),
            older => format!(
                " {} more are probably the graph of the pass before the recording, {} in all.",
                Bytes(older),
                Bytes(bytes + older)
            ),
        }
    );
    let bytes = bytes + older;
    // The recording of a program that trains may stop before its backward pass.
    let trains = keeps_state(p) || trained_before(p);
    if trains && freed.saturating_mul(10) <= bytes {
        return ends_before_backward(p, &blocks, bytes, sentence);
    }
    let is_sure = (is_freed || only_calls(p)) && (!trains || freed.saturating_mul(10) >= bytes.saturating_mul(9));
    let advice = if is_sure { "Run" } else { "If no backward pass follows: run" };
    let title = match is_freed || is_sure {
        true => "Autograd keeps a graph that nothing in this recording uses",
        false => "The recording ends with a graph that no backward pass has used yet",
    };
    let finding = Finding::new("unused_graph", Class::Peak, title, bytes).says(sentence);
    // Without a graph, a tensor is freed when the next layer has made its own, and none outlives its pass.
    let lifetimes = &p.tables.lifetimes;
    let of_next = made_by_next_layer(p, |id| p.roles.is_kept_by_graph(id));
    let gone = |id: LifetimeId| {
        let next = step_of(p, id).filter(|_| p.roles.is_kept_by_graph(id)).and_then(|step| p.steps.bounds.get(step + 1));
        [next, of_next.get(&id)].into_iter().flatten().fold(lifetimes.gone(id), |gone, &next| gone.min(next))
    };
    let saving = Layers::of(p, &blocks).map(|_| {
        let size = |id: LifetimeId, size: u64| if p.roles.is_of_older_graph(id) { 0 } else { size };
        Saving { before: peak(p), after: peak_if_freed(p.device, p.tables, size, gone) }
    });
    // If most lines run only once, as in a trace whose stacks number every module, the layers are unknown.
    let finding = match saving.filter(|s| s.before.saturating_sub(s.after).saturating_mul(4) >= bytes) {
        Some(saving) => finding.saves("Without the graph", saving),
        None => finding,
    };
    finding
        .bytes_of("kept for backward", bytes)
        .bytes_of("peak", peak(p))
        .at(place(p, &blocks))
        .remedy("with torch.inference_mode():")
        .advice(format!(
            "{advice} evaluation, generation and the pass of a teacher under torch.no_grad() or torch.inference_mode(); no graph is then recorded."
        ))
        .check("The forward pass frees each layer's tensors before the next layer ends.")
}

/// True for gradients or optimizer state at the peak: the program trains.
fn keeps_state(p: &RuleInput<'_>) -> bool {
    of_role(p, Role::Gradients).1 + of_role(p, Role::OptimizerState).1 >= LEAST
}

/// True if a backward pass ran before the recording. PyTorch keeps a workspace of cuBLAS for each thread, and the backward pass runs
/// in a thread of its own: there are two of one size on a stream.
pub(super) fn trained_before(p: &RuleInput<'_>) -> bool {
    let lifetimes = &p.tables.lifetimes;
    let mut of_stream: FxHashMap<(PoolId, StreamId, u64), u32> = FxHashMap::default();
    let older = (0..lifetimes.initial_count() as u32).map(LifetimeId);
    for workspace in older.filter(|&id| p.roles.of(id) == Role::Workspaces).filter_map(|id| lifetimes.get(p.device, id)) {
        if workspace.requested > MEBIBYTE {
            *of_stream.entry((workspace.pool, workspace.stream, workspace.requested)).or_default() += 1;
        }
    }
    of_stream.into_values().any(|n| n == 2)
}

/// Notes that the program trains: the backward pass comes after the recording.
fn ends_before_backward(p: &RuleInput<'_>, blocks: &[&BlockAt], bytes: u64, sentence: String) -> Option<Finding> {
    Finding::new("unused_graph", Class::Hygiene, "The recording ends before the backward pass", bytes)
        .says(sentence)
        .bytes_of("kept for backward", bytes)
        .bytes_of("peak", peak(p))
        .at(place(p, blocks))
        .advice(format!(
            "The program {}, so it trains: the backward pass comes next and may need more. Record a whole step, or two.",
            match keeps_state(p) {
                true => "holds gradients or optimizer state",
                false => "ran a backward pass before the recording: its thread has a cuBLAS workspace of its own",
            }
        ))
        .check("The recording has a backward pass and an optimizer step.")
}

/// True if the recording ends with a graph, which the next pass needs, together with the memory reserved for it.
pub(super) fn ends_with_graph(p: &RuleInput<'_>) -> bool {
    let is_live = |b: &&&BlockAt| p.tables.lifetimes.gone(b.lifetime) == NO_EVENT;
    let bytes = |blocks: &mut dyn Iterator<Item = u64>| blocks.fold(0u64, u64::saturating_add);
    of_unused_graph(p)
        .is_some_and(|(blocks, all)| bytes(&mut blocks.iter().filter(is_live).map(|b| b.size)).saturating_mul(2) > all)
}

/// For each block that a graph keeps: the event at which it would be freed without the graph. That is when its line allocates
/// again after other lines have. The result of a line that runs once per pass, such as a model's first layer, is freed once three
/// other lines have allocated. O(lifetimes).
pub(super) fn made_by_next_layer(p: &RuleInput<'_>, is_kept: impl Fn(LifetimeId) -> bool) -> FxHashMap<LifetimeId, u32> {
    /// After fewer other lines, the layer that reads the result may still be running.
    const OTHERS: usize = 3;
    let stacks = &p.recording.stacks;
    let mut lines: FxHashMap<StackId, Option<FrameId>> = FxHashMap::default();
    // Consecutive blocks of one line, in order.
    let mut groups: Vec<(StackId, FrameId, Vec<LifetimeId>)> = Vec::new();
    for id in p.tables.lifetimes.ids().filter(|&id| is_kept(id)) {
        let Some(stack) = p.stack_of(id) else { continue };
        let Some(line) = *lines.entry(stack).or_insert_with(|| line_of(stacks, stack)) else { continue };
        match groups.last_mut().filter(|group| group.0 == stack) {
            Some(group) => group.2.push(id),
            None => groups.push((stack, line, vec![id])),
        }
    }
    let lifetimes = &p.tables.lifetimes;
    let begins = |group: usize| groups.get(group).map_or(NO_EVENT, |group| lifetimes.born(group.2[0]));
    let mut next_of_line: FxHashMap<FrameId, u32> = FxHashMap::default();
    let mut of_next: FxHashMap<LifetimeId, u32> = FxHashMap::default();
    for (at, (_, line, ids)) in groups.iter().enumerate().rev() {
        let next = next_of_line.insert(*line, begins(at)).unwrap_or(NO_EVENT);
        let goes = |id: &LifetimeId| if next < lifetimes.gone(*id) { next } else { begins(at + OTHERS) };
        of_next.extend(ids.iter().map(|id| (*id, goes(id))));
    }
    of_next
}

/// Reports the last result of the previous step that a variable still holds: it is freed only when this step has made its own.
pub(super) fn last_result(p: &RuleInput<'_>) -> Option<Finding> {
    let lifetimes = &p.tables.lifetimes;
    if p.steps.len() < 2 || p.steps.is_inferred() || keeps_unused_graph(p) || keeps_backward_graph(p) {
        return None;
    }
    // A step begins with a call, so an input made right before the call seems to belong to the previous step.
    let stacks = &p.recording.stacks;
    let frames = stacks.frame_ids();
    let calls: Option<FxHashSet<FrameId>> = match &p.steps.source {
        StepSource::Call(place, _) => {
            Some(frames.filter(|&f| stacks.frame(f).is_some_and(|f| stacks.location(f) == *place)).collect())
        }
        _ => None,
    };
    let is_in_call = |stack| calls.as_ref().is_none_or(|calls| stacks.frames(stack).iter().any(|f| calls.contains(f)));
    // The line of each stack, if the stack is inside the step's call; computed once per stack because many blocks share one.
    let all = stacks.ids();
    let line_in_step: Vec<Option<FrameId>> = all.map(|stack| line_of(stacks, stack).filter(|_| is_in_call(stack))).collect();
    // By step, line and size: when the first such block of a step was made.
    let mut made: FxHashMap<(usize, FrameId, u64), u32> = FxHashMap::default();
    let key = |id: LifetimeId| {
        let line = line_in_step.get(p.stack_of(id)?.0 as usize).copied().flatten()?;
        Some((p.steps.of(lifetimes.born(id))?, line, p.requested(id)))
    };
    let ids = || lifetimes.recorded_ids();
    for id in ids() {
        if let Some(key) = key(id) {
            made.entry(key).or_insert(lifetimes.born(id));
        }
    }
    // The event at which the next step begins, for a block that lives until that step made a similar one.
    let held_over = |id: LifetimeId| {
        let is_of_pass = matches!(p.roles.of(id), Role::Temporaries | Role::Activations);
        let (step, line, size) = key(id).filter(|_| is_of_pass)?;
        let next = *p.steps.bounds.get(step + 1)?;
        let gone = lifetimes.gone(id);
        let is_replaced = made.get(&(step + 1, line, size)).is_some_and(|&other| gone > other);
        (is_replaced && gone != NO_EVENT && p.steps.of(gone) == Some(step + 1)).then_some(next)
    };
    let (blocks, bytes) = much(p, |b| held_over(b.lifetime).is_some_and(|next| next <= p.peak_event))?;
    let after = peak_if_freed(p.device, p.tables, |_, size| size, |id| held_over(id).unwrap_or_else(|| lifetimes.gone(id)));
    let saving = Saving { before: peak(p), after };
    if saving.is_nothing() {
        return None;
    }
    let is_one = blocks.len() == 1;
    Finding::new("last_result", Class::Peak, "The last step's result is held while the next is made", bytes)
        .says(format!(
            "{} of the {} at the peak {} made in the step before, at {}, and freed only after this step has made {} own.",
            Bytes(bytes),
            Bytes(saving.before),
            if is_one { "was" } else { "were" },
            lines(p, &blocks),
            if is_one { "its" } else { "their" },
        ))
        .saves("With a del at the end of each step", saving)
        .bytes_of("held from the step before", bytes)
        .bytes_of("peak", saving.before)
        .at(place(p, &blocks))
        .remedy("del outputs  # the variable that holds the result")
        .advice("A variable holds its value until it gets another, and the other is made first. Delete it at the end of the loop's body, or put the body into a function of its own: its variables go when it returns. What the next step takes as its input has to stay.")
        .check(format!("{}.", saving.falls()))
}

/// Reports keys and values that a pass keeps although the program does not generate.
pub(super) fn unused_cache(p: &RuleInput<'_>) -> Option<Finding> {
    if p.runs().iter().any(|run| run.phase == Phase::Generation) {
        return None;
    }
    let is_cache = |id: LifetimeId| {
        let is_of_pass = p.roles.of(id) == Role::KvCache && p.roles.anatomy.phases.of(id) == Some(Phase::Forward);
        // A cache used for generation is extended by more than one pass.
        is_of_pass && p.steps.of(p.tables.lifetimes.born(id)) == p.steps.of(p.tables.lifetimes.gone(id))
    };
    let (blocks, bytes) = much(p, |b| is_cache(b.lifetime))?;
    Finding::new("unused_cache", Class::Peak, "A pass keeps keys and values for tokens to come", bytes)
        .says(format!(
            "{} of the {} at the peak are {}a KV cache, made at {}, and nothing in this recording generates tokens with it.",
            Bytes(bytes),
            Bytes(peak(p)),
            probably(p, &blocks),
            lines(p, &blocks),
        ))
        .saves("Without it", saving(p, |id, size| if is_cache(id) { 0 } else { size }))
        .bytes_of("KV cache", bytes)
        .bytes_of("peak", peak(p))
        .at(place(p, &blocks))
        .remedy("model(**inputs, use_cache=False)")
        .advice("Models of Transformers keep keys and values unless they are told not to. Embeddings, scores and a single pass need none.")
        .check("Each layer frees its keys and values before the next ends.")
}

/// True for blocks made by `copy.deepcopy`; a whole model cannot be made in parts.
fn is_deep_copy(p: &RuleInput<'_>, id: LifetimeId) -> bool {
    let is_of_copy =
        |f: &FrameId| p.recording.stacks.frame(*f).is_some_and(|f| p.recording.stacks.text(f.file).ends_with("/copy.py"));
    p.stack_of(id).is_some_and(|stack| p.recording.stacks.frames(stack).iter().any(is_of_copy))
}

/// Reports temporaries of one line that make the peak of a program that does not train; a training step always has some.
/// `diagnose` drops the finding if another rule covers the largest of them.
pub(super) fn temporaries(p: &RuleInput<'_>) -> Option<Finding> {
    /// Less than 1/n of the peak is not reported.
    const SHARE: u64 = 4;
    const CHUNKS: u64 = 4;
    let steps = &p.steps.source;
    let trains = p.runs().iter().any(|run| matches!(run.phase, Phase::Backward | Phase::Optimizer))
        || steps.is_optimizer()
        || matches!(steps, StepSource::Optimizer(_));
    if trains || !p.ooms.is_empty() {
        return None;
    }
    let lifetimes = &p.tables.lifetimes;
    // Blocks still live at the end are not known to be short-lived.
    let is_one = |id: LifetimeId| {
        let is_short = p.roles.of(id) == Role::Temporaries && lifetimes.gone(id) != NO_EVENT;
        is_short && p.stack_of(id).is_some() && !is_deep_copy(p, id)
    };
    let (blocks, _) = held(p, |b| is_one(b.lifetime));
    let mut by_line: FxHashMap<String, (u64, Vec<&BlockAt>)> = FxHashMap::default();
    for b in blocks {
        let line = by_line.entry(made_at(p, b.lifetime)).or_default();
        line.0 += b.size;
        line.1.push(b);
    }
    // The result of `torch.cat` has to be in one piece.
    let is_grown = is_grown(p);
    let joins = |id: LifetimeId| p.flags_of(id) & JOINS != 0 || is_grown(id);
    by_line.retain(|_, (_, blocks)| blocks.first().is_some_and(|b| !joins(b.lifetime)));
    let (line, (bytes, blocks)) = by_line.into_iter().max_by(|a, b| (a.1.0, &b.0).cmp(&(b.1.0, &a.0)))?;
    let peak = peak(p);
    if bytes < LEAST || bytes.saturating_mul(SHARE) < peak {
        return None;
    }
    let stacks: FxHashSet<StackId> = blocks.iter().filter_map(|b| p.stack_of(b.lifetime)).collect();
    let is_its = |id: LifetimeId| is_one(id) && p.stack_of(id).is_some_and(|stack| stacks.contains(&stack));
    let largest = blocks.iter().map(|b| b.size).max().unwrap_or(0);
    let is_as_large = |id: LifetimeId| is_one(id) && lifetimes.block_size(id).saturating_mul(2) > largest;
    let in_chunks = |is_cut: &dyn Fn(LifetimeId) -> bool| saving(p, |id, size| if is_cut(id) { size / CHUNKS } else { size });
    // Another moment may be nearly as high: a loss may make as much from a result as the result itself.
    let is_most = bytes.saturating_mul(2) >= peak;
    let (alone, together) = (in_chunks(&is_its), in_chunks(&|id| is_its(id) || is_as_large(id)));
    let (saving, change) = match is_most && together.after.saturating_mul(10) < alone.after.saturating_mul(9) {
        true => (together, format!("Together with others as large, at other moments, in {CHUNKS} chunks")),
        false => (alone, format!("In {CHUNKS} chunks")),
    };
    if saving.bytes().saturating_mul(10) < peak {
        return None;
    }
    let title = match is_most {
        true => "Short-lived tensors of one line make the peak",
        false => "Short-lived tensors of one line hold much of the peak",
    };
    let is_one = blocks.len() == 1;
    let finding = Finding::new(TEMPORARIES, Class::Peak, title, bytes);
    finding
        .says(format!(
            "{} of the {} at the peak {} in {} of {line} that {} freed soon after.",
            Bytes(bytes),
            Bytes(peak),
            if is_one { "is" } else { "are" },
            counted(blocks.len() as u64, "tensor", "tensors"),
            if is_one { "is" } else { "are" }
        ))
        .saves(&change, saving)
        .bytes_of("short-lived", bytes)
        .bytes_of("peak", peak)
        .at(place(p, &blocks))
        .advice("Compute it in chunks, or let torch.compile fuse what the line computes. Elementwise operations can also work in place (relu_, mul_, out=).")
        .check(format!("{}.", saving.falls()))
}

/// Reports attention scores (batch × heads × length²), which fused attention never makes.
pub(super) fn attention_scores(p: &RuleInput<'_>) -> Option<Finding> {
    let lifetimes = &p.tables.lifetimes;
    let stack_of = |id: LifetimeId| lifetimes.stack(p.device, id);
    // If PyTorch's own attention has no fused kernel, for example with a bias, it keeps scores too; calling it is then no advice.
    let is_of_pass =
        |id: LifetimeId| matches!(p.roles.of(id), Role::Activations | Role::Temporaries) && p.flags(stack_of(id)) & SDPA == 0;
    // A softmax outside a loss belongs to attention, whatever its function is called. That function makes the scores too.
    let function = |stack: StackId| function_of(&p.recording.stacks, stack);
    let is_softmax = |stack: StackId| p.flags(stack) & (SOFTMAX | LOSS) == SOFTMAX && p.roles.anatomy.phases.is_in_module(stack);
    let all = p.recording.stacks.ids();
    let of_fused: FxHashSet<_> = all.filter(|&stack| p.flags(stack) & FUSED != 0).filter_map(function).collect();
    let live = p.at_peak.blocks.iter().map(|b| stack_of(b.lifetime));
    let of_softmax: FxHashSet<_> = live.filter(|&stack| is_softmax(stack)).filter_map(function).collect();
    let has_name = |id: LifetimeId| p.roles.anatomy.phases.is_attention(stack_of(id));
    let is_attention = |id: LifetimeId| {
        let function = function(stack_of(id));
        let is_fused = function.is_some_and(|f| of_fused.contains(&f));
        let flags = p.flags(stack_of(id));
        let is_operand = flags & OPERAND == OPERAND || flags & (LINEAR | CONVOLVES) != 0;
        is_of_pass(id) && !is_fused && !is_operand && (has_name(id) || function.is_some_and(|f| of_softmax.contains(&f)))
    };
    // Scores, mask, softmax and dropout have one size, while other tensors of an attention layer have many. If only one line
    // keeps them, it is the softmax; autocast keeps a copy of half the size.
    let mut stacks_of: FxHashMap<u64, FxHashSet<StackId>> = FxHashMap::default();
    for b in held(p, |b| b.requested >= MEBIBYTE && is_attention(b.lifetime)).0 {
        stacks_of.entry(b.requested).or_default().insert(stack_of(b.lifetime));
    }
    let is_named = |stack: &StackId| p.roles.anatomy.phases.is_attention(*stack);
    // A trace names the operators: the first that makes scores is a product. Rotary embeddings also make two tensors of one size.
    let is_trace = p.recording.source.format == Format::KinetoTrace;
    let is_product = |stack: &StackId| !is_trace || p.flags(*stack) & MULTIPLIES != 0;
    let is_scores = |stacks: &FxHashSet<StackId>| {
        let are_named = || stacks.iter().filter(|stack| is_named(stack)).count() >= 2 && stacks.iter().any(is_product);
        // If the same function has a softmax of another size, these are its queries, keys or values.
        let has_softmax = || stacks.iter().any(|&stack| function(stack).is_some_and(|f| of_softmax.contains(&f)));
        // Graph attention adds the compared values and applies an activation function; no fused kernel computes that.
        let is_additive = stacks.iter().any(|&stack| is_in_activation(p, stack));
        !is_additive && (stacks.iter().any(|&stack| is_softmax(stack)) || (are_named() && !has_softmax()))
    };
    // If one function makes several sizes, names do not distinguish scores from queries, keys and values. A cast halves a size.
    let largest = |of: FxHashMap<u64, FxHashSet<StackId>>| {
        let found: Vec<(u64, bool)> = of
            .into_iter()
            .filter(|(_, s)| is_scores(s))
            .map(|(size, s)| (size, s.iter().any(|&stack| is_softmax(stack))))
            .collect();
        let (largest, is_sure) = found.iter().copied().max()?;
        let is_same = |other: u64| [largest, largest / 2].contains(&other);
        (is_sure || is_trace || found.iter().all(|&(size, _)| is_same(size))).then_some(largest)
    };
    // During the backward pass of a layer, most of its scores are freed and gradients of the same size exist.
    let of_step = || {
        let mut stacks_of: FxHashMap<u64, FxHashSet<StackId>> =
            stacks_of.keys().map(|&size| (size, FxHashSet::default())).collect();
        let step = p.steps.of(p.peak_event);
        let in_step = |&id: &LifetimeId| p.steps.of(lifetimes.born(id)) == step;
        for id in lifetimes.ids().filter(in_step) {
            if let Some(stacks) = stacks_of.get_mut(&p.requested(id)).filter(|_| is_attention(id)) {
                stacks.insert(stack_of(id));
            }
        }
        stacks_of
    };
    let size = largest(stacks_of.clone()).or_else(|| largest(of_step()))?;
    // Without autocast, nothing makes copies of half the size; such blocks are tensors of another shape.
    let casts = (0..lifetimes.len() as u32).any(|id| p.roles.of(LifetimeId(id)) == Role::AutocastCopies);
    // If a layer's queries are as large as its scores, only a softmax distinguishes them.
    let mut known: FxHashMap<StackId, bool> = FxHashMap::default();
    let is_layer = |id: LifetimeId| {
        let stack = stack_of(id);
        p.requested(id) == size
            && p.flags(stack) & (LINEAR | CONVOLVES) != 0
            && is_of_pass(id)
            && *known.entry(stack).or_insert_with(|| function(stack).is_some_and(|f| of_softmax.contains(&f)))
    };
    let is_ambiguous = !of_softmax.is_empty() && lifetimes.ids().any(is_layer);
    // The graph of the pass before the recording keeps as many, without a stack.
    let is_score = |id: LifetimeId| {
        let requested = p.requested(id);
        if is_ambiguous {
            return requested == size && is_of_pass(id) && is_softmax(stack_of(id));
        }
        let is_older = requested == size && p.roles.is_of_older_graph(id);
        is_older || ((requested == size || (casts && requested == size / 2)) && is_attention(id))
    };
    let (blocks, bytes) = much(p, |b| is_score(b.lifetime))?;
    // The backward pass makes blocks of the same size, without a Python stack.
    let is_way_back = |id: LifetimeId| {
        !is_ambiguous
            && p.requested(id) == size
            && p.roles.of(id) == Role::Temporaries
            && p.roles.anatomy.phases.of(id) == Some(Phase::Backward)
    };
    let (remedy, advice) = match blocks.iter().any(|b| p.flags_of(b.lifetime) & MATH != 0) {
        true => (
            "with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):  # torch.nn.attention",
            "The program calls scaled_dot_product_attention already, but it runs without a fused kernel. Inside this block PyTorch warns why none can be used. Usual reasons: float32 with a head size that no kernel has, a mask that needs a gradient, deterministic algorithms.",
        ),
        false => (
            "torch.nn.functional.scaled_dot_product_attention(q, k, v)",
            "Scores are batch times heads times length squared. Fused attention (scaled_dot_product_attention, FlashAttention, attn_implementation=\"sdpa\" in Transformers) computes the same without them; is_causal=True where no position sees a later one.",
        ),
    };
    Finding::new("attention_scores", Class::Peak, "Attention scores take a large share", bytes)
        .says(format!(
            "{} at the peak {} attention scores, made at {}.{}",
            match blocks.len() {
                1 => format!("1 block of {}", Bytes(size)),
                more => format!("{} blocks of up to {} each", count(more as u64), Bytes(size)),
            },
            if blocks.len() == 1 { "is" } else { "are" },
            lines(p, &blocks),
            match held(p, |b| is_way_back(b.lifetime)).0.len() {
                0 => String::new(),
                more => format!(" The backward pass holds {} of that size.", counted(more as u64, "block", "blocks")),
            },
        ))
        .saves("With fused attention", saving(p, |id, bytes| if is_score(id) || is_way_back(id) { 0 } else { bytes }))
        .bytes_of("scores and copies of them", bytes)
        .bytes_of("peak", peak(p))
        .at(place(p, &blocks))
        .remedy(remedy)
        .advice(advice)
        .check("No block grows with the square of the length.")
}

/// Reports a written-out elementwise formula, such as a GELU in Python, that keeps at least three tensors of one size per layer.
pub(super) fn written_out(p: &RuleInput<'_>) -> Option<Finding> {
    // A profiler trace names the line where a function begins, so all its lines look like one. An unused graph has its own rule.
    if p.recording.source.format == Format::KinetoTrace || keeps_unused_graph(p) {
        return None;
    }
    let lifetimes = &p.tables.lifetimes;
    let (activations, _) = of_role(p, Role::Activations);
    let layers = Layers::of(p, &activations)?;
    let stack_of = |id: LifetimeId| lifetimes.stack(p.device, id);
    // Attention and the loss have their own rules.
    let line = |stack: StackId| {
        let has_rule = p.roles.anatomy.phases.is_attention(stack) || p.flags(stack) & LOSS != 0;
        if has_rule { None } else { line_of(&p.recording.stacks, stack).filter(|&line| computes(p, stack, line)) }
    };
    // A line called from several places of a layer, such as that of a hand-written Linear, is a separate operation at each.
    let call = |stack: StackId| {
        let line = line(stack)?;
        let frames = p.recording.stacks.frames(stack);
        frames.iter().position(|&f| f == line).map(|at| &frames[at..])
    };
    // Graphs of several steps are a leak, which has its own rule.
    let mut by_call: FxHashMap<_, u64> = FxHashMap::default();
    for b in &activations {
        let stack = stack_of(b.lifetime);
        let runs = layers.runs(stack);
        if let Some(call) = call(stack).filter(|_| runs > 1) {
            *by_call.entry((call, b.size, runs, step_of(p, b.lifetime))).or_default() += 1;
        }
    }
    let most = by_call.into_iter().filter(|((_, _, runs, _), n)| n / runs >= 3);
    let most = most.max_by_key(|&((call, size, _, step), n)| (n * size, call, step));
    let ((frames, size, runs, step), _) = most?;
    let is_its = |id: LifetimeId| p.roles.of(id) == Role::Activations && call(stack_of(id)) == Some(frames);
    let (blocks, bytes) = much(p, |b| step_of(p, b.lifetime) == step && is_its(b.lifetime))?;
    // An elementwise formula has tensors of one size; autocast doubles or halves it. Other sizes, as in attention, exclude one.
    if blocks.iter().any(|b| ![size / 2, size, size * 2].contains(&b.size)) {
        return None;
    }
    // A line that makes one tensor per execution, such as `h = F.relu(h)` in a loop over layers, is already a single operation.
    let (mut made, mut executions, mut was_its) = (0, 0, false);
    for id in lifetimes.recorded_ids().filter(|&id| step_of(p, id) == step) {
        let is_line = call(stack_of(id)) == Some(frames);
        executions += usize::from(is_line && !was_its);
        made += usize::from(is_line && is_its(id));
        was_its = is_line;
    }
    if made < 2 * executions {
        return None;
    }
    // The layer that runs at that moment may have freed some.
    let tensors = (blocks.len() as u64).div_ceil(runs);
    let smallest = blocks.iter().map(|b| b.size).min().unwrap_or(size);
    let each = match smallest == size {
        true => format!("of {}", Bytes(size)),
        false => format!("of up to {}", Bytes(blocks[0].size)),
    };
    // The fused operation keeps only its input.
    let share = (smallest * runs) as f64 / bytes as f64;
    let fused = |id: LifetimeId, block: u64| if is_its(id) { (block as f64 * share) as u64 } else { block };
    Finding::new("written_out", Class::Peak, &format!("One line keeps {tensors} tensors in each layer"), bytes)
        .says(format!(
            "{} keeps {} for the backward pass: {tensors} tensors {each} in each of {runs} layers.",
            made_at(p, blocks[0].lifetime),
            Bytes(bytes),
        ))
        .saves("With one fused operation", saving(p, fused))
        .bytes_of("kept by the line", bytes)
        .bytes_of("peak", peak(p))
        .at(place(p, &blocks))
        .advice("A formula in Python keeps a tensor for each of its operations. Use the operation PyTorch has for it (for a GELU: activation_function=\"gelu_pytorch_tanh\" in Transformers, torch.nn.functional.gelu), or torch.compile.")
        .check("The line keeps one tensor a layer.")
}

/// True inside one of PyTorch's activation functions.
fn is_in_activation(p: &RuleInput<'_>, stack: StackId) -> bool {
    const NAMES: [&str; 5] = ["leaky_relu", "relu", "elu", "tanh", "sigmoid"];
    let stacks = &p.recording.stacks;
    let mut frames = stacks.frames(stack).iter().filter_map(|&f| stacks.frame(f));
    frames.any(|f| NAMES.contains(&stacks.text(f.name)) && is_of_operators(stacks.text(f.file)))
}

/// True for a line that calls operators directly, not a PyTorch module that runs several.
fn computes(p: &RuleInput<'_>, stack: StackId, line: FrameId) -> bool {
    let stacks = &p.recording.stacks;
    let inside = stacks.frames(stack).iter().take_while(|&&f| f != line).filter_map(|&f| stacks.frame(f));
    !inside.map(|f| stacks.text(f.file)).any(|file| file.contains("torch/nn/modules/"))
}

/// True if the capture of a CUDA graph released the segments: `torch.cuda.graph` empties the cache when it begins.
pub(super) fn is_capture(p: &RuleInput<'_>, event: u32) -> bool {
    let phases = &p.roles.anatomy.phases;
    let stack = p.device.events.stack.get(event as usize).copied().unwrap_or(StackId::NONE);
    phases.captures(stack) || phases.at(event) == Some(Phase::Capture)
}
