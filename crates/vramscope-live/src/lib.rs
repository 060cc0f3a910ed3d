//! What touches a GPU or another process: the watch, and the built-in workload.
//!
//! The modules, each naming only what stands to its left (`tests/architecture.rs` of the program checks it):
//!
//! ```text
//! nvml < { live, probe }
//! ```
//!
//! * `nvml`: NVIDIA's management library, which the next two both ask.
//! * [`live`]: GPUs and running processes, watched while they work.
//! * [`probe`]: the built-in workload: the classic problems on this card or on simulated memory.

pub mod live;
#[cfg(any(feature = "live", feature = "probe"))]
pub mod nvml;
pub mod probe;
