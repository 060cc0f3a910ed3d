//! Whose message it is, and which rules judge it.

use super::Verdict;
use super::Verdict::{Capacity, Unknown};
use super::condition::holds;
use super::rules;
use super::words::{fill, listed};
use crate::formats::oom_message::{Figure, OomMessage, Writer};
use crate::units::{GIBIBYTE, pytorch_size};

/// A verdict with its numbers.
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    /// Why another verdict is possible; `None` if the figures force this one.
    pub(super) doubt: Option<&'static str>,
    pub(super) sentence: String,
}

/// Another value with the same printed decimals gives another verdict.
const ROUNDED: &str = "the figures are rounded; another reading is possible";
/// A program that holds less than this does not fill a device.
const SMALL_PROGRAM: u64 = GIBIBYTE / 4;

/// The result of the first row whose condition holds and whose sentence has all its figures; a row without a sentence has the message's.
fn judged(m: &OomMessage, tables: &[&str]) -> Judged {
    let mut doubt = None;
    for rule in tables.iter().flat_map(|name| rules::table(name)) {
        let Some((yes, is_sure)) = holds(m, rule.when) else { continue };
        doubt = doubt.or((!is_sure).then_some(ROUNDED));
        let says = rule.text("says").unwrap_or(m.says);
        if let (Some(verdict), Some(sentence)) = (rule.verdict, Some(says).filter(|_| yes).and_then(|says| fill(m, says))) {
            let doubt = if rule.is_sure { None } else { doubt.or(rule.text("doubt")) };
            let also = |name| rules::lines_for(m, name, verdict).iter().find_map(|(_, says)| fill(m, says)).unwrap_or_default();
            return Judged { verdict, doubt, sentence: sentence + &also("limit_as_well") + &also("spilled_as_well") };
        }
    }
    Judged { verdict: Unknown, doubt, sentence: String::new() }
}

pub(super) fn judge(m: &OomMessage) -> Judged {
    match m.dialect.writer {
        _ if !m.says.is_empty() && !m.asks_for_the_impossible() => judged(m, &["said"]),
        Writer::MPS => judged(m, &["any", "mps"]),
        Writer::VLLM => judged(m, &["any", "vllm"]),
        writer if writer.neighbour().is_some() => neighbour(m),
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

/// Another program than PyTorch, with what XLA's report has on the program and its largest buffer.
fn neighbour(m: &OomMessage) -> Judged {
    let mut judged = judged(m, &["any", "neighbour"]);
    xla_program(m, &mut judged);
    if let Some(buffer) = super::largest(m).first() {
        let what = buffer.operator.as_deref().or(buffer.shape.as_deref()).map_or(String::new(), |what| format!(", {what}"));
        let place = buffer.source.as_deref().map_or(String::new(), |source| format!(" ({source})"));
        judged.sentence.push_str(&format!(" The largest buffer is {}{what}{place}.", pytorch_size(buffer.bytes)));
    }
    judged
}

/// What the compiled program needs and for what, from the statistics of XLA's report.
fn xla_program(m: &OomMessage, judged: &mut Judged) {
    let of = |names: &[&str]| {
        let figure = m.extra.iter().find(|(name, _)| names.contains(&name.as_str())).map(|(_, figure)| *figure);
        figure.filter(|f| f.bytes > 0)
    };
    let mut parts: Vec<(Figure, &str)> = [
        (of(&["preallocated temp allocation", "HLO temp"]), "for temporaries (intermediate results)"),
        (of(&["parameter allocation", "arguments"]), "for its arguments"),
        (of(&["maybe_live_out allocation", "output"]), "for its results"),
    ]
    .into_iter()
    .filter_map(|(figure, what)| Some((figure?, what)))
    .collect();
    parts.sort_by_key(|(figure, _)| std::cmp::Reverse(figure.bytes));
    let Some((most, _)) = parts.first().copied() else { return };
    let parts = listed(&parts.iter().map(|(figure, what)| format!("{figure} {what}")).collect::<Vec<_>>());
    let Some(total) = of(&["total allocation"]) else {
        judged.sentence.push_str(&format!(" The program takes {parts}."));
        return;
    };
    judged.sentence.push_str(&format!(" The program takes {total} in all: {parts}."));
    if judged.verdict == Unknown && total.bytes < SMALL_PROGRAM {
        judged.sentence.push_str(" That is little: the device is full of other arrays of this process, or of other processes.");
    } else if judged.verdict == Unknown && most.bytes >= total.bytes / 2 {
        judged.verdict = Capacity;
        judged.doubt = Some("the message does not say how large the device is and what else is on it");
    }
}
