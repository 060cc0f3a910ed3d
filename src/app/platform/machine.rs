//! This machine's GPUs for the welcome page: names, and how full they are.

use vramscope_core::units::{Bytes, counted};
use vramscope_live::live;
use vramscope_live::live::source::{GpuError, GpuSource, ProcessKind};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineDevice {
    /// For example "GPU 0, NVIDIA H200".
    pub name: String,
    pub used: u64,
    pub total: u64,
    /// One sentence about its use; may be empty.
    pub sentence: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MachineState {
    /// Not asked yet, or nothing can tell. The section is hidden.
    #[default]
    Unknown,
    /// No driver; one sentence.
    NoDriver(String),
    Devices(Vec<MachineDevice>),
}

/// Asks the driver once. Takes about 11 ms, or longer when the driver has to wake the cards, so do not call it on the window's
/// thread.
pub fn look() -> MachineState {
    match live::open() {
        Ok(mut source) => tell(source.as_mut()),
        Err(GpuError::NotBuilt) => MachineState::Unknown,
        Err(error) => MachineState::NoDriver(error.to_string()),
    }
}

/// One row per device, or a sentence when there is none.
fn tell(source: &mut dyn GpuSource) -> MachineState {
    let devices = match source.devices() {
        Ok(devices) => devices,
        Err(error) => return MachineState::NoDriver(error.to_string()),
    };
    let mut rows = Vec::new();
    let mut first_error = None;
    for (place, device) in devices.into_iter().enumerate() {
        match device.and_then(|facts| Ok((facts, source.memory(place)?))) {
            Ok((facts, memory)) => rows.push(MachineDevice {
                name: format!("GPU {place}, {}", facts.name),
                used: memory.used,
                total: memory.total,
                sentence: users(source, place, memory.used),
            }),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    if rows.is_empty() {
        MachineState::NoDriver(first_error.unwrap_or(GpuError::NoDevices).to_string())
    } else {
        MachineState::Devices(rows)
    }
}

/// More than any driver seen so far takes for itself on a card.
const DRIVERS_SHARE: u64 = 1 << 30;

/// A sentence about the processes on a device; empty when the driver does not say.
fn users(source: &mut dyn GpuSource, place: usize, used: u64) -> String {
    match source.processes(place, ProcessKind::Compute).map(|list| list.len() as u64) {
        Ok(0) if used > DRIVERS_SHARE => format!("No process is listed, but {} is in use: owner unknown.", Bytes(used)),
        Ok(0) => "Idle: only the driver's own share is in use.".to_owned(),
        Ok(n) => format!("{} on it.", counted(n, "program computes", "programs compute")),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_says_something_or_nothing_but_never_fails() {
        match look() {
            MachineState::Unknown if cfg!(feature = "live") => panic!("a build that can look says what it saw"),
            MachineState::Unknown => {}
            MachineState::NoDriver(sentence) => assert!(sentence.ends_with('.'), "{sentence}"),
            MachineState::Devices(devices) => {
                assert!(!devices.is_empty() && devices.iter().all(|d| d.used <= d.total && !d.name.is_empty()));
            }
        }
    }
}
