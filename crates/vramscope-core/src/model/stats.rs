//! [`MemoryStats`]: PyTorch's own counters, as `memory_stats()` and its relatives give them.

use std::collections::BTreeMap;

/// Which call wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatsKind {
    /// `torch.cuda.memory_stats()`.
    Device,
    /// `torch.cuda.memory_summary()`.
    Summary,
    /// `torch.cuda.host_memory_stats()`: pinned host memory.
    Host,
}

/// A counter: the true value lies within `value ..= value + slack`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// As written, in bytes or as a count.
    pub value: u64,
    /// What rounding down to the summary's unit may have cut; 0 when exact.
    pub slack: u64,
}

impl Counter {
    /// True when the counter can stand for `value`.
    #[must_use]
    pub fn admits(self, value: u64) -> bool {
        (self.value..=self.value.saturating_add(self.slack)).contains(&value)
    }
}

/// The four figures PyTorch keeps of everything it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauge {
    /// Now.
    pub current: Counter,
    /// The most there was.
    pub peak: Counter,
    /// All that was ever added.
    pub allocated: Counter,
    /// All that was ever taken away.
    pub freed: Counter,
}

/// Counters by their flat key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryStats {
    /// Which call wrote them.
    pub kind: StatsKind,
    /// The device, when written (summaries).
    pub device: Option<i32>,
    /// Every counter.
    pub values: BTreeMap<String, Counter>,
}

impl MemoryStats {
    /// A counter by its flat key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Counter> {
        self.values.get(key).copied()
    }

    /// The four figures of a group (`reserved_bytes`) in a pool (`all`, `large_pool`, `small_pool`; empty for groups without).
    #[must_use]
    pub fn gauge(&self, group: &str, pool: &str) -> Option<Gauge> {
        let base = if pool.is_empty() { group.to_owned() } else { format!("{group}.{pool}") };
        let get = |figure: &str| self.get(&format!("{base}.{figure}"));
        Some(Gauge { current: get("current")?, peak: get("peak")?, allocated: get("allocated")?, freed: get("freed")? })
    }

    /// The pools of the groups that private pools have (2.13 and later): `0_1`.
    #[must_use]
    pub fn private_pools(&self) -> Vec<&str> {
        let mut out: Vec<&str> =
            self.values.keys().filter_map(|k| k.strip_prefix("reserved_bytes_by_private_pools.")?.split('.').next()).collect();
        out.dedup();
        out
    }
}

impl StatsKind {
    /// The call, as people know it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            StatsKind::Device => "memory_stats",
            StatsKind::Summary => "memory_summary",
            StatsKind::Host => "host_memory_stats",
        }
    }
}
