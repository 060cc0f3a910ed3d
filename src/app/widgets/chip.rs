//! Small marks on pictures: readout chips, the OOM flag, A and B labels, key caps, swatches.

use super::cut::Cut;
use super::label;
use super::mesh::Batch;
use crate::app::theme::visuals::RADIUS_CHIP;
use crate::app::theme::{Tokens, Type};
use egui::{Align2, Color32, Painter, Pos2, Rect, Response, Role, Sense, Stroke, StrokeKind, Ui, Vec2, WidgetInfo, pos2, vec2};

/// Paints a readout chip (16 high, on `s3`) anchored at `at`. Moves it to stay inside the painter's clip rectangle when possible.
/// Returns the covered rectangle.
pub fn paint_chip(painter: &Painter, tokens: &Tokens, at: Pos2, anchor: Align2, text: &str) -> Rect {
    paint_chip_in(painter, at, anchor, text, Type::Mono, tokens.text1, tokens.s3)
}

/// The rectangle that [`paint_chip_in`] would cover.
pub fn chip_rect(painter: &Painter, at: Pos2, anchor: Align2, text: &str, kind: Type) -> Rect {
    let width = label::width(painter, text, kind).ceil() + 8.0;
    keep_inside(anchor.anchor_size(at, vec2(width, 16.0)), at, painter.clip_rect())
}

/// Paints a chip with its own text style and colours.
pub fn paint_chip_in(painter: &Painter, at: Pos2, anchor: Align2, text: &str, kind: Type, ink: Color32, fill: Color32) -> Rect {
    let galley = label::galley(painter, text, kind, ink);
    let rect = anchor.anchor_size(at, vec2(galley.size().x.ceil() + 8.0, 16.0));
    let rect = keep_inside(rect, at, painter.clip_rect());
    painter.rect_filled(rect, RADIUS_CHIP, fill);
    label::lay(painter, rect.middle(rect.left() + 4.0), galley, ink);
    rect
}

/// Marks the best of several rows behind its name, which ends at `end`.
pub fn paint_best(painter: &Painter, tokens: &Tokens, end: Pos2) {
    let at = end + vec2(BEST_GAP, 0.0);
    paint_chip_in(painter, at, Align2::LEFT_CENTER, "best", Type::Flag, tokens.onaccent, tokens.accent);
}

/// The room that it takes beside a name.
pub fn best_room(painter: &Painter) -> f32 {
    chip_rect(painter, Pos2::ZERO, Align2::LEFT_CENTER, "best", Type::Flag).width() + BEST_GAP
}

const BEST_GAP: f32 = 8.0;

/// Flips a chip that would leave `area` to the other side of its anchor, or pushes it inside.
fn keep_inside(rect: Rect, at: Pos2, area: Rect) -> Rect {
    let mut rect = rect;
    if rect.right() > area.right() || rect.left() < area.left() {
        let flipped = Rect::from_min_size(pos2(2.0 * at.x - rect.right(), rect.top()), rect.size());
        rect = if flipped.left() >= area.left() && flipped.right() <= area.right() {
            flipped
        } else {
            let x = rect.left().min(area.right() - rect.width()).max(area.left());
            Rect::from_min_size(pos2(x, rect.top()), rect.size())
        };
    }
    let y = rect.top().min(area.bottom() - rect.height()).max(area.top());
    Rect::from_min_size(pos2(rect.left(), y), rect.size())
}

/// Paints the OOM flag (14 high, red) with the middle of its lower edge at `foot`.
pub fn paint_flag(painter: &Painter, tokens: &Tokens, foot: Pos2, text: &str) -> Rect {
    let galley = label::galley(painter, text, Type::Flag, tokens.onred);
    let size = vec2(galley.size().x.ceil() + 10.0, 14.0);
    let rect = Rect::from_min_size(foot - vec2(size.x / 2.0, size.y), size);
    painter.rect_filled(rect, 2, tokens.red);
    label::lay(painter, rect.middle(rect.left() + 5.0), galley, tokens.onred);
    rect
}

/// Paints the label of marker A or B (17 x 15 on `text1`) with the middle of its lower edge at `foot`.
pub fn paint_marker_label(painter: &Painter, tokens: &Tokens, foot: Pos2, text: &str) -> Rect {
    let rect = Rect::from_min_size(foot - vec2(8.5, 15.0), vec2(17.0, 15.0));
    painter.rect_filled(rect, RADIUS_CHIP, tokens.text1);
    label::text(painter, rect.center(), Align2::CENTER_CENTER, text, Type::Flag, tokens.s1);
    rect
}

/// A chip laid out in a [`Ui`]: an active filter, a state.
pub fn chip(ui: &mut Ui, text: &str) -> Response {
    let t = Tokens::of(ui);
    let galley = label::galley(ui.painter(), text, Type::Caption, t.text2);
    let (rect, response) = ui.allocate_exact_size(vec2(galley.size().x.ceil() + 12.0, 18.0), Sense::hover());
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, text));
    ui.painter().rect_filled(rect, RADIUS_CHIP, t.s3);
    label::lay(ui.painter(), rect.middle(rect.left() + 6.0), galley, t.text2);
    response
}

/// Paints a key cap, 16 high, with the middle of its right edge at `right`. Returns the covered rectangle.
pub fn paint_key_cap(painter: &Painter, tokens: &Tokens, right: Pos2, keys: &str) -> Rect {
    let galley = label::galley(painter, keys, Type::Key, tokens.text3);
    let size = vec2(galley.size().x.ceil() + 10.0, 16.0);
    let rect = Rect::from_min_size(right - vec2(size.x, 8.0), size);
    painter.rect_stroke(rect, RADIUS_CHIP, Stroke::new(1.0, tokens.line2), StrokeKind::Inside);
    label::lay(painter, rect.middle(rect.left() + 5.0), galley, tokens.text3);
    rect
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Swatch {
    /// A filled square: a class of blocks, a stack.
    Fill(Color32),
    /// A hatched square: free memory.
    Free,
    /// A hatched square on grey: free memory reserved for one user, as in a private pool.
    Kept,
    /// An outlined square: not plotted, or only in A.
    Outline(Color32),
    /// A short line: a curve.
    Line(Color32),
    /// A short dashed line: a limit.
    Dashed(Color32),
    /// Solid left, pale right: as much as at A, and what grew since.
    Grown(Color32),
    /// Two colours, the first on the left: several kinds of memory in one place.
    Split(Color32, Color32),
}

impl Swatch {
    /// 10 x 10, or wider where there are two parts.
    pub fn size(self) -> Vec2 {
        match self {
            Self::Grown(_) => vec2(30.0, 10.0),
            Self::Line(_) | Self::Dashed(_) => vec2(14.0, 10.0),
            _ => vec2(10.0, 10.0),
        }
    }

    /// Paints it with the middle of its left edge at `left`. Returns the covered rectangle.
    pub fn paint(self, painter: &Painter, tokens: &Tokens, left: Pos2) -> Rect {
        let rect = Rect::from_min_size(left - vec2(0.0, 5.0), self.size());
        let mut batch = Batch::new(painter);
        match self {
            Self::Fill(colour) => batch.rect(rect, colour),
            Self::Free => batch.hole(rect, tokens.s2, tokens.hatch, tokens.line2),
            Self::Kept => batch.hole(rect, Tokens::at(tokens.other, 0.55), tokens.hatch, tokens.line2),
            Self::Outline(colour) => batch.outline(rect, 1.0, colour),
            Self::Line(colour) => batch.hline(rect.x_range(), rect.center().y, 2.0, colour),
            Self::Dashed(colour) => {
                let (a, b) = (rect.left(), rect.right());
                for (from, to) in [(a, a + 5.0), (b - 5.0, b)] {
                    batch.hline(egui::Rangef::new(from, to), rect.center().y, 1.0, colour);
                }
            }
            Self::Split(first, second) => {
                let middle = rect.center().x;
                batch.rect(rect.with_max_x(middle), first);
                batch.rect(rect.with_min_x(middle), second);
            }
            Self::Grown(colour) => {
                let middle = rect.left() + 14.0;
                batch.rect(rect.with_max_x(middle), Tokens::at(colour, 0.56));
                batch.rect(rect.with_min_x(middle), Tokens::at(colour, 0.26));
            }
        }
        batch.paint(painter);
        rect
    }
}

/// The small square of an allocation at the left of its cell: filled while it is held, else an outline.
pub fn paint_square(painter: &Painter, cell: Rect, colour: Color32, is_filled: bool) {
    let square = Rect::from_min_size(cell.left_center() - vec2(0.0, 4.0), Vec2::splat(8.0));
    if is_filled {
        painter.rect_filled(square, 0, colour);
    } else {
        painter.rect_stroke(square, 0, Stroke::new(1.0, colour), StrokeKind::Inside);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_flip_or_are_pushed_in() {
        let area = Rect::from_min_max(pos2(0.0, 0.0), pos2(100.0, 50.0));
        let at = pos2(90.0, 10.0);
        let right_of = Rect::from_min_size(at + vec2(4.0, 0.0), vec2(40.0, 16.0));
        let moved = keep_inside(right_of, at, area);
        assert_eq!((moved.left(), moved.right()), (46.0, 86.0), "flipped, with the same gap");
        let wide = Rect::from_min_size(pos2(50.0, 45.0), vec2(90.0, 16.0));
        assert!(area.contains_rect(keep_inside(wide, pos2(50.0, 45.0), area)));
        let fine = Rect::from_min_size(pos2(10.0, 10.0), vec2(40.0, 16.0));
        assert_eq!(keep_inside(fine, pos2(10.0, 10.0), area), fine);
    }
}
