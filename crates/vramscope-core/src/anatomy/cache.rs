//! Blocks that grow by copies: caches of the user's own code, and results that are joined with those before.

use rustc_hash::{FxHashMap, FxHashSet};

use super::case::{Case, Decided};
use super::copies::{LEAST_COPIES, copied_from};
use super::frame::{CACHE, EVALUATES, NAMED_CACHE};
use super::role::{Because, Role};
use super::sense::{Part, Sense};
use crate::model::StackId;
use crate::tables::LifetimeId;
use crate::units::MEBIBYTE;

/// The least that a block is for two that grow alike to be keys and values: tokens that are joined are smaller.
const LEAST_TWIN: u64 = MEBIBYTE;

/// Blocks that take the place of smaller ones that were copied into them: key-value caches, and an evaluation's predictions that are joined with
/// those before. A cache is known by a function that is named after one, or, in a program without a backward pass, by two that grow alike: keys
/// and values. O(allocations).
pub(super) fn decide(case: &Case<'_>, of: &mut [Decided]) {
    let serves = !case.phases.has(Part::Backward);
    let mut made: FxHashMap<StackId, Vec<LifetimeId>> = FxHashMap::default();
    for id in (case.phases.first_row..case.rows()).map(LifetimeId) {
        let sense = case.sense(id);
        if sense.bits & NAMED_CACHE != 0 || (serves && sense.bits & CACHE == 0) || is_joined(sense) {
            made.entry(case.tables.lifetimes.stack(case.device, id)).or_default().push(id);
        }
    }
    // The first of each has nothing to be copied from, or something made elsewhere.
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

/// True for what an evaluation makes outside of its passes.
fn is_joined(sense: &Sense) -> bool {
    sense.part == Part::Unknown && sense.bits & EVALUATES != 0
}
