//! PyTorch's caching allocator as an executable model: one implementation, generic over where memory comes from.
//!
//! [`CachingAllocator`] follows PyTorch 2.11 action by action; a [`TorchVersion`](crate::model::TorchVersion) selects others. It
//! runs on any [`DeviceMemory`]: simulated for what-if questions, a real card for the probe.

mod adopt;
mod best_fit;
mod block;
mod caching;
mod counters;
mod end_state;
mod error;
mod expandable;
mod free;
mod memory;
mod pool;
mod private;
mod reach;
mod release;
mod segment;
mod simulated;
mod split_merge;
mod streams;
mod waiting;

pub(crate) use adopt::{StartBlock, StartSegment, adopt};
pub use block::BlockIx;
pub use caching::{CachingAllocator, EventSink};
pub use counters::{Counter, MemoryStats, PoolCounter};
pub use end_state::{HeldBlock, HeldSegment, enter_held};
pub use error::{AllocError, OutOfMemory};
pub use memory::{DeviceError, DeviceMemory};
pub use reach::Reach;
pub use simulated::{Growth, Placement, SimulatedMemory};
