//! The rules in the order in which they are tried.

mod failures;
mod notes;
mod peak;
mod structure;

use std::sync::LazyLock;

use super::Rule;

/// Every rule, by class.
pub static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| [failures::RULES, structure::RULES, peak::RULES, notes::RULES].concat());
