//! The description of a rule, and the table of all rules for the documentation.

use super::RULES;
use crate::diagnose::findings::{Class, Finding, RuleInput};

/// One rule, as applied by the code and described in the table of rules.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Stable name, as in [`Finding::rule`].
    pub name: &'static str,
    /// The class by which its findings rank.
    pub class: Class,
    /// What it reports, in a few words.
    pub finds: &'static str,
    /// The condition for a finding, as in the table of rules.
    pub when: &'static str,
    /// Origin of the condition: rows or classifiers of the list in `docs/FINDINGS.md`, or own measurements.
    pub source: &'static str,
    /// Among published recordings with its finding, how many have the same label; empty if it made no finding.
    pub measured: &'static str,
    /// Sample recording on which the tests expect its finding.
    pub shown_by: &'static str,
    pub(in crate::diagnose::findings) run: Run,
}

/// A rule's function, by what it may find.
#[derive(Clone, Copy)]
pub(in crate::diagnose::findings) enum Run {
    One(fn(&RuleInput<'_>) -> Option<Finding>),
    Several(fn(&RuleInput<'_>) -> Vec<Finding>),
}

/// A row of the list, of which the other columns follow. One that is not named is empty.
pub(super) const fn rule(name: &'static str, class: Class, run: Run) -> Rule {
    Rule { name, class, run, finds: "", when: "", source: "", measured: "", shown_by: "" }
}

impl Rule {
    pub(super) const fn finds(self, finds: &'static str) -> Self {
        Rule { finds, ..self }
    }

    pub(super) const fn when(self, when: &'static str) -> Self {
        Rule { when, ..self }
    }

    pub(super) const fn source(self, source: &'static str) -> Self {
        Rule { source, ..self }
    }

    pub(super) const fn measured(self, measured: &'static str) -> Self {
        Rule { measured, ..self }
    }

    pub(super) const fn shown_by(self, shown_by: &'static str) -> Self {
        Rule { shown_by, ..self }
    }
}

/// The table of rules as Markdown, for the documentation.
pub fn as_table() -> String {
    let mut out =
        String::from("| rule | class | finds | when | right | source | shown in tests by |\n|---|---|---|---|---|---|---|\n");
    for r in RULES.iter() {
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
