//! Opening, reading again and closing documents: what stands behind the tabs.

use std::path::PathBuf;

use super::App;
use crate::app::documents::document::{Content, Document};
use crate::app::documents::loader::Loading;
use crate::app::pages::ranks::Ranks;

impl App {
    pub(in crate::app) fn cycle_tab(&mut self, step: isize) {
        let n = self.documents.len() as isize;
        if n > 0 {
            let at = self.active.map_or(0, |i| i as isize + step);
            self.active = Some(at.rem_euclid(n) as usize);
        }
    }

    /// Opens a file in a tab, or brings the tab that has it to the front.
    pub(in crate::app) fn open(&mut self, path: PathBuf) {
        let path = std::path::absolute(&path).unwrap_or(path);
        if let Some(at) =
            self.documents.iter().position(|d| d.path.as_ref() == Some(&path) && !matches!(d.content, Content::Failed(_)))
        {
            self.active = Some(at);
            return;
        }
        let title = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
        self.notices.forget_recording(&path);
        let loading = Loading::file(&self.jobs, path.clone());
        self.documents.retain(|d| d.path.as_ref() != Some(&path));
        let document = self.new_document(title, Some(path), Content::Loading(loading));
        self.documents.push(document);
        self.active = Some(self.documents.len() - 1);
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
        for document in &mut self.documents {
            if let Content::Ranks(page) = &mut document.content
                && let Err(sentence) = page.poll()
            {
                document.content = Content::Failed(sentence);
            }
        }
    }

    pub(in crate::app) fn close(&mut self, at: usize) {
        let document = self.documents.remove(at);
        self.settings.layouts = document.layouts.clone();
        let views = document.parked.values().map(|view| &**view).chain(document.view());
        let data: Vec<_> = views.map(|view| std::sync::Arc::clone(&view.data)).collect();
        let recording = document.recording.clone();
        drop(document);
        // To give gigabytes back takes the system longer than a frame may.
        drop(self.jobs.spawn("close", move || drop((data, recording))));
        self.active = match self.active {
            _ if self.documents.is_empty() => None,
            Some(i) if i > at || i >= self.documents.len() => Some(i.saturating_sub(1)),
            other => other,
        };
    }

    /// Runs a what-if question and opens the run in a tab of its own.
    pub(in crate::app) fn open_simulation(&mut self, conf: &str, limit: Option<u64>) {
        let Some(data) = self.active_document().and_then(Document::view).map(|v| std::sync::Arc::clone(&v.data)) else { return };
        let question = match vramscope_core::allocator::Question::parse(conf, limit) {
            Ok(question) => question,
            Err(error) => return self.notices.complain(format!("PyTorch would refuse this at {error}")),
        };
        let settings = if conf.is_empty() { "defaults" } else { conf };
        let title = match limit {
            Some(limit) => format!("What-if: {settings}, {}", vramscope_core::units::Bytes(limit)),
            None => format!("What-if: {settings}"),
        };
        let loading = Loading::simulation(&self.jobs, data, question);
        let document = self.new_document(title, None, Content::Loading(loading));
        self.documents.push(document);
        self.active = Some(self.documents.len() - 1);
    }

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
