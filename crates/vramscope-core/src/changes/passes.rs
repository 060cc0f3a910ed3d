//! Changes to what the forward pass keeps for the backward pass.

use std::ops::RangeInclusive;

use rustc_hash::{FxHashMap, FxHashSet};

use super::draft::{Draft, Draw, Edits, Pass};
use super::repeats::{Instance, MOST_NAMES, NOTHING_REPEATS, find};
use super::requests::{NEVER, Requests};
use crate::anatomy::Phase;
use crate::anatomy::Role;
use crate::inference::scripted::Ask;
use crate::model::FrameId;
use crate::tables::naming::is_framework;

/// Checkpoints a repeated module: its inner activations are freed at the end of each call and made again before the backward pass
/// of that call. Returns the line that calls the module, and the number of calls. The error says why there is no such module.
pub(super) fn checkpoint(draft: &mut Draft<'_>, name: Option<&str>) -> Result<(String, usize), String> {
    let steps = steps(draft);
    let mut edits = Edits::default();
    if name.is_none() && is_checkpointed(draft) {
        return Err(CHECKPOINTED.to_owned());
    }
    let (mut told, mut most) = (Err(NOTHING_REPEATS.to_owned()), 0);
    let (mut bytes, mut requests, mut open) = (0, 0, 0);
    for pass in steps.clone().flat_map(|step| draft.passes(step)) {
        let found = match find(draft, pass, name) {
            Ok(found) => found,
            Err(why) => {
                told = told.or(Err(why));
                continue;
            }
        };
        let last_step = pass.step == *steps.end();
        let saves_result = saves_its_result(draft, &found.instances);
        let begins = backward_of(draft, pass, &found.instances, saves_result);
        // Autocast keeps its copies until its context ends, and frees then those that nothing else holds. If the backward pass
        // frees the first of them, the graph holds all, and the context ended earlier.
        let (first, last) = pass.forward;
        let is_copy = |r: &Draw| r.role == Role::AutocastCopies && (first..=last).contains(&r.born);
        let of_autocast = draft.of_step(pass.step, |r| is_copy(r) && r.freed != NEVER && r.freed > last);
        let first_freed = of_autocast.iter().map(|&r| draft.rows[r as usize].freed).min();
        let context_end = first_freed.map(|at| match pass.backward {
            Some((begin, end)) if (begin..=end).contains(&at) => begin,
            _ => at,
        });
        // Part of the program may have run its backward pass before.
        let over = found.instances.last().map_or(0, |last| last.end);
        let has_backward = pass.backward.is_some_and(|(_, last)| last >= over);
        let last_layer = found.instances.len().saturating_sub(1);
        let mut unreached = Vec::new();
        for (i, (instance, &begin)) in found.instances.iter().zip(&begins).enumerate() {
            let is_kept_whole = || instance.inner.iter().all(|&row| draft.rows[row as usize].freed == NEVER);
            let Some(begin) = begin.filter(|_| has_backward) else {
                // The recording ends before the backward pass of this layer. That pass would recompute one layer at a time; the
                // last layer's blocks are kept to represent that.
                unreached.push(i);
                if i < last_layer && (!has_backward || (last_step && is_kept_whole())) {
                    for &row in &instance.inner {
                        edits.free_at(draft, row, instance.end);
                        bytes += draft.size(row);
                        requests += 1;
                    }
                }
                continue;
            };
            // Nothing is allocated between a call and one that it passes its result to.
            let next = found.instances.get(i + 1).and_then(|next| next.all.first()).map(|&row| draft.rows[row as usize].born);
            let is_passed_on = |&row: &u32| next.is_some_and(|at| at == instance.end && draft.rows[row as usize].freed > at);
            if let Some(input) = instance.dropped.filter(is_passed_on) {
                edits.free_at(draft, input, begin);
            }
            let is_kept = |row: u32| instance.inner.contains(&row) || (saves_result && instance.result == Some(row));
            // Recomputation stops after the last tensor that the backward pass needs.
            let stop = instance.all.iter().rposition(|&row| is_kept(row)).map_or(0, |at| at + 1);
            let freed_at = freed_without_graph(draft, instance);
            // A result that the call itself saves is recomputed too. The first copy is freed when the next call, or the code
            // after the last call, no longer needs it.
            if let Some(result) = instance.result.filter(|&r| saves_result && freed(draft, r).is_some()) {
                let is_last = i + 1 == found.instances.len();
                let at = if is_last && !draft.is_late { behind_next_request(draft, instance.end).min(begin) } else { begin };
                edits.free_at(draft, result, at);
            }
            open = instance.all.iter().map(|&row| draft.size(row)).fold(open, u64::max);
            let again = edits.run_again(draft, &instance.all[..stop], begin, is_kept);
            for ((&row, again), over) in instance.all[..stop].iter().zip(again).zip(freed_at) {
                if last_step {
                    bytes += draft.size(row);
                    requests += 1;
                }
                if !is_kept(row) {
                    continue;
                }
                let freed = draft.rows[row as usize].freed;
                if instance.result != Some(row) {
                    let is_copy = draft.rows[row as usize].role == Role::AutocastCopies;
                    edits.free_at(draft, row, context_end.filter(|_| is_copy).unwrap_or(over));
                }
                if freed != NEVER {
                    edits.free_again(again, freed);
                }
            }
        }
        if last_step {
            run_largest_again(draft, &found.instances, &unreached, &mut edits);
        }
        if told.is_err() || found.saved >= most {
            // A pass without a graph, such as a teacher's, calls the same layers and keeps nothing.
            let keeps = found.instances.iter().filter(|call| !call.inner.is_empty()).count();
            told = Ok((found.place, keeps));
            most = found.saved;
        }
    }
    draft.apply(edits);
    draft.recomputed += bytes;
    draft.again += requests;
    draft.open = draft.open.max(open);
    told
}

/// The backward pass that the recording does not reach would recompute one layer after the other, from the last one. At the end of the
/// recording comes the layer where most is held then: its own blocks, and the results of the layers before it.
fn run_largest_again(draft: &Draft<'_>, instances: &[Instance], unreached: &[usize], edits: &mut Edits) {
    let is_held = |row: &u32| draft.rows[*row as usize].freed == NEVER;
    let inner = |i: usize| instances[i].inner.iter().copied().filter(is_held);
    let bytes = |rows: &mut dyn Iterator<Item = u32>| rows.map(|row| draft.size(row)).sum::<u64>();
    let mut results = 0;
    let most = unreached.iter().copied().enumerate().max_by_key(|&(_, i)| {
        results += bytes(&mut instances[i].result.into_iter().filter(is_held));
        results + bytes(&mut inner(i))
    });
    let Some((at, largest)) = most.filter(|&(at, _)| at + 1 < unreached.len()) else { return };
    let end = draft.asks.len() as u32;
    for &later in &unreached[at + 1..] {
        instances[later].result.into_iter().filter(is_held).chain(inner(later)).for_each(|row| edits.free_at(draft, row, end));
    }
    for row in inner(largest) {
        edits.make_again(draft, row, end);
    }
}

/// The steps to change: all after the first stretch, or the only one.
fn steps(draft: &Draft<'_>) -> RangeInclusive<u32> {
    let first = u32::from(draft.program.steps > 0);
    first..=draft.steps().max(first)
}

/// Why checkpointing does nothing if it is already in use.
const CHECKPOINTED: &str = "the program checkpoints already: torch.utils.checkpoint is in its stacks";

/// True if most blocks of the last step's forward pass are made inside a checkpoint, or recomputed in the backward pass.
fn is_checkpointed(draft: &Draft<'_>) -> bool {
    let stacks = draft.program.stacks;
    let mut known: FxHashMap<FrameId, bool> = FxHashMap::default();
    let mut is_inside = |row: u32| {
        let frames = stacks.frames(draft.program.rows[draft.rows[row as usize].of as usize].stack);
        frames.iter().any(|&f| {
            *known.entry(f).or_insert_with(|| {
                stacks.frame(f).is_some_and(|frame| stacks.text(frame.file).ends_with("torch/utils/checkpoint.py"))
            })
        })
    };
    let passes = |phase: Phase| matches!(phase, Phase::Forward | Phase::Backward);
    let of_steps = draft.which(|r| passes(r.phase) && r.born != NEVER);
    let has_stack = |row: &u32| draft.program.rows[draft.rows[*row as usize].of as usize].stack.is_some();
    let of_python: Vec<u32> = of_steps.into_iter().filter(has_stack).collect();
    let bytes = |rows: &[u32]| rows.iter().map(|&row| draft.size(row)).sum::<u64>();
    let inside: Vec<u32> = of_python.iter().copied().filter(|&row| is_inside(row)).collect();
    bytes(&inside) > 0 && bytes(&inside) * 2 >= bytes(&of_python)
}

/// Why no pass has a module of this name, with the existing names. `None` if one has it, or if nothing repeats at all.
pub(super) fn no_such_module(draft: &Draft<'_>, name: &str) -> Option<String> {
    let passes = steps(draft).flat_map(|step| draft.passes(step));
    let found: Vec<_> = passes.map(|pass| find(draft, pass, Some(name)).err()).collect();
    if found.iter().any(Option::is_none) {
        return None;
    }
    found.into_iter().flatten().find(|why| why != NOTHING_REPEATS)
}

/// Why no request comes from this line, with the lines that request most bytes.
pub(super) fn no_such_line(program: Requests<'_>, line: &str) -> Option<String> {
    let stacks = program.stacks;
    let mut bytes: FxHashMap<String, u64> = FxHashMap::default();
    for row in program.rows {
        let frames = stacks.frames(row.stack).iter().filter_map(|&f| stacks.frame(f));
        let lines: Vec<_> = frames.filter(|f| stacks.text(f.file).ends_with(".py")).collect();
        if lines.iter().any(|&f| stacks.location(f).ends_with(line)) {
            return None;
        }
        for frame in lines.into_iter().filter(|&f| !is_framework(stacks, f)) {
            *bytes.entry(stacks.location(frame)).or_default() += row.size;
        }
    }
    let mut lines: Vec<(String, u64)> = bytes.into_iter().collect();
    lines.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    let lines: Vec<String> = lines.into_iter().take(MOST_NAMES).map(|(line, _)| line).collect();
    let can = if lines.is_empty() { String::new() } else { format!("; lines that can be named: {}", lines.join(", ")) };
    Some(format!("no allocation was made at a line '{line}'{can}"))
}

/// Where the backward pass of each instance begins: where that of the next instance ends.
fn backward_of(draft: &Draft<'_>, pass: Pass, instances: &[Instance], saves_result: bool) -> Vec<Option<u32>> {
    let freed = |row: u32| freed(draft, row);
    let frees: Vec<Vec<u32>> = instances.iter().map(|i| i.inner.iter().filter_map(|&r| freed(r)).collect()).collect();
    (0..instances.len())
        .map(|i| {
            let first_inner = *frees[i].iter().min()?;
            let result = instances[i].result;
            // A recomputed block must exist before its free.
            let first = result.filter(|_| saves_result).and_then(freed).map_or(first_inner, |f| f.min(first_inner));
            let after = frees.get(i + 1).and_then(|f| f.iter().filter(|&&f| f < first).max()).map(|f| f + 1);
            // The next call needs the result until the end of its own backward pass.
            let of_result = result.and_then(|r| if saves_result { last_request(draft, r) } else { freed(r).map(|f| f + 1) });
            let of_result = of_result.filter(|&at| at <= first);
            Some(after.max(of_result).unwrap_or_else(|| after_the_rest(draft, pass, &instances[i], first)))
        })
        .collect()
}

/// Where the backward pass of the last call begins: after the last free of blocks kept by the rest of the forward pass, and before
/// the call's own first free at `first`. An operator that keeps nothing, such as a mean, may make the result's gradient there.
fn after_the_rest(draft: &Draft<'_>, pass: Pass, instance: &Instance, first: u32) -> u32 {
    let Some(&last) = instance.all.last() else { return first };
    let result = draft.size(last);
    let from = pass.backward.map_or(first, |(from, _)| from).min(first);
    let own: FxHashSet<u32> = instance.all.iter().copied().collect();
    let is_of_rest = |at: u32| match draft.asks[at as usize] {
        Ask::Free(row) | Ask::FreeLater(row) => {
            draft.rows.get(row as usize).is_some_and(|r| r.phase == Phase::Forward && r.step == pass.step) && !own.contains(&row)
        }
        _ => false,
    };
    let begin = (from..first).rev().find(|&at| is_of_rest(at)).map_or(from, |at| at + 1);
    let request = |at: u32| if let Ask::Alloc(row) = draft.asks[at as usize] { Some(row) } else { None };
    let is_gradient = |row: u32| draft.size(row) == result && freed(draft, row).is_none_or(|f| f >= begin);
    if (from..begin).filter_map(request).any(is_gradient) {
        return begin;
    }
    match (begin..first).find(|&at| request(at).is_some_and(|row| draft.size(row) >= result)) {
        Some(at) if request(at).is_some_and(|row| draft.size(row) == result) => at + 1,
        _ => begin,
    }
}

/// The position of the second request from `from` on.
fn behind_next_request(draft: &Draft<'_>, from: u32) -> u32 {
    let is_request = |at: &u32| matches!(draft.asks[*at as usize], Ask::Alloc(_));
    (from..draft.asks.len() as u32).filter(is_request).nth(1).unwrap_or(draft.asks.len() as u32)
}

/// Where a row is freed; `None` if never.
fn freed(draft: &Draft<'_>, row: u32) -> Option<u32> {
    Some(draft.rows[row as usize].freed).filter(|&f| f != NEVER)
}

/// True if most calls save their own result, like a block that ends with a ReLU: its backward pass makes a gradient of the same
/// size, then frees the result. While the next call's backward pass still runs, a free belongs to that call.
fn saves_its_result(draft: &Draft<'_>, instances: &[Instance]) -> bool {
    let saves = |(i, instance): (usize, &Instance)| {
        let result = instance.result?;
        let last = last_request(draft, result)?;
        let Ask::Alloc(gradient) = draft.asks[last as usize] else { return None };
        let is_over = |next: &Instance| next.inner.iter().filter_map(|&r| freed(draft, r)).all(|at| at < last);
        Some(draft.size(gradient) == draft.size(result) && instances.get(i + 1).is_none_or(is_over))
    };
    let of: Vec<bool> = instances.iter().enumerate().filter_map(saves).collect();
    of.iter().filter(|saves| **saves).count() * 2 > of.len()
}

/// For each block of a call, where it is freed if no graph keeps it: when the operator after the next one begins, as for a
/// variable that is overwritten; or at the end of the call.
fn freed_without_graph(draft: &Draft<'_>, instance: &Instance) -> Vec<u32> {
    // The index of the first row of each operator.
    let begins: Vec<usize> = (0..instance.all.len()).filter(|&i| i == 0 || instance.lines[i] != instance.lines[i - 1]).collect();
    let after_next = |i: usize| {
        let operator = begins.partition_point(|&b| b <= i);
        begins.get(operator + 1).map_or(instance.end, |&b| draft.rows[instance.all[b] as usize].born)
    };
    (0..instance.all.len()).map(|i| if draft.is_late { instance.end } else { after_next(i) }).collect()
}

/// The position of the last request before the row is freed.
fn last_request(draft: &Draft<'_>, row: u32) -> Option<u32> {
    let freed = Some(draft.rows[row as usize].freed).filter(|&f| f != NEVER)?;
    (0..freed).rev().find(|&at| matches!(draft.asks[at as usize], Ask::Alloc(_)))
}

/// Saved tensors move to the host as soon as they are made, and return when the backward pass uses them.
pub(super) fn offload(draft: &mut Draft<'_>) {
    let last = draft.steps();
    let saved = draft.which(|r| {
        matches!(r.role, Role::Activations | Role::AutocastCopies) && r.born != NEVER && r.freed != NEVER && !r.is_short()
    });
    let mut edits = Edits::default();
    for row in saved {
        let r = draft.rows[row as usize];
        if r.step == last {
            draft.moved += 2 * draft.size(row);
        }
        // A tensor stays until the operators that read it next have run.
        edits.free_at(draft, row, (r.born + 8).min(r.freed));
        let again = edits.make_again(draft, row, r.freed.saturating_sub(2));
        edits.free_again(again, r.freed);
    }
    draft.apply(edits);
}

/// Computes the loss in chunks: logits and the tensors made from them exist for one part at a time. False if no logits are found.
pub(super) fn chunks(draft: &mut Draft<'_>, chunks: u32) -> bool {
    let last = draft.steps();
    let mut is_any = false;
    let mut edits = Edits::default();
    let passes: Vec<Pass> = (u32::from(draft.program.steps > 0)..=last).flat_map(|step| draft.passes(step)).collect();
    for pass in passes {
        let (step, (from, end)) = (pass.step, pass.forward);
        // The first pass also makes the libraries' workspaces.
        let is_of_pass = |role: Role| !matches!(role, Role::Weights | Role::OptimizerState | Role::Workspaces);
        let is_in = |born: u32| (from..=end).contains(&born);
        let forward = draft.of_step(step, |r| r.phase == Phase::Forward && is_in(r.born) && is_of_pass(r.role));
        let most = forward.iter().map(|&r| draft.size(r)).max().unwrap_or(0);
        // Logits come last in the forward pass, and nothing else there is as large.
        let tail = from + (end - from) * 4 / 5;
        let is_large = |d: &Draft<'_>, r: u32| d.size(r) * 5 >= most * 2;
        let at_the_end: Vec<u32> =
            forward.iter().copied().filter(|&r| draft.rows[r as usize].born >= tail && is_large(draft, r)).collect();
        let elsewhere = forward.iter().any(|&r| draft.rows[r as usize].born < tail && is_large(draft, r));
        if elsewhere || at_the_end.is_empty() {
            continue;
        }
        is_any = true;
        let back = pass.backward.map_or(end, |(first, stop)| first + (stop - first) / 10);
        let gradients = draft.of_step(step, |r| {
            matches!(r.phase, Phase::Backward | Phase::Between)
                && (end..=back).contains(&r.born)
                && is_of_pass(r.role)
                && r.role != Role::Gradients
        });
        let large: Vec<u32> = gradients.into_iter().filter(|&r| is_large(draft, r)).collect();
        // The last layer's gradient is a sum over the parts, so it exists from the first part on.
        let of_head =
            draft.of_step(step, |r| r.role == Role::Gradients && r.phase == Phase::Backward && (end..=back).contains(&r.born));
        if let Some(&head) = of_head.iter().max_by_key(|&&r| draft.size(r)) {
            let born = draft.rows[head as usize].born;
            // Place it after the first request of the backward pass, which other code takes as the beginning of the pass.
            let begin = pass.backward.map_or(end, |(first, _)| first);
            let sum = edits.make_again(draft, head, begin + 1);
            edits.free_again(sum, born + 1);
        }
        for row in at_the_end.into_iter().chain(large) {
            if step == last {
                draft.recomputed += draft.size(row);
                draft.again += u64::from(chunks);
            }
            let part = &mut draft.rows[row as usize].part;
            part.1 = part.1.saturating_mul(chunks);
        }
    }
    draft.apply(edits);
    is_any
}

/// Autocast without its cache: each copy is freed right after its use. False if a graph keeps one for a backward pass.
pub(super) fn cache_off(draft: &mut Draft<'_>) -> bool {
    let copies = draft.which(|r| r.role == Role::AutocastCopies && r.born != NEVER);
    let in_graph = steps_of_unused_graph(draft, &copies);
    let mut edits = Edits::default();
    let mut is_any = false;
    for row in copies {
        let r = draft.rows[row as usize];
        let is_kept = draft.reach(r.step, Phase::Backward).is_some_and(|(first, _)| r.freed >= first);
        if !is_kept && !in_graph.contains(&r.step) && r.freed > r.born + 3 {
            is_any = true;
            edits.free_at(draft, row, r.born + 3);
        }
    }
    draft.apply(edits);
    is_any
}

/// The steps in which a graph keeps autocast's copies: at least half as many other tensors of
/// the forward pass as there are copies live as long as the first copy that is freed.
fn steps_of_unused_graph(draft: &Draft<'_>, copies: &[u32]) -> FxHashSet<u32> {
    let mut of_step: FxHashMap<u32, (u32, usize)> = FxHashMap::default();
    for &row in copies {
        let r = draft.rows[row as usize];
        let (first, number) = of_step.entry(r.step).or_insert((r.freed, 0));
        *first = (*first).min(r.freed);
        *number += 1;
    }
    let mut kept: FxHashMap<u32, usize> = FxHashMap::default();
    // If no backward pass follows, blocks in a graph may look like temporaries, but they live as long.
    let is_of_pass = |role: Role| matches!(role, Role::Activations | Role::Temporaries);
    for row in draft.which(|r| is_of_pass(r.role) && r.phase == Phase::Forward && r.born != NEVER) {
        let r = draft.rows[row as usize];
        if of_step.get(&r.step).is_some_and(|&(first, _)| r.born < first && r.freed >= first) {
            *kept.entry(r.step).or_default() += 1;
        }
    }
    of_step
        .into_iter()
        .filter(|(step, (_, number))| kept.get(step).is_some_and(|kept| kept * 2 >= *number))
        .map(|s| s.0)
        .collect()
}

/// `del` of the tensors that a line makes, also in functions that it calls, at the end of their phase. False if none outlives it.
pub(super) fn del(draft: &mut Draft<'_>, line: &str) -> bool {
    let program = draft.program;
    let stacks = program.stacks;
    let mut known: FxHashMap<FrameId, bool> = FxHashMap::default();
    let mut is_of_line = |row: u32| {
        let frames = stacks.frames(program.rows[row as usize].stack);
        frames.iter().any(|&f| {
            *known.entry(f).or_insert_with(|| stacks.frame(f).is_some_and(|frame| stacks.location(frame).ends_with(line)))
        })
    };
    let mut edits = Edits::default();
    let mut is_any = false;
    for row in draft.which(|r| r.born != NEVER) {
        let r = draft.rows[row as usize];
        let is_of_loop = matches!(r.role, Role::Activations | Role::Inputs | Role::Temporaries | Role::Unknown);
        if !is_of_loop || !is_of_line(r.of) {
            continue;
        }
        // A block freed by the backward pass may have been needed there; a block that outlives it is held by a variable.
        let needed = if r.role == Role::Activations { draft.reach(r.step, Phase::Backward) } else { None };
        let Some((_, end)) = draft.reach(r.step, r.phase) else { continue };
        if r.freed > end + 1 && needed.is_none_or(|(_, over)| r.freed > over) {
            is_any = true;
            edits.free_at(draft, row, end + 1);
        }
    }
    draft.apply(edits);
    is_any
}
