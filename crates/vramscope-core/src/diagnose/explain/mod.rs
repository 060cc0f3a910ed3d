//! What an out-of-memory message means: the verdict that its figures allow, what it leaves open, what to change, and how to
//! record the rest.
//!
//! A message has a handful of rounded figures; a snapshot has every block. So this works with intervals: a verdict is
//! [`certain`](Explanation::certain) only if it holds for every value with the printed decimals, and for everything that the
//! message leaves out. The rules and the advice are tables of plain text (`facts.txt`, `rules.txt`, `advice.txt`), read by `rules`.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

pub use super::oom::Verdict;
use crate::formats::oom_message::{Figure, OomMessage, PeakBuffer, ProcessUse};
use crate::units::pytorch_size;

mod condition;
mod figures;
mod judge;
mod remedies;
mod rules;
mod words;

/// One thing to do about it. In JSON it is its sentence, which holds the setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// What to do and why, in one or two sentences.
    pub sentence: String,
    /// The line to copy; `None` if there is none.
    pub setting: Option<String>,
}

impl Serialize for Remedy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.sentence)
    }
}

/// A part of the card, for a bar to scale. Parts follow each other from 0 and sum to the capacity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// `live`, `private_pool_cache`, `holes`, `outside_pytorch`, `this_process` (where PyTorch's share of it is not told), `other_processes`, `unattributed`, `free`, `room_under_limit`.
    pub name: &'static str,
    /// Bytes, from the printed figures.
    pub bytes: u64,
}

/// An out-of-memory message, decoded and judged. Serialises to what `explain --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// Who wrote it, with the releases its wording belongs to: `pytorch-2.4-2.9`.
    pub dialect: String,
    /// The same for people: `PyTorch 2.4 to 2.9`.
    #[serde(skip)]
    pub writer: String,
    /// `cuda`, `hip`, `xpu`, `mps`, `npu`, `tpu`, `directml`, `vulkan`, `metal`, `cpu` or `unknown`.
    pub platform: &'static str,
    /// Line of the text it starts in, from 1.
    pub line: u32,
    /// The GPU's index inside the process.
    pub gpu: Option<u32>,
    /// The rank its log line belongs to.
    pub rank: Option<u32>,
    /// The MIG slice that the card is, if the text says so: its profile, `1g.10gb`, or empty if the text has only its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig_slice: Option<String>,
    /// Every figure in bytes, printed or derived from printed ones.
    pub figures: BTreeMap<&'static str, u64>,
    /// How far each figure may be off, in bytes, because it was printed rounded. Exact ones are absent.
    pub rounding: BTreeMap<&'static str, u64>,
    /// The processes it lists.
    pub processes: Vec<ProcessUse>,
    /// The figures as parts of the card; empty when they do not add up to one.
    pub parts: Vec<Part>,
    /// What the process may hold, divided the same way; empty unless its limit refused the request.
    pub limit_parts: Vec<Part>,
    /// Why memory ran out; [`Verdict::Unknown`] if the figures do not tell or contradict each other.
    pub verdict: Verdict,
    /// What ran out: the verdict's name; if that is `unknown` but the cause is known, `host_memory`, `shared_memory` or
    /// `no_failure`.
    pub cause: &'static str,
    /// True when the figures force the verdict.
    pub certain: bool,
    /// Why they do not: another value within the printed rounding, or something the message leaves out, would change it.
    pub doubt: Option<&'static str>,
    /// The verdict with its numbers.
    pub sentence: String,
    /// Figures that cannot all be true, one sentence each with the usual reason; the verdict is then unknown.
    pub contradictions: Vec<String>,
    /// What the message tells beyond the verdict.
    pub known: Vec<String>,
    /// The largest buffers of an XLA program that did not fit, largest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub buffers: Vec<PeakBuffer>,
    /// What no message can tell.
    pub not_known: Vec<String>,
    /// What to change, most promising first.
    pub remedies: Vec<Remedy>,
    /// Python lines that record a snapshot, which shows the rest; empty if there is no such recorder.
    pub record: Vec<String>,
}

/// Explains every message. A log may say the same thousands of times: what differs from the message before only in its line is worked out
/// once.
pub fn explain_all(messages: &[OomMessage]) -> Vec<Explanation> {
    let mut out: Vec<Explanation> = Vec::with_capacity(messages.len());
    for (i, message) in messages.iter().enumerate() {
        let before = i.checked_sub(1).and_then(|before| messages.get(before).zip(out.get(before)));
        let known =
            before.filter(|(like, _)| **like == OomMessage { line: like.line, ..message.clone() }).map(|(_, known)| known);
        let explained = known.map_or_else(|| explain(message), |known| Explanation { line: message.line, ..known.clone() });
        out.push(explained);
    }
    out
}

/// Judges a message by its figures and its wording; reads no recording.
pub fn explain(message: &OomMessage) -> Explanation {
    let contradictions = judge::contradictions(message);
    let judged = if contradictions.is_empty() { judge::judge(message) } else { judge::contradicted(message, &contradictions) };
    let is_consistent = contradictions.is_empty();
    let (mut figures, mut rounding) = (BTreeMap::new(), BTreeMap::new());
    for (name, of) in figures::FIGURES {
        let Some(figure) = of(message).filter(|f| !f.is_unlimited() && (is_consistent || name != "unattributed_bytes")) else {
            continue;
        };
        figures.insert(name, figure.bytes);
        if figure.slack > 0 {
            rounding.insert(name, figure.slack);
        }
    }
    let lines = |table| rules::lines_for(message, table, judged.verdict);
    let sentence = judged.sentence.strip_prefix("a ").map(|rest| format!("A {rest}")).unwrap_or(judged.sentence);
    Explanation {
        dialect: message.dialect.name(),
        writer: message
            .known_as()
            .map_or_else(|| message.dialect.title(), |above| format!("{} ({})", above.title(), message.dialect.title())),
        platform: message.dialect.platform.name(),
        line: message.line,
        gpu: message.gpu,
        rank: message.rank,
        mig_slice: message.mig_slice.clone(),
        figures,
        rounding,
        processes: message.processes.clone(),
        // No bar adds up from figures that contradict each other.
        parts: if is_consistent { parts(message) } else { Vec::new() },
        limit_parts: if is_consistent { limit_parts(message, judged.verdict) } else { Vec::new() },
        verdict: judged.verdict,
        cause: lines("cause").first().map_or(judged.verdict.name(), |(_, name)| name),
        certain: judged.doubt.is_none(),
        doubt: judged.doubt,
        sentence,
        contradictions,
        known: known(message, is_consistent),
        buffers: largest(message).into_iter().cloned().collect(),
        not_known: lines("not_known").iter().filter_map(|(_, says)| words::fill(message, says)).collect(),
        remedies: remedies::remedies(message, judged.verdict),
        record: lines("record").iter().map(|&(_, line)| line.to_owned()).collect(),
    }
}

/// The part of the card that is neither free nor PyTorch's nor any listed process's; `None` if that is 0 or unknown.
fn unattributed(message: &OomMessage) -> Option<Figure> {
    let held = message.this_process().or(message.reserved())?;
    let named = held.plus(message.figures.free?).plus(message.other_processes().unwrap_or(Figure::exact(0)));
    // Within the rounding of the others it may be nothing.
    Some(message.figures.capacity?.minus(named)).filter(|rest| rest.bytes > rest.slack)
}

/// Parts of the card in stacking order, and the figures that they are.
const OF_CARD: [(&str, &str); 7] = [
    ("free", "free"),
    ("live", "live"),
    ("private_pool_cache", "private_pool"),
    ("holes", "unallocated"),
    ("outside_pytorch", "outside_pytorch"),
    ("this_process", "undivided process"),
    ("other_processes", "other_processes"),
];

/// Parts of what a process may hold.
const OF_LIMIT: [(&str, &str); 4] = [
    ("live", "live"),
    ("private_pool_cache", "private_pool"),
    ("holes", "unallocated"),
    ("outside_pytorch", "other_allocations"),
];

/// The card cut into what the message names. Printed figures are rounded and read one after the other: what they leave over goes to the
/// unattributed part, and what they exceed the card by is taken off the last named.
fn parts(m: &OomMessage) -> Vec<Part> {
    let mut out = if m.figures.free.is_some() { cut(m, "capacity", &OF_CARD, "unattributed") } else { Vec::new() };
    if out.first().is_some_and(|p| p.name == "free") {
        out.rotate_left(1);
    }
    out
}

/// The limit divided into what is held below it. Empty if the card decided: it had no room, or the message has no limit.
fn limit_parts(m: &OomMessage, verdict: Verdict) -> Vec<Part> {
    let is_drawn = matches!(verdict, Verdict::Cap | Verdict::Fragmentation) && condition::is_true(m, "live told, not card short");
    if is_drawn { cut(m, "limit", &OF_LIMIT, "room_under_limit") } else { Vec::new() }
}

/// Parts of a whole, each at most what those before it leave, and what all leave.
fn cut(m: &OomMessage, whole: &str, parts: &[(&'static str, &str)], over: &'static str) -> Vec<Part> {
    let Some(whole) = figures::figure(m, whole) else { return Vec::new() };
    let mut rest = whole.bytes;
    let mut take = |&(name, figure): &(&'static str, &str)| {
        let bytes = figures::figure(m, figure).map_or(0, |f| f.bytes).min(rest);
        rest -= bytes;
        Part { name, bytes }
    };
    let mut out: Vec<Part> = parts.iter().map(&mut take).collect();
    out.push(Part { name: over, bytes: rest });
    out.retain(|p| p.bytes > 0);
    out
}

impl Explanation {
    /// What ran out, in a few words.
    pub fn title(&self) -> &'static str {
        match self.cause {
            "no_failure" => "No failure",
            "shared_memory" => "Shared memory full",
            "host_memory" => "The machine's memory",
            "killed" => "Killed from outside",
            _ => self.verdict.title(),
        }
    }

    /// A figure as sentences have it; `None` where it has no such figure.
    pub fn printed(&self, name: &str) -> Option<String> {
        let slack = self.rounding.get(name).copied().unwrap_or(0);
        self.figures.get(name).map(|&bytes| Figure { bytes, slack }.told())
    }

    /// Bytes as the message prints them where they are one of its figures.
    pub fn words(&self, bytes: u64) -> String {
        let name = self.figures.iter().find(|(_, b)| **b == bytes).map(|(name, _)| *name);
        name.and_then(|name| self.printed(name)).unwrap_or_else(|| pytorch_size(bytes))
    }
}

/// What the report of XLA lists, largest first.
fn largest(message: &OomMessage) -> Vec<&PeakBuffer> {
    let mut buffers: Vec<&PeakBuffer> = message.peak_buffers.iter().collect();
    buffers.sort_by_key(|b| std::cmp::Reverse(b.bytes));
    buffers
}

fn known(m: &OomMessage, is_consistent: bool) -> Vec<String> {
    let said = rules::lines_for(m, "known", Verdict::Unknown).iter().filter(|(mark, _)| is_consistent || *mark != "figures");
    let of_xla = m.extra.iter().map(|(name, figure)| format!("XLA's {name}: {figure}."));
    said.filter_map(|(_, says)| Some(words::fill(m, says)?.trim_start().to_owned()))
        .chain(of_xla)
        .chain(m.beside.iter().cloned())
        .collect()
}

/// How two figures compare when both are known only to their rounding.
fn compare(a: Figure, b: Figure) -> (bool, bool) {
    let nominal = a.bytes <= b.bytes;
    let certain = if nominal { a.high() <= b.low() } else { a.low() > b.high() };
    (nominal, certain)
}

#[cfg(test)]
mod tests;
