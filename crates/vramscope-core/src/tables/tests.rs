//! Compares the tables with the known state of a toy allocator.

use proptest::prelude::*;

use super::{Cell, DeviceTables, LifetimeId, NO_EVENT, Quantity, State, strata};
use crate::model::{Action, AllocConf, BlockState, DeviceRecording, EventTable, PoolId, Progress, StackId, StreamId};
use crate::toy::{self, Toy, ToySegment, any_device, confs};

fn tables(dev: &DeviceRecording) -> DeviceTables {
    DeviceTables::build(dev, &Progress::new()).expect("not cancelled")
}

/// Segments as address and size, blocks as address, size, request and state.
type Plain = (Vec<(u64, u64)>, Vec<(u64, u64, u64, BlockState)>);

fn plain_truth(truth: &[ToySegment]) -> Plain {
    let blocks = truth.iter().flat_map(|s| &s.blocks).map(|b| (b.address, b.size, b.requested, b.state)).collect();
    (truth.iter().map(|s| (s.address, s.size())).collect(), blocks)
}

fn plain_state(state: &State) -> Plain {
    let mut cursor = 0;
    for segment in &state.segments {
        assert_eq!(segment.blocks.start, cursor, "block ranges follow each other");
        cursor = segment.blocks.end;
        assert_eq!(state.blocks_of(segment).iter().map(|b| b.size).sum::<u64>(), segment.size, "blocks cover their segment");
    }
    let blocks = state.blocks.iter().map(|b| (b.address, b.size, b.requested, b.state)).collect();
    (state.segments.iter().map(|s| (s.address, s.size)).collect(), blocks)
}

/// Reserved, active, allocated, requested.
fn sums(truth: &[ToySegment]) -> [u64; 4] {
    let blocks = || truth.iter().flat_map(|s| &s.blocks);
    let held = || blocks().filter(|b| b.state != BlockState::Inactive);
    [
        blocks().map(|b| b.size).sum(),
        held().map(|b| b.size).sum(),
        blocks().filter(|b| b.state == BlockState::Active).map(|b| b.size).sum(),
        held().map(|b| b.requested).sum(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_state_of_a_whole_trace_is_found_again(conf in confs(), ops in toy::ops(150)) {
        let toy = Toy::run(conf, &ops);
        let (dev, _) = toy.recording(0);
        let t = tables(&dev);
        prop_assert!(t.lifetimes.blocks_exact);
        prop_assert_eq!(t.lifetimes.initial_count(), 0);
        for (event, truth) in toy.states.iter().enumerate() {
            let state = t.states.at(&dev, &t.lifetimes, event as u32);
            prop_assert_eq!(plain_state(&state), plain_truth(truth), "after event {}", event);
            let [reserved, active, allocated, requested] = sums(truth);
            let totals = state.totals;
            prop_assert_eq!([totals.reserved, totals.active, totals.allocated, totals.requested], [reserved, active, allocated, requested]);
            for q in Quantity::ALL {
                prop_assert_eq!(t.curves.at(&dev, &t.lifetimes, q, event as u32), sums(truth)[q as usize]);
            }
        }
    }

    #[test]
    fn a_wrapped_trace_gives_back_what_was_live_before(conf in confs(), ops in toy::ops(150), part in 0.0f64..1.0) {
        let toy = Toy::run(conf, &ops);
        let from = (toy.states.len() as f64 * part) as usize;
        let (dev, before) = toy.recording(from);
        let t = tables(&dev);
        let start = t.states.at(&dev, &t.lifetimes, NO_EVENT);
        let (segments, blocks) = plain_truth(&before);
        let found = plain_state(&start);
        prop_assert_eq!(&found.0, &segments);
        let held = |blocks: &[(u64, u64, u64, BlockState)]| -> Vec<(u64, u64, BlockState)> {
            blocks.iter().filter(|b| b.3 != BlockState::Inactive).map(|b| (b.0, b.2, b.3)).collect()
        };
        prop_assert_eq!(held(&found.1), held(&blocks));
        for (event, truth) in toy.states[from..].iter().enumerate() {
            let state = t.states.at(&dev, &t.lifetimes, event as u32);
            let (found, truth_plain) = (plain_state(&state), plain_truth(truth));
            prop_assert_eq!(&found.0, &truth_plain.0);
            prop_assert_eq!(held(&found.1), held(&truth_plain.1));
            if t.lifetimes.blocks_exact {
                prop_assert_eq!(found, truth_plain);
            }
            let truth = sums(truth);
            prop_assert_eq!(state.totals.reserved, truth[0]);
            prop_assert_eq!(state.totals.requested, truth[3]);
            prop_assert_eq!(t.curves.at(&dev, &t.lifetimes, Quantity::Reserved, event as u32), truth[0]);
            prop_assert_eq!(t.curves.at(&dev, &t.lifetimes, Quantity::Requested, event as u32), truth[3]);
        }
    }

    #[test]
    fn columns_and_peaks_equal_a_plain_scan(ops in toy::ops(400), cuts in prop::collection::vec(0usize..1000, 2..12)) {
        let toy = Toy::run(AllocConf::default(), &ops);
        let (dev, _) = toy.recording(0);
        let t = tables(&dev);
        let mut bounds: Vec<u32> = cuts.iter().map(|&c| c.min(toy.states.len()) as u32).collect();
        bounds.sort_unstable();
        for q in Quantity::ALL {
            let values: Vec<u64> = toy.states.iter().map(|s| sums(s)[q as usize]).collect();
            let columns = t.curves.columns(&dev, &t.lifetimes, q, &bounds);
            for (w, column) in bounds.windows(2).zip(&columns) {
                let part = &values[w[0] as usize..w[1] as usize];
                let expected = match (part.iter().min(), part.iter().max(), part.last()) {
                    (Some(&min), Some(&max), Some(&last)) => Cell { min, max, last, count: part.len() as u32 },
                    _ => {
                        let carried = w[0].checked_sub(1).map_or(0, |e| values[e as usize]);
                        Cell { min: carried, max: carried, last: carried, count: 0 }
                    }
                };
                prop_assert_eq!(*column, expected);
                let peak = part.iter().max().map(|&m| (m, w[0] + part.iter().position(|&v| v == m).unwrap_or(0) as u32));
                prop_assert_eq!(t.curves.peak_in(&dev, &t.lifetimes, q, w[0], w[1]), peak);
            }
            let highest = values.iter().copied().max().unwrap_or(0);
            prop_assert_eq!(t.curves.peak(q).0, highest);
            if highest > 0 {
                prop_assert_eq!(t.curves.peak(q).1, values.iter().position(|&v| v == highest).unwrap_or(0) as u32);
            }
            prop_assert_eq!(t.curves.end(q), values.last().copied().unwrap_or(0));
        }
    }

    #[test]
    fn strata_reach_the_peak_of_every_column(ops in toy::ops(300), columns in 1u32..20, px in 0u64..4_000_000, cut in 0.0f64..0.9) {
        let toy = Toy::run(AllocConf::default(), &ops);
        let (dev, _) = toy.recording((toy.states.len() as f64 * cut) as usize);
        let t = tables(&dev);
        let len = dev.events.len() as u32;
        let bounds: Vec<u32> = (0..=columns).map(|c| c * len / columns).collect();
        for by in [Quantity::Requested, Quantity::Active, Quantity::Allocated] {
            let s = strata(&dev, &t, &bounds, px, by, &Progress::new()).expect("not cancelled");
            let cells = t.curves.columns(&dev, &t.lifetimes, by, &bounds);
            for (c, cell) in cells.iter().enumerate() {
                prop_assert_eq!(s.columns[c].total, cell.max);
                let mut cursor = 0;
                let mut count = 0;
                for run in s.runs_of(c) {
                    prop_assert_eq!(run.bottom, cursor);
                    cursor = run.top;
                    count += if run.lifetime.is_some() { 1 } else { run.folded };
                }
                prop_assert_eq!(cursor, cell.max);
                let event = s.columns[c].event;
                let live = t.states.live_at(&t.lifetimes, event);
                let shown = live.iter().filter(|&&id| by != Quantity::Allocated || !t.lifetimes.is_requested_free_at(id, event));
                prop_assert_eq!(shown.count() as u32, count, "nothing is dropped by folding");
                prop_assert_eq!(s.columns[c].reserved, t.curves.at(&dev, &t.lifetimes, Quantity::Reserved, event));
            }
        }
    }

    #[test]
    fn any_events_at_all_are_survived(dev in any_device()) {
        let t = tables(&dev);
        for event in 0..dev.events.len() as u32 {
            let state = t.states.at(&dev, &t.lifetimes, event);
            let live = t.states.live_at(&t.lifetimes, event);
            prop_assert_eq!(state.blocks.iter().filter(|b| b.lifetime.is_some()).count(), live.len());
        }
    }
}

fn recording(events: &[(Action, u64, u64)]) -> DeviceRecording {
    let mut dev = DeviceRecording { pools: vec![(0, 0)], events: EventTable::default(), ..DeviceRecording::default() };
    for &(action, address, size) in events {
        dev.events.push(0, action, address, size, StreamId(0), PoolId(0), StackId::NONE);
    }
    dev
}

#[test]
fn an_address_allocated_twice_ends_the_first_allocation() {
    let dev = recording(&[
        (Action::Alloc, 4096, 1000),
        (Action::Alloc, 4096, 3000),
        (Action::FreeRequested, 4096, 3000),
        (Action::FreeCompleted, 4096, 3000),
    ]);
    let t = tables(&dev);
    assert_eq!(t.lifetimes.lost().len(), 1);
    assert_eq!(t.lifetimes.gone(LifetimeId(0)), 1);
    assert_eq!(t.lifetimes.gone(LifetimeId(1)), 3);
    assert_eq!(t.lifetimes.of_event(2), LifetimeId(1));
    assert_eq!(t.curves.peak(Quantity::Requested), (3000, 1));
    assert_eq!(t.curves.end(Quantity::Allocated), 0);
    assert_eq!(t.lifetimes.generation(&dev, LifetimeId(1)), 1);
}

#[test]
fn a_free_that_never_completes_stays_active() {
    let dev = recording(&[(Action::Alloc, 4096, 1000), (Action::FreeRequested, 4096, 1000), (Action::Snapshot, 0, 1024)]);
    let t = tables(&dev);
    assert_eq!(t.curves.end(Quantity::Active), 1024);
    assert_eq!(t.curves.end(Quantity::Allocated), 0);
    assert_eq!(t.curves.end(Quantity::Requested), 1000);
    let state = t.states.at(&dev, &t.lifetimes, 2);
    assert_eq!(state.blocks[0].state, BlockState::PendingFree);
    assert_eq!(state.uncovered().len(), 1);
    assert_eq!(state.block_at(4096 + 1023), Some(0));
    assert_eq!(state.block_at(4096 + 1024), None);
}

#[test]
fn a_completion_without_its_request_was_pending_before_the_trace() {
    let dev = recording(&[
        (Action::FreeCompleted, 4096, 1000),
        (Action::Alloc, 8192, 10),
        (Action::FreeRequested, 8192, 10),
        (Action::FreeCompleted, 8192, 10),
    ]);
    let t = tables(&dev);
    assert_eq!(t.lifetimes.initial_count(), 1);
    let first = t.lifetimes.get(&dev, LifetimeId(0)).expect("a row");
    assert!(t.lifetimes.pending_at_start(first.id));
    assert_eq!((first.born, first.gone), (NO_EVENT, 0));
    assert_eq!(t.curves.start(Quantity::Active), 1024);
    assert_eq!(t.curves.start(Quantity::Allocated), 0);
    assert_eq!(t.curves.at(&dev, &t.lifetimes, Quantity::Active, 0), 0);
}

#[test]
fn an_empty_recording_has_empty_tables() {
    let dev = DeviceRecording::default();
    let t = tables(&dev);
    assert!(t.lifetimes.is_empty());
    assert_eq!(t.curves.peak(Quantity::Reserved), (0, NO_EVENT));
    assert!(t.states.at(&dev, &t.lifetimes, NO_EVENT).segments.is_empty());
    assert!(t.curves.columns(&dev, &t.lifetimes, Quantity::Active, &[]).is_empty());
    let s = strata(&dev, &t, &[0, 0, 0], 1, Quantity::Requested, &Progress::new()).expect("not cancelled");
    assert_eq!(s.columns.len(), 2);
}
