//! Parts of the window by name, where they were drawn last: what points at one need not know how it is laid out.

use egui::{Context, Id, Rect};

/// Where a part was drawn, and in which frame.
#[derive(Clone, Copy)]
struct Place(Rect, u64);

/// A part of which fewer points are seen, as in a list that was scrolled, is not on screen.
const LEAST: f32 = 20.0;

fn id(name: &str) -> Id {
    Id::unique(("anchor", name))
}

/// Says that a part is drawn here in this frame; only what is seen of it counts.
pub fn mark(ui: &egui::Ui, name: &str, rect: Rect) {
    let seen = rect.intersect(ui.clip_rect());
    let now = ui.ctx().cumulative_frame_nr();
    ui.data_mut(|d| d.insert_temp(id(name), Place(seen, now)));
}

/// Where a part stands in this frame; `None` where it is not drawn.
pub fn find(ctx: &Context, name: &str) -> Option<Rect> {
    let Place(rect, frame) = ctx.data(|d| d.get_temp(id(name)))?;
    (frame == ctx.cumulative_frame_nr() && rect.width().min(rect.height()) >= LEAST).then_some(rect)
}
