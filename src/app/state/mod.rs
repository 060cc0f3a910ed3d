//! State that views share, and what they ask for: cursor, selection, workspaces, commands, actions. Imports nothing of the
//! window.

pub mod action;
pub mod choosing;
pub mod colour_by;
pub mod command;
pub mod compared;
pub mod document_id;
pub mod excerpt;
pub mod live_status;
pub mod selection;
pub mod shared;
pub mod view_kind;
pub mod workspace;
