//! The segments and blocks that an allocator holds, as `torch.cuda.memory.snapshot` lists them.

use rustc_hash::FxHashMap;

use super::caching::{CachingAllocator, EventSink};
use super::memory::DeviceMemory;
use crate::model::{Action, Block, BlockState, DeviceRecording, PoolKey, Segment, SizeClass, StackId};

/// A segment, or one contiguous mapped run of an expandable segment, with blocks as they are at the end of a run, or before it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct HeldSegment<B = HeldBlock> {
    /// Address of the first byte.
    pub address: u64,
    /// Size in bytes: the sum of its blocks.
    pub size: u64,
    /// Raw stream handle; 0 is the default stream.
    pub stream: u64,
    /// `(0, 0)` for the default pool.
    pub pool: PoolKey,
    /// Small or large requests.
    pub class: SizeClass,
    /// A run of an expandable segment.
    pub is_expandable: bool,
    /// Its blocks by address, without gaps.
    pub blocks: Vec<B>,
}

/// A block of a [`HeldSegment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct HeldBlock {
    /// Address of the first byte.
    pub address: u64,
    /// Size of the whole block in bytes.
    pub size: u64,
    /// Requested bytes; stale for a free block.
    pub requested: u64,
    /// Live, pending or free.
    pub state: BlockState,
}

impl<M: DeviceMemory, S: EventSink> CachingAllocator<M, S> {
    /// Every segment with its blocks, by address. O(blocks).
    pub fn segments(&self) -> Vec<HeldSegment> {
        let is_head = |prev: super::BlockIx| prev.get().is_none_or(|p| !self.blocks[p].mapped);
        let mut out = Vec::new();
        for (_, head) in self.blocks.all().filter(|(_, b)| b.mapped && is_head(b.prev)) {
            let pool = &self.pools[usize::from(head.pool)];
            let mut segment = HeldSegment {
                address: head.address,
                size: 0,
                stream: head.stream,
                pool: pool.owner.unwrap_or((0, 0)),
                class: pool.class,
                is_expandable: head.is_expandable(),
                blocks: Vec::new(),
            };
            let mut at = Some(head);
            while let Some(b) = at.filter(|b| b.mapped) {
                let state = match (b.allocated, b.is_in_use()) {
                    (true, _) => BlockState::Active,
                    (false, true) => BlockState::PendingFree,
                    (false, false) => BlockState::Inactive,
                };
                segment.size += b.size;
                segment.blocks.push(HeldBlock { address: b.address, size: b.size, requested: b.requested, state });
                at = b.next.get().map(|n| &self.blocks[n]);
            }
            out.push(segment);
        }
        out.sort_by_key(|s| s.address);
        out
    }
}

/// Stores what an allocator holds as the end state of a device recording. A block in use gets the stack of the newest allocation
/// at its address; a segment gets the stack of the event that allocated it. O(events + blocks).
pub fn enter_held(device: &mut DeviceRecording, held: &[HeldSegment]) {
    let mut allocations: FxHashMap<u64, StackId> = FxHashMap::default();
    let mut growths: FxHashMap<u64, StackId> = FxHashMap::default();
    for i in 0..device.events.len() {
        let by_address = match device.events.action[i] {
            Action::Alloc => &mut allocations,
            Action::SegmentAlloc | Action::SegmentMap => &mut growths,
            _ => continue,
        };
        by_address.insert(device.events.address[i], device.events.stack[i]);
    }
    let stack = |known: &FxHashMap<u64, StackId>, address: u64| known.get(&address).copied().unwrap_or(StackId::NONE);
    for segment in held {
        let first = device.blocks.len() as u32;
        device.blocks.extend(segment.blocks.iter().map(|b| Block {
            address: b.address,
            size: b.size,
            requested: b.requested,
            state: b.state,
            stack: if b.state == BlockState::Inactive { StackId::NONE } else { stack(&allocations, b.address) },
        }));
        let stream = device.intern_stream(segment.stream);
        let pool = device.intern_pool(segment.pool);
        device.segments.push(Segment {
            address: segment.address,
            size: segment.size,
            stream,
            pool,
            class: segment.class,
            is_expandable: segment.is_expandable,
            stack: stack(&growths, segment.address),
            blocks: first..device.blocks.len() as u32,
        });
    }
}
