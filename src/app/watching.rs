//! Live documents: starting one, taking in its pictures, and what the user asks of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use egui::Context;

use super::App;
use super::action::Action;
use super::document::{Content, DeviceView, Document, DocumentId};
use super::live::{LiveAction, LiveFeed, Update};
use super::loader::{Loading, prepare};
use super::workspace::Workspace;
use crate::analysis::join::Whose;
use crate::formats::session::History;
use crate::model::{Progress, Recording};

/// The title of a watch that arrives through a pipe, until the machine it is of is known.
const FROM_PIPE: &str = "Live, standard input";

/// The desktop's dialog for a file to save to, while it is open.
pub(super) struct Saving {
    document: DocumentId,
    since: Instant,
    answer: Receiver<Option<PathBuf>>,
}

impl App {
    /// Watches this machine's GPUs in a tab, or brings the tab that does to the front.
    pub fn watch_machine(&mut self, ctx: &Context) {
        let running = |d: &Document| d.feed.as_ref().is_some_and(|f| !f.status.is_over && !f.status.is_remote);
        if let Some(at) = self.documents.iter().position(running) {
            self.active = Some(at);
            self.documents[at].workspace = Workspace::Live;
            return;
        }
        self.open_feed("Live", LiveFeed::machine(ctx));
    }

    /// Shows the session that arrives on standard input.
    pub fn watch_standard_input(&mut self, ctx: &Context) {
        self.open_feed(FROM_PIPE, LiveFeed::stream(ctx, std::io::stdin()));
    }

    fn open_feed(&mut self, title: &str, feed: LiveFeed) {
        // The tab stands from the first frame: what there is to say comes within milliseconds.
        let recording = Arc::new(History::new().recording("live"));
        let Ok(data) = prepare(&recording, 0, &Progress::new()) else { return };
        let mut view = DeviceView::new(data);
        view.link.live = Some(Arc::clone(&feed.status));
        let mut document = self.new_document(title.to_owned(), None, Content::Ready(Box::new(view)));
        document.recording = Some(recording);
        document.workspace = Workspace::Live;
        document.feed = Some(feed);
        self.documents.push(document);
        self.active = Some(self.documents.len() - 1);
    }

    /// Takes in what live documents sent since the last frame.
    pub(super) fn poll_live(&mut self) {
        let mut snapshots = Vec::new();
        let front = self.active_document().map(|d| d.id);
        for document in &mut self.documents {
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
                view.link.live = Some(status);
            }
        }
        for (path, under) in snapshots {
            self.open_snapshot(path, under);
        }
        self.poll_saving();
    }

    /// Opens a snapshot that a watched program wrote, with the samples of the watch under it.
    fn open_snapshot(&mut self, path: PathBuf, under: Option<(Arc<Recording>, Whose)>) {
        let name = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
        let loading = Loading::snapshot(&self.jobs, path.clone(), under);
        let document = self.new_document(name, Some(path), Content::Loading(loading));
        self.documents.push(document);
        self.active = Some(self.documents.len() - 1);
    }

    /// Passes what the user asked of the live document in front on to it.
    pub(super) fn act_live(&mut self, action: LiveAction) {
        let Some(document) = self.active_document() else { return };
        let Some(feed) = &document.feed else { return };
        if action != LiveAction::Save {
            feed.act(action);
            return;
        }
        let id = document.id;
        let name = format!("{}.vramscope", document.title.to_lowercase().replace(|c: char| !c.is_alphanumeric(), "-"));
        let answer = self.jobs.spawn("save dialog", move || {
            rfd::FileDialog::new()
                .set_title("Save the session")
                .set_file_name(name)
                .add_filter("Sessions", &["vramscope"])
                .save_file()
        });
        self.saving = Some(Saving { document: id, since: Instant::now(), answer });
    }

    fn poll_saving(&mut self) {
        let Some(saving) = &self.saving else { return };
        let Ok(answer) = saving.answer.try_recv() else { return };
        let (id, since) = (saving.document, saving.since);
        self.saving = None;
        let Some(feed) = self.documents.iter().find(|d| d.id == id).and_then(|d| d.feed.as_ref()) else { return };
        match answer {
            Some(path) => feed.save_to(path),
            // Nobody cancels a dialog this fast: there is none on this desktop. The folder we were started in is the next best.
            None if since.elapsed().as_millis() < 400 => {
                let name = format!("vramscope-live-{}.vramscope", crate::live::wall_clock_us() / 1_000_000);
                feed.save_to(std::env::current_dir().unwrap_or_default().join(name));
            }
            None => {}
        }
    }
}

/// True for `-`: a session on standard input.
pub(super) fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}
