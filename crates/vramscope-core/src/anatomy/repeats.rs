//! [`Repeats`]: how often each line runs in one forward pass, which tells how many layers there are.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::Anatomy;
use super::sense::Part;
use crate::model::{DeviceRecording, StackId};
use crate::tables::{DeviceTables, LifetimeId, NO_EVENT};

/// How often each stack is called in one forward pass.
#[derive(Debug, Default)]
pub struct Repeats {
    calls: FxHashMap<StackId, u64>,
}

impl Repeats {
    /// Counts the calls in the last whole forward pass before an event: at a peak a part of a pass may be gone already. Empty where
    /// nothing tells one pass from the next. O(allocations of the pass).
    pub fn of_pass(device: &DeviceRecording, tables: &DeviceTables, anatomy: &Anatomy, event: u32) -> Self {
        let rows = whole_forward(tables, anatomy, event).unwrap_or_default();
        Self::of(device, tables, rows.map(LifetimeId))
    }

    /// Counts the calls that made these blocks, which are in the order they were made. A call may make several blocks one after the
    /// other, as a normalization does; where a line of another call comes between, it is the next call.
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

    /// Every stack of the pass and its calls, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (StackId, u64)> {
        self.calls.iter().map(|(&stack, &calls)| (stack, calls))
    }
}

/// How often the call around some lines runs, from how often each of them does. Of a container the number that occurs most, of several the
/// smallest: one layer may have more than the others, as a projection of its input. Elsewhere the largest number that divides all: what is
/// there once, as an embedding beside the layers, is in no loop.
pub(super) fn of_call(lines: &[u64], is_container: bool) -> u64 {
    match lines {
        // What one stack makes several of may be several tensors of one call.
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

/// The allocations of one forward pass, a whole one before an event or a longer one that holds it; `None` where nothing tells one pass from
/// the next.
fn whole_forward(tables: &DeviceTables, anatomy: &Anatomy, event: u32) -> Option<Range<u32>> {
    /// Passes that are looked at: an evaluation between them may be shorter.
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
        // Four blocks of a ResNet's stage; the first block projects its input.
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
