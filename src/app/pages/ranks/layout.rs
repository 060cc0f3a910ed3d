//! Layout of the ranks page: order of rows, columns, bars, the grid of small curves. Uses only egui's geometry.

use egui::{Rangef, Rect, Vec2, pos2, vec2};

use vramscope_core::compare::ranks::{Overview, RankRow};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Rank,
    File,
    Peak,
    PeakActive,
    /// Reserved bytes at the end.
    End,
    EndActive,
    /// The device index that the process used.
    Device,
    /// What is unusual about the rank.
    Remark,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listed {
    #[default]
    All,
    Failed,
    /// Only ranks whose peak is far from the median.
    Outliers,
}

impl Listed {
    /// The choices for this overview, with the number of rows of each. Choices without rows are left out.
    pub fn choices(rows: usize, overview: &Overview) -> Vec<(Listed, usize)> {
        let all = [(Listed::All, rows), (Listed::Failed, overview.failed), (Listed::Outliers, overview.outliers.len())];
        all.into_iter().filter(|(listed, many)| *listed == Listed::All || *many > 0).collect()
    }

    pub fn text(self) -> &'static str {
        match self {
            Listed::All => "All",
            Listed::Failed => "Out of memory",
            Listed::Outliers => "Outliers",
        }
    }
}

/// Row indices in display order. Equal rows keep the order of ranks.
pub fn order(rows: &[RankRow], overview: &Overview, listed: Listed, (column, descending): (Column, bool)) -> Vec<usize> {
    let is_listed = |i: &usize| match listed {
        Listed::All => true,
        Listed::Failed => rows[*i].ooms > 0,
        Listed::Outliers => overview.outliers.binary_search(i).is_ok(),
    };
    let mut order: Vec<usize> = (0..rows.len()).filter(is_listed).collect();
    let weight = |i: usize| {
        let row = &rows[i];
        (row.ooms > 0, overview.first_oom == Some(i), overview.outliers.contains(&i), row.is_cut_short)
    };
    order.sort_by(|&a, &b| {
        let (x, y) = (&rows[a], &rows[b]);
        if column == Column::Rank {
            return if descending { b.cmp(&a) } else { a.cmp(&b) };
        }
        let ordering = match column {
            Column::Rank => std::cmp::Ordering::Equal,
            Column::File => x.file.cmp(&y.file),
            Column::Device => x.device.cmp(&y.device),
            Column::Peak => x.peak_reserved.cmp(&y.peak_reserved),
            Column::PeakActive => x.peak_active.cmp(&y.peak_active),
            Column::End => x.end_reserved.cmp(&y.end_reserved),
            Column::EndActive => x.end_active.cmp(&y.end_active),
            Column::Remark => weight(a).cmp(&weight(b)),
        };
        // Rows that are not read yet have no figures to sort by.
        x.is_pending.cmp(&y.is_pending).then(if descending { ordering.reverse() } else { ordering })
    });
    order
}

/// A bar of the peaks chart: one per row, at least a pixel wide, with gaps when there is room.
pub fn bar(area: Rect, at: usize, of: usize, share: f64) -> Rect {
    let width = area.width() / of.max(1) as f32;
    let gap = if width >= 6.0 { (width * 0.25).min(8.0) } else { 0.0 };
    let most = 48.0f32.min(width - gap).max(width.min(1.0));
    let left = area.left() + width * at as f32 + (width - most) / 2.0;
    let height = area.height() * share.clamp(0.0, 1.0) as f32;
    Rect::from_min_max(pos2(left, area.bottom() - height), pos2(left + most, area.bottom()))
}

/// The mark under the bar of a rank that ran out of memory: as wide as the bar, with a visible minimum.
pub fn mark(area: Rect, bar: Rect) -> Rect {
    let width = bar.width().max(3.0);
    let left = (bar.center().x - width / 2.0).min(area.right() - width).max(area.left());
    Rect::from_min_size(pos2(left, area.bottom() + 1.0), vec2(width, 5.0))
}

/// The bar at a horizontal position, whatever its height.
pub fn bar_at(area: Rect, of: usize, x: f32) -> Option<usize> {
    if of == 0 || !area.x_range().contains(x) {
        return None;
    }
    Some((((x - area.left()) / area.width() * of as f32) as usize).min(of - 1))
}

/// Up to this many ranks are stacked, with bars in the table and large curves. More get a bar chart and small curves.
pub const FEW: usize = 12;

/// Step between labelled ranks under the bar chart, so that labels do not touch.
pub fn label_step(width: f32, of: usize, label: f32) -> usize {
    let each = width / of.max(1) as f32;
    let mut step = 1usize;
    while step < of && each * (step as f32) < label {
        step *= 2;
    }
    step
}

/// Places labels with given middles and widths in a row without overlap, in order of priority. Returns the left edge of each, or
/// `None` when it does not fit.
pub fn callouts(room: Rangef, wanted: &[(f32, f32)]) -> Vec<Option<f32>> {
    let mut taken: Vec<Rangef> = Vec::new();
    wanted
        .iter()
        .map(|&(middle, width)| {
            let left = (middle - width / 2.0).min(room.max - width).max(room.min);
            let place = Rangef::new(left, left + width);
            let is_free = width <= room.span() && taken.iter().all(|t| !t.expand(4.0).intersects(place));
            is_free.then(|| {
                taken.push(place);
                left
            })
        })
        .collect()
}

/// Points between two curves of the grid.
pub const GAP: f32 = 12.0;

/// The grid of small curves for a width: number of columns, size of a cell.
pub fn grid(width: f32, rows: usize) -> (usize, Vec2) {
    const LEAST: f32 = 168.0;
    let columns = (((width + GAP) / (LEAST + GAP)) as usize).clamp(1, rows.max(1));
    let cell = ((width + GAP) / columns as f32 - GAP).min(320.0);
    (columns, vec2(cell, 76.0))
}

/// The grid of large curves that fills `room`: number of columns, size of a cell. Cells are about twice as wide as high and keep
/// a readable height, even if the grid then exceeds the room.
pub fn large_grid(room: Vec2, rows: usize) -> (usize, Vec2) {
    let rows = rows.max(1);
    let cell = |columns: usize| {
        let lines = rows.div_ceil(columns) as f32;
        let width = (room.x + GAP) / columns as f32 - GAP;
        vec2(width, ((room.y + GAP) / lines - GAP).max(84.0))
    };
    let is_whole = |columns: usize| rows.is_multiple_of(columns);
    let best = (1..=rows)
        .filter(|&columns| columns == 1 || cell(columns).x >= 150.0)
        .max_by_key(|&columns| {
            let size = cell(columns);
            ((size.x.min(size.y * 2.2)) as u32 + if is_whole(columns) { 40 } else { 0 }, columns)
        })
        .unwrap_or(1);
    (best, cell(best))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_stay_inside_and_are_found_again() {
        let area = Rect::from_min_size(pos2(10.0, 20.0), vec2(600.0, 100.0));
        for of in [1, 7, 512, 2000] {
            for at in [0, of / 2, of - 1] {
                let bar = bar(area, at, of, 0.5);
                assert!(area.expand(0.01).contains_rect(bar), "{at} of {of}: {bar}");
                assert!(bar.width() > 0.0 && (bar.height() - 50.0).abs() < 0.01);
                assert_eq!(bar_at(area, of, bar.center().x), Some(at), "{at} of {of}");
            }
        }
        assert_eq!(bar_at(area, 0, 20.0), None);
        assert_eq!(bar_at(area, 5, 0.0), None);
    }

    #[test]
    fn large_curves_fill_their_room_and_stay_readable() {
        for rows in 1..=FEW {
            for room in [vec2(1570.0, 700.0), vec2(990.0, 300.0), vec2(700.0, 120.0)] {
                let (columns, cell) = large_grid(room, rows);
                let lines = rows.div_ceil(columns) as f32;
                assert!(columns as f32 * (cell.x + GAP) - GAP <= room.x + 0.5, "{rows} in {room}");
                let height = lines * (cell.y + GAP) - GAP;
                assert!(height <= room.y + 0.5 || cell.y <= 84.0, "{rows} in {room}: {height}");
            }
        }
        assert_eq!(large_grid(vec2(1570.0, 700.0), 2).0, 2);
        assert_eq!(large_grid(vec2(1570.0, 560.0), 8).0, 4, "two whole lines");
    }

    #[test]
    fn labels_of_bars_do_not_overlap() {
        assert_eq!((label_step(1500.0, 512, 36.0), label_step(1500.0, 16, 36.0)), (16, 1));
        let places = callouts(Rangef::new(0.0, 100.0), &[(2.0, 30.0), (20.0, 30.0), (95.0, 30.0), (50.0, 300.0)]);
        assert_eq!(places, [Some(0.0), None, Some(70.0), None]);
    }

    #[test]
    fn rows_not_read_yet_stand_last_except_by_rank() {
        let row = |peak, is_pending| RankRow { peak_reserved: peak, is_pending, ..RankRow::default() };
        let rows = [row(0, true), row(5, false), row(0, true), row(9, false)];
        let o = Overview::default();
        assert_eq!(order(&rows, &o, Listed::All, (Column::Rank, false)), [0, 1, 2, 3]);
        assert_eq!(order(&rows, &o, Listed::All, (Column::Peak, true)), [3, 1, 0, 2]);
        assert_eq!(order(&rows, &o, Listed::All, (Column::Peak, false)), [1, 3, 0, 2]);
    }

    #[test]
    fn those_that_failed_can_be_listed_alone() {
        let mut rows = vec![RankRow::default(); 4];
        (rows[1].ooms, rows[3].ooms) = (1, 2);
        let o = Overview { failed: 2, outliers: vec![2], ..Overview::default() };
        assert_eq!(order(&rows, &o, Listed::Failed, (Column::Rank, false)), [1, 3]);
        assert_eq!(order(&rows, &o, Listed::Outliers, (Column::Rank, false)), [2]);
        assert_eq!(Listed::choices(4, &o), [(Listed::All, 4), (Listed::Failed, 2), (Listed::Outliers, 1)]);
        assert_eq!(Listed::choices(4, &Overview::default()), [(Listed::All, 4)]);
    }

    #[test]
    fn a_mark_is_never_too_small_to_see() {
        let area = Rect::from_min_size(pos2(10.0, 20.0), vec2(600.0, 100.0));
        for at in [0, 700, 1999] {
            let mark = mark(area, bar(area, at, 2000, 0.5));
            assert!(mark.width() >= 3.0 && mark.height() >= 5.0 && area.x_range().contains(mark.left()), "{mark}");
            assert!(mark.right() <= area.right() && mark.top() > area.bottom());
        }
    }

    #[test]
    fn the_grid_fills_the_width() {
        for width in [100.0, 400.0, 900.0, 2000.0] {
            let (columns, cell) = grid(width, 512);
            let used = columns as f32 * (cell.x + 12.0) - 12.0;
            assert!(used <= width + 0.5 || columns == 1, "{width}: {columns} x {cell}");
        }
        assert_eq!(grid(900.0, 2).0, 2);
    }
}
