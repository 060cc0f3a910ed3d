//! A cache of the last recordings. An agent asks many questions about one file, and reading it is most of the work.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use vramscope_core::model::Recording;

const MOST: usize = 4;
/// Most bytes that they take together, approximately. A larger recording is not kept.
const MOST_BYTES: usize = 1 << 30;

/// Identifies a version of a file. A snapshot that is rewritten in place keeps its name and often its size.
#[derive(Clone, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    size: u64,
    written: SystemTime,
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let path = std::fs::canonicalize(path).ok()?;
        let about = std::fs::metadata(&path).ok()?;
        Some(Stamp { path, size: about.len(), written: about.modified().ok()? })
    }
}

struct Kept {
    stamp: Stamp,
    recording: Recording,
    bytes: usize,
}

/// The cached recordings, the last used at the end.
#[derive(Default)]
pub(super) struct Shelf {
    kept: Mutex<Vec<Kept>>,
}

static SHELF: OnceLock<Shelf> = OnceLock::new();

/// Turns the cache on, for a process that answers many questions. A single command reads a file only once.
pub(super) fn keep() {
    SHELF.get_or_init(Shelf::default);
}

pub(super) fn shelf() -> Option<&'static Shelf> {
    SHELF.get()
}

impl Shelf {
    /// The recording of a file: a copy of the cached one if the file is unchanged, otherwise the result of `read`.
    pub(super) fn open(&self, path: &Path, read: impl FnOnce() -> Result<Recording, String>) -> Result<Recording, String> {
        let Some(stamp) = Stamp::of(path) else { return read() };
        {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            // Drops an outdated version of the file.
            kept.retain(|k| k.stamp.path != stamp.path || k.stamp == stamp);
            if let Some(at) = kept.iter().position(|k| k.stamp == stamp) {
                let found = kept.remove(at);
                let recording = found.recording.clone();
                kept.push(found);
                return Ok(recording);
            }
        }
        let recording = read()?;
        let bytes = bytes_of(&recording);
        // A file that changed while it was read is not cached.
        if bytes <= MOST_BYTES && Stamp::of(path).as_ref() == Some(&stamp) {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push(Kept { stamp, recording: recording.clone(), bytes });
            while kept.len() > MOST || kept.iter().map(|k| k.bytes).sum::<usize>() > MOST_BYTES {
                kept.remove(0);
            }
        }
        Ok(recording)
    }
}

/// The approximate memory of a recording: the rows of its large tables, with an allowance for nested data.
fn bytes_of(recording: &Recording) -> usize {
    let devices = recording
        .devices
        .iter()
        .map(|d| 64 * d.events.len() + 64 * d.blocks.len() + 128 * d.segments.len() + 64 * d.bands.len() + 256 * d.samples.len());
    let stacks = &recording.stacks;
    devices.sum::<usize>() + 64 * stacks.frame_count() + 256 * stacks.len() + 128 * recording.ops.len()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_file_is_read_once_until_it_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pickle");
        let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/sample_snapshots/");
        std::fs::copy(format!("{sample}leak.pickle"), &path).unwrap();
        let (shelf, reads) = (Shelf::default(), Cell::new(0));
        let events = |path: &Path| {
            let read = || {
                reads.set(reads.get() + 1);
                crate::cli::open_any(path)
            };
            shelf.open(path, read).map(|r| r.devices[0].events.len())
        };
        assert_eq!((events(&path), events(&path), reads.get()), (Ok(1_144), Ok(1_144), 1));
        std::fs::copy(format!("{sample}fragment_oom.pickle"), &path).unwrap();
        assert_eq!((events(&path), events(&path), reads.get()), (Ok(177), Ok(177), 2));
        // Equal size is not enough: with another modification time the contents may differ.
        let later = SystemTime::now() + std::time::Duration::from_secs(5);
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        assert_eq!((events(&path), reads.get()), (Ok(177), 3));
        std::fs::remove_file(&path).unwrap();
        assert!(events(&path).is_err(), "what is gone is not answered from memory");
    }

    #[test]
    fn only_the_last_few_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::default();
        for i in 0..2 * MOST {
            let path = folder.path().join(format!("{i}.pickle"));
            std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/sample_snapshots/fragment_oom.pickle"), &path).unwrap();
            shelf.open(&path, || crate::cli::open_any(&path)).unwrap();
        }
        let names = || -> Vec<String> {
            let kept = shelf.kept.lock().unwrap();
            kept.iter().map(|k| k.stamp.path.file_name().unwrap().to_string_lossy().into_owned()).collect()
        };
        assert_eq!(names(), ["4.pickle", "5.pickle", "6.pickle", "7.pickle"]);
        // A recording that is used again stays longest.
        let again = folder.path().join("4.pickle");
        shelf.open(&again, || Err("it is not read again".to_owned())).unwrap();
        assert_eq!(names(), ["5.pickle", "6.pickle", "7.pickle", "4.pickle"]);
    }

    #[test]
    fn the_estimate_is_of_the_size_of_what_is_kept() {
        let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/sample_snapshots/gpt_train.pickle");
        let recording = crate::cli::open_any(Path::new(sample)).unwrap();
        let events = recording.devices[0].events.len();
        let bytes = bytes_of(&recording);
        assert!((48 * events..100 << 20).contains(&bytes), "{bytes} bytes for {events} events");
    }
}
