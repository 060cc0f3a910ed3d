//! The views, one folder each. `registry` lists them; `context` is what each of them gets.

pub mod accounting;
pub mod allocations;
pub mod autopsy;
mod block_legend;
mod block_name;
pub mod compare;
pub mod contents;
pub mod context;
pub mod events;
mod file_dialog;
pub mod findings;
pub mod flame;
pub mod heatmap;
pub mod inspector;
pub mod leaks;
pub mod live;
pub mod memory;
mod place_link;
pub mod plan;
mod plan_link;
mod query_field;
mod query_help;
pub mod registry;
pub mod segment_map;
mod stack_cells;
pub mod steps;
pub mod timeline;
pub mod whatif;

pub use context::{View, ViewContext, ViewInfo};
