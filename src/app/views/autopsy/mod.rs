//! OOM autopsy: why the request failed, where the free memory is, what keeps it in pieces, and the cheapest way out.

mod pictures;
mod verdict;

use std::sync::Arc;

use egui::{Rect, Ui, UiBuilder, pos2};

use super::{View, ViewContext, ViewInfo, ViewKind};
use crate::analysis::State;
use crate::analysis::oom::Autopsy;
use crate::app::jobs::Derived;
use crate::app::widgets::pane::{self, PaneHeader};
use crate::units::counted;

/// Registry entry.
pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::Autopsy,
    title: "OOM autopsy",
    name: "oom",
    about: "Why a request failed: what was asked, what was free and where, and what kept it from fitting.",
    legend: &[
        ("red", "the request, drawn to the scale of everything below it"),
        ("hatched", "free memory inside segments"),
        ("strands", "free bytes on both sides of a live block"),
        ("if freed", "the one hole there would be without that block"),
    ],
    create: || Box::new(AutopsyView::default()),
};

#[derive(Default)]
struct AutopsyView {
    /// Which out-of-memory event, when there are several.
    chosen: usize,
    state: Derived<u32, State>,
}

impl View for AutopsyView {
    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let Some(found) = cx.findings else {
            pane::progress_line(ui, ui.max_rect(), None);
            return;
        };
        if found.ooms.is_empty() {
            let (peak, at) = cx.data.tables.curves.peak(crate::analysis::Quantity::Reserved);
            let sentence = format!(
                "No request failed in this recording. It came closest at event {}, with {} reserved. To catch the next failure, dump a snapshot \
                 when it happens:",
                crate::units::count(u64::from(at)),
                crate::units::Bytes(peak)
            );
            pane::empty_state(
                ui,
                &sentence,
                Some("torch._C._cuda_attach_out_of_memory_observer(lambda *a: torch.cuda.memory._dump_snapshot(\"oom.pickle\"))"),
            );
            return;
        }
        self.chosen = self.chosen.min(found.ooms.len() - 1);
        let autopsy = Arc::clone(&found.ooms[self.chosen]);
        let event = autopsy.event;
        let data = Arc::clone(cx.data);
        let state = self
            .state
            .get(cx.jobs, "autopsy", &event, move |_| Some(data.tables.states.at(data.device(), &data.tables.lifetimes, event)));
        let Some(state) = state.value.filter(|s| s.event == event) else {
            pane::progress_line(ui, ui.max_rect(), None);
            return;
        };
        self.layout(ui, cx, &autopsy, &state, found.ooms.len());
    }
}

impl AutopsyView {
    fn layout(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, a: &Autopsy, state: &State, total: usize) {
        let rect = ui.max_rect();
        let left_width = 320.0f32.min(rect.width() * 0.4);
        let left = Rect::from_min_max(rect.min, pos2(rect.left() + left_width, rect.bottom()));
        let right = Rect::from_min_max(pos2(left.right() + 1.0, rect.top()), rect.max);
        ui.painter().vline(left.right() + 0.5, rect.y_range(), egui::Stroke::new(1.0, cx.tokens.line));
        in_rect(ui, left, "verdict", |ui| {
            if let Some(next) = verdict::ui(ui, cx, a, self.chosen, total) {
                self.chosen = next;
            }
        });
        // Three pictures share the height by what each needs.
        let height = right.height();
        let request_height = 250.0f32.min(height * 0.32);
        let holes_height = 230.0f32.min(height * 0.3);
        let request = Rect::from_min_max(right.min, pos2(right.right(), right.top() + request_height));
        let holes = Rect::from_min_max(request.left_bottom(), pos2(right.right(), request.bottom() + holes_height));
        let table = Rect::from_min_max(holes.left_bottom(), right.max);
        in_rect(ui, request, "request", |ui| {
            PaneHeader::new("Request against holes").caption("drawn to one scale").show(ui, |_| {});
            pictures::request_against_holes(ui, cx, a, state);
        });
        in_rect(ui, holes, "holes", |ui| {
            let caption = format!(
                "{} of the {} pool",
                counted(pictures::servers(a, state).len() as u64, "segment", "segments"),
                a.class.name()
            );
            PaneHeader::new("Where the holes are").caption(&caption).show(ui, |_| {});
            pictures::where_the_holes_are(ui, cx, a, state);
        });
        in_rect(ui, table, "blockers", |ui| {
            let caption = format!("{} a hole", counted(a.blockers.len() as u64, "live block touches", "live blocks touch"));
            PaneHeader::new("Blockers").caption(&caption).show(ui, |_| {});
            pictures::blockers(ui, cx, a, state);
        });
    }
}

fn in_rect(ui: &mut Ui, rect: Rect, salt: &str, contents: impl FnOnce(&mut Ui)) {
    let mut child = ui.new_child(UiBuilder::new().id_salt(salt).max_rect(rect));
    child.set_clip_rect(rect.intersect(ui.clip_rect()));
    child.spacing_mut().item_spacing = egui::vec2(0.0, 0.0);
    contents(&mut child);
}
