//! The window: everything that names egui.
//!
//! Its rooms, each naming only rooms above it in this list (`tests/architecture.rs` holds the order):
//!
//! * [`jobs`]: work off the window's thread. [`theme`]: colours, sizes, fonts.
//! * [`state`]: what views share and ask for: cursor, selection, commands, actions.
//! * [`platform`]: the desktop: editor, clipboard, notifications, this machine's GPUs.
//! * [`settings`]: what the user chose, and the file that keeps it.
//! * [`data`]: what several views compute from a device.
//! * [`widgets`]: the kit that views are made of.
//! * [`views`]: one folder a view, and their registry. [`pages`]: what a tab shows in place of views.
//! * [`live`]: the live watch behind a tab.
//! * [`documents`]: opening, loading, saving, watching a folder.
//! * `dialogs`, `palette`: what lies over the window. [`picture`]: pictures of it as files.
//! * [`window`]: [`App`], and the one place where its state changes.
//! * `shell`: draws the app: menu, tabs, panes, status bar, dialogs. `frame` is one frame of it, `run` starts it.

pub mod data;
mod dialogs;
pub mod documents;
mod frame;
pub mod jobs;
pub mod live;
pub mod pages;
mod palette;
pub mod picture;
pub mod platform;
mod run;
pub mod settings;
mod shell;
pub mod state;
pub mod theme;
pub mod views;
pub mod widgets;
pub mod window;

pub use run::{RunOptions, Screenshot, draw_picture, run, unknown_view};
pub use window::App;
