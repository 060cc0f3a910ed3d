//! Rows: key and value, term and definition, selectable list rows.

use super::cut::Cut;
use super::icons::Icon;
use super::label;
use crate::app::theme::visuals::{PAD_PANE, PAD_ROW, ROW};
use crate::app::theme::{Tokens, Type};
use egui::{Align, Color32, Layout, Painter, Rect, Response, Role, Sense, Ui, UiBuilder, WidgetInfo, pos2, vec2};

/// Reserves the full width for something that the caller paints.
pub fn line(ui: &mut Ui, height: f32) -> Rect {
    ui.allocate_exact_size(vec2(ui.available_width(), height), Sense::hover()).0
}

/// Like [`line()`], with a name for screen readers.
pub fn told<T: ToString>(ui: &mut Ui, height: f32, role: Role, name: impl Fn() -> T) -> (Rect, Response) {
    sensed(ui, height, Sense::hover(), role, name)
}

/// Like [`told`], and clickable.
pub fn clicked<T: ToString>(ui: &mut Ui, height: f32, role: Role, name: impl Fn() -> T) -> (Rect, Response) {
    sensed(ui, height, Sense::click(), role, name)
}

/// Gives something painted at `rect` a name for screen readers. `id` must be unique in the view.
pub fn told_at<T: ToString>(
    ui: &Ui,
    rect: Rect,
    id: impl std::hash::Hash + std::fmt::Debug,
    sense: Sense,
    role: Role,
    name: impl Fn() -> T,
) -> Response {
    let response = ui.interact(rect, ui.scope_id().with(id), sense);
    response.widget_info(|| WidgetInfo::labeled(role, true, name()));
    response
}

fn sensed<T: ToString>(ui: &mut Ui, height: f32, sense: Sense, role: Role, name: impl Fn() -> T) -> (Rect, Response) {
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), height), sense);
    response.widget_info(|| WidgetInfo::labeled(role, true, name()));
    (rect, response)
}

/// A row that opens or folds what it names, `pad` points from both sides. Returns whether it was clicked.
pub fn fold(ui: &mut Ui, text: &str, pad: f32) -> bool {
    let t = Tokens::of(ui);
    let (rect, response) = clicked(ui, 20.0, Role::Button, || text);
    let ink = if response.hovered() { t.text1 } else { t.text3 };
    let inner = rect.shrink2(vec2(pad, 0.0));
    Icon::ChevronRight.paint(ui.painter(), rect.middle(inner.left() + 4.0), 12.0, ink);
    let room = inner.with_min_x(inner.left() + 20.0);
    label::text_in(ui.painter(), room, text, Type::Body, ink);
    let is_cut = label::width(ui.painter(), text, Type::Body) > room.width();
    if is_cut { response.on_hover_text(text) } else { response }.clicked()
}

/// Paints a list row's background: its fill, and a 3 px edge at its left.
pub fn ground(painter: &Painter, rect: Rect, fill: Option<Color32>, edge: Option<Color32>) {
    if let Some(fill) = fill {
        painter.rect_filled(rect, 0, fill);
    }
    if let Some(edge) = edge {
        painter.rect_filled(rect.cell(0.0, 3.0), 0, edge);
    }
}

/// Label left in `text2`, value right aligned and monospace. 20 high.
pub struct KeyValue<'a> {
    label: &'a str,
    value: String,
    at: Option<f32>,
    colour: Option<Color32>,
    strong: bool,
    pad: f32,
}

impl<'a> KeyValue<'a> {
    pub fn new(label: &'a str, value: impl ToString) -> Self {
        Self { label, value: value.to_string(), at: None, colour: None, strong: false, pad: PAD_PANE }
    }

    /// Left aligns the value `x` points from the row's left edge, as the Inspector does.
    pub fn at(mut self, x: f32) -> Self {
        self.at = Some(x);
        self
    }

    /// Colours the value: red for out of memory, `text3` for stale or "not recorded".
    pub fn colour(mut self, colour: Color32) -> Self {
        self.colour = Some(colour);
        self
    }

    /// Writes label and value in `text1`, for the row that matters most.
    pub fn strong(mut self) -> Self {
        self.strong = true;
        self
    }

    /// Padding at both sides, 16 by default.
    pub fn pad(mut self, pad: f32) -> Self {
        self.pad = pad;
        self
    }

    /// Shows the row over the full width. Text that does not fit is cut and shown whole on hover.
    pub fn show(self, ui: &mut Ui) -> Response {
        let t = Tokens::of(ui);
        let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), 20.0), Sense::hover());
        response.widget_info(|| WidgetInfo::labeled(Role::Label, true, format!("{}: {}", self.label, self.value)));
        let inner = rect.shrink2(vec2(self.pad, 0.0));
        let p = ui.painter();
        let ink = self.colour.unwrap_or(t.text1);
        let value = label::elided(p, &self.value, Type::Mono, ink, inner.width() * 0.75);
        let x = self.at.map_or(inner.right() - value.size().x, |x| rect.left() + x);
        let value = if self.at.is_some() { label::elided(p, &self.value, Type::Mono, ink, inner.right() - x) } else { value };
        let room = inner.with_max_x(x - 8.0);
        let (kind, label_ink) = if self.strong { (Type::Strong, t.text1) } else { (Type::Body, t.text2) };
        label::text_in(p, room, self.label, kind, label_ink);
        let cut = value.elided;
        label::lay(p, inner.middle(x), value, ink);
        // A glossary term gets its explanation on hover; other rows show a value that was cut.
        if !super::term::explain_label(&response, self.label) && cut { response.on_hover_text(self.value) } else { response }
    }
}

pub fn key_value(ui: &mut Ui, label: &str, value: impl ToString) -> Response {
    KeyValue::new(label, value).show(ui)
}

/// A term in `text1` and its wrapped explanation `at` points from the left: "hole   free space between blocks".
pub fn definition(ui: &mut Ui, term: &str, text: &str, at: f32) {
    let t = Tokens::of(ui);
    let width = ui.available_width();
    let galley = {
        let mut job = egui::text::LayoutJob::default();
        job.append(text, 0.0, label::format(Type::Body, t.text2));
        job.wrap.max_width = (width - at).max(20.0);
        ui.painter().layout_job(job)
    };
    let (rect, response) = ui.allocate_exact_size(vec2(width, galley.size().y.max(16.0) + 6.0), Sense::hover());
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, format!("{term}: {text}")));
    let first = rect.lines(3.0, 19.0).cell(0.0, at - 8.0);
    label::text_in(ui.painter(), first, term, Type::Strong, t.text1);
    ui.painter().galley(pos2(rect.left() + at, rect.top() + 3.0), galley, t.text2);
}

/// A selectable row of a list: accent fill and edge when selected, a quiet fill under the pointer.
pub struct ListRow<'a> {
    name: &'a str,
    height: f32,
    selected: bool,
    edge: Option<Color32>,
    fill: Option<Color32>,
    pad: f32,
}

impl<'a> ListRow<'a> {
    /// A row 24 high. `name` is its accessible name.
    pub fn new(name: &'a str) -> Self {
        Self { name, height: ROW, selected: false, edge: None, fill: None, pad: PAD_ROW }
    }

    /// Height: 20 dense, 24, 32 to 36 with a bar, 52 with two lines.
    pub fn height(mut self, height: f32) -> Self {
        self.height = height;
        self
    }

    pub fn selected(mut self, selected: bool) -> Self {
        self.selected = selected;
        self
    }

    /// A 3 px edge in another colour than the accent (red: out of memory), drawn also when not selected.
    pub fn edge(mut self, colour: Color32) -> Self {
        self.edge = Some(colour);
        self
    }

    pub fn fill(mut self, colour: Color32) -> Self {
        self.fill = Some(colour);
        self
    }

    /// Padding at both sides, 12 by default.
    pub fn pad(mut self, pad: f32) -> Self {
        self.pad = pad;
        self
    }

    /// Shows the row over the full width. `contents` are laid out left to right, vertically centred.
    pub fn show(self, ui: &mut Ui, contents: impl FnOnce(&mut Ui)) -> Response {
        let pad = self.pad;
        let name = self.name;
        let response = self.show_painted(ui);
        let inner = response.rect.shrink2(vec2(pad, 0.0));
        let builder = UiBuilder::new().id_salt(name).max_rect(inner).layout(Layout::left_to_right(Align::Center));
        contents(&mut ui.new_child(builder));
        response
    }

    /// Shows an empty row; the caller paints over `response.rect`.
    pub fn show_painted(self, ui: &mut Ui) -> Response {
        let t = Tokens::of(ui);
        let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), self.height), Sense::click());
        response.widget_info(|| WidgetInfo::selected(Role::ListItem, ui.is_enabled(), self.selected, self.name));
        let p = ui.painter();
        let fill = match (self.selected, self.fill) {
            (true, _) => Some(t.accentbg),
            (false, Some(fill)) => Some(fill),
            (false, None) => response.hovered().then_some(t.s2),
        };
        ground(p, rect, fill, self.edge.or(self.selected.then_some(t.accent)));
        response
    }
}
