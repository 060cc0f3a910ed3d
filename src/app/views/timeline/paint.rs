//! Paints the timeline's tracks as meshes and text. Decisions are made in `layout` and `picture`.

use egui::{Align2, Painter, Rangef, Rect, pos2, vec2};

use super::layout::{self, CapAt, Track, Tracks};
use super::marks::Cap;
use super::picture::{Window, WindowPicture};
use super::place::{beside, free_place};
use crate::app::data::device::DeviceData;
use crate::app::state::{Axis, shared};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{
    Batch, Cut, DASH_LIMIT, PixelColumn, Scale, Term, Ticks, UnitAt, byte_ticks, chip, event_ticks, label, most_across,
    most_down, time_ticks,
};
use vramscope_core::tables::Cell;
use vramscope_core::units::{Bytes, NBSP};

/// What all tracks need for painting.
pub(super) struct Canvas<'a> {
    pub painter: &'a Painter,
    pub tokens: &'a Tokens,
    pub data: &'a DeviceData,
    pub pane: Rect,
    pub tracks: Tracks,
    pub window: Window,
    /// Maps the axis to the screen.
    pub x: Scale,
    /// Height of the pointer's readout in the gutter.
    pub pointer_y: Option<f32>,
}

impl Canvas<'_> {
    /// A painter clipped to a track.
    pub(super) fn within(&self, rect: Rect) -> Painter {
        self.painter.with_clip_rect(rect.intersect(self.painter.clip_rect()))
    }

    /// The place of an event on the axis.
    pub(super) fn position(&self, event: u32) -> f64 {
        shared::position(self.data.device(), self.window.axis, event)
    }

    /// Screen x of an event, also outside the plots.
    pub(super) fn at(&self, event: u32) -> f32 {
        self.x.at(self.position(event))
    }

    pub(super) fn name(&self, rect: Rect, name: &str, below: &str) {
        let area = rect.lines(0.0, 16.0).across(self.pane.left() + 12.0, self.tracks.x.min - 6.0);
        label::text_in(self.painter, area, name, Type::Caption, self.tokens.text2);
        if !below.is_empty() && rect.height() >= 32.0 {
            label::text_in(self.painter, area.translate(vec2(0.0, 14.0)), below, Type::Caption, self.tokens.text3);
        }
    }

    /// Draws a line over the whole pane below a track.
    fn rule(&self, y: f32) {
        let mut batch = Batch::new(self.painter);
        batch.hline(self.pane.x_range(), y, 1.0, self.tokens.line);
        batch.paint(self.painter);
    }

    /// For each pixel column of the window, the column of a picture to show.
    pub(super) fn sources(&self, have: &Window) -> Vec<Option<usize>> {
        if *have == self.window {
            return (0..self.window.columns).map(Some).collect();
        }
        if have.axis != self.window.axis {
            return vec![None; self.window.columns];
        }
        (0..self.window.columns).map(|i| have.column(self.window.at(i as f64 + 0.5))).collect()
    }

    pub fn overview(&self, rect: Rect, picture: Option<&WindowPicture>, cap: Option<Cap>) {
        let t = self.tokens;
        let row = rect.with_min_y(rect.center().y - 8.0);
        self.name(row, "Overview", "");
        let painter = self.within(rect.expand2(vec2(6.0, 2.0)));
        let (first, last) = shared::domain(self.data.device(), self.window.axis);
        let x = Scale::horizontal(first, last, rect.x_range());
        let mut batch = Batch::new(&painter);
        if let Some(p) = picture.filter(|p| p.window.axis == self.window.axis) {
            let top = layout::strata_top(&p.reserved, &p.active, cap.map(|c| c.bytes));
            let y = Scale::vertical(0.0, top, rect.y_range());
            let profile = |cells: &[Cell]| -> Vec<_> { cells.iter().map(|c| Some(PixelColumn::of(c, &y))).collect() };
            batch.fill_under(&profile(&p.reserved), rect.left(), rect.bottom(), t.s4);
            batch.fill_under(&profile(&p.active), rect.left(), rect.bottom(), t.other);
            if let Some(cells) = &p.matching {
                batch.fill_under(&profile(cells), rect.left(), rect.bottom(), t.accent);
            }
            if let Some(cap) = cap.filter(|c| (c.bytes as f64) < top) {
                batch.dashed_hline(rect.x_range(), y.at(cap.bytes as f64), 1.0, (2.0, 3.0), t.red);
            }
        }
        for &oom in &self.data.ooms {
            batch.vline(x.at(self.position(oom)), rect.y_range(), 1.0, t.red);
        }
        let (left, right) = (x.at(self.window.from), x.at(self.window.to).max(x.at(self.window.from) + 2.0));
        let veil = Tokens::at(t.s1, 0.62);
        batch.rect(rect.with_max_x(left), veil);
        batch.rect(rect.with_min_x(right), veil);
        batch.outline(rect.across(left, right), 1.0, t.accent);
        batch.paint(&painter);
        for edge in [left, right] {
            let handle = Rect::from_center_size(rect.middle(edge), vec2(5.0, 14.0));
            painter.rect_filled(handle, 1, t.accent);
        }
    }

    fn ticks(&self, width: f32) -> Ticks {
        let most = most_across(width).min((width / 96.0).max(2.0) as usize);
        match self.window.axis {
            Axis::Event => event_ticks(self.window.from, self.window.to, most),
            Axis::Time => time_ticks(self.window.from, self.window.to, most),
        }
    }

    /// A time as text, ten times as precise as the ticks.
    pub(super) fn time_text(&self, us: f64) -> String {
        let step = self.ticks(self.tracks.x.span()).step / 10.0;
        time_label(us.round() as i64, (step as i64).max(1), self.window.to.abs() as i64)
    }

    /// Draws ticks, labels and grid lines. Labels avoid `taken`.
    pub fn axis(&self, rect: Rect, taken: &[Rect]) {
        let t = self.tokens;
        let device = self.data.device();
        let ticks = self.ticks(rect.width());
        let strip = rect.with_min_y(rect.bottom() - 20.0);
        let grid = Rect::from_min_max(pos2(rect.left(), rect.bottom()), self.tracks.strata.right_bottom());
        let mut batch = Batch::new(self.painter);
        for (value, _) in &ticks.ticks {
            let x = self.x.at(*value);
            for track in [self.tracks.open(Track::Curves), Some(self.tracks.strata)].into_iter().flatten() {
                batch.vline(x, track.intersect(grid).y_range(), 1.0, t.grid);
            }
        }
        batch.paint(self.painter);
        let area = rect.across(self.tracks.x.min - 30.0, self.pane.right());
        ticks.paint_across_around(&self.within(area), t, &self.x, strip, UnitAt::First, taken);
        let name = if self.window.axis == Axis::Event { "Event" } else { "Time" };
        self.name(strip.with_min_y(strip.top() - 1.0), name, "");
        if rect.height() > 20.0 && device.events.has_time {
            let row = rect.with_max_y(strip.top() + 2.0);
            self.name(row, "Time", "");
            let at = |value: f64| self.data.since_start(shared::event_at(device, Axis::Event, value));
            let times: Vec<(f32, i64)> = ticks.ticks.iter().filter_map(|(v, _)| Some((self.x.at(*v), at(*v)?.0))).collect();
            // Ticks with the same time share a label, since the last tick may lie beyond the last event.
            let gap = times.windows(2).map(|w| w[1].1 - w[0].1).filter(|gap| *gap > 0).min().unwrap_or(1);
            let is_again = |i: usize| i > 0 && times[i - 1].1 == times[i].1;
            let far = times.iter().map(|t| t.1.abs()).max().unwrap_or(0);
            let mut free_from = f32::NEG_INFINITY;
            for (i, &(x, us)) in times.iter().enumerate() {
                if is_again(i) {
                    continue;
                }
                let galley = self.painter.layout_no_wrap(time_label(us, gap, far), Type::Mono.font(), t.text3);
                let left = x - galley.size().x / 2.0;
                let place = Rect::from_min_size(pos2(left, row.center().y - 6.0), vec2(galley.size().x, 12.0));
                let is_taken = taken.iter().any(|r| r.expand(2.0).intersects(place));
                if left < free_from || left < area.left() || left + galley.size().x > area.right() || is_taken {
                    continue;
                }
                free_from = left + galley.size().x + 8.0;
                label::lay(self.painter, row.middle(left.round()), galley, t.text3);
            }
        }
    }

    /// Draws labels and grid of a track in bytes.
    pub(super) fn byte_axis(&self, rect: Rect, y: &Scale, name: &str) {
        // The name replaces the topmost label, so a low track starts with one more.
        let most = most_down(rect.height()).clamp(if rect.height() >= 48.0 { 3 } else { 2 }, 8);
        let ticks = byte_ticks(y.start, y.end, most);
        let mut batch = Batch::new(self.painter);
        ticks.grid_down(&mut batch, self.tokens, y, rect);
        batch.paint(self.painter);
        // No label beside a name that would touch it, nor beside the unit in a narrow gutter.
        let gutter = rect.left() - self.pane.left();
        let is_wide = 12.0 + label::width(self.painter, name, Type::Caption) + 4.0 > gutter - 8.0 - 38.0;
        // The name is 16 high, the unit below it 14; a label reaches 6 above its tick.
        let named = if gutter < 100.0 { 36.0 } else { 22.0 * f32::from(u8::from(is_wide)) };
        // A label needs half its height below its tick.
        let labels = Rangef::new(rect.top() + named, rect.bottom().min(self.pane.bottom() - 7.0));
        // No label under the pointer's readout.
        let mut ticks = ticks;
        ticks.ticks.retain(|(value, _)| self.pointer_y.is_none_or(|p| (y.at(*value) - p).abs() >= 15.0));
        ticks.paint_down(self.painter, self.tokens, y, rect.left() - 8.0, labels, UnitAt::Nowhere);
        self.name(rect, name, ticks.unit);
    }

    /// Draws reserved, active and requested, hatches the free memory between them, and draws the limit. Returns the edges of the
    /// curves.
    pub fn curves(&self, rect: Rect, y: &Scale, picture: Option<&WindowPicture>, cap: Option<Cap>) -> Edges {
        let t = self.tokens;
        let Some(picture) = picture else {
            self.name(rect, "Curves", "");
            self.not_yet(rect, "Drawing the curves…");
            return Edges::default();
        };
        self.byte_axis(rect, y, "Curves");
        let painter = self.within(rect);
        let sources = self.sources(&picture.window);
        let profile =
            |cells: &[Cell]| -> Vec<_> { sources.iter().map(|s| Some(PixelColumn::of(cells.get((*s)?)?, y))).collect() };
        let (reserved, active, requested) = (profile(&picture.reserved), profile(&picture.active), profile(&picture.requested));
        // A query's curve is in the accent, which is blue too, so the other curves turn grey.
        let blue = if picture.matching.is_some() { t.text3 } else { t.slot(0) };
        let mut batch = Batch::new(&painter).hatch_origin(self.pane.min);
        // An area says how much there is from zero on.
        let is_area = y.value(rect.bottom()) <= 0.0;
        if is_area {
            batch.fill_under(&active, rect.left(), rect.bottom(), Tokens::at(blue, 0.18));
        }
        let free: Vec<(f32, f32)> = reserved
            .iter()
            .zip(&active)
            .map(|(r, a)| match (r, a) {
                (Some(r), Some(a)) => (r.bottom.max(rect.top()), a.top.min(rect.bottom())),
                _ => (rect.top(), rect.top()),
            })
            .collect();
        if picture.has_reserved {
            batch.hatch_between(&free, rect.left(), t.hatch_large);
        }
        batch.curve(&requested, rect.left(), 1.0, Tokens::over(blue, t.s1, 0.55));
        batch.curve(&active, rect.left(), 1.25, blue);
        if picture.has_reserved {
            batch.curve(&reserved, rect.left(), 1.5, t.text1);
        }
        if let Some(cells) = &picture.matching {
            let matching = profile(cells);
            if is_area {
                batch.fill_under(&matching, rect.left(), rect.bottom(), Tokens::at(t.accent, 0.3));
            }
            batch.curve(&matching, rect.left(), 1.5, t.accent);
        }
        self.cap_line(&mut batch, rect, y, cap);
        batch.paint(&painter);
        let lower_edge = |c: &Option<PixelColumn>| c.map_or(rect.bottom(), |c| c.bottom.clamp(rect.top(), rect.bottom()));
        let requested = if picture.requested.is_empty() { Vec::new() } else { requested.iter().map(lower_edge).collect() };
        Edges { free, requested, has_reserved: picture.has_reserved }
    }

    /// Marks the peak of the allocations that match the query, with its bytes. Returns the covered rectangle.
    pub fn matching_peak(&self, rect: Rect, y: &Scale, (bytes, event): (u64, u32), taken: &[Rect]) -> Option<Rect> {
        let x = self.at(event);
        if bytes == 0 || !rect.x_range().contains(x) {
            return None;
        }
        let t = self.tokens;
        let painter = self.within(rect.expand(4.0));
        let at = pos2(x, y.at(bytes as f64).clamp(rect.top(), rect.bottom()));
        painter.circle_filled(at, 3.0, t.accent);
        let text = format!("peak of the query {}", Bytes(bytes));
        let wanted = chip::chip_rect(&painter, at + vec2(8.0, -10.0), Align2::LEFT_CENTER, &text, Type::Caption);
        let wanted = wanted.translate(vec2(0.0, (rect.top() - wanted.top()).max(0.0)));
        let place = beside(wanted, taken, rect.x_range())?;
        chip::paint_chip_in(&painter, place.center(), Align2::CENTER_CENTER, &text, Type::Caption, t.accent, t.s1);
        Some(place)
    }

    fn cap_line(&self, batch: &mut Batch, rect: Rect, y: &Scale, cap: Option<Cap>) {
        if let Some(cap) = cap
            && (y.start..=y.end).contains(&(cap.bytes as f64))
        {
            batch.dashed_hline(rect.x_range(), y.at(cap.bytes as f64), 1.0, DASH_LIMIT, self.tokens.red);
        }
    }

    /// Names the limit at the left of its line where there is room. Returns the covered rectangle.
    pub fn cap_label(&self, rect: Rect, y: &Scale, cap: Cap, edges: &Edges, taken: &[Rect]) -> Option<Rect> {
        let t = self.tokens;
        let (text, ink, centre) = if (y.start..=y.end).contains(&(cap.bytes as f64)) {
            (cap.text(), t.red, y.at(cap.bytes as f64).max(rect.top() + 8.0))
        } else if layout::cap_at(cap.bytes, y.end as u64) == CapAt::Above {
            (format!("{}, above this range", cap.text()), t.text3, rect.top() + 8.0)
        } else {
            return None;
        };
        let painter = self.within(rect);
        let at = pos2(rect.left() + 6.0, centre);
        let wanted = chip::chip_rect(&painter, at, Align2::LEFT_CENTER, &text, Type::Caption);
        // The label of a limit above the view avoids the curves; the label of a visible line sits on the line.
        let ppp = painter.pixels_per_point();
        let tops: Vec<f32> = edges.free.iter().map(|e| e.0).collect();
        let ceiling = vec![rect.top(); tops.len()];
        let columns = (wanted.width() * ppp) as usize;
        let above = |at: usize, _| wanted.translate(vec2(at as f32 / ppp, 0.0));
        let is_note = !(y.start..=y.end).contains(&(cap.bytes as f64));
        let place = if is_note {
            let (bottoms, floor): (Vec<f32>, Vec<f32>) = edges.free.iter().map(|e| (e.1, rect.bottom())).unzip();
            let within = |at: usize, middle: f32| {
                Align2::LEFT_CENTER.anchor_size(pos2(rect.left() + at as f32 / ppp + 6.0, middle), wanted.size())
            };
            let least = (0, columns + 12, 20.0);
            free_place((&ceiling, &tops), least, taken, above)
                .or_else(|| free_place((&tops, &bottoms), least, taken, within))
                .or_else(|| free_place((&bottoms, &floor), least, taken, within))?
        } else {
            beside(wanted, taken, rect.x_range())?
        };
        chip::paint_chip_in(&painter, place.center(), Align2::CENTER_CENTER, &text, Type::Caption, ink, t.s1);
        Some(place)
    }

    /// Names the curves where there is room. Returns the rectangle of each name.
    pub fn curve_names(&self, rect: Rect, edges: &Edges, taken: &[Rect]) -> Vec<(Rect, Term)> {
        let t = self.tokens;
        let painter = self.within(rect);
        let ppp = painter.pixels_per_point();
        let (tops, bottoms): (Vec<f32>, Vec<f32>) = edges.free.iter().copied().unzip();
        let floor = vec![rect.bottom(); bottoms.len()];
        let ceiling = vec![rect.top(); tops.len()];
        let mut taken = taken.to_vec();
        let mut named = Vec::new();
        let n = tops.len();
        let start = (8.0 * ppp) as usize;
        let blue = Tokens::over(t.slot(0), t.text2, 0.5);
        // The names are right below their lines, and "free" between reserved and active. When little is free, "reserved" goes
        // above its line or into the area below.
        let wanted = [
            (Term::Reserved, "reserved", t.text1, &tops, &bottoms, start),
            (Term::Reserved, "reserved", t.text1, &ceiling, &tops, start),
            (Term::Reserved, "reserved", t.text1, &tops, &floor, start),
            (Term::Hole, "free inside reserved", t.text2, &tops, &bottoms, n / 3),
            (Term::Active, "active", t.slot(0), &bottoms, &floor, n / 3),
            (Term::Requested, "requested", blue, &edges.requested, &floor, n / 2),
        ];
        for (term, text, ink, above, below, from) in wanted {
            let is_there = named.iter().any(|(_, t)| *t == term) || (term == Term::Reserved && !edges.has_reserved);
            if is_there || above.len() != below.len() {
                continue;
            }
            let size = chip::chip_rect(&painter, rect.center(), Align2::LEFT_CENTER, text, Type::Caption).size();
            let columns = (size.x * ppp) as usize;
            let is_over = std::ptr::eq(above, &ceiling);
            let rect_of = |at: usize, middle: f32| {
                let under = || above[at..at + columns].iter().copied().fold(f32::NEG_INFINITY, f32::max) + 11.0;
                let over = || below[at..at + columns].iter().copied().fold(f32::INFINITY, f32::min) - 11.0;
                let y = match term {
                    Term::Hole => middle,
                    _ if is_over => over(),
                    _ => under().min(rect.bottom() - 9.0),
                };
                Align2::LEFT_CENTER.anchor_size(pos2(rect.left() + at as f32 / ppp, y), size)
            };
            if let Some(place) = free_place((above, below), (from, columns, 20.0), &taken, rect_of) {
                let fill = Tokens::at(t.s1, 0.85);
                chip::paint_chip_in(&painter, place.center(), Align2::CENTER_CENTER, text, Type::Caption, ink, fill);
                taken.push(place);
                named.push((place, term));
            }
        }
        named
    }

    pub fn strata_back(&self, rect: Rect, y: &Scale, picture: Option<&WindowPicture>) {
        if picture.is_some() {
            self.byte_axis(rect, y, "Live blocks");
        } else {
            self.name(rect, "Live blocks", "");
            self.not_yet(rect, "Stacking the live blocks…");
        }
    }

    /// Text in a track whose picture is still being computed. An axis without values would look like a result.
    fn not_yet(&self, rect: Rect, words: &str) {
        label::text(self.painter, rect.center(), Align2::CENTER_CENTER, words, Type::Body, self.tokens.text3);
    }

    /// Draws reserved bytes and the limit over the strata.
    pub fn strata_front(&self, rect: Rect, y: &Scale, picture: Option<&WindowPicture>, cap: Option<Cap>) {
        let painter = self.within(rect);
        let mut batch = Batch::new(&painter);
        if let Some(picture) = picture.filter(|p| p.has_reserved) {
            let sources = self.sources(&picture.window);
            let reserved: Vec<_> = sources.iter().map(|s| Some(PixelColumn::of(picture.reserved.get((*s)?)?, y))).collect();
            batch.curve(&reserved, rect.left(), 1.0, self.tokens.text1);
        }
        self.cap_line(&mut batch, rect, y, cap);
        batch.hline(rect.x_range(), rect.bottom(), 1.0, self.tokens.line2);
        batch.paint(&painter);
    }

    pub fn rules(&self) {
        if let Some(o) = self.tracks.open(Track::Overview) {
            self.rule(self.tracks.axis.map_or(o.bottom() + 6.0, |axis| axis.top()) - 0.5);
        }
        if let Some(c) = self.tracks.open(Track::Curves) {
            self.rule(c.bottom() + 4.5);
        }
        if let Some(l) = self.tracks.legend {
            self.rule(l.top() - 0.5);
        }
        if let Some(lane) = self.tracks.open(Track::Bands) {
            self.rule(lane.top() - 4.0);
        }
        if let Some(lane) = self.tracks.open(Track::Steps).or(self.tracks.open(Track::Phases)).or(self.tracks.open(Track::Device))
        {
            self.rule(lane.top() - 4.0);
        }
    }
}

/// Screen positions of the curves by pixel column.
#[derive(Clone, Debug, Default)]
pub(super) struct Edges {
    /// From reserved down to active.
    pub free: Vec<(f32, f32)>,
    /// Lower edge of the line of requested bytes; empty when the source does not record them.
    pub requested: Vec<f32>,
    pub has_reserved: bool,
}

/// A time with enough decimals to tell it from one `gap` microseconds away, in a unit that suits `far`, so that the labels of a
/// row share a unit.
pub(super) fn time_label(us: i64, gap: i64, far: i64) -> String {
    let gap_digits = gap.max(1).ilog10() as usize;
    let far = far.abs().max(us.abs());
    if far >= 120_000_000 && gap >= 1_000_000 {
        let (sign, seconds) = (if us < 0 { "-" } else { "" }, (us.unsigned_abs() + 500_000) / 1_000_000);
        let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        return if far >= 3_600_000_000 {
            format!("{sign}{hours}:{minutes:02}:{seconds:02}{NBSP}h")
        } else {
            format!("{sign}{minutes}:{seconds:02}{NBSP}min")
        };
    }
    let text = if far >= 1_000_000 {
        format!("{:.*}{NBSP}s", 6usize.saturating_sub(gap_digits), us as f64 / 1e6)
    } else if far >= 1_000 {
        format!("{:.*}{NBSP}ms", 3usize.saturating_sub(gap_digits), us as f64 / 1e3)
    } else {
        format!("{us}{NBSP}µs")
    };
    // A value that rounds to zero gets no sign.
    match text.strip_prefix('-') {
        Some(plain) if !plain.contains(|c: char| ('1'..='9').contains(&c)) => plain.to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_decimals_that_tell_neighbours_apart() {
        let plain = |us, gap| time_label(us, gap, us).replace(NBSP, " ");
        assert_eq!(plain(104_214, 10_000), "104 ms");
        assert_eq!(plain(104_214, 50), "104.21 ms");
        assert_eq!(plain(5_104_214, 50), "5.10421 s");
        assert_eq!(plain(5_104_214, 2_000_000), "5 s");
        assert_eq!(plain(14, 2), "14 µs");
        assert_eq!(plain(0, 1_000_000), "0 µs");
        assert_eq!(time_label(-400, 10_000, 104_214).replace(NBSP, " "), "0 ms");
        assert_eq!(plain(-1_400, 10_000), "-1 ms");
        assert_eq!(plain(600_000_000, 60_000_000), "10:00 min");
        let row: Vec<String> =
            [0, 113_000_000, 140_000_000].map(|us| time_label(us, 27_000_000, 140_000_000).replace(NBSP, " ")).to_vec();
        assert_eq!(row, ["0:00 min", "1:53 min", "2:20 min"], "one row, one unit");
        assert_eq!(time_label(0, 200, 5_000_000).replace(NBSP, " "), "0.0000 s");
    }
}
