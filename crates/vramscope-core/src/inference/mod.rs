//! Reconstructs from a trace what a program asked of the allocator: its requests, settings and cap, and the state before the first
//! event. The model then runs the requests again, under the same settings to check itself, or under others to answer a question.
//!
//! Start with [`Requests`], then read [`whatif`].

mod agree;
mod assume;
mod cap;
mod cap_range;
mod curve;
mod effects;
mod horizon;
mod own;
mod questions;
mod reader;
pub mod remedies;
mod replay;
mod requests;
pub mod scripted;
mod start;
mod table;
mod untraced;
pub mod whatif;

pub use agree::{Agreement, Difference, Happening, agreement};
pub use assume::Assumption;
pub use cap::Caps;
pub use cap_range::{CapFrom, CapRange};
pub use horizon::Horizon;
pub use own::{OwnRun, explain};
pub use questions::AnswerSink;
pub use remedies::{Needed, Remedies, Remedy};
pub use replay::{Replay, Replayed};
pub use requests::{Requests, Step as ReplayStep};
pub use whatif::{Answer, Prepared, Question, Row, WhatIf};
