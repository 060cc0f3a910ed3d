//! The tables of facts, verdicts, sentences and advice (`facts.txt`, `rules.txt`, `advice.txt`), as plain text.
//!
//! The head of a row is its table, its verdicts if it has any (`capacity|unknown`), and its condition (`condition`). Of a table the first row counts that holds.
//! Rows `is NAME`, `figure NAME` and `word NAME` say what conditions and sentences may name.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::Verdict;
use super::condition::is_true;
use crate::formats::oom_message::OomMessage;
use crate::formats::oom_message::entries::{Entry, entries};

const TABLES: [&str; 3] = [include_str!("facts.txt"), include_str!("rules.txt"), include_str!("advice.txt")];

pub(super) struct Rule {
    table: &'static str,
    /// What it gives, or what it is for; none for any.
    pub(super) verdicts: Vec<Verdict>,
    /// Certain, whatever comparisons before it left open.
    pub(super) is_sure: bool,
    pub(super) when: &'static str,
    /// Its sentences and lines, by their marks.
    pub(super) lines: Entry,
}

impl Rule {
    fn of(entry: Entry) -> Option<Self> {
        let (head, when) = entry.head.split_once(':')?;
        let when = when.trim();
        // What a row names may have several words.
        if ["is ", "figure ", "word "].iter().any(|kind| head.starts_with(kind)) {
            return Some(Rule { table: head, verdicts: Vec::new(), is_sure: false, when, lines: entry });
        }
        let mut words = head.split(' ');
        let table = words.next()?;
        let of_name = |name: &str| Verdict::ALL.into_iter().find(|verdict| verdict.name() == name);
        // None for a name of no verdict.
        let verdicts = words.next().map_or(Some(Vec::new()), |names| names.split('|').map(of_name).collect())?;
        let is_sure = words.next() == Some("sure");
        Some(Rule { table, verdicts, is_sure, when, lines: entry })
    }

    /// Its first text with a mark.
    pub(super) fn text(&self, mark: &str) -> Option<&'static str> {
        self.lines.all(mark).next()
    }
}

static RULES: LazyLock<FxHashMap<&'static str, Vec<Rule>>> = LazyLock::new(|| {
    let mut tables: FxHashMap<_, Vec<Rule>> = FxHashMap::default();
    for rule in entries(&TABLES).into_iter().filter_map(Rule::of) {
        tables.entry(rule.table).or_default().push(rule);
    }
    tables
});

/// The rows of a table, in order.
pub(super) fn table(name: &str) -> &'static [Rule] {
    RULES.get(name).map_or(&[], Vec::as_slice)
}

/// True if one of the rows `is NAME` holds; `None` if there is none.
pub(super) fn fact(m: &OomMessage, name: &str) -> Option<bool> {
    let rows = table(&format!("is {name}"));
    (!rows.is_empty()).then(|| rows.iter().any(|rule| is_true(m, rule.when)))
}

/// The lines of the first of the rows `figure NAME` or `word NAME` that holds.
pub(super) fn named(m: &OomMessage, kind: &str, name: &str) -> &'static [(&'static str, &'static str)] {
    lines_for(m, &format!("{kind} {name}"), Verdict::Unknown)
}

/// The lines of the first row that holds and is for the verdict.
pub(super) fn lines_for(m: &OomMessage, name: &str, verdict: Verdict) -> &'static [(&'static str, &'static str)] {
    let is_for = |rule: &&Rule| (rule.verdicts.is_empty() || rule.verdicts.contains(&verdict)) && is_true(m, rule.when);
    table(name).iter().find(is_for).map_or(&[], |rule| &rule.lines.lines)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = &'static Rule> {
        RULES.values().flatten()
    }

    /// Every sentence and line of advice, also of dialects.
    pub(in super::super) fn sentences() -> Vec<&'static str> {
        let dialects = entries(&crate::formats::oom_message::DIALECTS);
        let of_dialects = dialects.iter().flat_map(|entry| entry.all("says").chain(entry.all("tip")));
        // The lines that record are code.
        let of_rules = all()
            .filter(|rule| rule.table != "record" && !rule.table.starts_with("figure "))
            .flat_map(|rule| rule.lines.lines.iter().map(|line| line.1));
        of_rules.chain(of_dialects).collect()
    }

    pub(in super::super) fn conditions() -> impl Iterator<Item = &'static str> {
        let is_condition = |text: &str, at: usize| at == 0 || text[..at].ends_with(['?', '|']);
        let before = move |text: &'static str| {
            let opens = text.match_indices('[').filter(move |&(at, _)| is_condition(text, at));
            opens.filter_map(|(at, _)| text[at + 1..].split_once(']')).map(|(inside, _)| inside)
        };
        all().map(|rule| rule.when).chain(sentences().into_iter().flat_map(before))
    }

    /// A row with a mistyped head or mark would be left out.
    #[test]
    fn every_row_is_read() {
        let mut names = std::collections::BTreeSet::new();
        for entry in entries(&TABLES) {
            for (mark, text) in &entry.lines {
                assert!(["-", "figures", "full", "says", "doubt"].contains(mark) && !text.starts_with('$'), "{mark} {text}");
            }
            let head = entry.head;
            assert!(if head.starts_with('$') { names.insert(head) } else { Rule::of(entry).is_some() }, "{head}");
        }
    }
}
