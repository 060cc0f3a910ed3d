//! Escapes text for Markdown, because names in a recording may contain anything.

use vramscope_core::units::shown;

/// A run of backticks longer than any run in the text.
pub(super) fn fence(text: &str) -> String {
    "`".repeat(text.split(|c| c != '`').map(str::len).max().unwrap_or(0) + 1)
}

/// The text as inline code on one line, between more backticks than it contains.
pub(super) fn code(text: &str) -> String {
    let text = shown(text).replace(['\n', '\t'], " ");
    let fence = fence(&text);
    let pad = if text.is_empty() || text.starts_with(['`', ' ']) || text.ends_with(['`', ' ']) { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}
