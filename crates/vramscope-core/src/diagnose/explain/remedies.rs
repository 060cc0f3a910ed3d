//! What to change, by verdict, in the words of the card's vendor and with what the release that wrote the message has.

use super::rules::lines_for;
use super::words::fill;
use super::{Remedy, Verdict};
use crate::formats::oom_message::OomMessage;

/// A line of advice in the message's words; `None` where it does not apply.
fn tip(m: &OomMessage, line: &str) -> Option<Remedy> {
    let text = fill(m, line)?;
    let setting = text.split('`').nth(1).map(str::to_owned);
    let is_relative = ["lower `", "higher `", "leave out `", "fewer `"].iter().any(|words| text.contains(words));
    // What is set already does not help.
    if !is_relative && setting.as_deref().is_some_and(|setting| m.is_given(setting)) {
        return None;
    }
    Some(Remedy { sentence: text.trim_start().replace('`', ""), setting })
}

/// Where others hold the device this comes first.
const WHO: &str = "See who else holds the card: {tool}.";

/// Advice of the message's own row, or of the table (`advice.txt`).
pub(super) fn remedies(m: &OomMessage, verdict: Verdict) -> Vec<Remedy> {
    let mut lines = lines(m, verdict);
    if verdict == Verdict::Contention {
        lines.sort_by_key(|line| *line != WHO);
    }
    lines.into_iter().filter_map(|line| tip(m, line)).collect()
}

fn lines(m: &OomMessage, verdict: Verdict) -> Vec<&'static str> {
    if !m.tips.is_empty() && !m.asks_for_the_impossible() {
        let goes_on = lines_for(m, "goes_on", verdict).iter().map(|&(_, line)| line);
        return goes_on.chain(m.tips.iter().copied()).collect();
    }
    let full = lines_for(m, "full", verdict);
    let mut out = Vec::new();
    for &(mark, text) in lines_for(m, "advice", verdict) {
        match text.split_once("..").filter(|_| mark == "full") {
            Some((from, to)) => {
                let part = full.iter().take(to.parse().unwrap_or(full.len())).skip(from.parse().unwrap_or(0));
                out.extend(part.map(|&(_, line)| line));
            }
            None => out.push(text),
        }
    }
    out
}
