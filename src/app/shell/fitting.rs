//! Fits a workspace into a small window: hides panes and resizes the others. The user's own arrangement returns when there is
//! room again.

use egui::{Vec2, vec2};
use egui_tiles::{Container, LinearDir, Shares, Tile, TileId, Tiles, Tree};

use crate::app::state::ViewKind;

const GAP: f32 = 1.0;

/// The order in which panes are hidden. The timeline comes last.
const GIVES_WAY: [ViewKind; 17] = [
    ViewKind::Contents,
    ViewKind::Accounting,
    ViewKind::Heatmap,
    ViewKind::Steps,
    ViewKind::Leaks,
    ViewKind::Compare,
    ViewKind::Inspector,
    ViewKind::SegmentMap,
    ViewKind::Allocations,
    ViewKind::Events,
    ViewKind::Findings,
    ViewKind::Memory,
    ViewKind::Flame,
    ViewKind::WhatIf,
    ViewKind::Plan,
    ViewKind::Live,
    ViewKind::Autopsy,
];

/// The least useful size of a pane, including its header, in points.
fn least_of(kind: ViewKind) -> Vec2 {
    match kind {
        ViewKind::Timeline => vec2(340.0, 82.0),
        ViewKind::Findings | ViewKind::Memory => vec2(208.0, 200.0),
        ViewKind::Inspector => vec2(228.0, 160.0),
        ViewKind::SegmentMap => vec2(250.0, 120.0),
        ViewKind::Heatmap => vec2(240.0, 190.0),
        ViewKind::Contents => vec2(200.0, 150.0),
        ViewKind::Flame => vec2(340.0, 120.0),
        ViewKind::Compare => vec2(420.0, 160.0),
        ViewKind::Events | ViewKind::Allocations => vec2(320.0, 190.0),
        ViewKind::Plan => vec2(640.0, 360.0),
        ViewKind::WhatIf | ViewKind::Autopsy | ViewKind::Live => vec2(420.0, 220.0),
        ViewKind::Accounting | ViewKind::Leaks | ViewKind::Steps => vec2(240.0, 190.0),
    }
}

/// At this width the memory view shows all role names in full and its links in one row. It gets this width when no other pane has
/// to shrink for it.
const MEMORY_NAMES: f32 = 272.0;

/// The greatest useful width of a column beside the pictures. In a wide window the pictures get the rest.
const MOST_BESIDE: f32 = 480.0;

/// Changes made to fit the window.
pub struct Fitted {
    hidden: Vec<(TileId, ViewKind)>,
    /// A container, its shares before the change, and its shares after.
    shares: Vec<(TileId, Shares, Shares)>,
}

impl Fitted {
    /// Hides panes and resizes others until all have their least size within `size`.
    pub fn fit(tree: &mut Tree<ViewKind>, size: Vec2) -> Self {
        let mut fitted = Fitted { hidden: Vec::new(), shares: Vec::new() };
        let Some(root) = tree.root() else { return fitted };
        fitted.hide(tree, root, size);
        fitted.share(&mut tree.tiles, root, size);
        fitted
    }

    /// Hides panes in the order of `GIVES_WAY` until the rest fits.
    fn hide(&mut self, tree: &mut Tree<ViewKind>, root: TileId, size: Vec2) {
        for kind in GIVES_WAY {
            let over = (least(&tree.tiles, root) - size).max(Vec2::ZERO);
            if over == Vec2::ZERO {
                break;
            }
            let Some(id) = crate::app::state::workspace::find(tree, kind).filter(|&id| tree.tiles.is_visible(id)) else {
                continue;
            };
            tree.tiles.set_visible(id, false);
            let then = (least(&tree.tiles, root) - size).max(Vec2::ZERO);
            if tree.tiles.is_visible_in_layout(root) && (then.x < over.x || then.y < over.y) {
                self.hidden.push((id, kind));
            } else {
                // Hiding this pane gains nothing in the direction that is short of room.
                tree.tiles.set_visible(id, true);
            }
        }
    }

    /// Undoes everything that the user did not change meanwhile. Returns the views that had no room.
    pub fn undo(self, tree: &mut Tree<ViewKind>) -> Vec<ViewKind> {
        for (id, _) in &self.hidden {
            tree.tiles.set_visible(*id, true);
        }
        for (id, before, given) in self.shares {
            if let Some(Tile::Container(Container::Linear(linear))) = tree.tiles.get_mut(id)
                && linear.shares == given
            {
                linear.shares = before;
            }
        }
        self.hidden.into_iter().map(|(_, kind)| kind).collect()
    }

    /// Gives each child at least its least size, and distributes the rest by its share.
    fn share(&mut self, tiles: &mut Tiles<ViewKind>, id: TileId, size: Vec2) {
        let Some(Tile::Container(container)) = tiles.get(id) else { return };
        let Container::Linear(linear) = container else {
            let children: Vec<TileId> = container.children().copied().collect();
            children.into_iter().for_each(|child| self.share(tiles, child, size));
            return;
        };
        let along = usize::from(linear.dir == LinearDir::Vertical);
        let children: Vec<TileId> = linear.children.iter().copied().filter(|&c| tiles.is_visible_in_layout(c)).collect();
        let room = size[along] - GAP * children.len().saturating_sub(1) as f32;
        let mut needs: Vec<f32> = children.iter().map(|&c| least(tiles, c)[along]).collect();
        if linear.dir == LinearDir::Horizontal
            && let Some(memory) = children.iter().position(|&c| matches!(tiles.get(c), Some(Tile::Pane(ViewKind::Memory))))
        {
            let spare = (room - needs.iter().sum::<f32>()).max(0.0);
            needs[memory] = needs[memory].max(MEMORY_NAMES.min(needs[memory] + spare));
        }
        let wishes = linear.shares.split(&children, room);
        let is_beside = |&child: &TileId| {
            let beside = [ViewKind::Memory, ViewKind::Findings, ViewKind::Inspector];
            linear.dir == LinearDir::Horizontal && matches!(tiles.get(child), Some(Tile::Pane(kind)) if beside.contains(kind))
        };
        let beside: Vec<bool> = children.iter().map(is_beside).collect();
        let lengths = divide(&capped(&wishes, &beside), &needs, room);
        if lengths.iter().zip(&wishes).any(|(a, b)| (a - b).abs() > 0.5) {
            let before = linear.shares.clone();
            let mut given = before.clone();
            children.iter().zip(&lengths).for_each(|(&child, &length)| given.set_share(child, length));
            if let Some(Tile::Container(Container::Linear(linear))) = tiles.get_mut(id) {
                linear.shares = given.clone();
            }
            self.shares.push((id, before, given));
        }
        for (child, length) in children.into_iter().zip(lengths) {
            let mut of_child = size;
            of_child[along] = length;
            self.share(tiles, child, of_child);
        }
    }
}

/// Lengths close to `wishes`, each at least its need, as long as the needs fit the room.
fn divide(wishes: &[f32], needs: &[f32], room: f32) -> Vec<f32> {
    let mut fixed = vec![false; wishes.len()];
    loop {
        let taken: f32 = needs.iter().zip(&fixed).filter(|(_, f)| **f).map(|(n, _)| n).sum();
        let wished: f32 = wishes.iter().zip(&fixed).filter(|(_, f)| !**f).map(|(w, _)| w).sum();
        let scale = if wished > 0.0 { (room - taken).max(0.0) / wished } else { 0.0 };
        let lengths: Vec<f32> = (0..wishes.len()).map(|i| if fixed[i] { needs[i] } else { wishes[i] * scale }).collect();
        let short = (0..lengths.len()).find(|&i| !fixed[i] && lengths[i] + 0.5 < needs[i]);
        match short {
            Some(i) => fixed[i] = true,
            None => return lengths,
        }
    }
}

/// Limits the lengths of side columns, and gives what they lose to the others.
fn capped(wishes: &[f32], beside: &[bool]) -> Vec<f32> {
    let cap = |(&wish, &is_beside): (&f32, &bool)| if is_beside { wish.min(MOST_BESIDE) } else { wish };
    let capped: Vec<f32> = wishes.iter().zip(beside).map(cap).collect();
    let excess = wishes.iter().sum::<f32>() - capped.iter().sum::<f32>();
    let others: f32 = capped.iter().zip(beside).filter(|(_, b)| !**b).map(|(w, _)| w).sum();
    if others <= 0.0 {
        return wishes.to_vec();
    }
    capped.iter().zip(beside).map(|(&w, &b)| if b { w } else { w + excess * w / others }).collect()
}

/// The least size of a tile with its visible contents.
fn least(tiles: &Tiles<ViewKind>, id: TileId) -> Vec2 {
    if !tiles.is_visible_in_layout(id) {
        return Vec2::ZERO;
    }
    match tiles.get(id) {
        None => Vec2::ZERO,
        Some(Tile::Pane(kind)) => least_of(*kind),
        Some(Tile::Container(container)) => {
            let shown = container.children().filter(|&&c| tiles.is_visible_in_layout(c));
            let all: Vec<Vec2> = shown.map(|&child| least(tiles, child)).collect();
            let most = all.iter().copied().fold(Vec2::ZERO, Vec2::max);
            let sum = all.iter().copied().fold(Vec2::ZERO, |a, b| a + b) + Vec2::splat(GAP * all.len().saturating_sub(1) as f32);
            match container {
                Container::Linear(linear) if linear.dir == LinearDir::Horizontal => vec2(sum.x, most.y),
                Container::Linear(_) => vec2(most.x, sum.y),
                // Tabs need a row above the pane.
                Container::Tabs(_) => most + vec2(0.0, 28.0),
                Container::Grid(_) => most,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::state::workspace::Workspace;

    fn hidden_at(workspace: Workspace, width: f32, height: f32) -> Vec<ViewKind> {
        let mut tree = workspace.default_tree();
        let before = tree.clone();
        let fitted = Fitted::fit(&mut tree, vec2(width, height));
        let hidden = fitted.undo(&mut tree);
        assert_eq!(tree, before, "what the user arranged comes back");
        hidden
    }

    #[test]
    fn a_large_window_is_left_alone_and_a_small_one_drops_panes_in_order() {
        assert!(hidden_at(Workspace::Overview, 1600.0, 912.0).is_empty());
        assert_eq!(hidden_at(Workspace::Overview, 1024.0, 552.0), []);
        assert_eq!(hidden_at(Workspace::Overview, 800.0, 412.0), [ViewKind::Heatmap]);
        assert_eq!(hidden_at(Workspace::Overview, 1600.0, 300.0), [], "the column scrolls before anything gives way");
        let tiny = hidden_at(Workspace::Overview, 400.0, 300.0);
        assert!(tiny.contains(&ViewKind::Inspector) && tiny.contains(&ViewKind::Memory), "{tiny:?}");
        assert!(!tiny.contains(&ViewKind::Timeline));
        for &workspace in Workspace::ALL {
            let _ = hidden_at(workspace, 10.0, 10.0);
        }
    }

    #[test]
    fn every_view_has_its_place_in_the_order() {
        for kind in ViewKind::all() {
            assert!(GIVES_WAY.contains(&kind) || kind == ViewKind::Timeline, "{kind:?}");
        }
    }

    #[test]
    fn columns_beside_the_pictures_stay_narrow_in_a_wide_window() {
        let beside = [true, false, true];
        assert_eq!(capped(&[288.0, 992.0, 320.0], &beside), [288.0, 992.0, 320.0]);
        assert_eq!(capped(&[691.0, 2381.0, 768.0], &beside), [480.0, 2880.0, 480.0]);
        assert_eq!(capped(&[1000.0, 600.0], &[true, true]), [1000.0, 600.0], "nothing else takes it");
    }

    #[test]
    fn nobody_gets_less_than_it_needs_while_there_is_room() {
        assert_eq!(divide(&[184.0, 635.0, 205.0], &[208.0, 340.0, 228.0], 1024.0), [208.0, 588.0, 228.0]);
        assert_eq!(divide(&[500.0, 500.0], &[200.0, 340.0], 1000.0), [500.0, 500.0]);
        assert_eq!(divide(&[10.0, 10.0], &[40.0, 40.0], 20.0), [40.0, 40.0]);
    }
}
