//! Takes snapshots of a running program now: of a process and its descendants.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::mpsc::{channel, sync_channel};
use std::time::{Duration, Instant};

use super::agent::{Agent, Manner, News, Outlets, Request};
use super::attach::find_socket;

/// Time limit; a snapshot with C++ stacks takes minutes.
const PATIENCE: Duration = Duration::from_secs(300);

/// A process, and the path of its snapshot or one sentence why there is none.
type Snapped = (u32, Result<PathBuf, String>);

/// Asks a process and its descendants that have the helper for a snapshot. All write at the same time. Processes without GPU
/// memory are left out unless there are no others. Takes as long as the programs write.
///
/// # Errors
/// One sentence when no helper is found.
pub fn snapshots(pid: u32) -> Result<Vec<Snapped>, String> {
    let asked: Vec<u32> = family(pid).into_iter().filter(|pid| find_socket(*pid).is_some()).collect();
    if asked.is_empty() {
        return Err(format!(
            "process {pid} has no vramscope helper, nor has one below it: start the program with vramscope run, or see vramscope agent"
        ));
    }
    let threads: Vec<_> = asked.into_iter().map(|pid| std::thread::spawn(move || (pid, snapshot(pid)))).collect();
    let mut all: Vec<Snapped> = threads.into_iter().filter_map(|t| t.join().ok()).collect();
    let uses_none = |s: &Snapped| matches!(&s.1, Err(e) if e.contains("not imported torch") || e.contains("not used CUDA"));
    if !all.iter().all(uses_none) {
        all.retain(|s| !uses_none(s));
    }
    Ok(all)
}

/// Asks one process and waits for its snapshot.
fn snapshot(pid: u32) -> Result<PathBuf, String> {
    let (records, figures) = sync_channel(1024);
    let (news, heard) = channel();
    let outlets = Outlets { numbers: Default::default(), records, news };
    let agent = Agent::follow(pid, Manner { rate: 0.2, other_users: false }, outlets)
        .map_err(|e| format!("no thread can be started: {e}"))?;
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        // The figures are not needed, but the helper's thread would wait for space in the channel.
        while figures.try_recv().is_ok() {}
        match heard.recv_timeout(Duration::from_millis(50)) {
            Ok(News::Answers { .. }) => {
                agent.request(Request::Snapshot);
            }
            Ok(News::Snapshot { path, is_oom: false, .. }) => return Ok(path),
            Ok(News::Failed { sentence, .. }) => return Err(sentence),
            Ok(News::Gone { .. }) => return Err(format!("Process {pid} ended.")),
            Ok(_) | Err(_) => {}
        }
    }
    Err(format!("Process {pid} wrote no snapshot within {} s.", PATIENCE.as_secs()))
}

/// A process and its descendants.
fn family(pid: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name before it may contain anything, including parentheses.
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        if let Some(parent) = parent {
            children.entry(parent).or_default().push(number);
        }
    }
    let mut all = vec![pid];
    let mut seen = HashSet::from([pid]);
    let mut at = 0;
    while let Some(parent) = all.get(at) {
        let below = children.get(parent).into_iter().flatten().copied().filter(|c| seen.insert(*c));
        all.extend(below.collect::<Vec<_>>());
        at += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_and_its_children_are_one_family() {
        let mut child = std::process::Command::new("sleep").arg("20").spawn().unwrap();
        let family = family(std::process::id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(family[0] == std::process::id() && family.contains(&child.id()), "{family:?}");
    }
}
