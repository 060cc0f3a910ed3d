//! Segments and blocks of the end state.

use std::ops::Range;

use super::StackId;

/// A stream of one device: index into [`DeviceRecording::streams`](super::DeviceRecording::streams).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u16);

/// A pool of one device: index into [`DeviceRecording::pools`](super::DeviceRecording::pools).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub u16);

impl PoolId {
    /// The source does not record the pool.
    pub const UNKNOWN: PoolId = PoolId(u16::MAX);
}

impl Default for PoolId {
    fn default() -> Self {
        PoolId::UNKNOWN
    }
}

/// PyTorch's pool id: `(0, 0)` is the default pool, anything else a private one (a CUDA graph's or a `MemPool`'s).
pub type PoolKey = (u64, u64);

/// Whether a segment serves requests of at most 1 MiB (`small`) or larger ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum SizeClass {
    /// Requests of at most 1 MiB after rounding.
    Small,
    /// Requests of more than 1 MiB after rounding.
    #[default]
    Large,
}

impl SizeClass {
    /// PyTorch's name: `small`, `large`.
    pub fn name(self) -> &'static str {
        match self {
            SizeClass::Small => "small",
            SizeClass::Large => "large",
        }
    }
}

/// Memory allocated from the device in one piece (`cudaMalloc`), or one contiguous mapped run of an expandable segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Address of the first byte.
    pub address: u64,
    /// Size in bytes; the exclusive end is `address + size`.
    pub size: u64,
    /// The stream whose requests it serves.
    pub stream: StreamId,
    /// The pool it belongs to.
    pub pool: PoolId,
    /// Serves small or large requests.
    pub class: SizeClass,
    /// True for a mapped run of an expandable segment.
    pub is_expandable: bool,
    /// Where it was allocated; [`StackId::NONE`] when not recorded.
    pub stack: StackId,
    /// Its blocks in [`DeviceRecording::blocks`](super::DeviceRecording::blocks).
    pub blocks: Range<u32>,
}

/// State of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum BlockState {
    /// Holds a live tensor.
    Active,
    /// Freed by the program, but another stream may still use it.
    PendingFree,
    /// Free: a hole, or a whole cached segment.
    #[default]
    Inactive,
}

impl BlockState {
    /// PyTorch's name in snapshots: `active_allocated`, `active_pending_free`, `inactive`.
    pub fn name(self) -> &'static str {
        match self {
            BlockState::Active => "active_allocated",
            BlockState::PendingFree => "active_pending_free",
            BlockState::Inactive => "inactive",
        }
    }
}

/// One block of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Address of the first byte.
    pub address: u64,
    /// Size in bytes, rounded by the allocator.
    pub size: u64,
    /// Size that the program requested; equals `size` where the source lacks it. Meaningless when inactive.
    pub requested: u64,
    /// Live, pending or free.
    pub state: BlockState,
    /// Where it was allocated; [`StackId::NONE`] when not recorded.
    pub stack: StackId,
}
