//! [`WriteError`]: why a file was not written, in one sentence that names it and what to do.

use std::io;
use std::path::{Path, PathBuf};

use crate::formats::why_not_written;

/// A file that is not written, or not under this name.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The operating system said no.
    #[error("{}: cannot be written: {}", path.display(), why_not_written(source))]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A folder has this name.
    #[error("{} is a folder; name a file in it", .0.display())]
    IsFolder(PathBuf),
    /// The name, or a link of this name, is that of a file which is read for it.
    #[error("{} is the recording itself; name another file to write", .0.display())]
    IsSource(PathBuf),
    /// An older file has this name, and may not be replaced.
    #[error("{} exists already; name another file, or add --force to replace it", .0.display())]
    Exists(PathBuf),
    /// Another process holds the lock of the older file.
    #[error("{} is being written by {}; name another file, or end that process first", path.display(), process(*writer))]
    InUse {
        /// The file.
        path: PathBuf,
        /// The process, where the file says which.
        writer: Option<u32>,
    },
    /// The folder that it should stand in is missing.
    #[error("{}: there is no folder {}", path.display(), folder.display())]
    NoFolder {
        /// The file.
        path: PathBuf,
        /// The folder.
        folder: PathBuf,
    },
    /// A link that another user laid out is not followed.
    #[error("{} is a link that another user (number {user}) made; name the file itself", link.display())]
    LinkOfAnother {
        /// The link.
        link: PathBuf,
        /// The user's number.
        user: u32,
    },
    /// A link was exchanged while it was followed.
    #[error("{}: the link changed while it was followed; name the file itself", .0.display())]
    LinkChanged(PathBuf),
}

impl WriteError {
    /// What the system said when `path` was written.
    #[must_use]
    pub fn io(path: &Path, source: io::Error) -> Self {
        WriteError::Io { path: path.to_path_buf(), source }
    }
}

fn process(writer: Option<u32>) -> String {
    writer.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}
