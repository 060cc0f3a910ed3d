//! The window: everything that names egui.
