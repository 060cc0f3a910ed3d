//! Every scenario on simulated memory: Findings calls its recording by its name.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::model::{Progress, Recording};
use crate::probe::{Card, Options, Recorder, Report, SimulatedCard, perform};

fn run(scenario: &Scenario, values: &Values) -> (Report, Recording) {
    let mut opening = Vec::new();
    let card = SimulatedCard::open(&mut |stage, sample| opening.push((stage.to_owned(), sample)));
    let room = Room { total: card.info().total, free: card.info().free };
    let program = (scenario.build)(values, &room);
    let mut options = Options::new(scenario.name);
    options.conf = scenario.conf.to_owned();
    options.start_us = 1_700_000_000_000_000;
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
    // A pool that keeps nothing, and batches that need no rounding, are the cure.
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
            let tables = crate::analysis::DeviceTables::build(device, &Progress::new()).unwrap();
            let last = device.events.len() as u32 - 1;
            let state = tables.states.at(device, &tables.lifetimes, last);
            assert_eq!(state.totals.reserved, device.final_reserved(), "{} {}", scenario.name, device.id);
            let before = tables.states.at(device, &tables.lifetimes, 0).totals.reserved;
            assert!(before <= tables.curves.peak(crate::analysis::Quantity::Reserved).0, "{}", scenario.name);
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
