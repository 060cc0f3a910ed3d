//! The cap of a process: the most bytes it may reserve. The file or the user states it; otherwise the recording bounds it: the
//! cap was at least what was reserved, and less than what was refused while the device had room.
//!
//! Autopsy, findings, what-if and timeline all take the cap from [`Caps`].

use super::cap_range::{Bounds, CapFrom, CapRange};
use super::effects::share;
use super::own::first_reading;
use super::requests::Requests;
use crate::model::{Action, Cancelled, DeviceKind, DeviceRecording, Progress};

/// What is known about the cap of one device's process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    stated: Option<CapRange>,
    bounds: Bounds,
    device: Option<CapRange>,
}

impl Caps {
    /// A cap given by the caller; nothing is taken from the recording.
    pub fn exact(bytes: u64) -> Self {
        Caps { stated: Some(CapRange::exact(bytes)), ..Caps::default() }
    }

    /// What is known about a device's cap. `known` is the user's figure and overrides the file's. If a cap is given or nothing
    /// failed, this reads no events; otherwise it takes one pass, about 60 ns per event.
    pub fn of(device: &DeviceRecording, known: Option<u64>, progress: &Progress) -> Result<Self, Cancelled> {
        if let Some(stated) = stated(device, known) {
            return Ok(Caps { stated: Some(stated), ..Caps::default() });
        }
        // PyTorch has no cap for host memory.
        if !device.events.action.contains(&Action::Oom) || matches!(device.id.kind, DeviceKind::Host | DeviceKind::Cpu) {
            return Ok(Caps::default());
        }
        let mut requests = Requests::read(device, progress)?;
        if requests.start.is_empty() {
            return Ok(Caps::of_requests(&requests, known));
        }
        // A file cut short is interpreted differently if that explains it better; only a run can tell.
        Ok(first_reading(&mut requests, known, progress)?.caps)
    }

    /// What the requests show about the cap they were made under.
    pub(crate) fn of_requests(requests: &Requests<'_>, known: Option<u64>) -> Self {
        if requests.growths.is_empty() && requests.start.is_empty() && requests.slots() > 0 {
            // The source has allocations but no segments: how much was reserved at a refusal is unknown.
            return Caps { stated: stated(requests.device, known), ..Caps::default() };
        }
        let device = requests.device_room.map(|room| {
            let refused = requests.refused.unwrap_or(u64::MAX);
            let (least, most) = if room >= requests.least_limit && room < refused {
                (room, room)
            } else {
                // Other processes' memory changed in the meantime.
                let most = refused.saturating_sub(1).max(requests.least_limit);
                (requests.least_limit.min(most), most)
            };
            CapRange { least, most, from: CapFrom::Device, ends: None }
        });
        Caps { stated: stated(requests.device, known), bounds: requests.bounds.clone(), device }
    }

    /// The cap at the first failed request, or the only one known; `None` if nothing bounds it.
    pub fn first(&self) -> Option<CapRange> {
        self.stated.or_else(|| self.bounds.first()).or(self.device)
    }

    /// The cap at an event; `None` if nothing bounds it then, for example because the device itself was full.
    pub fn at(&self, event: u32) -> Option<CapRange> {
        self.stated.or_else(|| self.bounds.at(event))
    }
}

fn stated(device: &DeviceRecording, known: Option<u64>) -> Option<CapRange> {
    let of_fraction = share(&device.settings.conf, device.capacity);
    let of_fraction = of_fraction.map(|bytes| CapRange { from: CapFrom::Fraction, ..CapRange::exact(bytes) });
    known.or(device.limit).map(CapRange::exact).or(of_fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(least: u64, most: u64) -> CapRange {
        CapRange { least: least << 20, most: (most << 20) - 1, from: CapFrom::Refusals, ends: None }
    }

    #[test]
    fn what_contradicts_the_cap_begins_another() {
        let m = |n: u64| n << 20;
        let mut b = Bounds::new(0);
        b.held(3, m(100));
        b.refused(5, m(90), m(140));
        b.held(6, m(120));
        b.refused(7, m(120), m(130));
        let caps = |b: &Bounds| Caps { bounds: b.clone(), ..Caps::default() };
        assert_eq!(caps(&b).at(5), Some(range(120, 130)), "all that is known of one cap narrows it");
        // The cap was raised; no later request is refused under the new one.
        b.held(9, m(200));
        assert_eq!(caps(&b).at(9), None);
        assert_eq!(caps(&b).first(), Some(CapRange { ends: Some(9), ..range(120, 130) }));
        // The cap was lowered below what other blocks already hold.
        b.refused(12, m(150), m(180));
        assert_eq!(caps(&b).at(12), Some(range(150, 180)));
        b.refused_before(10, m(300));
        assert_eq!(caps(&b).at(9), Some(CapRange { ends: Some(12), ..range(200, 300) }));
    }
}
