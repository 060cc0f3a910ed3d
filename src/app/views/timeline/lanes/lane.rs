//! The interface of lanes.

use std::sync::Arc;

use egui::{Align2, Pos2, Rect, Ui};

use crate::app::state::Item;
use crate::app::theme::Type;
use crate::app::views::ViewContext;
use crate::app::views::timeline::layout::{Contents, Track};
use crate::app::views::timeline::marks::Marks;
use crate::app::views::timeline::paint::Canvas;
use crate::app::views::timeline::picture::WindowPicture;
use crate::app::widgets::{Cut, Scale, Swatch, Tip, label};

#[derive(Clone, Default)]
pub(in crate::app::views::timeline) struct Shared {
    /// Marks of the whole recording; `None` until found.
    pub marks: Option<Arc<Marks>>,
    /// The picture of the window; `None` until computed.
    pub picture: Option<Arc<WindowPicture>>,
}

/// A lane: a strip as wide as the window that is folded and opened by its name.
pub(in crate::app::views::timeline) trait Lane {
    /// The lane's track in the layout.
    fn track(&self) -> Track;

    fn name(&self, _canvas: &Canvas<'_>) -> &'static str {
        self.track().name()
    }

    /// Reports what there is to show, so that `layout` can compute the height. Empty lanes get none.
    fn height(&mut self, cx: &ViewContext<'_>, marks: Option<&Marks>, contents: &mut Contents);

    /// Takes the picture of the window, or requests it off the window's thread.
    fn prepare(&mut self, cx: &ViewContext<'_>, canvas: &Canvas<'_>, shared: &Shared);

    /// Draws what [`prepare`](Self::prepare) prepared.
    fn paint(&self, cx: &ViewContext<'_>, canvas: &Canvas<'_>, rect: Rect);

    fn hit(&self, canvas: &Canvas<'_>, rect: Rect, at: Pos2) -> Option<Hit>;

    fn tooltip(&self, canvas: &Canvas<'_>, rect: Rect, at: Pos2) -> Option<Tip>;

    /// Handles other controls, such as a draggable edge.
    fn ui(&self, _ui: &Ui, _cx: &ViewContext<'_>, _canvas: &Canvas<'_>, _rect: Rect) {}
}

impl Canvas<'_> {
    /// Stacks a value of each column on top of `below`. Returns the top and bottom of the new part in each column that has a
    /// value.
    pub(super) fn stack(&self, y: &Scale, below: &mut [u64], bytes: impl Fn(usize) -> Option<u64>) -> Vec<Option<(f32, f32)>> {
        let edges = |(i, below): (usize, &mut u64)| {
            let (bytes, bottom) = (bytes(i)?, *below);
            *below = bottom.saturating_add(bytes);
            (bytes > 0).then(|| (y.at(*below as f64), y.at(bottom as f64)))
        };
        below.iter_mut().enumerate().map(edges).collect()
    }

    /// The width of [`part_name`](Self::part_name).
    pub(super) fn part_width(&self, name: &str, value: &str) -> f32 {
        16.0 + label::width(self.painter, name, Type::Caption) + 6.0 + label::width(self.painter, value, Type::Mono)
    }

    /// Draws the legend entry of a part above its lane, at `x`.
    pub(super) fn part_name(&self, row: Rect, x: f32, swatch: Swatch, name: &str, value: &str) {
        swatch.paint(self.painter, self.tokens, row.middle(x));
        let named = label::text(self.painter, row.middle(x + 16.0), Align2::LEFT_CENTER, name, Type::Caption, self.tokens.text2);
        let at = row.middle(named.right() + 6.0);
        label::text(self.painter, at, Align2::LEFT_CENTER, value, Type::Mono, self.tokens.text1);
    }
}

/// A thing in a lane under the pointer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::app::views::timeline) struct Hit {
    pub lane: Track,
    /// The item that a click selects.
    pub item: Option<Item>,
    /// The event to which a click sets the cursor, when it differs from the event at the pointer.
    pub event: Option<u32>,
    /// What a click chooses instead of selecting an item.
    pub chooses: Option<Choice>,
    /// Start and end on the axis, to which a double click zooms.
    pub extent: Option<(f64, f64)>,
}

impl Hit {
    /// A hit that only has a tooltip.
    pub fn told(lane: Track) -> Self {
        Hit { lane, item: None, event: None, chooses: None, extent: None }
    }
}

/// The event to show, and the range that counts and findings cover; `None` when there are fewer than two events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::app::views::timeline) struct Choice {
    pub cursor: u32,
    pub range: Option<(u32, u32)>,
}
