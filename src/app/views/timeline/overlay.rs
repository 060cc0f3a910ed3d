//! Overlays drawn each frame: range, selection, rulers, markers, out-of-memory flags, cursor.

use egui::{Align2, Color32, Pos2, Rangef, Rect, pos2, vec2};

use super::layout::Track;
use super::paint::Canvas;
use super::picture::{StrataPicture, Window};
use super::place::{AxisMarks, ValueChip};
use crate::app::state::{Axis, Item, SharedViewState, events_of_range, shared};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Batch, Cut, DASH_MARKER, PixelColumn, Scale, Term, chip, paint_zoom_box};
use vramscope_core::tables::{LifetimeId, NO_EVENT, Quantity};
use vramscope_core::units::{Bytes, counted};

/// On which side of the window something is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outside {
    Left,
    Right,
}

/// The side of the window on which `from..=to` lies, when it is completely outside.
fn outside(window: &Window, from: f64, to: f64) -> Option<Outside> {
    if to < window.from {
        Some(Outside::Left)
    } else if from > window.to {
        Some(Outside::Right)
    } else {
        None
    }
}

impl Canvas<'_> {
    /// The vertical extent of lines through all lanes, from the axis down.
    fn through(&self) -> Rangef {
        let canvas = self.tracks.canvas();
        let top = self.tracks.axis.map_or(canvas.top(), |a| a.bottom());
        Rangef::new(top, canvas.bottom())
    }

    /// Marks the cursor, the out-of-memory events and the selection when they are outside the window: 3 px at the nearer edge,
    /// each in its own track.
    pub fn out_of_range(&self, shared: &SharedViewState) {
        let t = self.tokens;
        let mut batch = Batch::new(self.painter);
        let mut mark = |(from, to): (f64, f64), y: Rangef, ink: Color32| {
            let x = match outside(&self.window, from, to) {
                Some(Outside::Left) => Rangef::new(self.tracks.x.min - 3.0, self.tracks.x.min),
                Some(Outside::Right) => Rangef::new(self.tracks.x.max, self.tracks.x.max + 3.0),
                None => return,
            };
            batch.rect(Rect::from_x_y_ranges(x, y), ink);
        };
        let instant = |event| (self.position(event), self.position(event));
        if let Some(axis) = self.tracks.axis {
            mark(instant(shared.cursor), Rangef::new(axis.bottom() - 16.0, axis.bottom()), t.accent);
        }
        let curves = self.tracks.open(Track::Curves).unwrap_or(self.tracks.strata);
        for &oom in &self.data.ooms {
            mark(instant(oom), Rangef::new(curves.top(), curves.top() + 24.0), t.red);
        }
        if let Some(extent) = shared.selected().and_then(|item| self.extent_of(item)) {
            let middle = self.tracks.strata.center().y;
            mark(extent, Rangef::new(middle - 12.0, middle + 12.0), t.accent);
        }
        batch.paint(self.painter);
    }

    /// Start and end of a thing on the axis; `None` for things without a time.
    fn extent_of(&self, item: Item) -> Option<(f64, f64)> {
        let device = self.data.device();
        match item {
            Item::Event(e) => Some((self.position(e), self.position(e))),
            Item::Lifetime(id) => {
                let (first, last) = shared::domain(device, self.window.axis);
                let of = |e: u32, none: f64| if e == NO_EVENT { none } else { self.position(e) };
                Some((of(self.data.tables.lifetimes.born(id), first), of(self.data.tables.lifetimes.gone(id), last)))
            }
            Item::Annotation(i) => {
                let a = device.annotations.get(i as usize)?;
                let at = |us: i64| super::clock::place_of_ns(device, self.window.axis, us.saturating_mul(1_000));
                Some((at(a.start_us), at(a.end_us.unwrap_or(a.start_us))))
            }
            Item::Segment(_) | Item::Hole(_) | Item::Unmapped(_) | Item::Stack(_) => None,
        }
    }

    /// Draws the chosen range: shaded, edges in the accent, its figures above the blocks. When the range fills the window only
    /// the edges are drawn, so that nothing covers the picture.
    pub fn range(&self, from: f32, to: f32, figures: &str) {
        let t = self.tokens;
        let y = self.through();
        let painter = self.painter.with_clip_rect(self.tracks.canvas().intersect(self.painter.clip_rect()));
        let mut batch = Batch::new(&painter);
        let seen = self.tracks.x;
        if from <= seen.min + 1.0 && to >= seen.max - 1.0 {
            // Keeps an edge at the border of the plot fully inside.
            for x in [from.max(seen.min - 1.0), to.min(seen.max + 1.0)] {
                if (x - x.clamp(seen.min, seen.max)).abs() < 1.0 {
                    batch.vline(x.clamp(seen.min + 0.5, seen.max - 0.5), y, 1.0, t.accent);
                }
            }
            batch.paint(&painter);
            return;
        }
        batch.rect(Rect::from_x_y_ranges(Rangef::new(from, to), y), Tokens::at(t.accent, 0.13));
        for x in [from, to] {
            batch.vline(x, y, 1.0, t.accent);
        }
        batch.paint(&painter);
        if !figures.is_empty() {
            let middle = f32::midpoint(from.max(self.tracks.x.min), to.min(self.tracks.x.max));
            let strata = self.tracks.strata;
            // Below the zoom button; low strata show it at the bottom, where it covers less.
            let y = if strata.height() >= LOW_STRATA { strata.top() + 40.0 } else { strata.bottom() - 12.0 };
            let at = pos2(middle, y);
            chip::paint_chip_in(&painter, at, Align2::CENTER_CENTER, figures, Type::Mono, t.text1, t.s3);
        }
    }

    /// Draws a zoom box, labelled with the part of the axis and of the bytes that it would show.
    pub fn zoom_box(&self, area: Rect, time: Option<(f64, f64)>, bytes: Option<(f64, f64)>) {
        let painter = self.within(self.tracks.canvas());
        paint_zoom_box(&painter, self.tokens, area);
        let mut figures = Vec::new();
        if let Some((from, to)) = time {
            let events = shared::events_within(self.data.device(), self.window.axis, from, to);
            figures.push(counted(events, "event", "events"));
            if self.data.device().events.has_time {
                let us = |x: f64| super::clock::time_ns(self.data.device(), self.window.axis, x) / 1_000;
                figures.push(vramscope_core::units::Micros(us(to) - us(from)).to_string());
            }
        }
        if let Some((low, high)) = bytes {
            figures.push(format!("{} to {}", Bytes(low.max(0.0) as u64), Bytes(high.max(0.0) as u64)));
        }
        let figures = figures.join(", ");
        let size = chip::chip_rect(&painter, area.center(), Align2::CENTER_CENTER, &figures, Type::Mono).size();
        let room = self.tracks.canvas().shrink(2.0);
        // Above the box so that it covers nothing of it, or inside when there is no room above.
        let y = if area.top() - size.y - 4.0 >= room.top() {
            area.top() - size.y / 2.0 - 4.0
        } else {
            area.top() + size.y / 2.0 + 4.0
        };
        let half = size.x / 2.0;
        let x = area.center().x.clamp(room.left() + half, (room.right() - half).max(room.left() + half));
        chip::paint_chip_in(&painter, pos2(x, y), Align2::CENTER_CENTER, &figures, Type::Mono, self.tokens.text1, self.tokens.s3);
    }

    /// Draws the outline of an allocation in the strata over its lifetime.
    pub fn outline(&self, picture: &StrataPicture, y: &Scale, id: LifetimeId, ink: Color32, is_selected: bool) {
        if picture.window.axis != self.window.axis {
            return;
        }
        let rect = self.tracks.strata;
        let painter = self.painter.with_clip_rect(rect.intersect(self.painter.clip_rect()));
        let profile = picture.profile(self.data, id);
        let drawn: Vec<Option<(f32, f32)>> = (0..self.window.columns)
            .map(|i| {
                let source = picture.window.column(self.window.at(i as f64 + 0.5))?;
                let (bottom, top) = profile.get(source).copied().flatten()?;
                Some((y.at(top as f64), y.at(bottom as f64)))
            })
            .collect();
        let mut batch = Batch::new(&painter);
        let pixel = batch.pixel();
        let (edges, lines) = outlined(&drawn, pixel, is_selected);
        let tops: Vec<_> = edges.iter().map(|e| e.map(|e| PixelColumn::level(e.0))).collect();
        let bottoms: Vec<_> = edges.iter().map(|e| e.map(|e| PixelColumn::level(e.1))).collect();
        let middles: Vec<_> = lines.iter().map(|l| l.map(PixelColumn::level)).collect();
        let widths: &[(f32, Color32)] = if is_selected { &[(4.0, self.tokens.s1), (1.5, ink)] } else { &[(1.0, ink)] };
        for &(width, colour) in widths {
            batch.curve(&tops, rect.left(), width, colour);
            batch.curve(&bottoms, rect.left(), width, colour);
            batch.curve(&middles, rect.left(), width, colour);
            // Closes the outline at allocation and free; a single line gets a small tick there.
            for i in 0..drawn.len() {
                let (top, bottom) = match (edges[i], lines[i]) {
                    (Some(edges), _) => edges,
                    (None, Some(middle)) => (middle - 4.0, middle + 4.0),
                    (None, None) => continue,
                };
                let y = Rangef::new(top - width / 2.0, bottom + width / 2.0);
                if i > 0 && drawn[i - 1].is_none() {
                    batch.vline(rect.left() + i as f32 * pixel, y, width, colour);
                }
                if i + 1 < drawn.len() && drawn[i + 1].is_none() {
                    batch.vline(rect.left() + (i + 1) as f32 * pixel, y, width, colour);
                }
            }
        }
        if is_selected && drawn.iter().all(Option::is_none) {
            // A lifetime shorter than a pixel column may be missing in the picture, so its place is marked at the bottom.
            let lifetimes = &self.data.tables.lifetimes;
            let place = |e: u32, none: u32| self.at(if e == NO_EVENT { none } else { e });
            let last = self.data.device().events.len().saturating_sub(1) as u32;
            let life = Rangef::new(place(lifetimes.born(id), 0), place(lifetimes.gone(id), last));
            let bar = Rect::from_x_y_ranges(life, Rangef::new(rect.bottom() - 3.0, rect.bottom()));
            batch.rect_at_least_a_pixel(bar, ink);
        }
        batch.paint(&painter);
    }

    /// Screen x of the line at the hovered time. On the time axis it follows the pointer itself, not the event before it.
    pub fn ruler_x(&self, event: Option<u32>, pointer: Option<Pos2>) -> Option<f32> {
        match (pointer, self.window.axis) {
            (Some(p), Axis::Time) => Some(p.x),
            _ => event.and_then(|e| self.x_of(e)),
        }
    }

    /// True at a height where the pointer means a number of bytes.
    pub fn reads_bytes(&self, y: f32) -> bool {
        [self.tracks.open(Track::Curves), Some(self.tracks.strata)].into_iter().flatten().any(|r| r.y_range().contains(y))
    }

    /// True where the readout would cover the track's name in the gutter, or the note on hidden lanes at the foot of the strata; it
    /// is then drawn inside the plot.
    pub fn is_at_name(&self, y: f32) -> bool {
        let foot = self.tracks.strata.bottom();
        if (foot - 32.0..foot).contains(&y) {
            return true;
        }
        let tops = [self.tracks.open(Track::Curves), Some(self.tracks.strata)].into_iter().flatten().map(|r| r.top());
        tops.into_iter().any(|top| (top - 8.0..top + 34.0).contains(&y))
    }

    /// Draws the line at the pointer's time with its readout on the axis, and the line at the pointer's bytes. `event` is hovered
    /// in any view; `pointer` is the pointer in this view, with the scale of its track.
    pub fn rulers(&self, event: Option<u32>, pointer: Option<(Pos2, Option<&Scale>)>, marks: &AxisMarks) {
        let t = self.tokens;
        let mut batch = Batch::new(self.painter);
        let x = self.ruler_x(event, pointer.map(|(p, _)| p));
        if let Some(x) = x {
            batch.vline(x, self.through(), 1.0, Tokens::at(t.text1, 0.4));
        }
        let across = pointer.and_then(|(p, scale)| Some((p.y, scale?)));
        if let Some((y, _)) = across {
            batch.hline(self.tracks.x, y, 1.0, Tokens::at(t.text1, 0.18));
        }
        batch.paint(self.painter);
        if let (Some(x), Some(event), Some(_)) = (x, event, pointer)
            && let Some((rect, text)) = self.ruler_mark(x, event, marks)
        {
            chip::paint_chip(self.painter, t, rect.center(), Align2::CENTER_CENTER, &text);
        }
        if let Some((y, scale)) = across {
            let bytes = Bytes(scale.value(y).max(0.0) as u64).to_string();
            let (at, anchor) = if self.is_at_name(y) {
                (pos2(self.tracks.x.min + 4.0, y), Align2::LEFT_CENTER)
            } else {
                (pos2(self.tracks.x.min - 4.0, y), Align2::RIGHT_CENTER)
            };
            chip::paint_chip(self.painter, t, at, anchor, &bytes);
        }
    }

    /// Draws flags of out-of-memory events with a line through all tracks.
    pub fn ooms(&self, marks: &AxisMarks) {
        let t = self.tokens;
        let mut batch = Batch::new(self.painter);
        for x in marks.flags.iter().flat_map(|f| f.2).flatten() {
            batch.vline(x, self.through(), 1.0, t.red);
        }
        batch.paint(self.painter);
        for (rect, text, _) in &marks.flags {
            chip::paint_flag(self.painter, t, rect.center_bottom(), text);
        }
    }

    /// Draws markers A and B and the figures between them, beside the first flag and not over `taken` if possible. Returns the
    /// rectangle of the figures.
    pub fn markers(&self, markers: &[Option<u32>; 2], marks: &AxisMarks, taken: &[Rect]) -> Option<Rect> {
        let t = self.tokens;
        let mut batch = Batch::new(self.painter);
        let places = markers.map(|m| m.and_then(|e| self.x_of(e)));
        if let Some(x) = places[0] {
            batch.dashed_vline(x, self.through(), 1.0, DASH_MARKER, t.text1);
        }
        if let Some(x) = places[1] {
            batch.vline(x, self.through(), 1.0, t.text1);
        }
        batch.paint(self.painter);
        for (rect, name) in marks.markers.iter().zip(["A", "B"]) {
            if let Some(rect) = rect {
                chip::paint_marker_label(self.painter, t, rect.center_bottom(), name);
            }
        }
        let [Some(a), Some(b)] = *markers else { return None };
        let text = format!("A to B: {}", self.between(a.min(b), a.max(b)));
        let place = |e: u32| self.at(e).clamp(self.tracks.x.min, self.tracks.x.max);
        let size = chip::chip_rect(self.painter, Pos2::ZERO, Align2::CENTER_CENTER, &text, Type::Mono).size();
        // In the curves, because in the strata the figures would cover what is compared.
        let curves = self.tracks.open(Track::Curves).filter(|lane| lane.height() >= 40.0);
        let lane = curves.unwrap_or(self.tracks.strata);
        let is_low = curves.is_none() && lane.height() < 120.0;
        let (first, second) = (place(a).min(place(b)), place(a).max(place(b)));
        // A low plot without room between the flags leaves the figures out for the same reason.
        let has_room = !is_low || second - first > size.x + 8.0;
        if !has_room || places.iter().all(Option::is_none) {
            return None;
        }
        let inside = egui::Rangef::new(lane.left() + size.x / 2.0 + 4.0, lane.right() - size.x / 2.0 - 4.0);
        let up = if curves.is_some() { 10.0 } else { 30.0 };
        let at = |x: f32, y: f32| {
            let x = if inside.min < inside.max { x.clamp(inside.min, inside.max) } else { x };
            Align2::CENTER_CENTER.anchor_size(pos2(x, y), size)
        };
        // Beside the first flag, because the cursor's figures are often in the middle.
        let half = 6.0 + size.x / 2.0;
        let columns = [first + half, second - half, f32::midpoint(first, second), second + half, first - half];
        let rows = [lane.bottom() - up, lane.bottom() - up - 18.0, lane.top() + 10.0, lane.top() + 28.0];
        let wanted = rows.iter().flat_map(|&y| columns.iter().map(move |&x| (x, y))).map(|(x, y)| at(x, y));
        let is_free = |rect: &Rect| lane.contains_rect(*rect) && !taken.iter().any(|t| t.expand(2.0).intersects(*rect));
        let wanted: Vec<Rect> = wanted.filter(is_free).collect();
        // Avoids the lines of the flags as well, when possible.
        let is_clear = |rect: &&Rect| ![first, second].iter().any(|&x| rect.x_range().expand(2.0).contains(x));
        let rect = wanted.iter().find(is_clear).or(wanted.first()).copied().unwrap_or_else(|| at(columns[0], rows[0]));
        // Clipped to the plot, because the gutter has its own labels.
        let plot = self.painter.with_clip_rect(lane.intersect(self.painter.clip_rect()));
        chip::paint_chip(&plot, t, rect.center(), Align2::CENTER_CENTER, &text);
        Some(rect)
    }

    /// Names A and B with their bytes in use beside their lines, A's on the side away from B. The labels avoid the value chips,
    /// and the names of the curves where possible.
    pub fn marker_names(&self, flags: [u32; 2], name: impl Fn(u32) -> String, taken: &[Rect], names: &[(Rect, Term)]) {
        let t = self.tokens;
        let plot = self.tracks.open(Track::Curves).unwrap_or(self.tracks.strata);
        if plot.height() < 40.0 {
            return;
        }
        let (device, tables) = (self.data.device(), &self.data.tables);
        let painter = self.painter.with_clip_rect(plot.intersect(self.painter.clip_rect()));
        let mut taken = taken.to_vec();
        for (which, title) in ["A", "B"].into_iter().enumerate() {
            let (event, other) = (flags[which], flags[1 - which]);
            let Some(x) = self.x_of(event) else { continue };
            let bytes = tables.curves.at(device, &tables.lifetimes, Quantity::Active, event);
            let text = format!("{title}  {}, {}", name(event), Bytes(bytes));
            let is_left = event < other || (event == other && which == 0);
            let mut put = |is_left: bool, y: f32, spares: bool| {
                let (anchor, side) = if is_left { (Align2::RIGHT_CENTER, -6.0) } else { (Align2::LEFT_CENTER, 6.0) };
                let width = chip::chip_rect(&painter, plot.center(), Align2::CENTER_CENTER, &text, Type::Caption).width();
                let rect = anchor.anchor_size(pos2(x + side, y), vec2(width, 16.0));
                let is_named = names.iter().any(|n| n.0.expand(1.0).intersects(rect));
                let is_free =
                    plot.contains_rect(rect) && !taken.iter().any(|r| r.expand(2.0).intersects(rect)) && !(spares && is_named);
                if is_free {
                    chip::paint_chip_in(&painter, pos2(x + side, y), anchor, &text, Type::Caption, t.text1, t.s3);
                    taken.push(rect);
                }
                is_free
            };
            // In a low pane, more rows would cover almost all blocks.
            let rows = [plot.top() + 10.0, plot.top() + 28.0, plot.top() + 46.0];
            let rows = if plot.height() < LOW_STRATA { &rows[..1] } else { &rows[..] };
            let _ = [true, false]
                .into_iter()
                .any(|spares| rows.iter().any(|&y| put(is_left, y, spares)) || rows.iter().any(|&y| put(!is_left, y, spares)));
        }
    }

    /// The distance of two events: `1,204 events, 12.345 ms`.
    pub fn between(&self, first: u32, last: u32) -> String {
        self.events_and_time(u64::from(last.saturating_sub(first)), first, last)
    }

    /// The figures of a range with both ends included, as other views count them: `1,205 events, 12.345 ms`.
    pub fn range_figures(&self, first: u32, last: u32) -> String {
        self.events_and_time(events_of_range((first, last)), first, last)
    }

    fn events_and_time(&self, events: u64, first: u32, last: u32) -> String {
        let device = self.data.device();
        let events = counted(events, "event", "events");
        let time = |e: u32| device.events.time_us.get(e as usize).copied().unwrap_or(0);
        if device.events.has_time {
            format!("{events}, {}", vramscope_core::units::Micros(time(last) - time(first)))
        } else {
            events
        }
    }

    /// Draws the cursor: a line through all lanes, its readout on the axis, and the values of the curves beside it.
    pub fn cursor(&self, shared: &SharedViewState, marks: &AxisMarks, values: &[ValueChip]) {
        let t = self.tokens;
        let Some(x) = self.x_of(shared.cursor) else { return };
        let mut batch = Batch::new(self.painter);
        batch.vline(x, self.through(), 1.0, t.text1);
        batch.paint(self.painter);
        if let Some((rect, text)) = &marks.cursor {
            chip::paint_chip_in(self.painter, rect.center(), Align2::CENTER_CENTER, text, Type::Mono, t.text1, t.s4);
        }
        for value in values {
            let rect = value.rect;
            chip::paint_chip(self.painter, t, rect.center(), Align2::CENTER_CENTER, &value.text);
            // A bar in the curve's colour shows which curve the value belongs to.
            let edge = if value.is_left { rect.right() - 2.0 } else { rect.left() };
            let bar = rect.across(edge, edge + 2.0);
            self.painter.rect_filled(bar, 0, value.ink);
        }
    }
}

/// Strata lower than this have no room above the blocks.
const LOW_STRATA: f32 = 110.0;
/// A block less high than this is thinner than its own outline.
const THIN: f32 = 5.0;
/// Least height of the outline of a short lifetime, so that it can be found.
const FINDABLE: f32 = 5.0;
/// From this width on a lifetime is long enough for a line to be found.
const LONG: f32 = 24.0;

/// How a block is marked in each column, given its top and bottom there: by an outline, or, when it is thin and long, by a line
/// through its middle, which covers less of its neighbours. A hovered block always gets its exact outline.
fn outlined(drawn: &[Option<(f32, f32)>], pixel: f32, is_selected: bool) -> (Vec<Option<(f32, f32)>>, Vec<Option<f32>>) {
    let is_long = drawn.iter().flatten().count() as f32 * pixel >= LONG;
    let least = if is_selected { FINDABLE } else { 1.0 };
    let is_line = |(top, bottom): (f32, f32)| is_selected && is_long && bottom - top < THIN;
    let outline = |e: &Option<(f32, f32)>| {
        let (top, bottom) = e.filter(|e| !is_line(*e))?;
        let grow = (least - (bottom - top)).max(0.0) / 2.0;
        Some((top - grow, bottom + grow))
    };
    let line = |e: &Option<(f32, f32)>| e.filter(|e| is_line(*e)).map(|(top, bottom)| f32::midpoint(top, bottom));
    (drawn.iter().map(outline).collect(), drawn.iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thin_block_that_lives_long_is_a_line_and_a_short_one_can_be_found() {
        let thin = Some((10.0, 10.4));
        let (edges, lines) = outlined(&[thin; 100], 1.0, true);
        assert!(edges.iter().all(Option::is_none) && lines.iter().all(|l| l.is_some_and(|y| (y - 10.2).abs() < 1e-3)));
        let (edges, lines) = outlined(&[None, thin, thin, None], 1.0, true);
        assert!(lines.iter().all(Option::is_none));
        assert!(edges[1].is_some_and(|(top, bottom)| (bottom - top - FINDABLE).abs() < 1e-3), "{edges:?}");
        // Where the block is high enough it keeps its outline. A hovered block is outlined everywhere.
        let mixed: Vec<_> = (0..100).map(|i| if i < 50 { thin } else { Some((10.0, 30.0)) }).collect();
        let (edges, lines) = outlined(&mixed, 1.0, true);
        assert!(lines[0].is_some() && lines[50].is_none() && edges[50] == Some((10.0, 30.0)));
        assert!(outlined(&mixed, 1.0, false).1.iter().all(Option::is_none));
    }

    #[test]
    fn what_no_part_of_is_in_view_lies_on_one_side() {
        let w = Window { axis: Axis::Event, from: 100.0, to: 200.0, columns: 50 };
        assert_eq!(outside(&w, 10.5, 10.5), Some(Outside::Left));
        assert_eq!(outside(&w, 200.5, 300.0), Some(Outside::Right));
        assert_eq!(outside(&w, 50.0, 100.0), None);
        assert_eq!(outside(&w, 0.0, 500.0), None);
    }
}
