//! A row of the tables of modules, lines and sizes.

use egui::{Color32, Rect, Response, Ui, vec2};

use super::ViewContext;
use super::layout;
use super::layout::Row;
use super::layout::{NARROW, SECOND, WIDE};
use crate::app::data::colours::role_paint;
use crate::app::theme::visuals::{PAD_PANE, PAD_ROW, ROW_DENSE};
use crate::app::theme::{Tokens, Type};
use crate::app::views::place_link::{openable, place_link};
use crate::app::widgets::{Cut, Icon, ListRow, Tip, label};
use vramscope_core::model::Frame;
use vramscope_core::units::{Bytes, count, counted};

/// True while the row's blocks stay bright because it was clicked.
pub(super) fn is_kept(cx: &ViewContext<'_>, row: &Row) -> bool {
    cx.shared.own.as_ref().is_some_and(|own| Some(&own.which) == row.which.as_ref())
}

/// A row for a module, a line or a size, and whether it was clicked. A click on the location of a line also opens the source.
pub(super) fn row(ui: &mut Ui, cx: &ViewContext<'_>, row: &Row, whole: u64) -> (Response, bool) {
    let t = cx.tokens;
    // Memory from before a trace has bytes but no known blocks.
    let blocks = if row.count == 0 { "\u{2013}".to_owned() } else { count(row.count) };
    let in_blocks = if row.count == 0 { String::new() } else { format!(" in {}", counted(row.count, "block", "blocks")) };
    let name = format!("{}: {} {}{in_blocks}", row.name, row.figure, layout::unit(whole));
    let response = ListRow::new(&name).height(ROW_DENSE).selected(is_kept(cx, row)).show_painted(ui);
    let columns = Columns::of(response.rect);
    let p = ui.painter();
    let left = response.rect.left() + PAD_PANE + 16.0 * row.depth as f32;
    let chevron = response.rect.middle(left + 5.0);
    match (row.is_open, row.role) {
        (Some(is_open), _) => {
            let icon = if is_open { Icon::ChevronDown } else { Icon::ChevronRight };
            icon.paint(p, chevron, 14.0, t.text3);
        }
        (None, Some(role)) => square(p, chevron, role_paint(role).colour(t)),
        _ => {}
    }
    let share = format!("{:.1}", row.bytes as f64 / whole.max(1) as f64 * 100.0);
    let figures = [(row.figure.as_str(), t.text1), (blocks.as_str(), t.text3), (share.as_str(), t.text3)];
    columns.figures(ui, &figures[..columns.shown()]);
    let room = response.rect.across(left + 16.0, columns.names_end(ui, row));
    let link = named(ui, cx, row, room);
    let mut tip = Tip::new(&row.name);
    if !row.roles.is_empty() {
        tip = tip.row(if row.roles.contains(',') { "roles" } else { "role" }, row.roles.clone());
    }
    let tip = tip
        .row("bytes", Bytes(row.bytes))
        .row("share", format!("{share} %"))
        .row("blocks", if row.count == 0 { "not recorded".to_owned() } else { blocks });
    let click = if row.which.is_some() { "Click shows it in the inspector and dims all other blocks." } else { "" };
    let source = if link.is_some() { "Its place opens the source." } else { "" };
    let note: Vec<&str> = [row.about, click, source].into_iter().filter(|said| !said.is_empty()).collect();
    tip.note(note.join(" ")).show(&response);
    // A selected row stays selected when its location is clicked to open the source.
    let is_clicked = response.clicked() || (link == Some(true) && !is_kept(cx, row));
    (response, is_clicked)
}

/// The name, which is a link for a line of code. Returns whether the link was clicked.
fn named(ui: &Ui, cx: &ViewContext<'_>, row: &Row, room: Rect) -> Option<bool> {
    let (t, p) = (cx.tokens, ui.painter());
    if let Some((frame, before, _)) = linked(cx, row) {
        return Some(place_link(ui, cx, frame, before, room, &row.key).1);
    }
    let (mut room, mut name) = (room, row.name.as_str());
    if let Some(rest) = name.strip_prefix("probably ") {
        room.min.x = label::text_in(p, room, "probably", Type::Caption, t.text3).right() + 4.0;
        name = rest;
    }
    let is_beside = row.depth > 0 || row.about == layout::NO_MODULE;
    let ink = if is_beside { t.text2 } else { t.text1 };
    if row.about == layout::NO_MODULE || row.which.is_none() {
        label::text_in(p, room, name, Type::Body, ink);
    } else {
        // Keeps the end, which has the class of a module or the line of a location.
        label::text_in(p, room, &label::without_start(p, name, Type::Body, room.width()), Type::Body, ink);
    }
    None
}

/// Splits "8 \u{d7} modeling_gpt2.py:608" into the text before the link and the location, which is the link. Modules are no
/// links: a click on one opens and selects it, and the inspector lists its lines.
fn linked<'a>(cx: &ViewContext<'_>, row: &'a Row) -> Option<(Frame, &'a str, String)> {
    let frame = openable(cx, row.line.filter(|_| row.role.is_some()))?;
    let place = cx.data.recording.stacks.location(frame);
    let before = row.name.strip_suffix(place.as_str())?.trim_end();
    Some((frame, before, place))
}

/// The right edges of a row's columns.
pub(super) struct Columns {
    pub(super) inner: Rect,
    width: f32,
}

impl Columns {
    pub(super) fn of(row: Rect) -> Self {
        let inner = row.inset(PAD_PANE, 0.0, PAD_ROW, 0.0);
        Columns { inner, width: row.width() }
    }

    /// The cell that ends at a column's right edge: the last column (0), the one before it, or in a wide pane a third.
    pub(super) fn at(&self, column: usize) -> Rect {
        self.inner.with_max_x(self.inner.right() - [0.0, SECOND, SECOND + 44.0][column.min(2)])
    }

    /// How many columns the rows of modules and lines have.
    pub(super) fn shown(&self) -> usize {
        match self.width {
            w if w < NARROW => 1,
            w if w < WIDE => 2,
            _ => 3,
        }
    }

    pub(super) fn captions(&self, ui: &Ui, texts: &[&str]) {
        for (i, text) in texts.iter().enumerate() {
            label::text_in_right(ui.painter(), self.at(i), text, Type::Column, Tokens::of(ui).text3);
        }
    }

    fn figures(&self, ui: &Ui, figures: &[(&str, Color32)]) {
        for (i, &(text, ink)) in figures.iter().enumerate() {
            label::figure(ui.painter(), self.at(i), text, ink);
        }
    }

    /// The end of a name that takes the room of all columns but the last.
    fn figure_left(&self, ui: &Ui, row: &Row) -> f32 {
        self.at(0).right() - label::width(ui.painter(), &row.figure, Type::Mono) - 8.0
    }

    fn names_end(&self, ui: &Ui, row: &Row) -> f32 {
        match self.shown() {
            1 => self.figure_left(ui, row),
            2 => self.at(1).right() - label::width(ui.painter(), &count(row.count), Type::Mono) - 8.0,
            _ => self.at(2).right() - 40.0,
        }
    }
}

pub(super) fn square(p: &egui::Painter, centre: egui::Pos2, ink: Color32) {
    p.rect_filled(Rect::from_center_size(centre, vec2(10.0, 10.0)), 0, ink);
}
