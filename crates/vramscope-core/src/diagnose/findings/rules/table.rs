//! What a rule is, and the table of all of them that the documentation holds.

use super::RULES;
use crate::diagnose::findings::{Class, Finding, RuleInput};

/// One rule, as the code applies it and as the table of rules tells it.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Stable name, as in [`Finding::rule`].
    pub name: &'static str,
    /// Where its findings rank.
    pub class: Class,
    /// What it finds, in a few words.
    pub finds: &'static str,
    /// Condition under which it makes a finding, for the table of rules.
    pub when: &'static str,
    /// Rows of the list of diagnoses, or classifiers, that the condition comes from.
    pub source: &'static str,
    /// Of the published recordings in which it made a finding, how many have the same label; empty if it made none.
    pub measured: &'static str,
    /// Sample recording in which the tests expect its finding.
    pub shown_by: &'static str,
    pub(in crate::diagnose::findings) run: fn(&RuleInput<'_>) -> Vec<Finding>,
}

/// The table of rules as Markdown: what the documentation holds.
pub fn as_table() -> String {
    let mut out =
        String::from("| rule | class | finds | when | right | source | shown in tests by |\n|---|---|---|---|---|---|---|\n");
    for r in RULES {
        out += &format!(
            "| `{}` | {} | {} | {} | {} | {} | {} |\n",
            r.name,
            r.class.name(),
            r.finds,
            r.when,
            r.measured,
            r.source,
            r.shown_by
        );
    }
    out
}
