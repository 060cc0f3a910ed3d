//! The timeline of a file that has only bytes by category.

use std::sync::Arc;

use egui::{Align2, Rect, Sense, Ui, vec2};

use super::lanes::categories::{BandsPicture, tip};
use super::layout::{NAMES, Tracks};
use super::paint::Canvas;
use super::picture::Window;
use crate::app::jobs::Derived;
use crate::app::state::Axis;
use crate::app::theme::{Tokens, Type};
use crate::app::views::ViewContext;
use crate::app::widgets::{Cut, Gesture, PanZoom, Scale, UnitAt, label, time_ticks, told_at};
use vramscope_core::model::CategoryBands;
use vramscope_core::units::Micros;

/// Draws a memory timeline that was exported as a plot: sums by category, no allocations.
#[derive(Default)]
pub(super) struct CategoriesAlone {
    range: Option<PanZoom>,
    picture: Derived<Window, BandsPicture>,
}

impl CategoriesAlone {
    /// Draws the pane. It has its own time axis, because there are no events that other views could follow.
    pub fn ui(&mut self, ui: &Ui, cx: &ViewContext<'_>, pane: Rect, bands: &CategoryBands) {
        let (Some(&first), Some(&last)) = (bands.time_us.first(), bands.time_us.last()) else { return };
        let range = self.range.get_or_insert_with(|| PanZoom::new(0.0, ((last - first) as f64).max(1.0)).with_least(20.0));
        let gutter = if pane.width() >= 560.0 { 100.0 } else { 76.0 };
        let x = egui::Rangef::new(pane.left() + gutter, (pane.right() - 18.0).max(pane.left() + gutter + 1.0));
        let axis = Rect::from_x_y_ranges(x, pane.top() + 8.0..=pane.top() + 28.0);
        let rect = Rect::from_x_y_ranges(x, axis.bottom() + 4.0..=pane.bottom() - 14.0);
        let response = told_at(ui, rect, "bands", Sense::click_and_drag(), egui::Role::Canvas, || "Bytes by category over time");
        let gesture = Gesture::read(&response);
        if let Some(intent) = gesture.intent {
            let scale = range.horizontal(x);
            range.apply(&intent, &scale, false);
        }
        let (from, to) = range.visible();
        let columns = ((x.span() * ui.ctx().pixels_per_point()).round() as usize).clamp(1, 16_384);
        let window = Window { axis: Axis::Time, from, to, columns };
        let data = Arc::clone(cx.data);
        let shown = self.picture.get(cx.jobs, "bands", &window, move |_| {
            let bands = &data.device().bands;
            let border = |i: usize| first.saturating_add(window.at(i as f64).ceil() as i64);
            let bounds: Vec<i64> = (0..=window.columns).map(border).collect();
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
        label::text(&painter, axis.middle(pane.left() + 12.0), Align2::LEFT_CENTER, "Time", Type::Caption, cx.tokens.text2);
        let peak = bands.peak().and_then(|(i, _)| bands.bytes.get(i)).copied();
        let hovered = gesture.hover.filter(|_| !response.dragged()).and_then(|p| Some((p, canvas.band_at(rect, &picture, p)?)));
        let what = if gesture.hover.is_some() { "at the pointer" } else { "at the peak" };
        let kept = label::width(&painter, what, Type::Caption) + 16.0;
        canvas.bands(rect, &picture, hovered.map(|h| h.1.1).or(peak), kept);
        if let Some((p, (category, row))) = hovered {
            painter.vline(p.x, rect.y_range(), egui::Stroke::new(1.0, Tokens::at(cx.tokens.text1, 0.4)));
            let when = Micros(canvas.x.value(p.x) as i64).to_string();
            tip(cx.tokens, category, &row, Some(when)).show_at(&response, p);
        }
        let at = rect.right_top() + vec2(0.0, NAMES / 2.0);
        label::text(&painter, at, Align2::RIGHT_CENTER, what, Type::Caption, cx.tokens.text3);
    }
}
