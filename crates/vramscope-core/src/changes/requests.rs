//! [`Requests`]: what a program requests and frees, in order.

use std::ops::Range;

use rustc_hash::FxHashSet;

use crate::anatomy::{Phase, Role, Roles};
use crate::inference::scripted::Ask;
use crate::model::{DeviceRecording, PoolKey, StackId, StackTable};
use crate::tables::{LifetimeId, Lifetimes};

/// Marks a missing position: before the recording, or never.
pub(crate) const NEVER: u32 = u32::MAX;

/// Blocks kept by a graph that no backward pass uses. For blocks live at a failure that ends the recording, the backward pass may
/// have been still to come. They count only if an earlier pass of the same line had none either.
pub(crate) fn unneeded(device: &DeviceRecording, lifetimes: &Lifetimes, roles: &Roles) -> FxHashSet<LifetimeId> {
    let ids = lifetimes.ids().filter(|&id| roles.is_kept_by_graph(id));
    let Some(failure) = device.events.failure_at_end() else { return ids.collect() };
    let run = roles.anatomy.phases.runs.iter().rfind(|run| run.events.0 <= failure);
    let start = run.map_or(failure, |run| run.events.0);
    let (over, open): (FxHashSet<_>, FxHashSet<_>) = ids.partition(|&id| lifetimes.gone(id) < start);
    let line = |&id: &LifetimeId| roles.anatomy.phases.called_at(lifetimes.stack(device, id));
    let known: FxHashSet<_> = over.iter().map(line).collect();
    over.into_iter().chain(open.into_iter().filter(|id| known.contains(&line(id)))).collect()
}

/// One request of a program.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Requested bytes.
    pub size: u64,
    /// Position in `Requests::asks` of the request; [`u32::MAX`] for a block older than the recording.
    pub born: u32,
    /// Position of the free; [`u32::MAX`] if it is never freed.
    pub freed: u32,
    /// Raw stream handle; 0 is the default stream.
    pub stream: u64,
    /// Key of the pool; `(0, 0)` is the default pool.
    pub pool: PoolKey,
    /// Where it is requested.
    pub stack: StackId,
    /// Hash of the stack, comparable between recordings; 0 without a stack.
    pub key: u64,
    /// Like `key`, but ignores line numbers of the user's own files, because a script may be edited between two runs.
    pub loose: u64,
    /// The role of the block.
    pub role: Role,
    /// True for an fp32 copy of a half-precision weight, which the optimizer always needs.
    pub is_master: bool,
    /// True if it is kept by a graph that no backward pass uses.
    pub is_unneeded: bool,
    /// The phase of the program.
    pub phase: Phase,
    /// The event of the request; [`u32::MAX`] for a block older than the recording.
    pub event: u32,
    /// In a plan for more steps: how many times the last step was repeated before this request.
    pub lap: u32,
}

impl Row {
    /// A block older than the recording that is never freed.
    pub(crate) const OLDER: Row = Row {
        size: 0,
        born: NEVER,
        freed: NEVER,
        stream: 0,
        pool: (0, 0),
        stack: StackId::NONE,
        key: 0,
        loose: 0,
        role: Role::Unknown,
        is_master: false,
        is_unneeded: false,
        phase: Phase::Load,
        event: NEVER,
        lap: 0,
    };

    /// The number of positions for which it lives; [`u32::MAX`] if it is never freed.
    pub(crate) fn life(&self) -> u32 {
        match (self.born, self.freed) {
            (_, NEVER) | (NEVER, _) => NEVER,
            (born, freed) => freed - born,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Requests<'a> {
    /// Every request in order; blocks older than the recording come first.
    pub(crate) rows: &'a [Row],
    /// Every request and free, in order.
    pub(crate) asks: &'a [Ask],
    /// Ranges of rows: before the first step, of each step, and after the last. A single range if no steps were found.
    pub(crate) stretches: &'a [Range<u32>],
    /// Number of steps. Their ranges in `stretches` begin at index 1.
    pub(crate) steps: usize,
    pub(crate) stacks: &'a StackTable,
}

impl Requests<'_> {
    /// The number of temporaries in the first step's backward pass, if later steps make more and more: their backward passes also
    /// go through the graphs of earlier steps, as with `retain_graph`. `None` otherwise.
    pub(crate) fn own_backward(&self) -> Option<usize> {
        let of_step = |rows: &Range<u32>| {
            let rows = self.rows.get(rows.start as usize..rows.end as usize).unwrap_or_default();
            rows.iter().filter(|row| row.phase == Phase::Backward && row.role == Role::Temporaries).count()
        };
        let made: Vec<usize> = self.stretches.iter().skip(1).take(self.steps).map(of_step).collect();
        let falls = made.windows(2).any(|pair| pair[0] > pair[1]);
        let grows = made.windows(2).filter(|pair| pair[0] < pair[1]).count();
        // The first step may include setup, so most of the other steps must grow as well.
        made.first().copied().filter(|_| made.len() >= 3 && !falls && grows * 2 > made.len() - 1)
    }
}
