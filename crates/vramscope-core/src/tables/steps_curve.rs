//! [`Steps`]: a curve that changes at few events, stored per change; used for reserved bytes.

use super::NO_EVENT;
use super::curves::{Cell, bytes};
use super::pyramid::{Pyramid, Span};
use super::runs::RunTimeline;
use crate::model::{DeviceRecording, SourceTotal};

/// A value before the first event, and the value after each change.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    pub(super) start: u64,
    events: Vec<u32>,
    values: Vec<u64>,
    spans: Pyramid,
}

impl Steps {
    /// Sums the segment events. It starts with the final reserved bytes minus those added in the trace.
    pub(super) fn build(dev: &DeviceRecording, runs: &RunTimeline) -> Self {
        let delta = |event: u32| {
            let size = dev.events.size[event as usize] as i64;
            if dev.events.action[event as usize].grows_reserved() { size } else { size.wrapping_neg() }
        };
        let start = if dev.has_final_state {
            let net = runs.changes.iter().fold(0i64, |sum, c| sum.wrapping_add(delta(c.event)));
            (dev.final_reserved() as i64).wrapping_sub(net).max(0)
        } else {
            runs.initial.iter().fold(0i64, |sum, r| sum.wrapping_add(r.size as i64))
        };
        let mut value = start;
        let values: Vec<u64> = runs
            .changes
            .iter()
            .map(|c| {
                value = value.wrapping_add(delta(c.event));
                bytes(value)
            })
            .collect();
        let spans = Pyramid::build(values.iter().map(|&v| Span::of(v)).collect());
        Steps { start: bytes(start), events: runs.changes.iter().map(|c| c.event).collect(), values, spans }
    }

    /// The curve as the source reports it.
    pub(super) fn of_source(total: &SourceTotal) -> Self {
        let spans = Pyramid::build(total.values.iter().map(|&v| Span::of(v)).collect());
        Steps { start: total.start, events: total.events.clone(), values: total.values.clone(), spans }
    }

    pub(super) fn end(&self) -> u64 {
        self.after(self.values.len())
    }

    /// True if both have the same value after every event.
    pub(super) fn is_same(&self, other: &Steps) -> bool {
        self.start == other.start && self.events.iter().chain(&other.events).all(|&event| self.at(event) == other.at(event))
    }

    /// Number of changes before `event`.
    fn before(&self, event: u32) -> usize {
        self.events.partition_point(|&e| e < event)
    }

    /// The value after that many changes.
    fn after(&self, changes: usize) -> u64 {
        changes.checked_sub(1).map_or(self.start, |i| self.values[i])
    }

    pub(super) fn at(&self, event: u32) -> u64 {
        if event == NO_EVENT { self.start } else { self.after(self.before(event + 1)) }
    }

    pub(super) fn peak(&self) -> (u64, u32) {
        match self.spans.highest(0, self.values.len()) {
            Some(at) if self.values[at] > self.start => (self.values[at], self.events[at]),
            _ => (self.start, NO_EVENT),
        }
    }

    /// The highest value in the non-empty range `from..to`, and the first event that reached it.
    pub(super) fn peak_in(&self, from: u32, to: u32) -> (u64, u32) {
        let (first, last) = (self.before(from), self.before(to));
        let highest = self.spans.highest(first, last).map(|at| (self.values[at], self.events[at]));
        // The value carried into the range is valid after its first event, unless that event changes it.
        let carried = (self.events.get(first) != Some(&from)).then(|| (self.after(first), from));
        match (carried, highest) {
            (Some(carried), Some(highest)) if highest.0 > carried.0 => highest,
            (Some(carried), _) => carried,
            (None, highest) => highest.unwrap_or((self.after(first), from)),
        }
    }

    pub(super) fn columns(&self, bounds: impl Iterator<Item = u32>) -> Vec<Cell> {
        let mut cells = Vec::new();
        let mut previous: Option<(u32, usize)> = None;
        for bound in bounds {
            let Some((from, first)) = previous else {
                previous = Some((bound, self.before(bound)));
                continue;
            };
            let carried = self.after(first);
            if bound <= from {
                cells.push(Cell { min: carried, max: carried, last: carried, count: 0 });
                continue;
            }
            let last = first + self.events[first..].partition_point(|&e| e < bound);
            let mut span = self.spans.range(first, last);
            if self.events.get(first) != Some(&from) {
                span = span.union(Span::of(carried));
            }
            cells.push(Cell { min: span.min, max: span.max, last: self.after(last), count: bound - from });
            previous = Some((bound, last));
        }
        cells
    }
}
