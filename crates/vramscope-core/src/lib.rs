//! Reads PyTorch's GPU memory recordings and tells where the memory went and why it ran out.
//!
//! No screen, no GPU, and no thread that outlives a call. Everything is a [`Recording`](model::Recording): a snapshot file, a
//! profiler trace, a probe run and a what-if simulation all become the same immutable value, and every analysis takes one.
//!
//! The modules, each naming only what stands to its left (`tests/architecture.rs` of the program checks it):
//!
//! ```text
//! units < model < { formats, allocator } < analysis
//! ```
//!
//! * [`units`]: bytes, times and addresses as text, and back.
//! * [`model`]: what a recording is. No IO, no threads.
//! * [`formats`]: bytes to a recording, whatever wrote them.
//! * [`allocator`]: PyTorch's caching allocator as an executable model.
//! * [`analysis`]: a recording to derived tables: lifetimes, states, curves, diagnoses.

pub mod allocator;
pub mod analysis;
pub mod formats;
pub mod model;
pub mod units;
