//! Changes that remove unneeded memory: a graph that no backward pass uses, attention scores, results of earlier steps.

use rustc_hash::{FxHashMap, FxHashSet};

use super::draft::{Draft, Draw, Edits};
use super::requests::NEVER;
use crate::anatomy::{Phase, Role, function_of, line_of};
use crate::model::{FrameId, StackId, StackTable};
use crate::units::MEBIBYTE;

/// Forward passes without a backward pass keep no graph: a tensor is freed when its line makes the next one, and at the end of
/// its pass. False if every pass needs its graph.
pub(super) fn no_grad(draft: &mut Draft<'_>) -> bool {
    let mut edits = Edits::default();
    let mut found: FxHashSet<u32> = FxHashSet::default();
    for step in 0..=draft.steps() {
        let is_kept = |r: &Draw| {
            let runs = matches!(r.phase, Phase::Forward | Phase::Evaluation | Phase::Generation);
            draft.program.rows[r.of as usize].is_unneeded && r.born != NEVER && runs
        };
        let mut last: FxHashMap<FrameId, u32> = FxHashMap::default();
        for row in draft.of_step(step, is_kept) {
            let r = draft.rows[row as usize];
            let line = line_of(draft.program.stacks, draft.program.rows[r.of as usize].stack);
            let before = line.and_then(|line| last.insert(line, row));
            if let Some(before) = before.filter(|&before| draft.rows[before as usize].freed > r.born + 1) {
                edits.free_at(draft, before, r.born + 1);
            }
            found.insert(row);
        }
        for row in last.into_values() {
            let r = draft.rows[row as usize];
            if let Some((_, end)) = draft.reach(r.step, r.phase).filter(|(_, end)| r.freed > end + 1) {
                edits.free_at(draft, row, end + 1);
            }
        }
    }
    let is_older = |r: &Draw| r.role == Role::Activations && r.born == NEVER && r.phase == Phase::Load;
    let is_any = !found.is_empty();
    draft.apply(edits);
    if is_any {
        // Leftovers of a pass before the recording are of the same kind.
        draft.rows.iter_mut().filter(|r| is_older(r)).for_each(Draw::drop_it);
    }
    is_any
}

/// Attention in one kernel: no scores, no softmax, mask or dropout of their size, and none of these in the backward pass. False
/// if no stack shows attention scores.
pub(super) fn fused_attention(draft: &mut Draft<'_>) -> bool {
    let program = draft.program;
    let stacks = program.stacks;
    let stack = |r: &Draw| program.rows[r.of as usize].stack;
    let size = |r: &Draw| program.rows[r.of as usize].size;
    let function = |stack: StackId| function_of(stacks, stack);
    let all = || stacks.ids();
    let softmaxes: FxHashSet<StackId> = all().filter(|&stack| is_of_scores(draft, stack)).collect();
    let functions: FxHashSet<_> = softmaxes.iter().filter_map(|&stack| function(stack)).collect();
    let is_of_pass = |r: &&Draw| r.born != NEVER && matches!(r.role, Role::Activations | Role::Temporaries);
    // The scores themselves: a softmax and its input have the same size; autocast keeps a copy of half that size.
    let made = draft.rows.iter().filter(is_of_pass).filter(|r| softmaxes.contains(&stack(r)) && size(r) >= MEBIBYTE);
    let sizes: FxHashSet<u64> = made.map(size).collect();
    // If a layer's queries are as large as its scores, only the softmax distinguishes them.
    let is_layer = |r: &Draw| is_of_layer(stacks, stack(r)) && function(stack(r)).is_some_and(|f| functions.contains(&f));
    let is_ambiguous = draft.rows.iter().filter(|r| sizes.contains(&size(r))).any(is_layer);
    let casts = draft.rows.iter().any(|r| r.role == Role::AutocastCopies);
    let is_score = |r: &Draw| {
        let bytes = size(r);
        if is_ambiguous {
            return is_of_pass(&r) && sizes.contains(&bytes) && softmaxes.contains(&stack(r));
        }
        let is_cast = || casts && (sizes.contains(&(bytes * 2)) || sizes.contains(&(bytes / 2)));
        let is_size = sizes.contains(&bytes) || is_cast();
        let is_made_there = || function(stack(r)).is_some_and(|f| functions.contains(&f)) || softmaxes.contains(&stack(r));
        let is_way_back = || r.phase == Phase::Backward && r.role == Role::Temporaries && sizes.contains(&bytes);
        is_of_pass(&r) && is_size && (is_made_there() || is_way_back())
    };
    let scores: Vec<usize> = (0..draft.rows.len()).filter(|&row| is_score(&draft.rows[row])).collect();
    for &row in &scores {
        draft.rows[row].drop_it();
    }
    !scores.is_empty()
}

/// True for a stack of a linear layer or a convolution.
fn is_of_layer(stacks: &StackTable, stack: StackId) -> bool {
    let is_layer = |file: &str| ["nn/modules/linear.py", "nn/modules/conv.py"].iter().any(|layer| file.ends_with(layer));
    stacks.frames(stack).iter().filter_map(|&f| stacks.frame(f)).any(|f| is_layer(stacks.text(f.file)))
}

/// True for a stack of a softmax inside an attention module or function, not of a loss and not of a fused kernel.
fn is_of_scores(draft: &Draft<'_>, stack: StackId) -> bool {
    let stacks = draft.program.stacks;
    let frames = || stacks.frames(stack).iter().filter_map(|&f| stacks.frame(f));
    let attends = |name: &str| name.contains("attention") || name.contains("attn");
    let is_inside = || frames().any(|f| stacks.text(f.file).ends_with("nn/modules/module.py") || attends(stacks.text(f.name)));
    let names = || frames().map(|f| stacks.text(f.name));
    // The name of a program's own function may contain the kernel's name.
    let is_fused = |name: &str| name.split("::").any(|part| part.starts_with("_scaled_dot_product_"));
    let is_other = |name: &str| is_fused(name) || ["log_softmax", "cross_entropy", "loss"].iter().any(|n| name.contains(n));
    names().any(|name| name.contains("softmax")) && !names().any(is_other) && is_inside()
}

/// Blocks that a line leaves behind in most steps, and that live through the whole next step, are freed at the end of their own
/// step. False if they are less than a hundredth of what a step makes.
pub(super) fn release(draft: &mut Draft<'_>) -> bool {
    const PART: u64 = 100;
    let steps = draft.steps();
    let ends: Vec<u32> = (0..=steps)
        .map(|step| {
            let rows = draft.of_step(step, |r| r.born != NEVER);
            rows.into_iter().map(|row| draft.rows[row as usize].born).max().unwrap_or(0)
        })
        .collect();
    let mut of_line: FxHashMap<u64, Vec<u32>> = FxHashMap::default();
    let mut all = 0;
    for step in 1..steps {
        // A cache has to stay.
        let is_left = |r: &Draw| {
            let comes_and_goes = matches!(r.role, Role::Activations | Role::Temporaries | Role::Inputs);
            comes_and_goes && r.born != NEVER && r.freed > ends[step as usize + 1]
        };
        for row in draft.of_step(step, is_left) {
            of_line.entry(draft.program.rows[draft.rows[row as usize].of as usize].key).or_default().push(row);
        }
        all = all.max(draft.of_step(step, |r| r.born != NEVER).into_iter().map(|row| draft.size(row)).sum());
    }
    // A block made in only one step is setup and used later.
    of_line.retain(|_, rows| {
        let of_steps: FxHashSet<u32> = rows.iter().map(|&row| draft.rows[row as usize].step).collect();
        of_steps.len() > 1 && of_steps.len() * 2 >= steps as usize - 1
    });
    let rows: Vec<u32> = of_line.into_values().flatten().collect();
    let left: u64 = rows.iter().map(|&row| draft.size(row)).sum();
    let is_much = left.saturating_mul(PART) > all;
    if is_much {
        let mut edits = Edits::default();
        for row in rows {
            edits.free_at(draft, row, ends[draft.rows[row as usize].step as usize] + 1);
        }
        draft.apply(edits);
        drop_earlier_graphs(draft);
    }
    is_much
}

/// Limits each backward pass to its own graph: requests beyond the usual number are removed. Autograd begins with the newest graph.
fn drop_earlier_graphs(draft: &mut Draft<'_>) {
    let Some(own) = draft.program.own_backward() else { return };
    for step in 2..=draft.steps() {
        let is_of_backward = |r: &Draw| r.phase == Phase::Backward && r.role == Role::Temporaries && r.born != NEVER;
        for row in draft.of_step(step, is_of_backward).into_iter().skip(own) {
            draft.rows[row as usize].drop_it();
        }
    }
}
