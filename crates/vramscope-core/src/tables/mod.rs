//! The tables that views and analyses read; built once per device from its recording.
//!
//! [`DeviceTables`] contains them: one row per allocation ([`Lifetimes`]), the segments and blocks at any event ([`StateIndex`]),
//! and the four memory curves ([`Curves`]).

mod agreement;
pub mod curves;
mod device;
pub(crate) mod initial;
pub mod instant;
pub mod lifetimes;
pub mod naming;
pub mod op_lanes;
mod placement;
mod pyramid;
pub(crate) mod runs;
pub mod state;
mod steps_curve;
pub mod strata;
#[cfg(test)]
mod tests;

pub use curves::{Cell, Curves, Quantity};
pub use device::DeviceTables;
pub use instant::{BlockAt, LifetimeId, NO_EVENT, SegmentAt, State, Totals, expandable_reach};
pub use lifetimes::{Lifetime, Lifetimes};
pub use naming::{
    Apart, NO_STACK, StackNames, folded_frames, frame_text, function_label, innermost, innermost_operation, is_framework,
    named_by, own_frame, place_or_function, shown_frames, stack_text, tell_apart, user_frame, without_stack,
};
pub use state::{SegmentLife, StateIndex};
pub use strata::{Strata, StrataColumn, StrataRun, strata};
