//! Workspaces: named arrangements of dockable views.

use std::collections::HashMap;

use egui_tiles::{Container, Linear, LinearDir, Tile, TileId, Tiles, Tree};
use serde::{Deserialize, Serialize};

use super::view_kind::ViewKind;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Workspace {
    /// Memory, timeline, maps and inspector.
    #[default]
    Overview,
    /// Why a request failed.
    Autopsy,
    /// Simulation of the same requests under other settings.
    WhatIf,
    /// Prediction for other sizes, cards and changes.
    Plan,
    /// Which code holds the bytes.
    #[strum(serialize = "flame-graph")]
    Flame,
    /// The card over time, from live samples.
    Live,
    /// Overview for PyTorch's counters without a recording. Not in any menu.
    Counters,
    /// Overview for a state without a history. Not in any menu.
    State,
    /// Overview for blocks of one instant without addresses, as in a JAX profile. Not in any menu.
    Instant,
}

impl Workspace {
    /// Every workspace in the tab bar, in order.
    pub const ALL: &'static [Workspace] =
        &[Workspace::Overview, Workspace::Autopsy, Workspace::Flame, Workspace::WhatIf, Workspace::Plan, Workspace::Live];

    pub fn title(self) -> &'static str {
        match self {
            Workspace::Overview => "Overview",
            Workspace::Autopsy => "OOM autopsy",
            Workspace::Flame => "Flame and compare",
            Workspace::WhatIf => "What-if",
            Workspace::Plan => "Plan",
            Workspace::Live => "Live",
            Workspace::Counters => "Counters",
            Workspace::State => "State",
            Workspace::Instant => "Instant",
        }
    }

    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The view whose description serves as the workspace's own.
    pub fn view(self) -> Option<ViewKind> {
        match self {
            Workspace::Overview => Some(ViewKind::Memory),
            Workspace::Autopsy => Some(ViewKind::Autopsy),
            Workspace::Flame => Some(ViewKind::Flame),
            Workspace::WhatIf => Some(ViewKind::WhatIf),
            Workspace::Plan => Some(ViewKind::Plan),
            Workspace::Live => Some(ViewKind::Live),
            Workspace::Counters | Workspace::State | Workspace::Instant => None,
        }
    }

    /// The arrangement of a document that the user has not changed.
    pub fn default_tree(self) -> Tree<ViewKind> {
        let mut tiles = Tiles::default();
        let root = self.shape().build(&mut tiles);
        let id = egui::Id::unique(("workspace", self.title()));
        match root {
            Some(root) => Tree::new(id, root, tiles),
            None => Tree::empty(id),
        }
    }

    /// True when the default arrangement has this view.
    pub fn starts_with(self, view: ViewKind) -> bool {
        self.shape().has(view)
    }

    /// True when the default arrangement is this view and nothing else.
    pub fn is_alone(self, view: ViewKind) -> bool {
        matches!(self.shape(), Shape::Row(parts) if matches!(parts[..], [(_, Shape::Pane(only))] if only == view))
    }

    fn shape(self) -> Shape {
        use Shape::{Column, Pane, Row};
        use ViewKind as V;
        match self {
            Workspace::Overview => Row(vec![
                (0.18, Pane(V::Memory)),
                (
                    0.62,
                    Column(vec![
                        (0.52, Pane(V::Timeline)),
                        (0.48, Row(vec![(0.57, Pane(V::SegmentMap)), (0.43, Pane(V::Heatmap))])),
                    ]),
                ),
                (0.20, Pane(V::Inspector)),
            ]),
            Workspace::Autopsy => Row(vec![(1.0, Pane(V::Autopsy))]),
            Workspace::WhatIf => Row(vec![(1.0, Pane(V::WhatIf))]),
            Workspace::Plan => Row(vec![(1.0, Pane(V::Plan))]),
            Workspace::Flame => Column(vec![(0.23, Pane(V::Timeline)), (0.30, Pane(V::Flame)), (0.47, Pane(V::Compare))]),
            Workspace::Live => Row(vec![(1.0, Pane(V::Live))]),
            Workspace::Counters => Row(vec![(0.7, Pane(V::Accounting)), (0.3, Pane(V::Contents))]),
            // There is no history, so views of time are left out.
            Workspace::State => Row(vec![
                (0.18, Pane(V::Memory)),
                (0.62, Column(vec![(0.6, Pane(V::SegmentMap)), (0.4, Pane(V::Accounting))])),
                (0.20, Pane(V::Inspector)),
            ]),
            // There are no addresses either, so the map is left out and the call stacks take its place.
            Workspace::Instant => Row(vec![
                (0.20, Pane(V::Memory)),
                (0.60, Column(vec![(0.45, Pane(V::Flame)), (0.55, Pane(V::Allocations))])),
                (0.20, Pane(V::Inspector)),
            ]),
        }
    }
}

/// An arrangement in short form: rows and columns of panes, each with its share of the space.
enum Shape {
    Pane(ViewKind),
    Row(Vec<(f32, Shape)>),
    Column(Vec<(f32, Shape)>),
}

impl Shape {
    fn has(&self, view: ViewKind) -> bool {
        match self {
            Shape::Pane(kind) => *kind == view,
            Shape::Row(parts) | Shape::Column(parts) => parts.iter().any(|(_, plan)| plan.has(view)),
        }
    }

    fn build(self, tiles: &mut Tiles<ViewKind>) -> Option<TileId> {
        let (dir, parts) = match self {
            Shape::Pane(kind) => return Some(tiles.insert_pane(kind)),
            Shape::Row(parts) => (LinearDir::Horizontal, parts),
            Shape::Column(parts) => (LinearDir::Vertical, parts),
        };
        let built: Vec<(TileId, f32)> = parts.into_iter().filter_map(|(share, plan)| Some((plan.build(tiles)?, share))).collect();
        (!built.is_empty()).then(|| split(tiles, dir, &built))
    }
}

/// A row or column with these parts and shares.
pub(in crate::app) fn split(tiles: &mut Tiles<ViewKind>, dir: LinearDir, parts: &[(TileId, f32)]) -> TileId {
    let mut linear = Linear::new(dir, parts.iter().map(|p| p.0).collect());
    for &(id, share) in parts {
        linear.shares.set_share(id, share);
    }
    tiles.insert_container(Container::Linear(linear))
}

/// The arrangement of each workspace, as the user left it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Layouts {
    trees: HashMap<Workspace, Tree<ViewKind>>,
}

impl Layouts {
    /// The arrangement of a workspace; the default until the user changes it.
    pub fn tree(&mut self, workspace: Workspace) -> &mut Tree<ViewKind> {
        self.trees.entry(workspace).or_insert_with(|| workspace.default_tree())
    }

    /// True when a view is in front in a workspace.
    pub fn shows(&self, workspace: Workspace, view: ViewKind) -> bool {
        let is_in_front = |tree: &Tree<ViewKind>| find(tree, view).is_some_and(|id| tree.active_tiles().contains(&id));
        self.trees.get(&workspace).map_or_else(|| workspace.starts_with(view), is_in_front)
    }

    pub fn reset(&mut self, workspace: Workspace) {
        self.trees.remove(&workspace);
    }

    /// Merges with arrangements that another window saved (`theirs`). An arrangement that differs from `before` was changed here
    /// and wins; otherwise theirs is kept.
    pub fn merged(&self, before: &Layouts, mut theirs: Layouts) -> Layouts {
        let of = |layouts: &Layouts, workspace: Workspace| match layouts.trees.get(&workspace) {
            Some(tree) => tree.clone(),
            None => workspace.default_tree(),
        };
        for &workspace in Workspace::ALL {
            let mine = of(self, workspace);
            if mine != of(before, workspace) {
                theirs.trees.insert(workspace, mine);
            }
        }
        theirs
    }

    /// Restores the default of an arrangement that has no pane left after saving and loading. In an arrangement of an older
    /// version, the findings pane becomes the memory pane, which also shows findings.
    pub fn repair(&mut self) {
        self.trees.retain(|_, tree| tree.tiles.tiles().any(|t| matches!(t, Tile::Pane(_))));
        for (workspace, tree) in &mut self.trees {
            if workspace.starts_with(ViewKind::Memory)
                && find(tree, ViewKind::Memory).is_none()
                && let Some(id) = find(tree, ViewKind::Findings)
            {
                tree.tiles.insert(id, Tile::Pane(ViewKind::Memory));
            }
        }
    }
}

/// Puts a pane into the tabs that hold `beside`, or makes tabs of the two, and brings it to the front. False when `beside` is in
/// a grid or is alone.
fn join(tree: &mut Tree<ViewKind>, beside: TileId, pane: TileId) -> bool {
    let Some(parent) = tree.tiles.parent_of(beside) else { return false };
    let both = match tree.tiles.get_mut(parent) {
        Some(Tile::Container(Container::Tabs(tabs))) => {
            tabs.add_child(pane);
            tabs.set_active(pane);
            return true;
        }
        Some(Tile::Container(Container::Linear(_))) => tree.tiles.insert_tab_tile(vec![beside, pane]),
        _ => return false,
    };
    if let Some(Tile::Container(Container::Tabs(tabs))) = tree.tiles.get_mut(both) {
        tabs.set_active(pane);
    }
    if let Some(Tile::Container(Container::Linear(linear))) = tree.tiles.get_mut(parent) {
        let share = linear.shares[beside];
        linear.children.iter_mut().filter(|child| **child == beside).for_each(|child| *child = both);
        linear.shares.set_share(both, share);
    }
    true
}

pub fn find(tree: &Tree<ViewKind>, view: ViewKind) -> Option<TileId> {
    tree.tiles.iter().find_map(|(&id, tile)| match tile {
        Tile::Pane(kind) if *kind == view => Some(id),
        _ => None,
    })
}

/// Closes a view unless it is the last visible one. A view of the default arrangement is only hidden, so that it returns to its
/// place.
pub fn close(tree: &mut Tree<ViewKind>, workspace: Workspace, view: ViewKind) {
    let is_seen = |tree: &Tree<ViewKind>, id: TileId| tree.tiles.is_visible_in_layout(id);
    let panes = tree.tiles.iter().filter(|(_, tile)| matches!(tile, Tile::Pane(_))).map(|(&id, _)| id);
    let Some(id) = find(tree, view).filter(|_| panes.filter(|&id| is_seen(tree, id)).count() > 1) else { return };
    if workspace.starts_with(view) {
        tree.tiles.set_visible(id, false);
    } else {
        tree.remove_recursively(id);
    }
}

/// Brings a view to the front. A view that the arrangement lacks is added: wide tables and bars at the bottom, other views in a new
/// column at the right. When that place already has an added view, the new one becomes a tab beside it, so that the other views
/// keep their space.
pub fn show(tree: &mut Tree<ViewKind>, workspace: Workspace, view: ViewKind) {
    if let Some(id) = find(tree, view) {
        tree.tiles.set_visible(id, true);
        tree.make_active(|tile, _| tile == id);
        return;
    }
    use ViewKind::{Accounting, Allocations, Events, Leaks, Steps};
    let is_wide = |view| matches!(view, Accounting | Allocations | Events | Leaks | Steps);
    // Share of the space that a new pane gets: a table of a few rows would be no use.
    let part = if is_wide(view) { 0.42 } else { 0.3 };
    let dir = if is_wide(view) { LinearDir::Vertical } else { LinearDir::Horizontal };
    let came_in = |kind: ViewKind| !workspace.starts_with(kind) && is_wide(kind) == is_wide(view);
    let pane = tree.tiles.insert_pane(view);
    let beside = ViewKind::all().filter(|&kind| kind != view && came_in(kind)).find_map(|kind| find(tree, kind));
    if beside.is_some_and(|beside| join(tree, beside, pane)) {
        return;
    }
    let root = match tree.root() {
        None => pane,
        Some(root) => match tree.tiles.get_mut(root) {
            Some(Tile::Container(Container::Linear(linear))) if linear.dir == dir => {
                // Shares are relative, so the others divide the rest among themselves.
                let others: f32 = linear.children.iter().map(|&child| linear.shares[child]).sum();
                linear.add_child(pane);
                linear.shares.set_share(pane, others * part / (1.0 - part));
                root
            }
            _ => split(&mut tree.tiles, dir, &[(root, 1.0 - part), (pane, part)]),
        },
    };
    tree.root = Some(root);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(tree: &Tree<ViewKind>, view: ViewKind) -> TileId {
        find(tree, view).unwrap()
    }

    #[test]
    fn an_arrangement_of_before_gets_memory_where_findings_were() {
        let mut layouts = Layouts::default();
        let tree = layouts.tree(Workspace::Overview);
        let id = seen(tree, ViewKind::Memory);
        tree.tiles.insert(id, Tile::Pane(ViewKind::Findings));
        layouts.repair();
        let tree = layouts.tree(Workspace::Overview);
        assert_eq!((seen(tree, ViewKind::Memory), find(tree, ViewKind::Findings)), (id, None));
        // When findings were opened beside memory, both stay.
        show(tree, Workspace::Overview, ViewKind::Findings);
        layouts.repair();
        let tree = layouts.tree(Workspace::Overview);
        assert!(find(tree, ViewKind::Findings).is_some() && find(tree, ViewKind::Memory).is_some());
    }

    #[test]
    fn what_comes_in_after_another_shares_its_place() {
        let workspace = Workspace::Overview;
        let mut tree = workspace.default_tree();
        show(&mut tree, workspace, ViewKind::Events);
        let alone = tree.clone();
        for view in [ViewKind::Allocations, ViewKind::Leaks, ViewKind::Steps] {
            show(&mut tree, workspace, view);
            let tabs = tree.tiles.parent_of(seen(&tree, view));
            assert_eq!(tabs, tree.tiles.parent_of(seen(&tree, ViewKind::Events)));
            match tabs.and_then(|id| tree.tiles.get(id)) {
                Some(Tile::Container(Container::Tabs(tabs))) => {
                    assert_eq!(tabs.active, Some(seen(&tree, view)), "it is in front")
                }
                other => panic!("{other:?}"),
            }
        }
        for view in [ViewKind::Allocations, ViewKind::Leaks, ViewKind::Steps] {
            close(&mut tree, workspace, view);
        }
        tree.simplify(&egui_tiles::SimplificationOptions { all_panes_must_have_tabs: false, ..Default::default() });
        let share =
            |tree: &Tree<ViewKind>| match tree.tiles.parent_of(seen(tree, ViewKind::Events)).and_then(|id| tree.tiles.get(id)) {
                Some(Tile::Container(Container::Linear(linear))) => linear.shares[seen(tree, ViewKind::Events)],
                other => panic!("{other:?}"),
            };
        assert_eq!(share(&tree), share(&alone), "alone again it has the room it had");
        // Views that are not wide go into a column of their own.
        show(&mut tree, workspace, ViewKind::Contents);
        assert_ne!(tree.tiles.parent_of(seen(&tree, ViewKind::Contents)), tree.tiles.parent_of(seen(&tree, ViewKind::Events)));
    }
}
