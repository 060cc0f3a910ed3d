//! What a session is made of: one [`Record`] a frame, as JSON with a field `k` that names its kind.
//!
//! A field that is added later must have a default; a kind that is added later is counted and skipped by older readers.

use serde::{Deserialize, Serialize};

use crate::model::{CallCost, MarkKind, Reading, TorchFigures};

/// One thing that was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "k", rename_all = "snake_case")]
pub enum Record {
    /// First of a session: who recorded it.
    Start(Start),
    /// A device, before anything about it; again when a fact changed.
    Device(DeviceFacts),
    /// The memory of a device.
    Memory(MemoryPoint),
    /// Every process on a device.
    Processes(ProcessList),
    /// The list of processes cannot be read any more, or can again; what was listed is of before.
    Unlisted(Trouble),
    /// The most that processes ever had on a device.
    Peaks(DevicePeaks),
    /// Who a process is; before its figures.
    Process(ProcessFacts),
    /// What a device does.
    Gauge(DeviceGauge),
    /// PyTorch's figures, from the helper in a process.
    Torch(TorchPoint),
    /// The machine's own memory in a process.
    Host(HostMemory),
    /// A helper answered.
    Attached(Attached),
    /// A helper went away.
    Detached(Detached),
    /// An instant worth a line.
    Mark(MarkPoint),
    /// A device cannot be read, or can again.
    Trouble(Trouble),
    /// What calls cost.
    Costs(Costs),
    /// Samples were lost.
    Lost(Lost),
    /// Segments and blocks of a process, as the JSON of a snapshot without traces.
    Blocks(Blocks),
    /// Last of a session that was closed.
    End(End),
}

/// Who recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Start {
    /// Microseconds since the epoch.
    pub time_us: i64,
    /// vramscope's version.
    pub version: String,
    /// The machine's name.
    pub host: String,
    /// Why nothing can be sampled, when that is so from the start.
    pub trouble: Option<String>,
    /// The process that records; 0 when unknown.
    pub pid: u32,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceFacts {
    /// Its number in this session; other records name it by this.
    pub device: u32,
    /// `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// Product name.
    pub name: String,
    /// Total bytes; 0 when unknown.
    pub total: u64,
    /// Driver version, PCI address, MIG, ECC: shown as they are.
    pub facts: Vec<(String, String)>,
    /// What is unknown here, each with its reason.
    pub limits: Vec<String>,
}

/// Memory of a device, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryPoint {
    /// Device number.
    pub d: u32,
    /// Microseconds since the epoch.
    pub t: i64,
    /// Total.
    pub total: u64,
    /// In use by everyone, the driver included.
    pub used: u64,
    /// Kept by the driver, when it tells.
    pub driver: Option<u64>,
}

/// Processes of a device: PID, start in clock ticks since boot, bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessList {
    /// Device number.
    pub d: u32,
    /// Microseconds since the epoch.
    pub t: i64,
    /// `(pid, start, bytes)`; bytes `None` where the driver does not tell.
    pub p: Vec<(u32, u64, Option<u64>)>,
}

/// The most that processes ever had on a device, by the driver's accounting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DevicePeaks {
    /// Device number.
    pub d: u32,
    /// Microseconds since the epoch.
    pub t: i64,
    /// `(pid, start, bytes)`.
    pub p: Vec<(u32, u64, u64)>,
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessFacts {
    /// As the driver names it.
    pub pid: u32,
    /// Start in clock ticks since boot.
    pub started: u64,
    /// Short name.
    pub name: String,
    /// Command line.
    pub command: String,
    /// User.
    pub user: String,
    /// Container.
    pub container: Option<String>,
    /// Why something is missing.
    pub note: Option<String>,
}

/// A gauge of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceGauge {
    /// Device number.
    pub d: u32,
    /// The readings.
    pub g: Reading,
}

/// PyTorch's figures of a process on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TorchPoint {
    /// Device number.
    pub d: u32,
    /// Microseconds since the epoch, by the clock of the machine.
    pub t: i64,
    /// Process.
    pub pid: u32,
    /// Bytes.
    pub m: TorchFigures,
}

/// What a process has of the machine's own memory, bytes. The sampler tells one part and the helper the others: what is absent did not change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostMemory {
    /// Microseconds since the epoch.
    pub t: i64,
    /// Process.
    pub pid: u32,
    /// Resident, by the kernel's count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident: Option<u64>,
    /// Pinned by PyTorch, in use or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<u64>,
    /// Pinned and in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned_used: Option<u64>,
}

/// A helper that answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attached {
    /// Microseconds since the epoch.
    pub t: i64,
    /// Process.
    pub pid: u32,
    /// PyTorch, CUDA, backend, settings, rank.
    pub facts: Vec<(String, String)>,
}

/// A helper that went away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Detached {
    /// Microseconds since the epoch.
    pub t: i64,
    /// Process.
    pub pid: u32,
    /// Why.
    pub why: String,
}

/// An instant worth a line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MarkPoint {
    /// The device it is about; every device when absent.
    pub d: Option<u32>,
    /// Microseconds since the epoch.
    pub t: i64,
    /// What it is about.
    pub kind: MarkKind,
    /// A few words.
    pub text: String,
}

/// A device that cannot be read, or can again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trouble {
    /// The device; every device when absent.
    pub d: Option<u32>,
    /// Microseconds since the epoch.
    pub t: i64,
    /// One sentence; `None` when all is well again.
    pub sentence: Option<String>,
}

/// What calls cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Costs {
    /// Each kind of call.
    pub calls: Vec<CallCost>,
    /// Share of one core that the sampling thread used.
    pub cpu: Option<f64>,
}

/// Samples that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lost {
    /// Of which device; of all when `None`.
    pub d: Option<u32>,
    /// How many.
    pub n: u64,
    /// Last sample before them, when known.
    pub from: i64,
    /// First sample after them.
    pub to: i64,
}

/// Segments and blocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Blocks {
    /// Microseconds since the epoch.
    pub t: i64,
    /// Process.
    pub pid: u32,
    /// Which device number of this session each ordinal of the process is.
    pub devices: Vec<(i32, u32)>,
    /// A snapshot without traces.
    pub snapshot: Box<serde_json::value::Value>,
}

/// Closed on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    /// Microseconds since the epoch.
    pub t: i64,
}
