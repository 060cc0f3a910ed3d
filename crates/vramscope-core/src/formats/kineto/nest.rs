//! Nesting: slices nest by time on their thread, and backward operators are linked to their forward operators.

use rustc_hash::FxHashMap;

use super::collect::{FlowEnd, MemoryEvent, NONE, Rows, Slice, SliceKind};
use super::scan::unescape;
use crate::model::{Frame, FrameId, StackId, StackTableBuilder};

/// The enclosing slice of every slice and memory event, and values derived from it.
pub(super) struct Nesting {
    /// Nearest enclosing slice on the same thread.
    pub(super) parent: Vec<u32>,
    /// Number of enclosing operators and runtime calls.
    pub(super) depth: Vec<u16>,
    /// Number of enclosing annotations.
    pub(super) annotation_depth: Vec<u16>,
    /// For a slice of the backward pass, its forward slice.
    pub(super) forward: Vec<u32>,
    /// Innermost slice around each memory event.
    pub(super) around: Vec<u32>,
}

impl Nesting {
    pub(super) fn new(rows: &Rows<'_>) -> Self {
        let slices = &rows.slices;
        let mut order: Vec<u32> = (0..slices.len() as u32).filter(|&i| is_on_cpu(slices[i as usize].kind)).collect();
        // In the file operators come before Python functions, so the kind decides ties. Within a kind it is the calls' order.
        order.sort_by_key(|&i| {
            let s = &slices[i as usize];
            (s.thread, s.start, std::cmp::Reverse(s.end), s.kind, i)
        });
        let mut memory: Vec<u32> = (0..rows.memory.len() as u32).collect();
        memory.sort_by_key(|&i| (rows.memory[i as usize].thread, rows.memory[i as usize].time));
        let mut nesting = Nesting {
            parent: vec![NONE; slices.len()],
            depth: vec![0; slices.len()],
            annotation_depth: vec![0; slices.len()],
            forward: vec![NONE; slices.len()],
            around: vec![NONE; rows.memory.len()],
        };
        nesting.sweep(slices, &rows.memory, &order, &memory);
        nesting.link(rows, &order);
        nesting
    }

    /// One pass over slices and memory events in time order, thread by thread, with a stack of open slices.
    fn sweep(&mut self, slices: &[Slice], events: &[MemoryEvent], order: &[u32], memory: &[u32]) {
        let mut open: Vec<u32> = Vec::new();
        let mut thread = u16::MAX;
        let mut next = 0;
        for &i in order {
            let slice = &slices[i as usize];
            // Memory events before the start of this slice belong to the slices that are open now.
            while let Some(&m) = memory.get(next) {
                let event = &events[m as usize];
                if (event.thread, event.time) >= (slice.thread, slice.start) {
                    break;
                }
                if event.thread == thread {
                    self.around[m as usize] = innermost_around(&mut open, slices, event.time, event.time);
                }
                next += 1;
            }
            if slice.thread != thread {
                open.clear();
                thread = slice.thread;
            }
            let parent = innermost_around(&mut open, slices, slice.start, slice.end);
            self.parent[i as usize] = parent;
            if let Some(p) = slices.get(parent as usize) {
                let p_index = parent as usize;
                self.depth[i as usize] = self.depth[p_index].saturating_add(u16::from(is_work(p.kind)));
                self.annotation_depth[i as usize] =
                    self.annotation_depth[p_index].saturating_add(u16::from(p.kind == SliceKind::Annotation));
            }
            if open.len() < MAX_OPEN {
                open.push(i);
            }
        }
        while let Some(&m) = memory.get(next) {
            let event = &events[m as usize];
            if event.thread == thread {
                self.around[m as usize] = innermost_around(&mut open, slices, event.time, event.time);
            }
            next += 1;
        }
    }

    /// Links backward operators to forward operators: by Kineto's flow arrows, otherwise by their sequence number.
    fn link(&mut self, rows: &Rows<'_>, order: &[u32]) {
        let slices = &rows.slices;
        // A flow's end has the start time of its slice. If several start then, Kineto means the outermost, which comes first.
        let mut by_start: FxHashMap<(u16, i64), u32> = FxHashMap::default();
        let wanted: rustc_hash::FxHashSet<(u16, i64)> = rows.flows.iter().map(|f| (f.thread, f.time)).collect();
        let mut by_sequence: FxHashMap<u64, u32> = FxHashMap::default();
        for &i in order {
            let s = &slices[i as usize];
            if s.kind != SliceKind::Operator {
                continue;
            }
            if wanted.contains(&(s.thread, s.start)) {
                by_start.entry((s.thread, s.start)).or_insert(i);
            }
            if let Some(facts) = rows.operators.get(s.operator as usize)
                && let (Some(sequence), 0) = (facts.sequence, facts.forward_thread)
            {
                // The forward operator is the last operator that started with this sequence number.
                by_sequence
                    .entry(sequence)
                    .and_modify(|best| {
                        if slices[*best as usize].start <= s.start {
                            *best = i;
                        }
                    })
                    .or_insert(i);
            }
        }
        let mut starts: FxHashMap<u64, &FlowEnd> = FxHashMap::default();
        for flow in rows.flows.iter().filter(|f| f.is_start) {
            starts.insert(flow.id, flow);
        }
        for end in rows.flows.iter().filter(|f| !f.is_start) {
            let from = starts.get(&end.id).and_then(|s| by_start.get(&(s.thread, s.time)));
            let to = by_start.get(&(end.thread, end.time));
            if let (Some(&from), Some(&to)) = (from, to)
                && from != to
            {
                self.forward[to as usize] = from;
            }
        }
        for &i in order {
            let s = &slices[i as usize];
            let Some(facts) = rows.operators.get(s.operator as usize) else { continue };
            if self.forward[i as usize] == NONE && facts.forward_thread != 0 {
                let from = facts.sequence.and_then(|n| by_sequence.get(&n)).copied().unwrap_or(NONE);
                self.forward[i as usize] = if from == i { NONE } else { from };
            }
        }
    }
}

fn is_on_cpu(kind: SliceKind) -> bool {
    !matches!(kind, SliceKind::Kernel | SliceKind::Copy)
}

fn is_work(kind: SliceKind) -> bool {
    matches!(kind, SliceKind::Operator | SliceKind::Runtime)
}

/// The innermost open slice that contains the whole span. A slice that ends where the span starts contains only an empty span.
/// Removes slices that ended.
fn innermost_around(open: &mut Vec<u32>, slices: &[Slice], start: i64, end: i64) -> u32 {
    while open.last().is_some_and(|&i| slices[i as usize].end < start) {
        open.pop();
    }
    // A slice that overlaps without nesting may hide others that still run; look past it.
    open.iter().rev().find(|&&i| slices[i as usize].end >= end).copied().unwrap_or(NONE)
}

/// Call stacks of slices, built on demand and cached.
pub(super) struct Stacks<'r, 'a> {
    rows: &'r Rows<'a>,
    nesting: &'r Nesting,
    frames: Vec<Option<FrameId>>,
    stacks: FxHashMap<u32, StackId>,
    marker: Option<FrameId>,
}

/// Separates the frames of a backward operator from those of its forward operator.
pub const FORWARD_MARK: &str = "[forward]";
/// File name of frames that are operators.
pub const OPERATOR_FILE: &str = "<operator>";
/// File name of frames that are calls of an `nn.Module`.
pub const MODULE_FILE: &str = "<module>";
/// File name of Python functions written in C.
const BUILTIN_FILE: &str = "<built-in>";
/// Deeper stacks are truncated; Python's own limit is 1,000.
const MAX_DEPTH: usize = 4096;
/// Maximum open slices. Deeper ones get no children; otherwise tens of thousands of slices at one instant would nest in each other.
const MAX_OPEN: usize = MAX_DEPTH / 2;

impl<'r, 'a> Stacks<'r, 'a> {
    pub(super) fn new(rows: &'r Rows<'a>, nesting: &'r Nesting) -> Self {
        Stacks { rows, nesting, frames: vec![None; rows.names.len()], stacks: FxHashMap::default(), marker: None }
    }

    /// The stack around a memory event, innermost frame first: enclosing operators and Python functions. A backward operator
    /// without Python frames also gets the stack of its forward operator.
    pub(super) fn stack(&mut self, innermost: u32, table: &mut StackTableBuilder) -> StackId {
        if innermost == NONE {
            return StackId::NONE;
        }
        if let Some(&known) = self.stacks.get(&innermost) {
            return known;
        }
        let mut frames = Vec::with_capacity(64);
        let forward = self.chain(innermost, &mut frames, table);
        if forward != NONE {
            let mark = *self.marker.get_or_insert_with(|| table.frame_of(FORWARD_MARK, OPERATOR_FILE, 0));
            frames.push(mark);
            self.chain(forward, &mut frames, table);
        }
        let stack = table.stack(&frames);
        self.stacks.insert(innermost, stack);
        stack
    }

    /// Appends frames from `at` outwards. Returns the innermost linked slice's forward slice, unless a Python function was found.
    fn chain(&mut self, mut at: u32, frames: &mut Vec<FrameId>, table: &mut StackTableBuilder) -> u32 {
        let (mut forward, mut has_python) = (NONE, false);
        while let Some(slice) = self.rows.slices.get(at as usize) {
            if matches!(slice.kind, SliceKind::Operator | SliceKind::Python) && frames.len() < MAX_DEPTH {
                let frame = self.frame(slice, table);
                frames.push(frame);
            }
            has_python |= slice.kind == SliceKind::Python;
            if forward == NONE {
                forward = self.nesting.forward[at as usize];
            }
            at = self.nesting.parent[at as usize];
        }
        if has_python { NONE } else { forward }
    }

    fn frame(&mut self, slice: &Slice, table: &mut StackTableBuilder) -> FrameId {
        if let Some(Some(known)) = self.frames.get(slice.name as usize) {
            return *known;
        }
        let raw = self.rows.names.get(slice.name as usize).copied().unwrap_or(b"");
        let text = unescape(raw);
        let (file, line, name) =
            if slice.kind == SliceKind::Python { python_frame(&text) } else { (OPERATOR_FILE, 0, text.as_str()) };
        let (file, name) = (table.string(file), table.string(name));
        let frame = table.frame(Frame { name, file, line });
        self.frames[slice.name as usize] = Some(frame);
        frame
    }
}

/// `path(line): function`, `<built-in method …>`, `nn.Module: Linear_0`.
fn python_frame(text: &str) -> (&str, u32, &str) {
    if text.starts_with("nn.Module") {
        return (MODULE_FILE, 0, text);
    }
    if text.starts_with("<built-in") {
        // "<built-in method add of set object at 0x7f4d753b8820>": with the address every call would be a frame of its own.
        return (BUILTIN_FILE, 0, text.split_once(" object at 0x").map_or(text, |(kind, _)| kind));
    }
    let parts = text.split_once("): ").and_then(|(place, function)| {
        let (file, line) = place.rsplit_once('(')?;
        Some((file, line.parse().ok()?, function))
    });
    parts.unwrap_or(("", 0, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_names_are_taken_apart() {
        assert_eq!(python_frame("torch/nn/modules/linear.py(113): forward"), ("torch/nn/modules/linear.py", 113, "forward"));
        assert_eq!(python_frame("a(b).py(7): <lambda>"), ("a(b).py", 7, "<lambda>"));
        assert_eq!(python_frame("nn.Module: Linear_0"), (MODULE_FILE, 0, "nn.Module: Linear_0"));
        assert_eq!(python_frame("<built-in function len>"), (BUILTIN_FILE, 0, "<built-in function len>"));
        assert_eq!(python_frame("<built-in method add of set object at 0x7f4d753b8820>").2, "<built-in method add of set");
        assert_eq!(python_frame("odd"), ("", 0, "odd"));
    }
}
