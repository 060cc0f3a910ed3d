//! [`View`], and [`ViewContext`], from which it draws.

use std::borrow::Cow;
use std::sync::Arc;

use egui::Ui;

use crate::app::data::colours::Colours;
use crate::app::data::compare::{Comparing, Here};
use crate::app::data::device::DeviceData;
use crate::app::jobs::Jobs;
use crate::app::platform::editor::place::PathPrefix;
use crate::app::state::shared::domain;
use crate::app::state::{Action, Actions, Axis, Item, SharedViewState, ViewKind};
use crate::app::theme::Tokens;
use crate::app::widgets::{Intent, PanZoom, Scale, empty_state};
use vramscope_core::anatomy::Roles;
use vramscope_core::diagnose::findings::Findings;
use vramscope_core::diagnose::source_limits::no_history;
use vramscope_core::diagnose::vendor::Words;
use vramscope_core::model::StackId;
use vramscope_core::query::matching::Matching;
use vramscope_core::tables::State;

pub struct ViewInfo {
    pub kind: ViewKind,
    /// The view's own legend, and gestures beyond the usual: (what, meaning).
    pub legend: &'static [(&'static str, &'static str)],
    pub create: fn() -> Box<dyn View>,
}

/// What a view can read. A view changes nothing itself: it sends actions.
pub struct ViewContext<'a> {
    pub data: &'a Arc<DeviceData>,
    pub shared: &'a SharedViewState,
    /// Segments and blocks at the cursor, or near it for a frame or two while they are computed; `State::event` is the event they
    /// are of.
    pub state: Option<&'a Arc<State>>,
    /// `None` while the rules run.
    pub findings: Option<&'a Arc<Findings>>,
    pub colours: &'a Arc<Colours>,
    /// The role of each allocation; `None` until known.
    pub roles: Option<&'a Arc<Roles>>,
    /// The allocations that match the query, if there is one. Views dim the others.
    pub matching: Option<&'a Arc<Matching>>,
    pub comparing: &'a Comparing,
    pub tokens: &'a Tokens,
    pub actions: &'a Actions,
    pub jobs: &'a Jobs,
    /// Maps folders in recordings to folders of this machine.
    pub source_folders: &'a [PathPrefix],
}

impl ViewContext<'_> {
    /// Reports the item under the pointer. When the pointer leaves, reports once that nothing is under it.
    pub fn hover(&self, is_hovering: &mut bool, item: Option<Item>) {
        if (item.is_some() && self.shared.hovered != item) || (item.is_none() && *is_hovering) {
            self.actions.send(Action::Hover(item));
        }
        *is_hovering = item.is_some();
    }

    /// The call stack that is selected, rather than a single thing.
    pub fn selected_stack(&self) -> Option<StackId> {
        match self.shared.selected() {
            Some(Item::Stack(stack)) => Some(stack),
            _ => None,
        }
    }

    /// The line that writes a snapshot.
    pub fn snapshot_line(&self) -> Cow<'static, str> {
        self.words().say("torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")")
    }

    /// Replaces the view when there is no history to draw: says so, and shows the line of code that records one.
    pub fn without_history(&self, ui: &mut Ui, sentence: &'static str) {
        let (sentence, line) = no_history(&self.data.recording, sentence);
        empty_state(ui, sentence, Some(&self.words().say(line)));
    }

    /// Zooms or pans the window of time that views share.
    pub fn move_window(&self, intent: &Intent, x: &Scale) {
        let (first, last) = domain(self.data.device(), self.shared.axis);
        let least = if self.shared.axis == Axis::Event { 8.0 } else { 20.0 };
        let mut time = PanZoom::new(first, last).with_least(least);
        time.show(self.shared.from, self.shared.to);
        if time.apply(intent, x, false) {
            let (from, to) = time.visible();
            self.actions.send(Action::SetWindow(from, to));
        }
    }

    /// The vendor's terms for the device in front.
    pub fn words(&self) -> &'static Words {
        Words::of(self.data.device())
    }

    pub fn here(&self) -> Here<'_> {
        Here { data: self.data, shared: self.shared, roles: self.roles, matching: self.matching, jobs: self.jobs }
    }

    /// Reports to other views what is under the pointer, once per change. `said` remembers that this view reported something; a
    /// view without the pointer reports nothing, so that it does not override the others.
    pub fn say_hover(&self, said: &mut bool, event: Option<u32>, item: Option<Item>) {
        if event.is_none() && !*said {
            return;
        }
        if self.shared.hover_event != event {
            self.actions.send(Action::HoverEvent(event));
        }
        if self.shared.hovered != item {
            self.actions.send(Action::Hover(item));
        }
        *said = event.is_some();
    }
}

/// A view: a picture of a device with its own scroll positions and caches.
pub trait View {
    /// A few words after the title, such as `at the OOM · 54 segments`.
    fn subtitle(&self, _cx: &ViewContext<'_>) -> String {
        String::new()
    }

    /// Controls at the right of the pane header, drawn right to left.
    fn header_ui(&mut self, _ui: &mut Ui, _cx: &ViewContext<'_>) {}

    /// What the status bar shows in place of the cursor, as names and figures. `None` shows the cursor.
    fn status(&self) -> Option<Vec<(String, String)>> {
        None
    }

    /// Draws the view in the rest of the pane.
    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>);
}
