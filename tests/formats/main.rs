//! Reading and writing files: figures compared with CPython and PyTorch, damaged input, and exports read by other programs.

// Tests fail by panicking, also in their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cut;
mod exports;
mod harness;
mod hostile;
mod oom_messages;
mod samples;
#[path = "../shared/mod.rs"]
mod shared;
mod snapshots;
mod stats;
mod table;
mod timelines;
mod traces;
mod truth;
