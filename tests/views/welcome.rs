//! The welcome page: pictures and intents.

use crate::pictures::{Pictures, builder};
use egui::Theme;
use egui_kittest::kittest::Queryable as _;
use egui_kittest::{Harness, SnapshotOptions};
use vramscope::app::pages::welcome::{FileRow, StartEntry, WelcomeIntent, WelcomeModel, open_entry, welcome_ui};
use vramscope::app::platform::machine::{MachineDevice, MachineState};
use vramscope::app::state::Command;
use vramscope::app::theme;
use vramscope::app::widgets::Sparkline;
use vramscope_core::units::MEBIBYTE;

fn file(name: &str, sentence: &str, peak_mib: u64, events: u64, oom: bool, shape: impl Fn(f32) -> (f32, f32)) -> FileRow {
    let (reserved, allocated) = (0..96).map(|i| shape(i as f32 / 95.0)).unzip();
    FileRow {
        name: name.into(),
        path: String::new(),
        sentence: sentence.into(),
        peak_reserved: peak_mib * MEBIBYTE,
        is_watch: events == 0,
        events,
        sparkline: Sparkline { reserved, allocated, oom },
    }
}

fn start(title: &str, text: &str, shortcut: &str, command: Command) -> StartEntry {
    StartEntry { title: title.into(), text: text.into(), shortcut: shortcut.into(), command }
}

fn model() -> WelcomeModel {
    let ramp = |x: f32| ((0.1 + 2.0 * x).min(1.0), (0.1 + 0.8 * x).min(0.75) + 0.05 * (x * 40.0).sin());
    let step = |x: f32| (if x < 0.1 { 0.2 } else { 1.0 }, 0.3 + 0.6 * (x * 9.0).sin().abs());
    WelcomeModel {
        starts: vec![
            open_entry("Ctrl O"),
            start(
                "Attach to a running process…",
                "Watch every byte of a device, split by process.",
                "Ctrl L",
                Command::WatchMachine,
            ),
            start("Explain an OOM message…", "Paste the text of the error. No file needed.", "Ctrl E", Command::Explain),
            start(
                "Run the probe…",
                "Reproduce fragmentation, a leak and an OOM on this card, and see how each looks.",
                "Ctrl P",
                Command::Probe,
            ),
            start("Compare two recordings…", "What only one of them holds, by call stack.", "Ctrl D", Command::CompareFiles),
        ],
        recents: vec![
            file("kv_decode.at_oom.pickle", "5.58 MiB did not fit into 133.65 MiB of holes", 1080, 27_909, true, ramp),
            file("fragment_oom.at_oom.pickle", "500 MiB did not fit into 609.98 MiB of holes", 1600, 177, true, step),
            file("gpt_varlen.pickle", "40 training steps, 1,036 MiB reserved and never used", 4468, 54_285, false, step),
        ],
        samples: vec![
            file("leak.pickle", "Losses kept with their graph: grows with every step", 250, 1_144, false, |x| (x, x * 0.9)),
            file("resnet.pickle", "ResNet-50 with C++ and Python stacks", 3514, 7_648, false, step),
            file("live.vramscope", "Four programs on one card, watched for two minutes", 41_984, 0, false, step),
        ],
        watched: String::new(),
        machine: MachineState::Devices(vec![MachineDevice {
            name: "GPU 0, NVIDIA H200".into(),
            used: 615 * MEBIBYTE,
            total: 143_771 * MEBIBYTE,
            sentence: "Idle: only the driver's own share is in use.".into(),
        }]),
    }
}

struct State {
    model: WelcomeModel,
    asked: Vec<WelcomeIntent>,
}

fn page(ui: &mut egui::Ui, s: &mut State) {
    let all = ui.content_rect();
    let mut ui = ui.new_child(egui::UiBuilder::new().max_rect(all));
    ui.set_clip_rect(all);
    ui.painter().rect_filled(all, 0, theme::Tokens::of(&ui).s1);
    s.asked.extend(welcome_ui(&mut ui, &s.model));
}

fn harness<'a>(size: [f32; 2], theme: Theme, model: WelcomeModel) -> Harness<'a, State> {
    let b = builder()
        .with_size(size)
        .with_theme(theme)
        .with_options(SnapshotOptions::new().threshold(0.6).max_failed_pixels(10))
        .with_context_setup(theme::install);
    let mut h = b.build_ui_state(page, State { model, asked: Vec::new() });
    h.run();
    h
}

#[test]
fn pictures() {
    let mut pictures = Pictures::new();
    let bare = WelcomeModel { starts: vec![open_entry("Ctrl O")], ..Default::default() };
    pictures.compare("welcome_wide_dark", harness([1600.0, 1000.0], Theme::Dark, model()));
    pictures.compare("welcome_narrow_light", harness([1000.0, 700.0], Theme::Light, model()));
    pictures.compare("welcome_bare", harness([1000.0, 700.0], Theme::Dark, bare));
}

#[test]
fn every_row_asks_for_what_it_says() {
    let mut h = harness([1600.0, 1000.0], Theme::Dark, model());
    h.get_by_label("Open a recording…").click();
    h.run();
    h.get_by_label("Run the probe…").click();
    h.run();
    h.get_by_label_contains("gpt_varlen.pickle").click();
    h.run();
    h.get_by_label_contains("resnet.pickle").click();
    h.run();
    h.get_by_label("Path of a recording").click();
    h.run();
    h.get_by_label("Path of a recording").type_text(" ~/run.pickle ");
    h.run();
    h.get_by_label("Open").click();
    h.run();
    use WelcomeIntent::*;
    assert_eq!(
        h.state().asked,
        [Run(Command::Open), Run(Command::Probe), OpenRecent(2), OpenSample(1), OpenPath("~/run.pickle".into())]
    );
}

#[test]
fn the_peak_of_a_watch_is_of_what_the_card_used() {
    let h = harness([1600.0, 1000.0], Theme::Dark, model());
    h.get_by_label_contains(&format!("two minutes, used at most {}", vramscope_core::units::Bytes(41_984 * MEBIBYTE)));
    h.get_by_label_contains(&format!("stacks, peak reserved {}", vramscope_core::units::Bytes(3514 * MEBIBYTE)));
}

#[test]
fn a_recipe_is_chosen_and_copied() {
    let mut h = harness([1600.0, 1000.0], Theme::Dark, model());
    h.get_by_label("At the OOM").click();
    h.run();
    h.get_by_label("Copy").click();
    h.step();
    let copied = h
        .output()
        .platform_output
        .commands
        .iter()
        .any(|c| matches!(c, egui::OutputCommand::CopyText(text) if text.contains("_cuda_attach_out_of_memory_observer")));
    assert!(copied);
    assert!(h.query_by_label_contains("never").is_some());
}

#[test]
fn a_machine_nobody_knows_is_not_shown() {
    let mut bare = model();
    bare.machine = MachineState::Unknown;
    let h = harness([1600.0, 1000.0], Theme::Light, bare);
    assert!(h.query_by_label("This machine").is_none());
    let mut none = model();
    none.machine = MachineState::NoDriver("No NVIDIA driver on this machine. Recordings and samples open all the same.".into());
    let h = harness([1600.0, 1000.0], Theme::Light, none);
    assert!(h.query_by_label("This machine").is_some());
}
