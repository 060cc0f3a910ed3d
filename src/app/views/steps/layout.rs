//! Which step stands in which row, and what the steps say together. Pure.

use crate::analysis::steps::StepFigures;

/// What the table can be sorted by, in the order of its columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Step,
    Peak,
    Growth,
    Kept,
    Allocated,
    Allocations,
    Time,
}

impl Order {
    /// What a step is sorted by.
    fn key(self, i: usize, s: &StepFigures) -> i64 {
        match self {
            Order::Step => i as i64,
            Order::Peak => s.peak as i64,
            Order::Growth => s.growth(),
            Order::Kept => s.kept as i64,
            Order::Allocated => s.allocated as i64,
            Order::Allocations => s.allocations as i64,
            Order::Time => s.micros,
        }
    }
}

/// Steps by row.
pub(super) fn rows(figures: &[StepFigures], order: Order, descending: bool) -> Vec<usize> {
    let mut rows: Vec<usize> = (0..figures.len()).collect();
    rows.sort_by_key(|&i| order.key(i, &figures[i]));
    if descending {
        rows.reverse();
    }
    rows
}

/// The step with the highest peak, and how many times the median peak that is.
pub(super) fn highest(figures: &[StepFigures]) -> Option<(usize, f64)> {
    let (at, top) = figures.iter().enumerate().max_by_key(|(i, s)| (s.peak, std::cmp::Reverse(*i)))?;
    let mut peaks: Vec<u64> = figures.iter().map(|s| s.peak).collect();
    peaks.sort_unstable();
    let median = peaks[peaks.len() / 2].max(1);
    Some((at, top.peak as f64 / median as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(peak: u64, before: u64, after: u64) -> StepFigures {
        StepFigures { peak, before, after, ..StepFigures::default() }
    }

    #[test]
    fn rows_follow_the_order_and_the_highest_step_is_found() {
        let f = [step(10, 0, 4), step(30, 4, 4), step(12, 4, 2)];
        assert_eq!(rows(&f, Order::Step, false), [0, 1, 2]);
        assert_eq!(rows(&f, Order::Peak, true), [1, 2, 0]);
        assert_eq!(rows(&f, Order::Growth, false), [2, 1, 0]);
        assert_eq!(highest(&f), Some((1, 2.5)));
        assert_eq!(highest(&[]), None);
    }
}
