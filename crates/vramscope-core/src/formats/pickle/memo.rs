//! Where memoised objects begin: the scan writes it down, the decoders look objects up by it.
//!
//! A million-event file stores tens of millions of objects in its memo and fetches few of them. Keeping four bytes an object,
//! where it begins, instead of the object, lets any thread read any of them from the file whenever it is asked for.

use std::sync::{Arc, RwLock};

use rustc_hash::FxHashMap;

/// The most objects stored inside one that is stored after them.
const MAX_INSIDE: u64 = 1 << 14;

/// A run of consecutive memo ids.
#[derive(Debug)]
pub(crate) struct Block {
    first: u64,
    /// What `relative` counts from.
    base: u64,
    relative: Vec<u32>,
    /// Starts that are not within 4 GiB after `base`, by position.
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

/// The published part of the memo, read by any number of threads while the scan goes on.
#[derive(Debug, Default)]
pub(crate) struct MemoIndex {
    blocks: RwLock<Vec<Arc<Block>>>,
    /// Ids out of sequence; no writer of snapshots makes any.
    sparse: RwLock<FxHashMap<u64, u64>>,
}

impl MemoIndex {
    /// Where the object of a memo id begins; `None` when no published object has it.
    pub(crate) fn start(&self, id: u64) -> Option<u64> {
        let found = self.blocks.read().ok().and_then(|blocks| {
            let after = blocks.partition_point(|block| block.first <= id);
            blocks.get(after.checked_sub(1)?)?.start(id)
        });
        found.or_else(|| self.sparse.read().ok()?.get(&id).copied())
    }

    /// As [`start`](Self::start); `near` keeps the run it found, for the next id is often in the same one.
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

    /// The first id that was stored after the byte `start`, going back from `id`, whose object begins there.
    pub(crate) fn first_id_from(&self, start: u64, id: u64) -> u64 {
        let mut first = id;
        while first > 0 && id - first < MAX_INSIDE && self.start(first - 1).is_some_and(|s| s >= start) {
            first -= 1;
        }
        first
    }
}

/// The scan's side: it alone writes.
#[derive(Debug)]
pub(crate) struct MemoWriter<'m> {
    index: &'m MemoIndex,
    block: Block,
    sparse: FxHashMap<u64, u64>,
    /// The id the next `MEMOIZE` takes.
    next: u64,
    /// True once an id came out of sequence: from then on every `PUT` goes into the map.
    irregular: bool,
}

/// A state to go back to, valid until the next [`MemoWriter::publish`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoMark {
    next: u64,
    length: usize,
}

impl<'m> MemoWriter<'m> {
    pub(crate) fn new(index: &'m MemoIndex) -> Self {
        MemoWriter { index, block: Block::new(0, 0), sparse: FxHashMap::default(), next: 0, irregular: false }
    }

    /// The id the next `MEMOIZE` takes.
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

    /// `MEMOIZE`: the object that begins at `start` takes the next id.
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

    /// `PUT`: the object that begins at `start` takes `id`. False when the id is taken.
    #[inline]
    pub(crate) fn put(&mut self, id: u64, start: usize) -> bool {
        if id == self.next && !self.irregular {
            self.memoize(start);
            return true;
        }
        self.put_irregular(id, start)
    }

    /// As [`put`](Self::put), but changes nothing and says false unless `id` is the next in sequence.
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
        // MEMOIZE counts stores, whatever their ids were.
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

    /// Makes everything so far visible to the readers; `pos` is where the scan stands.
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
