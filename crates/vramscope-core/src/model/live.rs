//! What a live session tells of a device beside its samples: processes, gauges, marks, gaps, and what watching cost.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A watched device over a session. Samples stand in [`DeviceRecording::samples`](super::DeviceRecording::samples).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveTrack {
    /// `GPU-…` or `MIG-…`: the name that stays the same whatever the order of devices.
    pub uuid: String,
    /// Facts to show as they are: driver, PCI address, MIG, ECC.
    pub facts: Vec<(String, String)>,
    /// Every process seen on the device, in the order it was first seen.
    pub processes: Vec<ProcessTrack>,
    /// Utilisation, power, temperature and clocks, by time.
    pub gauges: Vec<Reading>,
    /// Instants worth a line on the picture, by time.
    pub marks: Vec<LiveMark>,
    /// Times without samples, by time.
    pub gaps: Vec<Gap>,
    /// What each kind of call cost.
    pub costs: Vec<CallCost>,
    /// Share of one processor core that the sampling thread used, when measured.
    pub sampler_cpu: Option<f64>,
    /// One sentence while the device cannot be read; `None` when all is well.
    pub trouble: Option<String>,
    /// Since when the list of processes cannot be read any more; `None` while it can.
    pub unlisted_us: Option<i64>,
    /// What this driver or machine cannot tell, each with its reason.
    pub limits: Vec<String>,
    /// Samples that were due and not taken, or taken and not stored.
    pub lost: u64,
    /// Samples left out of memory to keep it bounded; the highest of each pair stayed, and the session file has all of them.
    pub thinned: u64,
    /// Samples whose parts exceeded their whole because they were read a moment apart.
    pub skewed: u64,
    /// The most bytes in use since the session began, and when.
    pub peak: Option<(u64, i64)>,
}

/// A process on a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessTrack {
    /// As the driver names it: on Linux the host's PID, also from inside a container.
    pub pid: u32,
    /// Start in clock ticks since boot; with the PID it names the process for good. 0 when it cannot be read.
    pub started: u64,
    /// Short name.
    pub name: String,
    /// Command line, when it can be read.
    pub command: String,
    /// User, when known.
    pub user: String,
    /// Container, when it runs in one.
    pub container: Option<String>,
    /// Why name, command or bytes are missing.
    pub note: Option<String>,
    /// Bytes over time, only where they changed.
    pub points: Vec<ProcessPoint>,
    /// Its part of the machine's own memory over time, only where it changed.
    pub host: Vec<HostPoint>,
    /// The most bytes seen, and when.
    pub peak: Option<(u64, i64)>,
    /// The most it ever had on the device, also before the watch: the driver's accounting, where the administrator switched it on.
    pub lifetime_peak: Option<u64>,
    /// PyTorch's own peaks, allocated and reserved: since the program began, or since it last reset them.
    pub torch_peak: Option<(u64, u64)>,
    /// When it left the device.
    pub ended_us: Option<i64>,
    /// True while PyTorch's own figures arrive from a helper inside it.
    pub has_helper: bool,
    /// What the helper said when it was greeted: PyTorch version, allocator backend, settings, rank.
    pub facts: Arc<Vec<(String, String)>>,
}

impl ProcessTrack {
    /// What the helper tells at `time_us`: the one answer for every place that speaks of it.
    #[must_use]
    pub fn helper_at(&self, time_us: i64) -> HelperState {
        match self.at(time_us) {
            Some(point) if point.torch.is_some() => HelperState::Tells,
            Some(_) if self.has_helper => HelperState::Silent,
            _ => HelperState::Absent,
        }
    }

    /// True when PyTorch is imported in it, as far as its helper told.
    #[must_use]
    pub fn has_torch(&self) -> bool {
        self.torch_peak.is_some() || self.facts.iter().any(|(key, _)| key == "torch")
    }

    /// Its host memory at `time_us`; `None` before the first figure and after the end.
    #[must_use]
    pub fn host_at(&self, time_us: i64) -> Option<&HostPoint> {
        if self.ended_us.is_some_and(|end| time_us >= end) {
            return None;
        }
        let after = self.host.partition_point(|p| p.time_us <= time_us);
        self.host.get(after.checked_sub(1)?)
    }

    /// The point that holds at `time_us`; `None` before the first and after the end.
    #[must_use]
    pub fn at(&self, time_us: i64) -> Option<&ProcessPoint> {
        if self.ended_us.is_some_and(|end| time_us >= end) {
            return None;
        }
        let after = self.points.partition_point(|p| p.time_us <= time_us);
        self.points.get(after.checked_sub(1)?)
    }
}

/// What the helper in a process tells of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelperState {
    /// No helper answers.
    Absent,
    /// It answers and has no figures of this device: the process may have allocated nothing there yet.
    Silent,
    /// PyTorch's figures of this device arrive.
    Tells,
}

/// A process at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessPoint {
    /// Microseconds since the epoch.
    pub time_us: i64,
    /// Bytes by the driver's count; `None` where it does not tell.
    pub used: Option<u64>,
    /// PyTorch's own figures, when a helper tells them.
    pub torch: Option<TorchFigures>,
}

/// What a process has of the machine's own memory at an instant, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostPoint {
    /// Microseconds since the epoch.
    pub time_us: i64,
    /// Resident memory by the kernel's count, pinned memory included; of this process alone, not of its workers.
    pub resident: Option<u64>,
    /// Pinned by PyTorch, in use or kept for the next request (`torch.cuda.host_memory_stats`), when a helper tells it.
    pub pinned: Option<u64>,
    /// The part of it that tensors use.
    pub pinned_used: Option<u64>,
}

/// `torch.cuda.memory_stats` of one process and device, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TorchFigures {
    /// `reserved_bytes.all.current`.
    pub reserved: u64,
    /// `active_bytes.all.current`.
    pub active: u64,
    /// `allocated_bytes.all.current`.
    pub allocated: u64,
    /// `requested_bytes.all.current`.
    pub requested: u64,
    /// `reserved_bytes.all.peak`.
    #[serde(default)]
    pub reserved_peak: u64,
    /// `allocated_bytes.all.peak`.
    #[serde(default)]
    pub allocated_peak: u64,
    /// `num_alloc_retries`.
    #[serde(default)]
    pub retries: u64,
    /// `num_ooms`.
    #[serde(default)]
    pub ooms: u64,
}

/// What the device does at an instant; a field that the driver does not tell is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reading {
    /// Microseconds since the epoch.
    pub time_us: i64,
    /// Share of time in which some kernel ran, percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy: Option<u32>,
    /// Share of time in which memory was read or written, percent: bandwidth, not occupancy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<u32>,
    /// Degrees Celsius.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<u32>,
    /// Milliwatts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_mw: Option<u32>,
    /// Limit in force, milliwatts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_mw: Option<u32>,
    /// Clock of the multiprocessors, MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_mhz: Option<u32>,
    /// Why the clocks are held back, as NVML's bits; 0 for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle: Option<u64>,
}

/// What a mark is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MarkKind {
    /// Set by the user.
    #[default]
    User,
    /// Sent by the program through the helper.
    Program,
    /// A process came or went, a helper was attached.
    Process,
    /// The driver reported something: an XID, a lost device.
    Device,
    /// The machine's clock was set, or it slept.
    Clock,
    /// PyTorch ran out of memory.
    OutOfMemory,
    /// A limit the user set was passed.
    Alarm,
}

/// An instant worth a line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveMark {
    /// Microseconds since the epoch.
    pub time_us: i64,
    /// What it is about.
    pub kind: MarkKind,
    /// A few words.
    pub text: Arc<str>,
}

/// A time without samples, microseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gap {
    /// The last sample before it.
    pub from_us: i64,
    /// The first sample after it.
    pub to_us: i64,
}

/// What one kind of call cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallCost {
    /// What is asked: `memory`, `processes`, `utilization`.
    pub call: String,
    /// Calls made since the session began.
    pub count: u64,
    /// Mean of the last calls, microseconds.
    pub mean_us: f64,
    /// 95th percentile of the last calls, microseconds.
    pub p95_us: f64,
    /// How often it is made now, a second.
    pub hz: f64,
    /// True when it was slow and is made less often than asked for.
    pub is_slowed: bool,
}
