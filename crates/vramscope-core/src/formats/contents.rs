//! A file's bytes in memory, and whether its writer was still at it.
//!
//! A file is read, not mapped: PyTorch writes a snapshot over the one before under the same name, and a mapped file that gets shorter
//! ends every program that looks at it. Memory of our own costs what the page cache would have held.

use std::fs::{File, Metadata};
use std::mem::MaybeUninit;
use std::path::Path;

use rayon::prelude::*;

use super::{FormatError, why};
use crate::model::Progress;
use crate::units::Bytes;

/// What one call of the system reads. Several threads read at once.
const CHUNK: usize = 4 << 20;

/// Opens a regular file for reading, and nothing else: a pipe would be waited for, and a device may never end.
///
/// # Errors
/// When it cannot be opened; for what is no regular file, a sentence of what to open instead.
pub fn open_regular(path: &Path) -> std::io::Result<File> {
    let check = |meta: &Metadata| match meta.file_type() {
        kind if kind.is_file() => Ok(()),
        kind if kind.is_dir() => Err(std::io::Error::other("this is a folder; open a file in it")),
        _ => {
            Err(std::io::Error::other("this is a pipe or a device and not a file; save what it gives into a file and open that"))
        }
    };
    // Before it is opened, which some devices act on; and after, because the name may lead to something else by then.
    check(&std::fs::metadata(path)?)?;
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.read(true).open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

/// What a file held.
pub(super) struct Contents {
    pub(super) bytes: Vec<u8>,
    before: Version,
}

/// What tells one state of a file from another.
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

    /// Without a number for the file: one that was put in its place in one step is noticed by its time and size.
    #[cfg(not(unix))]
    fn of(meta: &Metadata) -> Self {
        let since = meta.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok()).unwrap_or_default();
        let modified = (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), i64::from(since.subsec_nanos()));
        Version { device: 0, inode: 0, size: meta.len(), modified }
    }
}

impl Contents {
    /// Reads a regular file.
    ///
    /// # Errors
    /// [`FormatError::Io`] when it cannot be read, or memory cannot hold it; [`FormatError::Cancelled`].
    pub(super) fn read(path: &Path, progress: &Progress) -> Result<Self, FormatError> {
        let failed = |what: String| FormatError::Io { name: path.display().to_string(), what };
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
        // SAFETY: `filled` bytes were written, from the first on and without a gap: that is what `fill` counts.
        unsafe { bytes.set_len(filled) };
        Ok(Contents { bytes, before })
    }

    /// True when what was read may be of two states of the file: it is not the one it was before. A file that is gone is whole here.
    pub(super) fn changed(&self, path: &Path) -> bool {
        self.bytes.len() as u64 != self.before.size || std::fs::metadata(path).is_ok_and(|meta| Version::of(&meta) != self.before)
    }

    /// True when it only got longer, as a session does that is being recorded.
    pub(super) fn grew(&self, path: &Path) -> bool {
        let meta = std::fs::metadata(path).map(|meta| Version::of(&meta));
        self.bytes.len() as u64 == self.before.size
            && meta.is_ok_and(|now| {
                (now.device, now.inode) == (self.before.device, self.before.inode) && now.size > self.before.size
            })
    }
}

/// What one call reads at a place of a file: how many bytes.
#[cfg(unix)]
fn read_at(file: &File, room: &mut [MaybeUninit<u8>], at: u64) -> std::io::Result<usize> {
    let read = rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut *room, at).map(|(got, _)| got.len()));
    Ok(read?)
}

/// What one call reads at a place of a file: how many bytes.
#[cfg(windows)]
fn read_at(file: &File, room: &mut [MaybeUninit<u8>], at: u64) -> std::io::Result<usize> {
    let mut part = vec![0; room.len().min(CHUNK)];
    let got = std::os::windows::fs::FileExt::seek_read(file, &mut part, at)?;
    for (to, byte) in room.iter_mut().zip(&part[..got]) {
        to.write(*byte);
    }
    Ok(got)
}

/// Fills `room` from the beginning of a file: how many bytes came before the first that is missing.
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

/// Bytes that programs can still take, as the system estimates them; `None` where it does not tell.
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

    /// PyTorch's `_dump_snapshot` to the same name: cut to nothing, written again.
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
        let read = || Contents::read(&path, &Progress::new()).unwrap();
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
        assert!(Contents::read(&path, &Progress::new()).unwrap().bytes == bytes);
    }

    #[test]
    fn a_file_larger_than_memory_is_one_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pickle");
        // Sparse: it takes no room on the disk.
        File::create(&path).unwrap().set_len(4 << 40).unwrap();
        let sentence = open(&path, &Progress::new()).unwrap_err().to_string().replace('\u{a0}', " ");
        assert!(sentence.contains("x.pickle: the file has 4,096 GiB") && sentence.contains("more memory"), "{sentence}");
    }
}
