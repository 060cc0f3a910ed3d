//! The lane of the whole card: the samples of a watch per pixel column, on the same clock as the events of one process.

use std::sync::Arc;

use egui::{Align2, Pos2, Rect};

use super::lane::{Hit, Lane, Shared};
use crate::app::jobs::Derived;
use crate::app::theme::{Tokens, Type};
use crate::app::views::ViewContext;
use crate::app::views::live::alone::{band_under, tip};
use crate::app::views::live::figures::knows_card;
use crate::app::views::live::layout::Band;
use crate::app::views::live::paint::colour;
use crate::app::views::timeline::clock::place_of_ns;
use crate::app::views::timeline::layout::{Contents, NAMES, Track};
use crate::app::views::timeline::marks::Marks;
use crate::app::views::timeline::paint::Canvas;
use crate::app::views::timeline::picture::Window;
use crate::app::widgets::{Batch, Cut, DASH_LIMIT, Scale, Swatch, Tip, label};
use vramscope_core::model::{Bands, DeviceRecording, MarkKind, Sample};
use vramscope_core::units::Bytes;

#[derive(Default)]
pub(super) struct WholeCard {
    summing: Derived<Window, CardPicture>,
    picture: Option<Arc<CardPicture>>,
}

impl Lane for WholeCard {
    fn track(&self) -> Track {
        Track::Card
    }

    fn height(&mut self, cx: &ViewContext<'_>, _marks: Option<&Marks>, contents: &mut Contents) {
        contents.card = has_samples(cx.data.device());
    }

    fn prepare(&mut self, cx: &ViewContext<'_>, canvas: &Canvas<'_>, _shared: &Shared) {
        let (data, window) = (Arc::clone(cx.data), canvas.window);
        let job = move |_: &_| Some(CardPicture::compute(data.device(), window));
        self.picture = self.summing.get(cx.jobs, "timeline card", &window, job).value;
    }

    fn paint(&self, cx: &ViewContext<'_>, canvas: &Canvas<'_>, rect: Rect) {
        if let Some(picture) = &self.picture {
            canvas.card(rect, picture, at_event(cx.data.device(), cx.shared.cursor));
        }
    }

    fn hit(&self, canvas: &Canvas<'_>, rect: Rect, at: Pos2) -> Option<Hit> {
        canvas.card_at(rect, self.picture.as_ref()?, at).map(|_| Hit::told(self.track()))
    }

    fn tooltip(&self, canvas: &Canvas<'_>, rect: Rect, at: Pos2) -> Option<Tip> {
        let (band, bands, at_us) = canvas.card_at(rect, self.picture.as_ref()?, at)?;
        let note = "What the driver and PyTorch said while this was watched. A column shows the sample with most in use.";
        Some(tip(canvas.tokens, &bands, band, at_us).note(note))
    }
}

/// An older sample no longer counts, because the watch had ended or was stuck.
const HOLDS_US: i64 = 5_000_000;

/// For each pixel column of a window, the sample with the most bytes in use.
struct CardPicture {
    pub window: Window,
    /// The bands and the time of each column; `None` without a sample.
    pub columns: Vec<Option<(Bands, i64)>>,
    /// The most bytes in use within the window.
    pub top: u64,
    /// Size of the card; 0 when unknown.
    pub capacity: u64,
}

impl CardPicture {
    /// Costs the samples of the window and one search per column.
    pub fn compute(device: &DeviceRecording, window: Window) -> Self {
        let bounds: Vec<i64> = window.times_ns(device).into_iter().map(|ns| ns.div_euclid(1_000)).collect();
        let capacity = device.capacity.unwrap_or(0);
        let column = |w: &[i64]| {
            let sample = shown(&device.samples, w[0], w[1])?;
            Some((sample.bands(capacity)?, sample.time_us))
        };
        let columns: Vec<_> = bounds.windows(2).map(column).collect();
        let top = columns.iter().flatten().map(|(b, _)| b.used()).max().unwrap_or(0);
        CardPicture { window, columns, top, capacity }
    }

    fn scale(&self, plot: Rect) -> Scale {
        let near = self.capacity > 0 && self.capacity as f64 <= self.top as f64 * 1.3;
        let top = if near { self.capacity } else { self.top };
        Scale::vertical(0.0, (top.max(512) as f64) * 1.04, plot.y_range())
    }
}

/// The sample with the most in use among those in `from..to` and the one in force at `from`.
fn shown(samples: &[Sample], from: i64, to: i64) -> Option<&Sample> {
    let start = samples.partition_point(|s| s.time_us <= from);
    let end = samples.partition_point(|s| s.time_us < to).max(start);
    let holds = start.checked_sub(1).filter(|&i| from - samples[i].time_us <= HOLDS_US);
    holds.into_iter().chain(start..end).filter_map(|i| samples.get(i)).max_by_key(|s| s.used)
}

/// What the card held at an event: the last sample before it.
fn at_event(device: &DeviceRecording, event: u32) -> Option<Bands> {
    let time = *device.events.time_us.get(event as usize)?;
    shown(&device.samples, time, time)?.bands(device.capacity.unwrap_or(0))
}

/// True when there are samples, and times to place them at.
fn has_samples(device: &DeviceRecording) -> bool {
    let times = device.events.time_range().filter(|_| device.events.has_time);
    let (Some((first, last)), Some(a), Some(b)) = (times, device.samples.first(), device.samples.last()) else { return false };
    // The samples of a memory timeline are sums of its own tensors, not of the card.
    let is_of_card = device.live.is_some() || knows_card(Some(a)) || knows_card(Some(b));
    is_of_card && a.time_us <= last && b.time_us.saturating_add(HOLDS_US) >= first
}

impl Canvas<'_> {
    /// Draws the lane. `at` are the values to show beside the names.
    fn card(&self, rect: Rect, picture: &CardPicture, at: Option<Bands>) {
        let t = self.tokens;
        if picture.window.axis != self.window.axis {
            return;
        }
        let plot = rect.with_min_y(rect.top() + NAMES);
        let y = picture.scale(plot);
        self.byte_axis(plot, &y, "Whole card");
        self.card_names(rect.with_max_y(plot.top()), at);
        let painter = self.within(plot);
        let sources = self.sources(&picture.window);
        let shown = |source: &Option<usize>| source.and_then(|s| picture.columns.get(s)).copied().flatten();
        let mut below = vec![0u64; sources.len()];
        let mut batch = Batch::new(&painter).hatch_origin(self.pane.min);
        for band in Band::ALL {
            let columns = self.stack(&y, &mut below, |i| Some(band.bytes(&shown(&sources[i])?.0)));
            match colour(band, t) {
                Some(c) => batch.bands(columns.into_iter(), plot.left(), c),
                None => {
                    let edges: Vec<(f32, f32)> = columns.into_iter().map(|c| c.unwrap_or((0.0, 0.0))).collect();
                    batch.hatch_between(&edges, plot.left(), t.hatch_large);
                }
            }
        }
        let capacity = picture.capacity as f64;
        if picture.capacity > 0 && capacity <= y.end {
            batch.dashed_hline(plot.x_range(), y.at(capacity), 1.0, DASH_LIMIT, t.text3);
        }
        let device = self.data.device();
        for mark in device.live.iter().flat_map(|l| &l.marks) {
            let ink = match mark.kind {
                MarkKind::OutOfMemory => t.red,
                MarkKind::Alarm => t.amber,
                MarkKind::User | MarkKind::Program => t.text2,
                _ => continue,
            };
            let place = place_of_ns(device, self.window.axis, mark.time_us.saturating_mul(1_000));
            let x = self.x.at(place);
            if plot.x_range().contains(x) {
                batch.vline(x, plot.y_range(), 1.0, ink);
            }
        }
        batch.hline(plot.x_range(), plot.bottom(), 1.0, t.line2);
        batch.paint(&painter);
    }

    /// Draws the legend above the lane, with the values of one instant.
    fn card_names(&self, row: Rect, at: Option<Bands>) {
        let t = self.tokens;
        let Some(bands) = at else {
            let text = "no sample at the cursor";
            label::text(self.painter, row.left_center(), Align2::LEFT_CENTER, text, Type::Caption, t.text3);
            return;
        };
        let mut x = row.left();
        let shown: Vec<Band> = Band::ALL.into_iter().filter(|b| b.bytes(&bands) > 0).collect();
        for (i, &band) in shown.iter().enumerate() {
            let (name, value) = (band.name(), Bytes(band.bytes(&bands)).to_string());
            let width = self.part_width(name, &value);
            if x + width > row.right() {
                let text = format!("+{}", shown.len() - i);
                label::text(self.painter, row.middle(x), Align2::LEFT_CENTER, &text, Type::Mono, t.text3);
                return;
            }
            self.part_name(row, x, colour(band, t).map_or(Swatch::Free, Swatch::Fill), name, &value);
            x += width + 16.0;
        }
        let free = format!("free {}", Bytes(bands.free));
        if x + label::width(self.painter, &free, Type::Caption) + 8.0 < row.right() {
            label::text(self.painter, row.right_center(), Align2::RIGHT_CENTER, &free, Type::Caption, Tokens::at(t.text2, 1.0));
        }
    }

    /// The band at a point of the lane, the bands of its column, and their time.
    fn card_at(&self, rect: Rect, picture: &CardPicture, p: egui::Pos2) -> Option<(Option<Band>, Bands, i64)> {
        let plot = rect.with_min_y(rect.top() + NAMES);
        if !plot.contains(p) || picture.window.axis != self.window.axis {
            return None;
        }
        let (bands, time_us) = picture.columns.get(picture.window.column(self.x.value(p.x))?).copied().flatten()?;
        Some((band_under(&bands, picture.scale(plot).value(p.y)), bands, time_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::state::shared::Axis;
    use crate::app::state::toys::device_at;

    fn device() -> DeviceRecording {
        let mut d = device_at(&[1_000_000, 1_000_100, 2_000_000, 3_000_000]);
        d.capacity = Some(1000);
        d.samples = [(900_000, 100), (1_950_000, 700), (1_980_000, 300)]
            .map(|(time_us, used)| Sample { time_us, used: Some(used), driver: Some(50), ..Sample::default() })
            .to_vec();
        d
    }

    #[test]
    fn samples_stand_at_their_time_on_both_axes() {
        let d = device();
        assert!(has_samples(&d));
        let used = |axis, from, to, columns| {
            let p = CardPicture::compute(&d, Window { axis, from, to, columns });
            p.columns.iter().map(|c| c.map(|(b, _)| b.used())).collect::<Vec<_>>()
        };
        // Half a second per column from the first event on: the peak between two events is visible.
        assert_eq!(used(Axis::Time, 0.0, 2_000_000.0, 4), [Some(100), Some(700), Some(300), Some(300)]);
        // One event per column: a column lasts until the next event.
        assert_eq!(used(Axis::Event, 0.0, 3.0, 3), [Some(100), Some(700), Some(300)]);
        assert_eq!(at_event(&d, 0).map(|b| b.used()), Some(100));
        assert_eq!(at_event(&d, 3).map(|b| (b.used(), b.free)), Some((300, 700)));
    }

    #[test]
    fn a_watch_of_another_time_shows_nothing() {
        let mut d = device();
        d.samples.iter_mut().for_each(|s| s.time_us += 60_000_000);
        assert!(!has_samples(&d));
        let p = CardPicture::compute(&d, Window { axis: Axis::Time, from: 0.0, to: 2_000_000.0, columns: 2 });
        assert_eq!((p.columns.iter().flatten().count(), p.top), (0, 0));
    }
}
