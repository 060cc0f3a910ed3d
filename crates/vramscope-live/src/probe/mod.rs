//! The built-in workload: it makes the classic memory problems happen, on this card or on simulated memory, and records them.
//!
//! A [`Scenario`] is a [`Program`] of steps. [`perform`] runs it on PyTorch's allocator over a [`Card`]: simulated memory, or a
//! real card through the driver's own interface (feature `probe`). What happens leaves as [`Message`]s, in this process or over
//! a pipe from a child process, and a [`Recorder`] makes a [`Recording`](vramscope_core::model::Recording) of them.
//!
//! A real card is only ever touched in a child process, so that this one never owns a CUDA context and a crash of the driver
//! takes nothing with it.

mod card;
#[cfg(feature = "probe")]
pub mod cuda;
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

pub use card::{Card, CardInfo, SimulatedCard};
pub use diagnosis::{Diagnosis, diagnosis};
pub use live::{LiveBlock, LivePicture, LivePoint, LiveSegment};
pub use message::{End, Ending, Hello, Message, RawEvent};
pub use perform::{Options, perform};
pub use program::{Program, Site, Step};
pub use record::Recorder;
pub use replay::{Compared, Comparison, ReplayPlan, replay_report};
pub use report::Report;
pub use runner::{Conditions, Job, Run, Target, child, handed_over, neighbour, run_to_end};
pub use scenarios::{ALL, Param, Room, Scenario, Unit, Values};
pub use wire::{read_message, write_message};

/// Whether the library of the CUDA driver is here; `None` where this build cannot tell. Nothing in it is called.
#[must_use]
pub fn has_cuda() -> Option<bool> {
    #[cfg(feature = "probe")]
    // SAFETY: it loads the library by the names that it has on this system, and calls nothing in it.
    return Some(unsafe { cudarc::driver::sys::is_culib_present() });
    #[cfg(not(feature = "probe"))]
    None
}
