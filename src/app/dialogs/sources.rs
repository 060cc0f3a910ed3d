//! A click on a source line: finding the file and starting the editor off the window's thread, and what is asked where one is missing.

use std::path::PathBuf;
use std::process::Command as Process;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use egui::{Modal, Ui};

use super::choosing::Choosing;
use super::overlays::{dialog_frame, dialog_title};
use crate::app::jobs::Jobs;
use crate::app::platform::editor;
use crate::app::platform::editor::place::{Missing, PathPrefix, learn, locate, shown};
use crate::app::platform::editor::{Start, ThisMachine};
use crate::app::state::action::{Action, Actions};
use crate::app::state::command::Command;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::button::Push;
use crate::app::widgets::field::Field;
use crate::app::widgets::icons::Icon;
use crate::app::widgets::label;
use crate::app::widgets::row::ListRow;
use crate::app::window::{App, Overlay};

/// A source line as it was recorded.
type Line = (String, u32);

/// What came of a click.
enum Told {
    Started,
    Refused(String),
    /// The recording is from another machine.
    NotHere,
    /// No editor is named; these are installed.
    NoEditor(Vec<(&'static str, &'static str)>),
    /// Which folder stands for which; `None` when the file is not below the folder that was chosen.
    Learned(PathBuf, Option<PathPrefix>),
}

/// The source line that was asked for, and what is being done about it.
#[derive(Default)]
pub(in crate::app) struct Sources {
    asked: Line,
    running: Option<Receiver<Told>>,
}

/// What is asked before a source line can be opened.
pub(in crate::app) enum Question {
    /// Which editor: those that are installed.
    Editor(Vec<(&'static str, &'static str)>),
    /// Which folder holds the file; the sentence says what was not found.
    Folder(String),
    /// Whether this is the folder that stands for theirs.
    Prefix(PathPrefix),
}

/// An editor that ends sooner, with an error, has opened nothing.
const STARTING: Duration = Duration::from_secs(3);

impl App {
    /// Opens a recorded line in the user's editor, or asks for what is missing.
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
        let told = match running.try_recv() {
            Ok(told) => told,
            Err(TryRecvError::Empty) => return,
            Err(TryRecvError::Disconnected) => Told::Refused("The source line was not opened; please try again.".to_owned()),
        };
        self.sources.running = None;
        match told {
            Told::Started => {}
            Told::Refused(sentence) => self.notices.complain(sentence),
            Told::NotHere => self.overlay = Overlay::Source(Question::Folder(String::new())),
            Told::NoEditor(found) => self.overlay = Overlay::Source(Question::Editor(found)),
            Told::Learned(_, Some(prefix)) => self.overlay = Overlay::Source(Question::Prefix(prefix)),
            Told::Learned(folder, None) => {
                let name = shown(self.sources.asked.0.rsplit(['/', '\\']).next().unwrap_or_default());
                let none = format!("No file below {} is called {name}.", folder.display());
                self.overlay = Overlay::Source(Question::Folder(none));
            }
        }
    }

    /// Looks below a folder for the file that was asked for.
    pub(in crate::app) fn look_for_source(&mut self, folder: PathBuf) {
        let file = self.sources.asked.0.clone();
        let work = move || {
            let prefix = learn(&file, &folder);
            Told::Learned(folder, prefix)
        };
        self.sources.running = Some(self.jobs.spawn("find source", work));
    }

    /// Opens the line that was asked for, now that what was missing is there.
    fn open_asked(&mut self) {
        self.overlay = Overlay::None;
        self.wants_save = true;
        let (file, line) = self.sources.asked.clone();
        self.open_source(file, line);
    }
}

/// Starts an editor. A thread waits for its end, so that the system can forget it, and tells when it failed at once.
fn spawn(start: &Start, source: editor::Source, actions: &Actions, jobs: &Jobs) -> Result<(), String> {
    let began = Instant::now();
    let mut child = Process::new(&start.program).args(&start.args).spawn().map_err(|error| {
        let named = if source == editor::Source::Environment { ", which the environment names" } else { "" };
        format!("Cannot start \"{}\"{named}: {error}. Change the editor in File, Settings.", start.program)
    })?;
    let (name, actions, jobs) = (start.program.clone(), actions.clone(), jobs.clone());
    let wait = move || {
        if let Ok(status) = child.wait()
            && !status.success()
            && began.elapsed() < STARTING
        {
            let sentence =
                format!("\"{name}\" ended at once ({status}): the line was not opened. Change the editor in File, Settings.");
            actions.send(Action::Complain(sentence));
            jobs.wake();
        }
    };
    if let Err(error) = std::thread::Builder::new().name("editor".to_owned()).spawn(wait) {
        tracing::debug!("no thread waits for the editor: {error}");
    }
    Ok(())
}

/// What was answered to a question.
enum Answer {
    Editor(&'static str),
    OtherFolder,
    Prefix(PathPrefix),
    Copy,
    Settings,
    Close,
}

/// Draws what is asked before a source line can be opened.
pub(in crate::app) fn draw(app: &mut App, ui: &mut Ui, t: &Tokens) {
    let Overlay::Source(mut question) = std::mem::replace(&mut app.overlay, Overlay::None) else { return };
    let (file, line) = &app.sources.asked;
    let is_looking = app.sources.running.is_some();
    let mut answer = None;
    let modal = Modal::new(egui::Id::unique("source line")).frame(dialog_frame(t)).show(ui, |ui| {
        ui.set_width(480.0);
        let title = match question {
            Question::Editor(_) => "Open source lines with",
            Question::Folder(_) => "This file is not on this machine",
            Question::Prefix(_) => "Is this the folder?",
        };
        let (_, is_closed) = dialog_title(ui, t, title);
        ui.add_space(8.0);
        let place = label::without_middle(ui.painter(), &format!("{}:{line}", shown(file)), Type::Mono, 480.0);
        ui.add(egui::Label::new(Type::Mono.text(place).color(t.text2)));
        ui.add_space(10.0);
        match &mut question {
            Question::Editor(found) => ask_editor(ui, t, found, &mut answer),
            Question::Folder(none) => ask_folder(ui, t, none, is_looking, &mut answer),
            Question::Prefix(prefix) => ask_prefix(ui, t, prefix, &mut answer),
        }
        is_closed
    });
    if modal.inner || modal.should_close() {
        answer = Some(Answer::Close);
    }
    let place = format!("{file}:{line}");
    match answer {
        None => app.overlay = Overlay::Source(question),
        Some(Answer::Close) => {}
        Some(Answer::Editor(command)) => {
            app.settings.editor = command.to_owned();
            app.open_asked();
        }
        Some(Answer::OtherFolder) => app.open_dialog(Choosing::Sources),
        Some(Answer::Prefix(prefix)) => {
            app.settings.source_folders.retain(|known| known.theirs != prefix.theirs);
            app.settings.source_folders.push(prefix);
            app.open_asked();
        }
        Some(Answer::Copy) => app.actions.send(Action::Copy(place)),
        Some(Answer::Settings) => app.actions.run(Command::Settings),
    }
}

fn ask_editor(ui: &mut Ui, t: &Tokens, found: &[(&'static str, &'static str)], answer: &mut Option<Answer>) {
    if found.is_empty() {
        let none = "No editor that vramscope knows is on the path of this machine. Name the command of yours in Settings.";
        label::paragraph(ui, none, Type::Body, t.text1);
    }
    let nothing_has_focus = ui.memory(|m| m.focused().is_none());
    egui::ScrollArea::vertical().max_height(280.0).show(ui, |ui| {
        ui.spacing_mut().item_spacing.y = 0.0;
        for (i, &(command, name)) in found.iter().enumerate() {
            let row = ListRow::new(name).height(28.0).fill(t.s3).show_painted(ui);
            if i == 0 && nothing_has_focus {
                row.request_focus();
            }
            if row.hovered() || row.has_focus() {
                ui.painter().rect_filled(row.rect, 4, t.s4);
            }
            let inner = row.rect.shrink2(egui::vec2(10.0, 0.0));
            label::text_in(ui.painter(), inner, name, Type::Strong, t.text1);
            if !command.contains("{file}") {
                label::text_in_right(ui.painter(), inner, command, Type::Mono, t.text3);
            }
            if row.clicked() {
                *answer = Some(Answer::Editor(command));
            }
        }
    });
    ui.add_space(10.0);
    label::paragraph(ui, "Settings keep what you choose, and take any other command.", Type::Caption, t.text3);
    ui.add_space(10.0);
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 8.0;
        if Push::outlined("Settings…").show(ui).clicked() {
            *answer = Some(Answer::Settings);
        }
        if Push::outlined("Copy the location").icon(Icon::Copy).show(ui).clicked() {
            *answer = Some(Answer::Copy);
        }
    });
}

fn ask_folder(ui: &mut Ui, t: &Tokens, none: &str, is_looking: bool, answer: &mut Option<Answer>) {
    if is_looking {
        label::paragraph(ui, "Looking below that folder…", Type::Body, t.text1);
    } else if !none.is_empty() {
        label::paragraph(ui, none, Type::Body, t.amber);
        ui.add_space(6.0);
    }
    if !is_looking {
        let sentence = "The recording was made on another machine, or the file was moved. Choose the folder that holds your copy, or any folder above it.";
        label::paragraph(ui, sentence, Type::Body, t.text1);
    }
    ui.add_space(12.0);
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 8.0;
        let choose = Push::primary("Choose the folder…").enabled(!is_looking).show(ui);
        if ui.memory(|m| m.focused().is_none()) {
            choose.request_focus();
        }
        if choose.clicked() && !is_looking {
            *answer = Some(Answer::OtherFolder);
        }
        if Push::outlined("Copy the location").icon(Icon::Copy).show(ui).clicked() {
            *answer = Some(Answer::Copy);
        }
    });
}

fn ask_prefix(ui: &mut Ui, t: &Tokens, prefix: &mut PathPrefix, answer: &mut Option<Answer>) {
    let theirs = if prefix.theirs.is_empty() {
        "Paths of the recording that are relative"
    } else {
        "Paths of the recording that begin with"
    };
    let shown_field = |ui: &mut Ui, about: &str, name: &str, text: &mut String| {
        ui.label(Type::Caption.text(about).color(t.text2));
        ui.add_space(4.0);
        Field::new(name).hint("").width(480.0).height(24.0).mono().show(ui, text);
        ui.add_space(10.0);
    };
    shown_field(ui, theirs, "Folder in the recording", &mut prefix.theirs);
    shown_field(ui, "are in this folder here", "Folder on this machine", &mut prefix.ours);
    label::paragraph(ui, "Every later click uses it too. Settings list these folders.", Type::Caption, t.text3);
    ui.add_space(10.0);
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 8.0;
        let is_entered = ui.input(|i| i.key_pressed(egui::Key::Enter));
        if Push::primary("Open the line").show(ui).clicked() || is_entered {
            *answer = Some(Answer::Prefix(prefix.clone()));
        }
        if Push::outlined("Choose another folder…").show(ui).clicked() {
            *answer = Some(Answer::OtherFolder);
        }
    });
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
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
