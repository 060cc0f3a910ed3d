//! Compares live memory: two instants, two recordings, two ranks, or a recording with a simulation of it. By call stack, by role,
//! and within one recording by block identity.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::anatomy::roles::{Role, Roles};
use crate::model::{DeviceRecording, Frame, FrameId, Recording, StackId, StackTable, StackTableBuilder};
use crate::tables::{DeviceTables, LifetimeId, Totals};
use crate::units::Bytes;

mod places;

pub use places::{Parts, Places};

/// One side of a comparison: a device of a recording at an instant.
#[derive(Clone, Copy)]
pub struct Instant<'a> {
    /// The recording that has the device.
    pub recording: &'a Recording,
    /// The device, one of the recording's.
    pub device: &'a DeviceRecording,
    /// Lifetimes, curves and states of the device.
    pub tables: &'a DeviceTables,
    /// Roles of its allocations, if known.
    pub roles: Option<&'a Roles>,
    /// The state after this event.
    pub event: u32,
}

/// Sum over live allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Bytes of whole blocks, as in PyTorch's `active_bytes`.
    pub bytes: u64,
    /// Bytes that the program requested.
    pub requested: u64,
    /// Number of live blocks.
    pub count: u64,
    /// The part of `bytes` in blocks whose role is inferred.
    pub probable: u64,
}

impl Held {
    /// Adds another sum, field by field.
    pub fn add(&mut self, other: Held) {
        self.bytes += other.bytes;
        self.requested += other.requested;
        self.count += other.count;
        self.probable += other.probable;
    }
}

/// One stack with its live memory on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The stack, in the table of [`Comparison::stacks`].
    pub stack: StackId,
    /// Its id in A's recording, if it has live blocks there.
    pub in_a: Option<StackId>,
    /// Its id in B's recording, if it has live blocks there.
    pub in_b: Option<StackId>,
    /// Live memory in A.
    pub a: Held,
    /// Live memory in B.
    pub b: Held,
    /// The role of most of its bytes.
    pub role: Role,
    /// Its live memory per role in A and in B, in the order of [`Role::ALL`]: one line may allocate several kinds of tensors.
    pub purposes: Vec<Purpose>,
}

/// Live memory of one role in A and in B.
pub type Purpose = (Role, Held, Held);

/// Whether the role is inferred for most bytes of the larger side.
pub fn purpose_is_probable((_, a, b): &Purpose) -> bool {
    let more = if a.bytes > b.bytes { a } else { b };
    more.probable * 2 > more.bytes
}

/// The role's name, with "probably" if it is inferred.
pub fn purpose_words(purpose: &Purpose) -> String {
    purpose.0.words(purpose_is_probable(purpose))
}

/// `activations`; with several roles each has the size of its larger side: `activations 180 MiB, workspaces 33 MiB`.
pub fn purposes_text(purposes: &[Purpose]) -> String {
    let weight = |p: &Purpose| p.1.bytes.max(p.2.bytes);
    let mut order: Vec<&Purpose> = purposes.iter().collect();
    order.sort_by_key(|p| (std::cmp::Reverse(weight(p)), p.0));
    match order.as_slice() {
        [] => String::new(),
        [one] => purpose_words(one),
        all => all.iter().map(|p| format!("{} {}", purpose_words(p), Bytes(weight(p)))).collect::<Vec<_>>().join(", "),
    }
}

impl Row {
    /// Bytes in B minus bytes in A.
    pub fn change(&self) -> i64 {
        self.b.bytes as i64 - self.a.bytes as i64
    }

    /// The smaller of the bytes in A and in B.
    pub fn common(&self) -> u64 {
        self.a.bytes.min(self.b.bytes)
    }
}

/// Segments and free memory at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserve {
    /// Reserved, active, allocated, requested bytes.
    pub totals: [u64; 4],
    /// Number of segments.
    pub segments: u64,
    /// Free bytes inside the segments.
    pub free: u64,
    /// The largest hole, in bytes.
    pub largest_hole: u64,
}

/// Live blocks by identity (the same allocation, not a similar one).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// Live in A, freed or not yet allocated in B.
    pub only_a: Held,
    /// Live in both A and B.
    pub both: Held,
    /// Live in B, freed or not yet allocated in A.
    pub only_b: Held,
}

/// A comparison of two instants.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Every stack of either side, largest change first.
    pub rows: Vec<Row>,
    /// All live memory in A.
    pub a: Held,
    /// All live memory in B.
    pub b: Held,
    /// Live memory by role (A, B), in the order of [`Role::ALL`].
    pub roles: Vec<(Role, Held, Held)>,
    /// Segments and free memory in A.
    pub reserve_a: Reserve,
    /// Segments and free memory in B.
    pub reserve_b: Reserve,
    /// Block identities, if both are instants of one device of one recording.
    pub blocks: Option<Blocks>,
    /// Between two devices: the blocks without a stack that count as common, by role. All of them if each size occurs equally
    /// often in A and in B; otherwise none, because equal sums prove nothing. Within one device this is empty: such blocks are
    /// compared like any stack, and [`Self::blocks`] has their identities.
    pub common_without_stack: Vec<(Role, Held)>,
    /// The stacks of both recordings in one table; `None` when both use the same table.
    merged: Option<StackTable>,
}

impl Comparison {
    /// The table of the rows' stacks; `own` is the table of B's recording.
    pub fn stacks<'a>(&'a self, own: &'a StackTable) -> &'a StackTable {
        self.merged.as_ref().unwrap_or(own)
    }

    /// Bytes in B minus bytes in A.
    pub fn change(&self) -> i64 {
        self.b.bytes as i64 - self.a.bytes as i64
    }

    /// Whether a row's bytes in A and in B can be compared: it has a stack, or both sides are of one device of one recording.
    pub fn is_comparable(&self, row: &Row) -> bool {
        row.stack.is_some() || self.blocks.is_some()
    }

    /// The part of [`Self::common_without_stack`] that belongs to a row; only the row without a stack has one.
    pub(super) fn common_in(&self, row: &Row) -> impl Iterator<Item = (Role, Held)> {
        self.common_without_stack.iter().copied().filter(|_| row.stack == StackId::NONE)
    }

    /// Bytes only in A, in both, and only in B, matched by whole stacks; of blocks without a stack those of
    /// [`Self::common_without_stack`] are in both.
    pub fn parts_by_stack(&self) -> [u64; 3] {
        let told: u64 = self.rows.iter().filter(|r| self.is_comparable(r)).map(Row::common).sum();
        let common = told + self.common_without_stack.iter().map(|u| u.1.bytes).sum::<u64>();
        [self.a.bytes - common, common, self.b.bytes - common]
    }
}

/// Rows that allocate at one line, called from one line of the user's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The stack of its largest row, in the table of [`Comparison::stacks`].
    pub stack: StackId,
    /// Indices of its rows.
    pub rows: Vec<u32>,
    /// Live memory in A.
    pub a: Held,
    /// Live memory in B.
    pub b: Held,
    /// The role of most of its bytes.
    pub role: Role,
    /// Its live memory per role.
    pub purposes: Vec<Purpose>,
}

impl Group {
    /// Bytes in B minus bytes in A.
    pub fn change(&self) -> i64 {
        self.b.bytes as i64 - self.a.bytes as i64
    }
}

impl Comparison {
    /// Groups rows that allocate at the same line for the same line of the user's code; largest change first. Two runs rarely share
    /// whole stacks, because their outermost lines differ. `own` is the table of B's recording. O(rows × depth).
    pub fn by_place(&self, own: &StackTable) -> Vec<Group> {
        let stacks = self.stacks(own);
        let mut groups: FxHashMap<(Option<FrameId>, Option<FrameId>, Option<StackId>), Group> = FxHashMap::default();
        for (i, row) in self.rows.iter().enumerate() {
            let bare = Some(row.stack).filter(|stack| !stack.is_some());
            let place = (crate::tables::innermost(stacks, row.stack), crate::tables::own_frame(stacks, row.stack), bare);
            let group = groups.entry(place).or_insert_with(|| Group {
                stack: row.stack,
                rows: Vec::new(),
                a: Held::default(),
                b: Held::default(),
                role: row.role,
                purposes: Vec::new(),
            });
            let weight = |r: &Row| r.a.bytes.max(r.b.bytes);
            if group.rows.iter().all(|&other| weight(&self.rows[other as usize]) < weight(row)) {
                group.stack = row.stack;
            }
            for &(role, a, b) in &row.purposes {
                match group.purposes.iter_mut().find(|p| p.0 == role) {
                    Some(known) => {
                        known.1.add(a);
                        known.2.add(b);
                    }
                    None => group.purposes.push((role, a, b)),
                }
            }
            group.rows.push(i as u32);
            group.a.add(row.a);
            group.b.add(row.b);
        }
        let mut groups = self.renamed(groups.into_values().collect(), stacks);
        for group in &mut groups {
            group.purposes.sort_by_key(|p| p.0.index());
            group.role = most(&group.purposes);
        }
        groups.sort_by_key(|g| (std::cmp::Reverse(g.change().unsigned_abs()), std::cmp::Reverse(g.b.bytes), g.stack));
        groups
    }
}

/// The role of most bytes; the first of equal ones.
fn most(purposes: &[Purpose]) -> Role {
    let heaviest = purposes.iter().max_by_key(|p| (p.1.bytes + p.2.bytes, std::cmp::Reverse(p.0.index())));
    heaviest.map_or(Role::Unknown, |p| p.0)
}

/// Live allocations at an instant, and their sums by stack and role.
fn live(at: &Instant<'_>) -> (Vec<LifetimeId>, FxHashMap<StackId, [Held; Role::ALL.len()]>) {
    let lifetimes = &at.tables.lifetimes;
    let ids = at.tables.states.live_at(lifetimes, at.event);
    let mut by_stack: FxHashMap<StackId, [Held; Role::ALL.len()]> = FxHashMap::default();
    for &id in &ids {
        let role = at.roles.map_or(Role::Unknown, |c| c.of(id));
        let held = held(at, id);
        by_stack.entry(lifetimes.stack(at.device, id)).or_default()[role.index()].add(held);
    }
    let known = by_stack.values().flatten().fold(0u64, |sum, held| sum.saturating_add(held.bytes));
    for (stack, bytes) in at.device.source_totals.beyond_parts(at.event, known).stacks() {
        by_stack.entry(stack).or_default()[Role::Unknown.index()].add(Held { bytes, requested: bytes, ..Held::default() });
    }
    (ids, by_stack)
}

fn held(at: &Instant<'_>, id: LifetimeId) -> Held {
    let lifetimes = &at.tables.lifetimes;
    let bytes = lifetimes.block_size(id);
    let is_probable = at.roles.is_some_and(|roles| roles.is_probable(at.device, at.tables, id));
    let probable = if is_probable { bytes } else { 0 };
    Held { bytes, requested: lifetimes.requested(at.device, id), count: 1, probable }
}

/// Compares two instants. O(live + stacks × depth), plus one state per side.
pub fn compare(a: &Instant<'_>, b: &Instant<'_>) -> Comparison {
    let ((ids_a, live_a), (ids_b, live_b)) = (live(a), live(b));
    let shares_stacks = std::ptr::eq(a.recording, b.recording);
    let mut merging = (!shares_stacks).then(StackTableBuilder::new);
    let mut rows: FxHashMap<StackId, (Row, [(Held, Held); Role::ALL.len()])> = FxHashMap::default();
    let mut roles: Vec<(Role, Held, Held)> = Role::ALL.iter().map(|&c| (c, Held::default(), Held::default())).collect();
    for (side, at, live) in [(0, a, &live_a), (1, b, &live_b)] {
        let mut memo = FxHashMap::default();
        let mut order: Vec<_> = live.iter().collect();
        order.sort_unstable_by_key(|(id, _)| **id);
        for (&own, by_role) in order {
            let stack = match &mut merging {
                // Two recordings number their stacks differently; they share functions, files and lines.
                Some(builder) if own.is_some() => {
                    intern(builder, &at.recording.stacks, at.recording.stacks.frames(own), &mut memo)
                }
                _ => own,
            };
            let (row, weights) = rows.entry(stack).or_insert_with(|| {
                let row = Row {
                    stack,
                    in_a: None,
                    in_b: None,
                    a: Held::default(),
                    b: Held::default(),
                    role: Role::Unknown,
                    purposes: Vec::new(),
                };
                (row, Default::default())
            });
            let place = if side == 0 { (&mut row.in_a, &mut row.a) } else { (&mut row.in_b, &mut row.b) };
            place.0.get_or_insert(own);
            for (i, held) in by_role.iter().enumerate() {
                place.1.add(*held);
                (if side == 0 { &mut weights[i].0 } else { &mut weights[i].1 }).add(*held);
                let sums = &mut roles[i];
                (if side == 0 { &mut sums.1 } else { &mut sums.2 }).add(*held);
            }
        }
    }
    let is_one = std::ptr::eq(a.device, b.device);
    let mut comparison = Comparison {
        reserve_a: reserve(a),
        reserve_b: reserve(b),
        blocks: is_one.then(|| same_blocks(a, &ids_a, b, &ids_b)),
        common_without_stack: if is_one { Vec::new() } else { common_without_stack(a, &ids_a, b, &ids_b) },
        merged: merging.map(StackTableBuilder::finish),
        ..Comparison::default()
    };
    comparison.rows = rows
        .into_values()
        .map(|(mut row, weights)| {
            let all = Role::ALL.iter().zip(weights).map(|(&c, (a, b))| (c, a, b));
            row.purposes = all.filter(|p| p.1.bytes + p.2.bytes > 0).collect();
            row.role = most(&row.purposes);
            row
        })
        .collect();
    for row in &comparison.rows {
        comparison.a.add(row.a);
        comparison.b.add(row.b);
    }
    comparison.rows.sort_by_key(|r| (std::cmp::Reverse(r.change().unsigned_abs()), std::cmp::Reverse(r.b.bytes), r.stack));
    comparison.roles = roles.into_iter().filter(|c| c.1.bytes + c.2.bytes > 0).collect();
    comparison
}

/// Copies frames of another table as a stack of the merged one. `memo` caches copied frames.
fn intern(
    builder: &mut StackTableBuilder,
    from: &StackTable,
    frames: &[FrameId],
    memo: &mut FxHashMap<FrameId, FrameId>,
) -> StackId {
    let frames: Vec<FrameId> = frames
        .iter()
        .map(|&f| {
            *memo.entry(f).or_insert_with(|| {
                let frame = from.frame(f).unwrap_or(Frame { name: Default::default(), file: Default::default(), line: 0 });
                builder.frame_of(from.text(frame.name), from.text(frame.file), frame.line)
            })
        })
        .collect();
    builder.stack(&frames)
}

fn common_without_stack(a: &Instant<'_>, ids_a: &[LifetimeId], b: &Instant<'_>, ids_b: &[LifetimeId]) -> Vec<(Role, Held)> {
    let without_stack = |at: &Instant<'_>, ids: &[LifetimeId]| -> Vec<LifetimeId> {
        ids.iter()
            .copied()
            .filter(|&id| at.recording.stacks.frames(at.tables.lifetimes.stack(at.device, id)).is_empty())
            .collect()
    };
    let (of_a, of_b) = (without_stack(a, ids_a), without_stack(b, ids_b));
    let sizes = |at: &Instant<'_>, ids: &[LifetimeId]| {
        let mut sizes: Vec<u64> = ids.iter().map(|&id| at.tables.lifetimes.block_size(id)).collect();
        sizes.sort_unstable();
        sizes
    };
    let alike = if sizes(a, &of_a) == sizes(b, &of_b) { of_b } else { Vec::new() };
    let mut sums = [Held::default(); Role::ALL.len()];
    for id in alike {
        sums[b.roles.map_or(Role::Unknown, |c| c.of(id)).index()].add(held(b, id));
    }
    Role::ALL.into_iter().zip(sums).filter(|s| s.1.count > 0).collect()
}

fn same_blocks(a: &Instant<'_>, ids_a: &[LifetimeId], b: &Instant<'_>, ids_b: &[LifetimeId]) -> Blocks {
    let in_a: FxHashSet<LifetimeId> = ids_a.iter().copied().collect();
    let in_b: FxHashSet<LifetimeId> = ids_b.iter().copied().collect();
    let mut blocks = Blocks::default();
    for &id in ids_a.iter().filter(|id| !in_b.contains(id)) {
        blocks.only_a.add(held(a, id));
    }
    for &id in ids_b {
        if in_a.contains(&id) { blocks.both.add(held(b, id)) } else { blocks.only_b.add(held(b, id)) }
    }
    blocks
}

fn reserve(at: &Instant<'_>) -> Reserve {
    let state = at.tables.states.at(at.device, &at.tables.lifetimes, at.event);
    let Totals { reserved, active, allocated, requested } = state.totals;
    let (_, free, largest_hole) = state.hole_figures();
    Reserve { totals: [reserved, active, allocated, requested], segments: state.segments.len() as u64, free, largest_hole }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Action, PoolId, Progress, StreamId};

    /// A recording in which these functions allocate these sizes, one after another; the allocations in `freed` are freed.
    fn recording(allocations: &[(&str, u64)], freed: &[usize]) -> (Recording, DeviceTables) {
        let mut b = StackTableBuilder::new();
        let mut d = DeviceRecording::default();
        for (i, (name, size)) in allocations.iter().enumerate() {
            let frame = b.frame_of(name, "/home/me/train.py", 1);
            let stack = b.stack(&[frame]);
            d.events.push(i as i64, Action::Alloc, 0x10_0000 * (i as u64 + 1), *size, StreamId(0), PoolId(0), stack);
        }
        for &i in freed {
            for action in [Action::FreeRequested, Action::FreeCompleted] {
                d.events.push(99, action, 0x10_0000 * (i as u64 + 1), allocations[i].1, StreamId(0), PoolId(0), StackId::NONE);
            }
        }
        let tables = DeviceTables::build(&d, &Progress::new()).expect("not cancelled");
        (Recording { devices: vec![d], stacks: b.finish(), ..Recording::default() }, tables)
    }

    fn at<'a>(of: &'a (Recording, DeviceTables), event: u32) -> Instant<'a> {
        Instant { recording: &of.0, device: &of.0.devices[0], tables: &of.1, roles: None, event }
    }

    fn names(c: &Comparison, own: &StackTable) -> Vec<(String, i64)> {
        let stacks = c.stacks(own);
        c.rows.iter().map(|r| (crate::tables::stack_text(stacks, r.stack), r.change())).collect()
    }

    #[test]
    fn changes_add_up_to_the_difference_of_the_sides() {
        // The two recordings number the stacks differently, so only the text shows that they are the same.
        let a = recording(&[("x", 1024), ("y", 512)], &[]);
        let b = recording(&[("z", 4096), ("y", 2048), ("y", 512)], &[]);
        let c = compare(&at(&a, 1), &at(&b, 2));
        let row = |name: &str, change| (format!("/home/me/train.py:1 {name}"), change);
        assert_eq!(names(&c, &b.0.stacks), [row("z", 4096), row("y", 2048), row("x", -1024)]);
        assert_eq!(c.rows.iter().map(Row::change).sum::<i64>(), c.change());
        assert_eq!(c.parts_by_stack(), [1024, 512, 6144]);
        assert_eq!((c.a.count, c.b.count, c.blocks), (2, 3, None));
        assert_eq!(c.rows[1].in_a.map(|s| s.0), Some(1));
    }

    /// A recording of a program with the outermost line `main`: allocations by a function, `None` for no stack.
    fn program(main: &str, allocations: &[(Option<&str>, u64)]) -> (Recording, DeviceTables) {
        let mut b = StackTableBuilder::new();
        let mut d = DeviceRecording::default();
        for (i, (name, size)) in allocations.iter().enumerate() {
            let stack = name.map_or(StackId::NONE, |name| {
                let frames = [name, main].map(|name| b.frame_of(name, "/home/me/train.py", 1));
                b.stack(&frames)
            });
            d.events.push(i as i64, Action::Alloc, 0x10_0000 * (i as u64 + 1), *size, StreamId(0), PoolId(0), stack);
        }
        let tables = DeviceTables::build(&d, &Progress::new()).expect("not cancelled");
        (Recording { devices: vec![d], stacks: b.finish(), ..Recording::default() }, tables)
    }

    /// Two programs share places but no whole stack. Sentence, rows and flame graph must match them alike, and never match blocks
    /// without a stack.
    #[test]
    fn two_programs_are_matched_by_place_everywhere() {
        use super::super::flame::{Flame, Shape, entries_of};
        let a = program("gpt_train", &[(Some("forward"), 1024), (Some("step"), 512), (None, 2048), (None, 1024)]);
        let b = program("gpt_varlen", &[(Some("forward"), 4096), (Some("step"), 512), (None, 3072)]);
        let c = compare(&at(&a, 3), &at(&b, 2));
        let own = &b.0.stacks;
        assert_eq!(c.parts_by_stack(), [4608, 0, 7680], "no whole stack is on both sides");
        let groups = c.by_place(own);
        let parts = c.parts(&groups);
        assert_eq!((parts.only_a, parts.both, parts.only_b), (0, 1536, 3072));
        assert_eq!(parts.without_stack.map(|h| (h.bytes, h.count)), [(3072, 2), (3072, 1)]);
        let places = Places::of(&c, own, &groups).expect("they share places alone");
        let flame = Flame::build(places.stacks(), &places.gather(entries_of(&c)), Shape::default());
        let root = &flame.nodes[0];
        assert_eq!((root.before, root.after, root.common), (c.a.bytes, c.b.bytes, parts.both));
        let forward = flame.nodes.iter().find(|n| n.depth == 1 && n.total == 4096).expect("the place is at the root");
        assert_eq!((forward.before, forward.after, forward.common), (1024, 4096, 1024));
    }

    #[test]
    fn a_function_that_was_renamed_grew_from_what_it_held() {
        let a = program("main", &[(Some("forward"), 1024), (Some("step"), 512)]);
        let b = program("main", &[(Some("run"), 4096), (Some("step"), 512)]);
        let c = compare(&at(&a, 1), &at(&b, 1));
        let groups = c.by_place(&b.0.stacks);
        let held: Vec<_> = groups.iter().map(|g| (g.a.bytes, g.b.bytes, g.rows.len())).collect();
        assert_eq!(held, [(1024, 4096, 2), (512, 512, 1)]);
        let parts = c.parts(&groups);
        assert_eq!((parts.only_a, parts.both, parts.only_b), (0, 1536, 3072));
        assert!(crate::tables::stack_text(c.stacks(&b.0.stacks), groups[0].stack).contains("run"), "by its new name");
    }

    #[test]
    fn runs_of_one_program_are_matched_by_whole_stack() {
        let a = program("main", &[(Some("forward"), 1024), (None, 2048), (None, 1024)]);
        let b = program("main", &[(Some("forward"), 4096), (None, 1024), (None, 2048)]);
        let c = compare(&at(&a, 2), &at(&b, 2));
        let groups = c.by_place(&b.0.stacks);
        assert!(Places::of(&c, &b.0.stacks, &groups).is_none());
        let parts = c.parts(&groups);
        assert_eq!((parts.only_a, parts.both, parts.only_b), (0, 4096, 3072), "the same sizes as often: alike without a stack");
        assert_eq!(parts.without_stack, [Held::default(); 2]);
        assert_eq!(c.parts_by_stack(), [0, 4096, 3072]);
    }

    #[test]
    fn a_line_that_makes_several_kinds_of_tensor_says_how_much_of_each() {
        let held = |bytes| Held { bytes, requested: bytes, count: 1, probable: 0 };
        let activations = (Role::Activations, held(9 << 20), held(180 << 20));
        let workspaces = (Role::Workspaces, held(33 << 20), held(33 << 20));
        let text = purposes_text(&[workspaces, activations]).replace('\u{a0}', " ");
        assert_eq!(text, "activations 180 MiB, workspaces 33 MiB");
        assert_eq!(purposes_text(&[activations]), "activations");
        assert_eq!(most(&[workspaces, activations]), Role::Activations);
        let row = Row {
            stack: StackId(0),
            in_a: None,
            in_b: None,
            a: held(42 << 20),
            b: held(213 << 20),
            role: Role::Activations,
            purposes: vec![activations, workspaces],
        };
        let c = Comparison { rows: vec![row], ..Comparison::default() };
        let weights: Vec<(Role, u64)> = super::super::flame::entries_of(&c).iter().map(|e| (e.role, e.weight >> 20)).collect();
        assert_eq!(weights, [(Role::Activations, 180), (Role::Workspaces, 33)]);
    }

    /// A trace's own total has more than its blocks: rows, places and flame graph name it, but it is never matched.
    #[test]
    fn what_a_trace_held_before_profiling_is_a_row_of_its_own() {
        use super::super::flame::{Flame, Measure, Shape, Size, node_name, weigh};
        let with_total = || {
            let mut r = recording(&[("x", 1024)], &[]);
            r.0.devices[0].source_totals.allocated.set(0, 4096, 1024 + 4096 + 512);
            r
        };
        let r = with_total();
        let c = compare(&at(&r, 0), &at(&r, 0));
        let sides = |c: &Comparison| {
            let mut sides: Vec<_> = c.rows.iter().map(|row| (row.stack, row.b.bytes, row.b.count)).collect();
            sides.sort();
            sides
        };
        assert_eq!(sides(&c), [(StackId(0), 1024, 1), (StackId::GREW, 512, 0), (StackId::BEFORE, 4096, 0)]);
        assert_eq!((c.b.bytes, c.by_place(&r.0.stacks).len(), c.parts_by_stack()), (5632, 3, [0, 5632, 0]));
        let weighed = weigh(&r.0.devices[0], &r.1, None, Measure::LiveAt(0), Size::Block);
        let flame = Flame::build(&r.0.stacks, &weighed, Shape::default());
        let names: Vec<String> = flame.nodes[1..].iter().map(|n| node_name(&r.0.stacks, n)).collect();
        assert_eq!(names[1..], ["grew during profiling (not in the trace)", "held before profiling"]);
        let other = with_total();
        let c = compare(&at(&r, 0), &at(&other, 0));
        let parts = c.parts(&c.by_place(&other.0.stacks));
        assert_eq!((parts.both, parts.without_stack.map(|h| h.bytes)), (1024, [4608, 4608]));
    }

    #[test]
    fn two_instants_of_a_recording_know_which_blocks_stayed() {
        let r = recording(&[("x", 1024), ("y", 512), ("x", 1024)], &[0]);
        let c = compare(&at(&r, 1), &at(&r, 4));
        let blocks = c.blocks.expect("one recording");
        assert_eq!((blocks.only_a.bytes, blocks.both.bytes, blocks.only_b.bytes), (1024, 512, 1024));
        // The stack holds as much as before, but in another block.
        assert_eq!((c.change(), c.parts_by_stack()), (0, [0, 1536, 0]));
    }
}
