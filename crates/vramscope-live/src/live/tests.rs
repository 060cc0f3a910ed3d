//! Tests the sampler against a driver with every known misbehaviour.

use std::time::Duration;

use super::fake::Rehearsal;
use super::rates::Rates;
use super::source::{GpuError, GpuEvent, GpuProcess};
use vramscope_core::formats::session::{History, Record};
use vramscope_core::model::{MarkKind, Recording};

const SECOND: Duration = Duration::from_secs(1);

fn memory_count(records: &[Record]) -> usize {
    records.iter().filter(|r| matches!(r, Record::Memory(_))).count()
}

fn troubles(records: &[Record]) -> Vec<Option<String>> {
    records.iter().filter_map(|r| if let Record::Trouble(t) = r { Some(t.sentence.clone()) } else { None }).collect()
}

fn recording(records: &[Record]) -> Recording {
    let mut history = History::new();
    records.iter().cloned().for_each(|r| history.add(r));
    history.recording("rehearsal")
}

#[test]
fn the_default_rates_are_kept() {
    let mut r = Rehearsal::new(Rates::default());
    let seen = r.pass(10 * SECOND);
    let memory = memory_count(&seen);
    assert!((99..=101).contains(&memory), "{memory}");
    let gauges = seen.iter().filter(|r| matches!(r, Record::Gauge(_))).count();
    assert!((49..=52).contains(&gauges), "{gauges}");
    assert!((10..=12).contains(&r.driver.get(|s| s.list_calls)));
    assert!(!seen.iter().any(|r| matches!(r, Record::Lost(_))));
    let live = recording(&seen).devices[0].live.clone().unwrap();
    assert!(live.costs.iter().any(|c| c.call == "memory" && c.count > 40 && c.mean_us < 8.0), "{:?}", live.costs);
}

#[test]
fn no_driver_is_one_sentence_and_the_driver_may_come_later() {
    for error in [
        GpuError::NoDriver,
        GpuError::BadLibrary("file too short".into()),
        GpuError::DriverNotLoaded,
        GpuError::VersionMismatch,
        GpuError::NoPermission,
        GpuError::NoDevices,
        GpuError::Other("with code 23".into()),
    ] {
        let mut r = Rehearsal::new(Rates::default());
        r.driver.set(|s| s.open_error = Some(error.clone()));
        let seen = r.pass(30 * SECOND);
        assert_eq!(troubles(&seen), [Some(error.to_string())], "said once");
        assert_eq!(memory_count(&seen), 0);
        r.driver.set(|s| s.open_error = None);
        let seen = r.pass(10 * SECOND);
        assert_eq!(troubles(&seen), [None], "well again after {error:?}");
        assert!(memory_count(&seen) > 40);
    }
}

#[test]
fn a_gpu_that_is_lost_comes_back_with_a_gap() {
    for error in [GpuError::Lost, GpuError::ResetRequired] {
        let mut r = Rehearsal::new(Rates::default());
        r.pass(3 * SECOND);
        r.driver.set(|s| s.memory_error = Some(error.clone()));
        let lost = r.pass(20 * SECOND);
        assert_eq!((memory_count(&lost), troubles(&lost)), (0, vec![Some(error.to_string())]));
        assert!(r.driver.get(|s| s.reopened) > 0, "asked again from the start");
        let during = recording(&r.records);
        assert_eq!(during.devices[0].live.as_ref().unwrap().trouble, Some(error.to_string()));
        r.driver.set(|s| s.memory_error = None);
        r.pass(10 * SECOND);
        let after = recording(&r.records);
        let live = after.devices[0].live.as_ref().unwrap();
        assert!((195..=260).contains(&live.lost), "20 s at 10 a second and until it was asked again: {}", live.lost);
        assert_eq!((live.trouble.clone(), live.gaps.len()), (None, 1), "{:?}", live.gaps);
        assert!(live.gaps[0].to_us - live.gaps[0].from_us > 15_000_000);
        assert_eq!(live.marks.iter().filter(|m| m.kind == MarkKind::Device).count(), 2, "{:?}", live.marks);
        assert_eq!(after.devices.len(), 1, "the same device by its UUID");
    }
}

#[test]
fn what_a_device_can_not_tell_is_a_limit_and_nothing_more() {
    for error in [
        GpuError::NotSupported("which processes use it"),
        GpuError::NoSymbol("which processes use it"),
        GpuError::NoPermission,
        GpuError::BrokenProcessList("535.54".into()),
    ] {
        let mut r = Rehearsal::new(Rates::default());
        r.driver.set(|s| {
            s.process_error = Some(error.clone());
            s.busy_error = Some(GpuError::NotSupported("how busy it is"));
        });
        let seen = r.pass(10 * SECOND);
        assert!(memory_count(&seen) > 90, "memory goes on with {error:?}");
        let live = recording(&seen).devices[0].live.clone().unwrap();
        // Everything else is reported, so only permission for the list is missing.
        let sentence = match error {
            GpuError::NoPermission => "This user may not see which processes use it.".to_owned(),
            _ => error.to_string(),
        };
        assert_eq!(live.limits.iter().filter(|l| **l == sentence).count(), 1, "{:?}", live.limits);
        if error.is_lasting() {
            assert!(r.driver.get(|s| s.list_calls) <= 3, "not asked again for {error:?}");
        }
    }
}

#[test]
fn a_list_that_fails_later_is_not_drawn_as_current() {
    let mut r = Rehearsal::new(Rates::default());
    r.driver.set(|s| s.compute = vec![GpuProcess { pid: 14_190, used: Some(30 << 20) }]);
    r.pass(3 * SECOND);
    let before = recording(&r.records);
    let listed = before.devices[0].samples.last().and_then(|s| s.bands(before.devices[0].capacity.unwrap())).unwrap();
    assert!(listed.others > 0, "{listed:?}");
    r.driver.set(|s| s.process_error = Some(GpuError::NoPermission));
    r.pass(6 * SECOND);
    let after = recording(&r.records);
    let device = &after.devices[0];
    let live = device.live.as_ref().unwrap();
    let (since, last) = (live.unlisted_us.unwrap(), device.samples.last().unwrap());
    assert!((4_500_000..=6_100_000).contains(&(last.time_us - since)), "{}", last.time_us - since);
    let bands = last.bands(device.capacity.unwrap()).unwrap();
    assert_eq!((bands.others, bands.unattributed), (0, listed.unattributed + listed.others), "nobody is said to hold it");
    assert!(live.processes.iter().all(|p| p.ended_us.is_none() && p.at(last.time_us).unwrap().used.is_none()));
    assert_eq!(live.limits.iter().filter(|l| l.contains("stopped telling")).count(), 1, "{:?}", live.limits);
    assert!(!live.limits.iter().any(|l| l.contains("may not see")), "{:?}", live.limits);
    r.driver.set(|s| s.process_error = None);
    r.pass(3 * SECOND);
    let again = recording(&r.records);
    let live = again.devices[0].live.as_ref().unwrap();
    assert!(live.unlisted_us.is_none() && !live.limits.iter().any(|l| l.contains("stopped telling")), "{:?}", live.limits);
    let last = again.devices[0].samples.last().unwrap().bands(again.devices[0].capacity.unwrap()).unwrap();
    assert_eq!(last.others, listed.others);
}

#[test]
fn no_data_is_not_an_error() {
    let mut r = Rehearsal::new(Rates::default());
    r.driver.set(|s| (s.busy_error, s.climate_error) = (Some(GpuError::NoData), Some(GpuError::NoData)));
    let seen = r.pass(5 * SECOND);
    let live = recording(&seen).devices[0].live.clone().unwrap();
    assert_eq!((live.limits.len(), live.trouble), (0, None));
}

#[test]
fn a_device_that_is_not_ours_leaves_a_sentence() {
    let mut r = Rehearsal::new(Rates::default());
    r.driver.set(|s| s.device_error = Some(GpuError::NoPermission));
    assert_eq!(troubles(&r.pass(3 * SECOND)), [Some(GpuError::NoPermission.to_string())]);
}

#[test]
fn a_process_in_two_lists_is_one_and_unknown_bytes_are_not_zero() {
    let mut r = Rehearsal::new(Rates::default());
    r.driver.set(|s| {
        s.compute = vec![GpuProcess { pid: 10, used: Some(5 << 20) }, GpuProcess { pid: 11, used: None }];
        s.graphics = vec![GpuProcess { pid: 10, used: Some(7 << 20) }];
    });
    let device = &recording(&r.pass(3 * SECOND)).devices[0];
    let live = device.live.as_ref().unwrap();
    let last: Vec<_> = live.processes.iter().map(|p| (p.pid, p.points.last().unwrap().used)).collect();
    assert_eq!(last, [(10, Some(7 << 20)), (11, None)]);
    assert!(live.limits.iter().any(|l| l.contains("does not tell the bytes")), "{:?}", live.limits);
    let sample = device.samples.last().unwrap();
    assert_eq!(sample.others, Some(7 << 20));
    let bands = sample.bands(device.capacity.unwrap()).unwrap();
    assert_eq!(bands.used() + bands.free, device.capacity.unwrap());
}

#[test]
fn memory_that_jumps_reads_the_list_at_once() {
    let mut r = Rehearsal::new(Rates::default());
    r.pass(3 * SECOND + Duration::from_millis(350));
    let before = r.driver.get(|s| s.list_calls);
    r.driver.set(|s| {
        s.used += 64 << 20;
        s.compute = vec![GpuProcess { pid: 5, used: Some(64 << 20) }];
    });
    let seen = r.pass(Duration::from_millis(150));
    assert_eq!(r.driver.get(|s| s.list_calls), before + 1);
    let list = seen.iter().position(|r| matches!(r, Record::Processes(_))).unwrap();
    let memory = seen.iter().rposition(|r| matches!(r, Record::Memory(_))).unwrap();
    assert!(list < memory, "who it was stands before the figure it explains");
}

#[test]
fn processes_start_and_end_with_a_mark() {
    let mut r = Rehearsal::new(Rates::default());
    r.pass(2 * SECOND);
    r.driver.set(|s| s.compute = vec![GpuProcess { pid: 9, used: Some(1) }]);
    r.pass(2 * SECOND);
    r.driver.set(|s| s.compute.clear());
    r.pass(2 * SECOND);
    let live = recording(&r.records).devices[0].live.clone().unwrap();
    let texts: Vec<&str> = live.marks.iter().map(|m| m.text.as_ref()).collect();
    assert_eq!(texts, ["process 9 starts", "process 9 ends"]);
    assert!(live.processes[0].ended_us.is_some());
    assert!(live.processes[0].at(i64::MAX).is_none());
}

#[test]
fn a_slow_driver_is_asked_less_often_and_the_cost_is_told() {
    let mut r = Rehearsal::new(Rates::with_memory(50.0));
    r.driver.set(|s| s.memory_cost = Duration::from_millis(40));
    r.pass(30 * SECOND);
    let live = recording(&r.records).devices[0].live.clone().unwrap();
    let memory = live.costs.iter().find(|c| c.call == "memory").unwrap();
    assert!(memory.is_slowed && memory.hz < 5.0 && memory.p95_us >= 40_000.0, "{memory:?}");
}

#[test]
fn a_clock_set_forward_or_back_leaves_times_in_order() {
    for jump in [3_600_000_000i64, -3_600_000_000] {
        let mut r = Rehearsal::new(Rates::default());
        r.pass(2 * SECOND);
        r.clock.wall_us.set(r.clock.wall_us.get() + jump);
        r.pass(5 * SECOND);
        let device = recording(&r.records).devices[0].clone();
        assert!(device.samples.windows(2).all(|w| w[0].time_us < w[1].time_us));
        let live = device.live.unwrap();
        assert_eq!(live.marks.iter().filter(|m| m.kind == MarkKind::Clock).count(), 1, "said once: {:?}", live.marks);
        assert_eq!(live.gaps.len(), usize::from(jump > 0));
    }
}

#[test]
fn a_nap_of_the_machine_is_lost_samples_not_a_burst() {
    let mut r = Rehearsal::new(Rates::default());
    r.pass(2 * SECOND);
    // The thread was not scheduled for two seconds.
    r.clock.now.set(r.clock.now.get() + 2 * SECOND);
    let seen = r.pass(Duration::from_millis(50));
    assert_eq!(memory_count(&seen), 1, "no burst");
    let lost: u64 = seen.iter().map(|r| if let Record::Lost(l) = r { l.n } else { 0 }).sum();
    assert!((18..=20).contains(&lost), "{lost}");
}

#[test]
fn what_the_driver_reports_by_itself_becomes_a_mark() {
    let mut r = Rehearsal::new(Rates::default());
    r.pass(SECOND);
    r.driver.set(|s| s.events = vec![(Some(0), GpuEvent::Xid(79)), (None, GpuEvent::DoubleBitError)]);
    r.pass(2 * SECOND);
    r.driver.set(|s| s.events = vec![(Some(0), GpuEvent::MigChanged)]);
    r.pass(2 * SECOND);
    let live = recording(&r.records).devices[0].live.clone().unwrap();
    let texts: Vec<&str> = live.marks.iter().map(|m| m.text.as_ref()).collect();
    assert_eq!(texts.len(), 3);
    assert!(texts[0].starts_with("XID 79: the GPU fell off the bus"), "{texts:?}");
    assert_eq!(r.driver.get(|s| s.reopened), 1, "new instances are looked up");
}

#[test]
fn an_hour_at_fifty_a_second_stays_bounded() {
    let mut r = Rehearsal::new(Rates::with_memory(50.0));
    let mut history = History::new();
    let (mut peak, mut taken) = (0, 0);
    for second in 0..3600u64 {
        r.driver.set(|s| s.used = (100 + second % 300) << 20);
        r.records.clear();
        for record in r.pass(SECOND) {
            taken += u64::from(matches!(record, Record::Memory(_)));
            history.add(record);
        }
        peak = peak.max(history.samples(0).len());
    }
    assert!(peak <= 40_000, "{peak}");
    let recording = history.recording("soak");
    let live = recording.devices[0].live.as_ref().unwrap();
    assert!(live.thinned > 100_000, "{}", live.thinned);
    assert_eq!(live.thinned + recording.devices[0].samples.len() as u64, taken, "nothing goes uncounted");
    assert_eq!(recording.devices[0].samples.iter().filter_map(|s| s.used).max(), Some(399 << 20), "no peak is lost");
}

#[test]
fn a_pause_is_a_gap_however_short_and_loses_no_sample() {
    let mut r = Rehearsal::new(Rates::default());
    r.pass(3 * SECOND);
    let lost = |r: &Rehearsal| recording(&r.records).devices[0].live.as_ref().map(|live| (live.lost, live.gaps.clone()));
    let (before, none) = lost(&r).unwrap();
    assert!(none.is_empty());
    r.clock.now.set(r.clock.now.get() + SECOND);
    r.engine.resume(&r.clock);
    r.pass(3 * SECOND);
    let (after, gaps) = lost(&r).unwrap();
    assert_eq!((after, gaps.len()), (before, 1), "{gaps:?}");
    assert!((900_000..1_200_000).contains(&(gaps[0].to_us - gaps[0].from_us)), "{gaps:?}");
}
