//! Parts of a pane: header, sections, empty states, the progress line.

use super::button::icon_button;
use super::cut::Cut;
use super::how::recorded_by;
use super::icons::Icon;
use super::label;
use super::row;
use crate::app::jobs::Shown;
use crate::app::theme::visuals::{HEADER_HEIGHT, PAD_PANE, PAD_ROW};
use crate::app::theme::{Tokens, Type};
use std::sync::Arc;

use egui::{Align, AsIdSalt, Color32, Layout, Popup, PopupCloseBehavior, Rect, Response, Role, Stroke, Ui, UiBuilder, vec2};

pub struct PaneHeader<'a> {
    title: &'a str,
    caption: &'a str,
    help: Option<Box<dyn FnOnce(&mut Ui) + 'a>>,
    closing: Option<&'a mut bool>,
}

impl<'a> PaneHeader<'a> {
    pub fn new(title: &'a str) -> Self {
        Self { title, caption: "", help: None, closing: None }
    }

    /// For example "at the OOM · 54 segments of 20 MiB".
    pub fn caption(mut self, caption: &'a str) -> Self {
        self.caption = caption;
        self
    }

    /// Legend and gestures of the picture, shown by a "?" at the right end. [`super::legend`] has the parts for it.
    pub fn help(mut self, help: impl FnOnce(&mut Ui) + 'a) -> Self {
        self.help = Some(Box::new(help));
        self
    }

    /// Adds a cross at the right end. `closing` becomes true when it is clicked.
    pub fn closable(mut self, closing: &'a mut bool) -> Self {
        self.closing = Some(closing);
        self
    }

    /// Shows the header over the full width. `controls` are laid out from the right: the first one is rightmost. Returns the
    /// header's own response, by which the pane can be dragged; it takes no focus.
    pub fn show(self, ui: &mut Ui, controls: impl FnOnce(&mut Ui)) -> Response {
        let t = Tokens::of(ui);
        let (rect, response) = row::told(ui, HEADER_HEIGHT, Role::Label, || self.title);
        ui.painter().rect_filled(rect, 0, t.s2);
        ui.painter().hline(rect.x_range(), rect.bottom() - 0.5, Stroke::new(1.0, t.line));
        let inner = rect.inset(PAD_ROW, 0.0, 10.0, 1.0);
        let mut right = child_from_right(ui, inner, (self.title, "controls"));
        right.spacing_mut().item_spacing.x = 8.0;
        if let Some(closing) = self.closing {
            *closing = icon_button(&mut right, Icon::Close, &format!("Close {}", self.title)).clicked();
        }
        if let Some(help) = self.help {
            explanation(&mut right, self.title, 360.0, help);
        }
        controls(&mut right);
        let free = right.min_rect().left().min(inner.right());
        let title =
            label::text_in(ui.painter(), inner.with_max_x((free - 8.0).max(inner.left())), self.title, Type::Title, t.text1);
        let room = inner.across(title.right() + 8.0, free - 8.0);
        let fits = |text: &str| label::width(ui.painter(), text, Type::Caption);
        if room.width() > 24.0 {
            let caption = whole_parts(self.caption, room.width(), fits);
            label::text_in(ui.painter(), room, caption, Type::Caption, t.text3);
        }
        let is_cut = title.width() + 1.0 < label::width(ui.painter(), self.title, Type::Title);
        if is_cut || (!self.caption.is_empty() && fits(self.caption) > room.width()) {
            return response.on_hover_text(format!("{}\n{}", self.title, self.caption).trim_end());
        }
        response
    }
}

/// As many whole parts of a caption as fit, because half a word says nothing. A caption of a single part is cut when most of it
/// stays visible, and otherwise left out.
fn whole_parts(caption: &str, room: f32, width: impl Fn(&str) -> f32) -> &str {
    let mut shown = caption;
    while width(shown) > room {
        let cut = [" \u{b7} ", ", "].iter().filter_map(|mark| shown.rfind(mark)).max();
        match cut {
            Some(at) => shown = &shown[..at],
            None if width(shown) > room * 1.2 => return "",
            None => break,
        }
    }
    shown
}

/// A "?" button that shows an explanation up to `width` wide.
pub fn explanation(ui: &mut Ui, of: &str, width: f32, contents: impl FnOnce(&mut Ui)) {
    let button = icon_button(ui, Icon::Help, &format!("Explain {of}"));
    open_below(&button, |ui| {
        ui.set_max_width(width);
        egui::Frame::NONE.inner_margin(8.0).show(ui, contents);
    });
}

/// Contents that a click on `button` opens below it, and a click beside them closes.
pub fn open_below(button: &Response, contents: impl FnOnce(&mut Ui)) {
    Popup::menu(button).close_behavior(PopupCloseBehavior::CloseOnClickOutside).gap(4.0).show(contents);
}

/// A menu that a click on `button` opens below it. A choice closes it.
pub fn menu_below(button: &Response, width: f32, contents: impl FnOnce(&mut Ui)) {
    Popup::menu(button).gap(4.0).show(|ui| {
        ui.set_width(width);
        contents(ui);
    });
}

/// Caption of a section inside a pane, with `trailing` at the right end. A 1 px line separates it from what is above (10 points
/// above, 12 below) unless it is the first section.
pub fn section(ui: &mut Ui, title: &str, trailing: &str, first: bool) -> Response {
    let t = Tokens::of(ui);
    if !first {
        ui.add_space(10.0);
        rule(ui);
    }
    ui.add_space(if first { 10.0 } else { 12.0 });
    // When both do not fit beside each other, the second gets its own line.
    let wide = |text: &str| label::width(ui.painter(), text, Type::Caption);
    let needs = wide(title) + 8.0 + wide(trailing) + 2.0 * PAD_PANE;
    let is_beside = trailing.is_empty() || needs <= ui.available_width();
    let (rect, response) = row::told(ui, if is_beside { 16.0 } else { 32.0 }, Role::Label, || title);
    let inner = rect.shrink2(vec2(PAD_PANE, 0.0));
    label::text_in(ui.painter(), inner.with_max_y(inner.top() + 16.0), title, Type::Caption, t.text3);
    if !trailing.is_empty() {
        label::text_in_right(ui.painter(), inner.with_min_y(inner.bottom() - 16.0), trailing, Type::Caption, t.text3);
    }
    ui.add_space(6.0);
    response
}

/// Lays out contents in a clipped rectangle, top down without gaps.
pub fn inside(ui: &mut Ui, rect: Rect, salt: &str, contents: impl FnOnce(&mut Ui)) {
    let mut child = child(ui, rect, salt);
    child.set_clip_rect(rect.intersect(ui.clip_rect()));
    child.spacing_mut().item_spacing = vec2(0.0, 0.0);
    contents(&mut child);
}

/// A place for widgets in a part of a pane.
pub fn child(ui: &mut Ui, rect: Rect, salt: impl AsIdSalt) -> Ui {
    ui.new_child(UiBuilder::new().id_salt(salt).max_rect(rect))
}

/// Like [`child`], with the widgets halfway down from the left end.
pub fn child_from_left(ui: &mut Ui, rect: Rect, salt: impl AsIdSalt) -> Ui {
    ui.new_child(UiBuilder::new().id_salt(salt).max_rect(rect).layout(Layout::left_to_right(Align::Center)))
}

/// Like [`child`], with the widgets halfway down from the right end.
pub fn child_from_right(ui: &mut Ui, rect: Rect, salt: impl AsIdSalt) -> Ui {
    ui.new_child(UiBuilder::new().id_salt(salt).max_rect(rect).layout(Layout::right_to_left(Align::Center)))
}

/// Widgets in a line, 8 points apart, indented by the padding of a pane.
pub fn line<R>(ui: &mut Ui, contents: impl FnOnce(&mut Ui) -> R) -> R {
    ui.horizontal(|ui| {
        ui.add_space(PAD_PANE);
        ui.spacing_mut().item_spacing.x = 8.0;
        contents(ui)
    })
    .inner
}

/// Indented lines of text at the top of a view, with 10 points below.
pub fn headline(ui: &mut Ui, salt: &str, contents: impl FnOnce(&mut Ui)) {
    let inner = Rect::from_min_max(ui.cursor().min, ui.max_rect().max).shrink2(vec2(PAD_PANE, 0.0));
    let mut lines = child(ui, inner, salt);
    contents(&mut lines);
    ui.add_space(lines.min_rect().height() + 10.0);
}

/// A 1 px line over the full width.
pub fn rule(ui: &mut Ui) {
    let t = Tokens::of(ui);
    let rect = row::line(ui, 1.0);
    ui.painter().rect_filled(rect, 0, t.line);
}

/// A wrapped paragraph, indented on both sides by the padding of a pane.
pub fn note(ui: &mut Ui, text: &str, kind: Type, ink: Color32) -> Response {
    padded(ui, |ui| label::paragraph(ui, text, kind, ink))
}

/// Contents indented on both sides by the padding of a pane.
pub fn padded<R>(ui: &mut Ui, contents: impl FnOnce(&mut Ui) -> R) -> R {
    egui::Frame::NONE.inner_margin(egui::Margin::symmetric(PAD_PANE as i8, 0)).show(ui, contents).inner
}

/// The 2 px accent progress line over the top of `rect` (a pane's body). `None` means that the end is not known: the whole line,
/// dimmed.
pub fn progress_line(ui: &Ui, rect: Rect, share: Option<f32>) {
    let t = Tokens::of(ui);
    let line = rect.lines(0.0, 2.0);
    match share {
        Some(share) => {
            ui.painter().rect_filled(line, 0, t.accentbg);
            let done = Rect::from_min_size(line.min, vec2(line.width() * share.clamp(0.0, 1.0), 2.0));
            ui.painter().rect_filled(done, 0, t.accent);
        }
        None => {
            ui.painter().rect_filled(line, 0, Tokens::at(t.accent, 0.5));
        }
    }
}

/// The newest value of a job, with a progress line over the pane while a newer one is computed.
pub fn newest<T>(ui: &Ui, shown: Shown<T>) -> Option<Arc<T>> {
    if !shown.is_fresh {
        progress_line(ui, ui.max_rect(), shown.fraction);
    }
    shown.value
}

/// Replaces a picture when there is nothing to draw: one sentence about what is missing, the line of code that would record it, and
/// a link to the guide.
pub fn empty_state(ui: &mut Ui, sentence: &str, line_to_copy: Option<&str>) {
    empty_offering(ui, sentence, line_to_copy, 0.0, |_| {});
}

/// Like [`empty_state`], with a control below that is about `height` high.
pub fn empty_offering(ui: &mut Ui, sentence: &str, line_to_copy: Option<&str>, height: f32, below: impl FnOnce(&mut Ui)) {
    let own = if line_to_copy.is_some() { 92.0 } else { 20.0 };
    empty_with(ui, sentence, own + height, |ui| {
        if let Some(line) = line_to_copy {
            ui.add_space(10.0);
            recorded_by(ui, line);
        }
        below(ui);
    });
}

/// Like [`empty_state`], with other contents below the sentence. `height` is about that of both.
pub fn empty_with(ui: &mut Ui, sentence: &str, height: f32, below: impl FnOnce(&mut Ui)) {
    let t = Tokens::of(ui);
    let width = ui.available_width().min(480.0);
    let space = ((ui.available_height() - height) / 2.0).clamp(12.0, 160.0);
    ui.add_space(space);
    ui.horizontal(|ui| {
        ui.add_space(((ui.available_width() - width) / 2.0).max(PAD_PANE));
        ui.vertical(|ui| {
            ui.set_width(width - 2.0 * PAD_PANE);
            label::paragraph(ui, sentence, Type::Lead, t.text2);
            below(ui);
        });
    });
}

#[cfg(test)]
mod tests {
    use super::whole_parts;

    #[test]
    fn a_caption_loses_whole_parts_before_it_is_cut() {
        let shown = |caption, room| whole_parts(caption, room, |text| text.chars().count() as f32);
        assert_eq!(shown("at event 22,522 \u{b7} 1,339 segments", 40.0), "at event 22,522 \u{b7} 1,339 segments");
        assert_eq!(shown("at event 22,522 \u{b7} 1,339 segments", 20.0), "at event 22,522");
        assert_eq!(shown("by stack, 272 stacks", 10.0), "by stack");
        assert_eq!(shown("the same time range", 17.0), "the same time range", "most of it is seen");
        assert_eq!(shown("the same time range", 8.0), "");
    }
}
