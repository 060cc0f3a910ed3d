//! [`RoleColumn`]: what each role held over the recording, one instant per column.

use super::{Role, Roles};
use crate::model::DeviceRecording;
use crate::tables::{DeviceTables, LifetimeId, NO_EVENT, Quantity};

/// The memory held at the instant of a column at which most bytes are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleColumn {
    /// The instant: the state after this event.
    pub event: u32,
    /// Bytes of blocks in the order of [`Role::ALL`], with pending frees. A trace's bytes beyond its blocks have no known role.
    pub bytes: [u64; Role::ALL.len()],
}

impl Roles {
    /// One column per pair of adjacent `bounds`, which are ascending event indices: a column covers `bounds[i]..bounds[i + 1]`.
    /// Columns without events are left out. O(lifetimes × log columns).
    pub fn columns(&self, device: &DeviceRecording, tables: &DeviceTables, bounds: &[u32]) -> Vec<RoleColumn> {
        let (curves, lifetimes) = (&tables.curves, &tables.lifetimes);
        let most = bounds.windows(2).filter_map(|w| curves.peak_in(device, lifetimes, Quantity::Active, w[0], w[1]));
        let mut columns: Vec<RoleColumn> = most.map(|(_, event)| RoleColumn { event, ..RoleColumn::default() }).collect();
        // The change from each column to the next, by role.
        let mut changes = vec![[0i64; Role::ALL.len()]; columns.len() + 1];
        let first_at = |event: u32| columns.partition_point(|c| c.event < event);
        for id in (0..lifetimes.len() as u32).map(LifetimeId) {
            let (born, role) = (lifetimes.born(id), self.of(id).index());
            let from = if born == NO_EVENT { 0 } else { first_at(born) };
            let to = first_at(lifetimes.gone(id));
            if from < to {
                let bytes = lifetimes.block_size(id) as i64;
                changes[from][role] = changes[from][role].wrapping_add(bytes);
                changes[to][role] = changes[to][role].wrapping_sub(bytes);
            }
        }
        let mut held = [0i64; Role::ALL.len()];
        for (column, change) in columns.iter_mut().zip(changes) {
            for (role, bytes) in change.into_iter().enumerate() {
                held[role] = held[role].wrapping_add(bytes);
                column.bytes[role] = held[role].max(0) as u64;
            }
            let known = column.bytes.iter().fold(0u64, |sum, &b| sum.saturating_add(b));
            let unknown = &mut column.bytes[Role::Unknown.index()];
            *unknown = unknown.saturating_add(device.source_totals.beyond(column.event, known));
        }
        columns
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::anatomy::roles::Rules;
    use crate::model::{Progress, Recording};
    use crate::toy::{self, Toy, confs};

    proptest! {
        #[test]
        fn each_column_is_what_was_live_at_its_instant(
            conf in confs(), ops in toy::ops(120), part in 0.0f64..0.9, columns in 1u32..40,
        ) {
            let toy = Toy::run(conf, &ops);
            let from = (toy.recording(0).0.events.len() as f64 * part) as usize;
            let device = toy.recording(from).0;
            let recording = Recording { devices: vec![device], ..Recording::default() };
            let device = &recording.devices[0];
            let progress = Progress::new();
            let tables = DeviceTables::build(device, &progress).unwrap();
            let roles = Roles::build(&recording, device, &tables, &Rules::default(), &progress).unwrap();
            let events = device.events.len() as u32;
            let bounds: Vec<u32> = (0..=columns).map(|c| (u64::from(events) * u64::from(c) / u64::from(columns)) as u32).collect();
            let found = roles.columns(device, &tables, &bounds);
            prop_assert!(found.len() as u32 <= columns.min(events));
            for column in found {
                let live = roles.live_by_role(device, &tables, column.event).map(|tally| tally.block_bytes);
                prop_assert_eq!(column.bytes, live);
                prop_assert_eq!(column.bytes.iter().sum::<u64>(), tables.curves.at(device, &tables.lifetimes, Quantity::Active, column.event));
            }
        }
    }
}
