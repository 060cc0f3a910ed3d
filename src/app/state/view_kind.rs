//! The list of views and their names. What a view draws is in `views`.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ViewKind {
    /// What the memory is used for, and what is wrong.
    #[default]
    Memory,
    /// Problems, ranked.
    Findings,
    /// Curves and live allocations over time.
    Timeline,
    /// Segments and blocks at the cursor.
    SegmentMap,
    Heatmap,
    /// Everything about the selection.
    Inspector,
    /// Table of the allocations that match the query.
    Allocations,
    /// Table of the trace.
    Events,
    /// Devices, totals, settings, oddities of the recording.
    Contents,
    /// Why a request failed.
    Autopsy,
    /// Bytes by call stack.
    Flame,
    /// What changed between A and B.
    Compare,
    /// Allocations that outlive their training step.
    Leaks,
    /// Peak and growth by training step.
    Steps,
    /// All memory of the card, to the byte.
    Accounting,
    /// Simulation of the same requests under other settings.
    WhatIf,
    /// Prediction for other sizes, cards and changes.
    Plan,
    /// The card over time, from live samples.
    Live,
}

/// The names of a view: in its pane and in menus, on the command line (`--view timeline`), and one sentence about it.
struct Name {
    kind: ViewKind,
    title: &'static str,
    name: &'static str,
    about: &'static str,
}

impl Name {
    const fn of(kind: ViewKind, title: &'static str, name: &'static str) -> Self {
        Name { kind, title, name, about: "" }
    }

    const fn about(self, about: &'static str) -> Self {
        Name { about, ..self }
    }
}

const NAMES: &[Name] = &[
    Name::of(ViewKind::Memory, "Memory", "memory")
        .about("Where the memory is, at the peak or at the cursor: what it is for, which modules and lines hold it, and what is wrong."),
    Name::of(ViewKind::Findings, "Findings", "findings")
        .about("What is wrong with this recording and what would save memory. A click takes all views to the evidence."),
    Name::of(ViewKind::Timeline, "Timeline", "timeline")
        .about("Memory over the recording: the curves above, every live block below, stacked in order of allocation."),
    Name::of(ViewKind::SegmentMap, "Segment map", "segment-map")
        .about("Every segment PyTorch has reserved at the cursor, one row each, with its blocks and holes to scale."),
    Name::of(ViewKind::Heatmap, "Fragmentation", "heatmap")
        .about("Reserved memory by address over time: what was in use, what was free, and where the largest hole was."),
    Name::of(ViewKind::Inspector, "Inspector", "inspector")
        .about("Everything the recording knows of what is selected."),
    Name::of(ViewKind::Allocations, "Allocations", "allocations")
        .about("One row an allocation. A query picks some: all views dim the others, and the timeline draws the bytes of those picked."),
    Name::of(ViewKind::Events, "Events", "events")
        .about("The allocator's trace, one row an event. The row of the cursor is marked; a click moves the cursor there."),
    Name::of(ViewKind::Contents, "Contents", "contents")
        .about("What this recording holds, and the figures at the cursor."),
    Name::of(ViewKind::Autopsy, "OOM autopsy", "oom")
        .about("Why a request failed: what was asked, what was free and where, and what kept it from fitting."),
    Name::of(ViewKind::Flame, "Flame graph", "flame")
        .about("Which code holds the bytes: each frame is as wide as what was allocated through it."),
    Name::of(ViewKind::Compare, "Compare", "compare")
        .about("What changed from A to B: two instants, two recordings, two ranks, or a recording and a simulation of it."),
    Name::of(ViewKind::Leaks, "Leaks", "leaks")
        .about("What survives its step: call stacks that leave something behind again and again."),
    Name::of(ViewKind::Steps, "Steps", "steps")
        .about("What each training step did to memory: its peak, what it left behind, what it allocated."),
    Name::of(ViewKind::Accounting, "Accounting", "accounting")
        .about("Where every byte is at the cursor: why nvidia-smi and PyTorch disagree, and what empty_cache would give back."),
    Name::of(ViewKind::WhatIf, "What-if", "what-if")
        .about("The same requests under other PYTORCH_CUDA_ALLOC_CONF settings: what each would reserve, and whether it fits a limit."),
    Name::of(ViewKind::Plan, "Plan", "plan")
        .about("What this program needs at other sizes and on other cards, the largest batch that fits, and what makes more fit: checkpointing, another optimizer, offloading and more."),
    Name::of(ViewKind::Live, "Live", "live")
        .about("Every byte of the card over time: driver, other processes, and the watched program inside and outside PyTorch."),
];

impl ViewKind {
    /// Every view, in menu order.
    pub fn all() -> impl Iterator<Item = ViewKind> {
        NAMES.iter().map(|n| n.kind)
    }

    fn names(self) -> &'static Name {
        // Every kind has a row; a test checks it.
        NAMES.iter().find(|n| n.kind == self).unwrap_or(&NAMES[0])
    }

    pub fn title(self) -> &'static str {
        self.names().title
    }

    pub fn name(self) -> &'static str {
        self.names().name
    }

    /// One sentence: what the view tells.
    pub fn about(self) -> &'static str {
        self.names().about
    }

    pub fn from_name(name: &str) -> Option<ViewKind> {
        NAMES.iter().find(|n| n.name.eq_ignore_ascii_case(name)).map(|n| n.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_view_has_a_name_of_its_own() {
        let mut seen = std::collections::HashSet::new();
        for n in NAMES {
            assert!(seen.insert(n.name) && n.kind.names().name == n.name, "{} twice", n.name);
            assert!(n.about.ends_with('.'), "{}", n.name);
        }
    }
}
