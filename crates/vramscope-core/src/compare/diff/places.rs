//! Matching by place: the line that allocates, and the user's line that calls it. Two programs, or two versions of one, share
//! these but rarely a whole stack, because their outermost lines differ.

use rustc_hash::FxHashMap;

use super::{Comparison, Group, Held, intern};
use crate::anatomy::roles::Role;
use crate::compare::flame::Entry;
use crate::model::{FrameId, StackId, StackTable, StackTableBuilder};
use crate::tables::{innermost, own_frame};

/// Live memory in A and B after matching.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Bytes only in A.
    pub only_a: u64,
    /// Bytes in both A and B.
    pub both: u64,
    /// Bytes only in B.
    pub only_b: u64,
    /// Blocks without a stack that cannot be matched, in A and in B. The other three fields do not contain them.
    pub without_stack: [Held; 2],
}

impl Comparison {
    /// Bytes by place: only in A, in both, only in B, as in the rows. `groups` come from [`by_place`](Self::by_place). O(groups).
    pub fn parts(&self, groups: &[Group]) -> Parts {
        let mut parts = Parts::default();
        for group in groups {
            let both = self.alike_in(group);
            parts.both += both;
            if group.is_comparable(self) {
                parts.only_a += group.a.bytes - both;
                parts.only_b += group.b.bytes - both;
            } else {
                for (sum, apart) in parts.without_stack.iter_mut().zip(self.apart_in(group)) {
                    sum.add(apart);
                }
            }
        }
        parts
    }

    /// Bytes of a place that are in both A and B.
    pub fn alike_in(&self, group: &Group) -> u64 {
        if group.is_comparable(self) { group.a.bytes.min(group.b.bytes) } else { self.common_of(group).bytes }
    }

    /// Merges groups that only A has with groups that only B has at the same lines: a function in between was renamed, and
    /// nothing really grew. If no line is known, compares names only.
    pub(super) fn renamed(&self, groups: Vec<Group>, stacks: &StackTable) -> Vec<Group> {
        let line =
            |frame: Option<FrameId>| frame.and_then(|id| stacks.frame(id)).filter(|f| f.line > 0).map(|f| (f.file, f.line));
        let lines = |g: &Group| {
            let [inner, own] = [innermost(stacks, g.stack), own_frame(stacks, g.stack)].map(line);
            Some((inner?, own))
        };
        let (only_a, mut out): (Vec<Group>, Vec<Group>) = groups.into_iter().partition(|g| g.b == Held::default());
        for group in only_a {
            let same = lines(&group).and_then(|at| out.iter_mut().find(|g| g.a == Held::default() && lines(g) == Some(at)));
            let Some(same) = same else {
                out.push(group);
                continue;
            };
            same.rows.extend(group.rows);
            same.a = group.a;
            for (role, a, b) in group.purposes {
                match same.purposes.iter_mut().find(|p| p.0 == role) {
                    Some(known) => known.1.add(a),
                    None => same.purposes.push((role, a, b)),
                }
            }
        }
        out
    }

    fn common_of(&self, group: &Group) -> Held {
        let mut sum = Held::default();
        let rows = group.rows.iter().filter_map(|&row| self.rows.get(row as usize));
        rows.flat_map(|row| self.common_in(row)).for_each(|(_, held)| sum.add(held));
        sum
    }

    /// Blocks without a stack that are not known to be in both.
    fn apart_in(&self, group: &Group) -> [Held; 2] {
        let alike = self.common_of(group);
        let less = |of: Held| Held {
            bytes: of.bytes.saturating_sub(alike.bytes),
            requested: of.requested.saturating_sub(alike.requested),
            count: of.count.saturating_sub(alike.count),
            probable: of.probable.saturating_sub(alike.probable),
        };
        [less(group.a), less(group.b)]
    }
}

impl Group {
    /// Whether its blocks in A and in B can be compared, see [`Comparison::is_comparable`].
    pub fn is_comparable(&self, comparison: &Comparison) -> bool {
        self.rows.iter().all(|&row| comparison.rows.get(row as usize).is_none_or(|r| comparison.is_comparable(r)))
    }
}

/// Stacks without the frames outside the user's own line, one per place: the stacks of a flame graph of two different programs.
#[derive(Clone, Debug)]
pub struct Places {
    table: StackTable,
    /// The stack of a place, by a stack of [`Comparison::stacks`].
    of: FxHashMap<StackId, StackId>,
}

impl Places {
    /// The places of two recordings that share few whole stacks. `None` if whole stacks match nearly as well, as for two ranks of
    /// one program, and within one recording. `own` is the table of B's recording. O(rows × depth).
    pub fn of(comparison: &Comparison, own: &StackTable, groups: &[Group]) -> Option<Self> {
        // Nine tenths: a few calls from another line do not make it another program.
        let of_stacks: u64 = comparison.rows.iter().filter(|r| r.stack.is_some()).map(super::Row::common).sum();
        let of_places: u64 = groups.iter().filter(|g| g.is_comparable(comparison)).map(|g| g.a.bytes.min(g.b.bytes)).sum();
        if comparison.merged.is_none() || u128::from(of_stacks) * 10 >= u128::from(of_places) * 9 {
            return None;
        }
        let stacks = comparison.stacks(own);
        let mut whole = StackTableBuilder::new();
        let mut memo = FxHashMap::default();
        let mut of = FxHashMap::default();
        for group in groups {
            let (frames, last) = (stacks.frames(group.stack), own_frame(stacks, group.stack));
            let end = frames.iter().position(|&f| Some(f) == last).map_or(frames.len(), |at| at + 1);
            let stack = intern(&mut whole, stacks, &frames[..end], &mut memo);
            of.extend(group.rows.iter().filter_map(|&row| Some((comparison.rows.get(row as usize)?.stack, stack))));
        }
        Some(Places { table: whole.finish(), of })
    }

    /// The table of these stacks.
    pub fn stacks(&self) -> &StackTable {
        &self.table
    }

    /// The stack of the place of a row.
    pub fn stack_of(&self, row: StackId) -> Option<StackId> {
        self.of.get(&row).copied()
    }

    /// Sums entries by whole stack up to entries by place and role. O(entries).
    pub fn gather(&self, entries: Vec<Entry>) -> Vec<Entry> {
        let (mut out, mut sums): (Vec<Entry>, FxHashMap<(StackId, Role), Entry>) = Default::default();
        for entry in entries {
            let Some(stack) = self.stack_of(entry.stack).filter(|_| entry.stack.is_some()) else {
                // Entries without a stack stay separate for A and B.
                out.push(entry);
                continue;
            };
            let sum =
                sums.entry((stack, entry.role)).or_insert(Entry { stack, weight: 0, probable: 0, before: 0, count: 0, ..entry });
            sum.weight += entry.weight;
            sum.before += entry.before;
            sum.probable += entry.probable;
            sum.count += entry.count;
        }
        out.extend(sums.into_values());
        out.sort_by_key(|e| (e.stack, e.role));
        out
    }
}
