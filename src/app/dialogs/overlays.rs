//! What stands in for the views, or lies over them: welcome, failure, path field, help, settings.

use egui::{Align, Align2, Layout, Modal, Rect, Sense, Stroke, Ui, pos2, vec2};

use crate::app::documents::document::DocumentId;
use crate::app::pages::welcome::{FileRow, MachineState, StartEntry, WelcomeIntent, WelcomeModel, open_entry, welcome_ui};
use crate::app::palette;
use crate::app::state::action::{Action, Actions};
use crate::app::state::command::Command;
use crate::app::theme::{Tokens, Type, text};
use crate::app::widgets::button::icon_button;
use crate::app::widgets::icons::Icon;
use crate::app::widgets::label;
use crate::app::widgets::sparkline::Sparkline;
use crate::app::window::{App, Overlay};

/// Draws whatever lies over the window.
pub(in crate::app) fn draw(app: &mut App, ui: &mut Ui, tokens: &Tokens) {
    match &app.overlay {
        Overlay::None => {}
        Overlay::Palette(_) => palette::draw(app, ui, tokens),
        Overlay::OpenPath(_) => super::choosing::field::draw(app, ui, tokens),
        Overlay::Explain(_) => super::explain::draw(app, ui, tokens),
        Overlay::Pair => super::choosing::pair::draw(app, ui, tokens),
        Overlay::Help => help(app, ui, tokens),
        Overlay::Settings => super::settings::draw(app, ui, tokens),
        Overlay::Rules => super::rules::draw(app, ui, tokens),
        Overlay::Source(_) => super::sources::draw(app, ui, tokens),
    }
}

pub(in crate::app) fn dialog_frame(tokens: &Tokens) -> egui::Frame {
    egui::Frame::new()
        .fill(tokens.s3)
        .stroke(Stroke::new(1.0, tokens.line2))
        .corner_radius(6)
        .inner_margin(16)
        .shadow(egui::Shadow { offset: [0, 4], blur: 16, spread: 0, color: tokens.shadow })
}

/// The first line of a dialog: what it is for, and the button that closes it. The title, and whether the button was clicked.
pub(in crate::app) fn dialog_title(ui: &mut Ui, tokens: &Tokens, title: &str) -> (egui::Response, bool) {
    ui.horizontal(|ui| {
        let title = ui.label(text::title(title).color(tokens.text1));
        let room = Layout::right_to_left(Align::Center);
        let closed = ui.with_layout(room, |ui| icon_button(ui, Icon::Close, "Close (Esc)").clicked()).inner;
        (title, closed)
    })
    .inner
}

fn help(app: &mut App, ui: &mut Ui, tokens: &Tokens) {
    let modal = Modal::new(egui::Id::unique("help")).frame(dialog_frame(tokens)).show(ui, |ui| {
        let window = ui.ctx().content_rect().size();
        ui.set_width(860.0f32.min(window.x - 64.0));
        // As much of the window as it takes: a list that scrolls hides what one looks for.
        let room = (window.y - 110.0).max(150.0);
        ui.set_max_height(room);
        let (_, is_closed) = dialog_title(ui, tokens, "Shortcuts and gestures");
        ui.add_space(10.0);
        egui::ScrollArea::vertical().max_height(room - 40.0).auto_shrink([false, true]).show(ui, |ui| {
            // The last column keeps off the scroll bar.
            ui.set_max_width(ui.available_width() - 12.0);
            let written = |command: &Command| {
                let keys: Vec<String> = command.shortcuts().iter().map(crate::app::state::command::written).collect();
                (keys.join("  "), command.text())
            };
            let listed: Vec<(String, String)> =
                Command::all().iter().filter(|c| !c.shortcuts().is_empty()).map(written).collect();
            ui.columns(2, |columns| {
                help_rows(&mut columns[0], tokens, &listed.iter().map(|(k, t)| (k.as_str(), t.as_str())).collect::<Vec<_>>());
                help_rows(&mut columns[1], tokens, &GESTURES);
            });
        });
        is_closed
    });
    if modal.inner || modal.should_close() {
        app.overlay = Overlay::None;
    }
}

const GESTURES: [(&str, &str); 14] = [
    ("move", "hover: outline, tooltip, and a ghost line at that instant in all views"),
    ("click", "select what is under the pointer and set the cursor there"),
    ("drag", "pan"),
    ("wheel", "zoom at the pointer"),
    ("Shift wheel", "pan"),
    ("Ctrl wheel", "zoom bytes or addresses"),
    ("drag on addresses", "zoom to a range of them; double click shows all"),
    ("right drag", "draw a box to zoom to: time, and bytes or addresses; Esc cancels"),
    ("Shift drag", "choose a range; counts and findings follow it"),
    ("double click", "fit the block's life; on empty space the whole recording"),
    ("right click", "copy, zoom to life, same stack, open source"),
    ("legend click", "dim the other classes; again to undo"),
    ("header drag", "dock a pane elsewhere"),
    ("header double click", "fill the window with a pane, and back"),
];

/// Keys or gestures, and beside the longest of them what each does.
fn help_rows(ui: &mut Ui, tokens: &Tokens, rows: &[(&str, &str)]) {
    let longest = rows.iter().map(|(left, _)| label::width(ui.painter(), left, Type::Mono)).fold(0.0, f32::max);
    for (left, right) in rows {
        ui.horizontal_top(|ui| {
            ui.spacing_mut().item_spacing.x = 16.0;
            let (rect, _) = ui.allocate_exact_size(vec2(longest.ceil(), 18.0), Sense::hover());
            ui.painter().text(rect.left_top() + vec2(0.0, 7.5), Align2::LEFT_CENTER, left, Type::Mono.font(), tokens.text2);
            ui.add(egui::Label::new(text::body(*right).color(tokens.text1)).wrap());
        });
    }
}

/// A file that cannot be opened: the sentence, and what can be done.
pub(in crate::app) fn failed(ui: &mut Ui, tokens: &Tokens, title: &str, sentence: &str, id: DocumentId, actions: &Actions) {
    let rect = ui.max_rect();
    let width = 640.0f32.min(rect.width() - 48.0);
    let column = Rect::from_min_size(pos2(rect.center().x - width / 2.0, rect.top() + rect.height() * 0.28), vec2(width, 300.0));
    ui.scope_builder(egui::UiBuilder::new().max_rect(column), |ui| {
        ui.horizontal(|ui| {
            let (place, _) = ui.allocate_exact_size(vec2(28.0, 28.0), egui::Sense::hover());
            Icon::Warning.paint(ui.painter(), pos2(place.left() + 10.0, place.center().y), 20.0, tokens.amber);
            ui.add(egui::Label::new(text::display(format!("{title} was not opened")).color(tokens.text1)).wrap());
        });
        ui.add_space(8.0);
        ui.add(egui::Label::new(text::lead(sentence).color(tokens.text2)).wrap());
        ui.add_space(16.0);
        ui.horizontal(|ui| {
            if ui.button("Open another…").clicked() {
                actions.run(Command::Open);
            }
            if ui.button("Copy the message").clicked() {
                actions.send(Action::Copy(sentence.to_owned()));
            }
            if ui.button("Close").clicked() {
                actions.send(Action::Close(id));
            }
        });
    });
}

/// The page shown when no document is in front.
pub(in crate::app) fn welcome(app: &mut App, ui: &mut Ui) {
    let model = welcome_model(app);
    match welcome_ui(ui, &model) {
        None => {}
        Some(WelcomeIntent::OpenDialog) => app.actions.run(Command::Open),
        Some(WelcomeIntent::OpenPath(path)) => app.actions.send(Action::Open(vec![from_home(&path)])),
        Some(WelcomeIntent::OpenSample(i)) => app.actions.send(Action::OpenSample(i)),
        Some(WelcomeIntent::OpenRecent(i)) => {
            if let Some(recent) = app.settings.recents.get(i) {
                app.actions.send(Action::Open(vec![recent.path.clone()]));
            }
        }
        Some(WelcomeIntent::Start(1)) => app.actions.run(Command::WatchMachine),
        Some(WelcomeIntent::Start(2)) => app.actions.run(Command::Probe),
        Some(WelcomeIntent::Start(3)) => app.actions.run(Command::CompareFiles),
        Some(WelcomeIntent::Start(_)) => app.actions.run(Command::Explain),
    }
}

/// What the welcome page shows of the app: only ways to start that this build has.
fn welcome_model(app: &mut App) -> WelcomeModel {
    let samples = app.samples.clone();
    let lines = app
        .sample_lines
        .get(&app.jobs, "samples", &(), move |p| Some(crate::app::documents::samples::describe_all(&samples, p)))
        .value;
    let machine = app.machine.get(&app.jobs, "machine", &app.welcomes, |_| Some(crate::app::platform::machine::look())).value;
    let line = |i: usize| lines.as_ref().and_then(|l| l.get(i)).cloned().unwrap_or_default();
    let keys = Command::Open.keys().replace('+', " ");
    let curve = |values: &[u64]| values.iter().map(|v| *v as f32).collect();
    WelcomeModel {
        starts: vec![
            open_entry(&keys),
            StartEntry {
                title: "Explain an OOM message…".into(),
                text: "Paste the text of the error. No file needed.".into(),
                shortcut: Command::Explain.keys().replace('+', " "),
                intent: WelcomeIntent::Start(0),
            },
            StartEntry {
                title: "Watch GPUs live".into(),
                text: "Every byte of this machine's cards over time, and PyTorch's own figures of running programs.".into(),
                shortcut: String::new(),
                intent: WelcomeIntent::Start(1),
            },
            StartEntry {
                title: "Run the probe…".into(),
                text: "Reproduce fragmentation, a leak and an OOM, on a simulated card or this one, and see how each looks."
                    .into(),
                shortcut: Command::Probe.keys().replace('+', " "),
                intent: WelcomeIntent::Start(2),
            },
            StartEntry {
                title: "Compare two recordings…".into(),
                text: "What only one of them holds, by call stack.".into(),
                shortcut: Command::CompareFiles.keys().replace('+', " "),
                intent: WelcomeIntent::Start(3),
            },
        ],
        recents: app
            .settings
            .recents
            .iter()
            .map(|r| FileRow {
                name: r.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                path: r.path.display().to_string(),
                sentence: r.sentence.clone(),
                peak_reserved: r.peak_reserved,
                events: r.events,
                sparkline: Sparkline { reserved: curve(&r.reserved), allocated: curve(&r.requested), oom: r.has_oom },
            })
            .collect(),
        samples: app
            .samples
            .iter()
            .enumerate()
            .map(|(i, s)| {
                let line = line(i);
                FileRow {
                    name: s.name.into(),
                    path: String::new(),
                    sentence: s.sentence.into(),
                    peak_reserved: line.peak_reserved,
                    events: line.events,
                    sparkline: Sparkline {
                        reserved: curve(&line.reserved),
                        allocated: curve(&line.requested),
                        oom: line.has_oom,
                    },
                }
            })
            .collect(),
        machine: machine.map(|m| MachineState::clone(&m)).unwrap_or_default(),
        watched: app.watch.as_ref().map(|watch| watch.folder.display().to_string()).unwrap_or_default(),
    }
}

/// `~/run.pickle` as the shell reads it; anything else as it is.
pub(in crate::app) fn from_home(path: &str) -> std::path::PathBuf {
    match (path.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => std::path::Path::new(&home).join(rest),
        _ => path.into(),
    }
}
