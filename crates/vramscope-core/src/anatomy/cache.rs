//! Caches of the user's own that grow by copies, where no library's name tells.

use rustc_hash::FxHashMap;

use super::frame::NAMED_CACHE;
use super::role::{Because, Role};
use crate::anatomy::assign::{Case, Decided};
use crate::model::{Action, DeviceRecording, StackId};
use crate::tables::{DeviceTables, LifetimeId};

/// Fewer copies than this are no habit.
const LEAST_COPIES: usize = 8;
/// A block takes the place of one that is freed within so many events.
const SOON: u32 = 8;

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

/// True where some of these grow by copies as a habit: a cache that is used from one call to the next.
pub(super) fn grows(device: &DeviceRecording, tables: &DeviceTables, ids: impl Iterator<Item = LifetimeId>) -> bool {
    ids.filter(|&id| copied_from(device, tables, id).is_some()).take(LEAST_COPIES).count() == LEAST_COPIES
}

/// The block that another took the place of: freed within a few events of its birth, smaller, and at least half as large.
fn copied_from(device: &DeviceRecording, tables: &DeviceTables, id: LifetimeId) -> Option<LifetimeId> {
    let size_of = |id| tables.lifetimes.requested(device, id);
    let (born, size) = (tables.lifetimes.born(id), size_of(id));
    let end = born.saturating_add(1 + SOON).min(device.events.len() as u32);
    let freed = (born + 1..end).filter(|&e| device.events.action[e as usize] == Action::FreeRequested);
    freed.map(|e| tables.lifetimes.of_event(e)).find(|&old| {
        let bytes = if old.is_some() && old != id { size_of(old) } else { 0 };
        bytes < size && bytes.saturating_mul(2) >= size
    })
}
