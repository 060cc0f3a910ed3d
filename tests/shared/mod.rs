//! Shared by the test programs: the samples, the corpus of recordings that is too large for the repository, and the list of tests
//! that could not run.
#![allow(dead_code, reason = "not every program needs all of it")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use vramscope_core::formats;
use vramscope_core::model::{DeviceRecording, Progress, Recording};
use vramscope_core::tables::DeviceTables;

pub fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots").join(name)
}

/// A child process that ends with the test.
pub struct Guard(pub Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        if let Some(found) = probe() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("waited a minute for {what}");
}

pub fn open(path: &Path) -> Recording {
    formats::open(path, &Progress::new()).unwrap_or_else(|e| panic!("{e}"))
}

pub fn open_sample(name: &str) -> Recording {
    open(&sample(name))
}

pub fn tables(device: &DeviceRecording) -> DeviceTables {
    DeviceTables::build(device, &Progress::new()).expect("nobody cancels")
}

/// The recording without its first `from` events, as a full ring buffer leaves it.
pub fn wrapped(dev: &DeviceRecording, from: usize) -> DeviceRecording {
    let mut out = dev.clone();
    let e = &mut out.events;
    e.time_us.drain(..from);
    e.action.drain(..from);
    e.address.drain(..from);
    e.size.drain(..from);
    e.stream.drain(..from);
    e.pool.drain(..from);
    e.stack.drain(..from);
    e.notes.retain(|n| n.event as usize >= from);
    e.notes.iter_mut().for_each(|n| n.event -= from as u32);
    out
}

/// The folder that `VRAMSCOPE_CORPUS` names. Without it, tests that need the corpus are listed as not run.
pub fn corpus() -> Option<PathBuf> {
    let folder = std::env::var_os("VRAMSCOPE_CORPUS").map(PathBuf::from);
    if folder.is_none() {
        not_run("VRAMSCOPE_CORPUS names no folder of recordings");
    }
    folder
}

/// Records that a test could not run here, and why. `tests/z_not_run.rs` prints the list after all tests.
pub fn not_run(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    println!("not run: {why}");
    let list = concat!(env!("CARGO_TARGET_TMPDIR"), "/not_run.txt");
    let line = format!("{}::{test}: {why}\n", env!("CARGO_CRATE_NAME"));
    // If the list cannot be written, only the line at the end is missing.
    let _ = std::fs::File::options().create(true).append(true).open(list).and_then(|mut f| f.write_all(line.as_bytes()));
}
