//! Conditions of rules and of lines of advice: parts separated by commas, all of which must hold.
//!
//! A part is one of these:
//!
//! * a fact (`windows`, `not windows`, `cpu|tpu`): of [`FACTS`], of the rows `is NAME` in `facts.txt`, or what the text shows (`signs.txt`)
//! * a release that has it, `2.1`, or the last that can, `-1.15`
//! * the program that wrote it or around it (`by rmm|hami`, `in vllm`), words that its row says (`says is void`), a setting that the text
//!   shows (`given gradient_checkpointing=False`) or the beginning of its name (`gives bf16`)
//! * a figure that it tells (`limit told`), or a comparison of figures: `requested <= free + other_processes`. `<=` and `>` notice where the
//!   printed decimals do not decide them, `>?` holds then, `>!` does not, and `<` and `>=` compare what is printed.

use super::{compare, figures, rules};
use crate::formats::oom_message::{Figure, OomMessage, Writer, release};
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

/// True if it holds by the printed figures.
pub(super) fn is_true(m: &OomMessage, condition: &str) -> bool {
    holds(m, condition).is_some_and(|(yes, _)| yes)
}

/// `None` if it is not a comparison.
fn comparison(m: &OomMessage, part: &str) -> Option<Option<(bool, bool)>> {
    let words: Vec<&str> = part.split(' ').collect();
    let at = words.iter().position(|word| ["<=", ">", ">?", ">!", "<", ">="].contains(word))?;
    let (left, right) = (sum(m, &words[..at].join(" ")), sum(m, &words[at + 1..].join(" ")));
    Some(left.zip(right).map(|(a, b)| {
        let (fits, sure) = compare(a, b);
        match words[at] {
            "<=" => (fits, sure),
            ">" => (!fits, sure),
            ">?" => (!fits || !sure, sure),
            ">!" => (a.low() > b.high(), sure),
            "<" => (a.bytes < b.bytes, true),
            _ => (a.bytes >= b.bytes, true),
        }
    }))
}

/// `own + outside_pytorch - 512 MiB`.
pub(super) fn sum(m: &OomMessage, text: &str) -> Option<Figure> {
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
    let scale = match unit {
        "GiB" => GIBIBYTE,
        "bytes" => 1,
        _ => MEBIBYTE,
    };
    match number.parse::<u64>() {
        Ok(number) => Some(Figure::exact(number * scale)),
        Err(_) => figures::figure(m, text),
    }
}

/// A fact that a condition can name, and its test.
type Fact = (&'static str, fn(&OomMessage) -> bool);

#[rustfmt::skip]
const FACTS: &[Fact] = &[
    ("warning", |m| m.is_warning),
    ("figures", OomMessage::has_figures),
    ("cut", |m| !m.unread().is_empty()),
    ("breaks off", |m| m.unread().len() == 2 && m.figures.allocated.is_none() && m.reserved().is_none()),
    // The capacity, what is free, what is allocated and what is reserved.
    ("no other figure", |m| m.unread().len() == 4),
    // Below vLLM's default, and far below SGLang's.
    ("small share", |m| share(m).is_some_and(|share| share < 0.9)),
    // A larger one leaves nothing for what comes on top.
    ("full share", |m| share(m).is_some_and(|share| share >= 0.95)),
    ("little share", |m| share(m).is_some_and(|share| share < 0.7)),
    ("counts tokens", OomMessage::counts_tokens),
    ("several processes", |m| m.processes.len() > 1),
    ("kernel", |m| m.killed.is_some()),
    ("in a program", |m| m.around.is_some()),
    ("in a server", |m| m.around.is_some_and(Writer::is_server)),
    ("other program", |m| m.dialect.writer.neighbour().is_some()),
    ("of the machine", OomMessage::is_of_machine),
    ("impossible", OomMessage::asks_for_the_impossible),
    ("sliced", |m| m.mig_slice.is_some()),
    ("lists no process", |m| m.processes.is_empty()),
];

fn share(m: &OomMessage) -> Option<f64> {
    m.server_share.as_ref()?.parse().ok()
}

pub(super) fn is(m: &OomMessage, name: &str) -> bool {
    match name.split_once(' ') {
        Some(("not", fact)) => !is(m, fact),
        Some(("says", words)) => m.says.to_ascii_lowercase().contains(words),
        Some(("given", setting)) => m.is_given(setting),
        Some(("gives", settings)) => settings.split('|').any(|setting| m.gives(setting)),
        Some(("by", writers)) => writers.split('|').any(|key| key == m.dialect.writer.key()),
        Some(("in", programs)) if !programs.starts_with("a ") => {
            m.around.is_some_and(|around| programs.split('|').any(|key| key == around.key()))
        }
        _ if let Some((fact, others)) = name.split_once('|') => is(m, fact) || is(m, others),
        _ if let Some(figure) = name.strip_suffix(" told") => figures::figure(m, figure).is_some(),
        _ => {
            name == m.dialect.platform.name()
                || m.seen.contains(name)
                || FACTS.iter().find(|(known, _)| *known == name).is_some_and(|(_, is)| is(m))
                || rules::fact(m, name).unwrap_or_else(|| may_be_of(m, name))
        }
    }
}

/// True if releases that may have written the message have what came with `2.1`; with `-1.15` if none is newer.
fn may_be_of(m: &OomMessage, name: &str) -> bool {
    let until = m.dialect.until;
    match name.strip_prefix('-') {
        Some(last) => release(last).zip(until).is_some_and(|(last, until)| until <= last),
        None => release(name).is_some_and(|first| until.is_none_or(|until| until >= first)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::rules::tests::{conditions, sentences};
    use super::*;
    use crate::formats::oom_message::shows;

    /// A name that is mistyped would never hold.
    #[test]
    fn every_condition_names_what_there_is() {
        for text in conditions() {
            for part in text.split(", ") {
                let part = part.strip_prefix("not ").unwrap_or(part);
                if let Some(writers) =
                    part.strip_prefix("by ").or(part.strip_prefix("in ").filter(|name| !name.starts_with("a ")))
                {
                    assert!(writers.split('|').all(|key| Writer::of_key(key).is_some()), "{part}: {text}");
                    continue;
                }
                if part.starts_with("given ") || part.starts_with("gives ") {
                    continue;
                }
                if let Some(words) = part.strip_prefix("says ") {
                    assert!(sentences().iter().any(|says| says.to_ascii_lowercase().contains(words)), "{part}: {text}");
                    continue;
                }
                let names = part.split(['|', '<', '>', '=', '?', '!', '+', '-', '/']).map(|name| name.trim());
                for name in names.filter(|name| !name.is_empty()) {
                    let figure = figures::is_figure(name.strip_suffix(" told").unwrap_or(name));
                    let size = name.split(' ').next().is_some_and(|number| number.parse::<f64>().is_ok());
                    let platform = name.parse::<crate::formats::oom_message::Platform>().is_ok();
                    let fact = FACTS.iter().any(|(known, _)| *known == name) || !rules::table(&format!("is {name}")).is_empty();
                    let set =
                        "rejected|chained|bare|foreign|counts below zero|one at once|attempt|miscounted|peers|others too small";
                    let seen = shows(name) || set.split('|').any(|known| known == name);
                    assert!(figure || size || platform || fact || seen, "{name}: {text}");
                }
            }
        }
    }
}
