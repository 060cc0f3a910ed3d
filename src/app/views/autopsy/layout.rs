//! Positions of the parts of the autopsy: side by side in a wide pane, otherwise one below the other. Only arithmetic.

use egui::Rect;

use super::segments::FEW;
use crate::app::widgets::Cut;

/// From this width on, the verdict has its own column.
const WIDE: f32 = 860.0;
/// From this width on, the table and the settings are side by side.
const SIDE_BY_SIDE: f32 = 820.0;
/// The least height at which the four bars of the request are distinguishable.
const REQUEST: f32 = 180.0;
/// The least height of the segments, without the text about what to free.
const SEGMENTS: f32 = 120.0;
const TABLE: f32 = 190.0;

/// What has to be shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// False for a file without segments, which has no pictures.
    pub has_segments: bool,
    /// False for a full device, where holes do not matter.
    pub has_holes: bool,
    /// Number of segments that could serve the request, one row each.
    pub rows: usize,
    /// Height of the text about what to free.
    pub room_plan: f32,
}

/// Rectangles of the pictures, and of the tables below them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Parts {
    pub request: Option<Rect>,
    pub holes: Option<Rect>,
    pub table: Rect,
    pub settings: Rect,
    /// The height of everything. When it exceeds the pane, the pane scrolls.
    pub height: f32,
}

/// The verdict's column and the rest, when the pane is wide enough for both.
pub(super) fn columns(pane: Rect) -> Option<(Rect, Rect)> {
    (pane.width() >= WIDE).then(|| {
        let x = pane.left() + 320.0f32.min(pane.width() * 0.4);
        (pane.with_max_x(x), pane.with_min_x(x + 1.0))
    })
}

/// Divides `room`, of which `seen` points are visible at once.
pub(super) fn parts(room: Rect, seen: f32, wanted: Wanted) -> Parts {
    let request = if wanted.has_segments { 250.0f32.min(seen * 0.30).max(REQUEST) } else { 0.0 };
    let holes = match (wanted.has_holes, wanted.rows) {
        (false, _) => 0.0,
        // A header, a sentence, and what to free.
        (true, 0) => 28.0 + 34.0 + wanted.room_plan,
        // With few rows, their own height is enough.
        (true, rows) => {
            let enough = 28.0 + 14.0 + if rows <= FEW { 42.0 } else { 22.0 } * rows as f32 + wanted.room_plan;
            let share = 260.0f32.min(seen * 0.32).max(28.0 + SEGMENTS + wanted.room_plan);
            // Few rows are shown in full as long as the tables keep enough room.
            enough.min(if rows <= FEW { share.max(seen - request - 1.5 * TABLE) } else { share })
        }
    };
    let beside = room.width() > SIDE_BY_SIDE;
    let least = if beside { TABLE } else { 2.0 * TABLE };
    let below = (seen - request - holes).max(least);
    let strip = |top: f32, height: f32| room.down(top, top + height);
    let first = strip(room.top(), request);
    let second = strip(first.bottom(), holes);
    let rest = strip(second.bottom(), below);
    let (table, settings) = if beside {
        let x = (rest.left() + rest.width() * 0.58).round();
        (rest.with_max_x(x), rest.with_min_x(x + 1.0))
    } else {
        let y = (rest.top() + below * 0.5).round();
        (rest.with_max_y(y), rest.with_min_y(y))
    };
    let shown = |rect: Rect| (rect.height() > 0.0).then_some(rect);
    Parts { request: shown(first), holes: shown(second), table, settings, height: request + holes + below }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Wanted = Wanted { has_segments: true, has_holes: true, rows: 4, room_plan: 42.0 };

    fn pane(width: f32, height: f32) -> Rect {
        Rect::from_min_size(egui::pos2(10.0, 20.0), egui::vec2(width, height))
    }

    #[test]
    fn parts_follow_each_other_and_none_is_too_low_to_read() {
        for (width, height) in [(1600.0, 912.0), (1024.0, 584.0), (800.0, 384.0), (420.0, 300.0)] {
            let whole = pane(width, height);
            let room = columns(whole).map_or(whole, |c| c.1);
            let p = parts(room, height, ALL);
            let (request, holes) = (p.request.expect("segments"), p.holes.expect("segments"));
            assert!(request.height() >= REQUEST && holes.height() >= SEGMENTS + 42.0, "{width}");
            assert_eq!((request.bottom(), holes.bottom()), (holes.top(), p.table.top()), "{width}");
            for table in [p.table, p.settings] {
                assert!(table.height() >= TABLE - 1.0, "{width}");
                assert!(table.top() >= holes.bottom() && table.bottom() <= room.top() + p.height + 0.5, "{width}");
            }
            assert!(!p.table.shrink(1.0).intersects(p.settings.shrink(1.0)), "{width}");
        }
    }

    #[test]
    fn a_large_pane_is_filled_and_not_more() {
        let (left, right) = columns(pane(1600.0, 912.0)).expect("wide");
        assert_eq!((left.width(), right.width()), (320.0, 1279.0));
        let p = parts(right, 912.0, ALL);
        assert_eq!((p.height, p.request.map(|r| r.height())), (912.0, Some(250.0)));
        assert!(p.settings.left() > p.table.right(), "side by side");
        assert_eq!(columns(pane(800.0, 400.0)), None, "one column");
    }

    #[test]
    fn what_there_is_nothing_of_takes_no_room() {
        let room = pane(1279.0, 912.0);
        let none = parts(room, 912.0, Wanted { has_segments: false, has_holes: false, rows: 0, room_plan: 20.0 });
        assert_eq!((none.request, none.holes, none.table.top()), (None, None, room.top()));
        let no_rows = parts(room, 912.0, Wanted { has_segments: true, has_holes: true, rows: 0, room_plan: 20.0 });
        let one = parts(room, 912.0, Wanted { rows: 1, ..ALL }).holes.expect("a row");
        assert!(one.height() < 130.0, "a row and the way out");
        assert!(no_rows.holes.expect("the way out is told").height() < 100.0);
    }
}
