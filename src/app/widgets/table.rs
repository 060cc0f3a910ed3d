//! Tables: columns of fixed or shared width, right-aligned numbers, a header that sorts. Only visible rows are drawn.
//!
//! Rows are painted, not laid out, so the cost of a table of a million rows is the cost of its visible ones. Below 2 million rows
//! of 24 points egui's scroll offsets are exact to the row; filter longer tables first.

use super::button::focus_ring;
use super::cut::Cut;
use super::icons::Icon;
use super::label;
use super::row;
use super::row::ListRow;
use crate::app::theme::{Tokens, Type};
use egui::{Painter, Rect, Role, ScrollArea, Sense, Stroke, Ui, WidgetInfo, pos2, vec2};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Width {
    /// Width in points.
    Exact(f32),
    /// A share of the width that the exact columns leave, but at least some points: `(share, least)`.
    Share(f32, f32),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Column<'a> {
    /// Title in the header, with the unit if all values have the same.
    pub title: &'a str,
    /// Width without padding.
    pub width: Width,
    pub right: bool,
    /// A click on the header sorts by this column.
    pub sorts: bool,
    /// Table width from which on the column is shown.
    pub from: f32,
}

impl<'a> Column<'a> {
    pub fn text(title: &'a str, width: Width) -> Self {
        Self { title, width, right: false, sorts: false, from: 0.0 }
    }

    pub fn figure(title: &'a str, width: f32) -> Self {
        Self { title, width: Width::Exact(width), right: true, sorts: false, from: 0.0 }
    }

    /// Hides the column in tables narrower than `width`, so that no cell is cut.
    pub fn from(mut self, width: f32) -> Self {
        self.from = width;
        self
    }

    /// Makes the column sortable.
    pub fn sorts(mut self) -> Self {
        self.sorts = true;
        self
    }
}

/// What happened in a table during a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableOutput {
    pub clicked: Option<usize>,
    pub double_clicked: Option<usize>,
    pub hovered: Option<usize>,
    pub sort: Option<usize>,
    /// The row that has the keyboard focus, when rows can take it.
    pub focused: Option<usize>,
    /// The row that an arrow key moves to.
    pub moved: Option<usize>,
}

pub struct Table<'a> {
    name: &'a str,
    columns: &'a [Column<'a>],
    row_height: f32,
    selected: Option<usize>,
    sorted: Option<(usize, bool)>,
    scroll_to: Option<usize>,
    lines: bool,
    has_keys: bool,
    focus: Option<usize>,
}

const GAP: f32 = 12.0;

impl<'a> Table<'a> {
    /// A table. `name` tells it apart from others in the same pane.
    pub fn new(name: &'a str, columns: &'a [Column<'a>]) -> Self {
        Self {
            name,
            columns,
            row_height: 24.0,
            selected: None,
            sorted: None,
            scroll_to: None,
            lines: false,
            has_keys: false,
            focus: None,
        }
    }

    /// Height of a row: 20 dense, 24, 32 to 36 with a bar.
    pub fn row_height(mut self, height: f32) -> Self {
        self.row_height = height;
        self
    }

    pub fn selected(mut self, row: Option<usize>) -> Self {
        self.selected = row;
        self
    }

    /// The column it is sorted by, and whether descending.
    pub fn sorted(mut self, column: usize, descending: bool) -> Self {
        self.sorted = Some((column, descending));
        self
    }

    /// Scrolls this row into view in this frame.
    pub fn scroll_to(mut self, row: Option<usize>) -> Self {
        self.scroll_to = row;
        self
    }

    /// Draws 1 px lines between rows.
    pub fn lines(mut self) -> Self {
        self.lines = true;
        self
    }

    /// Lets rows take the keyboard focus with a click. Arrows then report the next row ([`TableOutput::moved`]); Enter and Space
    /// click. `focus` is the row that should get the focus; pass it until [`TableOutput::focused`] reports it.
    pub fn keys(mut self, focus: Option<usize>) -> Self {
        (self.has_keys, self.focus) = (true, focus);
        self
    }

    /// Shows header and rows in the available space. `paint(painter, row, cells)` paints a row into the cells of the columns that
    /// fit; each cell comes with the index of its column. `row_name` is the accessible name of a row.
    pub fn show(
        self,
        ui: &mut Ui,
        rows: usize,
        row_name: impl Fn(usize) -> String,
        mut paint: impl FnMut(&Painter, usize, &[(usize, Rect)]),
    ) -> TableOutput {
        let mut out = TableOutput::default();
        let width = ui.available_width();
        let shown: Vec<usize> = (0..self.columns.len()).filter(|&i| width >= self.columns[i].from).collect();
        let places = places(&shown.iter().map(|&i| self.columns[i]).collect::<Vec<_>>(), width);
        let places: Vec<(usize, (f32, f32))> = shown.into_iter().zip(places).collect();
        self.header(ui, &places, &mut out);
        let mut area = ScrollArea::vertical().id_salt(self.name).auto_shrink(false);
        if let Some(row) = self.scroll_to {
            let seen = ui.available_height();
            area = area.vertical_scroll_offset((row as f32 * self.row_height - (seen - self.row_height) / 2.0).max(0.0));
        }
        area.show_rows(ui, self.row_height, rows, |ui, range| {
            ui.spacing_mut().item_spacing.y = 0.0;
            if let Some(row) = self.focus.filter(|row| *row < rows) {
                // The row may be outside the drawn range, so its place is computed.
                let top = ui.max_rect().top() + (row as f32 - range.start as f32) * self.row_height;
                let place = Rect::from_min_size(pos2(ui.max_rect().left(), top), vec2(width, self.row_height));
                ui.scroll_to_rect(place, None);
            }
            for row in range {
                let name = row_name(row);
                let mut list_row = ListRow::new(&name).height(self.row_height).selected(self.selected == Some(row));
                if self.lines {
                    list_row = list_row.line();
                }
                let response = ui.push_id(row, |ui| list_row.show_painted(ui)).inner;
                let rect = response.rect;
                let cells: Vec<(usize, Rect)> = places.iter().map(|&(i, (a, b))| (i, cell(rect, a, b))).collect();
                paint(ui.painter(), row, &cells);
                out.clicked = response.clicked().then_some(row).or(out.clicked);
                out.double_clicked = response.double_clicked().then_some(row).or(out.double_clicked);
                out.hovered = response.hovered().then_some(row).or(out.hovered);
                if self.has_keys {
                    if response.clicked() || self.focus == Some(row) {
                        response.request_focus();
                    }
                    if response.has_focus() {
                        out.focused = Some(row);
                        // Keys may repeat faster than the focus moves, so count from the row that should have it.
                        out.moved = moved(ui, &response, self.focus.unwrap_or(row), rows).or(out.moved);
                    }
                }
            }
        });
        out
    }

    fn header(&self, ui: &mut Ui, places: &[(usize, (f32, f32))], out: &mut TableOutput) {
        let rect = row::line(ui, 24.0);
        for &(i, (a, b)) in places {
            let column = self.columns[i];
            let head = Head {
                title: column.title,
                is_figure: column.right,
                sorted: self.sorted.filter(|(c, _)| *c == i).map(|(_, descending)| descending),
            };
            let id = column.sorts.then(|| ui.scope_id().with((self.name, "sort", i)));
            if head.show(ui, cell(rect, a, b), id) {
                out.sort = Some(i);
            }
        }
        head_line(ui, rect);
    }
}

/// The part of a row or header between two offsets from its left edge.
pub fn cell(row: Rect, left: f32, right: f32) -> Rect {
    row.cell(left, right)
}

pub fn head_line(ui: &Ui, header: Rect) {
    ui.painter().hline(header.x_range(), header.bottom() - 0.5, Stroke::new(1.0, Tokens::of(ui).line));
}

/// Captions of columns that a view places itself, figures at the right of theirs, and the line below.
pub fn captions<'a>(ui: &Ui, header: Rect, columns: impl IntoIterator<Item = (&'a str, Rect, bool)>) {
    for (caption, place, is_figure) in columns {
        let paint = if is_figure { label::text_in_right } else { label::text_in };
        paint(ui.painter(), place, caption, Type::Caption, Tokens::of(ui).text3);
    }
    head_line(ui, header);
}

#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    pub title: &'a str,
    /// Right aligned. The sort arrow is left of the title, so that title and figures stay flush.
    pub is_figure: bool,
    /// Whether the order is descending, when the table is sorted by this column.
    pub sorted: Option<bool>,
}

impl Head<'_> {
    /// Draws the head. It can be clicked when `id` is given; returns true when it was.
    pub fn show(self, ui: &Ui, cell: Rect, id: Option<egui::Id>) -> bool {
        let t = Tokens::of(ui);
        let response = id.map(|id| ui.interact(cell.expand2(vec2(4.0, 0.0)), id, Sense::click()));
        if let Some(response) = &response {
            response.widget_info(|| WidgetInfo::labeled(Role::Button, true, format!("Sort by {}", self.title)));
            focus_ring(ui, response, 2);
        }
        let is_lit = self.sorted.is_some() || response.as_ref().is_some_and(egui::Response::hovered);
        let ink = if is_lit { t.text1 } else { t.text3 };
        let p = ui.painter();
        let covered = if self.is_figure {
            label::text_in_right(p, cell, self.title, Type::Column, ink)
        } else {
            label::text_in(p, cell, self.title, Type::Column, ink)
        };
        if let Some(descending) = self.sorted {
            let icon = if descending { Icon::SortDown } else { Icon::SortUp };
            let x = if self.is_figure { covered.left() - 7.0 } else { covered.right() + 7.0 };
            icon.paint(p, cell.middle(x), 11.0, t.text2);
        }
        response.is_some_and(|r| r.clicked())
    }
}

/// Left and right edges of the columns that fit, from the table's left edge. Columns named in `goes` are dropped first, in that
/// order; `rest` takes the remaining width.
pub fn fit<C: Copy + PartialEq>(mut shown: Vec<(C, f32)>, goes: &[C], rest: C, width: f32) -> Vec<(C, f32, f32)> {
    const PAD: f32 = 12.0;
    let needed = |shown: &[(C, f32)]| shown.iter().map(|c| c.1 + GAP).sum::<f32>() - GAP + 2.0 * PAD;
    for column in goes {
        if needed(&shown) <= width {
            break;
        }
        shown.retain(|c| c.0 != *column);
    }
    let spare = (width - needed(&shown)).max(0.0);
    let mut x = PAD;
    shown
        .into_iter()
        .map(|(column, least)| {
            let right = x + least + if column == rest { spare } else { 0.0 };
            let place = (column, x, right);
            x = right + GAP;
            place
        })
        .collect()
}

/// The row that an arrow key moves to while `row` has the focus.
fn moved(ui: &Ui, row_response: &egui::Response, row: usize, rows: usize) -> Option<usize> {
    let filter = egui::EventFilter { vertical_arrows: true, ..egui::EventFilter::default() };
    ui.memory_mut(|m| m.set_focus_lock_filter(row_response.id, filter));
    let presses = |key| ui.input_mut(|i| i.count_and_consume_key(egui::Modifiers::NONE, key));
    let to = (row + presses(egui::Key::ArrowDown)).min(rows.saturating_sub(1)).saturating_sub(presses(egui::Key::ArrowUp));
    (to != row).then_some(to)
}

/// The left and right edge of each column from the table's left edge, for a table `width` points wide.
pub fn places(columns: &[Column<'_>], width: f32) -> Vec<(f32, f32)> {
    let pad = crate::app::theme::visuals::PAD_PANE;
    let gaps = GAP * columns.len().saturating_sub(1) as f32;
    let (mut exact, mut shares) = (0.0, 0.0);
    for c in columns {
        match c.width {
            Width::Exact(w) => exact += w,
            Width::Share(s, _) => shares += s,
        }
    }
    let left = (width - 2.0 * pad - gaps - exact).max(0.0);
    let mut x = pad;
    columns
        .iter()
        .map(|c| {
            let w = match c.width {
                Width::Exact(w) => w,
                Width::Share(s, least) => (left * s / shares.max(f32::MIN_POSITIVE)).max(least),
            };
            let place = (x, x + w);
            x += w + GAP;
            place
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_divide_what_is_left() {
        let columns = [
            Column::text("block", Width::Exact(100.0)),
            Column::text("a", Width::Share(1.0, 20.0)),
            Column::text("b", Width::Share(3.0, 20.0)),
            Column::figure("size", 60.0),
        ];
        let p = places(&columns, 628.0);
        assert_eq!(p[0], (16.0, 116.0));
        assert_eq!(p[1], (128.0, 228.0));
        assert_eq!(p[2], (240.0, 540.0));
        assert_eq!(p[3], (552.0, 612.0), "ends a padding before the edge");
        let narrow = places(&columns, 100.0);
        assert!(narrow[1].1 - narrow[1].0 >= 20.0);
    }
}
