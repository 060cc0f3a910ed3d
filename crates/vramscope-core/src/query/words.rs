//! Splits a query into words: handles quotes, and joins comparisons that contain spaces.

use std::ops::Range;

use super::terms;

/// A word of a query with its position.
pub(super) struct Word {
    /// The word, without its quotes.
    pub text: String,
    /// Its byte range in the query.
    pub at: Range<usize>,
    pub is_quoted: bool,
}

/// Opening and closing quotes. Word processors and chats replace straight quotes by pairs.
const QUOTES: [(char, char); 4] = [('"', '"'), ('\'', '\''), ('\u{201c}', '\u{201d}'), ('\u{2018}', '\u{2019}')];

/// Words separated by spaces. Quotes keep spaces, also after an operator: `stack~"my file.py"`, `stack~'forward'`.
pub(super) fn words(text: &str) -> Vec<Word> {
    let mut out: Vec<Word> = Vec::new();
    let mut open: Option<Word> = None;
    let mut until: Option<char> = None;
    for (at, c) in text.char_indices() {
        if c.is_whitespace() && until.is_none() {
            out.extend(open.take());
            continue;
        }
        let end = at + c.len_utf8();
        let begins = until.is_none().then(|| opens(open.as_ref(), c, text.get(end..).unwrap_or(""))).flatten();
        let word = open.get_or_insert_with(|| Word { text: String::new(), at: at..at, is_quoted: begins.is_some() });
        word.at.end = end;
        if let Some(close) = begins {
            until = Some(close);
        } else if until == Some(c) {
            until = None;
        } else {
            word.text.push(c);
        }
    }
    out.extend(open);
    out.retain(|w| !w.text.is_empty());
    joined(out)
}

/// The closing quote if `c` opens a quote. A straight double quote always does. The others are also apostrophes, so they do only
/// where a text can begin and if they are closed.
fn opens(word: Option<&Word>, c: char, rest: &str) -> Option<char> {
    let close = QUOTES.iter().find(|q| q.0 == c)?.1;
    let before = word.map_or("", |w| w.text.trim_start_matches(['-', '!']));
    let is_start = before.is_empty() || terms::operator_in(before).is_some_and(|(at, o)| at + o.len() == before.len());
    (c == '"' || (is_start && rest.contains(close))).then_some(close)
}

/// Joins the words of one comparison: `size > 1MiB`, `size>1 MiB`, `size=1 MiB .. 2 MiB`, `2 MiB < size`, `live @peak`.
fn joined(words: Vec<Word>) -> Vec<Word> {
    let mut out: Vec<Word> = Vec::with_capacity(words.len());
    // True after a `..` that stood alone: the next number is the end of the range.
    let mut has_open_range = false;
    for (i, word) in words.iter().enumerate() {
        let next = words.get(i + 1).filter(|w| !w.is_quoted).map_or("", |w| w.text.as_str());
        let joins = out.last().is_some_and(|last| !last.is_quoted && belongs(last, word, next, has_open_range));
        if let Some(last) = out.last_mut().filter(|_| joins) {
            has_open_range = word.text == "..";
            last.text.push_str(&word.text);
            last.at.end = word.at.end;
        } else {
            has_open_range = false;
            out.push(Word { text: word.text.clone(), at: word.at.clone(), is_quoted: word.is_quoted });
        }
    }
    out
}

/// Whether a word continues the one before it; `next` is the word after it.
fn belongs(last: &Word, word: &Word, next: &str, has_open_range: bool) -> bool {
    let before = last.text.trim_start_matches(['-', '!']).to_lowercase();
    let text = word.text.to_lowercase();
    let operator = if word.is_quoted { None } else { terms::operator_in(&text).filter(|(at, _)| *at == 0) };
    if let Some((_, operator)) = operator {
        let behind = &text[operator.len()..];
        let is_reversed = is_value(&before) && terms::is_name(if behind.is_empty() { next } else { behind });
        return terms::is_name(&before) || is_reversed;
    }
    if (before == "live" && text.starts_with('@') && !word.is_quoted) || (before == "live@" && !word.is_quoted) {
        return true;
    }
    let Some((at, operator)) = terms::operator_in(&before) else {
        // `2 MiB < size`: a number with its unit. A unit of one letter could as well be a word.
        return !word.is_quoted && before.bytes().all(|b| b.is_ascii_digit() || b == b'.') && is_long_unit(&text);
    };
    let (name, value) = (&before[..at], &before[at + operator.len()..]);
    if value.is_empty() {
        return name.is_empty() || terms::is_name(name) || (is_value(name) && terms::is_name(&text));
    }
    if word.is_quoted || !(name.is_empty() || terms::is_name(name)) {
        return false;
    }
    let units = terms::units_of(name);
    let ends_in_figure = value.ends_with(|c: char| c.is_ascii_digit());
    let (unit, rest) = text.split_once("..").map_or((text.as_str(), None), |(unit, rest)| (unit, Some(rest)));
    let is_unit = units.contains(&unit);
    // `2 min 05 s` is one time.
    let is_second_part = units == terms::TIME_UNITS
        && value.ends_with("min")
        && text.bytes().all(|b| b.is_ascii_digit())
        && next.eq_ignore_ascii_case("s");
    (ends_in_figure && is_unit)
        || is_second_part
        || (unit.is_empty() && rest.is_some() && !value.contains(".."))
        || (has_open_range && text.starts_with(|c: char| c.is_ascii_digit()))
}

/// True for `2mib` or `27,584`: a value that may come before an operator and a name.
fn is_value(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit()) && terms::operator_in(text).is_none()
}

/// True for a size unit that is no other word; alone or followed by an operator, as in `2 MiB<size`.
fn is_long_unit(text: &str) -> bool {
    let unit = terms::operator_in(text).map_or(text, |(at, _)| &text[..at]);
    unit.len() > 1 && terms::SIZE_UNITS.contains(&unit)
}
