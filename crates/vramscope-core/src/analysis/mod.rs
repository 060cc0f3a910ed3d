//! A recording to derived tables: pure functions, no IO, no screen.
//!
//! [`DeviceTables`] is the base every view and report stands on: one row an allocation ([`Lifetimes`]), the segments and
//! blocks at any event ([`StateIndex`]), and the four memory curves ([`Curves`]).

pub mod accounting;
mod agreement;
pub mod anatomy;
pub mod counted;
pub mod counterfactual;
pub mod curves;
pub mod diff;
pub mod explain;
pub mod export;
pub mod findings;
pub mod flame;
pub mod fragmentation;
pub mod heatmap;
mod initial;
pub mod join;
pub mod leaks;
pub mod lifetimes;
pub mod limits;
pub mod matching;
pub mod modules;
pub mod naming;
pub mod oom;
pub mod op_lanes;
pub mod ordering;
mod placement;
mod pyramid;
pub mod query;
pub mod ranks;
pub mod roles;
mod runs;
pub mod state;
pub mod stats_check;
pub mod steady;
pub mod steps;
mod steps_curve;
pub mod strata;
pub mod tables;
#[cfg(test)]
mod tests;
pub mod told;
#[cfg(test)]
mod toy;
pub mod vendor;
pub mod watched;

pub use curves::{Cell, Curves, Quantity};
pub use lifetimes::{Lifetime, LifetimeId, Lifetimes, NO_EVENT};
pub use naming::{
    Apart, NO_STACK, StackNames, folded_frames, frame_text, function_label, innermost, is_framework, named_by, own_frame,
    place_or_function, stack_text, tell_apart, told_frames, user_frame,
};
pub use roles::{Role, Roles};
pub use state::{BlockAt, SegmentAt, SegmentLife, State, StateIndex, Totals, expandable_reach};
pub use strata::{Strata, StrataColumn, StrataRun, strata};
pub use tables::DeviceTables;
