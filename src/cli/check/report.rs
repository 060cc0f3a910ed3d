//! The results of `check` for other programs: Markdown for a pull request, JUnit XML.
//!
//! Names in a recording may contain anything. Markdown shows them as code and XML escapes them, so that they are never markup,
//! links or mentions.

use super::growth::{Grown, Growth};
use super::{Check, Verdict};
use crate::cli::markdown::code;
use vramscope_core::units::{Bytes, counted, shown};

/// Markdown: a heading, one line per limit, and what grew.
pub(super) fn markdown(verdict: &Verdict) -> String {
    let failed = verdict.checks.iter().filter(|c| !c.has_passed()).count();
    let all = counted(verdict.checks.len() as u64, "check", "checks");
    let head = if failed == 0 { format!("{all} passed") } else { format!("{failed} of {all} did not pass") };
    let mut text = format!("**vramscope: {head}** for {}\n\n", code(&verdict.file));
    for check in &verdict.checks {
        let mark = if check.has_passed() { "✅" } else { "❌" };
        let reason = check.reason.as_deref().map(|r| format!(": {}", prose(r))).unwrap_or_default();
        text += &format!("- {mark} {}{reason}\n", code(&check.title()));
    }
    for growth in &verdict.grown {
        let old = verdict.baseline.as_deref().map(|b| format!(" since {}", code(b))).unwrap_or_default();
        text += &format!("\nWhat grew{old} at the peak of allocated memory, {}:\n\n", growth.device);
        for g in &growth.roles {
            text += &format!("- all {}: {}\n", g.role(), change(g));
        }
        for g in &growth.lines {
            text += &format!("- {}: {} ({})\n", code(&g.place()), change(g), g.role());
        }
        for note in growth.notes() {
            text += &format!("\n{note}\n");
        }
    }
    text
}

/// JUnit XML: one test case per limit and device. A check that the recording cannot decide is an error.
pub(super) fn junit(verdict: &Verdict) -> String {
    let count = |is: fn(&Check) -> bool| verdict.checks.iter().filter(|c| is(c)).count();
    let counts = format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{}\"",
        verdict.checks.len(),
        count(|c| c.passed == Some(false)),
        count(|c| c.passed.is_none())
    );
    let file = xml(&verdict.file);
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"vramscope\" {counts}>\n  <testsuite name=\"{file}\" {counts}>\n"
    );
    for check in &verdict.checks {
        let case = format!("    <testcase classname=\"{file}\" name=\"{}\"", xml(&check.title()));
        let Some(reason) = check.reason.as_deref() else {
            text += &format!("{case}/>\n");
            continue;
        };
        let kind = if check.passed.is_none() { "error" } else { "failure" };
        let grown = check.device.filter(|_| check.shows_growth()).and_then(|d| verdict.grown.iter().find(|g| g.device == d));
        let body = xml(&grown.map(Growth::text).unwrap_or_default());
        text += &format!("{case}>\n      <{kind} message=\"{}\">{body}</{kind}>\n    </testcase>\n", xml(reason));
    }
    text + "  </testsuite>\n</testsuites>\n"
}

/// `+1 MiB, from 2 MiB to 3 MiB`.
fn change(g: &Grown) -> String {
    format!("{}, from {} to {}", g.by(), Bytes(g.old), Bytes(g.new))
}

/// A sentence unchanged, or as code when a name in it could be read as markup.
fn prose(sentence: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || " \u{a0},;:.%()+-='\"/".contains(c);
    let has_link = sentence.contains("://") || sentence.contains("www.");
    if sentence.chars().all(is_plain) && !has_link { sentence.to_owned() } else { code(sentence) }
}

/// Escapes an attribute or text. XML 1.0 allows no control characters, even escaped, so these are shown as text.
fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in shown(text).chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&apos;",
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_no_markup() {
        assert_eq!(code("train.py:3"), "`train.py:3`");
        assert_eq!(code("a`b``c\n# head"), "```a`b``c # head```");
        assert_eq!(code("`"), "`` ` ``");
        assert_eq!(code(""), "`  `");
        assert_eq!(
            prose("3 MiB was allocated at event 1,200, more than 2 MiB"),
            "3 MiB was allocated at event 1,200, more than 2 MiB"
        );
        assert_eq!(prose("<b> @all"), "`<b> @all`");
        assert_eq!(prose("see http://a.b"), "`see http://a.b`");
        assert_eq!(xml("<a href=\"x\">&'\u{1b}\u{ffff}"), "&lt;a href=&quot;x&quot;&gt;&amp;&apos;\\u001b\u{fffd}");
    }
}
