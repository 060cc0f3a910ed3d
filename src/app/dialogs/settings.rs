//! The settings dialog: theme, size of the interface, editor, folders of source files.

use egui::Ui;

use super::frame::dialog;
use crate::app::platform::editor::of_environment;
use crate::app::platform::editor::place::PathPrefix;
use crate::app::settings::{Settings, ThemeChoice};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::button::check;
use crate::app::widgets::{Field, Icon, Push, icon_button, label, segmented};

const WIDTH: f32 = 560.0;

/// Draws the dialog; true when it should close. `editors` are those found on this machine, once known.
pub(in crate::app) fn draw(
    chosen: &mut Settings,
    editors: Option<&Vec<(&'static str, &'static str)>>,
    ui: &mut Ui,
    tokens: &Tokens,
) -> bool {
    let ((), is_closed) = dialog(ui, tokens, "settings", ("Settings", WIDTH), |ui, _| {
        ui.add_space(12.0);
        ui.label(Type::Body.text("Theme").color(tokens.text2));
        ui.add_space(4.0);
        let themes = [ThemeChoice::System, ThemeChoice::Dark, ThemeChoice::Light];
        let mut at = themes.iter().position(|theme| *theme == chosen.theme).unwrap_or(0);
        if segmented(ui, "Theme", &mut at, &["As the system", "Dark", "Light"]) {
            chosen.theme = themes[at];
            ui.ctx().set_theme(themes[at].preference());
        }
        ui.add_space(16.0);
        ui.label(Type::Body.text("Size of the interface").color(tokens.text2));
        ui.add_space(4.0);
        ui.horizontal(|ui| {
            ui.spacing_mut().item_spacing.x = 8.0;
            if Push::outlined("Smaller").small().show(ui).clicked() {
                egui::gui_zoom::zoom_out(ui.ctx());
            }
            if Push::outlined("Larger").small().show(ui).clicked() {
                egui::gui_zoom::zoom_in(ui.ctx());
            }
            let share = (ui.ctx().zoom_factor() * 100.0).round();
            ui.label(Type::Mono.text(format!("{share} %")).color(tokens.text1));
        });
        ui.add_space(16.0);
        check(ui, "Open the files of the last window again", &mut chosen.reopens);
        ui.add_space(16.0);
        ui.label(Type::Body.text("Command that opens a source line").color(tokens.text2));
        ui.add_space(4.0);
        let field = Field::new("Command that opens a source line").hint("code -g {file}:{line}").width(WIDTH).height(24.0).mono();
        field.show(ui, &mut chosen.editor);
        ui.add_space(4.0);
        let empty = match of_environment() {
            none if none.is_empty() => "Empty: a click on a line asks which editor.".to_owned(),
            editor => format!("Empty: the environment's editor, {editor}."),
        };
        label::paragraph(ui, &format!("{{file}} and {{line}} are filled in, or added. {empty}"), Type::Caption, tokens.text3);
        if let Some(editors) = editors.filter(|editors| !editors.is_empty()) {
            ui.add_space(8.0);
            ui.horizontal_wrapped(|ui| {
                ui.spacing_mut().item_spacing = egui::vec2(6.0, 6.0);
                for &(command, name) in editors.iter() {
                    if Push::outlined(name).small().show(ui).clicked() {
                        chosen.editor = command.to_owned();
                    }
                }
            });
        }
        ui.add_space(16.0);
        folders(ui, tokens, &mut chosen.source_folders);
    });
    is_closed
}

/// The table that maps folders of other machines to folders of this one.
fn folders(ui: &mut Ui, t: &Tokens, folders: &mut Vec<PathPrefix>) {
    ui.label(Type::Body.text("Source files of recordings from other machines").color(t.text2));
    ui.add_space(4.0);
    let width = (WIDTH - 20.0 - 2.0 * 8.0) / 2.0;
    if folders.is_empty() {
        let none = "None yet. A click on a line whose file is not here asks for its folder.";
        label::paragraph(ui, none, Type::Caption, t.text3);
    } else {
        ui.horizontal(|ui| {
            for name in ["Folder in the recording", "Folder on this machine"] {
                ui.allocate_ui(egui::vec2(width, 16.0), |ui| {
                    ui.set_width(width);
                    ui.label(Type::Caption.text(name).color(t.text3));
                });
            }
        });
    }
    let mut gone = None;
    egui::ScrollArea::vertical().max_height(180.0).show(ui, |ui| {
        for (i, prefix) in folders.iter_mut().enumerate() {
            ui.add_space(4.0);
            ui.horizontal(|ui| {
                for (name, text) in
                    [("Folder in the recording", &mut prefix.theirs), ("Folder on this machine", &mut prefix.ours)]
                {
                    Field::new(&format!("{name} {}", i + 1)).hint("").width(width).height(24.0).mono().show(ui, text);
                }
                if icon_button(ui, Icon::Close, "Forget this folder").clicked() {
                    gone = Some(i);
                }
            });
        }
    });
    if let Some(i) = gone {
        folders.remove(i);
    }
    ui.add_space(8.0);
    if Push::outlined("Add a folder").icon(Icon::Plus).small().show(ui).clicked() {
        folders.push(PathPrefix::default());
    }
}
