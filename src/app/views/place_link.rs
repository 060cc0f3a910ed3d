//! A source location in a row. A click opens the file, and also does what a click on the row does.

use std::hash::Hash;

use egui::{CursorIcon, Rect, Sense, Ui};

use super::ViewContext;
use crate::app::state::Action;
use crate::app::theme::Type;
use crate::app::widgets::{Cut, label, told_at};
use vramscope_core::model::{Frame, FrameId};

/// The frame, when its file can be opened.
pub(super) fn openable(cx: &ViewContext<'_>, frame: Option<FrameId>) -> Option<Frame> {
    let stacks = &cx.data.recording.stacks;
    frame.and_then(|f| stacks.frame(f)).filter(|&f| f.line > 0 && !stacks.frame_is_unresolved(f))
}

/// Draws `modeling_gpt2.py:240` after `before`; its start is cut when it is too long. Returns what it covers, and whether it was
/// clicked.
pub(super) fn place_link(
    ui: &Ui,
    cx: &ViewContext<'_>,
    frame: Frame,
    before: &str,
    room: Rect,
    id: impl Hash + std::fmt::Debug,
) -> (Rect, bool) {
    let (t, p, stacks) = (cx.tokens, ui.painter(), &cx.data.recording.stacks);
    let before = label::text_in(p, room, before, Type::Body, t.text1);
    let room = if before.width() > 0.0 { room.with_min_x(before.right() + 4.0) } else { room };
    let place = stacks.location(frame);
    let short = label::without_start(p, &place, Type::Mono, room.width());
    let covered = label::text_in(p, room, &short, Type::Mono, t.accent);
    let target = room.across(covered.left(), covered.right());
    let link = told_at(ui, target, ("source of", id), Sense::click(), egui::Role::Link, || format!("Open {place}"));
    if link.hovered() {
        p.hline(covered.x_range(), covered.bottom() - 1.0, egui::Stroke::new(1.0, t.accent));
    }
    let file = stacks.text(frame.file);
    let link = link.on_hover_cursor(CursorIcon::PointingHand).on_hover_text(format!("Open {file}:{}", frame.line));
    let is_clicked = link.clicked();
    if is_clicked {
        cx.actions.send(Action::OpenSource { file: file.to_owned(), line: frame.line });
    }
    (covered, is_clicked)
}
