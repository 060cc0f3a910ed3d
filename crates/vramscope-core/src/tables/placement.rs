//! Replays the allocator's block list: each allocation goes where the trace says, and its hole determines the size of its block.
//!
//! A request takes the low part of a hole or all of it, so the hole's size and the settings give the exact block size. Holes are
//! exact if all their neighbours are; only a large block from before the trace may have slack at its end that no event shows.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::instant::SegmentAt;
use crate::model::{AllocConf, PoolId, SizeClass, StreamId};
use crate::units::MEBIBYTE;

const NONE: u32 = u32::MAX;

/// Search steps for blocks not found by address, before the replay is abandoned as not following the trace.
const SEARCH_BUDGET: u64 = 50_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Free,
    Live,
    Pending,
    /// End marker of a segment's list; it has no address of its own.
    Tail,
    /// Returned to the spare nodes.
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    address: u64,
    size: u64,
    prev: u32,
    next: u32,
    lifetime: u32,
    /// Bytes that the program requested, while held.
    requested: u64,
    pool: PoolId,
    class: SizeClass,
    what: Use,
    /// A block from before the trace whose size is a guess; `size` may change while it lives.
    soft: bool,
    /// True in a segment's list; false for a block outside all known segments.
    attached: bool,
}

impl Node {
    const FREE: Node = Node {
        address: 0,
        size: 0,
        prev: NONE,
        next: NONE,
        lifetime: NONE,
        requested: 0,
        pool: PoolId::UNKNOWN,
        class: SizeClass::Large,
        what: Use::Free,
        soft: false,
        attached: true,
    };
}

#[derive(Clone, Copy, Debug)]
struct Run {
    size: u64,
    tail: u32,
    stream: StreamId,
    pool: PoolId,
    is_expandable: bool,
}

/// Result of placing an allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    /// Whole block, in bytes.
    pub(crate) block: u64,
    /// Pool of the segment that holds it.
    pub(crate) pool: PoolId,
    /// Lifetime still live at this address, or `u32::MAX`.
    pub(crate) lost: u32,
}

/// A block that was live before the trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    pub(crate) address: u64,
    /// The block's size, or its minimum.
    pub(crate) size: u64,
    /// True when `size` is certain.
    pub(crate) is_known: bool,
    pub(crate) requested: u64,
    pub(crate) lifetime: u32,
    pub(crate) is_pending: bool,
}

pub(crate) struct Placement<'a> {
    conf: &'a AllocConf,
    /// True when sizes are block sizes and no rounding applies.
    sizes_are_blocks: bool,
    nodes: Vec<Node>,
    spare: Vec<u32>,
    by_address: FxHashMap<u64, u32>,
    runs: BTreeMap<u64, Run>,
    last: u32,
    searched: u64,
    given_up: bool,
    /// Events that did not fit the known blocks.
    pub(crate) mismatches: u64,
    /// Sizes of blocks from before the trace, corrected by later events: lifetime, bytes.
    pub(crate) corrected: Vec<(u32, u64)>,
    /// Blocks from before the trace that were freed while their size was a guess.
    pub(crate) unresolved: u64,
    /// Completed frees with another size than their allocation.
    pub(crate) uneven: u64,
}

impl<'a> Placement<'a> {
    pub(crate) fn new(conf: &'a AllocConf, sizes_are_blocks: bool) -> Self {
        Placement {
            conf,
            sizes_are_blocks,
            nodes: Vec::new(),
            spare: Vec::new(),
            by_address: FxHashMap::default(),
            runs: BTreeMap::new(),
            last: NONE,
            searched: 0,
            given_up: false,
            mismatches: 0,
            corrected: Vec::new(),
            unresolved: 0,
            uneven: 0,
        }
    }

    fn node(&mut self, node: Node) -> u32 {
        if let Some(at) = self.spare.pop() {
            self.nodes[at as usize] = node;
            return at;
        }
        self.nodes.push(node);
        self.nodes.len() as u32 - 1
    }

    fn drop_node(&mut self, at: u32) {
        self.nodes[at as usize].what = Use::Gone;
        self.spare.push(at);
        if self.last == at {
            self.last = NONE;
        }
    }

    fn free_node(&mut self, address: u64, size: u64, pool: PoolId, class: SizeClass) -> u32 {
        let at = self.node(Node { address, size, pool, class, ..Node::FREE });
        if let Some(old) = self.by_address.insert(address, at) {
            // A block outside all segments was here; it can no longer be found by address.
            self.mismatches += u64::from(self.nodes[old as usize].what != Use::Free);
        }
        at
    }

    fn link(&mut self, a: u32, b: u32) {
        if a != NONE {
            self.nodes[a as usize].next = b;
        }
        if b != NONE {
            self.nodes[b as usize].prev = a;
        }
    }

    /// Adds a segment, or pages mapped into an expandable one.
    pub(crate) fn add_run(&mut self, run: &SegmentAt) {
        let (address, size) = (run.address, run.size);
        let Some(end) = address.checked_add(size) else {
            self.mismatches += 1;
            return;
        };
        let overlaps = self.runs.range(..end).next_back().is_some_and(|(&a, r)| a + r.size > address);
        if overlaps || size == 0 {
            self.mismatches += 1;
            return;
        }
        let node = self.free_node(address, size, run.pool, run.class);
        let agrees = |r: &Run| {
            let pools_agree = r.pool == run.pool || r.pool == PoolId::UNKNOWN || run.pool == PoolId::UNKNOWN;
            run.is_expandable && r.is_expandable && r.stream == run.stream && pools_agree
        };
        let before = self.runs.range(..address).next_back().filter(|(a, r)| *a + r.size == address && agrees(r)).map(|(&a, _)| a);
        let after = self.runs.get(&end).copied().filter(&agrees);
        let mut whole = Run { size, tail: NONE, stream: run.stream, pool: run.pool, is_expandable: run.is_expandable };
        let mut start = address;
        if let Some(previous) = before.and_then(|a| self.runs.remove(&a)) {
            start = before.unwrap_or(address);
            let last = self.nodes[previous.tail as usize].prev;
            self.drop_node(previous.tail);
            self.link(last, node);
            whole.size += previous.size;
        }
        if let Some(next) = after {
            self.runs.remove(&end);
            let first = self.by_address.get(&end).copied().unwrap_or(next.tail);
            self.link(node, first);
            whole.size += next.size;
            whole.tail = next.tail;
        } else {
            whole.tail = self.tail_node();
            self.link(node, whole.tail);
        }
        self.runs.insert(start, whole);
        self.merge(node);
    }

    fn tail_node(&mut self) -> u32 {
        self.node(Node { address: u64::MAX, what: Use::Tail, ..Node::FREE })
    }

    /// A segment is returned to the device.
    pub(crate) fn remove_run(&mut self, address: u64, size: u64) {
        let Some(run) = self.runs.get(&address).copied().filter(|r| r.size == size) else {
            self.mismatches += 1;
            return;
        };
        self.runs.remove(&address);
        let mut at = self.by_address.get(&address).copied().unwrap_or(run.tail);
        while at != NONE {
            let node = self.nodes[at as usize];
            match node.what {
                Use::Live | Use::Pending => {
                    // The trace freed a segment that still holds live blocks: keep them findable, outside any segment.
                    self.mismatches += 1;
                    let n = &mut self.nodes[at as usize];
                    (n.attached, n.prev, n.next) = (false, NONE, NONE);
                }
                Use::Free => {
                    self.by_address.remove(&node.address);
                    self.drop_node(at);
                }
                Use::Tail | Use::Gone => self.drop_node(at),
            }
            if node.what == Use::Tail {
                break;
            }
            at = node.next;
        }
    }

    /// Pages of an expandable segment are unmapped.
    pub(crate) fn unmap(&mut self, address: u64, size: u64) {
        let end = address.saturating_add(size);
        let found = self.runs.range(..=address).next_back().map(|(&a, &r)| (a, r)).filter(|(a, r)| a + r.size >= end);
        let (Some((start, run)), Some(at)) = (found, self.find(address)) else {
            self.mismatches += 1;
            return;
        };
        let node = self.nodes[at as usize];
        if node.what != Use::Free || node.address + node.size < end {
            self.mismatches += 1;
            return;
        }
        let node_end = node.address + node.size;
        // After the unmapped pages: the rest of the hole, then the rest of the list.
        let mut rest = node.next;
        if node_end > end {
            let tail_piece = self.free_node(end, node_end - end, node.pool, node.class);
            self.link(tail_piece, node.next);
            rest = tail_piece;
        }
        // Before the unmapped pages.
        let mut last = node.prev;
        if node.address < address {
            self.nodes[at as usize].size = address - node.address;
            last = at;
        } else {
            self.by_address.remove(&address);
            self.drop_node(at);
        }
        self.runs.remove(&start);
        if last != NONE {
            let tail = self.tail_node();
            self.link(last, tail);
            self.runs.insert(start, Run { size: address - start, tail, ..run });
        }
        self.nodes[rest as usize].prev = NONE;
        if rest == run.tail {
            self.drop_node(rest);
        } else {
            self.runs.insert(end, Run { size: start + run.size - end, ..run });
        }
    }

    /// The node of a segment's list that holds `address`.
    fn find(&mut self, address: u64) -> Option<u32> {
        if let Some(&at) = self.by_address.get(&address) {
            return Some(at);
        }
        let (&start, run) = self.runs.range(..=address).next_back()?;
        if address >= start + run.size {
            return None;
        }
        let mut at = self.by_address.get(&start).copied()?;
        loop {
            self.searched += 1;
            let node = &self.nodes[at as usize];
            if node.what == Use::Tail {
                return None;
            }
            if address < node.address + node.size {
                return Some(at);
            }
            at = node.next;
            if at == NONE {
                return None;
            }
        }
    }

    /// Places the blocks live before the trace into the initial segments. Addresses ascend.
    pub(crate) fn add_before(&mut self, blocks: &[Before]) {
        for (i, block) in blocks.iter().enumerate() {
            let Some(at) = self.find(block.address).filter(|&at| self.nodes[at as usize].what == Use::Free) else {
                self.mismatches += u64::from(!self.runs.is_empty());
                self.detached(block.address, block.size, block.requested, block.lifetime, block.is_pending);
                continue;
            };
            let at = self.split_front(at, block.address);
            let node = self.nodes[at as usize];
            let room = match blocks.get(i + 1) {
                Some(next) => node.size.min(next.address - block.address),
                None => node.size,
            };
            self.mismatches += u64::from(block.size > room);
            let least = block.size.min(room);
            let gap = room - least;
            let limit = self.slack_limit(node.class, least);
            let soft = !block.is_known && gap > 0 && limit > 0;
            let size = if soft && gap <= limit { room } else { least };
            self.take(at, size, block.requested, block.lifetime);
            let n = &mut self.nodes[at as usize];
            n.soft = soft;
            n.what = if block.is_pending { Use::Pending } else { Use::Live };
            if size != block.size {
                self.corrected.push((block.lifetime, size));
            }
        }
    }

    /// The most slack that a block of this rounded size can have.
    fn slack_limit(&self, class: SizeClass, rounded: u64) -> u64 {
        if class == SizeClass::Small || self.conf.expandable_segments {
            0
        } else if self.conf.max_split_size.is_some_and(|max| rounded >= max) {
            self.conf.max_non_split_rounding.unwrap_or(self.conf.large_segment_size)
        } else {
            MEBIBYTE
        }
    }

    /// Splits a free node so that one begins at `address`; returns that one.
    fn split_front(&mut self, at: u32, address: u64) -> u32 {
        let node = self.nodes[at as usize];
        if node.address == address {
            return at;
        }
        let second = self.node(Node { address, size: node.address + node.size - address, ..node });
        self.by_address.insert(address, second);
        self.nodes[at as usize].size = address - node.address;
        self.link(at, second);
        self.link(second, node.next);
        second
    }

    /// Turns a free node into a block of `size` bytes; the rest stays free.
    fn take(&mut self, at: u32, size: u64, requested: u64, lifetime: u32) {
        let node = self.nodes[at as usize];
        if size < node.size {
            let rest = self.node(Node { address: node.address + size, size: node.size - size, ..node });
            self.by_address.insert(node.address + size, rest);
            self.link(at, rest);
            self.link(rest, node.next);
        }
        let n = &mut self.nodes[at as usize];
        n.size = size;
        n.what = Use::Live;
        n.requested = requested;
        n.lifetime = lifetime;
        n.soft = false;
        self.last = at;
    }

    fn detached(&mut self, address: u64, size: u64, requested: u64, lifetime: u32, is_pending: bool) {
        let what = if is_pending { Use::Pending } else { Use::Live };
        let at = self.node(Node { address, size, lifetime, requested, what, attached: false, ..Node::FREE });
        self.by_address.insert(address, at);
        self.last = at;
    }

    pub(crate) fn alloc(&mut self, address: u64, requested: u64, lifetime: u32) -> Placed {
        let mut lost = NONE;
        let mut found = self.by_address.get(&address).copied();
        if let Some(at) = found
            && matches!(self.nodes[at as usize].what, Use::Live | Use::Pending)
        {
            // Still live: its free is missing from the trace.
            lost = self.nodes[at as usize].lifetime;
            self.release(at);
            found = self.by_address.get(&address).copied();
        }
        let rounded = if self.sizes_are_blocks { requested } else { self.conf.round_size(requested) };
        let at = match found {
            Some(at) => at,
            None => match self.open(address) {
                Some(at) => at,
                None => {
                    self.detached(address, rounded, requested, lifetime, false);
                    return Placed { block: rounded, pool: PoolId::UNKNOWN, lost };
                }
            },
        };
        let node = &self.nodes[at as usize];
        let (class, size, pool) = (node.class, node.size, node.pool);
        let block = if rounded > size {
            self.mismatches += 1;
            size
        } else if self.sizes_are_blocks || self.conf.should_split(class, size, rounded) {
            rounded
        } else {
            size
        };
        self.take(at, block, requested, lifetime);
        Placed { block, pool, lost }
    }

    /// Called when no node begins at `address`: makes a free one begin there if the segments allow it.
    fn open(&mut self, address: u64) -> Option<u32> {
        if self.runs.is_empty() || self.given_up {
            return None;
        }
        if self.searched > SEARCH_BUDGET {
            self.given_up = true;
        }
        let Some(at) = self.find(address) else {
            self.mismatches += 1;
            return None;
        };
        let node = self.nodes[at as usize];
        match node.what {
            Use::Free => {
                // The block before may be soft: it then ends where this one begins.
                let before = node.prev;
                if before != NONE && self.nodes[before as usize].soft && self.is_in_slack(before, address) {
                    self.resize_soft(before, address);
                    return self.by_address.get(&address).copied();
                }
                self.mismatches += 1;
                Some(self.split_front(at, address))
            }
            Use::Live | Use::Pending if node.soft => {
                self.resize_soft(at, address);
                self.by_address.get(&address).copied()
            }
            _ => {
                self.mismatches += 1;
                None
            }
        }
    }

    fn is_in_slack(&self, soft: u32, address: u64) -> bool {
        let node = &self.nodes[soft as usize];
        address - (node.address + node.size) <= self.slack_limit(node.class, node.size)
    }

    /// Sets the end of a soft block to `end`; the hole after it then begins there.
    fn resize_soft(&mut self, at: u32, end: u64) {
        let node = self.nodes[at as usize];
        let next = node.next;
        let hole = (next != NONE && self.nodes[next as usize].what == Use::Free).then(|| self.nodes[next as usize]);
        let limit = hole.map_or(node.address + node.size, |h| h.address + h.size);
        if let Some(h) = hole {
            self.by_address.remove(&h.address);
            self.link(at, h.next);
            self.drop_node(next);
        }
        let after = self.nodes[at as usize].next;
        let rest = self.node(Node { address: end, size: limit - end, lifetime: NONE, what: Use::Free, soft: false, ..node });
        self.by_address.insert(end, rest);
        self.link(at, rest);
        self.link(rest, after);
        let n = &mut self.nodes[at as usize];
        n.size = end - n.address;
        n.soft = false;
        self.corrected.push((node.lifetime, end - node.address));
    }

    /// The lifetime of the block at `address`, or `u32::MAX`.
    pub(crate) fn lifetime_at(&mut self, address: u64) -> u32 {
        self.block_at(address).map_or(NONE, |at| self.nodes[at as usize].lifetime)
    }

    fn block_at(&mut self, address: u64) -> Option<u32> {
        // A free is often two consecutive events at one address.
        if self.last != NONE {
            let node = &self.nodes[self.last as usize];
            if node.address == address && matches!(node.what, Use::Live | Use::Pending) {
                return Some(self.last);
            }
        }
        let at = self.by_address.get(&address).copied()?;
        matches!(self.nodes[at as usize].what, Use::Live | Use::Pending).then(|| {
            self.last = at;
            at
        })
    }

    /// The program freed the block at `address`; returns its lifetime, or `u32::MAX`.
    pub(crate) fn free_requested(&mut self, address: u64) -> u32 {
        let Some(at) = self.block_at(address) else { return NONE };
        self.nodes[at as usize].what = Use::Pending;
        self.nodes[at as usize].lifetime
    }

    /// The block at `address` became reusable; returns its lifetime, or `u32::MAX`.
    pub(crate) fn free_completed(&mut self, address: u64, size: u64) -> u32 {
        let Some(at) = self.block_at(address) else { return NONE };
        let Node { lifetime, requested, .. } = self.nodes[at as usize];
        self.uneven += u64::from(requested != size);
        self.release(at);
        lifetime
    }

    fn release(&mut self, at: u32) {
        let n = &mut self.nodes[at as usize];
        self.unresolved += u64::from(n.soft);
        n.what = Use::Free;
        n.soft = false;
        n.lifetime = NONE;
        if n.attached {
            self.merge(at);
        } else {
            let address = n.address;
            self.by_address.remove(&address);
            self.drop_node(at);
        }
    }

    /// Joins a free node with its free neighbours.
    fn merge(&mut self, at: u32) {
        let Node { prev, next, address, .. } = self.nodes[at as usize];
        if next != NONE && self.nodes[next as usize].what == Use::Free {
            let absorbed = self.nodes[next as usize];
            self.by_address.remove(&absorbed.address);
            self.nodes[at as usize].size += absorbed.size;
            self.link(at, absorbed.next);
            self.drop_node(next);
        }
        if prev != NONE && self.nodes[prev as usize].what == Use::Free {
            let absorbed = self.nodes[at as usize];
            self.by_address.remove(&address);
            self.nodes[prev as usize].size += absorbed.size;
            self.link(prev, absorbed.next);
            self.drop_node(at);
        }
    }

    /// Every block still held: address, size, lifetime, whether it is pending, and whether its size is a guess.
    pub(crate) fn held(&self) -> impl Iterator<Item = (u64, u64, u32, bool, bool)> {
        let blocks = self.nodes.iter().filter(|n| matches!(n.what, Use::Live | Use::Pending));
        blocks.map(|n| (n.address, n.size, n.lifetime, n.what == Use::Pending, n.soft))
    }
}
