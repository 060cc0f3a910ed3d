//! Positions of the step bars and of the small curves in rows. Only arithmetic.

/// Divides `values` into `columns` equal columns, each with the least of its values.
pub(super) fn columns(values: &[u64], columns: usize) -> Vec<u64> {
    if values.is_empty() {
        return Vec::new();
    }
    (0..columns)
        .map(|i| {
            let from = i * values.len() / columns;
            let to = ((i + 1) * values.len() / columns).max(from + 1).min(values.len());
            values[from..to].iter().copied().min().unwrap_or(0)
        })
        .collect()
}

/// The range of values to draw. It starts at zero unless all values are far above zero.
pub(super) fn range(values: &[u64]) -> (f64, f64) {
    let low = values.iter().copied().min().unwrap_or(0) as f64;
    let high = (values.iter().copied().max().unwrap_or(0) as f64).max(1.0);
    let margin = (high - low).max(high * 0.02) * 0.15;
    if low < high * 0.6 { (0.0, high + margin) } else { ((low - margin).max(0.0), high + margin) }
}

/// How many bars to advance per number, so that numbers `each` points wide do not overlap: 1, 2, 5, 10 and so on.
pub(super) fn every(n: usize, width: f32, each: f32) -> usize {
    let fits = (width / each.max(1.0)).max(1.0) as usize;
    let mut step = 1;
    while n / step > fits {
        let (mut lead, mut power) = (step, 1);
        while lead >= 10 {
            (lead, power) = (lead / 10, power * 10);
        }
        step = power
            * if lead == 1 {
                2
            } else if lead == 2 {
                5
            } else {
                10
            };
    }
    step
}

/// The running sum, scaled to 0 to 1.
pub(super) fn climb(by_step: &[u64]) -> Vec<f32> {
    let whole = by_step.iter().sum::<u64>().max(1) as f64;
    let mut sum = 0u64;
    by_step
        .iter()
        .map(|&b| {
            sum += b;
            (sum as f64 / whole) as f32
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_take_the_least_and_every_value_falls_into_one() {
        assert_eq!(columns(&[5, 3, 9, 1], 2), [3, 1]);
        assert_eq!(columns(&[5, 3], 4), [5, 5, 3, 3]);
        assert_eq!(columns(&[], 4), Vec::<u64>::new());
    }

    #[test]
    fn numbers_stand_at_round_distances() {
        assert_eq!([every(10, 400.0, 30.0), every(59, 400.0, 30.0), every(1000, 400.0, 30.0)], [1, 5, 100]);
        assert_eq!(every(4, 0.0, 30.0), 5, "where there is no room, one");
    }

    #[test]
    fn small_changes_far_above_zero_are_seen() {
        let (low, high) = range(&[1000, 1010]);
        assert!(low > 900.0 && high < 1100.0);
        assert_eq!(range(&[10, 1000]).0, 0.0);
        assert!(range(&[0, 0]).1 > 0.0);
        assert_eq!(climb(&[1, 0, 3]), [0.25, 0.25, 1.0]);
    }
}
