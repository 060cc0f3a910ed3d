//! The one table: columns that say what they show, rows that are sorted, chosen, moved through with the keyboard and copied as
//! text. Only visible rows are painted, and the scroll position is exact at any length.

use super::bar::Bar;
use super::button::{focus_ring, menu_entry};
use super::chip::Swatch;
use super::cut::Cut;
use super::icons::Icon;
use super::rows::RowList;
use super::{label, row, term};
use crate::app::jobs::identity::Identity;
use crate::app::theme::visuals::{PAD_PANE, ROW};
use crate::app::theme::{Tokens, Type};
use egui::{Color32, EventFilter, Id, Key, LayerId, Modifiers, Painter, Rect, Response, Role, Sense, Shape, Stroke, Ui};
use egui::{UiBuilder, WidgetInfo, vec2};
use std::borrow::Cow;
use std::sync::Arc;

/// The place of one column in one row, and what is painted there.
pub struct Cell<'a> {
    pub p: &'a Painter,
    pub t: &'a Tokens,
    pub rect: Rect,
}

impl Cell<'_> {
    /// A figure, in the monospace face at the right.
    pub fn figure(&self, text: impl AsRef<str>, ink: Color32) {
        label::figure(self.p, self.rect, text.as_ref(), ink);
    }

    pub fn text(&self, text: impl AsRef<str>, kind: Type, ink: Color32) -> Rect {
        label::text_in(self.p, self.rect, text.as_ref(), kind, ink)
    }

    pub fn right(&self, text: impl AsRef<str>, kind: Type, ink: Color32) -> Rect {
        label::text_in_right(self.p, self.rect, text.as_ref(), kind, ink)
    }

    /// A bar, where there is room for one.
    pub fn bar(&self, bar: &Bar) {
        if self.rect.width() > 24.0 {
            bar.paint(self.p, self.t, self.rect);
        }
    }

    /// Paints a swatch at the left. Returns the rest of the cell.
    pub fn swatch(&self, swatch: Swatch) -> Self {
        self.from(swatch.paint(self.p, self.t, self.rect.left_center()).right() + 6.0)
    }

    /// The part of the cell right of `left` on the screen.
    pub fn from(&self, left: f32) -> Self {
        Cell { rect: self.rect.with_min_x(left), ..*self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Width {
    /// Width in points.
    Exact(f32),
    /// A share of the width that the exact columns leave, but at least some points: `(share, least)`.
    Share(f32, f32),
}

impl Width {
    fn least(self) -> f32 {
        let (Width::Exact(least) | Width::Share(_, least)) = self;
        least
    }
}

/// A column of rows `R`. `K` names the column as what a table is sorted by.
pub struct Column<'a, R, K = ()> {
    title: Cow<'a, str>,
    width: Width,
    is_figure: bool,
    paint: Box<dyn Fn(&Cell<'_>, &R) + 'a>,
    sorts: Option<K>,
    begins_descending: bool,
    key: Option<Box<dyn Fn(usize) -> f64 + 'a>>,
    from: f32,
    goes: u8,
    term: Option<term::Term>,
}

impl<'a, R, K> Column<'a, R, K> {
    pub fn text(title: impl Into<Cow<'a, str>>, width: Width, paint: impl Fn(&Cell<'_>, &R) + 'a) -> Self {
        Self {
            title: title.into(),
            width,
            is_figure: false,
            paint: Box::new(paint),
            sorts: None,
            begins_descending: false,
            key: None,
            from: 0.0,
            goes: u8::MAX,
            term: None,
        }
    }

    /// Right aligned. The title has the unit if all values have the same.
    pub fn figure(title: impl Into<Cow<'a, str>>, width: f32, paint: impl Fn(&Cell<'_>, &R) + 'a) -> Self {
        let column = Self::text(title, Width::Exact(width), paint);
        Self { is_figure: true, begins_descending: true, ..column }
    }

    /// Hides the column in tables narrower than `width`.
    pub fn from(self, width: f32) -> Self {
        Self { from: width, ..self }
    }

    /// Where not all columns fit, those with the lowest number go first. Columns without a number stay.
    pub fn goes(self, order: u8) -> Self {
        Self { goes: order, ..self }
    }

    /// A click on the header sorts by `by`; the view brings the rows in that order.
    pub fn sorts(self, by: K) -> Self {
        Self { sorts: Some(by), ..self }
    }

    /// A click on the header sorts by `key`, which gets the index of a row.
    pub fn by(self, by: K, key: impl Fn(usize) -> f64 + 'a) -> Self {
        Self { sorts: Some(by), key: Some(Box::new(key)), ..self }
    }

    /// Whether the first click on the header sorts from the largest down, as it does for figures.
    pub fn descends(self, begins_descending: bool) -> Self {
        Self { begins_descending, ..self }
    }

    /// Explains the title on hover.
    pub fn term(self, term: Option<term::Term>) -> Self {
        Self { term, ..self }
    }
}

/// What a table is sorted by. With [`Column::by`] it also keeps the order of the rows.
#[derive(Clone, Debug)]
pub struct Sort<K> {
    pub by: K,
    pub descending: bool,
    known: Option<(K, bool, usize, Option<Identity>)>,
    rows: Arc<Vec<usize>>,
}

impl<K: Copy + PartialEq> Sort<K> {
    pub fn new(by: K, descending: bool) -> Self {
        Sort { by, descending, known: None, rows: Arc::default() }
    }

    fn toggle(&mut self, by: K, begins_descending: bool) {
        self.descending = if self.by == by { !self.descending } else { begins_descending };
        self.by = by;
    }

    /// The rows in order, where the column sorted by has a key. O(rows log rows) when something has changed.
    fn rows<R>(&mut self, rows: usize, of: &Option<Identity>, columns: &[Column<'_, R, K>]) -> Option<Arc<Vec<usize>>> {
        let key = columns.iter().find(|c| c.sorts == Some(self.by)).and_then(|c| c.key.as_ref())?;
        let known = Some((self.by, self.descending, rows, of.clone()));
        if self.known != known {
            let mut keyed: Vec<(f64, usize)> = (0..rows).map(|i| (key(i), i)).collect();
            keyed.sort_by(|a, b| if self.descending { b.0.total_cmp(&a.0) } else { a.0.total_cmp(&b.0) });
            self.rows = Arc::new(keyed.into_iter().map(|(_, i)| i).collect());
            self.known = known;
        }
        Some(Arc::clone(&self.rows))
    }
}

/// What happened in a table during a frame. Rows are told by their index before sorting.
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
    /// The rows in sight and their responses, for tooltips, menus and buttons.
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

    /// Shows a menu for a row. Returns the row in the frame in which it was asked for.
    pub fn menu(&self, contents: impl FnOnce(&mut Ui, usize)) -> Option<usize> {
        let (row, response) = self.seen.iter().find(|(_, r)| r.secondary_clicked() || r.context_menu_opened())?;
        response.context_menu(|ui| contents(ui, *row));
        response.secondary_clicked().then_some(*row)
    }

    /// A cell of a row in sight, if its column is shown.
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
    /// The place of the row that the keyboard is at.
    at: Option<usize>,
    /// The selection that was last brought into view.
    followed: Option<usize>,
}

impl<'a, R> Table<'a, R> {
    /// A table that is not sorted.
    pub fn plain(name: &'a str, columns: Vec<Column<'a, R>>) -> Self {
        Self::new(name, columns)
    }
}

impl<'a, R, K: Copy + PartialEq> Table<'a, R, K> {
    /// A table sorted by `sort`.
    pub fn sorted(name: &'a str, columns: Vec<Column<'a, R, K>>, sort: &'a mut Sort<K>) -> Self {
        Table { sort: Some(sort), ..Self::new(name, columns) }
    }

    /// What the rows are made of: they are sorted again when it is another.
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

    /// Brings a row into view.
    pub fn reveal(self, reveal: Option<usize>) -> Self {
        Self { reveal, ..self }
    }

    /// Draws 1 px lines between rows.
    pub fn lines(self) -> Self {
        Self { lines: true, ..self }
    }

    /// As high as its rows, inside something that scrolls.
    pub fn whole(self) -> Self {
        Self { is_whole: true, ..self }
    }

    /// Fill and edge of a row by its index and whether the pointer is on it, where they say more than what is selected.
    pub fn ground(self, ground: impl Fn(usize, bool) -> (Option<Color32>, Option<Color32>) + 'a) -> Self {
        Self { ground: Some(Box::new(ground)), ..self }
    }

    /// Shows header and rows in the available space. `row` makes what the columns paint of a row, `row_name` is its accessible
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
        let height = if self.is_whole { ROW + rows as f32 * self.row_height } else { space.height() };
        let (area, _) = ui.allocate_exact_size(vec2(space.width(), height), Sense::hover());
        let mut out = TableOutput { places: places(&self.columns, area.width(), self.gap, self.pads), ..TableOutput::default() };
        let (header, body) = (area.lines(0.0, ROW), area.with_min_y(area.top() + ROW));
        let heads = self.header(ui, id, header, &out.places);
        if heads.container_secondary_clicked() || heads.context_menu_opened() {
            heads.container_context_menu(|ui| {
                if menu_entry(ui, "Copy table", true) {
                    let rows = (0..rows.min(MOST_COPIED)).filter_map(item).filter_map(&row);
                    let lines: Vec<String> = rows.map(|row| self.copied(ui, &row)).collect();
                    let titles = self.columns.iter().map(|c| c.title.as_ref()).collect::<Vec<_>>().join("\t");
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
        let followed = self.selected.filter(|_| self.selected != kept.followed);
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
        let painter = ui.painter().with_clip_rect(body.intersect(ui.clip_rect()));
        for (place, rect) in kept.list.visible(body, rows, self.row_height) {
            let Some((i, shown)) = item(place).and_then(|i| Some((i, row(i)?))) else { continue };
            let rect = rect.with_max_x(body.right());
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
        focus_ring(ui, &table, 0);
        ui.data_mut(|d| d.insert_temp(id, kept));
        out
    }

    /// The titles, which sort. Returns the response of the whole header.
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
            ui.data_mut(|d| d.remove::<Kept>(id));
        }
        ui.painter().hline(rect.x_range(), rect.bottom() - 0.5, Stroke::new(1.0, Tokens::of(ui).line));
        child.allocate_rect(rect, Sense::hover())
    }

    /// The texts of a row, also where they are cut or their column has no room: what the cells paint is what is copied.
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
            texts.collect::<Vec<_>>().join(" ")
        };
        self.columns.iter().map(text).collect::<Vec<_>>().join("\t")
    }
}

/// Rows that are copied at most.
const MOST_COPIED: usize = 100_000;

/// Draws a title. Returns what it covers and whether it was clicked; it can be when `id` is given. The arrow of a figure is left
/// of its title, so that title and figures stay flush.
fn head(ui: &Ui, cell: Rect, title: &str, (kind, is_figure): (Type, bool), sorted: Option<bool>, id: Option<Id>) -> (Rect, bool) {
    let t = Tokens::of(ui);
    let response = id.map(|id| ui.interact(cell.expand2(vec2(4.0, 0.0)), id, Sense::click()));
    if let Some(response) = &response {
        response.widget_info(|| WidgetInfo::labeled(Role::Button, true, format!("Sort by {title}")));
        focus_ring(ui, response, 2);
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

/// The columns that fit, by their index, with their left and right edges from the table's left edge.
fn places<R, K>(columns: &[Column<'_, R, K>], width: f32, gap: f32, (before, after): (f32, f32)) -> Vec<(usize, f32, f32)> {
    let mut shown: Vec<usize> = (0..columns.len()).filter(|&i| width >= columns[i].from).collect();
    let room = |shown: &[usize]| width - before - after - gap * shown.len().saturating_sub(1) as f32;
    let least = |shown: &[usize]| shown.iter().map(|&i| columns[i].width.least()).sum::<f32>();
    while least(&shown) > room(&shown)
        && let Some(&first) = shown.iter().filter(|&&i| columns[i].goes < u8::MAX).min_by_key(|&&i| columns[i].goes)
    {
        shown.retain(|&i| i != first);
    }
    let (mut exact, mut shares) = (0.0, 0.0);
    for &i in &shown {
        match columns[i].width {
            Width::Exact(w) => exact += w,
            Width::Share(s, _) => shares += s,
        }
    }
    let left = (room(&shown) - exact).max(0.0);
    let mut x = before;
    let place = |i: usize| {
        let w = match columns[i].width {
            Width::Exact(w) => w,
            Width::Share(s, least) => (left * s / f32::max(shares, f32::MIN_POSITIVE)).max(least),
        };
        let place = (i, x, x + w);
        x += w + gap;
        place
    };
    shown.into_iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(width: f32) -> Column<'static, (), usize> {
        Column::figure("", width, |_, ()| {})
    }

    fn share(share: f32, least: f32) -> Column<'static, (), usize> {
        Column::text("", Width::Share(share, least), |_, ()| {})
    }

    #[test]
    fn shares_divide_what_is_left() {
        let columns = [figure(100.0), share(1.0, 20.0), share(3.0, 20.0), figure(60.0)];
        let p = places(&columns, 628.0, 12.0, (16.0, 16.0));
        // The last ends a padding before the edge.
        assert_eq!(p, [(0, 16.0, 116.0), (1, 128.0, 228.0), (2, 240.0, 540.0), (3, 552.0, 612.0)]);
        let narrow = places(&columns, 100.0, 12.0, (16.0, 16.0));
        assert!(narrow[1].2 - narrow[1].1 >= 20.0);
    }

    #[test]
    fn columns_give_way_in_their_order() {
        let columns = [figure(50.0), figure(50.0).goes(2), figure(50.0).goes(1), figure(50.0).from(500.0)];
        let shown = |width| places(&columns, width, 10.0, (5.0, 5.0)).into_iter().map(|p| p.0).collect::<Vec<_>>();
        assert_eq!(shown(500.0), [0, 1, 2, 3]);
        assert_eq!(shown(180.0), [0, 1, 2]);
        assert_eq!(shown(179.0), [0, 1]);
        assert_eq!(shown(10.0), [0]);
    }

    #[test]
    fn rows_follow_the_column_sorted_by() {
        let values = [3.0, 9.0, 3.0, 1.0];
        let columns = [figure(1.0).by(0, |i| values[i]), figure(1.0).sorts(1)];
        let of = None;
        let mut sort = Sort::new(0, true);
        assert_eq!(*sort.rows(4, &of, &columns).unwrap(), [1, 0, 2, 3], "equal rows keep their order");
        sort.toggle(0, true);
        assert_eq!(*sort.rows(4, &of, &columns).unwrap(), [3, 0, 2, 1]);
        assert_eq!(sort.rows(2, &of, &columns).unwrap().len(), 2);
        sort.toggle(1, true);
        assert!(sort.descending && sort.rows(4, &of, &columns).is_none(), "the view sorts this one");
    }
}
