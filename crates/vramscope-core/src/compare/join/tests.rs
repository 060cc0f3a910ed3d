use super::*;
use crate::model::{DeviceKind, EventTable, OpKind, PoolId, Source, StreamId};

const BASE: i64 = 1_795_000_000_000_000;

fn recording(format: Format, name: &str) -> Recording {
    Recording { source: Source { name: name.to_owned(), path: None, format, bytes: 0 }, ..Recording::default() }
}

fn device(index: i32, has_time: bool, sizes_are_blocks: bool) -> DeviceRecording {
    DeviceRecording {
        id: DeviceId { kind: DeviceKind::Cuda, index },
        events: EventTable { has_time, sizes_are_blocks, ..EventTable::default() },
        pools: vec![(0, 0)],
        streams: vec![0],
        ..DeviceRecording::default()
    }
}

/// Twenty allocations of growing size, every third freed soon, all shifted by `late` microseconds.
fn push_run(d: &mut DeviceRecording, late: i64, stack: impl Fn(usize) -> StackId) {
    for k in 0..20usize {
        let (time, address) = (BASE + k as i64 * 130 + late + k as i64 % 3, 4096 * (k as u64 + 1));
        let size = 512 * (k as u64 + 1) - if d.events.sizes_are_blocks { 0 } else { 12 };
        let mut push = |action, t, s| d.events.push(t, action, address, size, StreamId(0), PoolId(0), s);
        push(Action::Alloc, time, stack(k));
        if k % 3 == 0 {
            push(Action::FreeRequested, time + 40, StackId::NONE);
            push(Action::FreeCompleted, time + 40, StackId::NONE);
        }
    }
}

fn snapshot() -> Recording {
    let mut r = recording(Format::SnapshotPickle, "s.pickle");
    let mut d = device(0, true, false);
    push_run(&mut d, 0, |_| StackId::NONE);
    r.devices.push(d);
    r
}

fn trace(late: i64) -> Recording {
    let mut r = recording(Format::KinetoTrace, "t.json");
    let mut b = StackTableBuilder::new();
    let mut frame = |name: &str, file: &str| b.frame_of(name, file, 0);
    let frames = [frame("aten::addmm", "<operator>"), frame("nn.Module: Linear_1", "<module>"), frame("main", "train.py")];
    let stack = b.stack(&frames);
    let (op, shapes, range) = (b.string("aten::addmm"), b.string("[[2, 3]]"), b.string("ProfilerStep#1"));
    let mut d = device(0, true, true);
    d.capacity = Some(80 << 30);
    push_run(&mut d, late, |k| if k % 2 == 0 { stack } else { StackId::NONE });
    let allocs: Vec<u32> = (0..d.events.len() as u32).filter(|&e| d.events.stack[e as usize] == stack).collect();
    for event in allocs {
        d.events.notes.push(Note { event, kind: NoteKind::Operator, text: op });
        d.events.notes.push(Note { event, kind: NoteKind::Shapes, text: shapes });
    }
    d.annotations = vec![Annotation { name: range, start_us: BASE + late, end_us: Some(BASE + late + 900), depth: 0 }];
    r.ops.start_ns = vec![(BASE + late) * 1000 + 7];
    r.ops.duration_ns = vec![500];
    r.ops.depth = vec![0];
    r.ops.name = vec![op];
    r.ops.lane = vec![0];
    r.ops.kind = vec![OpKind::Operator];
    r.ops.shapes = vec![OpTable::NO_TEXT];
    r.ops.forward = vec![OpTable::NO_OP];
    r.devices.push(d);
    r.stacks = b.finish();
    r
}

fn joined(base: Recording, extra: &Recording) -> Result<(Recording, Join), NotJoined> {
    join(base, extra, &Progress::new())
}

#[test]
fn allocations_gain_what_the_trace_knows() {
    let (r, found) = joined(snapshot(), &trace(-250)).unwrap();
    assert_eq!((found.offset_us, found.matched, found.expected), (250, 27, 27));
    assert_eq!((found.operators, found.modules, found.stacks, found.ops, found.annotations), (10, 10, 10, 1, 1));
    let d = &r.devices[0];
    let notes: Vec<(NoteKind, &str)> = d.events.notes_of(0).iter().map(|n| (n.kind, r.stacks.text(n.text))).collect();
    assert_eq!(
        notes,
        [
            (NoteKind::Operator, "aten::addmm"),
            (NoteKind::Shapes, "[[2, 3]]"),
            (NoteKind::Module, "Linear_1"),
            (NoteKind::Phase, "forward")
        ]
    );
    assert_eq!(crate::anatomy::modules::module_of(&r.stacks, d, 0).as_deref(), Some("Linear_1"));
    assert_eq!(r.stacks.frames(d.events.stack[0]).len(), 3);
    assert_eq!(r.ops.start_ns, [BASE * 1000 + 7]);
    assert_eq!((d.annotations[0].start_us, d.annotations[0].end_us), (BASE, Some(BASE + 900)));
    assert_eq!(d.capacity, Some(80 << 30));
    assert_eq!(r.added.len(), 1);
    assert!(found.sentence().contains("27 of 27"), "{}", found.sentence());
    // Joining again adds nothing new.
    let (_, again) = joined(r, &trace(-250)).unwrap();
    assert_eq!((again.operators, again.ops, again.annotations), (0, 0, 0));
}

#[test]
fn a_timeline_brings_categories() {
    let mut timeline = recording(Format::MemoryTimeline, "m.raw.json.gz");
    let mut b = StackTableBuilder::new();
    let (unknown, gradient) = (b.string("unknown"), b.string("gradient"));
    let mut d = device(0, true, true);
    d.id = DeviceId { kind: DeviceKind::Other, index: 0 };
    push_run(&mut d, 40, |_| StackId::NONE);
    let address = d.events.address[0];
    d.events.notes.push(Note { event: 0, kind: NoteKind::Category, text: unknown });
    d.events.push(BASE + 4_000, Action::Annotate, 8192, 1024, StreamId(0), PoolId(0), StackId::NONE);
    assert_eq!(address, 4096);
    d.events.notes.push(Note { event: 3, kind: NoteKind::Category, text: unknown });
    d.events.notes.push(Note { event: 34, kind: NoteKind::Category, text: gradient });
    timeline.devices.push(d);
    timeline.stacks = b.finish();
    let (r, found) = joined(snapshot(), &timeline).unwrap();
    assert_eq!((found.categories, found.offset_us), (2, -40));
    let category = |event| {
        let note = r.devices[0].events.notes_of(event).iter().find(|n| n.kind == NoteKind::Category);
        note.map(|n| r.stacks.text(n.text).to_owned())
    };
    assert_eq!((category(0).as_deref(), category(3).as_deref()), (Some("unknown"), Some("gradient")));
}

#[test]
fn what_is_not_of_one_run_is_refused_in_a_sentence() {
    let refusal =
        |base: Recording, extra: &Recording| joined(base, extra).unwrap_err().to_string().replace(crate::units::NBSP, " ");
    let mut moved = trace(0);
    moved.devices[0].events.address.iter_mut().for_each(|a| *a += 1 << 40);
    let said = refusal(snapshot(), &moved);
    assert!(said.contains("t.json is not of the same run as s.pickle: none of 27 memory events"), "{said}");
    let mut old = snapshot();
    old.devices[0].events.has_time = false;
    assert!(refusal(old, &trace(0)).contains("has no times"));
    let mut other_device = trace(0);
    other_device.devices[0].id.index = 3;
    assert!(refusal(snapshot(), &other_device).contains("no memory events of a device"));
    assert!(refusal(trace(0), &snapshot()).contains("cannot be added"));
    let mut plot = recording(Format::MemoryTimeline, "m.json");
    plot.devices.push(device(0, true, true));
    assert!(refusal(snapshot(), &plot).contains("only sums"));
}

#[test]
fn ranges_nest_by_time() {
    let at = |start_us, end_us| Annotation { name: StrId(0), start_us, end_us: Some(end_us), depth: 9 };
    let mut all = vec![at(5, 8), at(0, 10), at(8, 9), at(20, 30), at(0, 4)];
    nest(&mut all);
    let told: Vec<_> = all.iter().map(|a| (a.start_us, a.end_us, a.depth)).collect();
    let ends = |e| Some(e);
    assert_eq!(told, [(0, ends(10), 0), (0, ends(4), 1), (5, ends(8), 1), (8, ends(9), 1), (20, ends(30), 0)]);
}
