//! [`DeviceRecording`]: one device's events, and its segments at the end.

use super::{
    AllocConf, Annotations, Block, Capabilities, CategoryBands, EventTable, LiveTrack, PoolId, PoolKey, SampleSeries, Segment,
    SourceTotals, StreamId,
};

/// The kind of memory that a device recording describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum DeviceKind {
    /// An NVIDIA GPU, or an AMD GPU through the same interface.
    #[default]
    Cuda,
    /// An Intel GPU: PyTorch's `xpu`.
    Xpu,
    /// A Google TPU (JAX only).
    Tpu,
    /// Pinned host memory, recorded apart from every GPU.
    Host,
    /// CPU memory in a profiler trace.
    Cpu,
    /// Any other accelerator, or a source that does not name the kind.
    Other,
}

impl DeviceKind {
    /// `cuda`, `xpu`, `tpu`, `host`, `cpu`, `other`: stable, used in JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A device: its kind, and its ordinal inside the process (-1 for host memory).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId {
    /// The kind; ordinals count per kind.
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

/// Everything that was recorded about one device.
#[derive(Clone, Debug, Default)]
pub struct DeviceRecording {
    /// Kind and ordinal as the process counts its devices.
    pub id: DeviceId,
    /// Product name; `None` if the source lacks it.
    pub name: Option<String>,
    /// Total memory in bytes; `None` if the source lacks it.
    pub capacity: Option<u64>,
    /// The most this process may reserve, in bytes (`set_per_process_memory_fraction`); `None` if not known.
    pub limit: Option<u64>,
    /// Only for a predicted run that fails under its limit: the most bytes the whole run would reserve without a limit.
    pub needs: Option<u64>,
    /// The allocator's events, oldest first.
    pub events: EventTable,
    /// Segments at the time the recording was written, by address. An expandable segment has one entry per contiguous mapped run.
    pub segments: Vec<Segment>,
    /// Blocks of those segments, by address; [`Segment::blocks`] is a range in here.
    pub blocks: Vec<Block>,
    /// True when the source contains [`segments`](Self::segments) (a trace alone does not).
    pub has_final_state: bool,
    /// Segments from a moment after the last event, set when the trace ends before the source's own end state. They
    /// show how far a segment extends that the trace uses but never allocates. They are not part of the state.
    pub later_segments: Vec<Segment>,
    /// Raw stream handles; a [`StreamId`] is an index into this. 0 is the default stream.
    pub streams: Vec<u64>,
    /// Pools by their two-part key; a [`PoolId`] is an index into this. `(0, 0)` is the default pool.
    pub pools: Vec<PoolKey>,
    /// User ranges: optimizer steps, `record_function`, profiler steps.
    pub annotations: Annotations,
    /// NVML and `memory_stats` samples, by time.
    pub samples: SampleSeries,
    /// Processes, gauges and marks of a live session; `None` for other sources.
    pub live: Option<Box<LiveTrack>>,
    /// Live bytes per category over time (memory timelines only).
    pub bands: CategoryBands,
    /// The allocator's own totals, if the source has them besides its events (profiler traces).
    pub source_totals: SourceTotals,
    /// The allocator's settings as recorded in the source.
    pub settings: Settings,
    /// Which kinds of data the source has; set by its reader.
    pub can_show: Capabilities,
}

fn intern<T: PartialEq>(known: &mut Vec<T>, new: T) -> u16 {
    let at = known.iter().position(|k| *k == new).unwrap_or_else(|| {
        known.push(new);
        known.len() - 1
    });
    u16::try_from(at).unwrap_or(u16::MAX - 1)
}

impl DeviceRecording {
    /// The id of a raw stream handle; adds the handle if it is new. Streams beyond 65,534 share the last id.
    pub fn intern_stream(&mut self, handle: u64) -> StreamId {
        StreamId(intern(&mut self.streams, handle))
    }

    /// The raw handle of a stream; 0 for the default stream and for unknown ids.
    #[inline]
    pub fn stream_handle(&self, stream: StreamId) -> u64 {
        self.streams.get(usize::from(stream.0)).copied().unwrap_or(0)
    }

    /// How sentences name a stream: `the default stream`, `stream 1 (0x5555)`.
    pub fn stream_name(&self, stream: StreamId) -> String {
        match self.stream_handle(stream) {
            0 => "the default stream".to_owned(),
            handle => format!("stream {} ({handle:#x})", stream.0),
        }
    }

    /// The id of a pool key; adds the key if it is new. Pools beyond 65,534 share the last id.
    pub fn intern_pool(&mut self, key: PoolKey) -> PoolId {
        PoolId(intern(&mut self.pools, key))
    }

    /// The key of a pool; `None` for [`PoolId::UNKNOWN`].
    pub fn pool_key(&self, pool: PoolId) -> Option<PoolKey> {
        self.pools.get(usize::from(pool.0)).copied()
    }

    /// The blocks of a segment of the end state.
    pub fn blocks_of(&self, segment: &Segment) -> &[Block] {
        self.blocks.get(segment.blocks.start as usize..segment.blocks.end as usize).unwrap_or(&[])
    }

    /// True if there are events, segments or blocks, that is, if single allocations are known.
    pub fn has_blocks(&self) -> bool {
        !self.events.is_empty() || !self.segments.is_empty() || !self.blocks.is_empty()
    }

    /// Bytes in segments when the recording was written: PyTorch's `reserved_bytes.all.current`.
    pub fn final_reserved(&self) -> u64 {
        self.segments.iter().map(|s| s.size).sum()
    }
}

/// The allocator settings a source carried.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// True when the source contained any settings (PyTorch 2.3 and later).
    pub recorded: bool,
    /// The settings that the allocator model needs; PyTorch's defaults where the source has none.
    pub conf: AllocConf,
    /// Every key and its value as text, in the source's order, including unknown keys.
    pub raw: Vec<(String, String)>,
}
