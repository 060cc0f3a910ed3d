//! Renumbers ids by event order: threads intern in random order, but the same file must always give the same ids.

use rustc_hash::FxHashMap;

use crate::model::{DeviceRecording, Frame, FrameId, Progress, StackId, StackTable, StackTableBuilder, StrId};

/// Renumbers every string, frame and stack by first use. One pass over the stack column.
pub(super) fn by_first_use(devices: &mut [DeviceRecording], table: &StackTable, progress: &Progress) -> StackTable {
    let mut order = Order {
        table,
        builder: StackTableBuilder::new(),
        stacks: vec![StackId::NONE; table.len()],
        frames: Vec::new(),
        of_stack: Vec::new(),
        texts: FxHashMap::default(),
    };
    for device in devices {
        for part in device.events.stack.chunks_mut(1 << 18) {
            for stack in part.iter_mut() {
                *stack = order.stack(*stack);
            }
            progress.advance_stage(part.len() as u64);
        }
        for note in &mut device.events.notes {
            note.text = order.text(note.text);
        }
        for segment in &mut device.segments {
            segment.stack = order.stack(segment.stack);
        }
        for block in &mut device.blocks {
            block.stack = order.stack(block.stack);
        }
        for annotation in &mut device.annotations {
            annotation.name = order.text(annotation.name);
        }
    }
    order.builder.finish()
}

struct Order<'t> {
    table: &'t StackTable,
    builder: StackTableBuilder,
    stacks: Vec<StackId>,
    /// Deep stacks share frames: renumber each frame once.
    frames: Vec<Option<FrameId>>,
    /// Frames of the current stack; a buffer to reuse.
    of_stack: Vec<FrameId>,
    texts: FxHashMap<StrId, StrId>,
}

impl Order<'_> {
    #[inline]
    fn stack(&mut self, old: StackId) -> StackId {
        match self.stacks.get(old.0 as usize) {
            None => StackId::NONE,
            Some(&StackId::NONE) => self.new_stack(old),
            Some(&known) => known,
        }
    }

    #[cold]
    fn new_stack(&mut self, old: StackId) -> StackId {
        let mut frames = std::mem::take(&mut self.of_stack);
        frames.clear();
        for &id in self.table.frames(old) {
            let known = self.frames.get(id.0 as usize).copied().flatten();
            frames.extend(known.or_else(|| self.new_frame(id)));
        }
        let new = self.builder.stack(&frames);
        self.of_stack = frames;
        if let Some(slot) = self.stacks.get_mut(old.0 as usize) {
            *slot = new;
        }
        new
    }

    #[cold]
    fn new_frame(&mut self, old: FrameId) -> Option<FrameId> {
        let frame = self.table.frame(old)?;
        let (name, file) = (self.text(frame.name), self.text(frame.file));
        let new = self.builder.frame(Frame { name, file, line: frame.line });
        let at = old.0 as usize;
        if self.frames.len() <= at {
            self.frames.resize(at + 1, None);
        }
        if let Some(slot) = self.frames.get_mut(at) {
            *slot = Some(new);
        }
        Some(new)
    }

    fn text(&mut self, old: StrId) -> StrId {
        let (table, builder) = (self.table, &mut self.builder);
        *self.texts.entry(old).or_insert_with(|| builder.string(table.text(old)))
    }
}
