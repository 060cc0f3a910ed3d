//! Opens, reloads and closes documents.

use std::path::PathBuf;
use std::sync::Arc;

use super::App;
use crate::app::documents::document::{Content, Document};
use crate::app::documents::loader::Loading;
use crate::app::documents::samples::Sample;
use crate::app::pages::ranks::Ranks;
use crate::app::state::{Action, DocumentId, PlannedRun};
use vramscope_core::inference::Question;
use vramscope_core::units::{Bytes, counted};

impl App {
    /// Opens a tab in front. All tabs are opened here, except those that open behind a page.
    pub(in crate::app) fn open_tab(&mut self, title: String, path: Option<PathBuf>, content: Content) -> &mut Document {
        self.notices.forget(super::touring::TOUR_OFFER);
        self.documents.open(title, path, content, self.settings.layouts.clone())
    }

    /// Opens a file in a tab, or brings its tab to the front.
    pub(in crate::app) fn open(&mut self, path: PathBuf) {
        let path = std::path::absolute(&path).unwrap_or(path);
        let is_read = |d: &Document| !matches!(d.content, Content::Failed(_)) || !d.snapshots.is_empty();
        if self.documents.show_first(|d| d.path.as_ref() == Some(&path) && is_read(d)) {
            return;
        }
        let title = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
        self.notices.forget_recording(&path);
        let loading = Loading::file(&self.jobs, path.clone());
        // A tab that failed to open is replaced.
        while let Some(failed) = self.documents.iter().find(|d| d.path.as_ref() == Some(&path)).map(|d| d.id) {
            drop(self.documents.close(failed));
        }
        self.open_tab(title, Some(path), Content::Loading(loading));
    }

    pub(in crate::app) fn open_ranks(&mut self, paths: Vec<PathBuf>) {
        let first = paths.first().cloned().unwrap_or_default();
        // Named after a folder: for a pattern the folder above the first wildcard, for several paths their common parent.
        let is_named = |p: &&std::path::Path| p.iter().all(|part| !part.to_string_lossy().contains(['*', '?']));
        let of = first.ancestors().skip(usize::from(paths.len() > 1)).find(is_named);
        let name =
            of.and_then(|p| p.file_name()).map_or_else(|| first.display().to_string(), |n| n.to_string_lossy().into_owned());
        let path = (paths.len() == 1).then(|| first.clone());
        if path.is_some() && self.documents.show_first(|d| d.path == path) {
            return;
        }
        let page = Ranks::open(&self.jobs, paths);
        self.open_tab(format!("{name} (ranks)"), path, Content::Ranks(Box::new(page)));
    }

    /// Called for a window without files: reopens the last files if the user wants that, and offers the tour to new users.
    pub fn begin_bare(&mut self) {
        self.reopen();
        self.offer_tour();
    }

    /// Reopens the files of the last window, each in its tab, and names those that are gone.
    fn reopen(&mut self) {
        let files = self.settings.left_open.iter().filter(|_| self.settings.reopens).map(PathBuf::from);
        // A pattern of ranks is not a single file.
        let is_pattern = |path: &PathBuf| path.to_string_lossy().contains(['*', '?']);
        let (there, gone): (Vec<_>, Vec<_>) = files.partition(|path| path.exists() || is_pattern(path));
        for path in there {
            match path.is_dir() || (is_pattern(&path) && !path.exists()) {
                true => self.open_ranks(vec![path]),
                false => self.open(path),
            }
        }
        if let Some(first) = self.documents.first().map(|d| d.id) {
            self.documents.show(first);
        }
        let gone: Vec<String> = gone.iter().map(|path| path.display().to_string()).collect();
        match gone.as_slice() {
            [] => {}
            [one] => self.notices.complain(format!("{one} was open in the last window and is not there any more.")),
            [first, others @ ..] => {
                let files = counted(others.len() as u64, "other file", "other files");
                self.notices.complain(format!("{first} and {files} were open in the last window and are not there any more."));
            }
        }
    }

    pub(in crate::app) fn reload(&mut self, path: &std::path::Path) {
        let loading = Loading::file(&self.jobs, path.to_path_buf());
        if let Some(document) = self.documents.iter_mut().find(|d| d.path.as_deref() == Some(path)) {
            self.notices.say(format!("{} was written again and is read again.", document.title));
            document.recording = None;
            document.parked.clear();
            document.content = Content::Loading(loading);
        }
    }

    pub(in crate::app) fn poll_ranks(&mut self) {
        for document in self.documents.iter_mut() {
            if let Content::Ranks(page) = &mut document.content
                && let Err(sentence) = page.poll()
            {
                document.content = Content::Failed(sentence);
            }
        }
    }

    /// Closes a tab. Its arrangement of views becomes the default for the next one.
    pub(in crate::app) fn close(&mut self, id: DocumentId) {
        let Some(document) = self.documents.close(id) else { return };
        self.closed.extend(self.opens_again(&document));
        self.settings.layouts = document.lasting_layouts();
        let views = document.parked.values().map(|view| &**view).chain(document.view());
        let data: Vec<_> = views.map(|view| Arc::clone(&view.data)).collect();
        let recording = document.recording.clone();
        drop(document);
        // Freeing gigabytes takes longer than a frame.
        drop(self.jobs.spawn("close", move || drop((data, recording))));
    }

    /// What opens a closed tab again. `None` for one that is not a file: a watch, a probe, a run under other settings; and for a
    /// file that could not be opened.
    fn opens_again(&self, document: &Document) -> Option<Action> {
        let sample = || self.samples.iter().position(|sample| document.feed.is_none() && sample.name == document.title);
        match (&document.content, &document.path) {
            (Content::Failed(_), _) if document.snapshots.is_empty() => None,
            (Content::Ranks(_), path) => path.clone().map(|path| Action::OpenRanks(vec![path])),
            (_, Some(path)) => Some(Action::Open(vec![path.clone()])),
            (_, None) => sample().map(Action::OpenSample),
        }
    }

    pub(in crate::app) fn open_sample(&mut self, Sample { name, bytes, .. }: Sample) {
        if self.documents.show_first(|d| d.path.is_none() && d.title == name) {
            return;
        }
        let loading = Loading::bytes(&self.jobs, name.to_owned(), bytes);
        self.open_tab(name.to_owned(), None, Content::Loading(loading));
    }

    /// Runs a what-if question and opens the simulated run in a new tab.
    pub(in crate::app) fn open_simulation(&mut self, conf: &str, limit: Option<u64>) {
        let Some(data) = self.active_document().and_then(Document::view).map(|v| Arc::clone(&v.data)) else { return };
        let question = match Question::parse(conf, limit) {
            Ok(question) => question,
            Err(error) => return self.notices.complain(format!("PyTorch would refuse this at {error}")),
        };
        let settings = if conf.is_empty() { "defaults" } else { conf };
        let title = match limit {
            Some(limit) => format!("What-if: {settings}, {}", Bytes(limit)),
            None => format!("What-if: {settings}"),
        };
        let loading = Loading::simulation(&self.jobs, data, question);
        self.open_tab(title, None, Content::Loading(loading));
    }

    pub(in crate::app) fn open_planned(&mut self, run: PlannedRun) {
        let title = match run.setting.limit {
            Some(limit) => format!("{}, {}", run.title, Bytes(limit).limit()),
            None => run.title.clone(),
        };
        let loading = Loading::planned(&self.jobs, run);
        let planned_in = self.active_document().map(|document| document.id);
        self.open_tab(title, None, Content::Loading(loading)).planned_in = planned_in;
    }

    /// Shows another device of the recording in front. Keeps the previous one, so that going back is instant.
    pub(in crate::app) fn set_device(&mut self, index: usize) {
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
}
