//! PyTorch's caching allocator as an executable model: one implementation, generic over where memory comes from.
//!
//! [`CachingAllocator`] follows PyTorch 2.11 action by action, with the differences of other releases behind a
//! [`TorchVersion`](crate::model::TorchVersion). It runs on any [`DeviceMemory`]: a simulated one for what-if questions, a real
//! card for the probe.

mod adopt;
mod agree;
mod assume;
mod best_fit;
mod block;
mod caching;
mod cap;
mod counters;
pub mod effects;
mod end_state;
mod expandable;
mod horizon;
mod memory;
mod oom;
mod own;
mod pages;
mod pool;
mod private;
mod reader;
mod release;
pub mod remedies;
mod replay;
mod requests;
pub mod scripted;
mod segment;
mod simulated;
mod split_merge;
mod start;
mod streams;
mod table;
mod untraced;
pub mod whatif;

pub use agree::{Agreement, Difference, Happening, agreement};
pub use assume::Assumption;
pub use block::BlockIx;
pub use caching::{AllocError, CachingAllocator, EventSink};
pub use cap::{CapFrom, CapRange, Caps};
pub use counters::{Counter, MemoryStats, PoolCounter};
pub use end_state::{HeldBlock, HeldSegment, enter_held};
pub use horizon::Horizon;
pub use memory::{DeviceError, DeviceMemory};
pub use oom::OutOfMemory;
pub use own::{OwnRun, explain};
pub(crate) use pages::unmapped_classes;
pub use remedies::{Needed, Remedies, Remedy, remedies_that_pass};
pub use replay::{Replay, Replayed};
pub use requests::Requests;
pub use requests::{Growth, Step as ReplayStep};
pub use simulated::{Placement, SimulatedMemory};
pub use whatif::{Answer, Prepared, Question, Row, WhatIf};
