//! Cuts parts out of a rectangle by what a view wants, so that views need no corner arithmetic. [`Rect`] itself has `with_min_x`
//! and the like.

use egui::{Pos2, Rect, pos2, vec2};

pub trait Cut {
    /// The part between two screen positions, at full height.
    fn across(self, left: f32, right: f32) -> Rect;

    /// The part between two screen positions, at full width.
    fn down(self, top: f32, bottom: f32) -> Rect;

    /// The part between two offsets from the left edge, at full height: a cell of a row.
    fn cell(self, left: f32, right: f32) -> Rect;

    /// The part between two offsets from the top, at full width.
    fn lines(self, top: f32, bottom: f32) -> Rect;

    /// Removes a margin at each side.
    fn inset(self, left: f32, top: f32, right: f32, bottom: f32) -> Rect;

    /// The point at `x` halfway down.
    fn middle(self, x: f32) -> Pos2;
}

impl Cut for Rect {
    fn across(self, left: f32, right: f32) -> Rect {
        Self::from_x_y_ranges(left..=right, self.y_range())
    }

    fn down(self, top: f32, bottom: f32) -> Rect {
        Self::from_x_y_ranges(self.x_range(), top..=bottom)
    }

    fn cell(self, left: f32, right: f32) -> Rect {
        self.across(self.left() + left, self.left() + right)
    }

    fn lines(self, top: f32, bottom: f32) -> Rect {
        self.down(self.top() + top, self.top() + bottom)
    }

    fn inset(self, left: f32, top: f32, right: f32, bottom: f32) -> Rect {
        Self::from_min_max(self.min + vec2(left, top), self.max - vec2(right, bottom))
    }

    fn middle(self, x: f32) -> Pos2 {
        pos2(x, self.center().y)
    }
}
