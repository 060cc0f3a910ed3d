//! [`Requests`]: what a program asks for and frees, in order.

use std::ops::Range;

use rustc_hash::FxHashSet;

use crate::anatomy::{Phase, Role, Roles};
use crate::inference::scripted::Ask;
use crate::model::{DeviceRecording, PoolKey, StackId, StackTable};
use crate::tables::{LifetimeId, Lifetimes};

/// Stands for a missing step: before the recording, or never.
pub(crate) const NEVER: u32 = u32::MAX;

/// The blocks that a graph keeps and that no backward pass uses. What is live at a failure that ends the recording counts only where an
/// earlier pass of the same line had no backward pass either: nobody knows what would have come next.
pub(crate) fn unneeded(device: &DeviceRecording, lifetimes: &Lifetimes, roles: &Roles) -> FxHashSet<LifetimeId> {
    let ids = (0..lifetimes.len() as u32).map(LifetimeId).filter(|&id| roles.is_kept_by_graph(id));
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
    /// The step of `Requests::asks` that asks; [`u32::MAX`] for a block older than the recording.
    pub born: u32,
    /// The step that frees; [`u32::MAX`] where none does.
    pub freed: u32,
    /// Raw stream handle; 0 is the default stream.
    pub stream: u64,
    /// Key of the pool; `(0, 0)` is the default pool.
    pub pool: PoolKey,
    /// Where it is requested.
    pub stack: StackId,
    /// Identifies the stack in all recordings: equal for equal stacks; 0 without a stack.
    pub key: u64,
    /// The same for stacks that differ only in lines of the user's own files, because a script may be edited between two runs.
    pub loose: u64,
    /// What the block is for.
    pub role: Role,
    /// The fp32 copy of a half-precision weight. The optimizer needs it whatever its state.
    pub is_master: bool,
    /// Kept by a graph that no backward pass uses.
    pub is_unneeded: bool,
    /// What the program was doing.
    pub phase: Phase,
    /// The event that asked; [`u32::MAX`] for a block older than the recording.
    pub event: u32,
    /// How many times the last step was repeated before it.
    pub lap: u32,
}

impl Row {
    /// A block that is older than the recording and is never freed.
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

    /// How many steps it lives; [`u32::MAX`] where it is never freed.
    pub(crate) fn life(&self) -> u32 {
        match (self.born, self.freed) {
            (_, NEVER) | (NEVER, _) => NEVER,
            (born, freed) => freed - born,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Requests<'a> {
    /// Every request, in the order they were made; blocks older than the recording first.
    pub(crate) rows: &'a [Row],
    /// Every request and free, in order.
    pub(crate) asks: &'a [Ask],
    /// Rows before the first step, of each step, and after the last; one stretch if no steps were found.
    pub(crate) stretches: &'a [Range<u32>],
    /// Number of steps: that many stretches, from the second on.
    pub(crate) steps: usize,
    pub(crate) stacks: &'a StackTable,
}

impl Requests<'_> {
    /// How many temporaries the backward pass of the first step makes, where later ones make ever more: they go through the graphs of earlier
    /// steps too, as with `retain_graph`. `None` where they do not.
    pub(crate) fn own_backward(&self) -> Option<usize> {
        let of_step = |rows: &Range<u32>| {
            let rows = self.rows.get(rows.start as usize..rows.end as usize).unwrap_or_default();
            rows.iter().filter(|row| row.phase == Phase::Backward && row.role == Role::Temporaries).count()
        };
        let made: Vec<usize> = self.stretches.iter().skip(1).take(self.steps).map(of_step).collect();
        let falls = made.windows(2).any(|pair| pair[0] > pair[1]);
        let grows = made.windows(2).filter(|pair| pair[0] < pair[1]).count();
        // A first step may set something up: most of the others must make more as well.
        made.first().copied().filter(|_| made.len() >= 3 && !falls && grows * 2 > made.len() - 1)
    }
}
