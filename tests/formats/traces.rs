//! Profiler traces of the corpus, compared with PyTorch's own figures.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::Path;

use crate::shared::{corpus, open, tables};
use serde::Deserialize;
use vramscope_core::diagnose::counterfactual;
use vramscope_core::formats;
use vramscope_core::model::{Action, DeviceKind, Format, OpKind, Progress, Recording, StackId, WarningKind};
use vramscope_core::tables::{Quantity, strata};

fn bytes_of(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    if path.extension().is_some_and(|e| e == "gz") {
        let mut out = Vec::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut out).unwrap();
        return out;
    }
    bytes
}

#[derive(Deserialize)]
struct Trace {
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    ph: String,
    #[serde(default)]
    cat: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    tid: serde_json::Value,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: Arguments,
}

#[derive(Deserialize, Default)]
struct Arguments {
    #[serde(rename = "Bytes")]
    bytes: Option<i64>,
    #[serde(rename = "Total Allocated")]
    allocated: Option<u64>,
    #[serde(rename = "Total Reserved")]
    reserved: Option<u64>,
    #[serde(rename = "Device Type")]
    kind: Option<i32>,
    #[serde(rename = "Addr")]
    address: Option<u64>,
}

fn check(path: &Path) -> Recording {
    let bytes = bytes_of(path);
    let started = std::time::Instant::now();
    let recording = open(path);
    assert_eq!(recording.source.format, Format::KinetoTrace);
    println!(
        "{}: {} bytes in {:?}, {} ops, {} stacks",
        path.display(),
        bytes.len(),
        started.elapsed(),
        recording.ops.len(),
        recording.stacks.len()
    );
    assert!(recording.report.warnings.iter().all(|w| w.kind.name() == "start_missing"), "{:?}", recording.report.warnings);
    let truth: Trace = serde_json::from_slice(&bytes).unwrap();
    for device in &recording.devices {
        let wanted = |e: &&Event| e.name.starts_with('[') && (e.args.kind == Some(0)) == (device.id.kind == DeviceKind::Cpu);
        let mut memory: Vec<&Event> = truth.events.iter().filter(wanted).collect();
        memory.sort_by(|a, b| a.ts.total_cmp(&b.ts));
        // Goes through the recording's events and PyTorch's together. Size, address and running sum must agree at each.
        let events = &device.events;
        let start = memory[0].args.allocated.unwrap() as i64
            - if memory[0].name == "[memory]" { memory[0].args.bytes.unwrap() } else { 0 };
        let (mut at, mut sum, mut reserved) = (0, start, 0i64);
        for m in &memory {
            let bytes = m.args.bytes.unwrap();
            while events.action[at].grows_reserved() || events.action[at].shrinks_reserved() {
                let size = events.size[at] as i64;
                reserved += if events.action[at].grows_reserved() { size } else { -size };
                at += 1;
            }
            if device.id.kind != DeviceKind::Cpu {
                assert_eq!(Some(reserved as u64), m.args.reserved);
            }
            assert_eq!(events.size[at], bytes.unsigned_abs());
            if m.name == "[OutOfMemory]" {
                assert_eq!(events.action[at], Action::Oom);
                at += 1;
                continue;
            }
            assert_eq!(Some(events.address[at]), m.args.address);
            if bytes > 0 {
                assert_eq!(events.action[at], Action::Alloc);
                at += 1;
            } else {
                assert_eq!(events.action[at..at + 2], [Action::FreeRequested, Action::FreeCompleted]);
                at += 2;
            }
            sum += bytes;
            assert_eq!(Some(sum as u64), m.args.allocated);
            assert_eq!(device.source_totals.allocated.at(at as u32 - 1), m.args.allocated);
        }
        assert_eq!(at, events.len());
        // The totals are the curves.
        let tables = tables(device);
        let peak = |of: fn(&Arguments) -> Option<u64>| memory.iter().filter_map(|m| of(&m.args)).max();
        assert_eq!(Some(tables.curves.peak(Quantity::Allocated).0), peak(|a| a.allocated));
        assert_eq!(Some(tables.curves.peak(Quantity::Reserved).0), peak(|a| a.reserved));
        check_attribution(&recording, device, &truth, &memory);
    }
    recording
}

/// Compares the stack of each allocation with a search through all slices of its thread.
fn check_attribution(recording: &Recording, device: &vramscope_core::model::DeviceRecording, truth: &Trace, memory: &[&Event]) {
    let mut by_thread: HashMap<String, Vec<&Event>> = HashMap::new();
    for e in &truth.events {
        if e.ph == "X" && (e.cat == "cpu_op" || e.cat == "python_function") {
            by_thread.entry(e.tid.to_string()).or_default().push(e);
        }
    }
    let mut at = 0;
    let (mut with_operator, mut with_python) = (0, 0);
    // Every 7th event only, because the search is quadratic.
    for (i, m) in memory.iter().enumerate() {
        while device.events.action[at].grows_reserved() || device.events.action[at].shrinks_reserved() {
            at += 1;
        }
        let event = at;
        at += if m.args.bytes.unwrap() < 0 { 2 } else { 1 };
        if i % 7 != 0 {
            continue;
        }
        let holds = |e: &&&Event| e.ts <= m.ts && m.ts <= e.ts + e.dur;
        let slices = by_thread.get(&m.tid.to_string()).map_or(&[][..], Vec::as_slice);
        let enclosing: Vec<&&Event> = slices.iter().filter(holds).collect();
        let frames = recording.stacks.frames(device.events.stack[event]);
        let texts: Vec<&str> =
            frames.iter().filter_map(|&f| recording.stacks.frame(f)).map(|f| recording.stacks.text(f.name)).collect();
        let own = texts.iter().position(|&t| t == "[forward]").unwrap_or(texts.len());
        assert_eq!(own, enclosing.len(), "event {event} at {}: {texts:?}", m.ts);
        let innermost =
            enclosing.iter().filter(|e| e.cat == "cpu_op").min_by(|a, b| b.ts.total_cmp(&a.ts).then(a.dur.total_cmp(&b.dur)));
        if let Some(op) = innermost {
            with_operator += 1;
            assert!(texts[..own].contains(&op.name.as_str()), "{} not in {texts:?}", op.name);
        }
        with_python += usize::from(frames.iter().filter_map(|&f| recording.stacks.frame(f)).any(|f| f.line > 0));
    }
    println!(
        "  {}: of {} checked, {with_operator} in an operator, {with_python} lead to Python",
        device.id,
        memory.len().div_ceil(7)
    );
}

#[test]
fn traces_of_other_releases() {
    let Some(dir) = corpus() else { return };
    for name in ["torch2.0.1_trace_mem.json.gz", "torch2.5.1_trace_mem.json.gz", "torch2.15.0_trace_mem.json.gz"] {
        let r = check(&dir.join("versions").join(name));
        // All were made at about the same time, so the clocks of all releases must agree.
        for d in &r.devices {
            let (first, last) = d.events.time_range().unwrap();
            assert!(first > 1_795_000_000_000_000 && last < 1_796_000_000_000_000 && first <= last, "{name}: {first} {last}");
        }
    }
}

#[test]
fn traces_agree_with_memory_stats() {
    let Some(dir) = corpus() else { return };
    for name in ["gpt_train", "resnet"] {
        let dir = dir.join("profiler");
        let r = check(&dir.join(format!("{name}.trace.json")));
        let stats: BTreeMap<String, serde_json::Value> =
            serde_json::from_slice(&std::fs::read(dir.join(format!("{name}.memory_stats.json"))).unwrap()).unwrap();
        let gpu = r.devices.iter().find(|d| d.id.kind == DeviceKind::Cuda).unwrap();
        // The segments that the totals imply are those of the snapshot of the same run.
        let snapshot = open(&dir.join(format!("{name}.with_trace.pickle")));
        let segments = |e: &vramscope_core::model::EventTable| -> Vec<(Action, u64, u64)> {
            let rows = (0..e.len()).filter(|&i| e.action[i].grows_reserved() || e.action[i].shrinks_reserved());
            rows.map(|i| (e.action[i], e.address[i], e.size[i])).collect()
        };
        assert_eq!(segments(&gpu.events), segments(&snapshot.devices[0].events));
        assert_eq!(gpu.source_totals.allocated.values.iter().copied().max(), stats["allocated_bytes.all.peak"].as_u64());
        assert_eq!(gpu.source_totals.reserved.values.iter().copied().max(), stats["reserved_bytes.all.peak"].as_u64());
    }
}

#[test]
fn a_trace_and_a_timeline_join_the_snapshot_of_their_run() {
    use vramscope_core::compare::join::join;
    use vramscope_core::model::NoteKind;
    let Some(dir) = corpus() else { return };
    let dir = dir.join("profiler");
    let open = |name: &str| open(&dir.join(name));
    for (name, events, allocations) in [("gpt_train", 2349, 1176), ("resnet", 3673, 1838)] {
        let snapshot = open(&format!("{name}.with_trace.pickle"));
        let before = snapshot.clone();
        let (joined, found) = join(snapshot, &open(&format!("{name}.trace.json")), &Progress::new()).unwrap();
        println!("{}", found.sentence());
        // Both files list the same events in the same order.
        assert_eq!((found.matched, found.expected, found.operators), (events, events, allocations));
        assert!(found.offset_us.abs() <= 2 && found.typical_us <= 2, "{found:?}");
        let (joined, found) = join(joined, &open(&format!("{name}.memory_timeline.raw.json.gz")), &Progress::new()).unwrap();
        assert_eq!((found.matched, found.categories), (events, allocations));
        // The snapshot's own columns are unchanged.
        let (a, b) = (&before.devices[0].events, &joined.devices[0].events);
        assert!(a.address == b.address && a.size == b.size && a.time_us == b.time_us && a.action == b.action);
        // Each allocation's operator is the innermost one that runs at its time on some thread, on the snapshot's clock.
        let truth: Vec<(Action, u64)> = b.action.iter().copied().zip(b.address.iter().copied()).collect();
        assert_eq!(truth.iter().filter(|(action, _)| *action == Action::Alloc).count() as u64, allocations);
        let (mut seen, mut around) = (0, 0);
        for note in b.notes.iter().filter(|n| n.kind == NoteKind::Operator) {
            seen += 1;
            let time = b.time_us[note.event as usize] * 1_000 + 500;
            let ops = &joined.ops;
            let begun = ops.start_ns.partition_point(|&start| start <= time);
            let runs = |row: usize| ops.end_ns(row).is_some_and(|end| end >= time);
            let innermost = |lane: u16| {
                let mut rows = (0..begun).rev().filter(|&row| ops.lane[row] == lane && ops.kind[row] == OpKind::Operator);
                rows.find(|&row| runs(row) || ops.depth[row] == 0).filter(|&row| runs(row))
            };
            around += u64::from((0..ops.lanes.len() as u16).filter_map(innermost).any(|row| ops.name[row] == note.text));
        }
        println!("  {around} of {seen} operators run at the snapshot's time of their allocation");
        // Operators last microseconds, and so does the difference between the clocks.
        assert!(around * 10 >= seen * 8, "{around} of {seen}");
    }
    // Two runs are never mixed.
    let wrong = join(open("gpt_train.with_trace.pickle"), &open("resnet.trace.json"), &Progress::new()).unwrap_err();
    assert!(wrong.to_string().contains("is not of the same run"), "{wrong}");
}

fn load(events: &[String]) -> Recording {
    let text = format!("{{\"schemaVersion\": 1, \"traceEvents\": [{}]}}", events.join(","));
    formats::read(text.as_bytes(), "t.json", &Progress::new()).unwrap()
}

/// Most memory is older than a trace that begins in the middle of a run. The curves are its totals, whatever its events add up
/// to.
#[test]
fn a_trace_of_the_middle_of_a_run_has_the_totals_that_it_tells() {
    let event = |ts: u32, bytes: i64, address: u64, allocated: u64, reserved: u64, kind: i32| {
        format!(
            r#"{{"ph":"i","name":"[memory]","pid":7,"tid":1,"ts":{ts},"args":{{"Total Reserved":{reserved},"Total Allocated":{allocated},"Bytes":{bytes},"Device Id":0,"Device Type":{kind},"Addr":{address}}}}}"#
        )
    };
    const GIB: u64 = 1 << 30;
    let events = [
        event(1, 1 << 20, 1 << 40, 178 * GIB + (1 << 20), 180 * GIB, 6),
        event(2, -(1 << 30), 1 << 41, 177 * GIB + (1 << 20), 180 * GIB, 6),
        // 2 MiB more than the event explains, and a segment that begins with it.
        event(3, 1 << 20, 1 << 42, 177 * GIB + (4 << 20), 180 * GIB + (20 << 20), 6),
        event(4, 0, 0, 179 * GIB, 180 * GIB + (20 << 20), 6),
        event(5, -(1 << 20), 1 << 40, 177 * GIB + (3 << 20), 180 * GIB + (20 << 20), 6),
        // The last event has no totals, so its total follows from the previous one.
        r#"{"ph":"i","name":"[memory]","pid":7,"tid":1,"ts":6,"args":{"Bytes":-1048576,"Device Id":0,"Device Type":6,"Addr":4398046511104}}"#.to_owned(),
    ];
    let r = load(&events);
    let d = &r.devices[0];
    assert_eq!((d.id.to_string(), d.name.as_deref()), ("GPU 0".to_owned(), Some("AMD GPU")));
    assert_eq!(vramscope_core::diagnose::vendor::Words::of(d).tool, "rocm-smi");
    let tables = tables(d);
    use Quantity::{Active, Allocated, Reserved};
    // There is no event for zero bytes, but its total counts.
    assert_eq!(tables.curves.peak(Allocated).0, 179 * GIB);
    assert_eq!(tables.curves.peak(Active).0, 179 * GIB);
    assert_eq!(tables.curves.peak(Reserved).0, 180 * GIB + (20 << 20));
    assert_eq!((tables.curves.start(Allocated), tables.curves.end(Allocated)), (178 * GIB, 177 * GIB + (2 << 20)));
    assert!(!tables.curves.has_all_segments() && tables.curves.is_exact(Allocated) && tables.curves.is_exact(Reserved));
    // Only the segment that was seen being reserved and those of known blocks are known. Nothing replaces the others.
    let state = tables.states.at(d, &tables.lifetimes, d.events.len() as u32 - 1);
    assert_eq!(state.segments.iter().map(|s| s.size).collect::<Vec<_>>(), [2 << 20, 1 << 30, 20 << 20]);
    assert_eq!((state.totals.allocated, state.totals.reserved), (177 * GIB + (2 << 20), 180 * GIB + (20 << 20)));
    // Older memory is at the bottom of every column, and the parts add up to the whole.
    let n = d.events.len() as u32;
    let strata = strata(d, &tables, &[0, 1, n], 1, Active, &Progress::new()).unwrap();
    let first = strata.runs_of(0);
    assert!(first[0].part() == Some(StackId::BEFORE) && first[1].part().is_none(), "{first:?}");
    // The block of 1 GiB that is freed later was live too, and is known.
    assert_eq!((first[0].top, strata.columns[0].total), (177 * GIB, 178 * GIB + (1 << 20)));
    let parts = vramscope_core::diagnose::accounting::account(d, &state, false);
    assert_eq!(parts.reserved, Some(180 * GIB + (20 << 20)));
    assert_eq!(parts.rows.iter().filter_map(|r| r.bytes).sum::<u64>(), 180 * GIB + (20 << 20));
    // Nothing in the trace can remove what was there before.
    assert!(counterfactual::peak_after(d, &tables, |_, _| 0) >= 177 * GIB);
    assert_eq!(counterfactual::peak_with(d, &tables, |_, _| 0), 0);
    assert_eq!(counterfactual::peak_after(d, &tables, |_, size| size), 179 * GIB);
}

/// PyTorch 1.8 and 1.9 wrote neither addresses nor totals.
#[test]
fn a_trace_of_sizes_alone_has_a_relative_curve() {
    let event = |ts: u32, bytes: i64| {
        format!(
            r#"{{"ph":"i","s":"t","name":"[memory]","pid":1,"tid":1,"ts":{ts},"args":{{"Device Type":1,"Device Id":0,"Bytes":{bytes}}}}}"#
        )
    };
    let r = load(&[event(1, 4096), event(2, 512), event(3, -8192), event(4, -4096), event(5, 1024)]);
    let d = &r.devices[0];
    assert!(!d.can_show.addresses.is_known() && !r.addresses().is_known() && !d.source_totals.allocated.is_known());
    let tables = tables(d);
    let at = |e| tables.curves.at(d, &tables.lifetimes, Quantity::Allocated, e);
    // The 8,192 bytes that it frees existed before.
    assert_eq!([u32::MAX, 0, 1, 3, 5, 6].map(at), [8192, 12_288, 12_800, 4608, 512, 1536]);
    let said: Vec<_> = r.report.warnings.iter().map(|w| (w.kind, w.text.contains("relative"))).collect();
    assert_eq!(said, [(WarningKind::NoAddresses, true)]);
    assert_eq!(r.report.nonsense(), 0);
}
