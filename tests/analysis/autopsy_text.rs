//! What the autopsy says about unusual failures, sentence by sentence. All recordings are written by hand.

use crate::shared::tables;
use vramscope_core::anatomy::{Composition, LineHeld, Role, RoleHeld};
use vramscope_core::diagnose::oom::{Autopsy, Fits, Verdict, advice, closest, examine, what_to_make_smaller};
use vramscope_core::inference::{CapFrom, Caps};
use vramscope_core::model::{
    Action, DeviceId, DeviceKind, Frame, PoolId, Progress, Recording, StackId, StackTableBuilder, StreamId,
};
use vramscope_core::tables::{folded_frames, frame_text, user_frame};
use vramscope_core::units::NBSP;

use super::tape::{GIB, MIB, Tape};

/// The autopsies of the first device, in order.
fn autopsies(recording: &Recording) -> Vec<(Autopsy, String)> {
    let device = &recording.devices[0];
    let tables = tables(device);
    let caps = Caps::of(device, None, &Progress::new()).unwrap();
    device
        .events
        .ooms()
        .into_iter()
        .map(|event| {
            let state = tables.states.at(device, &tables.lifetimes, event);
            let a = examine(device, &tables, event, &state, &caps).unwrap();
            let mut said = vec![a.sentence.clone(), a.room_plan_sentence(&state)];
            said.extend(a.alone_sentence());
            said.extend(a.limit.map(|cap| format!("cap {cap}")));
            said.extend(advice(&a, None).into_iter().map(|x| x.sentence));
            (a, said.join("\n").replace(NBSP, " "))
        })
        .collect()
}

/// What must be said about the first failure of each case, and about its second if there is one.
const SAID: [(&str, Verdict, &[&str]); 17] = [
    (
        "first event, too large",
        Verdict::TooLarge,
        &[
            "A request for 200 GiB cannot fit: if this process freed everything, 139 GiB would be free on the device.",
            "Nothing was reserved yet, so there is nothing to free.",
        ],
    ),
    (
        "first event, capped",
        Verdict::Cap,
        &[
            "this process has a cap under 20.00 GiB (estimated from the failed requests); it had reserved nothing.",
            "to at least 20 GiB",
        ],
    ),
    (
        "two failures under one cap",
        Verdict::Cap,
        &[
            "has a cap of 900 to 1,050 MiB (estimated from the failed requests); it had reserved 900 MiB",
            "to at least 1.08 GiB for this request",
        ],
    ),
    (
        "two failures under one cap",
        Verdict::Cap,
        &["A request for 150 MiB failed although 100 GiB was free", "a cap of 900 to 1,050 MiB", "to at least 1.03 GiB"],
    ),
    (
        "private pool",
        Verdict::Capacity,
        &[
            "A request for 300 MiB of a private pool failed because the device is full: 20 MiB is free on it",
            "tensors hold 300 MiB, and nothing is free for this request (400 MiB more is free for requests of other sizes, streams or pools).",
            "Nothing has to be freed: 400 MiB of reserved memory is unused. torch.cuda.empty_cache() before the request",
        ],
    ),
    ("host", Verdict::Capacity, &["failed because the host is full: 20 MiB is free on it"]),
    (
        "512 B on a full device",
        Verdict::Capacity,
        &["1 MiB is free on it, less than the 2 MiB of a new segment.", "nothing is free for this request", "Freeing this block"],
    ),
    ("512 B under a cap", Verdict::Cap, &["a cap of 400 to 402 MiB", "to at least 402 MiB for this request"]),
    (
        "device 1 is full",
        Verdict::Capacity,
        &["tensors hold 800 MiB", "214 MiB of the device's 1 GiB is held by other processes, or outside PyTorch."],
    ),
    ("cap raised midway", Verdict::Cap, &["a cap of 800 to 1,100 MiB", "The program changed its cap at event 4."]),
    ("cap raised midway", Verdict::Cap, &["a cap of 2.78 to 6.78 GiB", "it had reserved 2.78 GiB"]),
    ("expandable", Verdict::Cap, &["a cap of 380 to 650 MiB", "Freeing this block (100 MiB) would make room."]),
    ("free on another stream", Verdict::Capacity, &["(580 MiB more is free for requests of other sizes, streams or pools)"]),
    (
        "without segments",
        Verdict::Unknown,
        &[
            "failed with 10 GiB free on the device. Segments are not in this file, so the reason is unknown",
            "What to free is unknown",
        ],
    ),
    (
        "one or several",
        Verdict::Fragmentation,
        &[
            "it is in 3 pieces, and the largest is 20 MiB.",
            "Freeing these 2 blocks (4 MiB) would make room.",
            "Freeing one block of 40 MiB instead is also enough.",
        ],
    ),
    (
        "one hole",
        Verdict::Fragmentation,
        &["with 40 MiB free inside reserved memory: it is one piece, smaller than the request."],
    ),
    (
        "told cap",
        Verdict::Cap,
        &[
            "this process may reserve at most 500 MiB; it had reserved 400 MiB, with 0 B free inside.",
            "to at least 600 MiB for this request",
        ],
    ),
];

#[test]
fn awkward_failures_are_told_as_they_are() {
    let mut expected = SAID.iter();
    for (name, recording) in cases() {
        for (a, said) in autopsies(&recording) {
            let (case, verdict, parts) = expected.next().unwrap_or_else(|| panic!("{name}: nothing is expected"));
            assert_eq!((name, a.verdict), (*case, *verdict), "{said}");
            for part in *parts {
                assert!(said.contains(part), "{name}: no \"{part}\" in:\n{said}");
            }
        }
    }
    assert!(expected.next().is_none());
}

#[test]
fn a_recording_without_a_failure_names_the_pool_of_its_holes() {
    let peak = |recording: &Recording| {
        let tables = tables(&recording.devices[0]);
        closest(&recording.devices[0], &tables).unwrap().sentence.replace(NBSP, " ")
    };
    // Retries that succeed.
    let mut t = Tape::new();
    let a = t.alloc(400 * MIB, StackId::NONE);
    t.alloc(300 * MIB, StackId::NONE);
    t.free(a);
    t.empty_cache();
    t.alloc(600 * MIB, StackId::NONE);
    let said = peak(&t.finish());
    assert!(said.contains("900 MiB of 900 MiB reserved. There was no hole in the large pool"), "{said}");
    // The recording ends in the middle of a retry.
    let mut t = Tape::new();
    let a = t.alloc(400 * MIB, StackId::NONE);
    let s = t.segment(200 * MIB);
    t.place(s, 0, 160 * MIB, StackId::NONE);
    t.free(a);
    t.empty_cache();
    let said = peak(&t.finish());
    assert!(said.contains("A request of up to 40 MiB fitted into the one hole of the large pool"), "{said}");
}

/// One stream has 250 MiB free, and the one that holds most has none. The sentence says which stream it means, and all bytes are
/// accounted for.
#[test]
fn a_peak_of_several_streams_names_the_one_it_is_about() {
    let mut t = Tape::new();
    t.on_stream(0x5555);
    let side = t.segment(700 * MIB);
    t.place(side, 0, 450 * MIB, StackId::NONE);
    t.on_stream(0);
    t.alloc(700 * MIB, StackId::NONE);
    let recording = t.finish();
    let device = &recording.devices[0];
    let tables = tables(device);
    let found = closest(device, &tables).unwrap();
    let said = found.sentence.replace(NBSP, " ");
    for part in [
        "1.12 GiB (700 MiB of it on the default stream) of 1.37 GiB reserved",
        "There was no hole in the large pool of the default stream",
        "250 MiB more were free in one hole of stream",
        "(0x5555), where requests of the default stream are not served.",
    ] {
        assert!(said.contains(part), "no \"{part}\" in {said}");
    }
    assert_eq!(found.active + found.all_holes.bytes, found.reserved);
    let stream = found.stream.unwrap();
    assert_eq!((stream.handle, stream.held, stream.others.bytes), (0, 700 * MIB, 250 * MIB));
    // A block that pins the other stream's segment is also in the way.
    let blocker = found.blockers[0];
    assert_eq!((found.blockers.len(), blocker.serves, blocker.returns), (1, false, 700 * MIB));
}

/// A small block pins a segment of another stream that would be large enough. It is a blocker, and the block to free.
#[test]
fn what_pins_a_segment_of_another_stream_is_a_blocker() {
    let mut t = Tape::new();
    t.on_stream(0x5555);
    let side = t.segment(600 * MIB);
    let sliver = t.place(side, 0, 4 * MIB, StackId::NONE);
    t.on_stream(0);
    let own = t.segment(200 * MIB);
    t.place(own, 0, 90 * MIB, StackId::NONE);
    t.alloc(300 * MIB, StackId::NONE);
    t.oom(500 * MIB, 100 * MIB, StackId::NONE);
    let recording = t.finish();
    let (a, _) = autopsies(&recording).remove(0);
    let found: Vec<(u64, bool, u64)> = a.blockers.iter().map(|b| (b.strands() / MIB, b.serves, b.appears() / MIB)).collect();
    assert_eq!(found, [(596, false, 600), (110, true, 200)]);
    assert_eq!((a.need / MIB, sliver.1), (400, 0));
    let plan = a.room_plan.unwrap();
    assert_eq!((plan.blocks.as_slice(), plan.bytes), (&[a.blockers[0].block][..], 4 * MIB));
    let report = vramscope::cli::oom::report(&recording, false, &Default::default(), &Progress::new()).unwrap();
    let report = serde_json::to_value(report).unwrap();
    let oom = &report["ooms"][0];
    let [to_free] = oom["way_out"]["blocks_to_free"].as_array().unwrap().as_slice() else { panic!("{oom}") };
    assert_eq!((to_free["address"].as_u64(), to_free["bytes"].as_u64()), (oom["blockers"][0]["address"].as_u64(), Some(4 << 20)));
    assert_eq!(
        (to_free["stream"].as_u64(), oom["stream"].as_u64(), oom["other_hole_bytes"].as_u64()),
        (Some(0x5555), Some(0), Some(596 << 20))
    );
}

/// Memory that the program freed but another stream still uses is not live memory that it could free.
#[test]
fn what_waits_for_a_stream_is_told_apart() {
    let mut t = Tape::new();
    t.alloc(400 * MIB, StackId::NONE);
    let freed = t.alloc(300 * MIB, StackId::NONE);
    t.ask_to_free(freed);
    t.oom(320 * MIB, 300 * MIB, StackId::NONE);
    let (a, said) = autopsies(&t.finish()).remove(0);
    for part in [
        "tensors hold 400 MiB, 300 MiB is freed but still used by another stream, and nothing is free for this request.",
        "All of it is freed already, but another stream still uses it.",
    ] {
        assert!(said.contains(part), "no \"{part}\" in {said}");
    }
    assert_eq!(a.allocated + a.pending + a.all_holes.bytes, a.reserved);
    let held: Vec<(&str, Option<u64>)> = a.holders().into_iter().map(|(name, bytes)| (name, bytes.map(|b| b / MIB))).collect();
    let others = ("other processes, or outside PyTorch", None);
    assert_eq!(held, [("tensors", Some(400)), ("freed, another stream still uses it", Some(300)), others, ("free", Some(300))]);
    // What to make smaller: the largest roles, each with its largest line.
    let role = |role, mib: u64| RoleHeld { role, bytes: mib * MIB, ..RoleHeld::default() };
    let line = LineHeld {
        place: "model.py:9".to_owned(),
        stack: Some(StackId(0)),
        role: Role::Activations,
        bytes: 200 * MIB,
        ..LineHeld::default()
    };
    let composition = Composition {
        bytes: 401 * MIB,
        roles: vec![role(Role::Activations, 300), role(Role::OptimizerState, 100), role(Role::Inputs, 1)],
        lines: vec![line],
        ..Composition::default()
    };
    let told = what_to_make_smaller(&a, &composition, &StackTableBuilder::new().finish());
    let told: Vec<String> = told.iter().map(|advice| advice.sentence.replace(NBSP, " ")).collect();
    assert_eq!(told.len(), 2, "what holds little is left out: {told:?}");
    assert!(told[0].starts_with("Activations hold 300 MiB, most from model.py:9 (200 MiB). Checkpoint"), "{told:?}");
    assert!(told[1].starts_with("Optimizer state holds 100 MiB. An 8-bit optimizer"), "{told:?}");
}

#[test]
fn framework_frames_fold_around_the_users_own() {
    let mut b = StackTableBuilder::new();
    let mut frame = |file: &str, name: &str, line| {
        let (file, name) = (b.string(file), b.string(name));
        b.frame(Frame { name, file, line })
    };
    let torch = "/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py";
    let frames = [
        frame(torch, "linear", 7),
        frame(torch, "forward", 134),
        frame("/home/me/models.py", "update_nodes", 181),
        frame(torch, "_call_impl", 9),
        frame("/home/me/train.py", "step", 8),
    ];
    let stack = b.stack(&frames);
    let inside = b.stack(&frames[..2]);
    let table = b.finish();
    assert_eq!(user_frame(&table, stack).map(|f| frame_text(&table, f)).as_deref(), Some("models.py:181 update_nodes"));
    assert_eq!(
        folded_frames(&table, stack).iter().map(|line| line.replace(NBSP, " ")).collect::<Vec<_>>(),
        [
            "2 framework frames, innermost linear",
            "/home/me/models.py:181 update_nodes",
            "1 framework frame, _call_impl",
            "/home/me/train.py:8 step",
        ]
    );
    // Without any frame of the user's, no frame is folded.
    assert_eq!((user_frame(&table, inside), folded_frames(&table, inside).len()), (None, 2));
}

/// A request that is too large as a whole fits in parts. Each part is compared with the free memory and with all memory.
#[test]
fn a_request_that_is_too_large_is_told_in_parts() {
    let parts = |asked: u64, free: u64, held: u64| {
        let mut t = Tape::new();
        t.alloc(held, StackId::NONE);
        t.oom(asked, free, StackId::NONE);
        let (a, _) = autopsies(&t.finish()).remove(0);
        a.parts.iter().map(|p| (p.parts, p.bytes / MIB, p.fits)).collect::<Vec<_>>()
    };
    let (never, freed, now) = (Fits::Never, Fits::IfAllIsFreed, Fits::AsItWas);
    let found = parts(200 * GIB, 65 * GIB, 5 * GIB);
    assert_eq!(found, [(1, 200 << 10, never), (2, 100 << 10, never), (3, 68_266, freed), (4, 50 << 10, now)]);
    // For many parts: powers of two, and the two numbers at which the outcome changes.
    let found = parts(1000 * GIB, 30 * GIB, 20 * GIB);
    let numbers: Vec<u64> = found.iter().map(|p| p.0).collect();
    assert_eq!(numbers, [1, 2, 4, 8, 16, 20, 32, 34]);
    assert_eq!((found[4].2, found[5].2, found[6].2, found[7].2), (never, freed, freed, now));
    // A request that could succeed is not split.
    assert_eq!(parts(60 * GIB, 65 * GIB, 5 * GIB), []);
}

fn cases() -> Vec<(&'static str, Recording)> {
    let none = StackId::NONE;
    let mut all = Vec::new();
    // The very first event fails.
    let mut t = Tape::new();
    t.oom(200 * GIB, 139 * GIB, none);
    all.push(("first event, too large", t.finish()));
    let mut t = Tape::new();
    t.oom(20 * GIB, 139 * GIB, none);
    all.push(("first event, capped", t.finish()));
    // Two failures, with memory freed in between.
    let mut t = Tape::new();
    let a = t.alloc(600 * MIB, none);
    let b = t.alloc(300 * MIB, none);
    t.oom(200 * MIB, 100 * GIB, none);
    t.free(a);
    t.free(b);
    t.empty_cache();
    t.alloc(900 * MIB, none);
    t.oom(150 * MIB, 100 * GIB, none);
    all.push(("two failures under one cap", t.finish()));
    // In a private pool, while the default pool has room.
    let mut t = Tape::new();
    let a = t.alloc(400 * MIB, none);
    t.alloc(200 * MIB, none);
    t.free(a);
    t.in_pool((0, 3));
    t.alloc(100 * MIB, none);
    t.oom(300 * MIB, 20 * MIB, none);
    all.push(("private pool", t.finish()));
    // Host memory.
    let mut t = Tape::new();
    t.device.id = DeviceId { kind: DeviceKind::Host, index: -1 };
    t.alloc(400 * MIB, none);
    t.oom(300 * MIB, 20 * MIB, none);
    all.push(("host", t.finish()));
    // A request of 512 B.
    let mut t = Tape::new();
    t.alloc(400 * MIB, none);
    t.oom(512, MIB, none);
    all.push(("512 B on a full device", t.finish()));
    let mut t = Tape::new();
    t.alloc(400 * MIB, none);
    t.oom(512, 10 * GIB, none);
    all.push(("512 B under a cap", t.finish()));
    // On device 1.
    let mut t = Tape::new();
    t.device.id = DeviceId { kind: DeviceKind::Cuda, index: 1 };
    t.device.capacity = Some(GIB);
    t.alloc(800 * MIB, none);
    t.oom(300 * MIB, 10 * MIB, none);
    all.push(("device 1 is full", t.finish()));
    // The cap is raised after the failure.
    let mut t = Tape::new();
    t.alloc(800 * MIB, none);
    t.oom(300 * MIB, 100 * GIB, none);
    t.alloc(2 * GIB, none);
    t.oom(4 * GIB, 100 * GIB, none);
    all.push(("cap raised midway", t.finish()));
    // Expandable: one segment that grows.
    let mut t = Tape::new();
    t.device.settings.conf.expandable_segments = true;
    let s = t.segment(400 * MIB);
    t.place(s, 0, 100 * MIB, none);
    t.place(s, 200 * MIB, 100 * MIB, none);
    t.oom(250 * MIB, 100 * GIB, none);
    all.push(("expandable", t.finish()));
    // Another stream holds the free memory.
    let mut t = Tape::new();
    t.on_stream(7);
    let a = t.alloc(400 * MIB, none);
    let s = t.segment(200 * MIB);
    t.place(s, 0, 20 * MIB, none);
    t.free(a);
    t.on_stream(0);
    t.alloc(100 * MIB, none);
    t.oom(300 * MIB, 20 * MIB, none);
    all.push(("free on another stream", t.finish()));
    // Without segments.
    let mut t = Tape::new();
    t.device.has_final_state = false;
    for i in 0..4u64 {
        t.device.events.push(i as i64, Action::Alloc, 0x1000_0000 * (i + 1), 64 * MIB, StreamId(0), PoolId(0), none);
    }
    t.device.events.push(9, Action::Oom, 10 * GIB, 100 * MIB, StreamId(0), PoolId(0), none);
    all.push(("without segments", t.finish()));
    // Several blocks are cheaper than one that is enough.
    let mut t = Tape::new();
    let s = t.segment(100 * MIB);
    t.place(s, 20 * MIB, 2 * MIB, none);
    t.place(s, 40 * MIB, 2 * MIB, none);
    t.place(s, 60 * MIB, 40 * MIB, none);
    t.oom(50 * MIB, 100 * GIB, none);
    all.push(("one or several", t.finish()));
    // One hole and a larger request. The device's free memory and the hole together would be enough.
    let mut t = Tape::new();
    let s = t.segment(400 * MIB);
    t.place(s, 0, 360 * MIB, none);
    t.oom(100 * MIB, 70 * MIB, none);
    all.push(("one hole", t.finish()));
    // The file contains the cap.
    let mut t = Tape::new();
    t.device.limit = Some(500 * MIB);
    t.alloc(400 * MIB, none);
    t.oom(200 * MIB, 100 * GIB, none);
    all.push(("told cap", t.finish()));
    all
}

/// A request that emptied the cache first says nothing about a cap when the device itself was full.
#[test]
fn a_full_device_has_no_invented_cap() {
    let mut t = Tape::new();
    t.alloc(400 * MIB, StackId::NONE);
    t.brief(300 * MIB, StackId::NONE);
    t.empty_cache();
    t.alloc(500 * MIB, StackId::NONE);
    t.oom(400 * MIB, 100 * MIB, StackId::NONE);
    let recording = t.finish();
    let caps = Caps::of(&recording.devices[0], None, &Progress::new()).expect("not cancelled");
    let cap = caps.first().map(|cap| (cap.from, cap.least / MIB, cap.most / MIB));
    assert_eq!(cap, Some((CapFrom::Device, 1000, 1000)), "what the device had for this process");
    let (a, said) = autopsies(&recording).remove(0);
    assert_eq!((a.verdict, a.limit), (Verdict::Capacity, None), "{said}");
    assert!(!said.contains("If the cap is"), "{said}");
}
