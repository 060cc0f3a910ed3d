//! [`App`]: the open documents and the state of the window.
//!
//! Views send [`Action`]s, and `handler` applies them before the next frame is drawn. All of `impl App` is in this folder, one file
//! per topic.

mod adding;
mod choosing;
mod commands;
mod comparing;
mod copying;
mod dropping;
mod explaining;
mod handler;
mod live_tabs;
mod loading;
pub mod pictures;
mod probing;
mod saving;
mod seeking;
mod sources;
mod tabs;
mod touring;
mod watched_folder;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use egui::Context;

use super::dialogs::drop_target::Hover;
use super::dialogs::notifications::Notifications;
use super::dialogs::{choosing as paths, explain, guide, report, sources as questions, tour};
use super::documents::document::{Content, DeviceView, Document};
use super::documents::samples::Sample;
use super::documents::{adding::Additions, folder_watch, samples, saving::Saves, seeking::Seeking, tabs::Tabs};
use super::jobs::{Derived, Jobs};
use super::palette::Palette;
use super::picture::Pictures;
use super::platform::clipboard::Copying;
use super::platform::machine::MachineState;
use super::settings::merging::Kept;
use super::settings::{Recent, Settings};
use super::state::action::{Action, Actions};
use super::state::command::{Command, written};
use super::state::document_id::DocumentId;
use super::state::view_kind::ViewKind;
use super::theme;
use super::widgets::field::has_no_new_focus;
use super::widgets::how::take_asked;
use super::widgets::keys;
use vramscope_core::anatomy::roles::Rule;

pub(in crate::app) enum Overlay {
    None,
    Palette(Box<Palette>),
    OpenPath(Box<paths::Asking>),
    Explain(explain::Explainer),
    /// The choice of what to compare the recording in front with.
    Pair,
    Help,
    Guide(guide::Reading),
    Report,
    Settings,
    Rules,
    /// A question that must be answered before a source line can be opened.
    Source(questions::Question),
}

/// The application: open documents, settings, and work in progress.
pub struct App {
    pub(in crate::app) settings: Settings,
    pub(in crate::app) hover: Hover,
    /// The last known contents of the settings file.
    pub(in crate::app) kept: Kept,
    pub(in crate::app) documents: Tabs,
    /// What opens the closed tabs again, the last closed last.
    pub(in crate::app) closed: Vec<Action>,
    pub(in crate::app) overlay: Overlay,
    /// Save the settings with the next frame, because a decision in a dialog must survive a crash.
    pub(in crate::app) wants_save: bool,
    /// The role rules as last written to their file.
    pub(in crate::app) written_rules: Vec<Rule>,
    pub(in crate::app) maximised: Option<ViewKind>,
    /// Views of the workspace in front that do not fit the window.
    pub(in crate::app) hidden: Vec<ViewKind>,
    /// The last requested view, until it is visible or known to have no room.
    pub(in crate::app) shown: Option<ViewKind>,
    pub(in crate::app) notices: Notifications,
    pub(in crate::app) samples: Vec<Sample>,
    pub(in crate::app) sample_lines: Derived<(), Vec<Recent>>,
    /// The GPUs for the welcome page. Read again each time the page returns.
    pub(in crate::app) machine: Derived<u32, MachineState>,
    /// How often the welcome page was left; a cache key.
    pub(in crate::app) welcomes: u32,
    pub(in crate::app) tour: Option<tour::Tour>,
    pub(in crate::app) dialogs: paths::Dialogs,
    /// Checks copies to the clipboard.
    pub(in crate::app) copying: Copying,
    pub(in crate::app) sources: questions::Sources,
    pub(in crate::app) editors: Derived<(), Vec<(&'static str, &'static str)>>,
    /// The tab to compare once it is loaded, and the other file.
    pub(in crate::app) to_compare: Option<(DocumentId, PathBuf)>,
    /// The first of two recordings to compare, while the user chooses the second.
    pub(in crate::app) first_of_two: Option<PathBuf>,
    /// Pictures that are being chosen, taken or written.
    pub(in crate::app) pictures: Pictures,
    /// The options of the last report, reused for the next one.
    pub(in crate::app) report: report::Choice,
    pub(in crate::app) saves: Saves,
    /// A running search in the recording in front.
    pub(in crate::app) seeking: Option<Seeking>,
    /// The live session to save, while the user chooses a path.
    pub(in crate::app) session_to_save: Option<DocumentId>,
    pub(in crate::app) watch: Option<folder_watch::FolderWatch>,
    pub(in crate::app) additions: Additions,
    pub(in crate::app) actions: Actions,
    pub(in crate::app) inbox: Receiver<Action>,
    pub(in crate::app) jobs: Jobs,
    /// For screenshots: draws only this view.
    pub(in crate::app) only: Option<ViewKind>,
    /// The title bar's text, sent to the desktop only when it changes.
    pub(in crate::app) shown_title: String,
}

impl App {
    pub fn new(ctx: &Context, mut settings: Settings, jobs: Jobs) -> Self {
        theme::install(ctx);
        ctx.set_theme(settings.theme.preference());
        ctx.options_mut(|o| {
            o.quit_shortcuts.clear();
            o.zoom_with_keyboard = true;
        });
        settings.layouts.repair();
        let (actions, inbox) = Actions::channel();
        App {
            written_rules: settings.category_rules.clone(),
            settings,
            hover: Hover::default(),
            kept: Kept::default(),
            documents: Tabs::default(),
            overlay: Overlay::None,
            wants_save: false,
            maximised: None,
            hidden: Vec::new(),
            shown: None,
            notices: Notifications::default(),
            samples: samples::all(),
            sample_lines: Derived::default(),
            machine: Derived::default(),
            welcomes: 0,
            tour: None,
            dialogs: paths::Dialogs::default(),
            copying: Copying::default(),
            sources: questions::Sources::default(),
            editors: Derived::default(),
            closed: Vec::new(),
            to_compare: None,
            first_of_two: None,
            pictures: Pictures::default(),
            report: report::Choice::default(),
            saves: Saves::default(),
            seeking: None,
            session_to_save: None,
            watch: None,
            additions: Default::default(),
            actions,
            inbox,
            jobs,
            only: None,
            shown_title: String::new(),
        }
    }

    /// Opens files as if they had been dropped on the window.
    pub fn open_paths(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        self.open_together(paths);
    }

    pub fn actions(&self) -> &Actions {
        &self.actions
    }

    pub fn active_document(&self) -> Option<&Document> {
        self.documents.front()
    }

    pub(in crate::app) fn active_document_mut(&mut self) -> Option<&mut Document> {
        self.documents.front_mut()
    }

    pub fn documents(&self) -> &[Document] {
        &self.documents
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn notices(&self) -> impl Iterator<Item = &str> {
        self.notices.texts()
    }

    /// True when nothing is being read or computed.
    pub fn is_idle(&self) -> bool {
        self.jobs.running() == 0
            && self.additions.is_empty()
            && !self.documents.iter().any(|d| match &d.content {
                Content::Loading(_) => true,
                Content::Ready(view) => view.is_settling(),
                Content::Ranks(page) => !page.is_done(),
                Content::Probe(page) => page.is_running(),
                _ => false,
            })
    }

    /// A number that changes while anything is loaded, computed or sampled.
    pub(in crate::app) fn pace(&self) -> u64 {
        use std::hash::{Hash as _, Hasher as _};
        let mut pace = std::hash::DefaultHasher::new();
        (self.jobs.running(), self.additions.is_empty(), self.documents.len(), self.explains().is_some()).hash(&mut pace);
        for document in self.documents.iter() {
            std::mem::discriminant(&document.content).hash(&mut pace);
            match &document.content {
                Content::Loading(loading) => {
                    let (stage, fraction) = loading.progress.stage();
                    (stage.text(), fraction.map(f32::to_bits), loading.progress.fraction().map(f32::to_bits)).hash(&mut pace);
                }
                Content::Ready(view) => (view.data.device().events.len(), view.data.device().samples.len()).hash(&mut pace),
                Content::Ranks(page) => (page.answered, page.is_done()).hash(&mut pace),
                // A running probe counts as change. It has its own time limits.
                Content::Probe(page) => page.is_running().then(std::time::Instant::now).hash(&mut pace),
                Content::Failed(_) => {}
            }
        }
        pace.finish()
    }

    /// Handles everything that arrived since the last frame: loaded files, dropped files, dialogs, shortcuts, actions.
    pub fn logic(&mut self, ctx: &Context) {
        self.poll_dialog();
        self.poll_source();
        self.poll_copied();
        self.poll_loading();
        self.poll_first_finding();
        self.poll_ranks();
        self.poll_probe();
        self.poll_watch();
        self.poll_pictures();
        self.poll_saves();
        self.poll_seeking();
        self.poll_comparison(ctx);
        self.poll_additions();
        self.poll_live();
        for (name, said) in self.jobs.take_panics() {
            let sentence = "An error in vramscope ended one of its computations; the rest goes on. Please report it, with the recording if you can";
            self.notices.complain(format!("{sentence}: {name}: {said}"));
        }
        let dropped: Vec<PathBuf> = ctx.input(|i| i.raw.dropped_files.iter().map(|f| f.path().to_path_buf()).collect());
        if !dropped.is_empty() {
            self.take_dropped(dropped, ctx);
        }
        self.poll_tour(ctx);
        if let Some(line) = take_asked(ctx) {
            self.overlay = Overlay::Guide(guide::Reading::how_to_record(line));
        }
        self.read_shortcuts(ctx);
        while let Ok(action) = self.inbox.try_recv() {
            self.apply(action, ctx);
        }
        if has_no_new_focus(ctx) && matches!(self.overlay, Overlay::None) {
            self.overlay = Overlay::Palette(Default::default());
        }
    }

    pub(in crate::app) fn read_shortcuts(&mut self, ctx: &Context) {
        let typing = ctx.text_edit_focused() || keys::are_taken(ctx);
        // An open menu handles Escape and the arrow keys itself.
        let in_menu = egui::Popup::is_any_open(ctx);
        let in_dialog = !matches!(self.overlay, Overlay::None);
        let mut shortcuts: Vec<_> =
            Command::all().into_iter().flat_map(|c| c.shortcuts().into_iter().map(move |s| (s, c))).collect();
        // egui also matches a shortcut when Shift or Alt is held in addition, so `A` would match Shift+A. Shortcuts with
        // modifiers come first.
        shortcuts.sort_by_key(|(s, _)| !(s.modifiers.shift || s.modifiers.alt));
        for (shortcut, command) in shortcuts {
            // A bare letter belongs to the text field that has the focus, and so does its undo; Escape leaves the field first.
            let is_bare = !shortcut.modifiers.command && !shortcut.modifiers.alt && shortcut.logical_key != egui::Key::F1;
            if (is_bare && (typing || in_menu)) || (typing && shortcut.logical_key == egui::Key::Z) {
                continue;
            }
            // While a dialog is open, keys do not reach what is behind it.
            if in_dialog && !command.works_in_dialogs() {
                continue;
            }
            // In a slow frame one key may have been pressed several times.
            let presses = ctx.input_mut(|i| i.count_and_consume_key(shortcut.modifiers, shortcut.logical_key));
            let times = if command.moves() { presses } else { presses.min(1) };
            // Shows what a letter did, in case it was pressed by mistake.
            let is_letter = shortcut.logical_key.name().len() == 1;
            if times > 0 && is_bare && is_letter && self.is_enabled(command) {
                self.notices.mention(format!("{}: {}", written(&shortcut), command.text()));
            }
            for _ in 0..times {
                self.actions.run(command);
            }
        }
    }
}

#[cfg(test)]
impl App {
    /// For tests: jobs run on the calling thread.
    pub(crate) fn synchronous(ctx: &Context) -> Self {
        Self::new(ctx, Settings::default(), Jobs::synchronous())
    }
}

/// For screenshots, tests and benches.
impl App {
    /// Draws only this view, over the whole window.
    pub fn show_only(&mut self, view: ViewKind) {
        self.only = Some(view);
    }

    /// Opens a recording in a tab as if it had been read from a file.
    pub fn open_recording(&mut self, title: &str, data: Arc<crate::app::data::device::DeviceData>) {
        let recording = Arc::clone(&data.recording);
        let mut view = DeviceView::new(data);
        view.shared.tracks = self.settings.tracks;
        let document = self.open_tab(title.to_owned(), None, Content::Ready(Box::new(view)));
        document.recording = Some(recording);
    }
}
