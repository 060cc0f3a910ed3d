//! Finds modules that a forward pass calls repeatedly: the layers that can be checkpointed.

use std::cmp::Reverse;
use std::hash::BuildHasher;

use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::draft::{Draft, Draw, Pass};
use super::requests::NEVER;
use crate::anatomy::modules::module_class;
use crate::anatomy::{Phase, Role};
use crate::formats::kineto::OPERATOR_FILE;
use crate::inference::scripted::Ask;
use crate::model::{Frame, FrameId, StackId, StackTable, StrId};
use crate::tables::naming::{is_compiled, is_of_operators};
use crate::units::counted;

/// One call of a module.
#[derive(Clone, Debug, Default)]
pub(super) struct Instance {
    /// The rows of the blocks that it makes, in order; never empty.
    pub(super) all: Vec<u32>,
    /// A hash of the lines that made each row of [`all`](Self::all): equal for rows of one operator.
    pub(super) lines: Vec<u64>,
    /// The position after its end.
    pub(super) end: u32,
    /// Rows that outlive the call, except its result.
    pub(super) inner: Vec<u32>,
    /// Its result, which is passed to the next call.
    pub(super) result: Option<u32>,
    /// Its result, if no graph keeps that: a checkpoint around the next call does.
    pub(super) dropped: Option<u32>,
}

/// A repeated module.
#[derive(Clone, Debug)]
pub(super) struct Repeated {
    /// Bytes that need not be kept with checkpointing.
    pub(super) saved: u64,
    /// The lines that call it: `resnet.py:273, 274, 275`.
    pub(super) place: String,
    pub(super) instances: Vec<Instance>,
}

/// The line of a forward pass whose repeated calls are best checkpointed: they keep nearly the most bytes, and are whole layers. If a name is
/// given, of those that match it the one that keeps most. A name is the function, file or `file:line` of a repeated call or, if a profiler
/// recorded modules, a part of a module's class. A name without a match finds nothing, because another module would be a wrong answer. The
/// error then lists the names that exist.
pub(super) fn find(draft: &Draft<'_>, pass: Pass, name: Option<&str>) -> Result<Repeated, String> {
    let mut all = candidates(draft, pass);
    all.sort_by_key(|c| Reverse(c.rank()));
    if all.is_empty() {
        return Err(NOTHING_REPEATS.to_owned());
    }
    let stacks = draft.program.stacks;
    let Some(name) = name else { return Ok(all.swap_remove(best(stacks, &all)).repeated()) };
    match all.iter().position(|c| c.is_named(stacks, name)) {
        Some(at) => Ok(all.swap_remove(at).repeated()),
        None => Err(not_named(stacks, name, &all)),
    }
}

/// Index of the candidate to checkpoint unless another is named, of some by rank.
fn best(stacks: &StackTable, all: &[Candidate]) -> usize {
    let is_near = |c: &Candidate, of: &Candidate, tenths: u64| c.saved.saturating_mul(10) >= of.saved.saturating_mul(tenths);
    let is_real = |c: &Candidate| !c.may_be_loop && is_near(c, &all[0], 5);
    let first = if all[0].may_be_loop { all.iter().position(is_real).unwrap_or(0) } else { 0 };
    // Many small calls inside of layers keep a little less than the layers do.
    let is_around =
        |c: &Candidate| !c.may_be_loop && c.instances.len() < all[first].instances.len() && is_near(c, &all[first], 9);
    let around = (0..all.len()).filter(|&i| is_around(&all[i]) && all[i].holds(&all[first]));
    let at = around.min_by_key(|&i| all[i].instances.len()).unwrap_or(first);
    let switch = SWITCHED.iter().find(|(file, _)| all[at].calls(stacks, file, None));
    let switched = switch.and_then(|&(file, function)| all.iter().position(|c| c.calls(stacks, file, Some(function))));
    switched.unwrap_or(at)
}

/// The message if nothing can be checkpointed.
pub(super) const NOTHING_REPEATS: &str = "no module of the forward pass repeats";
/// Most names to list in a message.
pub(super) const MOST_NAMES: usize = 5;

/// Functions that a library's own switch checkpoints instead of whole layers. A layer of DenseNet is given a list that grows after the
/// call, so it can not run again.
const SWITCHED: [(&str, &str); 2] =
    [("torchvision/models/densenet.py", "bn_function"), ("timm/models/densenet.py", "bottleneck_fn")];

/// Number of lines of a function that are tried as the first line of a call.
const MOST_BEGINS: usize = 12;
/// A layer allocates at no fewer lines than this.
const FEWEST_LINES: usize = 3;

/// Most kinds of layers that one line calls, such as those of an encoder and those of a decoder.
const MOST_KINDS: usize = 4;

/// A frame whose calls repeat.
struct Candidate {
    frame: FrameId,
    /// File and name of the function that is called.
    callee: Option<(StrId, StrId)>,
    /// Bytes that need not be kept with checkpointing.
    saved: u64,
    /// Blocks below the frame that are in none of its calls.
    others: usize,
    /// True if it calls a module.
    calls_module: bool,
    /// The frame's place in its stacks, from the allocation outwards.
    height: usize,
    /// True if one call with a loop in it looks like several.
    may_be_loop: bool,
    /// The lines that call it, in order.
    places: Vec<String>,
    instances: Vec<Instance>,
}

impl Candidate {
    /// Several frames may have the same calls: a function that only passes its argument on, the line that calls it, and one that calls a
    /// function with a loop of them. The innermost one that calls a module can be changed.
    fn rank(&self) -> (u64, bool, Reverse<usize>, Reverse<usize>, FrameId) {
        (self.saved, self.calls_module, Reverse(self.others), Reverse(self.height), self.frame)
    }

    /// True if every call of the other is inside of one of these.
    fn holds(&self, other: &Candidate) -> bool {
        let own: FxHashSet<u32> = self.instances.iter().flat_map(|i| i.all.iter().copied()).collect();
        other.instances.iter().filter_map(|i| i.all.first()).all(|row| own.contains(row))
    }

    /// True if it calls such a function; any of the file if none is given.
    fn calls(&self, stacks: &StackTable, file: &str, function: Option<&str>) -> bool {
        self.callee.is_some_and(|(f, name)| {
            function.is_none_or(|function| stacks.text(name) == function) && stacks.text(f).replace('\\', "/").ends_with(file)
        })
    }

    fn repeated(self) -> Repeated {
        Repeated { saved: self.saved, place: lines(&self.places), instances: self.instances }
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

    /// The name to refer to it by.
    fn label(&self, stacks: &StackTable) -> String {
        let frame = stacks.frame(self.frame);
        match frame.and_then(|f| module_class(stacks, f)) {
            Some(class) => class.to_owned(),
            None => self.places.first().cloned().unwrap_or_default(),
        }
    }
}

/// `resnet.py:273, 274, 275`. Many lines, or lines of several files, are given as a count.
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

/// The frames of a forward pass whose calls repeat and keep memory.
fn candidates(draft: &Draft<'_>, pass: Pass) -> Vec<Candidate> {
    let stacks = draft.program.stacks;
    let (first, last) = pass.forward;
    let rows = draft.of_step(pass.step, |r| r.phase == Phase::Forward && (first..=last).contains(&r.born));
    // Blocks freed before the backward pass begins are not kept for it.
    let end = pass.backward.map_or(last, |(first, _)| first);
    // C++ operators and functions call no modules.
    let is_python = |f: Frame| stacks.text(f.file) != OPERATOR_FILE && !is_compiled(stacks, f);
    let around = around_steps(draft);
    let calls = |f: FrameId| !around.contains(&f) && stacks.frame(f).is_some_and(is_python);
    // The line of the called function, skipping the frames through which torch calls modules.
    let is_module = |frame: Frame| {
        let file = stacks.text(frame.file);
        file.ends_with("nn/modules/module.py") || file.ends_with("transformers/modeling_layers.py")
    };
    let is_reached = |f: &FrameId| stacks.frame(*f).is_some_and(|frame| is_python(frame) && !is_module(frame));
    let enters_module = |f: FrameId| stacks.frame(f).is_some_and(is_module);
    // Rows below each call, in order. A line may occur several times in a stack, as in nested containers; each is a separate call.
    let mut below: FxHashMap<Call, Vec<Below>> = FxHashMap::default();
    let with_stack = rows.iter().map(|&row| (row, stacks.frames(draft.program.rows[draft.rows[row as usize].of as usize].stack)));
    for (order, (row, frames)) in (0..).zip(with_stack.filter(|(_, frames)| !frames.is_empty())) {
        let mut further_out: FxHashMap<FrameId, usize> = FxHashMap::default();
        let mut depths: Vec<usize> = vec![0; frames.len()];
        for (at, &frame) in frames.iter().enumerate().rev() {
            let n = further_out.entry(frame).or_default();
            depths[at] = *n;
            *n += 1;
        }
        let (mut inner, mut line) = (0, None);
        for (at, &frame) in frames.iter().enumerate() {
            if calls(frame) {
                let callee = line.and_then(|f| stacks.frame(f)).map(|f| (f.file, f.name));
                below.entry((frame, depths[at], callee)).or_default().push(Below { row, order, inner, line });
                inner = FxBuildHasher.hash_one((inner, frame));
            }
            line = if is_reached(&frame) { Some(frame) } else { line };
        }
    }
    // How far out a call is in the stack of a row.
    let height = |&(frame, depth, _): &Call, row: u32| {
        let frames = stacks.frames(draft.program.rows[draft.rows[row as usize].of as usize].stack);
        let at = frames.iter().enumerate().rev().filter(|&(_, &f)| f == frame).nth(depth)?.0;
        Some((at, frames))
    };
    // The line outside of torch that makes the call.
    let place_of = |call: &Call, row: u32| {
        let (at, frames) = height(call, row)?;
        let outside = frames[at..].iter().filter_map(|&f| stacks.frame(f)).find(|f| {
            let file = stacks.text(f.file);
            file.ends_with(".py") && !is_of_operators(file)
        });
        outside.or_else(|| stacks.frame(call.0)).map(|f| stacks.location(f))
    };
    // A module of another class, with a function of the same name in the same file, may be called first.
    let of_one_kind = |rows: &[Below]| {
        let mut begins: Vec<usize> = Vec::new();
        for (i, row) in rows.iter().enumerate() {
            if begins.len() < MOST_BEGINS && !begins.iter().any(|&b| rows[b].line == row.line) {
                begins.push(i);
            }
        }
        let of_begin = |&begin: &usize| {
            let instances = starts(&rows[begin..]).into_iter().filter_map(|starts| split(draft, &rows[begin..], &starts, end));
            instances.map(|calls| (saved(draft, &calls), calls)).filter(|calls| calls.0 > 0).max_by_key(|calls| calls.0)
        };
        // If both give the same number of calls, the later one begins in the middle of a call.
        begins.iter().filter_map(of_begin).reduce(|best, later| {
            let is_better = later.1.len() > best.1.len() && later.0 > best.0;
            if is_better { later } else { best }
        })
    };
    let places = |call: &Call, instances: &[Instance]| {
        let mut places: Vec<String> = Vec::new();
        // A call without a graph, for example before training, keeps nothing, so checkpointing does not change it.
        let kept = instances.iter().filter(|i| !i.inner.is_empty());
        for place in kept.filter_map(|i| place_of(call, *i.all.first()?)) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        places
    };
    // One line may call layers of several kinds, one after the other or in turn.
    let candidate = |(call, rows): (Call, Vec<Below>)| {
        let (_, mut instances) = of_one_kind(&rows)?;
        let lines = places(&call, &instances);
        let mut last = instances.clone();
        let mut rest = rows.clone();
        for _ in 1..MOST_KINDS {
            let taken: FxHashSet<u32> = last.iter().flat_map(|i| i.all.iter().copied()).collect();
            rest.retain(|r| !taken.contains(&r.row));
            let Some((_, kind)) = of_one_kind(&rest) else { break };
            if places(&call, &kind).iter().all(|place| lines.contains(place)) {
                instances.extend(kind.iter().cloned());
            }
            last = kind;
        }
        instances.sort_by_key(|i| i.end);
        let (height, frames) = height(&call, *instances.first()?.all.first()?)?;
        Some(Candidate {
            frame: call.0,
            callee: call.2,
            saved: saved(draft, &instances),
            others: rows.len().saturating_sub(instances.iter().map(|i| i.all.len()).sum()),
            calls_module: !enters_module(call.0) && height.checked_sub(1).is_some_and(|at| enters_module(frames[at])),
            height,
            may_be_loop: may_be_loop(&rows, &instances),
            places: Some(lines).filter(|lines| !lines.is_empty())?,
            instances,
        })
    };
    below.into_iter().filter_map(candidate).collect()
}

/// Bytes that checkpointing these calls does not keep: the backward pass recomputes one of them at a time.
fn saved(draft: &Draft<'_>, instances: &[Instance]) -> u64 {
    let bytes = |i: &Instance| i.inner.iter().map(|&r| draft.size(r)).sum::<u64>();
    instances.iter().map(bytes).sum::<u64>() - instances.iter().map(bytes).max().unwrap_or(0)
}

/// Frames around optimizer.step(): what they call is the training loop, not a layer.
fn around_steps(draft: &Draft<'_>) -> FxHashSet<FrameId> {
    let rows = draft.program.rows.iter().filter(|r| r.phase == Phase::Optimizer);
    let of_steps: FxHashSet<StackId> = rows.map(|r| r.stack).collect();
    of_steps.into_iter().flat_map(|stack| draft.program.stacks.frames(stack)).copied().collect()
}

/// A calling line, how many times it occurs further out in the stack, and the file and name of the called function.
type Call = (FrameId, usize, Option<(StrId, StrId)>);

/// True if most calls come back to a line of the function that they left, and nothing is allocated between one call and the next: they
/// are rather the rounds of a loop in one call.
fn may_be_loop(rows: &[Below], instances: &[Instance]) -> bool {
    let of_row: FxHashMap<u32, &Below> = rows.iter().map(|r| (r.row, r)).collect();
    let rows_of = |i: &Instance| i.all.iter().filter_map(|row| of_row.get(row).copied()).collect::<Vec<_>>();
    let comes_back = |i: &&Instance| {
        let mut lines: Vec<_> = rows_of(i).iter().map(|r| r.line).collect();
        lines.dedup();
        let different: FxHashSet<_> = lines.iter().collect();
        different.len() < lines.len()
    };
    let follows = |pair: &&[Instance]| match (rows_of(&pair[0]).last(), rows_of(&pair[1]).first()) {
        (Some(last), Some(first)) => !has_gap(last, first),
        _ => false,
    };
    let following = instances.windows(2).filter(follows).count();
    is_most(instances.iter().filter(comes_back).count(), instances.len()) && is_most(following, instances.len() - 1)
}

/// A block made in a call.
#[derive(Clone, Copy)]
struct Below {
    row: u32,
    /// Its place among all blocks of the pass that have a stack.
    order: u32,
    /// The frames of Python inside the call, as one number. Layers that differ in what is around them, as the stages of a ResNet, agree in it.
    inner: u64,
    /// The line in the called function.
    line: Option<FrameId>,
}

/// Every n-th of the starts, for the smallest n that makes nearly all calls equal, else for one that makes most so. A call of one line, such
/// as a container's, or one with a loop in it may look like several calls. `None` if no n does.
fn whole_calls<K: PartialEq>(keys: &[K], starts: &[usize]) -> Option<Vec<usize>> {
    const MOST: usize = 16;
    // So many of the calls are compared with all others.
    const USUAL: usize = 4;
    let every = |n: usize| starts.iter().copied().step_by(n).collect::<Vec<_>>();
    let same = |starts: &[usize]| {
        let ends = starts.iter().skip(1).copied().chain([keys.len()]);
        let calls: Vec<&[K]> = starts.iter().zip(ends).map(|(&start, end)| &keys[start..end]).collect();
        let as_usual = |usual: &&[K]| calls.iter().filter(|call| *call == usual).count();
        calls.iter().take(USUAL).map(as_usual).max().unwrap_or(0)
    };
    let possible = || (1..=MOST).filter(|n| starts.len() > *n && starts.len().is_multiple_of(*n)).map(every);
    let nearly_all = possible().find(|starts| same(starts) * 10 >= starts.len() * 9);
    nearly_all.or_else(|| possible().find(|starts| is_most(same(starts), starts.len())))
}

/// True for more than three fifths.
fn is_most(part: usize, of: usize) -> bool {
    part * 5 > of * 3
}

/// Possible ways to split rows into calls: at each return of the first stack.
fn starts(rows: &[Below]) -> Vec<Vec<usize>> {
    let Some(&Below { inner: first, line, .. }) = rows.first() else { return Vec::new() };
    let where_after = |is_over: &dyn Fn(&Below) -> bool| -> Vec<usize> {
        let is_first = |i: usize| i == 0 || is_over(&rows[i - 1]) || has_gap(&rows[i - 1], &rows[i]);
        (0..rows.len()).filter(|&i| rows[i].inner == first && is_first(i)).collect()
    };
    // A line may make several consecutive blocks.
    let all = where_after(&|before| before.inner != first);
    let keys: Vec<u64> = rows.iter().map(|row| row.inner).collect();
    let whole = whole_calls(&keys, &all);
    // A line may also call two layers; then a call ends when its function has moved on to another line.
    if rows.iter().any(|row| row.line != line) {
        let of_lines = where_after(&|before| before.line != line);
        // If some calls do not move on, such as a block without dropout, the return of the first stack is more reliable.
        let returns = if of_lines.len() * 4 >= all.len() * 3 { all } else { of_lines };
        return whole.filter(|whole| whole.len() < returns.len()).into_iter().chain([returns]).collect();
    }
    whole.into_iter().collect()
}

/// Splits rows into calls. `None` if there is only one, or if they differ.
fn split(draft: &Draft<'_>, rows: &[Below], starts: &[usize], forward_end: u32) -> Option<Vec<Instance>> {
    // A call that allocates at fewer lines is an operator, or a module with a single operator.
    let first = rows.get(*starts.first()?..*starts.get(1)?)?;
    let lines: FxHashSet<u64> = first.iter().map(|row| row.inner).collect();
    let lengths: Vec<usize> = starts.iter().zip(starts[1..].iter().chain([&rows.len()])).map(|(a, b)| b - a).collect();
    let is_usual = |usual: usize| is_most(lengths.iter().filter(|&&l| l.abs_diff(usual) * 2 <= usual).count(), lengths.len());
    if lines.len() < FEWEST_LINES || !lengths.iter().any(|&length| is_usual(length)) {
        return None;
    }
    let usual = usual_lines(draft, rows, starts);
    let mut calls: Vec<(Vec<&Below>, u32)> = Vec::with_capacity(starts.len());
    for (i, &start) in starts.iter().enumerate() {
        let stop = starts.get(i + 1).copied().unwrap_or(rows.len());
        let own = without_a_gap(own_rows(draft, &rows[start..stop], &usual));
        let stop = start + own.len();
        let end = match (own.last(), rows.get(stop)) {
            (Some(last), Some(next)) if !has_gap(last, next) => draft.rows[next.row as usize].born,
            (last, _) => last.map_or(0, |r| draft.rows[r.row as usize].born + 1),
        };
        // A library's workspace is made only once, by the first call that needs it.
        let is_made_once = |row: Draw| row.role == Role::Workspaces && row.freed > forward_end;
        calls.push((own.iter().filter(|r| !is_made_once(draft.rows[r.row as usize])).collect(), end));
    }
    // A call that begins with such a workspace, and then with a gap, has nothing of its own.
    calls.retain(|(own, _)| !own.is_empty());
    if calls.len() < 2 {
        return None;
    }
    let drops_result =
        calls.iter().filter(|(own, _)| own.last().is_some_and(|last| is_dropped(draft, last, forward_end))).count();
    let keeps_result = !is_most(drops_result, calls.len());
    let line = result_line(draft, &calls, forward_end).filter(|_| keeps_result);
    let last = calls.len() - 1;
    let instance = |(i, (own, end)): (usize, (Vec<&Below>, u32))| {
        let kept: Vec<&Below> = own.iter().copied().filter(|r| draft.rows[r.row as usize].freed > forward_end).collect();
        let of_line: Vec<&Below> = kept.iter().copied().filter(|r| Some(r.inner) == line).collect();
        let of_line = result_of(draft, &of_line, forward_end);
        // A call may end with another line than most, as without dropout. The last call's result may not be kept at all.
        let any = || result_of(draft, &own, forward_end).filter(|_| keeps_result && i < last);
        let result = of_line.or_else(any).map(|r| r.row);
        let inner = kept.iter().map(|r| r.row).filter(|&row| Some(row) != result).collect();
        let (all, lines) = own.iter().map(|r| (r.row, r.inner)).unzip();
        let dropped = own.last().map(|r| r.row).filter(|_| !keeps_result);
        Instance { all, lines, end, inner, result, dropped }
    };
    Some(calls.into_iter().enumerate().map(instance).collect())
}

/// True for what a call makes last if the program uses it and lets it go before the backward pass, as a sum with the call's input does: that
/// is the result, and no graph keeps it.
fn is_dropped(draft: &Draft<'_>, last: &Below, forward_end: u32) -> bool {
    let row = draft.rows[last.row as usize];
    let is_used = || draft.asks[row.born as usize + 1..row.freed as usize].iter().any(|ask| matches!(ask, Ask::Alloc(_)));
    row.freed != NEVER && row.freed <= forward_end && is_used()
}

/// The first and last line at which most calls of the function allocate; `None` if it allocates at no lines of its own.
fn usual_lines(draft: &Draft<'_>, rows: &[Below], starts: &[usize]) -> Option<(u32, u32)> {
    let mut calls_at: FxHashMap<FrameId, usize> = FxHashMap::default();
    for (&start, &stop) in starts.iter().zip(starts[1..].iter().chain([&rows.len()])) {
        let lines: FxHashSet<FrameId> = rows[start..stop].iter().filter_map(|r| r.line).collect();
        lines.into_iter().for_each(|line| *calls_at.entry(line).or_default() += 1);
    }
    let usual = calls_at.into_iter().filter(|(_, n)| is_most(*n, starts.len())).map(|(line, _)| line);
    let lines = usual.filter_map(|line| draft.program.stacks.frame(line)).map(|f| f.line);
    lines.fold(None, |all, line| all.map_or(Some((line, line)), |(a, b): (u32, u32)| Some((a.min(line), b.max(line)))))
}

/// The rows of a call without those of another function of this name in the file, such as the layer between two stages.
fn own_rows<'b>(draft: &Draft<'_>, rows: &'b [Below], usual: &Option<(u32, u32)>) -> &'b [Below] {
    /// A function may continue for this many lines after the last one at which most calls allocate.
    const BEHIND: u32 = 24;
    let Some((first, last)) = *usual else { return rows };
    let line = |r: &Below| r.line.and_then(|f| draft.program.stacks.frame(f)).map_or(first, |f| f.line);
    let is_own = |r: &Below| (first..=last.saturating_add(BEHIND)).contains(&line(r));
    let end = rows.iter().rposition(is_own).map_or(rows.len(), |at| at + 1);
    &rows[..end]
}

/// The rows up to where the program allocates outside of the call: there it is over.
fn without_a_gap(rows: &[Below]) -> &[Below] {
    rows.windows(2).position(|pair| has_gap(&pair[0], &pair[1])).map_or(rows, |at| &rows[..=at])
}

fn has_gap(before: &Below, after: &Below) -> bool {
    after.order > before.order + 1
}

/// The line that makes the results of most calls.
fn result_line(draft: &Draft<'_>, calls: &[(Vec<&Below>, u32)], forward_end: u32) -> Option<u64> {
    let mut votes: FxHashMap<u64, usize> = FxHashMap::default();
    for result in calls.iter().filter_map(|(own, _)| result_of(draft, own, forward_end)) {
        *votes.entry(result.inner).or_default() += 1;
    }
    votes.into_iter().max_by_key(|&(line, n)| (n, line)).map(|(line, _)| line)
}

/// The result of a call, which is passed to the next call: of the blocks that the call keeps, the one that the backward pass frees
/// first. If the recording ends earlier, the largest block of its last line, because a norm keeps small blocks beside its result.
fn result_of<'b>(draft: &Draft<'_>, own: &[&'b Below], forward_end: u32) -> Option<&'b Below> {
    let freed = |r: &&Below| draft.rows[r.row as usize].freed;
    let is_kept = |r: &&Below| freed(r) > forward_end && draft.rows[r.row as usize].role != Role::AutocastCopies;
    let kept = || own.iter().copied().filter(is_kept);
    let first = kept().filter(|r| freed(r) != NEVER).min_by_key(freed);
    let last_line = kept().next_back()?.inner;
    first.or_else(|| kept().filter(|r| r.inner == last_line).max_by_key(|r| draft.size(r.row)))
}
