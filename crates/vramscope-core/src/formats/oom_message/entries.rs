//! Tables in plain text, for what is words: dialects, rules, advice.
//!
//! An entry is a line at the margin, its head, and the indented lines below it. Each of those is a mark (`says`, `-`, `>`) and a text. A text
//! that is the head of an entry above, such as `$PAGING`, stands for all texts of that entry, which keep marks of their own other than `-`. Lines that begin with `#` are comments.

/// An entry of a table.
pub(crate) struct Entry {
    pub(crate) head: &'static str,
    /// Marks and texts.
    pub(crate) lines: Vec<(&'static str, &'static str)>,
}

impl Entry {
    /// The texts with a mark.
    pub(crate) fn all(&self, mark: &str) -> impl Iterator<Item = &'static str> {
        self.lines.iter().filter(move |(known, _)| *known == mark).map(|&(_, text)| text)
    }
}

/// The entries of several tables, in order.
pub(crate) fn entries(tables: &[&'static str]) -> Vec<Entry> {
    let mut out: Vec<Entry> = Vec::new();
    for line in tables.iter().flat_map(|table| table.lines()) {
        let inner = line.trim_start();
        if inner.is_empty() || inner.starts_with('#') {
            continue;
        }
        if inner.len() == line.len() {
            out.push(Entry { head: line, lines: Vec::new() });
            continue;
        }
        let (mark, text) = inner.split_once(' ').unwrap_or((inner, ""));
        let named = text.starts_with('$').then(|| out.iter().find(|entry| entry.head == text)).flatten();
        let marked = |&(own, text): &(&'static str, &'static str)| (if own == "-" { mark } else { own }, text);
        let lines = named.map_or_else(|| vec![(mark, text)], |entry| entry.lines.iter().map(marked).collect());
        if let Some(entry) = out.last_mut() {
            entry.lines.extend(lines);
        }
    }
    out
}
