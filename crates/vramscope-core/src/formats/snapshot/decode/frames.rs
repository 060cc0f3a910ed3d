//! The call stack of an entry: cached by memo id, cached by the bytes that fetch its frames, or read from the file.

use std::sync::PoisonError;

use super::{Decoder, FRAMES, MARGIN, RECENT};
use crate::formats::pickle::{self, NO_OFFSET, Node, NodeId, Tree, opcodes as op};
use crate::formats::snapshot::plain::{fetched, list_body, mixed_body, skip_store};
use crate::formats::snapshot::stacks::{MAX_FRAMES, StackReader};
use crate::model::{FrameId, StackId};

/// Longer stacks are cached permanently, so that a stack that is fetched a million times is not read a million times.
const LONG_STACK: usize = 64;

impl<'a> Decoder<'_, '_, 'a> {
    /// The value of `frames`: a fetched list, or a list of fetched frames written here.
    #[inline]
    pub(super) fn frames(&mut self, p: &mut usize, id: &mut u64, limit: usize) -> Option<StackId> {
        let b = self.bytes;
        let at = *p;
        match b[at] {
            op::BINGET | op::LONG_BINGET => {
                let fetched = fetched(b, p)?;
                self.fetched_stack(fetched, *id)
            }
            op::EMPTY_LIST => {
                *p = at + 1;
                let stored = skip_store(b, p, id);
                let from = *p;
                let (stack, next, next_id) = self.stack_of_list(from, *id, limit)?;
                (*p, *id) = (next, next_id);
                let stored = skip_store(b, p, id).or(stored);
                if let Some(list) = stored {
                    self.remember(list, next - from, stack);
                }
                Some(stack)
            }
            _ => None,
        }
    }

    #[inline]
    fn remember(&mut self, list: u64, bytes: usize, stack: StackId) {
        self.worker.recent[list as usize % RECENT] = (list, stack);
        if bytes > LONG_STACK * 5 {
            self.worker.long.insert(list, stack);
        }
    }

    #[inline]
    fn fetched_stack(&mut self, list: u64, id: u64) -> Option<StackId> {
        let recent = self.worker.recent[list as usize % RECENT];
        if recent.0 == list {
            return Some(recent.1);
        }
        if let Some(&stack) = self.worker.long.get(&list) {
            return Some(stack);
        }
        if list >= id {
            return None;
        }
        let (stack, bytes) = self.load_stack(list)?;
        self.remember(list, bytes, stack);
        Some(stack)
    }

    /// The stack of a list whose items begin at `from`, the position after the list, and the next memo id there.
    #[inline]
    fn stack_of_list(&mut self, from: usize, id: u64, limit: usize) -> Option<(StackId, usize, u64)> {
        match list_body(self.bytes, from, limit) {
            Some((body, next)) => Some((self.stack_of_bytes(body)?, next, id)),
            None => self.mixed_stack(from, id, limit),
        }
    }

    #[cold]
    fn mixed_stack(&mut self, from: usize, id: u64, limit: usize) -> Option<(StackId, usize, u64)> {
        let (items, next, next_id) = mixed_body(self.bytes, from, id, limit)?;
        let mut frames = Vec::with_capacity(items.len());
        for item in items {
            frames.extend(self.frame(item)?);
        }
        Some((self.intern(&frames)?, next, next_id))
    }

    fn intern(&self, frames: &[FrameId]) -> Option<StackId> {
        let fits = frames.len() <= MAX_FRAMES;
        fits.then(|| self.shared.stacks.lock().unwrap_or_else(PoisonError::into_inner).stack(frames))
    }

    /// Loads a list stored elsewhere. Takes the fast way if its frames are stored and nothing after it can add to it.
    fn load_stack(&mut self, list: u64) -> Option<(StackId, usize)> {
        let b = self.bytes;
        let limit = b.len().checked_sub(MARGIN)?;
        let mut p = self.shared.memo.start_near(list, &mut self.worker.near_block)? as usize;
        if p < limit && b[p] == op::EMPTY_LIST {
            p += 1;
            let mut id = list;
            skip_store(b, &mut p, &mut id);
            if let Some((stack, mut next, mut id)) = self.stack_of_list(p, id, limit) {
                let length = next - p;
                skip_store(b, &mut next, &mut id);
                // Either the dict that contains the list ends here, or its next key follows.
                let is_complete = match b[next] {
                    op::SETITEMS => true,
                    op::BINGET => b[next + 2] != op::APPEND,
                    op::LONG_BINGET => b[next + 5] != op::APPEND,
                    _ => false,
                };
                if is_complete {
                    return Some((stack, length));
                }
            }
        }
        // Few bytes, but expensive to load: cache it permanently.
        Some((self.stack_of_both(list)?, usize::MAX))
    }

    /// The stack of a list in which some frames are written in full and others fetched. Shared frames are loaded once, not once
    /// per list: with `stacks="all"` hundreds of lists share a few hundred frames.
    #[cold]
    fn stack_of_both(&mut self, list: u64) -> Option<StackId> {
        let mut tree = Tree::default();
        let node = pickle::list_of_fetched(self.bytes, &self.shared.memo, &mut tree, list, &self.shared.budget).ok()?;
        let items: Vec<NodeId> = tree.items(node).to_vec();
        if !matches!(tree.node(node), Node::List(_)) || items.len() > MAX_FRAMES {
            return None;
        }
        let mut frames: Vec<Option<FrameId>> = Vec::with_capacity(items.len());
        for &item in &items {
            frames.push(match *tree.node(item) {
                Node::Memo(id) => self.frame(id)?,
                _ => None,
            });
        }
        let mut builder = self.shared.stacks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut reader = StackReader::new(&mut builder);
        for (frame, &item) in frames.iter_mut().zip(&items) {
            if !matches!(tree.node(item), Node::Memo(_)) {
                *frame = reader.frame(&tree, item, &mut self.out.report);
            }
        }
        let frames: Vec<FrameId> = frames.into_iter().flatten().collect();
        Some(builder.stack(&frames))
    }

    /// Loads a stored object into a tree of its own.
    fn load(&self, id: u64) -> Option<(Tree<'a>, NodeId)> {
        let mut tree = Tree::default();
        let node = tree.push(Node::Memo(id), NO_OFFSET);
        pickle::resolve_outside(self.bytes, &self.shared.memo, &mut tree, vec![(id, node)], &self.shared.budget).ok()?;
        Some((tree, node))
    }

    /// The stack whose frames these bytes fetch.
    #[inline]
    fn stack_of_bytes(&mut self, body: &'a [u8]) -> Option<StackId> {
        if body.is_empty() {
            return Some(StackId::NONE);
        }
        if let Some(&stack) = self.worker.by_bytes.get(body) {
            return Some(stack);
        }
        self.new_stack(body)
    }

    #[cold]
    fn new_stack(&mut self, body: &'a [u8]) -> Option<StackId> {
        let mut frames = Vec::with_capacity(body.len() / 2);
        let mut rest = body;
        let mut whole = true;
        loop {
            let id = match *rest {
                [] => break,
                [op::BINGET, id, ref after @ ..] => {
                    rest = after;
                    u64::from(id)
                }
                [op::LONG_BINGET, a, b, c, d, ref after @ ..] => {
                    rest = after;
                    u64::from(u32::from_le_bytes([a, b, c, d]))
                }
                // A `FRAME` opcode in between makes these bytes unique, so caching them is useless.
                [op::FRAME, ref after @ ..] => {
                    rest = after.get(8..)?;
                    whole = false;
                    continue;
                }
                _ => return None,
            };
            frames.extend(self.frame(id)?);
        }
        let stack = self.intern(&frames)?;
        if whole {
            self.worker.by_bytes.insert(body, stack);
        }
        Some(stack)
    }

    /// A frame dict stored elsewhere. The outer `None` means that the general decoder must read the entry.
    #[inline]
    fn frame(&mut self, id: u64) -> Option<Option<FrameId>> {
        let near = self.worker.near_frames[id as usize % FRAMES];
        if near.0 == id { Some(near.1) } else { self.far_frame(id) }
    }

    fn far_frame(&mut self, id: u64) -> Option<Option<FrameId>> {
        if let Some(&known) = self.worker.frames.get(&id) {
            self.worker.near_frames[id as usize % FRAMES] = (id, known);
            return Some(known);
        }
        let (tree, node) = self.load(id)?;
        let mut builder = self.shared.stacks.lock().unwrap_or_else(PoisonError::into_inner);
        let frame = StackReader::new(&mut builder).frame(&tree, node, &mut self.out.report);
        drop(builder);
        self.worker.frames.insert(id, frame);
        self.worker.near_frames[id as usize % FRAMES] = (id, frame);
        Some(frame)
    }
}
