//! Failed attempts whose memory is still held when the program tries again, because the exception keeps the failed call's frames.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Advice, Failure, Support};
use crate::anatomy::line_of;
use crate::anatomy::roles::{Role, Roles};
use crate::model::{Action, BlockState, DeviceRecording, FrameId, Recording, StackId};
use crate::tables::{DeviceTables, LifetimeId, NO_EVENT};
use crate::units::{Bytes, MEBIBYTE, count};

/// The line of code that releases a failed attempt.
pub(crate) const LET_GO: &str = "except torch.cuda.OutOfMemoryError: failed = True  # and try again behind the except block";
/// What keeps the memory, and what to do.
pub(crate) const LEAVE: &str = "Leave the except block before trying again, and keep str(e) instead of e: inside the block, and as long as a variable or a list names the exception, the failed call's tensors stay.";

/// Blocks made in a failed attempt that are live when the program tries again.
pub(crate) struct HeldAttempt {
    /// The event of the failure.
    pub failed: u32,
    /// The event at which the next attempt begins.
    pub again: u32,
    /// The blocks.
    pub blocks: FxHashSet<LifetimeId>,
}

impl HeldAttempt {
    /// The bytes of these blocks that are live at an event.
    pub fn bytes_at(&self, tables: &DeviceTables, event: u32) -> u64 {
        let live = self.blocks.iter().filter(|id| tables.lifetimes.is_live_at(**id, event));
        live.map(|id| tables.lifetimes.block_size(*id)).sum()
    }
}

/// Failed attempts that were still held when the program tried again, in order. O(blocks live at the failures).
pub(crate) fn held_attempts(
    recording: &Recording,
    device: &DeviceRecording,
    tables: &DeviceTables,
    roles: &Roles,
    failures: &[u32],
) -> Vec<HeldAttempt> {
    let mut held: Vec<HeldAttempt> = Vec::new();
    for &failed in failures {
        let is_of_attempt = |id: LifetimeId| {
            let is_lasting = matches!(
                roles.of(id),
                Role::Weights
                    | Role::Gradients
                    | Role::OptimizerState
                    | Role::Inputs
                    | Role::Workspaces
                    | Role::Buckets
                    | Role::KvCache
            );
            !is_lasting && tables.lifetimes.born(id) != NO_EVENT && !held.iter().any(|held| held.blocks.contains(&id))
        };
        let found = attempt(recording, device, tables, is_of_attempt, failed);
        held.extend(found);
    }
    held
}

/// Attempts that made fewer bytes are not reported.
const LEAST: u64 = 64 * MEBIBYTE;

/// The attempt that failed at an event, if nearly all of its blocks are live when the program starts again. A new attempt is
/// recognised by the allocations at its beginning, which the same lines repeat. Lines of repeated layers also run again without a
/// new attempt, so they do not count.
fn attempt(
    recording: &Recording,
    device: &DeviceRecording,
    tables: &DeviceTables,
    is_of_attempt: impl Fn(LifetimeId) -> bool,
    failed: u32,
) -> Option<HeldAttempt> {
    let (lifetimes, events) = (&tables.lifetimes, &device.events);
    let state = tables.states.at(device, lifetimes, failed);
    let live = state.blocks.iter().filter(|b| b.state != BlockState::Inactive);
    let all: u64 = live.clone().map(|b| b.size).sum();
    let mut made: Vec<(u32, u64, LifetimeId)> =
        live.filter(|b| is_of_attempt(b.lifetime)).map(|b| (lifetimes.born(b.lifetime), b.size, b.lifetime)).collect();
    made.sort_unstable_by_key(|block| block.0);
    let bytes: u64 = made.iter().map(|block| block.1).sum();
    if bytes < LEAST || bytes.saturating_mul(10) < all {
        return None;
    }
    // The next attempt may be called from another line, so frames outside the program's innermost line are ignored.
    let stacks = &recording.stacks;
    let inner = |stack: StackId| {
        let (line, frames) = (line_of(stacks, stack)?, stacks.frames(stack));
        frames.get(..=frames.iter().position(|frame| *frame == line)?)
    };
    let inner_of = |block: &(u32, u64, LifetimeId)| inner(lifetimes.stack(device, block.2));
    let mut times: FxHashMap<&[FrameId], usize> = FxHashMap::default();
    made.iter().filter_map(inner_of).for_each(|frames| *times.entry(frames).or_default() += 1);
    let mut sum = 0u64;
    let beginning = made.iter().take_while(|block| {
        sum = sum.saturating_add(block.1);
        sum.saturating_mul(10) <= bytes
    });
    let begins: FxHashSet<&[FrameId]> = beginning.filter_map(inner_of).filter(|frames| times.get(frames) == Some(&1)).collect();
    let took = failed.saturating_sub(made.first()?.0);
    let until = (failed as usize).saturating_add((WAIT * took as usize).min(MOST)).min(events.len());
    let mut known: FxHashMap<StackId, bool> = FxHashMap::default();
    let mut is_begin = |stack| *known.entry(stack).or_insert_with(|| inner(stack).is_some_and(|f| begins.contains(f)));
    let again = (failed as usize + 1..until).find(|&e| events.action[e] == Action::Alloc && is_begin(events.stack[e]))? as u32;
    let held = HeldAttempt { failed, again, blocks: made.iter().map(|block| block.2).collect() };
    (held.bytes_at(tables, again).saturating_mul(10) >= bytes.saturating_mul(9)).then_some(held)
}

/// The next attempt must begin within this many times the number of events of the failed one,
const WAIT: usize = 4;
/// and within this many events, because a program may fail often.
const MOST: usize = 1 << 17;

impl Failure<'_> {
    /// How much memory an earlier attempt still holds at a failure, and how to release it; `None` if it is little. O(blocks live
    /// at earlier failures), of which only the last are examined.
    pub(super) fn let_go_of_attempts(&self) -> Option<Advice> {
        let Failure { recording, device, tables, roles, autopsy: a } = *self;
        /// Number of failures to examine; for a program that fails often, the last ones are sufficient.
        const LOOKED_AT: usize = 16;
        let mut before = device.events.ooms();
        before.retain(|&event| event < a.event);
        let held = held_attempts(recording, device, tables, roles, &before[before.len().saturating_sub(LOOKED_AT)..]);
        let live = held.iter().map(|attempt| (attempt, attempt.bytes_at(tables, a.event)));
        let live: Vec<_> = live.filter(|(_, bytes)| *bytes >= LEAST && bytes.saturating_mul(10) >= a.allocated).collect();
        let (first, _) = live.first()?;
        let bytes: u64 = live.iter().map(|(_, bytes)| bytes).sum();
        let whose = match live.len() {
            1 => format!("an attempt that failed at event {} and is", count(u64::from(first.failed))),
            n => format!("{n} attempts that failed before and are"),
        };
        let sentence = format!("{} of what is live was made by {whose} still held. {LEAVE}", Bytes(bytes));
        Some(Advice { sentence, setting: Some(a.words.say(LET_GO).into_owned()), support: Support::Formula })
    }
}
