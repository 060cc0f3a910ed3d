//! Paints the fragmentation view around its texture.

use egui::{Align2, Painter, Pos2, Rect, Shape, Stroke, pos2, vec2};

use super::layout;
use super::layout::Areas;
use super::picture::{Map, Mark, Mode, Picture, event_of};
use super::{Place, Places};
use crate::app::data::device::DeviceData;
use crate::app::state::{Axis, Item, SharedViewState, shared};
use crate::app::theme::{Ramp, Tokens, Type};
use crate::app::widgets::{
    Batch, Cut, DASH_LIMIT, DASH_MARKER, PixelColumn, Scale, Swatch, Term, UnitAt, byte_ticks, event_ticks, label, most_across,
    most_down, paint_chip_in, paint_ramp, time_ticks,
};
use vramscope_core::tables::NO_EVENT;
use vramscope_core::units::{Bytes, NBSP};

pub(super) struct Canvas<'a> {
    pub painter: &'a Painter,
    pub tokens: &'a Tokens,
    pub data: &'a DeviceData,
    pub picture: &'a Picture,
    pub areas: Areas,
    pub axis: Axis,
    pub x: Scale,
    /// Maps addresses to the screen for the requested range, which may be ahead of the picture.
    pub y: Scale,
}

impl Canvas<'_> {
    pub fn place(&self, p: Pos2) -> Option<Place> {
        if self.picture.key.axis != self.axis || !self.areas.canvas().contains(p) {
            return None;
        }
        let column = self.picture.key.column(self.x.value(p.x))?;
        let event = event_of(self.picture.strip.get(column)?);
        let share = f64::from((p.y - self.areas.map.top()) / self.areas.map.height());
        let is_inside = (0.0..1.0).contains(&share);
        let offset = match &self.picture.map {
            Map::Addresses(map) => {
                let offset = self.y.value(p.y).max(0.0) as u64;
                (is_inside && (map.shown.0..map.shown.1).contains(&offset)).then_some(offset)
            }
            Map::Sizes(_) => None,
        };
        Some(Place { event, column, share: is_inside.then_some(share), offset })
    }

    fn x_of(&self, event: u32) -> f32 {
        self.x.at(shared::position(self.data.device(), self.axis, event))
    }

    /// Draws the background of unreserved memory, and grid lines of the time axis.
    pub fn back(&self) {
        let mut batch = Batch::new(self.painter);
        if matches!(self.picture.map, Map::Addresses(_)) {
            batch.rect(self.areas.map, self.tokens.s0);
        }
        let ticks = self.time_ticks();
        ticks.grid_across(&mut batch, self.tokens, &self.x, self.areas.map);
        if let Some(strip) = self.areas.strip {
            ticks.grid_across(&mut batch, self.tokens, &self.x, strip);
        }
        batch.paint(self.painter);
    }

    /// Draws failed requests, retries and releases as ticks above the map. A failed request also gets a line through the map.
    pub fn marks(&self) {
        if self.picture.key.axis != self.axis {
            return;
        }
        let (t, key, map) = (self.tokens, &self.picture.key, self.areas.map);
        let mut batch = Batch::new(self.painter);
        for wanted in [Mark::Freed, Mark::Retry, Mark::Oom] {
            let colour = mark_ink(t, wanted);
            for &(.., event) in self.picture.marks.iter().filter(|m| m.1 == wanted) {
                // The same x as the cursor on that event, even when the window ends at it.
                let x = self.x_of(event).clamp(self.x.at(key.from), self.x.at(key.to));
                // While the window moves, the picture is of the previous window, so some marks are outside.
                if !map.x_range().contains(x) {
                    continue;
                }
                self.painter.add(glyph(wanted, pos2(x, map.top() - 1.0), colour));
                if wanted == Mark::Oom {
                    batch.vline(x, map.y_range(), 1.0, colour);
                }
            }
        }
        batch.paint(self.painter);
    }

    fn time_ticks(&self) -> crate::app::widgets::axis::Ticks {
        let (from, to) = (self.x.value(self.areas.x.min), self.x.value(self.areas.x.max));
        let most = most_across(self.areas.x.span());
        match self.axis {
            Axis::Event => event_ticks(from, to, most),
            Axis::Time => time_ticks(from, to, most),
        }
    }

    /// Draws the time axis, the addresses or hole sizes beside the map, and the legend of the shades.
    pub fn labels(&self) {
        let (t, map) = (self.tokens, self.areas.map);
        let mut batch = Batch::new(self.painter);
        batch.hline(map.x_range(), map.bottom(), 1.0, t.line);
        batch.paint(self.painter);
        let right = map.left() - 6.0;
        match &self.picture.map {
            Map::Addresses(_) => {
                let ticks = byte_ticks(self.y.start, self.y.end, most_down(map.height()).min(8));
                label::text(self.painter, pos2(right, map.top() + 7.0), Align2::RIGHT_CENTER, ticks.unit, Type::Mono, t.text3);
                for (value, text) in &ticks.ticks {
                    let at = self.y.at(*value);
                    if at > map.top() + 22.0 {
                        label::text(self.painter, pos2(right, at), Align2::RIGHT_CENTER, text, Type::Mono, t.text3);
                    }
                }
            }
            Map::Sizes(sizes) => {
                let classes = sizes.classes.len().max(1);
                let height = map.height() / classes as f32;
                let every = (18.0 / height).ceil().max(1.0) as usize;
                for (i, &low) in sizes.classes.iter().enumerate().step_by(every) {
                    let y = map.bottom() - (i as f32 + 0.5) * height;
                    let text = short(low);
                    label::text(self.painter, pos2(right, y), Align2::RIGHT_CENTER, &text, Type::Mono, t.text3);
                }
                if let (Some(request), Some(&lowest)) = (self.picture.request.filter(|&r| r > 0), sizes.classes.first()) {
                    // Classes double in size, so the request has a place within its class on the same log scale. Holes above the
                    // line are large enough.
                    let class = (request as f64 / lowest as f64).log2() as f32;
                    let y = (map.bottom() - class * height).clamp(map.top() + 1.0, map.bottom());
                    let mut batch = Batch::new(self.painter);
                    batch.dashed_hline(map.x_range(), y, 1.0, DASH_LIMIT, t.red);
                    batch.paint(self.painter);
                    let text = format!("the request, {}", Bytes(request));
                    let at = pos2(map.left() + 8.0, if y - map.top() > 22.0 { y - 10.0 } else { y + 10.0 });
                    paint_chip_in(self.painter, at, Align2::LEFT_CENTER, &text, Type::Caption, t.red, t.s1);
                }
            }
        }
        if let Some(axis) = self.areas.axis {
            self.time_ticks().label_across(self.painter, t, &self.x, axis.lines(3.0, 19.0));
        }
    }

    /// Draws the legend of shades and marks. Returns the labels that have a glossary entry.
    pub fn legend(&self) -> Vec<(Rect, Term)> {
        let mut terms = Vec::new();
        let Some(rect) = self.areas.legend else { return terms };
        let (t, p) = (self.tokens, self.picture);
        let first = rect.top() + layout::LEGEND / 2.0;
        let mut right = rect.right();
        if matches!(p.map, Map::Addresses(_)) {
            let text = "largest hole";
            let covered = label::text(self.painter, pos2(right, first), Align2::RIGHT_CENTER, text, Type::Caption, t.text2);
            Swatch::Fill(t.text1).paint(self.painter, t, pos2(covered.left() - 16.0, first));
            terms.push((covered, Term::LargestHole));
            right = covered.left() - HOLE_GAP;
        }
        let end = label::width(self.painter, &p.ends.1, Type::Caption);
        let ramp = if matches!(p.key.mode, Mode::Occupancy | Mode::HoleSizes) { Ramp::Heat } else { Ramp::Size };
        // A short ramp says as much as a long one. It is dropped only when there is no room at all.
        let start = label::width(self.painter, &p.ends.0, Type::Caption) + 6.0;
        let length = (right - end - 6.0 - rect.left() - start).clamp(0.0, ramp_length(rect.width()));
        let bar = Rect::from_min_size(pos2(right - end - 6.0 - length, first - 4.0), vec2(length, 8.0));
        if length >= 20.0 {
            paint_ramp(self.painter, t, bar, ramp.stops(t), (&p.ends.0, &p.ends.1));
        }
        // Entries without room in the first row continue in the next.
        let rows = 1 + ((rect.height() - layout::LEGEND) / layout::LEGEND_ROW).round().max(0.0) as usize;
        let entries = entries(p);
        let widths: Vec<f32> =
            entries.iter().map(|e| label::width(self.painter, e.text(), Type::Caption) + ENTRY_SWATCH).collect();
        let edge = |row: usize| if row == 0 { bar.left() - start - 10.0 } else { rect.right() };
        let mut end = (0, rect.left());
        let placed = layout::pack(&widths, edge(0) - rect.left(), rect.width(), ENTRY_GAP, rows);
        for (entry, place) in entries.into_iter().zip(placed) {
            let Some((row, x)) = place else { continue };
            let at = pos2(rect.left() + x, first + row as f32 * layout::LEGEND_ROW);
            let text_at = match entry {
                Entry::Mark(mark) => {
                    self.painter.add(glyph(mark, at + vec2(4.0, 4.0), mark_ink(t, mark)));
                    at.x + 13.0
                }
                Entry::Free => Swatch::Free.paint(self.painter, t, at).right() + 6.0,
                Entry::NotReserved => {
                    Swatch::Fill(t.s0).paint(self.painter, t, at);
                    Swatch::Outline(t.line2).paint(self.painter, t, at).right() + 6.0
                }
            };
            let (from, text) = (pos2(text_at, at.y), entry.text());
            let covered = label::text(self.painter, from, Align2::LEFT_CENTER, text, Type::Caption, t.text2);
            end = (row, covered.right() + ENTRY_GAP);
            match entry {
                Entry::Free => terms.push((covered, Term::Inactive)),
                Entry::NotReserved => terms.push((covered, Term::NotReserved)),
                Entry::Mark(_) => {}
            }
        }
        let (name, term) = match p.key.mode {
            Mode::Occupancy => ("address, lowest at the top", Term::Occupancy),
            Mode::Age => ("age of the oldest block", Term::Age),
            Mode::Block => ("largest block", Term::Block),
            Mode::Hole => ("largest hole of a place", Term::LargestHole),
            Mode::HoleSizes => ("free bytes by hole size, logarithmic shades", Term::Hole),
        };
        terms.push((bar, term));
        let y = first + end.0 as f32 * layout::LEGEND_ROW;
        let room = Rect::from_min_max(pos2(end.1, y - 10.0), pos2(edge(end.0), y + 10.0));
        if room.width() > label::width(self.painter, name, Type::Caption) {
            terms.push((label::text_in(self.painter, room, name, Type::Caption, t.text3), term));
        }
        terms
    }

    /// Draws the largest hole over time and the failed request. Returns the labels that have a glossary entry.
    pub fn strip(&self, cursor: u32) -> Vec<(Rect, Term)> {
        let mut terms = Vec::new();
        let Some(rect) = self.areas.strip else { return terms };
        let (t, p) = (self.tokens, self.picture);
        let top = layout::strip_top(p.largest(), p.request);
        let y = Scale::vertical(0.0, top as f64, rect.y_range());
        let ticks = byte_ticks(0.0, top as f64, 3);
        let mut batch = Batch::new(self.painter);
        ticks.grid_down(&mut batch, t, &y, rect);
        let step = batch.pixel();
        let count = (rect.width() / step).round() as usize;
        let mut cut: Vec<(f32, f32)> = Vec::new();
        let columns: Vec<Option<PixelColumn>> = (0..count)
            .map(|i| {
                let x = rect.left() + (i as f32 + 0.5) * step;
                let column = p.strip.get(p.key.column(self.x.value(x))?)?;
                if column.reserved == 0 {
                    return None;
                }
                if column.largest_hole > top {
                    match cut.last_mut() {
                        Some(open) if x - open.1 < 1.5 * step => open.1 = x,
                        _ => cut.push((x, x)),
                    }
                }
                Some(PixelColumn::level(y.at(column.largest_hole.min(top) as f64)))
            })
            .collect();
        if p.key.axis == self.axis {
            batch.curve(&columns, rect.left(), 1.25, t.text1);
        }
        if let Some(request) = p.request {
            batch.dashed_hline(rect.x_range(), y.at(request as f64), 1.0, DASH_LIMIT, t.red);
        }
        batch.paint(self.painter);
        for (a, b) in cut.iter().filter(|(a, b)| b - a >= 8.0) {
            // An arrow head says that the curve continues above.
            let (x, top) = (f32::midpoint(*a, *b), rect.top());
            let points = vec![pos2(x - 4.0, top), pos2(x, top - 5.0), pos2(x + 4.0, top)];
            self.painter.add(Shape::convex_polygon(points, t.text1, Stroke::NONE));
        }
        let (right, range) = (rect.left() - 6.0, rect.y_range());
        ticks.paint_down(self.painter, t, &y, right, range, UnitAt::Nowhere);
        let name = match (p.request.is_some(), cut.is_empty()) {
            (_, false) => format!("largest hole, {}, up to {}", ticks.unit, Bytes(p.largest())),
            (_, true) => format!("largest hole, {}", ticks.unit),
        };
        // Names go where they cover least of the curve and of the lines.
        let lines: Vec<f32> = p.request.map(|r| y.at(r as f64)).into_iter().collect();
        let width = |text: &str| label::width(self.painter, text, Type::Caption) + 8.0;
        let cursor = self.x_of(cursor);
        let mut taken = None;
        if let Some(request) = p.request {
            let text = format!("the request, {}", Bytes(request));
            let at = y.at(request as f64);
            let beside = [at + 10.0, at - 10.0].into_iter().filter(|y| (rect.top() + 6.0..rect.bottom() - 6.0).contains(y));
            let place = layout::quietest(rect, width(&text), beside, |place| covered_columns(&columns, rect.left(), step, place));
            let from = place.map_or(pos2(rect.left() + 8.0, at - 10.0), |r| r.left_center());
            let covered = paint_chip_in(self.painter, from, Align2::LEFT_CENTER, &text, Type::Caption, t.red, t.s1);
            terms.push((covered, Term::Request));
            taken = Some(covered);
        }
        let is_over = |place: &Rect| taken.is_some_and(|r: Rect| r.expand(2.0).intersects(*place));
        let place_of = |name: &str| {
            let heights = (0..8).map(|i| rect.top() + 9.0 + (rect.height() - 18.0) * i as f32 / 7.0);
            layout::quietest(rect, width(name), heights, |place| {
                let struck = lines.iter().filter(|line| place.y_range().contains(**line)).count() * place.width() as usize;
                let hidden = usize::from(is_over(&place)) * 10_000;
                // The cursor's line runs through all heights.
                let cut = usize::from(place.x_range().contains(cursor)) * 8;
                covered_columns(&columns, rect.left(), step, place) + struck + hidden + cut
            })
        };
        // One name must not hide the other: in a small strip it is short, or left to the tooltip.
        let short = format!("hole, {}", ticks.unit);
        let free = [name, short].into_iter().find_map(|name| Some((place_of(&name).filter(|place| !is_over(place))?, name)));
        if let Some((place, name)) = free {
            let at = place.left_center();
            let covered = paint_chip_in(self.painter, at, Align2::LEFT_CENTER, &name, Type::Caption, t.text2, t.s1);
            terms.push((covered, Term::LargestHole));
        }
        terms
    }

    /// Draws selection, range, ruler, markers and cursor.
    pub fn overlays(&self, shared: &SharedViewState, places: &Places) {
        let t = self.tokens;
        let painter = self.painter.with_clip_rect(self.areas.canvas());
        let through = self.areas.canvas().y_range();
        let mut batch = Batch::new(&painter);
        if let Some((first, last)) = shared.range {
            let ink = Tokens::at(t.text1, 0.5);
            let (from, to) = (self.x_of(first), self.x_of(last));
            batch.rect(self.areas.canvas().across(from, to), Tokens::at(t.accent, 0.13));
            batch.vline(from, through, 1.0, ink);
            batch.vline(to, through, 1.0, ink);
        }
        if let Some(rect) =
            shared.hovered.filter(|h| Some(*h) != shared.selected()).and_then(|item| self.rect_of(item, shared, places))
        {
            batch.outline(rect.intersect(self.areas.map.expand(2.0)), 1.0, Tokens::at(t.text1, 0.6));
        }
        if let Some(rect) = shared.selected().and_then(|item| self.rect_of(item, shared, places)) {
            if rect.width() > 0.0 && rect.intersects(self.areas.map) {
                batch.selection(rect, t.text1, t.s1);
            } else {
                // Outside the window: a mark at the nearer edge.
                let x = if rect.left() > self.areas.x.max { self.areas.x.max - 3.0 } else { self.areas.x.min };
                let y = rect.center().y;
                batch.rect(Rect::from_min_max(pos2(x, y - 5.0), pos2(x + 3.0, y + 5.0)), t.accent);
            }
        }
        if let Some(event) = shared.hover_event {
            batch.vline(self.x_of(event), through, 1.0, Tokens::at(t.text1, 0.4));
        }
        let [a, b] = shared.markers;
        if let Some(a) = a {
            batch.dashed_vline(self.x_of(a), through, 1.0, DASH_MARKER, t.text1);
        }
        for event in b.into_iter().chain([shared.cursor]) {
            batch.vline(self.x_of(event), through, 1.0, t.text1);
        }
        batch.paint(&painter);
    }

    /// Draws the part of an area that is being dragged.
    pub fn choosing(&self, area: Rect, part: Rect) {
        self.painter.with_clip_rect(area).rect_filled(part, 0, Tokens::at(self.tokens.accent, 0.18));
    }

    /// The rectangle of an item in the map, as far as its addresses are on the axis: an allocation or segment through its
    /// lifetime, a hole at the cursor.
    fn rect_of(&self, item: Item, shared: &SharedViewState, places: &Places) -> Option<Rect> {
        let Map::Addresses(map) = &self.picture.map else { return None };
        let (address, size, born, gone) = match item {
            Item::Lifetime(id) => {
                let life = self.data.tables.lifetimes.get(self.data.device(), id)?;
                (life.address, life.block, life.born, life.gone)
            }
            Item::Segment(_) => {
                let life = places.segment.filter(|s| item == Item::Segment(s.address))?;
                (life.address, life.size, life.born, life.gone)
            }
            Item::Hole(_) => {
                let (address, size) = places.hole.filter(|h| item == Item::Hole(h.0))?;
                (address, size, shared.cursor, shared.cursor)
            }
            _ => return None,
        };
        let offset = map.offset_of(address)?;
        let (top, bottom) = (self.y.at(offset as f64), self.y.at((offset + size) as f64));
        let first = if born == NO_EVENT { f32::NEG_INFINITY } else { self.x_of(born) };
        let last = if gone == NO_EVENT { f32::INFINITY } else { self.x_of(gone) };
        // A hole is marked around the cursor's line, wide enough to be seen.
        let (first, last) = if born == gone { (first - 3.0, last + 3.0) } else { (first, last) };
        // Moves edges outside the window just beyond it, so that they are not drawn.
        let (low, high) = (self.areas.x.min - 4.0, self.areas.x.max + 4.0);
        let (from, to) = match (last < low, first > high) {
            (true, _) => (low, low),
            (_, true) => (high, high),
            _ => (first.max(low), last.min(high).max(first.max(low) + 1.0)),
        };
        Some(Rect::from_min_max(pos2(from, top), pos2(to, bottom)))
    }
}

fn mark_ink(t: &Tokens, mark: Mark) -> egui::Color32 {
    match mark {
        Mark::Freed => t.text2,
        Mark::Retry => t.amber,
        Mark::Oom => t.red,
    }
}

const ENTRY_GAP: f32 = 14.0;
/// Space for the swatch before the text of an entry.
const ENTRY_SWATCH: f32 = 16.0;
const LEGEND_ROWS: usize = 3;
/// Distance from the end of the ramp to the name of the largest hole, swatch included.
const HOLE_GAP: f32 = 32.0;

fn ramp_length(width: f32) -> f32 {
    if width < 480.0 { 36.0 } else { 72.0 }
}

/// The legend entries at the left; only what the picture shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Free,
    NotReserved,
    Mark(Mark),
}

impl Entry {
    fn text(self) -> &'static str {
        match self {
            Entry::Free => "free",
            Entry::NotReserved => "not reserved",
            Entry::Mark(mark) => mark_name(mark),
        }
    }
}

fn entries(p: &Picture) -> Vec<Entry> {
    let is_map = matches!(p.map, Map::Addresses(_));
    let marks = [Mark::Oom, Mark::Retry, Mark::Freed].into_iter().filter(|&wanted| p.marks.iter().any(|m| m.1 == wanted));
    let free = (is_map && p.key.mode != Mode::Hole).then_some(Entry::Free);
    let ground = is_map.then_some(Entry::NotReserved);
    free.into_iter().chain(marks.map(Entry::Mark)).chain(ground).collect()
}

/// How many rows a picture's legend needs at a width, up to [`LEGEND_ROWS`].
pub fn legend_rows(painter: &Painter, p: &Picture, width: f32) -> usize {
    let text = |text: &str| label::width(painter, text, Type::Caption);
    let widths: Vec<f32> = entries(p).iter().map(|e| text(e.text()) + ENTRY_SWATCH).collect();
    let hole = if matches!(p.map, Map::Addresses(_)) { text("largest hole") + HOLE_GAP } else { 0.0 };
    let ramp = text(&p.ends.0) + ramp_length(width) + text(&p.ends.1) + 12.0 + 10.0;
    let placed = layout::pack(&widths, width - hole - ramp, width, ENTRY_GAP, LEGEND_ROWS);
    1 + placed.iter().flatten().map(|at| at.0).max().unwrap_or(0)
}

/// The name of a mark, short because a narrow legend has no room for more.
fn mark_name(mark: Mark) -> &'static str {
    match mark {
        Mark::Freed => "segments freed",
        Mark::Retry => "retry",
        Mark::Oom => "OOM",
    }
}

/// The shape of a mark above `foot`: releases point up, failures point down at their line.
fn glyph(mark: Mark, foot: Pos2, ink: egui::Color32) -> Shape {
    let points: &[(f32, f32)] = match mark {
        Mark::Freed => &[(-3.0, 0.0), (0.0, -6.0), (3.0, 0.0)],
        Mark::Retry => &[(-3.5, -3.5), (0.0, -7.0), (3.5, -3.5), (0.0, 0.0)],
        Mark::Oom => &[(-4.0, -8.0), (4.0, -8.0), (0.0, 0.0)],
    };
    Shape::convex_polygon(points.iter().map(|&(x, y)| foot + vec2(x, y)).collect(), ink, Stroke::NONE)
}

/// How many columns of a curve run through a rectangle. The first column is at `left`, each is `step` wide.
fn covered_columns(columns: &[Option<PixelColumn>], left: f32, step: f32, place: Rect) -> usize {
    let (first, last) = (((place.left() - left) / step).max(0.0) as usize, ((place.right() - left) / step).max(0.0) as usize);
    let near = columns.iter().skip(first).take(last.saturating_sub(first)).flatten();
    near.filter(|c| c.top.min(c.last) < place.bottom() && c.bottom.max(c.last) > place.top()).count()
}

/// A short label of a hole size class, which is a power of two: `512 B`, `4 KiB`, `32 MiB`, `1 GiB`.
fn short(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 => format!("{}{NBSP}GiB", b >> 30),
        b if b >= 1 << 20 => format!("{}{NBSP}MiB", b >> 20),
        b if b >= 1 << 10 => format!("{}{NBSP}KiB", b >> 10),
        b => format!("{b}{NBSP}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_short_names() {
        assert_eq!([512, 2048, 1 << 20, 1 << 31].map(|b| short(b).replace(NBSP, " ")), ["512 B", "2 KiB", "1 MiB", "2 GiB"]);
    }
}
