//! A file dialog of the desktop that asks a view's user for one recording.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError};

use super::ViewContext;
use crate::app::state::Action;

#[derive(Default)]
pub(super) struct FileDialog(Option<Receiver<Option<PathBuf>>>);

impl FileDialog {
    pub fn open(&mut self, cx: &ViewContext<'_>, title: &'static str, endings: &'static [&'static str]) {
        let pick = move || {
            let dialog = rfd::FileDialog::new().set_title(title).add_filter("Recordings", endings);
            dialog.add_filter("All files", &["*"]).pick_file()
        };
        self.0 = Some(cx.jobs.spawn("dialog", pick));
    }

    /// Takes the chosen file, once there is one. Where none was chosen, `tip` is shown.
    pub fn poll(&mut self, cx: &ViewContext<'_>, tip: &str) -> Option<PathBuf> {
        let answer = match self.0.as_ref()?.try_recv() {
            Err(TryRecvError::Empty) => return None,
            answer => answer.ok(),
        };
        self.0 = None;
        let chosen = answer?;
        if chosen.is_none() {
            cx.actions.send(Action::Notify(tip.to_owned()));
        }
        chosen
    }
}
