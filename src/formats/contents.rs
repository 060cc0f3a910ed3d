//! A file's bytes in memory, and whether its writer was still at it.
//!
//! A file is read, not mapped: PyTorch writes a snapshot over the one before under the same name, and a mapped file that gets shorter
//! ends every program that looks at it. Memory of our own costs what the page cache would have held.

use std::fs::{File, Metadata};
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rayon::prelude::*;

use super::{FormatError, why};
use crate::model::Progress;
use crate::units::Bytes;

/// What one call of the system reads. Several threads read at once.
const CHUNK: usize = 4 << 20;

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
    fn of(meta: &Metadata) -> Self {
        Version { device: meta.dev(), inode: meta.ino(), size: meta.size(), modified: (meta.mtime(), meta.mtime_nsec()) }
    }
}

impl Contents {
    /// Reads a regular file.
    ///
    /// # Errors
    /// [`FormatError::Io`] when it can not be read, or memory can not hold it; [`FormatError::Cancelled`].
    pub(super) fn read(path: &Path, progress: &Progress) -> Result<Self, FormatError> {
        let failed = |what: String| FormatError::Io { name: path.display().to_string(), what };
        let io = |error: std::io::Error| failed(why(&error));
        // Before it is opened: opening a pipe waits for somebody who writes into it.
        let meta = std::fs::metadata(path).map_err(io)?;
        if !meta.is_file() {
            let what = if meta.is_dir() {
                "this is a folder; open a file in it"
            } else {
                "this is a pipe or a device and not a file; save what it gives into a file and open that"
            };
            return Err(failed(what.to_owned()));
        }
        let file = File::open(path).map_err(io)?;
        let before = Version::of(&file.metadata().map_err(io)?);
        let available = available();
        let mut bytes = Vec::new();
        let room = usize::try_from(before.size).ok().filter(|&n| bytes.try_reserve_exact(n).is_ok());
        let Some(room) = room.filter(|_| available.is_none_or(|available| before.size <= available)) else {
            let free = available.map_or(String::new(), |free| format!(" and {} of memory are free", Bytes(free)));
            return Err(failed(format!(
                "the file has {}{free}, so it can not be read; close other programs, or open it on a machine with more memory",
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
        self.bytes.len() as u64 != self.before.size
            || std::fs::metadata(path).is_ok_and(|meta| Version::of(&meta) != self.before)
    }

    /// True when it only got longer, as a session does that is being recorded.
    pub(super) fn grew(&self, path: &Path) -> bool {
        let meta = std::fs::metadata(path).map(|meta| Version::of(&meta));
        self.bytes.len() as u64 == self.before.size
            && meta.is_ok_and(|now| (now.device, now.inode) == (self.before.device, self.before.inode) && now.size > self.before.size)
    }
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
                match rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut part[filled..], at).map(|(got, _)| got.len()))? {
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
