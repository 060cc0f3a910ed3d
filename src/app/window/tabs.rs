//! Opening, reading again and closing documents: what stands behind the tabs.

use std::path::PathBuf;
use std::sync::Arc;

use super::App;
use crate::app::documents::document::{Content, Document};
use crate::app::documents::loader::Loading;
use crate::app::documents::samples::Sample;
use crate::app::pages::ranks::Ranks;
use crate::app::state::{DocumentId, PlannedRun};
use vramscope_core::inference::Question;
use vramscope_core::units::{Bytes, counted};

impl App {
    /// Opens a tab in front. Every tab is opened here, but those that come in behind a page.
    pub(in crate::app) fn open_tab(&mut self, title: String, path: Option<PathBuf>, content: Content) -> &mut Document {
        self.notices.forget(super::touring::TOUR_OFFER);
        self.documents.open(title, path, content, self.settings.layouts.clone())
    }

    /// Opens a file in a tab, or brings the tab that has it to the front.
    pub(in crate::app) fn open(&mut self, path: PathBuf) {
        let path = std::path::absolute(&path).unwrap_or(path);
        let is_read = |d: &Document| !matches!(d.content, Content::Failed(_)) || !d.snapshots.is_empty();
        if self.documents.show_first(|d| d.path.as_ref() == Some(&path) && is_read(d)) {
            return;
        }
        let title = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
        self.notices.forget_recording(&path);
        let loading = Loading::file(&self.jobs, path.clone());
        // One that could not be read makes way.
        while let Some(failed) = self.documents.iter().find(|d| d.path.as_ref() == Some(&path)).map(|d| d.id) {
            drop(self.documents.close(failed));
        }
        self.open_tab(title, Some(path), Content::Loading(loading));
    }

    /// Opens folders, patterns or many files as the ranks of one job, in one tab.
    pub(in crate::app) fn open_ranks(&mut self, paths: Vec<PathBuf>) {
        let first = paths.first().cloned().unwrap_or_default();
        // Of a pattern the folder above what stands for several, and of several the one they are in.
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

    /// What a window does that was opened without files: it brings back those of the last one, where the user wants that, and shows
    /// somebody new where to begin.
    pub fn begin_bare(&mut self) {
        self.reopen();
        self.offer_tour();
    }

    /// Opens the files that were open when a window was closed last, each in its tab as it was then; says which are gone.
    fn reopen(&mut self) {
        let files = self.settings.left_open.iter().filter(|_| self.settings.reopens).map(PathBuf::from);
        // A pattern of ranks names no file.
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

    /// Reads an open file again.
    pub(in crate::app) fn reload(&mut self, path: &std::path::Path) {
        let loading = Loading::file(&self.jobs, path.to_path_buf());
        if let Some(document) = self.documents.iter_mut().find(|d| d.path.as_deref() == Some(path)) {
            self.notices.say(format!("{} was written again and is read again.", document.title));
            document.recording = None;
            document.parked.clear();
            document.content = Content::Loading(loading);
        }
    }

    /// Takes in ranks that were read.
    pub(in crate::app) fn poll_ranks(&mut self) {
        for document in self.documents.iter_mut() {
            if let Content::Ranks(page) = &mut document.content
                && let Err(sentence) = page.poll()
            {
                document.content = Content::Failed(sentence);
            }
        }
    }

    /// Closes a tab. Its arrangement of views is that of the next one opened.
    pub(in crate::app) fn close(&mut self, id: DocumentId) {
        let Some(document) = self.documents.close(id) else { return };
        self.settings.layouts = document.lasting_layouts();
        let views = document.parked.values().map(|view| &**view).chain(document.view());
        let data: Vec<_> = views.map(|view| Arc::clone(&view.data)).collect();
        let recording = document.recording.clone();
        drop(document);
        // To give gigabytes back takes the system longer than a frame may.
        drop(self.jobs.spawn("close", move || drop((data, recording))));
    }

    /// Opens a recording that is inside the program.
    pub(in crate::app) fn open_sample(&mut self, Sample { name, bytes, .. }: Sample) {
        if self.documents.show_first(|d| d.path.is_none() && d.title == name) {
            return;
        }
        let loading = Loading::bytes(&self.jobs, name.to_owned(), bytes);
        self.open_tab(name.to_owned(), None, Content::Loading(loading));
    }

    /// Runs a what-if question and opens the run in a tab of its own.
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

    /// Opens a planned run in a tab of its own.
    pub(in crate::app) fn open_planned(&mut self, run: PlannedRun) {
        let title = match run.setting.limit {
            Some(limit) => format!("{}, {}", run.title, Bytes(limit).limit()),
            None => run.title.clone(),
        };
        let loading = Loading::planned(&self.jobs, run);
        let planned_in = self.active_document().map(|document| document.id);
        self.open_tab(title, None, Content::Loading(loading)).planned_in = planned_in;
    }

    /// Shows another device of the recording in front. The one before is kept, so that going back is instant.
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
