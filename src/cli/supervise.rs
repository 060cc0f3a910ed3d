//! The part of `vramscope run --at-oom DIR` outside the program: waits for it, forwards signals, reports at the end what was
//! recorded, and exits as the program did. The recording happens inside the program (`assets/python/vramscope/_catch.py` of
//! `vramscope-live`).

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};

use serde_json::Value;

use super::terminal;
use vramscope_core::units::counted;

/// PID of the program, for signal handlers; 0 before it runs.
static CHILD: AtomicI32 = AtomicI32::new(0);
/// A signal that arrived before the program ran; 0 for none.
static EARLY: AtomicI32 = AtomicI32::new(0);
/// Signals that are forwarded to the program.
const PASSED_ON: [i32; 6] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// Creates the folder, so that an invalid path fails before the training and not after it.
pub fn prepare(folder: &Path) -> Result<PathBuf, String> {
    let failed = |e: io::Error| {
        let why = vramscope_core::formats::why_not_written(&e);
        format!("{}: snapshots cannot be written here: {why}; name another folder after --at-oom", folder.display())
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    let folder = folder.canonicalize().map_err(failed)?;
    // Permissions alone do not decide whether root can write, so this creates a file to find out.
    let probe = folder.join(format!(".vramscope-{}.part", std::process::id()));
    std::fs::File::create(&probe).and_then(|_| std::fs::remove_file(&probe)).map_err(failed)?;
    Ok(folder)
}

/// An id that distinguishes the pages of this run from others in the folder.
pub fn name_of_run() -> String {
    format!("{}-{}", std::process::id(), vramscope_live::live::wall_clock_us())
}

/// A file that the first process of a run creates when it uses CUDA. Without a snapshot, nothing else shows whether CUDA was
/// used.
pub fn mark(run: &str) -> PathBuf {
    std::env::temp_dir().join(format!(".vramscope-{run}.used"))
}

/// A file beside [`mark`] that the helper creates when it starts in a Python process of the run.
fn mark_of_helper(run: &str) -> PathBuf {
    let mut path = mark(run).into_os_string();
    path.push(".in");
    path.into()
}

/// How far the run came, as far as the helper told.
#[derive(Clone, Copy)]
struct Reached {
    /// The helper started in a Python process.
    helper: bool,
    /// A process used CUDA.
    cuda: bool,
}

/// Runs the program and exits as it did. Returns only when it cannot be started.
pub fn run(mut command: Command, folder: &Path, run: &str) -> io::Error {
    pass_signals_on();
    #[cfg(target_os = "linux")]
    // SAFETY: between fork and exec only `prctl` is called, which neither locks nor allocates.
    unsafe {
        // When this process dies, the program must not keep a GPU busy. SIGTERM lets it write a snapshot first.
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            Ok(())
        });
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return error,
    };
    let pid = i32::try_from(child.id()).unwrap_or(0);
    CHILD.store(pid, Ordering::SeqCst);
    let early = EARLY.swap(0, Ordering::SeqCst);
    if early != 0 && pid > 0 {
        // SAFETY: kill touches no memory of this process. The child was not waited for yet, so its PID is still valid.
        unsafe { libc::kill(pid, early) };
    }
    let status = loop {
        match child.wait() {
            Ok(status) => break status,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error,
        }
    };
    CHILD.store(0, Ordering::SeqCst);
    for signal in PASSED_ON.into_iter().filter(|s| !is_ignored(*s)) {
        // SAFETY: restores the default handler. From here on Ctrl+C may end the remaining output.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let was_there = |mark: PathBuf| std::fs::remove_file(mark).is_ok();
    let reached = Reached { helper: was_there(mark_of_helper(run)), cuda: was_there(mark(run)) };
    if let Some(sentence) = sentence(folder, run, status, reached) {
        terminal::say(&sentence);
    }
    end_as(status)
}

/// True when the parent ignores the signal, as nohup does. The program then ignores it too.
fn is_ignored(signal: i32) -> bool {
    // SAFETY: all-zero is a valid `sigaction`, and the call writes only into it.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}

fn pass_signals_on() {
    for signal in PASSED_ON.into_iter().filter(|s| !is_ignored(*s)) {
        let handler = move |info: &libc::siginfo_t| {
            // The terminal sends its signals (Ctrl+C) to the program as well.
            if info.si_code > 0 {
                return;
            }
            match CHILD.load(Ordering::SeqCst) {
                0 => EARLY.store(signal, Ordering::SeqCst),
                // SAFETY: kill is async-signal-safe and touches no memory.
                child => unsafe {
                    libc::kill(child, signal);
                },
            }
        };
        // SAFETY: the handler only uses atomics and kill, which are async-signal-safe.
        let _ = unsafe { signal_hook_registry::register_sigaction(signal, handler) };
    }
}

/// Ends this process like the program: with its exit code or its signal.
fn end_as(status: ExitStatus) -> ! {
    if let Some(signal) = status.signal() {
        // SAFETY: plain system calls. A core dump would be the program's, so this process writes none.
        unsafe {
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
        std::process::exit(128 + signal);
    }
    std::process::exit(status.code().unwrap_or(1));
}

/// One line on what was recorded; `None` when nothing was and the program succeeded. Of several snapshots it tells that of the
/// first failure.
fn sentence(folder: &Path, run: &str, status: ExitStatus, reached: Reached) -> Option<String> {
    let pages = pages(folder, run);
    let written: Vec<(&Value, PathBuf)> =
        pages.iter().filter_map(|page| Some((page, folder.join(page["snapshot"].as_str()?)))).collect();
    let Some((_, newest)) = written.last() else {
        if let Some(why) = pages.iter().rev().find_map(|page| page["not_kept"].as_str()) {
            return Some(format!("no snapshot was written: {why}"));
        }
        return (!status.success()).then(|| format!("no snapshot was written: {}", why_none(status, reached)));
    };
    // What came after memory ran out mostly follows from it: other ranks get SIGTERM, the program fails in its own way.
    let of = |causes: &[&str]| written.iter().find(|(page, _)| page["why"].as_str().is_some_and(|why| causes.contains(&why)));
    let first = of(&["oom"]).or_else(|| of(&["exception", "sigterm", "sigint"])).map(|(_, path)| path);
    let (which, told) = first.map_or(("the newest", newest), |path| ("the first failure", path));
    let found = super::findings::first_sentence(told).unwrap_or_else(|why| why);
    Some(match written.len() {
        1 => format!("1 snapshot: {}: {found}", told.display()),
        n => {
            format!("{} in {}, {which} {}: {found}", counted(n as u64, "snapshot", "snapshots"), folder.display(), told.display())
        }
    })
}

/// Why a failed program left no snapshot.
fn why_none(status: ExitStatus, reached: Reached) -> String {
    let before = match reached {
        Reached { cuda: true, .. } => "",
        Reached { helper: true, .. } => ", and no process of it had used CUDA until then",
        Reached { .. } => ", and the helper was in no process of it",
    };
    match (status.signal(), status.code()) {
        (Some(libc::SIGKILL), _) => {
            let who =
                "the system does that where the machine's memory runs out (dmesg tells), a scheduler where a limit is passed";
            format!("the program was killed (SIGKILL), which leaves no time for one{before}; {who}")
        }
        (Some(signal), _) => format!("signal {signal} ended the program at once{before}"),
        (None, Some(code)) if reached.cuda => {
            format!("the program ended with exit code {code}; memory did not run out, and no error was left uncaught")
        }
        (None, _) if !reached.helper => "the helper could not get into the program, so whether memory ran out is unknown: python -I, -E and \
            -S keep it out, and a program that is not Python has no place for it; import vramscope and call vramscope.on_oom in the \
            program instead"
            .to_owned(),
        (None, _) => "no process of the program had used CUDA when it ended".to_owned(),
    }
}

/// The pages of this run, oldest first.
fn pages(folder: &Path, run: &str) -> Vec<Value> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().ends_with(".about.json") {
            continue;
        }
        let page = std::fs::read(entry.path()).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        let Some(page) = page.filter(|page| page["run"] == run) else { continue };
        // Sorted by the snapshot's time, because a page is rewritten when the error becomes known.
        let file = page["snapshot"].as_str().map_or(entry.path(), |name| folder.join(name));
        let time = std::fs::metadata(file).and_then(|m| m.modified()).ok();
        found.push((time, page));
    }
    found.sort_by_key(|(time, _)| *time);
    found.into_iter().map(|(_, page)| page).collect()
}
