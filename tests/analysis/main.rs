//! What the analyses say of recordings whose truth is known.

// A panic is how a test says no, also in its helpers.
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
