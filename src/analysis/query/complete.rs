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

/// Words of this recording that can be typed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Vocabulary<'a> {
    /// Names of stacks: what `stack~` may be followed by.
    pub stacks: &'a [&'a str],
    /// Names of annotations, numbers left off.
    pub annotations: &'a [&'a str],
    /// Number of steps.
    pub steps: usize,
    /// Number of streams.
    pub streams: usize,
}

const TERMS: [(&str, &str); 24] = [
    ("size>", "bytes asked for: size>1MiB, size=1MiB..2MiB"),
    ("stack~", "a frame's file or function contains this"),
    ("module~", "under a module so named: its forward, or an annotation"),
    ("file~", "a frame's file contains this"),
    ("function~", "a frame's function contains this"),
    ("category=", "what it is for: gradients, activations, …"),
    ("live@", "live at an instant: live@peak, live@oom, live@cursor"),
    ("pool=", "private, default, small, large"),
    ("stream=", "by index or handle"),
    ("step=", "born in this step: step=3, step=3..5"),
    ("during~", "born inside an annotation so named"),
    ("born>", "after an event, a time or an instant: born>1200, born>2s, born>peak"),
    ("born<", "before an event, a time or an instant"),
    ("gone>", "freed after an event, a time or an instant"),
    ("gone<", "freed before one"),
    ("age>", "lived longer: age>5000 events, age>2ms"),
    ("age<", "lived shorter"),
    ("gone=never", "never freed in the trace; so is kept"),
    ("gone", "freed in the trace"),
    ("kept", "never freed in the trace"),
    ("block>", "whole block, after rounding"),
    ("addr=", "the block holds this address"),
    ("not", "turns the next term around; so does a - before it"),
    ("or", "begins another choice"),
];

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

/// What can stand in place of the word at a byte of a query, best first; `known` are words of this recording. At most twelve.
#[must_use]
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
    if typed.starts_with("category=") {
        return values("category=", &Category::ALL.map(|c| (c.name(), c.about())));
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
    for (prefix, number, about) in [("step=", known.steps, "a step"), ("stream=", known.streams, "a stream")] {
        if let Some(begun) = typed.strip_prefix(prefix) {
            let fitting = (0..number).map(|i| i.to_string()).filter(|n| n.starts_with(begun) && *n != begun);
            return fitting.map(|n| offer(format!("{prefix}{n}"), about)).take(MOST).collect();
        }
    }
    let fitting = TERMS.iter().filter(|(term, _)| term.starts_with(&typed) && *term != typed);
    fitting.map(|(term, about)| offer((*term).to_owned(), about)).take(MOST).collect()
}
