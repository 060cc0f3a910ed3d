//! The flame graph: bytes by call stack, file, module or role, from the outer or the inner end, zoomable, with a tree as a table;
//! also A against B.

mod graph;
mod layout;
mod tree;

use std::collections::HashSet;
use std::sync::Arc;

use egui::Ui;

use super::{View, ViewContext, ViewInfo};
use crate::app::data::compare::{Compared, Outcome};
use crate::app::jobs::Derived;
use crate::app::jobs::identity::Identity;
use crate::app::state::ViewKind;
use crate::app::widgets::button::check;
use crate::app::widgets::{Field, Icon, Sort, pane, selector};
use layout::{Order, TreeRow};
use vramscope_core::compare::flame::{
    By, Flame, Measure, Node, Root, Shape, Size, What, entries_of, entries_of_some, node_text, weigh, weigh_some,
};
use vramscope_core::model::{Format, StackId, StackTable};
use vramscope_core::units::{Bytes, counted};

pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::Flame,
    legend: &[
        ("width", "bytes through this frame, in whole blocks"),
        ("colour", "what the memory is for, or the function; grey holds different things, or is nobody's stack"),
        ("lower edge", "a frame that ends in several kinds of memory: its shares; its own colour is the largest's"),
        ("solid, pale", "where A and B are compared: as much as at A, and grown since; an outline is gone since A"),
        ("click", "zoom to a frame and select its heaviest stack in all views"),
        (
            "180 frames folded",
            "a chain in which each frame calls only the next; a click zooms to it and opens it, Esc folds it again",
        ),
        ("out again", "Esc, a click on the zoomed frame, or a name in the line above it"),
        ("right click", "zoom, hide this frame, copy, show all again"),
        (
            "find",
            "frames whose name or file matches stay bright; their sum stands below; Enter goes to the next, Shift + Enter back",
        ),
        ("query", "frames that its allocations pass through stay bright; what they hold stands below"),
        ("tree", "the same as a table: the triangle opens a frame, a header sorts"),
    ],
    create: || Box::new(FlameView::default()),
};

/// What the width of a frame means, as in the selector.
const MEASURES: [&str; 6] =
    ["at B, against A", "live at the cursor", "live at the peak", "allocated", "churn: freed again", "bytes × lifetime"];

#[derive(Clone, PartialEq)]
struct Key {
    /// `None` for the comparison of A and B.
    measure: Option<Measure>,
    compared: Option<Identity>,
    roles: Option<Identity>,
    shape: Shape,
}

/// A graph with the data that the view needs to navigate it.
struct Built {
    flame: Flame,
    /// A key for each node that stays the same when the graph is rebuilt.
    keys: Vec<u64>,
    shape: Shape,
    /// What the width means; `None` for a comparison.
    measure: Option<Measure>,
    /// The comparison; `None` for one instant or range.
    compared: Option<Arc<Compared>>,
    roles: Option<Arc<vramscope_core::anatomy::Roles>>,
}

impl Built {
    fn stacks<'a>(&'a self, cx: &'a ViewContext<'_>) -> &'a StackTable {
        match &self.compared {
            Some(c) => c.flame_stacks(),
            None => &cx.data.recording.stacks,
        }
    }

    fn key(&self, node: u32) -> Option<u64> {
        self.keys.get(node as usize).copied()
    }

    fn node_of(&self, key: u64) -> Option<u32> {
        self.keys.iter().position(|&k| k == key).map(|i| i as u32)
    }
}

/// What the rows of the tree depend on.
type RowsKey = (Identity, u32, Order, bool, u64);

struct Found {
    hits: Vec<bool>,
    /// Bytes of the matches, each counted once: through them, at A, at B.
    weights: [u64; 3],
    frames: u64,
    /// Found by the active query, not by the search field.
    is_query: bool,
}

#[derive(Default)]
struct FlameView {
    /// Index of the measure; `None` for the comparison if there is one, otherwise the cursor.
    measure: Option<usize>,
    by: usize,
    root: usize,
    shows_internals: bool,
    /// 0 colours by role, 1 by function.
    colour: usize,
    shows_tree: bool,
    /// Key of the frame that fills the width; `None` for all.
    zoom: Option<u64>,
    hidden: HashSet<u64>,
    /// Keys of the frames of long chains that the user opened.
    opened: HashSet<u64>,
    find: String,
    /// Steps still to go through the matches: 1 to the next one, -1 to the previous one.
    steps: i32,
    /// Key of the current match.
    at_match: Option<u64>,
    /// The current match must still be brought into view.
    shows_match: bool,
    sort: Sort<Order>,
    toggled: HashSet<u64>,
    /// The rows of the tree, and what they were built from.
    rows: Option<(RowsKey, Vec<TreeRow>)>,
    toggles: u64,
    built: Derived<Key, Built>,
    found: Derived<(Identity, String), Found>,
    asked: Derived<(Identity, Identity), Found>,
    /// [`SharedViewState::cleared`](crate::app::state::shared::SharedViewState::cleared) at the last frame; when it changes the
    /// view zooms out.
    cleared: u32,
    /// The target of the context menu.
    menu: Option<u32>,
    /// Key of the frame under the pointer, in the graph or in the tree.
    hovered: Option<u64>,
}

fn compared(cx: &ViewContext<'_>) -> Option<Arc<Compared>> {
    match cx.comparing.get(&cx.here()) {
        Outcome::Ready(compared, _) => Some(compared),
        _ => None,
    }
}

impl FlameView {
    fn measure_of(&self, has_comparison: bool) -> usize {
        match self.measure {
            Some(0) | None if has_comparison => 0,
            Some(0) | None => 1,
            Some(other) => other,
        }
    }

    fn key(&self, cx: &ViewContext<'_>, compared: Option<&Arc<Compared>>) -> Key {
        let last = cx.data.device().events.len().saturating_sub(1) as u32;
        // A chosen range limits what is counted over time.
        let (from, to) = cx.shared.range.unwrap_or((0, last));
        let measure = match self.measure_of(compared.is_some()) {
            0 => None,
            1 => Some(Measure::LiveAt(cx.shared.cursor)),
            2 => Some(Measure::LiveAt(cx.data.tables.curves.peak_event())),
            3 => Some(Measure::Allocated(from, to)),
            4 => Some(Measure::Churn(from, to)),
            _ => Some(Measure::BytesTimesLife(from, to)),
        };
        let shape = Shape {
            root: if self.root == 1 { Root::Innermost } else { Root::Outermost },
            by: By::ALL[self.by.min(By::ALL.len() - 1)],
            folds_framework: !self.shows_internals,
        };
        Key {
            compared: compared.filter(|_| measure.is_none()).map(Identity::of),
            roles: cx.roles.filter(|_| measure.is_some()).map(Identity::of),
            measure,
            shape,
        }
    }

    fn figure(&self, weight: u64) -> String {
        if self.measure == Some(5) { format!("{} × events", Bytes(weight)) } else { Bytes(weight).to_string() }
    }

    /// The graph for the present choices, or the previous one while it is built.
    fn build(&mut self, cx: &ViewContext<'_>) -> (Option<Arc<Built>>, bool) {
        let compared = compared(cx);
        let key = self.key(cx, compared.as_ref());
        let (data, roles, wanted) = (Arc::clone(cx.data), cx.roles.cloned(), key.clone());
        let shown = self.built.get(cx.jobs, "flame", &key, move |_| {
            let (flame, compared) = match (wanted.measure, compared) {
                (None, Some(c)) => (Flame::build(c.flame_stacks(), &c.flame_entries(entries_of(&c.diff)), wanted.shape), Some(c)),
                (measure, _) => {
                    let measure = measure.unwrap_or(Measure::LiveAt(0));
                    let entries = weigh(data.device(), &data.tables, roles.as_deref(), measure, Size::Block);
                    (Flame::build(&data.recording.stacks, &entries, wanted.shape), None)
                }
            };
            let measure = wanted.measure.filter(|_| compared.is_none());
            Some(Built { keys: flame.keys(), flame, shape: wanted.shape, measure, compared, roles })
        });
        (shown.value, shown.is_fresh)
    }

    /// The frames that match the search field.
    fn search(&mut self, cx: &ViewContext<'_>, built: &Arc<Built>) -> Option<Arc<Found>> {
        let needle = self.find.trim().to_lowercase();
        if needle.is_empty() {
            return self.of_query(cx, built);
        }
        let key = (Identity::of(built), needle.clone());
        let (built, stacks) = (Arc::clone(built), Arc::clone(&cx.data.recording));
        self.found
            .get(cx.jobs, "find frames", &key, move |_| {
                let table = built.compared.as_ref().map_or(&stacks.stacks, |c| c.flame_stacks());
                let matches = |node: &Node| {
                    let (name, place) = node_text(table, node);
                    name.to_lowercase().contains(&needle) || place.to_lowercase().contains(&needle)
                };
                let hits: Vec<bool> = built.flame.nodes.iter().map(matches).collect();
                let (weights, frames) = built.flame.matched_by(&hits, |n| [n.total, n.before, n.after]);
                Some(Found { hits, weights, frames, is_query: false })
            })
            .value
    }

    /// The frames of allocations that match the active query; the others are dimmed, as in all views. In a comparison both sides
    /// are searched.
    fn of_query(&mut self, cx: &ViewContext<'_>, built: &Arc<Built>) -> Option<Arc<Found>> {
        let matching = Arc::clone(cx.matching?);
        let asked = match &built.compared {
            Some(compared) => Some(cx.comparing.asked(&cx.here(), compared)?),
            None => None,
        };
        let answer = asked.as_ref().map_or_else(|| Identity::of(&matching), Identity::of);
        let key = (Identity::of(built), answer);
        let (data, built, roles) = (Arc::clone(cx.data), Arc::clone(built), built.roles.clone());
        let shown = self.asked.get(cx.jobs, "frames of the query", &key, move |_| {
            let entries = match (&built.compared, &asked, built.measure) {
                (Some(compared), Some(asked), _) => compared.flame_entries(entries_of_some(&compared.diff, asked.by_stack())),
                (_, _, Some(measure)) => {
                    weigh_some(data.device(), &data.tables, roles.as_deref(), measure, Size::Block, Some(&matching))
                }
                _ => Vec::new(),
            };
            let stacks = built.compared.as_ref().map_or(&data.recording.stacks, |c| c.flame_stacks());
            let flame = Flame::build(stacks, &entries, built.shape);
            let held: HashSet<u64> = flame.keys().into_iter().collect();
            let all = flame.nodes.first();
            let weights = all.map_or([0; 3], |n| [n.total, n.before, n.after]);
            let hits: Vec<bool> = built.keys.iter().map(|k| !entries.is_empty() && held.contains(k)).collect();
            Some(Found { weights, frames: hits.iter().filter(|&&h| h).count() as u64, hits, is_query: true })
        });
        shown.fresh()
    }

    /// Goes to the next match, or to the one before.
    fn step(&mut self, cx: &ViewContext<'_>, built: &Built, found: &Found) {
        let order = layout::in_order(&built.flame, &found.hits);
        let steps = std::mem::take(&mut self.steps);
        let at = self.at_match.and_then(|key| order.iter().position(|&node| built.key(node) == Some(key)));
        let next = match at {
            Some(at) => (at as i64 + i64::from(steps)).rem_euclid(order.len().max(1) as i64),
            None if steps > 0 => 0,
            None => order.len() as i64 - 1,
        };
        let Some(&node) = usize::try_from(next).ok().and_then(|next| order.get(next)) else { return };
        self.at_match = built.key(node);
        self.shows_match = true;
        if let Some(node) = built.flame.nodes.get(node as usize) {
            self.select(cx, built, node);
        }
    }
}

impl View for FlameView {
    fn subtitle(&self, cx: &ViewContext<'_>) -> String {
        let Some(built) = self.built.latest() else { return String::new() };
        let Some(all) = built.flame.nodes.first() else { return String::new() };
        let blocks = counted(all.count, "block", "blocks");
        let range = if cx.shared.range.is_some() {
            " in the chosen range"
        } else {
            " over the whole recording · Shift and drag in the timeline to narrow it"
        };
        match (&built.compared, self.measure_of(built.compared.is_some())) {
            (Some(c), _) if c.places.is_some() => {
                format!("at B: {} in {blocks} · from your own line on: the two programs call it from others", Bytes(all.after))
            }
            (Some(_), _) => format!("at B: {} in {blocks}", Bytes(all.after)),
            (None, 5) => format!("{}{range}", self.figure(all.total)),
            (None, 3 | 4) => format!("{} in {blocks}{range}", Bytes(all.total)),
            (None, 2) if cx.data.recording.is_relative(cx.data.device()) => {
                format!("at the peak of what the trace shows: {} in {blocks}", Bytes(all.total))
            }
            (None, 2) => format!("at the peak: {} in {blocks}", Bytes(all.total)),
            _ if cx.data.device().events.is_empty() => format!("at the end: {} in {blocks}", Bytes(all.total)),
            _ => format!("at the cursor: {} in {blocks}", Bytes(all.total)),
        }
    }

    fn header_ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        // In a narrow pane the least important controls are hidden first, so that the title keeps its room.
        let room = ui.available_width() - 90.0;
        if room > 360.0 {
            check(ui, "tree", &mut self.shows_tree);
        }
        if room > 590.0 {
            selector(ui, "colour", &mut self.colour, &["role", "function"]);
        }
        // A comparison has sums by stack and role but not by phase.
        let choices = By::ALL.map(By::name);
        let choices = &choices[..choices.len() - usize::from(compared(cx).is_some())];
        if room > 240.0 {
            selector(ui, "by", &mut self.by, choices);
        }
        if room > 300.0 {
            selector(ui, "root", &mut self.root, &["top", "leaf"]);
        }
        let mut hides = !self.shows_internals;
        let library = match cx.data.recording.source.format {
            Format::JaxMemoryProfile => "hide JAX internals",
            _ => "hide torch internals",
        };
        if room > 500.0 && check(ui, library, &mut hides) {
            self.shows_internals = !hides;
        }
        let mut measure = self.measure_of(compared(cx).is_some());
        if selector(ui, "width", &mut measure, &MEASURES) {
            self.measure = Some(measure);
            if measure == 0 && compared(cx).is_none() {
                let tip = "Nothing is compared yet: set A and B with Shift A and Shift B, or open Compare.";
                cx.actions.send(crate::app::state::action::Action::Notify(tip.to_owned()));
            }
        }
        if ui.available_width() > 240.0 {
            let field = Field::new("Filter frames").hint("filter frames").icon(Icon::Search).width(130.0).small();
            let field = field.show(ui, &mut self.find);
            if field.changed() {
                self.at_match = None;
            }
            if field.lost_focus() && ui.input(|i| i.key_pressed(egui::Key::Enter)) {
                // Reads Shift when the key was pressed, not at the end of the frame.
                let is_back = |e: &egui::Event| matches!(e, egui::Event::Key { key: egui::Key::Enter, pressed: true, modifiers, .. } if modifiers.shift);
                self.steps += if ui.input(|i| i.events.iter().any(is_back)) { -1 } else { 1 };
                field.request_focus();
            }
        }
    }

    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        if std::mem::replace(&mut self.cleared, cx.shared.cleared) != cx.shared.cleared {
            self.zoom = None;
            self.opened.clear();
            self.at_match = None;
        }
        let (built, is_fresh) = self.build(cx);
        if !is_fresh {
            pane::progress_line(ui, ui.max_rect(), None);
        }
        let Some(built) = built else { return };
        let flame = &built.flame;
        if flame.nodes[0].total == 0 {
            return pane::empty_state(ui, "Nothing is live here. Move the cursor, or choose another measure above.", None);
        }
        if flame.nodes.len() == 2 && flame.nodes[1].what == What::NoStack(StackId::NONE) {
            return pane::empty_state(
                ui,
                "No call stacks were recorded, so there is nothing to tell apart. They are recorded with:",
                Some(&cx.words().say(vramscope_core::diagnose::source_limits::records_stacks(&cx.data.recording))),
            );
        }
        let found = self.search(cx, &built);
        if let Some(found) = found.as_deref().filter(|_| self.steps != 0) {
            self.step(cx, &built, found);
        }
        let area = ui.max_rect();
        self.hovered = None;
        if self.shows_tree {
            let (graph, tree) = layout::with_tree(area);
            let edge = match tree.left() > graph.left() {
                true => [graph.right_top(), graph.right_bottom()],
                false => [tree.left_top(), tree.right_top()],
            };
            ui.painter().line_segment(edge, egui::Stroke::new(1.0, cx.tokens.line));
            pane::inside(ui, graph, "graph", |ui| self.graph(ui, cx, &built, found.as_deref()));
            pane::inside(ui, tree, "tree", |ui| self.tree(ui, cx, &built, found.as_deref()));
        } else {
            pane::inside(ui, area, "graph", |ui| self.graph(ui, cx, &built, found.as_deref()));
        }
    }
}
