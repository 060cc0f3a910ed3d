//! Small files that once took minutes or gigabytes, or crashed the program. Every command must answer or refuse within seconds.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vramscope_core::formats::session::{DeviceFacts, MarkPoint, ProcessList, Record, SessionWriter};
use vramscope_core::model::MarkKind;

use crate::cli::stderr;

/// The commands for each file: `FILE` is its name, `OUT` a free name.
const COMMANDS: [&[&str]; 16] = [
    &["summary", "FILE"],
    &["state", "--end", "FILE"],
    &["oom", "FILE"],
    &["findings", "FILE"],
    &["whatif", "--conf", "expandable_segments:True", "FILE"],
    &["allocations", "FILE"],
    &["leaks", "FILE"],
    &["flame", "FILE"],
    &["diff", "FILE", "FILE"],
    &["check", "--max-peak", "1GiB", "FILE"],
    &["ranks", "FILE", "FILE"],
    &["explain", "FILE"],
    &["report", "FILE", "-o", "OUT.html"],
    &["report", "FILE", "-o", "OUT.md"],
    &["export", "--to", "csv", "--table", "events", "FILE", "OUT.csv"],
    &["export", "--to", "snapshot", "FILE", "OUT.pickle"],
];

fn try_all(name: &str, recording: &Value) {
    try_bytes(name, recording.to_string().as_bytes());
}

/// Runs every command on a file, with at most 3 GB of address space and ten seconds.
fn try_bytes(name: &str, bytes: &[u8]) {
    try_commands(name, bytes, &COMMANDS);
}

fn try_commands(name: &str, bytes: &[u8], commands: &[&[&str]]) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join(name).display().to_string();
    std::fs::write(&file, bytes).expect("written");
    for command in commands {
        let mut run = Command::new("sh");
        run.args(["-c", "ulimit -v 3000000; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_vramscope")]);
        let out = folder.path().join("out").display().to_string();
        run.args(command.iter().map(|arg| arg.replace("FILE", &file).replace("OUT", &out))).stdin(Stdio::null());
        let since = Instant::now();
        let output = run.output().expect("it starts");
        let code = output.status.code();
        assert!(matches!(code, Some(0 | 1)), "{name}, {command:?}: {code:?} {}", stderr(&output));
        assert!(!stderr(&output).contains("panicked"), "{name}, {command:?}: {}", stderr(&output));
        assert!(since.elapsed() < Duration::from_secs(10), "{name}, {command:?}: {:?}", since.elapsed());
    }
}

const ADDRESS: u64 = 1 << 30;

fn event(action: &str, address: u64, size: u64, time: u64) -> Value {
    json!({"action": action, "addr": address, "size": size, "stream": 0, "time_us": time, "device_free": 5})
}

fn segment(size: u64, is_expandable: bool) -> Value {
    let block =
        |address: u64, size: u64, state: &str| json!({"address": address, "size": size, "requested_size": size, "state": state});
    json!({
        "device": 0, "address": ADDRESS, "total_size": size, "stream": 0, "is_expandable": is_expandable,
        "segment_type": if is_expandable { "large" } else { "small" },
        "blocks": [block(ADDRESS, 512, "active_allocated"), block(ADDRESS + 512, size - 512, "inactive")],
    })
}

#[test]
fn a_failed_request_of_nothing_is_no_end_of_the_program() {
    let events = [event("segment_alloc", ADDRESS, 2 << 20, 0), event("alloc", ADDRESS, 512, 1), event("oom", 0, 0, 2)];
    try_all("oom_zero.json", &json!({"segments": [segment(2 << 20, false)], "device_traces": [events]}));
}

#[test]
fn a_segment_that_claims_more_than_any_device_has_takes_no_time() {
    let events = [event("alloc", ADDRESS, 512, 1), event("oom", 0, 9 << 40, 2)];
    for is_expandable in [false, true] {
        let settings =
            json!({"PYTORCH_CUDA_ALLOC_CONF": format!("expandable_segments:{}", if is_expandable { "True" } else { "False" })});
        try_all(
            "huge_segment.json",
            &json!({"segments": [segment(1 << 47, is_expandable)], "device_traces": [events], "allocator_settings": settings}),
        );
    }
}

#[test]
fn a_request_larger_than_all_addresses_below_the_recording_is_answered() {
    let events = [
        event("segment_alloc", ADDRESS, 2 << 20, 0),
        event("alloc", ADDRESS, 512, 1),
        event("oom", 0, ADDRESS, 2),
        event("oom", 0, 4 << 30, 3),
    ];
    try_all("low_addresses.json", &json!({"segments": [segment(2 << 20, false)], "device_traces": [events]}));
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(bytes).expect("memory takes it");
    packed.finish().expect("memory takes it")
}

#[test]
fn what_unpacks_to_gigabytes_or_is_searched_again_and_again_costs_nothing() {
    // 20 GiB of zeros. gzip accepts concatenated parts.
    let zeros = gzip(&vec![0; 64 << 20]);
    try_bytes("nested.gz", &gzip(&gzip(&zeros.repeat(320))));
    let values = [&b"\x80\x04]("[..], &vec![b'N'; 60 << 20], b"e."].concat();
    try_bytes("values.gz", &gzip(&values));
    try_bytes("quadratic.html", format!("<html>{}", "base64".repeat(200_000)).as_bytes());
}

fn session(records: impl IntoIterator<Item = Record>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = SessionWriter::new(&mut bytes).expect("memory takes it");
    for record in records {
        writer.write(&record).expect("memory takes it");
    }
    bytes
}

fn device(device: u32) -> Record {
    Record::Device(DeviceFacts { device, uuid: format!("GPU-{device}"), total: 1 << 36, ..DeviceFacts::default() })
}

#[test]
fn a_session_of_more_devices_processes_and_marks_than_there_are_is_bounded() {
    let all = (0..20_000).map(|pid| (pid + 1, 1, Some(1 << 20))).collect::<Vec<_>>();
    let lists = (0..20).map(|t| Record::Processes(ProcessList { d: 0, t, p: all.clone() }));
    try_bytes("processes.vramscope", &session(std::iter::once(device(0)).chain(lists)));
    let mark = |t| Record::Mark(MarkPoint { d: None, t, kind: MarkKind::User, text: "here".repeat(50) });
    try_bytes("devices.vramscope", &session((0..20_000).map(device).chain((0..3_000).map(mark))));
    let file = tempfile::NamedTempFile::with_suffix(".vramscope").expect("a file");
    std::fs::write(file.path(), session((0..200).map(device))).expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_vramscope")).arg("summary").arg(file.path()).output().expect("it starts");
    let told = format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
    assert!(told.contains("72 "), "what is left out is told: {told}");
}

/// A segment with this many blocks, and this many failed requests.
fn failures(blocks: u64, fails: u64) -> Value {
    let block = |i: u64| json!({"address": ADDRESS + i * 512, "size": 512, "requested_size": 512, "state": "active_allocated"});
    let allocs = (0..blocks).map(|i| event("alloc", ADDRESS + i * 512, 512, i + 1));
    let ooms = (0..fails).map(|i| event("oom", 0, 1 << 30, blocks + i + 1));
    let events: Vec<Value> =
        std::iter::once(event("segment_alloc", ADDRESS, blocks * 512, 0)).chain(allocs).chain(ooms).collect();
    let segment = json!({
        "device": 0, "address": ADDRESS, "total_size": blocks * 512, "stream": 0, "is_expandable": false, "segment_type": "large",
        "blocks": (0..blocks).map(block).collect::<Vec<_>>(),
    });
    json!({"segments": [segment], "device_traces": [events]})
}

#[test]
fn many_failures_with_much_alive_at_each_are_answered() {
    try_all("failures.json", &failures(20_000, 250));
}

#[test]
fn a_log_of_one_phrase_again_and_again_and_one_that_unpacks_to_gigabytes_are_answered() {
    let explain: &[&[&str]] = &[&["explain", "FILE"]];
    try_commands("cut.log", "CUDA out of memory. Tried to allocate ".repeat(20_000).as_bytes(), explain);
    try_commands("cut.log", "torch.cuda.OutOfMemoryError: CUDA out of memory.\n".repeat(20_000).as_bytes(), explain);
    let xla = "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate ";
    try_commands("lines.log", format!("{xla}\n").repeat(10_000).as_bytes(), explain);
    try_commands("line.log", xla.repeat(5_000).as_bytes(), explain);
    try_commands("log.gz", &gzip(&[&[b'x'; 4_000][..], b"\n"].concat().repeat(25_000)), explain);
}
