//! Compares instants and recordings: differences, flame graphs, ranks, and joining two sources of one run.

pub mod diff;
pub mod flame;
pub mod join;
pub mod ranks;
