//! Samples of the whole device over time: NVML combined with `torch.cuda.memory_stats`.

/// One instant of a device, in bytes. `None` where the source lacks the figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Sample {
    /// Microseconds since the epoch.
    pub time_us: i64,
    /// Used on the device by all processes and the driver: capacity minus free.
    pub used: Option<u64>,
    /// Used by the driver itself.
    pub driver: Option<u64>,
    /// Used by the watched process (or processes) as the driver counts it, CUDA context included.
    pub process: Option<u64>,
    /// Used by the other processes that the driver lists.
    pub others: Option<u64>,
    /// `reserved_bytes.all.current` of the watched process.
    pub reserved: Option<u64>,
    /// `active_bytes.all.current` of the watched process.
    pub active: Option<u64>,
    /// `allocated_bytes.all.current` of the watched process.
    pub allocated: Option<u64>,
    /// `requested_bytes.all.current` of the watched process.
    pub requested: Option<u64>,
}

/// Samples in time order.
pub type SampleSeries = Vec<Sample>;

/// A sample divided into bands that add up to the device's capacity, bottom first. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Bands {
    /// Used by driver and firmware.
    #[serde(rename = "driver_bytes")]
    pub driver: u64,
    /// Used by processes that are not watched.
    #[serde(rename = "other_processes_bytes")]
    pub others: u64,
    /// Used, but not by a process that the driver lists.
    #[serde(rename = "unattributed_bytes")]
    pub unattributed: u64,
    /// Used by the watched process, when PyTorch's figures are missing.
    #[serde(rename = "process_bytes")]
    pub unsplit: u64,
    /// Used by the watched process outside PyTorch's allocator: context, kernels, cuBLAS, NCCL, raw `cudaMalloc`.
    #[serde(rename = "outside_bytes")]
    pub outside: u64,
    /// In the watched process's live tensors (`allocated_bytes`).
    #[serde(rename = "allocated_bytes")]
    pub allocated: u64,
    /// Reserved by PyTorch but not allocated.
    #[serde(rename = "cached_bytes")]
    pub cached: u64,
    /// Free on the device.
    #[serde(rename = "free_bytes")]
    pub free: u64,
    /// Bytes by which parts exceed their whole because they were read a moment apart; not drawn, but counted.
    #[serde(rename = "skew_bytes")]
    pub skew: u64,
}

/// A part of a card: its key in metrics, its name in the UI, its bytes.
type Part = (&'static str, &'static str, fn(&Bands) -> u64);

impl Bands {
    /// The parts that add up to the card, bottom first.
    pub const PARTS: [Part; 8] = [
        ("driver", "driver", |b| b.driver),
        ("other_processes", "other processes", |b| b.others),
        ("unattributed", "unattributed", |b| b.unattributed),
        ("process", "the process", |b| b.unsplit),
        ("outside_pytorch", "outside PyTorch", |b| b.outside),
        ("allocated", "allocated", |b| b.allocated),
        ("cached", "cached", |b| b.cached),
        ("free", "free", |b| b.free),
    ];

    /// What the driver says is used: the sum of the bands except [`free`](Self::free), less what is counted twice.
    pub fn used(&self) -> u64 {
        let sum = self.driver + self.others + self.unattributed + self.unsplit + self.outside + self.allocated + self.cached;
        sum.saturating_sub(self.skew)
    }
}

impl Sample {
    /// Bytes that PyTorch has reserved beyond the device's capacity. Windows (also under WSL) and managed memory move them to
    /// host memory. This is a lower bound: other programs need memory too, and the driver does not say what it moved.
    pub fn spilled(&self, capacity: u64) -> u64 {
        if capacity == 0 {
            0
        } else {
            self.reserved.unwrap_or(0).saturating_sub(capacity.saturating_sub(self.driver.unwrap_or(0)))
        }
    }

    /// The bands of this sample on a device of `capacity` bytes; `None` when `used` is missing.
    /// Their sum is `capacity` plus [`Bands::skew`].
    pub fn bands(&self, capacity: u64) -> Option<Bands> {
        let used = self.used?;
        let driver = self.driver.unwrap_or(0).min(used);
        let (process, others) = (self.process.unwrap_or(0), self.others.unwrap_or(0));
        let mut bands = Bands { driver, others, free: capacity.saturating_sub(used), ..Bands::default() };
        let listed = driver + others + process;
        bands.unattributed = used.saturating_sub(listed);
        bands.skew = listed.saturating_sub(used);
        match (self.reserved, self.process) {
            (Some(reserved), Some(_)) => {
                let allocated = self.allocated.unwrap_or(0).min(reserved);
                bands.allocated = allocated;
                bands.cached = reserved - allocated;
                bands.outside = process.saturating_sub(reserved);
                bands.skew += reserved.saturating_sub(process);
            }
            (Some(reserved), None) => {
                // The driver lists no bytes for the process (WSL, MIG), so PyTorch's own figure is taken out of the
                // unattributed bytes.
                let allocated = self.allocated.unwrap_or(0).min(reserved);
                bands.allocated = allocated;
                bands.cached = reserved - allocated;
                bands.skew += reserved.saturating_sub(bands.unattributed);
                bands.unattributed = bands.unattributed.saturating_sub(reserved);
            }
            (None, _) => bands.unsplit = process,
        }
        Some(bands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_bands_add_up_to_the_card() {
        // Measured on an H200: one process with PyTorch, another beside it.
        let sample = Sample {
            used: Some(7163 * MIB),
            driver: Some(615 * MIB),
            process: Some(2944 * MIB),
            others: Some(3590 * MIB),
            reserved: Some(212 * MIB),
            allocated: Some(197 * MIB),
            ..Sample::default()
        };
        let b = sample.bands(143_771 * MIB).unwrap();
        assert_eq!((b.outside, b.cached, b.allocated, b.unattributed), (2732 * MIB, 15 * MIB, 197 * MIB, 14 * MIB));
        assert_eq!((b.used() + b.free, b.skew), (143_771 * MIB, 0));
    }

    #[test]
    fn what_is_reserved_beyond_the_card_has_spilled() {
        let sample = Sample { driver: Some(10), reserved: Some(1200), ..Sample::default() };
        assert_eq!((sample.spilled(1000), sample.spilled(1210), sample.spilled(0)), (210, 0, 0));
    }

    #[test]
    fn a_process_list_that_lags_is_counted_as_skew() {
        let sample = Sample { used: Some(100), driver: Some(10), process: Some(120), reserved: Some(50), ..Sample::default() };
        let b = sample.bands(1000).unwrap();
        assert_eq!((b.unattributed, b.skew), (0, 30));
        assert_eq!((b.used(), b.used() + b.free), (100, 1000));
    }

    #[test]
    fn without_a_helper_the_process_stays_whole_and_without_the_driver_there_is_nothing() {
        let whole = Sample { used: Some(100), process: Some(60), ..Sample::default() };
        assert_eq!(whole.bands(1000).unwrap().unsplit, 60);
        assert!(Sample { reserved: Some(5), ..Sample::default() }.bands(1000).is_none());
        let hidden = Sample { used: Some(100), reserved: Some(60), allocated: Some(50), ..Sample::default() };
        let b = hidden.bands(1000).unwrap();
        assert_eq!((b.unattributed, b.cached, b.skew, b.used() + b.free), (40, 10, 0, 1000));
    }
}
