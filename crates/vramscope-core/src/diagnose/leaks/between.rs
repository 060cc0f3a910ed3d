//! Allocations made after one instant that are live at another.

use rustc_hash::FxHashMap;

use crate::model::{DeviceRecording, StackId};
use crate::tables::{DeviceTables, LifetimeId, NO_EVENT};

/// Allocations of one call stack that survive between two instants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivors {
    /// The stack of its allocations; [`StackId::NONE`] collects those without one.
    pub stack: StackId,
    /// Requested bytes allocated after A and live at B.
    pub bytes: u64,
    /// Number of these allocations.
    pub count: u64,
    /// The event that allocated the oldest of them.
    pub oldest: u32,
    /// Up to 100 of these allocations, oldest first.
    pub examples: Vec<LifetimeId>,
}

/// The allocations made after event `a` that are live after event `b`, by stack, most bytes first. O(live at `b`).
pub fn between(device: &DeviceRecording, tables: &DeviceTables, a: u32, b: u32) -> Vec<Survivors> {
    let lifetimes = &tables.lifetimes;
    let mut by_stack: FxHashMap<StackId, Survivors> = FxHashMap::default();
    for id in tables.states.live_at(lifetimes, b) {
        let born = lifetimes.born(id);
        if born == NO_EVENT || born <= a {
            continue;
        }
        let stack = lifetimes.stack(device, id);
        let entry = by_stack.entry(stack).or_insert(Survivors { stack, bytes: 0, count: 0, oldest: born, examples: Vec::new() });
        entry.bytes += lifetimes.requested(device, id);
        entry.count += 1;
        entry.oldest = entry.oldest.min(born);
        if entry.examples.len() < 100 {
            entry.examples.push(id);
        }
    }
    let mut found: Vec<Survivors> = by_stack.into_values().collect();
    found.sort_by_key(|s| (std::cmp::Reverse(s.bytes), s.stack));
    found
}
