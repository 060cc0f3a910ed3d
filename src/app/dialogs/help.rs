//! The list of shortcuts and gestures.

use egui::{Align2, Modal, Sense, Ui, vec2};

use super::frame::{dialog_frame, dialog_title};
use crate::app::state::Command;
use crate::app::state::command::written;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::label;

/// True when it should close.
pub(in crate::app) fn draw(ui: &mut Ui, tokens: &Tokens) -> bool {
    let modal = Modal::new(egui::Id::unique("help")).frame(dialog_frame(tokens)).show(ui, |ui| {
        let window = ui.ctx().content_rect().size();
        ui.set_width(860.0f32.min(window.x - 64.0));
        // The list gets as much of the window as it needs, because scrolling would hide what the user looks for.
        let room = (window.y - 110.0).max(150.0);
        ui.set_max_height(room);
        let (_, is_closed) = dialog_title(ui, tokens, "Shortcuts and gestures");
        ui.add_space(10.0);
        egui::ScrollArea::vertical().max_height(room - 40.0).auto_shrink([false, true]).show(ui, |ui| {
            // Keeps the last column away from the scroll bar.
            ui.set_max_width(ui.available_width() - 12.0);
            let written = |command: &Command| {
                let keys: Vec<String> = command.shortcuts().iter().map(written).collect();
                (keys.join("  "), command.text())
            };
            let listed: Vec<(String, String)> =
                Command::all().iter().filter(|c| !c.shortcuts().is_empty()).map(written).collect();
            let listed: Vec<(&str, &str)> = listed.iter().map(|(keys, text)| (keys.as_str(), text.as_str())).collect();
            // The gestures are fewer, so the last shortcuts are above them.
            let (left, right) = listed.split_at(listed.len() * 4 / 5);
            ui.columns(2, |columns| {
                help_rows(&mut columns[0], tokens, left);
                help_rows(&mut columns[1], tokens, right);
                columns[1].add_space(12.0);
                help_rows(&mut columns[1], tokens, &GESTURES);
            });
        });
        is_closed
    });
    modal.inner || modal.should_close()
}

const GESTURES: [(&str, &str); 15] = [
    ("move", "hover: outline, tooltip, and a ghost line at that instant in all views"),
    ("click", "select what is under the pointer and set the cursor there"),
    ("drag", "pan; where all of the recording is shown, choose a range"),
    ("wheel", "zoom at the pointer"),
    ("Shift wheel", "pan"),
    ("Ctrl wheel", "zoom bytes or addresses"),
    ("drag on addresses", "zoom to a range of them; double click shows all"),
    ("right drag", "draw a box to zoom to: time, and bytes or addresses; Esc cancels"),
    ("Shift drag", "choose a range; counts and findings follow it"),
    ("double click", "fit the block's life; on empty space the whole recording"),
    ("right click", "copy, zoom to life, same stack, open source"),
    ("legend click", "dim the other classes; again to undo"),
    ("tab drag", "move a tab"),
    ("header drag", "dock a pane elsewhere"),
    ("header double click", "fill the window with a pane, and back"),
];

/// Two columns: keys or gestures, and what they do.
fn help_rows(ui: &mut Ui, tokens: &Tokens, rows: &[(&str, &str)]) {
    let longest = rows.iter().map(|(left, _)| label::width(ui.painter(), left, Type::Mono)).fold(0.0, f32::max);
    for (left, right) in rows {
        ui.horizontal_top(|ui| {
            ui.spacing_mut().item_spacing.x = 16.0;
            let (rect, _) = ui.allocate_exact_size(vec2(longest.ceil(), 18.0), Sense::hover());
            ui.painter().text(rect.left_top() + vec2(0.0, 7.5), Align2::LEFT_CENTER, left, Type::Mono.font(), tokens.text2);
            ui.add(egui::Label::new(Type::Body.text(*right).color(tokens.text1)).wrap());
        });
    }
}
