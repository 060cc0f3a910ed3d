//! Caches of the user's own code that grow by copies, which no library's name identifies.

use rustc_hash::FxHashMap;

use super::case::{Case, Decided};
use super::copies::{LEAST_COPIES, copied_from};
use super::frame::NAMED_CACHE;
use super::role::{Because, Role};
use crate::model::StackId;
use crate::tables::LifetimeId;

/// Key-value caches whose function is named after a cache and whose blocks take the place of smaller ones that were copied into them.
/// O(allocations of such functions).
pub(super) fn decide(case: &Case<'_>, of: &mut [Decided]) {
    let mut made: FxHashMap<StackId, Vec<LifetimeId>> = FxHashMap::default();
    for id in (case.phases.first_row..case.rows()).map(LifetimeId) {
        if case.sense(id).bits & NAMED_CACHE != 0 {
            made.entry(case.tables.lifetimes.stack(case.device, id)).or_default().push(id);
        }
    }
    for ids in made.into_values() {
        let sources: Vec<LifetimeId> = ids.iter().filter_map(|&id| copied_from(case.device, case.tables, id)).collect();
        // The first of each has nothing to be copied from, or something made elsewhere.
        if ids.len() < LEAST_COPIES || sources.len() * 5 < ids.len() * 4 {
            continue;
        }
        for id in sources {
            of[id.0 as usize] = (Role::KvCache, Because::CopiedIntoCache);
        }
        for id in ids {
            of[id.0 as usize] = (Role::KvCache, Because::GrowsByCopy);
        }
    }
}
