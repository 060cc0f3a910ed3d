//! [`Nvml`]: NVML's figures about the card before there is a context, and about this process. Optional: the probe runs without.

use crate::nvml::{self, Handle};

/// The library, and the device to ask about.
pub(super) struct Nvml {
    library: nvml_wrapper::Nvml,
    device: Handle,
}

impl Nvml {
    /// Loads the library and selects the device with this index.
    pub(super) fn load(index: i32) -> Option<Self> {
        let library = nvml::load(None).ok()?;
        let device = Handle::of(&library.device_by_index(u32::try_from(index).ok()?).ok()?);
        Some(Nvml { library, device })
    }

    fn device(&self) -> nvml_wrapper::Device<'_> {
        // SAFETY: the handle came from this library, which stays open as long as `self`.
        unsafe { self.device.device(&self.library) }
    }

    /// Switches to the device on this PCI bus. True when it was selected already.
    pub(super) fn is_at(&mut self, pci: &str) -> bool {
        let Ok(found) = self.library.device_by_pci_bus_id(pci).map(|d| Handle::of(&d)) else { return false };
        let is_same = found == self.device;
        self.device = found;
        is_same
    }

    /// Bytes used by programs on the device, without the driver's reserve.
    pub(super) fn used(&self) -> Option<u64> {
        nvml::memory(&self.library, &self.device()).ok()?.used_by_programs()
    }

    /// Bytes of this process; `None` in containers that hide process IDs.
    pub(super) fn own_process(&self) -> Option<u64> {
        if nvml::has_withdrawn_layout(&self.library) {
            return None;
        }
        let listed = nvml::compute_processes(&self.library, &self.device()).ok()?;
        listed.iter().find(|p| p.pid == std::process::id()).and_then(nvml::bytes_of)
    }
}
