//! The ways to attach to a running process, as a ladder from the least to the most information, with the requirements of each.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::agent::PACKAGE;
use vramscope_core::formats::export::unnamed::Unnamed;

/// The oldest Python in which another process can start a script (PEP 768).
const REMOTE_EXEC: (u32, u32) = (3, 14);
/// How long to wait: the script runs at the next safe point of the main thread, which may be in a long call.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is known about a process before attaching to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// PID in this machine's or container's own `/proc`.
    pub pid: u32,
    /// The socket of a helper that is listening already.
    pub socket: Option<PathBuf>,
    /// The Python version; `None` when it is not Python or cannot be inspected.
    pub python: Option<(u32, u32)>,
    /// Why a script cannot be started in it; `None` when it can.
    pub obstacle: Option<String>,
    /// Its command line, to suggest how to start it with the helper.
    pub command: Vec<String>,
}

impl Survey {
    /// True when the program may be Python, by its version or else by its command line.
    pub fn is_python(&self) -> bool {
        self.socket.is_some() || self.python.is_some() || looks_like_python(self.command.iter().map(String::as_str))
    }
}

/// True when the words of a command line look like those of a Python program. A program may have changed its command line, so
/// false is no proof.
pub fn looks_like_python<'a>(command: impl Iterator<Item = &'a str>) -> bool {
    let looks_so = |w: &str| w.rsplit('/').next().is_some_and(|n| n.starts_with("python")) || w.ends_with(".py");
    command.take(2).any(looks_so)
}

/// Why nothing is known about a process that the driver lists.
const NOT_HERE: &str = "This machine shows no process of this number here: it has ended, or it runs in a container or on a host \
    whose processes cannot be seen from here. Start it through vramscope run on its own side, and watch there.";

/// One way to attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rung {
    /// What this way provides, as a title.
    pub title: &'static str,
    /// `active`, `ready`, or the requirement.
    pub state: String,
    /// One or two sentences.
    pub text: String,
    /// Lines to copy, each with its purpose.
    pub lines: Vec<(String, String)>,
    /// True when a button can start it now.
    pub is_ready: bool,
}

/// Inspects a process by reading a few small files of `/proc`.
pub fn survey(pid: u32) -> Survey {
    let folder = Path::new("/proc").join(pid.to_string());
    let words = std::fs::read(folder.join("cmdline")).unwrap_or_default();
    let command: Vec<String> =
        words.split(|b| *b == 0).filter(|w| !w.is_empty()).map(|w| String::from_utf8_lossy(w).into_owned()).collect();
    let python = python_version(&folder);
    let obstacle = if folder.exists() { obstacle(&folder, python, &command) } else { Some(NOT_HERE.to_owned()) };
    // The helper of another user is not ours to use.
    let is_ours = owner(pid) == Some(rustix::process::geteuid().as_raw());
    Survey { pid, socket: is_ours.then(|| find_socket(pid)).flatten(), python, obstacle, command }
}

/// The ways to attach to a process, simplest first. `has_helper` means that its figures already arrive.
pub fn ladder(survey: &Survey, has_helper: bool) -> [Rung; 3] {
    let lowest = Rung {
        title: "Device view",
        state: if has_helper { String::new() } else { "active".to_owned() },
        text: "Bytes of the whole process from NVML. Needs nothing.".to_owned(),
        lines: Vec::new(),
        is_ready: false,
    };
    let script = survey.command.iter().position(|w| w.ends_with(".py") || w == "-m").unwrap_or(0);
    let rest = survey.command.get(script..).unwrap_or_default().join(" ");
    let rest = if rest.is_empty() { "train.py".to_owned() } else { rest };
    let middle = Rung {
        title: "Allocator view",
        state: match (has_helper, &survey.socket) {
            (true, _) => "active".to_owned(),
            (false, Some(_)) => "ready".to_owned(),
            (false, None) => "one line to add".to_owned(),
        },
        text: match (has_helper, &survey.socket) {
            (true, _) => "Allocated and cached split out, peaks, retries and a snapshot on demand.".to_owned(),
            (false, Some(_)) => {
                "The helper listens in this process: allocated and cached split out, a snapshot on demand.".to_owned()
            }
            (false, None) => {
                "Allocated and cached split out, peaks, retries and a snapshot on demand. Add to the program and start it again:"
                    .to_owned()
            }
        },
        lines: if has_helper || survey.socket.is_some() {
            Vec::new()
        } else {
            vec![
                (String::new(), "import vramscope_agent".to_owned()),
                ("the file, once:".to_owned(), "vramscope agent > vramscope_agent.py".to_owned()),
                ("or start it through vramscope:".to_owned(), format!("vramscope run {rest}")),
            ]
        },
        is_ready: !has_helper && survey.socket.is_some(),
    };
    // Promises nothing before the version is known.
    let is_new = survey.python.is_some_and(|v| v >= REMOTE_EXEC);
    let newest = Rung {
        title: "Attach without a restart",
        state: "Python 3.14 or newer".to_owned(),
        text: match &survey.obstacle {
            Some(why) => why.clone(),
            None if !is_new => "Which Python runs in this process is not known yet.".to_owned(),
            None => "Python starts the helper in the running program at its next safe point.".to_owned(),
        },
        lines: Vec::new(),
        is_ready: is_new && survey.obstacle.is_none() && survey.socket.is_none() && !has_helper,
    };
    [lowest, middle, newest]
}

/// The user ID that a process runs as.
pub fn owner(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).ok()?;
    status.lines().find_map(|l| l.strip_prefix("Uid:")?.split_whitespace().nth(1)?.parse().ok())
}

/// The socket of a helper in a process. For a container it is reached through `/proc/PID/root`.
pub fn find_socket(pid: u32) -> Option<PathBuf> {
    let folder = Path::new("/proc").join(pid.to_string());
    let status = std::fs::read_to_string(folder.join("status")).ok()?;
    // The last number is the PID in the innermost namespace, which is the one the process itself sees.
    let inner =
        status.lines().find_map(|l| l.strip_prefix("NSpid:")?.split_whitespace().next_back()?.parse::<u32>().ok()).unwrap_or(pid);
    let uid = owner(pid)?;
    let environ = std::fs::read(folder.join("environ")).unwrap_or_default();
    let variable = |name: &str| {
        let words = environ.split(|b| *b == 0).map(String::from_utf8_lossy);
        words.filter_map(|w| w.strip_prefix(name)?.strip_prefix('=').map(str::to_owned)).find(|v| !v.is_empty())
    };
    let name = format!("{inner}.sock");
    let places = [
        variable("VRAMSCOPE_DIR").map(PathBuf::from),
        variable("XDG_RUNTIME_DIR").map(|d| Path::new(&d).join("vramscope")),
        Some(PathBuf::from(format!("/tmp/vramscope-{uid}"))),
        Some(PathBuf::from(format!("/run/user/{uid}/vramscope"))),
    ];
    let roots = [folder.join("root"), PathBuf::from("/")];
    for place in places.iter().flatten() {
        // Outside a container the direct path comes first: it needs no permission to inspect the process, and it is shorter (a
        // socket path may have at most 107 bytes).
        for root in if inner == pid { [&roots[1], &roots[0]] } else { [&roots[0], &roots[1]] } {
            let path = root.join(place.strip_prefix("/").unwrap_or(place)).join(&name);
            let is_ours = std::fs::symlink_metadata(&path).is_ok_and(|m| is_socket(&m) && m.uid() == uid);
            if is_ours && path.as_os_str().len() < 108 {
                return Some(path);
            }
        }
    }
    None
}

fn is_socket(meta: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    meta.file_type().is_socket()
}

/// `(3, 12)` for `/usr/bin/python3.12`, or from the name of the mapped library.
fn python_version(folder: &Path) -> Option<(u32, u32)> {
    let exe = std::fs::read_link(folder.join("exe")).ok()?;
    let by_name = exe.file_name().and_then(|n| version_in(&n.to_string_lossy(), "python"));
    by_name.or_else(|| {
        let maps = std::fs::read_to_string(folder.join("maps")).ok()?;
        maps.lines().find_map(|l| version_in(l, "libpython"))
    })
}

/// The two version numbers right after `prefix`.
fn version_in(text: &str, prefix: &str) -> Option<(u32, u32)> {
    let rest = &text[text.find(prefix)? + prefix.len()..];
    let (major, rest) = rest.split_once('.')?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Why no script can be started in the process.
fn obstacle(folder: &Path, python: Option<(u32, u32)>, command: &[String]) -> Option<String> {
    // Processes of other users hide what they are, so this is checked first.
    let pid = folder.file_name().and_then(|n| n.to_str()?.parse().ok());
    if pid.and_then(owner).is_some_and(|uid| uid != rustix::process::geteuid().as_raw()) {
        return Some(
            "This process belongs to another user: start vramscope as that user, or add the line to the program.".to_owned(),
        );
    }
    let Some((major, minor)) = python else {
        return Some("This process is no Python that vramscope recognises.".to_owned());
    };
    if (major, minor) < REMOTE_EXEC {
        return Some(format!(
            "This process runs Python {major}.{minor}, which cannot be entered from outside without a debugger."
        ));
    }
    // The executable is started as Python below, which would start a program with embedded Python once more.
    let exe = std::fs::read_link(folder.join("exe")).unwrap_or_default();
    if !exe.file_name().is_some_and(|n| n.to_string_lossy().starts_with("python")) {
        return Some("This program has Python built in; only a plain Python can be entered from outside.".to_owned());
    }
    // In another mount namespace, neither the Python libraries nor our script are at the expected paths.
    let namespace = |of: &Path| std::fs::read_link(of.join("ns/mnt")).ok();
    if namespace(folder) != namespace(Path::new("/proc/self")) {
        return Some(
            "This process runs in a container, where it cannot be entered from outside: add the line to the program, or start it \
             in there with vramscope run."
                .to_owned(),
        );
    }
    let environ = std::fs::read(folder.join("environ")).unwrap_or_default();
    let set = |name: &str| environ.split(|b| *b == 0).find_map(|w| w.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    let is_off = command.windows(2).any(|w| w[0] == "-X" && w[1] == "disable-remote-debug")
        || command.iter().any(|w| w == "-Xdisable-remote-debug");
    if set("PYTHON_DISABLE_REMOTE_DEBUG").is_some_and(|v| !v.is_empty()) || is_off {
        return Some(DISABLED.to_owned());
    }
    if set("VRAMSCOPE_HELPER") == Some(b"off") {
        return Some("This process was started with VRAMSCOPE_HELPER=off, which keeps the helper out.".to_owned());
    }
    if std::fs::File::open(folder.join("mem")).is_err() {
        return Some(trace_sentence(std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok().as_deref()));
    }
    None
}

/// The owner of the program switched it off.
const DISABLED: &str = "This process was started with remote debugging switched off (PYTHON_DISABLE_REMOTE_DEBUG, or \
    -X disable-remote-debug), so nothing can be started in it.";

/// Explains Python's error message. Matches the wording of CPython 3.14's `Python/remote_debug.h` and `_remote_debugging`.
fn entry_sentence(pid: u32, message: &str) -> String {
    let last = message.trim().lines().last().unwrap_or("it failed").trim();
    let has = |words: &str| message.contains(words);
    if has("Remote debugging is not enabled") {
        return DISABLED.to_owned();
    }
    if has("PermissionError") || has("not permitted") || has("Permission denied") {
        return trace_sentence(std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok().as_deref());
    }
    if has("version") && (has("mismatch") || has("different") || has("incompatible") || has("Can't")) {
        return format!(
            "Process {pid} runs another version of Python than the one on disk: it was upgraded meanwhile. Start the program again."
        );
    }
    if !Path::new("/proc").join(pid.to_string()).exists() || has("ProcessLookupError") {
        return format!("Process {pid} has ended.");
    }
    if has("has no attribute 'remote_exec'") || has("not supported") {
        return format!("The Python of process {pid} was built without remote debugging.");
    }
    format!("Process {pid} cannot be entered: {last}.")
}

/// What to do when the system forbids one process to inspect another.
fn trace_sentence(scope: Option<&str>) -> String {
    match scope.map(str::trim) {
        Some("0") | None => "The system does not let this user look into that process: it belongs to another user.".to_owned(),
        Some("1") => "The system lets only parents look into a process (ptrace_scope is 1). Start the job with \
            \"setpriv --ptracer any python …\", or run \"sudo sysctl kernel.yama.ptrace_scope=0\" until the next boot."
            .to_owned(),
        Some(scope) => format!("Only the administrator may look into processes here (ptrace_scope is {scope})."),
    }
}

/// Starts the helper in a running Python 3.14, using the same Python executable, and waits until it listens.
///
/// # Errors
/// One sentence about the obstacle.
pub fn inject(pid: u32) -> Result<PathBuf, String> {
    inject_within(pid, PATIENCE)
}

/// Like [`inject`], but waits at most `patience` for the program to reach a safe point.
///
/// # Errors
/// One sentence about the obstacle.
pub fn inject_within(pid: u32, patience: Duration) -> Result<PathBuf, String> {
    let survey = survey(pid);
    if let Some(socket) = survey.socket {
        return Ok(socket);
    }
    if let Some(why) = survey.obstacle {
        return Err(why);
    }
    let folder = install_helper()?;
    let script = folder.join(format!("attach-{pid}.py"));
    // JSON strings are valid Python strings; quoting keeps a folder name with a quote from becoming code.
    let helper = serde_json::to_string(&folder.join("vramscope/_agent.py").to_string_lossy()).unwrap_or_default();
    write_private(&script, &attach_script(&helper))?;
    let code =
        format!("import sys; sys.remote_exec({pid}, {})", serde_json::to_string(&script.to_string_lossy()).unwrap_or_default());
    let folder = Path::new("/proc").join(pid.to_string());
    let mut python = Command::new(folder.join("exe"));
    // Isolated and without site packages, so that no code of the job runs a second time.
    python.args(["-I", "-S", "-c", &code]).stdin(Stdio::null());
    // A Python that finds its library through this variable needs it here too.
    let environ = std::fs::read(folder.join("environ")).unwrap_or_default();
    let path = environ.split(|b| *b == 0).find_map(|w| w.strip_prefix(b"LD_LIBRARY_PATH="));
    match path {
        Some(path) => python.env("LD_LIBRARY_PATH", std::ffi::OsStr::from_bytes(path)),
        None => python.env_remove("LD_LIBRARY_PATH"),
    };
    let done = python.output();
    let failure = match done {
        Err(e) => Some(format!("The Python of process {pid} cannot be started: {e}.")),
        Ok(output) if !output.status.success() => Some(entry_sentence(pid, &String::from_utf8_lossy(&output.stderr))),
        Ok(_) => None,
    };
    if let Some(sentence) = failure {
        let _ = std::fs::remove_file(script);
        return Err(sentence);
    }
    // The target reads the script when it reaches a safe point, maybe after the wait. So the file is removed only on success.
    let socket = wait_for_socket(pid, patience)?;
    let _ = std::fs::remove_file(script);
    Ok(socket)
}

fn wait_for_socket(pid: u32, patience: Duration) -> Result<PathBuf, String> {
    let since = Instant::now();
    while since.elapsed() < patience {
        if let Some(socket) = find_socket(pid) {
            return Ok(socket);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(format!(
        "Process {pid} did not reach a point where Python runs a script within {} s: its main thread sits in a long call. The helper \
         starts as soon as it returns.",
        patience.as_secs()
    ))
}

/// The script that runs inside the target. It leaves no names behind and does nothing when the helper is already loaded.
fn attach_script(helper: &str) -> String {
    format!(
        "def _vramscope():\n    import importlib.util, sys\n    if 'vramscope_agent' in sys.modules:\n        \
         return sys.modules['vramscope_agent'].start()\n    \
         spec = importlib.util.spec_from_file_location('vramscope_agent', {helper})\n    \
         module = importlib.util.module_from_spec(spec)\n    sys.modules['vramscope_agent'] = module\n    \
         spec.loader.exec_module(module)\ntry:\n    _vramscope()\nexcept BaseException:\n    pass\nfinally:\n    del _vramscope\n"
    )
}

/// The user's private folder. It holds the helper's files, and its sockets if the job has the same environment.
fn private_folder() -> Result<PathBuf, String> {
    let uid = rustix::process::getuid().as_raw();
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let runtime = || set("XDG_RUNTIME_DIR").filter(|d| d.is_dir()).map(|d| d.join("vramscope"));
    let folder = set("VRAMSCOPE_DIR").or_else(runtime).unwrap_or_else(|| PathBuf::from(format!("/tmp/vramscope-{uid}")));
    let failed = |e: std::io::Error| format!("{}: cannot be made: {e}", folder.display());
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
    let meta = std::fs::symlink_metadata(&folder).map_err(failed)?;
    if !meta.is_dir() || meta.uid() != uid || meta.mode() & 0o077 != 0 {
        return Err(format!(
            "{} is not a folder that only this user can enter; remove it, or name another one in VRAMSCOPE_DIR",
            folder.display()
        ));
    }
    Ok(folder)
}

/// Writes the Python package and its starter into the private folder. Returns the folder to put on Python's path.
pub fn install_helper() -> Result<PathBuf, String> {
    let folder = private_folder()?.join(concat!("helper-", env!("CARGO_PKG_VERSION")));
    let failed = |e: std::io::Error| format!("{}: cannot be made: {e}", folder.display());
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder.join("vramscope")).map_err(failed)?;
    for (name, text) in PACKAGE {
        write_private(&folder.join(name), text)?;
    }
    Ok(folder)
}

/// Writes a file that only this user can read, atomically.
fn write_private(path: &Path, text: &str) -> Result<(), String> {
    if std::fs::read(path).is_ok_and(|old| old == text.as_bytes()) {
        return Ok(());
    }
    let write = || {
        let mut new = Unnamed::beside(path)?;
        new.file().set_permissions(std::fs::Permissions::from_mode(0o600))?;
        new.file().write_all(text.as_bytes())?;
        new.replace(path)
    };
    write().map_err(|e| format!("{}: cannot be written: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_python_package_is_put_into_the_private_folder() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/python/vramscope");
        let mut there: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".py"))
            .map(|name| format!("vramscope/{name}"))
            .collect();
        there.sort();
        let listed: Vec<&str> = PACKAGE.iter().map(|(name, _)| *name).filter(|name| *name != "sitecustomize.py").collect();
        assert_eq!(listed, there);
    }

    #[test]
    fn the_version_is_read_from_names() {
        assert_eq!(version_in("python3.12", "python"), Some((3, 12)));
        assert_eq!(version_in("7f00 r-xp /opt/lib/libpython3.14.so.1.0", "libpython"), Some((3, 14)));
        assert_eq!(version_in("python3", "python"), None);
        assert_eq!(version_in("bash", "python"), None);
    }

    #[test]
    fn rungs_that_do_not_apply_stay_and_say_why() {
        let s = Survey {
            pid: 9,
            python: Some((3, 12)),
            obstacle: obstacle(Path::new("/nonexistent"), Some((3, 12)), &[]),
            command: ["python", "live_run.py", "other"].map(str::to_owned).to_vec(),
            ..Survey::default()
        };
        let [device, allocator, attach] = ladder(&s, false);
        assert_eq!((device.state.as_str(), allocator.state.as_str()), ("active", "one line to add"));
        assert!(allocator.lines.iter().any(|l| l.1 == "vramscope run live_run.py other"), "{:?}", allocator.lines);
        assert!(!attach.is_ready && attach.text.contains("Python 3.12"), "{}", attach.text);
        let ready = Survey { socket: Some("/x.sock".into()), ..s.clone() };
        assert!(ladder(&ready, false)[1].is_ready && !ladder(&ready, true)[1].is_ready);
        let new = Survey { python: Some((3, 14)), obstacle: None, ..s };
        assert!(ladder(&new, false)[2].is_ready);
        let unknown = &ladder(&Survey { pid: 9, ..Survey::default() }, false)[2];
        assert!(!unknown.is_ready && unknown.text.contains("not known yet"), "{}", unknown.text);
        let shell = Survey { command: vec!["/usr/bin/bash".to_owned(), "job.sh".to_owned()], ..Survey::default() };
        assert!(!shell.is_python());
    }

    #[test]
    fn what_python_says_becomes_one_sentence() {
        let me = std::process::id();
        let said = |text: &str| entry_sentence(me, text);
        assert_eq!(said("Traceback\nRuntimeError: Remote debugging is not enabled in the remote process"), DISABLED);
        assert!(said("PermissionError: [Errno 13] Permission denied: '/proc/1/maps'").contains("another user"));
        assert!(said("RuntimeError: Remote debugging offsets have a version mismatch").contains("upgraded meanwhile"));
        assert!(entry_sentence(4_294_967, "RuntimeError: PyRuntime address lookup failed").contains("has ended"));
        let odd = said("Traceback\n  File\nRuntimeError: something new");
        assert!(odd.ends_with("cannot be entered: RuntimeError: something new.") && odd.lines().count() == 1, "{odd}");
    }

    #[test]
    fn the_advice_fits_what_the_system_forbids() {
        assert!(trace_sentence(Some("1\n")).contains("ptrace_scope is 1"));
        assert!(trace_sentence(Some("3")).contains("administrator"));
        assert!(trace_sentence(None).contains("another user"));
    }
}
