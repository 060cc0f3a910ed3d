//! NVML, NVIDIA's management library: loads it at run time and hides differences between drivers.
//!
//! The live watch and the probe use it. It finds the library, and handles a library without `nvmlShutdown` (closing it would
//! panic), drivers before R510 (no v2 memory call, older process lists), and the withdrawn struct layout of R535.43 to R535.86.

use std::ffi::OsStr;
use std::path::Path;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::{NvmlError, nvml_try};
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;

/// Where WSL and NixOS put the library, which is not on the loader's path.
const OTHER_PLACES: &[&str] = &["/usr/lib/wsl/lib/libnvidia-ml.so.1", "/run/opengl-driver/lib/libnvidia-ml.so.1"];

/// Loads and initialises the library at `path`, or the system's. Takes some tens of milliseconds when there is a driver.
///
/// # Errors
/// [`NvmlError`]; [`is_missing`] tells a missing library from a broken one.
pub fn load(path: Option<&OsStr>) -> Result<Nvml, NvmlError> {
    let first = open(path);
    if path.is_none() && first.as_ref().err().is_some_and(is_missing) {
        for place in OTHER_PLACES.iter().filter(|p| Path::new(p).exists()) {
            if let Ok(nvml) = open(Some(OsStr::new(place))) {
                return Ok(nvml);
            }
        }
    }
    first
}

fn open(path: Option<&OsStr>) -> Result<Nvml, NvmlError> {
    let mut builder = Nvml::builder();
    if let Some(path) = path {
        builder.lib_path(path);
    }
    let nvml = builder.init()?;
    if nvml.lib().nvmlShutdown.is_err() {
        // The destructor would call the missing function and panic, so the library stays open for good.
        std::mem::forget(nvml);
        return Err(NvmlError::FailedToLoadSymbol("it lacks nvmlShutdown".to_owned()));
    }
    Ok(nvml)
}

/// True when the library does not exist, false when it exists but does not work.
pub fn is_missing(error: &NvmlError) -> bool {
    match error {
        NvmlError::LibraryNotFound => true,
        NvmlError::LibloadingError(_) => {
            let text = loader_text(error);
            ["cannot open shared object", "No such file", "not found"].iter().any(|sign| text.contains(sign))
        }
        _ => false,
    }
}

/// The system loader's message about a library that it could not load, or the error's own text.
pub fn loader_text(error: &NvmlError) -> String {
    match error {
        NvmlError::LibloadingError(e) => std::error::Error::source(e).map_or_else(|| e.to_string(), ToString::to_string),
        other => other.to_string(),
    }
}

/// A device handle without its library. NVML handles are indices, so any thread may use them while the library is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(pub sys::nvmlDevice_t);

// SAFETY: NVML is thread safe and its handles are not tied to a thread ("all NVML functions are thread-safe", NVML API reference).
unsafe impl Send for Handle {}

impl Handle {
    /// The handle of a device.
    pub fn of(device: &Device<'_>) -> Self {
        // SAFETY: the raw handle is only copied; every later use needs the library again.
        Handle(unsafe { device.handle() })
    }

    /// The device of this handle.
    ///
    /// # Safety
    /// The handle must come from this library, which must not have been closed since.
    pub unsafe fn device(self, nvml: &Nvml) -> Device<'_> {
        // SAFETY: the caller guarantees it.
        unsafe { Device::new(self.0, nvml) }
    }
}

/// Memory of a device according to NVML, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// All bytes of the device, or of the MIG instance.
    pub total: u64,
    /// Bytes that nobody uses.
    pub free: u64,
    /// Kept by driver and firmware. `None` before R510, whose drivers do not tell it apart from what programs use.
    pub driver: Option<u64>,
}

impl Memory {
    /// Used by anybody including the driver, so that used and free add up to the total.
    pub fn used(&self) -> u64 {
        self.total.saturating_sub(self.free)
    }

    /// Used by programs, as `cuMemGetInfo` counts it. `None` when the driver's share is unknown.
    pub fn used_by_programs(&self) -> Option<u64> {
        self.driver.map(|driver| self.used().saturating_sub(driver))
    }
}

/// A device's memory, from the newest call that the driver has.
pub fn memory(nvml: &Nvml, device: &Device<'_>) -> Result<Memory, NvmlError> {
    match device.memory_info() {
        Ok(m) => Ok(Memory { total: m.total, free: m.free, driver: Some(m.reserved) }),
        // There is no v2 before R510. Code 25 means that the driver does not know this version of the struct.
        Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::UnexpectedVariant(25)) => {
            let call = nvml.lib().nvmlDeviceGetMemoryInfo.as_ref();
            let call = call.map_err(|e| NvmlError::FailedToLoadSymbol(e.to_string()))?;
            let mut m = sys::nvmlMemory_t { total: 0, free: 0, used: 0 };
            // SAFETY: the struct has the layout that this call writes.
            unsafe { nvml_try(call(device.handle(), &mut m))? };
            Ok(Memory { total: m.total, free: m.free, driver: None })
        }
        Err(e) => Err(e),
    }
}

/// R535.43 to R535.86 return 32-byte entries from the function for 24-byte ones, so their process lists must not be read.
/// Recognised in the same way as nvitop does.
pub fn has_withdrawn_layout(nvml: &Nvml) -> bool {
    nvml.lib().nvmlDeviceGetConfComputeMemSizeInfo.is_ok() && nvml.lib().nvmlDeviceGetRunningProcessDetailList.is_err()
}

/// Processes with a compute context. Tries the newest call first, then those of older drivers.
pub fn compute_processes(nvml: &Nvml, device: &Device<'_>) -> Result<Vec<ProcessInfo>, NvmlError> {
    let text = match device.running_compute_processes() {
        Err(NvmlError::FailedToLoadSymbol(_)) => match device.running_compute_processes_v2() {
            Err(NvmlError::FailedToLoadSymbol(text)) => text,
            older => return older,
        },
        newest => return newest,
    };
    let call = nvml.lib().nvmlDeviceGetComputeRunningProcesses.as_ref();
    let call = call.map_err(|_| NvmlError::FailedToLoadSymbol(text))?;
    // More entries than drivers of that age list. A second call with the right size could miss a process that started in between.
    let mut list = vec![sys::nvmlProcessInfo_v1_t { pid: 0, usedGpuMemory: 0 }; 256];
    let mut count = list.len() as u32;
    // SAFETY: the buffer has `count` entries of the layout that this call writes.
    unsafe { nvml_try(call(device.handle(), &mut count, list.as_mut_ptr()))? };
    let entry = |p: &sys::nvmlProcessInfo_v1_t| ProcessInfo {
        pid: p.pid,
        used_gpu_memory: if p.usedGpuMemory == u64::MAX {
            UsedGpuMemory::Unavailable
        } else {
            UsedGpuMemory::Used(p.usedGpuMemory)
        },
        gpu_instance_id: None,
        compute_instance_id: None,
    };
    Ok(list.iter().take(count as usize).map(entry).collect())
}

/// Processes with a graphics context; see [`compute_processes`].
pub fn graphics_processes(device: &Device<'_>) -> Result<Vec<ProcessInfo>, NvmlError> {
    match device.running_graphics_processes() {
        Err(NvmlError::FailedToLoadSymbol(_)) => device.running_graphics_processes_v2(),
        newest => newest,
    }
}

/// Bytes of a process; `None` when the driver cannot tell (WSL, MIG, containers).
pub fn bytes_of(process: &ProcessInfo) -> Option<u64> {
    match process.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(bytes),
        UsedGpuMemory::Unavailable => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_the_library_is_told_from_one_whose_library_is_broken() {
        let missing = load(Some(OsStr::new("/no/such/libnvidia-ml.so.1"))).err().unwrap();
        assert!(is_missing(&missing), "{}", loader_text(&missing));
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("libnvidia-ml.so.1");
        std::fs::write(&text, "no library").unwrap();
        let broken = load(Some(text.as_os_str())).err().unwrap();
        assert!(!is_missing(&broken), "{}", loader_text(&broken));
    }

    #[test]
    fn used_and_free_make_the_total_and_programs_do_not_use_what_the_driver_keeps() {
        let m = Memory { total: 100, free: 60, driver: Some(15) };
        assert_eq!((m.used(), m.used_by_programs()), (40, Some(25)));
        assert_eq!(Memory { driver: None, ..m }.used_by_programs(), None);
    }
}
