//! Sums and differences of PyTorch's figures on a GPU, for the rules.

use super::{compare, unattributed};
use crate::formats::oom_message::{Figure, OomMessage, ProcessUse, Writer};
use crate::units::{GIBIBYTE, MEBIBYTE};

/// Context, modules and libraries of one process may take this much normally (measured: 250 to 1,981 MiB).
const USUAL_OUTSIDE: u64 = 2 * GIBIBYTE;
/// The least they take, to estimate how much could be won back.
const LEAST_OUTSIDE: u64 = 512 * MEBIBYTE;
/// Number of figures besides the request that every message has.
pub(super) const ALL_FIGURES: usize = 4;
/// TensorFlow's memory on a card where other processes leave it little. Cards of 2 GiB, the smallest it runs on, leave it more.
const SMALL_SHARE: u64 = GIBIBYTE * 5 / 4;
/// No bytes, for a figure that the message does not have.
const NONE: Figure = Figure { bytes: 0, slack: 0 };

/// What PyTorch holds on the device; on Apple's what the whole process holds.
pub(super) fn held(m: &OomMessage) -> Option<Figure> {
    let held = m.reserved().or(m.figures.allocated)?;
    Some(m.figures.other_allocations.map_or(held, |other| held.plus(other)))
}

/// Room below the limit of the process.
pub(super) fn left(m: &OomMessage) -> Option<Figure> {
    Some(m.figures.limit?.minus(held(m)?))
}

/// Memory that could serve a request: the card's free bytes (less if a limit leaves less) and the holes.
pub(super) fn own(m: &OomMessage, free: Figure) -> Option<Figure> {
    let room = left(m).filter(|left| left.bytes < free.bytes).unwrap_or(free);
    Some(room.plus(m.unallocated().unwrap_or(Figure::exact(0))))
}

/// Free bytes on the card when TensorFlow started, if that was little: the driver's own figure, or its limit.
pub(super) fn free_at_start(m: &OomMessage) -> Option<Figure> {
    let f = &m.figures;
    let at_start = f.limit.filter(|l| l.bytes < SMALL_SHARE);
    let little = at_start.or(f.free.filter(|free| f.capacity.is_some_and(|c| free.bytes < c.bytes / 4)));
    little.filter(|_| m.dialect.writer == Writer::TENSORFLOW)
}

/// The part of this process's memory outside PyTorch that every process has.
pub(super) fn usual_outside(m: &OomMessage) -> Figure {
    m.outside_pytorch().map_or(NONE, |g| Figure { bytes: g.bytes.min(USUAL_OUTSIDE), slack: g.slack })
}

/// Whether the limit is what stopped the request, whatever the holes; `None` without one.
pub(super) fn limit_refused(m: &OomMessage) -> Option<bool> {
    let q = m.figures.requested?;
    let (fits, sure) = compare(q, left(m)?);
    let (card_has_it, surely) = m.figures.free.map_or((true, true), |free| compare(q, free));
    // Too close to tell by the limit alone: where the card surely had enough, it was the limit that refused.
    Some(card_has_it && (!fits || (!sure && surely)))
}

/// True for the two sizes of segments that PyTorch takes for tensors up to 1 and up to 10 MiB.
pub(super) fn is_small_segment(m: &OomMessage) -> bool {
    let is_pytorchs = m.dialect.writer == Writer::PYTORCH && !m.seen.contains("expands");
    is_pytorchs && m.figures.requested.is_some_and(|q| [2 * MEBIBYTE, 20 * MEBIBYTE].contains(&q.bytes))
}

/// True if the holes may have served the smallest tensor for which PyTorch requests a segment of this size: 2 MiB for up to 1
/// MiB, 20 MiB for up to 10 MiB, otherwise multiples of 2 MiB.
pub(super) fn tensor_may_fit(m: &OomMessage) -> bool {
    let Some(q) = m.figures.requested else { return false };
    let least = match m.dialect.writer {
        Writer::CUDA_MALLOC_ASYNC => q.low(),
        _ if q.low() <= 2 * MEBIBYTE => 1,
        _ if q.bytes == 20 * MEBIBYTE => MEBIBYTE,
        _ => q.low() - 2 * MEBIBYTE,
    };
    m.unallocated().unwrap_or(NONE).high() >= least
}

/// What others than this process hold, and in words who they are: the processes that the message lists, or unlisted ones if those
/// hold more.
pub(super) fn most_of_others(m: &OomMessage, capacity: Figure) -> Option<(Figure, String)> {
    let largest = largest_other(m);
    // Where this process is not told apart a sum may count it.
    let is_known = m.this_process().is_some();
    let listed = if is_known { m.other_processes() } else { largest.map(|p| p.bytes) }.unwrap_or(NONE);
    if let Some(rest) = unattributed(m).filter(|rest| is_known && rest.bytes > listed.bytes) {
        let why = "belongs to no listed process: one of another container or user, or one that died";
        return Some((rest, format!("{rest} of the card's {capacity} {why}")));
    }
    let largest = largest?;
    let pid = largest.pid.map_or("one".to_owned(), |pid| format!("pid {pid}"));
    let who = if largest.bytes.bytes < listed.bytes {
        let who = if m.has_peers { "Other processes, by their numbers ranks of the same job," } else { "Other processes" };
        format!("{who} hold {listed} of the card's {capacity} ({pid} with {} the most)", largest.bytes)
    } else {
        let who = largest.pid.map_or("Another process".to_owned(), |pid| format!("Process {pid}"));
        format!("{who} holds {} of the card's {capacity}", largest.bytes)
    };
    Some((listed, who))
}

fn largest_other(m: &OomMessage) -> Option<&ProcessUse> {
    m.processes.iter().filter(|p| !p.is_this && !p.bytes.is_unlimited()).max_by_key(|p| p.bytes.bytes)
}

/// The part of the card that is neither free nor attributed to anyone.
pub(super) fn rest(m: &OomMessage) -> Option<Figure> {
    let f = &m.figures;
    let in_pool = || Some(f.capacity?.minus(f.free?.plus(f.allocated?))).filter(|_| m.reserved().is_none());
    unattributed(m).or_else(in_pool)
}

/// The part of the card that is neither free nor PyTorch's nor of a listed process, if it is large enough to mention.
pub(super) fn much_outside(m: &OomMessage) -> Option<Figure> {
    // What is usual on a large card is much of a small one.
    let much = m.figures.capacity.map_or(USUAL_OUTSIDE, |card| (card.bytes / 8).clamp(LEAST_OUTSIDE, USUAL_OUTSIDE));
    unattributed(m).filter(|rest| rest.bytes > much)
}

/// This process's memory outside PyTorch, if the request would fit without it; `None` if it would not, or if it is unknown.
pub(super) fn outside_that_decides(m: &OomMessage) -> Option<Figure> {
    let f = &m.figures;
    let (free, held, q) = (f.free?, m.reserved().or(f.allocated)?, f.requested?.bytes);
    let outside = m.outside_pytorch().or_else(|| unattributed(m)).filter(|o| o.bytes > 0)?;
    // A process cannot give back its context.
    if m.this_process().is_some() && outside.bytes <= LEAST_OUTSIDE {
        return None;
    }
    let is_all_told = f.capacity.is_some_and(|c| held.bytes < c.bytes);
    let own = free.bytes.saturating_add(m.unallocated().map_or(0, |h| h.bytes));
    (is_all_told && q > own && q <= own.saturating_add(outside.bytes)).then_some(outside)
}
