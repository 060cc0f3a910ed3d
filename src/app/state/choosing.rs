//! Why the user is asked for a path.

use std::path::Path;

use vramscope_core::formats::folder::{is_log_name, is_pattern, is_recording_name};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choosing {
    /// Recordings, each in a tab.
    #[default]
    Open,
    /// A trace, a timeline or counters that belong to the recording in front.
    Add,
    /// A folder with one recording per rank.
    Ranks,
    WatchFolder,
    /// The first of two recordings to compare.
    First,
    /// The second of two recordings to compare.
    Second,
    /// Another recording of the program that Plan shows.
    Plan,
    Picture,
    /// Target of a saved recording.
    Save,
    Report,
    /// Target of a live session.
    Session,
    /// A log whose out-of-memory messages are to be explained.
    Log,
    /// The folder that holds a source file which the recording names.
    Sources,
}

impl Choosing {
    /// Title of the dialog and of the path field.
    pub fn title(self) -> &'static str {
        match self {
            Choosing::Open => "Path of a recording, or of a folder with one for each rank",
            Choosing::Add => "Path of a trace, a timeline or counters of this run",
            Choosing::Ranks => "Folder with one recording for each rank",
            Choosing::WatchFolder => "Folder to watch for new recordings",
            Choosing::First => "Path of the first recording, A",
            Choosing::Second => "Path of the recording to hold against it, B",
            Choosing::Plan => "Path of another recording of the same program",
            Choosing::Picture => "Where to save the picture",
            Choosing::Save => "Where to save the snapshot",
            Choosing::Report => "Where to save the report",
            Choosing::Session => "Where to save the session",
            Choosing::Log => "Path of a log that holds an out-of-memory error",
            Choosing::Sources => "Folder with the source file, or above it",
        }
    }

    /// Hint while the path field is empty.
    pub fn hint(self) -> &'static str {
        match self {
            Choosing::Open => {
                "Allocator snapshots, profiler traces, memory timelines, JAX memory profiles and saved memory_viz pages, compressed or not."
            }
            Choosing::Add => "What torch.profiler exported, or memory_stats() as JSON: it is added to the recording in front.",
            Choosing::Ranks => "A folder, or a pattern such as run/*rank*.pickle.",
            Choosing::First => "The one before a change, or of a rank that is well. Its view shows the comparison.",
            Choosing::Second => "The one after the change, or of the rank that is not.",
            Choosing::Plan => "The same program at another size, three steps or more.",
            Choosing::Picture => "A name ending in .png, or .svg for lines and text that scale.",
            Choosing::Save => "A name ending in .pickle, as PyTorch's own snapshots have.",
            Choosing::Report => "A name ending in .html for a page to send, or .md for an issue.",
            Choosing::Session => "A name ending in .vramscope.",
            Choosing::Log => "What a program or a scheduler printed, of one rank or of many.",
            Choosing::WatchFolder => "Where your trainer writes snapshots; each new one is opened or offered.",
            Choosing::Sources => "Your copy of the code that was recorded. It is looked for in the folders below too.",
        }
    }

    pub fn verb(self) -> &'static str {
        match self {
            Choosing::Open | Choosing::Ranks | Choosing::Log => "Open",
            Choosing::Add | Choosing::Plan => "Add",
            Choosing::First => "Go on",
            Choosing::Second => "Compare",
            Choosing::WatchFolder => "Watch",
            Choosing::Sources => "Choose",
            Choosing::Picture | Choosing::Save | Choosing::Report | Choosing::Session => "Save",
        }
    }

    /// Message while the typed path cannot be chosen.
    pub fn refusal(self) -> &'static str {
        match self {
            Choosing::Picture => "Give a folder that exists and a name ending in .png or .svg.",
            Choosing::Save => "Give a folder that exists and a name ending in .pickle.",
            Choosing::Report => "Give a folder that exists and a name ending in .html or .md.",
            Choosing::Session => "Give a folder that exists and a name ending in .vramscope.",
            Choosing::WatchFolder | Choosing::Ranks | Choosing::Sources => "There is no such folder.",
            Choosing::Open | Choosing::Add | Choosing::Log | Choosing::First | Choosing::Second | Choosing::Plan => {
                "There is no such file."
            }
        }
    }

    /// Message while the typed path can be chosen: it says what Enter does.
    pub fn offer(self, verdict: Verdict) -> &'static str {
        match self.verb() {
            _ if self.is_new() && verdict.exists => "Enter: replace the file of that name.",
            "Open" if verdict.is_folder => "Enter: open the recordings of this folder side by side.",
            "Open" => "Enter: open.",
            "Add" => "Enter: add.",
            "Go on" => "Enter: go on.",
            "Compare" => "Enter: compare.",
            "Watch" => "Enter: watch this folder.",
            "Choose" => "Enter: choose this folder.",
            _ => "Enter: save.",
        }
    }

    pub(crate) fn is_folder(self) -> bool {
        matches!(self, Choosing::Ranks | Choosing::WatchFolder | Choosing::Sources)
    }

    /// True when the path is for a file that is to be written.
    pub(crate) fn is_new(self) -> bool {
        !self.endings().is_empty()
    }

    /// Endings of the file to write, the usual one first. Empty when a file is read.
    pub(crate) fn endings(self) -> &'static [&'static str] {
        match self {
            Choosing::Picture => &["png", "svg"],
            Choosing::Save => &["pickle"],
            Choosing::Report => &["html", "md"],
            Choosing::Session => &["vramscope"],
            _ => &[],
        }
    }

    /// Filter name and file endings for the desktop's file dialog.
    pub(crate) fn files(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Choosing::Add => ("Traces, timelines and counters", &["json", "gz", "zst", "txt"]),
            Choosing::Log => ("Logs", &["log", "txt", "out", "err", "stderr"]),
            Choosing::Picture => ("Pictures", self.endings()),
            Choosing::Save => ("Snapshots", self.endings()),
            Choosing::Report => ("Reports", self.endings()),
            Choosing::Session => ("Sessions", self.endings()),
            _ => ("Recordings", &["pickle", "pkl", "json", "gz", "zst", "html", "csv", "pt", "prof", "vramscope"]),
        }
    }

    /// True when a file of this name can serve the purpose.
    pub(crate) fn wants(self, name: &str) -> bool {
        match self {
            Choosing::Open | Choosing::First | Choosing::Second | Choosing::Plan | Choosing::Ranks | Choosing::WatchFolder => {
                is_recording_name(name)
            }
            Choosing::Log => is_log_name(name),
            Choosing::Sources => name.ends_with(".py"),
            _ => {
                let ending = Path::new(name).extension().unwrap_or_default().to_ascii_lowercase();
                !name.starts_with('.') && self.files().1.iter().any(|e| ending == *e)
            }
        }
    }

    /// Checks whether a path can be chosen. It reads the disk, which may be slow, so call it off the window's thread.
    pub fn judge(self, path: &Path) -> Verdict {
        let meta = path.metadata().ok();
        let (exists, is_folder) = (meta.is_some(), meta.as_ref().is_some_and(std::fs::Metadata::is_dir));
        let accepts = match self {
            Choosing::Open => exists || is_pattern(path),
            Choosing::Add | Choosing::Log | Choosing::First | Choosing::Second | Choosing::Plan => {
                meta.is_some_and(|m| m.is_file())
            }
            Choosing::Ranks => is_folder || is_pattern(path),
            Choosing::WatchFolder | Choosing::Sources => is_folder,
            Choosing::Picture | Choosing::Save | Choosing::Report | Choosing::Session => is_new_file(path, self.endings()),
        };
        Verdict { accepts, exists, is_folder }
    }
}

/// What the disk says about a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub accepts: bool,
    pub exists: bool,
    pub is_folder: bool,
}

/// True for a name with one of these endings in an existing folder.
fn is_new_file(file: &Path, endings: &[&str]) -> bool {
    let ending = file.extension().unwrap_or_default().to_ascii_lowercase();
    let folder = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    endings.iter().any(|e| ending == *e) && folder.is_dir() && !file.is_dir() && !is_pattern(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_purpose_takes_what_it_can_use() {
        let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/sample_snapshots");
        let (file, pattern) = (format!("{samples}/leak.pickle"), format!("{samples}/*.pickle"));
        for (purpose, takes) in [
            (Choosing::Open, [true, true, true]),
            (Choosing::Add, [true, false, false]),
            (Choosing::First, [true, false, false]),
            (Choosing::Second, [true, false, false]),
            (Choosing::Ranks, [false, true, true]),
            (Choosing::WatchFolder, [false, true, false]),
            (Choosing::Picture, [false, false, false]),
            (Choosing::Save, [true, false, false]),
        ] {
            let accepts = |path: &str| purpose.judge(Path::new(path)).accepts;
            assert_eq!([accepts(&file), accepts(samples), accepts(&pattern)], takes, "{purpose:?}");
            assert!(!accepts("/no/such/place") && !accepts("/no/such/place.png"));
        }
    }
}
