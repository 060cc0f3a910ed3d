//! Legends: swatches with names and counts, in a row under a plot or as a list in a "?" popover.

use super::chip::Swatch;
use super::cut::Cut;
use super::label;
use super::row;
use super::tooltip::Tip;
use crate::app::theme::{Tokens, Type};
use egui::{Color32, Rect, Role, Sense, Ui, WidgetInfo, pos2, vec2};
use vramscope_core::units::NBSP;

#[derive(Clone, Debug)]
pub struct LegendEntry {
    pub swatch: Swatch,
    pub name: String,
    /// Count or amount, in the monospace face; may be empty.
    pub value: String,
    /// Another class is selected, so swatch and name are paler. The name stays readable because a click on it selects this class.
    pub dimmed: bool,
    /// Uses the monospace face for the name: a size class, a source location.
    pub mono: bool,
    pub tip: Option<Tip>,
}

impl LegendEntry {
    pub fn new(swatch: Swatch, name: impl Into<String>) -> Self {
        Self { swatch, name: name.into(), value: String::new(), dimmed: false, mono: false, tip: None }
    }

    pub fn value(mut self, value: impl Into<String>) -> Self {
        self.value = value.into();
        self
    }

    pub fn mono(mut self) -> Self {
        self.mono = true;
        self
    }

    pub fn tip(mut self, tip: Tip) -> Self {
        self.tip = Some(tip);
        self
    }

    pub fn dimmed(mut self, dimmed: bool) -> Self {
        self.dimmed = dimmed;
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegendClick {
    pub entry: usize,
    /// Ctrl was held, to select several classes.
    pub several: bool,
}

/// A legend in one row, 24 high, over the available width: `name` (may be empty) 12 px from the left, entries from `start` on,
/// `trailing` at the right end. Entries that do not fit are counted ("+3 more"). Returns the clicked entry.
pub fn legend_row(ui: &mut Ui, name: &str, start: f32, entries: &[LegendEntry], trailing: &str) -> Option<LegendClick> {
    let t = Tokens::of(ui);
    let rect = row::line(ui, 24.0);
    let mut x = rect.left() + start;
    if !name.is_empty() {
        let named = rect.with_min_x(rect.left() + 12.0);
        x = x.max(label::text_in(ui.painter(), named, name, Type::Caption, t.text2).right() + 12.0);
    }
    let mut right = rect.right() - 12.0;
    let wanted: f32 = entries.iter().map(|entry| entry_width(ui, entry) + 18.0).sum();
    let said = 12.0 + label::width(ui.painter(), trailing, Type::Caption);
    // When space is short, the class names win over `trailing`.
    if !trailing.is_empty() && x + wanted <= right - said {
        let room = rect.with_max_x(right);
        right = label::text_in_right(ui.painter(), room, trailing, Type::Caption, t.text3).left() - 12.0;
    }
    let mut clicked = None;
    for (i, entry) in entries.iter().enumerate() {
        let width = entry_width(ui, entry);
        let left_over = if i + 1 < entries.len() { 56.0 } else { 0.0 };
        if x + width + left_over > right {
            let rest = rect.with_min_x(x);
            let more = format!("+{}{NBSP}more", entries.len() - i);
            let covered = label::text_in(ui.painter(), rest, &more, Type::Mono, t.text3);
            let hovered = ui.interact(covered.expand2(vec2(4.0, 4.0)), ui.scope_id().with("more of the legend"), Sense::hover());
            let names: Vec<String> =
                entries[i..].iter().map(|e| format!("{}  {}", e.name, e.value).trim_end().to_owned()).collect();
            hovered.on_hover_text(names.join("\n"));
            break;
        }
        let place = rect.across(x, x + width);
        if let Some(click) = entry_ui(ui, place, entry, i) {
            clicked = Some(click);
        }
        x += width + 18.0;
    }
    clicked
}

fn entry_width(ui: &Ui, entry: &LegendEntry) -> f32 {
    let kind = if entry.mono { Type::Mono } else { Type::Caption };
    let value = if entry.value.is_empty() { 0.0 } else { 6.0 + label::width(ui.painter(), &entry.value, Type::Mono) };
    entry.swatch.size().x + 6.0 + label::width(ui.painter(), &entry.name, kind) + value
}

fn entry_ui(ui: &mut Ui, place: Rect, entry: &LegendEntry, index: usize) -> Option<LegendClick> {
    let t = Tokens::of(ui);
    let response = ui.interact(place, ui.scope_id().with(("legend", index, &entry.name)), Sense::click());
    let name = if entry.value.is_empty() { entry.name.clone() } else { format!("{} {}", entry.name, entry.value) };
    response.widget_info(|| WidgetInfo::selected(Role::Button, ui.is_enabled(), !entry.dimmed, &name));
    let painter = ui.painter().clone();
    let mut pale = painter.clone();
    if entry.dimmed {
        pale.multiply_opacity(0.25);
    }
    let swatch = entry.swatch.paint(&pale, t, place.left_center());
    let ink = match (response.hovered(), entry.dimmed) {
        (true, _) => t.text1,
        (false, false) => t.text2,
        (false, true) => t.text3,
    };
    let kind = if entry.mono { Type::Mono } else { Type::Caption };
    let named = place.across(swatch.right() + 6.0, place.right() + 1.0);
    let covered = label::text_in(&painter, named, &entry.name, kind, ink);
    if !entry.value.is_empty() {
        let value = place.across(covered.right() + 6.0, place.right() + 1.0);
        if place.height() > 22.0 {
            label::text_in(&painter, value, &entry.value, Type::Mono, t.text3);
        } else {
            label::figure(&painter, value, &entry.value, if entry.dimmed { t.text3 } else { t.text1 });
        }
    }
    if let Some(tip) = &entry.tip {
        tip.show(&response);
    }
    response.clicked().then(|| LegendClick { entry: index, several: ui.input(|i| i.modifiers.command) })
}

/// A horizontal colour ramp with both ends named: "empty ▇▇▇ full".
pub fn paint_ramp(painter: &egui::Painter, tokens: &Tokens, rect: Rect, stops: &[Color32], ends: (&str, &str)) {
    let mut mesh = egui::Mesh::default();
    let last = stops.len().saturating_sub(1).max(1) as f32;
    for (i, colour) in stops.iter().enumerate() {
        let x = rect.left() + rect.width() * i as f32 / last;
        mesh.colored_vertex(pos2(x, rect.top()), *colour);
        mesh.colored_vertex(pos2(x, rect.bottom()), *colour);
        if i > 0 {
            let k = 2 * i as u32;
            mesh.add_triangle(k - 2, k - 1, k);
            mesh.add_triangle(k - 1, k + 1, k);
        }
    }
    painter.add(egui::Shape::mesh(mesh));
    let left = Rect::from_min_max(pos2(rect.left() - 80.0, rect.top() - 4.0), pos2(rect.left() - 6.0, rect.bottom() + 4.0));
    label::text_in_right(painter, left, ends.0, Type::Caption, tokens.text2);
    let right = Rect::from_min_max(pos2(rect.right() + 6.0, rect.top() - 4.0), pos2(rect.right() + 80.0, rect.bottom() + 4.0));
    label::text_in(painter, right, ends.1, Type::Caption, tokens.text2);
}
