//! Flame graphs: bytes by call stack, file, module, role or phase as a tree, also for a comparison of two instants.

use rustc_hash::FxHashMap;

use super::diff::{Comparison, Held, Instant, Row, purpose_is_probable};
use crate::anatomy::Phase;
use crate::anatomy::roles::{Role, Roles};
use crate::model::{DeviceRecording, FrameId, StackId, StackTable, StrId};
use crate::query::matching::Matching;
use crate::tables::naming::{function_label, innermost, is_framework, is_generated};
use crate::tables::{DeviceTables, LifetimeId, NO_EVENT};

/// What the width of a frame means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Measure {
    /// Bytes live after an event.
    LiveAt(u32),
    /// Bytes allocated in a range of events, first and last.
    Allocated(u32, u32),
    /// Bytes allocated and freed again within a range.
    Churn(u32, u32),
    /// Bytes times lived events within a range: shows what occupies memory longest.
    BytesTimesLife(u32, u32),
}

/// Which size of an allocation is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Size {
    /// Whole blocks, as in PyTorch's `active_bytes`.
    #[default]
    Block,
    /// Requested bytes, before rounding.
    Requested,
}

/// The weight of the allocations of one stack, role and phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The allocations' stack; [`StackId::NONE`] if none was recorded.
    pub stack: StackId,
    /// Their role; [`Role::Unknown`] if not known.
    pub role: Role,
    /// The phase in which they were allocated; `None` if unknown, for example before the recording began.
    pub phase: Option<Phase>,
    /// Weight according to the [`Measure`].
    pub weight: u64,
    /// The part of `weight` or `before`, whichever is larger, that is in allocations whose role is inferred.
    pub probable: u64,
    /// Weight in A when two instants are compared; otherwise 0.
    pub before: u64,
    /// Number of allocations that were weighed.
    pub count: u64,
}

/// Weighs stacks, ordered by stack, role and phase (unknown without `roles`). O(lifetimes), or O(live) for [`Measure::LiveAt`].
pub fn weigh(device: &DeviceRecording, tables: &DeviceTables, roles: Option<&Roles>, measure: Measure, size: Size) -> Vec<Entry> {
    weigh_some(device, tables, roles, measure, size, None)
}

/// Like [`weigh`], for the allocations of a set only.
pub fn weigh_some(
    device: &DeviceRecording,
    tables: &DeviceTables,
    roles: Option<&Roles>,
    measure: Measure,
    size: Size,
    only: Option<&Matching>,
) -> Vec<Entry> {
    let lifetimes = &tables.lifetimes;
    let size_of = |id: LifetimeId| match size {
        Size::Block => lifetimes.block_size(id),
        Size::Requested => lifetimes.requested(device, id),
    };
    let mut sums: FxHashMap<(StackId, Role, Option<Phase>), (u64, u64, u64)> = FxHashMap::default();
    let mut add = |id: LifetimeId, weight: u64| {
        if only.is_some_and(|only| !only.contains(id)) {
            return;
        }
        let role = roles.map_or(Role::Unknown, |c| c.of(id));
        let phase = roles.and_then(|r| r.anatomy.phases.of(id));
        let entry = sums.entry((lifetimes.stack(device, id), role, phase)).or_default();
        entry.0 = entry.0.saturating_add(weight);
        entry.1 += 1;
        if roles.is_some_and(|r| r.is_probable(device, tables, id)) {
            entry.2 = entry.2.saturating_add(weight);
        }
    };
    if let Measure::LiveAt(event) = measure {
        let live = tables.states.live_at(lifetimes, event);
        let known = live.iter().fold(0u64, |sum, &id| sum.saturating_add(lifetimes.block_size(id)));
        live.into_iter().for_each(|id| add(id, size_of(id)));
        for (stack, bytes) in device.source_totals.beyond_parts(event, known).stacks().filter(|_| only.is_none()) {
            sums.entry((stack, Role::Unknown, None)).or_default().0 += bytes;
        }
    } else {
        let last_event = device.events.len().saturating_sub(1) as u32;
        for i in 0..lifetimes.len() as u32 {
            let id = LifetimeId(i);
            let (born, gone) = (lifetimes.born(id), lifetimes.gone(id));
            match measure {
                Measure::Allocated(first, last) if born != NO_EVENT && (first..=last).contains(&born) => add(id, size_of(id)),
                Measure::Churn(first, last)
                    if born != NO_EVENT && (first..=last).contains(&born) && (first..=last).contains(&gone) =>
                {
                    add(id, size_of(id));
                }
                Measure::BytesTimesLife(first, last) => {
                    let from = if born == NO_EVENT { 0 } else { born }.max(first);
                    let to = gone.min(last).min(last_event);
                    if to > from {
                        add(id, size_of(id).saturating_mul(u64::from(to - from)));
                    }
                }
                _ => {}
            }
        }
    }
    let mut entries: Vec<Entry> = sums
        .into_iter()
        .map(|((stack, role, phase), (weight, count, probable))| Entry { stack, role, phase, weight, probable, before: 0, count })
        .collect();
    entries.sort_unstable_by_key(|e| (e.stack, e.role, e.phase));
    entries
}

/// The entries of a comparison: weights in B, with those in A as `before`. The stacks are those of [`Comparison::stacks`].
pub fn entries_of(comparison: &Comparison) -> Vec<Entry> {
    let mut entries: Vec<Entry> = comparison.rows.iter().flat_map(|r| of_purposes(comparison, r)).collect();
    entries.sort_unstable_by_key(|e| (e.stack, e.role));
    entries
}

/// Like [`entries_of`] for a part of the live memory: `held` has bytes by stack of A's and of B's own recording, from
/// [`held_by_stack`]. Omits stacks without bytes on either side.
pub fn entries_of_some(comparison: &Comparison, held: [&FxHashMap<StackId, u64>; 2]) -> Vec<Entry> {
    let mut entries: Vec<Entry> = comparison
        .rows
        .iter()
        .flat_map(|r| {
            let [before, weight] = of_row(r, held);
            if [before, weight] == [r.a.bytes, r.b.bytes] {
                return of_purposes(comparison, r);
            }
            // The sums by stack do not say which of its roles pass the filter.
            let more = if r.b.bytes >= r.a.bytes { r.b } else { r.a };
            let probable = if more.probable * 2 > more.bytes { weight.max(before) } else { 0 };
            vec![Entry { stack: r.stack, role: r.role, phase: None, weight, probable, before, count: r.b.count }]
        })
        .filter(|e| e.weight > 0 || e.before > 0)
        .collect();
    entries.sort_unstable_by_key(|e| (e.stack, e.role));
    entries
}

/// One entry per role of a row. Between two recordings, unmatched blocks without a stack get separate entries for A and B.
fn of_purposes(comparison: &Comparison, row: &Row) -> Vec<Entry> {
    let mut entries = Vec::with_capacity(row.purposes.len());
    for &(role, a, b) in &row.purposes {
        let is_probable = purpose_is_probable(&(role, a, b));
        let entry = |role, weight: u64, before: u64, count| {
            let probable = if is_probable { weight.max(before) } else { 0 };
            Entry { stack: row.stack, role, phase: None, weight, probable, before, count }
        };
        if comparison.is_comparable(row) {
            entries.push(entry(role, b.bytes, a.bytes, b.count));
            continue;
        }
        let alike = comparison.common_in(row).find(|u| u.0 == role).map_or_else(Held::default, |u| u.1);
        let both = alike.bytes.min(a.bytes).min(b.bytes);
        let parts = [
            entry(role, both, both, alike.count.min(b.count)),
            entry(role, 0, a.bytes - both, 0),
            entry(role, b.bytes - both, 0, b.count - alike.count.min(b.count)),
        ];
        entries.extend(parts.into_iter().filter(|e| e.weight > 0 || e.before > 0));
    }
    entries
}

/// The bytes of a row in A and in B according to sums by stack.
pub fn of_row(row: &Row, held: [&FxHashMap<StackId, u64>; 2]) -> [u64; 2] {
    let on = |own: Option<StackId>, held: &FxHashMap<StackId, u64>| own.and_then(|s| held.get(&s)).copied().unwrap_or(0);
    [on(row.in_a, held[0]), on(row.in_b, held[1])]
}

/// Bytes of whole blocks by stack, for live allocations that pass. O(live).
pub fn held_by_stack(at: &Instant<'_>, passes: impl Fn(LifetimeId) -> bool) -> FxHashMap<StackId, u64> {
    let lifetimes = &at.tables.lifetimes;
    let mut held: FxHashMap<StackId, u64> = FxHashMap::default();
    for id in at.tables.states.live_at(lifetimes, at.event).into_iter().filter(|&id| passes(id)) {
        *held.entry(lifetimes.stack(at.device, id)).or_default() += lifetimes.block_size(id);
    }
    held
}

/// The end of the stacks at which the tree begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Root {
    /// The outermost call: `main` at the root.
    #[default]
    Outermost,
    /// The innermost call: the allocating function at the root.
    Innermost,
}

/// What the frames of the graph are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum By {
    /// Functions with their lines.
    #[default]
    Stack,
    /// Source files; consecutive calls within a file are one frame.
    File,
    /// Modules: `forward` functions, and the `nn.Module: …` frames of profiler traces. Other frames are omitted.
    Module,
    /// Roles, and within each its functions.
    Role,
    /// Phases, and within each its functions.
    Phase,
}

impl By {
    /// Every choice, in the order of the menu.
    pub const ALL: [By; 5] = [By::Stack, By::File, By::Module, By::Role, By::Phase];

    /// Its name, in menus and on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// How a graph is built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Where the tree begins.
    pub root: Root,
    /// What the frames are.
    pub by: By,
    /// Omit frames of PyTorch, Python and installed packages, except the one that allocates.
    pub folds_framework: bool,
}

/// What a frame of the graph represents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum What {
    /// The root, whose weight is the sum of all.
    #[default]
    All,
    /// Allocations without a recorded stack, or a part of a trace's own total; never distributed over other frames.
    NoStack(StackId),
    /// A function at a line.
    Frame(FrameId),
    /// A source file, by its path as recorded.
    File(StrId),
    /// No `forward` of a module was running.
    NoModule,
    /// All allocations of a role.
    Role(Role),
    /// A phase; `None` if unknown.
    Phase(Option<Phase>),
}

/// One frame of the graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The function, file, module, role or phase that it represents.
    pub what: What,
    /// Index of its parent; the root is its own.
    pub parent: u32,
    /// Distance from the root.
    pub depth: u32,
    /// Width: the weight of everything through this frame. In a comparison the larger side of each stack.
    pub total: u64,
    /// Weight of the stacks that end here.
    pub own: u64,
    /// Number of allocations through this frame.
    pub count: u64,
    /// Weight in A when two instants are compared; otherwise 0.
    pub before: u64,
    /// Weight in B; equals `total` unless something shrank.
    pub after: u64,
    /// Sum over stacks of the smaller side.
    pub common: u64,
    /// Indices of its children, heaviest first.
    pub children: Vec<u32>,
    /// The heaviest stack through this frame, for the inspector.
    pub stack: StackId,
    /// The role of everything through this frame; `None` if there are several.
    pub role: Option<Role>,
    /// Weight per role of everything through this frame, in order of occurrence.
    pub mix: Vec<Share>,
}

/// The weight of one role in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The role of these allocations.
    pub role: Role,
    /// Weight of the role through the frame.
    pub weight: u64,
    /// The part of it in allocations whose role is inferred.
    pub probable: u64,
}

impl Share {
    /// The role, with "probably" if it is inferred for most of the weight.
    pub fn words(&self) -> String {
        self.role.words(self.probable.saturating_mul(2) > self.weight)
    }
}

/// A flame graph. Node 0 is the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flame {
    /// All nodes; a parent comes before its children.
    pub nodes: Vec<Node>,
    /// Number of frames omitted because they belong to frameworks.
    pub folded_frames: u64,
}

impl Flame {
    /// Builds the tree. O(stacks × depth).
    pub fn build(stacks: &StackTable, entries: &[Entry], shape: Shape) -> Self {
        let mut nodes = vec![Node::default()];
        let mut heaviest = vec![0u64];
        let mut index: FxHashMap<(u32, What), u32> = FxHashMap::default();
        let mut folded_frames = 0;
        for e in entries {
            let (path, folded) = path(stacks, e, shape);
            folded_frames += folded;
            let weight = e.weight.max(e.before);
            let mut at = 0u32;
            for step in std::iter::once(None).chain(path.into_iter().map(Some)) {
                if let Some(what) = step {
                    let parent = at;
                    at = match index.get(&(parent, what)) {
                        Some(&known) => known,
                        None => {
                            let new = nodes.len() as u32;
                            let depth = nodes[parent as usize].depth + 1;
                            nodes.push(Node { what, parent, depth, ..Node::default() });
                            nodes[parent as usize].children.push(new);
                            heaviest.push(0);
                            index.insert((parent, what), new);
                            new
                        }
                    };
                }
                let node = &mut nodes[at as usize];
                node.role = if node.total == 0 || node.role == Some(e.role) { Some(e.role) } else { None };
                match node.mix.iter_mut().find(|m| m.role == e.role) {
                    Some(known) => {
                        known.weight = known.weight.saturating_add(weight);
                        known.probable = known.probable.saturating_add(e.probable);
                    }
                    None => node.mix.push(Share { role: e.role, weight, probable: e.probable }),
                }
                node.total = node.total.saturating_add(weight);
                node.before = node.before.saturating_add(e.before);
                node.after = node.after.saturating_add(e.weight);
                node.common = node.common.saturating_add(e.before.min(e.weight));
                node.count += e.count;
                if weight >= heaviest[at as usize] {
                    heaviest[at as usize] = weight;
                    node.stack = e.stack;
                }
            }
            nodes[at as usize].own = nodes[at as usize].own.saturating_add(weight);
        }
        let totals: Vec<u64> = nodes.iter().map(|n| n.total).collect();
        for node in &mut nodes {
            node.children.sort_by_key(|&c| (std::cmp::Reverse(totals[c as usize]), c));
        }
        Flame { nodes, folded_frames }
    }

    /// The node where a stack ends; `None` if it is not in the graph. O(depth × children).
    pub fn leaf_of(&self, stacks: &StackTable, stack: StackId, shape: Shape) -> Option<u32> {
        let entry = Entry { stack, role: Role::Unknown, phase: None, weight: 0, probable: 0, before: 0, count: 0 };
        let mut path = path(stacks, &entry, shape).0;
        let mut tops = vec![0u32];
        if matches!(shape.by, By::Role | By::Phase) {
            path.remove(0);
            // The stack may be under any role or phase; take the heaviest that has it.
            tops = self.nodes.first()?.children.clone();
        }
        tops.into_iter().find_map(|top| {
            path.iter().try_fold(top, |at, what| {
                self.nodes[at as usize].children.iter().copied().find(|&c| self.nodes[c as usize].what == *what)
            })
        })
    }

    /// A key per node that is stable when the graph is rebuilt: a hash of its frames from the root. O(nodes).
    pub fn keys(&self) -> Vec<u64> {
        use std::hash::{Hash, Hasher};
        let mut keys: Vec<u64> = Vec::with_capacity(self.nodes.len());
        for (i, node) in self.nodes.iter().enumerate() {
            let mut hasher = rustc_hash::FxHasher::default();
            if i > 0 {
                keys[node.parent as usize].hash(&mut hasher);
            }
            node.what.hash(&mut hasher);
            keys.push(hasher.finish());
        }
        keys
    }

    /// The frames from the root down to a node, both included.
    pub fn ancestors(&self, node: u32) -> Vec<u32> {
        let mut path = vec![node];
        let mut at = node;
        while at != 0 {
            at = self.nodes.get(at as usize).map_or(0, |n| n.parent);
            path.push(at);
        }
        path.reverse();
        path
    }

    /// Total weights and number of matching frames; each byte counts once, however many frames of its stack match. `hits` says for
    /// each node whether it matches; the root never does. O(nodes).
    pub fn matched_by<const N: usize>(&self, hits: &[bool], of: impl Fn(&Node) -> [u64; N]) -> ([u64; N], u64) {
        let (mut weights, mut number) = ([0u64; N], 0u64);
        let mut inside = vec![false; self.nodes.len()];
        for (i, node) in self.nodes.iter().enumerate().skip(1) {
            let is_match = hits.get(i).copied().unwrap_or(false);
            let covered = inside[node.parent as usize];
            number += u64::from(is_match);
            if is_match && !covered {
                for (sum, weight) in weights.iter_mut().zip(of(node)) {
                    *sum = sum.saturating_add(weight);
                }
            }
            inside[i] = covered || is_match;
        }
        (weights, number)
    }

    /// Collapsed stacks, one per line, heaviest first: the format of flame graph scripts and speedscope.
    pub fn collapsed(&self, stacks: &StackTable) -> String {
        let mut lines: Vec<(u64, String)> = Vec::new();
        for node in self.nodes.iter().skip(1).filter(|n| n.own > 0) {
            // Without the separators of the format.
            let part = |node: &Node| node_name(stacks, node).replace([';', '\n'], ",");
            let mut names = vec![part(node)];
            let mut at = node.parent;
            while at != 0 {
                names.push(part(&self.nodes[at as usize]));
                at = self.nodes[at as usize].parent;
            }
            names.reverse();
            lines.push((node.own, names.join(";")));
        }
        lines.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        lines.into_iter().map(|(weight, path)| format!("{path} {weight}\n")).collect()
    }
}

/// The frames of a stack in the given shape, and the number of folded frames.
fn path(stacks: &StackTable, entry: &Entry, shape: Shape) -> (Vec<What>, u64) {
    let frames = stacks.frames(entry.stack);
    let mut kept: Vec<FrameId> = frames.to_vec();
    let mut folded = 0;
    if shape.folds_framework {
        let is_own = |f: &FrameId| stacks.frame(*f).is_some_and(|f| !is_framework(stacks, f));
        // Keep the allocating frame, even a framework's: `cross_entropy` says more than the line that calls it. Code that the
        // compiler generated says nothing; keep the line that calls the compiled function instead.
        let is_written = |f: &FrameId| stacks.frame(*f).is_none_or(|f| !is_generated(stacks.text(f.file)));
        let innermost = innermost(stacks, entry.stack).filter(|f| is_written(f) || !frames.iter().any(is_own));
        kept.retain(|f| Some(*f) == innermost || is_own(f));
        folded = (frames.len() - kept.len()) as u64;
    }
    let mut path: Vec<What> = match shape.by {
        By::Stack | By::Role | By::Phase => kept.into_iter().map(What::Frame).collect(),
        By::File => {
            let mut files: Vec<What> = kept.iter().filter_map(|&f| stacks.frame(f)).map(|f| What::File(f.file)).collect();
            files.dedup();
            files
        }
        By::Module => {
            let module = |f: &FrameId| {
                let (file, name) = stacks.frame(*f).map_or(("", ""), |f| (stacks.text(f.file), stacks.text(f.name)));
                // Functions with this name in autograd and in the compiler are not modules.
                let is_function = file.contains("torch/_functorch/") || file.contains("torch/autograd/");
                (name == "forward" && !is_function) || name.starts_with("nn.Module: ")
            };
            let modules: Vec<What> = frames.iter().filter(|f| module(f)).map(|&f| What::Frame(f)).collect();
            if modules.is_empty() && !frames.is_empty() { vec![What::NoModule] } else { modules }
        }
    };
    if path.is_empty() {
        path.push(What::NoStack(entry.stack));
    }
    if shape.root == Root::Outermost {
        path.reverse();
    }
    match shape.by {
        By::Role => path.insert(0, What::Role(entry.role)),
        By::Phase => path.insert(0, What::Phase(entry.phase)),
        By::Stack | By::File | By::Module => {}
    }
    (path, folded)
}

/// Name and place of a frame: `forward` and `model.py:71`. The place may be empty. A role has "probably" if most of it is inferred.
pub fn node_text(stacks: &StackTable, node: &Node) -> (String, String) {
    match node.what {
        What::All => ("all".to_owned(), String::new()),
        What::NoStack(stack) => (crate::tables::without_stack(stack).to_owned(), String::new()),
        What::NoModule => ("outside modules".to_owned(), String::new()),
        What::Role(role) => {
            (node.mix.iter().find(|m| m.role == role).map_or_else(|| role.text().to_owned(), Share::words), String::new())
        }
        What::Phase(phase) => (phase.map_or("phase unknown", Phase::name).to_owned(), String::new()),
        What::File(file) => {
            let path = stacks.text(file);
            (path.rsplit(['/', '\\']).next().unwrap_or(path).to_owned(), String::new())
        }
        What::Frame(frame) => match stacks.frame(frame) {
            Some(frame) => (function_label(stacks.text(frame.name)).to_owned(), stacks.location(frame)),
            None => (crate::tables::NO_STACK.to_owned(), String::new()),
        },
    }
}

/// Name for other programs and for searches: `name (file.py:71)`.
pub fn node_name(stacks: &StackTable, node: &Node) -> String {
    let (short, place) = node_text(stacks, node);
    // The full name, for other programs and for searches.
    let name = match node.what {
        What::Frame(frame) => stacks.frame(frame).map_or(short, |f| stacks.text(f.name).to_owned()),
        _ => short,
    };
    if place.is_empty() { name } else { format!("{name} ({place})") }
}

#[cfg(test)]
mod tests;
