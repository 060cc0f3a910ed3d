//! What lies over the window: dialogs, the path field, help, what is said once.

pub mod choosing;
pub mod explain;
pub mod notifications;
pub mod overlays;
pub mod rules;
pub mod settings;
pub mod sources;
