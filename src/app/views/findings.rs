//! Findings: what is wrong with this recording, most serious first, each with evidence and advice.

use std::sync::Arc;

mod brief;

use egui::{Align, Layout, ScrollArea, Sense, Ui, UiBuilder, vec2};

use super::live::figures::{has_only_samples, summary};
use super::whatif::layout::two_lines;
use super::{View, ViewContext, ViewInfo};
use crate::app::jobs::Derived;
use crate::app::state::{Action, ColourBy, Command, Item, ViewKind, Workspace};
use crate::app::theme::Type;
use crate::app::widgets::{CodeWell, Cut, Push, label, link_with, row, selector, term};
use vramscope_core::anatomy::roles::Role;
use vramscope_core::diagnose::findings::{Class, Finding, Findings};
use vramscope_core::diagnose::oom::{
    AUTOMATIC_TRIALS_MOST_EVENTS, Helped, Verdict, advice, best_advice, can_be_served_again, knows_reserved,
};
use vramscope_core::diagnose::source_limits::allocator_name;
use vramscope_core::diagnose::watched::{Watched, watched};
use vramscope_core::model::{DeviceKind, Progress};
use vramscope_core::units::{Bytes, capital, counted};

/// Settings tried on a failure: `None` when they do not apply, `Some(None)` while they run.
type Tried = Option<Option<Arc<Helped>>>;

/// With fewer events and without steps, a recording is too short for the rules.
const FEW_EVENTS: usize = 100;

pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::Findings,
    legend: &[
        ("order", "out of memory first, then leaks, then what saves most at the peak"),
        ("figure", "by saving: by how much the peak falls, from the recorded events; by bytes: those that the finding speaks of"),
        ("nothing listed", "nothing stands out: a finding needs numbers to speak"),
    ],
    create: || Box::new(FindingsView::default()),
};

#[derive(Default)]
pub(super) struct FindingsView {
    /// Index of the open finding; past the last when none is open.
    pub(super) open: usize,
    /// True in the short form: a click on the open finding closes it, and a failure or a leak shows only its cause and what to
    /// try first.
    pub(super) folds: bool,
    /// 0: as the rules rank them. 1: most bytes first.
    order: usize,
    helped: Derived<(), Helped>,
    /// Findings from samples alone; keyed by the second of the last sample.
    watched: Derived<i64, Watched>,
}

impl View for FindingsView {
    fn subtitle(&self, cx: &ViewContext<'_>) -> String {
        cx.findings.map(|f| format!("{}{}", f.findings.len(), of_all(cx))).unwrap_or_default()
    }

    fn header_ui(&mut self, ui: &mut Ui, _: &ViewContext<'_>) {
        selector(ui, "by", &mut self.order, &["saving", "bytes"]);
    }

    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
            ui.spacing_mut().item_spacing = vec2(0.0, 0.0);
            failed_elsewhere(ui, cx);
            self.list(ui, cx, None);
        });
    }
}

impl FindingsView {
    /// Shows the failure, or else the leak, above everything else.
    pub(super) fn first(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        failed_elsewhere(ui, cx);
        if let (Some(found), Some(first)) = (cx.findings, cx.findings.and_then(shown_first)) {
            self.those(ui, cx, found, &[first]);
        }
    }

    /// How many findings there are besides the one shown first.
    pub(super) fn number_of_others(&self, cx: &ViewContext<'_>) -> Option<usize> {
        let found = cx.findings?;
        Some(found.findings.len() - usize::from(shown_first(found).is_some()))
    }

    pub(super) fn first_of_others<'a>(&self, cx: &ViewContext<'a>) -> Option<&'a Finding> {
        let found = cx.findings?;
        let first = shown_first(found);
        found.findings.iter().enumerate().find(|&(i, _)| Some(i) != first).map(|(_, finding)| finding)
    }

    /// All findings without the one that is shown first.
    pub(super) fn others(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        self.list(ui, cx, cx.findings.and_then(shown_first));
    }

    fn list(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, but: Option<usize>) {
        let t = cx.tokens;
        let Some(found) = cx.findings else {
            return padded(ui, |ui| _ = ui.label(Type::Body.text("Looking for what is wrong…").color(t.text3)));
        };
        let is_watch = has_only_samples(cx.data.device());
        if found.findings.is_empty() && !is_watch {
            healthy(ui, cx);
        }
        // When no failure was examined, say so first.
        let note = |ui: &mut Ui, said: &str, ink| padded(ui, |ui| _ = label::paragraph(ui, said, Type::Caption, ink));
        if found.ooms_left_out > 0 && !(found.ooms.is_empty() && found.findings.is_empty()) {
            padded(ui, |ui| {
                for sentence in found.left_out() {
                    label::paragraph(ui, &sentence, Type::Caption, t.text3);
                }
            });
        }
        if let Some(sentence) = found.rules_sentence() {
            note(ui, &sentence, t.text3);
        }
        if cx.shared.range.is_some() && !found.findings.is_empty() {
            note(ui, "These speak of the whole recording, not of the chosen range. Esc clears the range.", t.text2);
        }
        let mut order: Vec<usize> = (0..found.findings.len()).filter(|&i| Some(i) != but).collect();
        if self.order == 1 {
            order.sort_by_key(|&i| std::cmp::Reverse(found.findings[i].bytes));
        }
        self.those(ui, cx, found, &order);
        if is_watch {
            self.watched(ui, cx);
        }
    }

    fn those(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, found: &Findings, order: &[usize]) {
        // Settings are simulated only when a finding is open that they could solve.
        let wants = |f: &Finding| f.class == Class::OutOfMemory || f.depends_on_settings();
        // The short form of a failure shows what to try first, so it needs the simulation too.
        let briefs = order.iter().filter(|_| self.folds).filter_map(|&i| found.findings.get(i).filter(|f| is_red(f)));
        let is_wanted = found.findings.get(self.open).into_iter().chain(briefs).any(wants);
        let is_short = cx.data.device().events.len() <= AUTOMATIC_TRIALS_MOST_EVENTS;
        let helped = if is_wanted && is_short && can_be_served_again(cx.data.device()) {
            let data = Arc::clone(cx.data);
            let work = move |progress: &Progress| data.helped(progress).ok().map(|h| Helped::clone(&h));
            let shown = self.helped.get(cx.jobs, "what would have helped", &(), work);
            if !shown.is_fresh {
                ui.request_repaint_after(std::time::Duration::from_millis(100));
            }
            Some(shown.value)
        } else {
            None
        };
        for &i in order {
            let finding = &found.findings[i];
            let is_open = self.open == i;
            let is_brief = self.folds && !is_open && is_red(finding);
            if finding_ui(ui, cx, finding, i, (is_open, is_brief, self.order == 1), &helped) {
                if self.folds && is_open {
                    self.open = usize::MAX;
                    continue;
                }
                self.open = i;
                take_there(cx, finding);
            }
        }
    }

    /// Findings of a recording with samples but no events.
    fn watched(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let data = Arc::clone(cx.data);
        let second = data.device().samples.last().map_or(0, |s| s.time_us / 1_000_000);
        let told = self.watched.get(cx.jobs, "watched", &second, move |_| watched(data.device()));
        if let Some(told) = told.value {
            summary(ui, cx, &told);
        }
    }
}

/// What headers add while a range is chosen, because findings always cover the whole recording.
pub(super) fn of_all(cx: &ViewContext<'_>) -> &'static str {
    if cx.shared.range.is_some() { " \u{b7} whole recording" } else { "" }
}

/// Index of the finding shown above all others: a failure (or retained memory that led to one), or else a leak.
fn shown_first(found: &Arc<Findings>) -> Option<usize> {
    if found.findings.first().is_some_and(Finding::is_of_failure) {
        return Some(0);
    }
    let first = |class: Class| found.findings.iter().position(|f| f.class == class);
    first(Class::OutOfMemory).or_else(|| first(Class::Leak))
}

/// Failures and leaks are red.
fn is_red(finding: &Finding) -> bool {
    matches!(finding.class, Class::OutOfMemory | Class::Leak)
}

/// Links to the other devices that ran out of memory, since the problem may not be on this one.
fn failed_elsewhere(ui: &mut Ui, cx: &ViewContext<'_>) {
    for &i in cx.data.failed_devices().iter().filter(|&&i| i != cx.data.index) {
        let Some(device) = cx.data.recording.devices.get(i) else { continue };
        let too = if cx.data.ooms.is_empty() { "" } else { " too" };
        padded(ui, |ui| {
            ui.horizontal(|ui| {
                let (rect, _) = ui.allocate_exact_size(vec2(8.0, 16.0), Sense::hover());
                ui.painter().circle_filled(rect.center(), 3.0, cx.tokens.red);
                ui.add_space(6.0);
                let words = format!("{} ran out of memory{too}: show it", device.id);
                if link_with(ui, &words, Type::Strong, None).clicked() {
                    cx.actions.send(Action::SetDevice(i));
                }
            });
        });
    }
}

/// Shown when no rule fired: says so, with the figures that a user would check first.
fn healthy(ui: &mut Ui, cx: &ViewContext<'_>) {
    let (device, tables) = (cx.data.device(), &cx.data.tables);
    let (active, at) = tables.curves.peak(vramscope_core::tables::Quantity::Active);
    // At the same instant: the peak of reserved bytes may be at another.
    let reserved = tables.curves.at(device, &tables.lifetimes, vramscope_core::tables::Quantity::Reserved, at);
    if let Some((_, most)) = device.bands.peak().filter(|_| device.events.is_empty()) {
        padded(ui, |ui| {
            ui.label(Type::Title.text("Only sums were exported").color(cx.tokens.text1));
            ui.add_space(4.0);
            let sentence = format!(
                "Tensors took {} at most. A memory timeline as .json has their categories and nothing else; exported as .raw.json.gz it \
                 has the allocations too, and a memory snapshot says where each came from.",
                Bytes(most)
            );
            label::paragraph(ui, &sentence, Type::Body, cx.tokens.text2);
        });
        return;
    }
    padded(ui, |ui| {
        let failed = cx.data.ooms.len() as u64;
        let steps = cx.findings.map_or(0, |f| f.steps.len());
        let untold = cx.findings.and_then(|f| f.untold_sentence()).filter(|_| !device.events.is_empty());
        let title = match failed {
            0 if untold.is_some() || (steps == 0 && device.events.len() < FEW_EVENTS) => "Too little was recorded to judge",
            0 => "Nothing stands out",
            _ => "Not told why requests failed",
        };
        let contradiction = cx.data.tables.disagreement.clone();
        if let Some(caveat) = cx.data.recording.report.caveat().or(contradiction) {
            ui.label(Type::Title.text("Figures to doubt").color(cx.tokens.amber));
            ui.add_space(4.0);
            label::paragraph(ui, &format!("{}.", capital(&caveat)), Type::Body, cx.tokens.text2);
            ui.add_space(12.0);
        }
        ui.label(Type::Title.text(title).color(cx.tokens.text1));
        ui.add_space(4.0);
        if device.events.is_empty() && device.samples.is_empty() {
            let sentence =
                format!("{} were live when the file was written. One instant shows neither growth nor failures.", Bytes(active));
            label::paragraph(ui, &sentence, Type::Body, cx.tokens.text2);
            return;
        }
        let first = match failed {
            0 if cx.data.failed_elsewhere().is_some() => format!("No request failed on {}.", device.id),
            0 => "No request failed.".to_owned(),
            n => format!(
                "{} failed, and this kind of file does not tell what was free, so it cannot say why; a memory snapshot does.",
                counted(n, "request", "requests")
            ),
        };
        let allocator = allocator_name(&cx.data.recording);
        let used = match device.id.kind {
            // Nothing is reserved on a CPU.
            DeviceKind::Cpu => format!("Tensors took {} at most.", Bytes(active)),
            _ => in_use(active, reserved, knows_reserved(&cx.data.tables), allocator),
        };
        let sentence = format!("{first} {used}");
        label::paragraph(ui, &sentence, Type::Body, cx.tokens.text2);
        if let Some(more) = untold.or_else(|| cx.findings.and_then(|f| f.model_sentence())) {
            ui.add_space(4.0);
            label::paragraph(ui, &more, Type::Body, cx.tokens.text2);
        }
    });
}

/// How much of the reserved memory was in use, or a note that the file does not record it.
fn in_use(active: u64, reserved: u64, knows_reserved: bool, allocator: &str) -> String {
    let most = Bytes(active);
    if !knows_reserved {
        return format!(
            "Tensors took {most} at most. Segments are not in this file, so it does not tell how much of what {allocator} reserved was in use."
        );
    }
    // With a full ring buffer or a late start, the recording does not know where some segments came from.
    if active > reserved {
        return format!(
            "Tensors took {most} at most. Of segments only {} are in this file, so it does not tell how much of what {allocator} reserved was in use.",
            Bytes(reserved)
        );
    }
    let share = active as f64 / reserved.max(1) as f64 * 100.0;
    format!("{share:.0} % of the {} reserved at the peak was in use.", Bytes(reserved))
}

/// Draws a finding; true when it was clicked.
fn finding_ui(
    ui: &mut Ui,
    cx: &ViewContext<'_>,
    f: &Finding,
    index: usize,
    (is_open, is_brief, by_bytes): (bool, bool, bool),
    helped: &Tried,
) -> bool {
    let t = cx.tokens;
    let top = ui.cursor().min;
    let width = ui.available_width();
    let is_red = is_red(f);
    let fill_at = ui.painter().add(egui::Shape::Noop);
    let mut head_clicked = false;
    let inner = ui.scope_builder(UiBuilder::new().id_salt(("finding", index)), |ui| {
        padded(ui, |ui| {
            let (figure, ink) = match f.saving {
                _ if by_bytes => (Bytes(f.bytes).to_string(), t.text1),
                Some(saving) if saving.is_nothing() => ("peak stays".to_owned(), t.text2),
                Some(saving) => {
                    // Failures and leaks are shown above the column header that says "savings", so they say it themselves.
                    let what = if is_red { "peak " } else { "" };
                    (format!("{what}\u{2212}{}", saving.texts()[2]), t.text1)
                }
                // Bytes of a finding without a saving are not shown here.
                None => (String::new(), t.text3),
            };
            // Below this width the figures go under the titles. Otherwise they form one column.
            const NARROWEST: f32 = 120.0;
            let beside = ui.available_width() - label::width(ui.painter(), &figure, Type::Mono) - 8.0;
            let fits = beside >= NARROWEST;
            let mut job = egui::text::LayoutJob::default();
            job.append(&f.title, 0.0, label::format(Type::Title, if is_red { t.red } else { t.text1 }));
            job.wrap.max_width = if fits { beside } else { ui.available_width() };
            let galley = ui.painter().layout_job(job);
            let height = galley.size().y.max(16.0) + if fits { 0.0 } else { 18.0 };
            let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), height), Sense::click());
            response.widget_info(|| egui::WidgetInfo::selected(egui::Role::ListItem, true, is_open, &f.title));
            let above = (16.0 - galley.rows.first().map_or(16.0, |row| row.height())) / 2.0;
            ui.painter().galley(rect.min + vec2(0.0, above), galley, t.text1);
            if fits {
                label::figure(ui.painter(), rect.with_max_y(rect.top() + 16.0), &figure, ink);
            } else {
                label::text_in(ui.painter(), rect.with_min_y(rect.bottom() - 16.0), &figure, Type::Mono, ink);
            }
            head_clicked = response.clicked();
            ui.add_space(4.0);
            // The short form: the autopsy has the whole text.
            let body = match is_brief {
                true => label::paragraph(ui, &brief::cause(&f.sentence), Type::Body, t.text1),
                false => label::paragraph(ui, &f.sentence, Type::Body, t.text2),
            };
            // The title above takes the keyboard focus for both.
            head_clicked |= body.interact(Sense::CLICK).clicked();
            if is_open {
                evidence(ui, cx, f, index, helped);
            } else if is_brief {
                head_clicked |= brief::ways_on(ui, cx, f, index, helped);
            }
        });
    });
    let bottom = inner.response.rect.bottom();
    let rect = egui::Rect::from_min_max(top, egui::pos2(top.x + width, bottom));
    if is_open {
        ui.painter().set(fill_at, egui::Shape::rect_filled(rect, 0.0, t.s2));
    }
    if is_red || is_open {
        let edge = rect.cell(0.0, 3.0);
        ui.painter().rect_filled(edge, 0.0, if is_red { t.red } else { t.accent });
    }
    ui.painter().hline(rect.x_range(), rect.bottom() - 0.5, egui::Stroke::new(1.0, t.line));
    head_clicked
}

fn evidence(ui: &mut Ui, cx: &ViewContext<'_>, f: &Finding, index: usize, helped: &Tried) {
    let t = cx.tokens;
    ui.add_space(8.0);
    for e in &f.evidence {
        let ink = if e.is_red { t.red } else { t.text1 };
        let width = |text: &str, kind| label::width(ui.painter(), text, kind);
        let fits = width(&e.label, Type::Body) + 8.0 + width(&e.value, Type::Mono) <= ui.available_width();
        // A value without room beside its label goes below it, on as many lines as it needs.
        let mut job = egui::text::LayoutJob::single_section(e.value.clone(), label::format(Type::Mono, ink));
        job.halign = egui::Align::RIGHT;
        job.wrap.max_width = ui.available_width();
        let value = ui.painter().layout_job(job);
        let height = if fits { 20.0 } else { 20.0 + value.size().y };
        let (rect, response) = row::told(ui, height, egui::Role::Label, || format!("{}: {}", e.label, e.value));
        label::text_in(ui.painter(), rect.with_max_y(rect.top() + 20.0), &e.label, Type::Body, t.text2);
        let top = if fits { rect.center().y - value.size().y / 2.0 } else { rect.top() + 18.0 };
        ui.painter().galley(egui::pos2(rect.right(), top), value, ink);
        if !term::explain_label(&response, &e.label)
            && let Some(role) = Role::ALL.into_iter().find(|c| c.text() == e.label)
        {
            response.on_hover_text(role.about());
        }
    }
    let replayed = helped.as_ref().and_then(|h| f.by_settings(h.as_ref()?));
    let is_trying = matches!(helped, Some(None)) && f.depends_on_settings();
    let autopsy = cx.findings.and_then(|found| found.ooms.iter().find(|a| Some(a.event) == f.place.event));
    // No setting helps a request that is larger than all memory.
    let is_served = autopsy.is_some_and(|a| a.verdict != Verdict::TooLarge);
    let helped = helped.as_ref().filter(|_| f.class == Class::OutOfMemory && is_served);
    ui.add_space(6.0);
    ui.scope_builder(UiBuilder::new().id_salt(("buttons", index)), |ui| {
        ui.with_layout(Layout::left_to_right(Align::Min).with_main_wrap(true), |ui| {
            ui.spacing_mut().item_spacing = vec2(8.0, 6.0);
            if f.class == Class::OutOfMemory && Push::primary("Open autopsy").show(ui).clicked() {
                take_there(cx, f);
                cx.actions.run(Command::Workspace(Workspace::Autopsy));
            }
            // The button is shown before the answer is ready, so that no button moves under the pointer.
            if let Some(tried) = helped
                && Push::outlined("What-if").show(ui).clicked()
            {
                let tried = tried.as_ref().filter(|h| h.fails_as_recorded());
                match tried.and_then(|h| h.remedies.passing().next()) {
                    Some(best) => cx.actions.send(Action::TrySettings(best.conf.clone())),
                    None => cx.actions.run(Command::Workspace(Workspace::WhatIf)),
                }
            }
            if (f.place.event.is_some() || !f.place.lifetimes.is_empty()) && Push::outlined("Go to event").show(ui).clicked() {
                take_there(cx, f);
            }
        });
    });
    let best = match helped {
        Some(Some(h)) => {
            if h.fails_as_recorded() {
                passing(ui, cx, h);
            }
            autopsy.and_then(|a| best_advice(a, &advice(a, Some(h))).cloned())
        }
        Some(None) => {
            ui.add_space(6.0);
            label::paragraph(ui, "Trying other settings on the recorded requests…", Type::Body, t.text3);
            None
        }
        None => None,
    };
    let (said, line) = match best {
        Some(best) => (best.sentence, best.setting),
        None if is_trying => ("Trying other settings on the recorded requests…".to_owned(), None),
        None => replayed.unwrap_or_else(|| (f.advice.clone(), f.remedy.clone())),
    };
    ui.add_space(6.0);
    label::paragraph(ui, &said, Type::Body, t.text2);
    if let Some(line) = line {
        ui.add_space(6.0);
        CodeWell::new(&line).copy(true).show(ui);
    }
    ui.add_space(6.0);
    label::paragraph(ui, &format!("Check: {}", f.verify), Type::Caption, t.text3);
    ui.add_space(8.0);
}

/// The settings that avoid the failure, with what they reserve, or a note that none does.
fn passing(ui: &mut Ui, cx: &ViewContext<'_>, h: &Helped) {
    let t = cx.tokens;
    ui.add_space(8.0);
    let all: Vec<_> = h.remedies.passing().collect();
    let (of, certain) = (h.remedies.tried.len(), all.iter().filter(|r| r.certain).count());
    // When a recording ends at its failure, requests are known only up to that point.
    let reach = match h.remedies.ends_at_failure {
        Some(end) if end.is_caught => "serve all recorded requests",
        Some(_) => "reach the end",
        None => "serve all requests",
    };
    let title = match (certain, all.len() - certain) {
        (0, 0) => format!("none of {of} other settings {reach}"),
        (n, 0) => format!("{n} of {of} settings {reach}"),
        (0, n) => format!("{n} of {of} settings may {reach}"),
        (n, more) => format!("{n} of {of} settings {reach}, {more} may"),
    };
    let row = |ui: &mut Ui, name: &str, value: &str, kind: Type, ink: egui::Color32| {
        // Users copy settings by eye, so a long one takes two lines and is not cut.
        let room = ui.available_width() - label::width(ui.painter(), value, Type::Mono) - 8.0;
        let (above, name_here) = match two_lines(name, |text| label::width(ui.painter(), text, kind) <= room) {
            Some((first, second)) => (Some(first), second),
            None => (None, name),
        };
        let height = if above.is_some() { 36.0 } else { 20.0 };
        let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), height), Sense::hover());
        if let Some(first) = above {
            label::text_in(ui.painter(), rect.with_max_y(rect.top() + 20.0), first, kind, ink);
        }
        let line = rect.with_min_y(rect.bottom() - 20.0);
        let shown = label::without_middle(ui.painter(), name_here, kind, room);
        label::pair(ui.painter(), line, (&shown, kind, ink), (value, Type::Mono, t.text1));
        response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Label, true, name));
        response
    };
    row(ui, &title, if all.is_empty() { "" } else { "peak" }, Type::Caption, t.text3);
    for r in all.iter().take(3) {
        let name = if r.conf.is_empty() { "PyTorch's defaults" } else { &r.conf };
        let doubt = h.doubt(r);
        let certainty = if doubt.is_empty() { "Certain.".to_owned() } else { format!("Not certain: {doubt}.") };
        row(ui, name, &Bytes(r.peak_reserved_bytes).to_string(), Type::Mono, t.text1)
            .on_hover_text(format!("{}\n{certainty}", name));
    }
    if all.len() > 3 {
        row(ui, &format!("{} more in the autopsy", all.len() - 3), "", Type::Caption, t.text3);
    }
}

/// Moves cursor, selection, range and colours to the evidence.
fn take_there(cx: &ViewContext<'_>, f: &Finding) {
    if let Some(event) = f.place.event {
        cx.actions.send(Action::GoTo(event));
    }
    if let Some((from, to)) = f.place.range {
        cx.actions.send(Action::SetRange(Some((from, to))));
    }
    let item = f.place.lifetimes.first().map(|&l| Item::Lifetime(l)).or(f.place.stack.map(Item::Stack));
    if let Some(item) = item {
        cx.actions.send(Action::Select(Some(item)));
    }
    // When one stack holds nearly all bytes, its colour says nothing. Size classes make the holes visible.
    if f.class == Class::OutOfMemory && cx.shared.colour_by == ColourBy::Stack && cx.data.names.len() <= 1 {
        cx.actions.send(Action::SetColourBy(ColourBy::SizeClass));
    }
}

fn padded(ui: &mut Ui, contents: impl FnOnce(&mut Ui)) {
    egui::Frame::NONE.inner_margin(egui::Margin { left: 16, right: 12, top: 10, bottom: 12 }).show(ui, |ui| {
        ui.set_width(ui.available_width());
        contents(ui);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_all_is_in_use() {
        let m = |n: u64| n << 20;
        assert!(in_use(m(200), m(250), true, "PyTorch").starts_with("80 % of the 250"));
        let said = in_use(m(2150), m(250), true, "PyTorch");
        assert!(!said.contains('%') && said.contains("only 250\u{a0}MiB are in this file"), "{said}");
    }
}
