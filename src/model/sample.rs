//! Samples of the whole card over time: NVML beside `torch.cuda.memory_stats`.

/// One instant of a device. `None` where the source could not tell; bytes throughout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Microseconds since the epoch.
    pub time_us: i64,
    /// Bytes used on the device, by everyone.
    pub used: Option<u64>,
    /// Bytes the driver keeps for itself.
    pub driver: Option<u64>,
    /// Bytes of this process as the driver counts them, context included.
    pub process: Option<u64>,
    /// Bytes of other processes.
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
