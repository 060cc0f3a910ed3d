//! What outlives a session: theme, recent files, layouts, the editor.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::colours::ColourBy;
use super::cursor::{Axis, TrackLayout};
use super::workspace::Layouts;
use crate::analysis::categories::{Rule, rules_from_text, rules_path, rules_to_text};

/// Dark, light, or what the system says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ThemeChoice {
    /// As the system says.
    #[default]
    System,
    /// Always dark.
    Dark,
    /// Always light.
    Light,
}

impl ThemeChoice {
    /// What egui calls it.
    #[must_use]
    pub fn preference(self) -> egui::ThemePreference {
        match self {
            ThemeChoice::System => egui::ThemePreference::System,
            ThemeChoice::Dark => egui::ThemePreference::Dark,
            ThemeChoice::Light => egui::ThemePreference::Light,
        }
    }
}

/// A file opened before, with what the welcome page says of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recent {
    /// The file.
    pub path: PathBuf,
    /// Peak of reserved bytes of the busiest device.
    pub peak_reserved: u64,
    /// Events of the busiest device.
    pub events: u64,
    /// It holds an out-of-memory event.
    pub has_oom: bool,
    /// One sentence.
    pub sentence: String,
    /// Reserved bytes over the run, at most 96 points.
    pub reserved: Vec<u64>,
    /// Requested bytes over the run, as many points.
    pub requested: Vec<u64>,
}

/// How many recent files are remembered.
const RECENTS: usize = 12;

/// Settings and memory. Unknown or missing fields fall back to defaults, so that an older version's file still loads.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Dark, light, system.
    pub theme: ThemeChoice,
    /// Newest first.
    pub recents: Vec<Recent>,
    /// Arrangements a new document starts with.
    pub layouts: Layouts,
    /// Folds and heights of the timeline's tracks.
    pub tracks: TrackLayout,
    /// Axis a new document starts with.
    pub axis: Axis,
    /// What colours mean in a new document.
    pub colour_by: ColourBy,
    /// Command that opens a source line, with `{file}` and `{line}`; empty asks the desktop to open a `vscode://` link.
    pub editor: String,
    /// The user's own rules for categories, first ones first.
    pub category_rules: Vec<Rule>,
}

impl Settings {
    /// Takes the rules from the file that the command line reads too, where there is one: it may have been edited by hand. One
    /// that can not be read is left alone.
    pub fn read_rules(&mut self) {
        let text = rules_path().and_then(|path| std::fs::read_to_string(path).ok());
        if let Some(rules) = text.and_then(|text| rules_from_text(&text).ok()) {
            self.category_rules = rules;
        }
    }

    /// Writes the rules where the command line finds them, on a thread of its own: a disk may be slow.
    pub fn write_rules(&self) {
        let Some(path) = rules_path() else { return };
        let text = rules_to_text(&self.category_rules);
        let write = move || {
            // Without it the rules still stand in the settings; only the command line would not see the change.
            if let Some(folder) = path.parent() {
                let _ = std::fs::create_dir_all(folder);
            }
            let _ = std::fs::write(path, text);
        };
        let _ = std::thread::Builder::new().name("category rules".to_owned()).spawn(write);
    }

    /// Puts a file at the top of the recents, once.
    pub fn remember(&mut self, recent: Recent) {
        self.recents.retain(|r| r.path != recent.path);
        self.recents.insert(0, recent);
        self.recents.truncate(RECENTS);
    }

    /// Forgets a file that is gone.
    pub fn forget(&mut self, path: &Path) {
        self.recents.retain(|r| r.path != path);
    }
}

/// The program and arguments of an editor command: `code -g {file}:{line}`. `None` when it is empty.
#[must_use]
pub fn editor_command(template: &str, file: &str, line: u32) -> Option<(String, Vec<String>)> {
    let mut words = template.split_whitespace().map(|w| w.replace("{file}", file).replace("{line}", &line.to_string()));
    let program = words.next()?;
    let mut args: Vec<String> = words.collect();
    if !template.contains("{file}") {
        args.push(file.to_owned());
    }
    Some((program, args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn editor_templates_keep_paths_with_spaces_in_one_argument() {
        let (program, args) = editor_command("code -g {file}:{line}", "/a b/c.py", 7).unwrap();
        assert_eq!((program.as_str(), args), ("code", vec!["-g".to_owned(), "/a b/c.py:7".to_owned()]));
        let (_, args) = editor_command("kate", "x.py", 1).unwrap();
        assert_eq!(args, vec!["x.py"]);
        assert_eq!(editor_command("  ", "x", 1), None);
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
