//! Detects a loop from sizes alone: the same requests repeat in the same order.

use rustc_hash::FxHashMap;

/// Fewest repetitions that count as a loop.
const FEWEST: usize = 3;
/// At most 1/n of the loop's requests may differ from the one a period before.
const ODD: usize = 50;
/// Share of each kind of request that must repeat one period later, averaged over the kinds.
const ALIKE: f64 = 0.95;

/// Where each repetition begins, and where the last one ends; empty unless at least half of the sequence repeats. Each kind of
/// request has the same weight, however often it occurs: layers repeat within a step, but a kind that occurs once per step does not
/// repeat with the layers. `least` is the shortest period, in requests. O(n) per candidate period, of which there are at most 200.
pub(super) fn periods(kinds: &[u64], least: usize) -> Vec<usize> {
    let mut places: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
    for (i, &kind) in kinds.iter().enumerate() {
        places.entry(kind).or_default().push(i);
    }
    // Rare kinds reveal steps, not layers.
    let mut rare: Vec<&Vec<usize>> = places.values().filter(|p| p.len() >= FEWEST).collect();
    rare.sort_by_key(|p| (p.len(), p[0]));
    let mut votes: FxHashMap<usize, usize> = FxHashMap::default();
    for distance in rare.iter().take(32).flat_map(|p| p.windows(2)).map(|w| w[1] - w[0]) {
        *votes.entry(distance).or_default() += 1;
    }
    let mut lags: Vec<usize> = votes.into_iter().filter(|&(lag, n)| n + 1 >= FEWEST && lag >= least).map(|v| v.0).collect();
    lags.sort_unstable();
    for lag in lags.into_iter().take(200) {
        let (from, to) = longest_stretch(kinds, lag);
        if to - from < FEWEST * lag || (to - from) * 2 < kinds.len() || likeness(&kinds[from..to], lag) < ALIKE {
            continue;
        }
        return starts(kinds, from, to, lag);
    }
    Vec::new()
}

/// Where the repetitions within a stretch begin, and where the last one ends. The first repetition also makes workspaces and
/// caches, so the regular stretch begins in its middle or after it.
fn starts(kinds: &[u64], from: usize, to: usize, lag: usize) -> Vec<usize> {
    /// Number of extra requests allowed in between; or half a period, if all of the repetition's own requests are found.
    const A_FEW: usize = 4;
    let (mut at, mut left, mut between) = (from, lag, 0);
    // Where the first repetition begins, and how many of its requests lie before the stretch.
    let mut begin = (from, 0);
    // Search backwards; requests made before the loop are not part of it.
    while left > 0 && at > 0 && between * 2 <= lag {
        at -= 1;
        if kinds[at] == kinds[from + left - 1] {
            left -= 1;
            if between <= A_FEW || left == 0 {
                begin = (at, lag - left);
            }
        } else {
            between += 1;
        }
    }
    let (first, before) = begin;
    // The first repetition counts only if it makes one more whole one.
    let is_whole = before > 0 && (to - from) % lag + before >= lag;
    let regular = if is_whole { from + lag - before } else { from };
    is_whole.then_some(first).into_iter().chain((regular..=to).step_by(lag)).collect()
}

/// The longest stretch in which nearly every request repeats after `lag`.
fn longest_stretch(kinds: &[u64], lag: usize) -> (usize, usize) {
    let (mut best, mut from, mut odd) = ((0, 0), 0, 0);
    let end = kinds.len().saturating_sub(lag);
    for i in 0..end {
        if kinds[i] != kinds[i + lag] {
            odd += 1;
            // A stretch begins with a request that repeats.
            if i == from || odd * ODD > i - from + ODD {
                if i - from > best.1 - best.0 {
                    best = (from, i);
                }
                (from, odd) = (i + 1, 0);
            }
        }
    }
    if end.saturating_sub(from) > best.1 - best.0 {
        best = (from, end);
    }
    (best.0, (best.1 + lag).min(kinds.len()))
}

/// For each kind of request, the share that repeats after `lag`; returns the mean of the shares.
fn likeness(kinds: &[u64], lag: usize) -> f64 {
    let mut alike: FxHashMap<u64, (u32, u32)> = FxHashMap::default();
    for (a, b) in kinds.iter().zip(&kinds[lag..]) {
        let (same, all) = alike.entry(*a).or_default();
        *all += 1;
        *same += u32::from(a == b);
    }
    alike.values().map(|(same, all)| f64::from(*same) / f64::from(*all)).sum::<f64>() / alike.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model with `layers` layers: an embedding, three requests per layer, a head.
    fn steps(count: usize, layers: u64) -> Vec<u64> {
        let step: Vec<u64> = [900].into_iter().chain((0..layers).flat_map(|_| [10, 20, 30])).chain([901, 902]).collect();
        std::iter::repeat_n(step, count).flatten().collect()
    }

    #[test]
    fn steps_are_found_and_layers_are_none() {
        let load = [7, 8, 9, 11, 12];
        let kinds: Vec<u64> = load.into_iter().chain(steps(6, 40)).collect();
        let found = periods(&kinds, 64);
        assert_eq!(found.len(), 7, "{found:?}");
        assert_eq!((found[0], found[1] - found[0]), (5, 123), "{found:?}");
        assert!(periods(&steps(1, 40), 64).is_empty(), "the layers of one step");
        let mut set_up = steps(1, 40);
        set_up.splice(50..50, [8, 9]);
        let found = periods(&load.into_iter().chain(set_up).chain(steps(5, 40)).collect::<Vec<u64>>(), 64);
        assert_eq!((found.len(), found[0], found[1] - found[0]), (7, 5, 125), "{found:?}: the first makes more");
        let mut set_up = steps(6, 40);
        set_up.insert(3, 8);
        let found = periods(&load.into_iter().chain(set_up).collect::<Vec<u64>>(), 64);
        assert_eq!((found.len(), found[0], found[1] - found[0]), (7, 5, 124), "{found:?}: the first makes more at its beginning");
        let ever_new: Vec<u64> = (0..600).collect();
        assert!(periods(&ever_new, 3).is_empty());
    }
}
