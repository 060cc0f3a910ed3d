//! [`unmapped_classes`]: the pool of the pages that each `segment_unmap` removes from an expandable segment.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::model::conf::SMALL_SEGMENT;
use crate::model::{Action, DeviceRecording, EventId, SizeClass};

/// The size class of every `segment_unmap`. O(events + mappings log mappings).
///
/// An expandable segment belongs to one pool and has pages of one size: 2 MiB for the small pool, `large_segment_size` for the
/// large one. An unmap may remove several pages at once, so its size decides only if it is not a multiple of a large page: ten
/// small pages are as long as a large one. Otherwise the class is that of the last mapping there. If that was before the trace,
/// it is that of the next mapping there or right beside it, or of the final segments.
pub(crate) fn unmapped_classes(device: &DeviceRecording) -> FxHashMap<EventId, SizeClass> {
    let events = &device.events;
    let large = device.settings.conf.large_segment_size.max(1);
    // If large pages are as small as small ones, the size decides nothing.
    let of_map =
        |size: u64| (large != SMALL_SEGMENT).then_some(if size == SMALL_SEGMENT { SizeClass::Small } else { SizeClass::Large });
    let pages: Vec<usize> =
        (0..events.len()).filter(|&i| matches!(events.action[i], Action::SegmentMap | Action::SegmentUnmap)).collect();
    let range = |i: usize| (events.address[i], events.address[i].saturating_add(events.size[i]));
    let mut classes: FxHashMap<EventId, SizeClass> = FxHashMap::default();
    let mut open: Vec<usize> = Vec::new();
    let mut mapped = Ranges::default();
    for &i in &pages {
        let (from, to) = range(i);
        if events.action[i] == Action::SegmentMap {
            mapped.set(from, to, of_map(events.size[i]));
            continue;
        }
        let told = if events.size[i].is_multiple_of(large) { mapped.class(from, to) } else { Some(SizeClass::Small) };
        mapped.set(from, to, None);
        match told {
            Some(class) => _ = classes.insert(i as EventId, class),
            None => open.push(i),
        }
    }
    if open.is_empty() {
        return classes;
    }
    let mut later = Ranges::default();
    for segment in device.segments.iter().filter(|s| s.is_expandable) {
        later.set(segment.address, segment.address.saturating_add(segment.size), Some(segment.class));
    }
    for &i in pages.iter().rev() {
        let (from, to) = range(i);
        if events.action[i] == Action::SegmentMap {
            later.set(from, to, of_map(events.size[i]).or_else(|| later.class(from, to)));
            continue;
        }
        let class = classes.get(&(i as EventId)).copied().or_else(|| later.class(from.saturating_sub(1), to.saturating_add(1)));
        // Most memory belongs to the large pool.
        let class = *classes.entry(i as EventId).or_insert(class.unwrap_or(SizeClass::Large));
        later.set(from, to, Some(class));
    }
    classes
}

/// Ranges of addresses and their class, without overlaps.
#[derive(Default)]
struct Ranges(BTreeMap<u64, (u64, SizeClass)>);

impl Ranges {
    /// The class of the first range that overlaps `from..to`.
    fn class(&self, from: u64, to: u64) -> Option<SizeClass> {
        let before = self.0.range(..=from).next_back().filter(|(_, (end, _))| *end > from);
        before.or_else(|| self.0.range(from..to).next()).map(|(_, &(_, class))| class)
    }

    /// Sets the class of an address range, or removes it.
    fn set(&mut self, from: u64, to: u64, class: Option<SizeClass>) {
        if from >= to {
            return;
        }
        if let Some((&start, &(end, other))) = self.0.range(..from).next_back().filter(|(_, (end, _))| *end > from) {
            self.0.insert(start, (from, other));
            if end > to {
                self.0.insert(to, (end, other));
            }
        }
        while let Some((&start, &(end, other))) = self.0.range(from..to).next() {
            self.0.remove(&start);
            if end > to {
                self.0.insert(to, (end, other));
            }
        }
        if let Some(class) = class {
            self.0.insert(from, (to, class));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{PoolId, Segment, StackId, StreamId};
    use crate::units::MEBIBYTE;

    const BASE: u64 = 1 << 40;

    /// Maps (`+`) and unmaps (`-`): offset from the base and size in MiB; then what is mapped at the end.
    fn classes(changes: &[(char, u64, u64)], end: &[(u64, u64, SizeClass)]) -> Vec<SizeClass> {
        let mut device = DeviceRecording { has_final_state: true, ..DeviceRecording::default() };
        for (t, &(what, at, size)) in changes.iter().enumerate() {
            let action = if what == '+' { Action::SegmentMap } else { Action::SegmentUnmap };
            let (address, size) = (BASE + at * MEBIBYTE, size * MEBIBYTE);
            device.events.push(t as i64, action, address, size, StreamId(0), PoolId::UNKNOWN, StackId::NONE);
        }
        for &(at, size, class) in end {
            let (address, size) = (BASE + at * MEBIBYTE, size * MEBIBYTE);
            device.segments.push(Segment { address, size, class, is_expandable: true, ..Segment::default() });
        }
        let found = unmapped_classes(&device);
        let unmaps = (0..changes.len()).filter(|&i| changes[i].0 == '-');
        unmaps.map(|i| found[&(i as EventId)]).collect()
    }

    #[test]
    fn pages_that_go_are_of_the_pool_they_were_mapped_for() {
        use SizeClass::{Large, Small};
        assert_eq!(classes(&[('-', 0, 6)], &[]), [Small], "no multiple of a large page");
        assert_eq!(classes(&[('-', 0, 20)], &[]), [Large], "nothing tells");
        let ten: Vec<(char, u64, u64)> = (0..10).map(|i| ('+', 2 * i, 2)).collect();
        assert_eq!(classes(&[&ten[..], &[('-', 0, 20)]].concat(), &[]), [Small], "as long as a large page");
        assert_eq!(classes(&[('+', 0, 40), ('-', 20, 20)], &[]), [Large]);
        // The addresses belonged to another segment before.
        let again = [&ten[..], &[('-', 0, 20), ('+', 0, 20), ('-', 0, 20)]].concat();
        assert_eq!(classes(&again, &[]), [Small, Large]);
        // Mapped before the trace: decided by adjacent pages that stay, or by later mappings.
        assert_eq!(classes(&[('-', 20, 20)], &[(18, 2, Small)]), [Small]);
        assert_eq!(classes(&[('-', 20, 20)], &[(40, 2, Small)]), [Small]);
        assert_eq!(classes(&[('-', 20, 20)], &[(60, 2, Small)]), [Large], "not beside it");
        assert_eq!(classes(&[('-', 20, 20), ('+', 20, 2)], &[(20, 2, Small)]), [Small]);
        assert_eq!(classes(&[('-', 20, 20), ('-', 18, 2)], &[]), [Small, Small], "beside one that is known");
    }
}
