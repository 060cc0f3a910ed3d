//! Completion: the possible next words of a query.

use std::ops::Range;

use super::reference::{GRAMMAR, about};
use super::words::words;
use crate::anatomy::roles::Role;

/// A possible word at a position in a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The word to insert.
    pub word: String,
    /// Meaning of the word, one line from the table of the language.
    pub about: &'static str,
    /// The bytes of the query that it replaces.
    pub at: Range<usize>,
}

/// Words specific to this recording.
#[derive(Clone, Copy, Debug, Default)]
pub struct Vocabulary<'a> {
    /// Names of stacks, which may follow `stack~`.
    pub stacks: &'a [&'a str],
    /// Names of annotations without their numbers.
    pub annotations: &'a [&'a str],
    /// Number of steps; 0 offers none.
    pub steps: usize,
    /// Number of streams of the device.
    pub streams: usize,
}

/// Beginnings of terms, most frequent first. Their meanings are in the table of the language.
const TERMS: &str = "size> stack~ module~ file~ function~ role= live@ pool= stream= step= during~ born> born< gone> gone< age> \
    age< gone=never gone kept block> addr= event= time> action= id= not or";

fn meaning(term: &str) -> &'static str {
    match term {
        "or" => GRAMMAR[0].1,
        "not" => GRAMMAR[1].1,
        _ => match about(term) {
            "" => about(term.trim_end_matches(['>', '<', '=', '~', '@'])),
            whole => whole,
        },
    }
}

const INSTANTS: [(&str, &str); 6] = [
    ("peak", "where requested memory peaks"),
    ("oom", "the last out-of-memory event"),
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

/// Completions for the word at a byte position of a query, best first, at most twelve. `known` has the words of this recording.
pub fn complete(text: &str, byte: usize, known: Vocabulary<'_>) -> Vec<Completion> {
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
    if typed.starts_with("role=") {
        return values("role=", &Role::ALL.map(|c| (c.name(), c.about())));
    }
    if typed.starts_with("gone=") || typed.starts_with("freed=") {
        let prefix = if typed.starts_with("gone=") { "gone=" } else { "freed=" };
        return values(prefix, &[("never", "never freed in the trace")]);
    }
    if typed.starts_with("born=") {
        return values("born=", &[("before", "before the trace began")]);
    }
    let quoted = |prefix: &str, name: &str| {
        if name.contains(' ') { format!("{prefix}\"{name}\"") } else { format!("{prefix}{name}") }
    };
    for (prefix, names, about) in
        [("stack~", known.stacks, "allocates here"), ("during~", known.annotations, "an annotation of this recording")]
    {
        if let Some(begun) = typed.strip_prefix(prefix) {
            let begun = begun.trim_matches('"');
            let fitting = names.iter().filter(|n| n.to_lowercase().contains(begun) && **n != begun);
            return fitting.map(|n| offer(quoted(prefix, n), about)).take(MOST).collect();
        }
    }
    for (prefix, numbers, about) in [("step=", 1..known.steps + 1, "a step"), ("stream=", 0..known.streams, "a stream")] {
        if let Some(begun) = typed.strip_prefix(prefix) {
            let fitting = numbers.map(|i| i.to_string()).filter(|n| n.starts_with(begun) && *n != begun);
            return fitting.map(|n| offer(format!("{prefix}{n}"), about)).take(MOST).collect();
        }
    }
    let fitting = TERMS.split(' ').filter(|term| term.starts_with(&typed) && *term != typed);
    fitting.map(|term| offer(term.to_owned(), meaning(term))).take(MOST).collect()
}
