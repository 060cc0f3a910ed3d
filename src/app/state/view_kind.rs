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

const NAMES: &[Name] = &[
    Name {
        kind: ViewKind::Memory,
        title: "Memory",
        name: "memory",
        about: "Where the memory is, at the peak or at the cursor: what it is for, which modules and lines hold it, and what is wrong.",
    },
    Name {
        kind: ViewKind::Findings,
        title: "Findings",
        name: "findings",
        about: "What is wrong with this recording and what would save memory. A click takes all views to the evidence.",
    },
    Name {
        kind: ViewKind::Timeline,
        title: "Timeline",
        name: "timeline",
        about: "Memory over the recording: the curves above, every live block below, stacked in order of allocation.",
    },
    Name {
        kind: ViewKind::SegmentMap,
        title: "Segment map",
        name: "segment-map",
        about: "Every segment PyTorch has reserved at the cursor, one row each, with its blocks and holes to scale.",
    },
    Name {
        kind: ViewKind::Heatmap,
        title: "Fragmentation",
        name: "heatmap",
        about: "Reserved memory by address over time: what was in use, what was free, and where the largest hole was.",
    },
    Name {
        kind: ViewKind::Inspector,
        title: "Inspector",
        name: "inspector",
        about: "Everything the recording knows of what is selected.",
    },
    Name {
        kind: ViewKind::Allocations,
        title: "Allocations",
        name: "allocations",
        about: "One row an allocation. A query picks some: all views dim the others, and the timeline draws the bytes of those picked.",
    },
    Name {
        kind: ViewKind::Events,
        title: "Events",
        name: "events",
        about: "The allocator's trace, one row an event. The row of the cursor is marked; a click moves the cursor there.",
    },
    Name {
        kind: ViewKind::Contents,
        title: "Contents",
        name: "contents",
        about: "What this recording holds, and the figures at the cursor.",
    },
    Name {
        kind: ViewKind::Autopsy,
        title: "OOM autopsy",
        name: "oom",
        about: "Why a request failed: what was asked, what was free and where, and what kept it from fitting.",
    },
    Name {
        kind: ViewKind::Flame,
        title: "Flame graph",
        name: "flame",
        about: "Which code holds the bytes: each frame is as wide as what was allocated through it.",
    },
    Name {
        kind: ViewKind::Compare,
        title: "Compare",
        name: "compare",
        about: "What changed from A to B: two instants, two recordings, two ranks, or a recording and a simulation of it.",
    },
    Name {
        kind: ViewKind::Leaks,
        title: "Leaks",
        name: "leaks",
        about: "What survives its step: call stacks that leave something behind again and again.",
    },
    Name {
        kind: ViewKind::Steps,
        title: "Steps",
        name: "steps",
        about: "What each training step did to memory: its peak, what it left behind, what it allocated.",
    },
    Name {
        kind: ViewKind::Accounting,
        title: "Accounting",
        name: "accounting",
        about: "Where every byte is at the cursor: why nvidia-smi and PyTorch disagree, and what empty_cache would give back.",
    },
    Name {
        kind: ViewKind::WhatIf,
        title: "What-if",
        name: "what-if",
        about: "The same requests under other PYTORCH_CUDA_ALLOC_CONF settings: what each would reserve, and whether it fits a limit.",
    },
    Name {
        kind: ViewKind::Plan,
        title: "Plan",
        name: "plan",
        about: "What this program needs at other sizes and on other cards, the largest batch that fits, and what makes more fit: checkpointing, another optimizer, offloading and more.",
    },
    Name {
        kind: ViewKind::Live,
        title: "Live",
        name: "live",
        about: "Every byte of the card over time: driver, other processes, and the watched program inside and outside PyTorch.",
    },
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
