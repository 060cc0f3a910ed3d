//! Short names of tabs that keep what distinguishes the open files. Only text, no drawing.

use std::path::Path;

/// Letters kept at the start of a shortened name.
const HEAD: usize = 4;

/// The full names of tabs: their titles. Equal titles get the folder that distinguishes them.
pub(super) fn full(titles: &[&str], paths: &[Option<&Path>]) -> Vec<String> {
    let parts = |i: usize| -> Vec<String> {
        let path = paths.get(i).copied().flatten();
        path.map_or_else(Vec::new, |p| p.iter().rev().map(|c| c.to_string_lossy().into_owned()).collect())
    };
    let name = |i: usize| {
        let mine = parts(i);
        // The first folder that differs from those of all other files of this name.
        let others = (0..titles.len()).filter(|&j| j != i && titles[j] == titles[i]).map(parts);
        let depth = others.map(|other| mine.iter().zip(&other).take_while(|(a, b)| a == b).count()).max();
        match depth.and_then(|depth| mine.get(depth)) {
            Some(folder) => format!("{folder}/{}", titles[i]),
            None => titles[i].to_owned(),
        }
    };
    (0..titles.len()).map(name).collect()
}

/// The names without the ending that all of them share: `.pickle`, `.pickle.gz`.
pub(super) fn without_shared_ending(names: &[String]) -> Vec<String> {
    let endings: Vec<&str> = names.iter().filter_map(|n| ending(n)).collect();
    match endings.first() {
        Some(first) if endings.iter().all(|e| e == first) => {
            names.iter().map(|n| if ending(n).is_some() { n[..n.len() - first.len()].to_owned() } else { n.clone() }).collect()
        }
        _ => names.to_vec(),
    }
}

/// The ending of a file name with its dot, including a compression suffix; `None` for other names.
fn ending(name: &str) -> Option<&str> {
    let last = |name: &str| name.rfind('.').filter(|&at| at > 0 && at + 1 < name.len() && !name[at..].contains([' ', '/']));
    let at = last(name)?;
    let is_packed = [".gz", ".zst", ".zip"].contains(&&name[at..]);
    let at = if is_packed { last(&name[..at]).unwrap_or(at) } else { at };
    Some(&name[at..])
}

/// A name of at most `most` letters (more than eight) that fits no other name, if possible: its start, or its start and a later
/// word. Otherwise its start and its end.
pub(super) fn shorten(names: &[String], at: usize, most: usize) -> String {
    let Some(name) = names.get(at) else { return String::new() };
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= most {
        return name.clone();
    }
    let others: Vec<Vec<char>> = names.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, n)| n.chars().collect()).collect();
    let is_own = |cut: &Cut| !others.iter().any(|other| cut.fits(&letters, other));
    // Tries the start, then the start and the word at which the name differs from the most similar one, then any later word.
    let words: Vec<usize> = (HEAD + 1..letters.len()).filter(|&i| ['_', '.', '-', '/', ' '].contains(&letters[i - 1])).collect();
    let alike = |other: &Vec<char>| letters.iter().zip(other).take_while(|(a, b)| a == b).count();
    let leaves = others.iter().map(alike).max().unwrap_or(0);
    let differs = words.iter().rev().find(|&&word| word <= leaves).copied();
    let words = differs.into_iter().chain(words).map(|from| Cut::from_word(from, letters.len(), most));
    let start = Cut { head: most - 1, from: most - 1, to: most - 1 };
    let cut = std::iter::once(start).chain(words).find(is_own);
    cut.unwrap_or_else(|| Cut::ends(letters.len(), most)).text(&letters)
}

/// The kept parts of a name: its start, and a later part.
#[derive(Clone, Copy, Debug)]
struct Cut {
    head: usize,
    from: usize,
    to: usize,
}

impl Cut {
    /// The start and the end, equally long.
    fn ends(length: usize, most: usize) -> Self {
        let half = most / 2;
        Cut { head: half, from: length + 1 - half.max(1), to: length }
    }

    /// The start, and as much as fits from a word on.
    fn from_word(from: usize, length: usize, most: usize) -> Self {
        let room = most.saturating_sub(HEAD + 1);
        // Leaves room for a second "…" when the end is cut too.
        let to = if length - from <= room { length } else { (from + room.saturating_sub(1)).max(from + 1).min(length) };
        Cut { head: HEAD.min(from), from, to }
    }

    fn text(self, letters: &[char]) -> String {
        let between = if self.from > self.head { "…" } else { "" };
        let after = if self.to < letters.len() { "…" } else { "" };
        let part = |range: std::ops::Range<usize>| letters[range].iter().collect::<String>();
        format!("{}{between}{}{after}", part(0..self.head), part(self.from..self.to))
    }

    /// True when another name would be shortened to the same text.
    fn fits(self, letters: &[char], other: &[char]) -> bool {
        let (head, part) = (&letters[..self.head], &letters[self.from..self.to]);
        let Some(rest) = other.strip_prefix(head) else { return false };
        if self.to == letters.len() {
            rest.ends_with(part)
        } else {
            part.is_empty() || rest.windows(part.len()).any(|w| w == part)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(titles: &[&str], most: usize) -> Vec<String> {
        let names = without_shared_ending(&full(titles, &vec![None; titles.len()]));
        (0..names.len()).map(|i| shorten(&names, i, most)).collect()
    }

    #[test]
    fn what_differs_is_kept() {
        let titles = ["fragment_oom.default.pickle", "fragment_oom.expandable.pickle", "gpt_train.default.pickle"];
        assert_eq!(shown(&titles, 12), ["frag…default", "frag…expand…", "gpt_train.d…"]);
        assert_eq!(shown(&titles, 40)[0], "fragment_oom.default", "the shared ending goes first");
        let ranks = ["step_100_of_job_rank0_snapshot.pickle.gz", "step_100_of_job_rank1_snapshot.pickle.gz"];
        assert_eq!(shown(&ranks, 12), ["step…rank0_…", "step…rank1_…"]);
        let many: Vec<String> = (0..11).map(|i| format!("gpt_varlen.{i}.default.pickle")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let mut short = shown(&many, 12);
        assert!(short.iter().all(|s| s.chars().count() <= 12), "{short:?}");
        short.sort();
        short.dedup();
        assert_eq!(short.len(), 11, "no two are alike");
    }

    #[test]
    fn endings_that_differ_stay() {
        assert_eq!(shown(&["a.pickle", "a.json"], 40), ["a.pickle", "a.json"]);
        assert_eq!(shown(&["a.pickle.gz", "multi (ranks)"], 40), ["a", "multi (ranks)"]);
        assert_eq!(ending(".hidden"), None);
    }

    #[test]
    fn files_of_one_name_have_their_folder() {
        let paths = ["/run/a/rank0.pickle", "/run/b/rank0.pickle", "/run/b/rank1.pickle"].map(Path::new);
        let names = full(&["rank0.pickle", "rank0.pickle", "rank1.pickle"], &paths.map(Some));
        assert_eq!(names, ["a/rank0.pickle", "b/rank0.pickle", "rank1.pickle"]);
        assert_eq!(full(&["live", "live"], &[None, None]), ["live", "live"]);
        // Equal names cannot be distinguished but are still shortened.
        assert_eq!(shown(&["one long title of a watch", "one long title of a watch"], 12)[0].chars().count(), 12);
    }
}
