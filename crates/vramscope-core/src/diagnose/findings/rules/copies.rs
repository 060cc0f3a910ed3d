//! Buffers that grow by being copied, as with `torch.cat` in a loop.

use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

use super::at_peak::{peak, together};
use super::shared::{CONVOLVES, LINEAR};
use super::structure::NeverUsed;
use crate::diagnose::counterfactual::{Saving, peak_after};
use crate::diagnose::findings::{Class, Finding, Place, RuleInput};
use crate::model::{BlockState, FrameId, StackId};
use crate::tables::{LifetimeId, Quantity, own_frame};
use crate::units::{Bytes, MEBIBYTE, count};

/// Most distinct sizes tracked per line.
const MOST_SIZES: u64 = 10_000;

/// What one line of the program allocated over the recording.
#[derive(Default)]
pub(super) struct AllocatingLine {
    /// Its allocations, oldest first.
    ids: Vec<LifetimeId>,
    bytes: u64,
    /// Its distinct sizes, at most [`MOST_SIZES`].
    sizes: FxHashSet<u64>,
}

impl AllocatingLine {
    fn number(&self) -> u64 {
        self.ids.len() as u64
    }
}

/// The allocations of each line; `None` collects those without a line. O(lifetimes).
fn by_line(p: &RuleInput<'_>, is_one: impl Fn(LifetimeId) -> bool) -> FxHashMap<Option<FrameId>, AllocatingLine> {
    let lifetimes = &p.tables.lifetimes;
    let mut places: FxHashMap<Option<FrameId>, AllocatingLine> = FxHashMap::default();
    // Few stacks make many blocks, so cache the line of each stack.
    let mut lines: FxHashMap<StackId, Option<FrameId>> = FxHashMap::default();
    for id in lifetimes.recorded_ids().filter(|&id| is_one(id)) {
        let size = p.requested(id);
        let stack = lifetimes.stack(p.device, id);
        let line = *lines.entry(stack).or_insert_with(|| own_frame(&p.recording.stacks, stack));
        let place = places.entry(line).or_default();
        place.ids.push(id);
        place.bytes = place.bytes.saturating_add(size);
        if (place.sizes.len() as u64) < MOST_SIZES {
            place.sizes.insert(size);
        }
    }
    places
}

/// Lines that repeatedly make a buffer of at least 1 MiB, each time larger and while the previous one is live. O(lifetimes).
pub(super) fn grown(p: &RuleInput<'_>) -> Vec<AllocatingLine> {
    const FEWEST: u64 = 8;
    // A layer computes its result anew; if it grows with the input, it is not a copy.
    let is_computed = |id: LifetimeId| p.flags_of(id) & (LINEAR | CONVOLVES) != 0;
    let mut places = by_line(p, |id| p.requested(id) >= MEBIBYTE && !is_computed(id));
    places.retain(|line, x| {
        let differs = x.sizes.len() as u64 * 5 >= x.number().min(MOST_SIZES) * 4;
        line.is_some() && x.number() >= FEWEST && differs && copied(p, &x.ids) * 5 >= x.number() * 4
    });
    places.into_values().collect()
}

/// Reports a place that allocates repeatedly in growing sizes: a buffer that is copied to grow.
pub(super) fn copies(p: &RuleInput<'_>) -> Option<Finding> {
    let with_one_each = left_behind(p);
    let is_one_a_line = with_one_each.is_some();
    let places = with_one_each.or_else(|| much_copied(p))?;
    let number: u64 = places.iter().map(AllocatingLine::number).sum();
    let bytes = places.iter().fold(0u64, |sum, x| sum.saturating_add(x.bytes));
    let top = places.iter().max_by_key(|x| (x.bytes, x.ids.first()))?;
    let ids: FxHashSet<LifetimeId> = places.iter().flat_map(|x| x.ids.iter().copied()).collect();
    let mut sorted: Vec<LifetimeId> = ids.iter().copied().collect();
    sorted.sort_unstable();
    let copied = copied(p, &sorted);
    let stack = top.ids.first().and_then(|&id| p.stack_of(id));
    let mut made_by: Vec<&str> = places.iter().filter_map(|x| Some(p.names.of_stack(p.stack_of(*x.ids.first()?)?))).collect();
    made_by.sort_unstable();
    // If the buffer were written in place, the new copy would not exist at the same time as the old one.
    let at_peak = p.at_peak.blocks.iter().filter(|b| b.state != BlockState::Inactive && ids.contains(&b.lifetime));
    let copy = at_peak.map(|b| b.size).max().unwrap_or(0);
    let unused = NeverUsed::of(p);
    let reserved = unused.as_ref().map_or(String::new(), |unused| format!(" {}.", unused.says()));
    let (class, at_stake) = match &unused {
        Some(unused) if unused.bytes() > copy => (Class::Structure, unused.bytes()),
        _ => (Class::Peak, copy),
    };
    // A buffer made once starts with its final size. If a line makes several, as for many layers, the final sizes are unknown.
    let saving = is_one_a_line.then(|| {
        let finals = places.iter().filter_map(|x| x.ids.iter().map(|&id| p.requested(id)).max());
        let last = finals.fold(0, u64::saturating_add);
        let others = peak_after(p.device, p.tables, |id, size| if ids.contains(&id) { 0 } else { size });
        Saving { before: peak(p), after: others.saturating_add(last) }
    });
    let gain = match saving {
        None => format!(" Allocate the buffer once and write into it; the peak then loses one copy, up to {}.", Bytes(copy)),
        Some(_) => String::new(),
    };
    let finding = Finding::new("grows_by_copy", class, "Buffer grows by copying", at_stake).says(format!(
        "{} allocated {} times in {} sizes, {} in all for a peak of {}: {} of these copy a slightly smaller block that is freed right after.{reserved}{gain}",
        together(&made_by),
        count(number),
        count(top.sizes.len() as u64),
        Bytes(bytes),
        Bytes(peak(p)),
        count(copied),
    ));
    let finding = match saving.filter(|saving| !saving.is_nothing()) {
        Some(saving) => finding.saves("Allocated once, with one block for all of it,", saving),
        None => finding,
    };
    finding
        .shows("allocations", count(number))
        .shows("grown by copy", count(copied))
        .shows("sizes", count(top.sizes.len() as u64))
        .bytes_of("allocated in all", bytes)
        .bytes_of("peak", peak(p))
        .at(Place { event: Some(p.peak_event), stack, ..Place::default() })
        .remedy("out[n : n + k] = new  # out = torch.empty(...) before the loop")
        .advice(
            "Make the buffer once at its final length and write each new part into it; for a KV cache Transformers does that with cache_implementation=\"static\". torch.cat holds the old and the new copy at once and leaves a hole of a new size behind each time.",
        )
        .check("The number of sizes falls to a few.")
}

/// The lines that make most of the allocated bytes, in many sizes, copy after copy.
fn much_copied(p: &RuleInput<'_>) -> Option<Vec<AllocatingLine>> {
    if p.tables.lifetimes.len() - p.tables.lifetimes.initial_count() < 500 {
        return None;
    }
    let mut places = by_line(p, |_| true);
    let all = places.values().fold(0u64, |sum, x| sum.saturating_add(x.bytes));
    let most = places.values().map(|x| (x.bytes, x.number())).max()?;
    // Keys and values grow alike, each on its own line.
    places.retain(|line, x| line.is_some() && x.number() == most.1 && (most.0 - x.bytes).saturating_mul(50) <= most.0);
    let places: Vec<AllocatingLine> = places.into_values().collect();
    let bytes = places.iter().fold(0u64, |sum, x| sum.saturating_add(x.bytes));
    let sizes = places.iter().map(|x| (x.bytes, x.sizes.len())).max()?.1;
    if bytes.saturating_mul(2) < all || sizes < 50 || bytes < p.tables.curves.peak(Quantity::Requested).0.saturating_mul(8) {
        return None;
    }
    let mut ids: Vec<LifetimeId> = places.iter().flat_map(|x| x.ids.iter().copied()).collect();
    ids.sort_unstable();
    (copied(p, &ids) * 5 >= ids.len() as u64 * 4).then_some(places)
}

/// The lines whose outdated copies left much reserved memory that was never used again.
pub(super) fn left_behind(p: &RuleInput<'_>) -> Option<Vec<AllocatingLine>> {
    let unused = NeverUsed::of(p)?;
    let places = grown(p);
    let bytes = places.iter().fold(0u64, |sum, x| sum.saturating_add(x.bytes));
    (bytes >= unused.bytes() / 2 && !places.is_empty()).then_some(places)
}

/// True for a buffer that a line repeatedly makes larger: its content must stay in one piece, even if it is computed in chunks.
pub(super) fn is_grown(p: &RuleInput<'_>) -> impl Fn(LifetimeId) -> bool + use<> {
    let ids: FxHashSet<LifetimeId> = grown(p).into_iter().flat_map(|x| x.ids).collect();
    move |id| ids.contains(&id)
}

/// Number of these allocations that are likely grown copies: the largest smaller live block of that place (at least half as
/// large) is freed before they are. Activations behave the opposite way: last made, first freed. O(n log n).
fn copied(p: &RuleInput<'_>, ids: &[LifetimeId]) -> u64 {
    let lifetimes = &p.tables.lifetimes;
    let size = |id: LifetimeId| p.requested(id);
    let freed = |id: LifetimeId| lifetimes.free_requested(id);
    let mut deaths: Vec<LifetimeId> = ids.to_vec();
    deaths.sort_by_key(|&id| freed(id));
    let mut deaths = deaths.into_iter().peekable();
    let mut live = BTreeSet::new();
    let mut copied = 0;
    for &id in ids {
        while let Some(gone) = deaths.next_if(|&d| freed(d) < lifetimes.born(id)) {
            live.remove(&(size(gone), gone));
        }
        let source = live.range(..(size(id), LifetimeId(0))).next_back();
        copied +=
            u64::from(source.is_some_and(|&(bytes, source)| bytes.saturating_mul(2) >= size(id) && freed(source) < freed(id)));
        live.insert((size(id), id));
    }
    copied
}
