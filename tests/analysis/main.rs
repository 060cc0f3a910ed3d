//! The analyses on recordings whose truth is known.

// Tests fail by panicking, also in their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod anatomy;
mod autopsy_text;
mod findings;
mod findings_rules;
mod hand_made;
mod instants;
mod messages;
mod oom;
mod plan;
mod plan_changes;
mod plan_one;
mod plan_runs;
mod roles;
mod room_plan;
#[path = "../shared/mod.rs"]
mod shared;
mod tape;
mod vendors;
mod verdicts;
