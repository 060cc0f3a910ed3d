//! The probe: its page in a tab, and the recordings it makes in further tabs.

use std::sync::Arc;

use super::App;
use crate::app::documents::document::{Content, Document};
use crate::app::documents::loader::Loading;
use crate::app::pages::probe::{PACES, ProbePage, Replayable};
use crate::app::state::DocumentId;
use vramscope_core::model::Recording;
use vramscope_live::probe::ALL;

impl App {
    /// Brings the probe's page to the front. Opens a new page when there is none, or when it should replay the requests of the
    /// recording in front.
    pub(in crate::app) fn open_probe(&mut self, replays: bool) {
        let replay = self.active_document().filter(|_| replays).and_then(replayable);
        let is_probe = |d: &Document| matches!(&d.content, Content::Probe(page) if page.replay.is_none());
        if !replays && self.documents.show_first(is_probe) {
            return;
        }
        let title = replay.as_ref().map_or_else(|| "Probe".to_owned(), |r| format!("Probe: {}", r.title));
        self.open_tab(title, None, Content::Probe(Box::new(ProbePage::new(replay))));
    }

    /// Opens the probe's page for a screenshot, with the requests of the file if there is one, and runs what the view names.
    /// False while the file is being read.
    pub(in crate::app) fn place_probe(&mut self, has_file: bool, view: &str) -> bool {
        if has_file && self.active_document().is_none_or(|d| matches!(d.content, Content::Loading(_))) {
            return false;
        }
        self.open_probe(has_file);
        let jobs = self.jobs.clone();
        let wanted = view.strip_prefix("probe:");
        if let Some(Content::Probe(page)) = self.active_document_mut().map(|d| &mut d.content) {
            if let Some(at) = wanted.and_then(|name| ALL.iter().position(|s| s.name == name)) {
                page.choose(Some(at));
            }
            if wanted.is_some() || has_file {
                page.pace = PACES.len() - 1;
                page.start(&jobs);
            }
        }
        true
    }

    /// Gives the probe's page in front the list of open recordings, whose requests it can replay.
    fn offer_recordings(&mut self) {
        let open: Vec<Replayable> = match self.active_document() {
            Some(Document { content: Content::Probe(page), .. }) if !page.is_running() => {
                self.documents.iter().filter_map(replayable).collect()
            }
            _ => return,
        };
        if let Some(Content::Probe(page)) = self.active_document_mut().map(|d| &mut d.content) {
            page.open = open;
        }
    }

    /// Handles updates from runs. The recording of a finished run opens in its own tab behind the page.
    pub(in crate::app) fn poll_probe(&mut self) {
        self.offer_recordings();
        let mut made: Vec<(DocumentId, Arc<Recording>)> = Vec::new();
        for document in self.documents.iter_mut() {
            if let Content::Probe(page) = &mut document.content
                && let Some(recording) = page.poll()
            {
                made.push((document.id, recording));
            }
        }
        for (page, recording) in made {
            let Some(index) = recording.busiest_device() else { continue };
            let loading = Loading::device(&self.jobs, Arc::clone(&recording), index);
            let (title, layouts) = (recording.source.name.clone(), self.settings.layouts.clone());
            let document = self.documents.open_behind(title, None, Content::Loading(loading), layouts);
            document.recording = Some(recording);
            let id = document.id;
            if let Some(Document { content: Content::Probe(page), .. }) = self.documents.find_mut(page) {
                page.opened(id);
            }
        }
    }
}

/// A document whose requests can be replayed: a device with a trace, from any source.
fn replayable(document: &Document) -> Option<Replayable> {
    let view = document.view()?;
    let has_trace = !view.data.device().events.is_empty();
    has_trace.then(|| Replayable {
        recording: Arc::clone(&view.data.recording),
        device: view.data.index,
        title: document.title.clone(),
    })
}
