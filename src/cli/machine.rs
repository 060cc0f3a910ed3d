//! What this machine has that vramscope can use, one sentence per item, and what to do about missing items.

use std::io::{Read as _, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use vramscope_core::units::{Bytes, counted};
use vramscope_live::live::source::{GpuError, GpuSource};

struct Look {
    what: &'static str,
    is_well: bool,
    sentence: String,
    /// What to do; `None` when nothing is wrong or nothing can be done.
    todo: Option<String>,
}

impl Look {
    fn well(what: &'static str, sentence: impl Into<String>) -> Self {
        Look { what, is_well: true, sentence: sentence.into(), todo: None }
    }

    fn lacks(what: &'static str, sentence: impl Into<String>, todo: impl Into<String>) -> Self {
        let todo = todo.into();
        Look { what, is_well: false, sentence: sentence.into(), todo: (!todo.is_empty()).then_some(todo) }
    }
}

/// How long to wait for Python to answer.
const FOR_PYTHON: Duration = Duration::from_secs(20);
/// Finds PyTorch's version without importing it, because an import takes seconds and may use the card.
const ASK_PYTHON: &str = "import sys, importlib.util as u, importlib.metadata as m\n\
    def version(name):\n try: return m.version(name)\n except Exception: return 'of unknown version'\n\
    print('%d.%d.%d' % sys.version_info[:3])\n\
    for name in ('torch', 'vramscope'): print(version(name) if u.find_spec(name) else '')\n";

pub(super) fn run(python: &str, as_json: bool, out: &mut dyn Write) -> Result<(), String> {
    let mut looks = vec![driver()];
    looks.extend(gpus());
    looks.extend([display(), notifications()]);
    looks.extend(pythons(python));
    looks.push(helpers());
    if as_json {
        let checks: Vec<_> =
            looks.iter().map(|l| json!({"what": l.what, "ok": l.is_well, "sentence": l.sentence, "todo": l.todo})).collect();
        return super::print_json(out, &json!({ "machine": checks }));
    }
    let width = looks.iter().map(|l| l.what.len()).max().unwrap_or(0);
    let mut text = String::new();
    for look in &looks {
        let mark = if look.is_well { "✓" } else { "–" };
        text += &format!("{mark} {:width$}  {}\n", look.what, look.sentence);
        if let Some(todo) = &look.todo {
            text += &format!("  {:width$}  {todo}\n", "");
        }
    }
    super::print(out, &(text + "\nOpening and explaining files needs none of this.\n"))
}

/// NVIDIA's driver, according to its management library (NVML) and CUDA.
fn driver() -> Look {
    let mut source = match vramscope_live::live::open() {
        Ok(source) => source,
        Err(error) => {
            let todo = match error {
                GpuError::NotBuilt => "Build it with the feature live, or install the whole program.",
                _ => {
                    "Only watching GPUs and probing this card need it. To see another machine's: ssh HOST vramscope record - | vramscope -"
                }
            };
            return Look::lacks("driver", error.to_string(), todo);
        }
    };
    let facts = source.driver();
    let version = facts.driver.unwrap_or_else(|| "of unknown version".to_owned());
    let cuda = facts.cuda.map_or_else(String::new, |cuda| format!(", for CUDA up to {cuda}"));
    match vramscope_live::probe::has_cuda() {
        Some(false) => Look::lacks(
            "driver",
            format!(
                "NVIDIA {version}{cuda}; the library of CUDA (libcuda.so.1) is not there, so nothing can compute on the card."
            ),
            "Install the driver's compute part; in a container ask for the capability compute (NVIDIA_DRIVER_CAPABILITIES).",
        ),
        _ => Look::well("driver", format!("NVIDIA {version}{cuda}.")),
    }
}

fn gpus() -> Vec<Look> {
    let Ok(mut source) = vramscope_live::live::open() else { return Vec::new() };
    match source.devices() {
        Ok(devices) => devices.into_iter().enumerate().map(|(place, facts)| gpu(source.as_mut(), place, facts)).collect(),
        Err(error) => vec![Look::lacks("GPU", error.to_string(), "")],
    }
}

fn gpu(source: &mut dyn GpuSource, place: usize, facts: Result<vramscope_live::live::source::GpuFacts, GpuError>) -> Look {
    match facts.and_then(|facts| Ok((facts, source.memory(place)?))) {
        Ok((facts, memory)) => {
            let shared = if facts.shares_memory { "; it shares the machine's memory, and this is all of it" } else { "" };
            Look::well(
                "GPU",
                format!("{place}, {}: {} of {} in use{shared}.", facts.name, Bytes(memory.used), Bytes(memory.total)),
            )
        }
        Err(error) => Look::lacks("GPU", format!("{place}: {error}"), ""),
    }
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

fn has_display() -> bool {
    !cfg!(all(unix, not(target_os = "macos"))) || ["WAYLAND_DISPLAY", "WAYLAND_SOCKET", "DISPLAY"].into_iter().any(is_set)
}

fn display() -> Look {
    let command = "All text commands work without; for pictures: vramscope screenshot FILE OUT.png";
    if !cfg!(feature = "gui") {
        return Look::lacks(
            "window",
            "This build has no window (it was built without the feature gui).",
            "All text commands work.",
        );
    }
    if !has_display() {
        return Look::lacks("window", "There is no display: neither WAYLAND_DISPLAY nor DISPLAY is set.", command);
    }
    let which = if is_set("DISPLAY") && !is_set("WAYLAND_DISPLAY") { "X11" } else { "a display" };
    Look::well("window", format!("There is {which}, with its clipboard."))
}

fn notifications() -> Look {
    let has_bus = is_set("DBUS_SESSION_BUS_ADDRESS")
        || std::env::var_os("XDG_RUNTIME_DIR").is_some_and(|folder| std::path::Path::new(&folder).join("bus").exists());
    if !has_display() || has_bus {
        return Look::well(
            "alarms",
            if has_display() { "Alarms of a watch reach the desktop." } else { "Alarms of a watch are printed." },
        );
    }
    let todo = "Start vramscope inside the desktop session to see them outside the window.";
    Look::lacks("alarms", "There is no session bus, so alarms of a watch show in the window only.", todo)
}

/// Python, its PyTorch, and vramscope's own package.
fn pythons(python: &str) -> Vec<Look> {
    let choose = "Name the one of your program: vramscope doctor --python PATH";
    let answer = match ask(python) {
        Ok(answer) => answer,
        Err(why) => return vec![Look::lacks("Python", format!("{python}: {why}."), choose)],
    };
    let mut lines = answer.lines().map(str::trim);
    let (version, torch, package) =
        (lines.next().unwrap_or_default(), lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let numbers: Vec<u32> = version.split('.').filter_map(|n| n.parse().ok()).collect();
    let can_attach = numbers >= vec![3, 14];
    let attach =
        if can_attach { "; a running program can be entered" } else { "; to look into a program, start it with vramscope run" };
    let mut looks = vec![Look::well("Python", format!("{python} is {version}{attach}."))];
    looks.push(match torch {
        "" => Look::lacks("PyTorch", format!("{python} has no PyTorch."), choose),
        torch => Look::well("PyTorch", format!("{torch}.")),
    });
    looks.push(match package {
        "" => Look::lacks(
            "import vramscope",
            format!("{python} has no package vramscope; programs under vramscope run have it all the same."),
            "pip install vramscope, in the environment of your program",
        ),
        package => Look::well("import vramscope", format!("{package}.")),
    });
    looks
}

fn ask(python: &str) -> Result<String, String> {
    let started =
        Command::new(python).args(["-c", ASK_PYTHON]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = started.map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => "there is no such program".to_owned(),
        _ => format!("it cannot be started: {}", vramscope_core::formats::why(&e)),
    })?;
    let since = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => break,
            Ok(Some(status)) => return Err(format!("it does not work ({status})")),
            Ok(None) if since.elapsed() < FOR_PYTHON => std::thread::sleep(Duration::from_millis(10)),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it does not answer within {}", counted(FOR_PYTHON.as_secs(), "second", "seconds")));
            }
        }
    }
    let mut answer = String::new();
    let read = child.stdout.take().map(|out| out.take(1 << 16).read_to_string(&mut answer));
    if read.is_some_and(|r| r.is_ok()) { Ok(answer) } else { Err("its answer cannot be read".to_owned()) }
}

/// The folder of the helpers' sockets, and whether a running program can be attached to.
fn helpers() -> Look {
    if !cfg!(target_os = "linux") {
        return Look::lacks("programs", "Programs can be looked into on Linux only.", "");
    }
    match std::fs::read_to_string(Path::new("/proc/sys/kernel/yama/ptrace_scope")) {
        Ok(scope) if scope.trim() != "0" => Look::lacks(
            "programs",
            format!(
                "Running programs cannot be entered by their number (ptrace_scope is {}); vramscope run needs no permission.",
                scope.trim()
            ),
            "sudo sysctl kernel.yama.ptrace_scope=0, until the next boot",
        ),
        _ => Look::well("programs", "Your running programs may be looked into."),
    }
}
