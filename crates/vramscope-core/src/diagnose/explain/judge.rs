//! Whose message it is, and what follows from the figures of each writer; PyTorch's own on a GPU are judged in `device`.

use super::Verdict::{Cap, Capacity, Contention, Fragmentation, TooLarge, Unknown};
use super::words::{fill, held, left, listed};
use super::{Verdict, compare};
use crate::formats::oom_message::{Figure, Figures, OomMessage, Platform, Writer};
use crate::units::{GIBIBYTE, pytorch_size};

/// A verdict with its numbers.
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    /// Why another verdict is possible; `None` where the figures force this one.
    pub(super) doubt: Option<&'static str>,
    pub(super) sentence: String,
}

/// Another value that the printed decimals can stand for gives another verdict.
const ROUNDED: &str = "the figures are rounded; another reading is possible";
const UNDER_LIMIT: &str = "This process may hold {limit} and has {allocated} in tensors; what it requested is not in the text.";
const CUT: &str = "the request is in the part of the message that is missing";
/// TensorFlow's share of a card where others leave it little. Cards of 2 GiB, the smallest it runs on, leave it more.
const SMALL_SHARE: u64 = GIBIBYTE * 5 / 4;
/// More than the memory of any device.
const ABOVE_ANY: u64 = 16 << 40;
/// A program that takes less is not what fills a device.
const SMALL_PROGRAM: u64 = GIBIBYTE / 4;
/// Nothing, where the message tells none.
pub(super) const NONE: Figure = Figure { bytes: 0, slack: 0 };

/// A message's figures as the rules compare them.
pub(super) struct Case<'a> {
    pub(super) m: &'a OomMessage,
    pub(super) f: Figures,
    /// What was requested; 0 where that is not told.
    pub(super) q: Figure,
    pub(super) held: Option<Figure>,
    pub(super) holes: Figure,
    /// Room below the limit of the process.
    pub(super) left: Option<Figure>,
    /// Why the verdict is not forced, so far.
    pub(super) doubt: Option<&'static str>,
    /// Said behind the rule's own sentence.
    pub(super) also: Vec<&'static str>,
}

/// Where it holds, its verdict and sentence are the message's.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    verdict: Verdict,
    /// `None` where it rests on a figure that is not told.
    when: fn(&mut Case<'_>) -> Option<bool>,
    pub(super) says: &'static str,
    /// Whatever the comparisons so far left open: it is certain, or this doubts it.
    doubt: Option<Option<&'static str>>,
}

pub(super) const fn rule(verdict: Verdict, when: fn(&mut Case<'_>) -> Option<bool>, says: &'static str) -> Rule {
    Rule { verdict, when, says, doubt: None }
}

impl Rule {
    pub(super) const fn doubt(mut self, why: &'static str) -> Self {
        self.doubt = Some(Some(why));
        self
    }

    pub(super) const fn sure(mut self) -> Self {
        self.doubt = Some(None);
        self
    }
}

impl<'a> Case<'a> {
    fn of(m: &'a OomMessage) -> Self {
        let f = m.figures;
        let (q, holes) = (f.requested.unwrap_or(NONE), m.unallocated().unwrap_or(NONE));
        Case { m, f, q, held: held(m), holes, left: left(m), doubt: None, also: Vec::new() }
    }

    /// Compares, and remembers where the printed decimals do not decide it.
    pub(super) fn at_most(&mut self, a: Figure, b: Figure) -> bool {
        let (yes, sure) = compare(a, b);
        if !sure {
            self.doubt = Some(ROUNDED);
        }
        yes
    }

    /// What the first rule that holds, and whose figures are all told, says.
    fn judged(mut self, rules: &[&[Rule]]) -> Judged {
        let told = rules.iter().copied().flatten().find_map(|rule| {
            self.also.clear();
            let sentence = (rule.when)(&mut self)?.then(|| fill(self.m, rule.says))??;
            self.doubt = rule.doubt.unwrap_or(self.doubt);
            Some((rule.verdict, sentence))
        });
        let (verdict, mut sentence) = told.unwrap_or((Unknown, String::new()));
        self.also.extend(super::device::limit_as_well(&self, verdict));
        sentence.extend(self.also.iter().filter_map(|also| fill(self.m, also)));
        Judged { verdict, doubt: self.doubt, sentence }
    }
}

pub(super) fn judge(m: &OomMessage) -> Judged {
    let case = Case::of(m);
    let of = |verdict, says| Judged { verdict, doubt: None, sentence: fill(m, says).unwrap_or_default() };
    let one_block = m.figures.requested.is_some() && m.figures.largest_block.is_some();
    match m.dialect.writer {
        _ if m.is_absurd_request => of(
            TooLarge,
            "The program requested more than 1 EiB, which no card has: the size was computed wrong (a negative or uninitialised dimension).",
        ),
        _ if !m.says.is_empty() => of(verdict_of_said(m), m.says),
        _ if one_block => of(
            TooLarge,
            "{requested} was requested in one block, and this device's driver allows no single block above {largest_block}. Memory is not what ran out.",
        ),
        Writer::Cpu => {
            of(Unknown, "Host memory ran out, not the GPU's: the operating system refused a request{? for {requested}}.")
        }
        Writer::Mps => case.judged(&[MPS]),
        Writer::Vllm => case.judged(&[VLLM]),
        writer if writer.neighbour().is_some() => neighbour(case),
        _ if m.is_pinned => of(
            Unknown,
            "The call pins memory of the machine (not the GPU's), and the driver could not get it. CUDA uses the same words for a full card.",
        ),
        _ if m.is_warning => case.judged(&[RETRIED]),
        _ if m.figures.requested.is_none() => case.judged(&[NO_REQUEST]),
        _ => case.judged(super::device::rules(m)),
    }
}

/// The message does not tell what was requested.
#[rustfmt::skip]
const NO_REQUEST: &[Rule] = &[
    rule(Cap, |c| Some(c.f.allocated?.bytes >= c.f.limit?.bytes / 10 * 9), UNDER_LIMIT).doubt(CUT),
    rule(Unknown, |_| Some(true), UNDER_LIMIT).doubt(CUT),
    rule(Unknown, |c| Some(c.m.dialect.writer == Writer::PyTorch),
        "PyTorch held {reserved} of the device. This part of the message does not say how much was requested, so it does not say why that \
         failed; paste the whole of it."),
    rule(Unknown, |c| Some(c.m.has_figures()),
        "The device ran out of memory{? in {around}}.{? {free} of {capacity} was free.| {free} was free.} The requested size could not be \
         read, so the reason is unknown."),
    rule(Unknown, |_| Some(true),
        "The device ran out of memory{? in {around}}; the message has no figures, so the reason is unknown."),
];

/// PyTorch's warning that the driver had no memory to give: it hands back its cache and asks again.
#[rustfmt::skip]
const RETRIED: &[Rule] = &[
    rule(TooLarge, |c| Some(c.q.bytes > c.f.capacity?.bytes),
        "{requested} was requested at once, and the whole card has {capacity}. No setting makes that fit."),
    rule(Unknown, |_| Some(true),
        "PyTorch warns that the driver did not give it {?{requested}|what it requested}{?; {free} of the card's {capacity} was free}. It then \
         gives back its cache and asks again, so this alone is no failure. If that fails too, an error follows; look at that one."),
];

/// MPS has one limit for everything the process holds.
#[rustfmt::skip]
const MPS: &[Rule] = &[
    rule(Cap, |c| Some(c.f.requested.is_none() && c.held?.bytes >= c.f.limit?.bytes / 10 * 9),
        "This process holds {held} of the {limit} it may hold; what it requested is not in the text.{? Most of it, {mostly other}, is outside \
         PyTorch's tensors: other allocations of this process on the GPU.}").doubt(CUT),
    rule(Unknown, |c| Some(c.f.requested.is_none()),
        "This process holds {held} of the {limit} it may hold; what it requested is not in the text.").doubt(CUT),
    rule(TooLarge, |c| Some(!c.at_most(c.f.requested?, c.f.limit?)),
        "{requested} was requested, more than the {limit} this process may ever hold."),
    rule(Cap, |c| {
        let (fits, sure) = compare(c.held?.plus(c.f.requested?), c.f.limit?);
        c.at_most(c.held?.plus(c.q), c.f.limit?);
        Some(!fits || !sure)
    },
        "This process holds {held} and requested {requested} more, which exceeds its limit of {limit} (the high watermark).{? Most of it, {mostly other}, is outside PyTorch's \
         tensors: other allocations of this process on the GPU.}"),
    rule(Unknown, |_| Some(true), "The figures fit below the limit, so the message does not say why it failed."),
];

/// vLLM takes a share of the whole card when it starts, and looks first whether that is free.
#[rustfmt::skip]
const VLLM: &[Rule] = &[
    rule(Capacity, |c| Some(c.m.context.is_some() || c.f.requested.is_some() && c.f.free.is_none()),
        "One input of {?{wanted} tokens|the longest length} {?needs {requested} of KV cache, and vLLM's share of the card leaves {limit} beside \
         the weights and the activations|needs {requested} of KV cache, more than vLLM's share of the card leaves|does not fit into the KV \
         cache that vLLM's share of the card leaves}.{? About {fits} tokens would fit.| About {part} of that length would fit.}"),
    rule(Contention, |_| Some(true),
        "vLLM is to take {requested} of the card's {capacity}, and {free} is free: {used} is held by other programs, or by one that did not end \
         cleanly."),
    rule(Capacity, |_| Some(true),
        "The model, and the activations of its longest input, take all of vLLM's share of the card: nothing is left for the KV cache."),
];

/// What another program's own figures allow to say.
#[rustfmt::skip]
const NEIGHBOUR: &[Rule] = &[
    rule(Unknown, |c| Some(c.m.dialect.platform == Platform::Cpu),
        "{program} could not get {?{requested}|what it requested} of the machine's memory: that ran out, not the GPU's."),
    rule(Unknown, |c| Some(c.m.is_warning),
        "{program} could not get {?{requested}|what it requested} at once. It says that this is no failure and goes on in another way, which may \
         be slower. If the program stopped, its error stands further down."),
    rule(Unknown, |c| Some(c.f.requested.is_none()),
        "{program} ran out of memory; {?{free} of {capacity} was free, and what it requested is not in the message|the message has no figures, \
         so the reason is unknown}."),
    rule(TooLarge, |c| Some(c.f.capacity.is_none() && c.q.bytes >= ABOVE_ANY),
        "{program} asked for {requested} at once, more than any device has. That size is wrong, or the device was misread."),
    rule(TooLarge, |c| Some(c.m.dialect.platform == Platform::Tpu && !c.at_most(c.q, c.f.capacity?)),
        "The compiled program needs {requested}, and the TPU has {capacity}. Make it smaller or spread it over more chips."),
    rule(TooLarge, |c| Some(!c.at_most(c.q, c.f.capacity?)),
        "{program} needs {requested} at once, and the device has {capacity}: no setting makes that fit."),
    rule(Contention, |c| {
        let is_sure = c.f.capacity.is_some() || free_at_start(c.m)?.bytes < GIBIBYTE / 2;
        c.doubt = (!is_sure).then_some("a limit that the program set itself would read the same").or(c.doubt);
        Some(true)
    },
        "TensorFlow takes what is free on the card when it starts, and that was only {at start}{? of the card's {capacity}}: something else held \
         the card. {requested} was requested."),
    rule(Cap, |c| Some(!c.at_most(c.f.allocated?.plus(c.q), c.f.limit?)),
        "{program}'s pool holds {allocated}, {requested} more was requested, and its limit is {limit}."),
    rule(Unknown, |c| Some(c.f.free.is_none()),
        "{program} could not get {requested}{? while it holds {allocated}}; the message does not say how much was free or who held the rest."),
    rule(Fragmentation, |c| Some(c.m.dialect.platform == Platform::Tpu && c.at_most(c.q, c.f.free?)),
        "{requested} was requested and {free} is free{? while {program} holds {allocated}}, but no single piece is large enough."),
    // A GPU's driver joins scattered pages.
    rule(Unknown, |c| Some(compare(c.q, c.f.free?).0),
        "{requested} was requested and {free}{? of the device's {capacity}} was free{? while {program} holds {allocated}}, so something else \
         refused it: another program that took memory since, or a limit of the system, container or driver."),
    rule(Capacity, |c| {
        c.at_most(c.q, c.f.free?);
        let untold = c.f.allocated.is_none().then_some("the message does not say whether this program or others hold the rest");
        c.doubt = c.doubt.or(untold);
        Some(true)
    },
        "{requested} was requested and only {free}{? of the device's {capacity}} is free{? while {program} holds {allocated}}."),
];

/// What was free on the card when TensorFlow started, where that was little: the driver's own figure, or its limit.
pub(super) fn free_at_start(m: &OomMessage) -> Option<Figure> {
    let f = &m.figures;
    let at_start = f.limit.filter(|l| l.bytes < SMALL_SHARE);
    let little = at_start.or(f.free.filter(|free| f.capacity.is_some_and(|c| free.bytes < c.bytes / 4)));
    little.filter(|_| m.dialect.writer == Writer::TensorFlow)
}

/// The verdict of a dialect that has a sentence of its own.
fn verdict_of_said(m: &OomMessage) -> Verdict {
    let f = &m.figures;
    let is_over = |limit: Option<Figure>| f.requested.zip(limit).is_some_and(|(q, limit)| q.bytes > limit.bytes);
    match (m.dialect.writer, m.dialect.platform) {
        _ if m.is_warning => Unknown,
        (Writer::Rmm, _) => Cap,
        (Writer::Sglang | Writer::Tgi | Writer::Vllm | Writer::TrtLlm, _) => Capacity,
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
fn neighbour(case: Case<'_>) -> Judged {
    let m = case.m;
    let mut judged = case.judged(&[NEIGHBOUR]);
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

#[cfg(test)]
pub(super) fn all_rules() -> Vec<&'static Rule> {
    [NO_REQUEST, RETRIED, MPS, VLLM, NEIGHBOUR].into_iter().flatten().collect()
}
