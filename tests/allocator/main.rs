//! The allocator model, compared with real PyTorch runs, with the reference model, and with recordings.

// Tests fail by panicking, also in their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod corpus;
mod differential;
mod properties;
mod replay;
mod script;
mod settings;
#[path = "../shared/mod.rs"]
mod shared;
mod vectors;
mod whatif;
