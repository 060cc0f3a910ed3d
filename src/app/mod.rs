//! The window: everything that names egui.

pub mod theme;
pub mod widgets;
