//! The limit: typed, chosen from a menu of known limits, or set with a slider.

use egui::{Popup, Rect, Sense, Ui, WidgetInfo, pos2, vec2};

use super::ViewContext;
use super::model::WhatIfView;
use super::runs::{LimitFrom, Own};
use crate::app::widgets::{Cut, menu_item, selector_button};
use vramscope_core::inference::CapFrom;
use vramscope_core::tables::Quantity;
use vramscope_core::units::{Bytes, MEBIBYTE};

pub(super) const SLIDER: f32 = 132.0;

fn presets(own: &Own, cx: &ViewContext<'_>) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    match own.limit_from {
        LimitFrom::Known(range) => {
            let name = match range.from {
                CapFrom::Stated | CapFrom::Fraction => "As recorded",
                CapFrom::Refusals | CapFrom::Device => "From the failed requests",
            };
            all.push((name.to_owned(), own.limit));
        }
        LimitFrom::Peak => {}
    }
    all.push(("The recorded peak".to_owned(), cx.data.tables.curves.peak(Quantity::Reserved).0));
    if let Some(capacity) = cx.data.device().capacity {
        all.push(("The card's capacity".to_owned(), capacity));
    }
    all
}

impl WhatIfView {
    /// The menu of limits. Its text says where the active limit comes from.
    pub(super) fn limit_menu(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let Some(own) = self.runs.own() else { return };
        let presets = presets(&own, cx);
        let limit = self.limit();
        let name = match presets.iter().find(|(_, l)| Some(*l) == limit) {
            Some((name, _)) => lower_first(name),
            // A limit typed in decimal units has this text, while the field shows it in binary units.
            None => limit.and_then(|l| Bytes(l).round_decimal()).unwrap_or_else(|| "chosen".to_owned()),
        };
        let button = selector_button(ui, "limit", &name);
        Popup::menu(&button).gap(4.0).show(|ui| {
            ui.set_min_width(240.0);
            for (name, bytes) in &presets {
                let size = Bytes(*bytes).limit();
                if menu_item(ui, name, Some(limit == Some(*bytes)), Some(&size), *bytes > 0).clicked() {
                    self.choose_limit(*bytes);
                    ui.close();
                }
            }
        });
    }

    /// The slider. It ranges from half of the peak of allocated bytes to one and a half times the largest peak.
    pub(super) fn limit_slider(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let Some(limit) = self.limit() else { return };
        let (allocated, _) = cx.data.tables.curves.peak(Quantity::Allocated);
        let (reserved, _) = cx.data.tables.curves.peak(Quantity::Reserved);
        let low = (allocated / 2).max(2 * MEBIBYTE);
        let high = (reserved + reserved / 2).max(low + 64 * MEBIBYTE);
        let (rect, response) = ui.allocate_exact_size(vec2(SLIDER, 24.0), Sense::click_and_drag());
        let track = rect.shrink2(vec2(6.0, 0.0));
        let bytes_at = |x: f32| {
            let share = f64::from(((x - track.left()) / track.width()).clamp(0.0, 1.0));
            let bytes = low + ((high - low) as f64 * share) as u64;
            (bytes / (2 * MEBIBYTE)).max(1) * (2 * MEBIBYTE)
        };
        if let Some(at) = response.interact_pointer_pos().filter(|_| response.dragged() || response.clicked()) {
            self.sliding = Some(bytes_at(at.x));
        }
        let step = ((high - low) / 50).max(2 * MEBIBYTE);
        let keys = ui.input(|i| {
            let pressed = |key| i.num_presses(key) as u64;
            (pressed(egui::Key::ArrowRight), pressed(egui::Key::ArrowLeft))
        });
        if response.has_focus() {
            let filter = egui::EventFilter { horizontal_arrows: true, ..Default::default() };
            ui.memory_mut(|m| m.set_focus_lock_filter(response.id, filter));
        }
        if response.has_focus() && keys != (0, 0) {
            self.choose_limit(limit.saturating_add(keys.0 * step).saturating_sub(keys.1 * step).clamp(low, high));
        }
        let shown = self.sliding.unwrap_or(limit);
        response.widget_info(|| WidgetInfo::slider(ui.is_enabled(), shown as f64 / MEBIBYTE as f64, "Limit in MiB"));
        let t = cx.tokens;
        let p = ui.painter();
        let share = ((shown.clamp(low, high) - low) as f64 / (high - low) as f64) as f32;
        let knob = track.middle(track.left() + track.width() * share);
        let line = |from: f32, to: f32| Rect::from_min_max(pos2(from, knob.y - 1.5), pos2(to, knob.y + 1.5));
        p.rect_filled(line(track.left(), track.right()), 1, t.s4);
        p.rect_filled(line(track.left(), knob.x), 1, t.text3);
        p.circle_filled(knob, 6.0, if response.hovered() || response.dragged() { t.text1 } else { t.text2 });
        if let Some(chosen) = self.sliding {
            self.limit_text = Bytes(chosen).limit();
            if response.drag_stopped() || response.clicked() {
                self.sliding = None;
                self.choose_limit(chosen);
            }
        }
    }

    /// Sets a limit and simulates everything under it.
    pub(super) fn choose_limit(&mut self, limit: u64) {
        if self.limit() != Some(limit) {
            self.runs.cancel();
        }
        self.runs.resume();
        self.limit = Some(limit);
        self.limit_text = Bytes(limit).limit();
        self.limit_error = None;
    }
}

fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |c| c.to_lowercase().collect::<String>() + letters.as_str())
}
