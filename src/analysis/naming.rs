//! Short names for call stacks: the innermost frame that is the user's own, because `conv.py:548` says less than `train.py:71`.

use rustc_hash::FxHashMap;

use crate::model::{Frame, FrameId, StackId, StackTable};

/// A name each stack goes by, shared by stacks that meet in the same place.
#[derive(Clone, Debug, Default)]
pub struct StackNames {
    /// For each stack, its name's index.
    of_stack: Vec<u32>,
    /// For each name, its frame.
    frames: Vec<FrameId>,
    texts: Vec<String>,
}

/// The name of allocations without a stack.
pub const NO_STACK: &str = "no Python stack";

impl StackNames {
    /// Names every stack of a table.
    #[must_use]
    pub fn of(stacks: &StackTable) -> Self {
        let mut names = StackNames::default();
        let mut seen: FxHashMap<FrameId, u32> = FxHashMap::default();
        for i in 0..stacks.len() {
            let Some(frame) = own_frame(stacks, StackId(i as u32)) else {
                names.of_stack.push(u32::MAX);
                continue;
            };
            let index = *seen.entry(frame).or_insert_with(|| {
                names.frames.push(frame);
                names.texts.push(stacks.frame(frame).map(|f| stacks.location(f)).unwrap_or_default());
                names.frames.len() as u32 - 1
            });
            names.of_stack.push(index);
        }
        names
    }

    /// Number of distinct names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// True when no stack has a name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The index of a stack's name; `None` without a stack.
    #[must_use]
    pub fn index(&self, stack: StackId) -> Option<usize> {
        self.of_stack.get(stack.0 as usize).filter(|&&i| i != u32::MAX).map(|&i| i as usize)
    }

    /// A name by its index: `workloads.py:71`.
    #[must_use]
    pub fn text(&self, index: usize) -> &str {
        self.texts.get(index).map_or(NO_STACK, String::as_str)
    }

    /// The name of a stack.
    #[must_use]
    pub fn of_stack(&self, stack: StackId) -> &str {
        self.index(stack).map_or(NO_STACK, |i| self.text(i))
    }

    /// The frame a name stands for.
    #[must_use]
    pub fn frame(&self, index: usize) -> Option<FrameId> {
        self.frames.get(index).copied()
    }
}

/// True for a frame inside PyTorch, Python itself or another installed package, or without a source.
#[must_use]
pub fn is_framework(stacks: &StackTable, frame: Frame) -> bool {
    let file = stacks.text(frame.file);
    const PARTS: [&str; 6] = ["site-packages/", "dist-packages/", "/torch/", "site-packages\\", "/lib/python3", "torch/csrc"];
    file.starts_with('<')
        // Profiler traces name files from below site-packages on.
        || file.starts_with("torch/")
        || file.is_empty()
        || file == "??"
        || PARTS.iter().any(|p| file.contains(p))
        || [".so", ".cpp", ".h", ".cc", ".c", ".cu"].iter().any(|end| file.ends_with(end))
        || file.contains(".so.")
}

/// The innermost frame of the user's own code; the innermost frame of all when there is none.
#[must_use]
pub fn own_frame(stacks: &StackTable, stack: StackId) -> Option<FrameId> {
    let frames = stacks.frames(stack);
    frames
        .iter()
        .copied()
        .find(|&f| stacks.frame(f).is_some_and(|f| !is_framework(stacks, f)))
        .or_else(|| frames.first().copied())
}

/// A stack as text, innermost frame first, a line a frame: `file:line name`.
#[must_use]
pub fn stack_text(stacks: &StackTable, stack: StackId) -> String {
    let lines: Vec<String> = stacks
        .frames(stack)
        .iter()
        .filter_map(|&f| stacks.frame(f))
        .map(|f| {
            if stacks.frame_is_unresolved(f) {
                format!("{}+{:#x} {}", stacks.text(f.file), f.line, stacks.text(f.name))
            } else {
                format!("{}:{} {}", stacks.text(f.file), f.line, stacks.text(f.name))
            }
        })
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::StackTableBuilder;

    #[test]
    fn a_stack_goes_by_its_users_frame() {
        let mut b = StackTableBuilder::new();
        let mut frame = |file: &str, line| {
            let name = b.string("f");
            let file = b.string(file);
            b.frame(Frame { name, file, line })
        };
        let torch = frame("/venv/lib/python3.12/site-packages/torch/nn/modules/conv.py", 548);
        let own = frame("/home/me/train.py", 71);
        let main = frame("/home/me/train.py", 90);
        let s = b.stack(&[torch, own, main]);
        let t = b.stack(&[own, main]);
        let u = b.stack(&[torch]);
        let names = StackNames::of(b.table());
        assert_eq!(names.of_stack(s), "train.py:71");
        assert_eq!(names.index(s), names.index(t));
        assert_eq!(names.of_stack(u), "conv.py:548");
        assert_eq!(names.of_stack(StackId::NONE), NO_STACK);
    }
}
