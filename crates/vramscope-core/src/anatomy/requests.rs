//! Finds steps from repeating requests, when no model call, backward pass or optimizer shows them.

use rustc_hash::FxHashMap;

use super::frame::PYTHON;
use super::period::periods;
use super::phases::Phases;
use crate::anatomy::steps::{StepSource, Steps};
use crate::model::DeviceRecording;
use crate::tables::{DeviceTables, LifetimeId, NO_EVENT, Quantity};

/// The shortest period in requests, used with stacks. Stacks distinguish lines; sizes alone cannot distinguish a step from a layer.
const SHORTEST: usize = 3;
const SHORTEST_OF_SIZES: usize = 32;
/// A period with fewer requests than this, most of which stay, is a model being loaded layer by layer.
const REQUESTS_OF_A_LAYER: usize = 40;
/// The number of weights of one size, counted from this size on, shows how many layers were loaded.
const LEAST_WEIGHT: u64 = 1 << 16;
const SHARE_THAT_STAYS: usize = 4;
/// Less than 1/n of what a round makes outlives the next round.
const LEAST_KEPT: u64 = 5;
/// Loading allocates at most this many times the bytes that it keeps: four bytes per weight to keep half a byte.
const MOST_TEMPORARY: u64 = 8;

/// Finds steps when stacks do not show them: requests that repeat in the same order, compared by stack or, without stacks, by size.
pub(super) fn by_period(device: &DeviceRecording, tables: &DeviceTables, phases: &Phases) -> Steps {
    let lifetimes = &tables.lifetimes;
    // A trace without Python or backward frames names only forward operators, the same in each layer. Sizes say more then.
    let is_trace = device.events.sizes_are_blocks && !phases.bits.is_empty();
    let is_of_forward = is_trace && phases.has_stacks && phases.bits.iter().all(|bits| bits & PYTHON == 0);
    let id = |at: usize| LifetimeId(phases.first_row + at as u32);
    let count = lifetimes.len() - phases.first_row as usize;
    let kind = |id| match phases.has_stacks {
        _ if is_of_forward => lifetimes.requested(device, id) << 32 | u64::from(lifetimes.stack(device, id).0),
        true => u64::from(lifetimes.stack(device, id).0),
        false => lifetimes.requested(device, id),
    };
    let kinds: Vec<u64> = (0..count).map(|at| kind(id(at))).collect();
    let starts = periods(&kinds, if phases.has_stacks { SHORTEST } else { SHORTEST_OF_SIZES });
    let (Some(&from), Some(&to)) = (starts.first(), starts.last()) else { return Steps::default() };
    // A shorter period is a layer. Layers keep their blocks until the pass ends; a round frees those of the round before.
    let is_layer = || {
        let lag = starts[1..].windows(2).map(|w| w[1] - w[0]).min().unwrap_or(0);
        let made = |rounds: &[usize]| (rounds[0]..rounds[1]).map(id).map(|id| (id, lifetimes.requested(device, id)));
        let end = |at: usize| if at < count { lifetimes.born(id(at)) } else { device.events.len() as u32 };
        let all: u64 = starts.windows(3).flat_map(made).map(|(_, bytes)| bytes).sum();
        let kept = |w: &[usize]| made(w).filter(|(id, _)| lifetimes.gone(*id) > end(w[2])).map(|(_, bytes)| bytes).sum::<u64>();
        lag < SHORTEST_OF_SIZES || starts.windows(3).map(kept).sum::<u64>().saturating_mul(LEAST_KEPT) > all
    };
    if is_of_forward && is_layer() {
        return Steps::default();
    }
    let bytes = |at: &usize| lifetimes.requested(device, id(*at));
    let (stays, goes): (Vec<usize>, Vec<usize>) = (from..to).partition(|&at| lifetimes.gone(id(at)) == NO_EVENT);
    let sum = |rows: &[usize]| rows.iter().map(bytes).sum::<u64>();
    let is_mostly_kept = stays.len() * SHARE_THAT_STAYS >= to - from && sum(&goes) <= sum(&stays).saturating_mul(MOST_TEMPORARY);
    if starts[1] - from <= REQUESTS_OF_A_LAYER && is_mostly_kept {
        return Steps::default();
    }
    // In a pass that was cut short, sizes cannot distinguish layers from calls that keep as much, and no steps are better than
    // wrong ones. Layers with checkpointing keep little, but there are no more of them than the loaded model has.
    let is_cut_short = !phases.has_stacks && device.events.failure_at_end().is_some();
    let layers = || {
        let mut weights: FxHashMap<u64, usize> = FxHashMap::default();
        kinds[..from].iter().filter(|&&size| size >= LEAST_WEIGHT).for_each(|&size| *weights.entry(size).or_default() += 1);
        weights.into_values().max().unwrap_or(0)
    };
    if is_cut_short && (is_part_of_a_pass(device, tables, (from..to).map(id)) || starts.len() <= layers() + 1) {
        return Steps::default();
    }
    let starts = if is_of_forward { from_least_use(device, tables, &starts, id) } else { starts };
    let events = device.events.len() as u32;
    let bounds = starts.into_iter().map(|at| if at < count { lifetimes.born(id(at)) } else { events }).collect();
    Steps::of_bounds(bounds, StepSource::Period)
}

/// Shifts the rounds to begin where the least memory is in use: repetition shows how long a round is, but not where it begins.
fn from_least_use(
    device: &DeviceRecording,
    tables: &DeviceTables,
    starts: &[usize],
    id: impl Fn(usize) -> LifetimeId,
) -> Vec<usize> {
    let [.., before, last] = *starts else { return starts.to_vec() };
    let (lag, first) = (last - before, starts[0]);
    let in_use = |at: usize| {
        let event = tables.lifetimes.born(id(at)).saturating_sub(1);
        tables.curves.at(device, &tables.lifetimes, Quantity::Active, event)
    };
    let least = |by: &usize| starts[..starts.len() - 1].iter().map(|start| in_use(start + by)).sum::<u64>();
    let by = (0..lag).min_by_key(least).unwrap_or(0);
    if by == 0 {
        return starts.to_vec();
    }
    // Blocks before the first start may be the beginning of its round.
    let by = if first + by >= lag { by as isize - lag as isize } else { by as isize };
    let end = tables.lifetimes.len() - tables.lifetimes.initial_count();
    let shifted = starts.iter().map(|start| start.saturating_add_signed(by)).chain([last.saturating_add_signed(by) + lag]);
    shifted.filter(|&at| at <= end).collect()
}

/// True if the recording ends in a failure and most of these repeating blocks are still held: they are parts of one pass that was
/// cut short. Blocks freed by an error handler were still held when the request failed.
pub(super) fn is_part_of_a_pass(device: &DeviceRecording, tables: &DeviceTables, ids: impl Iterator<Item = LifetimeId>) -> bool {
    let Some(failure) = device.events.failure_at_end() else { return false };
    let (mut kept, mut freed) = (0, 0);
    for id in ids {
        *(if tables.lifetimes.gone(id) > failure { &mut kept } else { &mut freed }) += tables.lifetimes.requested(device, id);
    }
    kept > 0 && kept >= freed
}
