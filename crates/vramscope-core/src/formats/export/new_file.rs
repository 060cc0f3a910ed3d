//! Output files: they never overwrite their own sources, are never left incomplete, and replace an existing file only on request.

use std::fs::{File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::WriteError;
use super::unnamed::Unnamed;

/// A file that appears under its name only when it is complete; dropping this before leaves nothing behind.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    /// `None` for a path that is not a regular file, such as a pipe: it is written directly.
    unnamed: Option<Unnamed>,
    replaces: bool,
    out: Option<BufWriter<File>>,
}

impl NewFile {
    /// Begins a file that is made from `sources`. `replaces`: whether an existing file may be replaced. Fails as [`refusal`] tells,
    /// or when the file cannot be created there.
    pub fn create(path: &Path, sources: &[&Path], replaces: bool) -> Result<Self, WriteError> {
        if let Some(error) = refusal(path, sources, replaces) {
            return Err(error);
        }
        let failed = |e: io::Error| WriteError::io(path, e);
        if is_special(path) {
            let file = File::options().write(true).open(path).map_err(failed)?;
            return Ok(NewFile { path: path.to_path_buf(), unnamed: None, replaces, out: Some(BufWriter::new(file)) });
        }
        let target = behind_links(path)?;
        let unnamed = Unnamed::beside(&target).map_err(failed)?;
        let file = unnamed.file().try_clone().map_err(failed)?;
        Ok(NewFile { path: target, unnamed: Some(unnamed), replaces, out: Some(BufWriter::new(file)) })
    }

    /// Publishes the complete file under its name. Fails when the rest cannot be written or the file cannot be renamed.
    pub fn finish(mut self) -> Result<(), WriteError> {
        let Some(mut out) = self.out.take() else { return Ok(()) };
        out.flush().map_err(|e| WriteError::io(&self.path, e))?;
        match self.unnamed.take() {
            Some(mut unnamed) => give_name(&mut unnamed, &self.path, self.replaces),
            None => Ok(()),
        }
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.out {
            Some(out) => out.write(bytes),
            None => Ok(0),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.as_mut().map_or(Ok(()), Write::flush)
    }
}

/// Follows links to the file that will be written, as a plain write would, but refuses links made by another user. Linux itself
/// does not follow those in folders that everybody may write to.
pub(crate) fn behind_links(path: &Path) -> Result<PathBuf, WriteError> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let me = rustix::process::geteuid().as_raw();
        let mut at = path.to_path_buf();
        // Linux follows the same number of links.
        for _ in 0..40 {
            let Ok(meta) = std::fs::symlink_metadata(&at) else { break };
            if !meta.is_symlink() {
                break;
            }
            // Links of root are safe to follow: root can write anywhere anyway.
            if meta.uid() != me && meta.uid() != 0 {
                return Err(WriteError::LinkOfAnother { link: at, user: meta.uid() });
            }
            let next = std::fs::read_link(&at).map_err(|e| WriteError::io(path, e))?;
            // The link may have been replaced between the two calls.
            let is_same = std::fs::symlink_metadata(&at).is_ok_and(|now| {
                (now.dev(), now.ino(), now.ctime(), now.ctime_nsec()) == (meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec())
            });
            if !is_same {
                return Err(WriteError::LinkChanged(at));
            }
            at = at.parent().unwrap_or(Path::new("")).join(next);
        }
        Ok(at)
    }
    #[cfg(not(unix))]
    {
        Ok(std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf()))
    }
}

/// Publishes a file under its name. Replaces an existing file only if `replaces`, and never while another process writes it.
/// Whoever replaces a file holds its lock, so of two concurrent attempts one is refused.
pub fn give_name(unnamed: &mut Unnamed, path: &Path, replaces: bool) -> Result<(), WriteError> {
    loop {
        match unnamed.link(path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            done => return done.map_err(|e| WriteError::io(path, e)),
        }
        if !replaces {
            return Err(WriteError::Exists(path.to_path_buf()));
        }
        let older = lock(path, File::try_lock).map_err(|Held| in_use(path))?;
        // Another process may have put its own file there before the lock was taken.
        if older.as_ref().is_none_or(|older| is_at(older, path)) {
            return unnamed.replace(path).map_err(|e| WriteError::io(path, e));
        }
    }
}

/// Another process holds the lock.
struct Held;

/// Locks a file until the result is dropped; `None` if there is no file or the file system has no locks.
fn lock(path: &Path, take: impl Fn(&File) -> Result<(), TryLockError>) -> Result<Option<File>, Held> {
    if !path.is_file() {
        return Ok(None);
    }
    let Ok(file) = File::options().read(true).write(true).open(path).or_else(|_| File::open(path)) else { return Ok(None) };
    match take(&file) {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(Held),
        // The file system has no locks.
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// True if the open file is still the one at this path.
fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let id = |m: &std::fs::Metadata| (m.dev(), m.ino());
        matches!((file.metadata(), std::fs::symlink_metadata(path)), (Ok(a), Ok(b)) if id(&a) == id(&b))
    }
    #[cfg(not(unix))]
    {
        let _ = (file, path);
        true
    }
}

fn in_use(path: &Path) -> WriteError {
    WriteError::InUse { path: path.to_path_buf(), writer: crate::formats::session::writer_of(path) }
}

/// Why a file may not be written to this path: it is one of its own sources (through any name or link), a folder, in a missing
/// folder, existing already, or being written. `None` when it may. Check this before doing the work.
pub fn refusal(path: &Path, sources: &[&Path], replaces: bool) -> Option<WriteError> {
    let own = || path.to_path_buf();
    if path.is_dir() {
        return Some(WriteError::IsFolder(own()));
    }
    if sources.iter().any(|source| is_same(path, source)) {
        return Some(WriteError::IsSource(own()));
    }
    if is_special(path) {
        return None;
    }
    if let Err(error) = behind_links(path) {
        return Some(error);
    }
    if std::fs::symlink_metadata(path).is_ok() {
        // A shared lock, so that two checks at once do not block each other.
        if lock(path, File::try_lock_shared).is_err() {
            return Some(in_use(path));
        }
        return (!replaces).then(|| WriteError::Exists(own()));
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty())?;
    (!folder.is_dir()).then(|| WriteError::NoFolder { path: own(), folder: folder.to_path_buf() })
}

/// True for an existing path that is not a regular file: a pipe, a device.
pub(crate) fn is_special(path: &Path) -> bool {
    path.exists() && !path.is_file() && !path.is_dir()
}

/// True if both paths lead to the same file, through links of any kind.
fn is_same(a: &Path, b: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        if let (Ok(a), Ok(b)) = (std::fs::metadata(a), std::fs::metadata(b)) {
            return (a.dev(), a.ino()) == (b.dev(), b.ino());
        }
    }
    matches!((std::fs::canonicalize(a), std::fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_never_overwritten_and_an_older_file_only_on_request() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("source"), "precious").unwrap();
        std::fs::hard_link(at("source"), at("hard")).unwrap();
        let mut names = vec!["source", "hard"];
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(at("source"), at("soft")).unwrap();
            names.push("soft");
        }
        for name in names {
            let sentence = NewFile::create(&at(name), &[&at("source")], true).unwrap_err().to_string();
            assert!(sentence.contains("is the recording itself"), "{sentence}");
        }
        std::fs::write(at("old"), "old").unwrap();
        assert!(NewFile::create(&at("old"), &[&at("source")], false).unwrap_err().to_string().contains("--force"));
        let mut half = NewFile::create(&at("old"), &[&at("source")], true).unwrap();
        half.write_all(b"half").unwrap();
        drop(half);
        assert_eq!(std::fs::read_to_string(at("old")).unwrap(), "old", "a write that breaks off changes nothing");
        let mut whole = NewFile::create(&at("old"), &[&at("source")], true).unwrap();
        whole.write_all(b"new").unwrap();
        whole.finish().unwrap();
        assert_eq!(std::fs::read_to_string(at("old")).unwrap(), "new");
        assert_eq!(std::fs::read_to_string(at("source")).unwrap(), "precious");
        let parts = |e: io::Result<std::fs::DirEntry>| e.unwrap().path().to_string_lossy().ends_with(".part");
        assert!(!std::fs::read_dir(folder.path()).unwrap().any(parts));
        assert!(NewFile::create(&at("none/x"), &[], false).unwrap_err().to_string().contains("there is no folder"));
        assert!(NewFile::create(folder.path(), &[], true).unwrap_err().to_string().contains("is a folder"));
    }

    #[cfg(unix)]
    #[test]
    fn own_links_are_followed_and_those_of_other_users_are_not() {
        use std::os::unix::fs::{lchown, symlink};
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("below")).unwrap();
        std::fs::write(at("below/target"), "old").unwrap();
        symlink("below/middle", at("link")).unwrap();
        symlink("target", at("below/middle")).unwrap();
        let mut new = NewFile::create(&at("link"), &[], true).unwrap();
        new.write_all(b"new").unwrap();
        new.finish().unwrap();
        assert_eq!(std::fs::read_to_string(at("below/target")).unwrap(), "new");
        assert!(at("link").is_symlink() && at("below/middle").is_symlink());
        // Only root can give a link to another user.
        if lchown(at("below/middle"), Some(12_345), None).is_ok() {
            let sentence = NewFile::create(&at("link"), &[], true).unwrap_err().to_string();
            assert!(sentence.contains("is a link that another user (number 12345) made"), "{sentence}");
            assert_eq!(std::fs::read_to_string(at("below/target")).unwrap(), "new");
        }
    }

    #[test]
    fn a_file_that_appears_meanwhile_is_not_replaced_unasked_and_one_in_use_never() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let mut new = NewFile::create(&out, &[], false).unwrap();
        new.write_all(b"ours").unwrap();
        std::fs::write(&out, "theirs").unwrap();
        assert!(new.finish().unwrap_err().to_string().contains("exists already"));
        let busy = File::open(&out).unwrap();
        busy.lock().unwrap();
        let sentence = NewFile::create(&out, &[], true).unwrap_err().to_string();
        assert!(sentence.contains("is being written by another process"), "{sentence}");
        drop(busy);
        let new = NewFile::create(&out, &[], true).unwrap();
        let busy = File::open(&out).unwrap();
        busy.lock().unwrap();
        assert!(new.finish().unwrap_err().to_string().contains("is being written"), "asked again when the name is given");
        assert_eq!(std::fs::read_to_string(&out).unwrap(), "theirs");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }
}
