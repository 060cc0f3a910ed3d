//! Fills the welcome page with the app's data.

use egui::Ui;

use crate::app::pages::welcome::{FileRow, StartEntry, WelcomeIntent, WelcomeModel, open_entry, welcome_ui};
use crate::app::platform::from_home;
use crate::app::platform::machine::MachineState;
use crate::app::settings::Recent;
use crate::app::state::{Action, Command};
use crate::app::widgets::Sparkline;
use crate::app::window::App;
use vramscope_core::units::capital;

pub(in crate::app) fn welcome(app: &mut App, ui: &mut Ui) {
    let model = welcome_model(app);
    match welcome_ui(ui, &model) {
        None => {}
        Some(WelcomeIntent::Run(command)) => app.actions.run(command),
        Some(WelcomeIntent::OpenPath(path)) => app.actions.send(Action::Open(vec![from_home(&path)])),
        Some(WelcomeIntent::OpenSample(i)) => app.actions.send(Action::OpenSample(i)),
        Some(WelcomeIntent::OpenRecent(i)) => {
            if let Some(recent) = app.settings.recents.get(i) {
                app.actions.send(Action::Open(vec![recent.path.clone()]));
            }
        }
    }
}

/// Offers only ways to start that this build supports.
fn welcome_model(app: &mut App) -> WelcomeModel {
    let samples = app.samples.clone();
    let lines = app
        .sample_lines
        .get(&app.jobs, "samples", &(), move |p| Some(crate::app::documents::samples::describe_all(&samples, p)))
        .value;
    let machine = app.machine.get(&app.jobs, "machine", &app.welcomes, |_| Some(crate::app::platform::machine::look())).value;
    let line = |i: usize| lines.as_ref().and_then(|l| l.get(i)).cloned().unwrap_or_default();
    let keys = |command: Command| command.keys().replace('+', " ");
    let start = |command: Command, title: &str, text: &str| StartEntry {
        title: title.to_owned(),
        text: text.to_owned(),
        shortcut: keys(command),
        command,
    };
    let curve = |values: &[u64]| values.iter().map(|v| *v as f32).collect();
    WelcomeModel {
        starts: vec![
            open_entry(&keys(Command::Open)),
            start(Command::Explain, "Explain an OOM message…", "Paste the text of the error. No file needed."),
            start(
                Command::WatchMachine,
                "Watch GPUs live",
                "Every byte of this machine's cards over time, and PyTorch's own figures of running programs.",
            ),
            start(
                Command::Probe,
                "Run the probe…",
                "Reproduce fragmentation, a leak and an OOM, on a simulated card or this one, and see how each looks.",
            ),
            start(Command::CompareFiles, "Compare two recordings…", "What only one of them holds, by call stack."),
            start(Command::Tour, &Command::Tour.text(), Command::Tour.tooltip()),
        ],
        recents: app
            .settings
            .recents
            .iter()
            .map(|r| FileRow {
                name: r.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                path: r.path.display().to_string(),
                sentence: told(r),
                peak_reserved: r.peak_reserved,
                is_watch: r.is_watch,
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
                    is_watch: line.is_watch,
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

/// The line of a recent file: its peak or failure, and the first finding.
fn told(recent: &Recent) -> String {
    let first = recent.sentence.split_once(", ").map_or(recent.sentence.as_str(), |(first, _)| first);
    match recent.finding.strip_prefix("Out of memory: ").unwrap_or(&recent.finding) {
        "" => recent.sentence.clone(),
        finding => format!("{first}. {}", capital(finding)),
    }
}
