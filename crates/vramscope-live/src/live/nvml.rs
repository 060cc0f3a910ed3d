//! [`GpuSource`] over NVML, NVIDIA's management library, opened with `dlopen` at run time.
//!
//! Differences between drivers are handled in [`crate::nvml`]. Handled here: codes newer than the wrapper, MIG, and devices that
//! fall off the bus and come back.

use std::ffi::{OsStr, OsString};

use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;

use super::source::{
    DriverFacts, GpuBusy, GpuError, GpuEvent, GpuFacts, GpuHealth, GpuMemory, GpuProcess, GpuSource, ProcessKind,
};
use crate::nvml::{self, Handle};
use vramscope_core::model::Reading;

/// Bits of `nvmlEventType`: double-bit ECC, critical XID, MIG configuration.
const EVENT_DOUBLE_BIT: u64 = 0x2;
const EVENT_XID: u64 = 0x8;
const EVENT_MIG: u64 = 0x100;

#[derive(Clone, Copy)]
struct EventSet(sys::nvmlEventSet_t);

// SAFETY: as for `Handle`; only the sampling thread touches it.
unsafe impl Send for EventSet {}

/// NVML, and the devices found when it was opened.
pub struct NvmlSource {
    path: Option<OsString>,
    nvml: Option<Nvml>,
    devices: Vec<Option<Handle>>,
    events: Option<EventSet>,
}

impl NvmlSource {
    /// Opens the library at `path`, or the system's.
    ///
    /// # Errors
    /// [`GpuError`] with the reason.
    pub fn open(path: Option<&OsStr>) -> Result<Self, GpuError> {
        let mut source = NvmlSource { path: path.map(OsStr::to_owned), nvml: None, devices: Vec::new(), events: None };
        source.reopen()?;
        Ok(source)
    }

    fn nvml(&self) -> Result<&Nvml, GpuError> {
        self.nvml.as_ref().ok_or(GpuError::DriverNotLoaded)
    }

    fn with<T>(
        &self,
        device: usize,
        what: &'static str,
        ask: impl FnOnce(&Nvml, &Device<'_>) -> Result<T, NvmlError>,
    ) -> Result<T, GpuError> {
        let nvml = self.nvml()?;
        let handle = self.devices.get(device).copied().flatten().ok_or(GpuError::NoPermission)?;
        // SAFETY: the handle came from this library and is used only while it is open.
        let device = unsafe { handle.device(nvml) };
        ask(nvml, &device).map_err(|e| translate(&e, what))
    }

    /// Finds devices and MIG instances in NVML's order. The instances of a GPU follow it.
    fn find_devices(&mut self) -> Result<(), GpuError> {
        let nvml = self.nvml.as_ref().ok_or(GpuError::DriverNotLoaded)?;
        let count = nvml.device_count().map_err(|e| translate(&e, "its devices"))?;
        if count == 0 {
            return Err(GpuError::NoDevices);
        }
        let mut found = Vec::new();
        for i in 0..count {
            let Ok(device) = nvml.device_by_index(i) else {
                found.push(None);
                continue;
            };
            found.push(Some(Handle::of(&device)));
            let has_mig = device.mig_mode().is_ok_and(|m| m.current != 0);
            // The count is the maximum, so some indices may be empty.
            for i in 0..if has_mig { device.mig_device_count().unwrap_or(0) } else { 0 } {
                if let Ok(instance) = device.mig_device_by_index(i) {
                    found.push(Some(Handle::of(&instance)));
                }
            }
        }
        self.devices = found;
        Ok(())
    }

    fn register_events(&mut self) {
        let Some(lib) = self.nvml.as_ref().map(Nvml::lib) else { return };
        let (Ok(create), Ok(register), Ok(supported)) =
            (&lib.nvmlEventSetCreate, &lib.nvmlDeviceRegisterEvents, &lib.nvmlDeviceGetSupportedEventTypes)
        else {
            return;
        };
        let mut set: sys::nvmlEventSet_t = std::ptr::null_mut();
        // SAFETY: calls with pointers to locals, while the library is open.
        unsafe {
            if create(&mut set) != 0 {
                return;
            }
            for handle in self.devices.iter().flatten() {
                let mut bits = 0;
                if supported(handle.0, &mut bits) == 0 && bits & (EVENT_DOUBLE_BIT | EVENT_XID | EVENT_MIG) != 0 {
                    register(handle.0, bits & (EVENT_DOUBLE_BIT | EVENT_XID | EVENT_MIG), set);
                }
            }
        }
        self.events = Some(EventSet(set));
    }

    fn close_events(&mut self) {
        if let (Some(set), Some(nvml)) = (self.events.take(), &self.nvml)
            && let Ok(free) = &nvml.lib().nvmlEventSetFree
        {
            // SAFETY: created by nvmlEventSetCreate of the same library, and freed once.
            unsafe { free(set.0) };
        }
    }
}

/// True for a GPU without its own memory, by name. NVML answers "not supported" or nothing for its memory.
fn shares_memory(name: &str) -> bool {
    ["GB10", "Thor", "Orin", "Xavier", "Tegra"].iter().any(|part| name.contains(part))
}

/// The machine's memory, for a GPU that shares it. Memory that is not available to a new program counts as used.
fn machine_memory() -> Option<GpuMemory> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let bytes = |key: &str| {
        let rest = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':'))?;
        rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    };
    let (total, free) = (bytes("MemTotal")?, bytes("MemAvailable")?);
    (total > 0).then(|| GpuMemory { total, used: total.saturating_sub(free), free, driver: None })
}

impl Drop for NvmlSource {
    fn drop(&mut self) {
        self.close_events();
    }
}

impl GpuSource for NvmlSource {
    fn driver(&mut self) -> DriverFacts {
        let Ok(nvml) = self.nvml() else { return DriverFacts::default() };
        let cuda = nvml.sys_cuda_driver_version().ok().map(|v| format!("{}.{}", v / 1000, v % 1000 / 10));
        DriverFacts { driver: nvml.sys_driver_version().ok(), cuda }
    }

    fn devices(&mut self) -> Result<Vec<Result<GpuFacts, GpuError>>, GpuError> {
        self.nvml()?;
        let facts = |i: usize| {
            self.with(i, "who it is", |nvml, d| {
                let parent = d.mig_is_mig_device_handle().unwrap_or(false).then(|| d.mig_parent_device()).and_then(Result::ok);
                Ok(GpuFacts {
                    uuid: d.uuid()?,
                    name: d.name().unwrap_or_else(|_| "NVIDIA GPU".to_owned()),
                    pci: d.pci_info().ok().map(|p| p.bus_id),
                    parent: parent.and_then(|p| p.uuid().ok()),
                    has_mig: d.mig_mode().is_ok_and(|m| m.current != 0),
                    ecc: d.is_ecc_enabled().ok().map(|e| e.currently_enabled),
                    shares_memory: d.name().is_ok_and(|n| shares_memory(&n))
                        && nvml::memory(nvml, d).map_or(true, |m| m.total == 0),
                })
            })
        };
        Ok((0..self.devices.len()).map(facts).collect())
    }

    fn memory(&mut self, device: usize) -> Result<GpuMemory, GpuError> {
        let m = self.with(device, "how much memory is in use", nvml::memory);
        let m = m.map(|m| GpuMemory { total: m.total, used: m.used(), free: m.free, driver: m.driver });
        match m {
            Ok(m) if m.total > 0 => Ok(m),
            Ok(_) | Err(GpuError::NotSupported(_))
                if self.with(device, "its name", |_, d| d.name()).is_ok_and(|n| shares_memory(&n)) =>
            {
                machine_memory().ok_or(GpuError::NotSupported("how much memory is in use, and neither does /proc/meminfo"))
            }
            Ok(_) => Err(GpuError::NotSupported("how much memory is in use")),
            Err(error) => Err(error),
        }
    }

    fn processes(&mut self, device: usize, kind: ProcessKind) -> Result<Vec<GpuProcess>, GpuError> {
        if nvml::has_withdrawn_layout(self.nvml()?) {
            return Err(GpuError::BrokenProcessList(self.driver().driver.unwrap_or_else(|| "R535".to_owned())));
        }
        let list = || {
            self.with(device, "which processes use it", |library, d| match kind {
                ProcessKind::Compute => nvml::compute_processes(library, d),
                ProcessKind::Graphics => nvml::graphics_processes(d),
                // The wrapper knows no older call for MPS clients.
                ProcessKind::Mps => d.mps_running_compute_processes(),
            })
        };
        // When a client appears between NVML's two internal calls, the second one fails. Try once more.
        let list = match list() {
            Err(GpuError::Other(_)) => list(),
            answer => answer,
        }?;
        Ok(list.iter().map(|p| GpuProcess { pid: p.pid, used: nvml::bytes_of(p) }).collect())
    }

    fn lifetime_peak(&mut self, device: usize, pid: u32) -> Option<u64> {
        self.with(device, "accounting", |_, d| {
            if d.is_accounting_enabled()? { d.accounting_stats_for(pid) } else { Err(NvmlError::NotSupported) }
        })
        .ok()?
        .max_memory_usage
    }

    fn busy(&mut self, device: usize) -> Result<GpuBusy, GpuError> {
        let u = self.with(device, "how busy it is", |_, d| d.utilization_rates())?;
        Ok(GpuBusy { busy: u.gpu, bandwidth: u.memory })
    }

    fn climate(&mut self, device: usize) -> Result<Reading, GpuError> {
        // A missing figure becomes `None`; a lost device is an error.
        fn soft<T>(answer: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
            match answer {
                Ok(value) => Ok(Some(value)),
                Err(e @ (NvmlError::GpuLost | NvmlError::ResetRequired)) => Err(e),
                Err(_) => Ok(None),
            }
        }
        self.with(device, "its temperature and power", |_, d| {
            Ok(Reading {
                temperature: soft(d.temperature(TemperatureSensor::Gpu))?,
                power_mw: soft(d.power_usage())?,
                power_limit_mw: soft(d.enforced_power_limit())?,
                clock_mhz: soft(d.clock_info(Clock::SM))?,
                throttle: soft(d.current_throttle_reasons())?.map(|r| r.bits()),
                ..Reading::default()
            })
        })
    }

    fn health(&mut self, device: usize) -> Result<GpuHealth, GpuError> {
        // Field numbers of nvml.h: corrected and uncorrected remapped rows, and whether some wait for a reset.
        const REMAPPED: [FieldId; 3] = [FieldId(142), FieldId(143), FieldId(144)];
        self.with(device, "the state of its memory chips", |_, d| {
            let number = |value: &SampleValue| match *value {
                SampleValue::U32(n) => u64::from(n),
                SampleValue::U64(n) => n,
                SampleValue::I64(n) => n.max(0) as u64,
                SampleValue::F64(n) => n.max(0.0) as u64,
            };
            let fields = d.field_values_for(&REMAPPED).unwrap_or_default();
            let field = |i: usize| fields.get(i)?.as_ref().ok()?.value.as_ref().ok().map(number);
            Ok(GpuHealth {
                uncorrected: d.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).ok(),
                remapped: field(0).zip(field(1)).map(|(a, b)| a + b),
                remap_pending: field(2).map(|n| n != 0),
                bar1: d.bar1_memory_info().ok().map(|b| (b.total, b.used)),
            })
        })
    }

    fn events(&mut self) -> Vec<(Option<usize>, GpuEvent)> {
        let mut out = Vec::new();
        let (Some(set), Ok(nvml)) = (self.events, self.nvml()) else { return out };
        let Ok(wait) = &nvml.lib().nvmlEventSetWait_v2 else { return out };
        // Limited, so that a device that keeps reporting does not block this thread.
        for _ in 0..32 {
            // SAFETY: zero is a valid value of every field of this plain struct.
            let mut data: sys::nvmlEventData_t = unsafe { std::mem::zeroed() };
            // SAFETY: the set is open, and `data` has the layout that this call writes; 0 ms does not wait.
            if unsafe { wait(set.0, &mut data, 0) } != 0 {
                break;
            }
            let device = self.devices.iter().position(|d| d.is_some_and(|h| h.0 == data.device));
            match data.eventType {
                EVENT_XID => out.push((device, GpuEvent::Xid(data.eventData))),
                EVENT_DOUBLE_BIT => out.push((device, GpuEvent::DoubleBitError)),
                EVENT_MIG => out.push((device, GpuEvent::MigChanged)),
                _ => {}
            }
        }
        out
    }

    fn reopen(&mut self) -> Result<(), GpuError> {
        self.close_events();
        self.devices.clear();
        // The old library must be closed before the new one is opened, because the driver counts its users.
        self.nvml = None;
        self.nvml = Some(nvml::load(self.path.as_deref()).map_err(|e| translate(&e, "anything"))?);
        self.find_devices()?;
        self.register_events();
        Ok(())
    }
}

/// Converts the wrapper's error. `what` names what was asked for.
fn translate(error: &NvmlError, what: &'static str) -> GpuError {
    match error {
        missing if nvml::is_missing(missing) => GpuError::NoDriver,
        // The loader's message says what is wrong with the library.
        NvmlError::LibloadingError(_) => GpuError::BadLibrary(nvml::loader_text(error)),
        NvmlError::FailedToLoadSymbol(text) if ["nvmlInit", "nvmlShutdown"].iter().any(|name| text.contains(name)) => {
            GpuError::BadLibrary(text.clone())
        }
        NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound => GpuError::NoSymbol(what),
        NvmlError::DriverNotLoaded => GpuError::DriverNotLoaded,
        NvmlError::NoPermission | NvmlError::OperatingSystem => GpuError::NoPermission,
        NvmlError::LibRmVersionMismatch => GpuError::VersionMismatch,
        NvmlError::GpuLost => GpuError::Lost,
        NvmlError::ResetRequired => GpuError::ResetRequired,
        // 25: the driver does not know this version of the struct. 26: withdrawn.
        NvmlError::NotSupported | NvmlError::UnexpectedVariant(25 | 26) => GpuError::NotSupported(what),
        // 27: not ready yet.
        NvmlError::NoData | NvmlError::NotFound | NvmlError::Timeout | NvmlError::UnexpectedVariant(27) => GpuError::NoData,
        NvmlError::UnexpectedVariant(28) => GpuError::NoDevices,
        NvmlError::UnexpectedVariant(code) => GpuError::Other(format!("with code {code} when asked for {what}")),
        other => GpuError::Other(format!("\"{other}\" when asked for {what}")),
    }
}
