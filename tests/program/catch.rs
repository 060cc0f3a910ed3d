//! `vramscope run --at-oom` with a fake torch: what is recorded, and that the program ends as it would have.

#![cfg(target_os = "linux")]
use std::io::Read as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::shared::open;
use serde_json::Value;

use super::cli::stderr;
use super::live_helper::needs_python;

/// A program under `vramscope run --at-oom`. Its fake torch initialises CUDA with the first allocation.
struct Caught {
    folder: tempfile::TempDir,
    child: Child,
}

impl Caught {
    fn start(program: &str, options: &[&str], command: &[&str]) -> Caught {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("train.py"), program).unwrap();
        let fakes = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fakes");
        // A shell that runs tests in the background ignores SIGINT, and children inherit that.
        let child = Command::new("env")
            .args(["--default-signal=INT", env!("CARGO_BIN_EXE_vramscope"), "run", "--at-oom", "caught"])
            .args(options)
            .args(command)
            .current_dir(folder.path())
            .env("VRAMSCOPE_DIR", folder.path().join("private"))
            .env("PYTHONPATH", fakes)
            .env("FAKE_TORCH", "late")
            .env_remove("RANK")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        Caught { folder, child }
    }

    /// A program that has used memory and waits.
    fn at_work() -> Caught {
        let program = format!("{FILL}step()\nprint('ready', flush=True)\nimport time\ntime.sleep(60)\n");
        let mut job = Caught::start(&program, &[], &["train.py"]);
        job.wait_for_line();
        job
    }

    fn finish(self) -> (Output, tempfile::TempDir) {
        (self.child.wait_with_output().unwrap(), self.folder)
    }

    fn wait_for_line(&mut self) {
        let mut byte = [0];
        while byte[0] != b'\n' {
            self.child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
        }
    }

    fn kill(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

fn run(program: &str, options: &[&str]) -> (Output, tempfile::TempDir) {
    Caught::start(program, options, &["train.py"]).finish()
}

/// The pages in the folder, by name. Their snapshots must open.
fn pages(folder: &tempfile::TempDir) -> Vec<Value> {
    let folder = folder.path().join("caught");
    let mut names: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    names.sort();
    let pages: Vec<Value> = names
        .iter()
        .filter(|n| n.to_string_lossy().ends_with(".about.json"))
        .map(|n| serde_json::from_slice(&std::fs::read(n).unwrap()).unwrap())
        .collect();
    let mut expected = pages.len();
    for page in &pages {
        if let Some(name) = page["snapshot"].as_str() {
            expected += 1;
            let opened = open(&folder.join(name));
            assert!(!opened.devices.is_empty());
        }
    }
    assert_eq!(names.len(), expected, "nothing but snapshots and pages: {names:?}");
    pages
}

fn why(pages: &[Value]) -> Vec<&str> {
    pages.iter().map(|p| p["why"].as_str().unwrap()).collect()
}

const FILL: &str = "import torch\nkept = []\ndef step():\n    kept.append(torch.empty(1 << 30))\n";

#[test]
fn an_error_that_ends_the_program_leaves_a_snapshot_and_the_error() {
    needs_python!();
    let (out, folder) = run(&format!("{FILL}while True: step()\n"), &[]);
    let text = stderr(&out);
    assert_eq!(out.status.code(), Some(1));
    assert!(text.contains("torch.OutOfMemoryError: CUDA out of memory"), "{text}");
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("vramscope: 1 snapshot: ") && last.contains("Out of memory: the device is full"), "{last}");
    assert!(last.contains("A request for 1 GiB failed because the device is full: 1 MiB is free on it."), "{last}");
    let pages = pages(&folder);
    let page = &pages[0];
    assert_eq!((why(&pages), page["oom"]["requested_bytes"].as_u64()), (vec!["oom"], Some(1 << 30)));
    assert!(page["error"]["traceback"].as_str().unwrap().contains("train.py"), "{page}");
    assert_eq!(page["history"]["max_entries"], 100_000);
    assert_eq!(page["devices"]["0"]["memory_stats"]["num_ooms"], 1);
    let snapshot = folder.path().join("caught").join(page["snapshot"].as_str().unwrap());
    let opened = open(&snapshot);
    // From the first allocation on.
    assert_eq!(opened.devices[0].events.len(), 17);
    // The page beside it is not a recording.
    let ranks = Command::new(env!("CARGO_BIN_EXE_vramscope")).arg("ranks").arg(folder.path().join("caught")).output().unwrap();
    assert!(ranks.status.success() && !String::from_utf8_lossy(&ranks.stdout).contains("about.json"), "{ranks:?}");
}

#[test]
fn an_out_of_memory_error_that_the_program_catches_is_caught_once_and_the_one_that_ends_it_again() {
    needs_python!();
    let catching = format!(
        "{FILL}for i in range(30):\n    try: step()\n    except torch.OutOfMemoryError: pass\nprint('done', sum(t.size for t in kept) >> 30)\n"
    );
    let (out, folder) = run(&catching, &[]);
    assert_eq!((out.status.code(), String::from_utf8_lossy(&out.stdout).as_ref()), (Some(0), "done 8\n"));
    let found = pages(&folder);
    assert!(why(&found) == ["oom"] && found[0]["error"].is_null(), "{found:?}");
    assert!(stderr(&out).starts_with("vramscope: 1 snapshot: "), "{}", stderr(&out));

    let begun = Instant::now();
    let (out, folder) = run(&format!("{catching}kept.clear()\nwhile True: step()\n"), &[]);
    assert_eq!(out.status.code(), Some(1));
    let found = pages(&folder);
    assert_eq!(why(&found), ["oom", "oom"]);
    let with_error = found.iter().filter(|p| !p["error"].is_null()).count();
    assert!(with_error == 1 && begun.elapsed() > Duration::from_secs(1), "never two in one second");
    let said = stderr(&out);
    assert!(said.contains("vramscope: 2 snapshots in ") && said.contains("the first failure "), "{said}");
    // What the program does after memory ran out follows from it.
    let later = format!("{FILL}try:\n    while True: step()\nexcept torch.OutOfMemoryError: pass\nraise ValueError('later')\n");
    let (out, folder) = run(&later, &[]);
    let mut causes = why(&pages(&folder)).iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    causes.sort();
    assert_eq!(causes, ["exception", "oom"]);
    let last = stderr(&out).lines().last().unwrap_or_default().to_owned();
    assert!(last.contains("the first failure ") && last.contains("/oom_") && last.contains("Out of memory: "), "{last}");
}

#[test]
fn a_python_that_keeps_the_helper_out_is_said_to_do_so() {
    needs_python!();
    let fails = "import sys\nsys.exit(3)\n";
    for flag in ["-I", "-S", "-E"] {
        let (out, _) = Caught::start(fails, &[], &["python3", flag, "train.py"]).finish();
        let said = stderr(&out);
        assert!(out.status.code() == Some(3) && said.contains("the helper could not get into the program"), "{flag}: {said}");
    }
    let (out, _) = run(fails, &[]);
    assert!(stderr(&out).contains("no process of the program had used CUDA"), "{}", stderr(&out));
}

#[test]
fn any_other_error_is_caught_however_the_program_shows_it_and_exit_codes_stay() {
    needs_python!();
    let fails = format!("{FILL}import sys\nstep()\n");
    for shown in ["", "sys.excepthook = lambda *e: print('own words', file=sys.stderr)\n"] {
        let (out, folder) = run(&format!("{fails}{shown}raise ValueError('no such shape')\n"), &[]);
        let found = pages(&folder);
        assert_eq!((out.status.code(), why(&found)), (Some(1), vec!["exception"]));
        assert_eq!(found[0]["error"]["message"], "no such shape");
        assert!(stderr(&out).contains(if shown.is_empty() { "no such shape" } else { "own words" }));
    }
    let (out, folder) = run(&format!("{fails}sys.exit(7)\n"), &[]);
    assert_eq!((out.status.code(), pages(&folder).len()), (Some(7), 0));
    let said = "the program ended with exit code 7; memory did not run out, and no error was left uncaught\n";
    assert!(stderr(&out).ends_with(said), "{}", stderr(&out));
    for (begin, used) in [(fails.as_str(), true), ("", false)] {
        let (out, folder) = run(&format!("{begin}import os\nos.kill(os.getpid(), 9)\n"), &[]);
        assert_eq!(pages(&folder).len(), 0);
        assert!(stderr(&out).contains("no snapshot was written: the program was killed (SIGKILL)"), "{}", stderr(&out));
        assert_eq!(stderr(&out).contains("had used CUDA"), !used, "{}", stderr(&out));
    }
    // An error before CUDA is used has no memory to show.
    let (out, folder) = run("import torch\nraise ValueError('early')\n", &[]);
    assert_eq!((out.status.code(), pages(&folder).len()), (Some(1), 0));
    let said = stderr(&out);
    assert!(said.ends_with("no snapshot was written: no process of the program had used CUDA when it ended\n"), "{said}");
    let (out, folder) = run("print('well')\n", &[]);
    assert_eq!((out.status.code(), stderr(&out).as_str(), pages(&folder).len()), (Some(0), "", 0));
}

#[test]
fn sigterm_ends_the_program_as_ever_after_a_snapshot() {
    needs_python!();
    use rustix::process::Signal;
    let waits = format!("{FILL}step()\nprint('ready', flush=True)\nimport time\n");
    let own = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *a: sys.exit(9))\n";
    // A main thread in a long C call, one that runs, and one with its own signal handler.
    let stuck =
        "import ctypes\nctypes.CDLL(None).usleep.argtypes = [ctypes.c_uint]\nwhile True:\n    ctypes.CDLL(None).sleep(100)\n";
    for (program, ends) in [
        (format!("{waits}time.sleep(60)\n"), (None, Some(15))),
        (format!("{waits}while True: pass\n"), (None, Some(15))),
        (format!("{waits}{stuck}"), (None, Some(15))),
        (format!("{own}{waits}time.sleep(60)\n"), (Some(9), None)),
        (format!("{FILL}step()\nimport time\n{own}print('ready', flush=True)\nwhile True: time.sleep(0.01)\n"), (Some(9), None)),
    ] {
        let mut job = Caught::start(&program, &[], &["train.py"]);
        job.wait_for_line();
        std::thread::sleep(Duration::from_millis(100));
        job.kill(Signal::TERM);
        let (out, folder) = job.finish();
        assert_eq!((out.status.code(), out.status.signal()), ends, "{program}: {}", stderr(&out));
        let found = pages(&folder);
        assert_eq!(why(&found), ["sigterm"], "{program}");
        says_what_was_found(&out);
    }
}

/// The last line has a sentence of the findings after the snapshot, also when nothing stands out.
fn says_what_was_found(out: &Output) {
    let text = stderr(out);
    let last = text.lines().last().unwrap_or_default();
    let found = last.strip_prefix("vramscope: 1 snapshot: ").and_then(|rest| rest.split_once(".pickle: "));
    assert!(found.is_some_and(|(_, said)| said.len() > 20 && said.ends_with('.')), "{text}");
}

#[test]
fn an_error_that_is_not_of_memory_ends_with_what_was_found_too() {
    needs_python!();
    let (out, folder) = run(&format!("{FILL}step()\nraise ValueError('x')\n"), &[]);
    assert_eq!(why(&pages(&folder)), ["exception"]);
    says_what_was_found(&out);
}

#[test]
fn ctrl_c_leaves_a_snapshot_and_the_keyboard_interrupt() {
    needs_python!();
    let job = Caught::at_work();
    job.kill(rustix::process::Signal::INT);
    let (out, folder) = job.finish();
    assert_eq!(out.status.signal(), Some(2), "{}", stderr(&out));
    assert!(stderr(&out).contains("KeyboardInterrupt"), "{}", stderr(&out));
    assert_eq!(why(&pages(&folder)), ["sigint"]);
}

#[test]
fn the_program_does_not_outlive_the_one_that_waits_for_it() {
    needs_python!();
    let job = Caught::at_work();
    job.kill(rustix::process::Signal::KILL);
    let begun = Instant::now();
    let (_, folder) = job.finish();
    // The pipes of its output are closed, so it has ended too.
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(why(&pages(&folder)), ["sigterm"]);
}

/// Like PyTorch's DataLoader: workers forked from the program that end by SIGTERM or by their own error.
#[test]
fn forked_workers_write_nothing_and_their_signals_are_their_own() {
    needs_python!();
    let workers = "import multiprocessing as mp, os, signal, time\n\
        def load(n):\n    if n == 0: raise MemoryError('worker')\n    if n == 1: os.kill(os.getpid(), signal.SIGTERM)\n    \
        if n == 2: os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(60)\n\
        ctx = mp.get_context('fork')\nws = [ctx.Process(target=load, args=(n,)) for n in range(4)]\n\
        for w in ws: w.start()\nfor w in ws[:3]: w.join()\nws[3].terminate(); ws[3].join()\n\
        print([w.exitcode for w in ws])\n";
    // Before the program uses CUDA, and while it does.
    for program in [format!("{FILL}{workers}step()\n"), format!("{FILL}step()\n{workers}")] {
        let (out, folder) = run(&program, &[]);
        assert_eq!(String::from_utf8_lossy(&out.stdout), "[1, -15, 1, -15]\n", "{}", stderr(&out));
        assert_eq!((out.status.code(), pages(&folder).len()), (Some(0), 0));
    }
    // A signal that a child receives before it has run anything ends only the child.
    let at_once = "import os, signal\nos.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))\n";
    let forks = "pid = os.fork()\nif pid == 0: os._exit(0)\nprint(os.waitpid(pid, 0)[1])\nimport time; time.sleep(0.3)\nstep()\n";
    let (out, folder) = run(&format!("{at_once}{FILL}step()\n{forks}"), &[]);
    assert_eq!(String::from_utf8_lossy(&out.stdout), "15\n", "{}", stderr(&out));
    assert_eq!((out.status.code(), pages(&folder).len()), (Some(0), 0), "{}", stderr(&out));
    // A forked child that trains is a program like any other.
    let trains = "import os\npid = os.fork()\nif pid == 0:\n    while True: step()\nos.waitpid(pid, 0)\n";
    let (_, folder) = run(&format!("{FILL}{trains}"), &[]);
    assert_eq!(why(&pages(&folder)), ["oom"]);
}

/// Like torchrun and accelerate: a program that starts a Python process for each rank.
#[test]
fn each_rank_that_a_launcher_starts_is_caught_by_its_rank() {
    needs_python!();
    let launcher = "import os, subprocess, sys\nranks = [subprocess.Popen([sys.executable, '-c', open('rank.py').read()], \
        env=dict(os.environ, RANK=str(r), WORLD_SIZE='2')) for r in range(2)]\ncodes = [r.wait() for r in ranks]\nsys.exit(max(codes))\n";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rank.py"), format!("{FILL}while True: step()\n")).unwrap();
    let rank = folder.path().join("rank.py");
    let launcher = launcher.replace("rank.py", rank.to_str().unwrap());
    let (out, caught) = Caught::start(&launcher, &[], &["python3", "train.py"]).finish();
    assert_eq!(out.status.code(), Some(1));
    let found = pages(&caught);
    assert_eq!(found.iter().filter_map(|p| p["rank"].as_u64()).collect::<Vec<_>>(), [0, 1]);
    assert!(found.iter().all(|p| p["environment"]["WORLD_SIZE"] == "2"));
    let ranks = Command::new(env!("CARGO_BIN_EXE_vramscope"))
        .args(["ranks", "--json"])
        .arg(caught.path().join("caught"))
        .output()
        .unwrap();
    let ranks: Value = serde_json::from_slice(&ranks.stdout).unwrap();
    assert_eq!(ranks["jobs"].as_array().map(Vec::len), Some(1), "one job of two ranks: {ranks}");
}

#[test]
fn what_is_kept_is_bounded() {
    needs_python!();
    let (out, folder) = run(&format!("{FILL}while True: step()\n"), &["--max-disk", "1KiB"]);
    assert_eq!(out.status.code(), Some(1));
    let found = pages(&folder);
    assert!(found[0]["snapshot"].is_null() && found[0]["not_kept"].as_str().unwrap().contains("larger than"), "{found:?}");
    assert!(stderr(&out).contains("vramscope: no snapshot was written: "), "{}", stderr(&out));
    // A ring buffer of the newest events, without stacks.
    let (_, folder) = run(&format!("{FILL}while True: step()\n"), &["--max-entries", "4", "--stacks", "none"]);
    let found = pages(&folder);
    let snapshot = folder.path().join("caught").join(found[0]["snapshot"].as_str().unwrap());
    let opened = open(&snapshot);
    assert_eq!(opened.devices[0].events.len(), 4);
    assert_eq!(found[0]["history"]["stacks"], "none");
}

#[test]
fn a_snapshot_is_written_when_it_is_asked_for() {
    needs_python!();
    let job = Caught::at_work();
    let snap = || {
        Command::new(env!("CARGO_BIN_EXE_vramscope"))
            .args(["snap", "--json", &job.child.id().to_string()])
            .env("VRAMSCOPE_DIR", job.folder.path().join("private"))
            .output()
            .unwrap()
    };
    let begun = Instant::now();
    let mut paths = Vec::new();
    for _ in 0..2 {
        // By the PID of the waiting process. The program is its child.
        let out = snap();
        let answer: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{out:?}"));
        paths.push(answer["snapshots"][0]["path"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned());
    }
    assert!(paths[0] != paths[1] && begun.elapsed() > Duration::from_secs(1), "never two in one second");
    assert!(paths.iter().all(|p| Path::new(p).parent().unwrap().ends_with("caught")), "{paths:?}");
    job.kill(rustix::process::Signal::KILL);
    job.finish();
    let mut other = Command::new("sleep").arg("60").spawn().unwrap();
    let nobody = Command::new(env!("CARGO_BIN_EXE_vramscope")).args(["snap", &other.id().to_string()]).output().unwrap();
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(!nobody.status.success() && stderr(&nobody).contains("has no vramscope helper"), "{nobody:?}");
}
