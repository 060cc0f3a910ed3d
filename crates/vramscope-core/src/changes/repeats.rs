//! Modules that a forward pass calls again and again: the layers that checkpointing is put around.

use std::hash::BuildHasher;

use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::draft::Draft;
use super::requests::NEVER;
use crate::anatomy::Phase;
use crate::anatomy::modules::module_class;
use crate::formats::kineto::OPERATOR_FILE;
use crate::model::{Frame, FrameId, StackTable};
use crate::tables::naming::{is_compiled, is_of_operators};
use crate::units::counted;

/// One call of a module.
#[derive(Clone, Debug, Default)]
pub(super) struct Instance {
    /// What it makes first.
    first: u32,
    /// The place before which it is over.
    pub(super) end: u32,
    /// What it makes that lives on, but its result.
    pub(super) inner: Vec<u32>,
}

/// A module that repeats.
#[derive(Clone, Debug)]
pub(super) struct Repeated {
    /// The lines that call it, as `resnet.py:273, 274, 275`.
    pub(super) place: String,
    /// Its calls, in order.
    pub(super) instances: Vec<Instance>,
}

/// The line of a step's forward pass whose repeated calls keep most bytes; with a name, of those that it names.
///
/// A name is the class of a module, or a part of one, where a profiler recorded modules; everywhere it may be the function, the file or
/// the `file:line` of a call that repeats. A name that none has finds nothing: another module is no answer.
///
/// # Errors
/// Why nothing is found; for a name that nothing has, what can be named.
pub(super) fn find(draft: &Draft<'_>, step: u32, name: Option<&str>) -> Result<Repeated, String> {
    let mut all = candidates(draft, step);
    all.sort_by_key(|c| std::cmp::Reverse((c.bytes, c.rows, c.frame)));
    if all.is_empty() {
        return Err(NOTHING_REPEATS.to_owned());
    }
    let stacks = draft.program.stacks;
    let Some(name) = name else { return Ok(all.swap_remove(0).repeated()) };
    match all.iter().position(|c| c.is_named(stacks, name)) {
        Some(at) => Ok(all.swap_remove(at).repeated()),
        None => Err(not_named(stacks, name, &all)),
    }
}

/// Why there is nothing to put checkpointing around.
pub(super) const NOTHING_REPEATS: &str = "no module of the forward pass repeats";
/// This many names are listed.
pub(super) const MOST_NAMES: usize = 5;

/// A layer allocates at this many lines, at least.
const FEWEST_LINES: usize = 3;

/// A frame whose calls repeat.
struct Candidate {
    frame: FrameId,
    bytes: u64,
    rows: usize,
    /// The lines that call it, in order.
    places: Vec<String>,
    instances: Vec<Instance>,
}

impl Candidate {
    fn repeated(self) -> Repeated {
        Repeated { place: lines(&self.places), instances: self.instances }
    }

    fn is_named(&self, stacks: &StackTable, name: &str) -> bool {
        let same = |text: &str| text.eq_ignore_ascii_case(name);
        let base = |text: &str| text.rsplit(['/', '\\']).next().unwrap_or("").to_owned();
        let Some(frame) = stacks.frame(self.frame) else { return false };
        if let Some(class) = module_class(stacks, frame) {
            return class.to_ascii_lowercase().contains(&name.to_ascii_lowercase());
        }
        let file = base(stacks.text(frame.file));
        let is_place = |place: &String| same(place) || same(&base(place));
        same(stacks.text(frame.name))
            || [&file, &stacks.location(frame)].into_iter().any(|text| same(text))
            || self.places.iter().any(is_place)
            || file.strip_suffix(".py").is_some_and(same)
    }

    /// What it can be named by.
    fn label(&self, stacks: &StackTable) -> String {
        let frame = stacks.frame(self.frame);
        match frame.and_then(|f| module_class(stacks, f)) {
            Some(class) => class.to_owned(),
            None => self.places.first().cloned().unwrap_or_default(),
        }
    }
}

/// `resnet.py:273, 274, 275`; lines of several files, and many, are counted.
fn lines(places: &[String]) -> String {
    const MOST: usize = 4;
    let file = |place: &str| place.rsplit_once(':').map(|(file, _)| file.to_owned());
    let Some((first, rest)) = places.split_first() else { return String::new() };
    if rest.len() >= MOST || rest.iter().any(|place| file(place) != file(first)) {
        return format!("{first} and {}", counted(rest.len() as u64, "more line", "more lines"));
    }
    rest.iter().fold(first.clone(), |all, place| format!("{all}, {}", place.rsplit(':').next().unwrap_or_default()))
}

fn not_named(stacks: &StackTable, name: &str, all: &[Candidate]) -> String {
    let has_classes = all.iter().any(|c| stacks.frame(c.frame).and_then(|f| module_class(stacks, f)).is_some());
    let mut labels: Vec<String> = Vec::new();
    for label in all.iter().map(|c| c.label(stacks)) {
        if labels.len() < MOST_NAMES && !labels.contains(&label) {
            labels.push(label);
        }
    }
    let why = if has_classes { "" } else { ", because the recording has lines and functions and no names of modules" };
    format!("no stack names a module '{name}'{why}; these can be named: {}", labels.join(", "))
}

/// The frames of a step's forward pass whose calls repeat and keep something.
fn candidates(draft: &Draft<'_>, step: u32) -> Vec<Candidate> {
    let stacks = draft.program.stacks;
    let rows = draft.of_step(step, |r| r.phase == Phase::Forward && r.born != NEVER);
    // What is freed before the backward pass begins is not kept for it.
    let begin = draft.reach(step, Phase::Backward).map(|(first, _)| first);
    let Some(end) = begin.or(draft.reach(step, Phase::Forward).map(|(_, last)| last)) else { return Vec::new() };
    // Operators and functions of C++ call no modules.
    let is_python = |f: Frame| stacks.text(f.file) != OPERATOR_FILE && !is_compiled(stacks, f);
    let calls = |f: FrameId| stacks.frame(f).is_some_and(is_python);
    // Rows below each frame, in order. Of a frame that is twice in a stack the outer one counts.
    let mut below: FxHashMap<FrameId, Vec<Below>> = FxHashMap::default();
    for &row in &rows {
        let frames = stacks.frames(draft.program.rows[draft.rows[row as usize].of as usize].stack);
        let mut inner = 0;
        for &frame in frames.iter().filter(|&&f| calls(f)) {
            let list = below.entry(frame).or_default();
            match list.last_mut() {
                Some(last) if last.row == row => last.inner = inner,
                _ => list.push(Below { row, inner }),
            }
            inner = FxBuildHasher.hash_one((inner, frame));
        }
    }
    // The line outside of torch that makes the call.
    let place_of = |frame: FrameId, row: u32| {
        let frames = stacks.frames(draft.program.rows[draft.rows[row as usize].of as usize].stack);
        let at = frames.iter().rposition(|&f| f == frame)?;
        let outside = frames[at..].iter().filter_map(|&f| stacks.frame(f)).find(|f| {
            let file = stacks.text(f.file);
            file.ends_with(".py") && !is_of_operators(file)
        });
        outside.or_else(|| stacks.frame(frame)).map(|f| stacks.location(f))
    };
    let candidate = |(frame, rows): (FrameId, Vec<Below>)| {
        let instances = split(draft, &rows, end)?;
        let bytes: u64 = instances.iter().flat_map(|i| &i.inner).map(|&r| draft.size(r)).sum();
        let mut places: Vec<String> = Vec::new();
        for place in instances.iter().filter_map(|i| place_of(frame, i.first)) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        let is_one = bytes > 0 && !places.is_empty();
        is_one.then(|| Candidate { frame, bytes, rows: rows.len(), places, instances })
    };
    below.into_iter().filter_map(candidate).collect()
}

/// A block that a call made.
struct Below {
    row: u32,
    /// The frames of Python inside the call, as one number. Layers that differ in what is around them, as the stages of a ResNet, agree in it.
    inner: u64,
}

/// The starts of whole calls: a call may begin alike in its middle, as a layer does that calls two norms from one line. Of each 2, 3 or 4
/// starts the first is kept where the calls are then the same and were not before.
fn whole_calls<K: PartialEq>(keys: &[K], starts: Vec<usize>) -> Vec<usize> {
    const MOST: usize = 4;
    let every = |n: usize| starts.iter().copied().step_by(n).collect::<Vec<_>>();
    let are_same = |starts: &[usize]| {
        let ends = starts.iter().skip(1).copied().chain([keys.len()]);
        let calls: Vec<&[K]> = starts.iter().zip(ends).map(|(&start, end)| &keys[start..end]).collect();
        let Some(usual) = calls.get(calls.len() / 2) else { return false };
        // The last call also holds what follows the layers.
        let same = calls.iter().filter(|call| call.starts_with(usual)).count();
        calls.len() >= 2 && same * 10 >= calls.len() * 7
    };
    let is_whole = |n: &usize| starts.len().is_multiple_of(*n) && are_same(&every(*n));
    match (1..=MOST).find(is_whole) {
        Some(n) if n > 1 => every(n),
        _ => starts,
    }
}

/// Splits rows into calls that begin alike: where the first stack comes again. `None` where it does not, or the calls are unlike.
fn split(draft: &Draft<'_>, rows: &[Below], forward_end: u32) -> Option<Vec<Instance>> {
    let first = rows.first()?.inner;
    let mut starts: Vec<usize> = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        // A call may make several blocks from one line one after the other.
        if row.inner == first && (i == 0 || rows[i - 1].inner != first) {
            starts.push(i);
        }
    }
    if starts.len() < 2 {
        return None;
    }
    let starts = whole_calls(&rows.iter().map(|row| row.inner).collect::<Vec<_>>(), starts);
    let lengths: Vec<usize> = starts.iter().zip(starts[1..].iter().chain([&rows.len()])).map(|(a, b)| b - a).collect();
    let mut sorted = lengths.clone();
    sorted.sort_unstable();
    let usual = sorted[sorted.len() / 2];
    // A call that allocates at fewer lines is an operator, or a module of one.
    let lines = |start: usize| rows[start..].iter().take(usual).map(|r| r.inner).collect::<FxHashSet<u64>>().len();
    if lines(starts[starts.len() / 2]) < FEWEST_LINES || lengths.iter().filter(|&&l| l.abs_diff(usual) * 4 <= usual).count() * 10 < lengths.len() * 7 {
        return None;
    }
    let mut out = Vec::with_capacity(starts.len());
    for (i, &start) in starts.iter().enumerate() {
        let stop = starts.get(i + 1).copied().unwrap_or(rows.len());
        let own = &rows[start..stop];
        let end = rows
            .get(stop)
            .map_or_else(|| own.last().map_or(0, |r| draft.rows[r.row as usize].born + 1), |next| draft.rows[next.row as usize].born);
        let kept: Vec<u32> = own.iter().map(|r| r.row).filter(|&r| draft.rows[r as usize].freed > forward_end).collect();
        // The last that lives on is the result, which the next call is given.
        let inner = kept.split_last().map_or_else(Vec::new, |(_, inner)| inner.to_vec());
        out.push(Instance { first: own.first()?.row, end, inner });
    }
    Some(out)
}
