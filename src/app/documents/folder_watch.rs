//! Watches a folder for new recordings (trainers that write a snapshot when they run out of memory) and for logs that gain an
//! out-of-memory error.
//!
//! A thread lists the folder and its subfolders (trainers write one per step) once a second, including the first time. Unlike
//! change notifications this works on every file system, network ones included. Listing a thousand names takes less than a
//! millisecond on a local one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, SystemTime};

use super::logs::Logs;
use crate::app::jobs::{Jobs, caught};
use crate::app::state::Excerpt;
use vramscope_core::formats::folder::{is_log_name, is_recording_name};
use vramscope_core::formats::{Seen, look, why};

/// Time between two listings.
const EVERY: Duration = Duration::from_secs(1);

/// How many subfolders are listed, those changed last first. A run of ten thousand steps writes into the last few.
const MOST_SUBFOLDERS: usize = 256;

/// How many listings to wait for the end of a file that does not grow: a minute.
const PATIENCE: u32 = 60;

pub(in crate::app) type Stamp = (u64, Option<SystemTime>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The first listing is done. Files that appear from now on are new.
    Begun,
    /// The folder cannot be listed and is not watched, in one sentence.
    Failed(String),
    /// A complete recording appeared or was rewritten.
    Recording(PathBuf),
    /// A recording that was still incomplete after a minute.
    CutShort(PathBuf),
    /// PyTorch's counters, which belong to a recording.
    Counters(PathBuf),
    Message {
        path: PathBuf,
        /// The part of the log that holds the error.
        log: Excerpt,
    },
    /// The folder cannot be listed any more, in one sentence.
    Trouble(String),
    /// The folder can be listed again, in one sentence.
    Back(String),
}

/// A watched folder. Dropping it ends the watch.
pub struct FolderWatch {
    pub folder: PathBuf,
    found: Receiver<News>,
    stop: Arc<AtomicBool>,
}

impl Drop for FolderWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

impl FolderWatch {
    /// Watches a folder from its first listing on. Files that are already there are not new.
    pub fn start(folder: PathBuf, jobs: &Jobs) -> Result<Self, String> {
        let (sender, found) = sync_channel(64);
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, path, wake) = (Arc::clone(&stop), folder.clone(), jobs.clone());
        let watch = move || {
            let tell = |news| {
                let is_wanted = sender.send(news).is_ok();
                wake.wake();
                is_wanted
            };
            if let Err(said) = caught(|| watch(&path, &stopped, &tell)) {
                tell(News::Failed(format!("{} is not watched any more: an error of vramscope ({said})", path.display())));
            }
        };
        std::thread::Builder::new()
            .name("watch".to_owned())
            .spawn(watch)
            .map_err(|e| format!("{}: no thread to watch it can be started: {e}", folder.display()))?;
        Ok(FolderWatch { folder, found, stop })
    }

    pub fn news(&self) -> impl Iterator<Item = News> {
        self.found.try_iter()
    }
}

/// Lists the folder repeatedly until `stopped` is set or `tell` returns false.
fn watch(path: &Path, stopped: &AtomicBool, tell: &impl Fn(News) -> bool) {
    let (mut known, mut logs) = match list(path) {
        Ok((recordings, texts)) if tell(News::Begun) => (Known::new(recordings), Logs::new(texts)),
        Ok(_) => return,
        Err(sentence) => {
            tell(News::Failed(sentence));
            return;
        }
    };
    let mut was_lost = false;
    while !stopped.load(Ordering::Acquire) {
        std::thread::sleep(EVERY);
        let answers = match list(path) {
            Ok((recordings, texts)) => {
                let mut news = known.compare(recordings, |path| look(path).unwrap_or(Seen::Other));
                news.extend(logs.compare(texts));
                if was_lost {
                    news.push(News::Back(format!("{} is there again and is watched.", path.display())));
                }
                was_lost = false;
                news
            }
            // Reported once, because a network folder may come back.
            Err(sentence) if !was_lost => {
                was_lost = true;
                vec![News::Trouble(format!("{sentence}; it is looked for every second"))]
            }
            Err(_) => Vec::new(),
        };
        if !answers.into_iter().all(tell) {
            return;
        }
    }
}

fn why_of_folder(error: &std::io::Error) -> String {
    if error.kind() == std::io::ErrorKind::NotFound { "there is no such folder".to_owned() } else { why(error) }
}

type Listing = HashMap<PathBuf, Stamp>;

/// Lists the possible recordings and counters, and the possible logs, in a folder and its subfolders.
fn list(folder: &Path) -> Result<(Listing, Listing), String> {
    let failed = |e: std::io::Error| format!("{}: the folder cannot be watched: {}", folder.display(), why_of_folder(&e));
    let (mut recordings, mut logs) = (HashMap::new(), HashMap::new());
    let mut below = list_one(folder, &mut recordings, &mut logs).map_err(failed)?;
    below.sort_by(|a, b| b.cmp(a));
    for (_, inside) in below.into_iter().take(MOST_SUBFOLDERS) {
        // A subfolder that vanished or is not readable does not stop the watch.
        if let Err(error) = list_one(&inside, &mut recordings, &mut logs) {
            tracing::debug!("{}: not watched: {error}", inside.display());
        }
    }
    Ok((recordings, logs))
}

/// Adds the files of one folder. Returns its subfolders, except hidden ones, with their modification times.
fn list_one(folder: &Path, recordings: &mut Listing, logs: &mut Listing) -> std::io::Result<Vec<(Option<SystemTime>, PathBuf)>> {
    let mut below = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_folder = || !name.starts_with('.') && entry.file_type().is_ok_and(|t| !t.is_file());
        let into = match () {
            () if is_recording_name(&name) => Some(&mut *recordings),
            () if is_log_name(&name) => Some(&mut *logs),
            () if is_folder() => None,
            () => continue,
        };
        // A file may vanish between listing and asking. Links are followed.
        let Ok(meta) = std::fs::metadata(entry.path()) else { continue };
        match into {
            _ if meta.is_dir() => below.push((meta.modified().ok(), entry.path())),
            Some(into) if meta.is_file() => _ = into.insert(entry.path(), (meta.len(), meta.modified().ok())),
            _ => {}
        }
    }
    Ok(below)
}

/// The files of the last listing, and which of them are incomplete.
struct Known {
    /// Also files that went away: the subfolder limit can drop a folder and list it again later, and its files are not new then.
    files: Listing,
    /// Files being written, with the number of listings since each last grew.
    growing: HashMap<PathBuf, u32>,
}

impl Known {
    fn new(files: Listing) -> Self {
        Known { files, growing: HashMap::new() }
    }

    /// Returns new or rewritten files once they stayed the same for one listing and are complete, because a snapshot takes
    /// seconds to write and a slow disk pauses. `look` says what a file seems to be.
    fn compare(&mut self, now: Listing, look: impl Fn(&Path) -> Seen) -> Vec<News> {
        let mut growing: HashMap<PathBuf, u32> = HashMap::new();
        let mut news = Vec::new();
        for (path, quiet) in self.growing.drain() {
            let Some(stamp) = now.get(&path).filter(|s| self.files.get(&path) == Some(*s)) else { continue };
            let quiet = quiet + 1;
            match (stamp.0, look(&path)) {
                // Still empty.
                (0, _) => _ = growing.insert(path, 0),
                (_, Seen::Recording { is_whole: true }) => news.push(News::Recording(path)),
                (_, Seen::Counters) => news.push(News::Counters(path)),
                (_, Seen::Recording { is_whole: false }) if quiet >= PATIENCE => news.push(News::CutShort(path)),
                // The beginning of a file may not show what it is, so wait.
                (_, Seen::Other) if quiet >= PATIENCE => {}
                // A text that is named like a recording.
                (_, Seen::Message) => {}
                _ => _ = growing.insert(path, quiet),
            }
        }
        growing.extend(now.iter().filter(|(p, s)| self.files.get(*p) != Some(s)).map(|(p, _)| (p.clone(), 0)));
        self.growing = growing;
        self.files.extend(now);
        news.sort_by(|a, b| a.path().cmp(&b.path()));
        news
    }
}

impl News {
    fn path(&self) -> Option<&Path> {
        match self {
            News::Recording(path) | News::CutShort(path) | News::Counters(path) | News::Message { path, .. } => Some(path),
            News::Begun | News::Failed(_) | News::Trouble(_) | News::Back(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(files: &[(&str, u64)]) -> Listing {
        files.iter().map(|&(name, bytes)| (PathBuf::from(name), (bytes, None))).collect()
    }

    const WHOLE: fn(&Path) -> Seen = |_| Seen::Recording { is_whole: true };
    const HALF: fn(&Path) -> Seen = |_| Seen::Recording { is_whole: false };

    #[test]
    fn a_file_is_news_once_it_stopped_growing() {
        let mut known = Known::new(listing(&[("old", 5)]));
        assert!(known.compare(listing(&[("old", 5), ("new", 1)]), WHOLE).is_empty(), "just begun");
        assert!(known.compare(listing(&[("old", 5), ("new", 9)]), WHOLE).is_empty(), "still growing");
        assert_eq!(known.compare(listing(&[("old", 5), ("new", 9)]), WHOLE), [News::Recording("new".into())]);
        assert!(known.compare(listing(&[("old", 5), ("new", 9)]), WHOLE).is_empty(), "once");
        assert!(known.compare(listing(&[("old", 6), ("new", 9)]), WHOLE).is_empty());
        assert_eq!(known.compare(listing(&[("old", 6), ("new", 9)]), WHOLE), [News::Recording("old".into())], "written again");
        assert!(known.compare(listing(&[("gone", 3)]), WHOLE).is_empty());
        assert!(known.compare(listing(&[]), WHOLE).is_empty(), "went away before it was whole");
        assert!(known.compare(listing(&[("old", 6)]), WHOLE).is_empty());
        assert!(known.compare(listing(&[("old", 6)]), WHOLE).is_empty(), "listed again, and the same");
    }

    #[test]
    fn folders_in_the_folder_are_listed_and_what_is_below_them_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (step, deep) = (folder.path().join("step10"), folder.path().join("step10").join("deeper"));
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::create_dir(folder.path().join(".cache")).unwrap();
        for file in ["rank0.pickle", "step10/rank0.pickle", "step10/err.log", "step10/deeper/x.pickle", ".cache/x.pickle"] {
            std::fs::write(folder.path().join(file), b"x").unwrap();
        }
        let (recordings, logs) = list(folder.path()).unwrap();
        let mut found: Vec<PathBuf> = recordings.into_keys().chain(logs.into_keys()).collect();
        found.sort();
        assert_eq!(found, [folder.path().join("rank0.pickle"), step.join("err.log"), step.join("rank0.pickle")]);
        for i in 0..MOST_SUBFOLDERS + 20 {
            let old = folder.path().join(format!("old{i}"));
            std::fs::create_dir(&old).unwrap();
            std::fs::write(old.join("rank0.pickle"), b"x").unwrap();
        }
        std::fs::write(step.join("rank1.pickle"), b"x").unwrap();
        let (recordings, _) = list(folder.path()).unwrap();
        assert_eq!(recordings.len(), 1 + 2 + MOST_SUBFOLDERS - 1, "as many as are listed");
        assert!(recordings.contains_key(&step.join("rank1.pickle")), "the last that changed is one of them");
    }

    #[test]
    fn a_half_written_file_is_waited_for() {
        let mut known = Known::new(listing(&[]));
        let now = || listing(&[("slow", 9)]);
        for _ in 0..30 {
            assert!(known.compare(now(), HALF).is_empty(), "the disk pauses");
        }
        assert!(known.compare(listing(&[("slow", 12)]), WHOLE).is_empty(), "it goes on");
        assert_eq!(known.compare(listing(&[("slow", 12)]), WHOLE), [News::Recording("slow".into())]);
        let mut known = Known::new(listing(&[]));
        let told: Vec<News> = (0..200).flat_map(|_| known.compare(now(), HALF)).collect();
        assert_eq!(told, [News::CutShort("slow".into())], "after a minute, once");
    }

    #[test]
    fn counters_are_no_recording_and_other_files_are_nothing() {
        let mut known = Known::new(listing(&[]));
        let now = || listing(&[("a.memory_stats.json", 9), ("config.json", 9)]);
        let look = |p: &Path| if p.ends_with("config.json") { Seen::Other } else { Seen::Counters };
        let told: Vec<News> = (0..200).flat_map(|_| known.compare(now(), look)).collect();
        assert_eq!(told, [News::Counters("a.memory_stats.json".into())]);
        assert!(known.growing.is_empty(), "not looked at for ever");
    }

    fn wait_for_one(watch: &FolderWatch) -> News {
        watch.found.recv_timeout(Duration::from_secs(20)).expect("news")
    }

    #[test]
    fn a_real_folder_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let sample = crate::app::data::samples::path("leak.pickle");
        std::fs::write(file("before.pickle"), b"x").unwrap();
        std::fs::write(file("train.log"), b"CUDA out of memory. Tried to allocate 1.00 GiB (long ago)\n").unwrap();
        let watch = FolderWatch::start(folder.path().to_path_buf(), &Jobs::default()).unwrap();
        assert_eq!(wait_for_one(&watch), News::Begun);
        std::fs::write(file("notes.md"), b"x").unwrap();
        std::fs::create_dir(file("step10")).unwrap();
        std::fs::copy(&sample, file("step10").join("rank0.pickle")).unwrap();
        std::fs::copy(sample, file("oom_rank0.pickle")).unwrap();
        std::fs::write(file("run.memory_stats.json"), b"{\"reserved_bytes.all.current\": 2097152}").unwrap();
        let mut log = std::fs::OpenOptions::new().append(true).open(file("train.log")).unwrap();
        std::io::Write::write_all(
            &mut log,
            b"step 9\n[rank1]: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity)\n",
        )
        .unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(20);
        let mut found = Vec::new();
        while found.len() < 4 && std::time::Instant::now() < until {
            found.extend(watch.news());
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(found.contains(&News::Recording(file("oom_rank0.pickle"))), "{found:?}");
        assert!(found.contains(&News::Counters(file("run.memory_stats.json"))), "{found:?}");
        let text = found.iter().find_map(|n| if let News::Message { log, .. } = n { Some(log.text.as_str()) } else { None });
        assert!(text.is_some_and(|t| t.contains("2.00 GiB") && !t.contains("long ago")), "{found:?}");
        assert!(found.contains(&News::Recording(file("step10").join("rank0.pickle"))), "{found:?}");
        assert_eq!(found.len(), 4);
        let gone = folder.path().with_extension("gone");
        std::fs::rename(folder.path(), &gone).unwrap();
        let told = wait_for_one(&watch);
        assert!(
            matches!(&told, News::Trouble(s) if s.ends_with("there is no such folder; it is looked for every second")),
            "{told:?}"
        );
        std::fs::rename(&gone, folder.path()).unwrap();
        assert!(matches!(wait_for_one(&watch), News::Back(_)));
        let none = FolderWatch::start(file("none"), &Jobs::default()).unwrap();
        assert!(matches!(wait_for_one(&none), News::Failed(sentence) if sentence.contains("cannot be watched")));
    }
}
