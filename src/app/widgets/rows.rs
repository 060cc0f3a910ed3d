//! A list of rows of equal height, exact at any length. Scroll positions count rows in f64, because with points in f32 the wheel
//! sticks near row 50 million.

use egui::{Rect, Role, Sense, Ui, WidgetInfo, pos2, vec2};

use crate::app::theme::Tokens;

/// Width of the scroll bar's column at the right.
pub const BAR: f32 = 10.0;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scroll {
    /// The row at the top edge. The fraction is the part of that row that is scrolled out.
    pub top: f64,
}

impl Scroll {
    /// Keeps the position inside a list of `rows`, of which `seen` fit.
    pub fn clamp(&mut self, rows: usize, seen: f64) {
        self.top = self.top.clamp(0.0, (rows as f64 - seen).max(0.0));
    }

    /// Scrolls as little as possible to show the whole row. A row that was far away comes to the middle.
    pub fn reveal(&mut self, row: usize, seen: f64) {
        let row = row as f64;
        if row < self.top || row + 1.0 > self.top + seen {
            let is_near = row > self.top - 2.0 && row < self.top + seen + 1.0;
            self.top = match (is_near, row < self.top) {
                (true, true) => row,
                (true, false) => row + 1.0 - seen,
                (false, _) => (row - (seen - 1.0) / 2.0).floor(),
            };
        }
    }

    /// Top and length of the scroll bar's handle in a track of `track` points; `None` when all rows fit.
    pub fn handle(&self, rows: usize, seen: f64, track: f32) -> Option<(f32, f32)> {
        let hidden = rows as f64 - seen;
        if hidden <= 0.0 {
            return None;
        }
        let length = (f64::from(track) * seen / rows as f64).max(24.0).min(f64::from(track));
        Some((((f64::from(track) - length) * self.top / hidden) as f32, length as f32))
    }

    /// Scrolls so that the handle's top is `at` points below the top of the track.
    pub fn drag(&mut self, at: f32, rows: usize, seen: f64, track: f32) {
        if let Some((_, length)) = self.handle(rows, seen, track) {
            let room = (track - length).max(1.0);
            self.top = f64::from(at.clamp(0.0, room)) / f64::from(room) * (rows as f64 - seen);
        }
    }
}

/// A scrolled list: its position, and where the user holds the handle of its scroll bar.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowList {
    pub scroll: Scroll,
    held: Option<f32>,
}

impl RowList {
    /// Handles the wheel, the page keys and the scroll bar of a list of `rows` over `body`. `name` is the bar's accessible name.
    pub fn interact(&mut self, ui: &Ui, tokens: &Tokens, body: Rect, rows: usize, row_height: f32, name: &str) {
        let seen = f64::from(body.height() / row_height);
        if ui.rect_contains_pointer(body) {
            let (wheel, pages) = ui.input(|i| {
                let pages = i64::from(i.key_pressed(egui::Key::PageDown)) - i64::from(i.key_pressed(egui::Key::PageUp));
                (i.smooth_scroll_delta().y, pages)
            });
            self.scroll.top -= f64::from(wheel / row_height);
            self.scroll.top += pages as f64 * (seen - 1.0);
        }
        self.bar(ui, tokens, body, rows, seen, name);
        self.scroll.clamp(rows, seen);
    }

    fn bar(&mut self, ui: &Ui, tokens: &Tokens, body: Rect, rows: usize, seen: f64, name: &str) {
        self.scroll.clamp(rows, seen);
        let Some((top, length)) = self.scroll.handle(rows, seen, body.height()) else { return };
        let track = body.with_min_x(body.right() - BAR);
        let response = ui.interact(track, ui.scope_id().with("scroll bar"), Sense::click_and_drag());
        response.widget_info(|| WidgetInfo::labeled(Role::ScrollBar, true, name));
        if let Some(at) = response.interact_pointer_pos() {
            let y = at.y - track.top();
            let held = *self.held.get_or_insert(if (top..top + length).contains(&y) { y - top } else { length / 2.0 });
            self.scroll.drag(y - held, rows, seen, body.height());
        } else {
            self.held = None;
        }
        let (top, length) = self.scroll.handle(rows, seen, body.height()).unwrap_or((top, length));
        let ink = if response.hovered() || response.dragged() { tokens.text3 } else { tokens.line2 };
        let handle = Rect::from_min_size(pos2(track.left() + 3.0, track.top() + top), vec2(5.0, length));
        ui.painter().rect_filled(handle, 2, ink);
    }

    /// The visible rows, each with its rectangle left of the scroll bar. The first and the last may reach outside `body`.
    pub fn visible(&self, body: Rect, rows: usize, row_height: f32) -> impl Iterator<Item = (usize, Rect)> + use<> {
        let first = self.scroll.top.floor() as usize;
        let offset = ((self.scroll.top - self.scroll.top.floor()) as f32 * row_height).round();
        let count = (body.height() / row_height).ceil() as usize + 1;
        (first..(first + count).min(rows)).enumerate().map(move |(i, row)| {
            let top = body.top() - offset + i as f32 * row_height;
            (row, Rect::from_min_size(pos2(body.left(), top), vec2(body.width() - BAR, row_height)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifty_million_rows_are_exact_to_the_row() {
        let rows = 50_000_000;
        let mut s = Scroll::default();
        s.reveal(49_999_998, 20.0);
        s.clamp(rows, 20.0);
        assert_eq!(s.top, 49_999_980.0);
        s.reveal(25_000_001, 20.0);
        assert_eq!(s.top, 24_999_991.0, "in the middle, on a whole row");
        let before = s;
        s.reveal(25_000_005, 20.0);
        assert_eq!(s, before, "what is seen stays where it is");
        s.top += 0.1;
        assert!((s.top - before.top - 0.1).abs() < 1e-6, "a tenth of a row is not lost");
        let (top, length) = s.handle(rows, 20.0, 400.0).unwrap();
        assert!(length >= 24.0 && top + length <= 400.0);
        s.drag(376.0, rows, 20.0, 400.0);
        assert_eq!(s.top, 49_999_980.0);
    }

    #[test]
    fn a_neighbour_scrolls_by_a_row() {
        let mut s = Scroll { top: 10.0 };
        s.reveal(30, 20.0);
        assert_eq!(s.top, 11.0);
        s.reveal(10, 20.0);
        assert_eq!(s.top, 10.0);
        s.clamp(5, 20.0);
        assert_eq!(s.top, 0.0);
        assert_eq!(s.handle(5, 20.0, 100.0), None);
    }

    #[test]
    fn what_is_seen_covers_the_body() {
        let mut list = RowList::default();
        list.scroll.top = 49_999_980.5;
        let body = Rect::from_min_size(pos2(0.0, 100.0), vec2(200.0, 90.0));
        let seen: Vec<(usize, Rect)> = list.visible(body, 50_000_000, 20.0).collect();
        assert_eq!(seen[0].0, 49_999_980);
        assert!(seen[0].1.top() < body.top() && seen.last().is_some_and(|s| s.1.bottom() >= body.bottom()));
        assert!(seen.windows(2).all(|w| w[0].1.bottom() == w[1].1.top()));
        assert_eq!(list.visible(body, 0, 20.0).count(), 0);
    }
}
