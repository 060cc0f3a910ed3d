//! What a lane is.

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
    /// What happened in the whole recording; `None` until it is found.
    pub marks: Option<Arc<Marks>>,
    /// What the window shows of it; `None` until it is computed.
    pub picture: Option<Arc<WindowPicture>>,
}

/// A lane: a strip of the window's width that is folded and opened by its name.
pub(in crate::app::views::timeline) trait Lane {
    /// Its place in the layout, with its name.
    fn track(&self) -> Track;

    /// What stands in the gutter.
    fn name(&self, _canvas: &Canvas<'_>) -> &'static str {
        self.track().name()
    }

    /// Says what there is to show, by which `layout` finds the lane's height. Without anything it has none.
    fn height(&mut self, cx: &ViewContext<'_>, marks: Option<&Marks>, contents: &mut Contents);

    /// Takes the picture of the canvas' window, or asks for it off the window's thread.
    fn prepare(&mut self, cx: &ViewContext<'_>, canvas: &Canvas<'_>, shared: &Shared);

    /// Draws what was prepared.
    fn paint(&self, cx: &ViewContext<'_>, canvas: &Canvas<'_>, rect: Rect);

    /// What is at a point.
    fn hit(&self, canvas: &Canvas<'_>, rect: Rect, at: Pos2) -> Option<Hit>;

    /// What a tooltip says of it.
    fn tooltip(&self, canvas: &Canvas<'_>, rect: Rect, at: Pos2) -> Option<Tip>;

    /// What can be pressed or dragged besides.
    fn ui(&self, _ui: &Ui, _cx: &ViewContext<'_>, _canvas: &Canvas<'_>, _rect: Rect) {}
}

/// A thing of a lane, as the pointer means it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::app::views::timeline) struct Hit {
    pub lane: Track,
    /// What a click selects.
    pub item: Option<Item>,
    /// The event a click sets the cursor to, when it is another than the one at the pointer.
    pub event: Option<u32>,
    /// What a click chooses instead of selecting something.
    pub chooses: Option<Choice>,
    /// Where it begins and ends on the axis: a double click zooms to it.
    pub extent: Option<(f64, f64)>,
}

impl Hit {
    /// Something that is only told of.
    pub fn told(lane: Track) -> Self {
        Hit { lane, item: None, event: None, chooses: None, extent: None }
    }
}

/// An instant, and the events that counts and findings follow; none where there are not two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::app::views::timeline) struct Choice {
    pub cursor: u32,
    pub range: Option<(u32, u32)>,
}
