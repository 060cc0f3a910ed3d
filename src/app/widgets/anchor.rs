//! Finds parts of the window by name, such as for the tour: where each was drawn last.

use egui::{Context, Id, Rect};

#[derive(Clone, Copy)]
struct Place(Rect, u64);

/// A part counts as off screen when fewer points of it are visible, as in a scrolled list.
const LEAST: f32 = 20.0;

fn id(name: &str) -> Id {
    Id::unique(("anchor", name))
}

/// Records that a part was drawn here in this frame. Only its visible area counts.
pub fn mark(ui: &egui::Ui, name: &str, rect: Rect) {
    let seen = rect.intersect(ui.clip_rect());
    let now = ui.ctx().cumulative_frame_nr();
    ui.data_mut(|d| d.insert_temp(id(name), Place(seen, now)));
}

/// Where a part is in this frame; `None` when it is not visible.
pub fn find(ctx: &Context, name: &str) -> Option<Rect> {
    let Place(rect, frame) = ctx.data(|d| d.get_temp(id(name)))?;
    (frame == ctx.cumulative_frame_nr() && rect.width().min(rect.height()) >= LEAST).then_some(rect)
}
