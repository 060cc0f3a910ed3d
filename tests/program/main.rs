//! The program from outside: output and exit codes of its commands, live recording, the helper in a real Python, the probe.

// Tests fail by panicking, also in their helpers.
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
mod whatif;
mod words;
