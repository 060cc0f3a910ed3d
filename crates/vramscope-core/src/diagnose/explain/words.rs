//! Sentences that name figures of a message.
//!
//! `{free}` in a sentence is that figure as it was printed; `{tool}` and its like are the words of the card's vendor. A sentence that names
//! what the message does not tell cannot be said. `{? of {limit}}` is left out then; of `{?a|b}` the first that can be said stands.

use super::condition::{holds, is};
use super::figures::{Named, figure, others_by_size, program_parts};
use super::rules;
use crate::diagnose::vendor::Words;
use crate::formats::oom_message::{OomMessage, Platform, Writer};
use crate::units::{MEBIBYTE, pytorch_size};

/// Words that a sentence may name.
const WORDS: [Named<String>; 35] = [
    ("program", |m| Some(m.known_as().unwrap_or(m.dialect.writer).title().to_owned())),
    ("around", |m| Some(m.around?.title().to_owned())),
    ("rank", |m| Some(m.rank?.to_string())),
    ("killed", |m| m.killed.clone()),
    ("gpu", |m| Some(m.gpu.filter(|_| m.dialect.writer.neighbour().is_none())?.to_string())),
    ("share", |m| {
        let reserved = m.reserved().filter(|r| r.bytes > 0)?;
        Some(format!("{:.1} %", m.unallocated()?.bytes as f64 * 100.0 / reserved.bytes as f64))
    }),
    ("tensor", tensor),
    ("unread", |m| Some(listed(&m.unread())).filter(|list| !list.is_empty())),
    ("own pid", |m| Some(m.processes.iter().find(|p| p.is_this)?.pid?.to_string())),
    ("untold", untold),
    ("times", |m| match m.warnings {
        0 => None,
        1 => Some("once".to_owned()),
        n => Some(format!("{n} times")),
    }),
    ("others", others),
    ("largest pid", |m| Some(others_by_size(m).first()?.pid?.to_string())),
    ("elements", |m| Some(m.elements?.to_string())),
    ("wanted", |m| Some(m.wanted?.to_string())),
    ("fits", |m| Some(m.fits?.to_string())),
    ("roughly fits", roughly_fits),
    ("part", |m| {
        let part = m.figures.limit?.bytes as f64 / m.figures.requested?.bytes.max(1) as f64;
        (part < 1.0).then(|| format!("{:.0} %", part * 100.0))
    }),
    ("slice", |m| m.mig_slice.clone().filter(|profile| !profile.is_empty())),
    ("program parts", |m| {
        let parts: Vec<String> = program_parts(m).iter().map(|(figure, what)| format!("{figure} {what}")).collect();
        Some(listed(&parts)).filter(|parts| !parts.is_empty())
    }),
    ("largest buffer", |m| {
        let buffer = *super::largest(m).first()?;
        let what = buffer.operator.as_deref().or(buffer.shape.as_deref()).map_or(String::new(), |what| format!(", {what}"));
        let place = buffer.source.as_deref().map_or(String::new(), |source| format!(" ({source})"));
        Some(format!("{}{what}{place}", pytorch_size(buffer.bytes)))
    }),
    ("part of card", |m| {
        let part = m.figures.requested?.bytes as f64 / m.figures.capacity?.bytes.max(1) as f64;
        Some(format!("{:.0} %", part * 100.0))
    }),
    ("fraction", |m| Some(format!("{:.2}", fraction_needed(m)?))),
    ("share to take", share_to_take),
    ("own share", |m| m.server_share.clone()),
    ("conf", |m| Some(variable(m).to_owned())),
    ("vendor tool", |m| Some(vendor(m).tool_that_lists().to_owned())),
    ("vendor holders", |m| Some(vendor(m).holders.to_owned())),
    ("vendor watch", |m| Some(vendor(m).watch.to_owned())),
    ("module", |m| Some(vendor(m).module.to_owned())),
    ("visible", |m| Some(vendor(m).visible.to_owned())),
    ("visible name", |m| Some(vendor(m).visible_name().to_owned())),
    ("blocking", |m| Some(vendor(m).blocking.to_owned())),
    ("malloc", |m| Some(vendor(m).malloc.to_owned())),
    ("collectives", |m| Some(vendor(m).collectives.to_owned())),
];

/// The sentence with what it names; `None` where the message does not tell that, or where a condition in brackets before it does not hold.
pub(super) fn fill(m: &OomMessage, text: &str) -> Option<String> {
    let (condition, text) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')).unwrap_or(("", text));
    if !holds(m, condition)?.0 {
        return None;
    }
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, inside)) = rest.split_once('{') {
        out.push_str(before);
        let end = closing(inside)?;
        let (name, after) = (&inside[..end], &inside[end + 1..]);
        if let Some(choices) = name.strip_prefix('?') {
            out.push_str(&choices.split('|').find_map(|choice| fill(m, choice)).unwrap_or_default());
        } else if name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b == b' ') {
            out.push_str(&word(m, name)?);
        } else {
            // Braces of a line of code.
            out.push('{');
            rest = inside;
            continue;
        }
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}

/// Where the brace closes that was opened before a text.
fn closing(text: &str) -> Option<usize> {
    let mut open = 1;
    text.bytes().position(|b| {
        open += i32::from(b == b'{') - i32::from(b == b'}');
        open == 0
    })
}

fn word(m: &OomMessage, name: &str) -> Option<String> {
    if let Some(figure) = figure(m, name) {
        return Some(figure.told());
    }
    match WORDS.iter().find(|(known, _)| *known == name) {
        Some((_, of)) => of(m),
        None => rules::named(m, "word", name).iter().find_map(|(_, text)| fill(m, text)),
    }
}

fn vendor(m: &OomMessage) -> &'static Words {
    Words::of_platform(m.dialect.platform)
}

/// The variable that holds the allocator's settings: the one that the message names, else that of its release and platform (one name
/// for all from 2.10 on).
fn variable(m: &OomMessage) -> &'static str {
    match m.settings_variable {
        Some(named) => named,
        None if m.dialect.since >= Some((2, 10)) => "PYTORCH_ALLOC_CONF",
        None => vendor(m).conf,
    }
}

/// The size of the tensor behind a request that PyTorch rounded up to a segment.
fn tensor(m: &OomMessage) -> Option<String> {
    let q = m.figures.requested?.bytes;
    let is_segment = m.dialect.writer == Writer::PYTORCH
        && matches!(m.dialect.platform, Platform::Cuda | Platform::Hip | Platform::Xpu)
        && !is(m, "rejected");
    match q / MEBIBYTE {
        // PyTorch takes an even number of MiB; other figures come from elsewhere.
        _ if !is_segment || q % (2 * MEBIBYTE) != 0 => None,
        2 => Some("at most 1 MiB: PyTorch takes 2 MiB from the device for those".to_owned()),
        20 => Some("between 1 and 10 MiB (PyTorch takes 20 MiB from the device for those), or between 18 and 20 MiB".to_owned()),
        n @ 3..1024 => Some(format!("between {} and {n} MiB: PyTorch rounds up to 2 MiB", n - 2)),
        _ => None,
    }
}

/// Processes whose use the driver does not tell.
fn untold(m: &OomMessage) -> Option<String> {
    let untold = m.processes.iter().filter(|p| p.bytes.is_unlimited());
    let names: Vec<String> = untold.map(|p| p.pid.map_or("this process".to_owned(), |pid| format!("process {pid}"))).collect();
    (!names.is_empty()).then(|| listed(&names))
}

fn others(m: &OomMessage) -> Option<String> {
    let name = |pid: Option<u32>| pid.map_or("one".to_owned(), |pid| format!("pid {pid}"));
    let others = others_by_size(m);
    // Next to the largest some hold nothing that anyone would miss.
    let least = others.first().map_or(0, |p| p.bytes.bytes) / 50;
    let shown = others.iter().filter(|p| p.bytes.bytes > least).take(5);
    let list: Vec<String> = shown.map(|p| format!("{} with {}", name(p.pid), p.bytes)).collect();
    (!list.is_empty()).then(|| list.join(", "))
}

/// The longest input that vLLM's cache has room for if each token takes the same, down to two digits: `430,000`.
fn roughly_fits(m: &OomMessage) -> Option<String> {
    let share = m.figures.limit?.low() as f64 / m.figures.requested?.high().max(1) as f64;
    let tokens = (m.wanted? as f64 * share) as u64;
    let step = 10u64.pow(tokens.max(1).ilog10().saturating_sub(1));
    Some(tokens / step * step).filter(|&n| n > 0).map(crate::units::count)
}

/// The memory fraction that would have let the request through.
fn fraction_needed(m: &OomMessage) -> Option<f64> {
    let needed = figure(m, "needed")?.high() as f64 / m.figures.capacity?.low() as f64;
    Some((needed * 100.0).ceil() / 100.0).filter(|fraction| *fraction <= 1.0)
}

/// The share of the card that vLLM can take from what is free, with a small margin.
fn share_to_take(m: &OomMessage) -> Option<String> {
    let free = m.figures.free?.low() as f64 / m.figures.capacity?.high().max(1) as f64;
    Some((free * 100.0).floor() / 100.0 - 0.03).filter(|share| *share >= 0.1).map(|share| format!("{share:.2}"))
}

/// `a, b and c`.
pub(super) fn listed<S: AsRef<str>>(words: &[S]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => words.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that is mistyped would never be told.
    #[test]
    fn every_sentence_names_what_there_is() {
        for says in super::super::rules::tests::sentences() {
            for name in says.split('{').skip(1).filter_map(|part| part.split_once('}')).map(|(name, _)| name) {
                let is_name = name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b == b' ');
                let is_word = WORDS.iter().any(|(n, _)| *n == name) || !rules::table(&format!("word {name}")).is_empty();
                let is_known = super::super::figures::is_figure(name) || is_word;
                assert!(!is_name || is_known, "{name}: {says}");
            }
        }
    }
}
