//! The allocator model: held to PyTorch's own runs, to its executable description, and to the recordings.

// A panic is how a test says no, also in its helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod command;
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
