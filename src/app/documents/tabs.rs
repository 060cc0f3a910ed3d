//! Opening, reading again and closing documents: what stands behind the tabs.

use std::path::PathBuf;

use egui::Context;

use super::document::{Content, Document};
use super::loader::Loading;
use super::watch::{News, Watch};
use crate::app::data::compare::Other;
use crate::app::pages::ranks::Ranks;
use crate::app::state::action::Action;
use crate::app::window::App;
use vramscope_core::analysis::ranks::rank_of_name;

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

    /// Opens or offers recordings that appeared in the watched folder: opened when nothing else is being looked at.
    pub(in crate::app) fn poll_watch(&mut self) {
        let mut news: Vec<News> = self.watch.iter().flat_map(Watch::news).collect();
        // Behind its folder where it is in one of the watched folder's: `step10/rank0.pickle`.
        let watched = self.watch.as_ref().map(|w| w.folder.clone()).unwrap_or_default();
        let name = |path: &std::path::Path| path.strip_prefix(&watched).unwrap_or(path).display().to_string();
        // Several at once while nothing is looked at: the ranks of a job, where their names say so. Else the first is opened, the others
        // are offered.
        let recordings = || news.iter().filter_map(|n| if let News::Recording(path) = n { Some(path.clone()) } else { None });
        let are_ranks = || recordings().all(|path| rank_of_name(&name(&path)).is_some());
        if self.active.is_none() && recordings().count() > 1 && are_ranks() {
            self.open_ranks(recordings().collect());
            news.retain(|n| !matches!(n, News::Recording(_)));
        }
        for found in news {
            match found {
                // Written again, or only now whole: what was read of it before is old.
                News::Recording(path) | News::CutShort(path) if self.documents.iter().any(|d| d.path.as_ref() == Some(&path)) => {
                    self.reload(&path);
                }
                News::Recording(path) if self.active.is_none() => self.open(path),
                News::Recording(path) => self.notices.offer_recording(&name(&path), path),
                News::CutShort(path) => {
                    let words = format!("New recording: {}. Its end is missing and has not come for a minute.", name(&path));
                    self.notices.offer(words, "Open what there is", Action::Open(vec![path]));
                }
                News::Counters(path) if self.active_document().is_some_and(|d| d.recording.is_some()) => {
                    let words = format!("New counters: {}. They can be held against the recording in front.", name(&path));
                    self.notices.offer(words, "Add to it", Action::Add(path));
                }
                News::Counters(path) => {
                    self.notices
                        .say(format!("{} holds PyTorch's counters: open the snapshot of that run and add them.", name(&path)));
                }
                News::Message { path, log } => {
                    self.notices.offer(
                        format!("{} tells of an out-of-memory error.", name(&path)),
                        "Explain",
                        Action::Explain(log),
                    );
                }
                News::Begun => {
                    self.notices.say(format!("Watching {}: each new recording is opened or offered.", watched.display()));
                }
                News::Failed(sentence) => {
                    self.watch = None;
                    self.notices.complain(sentence);
                }
                News::Trouble(sentence) => self.notices.complain(sentence),
                News::Back(sentence) => self.notices.say(sentence),
            }
        }
    }

    /// Shows the comparison that was asked for as soon as its first recording is there.
    pub(in crate::app) fn poll_comparison(&mut self, ctx: &Context) {
        let Some((id, _)) = &self.to_compare else { return };
        let at = self.documents.iter().position(|d| d.id == *id);
        match at.map(|at| (at, &self.documents[at].content)) {
            Some((_, Content::Loading(_))) => {}
            Some((at, Content::Ready(_))) => {
                let Some((_, other)) = self.to_compare.take() else { return };
                self.active = Some(at);
                self.compare_front(Other::File(other), ctx);
            }
            _ => self.to_compare = None,
        }
    }

    /// Watches a folder for new recordings, or stops.
    pub(in crate::app) fn watch_folder(&mut self, folder: Option<PathBuf>) {
        self.watch = None;
        let Some(folder) = folder else { return };
        match Watch::start(std::path::absolute(&folder).unwrap_or(folder), &self.jobs) {
            Ok(watch) => self.watch = Some(watch),
            Err(sentence) => self.notices.complain(sentence),
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
