//! [`Repeats`]: how often each line runs in one forward pass, which shows the number of layers.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::Anatomy;
use super::sense::Part;
use crate::model::{DeviceRecording, StackId};
use crate::tables::{DeviceTables, LifetimeId, NO_EVENT};

/// Number of calls per stack in one forward pass.
#[derive(Debug, Default)]
pub struct Repeats {
    calls: FxHashMap<StackId, u64>,
}

impl Repeats {
    /// Counts calls in the last whole forward pass before an event, because at a peak parts of a pass may already be freed. Empty
    /// if passes cannot be distinguished. O(allocations of the pass).
    pub fn of_pass(device: &DeviceRecording, tables: &DeviceTables, anatomy: &Anatomy, event: u32) -> Self {
        let rows = whole_forward(tables, anatomy, event).unwrap_or_default();
        Self::of(device, tables, rows.map(LifetimeId))
    }

    /// Counts the calls that made these blocks, given in order of allocation. One call may make several consecutive blocks, as a
    /// normalization does; a block from another call in between starts a new call.
    pub fn of(device: &DeviceRecording, tables: &DeviceTables, ids: impl Iterator<Item = LifetimeId>) -> Self {
        let mut repeats = Repeats::default();
        let mut last = StackId::NONE;
        for stack in ids.map(|id| tables.lifetimes.stack(device, id)) {
            if stack != last && stack.is_some() {
                *repeats.calls.entry(stack).or_default() += 1;
            }
            last = stack;
        }
        repeats
    }

    /// Every stack of the pass with its number of calls, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (StackId, u64)> {
        self.calls.iter().map(|(&stack, &calls)| (stack, calls))
    }
}

/// How often the call around some lines runs, given how often each line runs. For a container: the most frequent number (the
/// smallest if tied), because one layer may differ from the others, for example by a projection of its input. Otherwise: the
/// greatest common divisor, because a line that runs once, such as an embedding, is in no loop.
pub(super) fn of_call(lines: &[u64], is_container: bool) -> u64 {
    match lines {
        // Several blocks of one stack may be several tensors of one call.
        [] | [_] => 1,
        _ if is_container => {
            let times = |n: u64| lines.iter().filter(|&&m| m == n).count();
            lines.iter().copied().max_by_key(|&n| (times(n), std::cmp::Reverse(n))).unwrap_or(1)
        }
        _ => lines.iter().copied().fold(0, greatest_common_divisor),
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The allocations of one forward pass: a whole one before the event, or a longer one around it. `None` if passes are not known.
fn whole_forward(tables: &DeviceTables, anatomy: &Anatomy, event: u32) -> Option<Range<u32>> {
    /// Number of passes to consider; an evaluation between them may be shorter.
    const LAST: usize = 4;
    let (phases, steps) = (&anatomy.phases, &anatomy.steps);
    if !phases.has(Part::Backward) && steps.is_empty() {
        return None;
    }
    let forward = || phases.runs.iter().filter(|run| run.part == Part::Forward);
    let before = forward().rev().filter(|run| event == NO_EVENT || run.events.1 <= event).take(LAST);
    let now = forward().find(|run| (run.events.0..run.events.1).contains(&event));
    let run = before.chain(now).max_by_key(|run| run.rows.1 - run.rows.0).or_else(|| forward().next())?;
    let end = steps.of(run.events.0).and_then(|step| steps.bounds.get(step + 1)).copied().unwrap_or(u32::MAX);
    let born = |row: &u32| tables.lifetimes.born(LifetimeId(*row));
    let rows = (run.rows.0..run.rows.1).take_while(|row| born(row) < end).count();
    Some(run.rows.0..run.rows.0 + rows as u32)
}

#[cfg(test)]
mod tests {
    use super::of_call;

    #[test]
    fn a_container_counts_what_most_of_its_lines_run() {
        // Four blocks of a ResNet stage; the first block projects its input.
        assert_eq!(of_call(&[4, 4, 4, 4, 4, 4, 1, 1], true), 4);
        assert_eq!(of_call(&[3, 3, 6, 3], true), 3);
        assert_eq!(of_call(&[], true), 1);
    }

    #[test]
    fn elsewhere_a_line_that_runs_once_is_in_no_loop() {
        assert_eq!(of_call(&[8, 8, 16, 8], false), 8);
        assert_eq!(of_call(&[8, 8, 1], false), 1);
        assert_eq!(of_call(&[8], false), 1);
    }
}
