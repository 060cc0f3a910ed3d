//! Segments over time: which device memory was reserved at each event, found by undoing the trace from the end state.

mod by_address;
mod missing;
mod pages;

pub(crate) use self::by_address::Runs;
use self::pages::unmapped_classes;
use super::instant::{NO_EVENT, SegmentAt};
use crate::model::{Action, DeviceRecording, PoolId, SizeClass};
use crate::units::MEBIBYTE;

/// Page size of the small pool; pages of the large pool are larger.
const SMALL_SEGMENT: u64 = 2 * MEBIBYTE;

/// One event that allocated or freed device memory, with the pool and class found for its range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) event: u32,
    pub(crate) pool: PoolId,
    pub(crate) class: SizeClass,
}

/// The segments before the first event, every change after it, and keyframes in between.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunTimeline {
    pub(crate) initial: Vec<SegmentAt>,
    pub(crate) changes: Vec<Change>,
    /// Number of changes applied, and the segments after them.
    keyframes: Vec<(usize, Vec<SegmentAt>)>,
    /// Changes that did not fit the known segments.
    pub(crate) mismatches: u64,
}

impl RunTimeline {
    /// Finds the initial segments and builds keyframes. O(segment events).
    pub(crate) fn build(dev: &DeviceRecording) -> Self {
        let mut timeline = Self::recorded(dev);
        // A source without any segment events gets no invented segments.
        if !dev.has_final_state && (!timeline.changes.is_empty() || !dev.later_segments.is_empty()) {
            let mut initial = std::mem::take(&mut timeline.initial);
            missing::add_missing(dev, &timeline, &mut initial);
            timeline.initial = initial;
        }
        timeline.lay_keyframes(dev);
        timeline
    }

    /// The changes, and the initial segments that follow from the end state and the trace. Invents none, and builds no keyframes.
    pub(crate) fn recorded(dev: &DeviceRecording) -> Self {
        let events = &dev.events;
        let mut changes: Vec<Change> = Vec::new();
        let unmapped = unmapped_classes(dev);
        for (i, &action) in events.action.iter().enumerate() {
            if action.grows_reserved() || action.shrinks_reserved() {
                let of_segment = if events.size[i] == SMALL_SEGMENT { SizeClass::Small } else { SizeClass::Large };
                let class = unmapped.get(&(i as u32)).copied().unwrap_or(of_segment);
                changes.push(Change { event: i as u32, pool: known_pool(dev, events.pool[i]), class });
            }
        }
        let mut timeline = RunTimeline { changes, ..RunTimeline::default() };
        timeline.initial = if dev.has_final_state { timeline.undo_all(dev) } else { timeline.unexplained(dev) };
        timeline
    }

    /// Walks from the end state back to the start. A segment's final pool and class are copied to the change that allocated it.
    fn undo_all(&mut self, dev: &DeviceRecording) -> Vec<SegmentAt> {
        let mut runs = Runs::from(final_runs(dev));
        for at in (0..self.changes.len()).rev() {
            let change = self.changes[at];
            let (address, size) = range_of(dev, change.event);
            match dev.events.action[change.event as usize] {
                Action::SegmentAlloc | Action::SegmentMap => match runs.cut(address, size) {
                    Some(found) => {
                        if change.pool == PoolId::UNKNOWN {
                            self.changes[at].pool = found.pool;
                        }
                        self.changes[at].class = found.class;
                    }
                    None => self.mismatches += 1,
                },
                action => {
                    let run = self.run(dev, at, action == Action::SegmentUnmap);
                    self.mismatches += u64::from(!runs.insert(run));
                }
            }
        }
        let mut initial = runs.into_vec();
        initial.iter_mut().for_each(|run| run.born = NO_EVENT);
        initial
    }

    /// Without an end state: the segments that the trace frees but never allocates.
    fn unexplained(&self, dev: &DeviceRecording) -> Vec<SegmentAt> {
        let (mut runs, mut initial) = (Runs::default(), Runs::default());
        for at in 0..self.changes.len() {
            let event = self.changes[at].event;
            let (address, size) = range_of(dev, event);
            match dev.events.action[event as usize] {
                Action::SegmentAlloc => _ = runs.insert(self.run(dev, at, false)),
                Action::SegmentMap => _ = runs.insert(self.run(dev, at, true)),
                action => {
                    if runs.cut(address, size).is_none() {
                        let mut run = self.run(dev, at, action == Action::SegmentUnmap);
                        run.born = NO_EVENT;
                        initial.insert(run);
                    }
                }
            }
        }
        initial.into_vec()
    }

    fn lay_keyframes(&mut self, dev: &DeviceRecording) {
        let mut runs = Runs::from(self.initial.clone());
        let mut last = 0;
        self.keyframes.push((0, self.initial.clone()));
        for at in 0..self.changes.len() {
            if !self.apply(dev, at, &mut runs) {
                self.mismatches += 1;
            }
            if at + 1 - last >= runs.len().max(64) {
                last = at + 1;
                self.keyframes.push((last, runs.to_vec()));
            }
        }
        if dev.has_final_state {
            let end = final_runs(dev);
            let same =
                end.len() == runs.len() && end.iter().zip(runs.iter()).all(|(a, b)| a.address == b.address && a.size == b.size);
            self.mismatches += u64::from(!same);
        }
    }

    /// The segments after `event`, by address, with empty block ranges. Copies one keyframe and applies the changes since.
    pub(crate) fn at(&self, dev: &DeviceRecording, event: u32) -> Vec<SegmentAt> {
        let applied = self.changes_until(event);
        let frame = self.keyframes.partition_point(|k| k.0 <= applied).saturating_sub(1);
        let Some((from, runs)) = self.keyframes.get(frame) else { return Vec::new() };
        let mut runs = Runs::from(runs.clone());
        for at in *from..applied {
            self.apply(dev, at, &mut runs);
        }
        runs.into_vec()
    }

    /// Number of changes applied after `event`.
    pub(crate) fn changes_until(&self, event: u32) -> usize {
        if event == NO_EVENT { 0 } else { self.changes.partition_point(|c| c.event <= event) }
    }

    /// Applies one change; false if it does not fit.
    pub(crate) fn apply(&self, dev: &DeviceRecording, at: usize, runs: &mut Runs) -> bool {
        let event = self.changes[at].event;
        let (address, size) = range_of(dev, event);
        match dev.events.action[event as usize] {
            Action::SegmentAlloc => runs.insert(self.run(dev, at, false)),
            Action::SegmentMap => runs.insert(self.run(dev, at, true)),
            _ => runs.cut(address, size).is_some(),
        }
    }

    /// The range of a change as a segment allocated by it.
    pub(crate) fn run(&self, dev: &DeviceRecording, at: usize, is_expandable: bool) -> SegmentAt {
        let Change { event, pool, class } = self.changes[at];
        let (address, size) = range_of(dev, event);
        let i = event as usize;
        SegmentAt {
            address,
            size,
            stream: dev.events.stream[i],
            pool,
            class,
            is_expandable,
            born: event,
            stack: dev.events.stack[i],
            blocks: 0..0,
        }
    }
}

/// The pool that an event names, or the only one there is.
pub(crate) fn known_pool(dev: &DeviceRecording, pool: PoolId) -> PoolId {
    if pool == PoolId::UNKNOWN && dev.pools.len() == 1 { PoolId(0) } else { pool }
}

fn range_of(dev: &DeviceRecording, event: u32) -> (u64, u64) {
    (dev.events.address[event as usize], dev.events.size[event as usize])
}

fn final_runs(dev: &DeviceRecording) -> Vec<SegmentAt> {
    let mut runs: Vec<SegmentAt> = dev
        .segments
        .iter()
        .filter(|s| s.size > 0)
        .map(|s| SegmentAt {
            address: s.address,
            size: s.size,
            stream: s.stream,
            pool: known_pool(dev, s.pool),
            class: s.class,
            is_expandable: s.is_expandable,
            born: NO_EVENT,
            stack: s.stack,
            blocks: 0..0,
        })
        .collect();
    runs.sort_by_key(|r| r.address);
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Segment, StackId, StreamId};

    #[test]
    fn pages_from_before_the_trace_are_of_the_segment_they_were_beside() {
        let mut device =
            DeviceRecording { has_final_state: true, streams: vec![0], pools: vec![(0, 0)], ..DeviceRecording::default() };
        let base = 1 << 40;
        let address = base + 20 * MEBIBYTE;
        device.events.push(0, Action::SegmentUnmap, base, 20 * MEBIBYTE, StreamId(0), PoolId(0), StackId::NONE);
        let segment =
            |class| Segment { address, size: 2 * MEBIBYTE, pool: PoolId(0), class, is_expandable: true, ..Segment::default() };
        device.segments.push(segment(SizeClass::Small));
        let runs = RunTimeline::build(&device);
        let told: Vec<_> = runs.initial.iter().map(|s| (s.address, s.size, s.class)).collect();
        assert_eq!((told, runs.mismatches), (vec![(base, 22 * MEBIBYTE, SizeClass::Small)], 0));
        // Without an end state only a size that is not a multiple of a large page reveals the small pool.
        device.segments.clear();
        device.has_final_state = false;
        assert_eq!(RunTimeline::build(&device).initial[0].class, SizeClass::Large);
        device.events.size[0] = 22 * MEBIBYTE;
        assert_eq!(RunTimeline::build(&device).initial[0].class, SizeClass::Small);
    }
}
