//! [`Recording`]: the one value everything becomes.

use std::path::PathBuf;

use super::Known;
use super::{DeviceId, DeviceRecording, LoadReport, MemoryStats, OpTable, StackTable};

/// Allocator history and state of one process, over one table of call stacks. Immutable once built; share it in an `Arc`.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// Where it came from.
    pub source: Source,
    /// One entry a device that has events, segments or samples. Never merged, never mixed.
    pub devices: Vec<DeviceRecording>,
    /// Every call stack of every device, interned.
    pub stacks: StackTable,
    /// Operators, runtime calls and kernels, when a profiler trace told of them.
    pub ops: OpTable,
    /// Which lists a snapshot has beyond those of its devices.
    pub lists: SnapshotLists,
    /// What the reader found odd.
    pub report: LoadReport,
    /// Other files of the same run that were joined to this one, in the order they came.
    pub added: Vec<Added>,
    /// PyTorch's counters of the same run, when a file of them was added; each with the file's name.
    pub stats: Vec<(String, MemoryStats)>,
}

/// Lists of a snapshot that are there although they may be empty: what is written again has them too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotLists {
    /// Entries of `device_traces`: devices that the process saw, also those it never used.
    pub device_traces: u32,
    /// True with `host_segments`.
    pub host_segments: bool,
    /// True with `host_traces`.
    pub host_traces: bool,
}

/// A file that was joined to a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// Its name.
    pub name: String,
    /// One sentence: what matched, how far apart the clocks were.
    pub sentence: String,
}

impl Recording {
    /// The index in [`devices`](Self::devices) of the accelerator that a viewer opens first: one that ran out of memory, then the
    /// one with most events, then most segments. Host and CPU memory come last, however busy they are. O(events of devices that
    /// are not alone).
    #[must_use]
    pub fn busiest_device(&self) -> Option<usize> {
        if self.devices.len() == 1 {
            return Some(0);
        }
        (0..self.devices.len()).max_by_key(|&i| {
            let d = &self.devices[i];
            let is_accelerator = !matches!(d.id.kind, super::DeviceKind::Cpu | super::DeviceKind::Host);
            (is_accelerator, d.events.has_oom(), d.events.len(), d.segments.len(), d.samples.len(), std::cmp::Reverse(i))
        })
    }

    /// The index in [`devices`](Self::devices) of the device that the process knew by the number `wanted`.
    ///
    /// # Errors
    /// [`NoSuchDevice`] lists the devices of the recording.
    pub fn device_numbered(&self, wanted: i32) -> Result<usize, NoSuchDevice> {
        self.devices.iter().position(|d| d.id.index == wanted).ok_or_else(|| NoSuchDevice {
            recording: self.source.name.clone(),
            wanted,
            known: self.devices.iter().map(|d| d.id).collect(),
        })
    }
}

/// The recording has no device of this number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{recording}: there is no device {wanted}; the recording has {}", numbered(known))]
pub struct NoSuchDevice {
    /// The recording's name.
    pub recording: String,
    /// The number that was asked for.
    pub wanted: i32,
    /// The devices that it has.
    pub known: Vec<DeviceId>,
}

/// `0 (cuda:0), 1 (cuda:1)`.
fn numbered(devices: &[DeviceId]) -> String {
    let all: Vec<String> = devices.iter().map(|id| format!("{} ({id})", id.index)).collect();
    all.join(", ")
}

/// Where a recording came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The file's name, or what produced the recording (`what-if: expandable_segments:True`).
    pub name: String,
    /// The file, when there is one.
    pub path: Option<PathBuf>,
    /// Which reader or producer made it.
    pub format: Format,
    /// Size of the file in bytes; 0 when there is none.
    pub bytes: u64,
}

/// What wrote the bytes a recording was made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// Nothing yet: a recording built in memory.
    #[default]
    Memory,
    /// `torch.cuda.memory._dump_snapshot` and its relatives, as a pickle.
    SnapshotPickle,
    /// The same dictionary as JSON.
    SnapshotJson,
    /// A snapshot embedded in a page saved by `_memory_viz`.
    SnapshotHtml,
    /// `torch.profiler` Chrome trace.
    KinetoTrace,
    /// `export_memory_timeline`.
    MemoryTimeline,
    /// RMM's logging resource adaptor.
    RmmLog,
    /// `jax.profiler.save_device_memory_profile`.
    JaxMemoryProfile,
    /// vramscope's own live session file.
    Session,
    /// Another allocator setting, simulated on the requests of a recording.
    WhatIf,
    /// A run that was never made, predicted from recordings of its program.
    Plan,
    /// The built-in CUDA workload.
    Probe,
    /// PyTorch's counters alone: `memory_stats()` and its relatives. Totals, without events, segments or blocks.
    Counters,
}

impl Recording {
    /// True where PyTorch's counters are all there is: totals, and no event, segment or block.
    #[must_use]
    pub fn has_only_counters(&self) -> bool {
        self.source.format == Format::Counters
    }

    /// True for a watch that has found no device: what stands in the place of one has nothing but the reason.
    #[must_use]
    pub fn has_no_device(&self) -> bool {
        let is_none = |d: &DeviceRecording| {
            d.live.as_ref().is_some_and(|l| l.uuid.is_empty()) && d.name.is_none() && d.capacity.is_none() && d.samples.is_empty()
        };
        self.devices.iter().all(is_none)
    }

    /// True where some device has what tells of single allocations.
    #[must_use]
    pub fn has_blocks(&self) -> bool {
        self.devices.iter().any(DeviceRecording::has_blocks)
    }

    /// True for a trace of PyTorch 1.8 or 1.9: it has neither totals nor addresses, so its curves are relative to what was held before.
    #[must_use]
    pub fn is_relative(&self, device: &DeviceRecording) -> bool {
        self.source.format == Format::KinetoTrace
            && !device.can_show.addresses.is_known()
            && !device.source_totals.allocated.is_known()
    }
}

impl Recording {
    /// Whether the source tells addresses; a recording of several devices tells none where one of them does not.
    #[must_use]
    pub fn addresses(&self) -> Known {
        self.devices.iter().map(|d| d.can_show.addresses).find(|known| !known.is_known()).unwrap_or_default()
    }

    /// What its times count from. A time that is no time of our days (2001 to 2099) in microseconds since the epoch is taken for one
    /// of a clock that the source does not name, such as that of a trace without `baseTimeNanoseconds`. O(devices).
    #[must_use]
    pub fn clock(&self) -> Clock {
        match self.source.format {
            Format::RmmLog => return Clock::Day,
            Format::Session | Format::Probe => return Clock::Epoch,
            _ => {}
        }
        let of_device = |d: &DeviceRecording| {
            let marked = d.annotations.last().map(|a| a.start_us);
            let summed = d.bands.time_us.last().copied();
            [d.events.time_range().map(|times| times.1), d.samples.last().map(|s| s.time_us), summed, marked]
        };
        let of_ops = self.ops.start_ns.last().map(|ns| ns / 1_000);
        let last = self.devices.iter().flat_map(of_device).flatten().chain(of_ops).max();
        if last.is_none_or(|us| Clock::OUR_DAYS.contains(&us)) { Clock::Epoch } else { Clock::Start }
    }
}

/// What the times of a recording count from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The Unix epoch: they are times of a clock.
    #[default]
    Epoch,
    /// Midnight of a day that the source does not name, in a zone that it does not name (RMM).
    Day,
    /// The source's own start, or what else it does not name: only what lies between two of them is known.
    Start,
}

impl Clock {
    /// From 2001 to 2099, in microseconds since the epoch.
    pub const OUR_DAYS: std::ops::Range<i64> = 978_307_200_000_000..4_102_444_800_000_000;

    /// A short stable name, used by `--json`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Clock::Epoch => "epoch",
            Clock::Day => "day",
            Clock::Start => "start",
        }
    }
}

impl Format {
    /// True for a run that was never made: its events come out of the model of the allocator.
    #[must_use]
    pub fn never_ran(self) -> bool {
        matches!(self, Format::Plan | Format::WhatIf)
    }

    /// A short stable name, used by `summary --json`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Memory => "memory",
            Format::SnapshotPickle => "snapshot-pickle",
            Format::SnapshotJson => "snapshot-json",
            Format::SnapshotHtml => "snapshot-html",
            Format::KinetoTrace => "kineto-trace",
            Format::MemoryTimeline => "memory-timeline",
            Format::RmmLog => "rmm-log",
            Format::JaxMemoryProfile => "jax-memory-profile",
            Format::Session => "session",
            Format::WhatIf => "what-if",
            Format::Plan => "plan",
            Format::Probe => "probe",
            Format::Counters => "counters",
        }
    }
}
