//! The table that all views use. Columns say what they show; rows can be sorted, selected, moved through with the keyboard and
//! copied as text. Only visible rows are painted, and the scroll position is exact at any length.

use super::button::menu_entry;
use super::cut::Cut;
use super::icons::Icon;
use super::rows::{BAR, RowList};
use super::{label, row, term};
use crate::app::jobs::identity::Identity;
use crate::app::theme::visuals::{PAD_PANE, ROW};
use crate::app::theme::{Tokens, Type};
use egui::{Color32, EventFilter, Id, Key, LayerId, Modifiers, Rect, Response, Role, Sense, Shape, Stroke, Ui};
use egui::{UiBuilder, WidgetInfo, vec2};
use std::sync::Arc;

mod column;

use column::places;
pub use column::{Cell, Column, Sort, Width};

/// What happened in a table during a frame. Rows are given by their index before sorting.
#[derive(Clone, Default)]
pub struct TableOutput {
    pub clicked: Option<usize>,
    pub double_clicked: Option<usize>,
    pub hovered: Option<usize>,
    /// The row that the keyboard moved to, and the one that Enter was pressed on.
    pub moved: Option<usize>,
    pub entered: Option<usize>,
    /// The row that the keyboard is at.
    pub focused: Option<usize>,
    /// The visible rows and their responses, for tooltips, menus and buttons.
    pub seen: Vec<(usize, Response)>,
    /// Index of each column that is shown, and its edges from the left of a row.
    places: Vec<(usize, f32, f32)>,
}

impl TableOutput {
    /// The row that was clicked or that the keyboard moved to.
    pub fn chosen(&self) -> Option<usize> {
        self.moved.or(self.clicked)
    }

    /// The row that was double clicked, or that Enter was pressed on.
    pub fn opened(&self) -> Option<usize> {
        self.double_clicked.or(self.entered)
    }

    /// Shows a context menu for a row. Returns the row in the frame in which the menu opens.
    pub fn menu(&self, contents: impl FnOnce(&mut Ui, usize)) -> Option<usize> {
        let (row, response) = self.seen.iter().find(|(_, r)| r.secondary_clicked() || r.context_menu_opened())?;
        response.context_menu(|ui| contents(ui, *row));
        response.secondary_clicked().then_some(*row)
    }

    /// A cell of a visible row; `None` when its column is hidden.
    pub fn cell(&self, row: Rect, column: usize) -> Option<Rect> {
        self.places.iter().find(|c| c.0 == column).map(|c| row.cell(c.1, c.2))
    }
}

pub struct Table<'a, R, K = ()> {
    name: &'a str,
    columns: Vec<Column<'a, R, K>>,
    row_height: f32,
    head: Type,
    gap: f32,
    pads: (f32, f32),
    selected: Option<usize>,
    reveal: Option<usize>,
    is_still: bool,
    sort: Option<&'a mut Sort<K>>,
    of: Option<Identity>,
    lines: bool,
    is_whole: bool,
    ground: Option<Box<dyn Fn(usize, bool) -> (Option<Color32>, Option<Color32>) + 'a>>,
}

/// What a table remembers from frame to frame.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    list: RowList,
    /// The position of the row that the keyboard is at.
    at: Option<usize>,
    /// The selection that was last brought into view.
    followed: Option<usize>,
}

impl<'a, R> Table<'a, R> {
    pub fn plain(name: &'a str, columns: Vec<Column<'a, R>>) -> Self {
        Self::new(name, columns)
    }
}

impl<'a, R, K: Copy + PartialEq> Table<'a, R, K> {
    pub fn sorted(name: &'a str, columns: Vec<Column<'a, R, K>>, sort: &'a mut Sort<K>) -> Self {
        Table { sort: Some(sort), ..Self::new(name, columns) }
    }

    /// What the rows are made from. When it changes, they are sorted again.
    pub fn of<T: std::any::Any + Send + Sync>(self, of: &Arc<T>) -> Self {
        Self { of: Some(Identity::of(of)), ..self }
    }

    fn new(name: &'a str, columns: Vec<Column<'a, R, K>>) -> Self {
        Table {
            name,
            columns,
            row_height: ROW,
            head: Type::Column,
            gap: 12.0,
            pads: (PAD_PANE, PAD_PANE),
            selected: None,
            reveal: None,
            is_still: false,
            sort: None,
            of: None,
            lines: false,
            is_whole: false,
            ground: None,
        }
    }

    /// Height of a row: 20 dense, 24, 32 to 36 with a bar.
    pub fn row_height(self, row_height: f32) -> Self {
        Self { row_height, ..self }
    }

    /// Titles in the quieter face of captions, for a table inside a view.
    pub fn captions(self) -> Self {
        Self { head: Type::Caption, ..self }
    }

    /// Room left of the first column, between columns, and right of the last.
    pub fn spaced(self, left: f32, gap: f32, right: f32) -> Self {
        Self { gap, pads: (left, right), ..self }
    }

    /// The selected row. It is brought into view when it changes.
    pub fn selected(self, selected: Option<usize>) -> Self {
        Self { selected, ..self }
    }

    /// Does not scroll when the selection changes.
    pub fn still(self) -> Self {
        Self { is_still: true, ..self }
    }

    pub fn reveal(self, reveal: Option<usize>) -> Self {
        Self { reveal, ..self }
    }

    pub fn lines(self) -> Self {
        Self { lines: true, ..self }
    }

    /// Makes the table as high as its rows, for use inside a scroll area. Its titles are as high as a row, without a line.
    pub fn whole(self) -> Self {
        Self { is_whole: true, ..self }
    }

    /// Fill and edge of a row, by its index and whether the pointer is on it. For rows that show more than the selection.
    pub fn ground(self, ground: impl Fn(usize, bool) -> (Option<Color32>, Option<Color32>) + 'a) -> Self {
        Self { ground: Some(Box::new(ground)), ..self }
    }

    /// Shows header and rows in the available space. `row` makes the value that the columns paint; `row_name` is its accessible
    /// name.
    pub fn show(
        mut self,
        ui: &mut Ui,
        rows: usize,
        row: impl Fn(usize) -> Option<R>,
        row_name: impl Fn(usize, &R) -> String,
    ) -> TableOutput {
        let t = Tokens::of(ui);
        let id = ui.scope_id().with(self.name);
        let order = self.sort.as_mut().and_then(|sort| sort.rows(rows, &self.of, &self.columns));
        let item = |place: usize| order.as_ref().map_or(Some(place), |o| o.get(place).copied()).filter(|_| place < rows);
        let space = ui.available_rect_before_wrap();
        let head = if self.is_whole { self.row_height } else { ROW };
        let height = if self.is_whole { head + rows as f32 * self.row_height } else { space.height() };
        let (area, _) = ui.allocate_exact_size(vec2(space.width(), height), Sense::hover());
        let mut out = TableOutput { places: places(&self.columns, area.width(), self.gap, self.pads), ..TableOutput::default() };
        let (header, body) = (area.lines(0.0, head), area.with_min_y(area.top() + head));
        let heads = self.header(ui, id, header, &out.places);
        if heads.container_secondary_clicked() || heads.context_menu_opened() {
            heads.container_context_menu(|ui| {
                ui.set_width(140.0);
                if menu_entry(ui, "Copy table", true) {
                    let rows = (0..rows.min(MOST_COPIED)).filter_map(item).filter_map(&row);
                    let lines: Vec<String> = rows.map(|row| self.copied(ui, &row)).collect();
                    let titles = self.worded().map(|c| c.title.as_ref()).collect::<Vec<_>>().join("\t");
                    ui.copy_text(std::iter::once(titles).chain(lines).collect::<Vec<_>>().join("\n"));
                }
            });
        }
        if !body.is_positive() {
            return out;
        }
        let table = ui.interact(body, id, Sense::click());
        table.widget_info(|| {
            let rows = vramscope_core::units::count(rows as u64);
            WidgetInfo::labeled(Role::Table, true, format!("{}, {rows}", vramscope_core::units::capital(self.name)))
        });
        let mut kept: Kept = ui.data(|d| d.get_temp(id)).unwrap_or_default();
        let seen = f64::from(body.height() / self.row_height);
        let followed = self.selected.filter(|_| !self.is_still && self.selected != kept.followed);
        kept.followed = self.selected;
        if let Some(place) =
            followed.or(self.reveal).and_then(|i| if order.is_some() { (0..rows).find(|&p| item(p) == Some(i)) } else { item(i) })
        {
            kept.at = Some(place);
            kept.list.scroll.reveal(place, seen);
        }
        if table.has_focus() {
            let (to, is_entered, is_clicked) = keys(ui, &table, kept.at, rows, seen as usize);
            if to != kept.at {
                kept.at = to;
                out.moved = to.and_then(item);
                kept.list.scroll.reveal(to.unwrap_or(0), seen);
            }
            let at = kept.at.and_then(item);
            (out.entered, out.clicked, out.focused) = (at.filter(|_| is_entered), at.filter(|_| is_clicked), at);
            let is_copied = ui.input(|i| i.events.iter().any(|e| matches!(e, egui::Event::Copy)));
            if let Some(row) = at.filter(|_| is_copied).and_then(&row) {
                ui.copy_text(self.copied(ui, &row));
            }
        }
        if !self.is_whole {
            kept.list.interact(ui, t, body, rows, self.row_height, &format!("Scroll {}", self.name));
        }
        // Rows end left of the scroll bar.
        let has_bar = kept.list.scroll.handle(rows, seen, body.height()).is_some();
        let right = body.right() - if has_bar { BAR } else { 0.0 };
        let painter = ui.painter().with_clip_rect(body.intersect(ui.clip_rect()));
        for (place, rect) in kept.list.visible(body, rows, self.row_height) {
            let Some((i, shown)) = item(place).and_then(|i| Some((i, row(i)?))) else { continue };
            let rect = rect.with_max_x(right);
            let response = ui.interact(rect.intersect(body), id.with(i), Sense::CLICK);
            let is_selected = self.selected == Some(i);
            response.widget_info(|| WidgetInfo::selected(Role::Row, ui.is_enabled(), is_selected, row_name(i, &shown)));
            let (fill, edge) = match &self.ground {
                Some(ground) => ground(i, response.hovered()),
                None if is_selected => (Some(t.accentbg), Some(t.accent)),
                None => (response.hovered().then_some(t.s2), None),
            };
            row::ground(&painter, rect, fill, edge);
            if self.lines {
                painter.hline(rect.x_range(), rect.bottom() - 0.5, Stroke::new(1.0, t.line));
            }
            if table.has_focus() && kept.at == Some(place) && !is_selected {
                painter.rect_stroke(rect, 2, Stroke::new(1.0, t.accent), egui::StrokeKind::Inside);
            }
            for &(column, left, right) in &out.places {
                (self.columns[column].paint)(&Cell { p: &painter, t, rect: rect.cell(left, right) }, &shown);
            }
            if response.clicked() || response.double_clicked() || response.secondary_clicked() {
                kept.at = Some(place);
                kept.followed = Some(i);
                table.request_focus();
            }
            out.clicked = response.clicked().then_some(i).or(out.clicked);
            out.double_clicked = response.double_clicked().then_some(i).or(out.double_clicked);
            out.hovered = response.hovered().then_some(i).or(out.hovered);
            out.seen.push((i, response));
        }
        ui.data_mut(|d| d.insert_temp(id, kept));
        out
    }

    /// Draws the titles; a click on one sorts. Returns the response of the whole header.
    fn header(&mut self, ui: &mut Ui, id: Id, rect: Rect, places: &[(usize, f32, f32)]) -> Response {
        let mut sorted = false;
        let mut child = ui.new_child(UiBuilder::new().id_salt((id, "header")).max_rect(rect));
        for &(i, left, right) in places {
            let column = &self.columns[i];
            let now = self.sort.as_ref().filter(|sort| column.sorts == Some(sort.by)).map(|sort| sort.descending);
            let id = column.sorts.map(|_| id.with(("sort", i)));
            let place = rect.cell(left, right);
            let (covered, is_clicked) = head(&child, place, &column.title, (self.head, column.is_figure), now, id);
            if let Some(sort) = self.sort.as_mut().filter(|_| is_clicked)
                && let Some(by) = column.sorts
            {
                sort.toggle(by, column.begins_descending);
                sorted = true;
            }
            if let Some(term) = column.term {
                term::explain_at(&child, covered, term);
            }
        }
        if sorted {
            // Starts at the top, also when the selected row is further down.
            let kept = Kept { followed: self.selected, ..Kept::default() };
            ui.data_mut(|d| d.insert_temp(id, kept));
        }
        if !self.is_whole {
            ui.painter().hline(rect.x_range(), rect.bottom() - 0.5, Stroke::new(1.0, Tokens::of(ui).line));
        }
        child.allocate_rect(rect, Sense::hover())
    }

    /// The texts of a row as the cells paint them, without cutting and with the columns that have no room.
    fn copied(&self, ui: &Ui, row: &R) -> String {
        let t = Tokens::of(ui);
        let layer = LayerId::new(egui::Order::Background, Id::unique("copied cells"));
        let p = &ui.painter().clone().with_layer_id(layer);
        let rect = Rect::from_min_size(egui::Pos2::ZERO, vec2(2_000.0, self.row_height));
        let text = |column: &Column<'_, R, K>| {
            (column.paint)(&Cell { p, t, rect }, row);
            let painted = ui.ctx().graphics_mut(|g| std::mem::take(g.entry(layer)));
            let texts = painted.all_entries().filter_map(|c| match &c.shape {
                Shape::Text(text) => Some(text.galley.text().to_owned()),
                _ => None,
            });
            // A text painted in two colours may be one word: an address, and how often it was reused.
            texts.reduce(|all, text| if text.starts_with('_') { all + &text } else { all + " " + &text }).unwrap_or_default()
        };
        self.worded().map(text).collect::<Vec<_>>().join("\t")
    }

    /// The columns without those that have only a swatch or a mark.
    fn worded(&self) -> impl Iterator<Item = &Column<'a, R, K>> {
        self.columns.iter().filter(|c| !c.title.is_empty() || !matches!(c.width, Width::Exact(w) if w <= MARK))
    }
}

/// A column without a title and no wider than this has a swatch or a mark.
const MARK: f32 = 24.0;
const MOST_COPIED: usize = 100_000;

/// Draws a title. Returns what it covers and whether it was clicked; only a title with an `id` can be clicked. For columns of
/// figures the arrow is left of the title, so that title and figures stay aligned.
fn head(ui: &Ui, cell: Rect, title: &str, (kind, is_figure): (Type, bool), sorted: Option<bool>, id: Option<Id>) -> (Rect, bool) {
    let t = Tokens::of(ui);
    let response = id.map(|id| ui.interact(cell.expand2(vec2(4.0, 0.0)), id, Sense::click()));
    if let Some(response) = &response {
        response.widget_info(|| WidgetInfo::labeled(Role::Button, true, format!("Sort by {title}")));
    }
    let is_lit = sorted.is_some() || response.as_ref().is_some_and(Response::hovered);
    let ink = if is_lit { t.text1 } else { t.text3 };
    let paint = if is_figure { label::text_in_right } else { label::text_in };
    let covered = paint(ui.painter(), cell, title, kind, ink);
    if let Some(descending) = sorted {
        let icon = if descending { Icon::SortDown } else { Icon::SortUp };
        let x = if is_figure { covered.left() - 7.0 } else { covered.right() + 7.0 };
        icon.paint(ui.painter(), cell.middle(x), 11.0, t.text2);
    }
    (covered, response.is_some_and(|r| r.clicked()))
}

/// Moves with the arrows and page keys. Returns the new place, and whether Enter and Space were pressed.
fn keys(ui: &Ui, table: &Response, at: Option<usize>, rows: usize, seen: usize) -> (Option<usize>, bool, bool) {
    let filter = EventFilter { vertical_arrows: true, ..EventFilter::default() };
    ui.memory_mut(|m| m.set_focus_lock_filter(table.id, filter));
    let presses = |key| ui.input_mut(|i| i.count_and_consume_key(Modifiers::NONE, key));
    let page = seen.saturating_sub(1).max(1);
    let down = presses(Key::ArrowDown) + page * presses(Key::PageDown);
    let up = presses(Key::ArrowUp) + page * presses(Key::PageUp);
    let last = rows.saturating_sub(1);
    let to = match (at, down + up > 0) {
        (None, true) => Some(0),
        (Some(at), true) => Some((at + down).min(last).saturating_sub(up)),
        (at, false) => at,
    };
    (to.filter(|_| rows > 0), presses(Key::Enter) > 0, presses(Key::Space) > 0)
}
