//! The application.
//!
//! [`App`] holds the documents and nothing clever. Views read a [`ViewContext`](views::ViewContext) and send
//! [`Action`]s; `handler` applies them before the next frame is drawn; `shell` draws what surrounds the views.

mod handler;
mod probing;

use crate::app::dialogs::choosing;
use crate::app::dialogs::explain;
use crate::app::dialogs::sources;
use crate::app::documents::adding;
use crate::app::documents::document;
use crate::app::documents::dropping;
use crate::app::documents::samples;
use crate::app::documents::saving;
use crate::app::documents::seeking;
use crate::app::documents::watch;
use crate::app::palette;
use crate::app::picture;
use crate::app::platform::clipboard;
use crate::app::settings;
use crate::app::shell;
use crate::app::state::cursor;
use crate::app::state::workspace;
use crate::app::theme;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use egui::{Context, Ui};

use crate::app::dialogs::notifications::Notifications;
use crate::app::documents::document::{Content, DeviceView, Document, DocumentId, Settling};
use crate::app::documents::loader::{Instead, Loading};
use crate::app::jobs::{Derived, Jobs};
use crate::app::settings::Settings;
use crate::app::state::action::{Action, Actions};
use crate::app::state::command::Command;
use crate::app::views::ViewKind;
use vramscope_core::analysis::roles::Rule;

/// What lies over the window.
pub(in crate::app) enum Overlay {
    None,
    Palette(Box<palette::Palette>),
    /// A path that is being chosen.
    OpenPath(Box<choosing::Asking>),
    Explain(explain::Explainer),
    /// What to compare the recording in front with.
    Pair,
    Help,
    Settings,
    Rules,
    /// What is missing before a source line can be opened.
    Source(sources::Question),
}

/// The application: open documents, settings, and what is in flight.
pub struct App {
    pub(in crate::app) settings: Settings,
    /// What is dragged over the window.
    pub(in crate::app) hover: dropping::Hover,
    /// What the file of settings is known to hold.
    pub(in crate::app) kept: crate::app::settings::merging::Kept,
    pub(in crate::app) documents: Vec<Document>,
    /// Index of the document in front; `None` shows the welcome page.
    pub(in crate::app) active: Option<usize>,
    pub(in crate::app) next_id: u64,
    pub(in crate::app) overlay: Overlay,
    /// The settings are written with the next frame: what was decided in a dialog must outlive a crash.
    pub(in crate::app) wants_save: bool,
    /// The role rules as they stand in their file.
    pub(in crate::app) written_rules: Vec<Rule>,
    /// The view that fills the workspace for now.
    pub(in crate::app) maximised: Option<ViewKind>,
    /// Views of the workspace in front that the window has no room for.
    pub(in crate::app) hidden: Vec<ViewKind>,
    pub(in crate::app) notices: Notifications,
    pub(in crate::app) samples: Vec<samples::Sample>,
    pub(in crate::app) sample_lines: Derived<(), Vec<settings::Recent>>,
    /// The GPUs that the welcome page tells of, asked again when it comes back.
    pub(in crate::app) machine: Derived<u32, crate::app::pages::welcome::MachineState>,
    /// How often the welcome page was left.
    pub(in crate::app) welcomes: u32,
    pub(in crate::app) dialogs: choosing::Dialogs,
    /// What was put on the clipboard.
    pub(in crate::app) copying: clipboard::Copying,
    /// The source line that was clicked.
    pub(in crate::app) sources: sources::Sources,
    /// Editors that settings offer.
    pub(in crate::app) editors: Derived<(), Vec<(&'static str, &'static str)>>,
    /// The tab that is to be compared once it is read, and with which file.
    pub(in crate::app) to_compare: Option<(DocumentId, PathBuf)>,
    /// The first of two recordings that are to be compared, while the second is chosen.
    pub(in crate::app) first_of_two: Option<PathBuf>,
    /// Pictures being chosen, taken and written.
    pub(in crate::app) pictures: picture::Pictures,
    /// Recordings being written.
    pub(in crate::app) saves: saving::Saves,
    /// What is being looked for in the recording in front.
    pub(in crate::app) seeking: Option<seeking::Seeking>,
    /// The live session that is to be saved, while the user is asked where.
    pub(in crate::app) session_to_save: Option<DocumentId>,
    /// The folder watched for new recordings.
    pub(in crate::app) watch: Option<watch::Watch>,
    pub(in crate::app) additions: adding::Additions,
    pub(in crate::app) actions: Actions,
    pub(in crate::app) inbox: Receiver<Action>,
    pub(in crate::app) jobs: Jobs,
    /// Draw only this view: the screenshot of one view.
    pub(in crate::app) only: Option<ViewKind>,
    /// The title bar's text, sent to the desktop only when it changes.
    pub(in crate::app) shown_title: String,
}

impl App {
    /// An app with no documents.
    #[must_use]
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
            hover: dropping::Hover::default(),
            kept: crate::app::settings::merging::Kept::default(),
            documents: Vec::new(),
            active: None,
            next_id: 1,
            overlay: Overlay::None,
            wants_save: false,
            maximised: None,
            hidden: Vec::new(),
            notices: Notifications::default(),
            samples: samples::all(),
            sample_lines: Derived::default(),
            machine: Derived::default(),
            welcomes: 0,
            dialogs: choosing::Dialogs::default(),
            copying: clipboard::Copying::default(),
            sources: sources::Sources::default(),
            editors: Derived::default(),
            to_compare: None,
            first_of_two: None,
            pictures: picture::Pictures::default(),
            saves: saving::Saves::default(),
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

    /// Where views and tests ask for changes.
    #[must_use]
    pub fn actions(&self) -> &Actions {
        &self.actions
    }

    /// The document in front.
    #[must_use]
    pub fn active_document(&self) -> Option<&Document> {
        self.active.and_then(|i| self.documents.get(i))
    }

    pub(in crate::app) fn active_document_mut(&mut self) -> Option<&mut Document> {
        self.active.and_then(|i| self.documents.get_mut(i))
    }

    /// The open documents, in tab order.
    #[must_use]
    pub fn documents(&self) -> &[Document] {
        &self.documents
    }

    /// The settings as they would be saved now.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sentences on screen.
    pub fn notices(&self) -> impl Iterator<Item = &str> {
        self.notices.texts()
    }

    /// True when nothing is being read or computed.
    #[must_use]
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

    /// A number that changes as long as anything is read, computed, opened or sampled.
    pub(in crate::app) fn pace(&self) -> u64 {
        use std::hash::{Hash as _, Hasher as _};
        let mut pace = std::hash::DefaultHasher::new();
        (self.jobs.running(), self.additions.is_empty(), self.documents.len(), self.explains().is_some()).hash(&mut pace);
        for document in &self.documents {
            std::mem::discriminant(&document.content).hash(&mut pace);
            match &document.content {
                Content::Loading(loading) => {
                    let (stage, fraction) = loading.progress.stage();
                    (stage.text(), fraction.map(f32::to_bits), loading.progress.fraction().map(f32::to_bits)).hash(&mut pace);
                }
                Content::Ready(view) => (view.data.device().events.len(), view.data.device().samples.len()).hash(&mut pace),
                Content::Ranks(page) => (page.answered, page.is_done()).hash(&mut pace),
                // A run takes its time, and ends by its own limits.
                Content::Probe(page) => page.is_running().then(std::time::Instant::now).hash(&mut pace),
                Content::Failed(_) => {}
            }
        }
        pace.finish()
    }

    pub(in crate::app) fn new_document(&mut self, title: String, path: Option<PathBuf>, content: Content) -> Document {
        let id = DocumentId(self.next_id);
        self.next_id += 1;
        Document {
            id,
            title,
            path,
            recording: None,
            content,
            parked: Default::default(),
            workspace: Default::default(),
            left: Default::default(),
            layouts: self.settings.layouts.clone(),
            feed: None,
        }
    }

    /// Takes in what arrived since the last frame: loaded files, dropped files, dialogs, shortcuts, actions.
    pub fn logic(&mut self, ctx: &Context) {
        self.poll_dialog();
        self.poll_source();
        self.poll_copied();
        self.poll_loading();
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
        self.read_shortcuts(ctx);
        while let Ok(action) = self.inbox.try_recv() {
            self.apply(action, ctx);
        }
        if crate::app::widgets::field::nobody_took_focus(ctx) && matches!(self.overlay, Overlay::None) {
            self.overlay = Overlay::Palette(Default::default());
        }
    }

    /// What the window's title bar says: the recording in front and the instant it is at.
    pub(in crate::app) fn title(&self) -> String {
        match self.active_document() {
            None => "vramscope".to_owned(),
            Some(d) => match d.view() {
                Some(v) if !v.data.device().events.is_empty() => {
                    format!("{}, event {} - vramscope", d.title, vramscope_core::units::count(u64::from(v.link.cursor)))
                }
                _ => format!("{} - vramscope", d.title),
            },
        }
    }

    /// Draws the window.
    pub fn draw(&mut self, ui: &mut Ui) {
        let title = self.title();
        if title != self.shown_title {
            ui.ctx().send_viewport_cmd(egui::ViewportCommand::Title(title.clone()));
            self.shown_title = title;
        }
        self.take_picture(ui);
        shell::draw(self, ui);
        self.note_copied(ui.ctx());
    }

    pub(in crate::app) fn read_shortcuts(&mut self, ctx: &Context) {
        let typing = ctx.text_edit_focused();
        // An open menu takes Escape and the arrows for itself.
        let in_menu = egui::Popup::is_any_open(ctx);
        let in_dialog = !matches!(self.overlay, Overlay::None);
        let mut shortcuts: Vec<_> =
            Command::all().into_iter().flat_map(|c| c.shortcuts().into_iter().map(move |s| (s, c))).collect();
        // egui lets a shortcut match with Shift or Alt held besides: `A` would take what `Shift A` means.
        shortcuts.sort_by_key(|(s, _)| !(s.modifiers.shift || s.modifiers.alt));
        for (shortcut, command) in shortcuts {
            // A bare letter belongs to the text field that has the focus; Escape leaves the field first.
            let is_bare = !shortcut.modifiers.command && !shortcut.modifiers.alt;
            if is_bare && (typing || in_menu) {
                continue;
            }
            // A dialog holds the keyboard: what lies behind it stays as it is.
            if in_dialog && !command.works_in_dialogs() {
                continue;
            }
            // A slow frame brings several presses of one key at once.
            let presses = ctx.input_mut(|i| i.count_and_consume_key(shortcut.modifiers, shortcut.logical_key));
            let times = if command.moves() { presses } else { presses.min(1) };
            for _ in 0..times {
                self.actions.run(command);
            }
        }
    }

    pub(in crate::app) fn poll_loading(&mut self) {
        let mut recents = Vec::new();
        let (mut gone, mut cut_short) = (Vec::new(), Vec::new());
        let (mut told, mut folders) = (Vec::new(), Vec::new());
        let (axis, colour_by, tracks) = (self.settings.axis, self.settings.colour_by, self.settings.tracks);
        for document in &mut self.documents {
            let Content::Loading(loading) = &mut document.content else { continue };
            match loading.poll() {
                None => {}
                Some(Ok((recording, data))) => {
                    let is_new = document.recording.is_none();
                    if let (true, Some(path)) = (is_new, &document.path) {
                        recents.push(samples::describe(path.clone(), &data));
                    }
                    // What was watched has no trace; its page is the card over time.
                    if is_new && recording.source.format == vramscope_core::model::Format::Session {
                        document.workspace = workspace::Workspace::Live;
                    }
                    if is_new && recording.report.truncated().is_some() {
                        let title = &document.title;
                        cut_short
                            .push(format!("{title} ends before its end: what is missing is not shown. Copy the file again."));
                    }
                    if is_new && recording.report.nonsense() > 0 {
                        let (title, values) = (&document.title, vramscope_core::units::count(recording.report.nonsense()));
                        cut_short.push(format!(
                            "{values} values of {title} make no sense, so figures may be wrong. Contents tells what was met."
                        ));
                    }
                    document.recording = Some(recording);
                    let (look, curves_of) = (loading.look, loading.preview.first().map(|p| p.device));
                    let mut view = DeviceView::new(data);
                    view.link.tracks = tracks;
                    view.colour_as_chosen(colour_by);
                    if axis == cursor::Axis::Time && view.data.device().events.has_time {
                        view.link.axis = axis;
                        (view.link.from, view.link.to) = cursor::domain(view.data.device(), axis);
                    }
                    let events = view.data.device().events.len();
                    look.carry_over(curves_of, view.data.index, events, &mut view.link);
                    let page = std::mem::replace(&mut document.content, Content::Ready(Box::new(view)));
                    if let (Content::Loading(page), Content::Ready(view), false) =
                        (page, &mut document.content, self.jobs.is_synchronous)
                    {
                        view.settling = Some(Settling::new(page));
                    }
                }
                Some(Err(sentence)) => {
                    match (loading.instead(), &document.path) {
                        (Some(Instead::Gone), Some(path)) => gone.push(path.clone()),
                        (Some(Instead::Folder), Some(path)) => folders.push((document.id, path.clone())),
                        _ => {}
                    }
                    if let Some(log) = loading.message() {
                        told.push((document.id, log.clone()));
                    }
                    document.content = Content::Failed(sentence);
                }
            }
        }
        // A log is no recording; what its error means is what was wanted of it.
        for (id, log) in told {
            // At once: what is opened beside it must not take it for a file that failed.
            if let Some(at) = self.documents.iter().position(|d| d.id == id) {
                self.close(at);
            }
            self.actions.send(Action::Explain(log));
        }
        for (id, folder) in folders {
            if let Some(at) = self.documents.iter().position(|d| d.id == id) {
                self.close(at);
            }
            self.open_ranks(vec![folder]);
        }
        for recent in recents {
            self.settings.remember(recent);
        }
        for path in gone {
            self.settings.forget(&path);
        }
        for sentence in cut_short {
            self.notices.complain(sentence);
        }
    }

    pub(in crate::app) fn open_static(&mut self, name: &str, bytes: &'static [u8]) {
        if let Some(at) = self.documents.iter().position(|d| d.path.is_none() && d.title == name) {
            self.active = Some(at);
            return;
        }
        let loading = Loading::bytes(&self.jobs, name.to_owned(), bytes);
        let document = self.new_document(name.to_owned(), None, Content::Loading(loading));
        self.documents.push(document);
        self.active = Some(self.documents.len() - 1);
    }
}

impl eframe::App for App {
    fn logic(&mut self, ctx: &Context, _frame: &mut eframe::Frame) {
        App::logic(self, ctx);
    }

    fn ui(&mut self, ui: &mut Ui, frame: &mut eframe::Frame) {
        self.draw(ui);
        self.show_dialog(frame);
        if std::mem::take(&mut self.wants_save) || self.kept.is_due() {
            self.kept.ask(&self.jobs);
        }
        if self.kept.is_read()
            && let Some(storage) = frame.storage_mut()
        {
            eframe::App::save(self, storage);
            storage.flush();
        }
    }

    /// Settings are written by [`App::ui`], after their file was read off this thread, and when the window closes.
    fn auto_save_interval(&self) -> std::time::Duration {
        std::time::Duration::MAX
    }

    fn save(&mut self, storage: &mut dyn eframe::Storage) {
        if let Some(document) = self.active_document() {
            self.settings.layouts = document.layouts.clone();
            if let Some(view) = self.active_document().and_then(Document::view) {
                self.settings.axis = view.link.axis;
            }
        }
        eframe::set_value(storage, eframe::APP_KEY, &self.kept.to_write(&mut self.settings));
        if self.written_rules != self.settings.category_rules {
            self.written_rules = self.settings.category_rules.clone();
            self.settings.write_rules();
        }
    }
}

/// Shares one recording between tests, benches and the app without reading a file.
impl App {
    /// Draws nothing but one view, over the whole window.
    pub fn show_only(&mut self, view: ViewKind) {
        self.only = Some(view);
    }

    /// Puts a recording in a tab as if it had been read from a file.
    pub fn open_recording(&mut self, title: &str, data: Arc<document::DeviceData>) {
        let recording = Arc::clone(&data.recording);
        let mut view = DeviceView::new(data);
        view.link.tracks = self.settings.tracks;
        let mut document = self.new_document(title.to_owned(), None, Content::Ready(Box::new(view)));
        document.recording = Some(recording);
        self.documents.push(document);
        self.active = Some(self.documents.len() - 1);
    }
}
