//! vramscope shows a PyTorch user where their GPU memory went and why they ran out.
//!
//! Everything is a [`Recording`](model::Recording): a snapshot file, a profiler trace, a live attachment, a probe run and
//! a what-if simulation all become the same immutable value, and every view, analysis and report takes one.
//!
//! The layers, each naming only what stands to its left (`tests/architecture.rs` holds us to it):
//!
//! ```text
//! units < model < { formats, allocator } < analysis < nvml < { live, probe } < { cli, app } < main
//! ```
//!
//! * [`units`]: bytes, times and addresses as text, and back.
//! * [`model`]: what a recording is. No IO, no threads, no screen.
//! * [`formats`]: bytes to a recording, whatever wrote them.
//! * [`allocator`]: PyTorch's caching allocator as an executable model.
//! * [`analysis`]: a recording to derived tables: lifetimes, states, curves, diagnoses.
//! * `nvml`: NVIDIA's management library, which the next two both ask.
//! * [`live`]: GPUs and running processes, watched while they work.
//! * [`probe`]: the built-in workload: the classic problems on this card or on simulated memory.
//! * [`cli`]: the same core as text and JSON.
//! * [`app`]: the window; the only module that names egui.

pub mod allocator;
pub mod analysis;
#[cfg(feature = "gui")]
pub mod app;
pub mod cli;
pub mod formats;
pub mod live;
pub mod model;
#[cfg(any(feature = "live", feature = "probe"))]
pub mod nvml;
pub mod probe;
pub mod units;
