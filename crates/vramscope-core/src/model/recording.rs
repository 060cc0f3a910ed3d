//! [`Recording`]: the one value that every reader produces.

use std::path::PathBuf;

use super::Known;
use super::{DeviceId, DeviceRecording, LoadReport, MemoryStats, OpTable, StackTable};

/// Allocator history and state of one process, with one table of call stacks. Immutable once built; share it in an `Arc`.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// File or producer it came from.
    pub source: Source,
    /// One entry per device that has events, segments or samples. Devices are never merged.
    pub devices: Vec<DeviceRecording>,
    /// Every call stack of every device, interned.
    pub stacks: StackTable,
    /// Operators, runtime calls and kernels of a profiler trace; otherwise empty.
    pub ops: OpTable,
    /// Which lists a snapshot had besides those of its devices.
    pub lists: SnapshotLists,
    /// Problems that the reader met.
    pub report: LoadReport,
    /// Other files of the same run that were joined to this one, in the order they were added.
    pub added: Vec<Added>,
    /// PyTorch's counters of the same run, each with the name of the file it was added from.
    pub stats: Vec<(String, MemoryStats)>,
}

/// Lists that a snapshot contained although they may be empty, so that a written snapshot contains them too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotLists {
    /// Number of entries in `device_traces`: all devices that the process saw, used or not.
    pub device_traces: u32,
    /// True if `host_segments` was present.
    pub host_segments: bool,
    /// True if `host_traces` was present.
    pub host_traces: bool,
}

/// A file that was joined to a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// The file's name, as in its [`Source`].
    pub name: String,
    /// One sentence: what matched, and how far apart the clocks were.
    pub sentence: String,
}

impl Recording {
    /// The index in [`devices`](Self::devices) of the accelerator to show first: one that ran out of memory, then the one with the
    /// highest peak, then most samples. Host and CPU memory come last, whatever they hold. O(events) if there are several devices.
    pub fn busiest_device(&self) -> Option<usize> {
        if self.devices.len() == 1 {
            return Some(0);
        }
        (0..self.devices.len()).max_by_key(|&i| {
            let d = &self.devices[i];
            let is_accelerator = !matches!(d.id.kind, super::DeviceKind::Cpu | super::DeviceKind::Host);
            let size = (highest(d), d.events.len(), d.segments.len(), d.samples.len());
            (is_accelerator, d.events.has_oom(), size, std::cmp::Reverse(i))
        })
    }

    /// The indices of all [`devices`](Self::devices), the [busiest](Self::busiest_device) first, then the rest in file order.
    pub fn busiest_first(&self) -> Vec<usize> {
        let first = self.busiest_device();
        first.into_iter().chain((0..self.devices.len()).filter(|&i| Some(i) != first)).collect()
    }

    /// The index in [`devices`](Self::devices) of the device with ordinal `wanted`. The error lists the devices of the recording.
    pub fn device_numbered(&self, wanted: i32) -> Result<usize, NoSuchDevice> {
        self.devices.iter().position(|d| d.id.index == wanted).ok_or_else(|| NoSuchDevice {
            recording: self.source.name.clone(),
            wanted,
            known: self.devices.iter().map(|d| d.id).collect(),
        })
    }
}

/// The most bytes live at once, to compare the devices of a recording: counts from the end state back to the first event.
fn highest(device: &DeviceRecording) -> u64 {
    let live = |b: &&super::Block| b.state != super::BlockState::Inactive;
    let mut held: i128 = device.blocks.iter().filter(live).map(|b| i128::from(b.size)).sum();
    let (mut most, mut least) = (held, held);
    for (&action, &size) in device.events.action.iter().zip(&device.events.size).rev() {
        match action {
            super::Action::Alloc => held -= i128::from(size),
            super::Action::FreeRequested => held += i128::from(size),
            _ => continue,
        }
        (most, least) = (most.max(held), least.min(held));
    }
    // A trace without an end counts from what it held least.
    u64::try_from(most - least.min(0)).unwrap_or(u64::MAX)
}

/// The recording has no device with this ordinal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{recording}: there is no device {wanted}; the recording has {}", numbered(known))]
pub struct NoSuchDevice {
    /// Name of the recording.
    pub recording: String,
    /// The ordinal that was asked for.
    pub wanted: i32,
    /// Devices of the recording.
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
    /// The file's path; `None` if the recording does not come from a file.
    pub path: Option<PathBuf>,
    /// The reader or producer that made it.
    pub format: Format,
    /// File size in bytes; 0 without a file.
    pub bytes: u64,
}

/// What kind of source a recording was made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Format {
    /// Built in memory: there is no file.
    #[default]
    Memory,
    /// `torch.cuda.memory._dump_snapshot` and similar calls, as a pickle.
    SnapshotPickle,
    /// The same dictionary as JSON.
    SnapshotJson,
    /// A snapshot embedded in a page written by `_memory_viz`.
    SnapshotHtml,
    /// A Chrome trace of `torch.profiler`.
    KinetoTrace,
    /// A file of `export_memory_timeline`, or a page with plotted allocations.
    MemoryTimeline,
    /// RMM's logging resource adaptor.
    RmmLog,
    /// A pprof file of `jax.profiler.save_device_memory_profile`.
    JaxMemoryProfile,
    /// vramscope's own live session file.
    Session,
    /// The requests of a recording simulated with other allocator settings.
    WhatIf,
    /// A run that was never made, predicted from recordings of the same program.
    Plan,
    /// The built-in CUDA workload.
    Probe,
    /// Only PyTorch's counters: `memory_stats()` and similar calls. Totals, without events, segments or blocks.
    Counters,
}

impl Recording {
    /// True when PyTorch's counters are all it has: totals, but no event, segment or block.
    pub fn has_only_counters(&self) -> bool {
        self.source.format == Format::Counters
    }

    /// True for a live session that found no device: its only device entry is a placeholder that holds the reason.
    pub fn has_no_device(&self) -> bool {
        let is_none = |d: &DeviceRecording| {
            d.live.as_ref().is_some_and(|l| l.uuid.is_empty()) && d.name.is_none() && d.capacity.is_none() && d.samples.is_empty()
        };
        self.devices.iter().all(is_none)
    }

    /// True if some device has events, segments or blocks.
    pub fn has_blocks(&self) -> bool {
        self.devices.iter().any(DeviceRecording::has_blocks)
    }

    /// True for a trace of PyTorch 1.8 or 1.9: it has no totals or addresses, so its curves are relative to what came before.
    pub fn is_relative(&self, device: &DeviceRecording) -> bool {
        self.source.format == Format::KinetoTrace
            && !device.can_show.addresses.is_known()
            && !device.source_totals.allocated.is_known()
    }
}

impl Recording {
    /// Whether the source has addresses. If one device lacks them, the whole recording does.
    pub fn addresses(&self) -> Known {
        self.devices.iter().map(|d| d.can_show.addresses).find(|known| !known.is_known()).unwrap_or_default()
    }

    /// What the times of the recording count from. If the last time, as microseconds since the epoch, is outside the years 2001
    /// to 2099, the source uses a clock that it does not name, like a trace without `baseTimeNanoseconds`. O(devices).
    pub fn clock(&self) -> Clock {
        match self.source.format {
            Format::RmmLog => return Clock::Day,
            // It was never made: no clock showed its times.
            Format::Plan => return Clock::Start,
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

/// The zero point of a recording's times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The Unix epoch: absolute times.
    #[default]
    Epoch,
    /// Midnight of an unknown day in an unknown time zone (RMM).
    Day,
    /// An unknown zero point, such as the start of the trace: only differences between times are known.
    Start,
}

impl Clock {
    /// The years 2001 to 2099, in microseconds since the epoch.
    pub const OUR_DAYS: std::ops::Range<i64> = 978_307_200_000_000..4_102_444_800_000_000;

    /// A short stable name, used by `--json`.
    pub fn name(self) -> &'static str {
        match self {
            Clock::Epoch => "epoch",
            Clock::Day => "day",
            Clock::Start => "start",
        }
    }
}

impl Format {
    /// True for a run that was never made: its events come from the allocator model.
    pub fn never_ran(self) -> bool {
        matches!(self, Format::Plan | Format::WhatIf)
    }

    /// A short stable name, used by `summary --json`.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Action, DeviceKind};
    use super::*;

    #[test]
    fn the_busiest_device_ran_out_of_memory_or_held_most() {
        let device = |index: i32, events: &[(Action, u64)]| {
            let mut device = DeviceRecording { id: DeviceId { kind: DeviceKind::Cuda, index }, ..DeviceRecording::default() };
            device.events.action = events.iter().map(|e| e.0).collect();
            device.events.size = events.iter().map(|e| e.1).collect();
            device
        };
        let busy = [(Action::Alloc, 10), (Action::FreeRequested, 10), (Action::Alloc, 10), (Action::FreeRequested, 10)];
        let large = [(Action::Alloc, 500)];
        let failed = [(Action::Alloc, 1), (Action::Oom, 900)];
        let of = |devices: Vec<DeviceRecording>| Recording { devices, ..Recording::default() };
        let three = of(vec![device(0, &[]), device(1, &busy), device(2, &large)]);
        assert_eq!(three.busiest_first(), [2, 0, 1], "an empty first device does not come first");
        let failing = of(vec![device(0, &large), device(1, &failed)]);
        assert_eq!(failing.busiest_first(), [1, 0]);
        assert_eq!(of(Vec::new()).busiest_first(), [0_usize; 0]);
        assert_eq!(highest(&device(0, &busy)), 10);
    }
}
