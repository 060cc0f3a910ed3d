use super::*;
use crate::model::{
    Action, Annotation, Block, BlockState, DeviceRecording, Frame, Note, NoteKind, PoolId, Progress, Recording, Segment,
    SizeClass, StackId, StackTableBuilder, StreamId,
};

/// Two stacks, a segment with a live block and a hole, and one event of each kind that has fields of its own.
fn recording() -> Recording {
    let mut table = StackTableBuilder::new();
    let inner = table.frame_of("forward, \"quoted\"", "/home/someone/proj/model.py", 7);
    let outer = table.frame_of("__call__", "/opt/py/site-packages/torch/nn/module.py", 1500);
    let (a, b) = (table.stack(&[inner, outer]), table.stack(&[outer]));
    let (note, range) = (table.string("saved"), table.string("step"));
    let mut d = DeviceRecording { has_final_state: true, ..DeviceRecording::default() };
    d.pools = vec![(0, 0), (0, 1)];
    d.streams = vec![0, 0x7f00_1234_5678];
    d.events.has_time = true;
    let base = 1_795_225_000_000_000;
    let address = 0xffff_8000_0000_0000u64;
    d.events.push(base, Action::SegmentAlloc, address, 2 << 20, StreamId(1), PoolId(1), a);
    d.events.push(base + 1, Action::Alloc, address, 1000, StreamId(1), PoolId(1), a);
    d.events.push(base + 2, Action::Alloc, address + 1024, 300, StreamId(1), PoolId(1), b);
    d.events.push(base + 3, Action::FreeRequested, address + 1024, 300, StreamId(1), PoolId(1), StackId::NONE);
    d.events.push(base + 4, Action::FreeCompleted, address + 1024, 300, StreamId(1), PoolId(1), StackId::NONE);
    d.events.push(base + 5, Action::Oom, 4096, 1 << 33, StreamId(0), PoolId(0), b);
    d.events.notes.push(Note { event: 1, kind: NoteKind::UserMetadata, text: note });
    d.blocks = vec![
        Block { address, size: 1024, requested: 1000, state: BlockState::Active, stack: a },
        Block { address: address + 1024, size: (2 << 20) - 1024, state: BlockState::Inactive, ..Block::default() },
    ];
    let (stream, pool, class) = (StreamId(1), PoolId(1), SizeClass::Small);
    d.segments = vec![Segment { address, size: 2 << 20, stream, pool, class, blocks: 0..2, ..Segment::default() }];
    d.annotations = vec![Annotation { name: range, start_us: base, end_us: Some(base + 4), depth: 0 }];
    d.settings.recorded = true;
    d.settings.raw = vec![
        ("PYTORCH_CUDA_ALLOC_CONF".to_owned(), "expandable_segments:False".to_owned()),
        ("max_split_size".to_owned(), "-1".to_owned()),
    ];
    Recording { devices: vec![d], stacks: table.finish(), ..Recording::default() }
}

#[test]
fn csv_quotes_what_needs_it_and_leaves_gaps_empty() {
    let r = recording();
    let mut out = Vec::new();
    csv::write(&stacks(&r), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(
        text.starts_with("stack,depth,function,file,line\n0,0,\"forward, \"\"quoted\"\"\",/home/someone/proj/model.py,7\n"),
        "{text}"
    );
    let mut out = Vec::new();
    csv::write(&events(&r, &Names::new(&r.devices[0], &["model.py:7".to_owned()])), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 7);
    assert_eq!(lines[2], "cuda:0,1,1795225000000001,alloc,18446603336221196288,1000,,139638282147448,\"(0, 1)\",0,model.py:7");
    assert_eq!(lines[6], "cuda:0,5,1795225000000005,oom,,8589934592,4096,0,\"(0, 0)\",1,");
}

fn round_trip(redact: bool) -> (Recording, Recording) {
    let mut r = recording();
    if redact {
        redact::redact(&mut r);
    }
    let mut out = Vec::new();
    snapshot::write(&r, &[snapshot::DevicePart::whole(&r, 0).unwrap()], redact, &mut out).unwrap();
    let back = crate::formats::read(&out, "back.pickle", &Progress::new()).unwrap();
    (r, back)
}

#[test]
fn a_snapshot_comes_back_as_it_was() {
    let (r, back) = round_trip(false);
    assert!(back.report.warnings.is_empty(), "{:?}", back.report.warnings);
    let (d, b) = (&r.devices[0], &back.devices[0]);
    assert_eq!(b.events.time_us, d.events.time_us);
    assert_eq!(b.events.action, d.events.action);
    assert_eq!(b.events.address, d.events.address);
    assert_eq!(b.events.size, d.events.size);
    let pools = |d: &DeviceRecording| d.events.pool.iter().map(|&p| d.pool_key(p)).collect::<Vec<_>>();
    assert_eq!(pools(b), pools(d));
    let streams = |d: &DeviceRecording| d.events.stream.iter().map(|s| d.streams[usize::from(s.0)]).collect::<Vec<_>>();
    assert_eq!(streams(b), streams(d));
    let frames = |r: &Recording, s: StackId| {
        let text = |f: Frame| (r.stacks.text(f.name).to_owned(), r.stacks.text(f.file).to_owned(), f.line);
        r.stacks.frames(s).iter().filter_map(|&f| r.stacks.frame(f)).map(text).collect::<Vec<_>>()
    };
    for i in 0..d.events.len() {
        assert_eq!(frames(&back, b.events.stack[i]), frames(&r, d.events.stack[i]));
    }
    assert_eq!(b.events.notes.len(), 1);
    assert_eq!((b.segments.len(), b.blocks.len()), (1, 2));
    assert_eq!((b.blocks[0].size, b.blocks[0].requested, b.blocks[0].state), (1024, 1000, BlockState::Active));
    assert_eq!(b.annotations.len(), 1);
    assert_eq!(b.annotations[0].end_us, d.annotations[0].end_us);
    assert_eq!(b.settings.raw, d.settings.raw);
}

#[test]
fn blocks_that_stand_in_for_requests_are_told_from_them() {
    let mut r = recording();
    // Set as the trace reader sets it.
    r.devices[0].can_show.requested = crate::formats::WHOLE_BLOCKS;
    r.devices[0].events.sizes_are_blocks = true;
    let mut bytes = Vec::new();
    snapshot::write(&r, &[snapshot::DevicePart::whole(&r, 0).unwrap()], true, &mut bytes).unwrap();
    let back = crate::formats::read(&bytes, "x.pickle", &Progress::new()).unwrap();
    assert!(back.devices[0].events.sizes_are_blocks && !back.devices[0].can_show.requested.is_known());
    // memory_viz draws requested sizes, so they must be written.
    assert!(bytes.windows(14).any(|w| w == b"requested_size"));
    let (_, whole) = round_trip(false);
    assert!(whole.devices[0].can_show.requested.is_known() && !whole.devices[0].events.sizes_are_blocks);
}

#[test]
fn long_lists_are_appended_in_parts() {
    let mut r = recording();
    for i in 0..2500u64 {
        r.devices[0].events.push(i as i64, Action::Alloc, 1 << 40 | i << 9, 512, StreamId(1), PoolId(1), StackId::NONE);
    }
    let mut bytes = Vec::new();
    snapshot::write(&r, &[snapshot::DevicePart::whole(&r, 0).unwrap()], false, &mut bytes).unwrap();
    // memory_viz passes the elements of each append as arguments of a function, and browsers accept about a hundred thousand.
    assert!(bytes.windows(3).filter(|w| w == b"ue(").count() >= 2);
    let back = crate::formats::read(&bytes, "x.pickle", &Progress::new()).unwrap();
    assert_eq!(back.devices[0].events.len(), r.devices[0].events.len());
}

#[test]
fn redacted_paths_tell_nothing_of_the_machine() {
    let (_, back) = round_trip(true);
    let files: Vec<&str> = (0..back.stacks.frame_count() as u32)
        .filter_map(|i| back.stacks.frame(crate::model::FrameId(i)))
        .map(|f| back.stacks.text(f.file))
        .collect();
    assert_eq!(files, ["model.py", "torch/nn/module.py"]);
}

#[test]
fn speedscope_and_perfetto_are_valid_json() {
    let r = recording();
    let weights = [(StackId(0), 1000), (StackId::NONE, 24)];
    let mut out = Vec::new();
    speedscope::write("x", &r.stacks, &[speedscope::Flame { name: "GPU 0", weights: &weights }], &mut out).unwrap();
    let v: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(v["profiles"][0]["samples"], serde_json::json!([[1, 0], [2]]));
    assert_eq!(v["profiles"][0]["endValue"], 1024);
    assert_eq!(v["shared"]["frames"][0]["line"], 7);
    let mut out = Vec::new();
    let row = perfetto::CounterRow { event: 1, reserved: Some(5), allocated: 4, requested: Some(3) };
    perfetto::write(&r, &mut |_| vec![row], &mut out).unwrap();
    let v: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let events = v["traceEvents"].as_array().unwrap();
    let counters: Vec<_> =
        events.iter().filter(|e| e["ph"] == "C").map(|e| (e["name"].as_str().unwrap(), &e["args"]["bytes"])).collect();
    assert_eq!(counters, [("reserved", &5.into()), ("allocated", &4.into()), ("requested", &3.into())]);
    let oom = events.iter().find(|e| e["name"] == "out of memory").unwrap();
    // Times are small numbers, which a viewer's floating point does not round; the header has the second they count from.
    assert_eq!((oom["ts"].as_i64(), v["baseTimeNanoseconds"].as_i64()), (Some(5), Some(1_795_225_000_000_000_000)));
}

#[test]
fn a_parquet_file_has_its_marks() {
    let r = recording();
    let mut out = Vec::new();
    parquet::write(&events(&r, &Names::new(&r.devices[0], &[])), &mut out).unwrap();
    assert_eq!((&out[..4], &out[out.len() - 4..]), (&b"PAR1"[..], &b"PAR1"[..]));
    let footer = u32::from_le_bytes(out[out.len() - 8..out.len() - 4].try_into().unwrap()) as usize;
    assert!(footer + 12 < out.len());
}

#[test]
fn samples_come_back_from_a_snapshot() {
    use crate::model::{LiveMark, LiveTrack, ProcessPoint, ProcessTrack, Sample};
    let mut r = recording();
    let base = r.devices[0].events.time_us[0];
    let d = &mut r.devices[0];
    (d.name, d.capacity, d.limit) = (Some("Card".to_owned()), Some(80 << 30), Some(40 << 30));
    d.samples = (0..10).map(|i| Sample { time_us: base + i, used: Some(1 << 40 | i as u64), ..Sample::default() }).collect();
    let points = (0..10).map(|i| ProcessPoint { time_us: base + i, used: Some(i as u64), torch: None }).collect();
    let process = ProcessTrack {
        pid: 7,
        name: "python".to_owned(),
        command: "python /home/someone/train.py".to_owned(),
        points,
        ..ProcessTrack::default()
    };
    let marks = vec![LiveMark { time_us: base + 3, text: "epoch".into(), ..LiveMark::default() }];
    d.live = Some(Box::new(LiveTrack { uuid: "GPU-1".to_owned(), processes: vec![process], marks, ..LiveTrack::default() }));
    let again = |parts: &[snapshot::DevicePart], redact: bool| {
        let (mut r, mut bytes) = (r.clone(), Vec::new());
        if redact {
            redact::redact(&mut r);
        }
        snapshot::write(&r, parts, redact, &mut bytes).unwrap();
        let read = crate::formats::read(&bytes, "again", &Progress::new()).unwrap();
        assert!(read.report.warnings.is_empty(), "{:?}", read.report.warnings);
        (read.devices.into_iter().next().unwrap(), bytes)
    };
    let whole = snapshot::DevicePart::whole(&r, 0).unwrap();
    let (back, _) = again(std::slice::from_ref(&whole), false);
    let d = &r.devices[0];
    assert_eq!(
        (&back.samples, &back.live, back.capacity, back.limit, &back.name),
        (&d.samples, &d.live, d.capacity, d.limit, &d.name)
    );
    assert_eq!((back.events.len(), back.blocks.len()), (d.events.len(), d.blocks.len()));

    // A part contains the samples of its time, and the process point valid at its beginning.
    let (cut, _) = again(&[snapshot::DevicePart { events: 2..5, ..whole.clone() }], false);
    assert_eq!(cut.samples.iter().map(|s| s.time_us - base).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(cut.live.unwrap().processes[0].points.len(), 3);

    // Redacted: bytes and times stay, names are removed.
    let (bare, bytes) = again(&[whole], true);
    let live = bare.live.unwrap();
    assert_eq!((live.processes[0].pid, live.processes[0].points.len(), live.uuid.as_str()), (7, 10, ""));
    for name in ["someone", "train.py", "GPU-1", "epoch"] {
        assert!(!bytes.windows(name.len()).any(|w| w == name.as_bytes()), "{name}");
    }
}

#[test]
fn samples_are_a_table_and_counters() {
    use crate::model::Sample;
    let mut r = recording();
    r.devices[0].samples = vec![
        Sample { time_us: 5, used: Some(100), process: Some(60), reserved: Some(50), ..Sample::default() },
        Sample { time_us: 6, used: Some(110), ..Sample::default() },
    ];
    let mut out = Vec::new();
    csv::write(&samples(&Names::new(&r.devices[0], &[])), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.lines().skip(1).collect::<Vec<_>>(), ["cuda:0,5,100,,60,,50,,,", "cuda:0,6,110,,,,,,,"]);
    let mut out = Vec::new();
    perfetto::write(&r, &mut |_| Vec::new(), &mut out).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let counters = json["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "C");
    let told: Vec<_> = counters.map(|e| (e["name"].as_str().unwrap(), e["args"]["bytes"].as_u64().unwrap())).collect();
    assert_eq!(told, [("used on the card", 100), ("this process", 60), ("reserved", 50), ("used on the card", 110)]);
}

/// Perfetto's treatment of thread numbers and of overlapping slices must lose nothing.
#[test]
fn every_slice_nests_on_a_thread_of_its_own_number_and_name() {
    use crate::model::{OpKind, OpLane, OpTable};
    let mut r = recording();
    let name = r.devices[0].annotations.first().map_or(crate::model::StrId(0), |a| a.name);
    let lane = |name: &str| OpLane { name: name.to_owned(), is_device: false };
    // Lane 0 has a parent with a child; lane 1 has two that overlap, a third inside both, and one after them.
    let rows = [(0, 0, 100), (0, 10, 20), (1, 0, 50), (1, 40, 30), (1, 45, 2), (1, 80, 5)];
    let mut ops = OpTable { lanes: vec![lane("python"), lane("GPU 0 stream 7")], ..OpTable::default() };
    for (lane, start, duration) in rows {
        ops.start_ns.push(start);
        ops.duration_ns.push(duration);
        ops.depth.push(0);
        ops.name.push(name);
        ops.lane.push(lane);
        ops.kind.push(OpKind::Kernel);
        ops.shapes.push(OpTable::NO_TEXT);
        ops.forward.push(OpTable::NO_OP);
    }
    r.ops = ops;
    let mut out = Vec::new();
    perfetto::write(&r, &mut |_| Vec::new(), &mut out).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let last = r.devices.len() as u64 + 1;
    let names: std::collections::HashMap<u64, &str> = events
        .iter()
        .filter(|e| e["name"] == "thread_name" && e["pid"] == last)
        .map(|e| (e["tid"].as_u64().unwrap(), e["args"]["name"].as_str().unwrap()))
        .collect();
    let slices: Vec<&str> =
        events.iter().filter(|e| e["ph"] == "X" && e["pid"] == last).map(|e| names[&e["tid"].as_u64().unwrap()]).collect();
    let (one, other) = ("GPU 0 stream 7", "GPU 0 stream 7, overlapping");
    assert_eq!(slices, ["python", "python", one, other, one, one]);
    assert!(events.iter().filter_map(|e| e["tid"].as_u64()).all(|tid| tid > last));
    for process in events.iter().filter(|e| e["name"] == "process_name") {
        assert!(!process["args"]["name"].as_str().unwrap().ends_with(|c: char| c.is_ascii_digit()), "{process}");
    }
}
