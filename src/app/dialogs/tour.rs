//! The tour: a few steps on a bundled sample. Each step is a card with one sentence, beside the part of the window it describes.
//! That part can be used meanwhile.

use egui::{Area, Context, Id, Order, Painter, Pos2, Rect, Sense, Shape, Stroke, StrokeKind, Vec2, pos2, vec2};

use super::frame::dialog_frame;
use crate::app::state::{DocumentId, ViewKind, Workspace};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Icon, Push, anchor, icon_button, label};

/// The tour's sample. It ends in an out-of-memory error and has stacks.
pub(in crate::app) const SAMPLE: &str = "serve_oom.pickle.gz";

pub(in crate::app) struct Step {
    pub workspace: Workspace,
    pub view: ViewKind,
    /// Names of [`anchor`]s to outline. The card is beside the first one.
    anchors: &'static [&'static str],
    title: &'static str,
    text: &'static str,
}

pub(in crate::app) const STEPS: [Step; 5] = [
    Step {
        workspace: Workspace::Overview,
        view: ViewKind::Memory,
        anchors: &["sentence"],
        title: "The answer in a sentence",
        text: "How much memory was in use when it ran out, and what most of it was for; the tables below it name the lines of code.",
    },
    Step {
        workspace: Workspace::Overview,
        view: ViewKind::Timeline,
        anchors: &["timeline"],
        title: "Move through the run",
        text: "Click a place in the timeline, or drag its cursor: all other panes show the memory at that instant.",
    },
    Step {
        workspace: Workspace::Overview,
        view: ViewKind::SegmentMap,
        anchors: &["segment-map", "inspector"],
        title: "Every block, and who made it",
        text: "Click a block in the map: the inspector tells its size, how long it lived, and the lines that allocated it.",
    },
    Step {
        workspace: Workspace::Autopsy,
        view: ViewKind::Autopsy,
        anchors: &["helped"],
        title: "What would have helped",
        text: "The autopsy explains the failed request, and runs the same requests again under other settings to find one that works.",
    },
    Step {
        workspace: Workspace::WhatIf,
        view: ViewKind::WhatIf,
        anchors: &["settings"],
        title: "Try it before you run it",
        text: "Type settings or a memory limit of your own here; the Plan tells the largest batch that fits a card.",
    },
];

pub(in crate::app) struct Tour {
    /// The tab with the sample. The tour can only point at things while it is in front.
    pub document: DocumentId,
    pub step: usize,
    /// The part that the step describes was drawn in the last frame.
    pub is_pointing: bool,
    /// The step just began, so its button Next takes the keyboard.
    pub takes_keyboard: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::app) enum Turn {
    Back,
    Next,
    Close,
}

/// Width of a card's text, in points.
const WIDTH: f32 = 300.0;
/// Distance between a card and its target.
const GAP: f32 = 14.0;
/// Distance between a card and the edge of the window.
const MARGIN: f32 = 8.0;

/// Draws the card of the current step. Returns the button that was clicked.
pub(in crate::app) fn draw(tour: &mut Tour, ctx: &Context, t: &Tokens) -> Option<Turn> {
    let step = STEPS.get(tour.step)?;
    let window = ctx.content_rect();
    let mut parts: Vec<Rect> = step.anchors.iter().filter_map(|name| anchor::find(ctx, name)).collect();
    if parts.is_empty() {
        // In a small window the target may be scrolled out of view. The card then points at the view.
        parts.extend(anchor::find(ctx, step.view.name()));
    }
    tour.is_pointing = !parts.is_empty();
    let id = Id::unique("tour");
    let size = ctx.memory(|m| m.area_rect(id)).map_or(vec2(WIDTH + 32.0, 130.0), |r| r.size());
    let (at, side) = match parts.first() {
        Some(&part) => place(size, part, window),
        // The target is not on screen, so the card waits at the bottom.
        None => (window.center_bottom() - vec2(size.x / 2.0, size.y + 40.0), None),
    };
    let mut turn = None;
    let area = Area::new(id).order(Order::Middle).fixed_pos(at).constrain(false).fade_in(false);
    area.show(ctx, |ui| {
        let outlines = ui.painter().with_clip_rect(window);
        for part in &parts {
            outlines.rect_stroke(part.shrink(1.0), 3.0, Stroke::new(2.0, t.accent), StrokeKind::Inside);
        }
        dialog_frame(t).stroke(Stroke::new(1.0, t.accent)).inner_margin(14).show(ui, |ui| {
            ui.set_width(WIDTH);
            ui.horizontal(|ui| {
                let (head, _) = ui.allocate_exact_size(vec2(WIDTH - 28.0, 20.0), Sense::hover());
                label::text_in(ui.painter(), head, step.title, Type::LeadStrong, t.text1);
                if icon_button(ui, Icon::Close, "Close the tour (Esc)").clicked() {
                    turn = Some(Turn::Close);
                }
            });
            ui.add_space(6.0);
            label::paragraph(ui, step.text, Type::Body, t.text1);
            ui.add_space(12.0);
            ui.horizontal(|ui| {
                let is_last = tour.step + 1 == STEPS.len();
                let next = Push::primary(if is_last { "Done" } else { "Next" }).small().show(ui);
                if std::mem::take(&mut tour.takes_keyboard) {
                    next.request_focus();
                }
                if next.clicked() {
                    turn = Some(Turn::Next);
                }
                if Push::outlined("Back").small().enabled(tour.step > 0).show(ui).clicked() {
                    turn = Some(Turn::Back);
                }
                if !is_last && Push::plain("Close").small().show(ui).clicked() {
                    turn = Some(Turn::Close);
                }
                let said = format!("{} of {}", tour.step + 1, STEPS.len());
                let rest = ui.available_rect_before_wrap();
                label::text_in_right(ui.painter(), rest, &said, Type::Caption, t.text3);
            });
        });
        if let (Some(side), Some(part)) = (side, parts.first()) {
            beak(&outlines, t, Rect::from_min_size(at, size), *part, side);
        }
    });
    // The size of a card is known only after it was drawn once.
    if ctx.memory(|m| m.area_rect(id)).is_none_or(|r| (r.size() - size).length() > 0.5) {
        ctx.request_repaint();
    }
    turn
}

/// The side of the target on which a card is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Right,
    Left,
    Below,
    Above,
}

/// Places a card beside its target, on the first side with room, or else inside it at the lower right.
fn place(size: Vec2, part: Rect, window: Rect) -> (Pos2, Option<Side>) {
    let room = window.shrink(MARGIN);
    let most = room.max - size;
    let level = (part.center() - size / 2.0).clamp(room.min, most.max(room.min));
    let sides = [
        (Side::Right, pos2(part.right() + GAP, level.y)),
        (Side::Below, pos2(level.x, part.bottom() + GAP)),
        (Side::Left, pos2(part.left() - GAP - size.x, level.y)),
        (Side::Above, pos2(level.x, part.top() - GAP - size.y)),
    ];
    let fits = |at: Pos2| room.expand(0.5).contains_rect(Rect::from_min_size(at, size));
    match sides.into_iter().find(|(_, at)| fits(*at)) {
        Some((side, at)) => (at, Some(side)),
        None => ((part.max - size - Vec2::splat(24.0)).clamp(room.min, most.max(room.min)), None),
    }
}

/// Draws the tip of a card that points at its target.
fn beak(painter: &Painter, t: &Tokens, card: Rect, part: Rect, side: Side) {
    let half = 7.0;
    let y = part.center().y.clamp(card.top() + 2.0 * half, card.bottom() - 2.0 * half);
    let x = part.center().x.clamp(card.left() + 2.0 * half, card.right() - 2.0 * half);
    let (base, out, along) = match side {
        Side::Right => (pos2(card.left() + 1.0, y), vec2(-10.0, 0.0), vec2(0.0, half)),
        Side::Left => (pos2(card.right() - 1.0, y), vec2(10.0, 0.0), vec2(0.0, half)),
        Side::Below => (pos2(x, card.top() + 1.0), vec2(0.0, -10.0), vec2(half, 0.0)),
        Side::Above => (pos2(x, card.bottom() - 1.0), vec2(0.0, 10.0), vec2(half, 0.0)),
    };
    painter.add(Shape::convex_polygon(vec![base - along, base + out, base + along], t.accent, Stroke::NONE));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_stands_beside_what_it_points_at_and_inside_the_window() {
        let size = vec2(328.0, 140.0);
        for window in [vec2(720.0, 480.0), vec2(1600.0, 1000.0), vec2(2560.0, 1440.0)] {
            let window = Rect::from_min_size(Pos2::ZERO, window);
            for (x, y, w, h) in
                [(0.0, 0.2, 0.18, 0.1), (0.2, 0.1, 0.6, 0.5), (0.8, 0.05, 0.2, 0.9), (0.0, 0.05, 1.0, 0.9), (0.4, 0.8, 0.6, 0.2)]
            {
                let part = Rect::from_min_size(
                    pos2(x * window.width(), y * window.height()),
                    vec2(w * window.width(), h * window.height()),
                );
                let (at, side) = place(size, part, window);
                let card = Rect::from_min_size(at, size);
                assert!(window.contains_rect(card), "{part:?} in {window:?}: {card:?}");
                assert_eq!(side.is_none(), card.intersects(part), "{part:?} in {window:?}: {side:?} {card:?}");
            }
        }
    }

    #[test]
    fn each_step_is_one_short_sentence() {
        for step in &STEPS {
            assert!(step.text.len() < 140 && step.text.ends_with('.') && step.text.matches(". ").count() == 0, "{}", step.title);
            assert!(step.workspace.starts_with(step.view), "{}", step.title);
        }
        assert!(crate::app::documents::samples::all().iter().any(|s| s.name == SAMPLE));
    }
}
