//! Text that others wrote, as Markdown that means nothing: names in a recording hold whatever somebody put into them.

use vramscope_core::units::shown;

/// As many backticks as no run in the text has.
pub(super) fn fence(text: &str) -> String {
    "`".repeat(text.split(|c| c != '`').map(str::len).max().unwrap_or(0) + 1)
}

/// As code, which is shown as it is: between more backticks than stand in it, on one line.
pub(super) fn code(text: &str) -> String {
    let text = shown(text).replace(['\n', '\t'], " ");
    let fence = fence(&text);
    let pad = if text.is_empty() || text.starts_with(['`', ' ']) || text.ends_with(['`', ' ']) { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}
