//! Finds devices: opens the driver, and tries again after it was lost.

use super::{Clock, Engine, RETRY, Watched};
use crate::live::process::is_wsl;
use crate::live::rates::{Call, Paced};
use crate::live::source::GpuError;
use vramscope_core::formats::session::{DeviceFacts, Record, Trouble};
use vramscope_core::model::Reading;

/// What Windows does with the memory of a card under WSL.
const WSL: &str = "Windows manages the memory under WSL: the bytes of single processes are not told, and what does not fit on the card moves \
                   to host memory, where it is slow, instead of failing. The driver does not tell how much did; PyTorch having reserved \
                   more than the card has is a sure sign.";

/// Explains the figures of a GPU without its own memory.
const SHARED: &str = "This GPU shares the machine's memory, and the driver has no figure for it: total and free are those of the whole \
                      machine (MemTotal and MemAvailable of /proc/meminfo), so used is everything that runs here.";

impl Engine {
    pub(super) fn open(&mut self, clock: &impl Clock) {
        match (self.opener)() {
            Ok(source) => {
                self.source = Some(source);
                self.find_devices(clock);
            }
            Err(error) => self.set_trouble(error, clock),
        }
    }

    pub(super) fn reopen(&mut self, clock: &impl Clock) {
        if clock.now() < self.retry_at {
            return;
        }
        self.retry_at = clock.now() + RETRY;
        let Some(source) = &mut self.source else { return };
        if source.reopen().is_ok() {
            self.find_devices(clock);
        }
    }

    fn set_trouble(&mut self, error: GpuError, clock: &impl Clock) {
        self.retry_at = clock.now() + RETRY;
        if self.trouble.as_ref() != Some(&error) {
            let sentence = Some(error.to_string());
            self.out.push(Record::Trouble(Trouble { d: None, t: self.time_us(clock), sentence }));
            self.trouble = Some(error);
        }
    }

    /// Reads the list of devices. Devices that were seen before keep their number, by UUID.
    fn find_devices(&mut self, clock: &impl Clock) {
        let Some(source) = &mut self.source else { return };
        let driver = source.driver();
        let list = match source.devices() {
            Ok(list) if !list.is_empty() => list,
            Ok(_) => return self.give_up(GpuError::NoDevices, clock),
            Err(error) => return self.give_up(error, clock),
        };
        if self.trouble.take().is_some() {
            self.out.push(Record::Trouble(Trouble { d: None, t: self.time_us(clock), sentence: None }));
        }
        let now = clock.now();
        for d in &mut self.devices {
            d.place = None;
        }
        let mut first_error = None;
        let count = list.len() as u64;
        for (place, gpu) in list.into_iter().enumerate() {
            if !self.wanted.is_empty() && !self.wanted.contains(&place) {
                continue;
            }
            let gpu = match gpu {
                Ok(gpu) => gpu,
                Err(error) => {
                    first_error = first_error.or(Some(error));
                    continue;
                }
            };
            let mut facts = vec![("UUID".to_owned(), gpu.uuid.clone())];
            let mut add = |key: &str, value: Option<String>| facts.extend(value.map(|v| (key.to_owned(), v)));
            add("PCI", gpu.pci);
            add("driver", driver.driver.clone());
            add("newest CUDA", driver.cuda.clone());
            add("part of", gpu.parent.clone());
            add("ECC", gpu.ecc.map(|on| if on { "on" } else { "off" }.to_owned()));
            let mut limits = Vec::new();
            if gpu.has_mig {
                limits
                    .push("This GPU is divided (MIG): watch its instances, which are listed as devices of their own.".to_owned());
            }
            if is_wsl() {
                limits.push(WSL.to_owned());
            }
            if gpu.shares_memory {
                limits.push(SHARED.to_owned());
            }
            let number = match self.devices.iter().position(|d| d.uuid == gpu.uuid) {
                Some(at) => {
                    let d = &mut self.devices[at];
                    d.place = Some(place);
                    d.retry_at = now;
                    d.number
                }
                None => {
                    // The driver's index if it is free; devices that came later get a new number.
                    let place_number = u32::try_from(place).unwrap_or(u32::MAX);
                    let taken = self.devices.iter().any(|d| d.number == place_number);
                    let next = self.devices.iter().map(|d| d.number + 1).max().unwrap_or(0);
                    let number = if taken { next } else { place_number };
                    self.devices.push(Watched {
                        place: Some(place),
                        number,
                        uuid: gpu.uuid.clone(),
                        calls: Call::DEVICE.iter().map(|&c| Paced::new(c, &self.rates, now)).collect(),
                        trouble: None,
                        retry_at: now,
                        limits: Vec::new(),
                        facts: DeviceFacts::default(),
                        gauge: Reading::default(),
                        used_at_list: 0,
                        is_list_new: false,
                        has_mig: gpu.has_mig,
                        is_unlisted: false,
                        compute: Vec::new(),
                        others: Vec::new(),
                        listed: Vec::new(),
                        peaks: Vec::new(),
                        last_sample_us: 0,
                        counted_to: now,
                    });
                    number
                }
            };
            if let Some(d) = self.devices.iter_mut().find(|d| d.number == number) {
                d.limits.clone_from(&limits);
                d.facts = DeviceFacts { device: number, uuid: gpu.uuid, name: gpu.name, total: d.facts.total, facts, limits };
                self.out.push(Record::Device(d.facts.clone()));
            }
        }
        if self.devices.is_empty() {
            let wanted: Vec<String> = self.wanted.iter().map(ToString::to_string).collect();
            let listed = vramscope_core::units::counted(count, "GPU", "GPUs");
            let none = || if wanted.is_empty() { GpuError::NoDevices } else { GpuError::NoSuchDevice(wanted.join(", "), listed) };
            self.give_up(first_error.unwrap_or_else(none), clock);
        }
    }

    fn give_up(&mut self, error: GpuError, clock: &impl Clock) {
        self.source = None;
        self.set_trouble(error, clock);
    }
}
