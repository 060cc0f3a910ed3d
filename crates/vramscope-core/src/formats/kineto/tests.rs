use super::*;
use crate::model::{Action, Clock, StackId};

fn load(text: &str) -> Recording {
    read(text.as_bytes(), "t.json", &Progress::new()).unwrap()
}

fn names(r: &Recording, stack: StackId) -> Vec<String> {
    r.stacks.frames(stack).iter().filter_map(|&f| r.stacks.frame(f)).map(|f| r.stacks.text(f.name).to_owned()).collect()
}

fn memory(tid: u32, ts: &str, bytes: i64, address: u64, allocated: u64, kind: i32, index: i32) -> String {
    format!(
        r#"{{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":7,"tid":{tid},"ts":{ts},"args":{{"Total Reserved":2097152,"Total Allocated":{allocated},"Bytes":{bytes},"Device Id":{index},"Device Type":{kind},"Addr":{address},"Ev Idx":1}}}}"#
    )
}

fn slice(category: &str, name: &str, tid: u32, ts: &str, dur: &str, args: &str) -> String {
    format!(r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":7,"tid":{tid},"ts":{ts},"dur":{dur},"args":{{{args}}}}}"#)
}

fn trace(head: &str, events: &[String]) -> String {
    format!(
        "\n  {{\n \"schemaVersion\": 1, {head}\n \"traceEvents\": [\n  {}\n  ],\n \"traceName\": \"x\"\n}}",
        events.join(",\n  ")
    )
}

fn forward_and_backward() -> Vec<String> {
    vec![
        slice("python_function", "train.py(3): step", 1, "100.000", "900.000", r#""Python id": 1, "Python parent id": null"#),
        slice("python_function", "nn.Module: Linear_0", 1, "110.000", "100.000", r#""Python id": 2, "Python parent id": 1"#),
        slice(
            "cpu_op",
            "aten::linear",
            1,
            "120.000",
            "50.000",
            r#""Sequence number": 5, "Fwd thread id": 0, "Input Dims": [[2, 3], []]"#,
        ),
        slice("cpu_op", "aten::addmm", 1, "125.000", "20.000", r#""Sequence number": 5, "Fwd thread id": 0"#),
        memory(1, "130.500", 1024, 4096, 1024, 1, 0),
        slice("cpu_op", "AddmmBackward0", 2, "400.000", "50.000", r#""Sequence number": 5, "Fwd thread id": 1"#),
        memory(2, "410.000", 512, 8192, 1536, 1, 0),
        memory(2, "455.000", -1024, 4096, 512, 1, 0),
        slice("user_annotation", "Optimizer.step#SGD.step", 1, "500.000", "10.000", ""),
    ]
}

#[test]
fn allocations_get_operators_modules_and_python() {
    let r = load(&trace(
        r#""baseTimeNanoseconds": 1790857026000000000, "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320}],"#,
        &forward_and_backward(),
    ));
    assert_eq!(r.devices.len(), 1);
    let d = &r.devices[0];
    assert_eq!(
        (d.id.to_string(), d.name.as_deref(), d.capacity),
        ("GPU 0".to_owned(), Some("NVIDIA H200"), Some(150_109_880_320))
    );
    assert!(d.events.sizes_are_blocks && d.events.has_time && !d.has_final_state);
    // The rise of the reserved total reveals the segment.
    assert_eq!(
        d.events.action,
        [Action::SegmentAlloc, Action::Alloc, Action::Alloc, Action::FreeRequested, Action::FreeCompleted]
    );
    assert_eq!((d.events.address[0], d.events.size[0]), (4096, 2_097_152));
    assert_eq!(d.events.time_us[0], 1_790_857_026_000_130);
    assert_eq!(names(&r, d.events.stack[1]), ["aten::addmm", "aten::linear", "nn.Module: Linear_0", "step"]);
    // The autograd thread has no Python frames; its operator is linked to the forward operator.
    assert_eq!(
        names(&r, d.events.stack[2]),
        ["AddmmBackward0", "[forward]", "aten::addmm", "aten::linear", "nn.Module: Linear_0", "step"]
    );
    assert_eq!(d.events.stack[3], StackId::NONE);
    let note = d.events.notes_of(1)[0];
    assert_eq!((note.kind, r.stacks.text(note.text)), (NoteKind::Operator, "aten::addmm"));
    // It has no shapes itself; the operator around it has.
    let shapes = d.events.notes_of(1)[1];
    assert_eq!((shapes.kind, r.stacks.text(shapes.text)), (NoteKind::Shapes, "aten::linear [[2, 3], []]"));
    assert_eq!((d.source_totals.allocated.start, &d.source_totals.allocated.events[..]), (0, &[1, 2, 3][..]));
    assert_eq!(d.source_totals.allocated.values, [1024, 1536, 512]);
    assert_eq!((d.source_totals.reserved.at(u32::MAX), d.source_totals.reserved.at(0)), (Some(0), Some(2_097_152)));
    assert_eq!(d.annotations.len(), 1);
    assert_eq!(d.annotations[0].end_us, Some(1_790_857_026_000_510));
    assert_eq!(r.ops.len(), 3);
    assert_eq!(r.ops.depth, [0, 1, 0]);
    assert_eq!(r.ops.forward, [OpTable::NO_OP, OpTable::NO_OP, 1]);
    assert_eq!(r.stacks.text(r.ops.shapes[0]), "[[2, 3], []]");
    assert!(r.report.warnings.is_empty(), "{:?}", r.report.warnings);
}

/// Operators that only allocate have sizes as inputs, which the profiler writes as empty lists.
#[test]
fn shapes_are_those_of_an_operator_on_tensors() {
    let events = [
        slice("cpu_op", "aten::mul", 1, "100", "50", r#""Input Dims": [[8, 4], [4]]"#),
        slice("cpu_op", "aten::empty_strided", 1, "110", "20", r#""Input Dims": [[], [], [], []]"#),
        memory(1, "115", 64, 77, 64, 1, 0),
        slice("cpu_op", "aten::empty", 1, "200", "20", r#""Input Dims": [[], []]"#),
        memory(1, "205", 64, 99, 128, 1, 0),
    ];
    let r = load(&trace("", &events));
    let d = &r.devices[0];
    let told = |event: u32| d.events.notes_of(event).iter().map(|n| r.stacks.text(n.text)).collect::<Vec<_>>();
    let allocs: Vec<u32> = (0..d.events.len() as u32).filter(|&e| d.events.action[e as usize] == Action::Alloc).collect();
    assert_eq!(told(allocs[0]), ["aten::empty_strided", "aten::mul [[8, 4], [4]]"]);
    assert_eq!(told(allocs[1]), ["aten::empty", "[[], []]"]);
}

#[test]
fn arrows_win_over_sequence_numbers() {
    let mut events = forward_and_backward();
    events.push(r#"{"ph":"s","id":9,"pid":7,"tid":1,"ts":120.000,"cat":"fwdbwd","name":"fwdbwd"}"#.to_owned());
    events.push(r#"{"ph":"f","id":9,"pid":7,"tid":2,"ts":400.000,"cat":"fwdbwd","name":"fwdbwd","bp":"e"}"#.to_owned());
    let r = load(&trace("", &events));
    assert_eq!(names(&r, r.devices[0].events.stack[2])[..3], ["AddmmBackward0", "[forward]", "aten::linear"]);
}

#[test]
fn old_traces_have_absolute_whole_microseconds() {
    let events = [
        slice("cpu_op", "aten::empty", 1, "1795226629869448", "22", ""),
        slice("python_function", "prof.py(13): <module>", 1, "1795226629869448", "22", ""),
        memory(1, "1795226629869450", 64, 77, 64, 0, -1),
    ];
    let r = load(&trace("", &events));
    let d = &r.devices[0];
    assert_eq!((d.id.kind, d.id.index), (DeviceKind::Cpu, -1));
    assert_eq!(d.events.time_us[0], 1_795_226_629_869_450);
    assert_eq!(names(&r, d.events.stack[0]), ["aten::empty", "<module>"]);
}

/// Shared memory of a `DataLoader` has 0 and its own size in place of totals.
#[test]
fn mapped_memory_of_the_cpu_is_no_total() {
    let event = |ts: u32, bytes: i64, address: u64, allocated: u64, reserved: u64| {
        format!(
            r#"{{"ph":"i","name":"[memory]","pid":7,"tid":1,"ts":{ts},"args":{{"Total Reserved":{reserved},"Total Allocated":{allocated},"Bytes":{bytes},"Device Id":-1,"Device Type":0,"Addr":{address}}}}}"#
        )
    };
    let events = [event(1, 64, 64, 64, 0), event(2, 4096, 8192, 0, 4096), event(3, 64, 256, 128, 0), event(4, -4096, 8192, 0, 0)];
    let d = &load(&trace("", &events)).devices[0];
    assert_eq!(
        (&d.source_totals.allocated.values[..], d.source_totals.reserved.is_known(), d.source_totals.mapped),
        (&[64, 128][..], false, 4096)
    );
}

#[test]
fn out_of_memory_marks_and_devices_stay_apart() {
    let oom = r#"{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[OutOfMemory]","pid":7,"tid":1,"ts":12.000,"args":{"Bytes":3221238272,"Total Allocated":10,"Total Reserved":20,"Device Type":1,"Device Id":0,"Ev Idx":3}}"#;
    let r = load(&trace("", &[memory(1, "9.0", 64, 1, 64, 0, -1), memory(1, "10.0", 512, 2, 512, 12, 1), oom.to_owned()]));
    let ids: Vec<String> = r.devices.iter().map(|d| d.id.to_string()).collect();
    assert_eq!(ids, ["GPU 0", "XPU 1", "CPU"]);
    let e = &r.devices[0].events;
    assert_eq!((e.action[0], e.size[0], e.device_free(0)), (Action::Oom, 3_221_238_272, None));
}

/// PyTorch calls AMD's GPUs `cuda` in every other place.
#[test]
fn a_device_of_type_6_is_amds_whatever_its_name() {
    for (head, name) in [
        ("", "AMD GPU"),
        (r#""deviceProperties": [{"id": 0, "name": "gfx942", "totalGlobalMem": 206158430208}],"#, "AMD GPU (gfx942)"),
        (
            r#""deviceProperties": [{"id": 0, "name": "AMD Instinct MI300X", "totalGlobalMem": 206158430208}],"#,
            "AMD Instinct MI300X",
        ),
    ] {
        let r = load(&trace(head, &[memory(1, "10.0", 512, 2, 512, 6, 0)]));
        assert_eq!(r.devices[0].name.as_deref(), Some(name));
    }
}

/// What appears while the trace runs is not what was there before.
#[test]
fn totals_that_no_event_explains_are_told() {
    let said = |totals: [u64; 3]| {
        let events = totals.map(|total| memory(1, "10.0", 512, total, total, 1, 0));
        let report = load(&trace("", &events)).report;
        report.warnings.iter().any(|w| w.text.replace('\u{a0}', " ").contains("grew during profiling by 1 GiB"))
    };
    const GIB: u64 = 1 << 30;
    assert!(said([GIB, 2 * GIB + 512, 2 * GIB + 1024]));
    assert!(!said([GIB, GIB + 512, GIB + 1024]));
}

#[test]
fn broken_json_is_read_around() {
    let mut events = forward_and_backward();
    events.insert(0, r#"{"ph":"X","cat":"kernel","name":"f<"a">(int)","pid":0,"tid":7,"ts":1.0,"dur":1.0,"args":{}}"#.to_owned());
    events.insert(1, r#"{"ph":"X","cat":"kernel","name":broken,"pid":}0}"#.to_owned());
    events.insert(2, r#"{"ph":"X","cat":"kernel","name":"lost bracket","args":{"a":[1,2}"#.to_owned());
    let r = load(&trace("", &events));
    assert_eq!(r.devices[0].events.len(), 5);
    assert_eq!(r.ops.len(), 4);
    assert_eq!(r.stacks.text(r.ops.name[0]), "f<\"a\">(int)");
    let warning = r.report.warnings.iter().find(|w| w.kind == WarningKind::InvalidJson).unwrap();
    assert!(warning.count >= 2, "{warning:?}");
}

#[test]
fn a_trace_cut_anywhere_keeps_what_came_before() {
    let text = trace("", &forward_and_backward());
    let whole = load(&text).devices[0].events.len();
    for end in 0..text.len() {
        match read(&text.as_bytes()[..end], "t", &Progress::new()) {
            Ok(r) => {
                assert!(r.devices.iter().all(|d| d.events.len() <= whole));
                let warned = r.report.warnings.iter().any(|w| w.kind == WarningKind::Truncated);
                assert!(warned, "cut at {end}: {}", &text[..end]);
            }
            Err(FormatError::Elsewhere { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn legacy_arrays_and_empty_traces() {
    let events = forward_and_backward().join(",");
    assert_eq!(load(&format!("[{events}]")).devices[0].events.len(), 5);
    let error = read(b"{\"traceEvents\": []}", "t", &Progress::new()).unwrap_err();
    assert!(error.to_string().contains("profile_memory=True"), "{error}");
    let r = load(&trace("", &forward_and_backward()[..4]));
    assert!(r.devices.is_empty() && r.ops.len() == 2);
}

#[test]
fn a_file_made_of_breaks_ends_soon() {
    let mut text = String::from("{\"traceEvents\": [{\"a\":1}");
    for _ in 0..20_000 {
        text.push_str(",{\"a\":[},{\"b\":[[{");
    }
    let started = std::time::Instant::now();
    let _ = read(text.as_bytes(), "t", &Progress::new());
    assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
}

#[test]
fn times_that_are_no_clocks_count_from_the_first_event() {
    // Since PyTorch 2.2 `ts` counts from a base that a bare list of events does not contain.
    let events =
        [slice("cpu_op", "aten::empty", 1, "4369142875434.058", "9", ""), memory(1, "4369142875934.5", 512, 4096, 512, 1, 0)];
    let r = load(&format!("[{}]", events.join(",")));
    assert_eq!((r.clock(), r.devices[0].events.time_us.last(), r.ops.start_ns[0] / 1_000), (Clock::Start, Some(&500), 0));
    // With its base, or from an older release with epoch times, it is a clock.
    let r = load(&trace(r#""baseTimeNanoseconds": 1790857026000000000,"#, &events));
    assert_eq!((r.clock(), r.devices[0].events.time_us.last()), (Clock::Epoch, Some(&1_795_226_168_875_934)));
    let r = load(&format!("[{}]", memory(1, "1690857026000000", 512, 4096, 512, 1, 0)));
    assert_eq!((r.clock(), r.devices[0].events.time_us.last()), (Clock::Epoch, Some(&1_690_857_026_000_000)));
}

#[test]
fn ranges_in_two_events_are_ranges() {
    let mark = |phase: &str, name: &str, ts: u32| {
        format!(r#"{{"ph":"{phase}","cat":"user_annotation","name":"{name}","pid":7,"tid":1,"ts":{ts}}}"#)
    };
    let events =
        [mark("B", "step", 100), mark("B", "forward", 120), mark("E", "", 150), mark("E", "step", 200), mark("B", "open", 210)];
    let r = load(&trace("", &[&events[..], &[memory(1, "130", 512, 4096, 512, 1, 0)]].concat()));
    let ranges: Vec<_> = r.devices[0].annotations.iter().map(|a| (r.stacks.text(a.name), a.start_us, a.end_us)).collect();
    assert_eq!(ranges, [("step", 0, Some(100)), ("forward", 20, Some(50))]);
    let said = r.report.warnings.iter().find(|w| w.text.contains("only the begin or only the end")).unwrap();
    assert_eq!(said.count, 1);
}

#[test]
fn an_export_of_our_own_says_that_it_is_one() {
    let mut out = Vec::new();
    let recording = load(&trace(r#""baseTimeNanoseconds": 1790857026000000000,"#, &[memory(1, "130", 512, 4096, 512, 1, 0)]));
    crate::formats::export::perfetto::write(&recording, &mut |_| Vec::new(), &mut out).unwrap();
    let sentence = read(&out, "p.json", &Progress::new()).unwrap_err().to_string();
    assert!(sentence.contains("exported by vramscope for Perfetto"), "{sentence}");
}

#[test]
fn devices_that_can_not_exist_are_left_out() {
    let events: Vec<String> = (0..20_000).map(|i| memory(1, "130", 512, 4096, 512, 1, i)).collect();
    let r = load(&trace("", &events));
    assert_eq!(r.devices.len(), 128);
    assert!(r.report.warnings.iter().any(|w| w.kind == WarningKind::Skipped && w.count == 20_000 - 128), "{:?}", r.report);
}

#[test]
fn operators_that_all_start_at_once_or_never_nest_take_no_time() {
    let since = std::time::Instant::now();
    let mut events: Vec<String> = (0..40_000).map(|i| slice("cpu_op", &format!("op{i}"), 1, "100", "0", "")).collect();
    events.extend((0..20_000).map(|i| memory(1, "100", 512, 4096 + i * 512, 512, 1, 0)));
    // Each ends after the one before it, and all begin before the first ends.
    events.extend((0..40_000).map(|i| slice("cpu_op", "late", 2, &(1000 + i).to_string(), "100000", "")));
    events.extend((0..20_000).map(|i| format!(r#"{{"ph":"B","cat":"cpu_op","name":"b{i}","pid":7,"tid":3,"ts":{i}}}"#)));
    events.extend((0..20_000).map(|i| format!(r#"{{"ph":"E","name":"other","pid":7,"tid":3,"ts":{i}}}"#)));
    let r = load(&trace("", &events));
    let allocations = r.devices[0].events.action.iter().filter(|&&a| a == Action::Alloc).count();
    assert_eq!(allocations, 20_000);
    assert!(since.elapsed().as_secs() < 40, "{:?}", since.elapsed());
}

#[test]
fn totals_that_go_up_and_down_forever_take_no_time() {
    let since = std::time::Instant::now();
    let events: Vec<String> = (0..40_000u64)
        .map(|i| {
            let reserved = if i % 2 == 0 { (i + 2) << 20 } else { ((i + 1) << 20) - 1 };
            format!(
                r#"{{"ph":"i","name":"[memory]","pid":7,"tid":1,"ts":{i},"args":{{"Total Reserved":{reserved},"Total Allocated":512,"Bytes":512,"Device Id":0,"Device Type":1,"Addr":{}}}}}"#,
                (i + 1) << 30
            )
        })
        .collect();
    load(&trace("", &events));
    assert!(since.elapsed().as_secs() < 40, "{:?}", since.elapsed());
}
