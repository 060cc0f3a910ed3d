//! A click on a source line. Finds the file and starts the editor off the window's thread, and asks when something is missing.

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::Command as Process;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use egui::Ui;

use super::frame::dialog;
use crate::app::jobs::Jobs;
use crate::app::platform::editor;
use crate::app::platform::editor::Start;
use crate::app::platform::editor::place::{PathPrefix, shown};
use crate::app::state::{Action, Actions};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Field, Icon, ListRow, Push, label};

pub(in crate::app) type Line = (String, u32);

pub(in crate::app) enum Told {
    Started,
    Refused(String),
    /// The file is not here, because another machine made the recording.
    NotHere,
    /// No editor is configured. These are installed.
    NoEditor(Vec<(&'static str, &'static str)>),
    /// The chosen folder and the mapping it gives; `None` when the file is not below that folder.
    Learned(PathBuf, Option<PathPrefix>),
}

/// The clicked source line, and what is being done about it.
#[derive(Default)]
pub(in crate::app) struct Sources {
    pub(in crate::app) asked: Line,
    pub(in crate::app) running: Option<Receiver<Told>>,
    /// Files that a notice already reported as missing.
    pub(in crate::app) told_missing: HashSet<String>,
}

impl Sources {
    /// `train.py:7`.
    pub(in crate::app) fn place(&self) -> String {
        let (file, line) = &self.asked;
        format!("{file}:{line}")
    }
}

/// What the user has to answer before a source line can be opened.
pub(in crate::app) enum Question {
    Editor(Vec<(&'static str, &'static str)>),
    /// Which folder holds the file. The sentence says what was not found.
    Folder(String),
    /// Whether to map the recording's folder to this one.
    Prefix(PathPrefix),
}

/// An editor that fails within this time has opened nothing.
const STARTING: Duration = Duration::from_secs(3);

/// Starts an editor. A thread waits for it to exit, so that no zombie process stays, and reports when it failed at once.
pub(in crate::app) fn spawn(start: &Start, source: editor::Source, actions: &Actions, jobs: &Jobs) -> Result<(), String> {
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

pub(in crate::app) enum Answer {
    Editor(&'static str),
    OtherFolder,
    Prefix(PathPrefix),
    Copy,
    Settings,
    Close,
}

/// Asks what is missing. An answer closes the dialog.
pub(in crate::app) fn draw(question: &mut Question, sources: &Sources, ui: &mut Ui, t: &Tokens) -> Option<Answer> {
    let (file, line) = &sources.asked;
    let is_looking = sources.running.is_some();
    let mut answer = None;
    let title = match question {
        Question::Editor(_) => "Open source lines with",
        Question::Folder(_) => "This file is not on this machine",
        Question::Prefix(_) => "Is this the folder?",
    };
    let ((), is_closed) = dialog(ui, t, "source line", (title, 480.0), |ui, _| {
        ui.add_space(8.0);
        let place = label::without_middle(ui.painter(), &format!("{}:{line}", shown(file)), Type::Mono, 480.0);
        ui.add(egui::Label::new(Type::Mono.text(place).color(t.text2)));
        ui.add_space(10.0);
        match question {
            Question::Editor(found) => ask_editor(ui, t, found, &mut answer),
            Question::Folder(none) => ask_folder(ui, t, none, is_looking, &mut answer),
            Question::Prefix(prefix) => ask_prefix(ui, t, prefix, &mut answer),
        }
    });
    if is_closed {
        answer = Some(Answer::Close);
    }
    answer
}

fn ask_editor(ui: &mut Ui, t: &Tokens, found: &[(&'static str, &'static str)], answer: &mut Option<Answer>) {
    if found.is_empty() {
        let none = "No editor that vramscope knows is on the path of this machine. Name the command of yours in Settings.";
        label::paragraph(ui, none, Type::Body, t.text1);
    }
    let nothing_has_focus = ui.memory(|m| m.focused().is_none());
    egui::ScrollArea::vertical().max_height(280.0).show(ui, |ui| {
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
                label::figure(ui.painter(), inner, command, t.text3);
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
        let is_entered = ui.input(|i| i.key_pressed(egui::Key::Enter));
        if Push::primary("Open the line").show(ui).clicked() || is_entered {
            *answer = Some(Answer::Prefix(prefix.clone()));
        }
        if Push::outlined("Choose another folder…").show(ui).clicked() {
            *answer = Some(Answer::OtherFolder);
        }
    });
}
