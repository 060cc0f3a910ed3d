//! [`Rules`]: the user's own regular expressions over frames, each with a role.

use regex_lite::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

use super::Role;
use crate::model::{Frame, StackTable};

/// One rule, as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rule {
    /// A regular expression, searched in each frame's `path/file.py:71 function`. Case-insensitive.
    pub pattern: String,
    /// The role of allocations with such a frame.
    pub role: Role,
    /// False for a rule that is stored but not applied.
    pub is_on: bool,
}

impl Default for Rule {
    fn default() -> Self {
        Rule { pattern: String::new(), role: Role::Unknown, is_on: true }
    }
}

/// A pattern that is not a valid regular expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Rule {} cannot be used: {text}", number)]
pub struct RuleError {
    /// Number of the rule, from 1.
    pub number: usize,
    /// The error in the pattern.
    pub text: String,
}

/// Compiled rules. The first one that matches a stack decides.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    ready: Vec<(Option<Regex>, Role, String)>,
}

impl Rules {
    /// Compiles rules. Rules that are off, empty or invalid match nothing; the errors name the invalid ones.
    pub fn new(rules: &[Rule]) -> (Self, Vec<RuleError>) {
        let mut errors = Vec::new();
        let ready = rules
            .iter()
            .enumerate()
            .map(|(i, rule)| {
                let is_used = rule.is_on && !rule.pattern.trim().is_empty();
                let regex = is_used
                    .then(|| read(&rule.pattern))
                    .and_then(|read| read.map_err(|text| errors.push(RuleError { number: i + 1, text })).ok());
                (regex, rule.role, rule.pattern.clone())
            })
            .collect();
        (Rules { ready }, errors)
    }

    /// Number of rules given, including unused ones.
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// True if no rules were given.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    pub(super) fn is_match(&self, rule: usize, text: &str) -> bool {
        self.ready.get(rule).and_then(|r| r.0.as_ref()).is_some_and(|regex| regex.is_match(text))
    }

    pub(super) fn role(&self, rule: usize) -> Role {
        self.ready.get(rule).map_or(Role::Unknown, |r| r.1)
    }

    pub(super) fn pattern(&self, rule: usize) -> &str {
        self.ready.get(rule).map_or("", |r| &r.2)
    }
}

/// Size limit of a compiled pattern in bytes, so that a careless one cannot use all memory.
const SIZE_LIMIT: usize = 1 << 20;

fn read(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(pattern)
        .case_insensitive(true)
        .size_limit(SIZE_LIMIT)
        .build()
        .map_err(|error| format!("\"{pattern}\" is not a regular expression: {error}."))
}

/// The text that rules are matched against: `path/file.py:71 function`.
pub(super) fn frame_text(stacks: &StackTable, frame: Frame) -> String {
    format!("{}:{} {}", stacks.text(frame.file), frame.line, stacks.text(frame.name))
}
