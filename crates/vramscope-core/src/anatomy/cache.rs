//! Recognises blocks that grow by copying: key-value caches in the user's own code, and results concatenated with earlier ones.

use rustc_hash::{FxHashMap, FxHashSet};

use super::case::{Case, Decided};
use super::copies::{LEAST_COPIES, copied_from};
use super::frame::{CACHE, EVALUATES, NAMED_CACHE};
use super::role::{Because, Role};
use super::sense::{Part, Sense};
use crate::model::StackId;
use crate::tables::LifetimeId;
use crate::units::MEBIBYTE;

/// Two blocks that grow alike count as keys and values only from this size on; concatenated token ids are smaller.
const LEAST_TWIN: u64 = MEBIBYTE;

/// Recognises blocks that replace smaller ones copied into them: key-value caches, and an evaluation's predictions appended to
/// earlier ones. A cache has a function named after one. In a program without a backward pass, two blocks that grow alike (keys
/// and values) also are one. O(allocations).
pub(super) fn decide(case: &Case<'_>, of: &mut [Decided]) {
    pairs_of_layers(case, of);
    let serves = !case.phases.has(Part::Backward);
    let mut made: FxHashMap<StackId, Vec<LifetimeId>> = FxHashMap::default();
    for id in (case.phases.first_row..case.rows()).map(LifetimeId) {
        let sense = case.sense(id);
        if sense.bits & NAMED_CACHE != 0 || (serves && sense.bits & CACHE == 0) || is_joined(sense) {
            made.entry(case.tables.lifetimes.stack(case.device, id)).or_default().push(id);
        }
    }
    // The first block of each chain was not copied from anything, or from something made elsewhere.
    let grows = |ids: &[LifetimeId], sources: &[LifetimeId]| sources.len() * 5 >= ids.len() * 4;
    let growing: Vec<(Vec<LifetimeId>, Vec<LifetimeId>)> = made
        .into_values()
        .filter(|ids| ids.len() >= LEAST_COPIES)
        .map(|ids| {
            let sources: Vec<LifetimeId> = ids.iter().filter_map(|&id| copied_from(case.device, case.tables, id)).collect();
            (ids, sources)
        })
        .filter(|(ids, sources)| grows(ids, sources))
        .collect();
    let is_chain = |ids: &[LifetimeId], sources: &[LifetimeId]| {
        let of_line: FxHashSet<LifetimeId> = ids.iter().copied().collect();
        grows(ids, &sources.iter().copied().filter(|id| of_line.contains(id)).collect::<Vec<_>>())
    };
    let most = |ids: &[LifetimeId]| ids.iter().map(|&id| case.size(id)).max().unwrap_or(0);
    let mut alike: FxHashMap<(usize, u64), u32> = FxHashMap::default();
    for (ids, _) in growing.iter().filter(|(ids, sources)| serves && is_chain(ids, sources)) {
        *alike.entry((ids.len(), most(ids))).or_default() += 1;
    }
    for (ids, sources) in growing {
        let Some(sense) = ids.first().map(|&id| case.sense(id)) else { continue };
        let largest = most(&ids);
        let has_twin = largest >= LEAST_TWIN && alike.get(&(ids.len(), largest)).is_some_and(|n| *n > 1);
        let decided = if sense.bits & NAMED_CACHE != 0 || (has_twin && !is_joined(sense)) {
            for id in sources {
                of[id.0 as usize] = (Role::KvCache, Because::CopiedIntoCache);
            }
            (Role::KvCache, Because::GrowsByCopy)
        } else if is_joined(sense) {
            (Role::Temporaries, Because::Joined)
        } else {
            continue;
        };
        for id in ids {
            of[id.0 as usize] = decided;
        }
    }
}

/// Recognises keys and values that a forward pass keeps for later tokens, as Transformers does unless `use_cache=False`. No
/// backward pass is recorded, and each layer keeps two blocks of one size made close together. When the pass makes its last
/// block, at least nine tenths of what it holds are such pairs. O(allocations).
fn pairs_of_layers(case: &Case<'_>, of: &mut [Decided]) {
    if case.phases.has(Part::Backward) {
        return;
    }
    for run in case.phases.runs.iter().filter(|run| run.part == Part::Forward) {
        let last = case.last_birth(run);
        let is_kept =
            |id: &LifetimeId| case.size(*id) >= LEAST_TWIN && case.gone(*id) > last && of[id.0 as usize].0 == Role::Unknown;
        let kept: Vec<LifetimeId> = run.ids().filter(is_kept).collect();
        let Some(&middle) = kept.get(kept.len() / 2) else { continue };
        let size = case.size(middle);
        let alike: Vec<LifetimeId> = kept.iter().copied().filter(|&id| case.size(id) == size).collect();
        let all: u64 = kept.iter().map(|&id| case.size(id)).sum();
        let is_most = |ids: &[LifetimeId]| (size * ids.len() as u64).saturating_mul(10) >= all.saturating_mul(9);
        // The input of the first layer and the output of the last may have the same size.
        let without_ends = (0..=1).flat_map(|first| (0..=2).map(move |last| (first, last)));
        let mut found = without_ends.filter_map(|(first, last)| alike.get(first..alike.len().checked_sub(last)?));
        if let Some(pairs) = found.find(|ids| is_most(ids) && are_pairs(case, ids)) {
            for id in pairs {
                of[id.0 as usize] = (Role::KvCache, Because::KeptInPairs);
            }
        }
    }
}

/// True if the blocks come in pairs, from at least four layers, and each pair is made at two places.
fn are_pairs(case: &Case<'_>, ids: &[LifetimeId]) -> bool {
    let (pairs, odd) = ids.as_chunks::<2>();
    let stack = |id: LifetimeId| case.tables.lifetimes.stack(case.device, id);
    let within: u32 = pairs.iter().map(|[key, value]| case.born(*value) - case.born(*key)).sum();
    let between: u32 = pairs.windows(2).map(|w| case.born(w[1][0]) - case.born(w[0][1])).sum();
    pairs.len() >= 4 && odd.is_empty() && pairs.iter().all(|[a, b]| stack(*a) != stack(*b)) && within * 2 < between
}

/// True for a block that an evaluation makes outside its passes.
fn is_joined(sense: &Sense) -> bool {
    sense.part == Part::Unknown && sense.bits & EVALUATES != 0
}
