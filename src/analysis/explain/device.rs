//! Why PyTorch's allocators were refused on a GPU: the classifier of the diagnoses reference (E1) as far as the figures of a message go.
//! Where it has a limit it judges as the autopsy of a snapshot does (`analysis::oom`).

use super::judge::{Judged, ROUNDED, size};
use super::{Verdict, compare};
use crate::formats::oom_message::{Cause, Figure, OomMessage, ProcessUse, Writer};
use crate::units::{GIBIBYTE, MEBIBYTE, pytorch_size};

/// Context, modules and libraries of one process reach this without anything being wrong (measured: 250 to 1,981 MiB).
const USUAL_OUTSIDE: u64 = 2 * GIBIBYTE;
/// What is left of them at least, when one asks how much could be won back.
const LEAST_OUTSIDE: u64 = 512 * MEBIBYTE;
/// Holes below this share of what PyTorch holds are what any program has.
pub(super) const FEW_HOLES: f64 = 0.05;

/// So many figures beside the request are in every message.
const ALL_FIGURES: usize = 4;

/// What a rule says.
type Told = Option<(Verdict, String)>;

/// In this order; the first that says something decides. The letters: q asked for, f free on the card, h in holes, R held by PyTorch,
/// L its limit, O of other processes, G of this one outside PyTorch.
const RULES: [fn(&mut Case<'_>) -> Told; 16] = [
    named_cause,             // the message says so
    larger_than_the_card,    // q > card - G            too large
    refused_beforehand,      // the message says so     cap
    limit_of_a_cut_message,  // a figure lacks, L told  cap where q <= f
    private_pools,           // f < q <= pools, and those are much of the card: fragmentation
    others_of_a_cut_message, // a figure lacks         contention where O fill the card
    not_all_read,            // a figure lacks          what does not rest on it, else unknown
    holes_under_the_limit,   // q > L - R, q <= h       fragmentation
    limit,                   // q > L - R, q <= f       cap
    free_is_not_told,        // f unknown               capacity where q + R > card, else unknown
    something_else_refused,  // q <= f                  unknown
    others_fill_the_card,    // q <= f + O, O much of the card and more than h: contention
    holes_of_a_full_card,    // q <= f + h              fragmentation
    other_processes,         // q <= f + h + O          contention
    this_one_outside,        // q <= f + h + G          outside PyTorch
    beyond,                  // nobody's                contention or unknown; else capacity
];

pub(super) fn device(m: &OomMessage, q: Figure) -> Judged {
    let f = &m.figures;
    let reserved = m.reserved().or(f.allocated);
    let mut case = Case {
        m,
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
            .then(|| format!(" Its limit of {} leaves {} and would have refused as well.", size(limit), size(left)))
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

fn named_cause(c: &mut Case<'_>) -> Told {
    let q = size(c.q);
    Some(match c.m.cause? {
        Cause::Rejected => return None,
        Cause::PoolAllocator => (
            Verdict::Unknown,
            format!(
                "The custom allocator behind this MemPool returned nothing for {q}: it refused, not PyTorch's own allocator."
            ),
        ),
        Cause::SegmentReserve => (
            Verdict::Cap,
            format!(
                "{q} was requested at once, more than the address space of one expandable segment. Memory is not what ran out."
            ),
        ),
    })
}

fn larger_than_the_card(c: &mut Case<'_>) -> Told {
    let capacity = c.m.figures.capacity?;
    let zero = Figure::exact(0);
    let outside = c.m.outside_pytorch().map_or(zero, |g| Figure { bytes: g.bytes.min(USUAL_OUTSIDE), slack: g.slack });
    if c.at_most(c.q, capacity.minus(outside)) {
        return None;
    }
    let why =
        format!("{} was requested at once, and the whole card has {}. No setting makes that fit.", size(c.q), size(capacity));
    Some((Verdict::TooLarge, why))
}

fn refused_beforehand(c: &mut Case<'_>) -> Told {
    if c.m.cause != Some(Cause::Rejected) {
        return None;
    }
    let f = &c.m.figures;
    let limit = f.limit.map_or(String::new(), |l| format!(" of {}", size(l)));
    let held = f.allocated.map_or(String::new(), |held| format!("; it has {} allocated", size(held)));
    let why =
        format!("PyTorch refused {} beforehand because this process may not exceed its memory fraction{limit}{held}.", size(c.q));
    Some((Verdict::Cap, why))
}

/// A share of the card that makes its holder worth naming before any arithmetic of holes.
const MUCH: u64 = 4;

/// The limit is used where the text breaks off behind it: what is reserved is at least what is allocated.
fn limit_of_a_cut_message(c: &mut Case<'_>) -> Told {
    let f = &c.m.figures;
    let limit = f.limit.filter(|_| !c.m.unread().is_empty())?;
    let is_below = f.capacity.is_none_or(|capacity| limit.bytes < capacity.bytes);
    if !is_below || f.free.is_some_and(|free| c.q.bytes > free.bytes) {
        return None;
    }
    let free = f.free.map_or(String::new(), |free| format!(" although the card has {} free", size(free)));
    let Some(held) = c.reserved else {
        c.doubt = Some("what PyTorch holds is in the part of the message that is missing");
        return Some((Verdict::Cap, format!("This process may hold {} and requested {} more{free}.", size(limit), size(c.q))));
    };
    if c.at_most(held.plus(c.q), limit) {
        c.doubt = Some("what PyTorch reserves beyond its tensors is in the part of the message that is missing");
    }
    let why =
        format!("This process may hold {}, has {} in tensors and requested {} more{free}.", size(limit), size(held), size(c.q));
    Some((Verdict::Cap, why))
}

/// Whoever holds most of the card is named, whatever else the text lacks.
fn others_of_a_cut_message(c: &mut Case<'_>) -> Told {
    if c.m.unread().is_empty() || c.m.unallocated().is_some() {
        return None;
    }
    let f = &c.m.figures;
    let (free, capacity) = (f.free?, f.capacity?);
    if c.q.bytes <= free.bytes {
        return None;
    }
    let rest = format!("{} was requested and {} is free", size(c.q), size(free));
    if let Some(own) = c.m.this_process()
        && let Some(nobody) = beside(c.m).filter(|rest| rest.bytes >= capacity.bytes / MUCH)
    {
        let why = format!("{}; this process has {}. {rest}.", nobodys(nobody, capacity), size(own));
        return Some((Verdict::Contention, why));
    }
    let is_told = c.m.this_process().is_some();
    let largest = largest_other(c.m).filter(|p| p.bytes.bytes >= capacity.bytes / MUCH)?;
    if !is_told {
        if c.m.processes.len() < 2 {
            return None;
        }
        c.doubt = Some("in a container this process may be one of those listed, under another number");
    }
    let others = c.m.other_processes().filter(|o| is_told && o.bytes > largest.bytes.bytes);
    let all = others.map_or(String::new(), |o| format!(", and the others together {}", size(o)));
    Some((Verdict::Contention, format!("{}{all}. {rest}.", holder(largest, capacity))))
}

fn largest_other(m: &OomMessage) -> Option<&ProcessUse> {
    m.processes.iter().filter(|p| !p.is_this && !p.bytes.is_unlimited()).max_by_key(|p| p.bytes.bytes)
}

/// `Process 77 holds 12.00 GiB of the card's 23.65 GiB`.
fn holder(p: &ProcessUse, capacity: Figure) -> String {
    let who = p.pid.map_or("Another process".to_owned(), |pid| format!("Process {pid}"));
    format!("{who} holds {} of the card's {}", size(p.bytes), size(capacity))
}

fn nobodys(bytes: Figure, capacity: Figure) -> String {
    let (bytes, capacity) = (pytorch_size(bytes.bytes), size(capacity));
    format!("{bytes} of the card's {capacity} belongs to no listed process: one of another container or user, or one that died")
}

/// Figures that the form always has and that the text lacks are not 0: only what does not rest on them is said.
fn not_all_read(c: &mut Case<'_>) -> Told {
    let unread = c.m.unread();
    if unread.is_empty() {
        return None;
    }
    let f = &c.m.figures;
    if unread.len() == ALL_FIGURES {
        let why = format!("{} was requested. The text has no other figure of the message, so the reason is unknown.", size(c.q));
        return Some((Verdict::Unknown, why));
    }
    let has_holes = c.m.unallocated().is_some();
    if let (Some(live), Some(capacity), true) = (c.m.live(), f.capacity, has_holes)
        && !c.at_most(c.q.plus(live), capacity)
    {
        let why =
            format!("Live tensors take {} of the card's {}, and {} more was requested.", size(live), size(capacity), size(c.q));
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
    let free = f.free.map_or(String::new(), |free| format!(" and {} is free", size(free)));
    let used = match (f.capacity, f.free, c.m.this_process()) {
        (Some(capacity), ..) if let Some(held) = f.allocated => {
            format!("PyTorch has {} of the card's {} in tensors; ", size(held), size(capacity))
        }
        _ if f.allocated.is_some() => String::new(),
        (Some(capacity), _, Some(own)) => {
            format!("this process has {} of the card's {}, PyTorch's share of it unknown; ", size(own), size(capacity))
        }
        (Some(capacity), Some(free), None) => {
            format!("{} of the card is in use, owner unknown; ", pytorch_size(capacity.minus(free).bytes))
        }
        _ => String::new(),
    };
    let list = listed(&unread);
    let why = format!("{} was requested{free}; {used}the text lacks {list}, so the reason is unknown.", size(c.q));
    Some((Verdict::Unknown, why))
}

/// `a, b and c`.
pub(super) fn listed(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

fn holes_under_the_limit(c: &mut Case<'_>) -> Told {
    if !c.limit_refused() || c.q.bytes > c.holes.bytes {
        return None;
    }
    c.at_most(c.q, c.holes);
    let (limit, left) = (c.m.figures.limit?, c.left?);
    let why = format!("{}. Its limit of {} leaves {}.", scattered(c), size(limit), size(left));
    Some((Verdict::Fragmentation, why))
}

fn limit(c: &mut Case<'_>) -> Told {
    if !c.limit_refused() {
        return None;
    }
    let (limit, left, reserved) = (c.m.figures.limit?, c.left?, c.reserved?);
    if c.holes.high() >= c.least_tensor() {
        c.doubt =
            Some("the tensor may be smaller than the segment that was requested, and then the holes together would have held it");
    }
    let free = c.m.figures.free.map_or(String::new(), |free| format!(" although the card has {} free", size(free)));
    let with_holes = if c.holes.bytes > 0 && c.q.bytes <= left.plus(c.holes).bytes {
        format!(
            " Together with the {} in holes{} it would be enough, but a hole cannot be joined with memory that PyTorch has not reserved yet.",
            size(c.holes),
            share(c.holes, reserved)
        )
    } else {
        String::new()
    };
    let why = format!(
        "This process may hold {}, holds {} and requested {} more{free}.{with_holes}",
        size(limit),
        size(reserved),
        size(c.q)
    );
    Some((Verdict::Cap, why))
}

/// `, 3.8 % of what it holds`.
fn share(holes: Figure, reserved: Figure) -> String {
    format!(", {:.1} % of what it holds,", holes.bytes as f64 * 100.0 / reserved.bytes.max(1) as f64)
}

fn free_is_not_told(c: &mut Case<'_>) -> Told {
    if c.m.figures.free.is_some() {
        return None;
    }
    if let (Some(capacity), Some(reserved)) = (c.m.figures.capacity, c.reserved)
        && !c.at_most(c.q.plus(reserved), capacity)
    {
        if c.holes.bytes > 0 && c.q.plus(reserved.minus(c.holes)).bytes <= capacity.bytes {
            c.doubt = Some("how much is free is unknown: with the holes it may have been enough");
        }
        let why = format!("PyTorch holds {} of {} and requested {} more.", size(reserved), size(capacity), size(c.q));
        return Some((Verdict::Capacity, why));
    }
    c.doubt = None;
    Some((Verdict::Unknown, format!("{} was requested; the message does not say how much was free.", size(c.q))))
}

fn something_else_refused(c: &mut Case<'_>) -> Told {
    let free = c.m.figures.free?;
    c.at_most(c.q, free).then(|| {
        let outside = match beside(c.m) {
            Some(rest) if rest.bytes > USUAL_OUTSIDE => format!(" {} of the card is held outside PyTorch.", pytorch_size(rest.bytes)),
            _ => String::new(),
        };
        let why = format!(
            "{} was requested and {} is free on the card, so something else refused it: another process that gave memory back since, or a limit of the system, container or driver.{outside}",
            size(c.q),
            size(free)
        );
        (Verdict::Unknown, why)
    })
}

/// What of the card is neither free nor PyTorch's nor of a listed process.
fn beside(m: &OomMessage) -> Option<Figure> {
    super::unattributed(m)
}

/// True where free blocks of private pools (graphs', MemPools') are much of the card: no other request may use them.
pub(super) fn pools_hold_it(m: &OomMessage) -> bool {
    let f = &m.figures;
    let (Some(pools), Some(q), Some(capacity)) = (f.private_pools, f.requested, f.capacity) else { return false };
    let is_short = f.free.is_none_or(|free| q.bytes > free.bytes);
    is_short && q.bytes <= pools.bytes && pools.bytes >= capacity.bytes / MUCH
}

fn private_pools(c: &mut Case<'_>) -> Told {
    let (pools, live) = (c.m.figures.private_pools?, c.m.live()?);
    pools_hold_it(c.m).then(|| {
        let why = format!(
            "{} was requested. {} lies free in private pools (CUDA graphs, MemPool), where only they may use it; live tensors take {}.",
            size(c.q),
            size(pools),
            size(live)
        );
        (Verdict::Fragmentation, why)
    })
}

/// Who holds much of the card outweighs holes that would be just enough in sum.
fn others_fill_the_card(c: &mut Case<'_>) -> Told {
    let f = &c.m.figures;
    let (free, capacity, own) = (f.free?, f.capacity?, c.m.this_process()?);
    let listed = c.m.other_processes().unwrap_or(Figure::exact(0));
    let nobody = beside(c.m).unwrap_or(Figure::exact(0));
    let others = if listed.bytes >= nobody.bytes { listed } else { nobody };
    // A handful of holes more or less does not matter beside it.
    let is_much = others.bytes >= capacity.bytes / MUCH && others.bytes / 2 >= c.holes.bytes;
    if !is_much || c.holes.bytes == 0 || c.left.is_some_and(|left| c.q.bytes > left.bytes) || !c.at_most(c.q, free.plus(others)) {
        return None;
    }
    let who = match largest_other(c.m).filter(|_| listed.bytes >= nobody.bytes) {
        Some(p) if p.bytes.bytes < listed.bytes => format!(
            "Other processes hold {} of the card's {} ({} with {} the most)",
            size(listed),
            size(capacity),
            p.pid.map_or("one".to_owned(), |pid| format!("pid {pid}")),
            size(p.bytes)
        ),
        Some(p) => holder(p, capacity),
        None => nobodys(nobody, capacity),
    };
    let outside = c.m.outside_pytorch().filter(|o| o.bytes > GIBIBYTE);
    let outside = outside.map_or(String::new(), |o| format!(", {} of that outside PyTorch", size(o)));
    let why = format!(
        "{who}; this process has {}{outside}. {} was requested and {} is free on the card.",
        size(own),
        size(c.q),
        size(free)
    );
    Some((Verdict::Contention, why))
}

fn holes_of_a_full_card(c: &mut Case<'_>) -> Told {
    let free = c.m.figures.free?;
    if c.holes.bytes == 0 || !c.at_most(c.q, c.own(free)) {
        return None;
    }
    if c.doubt.is_none() && c.holes.low() < c.q.high() {
        // Only what is free in the pool and on the stream of the request can be joined with what the card has.
        c.doubt = Some("which of these holes the request's pool and stream may use is unknown");
    }
    let little = match c.reserved {
        Some(r) if (c.holes.bytes as f64) < r.bytes as f64 * FEW_HOLES => {
            let share = c.holes.bytes as f64 * 100.0 / r.bytes.max(1) as f64;
            format!(" But that is only {share:.1} % of what PyTorch holds: the card is nearly full as well.")
        }
        _ => String::new(),
    };
    let outside = match beside(c.m) {
        Some(rest) if rest.bytes > USUAL_OUTSIDE && c.m.this_process().is_none() => {
            format!(
                " {} of the card is held outside PyTorch, by other processes or this one's libraries.",
                pytorch_size(rest.bytes)
            )
        }
        _ => String::new(),
    };
    let why = if c.q.bytes <= c.holes.bytes {
        format!("{}; the card has {} free.{little}{outside}", scattered(c), size(free))
    } else {
        format!("{}. Together with the {} free on the card it would be enough.{little}{outside}", scattered(c), size(free))
    };
    Some((Verdict::Fragmentation, why))
}

/// `PyTorch has 2.30 GiB free inside its own memory, but scattered; no single gap fits 1.70 GiB`.
fn scattered(c: &Case<'_>) -> String {
    format!("PyTorch has {} free inside its own memory, but scattered; no single gap fits {}", size(c.holes), size(c.q))
}

fn other_processes(c: &mut Case<'_>) -> Told {
    let (free, capacity) = (c.m.figures.free?, c.m.figures.capacity?);
    let others = c.m.other_processes().filter(|o| o.bytes > 0)?;
    let own = c.own(free);
    c.at_most(c.q, own.plus(others)).then(|| {
        let why = format!(
            "{} was requested and {} is free, while other processes hold {} of the card's {}. Without them it would fit.",
            size(c.q),
            size(own),
            size(others),
            size(capacity)
        );
        (Verdict::Contention, why)
    })
}

fn this_one_outside(c: &mut Case<'_>) -> Told {
    let free = c.m.figures.free?;
    let outside = c.m.this_process()?.minus(c.reserved?);
    if outside.bytes <= USUAL_OUTSIDE {
        return None;
    }
    let to_win = Figure { bytes: outside.bytes - LEAST_OUTSIDE, slack: outside.slack };
    let own = c.own(free);
    c.at_most(c.q, own.plus(to_win)).then(|| {
        let why = format!(
            "This process holds {} outside PyTorch's allocator, more than CUDA and its libraries usually need. The requested {} would fit into the difference.",
            size(outside),
            size(c.q)
        );
        (Verdict::NonPytorch, why)
    })
}

fn nobody_s(c: &mut Case<'_>) -> Told {
    let (free, capacity) = (c.m.figures.free?, c.m.figures.capacity?);
    let own = c.own(free);
    let lacking = c.q.bytes.saturating_sub(own.bytes);
    if let Some(this) = c.m.this_process() {
        let others = c.m.other_processes().map_or(0, |o| o.bytes);
        let rest = capacity.minus(free.plus(this)).bytes.saturating_sub(others);
        let why = format!(
            "{} of the card belongs to no listed process: one of another container or user, or one that died and was not cleaned up. Without it the requested {} would fit.",
            pytorch_size(rest),
            size(c.q)
        );
        return (rest > USUAL_OUTSIDE && lacking <= rest).then_some((Verdict::Contention, why));
    }
    let held = c.reserved?;
    let rest = capacity.minus(free.plus(held)).bytes;
    // The driver's pool keeps what tensors gave back, and its message has no figure of that: it may be all of the rest.
    let is_pool = c.m.dialect.writer == Writer::CudaMallocAsync;
    if rest <= USUAL_OUTSIDE || lacking > rest.saturating_sub(LEAST_OUTSIDE) {
        return None;
    }
    c.doubt = None;
    let why = if is_pool {
        format!(
            "{} was requested and {} is free; {} of the card is neither free nor in tensors, and the message does not say whose: freed \
             memory that the driver's pool keeps, other processes, or this one's context and libraries.",
            size(c.q),
            size(own),
            pytorch_size(rest)
        )
    } else {
        format!(
            "{} was requested and {} is free. {} of the card is held outside PyTorch, by other processes or by libraries of this one: the message does not say which.",
            size(c.q),
            size(own),
            pytorch_size(rest)
        )
    };
    Some((Verdict::Unknown, why))
}

fn beyond(c: &mut Case<'_>) -> Told {
    nobody_s(c).or_else(|| full(c))
}

fn full(c: &mut Case<'_>) -> Told {
    let m = c.m;
    let free = m.figures.free?;
    let own = c.own(free);
    let capacity = m.figures.capacity?;
    if c.left.is_some_and(|left| left.bytes < free.bytes) {
        let why = format!(
            "{} was requested; {} is free on the card, and {} in holes of what this process holds.",
            size(c.q),
            size(free),
            size(c.holes)
        );
        return Some((Verdict::Capacity, why));
    }
    let Some(live) = m.live().or(c.reserved).map(size) else {
        c.doubt = None;
        let why = format!("{} was requested and {} is free. Who holds the rest is unknown.", size(c.q), size(own));
        return Some((Verdict::Unknown, why));
    };
    if let Some(outside) = outside_that_decides(m) {
        let whose = if m.this_process().is_some() {
            "are this process's own outside PyTorch, its context and libraries"
        } else {
            "are outside PyTorch, in other processes or in this one's context and libraries"
        };
        let why = format!(
            "{} was requested and only {} is left, holes included. Live tensors take {live} of {}, and {} {whose}; without them it would fit.",
            size(c.q),
            size(own),
            size(capacity),
            size(outside)
        );
        return Some((Verdict::Capacity, why));
    }
    let left = if m.dialect.writer == Writer::CudaMallocAsync {
        "is free, and an unknown part of what the driver's pool keeps"
    } else {
        "are left in sum, holes included"
    };
    let why = format!(
        "Live tensors fill the card: {live} of {} is in use, {} was requested, and only {} {left}.",
        size(capacity),
        size(c.q),
        size(own)
    );
    Some((Verdict::Capacity, why))
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
