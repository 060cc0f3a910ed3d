//! The file of a session during recording: unnamed until it has something to keep, locked until it is closed.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::{Next, Record, SessionReader};
use crate::formats::export::WriteError;
use crate::formats::export::new_file::{behind_links, give_name, is_special, refusal};
use crate::formats::export::unnamed::Unnamed;

/// A session file that gets its name late, so that an older session of that name stays until then.
#[derive(Debug)]
pub struct SessionFile {
    path: PathBuf,
    /// `None` for a pipe or a device, which already has its name.
    unnamed: Option<Unnamed>,
    replaces: bool,
}

impl SessionFile {
    /// Begins a session that will be called `path`. `replaces`: whether an existing file may be replaced. Fails when the name
    /// exists, another process writes that session, or no file can be created there.
    pub fn begin(path: &Path, replaces: bool) -> Result<Self, WriteError> {
        if let Some(error) = refusal(path, &[], replaces) {
            return Err(error);
        }
        if is_special(path) {
            return Ok(SessionFile { path: path.to_path_buf(), unnamed: None, replaces });
        }
        let path = behind_links(path)?;
        let unnamed = Unnamed::beside(&path).map_err(|e| WriteError::io(&path, e))?;
        Ok(SessionFile { path, unnamed: Some(unnamed), replaces })
    }

    /// A handle to write to.
    pub fn writer(&self) -> Result<File, WriteError> {
        let file = match &self.unnamed {
            Some(unnamed) => unnamed.file().try_clone(),
            None => File::options().write(true).open(&self.path),
        };
        file.map_err(|e| WriteError::io(&self.path, e))
    }

    /// Gives the file its name; it then survives this process. Fails as [`begin`](Self::begin), because by now the name may exist.
    pub fn give_name(&mut self) -> Result<(), WriteError> {
        self.unnamed.as_mut().map_or(Ok(()), |unnamed| give_name(unnamed, &self.path, self.replaces))
    }
}

/// The process that writes a session according to its first record; `None` if unknown.
pub fn writer_of(path: &Path) -> Option<u32> {
    let first = || -> io::Result<Option<Next>> {
        SessionReader::new(File::open(path)?)?.map(|mut reader| reader.next_record()).transpose()
    };
    match first() {
        Ok(Some(Next::Record(record))) => match *record {
            Record::Start(start) => Some(start.pid).filter(|pid| *pid != 0),
            _ => None,
        },
        _ => None,
    }
}
