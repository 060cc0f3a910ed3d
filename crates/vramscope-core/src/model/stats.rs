//! [`MemoryStats`]: PyTorch's own counters, from `memory_stats()` and similar calls.

use std::collections::BTreeMap;

/// The call that wrote the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatsKind {
    /// `torch.cuda.memory_stats()`: exact figures.
    Device,
    /// `torch.cuda.memory_summary()`: figures rounded to a unit.
    Summary,
    /// `torch.cuda.host_memory_stats()`: pinned host memory.
    Host,
}

/// A counter; the exact value lies in `value ..= value + slack`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The value as written: bytes or a count.
    pub value: u64,
    /// What rounding to the summary's unit may have cut off; 0 when exact.
    pub slack: u64,
}

impl Counter {
    /// True when the exact value may be `value`.
    pub fn admits(self, value: u64) -> bool {
        (self.value..=self.value.saturating_add(self.slack)).contains(&value)
    }
}

/// The four figures that PyTorch keeps for each quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauge {
    /// Value at the time of the call.
    pub current: Counter,
    /// Highest value since the program began or last reset its peaks.
    pub peak: Counter,
    /// Sum of all increases.
    pub allocated: Counter,
    /// Sum of all decreases.
    pub freed: Counter,
}

/// PyTorch's counters by flat key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryStats {
    /// Which call wrote them.
    pub kind: StatsKind,
    /// Device ordinal; only summaries contain it.
    pub device: Option<i32>,
    /// All counters, by flat key such as `reserved_bytes.all.current`.
    pub values: BTreeMap<String, Counter>,
}

impl MemoryStats {
    /// A counter by its flat key; `None` if the source lacks it.
    pub fn get(&self, key: &str) -> Option<Counter> {
        self.values.get(key).copied()
    }

    /// The four figures of a group (`reserved_bytes`) in a pool (`all`, `large_pool`, `small_pool`; empty without pools).
    pub fn gauge(&self, group: &str, pool: &str) -> Option<Gauge> {
        let base = if pool.is_empty() { group.to_owned() } else { format!("{group}.{pool}") };
        let get = |figure: &str| self.get(&format!("{base}.{figure}"));
        Some(Gauge { current: get("current")?, peak: get("peak")?, allocated: get("allocated")?, freed: get("freed")? })
    }

    /// Private pools that have their own groups (2.13 and later), such as `0_1`.
    pub fn private_pools(&self) -> Vec<&str> {
        let mut out: Vec<&str> =
            self.values.keys().filter_map(|k| k.strip_prefix("reserved_bytes_by_private_pools.")?.split('.').next()).collect();
        out.dedup();
        out
    }
}

impl StatsKind {
    /// The name of the call.
    pub fn name(self) -> &'static str {
        match self {
            StatsKind::Device => "memory_stats",
            StatsKind::Summary => "memory_summary",
            StatsKind::Host => "host_memory_stats",
        }
    }
}
