//! Bytes by category over time, stacked: a track of the timeline, and the whole picture of a memory timeline that has nothing else.

use std::sync::Arc;

use egui::{Align2, Color32, Rect, Sense, Ui, WidgetInfo, pos2, vec2};

use super::lanes::BandsPicture;
use super::layout::{NAMES, Tracks};
use super::paint::Canvas;
use super::picture::Window;
use crate::app::jobs::Derived;
use crate::app::state::cursor::Axis;
use crate::app::theme::{Tokens, Type};
use crate::app::views::ViewContext;
use crate::app::widgets::axis::{UnitAt, time_ticks};
use crate::app::widgets::chip::Swatch;
use crate::app::widgets::label;
use crate::app::widgets::mesh::Batch;
use crate::app::widgets::tooltip::Tip;
use crate::app::widgets::viewport::{Gesture, Intent, PanZoom, Scale};
use vramscope_core::anatomy::roles::Role;
use vramscope_core::model::{CATEGORIES, CategoryBands};
use vramscope_core::units::{Bytes, Micros};

/// The colour of a category: every view's slots are the same.
fn colour(t: &Tokens, category: usize) -> Color32 {
    const SLOTS: [usize; 7] = [0, 3, 4, 5, 2, 1, 6];
    SLOTS.get(category).map_or(t.other, |&slot| t.slot(slot))
}

/// What a category is called: as everywhere in the window, where PyTorch's file has the singular.
fn name(category: usize) -> String {
    match CATEGORIES.get(category) {
        Some(&"temporary") => Role::Temporaries.text().to_owned(),
        Some(&one @ ("parameter" | "input" | "activation" | "gradient")) => format!("{one}s"),
        Some(other) => other.replace('_', " "),
        None => String::new(),
    }
}

impl Canvas<'_> {
    /// Draws the track. `at` is the instant whose values stand beside the names.
    /// `reserved` points at the right of the legend are kept free.
    pub fn bands(&self, rect: Rect, picture: &BandsPicture, at: Option<[u64; CATEGORIES.len()]>, reserved: f32) {
        let t = self.tokens;
        if picture.window.axis != self.window.axis {
            return;
        }
        let plot = rect.with_min_y(rect.top() + NAMES);
        let y = band_scale(picture, plot);
        self.byte_axis(plot, &y, "Categories");
        self.band_names(rect.with_max_y(plot.top()).with_max_x(rect.right() - reserved), picture, at);
        let painter = self.within(plot);
        let sources = self.sources(&picture.window);
        let mut below = vec![0u64; sources.len()];
        let mut batch = Batch::new(&painter);
        for &category in &picture.used {
            let column = |(i, source): (usize, &Option<usize>)| {
                let bytes = source.and_then(|s| picture.columns.get(s)).copied().flatten()?[category];
                let bottom = below[i];
                below[i] = bottom.saturating_add(bytes);
                (bytes > 0).then(|| (y.at(below[i] as f64), y.at(bottom as f64)))
            };
            let columns: Vec<Option<(f32, f32)>> = sources.iter().enumerate().map(column).collect();
            batch.bands(columns.into_iter(), plot.left(), colour(t, category));
        }
        batch.hline(plot.x_range(), plot.bottom(), 1.0, t.line2);
        batch.paint(&painter);
    }

    /// The legend above the bands, with the bytes of an instant.
    fn band_names(&self, row: Rect, picture: &BandsPicture, at: Option<[u64; CATEGORIES.len()]>) {
        let t = self.tokens;
        let mut x = row.left();
        for (i, &category) in picture.by_size.iter().enumerate() {
            // What is not there at the instant needs no figure; its name is the legend.
            let value = at.map(|b| b[category]).filter(|&b| b > 0).map(|b| Bytes(b).to_string()).unwrap_or_default();
            let name = name(category);
            let width =
                16.0 + label::width(self.painter, &name, Type::Caption) + 6.0 + label::width(self.painter, &value, Type::Mono);
            let left = picture.by_size.len() - i;
            let text = format!("+{left}");
            // The last one needs no room for what is left out after it.
            let rest = if left > 1 { 16.0 + label::width(self.painter, &text, Type::Mono) } else { 0.0 };
            if x + width + rest > row.right() {
                label::text(self.painter, pos2(x, row.center().y), Align2::LEFT_CENTER, &text, Type::Mono, t.text3);
                break;
            }
            Swatch::Fill(colour(t, category)).paint(self.painter, t, pos2(x, row.center().y));
            let named =
                label::text(self.painter, pos2(x + 16.0, row.center().y), Align2::LEFT_CENTER, &name, Type::Caption, t.text2);
            label::text(
                self.painter,
                pos2(named.right() + 6.0, row.center().y),
                Align2::LEFT_CENTER,
                &value,
                Type::Mono,
                t.text1,
            );
            x += width + 16.0;
        }
    }

    /// The category at a point of the track, and the bytes of its column.
    pub fn band_at(&self, rect: Rect, picture: &BandsPicture, p: egui::Pos2) -> Option<(Option<usize>, [u64; CATEGORIES.len()])> {
        let plot = rect.with_min_y(rect.top() + NAMES);
        if !plot.contains(p) || picture.window.axis != self.window.axis {
            return None;
        }
        let row = picture.columns.get(picture.window.column(self.x.value(p.x))?).copied().flatten()?;
        let bytes = band_scale(picture, plot).value(p.y);
        let mut top = 0u64;
        let category = picture.used.iter().copied().find(|&c| {
            top = top.saturating_add(row[c]);
            bytes < top as f64 && row[c] > 0
        });
        Some((category, row))
    }
}

fn band_scale(picture: &BandsPicture, plot: Rect) -> Scale {
    Scale::vertical(0.0, (picture.top.max(512) as f64) * 1.04, plot.y_range())
}

/// What the bytes of an instant are, the category under the pointer first.
pub(super) fn tip(t: &Tokens, category: Option<usize>, row: &[u64; CATEGORIES.len()], when: Option<String>) -> Tip {
    let sum = row.iter().fold(0u64, |s, &b| s.saturating_add(b));
    let mut tip = match category {
        Some(c) => Tip::new(format!("{}, {}", name(c), Bytes(row[c]))).swatch(colour(t, c)),
        None => Tip::new(Bytes(sum).to_string()),
    };
    for (c, &bytes) in row.iter().enumerate().filter(|&(c, &b)| b > 0 && Some(c) != category) {
        tip = tip.row(name(c), Bytes(bytes).to_string());
    }
    tip = tip.row("together", Bytes(sum).to_string());
    if let Some(when) = when {
        tip = tip.row("time", when);
    }
    tip.note("A column shows the instant in it with most bytes.")
}

/// The picture of a memory timeline that was exported as a plot: categories and their sums, no allocations.
#[derive(Default)]
pub(super) struct BandsAlone {
    range: Option<PanZoom>,
    picture: Derived<Window, BandsPicture>,
}

impl BandsAlone {
    /// Fills the pane. The time axis is this picture's own: there are no events that other views could follow.
    pub fn ui(&mut self, ui: &Ui, cx: &ViewContext<'_>, pane: Rect, bands: &CategoryBands) {
        let (Some(&first), Some(&last)) = (bands.time_us.first(), bands.time_us.last()) else { return };
        let range = self.range.get_or_insert_with(|| PanZoom::new(0.0, ((last - first) as f64).max(1.0)).with_least(20.0));
        let gutter = if pane.width() >= 560.0 { 100.0 } else { 76.0 };
        let x = egui::Rangef::new(pane.left() + gutter, (pane.right() - 18.0).max(pane.left() + gutter + 1.0));
        let axis = Rect::from_min_max(pos2(x.min, pane.top() + 8.0), pos2(x.max, pane.top() + 28.0));
        let rect = Rect::from_min_max(pos2(x.min, axis.bottom() + 4.0), pos2(x.max, pane.bottom() - 14.0));
        let response = ui.interact(rect, ui.scope_id().with("bands"), Sense::click_and_drag());
        response.widget_info(|| WidgetInfo::labeled(egui::Role::Canvas, true, "Bytes by category over time"));
        let gesture = Gesture::read(&response);
        let (from, to) = range.visible();
        if let Some(intent) = gesture.intent {
            match intent {
                Intent::DoubleClick(_) => range.fit(),
                Intent::Select { from: a, to: b, done: true } => {
                    let scale = Scale::horizontal(from, to, x);
                    range.show(scale.value(a.x.min(b.x)), scale.value(a.x.max(b.x)));
                }
                other => {
                    range.apply(&other, &Scale::horizontal(from, to, x), false);
                }
            }
        }
        let (from, to) = range.visible();
        let columns = ((x.span() * ui.ctx().pixels_per_point()).round() as usize).clamp(1, 16_384);
        let window = Window { axis: Axis::Time, from, to, columns };
        let data = Arc::clone(cx.data);
        let shown = self.picture.get(cx.jobs, "bands", &window, move |_| {
            let bands = &data.device().bands;
            let step = (window.to - window.from) / window.columns as f64;
            let bounds: Vec<i64> =
                (0..=window.columns).map(|i| first.saturating_add((window.from + step * i as f64).ceil() as i64)).collect();
            Some(BandsPicture::compute(bands, window, &bounds))
        });
        let Some(picture) = shown.value else { return };
        let painter = ui.painter_at(pane);
        let tracks = Tracks::of_one(x, rect);
        let canvas = Canvas {
            painter: &painter,
            tokens: cx.tokens,
            data: cx.data,
            pane,
            tracks,
            window,
            x: Scale::horizontal(from, to, x),
            pointer_y: None,
        };
        let ticks = time_ticks(from, to, (x.span() / 96.0).max(2.0) as usize);
        ticks.paint_across(&painter, cx.tokens, &canvas.x, axis, UnitAt::First);
        label::text(
            &painter,
            pos2(pane.left() + 12.0, axis.center().y),
            Align2::LEFT_CENTER,
            "Time",
            Type::Caption,
            cx.tokens.text2,
        );
        let peak = bands.peak().and_then(|(i, _)| bands.bytes.get(i)).copied();
        let hovered = gesture.hover.filter(|_| !response.dragged()).and_then(|p| Some((p, canvas.band_at(rect, &picture, p)?)));
        let what = if gesture.hover.is_some() { "at the pointer" } else { "at the peak" };
        let kept = label::width(&painter, what, Type::Caption) + 16.0;
        canvas.bands(rect, &picture, hovered.map(|h| h.1.1).or(peak), kept);
        if let Some((p, (category, row))) = hovered {
            painter.vline(p.x, rect.y_range(), egui::Stroke::new(1.0, Tokens::at(cx.tokens.text1, 0.4)));
            let when = Micros(canvas.x.value(p.x) as i64).to_string();
            tip(cx.tokens, category, &row, Some(when)).show_at(&response, response.id.with("tip"), p);
        }
        let at = rect.right_top() + vec2(0.0, NAMES / 2.0);
        label::text(&painter, at, Align2::RIGHT_CENTER, what, Type::Caption, cx.tokens.text3);
    }
}

/// The bands of a window of the timeline.
pub(super) fn of_window(device: &vramscope_core::model::DeviceRecording, window: Window) -> BandsPicture {
    let bounds: Vec<i64> = window.times_ns(device).into_iter().map(|ns| ns.div_euclid(1_000)).collect();
    BandsPicture::compute(&device.bands, window, &bounds)
}

/// The bytes by category in force at an event.
pub(super) fn at_event(device: &vramscope_core::model::DeviceRecording, event: u32) -> Option<[u64; CATEGORIES.len()]> {
    let time = *device.events.time_us.get(event as usize)?;
    device.bands.at(time).copied()
}
