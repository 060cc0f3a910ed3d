//! Files dragged over the window.

use egui::{Align2, Event, Rect, Stroke, Ui, pos2};

use crate::app::theme::{Tokens, Type};
use crate::app::widgets::label;

/// The state of files hovering over the window.
#[derive(Default)]
pub(in crate::app) struct Hover {
    /// The pointer moves although files seem to hover, so the drag must have ended without an event.
    is_stale: bool,
}

/// Most file names shown; the others are counted.
const NAMED: usize = 6;

impl Hover {
    /// While files hover, outlines the window and says what a drop does.
    pub(in crate::app) fn draw(&mut self, ui: &Ui, tokens: &Tokens) {
        let (names, moves) = ui.input(|i| {
            let name = |f: &egui::HoveredFile| {
                let name = f.path.as_ref().and_then(|p| p.file_name());
                name.map_or_else(|| "a file".to_owned(), |n| n.to_string_lossy().into_owned())
            };
            // During a drag, the window gets no pointer events: they go to the program where the drag began.
            let moves = i.events.iter().any(|e| matches!(e, Event::PointerMoved(_) | Event::PointerButton { .. }));
            (i.raw.hovered_files.iter().map(name).collect::<Vec<String>>(), moves)
        });
        self.is_stale = !names.is_empty() && (self.is_stale || moves);
        if names.is_empty() || self.is_stale {
            return;
        }
        let painter = ui.ctx().layer_painter(egui::LayerId::new(egui::Order::Tooltip, egui::Id::unique("drop")));
        let rect = ui.ctx().content_rect();
        painter.rect_filled(rect, 0.0, Tokens::at(tokens.s1, 0.8));
        painter.rect_stroke(rect.shrink(2.0), 0.0, Stroke::new(2.0, tokens.accent), egui::StrokeKind::Inside);
        let more = names.len().saturating_sub(NAMED);
        let line = 28.0;
        let lines = names.len().min(NAMED) + 1 + usize::from(more > 0);
        // Above the middle of the window, because the desktop draws the dragged files there.
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
