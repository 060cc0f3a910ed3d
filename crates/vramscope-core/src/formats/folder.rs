//! Finds the files of a folder or a pattern that may be recordings.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// File endings that trainers and profilers use for recordings. Files given by name need none of them.
pub const ENDINGS: [&str; 15] = [
    ".pickle",
    ".pkl",
    ".pickle.gz",
    ".pkl.gz",
    ".pickle.zst",
    ".pkl.zst",
    ".pt",
    ".json",
    ".json.gz",
    ".json.zst",
    ".html",
    ".csv",
    ".csv.gz",
    ".prof",
    ".vramscope",
];

/// True for a name with such an ending, in any case. Excludes hidden files, unfinished downloads, and the `.about.json` files
/// that `vramscope run --at-oom` writes beside snapshots.
pub fn is_recording_name(name: &str) -> bool {
    let name = name.to_lowercase();
    !name.starts_with('.') && !name.ends_with(".about.json") && ENDINGS.iter().any(|e| name.ends_with(e))
}

/// File endings that programs and schedulers use for their output.
const LOG_ENDINGS: [&str; 5] = [".log", ".out", ".err", ".txt", ".stderr"];

/// True for a name with such an ending, in any case; excludes hidden files.
pub fn is_log_name(name: &str) -> bool {
    let name = name.to_lowercase();
    !name.starts_with('.') && LOG_ENDINGS.iter().any(|e| name.ends_with(e))
}

/// True for a path that does not exist and contains `*` or `?`: a pattern that no shell expanded.
pub fn is_pattern(path: &Path) -> bool {
    path.iter().any(has_wildcards) && !path.exists()
}

fn has_wildcards(part: &OsStr) -> bool {
    part.to_str().is_some_and(|part| part.contains(['*', '?']))
}

/// Why no recordings were found.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A given folder cannot be listed.
    #[error("{}: the folder cannot be listed: {source}", folder.display())]
    NotListed {
        /// A folder as given, or the folder before the first wildcard of a pattern.
        folder: PathBuf,
        /// From listing it or from one of its entries.
        source: std::io::Error,
    },
    /// No file there can be a recording.
    #[error("{}: no recordings here; they end in {}", names(paths), ENDINGS.join(", "))]
    NoRecordings {
        /// The paths that were searched.
        paths: Vec<PathBuf>,
    },
}

fn names(paths: &[PathBuf]) -> String {
    let named: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
    named.join(", ")
}

/// The recordings in folders, patterns (`run/*/rank*.pickle`, quoted or from shells that do not expand them) and files given by
/// name, sorted by path, without duplicates. Folders are searched down to three levels, because trainers write a folder per step
/// with a file per rank (`outputs/memory_snapshot/iteration_10/rank0_memory_snapshot.pickle`). Cost: one listing per folder; only
/// files without any ending are opened, to check their first bytes. Fails when a folder cannot be listed or nothing is found.
pub fn recordings_in(paths: &[PathBuf]) -> Result<Vec<PathBuf>, FolderError> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            with_subfolders(path, &mut files)?;
        } else if is_pattern(path) {
            fitting(path, &mut files)?;
        } else {
            files.push(path.clone());
        }
    }
    files.sort();
    files.dedup();
    if files.is_empty() {
        return Err(FolderError::NoRecordings { paths: paths.to_vec() });
    }
    Ok(files)
}

/// Levels of subfolders that are searched: torchtitan's recordings are three levels below its output folder.
const DEPTH: usize = 3;
/// Maximum number of subfolders listed; more would be a whole disk.
const MOST_FOLDERS: usize = 2_000;

/// Adds the recordings of a folder and its subfolders.
fn with_subfolders(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), FolderError> {
    let may_be_one = |path: &Path, name: &str| is_recording_name(name) || is_unnamed_recording(path, name);
    let mut level = list(folder, may_be_one, files)?;
    let mut listed = 0;
    for _ in 0..DEPTH {
        level.sort();
        level.truncate(MOST_FOLDERS - listed);
        listed += level.len();
        // A subfolder that cannot be listed may belong to another user; its neighbours are still searched.
        level = level.iter().filter_map(|below| list(below, may_be_one, files).ok()).flatten().collect();
    }
    Ok(())
}

/// True for a file without an ending that begins like a recording: `_dump_snapshot("snapshot")`.
fn is_unnamed_recording(path: &Path, name: &str) -> bool {
    if name.contains('.') {
        return false;
    }
    let mut head = Vec::new();
    let read = super::open_regular(path).and_then(|file| file.take(4096).read_to_end(&mut head));
    read.is_ok() && super::sniff(&head) != super::FileKind::Unknown
}

/// Adds the files that match a pattern, and the recordings of folders that match. `*` and `?` match within a part of the path.
fn fitting(pattern: &Path, files: &mut Vec<PathBuf>) -> Result<(), FolderError> {
    let parts: Vec<&OsStr> = pattern.iter().collect();
    let first = parts.iter().position(|part| has_wildcards(part)).unwrap_or(parts.len());
    let start: PathBuf = parts[..first].iter().collect();
    let mut folders = vec![if first == 0 { PathBuf::from(".") } else { start }];
    for (at, part) in parts.iter().enumerate().skip(first) {
        let is_last = at + 1 == parts.len();
        if !has_wildcards(part) {
            let below = folders.iter().map(|folder| folder.join(part));
            let (there, file): (Vec<PathBuf>, Vec<PathBuf>) = below.filter(|path| path.exists()).partition(|path| path.is_dir());
            folders = there;
            files.extend(file.into_iter().filter(|_| is_last));
            continue;
        }
        let pattern = part.to_string_lossy();
        let mut below = Vec::new();
        for folder in &folders {
            let mut fit = Vec::new();
            // As in a shell, hidden files must be matched explicitly.
            let fits = |_: &Path, name: &str| matches(&pattern, name) && (pattern.starts_with('.') || !name.starts_with('.'));
            match list(folder, fits, &mut fit) {
                Ok(inside) => below.extend(inside.into_iter().filter(|path| matches(&pattern, &name_of(path)))),
                // The folder before the first wildcard must exist; one that only matches may belong to another user.
                Err(error) if at == first => return Err(error),
                Err(_) => {}
            }
            files.extend(fit.into_iter().filter(|_| is_last));
        }
        folders = below;
    }
    for folder in folders {
        let _ = with_subfolders(&folder, files);
    }
    Ok(())
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Adds the wanted files of a folder; returns its subfolders except hidden ones.
fn list(folder: &Path, wanted: impl Fn(&Path, &str) -> bool, files: &mut Vec<PathBuf>) -> Result<Vec<PathBuf>, FolderError> {
    let failed = |source: std::io::Error| FolderError::NotListed { folder: folder.to_owned(), source };
    let mut below = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_string_lossy();
        if path.is_file() && wanted(&path, &name) {
            files.push(path);
        } else if !name.starts_with('.') && path.is_dir() {
            below.push(path);
        }
    }
    Ok(below)
}

/// True when `name` matches `pattern`; `*` stands for any characters and `?` for one.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    // Two-pointer matching: on a mismatch the last star consumes one more character.
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&c) if c == '?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_a_shell_does() {
        for (pattern, name, want) in [
            ("*.pickle", "a.pickle", true),
            ("*.pickle", "a.pickle.gz", false),
            ("rank?.pkl", "rank3.pkl", true),
            ("rank?.pkl", "rank12.pkl", false),
            ("*rank*_end*", "ddp_rank12_end.pickle", true),
            ("**", "", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
        ] {
            assert_eq!(matches(pattern, name), want, "{pattern} {name}");
        }
    }

    #[test]
    fn folders_patterns_and_files_are_listed_once_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b_rank1.pickle", "a_rank0.pickle", "notes.txt", ".hidden.pickle", "c.pkl.gz"] {
            std::fs::write(folder.path().join(name), b"x").unwrap();
        }
        let names = |paths: &[PathBuf]| -> Vec<String> {
            recordings_in(paths).unwrap().iter().map(|p| p.file_name().unwrap().to_string_lossy().into_owned()).collect()
        };
        let all = names(&[folder.path().to_path_buf(), folder.path().join("c.pkl.gz")]);
        assert_eq!(all, ["a_rank0.pickle", "b_rank1.pickle", "c.pkl.gz"]);
        assert_eq!(names(&[folder.path().join("*rank*")]), ["a_rank0.pickle", "b_rank1.pickle"]);
        let empty = folder.path().join("empty");
        std::fs::create_dir(&empty).unwrap();
        let deep = folder.path().join("step_9").join("deeper");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("x.pickle"), b"x").unwrap();
        std::fs::write(folder.path().join("step_9").join("rank0.pickle"), b"x").unwrap();
        assert_eq!(names(&[folder.path().to_path_buf()]).len(), 5, "what is below a folder is listed too");
        let too_deep = deep.join("b").join("c");
        std::fs::create_dir_all(&too_deep).unwrap();
        std::fs::write(too_deep.join("x.pickle"), b"x").unwrap();
        assert_eq!(names(&[folder.path().to_path_buf()]).len(), 5, "but not a whole disk");
        assert!(recordings_in(&[empty]).unwrap_err().to_string().contains("no recordings here"));
    }

    /// Files as torchtitan, verl and Megatron-LM write them, and names without an ending.
    #[test]
    fn the_folders_of_trainers_are_read_from_their_top() {
        let folder = tempfile::tempdir().unwrap();
        let written = [
            "outputs/memory_snapshot/iteration_10/rank0_memory_snapshot.pickle",
            "outputs/memory_snapshot/iteration_10/replica_1/rank1_memory_snapshot.pickle",
            "outputs/profile_traces/iteration_10/rank0_trace.json",
            "outputs/profile/step3/torch_memory_rank0_pid4242.pickle",
            "outputs/snapshot_0.pickle",
            "outputs/snapshot_oom_rank_0.pickle",
        ];
        for name in written {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, b"x").unwrap();
        }
        std::fs::write(folder.path().join("outputs/snapshot"), b"\x80\x04}.").unwrap();
        std::fs::write(folder.path().join("outputs/Makefile"), b"all:").unwrap();
        let found = recordings_in(&[folder.path().join("outputs")]).unwrap();
        let names: Vec<_> = found.iter().map(|f| f.strip_prefix(folder.path()).unwrap().to_string_lossy().into_owned()).collect();
        let mut wanted: Vec<&str> = written.to_vec();
        wanted.push("outputs/snapshot");
        wanted.sort_by_key(|name| PathBuf::from(name));
        assert_eq!(names, wanted);
    }

    #[test]
    fn a_pattern_works_in_every_part_of_a_path() {
        let folder = tempfile::tempdir().unwrap();
        for (node, rank) in [("n0", 0), ("n1", 1), ("other", 2)] {
            let place = folder.path().join("jobs").join(node).join("mem");
            std::fs::create_dir_all(&place).unwrap();
            std::fs::write(place.join(format!("rank{rank}.pickle")), b"x").unwrap();
            std::fs::write(place.join("notes.txt"), b"x").unwrap();
        }
        let found = |pattern: &str| -> Vec<String> {
            let files = recordings_in(&[folder.path().join(pattern)]).unwrap_or_default();
            files.iter().map(|f| f.strip_prefix(folder.path()).unwrap().to_string_lossy().into_owned()).collect()
        };
        let both = ["jobs/n0/mem/rank0.pickle", "jobs/n1/mem/rank1.pickle"];
        assert_eq!(found("jobs/n*/mem/rank*.pickle"), both);
        assert_eq!(found("jobs/n?/mem/rank?.pickle"), both);
        assert_eq!(found("jobs/n?/*/*.pickle"), both);
        assert_eq!(found("*/n?/mem/rank1.pickle"), both[1..]);
        assert_eq!(found("jobs/n*"), both, "folders that fit are read as folders are");
        assert_eq!(found("jobs/n*/none*"), [""; 0]);
        let lost = recordings_in(&[folder.path().join("lost/*/rank*.pickle")]).unwrap_err().to_string();
        assert!(lost.contains("lost: the folder cannot be listed"), "{lost}");
    }
}
