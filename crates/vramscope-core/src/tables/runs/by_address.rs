//! [`Runs`]: the segments of an instant, ordered by address.

use std::collections::BTreeMap;

use crate::model::PoolId;
use crate::tables::instant::{NO_EVENT, SegmentAt};

/// Segments that do not overlap. A tree, because a file may have a hundred thousand scattered ones and a list would move them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs(BTreeMap<u64, SegmentAt>);

impl From<Vec<SegmentAt>> for Runs {
    fn from(runs: Vec<SegmentAt>) -> Self {
        Runs(runs.into_iter().map(|run| (run.address, run)).collect())
    }
}

impl Runs {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &SegmentAt> {
        self.0.values()
    }

    pub(crate) fn to_vec(&self) -> Vec<SegmentAt> {
        self.0.values().cloned().collect()
    }

    pub(crate) fn into_vec(self) -> Vec<SegmentAt> {
        self.0.into_values().collect()
    }

    /// The last run that begins at or before an address.
    pub(crate) fn up_to(&self, address: u64) -> Option<&SegmentAt> {
        self.0.range(..=address).next_back().map(|(_, run)| run)
    }

    /// The first run that begins after an address.
    pub(crate) fn after(&self, address: u64) -> Option<&SegmentAt> {
        self.0.range(address.checked_add(1)?..).next().map(|(_, run)| run)
    }

    /// Adds a run and merges expandable neighbours. Returns false and changes nothing if it overlaps another or ends out of range.
    pub(crate) fn insert(&mut self, mut run: SegmentAt) -> bool {
        let Some(end) = run.address.checked_add(run.size).filter(|_| run.size > 0) else { return false };
        let overlaps = |r: &SegmentAt| r.address < end && r.address + r.size > run.address;
        let (before, after) = (self.up_to(run.address), self.after(run.address));
        if before.is_some_and(overlaps) || after.is_some_and(overlaps) {
            return false;
        }
        if let Some(next) = after.filter(|next| joins(&run, next)).cloned() {
            self.0.remove(&next.address);
            join(&mut run, &next);
        }
        let before = self.0.range_mut(..run.address).next_back().map(|(_, before)| before);
        match before.filter(|before| joins(before, &run)) {
            Some(before) => join(before, &run),
            None => _ = self.0.insert(run.address, run),
        }
        true
    }

    /// Removes a range from the run that holds it; head and tail stay. Returns the run as it was, or `None` without a change.
    pub(crate) fn cut(&mut self, address: u64, size: u64) -> Option<SegmentAt> {
        let whole = self.up_to(address)?.clone();
        let (end, whole_end) = (address.checked_add(size)?, whole.address + whole.size);
        if end > whole_end || size == 0 || (!whole.is_expandable && (address != whole.address || end != whole_end)) {
            return None;
        }
        self.0.remove(&whole.address);
        if whole.address < address {
            self.0.insert(whole.address, SegmentAt { size: address - whole.address, ..whole.clone() });
        }
        if end < whole_end {
            self.0.insert(end, SegmentAt { address: end, size: whole_end - end, ..whole.clone() });
        }
        Some(whole)
    }
}

/// True when two adjacent runs belong to the same expandable segment.
fn joins(a: &SegmentAt, b: &SegmentAt) -> bool {
    let pools_agree = a.pool == b.pool || a.pool == PoolId::UNKNOWN || b.pool == PoolId::UNKNOWN;
    a.is_expandable && b.is_expandable && a.stream == b.stream && pools_agree && a.address + a.size == b.address
}

/// Appends `b` to `a`; keeps the older allocation event.
fn join(a: &mut SegmentAt, b: &SegmentAt) {
    let age = |s: &SegmentAt| if s.born == NO_EVENT { 0 } else { u64::from(s.born) + 1 };
    // If the classes differ, the larger part decides, because a single small page looks like any other.
    if b.size > a.size {
        a.class = b.class;
    }
    if age(b) < age(a) {
        (a.born, a.stack) = (b.born, b.stack);
    }
    if a.pool == PoolId::UNKNOWN {
        a.pool = b.pool;
    }
    a.size += b.size;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{SizeClass, StackId, StreamId};

    fn run(address: u64, size: u64, is_expandable: bool) -> SegmentAt {
        let (stream, pool, class) = (StreamId(0), PoolId(0), SizeClass::Large);
        SegmentAt { address, size, stream, pool, class, is_expandable, born: 0, stack: StackId::NONE, blocks: 0..0 }
    }

    fn told(runs: &Runs) -> Vec<(u64, u64)> {
        runs.iter().map(|r| (r.address, r.size)).collect()
    }

    #[test]
    fn neighbours_join_and_come_apart_again() {
        let mut runs = Runs::default();
        assert!(runs.insert(run(100, 10, true)) && runs.insert(run(120, 10, true)));
        assert!(
            !runs.insert(run(95, 6, true)) && !runs.insert(run(109, 2, true)) && !runs.insert(run(90, 100, true)),
            "overlaps"
        );
        assert!(!runs.insert(run(5, 0, true)) && !runs.insert(run(u64::MAX, 2, true)), "no range");
        assert!(runs.insert(run(110, 10, true)));
        assert_eq!(told(&runs), [(100, 30)]);
        assert_eq!(runs.cut(105, 10).map(|r| r.size), Some(30));
        assert_eq!(told(&runs), [(100, 5), (115, 15)]);
        assert!(runs.cut(103, 5).is_none() && runs.cut(99, 2).is_none(), "not held");
        // Segments of cudaMalloc cannot be cut.
        assert!(runs.insert(run(130, 10, false)) && runs.cut(130, 5).is_none());
        assert_eq!(told(&runs), [(100, 5), (115, 15), (130, 10)]);
        assert_eq!((runs.up_to(114).map(|r| r.address), runs.after(115).map(|r| r.address)), (Some(100), Some(130)));
    }

    #[test]
    fn a_scattered_segment_costs_no_more_for_the_others() {
        let mut runs = Runs::default();
        // In descending order: in a list each insert would move all others, which takes minutes.
        for i in (0..400_000u64).rev() {
            assert!(runs.insert(run(i * 100, 10, true)));
        }
        assert_eq!(runs.len(), 400_000);
    }
}
