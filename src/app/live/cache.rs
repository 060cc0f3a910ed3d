//! The file of a watch in the user's cache folder: made when the watch begins, deleted when its tab is closed, and found again by the
//! next window where vramscope ended before that.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::Kept;

/// A watch that nobody saved or closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::app) struct LeftWatch {
    pub path: PathBuf,
    pub bytes: u64,
    /// When its last sample was written.
    pub written: SystemTime,
}

fn folder() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|h| h.join(".cache"))).unwrap_or_else(std::env::temp_dir);
    base.join("vramscope")
}

/// Creates a private file for the session.
pub(super) fn tempfile() -> Option<(PathBuf, std::fs::File)> {
    let folder = folder();
    std::fs::create_dir_all(&folder).ok()?;
    let path = folder.join(format!("live-{}-{}.vramscope", std::process::id(), vramscope_live::live::wall_clock_us()));
    let mut options = std::fs::OpenOptions::new();
    // Private, because the session contains command lines of programs.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.write(true).create_new(true).open(&path).ok()?;
    // Held until the watch or its program ends. Without locks on this disk nobody takes the file for one that was left.
    let _ = file.try_lock();
    Some((path, file))
}

/// Deletes the file of a watch that ended normally.
pub(super) fn delete_cache_file(kept: &Kept) {
    if let Some(path) = kept.get() {
        let _ = std::fs::remove_file(path);
    }
}

/// The watches that were left, the newest last. Reads the folder, so not for the window's thread.
pub(in crate::app) fn left_watches() -> Vec<LeftWatch> {
    left_in(&folder())
}

fn left_in(folder: &Path) -> Vec<LeftWatch> {
    let is_watch = |name: &str| name.starts_with("live-") && name.ends_with(".vramscope");
    let left = |entry: std::fs::DirEntry| {
        let about =
            entry.metadata().ok().filter(|m| m.is_file() && m.len() > 0 && is_watch(&entry.file_name().to_string_lossy()))?;
        // Another window, container or machine that shares the folder may still write it.
        let file = std::fs::OpenOptions::new().write(true).open(entry.path()).ok()?;
        file.try_lock().ok()?;
        Some(LeftWatch { path: entry.path(), bytes: about.len(), written: about.modified().ok()? })
    };
    let mut all: Vec<LeftWatch> = std::fs::read_dir(folder).into_iter().flatten().flatten().filter_map(left).collect();
    all.sort_by_key(|left| left.written);
    all
}

/// Gives a left watch a name under which it is not offered again. Where that fails it keeps the one it has.
pub(in crate::app) fn take_over(path: PathBuf) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().replacen("live-", "watch-", 1));
    let to = name.map(|name| path.with_file_name(name));
    match to {
        Some(to) if std::fs::rename(&path, &to).is_ok() => to,
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_whose_program_is_gone_is_offered_until_it_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("live-7-1796034488011474.vramscope", "samples");
        write("live-8-1796034488011475.vramscope", "of a window that is open");
        write("live-9-1796034488011476.vramscope", "");
        write("notes.txt", "of somebody else");
        let open = std::fs::File::create(folder.path().join("live-8-1796034488011475.vramscope")).unwrap();
        std::io::Write::write_all(&mut &open, b"samples").unwrap();
        open.lock().unwrap();
        let left = || left_in(folder.path());
        let [one] = &left()[..] else { panic!("{:?}", left()) };
        assert_eq!((one.bytes, one.path.ends_with("live-7-1796034488011474.vramscope")), (7, true));
        let taken = take_over(one.path.clone());
        assert!(taken.exists() && left().is_empty(), "{taken:?}");
        drop(open);
        assert_eq!(left().len(), 1, "the program that held it is gone");
    }
}
