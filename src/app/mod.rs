//! The window: everything that names egui.
//!
//! Its modules. Each uses only modules above it in this list; `tests/architecture.rs` checks that:
//!
//! * [`jobs`]: work off the window's thread. [`theme`]: colours, sizes, fonts.
//! * [`state`]: what views share (cursor, selection), and what they can request (commands, actions).
//! * [`platform`]: the desktop: editor, clipboard, notifications, this machine's GPUs.
//! * [`settings`]: the user's settings and their file.
//! * [`data`]: what several views compute from a device.
//! * [`widgets`]: the widgets that views are made of.
//! * [`views`]: one folder per view, and the list of views. [`pages`]: what a tab can show instead of views.
//! * [`live`]: the live watch behind a tab.
//! * [`documents`]: opening, loading, saving, watching a folder.
//! * `dialogs`, `palette`: drawn on top of the window. [`picture`]: saves pictures of the window.
//! * [`window`]: [`App`], and the only code that changes its state.
//! * `shell`: draws the app: menu, tabs, panes, status bar, dialogs. `frame` draws one frame, `run` starts the app.

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
