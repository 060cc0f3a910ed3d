//! Whose message it is, and which rules judge it.

use super::Verdict;
use super::Verdict::{Cap, Capacity, Contention, TooLarge, Unknown};
use super::condition::holds;
use super::rules::{self, Rule};
use super::words::{fill, listed};
use crate::formats::oom_message::{Figure, OomMessage, Platform, Writer};
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

/// The result of the first rule whose condition holds and whose sentence has all its figures.
fn judged(m: &OomMessage, tables: &[&[Rule]]) -> Judged {
    let mut doubt = None;
    for rule in tables.iter().copied().flatten() {
        let Some((yes, is_sure)) = holds(m, rule.when) else { continue };
        doubt = doubt.or((!is_sure).then_some(ROUNDED));
        if let Some(sentence) = Some(rule.says).filter(|_| yes).and_then(|says| fill(m, says)) {
            let doubt = if rule.is_sure { None } else { doubt.or(rule.doubt) };
            let also = Some(rules::LIMIT_AS_WELL).filter(|_| !matches!(rule.verdict, Cap | TooLarge));
            let also = also.and_then(|also| fill(m, also)).unwrap_or_default();
            return Judged { verdict: rule.verdict, doubt, sentence: sentence + &also };
        }
    }
    Judged { verdict: Unknown, doubt, sentence: String::new() }
}

pub(super) fn judge(m: &OomMessage) -> Judged {
    let of = |verdict, says| Judged { verdict, doubt: None, sentence: fill(m, says).unwrap_or_default() };
    let one_block = m.figures.requested.is_some() && m.figures.largest_block.is_some();
    match m.dialect.writer {
        _ if m.asks_for_the_impossible() => of(
            TooLarge,
            "The program requested {?{requested}|more than 1 EiB}, which no card has: the size was computed wrong (a negative or uninitialised dimension).",
        ),
        _ if !m.says.is_empty() => of(verdict_of_said(m), m.says),
        _ if one_block => of(
            TooLarge,
            "{requested} was requested in one block, and this device's driver allows no single block above {largest_block}. Memory is not what ran out.",
        ),
        Writer::Cpu => {
            of(Unknown, "Host memory ran out, not the GPU's: the operating system refused a request{? for {requested}}.")
        }
        Writer::Mps => judged(m, &[rules::MPS]),
        Writer::Vllm => judged(m, &[rules::VLLM]),
        writer if writer.neighbour().is_some() => neighbour(m),
        _ if m.is_pinned => of(
            Unknown,
            "The call pins memory of the machine (not the GPU's), and the driver could not get it. CUDA uses the same words for a full card.",
        ),
        _ if m.is_warning => judged(m, &[rules::RETRIED]),
        _ if m.figures.requested.is_none() => judged(m, &[rules::NO_REQUEST]),
        _ => judged(m, &[rules::DEVICE, if m.unread().is_empty() { rules::WHOLE } else { rules::CUT }]),
    }
}

/// The verdict of a dialect that has a sentence of its own.
fn verdict_of_said(m: &OomMessage) -> Verdict {
    let f = &m.figures;
    let is_over = |limit: Option<Figure>| f.requested.zip(limit).is_some_and(|(q, limit)| q.bytes > limit.bytes);
    match (m.dialect.writer, m.dialect.platform) {
        _ if m.is_warning => Unknown,
        (Writer::Rmm | Writer::Hami, _) => Cap,
        _ if f.room.is_some() => Cap,
        // Another process gave memory back while it measured.
        (Writer::Vllm, _) if f.free.is_some() => Contention,
        (Writer::Triton, _) => TooLarge,
        (Writer::Sglang | Writer::Tgi | Writer::Vllm | Writer::TrtLlm | Writer::Transformers | Writer::ExLlama, _) => Capacity,
        (_, Platform::Vulkan | Platform::Mps) => TooLarge,
        _ if is_over(f.capacity) => TooLarge,
        _ if is_over(f.free) => Capacity,
        _ => Unknown,
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
    let mut judged = judged(m, &[rules::NEIGHBOUR]);
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
