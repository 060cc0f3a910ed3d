//! Changes to what the forward pass keeps for the backward pass.

use rustc_hash::{FxHashMap, FxHashSet};

use super::draft::{Draft, Edits};
use super::repeats::{Instance, MOST_NAMES, NOTHING_REPEATS, find};
use super::requests::{NEVER, Requests};
use crate::anatomy::Phase;
use crate::anatomy::Role;
use crate::inference::scripted::Ask;
use crate::model::FrameId;
use crate::tables::naming::is_framework;

/// Checkpointing of a module that repeats: its inner activations go at its end, and are made again before its backward pass.
/// The line that calls the module, and how often it does.
///
/// # Errors
/// Why there is no such module.
pub(super) fn checkpoint(draft: &mut Draft<'_>, name: Option<&str>) -> Result<(String, usize), String> {
    let steps = draft.steps().max(u32::from(draft.program.steps > 0));
    let mut edits = Edits::default();
    let mut told = Err(NOTHING_REPEATS.to_owned());
    let (mut bytes, mut requests) = (0, 0);
    for step in u32::from(draft.program.steps > 0)..=steps {
        let found = match find(draft, step, name) {
            Ok(found) => found,
            Err(why) => {
                told = told.or(Err(why));
                continue;
            }
        };
        let last_step = step == steps;
        let saves_result = saves_its_result(draft, &found.instances);
        let begins = backward_of(draft, &found.instances, saves_result);
        // Autocast keeps its copies until its context ends, which is where it frees those that nothing else holds.
        let (_, forward_end) = draft.reach(step, Phase::Forward).unwrap_or_default();
        let of_autocast = draft.of_step(step, |r| r.role == Role::AutocastCopies && r.freed != NEVER && r.freed > forward_end);
        let context_end = of_autocast.iter().map(|&r| draft.rows[r as usize].freed).min();
        // A part of the program may have run backward before.
        let over = found.instances.last().map_or(0, |last| last.end);
        let has_backward = draft.reach(step, Phase::Backward).is_some_and(|(_, last)| last >= over);
        for (i, (instance, begin)) in found.instances.iter().zip(begins).enumerate() {
            if !has_backward {
                // The recording ends before the backward pass, which makes one layer at a time again: the last one stays for it.
                for &row in instance.inner.iter().filter(|_| i + 1 < found.instances.len()) {
                    edits.free_at(draft, row, instance.end);
                    bytes += draft.size(row);
                    requests += 1;
                }
                continue;
            }
            let Some(begin) = begin else { continue };
            let is_kept = |row: u32| instance.inner.contains(&row) || (saves_result && instance.result == Some(row));
            // Recomputing stops where the last tensor is made that the backward pass needs.
            let stop = instance.all.iter().rposition(|&row| is_kept(row)).map_or(0, |at| at + 1);
            let again = edits.run_again(draft, &instance.all[..stop], begin, is_kept);
            for (&row, again) in instance.all[..stop].iter().zip(again) {
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
                    edits.free_at(draft, row, context_end.filter(|_| is_copy).unwrap_or(instance.end));
                }
                if freed != NEVER {
                    edits.free_again(again, freed);
                }
            }
        }
        told = Ok((found.place, found.instances.len()));
    }
    draft.apply(edits);
    draft.recomputed += bytes;
    draft.again += requests;
    told
}

/// Why no step has a module of this name, with those that it has; `None` if one has it, or nothing repeats at all.
pub(super) fn no_such_module(draft: &Draft<'_>, name: &str) -> Option<String> {
    let steps = u32::from(draft.program.steps > 0)..=draft.steps().max(u32::from(draft.program.steps > 0));
    let found: Vec<_> = steps.map(|step| find(draft, step, Some(name)).err()).collect();
    if found.iter().any(Option::is_none) {
        return None;
    }
    found.into_iter().flatten().find(|why| why != NOTHING_REPEATS)
}

/// Why no request comes from this line, with the lines that most bytes come from.
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

/// Where the backward pass of each instance begins: where that of the next one is over.
fn backward_of(draft: &Draft<'_>, instances: &[Instance], saves_result: bool) -> Vec<Option<u32>> {
    let freed = |row: u32| Some(draft.rows[row as usize].freed).filter(|&f| f != NEVER);
    let frees: Vec<Vec<u32>> = instances.iter().map(|i| i.inner.iter().filter_map(|&r| freed(r)).collect()).collect();
    (0..instances.len())
        .map(|i| {
            let first = *frees[i].iter().min()?;
            let after = frees.get(i + 1).and_then(|f| f.iter().filter(|&&f| f < first).max()).map(|f| f + 1);
            // The next call needs the result to the end of its own backward pass.
            let of_result =
                instances[i].result.and_then(|r| if saves_result { last_request(draft, r) } else { freed(r).map(|f| f + 1) });
            let of_result = of_result.filter(|&at| at <= first);
            Some(after.max(of_result).unwrap_or(first.saturating_sub(4)))
        })
        .collect()
}

/// True where most calls save their own result, as a block does that ends with a ReLU: its backward pass begins with a gradient of the same
/// size, and then frees it.
fn saves_its_result(draft: &Draft<'_>, instances: &[Instance]) -> bool {
    let saves = |instance: &Instance| {
        let result = instance.result?;
        let Ask::Alloc(gradient) = draft.asks[last_request(draft, result)? as usize] else { return None };
        Some(draft.size(gradient) == draft.size(result))
    };
    let of: Vec<bool> = instances.iter().filter_map(saves).collect();
    of.iter().filter(|saves| **saves).count() * 2 > of.len()
}

/// Where the last request is made before a row is freed.
fn last_request(draft: &Draft<'_>, row: u32) -> Option<u32> {
    let freed = Some(draft.rows[row as usize].freed).filter(|&f| f != NEVER)?;
    (0..freed).rev().find(|&at| matches!(draft.asks[at as usize], Ask::Alloc(_)))
}

/// Saved tensors go to the host as soon as they are made, and come back where the backward pass uses them.
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
        // It stays until the operators that read it next have run.
        edits.free_at(draft, row, (r.born + 8).min(r.freed));
        let again = edits.make_again(draft, row, r.freed.saturating_sub(2));
        edits.free_again(again, r.freed);
    }
    draft.apply(edits);
}

/// The loss in chunks: logits and what is made of them, one part at a time. False where no logits are found.
pub(super) fn chunks(draft: &mut Draft<'_>, chunks: u32) -> bool {
    let last = draft.steps();
    let mut is_any = false;
    let mut edits = Edits::default();
    for step in u32::from(draft.program.steps > 0)..=last {
        let Some((from, end)) = draft.reach(step, Phase::Forward) else { continue };
        // The first pass makes the libraries' workspaces too.
        let is_of_pass = |role: Role| !matches!(role, Role::Weights | Role::OptimizerState | Role::Workspaces);
        let forward = draft.of_step(step, |r| r.phase == Phase::Forward && r.born != NEVER && is_of_pass(r.role));
        let most = forward.iter().map(|&r| draft.size(r)).max().unwrap_or(0);
        // Logits come last in the forward pass, and nothing there is as large.
        let tail = from + (end - from) * 4 / 5;
        let is_large = |d: &Draft<'_>, r: u32| d.size(r) * 5 >= most * 2;
        let at_the_end: Vec<u32> =
            forward.iter().copied().filter(|&r| draft.rows[r as usize].born >= tail && is_large(draft, r)).collect();
        let elsewhere = forward.iter().any(|&r| draft.rows[r as usize].born < tail && is_large(draft, r));
        if elsewhere || at_the_end.is_empty() {
            continue;
        }
        is_any = true;
        let back = draft.reach(step, Phase::Backward).map_or(end, |(first, stop)| first + (stop - first) / 10);
        let gradients = draft.of_step(step, |r| {
            matches!(r.phase, Phase::Backward | Phase::Between)
                && (end..=back).contains(&r.born)
                && is_of_pass(r.role)
                && r.role != Role::Gradients
        });
        let large: Vec<u32> = gradients.into_iter().filter(|&r| is_large(draft, r)).collect();
        // The last layer's gradient is a sum over the parts: it is there from the first part on.
        let of_head = draft.of_step(step, |r| r.role == Role::Gradients && r.phase == Phase::Backward && r.born <= back);
        if let Some(&head) = of_head.iter().max_by_key(|&&r| draft.size(r)) {
            let born = draft.rows[head as usize].born;
            // Behind the first request of the backward pass, which is where others look for its beginning.
            let begin = draft.reach(step, Phase::Backward).map_or(end, |(first, _)| first);
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

/// Autocast without its cache: a copy goes as soon as it was used, unless a graph keeps it for a backward pass. False where one does.
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

/// The steps where a graph keeps autocast's copies: at least half as many tensors of the forward pass live as long as the first copy
/// that is freed.
fn steps_of_unused_graph(draft: &Draft<'_>, copies: &[u32]) -> FxHashSet<u32> {
    let mut of_step: FxHashMap<u32, (u32, usize)> = FxHashMap::default();
    for &row in copies {
        let r = draft.rows[row as usize];
        let (first, number) = of_step.entry(r.step).or_insert((r.freed, 0));
        *first = (*first).min(r.freed);
        *number += 1;
    }
    let mut kept: FxHashMap<u32, usize> = FxHashMap::default();
    // Where no backward pass follows, what a graph keeps may look like temporaries: they live as long all the same.
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

/// `del` of the tensors that a line makes, itself or in functions it calls, at the end of the phase that made them. False if none
/// of them lives longer.
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
        // What the backward pass frees it may have needed; what outlives it is held by a name.
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
