//! All views, pages, menus and widgets: pictures, and pointer and key input.

// Tests fail by panicking, also in their helpers.
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
