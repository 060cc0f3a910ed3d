//! A click on a source line. The file is searched and the editor started off the window's thread; the user is asked when
//! something is missing.

use std::path::PathBuf;

use super::{App, Overlay};
use crate::app::dialogs::sources::{Question, Told, spawn};
use crate::app::jobs::answered;
use crate::app::platform::editor::place::{Missing, learn, locate, shown};
use crate::app::platform::editor::{self, ThisMachine};
use crate::app::state::Action;

impl App {
    /// Opens a recorded line in the user's editor, or asks for the editor or the source folder when it has none.
    pub(in crate::app) fn open_source(&mut self, file: String, line: u32) {
        self.sources.asked = (file.clone(), line);
        let (command, prefixes) = (self.settings.editor.clone(), self.settings.source_folders.clone());
        let (actions, jobs) = (self.actions.clone(), self.jobs.clone());
        let work = move || {
            let path = match locate(&file, &prefixes) {
                Ok(path) => path,
                Err(Missing::Refused(sentence)) => return Told::Refused(sentence),
                Err(Missing::NotHere) => return Told::NotHere,
            };
            match editor::start(&command, &editor::of_environment(), &path, line, &ThisMachine) {
                Ok(Some((start, source))) => {
                    spawn(&start, source, &actions, &jobs).map_or_else(Told::Refused, |()| Told::Started)
                }
                Ok(None) => Told::NoEditor(editor::found(&ThisMachine)),
                Err(sentence) => Told::Refused(sentence),
            }
        };
        self.sources.running = Some(self.jobs.spawn("open source", work));
    }

    pub(in crate::app) fn poll_source(&mut self) {
        let Some(running) = &self.sources.running else { return };
        let lost = || Told::Refused("The source line was not opened; please try again.".to_owned());
        let Some(told) = answered(running, lost) else { return };
        self.sources.running = None;
        match told {
            Told::Started => {}
            Told::Refused(sentence) => self.notices.complain(sentence),
            // No dialog, because a click on a location also selects its row, and that is often all that the user wanted. One
            // notice per file is enough.
            Told::NotHere if !self.sources.told_missing.insert(self.sources.asked.0.clone()) => {}
            Told::NotHere => {
                let name = shown(self.sources.asked.0.rsplit(['/', '\\']).next().unwrap_or_default());
                let text = format!("{name} is not on this machine, so its line cannot be opened.");
                self.notices.suggest(text, "Choose its folder", Action::AskSourceFolder);
            }
            Told::NoEditor(found) => self.overlay = Overlay::Source(Question::Editor(found)),
            Told::Learned(_, Some(prefix)) => self.overlay = Overlay::Source(Question::Prefix(prefix)),
            Told::Learned(folder, None) => {
                let name = shown(self.sources.asked.0.rsplit(['/', '\\']).next().unwrap_or_default());
                let none = format!("No file below {} is called {name}.", folder.display());
                self.overlay = Overlay::Source(Question::Folder(none));
            }
        }
    }

    /// Searches a folder for the requested file.
    pub(in crate::app) fn look_for_source(&mut self, folder: PathBuf) {
        let file = self.sources.asked.0.clone();
        let work = move || {
            let prefix = learn(&file, &folder);
            Told::Learned(folder, prefix)
        };
        self.sources.running = Some(self.jobs.spawn("find source", work));
    }

    /// Opens the requested line, after the missing answer was given.
    pub(in crate::app) fn open_asked(&mut self) {
        self.overlay = Overlay::None;
        self.wants_save = true;
        let (file, line) = self.sources.asked.clone();
        self.open_source(file, line);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::app::jobs::Jobs;
    use crate::app::settings::Settings;

    fn clicked(app: &mut App, file: &str) {
        app.open_source(file.to_owned(), 7);
        app.poll_source();
    }

    #[cfg(unix)]
    #[test]
    fn a_file_of_another_machine_is_asked_for_once() {
        use std::os::unix::fs::PermissionsExt as _;
        let here = tempfile::tempdir().unwrap();
        let root = here.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("code/proj")).unwrap();
        for name in ["a.py", "b.py"] {
            std::fs::write(root.join("code/proj").join(name), "x\n").unwrap();
        }
        let (editor, seen) = (root.join("editor"), root.join("seen"));
        std::fs::write(&editor, format!("#!/bin/sh\nprintf '%s\\n' \"$@\" >> '{}.part'; mv '{0}.part' '{0}'\n", seen.display()))
            .unwrap();
        std::fs::set_permissions(&editor, std::fs::Permissions::from_mode(0o755)).unwrap();
        let settings = Settings { editor: editor.display().to_string(), ..Settings::default() };
        let mut app = App::new(&egui::Context::default(), settings, Jobs::synchronous());
        let opened = || {
            let since = Instant::now();
            while !seen.exists() && since.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(10));
            }
            let text = std::fs::read_to_string(&seen).unwrap_or_default();
            let _ = std::fs::remove_file(&seen);
            text
        };
        clicked(&mut app, "/workspace/proj/a.py");
        assert!(app.notices().any(|text| text.contains("a.py is not on this machine")));
        app.apply(Action::AskSourceFolder, &egui::Context::default());
        assert!(matches!(&app.overlay, Overlay::Source(Question::Folder(none)) if none.is_empty()));
        app.look_for_source(Path::new("/proc/self/fdinfo").to_path_buf());
        app.poll_source();
        assert!(matches!(&app.overlay, Overlay::Source(Question::Folder(none)) if none.contains("is called a.py")));
        app.look_for_source(root.clone());
        app.poll_source();
        let Overlay::Source(Question::Prefix(prefix)) = &app.overlay else { panic!("no folder is proposed") };
        assert_eq!((prefix.theirs.as_str(), Path::new(&prefix.ours)), ("/workspace", root.join("code").as_path()));
        app.settings.source_folders.push(prefix.clone());
        app.open_asked();
        app.poll_source();
        assert!(matches!(app.overlay, Overlay::None));
        assert_eq!(opened(), format!("+7\n{}\n", root.join("code/proj/a.py").display()));
        clicked(&mut app, "/workspace/proj/b.py");
        assert!(matches!(app.overlay, Overlay::None), "the folder is known");
        assert_eq!(opened(), format!("+7\n{}\n", root.join("code/proj/b.py").display()));
        clicked(&mut app, "+call system(\"touch OWNED\")|\"/train.py");
        assert!(app.notices.texts().any(|text| text.contains("would take its name for an option")));
        assert!(!seen.exists());
    }
}
