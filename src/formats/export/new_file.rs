//! A file that is written for the user: never over what it is made of, never half, and over an older one only when that was asked for.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file that appears under its name only when it is complete; until then it stands beside it, and goes when this is dropped.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    /// None for what is no regular file, such as a pipe: it is written as it is.
    unfinished: Option<PathBuf>,
    out: Option<BufWriter<File>>,
}

impl NewFile {
    /// Begins a file that is made of `sources`. `replaces`: an older file of this name may go.
    ///
    /// # Errors
    /// As [`refusal`]; or one sentence when the file can not be made there.
    pub fn create(path: &Path, sources: &[&Path], replaces: bool) -> Result<Self, String> {
        if let Some(sentence) = refusal(path, sources, replaces) {
            return Err(sentence);
        }
        if is_special(path) {
            let file = File::create(path).map_err(|e| not_written(path, &e))?;
            return Ok(NewFile { path: path.to_path_buf(), unfinished: None, out: Some(BufWriter::new(file)) });
        }
        // What a link points to is written, as a plain write would do.
        let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let mut unfinished = target.clone().into_os_string();
        unfinished.push(format!(".{}.part", std::process::id()));
        let unfinished = PathBuf::from(unfinished);
        let file = File::create(&unfinished).map_err(|e| not_written(path, &e))?;
        Ok(NewFile { path: target, unfinished: Some(unfinished), out: Some(BufWriter::new(file)) })
    }

    /// Gives the complete file its name.
    ///
    /// # Errors
    /// One sentence when the rest can not be written or the name can not be given.
    pub fn finish(mut self) -> Result<(), String> {
        let Some(mut out) = self.out.take() else { return Ok(()) };
        let unfinished = self.unfinished.take();
        let finished = out.flush().and_then(|()| unfinished.as_ref().map_or(Ok(()), |from| std::fs::rename(from, &self.path)));
        finished.map_err(|e| {
            unfinished.map(std::fs::remove_file);
            not_written(&self.path, &e)
        })
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

impl Drop for NewFile {
    fn drop(&mut self) {
        self.out = None;
        // What is left of it helps nobody; that it can not be removed either is no news.
        self.unfinished.take().map(std::fs::remove_file);
    }
}

/// Why a file may not be written under this name, in one sentence: it is one of its own sources (by whatever name or link), a folder, in
/// no folder, or there already. `None` when it may. Worth asking before the work is done.
#[must_use]
pub fn refusal(path: &Path, sources: &[&Path], replaces: bool) -> Option<String> {
    let shown = path.display();
    if path.is_dir() {
        return Some(format!("{shown} is a folder; name a file in it"));
    }
    if sources.iter().any(|source| is_same(path, source)) {
        return Some(format!("{shown} is the recording itself; name another file to write"));
    }
    if is_special(path) {
        return None;
    }
    if path.exists() {
        return (!replaces).then(|| format!("{shown} exists already; name another file, or add --force to replace it"));
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty())?;
    (!folder.is_dir()).then(|| format!("{shown}: there is no folder {}", folder.display()))
}

/// One sentence for a file that can not be written.
#[must_use]
pub fn not_written(path: &Path, error: &io::Error) -> String {
    format!("{}: can not be written: {}", path.display(), crate::formats::why_not_written(error))
}

/// True for what is there and no regular file: a pipe, a device.
fn is_special(path: &Path) -> bool {
    path.exists() && !path.is_file() && !path.is_dir()
}

/// True when both names are of one file, through links of any kind.
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
            let sentence = NewFile::create(&at(name), &[&at("source")], true).unwrap_err();
            assert!(sentence.contains("is the recording itself"), "{sentence}");
        }
        std::fs::write(at("old"), "old").unwrap();
        assert!(NewFile::create(&at("old"), &[&at("source")], false).unwrap_err().contains("--force"));
        let mut half = NewFile::create(&at("old"), &[&at("source")], true).unwrap();
        half.write_all(b"half").unwrap();
        drop(half);
        assert_eq!(std::fs::read_to_string(at("old")).unwrap(), "old", "a write that breaks off changes nothing");
        let mut whole = NewFile::create(&at("old"), &[&at("source")], true).unwrap();
        whole.write_all(b"new").unwrap();
        whole.finish().unwrap();
        assert_eq!(std::fs::read_to_string(at("old")).unwrap(), "new");
        assert_eq!(std::fs::read_to_string(at("source")).unwrap(), "precious");
        assert!(std::fs::read_dir(folder.path()).unwrap().all(|e| !e.unwrap().path().to_string_lossy().ends_with(".part")));
        assert!(NewFile::create(&at("none/x"), &[], false).unwrap_err().contains("there is no folder"));
        assert!(NewFile::create(folder.path(), &[], true).unwrap_err().contains("is a folder"));
    }
}
