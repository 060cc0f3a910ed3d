//! [`StateIndex`]: the segments and blocks at any event, computed from the nearest keyframe of the live set.

use super::instant::{BlockAt, LifetimeId, NO_EVENT, State, Totals};
use super::lifetimes::Lifetimes;
use super::runs::RunTimeline;
use crate::model::{BlockState, Cancelled, DeviceRecording, Progress};

/// The live set at one instant, and the number of rows allocated by then.
#[derive(Clone, Debug)]
struct Frame {
    event: u32,
    born: u32,
    live: Vec<u32>,
}

/// Keyframes of the live set and of the segments. About a byte per event.
#[derive(Clone, Debug)]
pub struct StateIndex {
    pub(crate) runs: RunTimeline,
    frames: Vec<Frame>,
}

/// Minimum number of allocations between two keyframes: about 4096 events.
const FRAME_BIRTHS: usize = 1365;

/// How long a segment existed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentLife {
    /// Address of the first byte.
    pub address: u64,
    /// Bytes, at the instant asked for.
    pub size: u64,
    /// The event that allocated it; [`NO_EVENT`]: before the trace.
    pub born: u32,
    /// The event that freed it or a part of it; [`NO_EVENT`]: not in the trace.
    pub gone: u32,
}

impl StateIndex {
    /// The segment that holds `address` after `event`, and when it was allocated and freed. O(segments + later changes).
    pub fn segment_life(&self, dev: &DeviceRecording, address: u64, event: u32) -> Option<SegmentLife> {
        let segments = self.runs.at(dev, event);
        let at = segments.partition_point(|s| s.address <= address).checked_sub(1)?;
        let segment = segments.get(at).filter(|s| address - s.address < s.size)?;
        let end = segment.address + segment.size;
        let later = self.runs.changes.get(self.runs.changes_until(event)..).unwrap_or(&[]);
        let gone = later.iter().map(|c| c.event).find(|&e| {
            let i = e as usize;
            let range = dev.events.address[i]..dev.events.address[i].saturating_add(dev.events.size[i]);
            dev.events.action[i].shrinks_reserved() && range.start < end && range.end > segment.address
        });
        let (address, size) = (segment.address, segment.size);
        Some(SegmentLife { address, size, born: segment.born, gone: gone.unwrap_or(NO_EVENT) })
    }

    pub(crate) fn build(lifetimes: &Lifetimes, runs: RunTimeline, progress: &Progress) -> Result<Self, Cancelled> {
        let initial = lifetimes.initial_count() as u32;
        let mut frames = vec![Frame { event: NO_EVENT, born: initial, live: (0..initial).collect() }];
        loop {
            let last = &frames[frames.len() - 1];
            let next = last.born as usize + FRAME_BIRTHS.max(last.live.len() * 4 / 3);
            if next > lifetimes.len() {
                break;
            }
            let event = lifetimes.born(LifetimeId(next as u32 - 1));
            let live = live_after(lifetimes, last, next as u32, event);
            progress.check()?;
            progress.advance_stage((next - last.born as usize) as u64);
            frames.push(Frame { event, born: next as u32, live });
        }
        Ok(StateIndex { runs, frames })
    }

    /// The allocations held after `event`, pending frees included, by id (order of allocation).
    pub fn live_at(&self, lifetimes: &Lifetimes, event: u32) -> Vec<LifetimeId> {
        self.live_ids(lifetimes, event).into_iter().map(LifetimeId).collect()
    }

    pub(crate) fn live_ids(&self, lifetimes: &Lifetimes, event: u32) -> Vec<u32> {
        if event == NO_EVENT {
            return self.frames[0].live.clone();
        }
        let at = self.frames.partition_point(|f| f.event == NO_EVENT || f.event <= event) - 1;
        live_after(lifetimes, &self.frames[at], lifetimes.born_by(event), event)
    }

    /// Every segment and block after `event` ([`NO_EVENT`]: before the first). Each call sorts the live set by address, so a step
    /// to the next event costs as much as a seek; docs/ARCHITECTURE.md says why no state is kept between calls.
    pub fn at(&self, dev: &DeviceRecording, lifetimes: &Lifetimes, event: u32) -> State {
        let mut live: Vec<(u64, u32)> =
            self.live_ids(lifetimes, event).into_iter().map(|id| (lifetimes.address(dev, LifetimeId(id)), id)).collect();
        live.sort_unstable();
        let mut segments = self.runs.at(dev, event);
        let mut blocks = Vec::with_capacity(live.len() * 2 + segments.len());
        let mut totals = Totals::default();
        let mut outside = Vec::new();
        let mut next = 0;
        let mut block_of = |address: u64, id: u32| {
            let id = LifetimeId(id);
            let pending = lifetimes.is_requested_free_at(id, event);
            let (size, requested) = (lifetimes.block_size(id), lifetimes.requested(dev, id));
            totals.active = totals.active.saturating_add(size);
            totals.requested = totals.requested.saturating_add(requested);
            totals.allocated = totals.allocated.saturating_add(if pending { 0 } else { size });
            let state = if pending { BlockState::PendingFree } else { BlockState::Active };
            BlockAt { address, size, requested, state, lifetime: id }
        };
        let hole = |address: u64, size: u64| BlockAt {
            address,
            size,
            requested: 0,
            state: BlockState::Inactive,
            lifetime: LifetimeId::NONE,
        };
        for segment in &mut segments {
            let first = blocks.len() as u32;
            let end = segment.address + segment.size;
            let mut cursor = segment.address;
            while let Some(&(address, id)) = live.get(next).filter(|(address, _)| *address < end) {
                next += 1;
                let block = block_of(address, id);
                if address < cursor || block.size > end - address {
                    outside.push(block);
                    continue;
                }
                if address > cursor {
                    blocks.push(hole(cursor, address - cursor));
                }
                cursor = address + block.size;
                blocks.push(block);
            }
            if cursor < end {
                blocks.push(hole(cursor, end - cursor));
            }
            segment.blocks = first..blocks.len() as u32;
        }
        outside.extend(live[next..].iter().map(|&(address, id)| block_of(address, id)));
        blocks.extend(outside);
        let known = segments.iter().fold(0, |sum: u64, s| sum.saturating_add(s.size));
        totals.reserved = dev.source_totals.reserved.at(event).unwrap_or(known);
        if let Some(told) = dev.source_totals.allocated.at(event) {
            (totals.active, totals.allocated, totals.requested) = (told, told, told);
        }
        State { event, segments, blocks, totals }
    }
}

/// The live set after `event`, starting from a keyframe at or before it.
fn live_after(lifetimes: &Lifetimes, from: &Frame, born: u32, event: u32) -> Vec<u32> {
    let is_held = |&id: &u32| lifetimes.gone(LifetimeId(id)) > event;
    let mut live = Vec::with_capacity(from.live.len() + 64);
    live.extend(from.live.iter().copied().filter(is_held));
    live.extend((from.born..born.max(from.born)).filter(is_held));
    live
}
