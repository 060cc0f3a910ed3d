//! Finds a file named in a recording on this machine.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use vramscope_core::formats::open_regular;
use vramscope_core::units::is_steering;

/// A path prefix in recordings, and the folder on this machine that replaces it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathPrefix {
    /// The recorded prefix, such as `/workspace`. Empty for relative paths.
    pub theirs: String,
    pub ours: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The name might not mean a file of this machine: one sentence.
    Refused(String),
    /// No such file here, because another machine made the recording.
    NotHere,
}

/// Longer names are not tried; no system accepts them.
const LONGEST: usize = 4096;

/// A recorded name for use in a sentence: one line, without control characters, cut to a readable length.
pub fn shown(name: &str) -> String {
    const MOST: usize = 96;
    let plain = |c: char| if c.is_control() || is_steering(c) { '\u{fffd}' } else { c };
    let letters = name.chars().count();
    if letters <= MOST {
        return name.chars().map(plain).collect();
    }
    let head: String = name.chars().take(MOST / 3).map(plain).collect();
    let tail: String = name.chars().skip(letters - MOST * 2 / 3).map(plain).collect();
    format!("{head}…{tail}")
}

/// The absolute path of a recorded file on this machine. Tries the longest matching prefix first, and the recorded path last. Fails
/// when the name could be read as more than a file name, and when no regular file exists there.
pub fn locate(recorded: &str, prefixes: &[PathPrefix]) -> Result<String, Missing> {
    let refused = |why: &str| Err(Missing::Refused(format!("{} is not opened: {why}", shown(recorded))));
    if recorded.is_empty() {
        return Err(Missing::Refused("This frame was recorded without a file.".to_owned()));
    }
    if recorded.len() > LONGEST {
        return refused("no file has so long a name.");
    }
    if recorded.chars().any(char::is_control) {
        return refused("its name holds control characters.");
    }
    if recorded.starts_with(['-', '+']) {
        return refused("an editor would take its name for an option.");
    }
    let mut known: Vec<(usize, PathBuf)> = prefixes.iter().filter_map(|p| under(recorded, p)).collect();
    known.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
    let is_network = recorded.starts_with("//") || recorded.starts_with("\\\\");
    let as_recorded = (!is_network).then(|| std::path::absolute(recorded).ok()).flatten();
    for candidate in known.into_iter().map(|(_, path)| path).chain(as_recorded) {
        // Links are resolved first, so that the checks apply to the real file.
        let Ok(path) = candidate.canonicalize() else { continue };
        if !path.metadata().is_ok_and(|meta| meta.is_file()) {
            return refused("it is no regular file.");
        }
        let Some(path) = path.to_str().map(|path| path.strip_prefix(r"\\?\").unwrap_or(path)) else {
            return refused("the path of the file it leads to is not text.");
        };
        if path.chars().any(char::is_control) {
            return refused("the path of the file it leads to holds control characters.");
        }
        // Emacs reads `/ssh:host:/file` as a file on another machine.
        if path.starts_with("UNC\\") || path.split('/').nth(1).is_some_and(|folder| folder.contains(':')) {
            return refused("it lies on another machine.");
        }
        return Ok(path.to_owned());
    }
    if is_network {
        return refused("it lies on another machine. In Settings, name the folder on this machine that stands for it.");
    }
    Err(Missing::NotHere)
}

/// Larger source files are not read for a line.
const LARGEST_SOURCE: u64 = 4 << 20;
/// Most characters of a line that are shown.
const LONGEST_LINE: usize = 200;

/// A line of a recorded source file without its indentation, from the same file that a click opens. `None` when there is no such
/// file or line. A relative path could mean any file of that name, so it needs a prefix from the user's settings.
pub fn line_of(recorded: &str, line: u32, prefixes: &[PathPrefix]) -> Option<String> {
    let is_known = Path::new(recorded).is_absolute() || prefixes.iter().any(|p| under(recorded, p).is_some());
    let path = is_known.then(|| locate(recorded, prefixes).ok()).flatten()?;
    let file = open_regular(Path::new(&path)).ok()?;
    // Files such as those in /proc have size 0, and some never end.
    let size = file.metadata().ok()?.len();
    let mut text = Vec::new();
    if size > LARGEST_SOURCE || file.take(size).read_to_end(&mut text).is_err() {
        return None;
    }
    let text = String::from_utf8_lossy(&text);
    let found = text.lines().nth((line as usize).checked_sub(1)?)?.trim();
    (!found.is_empty()).then(|| found.chars().take(LONGEST_LINE).collect())
}

/// The components of a recorded path, which may be a Windows path.
fn parts(recorded: &str) -> Vec<&str> {
    let is_windows = recorded.contains('\\') && !recorded.contains('/') || recorded.get(1..3) == Some(":\\");
    recorded.split(|c| c == '/' || (is_windows && c == '\\')).filter(|part| !part.is_empty() && *part != ".").collect()
}

/// The path that a prefix gives for a recorded path, and how many components the prefix covers.
fn under(recorded: &str, prefix: &PathPrefix) -> Option<(usize, PathBuf)> {
    let (recorded_parts, theirs) = (parts(recorded), parts(&prefix.theirs));
    let is_alike = recorded.starts_with('/') == prefix.theirs.starts_with('/');
    if prefix.ours.trim().is_empty() || !is_alike || !recorded_parts.starts_with(&theirs) {
        return None;
    }
    let rest = &recorded_parts[theirs.len()..];
    let is_below = !rest.is_empty() && !rest.contains(&"..");
    is_below.then(|| (theirs.len(), Path::new(prefix.ours.trim()).join(rest.iter().collect::<PathBuf>())))
}

/// Most files and folders searched below a chosen folder, since it may be a whole data disk.
const MOST_ENTRIES: usize = 50_000;
/// Depth of the deepest subfolder searched.
const DEEPEST: usize = 8;

/// Finds the prefix that maps a recorded file below `folder`: of all files there with its name, takes the one whose path shares
/// the most trailing components with the recorded path.
pub fn learn(recorded: &str, folder: &Path) -> Option<PathPrefix> {
    let wanted = parts(recorded);
    let name = *wanted.last()?;
    if wanted.contains(&"..") || name.chars().any(char::is_control) {
        return None;
    }
    let folder = folder.canonicalize().ok()?;
    // Tries the trailing parts of the recorded path, longest first, before it searches for a file of that name.
    let direct =
        (0..wanted.len()).map(|from| folder.join(wanted[from..].iter().collect::<PathBuf>())).find(|path| path.is_file());
    let mut best: Option<(usize, PathBuf)> = None;
    for path in direct.into_iter().chain(files_called(name, &folder)) {
        let common = common_tail(&wanted, &path);
        if best.as_ref().is_none_or(|(most, _)| common > *most) {
            best = Some((common, path));
        }
    }
    let (common, found) = best?;
    let ours = found.ancestors().nth(common)?.to_str()?.to_owned();
    Some(PathPrefix { theirs: without_tail(recorded, common), ours })
}

/// How many trailing components two paths share.
fn common_tail(wanted: &[&str], path: &Path) -> usize {
    let ours = path.iter().rev();
    wanted.iter().rev().zip(ours).take_while(|(theirs, ours)| OsStr::new(theirs) == *ours).count()
}

/// A recorded path without its last `count` components.
fn without_tail(recorded: &str, count: usize) -> String {
    let mut rest = recorded;
    for part in parts(recorded).iter().rev().take(count) {
        let at = rest.rfind(part).unwrap_or(0);
        rest = rest.get(..at).unwrap_or_default();
    }
    match parts(rest).is_empty() {
        true => if recorded.starts_with('/') { "/" } else { "" }.to_owned(),
        false => rest.trim_end_matches(['/', '\\']).to_owned(),
    }
}

/// Files of a name below a folder, nearest first. Skips hidden folders, which hold no sources, and links, which could form
/// cycles.
fn files_called(name: &str, folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = VecDeque::from([(folder.to_path_buf(), 0)]);
    let mut left = MOST_ENTRIES;
    while let Some((folder, depth)) = folders.pop_front() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Some(rest) = left.checked_sub(1) else { return found };
            left = rest;
            let Ok(kind) = entry.file_type() else { continue };
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if kind.is_dir() && depth < DEEPEST && !is_hidden {
                folders.push_back((entry.path(), depth + 1));
            } else if kind.is_file() && entry.file_name() == *name {
                found.push(entry.path());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &Path, path: &str) -> PathBuf {
        let file = folder.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "import torch\n").unwrap();
        file.canonicalize().unwrap()
    }

    fn refusal(recorded: &str) -> String {
        match locate(recorded, &[]) {
            Err(Missing::Refused(sentence)) => sentence,
            other => panic!("{recorded:?}: {other:?}"),
        }
    }

    #[test]
    fn only_regular_files_of_this_machine_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let train = file(folder.path(), "a b/train.py");
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        assert_eq!(locate(&path("a b/../a b/./train.py"), &[]).as_deref(), Ok(train.to_str().unwrap()));
        assert_eq!(locate(&path("gone.py"), &[]), Err(Missing::NotHere));
        assert!(refusal(&path("a b")).contains("no regular file"));
        assert!(refusal("").contains("without a file"));
        assert!(refusal(&"x".repeat(100_000)).len() < 200);
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("/dev/zero", path("zero.py")).unwrap();
            std::os::unix::fs::symlink(&train, path("link.py")).unwrap();
            let odd = file(folder.path(), "a\nb.py");
            std::os::unix::fs::symlink(&odd, path("odd.py")).unwrap();
            std::process::Command::new("mkfifo").arg(path("pipe.py")).status().unwrap();
            assert_eq!(locate(&path("link.py"), &[]).as_deref(), Ok(train.to_str().unwrap()));
            assert!(refusal(&path("zero.py")).contains("no regular file"));
            assert!(refusal(&path("pipe.py")).contains("no regular file"), "a pipe would be waited for");
            assert!(refusal(&path("odd.py")).contains("control characters"));
        }
    }

    #[test]
    fn a_source_line_is_read_only_from_a_file_that_ends() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let train = file(&root, "train.py");
        std::fs::write(&train, "import torch\n    x = torch.zeros(1)\n").unwrap();
        let read = |name: &str, line: u32| line_of(root.join(name).to_str().unwrap(), line, &[]);
        assert_eq!(read("train.py", 2).as_deref(), Some("x = torch.zeros(1)"));
        assert_eq!((read("train.py", 3), read("train.py", 0), read("gone.py", 1)), (None, None, None));
        let moved = PathPrefix { theirs: "/workspace".into(), ours: root.to_str().unwrap().into() };
        assert_eq!(line_of("/workspace/train.py", 1, std::slice::from_ref(&moved)).as_deref(), Some("import torch"));
        let here = PathPrefix { theirs: String::new(), ..moved };
        assert_eq!(line_of("train.py", 1, &[here]).as_deref(), Some("import torch"));
        assert_eq!(line_of("Cargo.toml", 1, &[]), None, "of whatever folder the program was started in");
        // A sparse file of 8 GiB.
        std::fs::File::create(root.join("huge.py")).unwrap().set_len(8 << 30).unwrap();
        std::process::Command::new("mkfifo").arg(root.join("pipe.py")).status().unwrap();
        std::os::unix::fs::symlink("/dev/zero", root.join("zero.py")).unwrap();
        std::os::unix::fs::symlink("/proc/self/maps", root.join("maps.py")).unwrap();
        let (sent, answers) = std::sync::mpsc::channel();
        let names = ["huge.py", "pipe.py", "zero.py", "maps.py"].map(|name| root.join(name).to_str().unwrap().to_owned());
        std::thread::spawn(move || names.iter().try_for_each(|name| sent.send(line_of(name, 1, &[]))));
        for _ in 0..4 {
            // A read that blocks for ever would be the bug.
            assert_eq!(answers.recv_timeout(std::time::Duration::from_secs(20)), Ok(None));
        }
    }

    #[test]
    fn names_that_do_something_are_never_opened() {
        for name in
            ["+call system(\"touch OWNED\")|\"/train.py", "-c!touch OWNED", "--cmd=x", "a\u{1b}]0;owned\u{7}.py", "/a\n+q.py"]
        {
            let said = refusal(name);
            assert!(said.contains("is not opened") && !said.contains('\u{1b}') && !said.contains('\n'), "{said}");
        }
        assert!(refusal("//host/share/train.py").contains("another machine"));
        assert!(refusal("\\\\host\\share\\train.py").contains("another machine"));
        assert_eq!(shown("a\u{202e}yp.exe"), "a\u{fffd}yp.exe");
    }

    #[test]
    fn a_chosen_folder_gives_the_prefix_by_the_longest_common_end() {
        let here = tempfile::tempdir().unwrap();
        let root = here.path().canonicalize().unwrap();
        let (near, far) = (file(&root, "code/train.py"), file(&root, "code/proj/src/train.py"));
        let ours = |sub: &str| root.join(sub).to_str().unwrap().to_owned();
        let theirs = |theirs: &str, sub: &str| Some(PathPrefix { theirs: theirs.to_owned(), ours: ours(sub) });
        // Choosing the parent of the project, the project, or the file's own folder gives the same prefix.
        for chosen in ["", "code", "code/proj", "code/proj/src"] {
            assert_eq!(learn("/workspace/proj/src/train.py", &root.join(chosen)), theirs("/workspace", "code"), "{chosen}");
        }
        assert_eq!(learn("C:\\work\\proj\\src\\train.py", &root), theirs("C:\\work", "code"));
        assert_eq!(learn("./src/train.py", &root), theirs("", "code/proj"));
        assert_eq!(learn("/x/train.py", &root), theirs("/x", "code"), "the nearest of several");
        assert_eq!(learn("/workspace/other.py", &root), None);
        assert_eq!(learn("/workspace/../train.py", &root), None);
        for (recorded, chosen, found) in [
            ("/workspace/proj/src/train.py", "code", &far),
            ("C:\\work\\proj\\src\\train.py", "", &far),
            ("/x/train.py", "", &near),
        ] {
            let prefix = learn(recorded, &root.join(chosen)).unwrap();
            assert_eq!(locate(recorded, &[prefix]).as_deref(), Ok(found.to_str().unwrap()));
        }
    }

    #[test]
    fn the_longest_prefix_that_leads_to_a_file_counts_and_none_leads_out_of_its_folder() {
        let here = tempfile::tempdir().unwrap();
        let root = here.path().canonicalize().unwrap();
        let (a, b) = (file(&root, "a/lib/x.py"), file(&root, "b/x.py"));
        let ours = |sub: &str| root.join(sub).to_str().unwrap().to_owned();
        let prefixes = [
            PathPrefix { theirs: "/w".into(), ours: ours("a") },
            PathPrefix { theirs: "/w/lib/".into(), ours: ours("b") },
            PathPrefix { theirs: "/w".into(), ours: " ".into() },
        ];
        assert_eq!(locate("/w/lib/x.py", &prefixes).as_deref(), Ok(b.to_str().unwrap()));
        assert_eq!(locate("/w/lib/x.py", &prefixes[..1]).as_deref(), Ok(a.to_str().unwrap()));
        assert_eq!(locate("/wide/lib/x.py", &prefixes), Err(Missing::NotHere));
        assert_eq!(locate("/w/lib/../../b/x.py", &prefixes), Err(Missing::NotHere));
        let share = [PathPrefix { theirs: "//host/share".into(), ours: ours("b") }];
        assert_eq!(locate("//host/share/x.py", &share).as_deref(), Ok(b.to_str().unwrap()), "the user said where it is");
    }
}
