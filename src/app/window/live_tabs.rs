//! Live documents: starts them, takes their recordings, and passes on the user's actions.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use egui::Context;

use super::App;
use crate::app::data::device::prepare;
use crate::app::dialogs::choosing::age;
use crate::app::documents::document::{Content, DeviceView, Document};
use crate::app::documents::loader::Loading;
use crate::app::documents::samples::describe;
use crate::app::live::{LeftWatch, LiveFeed, Update, left_watches};
use crate::app::state::{Action, Choosing, LiveAction, Workspace};
use vramscope_core::compare::join::SnapshotProcess;
use vramscope_core::formats::session::History;
use vramscope_core::model::{Progress, Recording};
use vramscope_core::units::Bytes;

/// The title of a watch from a pipe, until its machine is known.
const FROM_PIPE: &str = "Live, standard input";

impl App {
    /// Opens a tab that watches this machine's GPUs, or brings an existing one to the front.
    pub fn watch_machine(&mut self, ctx: &Context) {
        let running = |d: &Document| d.feed.as_ref().is_some_and(|f| !f.status.is_over && !f.status.is_remote);
        if self.documents.show_first(running) {
            if let Some(document) = self.documents.front_mut() {
                document.workspace = Workspace::Live;
            }
            return;
        }
        // Closes an earlier watch that found no device.
        let is_empty = |d: &&Document| d.feed.is_some() && d.recording.as_ref().is_some_and(|r| r.has_no_device());
        if let Some(id) = self.documents.iter().find(is_empty).map(|d| d.id) {
            self.close(id);
        }
        self.open_feed("Live", LiveFeed::machine(ctx));
    }

    pub fn watch_standard_input(&mut self, ctx: &Context) {
        self.open_feed(FROM_PIPE, LiveFeed::stream(ctx, std::io::stdin()));
    }

    /// Looks for watches that ended with a crash and offers them: nobody would look for them in the cache.
    pub(in crate::app) fn offer_left_watches(&self) {
        let actions = self.actions.clone();
        let look = move || {
            for LeftWatch { path, bytes, written } in left_watches() {
                let (when, much) = (age(written, SystemTime::now()), Bytes(bytes));
                let sentence =
                    format!("A live watch was not saved: vramscope ended while it ran, {when}. Its samples are kept ({much}).");
                actions.send(Action::OfferWatch(path, sentence));
            }
        };
        drop(self.jobs.spawn("left watches", look));
    }

    pub(in crate::app) fn delete_watch(&mut self, path: &Path) {
        if let Err(error) = std::fs::remove_file(path) {
            self.notices.complain(format!("{} cannot be deleted: {error}.", path.display()));
        }
    }

    fn open_feed(&mut self, title: &str, feed: LiveFeed) {
        // The tab opens at once; the first data arrives within milliseconds.
        let recording = Arc::new(History::new().recording("live"));
        let Ok(data) = prepare(&recording, 0, &Progress::new()) else { return };
        let mut view = DeviceView::new(data);
        view.shared.live = Some(Arc::clone(&feed.status));
        let document = self.open_tab(title.to_owned(), None, Content::Ready(Box::new(view)));
        document.recording = Some(recording);
        document.workspace = Workspace::Live;
        document.feed = Some(feed);
    }

    /// Handles what live documents sent since the last frame.
    pub(in crate::app) fn poll_live(&mut self) {
        let mut snapshots = Vec::new();
        let front = self.active_document().map(|d| d.id);
        for document in self.documents.iter_mut() {
            let Some(feed) = &mut document.feed else { continue };
            for update in feed.updates() {
                match update {
                    Update::Notice(sentence) => self.notices.say(sentence),
                    Update::Alarm(sentence) => self.notices.offer(sentence, "Show", Action::Activate(document.id)),
                    Update::Snapshot(path, whose) => snapshots.push((path, document.recording.clone().map(|r| (r, whose)))),
                    Update::Status(_) => {}
                }
            }
            let picture = feed.picture();
            let status = Arc::clone(&feed.status);
            if let Some((recording, data)) = picture {
                if let Some(name) = data.device().name.as_ref().filter(|_| document.title == "Live") {
                    document.title = format!("Live: {name}");
                }
                if document.title == FROM_PIPE && recording.source.name != "live" {
                    document.title = format!("Live: {}", recording.source.name);
                }
                document.recording = Some(recording);
                if let Content::Ready(view) = &mut document.content
                    && view.data.index == data.index
                {
                    view.replace(data);
                }
            }
            if let Content::Ready(view) = &mut document.content {
                feed.show(view.data.index, front == Some(document.id));
                view.shared.live = Some(status);
            }
        }
        for (path, under) in snapshots {
            self.open_snapshot(path, under);
        }
    }

    /// Opens a snapshot of a watched program, together with the samples of the watch.
    fn open_snapshot(&mut self, path: PathBuf, under: Option<(Arc<Recording>, SnapshotProcess)>) {
        let name = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
        let loading = Loading::snapshot(&self.jobs, path.clone(), under);
        self.open_tab(name, Some(path), Content::Loading(loading));
    }

    /// Passes a user action on to the live document in front.
    pub(in crate::app) fn act_live(&mut self, action: LiveAction) {
        let Some(document) = self.active_document() else { return };
        let Some(feed) = &document.feed else { return };
        if action != LiveAction::Save {
            feed.act(action);
            return;
        }
        let is_empty = document.recording.as_ref().is_none_or(|r| r.devices.iter().all(|d| d.samples.is_empty()));
        if is_empty {
            self.notices.say("There is nothing to save yet: this watch has no sample so far.");
            return;
        }
        self.session_to_save = Some(document.id);
        self.open_dialog(Choosing::Session);
    }

    /// A file name for the session to save.
    pub(in crate::app) fn session_name(&self) -> String {
        let title = self.session_to_save.and_then(|id| self.documents.find(id)).map_or("session", |d| d.title.as_str());
        format!("{}.vramscope", title.to_lowercase().replace(|c: char| !c.is_alphanumeric(), "-"))
    }

    /// Saves the session to a file: everything so far and everything that follows.
    pub(in crate::app) fn save_session(&mut self, path: PathBuf) {
        let id = self.session_to_save.take();
        // Adds it to the recent files.
        if let Some(view) = id.and_then(|id| self.documents.find(id)).and_then(|d| d.view()) {
            self.settings.remember(describe(path.clone(), &view.data));
        }
        if let Some(feed) = id.and_then(|id| self.documents.find(id)).and_then(|d| d.feed.as_ref()) {
            feed.save_to(path);
        }
    }
}
