//! Recordings written by hand, event by event, for rules that no recording of the corpus triggers.

use std::collections::BTreeMap;

use vramscope_core::model::{
    Action, Annotation, Block, BlockState, DeviceId, DeviceKind, DeviceRecording, EventTable, Frame, Note, NoteKind, PoolId,
    PoolKey, Recording, Sample, Segment, SizeClass, StackId, StackTableBuilder, StreamId,
};

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

struct Piece {
    size: u64,
    state: BlockState,
    stack: StackId,
}

struct Space {
    address: u64,
    size: u64,
    stream: StreamId,
    pool: PoolId,
    pieces: BTreeMap<u64, Piece>,
}

/// Position of a block: segment and offset.
pub type Handle = (usize, u64);

/// A recording being written. Each event takes one microsecond.
pub struct Tape {
    pub device: DeviceRecording,
    stacks: StackTableBuilder,
    spaces: Vec<Option<Space>>,
    now: i64,
    next: u64,
    pool: PoolId,
    stream: StreamId,
    annotations: Vec<Annotation>,
    pub source_bytes: u64,
}

impl Tape {
    pub fn new() -> Self {
        let device = DeviceRecording {
            has_final_state: true,
            streams: vec![0],
            pools: vec![(0, 0)],
            events: EventTable { has_time: true, ..EventTable::default() },
            ..DeviceRecording::default()
        };
        Tape {
            device,
            stacks: StackTableBuilder::new(),
            spaces: Vec::new(),
            now: 1_700_000_000_000_000,
            next: 0x7f00_0000_0000,
            pool: PoolId(0),
            stream: StreamId(0),
            annotations: Vec::new(),
            source_bytes: 0,
        }
    }

    /// A stack of frames, innermost first: (file, name).
    pub fn stack(&mut self, frames: &[(&str, &str)]) -> StackId {
        let ids: Vec<_> = frames
            .iter()
            .enumerate()
            .map(|(i, (file, name))| {
                let (name, file) = (self.stacks.string(name), self.stacks.string(file));
                self.stacks.frame(Frame { name, file, line: 10 + i as u32 })
            })
            .collect();
        self.stacks.stack(&ids)
    }

    /// Puts later segments into this pool.
    pub fn in_pool(&mut self, key: PoolKey) {
        self.pool = self.device.intern_pool(key);
    }

    /// Puts later segments on this stream.
    pub fn on_stream(&mut self, handle: u64) {
        self.stream = self.device.intern_stream(handle);
    }

    /// Starts the history here. What is live is then older than the history.
    pub fn forget(&mut self) {
        self.device.events = EventTable { has_time: true, ..EventTable::default() };
    }

    pub fn wait(&mut self, micros: i64) {
        self.now += micros;
    }

    pub fn last(&self) -> u32 {
        self.device.events.len() as u32 - 1
    }

    fn event(&mut self, action: Action, address: u64, size: u64, stack: StackId) {
        self.now += 1;
        self.device.events.push(self.now, action, address, size, self.stream, self.pool, stack);
    }

    pub fn segment(&mut self, size: u64) -> usize {
        let address = self.next;
        self.next += size.next_multiple_of(2 * MIB) + 64 * MIB;
        self.event(Action::SegmentAlloc, address, size, StackId::NONE);
        self.spaces.push(Some(Space { address, size, stream: self.stream, pool: self.pool, pieces: BTreeMap::new() }));
        self.spaces.len() - 1
    }

    pub fn place(&mut self, segment: usize, offset: u64, size: u64, stack: StackId) -> Handle {
        let space = self.spaces[segment].as_mut().expect("a segment that is there");
        space.pieces.insert(offset, Piece { size, state: BlockState::Active, stack });
        let address = space.address + offset;
        self.event(Action::Alloc, address, size, stack);
        (segment, offset)
    }

    /// Allocates a block that fills a segment: an empty one of its size or a new one. The size must be at least 10 MiB and a
    /// multiple of 2 MiB.
    pub fn alloc(&mut self, size: u64, stack: StackId) -> Handle {
        assert!(size >= 10 * MIB && size.is_multiple_of(2 * MIB), "{size}");
        let (pool, stream) = (self.pool, self.stream);
        let fits = |s: &Option<Space>| {
            s.as_ref().is_some_and(|s| s.size == size && s.pieces.is_empty() && s.pool == pool && s.stream == stream)
        };
        let segment = self.spaces.iter().position(fits).unwrap_or_else(|| self.segment(size));
        self.place(segment, 0, size, stack)
    }

    pub fn ask_to_free(&mut self, (segment, offset): Handle) {
        let space = self.spaces[segment].as_mut().expect("a segment that is there");
        let address = space.address;
        let piece = space.pieces.get_mut(&offset).expect("a block that is there");
        piece.state = BlockState::PendingFree;
        let size = piece.size;
        self.event(Action::FreeRequested, address + offset, size, StackId::NONE);
    }

    pub fn complete(&mut self, (segment, offset): Handle) {
        let space = self.spaces[segment].as_mut().expect("a segment that is there");
        let address = space.address;
        let size = space.pieces.remove(&offset).expect("a block that is there").size;
        self.event(Action::FreeCompleted, address + offset, size, StackId::NONE);
    }

    pub fn free(&mut self, handle: Handle) {
        self.ask_to_free(handle);
        self.complete(handle);
    }

    pub fn free_all(&mut self, handles: impl IntoIterator<Item = Handle>) {
        handles.into_iter().for_each(|handle| self.free(handle));
    }

    /// Allocates a block and frees it at once.
    pub fn brief(&mut self, size: u64, stack: StackId) {
        let handle = self.alloc(size, stack);
        self.free(handle);
    }

    pub fn empty_cache(&mut self) {
        self.empty_cache_at(StackId::NONE);
    }

    pub fn empty_cache_at(&mut self, stack: StackId) {
        for i in 0..self.spaces.len() {
            if self.spaces[i].as_ref().is_some_and(|s| s.pieces.is_empty()) {
                let space = self.spaces[i].take().expect("just seen");
                self.event(Action::SegmentFree, space.address, space.size, stack);
            }
        }
    }

    pub fn oom(&mut self, size: u64, device_free: u64, stack: StackId) {
        self.event(Action::Oom, device_free, size, stack);
    }

    /// Adds what PyTorch's profiler would say about the latest event: `gradient`, `activation`, `optimizer_state`.
    pub fn role(&mut self, text: &str) {
        let text = self.stacks.string(text);
        let event = self.last();
        self.device.events.notes.push(Note { event, kind: NoteKind::Category, text });
    }

    pub fn step(&mut self) {
        let name = self.stacks.string("Optimizer.step#AdamW.step");
        let now = self.now;
        self.annotations.push(Annotation { name, start_us: now, end_us: Some(now), depth: 0 });
    }

    /// Runs the optimizer's work as part of its step, and ends the step.
    pub fn optimizer(&mut self, work: impl FnOnce(&mut Self)) {
        self.wait(1);
        let start_us = self.now;
        work(self);
        self.wait(1);
        let name = self.stacks.string("Optimizer.step#AdamW.step");
        self.annotations.push(Annotation { name, start_us, end_us: Some(self.now - 1), depth: 0 });
    }

    pub fn finish(mut self) -> Recording {
        let mut spaces: Vec<Space> = self.spaces.into_iter().flatten().collect();
        spaces.sort_by_key(|s| s.address);
        for space in spaces {
            let first = self.device.blocks.len() as u32;
            let mut at = 0;
            let hole =
                |address, size| Block { address, size, requested: size, state: BlockState::Inactive, stack: StackId::NONE };
            for (offset, piece) in &space.pieces {
                if *offset > at {
                    self.device.blocks.push(hole(space.address + at, offset - at));
                }
                let (address, size) = (space.address + offset, piece.size);
                self.device.blocks.push(Block { address, size, requested: size, state: piece.state, stack: piece.stack });
                at = offset + size;
            }
            if at < space.size {
                self.device.blocks.push(hole(space.address + at, space.size - at));
            }
            self.device.segments.push(Segment {
                address: space.address,
                size: space.size,
                stream: space.stream,
                pool: space.pool,
                class: SizeClass::Large,
                is_expandable: false,
                stack: StackId::NONE,
                blocks: first..self.device.blocks.len() as u32,
            });
        }
        self.device.annotations = self.annotations;
        let mut recording = Recording { devices: vec![self.device], stacks: self.stacks.finish(), ..Recording::default() };
        recording.source.bytes = self.source_bytes;
        recording
    }
}

/// Live data of one GPU. `sample(i)` is the sample of second `i`.
pub fn live(index: i32, capacity: u64, seconds: u32, sample: impl Fn(u32) -> Sample) -> DeviceRecording {
    DeviceRecording {
        id: DeviceId { kind: DeviceKind::Cuda, index },
        capacity: Some(capacity),
        samples: (0..seconds)
            .map(|i| Sample { time_us: 1_700_000_000_000_000 + i64::from(i) * 1_000_000, ..sample(i) })
            .collect(),
        ..DeviceRecording::default()
    }
}
