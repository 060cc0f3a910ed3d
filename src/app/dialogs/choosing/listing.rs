//! The listing of a folder for the path field, read off the window's thread, with matching files first.

use std::cmp::Reverse;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::app::state::Choosing;
use vramscope_core::model::Progress;

/// What an entry means for the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// A file of the requested kind.
    Wanted,
    Folder,
    Other,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub name: OsString,
    pub text: String,
    lower: String,
    pub kind: EntryKind,
    /// Size and modification time; only for matching files.
    pub told: Option<(u64, SystemTime)>,
}

/// A folder's entries, in the order they are shown.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    pub folder: PathBuf,
    /// Matching files, newest first; then folders; then other files.
    pub entries: Vec<Entry>,
    pub trouble: Option<String>,
}

/// On a slow disk, reading sizes and times stops after this time. The names are complete by then.
const PATIENCE: Duration = Duration::from_secs(2);

impl Listing {
    /// `None` when cancelled.
    pub fn of(folder: &Path, purpose: Choosing, progress: &Progress) -> Option<Self> {
        let mut listing = Listing { folder: folder.to_path_buf(), ..Listing::default() };
        let found = match std::fs::read_dir(folder) {
            Ok(found) => found,
            Err(error) => {
                listing.trouble = Some(match error.kind() {
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => "There is no such folder.".to_owned(),
                    std::io::ErrorKind::PermissionDenied => "This folder may not be read.".to_owned(),
                    _ => format!("This folder cannot be read: {error}."),
                });
                return Some(listing);
            }
        };
        let began = Instant::now();
        for entry in found.flatten() {
            if progress.check().is_err() {
                return None;
            }
            let name = entry.file_name();
            let text = name.to_string_lossy().into_owned();
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            // The target of a link has to be looked up.
            let is_folder = if is_link { entry.path().is_dir() } else { entry.file_type().is_ok_and(|kind| kind.is_dir()) };
            let kind = match (is_folder, purpose.wants(&text)) {
                (true, _) => EntryKind::Folder,
                (false, true) => EntryKind::Wanted,
                (false, false) => EntryKind::Other,
            };
            let looks = kind == EntryKind::Wanted && began.elapsed() < PATIENCE;
            let told = looks.then(|| entry.path().metadata().ok()).flatten().and_then(|m| Some((m.len(), m.modified().ok()?)));
            listing.entries.push(Entry { lower: text.to_lowercase(), name, text, kind, told });
        }
        let folders_first = purpose.is_folder();
        let place = |kind: EntryKind| if folders_first && kind == EntryKind::Folder { None } else { Some(kind) };
        listing.entries.sort_by(|a, b| {
            let newest = |e: &Entry| Reverse(e.told.map(|(_, modified)| modified));
            let key = |e: &Entry| (place(e.kind), newest(e));
            key(a).cmp(&key(b)).then_with(|| a.lower.cmp(&b.lower))
        });
        Some(listing)
    }

    /// The entries that match the typed text: first those that begin with it. Hidden files match only when a dot is typed.
    pub fn fitting(&self, typed: &str) -> Vec<u32> {
        let typed = typed.to_lowercase();
        let is_all = typed.is_empty() || typed.contains(['*', '?']);
        let finder = memchr::memmem::Finder::new(typed.as_bytes());
        let (mut begin, mut hold) = (Vec::new(), Vec::new());
        for (entry, i) in self.entries.iter().zip(0u32..) {
            let is_hidden = entry.lower.starts_with('.') && !typed.starts_with('.');
            let at = if is_all { Some(0) } else { finder.find(entry.lower.as_bytes()) };
            match at.filter(|_| !is_hidden) {
                Some(0) => begin.push(i),
                Some(_) => hold.push(i),
                None => {}
            }
        }
        begin.append(&mut hold);
        begin
    }

    /// The same, followed by all other folders.
    pub fn fitting_with_folders(&self, typed: &str) -> Vec<u32> {
        let mut fitting = self.fitting(typed);
        let is_folder = |i: &u32| self.entries.get(*i as usize).is_some_and(|entry| entry.kind == EntryKind::Folder);
        let others: Vec<u32> = self.fitting("").into_iter().filter(|i| is_folder(i) && !fitting.contains(i)).collect();
        fitting.extend(others);
        fitting
    }

    /// What Tab completes: the common beginning of all matching names, and a slash when a folder is the only match. Case is
    /// ignored when nothing matches exactly.
    pub fn completed(&self, typed: &str) -> Option<String> {
        let exact: Vec<&Entry> = self.entries.iter().filter(|e| e.text.starts_with(typed)).collect();
        let lower = typed.to_lowercase();
        let any_case = || self.entries.iter().filter(|e| e.lower.starts_with(&lower)).collect();
        let begins: Vec<&Entry> = if exact.is_empty() { any_case() } else { exact };
        let visible: Vec<&Entry> = begins.into_iter().filter(|e| typed.starts_with('.') || !e.text.starts_with('.')).collect();
        let (first, others) = visible.split_first()?;
        let mut common: usize = first.text.chars().count();
        for other in others {
            common = first.text.chars().zip(other.text.chars()).take(common).take_while(|(a, b)| a == b).count();
        }
        let mut text: String = first.text.chars().take(common).collect();
        if others.is_empty() && first.kind == EntryKind::Folder {
            text.push(std::path::MAIN_SEPARATOR);
        }
        (text.chars().count() >= typed.chars().count() && text != typed).then_some(text)
    }
}

/// An age in a few letters.
pub fn age(then: SystemTime, now: SystemTime) -> String {
    let seconds = now.duration_since(then).unwrap_or_default().as_secs();
    match seconds {
        0..60 => "just now".to_owned(),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..86_400 => format!("{} h ago", seconds / 3_600),
        86_400..172_800 => "yesterday".to_owned(),
        172_800..5_184_000 => format!("{} days ago", seconds / 86_400),
        5_184_000..63_072_000 => format!("{} months ago", seconds / 2_592_000),
        _ => format!("{} years ago", seconds / 31_536_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(folder: &Path, purpose: Choosing) -> Listing {
        Listing::of(folder, purpose, &Progress::new()).unwrap()
    }

    fn names(listing: &Listing, typed: &str) -> Vec<String> {
        listing.fitting(typed).iter().map(|&i| listing.entries[i as usize].text.clone()).collect()
    }

    #[test]
    fn what_is_wanted_comes_first_and_the_newest_of_it() {
        let folder = tempfile::tempdir().unwrap();
        for (name, age) in [("old.pickle", 9_000), ("new.pickle.gz", 10), ("plan.txt", 0), (".hidden.pickle", 0)] {
            let path = folder.path().join(name);
            std::fs::write(&path, name).unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        }
        for name in ["runs", "Data"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let open = listed(folder.path(), Choosing::Open);
        assert_eq!(names(&open, ""), ["new.pickle.gz", "old.pickle", "Data", "runs", "plan.txt"]);
        assert_eq!(names(&open, "D"), ["Data", "old.pickle"], "what begins with it, then what holds it");
        assert_eq!(names(&open, ".h"), [".hidden.pickle"]);
        assert_eq!(names(&open, "*.pickle").len(), 5);
        let size = |name: &str| open.entries.iter().find(|e| e.text == name).and_then(|e| e.told).map(|(size, _)| size);
        assert_eq!((size("new.pickle.gz"), size("plan.txt")), (Some(13), None));
        assert_eq!(names(&listed(folder.path(), Choosing::WatchFolder), "")[..2], ["Data", "runs"]);
        let gone = listed(&folder.path().join("gone"), Choosing::Open);
        assert_eq!(gone.trouble.as_deref(), Some("There is no such folder."));
    }

    #[test]
    fn tab_completes_what_names_have_in_common() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["rank0.pickle", "rank1.pickle", "Träger.pickle"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("snapshots")).unwrap();
        let listing = listed(folder.path(), Choosing::Open);
        let completed = |typed| listing.completed(typed);
        assert_eq!(completed("ra").as_deref(), Some("rank"));
        assert_eq!(completed("RA").as_deref(), Some("rank"), "in any case");
        assert_eq!(completed("rank"), None, "there are two");
        assert_eq!(completed("rank1").as_deref(), Some("rank1.pickle"));
        assert_eq!(completed("s").as_deref(), Some(format!("snapshots{}", std::path::MAIN_SEPARATOR).as_str()));
        assert_eq!(completed("Tr").as_deref(), Some("Träger.pickle"));
        assert_eq!(completed("x"), None);
    }

    #[test]
    fn a_hundred_thousand_entries_are_filtered_at_once() {
        let entry = |i: u32| {
            let text = format!("snapshot_{i:06}.pickle");
            Entry { name: text.clone().into(), lower: text.clone(), text, kind: EntryKind::Wanted, told: None }
        };
        let listing = Listing { entries: (0..100_000).map(entry).collect(), ..Listing::default() };
        let began = Instant::now();
        assert_eq!(listing.fitting("99999").len(), 1);
        assert_eq!(listing.fitting("").len(), 100_000);
        assert_eq!(listing.completed("snapshot_09").as_deref(), None);
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    }

    #[test]
    fn ages_are_short() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let told = |seconds| age(now - Duration::from_secs(seconds), now);
        let ages = [told(3), told(90), told(7_300), told(90_000), told(900_000), told(9_000_000), told(90_000_000)];
        assert_eq!(ages, ["just now", "1 min ago", "2 h ago", "yesterday", "10 days ago", "3 months ago", "2 years ago"]);
        assert_eq!(age(now + Duration::from_secs(60), now), "just now", "a clock that is ahead");
    }
}
