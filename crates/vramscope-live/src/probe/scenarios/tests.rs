//! Runs every scenario on simulated memory and checks that the first finding has its name.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::probe::card::{Outside, SIMULATED_TOTAL, SimulatedCard};
use crate::probe::perform::{Options, perform};
use crate::probe::program::Step;
use crate::probe::{Recorder, Report};
use vramscope_core::formats::export::snapshot::DevicePart;
use vramscope_core::model::{Progress, Recording};

fn run(scenario: &Scenario, values: &Values) -> (Report, Recording) {
    let mut opening = Vec::new();
    let card = SimulatedCard::open_with(SIMULATED_TOTAL, &mut |stage, sample| opening.push((stage.to_owned(), sample)));
    let room = Room { total: card.info().total, free: card.info().free };
    let program = (scenario.build)(values, &room).unwrap_or_else(|e| panic!("{}: {e}", scenario.name));
    let options = Options {
        scenario: scenario.name.to_owned(),
        parameters: String::new(),
        conf: scenario.conf.to_owned(),
        limit: None,
        pace: std::time::Duration::ZERO,
        start_us: 1_700_000_000_000_000,
    };
    let mut recorder = Recorder::default();
    perform(card, &opening, &program, &options, &AtomicBool::new(false), &mut |m| recorder.take(&m));
    Report::of(recorder).unwrap_or_else(|e| panic!("{}: {e}", scenario.name))
}

#[test]
fn findings_calls_each_recording_by_its_scenarios_name() {
    let wrong: Vec<String> = ALL
        .iter()
        .filter_map(|s| {
            let (report, recording) = run(s, &Values::of(s));
            let device = &recording.devices[0];
            eprintln!("{}: {} events, {:?}, end {:?}", s.name, device.events.len(), report.diagnosis, report.end.ending);
            assert_eq!(report.end.driver_difference_bytes.unwrap_or(0), 0, "{}", s.name);
            (!report.as_expected).then(|| format!("{} is called {}", s.name, report.diagnosis))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn the_file_that_is_written_is_called_by_the_same_name() {
    for scenario in ALL {
        let (report, recording) = run(scenario, &Values::of(scenario));
        let parts: Vec<_> = (0..recording.devices.len()).filter_map(|i| DevicePart::whole(&recording, i)).collect();
        let mut bytes = Vec::new();
        vramscope_core::formats::export::snapshot::write(&recording, &parts, false, &mut bytes).unwrap();
        let read = vramscope_core::formats::read(&bytes, scenario.name, &Progress::new()).unwrap();
        let found = crate::probe::diagnosis::diagnosis(&read, &Progress::new()).unwrap();
        assert_eq!((found.name.as_str(), report.diagnosis.as_str()), (scenario.name, scenario.name));
    }
}

#[test]
fn a_value_is_used_exactly_or_refused_in_one_sentence() {
    let room = Room { total: 24 << 30, free: (24 << 30) - (540 << 20) };
    let build = |name: &str, settings: &[&str]| {
        let scenario = Scenario::find(name).unwrap();
        let mut values = Values::of(scenario);
        settings.iter().for_each(|s| values.set(s).unwrap());
        (scenario.build)(&values, &room)
    };
    for (name, settings, words) in [
        ("fragmentation", &["memory=64GiB"][..], "memory is 64 GiB"),
        ("healthy", &["memory=4GiB", "request=2GiB"], "at most a quarter of memory"),
        ("capacity", &["block=64GiB"], "block is 64 GiB"),
        ("cap", &["block=4GiB"], "one block must fit"),
        ("non_pytorch", &["reserved=16GiB"], "at most a quarter"),
        ("contention", &["processes=8"], "percent is at most 12"),
        ("pool_retention", &["size=65MiB"], "multiple of 32 MiB"),
    ] {
        let sentence = build(name, settings).unwrap_err().replace('\u{a0}', " ");
        assert!(sentence.contains(words), "{name}: {sentence}");
    }
    let sizes = |program: &Program| -> Vec<u64> {
        program.steps.iter().filter_map(|s| if let Step::Alloc { size, .. } = s { Some(*size) } else { None }).collect()
    };
    let program = build("fragmentation", &["memory=8GiB", "request=700MiB"]).unwrap();
    assert_eq!((program.limit, sizes(&program).last().copied()), (Some(8 << 30), Some(700 << 20)));
    let held: u64 = sizes(&build("non_pytorch", &["reserved=1001MiB"]).unwrap())[..4].iter().sum();
    assert_eq!(held, 1001 << 20);
}

#[test]
fn other_seeds_give_the_same_diagnosis() {
    for scenario in ALL.iter().filter(|s| s.params.contains(&SEED)) {
        for seed in [2, 77, 123_456_789] {
            let mut values = Values::of(scenario);
            values.set(&format!("seed={seed}")).unwrap();
            assert_eq!(run(scenario, &values).0.diagnosis, scenario.name, "seed {seed}");
        }
    }
}

#[test]
fn the_least_of_each_parameter_still_shows_the_problem() {
    // A pool that keeps nothing, or batches that need no rounding, avoid the problem.
    let cures = [("pool_retention", "keep"), ("pinned_host", "batch"), ("pinned_host", "prefetched")];
    for scenario in ALL {
        for param in scenario.params.iter().filter(|p| !cures.contains(&(scenario.name, p.name))) {
            let mut values = Values::of(scenario);
            values.set(&format!("{}={}", param.name, param.range.0)).unwrap();
            assert_eq!(run(scenario, &values).0.diagnosis, scenario.name, "{} at {}", param.name, param.range.0);
        }
    }
}

#[test]
fn a_pool_that_does_not_keep_gives_its_memory_back() {
    let scenario = Scenario::find("pool_retention").unwrap();
    let mut values = Values::of(scenario);
    values.set("keep=0").unwrap();
    let (report, recording) = run(scenario, &values);
    assert_ne!(report.diagnosis, "pool_retention");
    assert_eq!(recording.devices[0].final_reserved(), 0);
}

#[test]
fn every_recording_agrees_with_itself() {
    for scenario in ALL {
        let (_, recording) = run(scenario, &Values::of(scenario));
        for device in &recording.devices {
            let tables = vramscope_core::tables::DeviceTables::build(device, &Progress::new()).unwrap();
            let last = device.events.len() as u32 - 1;
            let state = tables.states.at(device, &tables.lifetimes, last);
            assert_eq!(state.totals.reserved, device.final_reserved(), "{} {}", scenario.name, device.id);
            let before = tables.states.at(device, &tables.lifetimes, 0).totals.reserved;
            assert!(before <= tables.curves.peak(vramscope_core::tables::Quantity::Reserved).0, "{}", scenario.name);
        }
    }
}

#[test]
fn parameters_are_checked() {
    let scenario = Scenario::find("leak").unwrap();
    let mut values = Values::of(scenario);
    values.set("size=1GiB").unwrap();
    assert_eq!(values.get("size"), 1 << 30);
    assert!(values.set("size=1").unwrap_err().contains("size is 1"), "{:?}", values.set("size=1"));
    assert!(values.set("colour=red").unwrap_err().contains("size, steps"));
    assert!(values.set("steps").is_err());
    assert!(values.set("steps=50 %").unwrap_err().contains("whole number"));
    values = Values::of(Scenario::find("cap").unwrap());
    values.set("percent=50 %").unwrap();
    assert_eq!(values.get("percent"), 50);
    assert!(Scenario::find("nothing").unwrap_err().contains("fragmentation"));
    for s in ALL {
        assert!(s.watch.ends_with('.') && s.shows.ends_with('.'), "{}", s.name);
        for p in s.params {
            assert!((p.range.0..=p.range.1).contains(&p.default), "{} {}", s.name, p.name);
        }
    }
}
