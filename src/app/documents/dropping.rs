//! Files dragged over the window and dropped on it.

use std::path::PathBuf;

use egui::{Align2, Context, Event, Rect, Stroke, Ui, pos2};

use crate::app::dialogs::explain::Explainer;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::label;
use crate::app::window::{App, Overlay};
use vramscope_core::formats::folder::is_log_name;

/// What is over the window.
#[derive(Default)]
pub(in crate::app) struct Hover {
    /// The pointer moves by itself while files seem to hover: whoever dragged them is gone and never said that they left.
    is_stale: bool,
}

/// Names of files that are told; more are counted.
const NAMED: usize = 6;

impl App {
    /// Opens what was dropped. A dialog over the window would hide it; the one that explains messages takes logs itself.
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
        if matches!(self.overlay, Overlay::Palette(_) | Overlay::Explain(_) | Overlay::OpenPath(_) | Overlay::Help) {
            self.overlay = Overlay::None;
        }
        self.open_together(paths);
    }

    /// While files hover over the window: outlines it and says what a drop does.
    pub(in crate::app) fn drop_target(&mut self, ui: &Ui, tokens: &Tokens) {
        let (names, moves) = ui.input(|i| {
            let name = |f: &egui::HoveredFile| {
                let name = f.path.as_ref().and_then(|p| p.file_name());
                name.map_or_else(|| "a file".to_owned(), |n| n.to_string_lossy().into_owned())
            };
            // While something is dragged over the window the pointer belongs to the program that it comes from.
            let moves = i.events.iter().any(|e| matches!(e, Event::PointerMoved(_) | Event::PointerButton { .. }));
            (i.raw.hovered_files.iter().map(name).collect::<Vec<String>>(), moves)
        });
        self.hover.is_stale = !names.is_empty() && (self.hover.is_stale || moves);
        if names.is_empty() || self.hover.is_stale {
            return;
        }
        let painter = ui.ctx().layer_painter(egui::LayerId::new(egui::Order::Tooltip, egui::Id::unique("drop")));
        let rect = ui.ctx().content_rect();
        painter.rect_filled(rect, 0.0, Tokens::at(tokens.s1, 0.8));
        painter.rect_stroke(rect.shrink(2.0), 0.0, Stroke::new(2.0, tokens.accent), egui::StrokeKind::Inside);
        let more = names.len().saturating_sub(NAMED);
        let line = 28.0;
        let lines = names.len().min(NAMED) + 1 + usize::from(more > 0);
        // Above the middle: there the desktop draws what is dragged.
        let top = (rect.center().y - (lines as f32 + 2.0) * line).max(rect.top() + line);
        let title = if names.len() == 1 { "Open" } else { "Open together" };
        let mut rows = vec![(title.to_owned(), tokens.text2)];
        rows.extend(names.into_iter().take(NAMED).map(|name| (name, tokens.text1)));
        if more > 0 {
            rows.push((format!("and {more} more"), tokens.text2));
        }
        let room = (rect.width() - 96.0).max(0.0);
        for (i, (text, ink)) in rows.into_iter().enumerate() {
            let galley = label::elided(&painter, &text, Type::Display, ink, room);
            let at = Align2::CENTER_TOP.anchor_size(pos2(rect.center().x, top + i as f32 * line), galley.size());
            painter.galley(Rect::from_min_size(at.min, galley.size()).min, galley, ink);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::jobs::Jobs;
    use crate::app::settings::Settings;

    fn app(ctx: &Context) -> App {
        App::new(ctx, Settings::default(), Jobs::synchronous())
    }

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
        let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/sample_snapshots/leak.pickle");
        let ctx = Context::default();
        let mut app = app(&ctx);
        app.take_dropped(vec![recording.into(), log], &ctx);
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
        let mut app = app(&ctx);
        app.overlay = Overlay::Explain(Explainer::of(MESSAGE.to_owned()));
        app.take_dropped(vec![log], &ctx);
        settle(&mut app, &ctx);
        assert!(app.documents().is_empty());
        assert!(app.explains().is_some_and(|told| told.is_err_and(|why| why.contains("holds no out-of-memory message"))));
        app.take_dropped(vec![concat!(env!("CARGO_MANIFEST_DIR"), "/sample_snapshots/leak.pickle").into()], &ctx);
        assert!(matches!(app.overlay, Overlay::None) && app.documents().len() == 1);
    }

    /// Ctrl+4 behind a dialog would change a window that nobody sees.
    #[test]
    fn a_dialog_holds_the_keyboard() {
        let ctx = Context::default();
        let mut app = app(&ctx);
        app.take_dropped(vec![concat!(env!("CARGO_MANIFEST_DIR"), "/sample_snapshots/leak.pickle").into()], &ctx);
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
