//! What other programs, users or watchers can do to a watch, and a watch to a program: real sockets, a second process, `kill
//! -STOP`, and another user when the tests run as root.

#![cfg(target_os = "linux")]
use crate::shared::{Guard, open, wait_for};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use vramscope_core::model::{MarkKind, Progress};
use vramscope_live::live::agent::{News, Request};

use super::live_helper::{Job, has_python, needs_python, program, settle, until, watch};
use super::live_record::Machine;

/// Listens on the helper's socket and greets like the helper, unless told to misbehave.
const LISTENER: &str = r#"
import json, os, socket, sys, time
how = sys.argv[1]
place = os.environ["VRAMSCOPE_DIR"]
listener = socket.socket(socket.AF_UNIX)
path = os.path.join(place, "%d.sock" % os.getpid())
listener.bind(path)
os.chmod(path, 0o777)
listener.listen(1)
print("ready", flush=True)
while True:
    c, _ = listener.accept()
    open(os.path.join(place, "connected"), "w").close()
    try:
        if how == "silent":
            time.sleep(60)
        while how == "drip":
            c.send(b"{"); time.sleep(0.2)
        while how == "endless":
            c.send(b"x" * 65536)
        c.send(json.dumps({"hello": 1, "pid": os.getpid(), "t": time.time_ns() // 1000}).encode() + b"\n")
        if how == "marks":
            for i in range(50000):
                c.sendall(b'{"event": "mark", "text": "' + b"flood " * 30 + b'"}\n')
            c.sendall(b'{"path": "/etc/passwd"}\n{"history": true}\n{"blocks": {"segments": []}}\n')
            open(os.path.join(place, "sent"), "w").close()
        while how == "endless after":
            c.send(b"x" * 65536)
        time.sleep(60)
    except OSError:
        pass
"#;

fn pid(program: &Guard) -> Pid {
    Pid::from_raw(program.0.id() as i32).unwrap()
}

/// Starts the listener in the Python of `launcher`, or in the default one, and waits until it listens.
fn listener(launcher: &[&str], folder: &Path, how: &str) -> Guard {
    let mut words: Vec<&str> = if launcher.is_empty() { vec!["python3"] } else { launcher.to_vec() };
    words.extend(["-c", LISTENER, how]);
    let child = Command::new(words[0]).args(&words[1..]).env("VRAMSCOPE_DIR", folder).stdout(Stdio::piped()).spawn().unwrap();
    let mut program = Guard(child);
    let mut line = String::new();
    BufReader::new(program.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    program
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// A session in memory.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_helper_that_stalls_or_never_ends_holds_up_nothing() {
    needs_python!();
    // Those that must be waited for, five seconds each, run at the same time.
    std::thread::scope(|threads| {
        for how in ["silent", "drip", "stopped"] {
            threads.spawn(move || holds_up_nothing(how, "does not answer within 5 s"));
        }
    });
    holds_up_nothing("endless", "a line of more than");
    holds_up_nothing("endless after", "");
}

/// Watches a program whose helper misbehaves, until `why` is reported.
fn holds_up_nothing(how: &str, why: &str) {
    let folder = tempfile::tempdir().unwrap();
    let program = listener(&[], folder.path(), how);
    if how == "stopped" {
        kill_process(pid(&program), Signal::STOP).unwrap();
    }
    let (before, start) = (resident(), Instant::now());
    let mut session = watch(program.0.id());
    let mut failed = None;
    while start.elapsed() < Duration::from_secs(8) && failed.is_none() {
        let asked = Instant::now();
        session.pump(Duration::from_millis(50)).unwrap();
        assert!(asked.elapsed() < Duration::from_secs(1), "{how}: one look took {:?}", asked.elapsed());
        failed = session.news().into_iter().find_map(|n| match n {
            News::Failed { sentence, .. } => Some(sentence),
            News::Gone { .. } if how == "endless after" => Some(String::new()),
            _ => None,
        });
    }
    let sentence = failed.unwrap_or_else(|| panic!("{how}: nothing is said"));
    assert!(sentence.contains(why), "{how}: {sentence}");
    let taken = session.history().samples(0).len() as f64 / start.elapsed().as_secs_f64();
    assert!(taken > 7.0, "{how}: {taken} samples a second of ten");
    assert!(resident().saturating_sub(before) < 64 << 20, "{how}: grew by {} MiB", (resident() - before) >> 20);
}

#[test]
fn a_flood_of_marks_is_bounded_and_counted_and_nothing_unasked_is_believed() {
    needs_python!();
    let folder = tempfile::tempdir().unwrap();
    let program = listener(&[], folder.path(), "marks");
    let mut session = watch(program.0.id());
    let kept = Kept::default();
    session.write_to(Box::new(kept.clone())).unwrap();
    let pid = program.0.id();
    let mut news = Vec::new();
    until(&mut session, "the end of the flood", |s| {
        news.extend(s.news());
        folder.path().join("sent").exists().then_some(())
    });
    // Sent data arrives even without its sender.
    drop(program);
    until(&mut session, "the end of the helper", |s| {
        news.extend(s.news());
        news.contains(&News::Gone { pid }).then_some(())
    });
    session.finish().unwrap();
    assert_eq!(news, [News::Answers { pid }, News::Gone { pid }]);
    let bytes = kept.0.lock().unwrap().clone();
    assert!(bytes.len() < 200_000, "{} bytes for 50,000 marks", bytes.len());
    let live = vramscope_core::formats::read(&bytes, "s.vramscope", &Progress::new()).unwrap().devices[0].live.clone().unwrap();
    let told = live.marks.iter().filter(|m| m.kind == MarkKind::Program).count();
    let number = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>().parse::<u64>().unwrap();
    let dropped: u64 = live.marks.iter().filter(|m| m.text.ends_with(" dropped")).map(|m| number(&m.text)).sum();
    assert_eq!(told as u64 + dropped, 50_000, "{told} marks told, {dropped} dropped: {:?}", live.marks.last());
}

#[test]
fn another_users_helper_is_left_alone_unless_it_is_asked_for() {
    needs_python!();
    // A Python that the other user can run, because ours may be in root's folder.
    let other = |python| ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", python];
    let works = |words: &[&str]| Command::new(words[0]).args(&words[1..]).arg("-V").output().is_ok_and(|o| o.status.success());
    let Some(other) = ["python3", "/usr/bin/python3"].map(other).into_iter().find(|words| works(words)) else {
        crate::shared::not_run(
            "only root can start a program as another user, and that needs setpriv and a Python that the other can start",
        );
        return;
    };
    let Some(m) = Machine::new("") else { return };
    // A folder that both users can enter, as an attacker would arrange it.
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let program = listener(&other, folder.path(), "marks");
    let pid = program.0.id();
    m.say(&format!("0.used=1048576\n0.proc={pid}:1048576\n"));
    let connected = folder.path().join("connected");
    let errors = |more: &[&str]| {
        let out = m.record(more).wait_with_output().unwrap();
        assert!(out.status.success(), "{out:?}");
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let text = errors(&["--seconds", "3"]);
    assert!(!connected.exists(), "{text}");
    assert_eq!(
        text.lines().filter(|l| l.contains("--other-users") && l.contains(&format!("Process {pid} "))).count(),
        1,
        "{text}"
    );
    let text = errors(&["--seconds", "3", "--force", "--pid", &pid.to_string(), "--attach"]);
    assert!(!connected.exists() && text.contains("--other-users") && text.contains("from outside only"), "{text}");
    let text = errors(&["--seconds", "3", "--force", "--other-users"]);
    assert!(connected.exists() && text.contains(&format!("the helper in process {pid} answers")), "{text}");
}

#[test]
fn a_helper_outside_our_process_namespace_is_a_peer_without_a_number() {
    let inside = ["--pid", "--fork"];
    if !has_python() || !Command::new("unshare").args(inside).arg("true").status().is_ok_and(|s| s.success()) {
        crate::shared::not_run("this user gets no process namespace");
        return;
    }
    let Some(m) = Machine::new("") else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = listener(&[], folder.path(), "marks");
    let pid = program.0.id();
    m.say(&format!("0.used=1048576\n0.proc={pid}:1048576\n"));
    let record = m.vramscope(&["record", m.path("s.vramscope").to_str().unwrap(), "--seconds", "3"]);
    let mut command = Command::new("unshare");
    command.args(inside).arg(record.get_program()).args(record.get_args());
    command.envs(record.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let out = command.output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success() && text.contains(&format!("the helper in process {pid} answers")), "{text}");
}

/// Runs a line in the program. Returns what it prints.
fn run_line(job: &mut Job, output: &mut impl BufRead, line: &str) -> String {
    writeln!(job.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    let mut answer = String::new();
    output.read_line(&mut answer).unwrap();
    answer.trim_end().to_owned()
}

#[test]
fn a_snapshot_at_out_of_memory_is_written_once_for_each_time_it_is_asked_for() {
    needs_python!();
    let (mut job, mut output) = program();
    let pid = job.child.id();
    let mut session = watch(pid);
    until(&mut session, "the helper", |s| s.helpers().next());
    let snapshots = job.folder.path().join("private/snapshots");
    let count = || std::fs::read_dir(&snapshots).map_or(0, |d| d.count());
    let run_out =
        "import contextlib\nfor _ in range(20):\n    with contextlib.suppress(RuntimeError): torch.run_out()\nprint('out')";
    let run_out = format!("exec({run_out:?})");
    for round in 1..=2 {
        session.request(pid, Request::SnapshotAtOom(true));
        settle(&mut session, pid);
        assert_eq!(run_line(&mut job, &mut output, &run_out), "out");
        let news = settle(&mut session, pid);
        let told = news.iter().filter(|n| matches!(n, News::Snapshot { is_oom: true, .. })).count();
        assert_eq!((told, count()), (1, round), "twenty errors in round {round}");
    }
}

#[test]
fn a_program_never_waits_for_a_watcher_that_takes_nothing_in() {
    needs_python!();
    let (mut job, mut output) = program();
    let marks = "import time\nfrom vramscope_agent import mark\nslowest = 0\nfor i in range(3000):\n    t = time.perf_counter(); mark('x' * 200); \
                 slowest = max(slowest, time.perf_counter() - t)\nprint(slowest)";
    let marks = format!("exec({marks:?})");
    // A client that connects and never reads, and a real one that is stopped.
    let mut deaf = UnixStream::connect(job.socket()).unwrap();
    let m = Machine::new(&format!("0.used=1048576\n0.proc={}:1048576\n", job.child.id()));
    let mut stopped = m.as_ref().map(|m| {
        let mut child = m.record(&[]);
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("answers") {
            line.clear();
            assert!(errors.read_line(&mut line).unwrap() > 0);
        }
        let program = Guard(child);
        kill_process(pid(&program), Signal::STOP).unwrap();
        program
    });
    let slowest: f64 = run_line(&mut job, &mut output, &marks).parse().unwrap();
    // It was 5 s for each. A busy machine may add to the time.
    assert!(slowest < 2.0, "a mark took {slowest} s");
    // The client that never read gets what was kept for it, and the number of lost messages.
    deaf.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut text = String::new();
    let mut lines = BufReader::new(&mut deaf);
    while !text.contains("\"dropped\"") {
        text.clear();
        assert!(lines.read_line(&mut text).unwrap() > 0, "no count of the dropped ones");
    }
    let dropped: u64 = text.split("\"dropped\": ").nth(1).unwrap().split([',', '}']).next().unwrap().parse().unwrap();
    assert!((1000..3000).contains(&dropped), "{text}");
    if let (Some(m), Some(mut program)) = (m, stopped.take()) {
        kill_process(pid(&program), Signal::CONT).unwrap();
        std::thread::sleep(Duration::from_secs(2));
        program.0.kill().unwrap();
        let marks = m.recorded()[0].live.clone().unwrap().marks;
        assert!(marks.iter().any(|m| m.text.ends_with("marks were dropped")) || marks.len() < 200, "{}", marks.len());
    }
    drop(lines);
    let (code, _, errors) = job.finish();
    assert_eq!((code, errors.as_str()), (Some(0), ""));
}

#[test]
fn a_program_keeps_its_files_however_many_connect() {
    needs_python!();
    let (job, _output) = program();
    let files = || std::fs::read_dir(format!("/proc/{}/fd", job.child.id())).unwrap().count();
    let before = files();
    let mut streams: Vec<UnixStream> = (0..40).map(|_| UnixStream::connect(job.socket()).unwrap()).collect();
    let first = |stream: &mut UnixStream| {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut line = String::new();
        let _ = BufReader::new(stream).read_line(&mut line);
        line
    };
    let greeted = streams.iter_mut().map(first).collect::<Vec<_>>();
    assert_eq!(greeted.iter().filter(|l| l.contains("\"hello\"")).count(), 4);
    assert_eq!(greeted.iter().filter(|l| l.contains("4 others watch this program already")).count(), 36);
    wait_for("the refused connections to be closed", || (files() <= before + 4).then_some(()));
    // vramscope reports the refusal, and connects when there is room again.
    let mut session = watch(job.child.id());
    let sentence = until(&mut session, "a refusal", |s| {
        s.news().into_iter().find_map(|n| if let News::Failed { sentence, .. } = n { Some(sentence) } else { None })
    });
    assert!(sentence.contains("does not let us in: 4 others watch"), "{sentence}");
    drop(streams);
    wait_for("the other connections to be closed", || (files() <= before).then_some(()));
    session.attach(job.child.id());
    until(&mut session, "the helper", |s| s.helpers().next());
    assert_eq!(job.finish().0, Some(0));
}

#[test]
fn an_older_session_stays_until_there_is_a_newer_one() {
    let Some(m) = Machine::new("0.used=1048576\n") else { return };
    let out = m.path("s.vramscope");
    assert!(m.record(&["--seconds", "1"]).wait().unwrap().success());
    let old = std::fs::read(&out).unwrap();
    let unreadable = "0.err.memory=15\n0.err.memory2=15\n";
    let fails = [
        ("init=12\n", &["--force"][..]),
        ("", &["--force", "--device", "7"]),
        ("gpus=0\n", &["--force"]),
        (unreadable, &["--force"]),
    ];
    for (state, more) in fails {
        m.say(state);
        let failed = m.record(&[more, &["--seconds", "1"]].concat()).wait_with_output().unwrap();
        assert_eq!((failed.status.code(), std::fs::read(&out).unwrap() == old), (Some(1), true), "{state}{more:?}");
    }
    // A session that is being recorded cannot be overwritten.
    m.say("0.used=2147483648\n");
    let mut first = m.record(&["--force"]);
    m.wait("the new session", |d| d[0].samples.last().is_some_and(|s| s.used.unwrap_or(0) > 2 << 30));
    for more in [&["--force"][..], &[]] {
        let second = m.record(&[more, &["--seconds", "1"]].concat()).wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&second.stderr).into_owned();
        assert!(
            second.status.code() == Some(1) && text.contains(&format!("is being written by process {}", first.id())),
            "{text}"
        );
    }
    let export =
        m.vramscope(&["export", out.to_str().unwrap(), "--to", "csv", out.to_str().unwrap(), "--force"]).output().unwrap();
    assert!(!export.status.success(), "{export:?}");
    m.wait("samples", |d| d[0].samples.len() > 5);
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(m.record(&["--force", "--seconds", "1"]).wait().unwrap().success(), "a killed one holds nothing");
}

#[test]
fn of_two_that_begin_at_once_one_is_kept() {
    let Some(m) = Machine::new("0.used=1048576\n") else { return };
    for force in [&[][..], &["--force"]] {
        let both: Vec<Child> = (0..4).map(|_| m.record(&[force, &["--seconds", "1.5"]].concat())).collect();
        let ids: Vec<u32> = both.iter().map(Child::id).collect();
        let done: Vec<_> = both.into_iter().map(|c| c.wait_with_output().unwrap()).collect();
        let winners: Vec<u32> = ids.iter().zip(&done).filter(|(_, o)| o.status.success()).map(|(id, _)| *id).collect();
        assert_eq!(winners.len(), 1, "{done:?}");
        assert_eq!(vramscope_core::formats::session::writer_of(&m.path("s.vramscope")), Some(winners[0]));
    }
}

#[test]
fn a_kill_at_any_moment_leaves_a_session_that_opens_or_none() {
    let Some(m) = Machine::new("0.used=1048576\n") else { return };
    let folder = m.path("kills");
    std::fs::create_dir(&folder).unwrap();
    let mut opened = 0;
    for i in 0..25u64 {
        let out = folder.join(format!("{i}.vramscope"));
        let mut child = m.vramscope(&["record", out.to_str().unwrap(), "--rate", "50"]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(i * 12));
        if i == 24 {
            // However slow the machine is, the process is killed while it writes.
            wait_for("a session", || out.exists().then_some(()));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if out.exists() {
            let session = open(&out);
            assert!(!session.devices.is_empty());
            opened += 1;
        }
    }
    let names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), opened, "nothing but sessions is left: {names:?}");
}

#[test]
fn the_time_is_kept_whatever_hangs() {
    let Some(m) = Machine::new("0.used=1048576\n") else { return };
    let timed = |mut child: Child, what: &str| {
        let since = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(since.elapsed() < Duration::from_secs(8), "{what}: two seconds take more than eight");
            std::thread::sleep(Duration::from_millis(20));
        };
        let mut text = String::new();
        child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (status.code(), text)
    };
    // A reader that never reads. The pipe is full at once.
    let mut child = m.vramscope(&["record", "-", "--seconds", "2", "--rate", "50"]).spawn().unwrap();
    let pipe = child.stdout.take().unwrap();
    // SAFETY: the file is open, and the other arguments are numbers.
    assert!(unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&pipe), libc::F_SETPIPE_SZ, 4096) } > 0);
    let (code, text) = timed(child, "a stalled reader");
    assert!(code == Some(1) && text.contains("its reader takes nothing in"), "{text}");
    drop(pipe);
    // A driver that hangs from the start, and one that hangs later.
    m.say("hang=1\n");
    let (code, text) = timed(m.record(&["--seconds", "2"]), "a driver that hangs");
    assert!(code == Some(1) && text.contains("does not answer within 2 s"), "{text}");
    assert!(!m.path("s.vramscope").exists());
    m.say("0.used=1048576\n");
    let child = m.record(&["--seconds", "2"]);
    m.wait("samples", |d| !d[0].samples.is_empty());
    m.say("hang=1\n");
    assert_eq!(timed(child, "a driver that hangs later").0, Some(0));
    m.say("0.used=1048576\n");
    // A helper that hangs.
    if has_python() {
        let folder = tempfile::tempdir().unwrap();
        let program = listener(&[], folder.path(), "silent");
        kill_process(pid(&program), Signal::STOP).unwrap();
        m.say(&format!("0.used=1048576\n0.proc={}:1048576\n", program.0.id()));
        assert_eq!(timed(m.record(&["--seconds", "2", "--force"]), "a helper that hangs").0, Some(0));
        assert!(m.recorded()[0].samples.len() > 12);
    }
}
