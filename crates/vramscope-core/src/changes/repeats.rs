//! Modules that a forward pass calls again and again: the layers that checkpointing is put around.

use rustc_hash::FxHashMap;

use super::draft::Draft;
use super::requests::NEVER;
use crate::anatomy::Phase;
use crate::anatomy::modules::module_class;
use crate::formats::kineto::OPERATOR_FILE;
use crate::model::{Frame, FrameId};
use crate::tables::naming::is_compiled;

/// One call of a module.
#[derive(Clone, Debug, Default)]
pub(super) struct Instance {
    /// The place before which it is over.
    pub(super) end: u32,
    /// What it makes that lives on, but its result.
    pub(super) inner: Vec<u32>,
}

/// A module that repeats.
#[derive(Clone, Debug)]
pub(super) struct Repeated {
    /// The line that calls it.
    pub(super) place: String,
    /// Its calls, in order.
    pub(super) instances: Vec<Instance>,
}

/// The line of a step's forward pass whose repeated calls keep most bytes; of those that a name matches where one does.
pub(super) fn find(draft: &Draft<'_>, step: u32, name: Option<&str>) -> Option<Repeated> {
    let stacks = draft.program.stacks;
    let rows = draft.of_step(step, |r| r.phase == Phase::Forward && r.born != NEVER);
    // What is freed before the backward pass begins is not kept for it.
    let end =
        draft.reach(step, Phase::Backward).map(|(first, _)| first).or(draft.reach(step, Phase::Forward).map(|(_, last)| last))?;
    // Operators and functions of C++ call no modules.
    let is_python = |f: Frame| stacks.text(f.file) != OPERATOR_FILE && !is_compiled(stacks, f);
    let calls = |f: FrameId| stacks.frame(f).is_some_and(is_python);
    // Rows below each frame, in order. A frame that is twice in a stack counts once.
    let mut below: FxHashMap<FrameId, Vec<u32>> = FxHashMap::default();
    for &row in &rows {
        let stack = draft.program.rows[draft.rows[row as usize].of as usize].stack;
        for &frame in stacks.frames(stack).iter().filter(|&&f| calls(f)) {
            let list = below.entry(frame).or_default();
            if list.last() != Some(&row) {
                list.push(row);
            }
        }
    }
    let named = |frame: FrameId| {
        let Some(name) = name else { return true };
        stacks.frame(frame).is_some_and(|f| {
            let text = format!("{} {} {}", stacks.text(f.file), stacks.text(f.name), module_class(stacks, f).unwrap_or(""));
            text.to_ascii_lowercase().contains(&name.to_ascii_lowercase())
        })
    };
    let mut best: Option<(bool, u64, usize, FrameId, Vec<Instance>)> = None;
    for (&frame, rows) in &below {
        let Some(instances) = split(draft, rows, end) else { continue };
        let bytes: u64 = instances.iter().flat_map(|i| &i.inner).map(|&r| draft.size(r)).sum();
        let depth = rows.len();
        let key = (named(frame), bytes, depth);
        if bytes > 0 && best.as_ref().is_none_or(|b| (key, frame) > ((b.0, b.1, b.2), b.3)) {
            best = Some((key.0, key.1, key.2, frame, instances));
        }
    }
    let (_, _, _, frame, instances) = best?;
    let line = below.get(&frame).and_then(|rows| rows.first()).and_then(|&row| {
        let stack = draft.program.rows[draft.rows[row as usize].of as usize].stack;
        // The line outside of torch that makes the call.
        let frames = stacks.frames(stack);
        let at = frames.iter().position(|&f| f == frame)?;
        frames[at..].iter().find_map(|&f| {
            let f = stacks.frame(f)?;
            let file = stacks.text(f.file);
            (file.ends_with(".py") && !file.contains("torch/")).then(|| stacks.location(f))
        })
    });
    let place = line.or_else(|| stacks.frame(frame).map(|f| stacks.location(f)))?;
    Some(Repeated { place, instances })
}

/// Splits rows into calls that begin alike: where the first stack comes again. `None` where it does not, or the calls are unlike.
fn split(draft: &Draft<'_>, rows: &[u32], forward_end: u32) -> Option<Vec<Instance>> {
    let key = |row: u32| draft.program.rows[draft.rows[row as usize].of as usize].key;
    let first = key(*rows.first()?);
    let mut starts: Vec<usize> = Vec::new();
    for (i, &row) in rows.iter().enumerate() {
        // A call may make several blocks from one line one after the other.
        if key(row) == first && (i == 0 || key(rows[i - 1]) != first) {
            starts.push(i);
        }
    }
    if starts.len() < 2 {
        return None;
    }
    let lengths: Vec<usize> = starts.iter().zip(starts[1..].iter().chain([&rows.len()])).map(|(a, b)| b - a).collect();
    let mut sorted = lengths.clone();
    sorted.sort_unstable();
    let usual = sorted[sorted.len() / 2];
    // Calls of one row are lines, and no modules.
    if usual < 3 || lengths.iter().filter(|&&l| l.abs_diff(usual) * 4 <= usual).count() * 10 < lengths.len() * 7 {
        return None;
    }
    let mut out = Vec::with_capacity(starts.len());
    for (i, &start) in starts.iter().enumerate() {
        let stop = starts.get(i + 1).copied().unwrap_or(rows.len());
        let own = &rows[start..stop];
        let end = rows
            .get(stop)
            .map_or_else(|| own.last().map_or(0, |&r| draft.rows[r as usize].born + 1), |&next| draft.rows[next as usize].born);
        let kept: Vec<u32> = own.iter().copied().filter(|&r| draft.rows[r as usize].freed > forward_end).collect();
        // The last that lives on is the result, which the next call is given.
        let inner = kept.split_last().map_or_else(Vec::new, |(_, inner)| inner.to_vec());
        out.push(Instance { end, inner });
    }
    Some(out)
}
