//! [`CategoryBands`]: how many bytes each category of tensors took, over time.

/// Names of PyTorch's categories in the order of its memory timeline.
pub const CATEGORIES: [&str; 8] =
    ["parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "autograd_detail", "unknown"];

/// Live bytes per category over time. Times ascend; each row is valid until the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CategoryBands {
    /// Microseconds since the epoch.
    pub time_us: Vec<i64>,
    /// One row per time, one entry per category in the order of [`CATEGORIES`].
    pub bytes: Vec<[u64; CATEGORIES.len()]>,
}

impl CategoryBands {
    /// Number of rows, each at one time.
    pub fn len(&self) -> usize {
        self.time_us.len()
    }

    /// True when the source has no categories.
    pub fn is_empty(&self) -> bool {
        self.time_us.is_empty()
    }

    /// The row valid at `time_us`; `None` before the first row.
    pub fn at(&self, time_us: i64) -> Option<&[u64; CATEGORIES.len()]> {
        let after = self.time_us.partition_point(|&t| t <= time_us);
        self.bytes.get(after.checked_sub(1)?)
    }

    /// The row with the highest sum (the first of equal ones), and that sum. `None` without rows.
    pub fn peak(&self) -> Option<(usize, u64)> {
        let sums = self.bytes.iter().map(|row| row.iter().fold(0u64, |sum, &b| sum.saturating_add(b)));
        sums.enumerate().max_by_key(|&(i, sum)| (sum, std::cmp::Reverse(i)))
    }
}
