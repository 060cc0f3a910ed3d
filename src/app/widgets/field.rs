//! Text fields: 22 high, 1 px outline, an icon and a hint.

use super::cut::Cut;
use super::icons::Icon;
use crate::app::theme::visuals::RADIUS_CONTROL;
use crate::app::theme::{Tokens, Type};
use egui::{Align, Layout, Margin, Response, Role, Stroke, StrokeKind, TextEdit, Ui, UiBuilder, WidgetInfo, vec2};

pub struct Field<'a> {
    name: &'a str,
    hint: &'a str,
    icon: Option<Icon>,
    width: f32,
    height: f32,
    mono: bool,
    invalid: bool,
    is_query: bool,
}

impl<'a> Field<'a> {
    /// A field 200 wide. `name` is its accessible name, and its hint unless [`Self::hint`] is set.
    pub fn new(name: &'a str) -> Self {
        Self { name, hint: name, icon: None, width: 200.0, height: 22.0, mono: false, invalid: false, is_query: false }
    }

    pub fn hint(mut self, hint: &'a str) -> Self {
        self.hint = hint;
        self
    }

    pub fn icon(mut self, icon: Icon) -> Self {
        self.icon = Some(icon);
        self
    }

    /// Marks a query field. "Find in view" focuses it before filter and address fields.
    pub fn query(mut self) -> Self {
        self.is_query = true;
        self
    }

    pub fn width(mut self, width: f32) -> Self {
        self.width = width;
        self
    }

    /// 20 high, for pane headers.
    pub fn small(mut self) -> Self {
        self.height = 20.0;
        self
    }

    /// To match a button beside it.
    pub fn height(mut self, height: f32) -> Self {
        self.height = height;
        self
    }

    /// Uses the monospace face, for sizes, settings and paths.
    pub fn mono(mut self) -> Self {
        self.mono = true;
        self
    }

    /// Outlines the field in `text2` because its text does not parse. The caller shows a sentence below that says why.
    pub fn invalid(mut self, invalid: bool) -> Self {
        self.invalid = invalid;
        self
    }

    /// Shows the field. The response is the `TextEdit`'s: `changed()`, `lost_focus()`.
    pub fn show(self, ui: &mut Ui, text: &mut String) -> Response {
        let t = Tokens::of(ui);
        let (rect, _) = ui.allocate_exact_size(vec2(self.width, self.height), egui::Sense::hover());
        let left = if self.icon.is_some() { 24.0 } else { 6.0 };
        // The row of the monospace face sits half a pixel low. Two points less height correct that.
        let lift = if self.mono && !text.is_empty() { 2.0 } else { 0.0 };
        let inner = rect.inset(left, 0.0, 6.0, lift);
        ui.painter().rect_filled(rect, RADIUS_CONTROL, t.s1);
        let builder = UiBuilder::new().id_salt(self.name).max_rect(inner).layout(Layout::left_to_right(Align::Center));
        let mut child = ui.new_child(builder);
        // egui's minimal interaction height would make the text edit taller than the field and lower its text.
        child.spacing_mut().interact_size.y = 0.0;
        let kind = if self.mono { Type::Mono } else { Type::Body };
        let edit = TextEdit::singleline(text)
            .id_salt(self.name)
            .font(kind.font())
            .frame(egui::Frame::NONE)
            .margin(Margin::ZERO)
            .desired_width(inner.width())
            .align(egui::Align2::LEFT_CENTER)
            .text_color(t.text1)
            .hint_text(Type::Body.text(self.hint).color(t.text3));
        let response = child.add_sized(inner.size(), edit).accessible_name(self.name);
        response.widget_info(|| WidgetInfo::labeled(Role::TextInput, true, self.name));
        if self.icon == Some(Icon::Search) && ui.is_enabled() {
            take_focus(ui.ctx(), &response, self.is_query);
        }
        if let Some(icon) = self.icon {
            icon.paint(ui.painter(), rect.middle(rect.left() + 13.0), 14.0, t.text3);
        }
        let line = if response.has_focus() {
            t.accent
        } else if self.invalid {
            t.text2
        } else {
            t.line
        };
        ui.painter().rect_stroke(rect, RADIUS_CONTROL, Stroke::new(1.0, line), StrokeKind::Inside);
        response
    }
}

/// The frame in which "find in view" was requested. It is removed when a field takes the focus.
#[derive(Clone, Copy)]
struct Wanted(u64);

fn wanted() -> egui::Id {
    egui::Id::unique("find in view")
}

/// Makes the query field that is drawn next take the focus, or else a field with a magnifier.
pub fn ask_for_focus(ctx: &egui::Context) {
    let now = ctx.cumulative_frame_nr();
    ctx.data_mut(|d| d.insert_temp(wanted(), Wanted(now)));
    ctx.request_repaint();
}

/// True once, when no suitable field was drawn since the request.
pub fn has_no_new_focus(ctx: &egui::Context) -> bool {
    let now = ctx.cumulative_frame_nr();
    let Some(Wanted(since)) = ctx.data(|d| d.get_temp(wanted())) else { return false };
    if now <= since + 2 {
        ctx.request_repaint();
        return false;
    }
    ctx.data_mut(|d| d.remove::<Wanted>(wanted()));
    true
}

fn take_focus(ctx: &egui::Context, field: &Response, is_query: bool) {
    let Some(Wanted(since)) = ctx.data(|d| d.get_temp(wanted())) else { return };
    // In the first frame only query fields may take it.
    if is_query || ctx.cumulative_frame_nr() > since + 1 {
        ctx.data_mut(|d| d.remove::<Wanted>(wanted()));
        field.request_focus();
    }
}
