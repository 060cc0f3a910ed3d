//! The desktop's own file dialog, on a thread: it blocks until the user has chosen.

use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use super::Choosing;
use crate::app::action::Action;
use crate::app::picture::suggested_name;
use crate::app::{App, Overlay};

/// The dialog that was asked for, and the one that is open.
#[derive(Default)]
pub(in crate::app) struct Dialogs {
    /// To be opened with the next frame, over the window.
    wanted: Option<Choosing>,
    open: Option<Open>,
}

struct Open {
    purpose: Choosing,
    since: Instant,
    answer: Receiver<Answer>,
}

/// How a dialog ended.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Chosen(Vec<PathBuf>),
    Cancelled,
    /// There is no service that shows dialogs, or it failed.
    NoService,
    /// Cancelled, or failed: for a single file or folder, rfd does not tell the two apart.
    Nothing,
}

/// Nobody cancels a dialog this fast: there was none.
const AT_ONCE: Duration = Duration::from_millis(400);

/// What a dialog calls recordings, and how their names end.
const RECORDINGS: (&str, &[&str]) = ("Recordings", &["pickle", "pkl", "json", "gz", "zst", "html", "csv", "pt", "vramscope"]);

impl App {
    /// Asks for the desktop's dialog, which [`show_dialog`](Self::show_dialog) opens. Of two at once the first stays.
    pub(in crate::app) fn open_dialog(&mut self, purpose: Choosing) {
        if self.dialogs.open.is_some() {
            // It may stand behind the window, or its service may have died: the path field always works.
            self.notices.offer(
                "The desktop's file dialog is open already, perhaps behind this window.",
                "Type a path instead",
                Action::AskPath(purpose),
            );
            return;
        }
        self.dialogs.wanted = Some(purpose);
    }

    /// Opens the dialog that was asked for over `window`, so that it can not fall behind it.
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
        let beside = self.active_document().and_then(|d| d.path.as_deref()?.parent()).filter(|folder| folder.is_dir());
        if let Some(folder) = beside {
            dialog = dialog.set_directory(folder);
        }
        let (kind, endings): (_, &[&str]) = match purpose {
            Choosing::Add => ("Traces, timelines and counters", &["json", "gz", "zst", "txt"]),
            Choosing::Log => ("Logs", &["log", "txt", "out", "err", "stderr"]),
            Choosing::Picture => ("Pictures", purpose.endings()),
            Choosing::Save => ("Snapshots", purpose.endings()),
            Choosing::Session => ("Sessions", purpose.endings()),
            _ => RECORDINGS,
        };
        let name = self.suggested(purpose);
        let answer = self.jobs.spawn("dialog", move || {
            if purpose.is_new() {
                let chosen = dialog.set_file_name(name).add_filter(kind, endings).save_file();
                return chosen.map_or(Answer::Nothing, |file| Answer::Chosen(vec![file]));
            }
            if purpose.is_folder() {
                return of_several(dialog.pick_folders());
            }
            of_several(dialog.add_filter(kind, endings).add_filter("All files", &["*"]).pick_files())
        });
        self.dialogs.open = Some(Open { purpose, since: Instant::now(), answer });
    }

    /// A name for what is written; nothing for what is read.
    fn suggested(&self, purpose: Choosing) -> String {
        match purpose {
            Choosing::Save => self.name_to_save(),
            Choosing::Session => self.session_name(),
            Choosing::Picture => {
                let part = self.pictures.part.map(|(kind, _)| kind);
                suggested_name(self.active_document(), part)
            }
            _ => String::new(),
        }
    }

    /// Asks for a path in the window itself; for what is written one is there already, in the folder the program was started in.
    pub(in crate::app) fn ask_path(&mut self, purpose: Choosing) {
        let path = match self.suggested(purpose) {
            name if name.is_empty() => name,
            name => std::env::current_dir().unwrap_or_default().join(name).display().to_string(),
        };
        self.overlay = Overlay::OpenPath { path, purpose };
    }

    pub(in crate::app) fn poll_dialog(&mut self) {
        let Some(dialog) = &self.dialogs.open else { return };
        let Ok(answer) = dialog.answer.try_recv() else { return };
        let (purpose, since) = (dialog.purpose, dialog.since);
        self.dialogs.open = None;
        match answer {
            Answer::Chosen(paths) => self.take_chosen(purpose, paths),
            Answer::Cancelled => {}
            Answer::Nothing if since.elapsed() >= AT_ONCE => {
                self.notices.offer("Nothing was saved.", "Type a path", Action::AskPath(purpose));
            }
            Answer::NoService | Answer::Nothing => {
                self.notices
                    .say("This desktop has no file dialog service. Type the path instead, or drop a file to open on the window.");
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
            // More than two can not be held against each other, and one folder is watched: the first one counts.
            Choosing::First | Choosing::Second | Choosing::Watch => {
                if let Some(path) = paths.into_iter().next() {
                    self.actions.send(purpose.action(path));
                }
            }
            Choosing::Ranks => self.actions.send(Action::OpenRanks(paths)),
            _ if purpose.is_new() => {
                for path in paths {
                    self.take_new(purpose, path);
                }
            }
            _ => {
                for path in paths {
                    self.actions.send(purpose.action(path));
                }
            }
        }
    }

    /// A file that is to be written. A name without an ending gets the usual one, and one with another is asked for again: under it the
    /// file would not be found, or not be opened.
    fn take_new(&mut self, purpose: Choosing, mut path: PathBuf) {
        if path.extension().is_none()
            && let Some(ending) = purpose.endings().first()
        {
            path.set_extension(ending);
            if path.exists() {
                // The dialog has not asked whether this one may go.
                self.overlay = Overlay::OpenPath { path: path.display().to_string(), purpose };
                return;
            }
        }
        if purpose.accepts(&path.to_string_lossy()) {
            self.actions.send(purpose.action(path));
        } else {
            self.notices.complain(purpose.refusal());
            self.overlay = Overlay::OpenPath { path: path.display().to_string(), purpose };
        }
    }
}

/// Of the XDG portal a list without a file is a dialog that was cancelled, and no list one that failed. Elsewhere the desktop has
/// dialogs, and no list is one that was cancelled.
fn of_several(chosen: Option<Vec<PathBuf>>) -> Answer {
    match chosen {
        Some(paths) if paths.is_empty() => Answer::Cancelled,
        Some(paths) => Answer::Chosen(paths),
        None if cfg!(any(target_os = "windows", target_os = "macos")) => Answer::Cancelled,
        None => Answer::NoService,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::jobs::Jobs;
    use crate::app::settings::Settings;

    fn app() -> App {
        App::new(&egui::Context::default(), Settings::default(), Jobs::synchronous())
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
            Overlay::OpenPath { purpose, .. } => Some(*purpose),
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
            app.take_new(Choosing::Save, folder.path().join(name));
            let sent: Vec<Action> = app.inbox.try_iter().collect();
            let wanted: Vec<Action> = written.map(|w| Action::SaveRecording(folder.path().join(w))).into_iter().collect();
            assert_eq!((sent, asks_for_a_path(&app).is_some()), (wanted, written.is_none()), "{name}");
        }
        std::fs::write(folder.path().join("d.pickle"), "older").unwrap();
        app.take_new(Choosing::Save, folder.path().join("d"));
        assert_eq!(asks_for_a_path(&app), Some(Choosing::Save), "what the dialog did not ask about is asked");
    }
}
