//! The frame of every dialog.

use egui::{Align, Layout, Stroke, Ui};

use crate::app::theme::{Tokens, text};
use crate::app::widgets::{Icon, icon_button};

pub(in crate::app) fn dialog_frame(tokens: &Tokens) -> egui::Frame {
    egui::Frame::new()
        .fill(tokens.s3)
        .stroke(Stroke::new(1.0, tokens.line2))
        .corner_radius(6)
        .inner_margin(16)
        .shadow(egui::Shadow { offset: [0, 4], blur: 16, spread: 0, color: tokens.shadow })
}

/// The first line of a dialog: what it is for, and the button that closes it. The title, and whether the button was clicked.
pub(in crate::app) fn dialog_title(ui: &mut Ui, tokens: &Tokens, title: &str) -> (egui::Response, bool) {
    ui.horizontal(|ui| {
        let title = ui.label(text::title(title).color(tokens.text1));
        let room = Layout::right_to_left(Align::Center);
        let closed = ui.with_layout(room, |ui| icon_button(ui, Icon::Close, "Close (Esc)").clicked()).inner;
        (title, closed)
    })
    .inner
}
