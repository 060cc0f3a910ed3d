//! The status bar: the instant at the cursor, its figures, and notes on the file.

use std::path::Path;

use egui::{Align, Layout, Popup, Response, Sense, Stroke, Ui, UiBuilder, vec2};

use crate::app::documents::document::{Content, DeviceView, Document};
use crate::app::state::{Command, ViewKind, Workspace, last_known};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Term, label, link_with, menu_item, term};
use crate::app::window::App;
use vramscope_core::diagnose::source_limits::clock_time;
use vramscope_core::model::{DeviceRecording, Format, HelperState, LiveTrack, Sample};
use vramscope_core::units::{Bytes, count, counted, time_of_day};

pub(super) fn status_bar(app: &App, ui: &mut Ui, tokens: &Tokens) {
    let rect = ui.max_rect();
    ui.painter().hline(rect.expand2(vec2(12.0, 0.0)).x_range(), rect.top() + 0.5, Stroke::new(1.0, tokens.line));
    let document = app.active_document();
    let mut right = ui.new_child(UiBuilder::new().max_rect(rect).layout(Layout::right_to_left(Align::Center)));
    if let Some(view) = document.and_then(Document::view) {
        load_status(&mut right, tokens, view);
        hidden_status(app, &mut right, tokens);
        selection_status(app, &mut right);
    }
    if let Some(watch) = &app.watch {
        watch_status(&mut right, tokens, &watch.folder);
    }
    if let Some((said, left)) = app.notices.mentioned() {
        right.add_space(12.0);
        right.label(Type::Body.text(said).color(tokens.accent));
        right.ctx().request_repaint_after(left);
    }
    let left = rect.with_max_x(right.min_rect().left().min(rect.right()) - 16.0);
    let mut ui = ui.new_child(UiBuilder::new().max_rect(left).layout(Layout::left_to_right(Align::Center)));
    ui.spacing_mut().item_spacing.x = 0.0;
    let mut items = Items { ui: &mut ui, tokens, is_first: true, is_full: false, is_stale: false };
    let Some(document) = document else {
        let none_open = app.documents.is_empty();
        items.add(&[(if none_open { "nothing open" } else { "recordings stay open in their tabs" }, false)]);
        items.add(&[("drop files anywhere in this window", false)]);
        return;
    };
    match &document.content {
        Content::Loading(loading) => {
            items.add(&[("opening ", false), (document.title.as_str(), true)]);
            items.add(&[(&loading.now(), true)]);
        }
        Content::Failed(_) if !document.snapshots.is_empty() => {
            items.add(&[(&count(document.snapshots.len() as u64), true), (" snapshots in this page", false)]);
        }
        Content::Failed(_) => {
            items.add(&[("not opened", false)]);
        }
        Content::Probe(page) => {
            let p = &page.moment.picture;
            let state = if page.is_running() { "running" } else { "not running" };
            items.add(&[("probe ", false), (state, true)]);
            if p.events > 0 {
                items.add(&[(&count(p.events), true), (" events", false)]);
                items.add(&[("peak so far ", false), (&vramscope_core::units::Bytes(page.peak_reserved()).to_string(), true)]);
            }
        }
        Content::Ranks(page) => {
            let rows = page.jobs.iter().flat_map(|job| &job.rows).filter(|row| !row.is_pending).count() as u64;
            let files = page.files.len() as u64;
            let of = match (page.are_ranks() && page.jobs.len() < 2, rows) {
                (true, 1) => " rank of ",
                (true, _) => " ranks of ",
                (false, 1) => " row of ",
                (false, _) => " rows of ",
            };
            let files_of = if files == 1 { " file" } else { " files" };
            if page.jobs.len() > 1 {
                items.add(&[("shown ", false), (&count(page.rows().len() as u64), true)]);
            }
            items.add(&[(&count(rows), true), (of, false), (&count(files), true), (files_of, false)]);
        }
        Content::Ready(view) => match workspace_status(document, view) {
            Some(told) => {
                for (name, figure) in &told {
                    items.add(&[(name, false), (figure, true)]);
                }
            }
            None => cursor_status(&mut items, view),
        },
    }
}

/// A link to the Inspector, shown while something is selected and the Inspector is hidden.
fn selection_status(app: &App, right: &mut Ui) {
    let Some(document) = app.active_document() else { return };
    let is_seen = match app.maximised {
        Some(only) => only == ViewKind::Inspector,
        None => !app.hidden.contains(&ViewKind::Inspector) && document.layouts.shows(document.arrangement(), ViewKind::Inspector),
    };
    let has_selection = document.view().is_some_and(|view| view.shared.selected().is_some());
    if has_selection && !is_seen && !matches!(document.workspace, Workspace::Plan | Workspace::WhatIf | Workspace::Live) {
        right.add_space(12.0);
        if link_with(right, "selected: show it in the Inspector", Type::Caption, None).clicked() {
            app.actions.run(Command::Show(ViewKind::Inspector));
        }
    }
}

/// What the status bar shows for a workspace without a cursor.
fn workspace_status(document: &Document, view: &DeviceView) -> Option<Vec<(String, String)>> {
    match document.workspace {
        Workspace::Plan => view.views.get(&ViewKind::Plan)?.status(),
        _ => None,
    }
}

/// The items of the status bar, left to right. An item that does not fit is left out together with all later ones.
struct Items<'a> {
    ui: &'a mut Ui,
    tokens: &'a Tokens,
    is_first: bool,
    is_full: bool,
    /// The following figures are of an earlier instant than the named one, so they are dimmed.
    is_stale: bool,
}

impl Items<'_> {
    /// Adds text pieces, important ones in the strong colour. A divider separates them from previous items.
    fn add(&mut self, pieces: &[(&str, bool)]) -> Option<Response> {
        let ui = &mut *self.ui;
        let divider = if self.is_first { 0.0 } else { 21.0 };
        let whole: String = pieces.iter().map(|p| p.0).collect();
        let width = label::width(ui.painter(), &whole, Type::Mono);
        self.is_full |= divider + width > ui.available_width();
        if self.is_full {
            return None;
        }
        if !self.is_first {
            let (rect, _) = ui.allocate_exact_size(vec2(divider, 14.0), Sense::hover());
            ui.painter().vline(rect.center().x, rect.y_range(), Stroke::new(1.0, self.tokens.line2));
        }
        self.is_first = false;
        let inner = ui.horizontal(|ui| {
            ui.spacing_mut().item_spacing.x = 0.0;
            for (piece, strong) in pieces {
                ui.label(Type::Mono.text(*piece).color(ink(self.tokens, *strong, self.is_stale)));
            }
        });
        Some(inner.response)
    }
}

/// Figures are stronger than their names. Stale figures are dimmed until new ones arrive.
fn ink(tokens: &Tokens, strong: bool, is_stale: bool) -> egui::Color32 {
    match (is_stale, strong) {
        (true, _) => tokens.text3,
        (false, true) => tokens.text1,
        (false, false) => tokens.text2,
    }
}

fn cursor_status(items: &mut Items<'_>, view: &DeviceView) {
    let device = view.data.device();
    let n = device.events.len();
    if n == 0
        && let Some(track) = &device.live
    {
        let Some(last) = device.samples.last() else {
            let why = match &track.trouble {
                Some(_) if view.data.recording.has_no_device() => "no GPU is watched",
                Some(_) => "memory not readable",
                None => "no sample yet",
            };
            items.add(&[(why, false)]);
            return;
        };
        let age = last_known(view.shared.live.as_deref(), track, last.time_us);
        let samples = &device.samples;
        let at = view.shared.instant_us.and_then(|us| samples.partition_point(|s| s.time_us <= us).checked_sub(1));
        return live_status(items, device, track, at.and_then(|i| samples.get(i)).unwrap_or(last), last, age);
    }
    let event = view.shared.cursor;
    if device.events.has_time
        && let Some(&t) = device.events.time_us.get(event as usize)
    {
        let (time, of) = clock_time(view.data.recording.clock(), t);
        items.add(&[(&time, true), (of, false)]);
    }
    if view.data.recording.has_only_counters() {
        items.add(&[("no events: PyTorch's counters", false)]);
        return;
    }
    if view.data.has_only_sums() {
        items.add(&[("no events: bytes by role over time", false)]);
        return;
    }
    if n == 0 {
        items.add(&[("no events: only the state at the end was recorded", false)]);
    } else {
        items.add(&[("cursor at event ", false), (&count(u64::from(event)), true), (" of ", false), (&count(n as u64), false)]);
    }
    let Some(state) = view.state.latest() else { return };
    items.is_stale = n > 0 && state.event != event;
    term::speak_of(items.ui.ctx(), &view.data, Some(state));
    let (holes, free, largest) = state.hole_figures();
    let show = |n: u64| Bytes(n).to_string();
    let mut figure = |term, pieces: &[(&str, bool)]| {
        if let Some(response) = items.add(pieces) {
            term::explain(&response, term);
        }
    };
    if !view.data.knows_reserved() {
        figure(Term::Allocated, &[("allocated ", false), (&show(state.totals.allocated), true)]);
        figure(Term::Reserved, &[("reserved ", false), ("not in this file", false)]);
        return;
    }
    figure(Term::Reserved, &[("reserved ", false), (&show(state.totals.reserved), true)]);
    figure(Term::Allocated, &[("allocated ", false), (&show(state.totals.allocated), true)]);
    // In other views, "in use" includes both.
    let pending = state.totals.active.saturating_sub(state.totals.allocated);
    if pending > 0 {
        figure(Term::PendingFree, &[("pending free ", false), (&show(pending), true)]);
    }
    if !view.data.tables.curves.has_all_segments() {
        let free = state.totals.reserved.saturating_sub(state.totals.active);
        figure(Term::Inactive, &[("free inside ", false), (&show(free), true)]);
        return;
    }
    let in_holes = format!(" in {}", counted(holes, "hole", "holes"));
    figure(Term::Inactive, &[("free inside ", false), (&show(free), true), (&in_holes, false)]);
    figure(Term::LargestHole, &[("largest hole ", false), (&show(largest), true)]);
}

fn watch_status(ui: &mut Ui, tokens: &Tokens, folder: &Path) {
    if ui.min_rect().width() > 0.0 {
        let (rect, _) = ui.allocate_exact_size(vec2(21.0, 14.0), Sense::hover());
        ui.painter().vline(rect.center().x, rect.y_range(), Stroke::new(1.0, tokens.line2));
    }
    let name = folder.file_name().map_or_else(|| folder.display().to_string(), |name| name.to_string_lossy().into_owned());
    ui.label(Type::Mono.text(format!("watching {name}")).color(tokens.text2))
        .on_hover_text(format!("{}: each new recording is opened or offered.", folder.display()));
}

/// Lists the views that have no room in the window. Each can be opened to fill the window.
fn hidden_status(app: &App, ui: &mut Ui, tokens: &Tokens) {
    let hidden = &app.hidden;
    if hidden.is_empty() {
        return;
    }
    let (rect, _) = ui.allocate_exact_size(vec2(21.0, 14.0), Sense::hover());
    ui.painter().vline(rect.center().x, rect.y_range(), Stroke::new(1.0, tokens.line2));
    let words = format!("{} hidden", counted(hidden.len() as u64, "view", "views"));
    let label = ui.add(egui::Label::new(Type::Mono.text(words).color(tokens.accent)).sense(Sense::click()));
    Popup::menu(&label).gap(4.0).show(|ui| {
        ui.set_width(180.0);
        for &kind in hidden {
            if menu_item(ui, kind.title(), None, None, true).clicked() {
                app.actions.run(Command::Show(kind));
                ui.close();
            }
        }
    });
    let names: Vec<&str> = hidden.iter().map(|kind| kind.title()).collect();
    label.on_hover_text(format!(
        "No room for {}. Click to let one fill the window; Esc brings the others back.",
        names.join(", ")
    ));
}

/// The sample at the cursor or the newest one, and how complete the watch is.
fn live_status(
    items: &mut Items<'_>,
    device: &DeviceRecording,
    track: &LiveTrack,
    at: &Sample,
    last: &Sample,
    age: Option<String>,
) {
    items.add(&[(&time_of_day(at.time_us), true), (" UTC", false)]);
    if let Some(age) = &age {
        items.add(&[(age, true)]);
    }
    let (used, total) = (Bytes(at.used.unwrap_or(0)).to_string(), Bytes(device.capacity.unwrap_or(0)).to_string());
    items.add(&[("device used ", false), (&used, true), (" of ", false), (&total, false)]);
    let first = device.samples.first().map_or(last.time_us, |s| s.time_us);
    let seconds = format!(" in {:.1} s", (last.time_us - first) as f64 / 1e6);
    items.add(&[(&count(device.samples.len() as u64 + track.thinned), true), (" samples", false), (&seconds, false)]);
    items.add(&[(&count(track.lost), track.lost > 0), (" lost", false)]);
    if track.thinned > 0 {
        items.add(&[(&count(track.thinned), false), (" thinned, peaks kept", false)]);
    }
    let in_state = |state| track.processes.iter().filter(|p| p.helper_at(last.time_us) == state).count() as u64;
    let (helpers, silent) = (in_state(HelperState::Tells), in_state(HelperState::Silent));
    let present = track.processes.iter().filter(|p| p.at(last.time_us).is_some()).count() as u64;
    let silent = if silent > 0 { format!(", {} more tells nothing of this device", count(silent)) } else { String::new() };
    items.add(&[
        ("NVML, helper in ", false),
        (&count(helpers), true),
        (" of ", false),
        (&counted(present, "process", "processes"), false),
        (&silent, false),
    ]);
}

fn load_status(ui: &mut Ui, tokens: &Tokens, view: &DeviceView) {
    if view.data.recording.source.format == Format::Plan {
        ui.label(Type::Mono.text("predicted, never ran").color(tokens.amber))
            .on_hover_text("This run was never made: its requests follow from recordings of the program at other sizes.");
        return;
    }
    let report = &view.data.recording.report;
    let contradiction = view.data.tables.disagreement.as_ref();
    // A note may stand for thousands of places, but it counts as one.
    let notes = report.warnings.len() as u64 + u64::from(contradiction.is_some());
    if notes == 0 {
        ui.label(Type::Mono.text("no load notes").color(tokens.text2));
    } else {
        let label = counted(notes, "load note", "load notes");
        let response = ui.add(egui::Label::new(Type::Mono.text(label).color(tokens.amber)).sense(Sense::click()));
        response.on_hover_ui(|ui| {
            ui.set_max_width(520.0);
            for w in &report.warnings {
                ui.label(Type::Body.text(format!("{} × {}", count(w.count), w.text)).color(tokens.text1));
            }
            if let Some(contradiction) = contradiction {
                ui.label(Type::Body.text(contradiction).color(tokens.text1));
            }
        });
    }
    let (rect, _) = ui.allocate_exact_size(vec2(21.0, 14.0), Sense::hover());
    ui.painter().vline(rect.center().x, rect.y_range(), Stroke::new(1.0, tokens.line2));
    let recording = &view.data.recording;
    let devices = if recording.has_no_device() {
        "no device".to_owned()
    } else {
        counted(recording.devices.len() as u64, "device", "devices")
    };
    ui.label(Type::Mono.text(devices).color(tokens.text2));
}
