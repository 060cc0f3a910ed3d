//! Compares heatmaps with a simple walk over the states.

use proptest::prelude::*;

use super::{HeatmapSpec, Shade, heatmap, hole_sizes};
use crate::diagnose::fragmentation::holes;
use crate::model::{BlockState, DeviceRecording, Progress};
use crate::tables::{DeviceTables, LifetimeId, NO_EVENT};
use crate::toy::{self, Toy, any_device, confs};

fn tables(dev: &DeviceRecording) -> DeviceTables {
    DeviceTables::build(dev, &Progress::new()).expect("not cancelled")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn heatmaps_equal_what_the_states_say(conf in confs(), ops in toy::ops(200), columns in 1u32..9, rows in 1u32..30, cut in 0.0f64..0.9, zoomed in any::<bool>()) {
        let toy = Toy::run(conf, &ops);
        let from = (toy.states.len() as f64 * cut) as usize;
        let (dev, _) = toy.recording(from);
        let t = tables(&dev);
        let len = dev.events.len() as u32;
        let bounds: Vec<u32> = (0..=columns).map(|c| c * len / columns).collect();
        for shade in [Shade::Occupancy, Shade::OldestBlock, Shade::LargestBlock, Shade::LargestHole] {
            let spec = HeatmapSpec { rows, shade, servers: None, addresses: None };
            let whole = heatmap(&dev, &t, &bounds, spec, None, &Progress::new()).expect("not cancelled");
            // The middle of the axis and every other allocation, as with a zoom and a selection.
            let inner = (whole.address_at(whole.total / 3), whole.address_at(whole.total * 3 / 4));
            let spec = HeatmapSpec { addresses: inner.0.zip(inner.1).filter(|_| zoomed), ..spec };
            let is_chosen = |id: LifetimeId, _: u32| !zoomed || id.0.is_multiple_of(2);
            let map = heatmap(&dev, &t, &bounds, spec, zoomed.then_some(&is_chosen), &Progress::new()).expect("not cancelled");
            let sizes = hole_sizes(&dev, &t, &bounds, None, &Progress::new()).expect("not cancelled");
            prop_assert_eq!(&map.columns, &sizes.columns);
            prop_assert_eq!(map.cells.len(), map.rows * map.columns.len());
            for (c, column) in map.columns.iter().enumerate() {
                let state = t.states.at(&dev, &t.lifetimes, column.event);
                let free = holes(&state, None);
                let found = (u64::from(column.holes), column.free, column.largest_hole, column.reserved, column.occupied);
                prop_assert_eq!(found, (free.count, free.bytes, free.largest, state.totals.reserved, state.totals.active));
                let width = map.columns.len();
                prop_assert_eq!((0..sizes.classes.len()).map(|k| sizes.bytes[k * width + c]).sum::<u64>(), free.bytes);
                prop_assert_eq!((0..sizes.classes.len()).map(|k| u64::from(sizes.counts[k * width + c])).sum::<u64>(), free.count);
                for row in 0..map.rows {
                    // Byte range by byte range, the simple way.
                    let low = map.shown.0 + row as u64 * map.row_bytes;
                    let row_range = low..(low + map.row_bytes).min(map.shown.1);
                    let (mut reserved, mut occupied, mut extreme) = (0u64, 0u64, 0f32);
                    for block in &state.blocks {
                        let e = map.extents.iter().find(|e| block.address >= e.address && block.address < e.address + e.size).expect("an extent");
                        let at = e.offset + (block.address - e.address);
                        let overlap = (at + block.size).min(row_range.end).saturating_sub(at.max(row_range.start));
                        if overlap == 0 {
                            continue;
                        }
                        reserved += overlap;
                        let is_hole = block.state == BlockState::Inactive;
                        if !is_hole && !is_chosen(block.lifetime, column.event) {
                            continue;
                        }
                        occupied += if is_hole { 0 } else { overlap };
                        let value = match shade {
                            Shade::Occupancy => 0.0,
                            Shade::OldestBlock if !is_hole => {
                                let born = t.lifetimes.born(block.lifetime);
                                let time = |e: u32| dev.events.time_us.get(e as usize).copied();
                                let born = time(if born == NO_EVENT { 0 } else { born }).unwrap_or(0);
                                time(column.event).map_or(0.0, |now| (now - born) as f32)
                            }
                            Shade::LargestBlock if !is_hole => block.size as f32,
                            Shade::LargestHole if is_hole => block.size as f32,
                            _ => 0.0,
                        };
                        extreme = extreme.max(value);
                    }
                    let expected = match (reserved, shade) {
                        (0, _) => None,
                        (_, Shade::Occupancy) => Some((occupied as f64 / reserved as f64) as f32),
                        _ => Some(extreme),
                    };
                    prop_assert_eq!(map.cell(row, c), expected);
                    prop_assert!(map.addresses_of(row).is_some(), "a row of the map");
                }
            }
        }
    }

    #[test]
    fn any_events_at_all_are_survived(dev in any_device()) {
        let t = tables(&dev);
        let bounds: Vec<u32> = (0..=dev.events.len() as u32).collect();
        let spec = HeatmapSpec { rows: 9, shade: Shade::OldestBlock, servers: None, addresses: None };
        let map = heatmap(&dev, &t, &bounds, spec, None, &Progress::new()).expect("not cancelled");
        prop_assert_eq!(map.columns.len(), dev.events.len());
    }
}
