//! What goes where on the ranks page: order of rows, bars, the grid of small curves. No egui but its geometry.

use egui::{Rect, pos2, vec2};

use crate::analysis::ranks::{Overview, RankRow};

/// A column of the ranks table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Its rank.
    Rank,
    /// The file.
    File,
    /// Highest reserved bytes.
    Peak,
    /// Reserved bytes at the end.
    End,
    /// Active bytes at the end.
    EndActive,
    /// What is odd about it.
    Remark,
}

impl Column {
    /// Every column, left to right.
    pub const ALL: [Column; 6] = [Column::Rank, Column::File, Column::Peak, Column::End, Column::EndActive, Column::Remark];

    /// Figures and remarks are asked for largest first, names in their order.
    #[must_use]
    pub fn is_descending_first(self) -> bool {
        !matches!(self, Column::Rank | Column::File)
    }
}

/// Positions of rows in the order shown. Equal rows stay in order of rank.
#[must_use]
pub fn order(rows: &[RankRow], overview: &Overview, (column, descending): (Column, bool)) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    let weight = |i: usize| {
        let row = &rows[i];
        (row.ooms > 0, overview.first_oom == Some(i), overview.outliers.contains(&i), row.is_cut_short)
    };
    order.sort_by(|&a, &b| {
        let (x, y) = (&rows[a], &rows[b]);
        let ordering = match column {
            Column::Rank => a.cmp(&b),
            Column::File => x.file.cmp(&y.file),
            Column::Peak => x.peak_reserved.cmp(&y.peak_reserved),
            Column::End => x.end_reserved.cmp(&y.end_reserved),
            Column::EndActive => x.end_active.cmp(&y.end_active),
            Column::Remark => weight(a).cmp(&weight(b)),
        };
        if descending { ordering.reverse() } else { ordering }
    });
    order
}

/// The bars of the chart of peaks: one a row, in order, each at least a pixel, with a gap when there is room.
#[must_use]
pub fn bar(area: Rect, at: usize, of: usize, share: f64) -> Rect {
    let width = area.width() / of.max(1) as f32;
    let gap = if width >= 6.0 { (width * 0.25).min(8.0) } else { 0.0 };
    let most = 48.0f32.min(width - gap).max(width.min(1.0));
    let left = area.left() + width * at as f32 + (width - most) / 2.0;
    let height = area.height() * share.clamp(0.0, 1.0) as f32;
    Rect::from_min_max(pos2(left, area.bottom() - height), pos2(left + most, area.bottom()))
}

/// The bar under a point, however high it is.
#[must_use]
pub fn bar_at(area: Rect, of: usize, x: f32) -> Option<usize> {
    if of == 0 || !area.x_range().contains(x) {
        return None;
    }
    Some((((x - area.left()) / area.width() * of as f32) as usize).min(of - 1))
}

/// The grid of small curves over a width: columns, and the size of a cell.
#[must_use]
pub fn grid(width: f32, rows: usize) -> (usize, egui::Vec2) {
    const LEAST: f32 = 168.0;
    const GAP: f32 = 12.0;
    let columns = (((width + GAP) / (LEAST + GAP)) as usize).clamp(1, rows.max(1));
    let cell = ((width + GAP) / columns as f32 - GAP).min(320.0);
    (columns, vec2(cell, 76.0))
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
    fn the_grid_fills_the_width() {
        for width in [100.0, 400.0, 900.0, 2000.0] {
            let (columns, cell) = grid(width, 512);
            let used = columns as f32 * (cell.x + 12.0) - 12.0;
            assert!(used <= width + 0.5 || columns == 1, "{width}: {columns} x {cell}");
        }
        assert_eq!(grid(900.0, 2).0, 2);
    }
}
