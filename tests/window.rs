//! The real window, driven by real pointer and key events under a virtual display, checked by what its title bar says and by
//! its pixels. Skipped with a message where Xvfb, xdotool or ImageMagick are missing.

// A panic is how a test says no, also in its helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A child that does not outlive the test.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn has(program: &str) -> bool {
    Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status().is_ok_and(|s| s.success())
}

fn output(display: &str, program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).env("DISPLAY", display).stderr(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

/// Waits until `probe` gives something.
fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        if let Some(found) = probe() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("waited a minute for {what}");
}

struct Window {
    display: String,
    id: String,
    _app: Guard,
    _server: Guard,
}

impl Window {
    fn open(file: &str) -> Option<Self> {
        if let Some(missing) = ["Xvfb", "xdotool", "import"].into_iter().find(|p| !has(p)) {
            println!("skipped: {missing} is not installed");
            return None;
        }
        // A display of our own: tests of other checkouts may run beside this one.
        let number = 200 + std::process::id() % 2000;
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
            .arg(file)
            .env("DISPLAY", &display)
            .env("HOME", &home)
            .env("XDG_DATA_HOME", &home)
            .env("XDG_RUNTIME_DIR", &home)
            .env_remove("WAYLAND_DISPLAY")
            .env_remove("WAYLAND_SOCKET")
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

    /// The event the title bar names.
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

    fn click(&self, x: i32, y: i32) {
        output(&self.display, "xdotool", &["mousemove", &x.to_string(), &y.to_string()]);
        std::thread::sleep(Duration::from_millis(150));
        output(&self.display, "xdotool", &["click", "1"]);
    }

    /// How many distinct colours the window shows: a blank or half-drawn one has few.
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

    // It opens at the out-of-memory event, which is the last one.
    window.wait_for_event("the recording", |e| e == 27_908);
    assert!(window.title().starts_with("kv_decode_oom.pickle.gz"), "{}", window.title());
    wait_for("the pictures", || (window.colours() > 200).then_some(()));

    // Keys step event by event, and go to the ends.
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
    // Zooming about the pointer with the wheel keeps the cursor; O goes back to the failure.
    output(&window.display, "xdotool", &["click", "--repeat", "5", "4"]);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(window.event(), Some(clicked));
    window.key("o");
    window.wait_for_event("the out-of-memory event", |e| e == 27_908);
}
