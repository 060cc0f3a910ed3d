//! Samples of the whole card over time: NVML beside `torch.cuda.memory_stats`.

/// One instant of a device. `None` where the source could not tell; bytes throughout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Microseconds since the epoch.
    pub time_us: i64,
    /// Bytes used on the device by everyone, the driver's own included: capacity less free.
    pub used: Option<u64>,
    /// Bytes the driver keeps for itself.
    pub driver: Option<u64>,
    /// Bytes of the watched process (or processes) as the driver counts them, context included.
    pub process: Option<u64>,
    /// Bytes of the other processes that the driver lists.
    pub others: Option<u64>,
    /// `reserved_bytes.all.current`.
    pub reserved: Option<u64>,
    /// `active_bytes.all.current`.
    pub active: Option<u64>,
    /// `allocated_bytes.all.current`.
    pub allocated: Option<u64>,
    /// `requested_bytes.all.current`.
    pub requested: Option<u64>,
}

/// Samples in time order.
pub type SampleSeries = Vec<Sample>;

/// A sample cut into bands that add up to the card, bottom first. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bands {
    /// Kept by driver and firmware.
    pub driver: u64,
    /// Processes that are not watched.
    pub others: u64,
    /// Used, but by no process the driver lists.
    pub unattributed: u64,
    /// The watched process, when nothing tells how it divides.
    pub unsplit: u64,
    /// The watched process outside PyTorch's allocator: context, kernels, cuBLAS, NCCL, raw `cudaMalloc`.
    pub outside: u64,
    /// In live tensors.
    pub allocated: u64,
    /// Reserved by PyTorch and free for its next tensor.
    pub cached: u64,
    /// Free on the device.
    pub free: u64,
    /// Bytes by which parts exceeded their whole because they were read a moment apart; drawn as nothing, but counted.
    pub skew: u64,
}

impl Bands {
    /// Everything but [`free`](Self::free).
    #[must_use]
    pub fn used(&self) -> u64 {
        self.driver + self.others + self.unattributed + self.unsplit + self.outside + self.allocated + self.cached
    }
}

impl Sample {
    /// Bytes that PyTorch has reserved beyond what the card has. Windows, also under WSL, moves them to host memory; so does managed
    /// memory. This is the least: other programs need room too, and the driver does not tell what moved.
    #[must_use]
    pub fn spilled(&self, capacity: u64) -> u64 {
        if capacity == 0 {
            0
        } else {
            self.reserved.unwrap_or(0).saturating_sub(capacity.saturating_sub(self.driver.unwrap_or(0)))
        }
    }

    /// The bands of this sample on a device of `capacity` bytes; `None` when the driver's figure is missing.
    /// Their sum is `capacity` plus [`Bands::skew`].
    #[must_use]
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
                // The driver lists no bytes for the process (WSL, MIG): PyTorch's own figure is cut from what nobody claims.
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
        // A real instant of an H200: one process with PyTorch, another beside it.
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
        assert_eq!(b.used() + b.free, 1000 + b.skew);
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
