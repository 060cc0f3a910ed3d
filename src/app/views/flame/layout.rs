//! Layout of the flame graph and rows of its tree. Only arithmetic.

use std::collections::{HashMap, HashSet};

use egui::Rect;

use vramscope_core::compare::flame::{Flame, What};

/// From this many frames on, a chain in which each frame calls only the next one is drawn as one row until it is opened.
const LONG_CHAIN: u32 = 12;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Index into [`Flame::nodes`]; the outermost frame of a folded chain.
    pub node: u32,
    /// The frame whose children stand below: the innermost of a folded chain, otherwise `node` itself.
    pub last: u32,
    /// Number of frames that the cell stands for.
    pub frames: u32,
    /// Row from the top; the zoomed frame is in row 0.
    pub row: u32,
    /// Left edge, 0 to 1.
    pub from: f64,
    /// Right edge, 0 to 1.
    pub to: f64,
}

/// The visible frames, and the number of frames that are too thin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    /// Frames by row, then from left to right.
    pub cells: Vec<Cell>,
    pub rows: u32,
    /// Number of frames thinner than the limit.
    pub folded: u64,
}

/// Splits the area into graph and tree: side by side when it is wide and low, otherwise one below the other.
pub fn with_tree(area: Rect) -> (Rect, Rect) {
    if area.width() >= 1080.0 && area.height() < 480.0 {
        let x = (area.left() + area.width() * 0.54).round();
        (area.with_max_x(x), area.with_min_x(x + 1.0))
    } else {
        let y = area.top() + (area.height() * 0.5).clamp(80.0, area.height().max(80.0));
        (area.with_max_y(y), area.with_min_y(y + 1.0))
    }
}

/// The weight that hidden frames remove from each frame that is, or contains, a hidden one.
pub fn taken_away(flame: &Flame, hidden: &[u32]) -> HashMap<u32, u64> {
    let mut away: HashMap<u32, u64> = HashMap::new();
    let set: HashSet<u32> = hidden.iter().copied().collect();
    for &node in hidden {
        let path = flame.ancestors(node);
        // The frame is inside a hidden one and already removed.
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

/// The frames from `first` on that each call only the next one, up to where memory is allocated or paths split. Returns the last
/// of them and their number.
pub fn chain(flame: &Flame, first: u32) -> (u32, u32) {
    let only = |node: u32| match flame.nodes.get(node as usize) {
        Some(n) if n.own == 0 && n.children.len() == 1 => n.children.first().copied(),
        _ => None,
    };
    let (mut last, mut next, mut frames) = (first, only(first), 0);
    while let Some(inner) = next {
        frames += 1;
        next = only(inner);
        if next.is_some() {
            last = inner;
        }
    }
    (last, frames)
}

/// Lays out `zoom` over the whole width and its descendants below. Frames narrower than `thinnest` (a share of the width) are
/// only counted. The weight in `away` is subtracted. Long chains are folded unless `is_opened` holds for their first frame.
/// O(frames drawn or folded, and their children).
pub fn lay_out(flame: &Flame, zoom: u32, thinnest: f64, away: &HashMap<u32, u64>, is_opened: impl Fn(u32) -> bool) -> Layout {
    let mut layout = Layout::default();
    let left = |node: u32| {
        let total = flame.nodes.get(node as usize).map_or(0, |n| n.total);
        total.saturating_sub(away.get(&node).copied().unwrap_or(0))
    };
    if flame.nodes.get(zoom as usize).is_none() {
        return layout;
    }
    let whole = left(zoom).max(1) as f64;
    let mut level = vec![Cell { node: zoom, last: zoom, frames: 1, row: 0, from: 0.0, to: 1.0 }];
    while !level.is_empty() {
        let mut next = Vec::new();
        for parent in &level {
            let mut from = parent.from;
            let children = &flame.nodes[parent.last as usize].children;
            for &child in children {
                let width = left(child) as f64 / whole;
                if width > 0.0 && width < thinnest {
                    layout.folded += 1;
                } else if width > 0.0 {
                    let (last, frames) = match chain(flame, child) {
                        (last, frames) if frames >= LONG_CHAIN && !is_opened(child) => (last, frames),
                        _ => (child, 1),
                    };
                    next.push(Cell { node: child, last, frames, row: parent.row + 1, from, to: from + width });
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

/// The frames that a cell stands for, outermost first.
pub fn frames_of(flame: &Flame, cell: Cell) -> impl Iterator<Item = u32> {
    let inner = move |&node: &u32| {
        let children = flame.nodes.get(node as usize).filter(|_| node != cell.last)?;
        children.children.first().copied()
    };
    std::iter::successors(Some(cell.node), inner)
}

/// The frames that match, from the root down and heaviest first, as they are drawn.
pub fn in_order(flame: &Flame, hits: &[bool]) -> Vec<u32> {
    let (mut found, mut left) = (Vec::new(), vec![0u32]);
    while let Some(node) = left.pop() {
        let Some(n) = flame.nodes.get(node as usize) else { continue };
        if hits.get(node as usize).copied().unwrap_or(false) {
            found.push(node);
        }
        left.extend(n.children.iter().rev());
    }
    found
}

/// The frame at a row and a horizontal position (0 to 1).
pub fn hit(layout: &Layout, row: u32, x: f64) -> Option<Cell> {
    let start = layout.cells.partition_point(|c| c.row < row);
    let end = layout.cells.partition_point(|c| c.row <= row);
    let cells = &layout.cells[start..end];
    let at = cells.partition_point(|c| c.from <= x).checked_sub(1)?;
    (x < cells[at].to).then_some(cells[at])
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Weight of a frame with its descendants.
    #[default]
    Total,
    /// Weight at B, in a comparison.
    After,
    /// Weight that ends in the frame itself.
    Own,
    Count,
    /// Weight added since A.
    Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeRow {
    /// Index into [`Flame::nodes`].
    pub node: u32,
    pub depth: u32,
    pub is_open: bool,
}

/// The rows of the tree below `zoom`. By default the top is open, and every frame that holds at least half of its parent's
/// weight; `toggled` holds keys of frames that the user opened or closed. O(rows).
pub fn tree_rows(flame: &Flame, zoom: u32, keys: &[u64], toggled: &HashSet<u64>, order: Order, descending: bool) -> Vec<TreeRow> {
    let mut rows = Vec::new();
    // An explicit stack, because recursion on a deep call stack could overflow the thread's.
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
        // The last one pushed is next.
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

/// True when a frame should have a quiet colour, because it is a mixed group or has no stack.
pub fn is_neutral(what: What) -> bool {
    matches!(what, What::All | What::NoStack(_) | What::NoModule | What::Phase(None))
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
    fn matches_come_in_the_order_in_which_they_are_drawn() {
        let flame = flame();
        assert_eq!(in_order(&flame, &[false, true, true, false, true]), [1, 4, 2]);
        assert_eq!(in_order(&flame, &[false; 5]), Vec::<u32>::new());
        let cell = Cell { node: 1, last: 4, frames: 2, row: 1, from: 0.0, to: 0.6 };
        assert_eq!(frames_of(&flame, cell).collect::<Vec<_>>(), [1, 4]);
    }

    #[test]
    fn the_tree_stands_beside_a_low_graph_and_under_a_high_one() {
        let pane = |w: f32, h: f32| Rect::from_min_size(egui::Pos2::ZERO, egui::vec2(w, h));
        let (graph, tree) = with_tree(pane(1600.0, 280.0));
        assert!(graph.right() < tree.left() && graph.height() == 280.0 && tree.height() == 280.0);
        let (graph, tree) = with_tree(pane(1600.0, 900.0));
        assert!(graph.bottom() < tree.top() && tree.width() == 1600.0);
        let (graph, tree) = with_tree(pane(700.0, 280.0));
        assert!(graph.bottom() < tree.top());
    }

    #[test]
    fn children_stand_under_their_parent_and_thin_ones_are_counted() {
        let l = lay_out(&flame(), 0, 0.02, &HashMap::new(), |_| false);
        assert_eq!((l.cells.len(), l.folded, l.rows), (4, 1, 3));
        assert_eq!(hit(&l, 1, 0.7).map(|c| c.node), Some(2));
        assert_eq!(hit(&l, 2, 0.1).map(|c| c.node), Some(4));
        assert_eq!(hit(&l, 2, 0.5), None);
        assert_eq!(hit(&l, 9, 0.5), None);
    }

    #[test]
    fn zooming_starts_at_the_zoomed_frame() {
        let l = lay_out(&flame(), 1, 0.0, &HashMap::new(), |_| false);
        assert_eq!(l.cells.iter().map(|c| (c.node, c.row)).collect::<Vec<_>>(), [(1, 0), (4, 1)]);
        assert!((l.cells[1].to - 0.5).abs() < 1e-12);
    }

    #[test]
    fn a_long_chain_is_one_row_until_it_is_opened() {
        // The root, a chain of twenty frames, and two frames that the last of them calls.
        let mut nodes: Vec<Node> = (0..=20).map(|i| node(u32::max(i, 1) - 1, i, 10, &[i + 1])).collect();
        nodes.iter_mut().for_each(|n| n.own = 0);
        nodes[20].children = vec![21, 22];
        nodes.extend([node(20, 21, 6, &[]), node(20, 21, 4, &[])]);
        let flame = Flame { nodes, folded_frames: 0 };
        assert_eq!(chain(&flame, 1), (19, 19));
        let rows = |opened: u32| {
            let l = lay_out(&flame, 0, 0.0, &HashMap::new(), |n| n <= opened);
            (l.rows, l.cells.iter().map(|c| (c.node, c.frames)).collect::<Vec<_>>())
        };
        assert_eq!(rows(0), (4, vec![(0, 1), (1, 19), (20, 1), (21, 1), (22, 1)]));
        assert_eq!(rows(20).0, 22);
        assert_eq!(chain(&flame, 15), (19, 5), "what is left below an open frame is short");
    }

    #[test]
    fn hidden_frames_leave_their_room_to_the_others() {
        let f = flame();
        let away = taken_away(&f, &[1, 4]);
        assert_eq!(away.get(&0), Some(&60), "a frame below a hidden one counts once");
        let l = lay_out(&f, 0, 0.0, &away, |_| false);
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
