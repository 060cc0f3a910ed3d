//! Several instants or recordings side by side: differences, flame graphs, ranks, and two sources of one run laid together.

pub mod diff;
pub mod flame;
pub mod join;
pub mod ranks;
