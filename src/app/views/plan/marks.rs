//! The chart's legend, at the right end of its header.

use egui::{Rect, Sense, Stroke, Ui, pos2, vec2};

use crate::app::theme::{Tokens, Type};
use crate::app::widgets::Swatch;

#[derive(Clone, Copy, Debug)]
enum Mark {
    Ring,
    Dot,
    Span,
    Free,
}

/// From right to left.
const MARKS: [(Mark, &str); 4] =
    [(Mark::Free, "free"), (Mark::Span, "range"), (Mark::Dot, "predicted"), (Mark::Ring, "recorded")];
/// The width of all marks with their gaps.
const WIDTH: f32 = 280.0;

/// Draws the marks and their names when the header has room beside its title.
pub(super) fn marks(ui: &mut Ui, t: &Tokens, title: f32) {
    if ui.available_width() < WIDTH + title {
        return;
    }
    for (mark, name) in MARKS {
        ui.label(Type::Caption.text(name).color(t.text2));
        let (place, _) = ui.allocate_exact_size(vec2(10.0, 10.0), Sense::hover());
        paint(ui, t, mark, place);
        ui.add_space(4.0);
    }
}

fn paint(ui: &Ui, t: &Tokens, mark: Mark, place: Rect) {
    let p = ui.painter();
    match mark {
        Mark::Ring => {
            p.circle(place.center(), 4.0, t.s2, Stroke::new(1.5, t.text1));
        }
        Mark::Dot => {
            p.circle_filled(place.center(), 2.0, t.text1);
        }
        Mark::Span => {
            p.rect_filled(place, 0, Tokens::at(t.text1, 0.2));
        }
        Mark::Free => {
            Swatch::Free.paint(p, t, pos2(place.left(), place.center().y));
        }
    }
}
