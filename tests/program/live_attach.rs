//! Attaches to a running CPython 3.14 through its own interpreter: the helper answers, and the program is not disturbed. Skipped
//! with a note without such a Python (`python3.14`, or the one that VRAMSCOPE_PYTHON314 names).

#![cfg(target_os = "linux")]
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use vramscope_live::live::agent::Request;
use vramscope_live::live::attach::{inject_within, survey};

use super::live_helper::{taken, until, watch};
use crate::shared::wait_for;

/// A Python that can be attached to.
fn python() -> Option<PathBuf> {
    let path = std::env::var_os("VRAMSCOPE_PYTHON314").map_or_else(|| PathBuf::from("python3.14"), PathBuf::from);
    let found = Command::new(&path).arg("-V").output().is_ok_and(|o| o.status.success());
    if !found {
        crate::shared::not_run("there is no python3.14; VRAMSCOPE_PYTHON314 names one");
    }
    found.then_some(path)
}

/// A program without the helper that runs until it is told to stop.
struct Program {
    child: Child,
    folder: tempfile::TempDir,
}

impl Program {
    fn start(python: &Path, flags: &[&str], variables: &[(&str, &str)], body: &str) -> Program {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("train.py");
        let stop = folder.path().join("stop");
        let ready = folder.path().join("ready");
        let text = format!(
            "import os, sys, time, torch\nbefore = set(globals())\nopen({ready:?}, 'w').close()\n{body}\nsteps = 0\nwhile not os.path.exists({stop:?}):\n    \
             time.sleep(0.005); steps += 1\nnew = sorted(set(globals()) - before - {{'before', 'steps'}})\nprint('steps', steps > 0, 'new names', new, flush=True)\n"
        );
        std::fs::write(&script, text).unwrap();
        let fakes = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fakes");
        let child = Command::new(python)
            .args(flags)
            .arg(&script)
            .env("PYTHONPATH", fakes)
            .env("VRAMSCOPE_DIR", folder.path().join("private"))
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let program = Program { child, folder };
        wait_for("the program to start", || ready.exists().then_some(()));
        program
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets the program end. Returns exit code, output and errors.
    fn finish(self) -> (Option<i32>, String, String) {
        std::fs::write(self.folder.path().join("stop"), "").unwrap();
        let out = self.child.wait_with_output().unwrap();
        let text = |b: Vec<u8>| String::from_utf8_lossy(&b).into_owned();
        (out.status.code(), text(out.stdout), text(out.stderr))
    }
}

const UNDISTURBED: &str = "steps True new names []\n";

#[test]
fn a_running_program_is_entered_and_does_not_notice() {
    let Some(python) = python() else { return };
    let program = Program::start(&python, &[], &[], "");
    let pid = program.pid();
    let known = survey(pid);
    assert_eq!((known.python.map(|v| v >= (3, 14)), known.obstacle, known.socket), (Some(true), None, None));
    let mut session = watch(pid);
    session.attach(pid);
    until(&mut session, "PyTorch's figures", |s| s.history().latest(0).map(|l| l.0).filter(|s| s.reserved == Some(300 << 20)));
    session.request(pid, Request::Snapshot);
    let path = taken(&mut session, false);
    assert!(path.starts_with(program.folder.path()) && path.exists(), "{path:?}");
    // Attaching again changes nothing.
    assert!(inject_within(pid, Duration::from_secs(60)).unwrap().ends_with(format!("{pid}.sock")));
    let (code, out, errors) = program.finish();
    assert_eq!((code, out.as_str(), errors.as_str()), (Some(0), UNDISTURBED, ""));
}

#[test]
fn a_program_in_a_long_call_is_entered_when_it_returns() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    // Opening a pipe blocks until somebody writes to it.
    let program = Program::start(&python, &[], &[], &format!("os.mkfifo({pipe:?}); open({pipe:?}).close()"));
    wait_for("the pipe", || pipe.exists().then_some(()));
    let pid = program.pid();
    let sentence = inject_within(pid, Duration::from_millis(300)).unwrap_err();
    assert!(sentence.contains("long call") && sentence.contains("starts as soon as it returns"), "{sentence}");
    let mut session = watch(pid);
    std::fs::write(&pipe, "").unwrap();
    until(&mut session, "the helper", |s| s.helpers().next());
    let (code, out, errors) = program.finish();
    assert_eq!((code, out.as_str(), errors.as_str()), (Some(0), UNDISTURBED, ""));
}

#[test]
fn what_stands_in_the_way_is_one_sentence_and_the_program_goes_on() {
    let Some(python) = python() else { return };
    let refused = |program: Program, want: &str| {
        let pid = program.pid();
        let sentence = inject_within(pid, Duration::from_secs(2)).unwrap_err();
        assert!(sentence.contains(want) && sentence.lines().count() == 1, "{sentence}");
        assert_eq!(survey(pid).obstacle.as_ref(), Some(&sentence), "known before it is tried");
        let (code, out, errors) = program.finish();
        assert_eq!((code, out.as_str(), errors.as_str()), (Some(0), UNDISTURBED, ""), "{want}");
    };
    refused(Program::start(&python, &[], &[("PYTHON_DISABLE_REMOTE_DEBUG", "1")], ""), "remote debugging switched off");
    refused(Program::start(&python, &["-X", "disable-remote-debug"], &[], ""), "remote debugging switched off");
    refused(Program::start(&python, &[], &[("VRAMSCOPE_HELPER", "off")], ""), "VRAMSCOPE_HELPER=off");
    let old = Command::new("python3").args(["-c", "import sys; print(sys.version_info < (3, 14))"]).output();
    if old.is_ok_and(|o| o.stdout == b"True\n") {
        refused(Program::start(Path::new("python3"), &[], &[], ""), "cannot be entered from outside without a debugger");
    }
    let mut ended = Program::start(&python, &[], &[], "");
    ended.child.kill().unwrap();
    ended.child.wait().unwrap();
    assert!(inject_within(ended.pid(), Duration::from_secs(1)).is_err());
}
