//! Two windows share one settings file: each writes only the fields that it changed and keeps the rest as the other left it.
//!
//! eframe reads the file once at start and writes it whole. Without merging, the window that saves last would undo the other's
//! changes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use super::{RECENTS, Recent, Settings};
use crate::app::jobs::Jobs;

/// What this window knows about the settings file.
#[derive(Debug, Default)]
pub struct Kept {
    /// The file; `None` for a window that saves nothing.
    file: Option<PathBuf>,
    /// The settings as last read or written.
    before: Settings,
    /// The file being read before it is written; empty when it cannot be parsed.
    reading: Option<Receiver<Option<Settings>>>,
    theirs: Option<Option<Settings>>,
    /// When the file was last requested.
    asked: Option<Instant>,
}

/// Interval between saves while the window is open.
const EVERY: Duration = Duration::from_secs(30);

impl Kept {
    /// Uses the file in which eframe keeps the settings, when the system has a place for it.
    pub fn by_eframe(settings: Settings) -> Self {
        Kept {
            file: eframe::storage_dir("vramscope").map(|folder| folder.join("app.ron")),
            before: settings,
            asked: Some(Instant::now()),
            ..Kept::default()
        }
    }

    /// Starts to read the file off the window's thread. It is written when that is done.
    pub fn ask(&mut self, jobs: &Jobs) {
        self.asked = Some(Instant::now());
        let file = self.file.clone();
        self.reading = Some(jobs.spawn("settings", move || file.as_deref().and_then(read)));
    }

    pub fn is_due(&self) -> bool {
        self.file.is_some() && self.reading.is_none() && self.asked.is_none_or(|at| at.elapsed() >= EVERY)
    }

    /// True once, when the file was read and can be written.
    pub fn is_read(&mut self) -> bool {
        let Some(answer) = self.reading.as_ref().map(Receiver::try_recv) else { return false };
        if answer == Err(TryRecvError::Empty) {
            return false;
        }
        self.reading = None;
        self.theirs = Some(answer.unwrap_or_default());
        true
    }

    /// The settings to write now. Adds files that another window opened to `mine.recents`. The file is read here only when the
    /// window closes without a finished read.
    pub fn to_write(&mut self, mine: &mut Settings) -> Settings {
        let theirs = self.theirs.take().unwrap_or_else(|| self.file.as_deref().and_then(read));
        let written = match theirs {
            Some(theirs) => merge(mine, &self.before, theirs),
            None => mine.clone(),
        };
        mine.recents.clone_from(&written.recents);
        self.before.clone_from(mine);
        written
    }
}

/// The settings in the file. `None` when it is missing, half written or not parsable; this window's settings are then used alone.
fn read(file: &Path) -> Option<Settings> {
    let text = std::fs::read_to_string(file).ok()?;
    // eframe's file is a RON map from keys to strings, and each string is RON again.
    let values: HashMap<String, String> = ron::from_str(&text).ok()?;
    ron::from_str(values.get(eframe::APP_KEY)?).ok()
}

/// Merges settings: a field that this window changed since `before` (last read or written) wins, other fields stay as in the
/// file. Recents are merged by file.
fn merge(mine: &Settings, before: &Settings, theirs: Settings) -> Settings {
    fn pick<T: Clone + PartialEq>(mine: &T, before: &T, theirs: T) -> T {
        if mine == before { theirs } else { mine.clone() }
    }
    Settings {
        theme: pick(&mine.theme, &before.theme, theirs.theme),
        recents: merge_recents(&mine.recents, &before.recents, theirs.recents),
        layouts: mine.layouts.merged(&before.layouts, theirs.layouts),
        tracks: pick(&mine.tracks, &before.tracks, theirs.tracks),
        axis: pick(&mine.axis, &before.axis, theirs.axis),
        colour_by: pick(&mine.colour_by, &before.colour_by, theirs.colour_by),
        editor: pick(&mine.editor, &before.editor, theirs.editor),
        source_folders: pick(&mine.source_folders, &before.source_folders, theirs.source_folders),
        category_rules: pick(&mine.category_rules, &before.category_rules, theirs.category_rules),
        reopens: pick(&mine.reopens, &before.reopens, theirs.reopens),
        tour_was_offered: pick(&mine.tour_was_offered, &before.tour_was_offered, theirs.tour_was_offered),
        left_open: pick(&mine.left_open, &before.left_open, theirs.left_open),
    }
}

/// Files opened here come first, files forgotten here are removed, and the rest stays as the other window left it.
fn merge_recents(mine: &[Recent], before: &[Recent], mut theirs: Vec<Recent>) -> Vec<Recent> {
    // Opening a file moves it to the top, so files opened here are above the longest unchanged tail.
    let is_old = |recent: &Recent| before.contains(recent);
    let mut rest = before.iter();
    let untouched = mine.iter().rev().take_while(|m| is_old(m) && rest.by_ref().rev().any(|b| b.path == m.path)).count();
    let (opened, _) = mine.split_at(mine.len() - untouched);
    let was_full = mine.len() >= RECENTS;
    theirs.retain(|t| {
        let is_known_here = mine.iter().any(|m| m.path == t.path);
        // A file that fell off the end of a full list was not forgotten by the user.
        let was_forgotten = !is_known_here && !was_full && before.iter().any(|b| b.path == t.path);
        !was_forgotten && !opened.iter().any(|m| m.path == t.path)
    });
    let mut all = opened.to_vec();
    all.append(&mut theirs);
    all.truncate(RECENTS);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::settings::ThemeChoice;

    fn with(paths: &[&str]) -> Settings {
        let recents = paths.iter().map(|p| Recent { path: p.into(), ..Recent::default() }).collect();
        Settings { recents, ..Settings::default() }
    }

    fn paths(settings: &Settings) -> Vec<&str> {
        settings.recents.iter().filter_map(|r| r.path.to_str()).collect()
    }

    #[test]
    fn each_window_keeps_what_the_other_changed() {
        let before = with(&["/old"]);
        // The other window opened a file and chose the light theme. This one opened a file and set an editor.
        let theirs = Settings { theme: ThemeChoice::Light, ..with(&["/theirs", "/old"]) };
        let mine = Settings { editor: "vim".to_owned(), ..with(&["/mine", "/old"]) };
        let merged = merge(&mine, &before, theirs);
        assert_eq!((merged.theme, merged.editor.as_str()), (ThemeChoice::Light, "vim"));
        assert_eq!(paths(&merged), ["/mine", "/theirs", "/old"]);
    }

    #[test]
    fn what_nobody_changed_stays_and_a_change_wins_over_an_older_one() {
        let before = Settings { theme: ThemeChoice::Dark, ..with(&["/a", "/b"]) };
        assert_eq!(merge(&before, &before, before.clone()), before);
        let mine = Settings { theme: ThemeChoice::System, ..before.clone() };
        let theirs = Settings { theme: ThemeChoice::Light, ..before.clone() };
        assert_eq!(merge(&mine, &before, theirs).theme, ThemeChoice::System);
    }

    #[test]
    fn a_forgotten_file_stays_forgotten_and_one_opened_again_moves_up() {
        let before = with(&["/a", "/b", "/c"]);
        let theirs = with(&["/new", "/a", "/b", "/c"]);
        assert_eq!(paths(&merge(&with(&["/a", "/c"]), &before, theirs.clone())), ["/new", "/a", "/c"]);
        assert_eq!(paths(&merge(&with(&["/c", "/a", "/b"]), &before, theirs)), ["/c", "/new", "/a", "/b"]);
    }

    #[test]
    fn a_full_list_forgets_nothing_of_the_other_window() {
        let names: Vec<String> = (0..RECENTS).map(|i| format!("/{i}")).collect();
        let before = with(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let mut mine = before.clone();
        mine.remember(Recent { path: "/mine".into(), ..Recent::default() });
        let mut theirs = before.clone();
        theirs.remember(Recent { path: "/theirs".into(), ..Recent::default() });
        let merged = merge(&mine, &before, theirs);
        assert_eq!(paths(&merged)[..3], ["/mine", "/theirs", "/0"]);
        assert_eq!(merged.recents.len(), RECENTS);
    }

    #[test]
    fn eframes_file_is_read_and_a_broken_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("app.ron");
        let settings = Settings { editor: "code \"-g\"".to_owned(), ..with(&["/a"]) };
        let values = HashMap::from([(eframe::APP_KEY, ron::to_string(&settings).unwrap()), ("egui", "(x: 1)".to_owned())]);
        std::fs::write(&file, ron::ser::to_string_pretty(&values, ron::ser::PrettyConfig::default()).unwrap()).unwrap();
        assert_eq!(read(&file), Some(settings.clone()));
        let mut kept = Kept { file: Some(file.clone()), ..Kept::default() };
        let mut mine = Settings { theme: ThemeChoice::Dark, ..with(&["/b"]) };
        assert!(kept.is_due() && !kept.is_read());
        kept.ask(&Jobs::synchronous());
        assert!(kept.is_read() && !kept.is_read() && !kept.is_due());
        let written = kept.to_write(&mut mine);
        assert_eq!((written.theme, written.editor.as_str()), (ThemeChoice::Dark, "code \"-g\""));
        assert_eq!((paths(&written), paths(&mine)), (vec!["/b", "/a"], vec!["/b", "/a"]));
        // The other window's values do not become this window's choice.
        assert_eq!(mine.editor, "");
        std::fs::write(&file, "{ \"app\": \"(theme:").unwrap();
        assert_eq!(read(&file), None);
        assert_eq!(read(&folder.path().join("none")), None);
    }
}
