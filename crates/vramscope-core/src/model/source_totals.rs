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
    /// Largest piece of mapped CPU memory (a `DataLoader`'s shared batch); the trace stores it in place of `Total Reserved`.
    pub mapped: u64,
}

impl SourceTotals {
    /// Bytes allocated after `event` beyond the `known` blocks. They are older than the trace, without stack or address.
    pub fn beyond(&self, event: u32, known: u64) -> u64 {
        self.allocated.at(event).map_or(0, |total| total.saturating_sub(known))
    }
}

impl SourceTotals {
    /// Splits [`beyond`](Self::beyond) into what was held when profiling began and what was added since.
    pub fn beyond_parts(&self, event: u32, known: u64) -> Beyond {
        let all = self.beyond(event, known);
        let before = all.min(self.allocated.start);
        Beyond { before, grew: all - before }
    }
}

/// Bytes in a trace's own total that belong to none of its blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beyond {
    /// Bytes held before profiling began.
    pub before: u64,
    /// Bytes that the total gained during profiling without an event in the trace.
    pub grew: u64,
}

impl Beyond {
    /// Name of [`before`](Self::before), wherever blocks are listed.
    pub const BEFORE: &str = "held before profiling";
    /// Name of [`grew`](Self::grew).
    pub const GREW: &str = "grew during profiling (not in the trace)";

    /// Bytes of both.
    pub fn all(self) -> u64 {
        self.before.saturating_add(self.grew)
    }

    /// The nonzero parts, each with the pseudo-stack that represents it where bytes are summed by stack.
    pub fn stacks(self) -> impl Iterator<Item = (super::StackId, u64)> {
        [(super::StackId::BEFORE, self.before), (super::StackId::GREW, self.grew)].into_iter().filter(|(_, bytes)| *bytes > 0)
    }

    /// The nonzero parts by name.
    pub fn named(self) -> impl Iterator<Item = (&'static str, u64)> {
        [(Self::BEFORE, self.before), (Self::GREW, self.grew)].into_iter().filter(|(_, bytes)| *bytes > 0)
    }

    /// `100 MiB held before profiling, 5 MiB grew during profiling (not in the trace)`; empty if both are 0.
    pub fn words(self) -> String {
        self.named().map(|(name, bytes)| format!("{} {name}", crate::units::Bytes(bytes))).collect::<Vec<_>>().join(", ")
    }
}

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
        assert_eq!(totals.beyond_parts(2, 5), Beyond { before: 100, grew: 5 });
        assert_eq!(
            totals.beyond_parts(2, 5).words(),
            "100\u{a0}B held before profiling, 5\u{a0}B grew during profiling (not in the trace)"
        );
        assert_eq!(totals.beyond_parts(2, 20), Beyond { before: 90, grew: 0 });
        assert_eq!(totals.beyond_parts(2, 110).words(), "");
    }
}
