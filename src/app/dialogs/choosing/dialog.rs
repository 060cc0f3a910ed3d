//! The desktop's own file dialog, on a thread: it blocks until the user has chosen.

use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use crate::app::state::Choosing;

/// The dialog that was asked for, and the one that is open.
#[derive(Default)]
pub(in crate::app) struct Dialogs {
    /// To be opened with the next frame, over the window.
    pub(in crate::app) wanted: Option<Choosing>,
    pub(in crate::app) open: Option<Open>,
}

pub(in crate::app) struct Open {
    pub(in crate::app) purpose: Choosing,
    pub(in crate::app) since: Instant,
    pub(in crate::app) answer: Receiver<Answer>,
}

/// How a dialog ended.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::app) enum Answer {
    Chosen(Vec<PathBuf>),
    Cancelled,
    /// A name to save under, made whole, that an older file has.
    Exists(PathBuf),
    /// A name to save under that has another ending.
    Unusable(PathBuf),
    /// There is no service that shows dialogs, or it failed.
    NoService,
    /// Cancelled, or failed: for a single file or folder, rfd does not tell the two apart.
    Nothing,
}

/// A dialog that ends this fast was not cancelled by the user: there was none.
pub(in crate::app) const AT_ONCE: Duration = Duration::from_millis(400);

/// A file that is to be written, looked at where the disk may be slow. A name without an ending gets the usual one, and one with
/// another is asked for again: under it the file would not be found, or not be opened.
pub(in crate::app) fn of_new(purpose: Choosing, mut path: PathBuf) -> Answer {
    let is_bare = path.extension().is_none();
    if let (true, Some(ending)) = (is_bare, purpose.endings().first()) {
        path.set_extension(ending);
    }
    let verdict = purpose.judge(&path);
    match verdict.accepts {
        // The dialog has not asked whether this one may go.
        true if is_bare && verdict.exists => Answer::Exists(path),
        true => Answer::Chosen(vec![path]),
        false => Answer::Unusable(path),
    }
}

/// Of the XDG portal a list without a file is a dialog that was cancelled, and no list one that failed. Elsewhere the desktop has
/// dialogs, and no list is one that was cancelled.
pub(in crate::app) fn of_several(chosen: Option<Vec<PathBuf>>) -> Answer {
    match chosen {
        Some(paths) if paths.is_empty() => Answer::Cancelled,
        Some(paths) => Answer::Chosen(paths),
        None if cfg!(any(target_os = "windows", target_os = "macos")) => Answer::Cancelled,
        None => Answer::NoService,
    }
}
