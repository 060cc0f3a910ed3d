//! Searches the frames of all call stacks, the user's own and those of libraries.

use std::sync::{Arc, OnceLock};

use super::{Hit, score};
use crate::app::data::device::DeviceData;
use crate::app::jobs::{Derived, Jobs};
use crate::app::state::{Action, Command, DocumentId, Item, ViewKind};
use vramscope_core::model::StackId;
use vramscope_core::units::counted;

/// A source line that occurs in call stacks.
struct FrameEntry {
    /// `adam.py:444 step`.
    title: String,
    file: String,
    /// Title and file in lower case, which queries are matched against.
    folded: String,
    /// Number of call stacks with this frame.
    stacks: u32,
    first: StackId,
    /// The frame names a stack: it is that stack's innermost frame in the user's own code.
    is_own: bool,
}

#[derive(Default)]
struct FrameIndex {
    entries: Vec<FrameEntry>,
}

impl FrameIndex {
    /// O(frames of all stacks).
    fn of(data: &DeviceData) -> Self {
        let stacks = &data.recording.stacks;
        let n = stacks.frame_count();
        let (mut count, mut seen, mut own) = (vec![0u32; n], vec![u32::MAX; n], vec![false; n]);
        let mut first = vec![StackId(0); n];
        for i in 0..stacks.len() as u32 {
            for frame in stacks.frames(StackId(i)) {
                let at = frame.0 as usize;
                // A stack that recurses through a line counts once.
                if at < n && seen[at] != i {
                    if count[at] == 0 {
                        first[at] = StackId(i);
                    }
                    (seen[at], count[at]) = (i, count[at] + 1);
                }
            }
            let name = data.names.index(StackId(i)).and_then(|name| data.names.frame(name));
            if let Some(slot) = name.and_then(|frame| own.get_mut(frame.0 as usize)) {
                *slot = true;
            }
        }
        let entries = (0..n)
            .filter(|&i| count[i] > 0)
            .filter_map(|i| {
                let frame = stacks.frame(vramscope_core::model::FrameId(i as u32))?;
                let title = format!("{} {}", stacks.location(frame), stacks.text(frame.name));
                let file = stacks.text(frame.file).to_owned();
                let folded = format!("{title} {file}").to_lowercase();
                Some(FrameEntry { title, file, folded, stacks: count[i], first: first[i], is_own: own[i] })
            })
            .collect();
        FrameIndex { entries }
    }

    /// The frames that contain every word of the query, best first, and how many there are. The user's own frames also match by
    /// letters in order, as commands do.
    fn find(&self, query: &str, most: usize) -> Found {
        let lower = query.to_lowercase();
        let words: Vec<&str> = lower.split_whitespace().collect();
        let mut found: Vec<(i32, &FrameEntry)> = self
            .entries
            .iter()
            .filter_map(|entry| {
                let own = entry.is_own.then(|| score(&entry.title, query)).flatten();
                let held = || words.iter().all(|word| entry.folded.contains(word)).then(|| 60 - entry.title.len() as i32 / 4);
                Some((own.or_else(held)?, entry))
            })
            .collect();
        found.sort_by_key(|(score, entry)| (std::cmp::Reverse(*score), std::cmp::Reverse(entry.stacks)));
        let total = found.len();
        let hits = found.into_iter().take(most).map(|(score, entry)| entry.hit(score)).collect();
        Found { hits, total }
    }
}

impl FrameEntry {
    fn hit(&self, score: i32) -> Hit {
        let actions = if self.stacks == 1 {
            vec![Action::Select(Some(Item::Stack(self.first)))]
        } else {
            // Several stacks contain the frame, so a query lists them all. The word boundary keeps line 38 from matching line
            // 381.
            let location = self.title.split(' ').next().unwrap_or(&self.title);
            let query = format!("stack~\"/{}\\b/\"", location.replace('.', "\\."));
            vec![Action::SetQuery(query), Action::Run(Command::Show(ViewKind::Allocations))]
        };
        let detail = format!("in {}  {}", counted(u64::from(self.stacks), "call stack", "call stacks"), self.file);
        Hit { title: self.title.clone(), detail, shortcut: String::new(), actions, score }
    }
}

pub(super) struct Found {
    pub hits: Vec<Hit>,
    pub total: usize,
}

/// What a search depends on: the document, its device, the query.
type Key = (DocumentId, usize, String);

#[derive(Default)]
pub(super) struct FrameSearch {
    index: Arc<OnceLock<FrameIndex>>,
    indexed: Option<(DocumentId, usize)>,
    found: Derived<Key, Found>,
}

impl FrameSearch {
    /// The frames that match a query; `None` until they are found.
    pub fn get(&mut self, jobs: &Jobs, id: DocumentId, data: &Arc<DeviceData>, query: &str, most: usize) -> Option<Arc<Found>> {
        if self.indexed != Some((id, data.index)) {
            self.indexed = Some((id, data.index));
            self.index = Arc::default();
        }
        let key: Key = (id, data.index, query.to_owned());
        let (index, data, query) = (Arc::clone(&self.index), Arc::clone(data), query.to_owned());
        let shown =
            self.found.get(jobs, "frames", &key, move |_| Some(index.get_or_init(|| FrameIndex::of(&data)).find(&query, most)));
        shown.fresh()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(title: &str, file: &str, stacks: u32, is_own: bool) -> FrameEntry {
        let folded = format!("{title} {file}").to_lowercase();
        FrameEntry { title: title.to_owned(), file: file.to_owned(), folded, stacks, first: StackId(9), is_own }
    }

    #[test]
    fn frames_of_libraries_are_found_by_file_function_and_path_and_counted() {
        let mut entries = vec![entry("train.py:71 step", "/home/me/train.py", 4, true)];
        for line in 0..30 {
            entries.push(entry(&format!("adam.py:{line} step"), "/venv/site-packages/torch/optim/adam.py", line + 1, false));
        }
        let index = FrameIndex { entries };
        let found = index.find("adam.py", 14);
        assert_eq!((found.total, found.hits.len()), (30, 14));
        assert!(found.hits[0].detail.contains("adam.py") && found.hits[0].title.starts_with("adam.py:"));
        assert_eq!(index.find("optim step", 14).total, 30);
        let own = index.find("step", 14);
        assert_eq!((own.total, own.hits[0].title.as_str()), (31, "train.py:71 step"), "the user's own come first");
        assert_eq!(index.find("nothing", 14).total, 0);
        assert!(matches!(&found.hits[0].actions[0], Action::SetQuery(q) if q.starts_with("stack~")));
    }

    #[test]
    fn a_line_of_several_stacks_means_all_of_them() {
        let several = entry("train.py:38 step", "/home/me/train.py", 7, true).hit(0);
        let Action::SetQuery(query) = &several.actions[0] else { panic!("{:?}", several.actions) };
        assert_eq!(query, r#"stack~"/train\.py:38\b/""#);
        assert!(vramscope_core::query::Query::parse(query).is_ok(), "{query}");
        let one = entry("train.py:38 step", "/home/me/train.py", 1, true).hit(0);
        assert!(matches!(one.actions[0], Action::Select(Some(Item::Stack(StackId(9))))), "{:?}", one.actions);
    }
}
