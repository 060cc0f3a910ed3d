//! What can be typed next in a query.

use std::ops::Range;

use super::words;
use crate::analysis::categories::Category;

/// Something that can be typed at a place in a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What the word becomes.
    pub word: String,
    /// What it means.
    pub about: &'static str,
    /// The bytes of the query it stands in for.
    pub at: Range<usize>,
}

const TERMS: [(&str, &str); 20] = [
    ("size>", "bytes asked for: size>1MiB, size=1MiB..2MiB"),
    ("stack~", "a frame's file or function contains this"),
    ("category=", "what it is for: gradients, activations, …"),
    ("live@", "live at an instant: live@peak, live@oom, live@cursor"),
    ("pool=", "private, default, small, large"),
    ("stream=", "by index or handle"),
    ("step=", "born in this step"),
    ("during~", "born inside an annotation so named"),
    ("born>", "after an event, a time or an instant: born>1200, born>2s, born>peak"),
    ("born<", "before an event, a time or an instant"),
    ("gone>", "freed after an event, a time or an instant"),
    ("gone<", "freed before one"),
    ("age>", "lived longer: age>5000 events, age>2ms"),
    ("age<", "lived shorter"),
    ("gone", "freed in the trace"),
    ("kept", "never freed in the trace"),
    ("block>", "whole block, after rounding"),
    ("addr=", "the block holds this address"),
    ("not", "turns the next term around; so does a - before it"),
    ("or", "begins another choice"),
];

const INSTANTS: [(&str, &str); 6] = [
    ("peak", "where requested memory peaks"),
    ("oom", "the first out-of-memory event"),
    ("end", "the last event"),
    ("cursor", "where the cursor stands"),
    ("a", "marker A"),
    ("b", "marker B"),
];

const POOLS: [(&str, &str); 4] = [
    ("private", "pools of CUDA graphs and the user's own"),
    ("default", "the default pool"),
    ("small", "requests of up to 1 MiB"),
    ("large", "requests over 1 MiB"),
];

/// What can stand in place of the word at a byte of a query, best first; `names` are what `stack~` may be followed by. At
/// most twelve.
#[must_use]
pub fn complete(text: &str, byte: usize, names: &[&str]) -> Vec<Completion> {
    const MOST: usize = 12;
    let word = words(text).into_iter().find(|w| w.at.start < byte && byte <= w.at.end);
    let (typed, at) = match &word {
        Some(word) => (text.get(word.at.start..byte).unwrap_or("").to_lowercase(), word.at.clone()),
        None => (String::new(), byte..byte),
    };
    let (not, typed) = match typed.strip_prefix(['-', '!']) {
        Some(rest) => ("-", rest.to_owned()),
        None => ("", typed),
    };
    let offer = |word: String, about: &'static str| Completion { word: format!("{not}{word}"), about, at: at.clone() };
    let values = |prefix: &str, values: &[(&str, &'static str)]| -> Vec<Completion> {
        let begun = typed[prefix.len()..].to_owned();
        let fitting = values.iter().filter(|(v, _)| v.starts_with(&begun) && *v != begun);
        fitting.map(|(v, about)| offer(format!("{prefix}{v}"), about)).take(MOST).collect()
    };
    if typed.starts_with("live@") {
        return values("live@", &INSTANTS);
    }
    if let Some(prefix) =
        ["born>=", "born<=", "gone>=", "gone<=", "born>", "born<", "gone>", "gone<"].iter().find(|p| typed.starts_with(**p))
    {
        return values(prefix, &INSTANTS);
    }
    if typed.starts_with("pool=") {
        return values("pool=", &POOLS);
    }
    if typed.starts_with("category=") {
        return values("category=", &Category::ALL.map(|c| (c.name(), c.about())));
    }
    if let Some(begun) = typed.strip_prefix("stack~") {
        let begun = begun.trim_matches('"');
        let fitting = names.iter().filter(|n| n.to_lowercase().contains(begun) && **n != begun);
        let quoted = |name: &str| if name.contains(' ') { format!("stack~\"{name}\"") } else { format!("stack~{name}") };
        return fitting.map(|n| offer(quoted(n), "allocates here")).take(MOST).collect();
    }
    let fitting = TERMS.iter().filter(|(term, _)| term.starts_with(&typed) && *term != typed);
    fitting.map(|(term, about)| offer((*term).to_owned(), about)).take(MOST).collect()
}
