//! The program from outside: what its commands print and how they exit, recording live, the helper in a real Python, the probe.

// A panic is how a test says no, also in its helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod artefacts;
mod bounds;
mod catch;
mod cli;
mod doctor;
mod gates;
mod gates_real;
mod live_attach;
mod live_container;
mod live_helper;
mod live_hostile;
mod live_metrics;
mod live_record;
mod mcp;
mod mistakes;
mod package;
mod probe;
mod report;
#[path = "../shared/mod.rs"]
mod shared;
mod terminal;
mod words;
