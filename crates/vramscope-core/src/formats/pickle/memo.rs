//! Positions of memoised objects: the scan records them, the decoders look them up.
//!
//! A file of a million events stores tens of millions of objects in its memo and fetches few of them. So only the position of
//! each object is kept, in four bytes; any thread can then read the object from the file.

use std::sync::{Arc, RwLock};

use rustc_hash::FxHashMap;

/// The most objects that may be stored inside another one that is stored after them.
const MAX_INSIDE: u64 = 1 << 14;

/// A run of consecutive memo ids.
#[derive(Debug)]
pub(crate) struct Block {
    first: u64,
    /// Offset that `relative` is added to.
    base: u64,
    relative: Vec<u32>,
    /// Positions more than 4 GiB after `base`, by index.
    wide: FxHashMap<u32, u64>,
}

impl Block {
    fn new(first: u64, base: u64) -> Self {
        Block { first, base, relative: Vec::new(), wide: FxHashMap::default() }
    }

    fn start(&self, id: u64) -> Option<u64> {
        let at = usize::try_from(id.checked_sub(self.first)?).ok()?;
        match *self.relative.get(at)? {
            u32::MAX => self.wide.get(&(at as u32)).copied(),
            relative => Some(self.base + u64::from(relative)),
        }
    }
}

/// The published part of the memo; threads read it while the scan continues.
#[derive(Debug, Default)]
pub(crate) struct MemoIndex {
    blocks: RwLock<Vec<Arc<Block>>>,
    /// Ids out of sequence; no snapshot writer creates any.
    sparse: RwLock<FxHashMap<u64, u64>>,
}

impl MemoIndex {
    /// The position of the object with a memo id; `None` when no such object is published.
    pub(crate) fn start(&self, id: u64) -> Option<u64> {
        let found = self.blocks.read().ok().and_then(|blocks| {
            let after = blocks.partition_point(|block| block.first <= id);
            blocks.get(after.checked_sub(1)?)?.start(id)
        });
        found.or_else(|| self.sparse.read().ok()?.get(&id).copied())
    }

    /// Like [`start`](Self::start). `near` caches the run, because the next id is often in the same one.
    pub(crate) fn start_near(&self, id: u64, near: &mut Option<Arc<Block>>) -> Option<u64> {
        if let Some(start) = near.as_ref().and_then(|block| block.start(id)) {
            return Some(start);
        }
        if let Ok(blocks) = self.blocks.read() {
            let after = blocks.partition_point(|block| block.first <= id);
            *near = after.checked_sub(1).and_then(|at| blocks.get(at)).cloned();
        }
        near.as_ref().and_then(|block| block.start(id)).or_else(|| self.start(id))
    }

    /// The first of the ids up to `id` whose object begins at or after byte `start`: the objects nested in object `id`.
    pub(crate) fn first_id_from(&self, start: u64, id: u64) -> u64 {
        let mut first = id;
        while first > 0 && id - first < MAX_INSIDE && self.start(first - 1).is_some_and(|s| s >= start) {
            first -= 1;
        }
        first
    }
}

/// The scan's side, the only writer.
#[derive(Debug)]
pub(crate) struct MemoWriter<'m> {
    index: &'m MemoIndex,
    block: Block,
    sparse: FxHashMap<u64, u64>,
    next: u64,
    /// True once an id came out of sequence; from then on every `PUT` goes into `sparse`.
    irregular: bool,
}

/// A state to return to; valid until the next [`MemoWriter::publish`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoMark {
    next: u64,
    length: usize,
}

impl<'m> MemoWriter<'m> {
    pub(crate) fn new(index: &'m MemoIndex) -> Self {
        MemoWriter { index, block: Block::new(0, 0), sparse: FxHashMap::default(), next: 0, irregular: false }
    }

    /// The memo id that the next `MEMOIZE` takes.
    pub(crate) fn next_id(&self) -> u64 {
        self.next
    }

    /// True when an object was stored under `id`.
    pub(crate) fn contains(&self, id: u64) -> bool {
        if self.irregular { self.start(id).is_some() } else { id < self.next }
    }

    fn start(&self, id: u64) -> Option<u64> {
        self.block.start(id).or_else(|| self.index.start(id)).or_else(|| self.sparse.get(&id).copied())
    }

    /// `MEMOIZE`: assigns the next id to the object at `start`.
    #[inline]
    pub(crate) fn memoize(&mut self, start: usize) {
        let relative = (start as u64).wrapping_sub(self.block.base);
        if relative < u64::from(u32::MAX) {
            self.block.relative.push(relative as u32);
        } else {
            self.block.wide.insert(self.block.relative.len() as u32, start as u64);
            self.block.relative.push(u32::MAX);
        }
        self.next += 1;
    }

    /// `PUT`: assigns `id` to the object at `start`. False when the id is taken.
    #[inline]
    pub(crate) fn put(&mut self, id: u64, start: usize) -> bool {
        if id == self.next && !self.irregular {
            self.memoize(start);
            return true;
        }
        self.put_irregular(id, start)
    }

    /// Like [`put`](Self::put), but returns false without a change unless `id` is the next in sequence.
    #[inline]
    pub(crate) fn put_in_sequence(&mut self, id: u64, start: usize) -> bool {
        let fits = id == self.next && !self.irregular;
        if fits {
            self.memoize(start);
        }
        fits
    }

    #[cold]
    fn put_irregular(&mut self, id: u64, start: usize) -> bool {
        if self.start(id).is_some() {
            return false;
        }
        self.irregular = true;
        self.sparse.insert(id, start as u64);
        // MEMOIZE counts stores, whatever their ids.
        self.publish(start);
        self.next += 1;
        self.block.first = self.next;
        true
    }

    pub(crate) fn mark(&self) -> MemoMark {
        MemoMark { next: self.next, length: self.block.relative.len() }
    }

    pub(crate) fn go_back(&mut self, mark: MemoMark) {
        self.next = mark.next;
        self.block.relative.truncate(mark.length);
        self.block.wide.retain(|&at, _| (at as usize) < mark.length);
    }

    /// Makes all ids so far visible to readers; `pos` is the position of the scan.
    pub(crate) fn publish(&mut self, pos: usize) {
        let mut block = std::mem::replace(&mut self.block, Block::new(self.next, pos as u64));
        if !block.relative.is_empty() {
            self.block.relative.reserve(block.relative.len());
            block.relative.shrink_to_fit();
            if let Ok(mut blocks) = self.index.blocks.write() {
                blocks.push(Arc::new(block));
            }
        }
        if !self.sparse.is_empty()
            && let Ok(mut sparse) = self.index.sparse.write()
        {
            sparse.extend(self.sparse.drain());
        }
    }
}
