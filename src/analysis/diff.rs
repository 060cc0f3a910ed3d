//! Comparing live memory by call stack: two instants, two recordings, or a recording and a simulation of it.

use rustc_hash::FxHashMap;

use super::{DeviceTables, stack_text};
use crate::model::{DeviceRecording, StackId, StackTable};

/// One side of a comparison: requested bytes and allocations live at an instant, by the text of their stack.
#[derive(Clone, Debug, Default)]
pub struct Side {
    by_stack: FxHashMap<String, (u64, u64, StackId)>,
    /// Requested bytes in all.
    pub bytes: u64,
    /// Allocations in all.
    pub count: u64,
}

impl Side {
    /// What is live after an event.
    #[must_use]
    pub fn live_at(stacks: &StackTable, device: &DeviceRecording, tables: &DeviceTables, event: u32) -> Self {
        let mut by_id: FxHashMap<StackId, (u64, u64)> = FxHashMap::default();
        for id in tables.states.live_at(device, &tables.lifetimes, event) {
            let entry = by_id.entry(tables.lifetimes.stack(device, id)).or_default();
            entry.0 += tables.lifetimes.requested(device, id);
            entry.1 += 1;
        }
        let mut side = Side::default();
        for (id, (bytes, count)) in by_id {
            side.bytes += bytes;
            side.count += count;
            // Two recordings number their stacks differently; their text is what they share.
            let entry = side.by_stack.entry(stack_text(stacks, id)).or_insert((0, 0, id));
            entry.0 += bytes;
            entry.1 += count;
        }
        side
    }
}

/// One stack on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The stack as text, innermost first; empty when none was recorded.
    pub stack: String,
    /// Its id in A, when it is there.
    pub in_a: Option<StackId>,
    /// Its id in B, when it is there.
    pub in_b: Option<StackId>,
    /// Bytes in A.
    pub a_bytes: u64,
    /// Bytes in B.
    pub b_bytes: u64,
    /// Allocations in A.
    pub a_count: u64,
    /// Allocations in B.
    pub b_count: u64,
}

impl Row {
    /// B minus A.
    #[must_use]
    pub fn change(&self) -> i64 {
        self.b_bytes as i64 - self.a_bytes as i64
    }

    /// Bytes on both sides.
    #[must_use]
    pub fn common(&self) -> u64 {
        self.a_bytes.min(self.b_bytes)
    }
}

/// Every stack of either side, largest change first.
#[must_use]
pub fn compare(a: &Side, b: &Side) -> Vec<Row> {
    let mut rows: Vec<Row> = a
        .by_stack
        .iter()
        .map(|(stack, &(bytes, count, id))| {
            let other = b.by_stack.get(stack);
            Row {
                stack: stack.clone(),
                in_a: Some(id),
                in_b: other.map(|o| o.2),
                a_bytes: bytes,
                a_count: count,
                b_bytes: other.map_or(0, |o| o.0),
                b_count: other.map_or(0, |o| o.1),
            }
        })
        .collect();
    rows.extend(b.by_stack.iter().filter(|(stack, _)| !a.by_stack.contains_key(*stack)).map(|(stack, &(bytes, count, id))| {
        Row { stack: stack.clone(), in_a: None, in_b: Some(id), a_bytes: 0, a_count: 0, b_bytes: bytes, b_count: count }
    }));
    rows.sort_by(|x, y| y.change().unsigned_abs().cmp(&x.change().unsigned_abs()).then_with(|| x.stack.cmp(&y.stack)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(rows: &[(&str, u64)]) -> Side {
        let mut s = Side::default();
        for &(stack, bytes) in rows {
            s.by_stack.insert(stack.to_owned(), (bytes, 1, StackId(0)));
            s.bytes += bytes;
            s.count += 1;
        }
        s
    }

    #[test]
    fn changes_add_up_to_the_difference_of_the_sides() {
        let (a, b) = (side(&[("x", 10), ("y", 5)]), side(&[("y", 9), ("z", 30)]));
        let rows = compare(&a, &b);
        assert_eq!(rows.iter().map(|r| r.stack.as_str()).collect::<Vec<_>>(), ["z", "x", "y"]);
        assert_eq!(rows.iter().map(Row::change).sum::<i64>(), b.bytes as i64 - a.bytes as i64);
        assert_eq!(rows.iter().map(Row::common).sum::<u64>(), 5);
    }
}
