use super::*;
use crate::app::views::segment_map::places::Places;
use vramscope_core::model::StackId;
use vramscope_core::tables::{LifetimeId, NO_EVENT};

fn block(address: u64, size: u64, live: bool) -> BlockAt {
    BlockAt {
        address,
        size,
        requested: if live { size } else { 0 },
        state: if live { BlockState::Active } else { BlockState::Inactive },
        lifetime: if live { LifetimeId(0) } else { LifetimeId::NONE },
    }
}

fn segment(address: u64, size: u64, expandable: bool, blocks: Range<u32>) -> SegmentAt {
    SegmentAt {
        address,
        size,
        stream: StreamId(0),
        pool: PoolId(0),
        class: SizeClass::Large,
        is_expandable: expandable,
        born: NO_EVENT,
        stack: StackId::NONE,
        blocks,
    }
}

fn device() -> DeviceRecording {
    DeviceRecording { pools: vec![(0, 0)], streams: vec![0], ..DeviceRecording::default() }
}

const PLAIN: Choice = Choice { order: Order::Address, span: Span::TrueSize, fold: true };

/// `n` segments of 100 bytes. Segment i has a hole of i % 50 bytes at its end.
fn many(n: u64) -> State {
    let mut state = State::default();
    for i in 0..n {
        let at = 1000 * i;
        let hole = i % 50;
        let first = state.blocks.len() as u32;
        state.blocks.push(block(at, 100 - hole, true));
        if hole > 0 {
            state.blocks.push(block(at + 100 - hole, hole, false));
        }
        state.segments.push(segment(at, 100, false, first..state.blocks.len() as u32));
    }
    state
}

#[test]
fn a_pool_of_short_segments_has_a_scale_of_its_own() {
    use crate::app::views::segment_map::runs::{RowScale, Window};
    let group = |across| Group {
        pool: PoolId(0),
        class: SizeClass::Small,
        stream: StreamId(0),
        name: String::new(),
        is_expandable: false,
        is_reserved: true,
        segments: 1,
        reserved: 0,
        free: 0,
        across,
    };
    let row =
        |group, to| Row { units: 0..1, from: 0, to, lead: 0, group, largest_hole: 0, largest_at: 0, named: 0..1, is_start: true };
    let (short, long) = (2 * MEBIBYTE, 32 * MEBIBYTE);
    let plan = Plan {
        groups: vec![group(long), group(short)],
        rows: vec![row(0, long), row(1, short)],
        longest: long,
        ..Plan::default()
    };
    let window = Window { from: 0.0, to: 1.0, pixels: 100 };
    let end = |r: &Row| RowScale::new(&plan, r, Span::TrueSize, window).pixel(r.to);
    assert_eq!((end(&plan.rows[0]), end(&plan.rows[1])), (100.0, 100.0));
}

#[test]
fn every_segment_has_a_row_until_there_are_too_many() {
    let few = Plan::new(&device(), &many(240), PLAIN);
    assert_eq!((few.rows.len(), few.folded), (240, 0));
    let folded = Plan::new(&device(), &many(2400), PLAIN);
    assert_eq!((folded.rows.len(), folded.folded), (240, 2400));
    assert_eq!(folded.rows.iter().map(|r| r.units.len()).sum::<usize>(), 2400);
    assert_eq!(folded.rows.iter().map(|r| r.largest_hole).max(), Some(49), "folding keeps the largest hole");
    let open = Plan::new(&device(), &many(2400), Choice { fold: false, ..PLAIN });
    assert_eq!(open.rows.len(), 2400);
    assert_eq!(open.row_of(1000 * 77 + 5), Some(77));
    assert_eq!(folded.row_of(1000 * 77 + 5), Some(7));
    assert_eq!(open.row_of(1000 * 77 + 500), None);
}

#[test]
fn rows_follow_the_order_asked_for() {
    let plan = Plan::new(&device(), &many(60), Choice { order: Order::LargestHole, ..PLAIN });
    assert!(plan.rows.windows(2).all(|w| w[0].largest_hole >= w[1].largest_hole));
    assert_eq!(plan.groups[0].free, plan.units.iter().map(|u| u.free).sum::<u64>());
}

#[test]
fn runs_of_an_expandable_segment_share_a_row_and_leave_what_is_unmapped() {
    let mut state = State { blocks: vec![block(0, 40, true), block(60, 40, false)], ..State::default() };
    state.segments = vec![segment(0, 40, true, 0..1), segment(60, 40, true, 1..2)];
    let plan = Plan::new(&device(), &state, PLAIN);
    assert_eq!(plan.rows.len(), 1);
    let unit = &plan.units[0];
    assert_eq!((unit.span(), unit.reserved, unit.free, unit.segments.clone()), (100, 80, 40, 0..2));
    state.segments.iter_mut().for_each(|s| s.is_expandable = false);
    assert_eq!(Plan::new(&device(), &state, PLAIN).rows.len(), 2);
}

#[test]
fn wrapped_rows_cover_a_unit_once() {
    let size = 300 * MEBIBYTE;
    let mut state = State { blocks: vec![block(0, size, true)], ..State::default() };
    state.segments = vec![segment(0, size, true, 0..1)];
    let plan = Plan::new(&device(), &state, Choice { span: Span::Wrapped, ..PLAIN });
    assert_eq!(plan.longest, 8 * MEBIBYTE);
    assert_eq!(plan.rows.len(), 38);
    assert!(plan.rows.windows(2).all(|w| w[0].to == w[1].from));
    assert_eq!(plan.rows.last().map(|r| r.to), Some(size));
    assert_eq!(natural_span(&device(), &state), Span::Wrapped);
}

/// Segments of 3 and 2 MiB on lines of 2 MiB: the second one begins on the line on which the first one ends.
#[test]
fn segments_share_lines_where_they_are_wrapped() {
    const MIB: u64 = MEBIBYTE;
    let mut state = State { blocks: vec![block(0, 3 * MIB, true), block(8 * MIB, 2 * MIB, true)], ..State::default() };
    state.segments = vec![segment(0, 3 * MIB, false, 0..1), segment(8 * MIB, 2 * MIB, false, 1..2)];
    let plan = Plan::new(&device(), &state, Choice { span: Span::Wrapped, ..PLAIN });
    let rows: Vec<_> = plan.rows.iter().map(|r| (r.units.start, r.from / MIB, r.to / MIB, r.lead / MIB)).collect();
    assert_eq!(rows, [(0, 0, 2, 0), (0, 2, 3, 0), (1, 0, 1, 1), (1, 1, 2, 0)]);
    assert_eq!((plan.lines(), plan.line(2), plan.line(3)), (3, 1..3, 3..4));
    let places = Places::new(&plan, 10.0);
    assert_eq!((places.tops[2], places.height), (places.tops[1], places.tops[0] + 30.0));
}

#[test]
fn segments_of_unlike_size_are_wrapped_by_themselves() {
    let mut state = State::default();
    for i in 0..16u64 {
        let size = if i == 0 { 400 * MEBIBYTE } else { 20 * MEBIBYTE };
        let first = state.blocks.len() as u32;
        state.blocks.push(block(i << 30, size, true));
        state.segments.push(segment(i << 30, size, false, first..first + 1));
    }
    assert_eq!(natural_span(&device(), &state), Span::Wrapped);
    state.segments[0].size = 40 * MEBIBYTE;
    state.blocks[0].size = 40 * MEBIBYTE;
    assert_eq!(natural_span(&device(), &state), Span::TrueSize);
}

#[test]
fn an_empty_state_has_no_rows() {
    let plan = Plan::new(&device(), &State::default(), PLAIN);
    assert!(plan.rows.is_empty() && plan.groups.is_empty());
    assert_eq!(Places::new(&plan, 8.0).at(0.0), None);
}

/// Three runs of one expandable segment: 20 MiB, then 8 MiB, then 10 MiB behind an unmapped part.
fn three_runs() -> State {
    const MIB: u64 = MEBIBYTE;
    let mut state = State::default();
    for (address, size, hole) in [(0, 20, 2), (26, 8, 3), (48, 10, 4)] {
        let first = state.blocks.len() as u32;
        state.blocks.push(block(address * MIB, (size - hole) * MIB, true));
        state.blocks.push(block((address + size - hole) * MIB, hole * MIB, false));
        state.segments.push(segment(address * MIB, size * MIB, true, first..first + 2));
    }
    state
}

#[test]
fn a_wrapped_row_names_the_runs_that_are_in_it() {
    let plan = Plan::new(&device(), &three_runs(), Choice { span: Span::Wrapped, ..PLAIN });
    assert_eq!((plan.units.len(), plan.longest, plan.rows.len()), (1, 2 * MEBIBYTE, 29));
    let named = |row: usize| (plan.rows[row].named.clone(), plan.rows[row].is_start);
    assert_eq!(named(0), (0..1, true));
    assert_eq!(named(9), (0..1, false), "goes on");
    assert!(named(10).0.is_empty(), "20 to 22 MiB: nothing is mapped");
    assert_eq!(named(13), (1..2, true));
    assert_eq!(named(16), (1..2, false));
    assert_eq!(named(24), (2..3, true));
    assert_eq!(named(28), (2..3, false), "the last row is of the last run");
    let hole = |row: usize| (plan.rows[row].largest_at, plan.rows[row].largest_hole);
    assert_eq!(hole(27), (54 * MEBIBYTE, 4 * MEBIBYTE));
    assert_eq!(hole(28), (0, 0), "a hole is counted where it begins");
    let whole = Plan::new(&device(), &three_runs(), PLAIN);
    assert_eq!((whole.rows[0].named.clone(), whole.rows[0].largest_at), (0..3, 54 * MEBIBYTE));
}

#[test]
fn the_pool_that_holds_most_stands_first() {
    let mut state = many(4);
    for s in &mut state.segments[1..] {
        s.pool = PoolId(1);
    }
    let device = DeviceRecording { pools: vec![(0, 0), (0, 1)], ..device() };
    let plan = Plan::new(&device, &state, PLAIN);
    let held: Vec<(PoolId, u64)> = plan.groups.iter().map(|g| (g.pool, g.reserved)).collect();
    assert_eq!(held, [(PoolId(1), 300), (PoolId(0), 100)]);
}
