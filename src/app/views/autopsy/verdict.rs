//! The left column: verdict, explanation, the tests in their order, figures, the stack, what to try first.

use std::sync::Arc;

use egui::{Key, ScrollArea, Ui, vec2};

use super::AutopsyView;
use super::case::{Case, CaseKind};
use super::frames::tip_of;
use super::helped::Ready;
use crate::app::jobs::identity::Identity;
use crate::app::state::Action;
use crate::app::theme::Type;
use crate::app::views::ViewContext;
use crate::app::views::plan_link::plan_link;
use crate::app::widgets::{
    CodeWell, Cut, Field, Icon, KeyValue, PaneHeader, Push, external_link, icon_button, label, padded, recorded_by, row, section,
    term,
};
use vramscope_core::anatomy::Composition;
use vramscope_core::diagnose::oom::{
    Advice, Autopsy, Closest, Failure, Helped, RoomFrom, Support, advice, best_advice, what_to_make_smaller,
};
use vramscope_core::model::{SizeClass, StackId};
use vramscope_core::tables::{NO_EVENT, Quantity, frame_text, user_frame};
use vramscope_core::units::{Bytes, SizeColumn, count};

/// The line of code that records the next failure.
const OBSERVER: &str =
    "torch._C._cuda_attach_out_of_memory_observer(lambda *a: torch.cuda.memory._dump_snapshot(\"oom.pickle\"))";

impl AutopsyView {
    pub(super) fn verdict(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, case: &Case, ready: &Ready<'_>, events: &[u32]) {
        self.header(ui, cx, case, events);
        let smaller = self.smaller(cx, case);
        let smaller = smaller.as_deref().map_or(&[][..], Vec::as_slice);
        // Each document has its own scroll position.
        let document = (&cx.data.recording.source.name, cx.data.index);
        ScrollArea::vertical().id_salt(("verdict", document)).auto_shrink(false).show(ui, |ui| {
            ui.spacing_mut().item_spacing = vec2(0.0, 0.0);
            match &case.kind {
                CaseKind::Failure(a) => {
                    what_failed(ui, cx, a, events);
                    holders(ui, a);
                    if !smaller.is_empty() {
                        // When memory itself is short, the answer is what to make smaller.
                        try_first(ui, cx, a, ready, smaller);
                    }
                    tests(ui, cx, a);
                    self.figures(ui, cx, a);
                    if smaller.is_empty() {
                        try_first(ui, cx, a, ready, smaller);
                    }
                    self.frames.ui(ui, cx, a.stack);
                }
                CaseKind::Peak(c) => {
                    peak_headline(ui, cx, c);
                    self.peak_figures(ui, cx, c);
                }
            }
            ui.add_space(16.0);
        });
    }

    /// The header: which failure of how many, and what happened afterwards. Choosing another failure moves all views there.
    pub(super) fn header(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, case: &Case, events: &[u32]) {
        let Some(a) = case.failure() else {
            PaneHeader::new("Peak").caption("nothing failed").show(ui, |_| {});
            return;
        };
        let total = events.len();
        let at = events.iter().position(|&e| e == case.state.event).unwrap_or(0);
        let fate = match total > 1 {
            true if at + 1 == total && a.survived => " · the last, caught",
            true if at + 1 == total => " · the last",
            _ if a.survived => " · caught",
            _ => "",
        };
        let caption = format!("{} of {total}{fate}", at + 1);
        PaneHeader::new("Out of memory").caption(&caption).show(ui, |ui| {
            if total > 1 {
                let mut go = |to: usize| {
                    let Some(&event) = events.get(to) else { return };
                    self.chosen = Some(event);
                    cx.actions.send(Action::GoTo(event));
                };
                if icon_button(ui, Icon::ChevronRight, "Next out-of-memory event").clicked() {
                    go((at + 1) % total);
                }
                if icon_button(ui, Icon::ChevronLeft, "Previous out-of-memory event").clicked() {
                    go((at + total - 1) % total);
                }
            }
        });
    }

    /// The first part in a one-column layout: the verdict and what to try.
    pub(super) fn answer(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, case: &Case, ready: &Ready<'_>, events: &[u32]) {
        let smaller = self.smaller(cx, case);
        let smaller = smaller.as_deref().map_or(&[][..], Vec::as_slice);
        match &case.kind {
            CaseKind::Failure(a) => {
                what_failed(ui, cx, a, events);
                try_first(ui, cx, a, ready, smaller);
                holders(ui, a);
            }
            CaseKind::Peak(c) => peak_headline(ui, cx, c),
        }
    }

    /// The last part in a one-column layout: the tests, the figures, the stack.
    pub(super) fn details(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, case: &Case) {
        match &case.kind {
            CaseKind::Failure(a) => {
                tests(ui, cx, a);
                self.figures(ui, cx, a);
                self.frames.ui(ui, cx, a.stack);
            }
            CaseKind::Peak(c) => self.peak_figures(ui, cx, c),
        }
        ui.add_space(16.0);
    }

    /// What to make smaller when memory is short, computed off the window's thread. `None` until it is known, and for other
    /// failures.
    fn smaller(&mut self, cx: &ViewContext<'_>, case: &Case) -> Option<Arc<Vec<Advice>>> {
        let a = case.failure()?;
        let (data, roles, a) = (Arc::clone(cx.data), Arc::clone(cx.roles?), Autopsy::clone(a));
        let key = (case.state.event, Identity::of(&roles));
        let found = self.smaller.get(cx.jobs, "what to make smaller", &key, move |_| {
            let held = Composition::at(&data.recording, data.device(), &data.tables, &data.names, &roles, a.event, |_| true);
            let failure =
                Failure { recording: &data.recording, device: data.device(), tables: &data.tables, roles: &roles, autopsy: &a };
            Some(failure.advice().into_iter().chain(what_to_make_smaller(&a, &held, &data.recording.stacks)).collect())
        });
        found.fresh()
    }

    /// The figures of a peak, a field for the cap when the file does not record it, and how to catch a failure.
    fn peak_figures(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, c: &Closest) {
        peak_figures(ui, cx, c);
        let is_told = c.room.is_some_and(|room| room.from == RoomFrom::Cap);
        if c.has_segments && !c.is_host && (!is_told || self.cap.is_some()) {
            let (most, at) = cx.data.tables.curves.peak(Quantity::Reserved);
            let when = match at {
                NO_EVENT => "before the first event".to_owned(),
                event => format!("at event {}", count(u64::from(event))),
            };
            self.cap_field(ui, cx, None, most, &when);
        }
        next_failure(ui, cx);
    }

    fn figures(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, a: &Autopsy) {
        figures(ui, cx, a);
        if a.limit.is_some_and(|cap| !cap.is_known()) || self.cap.is_some() {
            self.cap_field(ui, cx, Some(a), a.reserved, "when the request failed");
        }
    }

    /// A field for the cap, for files that do not record it. The analysis is repeated with the cap that the user enters.
    fn cap_field(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, failure: Option<&Autopsy>, reserved: u64, when: &str) {
        ui.add_space(6.0);
        padded(ui, |ui| {
            ui.horizontal(|ui| {
                ui.label(Type::Body.text("cap, if you know it").color(cx.tokens.text2));
                let width = (ui.available_width() - 8.0).clamp(60.0, 120.0);
                ui.add_space((ui.available_width() - width).max(8.0));
                let field = Field::new("Cap of this process").hint("24 GiB").mono().width(width);
                let response = field.invalid(self.cap_error.is_some()).show(ui, &mut self.cap_text);
                if response.changed() {
                    self.cap_error = None;
                }
                if response.lost_focus() && ui.input(|i| i.key_pressed(Key::Enter)) {
                    // PyTorch compares the cap with the rounded request; expandable segments then map whole pages.
                    let conf = &cx.data.device().settings.conf;
                    let is_expandable = conf.expandable_segments;
                    let least = reserved.saturating_sub(if is_expandable { conf.page_size(SizeClass::Large) } else { 0 });
                    self.take_cap(reserved, least, when);
                    if let Some(sentence) = self.cap.and_then(|cap| too_high(cx, cap, failure)) {
                        (self.cap, self.cap_error) = (None, Some(sentence));
                    }
                }
            });
            if let Some(error) = &self.cap_error {
                label::paragraph(ui, error, Type::Caption, cx.tokens.text2);
            }
        });
    }

    /// Takes the cap that was typed, unless it is below `least`. The process had `reserved` bytes at the instant that `when`
    /// describes.
    fn take_cap(&mut self, reserved: u64, least: u64, when: &str) {
        if self.cap_text.trim().is_empty() {
            (self.cap, self.cap_error) = (None, None);
            return;
        }
        match Bytes::parse_limit(&self.cap_text) {
            Ok(Bytes(cap)) if cap < least => {
                let sentence = format!("{} were reserved {when}, so the cap was not below that.", Bytes(reserved));
                self.cap_error = Some(sentence);
            }
            Ok(Bytes(cap)) => {
                (self.cap, self.cap_error, self.setting) = (Some(cap), None, None);
                self.cap_text = Bytes(cap).limit();
            }
            Err(error) => self.cap_error = Some(error.to_string()),
        }
    }
}

/// Why a cap that the user entered cannot be right: it exceeds the card, or a failed request would have succeeded under it.
fn too_high(cx: &ViewContext<'_>, cap: u64, shown: Option<&Autopsy>) -> Option<String> {
    if let Some(all) = cx.data.device().capacity.filter(|&all| all < cap) {
        return Some(format!("The device has {} in all, so the cap was not above that.", Bytes(all)));
    }
    let known = cx.findings.into_iter().flat_map(|found| found.ooms.iter().map(|a| &**a)).chain(shown);
    let below = known.filter_map(|a| Some((a.cap_below()?, a.event))).min()?;
    (below.0 <= cap).then(|| {
        let event = count(u64::from(below.1));
        format!("With that the request of event {event} would not have failed, so the cap is below {}.", Bytes(below.0))
    })
}

/// Why a request failed and, when it is one of several, what happened afterwards.
fn with_fate(a: &Autopsy, events: &[u32]) -> String {
    let fate = match (events.len() > 1, events.last() == Some(&a.event), a.survived) {
        (false, _, false) => "",
        (true, true, false) => " It is the last failure: nothing was allocated after it.",
        (true, true, true) => " It is the last failure. The program caught it: allocations went on after it.",
        (_, _, true) => " The program caught it: allocations went on after it.",
        (true, false, false) => " Nothing was allocated after it.",
    };
    format!("{}{fate}", a.sentence)
}

fn headline(ui: &mut Ui, cx: &ViewContext<'_>, title: &str, sentence: &str, ink: egui::Color32) {
    egui::Frame::NONE.inner_margin(egui::Margin { left: 16, right: 16, top: 14, bottom: 4 }).show(ui, |ui| {
        ui.set_width(ui.available_width());
        ui.label(Type::Display.text(title).color(ink));
        ui.add_space(4.0);
        label::rich_paragraph(ui, &label::with_strong_figures(sentence), Type::Lead, cx.tokens.text2, cx.tokens.text1);
    });
}

fn what_failed(ui: &mut Ui, cx: &ViewContext<'_>, a: &Autopsy, events: &[u32]) {
    headline(ui, cx, a.headline(), &with_fate(a, events), cx.tokens.red);
    requested_at(ui, cx, a.stack);
    padded(ui, |ui| plan_link(ui, cx));
}

/// The user's line that made the request. A click opens it.
fn requested_at(ui: &mut Ui, cx: &ViewContext<'_>, stack: StackId) {
    let stacks = &cx.data.recording.stacks;
    let Some(frame) = user_frame(stacks, stack) else { return };
    padded(ui, |ui| {
        ui.horizontal_wrapped(|ui| {
            ui.spacing_mut().item_spacing.x = 6.0;
            ui.label(Type::Body.text("Requested at").color(cx.tokens.text2));
            let (tip, can_open) = tip_of(stacks, frame);
            let name = frame_text(stacks, frame);
            if !can_open {
                ui.label(Type::Mono.text(&name).color(cx.tokens.text1)).on_hover_text(tip);
            } else if external_link(ui, &name).on_hover_text(tip).clicked() {
                cx.actions.send(Action::OpenSource { file: stacks.text(frame.file).to_owned(), line: frame.line });
            }
        });
    });
}

fn holders(ui: &mut Ui, a: &Autopsy) {
    let held = a.holders();
    if held.is_empty() {
        return;
    }
    section(ui, "Who holds the device", "", false);
    let size = SizeColumn::of(held.iter().filter_map(|h| h.1));
    for (name, bytes) in held {
        KeyValue::new(name, bytes.map_or("unknown".to_owned(), |bytes| size.sized(bytes))).show(ui);
    }
}

fn tests(ui: &mut Ui, cx: &ViewContext<'_>, a: &Autopsy) {
    let t = cx.tokens;
    section(ui, "How we know", "", false);
    for test in &a.tests {
        let (icon, icon_colour) = match test.holds {
            Some(true) => (Icon::Check, t.text3),
            Some(false) => (Icon::Cross, if test.decides { t.red } else { t.text3 }),
            None => (Icon::Help, t.text3),
        };
        let (rect, response) = row::told(ui, 24.0, egui::Role::Label, || test.what);
        term::explain_label(&response, test.what);
        icon.paint(ui.painter(), rect.middle(rect.left() + 22.0), 12.0, icon_colour);
        let room = rect.inset(36.0, 0.0, 16.0, 0.0);
        let is_span = test.what == "room under the cap" && a.limit.is_some_and(|cap| !cap.is_known());
        let figure = match test.holds {
            None if test.what == "room under the cap" => "no cap known".to_owned(),
            None => "not recorded".to_owned(),
            Some(_) if is_span => format!("under {}", Bytes(a.room_below())),
            Some(_) if test.bytes >= vramscope_core::model::EventTable::FREE_UNBOUNDED => "unknown".to_owned(),
            Some(_) => Bytes(test.bytes).to_string(),
        };
        // Only tests that failed are red.
        let ink = if test.decides && test.holds == Some(false) { t.red } else { t.text1 };
        let value = label::text_in_right(ui.painter(), room, &figure, Type::Mono, ink);
        let room = room.with_max_x(value.left() - 8.0);
        let face = if test.decides { Type::Strong } else { Type::Body };
        label::text_in(ui.painter(), room, test.what, face, if test.decides { t.text1 } else { t.text2 });
    }
}

fn peak_headline(ui: &mut Ui, cx: &ViewContext<'_>, c: &Closest) {
    let title = match c.room {
        Some(room) if room.from != RoomFrom::DeviceTotal => format!("{} left", Bytes(room.bytes)),
        _ if cx.data.failed_elsewhere().is_some() => format!("No request failed on {}", cx.data.device().id),
        _ => "No request failed".to_owned(),
    };
    headline(ui, cx, &title, &c.sentence, cx.tokens.text1);
}

fn peak_figures(ui: &mut Ui, cx: &ViewContext<'_>, c: &Closest) {
    let when = match c.event {
        NO_EVENT => String::new(),
        event => format!("the peak, event {}", count(u64::from(event))),
    };
    section(ui, "At this instant", &when, false);
    let of_segments = [
        ("reserved", c.reserved),
        ("lost to rounding", c.active.saturating_sub(c.live_requested)),
        ("free in this pool", c.holes.bytes),
        ("free in other pools", c.all_holes.bytes.saturating_sub(c.holes.bytes)),
        ("largest hole", c.holes.largest),
        ("whole free segments", c.releasable),
    ];
    let of_blocks = [("active", c.active), ("allocated", c.allocated), ("requested", c.live_requested)];
    let is_told = |&(name, _): &(&str, u64)| {
        !matches!(name, "requested" | "lost to rounding") || cx.data.device().can_show.requested.is_known()
    };
    for (name, value) in of_blocks.into_iter().chain(of_segments.into_iter().filter(|_| c.has_segments)).filter(is_told) {
        KeyValue::new(name, Bytes(value)).show(ui);
    }
    if c.has_segments {
        KeyValue::new("holes in this pool", count(c.holes.count)).show(ui);
    }
    if let Some(room) = c.room {
        let name = if room.from == RoomFrom::Cap { "room under the cap" } else { "free on the device" };
        KeyValue::new(name, Bytes(room.bytes)).show(ui);
    }
    if c.event != NO_EVENT {
        ui.add_space(8.0);
        if padded(ui, |ui| Push::outlined("Go to the peak").show(ui).clicked()) {
            cx.actions.send(Action::GoTo(c.event));
        }
    }
}

fn next_failure(ui: &mut Ui, cx: &ViewContext<'_>) {
    section(ui, "To catch the next failure", "", false);
    padded(ui, |ui| {
        recorded_by(ui, &cx.words().say(OBSERVER));
        ui.add_space(6.0);
        label::paragraph(
            ui,
            "The observer writes a snapshot at the moment a request fails, before Python lets go of anything.",
            Type::Body,
            cx.tokens.text2,
        );
    });
}

fn figures(ui: &mut Ui, cx: &ViewContext<'_>, a: &Autopsy) {
    let tells_requested = cx.data.device().can_show.requested.is_known();
    section(ui, "At this instant", &format!("event {}", count(u64::from(a.event))), false);
    if let Some(cap) = a.limit {
        KeyValue::new("cap of this process", cap).show(ui);
    }
    let rounding = a.allocated.saturating_sub(a.live_requested);
    let is_rounded = Bytes(a.message_bytes()).to_string() != Bytes(a.requested).to_string();
    for (name, value, is_told) in [
        ("in PyTorch's message", a.message_bytes(), is_rounded),
        ("reserved", a.reserved, a.has_segments),
        ("allocated", a.allocated, true),
        ("requested", a.live_requested, tells_requested),
        ("lost to rounding", rounding, a.has_segments && tells_requested),
        ("free in all pools", a.all_holes.bytes, a.has_segments),
    ] {
        if is_told {
            KeyValue::new(name, Bytes(value)).show(ui);
        }
    }
    if !a.has_segments {
        return;
    }
    KeyValue::new("holes in this pool", count(a.holes.count)).show(ui);
    KeyValue::new("freeing one block", a.alone).show(ui);
    if let Some(least) = a.alone.smallest {
        KeyValue::new("the smallest of them", Bytes(least.size)).show(ui);
    }
}

/// The best supported advice: a simulated setting, or else what the figures imply.
fn try_first(ui: &mut Ui, cx: &ViewContext<'_>, a: &Autopsy, ready: &Ready<'_>, smaller: &[Advice]) {
    // Advice with a line to paste is about retained memory or an unneeded graph, not about sizes.
    let is_smaller = smaller.first().is_some_and(|advice| advice.setting.is_none());
    section(ui, if is_smaller { "What to make smaller" } else { "Try first" }, "", false);
    padded(ui, |ui| {
        let t = cx.tokens;
        for advice in smaller {
            if let Some(line) = &advice.setting {
                CodeWell::new(line).copy(true).show(ui);
                ui.add_space(6.0);
            }
            label::rich_paragraph(ui, &label::with_strong_figures(&advice.sentence), Type::Body, t.text2, t.text1);
            ui.add_space(6.0);
        }
        let helped: Option<&Helped> = match ready {
            Ready::Running(_) => {
                label::paragraph(ui, "Trying other settings on the recorded requests…", Type::Body, t.text3);
                return;
            }
            Ready::DoesNotApply(_) | Ready::Waiting => None,
            Ready::Done(h) => Some(h),
        };
        let all = advice(a, helped);
        let best = best_advice(a, &all).filter(|best| smaller.is_empty() || best.setting.is_some());
        match best {
            Some(best) => {
                if let Some(setting) = &best.setting {
                    CodeWell::new(setting).copy(true).show(ui);
                    ui.add_space(6.0);
                }
                label::paragraph(ui, &best.sentence, Type::Body, t.text2);
                // Also says when no setting helps.
                for other in all.iter().filter(|x| x.setting.is_none() && x.support == Support::Simulation && *x != best) {
                    ui.add_space(6.0);
                    label::paragraph(ui, &other.sentence, Type::Body, t.text2);
                }
            }
            None if smaller.is_empty() => {
                label::paragraph(ui, "These figures suggest nothing. The largest stacks are listed.", Type::Body, t.text2);
            }
            None => {}
        }
    });
}
