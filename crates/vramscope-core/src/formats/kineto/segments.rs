//! Reconstructs segments from a trace's totals.
//!
//! A trace has no segments. But its total of reserved bytes rises exactly when PyTorch allocates one, at the allocation that gets
//! its first bytes. So the rise is the segment's size, and the allocation's address is the segment's. (All 169 segments found
//! this way in the corpus match the snapshots of the same runs.) If the address lies inside reserved memory, an expandable
//! segment grew at its end. When the total falls, segments without live blocks were freed.

use std::collections::BTreeMap;

use crate::model::Action;

/// A segment event derived from a change of the total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentEvent {
    pub(super) action: Action,
    pub(super) address: u64,
    pub(super) size: u64,
}

/// The segments found so far, and the live blocks.
#[derive(Debug, Default)]
pub(super) struct SegmentFinder {
    total: Option<u64>,
    /// Size by first address; adjacent ranges of an expandable segment are merged.
    segments: BTreeMap<u64, u64>,
    live: BTreeMap<u64, u64>,
    /// Bytes reserved when the trace began.
    pub(super) at_start: u64,
    /// The part of that whose segments are still unknown.
    pub(super) unknown_at_start: u64,
    /// Bytes freed whose segments are unknown.
    pub(super) unexplained: u64,
    /// Number of segments searched so far for ones to free.
    looked_at: usize,
    found: Vec<SegmentEvent>,
}

impl SegmentFinder {
    /// The segment events right before a memory event. `bytes` is positive for an allocation at `address`, negative for a free, 0
    /// for a failure; `reserved` and `allocated` are the totals after it.
    pub(super) fn before(&mut self, address: u64, bytes: i64, reserved: u64, allocated: Option<u64>) -> &[SegmentEvent] {
        self.found.clear();
        let before = self.total.unwrap_or_else(|| {
            // A trace from the first allocation on has all segments; a later one cannot know the first ones.
            let nothing_before = allocated.is_some_and(|a| i128::from(a) == i128::from(bytes.max(0)));
            self.at_start = if nothing_before { 0 } else { reserved };
            self.unknown_at_start = self.at_start;
            self.at_start
        });
        self.total = Some(reserved);
        if reserved > before && bytes > 0 {
            self.grow(address, reserved - before);
        } else if reserved < before {
            self.shrink(before - reserved);
        } else {
            self.unexplained = self.unexplained.saturating_add(reserved - before);
        }
        if bytes > 0 {
            self.live.insert(address, bytes.unsigned_abs());
        } else if bytes < 0 {
            self.live.remove(&address);
        }
        &self.found
    }

    fn grow(&mut self, address: u64, size: u64) {
        let inside = self.segments.range(..=address).next_back().filter(|&(&start, &length)| address - start < length);
        if let Some((&start, &length)) = inside {
            self.found.push(SegmentEvent { action: Action::SegmentMap, address: start.saturating_add(length), size });
            self.segments.insert(start, length.saturating_add(size));
        } else {
            self.found.push(SegmentEvent { action: Action::SegmentAlloc, address, size });
            self.segments.insert(address, size);
        }
    }

    /// Frees segments without live blocks: all of them if their sum fits (`empty_cache`), otherwise the largest that fit.
    fn shrink(&mut self, mut size: u64) {
        // No genuine run frees segments this often.
        const MOST: usize = 20_000_000;
        self.looked_at = self.looked_at.saturating_add(self.segments.len());
        if self.looked_at > MOST {
            self.unexplained = self.unexplained.saturating_add(size);
            return;
        }
        let is_free = |&(&start, &length): &(&u64, &u64)| self.live.range(start..start.saturating_add(length)).next().is_none();
        let mut free: Vec<(u64, u64)> = self.segments.iter().filter(is_free).map(|(&a, &s)| (a, s)).collect();
        if free.iter().fold(0u64, |sum, f| sum.saturating_add(f.1)) > size {
            free.sort_by_key(|&(address, length)| (std::cmp::Reverse(length), address));
        }
        for (address, length) in free {
            if length <= size {
                size -= length;
                self.segments.remove(&address);
                self.found.push(SegmentEvent { action: Action::SegmentFree, address, size: length });
            }
        }
        // Count the rest as memory that was reserved before the trace, as far as there was any.
        let known_unknown = size.min(self.unknown_at_start);
        self.unknown_at_start -= known_unknown;
        self.unexplained = self.unexplained.saturating_add(size - known_unknown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn steps_are_segments() {
        let mut f = SegmentFinder::default();
        let event = |action, address, size| SegmentEvent { action, address, size };
        assert_eq!(f.before(4096, 512, 2 * MIB, Some(512)), [event(Action::SegmentAlloc, 4096, 2 * MIB)]);
        assert_eq!(f.before(4608, 512, 2 * MIB, Some(1024)), []);
        assert_eq!(f.before(1 << 40, 5 << 20, 22 * MIB, None), [event(Action::SegmentAlloc, 1 << 40, 20 * MIB)]);
        assert_eq!(f.before(1 << 40, -(5 << 20), 22 * MIB, None), []);
        // `empty_cache`, visible at the next event: only the large segment is empty.
        assert_eq!(f.before(4608, -512, 2 * MIB, None), [event(Action::SegmentFree, 1 << 40, 20 * MIB)]);
        assert_eq!((f.unknown_at_start, f.unexplained), (0, 0));
    }

    #[test]
    fn expandable_segments_grow_at_their_end() {
        let mut f = SegmentFinder::default();
        f.before(0x1000, 30 << 20, 40 * MIB, Some(30 << 20));
        let grown = f.before(0x1000 + (33 << 20), 50 << 20, 100 * MIB, None).to_vec();
        assert_eq!(grown, [SegmentEvent { action: Action::SegmentMap, address: 0x1000 + 40 * MIB, size: 60 * MIB }]);
    }

    #[test]
    fn what_was_there_before_has_no_name() {
        let mut f = SegmentFinder::default();
        assert_eq!(f.before(4096, 512, 100 * MIB, Some(90 * MIB)), []);
        assert_eq!(f.unknown_at_start, 100 * MIB);
        assert_eq!(f.before(0, 0, 80 * MIB, None), []);
        assert_eq!((f.unknown_at_start, f.unexplained), (80 * MIB, 0));
        f.before(0, 0, 90 * MIB, None);
        assert_eq!(f.unexplained, 10 * MIB);
    }
}
