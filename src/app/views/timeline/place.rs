//! Places the small marks so that none covers another: flags, markers, value chips, names of curves.

use egui::{Align2, Color32, Rangef, Rect, pos2, vec2};

use super::layout::{self, Track};
use super::marks::clusters;
use super::paint::Canvas;
use crate::app::state::{Axis, SharedViewState};
use crate::app::theme::Type;
use crate::app::widgets::{Scale, chip, label};
use vramscope_core::tables::Quantity;
use vramscope_core::units::{Bytes, count};

/// Marks on the axis, in order of priority: out-of-memory flags, markers, the cursor's readout.
#[derive(Clone, Debug, Default)]
pub(super) struct AxisMarks {
    /// Flags of out-of-memory events: rectangle, text, and the x of the lines below.
    pub flags: Vec<(Rect, String, [Option<f32>; 2])>,
    pub markers: [Option<Rect>; 2],
    /// The cursor's event, or its time on the time axis.
    pub cursor: Option<(Rect, String)>,
}

impl AxisMarks {
    pub fn taken(&self) -> Vec<Rect> {
        let flags = self.flags.iter().map(|f| f.0);
        flags.chain(self.markers.iter().flatten().copied()).chain(self.cursor.iter().map(|c| c.0)).collect()
    }
}

#[derive(Clone, Debug)]
pub(super) struct ValueChip {
    pub rect: Rect,
    pub text: String,
    pub ink: Color32,
    /// The chip is left of the cursor.
    pub is_left: bool,
}

impl Canvas<'_> {
    pub fn axis_marks(&self, shared: &SharedViewState) -> AxisMarks {
        let mut marks = AxisMarks::default();
        let Some(axis) = self.tracks.axis else { return marks };
        let across = Rangef::new(self.pane.left() + 2.0, self.pane.right() - 1.0);
        let places = self.data.ooms.iter().filter_map(|&e| Some((self.x_of(e)?, e)));
        for c in clusters(places, 44.0) {
            let text = if c.count > 1 { format!("{} OOM", c.count) } else { "OOM".to_owned() };
            let size = vec2(label::width(self.painter, &text, Type::Flag).ceil() + 10.0, 14.0);
            let rect = Align2::CENTER_BOTTOM.anchor_size(pos2(f32::midpoint(c.left, c.right), axis.bottom()), size);
            // Keeps the flag inside the pane for an event at its very end.
            let rect = beside(rect, &[], across).unwrap_or(rect);
            marks.flags.push((rect, text, [Some(c.left), (c.count > 1).then_some(c.right)]));
        }
        for (i, event) in shared.flags_shown().iter().enumerate() {
            let Some(x) = event.and_then(|e| self.x_of(e)) else { continue };
            let rect = Align2::CENTER_BOTTOM.anchor_size(pos2(x, axis.bottom()), vec2(17.0, 15.0));
            marks.markers[i] = beside(rect, &marks.taken(), across);
        }
        // When both flags are pushed inside at one end, the earlier one stays left.
        if let ([Some(a), Some(b)], [Some(from), Some(to)]) = (marks.markers, shared.flags_shown())
            && (a.left() < b.left()) != (from < to)
        {
            marks.markers.swap(0, 1);
        }
        if let Some(x) = self.x_of(shared.cursor) {
            let text = self.place_text(shared.cursor);
            let size = vec2(label::width(self.painter, &text, Type::Mono).ceil() + 8.0, 16.0);
            let low = Align2::CENTER_CENTER.anchor_size(pos2(x, axis.bottom() - 11.0), size);
            let taken = marks.taken();
            let is_crowded = taken.iter().any(|t| t.expand(2.0).intersects(low));
            // Above the flags when the axis has a second line, otherwise beside them.
            let wanted = if is_crowded && axis.height() > 20.0 {
                Align2::CENTER_CENTER.anchor_size(pos2(x, axis.top() + 8.0), size)
            } else {
                low
            };
            marks.cursor = beside(wanted, &taken, across).map(|rect| (rect, text));
        }
        marks
    }

    /// An event as the axis counts it: its number, or the time since the first event.
    fn place_text(&self, event: u32) -> String {
        match self.data.since_start(event).filter(|_| self.window.axis == Axis::Time) {
            Some(time) => self.time_text(time.0 as f64),
            None => count(u64::from(event)),
        }
    }

    /// The readout of the ruler at the pointer, beside other marks; `None` when there is no room.
    pub fn ruler_mark(&self, x: f32, event: u32, marks: &AxisMarks) -> Option<(Rect, String)> {
        let axis = self.tracks.axis?;
        let text = match self.window.axis {
            Axis::Time => self.time_text(self.x.value(x)),
            Axis::Event => count(u64::from(event)),
        };
        // The cursor's own readout already shows this.
        if marks.cursor.as_ref().is_some_and(|(_, cursor)| *cursor == text) {
            return None;
        }
        let size = vec2(label::width(self.painter, &text, Type::Mono).ceil() + 8.0, 16.0);
        let wanted = Align2::CENTER_CENTER.anchor_size(pos2(x, axis.bottom() - 11.0), size);
        let across = Rangef::new(self.pane.left() + 2.0, self.pane.right() - 1.0);
        beside(wanted, &marks.taken(), across).map(|rect| (rect, text))
    }

    /// The values of the curves at the cursor, stacked.
    pub fn value_chips(&self, shared: &SharedViewState, y: &Scale) -> Vec<ValueChip> {
        let (Some(x), Some(rect)) = (self.x_of(shared.cursor), self.tracks.open(Track::Curves).filter(|r| r.height() >= 48.0))
        else {
            return Vec::new();
        };
        let tables = &self.data.tables;
        let device = self.data.device();
        let is_left = x > rect.center().x;
        let (anchor, side) = if is_left { (Align2::RIGHT_CENTER, -5.0) } else { (Align2::LEFT_CENTER, 5.0) };
        let mut free_below = rect.top() + 9.0;
        let mut chips = Vec::new();
        for (q, ink) in [(Quantity::Reserved, self.tokens.text1), (Quantity::Active, self.tokens.slot(0))] {
            if q == Quantity::Reserved && tables.curves.peak(q).0 == 0 {
                continue;
            }
            let bytes = tables.curves.at(device, &tables.lifetimes, q, shared.cursor);
            // The chip before the last leaves room for one more.
            let lowest = rect.bottom() - if q == Quantity::Active { 9.0 } else { 27.0 };
            let at = y.at(bytes as f64).clamp(free_below, lowest.max(free_below));
            let text = Bytes(bytes).to_string();
            let rect = chip::chip_rect(self.painter, pos2(x + side, at), anchor, &text, Type::Mono);
            free_below = at + 18.0;
            chips.push(ValueChip { rect, text, ink, is_left });
        }
        chips
    }

    /// Screen x of an event; `None` outside the plots.
    pub fn x_of(&self, event: u32) -> Option<f32> {
        Some(self.at(event)).filter(|x| self.tracks.x.expand(0.5).contains(*x))
    }
}

/// Moves `rect` horizontally within `x` as little as possible so that it touches nothing taken. `None` when the row is full.
pub(super) fn beside(rect: Rect, taken: &[Rect], x: Rangef) -> Option<Rect> {
    const GAP: f32 = 3.0;
    let width = rect.width();
    if width > x.span() {
        return None;
    }
    let at = |left: f32| Rect::from_min_size(pos2(left, rect.top()), rect.size());
    let in_row: Vec<Rect> = taken.iter().copied().filter(|t| t.y_range().intersects(rect.y_range())).collect();
    let edges = in_row.iter().flat_map(|t| [t.left() - GAP - width, t.right() + GAP]);
    std::iter::once(rect.left().clamp(x.min, x.max - width))
        .chain(edges)
        .filter(|&left| left >= x.min && left + width <= x.max)
        .map(at)
        .filter(|r| !in_row.iter().any(|t| t.x_range().expand(GAP - 0.5).intersects(r.x_range())))
        .min_by(|a, b| (a.left() - rect.left()).abs().total_cmp(&(b.left() - rect.left()).abs()))
}

/// Like [`layout::label_place`], but also avoids `taken`.
pub(super) fn free_place(
    (tops, bottoms): (&[f32], &[f32]),
    (from, width, height): (usize, usize, f32),
    taken: &[Rect],
    rect_of: impl Fn(usize, f32) -> Rect,
) -> Option<Rect> {
    let mut from = from;
    while let Some((at, y)) = layout::label_place(tops, bottoms, from, width, height) {
        let rect = rect_of(at, y);
        if !taken.iter().any(|t| t.expand(2.0).intersects(rect)) {
            return Some(rect);
        }
        from = at + 8;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chip(left: f32, width: f32) -> Rect {
        Rect::from_min_size(pos2(left, 10.0), vec2(width, 16.0))
    }

    #[test]
    fn a_chip_moves_off_what_is_taken_by_as_little_as_possible() {
        let x = Rangef::new(0.0, 200.0);
        assert_eq!(beside(chip(50.0, 40.0), &[], x), Some(chip(50.0, 40.0)));
        assert_eq!(beside(chip(190.0, 40.0), &[], x), Some(chip(160.0, 40.0)), "pushed in");
        assert_eq!(beside(chip(50.0, 40.0), &[chip(80.0, 30.0)], x), Some(chip(37.0, 40.0)), "to the left");
        assert_eq!(beside(chip(90.0, 40.0), &[chip(70.0, 30.0)], x), Some(chip(103.0, 40.0)), "to the right");
        let other_row = chip(50.0, 40.0).translate(vec2(0.0, 30.0));
        assert_eq!(beside(chip(50.0, 40.0), &[other_row], x), Some(chip(50.0, 40.0)));
        assert_eq!(beside(chip(50.0, 40.0), &[chip(0.0, 200.0)], x), None, "the row is full");
        let between = beside(chip(50.0, 40.0), &[chip(20.0, 50.0), chip(75.0, 30.0)], x);
        assert_eq!(between, Some(chip(108.0, 40.0)), "past both, where neither is touched");
    }

    #[test]
    fn a_name_steps_over_what_is_taken() {
        let (tops, bottoms) = (vec![0.0; 200], vec![60.0; 200]);
        let rect_of = |at: usize, y: f32| Rect::from_min_size(pos2(at as f32, y - 8.0), vec2(40.0, 16.0));
        let free = |taken: &[Rect]| free_place((&tops, &bottoms), (8, 40, 20.0), taken, rect_of).map(|r| r.left());
        assert_eq!(free(&[]), Some(8.0));
        assert_eq!(free(&[Rect::from_min_size(pos2(0.0, 20.0), vec2(60.0, 16.0))]), Some(64.0));
        assert_eq!(free(&[Rect::from_min_size(pos2(0.0, 0.0), vec2(300.0, 60.0))]), None);
    }
}
