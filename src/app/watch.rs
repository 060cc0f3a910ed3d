//! Watching a folder for new recordings: trainers that write a snapshot when they run out of memory.
//!
//! The folder is listed once a second on a thread of its own. That works on every file system, network ones included, where change
//! notices do not; a listing of a thousand names costs less than a millisecond there.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, SystemTime};

use super::jobs::Jobs;
use crate::formats::folder::is_recording_name;

/// Time between two listings.
const EVERY: Duration = Duration::from_secs(1);

/// What a listing says of a file.
type Stamp = (u64, Option<SystemTime>);

/// A watched folder; watching ends when this is dropped.
pub struct Watch {
    /// The folder.
    pub folder: PathBuf,
    found: Receiver<Result<PathBuf, String>>,
    stop: Arc<AtomicBool>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

impl Watch {
    /// Watches a folder from now on; what is in it already is not new.
    ///
    /// # Errors
    /// One sentence when the folder can not be listed or no thread starts.
    pub fn start(folder: PathBuf, jobs: &Jobs) -> Result<Self, String> {
        let mut known = Known::new(list(&folder)?);
        let (sender, found) = sync_channel(64);
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, path, wake) = (Arc::clone(&stop), folder.clone(), jobs.clone());
        let watch = move || {
            let mut was_lost = false;
            while !stopped.load(Ordering::Acquire) {
                std::thread::sleep(EVERY);
                let answers = match list(&path) {
                    Ok(files) => {
                        was_lost = false;
                        known.compare(files).into_iter().map(Ok).collect()
                    }
                    // Said once; a network folder may come back.
                    Err(sentence) if !was_lost => {
                        was_lost = true;
                        vec![Err(sentence)]
                    }
                    Err(_) => Vec::new(),
                };
                for answer in answers {
                    if sender.send(answer).is_err() {
                        return;
                    }
                    wake.wake();
                }
            }
        };
        std::thread::Builder::new()
            .name("watch".to_owned())
            .spawn(watch)
            .map_err(|e| format!("{}: no thread to watch it can be started: {e}", folder.display()))?;
        Ok(Watch { folder, found, stop })
    }

    /// Recordings that appeared and are complete, and sentences on what went wrong.
    pub fn news(&self) -> impl Iterator<Item = Result<PathBuf, String>> {
        self.found.try_iter()
    }
}

fn list(folder: &Path) -> Result<HashMap<PathBuf, Stamp>, String> {
    let failed = |e: std::io::Error| format!("{}: the folder can not be watched: {e}", folder.display());
    let mut files = HashMap::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let Ok(entry) = entry else { continue };
        if !is_recording_name(&entry.file_name().to_string_lossy()) {
            continue;
        }
        // A file that went away between listing and asking is no news.
        if let Ok(meta) = entry.metadata()
            && meta.is_file()
        {
            files.insert(entry.path(), (meta.len(), meta.modified().ok()));
        }
    }
    Ok(files)
}

/// What was there at the last listing, and what of it still grows.
struct Known {
    files: HashMap<PathBuf, Stamp>,
    growing: Vec<PathBuf>,
}

impl Known {
    fn new(files: HashMap<PathBuf, Stamp>) -> Self {
        Known { files, growing: Vec::new() }
    }

    /// Files that are new or were written again, once they have stayed the same for one listing: a snapshot takes seconds to write.
    fn compare(&mut self, now: HashMap<PathBuf, Stamp>) -> Vec<PathBuf> {
        let changed: Vec<PathBuf> = now.iter().filter(|(p, s)| self.files.get(*p) != Some(s)).map(|(p, _)| p.clone()).collect();
        let mut done: Vec<PathBuf> =
            self.growing.drain(..).filter(|p| !changed.contains(p) && now.get(p).is_some_and(|s| s.0 > 0)).collect();
        done.sort();
        self.growing = changed;
        self.files = now;
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(files: &[(&str, u64)]) -> HashMap<PathBuf, Stamp> {
        files.iter().map(|&(name, bytes)| (PathBuf::from(name), (bytes, None))).collect()
    }

    #[test]
    fn a_file_is_news_once_it_stopped_growing() {
        let mut known = Known::new(listing(&[("old", 5)]));
        assert!(known.compare(listing(&[("old", 5), ("new", 1)])).is_empty(), "just begun");
        assert!(known.compare(listing(&[("old", 5), ("new", 9)])).is_empty(), "still growing");
        assert_eq!(known.compare(listing(&[("old", 5), ("new", 9)])), [PathBuf::from("new")]);
        assert!(known.compare(listing(&[("old", 5), ("new", 9)])).is_empty(), "once");
        assert!(known.compare(listing(&[("old", 6), ("new", 9)])).is_empty());
        assert_eq!(known.compare(listing(&[("old", 6), ("new", 9)])), [PathBuf::from("old")], "written again");
        assert!(known.compare(listing(&[("gone", 3)])).is_empty());
        assert!(known.compare(listing(&[])).is_empty(), "went away before it was whole");
    }

    #[test]
    fn a_real_folder_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("before.pickle"), b"x").unwrap();
        let watch = Watch::start(folder.path().to_path_buf(), &Jobs::default()).unwrap();
        std::fs::write(folder.path().join("notes.txt"), b"x").unwrap();
        std::fs::write(folder.path().join("oom_rank0.pickle"), b"x").unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(20);
        let mut found = Vec::new();
        while found.is_empty() && std::time::Instant::now() < until {
            found.extend(watch.news());
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(found, [Ok(folder.path().join("oom_rank0.pickle"))]);
        assert!(Watch::start(folder.path().join("none"), &Jobs::default()).is_err_and(|e| e.contains("can not be watched")));
    }
}
