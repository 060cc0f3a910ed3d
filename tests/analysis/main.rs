//! What the analyses say of recordings whose truth is known.

// A panic is how a test says no, also in its helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod anatomy;
mod autopsy_text;
#[path = "../formats/corpus.rs"]
mod corpus;
mod findings;
mod findings_rules;
mod hand_made;
mod instants;
mod messages;
mod oom;
mod plan;
mod roles;
mod room_plan;
mod tape;
mod vendors;
mod verdicts;
