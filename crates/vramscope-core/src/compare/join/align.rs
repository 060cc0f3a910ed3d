//! Aligns two lists of memory events: finds pairs of rows for the same event, and the clocks' offset. Works on times and keys only.
//!
//! Both clocks count from the epoch, but Kineto and the allocator convert the cycle counter separately. So times of one event
//! differ by microseconds, or by hundreds of them when a thread was interrupted in between. The order is certain: an allocator
//! serves one request at a time, so two records of one run have the same addresses in the same order. A vote of equal keys gives
//! the offset; then both lists are walked together in order.

use rustc_hash::FxHashMap;

/// One allocation or free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Microseconds since the epoch.
    pub time_us: i64,
    /// The value that must be equal: address or size, combined with whether it is an allocation.
    pub key: u64,
    /// Index of its event.
    pub event: u32,
}

/// The alignment of two lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    /// Added to a time of the first list it gives a time of the second.
    pub offset_us: i64,
    /// Pairs of events of the first and the second list, in order.
    pub pairs: Vec<(u32, u32)>,
    /// Number of rows of the first list within the time of the second.
    pub expected: u64,
    /// Number of rows of the second list within the time of the first.
    pub facing: u64,
    /// Median distance of a pair after the shift.
    pub typical_us: i64,
    /// Maximum distance of a pair after the shift.
    pub widest_us: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// Too few rows to compare.
    Nothing,
    /// Too few rows have a partner.
    Few { matched: u64, expected: u64 },
    /// Two offsets fit equally well.
    Ambiguous { first_us: i64, second_us: i64 },
}

/// Maximum distance of a pair after the shift: a thread can be interrupted between the two records of one event.
const TOLERANCE_US: i64 = 1_000;
/// Width of a vote's bucket.
const BUCKET_US: i64 = 512;
/// Number of rows that vote.
const VOTERS: usize = 2_048;
/// Keys with more partners do not vote: keys that recur all the time say little.
const PARTNERS: usize = 4_096;
/// Number of offsets that are tried.
const CANDIDATES: usize = 8;
/// Minimum number of pairs that prove anything.
const FEWEST: usize = 8;
/// Number of rows to look ahead for the next match.
const AHEAD: usize = 64;

/// Aligns `a` with `b`, both in event order. O((a + b) log b) plus the vote, which is bounded.
pub(super) fn align(a: &[Row], b: &[Row]) -> Result<Fit, Misfit> {
    if a.len() < FEWEST || b.len() < FEWEST {
        return Err(Misfit::Nothing);
    }
    let mut index: FxHashMap<u64, Vec<u32>> = FxHashMap::default();
    for (i, row) in b.iter().enumerate() {
        index.entry(row.key).or_default().push(i as u32);
    }
    let mut fits: Vec<Fit> = Vec::new();
    for offset in candidates(a, b, &index) {
        // Offsets of neighbouring buckets give the same result.
        if fits.iter().any(|f| (f.offset_us - offset).abs() <= TOLERANCE_US) {
            continue;
        }
        if let Some(fit) = lay(a, b, &index, offset) {
            if let Some(same) = fits.iter_mut().find(|f| (f.offset_us - fit.offset_us).abs() <= TOLERANCE_US) {
                if fit.pairs.len() > same.pairs.len() {
                    *same = fit;
                }
            } else {
                fits.push(fit);
            }
        }
    }
    fits.sort_by_key(|f| (std::cmp::Reverse(f.pairs.len()), f.typical_us));
    let Some(best) = fits.first() else { return Err(Misfit::Few { matched: 0, expected: a.len() as u64 }) };
    let is_enough = |f: &Fit| {
        let matched = f.pairs.len() as u64;
        matched >= FEWEST as u64 && matched * 10 >= f.expected * 9 && matched * 2 >= f.facing
    };
    // A program that repeats itself exactly also fits shifted by one step, but with larger distances.
    let nearly = |f: &&Fit| f.pairs.len() * 50 >= best.pairs.len() * 49 && is_enough(f);
    let rivals: Vec<&Fit> = fits.iter().filter(nearly).collect();
    let Some(chosen) = rivals.iter().copied().min_by_key(|f| (f.typical_us, std::cmp::Reverse(f.pairs.len()))) else {
        return Err(Misfit::Few { matched: best.pairs.len() as u64, expected: best.expected.max(best.facing) });
    };
    if let Some(other) = rivals.iter().find(|f| f.offset_us != chosen.offset_us && f.typical_us <= chosen.typical_us * 4 + 4) {
        return Err(Misfit::Ambiguous { first_us: chosen.offset_us, second_us: other.offset_us });
    }
    Ok(chosen.clone())
}

/// Offsets with many votes, most votes first.
fn candidates(a: &[Row], b: &[Row], index: &FxHashMap<u64, Vec<u32>>) -> Vec<i64> {
    let mut votes: FxHashMap<i64, u32> = FxHashMap::default();
    let step = a.len().div_ceil(VOTERS);
    let voters = || a.iter().step_by(step);
    for row in voters() {
        let Some(partners) = index.get(&row.key).filter(|p| p.len() <= PARTNERS) else { continue };
        for &j in partners {
            *votes.entry((b[j as usize].time_us - row.time_us).div_euclid(BUCKET_US)).or_default() += 1;
        }
    }
    let with_neighbour = |bucket: i64| votes.get(&bucket).copied().unwrap_or(0) + votes.get(&(bucket + 1)).copied().unwrap_or(0);
    let mut buckets: Vec<(u32, i64)> = votes.keys().map(|&k| (with_neighbour(k), k)).collect();
    buckets.sort_unstable_by_key(|&(n, k)| (std::cmp::Reverse(n), k.abs(), k));
    // If a vote falls on the border of two buckets, both are in the list; keep one.
    let mut chosen: Vec<i64> = Vec::new();
    for (_, bucket) in buckets {
        if chosen.len() < CANDIDATES && chosen.iter().all(|c| (c - bucket).abs() > 1) {
            chosen.push(bucket);
        }
    }
    chosen
        .into_iter()
        .map(|bucket| {
            let range = bucket * BUCKET_US..(bucket + 2) * BUCKET_US;
            let mut offsets: Vec<i64> = voters()
                .filter_map(|row| Some((row, index.get(&row.key)?)))
                .filter(|(_, partners)| partners.len() <= PARTNERS)
                .flat_map(|(row, partners)| partners.iter().map(|&j| b[j as usize].time_us - row.time_us))
                .filter(|offset| range.contains(offset))
                .collect();
            median(&mut offsets).unwrap_or(bucket * BUCKET_US)
        })
        .collect()
}

fn median(values: &mut [i64]) -> Option<i64> {
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable(middle).1)
}

/// Walks both lists in order, with the clocks `offset` apart.
fn lay(a: &[Row], b: &[Row], index: &FxHashMap<u64, Vec<u32>>, offset: i64) -> Option<Fit> {
    let apart = |x: &Row, y: &Row| y.time_us - x.time_us - offset;
    let is_pair = |x: &Row, y: &Row| x.key == y.key && apart(x, y).abs() <= TOLERANCE_US;
    let run = |i: usize, j: usize, most: usize| {
        a[i.min(a.len())..].iter().zip(&b[j.min(b.len())..]).take(most).take_while(|(x, y)| is_pair(x, y)).count()
    };
    let mut found: Vec<(usize, usize)> = Vec::new();
    let (mut i, mut next) = (0, 0);
    while i < a.len() {
        // Candidates for row i: positions in the right time range with its key. Take the one after which most rows match.
        let target = a[i].time_us.saturating_add(offset);
        let places = index.get(&a[i].key).map_or(&[][..], Vec::as_slice);
        let near = places.partition_point(|&j| b[j as usize].time_us < target - TOLERANCE_US);
        let anchor = places[near..]
            .iter()
            .map(|&j| j as usize)
            .take_while(|&j| b[j].time_us <= target + TOLERANCE_US)
            .filter(|&j| j >= next)
            .map(|j| (run(i, j, 16), std::cmp::Reverse(apart(&a[i], &b[j]).abs()), std::cmp::Reverse(j)))
            .max();
        let Some((length, _, std::cmp::Reverse(mut j))) = anchor else {
            i += 1;
            continue;
        };
        // A few matching rows among others are chance, unless the list ends there.
        if length < 4 && i + length < a.len() && j + length < b.len() {
            i += 1;
            continue;
        }
        loop {
            let same = run(i, j, usize::MAX);
            found.extend((0..same).map(|k| (i + k, j + k)));
            (i, j) = (i + same, j + same);
            let Some((skip_a, skip_b)) = meet_again(i, j, &run, a.len(), b.len()) else { break };
            pair_up(a, b, (i..i + skip_a, j..j + skip_b), &is_pair, &mut found);
            (i, j) = (i + skip_a, j + skip_b);
        }
        next = j;
        i += 1;
    }
    if found.is_empty() {
        return None;
    }
    let mut offsets: Vec<i64> = found.iter().map(|&(i, j)| b[j].time_us - a[i].time_us).collect();
    let offset_us = median(&mut offsets)?;
    let mut widths: Vec<i64> = offsets.iter().map(|o| (o - offset_us).abs()).collect();
    let typical_us = median(&mut widths)?;
    let widest_us = widths.iter().copied().max()?;
    // A pair at the very end may lie just outside the other list's time.
    let at_least = found.len() as u64;
    Some(Fit {
        offset_us,
        pairs: found.into_iter().map(|(i, j)| (a[i].event, b[j].event)).collect(),
        expected: within(a, b, offset_us).max(at_least),
        facing: within(b, a, -offset_us).max(at_least),
        typical_us,
        widest_us,
    })
}

fn within(a: &[Row], b: &[Row], offset: i64) -> u64 {
    let times = b.iter().map(|r| r.time_us);
    let (Some(first), Some(last)) = (times.clone().min(), times.max()) else { return 0 };
    a.iter().filter(|r| (first..=last).contains(&r.time_us.saturating_add(offset))).count() as u64
}

/// How many rows to skip in each list until four rows match again; minimises the sum.
fn meet_again(
    i: usize,
    j: usize,
    run: &impl Fn(usize, usize, usize) -> usize,
    a_len: usize,
    b_len: usize,
) -> Option<(usize, usize)> {
    let (left_a, left_b) = (a_len - i, b_len - j);
    for skipped in 1..=AHEAD {
        for skip_a in 0..=skipped {
            let skip_b = skipped - skip_a;
            if skip_a > left_a || skip_b > left_b {
                continue;
            }
            let wanted = 4.min(left_a - skip_a).min(left_b - skip_b);
            if wanted > 0 && run(i + skip_a, j + skip_b, 4) >= wanted {
                return Some((skip_a, skip_b));
            }
        }
    }
    None
}

/// Pairs equal rows of two short ranges whose order differs, because two threads may be recorded in another order.
fn pair_up(
    a: &[Row],
    b: &[Row],
    (of_a, of_b): (std::ops::Range<usize>, std::ops::Range<usize>),
    is_pair: &impl Fn(&Row, &Row) -> bool,
    found: &mut Vec<(usize, usize)>,
) {
    let mut free: Vec<usize> = of_b.collect();
    for i in of_a {
        if let Some(at) = free.iter().position(|&j| is_pair(&a[i], &b[j])) {
            found.push((i, free.remove(at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of steps that reuse their addresses, with jitter between the clocks.
    fn run(steps: i64, period: i64) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut seed = 7u64;
        for step in 0..steps {
            for k in 0..40i64 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let jitter = (seed >> 33) as i64 % 90;
                let address = 4096 * (1 + k / 2 % 13) as u64;
                rows.push(Row {
                    time_us: step * period + k * 100 + jitter,
                    key: address | (k as u64 & 1),
                    event: rows.len() as u32,
                });
            }
        }
        rows
    }

    fn shifted(rows: &[Row], offset: i64) -> Vec<Row> {
        let late = |i: usize| if i % 17 == 3 { 300 } else { (i % 5) as i64 };
        rows.iter().enumerate().map(|(i, r)| Row { time_us: r.time_us + offset + late(i), ..*r }).collect()
    }

    #[test]
    fn equal_lists_match_in_full_whatever_the_clocks() {
        let a = run(30, 9_000);
        for offset in [0, -3, 1_000_000, -86_400_000_000] {
            let fit = align(&a, &shifted(&a, offset)).unwrap();
            assert_eq!(fit.pairs.len(), a.len());
            assert!(fit.pairs.iter().all(|(x, y)| x == y));
            assert!((fit.offset_us - offset - 2).abs() <= 2, "{offset}: {}", fit.offset_us);
            assert!(fit.typical_us <= 2 && (250..=302).contains(&fit.widest_us), "{fit:?}");
        }
    }

    #[test]
    fn a_part_of_a_run_finds_its_place() {
        let whole = run(30, 9_000);
        let b = shifted(&whole, 50);
        let part = &whole[407..733];
        let fit = align(part, &b).unwrap();
        assert_eq!(fit.pairs.len(), part.len());
        assert!(fit.pairs.iter().all(|(x, y)| x == y));
        // The reverse: the snapshot's ring buffer kept only the end.
        let fit = align(&whole, &b[900..]).unwrap();
        assert_eq!(fit.pairs.len(), 300);
        assert_eq!(fit.expected, 300);
    }

    #[test]
    fn lost_and_swapped_rows_are_survived() {
        let a = run(20, 9_000);
        let mut b = shifted(&a, 12);
        b.remove(500);
        b.remove(100);
        b.swap(300, 301);
        let fit = align(&a, &b).unwrap();
        assert_eq!(fit.pairs.len(), a.len() - 2);
        assert!(fit.pairs.iter().all(|(x, y)| x == y));
    }

    #[test]
    fn another_run_is_refused() {
        let a = run(20, 9_000);
        // The same addresses at other times, as in a second run of the same program.
        let mut other = a.clone();
        let mut drift = 0;
        for (i, row) in other.iter_mut().enumerate() {
            drift += (i as i64 * 7_919) % 400;
            row.time_us += drift;
        }
        assert!(matches!(align(&a, &other), Err(Misfit::Few { .. })), "{:?}", align(&a, &other));
        // Other addresses.
        let strangers: Vec<Row> = a.iter().map(|r| Row { key: r.key + 0x1000_0000, ..*r }).collect();
        assert_eq!(align(&a, &strangers), Err(Misfit::Few { matched: 0, expected: a.len() as u64 }));
        assert_eq!(align(&a, &a[..3]), Err(Misfit::Nothing));
    }

    #[test]
    fn a_run_without_jitter_that_repeats_itself_is_refused() {
        let steps = |n: i64| -> Vec<Row> {
            (0..n * 10).map(|k| Row { time_us: k * 100, key: 512 * (1 + k as u64 % 10), event: k as u32 }).collect()
        };
        assert!(matches!(align(&steps(20), &steps(200)), Err(Misfit::Ambiguous { .. })));
    }
}
