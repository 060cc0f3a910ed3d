//! A small allocator for tests. It writes the events that PyTorch would write, and stores the whole state after each one. Tests
//! compare that true state with what the analyses reconstruct.

use proptest::prelude::*;

use crate::model::{
    Action, AllocConf, Block, BlockState, DeviceRecording, EventTable, PoolId, Segment, Settings, SizeClass, StackId, StreamId,
};
use crate::units::MEBIBYTE;

/// One block of the true state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ToyBlock {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) requested: u64,
    pub(crate) state: BlockState,
}

/// One segment of the true state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToySegment {
    pub(crate) address: u64,
    pub(crate) class: SizeClass,
    pub(crate) blocks: Vec<ToyBlock>,
}

impl ToySegment {
    pub(crate) fn size(&self) -> u64 {
        self.blocks.iter().map(|b| b.size).sum()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Alloc(u64),
    /// Frees the n-th live block. If the flag is set, the free completes only at `Complete`.
    Free(usize, bool),
    Complete(usize),
    EmptyCache,
    Snapshot,
}

pub(crate) fn ops(count: usize) -> impl Strategy<Value = Vec<Op>> {
    let size = prop_oneof![
        4 => 1u64..40_000,
        2 => 900_000u64..1_200_000,
        4 => 1u64..24_000_000,
        1 => Just(12 * MEBIBYTE),
    ];
    let op = prop_oneof![
        8 => size.prop_map(Op::Alloc),
        6 => (any::<usize>(), prop::bool::weighted(0.15)).prop_map(|(n, wait)| Op::Free(n, wait)),
        1 => any::<usize>().prop_map(Op::Complete),
        1 => Just(Op::EmptyCache),
        1 => Just(Op::Snapshot),
    ];
    prop::collection::vec(op, 1..count)
}

pub(crate) struct Toy {
    conf: AllocConf,
    segments: Vec<ToySegment>,
    events: EventTable,
    /// The state after each event.
    pub(crate) states: Vec<Vec<ToySegment>>,
    next_address: u64,
}

const SMALL_BASE: u64 = 0x10_0000_0000;
const LARGE_BASE: u64 = 0x20_0000_0000;

impl Toy {
    pub(crate) fn run(conf: AllocConf, ops: &[Op]) -> Self {
        let events = EventTable { has_time: true, ..EventTable::default() };
        let mut toy = Toy { conf, segments: Vec::new(), events, states: Vec::new(), next_address: 0x7f00_0000_0000 };
        for &op in ops {
            match op {
                Op::Alloc(n) => toy.alloc(n),
                Op::Free(n, wait) => toy.free(n, wait),
                Op::Complete(n) => {
                    let pending = toy.addresses(BlockState::PendingFree);
                    if !pending.is_empty() {
                        toy.complete(pending[n % pending.len()]);
                    }
                }
                Op::EmptyCache => toy.empty_cache(),
                Op::Snapshot => toy.event(Action::Snapshot, 0, 77),
            }
        }
        toy
    }

    /// The recording of events `from..` with the end state, and the true state before event `from`.
    pub(crate) fn recording(&self, from: usize) -> (DeviceRecording, Vec<ToySegment>) {
        let mut dev = DeviceRecording {
            has_final_state: true,
            streams: vec![0],
            pools: vec![(0, 0)],
            settings: Settings { recorded: true, conf: self.conf.clone(), raw: Vec::new() },
            events: EventTable { has_time: true, ..EventTable::default() },
            ..DeviceRecording::default()
        };
        let e = &self.events;
        for i in from..e.len() {
            dev.events.push(e.time_us[i], e.action[i], e.address[i], e.size[i], e.stream[i], e.pool[i], e.stack[i]);
        }
        for segment in &self.segments {
            let first = dev.blocks.len() as u32;
            dev.blocks.extend(segment.blocks.iter().map(|b| Block {
                address: b.address,
                size: b.size,
                requested: b.requested,
                state: b.state,
                stack: StackId::NONE,
            }));
            dev.segments.push(Segment {
                address: segment.address,
                size: segment.size(),
                stream: StreamId(0),
                pool: PoolId(0),
                class: segment.class,
                is_expandable: self.conf.expandable_segments,
                stack: StackId::NONE,
                blocks: first..dev.blocks.len() as u32,
            });
        }
        let before = from.checked_sub(1).map_or(Vec::new(), |i| self.states[i].clone());
        (dev, before)
    }

    fn event(&mut self, action: Action, address: u64, size: u64) {
        let i = self.events.len();
        self.events.push(i as i64 * 10, action, address, size, StreamId(0), PoolId::UNKNOWN, StackId(i as u32));
        self.states.push(self.segments.clone());
    }

    fn addresses(&self, state: BlockState) -> Vec<u64> {
        self.segments.iter().flat_map(|s| &s.blocks).filter(|b| b.state == state).map(|b| b.address).collect()
    }

    fn position(&self, address: u64) -> (usize, usize) {
        for (s, segment) in self.segments.iter().enumerate() {
            if let Some(b) = segment.blocks.iter().position(|b| b.address == address) {
                return (s, b);
            }
        }
        panic!("no block at {address:#x}")
    }

    fn best_hole(&self, class: SizeClass, rounded: u64) -> Option<u64> {
        let holes = self.segments.iter().filter(|s| s.class == class).flat_map(|s| &s.blocks);
        let fits = holes.filter(|b| b.state == BlockState::Inactive && b.size >= rounded);
        fits.min_by_key(|b| (b.size, b.address)).map(|b| b.address)
    }

    fn alloc(&mut self, requested: u64) {
        let rounded = self.conf.round_size(requested);
        let class = AllocConf::size_class(rounded);
        let address = self.best_hole(class, rounded).unwrap_or_else(|| {
            if self.conf.expandable_segments { self.map(class, rounded) } else { self.new_segment(class, rounded) }
        });
        let (s, b) = self.position(address);
        let hole = self.segments[s].blocks[b];
        let split = self.conf.should_split(class, hole.size, rounded);
        let size = if split { rounded } else { hole.size };
        self.segments[s].blocks[b] = ToyBlock { address, size, requested, state: BlockState::Active };
        if split {
            let rest = ToyBlock { address: address + size, size: hole.size - size, requested: 0, state: BlockState::Inactive };
            self.segments[s].blocks.insert(b + 1, rest);
        }
        self.event(Action::Alloc, address, requested);
    }

    fn new_segment(&mut self, class: SizeClass, rounded: u64) -> u64 {
        let size = self.conf.segment_size(rounded);
        let address = self.next_address;
        // Sometimes right after the previous segment: plain segments that touch must stay separate.
        self.next_address += size + (self.events.len() as u64 % 2) * 2 * MEBIBYTE;
        let blocks = vec![ToyBlock { address, size, requested: 0, state: BlockState::Inactive }];
        self.segments.push(ToySegment { address, class, blocks });
        self.segments.sort_by_key(|s| s.address);
        self.event(Action::SegmentAlloc, address, size);
        address
    }

    /// Maps pages at the first unmapped address from which the request fits, as expandable segments do.
    fn map(&mut self, class: SizeClass, rounded: u64) -> u64 {
        let (base, page) = match class {
            SizeClass::Small => (SMALL_BASE, 2 * MEBIBYTE),
            SizeClass::Large => (LARGE_BASE, 20 * MEBIBYTE),
        };
        // The end of the last mapped run of this class, and the free space at that end.
        let last = self.segments.iter().rposition(|s| s.class == class);
        let (end, hole) = match last {
            Some(s) => {
                let block = self.segments[s].blocks[self.segments[s].blocks.len() - 1];
                (block.address + block.size, if block.state == BlockState::Inactive { block.size } else { 0 })
            }
            None => (base, 0),
        };
        let mut mapped = 0;
        while hole + mapped < rounded {
            mapped += page;
        }
        let new = ToyBlock { address: end, size: mapped, requested: 0, state: BlockState::Inactive };
        match last {
            Some(s) => self.segments[s].blocks.push(new),
            None => self.segments.push(ToySegment { address: end, class, blocks: vec![new] }),
        }
        self.segments.sort_by_key(|s| s.address);
        self.merge();
        self.event(Action::SegmentMap, end, mapped);
        end - hole
    }

    fn free(&mut self, n: usize, wait: bool) {
        let live = self.addresses(BlockState::Active);
        if live.is_empty() {
            return;
        }
        let address = live[n % live.len()];
        let (s, b) = self.position(address);
        self.segments[s].blocks[b].state = BlockState::PendingFree;
        let requested = self.segments[s].blocks[b].requested;
        self.event(Action::FreeRequested, address, requested);
        if !wait {
            self.complete(address);
        }
    }

    fn complete(&mut self, address: u64) {
        let (s, b) = self.position(address);
        let requested = self.segments[s].blocks[b].requested;
        self.segments[s].blocks[b].state = BlockState::Inactive;
        self.segments[s].blocks[b].requested = 0;
        self.merge();
        self.event(Action::FreeCompleted, address, requested);
    }

    fn merge(&mut self) {
        for segment in &mut self.segments {
            let mut merged: Vec<ToyBlock> = Vec::new();
            for &block in &segment.blocks {
                match merged.last_mut() {
                    Some(last) if last.state == BlockState::Inactive && block.state == BlockState::Inactive => {
                        last.size += block.size
                    }
                    _ => merged.push(block),
                }
            }
            segment.blocks = merged;
        }
    }

    fn empty_cache(&mut self) {
        if self.conf.expandable_segments {
            return self.unmap_pages();
        }
        while let Some(s) = self.segments.iter().position(|s| s.blocks.len() == 1 && s.blocks[0].state == BlockState::Inactive) {
            let gone = self.segments.remove(s);
            self.event(Action::SegmentFree, gone.address, gone.size());
        }
    }

    /// Unmaps the whole pages inside each hole.
    fn unmap_pages(&mut self) {
        let mut s = 0;
        while s < self.segments.len() {
            let (base, page) = match self.segments[s].class {
                SizeClass::Small => (SMALL_BASE, 2 * MEBIBYTE),
                SizeClass::Large => (LARGE_BASE, 20 * MEBIBYTE),
            };
            let pages = |b: &ToyBlock| {
                let from = base + (b.address - base).next_multiple_of(page);
                let to = base + (b.address + b.size - base) / page * page;
                (from, to)
            };
            let found = self.segments[s].blocks.iter().position(|b| b.state == BlockState::Inactive && pages(b).0 < pages(b).1);
            let Some(b) = found else {
                s += 1;
                continue;
            };
            let hole = self.segments[s].blocks[b];
            let (from, to) = pages(&hole);
            let class = self.segments[s].class;
            let whole = self.segments.remove(s);
            let piece = |address: u64, end: u64| {
                (address < end).then_some(ToyBlock { address, size: end - address, requested: 0, state: BlockState::Inactive })
            };
            let head: Vec<ToyBlock> = whole.blocks[..b].iter().copied().chain(piece(hole.address, from)).collect();
            let tail: Vec<ToyBlock> =
                piece(to, hole.address + hole.size).into_iter().chain(whole.blocks[b + 1..].iter().copied()).collect();
            for blocks in [tail, head] {
                if let Some(first) = blocks.first() {
                    self.segments.insert(s, ToySegment { address: first.address, class, blocks });
                }
            }
            self.event(Action::SegmentUnmap, from, to - from);
        }
    }
}

/// Settings that change where blocks go.
pub(crate) fn confs() -> impl Strategy<Value = AllocConf> {
    prop_oneof![
        Just(AllocConf::default()),
        Just(AllocConf { expandable_segments: true, ..AllocConf::default() }),
        Just(AllocConf { roundup_power2_divisions: [4; 16], ..AllocConf::default() }),
        Just(AllocConf { max_split_size: Some(21 * MEBIBYTE), ..AllocConf::default() }),
    ]
}

/// A device with events that no allocator would write, to test robustness.
pub(crate) fn any_device() -> impl Strategy<Value = DeviceRecording> {
    (prop::collection::vec((0u8..11, 0u64..12, 0u64..9), 0..120), any::<bool>()).prop_map(|(raw, end)| {
        let actions = <Action as strum::VariantArray>::VARIANTS;
        let mut dev = DeviceRecording { has_final_state: end, pools: vec![(0, 0), (0, 1)], ..DeviceRecording::default() };
        for (action, address, size) in raw {
            let address = if address == 11 { u64::MAX - 4096 } else { address * MEBIBYTE };
            let size = if size == 8 { u64::MAX / 4 } else { size * 700_000 };
            dev.events.push(0, actions[usize::from(action)], address, size, StreamId(0), PoolId::UNKNOWN, StackId::NONE);
        }
        dev
    })
}
