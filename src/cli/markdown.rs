//! Text that others wrote, escaped so that none of it is Markdown: names in a recording may contain anything.

use vramscope_core::units::shown;

/// As many backticks as no run in the text has.
pub(super) fn fence(text: &str) -> String {
    "`".repeat(text.split(|c| c != '`').map(str::len).max().unwrap_or(0) + 1)
}

/// The text as code, which is shown unchanged: on one line, between more backticks than it contains.
pub(super) fn code(text: &str) -> String {
    let text = shown(text).replace(['\n', '\t'], " ");
    let fence = fence(&text);
    let pad = if text.is_empty() || text.starts_with(['`', ' ']) || text.ends_with(['`', ' ']) { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}
