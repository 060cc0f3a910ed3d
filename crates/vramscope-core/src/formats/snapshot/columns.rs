//! Preallocated event columns for a whole file: many threads fill them at once, and nothing is copied.

use std::mem::MaybeUninit;

use super::trace::Event;
use crate::model::{Action, EventTable, PoolId, StackId, StreamId};

/// A little less than the shortest entry that any PyTorch release writes; no genuine file has more entries than this allows.
const MIN_ENTRY_BYTES: usize = 24;

/// Columns with capacity for as many events as a file of this size can hold. Unused capacity costs address space, not memory.
#[derive(Debug, Default)]
pub(super) struct Columns {
    table: EventTable,
}

/// A range of the columns that one thread fills.
#[derive(Debug)]
pub(super) struct Slots<'c> {
    time: &'c mut [MaybeUninit<i64>],
    action: &'c mut [MaybeUninit<Action>],
    address: &'c mut [MaybeUninit<u64>],
    size: &'c mut [MaybeUninit<u64>],
    stream: &'c mut [MaybeUninit<StreamId>],
    pool: &'c mut [MaybeUninit<PoolId>],
    stack: &'c mut [MaybeUninit<StackId>],
}

impl<'c> Slots<'c> {
    pub(super) fn len(&self) -> usize {
        self.action.len()
    }

    /// Takes the first `n` slots, or all if there are fewer.
    pub(super) fn take(&mut self, n: usize) -> Slots<'c> {
        fn cut<'c, T>(column: &mut &'c mut [T], n: usize) -> &'c mut [T] {
            let (front, rest) = std::mem::take(column).split_at_mut(n);
            *column = rest;
            front
        }
        let n = n.min(self.len());
        Slots {
            time: cut(&mut self.time, n),
            action: cut(&mut self.action, n),
            address: cut(&mut self.address, n),
            size: cut(&mut self.size, n),
            stream: cut(&mut self.stream, n),
            pool: cut(&mut self.pool, n),
            stack: cut(&mut self.stack, n),
        }
    }

    /// Writes event `i`; does nothing if there is no such slot.
    #[inline]
    pub(super) fn set(&mut self, i: usize, event: Event) {
        if i < self.action.len() {
            self.time[i].write(event.time_us);
            self.action[i].write(event.action);
            self.address[i].write(event.address);
            self.size[i].write(event.size);
            self.stream[i].write(event.stream);
            self.pool[i].write(event.pool);
            self.stack[i].write(event.stack);
        }
    }
}

impl Columns {
    /// Capacity for the events of a file of `bytes` bytes; `None` if the system lacks the address space.
    pub(super) fn for_file(bytes: usize) -> Option<Self> {
        let n = (bytes / MIN_ENTRY_BYTES + 64).min(u32::MAX as usize - 1);
        let mut table = EventTable::default();
        let got = [
            table.time_us.try_reserve_exact(n).is_ok(),
            table.action.try_reserve_exact(n).is_ok(),
            table.address.try_reserve_exact(n).is_ok(),
            table.size.try_reserve_exact(n).is_ok(),
            table.stream.try_reserve_exact(n).is_ok(),
            table.pool.try_reserve_exact(n).is_ok(),
            table.stack.try_reserve_exact(n).is_ok(),
        ];
        got.iter().all(|&ok| ok).then_some(Columns { table })
    }

    /// The slots of all columns, as many as the shortest column has.
    pub(super) fn slots(&mut self) -> Slots<'_> {
        let t = &mut self.table;
        let n = t.action.capacity();
        let mut slots = Slots {
            time: t.time_us.spare_capacity_mut(),
            action: t.action.spare_capacity_mut(),
            address: t.address.spare_capacity_mut(),
            size: t.size.spare_capacity_mut(),
            stream: t.stream.spare_capacity_mut(),
            pool: t.pool.spare_capacity_mut(),
            stack: t.stack.spare_capacity_mut(),
        };
        let n = n.min(slots.time.len()).min(slots.address.len()).min(slots.size.len());
        let n = n.min(slots.stream.len()).min(slots.pool.len()).min(slots.stack.len());
        slots.take(n)
    }

    /// The table of the events. `written`: for each range of slots, its length and how many first ones were [`set`](Slots::set).
    pub(super) fn finish(mut self, written: &[(usize, usize)]) -> EventTable {
        fn close<T: Copy>(column: &mut Vec<T>, written: &[(usize, usize)]) {
            let spare = column.spare_capacity_mut();
            let (mut from, mut to) = (0, 0);
            for &(slots, set) in written {
                if from != to {
                    spare.copy_within(from..from + set, to);
                }
                from += slots;
                to += set;
            }
            // SAFETY: the vector is empty, so spare slot `i` is element `i`. The first `to` of them were written: in each range
            // the first `set` slots are written (the caller guarantees it; the thread that filled the range counted them), and
            // the copies above moved them together without a gap.
            unsafe { column.set_len(to) };
            column.shrink_to_fit();
        }
        let t = &mut self.table;
        close(&mut t.time_us, written);
        close(&mut t.action, written);
        close(&mut t.address, written);
        close(&mut t.size, written);
        close(&mut t.stream, written);
        close(&mut t.pool, written);
        close(&mut t.stack, written);
        self.table
    }
}

/// Removes and returns the events from `at` on.
pub(super) fn split_off(table: &mut EventTable, at: usize) -> EventTable {
    fn tail<T>(column: &mut Vec<T>, at: usize) -> Vec<T> {
        let tail = column.split_off(at.min(column.len()));
        column.shrink_to_fit();
        tail
    }
    EventTable {
        time_us: tail(&mut table.time_us, at),
        action: tail(&mut table.action, at),
        address: tail(&mut table.address, at),
        size: tail(&mut table.size, at),
        stream: tail(&mut table.stream, at),
        pool: tail(&mut table.pool, at),
        stack: tail(&mut table.stack, at),
        ..EventTable::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_filled_apart_meet_without_gaps() {
        let event = |n: u64| Event {
            time_us: n as i64,
            action: Action::Alloc,
            address: n,
            size: n,
            stream: StreamId(n as u16),
            pool: PoolId(0),
            stack: StackId(n as u32),
        };
        let mut columns = Columns::for_file(0).unwrap();
        let mut all = columns.slots();
        assert!(all.len() >= 64);
        let (mut a, mut b, mut c) = (all.take(3), all.take(2), all.take(2));
        a.set(0, event(1));
        b.set(0, event(2));
        b.set(1, event(3));
        b.set(2, event(99));
        c.set(0, event(4));
        let mut table = columns.finish(&[(3, 1), (2, 2), (2, 1)]);
        assert_eq!(table.address, [1, 2, 3, 4]);
        assert_eq!(table.stack.iter().map(|s| s.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
        let tail = split_off(&mut table, 3);
        assert_eq!((table.size, tail.size), (vec![1, 2, 3], vec![4]));
    }
}
