//! Explains the out-of-memory messages of a log.

use std::path::PathBuf;

use super::{App, Overlay};
use crate::app::documents::logs::messages_of;
use crate::app::state::Action;
use vramscope_core::formats::{open_regular, why};

impl App {
    /// Whether the dialog explains a message; `None` when the dialog is closed. The error is the dialog's sentence on why there
    /// is nothing to explain.
    pub(in crate::app) fn explains(&self) -> Option<Result<(), String>> {
        let Overlay::Explain(explainer) = &self.overlay else { return None };
        Some(explainer.refusal.clone().map_or(Ok(()), Err))
    }

    pub(in crate::app) fn explain_log(&mut self, path: PathBuf) {
        let actions = self.actions.clone();
        // The result arrives as an action.
        let _ = self.jobs.spawn("log", move || {
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
            actions.send(match (messages_of(&path), open_regular(&path)) {
                (Some(log), _) => Action::Explain(log),
                (None, Err(error)) => Action::NothingToExplain(format!("{name}: {}.", why(&error))),
                (None, Ok(_)) => Action::NothingToExplain(format!("{name} holds no out-of-memory message.")),
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_opened_is_explained_and_leaves_no_tab() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("train.log");
        let message =
            "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 7.00 GiB already allocated)\n";
        std::fs::write(&path, format!("{}[rank3]: {message}", "step\n".repeat(100))).unwrap();
        let ctx = egui::Context::default();
        let mut app = App::synchronous(&ctx);
        app.open_paths([path]);
        for _ in 0..4 {
            app.logic(&ctx);
        }
        assert!(app.documents().is_empty() && matches!(app.overlay, Overlay::Explain(_)));
    }
}
