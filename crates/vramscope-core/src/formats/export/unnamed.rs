//! A file without a name until it is published: nobody can put another file in its place, and a killed process leaves nothing.

use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Prefix and suffix of unfinished files, on file systems that have no unnamed files.
const HIDDEN: (&str, &str) = (".vramscope-", ".part");
/// An unfinished file that is unlocked for this long belongs to a killed process. A new one is locked at once.
const STALE: Duration = Duration::from_secs(60);

/// An open file without a name, in the folder of its future name. Locked until it is closed.
#[derive(Debug)]
pub struct Unnamed {
    file: File,
    folder: PathBuf,
    /// Its temporary path, on a file system that has no unnamed files.
    hidden: Option<PathBuf>,
}

impl Unnamed {
    /// Creates a file that can later get the name `target`.
    pub fn beside(target: &Path) -> io::Result<Self> {
        let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf();
        let (file, hidden) = match without_name(&folder) {
            Some(file) => (file, None),
            None => {
                sweep(&folder);
                let hidden = free_name(&folder);
                // Fails if the name exists, also as a dangling link.
                (File::options().read(true).write(true).create_new(true).open(&hidden)?, Some(hidden))
            }
        };
        // On a file system without locks the file is written all the same.
        let _ = file.try_lock();
        Ok(Unnamed { file, folder, hidden })
    }

    /// The file to write to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file a new name. Fails with `AlreadyExists` if the name exists.
    pub fn link(&mut self, target: &Path) -> io::Result<()> {
        let Some(hidden) = &self.hidden else { return link_open(&self.file, target) };
        if let Err(e) = std::fs::hard_link(hidden, target) {
            if e.kind() == io::ErrorKind::AlreadyExists {
                return Err(e);
            }
            // A file system without hard links: reserve the name, then move the file there.
            drop(File::create_new(target)?);
            std::fs::rename(hidden, target)?;
        }
        let _ = self.hidden.take().map(std::fs::remove_file);
        Ok(())
    }

    /// Replaces an existing file and copies its access permissions. On failure the old file is unchanged.
    pub fn replace(&mut self, target: &Path) -> io::Result<()> {
        if let Ok(older) = std::fs::metadata(target) {
            keep_mode(&self.file, &older);
        }
        if self.hidden.is_none() {
            sweep(&self.folder);
            let hidden = free_name(&self.folder);
            link_open(&self.file, &hidden)?;
            self.hidden = Some(hidden);
        }
        if let Some(hidden) = &self.hidden {
            std::fs::rename(hidden, target)?;
        }
        self.hidden = None;
        Ok(())
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        // The unfinished file is useless; failing to remove it is not worth an error.
        let _ = self.hidden.take().map(std::fs::remove_file);
    }
}

/// Copies the permissions; on failure the file keeps those of any new file of the user.
fn keep_mode(file: &File, older: &std::fs::Metadata) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
        // Without set-uid and set-gid bits: nothing written for a user may run as somebody else.
        let _ = file.set_permissions(std::fs::Permissions::from_mode(older.mode() & 0o777));
    }
    #[cfg(not(unix))]
    let _ = (file, older);
}

/// A name that nobody can guess and occupy before.
fn free_name(folder: &Path) -> PathBuf {
    let random = std::hash::RandomState::new().build_hasher().finish();
    folder.join(format!("{}{random:016x}{}", HIDDEN.0, HIDDEN.1))
}

#[cfg(target_os = "linux")]
fn without_name(folder: &Path) -> Option<File> {
    use rustix::fs::{Mode, OFlags, open};
    // The file gets its name through this folder later.
    if !Path::new("/proc/self/fd").is_dir() {
        return None;
    }
    open(folder, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::from_raw_mode(0o666)).ok().map(File::from)
}

#[cfg(not(target_os = "linux"))]
fn without_name(_folder: &Path) -> Option<File> {
    None
}

#[cfg(target_os = "linux")]
fn link_open(file: &File, target: &Path) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(rustix::fs::CWD, open, rustix::fs::CWD, target, rustix::fs::AtFlags::SYMLINK_FOLLOW)?)
}

#[cfg(not(target_os = "linux"))]
fn link_open(_file: &File, _target: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Removes unfinished files of killed processes.
fn sweep(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_ours = name.starts_with(HIDDEN.0) && name.ends_with(HIDDEN.1) && entry.file_type().is_ok_and(|t| t.is_file());
        let is_old =
            || entry.metadata().and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok()).is_some_and(|age| age > STALE);
        if is_ours && is_old() && File::open(entry.path()).is_ok_and(|f| f.try_lock().is_ok()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// One of each kind: unnamed, and under a hidden name.
    fn both(folder: &Path) -> Vec<Unnamed> {
        let hidden = free_name(folder);
        let file = File::options().read(true).write(true).create_new(true).open(&hidden).unwrap();
        file.try_lock().unwrap();
        let named = Unnamed { file, folder: folder.to_owned(), hidden: Some(hidden) };
        vec![named, Unnamed::beside(&folder.join("x")).unwrap()]
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn it_takes_a_free_name_or_an_older_files_place_and_else_leaves_nothing() {
        for which in 0..2 {
            let folder = tempfile::tempdir().unwrap();
            let out = folder.path().join("out");
            let take = || both(folder.path()).swap_remove(which);
            drop(take());
            assert_eq!(names(folder.path()), [""; 0]);
            let mut first = take();
            first.file().write_all(b"first").unwrap();
            first.link(&out).unwrap();
            let mut second = take();
            assert_eq!(second.link(&out).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            second.file().write_all(b"second").unwrap();
            #[cfg(unix)]
            let mode = {
                use std::os::unix::fs::PermissionsExt as _;
                std::fs::set_permissions(&out, std::fs::Permissions::from_mode(0o600)).unwrap();
                || std::fs::metadata(&out).unwrap().permissions().mode() & 0o777
            };
            second.replace(&out).unwrap();
            assert_eq!(std::fs::read(&out).unwrap(), b"second");
            #[cfg(unix)]
            assert_eq!(mode(), 0o600, "what was private stays so");
            // Writing continues under its new name.
            second.file().write_all(b" more").unwrap();
            assert!(File::open(&out).unwrap().try_lock().is_err(), "locked while it is open");
            drop((first, second));
            assert_eq!((names(folder.path()), std::fs::read(&out).unwrap()), (vec!["out".to_owned()], b"second more".to_vec()));
        }
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str, is_old: bool| {
            let file = File::create(folder.path().join(name)).unwrap();
            if is_old {
                file.set_modified(std::time::SystemTime::now() - 2 * STALE).unwrap();
            }
            file
        };
        make(".vramscope-0000.part", true);
        make(".vramscope-1111.part", false);
        make("other.part", true);
        let busy = make(".vramscope-2222.part", true);
        busy.lock().unwrap();
        sweep(folder.path());
        assert_eq!(names(folder.path()), [".vramscope-1111.part", ".vramscope-2222.part", "other.part"]);
    }
}
