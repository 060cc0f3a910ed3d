//! Whose message it is, and which rules judge it.

use super::Verdict;
use super::Verdict::Unknown;
use super::condition::{holds, is};
use super::rules;
use super::words::fill;
use crate::formats::oom_message::OomMessage;

/// A verdict with its numbers.
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    /// Why another verdict is possible; `None` if the figures force this one.
    pub(super) doubt: Option<&'static str>,
    pub(super) sentence: String,
}

/// Another value with the same printed decimals gives another verdict.
const ROUNDED: &str = "the figures are rounded; another reading is possible";

/// Tables of what follows the sentence of a verdict.
const ALSO: [&str; 5] = ["limit_as_well", "spilled_as_well", "program_as_well", "slice_as_well", "caught_as_well"];

/// The result of the first row whose condition holds and whose sentence has all its figures; a row without a sentence has the message's.
fn judged(m: &OomMessage, tables: &[&str]) -> Judged {
    let mut doubt = None;
    for rule in tables.iter().flat_map(|name| rules::table(name)) {
        let Some((yes, is_sure)) = holds(m, rule.when) else { continue };
        doubt = doubt.or((!is_sure).then_some(ROUNDED));
        let says = rule.text("says").unwrap_or(m.says);
        if let (Some(&verdict), Some(sentence)) =
            (rule.verdicts.first(), Some(says).filter(|_| yes).and_then(|says| fill(m, says)))
        {
            let doubt = if rule.is_sure { None } else { doubt.or(rule.text("doubt")) };
            let also = |name: &&str| rules::lines_for(m, name, verdict).iter().find_map(|(_, says)| fill(m, says));
            let also: String = ALSO.iter().filter_map(also).collect();
            return Judged { verdict, doubt, sentence: sentence + &also };
        }
    }
    Judged { verdict: Unknown, doubt, sentence: String::new() }
}

pub(super) fn judge(m: &OomMessage) -> Judged {
    match m.dialect.writer {
        _ if !m.says.is_empty() && !m.asks_for_the_impossible() => judged(m, &["said"]),
        // A program with a table of its own.
        writer if !rules::table(writer.key()).is_empty() => judged(m, &["any", writer.key()]),
        writer if writer.neighbour().is_some() => judged(m, &["any", "neighbour"]),
        _ if m.is_warning => judged(m, &["any", "retried"]),
        _ if m.figures.requested.is_none() => judged(m, &["any", "no_request"]),
        _ if m.unread().is_empty() => judged(m, &["any", "device", "whole"]),
        _ => judged(m, &["any", "device", "cut"]),
    }
}

/// No verdict follows from figures that cannot all be true.
pub(super) fn contradicted(m: &OomMessage, contradictions: &[String]) -> Judged {
    let asked = fill(m, "{?{requested} was requested. }").unwrap_or_default();
    let first = contradictions.first().map_or("", String::as_str);
    let sentence = format!(
        "{asked}The figures contradict each other, so they do not tell why: {first}. Paste the message as it was printed, and of one failure only."
    );
    Judged { verdict: Unknown, doubt: Some("the figures contradict each other"), sentence }
}

/// Figures that contradict each other, one sentence each; empty if all figures can be true.
pub(super) fn contradictions(m: &OomMessage) -> Vec<String> {
    let below_zero =
        |printed: &String| format!("{printed} is below zero: a counter ran over, or the text was changed on its way here");
    let mut out: Vec<String> = m.negative.iter().map(below_zero).collect();
    // Other programs' figures are not of one card.
    if !is(m, "other program") && !is(m, "of the machine") {
        let impossible = rules::table("contradiction").iter().filter(|rule| holds(m, rule.when) == Some((true, true)));
        out.extend(impossible.filter_map(|rule| fill(m, rule.text("says")?)));
    }
    out
}
