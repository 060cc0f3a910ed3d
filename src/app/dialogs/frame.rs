//! The frame of every dialog.

use egui::{Align, Id, Layout, Modal, Response, Stroke, Ui};

use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Icon, icon_button};

/// Draws a dialog `width` wide. Returns the result of `contents` (which gets the title as a label for its widgets), and whether
/// to close the dialog.
pub(in crate::app) fn dialog<R>(
    ui: &mut Ui,
    t: &Tokens,
    id: &str,
    (title, width): (&str, f32),
    contents: impl FnOnce(&mut Ui, &Response) -> R,
) -> (R, bool) {
    let modal = Modal::new(Id::unique(id)).frame(dialog_frame(t)).show(ui, |ui| {
        ui.set_width(width);
        let (title, is_closed) = dialog_title(ui, t, title);
        (contents(ui, &title), is_closed)
    });
    let is_closed = modal.inner.1 || modal.should_close();
    (modal.inner.0, is_closed)
}

pub(in crate::app) fn dialog_frame(tokens: &Tokens) -> egui::Frame {
    egui::Frame::new()
        .fill(tokens.s3)
        .stroke(Stroke::new(1.0, tokens.line2))
        .corner_radius(6)
        .inner_margin(16)
        .shadow(egui::Shadow { offset: [0, 4], blur: 16, spread: 0, color: tokens.shadow })
}

/// The title line of a dialog with its close button. Returns the title, and whether the button was clicked.
pub(in crate::app) fn dialog_title(ui: &mut Ui, tokens: &Tokens, title: &str) -> (egui::Response, bool) {
    ui.horizontal(|ui| {
        let title = ui.label(Type::Title.text(title).color(tokens.text1));
        let room = Layout::right_to_left(Align::Center);
        let closed = ui.with_layout(room, |ui| icon_button(ui, Icon::Close, "Close (Esc)").clicked()).inner;
        (title, closed)
    })
    .inner
}
