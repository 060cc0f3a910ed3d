//! Folders of recordings: which files of a folder, or of a pattern, may hold one.

use std::path::{Path, PathBuf};

/// Endings of the files that trainers and profilers write recordings to. Files named one by one need none of them.
pub const ENDINGS: [&str; 14] = [
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
    ".vramscope",
];

/// True when the name ends as recordings do, in any case; hidden files and unfinished downloads do not.
#[must_use]
pub fn is_recording_name(name: &str) -> bool {
    let name = name.to_lowercase();
    !name.starts_with('.') && ENDINGS.iter().any(|e| name.ends_with(e))
}

/// Endings of the files that programs and schedulers write their output to.
const LOG_ENDINGS: [&str; 5] = [".log", ".out", ".err", ".txt", ".stderr"];

/// True when the name ends as logs do, in any case; hidden files do not count.
#[must_use]
pub fn is_log_name(name: &str) -> bool {
    let name = name.to_lowercase();
    !name.starts_with('.') && LOG_ENDINGS.iter().any(|e| name.ends_with(e))
}

/// The recordings of folders, patterns (`run/rank*.pickle`, for shells that do not expand them and for quoted ones) and files named
/// one by one, sorted by path, each once. Of a folder its subfolders are listed too, but not what is below them: trainers write a folder a
/// step, with a file a rank in each. Cost: one listing a folder, no file is opened.
///
/// # Errors
/// One sentence when a folder can not be listed or nothing is found.
pub fn recordings_in(paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            for folder in list(path, is_recording_name, &mut files)? {
                // One that may not be listed is somebody else's; its neighbours are still there.
                let _ = list(&folder, is_recording_name, &mut files);
            }
        } else if !path.exists()
            && let Some(pattern) = path.file_name().and_then(|n| n.to_str()).filter(|n| n.contains(['*', '?']))
        {
            let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            list(folder, |name| matches(pattern, name), &mut files)?;
        } else {
            files.push(path.clone());
        }
    }
    files.sort();
    files.dedup();
    if files.is_empty() {
        let named: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
        return Err(format!("{}: no recordings here; they end in {}", named.join(", "), ENDINGS.join(", ")));
    }
    Ok(files)
}

/// Adds the files of a folder whose names are wanted; its subfolders, but hidden ones.
fn list(folder: &Path, wanted: impl Fn(&str) -> bool, files: &mut Vec<PathBuf>) -> Result<Vec<PathBuf>, String> {
    let failed = |e: std::io::Error| format!("{}: the folder can not be listed: {e}", folder.display());
    let mut below = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_string_lossy();
        if wanted(&name) && path.is_file() {
            files.push(path);
        } else if !name.starts_with('.') && path.is_dir() {
            below.push(path);
        }
    }
    Ok(below)
}

/// True when `name` fits `pattern`, where `*` stands for any characters and `?` for one.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    // The usual two-pointer walk: on a mismatch the last star takes one character more.
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
        assert_eq!(names(&[folder.path().to_path_buf()]).len(), 4, "a folder's own subfolders are listed");
        assert!(recordings_in(&[empty]).unwrap_err().contains("no recordings here"));
    }
}
