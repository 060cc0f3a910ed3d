//! Recordings cut short at many places. What remains agrees with the whole file wherever the remaining events show it, and never
//! contradicts itself.

use std::path::Path;

use vramscope_core::formats;
use vramscope_core::model::{Progress, Recording};
use vramscope_core::tables::{DeviceTables, NO_EVENT, Quantity};

fn tables(recording: &Recording, device: usize) -> DeviceTables {
    DeviceTables::build(&recording.devices[device], &Progress::new()).expect("tables")
}

/// Requested, active and reserved bytes after an event.
fn levels(recording: &Recording, device: usize, tables: &DeviceTables, event: u32) -> [u64; 3] {
    [Quantity::Requested, Quantity::Active, Quantity::Reserved]
        .map(|q| tables.curves.at(&recording.devices[device], &tables.lifetimes, q, event))
}

#[test]
fn a_trace_that_breaks_off_is_not_led_by_the_segments_of_a_later_instant() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots");
    for name in ["serve_oom.pickle.gz", "gpt_train.pickle", "multi_stream.pickle", "expandable_oom.pickle", "two_gpus.pickle"] {
        let bytes = std::fs::read(samples.join(name)).expect("a sample");
        let whole = formats::read(&bytes, name, &Progress::new()).expect("the whole file");
        let whole_tables: Vec<DeviceTables> = (0..whole.devices.len()).map(|d| tables(&whole, d)).collect();
        let mut with_events = 0;
        for tenths in [3, 5, 7, 8, 9] {
            let part = &bytes[..bytes.len() * tenths / 10];
            let Ok(cut) = formats::read(part, name, &Progress::new()) else { continue };
            assert!(cut.report.truncated().is_some() && cut.report.caveat().is_some(), "{name} at {tenths}");
            for (d, device) in cut.devices.iter().enumerate() {
                let own = tables(&cut, d);
                let whole_at = whole.devices.iter().position(|w| w.id == device.id).expect("the same device");
                let kept = device.events.len() as u32;
                with_events += u32::from(kept > 0);
                for event in (0..kept).chain([NO_EVENT]) {
                    let [requested, active, reserved] = levels(&cut, d, &own, event);
                    let place = format!("{name} cut at {tenths} tenths, {}, after event {event} of {kept}", device.id);
                    assert!(requested <= active && active <= reserved, "{place}: {requested} {active} {reserved}");
                    if kept == 0 {
                        continue;
                    }
                    // What no remaining event touches is unknown, so a figure can be lower than in the whole file but never
                    // higher.
                    let truth = levels(&whole, whole_at, &whole_tables[whole_at], event);
                    assert!(requested <= truth[0], "{place}: requested {requested} of {}", truth[0]);
                    assert!(reserved <= truth[2], "{place}: reserved {reserved} of {}", truth[2]);
                }
                let last = own.states.at(device, &own.lifetimes, kept.checked_sub(1).unwrap_or(NO_EVENT));
                assert!(last.uncovered().is_empty(), "{name} at {tenths}: blocks outside every segment");
                assert_eq!(last.totals.reserved, own.curves.end(Quantity::Reserved), "{name} at {tenths}");
            }
        }
        assert!(with_events > 0, "{name}: no cut left an event");
    }
}

#[test]
fn a_trace_cut_after_it_began_from_nothing_gives_the_figures_of_the_whole_file() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots/serve_oom.pickle.gz");
    let bytes = std::fs::read(path).expect("a sample");
    let cut = formats::read(&bytes[..100_000], "cut", &Progress::new()).expect("a part");
    let whole = formats::read(&bytes, "whole", &Progress::new()).expect("the whole file");
    let (part, all) = (tables(&cut, 0), tables(&whole, 0));
    let kept = cut.devices[0].events.len() as u32;
    assert!(kept > 15_000, "{kept}");
    // One block was live before the trace and is never freed. Only the end of the file shows it.
    assert_eq!(all.lifetimes.initial_count(), 1);
    let [before, _, segment] = levels(&whole, 0, &all, NO_EVENT);
    for event in 0..kept {
        let ([requested, _, reserved], truth) = (levels(&cut, 0, &part, event), levels(&whole, 0, &all, event));
        assert_eq!(requested + before, truth[0], "requested after event {event}");
        assert!(reserved == truth[2] || reserved + segment == truth[2], "reserved after event {event}: {reserved}, {}", truth[2]);
    }
}
