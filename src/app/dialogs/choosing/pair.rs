//! Chooses what to compare with: recordings of other tabs, or files.

use egui::{Role, Ui, vec2};

use crate::app::dialogs::Outcome;
use crate::app::dialogs::frame::dialog;
use crate::app::state::DocumentId;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{label, row};

pub(in crate::app) struct Tab {
    pub id: DocumentId,
    pub title: String,
    /// Its folder and its peak.
    pub about: String,
}

const ROW: f32 = 40.0;

/// Lists the recordings that `front` can be compared with. Returns the chosen tab, or `None` to choose files.
pub(in crate::app) fn draw(front: &str, tabs: &[Tab], ui: &mut Ui, t: &Tokens) -> Outcome<Option<DocumentId>> {
    let (mut chosen, mut wants_files) = (None, false);
    let title = format!("Compare {front} with");
    let ((), is_closed) = dialog(ui, t, "compare with", (&title, 480.0), |ui, _| {
        ui.add_space(8.0);
        let nothing_has_focus = ui.memory(|m| m.focused().is_none());
        egui::ScrollArea::vertical().max_height(ROW * 8.0).show(ui, |ui| {
            for (i, tab) in tabs.iter().enumerate() {
                let (rect, response) =
                    row::clicked(ui, ROW, Role::Button, || format!("Compare with {}, {}", tab.title, tab.about));
                if i == 0 && nothing_has_focus {
                    response.request_focus();
                }
                if response.hovered() || response.has_focus() {
                    ui.painter().rect_filled(rect, 4, t.s4);
                }
                let inner = rect.shrink2(vec2(10.0, 3.0));
                let (upper, lower) = inner.split_top_bottom_at_fraction(0.5);
                label::text_in(ui.painter(), upper, &tab.title, Type::Strong, t.text1);
                label::text_in(ui.painter(), lower, &tab.about, Type::Caption, t.text3);
                if response.clicked() {
                    chosen = Some(tab.id);
                }
            }
        });
        ui.add_space(10.0);
        wants_files = ui.button("Choose two files…").clicked();
    });
    match chosen {
        Some(id) => Outcome::Done(Some(id)),
        None if wants_files => Outcome::Done(None),
        None if is_closed || tabs.is_empty() => Outcome::Closed,
        None => Outcome::Stays,
    }
}
