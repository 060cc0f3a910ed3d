//! The real sampler with a fake NVIDIA library, which is compiled here: driver failures one by one, a device that is lost and
//! returns, a kill in the middle, a pipe, constant memory use, and the real window.
//!
//! Each run is a child process, because the environment decides which library is loaded.

#![cfg(all(target_os = "linux", feature = "live"))]
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::shared::{open, wait_for};
use vramscope_core::formats::session::{Next, Record, SessionReader};
use vramscope_core::model::{DeviceRecording, MarkKind, Progress};

const MIB: u64 = 1 << 20;
const TOTAL: u64 = 150_754_820_096;
const DRIVER: u64 = 644_939_776;

/// The fake library, compiled once; `None` without a C compiler.
fn library() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fakes/nvml.c");
        let out = tempfile::tempdir().unwrap().keep().join("libnvidia-ml.so.1");
        let cc = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&out).arg(source).status();
        cc.is_ok_and(|s| s.success()).then_some(out)
    });
    if built.is_none() {
        crate::shared::not_run("there is no C compiler to build the stand-in for NVML");
    }
    built.as_deref()
}

/// A machine whose driver reports what a file says.
pub struct Machine {
    folder: tempfile::TempDir,
    library: PathBuf,
}

impl Machine {
    pub fn new(state: &str) -> Option<Machine> {
        let machine = Machine { folder: tempfile::tempdir().unwrap(), library: library()?.to_owned() };
        machine.say(state);
        Some(machine)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces the file in one step, so that no call sees half of it.
    pub fn say(&self, state: &str) {
        let part = self.path("state.part");
        std::fs::write(&part, state).unwrap();
        std::fs::rename(part, self.path("state")).unwrap();
    }

    pub fn vramscope(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vramscope"));
        command
            .args(args)
            .env("VRAMSCOPE_NVML", &self.library)
            .env("FAKE_NVML_STATE", self.path("state"))
            .env("VRAMSCOPE_DIR", self.path("private"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("HOME", self.folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn record(&self, more: &[&str]) -> Child {
        let out = self.path("s.vramscope");
        let mut args = vec!["record", out.to_str().unwrap()];
        args.extend(more);
        self.vramscope(&args).spawn().unwrap()
    }

    /// The devices recorded so far.
    pub fn recorded(&self) -> Vec<DeviceRecording> {
        open(&self.path("s.vramscope")).devices
    }

    /// Waits until the recording so far meets a condition.
    pub fn wait(&self, what: &str, holds: impl Fn(&[DeviceRecording]) -> bool) -> Vec<DeviceRecording> {
        let recorded = || vramscope_core::formats::open(&self.path("s.vramscope"), &Progress::new()).ok().map(|r| r.devices);
        wait_for(what, || recorded().filter(|devices| holds(devices)))
    }
}

fn last_used(devices: &[DeviceRecording]) -> Option<u64> {
    devices.first()?.samples.last()?.used
}

#[test]
fn a_session_has_the_figures_of_the_driver_to_the_byte() {
    let me = std::process::id();
    let Some(m) = Machine::new(&format!(
        "0.used={}\n0.proc={me}:{},7777777:-1\n0.util=97\n0.temp=61\ngpus=2\n0.accounting=1\n0.peak={me}:{}\n",
        900 * MIB,
        700 * MIB,
        1200 * MIB
    )) else {
        return;
    };
    let out = m.record(&["--seconds", "1.5", "--device", "0"]).wait_with_output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let devices = m.recorded();
    assert_eq!(devices.len(), 1, "only the device that was asked for");
    let d = &devices[0];
    assert_eq!((d.name.as_deref(), d.capacity), (Some("NVIDIA H200"), Some(TOTAL)));
    assert!(d.samples.len() >= 10, "{}", d.samples.len());
    for s in &d.samples {
        let b = s.bands(TOTAL).unwrap();
        assert_eq!((b.used() + b.free, b.skew), (TOTAL, 0));
        assert_eq!((b.driver, b.others, b.unattributed), (DRIVER, 700 * MIB, 200 * MIB));
    }
    let live = d.live.as_ref().unwrap();
    let own = live.processes.iter().find(|p| p.pid == me).unwrap();
    assert_eq!(own.lifetime_peak, Some(1200 * MIB), "the driver's accounting reaches back before the watch");
    assert!(own.command.contains("program") && own.started > 0, "{own:?}");
    let other = live.processes.iter().find(|p| p.pid == 7_777_777).unwrap();
    assert!(other.note.is_some() && other.points[0].used.is_none(), "{other:?}");
    assert!(live.gauges.iter().any(|g| g.busy == Some(97) && g.temperature == Some(61)), "{:?}", live.gauges);
}

#[test]
fn a_driver_that_does_not_start_is_one_sentence_and_leaves_no_file() {
    let Some(m) = Machine::new("") else { return };
    for (state, want) in [
        ("init=4\n", "may not talk to the NVIDIA driver"),
        ("init=9\n", "installed but not running"),
        ("init=12\n", "No NVIDIA driver"),
        ("init=17\n", "may not talk"),
        ("init=18\n", "Reboot this machine"),
        ("init=23\n", "code 23"),
        ("init=999\n", "NVIDIA driver answered"),
        ("gpus=0\n", "finds no GPU"),
    ] {
        m.say(state);
        let out = m.record(&["--seconds", "1"]).wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!((out.status.code(), text.lines().count()), (Some(1), 1), "{state} {text}");
        assert!(text.contains(want), "{state} {text}");
        assert!(!m.path("s.vramscope").exists(), "{state}");
    }
    m.say("gpus=2\n");
    let out = m.record(&["--seconds", "1", "--device", "5"]).wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&out.stderr).contains("no GPU 5"), "{out:?}");
}

#[test]
fn a_library_that_is_none_is_one_sentence() {
    let Some(m) = Machine::new("") else { return };
    let garbage = m.path("garbage.so");
    std::fs::write(&garbage, "not a library").unwrap();
    let build = |name: &str, code: &str| {
        let (source, out) = (m.path(&format!("{name}.c")), m.path(&format!("{name}.so")));
        std::fs::write(&source, code).unwrap();
        assert!(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&out).arg(&source).status().unwrap().success());
        out
    };
    let without_shutdown = build("noshutdown", "unsigned nvmlInit_v2(void){return 0;}");
    let other = build("other", "int nothing(void){return 0;}");
    for (library, want) in [
        (
            PathBuf::from("/nonexistent/libnvidia-ml.so.1"),
            "VRAMSCOPE_NVML names /nonexistent/libnvidia-ml.so.1, and there is no such",
        ),
        (garbage, "damaged"),
        (without_shutdown, "damaged"),
        (other, "damaged"),
    ] {
        let out = m.vramscope(&["record", "-", "--seconds", "1"]).env("VRAMSCOPE_NVML", &library).output().unwrap();
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(1) && text.contains(want) && !text.contains("panic"), "{library:?} {text}");
    }
}

#[test]
fn old_drivers_and_missing_calls_still_give_memory() {
    // The second version of the memory call is refused. No utilisation, temperature, power or lists.
    let Some(m) = Machine::new(&format!(
        "0.used={}\n0.err.memory2=25\n0.err.util=3\n0.err.temp=3\n0.err.power=25\n0.err.proc=3\n0.err.gproc=3\n0.err.bar1=3\n",
        100 * MIB
    )) else {
        return;
    };
    m.record(&["--seconds", "1.5"]).wait().unwrap();
    let d = &m.recorded()[0];
    let s = d.samples.last().unwrap();
    assert_eq!((s.used, s.driver), (Some(100 * MIB + DRIVER), None), "the first version holds the driver's part in used");
    let live = d.live.as_ref().unwrap();
    assert!(live.limits.iter().any(|l| l.contains("which processes use it")), "{:?}", live.limits);
    assert!(live.limits.iter().any(|l| l.contains("how busy it is")), "{:?}", live.limits);
}

#[test]
fn a_device_that_is_lost_and_comes_back_leaves_a_gap_and_its_reason() {
    let Some(m) = Machine::new(&format!("0.used={}\n", 100 * MIB)) else { return };
    let mut child = m.record(&[]);
    m.wait("samples", |d| d.first().is_some_and(|d| d.samples.len() > 5));
    m.say("0.err.memory=15\n0.xid=79\n");
    let lost = m.wait("the loss", |d| d[0].live.as_ref().is_some_and(|l| l.trouble.is_some()));
    assert!(lost[0].live.as_ref().unwrap().trouble.as_ref().unwrap().contains("fell off the bus"));
    m.say(&format!("0.used={}\n", 300 * MIB));
    let back = m.wait("the return", |d| {
        d[0].live.as_ref().is_some_and(|l| l.trouble.is_none()) && last_used(d) == Some(300 * MIB + DRIVER)
    });
    let live = back[0].live.as_ref().unwrap();
    assert!(live.gaps.len() == 1 && live.gaps[0].to_us > live.gaps[0].from_us, "{:?}", live.gaps);
    assert!(live.marks.iter().any(|k| k.kind == MarkKind::Device), "{:?}", live.marks);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn what_was_written_before_a_kill_opens() {
    let Some(m) = Machine::new("0.used=1048576\n") else { return };
    let mut child = m.record(&["--rate", "50"]);
    let before = m.wait("samples", |d| d.first().is_some_and(|d| d.samples.len() > 40))[0].samples.len();
    child.kill().unwrap();
    child.wait().unwrap();
    let devices = m.recorded();
    assert!(devices[0].samples.len() >= before);
    let text = m.vramscope(&["summary", m.path("s.vramscope").to_str().unwrap()]).output().unwrap();
    assert!(text.status.success(), "{text:?}");
    let first = String::from_utf8_lossy(&text.stdout).lines().next().unwrap().replace('\u{a0}', " ");
    assert!(first.contains("GPU 0 used at most 616.06 MiB of 140.40 GiB in"), "{first}");
}

#[test]
fn a_pipe_is_a_session_and_a_reader_that_leaves_ends_it_quietly() {
    let Some(m) = Machine::new("0.used=5242880\n") else { return };
    let mut child = m.vramscope(&["record", "-"]).spawn().unwrap();
    let mut reader = SessionReader::new(child.stdout.take().unwrap()).unwrap().unwrap();
    let mut samples = 0;
    while samples < 10 {
        if let Next::Record(record) = reader.next_record().unwrap() {
            samples += i32::from(matches!(*record, Record::Memory(_)));
        }
    }
    drop(reader);
    let status = wait_for("it to notice that nobody reads", || child.try_wait().unwrap());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(status.success() && !errors.contains("cannot"), "{status} {errors}");
}

#[test]
fn memory_stays_flat_at_fifty_a_second() {
    // Ten seconds here. docs/PERFORMANCE.md has ten minutes.
    let seconds: u64 = std::env::var("VRAMSCOPE_SOAK_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(10);
    let Some(m) = Machine::new("0.used=1048576\n0.proc=1:1048576\n") else { return };
    let mut child = m.record(&["--rate", "50"]);
    let resident = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    };
    std::thread::sleep(Duration::from_secs(3));
    let first = resident();
    let start = Instant::now();
    let mut step = 0u64;
    while start.elapsed() < Duration::from_secs(seconds) {
        step += 1;
        m.say(&format!("0.used={}\n0.proc=1:1048576\n", (1 + step % 100) * MIB));
        std::thread::sleep(Duration::from_millis(50));
    }
    let grown = resident().saturating_sub(first);
    child.kill().unwrap();
    child.wait().unwrap();
    // At most 40,000 samples are kept, 136 bytes each, in a vector that doubles.
    assert!(grown < 4 * MIB + 16 * MIB.min(seconds * 50 * 400), "grew by {} KiB in {seconds} s", grown / 1024);
    let samples = m.recorded()[0].samples.len() as u64;
    println!("soak: {seconds} s at 50 Hz, {samples} samples, resident {} KiB, grew by {} KiB", first / 1024, grown / 1024);
    assert!(samples > (seconds + 2) * 50 * 8 / 10, "{samples} samples");
}

#[test]
#[cfg(feature = "gui")]
fn a_picture_of_the_watch_shows_the_card() {
    let Some(m) = Machine::new(&format!("0.used={}\n0.proc=1:{}\n", 90_000 * MIB, 80_000 * MIB)) else { return };
    let picture = m.path("live.png");
    let out = m.vramscope(&["screenshot", picture.to_str().unwrap(), "--view", "live", "--size", "1200x800"]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    // Other processes are grey and fill most of the card, so their colour covers much of the picture.
    let image = image::open(&picture).unwrap().to_rgb8();
    let grey = vramscope::app::theme::tokens::DARK.other;
    let near = image.pixels().filter(|p| (0..3).all(|i| p.0[i].abs_diff(grey.to_array()[i]) < 3)).count();
    assert!(near > 20_000, "{near} pixels of the other processes' band");
}
