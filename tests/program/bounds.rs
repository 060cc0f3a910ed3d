//! Small files that once took minutes, gigabytes or the program with them: every command answers or refuses, within seconds.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli::stderr;

const COMMANDS: [&[&str]; 9] = [
    &["summary"],
    &["state", "--end"],
    &["oom"],
    &["findings"],
    &["whatif", "--conf", "expandable_segments:True"],
    &["allocations"],
    &["leaks"],
    &["flame"],
    &["diff"],
];

fn try_all(name: &str, recording: &Value) {
    try_bytes(name, recording.to_string().as_bytes());
}

/// Runs every command on a file, none of them with more than 3 GB of address space or for longer than ten seconds.
fn try_bytes(name: &str, bytes: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join(name).display().to_string();
    std::fs::write(&file, bytes).expect("written");
    for command in COMMANDS {
        let mut run = Command::new("sh");
        run.args(["-c", "ulimit -v 3000000; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_vramscope")]);
        run.args(command).arg(&file).args((command == ["diff"]).then_some(&file)).stdin(Stdio::null());
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
    // 20 GiB of zeros: gzip takes parts one behind the other.
    let zeros = gzip(&vec![0; 64 << 20]);
    try_bytes("nested.gz", &gzip(&gzip(&zeros.repeat(320))));
    let values = [&b"\x80\x04]("[..], &vec![b'N'; 60 << 20], b"e."].concat();
    try_bytes("values.gz", &gzip(&values));
    try_bytes("quadratic.html", format!("<html>{}", "base64".repeat(200_000)).as_bytes());
}
