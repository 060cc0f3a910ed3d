//! Bounds between classes of sizes and of ages.

/// Fewer classes than this do not make colouring worthwhile.
const FEW_CLASSES: usize = 3;
/// One fewer than the ramp has steps.
const MOST_BOUNDS: usize = 7;

/// Bounds between size classes. They divide the bytes about equally. When nearly all bytes fall into one or two of these classes,
/// the bounds are powers of two or the sizes with most bytes, whichever gives more classes. `live` is ascending; `all` has the
/// size of every allocation.
pub(super) fn size_bounds(live: &[u64], all: impl Iterator<Item = u64>) -> Vec<u64> {
    let steps = size_steps(live);
    if telling(live, &steps) >= FEW_CLASSES {
        return steps;
    }
    let candidates = [powers_of_two(all), own_sizes(live)];
    let told = |bounds: &Vec<u64>| (telling(live, bounds), bounds.len());
    candidates.into_iter().fold(steps, |best, next| if told(&next) > told(&best) { next } else { best })
}

/// The number of classes that hold at least 1 % of the bytes.
fn telling(sizes: &[u64], bounds: &[u64]) -> usize {
    let mut bytes = vec![0u128; bounds.len() + 1];
    for &size in sizes {
        bytes[bounds.partition_point(|&b| b <= size)] += u128::from(size);
    }
    let total: u128 = bytes.iter().sum();
    bytes.iter().filter(|&&b| b > 0 && b * 100 >= total).count()
}

/// Powers of two. When there are too many, only those with the most bytes begin a class.
fn powers_of_two(sizes: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut bytes = [0u128; 64];
    for size in sizes.filter(|&s| s > 0) {
        bytes[size.ilog2() as usize] += u128::from(size);
    }
    let mut used: Vec<usize> = (0..bytes.len()).filter(|&octave| bytes[octave] > 0).collect();
    if !used.is_empty() {
        // The smallest power of two needs no bound below it.
        used.remove(0);
    }
    used.sort_by_key(|&octave| std::cmp::Reverse(bytes[octave]));
    used.truncate(MOST_BOUNDS);
    used.sort_unstable();
    used.into_iter().map(|octave| 1u64 << octave).collect()
}

/// The sizes with the most bytes in total; each begins a class. `sizes` is ascending.
fn own_sizes(sizes: &[u64]) -> Vec<u64> {
    let mut groups: Vec<(u128, u64)> =
        sizes.chunk_by(|a, b| a == b).map(|same| (u128::from(same[0]) * same.len() as u128, same[0])).collect();
    groups.sort_unstable_by(|a, b| b.cmp(a));
    groups.truncate(MOST_BOUNDS + 1);
    let mut bounds: Vec<u64> = groups.into_iter().map(|(_, size)| size).collect();
    bounds.sort_unstable();
    if !bounds.is_empty() {
        bounds.remove(0);
    }
    bounds
}

/// Up to seven bounds that split sizes into steps of about equal bytes, each rounded. `sizes` is ascending.
fn size_steps(sizes: &[u64]) -> Vec<u64> {
    let total: u128 = sizes.iter().map(|&s| u128::from(s)).sum();
    let mut bounds: Vec<u64> = Vec::new();
    let mut sum = 0u128;
    for &size in sizes {
        let step = (sum * 8 / total.max(1)) as usize;
        if step > 0 && step > bounds.len() {
            let round = round_figure(size);
            if bounds.last().is_none_or(|&b| b < round) && round > sizes[0] && bounds.len() < MOST_BOUNDS {
                bounds.push(round);
            }
        }
        sum += u128::from(size);
    }
    bounds
}

/// Rounds down to a quarter of a power of two.
fn round_figure(size: u64) -> u64 {
    if size < 4096 {
        return size;
    }
    let grain = 1u64 << (63 - size.leading_zeros()).saturating_sub(3);
    size / grain * grain
}

/// Lower bounds, in events, of age class 1 and up. The first is 64; each following one is a constant power of two times the last,
/// chosen so that seven of them span the recording. None lies beyond its end.
pub(super) fn age_bounds(events: usize) -> Vec<u64> {
    let octaves = (events.max(1) as u64).next_power_of_two().ilog2().saturating_sub(6);
    let step = octaves.div_ceil(7).max(1);
    (0..7).map(|i| 64u64 << (step * i)).take_while(|&bound| bound < events as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_steps_ascend_and_are_few() {
        let sizes: Vec<u64> = (1..2000u64).map(|i| i * 512).collect();
        let steps = size_steps(&sizes);
        assert!(steps.windows(2).all(|w| w[0] < w[1]), "{steps:?}");
        assert!((4..=7).contains(&steps.len()), "{steps:?}");
        assert!(size_steps(&[]).is_empty());
        assert!(size_steps(&[512; 100]).is_empty());
    }

    #[test]
    fn sizes_that_are_all_large_are_told_apart_all_the_same() {
        const MIB: u64 = 1 << 20;
        // One huge block among large ones: steps of equal bytes would put nearly all into one class.
        let mut live = vec![20 * MIB, 24 * MIB, 24 * MIB, 40 * MIB, 4096 * MIB];
        live.sort_unstable();
        let bounds = size_bounds(&live, live.iter().copied().chain([512, 1024, 3 * MIB]));
        assert!(bounds.len() >= 3 && bounds.windows(2).all(|w| w[0] < w[1]), "{bounds:?}");
        // When all sizes lie within one power of two, each becomes a class.
        let live: Vec<u64> = [34, 34, 36, 40, 44].map(|n| n * MIB).to_vec();
        assert_eq!(telling(&live, &size_bounds(&live, live.iter().copied())), 4);
        // With one size at the peak, the classes come from the rest of the recording.
        let live = vec![1024 * MIB; 6];
        assert_eq!(size_bounds(&live, live.iter().copied().chain([MIB, 2 * MIB])), [2 * MIB, 1024 * MIB]);
        assert!(size_bounds(&live, live.iter().copied()).is_empty());
        assert!(size_bounds(&[], std::iter::empty()).is_empty());
        // Sizes that equal steps separate well keep them.
        let sizes: Vec<u64> = (1..2000u64).map(|i| i * 512).collect();
        assert_eq!(size_bounds(&sizes, sizes.iter().copied()), size_steps(&sizes));
    }

    #[test]
    fn ages_span_the_recording() {
        assert!(age_bounds(0).is_empty() && age_bounds(64).is_empty());
        assert_eq!(age_bounds(3_000), [64, 128, 256, 512, 1024, 2048]);
        assert_eq!(age_bounds(27_909), [64, 256, 1024, 4096, 16_384]);
        assert_eq!(age_bounds(14_300_000), [64, 512, 4096, 32_768, 262_144, 2_097_152]);
    }
}
