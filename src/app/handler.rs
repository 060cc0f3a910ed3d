//! Applying actions: the one place where state changes.

use std::path::PathBuf;
use std::sync::Arc;

use egui::Context;

use super::action::Action;
use super::choosing::{Choosing, is_pattern};
use super::command::{Command, Needs};
use super::compare::{Moment, Other, Source};
use super::cursor::{AskedQuery, Axis, Link, domain, position};
use super::document::{Content, DeviceData, Document};
use super::loader::Loading;
use super::ranks::Ranks;
use super::selection::Item;
use super::settings::{ThemeChoice, editor_command};
use super::views::ViewKind;
use super::watch::Watch;
use super::workspace::{self, Workspace};
use super::{App, Overlay};
use crate::analysis::query::Query;
use crate::analysis::{LifetimeId, NO_EVENT, Quantity};
use crate::units::Address;

impl App {
    /// Applies one action.
    pub(super) fn apply(&mut self, action: Action, ctx: &Context) {
        match action {
            Action::Run(command) => self.run(command, ctx),
            Action::Open(paths) => self.open_together(paths),
            Action::OpenRanks(paths) => self.open_ranks(paths),
            Action::CompareFiles(a, b) => {
                self.open(a);
                self.to_compare = self.active_document().map(|d| (d.id, b));
                self.poll_comparison(ctx);
            }
            Action::Watch(folder) => self.watch_folder(folder),
            Action::AskPicture(part) => {
                self.pictures.part = part;
                self.open_dialog(Choosing::Picture);
            }
            Action::SavePicture(path) => self.save_picture(path, ctx),
            Action::Add(path) => self.add_file(path),
            Action::OpenSample(index) => {
                if let Some(sample) = self.samples.get(index).copied() {
                    self.open_static(sample.name, sample.bytes);
                }
            }
            Action::Activate(id) => self.active = self.documents.iter().position(|d| d.id == id),
            Action::Close(id) => {
                if let Some(at) = self.documents.iter().position(|d| d.id == id) {
                    self.close(at);
                }
            }
            Action::SetDevice(index) => self.set_device(index),
            Action::SetCursor(event) => self.with_link(|link, data| link.cursor = clamp_event(data, event)),
            Action::GoTo(event) => self.with_link(|link, data| go_to(link, data, event)),
            Action::SetWindow(from, to) => self.with_link(|link, data| set_window(link, data, from, to)),
            Action::SetAxis(axis) => self.with_link(|link, data| set_axis(link, data, axis)),
            Action::HoverEvent(event) => self.with_link(|link, _| link.hover_event = event),
            Action::Hover(item) => self.with_link(|link, _| link.hovered = item),
            Action::Select(item) => self.with_link(|link, _| link.selection.select(item)),
            Action::SetRange(range) => self.with_link(|link, data| {
                link.range = range.map(|(a, b)| (clamp_event(data, a.min(b)), clamp_event(data, a.max(b))));
            }),
            Action::SetColourBy(by) => self.with_link(|link, _| {
                link.colour_by = by;
                link.focus_classes.clear();
            }),
            Action::SetQuery(text) => self.with_link(|link, _| {
                let read = Query::parse(&text).ok().filter(|query| !query.is_empty());
                link.query = read.map(|query| Arc::new(AskedQuery { text, query }));
            }),
            Action::SetFocusClasses(classes) => self.with_link(|link, _| link.focus_classes = classes),
            Action::SetMarker(which, event) => {
                self.with_link(|link, data| set_marker(link, which, event.map(|e| clamp_event(data, e))))
            }
            Action::OpenSimulation { conf, limit } => self.open_simulation(&conf, limit),
            Action::TrySettings(conf) => {
                self.with_link(|link, _| link.to_try.push(conf));
                if let Some(document) = self.active_document_mut() {
                    document.workspace = workspace::Workspace::WhatIf;
                    workspace::show(document.layouts.tree(workspace::Workspace::WhatIf), super::views::ViewKind::WhatIf);
                }
                self.maximised = None;
            }
            Action::SetTracks(tracks) => {
                self.settings.tracks = tracks;
                for document in &mut self.documents {
                    let parked = document.parked.values_mut();
                    let shown = match &mut document.content {
                        Content::Ready(view) => Some(view),
                        _ => None,
                    };
                    parked.chain(shown).for_each(|view| view.link.tracks = tracks);
                }
            }
            Action::Compare(which, source) => self.with_link(|link, _| {
                // A flag in the timeline would claim that A is here.
                if source != Source::Marker
                    && let Some(marker) = link.markers.get_mut(which)
                {
                    *marker = None;
                }
                if let Some(side) = link.compared.get_mut(which) {
                    *side = source;
                }
            }),
            Action::OpenSource { file, line } => self.open_source(&file, line, ctx),
            Action::Copy(text) => {
                ctx.copy_text(text);
                self.notices.say("Copied.");
            }
            Action::Live(action) => self.act_live(action),
            Action::Notify(text) => self.notices.say(text),
        }
    }

    /// True when a command makes sense now.
    pub(super) fn is_enabled(&self, command: Command) -> bool {
        let view = self.active_document().and_then(Document::view);
        match command.needs() {
            Needs::Nothing => true,
            Needs::Recording => view.is_some(),
            Needs::Selection => view.is_some_and(|v| v.link.selected().is_some()),
            Needs::OutOfMemory => view.is_some_and(|v| !v.data.ooms.is_empty()),
        }
    }

    fn run(&mut self, command: Command, ctx: &Context) {
        if !self.is_enabled(command) {
            return;
        }
        match command {
            Command::Open => self.open_dialog(Choosing::Open),
            Command::OpenRanks => self.open_dialog(Choosing::Ranks),
            Command::Probe => self.open_probe(false),
            Command::Replay => self.open_probe(true),
            Command::Watch => match self.watch.take() {
                Some(watch) => self.notices.say(format!("{} is no longer watched.", watch.folder.display())),
                None => self.open_dialog(Choosing::Watch),
            },
            Command::SavePicture => self.actions.send(Action::AskPicture(None)),
            Command::AddFile => self.open_dialog(Choosing::Add),
            Command::OpenPath => self.overlay = Overlay::OpenPath { path: String::new(), purpose: Choosing::Open },
            Command::Explain => self.overlay = Overlay::Explain(Default::default()),
            Command::WatchMachine => self.watch_machine(ctx),
            Command::Welcome => self.active = None,
            Command::Close => {
                if let Some(at) = self.active {
                    self.close(at);
                }
            }
            Command::NextTab => self.cycle_tab(1),
            Command::PreviousTab => self.cycle_tab(-1),
            Command::Quit => ctx.send_viewport_cmd(egui::ViewportCommand::Close),
            Command::Palette => self.overlay = Overlay::Palette(Default::default()),
            Command::Help => self.overlay = Overlay::Help,
            Command::Settings => self.overlay = Overlay::Settings,
            Command::CategoryRules => self.overlay = Overlay::Rules,
            Command::ToggleTheme => {
                let dark = ctx.global_style().visuals.dark_mode;
                self.settings.theme = if dark { ThemeChoice::Light } else { ThemeChoice::Dark };
                ctx.set_theme(self.settings.theme.preference());
            }
            Command::ZoomFit => self.with_link(|link, data| {
                let (from, to) = domain(data.device(), link.axis);
                set_window(link, data, from, to);
            }),
            Command::ZoomIn => self.with_link(|link, data| zoom(link, data, 0.5)),
            Command::ZoomOut => self.with_link(|link, data| zoom(link, data, 2.0)),
            Command::PanLeft => self.with_link(|link, data| pan(link, data, -0.25)),
            Command::PanRight => self.with_link(|link, data| pan(link, data, 0.25)),
            Command::ToggleAxis => self.with_link(|link, data| {
                set_axis(link, data, if link.axis == Axis::Event { Axis::Time } else { Axis::Event });
            }),
            Command::EventBack => self.with_link(|link, data| go_to(link, data, link.cursor.saturating_sub(1))),
            Command::EventForward => self.with_link(|link, data| go_to(link, data, link.cursor.saturating_add(1))),
            Command::First => self.with_link(|link, data| go_to(link, data, 0)),
            Command::Last => self.with_link(|link, data| go_to(link, data, u32::MAX)),
            Command::Peak => self.with_link(|link, data| go_to(link, data, data.tables.curves.peak(Quantity::Active).1)),
            Command::PreviousPeak => self.with_link(|link, data| {
                if let Some(e) = neighbour_peak(data, link.cursor, false) {
                    go_to(link, data, e);
                }
            }),
            Command::NextPeak => self.with_link(|link, data| {
                if let Some(e) = neighbour_peak(data, link.cursor, true) {
                    go_to(link, data, e);
                }
            }),
            Command::OutOfMemory => self.with_link(|link, data| {
                let next = data.ooms.iter().copied().find(|&e| e > link.cursor).or_else(|| data.ooms.first().copied());
                if let Some(e) = next {
                    go_to(link, data, e);
                    link.selection.select(Some(Item::Event(e)));
                }
            }),
            Command::SetMarker(which) => self.with_link(|link, _| set_marker(link, which, Some(link.cursor))),
            Command::ClearMarkers => self.with_link(|link, _| link.markers = [None, None]),
            Command::PreviousSameStack => self.with_link(|link, data| same_stack(link, data, false)),
            Command::NextSameStack => self.with_link(|link, data| same_stack(link, data, true)),
            Command::QueryStack => {
                let stack = self.active_document().and_then(Document::view).and_then(|v| selected_stack(&v.link, &v.data));
                match stack {
                    Some(stack) if stack.is_some() => self.apply(Action::SetQuery(format!("stack={}", stack.0)), ctx),
                    Some(_) => self.apply(Action::SetQuery("stack=none".to_owned()), ctx),
                    None => return self.notices.say("The selection has no stack."),
                }
                self.run(Command::Show(ViewKind::Allocations), ctx);
            }
            Command::FitSelection => self.with_link(fit_selection),
            Command::Clear => self.clear(),
            Command::SelectionBack => self.with_link(|link, _| link.selection.back()),
            Command::SelectionForward => self.with_link(|link, _| link.selection.forward()),
            Command::CopyAddress => {
                let text = self.active_document().and_then(Document::view).and_then(|v| match v.link.selected()? {
                    Item::Lifetime(id) => {
                        v.data.tables.lifetimes.get(v.data.device(), id).map(|l| Address(l.address).to_string())
                    }
                    Item::Segment(a) | Item::Hole(a) => Some(Address(a).to_string()),
                    Item::Event(e) => v.data.device().events.address.get(e as usize).map(|&a| Address(a).to_string()),
                    Item::Stack(_) | Item::Annotation(_) => None,
                });
                match text {
                    Some(text) => self.apply(Action::Copy(text), ctx),
                    None => self.notices.say("The selection has no address."),
                }
            }
            Command::CopyStack => {
                let text = self.active_document().and_then(Document::view).and_then(|v| {
                    let stack = selected_stack(&v.link, &v.data)?;
                    Some(crate::analysis::stack_text(&v.data.recording.stacks, stack))
                });
                match text {
                    Some(text) if !text.is_empty() => self.apply(Action::Copy(text), ctx),
                    _ => self.notices.say("The selection has no recorded stack."),
                }
            }
            Command::Colour(by) => self.apply(Action::SetColourBy(by), ctx),
            Command::Workspace(w) => {
                if let Some(document) = self.active_document_mut() {
                    document.workspace = w;
                }
            }
            Command::ResetLayout => {
                if let Some(document) = self.active_document_mut() {
                    let w = document.workspace;
                    document.layouts.reset(w);
                    let layouts = document.layouts.clone();
                    self.settings.layouts = layouts;
                }
            }
            Command::Show(view) => {
                if let Some(document) = self.active_document_mut() {
                    let w = document.workspace;
                    workspace::show(document.layouts.tree(w), view);
                }
            }
        }
    }

    fn with_link(&mut self, change: impl FnOnce(&mut Link, &DeviceData)) {
        if let Some(view) = self.active_document_mut().and_then(Document::view_mut) {
            let data = std::sync::Arc::clone(&view.data);
            change(&mut view.link, &data);
        }
    }

    fn clear(&mut self) {
        if !matches!(self.overlay, Overlay::None) {
            self.overlay = Overlay::None;
            return;
        }
        if self.maximised.take().is_some() {
            return;
        }
        self.with_link(|link, data| {
            if link.range.is_some() {
                link.range = None;
            } else if !link.focus_classes.is_empty() {
                link.focus_classes.clear();
            } else if link.query.is_some() {
                link.query = None;
            } else if link.selected().is_some() {
                link.selection.select(None);
            } else {
                let (from, to) = domain(data.device(), link.axis);
                set_window(link, data, from, to);
            }
        });
    }

    fn cycle_tab(&mut self, step: isize) {
        let n = self.documents.len() as isize;
        if n > 0 {
            let at = self.active.map_or(0, |i| i as isize + step);
            self.active = Some(at.rem_euclid(n) as usize);
        }
    }

    /// Opens a file in a tab, or brings the tab that has it to the front.
    pub(super) fn open(&mut self, path: PathBuf) {
        let path = std::path::absolute(&path).unwrap_or(path);
        if path.is_dir() || is_pattern(&path) {
            self.open_ranks(vec![path]);
            return;
        }
        if let Some(at) =
            self.documents.iter().position(|d| d.path.as_ref() == Some(&path) && !matches!(d.content, Content::Failed(_)))
        {
            self.active = Some(at);
            return;
        }
        let title = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
        let loading = Loading::file(&self.jobs, path.clone());
        self.documents.retain(|d| d.path.as_ref() != Some(&path));
        let document = self.new_document(title, Some(path), Content::Loading(loading));
        self.documents.push(document);
        self.active = Some(self.documents.len() - 1);
    }

    /// Opens folders, patterns or many files as the ranks of one job, in one tab.
    pub(super) fn open_ranks(&mut self, paths: Vec<PathBuf>) {
        let first = paths.first().cloned().unwrap_or_default();
        let of = if first.is_dir() { Some(first.as_path()) } else { first.parent() };
        let name =
            of.and_then(|p| p.file_name()).map_or_else(|| first.display().to_string(), |n| n.to_string_lossy().into_owned());
        let path = (paths.len() == 1).then(|| first.clone());
        if let Some(at) = path.as_ref().and_then(|p| self.documents.iter().position(|d| d.path.as_ref() == Some(p))) {
            self.active = Some(at);
            return;
        }
        let page = Ranks::open(&self.jobs, paths);
        let document = self.new_document(format!("{name} (ranks)"), path, Content::Ranks(Box::new(page)));
        self.documents.push(document);
        self.active = Some(self.documents.len() - 1);
    }

    /// Reads an open file again.
    fn reload(&mut self, path: &std::path::Path) {
        let loading = Loading::file(&self.jobs, path.to_path_buf());
        if let Some(document) = self.documents.iter_mut().find(|d| d.path.as_deref() == Some(path)) {
            self.notices.say(format!("{} was written again and is read again.", document.title));
            document.recording = None;
            document.parked.clear();
            document.content = Content::Loading(loading);
        }
    }

    /// Takes in ranks that were read.
    pub(super) fn poll_ranks(&mut self) {
        for document in &mut self.documents {
            if let Content::Ranks(page) = &mut document.content
                && let Err(sentence) = page.poll()
            {
                document.content = Content::Failed(sentence);
            }
        }
    }

    /// Opens or offers recordings that appeared in the watched folder: opened when nothing else is being looked at.
    pub(super) fn poll_watch(&mut self) {
        let news: Vec<Result<PathBuf, String>> = self.watch.iter().flat_map(Watch::news).collect();
        for found in news {
            match found {
                // Written again, or only now whole: what was read of it before is old.
                Ok(path) if self.documents.iter().any(|d| d.path.as_ref() == Some(&path)) => self.reload(&path),
                Ok(path) if self.active.is_none() => self.open(path),
                Ok(path) => {
                    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    self.notices.offer(format!("New recording: {name}"), "Open", Action::Open(vec![path]));
                }
                Err(sentence) => self.notices.say(sentence),
            }
        }
    }

    /// Shows the comparison that was asked for as soon as its first recording is there.
    pub(super) fn poll_comparison(&mut self, ctx: &Context) {
        let Some((id, _)) = &self.to_compare else { return };
        let at = self.documents.iter().position(|d| d.id == *id);
        match at.map(|at| (at, &self.documents[at].content)) {
            Some((_, Content::Loading(_))) => {}
            Some((at, Content::Ready(_))) => {
                let Some((_, other)) = self.to_compare.take() else { return };
                self.active = Some(at);
                self.run(Command::Workspace(Workspace::Flame), ctx);
                let peak = self.documents[at].view().map(|v| v.data.tables.curves.peak(Quantity::Active).1);
                self.apply(Action::SetMarker(0, peak), ctx);
                self.apply(Action::Compare(1, Source::Other(Other::File(other), Moment::Peak)), ctx);
            }
            _ => self.to_compare = None,
        }
    }

    /// Watches a folder for new recordings, or stops.
    fn watch_folder(&mut self, folder: Option<PathBuf>) {
        self.watch = None;
        let Some(folder) = folder else { return };
        match Watch::start(std::path::absolute(&folder).unwrap_or(folder), &self.jobs) {
            Ok(watch) => {
                self.notices.say(format!("Watching {}: each new recording is opened or offered.", watch.folder.display()));
                self.watch = Some(watch);
            }
            Err(sentence) => self.notices.say(sentence),
        }
    }

    pub(super) fn close(&mut self, at: usize) {
        let document = self.documents.remove(at);
        self.settings.layouts = document.layouts;
        self.active = match self.active {
            _ if self.documents.is_empty() => None,
            Some(i) if i > at || i >= self.documents.len() => Some(i.saturating_sub(1)),
            other => other,
        };
    }

    /// Runs a what-if question and opens the run in a tab of its own.
    fn open_simulation(&mut self, conf: &str, limit: Option<u64>) {
        let Some(data) = self.active_document().and_then(Document::view).map(|v| std::sync::Arc::clone(&v.data)) else { return };
        let question = match crate::allocator::Question::parse(conf, limit) {
            Ok(question) => question,
            Err(error) => return self.notices.say(format!("PyTorch would refuse this at {error}")),
        };
        let settings = if conf.is_empty() { "defaults" } else { conf };
        let title = match limit {
            Some(limit) => format!("What-if: {settings}, {}", crate::units::Bytes(limit)),
            None => format!("What-if: {settings}"),
        };
        let loading = Loading::simulation(&self.jobs, data, question);
        let document = self.new_document(title, None, Content::Loading(loading));
        self.documents.push(document);
        self.active = Some(self.documents.len() - 1);
    }

    fn set_device(&mut self, index: usize) {
        let jobs = self.jobs.clone();
        let Some(document) = self.active_document_mut() else { return };
        let Some(recording) = document.recording.clone() else { return };
        if document.view().is_some_and(|v| v.data.index == index) || index >= recording.devices.len() {
            return;
        }
        let next = match document.parked.remove(&index) {
            Some(view) => Content::Ready(view),
            None => Content::Loading(Loading::device(&jobs, recording, index)),
        };
        if let Content::Ready(view) = std::mem::replace(&mut document.content, next) {
            document.parked.insert(view.data.index, view);
        }
    }

    fn open_source(&mut self, file: &str, line: u32, ctx: &Context) {
        if let Some((program, args)) = editor_command(&self.settings.editor, file, line) {
            match std::process::Command::new(&program).args(&args).spawn() {
                Ok(_) => {}
                Err(error) => {
                    self.notices.say(format!("Can not start \"{program}\": {error}. Change the editor in File, Settings."))
                }
            }
        } else if std::path::Path::new(file).exists() {
            ctx.open_url(egui::OpenUrl::new_tab(format!(
                "vscode://file{}{file}:{line}",
                if file.starts_with('/') { "" } else { "/" }
            )));
        } else {
            self.notices
                .say(format!("{file} is not on this machine; the recording was made elsewhere. The location was copied."));
            ctx.copy_text(format!("{file}:{line}"));
        }
    }
}

/// The stack of what is selected.
#[must_use]
pub(super) fn selected_stack(link: &Link, data: &DeviceData) -> Option<crate::model::StackId> {
    match link.selected()? {
        Item::Lifetime(id) => Some(data.tables.lifetimes.stack(data.device(), id)),
        Item::Event(e) => data.device().events.stack.get(e as usize).copied(),
        Item::Stack(s) => Some(s),
        Item::Segment(_) | Item::Hole(_) | Item::Annotation(_) => None,
    }
}

/// Puts a marker at an event; a comparison then means this recording there.
fn set_marker(link: &mut Link, which: usize, event: Option<u32>) {
    if let (Some(marker), Some(side)) = (link.markers.get_mut(which), link.compared.get_mut(which)) {
        *marker = event;
        if event.is_some() {
            *side = Source::Marker;
        }
    }
}

fn clamp_event(data: &DeviceData, event: u32) -> u32 {
    event.min(data.device().events.len().saturating_sub(1) as u32)
}

/// Moves the cursor; when it leaves the window the window follows by as little as keeps a tenth beyond it.
fn go_to(link: &mut Link, data: &DeviceData, event: u32) {
    let event = clamp_event(data, event);
    link.cursor = event;
    let x = position(data.device(), link.axis, event);
    let span = link.to - link.from;
    if x < link.from {
        set_window(link, data, x - span * 0.1, x + span * 0.9);
    } else if x > link.to {
        set_window(link, data, x - span * 0.9, x + span * 0.1);
    }
}

/// Shows a part of the axis: at least a few units wide, never beyond the ends by more than itself allows.
fn set_window(link: &mut Link, data: &DeviceData, from: f64, to: f64) {
    let (first, last) = domain(data.device(), link.axis);
    if !(from.is_finite() && to.is_finite()) {
        return;
    }
    let smallest: f64 = match link.axis {
        Axis::Event => 8.0,
        Axis::Time => 20.0,
    };
    let span = (to - from).clamp(smallest.min(last - first), last - first);
    let middle = f64::midpoint(from, to);
    let from = (middle - span / 2.0).clamp(first, last - span);
    link.from = from;
    link.to = from + span;
}

fn set_axis(link: &mut Link, data: &DeviceData, axis: Axis) {
    if link.axis == axis {
        return;
    }
    let device = data.device();
    if axis == Axis::Time && !device.events.has_time {
        return;
    }
    let (a, b) = (link.event_at(device, link.from), link.event_at(device, link.to));
    let whole = (link.from, link.to) == domain(device, link.axis);
    link.axis = axis;
    let (from, to) = if whole { domain(device, axis) } else { (position(device, axis, a), position(device, axis, b)) };
    set_window(link, data, from, to);
}

fn zoom(link: &mut Link, data: &DeviceData, factor: f64) {
    let x = position(data.device(), link.axis, link.cursor);
    let about = if (link.from..=link.to).contains(&x) { x } else { f64::midpoint(link.from, link.to) };
    set_window(link, data, about - (about - link.from) * factor, about + (link.to - about) * factor);
}

fn pan(link: &mut Link, data: &DeviceData, share: f64) {
    let by = (link.to - link.from) * share;
    set_window(link, data, link.from + by, link.to + by);
}

/// The next place, in a direction, where the active curve is highest among a hundredth of the recording around it.
fn neighbour_peak(data: &DeviceData, cursor: u32, forward: bool) -> Option<u32> {
    let n = data.device().events.len() as u32;
    let columns = 400.min(n.max(1)) as usize;
    let bounds: Vec<u32> = (0..=columns).map(|i| (u64::from(n) * i as u64 / columns as u64) as u32).collect();
    let cells = data.tables.curves.columns(data.device(), &data.tables.lifetimes, Quantity::Active, &bounds);
    let is_peak = |i: usize| {
        let near = i.saturating_sub(3)..(i + 4).min(cells.len());
        let before = cells[near.start..i].iter().all(|c| c.max < cells[i].max);
        before && cells[near].iter().all(|c| c.max <= cells[i].max) && cells[i].max > 0
    };
    let event_in = |i: usize| {
        let (mut best, mut at) = (0, bounds[i]);
        for e in bounds[i]..bounds[i + 1] {
            let v = data.tables.curves.at(data.device(), &data.tables.lifetimes, Quantity::Active, e);
            if v > best {
                (best, at) = (v, e);
            }
            if v == cells[i].max {
                break;
            }
        }
        at
    };
    let mut order: Box<dyn Iterator<Item = usize>> =
        if forward { Box::new(0..cells.len()) } else { Box::new((0..cells.len()).rev()) };
    order.find_map(|i| {
        if !is_peak(i) || (forward && bounds[i + 1] <= cursor) || (!forward && bounds[i] >= cursor) {
            return None;
        }
        let e = event_in(i);
        ((forward && e > cursor) || (!forward && e < cursor)).then_some(e)
    })
}

fn same_stack(link: &mut Link, data: &DeviceData, forward: bool) {
    let Some(stack) = selected_stack(link, data) else { return };
    let lifetimes = &data.tables.lifetimes;
    let device = data.device();
    let n = lifetimes.len() as u32;
    let start = match link.selected() {
        Some(Item::Lifetime(id)) => id.0,
        Some(Item::Event(e)) => lifetimes.of_event(e).0.min(n),
        _ => return,
    };
    let is_same = |&i: &u32| lifetimes.stack(device, LifetimeId(i)) == stack;
    let found = if forward { (start.saturating_add(1)..n).find(is_same) } else { (0..start.min(n)).rev().find(is_same) };
    if let Some(i) = found {
        link.selection.select(Some(Item::Lifetime(LifetimeId(i))));
        let born = lifetimes.born(LifetimeId(i));
        go_to(link, data, if born == NO_EVENT { 0 } else { born });
    }
}

fn fit_selection(link: &mut Link, data: &DeviceData) {
    let device = data.device();
    let (first, last) = match link.selected() {
        Some(Item::Lifetime(id)) => {
            let born = data.tables.lifetimes.born(id);
            let gone = data.tables.lifetimes.gone(id);
            (if born == NO_EVENT { 0 } else { born }, clamp_event(data, gone))
        }
        Some(Item::Annotation(i)) => match (device.annotations.get(i as usize), device.events.has_time) {
            (Some(a), true) => {
                let times = &device.events.time_us;
                let from = times.partition_point(|&t| t < a.start_us) as u32;
                let to = a.end_us.map_or(from, |end| times.partition_point(|&t| t <= end) as u32);
                (from, to)
            }
            _ => return,
        },
        Some(Item::Segment(address)) => match data.tables.states.segment_life(device, address, link.cursor) {
            Some(life) => (if life.born == NO_EVENT { 0 } else { life.born }, clamp_event(data, life.gone)),
            None => return,
        },
        Some(Item::Event(e)) => (e.saturating_sub(50), e.saturating_add(50)),
        _ => return,
    };
    let a = position(device, link.axis, first);
    let b = position(device, link.axis, clamp_event(data, last));
    let margin = ((b - a) * 0.1).max(2.0);
    set_window(link, data, a - margin, b + margin);
}
