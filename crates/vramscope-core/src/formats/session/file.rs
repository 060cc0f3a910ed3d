//! The file of a session while it is recorded: without a name until there is something to keep, locked until it is closed.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::{Next, Record, SessionReader};
use crate::formats::export::WriteError;
use crate::formats::export::new_file::{behind_links, give_name, is_special, refusal};
use crate::formats::export::unnamed::Unnamed;

/// A session that is begun beside its name, so that an older one of that name stays until this one is worth more.
#[derive(Debug)]
pub struct SessionFile {
    path: PathBuf,
    /// None for a pipe or a device, which has its name already.
    unnamed: Option<Unnamed>,
    replaces: bool,
}

impl SessionFile {
    /// Begins a session that is to be called `path`. `replaces`: an older one may go.
    ///
    /// # Errors
    /// [`WriteError`]: the name is taken, another process writes that session, or no file can be made there.
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

    /// To write to it.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn writer(&self) -> Result<File, WriteError> {
        let file = match &self.unnamed {
            Some(unnamed) => unnamed.file().try_clone(),
            None => File::options().write(true).open(&self.path),
        };
        file.map_err(|e| WriteError::io(&self.path, e))
    }

    /// Gives it its name; from here on it is found under it, whatever happens to this process.
    ///
    /// # Errors
    /// As [`begin`](Self::begin): the name may be taken by now.
    pub fn give_name(&mut self) -> Result<(), WriteError> {
        self.unnamed.as_mut().map_or(Ok(()), |unnamed| give_name(unnamed, &self.path, self.replaces))
    }
}

/// The process that a session says it is written by.
#[must_use]
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
