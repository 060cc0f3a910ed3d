//! The helper in a real Python with a fake torch: what it reports, what it refuses, and that the program is not disturbed.

#![cfg(target_os = "linux")]
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::shared::{open, wait_for};
use vramscope_core::model::{MarkKind, Reading};
use vramscope_live::live::agent::{News, Request};
use vramscope_live::live::source::*;
use vramscope_live::live::{LiveSession, Rates, SessionOptions};

const MIB: u64 = 1 << 20;

pub fn has_python() -> bool {
    let found = Command::new("python3").arg("-V").output().is_ok();
    if !found {
        crate::shared::not_run("there is no python3");
    }
    found
}

/// Ends the test when there is no Python.
macro_rules! needs_python {
    () => {
        if !$crate::live_helper::has_python() {
            return;
        }
    };
}
pub(super) use needs_python;

/// A program started through `vramscope run`, with the fake torch on its path.
pub struct Job {
    pub child: Child,
    pub folder: tempfile::TempDir,
}

impl Job {
    pub fn start(program: &str, args: &[&str]) -> Job {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("train.py");
        std::fs::write(&script, program).unwrap();
        let mut words: Vec<&str> = vec!["run", script.to_str().unwrap()];
        words.extend(args);
        Self::start_words(folder, &words)
    }

    fn start_words(folder: tempfile::TempDir, words: &[&str]) -> Job {
        let fakes = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fakes");
        // A shell that runs tests in the background ignores SIGINT, and children inherit that.
        let child = Command::new("env")
            .args(["--default-signal=INT", env!("CARGO_BIN_EXE_vramscope")])
            .args(words)
            .env("VRAMSCOPE_DIR", folder.path().join("private"))
            .env("PYTHONPATH", fakes)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Job { child, folder }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join(format!("private/{}.sock", self.child.id()))
    }

    pub fn wait_for_socket(&self) -> PathBuf {
        wait_for("the socket", || Some(self.socket()).filter(|socket| socket.exists()))
    }

    /// Ends the program by closing its input. Returns exit code, output and errors.
    pub fn finish(mut self) -> (Option<i32>, String, String) {
        drop(self.child.stdin.take());
        let out = self.child.wait_with_output().unwrap();
        let text = |b: Vec<u8>| String::from_utf8_lossy(&b).into_owned();
        (out.status.code(), text(out.stdout), text(out.stderr))
    }
}

/// Runs commands from its input until that is closed.
pub const TRAINING: &str = "import sys, torch\nprint('ready', flush=True)\nfor line in sys.stdin:\n    exec(line)\n    sys.stdout.flush()\n\
    print('asked', sorted(set(torch.ASKED)), 'recorded', torch.RECORDED)\n";

/// A program with the helper, at its first line.
pub fn program() -> (Job, impl BufRead) {
    let mut job = Job::start(TRAINING, &[]);
    job.wait_for_socket();
    let mut output = BufReader::new(job.child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (job, output)
}

/// A driver that lists one process.
struct OneProcess(u32);

impl GpuSource for OneProcess {
    fn driver(&mut self) -> DriverFacts {
        DriverFacts::default()
    }
    fn devices(&mut self) -> Result<Vec<Result<GpuFacts, GpuError>>, GpuError> {
        let facts = |i: u32| GpuFacts { uuid: format!("GPU-{i:08x}-0000-0000-0000-000000000000"), ..GpuFacts::default() };
        Ok((0..2).map(|i| Ok(facts(i))).collect())
    }
    fn memory(&mut self, _: usize) -> Result<GpuMemory, GpuError> {
        Ok(GpuMemory { total: 8192 * MIB, used: 1400 * MIB, free: 6792 * MIB, driver: Some(500 * MIB) })
    }
    fn processes(&mut self, device: usize, kind: ProcessKind) -> Result<Vec<GpuProcess>, GpuError> {
        let here = device == 0 && kind == ProcessKind::Compute;
        Ok(if here { vec![GpuProcess { pid: self.0, used: Some(890 * MIB) }] } else { Vec::new() })
    }
    fn lifetime_peak(&mut self, _: usize, _: u32) -> Option<u64> {
        None
    }
    fn busy(&mut self, _: usize) -> Result<GpuBusy, GpuError> {
        Err(GpuError::NotSupported("how busy it is"))
    }
    fn climate(&mut self, _: usize) -> Result<Reading, GpuError> {
        Ok(Reading::default())
    }
    fn health(&mut self, _: usize) -> Result<GpuHealth, GpuError> {
        Ok(GpuHealth::default())
    }
    fn events(&mut self) -> Vec<(Option<usize>, GpuEvent)> {
        Vec::new()
    }
    fn reopen(&mut self) -> Result<(), GpuError> {
        Ok(())
    }
}

pub fn watch(pid: u32) -> LiveSession {
    let options = SessionOptions { rates: Rates::default(), ..SessionOptions::default() };
    LiveSession::start(Box::new(move || Ok(Box::new(OneProcess(pid)) as Box<dyn GpuSource>)), &options).unwrap()
}

/// Pumps until a condition holds.
pub fn until<T>(session: &mut LiveSession, what: &str, mut holds: impl FnMut(&mut LiveSession) -> Option<T>) -> T {
    wait_for(what, || {
        session.pump(Duration::from_millis(50)).unwrap();
        holds(session)
    })
}

/// Waits until the helper has handled all earlier requests. Returns the news meanwhile. Requests are answered in order, so one
/// more request, to record no history, is answered last.
pub fn settle(session: &mut LiveSession, pid: u32) -> Vec<News> {
    session.request(pid, Request::History { on: false, max_entries: 0 });
    let mut told = Vec::new();
    until(session, "the answer to the last request", |s| {
        told.extend(s.news());
        told.contains(&News::History { pid, on: false }).then_some(())
    });
    told
}

/// The next snapshot that is reported.
pub fn taken(session: &mut LiveSession, at_oom: bool) -> PathBuf {
    until(session, "a snapshot", |s| {
        s.news().into_iter().find_map(|n| match n {
            News::Snapshot { path, is_oom, .. } if is_oom == at_oom => Some(path),
            _ => None,
        })
    })
}

#[test]
fn a_running_program_is_split_into_allocated_cached_and_the_rest() {
    needs_python!();
    let (mut job, mut output) = program();
    // `vramscope run` is replaced by the program, so the child's PID is that of the training.
    let pid = job.child.id();
    let mut session = watch(pid);
    let sample = until(&mut session, "a split sample", |s| s.history().latest(0).map(|l| l.0).filter(|s| s.reserved.is_some()));
    let b = sample.bands(8192 * MIB).unwrap();
    assert_eq!(
        (b.driver, b.outside, b.allocated, b.cached, b.unattributed),
        (500 * MIB, 590 * MIB, 200 * MIB, 100 * MIB, 10 * MIB)
    );
    assert_eq!((b.used() + b.free, b.skew), (8192 * MIB, 0));
    assert!(session.history().latest(1).unwrap().0.reserved.is_none(), "the other device was not asked");

    // A snapshot now, the blocks, the history, and a snapshot at out of memory.
    session.request(pid, Request::Blocks);
    session.request(pid, Request::Snapshot);
    session.request(pid, Request::History { on: true, max_entries: 5000 });
    session.request(pid, Request::SnapshotAtOom(true));
    let path = taken(&mut session, false);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let opened = open(&path);
    assert_eq!(opened.devices[0].segments.len(), 1);
    until(&mut session, "blocks", |s| (s.history().recording("live").devices[0].blocks.len() == 2).then_some(()));
    until(&mut session, "history", |s| s.helpers().any(|h| h == (pid, true)).then_some(()));
    let stdin = job.child.stdin.as_mut().unwrap();
    writeln!(stdin, "torch.set_figures(500 << 20, 100 << 20)").unwrap();
    writeln!(stdin, "sys.modules['vramscope_agent'].mark('epoch 1')").unwrap();
    drop(job.child.stdin.take());
    until(&mut session, "the end of the helper", |s| s.news().contains(&News::Gone { pid }).then_some(()));
    let live = session.history().recording("live").devices[0].live.clone().unwrap();
    assert!(live.marks.iter().any(|m| m.kind == MarkKind::Program && &*m.text == "epoch 1"), "{:?}", live.marks);
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    let (_, _, errors) = job.finish();
    assert!(rest.contains("asked [0]") && rest.contains("'max_entries': 5000"), "{rest} {errors}");
}

#[test]
fn memory_that_runs_out_leaves_a_snapshot_and_the_exception() {
    needs_python!();
    let (mut job, _output) = program();
    let pid = job.child.id();
    let mut session = watch(pid);
    until(&mut session, "the helper", |s| s.helpers().next());
    session.request(pid, Request::SnapshotAtOom(true));
    settle(&mut session, pid);
    writeln!(job.child.stdin.as_mut().unwrap(), "torch.run_out()").unwrap();
    assert!(taken(&mut session, true).exists());
    let (code, _, errors) = job.finish();
    assert!(code == Some(1) && errors.contains("CUDA out of memory"), "{code:?} {errors}");
}

#[test]
fn the_program_keeps_its_arguments_its_main_and_its_exit_code() {
    needs_python!();
    let program = "import sys, os, signal\nprint(__name__, sys.argv[1:], os.path.basename(sys.argv[0]))\n\
        print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)\nsys.exit(7)\n";
    let (code, out, errors) = Job::start(program, &["--lr", "1e-3", "-m"]).finish();
    assert_eq!((code, out.as_str(), errors.as_str()), (Some(7), "__main__ ['--lr', '1e-3', '-m'] train.py\nTrue\n", ""));
    let folder = tempfile::tempdir().unwrap();
    let job = Job::start_words(
        folder,
        &["run", "python3", "-c", "import sys; sys.stdin.read(); print('vramscope_agent' in sys.modules)"],
    );
    assert_eq!(job.finish().1, "True\n");
    let folder = tempfile::tempdir().unwrap();
    let (code, _, errors) = Job::start_words(folder, &["run", "no-such-program-here"]).finish();
    assert!(code == Some(1) && errors.contains("cannot be started"), "{errors}");
}

#[test]
fn a_signal_ends_the_program_as_it_would_without_us_and_the_socket_goes_with_it() {
    needs_python!();
    let mut job = Job::start("import sys\nprint('runs', flush=True)\nsys.stdin.read()\n", &[]);
    let socket = job.wait_for_socket();
    // During Python's startup, a signal ends it without calling any module.
    job.child.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
    let pid = rustix::process::Pid::from_raw(job.child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let status = job.child.wait().unwrap();
    let mut errors = String::new();
    job.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(!status.success() && errors.contains("KeyboardInterrupt"), "{status:?} {errors}");
    assert!(!socket.exists(), "the socket is taken away");
}

#[test]
fn ctrl_c_while_python_starts_leaves_no_socket_behind() {
    needs_python!();
    let folder = tempfile::tempdir().unwrap();
    let sockets = folder.path().join("private");
    // Our sitecustomize calls this one. A signal in it ends Python before any cleanup registered by modules.
    let after = folder.path().join("after");
    std::fs::create_dir(&after).unwrap();
    std::fs::write(after.join("sitecustomize.py"), "import time\nprint('starting', flush=True)\ntime.sleep(0.2)\n").unwrap();
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/vramscope-live/assets");
    let path = std::env::join_paths([&assets, &assets.join("python"), &after]).unwrap();
    let start = || {
        Command::new("env")
            .args(["--default-signal=INT", "python3", "-c", "import sys; print('runs', flush=True); sys.stdin.read()"])
            .env("VRAMSCOPE_DIR", &sockets)
            .env("PYTHONPATH", &path)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let left = || std::fs::read_dir(&sockets).unwrap().count();
    for try_ in 0..24 {
        let mut job = start();
        // While the other sitecustomize sleeps, around the end of the startup, and in the program.
        job.stdout.as_mut().unwrap().read_exact(&mut [0; 9]).unwrap();
        std::thread::sleep(Duration::from_millis(14 * try_));
        let pid = rustix::process::Pid::from_raw(job.id() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let out = job.wait_with_output().unwrap();
        assert!(!out.status.success() && String::from_utf8_lossy(&out.stderr).contains("KeyboardInterrupt"), "{out:?}");
        assert_eq!(left(), 0, "try {try_}: {}", String::from_utf8_lossy(&out.stderr));
    }
    let mut job = start();
    wait_for("a helper of the program that runs", || (left() > 0).then_some(()));
    drop(job.stdin.take());
    assert!(job.wait_with_output().unwrap().status.success());
    assert_eq!(left(), 0);
}

#[test]
fn the_socket_is_the_users_alone_and_odd_requests_change_nothing() {
    needs_python!();
    let job = Job::start(TRAINING, &[]);
    let socket = job.wait_for_socket();
    let mode = |p: &Path| std::fs::metadata(p).unwrap().permissions().mode() & 0o777;
    wait_for("a socket of the user alone", || (mode(&socket) == 0o600).then_some(()));
    assert_eq!(mode(socket.parent().unwrap()), 0o700);
    let ask = |line: &str| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(line.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut answer = String::new();
        // The greeting, then other messages until an answer or the end.
        for _ in 0..40 {
            answer.clear();
            if reader.read_line(&mut answer).unwrap_or(0) == 0 || answer.contains("\"re\"") {
                break;
            }
        }
        answer
    };
    for odd in [
        "{\"cmd\": \"eval\", \"code\": \"1\", \"id\": 1}\n",
        "{\"cmd\": [1], \"id\": 2}\n",
        "{\"cmd\": \"history\", \"on\": true, \"max_entries\": \"x\", \"id\": 3}\n",
    ] {
        assert!(ask(odd).contains("\"error\""), "{odd}");
    }
    // A line that is no JSON, or is longer than any request, only ends the connection.
    assert_eq!(ask("not json at all\n"), "");
    assert_eq!(ask(&"x".repeat(200_000)), "");
    let (code, out, errors) = job.finish();
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("recorded []"), "{out}");
}

#[test]
fn a_program_without_torch_and_a_forked_child_are_left_in_peace() {
    needs_python!();
    let program = "import os, sys\nassert 'torch' not in sys.modules\nr, w = os.pipe()\npid = os.fork()\nif pid == 0:\n    \
        import vramscope_agent\n    s = vramscope_agent._state\n    os.write(w, str(s.pid == os.getpid() and os.path.exists(s.path)).encode())\n    os._exit(0)\n\
        print(os.read(r, 100).decode()); os.waitpid(pid, 0)\nimport vramscope_agent\nprint(os.path.exists(vramscope_agent.start()))\nprint('torch' in sys.modules)\n";
    let (code, out, errors) = Job::start(program, &[]).finish();
    assert_eq!((code, out.as_str(), errors.as_str()), (Some(0), "True\nTrue\nFalse\n", ""));
}

#[test]
fn a_folder_that_others_can_enter_is_not_trusted() {
    needs_python!();
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("private");
    let elsewhere = folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
    let helper = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/vramscope-live/assets/python");
    let out = Command::new("python3")
        .args(["-c", "from vramscope import _agent; print(_agent.start())"])
        .env("PYTHONPATH", helper)
        .env("VRAMSCOPE_DIR", &link)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), "None\n", "a link laid out by somebody is refused, and the program goes on");
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
}
