//! [`DeviceRecording`]: one device's events, and its segments at the end.

use super::{
    AllocConf, Annotations, Block, Capabilities, CategoryBands, EventTable, LiveTrack, PoolId, PoolKey, SampleSeries, Segment,
    SourceTotals, StreamId,
};

/// Which kind of memory a device recording describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeviceKind {
    /// An NVIDIA (or, through the same interface, AMD) GPU.
    #[default]
    Cuda,
    /// An Intel GPU.
    Xpu,
    /// A Google TPU.
    Tpu,
    /// Pinned host memory, kept apart from every GPU.
    Host,
    /// CPU memory seen by a profiler trace.
    Cpu,
    /// Any other accelerator.
    Other,
}

impl DeviceKind {
    /// `cuda`, `xpu`, `tpu`, `host`, `cpu`, `other`: stable, used in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DeviceKind::Cuda => "cuda",
            DeviceKind::Xpu => "xpu",
            DeviceKind::Tpu => "tpu",
            DeviceKind::Host => "host",
            DeviceKind::Cpu => "cpu",
            DeviceKind::Other => "other",
        }
    }
}

/// A device: its kind, and the ordinal the process knew it by (-1 for host memory).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId {
    /// Kind of memory.
    pub kind: DeviceKind,
    /// Ordinal inside the process.
    pub index: i32,
}

impl std::fmt::Display for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self.kind {
            DeviceKind::Cuda => format!("GPU {}", self.index),
            DeviceKind::Xpu => format!("XPU {}", self.index),
            DeviceKind::Tpu => format!("TPU {}", self.index),
            DeviceKind::Host => "Pinned host memory".to_owned(),
            DeviceKind::Cpu if self.index > 0 => format!("CPU {}", self.index),
            DeviceKind::Cpu => "CPU".to_owned(),
            DeviceKind::Other if self.index < 0 => "Unnamed device".to_owned(),
            DeviceKind::Other => format!("Device {}", self.index),
        };
        f.pad(&text)
    }
}

/// Everything recorded of one device.
#[derive(Clone, Debug, Default)]
pub struct DeviceRecording {
    /// Which device.
    pub id: DeviceId,
    /// Its product name, when the source tells it.
    pub name: Option<String>,
    /// Total memory in bytes, when the source tells it.
    pub capacity: Option<u64>,
    /// The most this process may reserve (`set_per_process_memory_fraction`), in bytes, when known.
    pub limit: Option<u64>,
    /// The allocator's events, oldest first.
    pub events: EventTable,
    /// Segments when the recording was written, by address. Expandable ones: one a contiguous mapped run.
    pub segments: Vec<Segment>,
    /// Blocks of those segments, by address; a segment names its range.
    pub blocks: Vec<Block>,
    /// True when [`segments`](Self::segments) was in the source (a trace alone has none).
    pub has_final_state: bool,
    /// Segments of an instant after the last event: the source's own end state, where its trace breaks off before it. They tell
    /// how far a segment reaches that the trace uses without having taken it, and are no part of the state themselves.
    pub later_segments: Vec<Segment>,
    /// Raw stream handles; a [`StreamId`] indexes them. 0 is the default stream.
    pub streams: Vec<u64>,
    /// Pools by their two-part key; a [`PoolId`] indexes them. `(0, 0)` is the default pool.
    pub pools: Vec<PoolKey>,
    /// User ranges: optimizer steps, `record_function`, profiler steps.
    pub annotations: Annotations,
    /// NVML and `memory_stats` samples over time.
    pub samples: SampleSeries,
    /// Processes, gauges and marks of a live session; `None` for everything else.
    pub live: Option<Box<LiveTrack>>,
    /// Live bytes by category over time (memory timelines).
    pub bands: CategoryBands,
    /// The allocator's totals, where the source tells them beside its events (profiler traces).
    pub source_totals: SourceTotals,
    /// The allocator's settings as the source gave them.
    pub settings: Settings,
    /// What the source tells, set by its reader.
    pub can_show: Capabilities,
}

impl DeviceRecording {
    /// The id of a raw stream handle, added when new. More than 65,534 streams share the last id.
    pub fn intern_stream(&mut self, handle: u64) -> StreamId {
        let at = self.streams.iter().position(|&s| s == handle).unwrap_or_else(|| {
            self.streams.push(handle);
            self.streams.len() - 1
        });
        StreamId(u16::try_from(at).unwrap_or(u16::MAX - 1))
    }

    /// A stream as sentences name it: `the default stream`, `stream 1 (0x5555)`.
    #[must_use]
    pub fn stream_name(&self, stream: StreamId) -> String {
        match self.streams.get(usize::from(stream.0)).copied().unwrap_or(0) {
            0 => "the default stream".to_owned(),
            handle => format!("stream {} ({handle:#x})", stream.0),
        }
    }

    /// The id of a pool key, added when new. More than 65,534 pools share the last id.
    pub fn intern_pool(&mut self, key: PoolKey) -> PoolId {
        let at = self.pools.iter().position(|&p| p == key).unwrap_or_else(|| {
            self.pools.push(key);
            self.pools.len() - 1
        });
        PoolId(u16::try_from(at).unwrap_or(u16::MAX - 1))
    }

    /// The key of a pool; `None` for [`PoolId::UNKNOWN`].
    #[must_use]
    pub fn pool_key(&self, pool: PoolId) -> Option<PoolKey> {
        self.pools.get(usize::from(pool.0)).copied()
    }

    /// The blocks of a segment of the end state.
    #[must_use]
    pub fn blocks_of(&self, segment: &Segment) -> &[Block] {
        self.blocks.get(segment.blocks.start as usize..segment.blocks.end as usize).unwrap_or(&[])
    }

    /// True with events, segments or blocks: what tells of single allocations.
    #[must_use]
    pub fn has_blocks(&self) -> bool {
        !self.events.is_empty() || !self.segments.is_empty() || !self.blocks.is_empty()
    }

    /// Bytes in segments when the recording was written: PyTorch's `reserved_bytes.all.current`.
    #[must_use]
    pub fn final_reserved(&self) -> u64 {
        self.segments.iter().map(|s| s.size).sum()
    }
}

/// The allocator settings a source carried.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// True when the source carried any (PyTorch 2.3 and later).
    pub recorded: bool,
    /// The settings the allocator model needs, with PyTorch's defaults where the source is silent.
    pub conf: AllocConf,
    /// Every key and its value as text, in the source's order, known to us or not.
    pub raw: Vec<(String, String)>,
}
