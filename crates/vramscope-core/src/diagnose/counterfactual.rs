//! The peak as it would have been if some allocations had been smaller or never made.
//!
//! Replays the recorded events with other sizes, in the recorded order. The result is exact if a change only removes bytes, and
//! approximate if it also moves work (checkpointing computes twice, chunks run one after the other).

use crate::model::DeviceRecording;
use crate::tables::{DeviceTables, LifetimeId, NO_EVENT};
use crate::units::compared;

/// The peak of active bytes if every allocation had the size that `size` returns for it, given its recorded block size. O(events
/// + lifetimes), and eight bytes of memory per event while it runs.
pub fn peak_with(device: &DeviceRecording, tables: &DeviceTables, size: impl Fn(LifetimeId, u64) -> u64) -> u64 {
    live_with(device, tables, &size, &|id| tables.lifetimes.gone(id)).max().unwrap_or(0)
}

/// Like [`peak_with`], plus the memory that the source reports beyond its allocations, which stays unchanged.
pub fn peak_after(device: &DeviceRecording, tables: &DeviceTables, size: impl Fn(LifetimeId, u64) -> u64) -> u64 {
    peak_of(device, tables, &size, &|id| tables.lifetimes.gone(id))
}

/// Like [`peak_after`], with each block freed at the event that `gone` returns.
pub fn peak_if_freed(
    device: &DeviceRecording,
    tables: &DeviceTables,
    size: impl Fn(LifetimeId, u64) -> u64,
    gone: impl Fn(LifetimeId) -> u32,
) -> u64 {
    peak_of(device, tables, &size, &gone)
}

fn peak_of(
    device: &DeviceRecording,
    tables: &DeviceTables,
    size: &dyn Fn(LifetimeId, u64) -> u64,
    gone: &dyn Fn(LifetimeId) -> u32,
) -> u64 {
    let totals = &device.source_totals;
    let held = live_with(device, tables, size, gone);
    if !totals.allocated.is_known() {
        return held.max().unwrap_or(0);
    }
    let known = live_with(device, tables, &|_, block| block, &|id| tables.lifetimes.gone(id));
    let events = std::iter::once(NO_EVENT).chain(0..);
    let held = held.zip(known).zip(events);
    held.map(|((live, known), event)| live.saturating_add(totals.beyond(event, known))).max().unwrap_or(0)
}

/// The live bytes before the first event and after each event.
fn live_with(
    device: &DeviceRecording,
    tables: &DeviceTables,
    size: &dyn Fn(LifetimeId, u64) -> u64,
    gone: &dyn Fn(LifetimeId) -> u32,
) -> impl Iterator<Item = u64> + use<> {
    let lifetimes = &tables.lifetimes;
    let mut changes = vec![0i64; device.events.len()];
    let mut before = 0i64;
    for id in lifetimes.ids() {
        let bytes = i64::try_from(size(id, lifetimes.block_size(id))).unwrap_or(i64::MAX);
        match changes.get_mut(lifetimes.born(id) as usize) {
            Some(change) => *change = change.saturating_add(bytes),
            None => before = before.saturating_add(bytes),
        }
        if let Some(change) = changes.get_mut(gone(id) as usize) {
            *change = change.saturating_sub(bytes);
        }
    }
    let mut live = before;
    let after = changes.into_iter().map(move |change| {
        live = live.saturating_add(change);
        live
    });
    std::iter::once(before).chain(after).map(|live| u64::try_from(live).unwrap_or(0))
}

/// The effect of a change on the peak of active bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saving {
    /// The peak as recorded.
    pub before: u64,
    /// The peak with the change.
    pub after: u64,
}

impl Saving {
    /// The reduction of the peak, in bytes.
    pub fn bytes(self) -> u64 {
        self.before.saturating_sub(self.after)
    }

    /// The peak before, the peak after, and the difference, all in one unit.
    pub fn texts(self) -> [String; 3] {
        compared([self.before, self.after, self.bytes()])
    }

    /// `The peak falls to about 0.82 GiB`, without a full stop.
    pub(crate) fn falls(self) -> String {
        format!("The peak falls to about {}", self.texts()[1])
    }

    /// True if the peak falls by less than a hundredth, because another moment is as high.
    pub fn is_nothing(self) -> bool {
        self.bytes().saturating_mul(100) < self.before
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{AllocConf, Progress};
    use crate::tables::Quantity;
    use crate::toy::{Toy, ops};

    proptest! {
        #[test]
        fn with_the_recorded_sizes_the_peak_is_the_recorded_one(script in ops(80), from in 0usize..40) {
            let toy = Toy::run(AllocConf::default(), &script);
            let (device, _) = toy.recording(from.min(toy.states.len()));
            let tables = DeviceTables::build(&device, &Progress::new()).unwrap();
            let peak = tables.curves.peak(Quantity::Active).0;
            prop_assert_eq!(peak_with(&device, &tables, |_, size| size), peak);
            prop_assert_eq!(peak_with(&device, &tables, |_, size| size * 3), peak * 3);
            prop_assert_eq!(peak_with(&device, &tables, |_, _| 0), 0);
            // Removing one allocation lowers the peak by at most its size.
            let first = LifetimeId(0);
            let without = peak_with(&device, &tables, |id, size| if id == first { 0 } else { size });
            let size = if tables.lifetimes.is_empty() { 0 } else { tables.lifetimes.block_size(first) };
            prop_assert!(without <= peak && without + size >= peak);
        }
    }
}
