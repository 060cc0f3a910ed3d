//! Facts about processes from `/proc`: name, command line, user, container.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use vramscope_core::formats::session::ProcessFacts;

/// Looks processes up. Remembers their start times, so that a reused PID is noticed.
#[derive(Debug)]
pub struct ProcessLookup {
    proc: PathBuf,
    /// User names by user ID, read once.
    users: HashMap<u32, String>,
    known: HashMap<u32, u64>,
    /// Resident bytes as last reported.
    told: HashMap<u32, u64>,
    in_container: bool,
}

impl Default for ProcessLookup {
    fn default() -> Self {
        Self::new(Path::new("/proc"), Path::new("/etc/passwd"))
    }
}

impl ProcessLookup {
    /// Looks in the folder `proc`, with user names from the file `passwd`.
    pub fn new(proc: &Path, passwd: &Path) -> Self {
        let text = std::fs::read_to_string(passwd).unwrap_or_default();
        let users = text.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            Some((fields.nth(1)?.parse().ok()?, name.to_owned()))
        });
        // docker and podman leave these files inside their containers.
        let in_container = Path::new("/.dockerenv").exists() || Path::new("/run/.containerenv").exists();
        ProcessLookup { proc: proc.to_owned(), users: users.collect(), known: HashMap::new(), told: HashMap::new(), in_container }
    }

    /// A process's start time in clock ticks since boot, and its facts if it is new or the PID was reused. Reads one file if known.
    pub fn look(&mut self, pid: u32) -> (u64, Option<ProcessFacts>) {
        // A process that died may be listed for a while; it is still the known one.
        let started = self.started(pid).or_else(|| self.known.get(&pid).copied()).unwrap_or(0);
        if self.known.insert(pid, started) == Some(started) {
            return (started, None);
        }
        (started, Some(self.facts(pid, started)))
    }

    /// Field 22 of `/proc/PID/stat`, counted after the name in parentheses, which may contain anything.
    fn started(&self, pid: u32) -> Option<u64> {
        let stat = std::fs::read_to_string(self.proc.join(pid.to_string()).join("stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
    }

    /// Resident bytes of a process if they changed by a MiB or more since the last report. Reads one small file.
    pub fn resident(&mut self, pid: u32) -> Option<u64> {
        let status = std::fs::read(self.proc.join(pid.to_string()).join("status")).ok()?;
        let status = String::from_utf8_lossy(&status);
        let kib = status.lines().find_map(|l| l.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"))?;
        let bytes = kib.trim().parse::<u64>().ok()?.saturating_mul(1024);
        let told = self.told.get(&pid);
        if told.is_some_and(|t| t.abs_diff(bytes) < 1 << 20) {
            return None;
        }
        self.told.insert(pid, bytes);
        Some(bytes)
    }

    fn facts(&self, pid: u32, started: u64) -> ProcessFacts {
        let folder = self.proc.join(pid.to_string());
        let mut facts = ProcessFacts { pid, started, ..ProcessFacts::default() };
        if !folder.exists() {
            facts.name = format!("PID {pid}");
            facts.note = Some(if self.in_container {
                "The driver names processes by the host's PIDs, which this container does not see. Run it with --pid=host."
                    .to_owned()
            } else {
                "The process is gone, or belongs to another PID namespace; the driver still lists it.".to_owned()
            });
            return facts;
        }
        let read = |name: &str| std::fs::read(folder.join(name)).ok();
        facts.name = read("comm").map_or_else(|| format!("PID {pid}"), |b| String::from_utf8_lossy(&b).trim().to_owned());
        match read("cmdline") {
            Some(bytes) if !bytes.is_empty() => {
                let words: Vec<String> =
                    bytes.split(|b| *b == 0).filter(|w| !w.is_empty()).map(|w| String::from_utf8_lossy(w).into_owned()).collect();
                facts.command = short_command(&words);
            }
            _ => facts.command.clone_from(&facts.name),
        }
        let status = read("status").map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default();
        let uid = status.lines().find_map(|l| l.strip_prefix("Uid:")?.split_whitespace().next()?.parse::<u32>().ok());
        facts.user = uid.map_or_else(String::new, |uid| self.users.get(&uid).cloned().unwrap_or_else(|| uid.to_string()));
        facts.container = read("cgroup").and_then(|b| container(&String::from_utf8_lossy(&b)));
        if status.lines().any(|l| l.starts_with("State:") && l.contains('Z')) {
            facts.note =
                Some("The process ended and its parent has not collected it; its memory may still be listed.".to_owned());
        }
        facts
    }
}

/// A short command line: the program without its folder, then the arguments.
fn short_command(words: &[String]) -> String {
    let mut out = String::new();
    for (i, word) in words.iter().enumerate() {
        let word = if i == 0 { word.rsplit('/').next().unwrap_or(word) } else { word };
        if i > 0 {
            out.push(' ');
        }
        out.push_str(word);
        if out.len() > 400 {
            out.truncate(out.floor_char_boundary(400));
            out.push('…');
            break;
        }
    }
    out.replace(|c: char| c.is_control(), " ")
}

/// Container of a `/proc/PID/cgroup`: docker, podman, containerd, Kubernetes, LXC, Slurm. IDs have 12 characters, as in Docker.
pub fn container(cgroup: &str) -> Option<String> {
    let is_id = |s: &str| s.len() == 64 && s.bytes().all(|b| b.is_ascii_hexdigit());
    for line in cgroup.lines() {
        let path = line.rsplit(':').next()?;
        for part in path.split('/').rev() {
            let bare = part.strip_suffix(".scope").unwrap_or(part);
            let (kind, id) = match bare.rsplit_once('-').or_else(|| bare.rsplit_once(':')) {
                Some((kind, id)) if is_id(id) => (kind, id),
                _ if is_id(bare) => ("", bare),
                _ => {
                    if let Some(job) = bare.strip_prefix("job_").filter(|j| j.bytes().all(|b| b.is_ascii_digit())) {
                        return Some(format!("slurm job {job}"));
                    }
                    if let Some(name) = bare.strip_prefix("lxc.payload.") {
                        return Some(format!("lxc {name}"));
                    }
                    continue;
                }
            };
            let kind = match kind {
                k if path.contains("kubepods") || k.contains("containerd") => "pod",
                k if k.contains("libpod") || path.contains("libpod") => "podman",
                k if k.contains("docker") || path.contains("docker") => "docker",
                _ => "container",
            };
            return Some(format!("{kind} {}", &id[..12]));
        }
    }
    None
}

/// True under WSL, where the driver lists processes without bytes.
pub fn is_wsl() -> bool {
    Path::new("/dev/dxg").exists()
        || std::fs::read_to_string("/proc/version").is_ok_and(|v| v.to_ascii_lowercase().contains("microsoft"))
}

/// The machine's host name; empty where `/proc` does not tell it.
pub fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map(|s| s.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_named_by_their_control_group() {
        let id = "4f".repeat(32);
        for (text, want) in [
            (format!("0::/system.slice/docker-{id}.scope"), Some("docker 4f4f4f4f4f4f")),
            (format!("12:memory:/docker/{id}\n0::/"), Some("docker 4f4f4f4f4f4f")),
            (format!("0::/machine.slice/libpod-{id}.scope/container"), Some("podman 4f4f4f4f4f4f")),
            (format!("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope"), Some("pod 4f4f4f4f4f4f")),
            ("0::/system.slice/slurmstepd.scope/job_4711/step_0".to_owned(), Some("slurm job 4711")),
            ("0::/lxc.payload.web".to_owned(), Some("lxc web")),
            ("0::/user.slice/user-1000.slice/session-2.scope".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(container(&text).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn a_pid_given_to_another_process_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let pid = folder.path().join("77");
        std::fs::create_dir(&pid).unwrap();
        let passwd = folder.path().join("passwd");
        std::fs::write(&passwd, "root:x:0:0::/:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n").unwrap();
        let stat = |name: &str, started: u64| format!("77 ({name}) S {}{started} 0 0", "1 ".repeat(18));
        std::fs::write(pid.join("stat"), stat("a) (b", 500)).unwrap();
        std::fs::write(pid.join("comm"), "python3\n").unwrap();
        std::fs::write(pid.join("cmdline"), b"/usr/bin/python3\0train.py\0--lr\x001e-3\0").unwrap();
        std::fs::write(pid.join("status"), "Name:\tpython3\nState:\tR\nUid:\t1000\t1000\n").unwrap();
        let mut lookup = ProcessLookup::new(folder.path(), &passwd);
        let (started, facts) = lookup.look(77);
        let facts = facts.unwrap();
        assert_eq!((started, facts.command.as_str(), facts.user.as_str()), (500, "python3 train.py --lr 1e-3", "ada"));
        assert_eq!(lookup.look(77), (500, None));
        std::fs::write(pid.join("stat"), stat("python3", 900)).unwrap();
        assert!(matches!(lookup.look(77), (900, Some(_))));
        std::fs::remove_dir_all(&pid).unwrap();
        assert_eq!(lookup.look(77), (900, None), "dead and still listed");
        let (started, facts) = lookup.look(78);
        assert_eq!(started, 0);
        assert!(facts.unwrap().note.is_some());
    }
}
