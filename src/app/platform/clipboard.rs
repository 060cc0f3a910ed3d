//! Says "Copied." once the system's clipboard holds what was copied: the window's library does not tell when it fails.

use std::sync::mpsc::{Receiver, TryRecvError};

use egui::{Context, OutputCommand};

use crate::app::jobs::Jobs;

/// What was copied, on its way.
#[derive(Default)]
pub(in crate::app) struct Copying {
    /// A button copied it, so the user is told; a text field's own copy is seen in the field.
    pub is_told: bool,
    /// The window is one of the system's, with its clipboard.
    pub is_real: bool,
    pub copied: Option<String>,
    pub asked: Option<Receiver<Result<(), String>>>,
}

impl Copying {
    /// After a frame was drawn: notices what it copies.
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

    /// Before the next frame: the text is on the clipboard by now, if there is one. Whether it is, once that is known.
    pub fn poll(&mut self, jobs: &Jobs) -> Option<Result<(), String>> {
        if let Some(text) = self.copied.take() {
            let is_real = self.is_real;
            self.asked = Some(jobs.spawn("clipboard", move || if is_real { is_there(&text) } else { Ok(()) }));
        }
        let answer = match self.asked.as_ref()?.try_recv() {
            Ok(answer) => answer,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Ok(()),
        };
        self.asked = None;
        Some(answer)
    }
}

/// Asks the display for what was just copied. Only X11 can be asked by everybody: of Wayland's compositors many tell the clipboard
/// only to the window in front.
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
