//! A recording to derived tables: pure functions, no IO, no screen.

pub mod explain;
