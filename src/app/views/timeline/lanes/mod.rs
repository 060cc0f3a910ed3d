//! Lanes below the strata, one per file. A new lane is a file here, a variant of [`Track`], and its height and place in `layout`.

mod card;
pub(super) mod categories;
mod device;
mod lane;
mod operators;
mod phases;
mod ranges;
mod steps;

use egui::{Pos2, Rect, Ui};

use super::layout::{Contents, Track};
use super::marks::Marks;
use super::paint::Canvas;
use crate::app::views::ViewContext;
use crate::app::widgets::Tip;
use lane::Lane;
use ranges::Ranges;

#[cfg(test)]
pub(super) use device::{gap_text, span_text};
pub(super) use lane::{Hit, Shared};

/// The lanes in drawing order.
#[derive(Default)]
pub(super) struct Lanes(Vec<Box<dyn Lane>>);

impl Lanes {
    /// Creates the lanes on first use.
    pub fn fill(&mut self) {
        if self.0.is_empty() {
            self.0 = vec![
                Box::new(Ranges::of(Track::Steps)),
                Box::new(Ranges::of(Track::Phases)),
                Box::new(device::DeviceCalls::default()),
                Box::new(operators::Operators::default()),
                Box::new(categories::Categories::default()),
                Box::new(card::WholeCard::default()),
            ];
        }
    }

    /// Collects what the lanes have to show.
    pub fn heights(&mut self, cx: &ViewContext<'_>, marks: Option<&Marks>, contents: &mut Contents) {
        self.0.iter_mut().for_each(|lane| lane.height(cx, marks, contents));
    }

    /// Prepares and draws the lanes that have room.
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

    pub fn hit(&self, canvas: &Canvas<'_>, at: Pos2) -> Option<Hit> {
        let (lane, rect) = self.at(canvas, at)?;
        lane.hit(canvas, rect, at)
    }

    pub fn tooltip(&self, canvas: &Canvas<'_>, at: Pos2) -> Option<Tip> {
        let (lane, rect) = self.at(canvas, at)?;
        lane.tooltip(canvas, rect, at)
    }

    /// Handles other controls of the lanes.
    pub fn ui(&self, ui: &Ui, cx: &ViewContext<'_>, canvas: &Canvas<'_>) {
        for lane in &self.0 {
            if let Some(rect) = canvas.tracks.open(lane.track()) {
                lane.ui(ui, cx, canvas, rect);
            }
        }
    }

    pub fn name(&self, canvas: &Canvas<'_>, track: Track) -> &'static str {
        self.0.iter().find(|lane| lane.track() == track).map_or(track.name(), |lane| lane.name(canvas))
    }
}
