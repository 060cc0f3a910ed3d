//! OOM autopsy: why the request failed, where the free memory is, what fragments it, what to free, and which settings would have
//! helped. A recording without a failure gets the same for its peak.

mod blockers;
mod card;
mod case;
mod frames;
mod helped;
mod layout;
mod live_blocks;
mod parts;
mod pictures;
mod segments;
mod verdict;

use std::sync::Arc;

use egui::{Rect, ScrollArea, Ui};

use super::{View, ViewContext, ViewInfo};
use crate::app::data::colours::Colours;
use crate::app::data::device::DeviceData;
use crate::app::jobs::identity::Identity;
use crate::app::jobs::{Derived, Shown};
use crate::app::state::ViewKind;
use crate::app::theme::Type;
use crate::app::widgets::{Cut, PaneHeader, anchor, pane, segmented, term};
use case::{Case, CaseKind};
use vramscope_core::anatomy::roles::ByRole;
use vramscope_core::diagnose::oom::{
    AUTOMATIC_TRIALS_MOST_EVENTS, Advice, Helped, Verdict, can_be_served_again, closest_under, examine, free_at,
    what_would_have_helped,
};
use vramscope_core::inference::{Caps, WhatIf};

use vramscope_core::model::{BlockState, Progress, StackId};
use vramscope_core::tables::{named_by, tell_apart};
use vramscope_core::units::counted;

pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::Autopsy,
    legend: &[
        ("red", "the request, drawn to the scale of everything below it"),
        ("hatched", "free memory inside segments"),
        ("wastes", "free bytes on both sides of a live block"),
        ("if freed", "the one hole there would be without that block; of another stream's, the segment that would go back"),
        ("blue edge", "a block to free, or a segment with one"),
        ("helps", "the allocator model served every recorded request under that setting"),
        ("double click", "on a setting: open it in What-if"),
    ],
    create: || Box::new(AutopsyView::default()),
};

#[derive(Default)]
struct AutopsyView {
    /// The chosen out-of-memory event, when there are several; the last one by default.
    chosen: Option<u32>,
    /// The cursor in the last frame. When it moves to a failure, that failure is chosen.
    cursor: Option<u32>,
    /// The memory cap, as entered by the user.
    cap: Option<u64>,
    cap_text: String,
    cap_error: Option<String>,
    /// Name of the table that the user chose.
    table: Option<&'static str>,
    /// The user wants settings to be simulated on a long recording.
    tries: bool,
    setting: Option<String>,
    case: Derived<(Option<u32>, Option<u64>), Option<Case>>,
    helped: Derived<Option<u64>, Helped>,
    /// The colour classes in the drawn segments, those with most bytes first, with the event and the colours they belong to.
    /// Holding the colours keeps their address from being reused.
    classes: Option<(u32, Arc<Colours>, Vec<u8>)>,
    /// Keyed by the event and the roles.
    by_role: Derived<(u32, Identity), ByRole>,
    /// Keyed like [`by_role`](Self::by_role).
    smaller: Derived<(u32, Identity), Vec<Advice>>,
    frames: frames::Frames,
}

impl Case {
    /// Examines a failure, or the peak when `event` is `None`. Returns `None` when there is nothing to examine.
    fn examine(data: &DeviceData, event: Option<u32>, cap: Option<u64>, progress: &Progress) -> Option<Case> {
        let (device, tables) = (data.device(), &data.tables);
        let (kind, at) = match event {
            Some(event) => {
                let state = tables.states.at(device, &tables.lifetimes, event);
                let caps = match cap {
                    Some(cap) => Caps::exact(cap),
                    None => data.caps(progress).ok()?,
                };
                let found = examine(device, tables, event, &state, &caps)?;
                (CaseKind::Failure(Box::new(found)), event)
            }
            None => {
                let found = closest_under(device, tables, cap)?;
                let at = found.event;
                (CaseKind::Peak(Box::new(found)), at)
            }
        };
        let state = tables.states.at(device, &tables.lifetimes, at);
        progress.check().ok()?;
        let mut case = Case {
            kind,
            state: Arc::new(state),
            serving: Vec::new(),
            drawn: Vec::new(),
            widest: 1,
            listed: Vec::new(),
            largest: Vec::new(),
            hole_sizes: Vec::new(),
            live_names: Vec::new(),
            live_largest: Vec::new(),
        };
        let live: Vec<(StackId, &str)> = case.top_live().iter().map(|l| (l.stack, data.names.of_stack(l.stack))).collect();
        let stacks = &data.recording.stacks;
        let apart = tell_apart(stacks, &live);
        case.live_names = live.iter().zip(apart).map(|((_, name), by)| named_by(stacks, name, by)).collect();
        case.live_largest = live_blocks::largest_by_stack(data, &case);
        case.serving = segments::servers(&case);
        case.drawn = segments::drawn(&case, &case.serving);
        case.widest = segments::widest(&case);
        case.listed = blockers::listed(device, &case);
        case.largest = live_blocks::largest(&case.state);
        let serving = case.serving.iter().flat_map(|&i| case.state.blocks_of(&case.state.segments[i]));
        case.hole_sizes = serving.filter(|b| b.state == BlockState::Inactive).map(|b| b.size).collect();
        case.hole_sizes.sort_unstable_by(|a, b| b.cmp(a));
        Some(case)
    }
}

impl View for AutopsyView {
    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let device = cx.data.device();
        let examinable: Vec<u32> = cx.data.ooms.iter().copied().filter(|&event| free_at(device, event).is_some()).collect();
        if examinable.is_empty() && !cx.data.ooms.is_empty() {
            let failed = counted(cx.data.ooms.len() as u64, "request", "requests");
            let sentence = format!("{failed} failed. This kind of file does not record what was free, so the reason is unknown.");
            if cx.data.recording.source.format == vramscope_core::model::Format::RmmLog {
                return pane::empty_state(ui, &sentence, None);
            }
            let sentence = format!("{sentence} Record a snapshot:");
            return pane::empty_state(ui, &sentence, Some(&cx.words().say(vramscope_core::diagnose::limits::RECORD)));
        }
        if self.cursor.replace(cx.shared.cursor) != Some(cx.shared.cursor) && examinable.binary_search(&cx.shared.cursor).is_ok()
        {
            self.chosen = Some(cx.shared.cursor);
        }
        let chosen = self.chosen.filter(|event| examinable.binary_search(event).is_ok()).or(examinable.last().copied());
        let key = (chosen, self.cap);
        let data = Arc::clone(cx.data);
        let shown = self.case.get(cx.jobs, "autopsy", &key, move |progress| Some(Case::examine(&data, key.0, key.1, progress)));
        let Some(case) = shown.value else {
            return pane::progress_line(ui, ui.max_rect(), shown.fraction);
        };
        let Some(case) = case.as_ref() else {
            return pane::empty_state(
                ui,
                "This device never held any memory, so there is no failure and no peak to look at. Record the history first:",
                Some(&cx.words().say(vramscope_core::diagnose::limits::RECORD)),
            );
        };
        self.layout(ui, cx, case, &examinable);
    }
}

impl AutopsyView {
    fn layout(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, case: &Case, events: &[u32]) {
        let applies = can_be_served_again(cx.data.device());
        let is_long = cx.data.device().events.len() > AUTOMATIC_TRIALS_MOST_EVENTS;
        let (data, cap) = (Arc::clone(cx.data), self.cap);
        let is_too_large = case.failure().is_some_and(|a| a.verdict == Verdict::TooLarge);
        let shown = (applies && !is_too_large && (self.tries || !is_long)).then(|| {
            self.helped.get(cx.jobs, "what would have helped", &cap, move |progress| match cap {
                None => data.helped(progress).ok().map(|h| Helped::clone(&h)),
                Some(_) => {
                    let whatif = WhatIf::new(data.device(), cap, progress).ok()?;
                    what_would_have_helped(&whatif, progress).ok()
                }
            })
        });
        if shown.as_ref().is_some_and(|s| !s.is_fresh) {
            ui.request_repaint_after(std::time::Duration::from_millis(100));
        }
        let done = shown.as_ref().and_then(Shown::fresh);
        let ready = match (&done, &shown) {
            (Some(h), _) => helped::Ready::Done(h),
            (None, Some(s)) => helped::Ready::Running(s.fraction),
            (None, None) if applies && !is_too_large => helped::Ready::Waiting,
            (None, None) if is_too_large => helped::Ready::DoesNotApply(
                "The request is larger than all that this process could get, so no setting serves it.",
            ),
            (None, None) => helped::Ready::DoesNotApply(
                "There are no requests to replay: only a GPU's trace can be tried under other settings.",
            ),
        };
        // Glossary terms in this view use the figures of its own event.
        term::speak_of(ui.ctx(), cx.data, Some(&case.state));
        // When nothing can be freed and no setting helps, the pane shows live memory instead.
        let is_settled = matches!(ready, helped::Ready::DoesNotApply(_));
        let rect = ui.max_rect();
        if let Some((left, right)) = layout::columns(rect) {
            ui.painter().vline(left.right() + 0.5, rect.y_range(), egui::Stroke::new(1.0, cx.tokens.line));
            pane::inside(ui, left, "verdict", |ui| self.verdict(ui, cx, case, &ready, events));
            pane::inside(ui, right, "pictures", |ui| {
                ScrollArea::vertical().id_salt("pictures").auto_shrink(false).show(ui, |ui| {
                    self.right(ui, cx, case, &ready, is_settled, right.height());
                });
            });
        } else {
            // In one column: first what happened and what to try, then the pictures, then the evidence.
            self.header(ui, cx, case, events);
            let seen = ui.available_height();
            ScrollArea::vertical().id_salt("autopsy").auto_shrink(false).show(ui, |ui| {
                ui.spacing_mut().item_spacing = egui::vec2(0.0, 0.0);
                self.answer(ui, cx, case, &ready, events);
                ui.add_space(12.0);
                self.right(ui, cx, case, &ready, is_settled, seen);
                self.details(ui, cx, case);
            });
        }
    }

    /// Pictures and tables in the available width. `seen` is the visible height.
    fn right(
        &mut self,
        ui: &mut Ui,
        cx: &ViewContext<'_>,
        case: &Case,
        ready: &helped::Ready<'_>,
        is_settled: bool,
        mut seen: f32,
    ) {
        let mut room = Rect::from_min_size(ui.cursor().min, egui::vec2(ui.available_width(), seen));
        // For a full device, show first who holds it. It has few holes, and they are not why the request failed.
        if let Some(a) = case.simply_full() {
            ui.allocate_ui(egui::vec2(room.width(), card::HEIGHT), |ui| {
                card::card(ui, cx, a, live_blocks::held_by_role(cx, case, &mut self.by_role).as_deref());
            });
            ui.add_space((room.top() + card::HEIGHT - ui.cursor().top()).max(0.0));
            room.min.y += card::HEIGHT;
            seen -= card::HEIGHT;
        }
        let room_plan = segments::room_plan(ui, cx, case, room.width());
        let wanted = layout::Wanted {
            has_segments: case.has_segments(),
            has_holes: case.has_segments() && case.simply_full().is_none(),
            rows: case.drawn.len(),
            room_plan: room_plan.as_ref().map_or(4.0, |plan| plan.height()),
        };
        let parts = layout::parts(room, seen, wanted);
        ui.allocate_rect(room.lines(0.0, parts.height), egui::Sense::hover());
        if let Some(request) = parts.request {
            pane::inside(ui, request, "request", |ui| {
                let title = if case.failure().is_some() { "Request against holes" } else { "What would have fitted" };
                PaneHeader::new(title).caption("drawn to one scale").show(ui, |_| {});
                pictures::request_against_holes(ui, cx, case);
            });
        }
        if let Some(holes) = parts.holes {
            self.holes(ui, cx, case, holes, room_plan);
        }
        let edge = if parts.settings.left() > parts.table.right() {
            [parts.table.right_top(), parts.table.right_bottom()]
        } else {
            [parts.settings.left_top(), parts.settings.right_top()]
        };
        ui.painter().line_segment(edge, egui::Stroke::new(1.0, cx.tokens.line));
        pane::inside(ui, parts.table, "table", |ui| self.tables(ui, cx, case, is_settled));
        anchor::mark(ui, "helped", parts.settings);
        pane::inside(ui, parts.settings, "settings", |ui| {
            if is_settled {
                self.for_what(ui, cx, case, ready);
            } else {
                self.tries |= helped::ui(ui, cx, ready, case.failure().is_some(), &mut self.setting);
            }
        });
    }

    /// Live memory by role, with the reason why no settings are shown.
    fn for_what(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, case: &Case, ready: &helped::Ready<'_>) {
        PaneHeader::new("Live memory").caption("by what it is for").show(ui, |_| {});
        if let helped::Ready::DoesNotApply(why) = ready {
            ui.add_space(8.0);
            pane::note(ui, why, Type::Body, cx.tokens.text2);
            ui.add_space(6.0);
        }
        live_blocks::by_role(ui, cx, case, &mut self.by_role);
        if let Some(a) = case.failure() {
            parts::parts(ui, cx, a);
        }
    }

    fn holes(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, case: &Case, holes: Rect, room_plan: Option<segments::PlanText>) {
        let event = case.state.event;
        if self.classes.as_ref().is_none_or(|known| known.0 != event || !Arc::ptr_eq(&known.1, cx.colours)) {
            self.classes = Some((event, Arc::clone(cx.colours), segments::classes(cx, case)));
        }
        let classes = self.classes.as_ref().map_or(&[][..], |known| &known.2);
        pane::inside(ui, holes, "holes", |ui| {
            let caption = segments::caption(case);
            PaneHeader::new("Where the holes are").caption(&caption).show(ui, |ui| segments::colours(ui, cx, classes));
            segments::where_the_holes_are(ui, cx, case, room_plan);
        });
    }

    /// The tables of blockers and live memory, one at a time. `is_settled` when live memory by role is already beside them.
    fn tables(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, case: &Case, is_settled: bool) {
        let tables: &[&str] = match (case.has_segments(), is_settled) {
            (true, false) => &["Blockers", "By stack", "By role"],
            (true, true) => &["Blockers", "By stack"],
            (false, false) => &["By stack", "By role"],
            (false, true) => &["By stack"],
        };
        // The default table: live memory by stack for a full device, otherwise the blockers, if there are any.
        let first = if case.listed.is_empty() || case.simply_full().is_some() { "By stack" } else { "Blockers" };
        let chosen = self.table.filter(|name| tables.contains(name)).unwrap_or(first);
        let (title, caption) = match chosen {
            "Blockers" => ("Blockers", blockers::caption(case)),
            "By stack" => ("Live memory", format!("by stack, {}", counted(case.top_live().len() as u64, "stack", "stacks"))),
            _ => ("Live memory", "by what it is for".to_owned()),
        };
        PaneHeader::new(title).caption(&caption).show(ui, |ui| {
            let mut at = tables.iter().position(|name| *name == chosen).unwrap_or(0);
            if tables.len() > 1 && segmented(ui, "Table", &mut at, tables) {
                self.table = tables.get(at).copied();
            }
        });
        match chosen {
            "Blockers" => blockers::blockers(ui, cx, case),
            "By stack" if is_settled => live_blocks::by_stack_and_block(ui, cx, case),
            "By stack" => live_blocks::by_stack(ui, cx, case),
            _ => live_blocks::by_role(ui, cx, case, &mut self.by_role),
        }
    }
}
