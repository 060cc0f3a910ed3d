//! The same core without a window: text for people, JSON for scripts.

pub mod explain;
pub mod findings;
pub mod oom;
