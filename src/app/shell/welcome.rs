//! The welcome page, filled with what the app knows.

use egui::Ui;

use crate::app::pages::welcome::{FileRow, StartEntry, WelcomeIntent, WelcomeModel, open_entry, welcome_ui};
use crate::app::platform::from_home;
use crate::app::platform::machine::MachineState;
use crate::app::state::{Action, Command};
use crate::app::widgets::Sparkline;
use crate::app::window::App;

/// The page shown when no document is in front.
pub(in crate::app) fn welcome(app: &mut App, ui: &mut Ui) {
    let model = welcome_model(app);
    match welcome_ui(ui, &model) {
        None => {}
        Some(WelcomeIntent::HowToRecord) => app.actions.run(Command::HowToRecord),
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
        Some(WelcomeIntent::Start(4)) => app.actions.run(Command::Tour),
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
            StartEntry {
                title: Command::Tour.text(),
                text: Command::Tour.tooltip().into(),
                shortcut: String::new(),
                intent: WelcomeIntent::Start(4),
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
