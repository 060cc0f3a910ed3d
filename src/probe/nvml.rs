//! [`Nvml`]: what the driver's management library says of the card while it is probed: before there is a context, and of this
//! process alone. Everything here is optional; a machine without the library loses the figures and nothing else.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};

use libloading::Library;

/// `nvmlMemory_v2_t`.
#[repr(C)]
#[derive(Default)]
struct Memory {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// `nvmlProcessInfo_v2_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Process {
    pid: c_uint,
    used: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

type Device = *mut c_void;

/// The library, with the device it asks about.
pub(super) struct Nvml {
    library: Library,
    device: Device,
}

impl Nvml {
    /// Loads and starts the library, and chooses the device of this index.
    pub(super) fn load(index: i32) -> Option<Self> {
        let name = if cfg!(windows) { "nvml.dll" } else { "libnvidia-ml.so.1" };
        // SAFETY: loading the driver's library runs its initialisers, which nvidia-smi runs too.
        let library = unsafe { Library::new(name) }.ok()?;
        // SAFETY: the signature is nvml.h's.
        let init = unsafe { library.get::<unsafe extern "C" fn() -> c_int>(b"nvmlInit_v2\0") }.ok().map(|f| *f)?;
        // SAFETY: it takes nothing.
        if unsafe { init() } != 0 {
            return None;
        }
        let mut nvml = Nvml { library, device: std::ptr::null_mut() };
        type ByIndex = unsafe extern "C" fn(c_uint, *mut Device) -> c_int;
        // SAFETY: the signature is nvml.h's, the pointer lives for the call.
        let found = unsafe {
            let by_index = nvml.library.get::<ByIndex>(b"nvmlDeviceGetHandleByIndex_v2\0").ok().map(|f| *f)?;
            by_index(u32::try_from(index).ok()?, &mut nvml.device)
        };
        (found == 0).then_some(nvml)
    }

    /// Goes over to the device on this PCI bus; true when it was the chosen one already.
    pub(super) fn is_at(&mut self, pci: &str) -> bool {
        type ByBus = unsafe extern "C" fn(*const c_char, *mut Device) -> c_int;
        let Ok(pci) = CString::new(pci) else { return false };
        let mut device: Device = std::ptr::null_mut();
        // SAFETY: the signature is nvml.h's, both pointers live for the call.
        let found = unsafe {
            match self.library.get::<ByBus>(b"nvmlDeviceGetHandleByPciBusId_v2\0").ok().map(|f| *f) {
                Some(by_bus) => by_bus(pci.as_ptr(), &mut device) == 0,
                None => false,
            }
        };
        if !found {
            return false;
        }
        let is_same = device == self.device;
        self.device = device;
        is_same
    }

    /// Bytes used on the device by programs, without what the driver reserves.
    pub(super) fn used(&self) -> Option<u64> {
        type Info = unsafe extern "C" fn(Device, *mut Memory) -> c_int;
        let version = size_of::<Memory>() as c_uint | 2 << 24;
        let mut memory = Memory { version, ..Memory::default() };
        // SAFETY: the signature is nvml.h's, the pointer lives for the call and has the size its version says.
        let read = unsafe {
            let info = self.library.get::<Info>(b"nvmlDeviceGetMemoryInfo_v2\0").ok().map(|f| *f)?;
            info(self.device, &mut memory)
        };
        (read == 0).then_some(memory.used)
    }

    /// Bytes of this process, as the driver counts them; `None` in containers that hide process ids.
    pub(super) fn own_process(&self) -> Option<u64> {
        type Running = unsafe extern "C" fn(Device, *mut c_uint, *mut Process) -> c_int;
        let mut processes = [Process::default(); 256];
        let mut count = processes.len() as c_uint;
        // SAFETY: the signature is nvml.h's; `count` says how many entries the array has.
        let read = unsafe {
            let running = self.library.get::<Running>(b"nvmlDeviceGetComputeRunningProcesses_v3\0").ok().map(|f| *f)?;
            running(self.device, &mut count, processes.as_mut_ptr())
        };
        let own = std::process::id();
        // All bits set: the driver can not tell.
        let listed = processes.iter().take(count as usize).find(|p| p.pid == own && p.used != u64::MAX);
        listed.filter(|_| read == 0).map(|p| p.used)
    }
}
