//! Which frame of a flame graph stands where: pure arithmetic.

use crate::analysis::flame::Flame;

/// One visible frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Index into [`Flame::nodes`].
    pub node: u32,
    /// Row from the top; the ancestors of the zoomed frame come first.
    pub row: u32,
    /// Left edge, 0 to 1.
    pub from: f64,
    /// Right edge, 0 to 1.
    pub to: f64,
}

/// What is drawn, and what was too thin to draw.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    /// Frames by row, then from left to right.
    pub cells: Vec<Cell>,
    /// Rows needed.
    pub rows: u32,
    /// Frames thinner than asked for.
    pub folded: u64,
}

/// Lays out the frames below `zoom`, with its ancestors across the whole width above it. Frames narrower than `thinnest` (a share
/// of the width) are counted, not drawn. O(frames drawn).
#[must_use]
pub fn lay_out(flame: &Flame, zoom: u32, thinnest: f64) -> Layout {
    let mut layout = Layout::default();
    let Some(top) = flame.nodes.get(zoom as usize) else { return layout };
    let path = flame.ancestors(zoom);
    for (row, &node) in path.iter().enumerate() {
        layout.cells.push(Cell { node, row: row as u32, from: 0.0, to: 1.0 });
    }
    let whole = top.total.max(1) as f64;
    let first = path.len() as u32 - 1;
    let mut level = vec![Cell { node: zoom, row: first, from: 0.0, to: 1.0 }];
    while !level.is_empty() {
        let mut next = Vec::new();
        for parent in level {
            let mut from = parent.from;
            for &child in &flame.nodes[parent.node as usize].children {
                let width = flame.nodes[child as usize].total as f64 / whole;
                if width < thinnest {
                    layout.folded += 1;
                } else {
                    next.push(Cell { node: child, row: parent.row + 1, from, to: from + width });
                }
                from += width;
            }
        }
        layout.cells.extend(next.iter().copied());
        level = next;
    }
    layout.rows = layout.cells.iter().map(|c| c.row + 1).max().unwrap_or(0);
    layout
}

/// The frame at a row and a place across the width.
#[must_use]
pub fn hit(layout: &Layout, row: u32, x: f64) -> Option<Cell> {
    let start = layout.cells.partition_point(|c| c.row < row);
    let end = layout.cells.partition_point(|c| c.row <= row);
    let cells = &layout.cells[start..end];
    let at = cells.partition_point(|c| c.from <= x).checked_sub(1)?;
    (x < cells[at].to).then_some(cells[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::flame::{Node, What};
    use crate::model::StackId;

    fn node(parent: u32, depth: u32, total: u64, children: &[u32]) -> Node {
        Node {
            what: What::All,
            parent,
            depth,
            total,
            own: 0,
            count: 1,
            before: 0,
            after: total,
            common: 0,
            children: children.to_vec(),
            stack: StackId::NONE,
            category: None,
        }
    }

    fn flame() -> Flame {
        let nodes =
            vec![node(0, 0, 100, &[1, 2, 3]), node(0, 1, 60, &[4]), node(0, 1, 39, &[]), node(0, 1, 1, &[]), node(1, 2, 30, &[])];
        Flame { nodes, folded_frames: 0 }
    }

    #[test]
    fn children_stand_under_their_parent_and_thin_ones_are_counted() {
        let l = lay_out(&flame(), 0, 0.02);
        assert_eq!((l.cells.len(), l.folded, l.rows), (4, 1, 3));
        assert_eq!(hit(&l, 1, 0.7).map(|c| c.node), Some(2));
        assert_eq!(hit(&l, 2, 0.1).map(|c| c.node), Some(4));
        assert_eq!(hit(&l, 2, 0.5), None);
        assert_eq!(hit(&l, 9, 0.5), None);
    }

    #[test]
    fn zooming_keeps_the_ancestors_in_sight() {
        let l = lay_out(&flame(), 1, 0.0);
        assert_eq!(l.cells.iter().map(|c| (c.node, c.row)).collect::<Vec<_>>(), [(0, 0), (1, 1), (4, 2)]);
        assert!((l.cells[2].to - 0.5).abs() < 1e-12);
    }
}
