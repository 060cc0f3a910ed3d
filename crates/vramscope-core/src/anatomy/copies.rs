//! Blocks that grow by being copied into a larger block, as with `torch.cat`.

use crate::model::{Action, DeviceRecording};
use crate::tables::{DeviceTables, LifetimeId};

/// Fewer copies than this do not count as a pattern.
pub(super) const LEAST_COPIES: usize = 8;
/// A new block replaces one that is freed within this many events.
const SOON: u32 = 8;

/// True if some of these blocks grow by copies repeatedly: a cache that persists across calls.
pub(super) fn grows(device: &DeviceRecording, tables: &DeviceTables, ids: impl Iterator<Item = LifetimeId>) -> bool {
    ids.filter(|&id| copied_from(device, tables, id).is_some()).take(LEAST_COPIES).count() == LEAST_COPIES
}

/// The block that this one replaced: freed within a few events of this one's birth, smaller, and at least half as large.
pub(super) fn copied_from(device: &DeviceRecording, tables: &DeviceTables, id: LifetimeId) -> Option<LifetimeId> {
    let size_of = |id| tables.lifetimes.requested(device, id);
    let (born, size) = (tables.lifetimes.born(id), size_of(id));
    let end = born.saturating_add(1 + SOON).min(device.events.len() as u32);
    let freed = (born + 1..end).filter(|&e| device.events.action[e as usize] == Action::FreeRequested);
    freed.map(|e| tables.lifetimes.of_event(e)).find(|&old| {
        let bytes = if old.is_some() && old != id { size_of(old) } else { 0 };
        bytes < size && bytes.saturating_mul(2) >= size
    })
}
