//! The contents of a session: one [`Record`] per frame, as JSON with a field `k` for its kind.
//!
//! A new field must have a default; older readers count and skip a new kind.

use serde::{Deserialize, Serialize};

use crate::model::{CallCost, MarkKind, Reading, TorchFigures};

/// One observation. Names of variants and fields are those in the file: renaming one breaks older files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "k", rename_all = "snake_case")]
pub enum Record {
    /// First record of a session: the recorder.
    Start(Start),
    /// A device; comes before its figures, and again when a fact changed.
    Device(DeviceFacts),
    /// Memory of a device at an instant.
    Memory(MemoryPoint),
    /// All processes on a device.
    Processes(ProcessList),
    /// The list of processes became unreadable, or readable again; the last list is then out of date.
    Unlisted(Trouble),
    /// The most that each process ever had on a device.
    Peaks(DevicePeaks),
    /// A process; comes before its figures.
    Process(ProcessFacts),
    /// Gauges of a device.
    Gauge(DeviceGauge),
    /// PyTorch's figures from the helper in a process.
    Torch(TorchPoint),
    /// Host memory of a process.
    Host(HostMemory),
    /// A helper connected, in the process with this PID.
    Attached(Attached),
    /// A helper disconnected, or its process ended.
    Detached(Detached),
    /// An instant worth marking on the timeline.
    Mark(MarkPoint),
    /// A device became unreadable, or readable again.
    Trouble(Trouble),
    /// Cost of the driver calls.
    Costs(Costs),
    /// Samples were lost, or a period has none.
    Lost(Lost),
    /// Segments and blocks of a process, as the JSON of a snapshot without traces.
    Blocks(Blocks),
    /// Last record of a session that was closed properly.
    End(End),
}

/// The recorder of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Start {
    /// Microseconds since the epoch.
    pub time_us: i64,
    /// Version of vramscope, from its package.
    pub version: String,
    /// The machine's host name; empty when unknown.
    pub host: String,
    /// Why nothing can be sampled, if that is known from the start.
    pub trouble: Option<String>,
    /// PID of the recorder; 0 when unknown.
    pub pid: u32,
}

/// Facts about a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceFacts {
    /// Its number in this session, by which other records refer to it.
    pub device: u32,
    /// `GPU-…` or `MIG-…`: identifies the device across sessions.
    pub uuid: String,
    /// Product name as the driver gives it.
    pub name: String,
    /// Total bytes; 0 when unknown.
    pub total: u64,
    /// Driver version, PCI address, MIG, ECC: shown unchanged.
    pub facts: Vec<(String, String)>,
    /// Figures that are not available, each with its reason.
    pub limits: Vec<String>,
}

/// Memory of a device, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryPoint {
    /// Device number, as in [`DeviceFacts::device`].
    pub d: u32,
    /// Microseconds since the epoch.
    pub t: i64,
    /// Total bytes of the device.
    pub total: u64,
    /// Bytes in use by all processes and the driver.
    pub used: u64,
    /// Bytes used by the driver; `None` if it does not report them.
    pub driver: Option<u64>,
}

/// The processes on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessList {
    /// Device number, as in [`DeviceFacts::device`].
    pub d: u32,
    /// Microseconds since the epoch.
    pub t: i64,
    /// `(pid, start in clock ticks since boot, bytes)`; bytes are `None` where the driver does not report them.
    pub p: Vec<(u32, u64, Option<u64>)>,
}

/// The most bytes that processes ever had on a device, from the driver's accounting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DevicePeaks {
    /// Device number, as in [`DeviceFacts::device`].
    pub d: u32,
    /// Microseconds since the epoch.
    pub t: i64,
    /// `(pid, start in clock ticks since boot, bytes)`.
    pub p: Vec<(u32, u64, u64)>,
}

/// Facts about a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessFacts {
    /// PID as the driver reports it.
    pub pid: u32,
    /// Start in clock ticks since boot.
    pub started: u64,
    /// Name from `/proc/PID/comm`; `PID 123` when it cannot be read.
    pub name: String,
    /// Command line without the program's folder, at most 400 bytes; the name when it cannot be read.
    pub command: String,
    /// User name, or the numeric id if it has no name; empty when unknown.
    pub user: String,
    /// Container it runs in, if any.
    pub container: Option<String>,
    /// Why a fact is missing.
    pub note: Option<String>,
}

/// Gauges of a device at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceGauge {
    /// Device number, as in [`DeviceFacts::device`].
    pub d: u32,
    /// The readings, with their own time.
    pub g: Reading,
}

/// PyTorch's figures of a process on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TorchPoint {
    /// Device number, as in [`DeviceFacts::device`].
    pub d: u32,
    /// Microseconds since the epoch, by the machine's clock.
    pub t: i64,
    /// PID as the driver reports it.
    pub pid: u32,
    /// PyTorch's memory figures, in bytes.
    pub m: TorchFigures,
}

/// Host memory of a process, in bytes. The sampler sends one part and the helper the others; an absent field did not change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostMemory {
    /// Microseconds since the epoch.
    pub t: i64,
    /// PID as the driver reports it.
    pub pid: u32,
    /// Resident memory as the kernel counts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident: Option<u64>,
    /// Pinned by PyTorch, in use or cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<u64>,
    /// Pinned by PyTorch and in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned_used: Option<u64>,
}

/// A helper that connected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attached {
    /// Microseconds since the epoch.
    pub t: i64,
    /// PID as the driver reports it.
    pub pid: u32,
    /// PyTorch and CUDA version, allocator backend, settings, rank.
    pub facts: Vec<(String, String)>,
}

/// A helper that disconnected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Detached {
    /// Microseconds since the epoch.
    pub t: i64,
    /// PID as the driver reports it.
    pub pid: u32,
    /// The reason, as a part of a sentence.
    pub why: String,
}

/// An instant worth marking on the timeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MarkPoint {
    /// The device it is about; `None` for all devices.
    pub d: Option<u32>,
    /// Microseconds since the epoch.
    pub t: i64,
    /// What it is about.
    pub kind: MarkKind,
    /// The label on the timeline: a few words.
    pub text: String,
}

/// A device or list that became unreadable, or readable again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trouble {
    /// The device; `None` for all devices.
    pub d: Option<u32>,
    /// Microseconds since the epoch.
    pub t: i64,
    /// The reason in one sentence; `None` when it is readable again.
    pub sentence: Option<String>,
}

/// Cost of the driver calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Costs {
    /// One entry per kind of call.
    pub calls: Vec<CallCost>,
    /// Share of one processor core that the sampling thread used.
    pub cpu: Option<f64>,
}

/// Samples that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lost {
    /// The device; `None` for all devices.
    pub d: Option<u32>,
    /// Number of samples; 0 when only the period is known.
    pub n: u64,
    /// Time of the last sample before, if known.
    pub from: i64,
    /// Time of the first sample after.
    pub to: i64,
}

/// Segments and blocks of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Blocks {
    /// Microseconds since the epoch.
    pub t: i64,
    /// PID as the driver reports it.
    pub pid: u32,
    /// The process's ordinal of each device, with the device's number in this session.
    pub devices: Vec<(i32, u32)>,
    /// A snapshot without traces.
    pub snapshot: Box<serde_json::value::Value>,
}

/// The session was closed properly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    /// Microseconds since the epoch.
    pub t: i64,
}
