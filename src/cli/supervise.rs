//! What `vramscope run --at-oom DIR` does beside the program: it waits, passes signals on, says at the end what was caught, and ends as the
//! program did. The catching itself happens inside the program (`assets/python/vramscope/_catch.py` of `vramscope-live`).

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};

use serde_json::Value;

use super::terminal;
use vramscope_core::units::counted;

/// The program, for the handlers of signals; 0 before it runs.
static CHILD: AtomicI32 = AtomicI32::new(0);
/// A signal that came before the program ran; 0 for none.
static EARLY: AtomicI32 = AtomicI32::new(0);
/// Signals that the parent may send: they are passed on to the program.
const PASSED_ON: [i32; 6] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// Makes the folder, so that a name that can not be one fails before the training, not after it.
pub fn prepare(folder: &Path) -> Result<PathBuf, String> {
    let failed = |e: io::Error| {
        let why = vramscope_core::formats::why_not_written(&e);
        format!("{}: snapshots cannot be written here: {why}; name another folder after --at-oom", folder.display())
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    let folder = folder.canonicalize().map_err(failed)?;
    // Root may write also where the mode forbids it, so a file is created to find out.
    let probe = folder.join(format!(".vramscope-{}.part", std::process::id()));
    std::fs::File::create(&probe).and_then(|_| std::fs::remove_file(&probe)).map_err(failed)?;
    Ok(folder)
}

/// Tells the pages of this run from those of others in the same folder.
pub fn name_of_run() -> String {
    format!("{}-{}", std::process::id(), vramscope_live::live::wall_clock_us())
}

/// The file that the first process of a run makes which uses CUDA: without a snapshot nothing else tells whether one did.
pub fn mark(run: &str) -> PathBuf {
    std::env::temp_dir().join(format!(".vramscope-{run}.used"))
}

/// Runs the program to its end and ends as it did. Returns only when it cannot be started.
pub fn run(mut command: Command, folder: &Path, run: &str) -> io::Error {
    pass_signals_on();
    #[cfg(target_os = "linux")]
    // SAFETY: between fork and exec only `prctl` is called, which takes no lock and no memory.
    unsafe {
        // The program must not go on without us, with a GPU in its hands: it gets the chance to write a snapshot.
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
        // SAFETY: kill touches no memory of ours; the child has not been waited for, so the number is still its own.
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
        // SAFETY: back to what the system does; Ctrl+C ends what is left to say.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let has_used_cuda = std::fs::remove_file(mark(run)).is_ok();
    if let Some(sentence) = sentence(folder, run, status, has_used_cuda) {
        terminal::say(&sentence);
    }
    end_as(status)
}

/// True if the parent set the signal to be ignored, as nohup does; then the program ignores it too.
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
            // What a terminal sends (Ctrl+C), the program gets from it too.
            if info.si_code > 0 {
                return;
            }
            match CHILD.load(Ordering::SeqCst) {
                0 => EARLY.store(signal, Ordering::SeqCst),
                // SAFETY: kill may be called in a handler and touches no memory.
                child => unsafe {
                    libc::kill(child, signal);
                },
            }
        };
        // SAFETY: the handler uses atomics and kill alone, which a handler may.
        let _ = unsafe { signal_hook_registry::register_sigaction(signal, handler) };
    }
}

/// Ends this process as the program ended: by its exit code or its signal.
fn end_as(status: ExitStatus) -> ! {
    if let Some(signal) = status.signal() {
        // SAFETY: plain calls; the core, if there is to be one, is the program's and not ours.
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

/// What was caught, in one line; `None` if nothing was and the program ended well.
fn sentence(folder: &Path, run: &str, status: ExitStatus, has_used_cuda: bool) -> Option<String> {
    let pages = pages(folder, run);
    let named = |page: &Value| page["snapshot"].as_str().map(|name| folder.join(name));
    let snapshots: Vec<PathBuf> = pages.iter().filter_map(named).collect();
    let Some(newest) = snapshots.last() else {
        if let Some(why) = pages.iter().rev().find_map(|page| page["not_kept"].as_str()) {
            return Some(format!("no snapshot was written: {why}"));
        }
        return (!status.success()).then(|| format!("no snapshot was written: {}", why_none(status, has_used_cuda)));
    };
    let found = super::findings::first_sentence(newest).unwrap_or_else(|why| why);
    Some(match snapshots.len() {
        1 => format!("1 snapshot: {}: {found}", newest.display()),
        n => format!(
            "{} in {}, the newest {}: {found}",
            counted(n as u64, "snapshot", "snapshots"),
            folder.display(),
            newest.display()
        ),
    })
}

/// Why a program that failed left no snapshot.
fn why_none(status: ExitStatus, has_used_cuda: bool) -> String {
    let before = if has_used_cuda { "" } else { ", and no process of it had used CUDA until then" };
    match (status.signal(), status.code()) {
        (Some(libc::SIGKILL), _) => {
            let who =
                "the system does that where the machine's memory runs out (dmesg tells), a scheduler where a limit is passed";
            format!("the program was killed (SIGKILL), which leaves no time for one{before}; {who}")
        }
        (Some(signal), _) => format!("signal {signal} ended the program at once{before}"),
        (None, Some(code)) if has_used_cuda => {
            format!("the program ended with exit code {code}; memory did not run out, and no error was left uncaught")
        }
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
        // By the snapshot: a page is written again when the error is known.
        let file = page["snapshot"].as_str().map_or(entry.path(), |name| folder.join(name));
        let time = std::fs::metadata(file).and_then(|m| m.modified()).ok();
        found.push((time, page));
    }
    found.sort_by_key(|(time, _)| *time);
    found.into_iter().map(|(_, page)| page).collect()
}
