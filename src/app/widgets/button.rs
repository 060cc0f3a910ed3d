//! Clickable controls: buttons, icon buttons, links, segmented controls, selectors, menu items.
//!
//! Each has an accessible name, handles the keyboard like egui's own buttons and shows the focus ring.

use super::cut::Cut;
use super::icons::Icon;
use super::label;
use crate::app::theme::visuals::RADIUS_CONTROL;
use crate::app::theme::{Tokens, Type};
use egui::{
    Align, Align2, Color32, CursorIcon, Layout, Popup, Rect, Response, Role, Sense, Stroke, StrokeKind, Ui, UiBuilder,
    WidgetInfo, pos2, vec2,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum ButtonKind {
    Primary,
    Outlined,
    Plain,
}

/// A push button: primary (accent), outlined, or plain (surface).
pub struct Push<'a> {
    text: &'a str,
    kind: ButtonKind,
    icon: Option<Icon>,
    small: bool,
    enabled: bool,
}

impl<'a> Push<'a> {
    fn new(text: &'a str, kind: ButtonKind) -> Self {
        Self { text, kind, icon: None, small: false, enabled: true }
    }

    /// The main action: filled with the accent.
    pub fn primary(text: &'a str) -> Self {
        Self::new(text, ButtonKind::Primary)
    }

    /// A secondary action: outlined.
    pub fn outlined(text: &'a str) -> Self {
        Self::new(text, ButtonKind::Outlined)
    }

    /// A tool: on a quiet fill.
    pub fn plain(text: &'a str) -> Self {
        Self::new(text, ButtonKind::Plain)
    }

    pub fn icon(mut self, icon: Icon) -> Self {
        self.icon = Some(icon);
        self
    }

    /// 20 high with 11 px text, for pane headers; otherwise 24 high.
    pub fn small(mut self) -> Self {
        self.small = true;
        self
    }

    pub fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    fn measures(&self) -> (f32, f32, Type, f32) {
        let icon_room = if self.icon.is_some() { 12.0 + 6.0 } else { 0.0 };
        if self.small { (20.0, 8.0, Type::Column, icon_room) } else { (24.0, 10.0, Type::Strong, icon_room) }
    }

    /// The width it will take, in points.
    pub fn width(&self, ui: &Ui) -> f32 {
        let (_, pad, kind, icon_room) = self.measures();
        label::width(ui.painter(), self.text, kind).ceil() + 2.0 * pad + icon_room
    }

    pub fn show(self, ui: &mut Ui) -> Response {
        let t = Tokens::of(ui);
        let (height, pad, kind, icon_room) = self.measures();
        let galley = label::galley(ui.painter(), self.text, kind, Color32::PLACEHOLDER);
        let size = vec2(self.width(ui), height);
        let sense = if self.enabled { Sense::click() } else { Sense::hover() };
        let (rect, response) = ui.allocate_exact_size(size, sense);
        response.widget_info(|| WidgetInfo::labeled(Role::Button, self.enabled && ui.is_enabled(), self.text));
        let over = response.hovered() && self.enabled;
        let (fill, line, ink) = match self.kind {
            ButtonKind::Primary if over => (Tokens::over(t.text1, t.accent, 0.12), None, t.onaccent),
            ButtonKind::Primary => (t.accent, None, t.onaccent),
            ButtonKind::Outlined if over => (t.s3, Some(t.line2), t.text1),
            ButtonKind::Outlined => (Color32::TRANSPARENT, Some(t.line2), t.text1),
            ButtonKind::Plain if over => (t.s4, None, t.text1),
            ButtonKind::Plain => (t.s3, None, t.text1),
        };
        let (fill, ink) = match (self.enabled, self.kind) {
            (true, _) => (fill, ink),
            (false, ButtonKind::Outlined) => (fill, t.text3),
            (false, _) => (t.s3, t.text3),
        };
        let p = ui.painter();
        p.rect(rect, RADIUS_CONTROL, fill, line.map_or(Stroke::NONE, |c| Stroke::new(1.0, c)), StrokeKind::Inside);
        if let Some(icon) = self.icon {
            icon.paint(p, rect.middle(rect.left() + pad + 6.0), 14.0, ink);
        }
        label::lay(p, rect.middle(rect.left() + pad + icon_room), galley, ink);
        if over { response.on_hover_cursor(CursorIcon::PointingHand) } else { response }
    }
}

/// A small button over the upper right corner of a plot. Returns whether it was clicked.
pub fn push_over(ui: &mut Ui, plot: Rect, text: &str) -> bool {
    let place = Rect::from_min_size(plot.right_top() + vec2(-146.0, 6.0), vec2(140.0, 20.0));
    let builder = UiBuilder::new().max_rect(place).layout(Layout::right_to_left(Align::Center)).id_salt(text);
    ui.scope_builder(builder, |ui| Push::plain(text).small().show(ui).clicked()).inner
}

/// A 20 x 20 icon button. `name` is its accessible name and its tooltip.
pub fn icon_button(ui: &mut Ui, icon: Icon, name: &str) -> Response {
    icon_button_sized(ui, icon, name, 20.0, 16.0)
}

pub fn icon_button_sized(ui: &mut Ui, icon: Icon, name: &str, side: f32, size: f32) -> Response {
    let t = Tokens::of(ui);
    let (rect, response) = ui.allocate_exact_size(vec2(side, side), Sense::click());
    response.widget_info(|| WidgetInfo::labeled(Role::Button, ui.is_enabled(), name));
    if response.hovered() {
        ui.painter().rect_filled(rect, RADIUS_CONTROL, t.s4);
    }
    let ink = if response.hovered() { t.text1 } else { t.text2 };
    icon.paint(ui.painter(), rect.center(), size, ink);
    response.on_hover_text(name)
}

/// A link with the icon for "opens in another program".
pub fn external_link(ui: &mut Ui, text: &str) -> Response {
    link_with(ui, text, Type::Mono, Some(Icon::External))
}

/// A link in any text style, with an icon after it.
pub fn link_with(ui: &mut Ui, text: &str, kind: Type, icon: Option<Icon>) -> Response {
    let t = Tokens::of(ui);
    let room = if icon.is_some() { 18.0 } else { 0.0 };
    let galley = label::elided(ui.painter(), text, kind, t.accent, ui.available_width() - room);
    let (rect, response) = ui.allocate_exact_size(vec2(galley.size().x + room, kind.line()), Sense::click());
    response.widget_info(|| WidgetInfo::labeled(Role::Link, ui.is_enabled(), text));
    let at = pos2(rect.left(), rect.center().y - galley.size().y / 2.0);
    if response.hovered() {
        let y = at.y + galley.size().y - 1.0;
        ui.painter().hline(rect.left()..=rect.left() + galley.size().x, y, Stroke::new(1.0, t.accent));
    }
    ui.painter().galley(at, galley, t.accent);
    if let Some(icon) = icon {
        icon.paint(ui.painter(), rect.middle(rect.right() - 6.0), 12.0, t.text3);
    }
    response.on_hover_cursor(CursorIcon::PointingHand)
}

/// A row of choices, one of them selected, 22 high. `name` is the label of the setting ("Workspace"). Returns whether it changed.
pub fn segmented(ui: &mut Ui, name: &str, chosen: &mut usize, choices: &[impl AsRef<str>]) -> bool {
    let t = Tokens::of(ui);
    let choices: Vec<&str> = choices.iter().map(AsRef::as_ref).collect();
    let widths: Vec<f32> = choices.iter().map(|c| label::width(ui.painter(), c, Type::Strong).ceil() + 20.0).collect();
    let (rect, _) = ui.allocate_exact_size(vec2(widths.iter().sum(), 22.0), Sense::hover());
    ui.painter().rect_filled(rect, RADIUS_CONTROL, t.s2);
    let mut changed = false;
    let mut x = rect.left();
    for (i, (choice, width)) in choices.iter().zip(&widths).enumerate() {
        let cell = rect.across(x, x + width);
        x += width;
        let response = ui.interact(cell, ui.scope_id().with((name, i)), Sense::click());
        let is_chosen = *chosen == i;
        response.widget_info(|| WidgetInfo::selected(Role::RadioButton, ui.is_enabled(), is_chosen, *choice));
        if response.clicked() && !is_chosen {
            *chosen = i;
            changed = true;
        }
        let mut radius = egui::CornerRadius::ZERO;
        if i == 0 {
            (radius.nw, radius.sw) = (RADIUS_CONTROL, RADIUS_CONTROL);
        }
        if i + 1 == choices.len() {
            (radius.ne, radius.se) = (RADIUS_CONTROL, RADIUS_CONTROL);
        }
        if is_chosen {
            ui.painter().rect_filled(cell, radius, t.s4);
        }
        let ink = if is_chosen || response.hovered() { t.text1 } else { t.text2 };
        let kind = if is_chosen { Type::Strong } else { Type::Body };
        label::text(ui.painter(), cell.center(), Align2::CENTER_CENTER, choice, kind, ink);
        if i > 0 {
            ui.painter().vline(cell.left(), cell.y_range(), Stroke::new(1.0, t.line));
        }
    }
    ui.painter().rect_stroke(rect, RADIUS_CONTROL, Stroke::new(1.0, t.line), StrokeKind::Inside);
    changed
}

/// A label, the selected choice and a menu of all choices: "colour **size class** ⌄". 20 high. Returns whether it changed.
pub fn selector(ui: &mut Ui, name: &str, chosen: &mut usize, choices: &[impl AsRef<str>]) -> bool {
    let choices: Vec<&str> = choices.iter().map(AsRef::as_ref).collect();
    let value = choices.get(*chosen).copied().unwrap_or("none");
    let response = selector_button(ui, name, value);
    let mut changed = false;
    Popup::menu(&response).gap(4.0).show(|ui| {
        // As wide as the widest choice, because egui's default menu width is much wider.
        let widest = choices.iter().map(|c| label::width(ui.painter(), c, Type::Body)).fold(0.0, f32::max);
        ui.set_width((widest + 40.0).max(response.rect.width()).max(120.0));
        for (i, choice) in choices.iter().enumerate() {
            if menu_item(ui, choice, Some(i == *chosen), None, true).clicked() {
                changed = *chosen != i;
                *chosen = i;
                ui.close();
            }
        }
    });
    changed
}

/// A [`selector`] of values with a text each. Returns what was chosen, if that is new.
pub fn select<T: Clone + PartialEq, S: AsRef<str>>(
    ui: &mut Ui,
    name: &str,
    chosen: &T,
    choices: &[T],
    text: impl Fn(&T) -> S,
) -> Option<T> {
    let mut at = choices.iter().position(|choice| choice == chosen).unwrap_or(0);
    let texts: Vec<S> = choices.iter().map(text).collect();
    if selector(ui, name, &mut at, &texts) { choices.get(at).cloned() } else { None }
}

/// Only the button of a selector, for a custom menu: show `egui::Popup::menu(&response)`.
pub fn selector_button(ui: &mut Ui, name: &str, value: &str) -> Response {
    let t = Tokens::of(ui);
    let p = ui.painter();
    let before = label::galley(p, name, Type::Caption, t.text3);
    let after = label::galley(p, value, Type::Column, t.text1);
    let gap = if name.is_empty() { 0.0 } else { 4.0 };
    let size = vec2((before.size().x + gap + after.size().x).ceil() + 16.0 + 8.0, 20.0);
    let (rect, response) = ui.allocate_exact_size(size, Sense::click());
    response.widget_info(|| {
        let mut info = WidgetInfo::labeled(Role::ComboBox, ui.is_enabled(), if name.is_empty() { value } else { name });
        info.current_text_value = Some(value.to_owned());
        info
    });
    let open = Popup::is_id_open(ui, Popup::default_response_id(&response));
    if response.hovered() || open {
        ui.painter().rect_filled(rect, RADIUS_CONTROL, t.s4);
    }
    let mut x = rect.left() + 4.0;
    for (galley, ink) in [(before, t.text3), (after, t.text1)] {
        let width = galley.size().x;
        label::lay(ui.painter(), rect.middle(x), galley, ink);
        x += width + if width > 0.0 { gap.max(4.0) } else { 0.0 };
    }
    Icon::ChevronDown.paint(ui.painter(), rect.middle(rect.right() - 10.0), 14.0, t.text3);
    response
}

/// A menu row, 24 high: space for a check mark (when `checked` is given), the text, a shortcut at the right.
pub fn menu_item(ui: &mut Ui, text: &str, checked: Option<bool>, shortcut: Option<&str>, enabled: bool) -> Response {
    let t = Tokens::of(ui);
    let left = if checked.is_some() { 24.0 } else { 10.0 };
    let galley = label::galley(ui.painter(), text, Type::Body, Color32::PLACEHOLDER);
    let keys = shortcut.map(|s| label::galley(ui.painter(), s, Type::Key, t.text3));
    let room = keys.as_ref().map_or(0.0, |k| k.size().x + 24.0);
    let width = (left + galley.size().x + room + 12.0).max(ui.available_width());
    let (rect, response) = ui.allocate_exact_size(vec2(width, 24.0), if enabled { Sense::click() } else { Sense::hover() });
    response.widget_info(|| match checked {
        Some(on) => WidgetInfo::selected(Role::MenuItem, enabled, on, text),
        None => WidgetInfo::labeled(Role::MenuItem, enabled, text),
    });
    if (response.hovered() || response.has_focus()) && enabled {
        ui.painter().rect_filled(rect, RADIUS_CONTROL, t.s4);
    }
    if checked == Some(true) {
        Icon::Check.paint(ui.painter(), rect.middle(rect.left() + 12.0), 12.0, t.text1);
    }
    let ink = if enabled { t.text1 } else { t.text3 };
    label::lay(ui.painter(), rect.middle(rect.left() + left), galley, ink);
    if let Some(keys) = keys {
        let at = pos2(rect.right() - 10.0 - keys.size().x, rect.center().y - keys.size().y / 2.0);
        ui.painter().galley(at, keys, t.text3);
    }
    response
}

/// An entry of a menu, which a click closes. Returns whether it was clicked.
pub fn menu_entry(ui: &mut Ui, text: &str, enabled: bool) -> bool {
    let is_clicked = menu_item(ui, text, None, None, enabled).clicked() && enabled;
    if is_clicked {
        ui.close();
    }
    is_clicked
}

/// A check box without a frame: "✓ hide torch internals". Returns whether it changed.
pub fn check(ui: &mut Ui, text: &str, on: &mut bool) -> bool {
    let t = Tokens::of(ui);
    let galley = label::galley(ui.painter(), text, Type::Caption, t.text2);
    let (rect, mut response) = ui.allocate_exact_size(vec2(galley.size().x + 20.0, 20.0), Sense::click());
    if response.clicked() {
        *on = !*on;
        response.mark_changed();
    }
    response.widget_info(|| WidgetInfo::selected(Role::CheckBox, ui.is_enabled(), *on, text));
    let ink = if response.hovered() { t.text1 } else { t.text2 };
    let square = Rect::from_center_size(rect.middle(rect.left() + 6.0), vec2(11.0, 11.0));
    ui.painter().rect_stroke(square, 2, Stroke::new(1.0, t.line2), StrokeKind::Inside);
    if *on {
        Icon::Check.paint(ui.painter(), square.center(), 11.0, t.text1);
    }
    label::lay(ui.painter(), rect.middle(rect.left() + 18.0), galley, ink);
    response.changed()
}
