//! The desktop's file dialog. It runs on a thread, because it blocks until the user chooses.

use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use crate::app::state::Choosing;

/// The requested dialog, and the open one.
#[derive(Default)]
pub(in crate::app) struct Dialogs {
    /// Will be opened with the next frame, when the window is known.
    pub(in crate::app) wanted: Option<Choosing>,
    pub(in crate::app) open: Option<Open>,
}

pub(in crate::app) struct Open {
    pub(in crate::app) purpose: Choosing,
    pub(in crate::app) since: Instant,
    pub(in crate::app) answer: Receiver<Answer>,
}

#[derive(Debug, PartialEq, Eq)]
pub(in crate::app) enum Answer {
    Chosen(Vec<PathBuf>),
    Cancelled,
    /// The completed file name exists already.
    Exists(PathBuf),
    /// The file name has a wrong ending.
    Unusable(PathBuf),
    /// No service shows dialogs, or it failed.
    NoService,
    /// Cancelled or failed: for a single file or folder, rfd does not distinguish these.
    Nothing,
}

/// A dialog that ends this fast was not cancelled by the user. It was never shown.
pub(in crate::app) const AT_ONCE: Duration = Duration::from_millis(400);

/// Checks the path of a file to write, off the window's thread because the disk may be slow. A name without an ending gets the
/// default one. A wrong ending is refused, because the file could not be found or opened later.
pub(in crate::app) fn of_new(purpose: Choosing, mut path: PathBuf) -> Answer {
    let is_bare = path.extension().is_none();
    if let (true, Some(ending)) = (is_bare, purpose.endings().first()) {
        path.set_extension(ending);
    }
    let verdict = purpose.judge(&path);
    match verdict.accepts {
        // The dialog asked about the name without its ending, so nobody has confirmed replacing this file yet.
        true if is_bare && verdict.exists => Answer::Exists(path),
        true => Answer::Chosen(vec![path]),
        false => Answer::Unusable(path),
    }
}

/// The XDG portal returns an empty list when the dialog was cancelled, and no list when it failed. On other systems dialogs
/// always work, so no list means cancelled.
pub(in crate::app) fn of_several(chosen: Option<Vec<PathBuf>>) -> Answer {
    match chosen {
        Some(paths) if paths.is_empty() => Answer::Cancelled,
        Some(paths) => Answer::Chosen(paths),
        None if cfg!(any(target_os = "windows", target_os = "macos")) => Answer::Cancelled,
        None => Answer::NoService,
    }
}
