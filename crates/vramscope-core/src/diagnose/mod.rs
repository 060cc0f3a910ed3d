//! What is wrong with a recording, and what would help: findings, failed requests, leaks, fragmentation, and error messages.

pub mod accounting;
pub mod counted;
pub mod counterfactual;
pub mod doctor;
pub mod explain;
pub mod export;
pub mod findings;
pub mod fragmentation;
pub mod heatmap;
pub mod leaks;
pub mod limits;
pub mod oom;
pub mod source_limits;
pub mod stats_check;
pub mod steady;
pub mod vendor;
pub mod watched;
