//! The rules that turn figures into a verdict: the classifier of the diagnoses reference (E1), as far as a message goes.

use super::{Verdict, compare};
use crate::formats::oom_message::{Figure, OomMessage, Platform, Writer};
use crate::units::{GIBIBYTE, MEBIBYTE, pytorch_size};

/// Context, modules and libraries of one process reach this without anything being wrong (measured: 250 to 1,981 MiB).
const USUAL_OUTSIDE: u64 = 2 * GIBIBYTE;
/// What is left of them at least, when one asks how much could be won back.
const LEAST_OUTSIDE: u64 = 512 * MEBIBYTE;

pub(super) struct Judged {
    pub(super) verdict: Verdict,
    pub(super) certain: bool,
    pub(super) sentence: String,
}

fn size(f: Figure) -> String {
    pytorch_size(f.bytes)
}

pub(super) fn judge(m: &OomMessage) -> Judged {
    let of = |verdict, certain, sentence: String| Judged { verdict, certain, sentence };
    if m.is_absurd_request {
        return of(Verdict::TooLarge, true, "The program asked for more than 1 EiB: its size was computed wrong (a negative or uninitialised dimension), no card has that.".to_owned());
    }
    match m.dialect.writer {
        Writer::Cpu => {
            let asked = m.figures.requested.map_or(String::new(), |q| format!(" for {}", size(q)));
            return of(
                Verdict::Unknown,
                true,
                format!("Host memory ran out, not the GPU's: the operating system refused a request{asked}."),
            );
        }
        Writer::Mps => return mps(m),
        Writer::Vllm => return vllm(m),
        writer if writer.neighbour().is_some() => return neighbour(m),
        _ => {}
    }
    if let (Some(q), Some(most)) = (m.figures.requested, m.figures.largest_block) {
        let sentence = format!(
            "{} were asked for in one block, and this card's driver hands out no single block above {}: that refused, not a lack of memory.",
            size(q),
            size(most)
        );
        return of(Verdict::TooLarge, true, sentence);
    }
    let Some(q) = m.figures.requested else {
        let whose = match m.dialect.writer {
            Writer::Cublas => "cuBLAS could not get memory for its handle or workspace, which lies outside PyTorch's cache",
            Writer::Cudnn => "cuDNN could not get memory outside PyTorch's cache",
            Writer::Nccl => "NCCL could not get memory for its buffers, which lie outside PyTorch's cache",
            _ => "The device ran out of memory",
        };
        if let Some(figure) = m.reserved().filter(|_| m.dialect.writer == Writer::PyTorch) {
            let words = format!(
                "PyTorch held {} of the device. This part of the message does not tell how much was asked for, so it can not tell why \
                 that failed; paste the whole of it.",
                pytorch_size(figure.bytes)
            );
            return of(Verdict::Unknown, true, words);
        }
        return of(Verdict::Unknown, true, format!("{whose}; the message has no figures, so it can not tell why."));
    };
    device(m, q)
}

/// No verdict follows from figures that can not all be true.
pub(super) fn contradicted(m: &OomMessage, contradictions: &[String]) -> Judged {
    let asked = m.figures.requested.map_or(String::new(), |q| format!("{} were asked for. ", size(q)));
    let first = contradictions.first().map_or("", String::as_str);
    let sentence = format!(
        "{asked}The figures contradict each other, so they do not tell why: {first}. Paste the message as it was printed, and of one failure only."
    );
    Judged { verdict: Verdict::Unknown, certain: false, sentence }
}

/// Another program than PyTorch: what its own figures allow to say.
fn neighbour(m: &OomMessage) -> Judged {
    let f = &m.figures;
    let name = m.dialect.writer.neighbour().unwrap_or("the program");
    let unknown = |sentence: String| Judged { verdict: Verdict::Unknown, certain: true, sentence };
    if m.dialect.platform == Platform::Cpu {
        let asked = f.requested.map_or(String::new(), |q| format!(" of {}", size(q)));
        return unknown(format!("{name} could not get pinned host memory{asked}: the host's memory ran out, not the GPU's."));
    }
    let Some(q) = f.requested else {
        return unknown(format!("{name} ran out of memory; the message has no figures, so it can not tell why."));
    };
    if let Some(capacity) = f.capacity {
        let (fits, certain) = compare(q, capacity);
        if !fits {
            let sentence =
                format!("{name} needs {} at once, and the device has {}: no setting makes that fit.", size(q), size(capacity));
            return Judged { verdict: Verdict::TooLarge, certain, sentence };
        }
    }
    if let (Some(held), Some(limit)) = (f.allocated, f.limit) {
        let (fits, certain) = compare(held.plus(q), limit);
        if !fits {
            let sentence = format!(
                "{name}'s pool holds {}, {} more were asked for, and its limit is {}: the limit refused.",
                size(held),
                size(q),
                size(limit)
            );
            return Judged { verdict: Verdict::Cap, certain, sentence };
        }
    }
    let held = f.allocated.map_or(String::new(), |held| format!(" while {name} holds {}", size(held)));
    let Some(free) = f.free else {
        return unknown(format!(
            "{name} could not get {}{held}; the message does not say how much was free or who held the rest.",
            size(q)
        ));
    };
    let (fits, certain) = compare(q, free);
    if fits {
        let sentence =
            format!("{} were asked for and {} are free{held}, but no piece of it is large enough.", size(q), size(free));
        return Judged { verdict: Verdict::Fragmentation, certain, sentence };
    }
    let sentence = format!("{} were asked for and only {} are free on the device{held}.", size(q), size(free));
    Judged { verdict: Verdict::Capacity, certain, sentence }
}

/// vLLM takes a share of the whole card when it starts, and looks first whether that is free.
fn vllm(m: &OomMessage) -> Judged {
    let f = &m.figures;
    let (Some(q), Some(free), Some(capacity)) = (f.requested, f.free, f.capacity) else { return neighbour(m) };
    let sentence = format!(
        "vLLM is to take {} of the card's {}, and {} are free: {} are held by other programs, or by one that did not end cleanly.",
        size(q),
        size(capacity),
        size(free),
        size(capacity.minus(free))
    );
    Judged { verdict: Verdict::Contention, certain: true, sentence }
}

/// MPS has one limit for everything the process holds.
fn mps(m: &OomMessage) -> Judged {
    let f = &m.figures;
    if let (Some(q), Some(limit), Some(held)) = (f.requested, f.limit, f.allocated) {
        let held = f.other_allocations.map_or(held, |o| held.plus(o));
        let (fits_alone, certain) = compare(q, limit);
        if !fits_alone {
            let sentence = format!("{} were asked for, more than the {} this process may ever hold.", size(q), size(limit));
            return Judged { verdict: Verdict::TooLarge, certain, sentence };
        }
        let (fits, certain) = compare(held.plus(q), limit);
        if !fits {
            let sentence = format!(
                "{} held and {} asked for exceed the high watermark of {}: the limit refused, not the machine.",
                size(held),
                size(q),
                size(limit)
            );
            return Judged { verdict: Verdict::Cap, certain, sentence };
        }
    }
    Judged {
        verdict: Verdict::Unknown,
        certain: true,
        sentence: "The figures fit below the limit, so the message does not tell why it failed.".to_owned(),
    }
}

/// PyTorch's allocators on a GPU.
fn device(m: &OomMessage, q: Figure) -> Judged {
    let f = &m.figures;
    let zero = Figure::exact(0);
    let reserved = m.reserved().or(f.allocated);
    let holes = m.unallocated().unwrap_or(zero);
    // Certain as long as every comparison that decided was.
    let mut certain = true;
    let mut at_most = |a: Figure, b: Figure| {
        let (yes, sure) = compare(a, b);
        certain &= sure;
        yes
    };
    let finish = |verdict, certain, sentence| Judged { verdict, certain, sentence };

    if let Some(capacity) = f.capacity {
        let outside = m.outside_pytorch().map_or(zero, |g| Figure { bytes: g.bytes.min(USUAL_OUTSIDE), slack: g.slack });
        if !at_most(q, capacity.minus(outside)) {
            let why = format!(
                "{} were asked for at once, and the whole card has {}: no setting makes that fit.",
                size(q),
                size(capacity)
            );
            return finish(Verdict::TooLarge, certain, why);
        }
    }
    if m.is_rejection && f.limit.is_none() {
        let why = format!("PyTorch refused {} beforehand because this process may not exceed its memory fraction.", size(q));
        return finish(Verdict::Cap, certain, why);
    }
    if let (Some(limit), Some(reserved)) = (f.limit, reserved) {
        let left = limit.minus(reserved);
        let (mut fits, sure) = compare(q, left);
        // Too close to tell by the limit alone. But the card had enough, so it was the limit that refused.
        if !sure && f.free.is_some_and(|free| compare(q, free) == (true, true)) {
            fits = false;
        }
        if !fits {
            let on_device = f.free.is_none_or(|free| at_most(q, free.plus(holes)));
            if at_most(q, left.plus(holes)) {
                let why = format!(
                    "{} were asked for; below this process's limit of {} are {}, and {} lie in holes of what it holds: enough in sum, not in one piece.",
                    size(q),
                    size(limit),
                    size(left),
                    size(holes)
                );
                return finish(Verdict::Fragmentation, certain, why);
            }
            if on_device {
                let free = f.free.map_or(String::new(), |free| format!(" although the card has {} free", size(free)));
                let why = format!(
                    "This process may hold {}, holds {} and asked for {} more: its limit refused{free}.",
                    size(limit),
                    size(reserved),
                    size(q)
                );
                return finish(Verdict::Cap, certain, why);
            }
        }
    }
    let Some(free) = f.free else {
        if let (Some(capacity), Some(reserved)) = (f.capacity, reserved)
            && !at_most(q.plus(reserved), capacity)
        {
            let why = format!("PyTorch holds {} of {} and asked for {} more.", size(reserved), size(capacity), size(q));
            return finish(Verdict::Capacity, certain, why);
        }
        return finish(
            Verdict::Unknown,
            true,
            format!("{} were asked for; the message does not say how much was free.", size(q)),
        );
    };
    if at_most(q, free) {
        let why = format!(
            "{} were asked for and {} are free on the card, so something else refused: a limit of the system, container or driver, a burst of another process, or the address space.",
            size(q),
            size(free)
        );
        return finish(Verdict::Unknown, certain, why);
    }
    let own = free.plus(holes);
    if holes.bytes > 0 && at_most(q, own) {
        let share = reserved.map_or(0.0, |r| holes.bytes as f64 / r.bytes.max(1) as f64);
        let little = if share < 0.05 {
            format!(" But holes are only {:.1} % of what PyTorch holds: the card is nearly full as well.", share * 100.0)
        } else {
            String::new()
        };
        let why = format!(
            "{} were asked for; {} free on the card and {} in holes would do in sum, but no piece is large enough.{little}",
            size(q),
            size(free),
            size(holes)
        );
        return finish(Verdict::Fragmentation, certain, why);
    }
    who_holds_the_rest(m, q, own, reserved, certain)
}

/// Not enough even with all holes: is it the neighbours, this process outside PyTorch, or the program itself?
fn who_holds_the_rest(m: &OomMessage, q: Figure, own: Figure, reserved: Option<Figure>, mut certain: bool) -> Judged {
    let f = &m.figures;
    let mut at_most = |a: Figure, b: Figure| {
        let (yes, sure) = compare(a, b);
        certain &= sure;
        yes
    };
    let (Some(capacity), Some(free)) = (f.capacity, f.free) else {
        let sentence = format!("{} were asked for and {} are there in sum.", size(q), size(own));
        return Judged { verdict: Verdict::Capacity, certain, sentence };
    };
    let held = reserved.unwrap_or(Figure::exact(0));
    let others = m.other_processes().filter(|o| o.bytes > 0);
    if let Some(others) = others
        && at_most(q, own.plus(others))
    {
        let sentence = format!(
            "{} were asked for and {} are there, while other processes hold {} of the card's {}: without them it would fit.",
            size(q),
            size(own),
            size(others),
            size(capacity)
        );
        return Judged { verdict: Verdict::Contention, certain, sentence };
    }
    if let Some(this) = m.this_process() {
        let outside = this.minus(held);
        let unattributed = capacity.minus(free.plus(this)).bytes.saturating_sub(others.map_or(0, |o| o.bytes));
        if outside.bytes > USUAL_OUTSIDE
            && at_most(q, own.plus(Figure { bytes: outside.bytes - LEAST_OUTSIDE, slack: outside.slack }))
        {
            let sentence = format!(
                "This process holds {} outside PyTorch's allocator, more than CUDA and its libraries usually need; the {} asked for would fit into the difference.",
                size(outside),
                size(q)
            );
            return Judged { verdict: Verdict::NonPytorch, certain, sentence };
        }
        if unattributed > USUAL_OUTSIDE && q.bytes.saturating_sub(own.bytes) <= unattributed {
            let sentence = format!(
                "{} of the card belong to no listed process: a process of another container or user, or one that died and was not cleaned up; without it the {} asked for would fit.",
                pytorch_size(unattributed),
                size(q)
            );
            return Judged { verdict: Verdict::Contention, certain, sentence };
        }
    } else {
        let rest = capacity.minus(free.plus(held)).bytes;
        if rest > USUAL_OUTSIDE && q.bytes.saturating_sub(own.bytes) <= rest - LEAST_OUTSIDE {
            let sentence = format!(
                "{} were asked for and {} are there; {} of the card are held outside PyTorch, by other processes or by this one's libraries: the message does not say which.",
                size(q),
                size(own),
                pytorch_size(rest)
            );
            return Judged { verdict: Verdict::Unknown, certain: true, sentence };
        }
    }
    let live = m.live().map_or_else(|| size(held), size);
    if let Some(outside) = outside_that_decides(m) {
        let whose = if m.this_process().is_some() {
            "are this process's own outside PyTorch, its context and libraries"
        } else {
            "are outside PyTorch, in other processes or in this one's context and libraries"
        };
        let sentence = format!(
            "{} were asked for and only {} are left in sum, holes included: live tensors take {live} of {}, and {} {whose}; without them it would fit.",
            size(q),
            size(own),
            size(capacity),
            size(outside)
        );
        return Judged { verdict: Verdict::Capacity, certain, sentence };
    }
    let sentence = format!(
        "Live tensors fill the card: {live} of {} are in use, {} were asked for, and only {} are left in sum, holes included.",
        size(capacity),
        size(q),
        size(own)
    );
    Judged { verdict: Verdict::Capacity, certain, sentence }
}

/// What the device has outside PyTorch and beside other processes, where the request would fit without it; `None` where it
/// would not, or where it is not told.
pub(super) fn outside_that_decides(m: &OomMessage) -> Option<Figure> {
    let f = &m.figures;
    let free = f.free?;
    let held = m.reserved().or(f.allocated)?;
    let outside = m.outside_pytorch().or_else(|| super::unattributed(m)).filter(|o| o.bytes > 0)?;
    let holes = m.unallocated().map_or(0, |h| h.bytes);
    let is_all_told = f.capacity.is_some_and(|c| held.bytes < c.bytes);
    let own = free.bytes.saturating_add(holes);
    let q = f.requested?.bytes;
    (is_all_told && q > own && q <= own.saturating_add(outside.bytes)).then_some(outside)
}
