//! The window: everything that names egui.
//!
//! Its rooms, each naming only rooms above it in this list (`tests/architecture.rs` holds the order):
//!
//! * [`jobs`]: work off the window's thread.
//! * [`theme`]: colours, sizes, fonts.
//! * [`state`]: what views share and ask for: cursor, selection, commands, actions.
//! * [`platform`]: the desktop: editor, clipboard, notifications.
//! * [`settings`]: what the user chose, and the file that keeps it.
//! * [`data`]: what is worked out of a device and drawn by several views.
//! * [`widgets`]: the kit that views are made of.
//! * [`views`]: one folder a view. [`pages`]: what a tab shows in place of views.
//! * [`live`]: the watch behind a tab.
//! * [`documents`]: opening, loading, tabs, saving, watching a folder.
//! * `dialogs`, `palette`: what lies over the window.
//! * [`window`]: the application itself. `shell` draws what surrounds the views, `picture` takes pictures of it.

pub mod data;
mod dialogs;
pub mod documents;
pub mod jobs;
pub mod live;
pub mod pages;
mod palette;
mod picture;
pub mod platform;
mod run;
pub mod settings;
mod shell;
pub mod state;
pub mod theme;
pub mod views;
pub mod widgets;
pub mod window;

pub use picture::draw_picture;
pub use run::{RunOptions, Screenshot, run, unknown_view};
pub use window::App;
