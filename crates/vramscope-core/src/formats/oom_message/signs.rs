//! Words that tell something where they stand near a message (`signs.txt`).

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use rustc_hash::FxHashMap;

use super::entries::entries;
use super::text::Window;

const TABLE: &str = include_str!("signs.txt");

struct Sign {
    name: &'static str,
    /// Lines above and below a message that are searched, if the sign itself says so, and the words.
    lines: Vec<(Option<(usize, usize)>, Vec<&'static str>)>,
}

static SIGNS: LazyLock<Vec<Sign>> = LazyLock::new(|| {
    let range = |mark: &str| mark.split_once('+').and_then(|(above, below)| Some((above.parse().ok()?, below.parse().ok()?)));
    let words = |text: &'static str| text.split('|').filter(|word| !word.is_empty()).collect();
    let lines =
        |lines: Vec<(&'static str, &'static str)>| lines.into_iter().map(|(mark, text)| (range(mark), words(text))).collect();
    entries(&[TABLE]).into_iter().map(|entry| Sign { name: entry.head, lines: lines(entry.lines) }).collect()
});

/// A search for each word: making one costs more than most texts take to search.
static SEARCHES: LazyLock<FxHashMap<&'static str, Finder<'static>>> = LazyLock::new(|| {
    let words = SIGNS.iter().flat_map(|sign| &sign.lines).flat_map(|(_, words)| words);
    words.map(|word| (*word, Finder::new(word))).collect()
});

/// The words of a sign.
pub(super) fn words(name: &str) -> impl Iterator<Item = &'static str> {
    SIGNS.iter().filter(move |sign| sign.name == name).flat_map(|sign| &sign.lines).flat_map(|(_, words)| words.iter().copied())
}

/// True if a text in small letters has one of the words of a sign.
pub(super) fn tells(name: &str, text: &str) -> bool {
    words(name).any(|word| SEARCHES.get(word).is_some_and(|search| search.find(text.as_bytes()).is_some()))
}

/// What the lines around a message show, each sign in its own range.
pub(super) fn shown(window: &Window<'_>) -> Vec<&'static str> {
    let mut texts: FxHashMap<Option<(usize, usize)>, String> = FxHashMap::default();
    let mut is_around = |(range, words): &(Option<(usize, usize)>, Vec<&'static str>)| {
        let around = |(above, below)| window.around(above, below).to_ascii_lowercase();
        let text = texts.entry(*range).or_insert_with(|| range.map(around).unwrap_or_default());
        words.iter().any(|word| places(text, word).next().is_some())
    };
    let shows = SIGNS.iter().filter_map(|sign| Some((sign.name.strip_prefix("shows ")?, sign)));
    shows.filter(|(_, sign)| sign.lines.iter().any(&mut is_around)).map(|(what, _)| what).collect()
}

/// True if a text may show this, by the table.
#[cfg(test)]
pub(crate) fn shows(what: &str) -> bool {
    ["shows", "told"].iter().any(|kind| of_kind(kind).any(|(known, _)| known == what))
}

/// What all signs of a kind tell, such as `server`, with their words.
pub(super) fn of_kind(kind: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let told =
        move |sign: &'static Sign| sign.name.split_once(' ').filter(|(known, _)| *known == kind).map(|(_, what)| (what, sign));
    SIGNS
        .iter()
        .filter_map(told)
        .flat_map(|(what, sign)| sign.lines.iter().flat_map(move |(_, words)| words.iter().map(move |word| (what, *word))))
}

/// What the first sign of a kind tells whose words a text in small letters has.
pub(super) fn first(kind: &str, text: &str) -> Option<&'static str> {
    of_kind(kind).find(|(_, word)| places(text, word).next().is_some()).map(|(what, _)| what)
}

/// Where a word begins in a text in small letters. Inside a longer word it does not, except in the name of a library or behind an escaped
/// end of line.
pub(super) fn places(text: &str, word: &'static str) -> impl Iterator<Item = usize> {
    let is_letter = |c: char| c.is_ascii_alphanumeric();
    let begins = move |at: &usize| {
        let before = &text[..*at];
        let is_inside = word.starts_with(is_letter) && before.ends_with(is_letter);
        !is_inside || ["lib", "\\n", "\\t"].iter().any(|end| before.ends_with(end))
    };
    let search = SEARCHES.get(word).map_or_else(|| Cow::Owned(Finder::new(word)), Cow::Borrowed);
    let next = move |from: usize| search.find(text.as_bytes().get(from..)?).map(|at| from + at);
    std::iter::successors(next(0), move |at| next(at + word.len().max(1))).filter(begins)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::oom_message::{Platform, Writer, release};

    #[test]
    fn every_sign_tells_what_there_is() {
        for kind in ["program", "server", "runner", "provider", "ggml", "compiler", "card"] {
            assert!(of_kind(kind).count() > 0, "{kind}");
            for (what, _) in of_kind(kind) {
                assert!(if kind == "card" { what.parse::<Platform>().is_ok() } else { Writer::of_key(what).is_some() }, "{what}");
            }
        }
        for (releases, words) in of_kind("release") {
            let (since, until) = releases.split_once('-').unwrap();
            assert!(
                release(since).is_some() && (until.is_empty() || release(until).is_some()) && !words.contains(' '),
                "{releases}"
            );
        }
        for sign in &*SIGNS {
            assert!(sign.lines.iter().flat_map(|(_, words)| words).all(|word| *word == word.to_lowercase()), "{}", sign.name);
        }
    }
}
