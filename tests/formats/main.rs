//! Reading and writing files: figures held to CPython and to PyTorch's own, damaged input, and what other programs read back.

// A panic is how a test says no, also in its helpers.
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
