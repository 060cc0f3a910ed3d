//! [`LivePicture`]: the allocator's map and curve while a run is in progress.

use std::collections::BTreeMap;

use super::message::{End, Hello, Message, RawEvent};
use vramscope_core::model::{Action, BlockState, PoolKey, Sample};

/// A segment at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveSegment {
    /// Address of the first byte.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
    /// Key of its pool; `(0, 0)` is the default pool.
    pub pool: PoolKey,
    /// Live and pending blocks by address. The gaps between them are free.
    pub blocks: Vec<LiveBlock>,
}

/// A live or pending block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Address of the first byte.
    pub address: u64,
    /// Bytes that were requested, before rounding.
    pub size: u64,
    /// Index of the call site that requested it.
    pub site: u32,
    /// [`BlockState::Active`] or [`BlockState::PendingFree`].
    pub state: BlockState,
}

/// A point of the live curve: the extremes over a number of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LivePoint {
    /// Last event of the point.
    pub event: u64,
    /// Highest reserved bytes, over the events of the point.
    pub reserved: u64,
    /// Highest live requested bytes, over the events of the point.
    pub live: u64,
    /// Lowest live requested bytes, over the events of the point.
    pub live_low: u64,
}

/// Segments, blocks and curve of a run so far. Host memory is counted but not drawn.
#[derive(Clone, Debug, Default)]
pub struct LivePicture {
    /// The first message of the run.
    pub hello: Hello,
    /// Number of the allocator's events so far, without those of host memory.
    pub events: u64,
    /// Reserved bytes at present.
    pub reserved: u64,
    /// Requested bytes that are live at present.
    pub live: u64,
    /// Bytes of pinned host memory held.
    pub pinned: u64,
    /// The curve, with at most [`POINTS`](Self::POINTS) points.
    pub points: Vec<LivePoint>,
    /// The newest sample of the driver's figures; `None` before the first.
    pub sample: Option<Sample>,
    /// Number of out-of-memory events.
    pub ooms: u64,
    /// The last message of the run.
    pub end: Option<End>,
    /// Size and pool by address.
    segments: BTreeMap<u64, (u64, PoolKey)>,
    blocks: BTreeMap<u64, LiveBlock>,
    per_point: u64,
}

impl LivePicture {
    /// Most points of the curve. Beyond that, neighbours are merged and extremes kept.
    pub const POINTS: usize = 2048;

    /// Adds what a message reports. O(log segments) per event.
    pub fn take(&mut self, message: &Message) {
        match message {
            Message::Hello(hello) => self.hello = (**hello).clone(),
            Message::Events(events) => events.iter().for_each(|e| self.event(e)),
            Message::Sample(sample) => self.sample = Some(*sample),
            Message::End(end) => self.end = Some((**end).clone()),
            Message::Range { .. } | Message::State { .. } => {}
        }
    }

    fn event(&mut self, e: &RawEvent) {
        if e.is_host {
            match e.action {
                Action::SegmentAlloc => self.pinned += e.size,
                Action::SegmentFree => self.pinned = self.pinned.saturating_sub(e.size),
                _ => {}
            }
            return;
        }
        match e.action {
            Action::SegmentAlloc | Action::SegmentMap => {
                self.reserved += e.size;
                self.grow(e.address, e.size, e.pool, e.action == Action::SegmentMap);
            }
            Action::SegmentFree => {
                self.reserved = self.reserved.saturating_sub(e.size);
                self.segments.remove(&e.address);
            }
            Action::SegmentUnmap => {
                self.reserved = self.reserved.saturating_sub(e.size);
                self.cut(e.address, e.size);
            }
            Action::Alloc => {
                self.live += e.size;
                let block = LiveBlock { address: e.address, size: e.size, site: e.site, state: BlockState::Active };
                self.blocks.insert(e.address, block);
            }
            Action::FreeRequested => {
                if let Some(block) = self.blocks.get_mut(&e.address) {
                    block.state = BlockState::PendingFree;
                }
            }
            Action::FreeCompleted => {
                self.live = self.live.saturating_sub(e.size);
                self.blocks.remove(&e.address);
            }
            Action::Oom => self.ooms += 1,
            Action::Snapshot | Action::Annotate | Action::Unknown => {}
        }
        self.events += 1;
        self.point();
    }

    /// Neighbouring pages of an expandable segment are merged.
    fn grow(&mut self, mut address: u64, mut size: u64, pool: PoolKey, joins: bool) {
        if joins {
            if let Some((&before, &(length, _))) = self.segments.range(..address).next_back()
                && before + length == address
            {
                (address, size) = (before, length + size);
            }
            if let Some((behind, _)) = self.segments.remove(&(address + size)) {
                size += behind;
            }
        }
        self.segments.insert(address, (size, pool));
    }

    fn cut(&mut self, address: u64, size: u64) {
        let Some((&base, &(length, pool))) = self.segments.range(..=address).next_back() else { return };
        self.segments.remove(&base);
        if base < address {
            self.segments.insert(base, (address - base, pool));
        }
        let (end, cut_end) = (base + length, address + size);
        if cut_end < end {
            self.segments.insert(cut_end, (end - cut_end, pool));
        }
    }

    fn point(&mut self) {
        let per_point = self.per_point.max(1);
        match self.points.last_mut() {
            Some(p) if self.events % per_point != 1 % per_point => {
                p.event = self.events;
                p.reserved = p.reserved.max(self.reserved);
                p.live = p.live.max(self.live);
                p.live_low = p.live_low.min(self.live);
            }
            _ => {
                self.points.push(LivePoint { event: self.events, reserved: self.reserved, live: self.live, live_low: self.live })
            }
        }
        if self.points.len() >= Self::POINTS {
            self.per_point = per_point * 2;
            self.points = self
                .points
                .chunks(2)
                .map(|pair| LivePoint {
                    event: pair[pair.len() - 1].event,
                    reserved: pair.iter().map(|p| p.reserved).max().unwrap_or(0),
                    live: pair.iter().map(|p| p.live).max().unwrap_or(0),
                    live_low: pair.iter().map(|p| p.live_low).min().unwrap_or(0),
                })
                .collect();
        }
    }

    /// Segments with their blocks, by address. One pass over both.
    pub fn segments(&self) -> Vec<LiveSegment> {
        let mut blocks = self.blocks.values().peekable();
        self.segments
            .iter()
            .map(|(&address, &(size, pool))| {
                let mut inside = Vec::new();
                while blocks.next_if(|b| b.address < address).is_some() {}
                while let Some(&block) = blocks.next_if(|b| b.address < address + size) {
                    inside.push(block);
                }
                LiveSegment { address, size, pool, blocks: inside }
            })
            .collect()
    }
}
