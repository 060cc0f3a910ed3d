//! Keeps series bounded, however long a session runs.

use crate::model::{HostPoint, ProcessPoint, Reading, Sample};

/// Drops one of each pair in the older half, keeping the first if `keep_first` says so; returns how many were dropped.
fn halve<T: Copy>(series: &mut Vec<T>, keep_first: impl Fn(&T, &T) -> bool) -> u64 {
    let half = series.len() / 2 / 2 * 2;
    let mut write = 0;
    for read in (0..half).step_by(2) {
        let (a, b) = (series[read], series[read + 1]);
        series[write] = if keep_first(&a, &b) { a } else { b };
        write += 1;
    }
    series.copy_within(half.., write);
    let removed = half - write;
    series.truncate(series.len() - removed);
    removed as u64
}

/// Keeps at most `most` samples: of each pair in the older half the one with more bytes in use stays, so that no peak is lost.
pub(super) fn bound_samples(series: &mut Vec<Sample>, most: usize) -> u64 {
    if series.len() <= most { 0 } else { halve(series, |a, b| a.used > b.used) }
}

/// Keeps at most `most` points of a process, the higher of each pair.
pub(super) fn bound_points(series: &mut Vec<ProcessPoint>, most: usize) -> u64 {
    let height = |p: &ProcessPoint| (p.used, p.torch.map(|t| t.allocated));
    if series.len() <= most { 0 } else { halve(series, |a, b| height(a) > height(b)) }
}

/// Keeps at most `most` points of host memory, the higher of each pair.
pub(super) fn bound_hosts(series: &mut Vec<HostPoint>, most: usize) -> u64 {
    let height = |p: &HostPoint| (p.resident, p.pinned);
    if series.len() <= most { 0 } else { halve(series, |a, b| height(a) > height(b)) }
}

pub(super) fn bound_gauges(series: &mut Vec<Reading>, most: usize) -> u64 {
    if series.len() <= most { 0 } else { halve(series, |a, b| a.busy > b.busy) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_order_the_newest_half_and_every_peak() {
        let mut series: Vec<Sample> = (0..1001)
            .map(|i| Sample { time_us: i, used: Some(if i == 100 { 9999 } else { i as u64 % 7 }), ..Sample::default() })
            .collect();
        let newest = series[501..].to_vec();
        let removed = bound_samples(&mut series, 1000);
        assert_eq!((removed, series.len()), (250, 751));
        assert!(series.windows(2).all(|w| w[0].time_us < w[1].time_us));
        assert!(series.iter().any(|s| s.used == Some(9999)));
        assert!(series.ends_with(&newest));
        assert_eq!(bound_samples(&mut series, 1000), 0);
    }
}
