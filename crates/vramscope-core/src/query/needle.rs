//! The value of `~`: a text that a name must contain, or a regular expression between slashes.

use regex_lite::Regex;

pub(super) enum Needle<'a> {
    /// The name must contain this lower-case text.
    Text(&'a str),
    /// The name must match this expression; case is ignored.
    Pattern(Regex),
}

/// The regular expression in `/attn|mlp/`; `None` for plain text, such as a folder between slashes.
pub(super) fn pattern_of(value: &str) -> Option<&str> {
    let inner = value.strip_prefix('/')?.strip_suffix('/')?;
    inner.contains(['|', '*', '+', '?', '(', ')', '[', ']', '{', '^', '$', '\\']).then_some(inner)
}

/// Checks the value of a `~`. The error is a sentence. Invalid are a wrong expression between slashes, and a `|` outside of one.
pub(super) fn check(word: &str, name: &str, value: &str) -> Result<(), String> {
    match pattern_of(value) {
        Some(pattern) => match read(pattern) {
            Ok(_) => Ok(()),
            Err(why) => Err(format!("\"{word}\" is no regular expression: {why}. A text without slashes is looked for as it is")),
        },
        None if value.contains('|') && !value.contains("operator|") => {
            Err(format!("~ means contains, and a name seldom contains \"|\": write {name}~/{value}/ for a regular expression"))
        }
        None => Ok(()),
    }
}

fn read(pattern: &str) -> Result<Regex, String> {
    Regex::new(&format!("(?i){pattern}")).map_err(|e| e.to_string())
}

impl<'a> Needle<'a> {
    /// Builds the matcher for a checked value.
    pub(super) fn of(value: &'a str) -> Self {
        match pattern_of(value).and_then(|p| read(p).ok()) {
            Some(pattern) => Needle::Pattern(pattern),
            None => Needle::Text(value),
        }
    }

    pub(super) fn is_in(&self, name: &str) -> bool {
        match self {
            Needle::Text(text) => name.to_lowercase().contains(text),
            Needle::Pattern(pattern) => pattern.is_match(name),
        }
    }
}
