//! Reports "Copied." only when the system clipboard holds the text, because the window library does not report failures.

use std::sync::mpsc::Receiver;

use egui::{Context, OutputCommand};

use crate::app::jobs::{Jobs, answered};

#[derive(Default)]
pub(in crate::app) struct Copying {
    /// A button made the copy, so the user is told. A copy from a text field is visible in the field.
    pub is_told: bool,
    /// True for a real window on a desktop. Tests and screenshots have no clipboard to check.
    pub is_real: bool,
    pub copied: Option<String>,
    pub asked: Option<Receiver<Result<(), String>>>,
}

impl Copying {
    /// Notices what the frame copied. Call it after the frame was drawn.
    pub fn note(&mut self, ctx: &Context) {
        let text = ctx.output(|output| {
            output.commands.iter().rev().find_map(|command| match command {
                OutputCommand::CopyText(text) => Some(text.clone()),
                _ => None,
            })
        });
        if text.is_some() {
            self.copied = text;
            ctx.request_repaint();
        }
    }

    /// Checks the clipboard. Call it before the next frame, when the text should be there. Returns the result once it is known.
    pub fn poll(&mut self, jobs: &Jobs) -> Option<Result<(), String>> {
        if let Some(text) = self.copied.take() {
            let is_real = self.is_real;
            self.asked = Some(jobs.spawn("clipboard", move || if is_real { is_there(&text) } else { Ok(()) }));
        }
        let answer = answered(self.asked.as_ref()?, || Ok(()))?;
        self.asked = None;
        Some(answer)
    }
}

/// Asks the display server whether the text is on the clipboard. Only X11 tells any program; many Wayland compositors show the
/// clipboard only to the focused window.
#[cfg(all(unix, not(target_os = "macos")))]
fn is_there(text: &str) -> Result<(), String> {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if is_set("WAYLAND_DISPLAY") || is_set("WAYLAND_SOCKET") {
        return Ok(());
    }
    let found = arboard::Clipboard::new().and_then(|mut clipboard| clipboard.get_text()).map_err(|error| error.to_string())?;
    if found == text { Ok(()) } else { Err("another program holds it".to_owned()) }
}

#[cfg(not(all(unix, not(target_os = "macos"))))]
fn is_there(_text: &str) -> Result<(), String> {
    Ok(())
}
