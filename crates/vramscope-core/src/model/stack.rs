//! Interned strings, frames and call stacks: ids are `u32`, equal values share one id.

use std::sync::Arc;

use rustc_hash::FxHashMap;

/// A string of a [`StackTable`]; equal strings have equal ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StrId(pub u32);

/// A frame of a [`StackTable`]; equal frames have equal ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub u32);

/// An interned call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

impl Default for StackId {
    fn default() -> Self {
        StackId::NONE
    }
}

impl StackId {
    /// Marks the absence of a stack.
    pub const NONE: StackId = StackId(u32::MAX);
    /// Pseudo-stack: bytes of a trace's own total that were held before profiling began. They have no block and no stack.
    pub const BEFORE: StackId = StackId(u32::MAX - 1);
    /// Pseudo-stack: bytes by which that total grew during profiling without an event in the trace.
    pub const GREW: StackId = StackId(u32::MAX - 2);

    /// True for a real stack: neither [`NONE`](Self::NONE) nor a pseudo-stack for a part of a trace's total.
    pub fn is_some(self) -> bool {
        self < Self::GREW
    }
}

/// One level of a call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Function name, as the source writes it.
    pub name: StrId,
    /// Source file; the shared object when C++ symbols were not resolved.
    pub file: StrId,
    /// Line number; for an unresolved C++ frame the byte offset in the shared object, see [`StackTable::frame_is_unresolved`].
    pub line: u32,
}

/// All strings, frames and stacks of a recording. Frames of a stack are innermost first, as in PyTorch.
#[derive(Clone, Debug, Default)]
pub struct StackTable {
    strings: Vec<Arc<str>>,
    frames: Vec<Frame>,
    /// Frames of all stacks, end to end.
    stack_frames: Vec<FrameId>,
    /// Start of each stack in `stack_frames`, plus one entry for the end; empty without stacks.
    stack_starts: Vec<u32>,
}

impl StackTable {
    /// Number of distinct stacks.
    pub fn len(&self) -> usize {
        self.stack_starts.len().saturating_sub(1)
    }

    /// True when no stack was recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of distinct frames.
    pub fn frame_count(&self) -> usize {
        self.frames.len()
    }

    /// Every stack.
    pub fn ids(&self) -> impl Iterator<Item = StackId> + use<> {
        (0..self.len() as u32).map(StackId)
    }

    /// Every frame.
    pub fn frame_ids(&self) -> impl Iterator<Item = FrameId> + use<> {
        (0..self.frame_count() as u32).map(FrameId)
    }

    /// The text of a string id; empty for an id of another table.
    pub fn text(&self, id: StrId) -> &str {
        self.strings.get(id.0 as usize).map_or("", |s| s)
    }

    /// Number of distinct texts.
    pub fn text_count(&self) -> usize {
        self.strings.len()
    }

    /// Replaces each text. Ids stay the same, and texts that become equal keep separate ids.
    pub fn change_texts(&mut self, mut change: impl FnMut(StrId, &str) -> String) {
        for (i, text) in self.strings.iter_mut().enumerate() {
            let changed = change(StrId(i as u32), text);
            if changed != **text {
                *text = Arc::from(changed);
            }
        }
    }

    /// A frame; `None` for an id of another table.
    pub fn frame(&self, id: FrameId) -> Option<Frame> {
        self.frames.get(id.0 as usize).copied()
    }

    /// The frames of a stack, innermost first; empty for [`StackId::NONE`].
    pub fn frames(&self, stack: StackId) -> &[FrameId] {
        let i = stack.0 as usize;
        match (self.stack_starts.get(i), self.stack_starts.get(i.wrapping_add(1))) {
            (Some(&from), Some(&to)) => &self.stack_frames[from as usize..to as usize],
            _ => &[],
        }
    }

    /// True for a C++ frame whose symbol was not resolved: its `line` is an offset.
    pub fn frame_is_unresolved(&self, frame: Frame) -> bool {
        self.text(frame.name) == "??" && !self.text(frame.file).ends_with(".py")
    }

    /// `file.py:71`, with only the last component of the path. A frame without a line (operator, module, built-in)
    /// gives just the file; a C++ frame without a known file gives an empty string.
    pub fn location(&self, frame: Frame) -> String {
        let file = self.text(frame.file);
        let short = file.rsplit(['/', '\\']).next().unwrap_or(file);
        if self.frame_is_unresolved(frame) {
            format!("{short}+{:#x}", frame.line)
        } else if frame.line == 0 {
            if short == "??" { String::new() } else { short.to_owned() }
        } else {
            format!("{short}:{}", frame.line)
        }
    }
}

/// Builds a [`StackTable`]. Equal values share one id, also when they come from different Python objects.
#[derive(Clone, Debug, Default)]
pub struct StackTableBuilder {
    table: StackTable,
    by_text: FxHashMap<Arc<str>, StrId>,
    by_frame: FxHashMap<Frame, FrameId>,
    by_stack: FxHashMap<Box<[FrameId]>, StackId>,
}

impl From<StackTable> for StackTableBuilder {
    /// Continues a finished table; existing ids stay valid. O(table).
    fn from(table: StackTable) -> Self {
        let by_text = table.strings.iter().enumerate().map(|(i, s)| (Arc::clone(s), StrId(i as u32))).collect();
        let by_frame = table.frames.iter().enumerate().map(|(i, f)| (*f, FrameId(i as u32))).collect();
        let by_stack = (0..table.len() as u32).map(|i| (table.frames(StackId(i)).into(), StackId(i))).collect();
        StackTableBuilder { table, by_text, by_frame, by_stack }
    }
}

impl StackTableBuilder {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// The id of a text; adds it if it is new.
    pub fn string(&mut self, text: &str) -> StrId {
        if let Some(&id) = self.by_text.get(text) {
            return id;
        }
        let id = StrId(self.table.strings.len() as u32);
        let shared: Arc<str> = Arc::from(text);
        self.table.strings.push(Arc::clone(&shared));
        self.by_text.insert(shared, id);
        id
    }

    /// The id of a frame; adds it if it is new.
    pub fn frame(&mut self, frame: Frame) -> FrameId {
        let frames = &mut self.table.frames;
        *self.by_frame.entry(frame).or_insert_with(|| {
            frames.push(frame);
            FrameId(frames.len() as u32 - 1)
        })
    }

    /// The id of the frame of a function at a line.
    pub fn frame_of(&mut self, name: &str, file: &str, line: u32) -> FrameId {
        let (name, file) = (self.string(name), self.string(file));
        self.frame(Frame { name, file, line })
    }

    /// The id of a stack, innermost frame first; adds it if it is new. An empty stack is [`StackId::NONE`].
    pub fn stack(&mut self, frames: &[FrameId]) -> StackId {
        if frames.is_empty() {
            return StackId::NONE;
        }
        if let Some(&id) = self.by_stack.get(frames) {
            return id;
        }
        if self.table.stack_starts.is_empty() {
            self.table.stack_starts.push(0);
        }
        let id = StackId(self.table.len() as u32);
        self.table.stack_frames.extend_from_slice(frames);
        self.table.stack_starts.push(self.table.stack_frames.len() as u32);
        self.by_stack.insert(frames.into(), id);
        id
    }

    /// The table so far; its ids stay valid.
    pub fn table(&self) -> &StackTable {
        &self.table
    }

    /// The finished table; the lookup maps are dropped.
    pub fn finish(self) -> StackTable {
        self.table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_share_an_id() {
        let mut b = StackTableBuilder::new();
        let file = b.string("train.py");
        let name = b.string("step");
        let f = b.frame(Frame { name, file, line: 7 });
        let g = b.frame(Frame { name, file, line: 8 });
        assert_eq!(f, b.frame(Frame { name, file, line: 7 }));
        let s = b.stack(&[f, g]);
        let t = b.stack(&[g, f]);
        assert_ne!(s, t);
        assert_eq!(s, b.stack(&[f, g]));
        assert_eq!(b.stack(&[]), StackId::NONE);
        let table = b.finish();
        assert_eq!(table.frames(s), &[f, g]);
        assert_eq!(table.frames(t), &[g, f]);
        assert_eq!(table.frames(StackId::NONE), &[]);
        assert_eq!(table.location(table.frame(f).unwrap_or(Frame { name, file, line: 0 })), "train.py:7");
        let mut more = StackTableBuilder::from(table);
        assert_eq!((more.string("step"), more.stack(&[g, f])), (name, t));
        assert_ne!(more.stack(&[g]), s);
    }
}
