//! Words that tell something where they stand near a message (`signs.txt`).

use std::ops::Range;
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

/// The words of each sign, each with a search for it: making one costs more than most texts take to search.
static SEARCHES: LazyLock<FxHashMap<&'static str, Vec<(&'static str, Finder<'static>)>>> = LazyLock::new(|| {
    let mut of: FxHashMap<_, Vec<_>> = FxHashMap::default();
    for sign in SIGNS.iter() {
        let words = sign.lines.iter().flat_map(|(_, words)| words);
        of.entry(sign.name).or_default().extend(words.map(|word| (*word, Finder::new(word))));
    }
    of
});

fn searches(name: &str) -> &'static [(&'static str, Finder<'static>)] {
    SEARCHES.get(name).map_or(&[], Vec::as_slice)
}

/// The words of a sign.
pub(super) fn words(name: &str) -> impl Iterator<Item = &'static str> {
    searches(name).iter().map(|(word, _)| *word)
}

/// The words of a sign that a text in small letters has.
pub(super) fn told<'a>(name: &'a str, text: &'a str) -> impl Iterator<Item = &'static str> + 'a {
    searches(name).iter().filter(|(_, search)| search.find(text.as_bytes()).is_some()).map(|(word, _)| *word)
}

/// True if a text in small letters has one of the words of a sign.
pub(super) fn tells(name: &str, text: &str) -> bool {
    told(name, text).next().is_some()
}

/// The kinds of signs whose words are places in the text around a message.
const PLACED: [&str; 8] = ["shows", "program", "server", "runner", "provider", "ggml", "card", "compiler"];

/// Their words by their first three letters, and the number of each word.
struct Index {
    by_slot: Vec<Vec<(&'static str, u32)>>,
    numbers: FxHashMap<&'static str, u32>,
}

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let mut index = Index { by_slot: vec![Vec::new(); 4096], numbers: FxHashMap::default() };
    for (_, word) in PLACED.iter().flat_map(|kind| of_kind(kind)) {
        let number = index.numbers.len() as u32;
        if let (None, Some(three)) = (index.numbers.get(word), word.as_bytes().first_chunk()) {
            index.numbers.insert(word, number);
            index.by_slot[slot(*three)].push((word, number));
        }
    }
    index
});

/// A hash below 4096.
fn slot([a, b, c]: [u8; 3]) -> usize {
    (u32::from_le_bytes([a, b, c, 0]).wrapping_mul(0x9e37_79b1) >> 20) as usize
}

/// The words that a text has and where they begin, found in one pass: a log may have thousands of messages, and hundreds of words are
/// searched around each.
pub(super) struct Found(Vec<(u32, usize)>);

impl Found {
    /// Those of a text in small letters. Inside a longer word a word does not begin, except in the name of a library or behind an escaped end of
    /// line.
    pub(super) fn of(text: &str) -> Self {
        let (bytes, index) = (text.as_bytes(), &*INDEX);
        let is_letter = |c: char| c.is_ascii_alphanumeric();
        let begins = |at: usize, word: &str| {
            let before = &text[..at];
            let is_inside = word.starts_with(is_letter) && before.ends_with(is_letter);
            !is_inside || ["lib", "\\n", "\\t"].iter().any(|end| before.ends_with(end))
        };
        let mut places = Vec::new();
        for (at, three) in bytes.windows(3).enumerate() {
            for (word, number) in &index.by_slot[slot([three[0], three[1], three[2]])] {
                if bytes[at..].starts_with(word.as_bytes()) && begins(at, word) {
                    places.push((*number, at));
                }
            }
        }
        Found(places)
    }

    /// Where a word begins, in the order of the text.
    pub(super) fn places(&self, word: &'static str) -> impl DoubleEndedIterator<Item = usize> {
        let number = INDEX.numbers.get(word).copied();
        self.0.iter().filter(move |(known, _)| Some(*known) == number).map(|&(_, at)| at)
    }

    fn has(&self, word: &'static str, range: &Range<usize>) -> bool {
        self.places(word).any(|at| at >= range.start && at + word.len() <= range.end)
    }
}

/// The lines around a message in small letters.
pub(super) struct Around {
    text: String,
    from: usize,
    found: Found,
}

/// The range of the widest sign.
const WIDEST: (usize, usize) = (60, 12);

impl Around {
    pub(super) fn of(window: &Window<'_>) -> Self {
        let text = window.around(WIDEST.0, WIDEST.1).to_ascii_lowercase();
        Around { from: window.reach(WIDEST.0, WIDEST.1).start, found: Found::of(&text), text }
    }

    /// Where some lines above and below lie in the text.
    fn range(&self, window: &Window<'_>, (above, below): (usize, usize)) -> Range<usize> {
        let reach = window.reach(above, below);
        let at = |place: usize| place.saturating_sub(self.from).min(self.text.len());
        at(reach.start)..at(reach.end)
    }

    /// The lines of a narrower range, with the words in it.
    pub(super) fn lines(&self, window: &Window<'_>, lines: (usize, usize)) -> (&str, Found) {
        let range = self.range(window, lines);
        let inside = self.found.0.iter().filter(|(_, at)| range.contains(at));
        (self.text.get(range.clone()).unwrap_or(""), Found(inside.map(|&(word, at)| (word, at - range.start)).collect()))
    }

    /// What the lines show, each sign in its own range.
    pub(super) fn shown(&self, window: &Window<'_>) -> Vec<&'static str> {
        let mut ranges: FxHashMap<(usize, usize), Range<usize>> = FxHashMap::default();
        let mut is_around = |(lines, words): &(Option<(usize, usize)>, Vec<&'static str>)| {
            let Some(lines) = *lines else { return false };
            let range = ranges.entry(lines).or_insert_with(|| self.range(window, lines));
            words.iter().any(|word| self.found.has(word, range))
        };
        let shows = SIGNS.iter().filter_map(|sign| Some((sign.name.strip_prefix("shows ")?, sign)));
        shows.filter(|(_, sign)| sign.lines.iter().any(&mut is_around)).map(|(what, _)| what).collect()
    }
}

/// True if a text may show this, by the table.
#[cfg(test)]
pub(crate) fn shows(what: &str) -> bool {
    ["shows", "told"].iter().any(|kind| of_kind(kind).any(|(known, _)| known == what))
}

/// What the signs of each kind tell, with their words.
static KINDS: LazyLock<FxHashMap<&'static str, Vec<(&'static str, &'static str)>>> = LazyLock::new(|| {
    let mut of: FxHashMap<_, Vec<_>> = FxHashMap::default();
    for (sign, (kind, what)) in SIGNS.iter().filter_map(|sign| Some((sign, sign.name.split_once(' ')?))) {
        let words = sign.lines.iter().flat_map(|(_, words)| words);
        of.entry(kind).or_default().extend(words.map(|word| (what, *word)));
    }
    of
});

/// What all signs of a kind tell, such as `server`, with their words.
pub(super) fn of_kind(kind: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    KINDS.get(kind).into_iter().flatten().copied()
}

/// What the first sign of a kind tells whose words were found.
pub(super) fn first(kind: &str, found: &Found) -> Option<&'static str> {
    if found.0.is_empty() {
        return None;
    }
    of_kind(kind).find(|(_, word)| found.places(word).next().is_some()).map(|(what, _)| what)
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
        let widest = SIGNS.iter().flat_map(|sign| &sign.lines).filter_map(|(lines, _)| *lines);
        assert!(widest.into_iter().all(|(above, below)| above <= WIDEST.0 && below <= WIDEST.1));
        assert!(PLACED.iter().flat_map(|kind| of_kind(kind)).all(|(_, word)| word.len() > 2));
        for sign in &*SIGNS {
            assert!(sign.lines.iter().flat_map(|(_, words)| words).all(|word| *word == word.to_lowercase()), "{}", sign.name);
        }
    }
}
