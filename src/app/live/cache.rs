//! The file of a watch in the user's cache folder: made when the watch begins, deleted when its tab is closed, and found again by the
//! next window where vramscope ended before that.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

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
    left_in(&folder(), SystemTime::now(), |pid| Path::new(&format!("/proc/{pid}")).exists())
}

fn left_in(folder: &Path, now: SystemTime, is_running: impl Fn(u32) -> bool) -> Vec<LeftWatch> {
    // Other machines may share the folder, and have processes that are not seen here: a watch writes all the time.
    let least_age = if cfg!(target_os = "linux") { Duration::from_secs(3) } else { Duration::from_secs(86_400) };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let left = |entry: std::fs::DirEntry| {
        let pid = process_of(&entry.file_name().to_string_lossy())?;
        let about = entry.metadata().ok().filter(|m| m.is_file() && m.len() > 0)?;
        let written = about.modified().ok()?;
        let is_left = !is_running(pid) && now.duration_since(written).is_ok_and(|age| age >= least_age);
        is_left.then(|| LeftWatch { path: entry.path(), bytes: about.len(), written })
    };
    let mut all: Vec<LeftWatch> = entries.filter_map(left).collect();
    all.sort_by_key(|left| left.written);
    all
}

/// The process that wrote a watch, from the name that [`tempfile`] gave it.
fn process_of(name: &str) -> Option<u32> {
    name.strip_prefix("live-")?.strip_suffix(".vramscope")?.split_once('-')?.0.parse().ok()
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
        let later = SystemTime::now() + Duration::from_secs(100_000);
        let left = |now| left_in(folder.path(), now, |pid| pid == 8);
        assert_eq!(left(SystemTime::now()), [], "it may still be written, by another machine");
        let [one] = &left(later)[..] else { panic!("{:?}", left(later)) };
        assert_eq!((one.bytes, one.path.ends_with("live-7-1796034488011474.vramscope")), (7, true));
        let taken = take_over(one.path.clone());
        assert!(taken.exists() && left(later).is_empty(), "{taken:?}");
    }
}
