//! Two windows, one file of settings: what this window changed is written over what the other left there, and nothing else.
//!
//! eframe reads its file once, at the start, and writes it whole. The window that saves last would undo what the other was told.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use super::{RECENTS, Recent, Settings};
use crate::app::jobs::Jobs;

/// What this window knows of the file.
#[derive(Debug, Default)]
pub struct Kept {
    /// The file; none for a window that keeps nothing.
    file: Option<PathBuf>,
    /// The settings as they were read, or written last.
    before: Settings,
    /// What stands in the file, while it is read before writing; empty where it cannot be understood.
    reading: Option<Receiver<Option<Settings>>>,
    theirs: Option<Option<Settings>>,
    /// When the file was asked for last.
    asked: Option<Instant>,
}

/// How often the settings are written while the window is open.
const EVERY: Duration = Duration::from_secs(30);

impl Kept {
    /// Of the file that eframe keeps the settings in, where the system has a place for one.
    pub fn by_eframe(settings: Settings) -> Self {
        Kept {
            file: eframe::storage_dir("vramscope").map(|folder| folder.join("app.ron")),
            before: settings,
            asked: Some(Instant::now()),
            ..Kept::default()
        }
    }

    /// Begins to read the file, off the window's thread: it is written once that is done.
    pub fn ask(&mut self, jobs: &Jobs) {
        self.asked = Some(Instant::now());
        let file = self.file.clone();
        self.reading = Some(jobs.spawn("settings", move || file.as_deref().and_then(read)));
    }

    /// True when the settings were not written for a while.
    pub fn is_due(&self) -> bool {
        self.file.is_some() && self.reading.is_none() && self.asked.is_none_or(|at| at.elapsed() >= EVERY)
    }

    /// True once when the file was read and can be written.
    pub fn is_read(&mut self) -> bool {
        let Some(answer) = self.reading.as_ref().map(Receiver::try_recv) else { return false };
        if answer == Err(TryRecvError::Empty) {
            return false;
        }
        self.reading = None;
        self.theirs = Some(answer.unwrap_or_default());
        true
    }

    /// What is to be written now. The files that another window opened are among this one's recents from here on. The file is read
    /// here only where that was not done before: when the window closes.
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

/// The settings that stand in such a file now. None where it is missing, is just being written, or cannot be understood: then
/// what this window knows is all there is.
fn read(file: &Path) -> Option<Settings> {
    let text = std::fs::read_to_string(file).ok()?;
    // eframe's file is a map from keys to values, each value a text in the same notation.
    let values: HashMap<String, String> = ron::from_str(&text).ok()?;
    ron::from_str(values.get(eframe::APP_KEY)?).ok()
}

/// What is to be written: of each field the value of this window where it differs from `before`, which is what this window read or
/// wrote last, and otherwise what stands in the file. Of the recents, files that both windows opened or forgot.
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

/// Files opened here come first, in their order; files forgotten here go; the rest is as the other window left it.
fn merge_recents(mine: &[Recent], before: &[Recent], mut theirs: Vec<Recent>) -> Vec<Recent> {
    // A file is put on top when it is opened, so what was opened here stands above the longest tail that is still as it was.
    let is_old = |recent: &Recent| before.contains(recent);
    let mut rest = before.iter();
    let untouched = mine.iter().rev().take_while(|m| is_old(m) && rest.by_ref().rev().any(|b| b.path == m.path)).count();
    let (opened, _) = mine.split_at(mine.len() - untouched);
    let was_full = mine.len() >= RECENTS;
    theirs.retain(|t| {
        let is_known_here = mine.iter().any(|m| m.path == t.path);
        // One that fell off the end of a full list was not forgotten by the user.
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
        // The other window opened a file and chose the light theme; this one opened a file and named an editor.
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
        // What the other window wrote is not this one's choice.
        assert_eq!(mine.editor, "");
        std::fs::write(&file, "{ \"app\": \"(theme:").unwrap();
        assert_eq!(read(&file), None);
        assert_eq!(read(&folder.path().join("none")), None);
    }
}
