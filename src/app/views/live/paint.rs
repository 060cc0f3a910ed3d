//! Paints the bar of the card and the bands over time.

use egui::{Align2, Color32, Rangef, Rect, Ui, pos2, vec2};

use super::layout::{Band, MarkPlace, Peaks, columns, mark_places, sample_at, top_of_axis};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{
    Batch, Cut, DASH_LIMIT, Scale, UnitAt, byte_ticks, label, most_across, most_down, paint_chip, spread, time_ticks,
};
use vramscope_core::model::{Bands, DeviceRecording, LiveTrack, MarkKind};
use vramscope_core::units::{Bytes, NBSP, SizeColumn};

/// The colour of a band; `None` means hatched, for memory that can be given back.
pub(in crate::app::views) fn colour(band: Band, t: &Tokens) -> Option<Color32> {
    match band {
        Band::Driver => Some(t.driver),
        Band::Others => Some(t.other),
        Band::Unattributed => Some(t.text3),
        // A paler form of the colour of `outside`, because it contains that and more.
        Band::Unsplit => Some(Tokens::over(t.slot(1), t.s1, 0.55)),
        Band::Outside => Some(t.slot(1)),
        Band::Allocated => Some(t.slot(0)),
        Band::Cached => None,
    }
}

/// The whole card: bands from the left, free memory at the right.
pub(super) fn device_bar(ui: &Ui, t: &Tokens, rect: Rect, bands: &Bands, capacity: u64, peak: Option<u64>) {
    let p = ui.painter();
    let free = format!("{} free", Bytes(bands.free));
    let mut batch = Batch::new(p).hatch_origin(rect.min);
    let x = Scale::horizontal(0.0, capacity.max(1) as f64, rect.x_range());
    let mut at = 0u64;
    for band in Band::ALL {
        let bytes = band.bytes(bands).min(bands.used() - at);
        if bytes == 0 {
            continue;
        }
        let part = rect.across(x.at(at as f64), x.at((at + bytes) as f64));
        match colour(band, t) {
            Some(c) => batch.rect(part, c),
            None => batch.hole(part, t.s1, t.hatch, t.line2),
        }
        at += bytes;
    }
    batch.outline(rect, 1.0, t.line2);
    // A mark at the highest use, when it is higher than the present use.
    let peak = peak.map(|p| x.at(p as f64)).filter(|p| *p > x.at(at as f64) + 2.0);
    if let Some(peak) = peak {
        let words = label::width(p, &free, Type::Body) + 14.0;
        if peak > rect.right() - 10.0 - words {
            // Only two ticks, because the text is between them.
            batch.vline(peak, Rangef::new(rect.top(), rect.top() + 5.0), 1.0, t.text2);
            batch.vline(peak, Rangef::new(rect.bottom() - 5.0, rect.bottom()), 1.0, t.text2);
        } else {
            batch.vline(peak, rect.y_range(), 1.0, t.text2);
        }
    }
    batch.paint(p);
    let share = bands.used() as f64 / capacity.max(1) as f64 * 100.0;
    let used = format!("{} used, {share:.1}{NBSP}%", Bytes(bands.used()));
    let width = label::width(p, &used, Type::Strong);
    // Keeps the text off the line of the peak.
    let end = x.at(at as f64);
    let end = peak.filter(|p| *p < end + width + 16.0).unwrap_or(end);
    let free_width = label::width(p, &free, Type::Body);
    // Beside the bands when there is room, or on a chip inside them when the card is full.
    if end + 12.0 + width + 24.0 + free_width < rect.right() {
        label::text(p, rect.middle(end + 10.0), Align2::LEFT_CENTER, &used, Type::Strong, t.text1);
        label::text(p, rect.middle(rect.right() - 10.0), Align2::RIGHT_CENTER, &free, Type::Body, t.text2);
    } else {
        let text = format!("{used}, {free}");
        paint_chip(p, t, rect.middle(rect.left() + 10.0), Align2::LEFT_CENTER, &text);
    }
}

pub(super) struct Plot {
    pub area: Rect,
    pub x: Scale,
    pub y: Scale,
    /// The time at zero of the axis, µs since the epoch.
    pub zero_us: i64,
}

impl Plot {
    /// A window in µs since the first sample. Its height fits the samples in it.
    pub fn of(area: Rect, (from, to): (f64, f64), device: &DeviceRecording, peaks: &Peaks) -> Self {
        let samples = &device.samples;
        let zero_us = samples.first().map_or(0, |s| s.time_us);
        let start = sample_at(samples, zero_us + from as i64).unwrap_or(0);
        let end = samples.partition_point(|s| s.time_us <= zero_us + to as i64).max(start + 1).min(samples.len());
        let highest = samples[peaks.of(samples, start, end)].used.unwrap_or(0);
        let top = top_of_axis(highest, device.capacity.unwrap_or(0)) as f64;
        let (x, y) = (Scale::horizontal(from, to, area.x_range()), Scale::vertical(0.0, top, area.y_range()));
        Plot { area, x, y, zero_us }
    }

    pub fn x_of(&self, time_us: i64) -> f32 {
        self.x.at((time_us - self.zero_us) as f64)
    }

    pub fn time_at(&self, x: f32) -> i64 {
        self.zero_us + self.x.value(x) as i64
    }
}

/// The widest part in which a band has room for its name.
struct Room {
    now: Rect,
    widest: Rect,
}

impl Default for Room {
    fn default() -> Self {
        Room { now: Rect::NOTHING, widest: Rect::NOTHING }
    }
}

impl Room {
    const LEAST: f32 = 16.0;

    /// Adds the band's part of the next columns.
    fn add(&mut self, part: Rect) {
        let inside = self.now.y_range().intersection(part.y_range());
        let goes_on = self.now.is_positive() && inside.span() >= Self::LEAST;
        self.now = if goes_on { Rect::from_x_y_ranges(self.now.left()..=part.right(), inside) } else { part };
        if self.now.height() >= Self::LEAST && self.now.width() > self.widest.width().max(0.0) {
            self.widest = self.now;
        }
    }
}

/// The name of a band inside the chart: where it goes, and its colour.
pub(super) struct Name {
    at: Rect,
    text: &'static str,
    ink: Color32,
}

/// Draws the names, except those that the chips of the cursor would touch.
pub(super) fn names(ui: &Ui, names: &[Name], chips: &[Rect]) {
    for name in names.iter().filter(|name| chips.iter().all(|chip| !chip.intersects(name.at))) {
        label::text(ui.painter(), name.at.center(), Align2::CENTER_CENTER, name.text, Type::Caption, name.ink);
    }
}

/// Draws the bands over time, with grid, axes and the line of total use. Returns the names of bands to draw over them.
pub(super) fn chart(ui: &Ui, t: &Tokens, plot: &Plot, device: &DeviceRecording, track: &LiveTrack, peaks: &Peaks) -> Vec<Name> {
    let p = ui.painter().with_clip_rect(plot.area.expand2(vec2(110.0, 60.0)).intersect(ui.clip_rect()));
    let capacity = device.capacity.unwrap_or(0);
    let mut batch = Batch::new(&p).hatch_origin(plot.area.min);
    let bytes = byte_ticks(0.0, plot.y.end, most_down(plot.area.height()).min(8));
    bytes.grid_down(&mut batch, t, &plot.y, plot.area);
    let pixel = batch.pixel();
    let n = batch.columns(plot.area.width());
    let window = (plot.zero_us as f64 + plot.x.start, plot.zero_us as f64 + plot.x.end);
    let shown = columns(&device.samples, peaks, &track.gaps, window, n);
    let mut outline: Vec<(f32, f32, f32)> = Vec::new();
    let mut rooms = Band::ALL.map(|_| Room::default());
    let mut i = 0;
    while i < n {
        let Some(sample) = shown[i] else {
            i += 1;
            continue;
        };
        // Equal neighbouring columns become one rectangle.
        let bands = device.samples[sample].bands(capacity);
        let mut end = i + 1;
        while end < n && shown[end].is_some_and(|s| s == sample || device.samples[s].bands(capacity) == bands) {
            end += 1;
        }
        let (left, right) = (plot.area.left() + i as f32 * pixel, plot.area.left() + end as f32 * pixel);
        if let Some(bands) = bands {
            let (mut at, used) = (0u64, bands.used());
            for (band, room) in Band::ALL.into_iter().zip(&mut rooms) {
                // Bytes that two bands both count are drawn once.
                let bytes = band.bytes(&bands).min(used - at);
                let top = plot.y.at((at + bytes) as f64).max(plot.area.top());
                let part = Rect::from_x_y_ranges(left..=right, top..=plot.y.at(at as f64));
                room.add(part);
                if bytes == 0 {
                    continue;
                }
                match colour(band, t) {
                    Some(c) => batch.rect(part, c),
                    None => batch.hatch(part, t.hatch_large),
                }
                at += bytes;
            }
            outline.push((left, right, plot.y.at(at as f64).max(plot.area.top())));
        }
        i = end;
    }
    for (k, &(left, right, y)) in outline.iter().enumerate() {
        batch.hline(Rangef::new(left, right), y, 1.0, t.text1);
        if let Some(&(next, _, other)) = outline.get(k + 1).filter(|o| (o.0 - right).abs() < pixel) {
            batch.vline(next, Rangef::new(y.min(other), y.max(other)), 1.0, t.text1);
        }
    }
    batch.hline(plot.area.x_range(), plot.area.bottom(), 1.0, t.line);
    batch.paint(&p);
    let last = shown.iter().rev().find_map(|s| device.samples[(*s)?].bands(capacity)).unwrap_or_default();
    // Bands that exist at the end are named beside the chart.
    let mut names = Vec::new();
    for (band, room) in Band::ALL.into_iter().zip(&rooms).filter(|(band, _)| band.bytes(&last) == 0) {
        let (place, width) = (room.widest, label::width(&p, band.name(), Type::Caption));
        if width + 12.0 < place.width() {
            let at = Rect::from_center_size(place.center(), vec2(width, Room::LEAST));
            names.push(Name { at, text: band.name(), ink: colour(band, t).map_or(t.text2, Tokens::ink_on) });
        }
    }
    let gutter = Rangef::new(plot.area.top() - 6.0, plot.area.bottom() + 2.0);
    bytes.paint_down(&p, t, &plot.y, plot.area.left() - 8.0, gutter, UnitAt::Nowhere);
    label::text(
        &p,
        pos2(plot.area.left() - 8.0, plot.area.top() - 14.0),
        Align2::RIGHT_CENTER,
        bytes.unit,
        Type::Caption,
        t.text3,
    );
    let strip = Rect::from_min_size(plot.area.left_bottom() + vec2(-20.0, 2.0), vec2(plot.area.width() + 50.0, 20.0));
    let times = time_ticks(plot.x.start, plot.x.end, most_across(plot.area.width()));
    times.label_across(&p, t, &plot.x, strip);
    names
}

/// Draws the use at which less than `limit` is free, when it is in the visible range.
pub(super) fn alarm_line(ui: &Ui, t: &Tokens, plot: &Plot, capacity: u64, limit: u64) {
    let Some(level) = capacity.checked_sub(limit).map(|l| l as f64).filter(|l| *l <= plot.y.end) else { return };
    let p = ui.painter();
    let y = plot.y.at(level);
    let mut batch = Batch::new(p);
    batch.dashed_hline(plot.area.x_range(), y, 1.0, DASH_LIMIT, t.amber);
    batch.paint(p);
    let text = format!("less than {} free above this line", Bytes(limit));
    let at = pos2(plot.area.left() + 8.0, (y + 11.0).min(plot.area.bottom() - 10.0));
    paint_chip(p, t, at, Align2::LEFT_CENTER, &text);
}

/// Draws lines of marks, and their labels in two rows above the plot, up to `right`. Returns their positions.
pub(super) fn marks(ui: &Ui, t: &Tokens, plot: &Plot, track: &LiveTrack, right: f32) -> Vec<MarkPlace> {
    let p = ui.painter();
    let range = (plot.area.left(), plot.area.right(), right);
    let width = |text: &str| label::width(p, text, Type::Caption).min(180.0);
    let places = mark_places(&track.marks, |us| plot.x_of(us), range, width);
    let mut batch = Batch::new(p);
    let ink = |mark: usize, other: Color32| match track.marks[mark].kind {
        MarkKind::OutOfMemory => t.red,
        MarkKind::Alarm => t.amber,
        _ => other,
    };
    for place in &places {
        let top = place.row.map_or(plot.area.top(), |r| plot.area.top() - 38.0 + r as f32 * 17.0);
        let ink = ink(place.mark, Tokens::at(t.text3, 0.7));
        batch.vline(place.x, Rangef::new(top, plot.area.bottom()), 1.0, ink);
    }
    batch.paint(p);
    for place in &places {
        let Some(row) = place.row else { continue };
        let mark = &track.marks[place.mark];
        let y = plot.area.top() - 31.0 + row as f32 * 17.0;
        let ink = ink(place.mark, t.text2);
        let galley = label::elided(p, &mark.text, Type::Caption, ink, 180.0);
        let x = if place.is_left { place.x - 5.0 - galley.size().x } else { place.x + 5.0 };
        // Lines of marks with labels in the upper row cross here, so the text gets a background.
        let under = Align2::LEFT_CENTER.anchor_size(pos2(x, y), galley.size());
        p.rect_filled(under.expand2(vec2(2.0, 0.0)), 0.0, t.s1);
        p.galley(under.min, galley, ink);
    }
    places
}

/// Draws the cursor: its line, its time, and the values of the wide bands. Returns where those values are.
pub(super) fn cursor(ui: &Ui, t: &Tokens, plot: &Plot, time_us: i64, bands: Option<Bands>) -> Vec<Rect> {
    let mut chips = Vec::new();
    let x = plot.x_of(time_us);
    if x < plot.area.left() - 0.5 || x > plot.area.right() + 0.5 {
        return chips;
    }
    let p = ui.painter();
    let mut batch = Batch::new(p);
    batch.vline(x, plot.area.y_range(), 1.0, t.text1);
    batch.paint(p);
    let seconds = (time_us - plot.zero_us) as f64 / 1e6;
    paint_chip(p, t, pos2(x, plot.area.bottom() + 12.0), Align2::CENTER_CENTER, &format!("{seconds:.2}{NBSP}s"));
    let Some(bands) = bands else { return chips };
    let mut at = 0u64;
    for band in Band::ALL {
        let bytes = band.bytes(&bands);
        let (low, high) = (plot.y.at(at as f64), plot.y.at((at + bytes) as f64));
        at += bytes;
        if low - high < 22.0 {
            continue;
        }
        let text = format!("{} {}", band.name(), Bytes(bytes));
        let is_right = x + label::width(p, &text, Type::Body) + 24.0 > plot.area.right();
        let (dx, anchor) = if is_right { (-8.0, Align2::RIGHT_CENTER) } else { (8.0, Align2::LEFT_CENTER) };
        chips.push(paint_chip(p, t, pos2(x + dx, f32::midpoint(low, high)), anchor, &text));
    }
    chips
}

/// Draws names and values of the newest sample at the right end, at the height of their bands without overlap.
pub(super) fn ends(ui: &Ui, t: &Tokens, plot: &Plot, right: f32, caption: &str, bands: &Bands) {
    let p = ui.painter();
    let mut rows: Vec<(f32, &str, u64, bool)> = Vec::new();
    let mut at = 0u64;
    for band in Band::ALL {
        let bytes = band.bytes(bands);
        if bytes > 0 {
            rows.push((plot.y.at((at + bytes / 2) as f64), band.name(), bytes, false));
        }
        at += bytes;
    }
    rows.push((plot.y.at(at as f64) - 8.0, "used", at, true));
    let size = SizeColumn::of(rows.iter().map(|r| r.2));
    let wanted: Vec<f32> = rows.iter().map(|r| r.0).collect();
    let places = spread(&wanted, 16.0, Rangef::new(plot.area.top() - 6.0, plot.area.bottom() + 8.0));
    let top = places.last().copied().unwrap_or(plot.area.bottom());
    for (y, (_, name, bytes, is_strong)) in places.into_iter().zip(rows) {
        let kind = if is_strong { Type::Strong } else { Type::Body };
        let ink = if is_strong { t.text1 } else { t.text2 };
        let value = label::text(p, pos2(right, y), Align2::RIGHT_CENTER, &size.figure(bytes), Type::Mono, ink);
        let room = Rect::from_min_max(pos2(plot.area.right() + 10.0, y - 8.0), pos2(value.left() - 6.0, y + 8.0));
        label::text_in(p, room, name, kind, ink);
    }
    label::text(p, pos2(right, top - 17.0), Align2::RIGHT_CENTER, &size.head(caption), Type::Caption, t.text3);
}

/// A description for screen readers.
pub(super) fn spoken(bands: &Bands, capacity: u64) -> String {
    let parts: Vec<String> =
        Band::ALL.iter().filter(|b| b.bytes(bands) > 0).map(|b| format!("{} {}", b.name(), Bytes(b.bytes(bands)))).collect();
    format!("{} of {} in use: {}", Bytes(bands.used()), Bytes(capacity), parts.join(", "))
}
