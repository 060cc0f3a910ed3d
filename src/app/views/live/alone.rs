//! The timeline of a recording with samples but no events: the bands over time, on their own time axis.

use egui::{Rect, Role, Sense, Ui, WidgetInfo};

use super::layout::{Band, Peaks, nearest, sample_at};
use super::paint;
use super::paint::{Plot, colour};
use crate::app::state::Action;
use crate::app::theme::Tokens;
use crate::app::views::ViewContext;
use crate::app::widgets::{Gesture, Intent, LegendEntry, PanZoom, Scale, Swatch, Tip, legend_row, pane};
use vramscope_core::model::{Bands, LiveTrack};
use vramscope_core::units::{Bytes, time_of_day};

/// Shortest visible window, µs.
const LEAST_US: f64 = 0.2e6;

/// Draws the bands over time instead of a timeline.
#[derive(Default)]
pub(in crate::app::views) struct SamplesAlone {
    range: Option<PanZoom>,
    peaks: Peaks,
}

impl SamplesAlone {
    /// Draws the pane. A click sets the instant that Live and Accounting show too.
    pub fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, pane: Rect) {
        let device = cx.data.device();
        let (Some(first), Some(last)) = (device.samples.first(), device.samples.last()) else { return };
        let zero_us = first.time_us;
        let whole = ((last.time_us - zero_us) as f64).max(1e6);
        let range = self.range.get_or_insert_with(|| PanZoom::new(0.0, whole).with_least(LEAST_US));
        if range.domain().1 != whole {
            range.set_domain(0.0, whole, true);
        }
        let area = Rect::from_x_y_ranges(
            pane.left() + 76.0..=(pane.right() - 20.0).max(pane.left() + 77.0),
            pane.top() + 44.0..=(pane.bottom() - 52.0).max(pane.top() + 45.0),
        );
        let response = ui.interact(area, ui.scope_id().with("samples"), Sense::click_and_drag());
        let gesture = Gesture::read(&response);
        let scale = Scale::horizontal(range.visible().0, range.visible().1, area.x_range());
        match gesture.intent {
            Some(Intent::Click(p) | Intent::CtrlClick(p)) => {
                cx.actions.send(Action::SetInstant(Some(zero_us + scale.value(p.x) as i64)));
            }
            Some(other) => _ = range.apply(&other, &scale, false),
            None => {}
        }
        self.peaks.update(&device.samples);
        let capacity = device.capacity.unwrap_or(0);
        let plot = Plot::of(area, range.visible(), device, &self.peaks);
        let none = LiveTrack::default();
        let track = device.live.as_deref().unwrap_or(&none);
        let at_us = cx.shared.instant_us;
        let bands_at = |us: i64| sample_at(&device.samples, us).and_then(|i| device.samples[i].bands(capacity));
        let shown = bands_at(at_us.unwrap_or(last.time_us)).unwrap_or_default();
        let spoken = paint::spoken(&shown, capacity);
        response.widget_info(|| WidgetInfo::labeled(Role::Canvas, true, format!("Memory of the card over time. {spoken}")));
        let names = paint::chart(ui, cx.tokens, &plot, device, track, &self.peaks);
        let named = paint::marks(ui, cx.tokens, &plot, track, plot.area.right());
        let chips = at_us.map_or_else(Vec::new, |us| paint::cursor(ui, cx.tokens, &plot, us, bands_at(us)));
        paint::names(ui, &names, &chips);
        if let Some(p) = gesture.hover.filter(|p| area.contains(*p) && !response.dragged()) {
            ui.painter().vline(p.x, area.y_range(), egui::Stroke::new(1.0, Tokens::at(cx.tokens.text1, 0.4)));
            let us = plot.time_at(p.x);
            if let Some(bands) = bands_at(us) {
                let pointed = band_under(&bands, plot.y.value(p.y));
                let mut tip = tip(cx.tokens, &bands, pointed, us);
                if let Some(mark) = nearest(&named, p.x).and_then(|mark| track.marks.get(mark)) {
                    tip = tip.row("the line", &mark.text);
                }
                tip.show_at(&response, p);
            }
        }
        let row = pane.with_min_y(pane.bottom() - 26.0);
        let mut child = pane::child(ui, row, "samples legend");
        let when = at_us.map_or_else(|| "at the end".to_owned(), |us| format!("at {} UTC", time_of_day(us)));
        let _ = legend_row(&mut child, "", 16.0, &entries(cx.tokens, &shown), &when);
    }
}

/// The band at a height of the stack.
pub(in crate::app::views) fn band_under(bands: &Bands, bytes: f64) -> Option<Band> {
    let mut top = 0u64;
    Band::ALL.into_iter().find(|band| {
        top += band.bytes(bands);
        bytes >= 0.0 && bytes < top as f64
    })
}

pub(in crate::app::views) fn entries(t: &Tokens, bands: &Bands) -> Vec<LegendEntry> {
    let shown = Band::ALL.into_iter().filter(|b| b.bytes(bands) > 0);
    let entry = |b: Band| {
        let swatch = colour(b, t).map_or(Swatch::Free, Swatch::Fill);
        LegendEntry::new(swatch, b.name()).value(Bytes(b.bytes(bands)).to_string())
    };
    shown.map(entry).collect()
}

/// The tooltip of an instant, with the band under the pointer first.
pub(in crate::app::views) fn tip(t: &Tokens, bands: &Bands, pointed: Option<Band>, time_us: i64) -> Tip {
    let mut tip = match pointed {
        Some(b) => Tip::new(format!("{}, {}", b.name(), Bytes(b.bytes(bands)))).swatch(colour(b, t)),
        None => Tip::new(format!("{} free on the device", Bytes(bands.free))),
    };
    for band in Band::ALL.into_iter().filter(|b| Some(*b) != pointed && b.bytes(bands) > 0) {
        tip = tip.row(band.name(), Bytes(band.bytes(bands)));
    }
    tip.row("used", Bytes(bands.used()))
        .row_if("free", pointed.map(|_| Bytes(bands.free)))
        .row("time", format!("{} UTC", time_of_day(time_us)))
}
