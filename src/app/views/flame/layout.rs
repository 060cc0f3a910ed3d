//! Which frame of a flame graph stands where, and which rows its tree has: pure arithmetic.

use std::collections::{HashMap, HashSet};

use egui::{Rect, pos2};

use vramscope_core::compare::flame::{Flame, What};

/// One visible frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Index into [`Flame::nodes`].
    pub node: u32,
    /// Row from the top, the zoomed frame's own first.
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
    pub rows: u32,
    /// Frames thinner than asked for.
    pub folded: u64,
}

/// Room for the graph and for its tree: side by side where it is wide and low, else one under the other.
pub fn with_tree(area: Rect) -> (Rect, Rect) {
    if area.width() >= 1080.0 && area.height() < 480.0 {
        let x = (area.left() + area.width() * 0.54).round();
        (Rect::from_min_max(area.min, pos2(x, area.bottom())), Rect::from_min_max(pos2(x + 1.0, area.top()), area.max))
    } else {
        let y = area.top() + (area.height() * 0.5).clamp(80.0, area.height().max(80.0));
        (Rect::from_min_max(area.min, pos2(area.right(), y)), Rect::from_min_max(pos2(area.left(), y + 1.0), area.max))
    }
}

/// What hidden frames take away: for each frame with hidden ones at or below it, how much weight.
pub fn taken_away(flame: &Flame, hidden: &[u32]) -> HashMap<u32, u64> {
    let mut away: HashMap<u32, u64> = HashMap::new();
    let set: HashSet<u32> = hidden.iter().copied().collect();
    for &node in hidden {
        let path = flame.ancestors(node);
        // A frame below a hidden one is gone already.
        if path.iter().rev().skip(1).any(|a| set.contains(a)) {
            continue;
        }
        let Some(total) = flame.nodes.get(node as usize).map(|n| n.total) else { continue };
        for at in path {
            *away.entry(at).or_default() += total;
        }
    }
    away
}

/// Lays out `zoom` across the whole width and the frames below it under it. Frames narrower than `thinnest` (a share of the width)
/// are counted, not drawn; the weight of `away` is left out. O(frames drawn and their children).
pub fn lay_out(flame: &Flame, zoom: u32, thinnest: f64, away: &HashMap<u32, u64>) -> Layout {
    let mut layout = Layout::default();
    let left = |node: u32| {
        let total = flame.nodes.get(node as usize).map_or(0, |n| n.total);
        total.saturating_sub(away.get(&node).copied().unwrap_or(0))
    };
    if flame.nodes.get(zoom as usize).is_none() {
        return layout;
    }
    let whole = left(zoom).max(1) as f64;
    let mut level = vec![Cell { node: zoom, row: 0, from: 0.0, to: 1.0 }];
    while !level.is_empty() {
        let mut next = Vec::new();
        for parent in &level {
            let mut from = parent.from;
            for &child in &flame.nodes[parent.node as usize].children {
                let width = left(child) as f64 / whole;
                if width > 0.0 && width < thinnest {
                    layout.folded += 1;
                } else if width > 0.0 {
                    next.push(Cell { node: child, row: parent.row + 1, from, to: from + width });
                }
                from += width;
            }
        }
        layout.cells.append(&mut level);
        level = next;
    }
    layout.rows = layout.cells.iter().map(|c| c.row + 1).max().unwrap_or(0);
    layout
}

/// The frame at a row and a place across the width.
pub fn hit(layout: &Layout, row: u32, x: f64) -> Option<Cell> {
    let start = layout.cells.partition_point(|c| c.row < row);
    let end = layout.cells.partition_point(|c| c.row <= row);
    let cells = &layout.cells[start..end];
    let at = cells.partition_point(|c| c.from <= x).checked_sub(1)?;
    (x < cells[at].to).then_some(cells[at])
}

/// What the tree can be sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Weight through a frame.
    #[default]
    Total,
    /// Weight at B, where two instants are compared.
    After,
    /// Weight that ends in a frame.
    Own,
    Count,
    /// What was added since A.
    Change,
}

/// One row of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeRow {
    /// Index into [`Flame::nodes`].
    pub node: u32,
    pub depth: u32,
    /// Its children are shown below it.
    pub is_open: bool,
}

/// The rows of the tree below `zoom`. A frame is open when `toggled` has its key and it would be closed, or the other way round: the
/// top is open, and so is a frame that holds at least half of the one above it. O(rows).
pub fn tree_rows(flame: &Flame, zoom: u32, keys: &[u64], toggled: &HashSet<u64>, order: Order, descending: bool) -> Vec<TreeRow> {
    let mut rows = Vec::new();
    // Explicit, because a stack can be deeper than the thread's.
    let mut left = vec![(zoom, 0u32, true)];
    while let Some((node, depth, opens)) = left.pop() {
        let Some(n) = flame.nodes.get(node as usize) else { continue };
        let is_toggled = keys.get(node as usize).is_some_and(|k| toggled.contains(k));
        let is_open = !n.children.is_empty() && opens != is_toggled;
        rows.push(TreeRow { node, depth, is_open });
        if !is_open {
            continue;
        }
        let mut children = n.children.clone();
        let key = |c: &u32| {
            let c = &flame.nodes[*c as usize];
            match order {
                Order::Total => c.total as i64,
                Order::After => c.after as i64,
                Order::Own => c.own as i64,
                Order::Count => c.count as i64,
                Order::Change => c.after as i64 - c.before as i64,
            }
        };
        children.sort_by_key(key);
        // The last one pushed comes next.
        if !descending {
            children.reverse();
        }
        for child in children {
            let opens = opens && flame.nodes[child as usize].total.saturating_mul(2) >= n.total;
            left.push((child, depth + 1, opens));
        }
    }
    rows
}

/// True when a frame's colour should be quiet: it holds different things, or nobody's stack.
pub fn is_neutral(what: What) -> bool {
    matches!(what, What::All | What::NoStack | What::NoModule | What::Phase(None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramscope_core::compare::flame::Node;
    use vramscope_core::model::StackId;

    fn node(parent: u32, depth: u32, total: u64, children: &[u32]) -> Node {
        Node {
            what: What::All,
            parent,
            depth,
            total,
            own: total - if children.is_empty() { 0 } else { total.min(1) },
            count: u64::from(depth) * 10 + total,
            before: 0,
            after: total,
            common: 0,
            children: children.to_vec(),
            stack: StackId::NONE,
            role: None,
            mix: Vec::new(),
        }
    }

    fn flame() -> Flame {
        let nodes =
            vec![node(0, 0, 100, &[1, 2, 3]), node(0, 1, 60, &[4]), node(0, 1, 39, &[]), node(0, 1, 1, &[]), node(1, 2, 30, &[])];
        Flame { nodes, folded_frames: 0 }
    }

    #[test]
    fn the_tree_stands_beside_a_low_graph_and_under_a_high_one() {
        let pane = |w: f32, h: f32| Rect::from_min_size(pos2(0.0, 0.0), egui::vec2(w, h));
        let (graph, tree) = with_tree(pane(1600.0, 280.0));
        assert!(graph.right() < tree.left() && graph.height() == 280.0 && tree.height() == 280.0);
        let (graph, tree) = with_tree(pane(1600.0, 900.0));
        assert!(graph.bottom() < tree.top() && tree.width() == 1600.0);
        let (graph, tree) = with_tree(pane(700.0, 280.0));
        assert!(graph.bottom() < tree.top());
    }

    #[test]
    fn children_stand_under_their_parent_and_thin_ones_are_counted() {
        let l = lay_out(&flame(), 0, 0.02, &HashMap::new());
        assert_eq!((l.cells.len(), l.folded, l.rows), (4, 1, 3));
        assert_eq!(hit(&l, 1, 0.7).map(|c| c.node), Some(2));
        assert_eq!(hit(&l, 2, 0.1).map(|c| c.node), Some(4));
        assert_eq!(hit(&l, 2, 0.5), None);
        assert_eq!(hit(&l, 9, 0.5), None);
    }

    #[test]
    fn zooming_starts_at_the_zoomed_frame() {
        let l = lay_out(&flame(), 1, 0.0, &HashMap::new());
        assert_eq!(l.cells.iter().map(|c| (c.node, c.row)).collect::<Vec<_>>(), [(1, 0), (4, 1)]);
        assert!((l.cells[1].to - 0.5).abs() < 1e-12);
    }

    #[test]
    fn hidden_frames_leave_their_room_to_the_others() {
        let f = flame();
        let away = taken_away(&f, &[1, 4]);
        assert_eq!(away.get(&0), Some(&60), "a frame below a hidden one counts once");
        let l = lay_out(&f, 0, 0.0, &away);
        assert_eq!(l.cells.iter().map(|c| c.node).collect::<Vec<_>>(), [0, 2, 3]);
        assert!((l.cells[1].to - 39.0 / 40.0).abs() < 1e-12);
    }

    #[test]
    fn the_tree_opens_where_most_goes_and_where_asked() {
        let f = flame();
        let keys = f.nodes.iter().enumerate().map(|(i, _)| i as u64).collect::<Vec<_>>();
        let rows = |toggled: &[u64], order, descending| {
            let toggled = toggled.iter().copied().collect();
            tree_rows(&f, 0, &keys, &toggled, order, descending).iter().map(|r| (r.node, r.depth)).collect::<Vec<_>>()
        };
        assert_eq!(rows(&[], Order::Total, true), [(0, 0), (1, 1), (4, 2), (2, 1), (3, 1)]);
        assert_eq!(rows(&[1], Order::Total, true), [(0, 0), (1, 1), (2, 1), (3, 1)]);
        assert_eq!(rows(&[], Order::Total, false), [(0, 0), (3, 1), (2, 1), (1, 1), (4, 2)]);
        assert_eq!(rows(&[0], Order::Own, true), [(0, 0)]);
    }
}
