//! What a live session records about a device besides samples: processes, gauges, marks, gaps, and the cost of watching.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One watched device over a session. Its samples are in [`DeviceRecording::samples`](super::DeviceRecording::samples).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveTrack {
    /// `GPU-…` or `MIG-…`: the name that does not depend on the order of devices.
    pub uuid: String,
    /// Key and value, shown unchanged: driver, PCI address, MIG, ECC.
    pub facts: Vec<(String, String)>,
    /// Every process seen on the device, in the order it was first seen.
    pub processes: Vec<ProcessTrack>,
    /// Utilisation, power, temperature and clocks, by time.
    pub gauges: Vec<Reading>,
    /// Instants worth marking on the timeline, by time.
    pub marks: Vec<LiveMark>,
    /// Periods without samples, by time.
    pub gaps: Vec<Gap>,
    /// What each kind of driver call cost.
    pub costs: Vec<CallCost>,
    /// Share of one processor core that the sampling thread used; `None` if not measured.
    pub sampler_cpu: Option<f64>,
    /// Why the device cannot be read right now, in one sentence; `None` when it can.
    pub trouble: Option<String>,
    /// Since when the list of processes has been unreadable; `None` while it can be read.
    pub unlisted_us: Option<i64>,
    /// Figures that this driver or machine cannot give, each with its reason.
    pub limits: Vec<String>,
    /// Samples that were due but not taken, or taken but not stored.
    pub lost: u64,
    /// Samples dropped from memory to bound it. Of each pair the higher one stayed; the session file has all of them.
    pub thinned: u64,
    /// Samples whose parts exceeded the whole, because they were read a moment apart.
    pub skewed: u64,
    /// The most bytes in use since the session began, and the time.
    pub peak: Option<(u64, i64)>,
}

/// A process on a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessTrack {
    /// The driver's PID: on Linux that of the host, also from inside a container.
    pub pid: u32,
    /// Start in clock ticks since boot. PID and start together identify a process. 0 when it cannot be read.
    pub started: u64,
    /// Short process name, or `PID 123` when it cannot be read.
    pub name: String,
    /// Command line; empty when it cannot be read.
    pub command: String,
    /// User name; empty when not known.
    pub user: String,
    /// Container it runs in, if any.
    pub container: Option<String>,
    /// Why the name, command or bytes are missing.
    pub note: Option<String>,
    /// Device bytes over time, stored only where they change.
    pub points: Vec<ProcessPoint>,
    /// Its share of host memory over time, stored only where it changes.
    pub host: Vec<HostPoint>,
    /// The most device bytes seen, and the time.
    pub peak: Option<(u64, i64)>,
    /// The most bytes it ever had on the device, also before the watch. From the driver's accounting, if the
    /// administrator enabled it.
    pub lifetime_peak: Option<u64>,
    /// PyTorch's own peaks (allocated, reserved) since the program began or last reset them.
    pub torch_peak: Option<(u64, u64)>,
    /// When it left the device; `None` while it is there.
    pub ended_us: Option<i64>,
    /// True while a helper inside the process sends PyTorch's own figures.
    pub has_helper: bool,
    /// What the helper reported when it connected: PyTorch version, allocator backend, settings, rank.
    pub facts: Arc<Vec<(String, String)>>,
}

impl ProcessTrack {
    /// What the helper reports at `time_us`. Every place that describes the helper must ask here.
    pub fn helper_at(&self, time_us: i64) -> HelperState {
        match self.at(time_us) {
            Some(point) if point.torch.is_some() => HelperState::Tells,
            Some(_) if self.has_helper => HelperState::Silent,
            _ => HelperState::Absent,
        }
    }

    /// True when the helper reported that the process has imported PyTorch.
    pub fn has_torch(&self) -> bool {
        self.torch_peak.is_some() || self.facts.iter().any(|(key, _)| key == "torch")
    }

    /// Host memory at `time_us`; `None` before the first figure and after the process ended.
    pub fn host_at(&self, time_us: i64) -> Option<&HostPoint> {
        self.valid_at(time_us, &self.host, |p| p.time_us)
    }

    /// The point valid at `time_us`; `None` before the first and after the process ended.
    pub fn at(&self, time_us: i64) -> Option<&ProcessPoint> {
        self.valid_at(time_us, &self.points, |p| p.time_us)
    }

    fn valid_at<'p, P>(&self, time_us: i64, points: &'p [P], time_of: impl Fn(&P) -> i64) -> Option<&'p P> {
        let has_ended = self.ended_us.is_some_and(|end| time_us >= end);
        let after = points.partition_point(|p| time_of(p) <= time_us);
        points.get(after.checked_sub(1)?).filter(|_| !has_ended)
    }
}

/// What the helper in a process reports about a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelperState {
    /// No helper answers, or the process is not on the device at that time.
    Absent,
    /// It answers but has no figures for this device: the process may have allocated nothing there yet.
    Silent,
    /// It sends PyTorch's figures for this device.
    Tells,
}

/// A process at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessPoint {
    /// Microseconds since the epoch.
    pub time_us: i64,
    /// Bytes by the driver's count; `None` where the driver does not report them.
    pub used: Option<u64>,
    /// PyTorch's own figures; `None` without a helper.
    pub torch: Option<TorchFigures>,
}

/// Host memory of a process at an instant, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostPoint {
    /// Microseconds since the epoch.
    pub time_us: i64,
    /// Resident memory as the kernel counts it, including pinned memory; without the process's workers.
    pub resident: Option<u64>,
    /// Pinned by PyTorch, in use or cached (`torch.cuda.host_memory_stats`); `None` without a helper.
    pub pinned: Option<u64>,
    /// The part of `pinned` that tensors use.
    pub pinned_used: Option<u64>,
}

/// `torch.cuda.memory_stats` of one process and device, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TorchFigures {
    /// `reserved_bytes.all.current`, bytes.
    pub reserved: u64,
    /// `active_bytes.all.current`, bytes.
    pub active: u64,
    /// `allocated_bytes.all.current`, bytes.
    pub allocated: u64,
    /// `requested_bytes.all.current`, bytes.
    pub requested: u64,
    /// `reserved_bytes.all.peak`, bytes, since the program began or last reset its peaks.
    #[serde(default)]
    pub reserved_peak: u64,
    /// `allocated_bytes.all.peak`, bytes, since the program began or last reset its peaks.
    #[serde(default)]
    pub allocated_peak: u64,
    /// `num_alloc_retries`: how often the device had no room and PyTorch freed its cache and tried again.
    #[serde(default)]
    pub retries: u64,
    /// `num_ooms`: how many requests failed.
    #[serde(default)]
    pub ooms: u64,
}

/// Gauges of the device at an instant; `None` where the driver does not report one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reading {
    /// Microseconds since the epoch.
    pub time_us: i64,
    /// Share of time in which a kernel ran, percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy: Option<u32>,
    /// Share of time in which device memory was read or written, percent: bandwidth, not occupancy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<u32>,
    /// Temperature of the GPU, degrees Celsius.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<u32>,
    /// Power drawn, milliwatts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_mw: Option<u32>,
    /// Power limit in force, milliwatts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_mw: Option<u32>,
    /// Clock of the multiprocessors, MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_mhz: Option<u32>,
    /// Why the clocks are throttled, as NVML's bits; 0 when they are not.
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
    /// A process appeared or ended, or a helper connected.
    Process,
    /// The driver reported something: an XID, a lost device.
    Device,
    /// The machine's clock was set, or the machine slept.
    Clock,
    /// PyTorch ran out of memory.
    OutOfMemory,
    /// A limit set by the user was exceeded.
    Alarm,
}

/// An instant worth marking on the timeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveMark {
    /// Microseconds since the epoch.
    pub time_us: i64,
    /// What it is about.
    pub kind: MarkKind,
    /// The label on the timeline: a few words.
    pub text: Arc<str>,
}

/// A period without samples, in microseconds since the epoch.
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
    /// The kind of call: `memory`, `processes`, `utilization`.
    pub call: String,
    /// Calls made since the session began.
    pub count: u64,
    /// Mean of the last calls, microseconds.
    pub mean_us: f64,
    /// 95th percentile of the last calls, microseconds.
    pub p95_us: f64,
    /// Calls per second at present.
    pub hz: f64,
    /// True when the call was slow and is therefore made less often than configured.
    pub is_slowed: bool,
}
