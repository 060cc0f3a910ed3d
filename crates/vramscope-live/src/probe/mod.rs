//! The built-in workload: provokes typical memory problems on this card or on simulated memory, and records them.
//!
//! A [`Scenario`] builds a `Program` of steps. `perform` runs it on PyTorch's allocator over a `Card`: simulated memory, or a real
//! card through the CUDA driver API (feature `probe`). It reports [`Message`]s in this process or over a pipe from a child
//! process, and a [`Recorder`] makes a [`Recording`](vramscope_core::model::Recording) of them.
//!
//! Only child processes open a real card, so that this process never owns a CUDA context and a crash in the driver does not end it.

mod card;
#[cfg(feature = "probe")]
mod cuda;
mod diagnosis;
mod following;
mod handover;
mod host_pool;
mod live;
mod message;
#[cfg(feature = "probe")]
mod nvml;
mod perform;
mod program;
mod record;
mod replay;
mod report;
mod runner;
mod scenarios;
mod wire;

pub use diagnosis::{Diagnosis, diagnosis};
pub use live::{LivePicture, LiveSegment};
pub use message::{End, Ending, Message};
pub use record::Recorder;
pub use replay::{Compared, Comparison, replay_report};
pub use report::Report;
pub use runner::{Conditions, Job, Run, Target, child, handed_over, neighbour, run_to_end};
pub use scenarios::{ALL, Scenario, Unit, Values};
pub use wire::read_message;

/// Whether the CUDA driver's library is installed; `None` when this build cannot tell. Calls nothing in it.
pub fn has_cuda() -> Option<bool> {
    #[cfg(feature = "probe")]
    // SAFETY: this loads the library by its system names and calls nothing in it.
    return Some(unsafe { cudarc::driver::sys::is_culib_present() });
    #[cfg(not(feature = "probe"))]
    None
}
