//! Blocks that grow by copies: caches of the user's own code, and results that are joined with those before.

use rustc_hash::FxHashMap;

use super::case::{Case, Decided};
use super::copies::{LEAST_COPIES, copied_from};
use super::frame::{EVALUATES, NAMED_CACHE};
use super::role::{Because, Role};
use super::sense::Part;
use crate::model::StackId;
use crate::tables::LifetimeId;

/// Blocks that take the place of smaller ones that were copied into them: key-value caches where the function is named after a cache,
/// and an evaluation's predictions that are joined with those before. O(allocations of such code).
pub(super) fn decide(case: &Case<'_>, of: &mut [Decided]) {
    let mut made: FxHashMap<StackId, Vec<LifetimeId>> = FxHashMap::default();
    for id in (case.phases.first_row..case.rows()).map(LifetimeId) {
        let sense = case.sense(id);
        if sense.bits & NAMED_CACHE != 0 || (sense.part == Part::Unknown && sense.bits & EVALUATES != 0) {
            made.entry(case.tables.lifetimes.stack(case.device, id)).or_default().push(id);
        }
    }
    for ids in made.into_values() {
        let sources: Vec<LifetimeId> = ids.iter().filter_map(|&id| copied_from(case.device, case.tables, id)).collect();
        // The first of each has nothing to be copied from, or something made elsewhere.
        if ids.len() < LEAST_COPIES || sources.len() * 5 < ids.len() * 4 {
            continue;
        }
        let is_cache = ids.first().is_some_and(|&id| case.sense(id).bits & NAMED_CACHE != 0);
        if is_cache {
            for id in sources {
                of[id.0 as usize] = (Role::KvCache, Because::CopiedIntoCache);
            }
        }
        let decided = if is_cache { (Role::KvCache, Because::GrowsByCopy) } else { (Role::Temporaries, Because::Joined) };
        for id in ids {
            of[id.0 as usize] = decided;
        }
    }
}
