//! Comparing with what is open: the recordings of the other tabs, before any file.

use egui::{Context, Modal, Role, Ui, WidgetInfo, vec2};

use super::Choosing;
use crate::app::data::compare::{Moment, Other, Source};
use crate::app::dialogs::overlays::{dialog_frame, dialog_title};
use crate::app::documents::document::{Content, DocumentId};
use crate::app::state::action::Action;
use crate::app::state::command::Command;
use crate::app::state::workspace::Workspace;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::button::focus_ring;
use crate::app::widgets::label;
use crate::app::window::{App, Overlay};
use vramscope_core::analysis::Quantity;
use vramscope_core::units::Bytes;

/// A recording in another tab, as it is listed.
struct Tab {
    id: DocumentId,
    title: String,
    /// Its folder, and its peak.
    about: String,
}

/// Height of a row.
const ROW: f32 = 40.0;

impl App {
    /// Asks what to compare: with a recording in front and others in other tabs these come first, else two files are chosen.
    pub(in crate::app) fn ask_pair(&mut self) {
        self.first_of_two = None;
        if self.beside().is_empty() {
            self.open_dialog(Choosing::First);
        } else {
            self.overlay = Overlay::Pair;
        }
    }

    /// The recordings in other tabs that the one in front can be held against.
    fn beside(&self) -> Vec<Tab> {
        let Some(front) = self.active_document().filter(|d| matches!(d.content, Content::Ready(_))) else { return Vec::new() };
        let others = self.documents.iter().filter(|d| d.id != front.id);
        let tab = |d: &crate::app::documents::document::Document| {
            let peak = Bytes(d.view()?.data.tables.curves.peak(Quantity::Active).0);
            let folder = d.path.as_deref().and_then(|p| p.parent()).map(|p| format!(", in {}", p.display()));
            Some(Tab { id: d.id, title: d.title.clone(), about: format!("{peak} at its peak{}", folder.unwrap_or_default()) })
        };
        others.filter_map(tab).collect()
    }

    /// Holds the recording in front, at its peak, against another.
    pub(in crate::app) fn compare_front(&mut self, other: Other, ctx: &Context) {
        let Some(view) = self.active_document().and_then(|d| d.view()) else { return };
        let peak = view.data.tables.curves.peak(Quantity::Active).1;
        self.run(Command::Workspace(Workspace::Flame), ctx);
        self.apply(Action::Compare(0, Source::Marker), ctx);
        self.apply(Action::SetMarker(0, Some(peak)), ctx);
        self.apply(Action::Compare(1, Source::Other(other, Moment::Peak)), ctx);
    }
}

/// Draws the list of recordings to compare with.
pub(in crate::app) fn draw(app: &mut App, ui: &mut Ui, t: &Tokens) {
    let tabs = app.beside();
    let front = app.active_document().map(|d| d.title.clone()).unwrap_or_default();
    let (mut chosen, mut wants_files) = (None, false);
    let modal = Modal::new(egui::Id::unique("compare with")).frame(dialog_frame(t)).show(ui, |ui| {
        ui.set_width(480.0);
        let (_, is_closed) = dialog_title(ui, t, &format!("Compare {front} with"));
        ui.add_space(8.0);
        let nothing_has_focus = ui.memory(|m| m.focused().is_none());
        egui::ScrollArea::vertical().max_height(ROW * 8.0).show(ui, |ui| {
            ui.spacing_mut().item_spacing.y = 0.0;
            for (i, tab) in tabs.iter().enumerate() {
                let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), ROW), egui::Sense::click());
                response.widget_info(|| {
                    WidgetInfo::labeled(Role::Button, true, format!("Compare with {}, {}", tab.title, tab.about))
                });
                if i == 0 && nothing_has_focus {
                    response.request_focus();
                }
                if response.hovered() || response.has_focus() {
                    ui.painter().rect_filled(rect, 4, t.s4);
                }
                focus_ring(ui, &response, 4);
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
        is_closed
    });
    if let Some(id) = chosen {
        app.overlay = Overlay::None;
        let ctx = ui.ctx().clone();
        app.compare_front(Other::Document(id), &ctx);
    } else if wants_files {
        app.overlay = Overlay::None;
        app.open_dialog(Choosing::First);
    } else if modal.inner || modal.should_close() || tabs.is_empty() {
        app.overlay = Overlay::None;
    }
}
