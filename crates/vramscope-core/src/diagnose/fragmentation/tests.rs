use super::*;
use crate::model::{BlockState, DeviceRecording, PoolId, SizeClass, StackId, StreamId};
use crate::tables::{BlockAt, LifetimeId, NO_EVENT, SegmentAt, State};
use crate::units::MEBIBYTE;

/// Segments as text, one string each: a digit is that many live MiB, a `.` one free MiB.
fn state(segments: &[&str]) -> State {
    let mut s = State { event: NO_EVENT, ..State::default() };
    let mut address = 1 << 40;
    for text in segments {
        let start = s.blocks.len() as u32;
        let first = address;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            let mut size = MEBIBYTE;
            let free = c == '.';
            if free {
                while chars.next_if_eq(&'.').is_some() {
                    size += MEBIBYTE;
                }
            } else {
                size = u64::from(c.to_digit(10).unwrap()) * MEBIBYTE;
            }
            let block_state = if free { BlockState::Inactive } else { BlockState::Active };
            s.blocks.push(BlockAt { address, size, requested: 0, state: block_state, lifetime: LifetimeId(0) });
            address += size;
        }
        s.segments.push(SegmentAt {
            address: first,
            size: address - first,
            stream: StreamId(0),
            pool: PoolId(0),
            class: SizeClass::Large,
            is_expandable: false,
            born: NO_EVENT,
            stack: StackId::NONE,
            blocks: start..s.blocks.len() as u32,
        });
        address += 64 * MEBIBYTE;
    }
    s
}

const LARGE: Servers = Servers { class: SizeClass::Large, stream: None, pool: None };

#[test]
fn holes_are_counted_per_pool() {
    let s = state(&["1..2...", "3.", "...."]);
    let all = holes(&s, Some(&LARGE));
    assert_eq!((all.count, all.bytes / MEBIBYTE, all.largest / MEBIBYTE), (4, 10, 4));
    assert_eq!(holes(&s, Some(&Servers { class: SizeClass::Small, ..LARGE })), Holes::default());
}

#[test]
fn blockers_rank_by_what_they_strand() {
    let s = state(&["..1...", "2.3"]);
    let b = blockers(&s, None);
    assert_eq!((b[0].strands() / MEBIBYTE, b[0].hole_if_freed() / MEBIBYTE, b[0].is_last_in_segment), (5, 6, true));
    assert_eq!(b.len(), 3);
}

/// Random small states. Each block is really removed; then compares the hole at its place, and whether its segment is empty.
#[test]
fn blockers_are_what_taking_each_block_out_shows() {
    use proptest::prelude::*;
    let pieces = prop::collection::vec(prop_oneof![3 => Just(0u64), 4 => 1u64..10], 1..8);
    let segments = prop::collection::vec(pieces, 1..5);
    proptest!(ProptestConfig::with_cases(300), |(segments in segments)| {
        let texts: Vec<String> = segments
            .iter()
            .map(|pieces| pieces.iter().map(|&p| if p == 0 { ".".to_owned() } else { p.to_string() }).collect())
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let s = state(&texts);
        let found = blockers(&s, None);
        let mut expected = 0;
        for (at, text) in texts.iter().enumerate() {
            // MiB by MiB, which block covers it; `None` is free.
            let range = s.segments[at].blocks.start as usize..s.segments[at].blocks.end as usize;
            let mut cover: Vec<Option<usize>> = Vec::new();
            for i in range.clone() {
                let is_free = s.blocks[i].state == BlockState::Inactive;
                cover.extend(std::iter::repeat_n((!is_free).then_some(i), (s.blocks[i].size / MEBIBYTE) as usize));
            }
            for i in range.filter(|&i| s.blocks[i].state != BlockState::Inactive) {
                let without: Vec<bool> = cover.iter().map(|&c| c.is_none() || c == Some(i)).collect();
                let place = cover.iter().position(|&c| c == Some(i)).unwrap();
                let left = without[..place].iter().rev().take_while(|&&free| free).count();
                let right = without[place..].iter().take_while(|&&free| free).count();
                let hole = (left + right) as u64 * MEBIBYTE;
                let blocker = found.iter().find(|b| b.block == i);
                if hole == s.blocks[i].size {
                    prop_assert!(blocker.is_none(), "{text}: block {i} touches no hole");
                    continue;
                }
                expected += 1;
                let b = blocker.unwrap();
                prop_assert_eq!((b.hole_if_freed(), b.strands(), b.segment), (hole, hole - s.blocks[i].size, at), "{}", text);
                prop_assert_eq!(b.is_last_in_segment, without.iter().all(|&free| free), "{}", text);
            }
        }
        prop_assert_eq!(found.len(), expected);
        prop_assert!(found.windows(2).all(|w| w[0].strands() >= w[1].strands()), "{:?}", found);
    });
}

#[test]
fn the_cheapest_hole_is_the_cheapest_of_all_windows() {
    let texts = ["1..2.3...1..", "4....4....1.1.", ".9."];
    let s = state(&texts);
    for request in 1..=12u64 {
        let found = cheapest_hole(&s, &LARGE, request * MEBIBYTE);
        // Brute force over every window of every segment.
        let mut best = u64::MAX;
        for segment in &s.segments {
            let blocks = s.blocks_of(segment);
            for a in 0..blocks.len() {
                for b in a..blocks.len() {
                    if blocks[a..=b].iter().map(|x| x.size).sum::<u64>() >= request * MEBIBYTE {
                        best = best.min(blocks[a..=b].iter().filter(|x| x.state != BlockState::Inactive).map(|x| x.size).sum());
                    }
                }
            }
        }
        assert_eq!(found.map(|w| w.bytes), Some(best), "{request} MiB");
    }
    assert_eq!(cheapest_hole(&s, &LARGE, 100 * MEBIBYTE), None);
}

#[test]
fn the_cheapest_release_is_the_cheapest_of_all_subsets() {
    let s = state(&["1.1.", "4..4", "2......1.", "9.", "1.2.3.2.......", "......"]);
    for need in 1..=40u64 {
        let found = cheapest_release(&DeviceRecording::default(), &s, need * MEBIBYTE);
        let mut best: Option<u64> = None;
        for set in 0u32..1 << s.segments.len() {
            let chosen = || (0..s.segments.len()).filter(|i| set >> i & 1 == 1).map(|i| &s.segments[i]);
            // In steps of 2 MiB: a segment with an odd number of MiB frees only whole steps.
            let freed: u64 = chosen().map(|x| x.size / (2 * MEBIBYTE)).sum();
            if freed >= (need * MEBIBYTE).div_ceil(2 * MEBIBYTE) {
                let cost =
                    chosen().flat_map(|x| s.blocks_of(x)).filter(|b| b.state != BlockState::Inactive).map(|b| b.size).sum();
                best = Some(best.map_or(cost, |b: u64| b.min(cost)));
            }
        }
        if let Some(best) = best {
            assert_eq!(found.map(|w| (w.bytes, w.is_optimal)), Some((best, true)), "{need} MiB");
        }
    }
}

/// Whether a request succeeds without some live blocks. Expandable segments release pages of `page` bytes.
fn succeeds(s: &State, gone: &[usize], request: u64, need: u64, page: u64) -> bool {
    let is_free = |i: usize| s.blocks[i].state == BlockState::Inactive || gone.contains(&i);
    let (mut fits, mut released) = (false, 0);
    for segment in &s.segments {
        let range = segment.blocks.start as usize..segment.blocks.end as usize;
        let mut run = 0;
        for i in range.clone() {
            run = if is_free(i) { run + s.blocks[i].size } else { 0 };
            fits |= run >= request;
        }
        if segment.is_expandable {
            // Byte ranges of pages, each compared with every live block.
            for n in 0..segment.size / page {
                let (from, to) = (segment.address + n * page, segment.address + (n + 1) * page);
                let touches = |i: usize| s.blocks[i].address < to && s.blocks[i].address + s.blocks[i].size > from;
                released += if range.clone().any(|i| touches(i) && !is_free(i)) { 0 } else { page };
            }
        } else if range.clone().all(is_free) {
            released += segment.size;
        }
    }
    fits || released >= need
}

/// Random small states with whole and expandable segments: for every subset of live blocks, does the request succeed without it?
#[test]
fn the_cheapest_way_out_is_the_cheapest_of_all_sets_of_blocks() {
    use proptest::prelude::*;
    // Pieces of 2 MiB, so that every segment is a multiple as the driver's are; pages of 6 MiB.
    const PAGE: u64 = 6 * MEBIBYTE;
    let mut device = DeviceRecording::default();
    device.settings.conf.large_segment_size = PAGE;
    let pieces = prop::collection::vec(prop_oneof![3 => Just(0u64), 4 => 1u64..5], 1..7);
    let segments = prop::collection::vec((pieces, any::<bool>()), 1..4);
    proptest!(ProptestConfig::with_cases(600), |(segments in segments, request in 1u64..14, room in 0u64..8)| {
        let texts: Vec<String> = segments
            .iter()
            .map(|(pieces, is_expandable)| {
                let mut text: String =
                    pieces.iter().map(|&p| if p == 0 { "..".to_owned() } else { (2 * p).to_string() }).collect();
                // Mapped memory consists of whole pages.
                let over = pieces.iter().map(|&p| p.max(1)).sum::<u64>() % 3;
                if *is_expandable && over > 0 {
                    text.push_str(&"..".repeat(3 - over as usize));
                }
                text
            })
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let mut s = state(&texts);
        for (segment, (_, is_expandable)) in s.segments.iter_mut().zip(&segments) {
            segment.is_expandable = *is_expandable;
        }
        let (request, room) = (request * 2 * MEBIBYTE, room * 2 * MEBIBYTE);
        let need = request.saturating_sub(room);
        let live: Vec<usize> = (0..s.blocks.len()).filter(|&i| s.blocks[i].state != BlockState::Inactive).collect();
        prop_assume!(live.len() <= 12 && need > 0);
        let mut best: Option<u64> = None;
        for set in 0u32..1 << live.len() {
            let gone: Vec<usize> = live.iter().enumerate().filter(|(k, _)| set >> k & 1 == 1).map(|(_, &i)| i).collect();
            let cost: u64 = gone.iter().map(|&i| s.blocks[i].size).sum();
            if best.is_none_or(|best| cost < best) && succeeds(&s, &gone, request, need, PAGE) {
                best = Some(cost);
            }
        }
        if !succeeds(&s, &[], request, need, PAGE) {
            let alone = enough_alone(&device, &s, &LARGE, request, need);
            // Blockers whose removal is sufficient must be found.
            let spare = super::release::held_alone(&device, &s).spare;
            for b in blockers_with_segments(&device, &s, &LARGE) {
                let is_enough = b.hole_if_freed() >= request || (b.returns > 0 && b.returns + spare >= need);
                prop_assert_eq!(is_enough, succeeds(&s, &[b.block], request, need, PAGE), "{:?}", b);
            }
            let singles = live.iter().filter(|&&i| succeeds(&s, &[i], request, need, PAGE)).map(|&i| s.blocks[i].size);
            let singles: Vec<u64> = singles.collect();
            prop_assert_eq!((alone.count, alone.smallest.map(|x| x.size)), (singles.len(), singles.iter().copied().min()));
        }
        let found = cheapest_plan(&device, &s, &LARGE, request, need);
        prop_assert_eq!(found.as_ref().map(|w| w.bytes), best, "{:?} request {}", texts, request);
        if let Some(plan) = found {
            prop_assert!(plan.is_optimal);
            prop_assert_eq!(plan.blocks.iter().map(|&i| s.blocks[i].size).sum::<u64>(), plan.bytes);
            prop_assert!(succeeds(&s, &plan.blocks, request, need, PAGE));
            if plan.kind == RoomKind::Release {
                // The plan's `room` must be exactly what returns.
                prop_assert!(succeeds(&s, &plan.blocks, u64::MAX, plan.room, PAGE));
            }
        }
    });
}

/// The choice by price, used when there are too many choices, is sufficient; it is the cheapest if its bytes are met exactly.
#[test]
fn what_is_chosen_by_price_is_enough() {
    let s = state(&["1.1.", "4..4", "2......1.", "9.", "1.2.3.2.......", "......", "1.1.", "1.1.", "1.1."]);
    let device = DeviceRecording::default();
    for need in 1..=60u64 {
        let Some(exact) = cheapest_release(&device, &s, need * MEBIBYTE) else { continue };
        let priced = super::release::by_price(&device, &s, need * MEBIBYTE);
        assert!(priced.room >= need * MEBIBYTE && priced.bytes >= exact.bytes, "{need} MiB");
        assert!(
            !priced.is_optimal && priced.bytes <= exact.bytes + 9 * MEBIBYTE,
            "{need} MiB: {} against {}",
            priced.bytes,
            exact.bytes
        );
    }
}

/// Segments that serve other requests count by what they return; a private pool's segment never returns.
#[test]
fn blockers_elsewhere_are_those_that_alone_hold_a_segment() {
    let mut s = state(&["1...", "2.......", "1.1.....", "3..", "1......."]);
    for at in 1..5 {
        s.segments[at].stream = StreamId(1);
    }
    s.segments[4].pool = PoolId(1);
    let device = DeviceRecording { pools: vec![(0, 0), (0, 7)], streams: vec![0, 0x5555], ..DeviceRecording::default() };
    let servers = Servers { stream: Some(StreamId(0)), pool: Some(PoolId(0)), ..LARGE };
    let found: Vec<_> = blockers_with_segments(&device, &s, &servers)
        .iter()
        .map(|b| (b.segment, b.strands() / MEBIBYTE, b.appears() / MEBIBYTE, servers.whose(&device, &s.segments[b.segment])))
        .collect();
    let theirs = || Some("of stream 1 (0x5555)".to_owned());
    assert_eq!(found, [(1, 7, 9, theirs()), (0, 3, 4, None), (3, 2, 5, theirs())]);
    assert_eq!(s.segment_of(found.len()), Some(1));
}

#[test]
fn segments_of_private_pools_do_not_go_back() {
    let mut s = state(&["2......", "4......"]);
    s.segments[0].pool = PoolId(1);
    let device = DeviceRecording { pools: vec![(0, 0), (0, 7)], ..DeviceRecording::default() };
    let servers = Servers { pool: Some(PoolId(0)), ..LARGE };
    let plan = cheapest_plan(&device, &s, &servers, 20 * MEBIBYTE, 8 * MEBIBYTE).unwrap();
    assert_eq!((plan.kind, plan.segments, plan.bytes), (RoomKind::Release, vec![1], 4 * MEBIBYTE));
}

#[test]
fn a_request_of_nothing_is_answered() {
    let s = state(&["1.2", "3", "."]);
    assert_eq!(cheapest_hole(&s, &LARGE, 0).map(|w| w.bytes), Some(0));
    assert_eq!(cheapest_hole(&state(&["12"]), &LARGE, 0).map(|w| w.bytes), Some(MEBIBYTE));
    assert_eq!(cheapest_hole(&state(&[]), &LARGE, 0), None);
}

#[test]
fn pages_of_one_block_or_hole_are_one_piece_however_many() {
    // 128 TiB in three blocks: the size must not affect the cost.
    let mut s = state(&["1.1"]);
    let segment = &mut s.segments[0];
    segment.is_expandable = true;
    // Whole pages, as the driver maps them.
    segment.size = (1 << 47) / (20 * MEBIBYTE) * (20 * MEBIBYTE);
    s.blocks[1].size = segment.size - 2 * MEBIBYTE;
    s.blocks[2].address = segment.address + segment.size - MEBIBYTE;
    let device = DeviceRecording::default();
    let since = std::time::Instant::now();
    let plan = cheapest_release(&device, &s, 1 << 46).unwrap();
    assert_eq!((plan.bytes, plan.blocks.len()), (0, 0));
    assert!(plan.room >= 1 << 46 && plan.pages as u64 == plan.room / (20 * MEBIBYTE), "{plan:?}");
    assert_eq!(enough_alone(&device, &s, &LARGE, 1 << 48, 1 << 40).count, 2);
    assert!(since.elapsed().as_secs_f64() < 5.0, "{:?}", since.elapsed());
}
