//! A program in a container (with its own mount and PID namespaces), MIG instances, and WSL, where the driver reports less.
//! Skipped with a note when the system allows no namespaces.

#![cfg(all(target_os = "linux", feature = "live"))]
use std::path::Path;
use std::process::{Child, Command, Stdio};

use vramscope_live::live::agent::Request;
use vramscope_live::live::attach::{find_socket, survey};

use super::live_helper::{taken, until, watch};
use super::live_record::Machine;
use crate::shared::{open, wait_for};

const MIB: u64 = 1 << 20;

/// True when `unshare` works for us.
fn namespaces() -> bool {
    let tried = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--mount-proc", "mount", "-t", "tmpfs", "none", "/mnt"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let works = tried.is_ok_and(|s| s.success());
    if !works {
        crate::shared::not_run("this user gets no mount and process namespaces");
    }
    works
}

/// Ends the whole container with the test.
struct Container(Child);

impl Drop for Container {
    fn drop(&mut self) {
        // Its first process is a child of unshare. Everything inside ends with it.
        for pid in children(self.0.id()) {
            let _ = rustix::process::Pid::from_raw(pid as i32)
                .map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
        }
        let _ = self.0.wait();
    }
}

fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|p| p.parse().ok()).collect()
}

#[test]
fn a_helper_inside_a_container_is_reached_through_its_root() {
    if !namespaces() || Command::new("python3").arg("-V").output().is_err() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let private = folder.path().join("private");
    std::fs::create_dir(&private).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = ["tests/fakes", "crates/vramscope-live/assets", "crates/vramscope-live/assets/python"].map(|part| root.join(part));
    // A separate file system over the private folder. From outside, the socket is visible only through the container's root.
    let script =
        "mount -t tmpfs none \"$VRAMSCOPE_DIR\" && exec python3 -c 'import vramscope_agent, torch, time\ntime.sleep(60)'";
    let container = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", script])
        .env("VRAMSCOPE_DIR", &private)
        .env("PYTHONPATH", std::env::join_paths(path).unwrap())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let container = Container(container);
    let (pid, socket) =
        wait_for("the socket", || children(container.0.id()).first().and_then(|pid| Some((*pid, find_socket(*pid)?))));
    assert!(socket.starts_with(format!("/proc/{pid}/root")) && socket.ends_with("1.sock"), "{socket:?}");
    assert!(std::fs::read_dir(&private).unwrap().next().is_none(), "nothing of it is seen outside");
    let mut session = watch(pid);
    let sample = until(&mut session, "a split sample", |s| s.history().latest(0).map(|l| l.0).filter(|s| s.reserved.is_some()));
    assert_eq!((sample.reserved, sample.process), (Some(300 * MIB), Some(890 * MIB)), "told for the PID of this machine");
    session.request(pid, Request::Snapshot);
    let path = taken(&mut session, false);
    assert!(path.starts_with(format!("/proc/{pid}/root")), "{path:?}");
    assert_eq!(open(&path).devices[0].segments.len(), 1);
    // Without the helper's socket it cannot be attached to from outside. The sentence says what to do instead.
    let why = survey(pid).obstacle.unwrap();
    assert!(why.contains("container") || why.contains("without a debugger"), "{why}");
}

#[test]
fn mig_instances_are_devices_of_their_own() {
    let me = std::process::id();
    let Some(m) = Machine::new(&format!(
        "0.mig=1\n0.instances=2\n0.used={}\n0.err.proc=4\n0.err.util=3\n0.m0.used={}\n0.m0.proc={me}:{}\n0.m1.proc={me}:-1\n",
        900 * MIB,
        700 * MIB,
        690 * MIB
    )) else {
        return;
    };
    assert!(m.record(&["--seconds", "1.5"]).wait().unwrap().success());
    let devices = m.recorded();
    assert_eq!(devices.len(), 3, "the GPU and its two instances");
    let live = |i: usize| devices[i].live.as_deref().unwrap();
    let limits = |i: usize| live(i).limits.join(" ");
    assert!(limits(0).contains("divided (MIG)") && limits(0).contains("listed with its MIG instances"), "{}", limits(0));
    assert!(devices[1].name.as_deref().unwrap().contains("MIG") && live(1).uuid.starts_with("MIG-"), "{:?}", devices[1].name);
    assert!(live(1).facts.iter().any(|(k, v)| k == "part of" && *v == live(0).uuid), "{:?}", live(1).facts);
    let own = live(1).processes.iter().find(|p| p.pid == me).unwrap();
    assert_eq!(own.peak.map(|p| p.0), Some(690 * MIB));
    assert_eq!(devices[1].samples.last().unwrap().used, Some((700 + 64) * MIB));
    // The other instance lists the process without its bytes. That is reported and not taken for zero.
    assert!(live(2).processes[0].points[0].used.is_none() && limits(2).contains("does not tell the bytes"), "{}", limits(2));
}

#[test]
fn under_wsl_the_bytes_of_processes_are_not_told_and_the_reason_is() {
    if !namespaces() {
        return;
    }
    let Some(m) = Machine::new(&format!("0.used={}\n0.proc=1:-1\n", 300 * MIB)) else { return };
    let version = m.path("version");
    std::fs::write(&version, "Linux version 5.15.167.4-microsoft-standard-WSL2\n").unwrap();
    let out = m.path("s.vramscope");
    let record = m.vramscope(&["record", out.to_str().unwrap(), "--seconds", "1"]);
    // The same command with another /proc/version.
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "sh", "-c", "mount --bind \"$0\" /proc/version && exec \"$@\""]).arg(&version);
    inside.arg(record.get_program()).args(record.get_args());
    inside.envs(record.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let done = inside.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let devices = m.recorded();
    let live = devices[0].live.as_deref().unwrap();
    assert!(live.limits.iter().any(|l| l.contains("Windows manages the memory under WSL")), "{:?}", live.limits);
    assert_eq!((live.processes[0].points[0].used, devices[0].samples[0].others), (None, Some(0)));
    let bands = devices[0].samples[0].bands(devices[0].capacity.unwrap()).unwrap();
    assert_eq!(bands.unattributed, 300 * MIB, "what nobody can be told for stays visible");
}
