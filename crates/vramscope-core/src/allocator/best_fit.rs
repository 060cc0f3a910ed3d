//! Best fit: finds the smallest free block that is large enough, and decides between equal ones.

use super::block::{BlockIx, PoolIx};
use super::caching::{CachingAllocator, EventSink};
use super::memory::DeviceMemory;
use super::pool::{FreeKey, TieRule};

impl<M: DeviceMemory, S: EventSink> CachingAllocator<M, S> {
    /// Takes the smallest sufficient free block of the stream out of the pool. Ties are decided by the release's rule.
    pub(crate) fn take_best_fit(&mut self, pool: PoolIx, rounded: u64, stream: u64, expandable: bool) -> Option<BlockIx> {
        let counts_ages = self.counts_ages();
        let max_split = self.max_split();
        let slack = self.conf.max_non_split_rounding.unwrap_or(self.conf.large_segment_size);
        let home = &mut self.pools[usize::from(pool)];
        if counts_ages {
            home.calls += 1;
        }
        let blocks = &self.blocks;
        let free = &home.stream(stream)?.free;
        let mut candidates = free.from(FreeKey::at_least(rounded));
        let (mut place, mut key, mut chosen) = candidates.next()?;
        if blocks[chosen].is_expandable() {
            if expandable {
                // The free end of an expandable segment counts with the unmapped space after it, so PyTorch prefers a hole.
                let reach = |b: BlockIx| {
                    let block = &blocks[b];
                    let behind = block.next.get().map_or(0, |n| if blocks[n].mapped { 0 } else { blocks[n].size });
                    block.size + behind
                };
                while blocks[chosen].is_expandable() {
                    match candidates.next() {
                        Some(next) if reach(next.2) < reach(chosen) => (place, key, chosen) = next,
                        _ => break,
                    }
                }
            } else {
                loop {
                    (place, key, chosen) = candidates.next()?;
                    if !blocks[chosen].is_expandable() {
                        break;
                    }
                }
            }
        }
        if !self.has_tie && self.tie_rule != TieRule::SegmentAge {
            let one = &blocks[chosen];
            for (steps, (_, k, other)) in candidates.by_ref().enumerate() {
                if k.size() != key.size() {
                    break;
                }
                let other = &blocks[other];
                let whole = !one.is_split() && !other.is_split() && (!counts_ages || one.gc_base == other.gc_base);
                // Whole segments of equal size are interchangeable. After 16 of them, give up proving it and assume a tie.
                if steps >= 16 || (other.segment != one.segment && !whole) {
                    self.has_tie = true;
                    break;
                }
            }
        }
        drop(candidates);
        let size = key.size();
        if (rounded < max_split && size >= max_split) || (rounded >= max_split && size >= rounded.saturating_add(slack)) {
            return None;
        }
        self.pools[usize::from(pool)].stream_mut(stream).free.remove_at(place);
        Some(chosen)
    }
}
