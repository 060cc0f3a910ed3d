//! Conditions of rules and of lines of advice: parts separated by commas, all of which must hold.
//!
//! A part is a fact of the message (`windows`, `not windows`; a release that has it, `2.1`, or the last that can, `-1.15`), a figure that it
//! tells (`limit told`), or a comparison of figures: `requested <= free + other_processes`. `<=` and `>` notice where the printed decimals do
//! not decide them, `>?` holds then, and `<` and `>=` compare what is printed.

use super::{compare, device, figures};
use crate::formats::oom_message::{Cause, Figure, OomMessage, Platform, Writer, release};
use crate::units::{GIBIBYTE, MEBIBYTE};

/// Whether a condition holds, and whether the printed decimals decide that. `None` if it needs a figure that the message does not
/// have.
pub(super) fn holds(m: &OomMessage, condition: &str) -> Option<(bool, bool)> {
    let mut is_sure = true;
    for part in condition.split(", ").filter(|part| !part.is_empty()) {
        let (yes, sure) = match part.split_once(' ').and_then(|_| comparison(m, part)) {
            Some(compared) => compared?,
            None => (is(m, part), true),
        };
        is_sure &= sure;
        if !yes {
            return Some((false, is_sure));
        }
    }
    Some((true, is_sure))
}

/// `None` if it is not a comparison.
fn comparison(m: &OomMessage, part: &str) -> Option<Option<(bool, bool)>> {
    let words: Vec<&str> = part.split(' ').collect();
    let at = words.iter().position(|word| ["<=", ">", ">?", "<", ">="].contains(word))?;
    let (left, right) = (sum(m, &words[..at].join(" ")), sum(m, &words[at + 1..].join(" ")));
    Some(left.zip(right).map(|(a, b)| {
        let (fits, sure) = compare(a, b);
        match words[at] {
            "<=" => (fits, sure),
            ">" => (!fits, sure),
            ">?" => (!fits || !sure, sure),
            "<" => (a.bytes < b.bytes, true),
            _ => (a.bytes >= b.bytes, true),
        }
    }))
}

/// `own + outside_pytorch - 512 MiB`.
fn sum(m: &OomMessage, text: &str) -> Option<Figure> {
    if let Some((before, last)) = text.rsplit_once(" - ").filter(|(_, last)| !last.contains(" + ")) {
        return Some(sum(m, before)?.minus(term(m, last)?));
    }
    match text.rsplit_once(" + ") {
        Some((before, last)) => Some(sum(m, before)?.plus(term(m, last)?)),
        None => term(m, text),
    }
}

/// A figure, a part of one, or a size: `capacity / 4`, `2 GiB`, `0`.
fn term(m: &OomMessage, text: &str) -> Option<Figure> {
    if let Some((figure, parts)) = text.split_once(" / ") {
        let (figure, parts): (Figure, u64) = (figures::figure(m, figure)?, parts.parse().ok()?);
        return Some(Figure { bytes: figure.bytes / parts, slack: figure.slack });
    }
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let scale = if unit == "GiB" { GIBIBYTE } else { MEBIBYTE };
    match number.parse::<u64>() {
        Ok(number) => Some(Figure::exact(number * scale)),
        Err(_) => figures::figure(m, text),
    }
}

/// A fact that a condition can name, and its test.
type Fact = (&'static str, fn(&OomMessage) -> bool);

#[rustfmt::skip]
const FACTS: [Fact; 37] = [
    ("expands", |m| m.expandable_segments == Some(true)),
    // Windows' PyTorch has no expandable segments.
    ("windows", |m| m.on_windows),
    // Has expandable segments: PyTorch 2.1, on AMD 2.11.
    ("grows", |m| !m.on_windows && !is(m, "expands") && is(m, if is(m, "hip") { "2.11" } else { "2.1" })),
    ("capturing", |m| m.is_capturing),
    ("vllm", |m| m.around == Some(Writer::Vllm)),
    ("driver", |m| m.dialect.writer == Writer::Runtime && m.says.contains("expandable segments")),
    ("warning", |m| m.is_warning),
    ("figures", OomMessage::has_figures),
    ("cut", |m| !m.unread().is_empty()),
    ("breaks off", |m| m.unread().len() == 2 && m.figures.allocated.is_none() && m.reserved().is_none()),
    ("no other figure", |m| m.unread().len() == device::ALL_FIGURES),
    ("foreign", |m| m.is_foreign),
    ("nvidia", |m| !matches!(m.dialect.platform, Platform::Hip | Platform::Xpu | Platform::Npu)),
    // PyTorch's own allocator has handed its cache back before it gives up; others fail beside a full cache.
    ("pytorch", |m| m.dialect.writer == Writer::PyTorch),
    ("async", |m| m.dialect.writer == Writer::CudaMallocAsync),
    ("pytorch's", |m| matches!(m.dialect.writer, Writer::PyTorch | Writer::CudaMallocAsync)),
    ("cublas", |m| m.dialect.writer == Writer::Cublas),
    ("nccl", |m| m.dialect.writer == Writer::Nccl),
    ("pool allocator", |m| m.cause == Some(Cause::PoolAllocator)),
    ("segment reserve", |m| m.cause == Some(Cause::SegmentReserve)),
    ("rejected", |m| m.cause == Some(Cause::Rejected)),
    ("tokens", |m| m.context.is_some() || m.figures.requested.is_some() && m.figures.free.is_none()),
    ("several processes", |m| m.processes.len() > 1),
    ("fits", |m| m.figures.requested.zip(m.figures.free).is_some_and(|(q, free)| q.bytes <= free.bytes)),
    ("pools hold it", device::pools_hold_it),
    ("limit decides", device::limit_decides),
    ("limit refused", |m| device::limit_refused(m) == Some(true)),
    ("limit short", |m| device::left(m).zip(m.figures.requested).is_some_and(|(left, q)| q.bytes > left.bytes)),
    ("tensor may fit", device::tensor_may_fit),
    ("few holes", device::has_few_holes),
    ("spilled", device::is_spilled),
    ("small beside a server", device::are_small_beside_a_server),
    ("kernel", |m| m.killed.is_some()),
    ("tensorflow", |m| m.dialect.writer == Writer::TensorFlow),
    // What the text shows to be set already.
    ("checkpointing", |m| m.gives("gradient_checkpointing") && !m.is_given("gradient_checkpointing=False")),
    ("half", |m| ["bf16", "fp16", "torch_dtype=torch.bfloat16", "torch_dtype=torch.float16", "mixed_precision="].iter().any(|name| m.gives(name))),
    ("peers", |m| m.has_peers),
];

pub(super) fn is(m: &OomMessage, name: &str) -> bool {
    if let Some(name) = name.strip_prefix("not ") {
        return !is(m, name);
    }
    if let Some(name) = name.strip_suffix(" told") {
        return figures::figure(m, name).is_some();
    }
    let fact = FACTS.iter().find(|(known, _)| *known == name).is_some_and(|(_, is)| is(m));
    let until = m.dialect.until;
    fact || name == m.dialect.platform.name()
        || match name.strip_prefix('-') {
            Some(last) => release(last).zip(until).is_some_and(|(last, until)| until <= last),
            // False where every release that writes the message is older.
            None => release(name).is_some_and(|first| until.is_none_or(|until| until >= first)),
        }
}

#[cfg(test)]
mod tests {
    use super::super::{advice, rules};
    use super::*;

    /// A name that is mistyped would never hold.
    #[test]
    fn every_condition_names_what_there_is() {
        let of_rules = rules::ALL.iter().copied().flatten().flat_map(|rule| [rule.when, rule.says]);
        let of_advice = advice::ALL.iter().copied().flatten().copied();
        let known = super::super::KNOWN.iter().map(|known| known.1);
        for text in of_rules.chain(of_advice).chain(known) {
            let bracketed = text.split('[').skip(1).filter_map(|rest| rest.split_once(']')).map(|(inside, _)| inside);
            let whole = if text.contains('{') || text.ends_with('.') || text.contains('[') { "" } else { text };
            for part in bracketed.chain([whole]).flat_map(|condition| condition.split(", ")).filter(|part| *part != "0") {
                let names = part.split(['<', '>', '=', '?', '+', '-', '/']).map(|name| name.trim());
                for name in names.map(|name| name.strip_prefix("not ").unwrap_or(name)).filter(|name| !name.is_empty()) {
                    let figure = figures::is_figure(name.strip_suffix(" told").unwrap_or(name));
                    let size = name.split(' ').next().is_some_and(|number| number.parse::<f64>().is_ok());
                    let platform = ["hip", "xpu", "npu", "tpu", "cpu"].contains(&name);
                    assert!(figure || size || platform || FACTS.iter().any(|(known, _)| *known == name), "{name}: {text}");
                }
            }
        }
    }
}
