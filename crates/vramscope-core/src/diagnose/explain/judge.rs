//! Whose message it is, and what follows from the figures of each writer; PyTorch's own on a GPU are judged in `device`.

use super::{Verdict, compare};
use crate::formats::oom_message::{Figure, OomMessage, Platform, Writer};
use crate::units::{GIBIBYTE, pytorch_size};

/// A verdict with its numbers.
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    /// Why another verdict is possible; `None` where the figures force this one.
    pub(super) doubt: Option<&'static str>,
    pub(super) sentence: String,
}

/// Another value that the printed decimals can stand for gives another verdict.
pub(super) const ROUNDED: &str = "the figures are rounded; another reading is possible";

fn rounded_unless(certain: bool) -> Option<&'static str> {
    (!certain).then_some(ROUNDED)
}

pub(super) fn judge(m: &OomMessage) -> Judged {
    let of = |verdict, sentence: String| Judged { verdict, doubt: None, sentence };
    if m.is_absurd_request {
        return of(Verdict::TooLarge, "The program requested more than 1 EiB: the size was computed wrong (a negative or uninitialised dimension), no card has that.".to_owned());
    }
    if !m.says.is_empty() {
        return said(m);
    }
    if let (Some(q), Some(most)) = (m.figures.requested, m.figures.largest_block) {
        let sentence = format!(
            "{q} was requested in one block, and this device's driver allows no single block above {most}. Memory is not what ran out."
        );
        return of(Verdict::TooLarge, sentence);
    }
    match m.dialect.writer {
        Writer::Cpu => {
            let asked = m.figures.requested.map_or(String::new(), |q| format!(" for {q}"));
            return of(
                Verdict::Unknown,
                format!("Host memory ran out, not the GPU's: the operating system refused a request{asked}."),
            );
        }
        Writer::Mps => return mps(m),
        Writer::Vllm => return vllm(m),
        writer if writer.neighbour().is_some() => return neighbour(m),
        _ => {}
    }
    if m.is_pinned {
        return of(
            Verdict::Unknown,
            "The call pins memory of the machine, and the driver could not get that; CUDA has the same words for a full card."
                .to_owned(),
        );
    }
    let Some(q) = m.figures.requested else {
        let inside = m.around.map_or(String::new(), |w| format!(" in {}", w.title()));
        let whose = format!("The device ran out of memory{inside}");
        if let (Some(limit), Some(held)) = (m.figures.limit, m.figures.allocated) {
            let words = format!("This process may hold {limit} and has {held} in tensors; what it requested is not in the text.");
            let verdict = if held.bytes >= limit.bytes / 10 * 9 { Verdict::Cap } else { Verdict::Unknown };
            return Judged { verdict, doubt: Some("the request is in the part of the message that is missing"), sentence: words };
        }
        if let Some(figure) = m.reserved().filter(|_| m.dialect.writer == Writer::PyTorch) {
            let words = format!(
                "PyTorch held {figure} of the device. This part of the message does not say how much was requested, so it does not say why \
                 that failed; paste the whole of it."
            );
            return of(Verdict::Unknown, words);
        }
        if m.has_figures() {
            let free = match (m.figures.free, m.figures.capacity) {
                (Some(free), Some(capacity)) => format!(" {free} were free, of {capacity}."),
                (Some(free), None) => format!(" {free} were free."),
                _ => String::new(),
            };
            let words = format!("{whose}.{free} The requested size could not be read, so the reason is unknown.");
            return of(Verdict::Unknown, words);
        }
        return of(Verdict::Unknown, format!("{whose}; the message has no figures, so the reason is unknown."));
    };
    if m.is_warning {
        return retried(m, q);
    }
    super::device::device(m, q)
}

/// The dialect's own sentence, with the figures that the message has.
fn said(m: &OomMessage) -> Judged {
    let f = &m.figures;
    let mut sentence = m.says.to_owned();
    for (name, figure) in [
        ("{requested}", f.requested),
        ("{free}", f.free),
        ("{allocated}", f.allocated),
        ("{capacity}", f.capacity),
        ("{limit}", f.limit),
    ] {
        let Some(at) = sentence.find(name) else { continue };
        match figure {
            // The kernel counts in KiB, whatever the size.
            Some(figure) if figure.printed().ends_with("KiB") => sentence = sentence.replace(name, &pytorch_size(figure.bytes)),
            Some(figure) => sentence = sentence.replace(name, &figure.printed()),
            // What was not read is left out, with what is said of it.
            None if at < 3 => sentence.replace_range(at..at + name.len(), "More memory"),
            None => {
                sentence.truncate(sentence[..at].rfind([':', ',']).unwrap_or(at));
                sentence.push('.');
            }
        }
    }
    let is_over = |limit: Option<Figure>| f.requested.zip(limit).is_some_and(|(q, limit)| q.bytes > limit.bytes);
    let verdict = match (m.dialect.writer, m.dialect.platform) {
        _ if m.is_warning => Verdict::Unknown,
        (Writer::Rmm, _) => Verdict::Cap,
        (Writer::Sglang | Writer::Tgi | Writer::Vllm | Writer::TrtLlm, _) => Verdict::Capacity,
        (_, Platform::Vulkan | Platform::Mps) => Verdict::TooLarge,
        _ if is_over(f.capacity) => Verdict::TooLarge,
        _ if is_over(f.free) => Verdict::Capacity,
        _ => Verdict::Unknown,
    };
    Judged { verdict, doubt: None, sentence }
}

/// PyTorch's warning that the driver had no memory to give: it hands back its cache and asks again.
fn retried(m: &OomMessage, q: Figure) -> Judged {
    let f = &m.figures;
    if let Some(capacity) = f.capacity.filter(|c| q.bytes > c.bytes) {
        let sentence = format!("{q} was requested at once, and the whole card has {capacity}. No setting makes that fit.");
        return Judged { verdict: Verdict::TooLarge, doubt: None, sentence };
    }
    let free = match (f.free, f.capacity) {
        (Some(free), Some(capacity)) => format!("; {free} of the card's {capacity} were free"),
        _ => String::new(),
    };
    let sentence = format!(
        "PyTorch warns that the driver did not give it {q}{free}. It then hands back its cache and asks again, so this alone is no failure: \
         where it fails in the end an error follows, and that tells more."
    );
    Judged { verdict: Verdict::Unknown, doubt: None, sentence }
}

/// No verdict follows from figures that cannot all be true.
pub(super) fn contradicted(m: &OomMessage, contradictions: &[String]) -> Judged {
    let asked = m.figures.requested.map_or(String::new(), |q| format!("{q} was requested. "));
    let first = contradictions.first().map_or("", String::as_str);
    let sentence = format!(
        "{asked}The figures contradict each other, so they do not tell why: {first}. Paste the message as it was printed, and of one failure only."
    );
    Judged { verdict: Verdict::Unknown, doubt: Some("the figures contradict each other"), sentence }
}

/// TensorFlow's share of a card where others leave it little. Cards of 2 GiB, the smallest it runs on, leave it more.
const SMALL_SHARE: u64 = GIBIBYTE * 5 / 4;

/// Another program than PyTorch, with what XLA's report has on the program and its largest buffer.
fn neighbour(m: &OomMessage) -> Judged {
    let mut judged = by_figures(m);
    xla_program(m, &mut judged);
    if let Some(buffer) = super::largest(m).first() {
        let what = buffer.operator.as_deref().or(buffer.shape.as_deref()).map_or(String::new(), |what| format!(", {what}"));
        let place = buffer.source.as_deref().map_or(String::new(), |source| format!(" ({source})"));
        judged.sentence.push_str(&format!(" The largest buffer is {}{what}{place}.", pytorch_size(buffer.bytes)));
    }
    judged
}

/// More than the memory of any device.
const ABOVE_ANY: u64 = 16 << 40;
/// A program that takes less is not what fills a device.
const SMALL_PROGRAM: u64 = GIBIBYTE / 4;

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
    let parts: Vec<String> = parts.iter().map(|(figure, what)| format!("{figure} {what}")).collect();
    let parts = super::device::listed(&parts.iter().map(String::as_str).collect::<Vec<_>>());
    let Some(total) = of(&["total allocation"]) else {
        judged.sentence.push_str(&format!(" The program takes {parts}."));
        return;
    };
    judged.sentence.push_str(&format!(" The program takes {total} in all: {parts}."));
    if judged.verdict == Verdict::Unknown && total.bytes < SMALL_PROGRAM {
        judged.sentence.push_str(" That is little: the device is full of other arrays of this process, or of other processes.");
    } else if judged.verdict == Verdict::Unknown && most.bytes >= total.bytes / 2 {
        judged.verdict = Verdict::Capacity;
        judged.doubt = Some("the message does not say how large the device is and what else is on it");
    }
}

/// What a program's own figures allow to say.
fn by_figures(m: &OomMessage) -> Judged {
    let f = &m.figures;
    let name = m.dialect.writer.neighbour().unwrap_or("the program");
    let unknown = |sentence: String| Judged { verdict: Verdict::Unknown, doubt: None, sentence };
    if m.dialect.platform == Platform::Cpu {
        let asked = f.requested.map_or("what it requested".to_owned(), Figure::printed);
        return unknown(format!("{name} could not get {asked} of the machine's memory: that ran out, not the GPU's."));
    }
    if m.is_warning {
        let asked = f.requested.map_or("what it requested".to_owned(), Figure::printed);
        return unknown(format!(
            "{name} could not get {asked} at once and says that this is no failure: it goes on in another way, which may be slower. \
             If the program stopped, its error stands further down."
        ));
    }
    let Some(q) = f.requested else {
        return unknown(format!("{name} ran out of memory; the message has no figures, so the reason is unknown."));
    };
    if f.capacity.is_none() && q.bytes >= ABOVE_ANY {
        let sentence = format!(
            "{name} asked for {q} at once, more than any device has: the size, or what the device was read to have, is wrong."
        );
        return Judged { verdict: Verdict::TooLarge, doubt: None, sentence };
    }
    if let Some(capacity) = f.capacity {
        let (fits, certain) = compare(q, capacity);
        if !fits {
            let sentence = if m.dialect.platform == Platform::Tpu {
                format!(
                    "The compiled program needs {q} of the TPU's memory, which has {capacity}: it has to be made smaller or spread over more chips."
                )
            } else {
                format!("{name} needs {q} at once, and the device has {capacity}: no setting makes that fit.")
            };
            return Judged { verdict: Verdict::TooLarge, doubt: rounded_unless(certain), sentence };
        }
    }
    // What was free when it started: the driver's own figure, or its limit.
    let at_start = f.limit.filter(|l| l.bytes < SMALL_SHARE);
    let at_start = at_start.or(f.free.filter(|free| f.capacity.is_some_and(|c| free.bytes < c.bytes / 4)));
    if let (Writer::TensorFlow, Some(little)) = (m.dialect.writer, at_start) {
        let card = f.capacity.map_or(String::new(), |c| format!(" of the card's {c}"));
        let sentence = format!(
            "TensorFlow takes what is free on the card when it starts, and that was only {}{card}: something else held the card. {q} was requested.",
            pytorch_size(little.bytes)
        );
        let is_sure = f.capacity.is_some() || little.bytes < GIBIBYTE / 2;
        let doubt = (!is_sure).then_some("a limit that the program set itself would read the same");
        return Judged { verdict: Verdict::Contention, doubt, sentence };
    }
    if let (Some(held), Some(limit)) = (f.allocated, f.limit) {
        let (fits, certain) = compare(held.plus(q), limit);
        if !fits {
            let sentence = format!("{name}'s pool holds {held}, {q} more was requested, and its limit is {limit}.");
            return Judged { verdict: Verdict::Cap, doubt: rounded_unless(certain), sentence };
        }
    }
    let held = f.allocated.map_or(String::new(), |held| format!(" while {name} holds {held}"));
    let Some(free) = f.free else {
        return unknown(format!(
            "{name} could not get {q}{held}; the message does not say how much was free or who held the rest."
        ));
    };
    let (fits, certain) = compare(q, free);
    if fits && m.dialect.platform == Platform::Tpu {
        let sentence = format!("{q} was requested and {free} is free{held}, but no single piece is large enough.");
        return Judged { verdict: Verdict::Fragmentation, doubt: rounded_unless(certain), sentence };
    }
    let of = f.capacity.map_or(String::new(), |c| format!(" of the device's {c}"));
    if fits {
        // A GPU's driver joins scattered pages.
        return unknown(format!(
            "{q} was requested and {free}{of} was free{held}, so something else refused it: another program that took memory since, or a limit of the system, container or driver."
        ));
    }
    let sentence = format!("{q} was requested and only {free}{of} is free{held}.");
    let doubt = f.allocated.is_none().then_some("the message does not say whether this program or others hold the rest");
    Judged { verdict: Verdict::Capacity, doubt: rounded_unless(certain).or(doubt), sentence }
}

/// vLLM takes a share of the whole card when it starts, and looks first whether that is free.
fn vllm(m: &OomMessage) -> Judged {
    let f = &m.figures;
    let context = m.context.or((f.requested.is_some() && f.free.is_none()).then(Default::default));
    if let Some(context) = context {
        let wanted = context.wanted.map_or("the longest length".to_owned(), |n| format!("{n} tokens"));
        let share = f.requested.zip(f.limit).map(|(q, left)| left.bytes as f64 / q.bytes.max(1) as f64);
        let fits = match (context.fits, context.wanted, share) {
            (Some(n), ..) => format!(" About {n} tokens would fit."),
            (None, Some(wanted), Some(share)) if share < 1.0 => {
                format!(" About {} tokens would fit.", (wanted as f64 * share) as u64)
            }
            (None, None, Some(share)) if share < 1.0 => format!(" About {:.0} % of that length would fit.", share * 100.0),
            _ => String::new(),
        };
        let sentence = match (f.requested, f.limit) {
            (Some(q), Some(left)) => format!(
                "One input of {wanted} needs {q} of KV cache, and vLLM's share of the card leaves {left} beside the weights and the activations.{fits}"
            ),
            (Some(q), None) => {
                format!("One input of {wanted} needs {q} of KV cache, more than vLLM's share of the card leaves.{fits}")
            }
            _ => format!("One input of {wanted} does not fit into the KV cache that vLLM's share of the card leaves.{fits}"),
        };
        return Judged { verdict: Verdict::Capacity, doubt: None, sentence };
    }
    let (Some(q), Some(free), Some(capacity)) = (f.requested, f.free, f.capacity) else {
        let sentence = "The model, and the activations of its longest input, take all of vLLM's share of the card: nothing is left for the KV cache.";
        return Judged { verdict: Verdict::Capacity, doubt: None, sentence: sentence.to_owned() };
    };
    let sentence = format!(
        "vLLM is to take {q} of the card's {capacity}, and {free} is free: {} is held by other programs, or by one that did not end cleanly.",
        capacity.minus(free)
    );
    Judged { verdict: Verdict::Contention, doubt: None, sentence }
}

/// MPS has one limit for everything the process holds.
fn mps(m: &OomMessage) -> Judged {
    let f = &m.figures;
    let other =
        f.other_allocations.filter(|o| f.allocated.is_some_and(|own| o.bytes > own.bytes)).map_or(String::new(), |other| {
            format!(" Most of it, {other}, is outside PyTorch's tensors: other allocations of this process on the GPU.")
        });
    let held = f.allocated.map(|held| f.other_allocations.map_or(held, |o| held.plus(o)));
    if let (None, Some(limit), Some(held)) = (f.requested, f.limit, held) {
        let sentence =
            format!("This process holds {held} of the {limit} it may hold; what it requested is not in the text.{other}");
        let verdict = if held.bytes >= limit.bytes / 10 * 9 { Verdict::Cap } else { Verdict::Unknown };
        return Judged { verdict, doubt: Some("the request is in the part of the message that is missing"), sentence };
    }
    if let (Some(q), Some(limit), Some(held)) = (f.requested, f.limit, held) {
        let (fits_alone, certain) = compare(q, limit);
        if !fits_alone {
            let sentence = format!("{q} was requested, more than the {limit} this process may ever hold.");
            return Judged { verdict: Verdict::TooLarge, doubt: rounded_unless(certain), sentence };
        }
        let (fits, certain) = compare(held.plus(q), limit);
        if !fits || !certain {
            let sentence = format!("The {held} held and the {q} requested exceed the high watermark of {limit}.{other}");
            return Judged { verdict: Verdict::Cap, doubt: rounded_unless(certain), sentence };
        }
    }
    Judged {
        verdict: Verdict::Unknown,
        doubt: None,
        sentence: "The figures fit below the limit, so the message does not say why it failed.".to_owned(),
    }
}
