//! The real window, driven by pointer and key events under a virtual display, and checked by its title bar and its pixels.
//! Skipped when Xvfb, xdotool or ImageMagick are missing.

// Tests fail by panicking, also in their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "shared/mod.rs"]
mod shared;

use shared::{Guard, wait_for};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn has(program: &str) -> bool {
    Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status().is_ok_and(|s| s.success())
}

fn output(display: &str, program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).env("DISPLAY", display).stderr(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

struct Window {
    display: String,
    id: String,
    _app: Guard,
    _server: Guard,
}

static OPENED: AtomicU32 = AtomicU32::new(0);

impl Window {
    fn open(file: &str) -> Option<Self> {
        Self::start(&[file], Path::new("."), &[])
    }

    /// Starts the program in a folder, with additional environment variables, on its own display.
    fn start(args: &[&str], folder: &Path, environment: &[(&str, &str)]) -> Option<Self> {
        if let Some(missing) = ["Xvfb", "xdotool", "import", "xclip"].into_iter().find(|p| !has(p)) {
            crate::shared::not_run(&format!("{missing} is not installed"));
            return None;
        }
        // A separate display, because tests of other checkouts may run at the same time.
        let number = 200 + (std::process::id() * 8 + OPENED.fetch_add(1, Ordering::Relaxed)) % 20_000;
        let display = format!(":{number}");
        let server = Command::new("Xvfb")
            .args([&display, "-screen", "0", "1600x1000x24", "+extension", "GLX", "-noreset"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Guard(server);
        wait_for("the display", || Path::new(&format!("/tmp/.X11-unix/X{number}")).exists().then_some(()));
        let home = tempfile::tempdir().unwrap().keep();
        let app = Command::new(env!("CARGO_BIN_EXE_vramscope"))
            .args(args)
            .current_dir(folder)
            .env("DISPLAY", &display)
            .env("HOME", &home)
            .env("XDG_DATA_HOME", &home)
            .env("XDG_RUNTIME_DIR", &home)
            .envs(environment.iter().copied())
            .env_remove("WAYLAND_DISPLAY")
            .env_remove("WAYLAND_SOCKET")
            // Without a desktop there are no file dialogs.
            .env_remove("DBUS_SESSION_BUS_ADDRESS")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let app = Guard(app);
        let id = wait_for("the window", || {
            let found = output(&display, "xdotool", &["search", "--onlyvisible", "--name", "vramscope"]);
            found.lines().next().filter(|l| !l.is_empty()).map(str::to_owned)
        });
        Some(Window { display, id, _app: app, _server: server })
    }

    fn title(&self) -> String {
        output(&self.display, "xdotool", &["getwindowname", &self.id])
    }

    /// The event in the title bar.
    fn event(&self) -> Option<u32> {
        let title = self.title();
        let text = title.split(", event ").nth(1)?.split(' ').next()?;
        text.replace(',', "").parse().ok()
    }

    fn wait_for_event(&self, what: &str, wanted: impl Fn(u32) -> bool) -> u32 {
        wait_for(what, || self.event().filter(|&e| wanted(e)))
    }

    fn key(&self, key: &str) {
        output(&self.display, "xdotool", &["key", "--window", &self.id, key]);
    }

    fn press(&self, keys: &str) {
        output(&self.display, "xdotool", &["windowfocus", "--sync", &self.id]);
        output(&self.display, "xdotool", &["key", keys]);
        std::thread::sleep(Duration::from_millis(300));
    }

    fn click(&self, x: i32, y: i32) {
        output(&self.display, "xdotool", &["mousemove", &x.to_string(), &y.to_string()]);
        std::thread::sleep(Duration::from_millis(150));
        output(&self.display, "xdotool", &["click", "1"]);
    }

    /// The number of distinct colours in the window. A blank or half-drawn window has few.
    fn colours(&self) -> u32 {
        let picture =
            Command::new("import").args(["-window", "root", "-format", "%k", "info:"]).env("DISPLAY", &self.display).output();
        picture.ok().and_then(|o| String::from_utf8_lossy(&o.stdout).trim().parse().ok()).unwrap_or(0)
    }
}

#[test]
fn a_person_opens_an_oom_and_scrubs() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/sample_snapshots/kv_decode_oom.pickle.gz");
    let Some(window) = Window::open(file) else { return };

    // It opens at the out-of-memory event, which is the last event.
    window.wait_for_event("the recording", |e| e == 27_908);
    assert!(window.title().starts_with("kv_decode_oom.pickle.gz"), "{}", window.title());
    wait_for("the pictures", || (window.colours() > 200).then_some(()));

    // Keys step by single events and jump to the ends.
    output(&window.display, "xdotool", &["windowfocus", "--sync", &window.id]);
    window.key("comma");
    window.wait_for_event("one event back", |e| e == 27_907);
    window.key("period");
    window.wait_for_event("one event on", |e| e == 27_908);
    window.key("Home");
    window.wait_for_event("the first event", |e| e == 0);

    // A click in the middle of the timeline's plot sets the cursor there.
    window.click(830, 380);
    let clicked = window.wait_for_event("the clicked instant", |e| (5_000..24_000).contains(&e));
    // Zooming with the wheel keeps the cursor. O returns to the failure.
    output(&window.display, "xdotool", &["click", "--repeat", "5", "4"]);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(window.event(), Some(clicked));
    window.key("o");
    window.wait_for_event("the out-of-memory event", |e| e == 27_908);
}

const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/sample_snapshots");

#[test]
fn text_goes_to_other_programs_and_comes_from_them() {
    let Some(window) = Window::open(&format!("{SAMPLES}/serve_oom.pickle.gz")) else { return };
    window.wait_for_event("the recording", |e| e == 32_143);
    // On a busy machine a key may arrive too early, so it is pressed again.
    wait_for("the stack on the clipboard", || {
        window.press("o");
        window.press("ctrl+shift+c");
        let text = output(&window.display, "xclip", &["-o", "-selection", "clipboard"]);
        text.contains(".py:").then_some(())
    });
    // The other direction: another program puts a path on the clipboard, and Ctrl+V pastes it.
    let mut other = Command::new("xclip")
        .args(["-i", "-selection", "clipboard"])
        .env("DISPLAY", &window.display)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    other.stdin.take().unwrap().write_all(format!("{SAMPLES}/leak.pickle").as_bytes()).unwrap();
    other.wait().unwrap();
    window.press("ctrl+shift+o");
    window.press("ctrl+v");
    window.press("Return");
    wait_for("the recording whose path was pasted", || window.title().starts_with("leak.pickle").then_some(()));
}

#[test]
fn without_a_desktop_files_are_listed_and_chosen_by_keys() {
    let Some(window) = Window::start(&[], Path::new(SAMPLES), &[]) else { return };
    wait_for("the welcome page", || (window.colours() > 200).then_some(()));
    window.press("ctrl+o");
    // The desktop's dialog is tried first, but there is none.
    std::thread::sleep(Duration::from_secs(2));
    output(&window.display, "xdotool", &["type", "--delay", "60", "lea"]);
    window.press("Tab");
    window.press("Return");
    wait_for("the recording", || window.title().starts_with("leak.pickle").then_some(()));
}

/// A Wayland compositor without a screen, with the program inside. As root it runs as another user, because the compositor
/// refuses root.
#[cfg(target_os = "linux")]
struct Wayland {
    folder: tempfile::TempDir,
    display: String,
    control: String,
    _keyboard: Guard,
    _app: Guard,
    _sway: Guard,
}

#[cfg(target_os = "linux")]
impl Wayland {
    fn open(file: &str) -> Option<Self> {
        let needed = ["sway", "swaymsg", "wl-copy", "wl-paste", "wtype", "unshare"];
        if let Some(missing) = needed.into_iter().find(|p| !has(p)) {
            crate::shared::not_run(&format!("{missing} is not installed"));
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config"), "output * resolution 1600x1000\ndefault_border none\n").unwrap();
        let command = |program: &str| {
            let mut command = Command::new(program);
            command.env("XDG_RUNTIME_DIR", folder.path()).env("HOME", folder.path()).env("XDG_DATA_HOME", folder.path());
            command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY").env_remove("WAYLAND_SOCKET");
            command.env_remove("DBUS_SESSION_BUS_ADDRESS").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let is_root = rustix::process::geteuid().is_root();
        let mut sway = command(if is_root { "unshare" } else { "sway" });
        sway.args(if is_root { &["--user", "--map-user=1000", "sway"][..] } else { &[] })
            .arg("-c")
            .arg(folder.path().join("config"));
        sway.env("WLR_BACKENDS", "headless").env("WLR_LIBINPUT_NO_DEVICES", "1").env("WLR_RENDERER", "pixman");
        let mut sway = Guard(sway.spawn().unwrap());
        let named = |start: &str, is_wanted: fn(&str) -> bool| {
            let names = std::fs::read_dir(folder.path()).unwrap().flatten().map(|e| e.file_name().to_string_lossy().into_owned());
            names.into_iter().find(|name| name.starts_with(start) && is_wanted(name))
        };
        let found = wait_for("the compositor", || {
            let both = named("wayland-", |name| !name.ends_with(".lock")).zip(named("sway-ipc", |_| true));
            both.map(Some).or_else(|| sway.0.try_wait().unwrap().map(|_| None))
        });
        let Some((display, control)) = found else {
            crate::shared::not_run("sway does not start here");
            return None;
        };
        let inside = |program: &str| {
            let mut command = command(program);
            command.env("WAYLAND_DISPLAY", &display);
            command
        };
        let app = Guard(inside(env!("CARGO_BIN_EXE_vramscope")).arg(file).spawn().unwrap());
        // A keyboard that stays connected, because without one no window gets the focus.
        let keyboard = Guard(inside("wtype").args(["-s", "600000"]).spawn().unwrap());
        let control = folder.path().join(control).display().to_string();
        Some(Wayland { display, control, _keyboard: keyboard, _app: app, _sway: sway, folder })
    }

    fn run(&self, program: &str, args: &[&str]) -> String {
        let out = Command::new(program)
            .args(args)
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .env("WAYLAND_DISPLAY", &self.display)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    fn titles(&self) -> String {
        self.run("swaymsg", &["-s", &self.control, "-r", "-t", "get_tree"])
    }

    fn press(&self, modifiers: &[&str], key: &str) {
        let mut args: Vec<&str> = modifiers.iter().flat_map(|m| ["-M", *m]).collect();
        args.extend(["-s", "100", "-k", key, "-s", "300"]);
        self.run("wtype", &args);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn text_goes_to_other_programs_of_wayland_and_comes_from_them() {
    let Some(window) = Wayland::open(&format!("{SAMPLES}/serve_oom.pickle.gz")) else { return };
    wait_for("the recording", || window.titles().contains("event 32,143").then_some(()));
    window.press(&[], "o");
    wait_for("the stack on the clipboard", || {
        window.press(&["ctrl", "shift"], "c");
        window.run("wl-paste", &["--no-newline"]).contains(".py:").then_some(())
    });
    window.run("wl-copy", &[&format!("{SAMPLES}/leak.pickle")]);
    window.press(&["ctrl", "shift"], "o");
    window.press(&["ctrl"], "v");
    window.press(&[], "Return");
    wait_for("the recording whose path was pasted", || window.titles().contains("\"leak.pickle").then_some(()));
}

/// A recording whose stack names a file to open, and a second file whose name is a command for an editor, in this order.
fn recording_with_frames(folder: &Path, file: &Path) -> bool {
    let script = r#"
import pickle, sys
A = 1 << 30
names = [sys.argv[2], '+call system("touch OWNED")|"/train.py', sys.argv[2] + '$(touch OWNED).py']
frames = [{'name': 'forward', 'filename': name, 'line': 2} for name in names]
event = lambda action, at, size, t: {'action': action, 'addr': at, 'size': size, 'stream': 0, 'time_us': t, 'frames': frames}
block = {'address': A, 'size': 2 << 20, 'requested_size': 2 << 20, 'state': 'active_allocated', 'frames': frames}
segment = {'device': 0, 'address': A, 'total_size': 2 << 20, 'stream': 0, 'segment_type': 'small', 'blocks': [block]}
trace = [event('segment_alloc', A, 2 << 20, 0), event('alloc', A, 2 << 20, 1), {**event('oom', 0, 1 << 30, 2), 'device_free': 5}]
pickle.dump({'segments': [segment], 'device_traces': [trace]}, open(sys.argv[1], 'wb'), 4)
"#;
    let written = folder.join("frames.pickle");
    has("python3") && Command::new("python3").args(["-c", script]).arg(written).arg(file).status().is_ok_and(|s| s.success())
}

#[cfg(unix)]
#[test]
fn a_click_on_a_source_line_gives_the_editor_one_path_and_never_a_command() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let (source, seen, editor) = (root.join("my model.py"), root.join("seen"), root.join("editor"));
    std::fs::write(&source, "import torch\nx = torch.zeros(1)\n").unwrap();
    std::fs::write(&editor, format!("#!/bin/sh\nprintf '<%s>' \"$@\" >> '{}'\n", seen.display())).unwrap();
    std::fs::set_permissions(&editor, std::fs::Permissions::from_mode(0o755)).unwrap();
    if !recording_with_frames(&root, &source) {
        crate::shared::not_run("python3 is not installed");
        return;
    }
    let Some(window) = Window::start(&["frames.pickle"], &root, &[("EDITOR", &editor.display().to_string()), ("VISUAL", "")])
    else {
        return;
    };
    window.wait_for_event("the recording", |e| e == 2);
    window.press("ctrl+2");
    wait_for("the pictures", || (window.colours() > 100).then_some(()));
    let given = || std::fs::read_to_string(&seen).unwrap_or_default();
    // Clicks every frame of the stack in the autopsy from below. The last one is the one that may be opened.
    for y in (300..900).rev().step_by(20) {
        window.click(280, y);
        std::thread::sleep(Duration::from_millis(700));
    }
    let wanted = format!("<+2><{}>", source.display());
    wait_for("the editor", || (!given().is_empty()).then_some(()));
    std::thread::sleep(Duration::from_secs(1));
    // The line appears in the verdict and in the stack, and both clicks open the same.
    assert_eq!(given().replace(&wanted, ""), "", "{}", given());
    assert!(!root.join("OWNED").exists(), "a name was run");
}
