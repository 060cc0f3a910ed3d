//! One snapshot in every dialect gives the same recording; odd files give what can be read and report the rest.

use std::collections::HashMap;

use super::super::{FormatError, read};
use crate::model::{Action, BlockState, DeviceKind, NoteKind, PoolId, Progress, Recording, SizeClass, WarningKind};

/// A Python value to pickle.
#[derive(Clone, Debug)]
pub(crate) enum V {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(String),
    List(Vec<V>),
    Tuple(Vec<V>),
    Dict(Vec<(V, V)>),
}

impl From<i32> for V {
    fn from(value: i32) -> V {
        V::Int(value.into())
    }
}

impl From<i128> for V {
    fn from(value: i128) -> V {
        V::Int(value)
    }
}

impl From<&str> for V {
    fn from(text: &str) -> V {
        s(text)
    }
}

pub(crate) fn s(text: &str) -> V {
    V::Str(text.to_owned())
}

pub(crate) fn dict(pairs: &[(&str, V)]) -> V {
    V::Dict(pairs.iter().map(|(key, value)| (s(key), value.clone())).collect())
}

/// A value as Python writes it; what is no literal stands in parentheses.
macro_rules! v {
    ({ $($key:literal: $value:tt),* $(,)? }) => { V::Dict(vec![$((s($key), v!($value))),*]) };
    ([ $($item:tt),* $(,)? ]) => { V::List(vec![$(v!($item)),*]) };
    ($value:expr) => { V::from($value) };
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Dialect {
    /// CPython's pickler: stores containers before it fills them, in batches of 1000.
    Python(u8),
    /// The C++ pickler: fills containers in one batch and stores them afterwards.
    Cpp,
}

const DIALECTS: [Dialect; 7] = [
    Dialect::Python(0),
    Dialect::Python(1),
    Dialect::Python(2),
    Dialect::Python(3),
    Dialect::Python(4),
    Dialect::Python(5),
    Dialect::Cpp,
];

/// Pickles a value as the writer of a dialect does, with equal strings shared.
pub(crate) fn pickle(value: &V, dialect: Dialect) -> Vec<u8> {
    let mut writer = Writer { out: Vec::new(), dialect, stored: 0, texts: HashMap::new() };
    match dialect {
        Dialect::Python(n @ 2..) => writer.out.extend([0x80, n]),
        Dialect::Cpp => writer.out.extend([0x80, 2]),
        Dialect::Python(_) => {}
    }
    if matches!(dialect, Dialect::Python(4..)) {
        writer.out.push(0x95);
        writer.out.extend(0u64.to_le_bytes());
    }
    writer.value(value);
    writer.out.push(b'.');
    writer.out
}

struct Writer {
    out: Vec<u8>,
    dialect: Dialect,
    stored: u64,
    texts: HashMap<String, u64>,
}

impl Writer {
    fn store(&mut self) -> u64 {
        let id = self.stored;
        self.stored += 1;
        match self.dialect {
            Dialect::Python(4..) => self.out.push(0x94),
            Dialect::Python(0) => self.out.extend(format!("p{id}\n").into_bytes()),
            _ if id < 256 => self.out.extend([b'q', id as u8]),
            _ => {
                self.out.push(b'r');
                self.out.extend((id as u32).to_le_bytes());
            }
        }
        id
    }

    fn fetch(&mut self, id: u64) {
        match self.dialect {
            Dialect::Python(0) => self.out.extend(format!("g{id}\n").into_bytes()),
            _ if id < 256 => self.out.extend([b'h', id as u8]),
            _ => {
                self.out.push(b'j');
                self.out.extend((id as u32).to_le_bytes());
            }
        }
    }

    fn int(&mut self, v: i128) {
        let text = matches!(self.dialect, Dialect::Python(0 | 1));
        match v {
            _ if self.dialect == Dialect::Python(0) => self.out.extend(format!("L{v}L\n").into_bytes()),
            0..=255 => self.out.extend([b'K', v as u8]),
            256..=65535 => {
                self.out.push(b'M');
                self.out.extend((v as u16).to_le_bytes());
            }
            _ if i32::try_from(v).is_ok() => {
                self.out.push(b'J');
                self.out.extend((v as i32).to_le_bytes());
            }
            _ if text => self.out.extend(format!("L{v}L\n").into_bytes()),
            _ => {
                let bytes = v.to_le_bytes();
                let mut n = 16;
                while n > 1 && bytes[n - 1] == if v < 0 { 0xff } else { 0 } && (bytes[n - 2] >= 0x80) == (v < 0) {
                    n -= 1;
                }
                if self.dialect == Dialect::Cpp {
                    n = 8;
                }
                self.out.extend([0x8a, n as u8]);
                self.out.extend(&bytes[..n]);
            }
        }
    }

    fn value(&mut self, value: &V) {
        let old = self.dialect == Dialect::Python(0);
        match value {
            V::None => self.out.push(b'N'),
            V::Bool(v) if matches!(self.dialect, Dialect::Python(0 | 1)) => {
                self.out.extend(if *v { b"I01\n" } else { b"I00\n" });
            }
            V::Bool(v) => self.out.push(if *v { 0x88 } else { 0x89 }),
            V::Int(v) => self.int(*v),
            V::Float(v) if old => self.out.extend(format!("F{v}\n").into_bytes()),
            V::Float(v) => {
                self.out.push(b'G');
                self.out.extend(v.to_be_bytes());
            }
            V::Str(text) => {
                if let Some(&id) = self.texts.get(text) {
                    return self.fetch(id);
                }
                match self.dialect {
                    Dialect::Python(0) => {
                        let escape = |c: char| match c {
                            '\\' | '\n' | '\u{100}'.. => format!("\\u{:04x}", c as u32).into_bytes(),
                            latin => vec![latin as u8],
                        };
                        self.out.push(b'V');
                        self.out.extend(text.chars().flat_map(escape));
                        self.out.push(b'\n');
                    }
                    Dialect::Python(4..) if text.len() < 256 => {
                        self.out.extend([0x8c, text.len() as u8]);
                        self.out.extend(text.as_bytes());
                    }
                    _ => {
                        self.out.push(b'X');
                        self.out.extend((text.len() as u32).to_le_bytes());
                        self.out.extend(text.as_bytes());
                    }
                }
                let id = self.store();
                self.texts.insert(text.clone(), id);
            }
            V::Tuple(items) => {
                let small = items.len() <= 3 && !matches!(self.dialect, Dialect::Python(0 | 1));
                if !small {
                    self.out.push(b'(');
                }
                items.iter().for_each(|item| self.value(item));
                self.out.push(match items.len() {
                    0 if small => b')',
                    n if small => 0x84 + n as u8,
                    _ => b't',
                });
                if !items.is_empty() {
                    self.store();
                }
            }
            V::List(items) => {
                self.out.extend(if old { b"(l".as_slice() } else { b"]" });
                let items: Vec<&[V]> = items.chunks(1).collect();
                self.fill(&items, b'a', b'e');
            }
            V::Dict(pairs) => {
                self.out.extend(if old { b"(d".as_slice() } else { b"}" });
                let pairs: Vec<[V; 2]> = pairs.iter().map(|(k, v)| [k.clone(), v.clone()]).collect();
                let pairs: Vec<&[V]> = pairs.iter().map(<[V; 2]>::as_slice).collect();
                self.fill(&pairs, b's', b'u');
            }
        }
    }

    fn fill(&mut self, groups: &[&[V]], one: u8, many: u8) {
        let cpp = self.dialect == Dialect::Cpp;
        if !cpp {
            self.store();
        }
        let size = match self.dialect {
            Dialect::Cpp => usize::MAX,
            Dialect::Python(0) => 1,
            Dialect::Python(_) => 1000,
        };
        if cpp && groups.is_empty() {
            self.out.extend([b'(', many]);
        }
        for batch in groups.chunks(size.min(groups.len().max(1))) {
            let single = batch.len() == 1 && !cpp;
            if !single {
                self.out.push(b'(');
            }
            batch.iter().copied().flatten().for_each(|value| self.value(value));
            self.out.push(if single { one } else { many });
        }
        if cpp {
            self.store();
        }
    }
}

const BASE: i128 = 0x7f12_0000_0000;
const T0: i128 = 1_795_226_592_363_700;

fn frame(name: &str, line: i128) -> V {
    v!({ "name": name, "filename": "/w/модель.py", "line": line })
}

pub(crate) fn entry(action: &str, addr: i128, size: i128, time: i128, more: &[(&str, V)]) -> V {
    let mut pairs = vec![
        ("action", s(action)),
        ("addr", V::Int(addr)),
        ("size", V::Int(size)),
        ("stream", V::Int(0)),
        ("time_us", V::Int(T0 + time)),
        ("compile_context", s("N/A")),
        ("user_metadata", s("")),
        ("pool_id", V::Tuple(vec![V::Int(0), V::Int(0)])),
    ];
    for (key, value) in more {
        match pairs.iter_mut().find(|(known, _)| known == key) {
            Some(pair) => pair.1 = value.clone(),
            None => pairs.push((key, value.clone())),
        }
    }
    dict(&pairs)
}

pub(crate) fn block(address: i128, size: i128, requested: i128, state: &str, frames: V) -> V {
    v!({ "address": address, "size": size, "requested_size": requested, "state": state, "frames": frames })
}

pub(crate) fn segment(device: i128, address: i128, size: i128, blocks: Vec<V>) -> V {
    v!({
        "device": device, "address": address, "total_size": size, "stream": 0, "segment_type": "small",
        "segment_pool_id": (V::Tuple(vec![V::Int(0), V::Int(0)])), "is_expandable": (V::Bool(false)), "frames": [],
        "blocks": (V::List(blocks)),
    })
}

/// Everything that a 2.15 snapshot can contain, on two devices and the host.
pub(crate) fn everything() -> V {
    let stack = V::List(vec![frame("forward", 7), frame("<module>", 3)]);
    let other = V::List(vec![frame("forward", 8), frame("<module>", 3)]);
    let blocks = vec![
        block(BASE, 1536, 1400, "active_allocated", stack.clone()),
        block(BASE + 1536, 512, 31_457_280, "inactive", V::List(vec![])),
        block(BASE + 2048, 2_095_104, 9, "active_pending_free", other.clone()),
    ];
    let mut trace = vec![
        entry("segment_alloc", BASE, 2_097_152, 0, &[("frames", stack.clone())]),
        entry("alloc", BASE, 1400, 2, &[("frames", stack.clone()), ("user_metadata", s("{\"layer\":1}"))]),
        entry("alloc", BASE + 1536, 9, 3, &[("frames", V::List(vec![frame("lone", 1)]))]),
        entry("free_requested", BASE + 1536, 9, 4, &[("frames", V::List(vec![]))]),
        entry("annotate", BASE, 1400, 5, &[("user_metadata", s("saved")), ("frames", other.clone())]),
        entry("workspace_snapshot", BASE, 4, 6, &[("forward_frames", V::List(vec![s("a\n"), s("b\n")]))]),
        entry("segment_map", (1 << 63) + 512, 20 << 20, 7, &[("stream", V::Int((1 << 63) + 64)), ("frames", stack)]),
    ];
    let V::Dict(mut oom) = entry("oom", 0, 3_221_238_272, 8, &[("pool_id", V::Tuple(vec![V::Int(0), V::Int(1)]))]) else {
        unreachable!()
    };
    oom[1] = (s("device_free"), V::Int(1_600_126_976));
    trace.push(V::Dict(oom));
    trace.push(entry("alloc", BASE, 1, 9, &[("surprise", V::Dict(vec![(s("x"), V::Float(1.5))]))]));
    let second = vec![entry("alloc", BASE, 5, 1, &[])];
    let mark = |stage: &str, name: &str, time: i128| {
        dict(&[("stage", s(stage)), ("name", s(name)), ("device", V::Int(0)), ("time_us", V::Int(T0 + time))])
    };
    let host =
        segment(-1, 0x5606_b0c6_0000, 131_072, vec![block(0x5606_b0c6_0000, 131_072, 131_072, "inactive", V::List(vec![]))]);
    let divisions = [1, 2, 4].map(|mib: u32| (s(&mib.to_string()), V::Int(4)));
    dict(&[
        ("segments", V::List(vec![segment(0, BASE, 2_097_152, blocks), segment(1, BASE, 2_097_152, vec![])])),
        ("device_traces", V::List(vec![V::List(trace), V::List(second), V::List(vec![])])),
        (
            "allocator_settings",
            dict(&[
                ("PYTORCH_CUDA_ALLOC_CONF", s("max_non_split_rounding_mb:64,large_segment_size_mb:40")),
                ("max_split_size", V::Int(-1)),
                ("garbage_collection_threshold", V::Float(0.75)),
                ("expandable_segments", V::Bool(true)),
                ("roundup_power2_divisions", V::Dict(divisions.to_vec())),
            ]),
        ),
        (
            "external_annotations",
            V::List(vec![mark("START", "step", 0), mark("START", "fwd", 1), mark("END", "fwd", 5), mark("END", "step", 9)]),
        ),
        ("host_segments", V::List(vec![host])),
        ("host_traces", V::List(vec![entry("alloc", 0x5606_b0c6_0000, 100_000, 1, &[("compile_context", s(""))])])),
        ("mine", V::List(vec![V::None])),
    ])
}

pub(crate) fn open(bytes: &[u8]) -> Recording {
    read(bytes, "test", &Progress::new()).unwrap_or_else(|error| panic!("{error}"))
}

fn same(a: &Recording, b: &Recording) -> bool {
    format!("{:?}{:?}", a.devices, a.stacks) == format!("{:?}{:?}", b.devices, b.stacks)
}

fn count(recording: &Recording, kind: WarningKind) -> u64 {
    recording.report.warnings.iter().filter(|w| w.kind == kind).map(|w| w.count).sum()
}

#[test]
fn every_dialect_gives_the_same_recording() {
    let first = open(&pickle(&everything(), Dialect::Python(4)));
    for dialect in DIALECTS {
        let mut bytes = pickle(&everything(), dialect);
        bytes.extend([0, 0]);
        let recording = open(&bytes);
        assert!(same(&first, &recording), "{dialect:?}:\n{:?}\n{:?}", first.devices, recording.devices);
        assert_eq!(count(&recording, WarningKind::UnknownKey), 2, "{dialect:?} {:?}", recording.report);
        assert_eq!(count(&recording, WarningKind::UnknownAction), 1);
    }
}

#[test]
fn nothing_of_a_snapshot_is_lost() {
    let r = open(&pickle(&everything(), Dialect::Python(5)));
    assert_eq!(r.devices.len(), 3);
    let gpu = &r.devices[0];
    assert_eq!(gpu.events.len(), 9);
    assert_eq!(gpu.events.time_range(), Some((T0 as i64, T0 as i64 + 9)));
    assert_eq!(gpu.events.action[5], Action::Unknown);
    assert_eq!(gpu.events.device_free(7), Some(1_600_126_976));
    assert_eq!(gpu.events.address[6], (1 << 63) + 512);
    assert_eq!(gpu.streams, [0, (1 << 63) + 64]);
    assert_eq!(gpu.pools, [(0, 0), (0, 1)]);
    assert_eq!(gpu.events.pool[7], PoolId(1));
    let text = |event: u32, kind: NoteKind| {
        gpu.events.notes_of(event).iter().find(|n| n.kind == kind).map(|n| r.stacks.text(n.text).to_owned())
    };
    assert_eq!(text(1, NoteKind::UserMetadata).as_deref(), Some("{\"layer\":1}"));
    assert_eq!(text(4, NoteKind::UserMetadata).as_deref(), Some("saved"));
    assert_eq!(text(5, NoteKind::Action).as_deref(), Some("workspace_snapshot"));
    assert_eq!(text(5, NoteKind::ForwardFrames).as_deref(), Some("a\nb\n"));
    assert_eq!(text(8, NoteKind::Internal).as_deref(), Some("surprise: {x: 1.5}"));
    assert_eq!(gpu.events.notes.len(), 5);
    let frames = r.stacks.frames(gpu.events.stack[0]);
    assert_eq!(r.stacks.location(r.stacks.frame(frames[0]).unwrap()), "модель.py:7");
    assert_eq!(gpu.events.stack[0], gpu.events.stack[1]);
    assert_eq!(gpu.events.stack[0], gpu.blocks[0].stack);
    assert!(!gpu.events.stack[3].is_some());
    let states: Vec<_> = gpu.blocks.iter().map(|b| b.state).collect();
    assert_eq!(states, [BlockState::Active, BlockState::Inactive, BlockState::PendingFree]);
    assert_eq!((gpu.blocks[0].requested, gpu.segments[0].class), (1400, SizeClass::Small));
    assert!(gpu.has_final_state && gpu.settings.recorded);
    assert_eq!(gpu.settings.conf.max_split_size, None);
    assert_eq!(gpu.settings.conf.max_non_split_rounding, Some(64 << 20));
    assert_eq!(gpu.settings.conf.large_segment_size, 40 << 20);
    assert_eq!(gpu.settings.conf.roundup_power2_divisions[..4], [4, 4, 4, 0]);
    assert_eq!(gpu.annotations.iter().map(|a| a.depth).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(gpu.annotations[1].end_us, Some(T0 as i64 + 5));
    // A segment without blocks becomes one hole, with a warning.
    assert_eq!((r.devices[1].blocks.len(), r.devices[1].final_reserved()), (1, 2_097_152));
    assert_eq!(count(&r, WarningKind::StateMismatch), 1);
    let host = &r.devices[2];
    assert_eq!((host.id.kind, host.id.index, host.events.len(), host.segments.len()), (DeviceKind::Host, -1, 1, 1));
}

#[test]
fn traces_of_any_length_keep_every_entry() {
    for n in [0, 1, 2, 999, 1000, 1001, 1002, 2000, 2001, 20_000] {
        let stacks: Vec<V> = (0..7).map(|i| V::List(vec![frame("f", i), frame("g", 1)])).collect();
        let trace: Vec<V> =
            (0..n).map(|i| entry("alloc", i * 512, i, i, &[("frames", stacks[(i % 7) as usize].clone())])).collect();
        for dialect in [Dialect::Python(1), Dialect::Python(4), Dialect::Cpp] {
            let value = dict(&[("segments", V::List(vec![])), ("device_traces", V::List(vec![V::List(trace.clone())]))]);
            let r = open(&pickle(&value, dialect));
            let sizes: Vec<u64> = r.devices.first().map(|d| d.events.size.clone()).unwrap_or_default();
            assert!(sizes.iter().copied().eq(0..n as u64), "{n} entries, {dialect:?}: {}", sizes.len());
            assert_eq!(r.stacks.len(), n.min(7) as usize);
            assert!(r.report.warnings.is_empty(), "{:?}", r.report);
        }
    }
}

#[test]
fn lists_of_segments_and_histories_of_old_releases_open() {
    let old = v!([{
        "device": 0, "address": BASE, "total_size": 2_097_152, "allocated_size": 512, "active_size": 512, "segment_type": "small",
        "blocks": [{ "size": 512, "state": "active_allocated" }, { "size": 2_096_640, "state": "inactive" }],
    }]);
    let r = open(&pickle(&old, Dialect::Python(3)));
    let d = &r.devices[0];
    assert_eq!(d.blocks.iter().map(|b| b.address).collect::<Vec<_>>(), [BASE as u64, BASE as u64 + 512]);
    assert_eq!(d.blocks[0].requested, 512);
    assert!(r.report.warnings.is_empty() && d.events.is_empty() && d.has_final_state && !d.settings.recorded);

    let past = |addr: i128, size: i128| {
        let frames = V::List(vec![frame("old", size)]);
        v!({ "addr": addr, "real_size": size, "frames": frames, "cpp_frames": "frame #0: malloc\nframe #1: main\n" })
    };
    let with_history = v!({
        "segments": [{
            "device": 0, "address": BASE, "total_size": 4096, "stream": 0, "segment_type": "large",
            "blocks": [
                { "size": 2048, "state": "active_allocated", "history": [(past(BASE, 700))] },
                {
                    "size": 2048, "requested_size": 700, "state": "inactive",
                    "history": [(past(BASE + 2048, 700)), (past(BASE + 3072, 100))],
                },
            ],
        }],
        "device_traces": [[{
            "frames": [(frame("old", 1))], "cpp_frames": "frame #0: malloc\n", "action": "alloc", "addr": BASE, "size": 700, "stream": 0,
        }]],
    });
    let r = open(&pickle(&with_history, Dialect::Python(4)));
    let d = &r.devices[0];
    assert_eq!((d.blocks[0].requested, r.stacks.frames(d.blocks[0].stack).len()), (700, 3));
    assert_eq!((r.stacks.frames(d.events.stack[0]).len(), d.events.has_time, d.events.time_us[0]), (2, false, 0));
}

#[test]
fn events_out_of_order_are_sorted_with_their_notes() {
    // In file order one address is allocated twice; in time order it is freed in between.
    let trace = [5, 6, 1, 2, 3].map(|t| {
        let (action, address) = if t == 2 { ("free_completed", 1) } else { ("alloc", if t == 5 { 1 } else { t }) };
        entry(action, address, t, t, &[("user_metadata", s(&format!("n{t}")))])
    });
    let value = dict(&[("device_traces", V::List(vec![V::List(trace.to_vec())]))]);
    let r = open(&pickle(&value, Dialect::Python(4)));
    let events = &r.devices[0].events;
    assert_eq!(events.size, [1, 2, 3, 5, 6]);
    let texts: Vec<_> = events.notes.iter().map(|n| (n.event, r.stacks.text(n.text))).collect();
    assert_eq!(texts, [(0, "n1"), (1, "n2"), (2, "n3"), (3, "n5"), (4, "n6")]);
    assert_eq!(count(&r, WarningKind::OutOfOrder), 3);
}

#[test]
fn the_order_of_the_file_is_kept_where_it_explains_more_than_the_times() {
    // Two threads took their timestamps before they got the lock: the block is freed before it is reallocated, despite the times.
    let trace = [("alloc", 1), ("free_completed", 4), ("alloc", 3), ("free_completed", 9)]
        .map(|(action, t)| entry(action, 4096, 512, t, &[]));
    let value = dict(&[("segments", V::List(vec![])), ("device_traces", V::List(vec![V::List(trace.to_vec())]))]);
    let r = open(&pickle(&value, Dialect::Python(4)));
    let events = &r.devices[0].events;
    assert_eq!(events.action, [Action::Alloc, Action::FreeCompleted, Action::Alloc, Action::FreeCompleted]);
    assert_eq!(events.time_us.iter().map(|t| t - events.time_us[0]).collect::<Vec<_>>(), [0, 2, 3, 8]);
    assert_eq!(count(&r, WarningKind::OutOfOrder), 1);
    assert!(r.report.warnings[0].text.contains("the order of the file was kept"), "{:?}", r.report.warnings);
}

#[test]
fn a_list_without_requested_sizes_tells_none_and_a_negative_size_is_quoted_as_it_stands() {
    let block = |size: i128, state: &str, more: &[(&'static str, V)]| {
        let mut pairs = vec![("size", V::Int(size)), ("state", s(state))];
        pairs.extend(more.iter().cloned());
        dict(&pairs)
    };
    let list = |first: V| {
        let blocks = V::List(vec![first, block(512, "inactive", &[])]);
        let segment = dict(&[("address", V::Int(BASE)), ("total_size", V::Int(1024)), ("device", V::Int(0)), ("blocks", blocks)]);
        open(&pickle(&V::List(vec![segment]), Dialect::Python(4)))
    };
    let bare = list(block(512, "active_allocated", &[]));
    assert!(!bare.devices[0].can_show.requested.is_known());
    let told = list(block(512, "active_allocated", &[("requested_size", V::Int(500))]));
    assert!(told.devices[0].can_show.requested.is_known());
    let negative = list(block(-5, "active_allocated", &[]));
    assert!(negative.report.warnings.iter().any(|w| w.text.starts_with("size is -5 bytes")), "{:?}", negative.report.warnings);
}

#[test]
fn xpu_is_told_by_its_settings() {
    let value = dict(&[
        ("segments", V::List(vec![])),
        ("device_traces", V::List(vec![V::List(vec![entry("alloc", 1 << 63, 512, 0, &[])])])),
        ("allocator_settings", dict(&[("PYTORCH_ALLOC_CONF", s("")), ("expandable_segments", V::Bool(false))])),
    ]);
    let r = open(&pickle(&value, Dialect::Python(4)));
    assert_eq!((r.devices[0].id.kind, r.devices[0].events.address[0]), (DeviceKind::Xpu, 1 << 63));
}

#[test]
fn what_is_no_snapshot_is_one_clear_error() {
    let error = |bytes: &[u8]| read(bytes, "x.bin", &Progress::new()).unwrap_err();
    assert!(matches!(error(b""), FormatError::Empty { .. }));
    assert!(matches!(error(b"hello"), FormatError::NotRecognised { .. }));
    assert!(matches!(error(&pickle(&V::Int(3), Dialect::Python(4))), FormatError::Empty { .. }));
    assert!(matches!(error(&pickle(&dict(&[("a", V::None)]), Dialect::Python(4))), FormatError::Empty { .. }));
    assert!(matches!(error(&[0x80, 4, b'}']), FormatError::Empty { .. }));
    let evil = b"\x80\x04}\x94(\x8c\x08segments\x94]\x94\x8c\x01x\x94\x8c\x02os\x94\x8c\x06system\x94\x93\x94\x8c\x02ls\x94\x85\x94R\x94u.";
    let FormatError::Unsupported { offset, opcode, .. } = error(evil) else { panic!("it was not refused") };
    assert_eq!((opcode, evil[offset as usize]), ("STACK_GLOBAL", 0x93));
    assert!(error(evil).to_string().contains("byte 36") && error(evil).to_string().starts_with("x.bin: "), "{}", error(evil));
}

/// A later release may write keys that this one does not know. They cost no more than known ones; empty ones make no note.
#[test]
fn unknown_keys_of_entries_are_notes() {
    let more = |name: &str, value: V| entry("alloc", 0x7000_0000, 512, 1, &[(name, value)]);
    let trace = vec![
        more("lifetime", V::Int(-7)),
        more("lifetime", V::None),
        more("memory_tag", s("optimizer")),
        more("memory_tag", s("")),
        more("pinned", V::Bool(true)),
        more("mappings", v!({})),
        more("mappings", v!([])),
        more("mappings", v!([3])),
        more("mappings", v!({ "a": 3 })),
        more("ratio", V::Float(0.5)),
    ];
    // Without a margin behind them the last entries take the general way.
    let padding = (0..40).map(|_| more("lifetime", V::None));
    for dialect in DIALECTS {
        for trace in [trace.clone(), trace.clone().into_iter().chain(padding.clone()).collect()] {
            let keys = trace.len() as u64;
            let file = dict(&[("segments", V::List(Vec::new())), ("device_traces", V::List(vec![V::List(trace)]))]);
            let recording = open(&pickle(&file, dialect));
            let notes = &recording.devices[0].events.notes;
            let text = |note: &crate::model::Note| format!("{} {}", note.event, recording.stacks.text(note.text));
            let said: Vec<String> = notes.iter().map(text).collect();
            let expected = [
                "0 lifetime: -7",
                "2 memory_tag: optimizer",
                "4 pinned: True",
                "7 mappings: [3]",
                "8 mappings: {a: 3}",
                "9 ratio: 0.5",
            ];
            assert_eq!(said, expected, "{dialect:?}");
            assert_eq!(count(&recording, WarningKind::UnknownKey), keys, "{dialect:?}");
        }
    }
}
