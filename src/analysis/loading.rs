//! Where a recording only loads a model: layer after layer, each with temporaries that go at once. That is no training step,
//! however evenly it comes, and what stays of it is no leak.

use super::{DeviceTables, LifetimeId, NO_EVENT};
use crate::model::{DeviceRecording, StackId, StackTable};

/// Of what a program allocates while it loads, at least one in so many stays.
const LEAST_KEPT: u64 = 4;

/// Temporaries take at most so many times the bytes that stay: read in four bytes a parameter, kept in half a byte.
const MOST_TEMPORARY: u64 = 8;

/// Frames of a model at work: who computes no longer loads.
const WORK: [&str; 12] = [
    "forward",
    "_call_impl",
    "_wrapped_call_impl",
    "backward",
    "_engine_run_backward",
    "zero_grad",
    "training_step",
    "train_step",
    "train_one_epoch",
    "generate",
    "cross_entropy",
    "_optimizer_step",
];

/// What one phase of a program allocates: a stretch whose call stacks occur nowhere else.
#[derive(Default)]
struct Phase {
    allocations: u64,
    kept: u64,
    kept_bytes: u64,
    temporary_bytes: u64,
    is_work: bool,
}

impl Phase {
    fn loads(&self) -> bool {
        !self.is_work
            && self.kept * LEAST_KEPT >= self.allocations
            && self.temporary_bytes <= self.kept_bytes.saturating_mul(MOST_TEMPORARY)
    }
}

/// The event before which a recording only loads a model; 0 where it does not begin so. Loading is what comes first, from call
/// stacks that never allocate again, without a frame of a model at work, and mostly stays. O(lifetimes).
pub(super) fn loaded_until(stacks: &StackTable, device: &DeviceRecording, tables: &DeviceTables) -> u32 {
    let lifetimes = &tables.lifetimes;
    let (first, count) = (lifetimes.initial_count() as u32, lifetimes.len() as u32);
    let events = device.events.len() as u32;
    // The last allocation of each stack; the place after the last stack is for those that have none.
    let mut last = vec![0u32; stacks.len() + 1];
    let place = |stack: StackId| (stack.0 as usize).min(stacks.len());
    for i in first..count {
        last[place(lifetimes.stack(device, LifetimeId(i)))] = i;
    }
    let before: u64 = (0..first).map(|i| lifetimes.block_size(LifetimeId(i))).sum();
    let mut works: Vec<Option<bool>> = vec![None; stacks.len() + 1];
    let mut is_work = |stack: StackId| {
        *works[place(stack)].get_or_insert_with(|| {
            let frames = stacks.frames(stack).iter().filter_map(|&f| stacks.frame(f));
            frames.into_iter().any(|f| WORK.contains(&stacks.text(f.name)))
        })
    };
    let (mut loaded, mut kept_bytes, mut begin) = (0, 0u64, first);
    while begin < count {
        let mut phase = Phase::default();
        let (mut at, mut end) = (begin, begin);
        while at <= end {
            let id = LifetimeId(at);
            let stack = lifetimes.stack(device, id);
            end = end.max(last[place(stack)]);
            phase.is_work |= is_work(stack);
            if phase.is_work {
                break;
            }
            let (born, gone) = (lifetimes.born(id), lifetimes.gone(id));
            phase.allocations += 1;
            // A model may be dropped before the recording ends; it has then lived for most of it.
            if gone == NO_EVENT || u64::from(gone - born) * 2 >= u64::from(events - born) {
                phase.kept += 1;
                phase.kept_bytes += lifetimes.block_size(id);
            } else {
                phase.temporary_bytes += lifetimes.block_size(id);
            }
            at += 1;
        }
        // A few temporaries before anything is loaded, as a test of the device makes, are no work yet.
        let is_prelude = !phase.is_work && phase.kept == 0 && phase.allocations <= LEAST_KEPT;
        if !phase.loads() && !is_prelude {
            break;
        }
        if phase.kept > 0 {
            kept_bytes += phase.kept_bytes;
            loaded = if at < count { lifetimes.born(LifetimeId(at)) } else { events };
        }
        begin = at;
    }
    // Where most was there before, the program had been at work for long.
    if kept_bytes < before { 0 } else { loaded }
}
