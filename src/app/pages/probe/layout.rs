//! Layout of the allocator's map: segments on one tape of memory, wrapped into rows like text.

/// Scale of the map and position of each segment on the tape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tape {
    /// Points per row.
    row: f32,
    bytes_per_point: f64,
    /// Start of each segment on the tape, in points.
    starts: Vec<f32>,
    pub rows: usize,
}

/// The part of a piece of tape that is in one row: the row, and its left and right edge in points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// Row, from the top.
    pub row: usize,
    pub left: f32,
    pub right: f32,
}

const GAP: f32 = 3.0;
/// Least width of a segment in points.
const LEAST: f32 = 2.0;

/// Lays segments of these sizes onto at most `rows` rows of `row` points. When there are too many, gaps vanish and segments
/// shrink to what their bytes need.
pub fn lay_out(sizes: &[u64], row: f32, rows: usize) -> Tape {
    let total: u64 = sizes.iter().sum();
    if total == 0 || row <= 0.0 || rows == 0 {
        return Tape { row: row.max(1.0), bytes_per_point: 1.0, starts: vec![0.0; sizes.len()], rows: 0 };
    }
    let room = row * rows as f32;
    let spare = (GAP + LEAST) * sizes.len() as f32;
    let gap = if spare < room * 0.5 { GAP } else { 0.0 };
    // Each row may lose its last points to a gap.
    let for_bytes = (room - (gap + if gap > 0.0 { LEAST } else { 0.0 }) * sizes.len() as f32 - rows as f32).max(room * 0.25);
    let bytes_per_point = total as f64 / f64::from(for_bytes);
    let mut at = 0.0f32;
    let starts = sizes
        .iter()
        .map(|&size| {
            let start = at;
            let length = (size as f64 / bytes_per_point) as f32;
            at += if gap > 0.0 { length.max(LEAST) + gap } else { length };
            start
        })
        .collect();
    Tape { row, bytes_per_point, starts, rows: ((at / row).ceil() as usize).clamp(1, rows.max(1)) }
}

impl Tape {
    /// The pieces covered by `size` bytes from `offset` of a segment.
    pub fn pieces(&self, segment: usize, offset: u64, size: u64) -> impl Iterator<Item = Piece> + use<> {
        let start = self.starts.get(segment).copied().unwrap_or(0.0);
        let from = start + (offset as f64 / self.bytes_per_point) as f32;
        let to = start + ((offset + size) as f64 / self.bytes_per_point) as f32;
        let row = self.row;
        let (first, last) = ((from / row).floor() as usize, ((to / row).ceil() as usize).max(1));
        (first..last).map(move |r| {
            let base = r as f32 * row;
            Piece { row: r, left: (from - base).max(0.0), right: (to - base).min(row) }
        })
    }

    /// The segment and the byte in it at a point of a row; `None` in a gap.
    pub fn hit(&self, row: usize, x: f32, sizes: &[u64]) -> Option<(usize, u64)> {
        let at = row as f32 * self.row + x;
        let segment = self.starts.partition_point(|&s| s <= at).checked_sub(1)?;
        let offset = (f64::from(at - self.starts[segment]) * self.bytes_per_point) as u64;
        (offset < *sizes.get(segment)?).then_some((segment, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_place_inside_the_rows() {
        for (sizes, row, rows) in [(vec![10u64, 20, 30], 100.0, 2), (vec![1 << 30; 64], 400.0, 12), (vec![7; 5000], 300.0, 10)] {
            let tape = lay_out(&sizes, row, rows);
            assert!(tape.rows <= rows);
            for (i, &size) in sizes.iter().enumerate() {
                for piece in tape.pieces(i, 0, size) {
                    assert!(piece.row < rows, "{piece:?} of {rows}");
                    assert!(piece.left >= 0.0 && piece.right <= row + 0.01 && piece.left <= piece.right, "{piece:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_drawn_can_be_pointed_at() {
        let sizes = [100u64, 300, 50];
        let tape = lay_out(&sizes, 200.0, 3);
        for (i, &size) in sizes.iter().enumerate() {
            for piece in tape.pieces(i, 0, size) {
                let middle = (piece.left + piece.right) / 2.0;
                assert_eq!(tape.hit(piece.row, middle, &sizes).map(|h| h.0), Some(i));
            }
        }
        assert_eq!(tape.hit(0, 1e9, &sizes), None);
        assert_eq!(lay_out(&[], 100.0, 5).rows, 0);
        assert_eq!(lay_out(&[1], 0.0, 5).rows, 0);
    }

    #[test]
    fn a_segment_longer_than_a_row_goes_on_in_the_next() {
        let tape = lay_out(&[1000], 100.0, 4);
        let pieces: Vec<Piece> = tape.pieces(0, 0, 1000).collect();
        assert!(pieces.len() >= 3, "{pieces:?}");
        assert!(pieces.windows(2).all(|p| p[1].row == p[0].row + 1 && p[1].left == 0.0));
    }
}
