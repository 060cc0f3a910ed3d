//! Shows the line of code that records what is missing, and a link to the guide. The view only requests the guide; the window
//! opens it.

use egui::{Context, Id, Ui};

use super::button::link_with;
use super::code::CodeWell;
use super::icons::Icon;
use crate::app::theme::Type;

fn asked() -> Id {
    Id::unique("how to record")
}

/// The line to copy, and a link to its place in the guide.
pub fn recorded_by(ui: &mut Ui, line: &str) {
    let well = CodeWell::new(line).copy(true);
    if line.starts_with("vramscope ") { well } else { well.python() }.show(ui);
    ui.add_space(4.0);
    how_to_record(ui, line);
}

/// Two links in one row, for places without room for the line. The first one copies it.
pub fn record_links(ui: &mut Ui, line: &str) {
    ui.horizontal(|ui| {
        if link_with(ui, "Copy the line", Type::Caption, Some(Icon::Copy)).on_hover_text(line).clicked() {
            ui.copy_text(line.to_owned());
        }
        ui.add_space(12.0);
        how_to_record(ui, line);
    });
}

/// Only the link, for places where a sentence already says what is missing and the line has no room.
pub fn how_to_record(ui: &mut Ui, line: &str) {
    let link = link_with(ui, "How to record it", Type::Caption, None);
    if link.on_hover_text("Opens the guide: where the line goes, for each framework").clicked() {
        ui.data_mut(|d| d.insert_temp(asked(), line.to_owned()));
        ui.request_repaint();
    }
}

/// The line whose guide link was clicked. Returned once.
pub fn take_asked(ctx: &Context) -> Option<String> {
    ctx.data_mut(|d| d.remove_temp(asked()))
}
