//! Compares the recording in front with another.

use egui::Context;

use super::{App, Overlay};
use crate::app::dialogs::choosing::pair::Tab;
use crate::app::documents::document::{Content, Document};
use crate::app::state::{Action, Choosing, Command, Moment, Other, Source, Workspace};
use vramscope_core::tables::Quantity;
use vramscope_core::units::Bytes;

impl App {
    /// Asks what to compare. When other tabs have recordings they are offered first; otherwise two files are chosen.
    pub(in crate::app) fn ask_pair(&mut self) {
        self.first_of_two = None;
        if self.beside().is_empty() {
            self.open_dialog(Choosing::First);
        } else {
            self.overlay = Overlay::Pair;
        }
    }

    /// Recordings in other tabs that can be compared with the one in front.
    pub(in crate::app) fn beside(&self) -> Vec<Tab> {
        let Some(front) = self.active_document().filter(|d| matches!(d.content, Content::Ready(_))) else { return Vec::new() };
        let others = self.documents.iter().filter(|d| d.id != front.id);
        let tab = |d: &Document| {
            let peak = Bytes(d.view()?.data.tables.curves.peak(Quantity::Active).0);
            let folder = d.path.as_deref().and_then(|p| p.parent()).map(|p| format!(", in {}", p.display()));
            Some(Tab { id: d.id, title: d.title.clone(), about: format!("{peak} at its peak{}", folder.unwrap_or_default()) })
        };
        others.filter_map(tab).collect()
    }

    /// Compares the recording in front, at its peak, with another.
    pub(in crate::app) fn compare_front(&mut self, other: Other, ctx: &Context) {
        let Some(view) = self.active_document().and_then(|d| d.view()) else { return };
        let peak = view.data.tables.curves.peak_event();
        self.run(Command::Workspace(Workspace::Flame), ctx);
        self.apply(Action::Compare(0, Source::Marker), ctx);
        self.apply(Action::SetMarker(0, Some(peak)), ctx);
        self.apply(Action::Compare(1, Source::Other(other, Moment::Peak)), ctx);
    }

    /// Shows the requested comparison once its first recording is loaded.
    pub(in crate::app) fn poll_comparison(&mut self, ctx: &Context) {
        let Some((id, _)) = &self.to_compare else { return };
        match self.documents.find(*id).map(|d| &d.content) {
            Some(Content::Loading(_)) => {}
            Some(Content::Ready(_)) => {
                let Some((id, other)) = self.to_compare.take() else { return };
                self.documents.show(id);
                self.compare_front(Other::File(other), ctx);
            }
            _ => self.to_compare = None,
        }
    }
}
