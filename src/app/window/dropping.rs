//! Files dropped on the window.

use std::path::PathBuf;

use egui::Context;

use super::{App, Overlay};
use crate::app::dialogs::explain::Explainer;
use vramscope_core::formats::folder::is_log_name;

impl App {
    /// Opens dropped files. An open dialog is closed, because it would hide them, except that the dialog for error messages takes
    /// a log itself.
    pub(in crate::app) fn take_dropped(&mut self, paths: Vec<PathBuf>, ctx: &Context) {
        let is_log = |path: &PathBuf| path.file_name().is_some_and(|name| is_log_name(&name.to_string_lossy()));
        if let ([log], Overlay::Explain(_)) = (paths.as_slice(), &self.overlay)
            && is_log(log)
        {
            self.overlay = Overlay::Explain(Explainer::default());
            self.explain_log(log.clone());
            return;
        }
        egui::Popup::close_all(ctx);
        if matches!(
            self.overlay,
            Overlay::Palette(_) | Overlay::Explain(_) | Overlay::OpenPath(_) | Overlay::Help | Overlay::Guide(_)
        ) {
            self.overlay = Overlay::None;
        }
        self.open_together(paths);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::data::samples;

    fn settle(app: &mut App, ctx: &Context) {
        for _ in 0..4 {
            app.logic(ctx);
        }
    }

    const MESSAGE: &str = "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity)\n";

    #[test]
    fn a_log_and_a_recording_dropped_together_are_both_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("train.log");
        std::fs::write(&log, MESSAGE).unwrap();
        let ctx = Context::default();
        let mut app = App::synchronous(&ctx);
        app.take_dropped(vec![samples::path("leak.pickle"), log], &ctx);
        settle(&mut app, &ctx);
        assert_eq!(app.documents().len(), 1);
        assert!(matches!(app.overlay, Overlay::Explain(_)));
        assert_eq!(app.notices.texts().count(), 0, "{:?}", app.notices.texts().collect::<Vec<_>>());
    }

    #[test]
    fn the_dialog_that_explains_takes_logs_and_makes_way_for_recordings() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("plain.log");
        std::fs::write(&log, "step 1\n").unwrap();
        let ctx = Context::default();
        let mut app = App::synchronous(&ctx);
        app.overlay = Overlay::Explain(Explainer::of(MESSAGE.to_owned()));
        app.take_dropped(vec![log], &ctx);
        settle(&mut app, &ctx);
        assert!(app.documents().is_empty());
        assert!(app.explains().is_some_and(|told| told.is_err_and(|why| why.contains("holds no out-of-memory message"))));
        app.take_dropped(vec![samples::path("leak.pickle")], &ctx);
        assert!(matches!(app.overlay, Overlay::None) && app.documents().len() == 1);
    }

    /// A shortcut such as Ctrl+4 must not change the window behind a dialog.
    #[test]
    fn a_dialog_holds_the_keyboard() {
        let ctx = Context::default();
        let mut app = App::synchronous(&ctx);
        app.take_dropped(vec![samples::path("leak.pickle")], &ctx);
        settle(&mut app, &ctx);
        let press = |app: &mut App| {
            let (key, modifiers) = (egui::Key::Num4, egui::Modifiers { command: true, ..egui::Modifiers::CTRL });
            let mut input = egui::RawInput::default();
            input.events.push(egui::Event::Key { key, physical_key: None, pressed: true, repeat: false, modifiers });
            ctx.begin_pass(input);
            app.read_shortcuts(&ctx);
            ctx.end_pass().textures_delta.clear();
            settle(app, &ctx);
            app.documents()[0].workspace
        };
        let before = app.documents()[0].workspace;
        app.overlay = Overlay::Help;
        assert_eq!(press(&mut app), before);
        app.overlay = Overlay::None;
        assert_ne!(press(&mut app), before);
    }
}
