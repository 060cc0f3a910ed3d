//! Every view, page, menu and widget: in pictures, and under pointer and keys.

// A panic is how a test says no, also in its helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(feature = "gui")]

mod allocations;
mod alone;
mod autopsy;
mod beginning;
mod compare;
mod flame;
mod gallery;
mod hand;
mod heatmap;
mod leaks;
mod live;
mod memory;
mod menus;
mod missing;
mod pictures;
mod plan;
mod probe;
mod ranks;
#[path = "../shared/mod.rs"]
mod shared;
mod state;
mod table;
mod timeline;
mod tour;
mod welcome;
mod whatif;
mod whole;
