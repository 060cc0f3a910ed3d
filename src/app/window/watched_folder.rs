//! Opens or offers new recordings of the watched folder.

use std::path::PathBuf;

use super::App;
use crate::app::documents::folder_watch::{FolderWatch, News};
use crate::app::state::Action;
use vramscope_core::compare::ranks::rank_of_name;

impl App {
    /// Handles new recordings in the watched folder. They are opened when no document is in front, and otherwise offered.
    pub(in crate::app) fn poll_watch(&mut self) {
        let mut news: Vec<News> = self.watch.iter().flat_map(FolderWatch::news).collect();
        // Names include the subfolder: `step10/rank0.pickle`.
        let watched = self.watch.as_ref().map(|w| w.folder.clone()).unwrap_or_default();
        let name = |path: &std::path::Path| path.strip_prefix(&watched).unwrap_or(path).display().to_string();
        // When several recordings appear and no document is in front: if they are ranks of a job, they are opened as such.
        // Otherwise the first is opened and the others are offered.
        let recordings = || news.iter().filter_map(|n| if let News::Recording(path) = n { Some(path.clone()) } else { None });
        let are_ranks = || recordings().all(|path| rank_of_name(&name(&path)).is_some());
        if self.documents.at_front().is_none() && recordings().count() > 1 && are_ranks() {
            self.open_ranks(recordings().collect());
            news.retain(|n| !matches!(n, News::Recording(_)));
        }
        for found in news {
            match found {
                // The file was rewritten or completed, so the open recording is outdated.
                News::Recording(path) | News::CutShort(path) if self.documents.iter().any(|d| d.path.as_ref() == Some(&path)) => {
                    self.reload(&path);
                }
                News::Recording(path) if self.documents.at_front().is_none() => self.open(path),
                News::Recording(path) => self.notices.offer_recording(&name(&path), path),
                News::CutShort(path) => {
                    let words = format!("New recording: {}. Its end is missing and has not come for a minute.", name(&path));
                    self.notices.offer(words, "Open what there is", Action::Open(vec![path]));
                }
                News::Counters(path) if self.active_document().is_some_and(|d| d.recording.is_some()) => {
                    let words = format!("New counters: {}. They can be compared with the recording in front.", name(&path));
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

    /// Watches a folder for new recordings, or stops.
    pub(in crate::app) fn watch_folder(&mut self, folder: Option<PathBuf>) {
        self.watch = None;
        let Some(folder) = folder else { return };
        match FolderWatch::start(std::path::absolute(&folder).unwrap_or(folder), &self.jobs) {
            Ok(watch) => self.watch = Some(watch),
            Err(sentence) => self.notices.complain(sentence),
        }
    }
}
