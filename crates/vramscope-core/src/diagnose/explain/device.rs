//! Why PyTorch's allocators were refused on a GPU: the classifier of the diagnoses reference (E1) as far as the figures of a message go.
//! Where it has a limit it judges as the autopsy of a snapshot does (`diagnose::oom`).

use super::judge::{Judged, ROUNDED};
use super::{Verdict, compare, unattributed};
use crate::formats::oom_message::{Cause, Figure, Figures, OomMessage, Platform, ProcessUse, Writer};
use crate::units::{GIBIBYTE, MEBIBYTE, pytorch_size};

/// Context, modules and libraries of one process reach this without anything being wrong (measured: 250 to 1,981 MiB).
const USUAL_OUTSIDE: u64 = 2 * GIBIBYTE;
/// What is left of them at least, when one asks how much could be won back.
const LEAST_OUTSIDE: u64 = 512 * MEBIBYTE;
/// Holes below this share of what PyTorch holds are what any program has.
pub(super) const FEW_HOLES: f64 = 0.05;

/// So many figures beside the request are in every message.
const ALL_FIGURES: usize = 4;
/// A share of the card (a quarter) that makes its holder worth naming before any arithmetic of holes.
const MUCH: u64 = 4;
/// Nothing, where the message tells none.
const NONE: Figure = Figure { bytes: 0, slack: 0 };

/// What a rule finds; `None` where it does not apply.
type Reason = Option<(Verdict, String)>;

/// In this order; the first that says something decides. The letters: q asked for, f free on the card, h in holes, R held by PyTorch,
/// L its limit, O of other processes, G of this one outside PyTorch.
const RULES: [fn(&mut Case<'_>) -> Reason; 17] = [
    named_cause,             // the message says so
    larger_than_the_card,    // q > card - G            too large
    refused_beforehand,      // the message says so     cap
    limit_of_a_cut_message,  // a figure lacks, L told  cap where q <= f
    private_pools,           // f < q <= pools, and those are much of the card: fragmentation
    others_of_a_cut_message, // a figure lacks         contention where O fill the card
    not_all_read,            // a figure lacks          what does not rest on it, else unknown
    holes_under_the_limit,   // q > L - R, q <= h       fragmentation
    limit,                   // q > L - R, q <= f       cap
    one_block,               // q > 4 GiB on Intel's, and there is room: too large
    free_is_not_told,        // f unknown               capacity where q + R > card, else unknown
    something_else_refused,  // q <= f                  unknown
    others_fill_the_card,    // q <= f + O, O much of the card and more than h: contention
    holes_of_a_full_card,    // q <= f + h              fragmentation
    other_processes,         // q <= f + h + O          contention
    this_one_outside,        // q <= f + h + G          outside PyTorch
    beyond,                  // unattributed            contention or unknown; else capacity
];

pub(super) fn device(m: &OomMessage, q: Figure) -> Judged {
    let f = &m.figures;
    let reserved = m.reserved().or(f.allocated);
    let mut case = Case {
        m,
        f: *f,
        q,
        reserved,
        holes: m.unallocated().unwrap_or(Figure::exact(0)),
        left: f.limit.zip(reserved).map(|(limit, reserved)| limit.minus(reserved)),
        doubt: None,
    };
    let (verdict, sentence) = RULES.iter().find_map(|rule| rule(&mut case)).unwrap_or((Verdict::Unknown, String::new()));
    let also = case.limit_as_well(verdict).unwrap_or_default();
    Judged { verdict, doubt: case.doubt, sentence: format!("{sentence}{also}") }
}

/// The figures as the rules compare them.
struct Case<'a> {
    m: &'a OomMessage,
    f: Figures,
    q: Figure,
    reserved: Option<Figure>,
    holes: Figure,
    /// Room below the limit of the process.
    left: Option<Figure>,
    /// Why the verdict is not forced, so far.
    doubt: Option<&'static str>,
}

impl Case<'_> {
    /// Compares, and remembers where the printed decimals do not decide it.
    fn at_most(&mut self, a: Figure, b: Figure) -> bool {
        let (yes, sure) = compare(a, b);
        if !sure {
            self.doubt = Some(ROUNDED);
        }
        yes
    }

    /// What a request could be made of: what the card has free, or less where a limit leaves less, and the holes.
    fn own(&self, free: Figure) -> Figure {
        let room = self.left.filter(|left| left.bytes < free.bytes).unwrap_or(free);
        room.plus(self.holes)
    }

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

    /// The limit, where it would have refused what the card could not give either.
    fn limit_as_well(&self, verdict: Verdict) -> Option<String> {
        let (limit, left) = (self.m.figures.limit?, self.left?);
        let is_told = matches!(verdict, Verdict::Cap | Verdict::TooLarge);
        (!is_told && self.q.bytes > left.bytes && self.m.figures.free.is_some_and(|f| self.q.bytes > f.bytes))
            .then(|| format!(" Its limit of {limit} leaves {left} and would have refused as well."))
    }

    /// True where the limit is what stopped the request, whatever the holes.
    fn limit_refused(&self) -> bool {
        let Some(left) = self.left else { return false };
        let (fits, sure) = compare(self.q, left);
        let (card_has_it, surely) = self.m.figures.free.map_or((true, true), |free| compare(self.q, free));
        // Too close to tell by the limit alone: where the card surely had enough, it was the limit that refused.
        card_has_it && (!fits || (!sure && surely))
    }
}

fn named_cause(c: &mut Case<'_>) -> Reason {
    let q = c.q;
    match c.m.cause? {
        Cause::Rejected => None,
        Cause::PoolAllocator => Some((
            Verdict::Unknown,
            format!(
                "The custom allocator behind this MemPool returned nothing for {q}: it refused, not PyTorch's own allocator."
            ),
        )),
        Cause::SegmentReserve => Some((
            Verdict::Cap,
            format!(
                "{q} was requested at once, more than the address space of one expandable segment. Memory is not what ran out."
            ),
        )),
    }
}

fn larger_than_the_card(c: &mut Case<'_>) -> Reason {
    let (q, capacity) = (c.q, c.f.capacity?);
    let outside = c.m.outside_pytorch().map_or(NONE, |g| Figure { bytes: g.bytes.min(USUAL_OUTSIDE), slack: g.slack });
    let why = || format!("{q} was requested at once, and the whole card has {capacity}. No setting makes that fit.");
    (!c.at_most(q, capacity.minus(outside))).then(|| (Verdict::TooLarge, why()))
}

fn refused_beforehand(c: &mut Case<'_>) -> Reason {
    let (q, cause) = (c.q, c.m.cause?);
    let limit = c.f.limit.map_or(String::new(), |l| format!(" of {l}"));
    let held = c.f.allocated.map_or(String::new(), |held| format!("; it has {held} allocated"));
    let why = format!("PyTorch refused {q} beforehand because this process may not exceed its memory fraction{limit}{held}.");
    (cause == Cause::Rejected).then_some((Verdict::Cap, why))
}

/// The limit is used where the text breaks off behind it: what is reserved is at least what is allocated.
fn limit_of_a_cut_message(c: &mut Case<'_>) -> Reason {
    let (q, limit) = (c.q, c.f.limit.filter(|_| !c.m.unread().is_empty())?);
    let is_below = c.f.capacity.is_none_or(|capacity| limit.bytes < capacity.bytes);
    if !is_below || c.f.free.is_some_and(|free| q.bytes > free.bytes) {
        return None;
    }
    let free = although(c.f.free);
    let held = c.reserved.map_or(String::new(), |held| format!(", has {held} in tensors"));
    if c.reserved.is_none_or(|held| c.at_most(held.plus(q), limit)) {
        c.doubt = Some("what PyTorch holds in all is in the part of the message that is missing");
    }
    Some((Verdict::Cap, format!("This process may hold {limit}{held} and requested {q} more{free}.")))
}

fn although(free: Option<Figure>) -> String {
    free.map_or(String::new(), |free| format!(" although the card has {free} free"))
}

/// Whoever holds most of the card is named, whatever else the text lacks.
fn others_of_a_cut_message(c: &mut Case<'_>) -> Reason {
    let (q, free, capacity) = (c.q, c.f.free?, c.f.capacity?);
    if c.m.unread().is_empty() || c.m.unallocated().is_some() || q.bytes <= free.bytes {
        return None;
    }
    let this = c.m.this_process();
    let (others, who) = most_of_others(c.m, capacity)?;
    if others.bytes < capacity.bytes / MUCH || this.is_none() && c.m.processes.len() < 2 {
        return None;
    }
    if this.is_none() {
        c.doubt = Some("in a container this process may be one of those listed, under another number");
    }
    let own = this.map_or(String::new(), |own| format!("; this process has {own}"));
    Some((Verdict::Contention, format!("{who}{own}. {q} was requested and {free} is free.")))
}

/// What others than this process hold, and in words who: those that are listed, or nobody's that is listed where that is more.
fn most_of_others(m: &OomMessage, capacity: Figure) -> Option<(Figure, String)> {
    let largest = largest_other(m);
    // Where this process is not told apart a sum may count it.
    let is_known = m.this_process().is_some();
    let listed = if is_known { m.other_processes() } else { largest.map(|p| p.bytes) }.unwrap_or(NONE);
    let unlisted = unattributed(m).filter(|rest| is_known && rest.bytes > listed.bytes);
    if let Some(rest) = unlisted {
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

/// Figures that the form always has and that the text lacks are not 0: only what does not rest on them is said.
fn not_all_read(c: &mut Case<'_>) -> Reason {
    let (q, f, unread) = (c.q, c.f, c.m.unread());
    if unread.is_empty() {
        return None;
    }
    if unread.len() == ALL_FIGURES {
        let why = format!("{q} was requested. The text has no other figure of the message, so the reason is unknown.");
        return Some((Verdict::Unknown, why));
    }
    let has_holes = c.m.unallocated().is_some();
    if let (Some(live), Some(capacity), true) = (c.m.live(), f.capacity, has_holes)
        && !c.at_most(q.plus(live), capacity)
    {
        let why = format!("Live tensors take {live} of the card's {capacity}, and {q} more was requested.");
        return Some((Verdict::Capacity, why));
    }
    c.doubt = None;
    if f.free.is_some()
        && has_holes
        && let Some(told) = something_else_refused(c).or_else(|| holes_of_a_full_card(c))
    {
        c.doubt = c.doubt.or(Some("a part of the message was not read"));
        return Some(told);
    }
    c.doubt = None;
    let free = f.free.map_or(String::new(), |free| format!(" and {free} is free"));
    let used = match (f.capacity, f.free, c.m.this_process(), f.allocated) {
        (Some(capacity), _, _, Some(held)) => format!("PyTorch has {held} of the card's {capacity} in tensors; "),
        (Some(capacity), _, Some(own), None) => {
            format!("this process has {own} of the card's {capacity}, PyTorch's share of it unknown; ")
        }
        (Some(capacity), Some(free), None, None) => {
            format!("{} of the card is in use, owner unknown; ", pytorch_size(capacity.minus(free).bytes))
        }
        _ => String::new(),
    };
    let list = listed(&unread);
    Some((Verdict::Unknown, format!("{q} was requested{free}; {used}the text lacks {list}, so the reason is unknown.")))
}

/// `a, b and c`.
pub(super) fn listed(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// `PyTorch has 2.30 GiB free inside its own memory, but scattered; no single gap fits 1.70 GiB`.
fn scattered(c: &Case<'_>) -> String {
    // Some of it may do together with what is free on the card.
    let all = if c.holes.bytes < c.q.bytes { "and all of it is less than" } else { "but scattered; no single gap fits" };
    format!("PyTorch has {} free inside its own memory, {all} {}", c.holes, c.q)
}

fn holes_under_the_limit(c: &mut Case<'_>) -> Reason {
    if !c.limit_refused() || c.q.bytes > c.holes.bytes {
        return None;
    }
    c.at_most(c.q, c.holes);
    let (limit, left) = (c.f.limit?, c.left?);
    Some((Verdict::Fragmentation, format!("{}. Its limit of {limit} leaves {left}.", scattered(c))))
}

fn limit(c: &mut Case<'_>) -> Reason {
    let (q, holes, limit, left, reserved) = (c.q, c.holes, c.f.limit?, c.left?, c.reserved?);
    if !c.limit_refused() {
        return None;
    }
    if holes.high() >= c.least_tensor() {
        c.doubt =
            Some("the tensor may be smaller than the segment that was requested, and then the holes together would have held it");
    }
    let with_holes = if holes.bytes > 0 && q.bytes <= left.plus(holes).bytes {
        let share = holes.bytes as f64 * 100.0 / reserved.bytes.max(1) as f64;
        format!(
            " Together with the {holes} in holes, {share:.1} % of what it holds, it would be enough, but a hole cannot be joined with memory that PyTorch has not reserved yet."
        )
    } else {
        String::new()
    };
    let free = although(c.f.free);
    Some((Verdict::Cap, format!("This process may hold {limit}, holds {reserved} and requested {q} more{free}.{with_holes}")))
}

/// Intel's driver hands out no single block above this, unless it is told otherwise.
const INTEL_BLOCK: u64 = 4 * GIBIBYTE;

fn one_block(c: &mut Case<'_>) -> Reason {
    let (q, capacity, held) = (c.q, c.f.capacity?, c.reserved?);
    let (room, is_told) = match c.f.free {
        Some(free) => (free, format!("{free} is free")),
        None => (capacity.minus(held), format!("PyTorch holds {held} of the card's {capacity}")),
    };
    if c.m.dialect.platform != Platform::Xpu || q.bytes < INTEL_BLOCK || q.bytes > room.bytes {
        return None;
    }
    c.doubt = Some("another program may hold the card, or a limit of the system may have refused it");
    Some((
        Verdict::TooLarge,
        format!(
            "{q} was requested in one block while {is_told}: Intel's driver usually allows no single block of 4 GiB or more."
        ),
    ))
}

fn free_is_not_told(c: &mut Case<'_>) -> Reason {
    let q = c.q;
    if c.f.free.is_some() {
        return None;
    }
    if let (Some(capacity), Some(reserved)) = (c.f.capacity, c.reserved)
        && !c.at_most(q.plus(reserved), capacity)
    {
        if c.holes.bytes > 0 && q.plus(reserved.minus(c.holes)).bytes <= capacity.bytes {
            c.doubt = Some("how much is free is unknown: with the holes it may have been enough");
        }
        return Some((Verdict::Capacity, format!("PyTorch holds {reserved} of {capacity} and requested {q} more.")));
    }
    c.doubt = None;
    let held = match (c.reserved, c.f.capacity) {
        (Some(held), Some(capacity)) => format!(" PyTorch holds {held} of the card's {capacity}."),
        _ => String::new(),
    };
    Some((Verdict::Unknown, format!("{q} was requested; the message does not say how much was free.{held}")))
}

/// What of the card is neither free nor PyTorch's nor of a listed process, where that is worth a sentence.
fn outside_it(c: &Case<'_>) -> String {
    // What is usual on a large card is much of a small one.
    let much = c.f.capacity.map_or(USUAL_OUTSIDE, |card| (card.bytes / 8).clamp(GIBIBYTE, USUAL_OUTSIDE));
    match unattributed(c.m) {
        Some(rest) if rest.bytes > much => {
            format!(
                " {} of the card is held outside PyTorch, by other processes or this one's libraries.",
                pytorch_size(rest.bytes)
            )
        }
        _ => String::new(),
    }
}

fn something_else_refused(c: &mut Case<'_>) -> Reason {
    let (q, free) = (c.q, c.f.free?);
    let outside = outside_it(c);
    let nearly = match (c.f.capacity, c.reserved) {
        (Some(capacity), Some(held)) if free.bytes < capacity.bytes / 20 => {
            format!(" The card is nearly full: PyTorch holds {held} of {capacity}.")
        }
        _ => String::new(),
    };
    let why = format!(
        "{q} was requested and {free} is free on the card, so something else refused it: another process that gave memory back since, or a limit of the system, container or driver.{nearly}{outside}"
    );
    c.at_most(q, free).then_some((Verdict::Unknown, why))
}

/// True where free blocks of private pools (graphs', MemPools') are much of the card: no other request may use them.
pub(super) fn pools_hold_it(m: &OomMessage) -> bool {
    let f = &m.figures;
    let (Some(pools), Some(q), Some(capacity)) = (f.private_pools, f.requested, f.capacity) else { return false };
    let is_short = f.free.is_none_or(|free| q.bytes > free.bytes);
    is_short && q.bytes <= pools.bytes && pools.bytes >= capacity.bytes / MUCH
}

fn private_pools(c: &mut Case<'_>) -> Reason {
    let (q, pools, live) = (c.q, c.f.private_pools?, c.m.live()?);
    let why = format!(
        "{q} was requested. {pools} lies free in private pools (CUDA graphs, MemPool), where only they may use it; live tensors take {live}."
    );
    pools_hold_it(c.m).then_some((Verdict::Fragmentation, why))
}

/// Who holds much of the card outweighs holes that would be just enough in sum.
fn others_fill_the_card(c: &mut Case<'_>) -> Reason {
    if c.m.this_process().is_none() {
        return most_is_unattributed(c);
    }
    let (q, free, capacity, own) = (c.q, c.f.free?, c.f.capacity?, c.m.this_process()?);
    let (others, who) = most_of_others(c.m, capacity)?;
    let is_much = others.bytes >= capacity.bytes / MUCH && others.bytes / 2 >= c.holes.bytes;
    let limit_refuses = c.left.is_some_and(|left| q.bytes > left.bytes);
    if !is_much || c.holes.bytes == 0 || limit_refuses || !c.at_most(q, free.plus(others)) {
        return None;
    }
    let outside = c.m.outside_pytorch().filter(|o| o.bytes > GIBIBYTE);
    let outside = outside.map_or(String::new(), |o| format!(", {} of that outside PyTorch", pytorch_size(o.bytes)));
    let why = format!("{who}; this process has {own}{outside}. {q} was requested and {free} is free on the card.");
    Some((Verdict::Contention, why))
}

/// The message lists no process, but no library of one process takes more than half of a card.
fn most_is_unattributed(c: &mut Case<'_>) -> Reason {
    let (q, free, capacity, held) = (c.q, c.f.free?, c.f.capacity?, c.reserved?);
    let rest = unattributed(c.m)?;
    let is_most = rest.bytes > capacity.bytes / 2 && rest.bytes / 2 > held.bytes && c.m.dialect.writer != Writer::CudaMallocAsync;
    if !is_most || c.m.other_processes().is_some() || c.left.is_some_and(|left| q.bytes > left.bytes) {
        return None;
    }
    c.doubt = Some("the message lists no process: it may be this one's, outside PyTorch");
    let rest = pytorch_size(rest.bytes);
    let why = format!(
        "{rest} of the card's {capacity} is held outside PyTorch, by other processes in all likelihood; PyTorch holds {held}. {q} was requested and {free} is free."
    );
    Some((Verdict::Contention, why))
}

fn holes_of_a_full_card(c: &mut Case<'_>) -> Reason {
    let (q, free, holes) = (c.q, c.f.free?, c.holes);
    if holes.bytes == 0 || spilled(c).is_some() || !c.at_most(q, c.own(free)) {
        return None;
    }
    let share = c.reserved.map_or(1.0, |r| holes.bytes as f64 / r.bytes.max(1) as f64);
    let outside = outside_it(c);
    // Holes that hardly exceed the request are no proof that it was they that lacked.
    if share < FEW_HOLES && holes.bytes / 2 < q.bytes && !outside.is_empty() {
        let live = c.m.live().unwrap_or(NONE);
        let why = format!(
            "{q} was requested; {free} is free on the card, and {holes} in holes of what PyTorch holds. Live tensors take {live} of {}.{outside} Without that it would fit.",
            c.f.capacity?
        );
        return Some((Verdict::Capacity, why));
    }
    if c.doubt.is_none() && holes.low() < q.high() {
        // Only what is free in the pool and on the stream of the request can be joined with what the card has.
        c.doubt = Some("which of these holes the request's pool and stream may use is unknown");
    }
    let little = if share < FEW_HOLES {
        format!(" But that is only {:.1} % of what PyTorch holds: the card is nearly full as well.", share * 100.0)
    } else {
        String::new()
    };
    let card = if q.bytes <= holes.bytes {
        format!("; the card has {free} free")
    } else {
        format!(". Together with the {free} free on the card it would be enough")
    };
    Some((Verdict::Fragmentation, format!("{}{card}.{little}{outside}", scattered(c))))
}

/// What PyTorch holds where that is more than the card has: Windows' driver moves the rest to the machine's memory.
fn spilled(c: &Case<'_>) -> Option<Figure> {
    c.reserved.filter(|held| c.f.capacity.is_some_and(|capacity| held.low() > capacity.high()))
}

fn other_processes(c: &mut Case<'_>) -> Reason {
    let (q, free, capacity) = (c.q, c.f.free?, c.f.capacity?);
    let others = c.m.other_processes().filter(|o| o.bytes > 0)?;
    let own = c.own(free);
    let why = format!(
        "{q} was requested and {own} is free, while other processes hold {others} of the card's {capacity}. Without them it would fit."
    );
    c.at_most(q, own.plus(others)).then_some((Verdict::Contention, why))
}

fn this_one_outside(c: &mut Case<'_>) -> Reason {
    let (q, free) = (c.q, c.f.free?);
    let outside = c.m.this_process()?.minus(c.reserved?);
    if outside.bytes <= USUAL_OUTSIDE {
        return None;
    }
    let to_win = Figure { bytes: outside.bytes - LEAST_OUTSIDE, slack: outside.slack };
    let why = format!(
        "This process holds {outside} outside PyTorch's allocator, more than CUDA and its libraries usually need. The requested {q} would fit into the difference."
    );
    c.at_most(q, c.own(free).plus(to_win)).then_some((Verdict::NonPytorch, why))
}

fn beyond(c: &mut Case<'_>) -> Reason {
    unattributed_fills_the_card(c).or_else(|| full(c))
}

fn unattributed_fills_the_card(c: &mut Case<'_>) -> Reason {
    let (q, free, capacity) = (c.q, c.f.free?, c.f.capacity?);
    let own = c.own(free);
    let lacking = q.bytes.saturating_sub(own.bytes);
    if let Some(this) = c.m.this_process() {
        let others = c.m.other_processes().map_or(0, |o| o.bytes);
        let rest = capacity.minus(free.plus(this)).bytes.saturating_sub(others);
        let bytes = pytorch_size(rest);
        let why = format!(
            "{bytes} of the card belongs to no listed process: one of another container or user, or one that died and was not cleaned up. Without it the requested {q} would fit."
        );
        return (rest > USUAL_OUTSIDE && lacking <= rest).then_some((Verdict::Contention, why));
    }
    let held = c.reserved?;
    let rest = capacity.minus(free.plus(held)).bytes;
    if rest <= USUAL_OUTSIDE || lacking > rest.saturating_sub(LEAST_OUTSIDE) {
        return None;
    }
    c.doubt = None;
    let bytes = pytorch_size(rest);
    // The driver's pool keeps what tensors gave back, and its message has no figure of that: it may be all of the rest.
    let whose = if c.m.dialect.writer == Writer::CudaMallocAsync {
        "is neither free nor in tensors, and the message does not say whose: freed memory that the driver's pool keeps, other processes, or this one's context and libraries"
    } else {
        "is held outside PyTorch, by other processes or by libraries of this one: the message does not say which"
    };
    let fits = c.q.plus(held).bytes <= capacity.bytes && c.m.dialect.writer == Writer::CudaMallocAsync;
    let fits = if fits { " The tensors and the request together would fit on the card." } else { "" };
    Some((Verdict::Unknown, format!("{q} was requested and {own} is free. {bytes} of the card {whose}.{fits}")))
}

fn full(c: &mut Case<'_>) -> Reason {
    let (m, q, free, capacity) = (c.m, c.q, c.f.free?, c.f.capacity?);
    let own = c.own(free);
    if c.left.is_some_and(|left| left.bytes < free.bytes) {
        let holes = c.holes;
        let why = format!("{q} was requested; {free} is free on the card, and {holes} in holes of what this process holds.");
        return Some((Verdict::Capacity, why));
    }
    let Some(live) = m.live().or(c.reserved) else {
        c.doubt = None;
        return Some((Verdict::Unknown, format!("{q} was requested and {own} is free. Who holds the rest is unknown.")));
    };
    if let Some(held) = spilled(c) {
        c.doubt = None;
        let why = format!(
            "{q} was requested on a full card: PyTorch holds {held}, more than the card's {capacity}. Windows' driver has moved the rest to the machine's memory, which is slow, and refused more."
        );
        return Some((Verdict::Capacity, why));
    }
    if let Some(outside) = outside_that_decides(m) {
        let whose = if m.this_process().is_some() {
            "are this process's own outside PyTorch, its context and libraries"
        } else {
            "are outside PyTorch, in other processes or in this one's context and libraries"
        };
        let why = format!(
            "{q} was requested and only {own} is left, holes included. Live tensors take {live} of {capacity}, and {outside} {whose}; without them it would fit."
        );
        return Some((Verdict::Capacity, why));
    }
    let left = if m.dialect.writer == Writer::CudaMallocAsync {
        "is free beside what the driver's pool keeps, which the message does not tell"
    } else {
        "is left, holes included"
    };
    let why = if live.bytes / 3 < capacity.bytes / 4 {
        format!("{q} was requested at once, and only {own} {left}: live tensors take {live} of {capacity}.")
    } else {
        format!("Live tensors fill the card: they take {live} of {capacity}, {q} was requested, and only {own} {left}.")
    };
    Some((Verdict::Capacity, why))
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
