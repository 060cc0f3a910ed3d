//! The tables of real recordings, compared with what PyTorch counted during the recording.
//!
//! `VRAMSCOPE_CORPUS` names a folder of real recordings. The repository's samples are always read.

use std::path::{Path, PathBuf};

use crate::shared::{corpus, open, tables, wrapped};
use vramscope_core::diagnose::fragmentation::{Servers, blockers, cheapest_hole, cheapest_release, holes};
use vramscope_core::model::{BlockState, DeviceRecording, SizeClass};
use vramscope_core::tables::{DeviceTables, NO_EVENT, Quantity, State};
use vramscope_core::units::MEBIBYTE;

/// Differences between the state after the last event and the file's final state; empty when there are none.
fn differences(dev: &DeviceRecording, state: &State) -> Vec<String> {
    let mut wrong = Vec::new();
    let file: Vec<_> = dev.segments.iter().map(|s| (s.address, s.size, s.stream, s.pool, s.class, s.is_expandable)).collect();
    let ours: Vec<_> = state.segments.iter().map(|s| (s.address, s.size, s.stream, s.pool, s.class, s.is_expandable)).collect();
    if file != ours {
        let first = file.iter().zip(&ours).find(|(a, b)| a != b);
        wrong.push(format!("segments: file {} ours {}, first {first:x?}", file.len(), ours.len()));
    }
    let held = |state: BlockState, requested: u64| if state == BlockState::Inactive { 0 } else { requested };
    let file: Vec<_> = dev.blocks.iter().map(|b| (b.address, b.size, b.state, held(b.state, b.requested))).collect();
    let ours: Vec<_> = state.blocks.iter().map(|b| (b.address, b.size, b.state, b.requested)).collect();
    if file != ours {
        let first = file.iter().zip(&ours).find(|(a, b)| a != b);
        wrong.push(format!("blocks: file {} ours {}, first {first:x?}", file.len(), ours.len()));
    }
    wrong
}

/// Blocks whose allocation has another pool, stream, class or call stack than the block in the file.
fn foreign(dev: &DeviceRecording, t: &DeviceTables, state: &State) -> Vec<String> {
    let mut wrong = Vec::new();
    for segment in &dev.segments {
        for block in dev.blocks_of(segment).iter().filter(|b| b.state != BlockState::Inactive) {
            let found = state.block_at(block.address).and_then(|at| t.lifetimes.get(dev, state.blocks[at].lifetime));
            let Some(found) = found else {
                wrong.push(format!("no allocation at {:#x}", block.address));
                continue;
            };
            let same_stack = !block.stack.is_some() || !found.stack.is_some() || block.stack == found.stack;
            if (found.pool, found.stream, found.class) != (segment.pool, segment.stream, segment.class) || !same_stack {
                wrong.push(format!("block {block:?} in {segment:?} is not {found:?}"));
            }
            if t.lifetimes.of_event(found.born) != found.id && found.born != NO_EVENT {
                wrong.push(format!("event {} is not of {found:?}", found.born));
            }
        }
    }
    wrong
}

/// Every sample of the repository, and every snapshot of the corpus, if there is one.
fn snapshots() -> Vec<PathBuf> {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots");
    let parts = ["demo", "multi", "profiler", "versions", "whatif"];
    let folders = corpus().into_iter().flat_map(|folder| parts.map(|part| folder.join(part)));
    let mut found: Vec<PathBuf> = std::iter::once(samples)
        .chain(folders)
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| [".pickle", ".pickle.gz"].iter().any(|end| path.to_string_lossy().ends_with(end)))
        .collect();
    found.sort();
    assert!(found.len() >= 8, "the samples are part of the repository");
    found
}

#[test]
fn the_last_event_leads_to_the_files_own_segments_and_blocks() {
    let (mut wrong, mut count, mut inexact) = (Vec::new(), 0, Vec::new());
    for path in snapshots() {
        let recording = open(&path);
        for dev in &recording.devices {
            if !dev.has_final_state || dev.id.index < 0 {
                continue;
            }
            let t = tables(dev);
            let last = (dev.events.len() as u32).checked_sub(1).unwrap_or(NO_EVENT);
            let state = t.states.at(dev, &t.lifetimes, last);
            let name = format!("{} {}", path.file_name().unwrap_or_default().to_string_lossy(), dev.id);
            wrong.extend(differences(dev, &state).into_iter().map(|d| format!("{name}: {d}")));
            wrong.extend(foreign(dev, &t, &state).into_iter().map(|d| format!("{name}: {d}")));
            if !t.lifetimes.blocks_exact {
                let l = &t.lifetimes;
                inexact.push(format!(
                    "{name}: initial {} unmatched {} lost {} mismatches {} guessed {} settings {}",
                    l.initial_count(),
                    l.unmatched_frees,
                    l.lost().len(),
                    l.mismatches,
                    l.guessed_blocks,
                    dev.settings.recorded
                ));
            }
            count += 1;
        }
    }
    println!("{count} devices; block sizes not certain in {}:\n{}", inexact.len(), inexact.join("\n"));
    assert!(count >= 8, "the samples alone have more devices than {count}");
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn peaks_equal_pytorchs_own_counters() {
    let Some(folder) = corpus() else { return };
    let text = std::fs::read(folder.join("whatif_truth.json")).expect("whatif_truth.json");
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&text).expect("JSON");
    let (mut wrong, mut count, mut exact) = (Vec::new(), 0, 0);
    for row in &rows {
        let label = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let (workload, conf, limit) = (label("workload"), label("conf_label"), label("limit_label"));
        let name = if conf == "default" && limit == "none" {
            format!("{workload}.default.pickle")
        } else {
            format!("{workload}.{conf}.{limit}.pickle")
        };
        let path = folder.join("whatif").join(&name);
        if !path.exists() {
            continue;
        }
        let recording = open(&path);
        let dev = &recording.devices[recording.busiest_device().expect("a device")];
        let t = tables(dev);
        count += 1;
        exact += usize::from(t.lifetimes.blocks_exact);
        for (q, group) in [
            (Quantity::Reserved, "reserved_bytes"),
            (Quantity::Active, "active_bytes"),
            (Quantity::Allocated, "allocated_bytes"),
            (Quantity::Requested, "requested_bytes"),
        ] {
            let truth = row["memory_stats"][format!("{group}.all.peak")].as_u64();
            let (ours, event) = t.curves.peak(q);
            if truth != Some(ours) && (t.curves.is_exact(q) || matches!(q, Quantity::Reserved | Quantity::Requested)) {
                wrong.push(format!("{name}: {group} peak is {truth:?}, ours {ours} at event {event}"));
            }
        }
    }
    println!("{count} runs, block sizes certain in {exact}");
    assert!(count >= 100, "the corpus has more runs than {count}");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// A held block: address, requested bytes, state.
type Held = (u64, u64, BlockState);

fn held(state: &State) -> Vec<Held> {
    let blocks = state.blocks.iter().filter(|b| b.state != BlockState::Inactive);
    blocks.map(|b| (b.address, b.requested, b.state)).collect()
}

#[test]
fn what_a_wrapped_ring_buffer_lost_is_found_again() {
    let (mut wrong, mut count, mut certain, mut guesses, mut off) = (Vec::new(), 0, 0, 0, 0);
    for path in snapshots() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let recording = open(&path);
        let Some(busiest) = recording.busiest_device() else { continue };
        let dev = &recording.devices[busiest];
        let whole = tables(dev);
        // Only complete recordings know what was live in the middle.
        if dev.events.len() < 100 || whole.lifetimes.initial_count() > 0 || !whole.lifetimes.blocks_exact {
            continue;
        }
        for part in [0.1, 0.45, 0.8] {
            let from = (dev.events.len() as f64 * part) as usize;
            let cut = wrapped(dev, from);
            let t = tables(&cut);
            let l = &t.lifetimes;
            count += 1;
            certain += usize::from(l.blocks_exact);
            guesses += l.guessed_blocks;
            let mut complain = |what: String| wrong.push(format!("{name} without its first {from}: {what}"));
            let step = (cut.events.len() / 40).max(1);
            let instants = std::iter::once(None).chain((0..cut.events.len()).step_by(step).map(Some));
            for at in instants {
                let event = at.map_or(NO_EVENT, |e| e as u32);
                let truth = whole.states.at(dev, &whole.lifetimes, at.map_or(from, |e| e + from + 1) as u32 - 1);
                let ours = t.states.at(&cut, l, event);
                let runs = |s: &State| s.segments.iter().map(|r| (r.address, r.size, r.is_expandable)).collect::<Vec<_>>();
                if runs(&truth) != runs(&ours) {
                    complain(format!("other segments at {at:?}"));
                    break;
                }
                if held(&truth) != held(&ours) {
                    complain(format!("other blocks held at {at:?}"));
                    break;
                }
                let sizes = |s: &State| s.blocks.iter().map(|b| (b.address, b.size)).collect::<Vec<_>>();
                if l.blocks_exact && sizes(&truth) != sizes(&ours) {
                    complain(format!("block sizes differ at {at:?} though they are said to be certain"));
                    break;
                }
                if ours.totals.active != truth.totals.active {
                    off = off.max(ours.totals.active.abs_diff(truth.totals.active));
                }
                // No call stack may belong to another allocation.
                for (a, b) in truth.blocks.iter().zip(&ours.blocks).filter(|_| sizes(&truth) == sizes(&ours)) {
                    if !b.lifetime.is_some() {
                        continue;
                    }
                    let (a, b) = (whole.lifetimes.get(dev, a.lifetime), l.get(&cut, b.lifetime));
                    let (Some(a), Some(b)) = (a, b) else { continue };
                    if b.stack.is_some() && a.stack != b.stack {
                        complain(format!("a foreign call stack at {:#x}", a.address));
                    }
                }
            }
            for q in [Quantity::Reserved, Quantity::Requested, Quantity::Active, Quantity::Allocated] {
                let truth = whole.curves.peak_in(dev, &whole.lifetimes, q, from as u32, dev.events.len() as u32);
                let ours = t.curves.peak_in(&cut, l, q, 0, cut.events.len() as u32);
                let equal = truth.map(|(v, e)| (v, e - from as u32)) == ours;
                if !equal && (t.curves.is_exact(q) || q == Quantity::Requested) {
                    complain(format!("{q:?} peak {ours:?}, true {truth:?}"));
                }
            }
        }
    }
    println!("{count} wrapped recordings, block sizes certain in {certain}; {guesses} blocks guessed; at most {off} bytes off");
    assert!(count >= 12, "the samples alone give more than {count}");
    assert!(wrong.is_empty(), "{} of {count} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The state at the end of a dump made at an out-of-memory event.
fn at_oom(folder: &Path, name: &str) -> State {
    let recording = open(&folder.join("whatif").join(name));
    let dev = &recording.devices[recording.busiest_device().expect("a device")];
    let t = tables(dev);
    t.states.at(dev, &t.lifetimes, dev.events.len() as u32 - 1)
}

/// MiB to two decimals, as the window shows them.
fn mib(bytes: u64) -> f64 {
    (bytes as f64 / MEBIBYTE as f64 * 100.0).round() / 100.0
}

const LARGE: Servers = Servers { class: SizeClass::Large, stream: None, pool: None };

#[test]
fn slivers_pin_four_segments() {
    let Some(folder) = corpus() else { return };
    let state = at_oom(&folder, "fragment_oom.default.x110.at_oom.pickle");
    let free = holes(&state, Some(&LARGE));
    assert_eq!((free.count, mib(free.bytes), free.largest / MEBIBYTE), (26, 609.98, 27));
    let found = blockers(&state, Some(&LARGE));
    assert_eq!(found.len(), 33);
    let first = found[0];
    assert_eq!([first.size, first.strands(), first.hole_if_freed()].map(|b| b / MEBIBYTE), [33, 52, 85]);
    assert_eq!(cheapest_hole(&state, &LARGE, 500 * MEBIBYTE), None, "no segment is that large");
    let way = cheapest_release(&DeviceRecording::default(), &state, 340 * MEBIBYTE).expect("a way out");
    assert_eq!((way.blocks.len(), way.bytes / MEBIBYTE, way.room / MEBIBYTE, way.segments.len()), (8, 216, 400, 1));
}

#[test]
fn caches_that_grow_leave_52_holes() {
    let Some(folder) = corpus() else { return };
    let state = at_oom(&folder, "kv_decode.default.x103.at_oom.pickle");
    let live = state.blocks.iter().filter(|b| b.state != BlockState::Inactive).count();
    let free = holes(&state, Some(&LARGE));
    assert_eq!((state.segments.len(), live, free.count, mib(free.bytes)), (54, 206, 52, 133.65));
    assert_eq!(mib(free.largest), 5.42);
    let found = blockers(&state, Some(&LARGE));
    assert_eq!((mib(found[0].size), mib(found[0].strands())), (2.28, 8.14));
    let request = 5_853_184;
    assert_eq!(found.len(), 69);
    assert_eq!(found.iter().filter(|b| b.hole_if_freed() >= request).count(), 50, "any one of these would have been enough");
}
