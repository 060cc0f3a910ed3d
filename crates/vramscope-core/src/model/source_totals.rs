//! [`SourceTotals`]: the allocated and reserved totals that a source itself reports, whether or not its events explain them.

/// A total over the events: its value before the first event and after each event that changes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceTotal {
    /// Value before the first event.
    pub start: u64,
    /// Events that change the value, ascending.
    pub events: Vec<u32>,
    /// The value after each event of [`events`](Self::events).
    pub values: Vec<u64>,
}

impl SourceTotal {
    /// False where the source does not report this total.
    pub fn is_known(&self) -> bool {
        !self.events.is_empty()
    }

    /// The value after `event` (`u32::MAX`: before the first); `None` where the source does not report it. O(log events).
    pub fn at(&self, event: u32) -> Option<u64> {
        if !self.is_known() {
            return None;
        }
        let changes = if event == u32::MAX { 0 } else { self.events.partition_point(|&e| e <= event) };
        Some(changes.checked_sub(1).map_or(self.start, |i| self.values[i]))
    }

    /// Sets the value from `event` on; call in event order. The first call also stores `start`.
    pub fn set(&mut self, event: u32, start: u64, value: u64) {
        if !self.is_known() {
            self.start = start;
        } else if self.values.last() == Some(&value) {
            return;
        }
        self.events.push(event);
        self.values.push(value);
    }
}

/// PyTorch's own totals in a profiler trace. Where they exist, curves and peaks use them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceTotals {
    /// Bytes of live blocks (`Total Allocated`).
    pub allocated: SourceTotal,
    /// Bytes of segments (`Total Reserved`).
    pub reserved: SourceTotal,
    /// The largest piece of mapped memory on the CPU (a `DataLoader`'s shared batch); the trace stores it in place of
    /// `Total Reserved`.
    pub mapped: u64,
}

impl SourceTotals {
    /// Bytes allocated after `event` beyond the `known` blocks: allocated before the trace began, so without stack and address.
    pub fn beyond(&self, event: u32, known: u64) -> u64 {
        self.allocated.at(event).map_or(0, |total| total.saturating_sub(known))
    }
}

impl SourceTotals {
    /// The same by name, as far as what was held at the start reaches: no event explains more than that.
    pub fn beyond_by_name(&self, event: u32, known: u64) -> [(&'static str, u64); 2] {
        let beyond = self.beyond(event, known);
        let before = beyond.min(self.allocated.start);
        [(BEFORE_PROFILING, before), (UNEXPLAINED, beyond - before)]
    }
}

/// Name of what a trace's total gained during profiling without an event of its own.
pub const UNEXPLAINED: &str = "no event explains it";
/// Name of the memory that was allocated before the trace began, wherever blocks are listed.
pub const BEFORE_PROFILING: &str = "before profiling, no stack";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_holds_until_it_changes() {
        let mut totals = SourceTotals::default();
        assert_eq!((totals.allocated.at(0), totals.beyond(0, 5)), (None, 0));
        totals.allocated.set(2, 100, 110);
        totals.allocated.set(4, 0, 110);
        totals.allocated.set(5, 0, 90);
        assert_eq!([u32::MAX, 1, 2, 4, 5, 9].map(|e| totals.allocated.at(e)), [100, 100, 110, 110, 90, 90].map(Some));
        assert_eq!(totals.allocated.events, [2, 5]);
        assert_eq!((totals.beyond(2, 10), totals.beyond(5, 91)), (100, 0));
        assert_eq!(totals.beyond_by_name(2, 5), [(BEFORE_PROFILING, 100), (UNEXPLAINED, 5)]);
        assert_eq!(totals.beyond_by_name(2, 20), [(BEFORE_PROFILING, 90), (UNEXPLAINED, 0)]);
    }
}
