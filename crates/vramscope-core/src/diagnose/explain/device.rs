//! Why PyTorch's allocators were refused on a GPU: the classifier of the diagnoses reference (E1) as far as the figures of a message go.
//! Where it has a limit it judges as the autopsy of a snapshot does (`diagnose::oom`).
//!
//! In the rules q is what was requested; the first that holds decides.

use super::Verdict::{Cap, Capacity, Contention, Fragmentation, NonPytorch, TooLarge, Unknown};
use super::judge::{Case, NONE, Rule, rule};
use super::words::own;
use super::{Verdict, compare, unattributed};
use crate::formats::oom_message::{Cause, Figure, OomMessage, Platform, ProcessUse, Writer};
use crate::units::{GIBIBYTE, MEBIBYTE};

/// Context, modules and libraries of one process reach this without anything being wrong (measured: 250 to 1,981 MiB).
const USUAL_OUTSIDE: u64 = 2 * GIBIBYTE;
/// What is left of them at least, when one asks how much could be won back.
const LEAST_OUTSIDE: u64 = 512 * MEBIBYTE;
/// Holes below this share of what PyTorch holds are what any program has: the card is full.
const FEW_HOLES: f64 = 0.05;
/// So many figures beside the request are in every message.
const ALL_FIGURES: usize = 4;
/// A share of the card (a quarter) that makes its holder worth naming before any arithmetic of holes.
const MUCH: u64 = 4;
/// Intel's driver hands out no single block above this, unless it is told otherwise.
const INTEL_BLOCK: u64 = 4 * GIBIBYTE;

/// Figures that the form always has and that a text lacks are not 0: of such a text only what does not rest on them is said.
pub(super) fn rules(m: &OomMessage) -> &'static [&'static [Rule]] {
    if m.unread().is_empty() { &[FIRST, WHOLE] } else { &[FIRST, CUT] }
}

#[rustfmt::skip]
const FIRST: &[Rule] = &[
    rule(Unknown, |c| Some(c.m.cause? == Cause::PoolAllocator),
        "The custom allocator behind this MemPool returned nothing for {requested}: it refused, not PyTorch's own allocator."),
    rule(Cap, |c| Some(c.m.cause? == Cause::SegmentReserve),
        "{requested} was requested at once, more than the address space of one expandable segment. Memory is not what ran out."),
    rule(TooLarge, |c| {
        let outside = c.m.outside_pytorch().map_or(NONE, |g| Figure { bytes: g.bytes.min(USUAL_OUTSIDE), slack: g.slack });
        Some(!c.at_most(c.q, c.f.capacity?.minus(outside)))
    },
        "{requested} was requested at once, and the whole card has {capacity}. No setting makes that fit."),
    rule(Cap, |c| Some(c.m.cause? == Cause::Rejected),
        "PyTorch refused {requested} beforehand because this process may not exceed its memory fraction{? of {limit}}{?; it has {allocated} \
         allocated}."),
    rule(Fragmentation, |c| Some(pools_hold_it(c.m)),
        "{requested} was requested. {private_pool} lies free in private pools (CUDA graphs, MemPool), where only they may use it; live tensors \
         take {live}."),
];

#[rustfmt::skip]
const CUT: &[Rule] = &[
    // The limit is used where the text breaks off behind it: what is reserved is at least what is allocated.
    rule(Cap, |c| {
        let limit = c.f.limit?;
        let is_below = c.f.capacity.is_none_or(|capacity| limit.bytes < capacity.bytes);
        let applies = is_below && c.f.free.is_none_or(|free| c.q.bytes <= free.bytes);
        if applies && c.held.is_none_or(|held| c.at_most(held.plus(c.q), limit)) {
            c.doubt = Some("what PyTorch holds in all is in the part of the message that is missing");
        }
        Some(applies)
    },
        "This process may hold {limit}{?, has {held} in tensors} and requested {requested} more{? although the card has {free} free}."),
    // Whoever holds most of the card is named, whatever else the text lacks.
    rule(Contention, |c| {
        let (this, capacity) = (c.m.this_process(), c.f.capacity?);
        let (others, _) = most_of_others(c.m, capacity)?;
        let is_short = c.m.unallocated().is_none() && c.q.bytes > c.f.free?.bytes;
        let applies = is_short && others.bytes >= capacity.bytes / MUCH && (this.is_some() || c.m.processes.len() > 1);
        if applies && this.is_none() {
            c.doubt = Some("in a container this process may be one of those listed, under another number");
        }
        Some(applies)
    },
        "{who}{?; this process has {process}}. {requested} was requested and {free} is free."),
    rule(Unknown, |c| Some(c.m.unread().len() == ALL_FIGURES),
        "{requested} was requested. The text has no other figure of the message, so the reason is unknown."),
    rule(Capacity, |c| {
        c.m.unallocated()?;
        let fits = c.at_most(c.q.plus(c.m.live()?), c.f.capacity?);
        c.doubt = c.doubt.filter(|_| !fits);
        Some(!fits)
    },
        "Live tensors take {live} of the card's {capacity}, and {requested} more was requested."),
    rule(Unknown, |c| {
        c.m.unallocated()?;
        let fits = c.at_most(c.q, c.f.free?);
        c.doubt = if fits { c.doubt.or(Some(NOT_READ)) } else { None };
        Some(fits)
    },
        SOMETHING_ELSE),
    rule(Fragmentation, |c| c.holes_would_do(NOT_READ), HOLES),
    rule(Unknown, |_| Some(true),
        "{requested} was requested{? and {free} is free}; {?PyTorch has {allocated} of the card's {capacity} in tensors; |this process has \
         {process} of the card's {capacity}, PyTorch's share of it unknown; |{used} of the card is in use, owner unknown; }the text lacks \
         {unread}, so the reason is unknown.").sure(),
];

const NOT_READ: &str = "a part of the message was not read";
/// Only what is free in the pool and on the stream of the request can be joined with what the card has.
const WHICH_HOLES: &str = "which of these holes the request's pool and stream may use is unknown";
const SOMETHING_ELSE: &str = "{requested} was requested and {free} is free on the card, so something else refused it: another process that gave \
    memory back since, or a limit of the system, container or driver.";
const OUTSIDE: &str = "{? {much outside} of the card is held outside PyTorch, by other processes or this one's libraries.}";
const HOLES: &str = "PyTorch has {unallocated} free inside its own memory, but scattered; no single gap fits {requested}; the card has {free} free.";
const HOLES_AND_CARD: &str = "PyTorch has {unallocated} free inside its own memory and the card has {free} free. Together that is enough \
    for {requested}, but they cannot be joined.";

#[rustfmt::skip]
const WHOLE: &[Rule] = &[
    rule(Fragmentation, |c| {
        let refused = c.limit_refused()? && c.q.bytes <= c.holes.bytes;
        Some(refused && c.at_most(c.q, c.holes))
    },
        "PyTorch has {unallocated} free inside its own memory, but scattered; no single gap fits {requested}. Its limit of {limit} leaves {left}."),
    rule(Cap, |c| {
        let refused = c.limit_refused()?;
        if refused && c.holes.high() >= c.least_tensor() {
            c.doubt = Some(
                "the tensor may be smaller than the segment that was requested, and then the holes together would have held it",
            );
        }
        if c.holes.bytes > 0 && c.q.bytes <= c.left?.plus(c.holes).bytes {
            c.also.push(
                " Together with the {unallocated} in holes, {share} of what it holds, it would be enough, but a hole cannot be joined with \
                 memory that PyTorch has not reserved yet.",
            );
        }
        Some(refused)
    },
        "This process may hold {limit}, holds {held} and requested {requested} more{? although the card has {free} free}."),
    rule(TooLarge, |c| {
        let room = c.f.free.unwrap_or(c.f.capacity?.minus(c.held?));
        let applies = c.m.dialect.platform == Platform::Xpu && c.q.bytes >= INTEL_BLOCK && c.q.bytes <= room.bytes;
        Some(applies)
    },
        "{requested} was requested in one block while {?{free} is free|PyTorch holds {held} of the card's {capacity}}: Intel's driver usually \
         allows no single block of 4 GiB or more.")
        .doubt("another program may hold the card, or a limit of the system may have refused it"),
    rule(Capacity, |c| {
        let (held, capacity) = (c.held?, c.f.capacity?);
        let fits = c.f.free.is_some() || c.at_most(c.q.plus(held), capacity);
        if !fits && c.holes.bytes > 0 && c.q.plus(held.minus(c.holes)).bytes <= capacity.bytes {
            c.doubt = Some("how much is free is unknown: with the holes it may have been enough");
        }
        Some(!fits)
    },
        "PyTorch holds {held} of {capacity} and requested {requested} more."),
    rule(Unknown, |c| Some(c.f.free.is_none()),
        "{requested} was requested; the message does not say how much was free.{? PyTorch holds {held} of the card's {capacity}.}").sure(),
    rule(Unknown, |c| {
        if c.f.capacity.is_some_and(|capacity| c.f.free.is_some_and(|free| free.bytes < capacity.bytes / 20)) {
            c.also.push("{? The card is nearly full: PyTorch holds {held} of {capacity}.}");
        }
        c.also.push(OUTSIDE);
        Some(c.at_most(c.q, c.f.free?))
    },
        SOMETHING_ELSE),
    // Who holds much of the card outweighs holes that would be just enough in sum.
    rule(Contention, |c| {
        let (free, capacity) = (c.f.free?, c.f.capacity?);
        c.m.this_process()?;
        let (others, _) = most_of_others(c.m, capacity)?;
        let is_much = others.bytes >= capacity.bytes / MUCH && others.bytes / 2 >= c.holes.bytes && c.holes.bytes > 0;
        Some(is_much && !c.limit_is_short() && c.at_most(c.q, free.plus(others)))
    },
        "{who}; this process has {process}{?, {own outside} of that outside PyTorch}. {requested} was requested and {free} is free on the card."),
    // The message lists no process, but no library of one process takes more than half of a card.
    rule(Contention, |c| {
        let (rest, capacity) = (unattributed(c.m)?, c.f.capacity?);
        let is_most = rest.bytes > capacity.bytes / 2 && rest.bytes / 2 > c.held?.bytes;
        let is_untold = c.m.this_process().is_none() && c.m.other_processes().is_none();
        let applies = is_most && is_untold && !c.limit_is_short();
        Some(applies)
    },
        "{unattributed} of the card's {capacity} is held outside PyTorch, very likely by other processes; PyTorch holds {held}. {requested} \
         was requested and {free} is free.").doubt("the message lists no process: it may be this one's, outside PyTorch"),
    rule(Capacity, |c| {
        let is_full = c.f.free?.bytes < c.f.capacity?.bytes / 10 && c.few_holes();
        c.also.push(OUTSIDE);
        Some(is_full && c.holes_would_do(WHICH_HOLES)?)
    },
        "The card is nearly full: live tensors take {live} of {capacity}. {requested} was requested, {free} is free, and another {unallocated} \
         lies scattered inside PyTorch's own memory ({share} of it).").doubt("joined together the holes might have held this request"),
    rule(Fragmentation, |c| {
        c.also.push(OUTSIDE);
        Some(c.q.bytes <= c.holes.bytes && c.holes_would_do(WHICH_HOLES)?)
    },
        HOLES),
    rule(Fragmentation, |c| {
        c.also.push(OUTSIDE);
        c.holes_would_do(WHICH_HOLES)
    },
        HOLES_AND_CARD),
    rule(Contention, |c| {
        let others = c.m.other_processes().filter(|o| o.bytes > 0)?;
        let with_them = own(c.m, c.f.free?)?.plus(others);
        Some(c.at_most(c.q, with_them))
    },
        "{requested} was requested and {own} is free, while other processes hold {other_processes} of the card's {capacity}. Without them it would \
         fit."),
    rule(NonPytorch, |c| {
        let outside = c.m.outside_pytorch().filter(|o| o.bytes > USUAL_OUTSIDE)?;
        let to_win = Figure { bytes: outside.bytes - LEAST_OUTSIDE, slack: outside.slack };
        let with_it = own(c.m, c.f.free?)?.plus(to_win);
        Some(c.at_most(c.q, with_it))
    },
        "This process holds {outside_pytorch} outside PyTorch's allocator, more than CUDA and its libraries usually need. The requested \
         {requested} would fit into the difference."),
    rule(Contention, |c| {
        let rest = unattributed(c.m).filter(|_| c.m.this_process().is_some())?.bytes;
        Some(rest > USUAL_OUTSIDE && c.lacking()? <= rest)
    },
        "{unattributed} of the card belongs to no listed process: one of another container or user, or one that died and was not cleaned up. \
         Without it the requested {requested} would fit."),
    // The driver's pool keeps what tensors gave back, and its message has no figure of that: it may be all of the rest.
    rule(Unknown, |c| {
        if c.q.plus(c.held?).bytes <= c.f.capacity?.bytes {
            c.also.push(" The tensors and the request together would fit on the card.");
        }
        Some(c.m.dialect.writer == Writer::CudaMallocAsync && c.rest_would_do()?)
    },
        "{requested} was requested and {own} is free. {rest} of the card is neither free nor in tensors, and the message does not say whose: freed \
         memory that the driver's pool keeps, other processes, or this one's context and libraries.").sure(),
    rule(Unknown, |c| c.rest_would_do(),
        "{requested} was requested and {own} is free. {rest} of the card is held outside PyTorch, by other processes or by libraries of this one: \
         the message does not say which.").sure(),
    rule(Capacity, |c| Some(c.left?.bytes < c.f.free?.bytes),
        "{requested} was requested; {free} is free on the card{?, and {unallocated} in holes of what this process holds}."),
    rule(Unknown, |c| Some(c.held.is_none()),
        "{requested} was requested and {own} is free. Who holds the rest is unknown.").sure(),
    rule(Capacity, |c| Some(c.is_spilled()),
        "{requested} was requested on a full card: PyTorch holds {held}, more than the card's {capacity}. Windows' driver has moved the rest to the \
         machine's memory, which is slow, and refused more.").sure(),
    rule(Capacity, |c| Some(c.m.this_process().is_some()),
        "{requested} was requested and only {own} is left, with the holes inside PyTorch's own memory. Live tensors take {live} of {capacity}, and {deciding} is this process's \
         own outside PyTorch, its context and libraries; the request would fit without that."),
    rule(Capacity, |_| Some(true),
        "{requested} was requested and only {own} is left, with the holes inside PyTorch's own memory. Live tensors take {live} of {capacity}, and {deciding} is outside PyTorch, \
         in other processes or in this one's context and libraries; the request would fit without that."),
    rule(Capacity, |c| {
        let is_async = c.m.dialect.writer == Writer::CudaMallocAsync;
        c.also.push(if is_async { " is free beside what the driver's pool keeps, which the message does not tell" } else { " is left, with the holes inside PyTorch's own memory" });
        let is_little = c.m.live().or(c.held)?.bytes / 3 < c.f.capacity?.bytes / 4;
        c.also.push(if is_little { ": live tensors take {live} of {capacity}." } else { "." });
        Some(is_little)
    },
        "{requested} was requested at once, and only {own}"),
    rule(Capacity, |c| {
        let is_async = c.m.dialect.writer == Writer::CudaMallocAsync;
        c.also.push(if is_async { " is free beside what the driver's pool keeps, which the message does not tell." } else { " is left, with the holes inside PyTorch's own memory." });
        Some(true)
    },
        "Live tensors fill the card: they take {live} of {capacity}. {requested} was requested, and only {own}"),
];

impl Case<'_> {
    /// Bytes of the smallest tensor that makes PyTorch ask the device for so much: it takes 2 MiB for up to 1 MiB, 20 MiB for up to
    /// 10 MiB, else whole times 2 MiB. A hole smaller than the segment may have served it.
    fn least_tensor(&self) -> u64 {
        let q = self.q.low();
        match self.m.dialect.writer {
            Writer::CudaMallocAsync => q,
            _ if q <= 2 * MEBIBYTE => 1,
            _ if self.q.bytes == 20 * MEBIBYTE => MEBIBYTE,
            _ => q - 2 * MEBIBYTE,
        }
    }

    /// Whether the limit is what stopped the request, whatever the holes; `None` without one.
    fn limit_refused(&self) -> Option<bool> {
        let (fits, sure) = compare(self.q, self.left?);
        let (card_has_it, surely) = self.f.free.map_or((true, true), |free| compare(self.q, free));
        // Too close to tell by the limit alone: where the card surely had enough, it was the limit that refused.
        Some(card_has_it && (!fits || (!sure && surely)))
    }

    fn limit_is_short(&self) -> bool {
        self.left.is_some_and(|left| self.q.bytes > left.bytes)
    }

    /// True where even all holes are a small share of what PyTorch holds.
    fn few_holes(&self) -> bool {
        self.held.is_some_and(|held| (self.holes.bytes as f64) < held.bytes as f64 * FEW_HOLES)
    }

    /// Whether the request would fit into the holes and what is free, if they could be joined.
    fn holes_would_do(&mut self, doubt: &'static str) -> Option<bool> {
        let own = own(self.m, self.f.free?)?;
        let would_do = self.holes.bytes > 0 && !self.is_spilled() && self.at_most(self.q, own);
        if would_do && self.doubt.is_none() && (self.holes.low() < self.q.high() || doubt == NOT_READ) {
            self.doubt = Some(doubt);
        }
        Some(would_do)
    }

    /// PyTorch holds more than the card has: Windows' driver moves the rest to the machine's memory.
    fn is_spilled(&self) -> bool {
        self.held.zip(self.f.capacity).is_some_and(|(held, capacity)| held.low() > capacity.high())
    }

    /// What the request lacks beside all that is free for it.
    fn lacking(&self) -> Option<u64> {
        Some(self.q.bytes.saturating_sub(own(self.m, self.f.free?)?.bytes))
    }

    /// Whether what nobody is told to hold would have been enough, in a message without this process's own use.
    fn rest_would_do(&self) -> Option<bool> {
        let rest = rest(self.m).filter(|_| self.m.this_process().is_none())?.bytes;
        Some(rest > USUAL_OUTSIDE && self.lacking()? <= rest - LEAST_OUTSIDE)
    }
}

/// The limit, where it would have refused what the card could not give either.
pub(super) fn limit_as_well(c: &Case<'_>, verdict: Verdict) -> Option<&'static str> {
    let is_native = matches!(c.m.dialect.writer, Writer::PyTorch | Writer::CudaMallocAsync) && c.m.says.is_empty();
    let applies =
        is_native && !matches!(verdict, Cap | TooLarge) && c.limit_is_short() && c.f.free.is_some_and(|f| c.q.bytes > f.bytes);
    applies.then_some(" Its limit of {limit} leaves {left} and would have refused as well.")
}

/// What others than this process hold, and in words who: those that are listed, or nobody's that is listed where that is more.
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
        format!("Other processes hold {listed} of the card's {capacity} ({pid} with {} the most)", largest.bytes)
    } else {
        let who = largest.pid.map_or("Another process".to_owned(), |pid| format!("Process {pid}"));
        format!("{who} holds {} of the card's {capacity}", largest.bytes)
    };
    Some((listed, who))
}

fn largest_other(m: &OomMessage) -> Option<&ProcessUse> {
    m.processes.iter().filter(|p| !p.is_this && !p.bytes.is_unlimited()).max_by_key(|p| p.bytes.bytes)
}

/// What of the card is neither free nor told to be anyone's.
pub(super) fn rest(m: &OomMessage) -> Option<Figure> {
    let f = &m.figures;
    let in_pool = || Some(f.capacity?.minus(f.free?.plus(f.allocated?))).filter(|_| m.reserved().is_none());
    unattributed(m).or_else(in_pool)
}

/// What of the card is neither free nor PyTorch's nor of a listed process, where that is worth a sentence.
pub(super) fn much_outside(m: &OomMessage) -> Option<Figure> {
    // What is usual on a large card is much of a small one.
    let much = m.figures.capacity.map_or(USUAL_OUTSIDE, |card| (card.bytes / 8).clamp(LEAST_OUTSIDE, USUAL_OUTSIDE));
    unattributed(m).filter(|rest| rest.bytes > much)
}

/// True where free blocks of private pools (graphs', MemPools') are much of the card: no other request may use them.
pub(super) fn pools_hold_it(m: &OomMessage) -> bool {
    let f = &m.figures;
    let (Some(pools), Some(q), Some(capacity)) = (f.private_pools, f.requested, f.capacity) else { return false };
    let is_short = f.free.is_none_or(|free| q.bytes > free.bytes);
    is_short && q.bytes <= pools.bytes && pools.bytes >= capacity.bytes / MUCH
}

/// What the device has outside PyTorch and beside other processes, where the request would fit without it; `None` where it
/// would not, or where it is not told.
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

#[cfg(test)]
pub(super) fn all_rules() -> Vec<&'static Rule> {
    [FIRST, CUT, WHOLE].into_iter().flatten().collect()
}
