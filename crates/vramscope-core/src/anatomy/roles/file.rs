//! The user's own rules as a file, which the window writes and the command line reads, and the file's location.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Role, Rule};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    pattern: String,
    #[serde(alias = "category")]
    role: String,
    #[serde(default = "on", skip_serializing_if = "is_on")]
    is_on: bool,
}

fn on() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references")]
fn is_on(is_on: &bool) -> bool {
    *is_on
}

/// The rules as text: a JSON list of `{"pattern": …, "role": …}`, in order of priority.
pub fn rules_to_text(rules: &[Rule]) -> String {
    let entries: Vec<Entry> =
        rules.iter().map(|r| Entry { pattern: r.pattern.clone(), role: r.role.name().to_owned(), is_on: r.is_on }).collect();
    // Strings and booleans always serialise.
    serde_json::to_string_pretty(&entries).unwrap_or_default() + "\n"
}

/// Where a text is no list of rules, in our words.
fn place(error: &serde_json::Error) -> String {
    let what = if error.is_data() { "not in the form of rules" } else { "no JSON" };
    match error.line() {
        0 => what.to_owned(),
        line => format!("{what} at line {line}, column {}", error.column()),
    }
}

/// Why a text contains no valid rules. The sentence names the position, but not the file.
#[derive(Debug, thiserror::Error)]
pub enum RulesTextError {
    /// Not JSON, or JSON of another form.
    #[error(
        "these are not role rules ({}); write a list such as [{{\"pattern\": \"attention\\\\.py\", \"role\": \"activations\"}}]",
        place(.0)
    )]
    NotRules(#[from] serde_json::Error),
    /// A rule names a role that does not exist.
    #[error("rule {number}: there is no role \"{role}\"; there are {}", Role::ALL.map(Role::name).join(", "))]
    UnknownRole {
        /// Number of the rule, from 1.
        number: usize,
        /// The role as written in the file.
        role: String,
    },
}

/// Reads rules as [`rules_to_text`] or a person writes them.
///
/// # Errors
/// [`RulesTextError`].
pub fn rules_from_text(text: &str) -> Result<Vec<Rule>, RulesTextError> {
    let entries: Vec<Entry> = serde_json::from_str(text)?;
    entries
        .into_iter()
        .enumerate()
        .map(|(i, entry)| {
            let wanted = entry.role.to_lowercase().replace([' ', '-'], "_");
            let role = Role::from_name(&wanted).ok_or(RulesTextError::UnknownRole { number: i + 1, role: entry.role })?;
            Ok(Rule { pattern: entry.pattern, role, is_on: entry.is_on })
        })
        .collect()
}

/// Where the window stores the rules: `vramscope/category_rules.json` in the user's configuration folder, if there is one.
pub fn rules_path() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let base =
        folder("XDG_CONFIG_HOME").or_else(|| folder("APPDATA")).or_else(|| folder("HOME").map(|home| home.join(".config")))?;
    Some(base.join("vramscope").join("category_rules.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_come_back_as_they_were_written() {
        let rules = vec![
            Rule { pattern: r"attention\.py".to_owned(), role: Role::KvCache, is_on: true },
            Rule { pattern: "\"quoted\"".to_owned(), role: Role::Unknown, is_on: false },
        ];
        assert_eq!(rules_from_text(&rules_to_text(&rules)).unwrap(), rules);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let by_hand = r#"[{"pattern": "x", "category": "KV cache"}]"#;
        assert_eq!(rules_from_text(by_hand).unwrap()[0].role, Role::KvCache);
        let error = rules_from_text(r#"[{"pattern": "x", "category": "heights"}]"#).unwrap_err().to_string();
        assert!(error.starts_with("rule 1: there is no role \"heights\"; there are weights, "), "{error}");
        let error = rules_from_text("attention.py").unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains("write a list such as"), "{error}");
    }
}
