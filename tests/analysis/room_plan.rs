//! Tests the blocks to free with expandable segments: the allocator model replays PyTorch's requests up to the failure, with the
//! chosen blocks freed, and with each of them kept.

use std::collections::HashMap;
use std::path::Path;

use crate::shared::{open, tables};
use vramscope_core::allocator::{CachingAllocator, Placement, SimulatedMemory};
use vramscope_core::diagnose::fragmentation::RoomKind;
use vramscope_core::diagnose::oom::{Autopsy, examine};
use vramscope_core::diagnose::vendor::CUDA;
use vramscope_core::inference::Caps;
use vramscope_core::model::{Action, DeviceRecording, Progress, Recording, TorchVersion};
use vramscope_core::tables::{DeviceTables, LifetimeId, State};
use vramscope_core::units::NBSP;

use super::tape::{GIB, MIB};

fn recording() -> Recording {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots/expandable_oom.pickle");
    open(&path)
}

/// The autopsy of the first failure under a cap, or under the cap that the file implies.
fn autopsy(device: &DeviceRecording, tables: &DeviceTables, cap: Option<u64>) -> (Autopsy, State) {
    let event = device.events.ooms()[0];
    let state = tables.states.at(device, &tables.lifetimes, event);
    let caps = Caps::of(device, cap, &Progress::new()).unwrap();
    (examine(device, tables, event, &state, &caps).unwrap(), state)
}

/// Whether the failed request succeeds under a cap when some allocations are freed before it.
fn succeeds(recording: &Recording, tables: &DeviceTables, cap: u64, gone: &[LifetimeId]) -> bool {
    let device = &recording.devices[0];
    let events = &device.events;
    let memory = SimulatedMemory::new(140 * GIB, Placement::Driver);
    let mut allocator = CachingAllocator::new(memory, (), device.settings.conf.clone(), TorchVersion::REFERENCE);
    allocator.set_limit(Some(cap));
    let mut held = HashMap::new();
    for i in 0..events.len() {
        let lifetime = tables.lifetimes.of_event(i as u32);
        match events.action[i] {
            Action::Alloc => {
                held.insert(lifetime, allocator.malloc(events.size[i], 0).unwrap());
            }
            Action::FreeCompleted => allocator.free(held.remove(&lifetime).unwrap()),
            Action::Oom => {
                for lifetime in gone {
                    allocator.free(held.remove(lifetime).unwrap());
                }
                return allocator.malloc(events.size[i], 0).is_ok();
            }
            _ => {}
        }
    }
    panic!("no failure");
}

#[test]
fn a_way_out_by_pages_is_enough_and_nothing_of_it_is_too_much() {
    let recording = recording();
    let device = &recording.devices[0];
    let tables = tables(device);
    // Caps, and the results of another search of the same state, written in Python.
    for (cap, blocks, bytes) in [(1680, 19, 492), (2000, 9, 228), (2320, 1, 24)] {
        let (a, state) = autopsy(device, &tables, Some(cap * MIB));
        let plan = a.room_plan.unwrap();
        assert_eq!((plan.kind, plan.is_optimal, plan.whole, plan.bytes / MIB), (RoomKind::Release, true, 0, bytes), "{cap} MiB");
        assert_eq!((plan.blocks.len(), plan.pages as u64 * 20 * MIB), (blocks, plan.room), "{cap} MiB");
        let gone: Vec<LifetimeId> = plan.blocks.iter().map(|&b| state.blocks[b].lifetime).collect();
        assert!(!succeeds(&recording, &tables, cap * MIB, &[]), "{cap} MiB: it fails as recorded");
        assert!(succeeds(&recording, &tables, cap * MIB, &gone), "{cap} MiB");
        for kept in &gone {
            let others: Vec<LifetimeId> = gone.iter().copied().filter(|id| id != kept).collect();
            assert!(!succeeds(&recording, &tables, cap * MIB, &others), "{cap} MiB: without {kept:?} it is enough too");
        }
        // Each single block, really freed.
        let live = state.blocks.iter().filter(|b| b.lifetime != LifetimeId::NONE);
        let alone = live.filter(|b| succeeds(&recording, &tables, cap * MIB, &[b.lifetime])).count();
        assert_eq!(a.alone.count, alone, "{cap} MiB");
    }
}

#[test]
fn a_way_out_by_pages_is_told_for_both_ends_of_the_cap() {
    let recording = recording();
    let device = &recording.devices[0];
    let tables = tables(device);
    let (a, _) = autopsy(device, &tables, None);
    let plan = a.room_plan.unwrap();
    assert_eq!((plan.is_optimal, plan.by(), plan.least_cap), (true, "pages", Some(1680 * MIB)));
    let more = plan.with_more.unwrap();
    assert_eq!((more.cap, more.blocks, more.bytes, more.is_optimal), (2320 * MIB, 1, 24 * MIB, true));
    let said = plan.sentence(&CUDA).replace(NBSP, " ");
    assert!(said.contains("these 19 blocks (492 MiB) would make room even if the cap is only 1.64 GiB"), "{said}");
    let why = plan.why().replace(NBSP, " ");
    assert!(why.contains("34 pages of expandable segments (680 MiB) can then go back to the device"), "{why}");
    assert!(plan.search().contains("pages that no live block touches"), "{}", plan.search());
    // One MiB below that cap, one block is not enough.
    let (below, _) = autopsy(device, &tables, Some(2319 * MIB));
    assert!(below.room_plan.unwrap().bytes > more.bytes);
}
