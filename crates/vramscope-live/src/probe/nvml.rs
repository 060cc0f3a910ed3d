//! [`Nvml`]: what the driver's management library says of the card while it is probed: before there is a context, and of this
//! process alone. Everything here is optional; a machine without the library loses the figures and nothing else.

use crate::nvml::{self, Handle};

/// The library, with the device it asks about.
pub(super) struct Nvml {
    library: nvml_wrapper::Nvml,
    device: Handle,
}

impl Nvml {
    /// Loads and starts the library, and chooses the device of this index.
    pub(super) fn load(index: i32) -> Option<Self> {
        let library = nvml::load(None).ok()?;
        let device = Handle::of(&library.device_by_index(u32::try_from(index).ok()?).ok()?);
        Some(Nvml { library, device })
    }

    fn device(&self) -> nvml_wrapper::Device<'_> {
        // SAFETY: the handle came from this library, which is open for as long as `self` lives.
        unsafe { self.device.device(&self.library) }
    }

    /// Goes over to the device on this PCI bus; true when it was the chosen one already.
    pub(super) fn is_at(&mut self, pci: &str) -> bool {
        let Ok(found) = self.library.device_by_pci_bus_id(pci).map(|d| Handle::of(&d)) else { return false };
        let is_same = found == self.device;
        self.device = found;
        is_same
    }

    /// Bytes used on the device by programs, without what the driver reserves.
    pub(super) fn used(&self) -> Option<u64> {
        nvml::memory(&self.library, &self.device()).ok()?.used_by_programs()
    }

    /// Bytes of this process, as the driver counts them; `None` in containers that hide process ids.
    pub(super) fn own_process(&self) -> Option<u64> {
        if nvml::has_withdrawn_layout(&self.library) {
            return None;
        }
        let listed = nvml::compute_processes(&self.library, &self.device()).ok()?;
        listed.iter().find(|p| p.pid == std::process::id()).and_then(nvml::bytes_of)
    }
}
