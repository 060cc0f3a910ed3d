//! Says "Copied." once the system's clipboard holds what was copied: the window's library does not tell when it fails.

use std::sync::mpsc::{Receiver, TryRecvError};

use egui::{Context, OutputCommand};

use crate::app::window::App;

/// What was copied, on its way.
#[derive(Default)]
pub(in crate::app) struct Copying {
    /// A button copied it, so the user is told; a text field's own copy is seen in the field.
    pub is_told: bool,
    /// The window is one of the system's, with its clipboard.
    pub is_real: bool,
    copied: Option<String>,
    asked: Option<Receiver<Result<(), String>>>,
}

impl App {
    /// After a frame was drawn: notices what it copies.
    pub(in crate::app) fn note_copied(&mut self, ctx: &Context) {
        let text = ctx.output(|output| {
            output.commands.iter().rev().find_map(|command| match command {
                OutputCommand::CopyText(text) => Some(text.clone()),
                _ => None,
            })
        });
        if text.is_some() {
            self.copying.copied = text;
            ctx.request_repaint();
        }
    }

    /// Before the next frame: the text is on the clipboard by now, if there is one.
    pub(in crate::app) fn poll_copied(&mut self) {
        if let Some(text) = self.copying.copied.take() {
            let is_real = self.copying.is_real;
            self.copying.asked = Some(self.jobs.spawn("clipboard", move || if is_real { is_there(&text) } else { Ok(()) }));
        }
        let Some(asked) = &self.copying.asked else { return };
        let answer = match asked.try_recv() {
            Ok(answer) => answer,
            Err(TryRecvError::Empty) => return,
            Err(TryRecvError::Disconnected) => Ok(()),
        };
        self.copying.asked = None;
        match answer {
            Ok(()) if self.copying.is_told => self.notices.say("Copied."),
            Ok(()) => {}
            Err(why) => self.notices.complain(format!("Not copied: the system's clipboard cannot be reached ({why}).")),
        }
        self.copying.is_told = false;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::jobs::Jobs;
    use crate::app::settings::Settings;
    use crate::app::state::action::Action;

    #[test]
    fn a_clipboard_that_can_not_be_reached_is_told() {
        let ctx = Context::default();
        let mut app = App::new(&ctx, Settings::default(), Jobs::synchronous());
        let (send, receive) = std::sync::mpsc::channel();
        app.apply(Action::Copy("0x7f00".to_owned()), &ctx);
        assert_eq!(app.notices.texts().count(), 0, "nothing is claimed before it is known");
        app.copying.asked = Some(receive);
        send.send(Err("no display".to_owned())).unwrap();
        app.poll_copied();
        assert_eq!(
            app.notices.texts().collect::<Vec<_>>(),
            ["Not copied: the system's clipboard cannot be reached (no display)."]
        );
        app.apply(Action::Copy("0x7f00".to_owned()), &ctx);
        app.copying.copied = Some("0x7f00".to_owned());
        app.poll_copied();
        assert!(app.notices.texts().any(|text| text == "Copied."));
    }
}
