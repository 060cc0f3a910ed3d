//! Memory that rises over steps and drops at once.

use rustc_hash::FxHashSet;

use super::{MARGIN, floors, freed_at, has_steps, step_of};
use crate::anatomy::steps::Steps;
use crate::model::{DeviceRecording, StackId};
use crate::tables::{DeviceTables, LifetimeId, NO_EVENT, Quantity};
use crate::units::MEBIBYTE;

/// Memory that repeatedly rises over several steps and drops at once: objects in reference cycles, freed by Python's collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SawTooth {
    /// For each tooth: the step in which it begins, the step in which it drops, and the bytes freed at once.
    pub teeth: Vec<(usize, usize, u64)>,
}

impl SawTooth {
    /// The most bytes that a drop frees.
    pub fn highest(&self) -> u64 {
        self.teeth.iter().map(|t| t.2).max().unwrap_or(0)
    }

    /// The mean bytes that a drop frees.
    pub fn mean(&self) -> u64 {
        self.teeth.iter().map(|t| t.2).sum::<u64>() / self.teeth.len().max(1) as u64
    }
}

/// Peaks below this are too small to matter.
const LEAST_PEAK: u64 = 64 * MEBIBYTE;

/// Finds a saw tooth in each step's lowest memory use. Its highest tooth is at least a quarter of the peak. O(steps + lifetimes).
pub fn saw_tooth(device: &DeviceRecording, tables: &DeviceTables, steps: &Steps) -> Option<SawTooth> {
    let peak = tables.curves.peak(Quantity::Requested).0;
    if !has_steps(steps) || peak < LEAST_PEAK {
        return None;
    }
    let mut teeth = teeth(&floors(device, tables, &steps.bounds), peak);
    if teeth.is_empty() {
        return None;
    }
    let dropped = dropped(device, tables, &steps.bounds, &teeth);
    for (tooth, bytes) in teeth.iter_mut().zip(dropped) {
        tooth.2 = tooth.2.max(bytes);
    }
    let saw = SawTooth { teeth };
    (saw.highest().saturating_mul(4) >= peak).then_some(saw)
}

/// For each of at least three teeth: the steps in which it begins and drops, and by how much the floor falls. A tooth rises for
/// three steps or more, then falls within a step by over a fifth of the range. Garbage collection is not synchronised with the
/// steps. A tooth that rises within one step is a replaced object, such as the next optimizer.
pub(super) fn teeth(floors: &[u64], peak: u64) -> Vec<(usize, usize, u64)> {
    const LEAST_TEETH: usize = 3;
    const LEAST_RISE: usize = 3;
    let last = floors.len().saturating_sub(1);
    let Some(steady) = floors.get(MARGIN..last) else { return Vec::new() };
    let (Some(&low), Some(&high)) = (steady.iter().min(), steady.iter().max()) else { return Vec::new() };
    let range = high - low;
    // A ripple on a high plateau is insignificant.
    if range.saturating_mul(20) < peak {
        return Vec::new();
    }
    // The last step counts if it falls like the others; a deeper fall means that the program is freeing everything.
    let end = if floors[last].saturating_add(range / 5) >= low { last + 1 } else { last };
    let steady = &floors[MARGIN..end];
    let mut teeth = Vec::new();
    let mut begin = 0;
    for i in 1..steady.len() {
        if steady[i] >= steady[i - 1] {
            continue;
        }
        let (rise, drop) = (steady[i - 1] - steady[begin], steady[i - 1] - steady[i]);
        let jump = steady[begin..i].windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        let is_gradual = i - 1 - begin >= LEAST_RISE && jump.saturating_mul(4) <= rise.saturating_mul(3);
        if is_gradual && rise.saturating_mul(5) > range && drop.saturating_mul(5) > range {
            teeth.push((begin + MARGIN, i + MARGIN, drop));
        }
        begin = i;
    }
    if teeth.len() >= LEAST_TEETH { teeth } else { Vec::new() }
}

/// The bytes freed in the step of each drop that had outlived a step, plus the newest blocks of the same stacks. The floors do
/// not show the newest ones, which live between two of them.
fn dropped(device: &DeviceRecording, tables: &DeviceTables, bounds: &[u32], teeth: &[(usize, usize, u64)]) -> Vec<u64> {
    let lifetimes = &tables.lifetimes;
    let mut bytes = vec![0; teeth.len()];
    let mut stacks: FxHashSet<(usize, StackId)> = FxHashSet::default();
    for is_young in [false, true] {
        for i in 0..lifetimes.len() as u32 {
            let id = LifetimeId(i);
            let freed = freed_at(tables, id);
            if freed == NO_EVENT {
                continue;
            }
            let Some(step) = step_of(bounds, freed) else { continue };
            let Ok(tooth) = teeth.binary_search_by_key(&step, |t| t.1) else { continue };
            let lived = step_of(bounds, lifetimes.born(id)).is_some_and(|born| born + 1 >= step);
            let key = (tooth, lifetimes.stack(device, id));
            if lived != is_young || (is_young && !(key.1.is_some() && stacks.contains(&key))) {
                continue;
            }
            stacks.insert(key);
            bytes[tooth] += lifetimes.requested(device, id);
        }
    }
    bytes
}
