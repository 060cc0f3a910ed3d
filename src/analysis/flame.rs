//! Flame graphs: bytes by call stack, as a tree.

use rustc_hash::FxHashMap;

use super::naming::is_framework;
use super::{DeviceTables, LifetimeId, NO_EVENT};
use crate::model::{DeviceRecording, FrameId, StackId, StackTable};

/// What a frame's width means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Measure {
    /// Requested bytes live after an event.
    LiveAt(u32),
    /// Requested bytes allocated in a range of events, first and last.
    Allocated(u32, u32),
    /// Requested bytes allocated and freed again within a range.
    Churn(u32, u32),
    /// Requested bytes times events lived within a range: what keeps memory busy longest.
    BytesTimesLife(u32, u32),
}

/// Weight and number of allocations by stack. O(lifetimes), or O(live) for [`Measure::LiveAt`].
#[must_use]
pub fn weigh(device: &DeviceRecording, tables: &DeviceTables, measure: Measure) -> FxHashMap<StackId, (u64, u64)> {
    let lifetimes = &tables.lifetimes;
    let mut by_stack: FxHashMap<StackId, (u64, u64)> = FxHashMap::default();
    let mut add = |id: LifetimeId, weight: u64| {
        let entry = by_stack.entry(lifetimes.stack(device, id)).or_default();
        entry.0 = entry.0.saturating_add(weight);
        entry.1 += 1;
    };
    if let Measure::LiveAt(event) = measure {
        for id in tables.states.live_at(device, lifetimes, event) {
            add(id, lifetimes.requested(device, id));
        }
        return by_stack;
    }
    let last_event = device.events.len().saturating_sub(1) as u32;
    for i in 0..lifetimes.len() as u32 {
        let id = LifetimeId(i);
        let (born, gone) = (lifetimes.born(id), lifetimes.gone(id));
        let size = lifetimes.requested(device, id);
        match measure {
            Measure::Allocated(first, last) if born != NO_EVENT && (first..=last).contains(&born) => add(id, size),
            Measure::Churn(first, last)
                if born != NO_EVENT && (first..=last).contains(&born) && (first..=last).contains(&gone) =>
            {
                add(id, size);
            }
            Measure::BytesTimesLife(first, last) => {
                let from = if born == NO_EVENT { 0 } else { born }.max(first);
                let to = gone.min(last).min(last_event);
                if to > from {
                    add(id, size.saturating_mul(u64::from(to - from)));
                }
            }
            _ => {}
        }
    }
    by_stack
}

/// From which end of the stacks the tree grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Root {
    /// The outermost call: `main` at the root.
    #[default]
    Outermost,
    /// The innermost call: the allocating function at the root.
    Innermost,
}

/// One frame of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its frame; `None` for the root, and for "no Python stack".
    pub frame: Option<FrameId>,
    /// Index of its parent; the root is its own.
    pub parent: u32,
    /// Distance from the root.
    pub depth: u32,
    /// Weight of everything through here.
    pub total: u64,
    /// Weight of stacks that end here.
    pub own: u64,
    /// Allocations through here.
    pub count: u64,
    /// Indices of its children, heaviest first.
    pub children: Vec<u32>,
    /// A stack that passes through here, for the inspector.
    pub stack: StackId,
}

/// A flame graph. Node 0 is the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flame {
    /// All nodes; a parent stands before its children.
    pub nodes: Vec<Node>,
    /// Frames left out because they belong to frameworks.
    pub folded_frames: u64,
}

impl Flame {
    /// Builds the tree. `fold_framework` leaves frames of PyTorch, Python and installed packages out. O(stacks × depth).
    #[must_use]
    pub fn build(stacks: &StackTable, weights: &FxHashMap<StackId, (u64, u64)>, root: Root, fold_framework: bool) -> Self {
        let mut nodes = vec![Node {
            frame: None,
            parent: 0,
            depth: 0,
            total: 0,
            own: 0,
            count: 0,
            children: Vec::new(),
            stack: StackId::NONE,
        }];
        let mut index: FxHashMap<(u32, Option<FrameId>), u32> = FxHashMap::default();
        let mut folded_frames = 0;
        let mut order: Vec<(&StackId, &(u64, u64))> = weights.iter().collect();
        order.sort_unstable_by_key(|(id, _)| **id);
        for (&stack, &(weight, count)) in order {
            let mut path: Vec<Option<FrameId>> = stacks.frames(stack).iter().copied().map(Some).collect();
            if fold_framework {
                let before = path.len();
                path.retain(|f| f.and_then(|f| stacks.frame(f)).is_some_and(|f| !is_framework(stacks, f)));
                if path.is_empty() {
                    path.extend(stacks.frames(stack).first().map(|&f| Some(f)));
                }
                folded_frames += (before - path.len()) as u64;
            }
            if path.is_empty() {
                // Allocations without a stack are one frame, never spread over others.
                path.push(None);
            }
            if root == Root::Outermost {
                path.reverse();
            }
            let mut at = 0u32;
            nodes[0].total = nodes[0].total.saturating_add(weight);
            nodes[0].count += count;
            for frame in path {
                let next = *index.entry((at, frame)).or_insert_with(|| {
                    let depth = nodes[at as usize].depth + 1;
                    nodes.push(Node { frame, parent: at, depth, total: 0, own: 0, count: 0, children: Vec::new(), stack });
                    nodes.len() as u32 - 1
                });
                if !nodes[at as usize].children.contains(&next) {
                    nodes[at as usize].children.push(next);
                }
                let node = &mut nodes[next as usize];
                node.total = node.total.saturating_add(weight);
                node.count += count;
                at = next;
            }
            nodes[at as usize].own = nodes[at as usize].own.saturating_add(weight);
        }
        let totals: Vec<u64> = nodes.iter().map(|n| n.total).collect();
        for node in &mut nodes {
            node.children.sort_by_key(|&c| (std::cmp::Reverse(totals[c as usize]), c));
        }
        Flame { nodes, folded_frames }
    }

    /// Collapsed stacks, one a line, heaviest first: what flame graph scripts and speedscope read.
    #[must_use]
    pub fn collapsed(&self, stacks: &StackTable) -> String {
        let mut lines: Vec<(u64, String)> = Vec::new();
        for node in self.nodes.iter().skip(1).filter(|n| n.own > 0) {
            let mut names = vec![node_name(stacks, node)];
            let mut at = node.parent;
            while at != 0 {
                names.push(node_name(stacks, &self.nodes[at as usize]));
                at = self.nodes[at as usize].parent;
            }
            names.reverse();
            lines.push((node.own, names.join(";")));
        }
        lines.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        lines.into_iter().map(|(weight, path)| format!("{path} {weight}\n")).collect()
    }
}

/// `name (file.py:71)`, without the separators of collapsed stacks.
#[must_use]
pub fn node_name(stacks: &StackTable, node: &Node) -> String {
    match node.frame.and_then(|f| stacks.frame(f)) {
        Some(frame) => format!("{} ({})", stacks.text(frame.name), stacks.location(frame)).replace([';', '\n'], ","),
        None if node.depth == 0 => "all".to_owned(),
        None => super::NO_STACK.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Frame, StackTableBuilder};

    #[test]
    fn totals_add_up_from_either_end() {
        let mut b = StackTableBuilder::new();
        let file = b.string("/home/me/a.py");
        let mut frame = |name: &str| {
            let name = b.string(name);
            b.frame(Frame { name, file, line: 1 })
        };
        let (main, f, g) = (frame("main"), frame("f"), frame("g"));
        let s1 = b.stack(&[f, main]);
        let s2 = b.stack(&[g, f, main]);
        let table = b.finish();
        let weights: FxHashMap<StackId, (u64, u64)> =
            [(s1, (10, 1)), (s2, (5, 2)), (StackId::NONE, (7, 1))].into_iter().collect();
        for root in [Root::Outermost, Root::Innermost] {
            let flame = Flame::build(&table, &weights, root, false);
            assert_eq!(flame.nodes[0].total, 22);
            assert_eq!(flame.nodes.iter().map(|n| n.own).sum::<u64>(), 22);
            for node in flame.nodes.iter().skip(1) {
                let below: u64 = node.children.iter().map(|&c| flame.nodes[c as usize].total).sum();
                assert_eq!(node.total, node.own + below);
            }
        }
        let text = Flame::build(&table, &weights, Root::Outermost, false).collapsed(&table);
        assert_eq!(text, "main (a.py:1);f (a.py:1) 10\nno Python stack 7\nmain (a.py:1);f (a.py:1);g (a.py:1) 5\n");
    }
}
