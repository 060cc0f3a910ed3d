//! The views: what each one is called, what it shows, how it is made. A new view registers here and nowhere else.

use std::sync::Arc;

use egui::Ui;
use serde::{Deserialize, Serialize};

use crate::app::data::colours::Colours;
use crate::app::data::compare::Comparing;
use crate::app::documents::document::DeviceData;
use crate::app::jobs::Jobs;
use crate::app::platform::editor::place::PathPrefix;
use crate::app::state::action::{Action, Actions};
use crate::app::state::cursor::Link;
use crate::app::state::selection::Item;
use crate::app::theme::Tokens;
use vramscope_core::analysis::findings::Findings;
use vramscope_core::analysis::matching::Matching;
use vramscope_core::analysis::vendor::Words;
use vramscope_core::analysis::{Roles, State};

pub mod accounting;
pub mod allocations;
pub mod autopsy;
mod block_legend;
mod block_name;
pub mod compare;
pub mod contents;
pub mod events;
pub mod findings;
pub mod flame;
pub mod heatmap;
pub mod inspector;
pub mod leaks;
pub mod live;
pub mod memory;
mod place_link;
mod query_field;
mod query_help;
pub mod segment_map;
mod stack_cells;
pub mod steps;
pub mod timeline;
pub mod whatif;

/// Which view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ViewKind {
    /// The whole card, to the last byte.
    Accounting,
    /// Bytes by call stack.
    Flame,
    /// What changed between A and B.
    Compare,
    /// What survives its step.
    Leaks,
    /// Peak and growth by training step.
    Steps,
    /// Where the memory is, and what is wrong.
    Memory,
    /// What is wrong, ranked.
    Findings,
    /// Why a request failed.
    Autopsy,
    /// Curves and live allocations over time.
    Timeline,
    /// Segments and blocks at the cursor.
    SegmentMap,
    /// Addresses over time.
    Heatmap,
    /// The same requests under other settings.
    WhatIf,
    /// The card over time, as it was watched.
    Live,
    /// Everything about the selection.
    Inspector,
    /// The trace as a table.
    Events,
    /// Allocations as a table, those that a query holds for.
    Allocations,
    /// Devices, figures, settings, what was odd.
    Contents,
}

/// What the registry knows of a view.
pub struct ViewInfo {
    /// Which.
    pub kind: ViewKind,
    /// Pane title.
    pub title: &'static str,
    /// Short name for the command line: `--view timeline`.
    pub name: &'static str,
    /// One sentence: what it tells.
    pub about: &'static str,
    /// The picture's own legend, and gestures beyond the usual: (what, meaning).
    pub legend: &'static [(&'static str, &'static str)],
    /// Makes one.
    pub create: fn() -> Box<dyn View>,
}

/// Every view there is, in menu order.
pub const REGISTRY: &[ViewInfo] = &[
    memory::INFO,
    findings::INFO,
    timeline::INFO,
    segment_map::INFO,
    heatmap::INFO,
    inspector::INFO,
    allocations::INFO,
    events::INFO,
    contents::INFO,
    autopsy::INFO,
    flame::INFO,
    compare::INFO,
    leaks::INFO,
    steps::INFO,
    accounting::INFO,
    whatif::INFO,
    live::INFO,
];

impl ViewKind {
    /// Every view, in menu order.
    pub fn all() -> impl Iterator<Item = ViewKind> {
        REGISTRY.iter().map(|i| i.kind)
    }

    /// What the registry knows of it.
    #[must_use]
    pub fn info(self) -> &'static ViewInfo {
        // Every kind is registered: a test walks them all.
        REGISTRY.iter().find(|i| i.kind == self).unwrap_or(&REGISTRY[0])
    }

    /// True when this build has it.
    #[must_use]
    pub fn is_registered(self) -> bool {
        REGISTRY.iter().any(|i| i.kind == self)
    }

    /// Pane title.
    #[must_use]
    pub fn title(self) -> &'static str {
        self.info().title
    }

    /// The view of a command-line name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<ViewKind> {
        REGISTRY.iter().find(|i| i.name.eq_ignore_ascii_case(name)).map(|i| i.kind)
    }
}

/// What a view sees. It changes nothing itself: it sends actions.
pub struct ViewContext<'a> {
    /// The device, its tables, its recording.
    pub data: &'a Arc<DeviceData>,
    /// Cursor, window, selection, shared by all views.
    pub link: &'a Link,
    /// Segments and blocks at (or, for a frame or two while it is computed, near) the cursor; `State::event` tells which.
    pub state: Option<&'a Arc<State>>,
    /// What the rules found; `None` while they run.
    pub findings: Option<&'a Arc<Findings>>,
    /// What block colours mean.
    pub colours: &'a Arc<Colours>,
    /// What each allocation is for; `None` until it is known.
    pub roles: Option<&'a Arc<Roles>>,
    /// The allocations a query holds for, while one is in force: views dim the others.
    pub matching: Option<&'a Arc<Matching>>,
    /// The comparison of A and B.
    pub comparing: &'a Comparing,
    /// The theme.
    pub tokens: &'a Tokens,
    /// Where changes are asked for.
    pub actions: &'a Actions,
    /// Threads for what takes long.
    pub jobs: &'a Jobs,
    /// Folders of this machine that stand for those that recordings name.
    pub source_folders: &'a [PathPrefix],
}

impl ViewContext<'_> {
    /// What the vendor of the device in front calls things.
    #[must_use]
    pub fn words(&self) -> &'static Words {
        Words::of(self.data.device())
    }

    /// Tells the other views what is under the pointer, once for each change. `said` is the view's own memory of having told of
    /// anything: a view that the pointer is not over leaves the word to the others.
    pub fn say_hover(&self, said: &mut bool, event: Option<u32>, item: Option<Item>) {
        if event.is_none() && !*said {
            return;
        }
        if self.link.hover_event != event {
            self.actions.send(Action::HoverEvent(event));
        }
        if self.link.hovered != item {
            self.actions.send(Action::Hover(item));
        }
        *said = event.is_some();
    }
}

/// A view: a picture of a device with its own scroll positions and caches.
pub trait View {
    /// A few words after the title: `at the OOM · 54 segments`.
    fn subtitle(&self, _cx: &ViewContext<'_>) -> String {
        String::new()
    }

    /// Controls at the right of the pane header, drawn right to left.
    fn header_ui(&mut self, _ui: &mut Ui, _cx: &ViewContext<'_>) {}

    /// The picture, in what is left of the pane.
    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_view_has_a_name_of_its_own_and_explains_itself() {
        let mut names = std::collections::HashSet::new();
        for info in REGISTRY {
            assert!(names.insert(info.name), "{} twice", info.name);
            assert!(info.about.ends_with('.'), "{}", info.name);
            assert!(!info.legend.is_empty(), "{} has no legend", info.name);
            assert_eq!(info.kind.info().name, info.name);
        }
    }
}
