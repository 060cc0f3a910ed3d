//! vramscope shows a PyTorch user where their GPU memory went and why they ran out.
//!
//! This package is the program: its commands and its window. `vramscope_core` defines what a recording is and analyses it;
//! `vramscope_live` accesses GPUs and other processes. Neither of them needs a screen.
//!
//! * [`cli`]: the commands, as text and JSON.
//! * [`app`]: the window; the only module that names egui.

// Tests fail by panicking, also in their helpers.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

#[cfg(feature = "gui")]
#[allow(missing_docs)] // The window is a program, not a library.
pub mod app;
pub mod cli;
