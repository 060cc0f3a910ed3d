//! Pennants on the curves, for snapshots and bursts of releases.

use egui::{Align2, Rect, Shape, pos2};

use super::marks::{Marks, Why};
use super::paint::Canvas;
use crate::app::state::shared;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Batch, chip};
use vramscope_core::units::Bytes;

impl Canvas<'_> {
    /// Draws pennants of snapshots and of bursts of releases at the top of the curves, with names where they do not cover
    /// `taken`.
    pub fn pennants(&self, rect: Rect, marks: &Marks, taken: &mut Vec<Rect>) -> Pennants {
        let t = self.tokens;
        let event_at = |x| shared::event_at(self.data.device(), self.window.axis, x);
        let (from, to) = (event_at(self.window.from), event_at(self.window.to));
        let bursts =
            &marks.bursts[marks.bursts.partition_point(|b| b.last < from)..marks.bursts.partition_point(|b| b.first <= to)];
        let snapshots =
            &marks.snapshots[marks.snapshots.partition_point(|&s| s < from)..marks.snapshots.partition_point(|&s| s <= to)];
        // Pennants every few pixels would be noise, so some are skipped; the device lane counts all calls.
        let some = |n: usize| (n / 200).max(1);
        let bursts = bursts.iter().step_by(some(bursts.len())).map(|b| (self.at(b.last), Pennant::Burst(*b)));
        let snapshots = snapshots.iter().step_by(some(snapshots.len())).map(|&s| (self.at(s), Pennant::Snapshot(s)));
        let mut all: Vec<_> = bursts.chain(snapshots).filter(|(x, _)| rect.x_range().contains(*x)).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Below the limit's line and its name.
        let top = rect.top() + if marks.cap.is_some() { 18.0 } else { 0.0 };
        let painter = self.within(rect);
        let mut batch = Batch::new(&painter);
        let mut shapes = Vec::new();
        let mut names = Vec::new();
        for (i, (x, pennant)) in all.iter().enumerate() {
            batch.vline(*x, rect.y_range(), 1.0, t.line2);
            let points = vec![pos2(*x, top), pos2(*x + 8.0, top + 4.0), pos2(*x, top + 8.0)];
            shapes.push(Shape::convex_polygon(points, t.text2, egui::Stroke::NONE));
            let next = all.get(i + 1).map_or(rect.right(), |n| n.0);
            let text = pennant.text();
            let place = chip::chip_rect(&painter, pos2(x + 10.0, top + 4.0), Align2::LEFT_CENTER, &text, Type::Caption);
            if next - x > place.width() + 14.0 && !taken.iter().any(|r| r.intersects(place)) {
                taken.push(place);
                names.push((place.left_center(), text));
            }
        }
        batch.paint(&painter);
        painter.extend(shapes);
        for (at, text) in names {
            chip::paint_chip_in(&painter, at, Align2::LEFT_CENTER, &text, Type::Caption, t.text2, Tokens::at(t.s1, 0.85));
        }
        Pennants { top, marks: all }
    }
}

/// The pennants from left to right, and the upper edge of their heads.
#[derive(Clone, Debug, Default)]
pub(super) struct Pennants {
    pub top: f32,
    pub marks: Vec<(f32, Pennant)>,
}

/// A mark on the curves other than an out-of-memory event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pennant {
    /// Segments released one after the other.
    Burst(super::marks::Burst),
    /// The user took a snapshot.
    Snapshot(u32),
}

impl Pennant {
    pub fn text(&self) -> String {
        match self {
            Pennant::Burst(b) => match b.why {
                Why::Retry => format!("retry: freed {}", Bytes(b.bytes)),
                Why::Collection => format!("collected {}", Bytes(b.bytes)),
                Why::Emptied => format!("cache freed {}", Bytes(b.bytes)),
            },
            Pennant::Snapshot(_) => "snapshot".to_owned(),
        }
    }
}
