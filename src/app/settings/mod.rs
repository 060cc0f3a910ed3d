//! What is kept between sessions: theme, recent files, layouts, the editor.

pub mod merging;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::app::platform::editor::place::PathPrefix;
use crate::app::state::{Axis, ColourBy, Layouts, TrackLayout};
use vramscope_core::anatomy::roles::{Rule, rules_from_text, rules_path, rules_to_text};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ThemeChoice {
    /// Light or dark, as the system is.
    #[default]
    System,
    Dark,
    Light,
}

impl ThemeChoice {
    pub fn preference(self) -> egui::ThemePreference {
        match self {
            ThemeChoice::System => egui::ThemePreference::System,
            ThemeChoice::Dark => egui::ThemePreference::Dark,
            ThemeChoice::Light => egui::ThemePreference::Light,
        }
    }
}

/// A recently opened file, with its line on the welcome page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recent {
    #[serde(with = "path_or_bytes")]
    pub path: PathBuf,
    /// The peak of reserved bytes on the busiest device. For a watch of a GPU: the peak of the used bytes.
    pub peak_reserved: u64,
    /// The file is a watch of a GPU, so the peak counts all programs.
    pub is_watch: bool,
    /// Events of the busiest device.
    pub events: u64,
    pub has_oom: bool,
    pub sentence: String,
    /// The title of its first finding; empty while that is unknown.
    pub finding: String,
    /// Reserved bytes over the run, at most 96 points.
    pub reserved: Vec<u64>,
    /// Requested bytes over the run, with as many points.
    pub requested: Vec<u64>,
}

const RECENTS: usize = 12;

/// Settings and memory of the window. Missing fields get defaults, so that files of older versions load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    pub theme: ThemeChoice,
    /// Newest first.
    pub recents: Vec<Recent>,
    pub layouts: Layouts,
    /// Which timeline tracks are folded, and their heights.
    pub tracks: TrackLayout,
    pub axis: Axis,
    /// Colouring of new documents. `None`, until the user chooses, means by role where roles are known. Older versions saved a
    /// value that nobody had chosen, under another name.
    #[serde(rename = "colour_chosen")]
    pub colour_by: Option<ColourBy>,
    /// Command that opens a source line, in the syntax of [`crate::app::platform::editor`]. Empty uses `$VISUAL` or `$EDITOR`.
    pub editor: String,
    /// Maps folders in recordings to folders of this machine, to find source files.
    pub source_folders: Vec<PathPrefix>,
    /// The user's role rules, in order of precedence.
    pub category_rules: Vec<Rule>,
    /// Whether files that were open are reopened when the window starts without any. Off by default.
    pub reopens: bool,
    /// Whether the tour was offered; it is offered once.
    pub tour_was_offered: bool,
    /// Files that were open when a window last closed, in tab order. Paths that are not UTF-8 are left out.
    pub left_open: Vec<String>,
}

impl Settings {
    /// Reads the rules from the file that the command line uses, since the user may have edited it by hand. A file that does not
    /// parse is ignored.
    pub fn read_rules(&mut self) {
        let text = rules_path().and_then(|path| std::fs::read_to_string(path).ok());
        if let Some(rules) = text.and_then(|text| rules_from_text(&text).ok()) {
            self.category_rules = rules;
        }
    }

    /// Writes the rules to the file that the command line reads, on a thread because a disk may be slow.
    pub fn write_rules(&self) {
        let Some(path) = rules_path() else { return };
        let text = rules_to_text(&self.category_rules);
        let write = move || {
            // If this fails, the rules are still in the settings; only the command line lacks the change.
            let written = path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(&path, text));
            if let Err(error) = written {
                tracing::warn!("{}: the role rules were not written for the command line: {error}", path.display());
            }
        };
        if let Err(error) = std::thread::Builder::new().name("role rules".to_owned()).spawn(write) {
            tracing::warn!("no thread to write the role rules: {error}");
        }
    }

    /// Moves a file to the top of the recents.
    pub fn remember(&mut self, recent: Recent) {
        self.recents.retain(|r| r.path != recent.path);
        self.recents.insert(0, recent);
        self.recents.truncate(RECENTS);
    }

    pub fn forget(&mut self, path: &Path) {
        self.recents.retain(|r| r.path != path);
    }
}

/// Serializes paths as text, or as bytes when they are not UTF-8 (legal on Unix). Without this serde would refuse such a path and
/// nothing could be saved.
mod path_or_bytes {
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Stored {
        Text(PathBuf),
        Bytes(Vec<u8>),
    }

    pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        match path.to_str() {
            Some(_) => Stored::Text(path.to_owned()),
            None => Stored::Bytes(path.as_os_str().as_encoded_bytes().to_vec()),
        }
        .serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(match Stored::deserialize(from)? {
            Stored::Text(path) => path,
            Stored::Bytes(bytes) => from_bytes(bytes),
        })
    }

    #[cfg(unix)]
    fn from_bytes(bytes: Vec<u8>) -> PathBuf {
        use std::os::unix::ffi::OsStringExt;
        std::ffi::OsString::from_vec(bytes).into()
    }

    #[cfg(not(unix))]
    fn from_bytes(bytes: Vec<u8>) -> PathBuf {
        String::from_utf8_lossy(&bytes).into_owned().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_name_that_is_not_utf8_comes_back_as_it_was() {
        use std::os::unix::ffi::OsStrExt;
        let path: PathBuf = std::ffi::OsStr::from_bytes(b"/data/caf\xe9.pickle").into();
        let recents = [Recent { path: path.clone(), ..Recent::default() }, Recent { path: "/plain".into(), ..Recent::default() }];
        let text = serde_json::to_string(&recents).unwrap();
        let back: Vec<Recent> = serde_json::from_str(&text).unwrap();
        assert_eq!((back[0].path.as_path(), back[1].path.as_path()), (path.as_path(), Path::new("/plain")));
    }

    #[test]
    fn recents_are_unique_and_newest_first() {
        let mut s = Settings::default();
        for i in 0..20 {
            s.remember(Recent { path: format!("/{i}").into(), ..Recent::default() });
        }
        s.remember(Recent { path: "/15".into(), ..Recent::default() });
        assert_eq!(s.recents.len(), RECENTS);
        assert_eq!(s.recents[0].path, PathBuf::from("/15"));
        assert_eq!(s.recents.iter().filter(|r| r.path == Path::new("/15")).count(), 1);
    }
}
