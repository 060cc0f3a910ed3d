//! The page of a file that cannot be opened.

use egui::{Rect, Ui, pos2, vec2};

use crate::app::state::{Action, Actions, Command, DocumentId};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Cut, Icon};
use vramscope_core::units::capital;

/// Shows why a file cannot be opened, and what the user can do.
pub(in crate::app) fn failed(ui: &mut Ui, tokens: &Tokens, title: &str, sentence: &str, id: DocumentId, actions: &Actions) {
    let rect = ui.max_rect();
    let width = 640.0f32.min(rect.width() - 48.0);
    let column = Rect::from_min_size(pos2(rect.center().x - width / 2.0, rect.top() + rect.height() * 0.28), vec2(width, 300.0));
    ui.scope_builder(egui::UiBuilder::new().max_rect(column), |ui| {
        ui.horizontal(|ui| {
            let (place, _) = ui.allocate_exact_size(vec2(28.0, 28.0), egui::Sense::hover());
            Icon::Warning.paint(ui.painter(), place.middle(place.left() + 10.0), 20.0, tokens.amber);
            ui.add(egui::Label::new(Type::Display.text(format!("{title} was not opened")).color(tokens.text1)).wrap());
        });
        ui.add_space(8.0);
        // The name is already shown above.
        let said = sentence.strip_prefix(title).and_then(|rest| rest.strip_prefix(": "));
        let said = said.map_or_else(|| sentence.to_owned(), |said| format!("{}.", capital(said.trim_end_matches('.'))));
        ui.add(egui::Label::new(Type::Lead.text(said).color(tokens.text2)).wrap());
        ui.add_space(16.0);
        ui.horizontal(|ui| {
            if ui.button("Open another…").clicked() {
                actions.run(Command::Open);
            }
            if ui.button("Copy the message").clicked() {
                actions.send(Action::Copy(sentence.to_owned()));
            }
            if ui.button("Close").clicked() {
                actions.send(Action::Close(id));
            }
        });
    });
}
