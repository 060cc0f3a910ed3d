//! [`Pyramid`]: minimum and maximum over any range of a long series in O(log).

/// Lowest and highest value of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl Span {
    /// The neutral element of [`union`](Self::union).
    pub(crate) const EMPTY: Span = Span { min: u64::MAX, max: 0 };

    pub(crate) fn of(value: u64) -> Self {
        Span { min: value, max: value }
    }

    pub(crate) fn union(self, other: Span) -> Span {
        Span { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

const FAN_OUT: usize = 8;

/// Base cells with levels above, each cell the union of eight below; takes a seventh more memory than the base.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pyramid {
    levels: Vec<Vec<Span>>,
}

impl Pyramid {
    pub(crate) fn build(base: Vec<Span>) -> Self {
        let mut levels = vec![base];
        while let Some(top) = levels.last().filter(|top| top.len() > FAN_OUT) {
            let next = top.chunks(FAN_OUT).map(|cells| cells.iter().fold(Span::EMPTY, |a, &b| a.union(b))).collect();
            levels.push(next);
        }
        Pyramid { levels }
    }

    /// The extremes of base cells `from..to`; O(log).
    pub(crate) fn range(&self, mut from: usize, mut to: usize) -> Span {
        let mut span = Span::EMPTY;
        for (n, level) in self.levels.iter().enumerate() {
            to = to.min(level.len());
            if from >= to {
                break;
            }
            if n + 1 == self.levels.len() {
                return level[from..to].iter().fold(span, |a, &b| a.union(b));
            }
            while from < to && !from.is_multiple_of(FAN_OUT) {
                span = span.union(level[from]);
                from += 1;
            }
            while from < to && !to.is_multiple_of(FAN_OUT) {
                to -= 1;
                span = span.union(level[to]);
            }
            if from >= to {
                break;
            }
            from /= FAN_OUT;
            to /= FAN_OUT;
        }
        span
    }

    /// The first base cell in `from..to` with the highest maximum; O(log).
    pub(crate) fn highest(&self, from: usize, to: usize) -> Option<usize> {
        let to = to.min(self.levels.first()?.len());
        if from >= to {
            return None;
        }
        let max = self.range(from, to).max;
        self.first_reaching(from, to, max)
    }

    fn first_reaching(&self, from: usize, to: usize, value: u64) -> Option<usize> {
        let mut at = from;
        while at < to {
            // Go up while whole blocks stay below the value, then down into the first that does not.
            let mut level = 0;
            let mut width = 1;
            while level + 1 < self.levels.len() && at.is_multiple_of(width * FAN_OUT) {
                level += 1;
                width *= FAN_OUT;
            }
            loop {
                let reaches = self.levels[level].get(at / width).is_some_and(|c| c.max >= value);
                if !reaches {
                    at += width;
                    break;
                }
                if level == 0 {
                    return Some(at);
                }
                level -= 1;
                width /= FAN_OUT;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_and_peaks_equal_a_plain_scan(values in prop::collection::vec(0u64..50, 1..900), a in 0usize..900, b in 0usize..900) {
            let pyramid = Pyramid::build(values.iter().map(|&v| Span::of(v)).collect());
            let (from, to) = (a.min(b), a.max(b).min(values.len()));
            let part = values.get(from..to).unwrap_or(&[]);
            let span = pyramid.range(from, to);
            prop_assert_eq!(span.max, part.iter().copied().max().unwrap_or(0));
            prop_assert_eq!(span.min, part.iter().copied().min().unwrap_or(u64::MAX));
            let highest = part.iter().position(|&v| Some(v) == part.iter().copied().max()).map(|i| i + from);
            prop_assert_eq!(pyramid.highest(from, to), highest);
        }
    }
}
