//! Everything that touches a GPU or another process: the live watch and the probe.
//!
//! The modules; each may use only those to its left (`tests/architecture.rs` of the program checks it):
//!
//! ```text
//! nvml < { live, probe }
//! ```
//!
//! * `nvml`: access to NVIDIA's management library, used by the other two.
//! * [`live`]: watches GPUs and running processes.
//! * [`probe`]: the built-in workload, which provokes typical memory problems on this card or on simulated memory.

// Tests and their helpers fail by panicking.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod live;
#[cfg(any(feature = "live", feature = "probe"))]
pub mod nvml;
pub mod probe;
