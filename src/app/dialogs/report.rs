//! The options of a report, chosen before its file.

use egui::{Key, Ui};

use super::Outcome;
use super::frame::dialog;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::button::check;
use crate::app::widgets::{Push, label, segmented};

/// The options, kept for the next report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::app) struct Choice {
    pub is_markdown: bool,
    /// Leaves out names and paths of the machine and its users.
    pub redact: bool,
}

/// Draws the dialog. It is done when the user wants to choose the file.
pub(in crate::app) fn draw(choice: &mut Choice, ui: &mut Ui, t: &Tokens) -> Outcome<()> {
    let (is_done, is_closed) = dialog(ui, t, "report", ("Save a report", 440.0), |ui, _| {
        ui.add_space(12.0);
        let mut at = usize::from(choice.is_markdown);
        if segmented(ui, "Report as", &mut at, &["A page to send", "Markdown for an issue"]) {
            choice.is_markdown = at == 1;
        }
        ui.add_space(14.0);
        check(ui, "Leave out names of machines and people", &mut choice.redact);
        ui.add_space(4.0);
        let what = "Folders, the recording's name, hosts, users and command lines. Names of source files, functions and line numbers stay.";
        label::paragraph(ui, what, Type::Caption, t.text3);
        ui.add_space(14.0);
        Push::primary("Choose a file…").show(ui).clicked() || ui.input(|i| i.key_pressed(Key::Enter))
    });
    match is_done {
        true => Outcome::Done(()),
        false if is_closed => Outcome::Closed,
        false => Outcome::Stays,
    }
}
