//! The live view: pictures and texts.
use std::sync::Arc;

use crate::alone::alone;
use crate::pictures::Pictures;
use egui::Theme;
use egui_kittest::kittest::Queryable as _;
use vramscope::app::data::device::DeviceData;
use vramscope::app::data::device::prepare;
use vramscope::app::state::{Action, LiveAction, LiveStatus, ViewKind};
use vramscope_core::formats::session::{
    Attached, Costs, DeviceFacts, DeviceGauge, History, MarkPoint, MemoryPoint, ProcessFacts, ProcessList, Record, TorchPoint,
    Trouble,
};
use vramscope_core::model::{CallCost, MarkKind, Progress, Reading, TorchFigures};

const MIB: u64 = 1 << 20;
/// 01:55:40 UTC on some day.
const START: i64 = 1_795_226_140_000_000;

/// Stages of a real run on an H200: seconds, other process, reserved, allocated, outside, mark; in MiB.
const STAGES: &[(f64, u64, u64, u64, u64, &str)] = &[
    (0.5, 0, 180, 100, 676, "first matmul"),
    (1.0, 0, 212, 197, 2732, "2 GiB by raw cudaMalloc"),
    (3.5, 3590, 212, 197, 2732, ""),
    (4.0, 3590, 2212, 2197, 2732, "20 tensors of 100 MiB"),
    (6.0, 3590, 2212, 197, 2732, "freed, kept in cache"),
    (8.0, 3590, 212, 197, 2732, "empty_cache"),
    (18.3, 0, 212, 197, 2732, ""),
    (19.3, 0, 212, 197, 2732, ""),
];

fn history(until: f64) -> History {
    let mut h = History::new();
    let facts = vec![("driver".into(), "580.159".into()), ("ECC".into(), "on".into())];
    let name = "NVIDIA H200".to_owned();
    h.add(Record::Device(DeviceFacts { uuid: "GPU-0".into(), name, total: 143_771 * MIB, facts, ..DeviceFacts::default() }));
    for (pid, started, command) in [(400, 1, "python live_run.py"), (423, 2, "python live_run.py other")] {
        let command = command.to_owned();
        h.add(Record::Process(ProcessFacts { pid, started, command, user: "ada".into(), ..ProcessFacts::default() }));
    }
    h.add(Record::Attached(Attached { t: START, pid: 400, facts: vec![("PyTorch".into(), "2.11.0".into())] }));
    let mut told = 0;
    for i in 0..(until * 20.0) as i64 {
        let (t, seconds) = (START + i * 50_000, i as f64 / 20.0);
        let stage = STAGES.iter().rposition(|s| s.0 <= seconds);
        let mut list = Vec::new();
        let mut used = 615;
        if let Some(at) = stage {
            let (_, other, reserved, allocated, outside, text) = STAGES[at];
            let m = TorchFigures {
                reserved: reserved * MIB,
                active: allocated * MIB,
                allocated: allocated * MIB,
                requested: allocated * MIB,
                allocated_peak: 2197 * MIB,
                ..TorchFigures::default()
            };
            h.add(Record::Torch(TorchPoint { d: 0, t, pid: 400, m }));
            list.push((400, 1, Some((reserved + outside) * MIB)));
            used += reserved + outside + 9;
            if other > 0 {
                list.push((423, 2, Some(other * MIB)));
                used += other + 5;
            }
            if told <= at && !text.is_empty() {
                h.add(Record::Mark(MarkPoint { d: None, t, kind: MarkKind::Program, text: text.into() }));
            }
            told = told.max(at + 1);
        }
        h.add(Record::Processes(ProcessList { d: 0, t, p: list }));
        h.add(Record::Memory(MemoryPoint { d: 0, t, total: 143_771 * MIB, used: used * MIB, driver: Some(615 * MIB) }));
        if i % 4 == 0 {
            let g = Reading { time_us: t, busy: Some(12), temperature: Some(34), power_mw: Some(122_000), ..Reading::default() };
            h.add(Record::Gauge(DeviceGauge { d: 0, g }));
        }
    }
    let cost = |call: &str, mean_us: f64, hz: f64| CallCost {
        call: call.into(),
        count: 9,
        mean_us,
        p95_us: mean_us,
        hz,
        is_slowed: false,
    };
    let calls = vec![cost("memory", 8.0, 20.0), cost("compute processes", 28.0, 1.0)];
    h.add(Record::Costs(Costs { calls, cpu: Some(0.004) }));
    h
}

fn data(h: &History) -> Arc<DeviceData> {
    prepare(&Arc::new(h.recording("live")), 0, &Progress::new()).unwrap()
}

#[test]
fn picture() {
    let mut pictures = Pictures::new();
    pictures.compare("live_dark", alone(&data(&history(19.3)), ViewKind::Live, Theme::Dark, [900.0, 560.0], |_| {}));
}

#[test]
fn the_words_have_the_figures_of_the_session() {
    let h = alone(&data(&history(10.0)), ViewKind::Live, Theme::Dark, [1400.0, 820.0], |_| {});
    let spoken = "7.00 GiB of 140.40 GiB in use: driver 615 MiB, other processes 3.51 GiB, unattributed 14 MiB, outside PyTorch \
        2.67 GiB, allocated 197 MiB, cached 15 MiB";
    let all: Vec<String> = h.query_all_by_label_contains("in use:").map(|n| format!("{n:?}").replace("\\u{a0}", " ")).collect();
    assert!(all.iter().any(|n| n.contains(spoken)), "{all:?}");
    assert!(h.query_all_by_label_contains("Process 400 python live_run.py").next().is_some());
    assert!(h.query_all_by_label_contains("Process 423").next().is_some());
}

#[test]
fn a_click_on_a_process_asks_what_leads_into_it() {
    let change = |link: &mut vramscope::app::state::shared::SharedViewState| {
        link.live = Some(Arc::new(LiveStatus { rate: 10.0, ..LiveStatus::default() }))
    };
    let mut h = alone(&data(&history(10.0)), ViewKind::Live, Theme::Dark, [1400.0, 820.0], change);
    h.get_by_label_contains("Process 423").click();
    h.run_steps(3);
    let asked = &h.state().asked;
    assert!(asked.contains(&Action::Live(LiveAction::Look(423))), "{asked:?}");
}

#[test]
fn a_lost_device_keeps_its_picture_under_a_sentence_and_no_device_is_one_sentence() {
    let mut lost = history(5.0);
    let sentence = Some("The GPU fell off the bus.".to_owned());
    lost.add(Record::Trouble(Trouble { d: Some(0), t: START + 6_000_000, sentence: sentence.clone() }));
    let h = alone(&data(&lost), ViewKind::Live, Theme::Dark, [1200.0, 700.0], |_| {});
    assert!(h.query_all_by_label_contains("Memory over time").next().is_some());
    let mut none = History::new();
    none.add(Record::Trouble(Trouble { d: None, t: START, sentence: Some("No NVIDIA driver on this machine.".into()) }));
    let h = alone(&data(&none), ViewKind::Live, Theme::Dark, [1200.0, 700.0], |_| {});
    assert!(h.query_all_by_label_contains("No NVIDIA driver on this machine.").next().is_some());
}

#[test]
fn narrow_and_low_panes_draw_without_a_panic() {
    let data = data(&history(19.3));
    for size in [[1000.0, 400.0], [640.0, 360.0], [300.0, 200.0], [120.0, 120.0]] {
        let _ = alone(&data, ViewKind::Live, Theme::Light, size, |_| {});
    }
}

#[test]
fn watching_needs_nothing_open_and_ends_with_its_tab() {
    use vramscope::app::state::command::{Command, Needs};
    assert_eq!(Command::WatchMachine.needs(), Needs::Nothing);
    assert!(Command::all().contains(&Command::WatchMachine));
}

#[test]
fn a_watch_without_events_is_told_in_every_view() {
    let data = data(&history(19.3));
    let says = |kind, text: &str| {
        let h = alone(&data, kind, Theme::Dark, [420.0, 900.0], |_| {});
        let all: Vec<String> = h.query_all_by_label_contains("").map(|n| format!("{n:?}").replace("\\u{a0}", " ")).collect();
        assert!(all.iter().any(|n| n.contains(text)), "{kind:?} does not say {text}: {all:?}");
    };
    says(ViewKind::Findings, "At its fullest the card held 8.95 GiB of 140.40 GiB.");
    says(ViewKind::Findings, "Least was free then: 131.45 GiB.");
    says(ViewKind::Findings, "400 python live_run.py");
    says(ViewKind::Accounting, "3.48 GiB of 140.40 GiB were in use at the end. PyTorch reserves 212 MiB and has 197 MiB of it");
    says(ViewKind::Contents, "samples: 386");
    says(ViewKind::Inspector, "The card at the end");
    says(ViewKind::Timeline, "Memory of the card over time. 3.48 GiB of 140.40 GiB in use");
    // At another instant, every view follows.
    let at = |link: &mut vramscope::app::state::shared::SharedViewState| link.instant_us = Some(START + 5_000_000);
    let h = alone(&data, ViewKind::Accounting, Theme::Dark, [420.0, 900.0], at);
    assert!(h.query_all_by_label_contains("8.95\u{a0}GiB of 140.40\u{a0}GiB were in use 01:55:45").next().is_some());
    let mut h = alone(&data, ViewKind::Timeline, Theme::Dark, [800.0, 400.0], |_| {});
    h.get_by_label_contains("Memory of the card").click();
    h.run_steps(3);
    assert!(h.state().asked.iter().any(|a| matches!(a, Action::SetInstant(Some(t)) if (START..START + 19_300_000).contains(t))));
}

#[test]
fn the_samples_of_a_watch_stand_under_a_snapshot() {
    let mut pictures = Pictures::new();
    let snapshot = crate::alone::sample("gpt_train.pickle");
    let mut recording = vramscope_core::model::Recording::clone(&snapshot.recording);
    let (first, last) = recording.devices[0].events.time_range().unwrap();
    let mut watch = history(19.3).recording("watch");
    // Moves the watch to the time of the run: 20 samples per second, from one second before to one second after.
    for device in &mut watch.devices {
        let place = |t: i64| first - 1_000_000 + (t - START) * (last - first + 2_000_000) / 19_300_000;
        device.samples.iter_mut().for_each(|s| s.time_us = place(s.time_us));
        device.live.iter_mut().flat_map(|l| &mut l.marks).for_each(|m| m.time_us = place(m.time_us));
    }
    let laid = vramscope_core::compare::join::lay_under(&mut recording, &watch, &Default::default()).unwrap();
    assert_eq!((laid.samples, laid.pid), (386, Some(400)));
    let data = prepare(&Arc::new(recording), 0, &Progress::new()).unwrap();
    let time = |link: &mut vramscope::app::state::shared::SharedViewState| {
        link.axis = vramscope::app::state::shared::Axis::Time;
        link.to = 5_300_000.0;
    };
    pictures.compare("timeline_card_dark", alone(&data, ViewKind::Timeline, Theme::Dark, [900.0, 420.0], time));
}
