//! Tooltips: a title, a location, a line of source, figures. Shown when the pointer rested on a thing for 120 ms.

use super::chip::Swatch;
use super::code::CodeWell;
use super::label;
use super::row::KeyValue;
use crate::app::theme::visuals::{RADIUS_POPUP, TOOLTIP_DELAY};
use crate::app::theme::{Tokens, Type};
use egui::{Color32, Frame, Margin, Pos2, Rect, RectAlign, Response, Stroke, Tooltip, Ui, pos2};

#[derive(Clone, Debug, Default)]
pub struct Tip {
    title: String,
    place: String,
    swatch: Option<Color32>,
    code: Option<String>,
    rows: Vec<(String, String, bool)>,
    note: String,
    width: Option<f32>,
}

impl Tip {
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// The location, in the accent, after the title: `workloads.py:21`.
    pub fn place(mut self, place: impl Into<String>) -> Self {
        self.place = place.into();
        self
    }

    /// The colour of the class, before the title.
    pub fn swatch(mut self, colour: impl Into<Option<Color32>>) -> Self {
        self.swatch = colour.into();
        self
    }

    pub fn code(mut self, line: impl Into<String>) -> Self {
        self.code = Some(line.into());
        self
    }

    pub fn row(mut self, label: impl Into<String>, value: impl ToString) -> Self {
        self.rows.push((label.into(), value.to_string(), false));
        self
    }

    /// A row for a value that may be unknown or say nothing.
    pub fn row_if(self, label: impl Into<String>, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.row(label, value),
            None => self,
        }
    }

    /// A label and a value in red, for the request that failed.
    pub fn red_row(mut self, label: impl Into<String>, value: impl ToString) -> Self {
        self.rows.push((label.into(), value.to_string(), true));
        self
    }

    /// A sentence below the figures.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Width; the default is 240, or 320 with a line of source.
    pub fn width(mut self, width: f32) -> Self {
        self.width = Some(width);
        self
    }

    /// Shows it at the pointer for a hovered widget, after the usual delay.
    pub fn show(&self, response: &Response) {
        let mut tooltip = Tooltip::for_enabled(response).at_pointer().gap(12.0);
        tooltip.popup = tooltip.popup.frame(frame(&response.ctx));
        tooltip.show(|ui| self.ui(ui));
    }

    /// Shows it at once at `at`, for canvases whose one response stands for many things. Call it only while the pointer is on the
    /// thing.
    pub fn show_at(&self, response: &Response, at: Pos2) {
        self.show_above(response, at, f32::INFINITY);
    }

    /// Like [`Tip::show_at`], but above the pointer when it would otherwise cover what is below `floor`.
    pub fn show_above(&self, response: &Response, at: Pos2, floor: f32) {
        let mut tooltip = always_open(response, at).gap(14.0);
        // Before the first frame the height is only estimated.
        let height = tooltip.popup.get_expected_size().map_or(46.0 + 20.0 * self.rows.len() as f32, |s| s.y);
        let align = if at.y + 14.0 + height > floor { RectAlign::TOP_START } else { RectAlign::BOTTOM_START };
        tooltip.popup = tooltip.popup.frame(frame(&response.ctx)).align(align);
        tooltip.show(|ui| self.ui(ui));
    }

    /// Like [`Tip::show_at`], but inside `area` when there is room, so that the tooltip does not cover neighbouring plots.
    pub fn show_within(&self, response: &Response, at: Pos2, area: Rect) {
        let mut tooltip = always_open(response, at).gap(0.0);
        // Before the first frame the size is only estimated.
        let guess = egui::vec2(self.own_width() + 26.0, 40.0 + 20.0 * self.rows.len() as f32);
        let corner = beside(at, tooltip.popup.get_expected_size().unwrap_or(guess), area);
        tooltip.popup = tooltip.popup.at_position(corner).frame(frame(&response.ctx)).align(RectAlign::BOTTOM_START);
        tooltip.show(|ui| self.ui(ui));
    }

    fn own_width(&self) -> f32 {
        self.width.unwrap_or(if self.code.is_some() { 320.0 } else { 240.0 })
    }

    pub fn ui(&self, ui: &mut Ui) {
        let t = Tokens::of(ui);
        let width = self.own_width();
        ui.set_width(width);
        ui.spacing_mut().item_spacing = egui::vec2(8.0, 0.0);
        let (rect, _) = ui.allocate_exact_size(egui::vec2(width, 18.0), egui::Sense::hover());
        let mut inner = rect;
        if let Some(colour) = self.swatch {
            inner.min.x = Swatch::Fill(colour).paint(ui.painter(), t, rect.left_center()).right() + 6.0;
        }
        let title = label::text_in(ui.painter(), inner, &self.title, Type::Title, t.text1);
        if !self.place.is_empty() {
            inner.min.x = title.right() + 8.0;
            label::text_in(ui.painter(), inner, &self.place, Type::Mono, t.accent);
        }
        if let Some(line) = &self.code {
            ui.add_space(4.0);
            CodeWell::new(line).show(ui);
        }
        if !self.rows.is_empty() {
            ui.add_space(4.0);
        }
        for (label, value, red) in &self.rows {
            let row = KeyValue::new(label, value).pad(0.0);
            let row = if *red { row.colour(t.red) } else { row };
            row.show(ui);
        }
        if !self.note.is_empty() {
            ui.add_space(4.0);
            label::paragraph(ui, &self.note, Type::Body, t.text2);
        }
    }
}

fn always_open<'a>(response: &Response, at: Pos2) -> Tooltip<'a> {
    Tooltip::always_open(response.ctx.clone(), response.layer_id, response.id.with("tip"), at)
}

/// What the pointer is on, and since when.
#[derive(Clone, Debug)]
pub struct Rest<K>(Option<(K, f64)>);

impl<K> Default for Rest<K> {
    fn default() -> Self {
        Rest(None)
    }
}

impl<K: PartialEq> Rest<K> {
    /// True once the pointer has been on `thing` for as long as a tooltip waits.
    pub fn is_long(&mut self, ui: &Ui, thing: Option<K>) -> bool {
        let now = ui.input(|i| i.time);
        let before = self.0.take();
        let Some(thing) = thing else { return false };
        let since = before.filter(|(before, _)| *before == thing).map_or(now, |(_, since)| since);
        self.0 = Some((thing, since));
        let is_long = now - since >= f64::from(TOOLTIP_DELAY);
        if !is_long {
            ui.request_repaint_after(std::time::Duration::from_millis(130));
        }
        is_long
    }
}

/// The frame of tooltips and popups: `s3`, a 1 px `line2` outline, radius 6, the theme's only shadow.
pub fn frame(ctx: &egui::Context) -> Frame {
    let t = Tokens::of(ctx);
    Frame::new()
        .fill(t.s3)
        .stroke(Stroke::new(1.0, t.line2))
        .corner_radius(RADIUS_POPUP)
        .inner_margin(Margin::symmetric(12, 10))
        .shadow(ctx.global_style().visuals.popup_shadow)
}

/// Upper left corner of a card of `size` for the point `at`: below or above it, pushed sideways into `area`; beside it when there
/// is no room below and above. A card that fits nowhere leaves `area` by as little as possible, above or below.
fn beside(at: Pos2, size: egui::Vec2, area: Rect) -> Pos2 {
    const GAP: f32 = 14.0;
    let x = at.x.min(area.right() - size.x).max(area.left());
    let y = at.y.min(area.bottom() - size.y).max(area.top());
    let (below, above) = (at.y + GAP, at.y - GAP - size.y);
    let (right, left) = (at.x + GAP, at.x - GAP - size.x);
    let over = below + size.y - area.bottom();
    match (over <= 0.0, above >= area.top(), right + size.x <= area.right(), left >= area.left()) {
        (true, ..) => pos2(x, below),
        (_, true, ..) => pos2(x, above),
        (_, _, true, _) => pos2(right, y),
        (.., true) => pos2(left, y),
        _ => pos2(x, if over <= area.top() - above { below } else { above }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use egui::vec2;

    #[test]
    fn a_card_stays_in_its_plot_and_off_the_pointer() {
        let area = Rect::from_min_max(pos2(100.0, 100.0), pos2(500.0, 600.0));
        let size = vec2(300.0, 200.0);
        for at in [pos2(101.0, 101.0), pos2(499.0, 101.0), pos2(499.0, 599.0), pos2(101.0, 599.0), pos2(300.0, 350.0)] {
            let card = Rect::from_min_size(beside(at, size, area), size);
            assert!(area.contains_rect(card), "{at:?} {card:?}");
            assert!(!card.contains(at), "{at:?} {card:?}");
        }
        // Too high for above and below, so it goes beside the pointer.
        let wide = Rect::from_min_max(pos2(0.0, 0.0), pos2(800.0, 240.0));
        for at in [pos2(20.0, 120.0), pos2(780.0, 120.0)] {
            let card = Rect::from_min_size(beside(at, size, wide), size);
            assert!(wide.contains_rect(card) && !card.contains(at), "{at:?} {card:?}");
        }
        // A card that fits nowhere stays between the left and right edges of the plot.
        let card =
            Rect::from_min_size(beside(pos2(200.0, 120.0), size, Rect::from_min_size(Pos2::ZERO, vec2(400.0, 240.0))), size);
        assert!(card.left() >= 0.0 && card.right() <= 400.0);
    }
}
