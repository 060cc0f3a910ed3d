//! Lanes under the live blocks, one a file. A new lane is a file here, a variant of [`Track`] and its room in `layout`.

mod card;
pub(super) mod categories;
mod device;
mod operators;
mod phases;
mod ranges;
mod steps;

use std::sync::Arc;

use egui::{Pos2, Rect, Ui};

use super::layout::{Contents, Track};
use super::marks::Marks;
use super::paint::Canvas;
use super::picture::WindowPicture;
use crate::app::state::selection::Item;
use crate::app::views::ViewContext;
use crate::app::widgets::tooltip::Tip;

#[cfg(test)]
pub(super) use device::{gap_text, span_text};

/// What lanes share with the curves.
pub(super) struct Shared {
    /// What happened in the whole recording; `None` until it is found.
    pub marks: Option<Arc<Marks>>,
    /// What the window shows of it; `None` until it is computed.
    pub picture: Option<Arc<WindowPicture>>,
}

/// A lane: a strip of the window's width that is folded and opened by its name.
pub(super) trait Lane {
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
pub(super) struct Hit {
    /// The lane.
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
    fn told(lane: Track) -> Self {
        Hit { lane, item: None, event: None, chooses: None, extent: None }
    }
}

/// An instant, and the events that counts and findings follow; none where there are not two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Choice {
    pub cursor: u32,
    pub range: Option<(u32, u32)>,
}

/// The lanes, in the order they are drawn.
#[derive(Default)]
pub(super) struct Lanes(Vec<Box<dyn Lane>>);

impl Lanes {
    /// Makes them where they are missing.
    pub fn fill(&mut self) {
        if self.0.is_empty() {
            self.0 = vec![
                Box::new(steps::Steps::default()),
                Box::new(phases::Phases::default()),
                Box::new(device::DeviceCalls::default()),
                Box::new(operators::Operators::default()),
                Box::new(categories::Categories::default()),
                Box::new(card::WholeCard::default()),
            ];
        }
    }

    /// Says what there is to show.
    pub fn heights(&mut self, cx: &ViewContext<'_>, marks: Option<&Marks>, contents: &mut Contents) {
        self.0.iter_mut().for_each(|lane| lane.height(cx, marks, contents));
    }

    /// Prepares and draws those that have room.
    pub fn paint(&mut self, cx: &ViewContext<'_>, canvas: &Canvas<'_>, shared: &Shared) {
        for lane in &mut self.0 {
            if let Some(rect) = canvas.tracks.open(lane.track()) {
                lane.prepare(cx, canvas, shared);
                lane.paint(cx, canvas, rect);
            }
        }
    }

    fn at(&self, canvas: &Canvas<'_>, at: Pos2) -> Option<(&dyn Lane, Rect)> {
        let open = self.0.iter().filter_map(|lane| Some((lane.as_ref(), canvas.tracks.open(lane.track())?)));
        open.into_iter().find(|(_, rect)| rect.contains(at))
    }

    /// What is at a point.
    pub fn hit(&self, canvas: &Canvas<'_>, at: Pos2) -> Option<Hit> {
        let (lane, rect) = self.at(canvas, at)?;
        lane.hit(canvas, rect, at)
    }

    /// What a tooltip says of what is at a point.
    pub fn tooltip(&self, canvas: &Canvas<'_>, at: Pos2) -> Option<Tip> {
        let (lane, rect) = self.at(canvas, at)?;
        lane.tooltip(canvas, rect, at)
    }

    /// What can be pressed or dragged besides.
    pub fn ui(&self, ui: &Ui, cx: &ViewContext<'_>, canvas: &Canvas<'_>) {
        for lane in &self.0 {
            if let Some(rect) = canvas.tracks.open(lane.track()) {
                lane.ui(ui, cx, canvas, rect);
            }
        }
    }

    /// What stands in the gutter for a track.
    pub fn name(&self, canvas: &Canvas<'_>, track: Track) -> &'static str {
        self.0.iter().find(|lane| lane.track() == track).map_or(track.name(), |lane| lane.name(canvas))
    }
}
