//! Tells the user whether a copy reached the clipboard.

use super::App;

impl App {
    pub(in crate::app) fn poll_copied(&mut self) {
        match self.copying.poll(&self.jobs) {
            None => return,
            Some(Ok(())) if self.copying.is_told => self.notices.mention("Copied."),
            Some(Ok(())) => {}
            Some(Err(why)) => {
                self.notices.complain(format!("Not copied: the system's clipboard cannot be reached ({why})."));
            }
        }
        self.copying.is_told = false;
    }
}

#[cfg(test)]
mod tests {
    use egui::Context;

    use super::*;
    use crate::app::state::action::Action;

    #[test]
    fn a_clipboard_that_can_not_be_reached_is_told() {
        let ctx = Context::default();
        let mut app = App::synchronous(&ctx);
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
