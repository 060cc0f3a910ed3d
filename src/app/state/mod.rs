//! What views share and what they ask for: cursor, selection, workspaces, commands, actions.

pub mod action;
pub mod command;
pub mod cursor;
pub mod selection;
pub mod workspace;
