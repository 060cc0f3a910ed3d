//! Restricts access to files in the named folders.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use vramscope_core::formats::folder::{is_log_name, is_recording_name};

/// How deep subfolders are searched, and how many entries are examined, when recordings are listed.
const DEEPEST: usize = 6;
const ENTRIES: usize = 20_000;

/// What was found so far.
struct Walk {
    found: Vec<(PathBuf, u64)>,
    /// Entries that were examined.
    seen: usize,
    /// No folder was left out. Hidden ones do not count.
    is_all: bool,
}

impl Default for Walk {
    fn default() -> Self {
        Walk { found: Vec::new(), seen: 0, is_all: true }
    }
}

/// Folders by their real paths.
#[derive(Debug)]
pub(super) struct Folders(Vec<PathBuf>);

impl Folders {
    /// Fails with one sentence that names a path that is not a folder.
    pub(super) fn new(folders: &[PathBuf]) -> Result<Self, String> {
        let real = |folder: &PathBuf| {
            let real = folder.canonicalize().ok().filter(|real| real.is_dir());
            let why =
                || if folder.is_file() { "this is a file; name the folder that it is in" } else { "there is no such folder" };
            real.ok_or_else(|| format!("{}: {}", folder.display(), why()))
        };
        Ok(Folders(folders.iter().map(real).collect::<Result<_, _>>()?))
    }

    /// The real path of a file inside the folders, whatever links and dots its name has. `page.html::rank1.pickle` is a snapshot
    /// in a page. A missing file and a file outside the folders fail with the same sentence, so that nothing is revealed about
    /// other folders.
    pub(super) fn file(&self, name: &str) -> Result<PathBuf, String> {
        let not_there = || {
            format!("{name}: there is no such file in the folders that this server may read; `open` without a file lists them")
        };
        if let Some(real) = self.find(Path::new(name)) {
            return Ok(real);
        }
        let (file, choice) = name.rsplit_once("::").ok_or_else(not_there)?;
        let mut real = self.find(Path::new(file)).ok_or_else(not_there)?.into_os_string();
        real.push("::");
        real.push(choice);
        Ok(real.into())
    }

    fn find(&self, name: &Path) -> Option<PathBuf> {
        // Joining an absolute name replaces the folder.
        let named = self.0.iter().filter_map(|folder| folder.join(name).canonicalize().ok());
        let mut inside = named.filter(|real| self.0.iter().any(|folder| real.starts_with(folder)));
        // Only regular files, because a pipe or a device may never end.
        inside.find(|real| real.is_file())
    }

    /// The recordings and logs in the folders, by name. Links to files inside the folders are listed. Links to folders are not
    /// followed.
    pub(super) fn list(&self) -> Value {
        let mut walk = Walk::default();
        for folder in &self.0 {
            self.walk(folder, 0, &mut walk);
        }
        let Walk { mut found, is_all, .. } = walk;
        found.sort();
        let files: Vec<Value> =
            found.iter().map(|(path, bytes)| json!({ "file": path.display().to_string(), "bytes": bytes })).collect();
        json!({
            "folders": self.0.iter().map(|f| f.display().to_string()).collect::<Vec<_>>(),
            "files": files,
            "all_looked_at": is_all,
        })
    }

    fn walk(&self, folder: &Path, depth: usize, walk: &mut Walk) {
        let Ok(entries) = std::fs::read_dir(folder) else {
            walk.is_all = false;
            return;
        };
        for entry in entries.flatten() {
            walk.seen += 1;
            if walk.seen >= ENTRIES {
                walk.is_all = false;
                return;
            }
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && !name.starts_with('.') {
                match depth < DEEPEST {
                    true => self.walk(&path, depth + 1, walk),
                    false => walk.is_all = false,
                }
            } else if (is_recording_name(&name) || is_log_name(&name))
                && (kind.is_file() || kind.is_symlink() && self.find(&path).is_some())
            {
                let bytes = std::fs::metadata(&path).map_or(0, |m| m.len());
                walk.found.push((path, bytes));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn nothing_outside_the_folders_is_a_file() {
        let outside = tempfile::tempdir().unwrap();
        let inside = tempfile::tempdir().unwrap();
        let secret = outside.path().join("secret.pickle");
        std::fs::write(&secret, "x").unwrap();
        std::fs::write(inside.path().join("a.pickle"), "x").unwrap();
        std::fs::create_dir(inside.path().join("deeper")).unwrap();
        std::fs::write(inside.path().join("deeper/b.pickle"), "x").unwrap();
        std::os::unix::fs::symlink(&secret, inside.path().join("link.pickle")).unwrap();
        std::os::unix::fs::symlink(outside.path(), inside.path().join("linked")).unwrap();
        std::os::unix::fs::symlink(inside.path().join("a.pickle"), inside.path().join("own.pickle")).unwrap();
        let folders = Folders::new(&[inside.path().to_owned()]).unwrap();
        let real = inside.path().canonicalize().unwrap();
        for (name, file) in [
            ("a.pickle", "a.pickle"),
            ("deeper/../a.pickle", "a.pickle"),
            ("own.pickle", "a.pickle"),
            ("deeper/b.pickle", "deeper/b.pickle"),
        ] {
            assert_eq!(folders.file(name), Ok(real.join(file)), "{name}");
        }
        assert_eq!(folders.file(&real.join("a.pickle").display().to_string()), Ok(real.join("a.pickle")));
        let up = format!("../{}/secret.pickle", outside.path().file_name().unwrap().to_str().unwrap());
        let secret = secret.display().to_string();
        for name in ["link.pickle", "linked/secret.pickle", &up, &secret, "/etc/passwd", "deeper", "none", "", "a.pickle\0"] {
            assert!(folders.file(name).unwrap_err().contains("there is no such file"), "{name}");
        }
        let listed = folders.list()["files"].to_string();
        assert!(["a.pickle", "b.pickle", "own.pickle"].iter().all(|name| listed.contains(name)), "{listed}");
        assert!(!["secret", "link.pickle", "linked"].iter().any(|name| listed.contains(name)), "{listed}");
        assert!(Folders::new(&[inside.path().join("a.pickle")]).is_err());
        assert_eq!(folders.list()["all_looked_at"], true);
        std::fs::create_dir_all(inside.path().join("1/2/3/4/5/6/7")).unwrap();
        std::fs::write(inside.path().join("1/2/3/4/5/6/7/far.pickle"), "x").unwrap();
        let listed = folders.list();
        assert!(!listed["files"].to_string().contains("far.pickle"));
        assert_eq!(listed["all_looked_at"], false, "{listed}");
    }
}
