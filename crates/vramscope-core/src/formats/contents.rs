//! The bytes of a file in memory, and whether the file changed during reading.
//!
//! Files are read, not mapped: PyTorch overwrites a snapshot of the same name, and a mapped file that gets shorter kills every
//! program that accesses it. Reading costs the memory that the page cache would have used.

use std::fs::{File, Metadata};
use std::mem::MaybeUninit;
use std::path::Path;

use rayon::prelude::*;

use super::{FormatError, why};
use crate::model::Progress;
use crate::units::Bytes;

/// Bytes per read call. Several threads read at once.
const CHUNK: usize = 4 << 20;

/// Opens a regular file. Refuses a pipe, which may block, and a device, which may never end, with a sentence on what to open.
pub fn open_regular(path: &Path) -> std::io::Result<File> {
    let check = |meta: &Metadata| match meta.file_type() {
        kind if kind.is_file() => Ok(()),
        kind if kind.is_dir() => Err(std::io::Error::other("this is a folder; open a file in it")),
        _ => {
            Err(std::io::Error::other("this is a pipe or a device and not a file; save what it gives into a file and open that"))
        }
    };
    // Check before opening, because opening has effects on some devices, and after, because the path may by then lead elsewhere.
    check(&std::fs::metadata(path)?)?;
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.read(true).open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

pub(super) struct Contents {
    pub(super) bytes: Vec<u8>,
    before: Version,
}

/// Identifies one state of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Version {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Version {
    #[cfg(unix)]
    fn of(meta: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Version { device: meta.dev(), inode: meta.ino(), size: meta.size(), modified: (meta.mtime(), meta.mtime_nsec()) }
    }

    /// Windows gives no inode here: a file that was replaced in one step is noticed by its time and size.
    #[cfg(not(unix))]
    fn of(meta: &Metadata) -> Self {
        let since = meta.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok()).unwrap_or_default();
        let modified = (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), i64::from(since.subsec_nanos()));
        Version { device: 0, inode: 0, size: meta.len(), modified }
    }
}

impl Contents {
    /// Reads a regular file. `name` is used in errors. Fails when it cannot be read or does not fit into memory.
    pub(super) fn read(path: &Path, name: &str, progress: &Progress) -> Result<Self, FormatError> {
        let failed = |what: String| FormatError::Io { name: name.to_owned(), what };
        let io = |error: std::io::Error| failed(why(&error));
        let file = open_regular(path).map_err(io)?;
        let before = Version::of(&file.metadata().map_err(io)?);
        let available = available();
        let mut bytes = Vec::new();
        let room = usize::try_from(before.size).ok().filter(|&n| bytes.try_reserve_exact(n).is_ok());
        let Some(room) = room.filter(|_| available.is_none_or(|available| before.size <= available)) else {
            let free = available.map_or(String::new(), |free| format!(" and {} of memory are free", Bytes(free)));
            return Err(failed(format!(
                "the file has {}{free}, so it cannot be read; close other programs, or open it on a machine with more memory",
                Bytes(before.size)
            )));
        };
        let filled = fill(&file, &mut bytes.spare_capacity_mut()[..room], progress)?.map_err(io)?;
        // SAFETY: `fill` returns how many bytes were written from the first one on without a gap.
        unsafe { bytes.set_len(filled) };
        Ok(Contents { bytes, before })
    }

    /// True when the bytes may mix two states of the file, because it has changed since. A deleted file counts as unchanged.
    pub(super) fn changed(&self, path: &Path) -> bool {
        self.bytes.len() as u64 != self.before.size || std::fs::metadata(path).is_ok_and(|meta| Version::of(&meta) != self.before)
    }

    /// True when the file only got longer, as a session does during recording.
    pub(super) fn grew(&self, path: &Path) -> bool {
        let meta = std::fs::metadata(path).map(|meta| Version::of(&meta));
        self.bytes.len() as u64 == self.before.size
            && meta.is_ok_and(|now| {
                (now.device, now.inode) == (self.before.device, self.before.inode) && now.size > self.before.size
            })
    }
}

/// Reads at an offset with one call; returns the number of bytes.
#[cfg(unix)]
fn read_at(file: &File, room: &mut [MaybeUninit<u8>], at: u64) -> std::io::Result<usize> {
    let read = rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut *room, at).map(|(got, _)| got.len()));
    Ok(read?)
}

/// Reads at an offset with one call; returns the number of bytes.
#[cfg(windows)]
fn read_at(file: &File, room: &mut [MaybeUninit<u8>], at: u64) -> std::io::Result<usize> {
    let mut part = vec![0; room.len().min(CHUNK)];
    let got = std::os::windows::fs::FileExt::seek_read(file, &mut part, at)?;
    for (to, byte) in room.iter_mut().zip(&part[..got]) {
        to.write(*byte);
    }
    Ok(got)
}

/// Fills `room` from the beginning of a file; returns the number of bytes before the first gap.
fn fill(file: &File, room: &mut [MaybeUninit<u8>], progress: &Progress) -> Result<std::io::Result<usize>, FormatError> {
    let parts: Vec<std::io::Result<usize>> = room
        .par_chunks_mut(CHUNK)
        .enumerate()
        .map(|(i, part)| {
            let mut filled = 0;
            while filled < part.len() && progress.check().is_ok() {
                let at = (i * CHUNK + filled) as u64;
                match read_at(file, &mut part[filled..], at)? {
                    0 => break,
                    n => filled += n,
                }
            }
            Ok(filled)
        })
        .collect();
    progress.check()?;
    let mut filled = 0;
    for (i, part) in parts.into_iter().enumerate() {
        match part {
            Ok(n) => filled += n,
            Err(error) => return Ok(Err(error)),
        }
        if filled < (i + 1) * CHUNK {
            break;
        }
    }
    Ok(Ok(filled))
}

/// The system's estimate of available memory in bytes; `None` if unknown.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::super::open;
    use super::*;
    use crate::model::WarningKind;

    /// Does what PyTorch's `_dump_snapshot` does to an existing file: truncates it and writes it again.
    #[test]
    fn a_file_that_is_written_over_while_it_is_read_is_read_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("snapshot.pickle");
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sample_snapshots").join("two_gpus.pickle");
        let whole = std::fs::read(sample).unwrap();
        std::fs::write(&path, &whole).unwrap();
        let stop = AtomicBool::new(false);
        let (mut warned, mut refused, mut read) = (0, 0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let mut file = File::create(&path).unwrap();
                    for part in whole.chunks(whole.len() / 7) {
                        file.write_all(part).unwrap();
                    }
                    drop(file);
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
            let since = Instant::now();
            while since.elapsed() < Duration::from_secs(20) && (warned == 0 || read < 50) {
                match open(&path, &Progress::new()) {
                    Ok(recording) => {
                        warned += usize::from(recording.report.warnings.iter().any(|w| w.kind == WarningKind::Changed))
                    }
                    Err(error) => refused += usize::from(error.to_string().contains("changed while it was read")),
                }
                read += 1;
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(warned + refused > 0, "nothing was said in {read} readings");
        let after = open(&path, &Progress::new()).unwrap();
        assert!(after.report.warnings.is_empty(), "{:?}", after.report.warnings);
    }

    #[test]
    fn every_way_to_change_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let write = |bytes: &[u8]| std::fs::write(&path, bytes).unwrap();
        let read = || Contents::read(&path, "x", &Progress::new()).unwrap();
        write(b"abc");
        assert_eq!((read().bytes, read().changed(&path)), (b"abc".to_vec(), false));
        let before = read();
        std::thread::sleep(Duration::from_millis(20));
        write(b"abd");
        assert!(before.changed(&path) && !before.grew(&path), "the same size at another time");
        let before = read();
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"more").unwrap();
        assert!(before.changed(&path) && before.grew(&path));
        let before = read();
        std::fs::write(folder.path().join("new"), b"abdmore").unwrap();
        std::fs::rename(folder.path().join("new"), &path).unwrap();
        assert!(before.changed(&path), "another file of that name");
        let before = read();
        std::fs::remove_file(&path).unwrap();
        assert!(!before.changed(&path), "gone, but whole");
    }

    #[test]
    fn more_than_one_thread_reads_a_long_file_in_its_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let bytes: Vec<u8> = (0..(2 * CHUNK + 1000) as u32 / 4).flat_map(u32::to_le_bytes).collect();
        std::fs::write(&path, &bytes).unwrap();
        assert!(Contents::read(&path, "x", &Progress::new()).unwrap().bytes == bytes);
    }

    #[test]
    fn a_file_larger_than_memory_is_one_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pickle");
        // A sparse file, which takes no disk space.
        File::create(&path).unwrap().set_len(4 << 40).unwrap();
        let sentence = open(&path, &Progress::new()).unwrap_err().to_string().replace('\u{a0}', " ");
        assert!(sentence.starts_with("x.pickle: the file has 4,096 GiB") && sentence.contains("more memory"), "{sentence}");
    }
}
