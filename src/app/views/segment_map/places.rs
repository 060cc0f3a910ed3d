//! Vertical positions of the segment map's rows.

use std::ops::Range;

use super::layout::{GROUP_HEIGHT, Plan, ROW_HEIGHTS};

/// With up to this many rows, rows may be higher than usual.
const FEW_ROWS: usize = 8;
/// Greatest height of such rows.
const FEW_ROWS_HEIGHT: f32 = 36.0;

/// Positions of rows and group headers, in points from the top of the scrolled area.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Places {
    pub tops: Vec<f32>,
    /// Top of each group header and the index of the group; empty when groups are not named.
    pub headers: Vec<(f32, u32)>,
    /// Height of a row including its gap.
    pub pitch: f32,
    pub height: f32,
}

impl Places {
    /// Stacks the rows of a plan. `pitch` is the height of a row including its gap.
    pub fn new(plan: &Plan, pitch: f32) -> Self {
        let mut places = Places { pitch, ..Places::default() };
        let mut y = 0.0;
        let mut group = u32::MAX;
        for row in &plan.rows {
            if plan.names_groups() && row.group != group {
                group = row.group;
                places.headers.push((y, group));
                y += GROUP_HEIGHT;
            }
            match places.tops.last() {
                Some(&top) if row.lead > 0 => places.tops.push(top),
                _ => {
                    places.tops.push(y);
                    y += pitch;
                }
            }
        }
        places.height = y;
        places
    }

    /// The row height that fills `room`, including the gap: 3 to 18 points, or more when there are few rows.
    pub fn automatic_pitch(plan: &Plan, room: f32) -> f32 {
        let headers = if plan.names_groups() { plan.groups.len() as f32 * GROUP_HEIGHT } else { 0.0 };
        let lines = plan.lines();
        let each = (room - headers) / lines.max(1) as f32;
        let most = if lines <= FEW_ROWS { FEW_ROWS_HEIGHT } else { ROW_HEIGHTS.1 };
        each.clamp(ROW_HEIGHTS.0, most).floor()
    }

    /// The rows that intersect a vertical range.
    pub fn between(&self, top: f32, bottom: f32) -> Range<usize> {
        let from = self.tops.partition_point(|&t| t + self.pitch <= top);
        let to = self.tops.partition_point(|&t| t < bottom);
        from..to.max(from)
    }

    /// The row at a height; when several share a line, the last of them.
    pub fn at(&self, y: f32) -> Option<usize> {
        let row = self.tops.partition_point(|&t| t <= y).checked_sub(1)?;
        (y < self.tops[row] + self.pitch).then_some(row)
    }
}
