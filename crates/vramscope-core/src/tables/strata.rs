//! [`strata`]: live allocations stacked in order of allocation over time, folded to the resolution of pixels.

use std::ops::Range;

use rayon::prelude::*;

use super::{DeviceTables, LifetimeId, NO_EVENT, Quantity};
use crate::model::{Beyond, Cancelled, DeviceRecording, Progress, StackId};

/// One pixel column: the live set at the event where the stacked quantity peaks within it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrataColumn {
    /// Shows the state after this event; [`NO_EVENT`]: before the first.
    pub event: u32,
    /// Reserved bytes at that instant.
    pub reserved: u64,
    /// Height of the stack in bytes.
    pub total: u64,
    /// Its runs in [`Strata::runs`], from the bottom up.
    pub runs: Range<u32>,
}

/// A piece of a column: one allocation or several folded ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrataRun {
    /// Bytes from the bottom of the stack.
    pub bottom: u64,
    /// Its upper edge, bytes from the bottom.
    pub top: u64,
    /// The allocation; [`LifetimeId::NONE`] when several were folded.
    pub lifetime: LifetimeId,
    /// The first allocation of the run.
    pub first: LifetimeId,
    /// The largest allocation of the run; see [`part`](Self::part) for a run that has none.
    pub largest: LifetimeId,
    /// Number of allocations in a folded run, else 0.
    pub folded: u32,
}

impl StrataRun {
    /// For bytes of a trace's total without an allocation: which part, [`StackId::BEFORE`] or [`StackId::GREW`].
    pub fn part(&self) -> Option<StackId> {
        // Such a run has no allocation, so `largest` holds the stack id instead.
        (self.folded == 0 && self.lifetime == LifetimeId::NONE).then_some(StackId(self.largest.0))
    }
}

/// The stacked allocations of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strata {
    /// One entry per pixel column.
    pub columns: Vec<StrataColumn>,
    /// The runs of all columns, concatenated.
    pub runs: Vec<StrataRun>,
}

impl Strata {
    /// The runs of a column, from the bottom up.
    pub fn runs_of(&self, column: usize) -> &[StrataRun] {
        let Some(column) = self.columns.get(column) else { return &[] };
        self.runs.get(column.runs.start as usize..column.runs.end as usize).unwrap_or(&[])
    }
}

/// Stacks the live allocations of each column. `bounds` is as in [`Curves::columns`](super::Curves::columns); consecutive
/// allocations thinner than `bytes_per_px` are folded into one run that counts them; `by` is the size to stack
/// ([`Quantity::Reserved`] stacks requested bytes). An empty column continues the state before it.
pub fn strata(
    dev: &DeviceRecording,
    tables: &DeviceTables,
    bounds: &[u32],
    bytes_per_px: u64,
    by: Quantity,
    progress: &Progress,
) -> Result<Strata, Cancelled> {
    /// Columns per parallel task: enough to spread the cost of the first live set, few enough to keep every core busy.
    const STRIPE: usize = 32;
    let by = if by == Quantity::Reserved { Quantity::Requested } else { by };
    let pairs: Vec<(u32, u32)> = bounds.windows(2).map(|w| (w[0], w[1])).collect();
    let stripes: Vec<Strata> = pairs
        .par_chunks(STRIPE)
        .map(|columns| {
            progress.check()?;
            Ok(stripe(dev, tables, columns, bytes_per_px, by))
        })
        .collect::<Result<_, Cancelled>>()?;
    let mut whole = Strata::default();
    for part in stripes {
        let offset = whole.runs.len() as u32;
        whole.runs.extend(part.runs);
        whole
            .columns
            .extend(part.columns.into_iter().map(|c| StrataColumn { runs: c.runs.start + offset..c.runs.end + offset, ..c }));
    }
    Ok(whole)
}

/// A live allocation during the sweep; each column reads these fields, so they lie together.
#[derive(Clone, Copy)]
struct Held {
    id: u32,
    /// The event that removes it from the stack.
    until: u32,
    size: u64,
}

fn stripe(dev: &DeviceRecording, tables: &DeviceTables, columns: &[(u32, u32)], bytes_per_px: u64, by: Quantity) -> Strata {
    let DeviceTables { lifetimes, states, curves, .. } = tables;
    let last_event = (dev.events.len() as u32).checked_sub(1);
    let mut strata = Strata::default();
    let hold = |id: u32| {
        let row = LifetimeId(id);
        let gone = lifetimes.gone(row);
        match by {
            Quantity::Requested | Quantity::Reserved => Held { id, until: gone, size: lifetimes.requested(dev, row) },
            Quantity::Active => Held { id, until: gone, size: lifetimes.block_size(row) },
            Quantity::Allocated => {
                // A free requested before the trace: never on the stack.
                let until = if lifetimes.pending_at_start(row) { 0 } else { lifetimes.free_requested(row).min(gone) };
                Held { id, until, size: lifetimes.block_size(row) }
            }
        }
    };
    let mut held: Vec<Held> = Vec::new();
    let mut born = 0;
    let mut at = None;
    for &(from, to) in columns {
        let carried = match (from.checked_sub(1), last_event) {
            (Some(event), Some(last)) => event.min(last),
            _ => NO_EVENT,
        };
        let event = curves.peak_in(dev, lifetimes, by, from, to).map_or(carried, |(_, event)| event);
        match at {
            // Forward from the column before: drop freed allocations, add new ones.
            Some(previous) if previous != NO_EVENT && event != NO_EVENT && previous <= event => {
                let now = lifetimes.born_by(event);
                held.retain(|h| h.until > event);
                held.extend(
                    (born..now).filter(|&id| lifetimes.gone(LifetimeId(id)) > event).map(hold).filter(|h| h.until > event),
                );
                born = now;
            }
            _ => {
                held.clear();
                held.extend(states.live_ids(lifetimes, event).into_iter().map(hold));
                held.retain(|h| match (event, by) {
                    (NO_EVENT, Quantity::Allocated) => !lifetimes.pending_at_start(LifetimeId(h.id)),
                    (NO_EVENT, _) => true,
                    _ => h.until > event,
                });
                born = lifetimes.born_by(event);
            }
        }
        at = Some(event);
        let first = strata.runs.len() as u32;
        let known = held.iter().fold(0u64, |sum, h| sum.saturating_add(h.size));
        let beyond = dev.source_totals.beyond_parts(event, known);
        let total = stack(beyond, &held, bytes_per_px, &mut strata.runs);
        let reserved = curves.at(dev, lifetimes, Quantity::Reserved, event);
        strata.columns.push(StrataColumn { event, reserved, total, runs: first..strata.runs.len() as u32 });
    }
    strata
}

/// Maximum height of a folded run, as a multiple of `bytes_per_px`.
const FOLDED_MOST: u64 = 8;

/// Appends the runs of one column on top of the unexplained bytes (`beyond`); returns the height of the stack.
fn stack(beyond: Beyond, held: &[Held], bytes_per_px: u64, runs: &mut Vec<StrataRun>) -> u64 {
    let mut height = 0u64;
    let none = LifetimeId::NONE;
    for (stack, bytes) in beyond.stacks() {
        let bottom = height;
        height = height.saturating_add(bytes);
        // Id 0 keeps the runs in order of `first`.
        let largest = LifetimeId(stack.0);
        runs.push(StrataRun { bottom, top: height, lifetime: none, first: LifetimeId(0), largest, folded: 0 });
    }
    let mut thin = StrataRun { bottom: 0, top: 0, lifetime: none, first: none, largest: none, folded: 0 };
    let mut most = 0;
    let close = |thin: &mut StrataRun, runs: &mut Vec<StrataRun>| {
        match thin.folded {
            0 => return,
            1 => runs.push(StrataRun { folded: 0, ..*thin }),
            _ => runs.push(StrataRun { lifetime: LifetimeId::NONE, ..*thin }),
        }
        thin.folded = 0;
    };
    for &Held { id, size, .. } in held {
        let lifetime = LifetimeId(id);
        let (bottom, top) = (height, height.saturating_add(size));
        height = top;
        if size >= bytes_per_px {
            close(&mut thin, runs);
            runs.push(StrataRun { bottom, top, lifetime, first: lifetime, largest: lifetime, folded: 0 });
        } else if thin.folded == 0 {
            thin = StrataRun { bottom, top, lifetime, first: lifetime, largest: lifetime, folded: 1 };
            most = size;
        } else {
            thin.top = top;
            thin.folded += 1;
            if size > most {
                (thin.largest, most) = (lifetime, size);
            }
        }
        // Limits the height that one colour stands for.
        if thin.folded > 0 && thin.top - thin.bottom >= bytes_per_px.saturating_mul(FOLDED_MOST) {
            close(&mut thin, runs);
        }
    }
    close(&mut thin, runs);
    height
}
