//! [`GpuSource`]: what a driver reports about its GPUs. A trait, so that tests can reproduce every failure without a driver.

use vramscope_core::model::Reading;

/// Why something is unknown. Each text is one sentence for the user: what is wrong and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// The driver's library is not installed.
    #[error("No NVIDIA driver on this machine. Recordings and samples open all the same.")]
    NoDriver,
    /// The library that the user named is not there.
    #[error("VRAMSCOPE_NVML names {0}, and there is no such library. Name the driver's, or take the variable away.")]
    NoLibrary(String),
    /// The library exists, but is not the driver's or is damaged.
    #[error("The NVIDIA driver's library is damaged ({0}). Install the driver again.")]
    BadLibrary(String),
    /// The kernel module is not loaded.
    #[error("The NVIDIA driver is installed but not running. Reboot, or run: sudo modprobe nvidia")]
    DriverNotLoaded,
    /// Library and kernel module have different versions.
    #[error("The NVIDIA driver was upgraded and the old one is still running. Reboot this machine.")]
    VersionMismatch,
    /// The system denies access.
    #[error(
        "This user may not talk to the NVIDIA driver: check that /dev/nvidiactl can be read and written (groups, container device rules)."
    )]
    NoPermission,
    /// There is a driver but no GPU.
    #[error("The NVIDIA driver is running and finds no GPU.")]
    NoDevices,
    /// None of the requested GPUs exists.
    #[error("There is no GPU {0} that this user may read; the driver lists {1}.")]
    NoSuchDevice(String, String),
    /// The GPU no longer answers.
    #[error(
        "The GPU fell off the bus and no longer answers. Look for \"Xid\" in the kernel log (sudo dmesg); a reset or a reboot brings it back."
    )]
    Lost,
    /// The GPU needs a reset.
    #[error("The GPU needs a reset before it can be used: sudo nvidia-smi --gpu-reset, or reboot.")]
    ResetRequired,
    /// This GPU or driver does not support it.
    #[error("This GPU or its driver does not tell {0}.")]
    NotSupported(&'static str),
    /// The library lacks the function.
    #[error("This driver is too old to tell {0}.")]
    NoSymbol(&'static str),
    /// The driver has no figure at present. Not a failure.
    #[error("Nothing to tell yet.")]
    NoData,
    /// Reading the process list could corrupt memory.
    #[error(
        "The processes are hidden: this driver ({0}) writes its list in a layout that was withdrawn, and reading it could \
         corrupt memory. Update to 535.98 or later."
    )]
    BrokenProcessList(String),
    /// Any other error, with the driver's code.
    #[error("The NVIDIA driver answered {0}.")]
    Other(String),
    /// This build has no NVML support.
    #[error("This build of vramscope cannot watch GPUs: it was built without the feature live.")]
    NotBuilt,
}

impl GpuError {
    /// True when the device or the whole driver is unreachable for now.
    pub fn is_loss(&self) -> bool {
        matches!(
            self,
            GpuError::Lost | GpuError::ResetRequired | GpuError::DriverNotLoaded | GpuError::NoDriver | GpuError::NoLibrary(_)
        )
    }

    /// True when retrying will not help.
    pub fn is_lasting(&self) -> bool {
        matches!(self, GpuError::NotSupported(_) | GpuError::NoSymbol(_) | GpuError::BrokenProcessList(_))
    }
}

/// Versions of the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverFacts {
    /// Driver version, `580.95.05`; `None` when it does not tell.
    pub driver: Option<String>,
    /// Newest CUDA version that the driver supports, `13.0`.
    pub cuda: Option<String>,
}

/// A GPU or a MIG instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuFacts {
    /// `GPU-…` or `MIG-…`; the same in every session.
    pub uuid: String,
    /// Product name as the driver gives it.
    pub name: String,
    /// PCI address, `00000000:1A:00.0`; `None` when it is unknown.
    pub pci: Option<String>,
    /// UUID of the GPU that a MIG instance is part of.
    pub parent: Option<String>,
    /// True when the GPU is divided into MIG instances.
    pub has_mig: bool,
    /// True when its memory has error correction; `None` when unknown.
    pub ecc: Option<bool>,
    /// True when it has no memory of its own and its figures are the machine's (GB10, Jetson).
    pub shares_memory: bool,
}

/// Memory of a device in bytes. `total = used + free`; the driver's share is part of `used`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuMemory {
    /// All bytes of the device, or of the MIG instance.
    pub total: u64,
    /// Bytes used by everyone, including the driver.
    pub used: u64,
    /// Bytes that nobody uses.
    pub free: u64,
    /// Kept by driver and firmware; `None` before R510.
    pub driver: Option<u64>,
}

/// A process list of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessKind {
    /// Processes with a compute context.
    Compute,
    /// Processes with a graphics context.
    Graphics,
    /// Clients of the multi-process service.
    Mps,
}

/// A process on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuProcess {
    /// PID on the host.
    pub pid: u32,
    /// Bytes; `None` when the driver does not tell (WSL, MIG without permission).
    pub used: Option<u64>,
}

/// Utilisation in percent, over the driver's own period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuBusy {
    /// Share of time in which a kernel ran.
    pub busy: u32,
    /// Share of time in which memory was read or written.
    pub bandwidth: u32,
}

/// State of the memory chips, and BAR1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuHealth {
    /// Uncorrectable errors since the driver was loaded.
    pub uncorrected: Option<u64>,
    /// Memory rows that were remapped, after corrected and uncorrectable errors.
    pub remapped: Option<u64>,
    /// True when rows wait to be remapped at the next reset.
    pub remap_pending: Option<bool>,
    /// Bytes of the window through which the CPU accesses the memory, and how many of them are in use. Not additional memory.
    pub bar1: Option<(u64, u64)>,
}

/// An event that the driver reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuEvent {
    /// An XID, the driver's error number.
    Xid(u64),
    /// An uncorrectable memory error.
    DoubleBitError,
    /// MIG instances were created or destroyed.
    MigChanged,
}

/// The GPUs of a driver, numbered from 0 in the order of [`devices`](Self::devices). MIG instances count as devices.
pub trait GpuSource: Send {
    /// Versions of the driver and of CUDA; empty fields when it does not answer.
    fn driver(&mut self) -> DriverFacts;

    /// Every device. One that cannot be queried keeps its index and has the reason.
    ///
    /// # Errors
    /// When the driver as a whole does not answer.
    fn devices(&mut self) -> Result<Vec<Result<GpuFacts, GpuError>>, GpuError>;

    /// Memory in use.
    fn memory(&mut self, device: usize) -> Result<GpuMemory, GpuError>;

    /// One of the process lists. A process may be in several.
    fn processes(&mut self, device: usize, kind: ProcessKind) -> Result<Vec<GpuProcess>, GpuError>;

    /// The most bytes that a process ever had on the device, if the administrator enabled accounting.
    fn lifetime_peak(&mut self, device: usize, pid: u32) -> Option<u64>;

    /// Utilisation.
    fn busy(&mut self, device: usize) -> Result<GpuBusy, GpuError>;

    /// Temperature, power, clocks.
    ///
    /// # Errors
    /// When the device is lost. A single unknown figure is `None`.
    fn climate(&mut self, device: usize) -> Result<Reading, GpuError>;

    /// State of the memory chips.
    ///
    /// # Errors
    /// When the device is lost.
    fn health(&mut self, device: usize) -> Result<GpuHealth, GpuError>;

    /// The driver's events since the last call, without waiting: `(device, event)`.
    fn events(&mut self) -> Vec<(Option<usize>, GpuEvent)>;

    /// Closes the driver and opens it again. The order of devices may change.
    ///
    /// # Errors
    /// [`GpuError`] when the driver still does not answer.
    fn reopen(&mut self) -> Result<(), GpuError>;
}

/// The meaning of an XID in a few words, for the important ones (NVIDIA's "XID errors" page). Out of memory raises none.
pub fn xid_text(xid: u64) -> &'static str {
    match xid {
        13 => "a kernel hit an exception in the graphics engine",
        31 => "a kernel touched an address that is not mapped",
        43 | 45 => "a job was stopped",
        48 => "memory error that could not be corrected",
        63 | 64 => "memory rows are being replaced",
        74 => "NVLink error",
        79 => "the GPU fell off the bus",
        94 => "memory error, contained to one process",
        95 => "memory error, not contained",
        119 | 120 => "the GPU's own processor does not answer",
        _ => "see NVIDIA's list of XID errors",
    }
}

/// Why clocks are reduced, most important reason first (`nvmlClocksThrottleReasons`).
pub fn throttle_text(bits: u64) -> Option<&'static str> {
    const REASONS: &[(u64, &str)] = &[
        (0x40, "too hot (hardware)"),
        (0x20, "too hot"),
        (0x80, "power brake"),
        (0x8, "hardware slowdown"),
        (0x4, "power limit"),
        (0x10, "held to other GPUs' clock"),
        (0x2, "clocks set by an application"),
        (0x100, "display clocks"),
    ];
    REASONS.iter().find(|(bit, _)| bits & bit != 0).map(|(_, text)| *text)
}
