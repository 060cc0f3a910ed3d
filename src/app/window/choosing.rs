//! Asks for paths: with the desktop's dialog, or with the path field.

use std::path::{Path, PathBuf};
use std::time::Instant;

use super::{App, Overlay};
use crate::app::dialogs::choosing::Asking;
use crate::app::dialogs::choosing::dialog::{AT_ONCE, Answer, Open, of_new, of_several};
use crate::app::dialogs::choosing::field::start_folder;
use crate::app::picture::suggested_name;
use crate::app::state::{Action, Choosing};

impl App {
    /// Requests the desktop's dialog; [`show_dialog`](Self::show_dialog) opens it. While one is open, a second one is not opened.
    pub(in crate::app) fn open_dialog(&mut self, purpose: Choosing) {
        if self.dialogs.open.is_some() {
            // The dialog may be behind the window, or its service may have died. The path field always works.
            self.notices.offer(
                "The desktop's file dialog is open already, perhaps behind this window.",
                "Type a path instead",
                Action::AskPath(purpose),
            );
            return;
        }
        self.dialogs.wanted = Some(purpose);
    }

    /// Opens the requested dialog as a child of the window, so that it cannot fall behind it.
    pub(in crate::app) fn show_dialog(&mut self, window: &eframe::Frame) {
        let Some(purpose) = self.dialogs.wanted.take() else { return };
        let mut dialog = rfd::FileDialog::new().set_parent(window).set_title(match purpose {
            Choosing::First => "Compare: the first recording, or both",
            Choosing::Second => "Compare: the second recording",
            Choosing::Add => "Add to this recording",
            Choosing::Log => "Open a log",
            Choosing::Open => "Open a recording",
            _ => purpose.title(),
        });
        let beside = self.folder_in_front();
        let (kind, endings) = purpose.files();
        let name = self.suggested(purpose);
        let answer = self.jobs.spawn("dialog", move || {
            if let Some(folder) = beside.filter(|folder| folder.is_dir()) {
                dialog = dialog.set_directory(folder);
            }
            if purpose.is_new() {
                let chosen = dialog.set_file_name(name).add_filter(kind, endings).save_file();
                return chosen.map_or(Answer::Nothing, |file| of_new(purpose, file));
            }
            if purpose.is_folder() {
                return of_several(dialog.pick_folders());
            }
            of_several(dialog.add_filter(kind, endings).add_filter("All files", &["*"]).pick_files())
        });
        self.dialogs.open = Some(Open { purpose, since: Instant::now(), answer });
    }

    /// A suggested name for files to write; empty for files to read.
    fn suggested(&self, purpose: Choosing) -> String {
        match purpose {
            Choosing::Save => self.name_to_save(),
            Choosing::Report => self.report_name(),
            Choosing::Session => self.session_name(),
            Choosing::Picture => {
                let part = self.pictures.part.map(|(kind, _)| kind);
                suggested_name(self.active_document(), part)
            }
            _ => String::new(),
        }
    }

    fn folder_in_front(&self) -> Option<PathBuf> {
        self.active_document().and_then(|d| Some(d.path.as_deref()?.parent()?.to_path_buf()))
    }

    /// Asks for a path with the path field. For files to write, it starts with a suggested name in the current folder.
    pub(in crate::app) fn ask_path(&mut self, purpose: Choosing) {
        let typed = self.suggested(purpose);
        let beside = self.folder_in_front().filter(|_| typed.is_empty());
        self.overlay = Overlay::OpenPath(Box::new(Asking::new(purpose, typed, start_folder(beside.as_deref()))));
    }

    /// Asks again for the path of a file to write.
    fn ask_again(&mut self, purpose: Choosing, path: &Path) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.overlay = Overlay::OpenPath(Box::new(Asking::new(purpose, name, start_folder(path.parent()))));
    }

    pub(in crate::app) fn poll_dialog(&mut self) {
        let Some(dialog) = &self.dialogs.open else { return };
        let Ok(answer) = dialog.answer.try_recv() else { return };
        let (purpose, since) = (dialog.purpose, dialog.since);
        self.dialogs.open = None;
        match answer {
            Answer::Chosen(paths) => self.take_chosen(purpose, paths),
            Answer::Exists(path) => self.ask_again(purpose, &path),
            Answer::Unusable(path) => {
                self.notices.complain(purpose.refusal());
                self.ask_again(purpose, &path);
            }
            Answer::Cancelled => {}
            Answer::Nothing if since.elapsed() >= AT_ONCE => {
                self.notices.offer("Nothing was saved.", "Type a path", Action::AskPath(purpose));
            }
            Answer::NoService | Answer::Nothing => {
                self.notices
                    .say("This desktop has no file dialog service, so vramscope lists the files itself. Files can also be dropped on the window.");
                self.ask_path(purpose);
            }
        }
    }

    fn take_chosen(&mut self, purpose: Choosing, paths: Vec<PathBuf>) {
        match purpose {
            Choosing::Open => self.open_paths(paths),
            Choosing::First if paths.len() == 2 => {
                let mut paths = paths.into_iter();
                if let (Some(a), Some(b)) = (paths.next(), paths.next()) {
                    self.actions.send(Action::CompareFiles(a, b));
                }
            }
            // Only two recordings can be compared and only one folder watched, so the first path counts.
            Choosing::First | Choosing::Second | Choosing::Plan | Choosing::WatchFolder | Choosing::Sources => {
                if let Some(path) = paths.into_iter().next() {
                    self.actions.send(purpose.action(path));
                }
            }
            Choosing::Ranks => self.actions.send(Action::OpenRanks(paths)),
            _ => {
                for path in paths {
                    self.actions.send(purpose.action(path));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn app() -> App {
        App::synchronous(&egui::Context::default())
    }

    fn answered(app: &mut App, purpose: Choosing, answer: Answer, after: Duration) {
        let (send, receive) = std::sync::mpsc::channel();
        send.send(answer).unwrap();
        let since = Instant::now().checked_sub(after).unwrap();
        app.dialogs.open = Some(Open { purpose, since, answer: receive });
        app.poll_dialog();
        assert!(app.dialogs.open.is_none());
    }

    fn asks_for_a_path(app: &App) -> Option<Choosing> {
        match &app.overlay {
            Overlay::OpenPath(asking) => Some(asking.purpose),
            _ => None,
        }
    }

    #[test]
    fn a_service_that_fails_late_still_leads_to_the_path_field() {
        for after in [Duration::ZERO, Duration::from_secs(5)] {
            let mut app = app();
            answered(&mut app, Choosing::Open, of_several(None), after);
            assert_eq!(asks_for_a_path(&app), Some(Choosing::Open));
            answered(&mut app, Choosing::Open, of_several(Some(Vec::new())), after);
        }
        let mut app = app();
        answered(&mut app, Choosing::Add, of_several(Some(Vec::new())), Duration::ZERO);
        assert_eq!(asks_for_a_path(&app), None, "cancelled, however fast");
        answered(&mut app, Choosing::Save, Answer::Nothing, Duration::from_secs(1));
        assert_eq!(asks_for_a_path(&app), None);
        app.open_dialog(Choosing::Open);
        assert_eq!(app.dialogs.wanted, Some(Choosing::Open));
    }

    #[test]
    fn a_second_dialog_is_not_opened_and_says_why() {
        let mut app = app();
        let (_send, receive) = std::sync::mpsc::channel();
        app.dialogs.open = Some(Open { purpose: Choosing::Open, since: Instant::now(), answer: receive });
        app.open_dialog(Choosing::Save);
        assert_eq!(app.dialogs.wanted, None);
        assert!(app.notices.texts().any(|text| text.contains("open already")));
    }

    #[test]
    fn what_is_saved_ends_as_its_kind_does() {
        let folder = tempfile::tempdir().unwrap();
        let mut app = app();
        for (name, written) in [("a", Some("a.pickle")), ("b.pickle", Some("b.pickle")), ("c.txt", None)] {
            app.overlay = Overlay::None;
            answered(&mut app, Choosing::Save, of_new(Choosing::Save, folder.path().join(name)), Duration::ZERO);
            let sent: Vec<Action> = app.inbox.try_iter().collect();
            let wanted: Vec<Action> = written.map(|w| Action::SaveRecording(folder.path().join(w))).into_iter().collect();
            assert_eq!((sent, asks_for_a_path(&app).is_some()), (wanted, written.is_none()), "{name}");
        }
        std::fs::write(folder.path().join("d.pickle"), "older").unwrap();
        answered(&mut app, Choosing::Save, of_new(Choosing::Save, folder.path().join("d")), Duration::ZERO);
        assert_eq!(asks_for_a_path(&app), Some(Choosing::Save), "what the dialog did not ask about is asked");
    }
}
