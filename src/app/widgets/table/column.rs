//! The columns of a table, what it is sorted by, and which columns fit.

use crate::app::jobs::identity::Identity;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::bar::Bar;
use crate::app::widgets::chip::Swatch;
use crate::app::widgets::{label, term};
use egui::{Color32, Painter, Rect};
use std::borrow::Cow;
use std::sync::Arc;

pub struct Cell<'a> {
    pub p: &'a Painter,
    pub t: &'a Tokens,
    pub rect: Rect,
}

impl Cell<'_> {
    /// Paints a figure: monospace, at the right.
    pub fn figure(&self, text: impl AsRef<str>, ink: Color32) {
        label::figure(self.p, self.rect, text.as_ref(), ink);
    }

    pub fn text(&self, text: impl AsRef<str>, kind: Type, ink: Color32) -> Rect {
        label::text_in(self.p, self.rect, text.as_ref(), kind, ink)
    }

    pub fn right(&self, text: impl AsRef<str>, kind: Type, ink: Color32) -> Rect {
        label::text_in_right(self.p, self.rect, text.as_ref(), kind, ink)
    }

    /// Paints a bar when there is room for it.
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

/// A column of rows `R`. `K` identifies the column that a table is sorted by.
pub struct Column<'a, R, K = ()> {
    pub(super) title: Cow<'a, str>,
    pub(super) width: Width,
    pub(super) is_figure: bool,
    pub(super) paint: Box<dyn Fn(&Cell<'_>, &R) + 'a>,
    pub(super) sorts: Option<K>,
    pub(super) begins_descending: bool,
    key: Option<Box<dyn Fn(usize) -> f64 + 'a>>,
    from: f32,
    goes: u8,
    pub(super) term: Option<term::Term>,
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

    /// When not all columns fit, those with the lowest number are hidden first. Columns without a number stay.
    pub fn goes(self, order: u8) -> Self {
        Self { goes: order, ..self }
    }

    /// A click on the header sorts by `by`. The view then provides the rows in that order.
    pub fn sorts(self, by: K) -> Self {
        Self { sorts: Some(by), ..self }
    }

    /// A click on the header sorts by `key`, which gets the index of a row.
    pub fn by(self, by: K, key: impl Fn(usize) -> f64 + 'a) -> Self {
        Self { sorts: Some(by), key: Some(Box::new(key)), ..self }
    }

    /// True when the first click on the header sorts descending, which is the default for figures.
    pub fn descends(self, begins_descending: bool) -> Self {
        Self { begins_descending, ..self }
    }

    pub fn term(self, term: Option<term::Term>) -> Self {
        Self { term, ..self }
    }
}

/// The column and direction that a table is sorted by. With [`Column::by`] it also keeps the order of the rows.
#[derive(Clone, Debug)]
pub struct Sort<K> {
    pub by: K,
    pub descending: bool,
    known: Option<(K, bool, usize, Option<Identity>)>,
    rows: Arc<Vec<usize>>,
}

/// Most first, by the default column.
impl<K: Default> Default for Sort<K> {
    fn default() -> Self {
        Sort { by: K::default(), descending: true, known: None, rows: Arc::default() }
    }
}

impl<K: Copy + PartialEq> Sort<K> {
    pub fn new(by: K, descending: bool) -> Self {
        Sort { by, descending, known: None, rows: Arc::default() }
    }

    pub(super) fn toggle(&mut self, by: K, begins_descending: bool) {
        self.descending = if self.by == by { !self.descending } else { begins_descending };
        self.by = by;
    }

    /// The rows in sort order, when the sorted column has a key. O(rows log rows) after a change.
    pub(super) fn rows<R>(
        &mut self,
        rows: usize,
        of: &Option<Identity>,
        columns: &[Column<'_, R, K>],
    ) -> Option<Arc<Vec<usize>>> {
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

/// The indices of the columns that fit, with their left and right edges from the table's left edge.
pub(super) fn places<R, K>(
    columns: &[Column<'_, R, K>],
    width: f32,
    gap: f32,
    (before, after): (f32, f32),
) -> Vec<(usize, f32, f32)> {
    let mut shown: Vec<usize> = (0..columns.len()).filter(|&i| width >= columns[i].from).collect();
    let room = |shown: &[usize]| width - before - after - gap * shown.len().saturating_sub(1) as f32;
    let least = |shown: &[usize]| shown.iter().map(|&i| columns[i].width.least()).sum::<f32>();
    while least(&shown) > room(&shown)
        && let Some(&first) = shown.iter().filter(|&&i| columns[i].goes < u8::MAX).min_by_key(|&&i| columns[i].goes)
    {
        shown.retain(|&i| i != first);
    }
    // Columns that need more than their share get their minimum; the rest of the width is shared among the others.
    let mut fixed: Vec<Option<f32>> = shown
        .iter()
        .map(|&i| match columns[i].width {
            Width::Exact(w) => Some(w),
            Width::Share(..) => None,
        })
        .collect();
    let share = |i: usize, unit: f32| match columns[i].width {
        Width::Share(s, _) => s * unit,
        Width::Exact(w) => w,
    };
    let unit = loop {
        let left = room(&shown) - fixed.iter().flatten().sum::<f32>();
        let shares: f32 = shown.iter().zip(&fixed).filter(|(_, f)| f.is_none()).map(|(&i, _)| share(i, 1.0)).sum();
        let unit = left.max(0.0) / shares.max(f32::MIN_POSITIVE);
        let mut small = false;
        for (&i, fixed) in shown.iter().zip(&mut fixed) {
            let least = columns[i].width.least();
            if fixed.is_none() && share(i, unit) < least {
                *fixed = Some(least);
                small = true;
            }
        }
        if !small {
            break unit;
        }
    };
    let mut x = before;
    let place = |(i, fixed): (usize, Option<f32>)| {
        let w = fixed.unwrap_or_else(|| share(i, unit));
        let place = (i, x, x + w);
        x += w + gap;
        place
    };
    shown.into_iter().zip(fixed).map(place).collect()
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
        // The last column ends one padding before the edge.
        assert_eq!(p, [(0, 16.0, 116.0), (1, 128.0, 228.0), (2, 240.0, 540.0), (3, 552.0, 612.0)]);
        let narrow = places(&columns, 100.0, 12.0, (16.0, 16.0));
        assert!(narrow[1].2 - narrow[1].1 >= 20.0);
        // A column that needs more than its share takes it from the others, not from the room at the right.
        let uneven = places(&[share(1.0, 100.0), share(3.0, 20.0)], 262.0, 10.0, (16.0, 16.0));
        assert_eq!(uneven, [(0, 16.0, 116.0), (1, 126.0, 246.0)]);
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
