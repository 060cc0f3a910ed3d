//! Layout of the segment map: segments are grouped, sorted, and folded or wrapped into rows. No pixels here.

use std::ops::Range;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use vramscope_core::diagnose::fragmentation::Servers;
use vramscope_core::model::{BlockState, DeviceRecording, PoolId, SizeClass, StreamId};
use vramscope_core::tables::{BlockAt, SegmentAt, State, expandable_reach};
use vramscope_core::units::MEBIBYTE;

/// The order of segments within a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Order {
    /// By address, lowest first.
    #[default]
    Address,
    /// Largest first.
    Size,
    /// Most free bytes first.
    Free,
    LargestHole,
    /// In the order in which they were taken from the device.
    Age,
}

impl Order {
    pub const ALL: [Order; 5] = [Order::Address, Order::Size, Order::Free, Order::LargestHole, Order::Age];
    pub const NAMES: [&'static str; 5] = ["address", "size", "free bytes", "largest hole", "age"];
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Span {
    /// One row per segment, all on one scale of bytes.
    #[default]
    TrueSize,
    /// One row per segment, each as wide as the pane.
    Normalised,
    /// All segments of a group one after the other on lines of equal length. For expandable segments and those of very different
    /// sizes.
    Wrapped,
}

impl Span {
    pub const ALL: [Span; 3] = [Span::TrueSize, Span::Normalised, Span::Wrapped];
    pub const NAMES: [&'static str; 3] = ["true size", "normalised", "wrapped"];
}

/// With automatic height, more rows than this are folded.
pub const FOLD_OVER: usize = 240;
pub const GROUP_HEIGHT: f32 = 20.0;
/// Least and greatest automatic height of a row.
pub const ROW_HEIGHTS: (f32, f32) = (3.0, 18.0);

/// Segments of one pool, size class and stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The pool; [`PoolId::UNKNOWN`] when the trace does not say.
    pub pool: PoolId,
    /// Small or large requests.
    pub class: SizeClass,
    pub stream: StreamId,
    /// For example `large pool, default stream`.
    pub name: String,
    pub is_expandable: bool,
    /// False for blocks whose segment is not in the source.
    pub is_reserved: bool,
    pub segments: u32,
    /// Bytes taken from the device.
    pub reserved: u64,
    pub free: u64,
    /// With rows to scale, the bytes that the width of the pane stands for.
    pub across: u64,
}

/// A group gets its own scale when its longest row would be this many times shorter than the pane.
const OWN_SCALE: u64 = 8;

/// A segment, or all mapped runs of an expandable segment with the unmapped parts between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unit {
    pub group: u32,
    pub address: u64,
    /// One past the last mapped byte.
    pub end: u64,
    /// The mapped runs, as indices into [`State::segments`]; empty for blocks of an unknown segment.
    pub segments: Range<u32>,
    /// The blocks, as indices into [`State::blocks`].
    pub blocks: Range<u32>,
    /// Bytes taken from the device.
    pub reserved: u64,
    pub free: u64,
    pub largest_hole: u64,
    /// Address of the largest hole; 0 when there is none.
    pub largest_at: u64,
    /// The event that took it, as a sort key; segments from before the trace come first.
    pub age: i64,
}

impl Unit {
    /// Bytes from the first to the last, including unmapped parts.
    pub fn span(&self) -> u64 {
        self.end - self.address
    }
}

/// One row: a unit, a part of one, or several folded units of equal size. In wrapped mode several rows may share a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The units, as indices into [`Plan::order`].
    pub units: Range<u32>,
    /// Offset of the first byte shown, from the start of the unit.
    pub from: u64,
    /// Offset one past the last byte shown.
    pub to: u64,
    /// Bytes of the rows before this one on the same line.
    pub lead: u64,
    pub group: u32,
    /// The largest hole of the units; for a part of a unit, the largest hole that starts in the part.
    pub largest_hole: u64,
    /// Address of that hole; 0 when there is none.
    pub largest_at: u64,
    /// The segments that the gutter names, as indices into [`State::segments`]: those that begin in the row, or else the one that
    /// continues from the row above. For folded units those of the first unit. Empty when nothing in the row is mapped or no
    /// segment is known.
    pub named: Range<u32>,
    pub is_start: bool,
}

/// The arrangement of one state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Groups, largest first.
    pub groups: Vec<Group>,
    /// Units sorted by group and address.
    pub units: Vec<Unit>,
    /// Indices of units in the order of the rows.
    pub order: Vec<u32>,
    /// Rows from the top, group after group.
    pub rows: Vec<Row>,
    pub longest: u64,
    /// Number of units that share a row with others.
    pub folded: u32,
    pub is_wrapped: bool,
}

/// The user's choices for the arrangement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub order: Order,
    pub span: Span,
    /// Fold rows of equal size when there are more than [`FOLD_OVER`].
    pub fold: bool,
}

impl Plan {
    /// Arranges a state. O(blocks + segments log segments).
    pub fn new(device: &DeviceRecording, state: &State, choice: Choice) -> Self {
        let mut plan = Plan::default();
        plan.gather(device, state);
        plan.order = (0..plan.units.len() as u32).collect();
        let units = &plan.units;
        plan.order.sort_by_key(|&i| {
            let u = &units[i as usize];
            let key = match choice.order {
                Order::Address => 0,
                Order::Size => -i128::from(u.reserved),
                Order::Free => -i128::from(u.free),
                Order::LargestHole => -i128::from(u.largest_hole),
                Order::Age => i128::from(u.age),
            };
            (u.group, key, u.address)
        });
        match choice.span {
            Span::Wrapped => {
                plan.wrap(state);
                return plan;
            }
            _ => plan.stack(choice.fold),
        }
        plan.longest = plan.rows.iter().map(|r| r.to - r.from).max().unwrap_or(0);
        for (i, group) in plan.groups.iter_mut().enumerate() {
            let longest = plan.rows.iter().filter(|r| r.group as usize == i).map(|r| r.to - r.from).max().unwrap_or(0);
            // At a common scale the 2 MiB segments of the small pool would be slivers beside a large segment.
            let is_small = longest > 0 && longest.saturating_mul(OWN_SCALE) <= plan.longest && choice.span == Span::TrueSize;
            group.across = if is_small { longest } else { plan.longest };
        }
        plan
    }

    /// Groups segments by pool, class and stream, and builds their units.
    fn gather(&mut self, device: &DeviceRecording, state: &State) {
        let mut keys: Vec<(bool, PoolId, SizeClass, StreamId)> =
            state.segments.iter().map(|s| (false, s.pool, s.class, s.stream)).collect();
        if !state.uncovered().is_empty() {
            keys.push((true, PoolId::UNKNOWN, SizeClass::Large, StreamId(0)));
        }
        let mut reserved: FxHashMap<_, u64> = FxHashMap::default();
        for s in &state.segments {
            *reserved.entry((false, s.pool, s.class, s.stream)).or_default() += s.size;
        }
        // Largest group first; equal ones by default pool, then by large segments within a pool.
        keys.sort_by_key(|key| {
            let &(outside, pool, class, stream) = key;
            let bytes = std::cmp::Reverse(reserved.get(key).copied().unwrap_or(0));
            (outside, bytes, device.pool_key(pool) != Some((0, 0)), pool, class == SizeClass::Small, stream)
        });
        keys.dedup();
        self.groups = keys
            .iter()
            .map(|&(outside, pool, class, stream)| Group {
                pool,
                class,
                stream,
                name: if outside {
                    "blocks whose segment was not recorded".to_owned()
                } else {
                    group_name(device, pool, class, stream)
                },
                is_expandable: false,
                is_reserved: !outside,
                segments: 0,
                reserved: 0,
                free: 0,
                across: 0,
            })
            .collect();
        let group_of = |s: &SegmentAt| keys.iter().position(|k| *k == (false, s.pool, s.class, s.stream)).unwrap_or(0) as u32;
        // The runs of one expandable segment are neighbours, because nothing else can be inside its address range.
        let reach = expandable_reach(device);
        for (i, segment) in state.segments.iter().enumerate() {
            let group = group_of(segment);
            if let Some(group) = self.groups.get_mut(group as usize).filter(|_| segment.is_expandable) {
                group.is_expandable = true;
            }
            let i = i as u32;
            match self.units.last_mut() {
                Some(last)
                    if segment.is_expandable
                        && last.group == group
                        && last.segments.end == i
                        && state.segments[i as usize - 1].is_expandable
                        && segment.address + segment.size - last.address <= reach =>
                {
                    last.segments.end = i + 1;
                    last.blocks.end = segment.blocks.end;
                    last.end = segment.address + segment.size;
                    last.reserved += segment.size;
                    last.age = last.age.min(age(segment.born));
                }
                _ => self.units.push(Unit {
                    group,
                    address: segment.address,
                    end: segment.address + segment.size,
                    segments: i..i + 1,
                    blocks: segment.blocks.clone(),
                    reserved: segment.size,
                    age: age(segment.born),
                    ..Unit::default()
                }),
            }
        }
        self.gather_uncovered(state);
        for unit in &mut self.units {
            for block in &state.blocks[unit.blocks.start as usize..unit.blocks.end as usize] {
                if block.state == BlockState::Inactive {
                    unit.free += block.size;
                    if block.size > unit.largest_hole {
                        (unit.largest_hole, unit.largest_at) = (block.size, block.address);
                    }
                }
            }
            if let Some(group) = self.groups.get_mut(unit.group as usize) {
                group.segments += unit.segments.len() as u32;
                group.reserved += unit.reserved;
                group.free += unit.free;
            }
        }
    }

    /// Builds units from blocks outside any segment; neighbours up to 2 MiB apart share a unit.
    fn gather_uncovered(&mut self, state: &State) {
        let outside = state.uncovered();
        let first = (state.blocks.len() - outside.len()) as u32;
        let group = self.groups.len().saturating_sub(1) as u32;
        for (i, block) in outside.iter().enumerate() {
            let i = first + i as u32;
            let end = block.address.saturating_add(block.size);
            match self.units.last_mut() {
                Some(last)
                    if last.segments.is_empty()
                        && last.blocks.end == i
                        && block.address >= last.address
                        && block.address.saturating_sub(last.end) <= 2 * MEBIBYTE =>
                {
                    last.blocks.end = i + 1;
                    last.end = last.end.max(end);
                }
                _ => self.units.push(Unit { group, address: block.address, end, blocks: i..i + 1, ..Unit::default() }),
            }
        }
    }

    /// One row per unit. With `fold`, neighbours of equal size share rows so that about [`FOLD_OVER`] rows remain.
    fn stack(&mut self, fold: bool) {
        let n = self.order.len();
        let share = if fold && n > FOLD_OVER { n.div_ceil(FOLD_OVER) } else { 1 };
        let mut at = 0;
        while at < n {
            let first = &self.units[self.order[at] as usize];
            let same = |&&i: &&u32| {
                let u = &self.units[i as usize];
                u.group == first.group && u.span() == first.span()
            };
            let count = self.order[at..].iter().take(share).take_while(same).count().max(1);
            let members = at as u32..(at + count) as u32;
            if count > 1 {
                self.folded += count as u32;
            }
            let largest = self.order[at..at + count].iter().map(|&i| &self.units[i as usize]);
            let (largest_hole, largest_at) =
                largest.rev().max_by_key(|u| u.largest_hole).map_or((0, 0), |u| (u.largest_hole, u.largest_at));
            self.rows.push(Row {
                units: members,
                from: 0,
                to: first.span(),
                lead: 0,
                group: first.group,
                largest_hole,
                largest_at,
                named: first.segments.clone(),
                is_start: true,
            });
            at += count;
        }
    }

    /// Wraps units onto lines of equal length. A group that is small beside the others gets shorter lines of its own.
    fn wrap(&mut self, state: &State) {
        self.is_wrapped = true;
        let spans: Vec<u64> = (0..self.groups.len() as u32)
            .map(|group| self.units.iter().filter(|u| u.group == group).map(Unit::span).sum())
            .collect();
        self.longest = wrap_bytes(&spans);
        for (group, span) in self.groups.iter_mut().zip(spans) {
            let is_small = span > 0 && span.saturating_mul(OWN_SCALE) <= self.longest;
            group.across = if is_small { span } else { self.longest };
        }
        let (mut lead, mut group) = (0, u32::MAX);
        for (place, &i) in self.order.iter().enumerate() {
            let unit = &self.units[i as usize];
            if unit.group != group {
                (lead, group) = (0, unit.group);
            }
            let line = self.groups.get(group as usize).map_or(self.longest, |g| g.across).max(1);
            let blocks = &state.blocks[unit.blocks.start as usize..unit.blocks.end as usize];
            let mut from = 0;
            while from < unit.span() {
                let to = (from + line - lead).min(unit.span());
                let starts = blocks_from(blocks, unit.address + from)..blocks_from(blocks, unit.address + to);
                let inactive =
                    blocks[starts.start.min(starts.end)..starts.end].iter().filter(|b| b.state == BlockState::Inactive);
                let largest = inactive.rev().max_by_key(|b| b.size);
                let (named, is_start) = named_in(state, unit, from, to);
                self.rows.push(Row {
                    units: place as u32..place as u32 + 1,
                    from,
                    to,
                    lead,
                    group,
                    largest_hole: largest.map_or(0, |b| b.size),
                    largest_at: largest.map_or(0, |b| b.address),
                    named,
                    is_start,
                });
                lead = (lead + to - from) % line;
                from = to;
            }
        }
    }

    pub fn line(&self, row: usize) -> Range<usize> {
        let first = (0..=row).rev().find(|&i| self.rows.get(i).is_none_or(|r| r.lead == 0)).unwrap_or(0);
        let end = (row + 1..self.rows.len()).find(|&i| self.rows[i].lead == 0).unwrap_or(self.rows.len());
        first..end
    }

    pub fn lines(&self) -> usize {
        self.rows.iter().filter(|r| r.lead == 0).count()
    }

    /// The unit of a row; the first one when several are folded.
    pub fn unit(&self, row: &Row) -> Option<&Unit> {
        self.order.get(row.units.start as usize).and_then(|&i| self.units.get(i as usize))
    }

    pub fn units_of<'a>(&'a self, row: &Row) -> impl Iterator<Item = &'a Unit> {
        self.order[row.units.start as usize..row.units.end as usize].iter().filter_map(|&i| self.units.get(i as usize))
    }

    pub fn row_of(&self, address: u64) -> Option<usize> {
        self.rows.iter().position(|row| {
            self.units_of(row).any(|u| {
                address.checked_sub(u.address).is_some_and(|offset| (row.from..row.to).contains(&offset)) && address < u.end
            })
        })
    }

    /// True when group headers are shown: there are several groups, or the only one is special.
    pub fn names_groups(&self) -> bool {
        self.groups.len() > 1 || self.groups.iter().any(|g| !g.is_reserved || g.is_expandable)
    }
}

/// The mapped runs that begin in a part of a unit, or else the run that reaches into it; and whether one begins there.
fn named_in(state: &State, unit: &Unit, from: u64, to: u64) -> (Range<u32>, bool) {
    let runs = &state.segments[unit.segments.start as usize..unit.segments.end as usize];
    let first_from = |offset: u64| runs.partition_point(|r| r.address < unit.address + offset) as u32;
    let (first, end) = (first_from(from), first_from(to));
    let at = unit.segments.start;
    if first < end {
        return (at + first..at + end, true);
    }
    let reaches = first.checked_sub(1).is_some_and(|i| {
        let run = &runs[i as usize];
        run.address + run.size > unit.address + from
    });
    // Blocks of an unknown segment form a unit without runs; its first row counts as its start.
    if reaches { (at + first - 1..at + first, false) } else { (at..at, runs.is_empty() && from == 0) }
}

/// The index of the first block that starts at or after an address.
fn blocks_from(blocks: &[BlockAt], address: u64) -> usize {
    blocks.partition_point(|b| b.address < address)
}

fn age(born: u32) -> i64 {
    if born == vramscope_core::tables::NO_EVENT { -1 } else { i64::from(born) }
}

/// Bytes per line: the smallest power of two from 2 MiB up that needs at most 48 lines (or one line per group).
fn wrap_bytes(groups: &[u64]) -> u64 {
    const LINES: u64 = 48;
    let mut bytes = 2 * MEBIBYTE;
    while bytes < 1 << 46 && groups.iter().map(|g| g.div_ceil(bytes)).sum::<u64>() > LINES.max(groups.len() as u64) {
        bytes *= 2;
    }
    bytes
}

/// The default for a recording. Wrapped when a few expandable segments hold everything, or when most segments of the largest
/// group would be very thin beside the longest one.
pub fn natural_span(device: &DeviceRecording, state: &State) -> Span {
    /// The longest segment is this many times as long as the median.
    const UNEVEN: u64 = 8;
    const MANY: usize = 12;
    let plan = Plan::new(device, state, Choice { order: Order::Address, span: Span::TrueSize, fold: false });
    let is_expandable = state.segments.iter().any(|s| s.is_expandable);
    if (1..=10).contains(&plan.units.len()) && is_expandable && plan.longest >= 64 * MEBIBYTE {
        return Span::Wrapped;
    }
    let mut spans: Vec<u64> = plan.units.iter().filter(|u| u.group == 0 && !u.segments.is_empty()).map(Unit::span).collect();
    spans.sort_unstable();
    let middle = spans.get(spans.len() / 2).copied().unwrap_or(0);
    let is_uneven = spans.len() >= MANY && spans.last().is_some_and(|&longest| longest >= middle.saturating_mul(UNEVEN));
    if is_uneven { Span::Wrapped } else { Span::TrueSize }
}

fn group_name(device: &DeviceRecording, pool: PoolId, class: SizeClass, stream: StreamId) -> String {
    let class = class.name();
    let pool = match device.pool_key(pool) {
        Some((0, 0)) => format!("{class} pool"),
        Some((a, b)) => format!("private pool ({a}, {b}), {class}"),
        None => format!("{class}, pool not recorded"),
    };
    let stream = match device.streams.get(usize::from(stream.0)).copied().unwrap_or(0) {
        0 => "default stream".to_owned(),
        _ => format!("stream {}", stream.0),
    };
    format!("{pool}, {stream}")
}

/// For each group, whether it could serve the request that failed at the state's event.
pub fn serves(device: &DeviceRecording, plan: &Plan, state: &State) -> Vec<bool> {
    let servers = Servers::of_oom(device, state.event);
    let mut out = vec![false; plan.groups.len()];
    let Some((servers, _)) = servers else { return out };
    for unit in &plan.units {
        let segment = state.segments.get(unit.segments.start as usize).filter(|_| !unit.segments.is_empty());
        if let (Some(served), Some(segment)) = (out.get_mut(unit.group as usize), segment) {
            *served |= servers.take(segment);
        }
    }
    out
}

#[cfg(test)]
mod tests;
