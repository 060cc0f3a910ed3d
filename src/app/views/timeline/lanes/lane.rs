//! The interface of lanes.

use std::sync::Arc;

use egui::{Pos2, Rect, Ui};

use crate::app::state::selection::Item;
use crate::app::views::ViewContext;
use crate::app::views::timeline::layout::{Contents, Track};
use crate::app::views::timeline::marks::Marks;
use crate::app::views::timeline::paint::Canvas;
use crate::app::views::timeline::picture::WindowPicture;
use crate::app::widgets::tooltip::Tip;

/// What lanes share with the curves.
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

    /// The name in the gutter.
    fn name(&self, _canvas: &Canvas<'_>) -> &'static str {
        self.track().name()
    }

    /// Tells `layout` what there is to show, from which it finds the height. Empty lanes get none.
    fn height(&mut self, cx: &ViewContext<'_>, marks: Option<&Marks>, contents: &mut Contents);

    /// Takes the picture of the window, or requests it off the window's thread.
    fn prepare(&mut self, cx: &ViewContext<'_>, canvas: &Canvas<'_>, shared: &Shared);

    /// Draws what [`prepare`](Self::prepare) took.
    fn paint(&self, cx: &ViewContext<'_>, canvas: &Canvas<'_>, rect: Rect);

    fn hit(&self, canvas: &Canvas<'_>, rect: Rect, at: Pos2) -> Option<Hit>;

    fn tooltip(&self, canvas: &Canvas<'_>, rect: Rect, at: Pos2) -> Option<Tip>;

    /// Handles other controls, such as a draggable edge.
    fn ui(&self, _ui: &Ui, _cx: &ViewContext<'_>, _canvas: &Canvas<'_>, _rect: Rect) {}
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
