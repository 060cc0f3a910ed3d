//! [`WriteError`]: why a file was not written, in one sentence with the file's name and what to do.

use std::io;
use std::path::{Path, PathBuf};

use crate::formats::why_not_written;

/// Why a file was not written, or not under this name.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The operating system refused.
    #[error("{}: cannot be written: {}", path.display(), why_not_written(source))]
    Io {
        /// As the caller gave it.
        path: PathBuf,
        /// From creating, writing, linking or renaming the file, or from reading a link.
        source: io::Error,
    },
    /// The path is a folder.
    #[error("{} is a folder; name a file in it", .0.display())]
    IsFolder(PathBuf),
    /// The path, or the target of a link there, is a file that the output is made from.
    #[error("{} is the recording itself; name another file to write", .0.display())]
    IsSource(PathBuf),
    /// A file exists at the path and may not be replaced.
    #[error("{} exists already; name another file, or add --force to replace it", .0.display())]
    Exists(PathBuf),
    /// Another process holds the lock of the existing file.
    #[error("{} is being written by {}; name another file, or end that process first", path.display(), process(*writer))]
    InUse {
        /// As the caller gave it.
        path: PathBuf,
        /// The process, if the file names it.
        writer: Option<u32>,
    },
    /// The folder of the path does not exist.
    #[error("{}: there is no folder {}", path.display(), folder.display())]
    NoFolder {
        /// As the caller gave it.
        path: PathBuf,
        /// The parent of `path`.
        folder: PathBuf,
    },
    /// Links made by another user are not followed.
    #[error("{} is a link that another user (number {user}) made; name the file itself", link.display())]
    LinkOfAnother {
        /// The link that was met on the way, which may not be the path given.
        link: PathBuf,
        /// The user's numeric id.
        user: u32,
    },
    /// A link was replaced while it was followed.
    #[error("{}: the link changed while it was followed; name the file itself", .0.display())]
    LinkChanged(PathBuf),
}

impl WriteError {
    /// Wraps the system's error from writing `path`.
    pub fn io(path: &Path, source: io::Error) -> Self {
        WriteError::Io { path: path.to_path_buf(), source }
    }
}

fn process(writer: Option<u32>) -> String {
    writer.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}
